/* Sentences alone, for the sanitizers: random bytes and pieces, in no more room than is asked for. What they must be is tested
 * from Python, tests/test_analyze_native.py. Run it with: make -C native test */
#include "sentences.c"

#include "check.h"

enum { KNOWN = 0x10000, TEXT = 1000 };
static uint8_t kind[KNOWN];
static const analyze_unicode unicode = {KNOWN, kind, 0, NULL, NULL, 0, NULL, NULL, NULL};

static void classify(void) {
    for (int c = 1; c < KNOWN; c++) {
        const int letter = ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= 0xC0 && c < 0x2000);
        kind[c] = (uint8_t)(letter || c == '_' ? ANALYZE_WORD : c == ' ' || (c >= 9 && c <= 13) || c == 0x2028 ? ANALYZE_SPACE : 0);
    }
}

static size_t draw_text(uint64_t *seed, uint8_t *text) {
    static const char *const pieces[] = {"Mr. ", "e.g. ", "25. ", "Juli", "J\xC3\xA4nner", "Art. ", "Sept. ", "z. ", "A. ", "approx.", "1. ", "\xC5\x82\xC3\xB3. 4", ".", "!", "? ", "\n", "\n\n ", "\xE3\x80\x82", "\xEF\xBC\x9F",
                                         "\xE2\x80\xA6 ", "\xC3\x89", "\xE2\x80\xA8", "\"')]", "(`", "The ", "word", " ", "9"};
    size_t n = 0;
    while (n + 40 < TEXT && drawn(seed) % 100) {
        const char *chosen = pieces[drawn(seed) % (sizeof pieces / sizeof *pieces)];
        if (drawn(seed) % 200 == 0) text[n++] = (uint8_t)drawn(seed);
        if (drawn(seed) % 9 == 0) n += encode(drawn(seed) % 0x3100 + 1, text + n);
        memcpy(text + n, chosen, strlen(chosen)), n += strlen(chosen);
    }
    return n;
}

/* Text and room are exactly as large as they are said to be, so that a byte too far is seen. */
static int64_t test_spans_follow_each_other(uint64_t seed) {
    uint8_t drawn_text[TEXT];
    const size_t n = draw_text(&seed, drawn_text);
    char *const text = malloc(n + !n);
    uint32_t *const spans = malloc(2 * (n / 2 + 1) * sizeof *spans), last = 0;
    memcpy(text, drawn_text, n);
    const int64_t found = sentences_of(&unicode, n, text, spans);
    CHECK(found <= (int64_t)(n / 2 + 1));
    for (int64_t i = 0; i < found; i++) {
        CHECK(last <= spans[2 * i] && spans[2 * i] < spans[2 * i + 1] && spans[2 * i + 1] <= n);
        last = spans[2 * i + 1];
    }
    free(text), free(spans);
    return found;
}

int main(void) {
    int many = 0;
    classify();
    for (uint64_t seed = 0; seed < 20000; seed++) many += test_spans_follow_each_other(seed) > 5;
    CHECK(many > 5000); /* the others hold damaged UTF-8, or little */
    printf("sentences: all is well\n");
    return 0;
}
