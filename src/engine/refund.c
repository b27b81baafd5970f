/* Giving back what a receipt names.
 *
 * The request is planned again, which leads to the same limits. Limits that the receipt does not name are left alone: a
 * rule that is new since, a shadow rule that had no room, a stand-in (the store may have been charged for it since). So are
 * a cell that was given to another subject or was reset meanwhile, a later window, and a bucket that fills at another rate
 * by now. So nothing is given back that was not charged.
 *
 * Nothing is given back twice: receipts are numbered, and the table knows which numbers can still be used
 * (receipt_ring.c). A receipt cannot be forged: it is sealed with the table's secret and identity. It is invalid with
 * another table and with a copy of the table, since neither knows whether it was used. */
#include <stdlib.h>

#include "engine/counter.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/receipt.h"
#include "engine/receipt_ring.h"
#include "engine/remote.h"
#include "limit/take.h"

/* The window of a slice seems to end earlier by as long as the ask for it was on its way, which decisions wait for up to
 * ten seconds. For short windows the store takes a part of their length instead. */
#define OFF_US (10 * US_PER_S)

enum { ROOM = 8 }; /* counters of most requests */

struct refund {
    struct decision *d;
    const struct weir_receipt *receipt;
    bool store; /* it is there, and answers */
};

/* Returns what the receipt says about a counter; NULL: nothing. */
static const struct weir_charged *charged_of(const struct refund *f, const struct counter *c, struct cells_taken *ret)
{
    const struct weir_receipt *r = f->receipt;
    bool cell = c->kind == COUNTER_CELL;
    for (uint32_t k = 0; k < r->count; k++) {
        const struct weir_charged *charged = &r->charged[k];
        if (cell ? !cells_find_taken(f->d->bound->cells, c->ask.key, charged->limit, charged->cell, ret)
                 : charged->limit != receipt_store_id(c))
            continue;
        ret->state = (struct limit_state){ charged->time, charged->window };
        ret->at_us = r->at_us;
        ret->cost = charged->cost;
        return charged;
    }
    return NULL;
}

/* A bucket that fills at another rate now: nobody knows how much of the cost has come back already. */
static bool is_changed(const struct counter *c, const struct weir_charged *charged)
{
    const struct limit *l = &c->limit->limit;
    return l->algorithm == LIMIT_TOKEN_BUCKET && (charged->time != (uint64_t)l->per_us || charged->window != l->max);
}

/* Returns when nothing of it is left to give back; CLOCK_END_US if that is not simple to say. */
static int64_t over_us(const struct counter *c, const struct cells_taken *taken)
{
    enum limit_algorithm algorithm = c->limit->limit.algorithm;
    bool window = algorithm == LIMIT_FIXED_WINDOW || algorithm == LIMIT_CALENDAR;
    return window && c->kind == COUNTER_CELL ? limit_state_end(taken->state) : CLOCK_END_US;
}

static bool can_be_given(const struct refund *f, const struct counter *c, struct cells_taken *ret)
{
    const struct weir_charged *charged = charged_of(f, c, ret);
    if (!charged || is_changed(c, charged) || over_us(c, ret) <= f->d->now_us)
        return false;
    return f->store || c->kind == COUNTER_CELL;
}

static void add_to_call(struct refund *f, struct counter *c, const struct cells_taken *taken)
{
    const struct weir *weir = f->d->remote->weir;
    struct store_cell *cell = remote_add_to_call(f->d, c);
    struct store_call *call = &f->d->remote->call;
    call->rules[call->rule_count - 1].shadow = false; /* the receipt says that it was charged */
    cell->cost = taken->cost;
    cell->state = taken->state;
    if (c->kind != COUNTER_SLICE)
        return;
    /* The slice's end is by this host's clock. */
    struct limit_count window = { .end_us = (int64_t)taken->state.time + weir->ops->offset_us(weir->store) };
    cell->state = limit_count_state(&window);
    cell->off_us = OFF_US;
}

/* A receipt of which nothing can be given back now is not used up. */
static bool is_named(const struct refund *f)
{
    struct cells_taken taken;
    for (size_t i = 0; i < f->d->count; i++)
        if (can_be_given(f, &f->d->counters[i], &taken))
            return true;
    return false;
}

static int refund_all(struct refund *f)
{
    int given = 0;
    for (size_t i = 0; i < f->d->count; i++) {
        struct counter *c = &f->d->counters[i];
        struct cells_taken taken;
        if (!can_be_given(f, c, &taken))
            continue;
        if (c->kind == COUNTER_SLICE && c->limit->limit.overdraft && (int64_t)taken.state.time > f->d->now_us)
            taken.cost -= counter_undo_debt(f->d, c, taken.cost);
        if (c->kind != COUNTER_CELL && taken.cost > 0)
            add_to_call(f, c, &taken);
        given += c->kind != COUNTER_CELL || cells_refund(&c->limit->limit, &taken, f->d->now_us);
    }
    return given;
}

/* It was sent, or could not be. */
static void on_sent(struct store_call *call)
{
    decision_free(decision_of(call));
}

static void post(struct refund *f)
{
    struct remote *r = f->d->remote;
    r->call.refund = true;
    r->call.now_us = r->weir->store_by_now ? f->d->now_us : 0;
    r->call.server_us = f->receipt->store_us;
    r->call.deadline_us = clock_steady_us() + weir_deadline_ms(r->weir) * US_PER_MS;
    r->call.done = on_sent;
    remote_hold_rules(f->d);
    r->weir->ops->post(r->weir->store, &r->call);
}

static int refund_by(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                     const struct weir_receipt *receipt, int64_t now_us)
{
    struct refund f = { .receipt = receipt, .d = decision_new(weir, bound, request, user, now_us, ROOM) };
    int given = 0;
    if (!f.d)
        return WEIR_E_NO_MEMORY;
    f.store = f.d->remote && weir_store_up(weir);
    if (f.store)
        remote_make_keys(f.d);
    if (is_named(&f) && ring_use_number(bound->cells, receipt_ring(receipt, bound->cells), receipt->number, now_us))
        given = refund_all(&f);
    if (f.d->remote && f.d->remote->call.rule_count > 0)
        post(&f);
    else
        decision_free(f.d);
    return given;
}

int weir_refund(struct weir *weir, const struct weir_request *request, const struct weir_receipt *receipt, int64_t now_us)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    if (receipt->count == 0)
        return 0; /* of a request that was not charged; the rest of it was never written */
    if (!clock_valid(now_us) || receipt->count > WEIR_RECEIPT_LIMITS)
        return WEIR_E_INVALID;
    if (!receipt_is_sealed(receipt, weir->cells) || now_us - receipt->at_us >= RECEIPT_LIFE_US ||
        receipt->at_us - now_us > RECEIPT_AHEAD_US)
        return 0;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    int r = refund_by(weir, bound, request, user, receipt, now_us);
    hazard_release();
    return r;
}
