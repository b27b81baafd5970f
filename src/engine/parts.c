/* Several requests that are decided together (weir_request.with) are the parts of one decision: their counters are one
 * group, which passes or fails as one, in one order, with one call to the store and one receipt.
 *
 * Parts that touch the same counter must not pass twice on room for one. Their counters are *joined*: the first of them,
 * the leader, counts the sum of their costs, and the others (COUNTER_JOINED) do nothing. So the store is asked once about a
 * cell, a slice pays once, a hold is one, and a receipt names the count once. Joined are counters of the same limit,
 * subject and way of charging. A subject that has different plans in two parts has one count under two limits: those stay
 * two counters, which are taken one after the other.
 *
 * What a part says for itself (`own`, `usage`, `each_rule`) is told from its own counters, as if they were a decision of
 * their own (struct view). Of a joined counter it is judged, in the order of the requests, after those before it: its cost
 * is `so_far`. So the first part that finds no room refuses, and what a part reports as left is what it leaves behind. */
#include "engine/parts.h"

#include <stdlib.h>

#include "engine/counter.h"
#include "engine/penalty.h"
#include "engine/remote.h"
#include "engine/verdict.h"

/* ---- requests ---- */

size_t request_parts(const struct weir_request *request)
{
    size_t count = 0;
    for (; request && count <= WEIR_TOGETHER_MAX; request = request->with)
        count++;
    return count;
}

void parts_clear(const struct weir_request *request)
{
    for (size_t i = 0; request && i < WEIR_TOGETHER_MAX; request = request->with, i++)
        request_clear(request);
}

void parts_unjudged(const struct weir_request *request, struct weir_verdict *verdict)
{
    verdict_unjudged(verdict, request);
    for (size_t i = 0; request && i < WEIR_TOGETHER_MAX; request = request->with, i++) {
        request_clear(request);
        if (request->own)
            verdict_unjudged(request->own, request);
    }
}

/* Nobody has asked the rules of the others. */
void parts_repeated(const struct decision *d)
{
    size_t part = 0;
    for (const struct weir_request *request = d->request; request; request = request->with, part++) {
        if (!request->own)
            continue;
        verdict_blank(request->own);
        request->own->allowed = true;
        if (d->parts == 1 || part == d->repeated_part)
            verdict_repeated(request->own, d->repeated);
    }
}

/* ---- planning ---- */

/* A request that gives back takes no slot. A slot is taken only if one is free. A cost of 0 is looked up and not charged;
 * set_looks() does that for several requests. */
void parts_set_charging(struct decision *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct counter *c = &d->counters[i];
        bool slot = c->limit->terms->limit.algorithm == LIMIT_CONCURRENT;
        if (d->parts == 1)
            c->charging = d->request->charging;
        if (c->charging == WEIR_GIVE_BACK && slot)
            c->ask.cost = 0;
        if (c->charging == WEIR_CHARGE_ALWAYS && (slot || (d->parts == 1 && c->ask.cost == 0)))
            c->charging = WEIR_CHARGE_IF_ROOM;
    }
}

static int compare_counters(const void *a, const void *b)
{
    const struct counter *x = *(struct counter *const *)a, *y = *(struct counter *const *)b;
    int order = (x->ask.key > y->ask.key) - (x->ask.key < y->ask.key);
    return order ? order : (x > y) - (x < y);
}

static uint64_t add_costs(const struct bound_terms *terms, uint64_t a, uint64_t b)
{
    return limit_cost_within(terms, a + b);
}

static bool same_count(const struct counter *a, const struct counter *b)
{
    return a->limit == b->limit && a->subject == b->subject && a->charging == b->charging && a->part != b->part &&
           a->given == b->given && (!a->given || a->numbers.max == b->numbers.max);
}

/* What costs nothing is looked at. Beside charges of the same count, whatever there is, it belongs to these: otherwise it
 * would see what later requests charge. */
static void set_looks(struct counter **run, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        if (run[i]->charging != WEIR_CHARGE_ALWAYS || run[i]->ask.cost > 0)
            continue;
        while (k < count && (run[k]->ask.cost == 0 || !same_count(run[k], run[i])))
            k++;
        if (k == count)
            run[i]->charging = WEIR_CHARGE_IF_ROOM;
    }
}

/* The counters of one key, in the order of the requests. */
static void join_run(struct decision *d, struct counter **run, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        size_t k = 0;
        while (k < i && (run[k]->kind == COUNTER_JOINED || !same_count(run[k], run[i])))
            k++;
        if (k == i)
            continue;
        struct counter *leader = run[k], *c = run[i];
        leader->ask.cost = add_costs(leader->limit->terms, leader->ask.cost, c->ask.cost);
        c->so_far = leader->ask.cost;
        c->leader = (uint32_t)(leader - d->counters);
        c->kind = COUNTER_JOINED;
        c->outcome = COUNTER_FITS;
    }
}

