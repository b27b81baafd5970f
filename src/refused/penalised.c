#include "refused/penalised.h"

#include <assert.h>
#include <stdlib.h>

#include "refused/list_room.h"

struct penalised {
    unsigned slots, count;
    uint64_t left_out;
    uint64_t *keys; /* of the subjects, apart from the rest: every refusal looks through them */
    struct penalised_entry *entries;
};

void penalised_free(struct penalised *p)
{
    if (!p)
        return;
    free(p->keys);
    free(p->entries);
    free(p);
}

int penalised_new(struct penalised **ret, unsigned slots)
{
    assert(slots > 0);
    struct penalised *p = calloc(1, sizeof *p);
    if (!p)
        return WEIR_E_NO_MEMORY;
    p->slots = slots;
    p->keys = calloc(slots, sizeof *p->keys);
    p->entries = calloc(slots, sizeof *p->entries);
    if (!p->keys || !p->entries) {
        penalised_free(p);
        return WEIR_E_NO_MEMORY;
    }
    *ret = p;
    return 0;
}

/* Returns the place of a subject that is not in the list. */
static unsigned make_room(struct penalised *p, int64_t now_us)
{
    if (p->count < p->slots)
        return p->count++;
    unsigned first = 0;
    for (unsigned i = 1; i < p->count; i++)
        if (p->entries[i].ends_us < p->entries[first].ends_us)
            first = i;
    p->left_out += p->entries[first].ends_us > now_us;
    return first;
}

static void copy(struct penalised_entry *to, const struct penalised_entry *from)
{
    to->hash = from->hash;
    to->ends_us = from->ends_us;
    subject_copy(&to->subject, &from->subject);
}

void penalised_add(struct penalised *p, const struct penalised_entry *entry, int64_t now_us)
{
    unsigned i = 0;
    while (i < p->count && p->keys[i] != entry->subject.key)
        i++;
    if (i == p->count)
        i = make_room(p, now_us);
    p->keys[i] = entry->subject.key;
    copy(&p->entries[i], entry);
}

/* ---- sums ---- */

int penalised_list_reserve(struct penalised_list *list, unsigned slots)
{
    void *entries = list->entries;
    int r = list_room(&entries, sizeof *list->entries, list->count, slots, &list->cap);
    list->entries = entries;
    return r;
}

void penalised_collect(const struct penalised *p, struct penalised_list *list)
{
    assert(list->count + p->count <= list->cap);
    for (unsigned i = 0; i < p->count; i++)
        copy(&list->entries[list->count++], &p->entries[i]);
    list->left_out += p->left_out;
}

/* Entries of the same subject: the latest first. */
static int compare(const void *a, const void *b)
{
    const struct penalised_entry *x = a, *y = b;
    int rule = sv_compare(subject_rule(&x->subject), subject_rule(&y->subject));
    if (rule != 0 || x->subject.key == y->subject.key)
        return rule != 0 ? rule : (x->ends_us < y->ends_us) - (x->ends_us > y->ends_us);
    return (x->subject.key > y->subject.key) - (x->subject.key < y->subject.key);
}

static int compare_ends(const void *a, const void *b)
{
    const struct penalised_entry *x = a, *y = b;
    int rule = sv_compare(subject_rule(&x->subject), subject_rule(&y->subject));
    return rule != 0 || x->ends_us == y->ends_us ? (rule ? rule : compare(a, b))
                                                 : (x->ends_us < y->ends_us) - (x->ends_us > y->ends_us);
}

void penalised_list_sort(struct penalised_list *list)
{
    size_t n = 0;
    if (list->count == 0)
        return;
    qsort(list->entries, list->count, sizeof *list->entries, compare);
    for (size_t i = 1; i < list->count; i++)
        if (list->entries[i].subject.key != list->entries[n].subject.key && ++n != i)
            list->entries[n] = list->entries[i];
    list->count = n + 1;
    qsort(list->entries, list->count, sizeof *list->entries, compare_ends);
}

void penalised_list_done(struct penalised_list *list)
{
    if (list)
        free(list->entries);
}
