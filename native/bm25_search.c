/* A query from its text to its hits: what it may look at, which way it goes, and the scores of all. */
#include "bm25_fill.h"
#include "bm25_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Measured: with fewer documents than FEW + FOR_EACH * k it is faster to score all. */
enum { FEW = 1000, FOR_EACH = 30, MOST_TERMS = 128 };
enum { FIRST_LINES = 12 }; /* of a column: the kernels see to the rest */

/* ---- terms as this search sees them ---- */

const column *bm25_column_at(const view *v, uint32_t at) {
    return at < v->n_columns ? acquire(&v->columns->at[at].column) : NULL;
}

/* Documents in columns, among the first n of the index. */
static uint32_t in_columns(const view *v, uint32_t n) {
    uint32_t last = v->n_columns - 1, here;
    const column *k;
    if (!v->n_columns || !n) return 0;
    if ((n - 1) / CHUNK < last) last = (n - 1) / CHUNK;
    k = bm25_column_at(v, last);
    here = n - last * CHUNK;
    return v->columns->at[last].before + (k ? bm25_in_column(k, here < CHUNK ? here : CHUNK) : 0);
}

static int has_slot(const view *v, uint32_t slot) {
    const column *k = bm25_column_at(v, slot / CHUNK);
    uint32_t at;
    if (k) return bm25_cell(k, slot % CHUNK) != 0;
    at = v->list ? bm25_first(v->list->slot, v->n_list, slot) : 0;
    return at < v->n_list && v->list->slot[at] == slot;
}

/* How many of the removed documents had this term. The term remembers how far it was counted. */
static uint32_t removed_with(const view *v, const list *removed, uint32_t n_removed) {
    const uint64_t known = relaxed(&v->term->dead);
    uint32_t seen = (uint32_t)(known >> 32), dead = (uint32_t)known;
    if (seen > n_removed) seen = dead = 0; /* another search has seen more */
    if (seen == n_removed) return dead;
    for (uint32_t i = seen; i < n_removed; i++) dead += (uint32_t)has_slot(v, removed->slot[i]);
    settle(&v->term->dead, (uint64_t)n_removed << 32 | dead);
    return dead;
}

/* The list is read before the columns: what moves from it into a column is found in one of them at least, and a column
 * hides what the list has of its chunk. What came after the snapshot is cut off. */
static view view_of(core *c, const snapshot *now, term *t, uint32_t times) {
    const uint64_t posted = relaxed(&t->posted); /* what came before the snapshot is in it, at least */
    const int is_older = posted >> 32 < now->n;  /* and then nothing of this term came after it */
    view v = {.term = t, .times = times};
    v.list = acquire(&t->list), v.n_list = v.list ? acquire(&v.list->n) : 0;
    v.columns = acquire(&t->columns), v.n_columns = v.columns ? acquire(&v.columns->n) : 0;
    v.rare = acquire(&t->rare), v.n_rare = v.rare ? acquire(&v.rare->n) : 0;
    v.weights = acquire(&t->weights), v.n_weights = v.weights ? acquire(&v.weights->n) : 0;
    v.most_tf = v.n_rare ? (float)relaxed(&v.rare->most) : MANY - 1;
    while (v.n_list && v.list->slot[v.n_list - 1] >= now->n) v.n_list--;
    while (v.n_rare && v.rare->at[v.n_rare - 1].slot >= now->n) v.n_rare--;
    if (v.n_list && v.n_columns && bm25_column_at(&v, v.list->slot[v.n_list - 1] / CHUNK))
        v.n_list = bm25_first(v.list->slot, v.n_list, v.list->slot[v.n_list - 1] / CHUNK * CHUNK);
    v.df = is_older ? (uint32_t)posted : v.n_list + in_columns(&v, now->n);
    if (now->n_removed && v.df) v.df -= removed_with(&v, acquire(&c->removed), now->n_removed);
    return v;
}

static size_t hash_of(const term *t) { return (size_t)t->hash * 0x9E3779B1u >> 7; }

