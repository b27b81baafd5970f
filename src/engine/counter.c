#include "engine/counter.h"

#include "base/check.h"
#include "engine/handle.h"
#include "engine/remote.h"
#include "slices/repay.h"

/* ---- cells ---- */

static enum counter_outcome look_at_cell(struct decision *d, struct counter *c)
{
    return cell_look(d, c);
}

static enum counter_outcome take_cell(struct decision *d, struct counter *c)
{
    return cell_take(d, c);
}

static void give_back_cell(struct decision *d, struct counter *c)
{
    if (c->on_hold)
        hold_give_back(d, c, decision_now_us(d));
    else
        cells_refund(d->bound->cells, c->ask.limit, &c->taken, decision_now_us(d));
}

static void charge_cell(struct decision *d, struct counter *c)
{
    cells_charge(d->bound->cells, &c->ask, c->ask.limit);
}

void counter_note_refusal(struct decision *d, struct counter *c)
{
    struct cells_taken taken;
    struct cells_ask ask = c->ask;
    if (ask.limit->algorithm == LIMIT_CONCURRENT)
        return;                             /* it has no clock of its own */
    ask.cost = ask.cost > 0 ? ask.cost : 1; /* what refuses 0 refuses 1 */
    if (cells_take(d->bound->cells, &ask, &taken))
        cells_refund(d->bound->cells, ask.limit, &taken, ask.now_us);
}

/* ---- slices ---- */

/* Slots are not owed to the store: requests in flight end sooner or later. */
static struct limit_state owe(struct decision *d, struct counter *c, const struct limit *rank, uint64_t cost)
{
    if (counter_limit(c)->algorithm == LIMIT_CONCURRENT)
        return (struct limit_state){ 0 };
    return debt_add(d->bound->cells, debt_cell(c), counter_limit(c), rank, &c->window, c->ask.now_us, cost);
}

/* The state that limit_report reads: this host's part of the window. */
static void set_slice_state(struct counter *c, const struct slice_spent *spent)
{
    const struct limit *l = counter_limit(c);
    struct limit_count count = { .end_us = spent->end_us, .length = limit_length_pack(l->per_us) };
    if (l->algorithm == LIMIT_CALENDAR)
        count.length = limit_length_pack(c->window.end_us - c->window.start_us);
    count.count = spent->left < l->max ? l->max - spent->left : 0;
    c->look.state = spent->end_us > c->ask.now_us ? limit_count_state(&count) : (struct limit_state){ 0 };
    c->state = &c->look.state;
}

static struct repay repay_of(const struct decision *d, const struct counter *c, int64_t now_us)
{
    return (struct repay){ d->bound->cells, slice_cell(d, c), debt_cell(c), counter_limit(c), &c->window, now_us };
}

/* `rest` of the cost is owed now. The slice that was too short may have got tokens since: they pay. */
static void pay_with_slice(struct decision *d, struct counter *c, uint64_t rest)
{
    struct remote_counter *rc = remote_of(d, c);
    struct repay repay = repay_of(d, c, c->ask.now_us);
    uint64_t most = SLICE_TOKENS_MAX - rc->spent;
    struct slice_spent paid = repay_new(&repay, rc->owed, rest < most ? rest : most);
    if (rc->spent == 0)
        rc->end_us = paid.end_us;
    rc->spent += paid.taken;
}

/* Tokens have come back into the slice. If somebody else is paying what is owed, they stay locked: the lender finds them.
 */
static void unlock_slice(struct decision *d, const struct counter *c, uint32_t lock)
{
    bool held;
    struct repay repay = repay_of(d, c, decision_now_us(d));
    uint64_t paid = repay_with_new(&repay, lock, &held);
    const struct weir *weir = d->remote->weir;
    if (paid > 0 && weir->store)
        weir->ops->count(weir->store, STORE_RECONCILED, paid);
}

/* The store is told of the rest when the decision has passed: see remote_report_overdrafts(). */
static void overdraw_slice(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    struct limit_count count = limit_count_read(counter_limit(c), &c->window, c->look.state);
    rc->owed = owe(d, c, counter_limit(c), c->ask.cost - rc->spent);
    pay_with_slice(d, c, c->ask.cost - rc->spent);
    count.count += c->ask.cost - rc->spent;
    c->look.state = limit_count_state(&count);
}

static struct slice_spent spend(struct decision *d, struct counter *c, bool charge)
{
    const struct limit *l = counter_limit(c);
    if (l->overdraft && c->ask.cost > 0)
        return slice_spend_any(d->bound->cells, c->ask.key, slice_size(c), l->max, c->ask.now_us, c->ask.cost, charge);
    return slice_spend(d->bound->cells, c->ask.key, slice_size(c), l->max, c->ask.now_us, (uint32_t)c->ask.cost, charge);
}

