#include "limit/limit.h"

#include "base/check.h"
#include "limit/take.h"

/* A state may lag behind by one step, at whose end it is exact. That is unnoticeable up to a thousandth of the period,
 * which every period of whole milliseconds keeps to while the parts are fine; beyond it a bucket rounds instead, by at most
 * one part for each charge, against the caller. */
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

/* A length in 8 bits, three binary digits, the first of which is 1, and a shift: rounded up by less than a quarter. */
enum { COARSE_DIGITS = 3, COARSE_SHIFT_MAX = 46 };

static uint64_t length_coarse(uint32_t packed)
{
    int64_t length_us = limit_length_unpack(packed);
    uint32_t digits = limit_length_round(length_us > 4 ? length_us : 4, COARSE_DIGITS);
    return digits >> COARSE_DIGITS << 2 | (digits & 3);
}

static void init_bucket(struct limit *l, bool coarse)
{
    l->token = coarse ? LIMIT_TOKEN_COARSE : LIMIT_TOKEN;
    l->base = coarse ? LIMIT_COARSE : 0;
    uint64_t units = l->max * l->token, per = (uint64_t)l->per_us;
    uint64_t common = gcd(per, units);
    uint64_t step = l->max ? per / common : per;
    l->step = (struct limit_divisor){ step, UINT64_MAX / step };
    l->step_units = l->max ? units / common : 0;
    l->capacity_units = l->capacity * l->token;
    l->step_fine = l->max && step <= per / STEP_FINE_PART;
    /* Where less than one unit comes back in a microsecond, the factor would not fit: no time is enough. */
    bool fits = l->step_units > step;
    l->drain_factor = fits ? (uint64_t)(((limit_wide)step << 64) / l->step_units) + 1 : 0;
    l->share_us = l->max ? clamp_time(divide_up((limit_wide)l->capacity * per, (limit_wide)l->max * LIMIT_SHARES)) : 1;
    l->spare_us = clamp_time((limit_wide)l->share_us * SPARE_PARTS);
    l->share_factor = l->capacity_units ? (uint64_t)(((limit_wide)LIMIT_SHARES << 64) / l->capacity_units) + 1 : 0;
    if (l->max)
        l->window_us = clamp_time(divide_up((limit_wide)l->capacity * per, l->max));
}

static void init_slide(struct limit *l)
{
    l->slide_shift = 0;
    while (l->per_us >> l->slide_shift > UINT32_MAX)
        l->slide_shift++;
    l->slide_factor = (UINT64_C(1) << 63) / ((uint64_t)l->per_us >> l->slide_shift) + 1;
}

static void init(struct limit *limit, enum limit_algorithm algorithm, uint64_t max, uint64_t burst, int64_t per_us,
                 bool coarse)
{
    bool bucket = algorithm == LIMIT_TOKEN_BUCKET;
    *limit = (struct limit){
        .algorithm = algorithm,
        .max = max,
        .capacity = bucket && burst && max ? burst : max,
        .per_us = algorithm == LIMIT_CALENDAR ? 0 : per_us,
    };
    /* Rounded up: a share too small would make a bucket look decayed too soon. */
    limit->share_factor = limit->capacity ? ((uint64_t)LIMIT_SHARES << LIMIT_SHARE_SHIFT) / limit->capacity + 1 : 0;
    limit->window_us = limit->per_us;
    if (bucket) {
        init_bucket(limit, coarse);
        return;
    }
    limit->quick_max = max <= UINT32_MAX ? max : UINT64_C(1) << 32;
    if (algorithm == LIMIT_SLIDING_WINDOW) {
        init_slide(limit);
        return;
    }
    limit->length = limit_length_pack(limit->per_us);
    limit->length_id = (uint8_t)length_coarse(limit->length);
    limit->reach_us = 2 * limit_length_unpack(limit->length);
}

void limit_init(struct limit *limit, enum limit_algorithm algorithm, uint64_t max, uint64_t burst, int64_t per_us)
{
    CHECK(algorithm <= LIMIT_CONCURRENT);
    CHECK(algorithm == LIMIT_CALENDAR || (per_us >= LIMIT_PER_MIN_US && per_us <= LIMIT_PER_MAX_US));
    CHECK(max <= (algorithm == LIMIT_SLIDING_WINDOW ? LIMIT_SLIDE_MAX : LIMIT_MAX_MAX) && burst <= LIMIT_MAX_MAX);
    init(limit, algorithm, max, burst, per_us, algorithm == LIMIT_TOKEN_BUCKET && (max > UINT32_MAX || burst > UINT32_MAX));
}

