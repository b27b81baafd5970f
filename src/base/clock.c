#include "base/clock.h"

#include <stdbool.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

int64_t clock_now_us(void)
{
    return read_clock(CLOCK_REALTIME);
}

int64_t clock_steady_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* ---- the recent time ---- */

/* Reading the clock takes as long as half of a decision, the CPU's counter of ticks a third of that. So a thread keeps its
 * last reading with the count from just before it, and returns it again until RECENT ticks later. Any other count means
 * that the clock has to be read: the thread slept or was stopped, the machine was suspended or has moved, or the thread is
 * on another CPU whose counter is ahead or behind. A clock that somebody sets is seen when the reading is that old.
 *
 * The counter must go on while a CPU sleeps, and at one pace. That of aarch64 does. */

#if defined(__x86_64__)

/* 2 to 8 microseconds, at 1 to 4 GHz. */
static inline uint64_t recent_ticks(void)
{
    return 8192;
}

static inline uint64_t ticks(void)
{
    return __builtin_ia32_rdtsc();
}

/* Returns whether the CPU promises it ("invariant TSC"). */
static bool ticks_are_steady(void)
{
    enum { LEAF = (int)0x80000007, INVARIANT = 1 << 8 };
    unsigned a, b, c, d;
    return __get_cpuid((unsigned)LEAF, &a, &b, &c, &d) && (d & INVARIANT);
}

#else

/* 4 microseconds; 0 if the counter is too slow for that. */
static inline uint64_t recent_ticks(void)
{
    uint64_t per_s;
    __asm__("mrs %0, cntfrq_el0" : "=r"(per_s));
    return per_s >> 18;
}

static inline uint64_t ticks(void)
{
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
}

static bool ticks_are_steady(void)
{
    return true;
}

#endif

static _Thread_local struct {
    uint64_t ticks;
    int64_t now_us; /* 0: not read yet */
} last;

static __attribute__((noinline)) int64_t read_again(uint64_t at)
{
    static int steady; /* 0: not known; atomic */
    int known = __atomic_load_n(&steady, __ATOMIC_RELAXED);
    if (known == 0) {
        known = ticks_are_steady() ? 1 : -1;
        __atomic_store_n(&steady, known, __ATOMIC_RELAXED);
    }
    int64_t now_us = clock_now_us();
    if (known > 0) {
        last.ticks = at;
        last.now_us = now_us;
    }
    return now_us;
}

int64_t clock_recent_us(void)
{
    uint64_t at = ticks();
    int64_t now_us = last.now_us;
    return __builtin_expect(at - last.ticks < recent_ticks() && now_us != 0, 1) ? now_us : read_again(at);
}
