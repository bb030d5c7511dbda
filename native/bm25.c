/* The index: documents and postings as they come and go. bm25.h says what the functions do; bm25_search.c searches. */
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

int bm25_grow(void *array, size_t n, size_t size) {
    void *old, *grown;
    if (n > SIZE_MAX / size) return BM25_NO_MEMORY;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, n * size);
    if (!grown) return BM25_NO_MEMORY;
    memcpy(array, &grown, sizeof grown);
    return 0;
}

static int grow_postings(postings *p) {
    const size_t room = p->room ? p->room + p->room / 2 : 4;
    uint32_t *slot = NULL;
    float *tf, *length;
    if (p->n < p->room) return 0;
    if (room > UINT32_MAX || bm25_grow(&slot, room, 3 * sizeof(float))) return BM25_NO_MEMORY;
    tf = (float *)(slot + room);
    length = tf + room;
    if (p->n) {
        memcpy(slot, p->slot, p->n * sizeof *slot);
        memcpy(tf, p->tf, p->n * sizeof *tf);
        memcpy(length, p->length, p->n * sizeof *length);
    }
    free(p->slot);
    p->slot = slot, p->tf = tf, p->length = length, p->room = (uint32_t)room;
    return 0;
}

static void push(postings *p, uint32_t slot, float tf, float length) {
    p->slot[p->n] = slot, p->tf[p->n] = tf, p->length[p->n] = length;
    p->n++;
}

static int grow_documents(bm25 *q) {
    const size_t room = q->room ? 2 * q->room : 64;
    documents *d = &q->docs;
    if (q->n < q->room) return 0;
    if (bm25_grow(&d->id, room, sizeof *d->id) || bm25_grow(&d->time, room, sizeof *d->time) ||
        bm25_grow(&d->length, room, sizeof *d->length) || bm25_grow(&d->live, room, 1) ||
        bm25_grow(&d->keep, room, 1) || bm25_grow(&d->scores, room + LANES * DEEPEST, sizeof *d->scores) ||
        bm25_grow(&d->hits, room, 2 * sizeof *d->hits))
        return BM25_NO_MEMORY;
    q->room = room;
    return 0;
}

/* Make room for one posting of each of the n terms. */
static int grow_terms(bm25 *q, size_t n, const uint32_t *terms, int weights) {
    size_t most = 0, i;
    for (i = 0; i < n; i++) most = terms[i] >= most ? (size_t)terms[i] + 1 : most;
    if (most > q->term_room) {
        const size_t room = most > 2 * q->term_room ? most : 2 * q->term_room;
        if (bm25_grow(&q->terms, room, sizeof *q->terms)) return BM25_NO_MEMORY;
        q->term_room = room;
    }
    if (most > q->n_terms) {
        memset(q->terms + q->n_terms, 0, (most - q->n_terms) * sizeof *q->terms);
        q->n_terms = most;
    }
    for (i = 0; i < n; i++)
        if (grow_postings(weights ? &q->terms[terms[i]].weights : &q->terms[terms[i]].counts)) return BM25_NO_MEMORY;
    return 0;
}

/* ---- id -> slot ---- */

/* Where the id is in the map, or the free place where it would go. The map is never full. */
static size_t place_of(const bm25 *q, int64_t id) {
    uint64_t hash = (uint64_t)id * UINT64_C(0x9E3779B97F4A7C15);
    size_t place = (size_t)(hash ^ hash >> 32) & (q->map_room - 1);
    while (q->map[place] && q->docs.id[q->map[place] - 1] != id) place = (place + 1) & (q->map_room - 1);
    return place;
}

static void fill_map(bm25 *q) {
    size_t i;
    memset(q->map, 0, q->map_room * sizeof *q->map);
    for (i = 0; i < q->n; i++) /* an id that came back replaces its removed self */
        q->map[place_of(q, q->docs.id[i])] = (uint32_t)i + 1;
}

static int grow_map(bm25 *q) {
    if (2 * (q->n + 1) <= q->map_room) return 0;
    if (bm25_grow(&q->map, 2 * q->map_room, sizeof *q->map)) return BM25_NO_MEMORY;
    q->map_room *= 2;
    fill_map(q);
    return 0;
}

size_t bm25_slot_of(const bm25 *q, int64_t id) {
    const uint32_t found = q->map[place_of(q, id)];
    return found && q->docs.live[found - 1] ? found - 1 : SIZE_MAX;
}

/* ---- documents come and go ---- */

