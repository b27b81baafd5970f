/* Tokens that pay a debt. A slice and what is owed are in two cells, which cannot change at once. Nobody shall spend tokens
 * of a limit that is overdrawn, so the two look at each other:
 *
 *   tokens come     they are put under a lock; the debt is looked at, and they pay it; the rest is unlocked
 *   a debt is made  the debt is added; then tokens that are there pay it, locked or not
 *
 * If the debt was added before it was looked at, the first sees it. Otherwise the tokens were there when the second looked.
 * Once the one that made the debt is done, nobody spends before it is paid. */
#ifndef SLICES_REPAY_H
#define SLICES_REPAY_H

#include "slices/debt.h"
#include "slices/slice.h"

struct repay {
    struct cells *cells;
    uint64_t slice, owed; /* keys of their cells */
    const struct limit *limit;
    const struct window *window;
    int64_t now_us;
};

/* Tokens have come into the slice, which the caller may have locked (`lock`, or 0). Pays what is owed, and unlocks the
 * rest. Returns what was paid. *ret_held: the limit is overdrawn, and somebody else is paying just now: nothing was done,
 * and the tokens are still locked. */
uint64_t repay_with_new(const struct repay *r, uint32_t lock, bool *ret_held);
/* The caller has added a debt of `cost`, which left `owed`. Returns what the slice had and paid of it. */
struct slice_spent repay_new(const struct repay *r, struct limit_state owed, uint64_t cost);

#endif
