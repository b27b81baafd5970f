#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/bound.h"
#include "engine/keys.h"

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

static uint64_t penalty_id(const struct hash_key *key, const struct rule *rule)
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
        if (rule_same_by(&rules->rules[firsts[k]], &rules->rules[i]))
            return firsts[k];
    if (*first_count < first_cap)
        firsts[(*first_count)++] = i;
    return i;
}

static enum counter_kind counter_of(const struct rule *rule, struct bound_sharing sharing)
{
    if (rule->lease.on)
        return sharing.store || sharing.leases ? COUNTER_SLICE : COUNTER_CELL;
    /* Where nothing may wait, a rule that is said to be shared is a mistake, whether there is a store or not. */
    if (rule->counters == COUNTERS_SHARED)
        return sharing.store || sharing.leases ? COUNTER_STORE : COUNTER_CELL;
    return sharing.store && rule->counters == COUNTERS_DEFAULT ? COUNTER_STORE : COUNTER_CELL;
}

/* ---- binding ---- */

struct binder {
    struct bound *bound;
    const struct hash_key *key;
    struct bound_limit *next; /* room for all limits */
    uint32_t
        *first; /* effects by their hash: 1 + the index of the first override that has it; as many as there are slots */
    bool no_memory;
};

static void bind_limit(struct binder *b, const struct bound_rule *rule, const struct rule_limit *spec, bool first)
{
    struct bound_limit *limit = b->next++;
    *limit = (struct bound_limit){
        .id = limit_id(b->key, rule->rule, spec), .spec = spec, .first = first, .unit = spec->cost_unit
    };
    limit->counts_other = spec->cost_unit.len > 0 || spec->algorithm == LIMIT_CONCURRENT;
    b->bound->units = b->bound->units || limit->counts_other;
    b->bound->slots = b->bound->slots || spec->algorithm == LIMIT_CONCURRENT;
    limit_init(&limit->limit, spec->algorithm, spec->given ? LIMIT_MAX_MAX : spec->max, spec->burst, spec->per_us);
    limit->limit.overdraft = spec->overdraft;
    limit->cost_most = spec->overdraft ? limit_overdraft_cost(&limit->limit) : WEIR_AMOUNT_MAX;
    limit->cost_over = spec->overdraft ? limit->cost_most : WEIR_AMOUNT_MAX + 1;
    if (rule->chooses)
        limit->slice_mark = key_mix(rule->id, spec->max);
    if (rule->counter == COUNTER_CELL)
        return;
    char field[STORE_FIELD_MAX];
    limit->field = arena_copy(&b->bound->keys, sv_of(field, field_write(field, spec)));
    b->no_memory = b->no_memory || !limit->field.ptr;
}

static struct bound_set bind_set(struct binder *b, struct bound_rule *rule, const struct rule_limit *specs, size_t count)
{
    struct bound_set set = { b->next, (uint32_t)count, rule->counter };
    for (size_t i = 0; i < count; i++)
        bind_limit(b, rule, &specs[i], i == 0);
    rule->limit_most = count > rule->limit_most ? (uint32_t)count : rule->limit_most;
    return set;
}

static bool is_path(const struct rule_by *by)
{
    return by->attribute == ATTR_PATH || by->attribute == ATTR_ROUTE;
}

/* Rules do not know how paths are read: /a/ is /a. */
static const sv *spell_plans(struct binder *b, const struct rule *rule)
{
    struct arena *arena = &b->bound->keys;
    sv *names = ARENA_ARRAY(arena, sv, rule->plan_count);
    for (size_t i = 0; names && i < rule->plan_count; i++) {
        struct facts facts;
        names[i] = arena_copy(arena, counted_value(&facts, b->bound->ruleset, &rule->plan, rule->plans[i].name));
        b->no_memory = b->no_memory || !names[i].ptr;
    }
    b->no_memory = b->no_memory || !names;
    return names;
}

static void bind_rule(struct binder *b, const struct rule *rule, struct bound_set *plans, struct bound_rule *ret)
{
    struct bound *bound = b->bound;
    ret->plans = plans;
    ret->chooses = ret->overridden || rule->plan_count > 0;
    ret->own = bind_set(b, ret, rule->limits, rule->limit_count);
    for (size_t i = 0; i < rule->plan_count; i++)
        plans[i] = bind_set(b, ret, rule->plans[i].limits, rule->plans[i].limit_count);
    ret->by_path = rule->plan_count > 0 && is_path(&rule->plan);
    if (ret->by_path)
        ret->plan_names = spell_plans(b, rule);
    for (size_t k = 0; k < rule->by_count; k++)
        ret->by_path = ret->by_path || is_path(&rule->by[k]);
    bound->by_path = bound->by_path || ret->by_path;
    if (ret->counter == COUNTER_CELL)
        return;
    char end[KEY_END_MAX];
    bound->remote = true;
    ret->key_end = arena_copy(&bound->keys, sv_of(end, key_write_end(end, rule)));
    b->no_memory = b->no_memory || !ret->key_end.ptr;
}

