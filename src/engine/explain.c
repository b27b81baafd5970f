#include "engine/explain.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/counter.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/parts.h"
#include "engine/remote.h"

static struct explained_limit explained(const struct counter *c, struct limit_state state)
{
    const struct limit *limit = counter_limit(c);
    int64_t now_us = c->ask.now_us;
    return (struct explained_limit){
        .spec = c->limit->terms->spec,
        .limit = *limit,
        .window = c->window,
        .cost = c->ask.cost,
        .report = limit_report(limit, &c->window, state, now_us, limit_needs(limit, c->ask.cost)),
        .lasts_us = limit_lasts_us(limit, &c->window, state, now_us),
    };
}

/* The state of an explanation, shared by all rules. */
struct explaining {
    const struct bound *bound;
    struct facts *facts;
    const struct decision *decision; /* NULL: all rules are local */
    bool known;                      /* the store has answered */
    int64_t now_us;
    const struct weir_request *request;
    const struct explain_sink *sink;
    void *data;
    bool counted[WEIR_COSTS_MAX];        /* for each of the request's costs: some limit that applies counts its unit */
    const struct bound_rule **replacing; /* rules that apply, to it or to those decided with it, and replace others */
    size_t replacing_count;
};

/* In cells of this host. */
static void explain_cells(const struct explaining *x, const struct bound_rule *rule, const struct bound_set *set,
                          uint64_t subject, struct explained_limit *ret)
{
    struct counter counters[RULE_LIMITS_MAX];
    const struct counter *end = decision_plan_set(counters, x->bound, rule, set, subject, x->request, x->now_us);
    for (struct counter *c = counters; c < end; c++, ret++) {
        struct cells_look look;
        cells_look(x->bound->cells, &c->ask, &look);
        *ret = explained(c, look.state);
        ret->fits = look.fits;
        ret->holds_known = true;
        ret->on_hold = cells_holds(x->bound->cells, c->ask.key, c->ask.limit, x->now_us).amount;
    }
}

static void explain_unknown(const struct explaining *x, const struct bound_rule *rule, const struct bound_set *set,
                            uint64_t subject, struct explained_limit *ret)
{
    struct counter counters[RULE_LIMITS_MAX];
    const struct counter *end = decision_plan_set(counters, x->bound, rule, set, subject, x->request, x->now_us);
    for (struct counter *c = counters; c < end; c++, ret++) {
        *ret = explained(c, (struct limit_state){ 0 });
        ret->fits = ret->unknown = true;
    }
}

/* As the store, or the slice, has it. */
static void explain_remote(const struct explaining *x, const struct bound_rule *rule, const struct bound_set *set,
                           uint64_t subject, struct explained_limit *limits)
{
    if (!x->decision)
        return;
    const struct decision *d = x->decision;
    size_t i = 0;
    while (i < d->count && (d->counters[i].limit != set->limits || d->counters[i].subject != subject))
        i++;
    /* Nobody asks the store about a request that is refused for a repeated header: it has no counters. */
    if (i == d->count)
        explain_unknown(x, rule, set, subject, limits);
    for (size_t k = 0; k < set->limit_count && i < d->count; k++, i++) {
        const struct counter *c = &d->counters[i];
        limits[k] = explained(c, *c->state);
        limits[k].fits = c->outcome != COUNTER_REFUSES;
        limits[k].unknown = !x->known;
        if (!x->known)
            limits[k].lasts_us = LIMIT_NEVER_US;
        limits[k].held = remote_of(d, c)->tokens;
        if (set->counter == COUNTER_SLICE && limit_needs(counter_limit(c), c->ask.cost) > SLICE_TOKENS_MAX) {
            limits[k].fits = false;
            limits[k].report.retry_after_us = LIMIT_NEVER_US;
        }
    }
}

static void explain_units(const struct explaining *x)
{
    for (size_t k = 0; x->sink->uncounted && k < x->request->cost_count && k < WEIR_COSTS_MAX; k++)
        if (!x->counted[k])
            x->sink->uncounted(x->request->costs[k].unit, x->data);
}

