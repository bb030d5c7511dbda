/* Text to terms. analyze/__init__.py is the truth: the names here are its names, and what follows must do what it does. */
#include "analyze.h"
#include "analyze_utf8.h"
#include "bm25_atomic.h"

#include <string.h>

enum { MAX_TERM = 96, MAX_RUN = 4 * MAX_TERM, MAX_PARTS = 12, LONGEST = 4 /* bytes of UTF-8 */ };
enum { MOST_FOLDED = 2, MAX_FOLDED = MOST_FOLDED * MAX_RUN, LEAST_LEFT = 3, MOST_ENDING = 7 };

typedef struct {
    const analyze_unicode *unicode;
    analyze_words *words; /* or NULL */
    const uint8_t *end; /* of the text */
    uint8_t *terms;
    size_t room, size, n;
    char between;
    int full;
} output;

/* One run of characters: folded, and in lower case. */
typedef struct {
    size_t n;
    uint32_t as_is[MAX_FOLDED], low[MAX_FOLDED];
} run;

typedef struct {
    size_t n;
    uint8_t bytes[MAX_FOLDED * LONGEST];
} piece;

/* ---- runs: _RUN of analyze/__init__.py ---- */

static int is_letter(uint8_t c) { return (uint8_t)((c | 32) - 'a') < 26; }

/* Behind https:// and what follows it, or NULL. */
static const uint8_t *url(const output *o, const uint8_t *p) {
    const size_t left = (size_t)(o->end - p);
    const uint8_t *from;
    unsigned n;
    if (left < 8 || memcmp(p, "http", 4)) return NULL;
    from = p += p[4] == 's' ? 5 : 4;
    if (o->end - p < 3 || memcmp(p, "://", 3)) return NULL;
    for (from = p += 3; p < o->end; p += n)
        if (o->unicode->kind[next(p, &n)] & ANALYZE_SPACE || (*p < 0x80 && memchr("<>\"'`)]", *p, 7))) break;
    return p > from ? p : NULL;
}

/* Behind --a-flag, or NULL. */
static const uint8_t *flag(const output *o, const uint8_t *p) {
    unsigned n;
    p += p + 1 < o->end && p[1] == '-' ? 2 : 1;
    if (p >= o->end || !is_letter(*p)) return NULL;
    for (; p < o->end; p += n)
        if (!(o->unicode->kind[next(p, &n)] & ANALYZE_WORD) && *p != '-') break;
    return p;
}

/* Behind a word, number, path, identifier ..., or NULL. */
static const uint8_t *plain(const output *o, const uint8_t *p) {
    static const uint8_t joins[128] = {['.'] = 1, ['/'] = 1,  [':'] = 1,  ['@'] = 1,
                                       ['+'] = 1, ['\''] = 1, ['\\'] = 1, ['-'] = 1};
    const uint8_t *const kind = o->unicode->kind;
    const uint8_t *stop = NULL;
    unsigned n;
    if (*p == '~') p++;
    for (int dots = 0; dots < 2 && p < o->end && *p == '.'; dots++) p++;
    if (p < o->end && *p == '/') p++;
    if (p >= o->end || !(kind[next(p, &n)] & ANALYZE_WORD)) return NULL;
    for (; p < o->end; p += n) {
        while (p < o->end && *p < 0x80 && kind[*p] & ANALYZE_WORD) stop = ++p;
        if (p == o->end) break;
        const uint32_t c = next(p, &n);
        if (kind[c] & (ANALYZE_WORD | ANALYZE_MARK))
            stop = p + n;
        else if (c == 0x2019 ? 0 : c >= 0x80 || !joins[c])
            break;
    }
    return stop;
}

static const uint8_t *run_at(const output *o, const uint8_t *p) {
    const uint8_t *stop = *p == 'h' ? url(o, p) : *p == '-' ? flag(o, p) : NULL;
    return stop ? stop : plain(o, p);
}

/* ---- a run to terms: _expand of analyze/__init__.py ---- */

