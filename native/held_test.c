/* What a text holds, for the sanitizers: parts cut out of random texts at word borders must be found where they first stand
 * so, others where a plain search finds them or nowhere. Run it with: make -C native test */
#include "held.c"

#include "check.h"

static void draw(uint64_t *seed, size_t n, uint8_t *text) {
    static const char letters[] = "aab1 ,._\n\xc3\xa9\xe2";
    for (size_t i = 0; i < n; i++) text[i] = (uint8_t)letters[drawn(seed) % (sizeof letters - 1)];
}

static int64_t plainly(size_t n, const uint8_t *text, size_t m, const uint8_t *part) {
    for (size_t at = 0; at + m <= n; at++)
        if (!memcmp(text + at, part, m)) return (int64_t)at;
    return HELD_NOWHERE;
}

/* Is `at` a place where a part may begin or end: no two bytes of one kind of word beside each other? */
static int is_border(size_t n, const uint8_t *text, size_t at) {
    if (at == 0 || at == n || kind_of(text[at]) == BORDER || kind_of(text[at - 1]) == BORDER) return 1;
    return kind_of(text[at]) != kind_of(text[at - 1]);
}

int main(void) {
    uint64_t seed = 1;
    enum { ROUNDS = 20000, MOST = 90, PARTS = 6 };
    size_t found = 0, unknown = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t n = drawn(&seed) % MOST;
        uint8_t *text = malloc(n + 1), parts[PARTS * MOST], *end = parts;
        uint32_t n_bytes[PARTS];
        int64_t place[PARTS];
        CHECK(text != NULL);
        draw(&seed, n, text);
        for (int i = 0; i < PARTS; end += n_bytes[i++]) {
            const size_t from = drawn(&seed) % (uint32_t)(n + 1);
            n_bytes[i] = drawn(&seed) % (uint32_t)(n - from + 1);
            if (i % 3) memcpy(end, text + from, n_bytes[i]);
            else draw(&seed, n_bytes[i], end);
        }
        held *h = held_new(n, text);
        CHECK(h != NULL);
        held_find(h, PARTS, n_bytes, parts, place);
        end = parts;
        for (int i = 0; i < PARTS; end += n_bytes[i++]) {
            const int64_t first = plainly(n, text, n_bytes[i], end);
            found += place[i] >= 0, unknown += place[i] == HELD_UNKNOWN;
            if (place[i] == HELD_UNKNOWN) continue;
            if (place[i] >= 0) CHECK(!memcmp(text + place[i], end, n_bytes[i]));
            CHECK(place[i] < 0 || place[i] >= first);
            if (first < 0) CHECK(place[i] == HELD_NOWHERE);
            else if (is_border(n, text, (size_t)first) && is_border(n, text, (size_t)first + n_bytes[i])) CHECK(place[i] == first);
        }
        held_free(h);
        free(text);
    }
    CHECK(found > ROUNDS && unknown > 0);
    held_free(NULL);
    puts("held: fine");
    return 0;
}
