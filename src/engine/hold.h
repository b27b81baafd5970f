/* Charges of a decision that are holds: of a request with a ttl_ms all, else those of limits that count what is in flight.
 */
#ifndef ENGINE_HOLD_H
#define ENGINE_HOLD_H

#include "engine/decision.h"
#include "engine/store.h"

/* Says whether the decision has holds, and lets limits refuse that allow a hold only a part of their max. */
void hold_plan(struct decision *d);

/* Returns whether the charge of this counter is a hold. */
static inline bool hold_wants(const struct decision *d, const struct counter *c)
{
    return c->ask.limit->algorithm == LIMIT_CONCURRENT || (d->request->ttl_ms > 0 && !d->request->keep);
}

/* Returns how long the hold of a counter lasts. */
static inline uint32_t hold_ttl_ms(const struct decision *d, const struct counter *c)
{
    uint32_t ttl_ms = d->request->ttl_ms;
    return ttl_ms > 0 ? ttl_ms : (uint32_t)(c->ask.limit->per_us / US_PER_MS);
}

/* Returns the hold of a counter in the store. There all charges of a request with a ttl_ms are holds, also those that are
 * kept: that is how the store knows that a hold was not settled yet. */
struct store_hold hold_in_store(const struct decision *d, const struct counter *c, size_t nth);

/* Both are for counters in cells. `look` may be NULL. */
enum counter_outcome hold_take(const struct decision *d, struct counter *c, const struct cells_look *look);
void hold_give_back(const struct decision *d, const struct counter *c, int64_t now_us);

#endif
