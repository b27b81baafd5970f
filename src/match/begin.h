/* Templates that could match a path of which only the beginning is known: see begin.c. */
#ifndef MATCH_BEGIN_H
#define MATCH_BEGIN_H

#include "match/tree.h"

struct begin_entry {
    sv template; /* canonical */
    uint32_t list;
};

struct begin_index {
    struct begin_entry *sorted; /* by template, none twice */
    size_t count;
};

/* Sorts the entries and takes out those that are there twice. */
void begin_sort(struct begin_index *index);
/* Writes the list of every template that template_may_match says yes of, at most `cap` of them, in no order. Returns how
 * many; cap + 1: too many. */
size_t begin_find(const struct begin_index *index, sv begin, const struct ids *ids, uint32_t *ret_lists, size_t cap);

#endif
