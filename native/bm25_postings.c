/* One term's documents: a list of slots, and 4-bit columns for the chunks where many documents have it. */
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

const uint8_t bm25_tf_of_cell[CELLS] = {0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, MANY, MANY};

enum { SHORT = 4096 }; /* postings: the first cache holds them */

/* Six classes an octave. */
const uint32_t bm25_least_length[64] = {
    0,   8,   9,   11,  12,  13,   15,   16,   18,   21,   23,   26,   29,   32,   36,   41,
    46,  51,  58,  64,  72,  81,   91,   102,  115,  128,  144,  162,  182,  204,  229,  256,
    288, 323, 363, 407, 457, 512,  575,  646,  725,  813,  913,  1024, 1150, 1291, 1449, 1626,
    1825, 2048, 2299, 2581, 2897, 3251, 3650, 4096, 4598, 5161, 5793, 6502, 7299, 8192, 9196, 10322};

unsigned bm25_length_class(uint32_t length) {
    unsigned found = 0;
    for (unsigned step = 32; step; step /= 2)
        if (bm25_least_length[found + step] <= length) found += step;
    return found;
}

uint32_t bm25_first(const uint32_t *slots, uint32_t n, uint32_t slot) {
    const uint32_t *at = slots;
    while (n > 0) {
        const uint32_t half = n / 2;
        const int less = at[half] < slot;
        at = less ? at + half + 1 : at;
        n = less ? n - half - 1 : half;
    }
    return (uint32_t)(at - slots);
}

/* In a long list branches are guessed, so that memory is asked for before it is known what for; in a short one, which
 * the cache has, every search takes the same steps, and nothing is guessed wrong. */
uint32_t bm25_tf_of(const rare *r, uint32_t n, uint32_t slot) {
    const posting *at = r->at;
    const int is_short = n <= SHORT;
    if (!n) return 0;
    for (uint32_t half; !is_short && (half = n / 2) > 0;)
        if (at[half].slot <= slot)
            at += half, n -= half;
        else
            n = half;
    for (uint32_t half; (half = n / 2) > 0; n -= half) at += half & (0 - (uint32_t)(at[half].slot <= slot));
    return at->slot == slot ? at->tf : 0;
}

/* ---- columns ---- */

unsigned bm25_cell(const column *k, uint32_t local) {
    if (local >= k->room) return 0;
    return relaxed(&k->bits[local / BLOCK * 4 + word_in_block(local)]) >> shift_in_word(local) & 15;
}

/* One bit for each nibble that is not 0. */
static uint64_t taken(uint64_t word) {
    word |= word >> 1;
    return (word | word >> 2) & UINT64_C(0x1111111111111111);
}

uint32_t bm25_in_column(const column *k, uint32_t n) {
    const uint32_t most = n < k->room ? n : k->room, full = most / BLOCK;
    uint32_t found = 0;
    for (uint32_t i = 0; i < most / 1024; i++) found += relaxed(&k->sixteen[i]);
    for (uint32_t i = most / 1024 * 16; i < full; i++) found += relaxed(&k->count[i]);
    for (uint32_t local = full * BLOCK; local < most; local += 8) { /* the eight nibbles of half a word */
        const unsigned shift = shift_in_word(local) & 7, here = most - local < 8 ? most - local : 8;
        uint64_t word = relaxed(&k->bits[full * 4 + word_in_block(local)]) >> shift;
        if (here < 8) word &= (UINT64_C(1) << 8 * here) - 1;
        found += (uint32_t)((taken(word & UINT64_C(0x0F0F0F0F0F0F0F0F)) * UINT64_C(0x0101010101010101)) >> 56);
    }
    return found;
}

static unsigned cell_of(const chunk *c, uint32_t tf, uint32_t length) {
    unsigned rank = 0;
    for (int i = 0; i < CUTS; i++) rank += c->cut[i] <= length;
    switch (tf) {
    case 1: return 1 + rank / 2;
    case 2: return 7 + rank / 3;
    case 3: return 11 + rank / 4;
    default: return 14 + rank / 6;
    }
}

static void set_cell(column *k, const chunk *c, uint32_t slot, uint32_t tf, uint32_t length) {
    const uint32_t local = slot % CHUNK;
    const unsigned cell = cell_of(c, tf, length);
    SHARED uint64_t *const word = &k->bits[local / BLOCK * 4 + word_in_block(local)];
    if (length < relaxed(&k->least[cell])) settle(&k->least[cell], length);
    settle(word, relaxed(word) | (uint64_t)cell << shift_in_word(local));
    settle(&k->count[local / BLOCK], (uint8_t)(relaxed(&k->count[local / BLOCK]) + 1));
    settle(&k->sixteen[local / 1024], (uint16_t)(relaxed(&k->sixteen[local / 1024]) + 1));
}