/* All but the limits. */
static void init_rules(struct binder *b, struct bound_sharing sharing)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    uint32_t firsts[32];
    size_t first_count = 0;
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        const struct rule *rule = &rules->rules[i];
        b->bound->rules[i] = (struct bound_rule){
            .rule = rule,
            .mode = rule->mode,
            .by_class = by_class(rules, firsts, &first_count, sizeof firsts / sizeof *firsts, i),
            .counter = counter_of(rule, sharing),
            .id = rule_id(b->key, rule),
            .penalises = rule->penalty.after > 0 && rule->mode == MODE_ENFORCE,
            .penalty_id = penalty_id(b->key, rule),
        };
        if (b->bound->rules[i].penalises)
            b->bound->rules[i].penalty = &rule->penalty;
        b->bound->rules[i].given = rule_limit_is_given(rule);
        b->bound->rules[i].special = b->bound->rules[i].penalises || b->bound->rules[i].given;
        b->bound->leaves_out = b->bound->leaves_out || b->bound->rules[i].given;
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
        names[i] = (struct rule_name){ rules->rules[i].id, &bound->rules[i] };
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
    return rule->replace_count > 0 &&
           bsearch(&replaced, rule->replaces, rule->replace_count, sizeof replaced, compare_numbers);
}

static bool bind_replaces(struct bound *bound, const struct rule_name *names, const struct rule *from,
                          struct bound_rule *rule)
{
    size_t rules = ruleset_rules(bound->ruleset)->rule_count;
    uint32_t *list = ARENA_ARRAY(&bound->keys, uint32_t, from->replace_count);
    for (size_t i = 0; list && i < from->replace_count; i++) {
        const struct bound_rule *other = find_name(names, rules, from->replaces[i]);
        if (other && other != rule)
            list[rule->replace_count++] = (uint32_t)(other - bound->rules);
    }
    if (rule->replace_count > 1)
        qsort(list, rule->replace_count, sizeof *list, compare_numbers);
    rule->replaces = list;
    bound->replaces = bound->replaces || rule->replace_count > 0;
    return list;
}

/* Returns false if out of memory. */
static bool bind_replacing(struct bound *bound)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    CLEANUP_FREE struct rule_name *names = NULL;
    for (size_t i = 0; i < rules->rule_count; i++) {
        if (rules->rules[i].replace_count == 0)
            continue;
        if (!names && !(names = sort_names(bound)))
            return false;
        if (!bind_replaces(bound, names, &rules->rules[i], &bound->rules[i]))
            return false;
    }
    bound->leaves_out = bound->leaves_out || bound->replaces;
    return true;
}

static void bind_rules(struct binder *b)
{
    const struct rules *rules = ruleset_rules(b->bound->ruleset);
    struct bound_set *plans = b->bound->plans;
    for (size_t i = 0; i < rules->rule_count; i++) {
        bind_rule(b, &rules->rules[i], plans, &b->bound->rules[i]);
        plans += rules->rules[i].plan_count;
    }
}

/* ---- overrides ---- */

static const struct rule_limit deny_limit = {
    .name = { "deny", 4 }, .named = true, .algorithm = LIMIT_FIXED_WINDOW, .max = 0, .per_us = US_PER_S
};

bool limit_denies(const struct bound_limit *limit)
{
    return limit->spec == &deny_limit;
}

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
    hash_word(&h, rule->id + o->kind);
    hash_word(&h, (uint64_t)o->expires_us);
    for (size_t i = 0; i < o->limit_count; i++) {
        const struct rule_limit *limit = &o->limits[i];
        hash_word(&h, limit->max);
        hash_word(&h, limit->burst);
        hash_word(&h, ((uint64_t)limit->per_us + limit->algorithm) * 2 + limit->overdraft);
        hash_text(&h, limit->name.ptr, limit->name.len);
        hash_text(&h, limit->cost_unit.ptr, limit->cost_unit.len);
    }
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
    uint64_t key = key_mix(rule->id, subject);
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

/* Returns how many limits there are in all sets, each override that denies counted for one. */
static size_t count_limits(const struct rules *rules, size_t *ret_plans)
{
    size_t count = rules->override_count;
    *ret_plans = 0;
    for (size_t i = 0; i < rules->rule_count; i++) {
        count += rules->rules[i].limit_count;
        *ret_plans += rules->rules[i].plan_count;
        for (size_t k = 0; k < rules->rules[i].plan_count; k++)
            count += rules->rules[i].plans[k].limit_count;
    }
    for (size_t i = 0; i < rules->override_count; i++)
        count += rules->overrides[i].limit_count;
    return count;
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
    return first && effects;
}

/* ---- limits by id ---- */

