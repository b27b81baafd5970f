/* The words of a cell: 8 bytes, and 16 bytes at once for its state.
 *
 * All are sequentially consistent. Two callers that make a cell for the same key each write one place and then read the
 * other's; anything weaker would let them miss each other. On x86-64 that costs nothing: its loads are plain either way.
 *
 * A 16-byte load must not write, or refusals of one hot subject would fight over its cache line: on x86-64 an aligned
 * 16-byte SSE load is atomic wherever the CPU has AVX (both makers say so), elsewhere a compare-and-swap has to do. Two
 * halves rather than one __int128, which compilers keep on the stack, where it costs a decision a tenth of its time. */
#ifndef CELLS_ATOMIC_H
#define CELLS_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t load_8(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline bool cas_8(uint64_t *p, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* For words that a checksum covers: nothing depends on their order. */
static inline uint64_t load_plain(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline void store_plain(uint64_t *p, uint64_t word)
{
    __atomic_store_n(p, word, __ATOMIC_RELAXED);
}

typedef struct {
    _Alignas(16) uint64_t low;
    uint64_t high;
} word16;

static inline bool same_16(word16 a, word16 b)
{
    return a.low == b.low && a.high == b.high;
}

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

#if defined(CELLS_TSAN) || defined(__aarch64__)

static inline unsigned __int128 join_16(word16 w)
{
    return (unsigned __int128)w.high << 64 | w.low;
}

#endif

#if defined(CELLS_TSAN)

static inline word16 load_16(word16 *p)
{
    unsigned __int128 n = __atomic_load_n((unsigned __int128 *)p, __ATOMIC_SEQ_CST);
    return (word16){ (uint64_t)n, (uint64_t)(n >> 64) };
}

static inline bool cas_16(word16 *p, word16 from, word16 to)
{
    unsigned __int128 was = join_16(from);
    return __atomic_compare_exchange_n((unsigned __int128 *)p, &was, join_16(to), false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

#elif defined(__aarch64__)

static inline word16 load_16(word16 *p)
{
    unsigned __int128 n = __sync_val_compare_and_swap((unsigned __int128 *)p, 0, 0);
    return (word16){ (uint64_t)n, (uint64_t)(n >> 64) };
}

static inline bool cas_16(word16 *p, word16 from, word16 to)
{
    return __sync_bool_compare_and_swap((unsigned __int128 *)p, join_16(from), join_16(to));
}

#else

extern bool cells_cpu_has_avx; /* set before a table is first used */

static inline bool cas_16(word16 *p, word16 from, word16 to)
{
    bool done;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(done), "+m"(*p), "+a"(from.low), "+d"(from.high)
                     : "b"(to.low), "c"(to.high)
                     : "memory");
    return done;
}

static inline word16 load_16(word16 *p)
{
    word16 w = { 0, 0 };
    if (__builtin_expect(cells_cpu_has_avx, 1)) {
        __asm__ volatile("vmovdqa %2, %%xmm0\n\tvmovq %%xmm0, %0\n\tvpextrq $1, %%xmm0, %1"
                         : "=r"(w.low), "=r"(w.high)
                         : "m"(*p)
                         : "xmm0", "memory");
        return w;
    }
    /* Puts 0 in the place of 0, or says what else is there. */
    __asm__ volatile("lock cmpxchg16b %0" : "+m"(*p), "+a"(w.low), "+d"(w.high) : "b"(0L), "c"(0L) : "memory", "cc");
    return w;
}

#endif
#endif
