#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/binder.h"
#include "engine/keys.h"

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
    if (rule->kind->rest->lease.on)
        return sharing.store || sharing.leases ? COUNTER_SLICE : COUNTER_CELL;
    /* Where nothing may wait, a rule that is said to be shared is a mistake, whether there is a store or not. */
    if (rule->kind->counters == COUNTERS_SHARED)
        return sharing.store || sharing.leases ? COUNTER_STORE : COUNTER_CELL;
    return sharing.store && rule->kind->counters == COUNTERS_DEFAULT ? COUNTER_STORE : COUNTER_CELL;
}

/* ---- binding ---- */

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

/* Rules do not know how paths are read: /a/ is /a. */
static const sv *spell_plans(struct binder *b, const struct rule *rule)
{
    struct arena *arena = &b->block->keys;
    sv *names = ARENA_ARRAY(arena, sv, rule->kind->rest->plan_count);
    for (size_t i = 0; names && i < rule->kind->rest->plan_count; i++) {
        struct facts facts;
        names[i] = arena_copy(
            arena, counted_value(&facts, b->bound->ruleset, &rule->kind->rest->plan, rule->kind->rest->plans[i].name));
        b->no_memory = b->no_memory || !names[i].ptr;
    }
    b->no_memory = b->no_memory || !names;
    return names;
}

/* What the rule counts beside requests, in its own limits and in those of its plans. */
static void note_rule_units(struct bound_rule *rule)
{
    bool units = false, slots = false;
    note_units(&rule->own, &units, &slots);
    for (size_t i = 0; rule->rest->plans && i < rule->rule->kind->rest->plan_count; i++)
        note_units(&rule->rest->plans[i], &units, &slots);
    rule->units = units;
    rule->slots = slots;
}

static void bind_plans(struct binder *b, const struct rule *rule, struct bound_rule *ret, struct bound_rule_rest *rest)
{
    struct bound_set *plans = ARENA_ARRAY(&b->block->keys, struct bound_set, rule->kind->rest->plan_count);
    b->no_memory = b->no_memory || !plans;
    for (size_t i = 0; plans && i < rule->kind->rest->plan_count; i++)
        plans[i] = bind_set(b, ret, rule->kind->rest->plans[i].limits, rule->kind->rest->plans[i].limit_count);
    rest->plans = plans;
    ret->by_path = by_is_path(&rule->kind->rest->plan);
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
    ret->chooses = ret->overridden || rule->kind->rest->plan_count > 0;
    struct bound_rule_rest *rest = bind_rest(b, rule, ret);
    bind_name(b, rule->id, ret);
    ret->own = bind_set(b, ret, rule->kind->limits, rule->kind->limit_count);
    if (rest && rule->kind->rest->plan_count > 0)
        bind_plans(b, rule, ret, rest);
    note_rule_units(ret);
    for (size_t k = 0; k < rule->kind->by_count; k++)
        ret->by_path = ret->by_path || by_is_path(&rule->kind->by[k]);
    ret->one_cell = ret->mode == MODE_ENFORCE && ret->counter == COUNTER_CELL && ret->own.limit_count == 1 &&
                    !ret->own.limits->terms->counts_other && !ret->chooses && !ret->special && !ret->by_path &&
                    ret->rest->replace_count == 0;
}

static uint16_t refusal_status(const struct rules *rules, const struct rule *rule)
{
    uint16_t status = rule->kind->rest->reject.status ? rule->kind->rest->reject.status : rules->settings.reject.status;
    return status ? status : 429;
}

static void bind_by(const struct rule *rule, struct bound_rule *ret)
{
    ret->plain_by_count = (uint8_t)rule->kind->by_count;
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        if (i >= BOUND_BY_PLAIN || attribute_has_name(rule->kind->by[i].attribute)) {
            ret->plain_by_count = UINT8_MAX;
            return;
        }
        ret->plain_by[i] = (uint8_t)rule->kind->by[i].attribute;
    }
}

/* Returns the bits of the attributes on which it depends whether the rule applies, but for those that it counts by. */
static uint32_t attributes_matched(const struct rule *rule)
{
    uint32_t bits = rule->kind->rest->except.user_count > 0 ? UINT32_C(1) << ATTR_USER : 0;
    for (size_t i = 0; i < rule->kind->condition_count; i++)
        bits |= UINT32_C(1) << rule->kind->conditions[i].attribute;
    return bits;
}

/* All but the limits and the class. */
static struct bound_rule init_rule(const struct binder *b, const struct rule *rule)
{
    struct bound_rule ret = {
        .rule = rule,
        .name_len = (uint8_t)rule->id.len,
        .status = refusal_status(ruleset_rules(b->bound->ruleset), rule),
        .mode = rule->kind->mode,
        .counter = counter_of(rule, b->bound->sharing),
        .penalises = rule->kind->rest->penalty.after > 0 && rule->kind->mode == MODE_ENFORCE,
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
    for (size_t k = 0; rule->rest->plans && k < rule->rule->kind->rest->plan_count; k++)
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
    uint32_t *list = ARENA_ARRAY(&bound->blocks[bound->block_count - 1]->keys, uint32_t, from->kind->rest->replace_count);
    struct bound_rule_rest *rest = rest_of(bound, rule);
    if (!list || !rest)
        return false;
    for (size_t i = 0; i < from->kind->rest->replace_count; i++) {
        const struct bound_rule *other = find_name(names, rules, from->kind->rest->replaces[i]);
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
        if (rules->rules[i]->kind->rest->replace_count == 0)
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

/* ---- the whole ---- */

/* Returns how many limits rules have that are not shared. */
static size_t count_limits(const struct binder *b)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    size_t count = 0;
    for (size_t k = 0; k < b->fresh_count; k++) {
        const struct rule *rule = rules->rules[b->fresh[k]];
        count += rule->kind->limit_count;
        for (size_t i = 0; i < rule->kind->rest->plan_count; i++)
            count += rule->kind->rest->plans[i].limit_count;
    }
    return count;
}

static void block_free(struct bound_block *block)
{
    if (!block || --block->users > 0)
        return;
    arena_done(&block->keys);
    for (size_t i = 0; block->policies && i < block->limit_count; i++)
        free(block->policies[i]);
    free(block->policies);
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
    if (overrides > 0 && (!find_overridden(bound, of) || !make_override_table(&bound->overrides, overrides)))
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

struct policy_text **bound_policy(const struct bound *bound, uint32_t number)
{
    struct bound_block *block = bound->blocks[number >> BOUND_PLACE_BITS];
    struct policy_text **policies = __atomic_load_n(&block->policies, __ATOMIC_ACQUIRE), **made;
    if (!policies && (made = calloc(block->limit_count, sizeof(struct policy_text *)))) {
        if (__atomic_compare_exchange_n(&block->policies, &policies, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            policies = made;
        else
            free(made);
    }
    return policies ? &policies[number & ((UINT32_C(1) << BOUND_PLACE_BITS) - 1)] : NULL;
}

const struct bound_rule *bound_find(const struct bound *bound, sv id)
{
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = 0; i < count; i++)
        if (sv_eq(bound->rules[i].rule->id, id))
            return &bound->rules[i];
    return NULL;
}
