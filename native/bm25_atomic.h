/* What one thread writes while others read. GCC and Clang take any plain object; MSVC needs the fields volatile, which
 * with /volatile:ms (build.py) means acquire and release there. */
#ifndef LANTERN_BM25_ATOMIC_H
#define LANTERN_BM25_ATOMIC_H
#include <stdint.h>

#if defined(__GNUC__)
#define SHARED
#define ALIGNED(n) __attribute__((aligned(n)))
#define acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define release(p, value) __atomic_store_n((p), (value), __ATOMIC_RELEASE)
#define settle(p, value) __atomic_store_n((p), (value), __ATOMIC_RELAXED)
/* In one order for all threads: */
#define ordered_load(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define ordered_store(p, value) __atomic_store_n((p), (value), __ATOMIC_SEQ_CST)
#define count_up(p) ((void)__atomic_fetch_add((p), 1, __ATOMIC_SEQ_CST))
#define count_down(p) ((void)__atomic_fetch_sub((p), 1, __ATOMIC_SEQ_CST))
#define exchange(p, value) __atomic_exchange_n((p), (value), __ATOMIC_ACQ_REL)
#define prefetch(p) __builtin_prefetch(p)
static inline unsigned lowest_bit(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
#elif defined(_MSC_VER)
#include <intrin.h>
#define SHARED volatile
#define ALIGNED(n) __declspec(align(n))
#define acquire(p) (*(p))
#define relaxed(p) (*(p))
#define release(p, value) ((void)(*(p) = (value)))
#define settle(p, value) ((void)(*(p) = (value)))
#define ordered_load(p) (full_fence(), *(p))
#define ordered_store(p, value) (*(p) = (value), full_fence())
#define count_up(p) ((void)_InterlockedIncrement64((volatile __int64 *)(p)))
#define count_down(p) ((void)_InterlockedDecrement64((volatile __int64 *)(p)))
#define exchange(p, value) _InterlockedExchangePointer((void *volatile *)(p), (value))
#define prefetch(p) ((void)(p))
static inline void full_fence(void) {
    static volatile long fence;
    _InterlockedOr(&fence, 0);
}
static inline unsigned lowest_bit(uint64_t x) {
    unsigned n = 0;
    while (!(x & 1)) x >>= 1, n++;
    return n;
}
#else
#error "bm25 needs GCC, Clang or MSVC"
#endif

#endif
