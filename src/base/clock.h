/* Time is microseconds since 1970 in UTC, passed in as an argument everywhere. Only the outermost caller reads a clock.
 *
 * Microseconds, not nanoseconds: 52 bits of them last until the year 2112, which is what lets the state of every
 * algorithm fit in its cell. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define US_PER_MS INT64_C(1000)
#define US_PER_S INT64_C(1000000)

enum { CLOCK_BITS = 52 };
#define CLOCK_END_US (INT64_C(1) << CLOCK_BITS) /* every `now` is below this */

static inline bool clock_valid(int64_t now_us)
{
    return (uint64_t)now_us >> CLOCK_BITS == 0; /* not negative, and below CLOCK_END_US: one test instead of two */
}

/* Returns the nearest valid time. */
static inline int64_t clock_within(int64_t us)
{
    return us < 0 ? 0 : us < CLOCK_END_US ? us : CLOCK_END_US - 1;
}

int64_t clock_now_us(void);    /* CLOCK_REALTIME */
int64_t clock_recent_us(void); /* CLOCK_REALTIME, now or some microseconds ago: see clock.c */
int64_t clock_steady_us(void); /* CLOCK_MONOTONIC: for measuring and for waiting */

#endif
