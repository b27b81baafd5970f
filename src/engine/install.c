/* Putting rules in force, and freeing those that nobody uses any more. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"

void weir_free_retired(struct weir *weir)
{
    struct bound **link = &weir->retired;
    while (*link) {
        struct bound *bound = *link;
        if (hazard_held(bound) || __atomic_load_n(&bound->waiting, __ATOMIC_SEQ_CST) > 0) {
            link = &bound->next_retired;
            continue;
        }
        *link = bound->next_retired;
        bound_free(bound);
    }
}

/* Returns whether there is a store: this process's own, or one whose slices are put into its cells. */
static bool shares(const struct weir *weir)
{
    return weir->store || lender_status_read(weir->cells, clock_steady_us()).counters;
}

/* A process that must not wait for a network can count in slices, and not in the store itself; in slices only where
 * whoever fetches them reaches its cells. NULL: this rule can be counted. */
static const char *why_not(const struct weir *weir, const struct bound_rule *rule)
{
    if (rule->mode == MODE_OFF || rule->counter == COUNTER_CELL)
        return NULL;
    if (rule->counter == COUNTER_SLICE)
        return weir->store || weir->options.cells_file
                   ? NULL
                   : "is leased, and the cells here are in memory, where nobody can put slices; give the cells file of the "
                     "host's `weir serve --counters` (in nginx cells=FILE), or leave `lease` out";
    if (!weir->options.never_wait && weir->visits)
        return "counts in the store of the `weir serve --counters` on these cells, and nothing here says where that is; "
               "give the same --counters ADDRESS, or give the rule `lease: true` or `counters: local`";
    if (!weir->options.never_wait)
        return "counts in the store of the `weir serve --counters` on these cells, and nothing here says where that is; "
               "give its address (options.counters), or give the rule `lease: true` or `counters: local`";
    if (rule->rule->kind->counters == COUNTERS_SHARED)
        return "counts in the store that many hosts share (`counters: shared`), and nothing here may wait for "
               "that; give it `lease: true`, or `counters: local`";
    return "counts in the store that many hosts share (the default on the cells of a `weir serve --counters`), and nothing "
           "here may wait for that; give it `lease: true`, or `counters: local`";
}

static int cannot_count(const struct weir *weir, const struct rule *rule, const char *why, struct weir_error *error)
{
    char line[16] = "";
    sv file =
        rule->kind->rest->file.len > 0 ? rule->kind->rest->file : weir_str(weir->rules_file ? weir->rules_file : "rules");
    if (rule->line > 0)
        snprintf(line, sizeof line, ":%d", rule->line);
    return err_set(error, WEIR_E_RULES, "%.*s%s: rule %.*s %s", SV_FMT(file), line, SV_FMT(rule->id), why);
}

static int check_remote(const struct weir *weir, const struct bound *bound, struct weir_error *error)
{
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = 0; i < count; i++) {
        const char *why = why_not(weir, &bound->rules[i]);
        if (why)
            return cannot_count(weir, bound->rules[i].rule, why, error);
    }
    return 0;
}

int weir_install(struct weir *weir, struct rules *rules, struct weir_error *error)
{
    struct ruleset *ruleset;
    struct bound *fresh;
    if (weir->trusted) {
        rules->settings.trusted_proxies = weir->trusted;
        rules->settings.trusted_proxy_count = weir->trusted_count;
    }
    CLEANUP_FREE uint32_t *was = NULL;
    int r = ruleset_follow(&ruleset, weir->current ? weir->current->ruleset : NULL, rules, &was, error);
    if (r < 0)
        return r;
    struct bound_sharing sharing = { .store = shares(weir), .leases = weir->options.never_wait };
    r = bound_new(&fresh, ruleset, weir->cells, sharing, (struct bound_before){ weir->current, was }, error);
    if (r < 0)
        return r;
    if (!weir->store && (r = check_remote(weir, fresh, error)) < 0) {
        bound_free(fresh);
        return r;
    }
    fresh->version = ++weir->version;
    struct bound *old = __atomic_exchange_n(&weir->current, fresh, __ATOMIC_SEQ_CST);
    if (old) {
        old->next_retired = weir->retired;
        weir->retired = old;
    }
    weir_free_retired(weir);
    if (weir->store && old)
        weir->ops->recall(weir->store);
    return 0;
}
