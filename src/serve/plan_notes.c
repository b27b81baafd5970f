#include "serve/plan_notes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

void plan_notes_add(struct plan_notes *notes, struct weir *weir, const struct weir_request *request,
                    const struct recent_refusal *refusal)
{
    struct plan_note *note = &notes->notes[notes->added % RECENT_SLOTS];
    char rule[WEIR_ID_MAX + 1];
    snprintf(rule, sizeof rule, "%.*s", SV_FMT(subject_rule(&refusal->subject)));
    if (rule[0] == '\0' || !weir_plan_of(weir, request, rule, &note->plan))
        return;
    note->number = refusal->number;
    note->key = refusal->subject.key;
    notes->added++;
}

int plan_list_reserve(struct plan_list *list)
{
    size_t cap = list->count + RECENT_SLOTS;
    if (cap <= list->cap)
        return 0;
    struct plan_note *notes = realloc(list->notes, cap * sizeof *notes);
    if (!notes)
        return WEIR_E_NO_MEMORY;
    list->notes = notes;
    list->cap = cap;
    return 0;
}

void plan_notes_collect(const struct plan_notes *notes, struct plan_list *list)
{
    size_t count = notes->added < RECENT_SLOTS ? (size_t)notes->added : RECENT_SLOTS;
    assert(list->count + count <= list->cap);
    if (count > 0)
        memcpy(list->notes + list->count, notes->notes, count * sizeof *notes->notes);
    list->count += count;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct plan_note *)a)->number, y = ((const struct plan_note *)b)->number;
    return (x > y) - (x < y);
}

void plan_list_sort(struct plan_list *list)
{
    if (list->count > 0)
        qsort(list->notes, list->count, sizeof *list->notes, compare);
}

void plan_list_done(struct plan_list *list)
{
    if (list)
        free(list->notes);
}

const struct request_plan *plan_list_find(const struct plan_list *list, uint64_t number)
{
    const struct plan_note wanted = { .number = number };
    const struct plan_note *found =
        list->count > 0 ? bsearch(&wanted, list->notes, list->count, sizeof *list->notes, compare) : NULL;
    return found ? &found->plan : NULL;
}

const struct request_plan *plan_list_newest(const struct plan_list *list, uint64_t key)
{
    for (size_t i = list->count; i-- > 0;)
        if (list->notes[i].key == key)
            return &list->notes[i].plan;
    return NULL;
}
