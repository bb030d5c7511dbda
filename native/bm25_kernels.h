/* Which kernels there are, for the files that hold them; what each function does stands at the scalar one. */
#ifndef LANTERN_BM25_KERNELS_H
#define LANTERN_BM25_KERNELS_H
#include "bm25_index.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define BM25_HAS_AVX2
#if __GNUC__ >= 10 || defined(__clang__) /* older ones lack some of the intrinsics */
#define BM25_HAS_AVX512
#endif
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__AARCH64EB__)
#define BM25_HAS_NEON
#endif

static const uint8_t first_of_word[4] = {0, 16, 8, 24}; /* documents of a block's words; see word_in_block */

enum { AHEAD = 768 }; /* a column is fetched so many bytes early */

/* loop(n, ...) with a constant for the number of columns, 0 to A_GROUP, so that what it does for each is unrolled. */
#define FOR_COLUMNS(n, loop, ...)               \
    switch (n) {                                \
    case 0: loop(0, __VA_ARGS__); break;        \
    case 1: loop(1, __VA_ARGS__); break;        \
    case 2: loop(2, __VA_ARGS__); break;        \
    case 3: loop(3, __VA_ARGS__); break;        \
    case 4: loop(4, __VA_ARGS__); break;        \
    case 5: loop(5, __VA_ARGS__); break;        \
    case 6: loop(6, __VA_ARGS__); break;        \
    case 7: loop(7, __VA_ARGS__); break;        \
    default: loop(A_GROUP, __VA_ARGS__); break; \
    }

extern const kernel bm25_scalar_kernel, bm25_avx2_kernel, bm25_avx512_kernel, bm25_neon_kernel;
extern const float bm25_count_of_cell[CELLS]; /* bm25_tf_of_cell */

void bm25_sum_bytes(size_t n_blocks, const group *g, uint8_t *sums); /* sums of 8 bits that stay at 255 */
/* What other kernels use too. */
void bm25_find_cells(size_t n, const uint32_t *nibbles, const uint64_t *bits, float *tf);
size_t bm25_find_many(size_t n, const float *tf, uint32_t *places);
#ifdef BM25_HAS_AVX2
void bm25_add_list_avx2(size_t n, const uint32_t *slot, const uint8_t *code, float gain, float a, float c,
                        const uint32_t *length, float *scores);
void bm25_peaks_avx2(size_t n, size_t depth, const float *scores, float *peaks);
float bm25_most_avx2(size_t n, const float *values);
void bm25_ranks_avx2(size_t n, const int16_t *keys, uint16_t *ranks);
void bm25_peak_sums_avx2(size_t n, size_t depth, const uint16_t *sums, uint16_t *peaks);
#endif

#endif
