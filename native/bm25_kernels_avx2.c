/* The inner loops for CPUs with AVX2. Only the functions that are marked use it: the rest of the library is built for
 * plain x86-64. What is left of a loop goes to the scalar kernel. */
#include "bm25_kernels.h"

#ifdef BM25_HAS_AVX2
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,popcnt,bmi")))

/* Eight nibbles, one in each byte, to scores. */
AVX2 static inline void add_eight(__m128i cells, __m128i tfs, __m256 gain, __m256 a, __m256 c, const uint32_t *length,
                                  float *scores) {
    const __m256 tf = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_shuffle_epi8(tfs, cells)));
    const __m256 lengths = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)length));
    const __m256 norm = _mm256_add_ps(a, _mm256_mul_ps(c, lengths));
    const __m256 weight = _mm256_div_ps(_mm256_mul_ps(gain, tf), _mm256_add_ps(tf, norm));
    const __m256 there = _mm256_cmp_ps(tf, _mm256_setzero_ps(), _CMP_GT_OQ); /* 0 / 0 when k1 is 0 */
    _mm256_storeu_ps(scores, _mm256_add_ps(_mm256_loadu_ps(scores), _mm256_and_ps(weight, there)));
}

AVX2 static void add_column_avx2(size_t n_words, const uint64_t *bits, float gain, float a, float c,
                                 const uint32_t *length, float *scores) {
    const __m256 gains = _mm256_set1_ps(gain), as = _mm256_set1_ps(a), cs = _mm256_set1_ps(c);
    const __m128i tfs = _mm_setr_epi8(0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0, 0), low = _mm_set1_epi8(15);
    for (size_t i = 0; i < n_words; i++) {
        const size_t at = i / 4 * BLOCK + first_of_word[i % 4];
        const __m128i word = _mm_cvtsi64_si128((long long)bits[i]);
        if (!bits[i]) continue;
        add_eight(_mm_and_si128(word, low), tfs, gains, as, cs, length + at, scores + at);
        add_eight(_mm_and_si128(_mm_srli_epi64(word, 4), low), tfs, gains, as, cs, length + at + 32, scores + at + 32);
    }
    _mm256_zeroupper(); /* gcc omits it before a tail call, and scalar code after us would crawl */
}

AVX2 void bm25_add_list_avx2(size_t n, const uint32_t *slot, const uint8_t *code, float gain, float a, float c,
                               const uint32_t *length, float *scores) {
    const __m256 gains = _mm256_set1_ps(gain), as = _mm256_set1_ps(a), cs = _mm256_set1_ps(c);
    const __m256 many = _mm256_set1_ps(MANY);
    float weight[8];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i slots = _mm256_loadu_si256((const __m256i *)(const void *)(slot + i));
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(code + i));
        const __m256i counts = _mm256_srli_epi32(_mm256_cvtepu8_epi32(codes), 6);
        const __m256 tf = _mm256_cvtepi32_ps(_mm256_add_epi32(counts, _mm256_set1_epi32(1)));
        const __m256 lengths = _mm256_cvtepi32_ps(_mm256_i32gather_epi32((const int *)(const void *)length, slots, 4));
        const __m256 norm = _mm256_add_ps(as, _mm256_mul_ps(cs, lengths));
        const __m256 all = _mm256_div_ps(_mm256_mul_ps(gains, tf), _mm256_add_ps(tf, norm));
        _mm256_storeu_ps(weight, _mm256_and_ps(all, _mm256_cmp_ps(tf, many, _CMP_LT_OQ)));
        for (size_t j = 0; j < 8; j++) scores[slot[i + j]] += weight[j];
    }
    _mm256_zeroupper();
    bm25_scalar_kernel.add_list(n - i, slot + i, code + i, gain, a, c, length, scores);
}

AVX2 static void add_found_avx2(size_t n, const float *tf, const float *norm, float gain, float *scores) {
    const __m256 gains = _mm256_set1_ps(gain);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 tfs = _mm256_loadu_ps(tf + i);
        const __m256 weight = _mm256_div_ps(_mm256_mul_ps(gains, tfs), _mm256_add_ps(tfs, _mm256_loadu_ps(norm + i)));
        const __m256 there = _mm256_cmp_ps(tfs, _mm256_setzero_ps(), _CMP_GT_OQ);
        _mm256_storeu_ps(scores + i, _mm256_add_ps(_mm256_loadu_ps(scores + i), _mm256_and_ps(weight, there)));
    }
    _mm256_zeroupper();
    bm25_scalar_kernel.add_found(n - i, tf + i, norm + i, gain, scores + i);
}

