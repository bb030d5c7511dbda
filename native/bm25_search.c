/* Searching an index: the kernels, the selection of the k best, the query. Built for plain x86-64 (or anything else)
 * with -ffp-contract=off; only the kernels that are marked use AVX2, and only on a CPU that has it.
 *
 * Term at a time: each term's postings are (slot, tf, length) in three contiguous runs, so the division is vectorised
 * and only the addition into `scores` is scattered. tf and length are kept raw since N, df and the mean length move
 * with every append; a division costs less than keeping impacts right. */
#include "bm25_index.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_AVX2_KERNEL 1
#include <immintrin.h>
#endif

/* ---- kernels: the scalar ones are the truth ---- */

static void score_tail(const postings *p, size_t i, float gain, float a, float c, float *scores) {
    for (; i < p->n; i++) scores[p->slot[i]] += gain * p->tf[i] / (p->tf[i] + (a + c * p->length[i]));
}

static void score_scalar(const postings *p, float gain, float a, float c, float *scores) {
    score_tail(p, 0, gain, a, c, scores);
}

/* n groups of depth * LANES scores become LANES peaks each: lane by lane, so that no vector is ever folded. */
static void peaks_scalar(size_t n, size_t depth, const float *scores, float *peaks) {
    for (; n > 0; n--, peaks += LANES) {
        memset(peaks, 0, LANES * sizeof *peaks);
        for (size_t i = 0; i < depth; i++, scores += LANES)
            for (size_t j = 0; j < LANES; j++) peaks[j] = scores[j] > peaks[j] ? scores[j] : peaks[j];
    }
}

static float most_scalar(size_t n, const float *values) {
    float most = 0;
    for (size_t i = 0; i < n; i++) most = values[i] > most ? values[i] : most;
    return most;
}

static size_t count_scalar(size_t n, const float *values, float least) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += values[i] >= least;
    return found;
}

static const kernel scalar_kernel = {score_scalar, peaks_scalar, most_scalar, count_scalar};

#ifdef HAS_AVX2_KERNEL
__attribute__((target("avx2"))) static void score_avx2(const postings *p, float gain, float a, float c,
                                                       float *scores) {
    const __m256 gains = _mm256_set1_ps(gain), as = _mm256_set1_ps(a), cs = _mm256_set1_ps(c);
    float weight[8];
    size_t i = 0;
    for (; i + 8 <= p->n; i += 8) {
        const __m256 tf = _mm256_loadu_ps(p->tf + i);
        const __m256 norm = _mm256_add_ps(as, _mm256_mul_ps(cs, _mm256_loadu_ps(p->length + i)));
        _mm256_storeu_ps(weight, _mm256_div_ps(_mm256_mul_ps(gains, tf), _mm256_add_ps(tf, norm)));
        for (size_t j = 0; j < 8; j++) scores[p->slot[i + j]] += weight[j];
    }
    _mm256_zeroupper(); /* gcc omits it before a tail call, and scalar code after us would crawl */
    score_tail(p, i, gain, a, c, scores);
}

__attribute__((target("avx2"))) static void peaks_avx2(size_t n, size_t depth, const float *scores, float *peaks) {
    for (; n > 0; n--, peaks += LANES) {
        __m256 most = _mm256_setzero_ps();
        for (size_t i = 0; i < depth; i++, scores += LANES) most = _mm256_max_ps(_mm256_loadu_ps(scores), most);
        _mm256_storeu_ps(peaks, most);
    }
    _mm256_zeroupper();
}

__attribute__((target("avx2"))) static float most_avx2(size_t n, const float *values) {
    float lanes[LANES];
    peaks_avx2(1, n / LANES, values, lanes);
    return most_scalar(LANES, lanes); /* there are LANES peaks a group, so no tail */
}

__attribute__((target("avx2,popcnt"))) static size_t count_avx2(size_t n, const float *values, float least) {
    const __m256 leasts = _mm256_set1_ps(least);
    size_t found = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(values + i), leasts, _CMP_GE_OQ);
        found += (size_t)_mm_popcnt_u32((unsigned)_mm256_movemask_ps(above));
    }
    _mm256_zeroupper();
    return found + count_scalar(n - i, values + i, least);
}

