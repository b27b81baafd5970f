/* A ruleset that is being bound: between bound.c and its parts. */
#ifndef ENGINE_BINDER_H
#define ENGINE_BINDER_H

#include "engine/bound.h"
#include "engine/terms.h"

struct binder {
    struct bound *bound;
    const struct bound *before; /* whose rules are shared; NULL: none is */
    const uint32_t *was;        /* of each rule: its number in `before`; UINT32_MAX: it has none */
    bool moved;                 /* some rule has another number than before, or rules have come or gone */
    const struct hash_key *key;
    struct bound_block *block; /* where limits are bound */
    struct bound_limit *next;  /* room for all limits of the block */
    struct terms_table terms;  /* of the block */
    uint32_t *fresh;           /* numbers of the rules that are not shared; room for all */
    size_t fresh_count;
    uint32_t
        *first; /* effects by their hash: 1 + the index of the first override that has it; as many as there are slots */
    bool no_memory;
};

static inline bool by_is_path(const struct rule_by *by)
{
    return by->attribute == ATTR_PATH || by->attribute == ATTR_ROUTE;
}

/* ---- bind_limits.c ---- */

uint64_t rule_id(const struct hash_key *key, const struct rule *rule);
/* What a set counts beside requests. */
void note_units(const struct bound_set *set, bool *units, bool *slots);
struct bound_set bind_set(struct binder *b, struct bound_rule *rule, const struct rule_limit *specs, size_t count);
struct bound_limit *new_limits(size_t count); /* zeroed. NULL: no memory */

struct rule_name {
    sv id;
    struct bound_rule *rule;
};

/* All rules, sorted by id. Returns NULL if out of memory. */
struct rule_name *sort_names(const struct bound *bound);
struct bound_rule *find_name(const struct rule_name *names, size_t count, sv id);

/* ---- bound_overrides.c; false: no memory ---- */

/* Finds the rule of each override and marks it as overridden, before limits are bound. */
bool find_overridden(struct bound *bound, struct bound_rule **ret);
bool make_override_table(struct override_table *table, size_t count);
/* Returns how many limits overrides have, each that denies counted for one. */
size_t count_override_limits(const struct rules *rules);
bool bind_overrides(struct binder *b, struct bound_rule **of);

#endif
