#include "limit/limit.h"

#include "base/check.h"
#include "limit/take.h"

/* A state may lag behind by one step, at whose end it is exact. That is unnoticeable up to a thousandth of the period,
 * which every period of whole milliseconds keeps to; beyond it a bucket rounds instead, by at most 1/LIMIT_TOKEN of a token
 * for each charge, against the caller. */
enum { STEP_FINE_PART = 1000 };

/* A note of a bucket's decay is set this many of its LIMIT_SHARES parts late. */
enum { SPARE_PARTS = 16 };

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t clamp_time(limit_wide us)
{
    return us < (limit_wide)CLOCK_END_US ? (int64_t)us : CLOCK_END_US;
}

static limit_wide divide_up(limit_wide a, limit_wide b)
{
    return (a + b - 1) / b;
}

static void init_bucket(struct limit *l)
{
    uint64_t units = l->max * LIMIT_TOKEN, per = (uint64_t)l->per_us;
    uint64_t common = gcd(per, units);
    uint64_t step = l->max ? per / common : per;
    l->step = (struct limit_divisor){ step, UINT64_MAX / step };
    l->step_units = l->max ? units / common : 0;
    l->capacity_units = l->capacity * LIMIT_TOKEN;
    l->step_fine = l->max && step <= per / STEP_FINE_PART;
    /* Where less than one unit comes back in a microsecond, the factor would not fit: no time is enough. */
    bool fits = l->step_units > step;
    l->drain_factor = fits ? (uint64_t)(((limit_wide)step << 64) / l->step_units) + 1 : 0;
    l->drain_extra_us = fits ? 1 : (uint64_t)CLOCK_END_US;
    l->share_us = l->max ? clamp_time(divide_up((limit_wide)l->capacity * per, (limit_wide)l->max * LIMIT_SHARES)) : 1;
    l->spare_us = clamp_time((limit_wide)l->share_us * SPARE_PARTS);
    l->share_factor = l->capacity_units ? (uint64_t)(((limit_wide)LIMIT_SHARES << 64) / l->capacity_units) + 1 : 0;
    if (l->max)
        l->window_us = clamp_time(divide_up((limit_wide)l->capacity * per, l->max));
}

static void init_slide(struct limit *l)
{
    while (l->per_us >> l->slide_shift > UINT32_MAX)
        l->slide_shift++;
    l->slide_factor = (UINT64_C(1) << 63) / ((uint64_t)l->per_us >> l->slide_shift) + 1;
}

void limit_init(struct limit *limit, enum limit_algorithm algorithm, uint32_t max, uint32_t burst, int64_t per_us)
{
    CHECK(algorithm <= LIMIT_CALENDAR);
    CHECK(algorithm == LIMIT_CALENDAR || (per_us >= LIMIT_PER_MIN_US && per_us <= LIMIT_PER_MAX_US));
    bool bucket = algorithm == LIMIT_TOKEN_BUCKET;
    *limit = (struct limit){
        .algorithm = algorithm,
        .max = max,
        .capacity = bucket && burst && max ? burst : max,
        .per_us = algorithm == LIMIT_CALENDAR ? 0 : per_us,
    };
    /* Rounded up: a share too small would make a bucket look decayed too soon. */
    limit->share_factor = limit->capacity ? ((uint64_t)LIMIT_SHARES << 32) / limit->capacity + 1 : 0;
    limit->window_us = limit->per_us;
    limit->length = limit_length_pack(limit->per_us);
    limit->reach_us = 2 * limit_length_unpack(limit->length);
    if (bucket)
        init_bucket(limit);
    if (algorithm == LIMIT_SLIDING_WINDOW)
        init_slide(limit);
}

/* ---- reports ---- */

/* How long `units` take to come back. */
static int64_t bucket_wait(const struct limit *l, uint64_t units)
{
    uint64_t product;
    if (!__builtin_mul_overflow(units, l->step.by, &product) && product <= UINT64_MAX - l->step_units)
        return clamp_time((product + l->step_units - 1) / l->step_units);
    return clamp_time(divide_up((limit_wide)units * l->step.by, l->step_units));
}

static struct limit_report report_bucket(const struct limit *l, struct limit_state s, int64_t now_us, uint32_t cost)
{
    struct limit_level level = limit_level(l, s, now_us);
    struct limit_report report = { .remaining = limit_remaining_bucket(l, level.used) };
    /* Both waits count from the base, which is exact, so that they end at the very microsecond. */
    int64_t behind = (int64_t)level.base.time - now_us;
    if (level.used)
        report.reset_us = l->max ? behind + bucket_wait(l, level.base.data) : LIMIT_NEVER_US;
    uint64_t units = cost * LIMIT_TOKEN;
    if (l->max == 0 || cost > l->capacity)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (cost > 0 && level.used > l->capacity_units - units)
        report.retry_after_us = behind + bucket_wait(l, level.base.data - (l->capacity_units - units));
    return report;
}

