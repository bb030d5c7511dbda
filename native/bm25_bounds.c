/* The way for large indexes. Chunk by chunk, every document gets a 16-bit upper bound of its score: dense terms from
 * their columns, 4 bits a document, looked up and added in registers; the others from their lists. Documents whose
 * bound reaches what the k best so far suggest are scored exactly at the end.
 *
 * The suggestion: after the first chunk some of its best bounds are scored, k of them, or in a large index only so many
 * as are probably among the k best of all. That gives a score to be reached, and the gap between bounds and scores.
 * From then on, documents are passed over when their bound is below that score, or below the k-th best bound so far
 * less the gap. In the end the k-th best score tells whether that was right; if ever not, the search is done again, at
 * last with that score as a threshold, which is right by construction. */
#include "bm25_index.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SUM = 60000, MOST_GROUPS = 16, MOST_POOL = 500000 /* count_sums counts a million at most */ };
static const float SLACK = 1.0001f; /* bounds stay above what rounding can do to a score of 128 terms */

/* HOPEFUL: the first chunk's best few tell what the k best of all will reach at least. CAREFUL: its k best do. FIXED:
 * b.least is known to be right. */
enum mode { HOPEFUL, CAREFUL, FIXED };

typedef struct {
    search *s;
    float scale; /* of sums to scores */
    group *groups;
    size_t n_groups;
    uint8_t *place_of; /* of each view in the groups: group * A_GROUP + place */
    uint16_t *worth;   /* CODES of each view */
    uint16_t *sums;
    uint32_t *window;  /* hits of one chunk */
    uint64_t *padded;  /* CHUNK / 16 words of each view */
    uint16_t least;    /* documents below are passed over */
    uint16_t sure;     /* k documents that were scored reach this */
    float gap; /* how far scores stay behind sums, as a share of them */
    float reached; /* by k documents that were scored, FLT_MIN when not known */
    uint64_t *pool; /* sum << 32 | slot, ascending slots: not scored yet */
    size_t n_pool, limit;
    uint64_t *done; /* sum << 32 | slot, and in B_FOUND its hit */
    size_t n_done;
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

static float worth_of(const search *s, const view *v, float tf, uint32_t least_length) {
    return v->gain * tf / (tf + (s->a + s->c * (float)least_length)) * SLACK;
}

/* Put the views with columns into groups, the one worth most beside the one worth least and so on, and find the scale
 * by which neither the bytes of two nor the sums can overflow: each rounding adds less than one. */
static void scale_of(bounds *b) {
    const search *s = b->s;
    float most[MOST_GROUPS * A_GROUP], total = 0, worst = 0;
    uint8_t order[MOST_GROUPS * A_GROUP];
    size_t n = 0;
    for (size_t i = 0; i < s->n_views; i++) {
        size_t at = n;
        most[i] = worth_of(s, s->views + i, s->views[i].most_tf, 0);
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
    for (unsigned count = 1; count <= MANY; count++)
        for (unsigned length = 0; length < 64; length++)
            worth[(count - 1) * 64 + length] = (uint16_t)(
                worth_of(b->s, v, count < MANY ? (float)count : v->most_tf, bm25_least_length[length]) * b->scale + 1);
}

static void price_cells(const bounds *b, const view *v, const column *k, uint8_t *worth) {
    for (unsigned cell = 0; cell < CELLS; cell++) {
        const uint32_t least = relaxed(&k->least[cell]);
        const float tf = bm25_tf_of_cell[cell] < MANY ? (float)bm25_tf_of_cell[cell] : v->most_tf;
        worth[cell] = 0;
        if (cell && least != UINT32_MAX) worth[cell] = (uint8_t)(worth_of(b->s, v, tf, least) * b->scale + 1);
    }
}

/* ---- one chunk ---- */

static void scatter(bounds *b, uint32_t start, uint32_t here) {
    for (size_t i = 0; i < b->s->n_views; i++) {
        view *v = b->s->views + i;
        const uint16_t *worth = b->worth + i * CODES;
        const uint32_t end = v->n_list, limit = start + here;
        const uint32_t *slot;
        const uint8_t *code;
        uint32_t at = v->at;
        if (at >= end) continue;
        slot = v->list->slot, code = codes_of(v->list);
        if (slot[at] < start) at += bm25_first(slot + at, end - at, start); /* chunks were left out */
        for (; at < end && slot[at] < limit; at++) {
            uint16_t *const sum = b->sums + (slot[at] - start);
            *sum = (uint16_t)(*sum + worth[code[at]]);
        }
        v->at = at;
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
        if (after) /* its head and its first lines; the kernels see to the rest */
            for (size_t line = 0; line < 12; line++) prefetch((const char *)after + 64 * line);
        if (k && k->room < here / BLOCK * BLOCK) {
            uint8_t *padded = (uint8_t *)(b->padded + i * (CHUNK / 16));
            memcpy(padded, bits, k->room / 2);
            memset(padded + k->room / 2, 0, (CHUNK - k->room) / 2);
            bits = padded;
        }
        g->bits[place] = bits;
        if (k)
            price_cells(b, v, k, g->worth[place]), any = bits;
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
            if (found <= want + want / 8) break;
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

/* ---- what to pass over ---- */

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
    b->limit = kept + 2 * b->s->k + 64;
}

/* Score those of the pool whose sum is at least `least`; the others stay there. */
static int score_pool(bounds *b, uint32_t least) {
    scratch *const s = b->s->scratch;
    uint32_t *slots = bm25_take(s, B_SLOTS, b->n_pool * sizeof *slots);
    float *scores = bm25_take(s, B_SCORES, (b->n_pool + LANES) * sizeof *scores);
    void *hits, *done;
    size_t n = 0, kept = 0;
    if (!slots || !scores || keep_room(s, B_FOUND, b->n_done + b->n_pool + 1, sizeof(uint64_t), &hits) ||
        keep_room(s, B_DONE, b->n_done + b->n_pool + 1, sizeof *b->done, &done))
        return BM25_NO_MEMORY;
    b->done = done;
    for (size_t i = 0; i < b->n_pool; i++) {
        const uint64_t x = b->pool[i];
        if (x >> 32 >= least)
            slots[n] = (uint32_t)x, b->done[b->n_done + n++] = x;
        else
            b->pool[kept++] = x;
    }
    b->n_pool = kept;
    if (bm25_score_slots(b->s, n, slots, scores)) return BM25_NO_MEMORY;
    memset(scores + n, 0, LANES * sizeof *scores);
    for (size_t i = 0; i < n; i++)
        ((uint64_t *)hits)[b->n_done + i] = scores[i] >= FLT_MIN ? hit_of(scores[i], slots[i]) : 0;
    b->n_done += n;
    return 0;
}

/* The k best of what was scored, sorted, in *hits. */
static int64_t best_done(bounds *b, uint64_t **hits) {
    const uint64_t *found = b->s->scratch->at[B_FOUND].p, least = hit_of(b->reached, 0);
    size_t n = 0;
    *hits = bm25_take(b->s->scratch, B_HITS, 2 * (b->n_done + 1) * sizeof **hits);
    if (!*hits) return BM25_NO_MEMORY;
    for (size_t i = 0; i < b->n_done; i++)
        (*hits)[n] = found[i], n += found[i] >= least;
    return (int64_t)bm25_best(b->s->docs, n, b->s->k, hits);
}

/* Score those of the pool whose sum is at least `least`, of which there are k: from now on it is known what k documents
 * reach. k may be less than the search's, and then this is only a hope. */
static int begin_threshold(bounds *b, size_t k, uint16_t least) {
    uint16_t kth = least; /* in a single chunk nobody asks for the gap */
    double reached;
    float *scores;
    if ((b->s->now.n > CHUNK && kth_sum(b, k, &kth)) || score_pool(b, least)) return BM25_NO_MEMORY;
    scores = b->s->scratch->at[B_SCORES].p;
    b->reached = bm25_least_of_best(b->s->q->kernel, (b->n_done + LANES - 1) / LANES * LANES, scores, k, 0);
    reached = b->reached > FLT_MIN ? floor((double)b->reached * b->scale) : 0;
    b->least = (uint16_t)(reached < 1 ? 1 : reached);
    b->sure = k == b->s->k ? b->least : 0;
    if (k < b->s->k) b->reached = FLT_MIN;
    b->gap = kth > b->least ? (float)(kth - b->least) / (float)kth * 1.5f + 0.015f : 0.02f;
    if (least) settle(&b->s->q->hint, b->least >= least ? 0 : (uint32_t)(65536 - 65536 * (uint64_t)b->least / least));
    return 0;
}

static int raise_threshold(bounds *b) {
    uint16_t kth;
    if (kth_sum(b, b->s->k, &kth)) return BM25_NO_MEMORY;
    kth = (uint16_t)((float)kth * (b->gap < 1 ? 1 - b->gap : 0));
    if (kth > b->least) b->least = kth;
    prune(b);
    return 0;
}

/* ---- the search ---- */

/* A little less than what the last search found that bounds must reach, if these are the k best of them. */
static uint16_t guess(const bounds *b, uint16_t least) {
    const uint64_t hint = relaxed(&b->s->q->hint), less = least * (65536 - hint) / 65536;
    return (uint16_t)(less > 2 + least / 128u ? less - 1 - least / 128u : 1);
}

static int take_above(bounds *b, uint32_t start, uint32_t here, uint16_t least, uint32_t below) {
    const size_t blocks = (here + BLOCK - 1) / BLOCK;
    b->n_pool = 0;
    return take_hits(b, b->s->q->kernel->sum_above(blocks, 0, NULL, b->sums, least, 0, b->window), start, here, below);
}

static size_t in_pool(const bounds *b, uint16_t least) {
    size_t found = 0;
    for (size_t i = 0; i < b->n_pool; i++) found += b->pool[i] >> 32 >= least;
    return found;
}

/* The first chunk with documents: nothing is known of the scores yet. */
static int first_chunk(bounds *b, uint32_t start, uint32_t here, enum mode mode) {
    const size_t share = b->s->k * (size_t)here / b->s->now.n * 2 + 8;
    const size_t k = mode == HOPEFUL && share < b->s->k ? share : b->s->k;
    size_t want = k;
    uint16_t least, guessed;
    do {
        least = least_for(b->s->q->kernel, here, b->sums, want);
        guessed = guess(b, least), want *= 4;
        if (take_above(b, start, here, guessed, UINT32_MAX)) return BM25_NO_MEMORY;
    } while (in_pool(b, least) < k && least > 1);
    b->least = 1;
    if (b->n_pool >= k) {
        if (begin_threshold(b, k, least)) return BM25_NO_MEMORY;
        if (b->least < guessed && take_above(b, start, here, b->least, least)) return BM25_NO_MEMORY;
        prune(b);
    }
    memset(b->sums, 0, (here + BLOCK - 1) / BLOCK * BLOCK * sizeof *b->sums);
    return 0;
}

static int search_chunk(bounds *b, uint32_t at, int first, enum mode mode) {
    const kernel *with = b->s->q->kernel;
    const uint32_t start = at * CHUNK, here = b->s->now.n - start < CHUNK ? b->s->now.n - start : CHUNK;
    const size_t full = here / BLOCK;
    uint64_t tail[128][4];
    size_t n = 0, n_groups;
    scatter(b, start, here);
    n_groups = gather_columns(b, at, here);
    if (first)
        with->sum(full, n_groups, b->groups, b->sums);
    else
        n = with->sum_above(full, n_groups, b->groups, b->sums, b->least, 1, b->window);
    if (here % BLOCK) {
        gather_tail(b, at, here, tail);
        with->sum(1, n_groups, b->groups, b->sums + full * BLOCK);
        if (!first) {
            const size_t more = with->sum_above(1, 0, NULL, b->sums + full * BLOCK, b->least, 1, b->window + n);
            for (size_t i = 0; i < more; i++) b->window[n + i] += (uint32_t)(full * BLOCK);
            n += more;
        }
    }
    return first ? first_chunk(b, start, here, mode) : take_hits(b, n, start, here, UINT32_MAX);
}

static int is_older(const search *s, uint32_t at) {
    const uint64_t bits = relaxed(&s->docs->chunks[at].newest);
    double newest;
    memcpy(&newest, &bits, sizeof newest);
    return newest < s->since;
}

static int search_chunks(bounds *b, enum mode mode) {
    const size_t n = ((size_t)b->s->now.n + CHUNK - 1) / CHUNK;
    const int fixed = mode == FIXED;
    int first = !fixed, begun = fixed;
    for (size_t i = 0; i < b->s->n_views; i++) b->s->views[i].at = 0;
    for (uint32_t at = 0; at < n; at++) {
        int code;
        if (is_older(b->s, at)) continue;
        code = search_chunk(b, at, first, mode);
        if (code) return code;
        begun |= first && b->n_done;
        first = 0;
        if (!begun && b->n_pool >= b->s->k) {
            uint16_t kth;
            if (kth_sum(b, b->s->k, &kth) || begin_threshold(b, b->s->k, kth)) return BM25_NO_MEMORY;
            prune(b);
            begun = 1;
        }
        if (begun && !fixed && b->n_pool > b->limit && raise_threshold(b)) return BM25_NO_MEMORY;
        if (b->n_pool > b->s->now.n / 8 + 8 * b->s->k || b->n_pool > MOST_POOL) return BM25_MASSES;
    }
    return 0;
}

static int prepare(bounds *b) {
    scratch *const s = b->s->scratch;
    const size_t n = b->s->n_views, here = b->s->now.n < CHUNK ? b->s->now.n : CHUNK;
    b->sums = bm25_take(s, B_SUMS, CHUNK * sizeof *b->sums);
    b->window = bm25_take(s, B_WINDOW, (CHUNK + BLOCK) * sizeof *b->window);
    b->groups = bm25_take(s, B_TABLE, MOST_GROUPS * sizeof *b->groups + n);
    b->worth = bm25_take(s, B_WORTH, n * CODES * sizeof *b->worth);
    b->padded = bm25_take(s, B_PADDED, n * (CHUNK / 16) * sizeof *b->padded);
    if (!b->sums || !b->window || !b->groups || !b->worth || !b->padded) return BM25_NO_MEMORY;
    b->place_of = (uint8_t *)(b->groups + MOST_GROUPS);
    memset(b->sums, 0, (here + BLOCK - 1) / BLOCK * BLOCK * sizeof *b->sums);
    scale_of(b);
    for (size_t i = 0; i < n; i++)
        if (b->s->views[i].n_list) price_codes(b, b->s->views + i, b->worth + i * CODES);
    return 0;
}

/* Hoping costs a second search where documents of a kind stand together; then there is less of it for a while. */
static enum mode mood(const search *s) {
    const uint32_t careful = relaxed(&s->q->careful);
    if (s->now.n <= CHUNK || s->allow || s->since > -HUGE_VAL) return CAREFUL;
    if (careful) settle(&s->q->careful, careful - 1);
    return careful ? CAREFUL : HOPEFUL;
}

int64_t bm25_search_bounds(search *s, uint64_t **hits) {
    bounds b = {.s = s};
    enum mode mode = mood(s);
    int64_t found;
    int code;
    if (prepare(&b)) return BM25_NO_MEMORY;
    for (;; mode = mode == HOPEFUL ? CAREFUL : FIXED) {
        b.n_pool = b.n_done = 0, b.reached = FLT_MIN, b.limit = SIZE_MAX;
        if ((code = search_chunks(&b, mode)) != 0) return code;
        if (mode != FIXED && b.n_done && b.n_done + b.n_pool >= s->k && raise_threshold(&b)) return BM25_NO_MEMORY;
        if (score_pool(&b, 0) || (found = best_done(&b, hits)) < 0) return BM25_NO_MEMORY;
        if (mode == FIXED || b.least == 1 || b.least == b.sure) return found;
        if (found == (int64_t)s->k && (double)score_of((*hits)[s->k - 1]) * b.scale >= b.least) return found;
        if (mode == HOPEFUL) settle(&s->q->careful, 64);
        b.least = (uint16_t)(found < (int64_t)s->k ? 1 : floor((double)score_of((*hits)[s->k - 1]) * b.scale));
        if (!b.least) b.least = 1;
    }
}