static const kernel avx2_kernel = {score_avx2, peaks_avx2, most_avx2, count_avx2};

const kernel *bm25_kernel_of(bm25_kernel name) {
    if (name == BM25_AVX2) return bm25_best_kernel() == BM25_AVX2 ? &avx2_kernel : NULL;
    return name == BM25_SCALAR ? &scalar_kernel : NULL;
}

bm25_kernel bm25_best_kernel(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") ? BM25_AVX2 : BM25_SCALAR;
}
#else
const kernel *bm25_kernel_of(bm25_kernel name) { return name == BM25_SCALAR ? &scalar_kernel : NULL; }

bm25_kernel bm25_best_kernel(void) { return BM25_SCALAR; }
#endif

/* ---- search ---- */

static uint32_t live_postings(const bm25 *q, const postings *p) {
    uint32_t found = 0;
    if (q->n_live == q->n) return p->n;
    for (uint32_t i = 0; i < p->n; i++) found += q->docs.live[p->slot[i]];
    return found;
}

static void score_all(bm25 *q, size_t n, const uint32_t *terms) {
    const float a = (float)(q->k1 * (1 - q->b));
    const float c = q->total_length ? (float)(q->k1 * q->b / ((double)q->total_length / (double)q->n_live)) : 0;
    float *scores = q->docs.scores;
    for (size_t i = 0; i < n; i++)
        if (terms[i] < q->n_terms) q->terms[terms[i]].asked++;
    for (size_t i = 0; i < n; i++) {
        term *t = terms[i] < q->n_terms ? &q->terms[terms[i]] : NULL;
        const uint32_t times = t ? t->asked : 0, df = times ? live_postings(q, &t->counts) : 0;
        if (!times) continue;
        t->asked = 0;
        if (df) {
            const double idf = log(1 + ((double)q->n_live - df + 0.5) / (df + 0.5));
            q->kernel->score(&t->counts, (float)(times * idf), a, c, scores);
        }
        for (uint32_t j = 0; j < t->weights.n; j++) scores[t->weights.slot[j]] += (float)times * t->weights.tf[j];
    }
}

/* Zero the score of everything that may not be returned. */
static void drop_others(bm25 *q, size_t n_allow, const int64_t *allow, double since) {
    const documents *d = &q->docs;
    size_t i, slot;
    if (allow) {
        memset(d->keep, 0, q->n);
        for (i = 0; i < n_allow; i++)
            if ((slot = bm25_slot_of(q, allow[i])) != SIZE_MAX) d->keep[slot] = 1;
    } else {
        memcpy(d->keep, d->live, q->n);
    }
    for (i = 0; i < q->n; i++)
        if (!d->keep[i] || d->time[i] < since) d->scores[i] = 0;
}

/* A score that at least k documents reach, if k have one at all, and not many more than k do. Each peak is the best of
 * its own documents, so what k peaks reach k documents reach. */
static float least_of_best(const kernel *with, size_t n, const float *peaks, size_t k) {
    float low = FLT_MIN, high = with->most(n, peaks);
    if (with->count(n, peaks, low) < k) return low;
    for (int round = 0; round < 16; round++) {
        const float middle = low + (high - low) / 2;
        const size_t found = with->count(n, peaks, middle);
        if (found < k) {
            high = middle;
        } else {
            low = middle;
            if (found <= k + k / 16) break;
        }
    }
    return low;
}

/* A hit is the bits of its score, which sort as the score does, above its slot. */
static uint64_t hit_of(float score, size_t slot) {
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return (uint64_t)bits << 32 | slot;
}

static int64_t id_of(const bm25 *q, uint64_t hit) { return q->docs.id[hit & UINT32_MAX]; }

