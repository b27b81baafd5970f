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

/* A copy of the table does not find the slices that the original was lent. */
uint64_t slice_cell(const struct cells *cells, const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ SLICE_MARK ^ cells_identity(cells) ^ limit->slice_mark);
}

uint64_t standin_cell(const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ STANDIN_MARK);
}

uint64_t debt_cell(const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ DEBT_MARK);
}

uint32_t slice_size(const struct counter *c)
{
    uint64_t size = c->limit->limit.max / RULE_SLICE_WHOLE * c->rule->rule->lease.slice +
                    c->limit->limit.max % RULE_SLICE_WHOLE * c->rule->rule->lease.slice / RULE_SLICE_WHOLE;
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
    rc->renew = false;
    rc->tokens = 0;
    rc->payment.amount = 0;
    rc->cell = NULL;
    rc->key_len = 0;
    c->outcome = COUNTER_FITS;
    c->look.state = (struct limit_state){ 0 };
    c->look.cell = NULL;
    c->state = &c->look.state;
    if (c->kind == COUNTER_SLICE) {
        c->ask.key = slice_cell(d->bound->cells, c->limit, c->subject);
        cells_prefetch(d->bound->cells, c->ask.key);
    }
}

void remote_init(struct decision *d, sv user)
{
    struct remote *r = d->remote;
    r->request = *d->request;
    r->user = user;
    r->fresh = true;
    r->since_us = clock_steady_us();
    d->request = &r->request;
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
        if (c->limit->limit.algorithm == LIMIT_CALENDAR)
            c->window = limit_current_window(c->limit, now_us);
    }
}

/* ---- names in the store ---- */

/* The first limit of a rule and subject. */
static bool is_first(const struct counter *c)
{
    return c->limit->first;
}

void remote_make_keys(struct decision *d)
{
    struct remote *r = d->remote;
    struct facts facts;
    bool begun = false;
    for (size_t i = 0; r->fresh && i < d->count; i++) {
        const struct counter *c = &d->counters[i];
        struct remote_counter *rc = &r->counters[i];
        if (c->kind == COUNTER_CELL || !is_first(c) || rc->key_len > 0)
            continue;
        if (!begun)
            facts_init(&facts, d->bound->ruleset, &r->request, r->user);
        begun = true;
        if (c->rule->by_path)
            facts_select_reading(&facts, c->reading);
        rc->key_len = key_write_facts(rc->key, c->rule, &facts);
    }
}

