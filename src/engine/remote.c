#include "engine/remote.h"

#include "engine/handle.h"
#include "engine/hold.h"
#include "engine/keys.h"

/* Subjects are hashes: XOR with a constant gives the key of another cell. */
#define SLICE_MARK UINT64_C(0x736c6963652d6d6b)
#define STANDIN_MARK UINT64_C(0x7374616e642d696e)
#define DEBT_MARK UINT64_C(0x696e73746561642d)

#define ASK_AGAIN_US (10 * US_PER_MS) /* the connection may have broken, and the ask be lost with it */
#define ASK_SOON_US US_PER_MS         /* there was no room for an ask */
#define NEAR_END_US (10 * US_PER_S)   /* then the next window is passed along, too: clocks differ by less */

/* A slice was lent for one `max`, and is not spent for another one: that of another plan of the rule, or of an override. */
static uint64_t max_mark(const struct bound_rule *rule, uint64_t max)
{
    return key_mix(rule->rest->id, max);
}

/* A copy of the table does not find the slices that the original was lent. */
uint64_t slice_cell_of(const struct cells *cells, const struct bound_rule *rule, const struct bound_limit *limit,
                       uint64_t subject)
{
    uint64_t mark = rule->chooses ? max_mark(rule, limit->terms->spec->max) : 0;
    return cell_key(limit, subject ^ SLICE_MARK ^ cells_identity(cells) ^ mark);
}

uint64_t standin_cell_of(const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ STANDIN_MARK);
}

uint64_t debt_cell_of(const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ DEBT_MARK);
}

/* The same for a limit that requests bring. */
uint64_t slice_cell(const struct decision *d, const struct counter *c)
{
    uint64_t mark = c->given ? max_mark(c->rule, c->numbers.max) : 0;
    return slice_cell_of(d->bound->cells, c->rule, c->limit, counter_subject(c) ^ mark);
}

uint32_t slice_size(const struct counter *c)
{
    const struct limit *limit = counter_limit(c);
    uint64_t size = limit->max / RULE_SLICE_WHOLE * c->rule->rule->kind->rest->lease.slice +
                    limit->max % RULE_SLICE_WHOLE * c->rule->rule->kind->rest->lease.slice / RULE_SLICE_WHOLE;
    if (size > UINT32_MAX)
        return UINT32_MAX;
    return size > 0 ? (uint32_t)size : 1;
}

/* ---- rules that stay ---- */

void remote_hold_rules(struct decision *d)
{
    d->remote->holds_rules = true;
    __atomic_add_fetch(&((struct bound *)d->bound)->waiting, 1, __ATOMIC_SEQ_CST);
}

void remote_release_rules(struct decision *d)
{
    if (d->remote->holds_rules)
        __atomic_sub_fetch(&((struct bound *)d->bound)->waiting, 1, __ATOMIC_SEQ_CST);
    d->remote->holds_rules = false;
}

/* ---- the plan ---- */

static void init_counter(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    rc->renew = rc->insisted = rc->owes = rc->late = rc->withheld = false;
    rc->tokens = rc->spent = 0;
    rc->payment.amount = 0;
    rc->clock_us = 0;
    rc->cell = NULL;
    rc->key_len = rc->field_len = 0;
    if (__builtin_expect(c->given, 0))
        rc->field_len = field_write_given(rc->field, c->limit->terms->spec, c->length_us);
    c->outcome = COUNTER_FITS;
    c->look.state = (struct limit_state){ 0 };
    c->look.cell = NULL;
    c->state = &c->look.state;
    if (c->kind == COUNTER_SLICE) {
        c->ask.key = slice_cell(d, c);
        cells_prefetch(d->bound->cells, c->ask.key);
    }
}

void remote_init(struct decision *d, const sv *users)
{
    struct remote *r = d->remote;
    r->request = *d->request;
    r->users = users;
    r->fresh = true;
    r->since_us = clock_steady_us();
    d->request = &r->request;
    d->remote_from = 0;
    for (size_t i = 0; i < d->count; i++)
        init_counter(d, &d->counters[i]);
}

