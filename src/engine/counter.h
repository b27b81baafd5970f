/* The counters of a decision: look, take, give back, report. There are four kinds (enum counter_kind):
 *
 *             look                     take                         give back
 *   cell      reads the cell           charges it                   refunds it
 *   slice     reads the slice          spends from it               puts it back
 *   store     nothing: the store looks at, takes and refuses all of its counters in one call
 *   stand-in  reads its cell           charges it                   refunds it, takes the debt back
 *
 * A fifth operation, charge, is for weir_charge: it counts a cost whether or not there is room, and never waits. A cell is
 * then beyond its max; a slice is spent, and the rest becomes a debt to the store; a counter in the store has a debt there.
 *
 * Look and take set `outcome` and `state`, so that all kinds are reported alike. Cells are most of the counters: they are
 * called directly, the others through a table. */
#ifndef ENGINE_COUNTER_H
#define ENGINE_COUNTER_H

#include "engine/decision.h"
#include "engine/hold.h"
#include "limit/take.h"
#include "slices/slice.h"

struct counter_ops {
    enum counter_outcome (*look)(struct decision *d, struct counter *c);
    enum counter_outcome (*take)(struct decision *d, struct counter *c);
    void (*give_back)(struct decision *d, struct counter *c);
    void (*charge)(struct decision *d, struct counter *c);
};
extern const struct counter_ops counter_ops[];

/* ---- cells ---- */

static inline enum counter_outcome cell_look(const struct decision *d, struct counter *c)
{
    cells_look(d->bound->cells, &c->ask, &c->look);
    c->state = &c->look.state;
    return c->outcome = c->look.fits ? COUNTER_FITS : COUNTER_REFUSES;
}

static inline enum counter_outcome cell_taken(struct counter *c, bool fits)
{
    c->state = &c->taken.state;
    c->held = fits;
    return c->outcome = fits ? COUNTER_FITS : COUNTER_REFUSES;
}

/* As cells_take, or as a hold. */
static inline enum counter_outcome cell_take(const struct decision *d, struct counter *c)
{
    if (__builtin_expect(d->holds, 0) && hold_wants(d, c))
        return hold_take(d, c, NULL);
    return cell_taken(c, cells_take(d->bound->cells, &c->ask, &c->taken));
}

/* ---- all kinds ---- */

static inline enum counter_outcome counter_look(struct decision *d, struct counter *c)
{
    return __builtin_expect(c->kind == COUNTER_CELL, 1) ? cell_look(d, c) : counter_ops[c->kind].look(d, c);
}

static inline enum counter_outcome counter_take(struct decision *d, struct counter *c)
{
    return __builtin_expect(c->kind == COUNTER_CELL, 1) ? cell_take(d, c) : counter_ops[c->kind].take(d, c);
}

/* The same after counter_look: quicker if the cell has not changed since. */
static inline enum counter_outcome counter_take_looked(struct decision *d, struct counter *c)
{
    if (__builtin_expect(c->kind != COUNTER_CELL, 0))
        return counter_ops[c->kind].take(d, c);
    if (__builtin_expect(d->holds, 0) && hold_wants(d, c))
        return hold_take(d, c, &c->look);
    return cell_taken(c, cells_take_looked(d->bound->cells, &c->ask, &c->look, &c->taken));
}

/* Charges or gives back, once, those of these counters that insist, whatever the others say: from then on their outcome
 * stands (COUNTER_COUNTED). What counts in the store is part of the call. A request that charges nothing only looks at
 * them. */
void counters_insist(struct decision *d, size_t from, size_t end);

/* The request has passed: what stand-ins have let through is owed to the store. Not sooner, since the decision may have
 * waited for other servers of the store, and a debt that others pay meanwhile cannot be taken back. The cell was charged
 * before: a process that dies between the two has counted too much on this host. */
void counters_owe(struct decision *d);
/* Does nothing to a counter that is not held. */
void counter_give_back(struct decision *d, struct counter *c);
/* A cell that refuses has to know it. Otherwise its subject would be locked out by a clock that was wrong, or would be
 * dropped and be free after its limit was lowered. cells_take() handles both cases, and writes nothing if all is well. */
void counter_note_refusal(struct decision *d, struct counter *c);

static inline struct limit_report counter_report(const struct counter *c, uint64_t cost)
{
    struct limit_report report = limit_report(c->ask.limit, &c->window, *c->state, c->ask.now_us, cost);
    if (__builtin_expect(c->kind == COUNTER_SLICE && cost > SLICE_TOKENS_MAX, 0))
        report.retry_after_us = LIMIT_NEVER_US;
    return report;
}

static inline uint64_t counter_remaining(const struct counter *c)
{
    return limit_remaining(c->ask.limit, &c->window, *c->state, c->ask.now_us);
}

#endif
