/* The words of a cell: 8 bytes, and 16 bytes at once for its state.
 *
 * All are sequentially consistent. Two who make a cell for the same key each write one place and then read the other's;
 * anything weaker lets both miss each other. On x86-64 that costs nothing: its loads are plain either way.
 *
 * A load must not write, or refusals of one hot subject would fight over its cache line: on x86-64 an aligned 16-byte SSE
 * load is atomic wherever the CPU has AVX (both makers say so), elsewhere a compare-and-swap has to do. */
#ifndef CELLS_ATOMIC_H
#define CELLS_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

typedef unsigned __int128 u128;

#if defined(__SANITIZE_THREAD__)
#define CELLS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CELLS_TSAN 1
#endif
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "weir needs a 16-byte compare-and-swap: x86-64 or aarch64"
#endif

static inline uint64_t load_8(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline bool cas_8(uint64_t *p, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

#if defined(CELLS_TSAN)

static inline u128 load_16(u128 *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline bool cas_16(u128 *p, u128 from, u128 to)
{
    return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

#else

#if defined(__x86_64__)
#include <immintrin.h>
extern bool cells_cpu_has_avx; /* set before a table is first used */
#endif

static inline u128 load_16(u128 *p)
{
#if defined(__x86_64__)
    if (__builtin_expect(cells_cpu_has_avx, 1)) {
        __m128i v;
        __asm__ volatile("vmovdqa %1, %0" : "=x"(v) : "m"(*p) : "memory");
        uint64_t low = (uint64_t)_mm_cvtsi128_si64(v);
        uint64_t high = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(v, v));
        return (u128)high << 64 | low;
    }
#endif
    return __sync_val_compare_and_swap(p, (u128)0, (u128)0);
}

static inline bool cas_16(u128 *p, u128 from, u128 to)
{
    return __sync_bool_compare_and_swap(p, from, to);
}

#endif
#endif
