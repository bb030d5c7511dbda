/* The way for large indexes. Chunk by chunk, every document gets an upper bound of its score: dense terms from their
 * columns, 4 bits a document, looked up and added in registers; the others from their lists. Documents whose bound
 * reaches the threshold are pooled, and scored exactly when the threshold is to rise, or in the end. The bounds of the
 * first chunk have 16 bits; once a threshold is known, 8 bits will do: they are scaled so that it is about AIM, and
 * whatever is larger than 255 stays 255.
 *
 * The threshold is the score that the k best documents so far reach: those with the best bounds are scored to learn
 * it. In a large index a hope does better: of the first sixteenth of the documents, few are among the k best of all,
 * and what those few reach is probably a score that the k best reach. In the end the k-th best score tells; where it
 * is lower, the search is done again with that score as the threshold, which is right by construction. */
#include "bm25_index.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_LEFT = 32, MOST_SUM = 60000, MOST_GROUPS = 16, AIM = 180, TOO_HIGH = 220,
       MOST_POOL = 500000 /* count_sums counts a million at most */ };
static const float SLACK = 1.0001f; /* bounds stay above what rounding can do to a score of 128 terms */

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
    float norm[64];    /* at the shortest length of each class */
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

static int keep_room(scratch *s, size_t which, size_t n, size_t size, void **p) {
    if (n * size > s->at[which].room) {
        if (bm25_grow(&s->at[which].p, n + n / 2, size)) return BM25_NO_MEMORY;
        s->at[which].room = (n + n / 2) * size;
    }
    *p = s->at[which].p;
    return 0;
}

/* ---- what cells and codes are worth at most ---- */

static float most_of(const search *s, const view *v) { return v->gain * v->most_tf / (v->most_tf + s->a) * SLACK; }

/* Put the views with columns into groups, the one worth most beside the one worth least and so on, and find the scale
 * by which neither the bytes of two nor the sums can overflow: each rounding adds one at most. */
static void scale_of(bounds *b) {
    const search *s = b->s;
    float most[MOST_GROUPS * A_GROUP], total = 0, worst = 0;
    uint8_t order[MOST_GROUPS * A_GROUP];
    size_t n = 0;
    for (size_t i = 0; i < s->n_views; i++) {
        size_t at = n;
        most[i] = most_of(s, s->views + i);
        total += most[i];
        if (!s->views[i].n_columns) continue;
        for (; at > 0 && most[order[at - 1]] < most[i]; at--) order[at] = order[at - 1];
        order[at] = (uint8_t)i, n++;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t place = 2 * i < n ? 2 * i : 2 * (n - 1 - i) + 1;
        const float pair = i == n - 1 - i ? most[order[i]] : most[order[i]] + most[order[n - 1 - i]];
        b->place_of[order[i]] = (uint8_t)place;
        worst = pair > worst ? pair : worst;
    }
    b->n_groups = (n + A_GROUP - 1) / A_GROUP;
    for (size_t g = 0; g < b->n_groups; g++) b->groups[g].n = n - g * A_GROUP < A_GROUP ? n - g * A_GROUP : A_GROUP;
    b->scale = (float)MOST_SUM / total;
    if (worst > 0 && 253 < b->scale * worst) b->scale = 253 / worst;
}

static void price_codes(const bounds *b, const view *v, uint16_t *worth) {
    for (int count = 1; count <= MANY; count++, worth += 64) {
        const float tf = count < MANY ? (float)count : v->most_tf, gain = v->gain * tf * SLACK * b->scale;
        for (int i = 0; i < 64; i++) worth[i] = (uint16_t)(int32_t)(gain / (tf + b->norm[i]) + 1);
    }
}

static void narrow(const uint16_t *worth, uint8_t *byte_worth) {
    for (int i = 0; i < CODES; i++) byte_worth[i] = (uint8_t)(worth[i] < UINT8_MAX ? worth[i] : UINT8_MAX);
}

static void price_view(const bounds *b, const view *v, price *p) {
    for (int i = 0; i < CELLS; i++) {
        p->tf[i] = i == 0 ? 1 : bm25_tf_of_cell[i] < MANY ? (float)bm25_tf_of_cell[i] : v->most_tf;
        p->gain[i] = v->gain * p->tf[i] * SLACK * b->scale;
    }
}

