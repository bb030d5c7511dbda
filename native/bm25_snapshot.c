/* An index as one run of bytes, and back. The bytes are an image: an index that is loaded reads its postings where they
 * lie, mostly in a mapped file, and makes anew only what is small: the documents, the terms and their dictionary. What
 * grows is copied first, so the image is never written to.
 *
 * Whatever the bytes are, bm25_load reads none outside of them: all lengths first; then every number by which memory is
 * looked up, beside the checksum, while the bytes are in the cache; into an index of its own, which takes the place of
 * the empty one only when all was well. */
#include "bm25_fill.h"
#include "bm25_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 2, ORDER = 0x01020304, CUT_BYTES = 4 * (CUTS + 1) };

/* After the header, each from a multiple of LINE bytes: the documents' id[], time[], length[]; how the cells of each
 * chunk part (chunk's cut[] and has_cuts); a row a term; the terms' bytes, each padded to eight; for every column of a
 * term the number of its chunk, term after term; and, in the same order, the columns, the lists and the lists of large
 * counts as they lie in memory, lists from a multiple of eight bytes, columns from a multiple of LINE. */
typedef struct {
    char magic[8];
    uint32_t version, order, chunk, column_bytes; /* of which machine and build */
    uint64_t n_bytes, n_documents, n_terms, n_text, n_columns, columns_bytes, lists_bytes, rare_bytes;
    uint64_t checksum; /* of all the rest, with zero in this place */
    uint64_t unused[4];
} header;

typedef struct {
    uint32_t n_bytes, n_list, n_rare, n_columns;
} row;

enum { S_IDS, S_TIMES, S_LENGTHS, S_CHUNKS, S_ROWS, S_TEXT, S_PLACES, S_COLUMNS, S_LISTS, S_RARE, SECTIONS };
typedef struct {
    uint64_t at[SECTIONS], n_bytes;
} layout;

