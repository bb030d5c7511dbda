/* Only the rows that are asked for are sorted; every other score is put between them, which tells how many come before
 * each. That is n log(rows) steps, and memory that stays in a near cache. */
#include "relative.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAD = 2 }; /* places on both sides of all others, where nothing is */

typedef struct {
    double score;
    int64_t row;
    size_t at; /* which of the rows that are asked for */
} ranked;

typedef struct {
    double *best, *flowed, *session, *sum; /* best: by place, from PAD on */
    int64_t *own; /* session of each row that is asked for */
    ranked *sorted;
    double *keys;
    size_t *before, *tied;
} room;

/* By score, ties by row. The rows come best first by another order, which is not far from this one. */
static void sort(size_t n, ranked *rows) {
    for (size_t i = 1; i < n; i++) {
        const ranked next = rows[i];
        size_t at = i;
        for (; at && (rows[at - 1].score < next.score || (rows[at - 1].score == next.score && rows[at - 1].row > next.row));
             at--)
            rows[at] = rows[at - 1];
        rows[at] = next;
    }
}

/* Of n_rows of n scores, how many come before each; ties by row. */
static void ranks(size_t n, const double *scores, size_t n_rows, const int64_t *rows, const room *r, double *found) {
    for (size_t i = 0; i < n_rows; i++) r->sorted[i] = (ranked){scores[rows[i]], rows[i], i};
    sort(n_rows, r->sorted);
    size_t positive = 0;
    for (size_t i = 0; i < n_rows; i++) positive += (size_t)((r->keys[i] = r->sorted[i].score) > 0);
    const double least = positive ? r->keys[positive - 1] : INFINITY;
    for (size_t i = 0; i <= n_rows; i++) r->tied[i] = r->before[i] = 0;
    for (size_t row = 0; row < n; row++) {
        const double score = scores[row], *from = r->keys;
        size_t at = positive;
        if (score >= least) { /* many are 0, or below all that are asked for */
            for (size_t left = positive, half; left > 1; left -= half) { /* no branch to foretell */
                half = left / 2;
                from += half * (size_t)(from[half - 1] > score);
            }
            at = (size_t)(from - r->keys) + (size_t)(*from > score);
        }
        if (at < n_rows && r->keys[at] == score) { /* of equal ones those with a lower row come first, as they do here */
            size_t *passed = &r->tied[at];
            at += *passed;
            while (at < n_rows && r->sorted[at].row == (int64_t)row && r->keys[at] == score) at++, ++*passed;
        }
        r->before[at]++;
    }
    size_t so_far = 0;
    for (size_t i = 0; i < n_rows; i++) {
        so_far += r->before[i];
        found[r->sorted[i].at] = (double)so_far;
    }
}

static double largest(size_t n, const double *values) {
    double most = 0;
    for (size_t i = 0; i < n; i++) most = values[i] > most ? values[i] : most;
    return most > 0 ? most : 1;
}

static void one_signal(const relative_to *to, const double *scores, const room *r, double *columns) {
    const size_t m = to->n_rows;
    memset(r->best, 0, (to->n_places + 2 * PAD) * sizeof *r->best);
    memset(r->session, 0, to->n_sessions * sizeof *r->session);
    memset(r->sum, 0, to->n_sessions * sizeof *r->sum);
    for (size_t i = 0; i < to->n; i++) {
        double *best = r->best + PAD + to->place[i], *session = r->session + to->session[i];
        if (scores[i] > *best) *best = scores[i];
        if (scores[i] > *session) *session = scores[i];
        r->sum[to->session[i]] += scores[i];
    }
    for (size_t i = 0; i < to->n; i++) {
        const double *at = r->best + PAD + to->place[i];
        r->flowed[i] = scores[i] + (0.3 * (at[-1] + at[1]) + 0.15 * (at[-2] + at[2]));
    }
    const double top = largest(to->n, scores), near = largest(to->n, r->flowed), sum = largest(to->n_sessions, r->sum);
    for (size_t i = 0; i < m; i++) {
        const int64_t row = to->rows[i];
        const double *at = r->best + PAD + to->place[row];
        columns[RELATIVE_SHARE * m + i] = scores[row] / top;
        columns[RELATIVE_NEAR * m + i] = r->flowed[row] / near;
        columns[RELATIVE_2BEFORE * m + i] = at[-2] / top;
        columns[RELATIVE_BEFORE * m + i] = at[-1] / top;
        columns[RELATIVE_AFTER * m + i] = at[1] / top;
        columns[RELATIVE_2AFTER * m + i] = at[2] / top;
        r->own[i] = to->session[row];
        columns[RELATIVE_SESSION * m + i] = r->session[r->own[i]] / top;
        columns[RELATIVE_SESSION_SUM * m + i] = r->sum[r->own[i]] / sum;
    }
    ranks(to->n, scores, m, to->rows, r, columns + RELATIVE_RANK * m);
    ranks(to->n, r->flowed, m, to->rows, r, columns + RELATIVE_NEAR_RANK * m);
    ranks(to->n_sessions, r->sum, m, r->own, r, columns + RELATIVE_SESSION_RANK * m);
}

int relative_columns(const relative_to *to, size_t n_signals, const double *scores, double *columns) {
    if (!to->n_rows) return 1;
    const room r = {
        malloc((to->n_places + 2 * PAD) * sizeof(double)),
        malloc(to->n * sizeof(double)),
        malloc(to->n_sessions * sizeof(double)),
        malloc(to->n_sessions * sizeof(double)),
        malloc(to->n_rows * sizeof(int64_t)),
        malloc(to->n_rows * sizeof(ranked)),
        malloc(to->n_rows * sizeof(double)),
        malloc((to->n_rows + 1) * sizeof(size_t)),
        malloc((to->n_rows + 1) * sizeof(size_t)),
    };
    const int fine = r.best && r.flowed && r.session && r.sum && r.own && r.sorted && r.keys && r.before && r.tied;
    for (size_t s = 0; fine && s < n_signals; s++)
        one_signal(to, scores + s * to->n, &r, columns + s * RELATIVE_COLUMNS * to->n_rows);
    free(r.best);
    free(r.flowed);
    free(r.session);
    free(r.sum);
    free(r.own);
    free(r.sorted);
    free(r.keys);
    free(r.before);
    free(r.tied);
    return fine;
}
