/* The C side alone, for the sanitizers: kernels and ways of searching equal to the bit, memory that runs out at every
 * place, threads, no leak. Chunks are small here, so that a thousand documents fill some. What the results must be is
 * tested from Python, tests/test_bm25.py. Run it with: make -C native test */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long allocations_left = -1; /* -1: no limit */

static void *meagre_realloc(void *old, size_t size) {
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    return realloc(old, size);
}

#define BM25_CHUNK 1024
#define BM25_RETIRED 1
#define realloc meagre_realloc
#include "bm25_memory.c"

/* What is taken out of the index may be dropped at once, so no search may find it any more. */
static void check_gone(const core *c, const void *p);
static void retire(bm25 *q, const core *c, void *p, void (*drop)(void *)) {
    if (p) check_gone(c, p);
    bm25_retire(q, p, drop);
}
static void let_go(bm25 *q, const core *c, void *p, void (*drop)(void *)) {
    if (p) check_gone(c, p);
    bm25_let_go(q, c, p, drop);
}
#define bm25_retire(q, p, drop) retire(q, (q)->core, p, drop)
#define bm25_let_go let_go
#include "bm25.c"
#include "bm25_best.c"
#include "bm25_bounds.c"
#include "bm25_documents.c"
#include "bm25_exact.c"
#include "bm25_kernels.c"
#include "bm25_kernels_avx2.c"
#include "bm25_kernels_avx512.c"
#include "bm25_kernels_neon.c"
#include "bm25_pool.c"
#include "bm25_postings.c"
#include "bm25_search.c"
#include "bm25_snapshot.c"
#include "bm25_sweep.c"
#include "bm25_terms.c"
#include "bm25_worth.c"
#undef realloc

#include "check.h"

static void check_gone(const core *c, const void *p) {
    const dictionary *const d = c->dictionary;
    CHECK(p != c && p != c->docs && p != c->map && p != d && p != c->removed);
    for (uint64_t i = 0; i <= d->mask; i++) {
        const term *const t = d->at[i];
        if (!t) continue;
        CHECK(p != t->list && p != t->columns && p != t->rare && p != t->weights);
        for (uint32_t at = 0; t->columns && at < t->columns->n; at++) CHECK(p != t->columns->at[at].column);
    }
}

enum { KERNELS = BM25_AVX512 + 1, VOCABULARY = 400, WORDS = 40, K = 20, TEXT = WORDS * 24, THREADS = 3 };

/* n words, the first of the vocabulary most often, as one text. */
static size_t write_text(uint64_t *seed, uint32_t n, uint32_t vocabulary, char *text) {
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t word = drawn(seed) % (1 + drawn(seed) % (1 + drawn(seed) % vocabulary));
        at += (size_t)sprintf(text + at, word % 3 ? "w%u" : "a_longer_word_%u", word) + 1;
    }
    return at ? at - 1 : 0;
}

static int add(bm25 *q, int64_t id, double time, uint64_t seed) {
    char text[TEXT];
    const uint32_t n = drawn(&seed) % WORDS;
    const size_t n_bytes = write_text(&seed, n, VOCABULARY, text);
    return bm25_add(q, id, time, n, n_bytes, text);
}

static int64_t find(bm25 *q, uint64_t seed, size_t k, int filter, int64_t *ids, float *scores) {
    char text[TEXT];
    int64_t allow[2000];
    const uint32_t n = 1 + drawn(&seed) % 12;
    const size_t n_bytes = write_text(&seed, n, VOCABULARY + 50, text), n_allow = filter == 1 ? 30 : 2000;
    for (size_t i = 0; i < n_allow; i++) allow[i] = drawn(&seed) % 4099;
    return bm25_search(q, n, n_bytes, text, k, n_allow, filter == 1 || filter == 2 ? allow : NULL,
                       filter == 3 ? (double)(drawn(&seed) % 4000) : -HUGE_VAL, ids, scores);
}

typedef struct {
    int64_t found, ids[K];
    float scores[K];
} result;

/* An index of each kernel that this CPU has, the scalar one first; returns how many there are. */
static int new_indexes(double k1, double b, bm25 **indexes) {
    int n = 0;
    for (int name = 0; name < KERNELS; name++) {
        if (!bm25_has_kernel((bm25_kernel)name)) continue;
        CHECK((indexes[n++] = bm25_new((bm25_kernel)name, k1, b)) != NULL);
    }
    return n;
}