static enum counter_outcome spend_slice(struct decision *d, struct counter *c, bool charge)
{
    struct remote_counter *rc = remote_of(d, c);
    const struct limit *l = counter_limit(c);
    uint64_t needs = limit_needs(l, c->ask.cost);
    if (needs > l->max || l->max == 0 || needs > SLICE_TOKENS_MAX) {
        rc->tokens = slice_spend(d->bound->cells, c->ask.key, slice_size(c), l->max, c->ask.now_us, 0, false).left;
        return c->outcome = COUNTER_REFUSES;
    }
    struct slice_spent spent = spend(d, c, charge);
    set_slice_state(c, &spent);
    rc->tokens = spent.left;
    if (spent.outcome == SLICE_DRY)
        return c->outcome = COUNTER_REFUSES;
    /* A request that charges nothing fetches nothing, or it would take that from others: it passes unless the slice is
     * known to be spent. */
    if (spent.outcome == SLICE_SHORT)
        return c->outcome = d->charges ? COUNTER_SHORT : COUNTER_FITS;
    if (charge) {
        c->held = true;
        c->on_hold = hold_wants(d, c); /* the store learns of it when the decision has passed: see make_receipt() */
        rc->end_us = spent.end_us;
        rc->spent = spent.taken;
        /* An ask would take the debt along before it is known whether the request passes. */
        rc->renew = spent.renew && spent.taken == c->ask.cost;
        if (__builtin_expect(spent.taken < c->ask.cost, 0))
            overdraw_slice(d, c);
    }
    return c->outcome = COUNTER_FITS;
}

static enum counter_outcome look_at_slice(struct decision *d, struct counter *c)
{
    return spend_slice(d, c, false);
}

static enum counter_outcome take_slice(struct decision *d, struct counter *c)
{
    return spend_slice(d, c, true);
}

static void give_back_slice(struct decision *d, struct counter *c)
{
    const struct remote_counter *rc = remote_of(d, c);
    uint32_t lock;
    if (rc->spent < c->ask.cost)
        debt_undo(d->bound->cells, debt_cell(c), counter_limit(c), rc->owed, c->ask.now_us, c->ask.cost - rc->spent,
                  decision_now_us(d));
    slice_unspend(d->bound->cells, c->ask.key, rc->end_us, rc->spent, &lock);
    unlock_slice(d, c, lock);
}

/* ---- charges that need no room ---- */

/* While the store does not answer, the stand-ins of enforced rules bound what passes: they count this, too. */
static void charge_standin(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    struct cells_ask ask = c->ask;
    ask.limit = &rc->share;
    if (c->rule->rule->kind->on_failure == ON_FAILURE_LOCAL)
        cells_charge(d->bound->cells, &ask, ask.limit);
    rc->owed = owe(d, c, &rc->share, c->ask.cost);
}

static void charge_store(struct decision *d, struct counter *c)
{
    if (remote_stand_in(d, c))
        charge_standin(d, c);
    else
        remote_of(d, c)->owed = owe(d, c, counter_limit(c), c->ask.cost);
}

/* The slice is spent first: a request that finds nothing left of it asks the store, which is told of the debt then. */
static void charge_slice(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    struct slice_spent spent = slice_spend_any(d->bound->cells, c->ask.key, slice_size(c), counter_limit(c)->max,
                                               c->ask.now_us, c->ask.cost, true);
    rc->renew = spent.renew;
    c->ask.cost -= spent.taken;
    if (c->ask.cost == 0)
        return;
    charge_store(d, c);
    rc->spent = 0;
    pay_with_slice(d, c, c->ask.cost);
    rc->renew = true; /* the ask takes the debt along */
    c->ask.cost = 0;
}

/* ---- the store ---- */

/* remote_take_answer() sets the outcome. Until then it passes. */
static enum counter_outcome pass_to_store(struct decision *d, struct counter *c)
{
    (void)d;
    return c->outcome = COUNTER_FITS;
}

static void leave_to_store(struct decision *d, struct counter *c)
{
    (void)d;
    (void)c;
}

/* ---- stand-ins ---- */

static enum counter_outcome look_at_standin(struct decision *d, struct counter *c)
{
    enum rule_on_failure standin = remote_of(d, c)->standin;
    if (standin == ON_FAILURE_LOCAL)
        return cell_look(d, c);
    return c->outcome = standin == ON_FAILURE_ALLOW ? COUNTER_FITS : COUNTER_REFUSES;
}

