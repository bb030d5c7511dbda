/* Other ways to fill an index than bm25_add: from text, from terms as the archive keeps them, from a snapshot. One
 * thread at a time, as for bm25_add. build.py hands this file to cffi as it stands, but for the lines with '#'. */
#ifndef LANTERN_BM25_FILL_H
#define LANTERN_BM25_FILL_H
#include "analyze.h"
#include "bm25.h"

enum { BM25_FOREIGN = -6, BM25_DAMAGED = -7 };

/* Append a document of the terms of a text (analyze_terms). As bm25_add, and BM25_FOREIGN where only the reference can
 * tell its terms. */
int bm25_add_text(bm25 *index, const analyze_unicode *unicode, int64_t id, double time, size_t n_bytes,
                  const char *text);

/* Append n documents. lines: their terms, one a line, document after document without anything between them; ends: how
 * many bytes up to the end of each. Returns how many were appended; when fewer than n, the next one was refused with
 * *code: BM25_TERMS when one of its terms has a zero byte, else as bm25_add. */
size_t bm25_add_lines(bm25 *index, size_t n, const int64_t *ids, const double *times, const size_t *ends,
                      const char *lines, int *code);

/* In how many documents that are there a term stands; BM25_TERMS when it has a zero byte, or BM25_NO_MEMORY. Any thread
 * may ask. */
int64_t bm25_df(bm25 *index, size_t n_bytes, const char *term);

/* The ids and times of the first n documents that are there, in order of arrival; returns how many those are. */
size_t bm25_documents(bm25 *index, size_t n, int64_t *ids, double *times);

/* A snapshot: all documents that are there, with their terms and counts, for bm25_load. Its bytes go to *snapshot, to be
 * freed by bm25_free_snapshot. Returns their number, or BM25_NO_MEMORY; BM25_TERMS when there are weights, which a
 * snapshot does not hold. */
int64_t bm25_dump(bm25 *index, uint8_t **snapshot);
void bm25_free_snapshot(uint8_t *snapshot);

/* Fill an empty index from a snapshot, whole or not at all. stays: 0, or 1 when the snapshot stays as it is until
 * bm25_free, in a mapped file for example; from a multiple of 64 bytes it is then searched where it lies instead of
 * being copied. It is never written to. BM25_DAMAGED when it is not what bm25_dump of the same build made, in any byte;
 * BM25_EXISTS when the index is not empty; BM25_NO_MEMORY. */
int bm25_load(bm25 *index, size_t n_bytes, const uint8_t *snapshot, int stays);

#endif
