#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/bound.h"
#include "engine/keys.h"
#include "engine/terms.h"

static void add_by(struct hash *h, const struct rule *rule)
{
    for (size_t i = 0; i < rule->by_count; i++) {
        subject_add(h, attribute_table[rule->by[i].attribute].name);
        subject_add(h, rule->by[i].name);
    }
}

static uint64_t limit_id(const struct hash_key *key, const struct rule *rule, const struct rule_limit *limit)
{
    struct hash h;
    hash_init(&h, key);
    /* No text is as long as this, so no subject's values hash like a limit: the two are joined to a cell's key. */
    hash_word(&h, UINT64_MAX);
    subject_add(&h, rule->id);
    subject_add(&h, limit->name);
    subject_add(&h, weir_str(algorithm_names[limit->algorithm]));
    add_by(&h, rule);
    return hash_final(&h);
}

/* No limit's identity begins with it, nor does anything else that is hashed: see receipt.c. */
#define RULE_MARK (UINT64_MAX - 4)

static uint64_t rule_id(const struct hash_key *key, const struct rule *rule)
{
    struct hash h;
    hash_init(&h, key);
    hash_word(&h, RULE_MARK);
    subject_add(&h, rule->id);
    return hash_final(&h);
}

/* Nor with this one. */
#define PENALTY_MARK (UINT64_MAX - 9)

uint64_t penalty_id(const struct hash_key *key, const struct rule *rule)
{
    struct hash h;
    hash_init(&h, key);
    hash_word(&h, PENALTY_MARK);
    subject_add(&h, rule->id);
    add_by(&h, rule);
    return hash_final(&h);
}

/* A rule's class is the index of an earlier rule with the same `by`. Few different ones are looked at: more classes than
 * needed cost a hash, never a wrong answer. */
static uint32_t by_class(const struct rules *rules, uint32_t *firsts, size_t *first_count, size_t first_cap, uint32_t i)
{
    for (size_t k = 0; k < *first_count; k++)
        if (rule_same_by(rules->rules[firsts[k]], rules->rules[i]))
            return firsts[k];
    if (*first_count < first_cap)
        firsts[(*first_count)++] = i;
    return i;
}

static enum counter_kind counter_of(const struct rule *rule, struct bound_sharing sharing)
{
    if (rule->rest->lease.on)
        return sharing.store || sharing.leases ? COUNTER_SLICE : COUNTER_CELL;
    /* Where nothing may wait, a rule that is said to be shared is a mistake, whether there is a store or not. */
    if (rule->counters == COUNTERS_SHARED)
        return sharing.store || sharing.leases ? COUNTER_STORE : COUNTER_CELL;
    return sharing.store && rule->counters == COUNTERS_DEFAULT ? COUNTER_STORE : COUNTER_CELL;
}

/* ---- binding ---- */

struct binder {
    struct bound *bound;
    const struct bound *before; /* whose rules are shared; NULL: none is */
    const uint32_t *was;        /* of each rule: its number in `before`; UINT32_MAX: it has none */
    bool moved;                 /* some rule has another number than before, or rules have come or gone */
    const struct hash_key *key;
    struct bound_block *block; /* where limits are bound */
    uint32_t block_number;
    struct bound_limit *next; /* room for all limits of the block */
    struct terms_table terms; /* of the block */
    uint32_t *fresh;          /* numbers of the rules that are not shared; room for all */
    size_t fresh_count;
    uint32_t
        *first; /* effects by their hash: 1 + the index of the first override that has it; as many as there are slots */
    bool no_memory;
};

static const struct bound_rule_rest no_rest;

/* rule->rest, to write what the rule has. Before all else of the rule is bound, too. NULL: no memory. */
static struct bound_rule_rest *rest_of(struct bound *bound, struct bound_rule *rule)
{
    if (rule->rest == &no_rest) {
        struct bound_rule_rest *rest = ARENA_NEW(&bound->blocks[bound->block_count - 1]->keys, struct bound_rule_rest);
        if (!rest)
            return NULL;
        rule->rest = rest;
    }
    return (struct bound_rule_rest *)rule->rest;
}

