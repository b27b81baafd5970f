/* Counts the holds of each limit, for gauges. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/handle.h"
#include "engine/hazard.h"

/* Blocks of a kind that are looked at. A table of 8 million cells has no more; of a larger one they are a sample. */
enum { BLOCKS_MOST = 1 << 16 };

struct survey {
    const struct bound *bound;
    uint64_t *counts; /* by the place of the first limit with an id in bound.by_id */
    size_t untold;    /* counts that are not 0 and were not told yet */
    void (*each)(const struct weir_in_flight *, void *);
    void *data;
};

#define TOLD UINT64_MAX

static uint64_t *count_of(const struct survey *s, uint64_t id, const struct bound_limit **ret)
{
    size_t slot;
    *ret = bound_first_limit(s->bound, id, &slot);
    return *ret ? &s->counts[slot] : NULL;
}

/* A limit that was removed has no name any more. */
static void add(const struct cells_held *held, void *data)
{
    struct survey *s = data;
    const struct bound_limit *limit;
    uint64_t *count = count_of(s, held->tag, &limit);
    if (!count)
        return;
    s->untold += *count == 0;
    *count += limit->terms->limit.algorithm == LIMIT_CONCURRENT ? held->amount : held->holds;
}

/* Limits of one name in several plans have one count. */
static void tell_set(struct survey *s, sv rule, const struct bound_set *set)
{
    for (size_t i = 0; i < set->limit_count; i++) {
        const struct bound_limit *limit = &set->limits[i], *first;
        bool always = limit->terms->limit.algorithm == LIMIT_CONCURRENT;
        if (!always && s->untold == 0)
            continue;
        uint64_t *count = count_of(s, limit->id, &first);
        if (*count == TOLD || (*count == 0 && !always))
            continue;
        s->untold -= *count > 0;
        s->each(&(struct weir_in_flight){ rule, limit_name(limit), *count }, s->data);
        *count = TOLD;
    }
}

static void tell_all(struct survey *s)
{
    const struct rules *rules = ruleset_rules(s->bound->ruleset);
    const struct override_table *table = &s->bound->overrides;
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct bound_rule *rule = &s->bound->rules[i];
        if (rule->mode == MODE_OFF)
            continue;
        tell_set(s, rule->rule->id, &rule->own);
        for (size_t k = 0; k < rule->rule->kind->rest->plan_count; k++)
            tell_set(s, rule->rule->id, &rule->rest->plans[k]);
    }
    /* There may be very many, and few have a limit of a name that the rule has not. */
    for (size_t i = 0; s->untold > 0 && rules->override_count > 0 && i <= table->mask; i++)
        if (table->tags[i])
            tell_set(s, rules->overrides[table->slots[i].index].rule, &table->effects[table->slots[i].effect].set);
}

int weir_each_in_flight(struct weir *weir, int64_t now_us, void (*each)(const struct weir_in_flight *, void *), void *data)
{
    if (!clock_valid(now_us))
        return WEIR_E_INVALID;
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    CLEANUP_FREE uint64_t *counts = bound ? cleanup_calloc(bound->by_id_size, sizeof *counts) : NULL;
    struct survey s = { .bound = bound, .counts = counts, .each = each, .data = data };
    if (counts) {
        cells_each_hold(weir->cells, now_us, BLOCKS_MOST, add, &s);
        tell_all(&s);
    }
    if (bound)
        hazard_release();
    return counts ? 0 : WEIR_E_NO_MEMORY;
}
