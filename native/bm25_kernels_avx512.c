/* The inner loops for CPUs with AVX-512 and its byte permutations (VBMI, VBMI2): Intel from Ice Lake on, AMD from Zen 4
 * on. Those before have no byte permutation, and clock down. What is left of a loop is masked. Compressed vectors are
 * stored whole: a compressing store takes a hundred cycles and more on Zen 4. */
#include "bm25_kernels.h"

#ifdef BM25_HAS_AVX512
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,popcnt,bmi,bmi2")))
#define INLINE512 AVX512 static inline __attribute__((always_inline))

enum { FLOATS = 16, WORDS16 = 32 };

INLINE512 __mmask16 first_floats(size_t n) { return (__mmask16)(n < FLOATS ? (1u << n) - 1 : UINT16_MAX); }
INLINE512 __mmask32 first_sums(size_t n) { return n < WORDS16 ? (1u << n) - 1 : (__mmask32)-1; }

/* ---- exact scores ---- */

/* Sixteen cells, one in each 32 bits of which only the lowest four count, to scores of as many documents. */
INLINE512 void add_sixteen(__m512i cells, __m512 tfs, __m512 gain, __m512 a, __m512 c, const uint32_t *length,
                           float *scores) {
    const __m512 tf = _mm512_permutexvar_ps(cells, tfs), before = _mm512_loadu_ps(scores);
    const __m512 norm = _mm512_add_ps(a, _mm512_mul_ps(c, _mm512_cvtepi32_ps(_mm512_loadu_si512(length))));
    const __mmask16 there = _mm512_cmp_ps_mask(tf, _mm512_setzero_ps(), _CMP_GT_OQ); /* 0 / 0 when k1 is 0 */
    const __m512 weight = _mm512_div_ps(_mm512_mul_ps(gain, tf), _mm512_add_ps(tf, norm));
    _mm512_storeu_ps(scores, _mm512_mask_add_ps(before, there, before, weight));
}

AVX512 static void add_column_avx512(size_t n_words, const uint64_t *bits, float gain, float a, float c,
                                     const uint32_t *length, float *scores) {
    const __m512 gains = _mm512_set1_ps(gain), as = _mm512_set1_ps(a), cs = _mm512_set1_ps(c);
    const __m512 tfs = _mm512_setr_ps(0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0, 0);
    for (; n_words >= 4; n_words -= 4, bits += 4, length += BLOCK, scores += BLOCK) {
        const __m256i words = _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)(const void *)bits), 0xD8);
        if (_mm256_testz_si256(words, words)) continue;
        for (int half = 0; half < 2; half++) {
            const __m128i both = half ? _mm256_extracti128_si256(words, 1) : _mm256_castsi256_si128(words);
            const __m512i cells = _mm512_cvtepu8_epi32(both), high = _mm512_srli_epi32(cells, 4);
            add_sixteen(cells, tfs, gains, as, cs, length + 16 * half, scores + 16 * half);
            add_sixteen(high, tfs, gains, as, cs, length + 32 + 16 * half, scores + 32 + 16 * half);
        }
    }
    _mm256_zeroupper(); /* gcc omits it before a tail call, and scalar code after us would crawl */
    bm25_scalar_kernel.add_column(n_words, bits, gain, a, c, length, scores);
}

AVX512 static void add_found_avx512(size_t n, const float *tf, const float *norm, float gain, float *scores) {
    const __m512 gains = _mm512_set1_ps(gain);
    for (size_t i = 0; i < n; i += FLOATS) {
        const __mmask16 here = first_floats(n - i);
        const __m512 tfs = _mm512_maskz_loadu_ps(here, tf + i), norms = _mm512_maskz_loadu_ps(here, norm + i);
        const __m512 before = _mm512_maskz_loadu_ps(here, scores + i);
        const __mmask16 there = _mm512_cmp_ps_mask(tfs, _mm512_setzero_ps(), _CMP_GT_OQ);
        const __m512 weight = _mm512_div_ps(_mm512_mul_ps(gains, tfs), _mm512_add_ps(tfs, norms));
        _mm512_mask_storeu_ps(scores + i, here, _mm512_mask_add_ps(before, there, before, weight));
    }
    _mm256_zeroupper();
}

