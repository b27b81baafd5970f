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

void top_list_cut(struct top_list *list, size_t most)
{
    if (list->count <= most)
        return;
    if (list->entries[most].count > list->unlisted)
        list->unlisted = list->entries[most].count;
    list->count = most;
}

/* ---- memory ---- */

struct kept {
    struct top_span span;
    struct top_count counts[]; /* then the subjects */
};

struct memory {
    struct top_store store; /* first */
    size_t spans, next;
    struct kept *kept[];
};

static size_t bytes_of(const struct subject *subject)
{
    size_t bytes = subject_bytes(subject), align = _Alignof(struct subject);
    return (bytes + align - 1) / align * align;
}

static int memory_append(struct top_store *store, const struct top_span *span)
{
    struct memory *m = (struct memory *)store;
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
    free(m->kept[m->next]);
    m->kept[m->next] = kept;
    m->next = (m->next + 1) % m->spans;
    return 0;
}

static int memory_read(struct top_store *store, int64_t from_us, int64_t to_us,
                       int (*each)(const struct top_span *span, void *data), void *data)
{
    struct memory *m = (struct memory *)store;
    int r = 0;
    for (size_t i = 0; r == 0 && i < m->spans; i++)
        if (m->kept[i] && m->kept[i]->span.end_us > from_us && m->kept[i]->span.start_us < to_us)
            r = each(&m->kept[i]->span, data);
    return r;
}

static void memory_free(struct top_store *store)
{
    struct memory *m = (struct memory *)store;
    for (size_t i = 0; i < m->spans; i++)
        free(m->kept[i]);
    free(m);
}

int top_store_new_memory(struct top_store **ret, size_t spans)
{
    struct memory *m = calloc(1, sizeof *m + spans * sizeof *m->kept);
    if (!m)
        return WEIR_E_NO_MEMORY;
    m->store = (struct top_store){ memory_append, memory_read, memory_free };
    m->spans = spans;
    *ret = &m->store;
    return 0;
}
