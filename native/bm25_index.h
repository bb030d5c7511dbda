/* What bm25.c and bm25_search.c share: how an index lies in memory. */
#ifndef LANTERN_BM25_INDEX_H
#define LANTERN_BM25_INDEX_H
#include "bm25.h"

enum { LANES = 8, DEEPEST = 64 };

/* One term's postings in one allocation: slot[room], tf[room], length[room], ascending slots. */
typedef struct {
    uint32_t n, room;
    uint32_t *slot;
    float *tf, *length; /* for learned weights: tf is the weight, length is not used */
} postings;

typedef struct {
    postings counts, weights;
    uint32_t asked; /* times the running query holds this term; 0 between queries */
} term;

/* A slot is a document's place in order of arrival. Removed ones keep theirs until the next sweep. */
typedef struct {
    int64_t *id;
    double *time;
    float *length;
    uint8_t *live;
    uint8_t *keep;  /* scratch, as the rest: documents that a filter lets through */
    float *scores;  /* room for LANES * DEEPEST more */
    uint64_t *hits; /* twice the room */
} documents;

typedef struct {
    void (*score)(const postings *p, float gain, float a, float c, float *scores);
    void (*peaks)(size_t n, size_t depth, const float *scores, float *peaks);
    float (*most)(size_t n, const float *values);
    size_t (*count)(size_t n, const float *values, float least);
} kernel;

struct bm25 {
    const kernel *kernel;
    double k1, b;
    size_t n, room, n_live;
    uint64_t total_length; /* of live documents */
    documents docs;
    size_t n_terms, term_room;
    term *terms;
    size_t map_room; /* a power of two, at least twice the slots */
    uint32_t *map;   /* open addressing: hash of id -> slot + 1; 0 is free; may name a removed slot */
    size_t peak_room;
    float *peaks;
};

/* Make room for n items of `size` bytes in *array. 0, or BM25_NO_MEMORY with the array as it was. */
int bm25_grow(void *array, size_t n, size_t size);

/* The slot of a document that is there, or SIZE_MAX. */
size_t bm25_slot_of(const bm25 *index, int64_t id);

/* The functions of a kernel, or NULL: this CPU has it not. */
const kernel *bm25_kernel_of(bm25_kernel name);

#endif
