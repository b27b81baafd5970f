/* The hot path of the algorithms, inline: charging one state. */
#ifndef LIMIT_TAKE_H
#define LIMIT_TAKE_H

#include "base/check.h"
#include "limit/limit.h"

typedef unsigned __int128 limit_wide;

/* Inlined wherever it is called: the compiler's own judgement costs a tenth of a decision. */
#define LIMIT_HOT static inline __attribute__((always_inline))

static inline uint64_t limit_divide(uint64_t x, const struct limit_divisor *d)
{
    uint64_t q = (uint64_t)((limit_wide)x * d->inverse >> 64);
    return x - q * d->by >= d->by ? q + 1 : q;
}

/* ---- token bucket ---- */

/* A bucket at one instant. */
struct limit_level {
    uint64_t used;           /* in 1/LIMIT_TOKEN */
    int64_t at_us;           /* now, or the cell's own time if that is later */
    struct limit_state base; /* an exact state that says the same, at_us or a little older */
    bool rebased;
};

/* By now all has come back: so says an estimate that is a microsecond or two late. */
LIMIT_HOT bool limit_drained(const struct limit *l, uint64_t used, uint64_t elapsed_us)
{
    return elapsed_us > (uint64_t)((limit_wide)used * l->drain_factor >> 64) + l->drain_extra_us;
}

static inline struct limit_level limit_level(const struct limit *l, struct limit_state s, int64_t now_us)
{
    struct limit_level level = { .at_us = now_us, .base = s };
    uint64_t elapsed = 0;
    if (__builtin_expect((int64_t)s.time <= now_us, 1)) {
        elapsed = (uint64_t)now_us - s.time;
    } else if (s.data && (int64_t)s.time - now_us <= l->per_us) {
        level.at_us = (int64_t)s.time;
    } else {
        level.base.time = (uint64_t)now_us;
        level.rebased = s.data != 0;
    }
    /* Most of those that come seldom end here. Below, less than 2^64 can have come back. */
    if (limit_drained(l, s.data, elapsed)) {
        level.base = (struct limit_state){ .time = (uint64_t)level.at_us };
        return level;
    }
    /* What has come back in all, and what of it in whole steps. */
    uint64_t steps = limit_divide(elapsed, &l->step), product, back;
    if (__builtin_expect(!__builtin_mul_overflow(elapsed, l->step_units, &product), 1))
        back = limit_divide(product, &l->step);
    else
        back = (uint64_t)((limit_wide)elapsed * l->step_units / l->step.by);
    if (s.data <= back) {
        level.base = (struct limit_state){ .time = (uint64_t)level.at_us };
        return level;
    }
    level.used = s.data - back;
    level.base.time += steps * l->step.by;
    level.base.data -= steps * l->step_units;
    return level;
}

LIMIT_HOT uint32_t limit_remaining_bucket(const struct limit *l, uint64_t used)
{
    return used < l->capacity_units ? (uint32_t)((l->capacity_units - used) / LIMIT_TOKEN) : 0;
}

static inline struct limit_take limit_take_bucket(const struct limit *l, struct limit_state s, int64_t now_us,
                                                  uint32_t cost)
{
    struct limit_level level = limit_level(l, s, now_us);
    struct limit_take take = { .rebased = level.rebased, .next = level.base };
    uint64_t units = cost * LIMIT_TOKEN;
    if (l->max > 0 && ((cost <= l->capacity && level.used <= l->capacity_units - units) || cost == 0)) {
        if (__builtin_expect(!l->step_fine, 0))
            take.next = (struct limit_state){ (uint64_t)level.at_us, level.used };
        take.fits = true;
        take.next.data += units;
    }
    return take;
}

/* ---- fixed and calendar windows ---- */

enum { LIMIT_LENGTH_MANTISSA = 26 };

/* A length of up to 2^49 µs in 31 bits, rounded up: it only tells a stepped clock from a window that is simply long. */
static inline uint32_t limit_length_pack(int64_t length_us)
{
    uint64_t length = (uint64_t)length_us;
    unsigned bits = 64 - (unsigned)__builtin_clzll(length | 1);
    unsigned shift = bits > LIMIT_LENGTH_MANTISSA ? bits - LIMIT_LENGTH_MANTISSA : 0;
    uint64_t mantissa = (length + (UINT64_C(1) << shift) - 1) >> shift;
    if (mantissa >> LIMIT_LENGTH_MANTISSA) {
        mantissa >>= 1;
        shift++;
    }
    return (uint32_t)(shift << LIMIT_LENGTH_MANTISSA | mantissa);
}

