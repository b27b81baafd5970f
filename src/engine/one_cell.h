/* The decision that most requests need, in short: one rule applies, with one limit, in a cell of this host, and the request
 * asks for nothing but the verdict, or for little besides. Then there is nothing to look at before the charge, to wait for
 * or to give back. It is a decision like any other: decision_run() runs it, too. */
#ifndef ENGINE_ONE_CELL_H
#define ENGINE_ONE_CELL_H

#include "engine/counter.h"
#include "engine/verdict.h"

/* Returns whether the decision on this request is of one cell if one rule applies that is (bound_rule.one_cell). */
static inline bool request_may_be_one_cell(const struct weir_request *r)
{
    return !((uintptr_t)r->own | (uintptr_t)r->own_shadow | r->ttl_ms | r->peek | r->charging) && r->cost > 0 &&
           (!r->receipt || r->if_held);
}

/* Such a rule holds nothing and is not a shadow rule, so a receipt for holds and the shadows stay empty. */
static inline void decision_tell_cell(const struct decision *d)
{
    const struct weir_request *r = d->request;
    if (__builtin_expect(!((uintptr_t)r->receipt | (uintptr_t)r->shadows | (uintptr_t)r->usage | (uintptr_t)r->each_rule),
                         1))
        return;
    request_clear(r);
    if (r->usage && !(d->allowed && r->brief))
        usage_fill(d);
    if (r->each_rule)
        verdict_rule_of_cell(d);
}

/* Makes such a decision, with the counter in d->counters. `cost` is in place of that of the request. */
LIMIT_HOT void decision_plan_cell(struct decision *d, const struct bound *bound, const struct weir_request *request,
                                  const struct bound_rule *rule, uint64_t subject, uint64_t cost, int64_t now_us)
{
    const struct bound_limit *limit = rule->own.limits;
    counter_init(d->counters, rule, limit, COUNTER_CELL, subject, now_us, limit_cost_within(limit->terms, cost));
    d->state = DECISION_TAKE;
    d->charges = d->one_cell = true;
    d->holds = d->penalties = d->insists = false;
    d->bound = bound;
    d->request = request;
    d->parts = d->enforced = d->count = 1;
    d->matched = 1;
    d->now_us = now_us;
    d->repeated.len = 0;
    d->remote = NULL;
}

/* Runs it from DECISION_TAKE; or from DECISION_REPORT, if a batch has taken the cell. */
LIMIT_HOT void decision_run_cell(struct decision *d)
{
    struct counter *c = d->counters;
    if (d->state == DECISION_TAKE)
        d->allowed = cell_taken(c, cells_take(d->bound->cells, &c->ask, &c->taken)) == COUNTER_FITS;
    verdict_of_cell(d);
    decision_tell_cell(d);
    d->state = DECISION_DONE;
}

#endif
