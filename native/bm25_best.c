/* The k best of many scores, best first. */
#include "bm25_index.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* A score that at least k of n documents reach, if k have one at all, and about `more` more than k do. n is a multiple
 * of LANES. For peaks: each is the best of its own documents, so what k peaks reach k documents reach. */
float bm25_least_of_best(const kernel *with, size_t n, const float *peaks, size_t k, size_t more) {
    float low = FLT_MIN, high = with->most(n, peaks);
    if (with->count(n, peaks, low) < k) return low;
    for (int round = 0; round < 16; round++) {
        const float middle = low + (high - low) / 2;
        const size_t found = with->count(n, peaks, middle);
        if (found < k) {
            high = middle;
        } else {
            low = middle;
            if (found <= k + more) break;
        }
    }
    return low;
}

/* Put every hit of at least `least` into hits; returns how many. No branch depends on a score: it would be mispredicted
 * half of the time. */
static size_t gather(const float *scores, const float *peaks, size_t n_peaks, size_t depth, float least,
                     uint64_t *hits, uint64_t *places) {
    size_t found = 0, n_places = 0;
    for (size_t i = 0; i < n_peaks; i++) {
        places[n_places] = i;
        n_places += peaks[i] >= least;
    }
    for (size_t i = 0; i < n_places; i++) {
        size_t slot = (size_t)places[i] / LANES * LANES * depth + places[i] % LANES;
        for (size_t j = 0; j < depth; j++, slot += LANES) {
            hits[found] = hit_of(scores[slot], slot);
            found += scores[slot] >= least;
        }
    }
    return found;
}

static int64_t id_of(const documents *d, uint64_t hit) { return d->id[hit & UINT32_MAX]; }

static int better(const documents *d, uint64_t x, uint64_t y) {
    return x >> 32 != y >> 32 ? x > y : id_of(d, x) > id_of(d, y);
}

/* Let the hit at `place` of a heap with its worst on top sink to where it belongs. */
static void sink(const documents *d, size_t n, uint64_t *heap, size_t place) {
    const uint64_t moved = heap[place];
    for (size_t child; (child = 2 * place + 1) < n; place = child) {
        if (child + 1 < n && better(d, heap[child], heap[child + 1])) child++;
        if (!better(d, moved, heap[child])) break;
        heap[place] = heap[child];
    }
    heap[place] = moved;
}

/* Move the k best of n hits to the front. For the many hits of a mass tie; latest first, which are rarely bettered. */
static void keep_best(const documents *d, size_t n, size_t k, uint64_t *heap) {
    for (size_t i = 0; i < k; i++) {
        const uint64_t swap = heap[i];
        heap[i] = heap[n - 1 - i], heap[n - 1 - i] = swap;
    }
    for (size_t place = k / 2; place-- > 0;) sink(d, k, heap, place);
    for (size_t i = n; i-- > k;)
        if (better(d, heap[i], heap[0])) heap[0] = heap[i], sink(d, k, heap, 0);
}

/* Sort up to a handful by counting for each hit the larger ones: no two hits are equal. */
static void sort_few(size_t n, const uint64_t *hits, uint64_t *sorted) {
    for (size_t i = 0; i < n; i++) {
        size_t larger = 0;
        for (size_t j = 0; j < n; j++) larger += hits[j] > hits[i];
        sorted[larger] = hits[i];
    }
}

/* Merge sort, largest first, without branches that depend on the hits. Returns the one of both that has the result. */
static uint64_t *sort(size_t n, uint64_t *hits, uint64_t *spare) {
    size_t done = 0;
    for (; done + LANES <= n; done += LANES) sort_few(LANES, hits + done, spare + done);
    sort_few(n - done, hits + done, spare + done);
    for (size_t width = LANES; width < n; width *= 2) {
        uint64_t *const from = spare;
        spare = hits, hits = from;
        for (size_t start = 0; start < n; start += 2 * width) {
            const size_t middle = start + width < n ? start + width : n;
            const size_t end = middle + width < n ? middle + width : n;
            size_t left = start, right = middle, out = start;
            while (left < middle && right < end) {
                const uint64_t x = from[left], y = from[right];
                const size_t first = x > y;
                spare[out++] = y ^ ((x ^ y) & (0 - (uint64_t)first)); /* gcc makes a branch of first ? x : y */
                left += first, right += 1 - first;
            }
            while (left < middle) spare[out++] = from[left++];
            while (right < end) spare[out++] = from[right++];
        }
    }
    return spare;
}

