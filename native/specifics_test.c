/* Specific terms alone, for the sanitizers: random bytes and pieces, every size of room. What the terms must be is tested
 * from Python, tests/test_analyze_native.py. Run it with: make -C native test */
#include "lexicon.c"
#include "specifics.c"

#include "check.h"

enum { KNOWN = 0x3100, TEXT = 4000, ROOM = 64 * TEXT };
static uint8_t kind[KNOWN];
static const analyze_unicode unicode = {KNOWN, kind, 0, NULL, NULL, 0, NULL, NULL, NULL};
static lexicon words;

static void classify(void) {
    static const struct {
        const char *word;
        uint32_t flags;
    } all[] = {{"is", SPECIFICS_LINK | SPECIFICS_STOP | SPECIFICS_UNNAMED}, {"May", SPECIFICS_MONTH}, {"py", SPECIFICS_EXTENSION},
               {"last", SPECIFICS_WHICH}, {"week", SPECIFICS_PERIOD}, {"two", SPECIFICS_COUNT}, {"days", SPECIFICS_UNIT},
               {"yesterday", SPECIFICS_DAY}, {"sixteen letters.", SPECIFICS_CHAT}};
    for (int c = 1; c < KNOWN; c++) {
        const int letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        kind[c] = (uint8_t)(letter || c >= 0xC0 || c == '_' ? ANALYZE_WORD : 0);
        if (c >= '0' && c <= '9') kind[c] = ANALYZE_WORD | ANALYZE_DIGIT;
        if (c == ' ' || (c >= 9 && c <= 13) || c == 0x2028) kind[c] = ANALYZE_SPACE;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(lexicon_add(&words, strlen(all[i].word), all[i].word, all[i].flags));
    CHECK(!lexicon_add(&words, 17, "seventeen letters", 1) && !lexicon_add(&words, 0, "", 1));
}

static size_t draw_text(uint64_t *seed, uint8_t *text, size_t most) {
    static const char *const pieces[] = {"https://", "a@b.c", "`code`", "x = 1", "../a/b.py", "2023-05-06", "7 May", "May 7th, 2023",
                                         "10:30 pm", "--flag=1", "v1.2.3-rc.1:80", "parse_config", "parseX", "ERR-2047", "0xff",
                                         "gpt-4", "#12", "$1,200.50", "80%", "Anna of the Hill", "\"quoted\"", "C:\\a", "two days ago",
                                         "f()", "\xC3\xA9", "\xE2\x82\xAC", "\xE3\x81\x82", "port is ", " ", ", ", " a ", "\n", ".", "-", "/", "="};
    size_t n = 0;
    while (n + 40 < most && drawn(seed) % 80) {
        const uint32_t way = drawn(seed) % 16;
        if (way == 0 && drawn(seed) % 40 == 0) text[n++] = (uint8_t)drawn(seed);
        else if (way == 1) n += encode(drawn(seed) % 0x3100 + 1, text + n);
        else if (way == 2) for (uint32_t i = drawn(seed) % 40; i > 0; i--) text[n++] = (uint8_t)(drawn(seed) % 96 + 32);
        else {
            const char *chosen = pieces[drawn(seed) % (sizeof pieces / sizeof *pieces)];
            memcpy(text + n, chosen, strlen(chosen)), n += strlen(chosen);
        }
    }
    return n;
}

/* Text and room are exactly as large as they are said to be, so that a byte too far is seen. */
static int test_any_bytes_in_any_room(uint64_t seed) {
    uint8_t drawn_text[TEXT], *const terms = malloc(ROOM);
    const size_t n = draw_text(&seed, drawn_text, TEXT);
    uint8_t *const text = malloc(n + !n);
    int64_t size;
    memcpy(text, drawn_text, n);
    size = specifics_of(&unicode, &words, n, (char *)text, ROOM, (char *)terms);
    CHECK(size != ANALYZE_ROOM);
    if (size >= 0) {
        const size_t small = drawn(&seed) % (size_t)(size + 2);
        char *const tight = malloc((size_t)size + 1), *const less = malloc(small + 1);
        CHECK(specifics_of(&unicode, &words, n, (char *)text, (size_t)size + 1, tight) == size);
        CHECK(!memcmp(tight, terms, (size_t)size));
        CHECK(specifics_of(&unicode, &words, n, (char *)text, small, less) <= (int64_t)small);
        free(tight), free(less);
    }
    free(text), free(terms);
    return size > 0;
}

int main(void) {
    int found = 0;
    classify();
    for (uint64_t seed = 0; seed < 20000; seed++) found += test_any_bytes_in_any_room(seed);
    CHECK(found > 5000); /* the others hold damaged UTF-8, or a run without an end */
    printf("specifics: all is well\n");
    return 0;
}