static void drop(bm25 *q, const core *c, void *p) {
    if (!is_borrowed(c, p)) bm25_let_go(q, c, p, free);
}

void bm25_copy_column(column *to, const column *from) {
    memcpy((void *)to->least, (const void *)from->least, sizeof to->least);
    memcpy((void *)to->sixteen, (const void *)from->sixteen, sizeof to->sixteen);
    memcpy((void *)to->count, (const void *)from->count, sizeof to->count);
    memcpy((void *)to->bits, (const void *)from->bits, from->room / 2);
}

/* Room in a column for one more document. */
static int grow_column(bm25 *q, core *c, columns *all, uint32_t at, uint32_t local) {
    column *const old = all->at[at].column, *grown;
    uint32_t room = old->room;
    if (local < room) return 0;
    while (room <= local) room *= 2;
    grown = bm25_new_column(&q->pool, room);
    if (!grown) return BM25_NO_MEMORY;
    bm25_copy_column(grown, old);
    release(&all->at[at].column, grown);
    bm25_let_go(q, c, old, bm25_free_column);
    return 0;
}

int bm25_grow_columns(bm25 *q, core *c, term *t, uint32_t at) {
    columns *const old = t->columns;
    const uint32_t room = at < 2 ? 2 : at + at / 2 + 1;
    columns *grown = NULL;
    if (old && at < old->room) return 0;
    if (bm25_grow(&grown, sizeof *grown + room * sizeof grown->at[0], 1)) return BM25_NO_MEMORY;
    memset((void *)grown, 0, sizeof *grown + room * sizeof grown->at[0]);
    if (old) memcpy((void *)grown->at, (const void *)old->at, old->n * sizeof grown->at[0]);
    grown->n = old ? old->n : 0, grown->room = room;
    release(&t->columns, grown);
    if (old) drop(q, c, old);
    return 0;
}

