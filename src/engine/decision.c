/* The steps of a decision: decision.h draws them.
 *
 * Enforced rules are one group: all of their counters have room, or none is charged. Each shadow rule is a group of its
 * own, charged only if the request passed. */
#include "engine/decision.h"

#include "base/check.h"
#include "engine/handle.h"
#include "engine/one_cell.h"
#include "engine/order.h"
#include "engine/parts.h"
#include "engine/penalty.h"
#include "engine/receipt.h"
#include "engine/remote.h"
#include "engine/tell.h"

enum { STALE_TRIES = 3 }; /* then the store's clock is not to be trusted */

/* ---- a group ---- */

/* A part of the counters that passes or fails as one. */
struct group {
    struct counter *counters;
    struct counter **order; /* room for `count` */
    size_t count;
};

/* One refusal counts more than any number of slices that are short. */
static enum counter_outcome look_at_all(struct decision *d, const struct group *g, bool charge)
{
    enum counter_outcome worst = COUNTER_FITS;
    for (size_t i = 0; i < g->count; i++) {
        struct counter *c = &g->counters[i];
        enum counter_outcome outcome = counter_look(d, c);
        if (outcome == COUNTER_FITS)
            continue;
        if (outcome == COUNTER_REFUSES || worst == COUNTER_FITS)
            worst = outcome;
        if (charge && outcome == COUNTER_REFUSES && c->look.cell)
            counter_note_refusal(d, c);
    }
    return worst;
}

static enum counter_outcome take_in_order(struct decision *d, const struct group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        if (__builtin_expect(g->order[i]->ask.cost == 0, 0))
            continue;
        enum counter_outcome outcome = counter_take_looked(d, g->order[i]);
        if (outcome == COUNTER_FITS)
            continue;
        while (i-- > 0)
            counter_give_back(d, g->order[i]);
        return outcome;
    }
    return COUNTER_FITS;
}

/* All or none. One counter is taken without looking first: taking is all or nothing by itself. */
static enum counter_outcome take_group(struct decision *d, const struct group *g, bool charge)
{
    if (g->count == 1 && charge && g->counters->ask.cost > 0)
        return counter_take(d, g->counters);
    enum counter_outcome outcome = look_at_all(d, g, charge);
    if (outcome != COUNTER_FITS || !charge)
        return outcome;
    counters_order(g->counters, g->count, g->order);
    return take_in_order(d, g);
}

static struct group enforced_of(const struct decision *d)
{
    return (struct group){ d->counters, d->order, d->enforced };
}

static void give_back_all(struct decision *d)
{
    for (size_t i = 0; i < d->enforced; i++)
        counter_give_back(d, &d->counters[i]);
}

/* ---- loading ---- */

static inline bool is_cell(const struct counter *c)
{
    return __builtin_expect(c->kind == COUNTER_CELL, 1);
}

/* Starts loading the cells from `i` on that are not where most are, or, with `all`, all places where they could be. */
static void load_away(const struct decision *d, size_t i, size_t end, bool all)
{
    for (; i < end; i++)
        if (is_cell(&d->counters[i]) && !cells_at_home(d->bound->cells, d->counters[i].ask.key))
            cells_prefetch_away(d->bound->cells, d->counters[i].ask.key, all);
}

/* All cells are on their way before the first one is looked at. The plan has begun with the first few. If none of them is
 * where most are, the subject is probably new: all places of its cells are looked at before they are made. Loading them at
 * once takes half of the time that loading some first and the others later does. */
static void load_cells(const struct decision *d)
{
    const struct cells *cells = d->bound->cells;
    size_t first = d->count < PLAN_LOADS ? d->count : PLAN_LOADS;
    bool is_new = true;
    for (size_t i = 0; is_new && i < first; i++)
        is_new = is_cell(&d->counters[i]) && !cells_at_home(cells, d->counters[i].ask.key);
    load_away(d, 0, first, is_new);
    for (size_t i = first; i < d->count; i++)
        if (is_cell(&d->counters[i]))
            cells_prefetch_among(cells, d->counters[i].ask.key, is_new);
    if (!is_new)
        load_away(d, first, d->count, false);
}

/* ---- take ---- */

static void count_not_asked(const struct decision *d)
{
    const struct weir *weir = d->remote->weir;
    if (weir->store)
        weir->ops->count(weir->store, STORE_NOT_ASKED, 1);
}

/* Counters whose server is known to be down are replaced before the call: it would fail for them, and have to be made
 * again for the others. */
