/* The order in which a decision takes its counters. */
#ifndef ENGINE_ORDER_H
#define ENGINE_ORDER_H

#include "engine/decision.h"

/* Every decision takes its counters in one order, that of the keys of their cells, whatever their kind. Otherwise two
 * requests for the same two cells could each get the one that the other wants next. Counters with the same key stay in the
 * order in which they are. `ret` has room for `count`. */
void counters_order(struct counter *counters, size_t count, struct counter **ret);

#endif
