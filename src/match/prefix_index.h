/* Templates that could match a path of which only the beginning is known: see prefix_index.c. */
#ifndef MATCH_PREFIX_INDEX_H
#define MATCH_PREFIX_INDEX_H

#include "match/tree.h"

struct prefix_index {
    const struct tree *tree;
    const struct table *table;
    uint32_t *sorted; /* slots of the table that are literal children, by node and text */
    size_t count;
};

/* For a tree that is finished. *ret lives in `arena`; false: no memory. */
bool prefix_index_init(struct prefix_index *ret, const struct tree *tree, const struct table *table, struct arena *arena);
/* Writes the list of every template that template_matches() finds for a path that was cut, at most `cap` of them, in no
 * order. Returns how many; cap + 1: too many. */
size_t prefix_index_find(const struct prefix_index *index, sv begin, const struct ids *ids, uint32_t *ret_lists,
                         size_t cap);

#endif
