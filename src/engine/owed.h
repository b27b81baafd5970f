/* What this host has let through in place of the store, and the store has yet to charge: see slices/debt.h. */
#ifndef ENGINE_OWED_H
#define ENGINE_OWED_H

#include "engine/shared.h"

/* Entry i was let through in place of the store: its cost is owed. */
void owed_add(struct shared *s, size_t i);
/* That is taken back. */
void owed_drop(struct shared *s, size_t i);

/* The call that is made takes along what is owed of entry i, in its `debt`, unless somebody else is paying it. */
void owed_take(struct shared *s, size_t i);
/* The call is over. Unless it is certain that it has charged what was owed, that is owed still. */
void owed_settle(struct shared *s);

#endif
