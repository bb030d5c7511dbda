/* The inner loops for 64-bit ARM. What is left of a loop goes to the scalar kernel. */
#include "bm25_kernels.h"

#ifdef BM25_HAS_NEON
#include <arm_neon.h>
#include <string.h>

/* ---- exact scores ---- */

/* gain * tf / (tf + norm) where tf > 0, else 0: no 0 / 0 when k1 is 0. */
static inline float32x4_t weigh_four(float32x4_t tf, float32x4_t norm, float32x4_t gain) {
    const float32x4_t weight = vdivq_f32(vmulq_f32(gain, tf), vaddq_f32(tf, norm));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(weight), vcgtzq_f32(tf)));
}

static inline float32x4_t norm_of(uint32x4_t length, float32x4_t a, float32x4_t c) {
    return vaddq_f32(a, vmulq_f32(c, vcvtq_f32_u32(length)));
}

static inline void add_four(uint16x4_t counts, float32x4_t gain, float32x4_t a, float32x4_t c, const uint32_t *length,
                            float *scores) {
    const float32x4_t weight = weigh_four(vcvtq_f32_u32(vmovl_u16(counts)), norm_of(vld1q_u32(length), a, c), gain);
    vst1q_f32(scores, vaddq_f32(vld1q_f32(scores), weight));
}

/* Eight nibbles, one in each byte, to scores. */
static inline void add_eight(uint8x8_t cells, uint8x16_t tfs, float32x4_t gain, float32x4_t a, float32x4_t c,
                             const uint32_t *length, float *scores) {
    const uint16x8_t counts = vmovl_u8(vqtbl1_u8(tfs, cells));
    add_four(vget_low_u16(counts), gain, a, c, length, scores);
    add_four(vget_high_u16(counts), gain, a, c, length + 4, scores + 4);
}

static void add_column_neon(size_t n_words, const uint64_t *bits, float gain, float a, float c, const uint32_t *length,
                            float *scores) {
    static const uint8_t tf_of[CELLS] = {0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0, 0};
    const float32x4_t gains = vdupq_n_f32(gain), as = vdupq_n_f32(a), cs = vdupq_n_f32(c);
    const uint8x16_t tfs = vld1q_u8(tf_of);
    for (size_t i = 0; i < n_words; i++) {
        const size_t at = i / 4 * BLOCK + first_of_word[i % 4];
        const uint8x8_t word = vcreate_u8(bits[i]);
        if (!bits[i]) continue;
        add_eight(vand_u8(word, vdup_n_u8(15)), tfs, gains, as, cs, length + at, scores + at);
        add_eight(vshr_n_u8(word, 4), tfs, gains, as, cs, length + at + 32, scores + at + 32);
    }
}

static void add_list_neon(size_t n, const uint32_t *slot, const uint8_t *code, float gain, float a, float c,
                          const uint32_t *length, float *scores) {
    const float32x4_t gains = vdupq_n_f32(gain), as = vdupq_n_f32(a), cs = vdupq_n_f32(c);
    float weight[4];
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32_t lengths[4], counts[4];
        for (size_t j = 0; j < 4; j++) lengths[j] = length[slot[i + j]], counts[j] = (code[i + j] >> 6) + 1u;
        for (size_t j = 0; j < 4; j++) counts[j] = counts[j] < MANY ? counts[j] : 0;
        vst1q_f32(weight, weigh_four(vcvtq_f32_u32(vld1q_u32(counts)), norm_of(vld1q_u32(lengths), as, cs), gains));
        for (size_t j = 0; j < 4; j++) scores[slot[i + j]] += weight[j];
    }
    bm25_scalar_kernel.add_list(n - i, slot + i, code + i, gain, a, c, length, scores);
}

static void add_found_neon(size_t n, const float *tf, const float *norm, float gain, float *scores) {
    const float32x4_t gains = vdupq_n_f32(gain);
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(scores + i, vaddq_f32(vld1q_f32(scores + i), weigh_four(vld1q_f32(tf + i), vld1q_f32(norm + i), gains)));
    bm25_scalar_kernel.add_found(n - i, tf + i, norm + i, gain, scores + i);
}

/* ---- the best of many scores ---- */

