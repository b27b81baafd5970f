/* The algorithms: pure functions of (state, numbers of the limit, now, cost). No clock, no memory, no I/O.
 *
 * A state is 116 bits, a time and 64 bits of data; all zero is unused, and a decayed state equals it:
 *
 *   token_bucket     time: when                data: tokens used then, in 1/LIMIT_TOKEN
 *                                              or LIMIT_COARSE + tokens used then, in 1/LIMIT_TOKEN_COARSE
 *   fixed_window,    time: low bits of the end data: high bit of the end · length (rounded up, 31) · count (32)
 *   calendar                                   or, if the count has more bits: high bit of the end · 11 · length (8) ·
 *                                              count (53)
 *   sliding_window   time: start of the window data: previous count (32) · count (32)
 *   concurrent       time: 0                   data: count, which only giving back lowers
 *
 * Tokens are counted in 1/3,628,800,000: for every period that divides a week, what comes back in a millisecond is a
 * whole number of these, whatever `max` is, so nothing is lost to rounding. Limits beyond 2^32 - 1 count in 1/256. See
 * src/limit/README.md. */
#ifndef LIMIT_LIMIT_H
#define LIMIT_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "base/clock.h"
#include "limit/calendar.h"

enum limit_algorithm { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW, LIMIT_CALENDAR, LIMIT_CONCURRENT };

#define LIMIT_MAX_MAX WEIR_AMOUNT_MAX
#define LIMIT_SLIDE_MAX UINT32_MAX /* of a sliding window, whose state has two counts */
/* max and burst of a limit with overdraft: as much again, and more, can be owed. */
#define LIMIT_OVERDRAFT_MAX (LIMIT_MAX_MAX / 2)
#define LIMIT_SLIDE_OVERDRAFT_MAX (LIMIT_SLIDE_MAX / 2)
#define LIMIT_PER_MIN_US (1 * US_PER_MS)
#define LIMIT_PER_MAX_US (INT64_C(3650) * 86400 * US_PER_S)
#define LIMIT_TOKEN UINT64_C(3628800000)
#define LIMIT_TOKEN_COARSE UINT64_C(256)
/* No state in fine parts is as large: 2^32 - 1 tokens, and a thousandth more where it lags, are less than 15.61 × 10^18.
 * Above it 2^61 coarse parts and a thousandth more have room. */
#define LIMIT_COARSE UINT64_C(16000000000000000000)
#define LIMIT_NEVER_US INT64_C(-1)

struct limit_state {
    uint64_t time; /* below 2^52 */
    uint64_t data;
};

/* A divisor and its inverse, since a division costs more than a cache hit. */
struct limit_divisor {
    uint64_t by, inverse;
};

/* The numbers of a limit, computed once. Where many limits are in use, decisions wait for these to come from memory, so
 * they are in the order of their use: the first 64 bytes are all that a window needs, the others are for buckets. Fields
 * in a union belong to different algorithms. */
struct limit {
    enum limit_algorithm algorithm : 8;
    bool overdraft;    /* set after limit_init: whatever a charge costs, it passes if 1 would fit; see limit_overdraw */
    bool step_fine;    /* token_bucket: step is so short that a state may lag by one step */
    uint8_t length_id; /* `length` in 8 bits: see limit_origin */
    union {
        uint32_t length; /* fixed_window: its length, packed */
        /* sliding_window: a time >> slide_shift, times slide_factor, is its part of the period in 1/2^63 */
        uint32_t slide_shift;
    };
    uint64_t max;
    uint64_t capacity; /* of a bucket: burst; else max */
    /* used × this >> LIMIT_SHARE_SHIFT is its part of the capacity in 1/LIMIT_SHARES; of a bucket: units × this >> 64 */
    uint64_t share_factor;
    int64_t window_us; /* limit_window_us; 0 for calendar. Of a window it is per_us, which need not be read, then */
    int64_t spare_us;  /* see struct limit_outlook */
    union {
        uint64_t quick_max; /* of a window: the quick way is for counts below this */
        uint64_t token;     /* token_bucket: a token has so many units */
    };
    union {
        int64_t reach_us; /* fixed_window: twice its length: one that ends later is from a clock that was wrong */
        uint64_t slide_factor;
        int64_t share_us; /* token_bucket: in this time 1/LIMIT_SHARES of the capacity comes back */
    };

