/* Slices of a window's budget that this host may spend: each is in a cell of the table, so that every process of the host
 * spends from the same. They come from a store that many hosts share; whoever has a connection to it is the lender.
 *
 * A slice names its window by its end and dies with it. Spending is one compare-and-swap, as charging a limit is.
 *
 *   state   time 52: end of the window, its low bits
 *           data 64: bit 52 of the end · asked 1 · dry marks 30 · tokens left 32
 *   dry     hash of the limit's max 5 · what the store had 8 · until when, in ms 17
 *           a lock: 0 · all bits set · its number
 *
 * The end is by this host's clock, and was worked out from the answer to a message: two answers about one window differ by
 * what they were on their way. So ends within SLICE_SAME_US of each other, while the earlier one is not over, are one
 * window; the earlier one counts.
 *
 * An absent cell is a host that has nothing: it has to ask. */
#ifndef SLICES_SLICE_H
#define SLICES_SLICE_H

#include <weir/weir.h>

#include "cells/cells.h"

#define SLICE_TOKENS_MAX                                                                             \
    UINT32_MAX /* a slice holds no more; a larger cost never passes a leased rule, but for overdraft \
                */
#define SLICE_SAME_US US_PER_S
/* A mark that lies further ahead is ignored: it is an old one, or the clock stepped. The lender makes them for a quarter
 * of a second; the reader's clock may lag behind the lender's by the rest, since a turn of an event loop has one time for
 * all.
 */
#define SLICE_DRY_MAX_US US_PER_S

/* ---- spending ---- */

enum slice_outcome {
    SLICE_TAKEN,
    SLICE_SHORT, /* there is too little: ask the lender, and wait */
    SLICE_DRY,   /* too little, and the store had no more a moment ago: refused */
};

struct slice_spent {
    enum slice_outcome outcome;
    bool renew;     /* taken; little is left, and nobody has asked for more yet: ask, and do not wait */
    uint32_t left;  /* tokens of this host, after it */
    uint32_t taken; /* if it was charged */
    int64_t end_us; /* of the window, by this host's clock; 0: none is known */
};

/* Takes `cost` out of the slice in the cell of `key`. `slice` is a full one: with less than half of it left, it is time to
 * renew. `max` is the limit's: what the store said of another one does not count. cost 0, or charge false: looks. */
struct slice_spent slice_spend(struct cells *cells, uint64_t key, uint32_t slice, uint64_t max, int64_t now_us,
                               uint32_t cost, bool charge);
/* The same for a limit with overdraft: takes what there is of `cost`, if that is at least 1. cost > 0. */
struct slice_spent slice_spend_any(struct cells *cells, uint64_t key, uint32_t slice, uint64_t max, int64_t now_us,
                                   uint64_t cost, bool charge);
/* Takes what there is of `most`, locked or not, for a debt. */
struct slice_spent slice_pay(struct cells *cells, uint64_t key, int64_t now_us, uint64_t most);

/* ---- locks ---- */

/* If nothing was left of a slice, something may be owed, and tokens that come pay it before anybody spends them: see
 * repay.h. Until that is done they are locked: slice_spend finds nothing, and slice_pay finds them. Functions that take
 * ret_lock set it to the lock that they have made, or to 0 if they have made none; the caller unlocks. ret_lock NULL: no
 * lock is made. If its holder dies, the next tokens that come are locked anew, with those that are there. */
void slice_unlock(struct cells *cells, uint64_t key, uint32_t lock, int64_t now_us);

/* Puts back what was spent from the slice of the window that ends then, if it is still there. */
void slice_unspend(struct cells *cells, uint64_t key, int64_t end_us, uint32_t cost, uint32_t *ret_lock);

/* Gives back `cost` of what was spent, whoever spent it: the slice becomes a full one at most. Does nothing if this host
 * has no slice of a window that goes on. Returns what is left after it. */
uint32_t slice_give_back(struct cells *cells, uint64_t key, uint32_t slice, uint64_t cost, int64_t now_us,
                         uint32_t *ret_lock);

/* ---- lending ---- */

/* A slice has come. It is added to what is left of the same window; tokens of another one are void. Clears `asked`. Times
 * are this host's. */
void slice_put(struct cells *cells, uint64_t key, int64_t end_us, uint32_t tokens, int64_t now_us, uint32_t *ret_lock);
/* The store has no more than `room`, too little for some request: until until_us, requests that lack more than that on this
 * host are refused without asking. If there are tokens that somebody has locked, it makes no mark: the lock is the caller's
 * then, or stays. */
void slice_set_dry(struct cells *cells, uint64_t key, int64_t end_us, uint64_t max, uint64_t room, int64_t until_us,
                   int64_t now_us, uint32_t *ret_lock);
/* Takes out all that is left of the window that ends then, to return it to the store; frees the cell. */
uint32_t slice_collect(struct cells *cells, uint64_t key, int64_t end_us, int64_t now_us);
/* Returns what is left of the window that ends then. */
uint32_t slice_left(struct cells *cells, uint64_t key, int64_t end_us, int64_t now_us);

#endif