static void price_cells(const bounds *b, const price *p, const column *k, uint8_t *worth) {
    const float a = b->s->a, c = b->s->c;
    uint32_t least[CELLS];
    for (int i = 0; i < CELLS; i++) least[i] = relaxed(&k->least[i]);
    least[0] = UINT32_MAX; /* no document is in an empty cell, so that it is worth nothing */
    for (int i = 0; i < CELLS; i++) {
        const int32_t empty = -(least[i] == UINT32_MAX);
        const float length = (float)((int32_t)least[i] & ~empty);
        const int32_t most = (int32_t)(p->gain[i] / (p->tf[i] + (a + c * length)) + 1) & ~empty;
        worth[i] = (uint8_t)(most < UINT8_MAX ? most : UINT8_MAX);
    }
}

/* The pool, the threshold and what things are worth, in units by which the threshold is about AIM. */
static void rescale(bounds *b) {
    const search *s = b->s;
    const float old = b->scale;
    float total = 0;
    for (size_t i = 0; i < s->n_views; i++) total += most_of(s, s->views + i);
    b->scale = b->reach > FLT_MIN ? AIM / b->reach : (UINT8_MAX - (float)s->n_views) / total;
    for (size_t i = 0; i < b->n_done + b->n_pool; i++) {
        uint64_t *const at = i < b->n_done ? b->done + i : b->pool + (i - b->n_done);
        const float sum = ceilf((float)(*at >> 32) * (b->scale / old) * SLACK);
        *at = (sum < UINT8_MAX ? (uint64_t)sum : UINT8_MAX) << 32 | (*at & UINT32_MAX);
    }
    b->least = (uint16_t)(b->reach * b->scale < 1 ? 1 : b->reach * b->scale / SLACK);
    for (size_t i = 0; i < s->n_views; i++) {
        const view *v = s->views + i;
        if (v->n_columns) price_view(b, v, b->prices + i);
        if (!v->n_list) continue;
        price_codes(b, v, b->worth + i * CODES);
        narrow(b->worth + i * CODES, b->byte_worth + i * CODES);
    }
}

/* ---- one chunk ---- */

/* Documents from `at` on that are before `limit`, found by where they would be if they stood evenly. */
static uint32_t end_of(const uint32_t *slots, uint32_t at, uint32_t n, uint32_t limit, uint32_t likely) {
    uint32_t low = at, high = n - at > likely ? at + likely : n, step = 16;
    while (high < n && slots[high] < limit) low = high + 1, high = n - low > step ? low + step : n, step *= 2;
    return low + bm25_first(slots + low, high - low, limit);
}

static void scatter(bounds *b, uint32_t at_chunk, uint32_t here, int first) {
    const uint32_t start = at_chunk * CHUNK;
    for (size_t i = 0; i < b->s->n_views; i++) {
        view *v = b->s->views + i;
        const uint16_t *worth = b->worth + i * CODES;
        const uint8_t *byte_worth = b->byte_worth + i * CODES;
        uint16_t *const sums = b->sums;
        uint8_t *const bytes = b->bytes;
        span *const part = b->s->spans + (size_t)at_chunk * b->s->n_views + i;
        const uint32_t *slot;
        const uint8_t *code;
        uint32_t at = v->at, end;
        part->first = part->end = at;
        if (at >= v->n_list) continue;
        slot = v->list->slot, code = codes_of(v->list);
        if (slot[at] < start) part->first = at += bm25_first(slot + at, v->n_list - at, start); /* chunks left out */
        part->end = v->at = end = end_of(slot, at, v->n_list, start + here, at_chunk ? 2 * (at / at_chunk) : v->n_list);
        for (; first && at < end; at++) {
            uint16_t *const sum = sums + (slot[at] - start);
            *sum = (uint16_t)(*sum + worth[code[at]]);
        }
        for (; at < end; at++) {
            const unsigned sum = bytes[slot[at] - start] + (unsigned)byte_worth[code[at]];
            bytes[slot[at] - start] = (uint8_t)(sum < UINT8_MAX ? sum : UINT8_MAX);
        }
    }
}

/* The columns of a chunk into the groups; bits that end before the chunk's documents do are padded with zeros. A term
 * without a column here is worth nothing, whatever its bits. Returns how many groups are needed: 0 if none has one. */
