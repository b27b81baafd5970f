/* Templates that could match a path of which only the beginning is known: see prefix_index.c. */
#ifndef MATCH_PREFIX_INDEX_H
#define MATCH_PREFIX_INDEX_H

#include "match/tree.h"

struct prefix_index {
    const struct compiled_path *paths; /* of all rules */
    uint32_t *sorted;                  /* numbers of those that are in the tree, by template, none twice */
    size_t count;
};

/* Sorts the paths and takes out those whose template is there twice. */
void prefix_index_sort(struct prefix_index *index);
/* Writes the list of every template that template_matches() finds for a path that was cut, at most `cap` of them, in no
 * order. Returns how many; cap + 1: too many. */
size_t prefix_index_find(const struct prefix_index *index, sv begin, const struct ids *ids, uint32_t *ret_lists,
                         size_t cap);

#endif
