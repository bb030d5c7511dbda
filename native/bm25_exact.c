/* The exact scores of some documents: where each of them stands in a term's list or column is looked up. */
#include "bm25_index.h"

#include <float.h>
#include <string.h>

/* Documents of one chunk, side by side among those to be scored. */
typedef struct {
    uint32_t chunk, first, end;
} stretch;

enum { EACH_WORTH = 16 }; /* looking for a document costs as much as walking by so many */

/* The part of a view's list that is in a chunk. */
static span span_of(const search *s, size_t view_at, uint32_t chunk_at) {
    const view *v = s->views + view_at;
    span found;
    if (s->spans) return s->spans[(size_t)chunk_at * s->n_views + view_at];
    found.first = bm25_first(v->list->slot, v->n_list, chunk_at * CHUNK);
    found.end = found.first + bm25_first(v->list->slot + found.first, v->n_list - found.first,
                                         chunk_at < UINT32_MAX / CHUNK ? (chunk_at + 1) * CHUNK : UINT32_MAX);
    return found;
}

/* Where in the list a document would be, if those of the chunk stood evenly. */
static uint32_t likely(span in, uint32_t slot) {
    return in.first + (uint32_t)((uint64_t)(slot % CHUNK) * (in.end - in.first) / CHUNK);
}

/* The first place in the list with this slot or a later one; the list has something there. */
static uint32_t place_in(const uint32_t *slots, span in, uint32_t slot) {
    const uint32_t at = likely(in, slot);
    uint32_t low = at, high = at, step = 1;
    if (slots[at] < slot) {
        for (low = high = at + 1; high < in.end && slots[high] < slot; step *= 2)
            low = high + 1, high = in.end - low > step ? low + step : in.end;
    } else {
        for (; low > in.first && slots[low - 1] >= slot; step *= 2)
            high = low - 1, low = high - in.first > step ? high - step : in.first;
    }
    return low + bm25_first(slots + low, high - low, slot);
}

/* Good for few documents. */
static void find_few(const view *v, span in, size_t n, const uint32_t *slots, float *tf) {
    const list *l = v->list;
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = place_in(l->slot, in, slots[i]);
        if (at < in.end && l->slot[at] == slots[i]) tf[i] = (float)((codes_of(l)[at] >> 6) + 1);
    }
}

/* A walk of the list without a branch: places has for each document of the chunk where it is among the n, from 1 on,
 * and tf[-1] takes the counts of all others. */
static void find_many(const view *v, span in, const uint16_t *places, float *tf) {
    const list *l = v->list;
    const uint8_t *code = codes_of(l);
    for (uint32_t i = in.first; i < in.end; i++)
        tf[(int)places[l->slot[i] % CHUNK] - 1] = (float)((code[i] >> 6) + 1);
}

/* nibbles: where the documents' cells begin in the chunk, in bits. */
static void find_in_column(const kernel *with, const column *k, size_t n, const uint32_t *slots, const uint32_t *nibbles, float *tf) {
    while (n > 0 && slots[n - 1] % CHUNK >= k->room) n--; /* they ascend */
    with->find_cells(n, nibbles, (const uint64_t *)k->bits, tf);
}

/* The counts of each view's term in the documents of one stretch, into its row of tf: `row` floats apart. */
static void find_counts(const search *s, stretch x, const uint32_t *slots, uint32_t *nibbles, uint16_t *places,
                        size_t row, float *tf) {
    const size_t n = x.end - x.first;
    int marked = 0;
    slots += x.first, tf += x.first;
    for (size_t i = 0; i < n; i++) {
        const uint32_t local = slots[i] % CHUNK;
        nibbles[i] = (local / BLOCK * 4 + word_in_block(local)) << 6 | shift_in_word(local);
    }
    for (size_t j = 0; j < s->n_views; j++, tf += row) {
        const view *v = s->views + j;
        const column *k = bm25_column_at(v, x.chunk);
        const span in = k || !v->n_list ? (span){0, 0} : span_of(s, j, x.chunk);
        if (k) {
            find_in_column(s->q->kernel, k, n, slots, nibbles, tf);
        } else if (in.first < in.end) {
            const float before = tf[-1];
            if (n * EACH_WORTH < in.end - in.first) {
                find_few(v, in, n, slots, tf);
                continue;
            }
            for (size_t i = 0; !marked && i < n; i++) places[slots[i] % CHUNK] = (uint16_t)(i + 1);
            marked = 1;
            find_many(v, in, places, tf);
            tf[-1] = before;
        }
    }
    for (size_t i = 0; marked && i < n; i++) places[slots[i] % CHUNK] = 0;
}

