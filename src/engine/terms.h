/* The terms of limits, while the limits of a block are bound: limits that say the same share their terms. */
#ifndef ENGINE_TERMS_H
#define ENGINE_TERMS_H

#include "engine/bound.h"

/* The terms of a block by what they say: open addressing, at most half full. */
struct terms_table {
    struct arena *arena; /* of the block */
    struct bound_terms **slots;
    size_t mask;
    struct bound_terms *room; /* for the next ones */
    size_t left;              /* how many fit there */
};

/* For at most so many limits. Returns false if out of memory. */
bool terms_table_init(struct terms_table *table, size_t limits, struct arena *arena);
void terms_table_done(struct terms_table *table); /* the terms stay */

/* Returns the terms of a limit: those of an earlier one that says the same, or new ones. `in_store`: the store counts it.
 * NULL: no memory. */
const struct bound_terms *terms_of(struct terms_table *table, const struct hash_key *key, const struct rule_limit *spec,
                                   bool in_store);

/* Copies a name for verdicts: see NAME_PIECE. Returns NULL if out of memory. */
const char *name_copy(struct arena *arena, sv name);

/* The limit of overrides that deny. */
extern const struct rule_limit deny_limit;

#endif