void parts_join(struct decision *d)
{
    for (size_t i = 0; i < d->count; i++) {
        d->order[i] = &d->counters[i];
        d->counters[i].leader = (uint32_t)i;
        d->counters[i].so_far = d->counters[i].ask.cost;
    }
    if (d->count > 1)
        qsort(d->order, d->count, sizeof *d->order, compare_counters);
    for (size_t i = 0, end; i < d->count; i = end) {
        for (end = i + 1; end < d->count && d->order[end]->ask.key == d->order[i]->ask.key; end++)
            ;
        if (d->insists)
            set_looks(d->order + i, end - i);
        if (end - i > 1)
            join_run(d, d->order + i, end - i);
    }
}

/* ---- what a part sees ---- */

/* One part, as if its counters were a decision of their own. */
struct view {
    struct decision d;
    struct weir_request request;
    struct weir_verdict unasked;
};

_Static_assert(WEIR_TOGETHER_MAX <= 64, "decision.matched has a bit for each part");

static bool part_matched(const struct decision *d, size_t part)
{
    return (d->matched >> part & 1) != 0;
}

static struct counter *leader_of(const struct decision *d, const struct counter *c)
{
    return &d->counters[c->leader];
}

/* Returns the outcome for the part's own costs, after the costs of the parts before it. The last part gets the leader's
 * outcome, which is that of the sum. */
static enum counter_outcome own_outcome(const struct decision *d, const struct counter *c)
{
    const struct counter *leader = leader_of(d, c);
    if (leader->outcome != COUNTER_REFUSES || c->so_far == leader->ask.cost || leader->ask.limit->overdraft)
        return leader->outcome;
    if (leader->kind == COUNTER_STANDIN && remote_of(d, leader)->standin == ON_FAILURE_DENY)
        return COUNTER_REFUSES;
    struct limit_report report = counter_report(leader, c->so_far);
    if (leader->kind != COUNTER_COUNTED)
        return report.retry_after_us == 0 ? COUNTER_FITS : COUNTER_REFUSES;
    /* All of it was charged. */
    bool fits = report.debt <= leader->ask.cost - c->so_far;
    return fits && leader->ask.limit->max > 0 ? COUNTER_FITS : COUNTER_REFUSES;
}

/* A shadow rule that would have refused is not charged. */
static bool was_charged(const struct decision *d, const struct counter *leader)
{
    bool enforced = leader < d->counters + d->enforced;
    if (leader->kind == COUNTER_COUNTED)
        return true;
    if (enforced || leader->kind == COUNTER_STORE)
        return d->allowed && (enforced || leader->outcome == COUNTER_FITS);
    return leader->held;
}

/* As it is, or, if it was charged, as this part left it. */
static struct limit_state own_state(const struct decision *d, const struct counter *c)
{
    const struct counter *leader = leader_of(d, c);
    uint64_t later = leader->ask.cost > c->so_far ? leader->ask.cost - c->so_far : 0;
    if (later == 0 || !d->charges || !was_charged(d, leader) || c->charging == WEIR_GIVE_BACK)
        return *leader->state;
    return limit_give_back(leader->ask.limit, &leader->window, *leader->state, leader->ask.now_us, later);
}

/* A counter that was joined has its numbers from its leader. */
static void follow(const struct decision *d, struct counter *c)
{
    const struct counter *leader = leader_of(d, c);
    if (leader == c)
        return;
    c->ask.limit = leader->ask.limit;
    c->ask.now_us = leader->ask.now_us;
    c->window = leader->window;
    c->penalty = leader->penalty;
    c->state = leader->state;
}

static void enter(const struct decision *d, struct counter *c)
{
    c->view = (struct counter_view){ c->ask.cost, c->state, c->outcome };
    enum counter_outcome outcome = own_outcome(d, c);
    c->own_state = own_state(d, c);
    c->state = &c->own_state;
    c->outcome = outcome;
}

/* After all counters of the part were entered: own_outcome() reads the costs of leaders. */
static void enter_all(const struct decision *d, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++)
        enter(d, &d->counters[i]);
    for (size_t i = from; i < end; i++)
        d->counters[i].ask.cost = d->counters[i].so_far;
}

static void leave_all(const struct decision *d, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        struct counter *c = &d->counters[i];
        c->ask.cost = c->view.cost;
        c->state = c->view.state;
        c->outcome = c->view.outcome;
    }
}

/* These fields of the first request apply to all requests. */
static struct weir_request request_of(const struct decision *d, const struct weir_request *part)
{
    struct weir_request request = *part;
    request.peek = d->request->peek;
    request.brief = d->request->brief;
    request.attempt = d->request->attempt;
    request.ttl_ms = d->request->ttl_ms;
    request.keep = d->request->keep;
    return request;
}

