/* Sentences. analyze/__init__.py is the truth: the names here are its names. */
#include "sentences.h"
#include "analyze_utf8.h"

typedef struct {
    const analyze_unicode *unicode;
    const uint8_t *text, *end;
    const uint8_t *counted; /* where `index` stands */
    uint32_t index;
    uint32_t *spans;
    int64_t n;
} output;

static int is_wide_end(uint32_t c) { return c == 0x3002 || c == 0xFF01 || c == 0xFF1F; }

/* Question mark and full stop of Arabic and Urdu, the danda of Hindi and Bengali. */
static int is_other_end(uint32_t c) { return c == 0x61F || c == 0x6D4 || c == 0x964; }

static int may_end(uint32_t c) { return is_one_of(c, ".!?\n", 4) || c == 0x2026 || is_wide_end(c) || is_other_end(c); }

static int is_among(uint32_t c, uint32_t first, uint32_t last) { return c >= first && c <= last; }

/* Of Latin Extended-A, where capitals and small letters take turns. */
static int is_extended_capital(uint32_t c) {
    if (c == 0x138 || c == 0x149 || c == 0x17F) return 0;
    if (c == 0x178) return 1;
    return is_among(c, 0x139, 0x148) || is_among(c, 0x179, 0x17E) ? c % 2 == 1 : is_among(c, 0x100, 0x177) && c % 2 == 0;
}

/* _CAPITALS and _UNCASED */
static int is_first_letter(uint32_t c) {
    if (c < 0x100) return is_among(c, 'A', 'Z') || is_among(c, 0xC0, 0xDE);
    return is_extended_capital(c) || is_among(c, 0x391, 0x3AB) || is_among(c, 0x400, 0x42F) || is_among(c, 0x531, 0x556) ||
           is_among(c, 0x5D0, 0x5EA) || is_among(c, 0x620, 0x64A) || is_among(c, 0x671, 0x6D3) ||
           is_among(c, 0x904, 0x939) || is_among(c, 0x985, 0x9B9);
}

static const uint8_t *spaces(const output *o, const uint8_t *p) {
    for (unsigned n; p < o->end && o->unicode->kind[next(p, &n)] & ANALYZE_SPACE;) p += n;
    return p;
}

static const uint8_t *before(const uint8_t *p) {
    do p--;
    while ((*p & 0xC0) == 0x80);
    return p;
}

static int is_space(const output *o, const uint8_t *p) {
    unsigned n;
    return o->unicode->kind[next(p, &n)] & ANALYZE_SPACE;
}

/* May a sentence begin at p? Behind up to three opening marks with a capital, a figure or a sign of code. */
static int begins(const output *o, const uint8_t *p) {
    for (int marks = 0; p < o->end; marks++) {
        unsigned n;
        const uint32_t c = next(p, &n);
        if (is_first_letter(c) || is_among(c, '0', '9') || is_one_of(c, "`/~$#@-", 7)) return 1;
        if (marks == 3 || !is_one_of(c, "\"'([*_`", 7)) return 0;
        p += n;
    }
    return 0;
}

/* _SENTENCE_END: behind the border of two sentences whose sign is c, from p to `behind`; or NULL. */
static const uint8_t *border(const output *o, uint32_t c, const uint8_t *behind) {
    const uint8_t *marks = behind, *stop;
    if (c == '\n') return spaces(o, behind);
    if (is_wide_end(c)) return behind;
    for (int n = 0; n < 3 && marks < o->end && is_one_of(*marks, "\"')]*_", 6); n++) marks++;
    stop = spaces(o, marks);
    if (stop > marks && begins(o, stop)) return stop;
    stop = c == '!' || c == '?' || is_other_end(c) ? spaces(o, behind) : behind;
    return stop > behind ? stop : NULL;
}

static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static int is_initial(uint8_t c) { return (c >= 'A' && c <= 'Z') || is_one_of(c, "dopuz", 5); }

/* Does a word begin at p? */
static int begins_word(const output *o, const uint8_t *p) {
    unsigned n;
    return p == o->text || !(o->unicode->kind[next(before(p), &n)] & ANALYZE_WORD);
}

/* Does one of these, which end with NULL, end at `stop`, and not begin before `from`? */
static int ends_in(const output *o, const uint8_t *from, const uint8_t *stop, const char *const *all) {
    for (; *all; all++) {
        const size_t size = strlen(*all);
        if ((size_t)(stop - from) >= size && !memcmp(stop - size, *all, size) && begins_word(o, stop - size)) return 1;
    }
    return 0;
}

