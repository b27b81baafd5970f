#include "refused/most_refused.h"

#include <assert.h>
#include <stdlib.h>

#include "refused/list_room.h"

/* ---- one window ---- */

/* Entries are found by their key through chains, and the smallest is at the root of a heap. */
enum { NONE = UINT32_MAX };

struct slot {
    struct top_entry entry;
    uint32_t next;    /* in its chain */
    uint32_t in_heap; /* where */
};

struct window_list {
    struct slot *slots;
    uint32_t *heap;   /* slots, none with a smaller count than its parent */
    uint32_t *chains; /* first slot of each */
    unsigned count;
    uint64_t total;
};

struct top {
    unsigned slots;
    unsigned chain_mask;
    int64_t number;                /* of the current window */
    struct window_list windows[2]; /* by the last bit of their number */
};

static void window_clear(struct window_list *w, unsigned chain_mask)
{
    memset(w->chains, 0xff, (chain_mask + 1) * sizeof *w->chains);
    w->count = 0;
    w->total = 0;
}

static void heap_put(struct window_list *w, unsigned at, uint32_t slot)
{
    w->heap[at] = slot;
    w->slots[slot].in_heap = at;
}

static uint64_t heap_count(const struct window_list *w, unsigned at)
{
    return w->slots[w->heap[at]].entry.count;
}

/* The slot at `at` has grown. */
static void sift_down(struct window_list *w, unsigned at)
{
    uint32_t slot = w->heap[at];
    uint64_t count = w->slots[slot].entry.count;
    for (unsigned child; (child = 2 * at + 1) < w->count; at = child) {
        if (child + 1 < w->count && heap_count(w, child + 1) < heap_count(w, child))
            child++;
        if (heap_count(w, child) >= count)
            break;
        heap_put(w, at, w->heap[child]);
    }
    heap_put(w, at, slot);
}

/* A new slot, whose count is as small as any. */
static void sift_up(struct window_list *w, unsigned at, uint32_t slot)
{
    uint64_t count = w->slots[slot].entry.count;
    for (; at > 0 && heap_count(w, (at - 1) / 2) > count; at = (at - 1) / 2)
        heap_put(w, at, w->heap[(at - 1) / 2]);
    heap_put(w, at, slot);
}

static uint32_t *chain_of(const struct top *top, struct window_list *w, uint64_t key)
{
    return &w->chains[key & top->chain_mask];
}

static uint32_t find(const struct top *top, struct window_list *w, uint64_t key)
{
    uint32_t i = *chain_of(top, w, key);
    while (i != NONE && w->slots[i].entry.subject.key != key)
        i = w->slots[i].next;
    return i;
}

static void enter(const struct top *top, struct window_list *w, uint32_t i, const struct subject *subject)
{
    uint32_t *chain = chain_of(top, w, subject->key);
    subject_copy(&w->slots[i].entry.subject, subject);
    w->slots[i].next = *chain;
    *chain = i;
}

static void leave(const struct top *top, struct window_list *w, uint32_t i)
{
    uint32_t *link = chain_of(top, w, w->slots[i].entry.subject.key);
    while (*link != i)
        link = &w->slots[*link].next;
    *link = w->slots[i].next;
}

static void window_add(const struct top *top, struct window_list *w, const struct subject *subject)
{
    w->total++;
    uint32_t i = find(top, w, subject->key);
    if (i == NONE && w->count < top->slots) {
        i = w->count++;
        w->slots[i].entry.count = 1;
        w->slots[i].entry.error = 0;
        enter(top, w, i, subject);
        sift_up(w, i, i);
        return;
    }
    if (i == NONE) {
        i = w->heap[0];
        leave(top, w, i);
        w->slots[i].entry.error = w->slots[i].entry.count;
        enter(top, w, i, subject);
    }
    w->slots[i].entry.count++;
    sift_down(w, w->slots[i].in_heap);
}

/* ---- two windows ---- */

void top_free(struct top *top)
{
    if (!top)
        return;
    for (int i = 0; i < 2; i++) {
        free(top->windows[i].slots);
        free(top->windows[i].heap);
        free(top->windows[i].chains);
    }
    free(top);
}

