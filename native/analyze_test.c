/* The analyser alone, for the sanitizers: random bytes, cut and damaged UTF-8, every size of room. What the terms must
 * be is tested from Python, tests/test_analyze_native.py. Run it with: make -C native test */
#include "analyze.c"
#include "analyze_stem.c"

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum { KNOWN = 0x3100, TEXT = 3000, ROOM = 16 * TEXT };
static uint8_t kind[KNOWN];
static const uint32_t upper[] = {0xC9, 0x23A}, lower_of[] = {0xE9, 0x2C65};
static const analyze_unicode unicode = {KNOWN, kind, 2, upper, lower_of};

static uint32_t drawn(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

static void classify(void) {
    for (int c = 0; c < KNOWN; c++) {
        const int letter = c < 0x80 ? is_letter((uint8_t)c) : c >= 0xC0 && c < 0x2000;
        kind[c] = (uint8_t)(letter ? ANALYZE_WORD | ANALYZE_ALPHA : c >= '0' && c <= '9' ? ANALYZE_WORD | ANALYZE_DIGIT : 0);
        if (c == '_') kind[c] = ANALYZE_WORD;
        if (c == ' ' || (c >= 9 && c <= 13)) kind[c] = ANALYZE_SPACE;
        if (c >= 0x3040) kind[c] = ANALYZE_WORD | ANALYZE_ALPHA | ANALYZE_WIDE;
    }
    kind[0xC9] |= ANALYZE_UPPER, kind[0x23A] |= ANALYZE_UPPER, kind[0x3A3] = ANALYZE_OTHER;
}

static size_t draw_text(uint64_t *seed, uint8_t *text, size_t most) {
    static const char *const pieces[] = {"https://", "http://a", "parse_config", "ABCdef", "--flag", "v1.2.3", "~/..", "it's",
                                         "relational", "\xE6\x9D\xB1", "\xC3\x89", "\xC8\xBA", "\xE2\x80\x99", " ", "/", ".", "-"};
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

static analyze_memo memo; /* of all texts that this test draws */

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
        for (int i = 0; i < 2; i++) { /* what the memo lacks, and what it then has */
            char *const again = malloc((size_t)size + 64);
            CHECK(analyze_terms(&unicode, &memo, n, (char *)text, '\n', (size_t)size + 64, again, &n_again) == size);
            CHECK(n_again == n_terms && !memcmp(again, terms, (size_t)size));
            free(again);
        }
        CHECK(analyze_terms(&unicode, NULL, n, (char *)text, '\n', (size_t)size + 1, tight, &n_again) <= size);
        CHECK(analyze_terms(&unicode, NULL, n, (char *)text, '\n', small, less, NULL) <= (int64_t)small);
        free(tight), free(less);
    }
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
