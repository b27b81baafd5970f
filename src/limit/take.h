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
    uint64_t used;   /* in units of the limit */
    int64_t at_us;   /* now, or the cell's own time if that is later */
    int64_t base_us; /* at_us or a little earlier: then exactly … */
    uint64_t base;   /* … so much was used, which says the same */
    bool rebased;
};

/* Whether everything has come back by now, by an estimate that is a microsecond or two late. */
LIMIT_HOT bool limit_drained(const struct limit *l, uint64_t used, uint64_t elapsed_us)
{
    return elapsed_us > (uint64_t)((limit_wide)used * l->drain_factor >> 64) + 1 && l->drain_factor > 0;
}

/* Whether the state counts in the limit's parts. Unused states of coarse limits do not: they are all zero. */
LIMIT_HOT bool limit_has_parts(const struct limit *l, struct limit_state s)
{
    return (s.data >= LIMIT_COARSE) == (l->base > 0);
}

/* The state counts in the limit's parts. */
static inline struct limit_level limit_level(const struct limit *l, struct limit_state s, int64_t now_us)
{
    uint64_t was = s.data - l->base, elapsed = 0;
    struct limit_level level = { .at_us = now_us, .base_us = (int64_t)s.time, .base = was };
    if (__builtin_expect((int64_t)s.time <= now_us, 1)) {
        elapsed = (uint64_t)now_us - s.time;
    } else if (was && (int64_t)s.time - now_us <= l->per_us) {
        level.at_us = (int64_t)s.time;
    } else {
        level.base_us = now_us;
        level.rebased = was != 0;
    }
    /* Most states that are charged seldom end here. Below, less than 2^64 can have come back. */
    bool drained = limit_drained(l, was, elapsed);
    uint64_t steps = 0, back = 0, product;
    if (!drained) {
        /* The refill, and the part of it in whole steps. */
        steps = limit_divide(elapsed, &l->step);
        if (__builtin_expect(!__builtin_mul_overflow(elapsed, l->step_units, &product), 1))
            back = limit_divide(product, &l->step);
        else
            back = (uint64_t)((limit_wide)elapsed * l->step_units / l->step.by);
    }
    if (drained || was <= back) {
        level.base_us = level.at_us;
        level.base = 0;
        return level;
    }
    level.used = was - back;
    level.base_us += (int64_t)(steps * l->step.by);
    level.base -= steps * l->step_units;
    return level;
}

/* A state of the limit's parts in which so much is used. */
LIMIT_HOT struct limit_state limit_level_state(const struct limit *l, int64_t at_us, uint64_t used)
{
    return (struct limit_state){ (uint64_t)at_us, used ? l->base + used : 0 };
}

LIMIT_HOT uint64_t limit_remaining_bucket(const struct limit *l, uint64_t used)
{
    uint64_t left = used < l->capacity_units ? l->capacity_units - used : 0;
    return __builtin_expect(l->base > 0, 0) ? left / LIMIT_TOKEN_COARSE : left / LIMIT_TOKEN;
}

struct limit_take limit_take_other_parts(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost);

LIMIT_HOT struct limit_take limit_take_bucket(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost)
{
    if (__builtin_expect(!limit_has_parts(l, s), 0))
        return limit_take_other_parts(l, s, now_us, cost);
    struct limit_level level = limit_level(l, s, now_us);
    struct limit_take take = { .rebased = level.rebased };
    uint64_t units = cost * l->token;
    if (l->max > 0 && cost <= l->capacity && level.used <= l->capacity_units - units) {
        take.fits = true;
        take.next = __builtin_expect(l->step_fine || cost == 0, 1) ? limit_level_state(l, level.base_us, level.base + units)
                                                                   : limit_level_state(l, level.at_us, level.used + units);
    } else {
        take.next = limit_level_state(l, level.base_us, level.base);
    }
    return take;
}

/* ---- fixed and calendar windows ---- */