/* Counters from `from` to `end` are those of the part, of one mode. */
static void view_init(struct view *v, const struct decision *d, const struct weir_request *part, size_t from, size_t end,
                      bool enforced)
{
    v->d = *d;
    v->request = request_of(d, part);
    v->d.request = &v->request;
    v->d.verdict = part->own ? part->own : &v->unasked;
    v->d.counters = d->counters + from;
    v->d.count = end - from;
    v->d.enforced = enforced ? end - from : 0;
    v->d.penalised = NULL;
    v->d.allowed = true;
    v->d.remote_from = d->remote ? d->remote_from + from : 0;
}

/* Finds the penalty of the part's own subjects that lasts longest. */
static void find_penalty(struct decision *d)
{
    for (size_t i = 0; d->penalties && i < d->enforced; i++) {
        const struct counter *c = &d->counters[i];
        if (c->penalty == PENALTY_NONE || !c->rule->penalises)
            continue;
        int64_t rest_us = penalty_look(d->bound->cells, c->rule, c->subject, d->now_us).rest_us;
        if (!d->penalised || rest_us > d->penalty_us) {
            d->penalised = c;
            d->penalty_us = rest_us;
        }
    }
    d->allowed = d->allowed && !d->penalised;
}

static void fill_own(struct decision *d)
{
    for (size_t i = 0; i < d->enforced; i++)
        d->allowed = d->allowed && d->counters[i].outcome != COUNTER_REFUSES;
    find_penalty(d);
    if (d->allowed)
        verdict_fill(d);
    else
        verdict_refuse(d);
    if (d->request->usage)
        usage_fill(d);
}

/* After a refusal, counters with room are in the state from before the request, because their charges were given back. */
static void look_again(struct decision *d)
{
    for (size_t i = 0; i < d->enforced; i++) {
        struct counter *c = &d->counters[i];
        bool here = c->kind == COUNTER_CELL || c->kind == COUNTER_SLICE || c->kind == COUNTER_STANDIN;
        if (!here || c->outcome != COUNTER_FITS)
            continue;
        counter_look(d, c);
        c->outcome = COUNTER_FITS;
    }
}

/* Returns the end of the part's counters. */
static size_t part_end(const struct decision *d, size_t from, size_t end, size_t part)
{
    while (from < end && d->counters[from].part == part)
        from++;
    return from;
}

void parts_report(struct decision *d)
{
    size_t part = 0, from = 0, end;
    struct view view;
    if (!d->allowed)
        look_again(d);
    for (size_t i = 0; i < d->enforced; i++)
        follow(d, &d->counters[i]);
    for (const struct weir_request *request = d->request; request; request = request->with, part++, from = end) {
        end = part_end(d, from, d->enforced, part);
        if (!request->own && !request->usage)
            continue;
        enter_all(d, from, end);
        view_init(&view, d, request, from, end, true);
        fill_own(&view.d);
        leave_all(d, from, end);
        if (request->own && from == end)
            request->own->matched = part_matched(d, part);
    }
}

/* ---- shadow rules ---- */

static bool rule_refuses(const struct decision *d, size_t from, size_t count)
{
    for (size_t i = from; i < from + count; i++)
        if (own_outcome(d, &d->counters[i]) == COUNTER_REFUSES)
            return true;
    return false;
}

void parts_report_shadows(struct decision *d)
{
    size_t part = 0, i = d->enforced, count;
    for (const struct weir_request *request = d->request; request; request = request->with, part++)
        for (; i < d->count && d->counters[i].part == part; i += count) {
            count = decision_rule_counters(d, i);
            for (size_t k = i; k < i + count; k++)
                follow(d, &d->counters[k]);
            if (!rule_refuses(d, i, count))
                continue;
            verdict_add_shadow(d->verdict, request->shadows, d->counters[i].rule);
            if (request->own)
                request->own->shadow_count++;
        }
}

void parts_own_shadows(struct decision *d)
{
    size_t part = 0, from = d->enforced, end;
    for (const struct weir_request *request = d->request; request; request = request->with, part++, from = end) {
        end = part_end(d, from, d->count, part);
        if (!request->own_shadow)
            continue;
        enter_all(d, from, end);
        verdict_of_shadows(d, request->own_shadow, from, end);
        leave_all(d, from, end);
    }
}

/* ---- each rule ---- */

static void tell_rules(struct decision *d, const struct weir_request *request, size_t from, size_t end, bool enforced)
{
    struct view view;
    if (from == end)
        return;
    enter_all(d, from, end);
    view_init(&view, d, request, from, end, enforced);
    verdict_each_rule(&view.d);
    leave_all(d, from, end);
}

void parts_each_rule(struct decision *d)
{
    size_t part = 0, from = 0, end, shadows = d->enforced, shadows_end;
    for (const struct weir_request *request = d->request; request; request = request->with, part++) {
        end = part_end(d, from, d->enforced, part);
        shadows_end = part_end(d, shadows, d->count, part);
        if (request->each_rule) {
            tell_rules(d, request, from, end, true);
            tell_rules(d, request, shadows, shadows_end, false);
        }
        from = end;
        shadows = shadows_end;
    }
}