static uint32_t lower(const analyze_unicode *u, uint32_t c) {
    size_t low = 0, high = u->n_upper;
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (!(u->kind[c] & ANALYZE_UPPER)) return c;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (u->upper[middle] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < u->n_upper && u->upper[low] == c ? u->lower[low] : c;
}

static uint8_t *begin(output *o, size_t n_bytes) {
    if (o->room - o->size < n_bytes + 1) {
        o->full = 1;
        return NULL;
    }
    if (o->n++) o->terms[o->size++] = (uint8_t)o->between;
    return o->terms + o->size;
}

static void put(output *o, const uint8_t *bytes, size_t n) {
    uint8_t *const to = begin(o, n);
    if (!to) return;
    memcpy(to, bytes, n);
    o->size += n;
}

static void put_letters(output *o, const uint8_t letters[ANALYZE_LETTERS], size_t n) {
    uint8_t *to;
    if (o->room - o->size <= ANALYZE_LETTERS) {
        put(o, letters, n);
        return;
    }
    to = begin(o, ANALYZE_LETTERS);
    memcpy(to, letters, ANALYZE_LETTERS); /* a fixed size is two moves; the next term goes over what is too much */
    o->size += n;
}

static void put_stem(output *o, const uint64_t word[2], size_t n) {
    uint8_t letters[ANALYZE_LETTERS];
    memcpy(letters, word, sizeof letters);
    put_letters(o, letters, analyze_stem(letters, n));
}

/* A word of n <= ANALYZE_LETTERS lower-case ASCII letters is put aside until all are: its place in the memo is probably
 * in no near cache. */
static void put_aside(analyze_words *w, const uint64_t word[2], size_t n) {
    const uint64_t hash = (word[0] ^ word[1] * UINT64_C(0xC2B2AE3D27D4EB4F)) * UINT64_C(0x9E3779B97F4A7C15);
    analyze_word *const place = &w->memo->at[hash >> 32 & (ANALYZE_WORDS - 1)];
    prefetch(place);
    w->fresh[w->n_fresh++] = (analyze_fresh){{word[0], word[1]}, place, n, 0};
}

/* Those that were put aside and have a name are told by it; the others are left. Without a branch on which: it would be
 * mispredicted too often. */
static void name_words(analyze_words *w) {
    const size_t n = w->n_fresh;
    w->n_fresh = 0;
    for (size_t i = 0; i < n; i++) {
        const analyze_fresh f = w->fresh[i];
        const uint64_t differs = (f.word->letters[0] ^ f.letters[0]) | (f.word->letters[1] ^ f.letters[1]);
        const size_t is_known = (size_t)!differs & (size_t)(f.word->name != NULL);
        w->named[w->n_named] = f.word->name, w->n_named += is_known;
        w->fresh[w->n_fresh] = f, w->n_fresh += 1 - is_known;
    }
}

static void put_fresh(output *o, analyze_words *w) {
    for (analyze_fresh *f = w->fresh; f < w->fresh + w->n_fresh && !o->full; f++) {
        f->word->letters[0] = f->letters[0], f->word->letters[1] = f->letters[1], f->word->name = NULL;
        f->term = o->n;
        put_stem(o, f->letters, f->n);
    }
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ALL(byte) (UINT64_C(0x0101010101010101) * (byte))

/* How many of eight bytes come before the first that is no ASCII letter. */
static unsigned letters_of(uint64_t word) {
    const uint64_t low = (word | ALL(0x20)) & ALL(0x7F);
    const uint64_t are = (low + ALL(0x80 - 'a')) & ~(low + ALL(0x7F - 'z')) & ~word & ALL(0x80);
    const uint64_t not = are ^ ALL(0x80);
    return not ? (unsigned)__builtin_ctzll(not) / 8 : 8;
}

/* A run that is a plain word of up to 16 letters, which most of them are: its stem goes out. Behind it and the space after
 * it, or NULL when what stands at p is something else, or too near the end to look at two words of memory. */
static const uint8_t *plain_word(output *o, const uint8_t *p) {
    uint64_t at[2], word[2];
    unsigned n;
    if (o->end - p < ANALYZE_LETTERS + 2) return NULL;
    memcpy(at, p, sizeof at);
    if ((n = letters_of(at[0])) == 8) n += letters_of(at[1]);
    if (!n) return NULL;
    if (p[n] != ' ') {
        if (p[n] >= 0x80 || o->unicode->kind[p[n]] & ANALYZE_WORD) return NULL;
        if (memchr("./:@+'\\-", p[n], 8) && p[n + 1] != ' ' && p[n + 1] != '\n') return NULL; /* may go on */
    }
    at[0] &= n >= 8 ? ~UINT64_C(0) : (UINT64_C(1) << 8 * n) - 1;
    at[1] &= n <= 8 ? 0 : n == 16 ? ~UINT64_C(0) : (UINT64_C(1) << 8 * (n - 8)) - 1;
    for (int i = 0; i < 2; i++) word[i] = at[i] | (at[i] & ALL(0x40)) >> 1;
    if (at[0] != word[0] || at[1] != word[1]) { /* a capital first, or all of them */
        const int first_alone = (at[0] ^ word[0]) == 0x20 && at[1] == word[1];
        const int all = !((at[0] | at[1]) & ALL(0x20));
        if (!first_alone && !all) return NULL;
    }
    if (o->words)
        put_aside(o->words, word, n);
    else
        put_stem(o, word, n);
    return p + n + (p[n] == ' ');
}
#else
static const uint8_t *plain_word(output *o, const uint8_t *p) {
    (void)o, (void)p;
    return NULL;
}
#endif

/* A run of ASCII letters, all small, all capital, or all but the first small: one stem. 0 when it is no such run. */
static int put_word(output *o, const uint8_t *p, size_t n) {
    size_t n_upper = 0, first = n && !(p[0] & 32);
    uint8_t *to;
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(p[i])) return 0;
        n_upper += !(p[i] & 32);
    }
    if (n_upper != first && n_upper != n) return 0;
    if (!(to = begin(o, n))) return 1;
    for (size_t i = 0; i < n; i++) to[i] = p[i] | 32;
    o->size += analyze_stem(to, n);
    return 1;
}

