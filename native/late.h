/* Late interaction over small integers: each word of a question looks for its best match among the words of a passage.
 * build.py hands this file to cffi as it stands, but for the lines that start with '#'. Pure; any number of threads. */
#ifndef LANTERN_LATE_H
#define LANTERN_LATE_H
#include <stddef.h>
#include <stdint.h>

enum { LATE_DIM = 128, LATE_SCALAR = 0, LATE_AVX2 = 1 };

/* The best instructions that this CPU has for it. */
int late_best_isa(void);

/* best: n_asked numbers for each of n_passages, the largest inner product of each word of the question with one of the
 * passage; 0 for a passage without words. Exact, whatever the isa.
 * asked: n_asked * LATE_DIM; words: of each passage n_words * LATE_DIM. */
void late_best(int isa, size_t n_asked, const int16_t *asked, size_t n_passages, const int8_t *const *words,
               const uint32_t *n_words, int32_t *best);

#endif