static enum decision_state call_store(struct decision *d)
{
    if (!weir_store_up(d->remote->weir)) {
        count_not_asked(d);
        return DECISION_WITHOUT;
    }
    if (remote_replace_unreachable(d, COUNTER_STORE)) {
        count_not_asked(d);
        give_back_all(d);
        return DECISION_TAKE;
    }
    remote_make_call(d);
    return DECISION_CALL;
}

/* This host refuses. What is charged all the same has to be charged in the store, too. */
static enum decision_state after_refusal(struct decision *d)
{
    if (__builtin_expect(!d->insists, 1))
        return DECISION_REPORT;
    if (!remote_insists_in_store(d))
        return DECISION_REPORT;
    d->remote->refused = true;
    return call_store(d);
}

/* The counters of this host have this outcome. */
static enum decision_state after_take(struct decision *d, enum counter_outcome outcome)
{
    remote_renew_slices(d);
    if (outcome == COUNTER_REFUSES)
        return after_refusal(d);
    if (outcome == COUNTER_SHORT) {
        if (remote_replace_unreachable(d, COUNTER_SLICE)) {
            count_not_asked(d);
            return DECISION_TAKE;
        }
        if (d->remote->may_wait && remote_ask_for_short(d))
            return DECISION_SLICES;
        count_not_asked(d);
        remote_replace(d, COUNTER_SLICE);
        return DECISION_TAKE;
    }
    d->remote->refused = false; /* there may be room now: the first call failed for some rules, and took its time */
    return remote_wants_store(d) ? call_store(d) : DECISION_REPORT;
}

/* Refused, whatever the limits say. They are looked at all the same: one of another rule may have to be waited for longer.
 * The store is not asked, and slices are not: what is short of them may have room. */
static enum decision_state refuse_penalised(struct decision *d)
{
    struct group enforced = enforced_of(d);
    d->allowed = false;
    look_at_all(d, &enforced, false);
    for (size_t i = 0; i < d->enforced; i++)
        if (d->counters[i].outcome == COUNTER_SHORT)
            d->counters[i].outcome = COUNTER_FITS;
    return d->remote ? after_refusal(d) : DECISION_REPORT;
}

/* A decision that waits for slices may be begun again by its caller: see weir_check_soon(). So what is charged in any case
 * has to wait, too. Returns whether slices are short, and nothing refuses. */
static bool lacks_slices(struct decision *d)
{
    bool lacks = false;
    for (size_t i = 0; d->remote && i < d->enforced; i++) {
        struct counter *c = &d->counters[i];
        if (c->charging == WEIR_GIVE_BACK)
            continue;
        enum counter_outcome outcome = counter_look(d, c);
        if (outcome == COUNTER_REFUSES)
            return false;
        lacks = lacks || outcome == COUNTER_SHORT;
    }
    return lacks;
}

/* Penalties, and what is charged or given back in any case. Returns true if the limits need not be asked; *ret is the next
 * state then. */
static __attribute__((noinline)) bool begin_take(struct decision *d, enum decision_state *ret)
{
    bool penalised = d->penalties && decision_find_penalties(d);
    if (d->insists && !penalised && lacks_slices(d)) {
        *ret = after_take(d, COUNTER_SHORT);
        return true;
    }
    if (d->insists) {
        counters_insist(d, 0, d->enforced);
        if (d->remote)
            d->remote->may_wait = false;
    }
    if (penalised)
        *ret = refuse_penalised(d);
    return penalised;
}

static enum decision_state step_take(struct decision *d)
{
    enum decision_state next;
    if (__builtin_expect(d->penalties | d->insists, 0) && begin_take(d, &next))
        return next;
    struct group enforced = enforced_of(d);
    if (d->count > 1)
        load_cells(d);
    enum counter_outcome outcome = take_group(d, &enforced, d->charges);
    d->allowed = outcome == COUNTER_FITS;
    return __builtin_expect(!d->remote, 1) ? DECISION_REPORT : after_take(d, outcome);
}

/* ---- the store's answer, or none ---- */

/* Its clock has other windows. What this host has charged stays charged, unless the request is known to be refused. */
static enum decision_state ask_again(struct decision *d)
{
    if (d->remote->refused && !remote_insists_in_store(d)) {
        d->allowed = false;
        return DECISION_REPORT;
    }
    remote_make_call(d);
    return DECISION_CALL;
}

static enum decision_state step_settle(struct decision *d)
{
    struct remote *r = d->remote;
    bool again = r->call.result == STORE_STALE && ++r->stale < STALE_TRIES;
    remote_end_payments(d);
    remote_take_answer(d);
    if (again)
        return ask_again(d);
    r->failed = r->call.result != STORE_DECIDED;
    if (r->failed)
        return DECISION_WITHOUT;
    d->allowed = r->call.allowed && !r->refused;
    return DECISION_REPORT;
}

