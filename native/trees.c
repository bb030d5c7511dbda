/* No row walks down a tree: all its splits are looked at, each for many rows at once, and every one that a row passes on
 * the right rules out the leaves on its left. The first leaf that is left is where the row would have ended (QuickScorer,
 * Lucchese et al. 2015). That is ten times the comparisons, and neither a load nor a branch depends on one of them. */
#include "trees.h"

#include <math.h>
#include <string.h>

enum { LEAVES = 32, TOGETHER = 16 };

/* One tree, its leaves numbered from left to right: bit i of a set stands for leaf i. */
typedef struct {
    size_t n_splits, n_leaves;
    int32_t column[LEAVES];
    float threshold[LEAVES];
    uint32_t before[LEAVES]; /* the leaves on the left of the split */
    double value[LEAVES];
} flat_tree;

static uint32_t first_bits(size_t n) { return n < 32 ? (UINT32_C(1) << n) - 1 : UINT32_MAX; }

static size_t lowest_bit(uint32_t set) {
#ifdef __GNUC__
    return (size_t)__builtin_ctz(set);
#else
    size_t bit = 0;
    while (!(set >> bit & 1)) bit++;
    return bit;
#endif
}

/* The largest float that is not above it: for a float to compare with, the same. */
static float floor_float(double threshold) {
    const float near = (float)threshold;
    return (double)near > threshold ? nextafterf(near, -INFINITY) : near;
}

/* Append the nodes below `node`; 0 when they are too many, or deeper than `depth`. */
static int flatten(const trees *t, int32_t node, size_t depth, flat_tree *flat) {
    if (t->left[node] == node && t->right[node] == node) {
        if (flat->n_leaves == LEAVES) return 0;
        flat->value[flat->n_leaves++] = t->value[node];
        return 1;
    }
    if (!depth || flat->n_splits == LEAVES - 1) return 0;
    const size_t split = flat->n_splits++, first = flat->n_leaves;
    flat->column[split] = t->column[node];
    flat->threshold[split] = floor_float(t->threshold[node]);
    if (!flatten(t, t->left[node], depth - 1, flat)) return 0;
    flat->before[split] = first_bits(flat->n_leaves) & ~first_bits(first);
    return flatten(t, t->right[node], depth - 1, flat);
}

/* TOGETHER rows from cells and scores on, but for the first `done` of them, which have their score already. A constant
 * number, so that their sets stay in registers. */
static void add_flat(const flat_tree *flat, size_t n, size_t done, const float *cells, double *scores) {
    uint32_t left[TOGETHER];
    for (size_t i = 0; i < TOGETHER; i++) left[i] = UINT32_MAX;
    for (size_t split = 0; split < flat->n_splits; split++) {
        const float *cell = cells + (size_t)flat->column[split] * n, threshold = flat->threshold[split];
        const uint32_t before = flat->before[split];
        for (size_t i = 0; i < TOGETHER; i++) left[i] &= ~(-(uint32_t)(cell[i] > threshold) & before);
    }
    for (size_t i = done; i < TOGETHER; i++) scores[i] += flat->value[lowest_bit(left[i])];
}

/* Few rows, a tree that is not flat, or a damaged one: step by step, as the twin in numpy. */
static void add_walked(const trees *t, int32_t root, size_t n, const float *cells, double *scores) {
    for (size_t i = 0; i < n; i++) {
        int32_t at = root;
        for (size_t step = 0; step < t->depth; step++)
            at = (double)cells[(size_t)t->column[at] * n + i] > t->threshold[at] ? t->right[at] : t->left[at];
        scores[i] += t->value[at];
    }
}

void trees_scores(const trees *t, size_t n, const float *cells, double *scores) {
    memset(scores, 0, n * sizeof *scores);
    for (size_t tree = 0; tree < t->n_trees; tree++) { /* outside: its columns stay in the first cache */
        flat_tree flat;
        flat.n_splits = flat.n_leaves = 0;
        if (n < TOGETHER || !flatten(t, t->root[tree], t->depth, &flat)) {
            add_walked(t, t->root[tree], n, cells, scores);
            continue;
        }
        for (size_t done = 0; done < n; done += TOGETHER) {
            const size_t first = done + TOGETHER <= n ? done : n - TOGETHER;
            add_flat(&flat, n, done - first, cells + first, scores + first);
        }
    }
}