    /* Only of token_bucket: its states begin at `base`: 0, or LIMIT_COARSE. */
    uint64_t base;
    /* Every `step` microseconds exactly `step_units` come back. */
    struct limit_divisor step;
    uint64_t step_units;
    uint64_t capacity_units;
    uint64_t drain_factor; /* units × this >> 64, and 1 more, is time enough for them to come back; 0: no time is */

    int64_t per_us; /* 0 for calendar; of concurrent: how long a hold lasts */
};
_Static_assert(offsetof(struct limit, base) == 64 && sizeof(struct limit) == 120, "see above");

/* max and burst up to LIMIT_MAX_MAX, max of a sliding window up to LIMIT_SLIDE_MAX, per within its bounds (calendar:
 * ignored); burst 0: max. */
void limit_init(struct limit *limit, enum limit_algorithm algorithm, uint64_t max, uint64_t burst, int64_t per_us);

/* The result of a charge. `window` is the current one of a calendar limit, and ignored for others. */
struct limit_take {
    bool fits;
    bool rebased; /* the clock was wrong: store `next` even if the charge does not fit */
    struct limit_state next;
};

/* The share of a limit that a state has used: LIMIT_SHARE_FULL if there is no room for 1, else from 1 to LIMIT_SHARES.
 * LIMIT_SHARE_NONE is for states that are not counts (marks, numbers of receipts): they never take the place of a count. */
enum { LIMIT_SHARE_NONE = 0, LIMIT_SHARES = 254, LIMIT_SHARE_FULL = 255, LIMIT_SHARE_SHIFT = 56 };

/* When a state will equal an unused one (rounded up; CLOCK_END_US: never), and its share. */
struct limit_outlook {
    int64_t decays_us;
    int64_t spare_us; /* decays_us may be recorded this much later: that of a bucket moves with each charge */
    uint8_t share;
};

/* Most charges meet a state in its window, with a clock that did not step back, and leave room for another charge. The
 * quick way is for these: limit_take and limit_outlook at once, with less arithmetic. */
struct limit_quick {
    struct limit_state next;
    int64_t decays_us;
    uint64_t share; /* below LIMIT_SHARE_FULL */
};

struct limit_report {
    uint64_t remaining;     /* whole units */
    uint64_t debt;          /* by how much more than the capacity is used: whole units, rounded up */
    int64_t reset_us;       /* until it is as if unused: 0 if it is, LIMIT_NEVER_US for a bucket whose max is now 0 */
    int64_t retry_after_us; /* until `cost` fits: 0 if it does now, LIMIT_NEVER_US */
};

/* The parts that a bucket's state counts in are those of the limit that it was last charged under. Returns `limit`, and
 * *state in its parts: exact from coarse ones, rounded up from fine ones. Or, if these cannot hold what is used, a limit
 * with the same numbers in coarse parts, which is made in *twin. */
const struct limit *limit_same_parts(const struct limit *limit, struct limit_state *state, struct limit *twin);
/* A bucket's state, in the parts that can hold it: `used` / 2^bits tokens, rounded up. */
struct limit_state limit_bucket_state(int64_t when_us, unsigned __int128 used, unsigned bits);

struct limit_outlook limit_outlook_overfull(const struct limit *limit, struct limit_state state, int64_t now_us);
struct limit_report limit_report(const struct limit *limit, const struct window *window, struct limit_state state,
                                 int64_t now_us, uint64_t cost);

/* Returns how long what is left will last if it is used as quickly as it was since the window began; 0 if nothing is left.
 * LIMIT_NEVER_US: nothing is used, what is left outlasts the window, or the limit has no window (a bucket refills, and
 * slots are given back). */
int64_t limit_lasts_us(const struct limit *limit, const struct window *window, struct limit_state state, int64_t now_us);

/* The time in which the whole capacity comes back. */
int64_t limit_window_us(const struct limit *limit, const struct window *window);

/* A cell's own time (a bucket's `when`, the start of a window), and the period beyond which it counts as wrong if it is
 * ahead of the caller's clock. */
struct limit_own_time {
    int64_t at_us;
    int64_t period_us;
};
struct limit_own_time limit_own_time(const struct limit *limit, struct limit_state state);

