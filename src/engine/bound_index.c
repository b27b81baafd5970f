/* The limits of a version of the rules by their ids. Most changes leave all ids as they are: then the index of the version
 * before is copied, and only numbers of limits are replaced. */
#include <stdlib.h>

#include "engine/bound.h"

static uint32_t *slot_of(const struct bound *bound, size_t slot, uint32_t wanted)
{
    while (bound->by_id[slot] != wanted)
        slot = by_id_next(bound, slot);
    return &bound->by_id[slot];
}

/* Thousands of overrides may have limits with the same id. Those of one rate are there once, and each rate has a place of
 * its own, so that neither this nor a search walks through them. */
static void index_limit(struct bound *bound, const struct bound_limit *limit)
{
    const struct limit *terms = &limit->terms->limit;
    uint64_t rate = limit_rate(terms);
    size_t slot;
    const struct bound_limit *first = bound_first_limit(bound, limit->id, &slot);
    if (!first)
        *slot_of(bound, by_id_slot(bound, limit->id), 0) = bound_limit_number(bound, limit) + 1;
    else if (terms->algorithm == LIMIT_CONCURRENT && terms->per_us < first->terms->limit.per_us)
        bound->by_id[slot] = bound_limit_number(bound, limit) + 1;
    else if (!bound_limit_of_rate(bound, limit->id, rate))
        *slot_of(bound, bound_rate_slot(bound, limit->id, rate), 0) = bound_limit_number(bound, limit) + 1;
}

static void index_set(struct bound *bound, const struct bound_set *set)
{
    for (size_t i = 0; i < set->limit_count; i++)
        index_limit(bound, &set->limits[i]);
}

static bool index_all(struct bound *bound)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    size_t count = bound->limits_in_use + bound->blocks[0]->limit_count;
    bound->by_id_size = (uint32_t)(2 * count + count / 2 + 1);
    bound->by_id = calloc(bound->by_id_size, sizeof *bound->by_id);
    if (!bound->by_id)
        return false;
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct bound_rule *rule = &bound->rules[i];
        index_set(bound, &rule->own);
        for (size_t k = 0; rule->rest->plans && k < rule->rule->kind->rest->plan_count; k++)
            index_set(bound, &rule->rest->plans[k]);
    }
    struct bound_set overrides = { bound->blocks[0]->limits, (uint32_t)bound->blocks[0]->limit_count, COUNTER_CELL };
    index_set(bound, &overrides);
    return true;
}

/* Whether the limits of the rule have the ids, and so the places in the index, that they had before. */
static bool has_same_ids(const struct bound_rule *rule, const struct bound_rule *old)
{
    bool same = !rule->rest->plans && !old->rest->plans && rule->own.limit_count == old->own.limit_count;
    for (size_t i = 0; same && i < rule->own.limit_count; i++)
        same = rule->own.limits[i].id == old->own.limits[i].id;
    return same;
}

/* Returns false if the index of the version before does not do, or if out of memory. */
static bool index_like_before(struct bound *bound, const struct bound *before, const uint32_t *fresh, size_t fresh_count)
{
    if (!before || before->blocks[0]->limit_count + bound->blocks[0]->limit_count > 0)
        return false;
    for (size_t i = 0; i < fresh_count; i++)
        if (!has_same_ids(&bound->rules[fresh[i]], &before->rules[fresh[i]]))
            return false;
    size_t size = before->by_id_size * sizeof *bound->by_id;
    bound->by_id = malloc(size);
    bound->by_id_size = before->by_id_size;
    if (!bound->by_id)
        return false;
    memcpy(bound->by_id, before->by_id, size);
    for (size_t i = 0; i < fresh_count; i++) {
        const struct bound_set *set = &bound->rules[fresh[i]].own, *old = &before->rules[fresh[i]].own;
        for (size_t k = 0; k < set->limit_count; k++) {
            uint32_t was = bound_limit_number(before, &old->limits[k]) + 1;
            *slot_of(bound, by_id_slot(bound, set->limits[k].id), was) = bound_limit_number(bound, &set->limits[k]) + 1;
        }
    }
    return true;
}

bool bound_index_limits(struct bound *bound, const struct bound *before, const uint32_t *fresh, size_t fresh_count)
{
    return index_like_before(bound, before, fresh, fresh_count) || index_all(bound);
}