void remote_set_now(struct decision *d, int64_t now_us)
{
    now_us = clock_within(now_us);
    d->now_us = now_us;
    d->remote->since_us = clock_steady_us();
    for (size_t i = 0; i < d->count; i++) {
        struct counter *c = &d->counters[i];
        c->ask.now_us = now_us;
        if (c->limit->terms->limit.algorithm == LIMIT_CALENDAR)
            c->window = counter_window(c, now_us);
    }
}

/* ---- names in the store ---- */

static void make_key(const struct decision *d, struct facts *facts, size_t i)
{
    const struct counter *c = &d->counters[i];
    struct remote_counter *rc = &d->remote->counters[i];
    if (c->rule->by_path)
        facts_select_reading(facts, c->reading);
    rc->key_len = key_write_facts(rc->key, c->rule, facts);
}

static bool lacks_key(const struct decision *d, size_t i)
{
    const struct counter *c = &d->counters[i];
    bool in_store = c->kind != COUNTER_CELL && c->rule->counter != COUNTER_CELL;
    return in_store && c->first && d->remote->counters[i].key_len == 0;
}

void remote_make_keys(struct decision *d)
{
    struct remote *r = d->remote;
    struct facts facts;
    size_t begun = SIZE_MAX; /* the part that the facts are of */
    for (size_t i = 0; r->fresh && i < d->count; i++) {
        size_t part = d->counters[i].part;
        if (!lacks_key(d, i))
            continue;
        if (begun != part) {
            const struct weir_request *request = &r->request;
            for (size_t k = 0; k < part; k++)
                request = request->with;
            facts_init(&facts, d->bound->ruleset, request, r->users[part]);
        }
        begun = part;
        make_key(d, &facts, i);
    }
}

sv remote_key(const struct decision *d, const struct counter *c)
{
    while (!c->first)
        c--;
    const struct remote_counter *rc = remote_of(d, c);
    return sv_of(rc->key, rc->key_len);
}

sv remote_field(const struct decision *d, const struct counter *c)
{
    if (__builtin_expect(!c->given, 1))
        return c->limit->terms->field;
    const struct remote_counter *rc = remote_of(d, c);
    return sv_of(rc->field, rc->field_len);
}

/* ---- what is known about the store ---- */

static struct lender_status store_status(const struct decision *d)
{
    const struct weir *weir = d->remote->weir;
    if (!weir->store)
        return lender_status_read(d->bound->cells, clock_steady_us());
    return (struct lender_status){
        .counters = true,
        .up = weir->ops->up(weir->store),
        .hosts = weir->ops->hosts(weir->store),
        .offset_us = weir->ops->offset_us(weir->store),
    };
}

int64_t remote_offset_us(const struct decision *d)
{
    return store_status(d).offset_us;
}

/* The calendar windows of the store's clock: the current one, and, near its end, the one after it. */
static void store_windows(const struct counter *c, int64_t store_us, struct window *ret, struct window *ret_next)
{
    *ret = *ret_next = (struct window){ 0, 0 };
    if (c->limit->terms->limit.algorithm != LIMIT_CALENDAR)
        return;
    store_us = clock_within(store_us);
    *ret = counter_window(c, store_us);
    *ret_next = (struct window){ ret->end_us, ret->end_us };
    if (ret->end_us - store_us < NEAR_END_US && clock_valid(ret->end_us))
        *ret_next = c->given ? counter_window(c, ret->end_us) : rule_limit_window(c->limit->terms->spec, ret->end_us);
}

/* ---- asking for slices ---- */

