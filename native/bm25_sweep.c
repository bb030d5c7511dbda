/* Removed documents are forgotten for good: what is left moves to a fresh index. */
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

typedef int (*visit)(void *context, uint32_t slot, uint32_t tf);

/* Live ones, ascending; ends early with what visit returns. */
static int each_posting(const core *c, const term *t, visit each, void *context) {
    const list *l = t->list;
    const uint32_t n_list = l ? l->n : 0, n_columns = t->columns ? t->columns->n : 0;
    const uint32_t n_many = t->rare ? t->rare->n : 0, n_chunks = (c->now.n + CHUNK - 1) / CHUNK;
    int code = 0;
    for (uint32_t at = 0, i = 0; at < n_chunks && (at < n_columns || i < n_list); at++) {
        const column *k = at < n_columns ? t->columns->at[at].column : NULL;
        for (uint32_t local = 0; k && local < k->room && at * CHUNK + local < c->now.n && !code; local++) {
            const uint32_t slot = at * CHUNK + local;
            uint32_t tf = bm25_tf_of_cell[bm25_cell(k, local)];
            if (!tf || !c->docs->live[slot]) continue;
            if (tf == MANY) tf = n_many ? bm25_tf_of(t->rare, n_many, slot) : 0;
            if (tf) code = each(context, slot, tf);
        }
        for (; i < n_list && l->slot[i] / CHUNK == at && !code; i++) {
            uint32_t tf = (codes_of(l)[i] >> 6) + 1u;
            if (!c->docs->live[l->slot[i]]) continue;
            if (tf == MANY) tf = n_many ? bm25_tf_of(t->rare, n_many, l->slot[i]) : 0;
            if (tf) code = each(context, l->slot[i], tf);
        }
        if (code) return code;
    }
    return 0;
}

typedef struct {
    bm25 *q;
    core *fresh;
    term *to;
    const uint32_t *renamed;
} sweeping;

static int sweep_posting(void *context, uint32_t slot, uint32_t tf) {
    const sweeping *s = context;
    const uint32_t to = s->renamed[slot];
    if (bm25_reserve(s->q, s->fresh, s->to, to, tf)) return BM25_NO_MEMORY;
    bm25_commit(s->q, s->fresh, s->to, to, tf, bm25_length_class(s->fresh->docs->length[to]));
    return 0;
}

static int sweep_term(bm25 *q, core *fresh, const term *from, const core *c, const uint32_t *renamed) {
    const token key = {0, from->bytes, from->n_bytes};
    const weights *w = from->weights;
    token *t;
    term *to;
    if (bm25_split(&q->own, 1, key.n_bytes, key.bytes, &t)) return BM25_NO_MEMORY;
    if (!(to = bm25_find_or_make(q, fresh, t))) return BM25_NO_MEMORY;
    if (each_posting(c, from, sweep_posting, &(sweeping){q, fresh, to, renamed})) return BM25_NO_MEMORY;
    for (uint32_t i = 0; w && i < w->n; i++) {
        if (!c->docs->live[w->at[i].slot]) continue;
        if (bm25_grow_weights(q, fresh, to)) return BM25_NO_MEMORY;
        bm25_push_weight(to->weights, renamed[w->at[i].slot], w->at[i].weight);
    }
    return 0;
}

/* Does any live document have this term? */
static int is_used(const term *t, const core *c) {
    const list *l = t->list;
    const weights *w = t->weights;
    if (t->columns) return 1;
    for (uint32_t i = 0; l && i < l->n; i++)
        if (c->docs->live[l->slot[i]]) return 1;
    for (uint32_t i = 0; w && i < w->n; i++)
        if (c->docs->live[w->at[i].slot]) return 1;
    return 0;
}

static int fill_swept(bm25 *q, core *fresh, const core *c, uint32_t *renamed) {
    const documents *d = c->docs;
    for (uint32_t i = 0; i < c->now.n; i++) {
        renamed[i] = fresh->now.n;
        if (!d->live[i]) continue;
        if (bm25_room_for_documents(q, fresh, 1) || bm25_grow_map(q, fresh, d->id[i])) return BM25_NO_MEMORY;
        bm25_put_document(fresh, d->id[i], d->time[i], d->length[i]);
        bm25_show_document(fresh, d->id[i], d->length[i]);
    }
    for (uint64_t i = 0; i <= c->dictionary->mask; i++) {
        const term *t = c->dictionary->at[i];
        if (t && is_used(t, c) && sweep_term(q, fresh, t, c, renamed)) return BM25_NO_MEMORY;
    }
    return 0;
}

/* Into a fresh core that searches find from now on, without the terms that only removed documents had. BM25_NO_MEMORY:
 * all stays as it is. */
int bm25_sweep(bm25 *q) {
    core *const old = q->core, *fresh = bm25_new_core();
    uint32_t *renamed = bm25_take(&q->own, 3, old->now.n * sizeof *renamed);
    if (!fresh || !renamed || fill_swept(q, fresh, old, renamed)) {
        bm25_free_core(fresh);
        return BM25_NO_MEMORY;
    }
    bm25_replace_core(q, fresh);
    return 0;
}