/* The query's different terms in order of first appearance, with how often it has them. */
static int find_terms(search *s, core *c, const token *tokens, size_t n) {
    const dictionary *d = acquire(&c->dictionary);
    size_t room = 16;
    term **at;
    uint32_t *place;
    while (room < 2 * n) room *= 2;
    at = bm25_take(s->scratch, B_TABLE, room * (sizeof *at + sizeof *place));
    s->views = bm25_take(s->scratch, B_VIEWS, n * sizeof *s->views);
    if (!at || !s->views) return BM25_NO_MEMORY;
    place = (uint32_t *)(void *)(at + room);
    memset(at, 0, room * sizeof *at);
    for (size_t i = 0; i < n; i++) prefetch((const void *)&d->at[tokens[i].hash & d->mask]);
    for (size_t i = 0; i < n; i++) prefetch((const void *)relaxed(&d->at[tokens[i].hash & d->mask]));
    for (size_t i = 0; i < n; i++) {
        term *const t = bm25_find(d, tokens + i);
        size_t j;
        if (!t) continue;
        for (j = hash_of(t) & (room - 1); at[j] && at[j] != t;) j = (j + 1) & (room - 1);
        if (at[j]) {
            s->views[place[j]].times++;
        } else {
            at[j] = t, place[j] = (uint32_t)s->n_views;
            s->views[s->n_views].term = t, s->views[s->n_views++].times = 1;
            prefetch((const void *)relaxed(&t->list)), prefetch((const void *)relaxed(&t->columns));
            prefetch((const void *)relaxed(&t->rare));
        }
    }
    return 0;
}

/* What the search will look at first: the ends of lists, and the columns of the first chunk. */
static void fetch_views(const search *s) {
    for (size_t i = 0; i < s->n_views; i++) {
        const list *const l = acquire(&s->views[i].term->list);
        const columns *const all = acquire(&s->views[i].term->columns);
        const rare *const many = acquire(&s->views[i].term->rare);
        const uint32_t n = l ? acquire(&l->n) : 0;
        if (n) prefetch(l->slot + n - 1), prefetch(codes_of(l));
        if (all && acquire(&all->n)) {
            const column *const k = acquire(&all->at[0].column);
            if (k) {
                prefetch((const void *)k->least);
                for (size_t line = 0; line < FIRST_LINES; line++) prefetch((const char *)k->bits + LINE * line);
            }
        }
        if (many) { /* where it is halved first */
            const uint32_t half = acquire(&many->n) / 2;
            prefetch(many->at + half), prefetch(many->at + half / 2), prefetch(many->at + half + half / 2);
        }
    }
}

static void weigh(search *s, core *c) {
    const double n_live = s->now.n_live;
    size_t kept = 0;
    fetch_views(s);
    for (size_t i = 0; i < s->n_views; i++) {
        view v = view_of(c, &s->now, s->views[i].term, s->views[i].times);
        if (!v.df && !v.n_weights) continue;
        v.gain = v.df ? (float)(v.times * log(1 + (n_live - v.df + 0.5) / (v.df + 0.5))) : 0;
        s->views[kept++] = v;
    }
    s->n_views = kept;
}

int64_t bm25_df(bm25 *q, size_t n_bytes, const char *text) {
    scratch *const s = bm25_borrow(q);
    const unsigned entered = bm25_enter(q);
    core *const c = acquire(&q->core);
    const snapshot now = bm25_look(c);
    token *t = NULL;
    int64_t df = s ? bm25_split(s, 1, n_bytes, text, &t) : BM25_NO_MEMORY;
    term *const found = df ? NULL : bm25_find(acquire(&c->dictionary), t);
    if (found) df = view_of(c, &now, found, 1).df;
    bm25_leave(q, entered);
    bm25_give_back(q, s);
    return df;
}

/* ---- filters ---- */

int bm25_passes(const search *s, uint32_t slot) {
    return relaxed(&s->docs->live[slot]) && s->docs->time[slot] >= s->since &&
           (!s->allow || s->allow[slot / 64] >> slot % 64 & 1);
}

/* The slots of the ids that are there, ascending, each once, in B_SLOTS. -1: no memory. */
static int64_t slots_of(search *s, core *c, size_t n, const int64_t *ids) {
    uint32_t *slots = bm25_take(s->scratch, B_SLOTS, n * sizeof *slots);
    size_t found = 0, kept = 0;
    int ascending = 1;
    if (!slots) return BM25_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const size_t slot = bm25_slot_of(c, ids[i]);
        if (slot >= s->now.n) continue;
        ascending &= !found || slots[found - 1] < slot;
        slots[found++] = (uint32_t)slot;
    }
    if (!ascending) qsort(slots, found, sizeof *slots, bm25_ascending);
    for (size_t i = 0; i < found; i++)
        if ((!kept || slots[kept - 1] != slots[i]) && bm25_passes(s, slots[i])) slots[kept++] = slots[i];
    return (int64_t)kept;
}