static inline int64_t limit_length_unpack(uint32_t packed)
{
    uint64_t mantissa = packed & ((1u << LIMIT_LENGTH_MANTISSA) - 1);
    return (int64_t)(mantissa << (packed >> LIMIT_LENGTH_MANTISSA & 31));
}

struct limit_count {
    int64_t end_us;
    uint32_t length; /* packed */
    uint32_t count;  /* 0: there is no window */
    bool rebased;
};

static inline struct limit_state limit_count_state(const struct limit_count *c)
{
    uint64_t end = (uint64_t)c->end_us;
    return (struct limit_state){ end & (CLOCK_END_US - 1), end >> CLOCK_BITS << 63 | (uint64_t)c->length << 32 | c->count };
}

static inline int64_t limit_state_end(struct limit_state s)
{
    return (int64_t)(s.data >> 63 << CLOCK_BITS | s.time);
}

/* The window that a request at now_us falls into if the state has none. */
static inline struct limit_count limit_count_open(const struct limit *l, const struct window *w, int64_t now_us)
{
    if (l->algorithm == LIMIT_CALENDAR) {
        CHECK(w && w->start_us < w->end_us);
        return (struct limit_count){ .end_us = w->end_us, .length = limit_length_pack(w->end_us - w->start_us) };
    }
    return (struct limit_count){ .end_us = now_us + l->per_us, .length = l->length };
}

/* The window that the state has goes on: it is not over, and the clock has not stepped back by more than its length since.
 */
LIMIT_HOT bool limit_count_goes_on(const struct limit *l, struct limit_state s, int64_t now_us)
{
    int64_t left = limit_state_end(s) - now_us;
    uint32_t length = (uint32_t)(s.data >> 32) & INT32_MAX;
    int64_t reach = __builtin_expect(length == l->length, 1) ? l->reach_us : 2 * limit_length_unpack(length);
    return (uint32_t)s.data > 0 && left > 0 && left <= reach;
}

LIMIT_HOT struct limit_count limit_count_at(const struct limit *l, const struct window *w, struct limit_state s,
                                            int64_t now_us)
{
    if (limit_count_goes_on(l, s, now_us))
        return (struct limit_count){ limit_state_end(s), (uint32_t)(s.data >> 32) & INT32_MAX, (uint32_t)s.data, false };
    struct limit_count c = limit_count_open(l, w, now_us);
    if (now_us < limit_state_end(s)) {
        c.count = (uint32_t)s.data;
        c.rebased = c.count > 0;
    }
    return c;
}

LIMIT_HOT uint32_t limit_remaining_count(const struct limit *l, uint32_t count)
{
    return count < l->max ? l->max - count : 0;
}

LIMIT_HOT struct limit_take limit_take_count(const struct limit *l, const struct window *w, struct limit_state s,
                                             int64_t now_us, uint32_t cost)
{
    struct limit_take take = { .next = s };
    if (__builtin_expect(!limit_count_goes_on(l, s, now_us), 0)) {
        struct limit_count c = limit_count_at(l, w, s, now_us);
        take.rebased = c.rebased;
        take.next = limit_count_state(&c);
    }
    /* The count stands in the low bits, and stays below 2^32. */
    if (l->max > 0 && ((uint32_t)take.next.data + (uint64_t)cost <= l->max || cost == 0)) {
        take.fits = true;
        take.next.data += cost;
    }
    return take;
}

/* ---- sliding window ---- */

struct limit_slide {
    int64_t start_us;
    int64_t offset_us; /* of the instant within the window */
    uint32_t previous, count;
    bool rebased;
};

LIMIT_HOT struct limit_slide limit_slide_at(const struct limit *l, struct limit_state s, int64_t now_us)
{
    struct limit_slide w = { .start_us = (int64_t)s.time };
    uint64_t counts = s.data; /* together to the end: compilers test two halves as one, by way of memory */
    if (w.start_us > now_us) {
        if (w.start_us - now_us > l->per_us && counts != 0) {
            w.start_us = now_us;
            w.rebased = true;
        }
    } else {
        w.offset_us = now_us - w.start_us;
    }
    if (w.offset_us >= l->per_us) {
        counts = w.offset_us - l->per_us < l->per_us ? counts << 32 : 0;
        w.start_us += l->per_us;
        w.offset_us -= l->per_us;
    }
    if (counts == 0)
        return (struct limit_slide){ .start_us = now_us, .rebased = w.rebased };
    w.previous = (uint32_t)(counts >> 32);
    w.count = (uint32_t)counts;
    return w;
}