enum {
    LIMIT_LENGTH_MANTISSA = 26,
    LIMIT_LENGTH_SHIFTS = 24, /* a longer shift marks a wide state */
    LIMIT_WIDE_BITS = 53,     /* of a wide state's count */
};
/* Longer than any window; a state that is damaged may say more. */
#define LIMIT_LENGTH_MAX_US (INT64_C(7) << 46)

/* A length with so many binary digits and a shift, rounded up: it only tells a stepped clock from a window that is simply
 * long. */
static inline uint32_t limit_length_round(int64_t length_us, unsigned mantissa_bits)
{
    uint64_t length = (uint64_t)(length_us < LIMIT_LENGTH_MAX_US ? length_us : LIMIT_LENGTH_MAX_US);
    unsigned bits = 64 - (unsigned)__builtin_clzll(length | 1);
    unsigned shift = bits > mantissa_bits ? bits - mantissa_bits : 0;
    uint64_t mantissa = (length + (UINT64_C(1) << shift) - 1) >> shift;
    if (mantissa >> mantissa_bits) {
        mantissa >>= 1;
        shift++;
    }
    return (uint32_t)(shift << mantissa_bits | mantissa);
}

/* In 31 bits. */
static inline uint32_t limit_length_pack(int64_t length_us)
{
    return limit_length_round(length_us, LIMIT_LENGTH_MANTISSA);
}

/* 0 of a wide state. */
static inline int64_t limit_length_unpack(uint32_t packed)
{
    uint64_t mantissa = packed & ((1u << LIMIT_LENGTH_MANTISSA) - 1);
    unsigned shift = packed >> LIMIT_LENGTH_MANTISSA & 31;
    return shift < LIMIT_LENGTH_SHIFTS ? (int64_t)(mantissa << shift) : 0;
}

struct limit_count {
    int64_t end_us;
    uint32_t length; /* packed */
    uint64_t count;  /* 0: there is no window */
    bool rebased;
};

struct limit_state limit_count_wide_state(const struct limit_count *c);

/* A state is wide if its count has more than 32 bits, and only then: whatever `max` was and is. */
static inline struct limit_state limit_count_state(const struct limit_count *c)
{
    uint64_t end = (uint64_t)c->end_us;
    if (__builtin_expect(c->count > UINT32_MAX, 0))
        return limit_count_wide_state(c);
    return (struct limit_state){ end & (CLOCK_END_US - 1), end >> CLOCK_BITS << 63 | (uint64_t)c->length << 32 | c->count };
}

static inline int64_t limit_state_end(struct limit_state s)
{
    return (int64_t)(s.data >> 63 << CLOCK_BITS | s.time);
}

LIMIT_HOT bool limit_state_is_wide(struct limit_state s)
{
    return (s.data >> 61 & 3) == 3;
}

/* The count of a window's state, whether or not its window is over. */
LIMIT_HOT uint64_t limit_state_count(struct limit_state s)
{
    return __builtin_expect(limit_state_is_wide(s), 0) ? s.data & ((UINT64_C(1) << LIMIT_WIDE_BITS) - 1) : (uint32_t)s.data;
}

/* The window that a state has, as it was written. `w` is the current one of a calendar limit, or NULL if it is not known.
 */
struct limit_count limit_count_read_wide(const struct limit *l, const struct window *w, struct limit_state s);

LIMIT_HOT struct limit_count limit_count_read(const struct limit *l, const struct window *w, struct limit_state s)
{
    if (__builtin_expect(limit_state_is_wide(s), 0))
        return limit_count_read_wide(l, w, s);
    return (struct limit_count){ limit_state_end(s), (uint32_t)(s.data >> 32) & INT32_MAX, (uint32_t)s.data, false };
}

/* The window that a request at now_us falls into if the state has none. */
static inline struct limit_count limit_count_open(const struct limit *l, const struct window *w, int64_t now_us)
{
    if (l->algorithm == LIMIT_CALENDAR) {
        CHECK(w && w->start_us < w->end_us);
        return (struct limit_count){ .end_us = w->end_us, .length = limit_length_pack(w->end_us - w->start_us) };
    }
    return (struct limit_count){ .end_us = now_us + l->window_us, .length = l->length };
}