AVX2 static size_t find_many_avx2(size_t n, const float *tf, uint32_t *places) {
    const __m256 many = _mm256_set1_ps(MANY);
    size_t found = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        unsigned there = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(tf + i), many, _CMP_GE_OQ));
        for (; there; there &= there - 1) places[found++] = (uint32_t)(i + _tzcnt_u32(there));
    }
    _mm256_zeroupper();
    for (; i < n; i++)
        if (tf[i] >= MANY) places[found++] = (uint32_t)i;
    return found;
}

AVX2 void bm25_peaks_avx2(size_t n, size_t depth, const float *scores, float *peaks) {
    for (; n > 0; n--, peaks += LANES) {
        __m256 most = _mm256_setzero_ps();
        for (size_t i = 0; i < depth; i++, scores += LANES) most = _mm256_max_ps(_mm256_loadu_ps(scores), most);
        _mm256_storeu_ps(peaks, most);
    }
    _mm256_zeroupper();
}

AVX2 float bm25_most_avx2(size_t n, const float *values) {
    float lanes[LANES];
    bm25_peaks_avx2(1, n / LANES, values, lanes);
    return bm25_scalar_kernel.most(LANES, lanes); /* there are LANES peaks a group, so no tail */
}

AVX2 static size_t count_avx2(size_t n, const float *values, float least) {
    const __m256 leasts = _mm256_set1_ps(least);
    size_t found = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 above = _mm256_cmp_ps(_mm256_loadu_ps(values + i), leasts, _CMP_GE_OQ);
        found += (size_t)_mm_popcnt_u32((unsigned)_mm256_movemask_ps(above));
    }
    _mm256_zeroupper();
    return found + bm25_scalar_kernel.count(n - i, values + i, least);
}

/* Four at a time, so that each vector of keys is loaded for four. */
AVX2 void bm25_ranks_avx2(size_t n, const int16_t *keys, uint16_t *ranks) {
    const __m256i one = _mm256_set1_epi16(1);
    for (size_t i = 0; i < n; i += 4) {
        __m256i larger[4], here[4];
        uint32_t counts[4];
        __m256i sum;
        for (size_t j = 0; j < 4; j++) here[j] = _mm256_set1_epi16(keys[i + j]), larger[j] = _mm256_setzero_si256();
        for (size_t at = 0; at < n; at += SUMS) {
            const __m256i others = _mm256_loadu_si256((const __m256i *)(const void *)(keys + at));
            for (size_t j = 0; j < 4; j++)
                larger[j] = _mm256_sub_epi16(larger[j], _mm256_cmpgt_epi16(others, here[j]));
        }
        for (size_t j = 0; j < 4; j++) larger[j] = _mm256_madd_epi16(larger[j], one);
        sum = _mm256_hadd_epi32(_mm256_hadd_epi32(larger[0], larger[1]), _mm256_hadd_epi32(larger[2], larger[3]));
        _mm_storeu_si128((__m128i *)(void *)counts,
                         _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
        for (size_t j = 0; j < 4 && i + j < n; j++) ranks[i + j] = (uint16_t)counts[j];
    }
    _mm256_zeroupper();
}

AVX2 static inline __m256i sums_at(const uint16_t *sums) {
    return _mm256_loadu_si256((const __m256i *)(const void *)sums);
}

AVX2 static uint16_t most_sum_avx2(size_t n, const uint16_t *sums) {
    uint16_t lanes[16], rest;
    __m256i most = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) most = _mm256_max_epu16(most, sums_at(sums + i));
    _mm256_storeu_si256((__m256i *)(void *)lanes, most);
    _mm256_zeroupper();
    rest = bm25_scalar_kernel.most_sum(n - i, sums + i);
    lanes[0] = bm25_scalar_kernel.most_sum(16, lanes);
    return lanes[0] > rest ? lanes[0] : rest;
}

AVX2 void bm25_peak_sums_avx2(size_t n, size_t depth, const uint16_t *sums, uint16_t *peaks) {
    for (; n > 0; n--, peaks += SUMS) {
        __m256i most = _mm256_setzero_si256();
        for (size_t i = 0; i < depth; i++, sums += SUMS) most = _mm256_max_epu16(most, sums_at(sums));
        _mm256_storeu_si256((__m256i *)(void *)peaks, most);
    }
    _mm256_zeroupper();
}