static size_t encode_all(const uint32_t *c, size_t n, uint8_t *to) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++) size += encode(c[i], to + size);
    return size;
}

/* The flags of n characters. */
static uint32_t ending(const analyze_unicode *u, const uint32_t *c, size_t n) {
    uint8_t bytes[MOST_ENDING * LONGEST];
    return lexicon_flags(u->endings, encode_all(c, n, bytes), bytes);
}

/* A word that is not ASCII without its endings: light() of analyze/letters.py. */
static void put_light(const analyze_unicode *u, const uint32_t *low, size_t n, piece *to) {
    for (size_t left = MOST_ENDING; left; left--)
        if (n >= left + LEAST_LEFT && ending(u, low + n - left, left) & ANALYZE_ENDING) n -= left, left = MOST_ENDING + 1;
    for (size_t left = LEAST_LEFT; left; left--)
        if (n >= left + LEAST_LEFT && ending(u, low, left) & ANALYZE_BEGINNING) low += left, n -= left, left = LEAST_LEFT + 1;
    to->n = encode_all(low, n, to->bytes);
}

/* The stem of a word in lower case. */
static void stem(const analyze_unicode *u, const uint32_t *low, size_t n, piece *to) {
    for (size_t i = 0; i < n; i++) {
        if (low[i] >= 0x80) {
            put_light(u, low, n, to);
            return;
        }
        to->bytes[i] = (uint8_t)low[i];
    }
    to->n = analyze_stem(to->bytes, n);
}

/* Where the part that begins at `from` ends, or `from` when none begins there: _PART of analyze/__init__.py. */
static size_t part_at(const analyze_unicode *u, const run *r, size_t from) {
    const uint32_t c = r->as_is[from];
    const uint8_t kind = u->kind[c];
    size_t at = from;
    if (c < 0x80 && is_letter((uint8_t)c)) {
        while (at < r->n && r->as_is[at] >= 'A' && r->as_is[at] <= 'Z') at++;
        if (at > from + 1 || at == r->n) return at < r->n && r->as_is[at] >= 'a' && r->as_is[at] <= 'z' ? at - 1 : at;
        while (at < r->n && r->as_is[at] >= 'a' && r->as_is[at] <= 'z') at++;
        return at;
    }
    if (!(kind & ANALYZE_WORD) || c == '_') return from;
    while (at < r->n && u->kind[r->as_is[at]] & (ANALYZE_WORD | ANALYZE_MARK) && r->as_is[at] != '_' &&
           !(r->as_is[at] < 0x80 && is_letter((uint8_t)r->as_is[at])) &&
           !((u->kind[r->as_is[at]] ^ kind) & ANALYZE_DIGIT))
        at++;
    return at;
}