static void free_indexes(int n, bm25 *const *indexes) {
    for (int i = 0; i < n; i++) bm25_free(indexes[i]);
}

static void check_same(int n, bm25 *const *indexes, uint64_t seed) {
    for (int filter = 0; filter < 4; filter++) {
        result first = {0};
        const size_t k = 1 + seed % K;
        for (int i = 0; i < 3 * n; i++) { /* each kernel all three ways */
            result r = {0};
            bm25_choose(indexes[i % n], i / n);
            r.found = find(indexes[i % n], seed, k, filter, r.ids, r.scores);
            CHECK(r.found >= 0 && r.found <= (int64_t)k);
            if (i == 0) first = r;
            CHECK(!memcmp(&first, &r, sizeof r));
        }
        for (int64_t i = 1; i < first.found; i++)
            CHECK(first.scores[i - 1] > first.scores[i] ||
                  (first.scores[i - 1] == first.scores[i] && first.ids[i - 1] > first.ids[i]));
    }
}

enum { BLOCKS = 9, MOST = BLOCKS * BLOCK };

static void draw_groups(uint64_t *seed, group *groups, uint8_t bits[2][A_GROUP][MOST / 2]) {
    for (int g = 0; g < 2; g++) {
        groups[g].n = g ? drawn(seed) % (A_GROUP + 1) : A_GROUP;
        for (size_t t = 0; t < A_GROUP; t++) {
            for (size_t i = 0; i < MOST / 2; i++) bits[g][t][i] = (uint8_t)(drawn(seed) % 3 ? drawn(seed) : 0);
            for (size_t i = 1; i < CELLS; i++) groups[g].worth[t][i] = (uint8_t)(drawn(seed) % 120);
            groups[g].worth[t][0] = 0, groups[g].bits[t] = bits[g][t];
        }
    }
}

static void check_sums(const kernel *x, const kernel *y, uint64_t *seed) {
    static uint8_t bits[2][A_GROUP][MOST / 2], bytes[2][MOST];
    static uint16_t sums[2][MOST], peaks[2][MOST];
    static uint32_t hits[2][MOST + BLOCK];
    group groups[2];
    const uint16_t least = (uint16_t)(drawn(seed) % 800);
    draw_groups(seed, groups, bits);
    for (size_t n_groups = 0; n_groups < 3; n_groups++)
        for (size_t n = 0; n <= BLOCKS; n++) {
            const size_t first = 2 - n_groups; /* the second alone, then both */
            size_t found;
            for (size_t i = 0; i < MOST; i++)
                sums[0][i] = sums[1][i] = (uint16_t)(drawn(seed) % 300), bytes[0][i] = bytes[1][i] = (uint8_t)drawn(seed);
            x->sum(n, n_groups, groups + first % 2, sums[0]), y->sum(n, n_groups, groups + first % 2, sums[1]);
            CHECK(!memcmp(sums[0], sums[1], sizeof *sums));
            CHECK(x->most_sum(n * BLOCK - n, sums[0]) == y->most_sum(n * BLOCK - n, sums[0]));
            CHECK(x->count_sums(n * BLOCK - n, sums[0], least) == y->count_sums(n * BLOCK - n, sums[0], least));
            x->peak_sums(n, 3, sums[0], peaks[0]), y->peak_sums(n, 3, sums[0], peaks[1]);
            CHECK(!memcmp(peaks[0], peaks[1], n * SUMS * sizeof **peaks));
            found = x->sums_above(n, sums[0], least, hits[0]);
            CHECK(found == y->sums_above(n, sums[1], least, hits[1]));
            CHECK(!memcmp(hits[0], hits[1], found * sizeof **hits));
            found = x->bytes_above(n, n_groups, groups + first % 2, bytes[0], (uint8_t)(least | 1), hits[0]);
            CHECK(found == y->bytes_above(n, n_groups, groups + first % 2, bytes[1], (uint8_t)(least | 1), hits[1]));
            CHECK(!memcmp(hits[0], hits[1], found * sizeof **hits) && !memcmp(bytes[0], bytes[1], sizeof *bytes));
        }
}

