/* Rulesets that follow others, and share their indexes, so that a change costs what the change is.
 *
 * Most changes of rules are changes of their limits: the rules match the same requests as before, so whatever found them
 * goes on finding them. Where rules come, go or match something else, the indexes stay as they are, too: `numbers` says
 * which number each of their rules has now, or that it has gone, and the rules that they lack are a small ruleset of their
 * own (`added`), made anew for each change. A request is matched in both; a rule is in one of them, so the two results are
 * only merged.
 *
 * Both cost something in each decision, so it ends: once more than a 64th of the rules is missing or has gone, all indexes
 * are made anew. So small sets never have two. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "match/ruleset.h"

enum { DIFFERING_PART = 64 };

/* How the new rules are found. */
struct plan {
    uint32_t *numbers, *places, *added; /* as in struct ruleset; the numbers of the rules that are added */
    size_t added_count, gone_count;
};

static void plan_done(struct plan *plan)
{
    free(plan->numbers);
    free(plan->places);
    free(plan->added);
}

/* False: no memory. */
static bool plan_make(struct plan *plan, const struct ruleset *before, const uint32_t *was, size_t count)
{
    size_t indexed = before->compiled_count;
    plan->numbers = cleanup_calloc(indexed + 1, sizeof *plan->numbers);
    plan->places = cleanup_calloc(count + 1, sizeof *plan->places);
    plan->added = cleanup_calloc(count + 1, sizeof *plan->added);
    if (!plan->numbers || !plan->places || !plan->added)
        return false;
    for (size_t i = 0; i < indexed; i++)
        plan->numbers[i] = TABLE_NONE;
    plan->gone_count = indexed;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = was[i] != UINT32_MAX && before->numbers ? before->places[was[i]] : was[i];
        if (place != UINT32_MAX && !(place & ADDED)) {
            plan->places[i] = place;
            plan->numbers[place] = i;
            plan->gone_count--;
        } else {
            plan->places[i] = ADDED | (uint32_t)plan->added_count;
            plan->added[plan->added_count++] = i;
        }
    }
    return true;
}

/* The indexes find all rules, and by the numbers that they have now, since these rise. */
static bool is_indexed(const struct plan *plan)
{
    return plan->added_count == 0 && plan->gone_count == 0;
}

/* Makes the ruleset of the rules that the indexes lack. */
static int add_rules(struct ruleset *ruleset, struct plan *plan, struct weir_error *error)
{
    struct rules *rules = rules_some(ruleset->rules, plan->added, plan->added_count);
    if (!rules)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for a set of rules");
    int r = ruleset_new(&ruleset->added, rules, error);
    if (r == 0) {
        ruleset->added->numbers = plan->added;
        plan->added = NULL;
    }
    return r;
}

/* Some rules are not those of the indexes. */
static int differ(struct ruleset *ruleset, struct plan *plan, struct weir_error *error)
{
    ruleset->looks.headers = NULL;
    if (!compile_looks(ruleset))
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for a set of rules");
    ruleset->numbers = plan->numbers;
    ruleset->places = plan->places;
    plan->numbers = plan->places = NULL;
    return plan->added_count > 0 ? add_rules(ruleset, plan, error) : 0;
}

/* Takes over the rules, and what it needs of the plan. */
static int follow(struct ruleset **ret, struct ruleset *before, struct rules *rules, struct plan *plan,
                  struct weir_error *error)
{
    struct ruleset *ruleset = malloc(sizeof *ruleset);
    if (!ruleset) {
        rules_free(rules);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for a set of rules");
    }
    *ruleset = *before;
    ruleset->base = before->base ? before->base : before;
    __atomic_add_fetch(&ruleset->base->sharers, 1, __ATOMIC_RELAXED);
    ruleset->rules = rules;
    ruleset->numbers = ruleset->places = NULL;
    ruleset->added = NULL;
    ruleset->looks = ruleset->base->looks;
    int r = is_indexed(plan) ? 0 : differ(ruleset, plan, error);
    if (r < 0) {
        ruleset_free(ruleset);
        return r;
    }
    ruleset_load_beside(ruleset, ruleset->compiled, sizeof *ruleset->compiled);
    *ret = ruleset;
    return 0;
}

/* A set that was read anew is the same at best by its texts. It does not share: that would keep the texts twice. */
static bool may_share(const struct ruleset *before, const struct rules *rules)
{
    return before && rules->base && settings_match_same(&before->rules->settings, &rules->settings);
}

int ruleset_follow_most(struct ruleset **ret, struct ruleset *before, struct rules *rules, size_t most, uint32_t **ret_was,
                        struct weir_error *error)
{
    size_t count = rules->rule_count;
    CLEANUP(plan_done) struct plan plan = { 0 };
    CLEANUP_FREE uint32_t *was = may_share(before, rules) ? cleanup_calloc(count + 1, sizeof *was) : NULL;
    *ret_was = NULL;
    int r;
    if (was && rules_align(before->rules, rules, most, was) && plan_make(&plan, before, was, count)) {
        bool few = plan.added_count + plan.gone_count <= most;
        r = few ? follow(ret, before, rules, &plan, error) : ruleset_new(ret, rules, error);
        if (r == 0)
            *ret_was = STEAL(was);
        return r;
    }
    return ruleset_new(ret, rules, error);
}

int ruleset_follow(struct ruleset **ret, struct ruleset *before, struct rules *rules, uint32_t **ret_was,
                   struct weir_error *error)
{
    return ruleset_follow_most(ret, before, rules, rules->rule_count / DIFFERING_PART, ret_was, error);
}

bool ruleset_is_like(const struct ruleset *a, const struct ruleset *b)
{
    return (a->base ? a->base : a) == (b->base ? b->base : b);
}