static struct limit_report report_count(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us,
                                        uint32_t cost)
{
    struct limit_count c = limit_count_at(l, w, s, now_us);
    struct limit_report report = { .remaining = limit_remaining_count(l, c.count) };
    if (c.count)
        report.reset_us = c.end_us - now_us;
    if (l->max == 0 || cost > l->max)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (cost > 0 && (uint64_t)c.count + cost > l->max)
        report.retry_after_us = c.end_us - now_us;
    return report;
}

/* The first offset into a window at which previous × (per - offset) ≤ room × per. */
static int64_t slide_offset(const struct limit *l, uint32_t previous, uint64_t room)
{
    if (previous <= room)
        return 0;
    limit_wide in_view = (limit_wide)room * (uint64_t)l->per_us / previous;
    return l->per_us - (int64_t)in_view;
}

static struct limit_report report_slide(const struct limit *l, struct limit_state s, int64_t now_us, uint32_t cost)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    struct limit_report report = { .remaining = limit_remaining_slide(l, &w) };
    if (w.previous || w.count)
        report.reset_us = w.start_us + (w.count ? 2 : 1) * l->per_us - now_us;
    if (l->max == 0 || cost > l->max)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (cost > 0 && !limit_slide_fits(l, &w, cost)) {
        uint64_t wanted = (uint64_t)w.count + cost;
        int64_t offset = wanted <= l->max ? slide_offset(l, w.previous, l->max - wanted)
                                          : l->per_us + slide_offset(l, w.count, l->max - cost);
        report.retry_after_us = w.start_us + offset - now_us;
    }
    return report;
}

struct limit_report limit_report(const struct limit *limit, const struct window *window, struct limit_state state,
                                 int64_t now_us, uint32_t cost)
{
    switch (limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return report_bucket(limit, state, now_us, cost);
    case LIMIT_SLIDING_WINDOW:
        return report_slide(limit, state, now_us, cost);
    default:
        return report_count(limit, window, state, now_us, cost);
    }
}

/* More than the capacity is used: the limit was lowered, or the state lags behind. */
struct limit_outlook limit_outlook_overfull(const struct limit *limit, struct limit_state state, int64_t now_us)
{
    int64_t reset_us = report_bucket(limit, state, now_us, 0).reset_us, decays_us = now_us + reset_us;
    if (reset_us == LIMIT_NEVER_US || decays_us > CLOCK_END_US)
        decays_us = CLOCK_END_US;
    return (struct limit_outlook){ decays_us, limit->spare_us, LIMIT_SHARE_FULL };
}

int64_t limit_window_us(const struct limit *limit, const struct window *window)
{
    CHECK(limit->algorithm != LIMIT_CALENDAR || window);
    return limit->algorithm == LIMIT_CALENDAR ? window->end_us - window->start_us : limit->window_us;
}

/* ---- clocks ---- */

struct limit_own_time limit_own_time(const struct limit *limit, struct limit_state state)
{
    if (limit->algorithm == LIMIT_TOKEN_BUCKET || limit->algorithm == LIMIT_SLIDING_WINDOW)
        return (struct limit_own_time){ (int64_t)state.time, limit->per_us };
    int64_t length_us = limit_length_unpack((uint32_t)(state.data >> 32) & INT32_MAX);
    return (struct limit_own_time){ limit_state_end(state) - length_us, length_us };
}

/* ---- refunds ---- */

static bool refund_bucket(const struct limit *l, int64_t taken_us, uint32_t cost, int64_t now_us, struct limit_state *state)
{
    struct limit_state taken = { (uint64_t)taken_us, cost * LIMIT_TOKEN };
    uint64_t left = limit_level(l, taken, now_us).used;
    state->data = state->data > left ? state->data - left : 0;
    return left > 0;
}

static bool refund_slide(const struct limit *l, struct limit_state taken, uint32_t cost, struct limit_state *state)
{
    uint32_t previous = (uint32_t)(state->data >> 32), count = (uint32_t)state->data;
    if (state->time == taken.time)
        count = limit_less(count, cost);
    else if (state->time == taken.time + (uint64_t)l->per_us)
        previous = limit_less(previous, cost);
    else
        return false;
    state->data = (uint64_t)previous << 32 | count;
    return true;
}

bool limit_refund(const struct limit *limit, struct limit_state taken, int64_t taken_us, uint32_t cost, int64_t now_us,
                  struct limit_state *state)
{
    CHECK(clock_valid(taken_us) && clock_valid(now_us) && state->time < CLOCK_END_US);
    if (limit->algorithm == LIMIT_TOKEN_BUCKET)
        return refund_bucket(limit, taken_us, cost, now_us, state);
    if (limit->algorithm == LIMIT_SLIDING_WINDOW)
        return refund_slide(limit, taken, cost, state);
    bool same_window = state->time == taken.time && state->data >> 32 == taken.data >> 32;
    if (!same_window)
        return false;
    state->data = (state->data & ~(uint64_t)UINT32_MAX) | limit_less((uint32_t)state->data, cost);
    return true;
}
