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
/* The other way: calls `use` with a list that is sorted as a span, which is valid during the call. Returns
 * WEIR_E_NO_MEMORY, or what `use` returns. */
int top_list_as_span(const struct top_list *list, int64_t start_us, int64_t end_us,
                     int (*use)(const struct top_span *span, void *data), void *data);
/* Leaves only the first `most` of a list that is sorted; the bounds stay true. */
void top_list_cut(struct top_list *list, size_t most);

/* ---- where they are kept ---- */

/* The last `spans` of them, of as many bytes as their subjects need. Used by one thread at a time. */
struct top_store;
int top_store_new(struct top_store **ret, size_t spans);
void top_store_free(struct top_store *store);

/* Stores a copy of the span. If the store is full, the copy replaces the span that was added first. `store` is a struct
 * top_store; its type is that of a callback of top_list_as_span and top_store_read. */
int top_store_append(const struct top_span *span, void *store);
/* Calls `each` for every span that ends after from_us and begins before to_us, in any order. `each` returns 0 to go on, or
 * an error, which is returned. */
int top_store_read(const struct top_store *store, int64_t from_us, int64_t to_us,
                   int (*each)(const struct top_span *span, void *data), void *data);

#endif
