#include <stdlib.h>

#include "base/err.h"
#include "engine/bound.h"
#include "engine/keys.h"

static uint64_t limit_id(const struct hash_key *key, const struct rule *rule, const struct rule_limit *limit)
{
    struct hash h;
    hash_init(&h, key);
    /* No text is as long as this, so no subject's values hash like a limit: the two are joined to a cell's key. */
    hash_word(&h, UINT64_MAX);
    subject_add(&h, rule->id);
    subject_add(&h, limit->name);
    subject_add(&h, weir_str(algorithm_names[limit->algorithm]));
    for (size_t i = 0; i < rule->by_count; i++) {
        subject_add(&h, attribute_table[rule->by[i].attribute].name);
        subject_add(&h, rule->by[i].header);
    }
    return hash_final(&h);
}

static void bind_limit(struct bound_limit *ret, const struct hash_key *key, const struct rule *rule,
                       const struct rule_limit *spec)
{
    *ret = (struct bound_limit){ .id = limit_id(key, rule, spec), .spec = spec, .unit = spec->cost_unit };
    limit_init(&ret->limit, spec->algorithm, spec->max, spec->burst, spec->per_us);
}

static bool same_by(const struct rule *a, const struct rule *b)
{
    if (a->by_count != b->by_count)
        return false;
    for (size_t i = 0; i < a->by_count; i++)
        if (a->by[i].attribute != b->by[i].attribute || !sv_eq(a->by[i].header, b->by[i].header))
            return false;
    return true;
}

/* A rule's class is the place of an earlier rule with the same `by`. Few different ones are looked at: more classes than
 * needed cost a hash, never a wrong answer. */
static uint32_t by_class(const struct rules *rules, uint32_t *firsts, size_t *first_count, size_t first_cap, uint32_t i)
{
    for (size_t k = 0; k < *first_count; k++)
        if (same_by(&rules->rules[firsts[k]], &rules->rules[i]))
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

static bool bind_keys(struct bound *bound)
{
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = 0; i < count; i++) {
        struct bound_rule *rule = &bound->rules[i];
        char end[KEY_END_MAX];
        if (rule->counter == COUNTER_CELL)
            continue;
        bound->remote = true;
        rule->key_end = arena_copy(&bound->keys, sv_of(end, key_write_end(end, rule->rule)));
        if (!rule->key_end.ptr)
            return false;
        for (size_t k = 0; k < rule->limit_count; k++) {
            char field[STORE_FIELD_MAX];
            sv copy = arena_copy(&bound->keys, sv_of(field, field_write(field, rule->limits[k].spec)));
            if (!copy.ptr)
                return false;
            rule->limits[k].field = copy;
        }
    }
    return true;
}

int bound_new(struct bound **ret, struct ruleset *ruleset, struct cells *cells, struct bound_sharing sharing,
              struct weir_error *error)
{
    const struct rules *rules = ruleset_rules(ruleset);
    const struct hash_key *key = cells_hash_key(cells);
    size_t limit_count = 0;
    for (size_t i = 0; i < rules->rule_count; i++)
        limit_count += rules->rules[i].limit_count;
    struct bound *bound = calloc(1, sizeof *bound);
    struct bound_rule *bound_rules = calloc(rules->rule_count + 1, sizeof *bound_rules);
    struct bound_limit *limits = calloc(limit_count + 1, sizeof *limits);
    if (!bound || !bound_rules || !limits) {
        free(bound);
        free(bound_rules);
        free(limits);
        err_set(error, WEIR_E_NO_MEMORY, "out of memory for %zu rules", rules->rule_count);
        ruleset_free(ruleset);
        return WEIR_E_NO_MEMORY;
    }
    *bound = (struct bound){
        .ruleset = ruleset,
        .cells = cells,
        .rules = bound_rules,
        .limits = limits,
        .wants_user = ruleset_wants_user(ruleset),
    };
    uint32_t firsts[32];
    size_t first_count = 0;
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        const struct rule *rule = &rules->rules[i];
        uint32_t class = by_class(rules, firsts, &first_count, sizeof firsts / sizeof *firsts, i);
        bound_rules[i] = (struct bound_rule){ .rule = rule,
                                              .limits = limits,
                                              .mode = rule->mode,
                                              .limit_count = (uint32_t)rule->limit_count,
                                              .by_class = class,
                                              .counter = counter_of(rule, sharing) };
        for (size_t k = 0; k < rule->by_count; k++)
            bound_rules[i].by_path |= rule->by[k].attribute == ATTR_PATH || rule->by[k].attribute == ATTR_ROUTE;
        bound->by_path = bound->by_path || bound_rules[i].by_path;
        for (size_t k = 0; k < rule->limit_count; k++) {
            bind_limit(limits++, key, rule, &rule->limits[k]);
            bound->units = bound->units || rule->limits[k].cost_unit.len > 0;
        }
    }
    if (!bind_keys(bound)) {
        bound_free(bound);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for the rules");
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
    free(bound->rules);
    free(bound->limits);
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

uint64_t subject_hash(const struct bound *bound, const struct bound_rule *rule, struct facts *facts)
{
    struct hash h;
    hash_init(&h, cells_hash_key(bound->cells));
    for (size_t i = 0; i < rule->rule->by_count; i++)
        subject_add(&h, facts_attribute(facts, &rule->rule->by[i]));
    return hash_final(&h);
}

uint64_t limit_cost_by_unit(const struct bound_limit *limit, const struct weir_request *request)
{
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
    window = calendar_window(&limit->spec->zone->tz, limit->spec->unit, limit->spec->week_start, now_us);
    cache_write((struct window_cache *)&limit->cache, window);
    return window;
}