/* For the reading of the path that is in use. */
static void explain_limits(const struct explaining *x, const struct bound_rule *rule, struct explained_rule *ret)
{
    uint64_t subject = subject_hash(x->bound, rule, x->facts);
    const struct bound_set *set = bound_limits(x->bound, rule, x->facts, subject, x->now_us);
    const struct override_slot *override = bound_override(x->bound, rule, subject, x->now_us);
    ret->limit_count = set->limit_count;
    ret->override = override ? &ruleset_rules(x->bound->ruleset)->overrides[override->index] : NULL;
    ret->plan = !ret->override && set != &rule->own ? &rule->rule->kind->rest->plans[set - rule->rest->plans] : NULL;
    ret->plan_value =
        rule->rule->kind->rest->plan_count > 0 ? facts_attribute(x->facts, &rule->rule->kind->rest->plan) : (sv){ 0 };
    ret->counting = set->counter;
    if (rule->penalises && set->limit_count > 0)
        ret->penalty = penalty_look(x->bound->cells, rule, subject, x->now_us);
    if (set->counter != COUNTER_CELL) {
        explain_remote(x, rule, set, subject, ret->limits);
        return;
    }
    explain_cells(x, rule, set, subject, ret->limits);
}

static bool have_room(const struct explained_rule *rule)
{
    for (size_t i = 0; i < rule->limit_count; i++)
        if (!rule->limits[i].fits)
            return false;
    return rule->penalty.rest_us == 0;
}

/* Looks at every reading of the path, although only one of them is shown. The rule applies. */
static void note_units(struct explaining *x, size_t index)
{
    const struct bound_rule *rule = &x->bound->rules[index];
    size_t shown = x->facts->reading, end = rule->by_path ? facts_readings(x->facts) : shown + 1;
    for (size_t r = shown; x->request->cost_count > 0 && r < end; r++) {
        facts_select_reading(x->facts, r);
        if (!ruleset_reads(x->bound->ruleset, index, x->facts))
            continue;
        uint64_t subject = subject_hash(x->bound, rule, x->facts);
        const struct bound_set *set = bound_limits(x->bound, rule, x->facts, subject, x->now_us);
        for (size_t i = 0; i < set->limit_count; i++)
            for (size_t k = 0; k < x->request->cost_count && k < WEIR_COSTS_MAX; k++)
                x->counted[k] = x->counted[k] || sv_eq(x->request->costs[k].unit, set->limits[i].terms->spec->cost_unit);
    }
    facts_select_reading(x->facts, shown);
}

/* A rule that matches may be left out all the same. */
static void leave_out(const struct explaining *x, size_t index, struct explained_rule *ret)
{
    const struct bound_rule *rules = x->bound->rules;
    if (rules[index].given && x->request->given_window_ms == 0)
        ret->reason = MATCH_NO_LIMIT;
    for (size_t i = 0; ret->reason == MATCH_YES && i < x->replacing_count; i++)
        if (bound_replaces(x->replacing[i], (uint32_t)index)) {
            ret->reason = MATCH_REPLACED;
            ret->detail = x->replacing[i]->rule->id;
        }
}

static void explain_rule(struct explaining *x, size_t index, struct explained_rule *ret)
{
    const struct bound *bound = x->bound;
    const struct bound_rule *rule = &bound->rules[index];
    ret->rule = rule->rule;
    ret->counting = rule->counter;
    ret->detail = (sv){ 0 };
    ret->reason = ruleset_explain(bound->ruleset, index, x->facts, x->now_us, &ret->detail);
    ret->reading = (sv){ 0 };
    ret->limit_count = 0;
    ret->plan = NULL;
    ret->override = NULL;
    ret->penalty = (struct penalty_view){ 0 };
    if (ret->reason == MATCH_YES)
        leave_out(x, index, ret);
    if (ret->reason != MATCH_YES)
        return;
    note_units(x, index);
    explain_limits(x, rule, ret);
    /* If there are several subjects, show one that has no room, else the first. */
    size_t shown = x->facts->reading, count = rule->by_path ? facts_readings(x->facts) : 0;
    for (size_t i = shown + 1; have_room(ret) && i < count; i++) {
        facts_select_reading(x->facts, i);
        if (!ruleset_reads(bound->ruleset, index, x->facts))
            continue;
        explain_limits(x, rule, ret);
        shown = have_room(ret) ? shown : i;
    }
    facts_select_reading(x->facts, shown);
    if (have_room(ret) && count > 1)
        explain_limits(x, rule, ret);
    for (size_t i = 0; i < rule->rule->kind->by_count; i++)
        ret->by[i] = facts_attribute(x->facts, &rule->rule->kind->by[i]);
    if (shown > 0)
        ret->reading = facts_path(x->facts);
}

