/* How an index lies in memory. What is marked SHARED is written by one thread while others read it; arrays that grow
 * are copied, and the old copy is kept until no search can hold it (retire). */
#ifndef LANTERN_BM25_INDEX_H
#define LANTERN_BM25_INDEX_H
#include "bm25.h"
#include "bm25_atomic.h"

#ifndef BM25_CHUNK
#define BM25_CHUNK 16384 /* the C tests make it small */
#endif

enum {
    LANES = 8,
    SUMS = 16,             /* in a vector */
    DEEPEST = 64,
    BLOCK = 64,            /* documents in four words of a column */
    CHUNK = BM25_CHUNK,    /* documents that are searched together: their 16-bit sums fit the first-level cache */
    SMALLEST_COLUMN = CHUNK / 8,
    COLUMN_FROM = CHUNK / 16, /* documents a chunk holds before a term of it may become a column ... */
    COLUMN_SHARE = 25,     /* ... which it does when one in so many has the term */
    CUTS = 11,
    MANY = 4,              /* counts from here on stand in a list of their own */
    SNAPSHOTS = 64,
    SCRATCHES = 8,
    SLAB = 1 << 21, /* bytes: a huge page where there are such */
    LINE = 64       /* bytes of the processor's cache */
};

/* A slot is a document's place in order of arrival. Removed ones keep theirs until the next sweep. */
typedef struct {
    uint32_t room;
    SHARED uint32_t n;
    uint32_t slot[]; /* ascending; then uint8_t code[room]: min(tf, 4) - 1 in two bits, length class in six */
} list;

typedef struct {
    uint32_t slot, tf;
} posting;

typedef struct {
    uint32_t room;
    SHARED uint32_t n, most; /* most: the largest tf */
    posting at[];            /* those with tf >= MANY, ascending slots */
} rare;

typedef struct {
    uint32_t slot;
    float weight;
} weighted;

typedef struct {
    uint32_t room;
    SHARED uint32_t n;
    weighted at[]; /* in order of arrival */
} weights;

/* The documents of one chunk that have a term, 4 bits each: 0, or a cell of (tf, length). What a cell is worth at most
 * follows from the shortest length in it, at query time, so nothing drifts. */
typedef struct column {
    void *held;                            /* what to free, or NULL: a place of a slab ... */
    struct pool *home;                     /* ... of this pool */
    struct column *next;                   /* free place */
    uint32_t room;                         /* documents, a multiple of BLOCK */
    SHARED uint32_t least[16];             /* shortest length a cell holds */
    SHARED uint16_t sixteen[CHUNK / 1024]; /* documents that sixteen blocks hold */
    SHARED uint8_t count[CHUNK / BLOCK];   /* documents a block holds */
    ALIGNED(64) SHARED uint64_t bits[];    /* four words a block; word_in_block() */
} column;

/* Columns for whole chunks stand in huge pages, close together: a search reads many, and few pages to look up. */
typedef struct slab {
    struct slab *next;
    void *held;
} slab;

typedef struct pool {
    slab *slabs;
    column *free;
    size_t n_slabs;
} pool;

typedef struct {
    uint32_t room;
    SHARED uint32_t n; /* chunks; the last has a column */
    struct {
        column *SHARED column; /* or NULL: this chunk's documents are in the list */
        uint32_t before;       /* documents in columns before this one */
    } at[];
} columns;

typedef struct term {
    uint32_t hash, n_bytes;
    list *SHARED list;
    columns *SHARED columns;
    rare *SHARED rare;
    weights *SHARED weights;
    SHARED uint64_t dead;   /* removals seen << 32 | how many of them had this term */
    SHARED uint64_t posted; /* the last slot << 32 | how many slots there were up to it, removed ones included */
    uint32_t mark, count; /* of the document that is being added */
    char bytes[];         /* padded with zeros to a multiple of eight */
} term;

typedef struct {
    uint64_t mask;
    term *SHARED at[]; /* open addressing, NULL is free; never more than a quarter full */
} dictionary;

typedef struct {
    SHARED uint64_t newest; /* bits of the latest time in this chunk */
    uint32_t cut[CUTS];     /* lengths at which the cells of its columns part, once has_cuts */
    uint32_t has_cuts;
} chunk;

typedef struct {
    size_t room; /* a multiple of BLOCK */
    int64_t *id;
    double *time;
    uint32_t *length;
    SHARED uint8_t *live;
    chunk *chunks;
} documents;

