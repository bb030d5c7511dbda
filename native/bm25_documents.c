/* What is known of each document besides its terms, and which slot an id has. */
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

void bm25_drop_documents(void *p) {
    documents *d = p;
    if (!d) return;
    free(d->id), free(d->time), free(d->length), free((void *)d->live), free(d->chunks);
    free(d);
}

static documents *new_documents(size_t room) {
    documents *d = NULL;
    if (bm25_grow(&d, 1, sizeof *d)) return NULL;
    memset(d, 0, sizeof *d);
    d->room = room;
    if (bm25_grow(&d->id, room, sizeof *d->id) || bm25_grow(&d->time, room, sizeof *d->time) ||
        bm25_grow(&d->length, room, sizeof *d->length) || bm25_grow(&d->live, room, 1) ||
        bm25_grow(&d->chunks, room / CHUNK + 1, sizeof *d->chunks)) {
        bm25_drop_documents(d);
        return NULL;
    }
    bm25_advise(d->id, room * sizeof *d->id), bm25_advise(d->length, room * sizeof *d->length);
    memset((void *)d->chunks, 0, (room / CHUNK + 1) * sizeof *d->chunks);
    return d;
}

static void copy(void *to, const void *from, size_t size) {
    if (size) memcpy(to, from, size);
}

int bm25_room_for_documents(bm25 *q, core *c, size_t n_more) {
    documents *const old = c->docs, *d;
    const size_t n = c->now.n, all = n + n_more;
    if (old && all <= old->room) return 0;
    d = new_documents((all < 4096 ? 2 * all + BLOCK : all + all / 8) / BLOCK * BLOCK + BLOCK);
    if (!d) return BM25_NO_MEMORY;
    if (old) {
        copy(d->id, old->id, n * sizeof *d->id), copy(d->time, old->time, n * sizeof *d->time);
        copy(d->length, old->length, n * sizeof *d->length), copy((void *)d->live, (void *)old->live, n);
        copy(d->chunks, old->chunks, (n + CHUNK - 1) / CHUNK * sizeof *d->chunks);
    }
    release(&c->docs, d);
    if (old) bm25_let_go(q, c, old, bm25_drop_documents);
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

/* Returns whether an id was there twice: one that came back replaces its removed self. */
static int fill_map(map *m, const documents *d, size_t n) {
    int twice = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t place = place_of(m, d, d->id[i]);
        twice |= m->place[place] != 0;
        m->place[place] = (uint32_t)i + 1;
    }
    return twice;
}

static size_t room_for(size_t n, size_t room) {
    while (n + n / 2 + 1 > room) room *= 2;
    return room;
}

/* A map for the documents of a core that no search has seen. BM25_EXISTS when two of them have the same id. */
int bm25_map_documents(core *c) {
    if (!(c->map = new_map(room_for(c->now.n, 128)))) return BM25_NO_MEMORY;
    return fill_map(c->map, c->docs, c->now.n) ? BM25_EXISTS : 0;
}

/* Room for one more id. As long as ids come in ascending order no map is needed. */
int bm25_grow_map(bm25 *q, core *c, int64_t id) {
    map *const old = c->map, *grown;
    const size_t n = c->now.n;
    if (old ? n + n / 2 + 1 <= old->room : !n || c->docs->id[n - 1] < id) return 0;
    if (!(grown = new_map(room_for(n, old ? old->room : 128)))) return BM25_NO_MEMORY;
    (void)fill_map(grown, c->docs, n);
    release(&c->map, grown);
    bm25_let_go(q, c, old, free);
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

/* ---- one more ---- */

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