/* Everything is taken anew with the stand-ins, in the one order. It has waited long enough: it does not wait for slices any
 * more. If the call failed for some rules only, the store is asked once more about the others; each such round replaces a
 * counter at least. If nothing is known of an answer, all are replaced. */
static enum decision_state step_without(struct decision *d)
{
    struct remote *r = d->remote;
    CHECK(!r->gave_up);
    r->may_wait = false;
    give_back_all(d);
    if (!r->failed || !remote_replace_failed(d))
        remote_replace(d, COUNTER_STORE);
    r->failed = false;
    return DECISION_TAKE;
}

/* ---- report ---- */

/* A shadow rule whose slice is short, or whose store does not answer, says nothing. One with an override that denies the
 * subject of some reading of the path refuses, whatever kind the counters of the other readings are. */
static __attribute__((noinline)) bool shadow_refuses(struct decision *d, size_t from, size_t count, bool charge)
{
    bool denied = false;
    for (size_t i = from; i < from + count; i++)
        denied = denied || limit_denies(d->counters[i].limit);
    if (denied || d->counters[from].kind != COUNTER_STORE)
        return take_group(d, &(struct group){ d->counters + from, d->order, count }, charge && !denied) == COUNTER_REFUSES;
    for (size_t i = from; i < from + count; i++)
        if (d->counters[i].outcome == COUNTER_REFUSES)
            return true;
    return false;
}

static void decide_shadows(struct decision *d)
{
    bool charge = d->charges && d->allowed, alone = d->parts == 1;
    if (__builtin_expect(d->insists, 0))
        counters_insist(d, d->enforced, d->count);
    for (size_t i = d->enforced, count; i < d->count; i += count) {
        count = decision_rule_counters(d, i);
        if (shadow_refuses(d, i, count, charge) && alone)
            verdict_add_shadow(d->verdict, d->request->shadows, d->counters[i].rule);
    }
    if (!alone)
        parts_report_shadows(d);
    if (d->remote)
        remote_renew_slices(d);
}

static bool has_held_slices(const struct decision *d)
{
    for (size_t i = 0; d->remote && d->holds && i < d->count; i++)
        if (d->counters[i].kind == COUNTER_SLICE && d->counters[i].on_hold && d->counters[i].held)
            return true;
    return false;
}

/* The store ends what was held from slices. If it is not told, that stays a charge. */
static void make_receipt(struct decision *d)
{
    struct weir_receipt unasked, *receipt = d->request->receipt;
    bool held_slices = has_held_slices(d);
    if (!held_slices && (!receipt || (d->request->if_held && !d->holds)))
        return;
    receipt = receipt ? receipt : &unasked;
    if (d->remote)
        remote_make_keys(d);
    receipt_make(d, receipt);
    if (d->remote && held_slices)
        tell_store(d->remote->weir, receipt, &(struct telling){ .what = TELL_ENTERED, .now_us = d->now_us });
}

static enum decision_state report_repeated(struct decision *d)
{
    verdict_repeated(d->verdict, d->repeated);
    parts_repeated(d);
    return DECISION_DONE;
}

/* The same as step_report for several requests: each has a verdict of its own besides. */
static __attribute__((noinline)) enum decision_state report_together(struct decision *d)
{
    parts_clear(d->request);
    if (d->repeated.len > 0)
        return report_repeated(d);
    if (d->penalties && !d->allowed && (d->charges || d->request->attempt))
        decision_count_refusals(d);
    if (d->remote && !d->allowed)
        give_back_all(d);
    else if (d->remote)
        counters_owe(d);
    parts_report(d);
    if (d->allowed)
        verdict_fill(d);
    else
        verdict_refuse(d);
    if (d->count > d->enforced)
        decide_shadows(d);
    parts_own_shadows(d);
    if (d->remote)
        remote_report_overdrafts(d);
    parts_each_rule(d);
    if ((d->request->receipt || d->holds) && d->allowed && d->charges)
        make_receipt(d);
    return DECISION_DONE;
}