int bm25_ascending(const void *x, const void *y) {
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Part the cells of a chunk so that the documents before this one would fill them evenly. */
static void choose_cuts(core *c, uint32_t slot) {
    const documents *d = c->docs;
    chunk *const here = &d->chunks[slot / CHUNK];
    uint32_t lengths[COLUMN_FROM], n = 0;
    if (here->has_cuts) return;
    for (uint32_t i = slot; i > 0 && n < COLUMN_FROM; i--) lengths[n++] = d->length[i - 1];
    qsort(lengths, n, sizeof *lengths, bm25_ascending);
    for (uint32_t i = 0; i < CUTS; i++) here->cut[i] = n ? lengths[(i + 1) * (n - 1) / (CUTS + 1)] + 1 : 0;
    here->has_cuts = 1;
}

/* A column for a chunk, the last of its term so far. NULL: no memory. */
static column *begin_column(bm25 *q, core *c, term *t, uint32_t slot, uint32_t room) {
    const uint32_t at = slot / CHUNK;
    column *made;
    if (bm25_grow_columns(q, c, t, at) || !(made = bm25_new_column(&q->pool, room))) return NULL;
    choose_cuts(c, slot);
    return made;
}

void bm25_show_column(columns *all, uint32_t at, column *made) {
    uint32_t before = 0;
    if (all->n) before = all->at[all->n - 1].before + bm25_in_column(all->at[all->n - 1].column, CHUNK);
    for (uint32_t i = all->n; i <= at; i++) all->at[i].before = before, all->at[i].column = NULL;
    release(&all->at[at].column, made);
    release(&all->n, at + 1);
}

/* Does this chunk's column exist, or should it, since the chunk before had a well-filled one? */
static int wants_column(const columns *all, const list *l, uint32_t at) {
    if (!all || all->n < at) return 0;
    if (all->n > at) return all->at[at].column != NULL;
    if (l && l->n && l->slot[l->n - 1] / CHUNK == at) return 0; /* memory lacked for one, and may not lack now */
    return bm25_in_column(all->at[at - 1].column, CHUNK) > CHUNK / COLUMN_SHARE;
}

/* ---- lists ---- */

static size_t list_size(uint32_t room) { return sizeof(list) + room * (sizeof(uint32_t) + 1); }

/* At least this room, and what malloc gives anyway: most of them round up to 8 more than a multiple of 16. */
static uint32_t filled_room(uint32_t room) {
    return (uint32_t)(((list_size(room) + 23) / 16 * 16 - 8 - sizeof(list)) / (sizeof(uint32_t) + 1));
}

/* The first `keep` of a list, in a new one. */
static list *copy_list(const list *old, uint32_t keep, uint32_t room) {
    list *made = NULL;
    if (bm25_grow(&made, list_size(room), 1)) return NULL;
    made->room = room, made->n = keep;
    if (keep) {
        memcpy(made->slot, old->slot, keep * sizeof *old->slot);
        memcpy(made->slot + room, codes_of(old), keep);
    }
    return made;
}

static int grow_list(bm25 *q, core *c, list *SHARED *at) {
    list *const old = *at;
    const uint32_t n = old ? old->n : 0;
    list *grown;
    if (old && n < old->room) return 0;
    grown = copy_list(old, n, filled_room(n < 4 ? n + 2 : n < 64 ? n + n / 2 : n < 1024 ? n + n / 8 : n + n / 16));
    if (!grown) return BM25_NO_MEMORY;
    release(at, grown);
    if (old) drop(q, c, old);
    return 0;
}

static int grow_rare(bm25 *q, core *c, term *t) {
    rare *const old = t->rare;
    const uint32_t n = old ? old->n : 0, room = n + n / 4 + 2;
    rare *grown = NULL;
    if (old && n < old->room) return 0;
    if (bm25_grow(&grown, sizeof *grown + room * sizeof grown->at[0], 1)) return BM25_NO_MEMORY;
    grown->room = room, grown->n = n, grown->most = old ? old->most : 0;
    if (old) memcpy(grown->at, old->at, n * sizeof *old->at);
    release(&t->rare, grown);
    if (old) drop(q, c, old);
    return 0;
}

/* Turn the list's documents of the newest chunk into a column when they have become many. If memory lacks they stay. */
static void maybe_convert(bm25 *q, core *c, term *t, uint32_t slot) {
    list *const l = t->list;
    const uint32_t at = slot / CHUNK, local = slot % CHUNK;
    uint32_t first, room = SMALLEST_COLUMN;
    list *shorter;
    column *made;
    if (l->n % 32 || local + 1 < COLUMN_FROM) return;
    first = bm25_first(l->slot, l->n, slot - local);
    if ((l->n - first) * COLUMN_SHARE <= local + 1) return;
    while (room <= local) room *= 2;
    if (at) room = CHUNK;
    if (!(made = begin_column(q, c, t, slot, room))) return;
    if (!(shorter = copy_list(l, first, first + first / 8 + 4))) {
        bm25_free_column(made);
        return;
    }
    for (uint32_t i = first; i < l->n; i++) {
        const uint32_t tf = (codes_of(l)[i] >> 6) + 1u;
        set_cell(made, &c->docs->chunks[at], l->slot[i], tf, c->docs->length[l->slot[i]]);
    }
    bm25_show_column(t->columns, at, made); /* first the column: a search reads the list first */
    release(&t->list, shorter);
    drop(q, c, l);
}

/* ---- adding ---- */

/* Room for a posting of the next document. BM25_NO_MEMORY. */
int bm25_reserve(bm25 *q, core *c, term *t, uint32_t slot, uint32_t tf) {
    const uint32_t at = slot / CHUNK, local = slot % CHUNK;
    if (tf >= MANY && grow_rare(q, c, t)) return BM25_NO_MEMORY;
    if (wants_column(t->columns, t->list, at)) {
        if (t->columns->n > at) return grow_column(q, c, t->columns, at, local);
        column *const made = begin_column(q, c, t, slot, CHUNK);
        if (made) {
            bm25_show_column(t->columns, at, made);
            return 0;
        } /* else the list will do */
    }
    return grow_list(q, c, &t->list);
}

/* Add a posting for which room was reserved, of a document whose length is known. */
void bm25_commit(bm25 *q, core *c, term *t, uint32_t slot, uint32_t tf, unsigned length_class) {
    const uint32_t at = slot / CHUNK;
    columns *const all = t->columns;
    if (tf >= MANY) {
        rare *const r = t->rare;
        if (tf > r->most) settle(&r->most, tf);
        r->at[r->n].slot = slot, r->at[r->n].tf = tf;
        release(&r->n, r->n + 1);
    }
    if (all && all->n > at && all->at[at].column) {
        set_cell(all->at[at].column, &c->docs->chunks[at], slot, tf, c->docs->length[slot]);
    } else {
        list *const l = t->list;
        l->slot[l->n] = slot;
        ((uint8_t *)(l->slot + l->room))[l->n] = (uint8_t)((tf < MANY ? tf - 1 : MANY - 1) << 6 | length_class);
        release(&l->n, l->n + 1);
        maybe_convert(q, c, t, slot);
    }
    settle(&t->posted, (uint64_t)slot << 32 | ((uint32_t)t->posted + 1));
}

void bm25_free_term(const core *c, term *t) {
    for (uint32_t i = 0; t->columns && i < t->columns->n; i++) {
        column *const k = (void *)t->columns->at[i].column;
        if (!is_borrowed(c, k)) bm25_free_column(k);
    }
    if (!is_borrowed(c, t->list)) free(t->list);
    if (!is_borrowed(c, t->rare)) free(t->rare);
    free(t->columns), free(t->weights);
}