/* Returns false if there is no room for the ask now. */
static bool ask_for(struct decision *d, const struct counter *c, const struct lender_status *status)
{
    const struct weir *weir = d->remote->weir;
    sv key = remote_key(d, c), field = remote_field(d, c);
    uint32_t needs = (uint32_t)limit_needs(counter_limit(c), c->ask.cost); /* a slice that cannot hold it has refused */
    struct slice_ask ask = {
        .cell = c->ask.key,
        .limit = *counter_limit(c),
        .need = c->kind == COUNTER_COUNTED ? 0 : needs,
        .slice = slice_size(c),
        .ttl_ms = c->rule->rule->kind->rest->lease.ttl_ms,
        .owed = debt_cell(c),
        .key_len = (uint16_t)key.len,
        .field_len = (uint16_t)field.len,
    };
    store_windows(c, d->now_us + status->offset_us, &ask.window, &ask.next);
    memcpy(ask.key, key.ptr, key.len);
    memcpy(ask.field, field.ptr, field.len);
    if (weir->store)
        return weir->ops->want(weir->store, &ask);
    ask.need += ask.need == 0; /* who needs nothing owes something; the board knows no ask for nothing */
    return ask_post(d->bound->cells, &ask, clock_steady_us());
}

bool remote_ask_for_short(struct decision *d)
{
    struct lender_status status = store_status(d);
    if (!status.up)
        return false;
    remote_make_keys(d);
    d->remote->retry_us = ASK_AGAIN_US;
    for (size_t i = 0; i < d->enforced; i++)
        if (d->counters[i].outcome == COUNTER_SHORT && !ask_for(d, &d->counters[i], &status))
            d->remote->retry_us = ASK_SOON_US;
    return true;
}

static bool wants_more(const struct decision *d, size_t i)
{
    const struct counter *c = &d->counters[i];
    if (c->kind == COUNTER_COUNTED)
        return d->remote->counters[i].renew;
    return c->kind == COUNTER_SLICE && (d->remote->counters[i].renew || (c->outcome == COUNTER_SHORT && i >= d->enforced));
}

void remote_renew_slices(struct decision *d)
{
    struct lender_status status = { 0 };
    for (size_t i = 0; i < d->count; i++) {
        if (!wants_more(d, i))
            continue;
        if (!status.counters)
            status = store_status(d);
        if (!status.up)
            return;
        remote_make_keys(d);
        ask_for(d, &d->counters[i], &status);
        d->remote->counters[i].renew = false;
    }
}

void remote_report_overdrafts(struct decision *d)
{
    bool any = false;
    for (size_t i = 0; i < d->count; i++) {
        const struct counter *c = &d->counters[i];
        struct remote_counter *rc = &d->remote->counters[i];
        bool overdrawn = c->kind == COUNTER_SLICE && c->held && rc->spent < c->ask.cost;
        rc->renew = rc->renew || overdrawn;
        any = any || overdrawn;
    }
    if (any)
        remote_renew_slices(d);
}

/* ---- the call ---- */

bool remote_wants_store(const struct decision *d)
{
    for (size_t i = 0; !d->remote->gave_up && i < d->count; i++)
        if (d->counters[i].kind == COUNTER_STORE)
            return true;
    return false;
}

bool remote_insists_in_store(const struct decision *d)
{
    for (size_t i = 0; d->charges && !d->remote->gave_up && i < d->count; i++)
        if (d->counters[i].kind == COUNTER_STORE && counter_insists(&d->counters[i]))
            return true;
    return false;
}

static uint32_t *late_slot(const struct decision *d, const struct counter *c)
{
    return &d->remote->weir->late[debt_cell(c) % LATE_SLOTS];
}

/* Returns whether no late answer may undo what is owed. A late call is counted before the debt that it leaves can be seen,
 * and until its answer has undone that debt: so the debt is read before the slot, and once more after it. */
static bool is_firm(const struct decision *d, const struct counter *c, const struct payment *payment)
{
    struct limit_state seen;
    return __atomic_load_n(late_slot(d, c), __ATOMIC_SEQ_CST) == 0 &&
           debt_amount(d->bound->cells, debt_cell(c), counter_limit(c), &c->window, c->ask.now_us, &seen) ==
               payment->amount;
}

