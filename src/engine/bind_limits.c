/* Limits bound to a table of cells: their identities, and sets of them. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/binder.h"

static void add_by(struct hash *h, const struct rule *rule)
{
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        subject_add(h, attribute_table[rule->kind->by[i].attribute].name);
        subject_add(h, rule->kind->by[i].name);
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

uint64_t rule_id(const struct hash_key *key, const struct rule *rule)
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

static void bind_limit(struct binder *b, const struct bound_rule *rule, const struct rule_limit *spec)
{
    static const struct bound_terms nothing;
    struct bound_limit *limit = b->next++;
    const struct bound_terms *terms = terms_of(&b->terms, b->key, spec, rule->counter != COUNTER_CELL);
    b->no_memory = b->no_memory || !terms;
    *limit = (struct bound_limit){ .terms = terms ? terms : &nothing, .id = limit_id(b->key, rule->rule, spec) };
}

struct bound_set bind_set(struct binder *b, struct bound_rule *rule, const struct rule_limit *specs, size_t count)
{
    struct bound_set set = { b->next, (uint32_t)count, rule->counter };
    for (size_t i = 0; i < count; i++)
        bind_limit(b, rule, &specs[i]);
    rule->limit_most = count > rule->limit_most ? (uint8_t)count : rule->limit_most;
    return set;
}

void note_units(const struct bound_set *set, bool *units, bool *slots)
{
    for (size_t i = 0; i < set->limit_count; i++) {
        *units = *units || set->limits[i].terms->counts_other;
        *slots = *slots || set->limits[i].terms->limit.algorithm == LIMIT_CONCURRENT;
    }
}

struct bound_limit *new_limits(size_t count)
{
    size_t size = (count + 1) * sizeof(struct bound_limit);
    struct bound_limit *limits = aligned_alloc(_Alignof(struct bound_limit), size);
    return limits ? memset(limits, 0, size) : NULL;
}

/* ---- rules by their names ---- */

static int compare_names(const void *a, const void *b)
{
    const struct rule_name *x = a, *y = b;
    return sv_compare(x->id, y->id);
}

struct rule_name *sort_names(const struct bound *bound)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    struct rule_name *names = cleanup_calloc(rules->rule_count + 1, sizeof *names);
    for (size_t i = 0; names && i < rules->rule_count; i++)
        names[i] = (struct rule_name){ rules->rules[i]->id, &bound->rules[i] };
    if (names && rules->rule_count > 1)
        qsort(names, rules->rule_count, sizeof *names, compare_names);
    return names;
}

struct bound_rule *find_name(const struct rule_name *names, size_t count, sv id)
{
    struct rule_name wanted = { .id = id };
    const struct rule_name *found = count ? bsearch(&wanted, names, count, sizeof *names, compare_names) : NULL;
    return found ? found->rule : NULL;
}