sv remote_key(const struct decision *d, const struct counter *c)
{
    while (!is_first(c))
        c--;
    const struct remote_counter *rc = remote_of(d, c);
    return sv_of(rc->key, rc->key_len);
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
static void store_windows(const struct bound_limit *limit, int64_t store_us, struct window *ret, struct window *ret_next)
{
    *ret = *ret_next = (struct window){ 0, 0 };
    if (limit->limit.algorithm != LIMIT_CALENDAR)
        return;
    store_us = clock_within(store_us);
    *ret = limit_current_window(limit, store_us);
    *ret_next = (struct window){ ret->end_us, ret->end_us };
    if (ret->end_us - store_us < NEAR_END_US && clock_valid(ret->end_us))
        *ret_next = rule_limit_window(limit->spec, ret->end_us);
}

/* ---- asking for slices ---- */

/* Returns false if there is no room for the ask now. */
static bool ask_for(struct decision *d, const struct counter *c, const struct lender_status *status)
{
    const struct weir *weir = d->remote->weir;
    sv key = remote_key(d, c);
    struct slice_ask ask = {
        .cell = c->ask.key,
        .limit = c->limit->limit,
        .need = (uint32_t)limit_needs(&c->limit->limit, c->ask.cost), /* a slice that cannot hold it has refused */
        .slice = slice_size(c),
        .ttl_ms = c->rule->rule->lease.ttl_ms,
        .owed = debt_cell(c->limit, c->subject),
        .key_len = (uint16_t)key.len,
        .field_len = (uint16_t)c->limit->field.len,
    };
    store_windows(c->limit, d->now_us + status->offset_us, &ask.window, &ask.next);
    memcpy(ask.key, key.ptr, key.len);
    memcpy(ask.field, c->limit->field.ptr, c->limit->field.len);
    return weir->store ? weir->ops->want(weir->store, &ask) : ask_post(d->bound->cells, &ask, clock_steady_us());
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

static void begin_payment(struct decision *d, struct counter *c)
{
    struct payment *payment = &remote_of(d, c)->payment;
    uint64_t cell = debt_cell(c->limit, c->subject);
    if (c->limit->limit.algorithm == LIMIT_CONCURRENT)
        return; /* what is in flight is never owed */
    payment_begin(payment, d->bound->cells, cell, &c->limit->limit, &c->window, c->ask.now_us);
    /* Read last: a late call is counted here before the debt that it leaves is seen above, and its answer may undo that
     * debt. */
    if (payment->amount > 0 && __atomic_load_n(&d->remote->weir->late, __ATOMIC_SEQ_CST) > 0)
        payment_end(payment, d->bound->cells, cell, &c->limit->limit, false, c->ask.now_us);
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
    *cell = (struct store_cell){ .limit = &c->limit->limit, .field = c->limit->field, .cost = c->ask.cost };
    return remote_of(d, c)->cell = cell;
}

/* A rule whose plan is chosen by the path may have a limit several times for one subject, once for each plan that some
 * reading chooses. The script judges all cells by what is stored, and what it writes for the last of them stands: that one
 * counts what the others cost and owe, too. */
static void add_planned_before(const struct decision *d, const struct counter *c, struct store_cell *cell)
{
    if (!c->rule->by_path || c->rule->rule->plan_count == 0)
        return;
    for (size_t i = (size_t)(c - d->counters); i-- > 0 && d->counters[i].rule == c->rule;) {
        const struct counter *before = &d->counters[i];
        const struct store_cell *same = remote_of(d, before)->cell;
        if (!same || before->subject != c->subject || before->limit->id != c->limit->id)
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
        cell->cost = d->counters[i].ask.cost; /* its own: see add_planned_before() */
        cell->to = keep ? cell->cost : 0;
    }
    r->weir->ops->link_settle(r->call.link, &r->call);
}

void remote_make_call(struct decision *d)
{
    struct remote *r = d->remote;
    struct lender_status status = store_status(d);
    remote_make_keys(d);
    r->call.charge = d->charges;
    r->call.hold_id = d->holds ? d->hold_id : 0;
    r->call.now_us = r->weir->store_by_now ? d->now_us : 0;
    for (size_t i = 0; i < d->count; i++) {
        struct counter *c = &d->counters[i];
        if (c->kind != COUNTER_STORE)
            continue;
        begin_payment(d, c);
        struct store_cell *cell = remote_add_to_call(d, c);
        cell->hold = hold_in_store(d, c, (size_t)(cell - r->cells));
        cell->debt = r->counters[i].payment.amount;
        add_planned_before(d, c, cell);
        store_windows(c->limit, d->now_us + status.offset_us, &cell->window, &cell->next);
    }
}

void remote_renew_windows(struct decision *d)
{
    for (size_t i = 0; i < d->count; i++) {
        struct store_cell *cell = d->remote->counters[i].cell;
        if (cell)
            store_windows(d->counters[i].limit, d->remote->call.server_us, &cell->window, &cell->next);
    }
}

void remote_end_payments(struct decision *d)
{
    struct remote *r = d->remote;
    bool charged = r->call.result == STORE_DECIDED;
    uint64_t paid = 0;
    for (size_t i = 0; i < d->count; i++) {
        const struct counter *c = &d->counters[i];
        if (r->counters[i].payment.amount > 0)
            paid += payment_end(&r->counters[i].payment, d->bound->cells, debt_cell(c->limit, c->subject), &c->limit->limit,
                                charged, decision_now_us(d));
    }
    if (paid > 0)
        r->weir->ops->count(r->weir->store, STORE_RECONCILED, paid);
}

void remote_take_answer(struct decision *d)
{
    const struct store_call *call = &d->remote->call;
    for (size_t k = 0, i = 0; k < call->rule_count; k++)
        for (size_t n = 0; n < call->rules[k].cell_count; n++, i++) {
            while (d->counters[i].kind != COUNTER_STORE)
                i++;
            struct counter *c = &d->counters[i];
            const struct store_cell *cell = &call->rules[k].cells[n];
            c->look.state = cell->state;
            c->state = &c->look.state;
            c->outcome = cell->fits ? COUNTER_FITS : COUNTER_REFUSES;
            c->held = call->charge && call->allowed && call->rules[k].fits && c->ask.cost > 0;
            c->on_hold = c->held && cell->hold.ttl_us > 0;
            c->ask.now_us = call->server_us;
            c->window = call->server_us < cell->window.end_us ? cell->window : cell->next;
        }
}

/* ---- without the store ---- */

/* Calendar windows are those of the store's clock, told by this host's: the cells are judged by that. */
static void use_store_window(struct counter *c, int64_t offset_us)
{
    if (c->limit->limit.algorithm != LIMIT_CALENDAR)
        return;
    struct window window = limit_current_window(c->limit, clock_within(c->ask.now_us + offset_us));
    c->window = (struct window){ window.start_us - offset_us, window.end_us - offset_us };
}

/* This host's share of a limit. A share below 1 lets nothing through, be it of `max` or of `burst`. */
static void init_share(struct limit *ret, const struct rule_limit *spec, uint32_t hosts)
{
    bool nothing = spec->burst > 0 && spec->burst < hosts;
    limit_init(ret, spec->algorithm, nothing ? 0 : spec->max / hosts, spec->burst / hosts, spec->per_us);
    ret->overdraft = spec->overdraft;
}

/* The stand-in counts on from outage to outage: paying the debt does not empty it, since what it counts was let through
 * in addition to what the store let through. */
static void replace_counter(struct decision *d, struct counter *c, const struct lender_status *status)
{
    struct remote_counter *rc = remote_of(d, c);
    c->kind = COUNTER_STANDIN;
    c->ask.key = standin_cell(c->limit, c->subject);
    rc->standin = c->rule->rule->on_failure;
    rc->share = c->limit->limit;
    use_store_window(c, status->offset_us);
    if (rc->standin != ON_FAILURE_LOCAL)
        return;
    init_share(&rc->share, c->limit->spec, status->hosts > 0 ? status->hosts : 1);
    uint64_t needs = limit_needs(&rc->share, c->ask.cost);
    c->ask.limit = &rc->share;
    /* No wait makes room for this cost in the share, but the store may have room when it is back. */
    bool too_large = rc->share.max == 0 || needs > rc->share.capacity;
    if (too_large && c->limit->limit.max > 0 && needs <= c->limit->limit.capacity) {
        /* A cost of 0 needs no share. */
        rc->standin = c->ask.cost > 0 ? ON_FAILURE_DENY : ON_FAILURE_LOCAL;
        c->ask.limit = &c->limit->limit;
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

bool remote_stand_in(struct decision *d, struct counter *c)
{
    struct lender_status status = store_status(d);
    if (status.up || c >= d->counters + d->enforced)
        return false;
    replace_counter(d, c, &status);
    return true;
}