static void check_floats(const kernel *x, const kernel *y, uint64_t *seed) {
    static uint64_t words[MOST / 16];
    static uint32_t length[MOST], slot[MOST], cells[MOST], places[2][MOST + 16];
    static uint8_t code[MOST];
    static float tf[MOST], norm[MOST], scores[2][MOST], peaks[2][MOST], found[2][MOST];
    static uint16_t ranks[2][MOST];
    static int16_t keys[MOST + SUMS];
    const float k1 = drawn(seed) % 4 ? 0.9f : 0, gain = 0.001f * (float)(drawn(seed) % 9999), a = 0.6f * k1, c = k1 / 143;
    const size_t n = drawn(seed) % (MOST - LANES);
    size_t many;
    for (size_t i = 0; i < MOST; i++) {
        if (i % 16 == 0) words[i / 16] = (uint64_t)drawn(seed) << 33 ^ drawn(seed);
        cells[i] = drawn(seed) % (4 * MOST) / 4 * 4, length[i] = drawn(seed) % 2000, slot[i] = (uint32_t)(i * 5 % MOST), code[i] = (uint8_t)drawn(seed);
        tf[i] = (float)(drawn(seed) % 7), norm[i] = a + c * (float)length[i], scores[0][i] = scores[1][i] = (float)(i % 9) - 3;
    }
    x->add_column(n / 16, words, gain, a, c, length, scores[0]), y->add_column(n / 16, words, gain, a, c, length, scores[1]);
    x->add_list(n, slot, code, gain, a, c, length, scores[0]), y->add_list(n, slot, code, gain, a, c, length, scores[1]);
    x->add_found(n, tf, norm, gain, scores[0]), y->add_found(n, tf, norm, gain, scores[1]);
    CHECK(!memcmp(scores[0], scores[1], sizeof *scores));
    x->find_cells(n, cells, words, found[0]), y->find_cells(n, cells, words, found[1]);
    CHECK(!memcmp(found[0], found[1], n * sizeof **found));
    CHECK((many = x->find_many(n, tf, places[0])) == y->find_many(n, tf, places[1]));
    CHECK(!memcmp(places[0], places[1], many * sizeof **places));
    x->peaks(MOST / LANES / 3, 3, scores[0], peaks[0]), y->peaks(MOST / LANES / 3, 3, scores[0], peaks[1]);
    CHECK(!memcmp(peaks[0], peaks[1], MOST / 3 * sizeof **peaks));
    CHECK(x->count(n, scores[0], gain) == y->count(n, scores[0], gain) && !(x->most(64, scores[0]) < y->most(64, scores[0])) &&
          !(x->most(64, scores[0]) > y->most(64, scores[0])));
    for (size_t i = 0; i < n + SUMS; i++) keys[i] = (int16_t)(i < n ? drawn(seed) % 200 : 0);
    x->ranks(n, keys, ranks[0]), y->ranks(n, keys, ranks[1]);
    CHECK(!memcmp(ranks[0], ranks[1], n * sizeof **ranks));
}

static void test_each_kernel_gives_what_the_scalar_one_gives(uint64_t seed) {
    for (int name = 0; name < KERNELS; name++) {
        const kernel *const x = bm25_kernel_of(BM25_SCALAR), *const y = bm25_kernel_of((bm25_kernel)name);
        if (y) check_sums(x, y, &seed);
        for (int i = 0; y && i < 50; i++) check_floats(x, y, &seed);
    }
}

/* weighed: weights now and then; removals: one document in so many goes again. */
static void test_kernels_and_ways_agree_bit_for_bit(uint64_t seed, int n, int weighed, int removals, double k1,
                                                    double b) {
    bm25 *q[KERNELS];
    const int n_q = new_indexes(k1, b, q);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n_q; j++) {
            const float weight = (float)(i % 7) - 2;
            double time;
            CHECK(add(q[j], i * 7919 % 4099, i, seed + (uint64_t)i) == 0);
            CHECK(add(q[j], i * 7919 % 4099, i, seed) == BM25_EXISTS);
            if (weighed && i % 5 == 0) CHECK(bm25_add_weights(q[j], i * 7919 % 4099, 1, 2, "w1", &weight) == 0);
            if (removals && i % removals == 1) {
                const int gone = (i - 1 - i / 3) * 7919 % 4099;
                const int had = bm25_has(q[j], gone);
                CHECK(bm25_remove(q[j], gone, &time) == (had ? 0 : BM25_ABSENT));
            }
        }
        for (int j = 1; j < n_q; j++) CHECK(bm25_count(q[0]) == bm25_count(q[j]));
        if (i % 97 == 0 || i == n - 1) check_same(n_q, q, seed + (uint64_t)i);
    }
    free_indexes(n_q, q);
}