bm25 *bm25_new(bm25_kernel name, double k1, double b) {
    const kernel *chosen = bm25_kernel_of(name);
    bm25 *q = NULL;
    if (!chosen || bm25_grow(&q, 1, sizeof *q)) return NULL;
    memset(q, 0, sizeof *q);
    q->kernel = chosen, q->k1 = k1, q->b = b;
    if (bm25_grow(&q->map, 128, sizeof *q->map)) {
        free(q);
        return NULL;
    }
    q->map_room = 128;
    fill_map(q);
    return q;
}

void bm25_free(bm25 *q) {
    size_t i;
    if (!q) return;
    for (i = 0; i < q->n_terms; i++) free(q->terms[i].counts.slot), free(q->terms[i].weights.slot);
    free(q->terms), free(q->map), free(q->peaks);
    free(q->docs.id), free(q->docs.time), free(q->docs.length);
    free(q->docs.live), free(q->docs.keep), free(q->docs.scores), free(q->docs.hits);
    free(q);
}

size_t bm25_count(const bm25 *q) { return q->n_live; }

int bm25_has(const bm25 *q, int64_t id) { return bm25_slot_of(q, id) != SIZE_MAX; }

int bm25_add(bm25 *q, int64_t id, double time, size_t n, const uint32_t *terms) {
    const uint32_t slot = (uint32_t)q->n;
    const float length = (float)n;
    if (bm25_slot_of(q, id) != SIZE_MAX) return BM25_EXISTS;
    if (q->n >= UINT32_MAX - 1) return BM25_FULL;
    if (grow_documents(q) || grow_map(q) || grow_terms(q, n, terms, 0)) return BM25_NO_MEMORY;
    q->docs.id[slot] = id, q->docs.time[slot] = time, q->docs.length[slot] = length, q->docs.live[slot] = 1;
    for (size_t i = 0; i < n; i++) {
        postings *p = &q->terms[terms[i]].counts;
        if (p->n && p->slot[p->n - 1] == slot)
            p->tf[p->n - 1] += 1;
        else
            push(p, slot, 1, length);
    }
    q->map[place_of(q, id)] = slot + 1;
    q->n++, q->n_live++, q->total_length += (uint64_t)length;
    return 0;
}

int bm25_add_weights(bm25 *q, int64_t id, size_t n, const uint32_t *terms, const float *weights) {
    const size_t slot = bm25_slot_of(q, id);
    size_t i;
    if (slot == SIZE_MAX) return BM25_ABSENT;
    if (grow_terms(q, n, terms, 1)) return BM25_NO_MEMORY;
    for (i = 0; i < n; i++) push(&q->terms[terms[i]].weights, (uint32_t)slot, weights[i], 0);
    return 0;
}

/* Drop the postings of removed slots and rename the others. */
static void sweep_postings(postings *p, const uint8_t *live, const uint32_t *renamed) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (live[p->slot[i]]) {
            p->slot[kept] = renamed[p->slot[i]], p->tf[kept] = p->tf[i], p->length[kept] = p->length[i];
            kept++;
        }
    p->n = kept;
}

/* Forget removed documents for good. The new slots are held in `scores`, which is as wide and free between searches. */
static void sweep(bm25 *q) {
    documents *d = &q->docs;
    uint32_t *renamed = (uint32_t *)(void *)d->scores;
    uint32_t kept = 0;
    size_t i;
    for (i = 0; i < q->n; i++) renamed[i] = kept, kept += d->live[i];
    for (i = 0; i < q->n_terms; i++) {
        sweep_postings(&q->terms[i].counts, d->live, renamed);
        sweep_postings(&q->terms[i].weights, d->live, renamed);
    }
    for (i = 0, kept = 0; i < q->n; i++)
        if (d->live[i]) {
            d->id[kept] = d->id[i], d->time[kept] = d->time[i], d->length[kept] = d->length[i];
            kept++;
        }
    memset(d->live, 1, kept);
    q->n = kept;
    fill_map(q);
}

int bm25_remove(bm25 *q, int64_t id, double *time) {
    const size_t slot = bm25_slot_of(q, id);
    if (slot == SIZE_MAX) return BM25_ABSENT;
    *time = q->docs.time[slot];
    q->docs.live[slot] = 0;
    q->n_live--, q->total_length -= (uint64_t)q->docs.length[slot];
    if (q->n - q->n_live > 64 + q->n_live / 8) sweep(q); /* each removal pays for the moving of eight */
    return 0;
}