/* vmaxnm leaves out what is no number, as the other kernels do. */
static void peaks_neon(size_t n, size_t depth, const float *scores, float *peaks) {
    for (; n > 0; n--, peaks += LANES) {
        float32x4_t left = vdupq_n_f32(0), right = left;
        for (size_t i = 0; i < depth; i++, scores += LANES)
            left = vmaxnmq_f32(left, vld1q_f32(scores)), right = vmaxnmq_f32(right, vld1q_f32(scores + 4));
        vst1q_f32(peaks, left), vst1q_f32(peaks + 4, right);
    }
}

static float most_neon(size_t n, const float *values) {
    float lanes[LANES];
    peaks_neon(1, n / LANES, values, lanes);
    return bm25_scalar_kernel.most(LANES, lanes); /* there are LANES peaks a group, so no tail */
}

static size_t count_neon(size_t n, const float *values, float least) {
    uint32x4_t found = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) found = vsubq_u32(found, vcgeq_f32(vld1q_f32(values + i), vdupq_n_f32(least)));
    return vaddvq_u32(found) + bm25_scalar_kernel.count(n - i, values + i, least);
}

static void ranks_neon(size_t n, const int16_t *keys, uint16_t *ranks) {
    for (size_t i = 0; i < n; i++) {
        const int16x8_t here = vdupq_n_s16(keys[i]);
        uint16x8_t larger = vdupq_n_u16(0);
        for (size_t at = 0; at < n; at += 8) larger = vsubq_u16(larger, vcgtq_s16(vld1q_s16(keys + at), here));
        ranks[i] = vaddvq_u16(larger);
    }
}

static uint16_t most_sum_neon(size_t n, const uint16_t *sums) {
    uint16x8_t most = vdupq_n_u16(0);
    uint16_t rest, found;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) most = vmaxq_u16(most, vld1q_u16(sums + i));
    rest = bm25_scalar_kernel.most_sum(n - i, sums + i), found = vmaxvq_u16(most);
    return found > rest ? found : rest;
}

static void peak_sums_neon(size_t n, size_t depth, const uint16_t *sums, uint16_t *peaks) {
    for (; n > 0; n--, peaks += SUMS) {
        uint16x8_t left = vdupq_n_u16(0), right = left;
        for (size_t i = 0; i < depth; i++, sums += SUMS)
            left = vmaxq_u16(left, vld1q_u16(sums)), right = vmaxq_u16(right, vld1q_u16(sums + 8));
        vst1q_u16(peaks, left), vst1q_u16(peaks + 8, right);
    }
}

static size_t count_sums_neon(size_t n, const uint16_t *sums, uint16_t least) {
    uint16x8_t counts = vdupq_n_u16(0); /* up to 65,535 a lane: n <= 500,000 and so many more */
    size_t i = 0, found = 0;
    for (; i + 8 <= n; i += 8) {
        counts = vsubq_u16(counts, vcgeq_u16(vld1q_u16(sums + i), vdupq_n_u16(least)));
        if (i % 262144 == 262136) found += vaddlvq_u16(counts), counts = vdupq_n_u16(0);
    }
    return found + vaddlvq_u16(counts) + bm25_scalar_kernel.count_sums(n - i, sums + i, least);
}

/* ---- upper bounds ---- */

/* A block's cells in the order of its documents: 0..15 and 32..47 in one byte, 16..31 and 48..63 in another. */
static inline uint8x16x2_t cells_of(const uint8_t *bits) {
    const uint64x2_t left = vreinterpretq_u64_u8(vld1q_u8(bits)), right = vreinterpretq_u64_u8(vld1q_u8(bits + 16));
    const uint8x16x2_t cells = {{vreinterpretq_u8_u64(vtrn1q_u64(left, right)),
                                 vreinterpretq_u8_u64(vtrn2q_u64(left, right))}};
    prefetch(bits + AHEAD);
    return cells;
}

/* What each of sixteen cells is worth. */
static inline uint8x16_t low_worth(uint8x16_t worth, uint8x16_t cells) {
    return vqtbl1q_u8(worth, vandq_u8(cells, vdupq_n_u8(15)));
}
static inline uint8x16_t high_worth(uint8x16_t worth, uint8x16_t cells) {
    return vqtbl1q_u8(worth, vshrq_n_u8(cells, 4));
}

