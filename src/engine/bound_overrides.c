/* Overrides of a ruleset, bound to a table of cells. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/binder.h"

bool find_overridden(struct bound *bound, struct bound_rule **ret)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    CLEANUP_FREE struct rule_name *names = sort_names(bound);
    if (!names)
        return false;
    for (size_t i = 0; i < rules->override_count; i++) {
        ret[i] = find_name(names, rules->rule_count, rules->overrides[i].rule);
        if (ret[i])
            ret[i]->overridden = true;
    }
    return true;
}

/* Paths are spelled here: rules do not know how paths are read. The network of an address was made with the settings of
 * its file; if those were bad, others hold. */
static bool override_subject(const struct binder *b, const struct rule *rule, const struct rule_override *o, uint64_t *ret)
{
    struct hash h;
    hash_init(&h, b->key);
    for (size_t i = 0; i < o->value_count; i++) {
        struct facts facts;
        sv value = o->values[i], rest = value;
        if (by_is_path(&rule->kind->by[i]))
            value = counted_value(&facts, b->bound->ruleset, &rule->kind->by[i], value);
        else if (rule->kind->by[i].attribute == ATTR_IP)
            value = counted_value(&facts, b->bound->ruleset, &rule->kind->by[i], sv_cut(&rest, '/'));
        if (value.len == 0 && !by_may_be_empty(&rule->kind->by[i]))
            return false;
        subject_add(&h, value);
    }
    *ret = hash_final(&h);
    return true;
}

static struct bound_set override_set(struct binder *b, struct bound_rule *rule, const struct rule_override *o)
{
    if (o->kind == OVERRIDE_LIMITS)
        return bind_set(b, rule, o->limits, o->limit_count);
    struct bound_set set = bind_set(b, rule, &deny_limit, o->kind == OVERRIDE_DENY);
    set.counter = COUNTER_CELL;
    return set;
}

static bool same_effect(const struct rule_override *a, const struct rule_override *b)
{
    return sv_eq(a->rule, b->rule) && a->kind == b->kind && a->expires_us == b->expires_us &&
           rule_limits_same(a->limits, a->limit_count, b->limits, b->limit_count);
}

/* Covers every field in which many overrides of a rule may differ: effects with the same hash are compared one by one. */
static uint64_t effect_hash(const struct binder *b, const struct bound_rule *rule, const struct rule_override *o)
{
    struct hash h;
    hash_init(&h, b->key);
    hash_word(&h, rule->rest->id + o->kind);
    hash_word(&h, (uint64_t)o->expires_us);
    for (size_t i = 0; i < o->limit_count; i++)
        rule_limit_hash(&o->limits[i], &h);
    return hash_final(&h);
}

/* Returns the number of the effect: that of an earlier override that does the same, or a new one. */
static uint32_t bind_effect(struct binder *b, struct bound_rule *rule, uint32_t index, const uint32_t *effects)
{
    struct override_table *table = &b->bound->overrides;
    const struct rule_override *all = ruleset_rules(b->bound->ruleset)->overrides, *o = &all[index];
    size_t slot = effect_hash(b, rule, o) & table->mask;
    for (; b->first[slot]; slot = (slot + 1) & table->mask)
        if (same_effect(&all[b->first[slot] - 1], o))
            return effects[b->first[slot] - 1];
    b->first[slot] = index + 1;
    table->effects[table->effect_count] = (struct override_effect){ override_set(b, rule, o), o->expires_us };
    note_units(&table->effects[table->effect_count].set, &b->bound->units, &b->bound->slots);
    return table->effect_count++;
}

/* So that a decision does not walk through thousands. */
enum { SPELLINGS_MAX = 8 };

/* Two spellings of a path may be one subject. The first override that has not expired is in force, so one that does not
 * outlast an earlier one is never in force. If there are too many, the new one replaces the last: what lasts longest stays.
 * `effects` is of those before. */
static void bind_override(struct binder *b, struct bound_rule *rule, uint32_t index, uint32_t *effects)
{
    struct override_table *table = &b->bound->overrides;
    const struct rule_override *override = &ruleset_rules(b->bound->ruleset)->overrides[index];
    const struct override_slot *earlier, *last = NULL;
    size_t count = 0;
    uint64_t subject;
    if (!override_subject(b, rule->rule, override, &subject))
        return;
    uint64_t key = key_mix(rule->rest->id, subject);
    size_t slot = override_first_slot(table, key);
    for (; (earlier = override_next(table, key, &slot)); count++, last = earlier)
        if (override->expires_us <= table->effects[earlier->effect].expires_us)
            return;
    if (count == SPELLINGS_MAX)
        slot = (size_t)(last - table->slots);
    effects[index] = bind_effect(b, rule, index, effects);
    table->tags[slot] = override_tag(key);
    table->slots[slot] = (struct override_slot){ key, effects[index], index };
}

bool make_override_table(struct override_table *table, size_t count)
{
    size_t size = 2;
    while (size < 2 * count)
        size *= 2;
    table->mask = size - 1;
    table->tags = calloc(size, sizeof *table->tags);
    table->slots = calloc(size, sizeof *table->slots);
    table->effects = calloc(count, sizeof *table->effects);
    return table->tags && table->slots && table->effects;
}

size_t count_override_limits(const struct rules *rules)
{
    size_t count = rules->override_count;
    for (size_t i = 0; i < rules->override_count; i++)
        count += rules->overrides[i].limit_count;
    return count;
}

/* Most overrides share the limits of others. Keeps no more room than for those that are there. Returns false if out of
 * memory. */
static bool fit_override_limits(struct binder *b)
{
    struct override_table *table = &b->bound->overrides;
    struct bound_limit *before = b->block->limits;
    size_t count = (size_t)(b->next - before);
    struct bound_limit *limits = new_limits(count);
    if (!limits)
        return false;
    memcpy(limits, before, count * sizeof *limits);
    for (uint32_t i = 0; i < table->effect_count; i++)
        table->effects[i].set.limits = limits + (table->effects[i].set.limits - before);
    b->block->limits = limits;
    b->block->limit_count = count;
    free(before);
    return true;
}

bool bind_overrides(struct binder *b, struct bound_rule **of)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    CLEANUP_FREE uint32_t *first = cleanup_calloc(b->bound->overrides.mask + 1, sizeof *first);
    CLEANUP_FREE uint32_t *effects = cleanup_calloc(rules->override_count, sizeof *effects);
    b->first = first;
    for (uint32_t i = 0; first && effects && i < rules->override_count; i++)
        if (of[i])
            bind_override(b, of[i], i, effects);
    return fit_override_limits(b) && first && effects;
}
