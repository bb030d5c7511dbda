/* Beginnings within texts, for the sanitizers: of random texts each place is found at which one stands, few others, and
 * the same with signs of one byte and of four. Run it with: make -C native test */
#include "starts.c"

#include <stdlib.h>

#include "check.h"

enum { ROUNDS = 20000, MOST = 120, SIGNS = 5, PARTS = 4, LOG_BITS = 10 };

static int begins(const uint8_t *text, size_t at) {
    return at == 0 || !goes_on_behind(text[at - 1]);
}

int main(void) {
    static const char letters[] = "aabZ19 ,._\n\xe9";
    uint64_t seed = 1;
    size_t right = 0, wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t n = drawn(&seed) % MOST;
        uint8_t *text = malloc(n + 1), parts[PARTS * SIGNS], bits[1 << (LOG_BITS - 3)] = {0};
        uint32_t *wide = malloc((n + 1) * sizeof *wide), *place = malloc((n + 1) * sizeof *place), again[MOST];
        CHECK(text && wide && place);
        for (size_t i = 0; i < n; i++) wide[i] = text[i] = (uint8_t)letters[drawn(&seed) % (sizeof letters - 1)];
        for (size_t i = 0; i < PARTS * SIGNS; i++) parts[i] = (uint8_t)letters[drawn(&seed) % (sizeof letters - 1)];
        if (n >= SIGNS) memcpy(parts, text + drawn(&seed) % (uint32_t)(n - SIGNS + 1), SIGNS);
        const starts s = {SIGNS, LOG_BITS, bits};
        starts_add(&s, PARTS, 1, parts);
        const size_t found = starts_find(&s, n, 1, text, place);
        CHECK(found == starts_find(&s, n, 4, wide, again) && !memcmp(place, again, found * sizeof *place));
        size_t next = 0;
        for (size_t at = 0; at + SIGNS <= n; at++) {
            int stands = 0;
            for (size_t i = 0; i < PARTS; i++) stands |= !memcmp(text + at, parts + i * SIGNS, SIGNS);
            const int is_told = next < found && place[next] == at;
            if (is_told) CHECK(begins(text, at));
            if (stands && begins(text, at)) CHECK(is_told);
            right += is_told && stands, wrong += is_told && !stands;
            next += (size_t)is_told;
        }
        CHECK(next == found);
        free(text), free(wide), free(place);
    }
    CHECK(right > ROUNDS / 4 && wrong > 0 && wrong < ROUNDS);
    puts("starts: fine");
    return 0;
}