static void bind_limit(struct binder *b, const struct bound_rule *rule, const struct rule_limit *spec, bool first)
{
    static const struct bound_terms nothing;
    struct bound_limit *limit = b->next++;
    const struct bound_terms *terms = terms_of(&b->terms, b->key, spec, rule->counter != COUNTER_CELL);
    b->no_memory = b->no_memory || !terms;
    *limit = (struct bound_limit){ .terms = terms ? terms : &nothing,
                                   .id = limit_id(b->key, rule->rule, spec),
                                   .number = b->block_number << BOUND_PLACE_BITS | (uint32_t)(limit - b->block->limits),
                                   .first = first };
}

static struct bound_set bind_set(struct binder *b, struct bound_rule *rule, const struct rule_limit *specs, size_t count)
{
    struct bound_set set = { b->next, (uint32_t)count, rule->counter };
    for (size_t i = 0; i < count; i++)
        bind_limit(b, rule, &specs[i], i == 0);
    rule->limit_most = count > rule->limit_most ? (uint8_t)count : rule->limit_most;
    return set;
}

static bool is_path(const struct rule_by *by)
{
    return by->attribute == ATTR_PATH || by->attribute == ATTR_ROUTE;
}

/* Rules do not know how paths are read: /a/ is /a. */
static const sv *spell_plans(struct binder *b, const struct rule *rule)
{
    struct arena *arena = &b->block->keys;
    sv *names = ARENA_ARRAY(arena, sv, rule->rest->plan_count);
    for (size_t i = 0; names && i < rule->rest->plan_count; i++) {
        struct facts facts;
        names[i] =
            arena_copy(arena, counted_value(&facts, b->bound->ruleset, &rule->rest->plan, rule->rest->plans[i].name));
        b->no_memory = b->no_memory || !names[i].ptr;
    }
    b->no_memory = b->no_memory || !names;
    return names;
}

/* What a set counts beside requests. */
static void note_units(const struct bound_set *set, bool *units, bool *slots)
{
    for (size_t i = 0; i < set->limit_count; i++) {
        *units = *units || set->limits[i].terms->counts_other;
        *slots = *slots || set->limits[i].terms->limit.algorithm == LIMIT_CONCURRENT;
    }
}

/* What the rule counts beside requests, in its own limits and in those of its plans. */
static void note_rule_units(struct bound_rule *rule)
{
    bool units = false, slots = false;
    note_units(&rule->own, &units, &slots);
    for (size_t i = 0; rule->rest->plans && i < rule->rule->rest->plan_count; i++)
        note_units(&rule->rest->plans[i], &units, &slots);
    rule->units = units;
    rule->slots = slots;
}

static void bind_plans(struct binder *b, const struct rule *rule, struct bound_rule *ret, struct bound_rule_rest *rest)
{
    struct bound_set *plans = ARENA_ARRAY(&b->block->keys, struct bound_set, rule->rest->plan_count);
    b->no_memory = b->no_memory || !plans;
    for (size_t i = 0; plans && i < rule->rest->plan_count; i++)
        plans[i] = bind_set(b, ret, rule->rest->plans[i].limits, rule->rest->plans[i].limit_count);
    rest->plans = plans;
    ret->by_path = is_path(&rule->rest->plan);
    if (ret->by_path)
        rest->plan_names = spell_plans(b, rule);
}

/* NULL: there is nothing to write, or no memory. */
static struct bound_rule_rest *bind_rest(struct binder *b, const struct rule *rule, struct bound_rule *ret)
{
    if (!ret->chooses && !ret->penalises && ret->counter == COUNTER_CELL)
        return NULL;
    struct bound_rule_rest *rest = rest_of(b->bound, ret);
    if (rest) {
        rest->id = rule_id(b->key, rule);
        rest->penalty_id = penalty_id(b->key, rule);
    }
    if (rest && ret->counter != COUNTER_CELL) {
        char end[KEY_END_MAX];
        rest->key_end = arena_copy(&b->block->keys, sv_of(end, key_write_end(end, rule)));
        b->no_memory = b->no_memory || !rest->key_end.ptr;
    }
    b->no_memory = b->no_memory || !rest;
    return rest;
}

static void bind_name(struct binder *b, sv id, struct bound_rule *ret)
{
    if (id.len < NAME_PIECE) {
        memcpy(ret->name, id.ptr, id.len);
        return;
    }
    ret->long_name = name_copy(&b->block->keys, id);
    b->no_memory = b->no_memory || !ret->long_name;
}