static enum decision_state step_report(struct decision *d)
{
    const struct weir_request *request = d->request;
    if (__builtin_expect(d->parts > 1, 0))
        return report_together(d);
    if (__builtin_expect(request->receipt || request->shadows || request->usage || request->own_shadow, 0))
        request_clear(request);
    if (__builtin_expect(d->repeated.len > 0, 0))
        return report_repeated(d);
    if (__builtin_expect(d->penalties, 0) && !d->allowed && (d->charges || request->attempt))
        decision_count_refusals(d);
    if (__builtin_expect(d->remote && !d->allowed, 0)) {
        give_back_all(d);
        verdict_refuse(d);
    } else {
        if (__builtin_expect(d->remote != NULL, 0))
            counters_owe(d);
        verdict_fill(d);
    }
    if (__builtin_expect(request->usage != NULL, 0))
        usage_fill(d);
    if (d->count > d->enforced)
        decide_shadows(d);
    if (__builtin_expect(request->own_shadow != NULL, 0))
        verdict_of_shadows(d, request->own_shadow, d->enforced, d->count);
    if (__builtin_expect(d->remote != NULL, 0))
        remote_report_overdrafts(d);
    if (__builtin_expect(request->each_rule != NULL, 0))
        verdict_each_rule(d);
    if (__builtin_expect(request->receipt || d->holds, 0) && d->allowed && d->charges)
        make_receipt(d);
    if (__builtin_expect(request->own != NULL, 0))
        *request->own = *d->verdict;
    return DECISION_DONE;
}

/* ---- running ---- */

/* One function for each state, which returns the next. A switch, so that the compiler can put them in line. */
static inline enum decision_state step(struct decision *d)
{
    switch (d->state) {
    case DECISION_TAKE:
        return step_take(d);
    case DECISION_SETTLE:
        return step_settle(d);
    case DECISION_WITHOUT:
        return step_without(d);
    case DECISION_REPORT:
        return step_report(d);
    default:
        return d->state;
    }
}

void decision_run(struct decision *d)
{
    CHECK(d->count <= d->cap);
    if (d->one_cell) {
        decision_run_cell(d);
        return;
    }
    while (d->state < DECISION_STOPS)
        d->state = step(d);
    if (d->state != DECISION_DONE) {
        /* The strings of the request are gone when the decision is resumed. */
        remote_make_keys(d);
        d->remote->fresh = false;
    }
}

void decision_resume(struct decision *d, int64_t now_us)
{
    CHECK(d->state == DECISION_SLICES);
    remote_set_now(d, now_us);
    d->state = DECISION_TAKE;
    decision_run(d);
}

void decision_answered(struct decision *d)
{
    CHECK(d->state == DECISION_CALL);
    d->state = DECISION_SETTLE;
    decision_run(d);
}

void decision_late(struct decision *d)
{
    CHECK(d->state == DECISION_CALL);
    d->remote->late = true;
    remote_count_late(d);
    d->state = DECISION_WITHOUT;
    decision_run(d);
    remote_uncount_late(d, false);
}

/* ---- an answer that came after the verdict ---- */

/* Returns whether there was something to make up for. */
static bool make_up(struct decision *d)
{
    struct store_call *call = &d->remote->call;
    bool made_up = false;
    if (!call->charge)
        return false;
    if (d->insists)
        made_up = remote_undo_insisted(d);
    if (call->result != STORE_DECIDED || !call->allowed)
        return made_up;
    if (!d->allowed) {
        remote_settle_call(d, false);
        return true;
    }
    /* It passed, and stand-ins counted it: the store counts it now, as a charge, since no receipt names its holds.
     * Stand-ins for slices were not part of the call; those for slots are in the receipt. */
    if (call->hold_id != 0)
        remote_settle_call(d, true);
    for (size_t i = 0; i < d->enforced; i++)
        if (d->counters[i].kind == COUNTER_STANDIN && d->counters[i].held && !d->counters[i].on_hold &&
            d->remote->counters[i].cell) {
            counter_give_back(d, &d->counters[i]);
            made_up = true;
        }
    return made_up;
}

void decision_aftermath(struct decision *d)
{
    struct weir *weir = d->remote->weir;
    if (d->remote->late && make_up(d))
        weir->ops->count(weir->store, STORE_REFUNDED, 1);
    remote_end_payments(d);
    remote_uncount_late(d, true);
    d->remote->late = false;
}

/* ---- looking ---- */

void decision_look(struct decision *d)
{
    d->state = DECISION_DONE;
    for (size_t i = 0; i < d->count; i++)
        counter_look(d, &d->counters[i]);
    if (!d->remote || !weir_store_up(d->remote->weir))
        return;
    /* The store counts what it has lent as it counts limits. */
    for (size_t i = 0; i < d->count; i++)
        if (d->counters[i].kind == COUNTER_SLICE)
            d->counters[i].kind = COUNTER_STORE;
    if (!remote_wants_store(d))
        return;
    remote_make_call(d);
    d->remote->call.charge = false;
    d->remote->fresh = false;
    d->state = DECISION_CALL;
}

void decision_looked(struct decision *d)
{
    remote_end_payments(d);
    remote_take_answer(d);
}