static void explain_rules(const struct decision *decision, bool known, void *data)
{
    struct explaining *x = data;
    struct explained_rule rule;
    size_t count = ruleset_rules(x->bound->ruleset)->rule_count;
    x->decision = decision;
    x->known = known;
    for (size_t i = 0; i < count; i++) {
        explain_rule(x, i, &rule);
        x->sink->rule(&rule, x->data);
    }
    explain_units(x);
}

/* Finds the rules that replace others, for all requests that are decided together. */
static void find_replacing(struct explaining *x, const sv *users)
{
    size_t count = ruleset_rules(x->bound->ruleset)->rule_count, part = 0;
    sv detail;
    for (const struct weir_request *request = x->request; request; request = request->with, part++) {
        struct facts facts;
        facts_init(&facts, x->bound->ruleset, request, users[part]);
        for (size_t i = 0; i < count; i++) {
            const struct bound_rule *rule = &x->bound->rules[i];
            if (rule->rest->replace_count > 0 && !(rule->given && request->given_window_ms == 0) &&
                ruleset_explain(x->bound->ruleset, i, &facts, x->now_us, &detail) == MATCH_YES)
                x->replacing[x->replacing_count++] = rule;
        }
    }
}

static int explain_in(struct weir *weir, const struct bound *bound, const struct weir_request *request, const sv *users,
                      int64_t now_us, const struct explain_sink *sink, void *data)
{
    struct facts facts;
    struct explaining x = {
        .bound = bound, .facts = &facts, .now_us = now_us, .request = request, .sink = sink, .data = data
    };
    size_t rules = ruleset_rules(bound->ruleset)->rule_count;
    CLEANUP_FREE const struct bound_rule **replacing =
        bound->replaces ? cleanup_calloc(rules * request_parts(request), sizeof(struct bound_rule *)) : NULL;
    x.replacing = replacing;
    if (bound->replaces && !replacing)
        return WEIR_E_NO_MEMORY;
    if (bound->replaces)
        find_replacing(&x, users);
    facts_init(&facts, bound->ruleset, request, *users);
    sink->request(&facts, data);
    struct weir_request alone = *request;
    alone.with = NULL;
    if (bound->remote)
        return weir_look_remote(weir, bound, &alone, users, now_us, explain_rules, &x);
    explain_rules(NULL, true, &x);
    return 0;
}

int weir_explain(struct weir *weir, const struct weir_request *request, int64_t now_us, const struct explain_sink *sink,
                 void *data)
{
    struct users users;
    struct weir_request peek = *request;
    if (!clock_valid(now_us) || !request_valid(request))
        return WEIR_E_INVALID;
    const struct bound *bound = weir_acquire_all(weir, request, &users);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    peek.peek = true;
    peek.user = users.of[0];
    int r = explain_in(weir, bound, &peek, users.of, now_us, sink, data);
    hazard_release();
    struct weir_verdict verdict;
    struct weir_shadows shadows;
    if (r == 0) {
        peek.shadows = &shadows;
        r = weir_check(weir, &peek, now_us, &verdict);
        if (r == 0)
            sink->verdict(&peek, &verdict, data);
    }
    users_done(&users);
    return r;
}

/* ---- a subject that is named ---- */

struct subject_looking {
    struct explaining explaining; /* first */
    const struct named *named;
    const struct bound_set *set;
    struct explained_rule *rule;
};

static void explain_looked(const struct decision *decision, bool known, void *data)
{
    struct subject_looking *looking = data;
    looking->explaining.decision = decision;
    looking->explaining.known = known;
    explain_remote(&looking->explaining, looking->named->rule, looking->set, looking->named->hash, looking->rule->limits);
}

