/* Rulesets that share indexes. Most changes of rules are changes of their limits: the rules match the same requests as
 * before, so whatever found them goes on finding them, and only the list of the rules is new. */
#include <stdlib.h>

#include "match/ruleset.h"

/* A set that was read anew matches the same at best by its texts. It does not share: that would keep the texts twice. */
static bool matches_same(const struct rules *a, const struct rules *b)
{
    bool same = b->base && a->rule_count == b->rule_count && settings_match_same(&a->settings, &b->settings);
    for (size_t i = 0; same && i < a->rule_count; i++)
        same = rule_is_shared(a->rules[i], b->rules[i]) || rule_matches_same(a->rules[i], b->rules[i]);
    return same;
}

/* NULL: no memory. */
static struct ruleset *share(struct ruleset *before, struct rules *rules)
{
    size_t count = rules->rule_count;
    struct ruleset *ruleset = malloc(sizeof *ruleset);
    struct compiled_rule *compiled = aligned_alloc(sizeof *compiled, (count + 1) * sizeof *compiled);
    if (!ruleset || !compiled) {
        free(ruleset);
        free(compiled);
        return NULL;
    }
    *ruleset = *before;
    ruleset->base = before->base ? before->base : before;
    ruleset->rules = rules;
    ruleset->compiled = compiled;
    memcpy(compiled, before->compiled, count * sizeof *compiled);
    for (size_t i = 0; i < count; i++)
        compiled[i].rule = rules->rules[i];
    ruleset_load_beside(ruleset, compiled, sizeof *compiled);
    __atomic_add_fetch(&ruleset->base->sharers, 1, __ATOMIC_RELAXED);
    return ruleset;
}

int ruleset_follow(struct ruleset **ret, struct ruleset *before, struct rules *rules, struct weir_error *error)
{
    struct ruleset *shared = before && matches_same(before->rules, rules) ? share(before, rules) : NULL;
    if (!shared)
        return ruleset_new(ret, rules, error);
    *ret = shared;
    return 0;
}

bool ruleset_is_like(const struct ruleset *a, const struct ruleset *b)
{
    return (a->base ? a->base : a) == (b->base ? b->base : b);
}
