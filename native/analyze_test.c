/* The analyser alone, for the sanitizers: random bytes, cut and damaged UTF-8, every size of room. What the terms must
 * be is tested from Python, tests/test_analyze_native.py. Run it with: make -C native test */
#include "lexicon.c"

#include "analyze.c"
#include "analyze_stem.c"

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum { KNOWN = 0x3100, TEXT = 3000, ROOM = 16 * TEXT };
static uint8_t kind[KNOWN];
static const uint32_t upper[] = {0xC9, 0x23A}, lower_of[] = {0xE9, 0x2C65};
static const uint32_t folded[] = {0xC9, 0xDF, 0x301}, folds[] = {'E', 0, 's', 's', 0, 0};
static lexicon endings;
static const analyze_unicode unicode = {KNOWN, kind, 2, upper, lower_of, 3, folded, folds, &endings};

static void classify(void) {
    for (int c = 0; c < KNOWN; c++) {
        const int letter = c < 0x80 ? is_letter((uint8_t)c) : c >= 0xC0 && c < 0x2000;
        kind[c] = (uint8_t)(letter ? ANALYZE_WORD | ANALYZE_ALPHA : c >= '0' && c <= '9' ? ANALYZE_WORD | ANALYZE_DIGIT : 0);
        if (c == '_') kind[c] = ANALYZE_WORD;
        if (c == ' ' || (c >= 9 && c <= 13)) kind[c] = ANALYZE_SPACE;
        if (c >= 0x3040) kind[c] = ANALYZE_WORD | ANALYZE_ALPHA | ANALYZE_WIDE;
    }
    kind[0xC9] |= ANALYZE_UPPER, kind[0x23A] |= ANALYZE_UPPER, kind[0x3A3] = ANALYZE_OTHER;
    kind[0x301] = kind[0x94D] = ANALYZE_MARK;
    CHECK(lexicon_add(&endings, 2, "\xD0\xB0", ANALYZE_ENDING) && lexicon_add(&endings, 4, "\xD0\xB0\xD0\xBC", ANALYZE_ENDING));
    CHECK(lexicon_add(&endings, 2, "\xD9\x88", ANALYZE_BEGINNING) && lexicon_add(&endings, 1, "l", ANALYZE_ELIDED));
    CHECK(lexicon_add(&endings, 2, "da", ANALYZE_ATTACHED));
}

static size_t draw_text(uint64_t *seed, uint8_t *text, size_t most) {
    static const char *const pieces[] = {"https://", "http://a", "parse_config", "ABCdef", "--flag", "v1.2.3", "~/..", "it's",
                                         "relational", "\xE6\x9D\xB1", "\xC3\x89", "\xC8\xBA", "\xE2\x80\x99",
                                         "\xC3\x9F", "\xCC\x81", "\xE0\xA5\x8D", "l'", "'da", "\xD0\xB0", "\xD0\xBC", "\xD9\x88", " ", "/", ".", "-"};
    size_t n = 0;
    while (n + 40 < most && drawn(seed) % 60) {
        const uint32_t way = drawn(seed) % 16;
        if (way == 0) text[n++] = (uint8_t)drawn(seed);
        else if (way == 1) n += encode(drawn(seed) % 0x3100 + 1, text + n);
        else if (way == 2) for (uint32_t i = drawn(seed) % 30; i > 0; i--) text[n++] = (uint8_t)('a' + drawn(seed) % 26);
        else {
            const char *chosen = pieces[drawn(seed) % (sizeof pieces / sizeof *pieces)];
            memcpy(text + n, chosen, strlen(chosen)), n += strlen(chosen);
        }
    }
    return n;
}

/* Of all texts that this test draws; named after stems as they stand here. */
static analyze_memo memo;
static char stems[200000][24];
static size_t n_stems;

static char *name_of(const uint8_t *stem, size_t n) {
    for (size_t i = 0; i < n_stems; i++)
        if (strlen(stems[i]) == n && !memcmp(stems[i], stem, n)) return stems[i];
    CHECK(n_stems < sizeof stems / sizeof *stems && n < sizeof *stems);
    memcpy(stems[n_stems], stem, n);
    return stems[n_stems++];
}

/* How often a term stands in a text of terms. */
static size_t count_of(const char *term, size_t n, const uint8_t *terms, size_t size) {
    size_t found = 0;
    for (size_t at = 0, end; size && at <= size; at = end + 1) {
        for (end = at; end < size && terms[end] != '\n'; end++) {}
        found += end - at == n && !memcmp(terms + at, term, n);
    }
    return found;
}

