/* An exact BM25 index that grows while it is searched. build.py hands this file to cffi as it stands, but for the lines
 * that start with '#'.
 *
 * One thread at a time may change an index (bm25/ sees to it); any number may search it meanwhile, and none of them
 * waits. A search sees the documents that were there when it began; one that is removed meanwhile may be missing from
 * its result. There is no state outside of the index. Every function that may fail returns one of the negative codes
 * and leaves the index as it was.
 *
 * Terms come as one text of n terms with a zero byte between them, without one at the end; BM25_TERMS when the text
 * has another number of terms. They are compared byte by byte.
 *
 * The arithmetic, the same in every kernel and in the numpy twin, to the bit. In double, then rounded to float:
 *     gain = times the query holds the term * log(1 + (N - df + 0.5) / (df + 0.5))
 *     a = k1 * (1 - b)      c = k1 * b / (mean length)
 * over the documents that are not removed. In float, in this order:
 *     score = score + (gain * tf) / (tf + (a + c * length))
 *     score = score + times the query holds the term * weight
 * for each distinct term of the query in order of first appearance: first the line with tf, then, in order of arrival,
 * the line with weight. (BM25: Robertson and Zaragoza 2009, section 3; this idf and no (k1 + 1): Lucene.)
 */
#ifndef LANTERN_BM25_H
#define LANTERN_BM25_H
#include <stddef.h>
#include <stdint.h>

typedef struct bm25 bm25;

typedef enum { BM25_SCALAR, BM25_AVX2, BM25_NEON, BM25_AVX512 } bm25_kernel;

enum { BM25_NO_MEMORY = -1, BM25_EXISTS = -2, BM25_ABSENT = -3, BM25_FULL = -4, BM25_TERMS = -5 };

/* The fastest kernel that this CPU has, and whether it has another one (1 or 0). */
bm25_kernel bm25_best_kernel(void);
int bm25_has_kernel(bm25_kernel name);

/* A new index, to be freed by bm25_free when nobody uses it any more, or NULL: no memory, or a kernel that this CPU has
 * not. */
bm25 *bm25_new(bm25_kernel kernel, double k1, double b);
void bm25_free(bm25 *index);

/* Append a document of n terms, repeats included. BM25_EXISTS, BM25_FULL (2^32 - 2 documents, 2^31 terms), BM25_TERMS
 * or BM25_NO_MEMORY. */
int bm25_add(bm25 *index, int64_t id, double time, size_t n, size_t n_bytes, const char *text);

/* Remove a document; its time goes to *time. BM25_ABSENT or BM25_NO_MEMORY. */
int bm25_remove(bm25 *index, int64_t id, double *time);

/* Append weights (learned-sparse postings) to a document that is there, for n different terms. BM25_ABSENT, BM25_TERMS
 * or BM25_NO_MEMORY. */
int bm25_add_weights(bm25 *index, int64_t id, size_t n, size_t n_bytes, const char *text, const float *weights);

/* Documents that are there, whether this is one of them (1 or 0), and the bytes that the index holds. */
size_t bm25_count(bm25 *index);
int bm25_has(bm25 *index, int64_t id);
size_t bm25_size_bytes(bm25 *index);

/* How searches go: by themselves (0), all scores at once (1), by upper bounds where weights allow (2). For tests. */
void bm25_choose(bm25 *index, int path);

/* The k best documents with a score above 0 (not below FLT_MIN, so that no denormal matters), best first, ties by
 * larger id; returns how many there are, BM25_TERMS or BM25_NO_MEMORY. Only those with a time >= since, and, unless
 * allow is NULL, with an id in allow. ids and scores have room for k. Unknown terms are passed over. */
int64_t bm25_search(bm25 *index, size_t n, size_t n_bytes, const char *text, size_t k, size_t n_allow,
                    const int64_t *allow, double since, int64_t *ids, float *scores);

/* The score of every document, 0 for those without a term of the query, in order of arrival. Returns how many there
 * are (when that is more than room, nothing was written), BM25_TERMS or BM25_NO_MEMORY. */
int64_t bm25_scores(bm25 *index, size_t n, size_t n_bytes, const char *text, size_t room, float *scores);

#endif