static void bind_rule(struct binder *b, const struct rule *rule, struct bound_rule *ret)
{
    ret->chooses = ret->overridden || rule->rest->plan_count > 0;
    struct bound_rule_rest *rest = bind_rest(b, rule, ret);
    bind_name(b, rule->id, ret);
    ret->own = bind_set(b, ret, rule->limits, rule->limit_count);
    if (rest && rule->rest->plan_count > 0)
        bind_plans(b, rule, ret, rest);
    note_rule_units(ret);
    for (size_t k = 0; k < rule->by_count; k++)
        ret->by_path = ret->by_path || is_path(&rule->by[k]);
    ret->one_cell = ret->mode == MODE_ENFORCE && ret->counter == COUNTER_CELL && ret->own.limit_count == 1 &&
                    !ret->own.limits->terms->counts_other && !ret->chooses && !ret->special && !ret->by_path &&
                    ret->rest->replace_count == 0;
}

static uint16_t refusal_status(const struct rules *rules, const struct rule *rule)
{
    uint16_t status = rule->rest->reject.status ? rule->rest->reject.status : rules->settings.reject.status;
    return status ? status : 429;
}

static void bind_by(const struct rule *rule, struct bound_rule *ret)
{
    ret->plain_by_count = (uint8_t)rule->by_count;
    for (size_t i = 0; i < rule->by_count; i++) {
        if (i >= BOUND_BY_PLAIN || attribute_has_name(rule->by[i].attribute)) {
            ret->plain_by_count = UINT8_MAX;
            return;
        }
        ret->plain_by[i] = (uint8_t)rule->by[i].attribute;
    }
}

/* Returns the bits of the attributes on which it depends whether the rule applies, but for those that it counts by. */
static uint32_t attributes_matched(const struct rule *rule)
{
    uint32_t bits = rule->rest->except.user_count > 0 ? UINT32_C(1) << ATTR_USER : 0;
    for (size_t i = 0; i < rule->match.condition_count; i++)
        bits |= UINT32_C(1) << rule->match.conditions[i].attribute;
    return bits;
}

/* All but the limits and the class. */
static struct bound_rule init_rule(const struct binder *b, const struct rule *rule)
{
    struct bound_rule ret = {
        .rule = rule,
        .name_len = (uint8_t)rule->id.len,
        .status = refusal_status(ruleset_rules(b->bound->ruleset), rule),
        .mode = rule->mode,
        .counter = counter_of(rule, b->bound->sharing),
        .penalises = rule->rest->penalty.after > 0 && rule->mode == MODE_ENFORCE,
        .rest = &no_rest,
        .given = rule_limit_is_given(rule),
    };
    bind_by(rule, &ret);
    ret.special = ret.penalises || ret.given;
    return ret;
}

static void init_rules(struct binder *b)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        b->bound->rules[i] = init_rule(b, rules->rules[i]);
        b->fresh[b->fresh_count++] = i;
    }
}

/* What depends on the numbers of all rules. */
static void classify(struct bound *bound)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    uint32_t firsts[32];
    size_t first_count = 0;
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        bound->rules[i].by_class = by_class(rules, firsts, &first_count, sizeof firsts / sizeof *firsts, i);
        bound->matches |= attributes_matched(rules->rules[i]);
    }
}

/* ---- rules that have not changed ---- */

/* Whether the two versions bind a rule that both have in the same way. Limits that nothing uses any more do not outnumber
 * the others. */
static bool can_share(const struct bound *before, const struct bound *bound)
{
    size_t limits = 0;
    for (unsigned i = 1; i < before->block_count; i++)
        limits += before->blocks[i]->limit_count;
    return before->block_count < BOUND_BLOCKS_MAX && limits <= 2 * before->limits_in_use && before->cells == bound->cells &&
           before->sharing.store == bound->sharing.store && before->sharing.leases == bound->sharing.leases &&
           ruleset_rules(before->ruleset)->settings.reject.status == ruleset_rules(bound->ruleset)->settings.reject.status;
}

/* Sets the flags of the whole version that one rule is enough for. */
static void note_rule(struct bound *bound, const struct bound_rule *rule)
{
    bound->by_path = bound->by_path || rule->by_path;
    bound->remote = bound->remote || rule->counter != COUNTER_CELL;
    bound->units = bound->units || rule->units;
    bound->slots = bound->slots || rule->slots;
    bound->leaves_out = bound->leaves_out || rule->given || rule->rest->replace_count > 0;
}