/* The best documents all stand in the first chunk, so what it suggests is too much to hope for. */
static void test_a_hope_that_fails_costs_no_result(void) {
    bm25 *q[KERNELS];
    const int n_q = new_indexes(0.9, 0.4, q);
    for (int i = 0; i < 6000; i++)
        for (int j = 0; j < n_q; j++) {
            char text[TEXT + 16] = "here\0here\0gem";
            uint64_t seed = (uint64_t)i;
            const uint32_t n = 1 + drawn(&seed) % (WORDS - 3);
            const size_t skipped = i % 60 == 7 && i < 1000 ? 0 : i % 3 ? 14 : 5; /* all three words, none, two */
            const size_t n_bytes = 14 + write_text(&seed, n, VOCABULARY, text + 14);
            const size_t words = n + (skipped == 14 ? 0 : skipped ? 2 : 3);
            CHECK(bm25_add(q[j], i, i, words, n_bytes - skipped, text + skipped) == 0);
        }
    for (int k = 1; k <= K; k++) {
        result first = {0};
        for (int i = 0; i < 3 * n_q; i++) {
            result r = {0};
            bm25_choose(q[i % n_q], i / n_q);
            r.found = bm25_search(q[i % n_q], 3, 11, "here\0gem\0w1", (size_t)k, 0, NULL, -HUGE_VAL, r.ids, r.scores);
            CHECK(r.found == k);
            if (i == 0) first = r;
            CHECK(!memcmp(&first, &r, sizeof r));
        }
    }
    free_indexes(n_q, q);
}

/* Each step fails at its first, second, ... allocation, leaves the index as it was, and succeeds when tried again. */
static void test_running_out_of_memory_changes_nothing(void) {
    bm25 *q = NULL;
    int64_t count = 0;
    for (long left = 0; !q; left++) allocations_left = left, q = bm25_new(bm25_best_kernel(), 0.9, 0.4);
    for (int i = 0; i < 1300; i++) {
        const float values[] = {1, 2, 3};
        int64_t ids[K], found = -1;
        float scores[K];
        double time;
        int code = BM25_NO_MEMORY;
        for (long left = 0; code; left++) {
            CHECK(bm25_count(q) == (size_t)count && !bm25_has(q, i));
            allocations_left = left;
            code = add(q, i, 0, (uint64_t)i);
            CHECK(code == 0 || code == BM25_NO_MEMORY);
        }
        count++;
        if (i % 100 == 3) {
            for (long left = 0, tried = BM25_NO_MEMORY; tried; left++)
                allocations_left = left, tried = bm25_add_weights(q, i, 3, 8, "w1\0wx\0wz", values);
            for (int way = 0; way < 3; way++, found = -1) {
                bm25_choose(q, way);
                for (long left = 0; found < 0; left++)
                    allocations_left = left, found = find(q, (uint64_t)i, K, i % 4, ids, scores);
            }
        }
        for (long left = 0, tried = BM25_NO_MEMORY; i % 3 == 0 && tried; left++, count -= !tried)
            allocations_left = left, tried = bm25_remove(q, i, &time);
    }
    allocations_left = -1;
    bm25_free(q);
}

static void test_what_cannot_be_is_refused(void) {
    bm25 *q = bm25_new(bm25_best_kernel(), 0.9, 0.4);
    const float values[] = {1, 1};
    int64_t ids[1];
    float scores[1];
    double time;
    CHECK(!bm25_new((bm25_kernel)7, 0.9, 0.4));
    CHECK(bm25_add(q, 1, 0, 2, 1, "a") == BM25_TERMS && bm25_add(q, 1, 0, 1, 3, "a\0b") == BM25_TERMS);
    CHECK(bm25_add(q, 1, 0, 0, 1, "a") == BM25_TERMS && bm25_count(q) == 0);
    CHECK(bm25_add(q, 1, 0, 2, 1, "\0") == 0 && bm25_add(q, 2, 0, 0, 0, "") == 0 && bm25_add(q, 3, 0, 1, 0, "") == 0);
    CHECK(bm25_search(q, 1, 0, "", 1, 0, NULL, -HUGE_VAL, ids, scores) == 1 && ids[0] == 1);
    CHECK(bm25_remove(q, -1, &time) == BM25_ABSENT && bm25_add_weights(q, -1, 0, 0, "", NULL) == BM25_ABSENT);
    CHECK(bm25_add_weights(q, 1, 2, 3, "a\0a", values) == BM25_TERMS);
    bm25_free(q), bm25_free(NULL);
}