int top_new(struct top **ret, unsigned slots)
{
    assert(slots > 0);
    struct top *top = calloc(1, sizeof *top);
    if (!top)
        return WEIR_E_NO_MEMORY;
    top->slots = slots;
    while (top->chain_mask < 2 * slots)
        top->chain_mask = 2 * top->chain_mask + 1;
    for (int i = 0; i < 2; i++) {
        struct window_list *w = &top->windows[i];
        w->slots = calloc(slots, sizeof *w->slots);
        w->heap = calloc(slots, sizeof *w->heap);
        w->chains = calloc(top->chain_mask + 1, sizeof *w->chains);
        if (!w->slots || !w->heap || !w->chains) {
            top_free(top);
            return WEIR_E_NO_MEMORY;
        }
        window_clear(w, top->chain_mask);
    }
    *ret = top;
    return 0;
}

/* Threads read their clocks at different moments: a refusal of the window before counts in the current one. Only a clock
 * that was set back further starts again with empty windows. */
static void advance(struct top *top, int64_t now_us)
{
    int64_t number = now_us / TOP_WINDOW_US, steps = number - top->number;
    if (steps == 0 || steps == -1)
        return;
    window_clear(&top->windows[number & 1], top->chain_mask);
    if (steps != 1)
        window_clear(&top->windows[~number & 1], top->chain_mask);
    top->number = number;
}

void top_add(struct top *top, const struct subject *subject, int64_t now_us)
{
    advance(top, now_us);
    window_add(top, &top->windows[top->number & 1], subject);
}

/* ---- sums ---- */

int top_list_reserve(struct top_list *list, unsigned slots)
{
    void *entries = list->entries;
    int r = list_room(&entries, sizeof *list->entries, list->count, 2 * (size_t)slots, &list->cap);
    list->entries = entries;
    return r;
}

/* Until they are sorted, counts and errors are those above the smallest count of their list (and wrap around below it): for
 * the sum, all the smallest counts are added to everybody, once. */
static void collect(const struct top *top, const struct window_list *w, struct top_list *list)
{
    uint64_t smallest = w->count == top->slots ? heap_count(w, 0) : 0;
    list->total += w->total;
    list->unlisted += smallest;
    assert(list->count + w->count <= list->cap);
    for (unsigned k = 0; k < w->count; k++) {
        struct top_entry *to = &list->entries[list->count++];
        const struct top_entry *from = &w->slots[k].entry;
        to->count = from->count - smallest;
        to->error = from->error - smallest;
        subject_copy(&to->subject, &from->subject);
    }
}

void top_collect(struct top *top, int64_t now_us, struct top_list *list)
{
    advance(top, now_us);
    for (int i = 0; i < 2; i++)
        collect(top, &top->windows[i], list);
}

void top_collect_window(struct top *top, int64_t now_us, int64_t number, struct top_list *list)
{
    advance(top, now_us);
    if (number == top->number || number == top->number - 1)
        collect(top, &top->windows[number & 1], list);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = ((const struct top_entry *)a)->subject.key, y = ((const struct top_entry *)b)->subject.key;
    return (x > y) - (x < y);
}

static int compare_counts(const void *a, const void *b)
{
    uint64_t x = ((const struct top_entry *)a)->count, y = ((const struct top_entry *)b)->count;
    return x != y ? (x < y) - (x > y) : compare_keys(a, b);
}

void top_list_sort(struct top_list *list)
{
    size_t n = 0;
    if (list->count == 0)
        return;
    qsort(list->entries, list->count, sizeof *list->entries, compare_keys);
    for (size_t i = 1; i < list->count; i++) {
        struct top_entry *last = &list->entries[n], *e = &list->entries[i];
        if (e->subject.key == last->subject.key) {
            last->count += e->count;
            last->error += e->error;
        } else if (++n != i) {
            list->entries[n] = *e;
        }
    }
    list->count = n + 1;
    for (size_t i = 0; i < list->count; i++) {
        list->entries[i].count += list->unlisted;
        list->entries[i].error += list->unlisted;
    }
    qsort(list->entries, list->count, sizeof *list->entries, compare_counts);
}

void top_list_done(struct top_list *list)
{
    if (list)
        free(list->entries);
}