static size_t limits_of(const struct bound_rule *rule)
{
    size_t count = rule->own.limit_count;
    for (size_t k = 0; rule->rest->plans && k < rule->rule->rest->plan_count; k++)
        count += rule->rest->plans[k].limit_count;
    return count;
}

/* Instead of sharing it. */
static void init_again(struct binder *b, uint32_t i)
{
    uint32_t class = b->bound->rules[i].by_class;
    b->bound->rules[i] = init_rule(b, ruleset_rules(b->bound->ruleset)->rules[i]);
    b->bound->rules[i].by_class = class;
    b->fresh[b->fresh_count++] = i;
}

/* The rule as it was bound before, if it has not changed. Those that replace others depend on the ids of these. */
static const struct bound_rule *shared_rule(const struct binder *b, uint32_t i)
{
    const struct bound_rule *old = b->was[i] == UINT32_MAX ? NULL : &b->before->rules[b->was[i]];
    bool same = old && old->rule == ruleset_rules(b->bound->ruleset)->rules[i] && !old->rest->replaces;
    return same ? old : NULL;
}

static void share_rules(struct binder *b)
{
    struct bound *bound = b->bound;
    const struct rules *rules = ruleset_rules(bound->ruleset);
    b->moved = rules->rule_count != ruleset_rules(b->before->ruleset)->rule_count;
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        const struct bound_rule *old = shared_rule(b, i);
        b->moved = b->moved || b->was[i] != i;
        /* The class of a rule that matches the same as before. */
        bound->rules[i].by_class = b->was[i] == UINT32_MAX ? 0 : b->before->rules[b->was[i]].by_class;
        if (!old) {
            init_again(b, i);
            continue;
        }
        bound->rules[i] = *old;
        bound->rules[i].overridden = false;
        bound->limits_in_use += limits_of(old);
        note_rule(bound, old);
    }
    if (b->moved)
        classify(bound);
    else
        bound->matches = b->before->matches;
}

/* Those that have an override for the first time, or none any more, are bound again: see bound_rule.chooses. */
static void bind_overridden_again(struct binder *b)
{
    size_t count = ruleset_rules(b->bound->ruleset)->rule_count;
    for (uint32_t i = 0; i < count; i++) {
        struct bound_rule *rule = &b->bound->rules[i];
        bool overridden = rule->overridden;
        if (rule->own.limits && overridden != b->before->rules[b->was[i]].overridden) {
            b->bound->limits_in_use -= limits_of(rule);
            init_again(b, i);
            rule->overridden = overridden;
        }
    }
}

/* ---- rules that replace others ---- */

struct rule_name {
    sv id;
    struct bound_rule *rule;
};

static int compare_names(const void *a, const void *b)
{
    const struct rule_name *x = a, *y = b;
    return sv_compare(x->id, y->id);
}

/* All rules, sorted by id. Returns NULL if out of memory. */
static struct rule_name *sort_names(const struct bound *bound)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    struct rule_name *names = cleanup_calloc(rules->rule_count + 1, sizeof *names);
    for (size_t i = 0; names && i < rules->rule_count; i++)
        names[i] = (struct rule_name){ rules->rules[i]->id, &bound->rules[i] };
    if (names && rules->rule_count > 1)
        qsort(names, rules->rule_count, sizeof *names, compare_names);
    return names;
}

