/* How the scores of a signal stand to each other: lantern_proxy/signals/relative.py in C, with the same result bit for bit.
 * build.py hands this file to cffi as it stands, but for the lines that start with '#'. There is no state. */
#ifndef LANTERN_RELATIVE_H
#define LANTERN_RELATIVE_H
#include <stddef.h>
#include <stdint.h>

/* What a signal's columns are, n_rows of each; those of which numpy knows more are left to it. */
enum {
    RELATIVE_SHARE,         /* of the best score */
    RELATIVE_Z,             /* not written */
    RELATIVE_RANK,          /* places behind the best; ties by row */
    RELATIVE_NEAR,          /* with what flows in from neighbours, as a share of the best one */
    RELATIVE_NEAR_RANK,
    RELATIVE_2BEFORE,       /* the best score two places before, as a share of the best of all */
    RELATIVE_BEFORE,
    RELATIVE_AFTER,
    RELATIVE_2AFTER,
    RELATIVE_SESSION,       /* the best score of the session, as a share of the best of all */
    RELATIVE_SESSION_SUM,   /* the sum of the session's scores, for the largest */
    RELATIVE_SESSION_RANK,  /* by that sum; ties by number of the session */
    RELATIVE_COLUMNS
};

/* Whose scores they are. The caller sees to it that every number is in range. */
typedef struct {
    size_t n, n_places, n_sessions;
    const int64_t *place, *session; /* n of each, from 0 on */
    size_t n_rows;
    const int64_t *rows; /* those that are asked for */
} relative_to;

/* n_signals times n scores, none below 0, give n_signals times RELATIVE_COLUMNS times n_rows columns. 0: no memory. */
int relative_columns(const relative_to *to, size_t n_signals, const double *scores, double *columns);

#endif
