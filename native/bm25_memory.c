/* Memory that readers may still hold, memory of one search, and memory that lives as long as the index. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* -std=c11 hides madvise */
#endif
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

/* Make room for n items of `size` bytes in *array. 0, or BM25_NO_MEMORY with the array as it was. */
int bm25_grow(void *array, size_t n, size_t size) {
    void *old, *grown;
    if (n > SIZE_MAX / size) return BM25_NO_MEMORY;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, n * size);
    if (!grown) return BM25_NO_MEMORY;
    memcpy(array, &grown, sizeof grown);
    return 0;
}

/* ---- scratch: some sets are kept with the index, one a search that runs ---- */

void *bm25_take(scratch *s, size_t which, size_t size_bytes) {
    if (size_bytes > s->at[which].room || !s->at[which].p) {
        const size_t room = size_bytes + size_bytes / 4 + 64;
        void *p = NULL; /* not realloc: what the last search left is of no use */
        if (room < size_bytes || bm25_grow(&p, room, 1)) return NULL;
        free(s->at[which].p);
        s->at[which].p = p, s->at[which].room = room;
    }
    return s->at[which].p;
}

scratch *bm25_borrow(bm25 *q) {
    scratch *made = NULL;
    for (int i = 0; i < SCRATCHES; i++) {
        void *const found = relaxed(&q->scratches[i]) ? exchange(&q->scratches[i], NULL) : NULL;
        if (found) return found;
    }
    if (bm25_grow(&made, 1, sizeof *made)) return NULL;
    memset(made, 0, sizeof *made);
    return made;
}

void bm25_give_back(bm25 *q, scratch *s) {
    for (int i = 0; s && i < SCRATCHES; i++)
        if (!relaxed(&q->scratches[i])) s = exchange(&q->scratches[i], s);
    bm25_free_scratch(s); /* what was in its place, if another was faster */
}

void bm25_free_scratch(scratch *s) {
    for (int i = 0; s && i < BUFFERS; i++) free(s->at[i].p);
    free(s);
}

/* ---- what no search can hold any more ---- */

#ifndef BM25_RETIRED
#define BM25_RETIRED 64 /* with so many, an add looks between its steps for what can be dropped; the tests set 1 */
#endif

/* A search counts itself in under the parity of its epoch. Once the epoch has moved on and that parity's count is 0,
 * nobody holds what was taken out before: later searches find its successor. */
unsigned bm25_enter(bm25 *q) {
    for (;;) {
        const uint64_t epoch = ordered_load(&q->epoch);
        count_up(&q->readers[epoch & 1][0]);
        if (ordered_load(&q->epoch) == epoch) return epoch & 1;
        count_down(&q->readers[epoch & 1][0]);
    }
}

void bm25_leave(bm25 *q, unsigned entered) { count_down(&q->readers[entered][0]); }

static void drop_all(limbo *l) {
    for (size_t i = 0; i < l->n; i++) l->at[i].drop(l->at[i].p);
    l->n = 0;
}

void bm25_reclaim(bm25 *q) {
    limbo swap;
    if (q->waiting.n && ordered_load(&q->readers[(q->epoch + 1) & 1][0])) return;
    drop_all(&q->waiting);
    if (!q->coming.n) return;
    swap = q->waiting, q->waiting = q->coming, q->coming = swap;
    ordered_store(&q->epoch, q->epoch + 1);
    if (!ordered_load(&q->readers[(q->epoch + 1) & 1][0])) drop_all(&q->waiting);
}

int bm25_make_limbo(limbo *l) {
    if (bm25_grow(&l->at, 16, sizeof *l->at)) return BM25_NO_MEMORY;
    l->room = 16;
    return 0;
}

void bm25_retire(bm25 *q, void *p, void (*drop)(void *)) {
    limbo *l = &q->coming;
    if (!p) return;
    if (l->n == l->room) {
        if (bm25_grow(&l->at, 2 * l->room + 16, sizeof *l->at)) { /* then wait for the searches that run */
            while (q->waiting.n || q->coming.n) bm25_reclaim(q);
        } else {
            l->room = 2 * l->room + 16;
        }
    }
    l->at[l->n].p = p, l->at[l->n++].drop = drop;
    if (l->n >= BM25_RETIRED) bm25_reclaim(q);
}

void bm25_let_go(bm25 *q, const core *c, void *p, void (*drop)(void *)) {
    if (c->private)
        drop(p);
    else
        bm25_retire(q, p, drop);
}