/* With words that have names, and those that get one now, there are as many of each term as without. */
static void check_words(const uint8_t *text, size_t n, const uint8_t *terms, size_t size, size_t n_terms) {
    const size_t most = n / 2 + 1;
    analyze_words w = {&memo, 9, 9, malloc(most * sizeof *w.named), malloc(most * sizeof *w.fresh)};
    uint8_t *const left = malloc(size + 64);
    size_t n_left, at = 0;
    const int64_t left_size = analyze_terms(&unicode, &w, n, (const char *)text, '\n', size + 64, (char *)left, &n_left);
    CHECK(left_size >= 0 && n_left + w.n_named == n_terms && w.n_fresh <= n_left);
    for (size_t i = 0; i < w.n_named; i++) {
        const char *const name = w.named[i];
        size_t named = 0;
        for (size_t j = 0; j < w.n_named; j++) named += w.named[j] == name;
        CHECK(named + count_of(name, strlen(name), left, (size_t)left_size) == count_of(name, strlen(name), terms, size));
    }
    for (size_t i = 0, term = 0; i < w.n_fresh; i++) {
        size_t end;
        for (; term < w.fresh[i].term; term++) at += strcspn((char *)left + at, "\n") + 1;
        for (end = at; end < (size_t)left_size && left[end] != '\n'; end++) {}
        w.fresh[i].word->name = name_of(left + at, end - at);
    }
    free(w.named), free(w.fresh), free(left);
}

/* Two parts have the terms of each, and a zero byte behind them; in too little room they say so. */
static void check_parts(const uint8_t *text, size_t n, size_t n_first, size_t small) {
    const uint32_t sizes[2] = {(uint32_t)n_first, (uint32_t)(n - n_first)};
    char *const both = malloc(2 * ROOM), *const each = malloc(2 * ROOM), *const less = malloc(small + 1);
    const int64_t first = analyze_terms(&unicode, NULL, n_first, (const char *)text, '\n', ROOM, each, NULL);
    const int64_t second =
        first < 0 ? first
                  : analyze_terms(&unicode, NULL, n - n_first, (const char *)text + n_first, '\n', ROOM, each + first + 1, NULL);
    const int64_t size = analyze_parts(&unicode, 2, sizes, (const char *)text, 2 * ROOM, both);
    CHECK(size == (second < 0 ? second : first + second + 2));
    if (size >= 0) each[first] = each[size - 1] = 0;
    CHECK(size < 0 || !memcmp(both, each, (size_t)size));
    CHECK(analyze_parts(&unicode, 2, sizes, (const char *)text, small, less) <= (int64_t)small);
    free(both), free(each), free(less);
}

/* Text and room are exactly as large as they are said to be, so that a byte too far is seen. */
static void test_any_bytes_in_any_room(uint64_t seed) {
    uint8_t drawn_text[TEXT], *const terms = malloc(ROOM);
    const size_t n = draw_text(&seed, drawn_text, TEXT);
    uint8_t *const text = malloc(n + !n);
    size_t n_terms = 0, n_again;
    int64_t size;
    memcpy(text, drawn_text, n);
    size = analyze_terms(&unicode, NULL, n, (char *)text, '\n', ROOM, (char *)terms, &n_terms);
    CHECK(size != ANALYZE_ROOM);
    if (size >= 0) {
        const size_t small = drawn(&seed) % (size_t)(size + 2);
        char *const tight = malloc((size_t)size + 1), *const less = malloc(small + 1);
        size_t borders = 0;
        for (int64_t i = 0; i < size; i++) borders += terms[i] == '\n';
        CHECK(borders + (size > 0) == n_terms);
        for (int i = 0; i < 2; i++) check_words(text, n, terms, (size_t)size, n_terms); /* named then */
        CHECK(analyze_terms(&unicode, NULL, n, (char *)text, '\n', (size_t)size + 1, tight, &n_again) <= size);
        CHECK(analyze_terms(&unicode, NULL, n, (char *)text, '\n', small, less, NULL) <= (int64_t)small);
        free(tight), free(less);
    }
    check_parts(text, n, drawn(&seed) % (n + 1), drawn(&seed) % 100);
    free(text), free(terms);
}

static void test_any_word_has_a_stem_that_is_no_longer(uint64_t seed) {
    for (int i = 0; i < 1000; i++) {
        const size_t n = drawn(&seed) % 24;
        uint8_t *const letters = malloc(n + !n);
        for (size_t j = 0; j < n; j++) {
            letters[j] = (uint8_t)drawn(&seed);
            if (drawn(&seed) % 9) letters[j] = (uint8_t)"aeiouysdlnigt'y"[drawn(&seed) % 15];
        }
        CHECK(analyze_stem(letters, n) <= n);
        free(letters);
    }
}

int main(void) {
    classify();
    for (uint64_t seed = 0; seed < 20000; seed++) test_any_bytes_in_any_room(seed);
    for (uint64_t seed = 0; seed < 300; seed++) test_any_word_has_a_stem_that_is_no_longer(seed);
    printf("analyze: all is well\n");
    return 0;
}