static inline struct limit_state limit_slide_state(const struct limit_slide *w)
{
    return (struct limit_state){ (uint64_t)w->start_us, (uint64_t)w->previous << 32 | w->count };
}

/* previous × (part of it still in view) + count + cost ≤ max, times the period. */
static inline bool limit_slide_fits(const struct limit *l, const struct limit_slide *w, uint64_t cost)
{
    uint64_t wanted = w->count + cost;
    return l->max > 0 && wanted <= l->max &&
           (limit_wide)w->previous * (uint64_t)(l->per_us - w->offset_us) <=
               (limit_wide)(l->max - wanted) * (uint64_t)l->per_us;
}

static inline uint32_t limit_remaining_slide(const struct limit *l, const struct limit_slide *w)
{
    if (w->previous == 0)
        return limit_remaining_count(l, w->count);
    limit_wide per = (uint64_t)l->per_us, all = l->max * per;
    limit_wide used = (limit_wide)w->previous * (uint64_t)(l->per_us - w->offset_us) + w->count * per;
    return used < all ? (uint32_t)((all - used) / per) : 0;
}

LIMIT_HOT struct limit_take limit_take_slide(const struct limit *l, struct limit_state s, int64_t now_us, uint32_t cost)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    struct limit_take take = { .rebased = w.rebased, .fits = limit_slide_fits(l, &w, cost) || (cost == 0 && l->max > 0) };
    if (take.fits)
        w.count += cost;
    take.next = limit_slide_state(&w);
    return take;
}

/* ---- any ---- */

LIMIT_HOT struct limit_take limit_take(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us,
                                       uint32_t cost)
{
    switch (l->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return limit_take_bucket(l, s, now_us, cost);
    case LIMIT_SLIDING_WINDOW:
        return limit_take_slide(l, s, now_us, cost);
    default:
        return limit_take_count(l, w, s, now_us, cost);
    }
}

LIMIT_HOT uint32_t limit_remaining(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us)
{
    if (l->algorithm == LIMIT_TOKEN_BUCKET)
        return limit_remaining_bucket(l, limit_level(l, s, now_us).used);
    if (l->algorithm == LIMIT_SLIDING_WINDOW) {
        struct limit_slide slide = limit_slide_at(l, s, now_us);
        return limit_remaining_slide(l, &slide);
    }
    return limit_remaining_count(l, limit_count_at(l, w, s, now_us).count);
}

/* Parts of the capacity, LIMIT_SHARES of which are all of it, as a share from 1 up to that. */
LIMIT_HOT uint64_t limit_share_of(uint64_t parts)
{
    return (parts < LIMIT_SHARES ? parts : LIMIT_SHARES - 1) + 1;
}

LIMIT_HOT uint8_t limit_share(const struct limit *l, uint64_t used)
{
    return used >= l->capacity ? LIMIT_SHARE_FULL : (uint8_t)limit_share_of(used * l->share_factor >> 32);
}

LIMIT_HOT struct limit_outlook limit_outlook_bucket(const struct limit *l, struct limit_state s, int64_t now_us)
{
    if (__builtin_expect(s.data > l->capacity_units, 0))
        return limit_outlook_overfull(l, s, now_us);
    uint64_t part = (uint64_t)((limit_wide)s.data * l->share_factor >> 64);
    uint8_t share = l->capacity_units - s.data < LIMIT_TOKEN ? LIMIT_SHARE_FULL : (uint8_t)limit_share_of(part);
    int64_t start = (int64_t)s.time > now_us ? (int64_t)s.time : now_us;
    int64_t decays = start + share * l->share_us;
    return (struct limit_outlook){ decays < CLOCK_END_US ? decays : CLOCK_END_US, l->spare_us, share };
}

LIMIT_HOT struct limit_outlook limit_outlook_slide(const struct limit *l, struct limit_state s, int64_t now_us)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    /* Shifted to 32 bits each, so that one ordinary division does. */
    int shift = 64 - __builtin_clzll((uint64_t)l->per_us) - 32;
    shift = shift > 0 ? shift : 0;
    uint64_t in_view = w.previous * ((uint64_t)(l->per_us - w.offset_us) >> shift) / ((uint64_t)l->per_us >> shift);
    uint8_t share = limit_share(l, in_view + w.count);
    if (!limit_slide_fits(l, &w, 1))
        share = LIMIT_SHARE_FULL;
    else if (share == LIMIT_SHARE_FULL)
        share = LIMIT_SHARES;
    return (struct limit_outlook){ w.start_us + (w.count ? 2 : 1) * l->per_us, 0, share };
}