typedef struct {
    size_t room;             /* a power of two, at least one and a half times the slots */
    SHARED uint32_t place[]; /* open addressing: hash of id -> slot + 1; 0 is free; may name a removed slot */
} map;

typedef struct arena {
    struct arena *next;
    size_t used, room;
    uint64_t bytes[];
} arena;

/* What a search may look at. */
typedef struct {
    uint32_t n, n_live, n_removed;
    uint64_t total_length; /* of live documents */
} snapshot;

typedef struct {
    documents *SHARED docs;
    map *SHARED map; /* NULL as long as the ids of the documents ascend */
    dictionary *SHARED dictionary;
    list *SHARED removed; /* slots in order of removal */
    snapshot now;
    size_t n_terms;
    arena *arena;
    const uint8_t *image; /* of a snapshot, where lists, columns and rare may lie: they are read only, and not freed */
    size_t n_image;
    void *image_held; /* what to free, or NULL: the image is not ours */
    void *memo;       /* what bm25_fill.c knows of words */
    int private;      /* no search has seen it yet */
    SHARED uint64_t version;
    SHARED uint64_t snapshots[SNAPSHOTS][3];
} core;

/* Which buffer of a scratch is for what; 0 and 1 are the tokens. */
enum { B_TABLE = 2, B_VIEWS, B_ALLOW, B_SCORES, B_PEAKS, B_HITS, B_SLOTS, B_TF, B_NORM, B_SUMS, B_WINDOW, B_WORTH,
       B_PADDED, B_POOL, B_DONE, B_PLACES, B_KTH, B_STRETCHES, B_SPANS, B_REACHED, B_BYTES, B_NIBBLES, BUFFERS };

typedef struct {
    struct {
        void *p;
        size_t room;
    } at[BUFFERS];
} scratch;

typedef struct {
    void *p;
    void (*drop)(void *);
} retired;

typedef struct {
    size_t n, room;
    retired *at;
} limbo;

/* Query terms' columns over one chunk, and what their cells are worth at most: the bytes of the first and the second do
 * not overflow when added, nor those of the third and the fourth, and so on. */
enum { A_GROUP = 8 };
typedef struct {
    size_t n;
    const uint8_t *bits[A_GROUP];
    uint8_t worth[A_GROUP][16];
} group;

typedef struct {
    void (*add_column)(size_t n_words, const uint64_t *bits, float gain, float a, float c, const uint32_t *length,
                       float *scores);
    void (*add_list)(size_t n, const uint32_t *slot, const uint8_t *code, float gain, float a, float c,
                     const uint32_t *length, float *scores);
    void (*add_found)(size_t n, const float *tf, const float *norm, float gain, float *scores);
    void (*find_cells)(size_t n, const uint32_t *nibbles, const uint64_t *bits, float *tf);
    size_t (*find_many)(size_t n, const float *tf, uint32_t *places);
    void (*peaks)(size_t n, size_t depth, const float *scores, float *peaks);
    float (*most)(size_t n, const float *values);
    size_t (*count)(size_t n, const float *values, float least);
    void (*ranks)(size_t n, const int16_t *keys, uint16_t *ranks); /* not negative; SUMS zeros behind them */
    void (*sum)(size_t n_blocks, size_t n_groups, const group *groups, uint16_t *sums);
    size_t (*sums_above)(size_t n_blocks, const uint16_t *sums, uint16_t least, uint32_t *hits);
    size_t (*bytes_above)(size_t n_blocks, size_t n_groups, const group *groups, uint8_t *sums, uint8_t least,
                          uint32_t *hits);
    uint16_t (*most_sum)(size_t n, const uint16_t *sums);
    void (*peak_sums)(size_t n, size_t depth, const uint16_t *sums, uint16_t *peaks);
    size_t (*count_sums)(size_t n, const uint16_t *sums, uint16_t least);
} kernel;

struct bm25 {
    core *SHARED core;
    const kernel *kernel;
    double k1, b;
    SHARED int path;
    SHARED uint32_t careful; /* searches that should not hope */
    SHARED uint64_t epoch;
    SHARED uint64_t readers[2][8]; /* the first of each: searches that began in an even, an odd epoch */
    limbo waiting, coming;         /* what the searches of the last epoch may hold; what came after */
    void *SHARED scratches[SCRATCHES];
    scratch own; /* of the thread that changes the index */
    pool pool;
    uint32_t mark;
};