AVX2 static size_t count_sums_avx2(size_t n, const uint16_t *sums, uint16_t least) {
    const __m256i leasts = _mm256_set1_epi16((short)least);
    uint16_t lanes[16];
    size_t found = 0, i = 0;
    __m256i counts = _mm256_setzero_si256(); /* up to 65,535 a lane: n <= 1,000,000 */
    for (; i + 16 <= n; i += 16) {
        const __m256i here = sums_at(sums + i);
        counts = _mm256_sub_epi16(counts, _mm256_cmpeq_epi16(_mm256_max_epu16(here, leasts), here));
    }
    _mm256_storeu_si256((__m256i *)(void *)lanes, counts);
    _mm256_zeroupper();
    for (int j = 0; j < 16; j++) found += lanes[j];
    return found + bm25_scalar_kernel.count_sums(n - i, sums + i, least);
}

/* Add to the sums of one block what its cells are worth. n is a constant wherever this is inlined, so that the tables
 * stay in registers. Two terms are added in bytes before they are widened. */
AVX2 static inline __attribute__((always_inline)) void look_up(size_t n, const uint8_t *const *bits,
                                                               const __m256i *worth, size_t block, __m256i sum[4]) {
    const __m256i low = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    for (size_t t = 0; t < n; t += 2) {
        __m256i first = zero, last = zero;
        for (size_t u = t; u < t + 2 && u < n; u++) {
            const __m256i cells = _mm256_loadu_si256((const __m256i *)(const void *)(bits[u] + 32 * block));
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(cells, 4), low);
            if (block % 2 == 0) prefetch(bits[u] + 32 * block + AHEAD);
            first = _mm256_add_epi8(first, _mm256_shuffle_epi8(worth[u], _mm256_and_si256(cells, low)));
            last = _mm256_add_epi8(last, _mm256_shuffle_epi8(worth[u], high));
        }
        sum[0] = _mm256_add_epi16(sum[0], _mm256_unpacklo_epi8(first, zero));
        sum[1] = _mm256_add_epi16(sum[1], _mm256_unpackhi_epi8(first, zero));
        sum[2] = _mm256_add_epi16(sum[2], _mm256_unpacklo_epi8(last, zero));
        sum[3] = _mm256_add_epi16(sum[3], _mm256_unpackhi_epi8(last, zero));
    }
}

AVX2 static inline __m256i table_of(const uint8_t *worth) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)worth));
}

/* more: sums are added to those that are there. */
AVX2 static inline __attribute__((always_inline)) void sum_fixed(size_t n, size_t n_blocks, const group *g, int more,
                                                                 uint16_t *sums) {
    const uint8_t *bits[A_GROUP];
    __m256i worth[A_GROUP];
    for (size_t t = 0; t < n; t++) worth[t] = table_of(g->worth[t]), bits[t] = g->bits[t];
    for (size_t i = 0; i < n_blocks; i++, sums += BLOCK) {
        __m256i sum[4];
        for (int j = 0; j < 4; j++) sum[j] = more ? sums_at(sums + 16 * j) : _mm256_setzero_si256();
        look_up(n, bits, worth, i, sum);
        for (int j = 0; j < 4; j++) _mm256_storeu_si256((__m256i *)(void *)(sums + 16 * j), sum[j]);
    }
}

AVX2 static void sum_avx2(size_t n_blocks, size_t n_groups, const group *groups, uint16_t *sums) {
    for (size_t g = 0; g == 0 || g < n_groups; g++)
        FOR_COLUMNS(n_groups ? groups[g].n : 0, sum_fixed, n_blocks, groups + g, g > 0, sums)
    _mm256_zeroupper();
}

AVX2 static inline uint64_t mask_of(__m256i x, __m256i y) {
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(x, y), 0xD8);
    return (uint32_t)_mm256_movemask_epi8(both);
}

/* Four hits are written at once, whether they are there or not: most blocks have no more, and a loop that ends soon is
 * mispredicted. */
AVX2 static __attribute__((noinline)) size_t take_block(__m256i a, __m256i b, __m256i c, __m256i d, __m256i leasts,
                                                        size_t place, uint32_t *hits) {
    const __m256i sum[4] = {a, b, c, d};
    uint16_t sums[BLOCK];
    __m256i above[4];
    size_t found;
    uint64_t mask;
    for (int j = 0; j < 4; j++) {
        above[j] = _mm256_cmpeq_epi16(_mm256_max_epu16(sum[j], leasts), sum[j]);
        _mm256_storeu_si256((__m256i *)(void *)(sums + 16 * j), sum[j]);
    }
    mask = mask_of(above[0], above[1]) | mask_of(above[2], above[3]) << 32;
    found = (size_t)_mm_popcnt_u64(mask);
    for (size_t i = 0; i < found; i += 4)
        for (size_t more = 0; more < 4; more++, mask &= mask - 1) {
            const unsigned j = (unsigned)_tzcnt_u64(mask) % BLOCK;
            hits[i + more] = (uint32_t)sums[j] << 16 | (uint32_t)(place + j);
        }
    return found;
}

