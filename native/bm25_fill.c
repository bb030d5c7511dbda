/* Documents from text and from the archive's lines. bm25_fill.h says what the functions do. */
#include "bm25_fill.h"
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_BUFFER = 16, LINES_BUFFER = 17, MEMO_BUFFER = 18 }; /* of the changing thread's scratch; bm25_add uses others */

/* NULL when there is no memory for one: it only saves time. */
static analyze_memo *memo_of(bm25 *q) {
    const int is_new = !q->own.at[MEMO_BUFFER].p;
    analyze_memo *const memo = bm25_take(&q->own, MEMO_BUFFER, sizeof *memo);
    if (memo && is_new) memset(memo, 0, sizeof *memo);
    return memo;
}

int bm25_add_text(bm25 *q, const analyze_unicode *unicode, int64_t id, double time, size_t n_bytes, const char *text) {
    int64_t size = ANALYZE_ROOM;
    size_t room = 3 * n_bytes + 64, n_terms = 0;
    char *terms = NULL;
    analyze_memo *const memo = memo_of(q);
    if (n_bytes > SIZE_MAX / 32) return BM25_NO_MEMORY;
    while (size == ANALYZE_ROOM) {
        if (!(terms = bm25_take(&q->own, TEXT_BUFFER, room))) return BM25_NO_MEMORY;
        size = analyze_terms(unicode, memo, n_bytes, text, '\0', room, terms, &n_terms);
        room *= 4;
    }
    if (size < 0) return BM25_FOREIGN;
    return bm25_add(q, id, time, n_terms, (size_t)size, terms);
}

/* One document's lines as bm25_add takes terms; how many there are, or SIZE_MAX when one holds a zero byte. */
static size_t split_lines(char *to, const char *from, size_t n) {
    size_t n_terms = n != 0;
    if (memchr(from, 0, n)) return SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const int is_border = from[i] == '\n';
        to[i] = is_border ? '\0' : from[i];
        n_terms += (size_t)is_border;
    }
    return n_terms;
}

size_t bm25_add_lines(bm25 *q, size_t n, const int64_t *ids, const double *times, const size_t *ends,
                      const char *lines, int *code) {
    size_t from = 0;
    *code = 0;
    for (size_t i = 0; i < n; from = ends[i++]) {
        const size_t size = ends[i] - from;
        char *const terms = bm25_take(&q->own, LINES_BUFFER, size + 1);
        const size_t n_terms = terms ? split_lines(terms, lines + from, size) : 0;
        *code = !terms ? BM25_NO_MEMORY : n_terms == SIZE_MAX ? BM25_TERMS : bm25_add(q, ids[i], times[i], n_terms, size, terms);
        if (*code) return i;
    }
    return n;
}

size_t bm25_documents(bm25 *q, size_t n, int64_t *ids, double *times) {
    const core *const c = q->core;
    size_t found = 0;
    for (uint32_t i = 0; i < c->now.n && found < n; i++)
        if (c->docs->live[i]) ids[found] = c->docs->id[i], times[found++] = c->docs->time[i];
    return found;
}
