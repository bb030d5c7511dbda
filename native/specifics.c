/* Specific terms. analyze/specific.py is the truth: specifics_patterns.h has the patterns, and here stands what is called by
 * which name, and how a text is cut into windows. */
#include "specifics_patterns.h"

enum { ENDLESS = 300, MOST_CHARS = 120, BEFORE = 40 };

typedef struct {
    uint8_t *terms;
    size_t room, size, n;
    int full;
} output;

/* ---- what a term is called ---- */

/* Is a capitalised word the first of a sentence? Four characters back are looked at. */
static int opens_sentence(const window *w, int i) {
    const int from = i > 4 ? i - 4 : 0;
    while (i > from && w->k[i - 1] & SPACE)
        if (w->c[--i] == '\n') return 1;
    return i == from || (w->c[i - 1] < 0x80 && memchr(".!?:;\"(*#>]-", (int)w->c[i - 1], 12) != NULL);
}

static int is_between(const window *w, int i) { return (w->k[i] & (SPACE | COLON | EQUALS | QUOTE | HASH)) || w->c[i] == '('; }

/* Where the word begins that ends a text at `end`, of which nothing before `from` is seen; -1: no word ends it. *stop: where
 * it ends itself. */
static int word_before(const window *w, int from, int end, int *stop) {
    int at, first = -1;
    if (end > from && w->c[end - 1] == '\n') end--;
    for (int n = 0; n < 3 && end > from && is_between(w, end - 1); n++) end--;
    for (at = end; at > from && w->k[at - 1] & (WORD | DOT | DASH); at--)
        if (w->k[at - 1] & LETTER) first = at - 1;
    *stop = end;
    return first;
}

/* A number from i to *end with the word that it belongs to; returns where that begins. */
static int with_its_name(const window *w, int i, int *end) {
    const int from = i > BEFORE ? i - BEFORE : 0;
    int before = i, after;
    for (int n = 0; n < 3; n++) {
        int stop;
        const int at = word_before(w, from, before, &stop);
        const uint32_t flags = at < 0 ? 0 : flags_of(w, at, stop, 1);
        if (at < 0) break;
        if (!(flags & SPECIFICS_LINK)) {
            if (!(flags & SPECIFICS_UNNAMED)) return at;
            break;
        }
        before = at;
    }
    after = *end + ((w->k[*end] & (SPACE | DASH)) != 0);
    if (w->k[after] & LETTER) {
        const int stop = run(w, after, WORD | DASH);
        if (!(flags_of(w, after, stop, 1) & SPECIFICS_UNNAMED)) *end = stop;
    }
    return i;
}

static void put(output *o, const window *w, int from, int to) {
    const size_t n = (size_t)(w->bytes[to] - w->bytes[from]);
    if (to <= from || to - from > MOST_CHARS) return;
    if (o->room - o->size < n + 1) {
        o->full = 1;
        return;
    }
    if (o->n++) o->terms[o->size++] = 0;
    memcpy(o->terms + o->size, w->bytes[from], n);
    o->size += n;
}

/* Without the marks around it, and the stops behind. */
static void put_bare(output *o, const window *w, int from, int to) {
    while (from < to && (w->c[from] == '`' || w->c[from] == '"')) from++;
    while (from < to && (w->c[to - 1] == '`' || w->c[to - 1] == '"')) to--;
    while (from < to && w->c[to - 1] < 0x80 && memchr(".,:;", (int)w->c[to - 1], 4)) to--;
    put(o, w, from, to);
}

static void put_number(output *o, const window *w, int i, int end) {
    const int from = with_its_name(w, i, &end);
    put(o, w, from, end);
}

static void put_name(output *o, const window *w, int i, int end) {
    int words = 0;
    for (int at = i; at < end; at++) words += w->c[at] == ' ';
    if (!words && opens_sentence(w, i)) return;
    if (flags_of(w, i, end, 1) & SPECIFICS_STOP) return;
    put(o, w, i, end);
}

static void put_id(output *o, const window *w, int i, int end) {
    if (run(w, i, CAPITAL) >= end && flags_of(w, i, end, 1) & (SPECIFICS_STOP | SPECIFICS_CHAT)) return;
    put(o, w, i, end);
}

/* ---- a window ---- */