static uint64_t rounded(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static layout layout_of(const header *h) {
    const uint64_t n_chunks = (h->n_documents + CHUNK - 1) / CHUNK;
    const uint64_t sizes[SECTIONS] = {8 * h->n_documents,      8 * h->n_documents, 4 * h->n_documents, CUT_BYTES * n_chunks,
                                      sizeof(row) * h->n_terms, h->n_text,          4 * h->n_columns,   h->columns_bytes,
                                      h->lists_bytes,           h->rare_bytes};
    layout l = {{0}, sizeof(header)};
    for (int i = 0; i < SECTIONS; i++) l.at[i] = l.n_bytes, l.n_bytes += rounded(sizes[i], LINE);
    return l;
}

static uint64_t list_bytes(uint32_t n) { return n ? rounded(sizeof(list) + 5 * (uint64_t)n, 8) : 0; }
static uint64_t rare_bytes(uint32_t n) { return n ? rounded(sizeof(rare) + sizeof(posting) * (uint64_t)n, 8) : 0; }

/* ---- the checksum, as far as it has come: in eight lanes, so that it goes as fast as memory does ---- */

enum { SUM_LANES = 8, SUM_AHEAD = 8192 /* measured: what the processor fetches by itself ends with a page */ };

typedef struct {
    const uint8_t *from;
    uint64_t at, lanes[SUM_LANES];
} summing;

static uint64_t word_of(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static void sum_line(uint64_t *lanes, const uint8_t *p) {
    for (int i = 0; i < SUM_LANES; i++) {
        const uint64_t mixed = (lanes[i] ^ word_of(p + 8 * i)) * UINT64_C(0x9E3779B97F4A7C15);
        lanes[i] = mixed << 31 | mixed >> 33;
    }
}

/* Up to `end`, a multiple of LINE. */
static void sum_to(summing *s, uint64_t end) {
    for (; s->at < end; s->at += LINE) {
        prefetch(s->from + s->at + SUM_AHEAD);
        sum_line(s->lanes, s->from + s->at);
    }
}

static summing begin_sum(const header *h, const uint8_t *from) {
    header without = *h;
    summing s = {from, 0, {1, 2, 3, 4, 5, 6, 7, 8}};
    without.checksum = 0;
    for (; s.at < sizeof without; s.at += LINE) sum_line(s.lanes, (const uint8_t *)&without + s.at);
    return s;
}

static uint64_t end_sum(summing *s, uint64_t n_bytes) {
    uint64_t sum = n_bytes;
    sum_to(s, n_bytes);
    for (int i = 0; i < SUM_LANES; i++)
        sum = (sum ^ s->lanes[i]) * UINT64_C(0xD6E8FEB86659FD93), sum ^= sum >> 32;
    return sum;
}

/* ---- out: of an index without removed documents ---- */

static int has_weights(const core *c, const term *t) {
    const weights *w = t->weights;
    for (uint32_t i = 0; w && i < w->n; i++)
        if (c->docs->live[w->at[i].slot]) return 1;
    return 0;
}

static row row_of(const term *t) {
    row r = {t->n_bytes, t->list ? t->list->n : 0, t->rare ? t->rare->n : 0, 0};
    for (uint32_t i = 0; t->columns && i < t->columns->n; i++) r.n_columns += t->columns->at[i].column != NULL;
    return r;
}

static int measure(const core *c, header *h) {
    memcpy(h->magic, "LNTRBM25", 8);
    h->version = VERSION, h->order = ORDER, h->chunk = CHUNK, h->column_bytes = sizeof(column);
    h->n_documents = c->now.n;
    for (uint64_t i = 0; i <= c->dictionary->mask; i++) {
        const term *t = c->dictionary->at[i];
        const row r = t ? row_of(t) : (row){0, 0, 0, 0};
        if (t && has_weights(c, t)) return BM25_TERMS;
        if (!r.n_list && !r.n_columns) continue;
        h->n_terms++, h->n_text += rounded(r.n_bytes, 8), h->n_columns += r.n_columns;
        h->lists_bytes += list_bytes(r.n_list), h->rare_bytes += rare_bytes(r.n_rare);
        for (uint32_t j = 0; t->columns && j < t->columns->n; j++)
            if (t->columns->at[j].column) h->columns_bytes += bm25_column_bytes(t->columns->at[j].column->room);
    }
    h->n_bytes = layout_of(h).n_bytes;
    return 0;
}

static void write_documents(const core *c, const layout *l, uint8_t *to) {
    const documents *d = c->docs;
    const size_t n = c->now.n, n_chunks = (n + CHUNK - 1) / CHUNK;
    if (!n) return;
    memcpy(to + l->at[S_IDS], d->id, 8 * n), memcpy(to + l->at[S_TIMES], d->time, 8 * n);
    memcpy(to + l->at[S_LENGTHS], d->length, 4 * n);
    for (size_t i = 0; i < n_chunks; i++) {
        uint8_t *const at = to + l->at[S_CHUNKS] + i * CUT_BYTES;
        memcpy(at, d->chunks[i].cut, sizeof d->chunks[i].cut);
        memcpy(at + sizeof d->chunks[i].cut, &d->chunks[i].has_cuts, 4);
    }
}

static void write_columns(const columns *all, uint8_t **place, uint8_t **to) {
    for (uint32_t i = 0; all && i < all->n; i++) {
        const column *const k = all->at[i].column;
        column *const made = (column *)(void *)*to;
        if (!k) continue;
        memcpy((void *)made, (const void *)k, bm25_column_bytes(k->room));
        made->held = NULL, made->home = NULL, made->next = NULL;
        memcpy(*place, &i, 4);
        *place += 4, *to += bm25_column_bytes(k->room);
    }
}

static void write_list(const list *from, uint32_t n, uint8_t *to) {
    const uint32_t head[2] = {n, n};
    if (!n) return;
    memcpy(to, head, 8), memcpy(to + 8, from->slot, 4 * (size_t)n);
    memcpy(to + 8 + 4 * (size_t)n, codes_of(from), n);
}

static void write_rare(const rare *from, uint32_t n, uint8_t *to) {
    const uint32_t head[3] = {n, n, n ? from->most : 0};
    if (!n) return;
    memcpy(to, head, sizeof head), memcpy(to + offsetof(rare, at), from->at, n * sizeof *from->at);
}

static void write_terms(const core *c, const layout *l, uint8_t *to) {
    uint8_t *at[SECTIONS];
    for (int i = 0; i < SECTIONS; i++) at[i] = to + l->at[i];
    for (uint64_t i = 0; i <= c->dictionary->mask; i++) {
        const term *t = c->dictionary->at[i];
        const row r = t ? row_of(t) : (row){0, 0, 0, 0};
        if (!r.n_list && !r.n_columns) continue;
        memcpy(at[S_ROWS], &r, sizeof r), memcpy(at[S_TEXT], t->bytes, t->n_bytes);
        write_columns(t->columns, &at[S_PLACES], &at[S_COLUMNS]);
        write_list(t->list, r.n_list, at[S_LISTS]), write_rare(t->rare, r.n_rare, at[S_RARE]);
        at[S_ROWS] += sizeof r, at[S_TEXT] += rounded(r.n_bytes, 8);
        at[S_LISTS] += list_bytes(r.n_list), at[S_RARE] += rare_bytes(r.n_rare);
    }
}

int64_t bm25_dump(bm25 *q, uint8_t **bytes) {
    header h = {.version = 0};
    uint8_t *to = NULL;
    const core *c;
    summing s;
    layout l;
    int code;
    if (q->core->now.n_live < q->core->now.n && bm25_sweep(q)) return BM25_NO_MEMORY;
    c = q->core;
    if ((code = measure(c, &h)) != 0) return code;
    if (h.n_bytes > SIZE_MAX || bm25_grow(&to, (size_t)h.n_bytes, 1)) return BM25_NO_MEMORY;
    memset(to, 0, (size_t)h.n_bytes);
    l = layout_of(&h);
    write_documents(c, &l, to);
    write_terms(c, &l, to);
    s = begin_sum(&h, to), h.checksum = end_sum(&s, h.n_bytes);
    memcpy(to, &h, sizeof h);
    *bytes = to;
    return (int64_t)h.n_bytes;
}

void bm25_free_snapshot(uint8_t *bytes) { free(bytes); }

/* ---- in ---- */

typedef struct {
    const uint8_t *from;
    header h;
    layout l;
    uint64_t at[SECTIONS]; /* how far each has been read */
    summing sum;
} source;

/* The next n bytes of a section, or NULL when it has not so many. */
static const void *next_of(source *s, int section, uint64_t n) {
    const uint64_t end = section + 1 < SECTIONS ? s->l.at[section + 1] : s->l.n_bytes, at = s->at[section];
    if (end - at < n) return NULL;
    s->at[section] = at + n;
    return s->from + at;
}

static int is_whole(source *s, size_t n_bytes) {
    const uint64_t most = UINT64_C(1) << 40;
    const header *const h = &s->h;
    if (n_bytes < sizeof *h) return 0;
    memcpy(&s->h, s->from, sizeof s->h);
    if (memcmp(h->magic, "LNTRBM25", 8) || h->version != VERSION || h->order != ORDER) return 0;
    if (h->chunk != CHUNK || h->column_bytes != sizeof(column)) return 0;
    if (h->n_documents >= UINT32_MAX - 1 || h->n_terms > UINT32_MAX || h->n_text > most || h->n_columns > most) return 0;
    if (h->columns_bytes > most || h->lists_bytes > most || h->rare_bytes > most) return 0;
    s->l = layout_of(h);
    memcpy(s->at, s->l.at, sizeof s->at);
    s->sum = begin_sum(h, s->from);
    return s->l.n_bytes == n_bytes && h->n_bytes == n_bytes;
}

static int map_ids(core *c) {
    const int code = bm25_map_documents(c);
    return code == BM25_EXISTS ? BM25_DAMAGED : code;
}

/* Copied with room to grow: the first document that is added would have to copy them all. */
static int read_documents(bm25 *q, core *c, source *s) {
    const size_t n = (size_t)s->h.n_documents;
    int ascending = 1, wrong = 0;
    documents *d;
    if (!n) return 0;
    if (bm25_room_for_documents(q, c, n)) return BM25_NO_MEMORY;
    d = c->docs;
    memcpy(d->id, s->from + s->l.at[S_IDS], 8 * n), memcpy(d->time, s->from + s->l.at[S_TIMES], 8 * n);
    memcpy(d->length, s->from + s->l.at[S_LENGTHS], 4 * n), memset((void *)d->live, 1, n);
    for (size_t i = 0; i < n; i++) wrong |= !isfinite(d->time[i]), c->now.total_length += d->length[i];
    for (size_t i = 0; i < n; i++) wrong |= d->length[i] > INT32_MAX;
    for (size_t i = 1; i < n; i++) ascending &= d->id[i - 1] < d->id[i];
    for (size_t first = 0; first < n; first += CHUNK) {
        const uint8_t *const cuts = s->from + s->l.at[S_CHUNKS] + first / CHUNK * CUT_BYTES;
        const size_t end = n - first < CHUNK ? n : first + CHUNK;
        chunk *const here = d->chunks + first / CHUNK;
        double newest = d->time[first];
        for (size_t i = first; i < end; i++) newest = d->time[i] > newest ? d->time[i] : newest;
        memcpy((void *)&here->newest, &newest, sizeof newest);
        memcpy(here->cut, cuts, sizeof here->cut), memcpy(&here->has_cuts, cuts + sizeof here->cut, 4);
    }
    c->now.n = c->now.n_live = (uint32_t)n;
    return wrong ? BM25_DAMAGED : ascending ? 0 : map_ids(c);
}

static int is_list(const list *l, uint32_t n, uint64_t n_documents) {
    uint32_t wrong = l->room != n || l->n != n;
    for (uint32_t i = 1; i < n; i++) wrong |= l->slot[i - 1] >= l->slot[i];
    return !wrong && l->slot[n - 1] < n_documents;
}

static int is_rare(const rare *r, uint32_t n, uint64_t n_documents) {
    uint32_t wrong = r->room != n || r->n != n, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = r->at[i].tf > most ? r->at[i].tf : most;
        wrong |= r->at[i].tf < MANY || r->at[i].tf > INT32_MAX || (i && r->at[i - 1].slot >= r->at[i].slot);
    }
    return !wrong && most == r->most && r->at[n - 1].slot < n_documents;
}

static int is_column(const column *k, uint32_t at, uint64_t n_documents) {
    uint32_t wrong = k->held || k->home || k->next || k->room < SMALLEST_COLUMN || k->room > CHUNK || (at && k->room != CHUNK);
    for (int i = 0; i < CELLS; i++) wrong |= k->least[i] > INT32_MAX && k->least[i] != UINT32_MAX;
    return !wrong && !(k->room & (k->room - 1)) && (uint64_t)at * CHUNK < n_documents;
}

/* Of the chunk that is not full a copy, for the documents to come. */
static column *place_column(bm25 *q, const core *c, const column *k, uint32_t at) {
    column *made;
    if ((at + 1) * (uint64_t)CHUNK <= c->now.n) return (column *)(uintptr_t)k;
    if ((made = bm25_new_column(&q->pool, k->room)) != NULL) bm25_copy_column(made, k);
    return made;
}

static int read_columns(bm25 *q, core *c, source *s, term *t, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *const place = next_of(s, S_PLACES, 4);
        const column *const k = next_of(s, S_COLUMNS, sizeof *k);
        column *made;
        uint32_t found = 0;
        if (!place || !k || !is_column(k, *place, s->h.n_documents) || !next_of(s, S_COLUMNS, bm25_column_bytes(k->room) - sizeof *k))
            return BM25_DAMAGED;
        if (t->columns && *place < t->columns->n) return BM25_DAMAGED;
        for (int j = 0; j < CHUNK / BLOCK; j++) found += k->count[j];
        if (bm25_grow_columns(q, c, t, *place) || !(made = place_column(q, c, k, *place))) return BM25_NO_MEMORY;
        bm25_show_column(t->columns, *place, made);
        t->posted += found;
    }
    return 0;
}