/* Only slots are held: other charges are owed to the store, and stay. */
static enum counter_outcome take_standin_cell(struct decision *d, struct counter *c)
{
    if (counter_limit(c)->algorithm == LIMIT_CONCURRENT)
        return hold_take(d, c, NULL);
    return cell_taken(c, cells_take(d->bound->cells, &c->ask, &c->taken));
}

static enum counter_outcome take_standin(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    c->on_hold = rc->owes = false;
    rc->spent = 0;
    enum counter_outcome outcome = rc->standin == ON_FAILURE_LOCAL ? take_standin_cell(d, c) : look_at_standin(d, c);
    c->held = outcome == COUNTER_FITS;
    return outcome;
}

void counters_owe(struct decision *d)
{
    for (size_t i = 0; i < d->enforced; i++) {
        struct counter *c = &d->counters[i];
        if (c->kind != COUNTER_STANDIN || !c->held)
            continue;
        struct remote_counter *rc = remote_of(d, c);
        rc->owed = owe(d, c, &rc->share, c->ask.cost);
        rc->owes = true;
        if (counter_limit(c)->overdraft && c->rule->counter == COUNTER_SLICE)
            pay_with_slice(d, c, c->ask.cost);
    }
}

static void give_back_standin(struct decision *d, struct counter *c)
{
    const struct remote_counter *rc = remote_of(d, c);
    if (rc->standin == ON_FAILURE_LOCAL)
        give_back_cell(d, c);
    if (counter_limit(c)->algorithm == LIMIT_CONCURRENT || !rc->owes)
        return;
    if (rc->spent < c->ask.cost)
        debt_undo(d->bound->cells, debt_cell(c), counter_limit(c), rc->owed, c->ask.now_us, c->ask.cost - rc->spent,
                  decision_now_us(d));
    if (rc->spent > 0) {
        uint32_t lock;
        slice_unspend(d->bound->cells, slice_cell(d, c), rc->end_us, rc->spent, &lock);
        unlock_slice(d, c, lock);
    }
}

/* ---- joined, and counted already ---- */

static enum counter_outcome leave_to_leader(struct decision *d, struct counter *c)
{
    (void)d;
    return c->outcome = COUNTER_FITS;
}

static enum counter_outcome outcome_stands(struct decision *d, struct counter *c)
{
    (void)d;
    return c->outcome;
}

static void charge_nothing(struct decision *d, struct counter *c)
{
    (void)d;
    (void)c;
}

/* ---- all kinds ---- */

const struct counter_ops counter_ops[] = {
    [COUNTER_CELL] = { look_at_cell, take_cell, give_back_cell, charge_cell },
    [COUNTER_SLICE] = { look_at_slice, take_slice, give_back_slice, charge_slice },
    [COUNTER_STORE] = { pass_to_store, pass_to_store, leave_to_store, charge_store },
    [COUNTER_STANDIN] = { look_at_standin, take_standin, give_back_standin, charge_standin },
    [COUNTER_JOINED] = { leave_to_leader, leave_to_leader, leave_to_store, charge_nothing },
    [COUNTER_COUNTED] = { outcome_stands, outcome_stands, leave_to_store, charge_nothing },
};

void counter_give_back(struct decision *d, struct counter *c)
{
    CHECK(c->kind <= COUNTER_COUNTED);
    if (!c->held)
        return;
    c->held = false;
    counter_ops[c->kind].give_back(d, c);
}

/* ---- whatever the others say ---- */

static void set_counted(struct counter *c, struct limit_state state, bool fits)
{
    c->look.state = state;
    c->look.cell = NULL; /* a refusal has been noted */
    c->state = &c->look.state;
    c->outcome = fits ? COUNTER_FITS : COUNTER_REFUSES;
    c->held = c->on_hold = false;
    c->kind = COUNTER_COUNTED;
}

/* Taking ends holds that are over; charging does not. It fits if no more than the capacity is used after it. */
static void charge_cell_always(struct decision *d, struct counter *c)
{
    const struct limit *limit = c->ask.limit;
    struct cells_taken taken;
    if (cells_take(d->bound->cells, &c->ask, &taken)) {
        set_counted(c, taken.state, true);
        return;
    }
    uint64_t cost = c->ask.cost;
    c->ask.cost = cost <= WEIR_AMOUNT_MAX ? cost : WEIR_AMOUNT_MAX;
    struct limit_state state = cells_charge(d->bound->cells, &c->ask, limit);
    struct limit_report report = limit_report(limit, &c->window, state, c->ask.now_us, 0);
    set_counted(c, state, limit->max > 0 && report.debt == 0 && cost <= WEIR_AMOUNT_MAX);
    c->ask.cost = cost;
}