static void put_pairs(output *o, const run *r) {
    uint8_t bytes[2 * LONGEST];
    if (r->n == 1) put(o, bytes, encode(r->low[0], bytes));
    for (size_t i = 0; i + 1 < r->n; i++) put(o, bytes, encode_all(r->low + i, 2, bytes));
}

static void expand(output *o, const run *r);

/* A run with signs of scripts without spaces: _expand_by_script() of analyze/__init__.py. */
static void put_scripts(output *o, const run *r) {
    const uint8_t *kind = o->unicode->kind;
    uint8_t word[MAX_FOLDED];
    run part;
    for (size_t at = 0, stop; at < r->n; at = stop) {
        const int wide = (kind[r->low[at]] & ANALYZE_WIDE) != 0;
        size_t last, ascii = 0;
        for (stop = at; stop < r->n && ((kind[r->low[stop]] & ANALYZE_WIDE) != 0) == wide;) stop++;
        last = stop;
        while (!wide && at < last && !(kind[r->as_is[at]] & (ANALYZE_WORD | ANALYZE_MARK))) at++;
        while (!wide && at < last && !(kind[r->as_is[last - 1]] & (ANALYZE_WORD | ANALYZE_MARK))) last--;
        part.n = last - at;
        memcpy(part.as_is, r->as_is + at, part.n * sizeof *part.as_is);
        memcpy(part.low, r->low + at, part.n * sizeof *part.low);
        if (wide) {
            put_pairs(o, &part);
            continue;
        }
        while (ascii < part.n && part.as_is[ascii] < 0x80) word[ascii] = (uint8_t)part.as_is[ascii], ascii++;
        if (part.n && !(ascii == part.n && put_word(o, word, part.n))) expand(o, &part);
    }
}

static void put_whole_and_parts(output *o, const run *r) {
    piece whole, parts[MAX_PARTS];
    size_t first = 0, last = r->n, n_parts = 0, n_found = 0, whole_is_part = 0;
    if (part_at(o->unicode, r, 0) == r->n) {
        stem(o->unicode, r->low, r->n, &whole);
        put(o, whole.bytes, whole.n);
        return;
    }
    while (first < last && r->low[first] < 0x80 && memchr("./:@+'-\\", (int)r->low[first], 8)) first++;
    while (first < last && r->low[last - 1] < 0x80 && memchr("./:@+'-\\", (int)r->low[last - 1], 8)) last--;
    whole.n = encode_all(r->low + first, last - first, whole.bytes);
    for (size_t at = 0, stop; at < r->n && n_found < MAX_PARTS; at = stop > at ? stop : at + 1) {
        size_t known = 0;
        if ((stop = part_at(o->unicode, r, at)) == at) continue;
        n_found++;
        stem(o->unicode, r->low + at, stop - at, parts + n_parts);
        while (known < n_parts && (parts[known].n != parts[n_parts].n ||
                                   memcmp(parts[known].bytes, parts[n_parts].bytes, parts[known].n)))
            known++;
        n_parts += known == n_parts;
    }
    for (size_t i = 0; i < n_parts; i++)
        whole_is_part |= parts[i].n == whole.n && !memcmp(parts[i].bytes, whole.bytes, whole.n);
    if (last - first <= MAX_TERM && !whole_is_part) put(o, whole.bytes, whole.n);
    for (size_t i = 0; i < n_parts; i++) put(o, parts[i].bytes, parts[i].n);
}

/* A word with apostrophes: without_apostrophe() of analyze/letters.py. */
static void put_joined(output *o, const run *r) {
    piece word;
    size_t quote = 0, first = 0, last = r->n;
    while (r->low[quote] != '\'') quote++;
    if (quote + 1 < r->n && quote <= MOST_ENDING && ending(o->unicode, r->low, quote) & ANALYZE_ELIDED)
        first = quote + 1;
    else if (quote && r->n - quote - 1 <= MOST_ENDING &&
             ending(o->unicode, r->low + quote + 1, r->n - quote - 1) & ANALYZE_ATTACHED)
        last = quote;
    stem(o->unicode, r->low + first, last - first, &word);
    put(o, word.bytes, word.n);
}