static float score_of(uint64_t hit) {
    const uint32_t bits = (uint32_t)(hit >> 32);
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Put every hit of at least `least` into docs.hits; returns how many. No branch depends on a score: it would be
 * mispredicted half of the time. */
static size_t gather(const bm25 *q, size_t n_peaks, size_t depth, float least) {
    uint64_t *hits = q->docs.hits, *places = hits + q->room;
    size_t found = 0, n_places = 0;
    for (size_t i = 0; i < n_peaks; i++) {
        places[n_places] = i;
        n_places += q->peaks[i] >= least;
    }
    for (size_t i = 0; i < n_places; i++) {
        size_t slot = (size_t)places[i] / LANES * LANES * depth + places[i] % LANES;
        for (size_t j = 0; j < depth; j++, slot += LANES) {
            const float score = q->docs.scores[slot];
            hits[found] = hit_of(score, slot);
            found += score >= least;
        }
    }
    return found;
}

static int better(const bm25 *q, uint64_t x, uint64_t y) {
    return x >> 32 != y >> 32 ? x > y : id_of(q, x) > id_of(q, y);
}

/* Let the hit at `place` of a heap with its worst on top sink to where it belongs. */
static void sink(const bm25 *q, size_t n, uint64_t *heap, size_t place) {
    const uint64_t moved = heap[place];
    for (size_t child; (child = 2 * place + 1) < n; place = child) {
        if (child + 1 < n && better(q, heap[child], heap[child + 1])) child++;
        if (!better(q, moved, heap[child])) break;
        heap[place] = heap[child];
    }
    heap[place] = moved;
}

/* Move the k best of n hits to the front. For the many hits of a mass tie; latest first, which are rarely bettered. */
static void keep_best(const bm25 *q, size_t n, size_t k) {
    uint64_t *heap = q->docs.hits;
    for (size_t i = 0; i < k; i++) {
        const uint64_t swap = heap[i];
        heap[i] = heap[n - 1 - i], heap[n - 1 - i] = swap;
    }
    for (size_t place = k / 2; place-- > 0;) sink(q, k, heap, place);
    for (size_t i = n; i-- > k;)
        if (better(q, heap[i], heap[0])) heap[0] = heap[i], sink(q, k, heap, 0);
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

static int newer_first(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

/* The ids of sorted hits, those of the same score from the largest down. */
static void name(const bm25 *q, size_t n, const uint64_t *hits, int64_t *ids) {
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        int ordered = 1;
        ids[i] = id_of(q, hits[i]);
        if (i + 1 < n && hits[i + 1] >> 32 == hits[i] >> 32) continue;
        for (size_t j = start; j < i; j++) ordered &= ids[j] > ids[j + 1];
        if (!ordered) qsort(ids + start, i + 1 - start, sizeof *ids, newer_first);
        start = i + 1;
    }
}

int64_t bm25_search(bm25 *q, size_t n, const uint32_t *terms, size_t k, size_t n_allow, const int64_t *allow,
                    double since, int64_t *ids, float *scores) {
    const size_t most = k < q->n_live ? k : q->n_live;
    const size_t want = most ? q->n / LANES / most : 0; /* gives about 8 k peaks */
    const size_t depth = want < 1 ? 1 : want > DEEPEST ? DEEPEST : want;
    const size_t n_groups = (q->n + depth * LANES - 1) / (depth * LANES), n_peaks = n_groups * LANES;
    uint64_t *sorted, *spare;
    size_t found;
    if (!most) return 0;
    if (n_peaks > q->peak_room) {
        if (bm25_grow(&q->peaks, n_peaks, sizeof *q->peaks)) return BM25_NO_MEMORY;
        q->peak_room = n_peaks;
    }
    memset(q->docs.scores, 0, n_peaks * depth * sizeof *scores);
    score_all(q, n, terms);
    if (allow || since > -HUGE_VAL || q->n_live < q->n) drop_others(q, n_allow, allow, since);
    q->kernel->peaks(n_groups, depth, q->docs.scores, q->peaks);
    found = gather(q, n_peaks, depth, least_of_best(q->kernel, n_peaks, q->peaks, most));
    if (found > 2 * most + 256) keep_best(q, found, most), found = most;
    sorted = sort(found, q->docs.hits, q->docs.hits + q->room);
    spare = sorted == q->docs.hits ? q->docs.hits + q->room : q->docs.hits;
    name(q, found, sorted, (int64_t *)(void *)spare);
    found = found < most ? found : most;
    for (size_t i = 0; i < found; i++) scores[i] = score_of(sorted[i]);
    memcpy(ids, spare, found * sizeof *ids);
    return (int64_t)found;
}
