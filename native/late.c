/* The plain loops are the truth. Inner products stay below 128 * 128 * 32768 = 2^29, so that nothing overflows, and sums
 * of integers are the same in any order. */
#include "late.h"

#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define LATE_HAS_AVX2
#include <immintrin.h>
#include <string.h>
#endif

static int32_t inner(const int16_t *asked, const int8_t *word) {
    int32_t sum = 0;
    for (size_t i = 0; i < LATE_DIM; i++) sum += asked[i] * word[i];
    return sum;
}

static int32_t best_one(const int16_t *asked, size_t n_words, const int8_t *words) {
    int32_t best = n_words ? INT32_MIN : 0;
    for (size_t w = 0; w < n_words; w++) {
        const int32_t found = inner(asked, words + w * LATE_DIM);
        if (found > best) best = found;
    }
    return best;
}

static void best_scalar(size_t n_asked, const int16_t *asked, size_t n_passages, const int8_t *const *words,
                        const uint32_t *n_words, int32_t *best) {
    for (size_t p = 0; p < n_passages; p++)
        for (size_t q = 0; q < n_asked; q++) *best++ = best_one(asked + q * LATE_DIM, n_words[p], words[p]);
}

/* Sums stay below 64 * 128 * 128 = 2^20, exact as floats; each is multiplied by itself, so that no order matters. */
static void table_scalar(const late_table *table, size_t n_asked, const uint16_t *asked, size_t n_passages,
                         const uint16_t *pieces, const uint32_t *starts, const uint32_t *n_pieces, float *best) {
    for (size_t p = 0; p < n_passages; p++)
        for (size_t q = 0; q < n_asked; q++) {
            const int8_t *wanted = table->vectors + (size_t)asked[q] * LATE_TABLE_DIM;
            float most = n_pieces[p] ? -INFINITY : 0;
            for (size_t i = 0; i < n_pieces[p]; i++) {
                const uint16_t piece = pieces[starts[p] + i];
                const int8_t *own = table->vectors + (size_t)piece * LATE_TABLE_DIM;
                int32_t sum = 0;
                for (size_t d = 0; d < LATE_TABLE_DIM; d++) sum += wanted[d] * own[d];
                const float found = (float)sum * table->scale[piece];
                if (found > most) most = found;
            }
            *best++ = most * table->scale[asked[q]];
        }
}

#ifdef LATE_HAS_AVX2
#define AVX2 __attribute__((target("avx2")))
enum { ASKED = 8, NUMBERS = 16 }; /* words of the question that are compared together; numbers in a register */

/* The sums of eight registers of eight numbers each. */
AVX2 static inline __attribute__((always_inline)) __m256i eight_sums(const __m256i of[ASKED]) {
    const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(of[0], of[1]), _mm256_hadd_epi32(of[2], of[3]));
    const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(of[4], of[5]), _mm256_hadd_epi32(of[6], of[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* Of eight words of the question; n_words is not 0. */
AVX2 static __m256i best_of_eight(const int16_t *asked, size_t n_words, const int8_t *words) {
    __m256i best = _mm256_set1_epi32(INT32_MIN);
    for (; n_words > 0; n_words--, words += LATE_DIM) {
        __m256i sums[ASKED] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                               _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                               _mm256_setzero_si256(), _mm256_setzero_si256()};
        for (size_t i = 0; i < LATE_DIM; i += NUMBERS) {
            const __m256i word = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(words + i)));
            for (size_t q = 0; q < ASKED; q++) {
                const void *here = asked + q * LATE_DIM + i;
                sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(word, _mm256_loadu_si256(here)));
            }
        }
        best = _mm256_max_epi32(best, eight_sums(sums));
    }
    return best;
}

/* Of the last words fewer than ASKED may be left: they are compared with zeros beside them. */
AVX2 static void best_avx2(size_t n_asked, const int16_t *asked, size_t n_passages, const int8_t *const *words,
                           const uint32_t *n_words, int32_t *best) {
    for (size_t q = 0; q < n_asked; q += ASKED) {
        const size_t n = n_asked - q < ASKED ? n_asked - q : ASKED;
        int16_t some[ASKED * LATE_DIM] = {0};
        memcpy(some, asked + q * LATE_DIM, n * LATE_DIM * sizeof *some);
        for (size_t p = 0; p < n_passages; p++) {
            int32_t found[ASKED] = {0};
            if (n_words[p]) _mm256_storeu_si256((void *)found, best_of_eight(some, n_words[p], words[p]));
            memcpy(best + p * n_asked + q, found, n * sizeof *found);
        }
    }
}