/* A window of this packed length that ends later than this was made by a clock that was wrong. */
LIMIT_HOT int64_t limit_reach_us(const struct limit *l, uint32_t length)
{
    return __builtin_expect(length == l->length, 1) ? l->reach_us : 2 * limit_length_unpack(length);
}

/* The window that the state has goes on: it is not over, and the clock has not stepped back by more than its length since.
 * False of wide states. */
LIMIT_HOT bool limit_count_goes_on(const struct limit *l, struct limit_state s, int64_t now_us)
{
    int64_t left = limit_state_end(s) - now_us;
    return (uint32_t)s.data > 0 && left > 0 && left <= limit_reach_us(l, (uint32_t)(s.data >> 32) & INT32_MAX);
}

LIMIT_HOT struct limit_count limit_count_at(const struct limit *l, const struct window *w, struct limit_state s,
                                            int64_t now_us)
{
    struct limit_count c = limit_count_read(l, w, s);
    int64_t left = c.end_us - now_us;
    if (c.count > 0 && left > 0 && left <= limit_reach_us(l, c.length))
        return c;
    struct limit_count opened = limit_count_open(l, w, now_us);
    if (left > 0) {
        opened.count = c.count;
        opened.rebased = c.count > 0;
    }
    return opened;
}

LIMIT_HOT uint64_t limit_remaining_count(const struct limit *l, uint64_t count)
{
    return count < l->max ? l->max - count : 0;
}

LIMIT_HOT struct limit_take limit_take_count(const struct limit *l, const struct window *w, struct limit_state s,
                                             int64_t now_us, uint64_t cost)
{
    struct limit_take take = { .next = s };
    bool may_fit = l->max > 0 && cost <= l->max;
    if (__builtin_expect(limit_count_goes_on(l, s, now_us) && l->max <= UINT32_MAX, 1)) {
        /* The count is in the low bits, and stays below 2^32. */
        take.fits = may_fit && (uint32_t)s.data <= l->max - cost;
        take.next.data += take.fits ? cost : 0;
        return take;
    }
    struct limit_count c = limit_count_at(l, w, s, now_us);
    take.rebased = c.rebased;
    take.fits = may_fit && c.count <= l->max - cost;
    c.count += take.fits ? cost : 0;
    take.next = limit_count_state(&c);
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
        if (w.start_us - now_us > l->window_us && counts != 0) {
            w.start_us = now_us;
            w.rebased = true;
        }
    } else {
        w.offset_us = now_us - w.start_us;
    }
    if (w.offset_us >= l->window_us) {
        counts = w.offset_us - l->window_us < l->window_us ? counts << 32 : 0;
        w.start_us += l->window_us;
        w.offset_us -= l->window_us;
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
           (limit_wide)w->previous * (uint64_t)(l->window_us - w->offset_us) <=
               (limit_wide)(l->max - wanted) * (uint64_t)l->window_us;
}

static inline uint64_t limit_remaining_slide(const struct limit *l, const struct limit_slide *w)
{
    if (w->previous == 0)
        return limit_remaining_count(l, w->count);
    limit_wide per = (uint64_t)l->window_us, all = l->max * per;
    limit_wide used = (limit_wide)w->previous * (uint64_t)(l->window_us - w->offset_us) + w->count * per;
    return used < all ? (uint64_t)((all - used) / per) : 0;
}

LIMIT_HOT struct limit_take limit_take_slide(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    struct limit_take take = { .rebased = w.rebased, .fits = limit_slide_fits(l, &w, cost) };
    if (take.fits)
        w.count += (uint32_t)cost;
    take.next = limit_slide_state(&w);
    return take;
}

/* ---- concurrent ---- */

static inline struct limit_take limit_take_concurrent(const struct limit *l, struct limit_state s, uint64_t cost)
{
    struct limit_take take = { .next = s, .fits = l->max > 0 && cost <= l->max && s.data <= l->max - cost };
    take.next.data += take.fits ? cost : 0;
    return take;
}