/* No list has documents of a chunk for which its term has a column. */
static int are_apart(const columns *all, const list *l, uint32_t n) {
    for (uint32_t i = 0; i < all->n; i++) {
        const uint32_t at = all->at[i].column ? bm25_first(l->slot, n, i * CHUNK) : n;
        if (at < n && l->slot[at] / CHUNK == i) return 0;
    }
    return 1;
}

static int read_term(bm25 *q, core *c, source *s) {
    const row *const r = next_of(s, S_ROWS, sizeof *r);
    const char *const text = r ? next_of(s, S_TEXT, rounded(r->n_bytes, 8)) : NULL;
    term *t;
    int code;
    if (!text || (!r->n_list && !r->n_columns)) return BM25_DAMAGED;
    if ((code = bm25_make_term(c, r->n_bytes, text, &t)) != 0) return code == BM25_NO_MEMORY ? code : BM25_DAMAGED;
    if ((code = read_columns(q, c, s, t, r->n_columns)) != 0) return code;
    if (r->n_list) {
        const list *const l = next_of(s, S_LISTS, list_bytes(r->n_list));
        if (l) sum_to(&s->sum, (s->at[S_LISTS] - 1) / LINE * LINE);
        if (!l || !is_list(l, r->n_list, s->h.n_documents)) return BM25_DAMAGED;
        if (t->columns && !are_apart(t->columns, l, r->n_list)) return BM25_DAMAGED;
        t->list = (list *)(uintptr_t)l, t->posted += r->n_list;
    }
    if (r->n_rare) {
        const rare *const many = next_of(s, S_RARE, rare_bytes(r->n_rare));
        if (!many || !is_rare(many, r->n_rare, s->h.n_documents)) return BM25_DAMAGED;
        t->rare = (rare *)(uintptr_t)many;
    }
    if (t->posted > c->now.n) return BM25_DAMAGED;
    t->posted |= (uint64_t)(c->now.n - 1) << 32;
    return 0;
}