/* Makes *ret a limit that counts and decays as this one, and refuses nothing that its states can count. */
void limit_without_bound(const struct limit *limit, struct limit *ret);
/* Charges `cost` whether or not there is room. An amount beyond the capacity comes back before anything else fits. Returns
 * the new state. The count ends where states do, at 2^53 - 1, or 2^32 - 1 in a sliding window; a bucket whose max is 0 is
 * not charged. */
struct limit_state limit_charge(const struct limit *limit, const struct window *window, struct limit_state state,
                                int64_t now_us, uint64_t cost);
/* Gives back `cost` of what is used now, whoever was charged for it: of a window what it counts itself, of a sliding one
 * not what is still in view of the previous one, of a bucket its tokens. Never more than that. Returns the new state. What
 * is in flight (concurrent) is left as it is: it ends with its holds. */
struct limit_state limit_give_back(const struct limit *limit, const struct window *window, struct limit_state state,
                                   int64_t now_us, uint64_t cost);
/* limit_take() for a limit with `overdraft`: if 1 fits, all of `cost` is charged. cost > 0. */
struct limit_take limit_overdraw(const struct limit *limit, const struct window *window, struct limit_state state,
                                 int64_t now_us, uint64_t cost);
/* Returns how much has to fit for a charge of `cost` to pass. A cost above LIMIT_MAX_MAX never passes, not even with
 * overdraft. */
static inline uint64_t limit_needs(const struct limit *limit, uint64_t cost)
{
    return limit->overdraft && cost > 1 && cost <= LIMIT_MAX_MAX ? 1 : cost;
}
/* Returns the largest cost that such a limit can count on top of what it lets be used, so that a charge never ends where
 * states do, and a refund undoes it. At least half of what states count if the capacity is at most LIMIT_OVERDRAFT_MAX. */
uint64_t limit_overdraft_cost(const struct limit *limit);

/* Returns the window that a charge at now_us belongs to, as one number. For a fixed or calendar window this is its end with
 * its length in the 8 bits above; for a sliding window, its start; for a bucket, which has no window, now_us. */
uint64_t limit_count_origin(const struct limit *limit, struct limit_state taken);
static inline uint64_t limit_origin(const struct limit *limit, struct limit_state taken, int64_t now_us)
{
    switch (limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return (uint64_t)now_us;
    case LIMIT_SLIDING_WINDOW:
        return taken.time;
    case LIMIT_CONCURRENT:
        return 0;
    default:
        return limit_count_origin(limit, taken);
    }
}
/* Returns the end of a fixed or calendar window. */
static inline int64_t limit_origin_end(uint64_t origin)
{
    return (int64_t)(origin & (2 * (uint64_t)CLOCK_END_US - 1));
}
/* Returns whether what was charged to it counts no more. A bucket's charge decays with the bucket: never. */
static inline bool limit_origin_over(const struct limit *limit, uint64_t origin, int64_t now_us)
{
    if (limit->algorithm == LIMIT_TOKEN_BUCKET || limit->algorithm == LIMIT_CONCURRENT)
        return false;
    bool slides = limit->algorithm == LIMIT_SLIDING_WINDOW;
    return (slides ? (int64_t)origin + 2 * limit->per_us : limit_origin_end(origin)) <= now_us;
}
/* Returns an unused state of that window. */
struct limit_state limit_origin_state(const struct limit *limit, uint64_t origin);
/* Gives back `cost`, which was charged to `origin`, to the current *state. False: there is nothing to give back to (another
 * window). */
bool limit_refund(const struct limit *limit, uint64_t origin, uint64_t cost, int64_t now_us, struct limit_state *state);
/* Returns how much of a charge has come back by itself, which limit_refund leaves in the state: whole tokens of a bucket.
 */
uint64_t limit_repaid(const struct limit *limit, uint64_t origin, uint64_t amount, int64_t now_us);
/* Makes `to` of the amount `from` that was charged to `origin`, as if it had been so from the start; more than there is
 * room for is owed. More of a bucket counts from its last charge on, if that was later: time repays it once. If *state has
 * left the window of `origin` before its end, the current window is charged. False: nothing has changed. */
bool limit_amend(const struct limit *limit, const struct window *window, uint64_t origin, uint64_t from, uint64_t to,
                 int64_t now_us, struct limit_state *state);

/* A count that something is taken from: never below 0. */
static inline uint64_t limit_less(uint64_t count, uint64_t by)
{
    return count > by ? count - by : 0;
}

#endif