AVX512 static void find_cells_avx512(size_t n, const uint32_t *nibbles, const uint64_t *bits, float *tf) {
    const __m512 tfs = _mm512_loadu_ps(bm25_count_of_cell);
    for (size_t i = 0; i < n; i += FLOATS) {
        const __mmask16 here = first_floats(n - i);
        const __m512i at = _mm512_maskz_loadu_epi32(here, nibbles + i);
        const __m512i words = _mm512_mask_i32gather_epi32(at, here, _mm512_srli_epi32(at, 5), bits, 4);
        const __m512i cells = _mm512_srlv_epi32(words, _mm512_and_si512(at, _mm512_set1_epi32(31)));
        _mm512_mask_storeu_ps(tf + i, here, _mm512_permutexvar_ps(cells, tfs));
    }
    _mm256_zeroupper();
}

AVX512 static size_t find_many_avx512(size_t n, const float *tf, uint32_t *places) {
    const __m512 many = _mm512_set1_ps(MANY);
    __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t found = 0;
    for (size_t i = 0; i < n; i += FLOATS) {
        const __m512 tfs = _mm512_maskz_loadu_ps(first_floats(n - i), tf + i);
        const __mmask16 there = _mm512_cmp_ps_mask(tfs, many, _CMP_GE_OQ);
        _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi32(there, place));
        found += (size_t)_mm_popcnt_u32(there);
        place = _mm512_add_epi32(place, _mm512_set1_epi32(FLOATS));
    }
    _mm256_zeroupper();
    return found;
}

/* ---- the best of many scores ---- */

AVX512 static size_t count_avx512(size_t n, const float *values, float least) {
    const __m512 leasts = _mm512_set1_ps(least);
    size_t found = 0, i = 0;
    for (; i + FLOATS <= n; i += FLOATS)
        found += (size_t)_mm_popcnt_u32(_mm512_cmp_ps_mask(_mm512_loadu_ps(values + i), leasts, _CMP_GE_OQ));
    found += (size_t)_mm_popcnt_u32(_mm512_mask_cmp_ps_mask(
        first_floats(n - i), _mm512_maskz_loadu_ps(first_floats(n - i), values + i), leasts, _CMP_GE_OQ));
    _mm256_zeroupper();
    return found;
}

AVX512 static uint16_t most_sum_avx512(size_t n, const uint16_t *sums) {
    uint16_t lanes[WORDS16];
    __m512i most = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += WORDS16)
        most = _mm512_max_epu16(most, _mm512_maskz_loadu_epi16(first_sums(n - i), sums + i));
    _mm512_storeu_si512(lanes, most);
    _mm256_zeroupper();
    return bm25_scalar_kernel.most_sum(WORDS16, lanes);
}

AVX512 static size_t count_sums_avx512(size_t n, const uint16_t *sums, uint16_t least) {
    const __m512i leasts = _mm512_set1_epi16((short)least);
    size_t found = 0, i = 0;
    for (; i + WORDS16 <= n; i += WORDS16)
        found += (size_t)_mm_popcnt_u32(_mm512_cmpge_epu16_mask(_mm512_loadu_si512(sums + i), leasts));
    found += (size_t)_mm_popcnt_u32(_mm512_mask_cmpge_epu16_mask(
        first_sums(n - i), _mm512_maskz_loadu_epi16(first_sums(n - i), sums + i), leasts));
    _mm256_zeroupper();
    return found;
}

/* ---- upper bounds ---- */

/* Four times, so that the two bits of a byte above its cell do not matter. */
INLINE512 __m512i table_of_512(const uint8_t *worth) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)worth));
}

/* Two blocks of a column, or one and zeros. */
INLINE512 __m512i cells_at(const uint8_t *bits, int two) {
    if (two) return _mm512_loadu_si512(bits);
    return _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)bits));
}

/* Sixteen sums of a block, and the same of the next one. */
INLINE512 __m512i two_quarters(const uint16_t *sums, int two) {
    const __m512i left = _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)sums));
    if (!two) return left;
    return _mm512_inserti64x4(left, _mm256_loadu_si256((const __m256i *)(const void *)(sums + BLOCK)), 1);
}