static void begin_payment(struct decision *d, struct counter *c)
{
    struct remote_counter *rc = remote_of(d, c);
    struct payment *payment = &rc->payment;
    uint64_t cell = debt_cell(c);
    rc->withheld = false;
    if (counter_limit(c)->algorithm == LIMIT_CONCURRENT)
        return; /* what is in flight is never owed */
    payment_begin(payment, d->bound->cells, cell, counter_limit(c), &c->window, c->ask.now_us);
    if (payment->amount == 0 || is_firm(d, c, payment))
        return;
    payment_end(payment, d->bound->cells, cell, counter_limit(c), false, c->ask.now_us);
    rc->withheld = true;
}

bool remote_withholds(const struct decision *d)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->remote->counters[i].withheld)
            return true;
    return false;
}

void remote_count_late(struct decision *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct remote_counter *rc = &d->remote->counters[i];
        if (!rc->cell || rc->late)
            continue;
        rc->late = true;
        __atomic_add_fetch(late_slot(d, &d->counters[i]), 1, __ATOMIC_SEQ_CST);
    }
}

void remote_uncount_late(struct decision *d, bool settled)
{
    for (size_t i = 0; i < d->count; i++) {
        struct remote_counter *rc = &d->remote->counters[i];
        bool open = rc->owes || rc->insisted || rc->payment.amount > 0;
        if (!rc->late || (open && !settled))
            continue;
        rc->late = false;
        __atomic_sub_fetch(late_slot(d, &d->counters[i]), 1, __ATOMIC_SEQ_CST);
    }
}

struct store_cell *remote_add_to_call(struct decision *d, struct counter *c)
{
    struct store_call *call = &d->remote->call;
    struct store_rule *rule = &call->rules[call->rule_count];
    sv key = remote_key(d, c);
    if (call->rule_count > 0 && rule[-1].key.ptr == key.ptr) {
        rule--;
    } else {
        struct store_cell *next = call->rule_count++ > 0 ? rule[-1].cells + rule[-1].cell_count : d->remote->cells;
        *rule = (struct store_rule){ .key = key, .cells = next, .shadow = c >= d->counters + d->enforced };
    }
    struct store_cell *cell = &rule->cells[rule->cell_count++];
    *cell = (struct store_cell){ .limit = counter_limit(c), .field = remote_field(d, c), .cost = c->ask.cost };
    cell->own = c->ask.cost;
    cell->charging = c->charging;
    remote_of(d, c)->of = rule;
    return remote_of(d, c)->cell = cell;
}

/* A limit may be there several times for one subject, under different numbers: a rule whose plan is chosen by the path has
 * one for each plan that some reading chooses, and requests that are decided together may have different plans, or bring
 * different limits. The script judges all cells by what is stored, and what it writes for the last of them stands: that one
 * counts what the others cost and owe, too. */
static void add_planned_before(const struct decision *d, const struct counter *c, struct store_cell *cell)
{
    bool alone = d->parts == 1;
    bool several = alone ? c->rule->by_path && c->rule->rule->kind->rest->plan_count > 0
                         : c->rule->rule->kind->rest->plan_count > 0 || c->given;
    if (!several || cell->charging != WEIR_CHARGE_IF_ROOM)
        return; /* the script knows what cells that are charged in any case have left */
    for (size_t i = (size_t)(c - d->counters); i-- > 0 && (!alone || d->counters[i].rule == c->rule);) {
        const struct counter *before = &d->counters[i];
        const struct store_cell *same = remote_of(d, before)->cell;
        if (!same || counter_subject(before) != counter_subject(c) || before->limit->id != c->limit->id ||
            before->charging != c->charging)
            continue;
        cell->cost = same->cost + cell->cost <= WEIR_AMOUNT_MAX ? same->cost + cell->cost : WEIR_AMOUNT_MAX + 1;
        cell->debt = same->debt > cell->debt ? same->debt : cell->debt;
        return;
    }
}

