/* The inner loops in plain C, which are the truth, and which ones a CPU gets. Built with -ffp-contract=off: a fused
 * multiply-add would round differently. */
#include "bm25_kernels.h"

#include <string.h>

/* ---- exact scores ---- */

static void add_column_scalar(size_t n_words, const uint64_t *bits, float gain, float a, float c,
                              const uint32_t *length, float *scores) {
    for (size_t i = 0; i < n_words; i++) {
        const size_t first = i / 4 * BLOCK + first_of_word[i % 4];
        for (unsigned j = 0; bits[i] && j < 16; j++) {
            const size_t at = first + (j & 7) + (j & 8) * 4;
            const uint8_t tf = bm25_tf_of_cell[bits[i] >> ((j & 7) * 8 + (j & 8) / 2) & 15];
            if (tf && tf < MANY) scores[at] += gain * (float)tf / ((float)tf + (a + c * (float)length[at]));
        }
    }
}

static void add_list_scalar(size_t n, const uint32_t *slot, const uint8_t *code, float gain, float a, float c,
                            const uint32_t *length, float *scores) {
    for (size_t i = 0; i < n; i++) {
        const float tf = (float)((code[i] >> 6) + 1);
        if (tf < MANY) scores[slot[i]] += gain * tf / (tf + (a + c * (float)length[slot[i]]));
    }
}

/* tf is 0 for those that lack the term, which adds nothing. */
static void add_found_scalar(size_t n, const float *tf, const float *norm, float gain, float *scores) {
    for (size_t i = 0; i < n; i++)
        if (tf[i] > 0) scores[i] += gain * tf[i] / (tf[i] + norm[i]);
}

const float bm25_count_of_cell[CELLS] = {0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, MANY, MANY};

/* The counts of documents in a column, MANY for those in the list of large ones. nibbles: where their cells begin, in
 * bits. */
void bm25_find_cells(size_t n, const uint32_t *nibbles, const uint64_t *bits, float *tf) {
    for (size_t i = 0; i < n; i++)
        tf[i] = bm25_count_of_cell[relaxed((SHARED uint64_t *)bits + (nibbles[i] >> 6)) >> (nibbles[i] & 63) & 15];
}

/* Where counts are MANY or more, ascending; places has room for n, and sixteen more. */
size_t bm25_find_many(size_t n, const float *tf, uint32_t *places) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        places[found] = (uint32_t)i;
        found += tf[i] >= MANY;
    }
    return found;
}

/* ---- the best of many scores ---- */

/* n groups of depth * LANES scores become LANES peaks each: lane by lane, so that no vector is ever folded. */
static void peaks_scalar(size_t n, size_t depth, const float *scores, float *peaks) {
    for (; n > 0; n--, peaks += LANES) {
        memset(peaks, 0, LANES * sizeof *peaks);
        for (size_t i = 0; i < depth; i++, scores += LANES)
            for (size_t j = 0; j < LANES; j++) peaks[j] = scores[j] > peaks[j] ? scores[j] : peaks[j];
    }
}

static float most_scalar(size_t n, const float *values) {
    float most = 0;
    for (size_t i = 0; i < n; i++) most = values[i] > most ? values[i] : most;
    return most;
}

static size_t count_scalar(size_t n, const float *values, float least) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += values[i] >= least;
    return found;
}

/* How many keys are larger than each. */
static void ranks_scalar(size_t n, const int16_t *keys, uint16_t *ranks) {
    for (size_t i = 0; i < n; i++) {
        ranks[i] = 0;
        for (size_t j = 0; j < n; j++) ranks[i] = (uint16_t)(ranks[i] + (keys[j] > keys[i]));
    }
}

static uint16_t most_sum_scalar(size_t n, const uint16_t *sums) {
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) most = sums[i] > most ? sums[i] : most;
    return most;
}

/* n groups of depth * SUMS sums become SUMS peaks each, lane by lane. */
static void peak_sums_scalar(size_t n, size_t depth, const uint16_t *sums, uint16_t *peaks) {
    for (; n > 0; n--, peaks += SUMS) {
        memset(peaks, 0, SUMS * sizeof *peaks);
        for (size_t i = 0; i < depth; i++, sums += SUMS)
            for (size_t j = 0; j < SUMS; j++) peaks[j] = sums[j] > peaks[j] ? sums[j] : peaks[j];
    }
}

static size_t count_sums_scalar(size_t n, const uint16_t *sums, uint16_t least) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += sums[i] >= least;
    return found;
}

/* ---- upper bounds ---- */