/* What find_counts will look at, in an index that no cache holds. */
static void fetch(const search *s, size_t n, const uint32_t *slots) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = slots[i] / CHUNK, local = slots[i] % CHUNK;
        prefetch(s->docs->length + slots[i]), prefetch(s->docs->id + slots[i]);
        for (size_t j = 0; j < s->n_views; j++) {
            const view *v = s->views + j;
            const column *k = bm25_column_at(v, at);
            const span in = s->spans[(size_t)at * s->n_views + j];
            if (k)
                prefetch((const void *)&k->bits[local / BLOCK * 4]);
            else if (in.first < in.end)
                prefetch(v->list->slot + likely(in, slots[i])), prefetch(codes_of(v->list) + likely(in, slots[i]));
        }
    }
}

static size_t stretches_of(size_t n, const uint32_t *slots, stretch *found) {
    size_t n_found = 0;
    if (n && slots[0] / CHUNK == slots[n - 1] / CHUNK) {
        found[0] = (stretch){slots[0] / CHUNK, 0, (uint32_t)n};
        return 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!n_found || found[n_found - 1].chunk != slots[i] / CHUNK)
            found[n_found++] = (stretch){slots[i] / CHUNK, i, i};
        found[n_found - 1].end = i + 1;
    }
    return n_found;
}

/* Exact scores of documents in ascending order, for queries without weights. scores: room for n. */
int bm25_score_slots(search *s, size_t n, const uint32_t *slots, float *scores) {
    const int fresh = !s->scratch->at[B_PLACES].p;
    const size_t most_chunks = s->now.n / CHUNK + 1;
    uint16_t *places = bm25_take(s->scratch, B_PLACES, CHUNK * sizeof *places); /* zeros between searches */
    const size_t row = (n + LANES) / LANES * LANES;
    float *tf = bm25_take(s->scratch, B_TF, (row * s->n_views + LANES) * sizeof *tf);
    float *norm = bm25_take(s->scratch, B_NORM, n * sizeof *norm);
    stretch *stretches = bm25_take(s->scratch, B_STRETCHES, (n < most_chunks ? n : most_chunks) * sizeof *stretches);
    uint32_t *nibbles = bm25_take(s->scratch, B_NIBBLES, (n + 16) * sizeof *nibbles), *many = nibbles;
    size_t n_stretches;
    if (places && fresh) memset(places, 0, CHUNK * sizeof *places);
    if (!tf || !norm || !places || !stretches || !nibbles) return BM25_NO_MEMORY;
    tf += LANES;
    n_stretches = stretches_of(n, slots, stretches);
    if (n_stretches > 1 && s->spans) fetch(s, n, slots);
    for (size_t i = 0; i < n; i++) norm[i] = s->a + s->c * (float)s->docs->length[slots[i]];
    memset(scores, 0, n * sizeof *scores), memset(tf, 0, row * s->n_views * sizeof *tf);
    for (size_t i = 0; i < n_stretches; i++) find_counts(s, stretches[i], slots, nibbles, places, row, tf);
    for (size_t i = 0; i < s->n_views; i++, tf += row) {
        const view *v = s->views + i;
        const size_t n_many = v->n_rare ? s->q->kernel->find_many(n, tf, many) : 0;
        for (size_t j = 0; j < n_many; j++) tf[many[j]] = (float)bm25_tf_of(v->rare, v->n_rare, slots[many[j]]);
        s->q->kernel->add_found(n, tf, norm, v->gain, scores);
    }
    return 0;
}

int64_t bm25_search_slots(search *s, size_t n, uint32_t *slots, uint64_t **hits) {
    float *scores = bm25_take(s->scratch, B_SCORES, n * sizeof *scores);
    size_t found = 0;
    *hits = bm25_take(s->scratch, B_HITS, 2 * (n + 1) * sizeof **hits);
    if (!scores || !*hits || bm25_score_slots(s, n, slots, scores)) return BM25_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (scores[i] >= FLT_MIN) (*hits)[found++] = hit_of(scores[i], slots[i]);
    return (int64_t)bm25_best(s->q->kernel, s->docs, found, s->k, hits);
}
