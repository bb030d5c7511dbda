/* Documents whose bound reaches the threshold, the exact scores of some of them, and the threshold that follows. */
#include "bm25_bounds.h"

#include <string.h>

static int keep_room(scratch *s, size_t which, size_t n, size_t size, void **p) {
    if (n * size > s->at[which].room) {
        if (bm25_grow(&s->at[which].p, n + n / 2, size)) return BM25_NO_MEMORY;
        s->at[which].room = (n + n / 2) * size;
    }
    *p = s->at[which].p;
    return 0;
}

/* A sum that about `want` of n documents reach, at least so many unless it is 1. */
uint16_t bm25_least_for(const kernel *with, size_t n, const uint16_t *sums, size_t want) {
    uint32_t low = 1, high = with->most_sum(n, sums);
    while (high > low + 1) {
        const uint32_t middle = (low + high) / 2;
        const size_t found = with->count_sums(n, sums, (uint16_t)middle);
        if (found < want) {
            high = middle;
        } else {
            low = middle;
            if (found <= want + want / 16) break;
        }
    }
    return (uint16_t)low;
}

/* Take a chunk's hits that pass the filters and are not above `below` into the pool. */
int bm25_take_hits(bounds *b, size_t n, uint32_t start, uint32_t here, uint32_t below) {
    void *room;
    if (keep_room(b->s->scratch, B_POOL, b->n_pool + n, sizeof *b->pool, &room)) return BM25_NO_MEMORY;
    b->pool = room;
    while (n > 0 && (b->window[n - 1] & UINT16_MAX) >= here) n--;
    if (!b->s->filtered && below == UINT32_MAX) {
        uint64_t *const to = b->pool + b->n_pool;
        for (size_t i = 0; i < n; i++)
            to[i] = (uint64_t)(b->window[i] >> 16) << 32 | (start + (b->window[i] & UINT16_MAX));
        b->n_pool += n;
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t local = b->window[i] & UINT16_MAX, sum = b->window[i] >> 16;
        if (sum >= below || (b->s->filtered && !bm25_passes(b->s, start + local))) continue;
        b->pool[b->n_pool++] = (uint64_t)sum << 32 | (start + local);
    }
    return 0;
}

/* ---- the threshold ---- */

/* About the k-th largest of the sums in done and pool, of which there are k at least; not more than that. */
static int kth_sum(bounds *b, size_t k, uint16_t *kth) {
    const size_t n = b->n_done + b->n_pool;
    uint16_t *sums = bm25_take(b->s->scratch, B_KTH, n * sizeof *sums);
    if (!sums) return BM25_NO_MEMORY;
    for (size_t i = 0; i < b->n_done; i++) sums[i] = (uint16_t)(b->done[i] >> 32);
    for (size_t i = 0; i < b->n_pool; i++) sums[b->n_done + i] = (uint16_t)(b->pool[i] >> 32);
    *kth = bm25_least_for(b->s->q->kernel, n, sums, k);
    return 0;
}

void bm25_prune(bounds *b) {
    size_t kept = 0;
    for (size_t i = 0; i < b->n_pool; i++) {
        b->pool[kept] = b->pool[i];
        kept += b->pool[i] >> 32 >= b->least;
    }
    b->n_pool = kept;
    b->limit = 2 * kept + 4 * b->s->k + 256;
}

/* Score those of the pool whose sum is at least `least`; the others stay there. */
int bm25_score_pool(bounds *b, uint32_t least) {
    scratch *const s = b->s->scratch;
    const size_t room = b->n_done + b->n_pool + LANES;
    uint32_t *slots = bm25_take(s, B_SLOTS, b->n_pool * sizeof *slots);
    void *reached, *done;
    size_t n = 0, kept = 0;
    if (!slots || keep_room(s, B_REACHED, room, sizeof *b->reached, &reached) ||
        keep_room(s, B_DONE, room, sizeof *b->done, &done))
        return BM25_NO_MEMORY;
    b->done = done, b->reached = reached;
    for (; !least && n < b->n_pool; n++) b->done[b->n_done + n] = b->pool[n], slots[n] = (uint32_t)b->pool[n];
    for (size_t i = n; i < b->n_pool; i++) {
        const uint64_t x = b->pool[i];
        b->done[b->n_done + n] = x, slots[n] = (uint32_t)x, b->pool[kept] = x;
        n += x >> 32 >= least, kept += x >> 32 < least;
    }
    b->n_pool = kept;
    if (bm25_score_slots(b->s, n, slots, b->reached + b->n_done)) return BM25_NO_MEMORY;
    b->n_done += n;
    memset(b->reached + b->n_done, 0, LANES * sizeof *b->reached);
    return 0;
}

/* From now on nothing is passed over that may be among the best k of those seen. With a k that is less than the search's
 * this is a hope. */
void bm25_learn(bounds *b, size_t k) {
    const size_t n = (b->n_done + LANES - 1) / LANES * LANES;
    const float reached = bm25_least_of_best(b->s->q->kernel, n, b->reached, k, 0);
    const float sum = reached * b->scale / SLACK;
    if (k == b->s->k) b->sure = reached;
    if (reached <= b->reach) return;
    b->reach = reached, b->least = (uint16_t)(sum < 1 ? 1 : sum < UINT16_MAX ? sum : UINT16_MAX);
    if (k < b->s->k) b->hoped = reached;
}

int bm25_sharpen(bounds *b, size_t k) {
    uint16_t kth;
    if (b->n_done + b->n_pool < k) return 0;
    if (kth_sum(b, k, &kth) || bm25_score_pool(b, kth)) return BM25_NO_MEMORY;
    bm25_learn(b, k);
    bm25_prune(b);
    return 0;
}