static bool index_limits(struct bound *bound)
{
    size_t size = 4, count = bound->limit_count;
    while (size < 2 * count)
        size *= 2;
    bound->by_id = calloc(size, sizeof *bound->by_id);
    bound->by_id_mask = size - 1;
    for (size_t i = 0; bound->by_id && i < count; i++) {
        size_t slot = (size_t)bound->limits[i].id & bound->by_id_mask;
        while (bound->by_id[slot])
            slot = (slot + 1) & bound->by_id_mask;
        bound->by_id[slot] = (uint32_t)i + 1;
    }
    return bound->by_id != NULL;
}

/* ---- all of it ---- */

static bool bind_all(struct bound *bound, struct bound_sharing sharing)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    size_t plan_count, limit_count = count_limits(rules, &plan_count);
    CLEANUP_FREE struct bound_rule **of = cleanup_calloc(rules->override_count + 1, sizeof *of);
    bound->rules = calloc(rules->rule_count + 1, sizeof *bound->rules);
    bound->limits = calloc(limit_count + 1, sizeof *bound->limits);
    bound->plans = calloc(plan_count + 1, sizeof *bound->plans);
    bound->limit_count = limit_count;
    if (!of || !bound->rules || !bound->limits || !bound->plans)
        return false;
    struct binder b = { .bound = bound, .key = cells_hash_key(bound->cells), .next = bound->limits };
    init_rules(&b, sharing);
    if (!bind_replacing(bound))
        return false;
    if (rules->override_count > 0 && (!find_overridden(bound, of) || !make_table(&bound->overrides, rules->override_count)))
        return false;
    bind_rules(&b);
    if (rules->override_count > 0 && !bind_overrides(&b, of))
        return false;
    bound->limit_count = (size_t)(b.next - bound->limits);
    return !b.no_memory && index_limits(bound);
}

int bound_new(struct bound **ret, struct ruleset *ruleset, struct cells *cells, struct bound_sharing sharing,
              struct weir_error *error)
{
    size_t count = ruleset_rules(ruleset)->rule_count;
    struct bound *bound = calloc(1, sizeof *bound);
    if (!bound) {
        ruleset_free(ruleset);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for %zu rules", count);
    }
    *bound = (struct bound){ .ruleset = ruleset, .cells = cells, .wants_user = ruleset_wants_user(ruleset) };
    seal_key_init(&bound->seal_key, cells_hash_key(cells), WEIR_RECEIPT_LIMITS);
    if (!bind_all(bound, sharing)) {
        bound_free(bound);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for %zu rules", count);
    }
    *ret = bound;
    return 0;
}

void bound_free(struct bound *bound)
{
    if (!bound)
        return;
    ruleset_free(bound->ruleset);
    arena_done(&bound->keys);
    for (size_t i = 0; bound->limits && i < bound->limit_count; i++)
        free(bound->limits[i].policy);
    free(bound->rules);
    free(bound->limits);
    free(bound->by_id);
    free(bound->plans);
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

uint64_t limit_cost_by_unit(const struct bound_limit *limit, const struct weir_request *request)
{
    /* A request that is in flight is one, whatever it costs, unless it only looks. */
    if (limit->limit.algorithm == LIMIT_CONCURRENT)
        return request->cost > 0 || request->cost_count > 0;
    for (size_t i = 0; i < request->cost_count; i++)
        if (sv_eq(request->costs[i].unit, limit->unit))
            return request->costs[i].amount;
    return 0;
}

/* ---- cached calendar windows ---- */

static bool cache_read(const struct window_cache *cache, struct window *ret)
{
    uint64_t version = __atomic_load_n(&cache->version, __ATOMIC_ACQUIRE);
    ret->start_us = __atomic_load_n(&cache->window.start_us, __ATOMIC_RELAXED);
    ret->end_us = __atomic_load_n(&cache->window.end_us, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return !(version & 1) && __atomic_load_n(&cache->version, __ATOMIC_RELAXED) == version;
}

/* Does nothing if another thread is writing. */
static void cache_write(struct window_cache *cache, struct window window)
{
    uint64_t version = __atomic_load_n(&cache->version, __ATOMIC_RELAXED);
    if (version & 1 ||
        !__atomic_compare_exchange_n(&cache->version, &version, version + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&cache->window.start_us, window.start_us, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->window.end_us, window.end_us, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->version, version + 2, __ATOMIC_RELEASE);
}

struct window limit_current_window(const struct bound_limit *limit, int64_t now_us)
{
    struct window window = { 0, 0 };
    if (limit->limit.algorithm != LIMIT_CALENDAR)
        return window;
    if (cache_read(&limit->cache, &window) && now_us >= window.start_us && now_us < window.end_us)
        return window;
    if (limit->spec->given)
        return (struct window){ 0, 0 }; /* counter_window() knows the request's */
    window = rule_limit_window(limit->spec, now_us);
    cache_write((struct window_cache *)&limit->cache, window);
    return window;
}