void remote_settle_call(struct decision *d, bool keep)
{
    struct remote *r = d->remote;
    for (size_t i = 0; i < d->count; i++) {
        struct store_cell *cell = r->counters[i].cell;
        if (!cell)
            continue;
        cell->cost = cell->own; /* see add_planned_before() */
        cell->to = keep || cell->charging != WEIR_CHARGE_IF_ROOM ? cell->cost : 0;
    }
    r->weir->ops->link_settle(r->call.link, &r->call);
}

bool remote_undo_insisted(struct decision *d)
{
    bool any = false;
    for (size_t i = 0; i < d->enforced; i++) {
        struct counter *c = &d->counters[i];
        struct remote_counter *rc = &d->remote->counters[i];
        if (!rc->insisted || !rc->cell || rc->of->result != STORE_DECIDED)
            continue;
        if (rc->standin == ON_FAILURE_LOCAL)
            cells_give_back(d->bound->cells, &c->ask);
        debt_undo(d->bound->cells, debt_cell(c), counter_limit(c), rc->owed, c->ask.now_us, c->ask.cost,
                  decision_now_us(d));
        rc->insisted = false;
        any = true;
    }
    return any;
}

/* Adds those that are charged or given back in any case, or the others. */
static void call_about(struct decision *d, bool insist, const struct lender_status *status)
{
    struct remote *r = d->remote;
    for (size_t i = 0; i < d->count; i++) {
        struct counter *c = &d->counters[i];
        if (c->kind != COUNTER_STORE || (c->charging != WEIR_CHARGE_IF_ROOM) != insist)
            continue;
        begin_payment(d, c);
        struct store_cell *cell = remote_add_to_call(d, c);
        cell->hold = hold_in_store(d, c, (size_t)(cell - r->cells));
        cell->debt = r->counters[i].payment.amount;
        add_planned_before(d, c, cell);
        int64_t clock_us = r->counters[i].clock_us > 0 ? r->counters[i].clock_us : d->now_us + status->offset_us;
        store_windows(c, clock_us, &cell->window, &cell->next);
    }
}

void remote_make_call(struct decision *d)
{
    struct remote *r = d->remote;
    struct lender_status status = store_status(d);
    remote_make_keys(d);
    r->call.rule_count = 0;
    for (size_t i = 0; i < d->count; i++)
        r->counters[i].cell = NULL;
    r->call.charge = d->charges;
    r->call.hold_id = d->holds ? d->hold_id : 0;
    r->call.now_us = r->weir->store_by_now ? d->now_us : 0;
    if (__builtin_expect(d->insists, 0))
        call_about(d, true, &status);
    if (!r->refused)
        call_about(d, false, &status);
}

void remote_take_debts_along(struct decision *d)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct counter *c = &d->counters[i];
        payment_end(&d->remote->counters[i].payment, d->bound->cells, debt_cell(c), counter_limit(c), false,
                    decision_now_us(d));
    }
    remote_make_call(d);
}

/* A part of the call may have charged its debts although another one failed. */
void remote_end_payments(struct decision *d)
{
    struct remote *r = d->remote;
    uint64_t paid = 0;
    for (size_t i = 0; i < d->count; i++) {
        const struct counter *c = &d->counters[i];
        struct remote_counter *rc = &r->counters[i];
        if (rc->payment.amount > 0)
            paid += payment_end(&rc->payment, d->bound->cells, debt_cell(c), counter_limit(c), rc->cell->debt == 0,
                                decision_now_us(d));
    }
    if (paid > 0)
        r->weir->ops->count(r->weir->store, STORE_RECONCILED, paid);
}