/* What the run is, but for words of ASCII letters. */
static void expand(output *o, const run *r) {
    size_t n_quotes = 0, n_alpha = 0;
    for (size_t i = 0; i < r->n; i++) {
        const uint8_t kind = o->unicode->kind[r->low[i]];
        if (kind & ANALYZE_WIDE) {
            put_scripts(o, r);
            return;
        }
        n_quotes += r->low[i] == '\'';
        n_alpha += (kind & ANALYZE_ALPHA) != 0;
    }
    if (n_quotes && n_alpha && n_quotes + n_alpha == r->n)
        put_joined(o, r);
    else
        put_whole_and_parts(o, r);
}

/* Appends what stands for a character: fold() of analyze/letters.py. */
static void add_folded(const analyze_unicode *u, run *r, uint32_t c) {
    size_t low = 0, high = c < 0x80 ? 0 : u->n_folds;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (u->folded[middle] < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (c < 0x80 || low == u->n_folds || u->folded[low] != c) {
        r->as_is[r->n++] = c;
        return;
    }
    for (size_t i = 0; i < MOST_FOLDED && u->folds[MOST_FOLDED * low + i]; i++)
        r->as_is[r->n++] = u->folds[MOST_FOLDED * low + i];
}

static void put_run(output *o, const uint8_t *p, const uint8_t *stop) {
    uint8_t word[MAX_FOLDED];
    run r;
    unsigned n;
    size_t chars = 0, head = 0, i = 0;
    if (stop - p <= MAX_RUN && put_word(o, p, (size_t)(stop - p))) return;
    for (r.n = 0; p < stop && chars < MAX_RUN; p += n) {
        add_folded(o->unicode, &r, next(p, &n));
        if (++chars == MAX_TERM) head = r.n;
    }
    if (p < stop) r.n = head; /* longer than that: its beginning */
    while (i < r.n && r.as_is[i] < 0x80) word[i] = (uint8_t)r.as_is[i], i++;
    if (!r.n || (i == r.n && put_word(o, word, r.n))) return; /* a plain word now */
    for (i = 0; i < r.n; i++) r.low[i] = lower(o->unicode, r.as_is[i]);
    expand(o, &r);
}

int64_t analyze_terms(const analyze_unicode *unicode, analyze_words *words, size_t n_bytes, const char *text,
                      char between, size_t room, char *terms, size_t *n_terms) {
    const uint8_t *p = (const uint8_t *)text, *const end = p + n_bytes;
    output o = {unicode, words, end, (uint8_t *)terms, room, 0, 0, between, 0};
    if (!is_ours(unicode, p, end)) return ANALYZE_FOREIGN;
    if (words) words->n_named = words->n_fresh = 0;
    while (p < end && !o.full) {
        const uint8_t *stop = plain_word(&o, p);
        unsigned n;
        if (stop) {
            p = stop;
        } else if (*p == ' ') {
            p++;
        } else if ((stop = run_at(&o, p)) != NULL) {
            put_run(&o, p, stop);
            p = stop;
        } else {
            next(p, &n);
            p += n;
        }
    }
    if (words) name_words(words), put_fresh(&o, words);
    if (n_terms) *n_terms = o.n;
    return o.full ? ANALYZE_ROOM : (int64_t)o.size;
}

int64_t analyze_parts(const analyze_unicode *unicode, size_t n_parts, const uint32_t *n_bytes, const char *text,
                      size_t room, char *terms) {
    size_t size = 0;
    for (size_t i = 0; i < n_parts; text += n_bytes[i++]) {
        const int64_t more = analyze_terms(unicode, NULL, n_bytes[i], text, '\n', room - size, terms + size, NULL);
        if (more < 0) return more;
        size += (size_t)more;
        if (size == room) return ANALYZE_ROOM;
        terms[size++] = 0;
    }
    return (int64_t)size;
}
