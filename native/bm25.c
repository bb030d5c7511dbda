/* The index: documents as they come and go. bm25.h says what the functions do. */
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

static void drop_documents(void *p) {
    documents *d = p;
    free(d->id), free(d->time), free(d->length), free((void *)d->live), free(d->chunks);
    free(d);
}

static void copy(void *to, const void *from, size_t size) {
    if (size) memcpy(to, from, size);
}

int bm25_grow_documents(bm25 *q, core *c) {
    documents *const old = c->docs;
    documents *d = NULL;
    const size_t n = c->now.n;
    size_t room;
    if (old && n < old->room) return 0;
    room = (n < 4096 ? 2 * n + BLOCK : n + n / 8) / BLOCK * BLOCK + BLOCK;
    if (bm25_grow(&d, 1, sizeof *d)) return BM25_NO_MEMORY;
    memset(d, 0, sizeof *d);
    d->room = room;
    if (bm25_grow(&d->id, room, sizeof *d->id) || bm25_grow(&d->time, room, sizeof *d->time) ||
        bm25_grow(&d->length, room, sizeof *d->length) || bm25_grow(&d->live, room, 1) ||
        bm25_grow(&d->chunks, room / CHUNK + 1, sizeof *d->chunks)) {
        drop_documents(d);
        return BM25_NO_MEMORY;
    }
    bm25_advise(d->id, room * sizeof *d->id), bm25_advise(d->length, room * sizeof *d->length);
    memset((void *)d->chunks, 0, (room / CHUNK + 1) * sizeof *d->chunks);
    if (old) {
        copy(d->id, old->id, n * sizeof *d->id), copy(d->time, old->time, n * sizeof *d->time);
        copy(d->length, old->length, n * sizeof *d->length), copy((void *)d->live, (void *)old->live, n);
        copy(d->chunks, old->chunks, (n + CHUNK - 1) / CHUNK * sizeof *d->chunks);
        if (c->private)
            drop_documents(old);
        else
            bm25_retire(q, old, drop_documents);
    }
    release(&c->docs, d);
    return 0;
}

/* ---- id -> slot ---- */

static size_t start_of(int64_t id) {
    const uint64_t hash = (uint64_t)id * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash ^ hash >> 32);
}

/* Where the id is in the map, or the free place where it would go. The map is never full. */
static size_t place_of(const map *m, const documents *d, int64_t id) {
    size_t place = start_of(id) & (m->room - 1);
    for (uint32_t found; (found = acquire(&m->place[place])) != 0; place = (place + 1) & (m->room - 1))
        if (d->id[found - 1] == id) break;
    return place;
}

static map *new_map(size_t room) {
    map *made = NULL;
    if (bm25_grow(&made, sizeof *made + room * sizeof made->place[0], 1)) return NULL;
    made->room = room;
    memset((void *)made->place, 0, room * sizeof made->place[0]);
    return made;
}

static void fill_map(map *m, const documents *d, size_t n) {
    for (size_t i = 0; i < n; i++) /* an id that came back replaces its removed self */
        m->place[place_of(m, d, d->id[i])] = (uint32_t)i + 1;
}

/* Room for one more id. As long as ids come in ascending order no map is needed. */
int bm25_grow_map(bm25 *q, core *c, int64_t id) {
    map *const old = c->map, *grown;
    const size_t n = c->now.n;
    size_t room = old ? old->room : 128;
    if (old ? n + n / 2 + 1 <= room : !n || c->docs->id[n - 1] < id) return 0;
    while (n + n / 2 + 1 > room) room *= 2;
    if (!(grown = new_map(room))) return BM25_NO_MEMORY;
    fill_map(grown, c->docs, n);
    release(&c->map, grown);
    if (c->private)
        free(old);
    else
        bm25_retire(q, old, free);
    return 0;
}