/* ---- coarse parts ---- */

enum { FINE_PARTS = LIMIT_TOKEN / LIMIT_TOKEN_COARSE };
_Static_assert(FINE_PARTS *LIMIT_TOKEN_COARSE == LIMIT_TOKEN, "coarse parts are whole numbers of fine ones");
_Static_assert(LIMIT_COARSE + (LIMIT_MAX_MAX + LIMIT_MAX_MAX / STEP_FINE_PART) * LIMIT_TOKEN_COARSE > LIMIT_COARSE,
               "coarse states fit");

/* 2^32 tokens. */
#define FINE_END (LIMIT_TOKEN_COARSE << 32)

static uint64_t coarse_of_fine(uint64_t fine)
{
    return LIMIT_COARSE + (uint64_t)divide_up(fine, FINE_PARTS);
}

static void init_twin(struct limit *twin, const struct limit *limit)
{
    init(twin, LIMIT_TOKEN_BUCKET, limit->max, limit->capacity, limit->per_us, true);
}

const struct limit *limit_same_parts(const struct limit *limit, struct limit_state *state, struct limit *twin)
{
    if (limit_has_parts(limit, *state))
        return limit;
    if (limit->base > 0) {
        state->data = coarse_of_fine(state->data);
        return limit;
    }
    uint64_t used = state->data - LIMIT_COARSE;
    if (used < FINE_END) {
        state->data = used * FINE_PARTS;
        return limit;
    }
    init_twin(twin, limit);
    return twin;
}

struct limit_state limit_bucket_state(int64_t when_us, limit_wide used, unsigned bits)
{
    limit_wide one = (limit_wide)1 << bits;
    bool coarse = used >> bits > UINT32_MAX;
    uint64_t units = (uint64_t)divide_up(used * (coarse ? LIMIT_TOKEN_COARSE : LIMIT_TOKEN), one);
    return (struct limit_state){ (uint64_t)when_us, coarse ? LIMIT_COARSE + units : units };
}

struct limit_take limit_take_other_parts(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost)
{
    struct limit twin;
    const struct limit *same = limit_same_parts(l, &s, &twin);
    struct limit_take take = limit_take_bucket(same, s, now_us, cost);
    /* Fine parts again, as soon as these can hold it. */
    if (same != l)
        limit_same_parts(l, &take.next, &twin);
    return take;
}

uint64_t limit_remaining_other_parts(const struct limit *l, struct limit_state s, int64_t now_us)
{
    struct limit twin;
    l = limit_same_parts(l, &s, &twin);
    return limit_remaining_bucket(l, limit_level(l, s, now_us).used);
}

/* ---- wide counts ---- */

static uint32_t length_of_coarse(uint64_t coarse)
{
    uint64_t shift = coarse >> 2 & 63;
    return limit_length_pack((int64_t)((4 + (coarse & 3)) << (shift < COARSE_SHIFT_MAX ? shift : COARSE_SHIFT_MAX)));
}

struct limit_state limit_count_wide_state(const struct limit_count *c)
{
    uint64_t end = (uint64_t)c->end_us, marks = end >> CLOCK_BITS << 2 | 3;
    return (struct limit_state){ end & (CLOCK_END_US - 1),
                                 (marks << 8 | length_coarse(c->length)) << LIMIT_WIDE_BITS | c->count };
}

/* A length that rounds to what the state says is taken for the limit's own. */
struct limit_count limit_count_read_wide(const struct limit *l, const struct window *w, struct limit_state s)
{
    uint64_t coarse = s.data >> LIMIT_WIDE_BITS & UINT8_MAX;
    uint32_t own = l->length;
    if (l->algorithm == LIMIT_CALENDAR)
        own = w ? limit_length_pack(w->end_us - w->start_us) : 0;
    return (struct limit_count){ .end_us = limit_state_end(s),
                                 .length = length_coarse(own) == coarse ? own : length_of_coarse(coarse),
                                 .count = limit_state_count(s) };
}

/* ---- charges that need no room ---- */

void limit_without_bound(const struct limit *limit, struct limit *ret)
{
    bool bucket = limit->algorithm == LIMIT_TOKEN_BUCKET, fine = bucket && limit->base == 0;
    uint64_t most = fine || limit->algorithm == LIMIT_SLIDING_WINDOW ? UINT32_MAX : LIMIT_MAX_MAX;
    limit_init(ret, limit->algorithm, bucket ? limit->max : most, most, limit->per_us);
}

