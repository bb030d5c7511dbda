/* The C side alone, for the sanitizers: kernels equal to the bit, memory that runs out at every place, no leak.
 * What the results must be is tested from Python, tests/test_bm25.py. Run it with: make -C native test */
#include <stdio.h>
#include <stdlib.h>

static long allocations_left = -1; /* -1: no limit */

static void *meagre_realloc(void *old, size_t size) {
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    return realloc(old, size);
}

#define realloc meagre_realloc
#include "bm25.c"
#include "bm25_search.c"
#undef realloc

#define CHECK(truth)                                                        \
    do {                                                                    \
        if (!(truth)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #truth); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

enum { DOCUMENTS = 1200, VOCABULARY = 60, WORDS = 20, K = 50 };

static uint32_t drawn(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

static void fill(bm25 *q, uint64_t seed, int n) {
    uint32_t terms[WORDS];
    for (int i = 0; i < n; i++) {
        const uint32_t words = drawn(&seed) % WORDS;
        const float weight = (float)drawn(&seed) / 1e9f;
        double time;
        for (uint32_t j = 0; j < words; j++) terms[j] = drawn(&seed) % (1 + drawn(&seed) % VOCABULARY);
        CHECK(bm25_add(q, i * 7919 % 4099, i, words, terms) == 0);
        CHECK(bm25_add(q, i * 7919 % 4099, i, words, terms) == BM25_EXISTS);
        if (words) CHECK(bm25_add_weights(q, i * 7919 % 4099, 1, terms, &weight) == 0);
        if (i % 3 == 1) CHECK(bm25_remove(q, i * 7919 % 4099, &time) == 0 && time == i);
    }
    CHECK(bm25_remove(q, -1, &(double){0}) == BM25_ABSENT);
    CHECK(bm25_add_weights(q, -1, 0, terms, NULL) == BM25_ABSENT);
}

static void test_kernels_agree_bit_for_bit(void) {
    const uint32_t query[] = {0, 5, 0, 17, VOCABULARY + 1000, 59};
    for (int n = 0; n < DOCUMENTS; n = n < 40 ? n + 1 : 2 * n) {
        int64_t ids[2][K], found[2], allow[400];
        float scores[2][K];
        for (int i = 0; i < 400; i++) allow[i] = 5 * i;
        for (int filter = 0; filter < 3; filter++) {
            for (int best = 0; best < 2; best++) {
                bm25 *q = bm25_new(best ? bm25_best_kernel() : BM25_SCALAR, 0.9, 0.4);
                CHECK(q);
                fill(q, 1 + (uint64_t)n, n);
                found[best] = bm25_search(q, 6, query, K, 400, filter == 1 ? allow : NULL,
                                          filter == 2 ? n / 2.0 : -HUGE_VAL, ids[best], scores[best]);
                CHECK(found[best] >= 0 && found[best] <= K);
                bm25_free(q);
            }
            CHECK(found[0] == found[1]);
            CHECK(!memcmp(ids[0], ids[1], (size_t)found[0] * sizeof **ids));
            CHECK(!memcmp(scores[0], scores[1], (size_t)found[0] * sizeof **scores));
            for (int64_t i = 1; i < found[0]; i++)
                CHECK(scores[0][i - 1] > scores[0][i] ||
                      (scores[0][i - 1] == scores[0][i] && ids[0][i - 1] > ids[0][i]));
        }
    }
}

/* Each step fails at its first, second, ... allocation, leaves the index as it was, and succeeds when tried again. */
static void test_running_out_of_memory_changes_nothing(void) {
    const uint32_t query[] = {0, 1, 2};
    bm25 *q = NULL;
    uint64_t seed = 9;
    for (long left = 0; !q; left++) allocations_left = left, q = bm25_new(bm25_best_kernel(), 0.9, 0.4);
    for (int i = 0; i < 300; i++) {
        uint32_t terms[WORDS];
        const float weights[] = {1, 2, 3};
        int64_t ids[K], found = -1;
        float scores[K];
        int code = BM25_NO_MEMORY;
        const uint32_t weighed[] = {(uint32_t)i / 9, 1000 + (uint32_t)i, 2000};
        for (int j = 0; j < WORDS; j++) terms[j] = drawn(&seed) % (uint32_t)(1 + 10 * i);
        for (long left = 0; code; left++) {
            CHECK(bm25_count(q) == (size_t)i && !bm25_has(q, i));
            allocations_left = left;
            code = bm25_add(q, i, 0, WORDS, terms);
            CHECK(code == 0 || code == BM25_NO_MEMORY);
        }
        for (long left = 0, tried = BM25_NO_MEMORY; tried; left++)
            allocations_left = left, tried = bm25_add_weights(q, i, 3, weighed, weights);
        for (long left = 0; found < 0; left++)
            allocations_left = left, found = bm25_search(q, 3, query, K, 0, NULL, 0, ids, scores);
        CHECK(found <= i + 1);
    }
    allocations_left = -1;
    bm25_free(q);
}

static void test_what_cannot_be_is_refused(void) {
    CHECK(!bm25_new((bm25_kernel)7, 0.9, 0.4));
    bm25_free(NULL);
}

int main(void) {
    test_kernels_agree_bit_for_bit();
    test_running_out_of_memory_changes_nothing();
    test_what_cannot_be_is_refused();
    printf("bm25: all is well (%s)\n", bm25_best_kernel() == BM25_AVX2 ? "avx2" : "scalar");
    return 0;
}