/* ---- bm25_memory.c ---- */
int bm25_grow(void *array, size_t n, size_t size);
void *bm25_take(scratch *s, size_t which, size_t size_bytes); /* at least so many bytes, or NULL */
scratch *bm25_borrow(bm25 *q);                                 /* or NULL */
void bm25_give_back(bm25 *q, scratch *s);
void bm25_free_scratch(scratch *s);
unsigned bm25_enter(bm25 *q);
void bm25_leave(bm25 *q, unsigned entered);
int bm25_make_limbo(limbo *l);
void bm25_retire(bm25 *q, void *p, void (*drop)(void *)); /* what no new search can find any more: it may be dropped at once */
void bm25_let_go(bm25 *q, const core *c, void *p, void (*drop)(void *)); /* at once where no search has seen the core */
void bm25_reclaim(bm25 *q);
void *bm25_carve(core *c, size_t size_bytes);
column *bm25_new_column(pool *home, uint32_t room); /* zeros; or NULL */
void bm25_free_column(void *k);
size_t bm25_column_bytes(uint32_t room);
void bm25_free_pool(pool *home);
void bm25_advise(void *p, size_t size_bytes); /* large and read at random: huge pages, where there are such */
void bm25_populate(const void *p, size_t size_bytes); /* of a mapped file: all pages at once */
void bm25_publish(core *c);
snapshot bm25_look(core *c);

/* ---- bm25_terms.c ---- */
typedef struct {
    uint64_t hash;
    const char *bytes;
    size_t n_bytes;
} token;

/* Split a text into n tokens, in scratch buffers 0 and 1. BM25_TERMS or BM25_NO_MEMORY. */
int bm25_split(scratch *s, size_t n, size_t n_bytes, const char *text, token **tokens);
term *bm25_find(const dictionary *d, const token *t);
term *bm25_find_or_make(bm25 *q, core *c, const token *t); /* NULL: no memory */
dictionary *bm25_new_dictionary(size_t room);
static inline void bm25_fetch_term(const void *t) { prefetch(t), prefetch((const char *)t + 63); }
/* For a core that no search has seen: room for n terms, and one of them. bytes: followed by zeros up to a multiple of
 * eight, or by anything. BM25_EXISTS, BM25_TERMS (a zero byte in it) or BM25_NO_MEMORY. */
int bm25_room_for_terms(core *c, size_t n);
int bm25_make_term(core *c, uint32_t n_bytes, const char *bytes, term **made);

/* ---- bm25_postings.c ---- */
enum { CELLS = 16, CODES = 256, NO_SLOT = -1 };
extern const uint8_t bm25_tf_of_cell[CELLS];       /* MANY: see the list of those */
extern const uint32_t bm25_least_length[64];       /* of a length class */
int bm25_reserve(bm25 *q, core *c, term *t, uint32_t slot, uint32_t tf);
void bm25_commit(bm25 *q, core *c, term *t, uint32_t slot, uint32_t tf, unsigned length_class);
unsigned bm25_length_class(uint32_t length);
unsigned bm25_cell(const column *k, uint32_t local);
uint32_t bm25_in_column(const column *k, uint32_t n); /* documents among the first n of its chunk */
int bm25_ascending(const void *x, const void *y); /* of two uint32_t, for qsort */
uint32_t bm25_first(const uint32_t *slots, uint32_t n, uint32_t slot); /* how many are smaller */
uint32_t bm25_tf_of(const rare *r, uint32_t n, uint32_t slot);
int bm25_grow_columns(bm25 *q, core *c, term *t, uint32_t at); /* room for the column of one more chunk */
void bm25_show_column(columns *all, uint32_t at, column *made);
void bm25_copy_column(column *to, const column *from); /* to has the same room, or more */
void bm25_free_term(const core *c, term *t);

static inline int is_borrowed(const core *c, const void *p) { return (uintptr_t)p - (uintptr_t)c->image < c->n_image; }

static inline const uint8_t *codes_of(const list *l) { return (const uint8_t *)(l->slot + l->room); }

/* Where a column keeps a document of a block: the low nibbles are documents 0..31, and the second and third group of
 * eight are swapped, so that what AVX2 unpacks comes out in order. */
