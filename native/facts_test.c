/* Counts alone, for the sanitizers: random bytes and pieces, every size of room. What they must be is tested from Python,
 * tests/test_analyze_native.py. Run it with: make -C native test */
#include "lexicon.c"

#include "analyze.c"
#include "analyze_stem.c"
#include "facts.c"

#include "check.h"

enum { KNOWN = 0x3100, TEXT = 1000, PARTS = 4, ROOM = 16 * TEXT };
static uint8_t kind[KNOWN];
static const uint32_t upper[] = {0xC9}, lower_of[] = {0xE9};
static lexicon endings;
static const analyze_unicode unicode = {KNOWN, kind, 1, upper, lower_of, 0, NULL, NULL, &endings};
static lexicon words;

static void classify(void) {
    for (int c = 1; c < KNOWN; c++) {
        const int letter = c < 0x80 ? is_letter((uint8_t)c) : c >= 0xC0 && c < 0x2000;
        kind[c] = (uint8_t)(letter ? ANALYZE_WORD | ANALYZE_ALPHA : c >= '0' && c <= '9' ? ANALYZE_WORD | ANALYZE_DIGIT : 0);
        if (c == '_') kind[c] = ANALYZE_WORD;
        if (c == ' ' || (c >= 9 && c <= 13)) kind[c] = ANALYZE_SPACE;
        if (c >= 0x3040) kind[c] = ANALYZE_WORD | ANALYZE_ALPHA | ANALYZE_WIDE;
    }
    kind[0xC9] |= ANALYZE_UPPER;
    CHECK(lexicon_add(&words, 3, "the", FACTS_COMMON | 2) && lexicon_add(&words, 4, "port", 8) && lexicon_add(&words, 2, "is", 4));
}

static size_t draw_text(uint64_t *seed, uint8_t *text) {
    static const char *const pieces[] = {"the ", "port ", "is", "f(x)", "{};", "1999", "this m", ":1", "...", "?!", "Word,", "\xE3\x81\x82",
                                         "\xC3\x89", "\xC5\xBF", " ", "\n", "a-long-word-of-many-letters"};
    size_t n = 0;
    while (n + 40 < TEXT && drawn(seed) % 40) {
        const char *chosen = pieces[drawn(seed) % (sizeof pieces / sizeof *pieces)];
        if (drawn(seed) % 400 == 0) text[n++] = (uint8_t)drawn(seed);
        memcpy(text + n, chosen, strlen(chosen)), n += strlen(chosen);
    }
    return n;
}

/* Text and room are exactly as large as they are said to be, so that a byte too far is seen. */
static int test_any_bytes_in_any_room(uint64_t seed) {
    uint8_t drawn_text[PARTS * TEXT];
    uint32_t sizes[PARTS];
    facts found[PARTS], again[PARTS];
    facts_counts counts[PARTS];
    size_t n = 0;
    for (int i = 0; i < PARTS; i++) n += sizes[i] = (uint32_t)draw_text(&seed, drawn_text + n);
    char *const text = malloc(n + !n), *const terms = malloc(ROOM);
    memcpy(text, drawn_text, n);
    const int64_t size = facts_of(&unicode, &words, PARTS, sizes, text, found, ROOM, terms);
    CHECK((facts_count(&unicode, &words, PARTS, sizes, text, counts) < 0) == (size < 0) && size != ANALYZE_ROOM);
    for (int room = 0, i = 0; i < 8; i++, room = (int)(drawn(&seed) % ROOM)) {
        char *const tight = malloc((size_t)room + 1);
        const int64_t got = facts_of(&unicode, &words, PARTS, sizes, text, again, (size_t)room, tight);
        CHECK(got == size || (got == ANALYZE_ROOM && room < ROOM));
        CHECK(got < 0 || (!memcmp(tight, terms, (size_t)size) && !memcmp(found, again, sizeof found)));
        free(tight);
    }
    for (int i = 0; i < PARTS && size >= 0; i++) CHECK(counts[i].asking <= counts[i].ends && found[i].prose <= found[i].pieces);
    free(text), free(terms);
    return size > PARTS;
}

int main(void) {
    int served = 0;
    classify();
    for (uint64_t seed = 0; seed < 10000; seed++) served += test_any_bytes_in_any_room(seed);
    CHECK(served > 1000); /* the others hold damaged UTF-8 */
    printf("facts: all is well\n");
    return 0;
}