/* ---- any ---- */

LIMIT_HOT struct limit_take limit_take(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us,
                                       uint64_t cost)
{
    switch (l->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return limit_take_bucket(l, s, now_us, cost);
    case LIMIT_SLIDING_WINDOW:
        return limit_take_slide(l, s, now_us, cost);
    case LIMIT_CONCURRENT:
        return limit_take_concurrent(l, s, cost);
    default:
        return limit_take_count(l, w, s, now_us, cost);
    }
}

uint64_t limit_remaining_other_parts(const struct limit *l, struct limit_state s, int64_t now_us);

LIMIT_HOT uint64_t limit_remaining(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us)
{
    if (l->algorithm == LIMIT_TOKEN_BUCKET)
        return __builtin_expect(limit_has_parts(l, s), 1) ? limit_remaining_bucket(l, limit_level(l, s, now_us).used)
                                                          : limit_remaining_other_parts(l, s, now_us);
    if (l->algorithm == LIMIT_SLIDING_WINDOW) {
        struct limit_slide slide = limit_slide_at(l, s, now_us);
        return limit_remaining_slide(l, &slide);
    }
    if (__builtin_expect(l->algorithm == LIMIT_CONCURRENT, 0))
        return limit_remaining_count(l, s.data);
    return limit_remaining_count(l, limit_count_at(l, w, s, now_us).count);
}

/* Parts of the capacity, LIMIT_SHARES of which are all of it, as a share from 1 up to that. */
LIMIT_HOT uint64_t limit_share_of(uint64_t parts)
{
    return (parts < LIMIT_SHARES ? parts : LIMIT_SHARES - 1) + 1;
}

LIMIT_HOT uint8_t limit_share(const struct limit *l, uint64_t used)
{
    return used >= l->capacity ? LIMIT_SHARE_FULL : (uint8_t)limit_share_of(used * l->share_factor >> LIMIT_SHARE_SHIFT);
}

LIMIT_HOT struct limit_outlook limit_outlook_bucket(const struct limit *l, struct limit_state s, int64_t now_us)
{
    uint64_t used = s.data - l->base;
    if (__builtin_expect(used > l->capacity_units, 0))
        return limit_outlook_overfull(l, s, now_us);
    uint64_t part = (uint64_t)((limit_wide)used * l->share_factor >> 64);
    uint8_t share = l->capacity_units - used < l->token ? LIMIT_SHARE_FULL : (uint8_t)limit_share_of(part);
    int64_t start = (int64_t)s.time > now_us ? (int64_t)s.time : now_us;
    int64_t decays = start + share * l->share_us;
    return (struct limit_outlook){ decays < CLOCK_END_US ? decays : CLOCK_END_US, l->spare_us, share };
}

LIMIT_HOT struct limit_outlook limit_outlook_slide(const struct limit *l, struct limit_state s, int64_t now_us)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    /* Shifted to 32 bits each, so that one ordinary division does. */
    int shift = 64 - __builtin_clzll((uint64_t)l->window_us) - 32;
    shift = shift > 0 ? shift : 0;
    uint64_t in_view = w.previous * ((uint64_t)(l->window_us - w.offset_us) >> shift) / ((uint64_t)l->window_us >> shift);
    uint8_t share = limit_share(l, in_view + w.count);
    if (!limit_slide_fits(l, &w, 1))
        share = LIMIT_SHARE_FULL;
    else if (share == LIMIT_SHARE_FULL)
        share = LIMIT_SHARES;
    return (struct limit_outlook){ w.start_us + (w.count ? 2 : 1) * l->window_us, 0, share };
}