/* The 16-bit sums of n blocks: what their cells are worth together. */
static void sum_scalar(size_t n_blocks, size_t n_groups, const group *groups, uint16_t *sums) {
    memset(sums, 0, n_blocks * BLOCK * sizeof *sums);
    for (size_t g = 0; g < n_groups; g++)
        for (size_t t = 0; t < groups[g].n; t++)
            for (size_t i = 0; i < 4 * n_blocks; i++) {
                uint16_t *const at = sums + i / 4 * BLOCK + first_of_word[i % 4];
                uint64_t word;
                memcpy(&word, groups[g].bits[t] + 8 * i, sizeof word);
                for (unsigned j = 0; word && j < 8; j++, word >>= 8) {
                    at[j] = (uint16_t)(at[j] + groups[g].worth[t][word & 15]);
                    at[j + 32] = (uint16_t)(at[j + 32] + groups[g].worth[t][word >> 4 & 15]);
                }
            }
}

/* Each document whose sum is at least `least` becomes a hit: sum << 16 | place, places ascending. hits has room for
 * BLOCK * n_blocks, and BLOCK more. */
static size_t sums_above_scalar(size_t n_blocks, const uint16_t *sums, uint16_t least, uint32_t *hits) {
    size_t found = 0;
    for (size_t i = 0; i < n_blocks * BLOCK; i++)
        if (sums[i] >= least) hits[found++] = (uint32_t)sums[i] << 16 | (uint32_t)i;
    return found;
}

/* Add to sums of 8 bits, which stay at 255 once they are there, what cells are worth. */
void bm25_sum_bytes(size_t n_blocks, const group *g, uint8_t *sums) {
    for (size_t t = 0; t < g->n; t++)
        for (size_t i = 0; i < 4 * n_blocks; i++) {
            uint8_t *const at = sums + i / 4 * BLOCK + first_of_word[i % 4];
            uint64_t word;
            memcpy(&word, g->bits[t] + 8 * i, sizeof word);
            for (unsigned j = 0; word && j < 8; j++, word >>= 8) {
                const unsigned low = at[j] + (unsigned)g->worth[t][word & 15];
                const unsigned high = at[j + 32] + (unsigned)g->worth[t][word >> 4 & 15];
                at[j] = (uint8_t)(low < UINT8_MAX ? low : UINT8_MAX);
                at[j + 32] = (uint8_t)(high < UINT8_MAX ? high : UINT8_MAX);
            }
        }
}

/* The same, then the hits as above; the sums are 0 afterwards. */
static size_t bytes_above_scalar(size_t n_blocks, size_t n_groups, const group *groups, uint8_t *sums, uint8_t least,
                                 uint32_t *hits) {
    size_t found = 0;
    for (size_t g = 0; g < n_groups; g++) bm25_sum_bytes(n_blocks, groups + g, sums);
    for (size_t i = 0; i < n_blocks * BLOCK; i++)
        if (sums[i] >= least) hits[found++] = (uint32_t)sums[i] << 16 | (uint32_t)i;
    memset(sums, 0, n_blocks * BLOCK);
    return found;
}

const kernel bm25_scalar_kernel = {
    .add_column = add_column_scalar,
    .add_list = add_list_scalar,
    .add_found = add_found_scalar,
    .find_cells = bm25_find_cells,
    .find_many = bm25_find_many,
    .peaks = peaks_scalar,
    .most = most_scalar,
    .count = count_scalar,
    .ranks = ranks_scalar,
    .sum = sum_scalar,
    .sums_above = sums_above_scalar,
    .bytes_above = bytes_above_scalar,
    .most_sum = most_sum_scalar,
    .peak_sums = peak_sums_scalar,
    .count_sums = count_sums_scalar,
};

#if defined(BM25_HAS_AVX2)
static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi");
}
#endif
#if defined(BM25_HAS_AVX512)
static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

/* What this build and this CPU (its system too, which must keep the registers) have. */
const kernel *bm25_kernel_of(bm25_kernel name) {
    switch (name) {
    case BM25_SCALAR: return &bm25_scalar_kernel;
#if defined(BM25_HAS_AVX2)
    case BM25_AVX2: return has_avx2() ? &bm25_avx2_kernel : NULL;
#endif
#if defined(BM25_HAS_AVX512)
    case BM25_AVX512: return has_avx512() ? &bm25_avx512_kernel : NULL;
#endif
#if defined(BM25_HAS_NEON)
    case BM25_NEON: return &bm25_neon_kernel; /* every 64-bit ARM */
#endif
    default: return NULL;
    }
}

bm25_kernel bm25_best_kernel(void) {
    static const bm25_kernel fastest_first[] = {BM25_AVX512, BM25_AVX2, BM25_NEON, BM25_SCALAR};
    size_t i = 0;
    while (!bm25_kernel_of(fastest_first[i])) i++;
    return fastest_first[i];
}

int bm25_has_kernel(bm25_kernel name) { return bm25_kernel_of(name) != NULL; }