struct limit_state limit_charge(const struct limit *limit, const struct window *window, struct limit_state state,
                                int64_t now_us, uint64_t cost)
{
    struct limit free;
    limit_without_bound(limit, &free);
    struct limit_take take = limit_take(&free, window, state, now_us, cost);
    if (!take.fits && limit->algorithm == LIMIT_TOKEN_BUCKET) {
        /* More than fine parts can count. */
        limit_init(&free, LIMIT_TOKEN_BUCKET, limit->max, LIMIT_MAX_MAX, limit->per_us);
        take = limit_take(&free, window, state, now_us, cost);
    }
    if (!take.fits)
        take = limit_take(&free, window, state, now_us, limit_remaining(&free, window, state, now_us));
    return take.next;
}

struct limit_state limit_give_back(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us,
                                   uint64_t cost)
{
    if (l->algorithm == LIMIT_CONCURRENT)
        return s;
    struct limit_state state = limit_take(l, w, s, now_us, 0).next;
    limit_refund(l, limit_origin(l, state, now_us), cost, now_us, &state);
    return state;
}

struct limit_take limit_overdraw(const struct limit *limit, const struct window *window, struct limit_state state,
                                 int64_t now_us, uint64_t cost)
{
    CHECK(cost > 0);
    struct limit_take take = limit_take(limit, window, state, now_us, 1);
    if (take.fits)
        take.next = limit_charge(limit, window, state, now_us, cost);
    return take;
}

