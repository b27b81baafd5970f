/* Subjects that were refused because of a penalty, by name: a list of fixed size. The table of cells, which knows the
 * penalties, knows subjects by their hash only. A subject stays in the list until another one needs its place: the one
 * whose penalty ends first makes room. Whether a penalty still runs is for the reader to ask. */
#ifndef REFUSED_PENALISED_H
#define REFUSED_PENALISED_H

#include "refused/subject.h"

enum { PENALISED_SLOTS = 1000 };

struct penalised_entry {
    uint64_t hash;   /* of the subject's values, as its cells have it */
    int64_t ends_us; /* when it was last refused: the end of its penalty */
    struct subject subject;
};

/* Used by one thread at a time. */
struct penalised;
int penalised_new(struct penalised **ret, unsigned slots);
void penalised_free(struct penalised *penalised);
void penalised_add(struct penalised *penalised, const struct penalised_entry *entry, int64_t now_us);

/* The sum of some lists. */
struct penalised_list {
    struct penalised_entry *entries; /* after penalised_list_sort: each subject once, by rule, the last to end first */
    size_t count, cap;
    uint64_t left_out; /* subjects that made room while their penalty still ran */
};

/* Room for one more list, so that penalised_collect asks for no memory. */
int penalised_list_reserve(struct penalised_list *list, unsigned slots);
void penalised_collect(const struct penalised *penalised, struct penalised_list *list);
void penalised_list_sort(struct penalised_list *list);
void penalised_list_done(struct penalised_list *list);

#endif