/* The term of some kind that begins at i with a sign; returns where it ends, or 0. */
static int of_sign(output *o, const window *w, int i) {
    const uint32_t kind = w->k[i], c = w->c[i];
    const int follows = w->k[i - 1] & WORD;
    int end;
    if (follows && kind & (DOT | PLUS | DASH) && (end = mail(w, i))) return put(o, w, i, end), end;
    if (c == '`' && (end = code(w, i))) return put_bare(o, w, i, end), end;
    if ((c == '~' || kind & (DOT | SLASH)) && (end = path_from_root(w, i))) return put(o, w, i, end), end;
    if (kind & DASH && follows && (end = file(w, i))) return put(o, w, i, end), end;
    if (kind & DASH && (end = flag(w, i))) return put(o, w, i, end), end;
    if (c == '#' && (end = run(w, i + 1, DIGIT)) > i + 1 && is_border(w, end)) return put_id(o, w, i, end), end;
    if ((end = number(w, i))) return put_number(o, w, i, end), end;
    if (c == '"' && (end = between(w, i, 2, 60))) return put_bare(o, w, i, end), end;
    return 0;
}

/* The same where it begins with a word, which ends at `word`. */
static int of_word(output *o, const window *w, int i, int word) {
    int end;
    uint32_t flags;
    if (is_plain(w, i)) return 0;
    flags = flags_of(w, i, word, 0);
    if ((end = url(w, i))) return put_bare(o, w, i, end), end;
    if ((end = mail(w, i)) || (end = assign(w, i)) || (end = path_of_windows(w, i)) || (end = path_of_names(w, i)) ||
        (end = file(w, i)) || (end = date(w, i, word, flags)) || (end = version(w, i)))
        return put(o, w, i, end), end;
    if ((end = id(w, i, word))) return put_id(o, w, i, end), end;
    if ((end = number(w, i))) return put_number(o, w, i, end), end;
    if ((end = name(w, i))) return put_name(o, w, i, end), end;
    return 0;
}

static void put_terms(output *o, const window *w) {
    for (int i = 0; i < w->n && !o->full;) {
        int end = 0;
        if (w->k[i] & SPACE) {
            i++;
        } else if (!(w->k[i] & WORD)) {
            end = of_sign(o, w, i);
            i = end ? end : i + 1;
        } else {
            const int word = run(w, i, WORD);
            if (!(w->k[i - 1] & WORD)) end = of_word(o, w, i, word); /* nothing begins in the middle of a word */
            i = end ? end : word;
        }
    }
}

/* The next window from p on: up to WINDOW characters, to a space where there is one. Returns where it ends. */
static const uint8_t *fill(window *w, const uint8_t *p, const uint8_t *end) {
    uint32_t *const c = w->chars + PAD, *const k = w->kinds + PAD;
    int n = 0, border;
    for (unsigned size; n < WINDOW && p < end; n++, p += size) {
        w->bytes[n] = p;
        c[n] = next(p, &size);
        k[n] = kind_of(w->unicode, c[n]);
    }
    w->bytes[n] = p;
    if (p < end) {
        unsigned size;
        border = n;
        if (!(kind_of(w->unicode, next(p, &size)) & SPACE))
            while (--border > 0 && !(k[border] & SPACE)) {}
        if (border > 0) n = border;
    }
    memset(c + n, 0, PAD * sizeof *c);
    memset(k + n, 0, PAD * sizeof *k);
    w->n = n;
    return w->bytes[n];
}

static int is_endless(const analyze_unicode *u, const uint8_t *p, const uint8_t *end) {
    int n = 0, was = -1;
    for (unsigned size; p < end; p += size) {
        const int is = (u->kind[next(p, &size)] & ANALYZE_SPACE) != 0;
        n = is == was ? n + 1 : 1;
        was = is;
        if (n > ENDLESS) return 1;
    }
    return 0;
}

int64_t specifics_of(const analyze_unicode *unicode, const lexicon *words, size_t n_bytes, const char *text,
                     size_t room, char *terms) {
    const uint8_t *p = (const uint8_t *)text, *const end = p + n_bytes;
    output o = {(uint8_t *)terms, room, 0, 0, 0};
    window w = {.unicode = unicode, .words = words};
    if (!is_ours(unicode, p, end)) return ANALYZE_FOREIGN;
    if (is_endless(unicode, p, end)) return SPECIFICS_ENDLESS;
    w.c = w.chars + PAD, w.k = w.kinds + PAD;
    while (p < end && !o.full) {
        p = fill(&w, p, end);
        put_terms(&o, &w);
    }
    return o.full ? ANALYZE_ROOM : (int64_t)o.size;
}
