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

/* The sum over the trees, first tree first, for each of n rows. cells: column after column, n in each. */
void trees_scores(const trees *t, size_t n, const float *cells, double *scores);

#endif