uint64_t limit_overdraft_cost(const struct limit *limit)
{
    uint64_t most = limit->algorithm == LIMIT_SLIDING_WINDOW ? LIMIT_SLIDE_MAX : LIMIT_MAX_MAX;
    return most - limit->capacity;
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

LIMIT_HOT struct limit_report report_bucket(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost)
{
    struct limit twin;
    if (__builtin_expect(!limit_has_parts(l, s), 0))
        l = limit_same_parts(l, &s, &twin);
    struct limit_level level = limit_level(l, s, now_us);
    struct limit_report report = { .remaining = limit_remaining_bucket(l, level.used) };
    if (__builtin_expect(level.used > l->capacity_units, 0))
        report.debt = (uint64_t)divide_up(level.used - l->capacity_units, l->token);
    /* Both waits count from the base, which is exact, so that they end at the very microsecond. */
    int64_t behind = level.base_us - now_us;
    if (level.used)
        report.reset_us = l->max ? behind + bucket_wait(l, level.base) : LIMIT_NEVER_US;
    uint64_t units = cost * l->token;
    if (l->max == 0 || cost > l->capacity)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (level.used > l->capacity_units - units)
        report.retry_after_us = behind + bucket_wait(l, level.base - (l->capacity_units - units));
    return report;
}

LIMIT_HOT struct limit_report report_count(const struct limit *l, const struct window *w, struct limit_state s,
                                           int64_t now_us, uint64_t cost)
{
    struct limit_count c = limit_count_at(l, w, s, now_us);
    struct limit_report report = { .remaining = limit_remaining_count(l, c.count), .debt = limit_less(c.count, l->max) };
    if (c.count)
        report.reset_us = c.end_us - now_us;
    if (l->max == 0 || cost > l->max)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (c.count > l->max - cost)
        report.retry_after_us = c.end_us - now_us;
    return report;
}

/* The first offset into a window at which previous × (per - offset) ≤ room × per. */
static int64_t slide_offset(const struct limit *l, uint64_t previous, uint64_t room)
{
    if (previous <= room)
        return 0;
    limit_wide in_view = (limit_wide)room * (uint64_t)l->per_us / previous;
    return l->per_us - (int64_t)in_view;
}

static uint64_t slide_debt(const struct limit *l, const struct limit_slide *w)
{
    limit_wide per = (uint64_t)l->per_us, all = l->max * per;
    limit_wide used = (limit_wide)w->previous * (uint64_t)(l->per_us - w->offset_us) + w->count * per;
    return used > all ? (uint64_t)divide_up(used - all, per) : 0;
}

LIMIT_HOT struct limit_report report_slide(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    struct limit_report report = { .remaining = limit_remaining_slide(l, &w) };
    if (report.remaining == 0)
        report.debt = slide_debt(l, &w);
    if (w.previous || w.count)
        report.reset_us = w.start_us + (w.count ? 2 : 1) * l->per_us - now_us;
    if (l->max == 0 || cost > l->max)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (!limit_slide_fits(l, &w, cost)) {
        uint64_t wanted = w.count + cost;
        int64_t offset = wanted <= l->max ? slide_offset(l, w.previous, l->max - wanted)
                                          : l->per_us + slide_offset(l, w.count, l->max - cost);
        report.retry_after_us = w.start_us + offset - now_us;
    }
    return report;
}

/* Nobody knows when a hold ends; a client that is refused should ask again soon. */
#define SLOT_RETRY_US US_PER_S

LIMIT_HOT struct limit_report report_concurrent(const struct limit *l, struct limit_state s, uint64_t cost)
{
    struct limit_report report = { .remaining = limit_remaining_count(l, s.data), .reset_us = s.data ? l->per_us : 0 };
    if (l->max == 0 || cost > l->max)
        report.retry_after_us = LIMIT_NEVER_US;
    else if (s.data > l->max - cost)
        report.retry_after_us = l->per_us < SLOT_RETRY_US ? l->per_us : SLOT_RETRY_US;
    return report;
}

struct limit_report limit_report(const struct limit *limit, const struct window *window, struct limit_state state,
                                 int64_t now_us, uint64_t cost)
{
    switch (limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return report_bucket(limit, state, now_us, cost);
    case LIMIT_SLIDING_WINDOW:
        return report_slide(limit, state, now_us, cost);
    case LIMIT_CONCURRENT:
        return report_concurrent(limit, state, cost);
    default:
        return report_count(limit, window, state, now_us, cost);
    }
}

/* More than the capacity is used: the limit was lowered, or the state lags behind. Or it counts in other parts. */
struct limit_outlook limit_outlook_overfull(const struct limit *limit, struct limit_state state, int64_t now_us)
{
    struct limit twin;
    limit = limit_same_parts(limit, &state, &twin);
    if (state.data - limit->base <= limit->capacity_units)
        return limit_outlook_bucket(limit, state, now_us);
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
    if (limit->algorithm != LIMIT_FIXED_WINDOW && limit->algorithm != LIMIT_CALENDAR)
        return (struct limit_own_time){ (int64_t)state.time, limit->per_us };
    struct limit_count count = limit_count_read(limit, NULL, state);
    int64_t length_us = limit_length_unpack(count.length);
    return (struct limit_own_time){ count.end_us - length_us, length_us };
}

/* ---- charges that become another amount ---- */

/* The exact length may be lost while the count is wide. */
static uint64_t count_origin(const struct limit *l, const struct limit_count *c)
{
    uint64_t length = c->length == l->length ? l->length_id : length_coarse(c->length);
    return (uint64_t)c->end_us | length << (CLOCK_BITS + 1);
}

uint64_t limit_count_origin(const struct limit *limit, struct limit_state taken)
{
    struct limit_count count = limit_count_read(limit, NULL, taken);
    return count_origin(limit, &count);
}

struct limit_state limit_origin_state(const struct limit *limit, uint64_t origin)
{
    struct limit_count count = { .end_us = limit_origin_end(origin),
                                 .length = length_of_coarse(origin >> (CLOCK_BITS + 1) & UINT8_MAX) };
    bool window = limit->algorithm == LIMIT_FIXED_WINDOW || limit->algorithm == LIMIT_CALENDAR;
    return window ? limit_count_state(&count) : (struct limit_state){ .time = origin };
}

/* Returns the part of a charge that has not come back by itself. */
static uint64_t left_of(const struct limit *l, uint64_t taken_us, uint64_t amount, int64_t now_us)
{
    return amount ? limit_level(l, limit_level_state(l, (int64_t)taken_us, amount * l->token), now_us).used : 0;
}

/* Sums of fine parts stay below 2^32 tokens. */
static bool needs_coarse(const struct limit *l, struct limit_state s, uint64_t from, uint64_t to)
{
    uint64_t used = s.data < LIMIT_COARSE ? s.data / LIMIT_TOKEN + 1 : 0;
    return l->base == 0 && (from > UINT32_MAX || to > UINT32_MAX - (used < UINT32_MAX ? used : UINT32_MAX));
}

/* Returns the state after a charge that counts from taken_us on, but not from before the last charge: time that has passed
 * repays each token once, however many charges wait for it. */
static struct limit_state charge_since(const struct limit *l, struct limit_state s, uint64_t taken_us, uint64_t amount,
                                       int64_t now_us)
{
    uint64_t since_us = taken_us > s.time ? taken_us : s.time;
    struct limit_level level = limit_level(l, s, since_us < (uint64_t)now_us ? (int64_t)since_us : now_us);
    uint64_t most = (l->base ? LIMIT_MAX_MAX : UINT32_MAX) * l->token, used = level.base < most ? level.base : most;
    used += amount * l->token < most - used ? amount * l->token : most - used;
    return limit_level_state(l, level.base_us, used);
}

static bool amend_bucket(const struct limit *l, uint64_t taken_us, uint64_t from, uint64_t to, int64_t now_us,
                         struct limit_state *state)
{
    struct limit twin, other;
    struct limit_state s = *state;
    if (needs_coarse(l, s, from, to)) {
        init_twin(&twin, l);
        l = &twin;
    }
    l = limit_same_parts(l, &s, &other);
    if (to > from) {
        *state = charge_since(l, s, taken_us, to - from, now_us);
        return true;
    }
    uint64_t less = left_of(l, taken_us, from, now_us), more = left_of(l, taken_us, to, now_us);
    if (less == more)
        return false;
    *state = limit_level_state(l, (int64_t)s.time, limit_less(s.data - l->base, less - more));
    return true;
}

static uint64_t amended(uint64_t count, uint64_t from, uint64_t to, uint64_t most)
{
    count = limit_less(count, from);
    return to < most - count ? count + to : most;
}

static bool amend_slide(const struct limit *l, uint64_t start, uint64_t from, uint64_t to, struct limit_state *state)
{
    uint64_t previous = state->data >> 32, count = (uint32_t)state->data;
    if (state->time == start)
        count = amended(count, from, to, LIMIT_SLIDE_MAX);
    else if (state->time == start + (uint64_t)l->per_us)
        previous = amended(previous, from, to, LIMIT_SLIDE_MAX);
    else
        return false;
    state->data = previous << 32 | count;
    return true;
}

static bool amend_count(const struct limit *l, uint64_t origin, uint64_t from, uint64_t to, struct limit_state *state)
{
    struct limit_count c = limit_count_read(l, NULL, *state);
    if (count_origin(l, &c) != origin)
        return false;
    c.count = amended(c.count, from, to, LIMIT_MAX_MAX);
    *state = limit_count_state(&c);
    return true;
}

/* In the window that it belongs to. */
static bool amend(const struct limit *limit, uint64_t origin, uint64_t from, uint64_t to, int64_t now_us,
                  struct limit_state *state)
{
    CHECK(clock_valid(now_us) && state->time < CLOCK_END_US && to <= LIMIT_MAX_MAX);
    switch (limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return amend_bucket(limit, origin, from, to, now_us, state);
    case LIMIT_SLIDING_WINDOW:
        return amend_slide(limit, origin, from, to, state);
    case LIMIT_CONCURRENT:
        state->data = amended(state->data, from, to, LIMIT_MAX_MAX);
        return true;
    default:
        return amend_count(limit, origin, from, to, state);
    }
}

bool limit_refund(const struct limit *limit, uint64_t origin, uint64_t cost, int64_t now_us, struct limit_state *state)
{
    return amend(limit, origin, cost, 0, now_us, state);
}

uint64_t limit_repaid(const struct limit *limit, uint64_t origin, uint64_t amount, int64_t now_us)
{
    struct limit twin;
    const struct limit *l = limit;
    if (limit->algorithm != LIMIT_TOKEN_BUCKET)
        return 0;
    if (needs_coarse(l, (struct limit_state){ 0 }, amount, 0)) {
        init_twin(&twin, l);
        l = &twin;
    }
    return (amount * l->token - left_of(l, origin, amount, now_us)) / l->token;
}

bool limit_amend(const struct limit *limit, const struct window *window, uint64_t origin, uint64_t from, uint64_t to,
                 int64_t now_us, struct limit_state *state)
{
    bool windows = limit->algorithm != LIMIT_TOKEN_BUCKET && limit->algorithm != LIMIT_CONCURRENT;
    if (limit_origin_over(limit, origin, now_us))
        return false;
    if (amend(limit, origin, from, to, now_us, state))
        return true;
    if (!windows || to == 0)
        return false;
    *state = limit_charge(limit, window, *state, now_us, to);
    return true;
}
