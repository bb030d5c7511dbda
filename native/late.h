/* Late interaction over small integers: each word of a question looks for its best match among the words of a passage.
 * build.py hands this file to cffi as it stands, but for the lines that start with '#'. Pure; any number of threads. */
#ifndef LANTERN_LATE_H
#define LANTERN_LATE_H
#include <stddef.h>
#include <stdint.h>

enum { LATE_DIM = 128, LATE_TABLE_DIM = 64, LATE_SCALAR = 0, LATE_AVX2 = 1 };

/* The best instructions that this CPU has for it. */
int late_best_isa(void);

/* best: n_asked numbers for each of n_passages, the largest inner product of each word of the question with one of the
 * passage; 0 for a passage without words. Exact, whatever the isa.
 * asked: n_asked * LATE_DIM; words: of each passage n_words * LATE_DIM. */
void late_best(int isa, size_t n_asked, const int16_t *asked, size_t n_passages, const int8_t *const *words,
               const uint32_t *n_words, int32_t *best);

/* Vectors of word pieces, LATE_TABLE_DIM numbers each, and what each is multiplied with to be of length 1. */
typedef struct {
    const int8_t *vectors;
    const float *scale;
} late_table;

/* best: n_asked numbers for each of n_passages, the largest cosine of each piece asked for with one of the passage; 0 for
 * a passage without pieces. The same bits, whatever the isa. pieces: those of passage p are n_pieces[p] from starts[p]
 * on. All are of the table. */
void late_by_lists(int isa, const late_table *table, size_t n_asked, const uint16_t *asked, size_t n_passages,
                   const uint16_t *pieces, const uint32_t *starts, const uint32_t *n_pieces, float *best);

#endif