/* The sums of one block or two. n is a constant wherever this is inlined, so that the tables stay in registers. The
 * bytes of two terms are added before they are widened. */
INLINE512 void sum_two(size_t n, const uint8_t *const *bits, const __m512i *worth, size_t block, int two, int more,
                       uint16_t *sums) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i sum[4];
    for (int j = 0; j < 4; j++) sum[j] = more ? two_quarters(sums + 16 * j, two) : zero;
    for (size_t t = 0; t < n; t += 2) {
        __m512i first = zero, last = zero;
        for (size_t u = t; u < t + 2 && u < n; u++) {
            const __m512i cells = cells_at(bits[u] + 32 * block, two);
            prefetch(bits[u] + 32 * block + AHEAD);
            first = _mm512_add_epi8(first, _mm512_permutexvar_epi8(cells, worth[u]));
            last = _mm512_add_epi8(last, _mm512_permutexvar_epi8(_mm512_srli_epi16(cells, 4), worth[u]));
        }
        sum[0] = _mm512_add_epi16(sum[0], _mm512_unpacklo_epi8(first, zero));
        sum[1] = _mm512_add_epi16(sum[1], _mm512_unpackhi_epi8(first, zero));
        sum[2] = _mm512_add_epi16(sum[2], _mm512_unpacklo_epi8(last, zero));
        sum[3] = _mm512_add_epi16(sum[3], _mm512_unpackhi_epi8(last, zero));
    }
    for (int j = 0; j < 4; j++) {
        _mm256_storeu_si256((__m256i *)(void *)(sums + 16 * j), _mm512_castsi512_si256(sum[j]));
        if (two) _mm256_storeu_si256((__m256i *)(void *)(sums + BLOCK + 16 * j), _mm512_extracti64x4_epi64(sum[j], 1));
    }
}

INLINE512 void sum_fixed_512(size_t n, size_t n_blocks, const group *g, int more, uint16_t *sums) {
    const uint8_t *bits[A_GROUP];
    __m512i worth[A_GROUP];
    size_t i = 0;
    for (size_t t = 0; t < n; t++) worth[t] = table_of_512(g->worth[t]), bits[t] = g->bits[t];
    for (; i + 2 <= n_blocks; i += 2) sum_two(n, bits, worth, i, 1, more, sums + i * BLOCK);
    if (i < n_blocks) sum_two(n, bits, worth, i, 0, more, sums + i * BLOCK);
}

AVX512 static void sum_avx512(size_t n_blocks, size_t n_groups, const group *groups, uint16_t *sums) {
    for (size_t g = 0; g == 0 || g < n_groups; g++)
        FOR_COLUMNS(n_groups ? groups[g].n : 0, sum_fixed_512, n_blocks, groups + g, g > 0, sums)
    _mm256_zeroupper();
}

/* Four hits are written at once, whether they are there or not: few blocks have more, and a loop that ends soon is
 * mispredicted. */
AVX512 static size_t sums_above_avx512(size_t n_blocks, const uint16_t *sums, uint16_t least, uint32_t *hits) {
    const __m512i leasts = _mm512_set1_epi16((short)least);
    size_t found = 0;
    for (size_t first = 0; first < n_blocks * BLOCK; first += BLOCK, sums += BLOCK) {
        const __mmask32 low = _mm512_cmpge_epu16_mask(_mm512_loadu_si512(sums), leasts);
        const __mmask32 high = _mm512_cmpge_epu16_mask(_mm512_loadu_si512(sums + 32), leasts);
        const size_t end = found + (size_t)(_mm_popcnt_u32(low) + _mm_popcnt_u32(high));
        uint64_t above = (uint64_t)high << 32 | low;
        do {
            for (size_t i = found; i < found + 4; i++, above &= above - 1) {
                const unsigned at = (unsigned)_tzcnt_u64(above) % BLOCK;
                hits[i] = (uint32_t)sums[at] << 16 | (uint32_t)(first + at);
            }
        } while ((found += 4) < end);
        found = end;
    }
    _mm256_zeroupper();
    return found;
}