/* ---- for as long as the index lives ---- */

void *bm25_carve(core *c, size_t size_bytes) {
    const size_t n = (size_bytes + 7) / 8;
    arena *a = c->arena;
    if (!a || a->room - a->used < n) {
        const size_t doubled = a ? 2 * a->room : 512, room = doubled > 131072 ? 131072 : doubled;
        arena *made = NULL;
        if (bm25_grow(&made, sizeof *made + 8 * (room > n ? room : n), 1)) return NULL;
        made->next = a, made->used = 0, made->room = room > n ? room : n;
        c->arena = a = made;
    }
    a->used += n;
    return a->bytes + a->used - n;
}

/* ---- columns ---- */

void bm25_advise(void *p, size_t size_bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t start = ((uintptr_t)p + SLAB - 1) / SLAB * SLAB, end = ((uintptr_t)p + size_bytes) / SLAB * SLAB;
    if (start < end) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
#else
    (void)p, (void)size_bytes;
#endif
}

void bm25_populate(const void *p, size_t size_bytes) {
#if defined(__linux__) && defined(MADV_POPULATE_READ)
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)p + size_bytes;
    const uintptr_t start = ((uintptr_t)p + page - 1) / page * page;
    if (start < end) (void)madvise((void *)start, end - start, MADV_POPULATE_READ);
#else
    (void)p, (void)size_bytes;
#endif
}

size_t bm25_column_bytes(uint32_t room) {
    return (sizeof(column) + room / 16 * sizeof(uint64_t) + LINE - 1) / LINE * LINE;
}

static void *aligned(void *p, size_t to) { return (void *)(((uintptr_t)p + to - 1) / to * to); }

/* One more slab, all of its places free. */
static int grow_pool(pool *home) {
    const size_t size = bm25_column_bytes(CHUNK), first = (sizeof(slab) + LINE - 1) / LINE * LINE;
    void *held = NULL;
    slab *made;
    if (bm25_grow(&held, 2 * (size_t)SLAB, 1)) return BM25_NO_MEMORY; /* what is outside of the slab is never touched */
    bm25_advise(held, 2 * (size_t)SLAB);
    made = aligned(held, SLAB);
    made->held = held, made->next = home->slabs, home->slabs = made, home->n_slabs++;
    for (size_t at = first + (SLAB - first) / size * size; at > first; at -= size) {
        column *const k = (column *)(void *)((char *)made + at - size);
        k->next = home->free, home->free = k;
    }
    return 0;
}

column *bm25_new_column(pool *home, uint32_t room) {
    const size_t size = bm25_column_bytes(room);
    void *held = NULL;
    column *made;
    if (room == CHUNK) {
        if (!home->free && grow_pool(home)) return NULL;
        made = home->free, home->free = made->next;
    } else {
        if (bm25_grow(&held, size + LINE, 1)) return NULL;
        made = aligned(held, LINE);
    }
    memset((void *)made, 0, size);
    memset((void *)made->least, 255, sizeof made->least);
    made->held = held, made->home = home, made->room = room;
    return made;
}

void bm25_free_column(void *p) {
    column *const k = p;
    if (!k) return;
    if (k->held)
        free(k->held);
    else
        k->next = k->home->free, k->home->free = k;
}

void bm25_free_pool(pool *home) {
    while (home->slabs) {
        slab *const next = home->slabs->next;
        free(home->slabs->held);
        home->slabs = next;
    }
}

/* ---- what a search may look at: the writer leaves the last few states behind ---- */

void bm25_publish(core *c) {
    SHARED uint64_t *const state = c->snapshots[(c->version + 1) % SNAPSHOTS];
    release(state, c->now.n | (uint64_t)c->now.n_live << 32);
    release(state + 1, c->now.total_length);
    release(state + 2, (uint64_t)c->now.n_removed);
    release(&c->version, c->version + 1);
}

snapshot bm25_look(core *c) {
    for (;;) {
        const uint64_t version = acquire(&c->version);
        SHARED uint64_t *const state = c->snapshots[version % SNAPSHOTS];
        const uint64_t counts = acquire(state), total_length = acquire(state + 1), removed = acquire(state + 2);
        if (acquire(&c->version) - version < SNAPSHOTS - 1)
            return (snapshot){(uint32_t)counts, (uint32_t)(counts >> 32), (uint32_t)removed, total_length};
    }
}