static void take_outcome(const struct store_call *call, const struct remote_counter *rc, struct counter *c)
{
    const struct store_cell *cell = rc->cell;
    int64_t server_us = rc->of->server_us;
    c->look.state = cell->state;
    c->state = &c->look.state;
    c->outcome = cell->fits ? COUNTER_FITS : COUNTER_REFUSES;
    c->held = call->charge && call->allowed && rc->of->fits && c->ask.cost > 0 && cell->charging == WEIR_CHARGE_IF_ROOM;
    c->on_hold = c->held && cell->hold.ttl_us > 0;
    c->ask.now_us = server_us;
    c->window = server_us < cell->window.end_us ? cell->window : cell->next;
}

/* Rules that did not answer say nothing: they are shadow rules, or the call failed. */
void remote_take_answer(struct decision *d)
{
    struct remote *r = d->remote;
    for (size_t i = 0; i < d->count; i++) {
        struct counter *c = &d->counters[i];
        struct remote_counter *rc = &r->counters[i];
        if (!rc->cell)
            continue;
        bool counted = __builtin_expect(rc->cell->charging != WEIR_CHARGE_IF_ROOM, 0) && r->call.charge;
        rc->clock_us = rc->of->server_us > 0 ? rc->of->server_us : rc->clock_us;
        if (rc->of->result != STORE_DECIDED || (r->call.result != STORE_DECIDED && !counted))
            continue;
        take_outcome(&r->call, rc, c);
        if (!counted)
            continue;
        c->kind = COUNTER_COUNTED;
        r->refused = r->refused || (c->outcome == COUNTER_REFUSES && i < d->enforced);
    }
}

/* ---- without the store ---- */

/* Calendar windows are those of the store's clock, told by this host's: the cells are judged by that. */
static void use_store_window(struct counter *c, int64_t offset_us)
{
    if (c->limit->terms->limit.algorithm != LIMIT_CALENDAR)
        return;
    struct window window = counter_window(c, clock_within(c->ask.now_us + offset_us));
    c->window = (struct window){ window.start_us - offset_us, window.end_us - offset_us };
}

/* This host's share of a limit. A share below 1 lets nothing through, be it of `max` or of `burst`. */
static void init_share(struct limit *ret, const struct counter *c, uint32_t hosts)
{
    const struct rule_limit *spec = c->limit->terms->spec;
    bool nothing = spec->burst > 0 && spec->burst < hosts;
    limit_init(ret, spec->algorithm, nothing ? 0 : counter_limit(c)->max / hosts, spec->burst / hosts, spec->per_us);
    ret->overdraft = spec->overdraft;
}

/* The stand-in counts on from outage to outage: paying the debt does not empty it, since what it counts was let through
 * in addition to what the store let through. */
static void replace_counter(struct decision *d, struct counter *c, const struct lender_status *status)
{
    struct remote_counter *rc = remote_of(d, c);
    c->kind = COUNTER_STANDIN;
    c->ask.key = standin_cell_of(c->limit, counter_subject(c));
    rc->standin = c->rule->rule->kind->on_failure;
    rc->share = *counter_limit(c);
    rc->renew = false;
    use_store_window(c, status->offset_us);
    if (rc->standin != ON_FAILURE_LOCAL)
        return;
    init_share(&rc->share, c, status->hosts > 0 ? status->hosts : 1);
    uint64_t needs = limit_needs(&rc->share, c->ask.cost);
    c->ask.limit = &rc->share;
    /* No wait makes room for this cost in the share, but the store may have room when it is back. */
    bool too_large = rc->share.max == 0 || needs > rc->share.capacity;
    if (too_large && counter_limit(c)->max > 0 && needs <= counter_limit(c)->capacity) {
        /* A cost of 0 needs no share. */
        rc->standin = c->ask.cost > 0 ? ON_FAILURE_DENY : ON_FAILURE_LOCAL;
        c->ask.limit = counter_limit(c);
    }
}