static struct bound_rule *find_name(const struct rule_name *names, size_t count, sv id)
{
    struct rule_name wanted = { .id = id };
    const struct rule_name *found = count ? bsearch(&wanted, names, count, sizeof *names, compare_names) : NULL;
    return found ? found->rule : NULL;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

bool bound_replaces(const struct bound_rule *rule, uint32_t replaced)
{
    return rule->rest->replace_count > 0 &&
           bsearch(&replaced, rule->rest->replaces, rule->rest->replace_count, sizeof replaced, compare_numbers);
}

static bool bind_replaces(struct bound *bound, const struct rule_name *names, const struct rule *from,
                          struct bound_rule *rule)
{
    size_t rules = ruleset_rules(bound->ruleset)->rule_count;
    uint32_t *list = ARENA_ARRAY(&bound->blocks[bound->block_count - 1]->keys, uint32_t, from->rest->replace_count);
    struct bound_rule_rest *rest = rest_of(bound, rule);
    if (!list || !rest)
        return false;
    for (size_t i = 0; i < from->rest->replace_count; i++) {
        const struct bound_rule *other = find_name(names, rules, from->rest->replaces[i]);
        if (other && other != rule)
            list[rest->replace_count++] = (uint32_t)(other - bound->rules);
    }
    if (rest->replace_count > 1)
        qsort(list, rest->replace_count, sizeof *list, compare_numbers);
    rest->replaces = list;
    bound->replaces = bound->replaces || rest->replace_count > 0;
    return true;
}

/* Returns false if out of memory. */
static bool bind_replacing(struct binder *b)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    CLEANUP_FREE struct rule_name *names = NULL;
    for (size_t k = 0; k < b->fresh_count; k++) {
        uint32_t i = b->fresh[k];
        if (rules->rules[i]->rest->replace_count == 0)
            continue;
        if (!names && !(names = sort_names(b->bound)))
            return false;
        if (!bind_replaces(b->bound, names, rules->rules[i], &b->bound->rules[i]))
            return false;
    }
    return true;
}

static void bind_rules(struct binder *b)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    for (size_t k = 0; k < b->fresh_count; k++) {
        uint32_t i = b->fresh[k];
        bind_rule(b, rules->rules[i], &b->bound->rules[i]);
        note_rule(b->bound, &b->bound->rules[i]);
    }
}

/* ---- overrides ---- */

/* Finds the rule of each override and marks it as overridden, before limits are bound. Returns false if out of memory. */
static bool find_overridden(struct bound *bound, struct bound_rule **ret)
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
        if (is_path(&rule->by[i]))
            value = counted_value(&facts, b->bound->ruleset, &rule->by[i], value);
        else if (rule->by[i].attribute == ATTR_IP)
            value = counted_value(&facts, b->bound->ruleset, &rule->by[i], sv_cut(&rest, '/'));
        if (value.len == 0 && !by_may_be_empty(&rule->by[i]))
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
        hash_limit(&h, &o->limits[i]);
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

static bool make_table(struct override_table *table, size_t count)
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

/* ---- the whole ---- */

/* Returns how many limits rules have that are not shared. */
static size_t count_limits(const struct binder *b)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    size_t count = 0;
    for (size_t k = 0; k < b->fresh_count; k++) {
        const struct rule *rule = rules->rules[b->fresh[k]];
        count += rule->limit_count;
        for (size_t i = 0; i < rule->rest->plan_count; i++)
            count += rule->rest->plans[i].limit_count;
    }
    return count;
}

/* Returns how many limits overrides have, each that denies counted for one. */
static size_t count_override_limits(const struct rules *rules)
{
    size_t count = rules->override_count;
    for (size_t i = 0; i < rules->override_count; i++)
        count += rules->overrides[i].limit_count;
    return count;
}

