/* Documents from text and from the archive's lines. bm25_fill.h says what the functions do. */
#include "bm25_fill.h"
#include "bm25_index.h"

#include <stdlib.h>
#include <string.h>

/* Of the changing thread's scratch; bm25.c uses the first ones. */
enum { TEXT_BUFFER = 16, LINES_BUFFER, NAMED_BUFFER, FRESH_BUFFER };

/* Of a text of so many bytes; words are named by their terms. */
static int begin_words(bm25 *q, size_t n_bytes, analyze_words *w) {
    const size_t most = n_bytes / 2 + 1;
    core *const c = q->core;
    if (!c->memo) {
        if (bm25_grow(&c->memo, 1, sizeof *w->memo)) return BM25_NO_MEMORY;
        memset(c->memo, 0, sizeof *w->memo);
    }
    w->memo = c->memo;
    w->named = bm25_take(&q->own, NAMED_BUFFER, most * sizeof *w->named);
    w->fresh = bm25_take(&q->own, FRESH_BUFFER, most * sizeof *w->fresh);
    return w->named && w->fresh ? 0 : BM25_NO_MEMORY;
}

int bm25_add_text(bm25 *q, const analyze_unicode *unicode, int64_t id, double time, size_t n_bytes, const char *text) {
    int64_t size = ANALYZE_ROOM;
    size_t room = 3 * n_bytes + 64, n_terms = 0;
    term **each;
    char *terms;
    analyze_words w;
    int code;
    if (n_bytes > SIZE_MAX / 32 || begin_words(q, n_bytes, &w)) return BM25_NO_MEMORY;
    for (; size == ANALYZE_ROOM; room *= 4) {
        if (!(terms = bm25_take(&q->own, TEXT_BUFFER, room))) return BM25_NO_MEMORY;
        size = analyze_terms(unicode, &w, n_bytes, text, '\0', room, terms, &n_terms);
    }
    if (size < 0) return BM25_FOREIGN;
    for (size_t i = 0; i < w.n_named; i++) bm25_fetch_term(w.named[i]);
    if ((code = bm25_may_add(q, id, n_terms + w.n_named)) != 0) return code;
    if ((code = bm25_resolve(q, n_terms, (size_t)size, terms, &each)) != 0) return code;
    for (size_t i = 0; i < w.n_fresh; i++) w.fresh[i].word->name = each[w.fresh[i].term];
    return bm25_add_resolved(q, id, time, n_terms, each, w.n_named, (term **)(void *)w.named);
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