/* Of one block, in the order of its documents. */
AVX512 static __attribute__((noinline)) size_t take_bytes_512(__m512i first, __mmask64 above, size_t place,
                                                              uint32_t *hits) {
    uint8_t sums[BLOCK];
    size_t found = 0;
    _mm512_storeu_si512(sums, first);
    for (; above; above &= above - 1) {
        const unsigned at = (unsigned)_tzcnt_u64(above);
        hits[found++] = (uint32_t)sums[at] << 16 | (uint32_t)(place + at);
    }
    return found;
}

/* One block or two; their sums are 0 afterwards. left and right bring what was looked up into the documents' order. */
INLINE512 size_t above_two(size_t n, const uint8_t *const *bits, const __m512i *worth, __m512i leasts, size_t block,
                           int two, uint8_t *sums, uint32_t *hits) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i left = _mm512_setr_epi64(0, 2, 1, 3, 8, 10, 9, 11);
    const __m512i right = _mm512_setr_epi64(4, 6, 5, 7, 12, 14, 13, 15);
    __m512i low = zero, high = zero, first = _mm512_loadu_si512(sums), last = zero;
    __mmask64 here, there;
    size_t found = 0;
    if (two) last = _mm512_loadu_si512(sums + BLOCK), _mm512_storeu_si512(sums + BLOCK, zero);
    _mm512_storeu_si512(sums, zero);
    for (size_t t = 0; t < n; t++) {
        const __m512i cells = cells_at(bits[t] + 32 * block, two);
        prefetch(bits[t] + 32 * block + AHEAD);
        low = _mm512_adds_epu8(low, _mm512_permutexvar_epi8(cells, worth[t]));
        high = _mm512_adds_epu8(high, _mm512_permutexvar_epi8(_mm512_srli_epi16(cells, 4), worth[t]));
    }
    first = _mm512_adds_epu8(first, _mm512_permutex2var_epi64(low, left, high));
    if (two) last = _mm512_adds_epu8(last, _mm512_permutex2var_epi64(low, right, high));
    here = _mm512_cmpge_epu8_mask(first, leasts);
    there = two ? _mm512_cmpge_epu8_mask(last, leasts) : 0;
    if (here | there) {
        if (here) found = take_bytes_512(first, here, block * BLOCK, hits);
        if (there) found += take_bytes_512(last, there, (block + 1) * BLOCK, hits + found);
    }
    return found;
}

INLINE512 size_t bytes_fixed_512(size_t n, size_t n_blocks, const group *g, uint8_t *sums, uint8_t least,
                                 uint32_t *hits) {
    const __m512i leasts = _mm512_set1_epi8((char)least);
    const uint8_t *bits[A_GROUP];
    __m512i worth[A_GROUP];
    size_t found = 0, i = 0;
    for (size_t t = 0; t < n; t++) worth[t] = table_of_512(g->worth[t]), bits[t] = g->bits[t];
    for (; i + 2 <= n_blocks; i += 2)
        found += above_two(n, bits, worth, leasts, i, 1, sums + i * BLOCK, hits + found);
    if (i < n_blocks) found += above_two(n, bits, worth, leasts, i, 0, sums + i * BLOCK, hits + found);
    _mm256_zeroupper();
    return found;
}

AVX512 static size_t bytes_above_avx512(size_t n_blocks, size_t n_groups, const group *groups, uint8_t *sums,
                                        uint8_t least, uint32_t *hits) {
    for (; n_groups > 1; n_groups--, groups++) bm25_sum_bytes(n_blocks, groups, sums);
    FOR_COLUMNS(n_groups ? groups->n : 0, return bytes_fixed_512, n_blocks, groups, sums, least, hits)
}

/* What gains nothing from wider vectors is AVX2's. */
const kernel bm25_avx512_kernel = {
    .add_column = add_column_avx512,
    .add_list = bm25_add_list_avx2,
    .add_found = add_found_avx512,
    .find_cells = find_cells_avx512,
    .find_many = find_many_avx512,
    .peaks = bm25_peaks_avx2,
    .most = bm25_most_avx2,
    .count = count_avx512,
    .ranks = bm25_ranks_avx2,
    .sum = sum_avx512,
    .sums_above = sums_above_avx512,
    .bytes_above = bytes_above_avx512,
    .most_sum = most_sum_avx512,
    .peak_sums = bm25_peak_sums_avx2,
    .count_sums = count_sums_avx512,
};
#endif
