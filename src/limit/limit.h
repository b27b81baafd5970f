/* The algorithms: pure functions of (state, numbers of the limit, now, cost). No clock, no memory, no I/O.
 *
 * A state is 116 bits, a time and 64 bits of data; all zero is unused, and a decayed state equals it:
 *
 *   token_bucket     time: when                data: tokens used then, in 1/LIMIT_TOKEN
 *   fixed_window,    time: low bits of the end data: high bit of the end · length (rounded up, 31) · count (32)
 *   calendar
 *   sliding_window   time: start of the window data: previous count (32) · count (32)
 *
 * Tokens are counted in 1/3,628,800,000: for every period that divides a week, what comes back in a millisecond is a
 * whole number of these, whatever `max` is, so nothing is lost to rounding. See src/limit/README.md. */
#ifndef LIMIT_LIMIT_H
#define LIMIT_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "limit/calendar.h"

enum limit_algorithm { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW, LIMIT_CALENDAR };

#define LIMIT_MAX_MAX UINT32_MAX
#define LIMIT_PER_MIN_US (1 * US_PER_MS)
#define LIMIT_PER_MAX_US (INT64_C(3650) * 86400 * US_PER_S)
#define LIMIT_TOKEN UINT64_C(3628800000)
#define LIMIT_NEVER_US INT64_C(-1)

struct limit_state {
    uint64_t time; /* below 2^52 */
    uint64_t data;
};

/* A divisor and its inverse, since dividing costs more than a cache hit. */
struct limit_divisor {
    uint64_t by, inverse;
};

/* The numbers of a limit, worked out once. */
struct limit {
    enum limit_algorithm algorithm;
    uint32_t max;
    uint32_t capacity; /* of a bucket: burst; else max */
    uint64_t
        share_factor; /* used × this >> 32 is its part of the capacity in 1/LIMIT_SHARES; of a bucket: units × this >> 64 */
    int64_t per_us;   /* 0 for calendar */
    int64_t window_us; /* limit_window_us; 0 for calendar */
    /* fixed_window: its length, packed, and twice that: a window that ends later than this is from a clock that was wrong
     */
    uint32_t length;
    int64_t reach_us;
    /* sliding_window: a time >> slide_shift, times slide_factor, is its part of the period in 1/2^63 */
    unsigned slide_shift;
    uint64_t slide_factor;
    /* token_bucket: every `step` microseconds exactly `step_units` come back */
    struct limit_divisor step;
    uint64_t step_units;
    uint64_t capacity_units;
    uint64_t drain_factor;   /* units × this >> 64, and drain_extra_us, is time enough for them to come back */
    uint64_t drain_extra_us; /* 1 for what the product leaves out; CLOCK_END_US where the factor does not fit */
    int64_t share_us;        /* in this time 1/LIMIT_SHARES of the capacity comes back */
    int64_t spare_us;        /* struct limit_outlook's */
    bool step_fine;          /* step is so short that a state may lag behind by one */
};

/* max and burst up to LIMIT_MAX_MAX, per within its bounds (calendar: ignored); burst 0: max. */
void limit_init(struct limit *limit, enum limit_algorithm algorithm, uint32_t max, uint32_t burst, int64_t per_us);

/* What a charge would do. `window` is the current one of a calendar limit, ignored for others. */
struct limit_take {
    bool fits;
    bool rebased; /* the clock was wrong: store `next` even where the charge does not fit */
    struct limit_state next;
};

/* The share of a limit that a state has used: LIMIT_SHARE_FULL if there is no room for 1, else from 1 to LIMIT_SHARES.
 * LIMIT_SHARE_NONE is for what is not a count (marks, numbers of receipts): it never takes the place of a count. */
enum { LIMIT_SHARE_NONE = 0, LIMIT_SHARES = 254, LIMIT_SHARE_FULL = 255 };

/* When a state will equal an unused one (rounded up; CLOCK_END_US: never), and its share. */
struct limit_outlook {
    int64_t decays_us;
    int64_t spare_us; /* a note of decays_us may well be set this much later: a bucket's moves with each charge */
    uint8_t share;
};

/* Most charges go to a state that is in its window, by a clock that did not step back, and leave room for another one. For
 * these there is a quick way: limit_take and limit_outlook at once, with a part of the arithmetic. */
struct limit_quick {
    struct limit_state next;
    int64_t decays_us;
    uint64_t share; /* below LIMIT_SHARE_FULL */
};

struct limit_report {
    uint32_t remaining;     /* whole units */
    int64_t reset_us;       /* until it is as if unused: 0 if it is, LIMIT_NEVER_US for a bucket whose max is now 0 */
    int64_t retry_after_us; /* until `cost` fits: 0 if it does now, LIMIT_NEVER_US */
};

struct limit_outlook limit_outlook_overfull(const struct limit *limit, struct limit_state state, int64_t now_us);
struct limit_report limit_report(const struct limit *limit, const struct window *window, struct limit_state state,
                                 int64_t now_us, uint32_t cost);

/* The time in which the whole capacity comes back. */
int64_t limit_window_us(const struct limit *limit, const struct window *window);

/* A cell's own time (a bucket's `when`, the start of a window), and the period beyond which it counts as wrong if it is
 * ahead of the caller's clock. */
struct limit_own_time {
    int64_t at_us;
    int64_t period_us;
};
struct limit_own_time limit_own_time(const struct limit *limit, struct limit_state state);

/* Gives back `cost`, taken at taken_us and leaving `taken`, to the state that is there now. False: nothing to give back to
 * (another window). */
bool limit_refund(const struct limit *limit, struct limit_state taken, int64_t taken_us, uint32_t cost, int64_t now_us,
                  struct limit_state *state);

/* A count that something is taken from: never below 0. */
static inline uint32_t limit_less(uint32_t count, uint32_t by)
{
    return count > by ? count - by : 0;
}

#endif