/* A cost of 1 in each unit that the limits count. */
static void ask_for_one(const struct bound_set *set, struct weir_request *request, struct weir_cost costs[RULE_LIMITS_MAX])
{
    *request = (struct weir_request){ .cost = 1, .costs = costs, .peek = true };
    for (size_t i = 0; i < set->limit_count; i++) {
        sv unit = set->limits[i].terms->spec->cost_unit;
        size_t k = 0;
        while (k < request->cost_count && !sv_eq(costs[k].unit, unit))
            k++;
        if (unit.len > 0 && k == request->cost_count)
            costs[request->cost_count++] = (struct weir_cost){ unit, 1 };
    }
}

static const struct rule_plan *find_plan(const struct rule *rule, sv name)
{
    for (size_t i = 0; name.len > 0 && i < rule->kind->rest->plan_count; i++)
        if (rule->kind->ignore_case ? sv_eq_nocase(name, rule->kind->rest->plans[i].name)
                                    : sv_eq(name, rule->kind->rest->plans[i].name))
            return &rule->kind->rest->plans[i];
    return NULL;
}

/* Returns the limits of the subject's override, of the plan, or the rule's own; NULL if the rule has no such plan. */
static const struct bound_set *choose_set(const struct bound *bound, const struct named *named,
                                          const struct subject_question *question, int64_t now_us,
                                          struct explained_rule *ret)
{
    const struct rule *rule = named->rule->rule;
    const struct override_slot *override = bound_override(bound, named->rule, named->hash, now_us);
    const struct rule_plan *plan =
        find_plan(rule, question->plan.len > 0 || question->own ? question->plan : question->last_plan);
    if (question->plan.len > 0 && !plan)
        return NULL;
    if (override) {
        ret->override = &ruleset_rules(bound->ruleset)->overrides[override->index];
        return &bound->overrides.effects[override->effect].set;
    }
    ret->plan = plan;
    return plan ? &named->rule->rest->plans[plan - rule->kind->rest->plans] : &named->rule->own;
}

static int explain_named(struct weir *weir, const struct named *named, const struct subject_question *question,
                         int64_t now_us, struct explained_rule *ret, struct weir_error *error)
{
    const struct bound *bound = named->bound;
    struct weir_request request;
    struct weir_cost costs[RULE_LIMITS_MAX];
    struct subject_looking looking = { .explaining = { .bound = bound, .now_us = now_us, .request = &request },
                                       .named = named,
                                       .set = choose_set(bound, named, question, now_us, ret),
                                       .rule = ret };
    int r = 0;
    if (!looking.set)
        return err_set(error, WEIR_E_INVALID, "rule %.*s has no plan `%.*s`", SV_FMT(named->rule->rule->id),
                       SV_SHOWN(question->plan, 100));
    ask_for_one(looking.set, &request, costs);
    ret->rule = named->rule->rule;
    ret->reason = MATCH_YES;
    ret->counting = looking.set->counter;
    ret->limit_count = looking.set->limit_count;
    memcpy(ret->by, named->values, sizeof ret->by);
    if (named->rule->penalises && ret->limit_count > 0)
        ret->penalty = penalty_look(bound->cells, named->rule, named->hash, now_us);
    if (named->rule->given && looking.set == &named->rule->own)
        ret->limit_count = 0; /* each request brings its own */
    if (ret->counting == COUNTER_CELL && ret->limit_count > 0)
        explain_cells(&looking.explaining, named->rule, looking.set, named->hash, ret->limits);
    else if (ret->limit_count > 0)
        r = weir_look_decision(decision_new_for(weir, bound, named, looking.set, &request, now_us), explain_looked,
                               &looking);
    return r < 0 ? err_set(error, (enum weir_code)r, "out of memory") : 0;
}

int weir_explain_subject(struct weir *weir, const struct subject_question *question, int64_t now_us,
                         void (*show)(const struct explained_rule *rule, void *data), void *data, struct weir_error *error)
{
    if (!clock_valid(now_us))
        return err_set(error, WEIR_E_INVALID, "the clock is out of its range");
    struct named named;
    struct explained_rule rule = { 0 };
    int r = named_begin(weir, &question->name, &named, error);
    if (r < 0)
        return r;
    r = explain_named(weir, &named, question, now_us, &rule, error);
    if (r == 0)
        show(&rule, data);
    named_end(&named);
    return r;
}
