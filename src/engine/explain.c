#include "engine/explain.h"

#include "base/err.h"
#include "engine/hazard.h"
#include "engine/weir.h"

static void explain_limit(const struct bound *bound, const struct bound_limit *limit, uint64_t subject, int64_t now_us,
                          uint32_t cost, struct explained_limit *ret)
{
    struct window window = limit_current_window(limit, now_us);
    struct cells_ask ask = { cell_key(limit, subject), &limit->limit, &window, now_us, cost };
    struct cells_look look;
    cells_look(bound->cells, &ask, &look);
    *ret = (struct explained_limit){
        .spec = limit->spec,
        .limit = limit->limit,
        .state = look.state,
        .window = window,
        .report = limit_report(&limit->limit, &window, look.state, now_us, cost),
        .fits = look.fits,
    };
}

static void explain_rule(const struct bound *bound, size_t index, struct facts *facts, int64_t now_us, uint32_t cost,
                         struct explained_rule *ret)
{
    const struct bound_rule *rule = &bound->rules[index];
    ret->rule = rule->rule;
    ret->detail = (sv){ 0 };
    ret->reason = ruleset_explain(bound->ruleset, index, facts, now_us, &ret->detail);
    if (ret->reason != MATCH_YES)
        return;
    for (size_t i = 0; i < rule->rule->by_count; i++)
        ret->by[i] = facts_attribute(facts, &rule->rule->by[i]);
    uint64_t subject = subject_hash(bound, rule, facts);
    for (size_t i = 0; i < rule->rule->limit_count; i++)
        explain_limit(bound, &rule->limits[i], subject, now_us, cost, &ret->limits[i]);
}

static void explain_in(const struct bound *bound, const struct weir_request *request, sv user, int64_t now_us,
                       const struct explain_sink *sink, void *data)
{
    struct facts facts;
    struct explained_rule rule;
    facts_init(&facts, bound->ruleset, request, user);
    sink->request(&facts, data);
    size_t count = ruleset_rules(bound->ruleset)->rule_count;
    for (size_t i = 0; i < count; i++) {
        explain_rule(bound, i, &facts, now_us, request->cost, &rule);
        sink->rule(&rule, data);
    }
}

int weir_explain(struct weir *weir, const struct weir_request *request, int64_t now_us, const struct explain_sink *sink,
                 void *data)
{
    if (!clock_valid(now_us))
        return WEIR_E_INVALID;
    char user_buf[WEIR_USER_MAX];
    struct weir_request peek = *request;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &peek.user);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    explain_in(bound, request, peek.user, now_us, sink, data);
    hazard_release();
    struct weir_verdict verdict;
    peek.peek = true;
    int r = weir_check(weir, &peek, now_us, &verdict);
    if (r == 0)
        sink->verdict(&verdict, data);
    return r;
}