static int allow_slots(search *s, size_t n, const uint32_t *slots) {
    const size_t words = s->now.n / 64 + 1;
    uint64_t *bits = bm25_take(s->scratch, B_ALLOW, words * sizeof *bits);
    if (!bits) return BM25_NO_MEMORY;
    memset(bits, 0, words * sizeof *bits);
    for (size_t i = 0; i < n; i++) bits[slots[i] / 64] |= UINT64_C(1) << slots[i] % 64;
    s->allow = bits, s->filtered = 1;
    return 0;
}

/* ---- the scores of all documents ---- */

/* The four words of the block that document n is in, the documents from n on left out. */
void bm25_copy_tail(const column *k, uint32_t n, uint64_t bits[4]) {
    const uint32_t block = n / BLOCK, here = n % BLOCK;
    for (unsigned eight = 0; eight < 4; eight++) {
        const unsigned word = word_in_block(eight * 8);
        uint64_t mask = 0;
        for (unsigned j = 0; j < 8; j++) {
            mask |= (uint64_t)(eight * 8 + j < here ? 15 : 0) << 8 * j;
            mask |= (uint64_t)(32 + eight * 8 + j < here ? 15 : 0) << (8 * j + 4);
        }
        bits[word] = n < k->room ? relaxed(&k->bits[4 * block + word]) & mask : 0;
    }
}

static void add_columns(const search *s, const view *v, uint32_t at, float *scores) {
    const column *k = bm25_column_at(v, at);
    const uint32_t start = at * CHUNK, here = s->now.n - start < CHUNK ? s->now.n - start : CHUNK;
    const uint32_t full = k && here > k->room ? k->room : here / BLOCK * BLOCK;
    uint32_t length[BLOCK] = {0};
    uint64_t tail[4];
    if (!k) return;
    s->q->kernel->add_column(full / 16, (const uint64_t *)k->bits, v->gain, s->a, s->c, s->docs->length + start,
                             scores + start);
    if (here % BLOCK == 0 || full == k->room) return;
    bm25_copy_tail(k, here, tail);
    memcpy(length, s->docs->length + start + full, here % BLOCK * sizeof *length);
    s->q->kernel->add_column(4, tail, v->gain, s->a, s->c, length, scores + start + full);
}

static void add_view(const search *s, const view *v, float *scores) {
    if (v->df) {
        for (uint32_t at = 0; at < v->n_columns && at * CHUNK < s->now.n; at++) add_columns(s, v, at, scores);
        if (v->n_list)
            s->q->kernel->add_list(v->n_list, v->list->slot, codes_of(v->list), v->gain, s->a, s->c, s->docs->length,
                                   scores);
        for (uint32_t i = 0; i < v->n_rare; i++) {
            const uint32_t slot = v->rare->at[i].slot;
            const float tf = (float)v->rare->at[i].tf;
            scores[slot] += v->gain * tf / (tf + (s->a + s->c * (float)s->docs->length[slot]));
        }
    }
    for (uint32_t i = 0; i < v->n_weights; i++) /* a document may have come and got weights after the snapshot */
        if (v->weights->at[i].slot < s->now.n)
            scores[v->weights->at[i].slot] += (float)v->times * v->weights->at[i].weight;
}

/* Of every slot, with room for what bm25_best_of_all needs behind them. NULL: no memory. */
static float *all_scores(search *s) {
    const size_t room = (size_t)s->now.n + BLOCK + LANES * DEEPEST;
    float *scores = bm25_take(s->scratch, B_SCORES, room * sizeof *scores);
    if (!scores) return NULL;
    memset(scores, 0, room * sizeof *scores);
    for (size_t i = 0; i < s->n_views; i++) add_view(s, s->views + i, scores);
    return scores;
}

