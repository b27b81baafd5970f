/* Lists of the most refused subjects of times that are over, and where they are kept. */
#ifndef REFUSED_TOP_LISTS_H
#define REFUSED_TOP_LISTS_H

#include "refused/most_refused.h"

struct top_count {
    uint64_t count, error;         /* as in struct top_entry */
    const struct subject *subject; /* only as many bytes of it as subject_copy copies */
};

/* The most refused subjects of the time from start_us to end_us. */
struct top_span {
    int64_t start_us, end_us;
    uint64_t total;    /* refusals, of those who are not listed too */
    uint64_t unlisted; /* a subject that is not listed was refused at most this often */
    const struct top_count *counts;
    size_t count;
};
/* Adds a span to a sum, before top_list_sort. Returns WEIR_E_NO_MEMORY or 0. */
int top_list_add_span(struct top_list *list, const struct top_span *span);
/* Leaves only the first `most` of a list that is sorted; the bounds stay true. */
void top_list_cut(struct top_list *list, size_t most);

/* ---- where they are kept ---- */

/* Used by one thread at a time. Whoever implements it decides how long spans are kept. */
struct top_store {
    /* Keeps a copy. */
    int (*append)(struct top_store *store, const struct top_span *span);
    /* Calls `each` for every span that ends after from_us and begins before to_us, in any order. What it passes is valid
     * during the call. `each` returns 0 to go on, or an error, which is returned. */
    int (*read)(struct top_store *store, int64_t from_us, int64_t to_us,
                int (*each)(const struct top_span *span, void *data), void *data);
    void (*free)(struct top_store *store);
};

/* In memory: the last `spans` of them, of as many bytes as their subjects need. */
int top_store_new_memory(struct top_store **ret, size_t spans);

#endif