static int fill(bm25 *q, core *c, source *s) {
    int code = bm25_room_for_terms(c, (size_t)s->h.n_terms);
    if (code) return code;
    sum_to(&s->sum, s->l.at[S_ROWS]);
    if ((code = read_documents(q, c, s)) != 0) return code;
    sum_to(&s->sum, s->l.at[S_LISTS]);
    for (uint64_t i = 0; !code && i < s->h.n_terms; i++) code = read_term(q, c, s);
    if (code) return code;
    for (int i = S_ROWS; i < SECTIONS; i++) /* nothing is left but what fills the last line */
        if (next_of(s, i, LINE)) return BM25_DAMAGED;
    return end_sum(&s->sum, s->h.n_bytes) == s->h.checksum ? 0 : BM25_DAMAGED;
}

/* A copy of the image, from a multiple of LINE bytes; NULL: no memory. */
static const uint8_t *own_image(core *c, size_t n_bytes, const uint8_t *bytes) {
    uint8_t *to;
    if (n_bytes > SIZE_MAX - LINE || bm25_grow(&c->image_held, n_bytes + LINE, 1)) return NULL;
    to = (uint8_t *)c->image_held + (LINE - (uintptr_t)c->image_held % LINE);
    memcpy(to, bytes, n_bytes);
    return to;
}

int bm25_load(bm25 *q, size_t n_bytes, const uint8_t *bytes, int stays) {
    source s = {.from = bytes};
    core *fresh;
    int code;
    if (q->core->now.n) return BM25_EXISTS;
    if (!is_whole(&s, n_bytes)) return BM25_DAMAGED;
    if (!(fresh = bm25_new_core())) return BM25_NO_MEMORY;
    if (stays) bm25_populate(bytes, n_bytes); /* one by one they take three times as long */
    if (!stays || (uintptr_t)bytes % LINE) s.from = s.sum.from = own_image(fresh, n_bytes, bytes);
    fresh->image = s.from, fresh->n_image = n_bytes;
    if ((code = s.from ? fill(q, fresh, &s) : BM25_NO_MEMORY) != 0) {
        bm25_free_core(fresh);
        return code;
    }
    bm25_publish(fresh);
    bm25_replace_core(q, fresh);
    return 0;
}