/* Returns the outlook of a state that limit_take made at now_us. */
LIMIT_HOT struct limit_outlook limit_outlook(const struct limit *l, struct limit_state s, int64_t now_us)
{
    switch (l->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return limit_outlook_bucket(l, s, now_us);
    case LIMIT_SLIDING_WINDOW:
        return limit_outlook_slide(l, s, now_us);
    case LIMIT_CONCURRENT: /* it lasts as long as its holds, which only the table knows */
        return (struct limit_outlook){ now_us, 0, limit_share(l, s.data) };
    default:
        return (struct limit_outlook){ limit_state_end(s), 0, limit_share(l, limit_state_count(s)) };
    }
}

/* ---- the quick way ---- */

/* Tokens that came back in the current step matter only for buckets that are nearly empty or nearly full. A state in other
 * parts is more than the capacity. Where a charge rounds, the quick way is for unused states. */
LIMIT_HOT bool limit_quick_bucket(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost,
                                  struct limit_quick *ret)
{
    uint64_t elapsed = (uint64_t)now_us - s.time, was = s.data - l->base, units = cost * l->token, used = units;
    if (__builtin_expect(s.time > (uint64_t)now_us || was > (l->step_fine ? l->capacity_units : 0) || cost > l->capacity,
                         0))
        return false;
    ret->next.time = (uint64_t)now_us;
    if (!limit_drained(l, was, elapsed)) {
        uint64_t steps = limit_divide(elapsed, &l->step);
        uint64_t left = was - steps * l->step_units;
        if (__builtin_expect(left > was || left <= l->step_units, 0))
            return false;
        ret->next.time = s.time + steps * l->step.by;
        used += left;
    }
    ret->next.data = l->base + used;
    uint64_t part = (uint64_t)((limit_wide)used * l->share_factor >> 64);
    ret->share = limit_share_of(part);
    int64_t decays = now_us + (int64_t)ret->share * l->share_us;
    ret->decays_us = decays < CLOCK_END_US ? decays : CLOCK_END_US;
    return __builtin_expect(used >= units && used <= l->capacity_units - l->token, 1);
}

LIMIT_HOT bool limit_quick_count(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost,
                                 struct limit_quick *ret)
{
    uint64_t used = (uint32_t)s.data + cost;
    ret->next = (struct limit_state){ s.time, s.data + cost };
    ret->decays_us = limit_state_end(s);
    ret->share = limit_share_of(used * l->share_factor >> LIMIT_SHARE_SHIFT);
    return __builtin_expect(limit_count_goes_on(l, s, now_us) && used < l->quick_max, 1);
}

/* The part of the previous window that is still in view is rounded up. */
LIMIT_HOT bool limit_quick_slide(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost,
                                 struct limit_quick *ret)
{
    uint64_t offset = (uint64_t)now_us - s.time; /* huge if the clock stepped back */
    if (__builtin_expect(offset >= (uint64_t)l->window_us || s.data == 0, 0))
        return false;
    uint64_t left = ((uint64_t)l->window_us - offset) >> l->slide_shift;
    uint64_t part = ((left + 1) * l->slide_factor >> 32) + 1; /* of the period, in 1/2^31 */
    uint64_t in_view = ((s.data >> 32) * part >> 31) + 1;
    uint64_t used = in_view + (uint32_t)s.data + cost;
    ret->next = (struct limit_state){ s.time, s.data + cost };
    ret->decays_us = (int64_t)s.time + 2 * l->window_us;
    ret->share = limit_share_of(used * l->share_factor >> LIMIT_SHARE_SHIFT);
    return __builtin_expect(used < l->max, 1);
}

/* False: ask limit_take. cost > 0. `algorithm` is l->algorithm, as a separate argument, so that a caller that knows it gets
 * only that code. */
LIMIT_HOT bool limit_quick_by(enum limit_algorithm algorithm, const struct limit *l, struct limit_state s, int64_t now_us,
                              uint64_t cost, struct limit_quick *ret)
{
    switch (algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return limit_quick_bucket(l, s, now_us, cost, ret);
    case LIMIT_SLIDING_WINDOW:
        return limit_quick_slide(l, s, now_us, cost, ret);
    case LIMIT_CONCURRENT:
        return false;
    default:
        return limit_quick_count(l, s, now_us, cost, ret);
    }
}

#endif
