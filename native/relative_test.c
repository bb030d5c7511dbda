/* How scores stand to each other, for the sanitizers: many ties, one row or all, sessions of one passage. Ranks are counted
 * anew; what else the columns must be is tested from Python, tests/test_relative.py. Run it with: make -C native test */
#include "relative.c"

#include <stdio.h>

#include "check.h"

int main(void) {
    enum { ROUNDS = 2000, MOST = 40, SIGNALS = 2 };
    uint64_t seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t n = 1 + drawn(&seed) % MOST, n_rows = drawn(&seed) % (n + 1);
        int64_t *place = malloc(n * sizeof *place), *session = malloc(n * sizeof *session);
        int64_t *rows = malloc(n_rows * sizeof *rows + 1);
        double *scores = malloc(SIGNALS * n * sizeof *scores);
        double *columns = malloc(SIGNALS * RELATIVE_COLUMNS * n_rows * sizeof *columns + 1);
        CHECK(place && session && rows && scores && columns);
        for (size_t i = 0; i < n; i++) {
            place[i] = (int64_t)(drawn(&seed) % n);
            session[i] = (int64_t)(drawn(&seed) % n);
        }
        for (size_t i = 0; i < SIGNALS * n; i++) scores[i] = drawn(&seed) % 4;
        for (size_t i = 0, next = drawn(&seed) % n; i < n_rows; i++) rows[i] = (int64_t)((next + i) % n);
        const relative_to to = {n, n, n, place, session, n_rows, rows};
        CHECK(relative_columns(&to, SIGNALS, scores, columns));
        for (size_t s = 0; s < SIGNALS; s++)
            for (size_t i = 0; i < n_rows; i++) {
                const double *own = scores + s * n;
                const size_t row = (size_t)rows[i];
                size_t before = 0;
                for (size_t o = 0; o < n; o++) before += own[o] > own[row] || (o < row && !(own[o] < own[row]));
                CHECK(columns[(s * RELATIVE_COLUMNS + RELATIVE_RANK) * n_rows + i] == (double)before);
            }
        free(place);
        free(session);
        free(rows);
        free(scores);
        free(columns);
    }
    puts("relative: fine");
    return 0;
}
