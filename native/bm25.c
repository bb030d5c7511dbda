/* The index: documents as they come and go. bm25.h says what the functions do. */
#include "bm25_fill.h"
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

/* ---- an index ---- */

void bm25_free_core(void *p) {
    core *c = p;
    if (!c) return;
    for (uint64_t i = 0; c->dictionary && i <= c->dictionary->mask; i++)
        if (c->dictionary->at[i]) bm25_free_term(c, c->dictionary->at[i]);
    bm25_drop_documents(c->docs);
    while (c->arena) {
        arena *next = c->arena->next;
        free(c->arena);
        c->arena = next;
    }
    free(c->map), free(c->dictionary), free(c->removed), free(c->image_held), free(c->memo);
    free(c);
}

core *bm25_new_core(void) {
    core *c = NULL;
    if (bm25_grow(&c, 1, sizeof *c)) return NULL;
    memset((void *)c, 0, sizeof *c);
    c->private = 1;
    c->dictionary = bm25_new_dictionary(128);
    if (!c->dictionary || bm25_room_for_documents(NULL, c, 1)) {
        bm25_free_core(c);
        return NULL;
    }
    return c;
}

bm25 *bm25_new(bm25_kernel name, double k1, double b) {
    const kernel *chosen = bm25_kernel_of(name);
    bm25 *q = NULL;
    if (!chosen || bm25_grow(&q, 1, sizeof *q)) return NULL;
    memset((void *)q, 0, sizeof *q);
    q->kernel = chosen, q->k1 = k1, q->b = b;
    q->core = bm25_new_core(); /* and room for what is taken out of it, so that nothing is ever lost */
    if (!q->core || bm25_make_limbo(&q->waiting) || bm25_make_limbo(&q->coming)) {
        bm25_free(q);
        return NULL;
    }
    q->core->private = 0;
    return q;
}

/* Searches find `fresh` from now on. */
void bm25_replace_core(bm25 *q, core *fresh) {
    core *const old = q->core;
    fresh->private = 0;
    ordered_store(&q->core, fresh);
    bm25_retire(q, old, bm25_free_core);
    bm25_reclaim(q);
}

static void drop_limbo(limbo *l) {
    for (size_t i = 0; i < l->n; i++) l->at[i].drop(l->at[i].p);
    free(l->at);
}

void bm25_free(bm25 *q) {
    if (!q) return;
    drop_limbo(&q->waiting), drop_limbo(&q->coming);
    bm25_free_core(q->core);
    bm25_free_pool(&q->pool);
    for (int i = 0; i < SCRATCHES; i++) bm25_free_scratch((scratch *)q->scratches[i]);
    for (int i = 0; i < BUFFERS; i++) free(q->own.at[i].p);
    free(q);
}

void bm25_choose(bm25 *q, int path) { settle(&q->path, path); }

size_t bm25_count(bm25 *q) {
    const unsigned entered = bm25_enter(q);
    const size_t n = bm25_look(acquire(&q->core)).n_live;
    bm25_leave(q, entered);
    return n;
}

int bm25_has(bm25 *q, int64_t id) {
    const unsigned entered = bm25_enter(q);
    const int found = bm25_slot_of(acquire(&q->core), id) != SIZE_MAX;
    bm25_leave(q, entered);
    return found;
}

/* ---- documents come ---- */

enum { EACH_BUFFER = 2, FOUND_BUFFER = 4 };

/* The terms of a text, repeats included, in a scratch buffer. Those new to the index are made. */
int bm25_resolve(bm25 *q, size_t n, size_t n_bytes, const char *text, term ***each) {
    core *const c = q->core;
    const dictionary *const d = c->dictionary;
    token *t = NULL;
    const int code = bm25_split(&q->own, n, n_bytes, text, &t);
    term **const out = *each = bm25_take(&q->own, EACH_BUFFER, n * sizeof *out);
    if (code || !out) return code ? code : BM25_NO_MEMORY;
    for (size_t i = 0; i < n; i++) prefetch((const void *)&d->at[t[i].hash & d->mask]);
    for (size_t i = 0; i < n; i++) bm25_fetch_term(d->at[t[i].hash & d->mask]);
    for (size_t i = 0; i < n; i++)
        if (!(out[i] = bm25_find_or_make(q, c, t + i))) return BM25_NO_MEMORY;
    return 0;
}