/* ---- threads ---- */

enum { SHARED_DOCUMENTS = 6000 };
static bm25 *shared;
static int done, watching;

static void *watch(void *unused) {
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    int64_t searches = 0, last = 0;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        int64_t ids[K], found;
        float scores[K];
        found = find(shared, seed, K, (int)(seed % 4), ids, scores);
        seed++;
        CHECK(found >= 0 && found <= K);
        for (int64_t i = 1; i < found; i++) CHECK(scores[i - 1] >= scores[i]);
        found = bm25_search(shared, 1, 6, "always", 1, 0, NULL, -HUGE_VAL, ids, scores);
        CHECK(found <= 1); /* all scores are equal, so the newest comes first, unless it is odd and went meanwhile */
        if (!found) continue;
        CHECK(ids[0] >= last / 2 * 2);
        last = ids[0];
        CHECK((size_t)last < SHARED_DOCUMENTS && bm25_has(shared, last) >= 0 && bm25_count(shared) <= SHARED_DOCUMENTS);
        if (!searches++) __atomic_add_fetch(&watching, 1, __ATOMIC_RELEASE);
    }
    return unused;
}

static void add_always(bm25 *q, int first, int end) {
    for (int i = first; i < end; i++) {
        char text[TEXT + 8] = "always";
        uint64_t seed = 5 + (uint64_t)i;
        const uint32_t n = 1 + drawn(&seed) % (WORDS - 1);
        const size_t n_bytes = 7 + write_text(&seed, n, VOCABULARY, text + 7);
        double time;
        CHECK(bm25_add(q, i, i, n + 1, n_bytes, text) == 0);
        if (i > 10 && i % 2) CHECK(bm25_remove(q, i - 10, &time) == 0);
    }
}

/* kept: so many of them come from a snapshot that is searched where it lies. */
static void test_searches_go_on_while_documents_come_and_go(int kept) {
    pthread_t threads[THREADS];
    bm25 *before = bm25_new(bm25_best_kernel(), 0.9, 0);
    uint8_t *bytes, *image;
    int64_t size;
    shared = bm25_new(bm25_best_kernel(), 0.9, 0), done = watching = 0;
    add_always(before, 0, kept);
    CHECK((size = bm25_dump(before, &bytes)) > 0 && (image = aligned_alloc(LINE, (size_t)size)) != NULL);
    memcpy(image, bytes, (size_t)size);
    bm25_free_snapshot(bytes), bm25_free(before);
    CHECK(bm25_load(shared, (size_t)size, image, 1) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(threads + i, NULL, watch, NULL));
    add_always(shared, kept, SHARED_DOCUMENTS);
    while (__atomic_load_n(&watching, __ATOMIC_ACQUIRE) < THREADS) sched_yield(); /* each has searched */
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
    bm25_free(shared), free(image);
}

int main(int n_arguments, char **arguments) {
    test_searches_go_on_while_documents_come_and_go(0);
    test_searches_go_on_while_documents_come_and_go(SHARED_DOCUMENTS / 2);
    if (n_arguments > 1 && !strcmp(arguments[1], "threads")) return 0;
    for (uint64_t seed = 0; seed < 5; seed++) {
        test_each_kernel_gives_what_the_scalar_one_gives(seed);
        test_kernels_and_ways_agree_bit_for_bit(seed, 70, 1, 3, 0.9, 0.4);
        test_kernels_and_ways_agree_bit_for_bit(seed, 4000, 0, 0, 0.9, 0.4);
        test_kernels_and_ways_agree_bit_for_bit(seed, 4000, 0, 2, 1.2, 0.75);
        test_kernels_and_ways_agree_bit_for_bit(seed, 1500, 1, 9, 0, 0.4);
        test_kernels_and_ways_agree_bit_for_bit(seed, 1500, 0, 9, 2, 1);
        test_kernels_and_ways_agree_bit_for_bit(seed, 4000, 0, 0, 1e36, 0.4); /* scores hardly above FLT_MIN */
        test_kernels_and_ways_agree_bit_for_bit(seed, 4000, 0, 0, 1e12, 1); /* far apart */
    }
    test_a_hope_that_fails_costs_no_result();
    test_running_out_of_memory_changes_nothing();
    test_what_cannot_be_is_refused();
    printf("bm25: all is well (%s)\n", (const char *[]){"scalar", "avx2", "neon", "avx512"}[bm25_best_kernel()]);
    return 0;
}
