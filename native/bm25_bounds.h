/* What the parts of the search by upper bounds share: see bm25_bounds.c. */
#ifndef LANTERN_BM25_BOUNDS_H
#define LANTERN_BM25_BOUNDS_H
#include "bm25_index.h"

#include <float.h>

static const float SLACK = 1.0001f; /* bounds stay above what rounding can do to a score of 128 terms */
enum { MOST_GROUPS = 16 };

enum mode { HOPEFUL, CAREFUL, FIXED };

/* What a view's cells are worth at most: gain[cell] / (tf[cell] + (a + c * shortest length)), in units of sums. */
typedef struct {
    float gain[CELLS], tf[CELLS];
} price;

typedef struct {
    search *s;
    enum mode mode;
    float scale; /* of scores to sums */
    group *groups;
    size_t n_groups;
    uint8_t *place_of; /* of each view in the groups: group * A_GROUP + place */
    price *prices;     /* of each view */
    float norm[64];    /* at the shortest length of each class, */
    float share[MANY - 1][64]; /* and tf / (tf + norm) */
    uint16_t *worth;   /* CODES of each view */
    uint8_t *byte_worth;
    uint16_t *sums;
    uint8_t *bytes; /* sums of 8 bits */
    uint32_t *window; /* hits of one chunk */
    uint64_t *padded; /* CHUNK / 16 words of each view */
    float reach;      /* the threshold: a score */
    uint16_t least;   /* it as a sum: documents below are passed over */
    float hoped;      /* the highest that it has been without being certain */
    uint64_t *pool;   /* sum << 32 | slot, ascending slots: not scored yet */
    size_t n_pool, limit;
    uint32_t seen, next; /* documents; when to think about the threshold again */
    uint64_t *done;      /* sum << 32 | slot, and in reached its score */
    float *reached;
    size_t n_done;
    float sure; /* k documents reach this; FLT_MIN when not known */
} bounds;

/* ---- bm25_worth.c ---- */
void bm25_scale(bounds *b); /* groups for the views with columns, and the units of the first chunk */
void bm25_weigh_lengths(bounds *b);
void bm25_price_codes(const bounds *b, const view *v, uint16_t *worth);
void bm25_price_view(const bounds *b, const view *v, price *p);
void bm25_price_cells(const bounds *b, const price *p, const column *k, uint8_t *worth);
void bm25_rescale(bounds *b); /* pool, threshold and prices, in units by which the threshold is about AIM */

/* ---- bm25_pool.c: BM25_NO_MEMORY or 0 ---- */
uint16_t bm25_least_for(const kernel *with, size_t n, const uint16_t *sums, size_t want);
int bm25_take_hits(bounds *b, size_t n, uint32_t start, uint32_t here, uint32_t below);
void bm25_prune(bounds *b);
int bm25_score_pool(bounds *b, uint32_t least);
void bm25_learn(bounds *b, size_t k);
int bm25_sharpen(bounds *b, size_t k);

#endif
