/* No row walks down a tree: all its splits are looked at, each for many rows at once, and every one that a row passes on
 * the right rules out the leaves on its left. The first leaf that is left is where the row would have ended (QuickScorer,
 * Lucchese et al. 2015). That is ten times the comparisons, and neither a load nor a branch depends on one of them. */
#include "trees.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define TREES_HAS_AVX2
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

enum { LEAVES = TREES_LEAVES, TOGETHER = 16 };

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
    const uint32_t split = flat->n_splits++, first = flat->n_leaves;
    flat->column[split] = t->column[node];
    flat->threshold[split] = floor_float(t->threshold[node]);
    if (!flatten(t, t->left[node], depth - 1, flat)) return 0;
    flat->before[split] = first_bits(flat->n_leaves) & ~first_bits(first);
    return flatten(t, t->right[node], depth - 1, flat);
}

/* TOGETHER rows from cells and scores on, but for the first `done` of them, which have their score already. A constant
 * number, so that their sets stay in registers. */
INLINE void add_flat(const flat_tree *flat, size_t n, size_t done, const float *cells, double *scores) {
    uint32_t left[TOGETHER];
    for (size_t i = 0; i < TOGETHER; i++) left[i] = UINT32_MAX;
    for (size_t split = 0; split < flat->n_splits; split++) {
        const float *cell = cells + (size_t)flat->column[split] * n, threshold = flat->threshold[split];
        const uint32_t before = flat->before[split];
        for (size_t i = 0; i < TOGETHER; i++) left[i] &= ~(-(uint32_t)(cell[i] > threshold) & before);
    }
    for (size_t i = done; i < TOGETHER; i++) scores[i] += flat->value[lowest_bit(left[i])];
}

typedef void add(const flat_tree *flat, size_t n, size_t done, const float *cells, double *scores);

static void add_plain(const flat_tree *flat, size_t n, size_t done, const float *cells, double *scores) {
    add_flat(flat, n, done, cells, scores);
}

#ifdef TREES_HAS_AVX2
__attribute__((target("avx2"))) static void add_avx2(const flat_tree *flat, size_t n, size_t done, const float *cells,
                                                     double *scores) {
    add_flat(flat, n, done, cells, scores); /* the same steps, more rows in each: no bit differs */
}
static add *best_add(void) { return __builtin_cpu_supports("avx2") ? add_avx2 : add_plain; }
#else
static add *best_add(void) { return add_plain; }
#endif

/* Few rows, a tree that is not flat, or a damaged one: step by step, as the twin in numpy. */
static void add_walked(const trees *t, int32_t root, size_t n, const float *cells, double *scores) {
    for (size_t i = 0; i < n; i++) {
        int32_t at = root;
        for (size_t step = 0; step < t->depth; step++)
            at = (double)cells[(size_t)t->column[at] * n + i] > t->threshold[at] ? t->right[at] : t->left[at];
        scores[i] += t->value[at];
    }
}

void trees_flatten(const trees *t, flat_tree *flat) {
    for (size_t tree = 0; tree < t->n_trees; tree++) {
        flat[tree].n_splits = flat[tree].n_leaves = 0;
        if (!flatten(t, t->root[tree], t->depth, flat + tree)) flat[tree].n_leaves = 0;
    }
}

void trees_scores(const trees *t, const flat_tree *flat, size_t n, const float *cells, double *scores) {
    add *const add_some = best_add();
    memset(scores, 0, n * sizeof *scores);
    for (size_t tree = 0; tree < t->n_trees; tree++) { /* outside: its columns stay in the first cache */
        if (n < TOGETHER || !flat[tree].n_leaves) {
            add_walked(t, t->root[tree], n, cells, scores);
            continue;
        }
        for (size_t done = 0; done < n; done += TOGETHER) {
            const size_t first = done + TOGETHER <= n ? done : n - TOGETHER;
            add_some(flat + tree, n, done - first, cells + first, scores + first);
        }
    }
}