/* _ORDINAL_MONTHS: does one stand at p? */
static int is_month(const output *o, const uint8_t *p) {
    static const char *const months[] = {"Januar", "J\xC3\xA4nner", "Februar", "M\xC3\xA4rz", "April", "Mai", "Juni",
                                         "Juli", "August", "September", "Oktober", "November", "Dezember"};
    for (size_t i = 0; i < sizeof months / sizeof *months; i++) {
        const size_t size = strlen(months[i]);
        if ((size_t)(o->end - p) >= size && !memcmp(p, months[i], size)) return 1;
    }
    return 0;
}

/* _SHORT: is what ends at `stop` a word of at most four letters? */
static int ends_short(const output *o, const uint8_t *from, const uint8_t *stop) {
    for (int letters = 0; stop > from; letters++) {
        unsigned n;
        const uint8_t *const p = before(stop);
        if (!(o->unicode->kind[next(p, &n)] & ANALYZE_WORD)) return letters > 0;
        if (letters == 4 || is_digit(*p) || *p == '_') return 0;
        stop = p;
    }
    return begins_word(o, from);
}

/* _ITEM: behind the number of an item that stands at p, and which it is; or NULL. */
static const uint8_t *behind_item(const output *o, const uint8_t *p, int *number) {
    const uint8_t *const from = p;
    for (*number = 0; p < o->end && p - from < 2 && is_digit(*p); p++) *number = 10 * *number + *p - '0';
    return p > from && p < o->end && *p == '.' ? p + 1 : NULL;
}

/* _continues: is the full stop before `stop` none of a sentence that begins at `from`? behind: where the next word is */
static int goes_on(const output *o, const uint8_t *from, const uint8_t *stop, const uint8_t *behind) {
    static const char *const always[] = {"e.g.", "i.e.", "etc.", "vs.",  "Mr.",   "Mrs.", "Ms.",  "Dr.", "Prof.",
                                         "St.",  "No.",  "Fig.", "approx.", "cf.", "bzw.", "ggf.", "evtl.", "inkl.",
                                         "vgl.", "Hr.",  "Sr.",  "Sra.", "Dra.",  "Mme.", "ul.",  "al.",  "pl.",  "os.",
                                         "av.",  "Av.",
                                         "\xD1\x83\xD0\xBB.",                 /* ul in Cyrillic, ... */
                                         "\xD0\xB2\xD1\x83\xD0\xBB.",         /* vul */
                                         "\xD0\xBF\xD1\x80.",                 /* pr */
                                         "\xD0\xBF\xD0\xBB.",                 /* pl */
                                         "\xD0\xBF\xD0\xB5\xD1\x80.",         /* per */
                                         "\xD0\xB1\xD1\x83\xD0\xBB.",         /* bul */
                                         NULL};
    if (stop - from < 2 || stop[-1] != '.') return 0;
    if (is_initial(stop[-2]) && begins_word(o, stop - 2)) return 1;
    if (ends_in(o, from, stop, always)) return 1;
    int item, next_item;
    const uint8_t *const number = behind_item(o, from, &item);
    if (number == stop) return 1;
    if (behind < o->end && is_digit(*behind) && ends_short(o, from, stop - 1))
        return !(number && behind_item(o, behind, &next_item) && next_item == item + 1);
    if (!is_digit(stop[-2]) || !is_month(o, behind)) return 0;
    return begins_word(o, stop - 2) || (stop - from >= 3 && is_digit(stop[-3]) && begins_word(o, stop - 3));
}

static uint32_t index_of(output *o, const uint8_t *p) {
    for (; o->counted < p; o->counted++) o->index += (*o->counted & 0xC0) != 0x80;
    return o->index;
}

static void put(output *o, const uint8_t *from, const uint8_t *to) {
    from = spaces(o, from);
    while (to > from && is_space(o, before(to))) to = before(to);
    if (to <= from) return;
    o->spans[2 * o->n] = index_of(o, from);
    o->spans[2 * o->n + 1] = index_of(o, to);
    o->n++;
}

int64_t sentences_of(const analyze_unicode *unicode, size_t n_bytes, const char *text, uint32_t *spans) {
    const uint8_t *p = (const uint8_t *)text, *at = p;
    output o = {unicode, p, p + n_bytes, p, 0, spans, 0};
    if (!is_ours(unicode, p, o.end)) return ANALYZE_FOREIGN;
    at = spaces(&o, p);
    for (unsigned n; p < o.end;) {
        const uint32_t c = next(p, &n);
        const uint8_t *const behind = p + n, *const next_one = may_end(c) ? border(&o, c, behind) : NULL;
        const uint8_t *const stop = c == '\n' ? p : behind;
        p = behind;
        if (!next_one) continue;
        if (next_one > stop && !memchr(stop, '\n', (size_t)(next_one - stop)) && goes_on(&o, at, stop, next_one)) continue;
        put(&o, at, next_one);
        p = next_one;
        at = spaces(&o, p);
    }
    put(&o, at, o.end);
    return o.n;
}
