/* Receipts: what a request was charged, so that it can be given back. */
#ifndef ENGINE_REFUND_H
#define ENGINE_REFUND_H

#include "engine/engine.h"

struct shared;

/* Of a request that has passed and was charged. */
void plan_receipt(const struct plan *plan, struct cells *cells, struct weir_receipt *ret);
/* The same where counters are shared. What was counted in place of the store is not in it, since it is charged there later.
 */
void shared_receipt(const struct shared *s, struct weir_receipt *ret);

#endif
