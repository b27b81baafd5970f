/* Debts: what this host has let through in place of a store that was unavailable, and has yet to charge there.
 *
 * Each limit counts it in a cell of its own, besides the stand-in that bounds it. When the store is back the amount is
 * charged there, and the cell is given up when that is certain. The amount decays as the limit does. It has no upper bound:
 * everything that was let through is owed, whatever `max` says. */
#ifndef SLICES_DEBT_H
#define SLICES_DEBT_H

#include "cells/cells.h"

/* Adds `cost` to what is owed. `rank` is the limit whose share of the table's room the debt has: that of the count which it
 * stands for. Returns the state of the cell, for debt_undo. */
struct limit_state debt_add(struct cells *cells, uint64_t key, const struct limit *limit, const struct limit *rank,
                            const struct window *window, int64_t now_us, uint64_t cost);
/* Takes back `cost` that debt_add added at owed_us and that left `owed`. */
void debt_undo(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state owed, int64_t owed_us,
               uint64_t cost, int64_t now_us);

/* ---- paying ---- */

/* The part of a debt that one call to the store takes along. Only one process of the host pays at a time; otherwise the
 * same amount would be charged twice. */
struct payment {
    uint64_t amount; /* 0: nothing is owed, or somebody else is paying */
    int64_t seen_us;
    struct limit_state seen;
};

/* Claims what is owed for `p`, which must not move until payment_end. Reads no cell if nothing was owed for long. Returns
 * false if something is owed, and somebody else is paying. */
bool payment_begin(struct payment *p, struct cells *cells, uint64_t key, const struct limit *limit,
                   const struct window *window, int64_t now_us);
/* Ends the claim. charged: it is certain that the store has charged the amount; else it is owed still. Returns the amount
 * that was paid. */
uint64_t payment_end(struct payment *p, struct cells *cells, uint64_t key, const struct limit *limit, bool charged,
                     int64_t now_us);

/* ---- the parts of a payment ---- */

/* A call to the store takes less: ten seconds to its deadline at most, and ten more until its connection is given up. */
#define DEBT_CLAIM_US (30 * US_PER_S)

/* Returns the amount that is owed now. *ret_seen is for debt_pay. */
uint64_t debt_amount(struct cells *cells, uint64_t key, const struct limit *limit, const struct window *window,
                     int64_t now_us, struct limit_state *ret_seen);
/* `who` is one number for one payment, not 0. The claim ends by itself after DEBT_CLAIM_US, since its holder may die.
 * Returns false if somebody else is paying. */
bool debt_claim(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us);
void debt_release(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us);
/* The store has charged all that debt_amount saw at seen_us. Amounts that were added since then stay. */
void debt_pay(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state seen, int64_t seen_us,
              uint64_t paid, int64_t now_us);

#endif