/* Nothing is left of the slice, and more is owed. */
static void charge_slice_in_debt(struct decision *d, struct counter *c, bool fits)
{
    const struct limit *limit = counter_limit(c);
    uint64_t cost = c->ask.cost;
    c->ask.cost = cost <= WEIR_AMOUNT_MAX ? cost : WEIR_AMOUNT_MAX;
    charge_slice(d, c);
    c->ask.cost = cost;
    struct slice_spent spent = slice_spend(d->bound->cells, c->ask.key, slice_size(c), limit->max, c->ask.now_us, 0, false);
    if (spent.end_us == 0)
        spent.end_us = limit->algorithm == LIMIT_CALENDAR ? c->window.end_us : c->ask.now_us + limit->per_us;
    set_slice_state(c, &spent);
    remote_of(d, c)->tokens = spent.left;
    set_counted(c, *c->state, fits);
}

/* One that is short has room as far as is known: nobody waits for more. */
static void charge_slice_always(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    enum counter_outcome outcome = take_slice(d, c);
    if (outcome != COUNTER_FITS) {
        charge_slice_in_debt(d, c, outcome == COUNTER_SHORT);
        return;
    }
    rc->renew = rc->renew || rc->spent < c->ask.cost; /* the ask takes the debt along */
    set_counted(c, *c->state, true);
}

/* The cell is charged before the debt, as in take_standin(). A rule that denies goes on denying. */
static void charge_standin_always(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    uint64_t cost = c->ask.cost <= WEIR_AMOUNT_MAX ? c->ask.cost : WEIR_AMOUNT_MAX;
    rc->insisted = true;
    if (rc->standin == ON_FAILURE_LOCAL)
        charge_cell_always(d, c);
    else if (rc->standin == ON_FAILURE_ALLOW)
        set_counted(c, *c->state, true);
    rc->owed = owe(d, c, &rc->share, cost);
}

static void give_back_slice_any(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    uint32_t slice = slice_size(c);
    uint32_t lock;
    slice_give_back(d->bound->cells, c->ask.key, slice, c->ask.cost, c->ask.now_us, &lock);
    unlock_slice(d, c, lock);
    struct slice_spent spent =
        slice_spend(d->bound->cells, c->ask.key, slice, counter_limit(c)->max, c->ask.now_us, 0, false);
    set_slice_state(c, &spent);
    rc->tokens = spent.left;
    set_counted(c, *c->state, true);
}

static bool may_have_been_asked(const struct decision *d, const struct remote_counter *rc)
{
    if (!rc->cell)
        return false;
    return d->remote->late || (rc->of->result != STORE_UNSENT && rc->of->result != STORE_UNTRIED);
}

/* Gives nothing back here if the store was asked to, because it may have done so: to give back twice would admit too much,
 * and to give back nothing is safe. */
static void give_back_standin_any(struct decision *d, struct counter *c)
{
    if (may_have_been_asked(d, remote_of(d, c))) {
        set_counted(c, *c->state, true);
        return;
    }
    struct cells_ask owed = c->ask;
    owed.key = debt_cell(c);
    owed.limit = counter_limit(c);
    cells_give_back(d->bound->cells, &owed);
    if (remote_of(d, c)->standin == ON_FAILURE_LOCAL)
        set_counted(c, cells_give_back(d->bound->cells, &c->ask), true);
    else
        set_counted(c, *c->state, true);
}

static void give_back_any(struct decision *d, struct counter *c)
{
    if (c->kind == COUNTER_STORE || c->kind == COUNTER_JOINED || c->kind == COUNTER_COUNTED)
        return;
    if (!d->charges || c->ask.cost == 0) {
        counter_look(d, c);
        set_counted(c, *c->state, true);
    } else if (c->kind == COUNTER_CELL) {
        set_counted(c, cells_give_back(d->bound->cells, &c->ask), true);
    } else if (c->kind == COUNTER_SLICE) {
        give_back_slice_any(d, c);
    } else {
        give_back_standin_any(d, c);
    }
}

static void charge_always(struct decision *d, struct counter *c)
{
    if (!d->charges || !counter_insists(c))
        return;
    if (c->kind == COUNTER_CELL)
        charge_cell_always(d, c);
    else if (c->kind == COUNTER_SLICE)
        charge_slice_always(d, c);
    else if (c->kind == COUNTER_STANDIN && !remote_of(d, c)->insisted)
        charge_standin_always(d, c);
}

void counters_insist(struct decision *d, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        struct counter *c = &d->counters[i];
        if (c->charging == WEIR_GIVE_BACK)
            give_back_any(d, c);
        else if (c->charging == WEIR_CHARGE_ALWAYS)
            charge_always(d, c);
    }
}