/* The different ones among them go to found, behind n_found others, with their counts. */
static size_t count_terms(const bm25 *q, size_t n, term **each, size_t n_found, term **found) {
    for (size_t i = 0; i < n; i++) {
        term *const x = each[i];
        if (x->mark == q->mark) {
            x->count++;
        } else {
            x->mark = q->mark, x->count = 1;
            found[n_found++] = x;
            prefetch((const void *)x->list);
        }
    }
    return n_found;
}

/* BM25_EXISTS or BM25_FULL. */
int bm25_may_add(bm25 *q, int64_t id, size_t n) {
    if (bm25_slot_of(q->core, id) != SIZE_MAX) return BM25_EXISTS;
    return q->core->now.n >= UINT32_MAX - 1 || n > INT32_MAX ? BM25_FULL : 0;
}

int bm25_add_resolved(bm25 *q, int64_t id, double time, size_t n, term **each, size_t n_more, term **more) {
    core *const c = q->core;
    const uint32_t slot = c->now.n, length = (uint32_t)(n + n_more);
    const unsigned length_class = bm25_length_class(length);
    term **const found = bm25_take(&q->own, FOUND_BUFFER, (n + n_more) * sizeof *found);
    size_t n_found;
    if (!found || bm25_room_for_documents(q, c, 1) || bm25_grow_map(q, c, id)) return BM25_NO_MEMORY;
    q->mark++;
    n_found = count_terms(q, n, each, count_terms(q, n_more, more, 0, found), found);
    for (size_t i = 0; i < n_found; i++) {
        const list *l = found[i]->list;
        if (l) prefetch((const void *)&l->slot[l->n]), prefetch(codes_of(l) + l->n);
    }
    for (size_t i = 0; i < n_found; i++)
        if (bm25_reserve(q, c, found[i], slot, found[i]->count)) return BM25_NO_MEMORY;
    bm25_put_document(c, id, time, length);
    for (size_t i = 0; i < n_found; i++) bm25_commit(q, c, found[i], slot, found[i]->count, length_class);
    bm25_show_document(c, id, length);
    if (q->waiting.n || q->coming.n) bm25_reclaim(q);
    return 0;
}

int bm25_add(bm25 *q, int64_t id, double time, size_t n, size_t n_bytes, const char *text) {
    term **each;
    int code = bm25_may_add(q, id, n);
    if (!code) code = bm25_resolve(q, n, n_bytes, text, &each);
    return code ? code : bm25_add_resolved(q, id, time, n, each, 0, NULL);
}

int bm25_grow_weights(bm25 *q, core *c, term *t) {
    weights *const old = t->weights;
    const uint32_t n = old ? old->n : 0;
    const size_t room = (size_t)n + n / 4 + 2;
    weights *grown = NULL;
    if (old && n < old->room) return 0;
    if (room > UINT32_MAX || bm25_grow(&grown, sizeof *grown + room * sizeof grown->at[0], 1)) return BM25_NO_MEMORY;
    grown->room = (uint32_t)room, grown->n = n;
    if (n) memcpy(grown->at, old->at, n * sizeof *old->at);
    release(&t->weights, grown);
    bm25_let_go(q, c, old, free);
    return 0;
}

void bm25_push_weight(weights *w, uint32_t slot, float weight) {
    w->at[w->n].slot = slot, w->at[w->n].weight = weight;
    release(&w->n, w->n + 1);
}

