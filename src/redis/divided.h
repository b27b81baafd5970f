/* Calls whose rules are in several places of the store.
 *
 * A place is what one call of a script can decide on: a hash slot of a cluster, or a single key while its slot is being
 * moved. A call in one place goes to the store as it is. One in several places is divided into part calls, and stays all or
 * nothing: README.md, "Divided calls".
 *
 * divided.c has store_send and store_settle of redis_store.h. They call these, which know one place at a time. */
#ifndef REDIS_DIVIDED_H
#define REDIS_DIVIDED_H

#include "engine/store.h"

/* Returns the place of a key. Cheap: it is asked for each rule of each call that has several. */
uint32_t store_place(struct store *store, struct weir_str key);
/* Sends a call all of whose rules are in one place. Its callbacks are called as store.h says, and before that each rule has
 * its result (store_call_answered). */
void store_send_one(struct store_link *link, struct store_call *call);
/* Settles a call all of whose rules are in one place and were charged at its server_us. Copies it. */
void store_settle_one(struct store_link *link, const struct store_call *call);

#endif
