#include <stdlib.h>

#include "rules/reader.h"

static int compare_entries(const void *a, const void *b)
{
    const struct id_entry *x = a, *y = b;
    int order = sv_compare(x->id, y->id);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

void ids_sort(struct id_entry *ids, size_t count)
{
    size_t sorted = 1;
    while (sorted < count && compare_entries(&ids[sorted - 1], &ids[sorted]) < 0)
        sorted++;
    if (sorted < count)
        qsort(ids, count, sizeof *ids, compare_entries);
}

struct id_entry *ids_of_rules(const struct rules *rules)
{
    struct id_entry *ids = calloc(rules->rule_count + 1, sizeof *ids);
    for (size_t i = 0; ids && i < rules->rule_count; i++)
        ids[i] = (struct id_entry){ rules->rules[i]->id, i };
    if (ids)
        ids_sort(ids, rules->rule_count);
    return ids;
}

const struct id_entry *ids_find(const struct id_entry *ids, size_t count, sv id)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sv_compare(ids[middle].id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && sv_eq(ids[low].id, id) ? &ids[low] : NULL;
}

void ids_find_twins(struct id_entry *ids, size_t count, size_t *twins)
{
    size_t rising = 1;
    while (rising < count && sv_compare(ids[rising - 1].id, ids[rising].id) < 0)
        rising++;
    if (rising >= count)
        return;
    ids_sort(ids, count);
    for (size_t i = 1, first = 0; i < count; i++) {
        if (sv_eq(ids[i].id, ids[first].id))
            twins[ids[i].index] = ids[first].index + 1;
        else
            first = i;
    }
}