int64_t bm25_search_all(search *s, uint64_t **hits) {
    float *scores = all_scores(s);
    if (!scores) return BM25_NO_MEMORY;
    for (uint32_t i = 0; s->filtered && i < s->now.n; i++)
        if (!bm25_passes(s, i)) scores[i] = 0;
    return bm25_best_of_all(s, scores, hits);
}

/* ---- which way ---- */

static int64_t choose(search *s, core *c, size_t n_allow, const int64_t *allow, uint64_t **hits) {
    const int path = relaxed(&s->q->path);
    int bounded = s->n_views <= MOST_TERMS;
    for (size_t i = 0; i < s->n_views; i++) bounded &= !s->views[i].n_weights;
    s->filtered = s->now.n_live < s->now.n || s->since > -HUGE_VAL;
    if (allow) {
        const int64_t n = slots_of(s, c, n_allow, allow);
        uint32_t *slots = s->scratch->at[B_SLOTS].p;
        if (n < 0) return n;
        if (bounded && path != 1 && (size_t)n <= 2 * s->k + s->now.n / 256)
            return bm25_search_slots(s, (size_t)n, slots, hits);
        if (allow_slots(s, (size_t)n, slots)) return BM25_NO_MEMORY;
    }
    if (bounded && path != 1 && (path == 2 || s->now.n >= FEW + FOR_EACH * s->k)) {
        const int64_t found = bm25_search_bounds(s, hits);
        if (found != BM25_MASSES) return found;
    }
    return bm25_search_all(s, hits);
}

static void look(search *s, core *c) {
    s->now = bm25_look(c);
    s->docs = acquire(&c->docs);
    s->a = (float)(s->q->k1 * (1 - s->q->b));
    if (s->now.total_length) s->c = (float)(s->q->k1 * s->q->b / ((double)s->now.total_length / s->now.n_live));
    weigh(s, c);
}

static int64_t run(search *s, core *c, size_t n_allow, const int64_t *allow, int64_t *ids, float *scores) {
    uint64_t *hits;
    int64_t found;
    look(s, c);
    if (s->k > s->now.n_live) s->k = s->now.n_live;
    if (!s->k || !s->n_views) return 0;
    found = choose(s, c, n_allow, allow, &hits);
    for (int64_t i = 0; i < found; i++) {
        ids[i] = s->docs->id[hits[i] & UINT32_MAX];
        scores[i] = score_of(hits[i]);
    }
    return found;
}

int64_t bm25_search(bm25 *q, size_t n, size_t n_bytes, const char *text, size_t k, size_t n_allow,
                    const int64_t *allow, double since, int64_t *ids, float *scores) {
    search s = {.q = q, .scratch = bm25_borrow(q), .k = k, .since = since};
    token *tokens = NULL;
    int64_t found = s.scratch ? bm25_split(s.scratch, n, n_bytes, text, &tokens) : BM25_NO_MEMORY;
    if (!found) {
        const unsigned entered = bm25_enter(q);
        core *const c = acquire(&q->core);
        found = find_terms(&s, c, tokens, n);
        if (!found) found = run(&s, c, n_allow, allow, ids, scores);
        bm25_leave(q, entered);
    }
    bm25_give_back(q, s.scratch);
    return found;
}

static int64_t score_all(search *s, core *c, size_t room, float *out) {
    float *scores;
    size_t n = 0;
    look(s, c);
    if (s->now.n_live > room) return s->now.n_live;
    if (!(scores = all_scores(s))) return BM25_NO_MEMORY;
    for (uint32_t i = 0; i < s->now.n && n < room; i++)
        if (relaxed(&s->docs->live[i])) out[n++] = scores[i];
    return (int64_t)n;
}

int64_t bm25_scores(bm25 *q, size_t n, size_t n_bytes, const char *text, size_t room, float *scores) {
    search s = {.q = q, .scratch = bm25_borrow(q), .since = -HUGE_VAL};
    token *tokens = NULL;
    int64_t found = s.scratch ? bm25_split(s.scratch, n, n_bytes, text, &tokens) : BM25_NO_MEMORY;
    if (!found) {
        const unsigned entered = bm25_enter(q);
        core *const c = acquire(&q->core);
        found = find_terms(&s, c, tokens, n);
        if (!found) found = score_all(&s, c, room, scores);
        bm25_leave(q, entered);
    }
    bm25_give_back(q, s.scratch);
    return found;
}
