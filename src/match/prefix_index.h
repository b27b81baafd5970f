/* Templates that could match a path of which only the beginning is known: see prefix_index.c. */
#ifndef MATCH_PREFIX_INDEX_H
#define MATCH_PREFIX_INDEX_H

#include "match/tree.h"

struct prefix_entry {
    const char *template; /* canonical */
    uint32_t length;
    uint32_t list;
};

struct prefix_index {
    struct prefix_entry *sorted; /* by template, none twice */
    size_t count;
};

/* Sorts the entries and takes out those that are there twice. */
void prefix_index_sort(struct prefix_index *index);
/* Writes the list of every template that template_matches() finds for a path that was cut, at most `cap` of them, in no
 * order. Returns how many; cap + 1: too many. */
size_t prefix_index_find(const struct prefix_index *index, sv begin, const struct ids *ids, uint32_t *ret_lists,
                         size_t cap);

#endif
