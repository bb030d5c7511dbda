/* Snapshots alone, for the sanitizers: cut, random and forged ones, the latter with the checksum that belongs to them.
 * Text and room are as large as they are said to be. Run it with: make -C native test */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BM25_CHUNK 1024
#include "bm25_fill.h"

#include "bm25.c"
#include "bm25_best.c"
#include "bm25_bounds.c"
#include "bm25_documents.c"
#include "bm25_exact.c"
#include "bm25_kernels.c"
#include "bm25_kernels_avx2.c"
#include "bm25_kernels_avx512.c"
#include "bm25_kernels_neon.c"
#include "bm25_memory.c"
#include "bm25_pool.c"
#include "bm25_postings.c"
#include "bm25_search.c"
#include "bm25_snapshot.c"
#include "bm25_sweep.c"
#include "bm25_terms.c"
#include "bm25_worth.c"

#include "check.h"

static bm25 *some_index(uint64_t seed, int n_documents) {
    bm25 *q = bm25_new(bm25_best_kernel(), 0.9, 0.4);
    for (int i = 0; i < n_documents; i++) {
        char text[600];
        const uint32_t n = drawn(&seed) % 30;
        size_t at = 0;
        double time;
        for (uint32_t j = 0; j < n; j++) at += (size_t)sprintf(text + at, "w%u", drawn(&seed) % (1 + drawn(&seed) % 60)) + 1;
        CHECK(bm25_add(q, i, i, n, at ? at - 1 : 0, text) == 0);
        if (i % 7 == 3) CHECK(bm25_remove(q, i - 3, &time) == 0);
    }
    return q;
}

static int64_t find_some(bm25 *q) {
    int64_t ids[30];
    float scores[30];
    return bm25_search(q, 3, 8, "w1\0w7\0w30", 30, 0, NULL, -HUGE_VAL, ids, scores);
}

static void search_all_ways(bm25 *q) {
    for (int path = 0; path < 3; path++) {
        bm25_choose(q, path);
        CHECK(find_some(q) >= 0);
    }
}

/* Whatever it holds, it can be searched, added to, swept and dumped. */
static void use(bm25 *q, uint64_t *seed) {
    uint8_t *again;
    search_all_ways(q);
    for (int i = 0; i < 80; i++) {
        char text[64];
        const size_t n = (size_t)sprintf(text, "w%u%cw1%cw%u", drawn(seed) % 60, 0, 0, drawn(seed) % 60);
        CHECK(bm25_add(q, -5 - i, 0, 3, n, text) == 0);
    }
    for (int i = 0; i < 80; i++) {
        double time;
        CHECK(bm25_remove(q, -5 - i, &time) == 0);
    }
    search_all_ways(q);
    CHECK(bm25_dump(q, &again) > 0 && find_some(q) >= 0);
    bm25_free_snapshot(again);
}

static void load_forged(const uint8_t *whole, size_t size, uint64_t seed) {
    const size_t kept = drawn(&seed) % 4 ? size : drawn(&seed) % (size + 1);
    uint8_t *const forged = aligned_alloc(LINE, kept / LINE * LINE + (kept % LINE ? LINE : 0) + (kept ? 0 : LINE));
    bm25 *q = bm25_new(bm25_best_kernel(), 0.9, 0.4);
    memcpy(forged, whole, kept);
    for (uint32_t i = drawn(&seed) % 5; kept && i > 0; i--)
        forged[drawn(&seed) % (drawn(&seed) % 2 ? kept : kept < 200 ? kept : 200)] = (uint8_t)drawn(&seed);
    if (kept >= sizeof(header) && kept % LINE == 0) {
        header h;
        summing sum;
        memcpy(&h, forged, sizeof h);
        sum = begin_sum(&h, forged), h.checksum = end_sum(&sum, kept);
        memcpy(forged, &h, sizeof h);
    }
    if (bm25_load(q, kept, forged, (int)(seed % 2)) == 0) use(q, &seed);
    bm25_free(q), free(forged);
}

int main(void) {
    for (uint64_t seed = 0; seed < 4; seed++) {
        bm25 *q = some_index(seed, seed % 2 ? 3000 : 60), *again = bm25_new(bm25_best_kernel(), 0.9, 0.4);
        bm25 *mapped = bm25_new(bm25_best_kernel(), 0.9, 0.4);
        uint8_t *whole, *exact;
        const int64_t size = bm25_dump(q, &whole);
        CHECK(size > 0 && size % LINE == 0 && (exact = aligned_alloc(LINE, (size_t)size)) != NULL);
        memcpy(exact, whole, (size_t)size);
        CHECK(bm25_load(again, (size_t)size, exact, 0) == 0 && find_some(again) == find_some(q) && bm25_count(again) == bm25_count(q));
        CHECK(bm25_load(again, (size_t)size, exact, 0) == BM25_EXISTS);
        CHECK(bm25_load(mapped, (size_t)size, exact, 1) == 0 && find_some(mapped) == find_some(q));
        CHECK(mapped->core->image == exact && again->core->image != exact);
        use(mapped, &(uint64_t){seed}), use(again, &(uint64_t){seed});
        CHECK(find_some(mapped) == find_some(again) && !memcmp(exact, whole, (size_t)size));
        for (uint64_t i = 0; i < (seed % 2 ? 200 : 3000); i++) load_forged(whole, (size_t)size, seed << 32 | i);
        bm25_free(q), bm25_free(again), bm25_free(mapped), bm25_free_snapshot(whole), free(exact);
    }
    printf("snapshots: all is well\n");
    return 0;
}
