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
#include "bm25_bounds.h"

#include <math.h>
#include <string.h>

enum { FEW_LEFT = 32, TOO_HIGH = 220, MOST_POOL = 500000 /* count_sums counts a million at most */ };

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
            bm25_price_cells(b, b->prices + i, k, g->worth[place]), any = bits;
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
    return bm25_take_hits(b, b->s->q->kernel->sums_above(blocks, b->sums, least, b->window), start, here, below);
}

/* A sum that at least k documents of the chunk reach, or 1. */
static int first_least(bounds *b, uint32_t here, size_t k, uint16_t *least) {
    const kernel *with = b->s->q->kernel;
    const size_t depth = 2 * here / SUMS / k, n = depth ? here / SUMS / depth : 0; /* SUMS * k / 2 peaks */
    uint16_t *peaks;
    if (depth < 2) {
        *least = bm25_least_for(with, here, b->sums, k);
        return 0;
    }
    peaks = bm25_take(b->s->scratch, B_KTH, n * SUMS * sizeof *peaks);
    if (!peaks) return BM25_NO_MEMORY;
    with->peak_sums(n, depth, b->sums, peaks);
    *least = bm25_least_for(with, n * SUMS, peaks, k);
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
        for (size_t i = 0; i < b->n_pool; i++) enough += (uint32_t)(b->pool[i] >> 32) >= least;
    } while (enough < k && less > 1);
    if (enough >= k) {
        const int only = b->seen == b->s->now.n;
        if (bm25_score_pool(b, only ? 0 : least)) return BM25_NO_MEMORY;
        bm25_learn(b, k);
        if (b->least < less && take_above(b, start, here, b->least, only ? less : least)) return BM25_NO_MEMORY;
        bm25_prune(b);
    }
    return 0;
}

static int search_chunk(bounds *b, uint32_t at, int first) {
    const kernel *with = b->s->q->kernel;
    const uint32_t start = at * CHUNK, here = b->s->now.n - start < CHUNK ? b->s->now.n - start : CHUNK;
    const size_t full = here / BLOCK;
    uint64_t tail[128][4];
    size_t n = 0, n_groups;
    if (!first) scatter(b, at, here, first);
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
    if (first) scatter(b, at, here, first);
    b->seen = start + here;
    return first ? first_chunk(b, start, here) : bm25_take_hits(b, n, start, here, UINT32_MAX);
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
            if (!first && bm25_sharpen(b, share_of(b))) return BM25_NO_MEMORY;
            if (first || b->least > TOO_HIGH) bm25_rescale(b);
            b->next = 4 * b->seen;
        }
        first = 0;
        if (b->n_pool > b->s->now.n / 8 + 8 * b->s->k || b->n_pool > MOST_POOL) return BM25_MASSES;
    }
    return 0;
}

static int prepare(bounds *b) {
    scratch *const s = b->s->scratch;
    const size_t n = b->s->n_views;
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
    if (CHUNK < b->s->now.n) memset(b->bytes, 0, CHUNK);
    bm25_scale(b);
    bm25_weigh_lengths(b);
    for (size_t i = 0; i < n; i++) {
        if (b->s->views[i].n_list) bm25_price_codes(b, b->s->views + i, b->worth + i * CODES);
        if (b->s->views[i].n_columns) bm25_price_view(b, b->s->views + i, b->prices + i);
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
        if (b.mode == FIXED) bm25_rescale(&b);
        if ((code = search_chunks(&b)) != 0) return code;
        if ((b.n_pool > FEW_LEFT && bm25_sharpen(&b, s->k)) || (b.n_pool && bm25_score_pool(&b, 0)) || (found = best_done(&b, hits)) < 0) return BM25_NO_MEMORY;
        b.reach = found < (int64_t)s->k ? FLT_MIN : score_of((*hits)[s->k - 1]);
        if (b.reach >= b.hoped) return found;
        b.mode = FIXED;
        settle(&s->q->careful, 64);
    }
}