AVX2 static size_t sums_above_avx2(size_t n_blocks, const uint16_t *sums, uint16_t least, uint32_t *hits) {
    const __m256i leasts = _mm256_set1_epi16((short)least);
    size_t found = 0;
    for (size_t i = 0; i < n_blocks; i++, sums += BLOCK) {
        const __m256i a = sums_at(sums), b = sums_at(sums + 16), c = sums_at(sums + 32), d = sums_at(sums + 48);
        const __m256i most = _mm256_max_epu16(_mm256_max_epu16(a, b), _mm256_max_epu16(c, d));
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_max_epu16(most, leasts), most)))
            found += take_block(a, b, c, d, leasts, i * BLOCK, hits + found);
    }
    _mm256_zeroupper();
    return found;
}

AVX2 static __attribute__((noinline)) size_t take_bytes(__m256i first, __m256i last, __m256i leasts, size_t place,
                                                        uint32_t *hits) {
    uint8_t sums[BLOCK];
    size_t found = 0;
    uint64_t mask;
    first = _mm256_permute4x64_epi64(first, 0xD8), last = _mm256_permute4x64_epi64(last, 0xD8);
    _mm256_storeu_si256((__m256i *)(void *)sums, first);
    _mm256_storeu_si256((__m256i *)(void *)(sums + 32), last);
    mask = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(first, leasts), first));
    mask |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(last, leasts), last)) << 32;
    for (; mask; mask &= mask - 1) {
        const unsigned j = lowest_bit(mask);
        hits[found++] = (uint32_t)sums[j] << 16 | (uint32_t)(place + j);
    }
    return found;
}

/* The permutation brings sums into the order of the columns' bytes. */
AVX2 static inline __attribute__((always_inline)) size_t bytes_fixed(size_t n, size_t n_blocks, const group *g,
                                                                     uint8_t *sums, uint8_t least, uint32_t *hits) {
    const __m256i leasts = _mm256_set1_epi8((char)least), low = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    const uint8_t *bits[A_GROUP];
    __m256i worth[A_GROUP];
    size_t found = 0;
    for (size_t t = 0; t < n; t++) worth[t] = table_of(g->worth[t]), bits[t] = g->bits[t];
    for (size_t i = 0; i < n_blocks; i++, sums += BLOCK) {
        __m256i first = _mm256_loadu_si256((const __m256i *)(const void *)sums), most;
        __m256i last = _mm256_loadu_si256((const __m256i *)(const void *)(sums + 32));
        first = _mm256_permute4x64_epi64(first, 0xD8), last = _mm256_permute4x64_epi64(last, 0xD8);
        _mm256_storeu_si256((__m256i *)(void *)sums, zero);
        _mm256_storeu_si256((__m256i *)(void *)(sums + 32), zero);
        for (size_t t = 0; t < n; t++) {
            const __m256i cells = _mm256_loadu_si256((const __m256i *)(const void *)(bits[t] + 32 * i));
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(cells, 4), low);
            if (i % 2 == 0) prefetch(bits[t] + 32 * i + AHEAD);
            first = _mm256_adds_epu8(first, _mm256_shuffle_epi8(worth[t], _mm256_and_si256(cells, low)));
            last = _mm256_adds_epu8(last, _mm256_shuffle_epi8(worth[t], high));
        }
        most = _mm256_max_epu8(first, last);
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(most, leasts), most)))
            found += take_bytes(first, last, leasts, i * BLOCK, hits + found);
    }
    _mm256_zeroupper();
    return found;
}

AVX2 static size_t bytes_above_avx2(size_t n_blocks, size_t n_groups, const group *groups, uint8_t *sums, uint8_t least,
                                    uint32_t *hits) {
    for (; n_groups > 1; n_groups--, groups++) bm25_sum_bytes(n_blocks, groups, sums);
    FOR_COLUMNS(n_groups ? groups->n : 0, return bytes_fixed, n_blocks, groups, sums, least, hits)
}

const kernel bm25_avx2_kernel = {
    .add_column = add_column_avx2,
    .add_list = bm25_add_list_avx2,
    .add_found = add_found_avx2,
    .find_cells = bm25_find_cells,
    .find_many = find_many_avx2,
    .peaks = bm25_peaks_avx2,
    .most = bm25_most_avx2,
    .count = count_avx2,
    .ranks = bm25_ranks_avx2,
    .sum = sum_avx2,
    .sums_above = sums_above_avx2,
    .bytes_above = bytes_above_avx2,
    .most_sum = most_sum_avx2,
    .peak_sums = bm25_peak_sums_avx2,
    .count_sums = count_sums_avx2,
};
#endif