static inline unsigned word_in_block(unsigned local) {
    const unsigned eight = local >> 3 & 3;
    return (eight & 1) << 1 | eight >> 1;
}
static inline unsigned shift_in_word(unsigned local) { return (local & 7) * 8 + (local >> 5 & 1) * 4; }

/* ---- bm25.c ---- */
core *bm25_new_core(void);
void bm25_free_core(void *c);
int bm25_resolve(bm25 *q, size_t n, size_t n_bytes, const char *text, term ***each);
int bm25_may_add(bm25 *q, int64_t id, size_t n);
/* A document of the terms of both arrays, repeats included; one that may be added. BM25_NO_MEMORY. */
int bm25_add_resolved(bm25 *q, int64_t id, double time, size_t n, term **each, size_t n_more, term **more);
void bm25_replace_core(bm25 *q, core *fresh);
int bm25_grow_weights(bm25 *q, core *c, term *t);
void bm25_push_weight(weights *w, uint32_t slot, float weight);

/* ---- bm25_documents.c ---- */
size_t bm25_slot_of(core *c, int64_t id); /* SIZE_MAX: not there */
int bm25_room_for_documents(bm25 *q, core *c, size_t n_more);
int bm25_grow_map(bm25 *q, core *c, int64_t id);
int bm25_map_documents(core *c);
void bm25_put_document(core *c, int64_t id, double time, uint32_t length); /* room was made before */
void bm25_show_document(core *c, int64_t id, uint32_t length);
void bm25_drop_documents(void *d);

/* ---- bm25_sweep.c ---- */
int bm25_sweep(bm25 *q);

/* ---- bm25_kernels.c ---- */
const kernel *bm25_kernel_of(bm25_kernel name); /* NULL: this CPU has it not */

/* ---- bm25_search.c ---- */

/* A query term as one search sees it. */
typedef struct {
    term *term;
    uint32_t times, df; /* df: live documents */
    float gain, most_tf; /* most_tf: none of these documents has more, MANY - 1 at least */
    const list *list;
    const columns *columns;
    const rare *rare;
    const weights *weights;
    uint32_t n_list, n_columns, n_rare, n_weights;
    uint32_t at; /* in the list, for whoever walks along it */
} view;

/* A part of a list. */
typedef struct {
    uint32_t first, end;
} span;

typedef struct {
    bm25 *q;
    scratch *scratch;
    snapshot now;
    const documents *docs;
    const map *map;
    view *views;
    size_t n_views, k;
    float a, c;
    int filtered;          /* by anything, removals included */
    const uint64_t *allow; /* a bit a slot, or NULL */
    double since;
    span *spans; /* what each chunk has of each view's list, chunk by chunk, where bounds were looked at; or NULL */
} search;

/* Hits are score bits << 32 | slot. These return how many of the k best there are, in *hits and best first, or
 * BM25_NO_MEMORY, or BM25_MASSES: too many documents may be among them for bounds to save anything. */
enum { BM25_MASSES = -100 };
int64_t bm25_search_all(search *s, uint64_t **hits);
int64_t bm25_search_bounds(search *s, uint64_t **hits);
int64_t bm25_search_slots(search *s, size_t n, uint32_t *slots, uint64_t **hits); /* in bm25_exact.c */

const column *bm25_column_at(const view *v, uint32_t chunk);
void bm25_copy_tail(const column *k, uint32_t n, uint64_t bits[4]);
int bm25_passes(const search *s, uint32_t slot);

/* ---- bm25_exact.c ---- */
int bm25_score_slots(search *s, size_t n, const uint32_t *slots, float *scores);

/* ---- bm25_best.c ---- */
static inline uint64_t hit_of(float score, size_t slot) {
    union {
        float score;
        uint32_t bits;
    } both = {score};
    return (uint64_t)both.bits << 32 | slot;
}
static inline float score_of(uint64_t hit) {
    union {
        uint32_t bits;
        float score;
    } both = {(uint32_t)(hit >> 32)};
    return both.score;
}
float bm25_least_of_best(const kernel *with, size_t n, const float *peaks, size_t k, size_t more);
/* hits has twice the room. The k best of n, sorted; in *hits, ties by larger id. */
size_t bm25_best(const kernel *with, const documents *d, size_t n, size_t k, uint64_t **hits);
int64_t bm25_best_of_all(search *s, const float *scores, uint64_t **hits);

#endif