/* Zeroed. NULL: no memory. */
static struct bound_limit *new_limits(size_t count)
{
    size_t size = (count + 1) * sizeof(struct bound_limit);
    struct bound_limit *limits = aligned_alloc(_Alignof(struct bound_limit), size);
    return limits ? memset(limits, 0, size) : NULL;
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

static bool bind_overrides(struct binder *b, struct bound_rule **of)
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

/* ---- all of it ---- */

static void block_free(struct bound_block *block)
{
    if (!block || --block->users > 0)
        return;
    arena_done(&block->keys);
    for (size_t i = 0; i < block->limit_count; i++)
        free(block->limits[i].policy);
    free(block->limits);
    rules_let_go(block->rules);
    free(block);
}

static bool add_block(struct bound *bound)
{
    struct bound_block *block = calloc(1, sizeof *block);
    if (!block)
        return false;
    block->users = 1;
    block->rules = rules_hold((struct rules *)ruleset_rules(bound->ruleset));
    bound->blocks[bound->block_count++] = block;
    return true;
}

/* The block that limits are bound in from now on. */
static bool begin_block(struct binder *b, uint32_t number, size_t limit_count)
{
    b->block = b->bound->blocks[number];
    b->block_number = number;
    b->next = b->block->limits = new_limits(limit_count);
    b->block->limit_count = b->next ? limit_count : 0;
    terms_table_done(&b->terms);
    return terms_table_init(&b->terms, limit_count, &b->block->keys) && b->next;
}

static bool add_blocks(struct bound *bound, const struct bound *before)
{
    if (!add_block(bound))
        return false;
    for (unsigned i = 1; before && i < before->block_count; i++) {
        before->blocks[i]->users++;
        bound->blocks[bound->block_count++] = before->blocks[i];
    }
    return add_block(bound);
}

static bool bind_all(struct binder *b)
{
    struct bound *bound = b->bound;
    const struct rules *rules = ruleset_rules(bound->ruleset);
    size_t overrides = rules->override_count;
    CLEANUP_FREE struct bound_rule **of = cleanup_calloc(overrides + 1, sizeof *of);
    CLEANUP_FREE uint32_t *fresh = cleanup_calloc(rules->rule_count + 1, sizeof *fresh);
    b->fresh = fresh;
    bound->rules = aligned_alloc(_Alignof(struct bound_rule), (rules->rule_count + 1) * sizeof *bound->rules);
    if (!of || !fresh || !bound->rules || !add_blocks(bound, b->before))
        return false;
    ruleset_load_beside(bound->ruleset, bound->rules, sizeof *bound->rules);
    if (b->before) {
        share_rules(b);
    } else {
        init_rules(b);
        classify(bound);
    }
    if (overrides > 0 && (!find_overridden(bound, of) || !make_table(&bound->overrides, overrides)))
        return false;
    if (b->before && overrides + ruleset_rules(b->before->ruleset)->override_count > 0)
        bind_overridden_again(b);
    size_t limits = count_limits(b);
    bound->limits_in_use += limits;
    if (!bind_replacing(b) || !begin_block(b, bound->block_count - 1, limits))
        return false;
    bind_rules(b);
    if (!begin_block(b, 0, count_override_limits(rules)) || (overrides > 0 && !bind_overrides(b, of)))
        return false;
    return !b->no_memory && bound_index_limits(bound, b->moved ? NULL : b->before, fresh, b->fresh_count);
}

int bound_new(struct bound **ret, struct ruleset *ruleset, struct cells *cells, struct bound_sharing sharing,
              struct bound_before before, struct weir_error *error)
{
    size_t count = ruleset_rules(ruleset)->rule_count;
    struct bound *bound = calloc(1, sizeof *bound);
    if (!bound) {
        ruleset_free(ruleset);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for %zu rules", count);
    }
    *bound =
        (struct bound){ .ruleset = ruleset, .cells = cells, .sharing = sharing, .wants_user = ruleset_wants_user(ruleset) };
    bound->hash_key = *cells_hash_key(cells);
    seal_key_init(&bound->seal_key, cells_hash_key(cells), WEIR_RECEIPT_LIMITS);
    struct binder b = { .bound = bound, .was = before.was, .key = &bound->hash_key };
    b.before = before.was && can_share(before.bound, bound) ? before.bound : NULL;
    bool all = bind_all(&b);
    terms_table_done(&b.terms);
    if (!all) {
        bound_free(bound);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for %zu rules", count);
    }
    *ret = bound;
    return 0;
}

static void free_prepared(struct prepared_part *part)
{
    for (size_t i = 0; part && i < PREPARED_PART; i++)
        prepared_plan_free(part->plans[i]);
    free(part);
}

void prepared_plan_free(struct prepared_plan *plan)
{
    while (plan) {
        struct prepared_plan *older = plan->older;
        free(plan);
        plan = older;
    }
}

void bound_free(struct bound *bound)
{
    if (!bound)
        return;
    ruleset_free(bound->ruleset);
    for (unsigned i = 0; i < bound->block_count; i++)
        block_free(bound->blocks[i]);
    for (size_t i = 0; i < PREPARED_PARTS; i++)
        free_prepared(bound->prepared[i]);
    free(bound->rules);
    free(bound->by_id);
    free(bound->overrides.tags);
    free(bound->overrides.slots);
    free(bound->overrides.effects);
    free(bound);
}

const struct bound_rule *bound_find(const struct bound *bound, sv id)
{
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = 0; i < count; i++)
        if (sv_eq(bound->rules[i].rule->id, id))
            return &bound->rules[i];
    return NULL;
}