static size_t gather_columns(bounds *b, uint32_t at, uint32_t here) {
    const uint8_t *any = NULL;
    for (size_t i = 0; i < b->s->n_views; i++) {
        const view *v = b->s->views + i;
        const column *k = bm25_column_at(v, at), *after = bm25_column_at(v, at + 1);
        const uint8_t *bits = k ? (const uint8_t *)k->bits : NULL;
        group *g = b->groups + b->place_of[i] / A_GROUP;
        const size_t place = b->place_of[i] % A_GROUP;
        if (!v->n_columns) continue;
        if (after) { /* its shortest lengths and its first lines; the kernels see to the rest */
            prefetch(after->least), prefetch(after->least + 15);
            for (size_t line = 0; line < 12; line++) prefetch((const char *)after->bits + 64 * line);
        }
        if (k && k->room < here / BLOCK * BLOCK) {
            uint8_t *padded = (uint8_t *)(b->padded + i * (CHUNK / 16));
            memcpy(padded, bits, k->room / 2);
            memset(padded + k->room / 2, 0, (CHUNK - k->room) / 2);
            bits = padded;
        }
        g->bits[place] = bits;
        if (k)
            price_cells(b, b->prices + i, k, g->worth[place]), any = bits;
        else
            memset(g->worth[place], 0, sizeof g->worth[place]);
    }
    for (size_t g = 0; any && g < b->n_groups; g++)
        for (size_t i = 0; i < b->groups[g].n; i++)
            if (!b->groups[g].bits[i]) b->groups[g].bits[i] = any;
    return any ? b->n_groups : 0;
}

/* The last, incomplete block: its words may be changing, so they are copied. */
static void gather_tail(bounds *b, uint32_t at, uint32_t here, uint64_t (*words)[4]) {
    for (size_t i = 0; i < b->s->n_views; i++) {
        const column *k = bm25_column_at(b->s->views + i, at);
        if (!b->s->views[i].n_columns) continue;
        memset(words[i], 0, sizeof words[i]);
        if (k) bm25_copy_tail(k, here, words[i]);
        b->groups[b->place_of[i] / A_GROUP].bits[b->place_of[i] % A_GROUP] = (const uint8_t *)words[i];
    }
}

