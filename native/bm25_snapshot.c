/* An index as one run of bytes, and back. Whatever the bytes are, bm25_load reads none outside of them and no value
 * before it has looked at it: all lengths first, then the checksum, then each posting as it is added to an index of its
 * own, which takes the place of the empty one only when all was well. */
#include "bm25_fill.h"
#include "bm25_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, ORDER = 0x01020304, LARGE = 255 /* a count of this or more stands among the large ones */ };

/* After the header, each from a multiple of eight bytes: the documents' id[], time[], length[]; the terms' n_bytes[],
 * df[]; the postings' slot[], tf[], term after term, slots ascending; large[]; the bytes of the terms. */
typedef struct {
    char magic[8];
    uint32_t version, order;
    uint64_t n_bytes, n_documents, n_terms, n_postings, n_large, n_text;
    uint64_t checksum; /* of all the rest, with zero in this place */
} header;

enum { SECTIONS = 9 };
typedef struct {
    uint64_t at[SECTIONS], n_bytes;
} layout;

static layout layout_of(const header *h) {
    const uint64_t sizes[SECTIONS] = {8 * h->n_documents, 8 * h->n_documents, 4 * h->n_documents, 4 * h->n_terms, 4 * h->n_terms,
                                      4 * h->n_postings,  h->n_postings,      4 * h->n_large,     h->n_text};
    layout l = {{0}, sizeof(header)};
    for (int i = 0; i < SECTIONS; i++) l.at[i] = l.n_bytes, l.n_bytes += (sizes[i] + 7) / 8 * 8;
    return l;
}

/* Four lanes, so that it goes as fast as memory does. n_bytes is a multiple of eight. */
static uint64_t checksum(const uint8_t *p, uint64_t n_bytes) {
    uint64_t lanes[4] = {1, 2, 3, 4}, word, sum = n_bytes;
    for (uint64_t i = 0; i < n_bytes; i += 8) {
        uint64_t *const lane = lanes + (i >> 3 & 3);
        memcpy(&word, p + i, 8);
        if (i == offsetof(header, checksum)) word = 0;
        *lane = (*lane ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        *lane ^= *lane >> 32;
    }
    for (int i = 0; i < 4; i++) sum = (sum ^ lanes[i]) * UINT64_C(0xD6E8FEB86659FD93), sum ^= sum >> 32;
    return sum;
}

/* ---- out ---- */

typedef struct {
    uint64_t n, n_large;
    const uint32_t *renamed;
    uint32_t *slot, *large;
    uint8_t *tf;
} postings;

static int count_posting(void *context, uint32_t slot, uint32_t tf) {
    postings *p = context;
    (void)slot;
    p->n++, p->n_large += tf >= LARGE;
    return 0;
}

static int write_posting(void *context, uint32_t slot, uint32_t tf) {
    postings *p = context;
    p->slot[p->n] = p->renamed[slot];
    p->tf[p->n++] = (uint8_t)(tf < LARGE ? tf : LARGE);
    if (tf >= LARGE) p->large[p->n_large++] = tf;
    return 0;
}

static int has_weights(const core *c, const term *t) {
    const weights *w = t->weights;
    for (uint32_t i = 0; w && i < w->n; i++)
        if (c->docs->live[w->at[i].slot]) return 1;
    return 0;
}

static int measure(const core *c, header *h) {
    memcpy(h->magic, "LNTRBM25", 8);
    h->version = VERSION, h->order = ORDER, h->n_documents = c->now.n_live;
    for (uint64_t i = 0; i <= c->dictionary->mask; i++) {
        const term *t = c->dictionary->at[i];
        postings p = {0};
        if (!t) continue;
        if (has_weights(c, t)) return BM25_TERMS;
        bm25_each_posting(c, t, count_posting, &p);
        if (!p.n) continue;
        h->n_terms++, h->n_postings += p.n, h->n_large += p.n_large, h->n_text += t->n_bytes;
    }
    h->n_bytes = layout_of(h).n_bytes;
    return 0;
}

static void write_documents(const core *c, const layout *l, uint8_t *to, uint32_t *renamed) {
    const documents *d = c->docs;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->now.n; i++) {
        renamed[i] = n;
        if (!d->live[i]) continue;
        memcpy(to + l->at[0] + 8 * (size_t)n, &d->id[i], 8);
        memcpy(to + l->at[1] + 8 * (size_t)n, &d->time[i], 8);
        memcpy(to + l->at[2] + 4 * (size_t)n++, &d->length[i], 4);
    }
}

static void write_terms(const core *c, const layout *l, uint8_t *to, const uint32_t *renamed) {
    uint32_t *const n_bytes = (void *)(to + l->at[3]), *const df = (void *)(to + l->at[4]);
    uint8_t *text = to + l->at[8];
    postings p = {0, 0, renamed, (void *)(to + l->at[5]), (void *)(to + l->at[7]), to + l->at[6]};
    size_t n = 0;
    for (uint64_t i = 0; i <= c->dictionary->mask; i++) {
        const term *t = c->dictionary->at[i];
        const uint64_t before = p.n;
        if (t) bm25_each_posting(c, t, write_posting, &p);
        if (p.n == before) continue;
        n_bytes[n] = t->n_bytes, df[n++] = (uint32_t)(p.n - before);
        memcpy(text, t->bytes, t->n_bytes);
        text += t->n_bytes;
    }
}