static size_t slot_among(const documents *d, size_t n, int64_t id) {
    size_t low = 0;
    if (n && d->id[n - 1] < id) return SIZE_MAX;
    while (low < n) {
        const size_t middle = low + (n - low) / 2;
        if (d->id[middle] == id) return relaxed(&d->live[middle]) ? middle : SIZE_MAX;
        if (d->id[middle] < id)
            low = middle + 1;
        else
            n = middle;
    }
    return SIZE_MAX;
}

/* The slot of a document that is there, or SIZE_MAX. */
size_t bm25_slot_of(core *c, int64_t id) {
    const size_t n = bm25_look(c).n; /* before the map: without one, the first n are in ascending order */
    const map *m = acquire(&c->map);
    size_t place = m ? start_of(id) & (m->room - 1) : 0;
    if (!m) return slot_among(acquire(&c->docs), n, id);
    for (uint32_t found; (found = acquire(&m->place[place])) != 0; place = (place + 1) & (m->room - 1)) {
        const documents *d = acquire(&c->docs); /* at least as new as what was found */
        if (d->id[found - 1] == id) return relaxed(&d->live[found - 1]) ? found - 1 : SIZE_MAX;
    }
    return SIZE_MAX;
}

/* ---- an index ---- */

void bm25_free_core(void *p) {
    core *c = p;
    if (!c) return;
    for (uint64_t i = 0; c->dictionary && i <= c->dictionary->mask; i++)
        if (c->dictionary->at[i]) bm25_free_term(c->dictionary->at[i]);
    if (c->docs) drop_documents(c->docs);
    while (c->arena) {
        arena *next = c->arena->next;
        free(c->arena);
        c->arena = next;
    }
    free(c->map), free(c->dictionary), free(c->removed);
    free(c);
}

