/* The generic cell rate algorithm of CL.THROTTLE. Its answers equal those of redis-cell to the digit, so that users of
 * redis-cell can switch to weir by changing a port. Rules do not offer it: its numbers come with each call, and a changed
 * rate changes what was used.
 *
 * The time of a state is the millisecond in which it expires (0: there is no state; GCRA_KEPT: it does not expire), its
 * data the theoretical arrival time in nanoseconds. Callers can see that it expires by the millisecond, often a little
 * before its arrival time. */
#ifndef THROTTLE_GCRA_H
#define THROTTLE_GCRA_H

#include "limit/limit.h"

#define GCRA_KEPT ((UINT64_C(1) << CLOCK_BITS) - 1)

enum gcra_code {
    GCRA_OK,
    GCRA_ZERO_RATE, /* count or period is 0, or there is less than a nanosecond for each */
    GCRA_TOO_LARGE, /* redis-cell would go on with numbers that have wrapped */
    GCRA_EXPIRED,   /* a negative quantity leaves a time that has passed; redis-cell stores it, and fails then */
};

/* The numbers of one call. */
struct gcra {
    int64_t limit; /* max_burst and 1 */
    int64_t emission_ns, tolerance_ns, increment_ns;
};

/* Any numbers may be given. */
enum gcra_code gcra_init(struct gcra *ret, int64_t max_burst, int64_t count, int64_t period_s, int64_t quantity);

struct gcra_answer {
    bool limited;
    int64_t limit, remaining;
    int64_t retry_after_s; /* -1: not limited, or no wait will help */
    int64_t reset_after_s;
};

struct gcra_take {
    enum gcra_code code; /* GCRA_OK: there is an answer */
    bool writes;         /* what follows it takes the place of the state */
    struct limit_state next;
    struct limit_outlook outlook;
    struct gcra_answer answer;
};

struct gcra_take gcra_take(const struct gcra *gcra, struct limit_state state, int64_t now_us);

#endif