int64_t bm25_dump(bm25 *q, uint8_t **bytes) {
    const core *const c = q->core;
    header h = {{0}, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t *const renamed = bm25_take(&q->own, 3, (size_t)c->now.n * sizeof *renamed + 4);
    uint8_t *to = NULL;
    layout l;
    int code;
    if (!renamed) return BM25_NO_MEMORY;
    if ((code = measure(c, &h)) != 0) return code;
    if (h.n_bytes > SIZE_MAX || bm25_grow(&to, (size_t)h.n_bytes, 1)) return BM25_NO_MEMORY;
    memset(to, 0, (size_t)h.n_bytes);
    l = layout_of(&h);
    write_documents(c, &l, to, renamed);
    write_terms(c, &l, to, renamed);
    memcpy(to, &h, sizeof h);
    h.checksum = checksum(to, h.n_bytes);
    memcpy(to, &h, sizeof h);
    *bytes = to;
    return (int64_t)h.n_bytes;
}

void bm25_free_snapshot(uint8_t *bytes) { free(bytes); }

/* ---- in ---- */

typedef struct {
    header h;
    layout l;
    const uint8_t *from;
} source;

static uint32_t u32(const source *s, int section, uint64_t i) {
    uint32_t value;
    memcpy(&value, s->from + s->l.at[section] + 4 * i, 4);
    return value;
}

static int is_whole(source *s, size_t n_bytes) {
    const uint64_t most = UINT64_C(1) << 40;
    if (n_bytes < sizeof s->h) return 0;
    memcpy(&s->h, s->from, sizeof s->h);
    if (memcmp(s->h.magic, "LNTRBM25", 8) || s->h.version != VERSION || s->h.order != ORDER) return 0;
    if (s->h.n_documents >= UINT32_MAX - 1 || s->h.n_terms > UINT32_MAX || s->h.n_postings > most) return 0;
    if (s->h.n_large > most || s->h.n_text > most) return 0;
    s->l = layout_of(&s->h);
    return s->l.n_bytes == n_bytes && s->h.n_bytes == n_bytes && checksum(s->from, n_bytes) == s->h.checksum;
}

static int read_documents(bm25 *q, core *c, const source *s) {
    for (uint64_t i = 0; i < s->h.n_documents; i++) {
        const uint32_t length = u32(s, 2, i);
        int64_t id;
        double time;
        memcpy(&id, s->from + s->l.at[0] + 8 * i, 8);
        memcpy(&time, s->from + s->l.at[1] + 8 * i, 8);
        if (!isfinite(time) || length > INT32_MAX || bm25_slot_of(c, id) != SIZE_MAX) return BM25_DAMAGED;
        if (bm25_grow_documents(q, c) || bm25_grow_map(q, c, id)) return BM25_NO_MEMORY;
        bm25_put_document(c, id, time, length);
        bm25_show_document(c, id, length);
    }
    return 0;
}

typedef struct {
    uint64_t posting, large, text;
} reading;

/* One term with its postings. left: how many terms of each document are still to come. */
static int read_term(bm25 *q, core *c, const source *s, uint64_t i, reading *at, uint32_t *left) {
    const uint32_t n_bytes = u32(s, 3, i), df = u32(s, 4, i);
    const char *const text = (const char *)s->from + s->l.at[8] + at->text;
    const size_t n_terms = c->n_terms;
    token *t;
    term *to;
    int64_t last = -1;
    if (n_bytes > s->h.n_text - at->text || !df || df > s->h.n_postings - at->posting) return BM25_DAMAGED;
    switch (bm25_split(&q->own, 1, n_bytes, text, &t)) {
    case 0: break;
    case BM25_NO_MEMORY: return BM25_NO_MEMORY;
    default: return BM25_DAMAGED;
    }
    if (!(to = bm25_find_or_make(q, c, t))) return BM25_NO_MEMORY;
    if (c->n_terms == n_terms) return BM25_DAMAGED; /* a second time */
    for (uint32_t j = 0; j < df; j++, at->posting++) {
        const uint32_t slot = u32(s, 5, at->posting);
        uint32_t tf = s->from[s->l.at[6] + at->posting];
        if (tf == LARGE) tf = at->large < s->h.n_large ? u32(s, 7, at->large++) : 0;
        if (!tf || slot <= last || slot >= s->h.n_documents || tf > left[slot]) return BM25_DAMAGED;
        if (bm25_put_posting(q, c, to, slot, tf)) return BM25_NO_MEMORY;
        left[slot] -= tf, last = slot;
    }
    at->text += n_bytes;
    return 0;
}

static int fill(bm25 *q, core *c, const source *s) {
    uint32_t *const left = bm25_take(&q->own, 3, (size_t)s->h.n_documents * sizeof *left + 4);
    reading at = {0, 0, 0};
    int code = left ? read_documents(q, c, s) : BM25_NO_MEMORY;
    for (uint64_t i = 0; !code && i < s->h.n_documents; i++) left[i] = c->docs->length[i];
    for (uint64_t i = 0; !code && i < s->h.n_terms; i++) code = read_term(q, c, s, i, &at, left);
    if (code) return code;
    for (uint64_t i = 0; i < s->h.n_documents; i++)
        if (left[i]) return BM25_DAMAGED;
    return at.posting == s->h.n_postings && at.large == s->h.n_large && at.text == s->h.n_text ? 0 : BM25_DAMAGED;
}

int bm25_load(bm25 *q, size_t n_bytes, const uint8_t *bytes) {
    source s = {.from = bytes};
    core *const old = q->core;
    core *fresh;
    int code;
    if (old->now.n) return BM25_EXISTS;
    if (!is_whole(&s, n_bytes)) return BM25_DAMAGED;
    if (!(fresh = bm25_new_core())) return BM25_NO_MEMORY;
    if ((code = fill(q, fresh, &s)) != 0) {
        bm25_free_core(fresh);
        return code;
    }
    fresh->private = 0;
    ordered_store(&q->core, fresh);
    bm25_retire(q, old, bm25_free_core);
    bm25_reclaim(q);
    return 0;
}
