/* The time for which the rest of a window lasts at the present pace. */
#include "limit/take.h"

/* A window that has just begun tells little: its first second counts as a whole one. */
#define LEAST_US US_PER_S

static int64_t elapsed_since(int64_t start_us, int64_t now_us)
{
    return now_us - start_us > LEAST_US ? now_us - start_us : LEAST_US;
}

/* `count` since the window began. */
static int64_t count_lasts(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us)
{
    struct limit_count c = limit_count_at(l, w, s, now_us);
    uint64_t remaining = limit_remaining_count(l, c.count);
    if (c.count == 0 || remaining == 0)
        return c.count == 0 ? LIMIT_NEVER_US : 0;
    int64_t elapsed_us = elapsed_since(c.end_us - limit_length_unpack(c.length), now_us);
    limit_wide lasts_us = (limit_wide)remaining * (uint64_t)elapsed_us / c.count;
    return lasts_us < (uint64_t)(c.end_us - now_us) ? (int64_t)lasts_us : LIMIT_NEVER_US;
}

/* While the window goes on, what the one before it has used fades: only the pace beyond that uses up what is left. With the
 * same pace in the window after it, no more is used than at the end of this one. In milliseconds, so that the products fit.
 */
static int64_t slide_lasts(const struct limit *l, struct limit_state s, int64_t now_us)
{
    struct limit_slide w = limit_slide_at(l, s, now_us);
    uint64_t remaining = limit_remaining_slide(l, &w);
    if (remaining == 0)
        return w.count > 0 || w.previous > 0 ? 0 : LIMIT_NEVER_US;
    uint64_t elapsed_ms = (uint64_t)elapsed_since(w.start_us, now_us) / US_PER_MS;
    uint64_t per_ms = (uint64_t)l->per_us / US_PER_MS;
    limit_wide comes = (limit_wide)w.count * per_ms, fades = (limit_wide)w.previous * elapsed_ms;
    if (comes <= fades)
        return LIMIT_NEVER_US;
    limit_wide lasts_ms = (limit_wide)remaining * elapsed_ms * per_ms / (comes - fades);
    return lasts_ms < (uint64_t)(l->per_us - w.offset_us) / US_PER_MS ? (int64_t)lasts_ms * US_PER_MS : LIMIT_NEVER_US;
}

int64_t limit_lasts_us(const struct limit *limit, const struct window *window, struct limit_state state, int64_t now_us)
{
    if (limit->max == 0)
        return LIMIT_NEVER_US;
    switch (limit->algorithm) {
    case LIMIT_FIXED_WINDOW:
    case LIMIT_CALENDAR:
        return count_lasts(limit, window, state, now_us);
    case LIMIT_SLIDING_WINDOW:
        return slide_lasts(limit, state, now_us);
    default:
        return LIMIT_NEVER_US;
    }
}