core *bm25_new_core(void) {
    core *c = NULL;
    if (bm25_grow(&c, 1, sizeof *c)) return NULL;
    memset((void *)c, 0, sizeof *c);
    c->private = 1;
    c->dictionary = bm25_new_dictionary(128);
    if (!c->dictionary || bm25_grow_documents(NULL, c)) {
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

/* The different terms of a text, with their counts in them, in scratch buffer 2. Terms new to the index are made. */
static int resolve(bm25 *q, core *c, size_t n, size_t n_bytes, const char *text, term ***found, size_t *n_found) {
    token *t = NULL;
    const dictionary *d;
    const int code = bm25_split(&q->own, n, n_bytes, text, &t);
    term **out = bm25_take(&q->own, 2, n * sizeof *out);
    if (code || !out) return code ? code : BM25_NO_MEMORY;
    *found = out, *n_found = 0;
    d = c->dictionary;
    for (size_t i = 0; i < n; i++) prefetch((const void *)&d->at[t[i].hash & d->mask]);
    for (size_t i = 0; i < n; i++) {
        const char *const likely_term = (const char *)d->at[t[i].hash & d->mask];
        prefetch(likely_term), prefetch(likely_term + 63);
    }
    q->mark++;
    for (size_t i = 0; i < n; i++) {
        term *const x = bm25_find_or_make(q, c, t + i);
        if (!x) return BM25_NO_MEMORY;
        if (x->mark == q->mark) {
            x->count++;
        } else {
            x->mark = q->mark, x->count = 1;
            out[(*n_found)++] = x;
            prefetch((const void *)x->list);
        }
    }
    return 0;
}

void bm25_put_document(core *c, int64_t id, double time, uint32_t length) {
    const uint32_t slot = c->now.n;
    documents *const d = c->docs;
    SHARED uint64_t *const newest = &d->chunks[slot / CHUNK].newest;
    uint64_t bits = *newest;
    double latest;
    d->id[slot] = id, d->time[slot] = time, d->length[slot] = length;
    settle(&d->live[slot], 1);
    memcpy(&latest, &bits, sizeof latest);
    if (slot % CHUNK == 0 || time > latest) memcpy(&bits, &time, sizeof bits), settle(newest, bits);
}

void bm25_show_document(core *c, int64_t id, uint32_t length) {
    const uint32_t slot = c->now.n;
    c->now.n++, c->now.n_live++, c->now.total_length += length;
    if (c->map) release(&c->map->place[place_of(c->map, c->docs, id)], slot + 1);
    bm25_publish(c);
}

int bm25_add(bm25 *q, int64_t id, double time, size_t n, size_t n_bytes, const char *text) {
    core *const c = q->core;
    const uint32_t slot = c->now.n, length = (uint32_t)n;
    const unsigned length_class = bm25_length_class(length);
    term **found;
    size_t n_found;
    int code;
    if (bm25_slot_of(c, id) != SIZE_MAX) return BM25_EXISTS;
    if (slot >= UINT32_MAX - 1 || n > INT32_MAX) return BM25_FULL;
    if ((code = resolve(q, c, n, n_bytes, text, &found, &n_found)) != 0) return code;
    if (bm25_grow_documents(q, c) || bm25_grow_map(q, c, id)) return BM25_NO_MEMORY;
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

static int grow_weights(bm25 *q, core *c, term *t) {
    weights *const old = t->weights;
    const uint32_t n = old ? old->n : 0;
    const size_t room = (size_t)n + n / 4 + 2;
    weights *grown = NULL;
    if (old && n < old->room) return 0;
    if (room > UINT32_MAX || bm25_grow(&grown, sizeof *grown + room * sizeof grown->at[0], 1)) return BM25_NO_MEMORY;
    grown->room = (uint32_t)room, grown->n = n;
    if (n) memcpy(grown->at, old->at, n * sizeof *old->at);
    release(&t->weights, grown);
    if (c->private)
        free(old);
    else
        bm25_retire(q, old, free);
    return 0;
}

static void push_weight(weights *w, uint32_t slot, float weight) {
    w->at[w->n].slot = slot, w->at[w->n].weight = weight;
    release(&w->n, w->n + 1);
}

int bm25_add_weights(bm25 *q, int64_t id, size_t n, size_t n_bytes, const char *text, const float *values) {
    core *const c = q->core;
    const size_t slot = bm25_slot_of(c, id);
    term **found;
    size_t n_found;
    int code;
    if (slot == SIZE_MAX) return BM25_ABSENT;
    if ((code = resolve(q, c, n, n_bytes, text, &found, &n_found)) != 0) return code;
    if (n_found != n) return BM25_TERMS;
    for (size_t i = 0; i < n; i++)
        if (grow_weights(q, c, found[i])) return BM25_NO_MEMORY;
    for (size_t i = 0; i < n; i++) push_weight(found[i]->weights, (uint32_t)slot, values[i]);
    if (q->waiting.n || q->coming.n) bm25_reclaim(q);
    return 0;
}

/* ---- documents go ---- */

int bm25_put_posting(bm25 *q, core *c, term *t, uint32_t slot, uint32_t tf) {
    if (bm25_reserve(q, c, t, slot, tf)) return BM25_NO_MEMORY;
    bm25_commit(q, c, t, slot, tf, bm25_length_class(c->docs->length[slot]));
    return 0;
}

int bm25_each_posting(const core *c, const term *t, bm25_visit visit, void *context) {
    const list *l = t->list;
    const uint32_t n_list = l ? l->n : 0, n_columns = t->columns ? t->columns->n : 0;
    const uint32_t n_many = t->rare ? t->rare->n : 0, n_chunks = (c->now.n + CHUNK - 1) / CHUNK;
    int code = 0;
    for (uint32_t at = 0, i = 0; at < n_chunks && (at < n_columns || i < n_list); at++) {
        const column *k = at < n_columns ? t->columns->at[at].column : NULL;
        for (uint32_t local = 0; k && local < k->room && !code; local++) {
            const uint32_t slot = at * CHUNK + local;
            uint32_t tf = bm25_tf_of_cell[bm25_cell(k, local)];
            if (!tf || !c->docs->live[slot]) continue;
            if (tf == MANY) tf = bm25_tf_of(t->rare, n_many, slot);
            code = visit(context, slot, tf);
        }
        for (; i < n_list && l->slot[i] / CHUNK == at && !code; i++) {
            uint32_t tf = (codes_of(l)[i] >> 6) + 1u;
            if (!c->docs->live[l->slot[i]]) continue;
            if (tf == MANY) tf = bm25_tf_of(t->rare, n_many, l->slot[i]);
            code = visit(context, l->slot[i], tf);
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
    return bm25_put_posting(s->q, s->fresh, s->to, s->renamed[slot], tf);
}

static int sweep_term(bm25 *q, core *fresh, const term *from, const core *c, const uint32_t *renamed) {
    const token key = {0, from->bytes, from->n_bytes};
    const weights *w = from->weights;
    token *t;
    term *to;
    if (bm25_split(&q->own, 1, key.n_bytes, key.bytes, &t)) return BM25_NO_MEMORY;
    if (!(to = bm25_find_or_make(q, fresh, t))) return BM25_NO_MEMORY;
    if (bm25_each_posting(c, from, sweep_posting, &(sweeping){q, fresh, to, renamed})) return BM25_NO_MEMORY;
    for (uint32_t i = 0; w && i < w->n; i++) {
        if (!c->docs->live[w->at[i].slot]) continue;
        if (grow_weights(q, fresh, to)) return BM25_NO_MEMORY;
        push_weight(to->weights, renamed[w->at[i].slot], w->at[i].weight);
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
        if (bm25_grow_documents(q, fresh) || bm25_grow_map(q, fresh, d->id[i])) return BM25_NO_MEMORY;
        bm25_put_document(fresh, d->id[i], d->time[i], d->length[i]);
        bm25_show_document(fresh, d->id[i], d->length[i]);
    }
    for (uint64_t i = 0; i <= c->dictionary->mask; i++) {
        const term *t = c->dictionary->at[i];
        if (t && is_used(t, c) && sweep_term(q, fresh, t, c, renamed)) return BM25_NO_MEMORY;
    }
    return 0;
}

/* Forget removed documents, and terms that only they had: into a fresh index that searches find from now on. When
 * memory lacks, all stays as it is. */
static void sweep(bm25 *q) {
    core *const old = q->core, *fresh = bm25_new_core();
    uint32_t *renamed = bm25_take(&q->own, 3, old->now.n * sizeof *renamed);
    if (!fresh || !renamed || fill_swept(q, fresh, old, renamed)) {
        bm25_free_core(fresh);
        return;
    }
    fresh->private = 0;
    ordered_store(&q->core, fresh);
    bm25_retire(q, old, bm25_free_core);
    bm25_reclaim(q);
}

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
    if (c->now.n - c->now.n_live > 64 + c->now.n_live / 8) sweep(q); /* each removal pays for the moving of eight */
    if (q->waiting.n || q->coming.n) bm25_reclaim(q);
    return 0;
}

/* ---- how large ---- */

static size_t term_size(const term *t) {
    size_t size = 0;
    if (t->list) size += sizeof *t->list + t->list->room * (sizeof(uint32_t) + 1);
    if (t->rare) size += sizeof *t->rare + t->rare->room * sizeof(posting);
    if (t->weights) size += sizeof *t->weights + t->weights->room * sizeof(weighted);
    if (t->columns) size += sizeof *t->columns + t->columns->room * sizeof t->columns->at[0];
    for (uint32_t i = 0; t->columns && i < t->columns->n; i++)
        if (t->columns->at[i].column && t->columns->at[i].column->held)
            size += sizeof(column) + t->columns->at[i].column->room / 2;
    return size;
}

size_t bm25_size_bytes(bm25 *q) {
    const core *const c = q->core;
    const size_t room = c->docs->room, places = c->dictionary->mask + 1;
    size_t size = sizeof *q + sizeof *c + q->pool.n_slabs * SLAB + (c->map ? c->map->room * 4 : 0) + places * sizeof(term *) + room * 21;
    for (const arena *a = c->arena; a; a = a->next) size += sizeof *a + 8 * a->room;
    for (size_t i = 0; i < places; i++)
        if (c->dictionary->at[i]) size += term_size(c->dictionary->at[i]);
    return size;
}
