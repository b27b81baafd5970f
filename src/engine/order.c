#include "engine/order.h"

#include <stdlib.h>

/* Up to RANKED counters are ranked, up to SORTED are sorted by the first bits of their keys. */
enum { RANKED = 8, SORTED = 1024, SORT_BITS = 7, SORT_PARTS = 1 << SORT_BITS };

/* A few counters are placed by counting those before them: keys are random, and every branch on them would be predicted
 * wrongly half of the time. */
static void rank(struct counter *counters, size_t count, struct counter **ret)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t key = counters[i].ask.key;
        size_t rank = 0;
        for (size_t k = 0; k < i; k++)
            rank += counters[k].ask.key <= key;
        for (size_t k = i + 1; k < count; k++)
            rank += counters[k].ask.key < key;
        ret[rank] = &counters[i];
    }
}

static size_t first_bits(const struct counter *c)
{
    return c->ask.key >> (64 - SORT_BITS);
}

/* The first bits of random keys bring nearly all of them to their places, without a branch on a key. A few neighbours are
 * left to be exchanged. */
static void sort_by_first_bits(struct counter *counters, size_t count, struct counter **ret)
{
    uint16_t next[SORT_PARTS + 1] = { 0 };
    for (size_t i = 0; i < count; i++)
        next[1 + first_bits(&counters[i])]++;
    for (size_t i = 1; i < SORT_PARTS; i++)
        next[i] = (uint16_t)(next[i] + next[i - 1]);
    for (size_t i = 0; i < count; i++)
        ret[next[first_bits(&counters[i])]++] = &counters[i];
    for (size_t i = 1; i < count; i++) {
        struct counter *c = ret[i];
        size_t k = i;
        for (; k > 0 && ret[k - 1]->ask.key > c->ask.key; k--)
            ret[k] = ret[k - 1];
        ret[k] = c;
    }
}

static int compare_keys(const void *a, const void *b)
{
    const struct counter *x = *(struct counter *const *)a, *y = *(struct counter *const *)b;
    int order = (x->ask.key > y->ask.key) - (x->ask.key < y->ask.key);
    return order ? order : (x > y) - (x < y);
}

void counters_order(struct counter *counters, size_t count, struct counter **ret)
{
    if (count <= RANKED) {
        rank(counters, count, ret);
        return;
    }
    if (count <= SORTED) {
        sort_by_first_bits(counters, count, ret);
        return;
    }
    for (size_t i = 0; i < count; i++)
        ret[i] = &counters[i];
    qsort(ret, count, sizeof *ret, compare_keys);
}
