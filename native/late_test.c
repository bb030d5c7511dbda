/* Late interaction, for the sanitizers: every number of words of a question around what is compared together, passages with
 * and without words, the largest numbers there are. Run it with: make -C native test */
#include "late.c"

#include <stdlib.h>
#include <string.h>

#include "check.h"

static void by_table(uint64_t *seed, size_t n_asked, int extreme) {
    enum { PASSAGES = 5, MOST = 9, MOST_ASKED = 26, APART = 128, PIECES = 40 * APART };
    int8_t *vectors = malloc(PIECES * LATE_TABLE_DIM);
    static float scale[PIECES];
    float plain[PASSAGES * MOST_ASKED + 1], fast[PASSAGES * MOST_ASKED + 1];
    uint16_t asked[MOST_ASKED], pieces[PASSAGES * MOST];
    uint32_t starts[PASSAGES], n_pieces[PASSAGES];
    CHECK(vectors != NULL);
    for (size_t i = 0; i < PIECES * LATE_TABLE_DIM; i++)
        vectors[i] = extreme ? INT8_MIN : (int8_t)(drawn(seed) % 256 - 128);
    for (size_t i = 0; i < PIECES; i++) scale[i] = 1 / (1 + (float)(drawn(seed) % 300));
    for (size_t i = 0; i < n_asked; i++) asked[i] = (uint16_t)(drawn(seed) % PIECES);
    for (size_t p = 0; p < PASSAGES; p++) { /* in any order, and some share theirs */
        n_pieces[p] = drawn(seed) % MOST;
        starts[p] = drawn(seed) % (PASSAGES * MOST - n_pieces[p]);
    }
    for (size_t i = 0; i < PASSAGES * MOST; i++) pieces[i] = (uint16_t)(drawn(seed) % PIECES / APART * APART); /* some share a place */
    plain[PASSAGES * n_asked] = fast[PASSAGES * n_asked] = 7;
    const late_table table = {vectors, scale};
    late_by_lists(LATE_SCALAR, &table, n_asked, asked, PASSAGES, pieces, starts, n_pieces, plain);
    late_by_lists(late_best_isa(), &table, n_asked, asked, PASSAGES, pieces, starts, n_pieces, fast);
    for (size_t i = 0; i <= PASSAGES * n_asked; i++) CHECK(memcmp(&plain[i], &fast[i], sizeof *plain) == 0);
    CHECK(plain[PASSAGES * n_asked] == 7);
    free(vectors);
}

int main(void) {
    enum { ROUNDS = 300, PASSAGES = 5, MOST = 9, MOST_ASKED = 26 };
    uint64_t seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t n_asked = drawn(&seed) % MOST_ASKED, extreme = round % 3 == 0;
        int16_t *asked = malloc(n_asked * LATE_DIM * sizeof *asked + 1);
        int8_t *words[PASSAGES];
        uint32_t n_words[PASSAGES];
        int32_t plain[PASSAGES * MOST_ASKED + 1], fast[PASSAGES * MOST_ASKED + 1];
        CHECK(asked != NULL);
        for (size_t i = 0; i < n_asked * LATE_DIM; i++)
            asked[i] = extreme ? INT16_MIN : (int16_t)(drawn(&seed) % 65536 - 32768);
        for (size_t p = 0; p < PASSAGES; p++) {
            n_words[p] = drawn(&seed) % MOST;
            words[p] = malloc(n_words[p] * LATE_DIM + 1);
            CHECK(words[p] != NULL);
            for (size_t i = 0; i < n_words[p] * LATE_DIM; i++)
                words[p][i] = extreme ? INT8_MIN : (int8_t)(drawn(&seed) % 256 - 128);
        }
        plain[PASSAGES * n_asked] = fast[PASSAGES * n_asked] = 7;
        late_best(LATE_SCALAR, n_asked, asked, PASSAGES, (const int8_t *const *)words, n_words, plain);
        late_best(late_best_isa(), n_asked, asked, PASSAGES, (const int8_t *const *)words, n_words, fast);
        for (size_t i = 0; i < PASSAGES * n_asked; i++) CHECK(plain[i] == fast[i]);
        for (size_t i = 0; extreme && i < PASSAGES * n_asked; i++)
            CHECK(plain[i] == (n_words[i / n_asked] ? INT32_C(1) << 29 : 0));
        CHECK(plain[PASSAGES * n_asked] == 7 && fast[PASSAGES * n_asked] == 7);
        for (size_t p = 0; p < PASSAGES; p++) free(words[p]);
        free(asked);
        by_table(&seed, n_asked, (int)extreme);
    }
    puts("late: fine");
    return 0;
}