/* Put n hits of the same score in order, the largest id first: heap sort, unless they are already. */
static void order_tie(const documents *d, size_t n, uint64_t *hits) {
    int ordered = 1;
    for (size_t i = 1; i < n; i++) ordered &= id_of(d, hits[i - 1]) > id_of(d, hits[i]);
    if (ordered) return;
    for (size_t i = n / 2; i-- > 0;) sink(d, n, hits, i);
    for (size_t left = n; left-- > 1;) {
        const uint64_t worst = hits[0];
        hits[0] = hits[left], hits[left] = worst;
        sink(d, left, hits, 0);
    }
}

/* The same for each score among sorted hits. Their slots are in descending order, and so are mostly their ids. */
static void order_ties(const documents *d, size_t n, uint64_t *hits) {
    for (size_t i = 1; i < n; i++) {
        const size_t start = i - 1;
        if (hits[i] >> 32 != hits[start] >> 32) continue;
        while (i < n && hits[i] >> 32 == hits[start] >> 32) i++;
        order_tie(d, i - start, hits + start);
    }
}

enum { A_HANDFUL = 512 };

/* 15 bits of each score, which tell almost any two apart. */
static void keys_of(size_t n, const uint64_t *hits, int16_t *keys) {
    uint32_t least = UINT32_MAX, most = 0;
    int shift = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)(hits[i] >> 32);
        least = bits < least ? bits : least, most = bits > most ? bits : most;
    }
    while (most - least > INT16_MAX) most = least + (most - least) / 2, shift++;
    for (size_t i = 0; i < n; i++) keys[i] = (int16_t)(((uint32_t)(hits[i] >> 32) - least) >> shift);
}

/* The same for some hundred: each goes where the number of larger keys says, and is moved from there if need be. */
static void sort_by_rank(const kernel *with, size_t n, const uint64_t *hits, uint64_t *sorted) {
    int16_t keys[A_HANDFUL + SUMS];
    uint16_t ranks[A_HANDFUL], taken[A_HANDFUL];
    if (!n) return;
    keys_of(n, hits, keys);
    memset(keys + n, 0, SUMS * sizeof *keys);
    with->ranks(n, keys, ranks);
    memset(taken, 0, n * sizeof *taken);
    for (size_t i = n; i-- > 0;) sorted[ranks[i] + taken[ranks[i]]++] = hits[i];
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && sorted[j] > sorted[j - 1]; j--) {
            const uint64_t swap = sorted[j];
            sorted[j] = sorted[j - 1], sorted[j - 1] = swap;
        }
}

size_t bm25_best(const kernel *with, const documents *d, size_t n, size_t k, uint64_t **hits) {
    if (n > 2 * k + 256) keep_best(d, n, k, *hits), n = k;
    if (n <= A_HANDFUL && n <= 4 * k + LANES) {
        sort_by_rank(with, n, *hits, *hits + n);
        *hits += n;
    } else {
        *hits = sort(n, *hits, *hits + n);
    }
    order_ties(d, n, *hits);
    return n < k ? n : k;
}

/* The same for a score of every document, 0 for those that may not be returned; scores have room for LANES * DEEPEST
 * zeros more. */
int64_t bm25_best_of_all(search *s, const float *scores, uint64_t **hits) {
    const kernel *with = s->q->kernel;
    const size_t want = s->now.n / LANES / s->k; /* gives about 8 k peaks */
    const size_t depth = want < 1 ? 1 : want > DEEPEST ? DEEPEST : want;
    const size_t n_groups = (s->now.n + depth * LANES - 1) / (depth * LANES), n_peaks = n_groups * LANES;
    float *peaks = bm25_take(s->scratch, B_PEAKS, n_peaks * sizeof *peaks);
    uint64_t *room = bm25_take(s->scratch, B_HITS, 2 * (n_peaks * depth + 1) * sizeof *room);
    size_t found;
    if (!peaks || !room) return BM25_NO_MEMORY;
    with->peaks(n_groups, depth, scores, peaks);
    found = gather(scores, peaks, n_peaks, depth, bm25_least_of_best(with, n_peaks, peaks, s->k, s->k / 16), room,
                   room + n_peaks * depth + 1);
    *hits = room;
    return (int64_t)bm25_best(with, s->docs, found, s->k, hits);
}