/* Of a state that limit_take made at now_us. */
LIMIT_HOT struct limit_outlook limit_outlook(const struct limit *l, struct limit_state s, int64_t now_us)
{
    switch (l->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return limit_outlook_bucket(l, s, now_us);
    case LIMIT_SLIDING_WINDOW:
        return limit_outlook_slide(l, s, now_us);
    default:
        return (struct limit_outlook){ limit_state_end(s), 0, limit_share(l, (uint32_t)s.data) };
    }
}

/* ---- the quick way ---- */

/* What has come back in the step that has begun matters only to those who are nearly empty, or nearly full. */
LIMIT_HOT bool limit_quick_bucket(const struct limit *l, struct limit_state s, int64_t now_us, uint32_t cost,
                                  struct limit_quick *ret)
{
    uint64_t elapsed = (uint64_t)now_us - s.time, units = cost * LIMIT_TOKEN;
    if (__builtin_expect(s.time > (uint64_t)now_us || !l->step_fine, 0))
        return false;
    ret->next = (struct limit_state){ (uint64_t)now_us, units };
    if (!limit_drained(l, s.data, elapsed)) {
        uint64_t steps = limit_divide(elapsed, &l->step);
        uint64_t used = s.data - steps * l->step_units;
        if (__builtin_expect(used > s.data || used <= l->step_units, 0))
            return false;
        ret->next.time = s.time + steps * l->step.by;
        ret->next.data += used;
    }
    uint64_t part = (uint64_t)((limit_wide)ret->next.data * l->share_factor >> 64);
    ret->share = limit_share_of(part);
    int64_t decays = now_us + (int64_t)ret->share * l->share_us;
    ret->decays_us = decays < CLOCK_END_US ? decays : CLOCK_END_US;
    return __builtin_expect(ret->next.data >= units && ret->next.data <= l->capacity_units - LIMIT_TOKEN, 1);
}

LIMIT_HOT bool limit_quick_count(const struct limit *l, struct limit_state s, int64_t now_us, uint32_t cost,
                                 struct limit_quick *ret)
{
    uint64_t used = (uint32_t)s.data + (uint64_t)cost;
    ret->next = (struct limit_state){ s.time, s.data + cost };
    ret->decays_us = limit_state_end(s);
    ret->share = limit_share_of(used * l->share_factor >> 32);
    return __builtin_expect(limit_count_goes_on(l, s, now_us) && used < l->max, 1);
}

/* What is still in view of the previous window is rounded up. */
LIMIT_HOT bool limit_quick_slide(const struct limit *l, struct limit_state s, int64_t now_us, uint32_t cost,
                                 struct limit_quick *ret)
{
    uint64_t offset = (uint64_t)now_us - s.time; /* huge if the clock stepped back */
    if (__builtin_expect(offset >= (uint64_t)l->per_us || s.data == 0, 0))
        return false;
    uint64_t left = ((uint64_t)l->per_us - offset) >> l->slide_shift;
    uint64_t part = ((left + 1) * l->slide_factor >> 32) + 1; /* of the period, in 1/2^31 */
    uint64_t in_view = ((s.data >> 32) * part >> 31) + 1;
    uint64_t used = in_view + (uint32_t)s.data + cost;
    ret->next = (struct limit_state){ s.time, s.data + cost };
    ret->decays_us = (int64_t)s.time + 2 * l->per_us;
    ret->share = limit_share_of(used * l->share_factor >> 32);
    return __builtin_expect(used < l->max, 1);
}

/* False: ask limit_take. cost > 0. `algorithm` is l->algorithm, said once more so that a caller who knows it gets just that
 * code. */
LIMIT_HOT bool limit_quick_by(enum limit_algorithm algorithm, const struct limit *l, struct limit_state s, int64_t now_us,
                              uint32_t cost, struct limit_quick *ret)
{
    switch (algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return limit_quick_bucket(l, s, now_us, cost, ret);
    case LIMIT_SLIDING_WINDOW:
        return limit_quick_slide(l, s, now_us, cost, ret);
    default:
        return limit_quick_count(l, s, now_us, cost, ret);
    }
}

#endif