static bool is_replaced(const struct decision *d, size_t i, size_t count, enum counter_kind kind)
{
    for (size_t k = i; kind == COUNTER_SLICE && k < i + count; k++)
        if (d->counters[k].outcome == COUNTER_SHORT)
            return true;
    return kind == COUNTER_STORE;
}

/* Shadow rules are left alone: they say nothing while nothing is known. */
void remote_replace(struct decision *d, enum counter_kind kind)
{
    struct lender_status status = store_status(d);
    d->remote->gave_up = d->remote->gave_up || kind == COUNTER_STORE;
    for (size_t i = 0, count; i < d->enforced; i += count) {
        count = decision_rule_counters(d, i);
        if (is_replaced(d, i, count, kind))
            for (size_t k = i; k < i + count; k++)
                if (d->counters[k].kind == kind)
                    replace_counter(d, &d->counters[k], &status);
    }
}

/* A shadow rule has no stand-in: it says nothing, and is not asked any more. */
static void do_without(struct decision *d, struct counter *c, const struct lender_status *status)
{
    if (c < d->counters + d->enforced)
        replace_counter(d, c, status);
    else
        c->kind = COUNTER_COUNTED;
}

/* A server whose clock has other windows is up. It is asked again with these, unless that has been tried. */
static bool has_failed(const struct store_call *call, const struct store_rule *rule)
{
    if (rule->result == STORE_STALE)
        return call->result == STORE_STALE;
    return rule->result != STORE_DECIDED && rule->result != STORE_UNTRIED;
}

bool remote_replace_failed(struct decision *d)
{
    struct lender_status status = store_status(d);
    bool any = false;
    for (size_t i = 0; i < d->count; i++) {
        const struct remote_counter *rc = &d->remote->counters[i];
        if (d->counters[i].kind != COUNTER_STORE || !rc->cell || !has_failed(&d->remote->call, rc->of))
            continue;
        do_without(d, &d->counters[i], &status);
        any = true;
    }
    return any;
}

static bool has_several_servers(const struct weir *weir)
{
    return weir->store && weir->ops->several && weir->ops->several(weir->store);
}

/* The only server is reachable: the store is up. */
static bool is_reachable(struct decision *d, const struct counter *c)
{
    const struct weir *weir = d->remote->weir;
    if (!has_several_servers(weir))
        return true;
    remote_make_keys(d);
    return weir->ops->answers(weir->store, remote_key(d, c));
}

/* Returns whether a rule needs a place in the store that does not answer: an exact rule always does, a leased one if it is
 * short. Then all limits of the rule are replaced. */
static bool is_cut_off(struct decision *d, size_t i, size_t count, enum counter_kind kind)
{
    for (size_t k = i; k < i + count; k++) {
        struct counter *c = &d->counters[k];
        bool asks = kind == COUNTER_STORE || (c->outcome == COUNTER_SHORT && i < d->enforced);
        if (c->kind == kind && asks && !is_reachable(d, c))
            return true;
    }
    return false;
}

bool remote_replace_unreachable(struct decision *d, enum counter_kind kind)
{
    struct lender_status status;
    bool any = false;
    if (!has_several_servers(d->remote->weir))
        return false;
    for (size_t i = 0, count; i < d->count; i += count) {
        count = kind == COUNTER_STORE ? 1 : decision_rule_counters(d, i);
        if (!is_cut_off(d, i, count, kind))
            continue;
        if (!any)
            status = store_status(d);
        any = true;
        for (size_t k = i; k < i + count; k++)
            if (d->counters[k].kind == kind)
                do_without(d, &d->counters[k], &status);
    }
    return any;
}

bool remote_stand_in(struct decision *d, struct counter *c)
{
    struct lender_status status = store_status(d);
    status.up = status.up && is_reachable(d, c);
    if (status.up || c >= d->counters + d->enforced)
        return false;
    replace_counter(d, c, &status);
    return true;
}
