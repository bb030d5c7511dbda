/* What the cells of columns and the codes of lists are worth at most, in units of sums. */
#include "bm25_bounds.h"

#include <math.h>
#include <string.h>

enum { MOST_SUM = 60000, AIM = 180 };

static const float MOST_SCALE = 1e30f; /* scores may be hardly above FLT_MIN, and what is infinite is no bound */

static float scale_for(float sum, float score) { return sum < MOST_SCALE * score ? sum / score : MOST_SCALE; }

/* x as an integer, `most` when it is larger or no number: a term may be worth any multiple of the threshold. */
static int32_t at_most(float most, float x) { return (int32_t)(x < most ? x : most); }

static float most_of(const search *s, const view *v) { return v->gain * v->most_tf / (v->most_tf + s->a) * SLACK; }

/* Put the views with columns into groups, the one worth most beside the one worth least and so on, and find the scale
 * by which neither the bytes of two nor the sums can overflow: each rounding adds one at most. */
void bm25_scale(bounds *b) {
    const search *s = b->s;
    float most[MOST_GROUPS * A_GROUP], total = 0, worst = 0;
    uint8_t order[MOST_GROUPS * A_GROUP];
    size_t n = 0;
    for (size_t i = 0; i < s->n_views; i++) {
        size_t at = n;
        most[i] = most_of(s, s->views + i);
        total += most[i];
        if (!s->views[i].n_columns) continue;
        for (; at > 0 && most[order[at - 1]] < most[i]; at--) order[at] = order[at - 1];
        order[at] = (uint8_t)i, n++;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t place = 2 * i < n ? 2 * i : 2 * (n - 1 - i) + 1;
        const float pair = i == n - 1 - i ? most[order[i]] : most[order[i]] + most[order[n - 1 - i]];
        b->place_of[order[i]] = (uint8_t)place;
        worst = pair > worst ? pair : worst;
    }
    b->n_groups = (n + A_GROUP - 1) / A_GROUP;
    for (size_t g = 0; g < b->n_groups; g++) b->groups[g].n = n - g * A_GROUP < A_GROUP ? n - g * A_GROUP : A_GROUP;
    b->scale = scale_for(MOST_SUM, total);
    if (worst > 0 && 253 < b->scale * worst) b->scale = 253 / worst;
}

/* Once a search: a division takes as long as ten multiplications. */
void bm25_weigh_lengths(bounds *b) {
    for (int i = 0; i < 64; i++) b->norm[i] = b->s->a + b->s->c * (float)bm25_least_length[i];
    for (int count = 1; count < MANY; count++)
        for (int i = 0; i < 64; i++) b->share[count - 1][i] = (float)count / ((float)count + b->norm[i]);
}

void bm25_price_codes(const bounds *b, const view *v, uint16_t *worth) {
    const float gain = v->gain * SLACK * b->scale, many = gain * v->most_tf;
    for (int count = 1; count < MANY; count++, worth += 64)
        for (int i = 0; i < 64; i++) worth[i] = (uint16_t)at_most(UINT16_MAX, gain * b->share[count - 1][i] + 1);
    if (!v->n_rare) { /* no document has so many */
        memset(worth, 0, 64 * sizeof *worth);
        return;
    }
    for (int i = 0; i < 64; i++) worth[i] = (uint16_t)at_most(UINT16_MAX, many / (v->most_tf + b->norm[i]) + 1);
}

static void narrow(const uint16_t *worth, uint8_t *byte_worth) {
    for (int i = 0; i < CODES; i++) byte_worth[i] = (uint8_t)(worth[i] < UINT8_MAX ? worth[i] : UINT8_MAX);
}

void bm25_price_view(const bounds *b, const view *v, price *p) {
    for (int i = 0; i < CELLS; i++) {
        p->tf[i] = i == 0 ? 1 : bm25_tf_of_cell[i] < MANY ? (float)bm25_tf_of_cell[i] : v->most_tf;
        p->gain[i] = v->gain * p->tf[i] * SLACK * b->scale;
    }
}

void bm25_price_cells(const bounds *b, const price *p, const column *k, uint8_t *worth) {
    const float a = b->s->a, c = b->s->c;
    uint32_t least[CELLS];
    for (int i = 0; i < CELLS; i++) least[i] = relaxed(&k->least[i]);
    least[0] = UINT32_MAX; /* no document is in an empty cell, so that it is worth nothing */
    for (int i = 0; i < CELLS; i++) {
        const int32_t empty = -(least[i] == UINT32_MAX);
        const float length = (float)((int32_t)least[i] & ~empty);
        worth[i] = (uint8_t)(at_most(UINT8_MAX, p->gain[i] / (p->tf[i] + (a + c * length)) + 1) & ~empty);
    }
}

/* The pool, the threshold and what things are worth, in units by which the threshold is about AIM. */
void bm25_rescale(bounds *b) {
    const search *s = b->s;
    const float old = b->scale;
    float total = 0;
    for (size_t i = 0; i < s->n_views; i++) total += most_of(s, s->views + i);
    b->scale = b->reach > FLT_MIN ? scale_for(AIM, b->reach) : scale_for(UINT8_MAX - (float)s->n_views, total);
    for (size_t i = 0; i < b->n_done + b->n_pool; i++) {
        uint64_t *const at = i < b->n_done ? b->done + i : b->pool + (i - b->n_done);
        const float sum = ceilf((float)(*at >> 32) * (b->scale / old) * SLACK);
        *at = (sum < UINT8_MAX ? (uint64_t)sum : UINT8_MAX) << 32 | (*at & UINT32_MAX);
    }
    b->least = (uint16_t)(b->reach * b->scale < 1 ? 1 : b->reach * b->scale / SLACK);
    for (size_t i = 0; i < s->n_views; i++) {
        const view *v = s->views + i;
        if (v->n_columns) bm25_price_view(b, v, b->prices + i);
        if (!v->n_list) continue;
        bm25_price_codes(b, v, b->worth + i * CODES);
        narrow(b->worth + i * CODES, b->byte_worth + i * CODES);
    }
}