/* A piece of a passage, beside eight pieces asked for, as 16-bit numbers. */
AVX2 static __m256 like_eight(const late_table *table, const int16_t *asked, uint16_t piece) {
    enum { PARTS = LATE_TABLE_DIM / NUMBERS };
    const int8_t *own = table->vectors + (size_t)piece * LATE_TABLE_DIM;
    __m256i part[PARTS], sums[ASKED];
    for (size_t d = 0; d < PARTS; d++)
        part[d] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(own + d * NUMBERS)));
    for (size_t q = 0; q < ASKED; q++) {
        sums[q] = _mm256_setzero_si256();
        for (size_t d = 0; d < PARTS; d++) {
            const void *here = asked + q * LATE_TABLE_DIM + d * NUMBERS;
            sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(part[d], _mm256_loadu_si256(here)));
        }
    }
    return _mm256_mul_ps(_mm256_cvtepi32_ps(eight_sums(sums)), _mm256_set1_ps(table->scale[piece]));
}

/* What was found of the last pieces, each at its number modulo KEPT: most stand in many passages. */
enum { KEPT = 2048, NONE = UINT16_MAX + 1 };
typedef struct {
    uint32_t piece[KEPT]; /* NONE: no piece yet */
    __m256 like[KEPT];
} seen;

/* The best of a passage; n_pieces is not 0. */
AVX2 static __m256 table_of_eight(const late_table *table, const int16_t *asked, size_t n_pieces,
                                  const uint16_t *pieces, seen *before) {
    __m256 best = _mm256_set1_ps(-INFINITY);
    for (size_t i = 0; i < n_pieces; i++) {
        const size_t at = pieces[i] % KEPT;
        if (before->piece[at] != pieces[i]) {
            before->piece[at] = pieces[i];
            before->like[at] = like_eight(table, asked, pieces[i]);
        }
        best = _mm256_max_ps(best, before->like[at]);
    }
    return best;
}

AVX2 static void table_avx2(const late_table *table, size_t n_asked, const uint16_t *asked, size_t n_passages,
                            const uint16_t *pieces, const uint32_t *starts, const uint32_t *n_pieces, float *best) {
    seen before;
    for (size_t q = 0; q < n_asked; q += ASKED) {
        const size_t n = n_asked - q < ASKED ? n_asked - q : ASKED;
        for (size_t i = 0; i < KEPT; i++) before.piece[i] = NONE;
        int16_t some[ASKED * LATE_TABLE_DIM] = {0};
        for (size_t i = 0; i < n * LATE_TABLE_DIM; i++)
            some[i] = table->vectors[(size_t)asked[q + i / LATE_TABLE_DIM] * LATE_TABLE_DIM + i % LATE_TABLE_DIM];
        for (size_t p = 0; p < n_passages; p++) {
            const uint16_t *own = pieces + starts[p];
            float found[ASKED] = {0};
            if (n_pieces[p]) _mm256_storeu_ps(found, table_of_eight(table, some, n_pieces[p], own, &before));
            for (size_t i = 0; i < n; i++) best[p * n_asked + q + i] = found[i] * table->scale[asked[q + i]];
        }
    }
}

int late_best_isa(void) { return __builtin_cpu_supports("avx2") ? LATE_AVX2 : LATE_SCALAR; }
#else
#define best_avx2 best_scalar
#define table_avx2 table_scalar
int late_best_isa(void) { return LATE_SCALAR; }
#endif

void late_best(int isa, size_t n_asked, const int16_t *asked, size_t n_passages, const int8_t *const *words,
               const uint32_t *n_words, int32_t *best) {
    (isa == LATE_AVX2 ? best_avx2 : best_scalar)(n_asked, asked, n_passages, words, n_words, best);
}

void late_by_lists(int isa, const late_table *table, size_t n_asked, const uint16_t *asked, size_t n_passages,
                   const uint16_t *pieces, const uint32_t *starts, const uint32_t *n_pieces, float *best) {
    (isa == LATE_AVX2 ? table_avx2 : table_scalar)(table, n_asked, asked, n_passages, pieces, starts, n_pieces, best);
}