static inline void widen(uint16_t *sums, uint8x16_t worth) {
    vst1q_u16(sums, vaddw_u8(vld1q_u16(sums), vget_low_u8(worth)));
    vst1q_u16(sums + 8, vaddw_u8(vld1q_u16(sums + 8), vget_high_u8(worth)));
}

static void sum_neon(size_t n_blocks, size_t n_groups, const group *groups, uint16_t *sums) {
    memset(sums, 0, n_blocks * BLOCK * sizeof *sums);
    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = 0; i < n_blocks; i++)
            for (size_t t = 0; t < groups[g].n; t++) {
                const uint8x16_t worth = vld1q_u8(groups[g].worth[t]);
                const uint8x16x2_t cells = cells_of(groups[g].bits[t] + 32 * i);
                widen(sums + i * BLOCK, low_worth(worth, cells.val[0]));
                widen(sums + i * BLOCK + 16, low_worth(worth, cells.val[1]));
                widen(sums + i * BLOCK + 32, high_worth(worth, cells.val[0]));
                widen(sums + i * BLOCK + 48, high_worth(worth, cells.val[1]));
            }
}

static size_t sums_above_neon(size_t n_blocks, const uint16_t *sums, uint16_t least, uint32_t *hits) {
    size_t found = 0;
    for (size_t i = 0; i < n_blocks * BLOCK; i += 8)
        if (vmaxvq_u16(vld1q_u16(sums + i)) >= least)
            for (size_t j = i; j < i + 8; j++)
                if (sums[j] >= least) hits[found++] = (uint32_t)sums[j] << 16 | (uint32_t)j;
    return found;
}

/* One block of the first group; its sums are 0 afterwards. */
static inline size_t block_above(const group *g, size_t i, uint8_t *sums, uint8_t least, uint32_t *hits) {
    uint8x16_t sum[4], most;
    size_t found = 0;
    for (size_t j = 0; j < 4; j++) sum[j] = vld1q_u8(sums + 16 * j);
    for (size_t t = 0; g && t < g->n; t++) {
        const uint8x16_t worth = vld1q_u8(g->worth[t]);
        const uint8x16x2_t cells = cells_of(g->bits[t] + 32 * i);
        sum[0] = vqaddq_u8(sum[0], low_worth(worth, cells.val[0]));
        sum[1] = vqaddq_u8(sum[1], low_worth(worth, cells.val[1]));
        sum[2] = vqaddq_u8(sum[2], high_worth(worth, cells.val[0]));
        sum[3] = vqaddq_u8(sum[3], high_worth(worth, cells.val[1]));
    }
    most = vmaxq_u8(vmaxq_u8(sum[0], sum[1]), vmaxq_u8(sum[2], sum[3]));
    if (vmaxvq_u8(most) >= least) {
        for (size_t j = 0; j < 4; j++) vst1q_u8(sums + 16 * j, sum[j]);
        for (size_t j = 0; j < BLOCK; j++)
            if (sums[j] >= least) hits[found++] = (uint32_t)sums[j] << 16 | (uint32_t)(i * BLOCK + j);
    }
    memset(sums, 0, BLOCK);
    return found;
}

static size_t bytes_above_neon(size_t n_blocks, size_t n_groups, const group *groups, uint8_t *sums, uint8_t least,
                               uint32_t *hits) {
    size_t found = 0;
    for (; n_groups > 1; n_groups--, groups++) bm25_sum_bytes(n_blocks, groups, sums);
    for (size_t i = 0; i < n_blocks; i++)
        found += block_above(n_groups ? groups : NULL, i, sums + i * BLOCK, least, hits + found);
    return found;
}

const kernel bm25_neon_kernel = {
    .add_column = add_column_neon,
    .add_list = add_list_neon,
    .add_found = add_found_neon,
    .find_cells = bm25_find_cells,
    .find_many = bm25_find_many,
    .peaks = peaks_neon,
    .most = most_neon,
    .count = count_neon,
    .ranks = ranks_neon,
    .sum = sum_neon,
    .sums_above = sums_above_neon,
    .bytes_above = bytes_above_neon,
    .most_sum = most_sum_neon,
    .peak_sums = peak_sums_neon,
    .count_sums = count_sums_neon,
};
#endif
