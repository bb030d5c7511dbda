/* Counts. analyze/facts.py is the truth. */
#include "facts.h"
#include "analyze_utf8.h"

/* What the characters of a piece were so far: how much of _PROSE is behind them, and are all of them letters? */
enum { OPENING, INSIDE, CLOSING, NONE };
typedef struct {
    uint32_t n, letters, in_word;
    int state;
} facts_piece;

static void add(facts_piece *p, uint32_t c, uint8_t kind) {
    const int in_word = kind & ANALYZE_WORD && !(kind & ANALYZE_DIGIT) && c != '_';
    if (kind & ANALYZE_MARK) return;
    p->n++;
    p->letters += (kind & ANALYZE_ALPHA) != 0;
    if (in_word) {
        p->in_word++;
        p->state = p->state <= INSIDE ? INSIDE : NONE;
    } else if (p->state == OPENING) {
        if (!is_one_of(c, "(\"'*", 4)) p->state = NONE;
    } else if (p->state != NONE) {
        p->state = is_one_of(c, ".,;:!?)\"'*", 10) ? CLOSING : NONE;
    }
}

static void end_piece(facts *f, facts_piece *p) {
    if (!p->n) return;
    f->pieces++;
    f->plain += p->n > 1 && p->letters == p->n;
    f->prose += p->in_word >= 2 && (p->state == INSIDE || p->state == CLOSING);
    *p = (facts_piece){0, 0, 0, OPENING};
}

static void count(const analyze_unicode *u, const uint8_t *at, const uint8_t *end, facts *f) {
    facts_piece p = {0, 0, 0, OPENING};
    uint8_t before = 0;
    for (unsigned n; at < end; at += n) {
        const uint32_t c = next(at, &n);
        const uint8_t kind = u->kind[c];
        f->wide += (kind & ANALYZE_WIDE) != 0;
        if (kind & ANALYZE_DIGIT) f->flags |= FACTS_DIGIT;
        if (is_one_of(c, "{}[]();=<>", 10)) {
            f->signs++;
            if (is_one_of(c, "{};=<>", 6) || (c == '(' && before & ANALYZE_WORD)) f->flags |= FACTS_CALLS;
        }
        if (kind & ANALYZE_SPACE) end_piece(f, &p);
        else add(&p, c, kind);
        before = kind;
    }
    end_piece(f, &p);
}

/* Is a term long enough to say something by itself? is_content of analyze/__init__.py. */
static int is_content(const analyze_unicode *u, const uint8_t *term, size_t n) {
    size_t chars = 0;
    unsigned size;
    for (size_t i = 0; i < n && chars < 3; i++) chars += (term[i] & 0xC0) != 0x80;
    return chars > 2 || (chars == 2 && u->kind[next(term, &size)] & ANALYZE_WIDE);
}

/* Leaves those of the terms that say something; returns how many bytes they are. */
static size_t sift(const analyze_unicode *u, const lexicon *stems, size_t size, uint8_t *terms, facts *f) {
    size_t kept = 0;
    for (size_t at = 0, n; at < size; at += n + 1) {
        const uint8_t *const border = memchr(terms + at, '\n', size - at);
        uint32_t flags;
        n = border ? (size_t)(border - terms) - at : size - at;
        flags = lexicon_flags(stems, n, terms + at);
        f->flags |= flags & ~(uint32_t)FACTS_COMMON;
        if (flags & FACTS_COMMON || !is_content(u, terms + at, n)) continue;
        if (kept) terms[kept++] = '\n';
        memmove(terms + kept, terms + at, n);
        kept += n;
    }
    return kept;
}

int64_t facts_of(const analyze_unicode *unicode, const lexicon *stems, size_t n_parts, const uint32_t *n_bytes,
                 const char *text, facts *found, size_t room, char *terms) {
    size_t size = 0;
    for (size_t i = 0; i < n_parts; text += n_bytes[i++]) {
        const int64_t all = analyze_terms(unicode, NULL, n_bytes[i], text, '\n', room - size, terms + size, NULL);
        if (all < 0) return all;
        found[i] = (facts){0, 0, 0, 0, 0, 0};
        count(unicode, (const uint8_t *)text, (const uint8_t *)text + n_bytes[i], found + i);
        size += sift(unicode, stems, (size_t)all, (uint8_t *)terms + size, found + i);
        if (size == room) return ANALYZE_ROOM;
        terms[size++] = 0;
    }
    return (int64_t)size;
}

/* As re.I takes it for an ASCII letter, in lower case; 0xFF for what is none. analyze/__init__.py has the odd ones; those of them that are
 * capitals are OTHER, and not here. */
static uint8_t folded(uint32_t c) {
    if (c < 0x80) return (uint8_t)(c >= 'A' && c <= 'Z' ? c | 32 : c);
    return c == 0x131 ? 'i' : c == 0x17F ? 's' : 0xFF;
}

typedef struct {
    uint8_t letters[LEXICON_LETTERS];
    size_t n;
    uint32_t digits;
} facts_word;

static void end_word(const lexicon *words, facts_word *w, facts_counts *f) {
    const uint32_t flags = w->n ? lexicon_flags(words, w->n, w->letters) : 0;
    for (int sort = 0; sort < 4; sort++) f->of_sort[sort] += flags >> sort & 1;
    f->years += w->n == 4 && w->digits == 4;
    w->n = w->digits = 0;
}

static void count_words(const analyze_unicode *u, const lexicon *words, const uint8_t *at, const uint8_t *end, facts_counts *f) {
    static const uint64_t this_ = UINT64_C(0x7468697320), last_five = UINT64_C(0xFFFFFFFFFF); /* "this " */
    uint64_t before = 0; /* the letters before, the last one lowest */
    facts_word w = {{0}, 0, 0};
    int within = 0, asks = 0;
    for (unsigned n; at < end; at += n) {
        const uint32_t c = next(at, &n);
        const uint8_t kind = u->kind[c], letter = folded(c);
        if (kind & ANALYZE_WORD) {
            if (w.n < LEXICON_LETTERS) w.letters[w.n] = letter;
            w.n++;
            w.digits += (kind & ANALYZE_DIGIT) != 0;
        } else if (w.n) {
            end_word(words, &w, f);
        }
        f->times += (kind & ANALYZE_DIGIT && ((before & 0xFF) == ':' || (before & 0xFF) == '-')) ||
                    ((letter == 'm' || letter == 's') && (before & last_five) == this_);
        before = before << 8 | letter;
        if (c == '.' || c == '!' || c == '?' || c == '\n' || c == 0x2026) {
            f->ends += !within;
            f->asking += c == '?' && !(within && asks);
            asks = c == '?' || (within && asks);
            within = 1;
        } else {
            within = 0;
        }
    }
    end_word(words, &w, f);
}

int64_t facts_count(const analyze_unicode *unicode, const lexicon *words, size_t n_parts, const uint32_t *n_bytes,
                    const char *text, facts_counts *found) {
    for (size_t i = 0; i < n_parts; text += n_bytes[i++]) {
        const uint8_t *const from = (const uint8_t *)text, *const end = from + n_bytes[i];
        if (!is_ours(unicode, from, end)) return ANALYZE_FOREIGN;
        found[i] = (facts_counts){{0}, 0, 0, 0, 0};
        count_words(unicode, words, from, end, found + i);
    }
    return 0;
}