int bm25_add_weights(bm25 *q, int64_t id, size_t n, size_t n_bytes, const char *text, const float *values) {
    core *const c = q->core;
    const size_t slot = bm25_slot_of(c, id);
    term **each, **found;
    int code;
    if (slot == SIZE_MAX) return BM25_ABSENT;
    if ((code = bm25_resolve(q, n, n_bytes, text, &each)) != 0) return code;
    if (!(found = bm25_take(&q->own, FOUND_BUFFER, n * sizeof *found))) return BM25_NO_MEMORY;
    q->mark++;
    if (count_terms(q, n, each, 0, found) != n) return BM25_TERMS;
    for (size_t i = 0; i < n; i++)
        if (bm25_grow_weights(q, c, each[i])) return BM25_NO_MEMORY;
    for (size_t i = 0; i < n; i++) bm25_push_weight(each[i]->weights, (uint32_t)slot, values[i]);
    if (q->waiting.n || q->coming.n) bm25_reclaim(q);
    return 0;
}

/* ---- documents go ---- */

static int grow_removed(bm25 *q, core *c) {
    list *const old = c->removed;
    const uint32_t n = old ? old->n : 0, room = n + n / 2 + 16;
    list *grown = NULL;
    if (old && n < old->room) return 0;
    if (bm25_grow(&grown, sizeof *grown + room * sizeof grown->slot[0], 1)) return BM25_NO_MEMORY;
    grown->room = room, grown->n = n;
    if (n) memcpy(grown->slot, old->slot, n * sizeof *old->slot);
    release(&c->removed, grown);
    bm25_retire(q, old, free);
    return 0;
}

int bm25_remove(bm25 *q, int64_t id, double *time) {
    core *const c = q->core;
    const size_t slot = bm25_slot_of(c, id);
    if (slot == SIZE_MAX) return BM25_ABSENT;
    if (grow_removed(q, c)) return BM25_NO_MEMORY;
    *time = c->docs->time[slot];
    settle(&c->docs->live[slot], 0);
    c->removed->slot[c->removed->n] = (uint32_t)slot;
    release(&c->removed->n, c->removed->n + 1);
    c->now.n_live--, c->now.n_removed++, c->now.total_length -= c->docs->length[slot];
    bm25_publish(c);
    if (c->now.n - c->now.n_live > 64 + c->now.n_live / 8) (void)bm25_sweep(q); /* each removal pays for the moving of eight */
    if (q->waiting.n || q->coming.n) bm25_reclaim(q);
    return 0;
}

/* ---- how large ---- */

static size_t term_size(const core *c, const term *t) {
    size_t size = 0;
    if (t->list && !is_borrowed(c, t->list)) size += sizeof *t->list + t->list->room * (sizeof(uint32_t) + 1);
    if (t->rare && !is_borrowed(c, t->rare)) size += sizeof *t->rare + t->rare->room * sizeof(posting);
    if (t->weights) size += sizeof *t->weights + t->weights->room * sizeof(weighted);
    if (t->columns) size += sizeof *t->columns + t->columns->room * sizeof t->columns->at[0];
    for (uint32_t i = 0; t->columns && i < t->columns->n; i++) {
        const column *const k = t->columns->at[i].column;
        if (k && k->held) size += bm25_column_bytes(k->room);
    }
    return size;
}

size_t bm25_size_bytes(bm25 *q) {
    const core *const c = q->core;
    const size_t room = c->docs->room, places = c->dictionary->mask + 1;
    size_t size = sizeof *q + sizeof *c + q->pool.n_slabs * SLAB + places * sizeof(term *) + room * 21 + c->n_image;
    if (c->map) size += c->map->room * 4;
    if (c->memo) size += sizeof(analyze_memo);
    for (const arena *a = c->arena; a; a = a->next) size += sizeof *a + 8 * a->room;
    for (size_t i = 0; i < places; i++)
        if (c->dictionary->at[i]) size += term_size(c, c->dictionary->at[i]);
    return size;
}