/* A sum that about `want` of n documents reach, at least so many unless it is 1. */
static uint16_t least_for(const kernel *with, size_t n, const uint16_t *sums, size_t want) {
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
static int take_hits(bounds *b, size_t n, uint32_t start, uint32_t here, uint32_t below) {
    void *room;
    if (keep_room(b->s->scratch, B_POOL, b->n_pool + n, sizeof *b->pool, &room)) return BM25_NO_MEMORY;
    b->pool = room;
    for (size_t i = 0; i < n; i++) {
        const uint32_t local = b->window[i] & UINT16_MAX, sum = b->window[i] >> 16;
        if (local >= here || sum >= below || (b->s->filtered && !bm25_passes(b->s, start + local))) continue;
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
    *kth = least_for(b->s->q->kernel, n, sums, k);
    return 0;
}

static void prune(bounds *b) {
    size_t kept = 0;
    for (size_t i = 0; i < b->n_pool; i++) {
        b->pool[kept] = b->pool[i];
        kept += b->pool[i] >> 32 >= b->least;
    }
    b->n_pool = kept;
    b->limit = 2 * kept + 4 * b->s->k + 256;
}

/* Score those of the pool whose sum is at least `least`; the others stay there. */
static int score_pool(bounds *b, uint32_t least) {
    scratch *const s = b->s->scratch;
    const size_t room = b->n_done + b->n_pool + LANES;
    uint32_t *slots = bm25_take(s, B_SLOTS, b->n_pool * sizeof *slots);
    void *reached, *done;
    size_t n = 0, kept = 0;
    if (!slots || keep_room(s, B_REACHED, room, sizeof *b->reached, &reached) ||
        keep_room(s, B_DONE, room, sizeof *b->done, &done))
        return BM25_NO_MEMORY;
    b->done = done, b->reached = reached;
    for (size_t i = 0; i < b->n_pool; i++) {
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
static void learn(bounds *b, size_t k) {
    const size_t n = (b->n_done + LANES - 1) / LANES * LANES;
    const float reached = bm25_least_of_best(b->s->q->kernel, n, b->reached, k, 0);
    const float sum = reached * b->scale / SLACK;
    if (k == b->s->k) b->sure = reached;
    if (reached <= b->reach) return;
    b->reach = reached, b->least = (uint16_t)(sum < 1 ? 1 : sum);
    if (k < b->s->k) b->hoped = reached;
}

static int sharpen(bounds *b, size_t k) {
    uint16_t kth;
    if (b->n_done + b->n_pool < k) return 0;
    if (kth_sum(b, k, &kth) || score_pool(b, kth)) return BM25_NO_MEMORY;
    learn(b, k);
    prune(b);
    return 0;
}

/* How many of those seen the k best may hold: as many as it would be if order meant nothing, and four deviations. */
static size_t share_of(const bounds *b) {
    const double expected = (double)b->s->k * b->seen / b->s->now.n;
    const size_t share = (size_t)(expected + 4 * sqrt(expected) + 4);
    return b->mode == HOPEFUL && share < b->s->k ? share : b->s->k;
}

/* ---- the search ---- */

static int take_above(bounds *b, uint32_t start, uint32_t here, uint16_t least, uint32_t below) {
    const size_t blocks = (here + BLOCK - 1) / BLOCK;
    b->n_pool = 0;
    return take_hits(b, b->s->q->kernel->sum_above(blocks, 0, NULL, b->sums, least, 0, b->window), start, here, below);
}

/* A sum that at least k documents of the chunk reach, or 1. */
static int first_least(bounds *b, uint32_t here, size_t k, uint16_t *least) {
    const kernel *with = b->s->q->kernel;
    const size_t depth = 2 * here / SUMS / k, n = depth ? here / SUMS / depth : 0; /* SUMS * k / 2 peaks */
    uint16_t *peaks;
    if (depth < 2) {
        *least = least_for(with, here, b->sums, k);
        return 0;
    }
    peaks = bm25_take(b->s->scratch, B_KTH, n * SUMS * sizeof *peaks);
    if (!peaks) return BM25_NO_MEMORY;
    with->peak_sums(n, depth, b->sums, peaks);
    *least = least_for(with, n * SUMS, peaks, k);
    return 0;
}

/* The first chunk with documents: nothing is known of the scores yet. Where it is the only one, what is pooled will
 * most probably be all that matters, and is scored at once. */
static int first_chunk(bounds *b, uint32_t start, uint32_t here) {
    const size_t k = share_of(b);
    size_t want = k, enough;
    uint16_t least, less;
    do { /* until there are enough that pass the filters */
        if (first_least(b, here, want, &least)) return BM25_NO_MEMORY;
        less = (uint16_t)(least - least / 16); /* what their scores will ask for, most probably */
        if (take_above(b, start, here, less, UINT32_MAX)) return BM25_NO_MEMORY;
        enough = 0, want *= 4;
        for (size_t i = 0; i < b->n_pool; i++) enough += b->pool[i] >> 32 >= least;
    } while (enough < k && less > 1);
    if (enough >= k) {
        const uint16_t scored = b->seen == b->s->now.n ? less : least;
        if (score_pool(b, scored)) return BM25_NO_MEMORY;
        learn(b, k);
        if (b->least < less && take_above(b, start, here, b->least, scored)) return BM25_NO_MEMORY;
        prune(b);
    }
    memset(b->sums, 0, (here + BLOCK - 1) / BLOCK * BLOCK * sizeof *b->sums);
    return 0;
}

static int search_chunk(bounds *b, uint32_t at, int first) {
    const kernel *with = b->s->q->kernel;
    const uint32_t start = at * CHUNK, here = b->s->now.n - start < CHUNK ? b->s->now.n - start : CHUNK;
    const size_t full = here / BLOCK;
    uint64_t tail[128][4];
    size_t n = 0, n_groups;
    scatter(b, at, here, first);
    n_groups = gather_columns(b, at, here);
    if (first)
        with->sum(full, n_groups, b->groups, b->sums);
    else
        n = with->bytes_above(full, n_groups, b->groups, b->bytes, (uint8_t)b->least, b->window);
    if (here % BLOCK) {
        gather_tail(b, at, here, tail);
        if (first) {
            with->sum(1, n_groups, b->groups, b->sums + full * BLOCK);
        } else {
            const size_t more =
                with->bytes_above(1, n_groups, b->groups, b->bytes + full * BLOCK, (uint8_t)b->least, b->window + n);
            for (size_t i = 0; i < more; i++) b->window[n + i] += (uint32_t)(full * BLOCK);
            n += more;
        }
    }
    b->seen = start + here;
    return first ? first_chunk(b, start, here) : take_hits(b, n, start, here, UINT32_MAX);
}

static int is_older(const search *s, uint32_t at) {
    const uint64_t bits = relaxed(&s->docs->chunks[at].newest);
    double newest;
    memcpy(&newest, &bits, sizeof newest);
    return newest < s->since;
}

static int search_chunks(bounds *b) {
    const size_t n = ((size_t)b->s->now.n + CHUNK - 1) / CHUNK;
    int first = b->mode != FIXED;
    for (size_t i = 0; i < b->s->n_views; i++) b->s->views[i].at = 0;
    for (uint32_t at = 0; at < n; at++) {
        int code;
        if (is_older(b->s, at)) continue;
        code = search_chunk(b, at, first);
        if (code) return code;
        if (b->seen < b->s->now.n && (first || b->seen >= b->next || b->n_pool > b->limit)) {
            if (!first && sharpen(b, share_of(b))) return BM25_NO_MEMORY;
            if (first || b->least > TOO_HIGH) rescale(b);
            b->next = 4 * b->seen;
        }
        first = 0;
        if (b->n_pool > b->s->now.n / 8 + 8 * b->s->k || b->n_pool > MOST_POOL) return BM25_MASSES;
    }
    return 0;
}

static int prepare(bounds *b) {
    scratch *const s = b->s->scratch;
    const size_t n = b->s->n_views, here = b->s->now.n < CHUNK ? b->s->now.n : CHUNK;
    b->sums = bm25_take(s, B_SUMS, CHUNK * sizeof *b->sums);
    b->window = bm25_take(s, B_WINDOW, (CHUNK + BLOCK) * sizeof *b->window);
    b->groups = bm25_take(s, B_TABLE, MOST_GROUPS * sizeof *b->groups + n * (sizeof *b->prices + 1));
    b->bytes = bm25_take(s, B_BYTES, CHUNK);
    b->worth = bm25_take(s, B_WORTH, n * CODES * (sizeof *b->worth + 1));
    b->padded = bm25_take(s, B_PADDED, n * (CHUNK / 16) * sizeof *b->padded);
    b->s->spans = bm25_take(s, B_SPANS, (b->s->now.n / CHUNK + 1) * n * sizeof *b->s->spans);
    if (!b->sums || !b->bytes || !b->window || !b->groups || !b->worth || !b->padded || !b->s->spans)
        return BM25_NO_MEMORY;
    b->byte_worth = (uint8_t *)(b->worth + n * CODES);
    b->prices = (price *)(void *)(b->groups + MOST_GROUPS);
    b->place_of = (uint8_t *)(b->prices + n);
    memset(b->sums, 0, (here + BLOCK - 1) / BLOCK * BLOCK * sizeof *b->sums);
    if (here < b->s->now.n) memset(b->bytes, 0, CHUNK);
    scale_of(b);
    for (int i = 0; i < 64; i++) b->norm[i] = b->s->a + b->s->c * (float)bm25_least_length[i];
    for (size_t i = 0; i < n; i++) {
        if (b->s->views[i].n_list) price_codes(b, b->s->views + i, b->worth + i * CODES);
        if (b->s->views[i].n_columns) price_view(b, b->s->views + i, b->prices + i);
    }
    return 0;
}

/* The k best of what was scored, sorted, in *hits. */
static int64_t best_done(bounds *b, uint64_t **hits) {
    size_t n = 0;
    *hits = bm25_take(b->s->scratch, B_HITS, 2 * (b->n_done + 1) * sizeof **hits);
    if (!*hits) return BM25_NO_MEMORY;
    for (size_t i = 0; i < b->n_done; i++) {
        (*hits)[n] = hit_of(b->reached[i], (uint32_t)b->done[i]);
        n += b->reached[i] >= b->sure;
    }
    return (int64_t)bm25_best(b->s->q->kernel, b->s->docs, n, b->s->k, hits);
}

/* Hoping costs a second search where documents of a kind stand together; then there is less of it for a while. */
static enum mode mood(const search *s) {
    const uint32_t careful = relaxed(&s->q->careful);
    if (s->now.n <= CHUNK || s->allow || s->since > -HUGE_VAL) return CAREFUL;
    if (careful) settle(&s->q->careful, careful - 1);
    return careful ? CAREFUL : HOPEFUL;
}

int64_t bm25_search_bounds(search *s, uint64_t **hits) {
    bounds b = {.s = s, .mode = mood(s), .least = 1, .reach = FLT_MIN};
    if (prepare(&b)) return BM25_NO_MEMORY;
    for (;;) {
        int64_t found;
        int code;
        b.n_pool = b.n_done = 0, b.sure = FLT_MIN, b.hoped = 0, b.seen = b.next = 0, b.limit = 4 * s->k + 256;
        if (b.mode == FIXED) rescale(&b);
        if ((code = search_chunks(&b)) != 0) return code;
        if ((b.n_pool > FEW_LEFT && sharpen(&b, s->k)) || (b.n_pool && score_pool(&b, 0)) || (found = best_done(&b, hits)) < 0) return BM25_NO_MEMORY;
        b.reach = found < (int64_t)s->k ? FLT_MIN : score_of((*hits)[s->k - 1]);
        if (b.reach >= b.hoped) return found;
        b.mode = FIXED;
        settle(&s->q->careful, 64);
    }
}
