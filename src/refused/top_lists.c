#include "refused/top_lists.h"

#include <stdlib.h>

/* ---- spans ---- */

int top_list_add_span(struct top_list *list, const struct top_span *span)
{
    /* top_list_reserve reserves two windows; for many spans, the room doubles. */
    size_t room = span->count > list->count ? span->count : list->count;
    int r = list->count + span->count > list->cap ? top_list_reserve(list, (unsigned)(room + 1) / 2) : 0;
    if (r < 0)
        return r;
    list->total += span->total;
    list->unlisted += span->unlisted;
    for (size_t i = 0; i < span->count; i++) {
        struct top_entry *to = &list->entries[list->count++];
        to->count = span->counts[i].count - span->unlisted;
        to->error = span->counts[i].error - span->unlisted;
        subject_copy(&to->subject, span->counts[i].subject);
    }
    return 0;
}

int top_list_as_span(const struct top_list *list, int64_t start_us, int64_t end_us,
                     int (*use)(const struct top_span *span, void *data), void *data)
{
    struct top_count *counts = calloc(list->count + 1, sizeof *counts);
    if (!counts)
        return WEIR_E_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++)
        counts[i] = (struct top_count){ list->entries[i].count, list->entries[i].error, &list->entries[i].subject };
    struct top_span span = { start_us, end_us, list->total, list->unlisted, counts, list->count };
    int r = use(&span, data);
    free(counts);
    return r;
}

void top_list_cut(struct top_list *list, size_t most)
{
    if (list->count <= most)
        return;
    if (list->entries[most].count > list->unlisted)
        list->unlisted = list->entries[most].count;
    list->count = most;
}

/* ---- where they are kept ---- */

struct kept {
    struct top_span span;
    struct top_count counts[]; /* then the subjects */
};

struct top_store {
    size_t spans, next;
    struct kept *kept[];
};

static size_t bytes_of(const struct subject *subject)
{
    size_t bytes = subject_bytes(subject), align = _Alignof(struct subject);
    return (bytes + align - 1) / align * align;
}

int top_store_append(const struct top_span *span, void *data)
{
    struct top_store *store = data;
    size_t bytes = sizeof(struct kept) + span->count * sizeof(struct top_count);
    for (size_t i = 0; i < span->count; i++)
        bytes += bytes_of(span->counts[i].subject);
    struct kept *kept = malloc(bytes);
    if (!kept)
        return WEIR_E_NO_MEMORY;
    kept->span = *span;
    kept->span.counts = kept->counts;
    char *to = (char *)(kept->counts + span->count);
    for (size_t i = 0; i < span->count; i++) {
        kept->counts[i] = span->counts[i];
        kept->counts[i].subject = (struct subject *)(void *)to;
        subject_copy((struct subject *)(void *)to, span->counts[i].subject);
        to += bytes_of(span->counts[i].subject);
    }
    free(store->kept[store->next]);
    store->kept[store->next] = kept;
    store->next = (store->next + 1) % store->spans;
    return 0;
}

int top_store_read(const struct top_store *store, int64_t from_us, int64_t to_us,
                   int (*each)(const struct top_span *span, void *data), void *data)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < store->spans; i++) {
        const struct kept *kept = store->kept[i];
        if (kept && kept->span.end_us > from_us && kept->span.start_us < to_us)
            r = each(&kept->span, data);
    }
    return r;
}

void top_store_free(struct top_store *store)
{
    for (size_t i = 0; store && i < store->spans; i++)
        free(store->kept[i]);
    free(store);
}

int top_store_new(struct top_store **ret, size_t spans)
{
    struct top_store *store = calloc(1, sizeof *store + spans * sizeof *store->kept);
    if (!store)
        return WEIR_E_NO_MEMORY;
    store->spans = spans;
    *ret = store;
    return 0;
}
