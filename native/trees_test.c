/* Trees alone, for the sanitizers: random ones, too many leaves, pointers in circles, every number of rows around what is
 * looked at together. What the scores must be is tested from Python, tests/test_signals.py. Run it with: make -C native test */
#include "trees.c"

#include "check.h"

enum { NODES = 200, COLUMNS = 4, ROWS = 40 };
static int32_t root[8], column[NODES], left[NODES], right[NODES];
static double threshold[NODES], value[NODES];

/* Nodes from `first` on that point at later ones or at themselves; with `circles`, anywhere. */
static void draw(uint64_t *seed, int circles) {
    for (int32_t i = 0; i < NODES; i++) {
        const int32_t leaf = i > NODES - 3 || drawn(seed) % 3 == 0, rest = NODES - 1 - i;
        left[i] = leaf ? i : circles ? (int32_t)(drawn(seed) % NODES) : i + 1 + (int32_t)(drawn(seed) % (uint32_t)rest);
        right[i] = leaf ? i : circles ? (int32_t)(drawn(seed) % NODES) : i + 1 + (int32_t)(drawn(seed) % (uint32_t)rest);
        column[i] = (int32_t)(drawn(seed) % COLUMNS);
        threshold[i] = (double)(drawn(seed) % 5) / 3;
        value[i] = (double)(drawn(seed) % 1000) - 500;
    }
    for (int i = 0; i < 8; i++) root[i] = (int32_t)(drawn(seed) % NODES);
}

int main(void) {
    uint64_t seed = 1;
    static float cells[COLUMNS * ROWS];
    for (int round = 0; round < 3000; round++) {
        draw(&seed, round % 2);
        const trees t = {8, root, column, threshold, left, right, value, drawn(&seed) % 12};
        const size_t n = drawn(&seed) % (ROWS + 1);
        for (size_t i = 0; i < COLUMNS * n; i++) cells[i] = (float)(drawn(&seed) % 5) / 3;
        double scores[ROWS + 1], walked[ROWS + 1] = {0};
        scores[n] = 7;
        flat_tree flat[8];
        trees_flatten(&t, flat);
        trees_scores(&t, flat, n, cells, scores);
        for (size_t tree = 0; tree < t.n_trees; tree++) add_walked(&t, root[tree], n, cells, walked);
        for (size_t i = 0; i < n; i++) CHECK(scores[i] == walked[i]);
        CHECK(scores[n] == 7);
        for (size_t tree = 0; tree < t.n_trees && n >= TOGETHER; tree++) {
            double plain[TOGETHER] = {0}, best[TOGETHER] = {0};
            if (!flat[tree].n_leaves) continue;
            add_plain(&flat[tree], n, 0, cells, plain);
            best_add()(&flat[tree], n, 0, cells, best);
            for (size_t i = 0; i < TOGETHER; i++) CHECK(plain[i] == best[i]);
        }
    }
    puts("trees: fine");
    return 0;
}
