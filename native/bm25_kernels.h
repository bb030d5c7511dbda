/* Which kernels there are, for the files that hold them; what each function does stands at the scalar one. */
#ifndef LANTERN_BM25_KERNELS_H
#define LANTERN_BM25_KERNELS_H
#include "bm25_index.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define BM25_HAS_AVX2
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__AARCH64EB__)
#define BM25_HAS_NEON
#endif

static const uint8_t first_of_word[4] = {0, 16, 8, 24}; /* documents of a block's words; see word_in_block */

extern const kernel bm25_scalar_kernel, bm25_avx2_kernel, bm25_neon_kernel;

void bm25_sum_bytes(size_t n_blocks, const group *g, uint8_t *sums); /* sums of 8 bits that stay at 255 */

#endif
