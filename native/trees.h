/* Scores of gradient-boosted trees: lantern_proxy/rerank/light.py in C, with the same result bit for bit. build.py hands
 * this file to cffi as it stands, but for the lines that start with '#'. There is no state. */
#ifndef LANTERN_TREES_H
#define LANTERN_TREES_H
#include <stddef.h>
#include <stdint.h>

/* Binary trees, node after node; a leaf points at itself. A row goes right when its cell is above the threshold. The
 * caller sees to it that root, left and right are nodes, and column a column. */
typedef struct {
    size_t n_trees;
    const int32_t *root, *column;
    const double *threshold;
    const int32_t *left, *right;
    const double *value; /* what a leaf adds */
    size_t depth;        /* most steps from a root to a leaf */
} trees;

/* One tree, its leaves numbered from left to right: bit i of a set stands for leaf i. */
enum { TREES_LEAVES = 32 };
typedef struct {
    uint32_t n_splits, n_leaves; /* no leaves: it is not flat */
    int32_t column[TREES_LEAVES];
    float threshold[TREES_LEAVES];
    uint32_t before[TREES_LEAVES]; /* the leaves on the left of the split */
    double value[TREES_LEAVES];
} flat_tree;

/* Once for all rows to come: flat has room for n_trees. Those that are too large, or damaged, are not flat. */
void trees_flatten(const trees *t, flat_tree *flat);

/* The sum over the trees, first tree first, for each of n rows. flat: of trees_flatten; cells: column after column, n in
 * each. */
void trees_scores(const trees *t, const flat_tree *flat, size_t n, const float *cells, double *scores);

#endif
