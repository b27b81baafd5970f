#include "engine/shared.h"

#include <stdlib.h>

#include "base/err.h"
#include "engine/keys.h"
#include "engine/owed.h"
#include "engine/refund.h"
#include "engine/weir.h"
#include "limit/take.h"

/* Subjects are hashes: one bit pattern more or less keeps the cells apart. */
#define SLICE_MARK UINT64_C(0x736c6963652d6d6b)
#define STANDIN_MARK UINT64_C(0x7374616e642d696e)

enum {
    STALE_TRIES = 3,               /* windows that are still not those of the store's clock: it runs wild */
    DENIED_RETRY_MS = 1000,        /* what a refusal says whose store is away */
    NEAR_END_US = 10 * 1000 * 1000 /* the next window is passed along from then on: clocks differ by less */
};

/* A copy of the table does not find the slices that the original was lent. */
uint64_t slice_cell(const struct cells *cells, const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ SLICE_MARK ^ cells_identity(cells));
}

uint64_t standin_cell(const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ STANDIN_MARK);
}

/* ---- memory ---- */

/* Those that are made of 16-byte words come first. */
struct shared *shared_init(void *memory, size_t cap, struct weir *weir)
{
    struct plan_entry *entries = memory;
    struct shared *s = (struct shared *)(entries + cap);
    *s = (struct shared){ .weir = weir, .cap = cap };
    s->plan.entries = entries;
    s->more = (struct shared_entry *)(s + 1);
    s->cells = (struct store_cell *)(s->more + cap);
    s->rules = (struct store_rule *)(s->cells + cap);
    s->plan.order = (struct plan_entry **)(s->rules + cap);
    return s;
}

void shared_hold(struct shared *s)
{
    s->holds = true;
    __atomic_add_fetch(&((struct bound *)s->bound)->waiting, 1, __ATOMIC_SEQ_CST);
}

void shared_release(struct shared *s)
{
    if (s->holds)
        __atomic_sub_fetch(&((struct bound *)s->bound)->waiting, 1, __ATOMIC_SEQ_CST);
    s->holds = false;
}

/* ---- the plan ---- */

static struct store *store_of(const struct shared *s)
{
    return s->weir->store;
}

static struct shared_entry *more_of(const struct shared *s, const struct plan_entry *e)
{
    return &s->more[e - s->plan.entries];
}

static void choose_way(struct shared *s, struct plan_entry *e)
{
    struct shared_entry *m = more_of(s, e);
    static const enum way ways[] = { [COUNT_LOCAL] = WAY_CELLS, [COUNT_LEASED] = WAY_SLICE, [COUNT_EXACT] = WAY_STORE };
    m->way = ways[e->rule->counting];
    m->taken = m->instead = m->too_little = m->renew = m->claimed = false;
    m->debt = m->held = 0;
    m->end_us = 0;
    m->cell = NULL;
    m->key_len = 0;
    e->look.state = (struct limit_state){ 0 };
    e->state = &e->look.state;
    e->fits = true;
    if (m->way == WAY_SLICE) {
        e->ask.key = slice_cell(s->bound->cells, e->limit, e->subject);
        cells_prefetch(s->bound->cells, e->ask.key);
    }
}

/* The first limit of a rule and subject. */
static bool is_first(const struct shared *s, size_t i)
{
    return s->plan.entries[i].limit == s->plan.entries[i].rule->limits;
}

void shared_make_keys(struct shared *s, const struct weir_request *request, sv user, enum way way)
{
    struct facts facts;
    facts_init(&facts, s->bound->ruleset, request, user);
    for (size_t i = 0; i < s->plan.count; i++) {
        const struct plan_entry *e = &s->plan.entries[i];
        if (s->more[i].way != way || !is_first(s, i) || s->more[i].key_len > 0)
            continue;
        if (e->rule->by_path)
            facts_use(&facts, e->reading);
        s->more[i].key_len = key_write_facts(s->more[i].key, e->rule, &facts);
    }
}

sv shared_key(const struct shared *s, size_t i)
{
    while (!is_first(s, i))
        i--;
    return sv_of(s->more[i].key, s->more[i].key_len);
}

bool shared_plan(struct shared *s, const struct bound *bound, const struct weir_request *request, sv user, int64_t now_us,
                 size_t *ret_needed)
{
    struct plan_room room = { s->plan.entries, s->plan.order, s->cap };
    s->bound = bound;
    s->request = *request;
    if (!plan_make(&s->plan, bound, request, user, now_us, &room, ret_needed))
        return false;
    if (!s->plan.shared)
        return true;
    s->since_us = clock_steady_us();
    s->plan.request = &s->request;
    for (size_t i = 0; i < s->plan.count; i++) {
        choose_way(s, &s->plan.entries[i]);
        s->exact = s->exact || s->more[i].way == WAY_STORE;
    }
    return true;
}

struct shared *shared_new(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                          int64_t now_us, size_t cap)
{
    for (;;) {
        void *memory = cap ? malloc(shared_bytes(cap)) : NULL;
        if (!memory)
            return NULL;
        struct shared *s = shared_init(memory, cap, weir);
        if (shared_plan(s, bound, request, user, now_us, &cap))
            return s;
        free(memory);
    }
}

/* ---- what is known of the store ---- */

static struct lease_news news_of(const struct shared *s)
{
    struct store *store = store_of(s);
    if (!store)
        return lease_read_news(s->bound->cells, clock_steady_us());
    return (struct lease_news){
        .counters = true,
        .up = s->weir->ops->up(store),
        .hosts = s->weir->ops->hosts(store),
        .offset_us = s->weir->ops->offset_us(store),
    };
}

/* The calendar windows of the store's clock: the current one, and, near its end, the one after it. */
static void store_windows(const struct bound_limit *limit, int64_t store_us, struct window *ret, struct window *ret_next)
{
    *ret = *ret_next = (struct window){ 0, 0 };
    if (limit->limit.algorithm != LIMIT_CALENDAR)
        return;
    *ret = limit_current_window(limit, store_us);
    *ret_next = (struct window){ ret->end_us, ret->end_us };
    if (ret->end_us - store_us < NEAR_END_US && clock_valid(ret->end_us))
        *ret_next = calendar_window(&limit->spec->zone->tz, limit->spec->unit, limit->spec->week_start, ret->end_us);
}

static int64_t clock_within(int64_t us)
{
    return us < 0 ? 0 : us < CLOCK_END_US ? us : CLOCK_END_US - 1;
}

/* ---- asking for slices ---- */

static uint32_t slice_of(const struct plan_entry *e)
{
    uint64_t slice = (uint64_t)e->limit->limit.max * e->rule->rule->lease.slice / RULE_SLICE_WHOLE;
    return slice > 0 ? (uint32_t)slice : 1;
}

static void ask_for(struct shared *s, size_t i, const struct lease_news *news)
{
    const struct plan_entry *e = &s->plan.entries[i];
    sv key = shared_key(s, i);
    struct lease_ask ask = {
        .cell = e->ask.key,
        .limit = e->limit->limit,
        .need = e->ask.cost,
        .slice = slice_of(e),
        .ttl_ms = e->rule->rule->lease.ttl_ms,
        .owed = owed_cell(e->limit, e->subject),
        .key_len = (uint16_t)key.len,
        .field_len = (uint16_t)e->limit->field.len,
    };
    store_windows(e->limit, clock_within(s->plan.now_us + news->offset_us), &ask.window, &ask.next);
    memcpy(ask.key, key.ptr, key.len);
    memcpy(ask.field, e->limit->field.ptr, e->limit->field.len);
    if (store_of(s))
        s->weir->ops->want(store_of(s), &ask);
    else
        lease_post(s->bound->cells, &ask, clock_steady_us());
}

/* ---- taking on this host ---- */

enum here { HERE_FITS, HERE_REFUSED, HERE_SHORT };

/* What limit_report makes of a slice: this host's part of the window. */
static void tell_slice(struct plan_entry *e, const struct lease_spent *spent)
{
    const struct limit *l = &e->limit->limit;
    struct limit_count count = { .end_us = spent->end_us, .length = limit_length_pack(l->per_us) };
    if (l->algorithm == LIMIT_CALENDAR)
        count.length = limit_length_pack(e->window.end_us - e->window.start_us);
    count.count = spent->left < l->max ? l->max - spent->left : 0;
    e->look.state = spent->end_us > e->ask.now_us ? limit_count_state(&count) : (struct limit_state){ 0 };
    e->state = &e->look.state;
}

static enum here use_slice(struct shared *s, struct plan_entry *e, bool charge)
{
    struct shared_entry *m = more_of(s, e);
    const struct limit *l = &e->limit->limit;
    if (l->max == 0 || e->ask.cost > l->max) {
        e->fits = false;
        return HERE_REFUSED;
    }
    struct lease_spent spent =
        lease_spend(s->bound->cells, e->ask.key, slice_of(e), l->max, e->ask.now_us, e->ask.cost, charge);
    tell_slice(e, &spent);
    /* Looking fetches nothing, or whoever looks would take it from others: what is not known to be spent is there. */
    e->fits = spent.outcome == LEASE_TAKEN || (spent.outcome == LEASE_SHORT && !plan_charges(&s->plan));
    m->too_little = spent.outcome == LEASE_SHORT && !e->fits;
    if (e->fits && charge) {
        m->taken = true;
        m->end_us = spent.end_us;
        m->renew = spent.renew;
    }
    return e->fits ? HERE_FITS : m->too_little ? HERE_SHORT : HERE_REFUSED;
}

/* The stand-in is charged before what is owed: a process that dies between the two has counted too much here. */
static enum here use_cell(struct shared *s, struct plan_entry *e, bool charge)
{
    struct shared_entry *m = more_of(s, e);
    if (charge) {
        e->fits = m->taken = cells_take(s->bound->cells, &e->ask, &e->taken);
        e->state = &e->taken.state;
        if (m->taken && m->instead)
            owed_add(s, (size_t)(e - s->plan.entries));
    } else {
        cells_look(s->bound->cells, &e->ask, &e->look);
        e->fits = e->look.fits;
        e->state = &e->look.state;
    }
    return e->fits ? HERE_FITS : HERE_REFUSED;
}

static enum here use(struct shared *s, struct plan_entry *e, bool charge)
{
    struct shared_entry *m = more_of(s, e);
    if (m->taken)
        return HERE_FITS;
    switch (m->way) {
    case WAY_CELLS:
        return use_cell(s, e, charge);
    case WAY_SLICE:
        return use_slice(s, e, charge);
    case WAY_DENIED:
        e->fits = false;
        return HERE_REFUSED;
    case WAY_PASS:
        if (charge && m->instead)
            owed_add(s, (size_t)(e - s->plan.entries));
        m->taken = charge && m->instead;
        e->fits = true;
        return HERE_FITS;
    default:
        e->fits = true;
        return HERE_FITS;
    }
}

/* Gives back what was charged here among `count` entries from `from` on. */
static void give_back(struct shared *s, size_t from, size_t count)
{
    for (size_t i = from; i < from + count; i++) {
        struct plan_entry *e = &s->plan.entries[i];
        struct shared_entry *m = &s->more[i];
        if (!m->taken)
            continue;
        m->taken = false;
        if (m->way == WAY_SLICE)
            lease_unspend(s->bound->cells, e->ask.key, m->end_us, e->ask.cost);
        if (m->way == WAY_CELLS)
            cells_refund(e->ask.limit, &e->taken, shared_now_us(s));
        if (m->instead)
            owed_drop(s, i);
    }
}

/* A part of the plan that passes or fails as one: all of it is looked at, then all of it that counts on this host is taken.
 * Refused or short: nothing is. */
static enum here take_here(struct shared *s, size_t from, size_t count, bool charge)
{
    enum here worst = HERE_FITS;
    for (size_t i = from; i < from + count; i++) {
        enum here here = use(s, &s->plan.entries[i], false);
        if (here == HERE_REFUSED || (here == HERE_SHORT && worst == HERE_FITS))
            worst = here;
        if (here == HERE_REFUSED && charge && s->more[i].way == WAY_CELLS && s->plan.entries[i].look.cell)
            entry_tell_refusal(s->bound->cells, &s->plan.entries[i]);
    }
    for (size_t i = from; charge && worst == HERE_FITS && i < from + count; i++)
        worst = use(s, &s->plan.entries[i], true);
    if (worst != HERE_FITS)
        give_back(s, from, count);
    return worst;
}

/* ---- when the store is away ---- */

/* Calendar windows are those of the store's clock, told by this host's: the cells are judged by that. */
static void use_store_window(struct plan_entry *e, int64_t offset_us)
{
    if (e->limit->limit.algorithm != LIMIT_CALENDAR)
        return;
    struct window window = limit_current_window(e->limit, clock_within(e->ask.now_us + offset_us));
    e->window = (struct window){ window.start_us - offset_us, window.end_us - offset_us };
}

/* This host's share of a limit. A share below 1 lets nothing through, be it of `max` or of `burst`. */
static void init_share(struct limit *ret, const struct rule_limit *spec, uint32_t hosts)
{
    bool nothing = spec->burst > 0 && spec->burst < hosts;
    limit_init(ret, spec->algorithm, nothing ? 0 : spec->max / hosts, spec->burst / hosts, spec->per_us);
}

/* The stand-in counts on from outage to outage. Paying the store what is owed does not empty it: that was let through
 * besides what the store lets through. */
static void count_instead(struct shared *s, struct plan_entry *e, uint32_t hosts)
{
    struct shared_entry *m = more_of(s, e);
    init_share(&m->limit, e->limit->spec, hosts);
    /* No wait makes room in such a share, but the store may have room when it is back. */
    bool too_large = m->limit.max == 0 || e->ask.cost > m->limit.capacity;
    if (too_large && e->limit->limit.max > 0 && e->ask.cost <= e->limit->limit.capacity) {
        m->way = WAY_DENIED;
        return;
    }
    m->way = WAY_CELLS;
    m->instead = true;
    e->ask.limit = &m->limit;
    e->ask.key = standin_cell(e->limit, e->subject);
}

/* No limit, but what is let through is owed. */
static void let_pass(struct shared *s, const struct plan_entry *e)
{
    struct shared_entry *m = more_of(s, e);
    m->limit = e->limit->limit;
    m->way = WAY_PASS;
    m->instead = true;
}

/* The rule of entry i goes by its on_store_failure. */
static void fail_rule(struct shared *s, size_t i, const struct lease_news *news)
{
    const struct bound_rule *rule = s->plan.entries[i].rule;
    for (; i < s->plan.count && s->plan.entries[i].rule == rule; i++) {
        if (s->more[i].way != WAY_SLICE && s->more[i].way != WAY_STORE)
            continue;
        s->more[i].too_little = false;
        use_store_window(&s->plan.entries[i], news->offset_us);
        if (rule->rule->on_failure == ON_FAILURE_LOCAL)
            count_instead(s, &s->plan.entries[i], news->hosts > 0 ? news->hosts : 1);
        else if (rule->rule->on_failure == ON_FAILURE_ALLOW)
            let_pass(s, &s->plan.entries[i]);
        else
            s->more[i].way = WAY_DENIED;
    }
}

static bool fails_with(const struct shared *s, size_t i, enum way way)
{
    if (s->more[i].way != way)
        return false;
    for (size_t k = i; way == WAY_SLICE && k < s->plan.count && s->plan.entries[k].rule == s->plan.entries[i].rule; k++)
        if (s->more[k].too_little)
            return true;
    return way == WAY_STORE;
}

/* Rules that count that way (of slices: those that have too little) do without. Shadow rules are left alone: they say
 * nothing when nothing is known. */
static void fail_rules(struct shared *s, enum way way)
{
    struct lease_news news = news_of(s);
    for (size_t i = 0; i < s->plan.enforced; i++)
        if (is_first(s, i) && fails_with(s, i, way))
            fail_rule(s, i, &news);
    for (size_t i = s->plan.enforced; way == WAY_STORE && i < s->plan.count; i++)
        if (s->more[i].way == WAY_STORE)
            s->more[i].way = WAY_PASS;
}

/* ---- the end ---- */

static bool shadow_fits(struct shared *s, size_t from, size_t count, bool charge)
{
    bool fits = true;
    if (s->more[from].way == WAY_CELLS)
        return decide_group(&(struct group){ s->plan.entries + from, s->plan.order, count }, s->bound->cells, charge);
    if (s->more[from].way == WAY_SLICE)
        return take_here(s, from, count, charge) != HERE_REFUSED;
    for (size_t i = from; s->more[from].way == WAY_STORE && i < from + count; i++)
        fits = fits && (!s->more[i].cell || s->more[i].cell->fits);
    return fits;
}

static void decide_shadows(struct shared *s, struct weir_verdict *v)
{
    bool charge = plan_charges(&s->plan) && s->allowed;
    for (size_t i = s->plan.enforced; i < s->plan.count;) {
        const struct bound_rule *rule = s->plan.entries[i].rule;
        size_t count = plan_rule_entries(&s->plan, i);
        if (!shadow_fits(s, i, count, charge))
            verdict_add_shadow(v, &s->plan, rule);
        i += count;
    }
}

static bool is_denied(const struct shared *s)
{
    for (size_t i = 0; i < s->plan.enforced; i++)
        if (s->more[i].way == WAY_DENIED)
            return true;
    return false;
}

/* One that was denied because the store is away: the others are not to blame. */
static void tell_denied(struct shared *s, struct weir_verdict *v)
{
    for (size_t i = 0; i < s->plan.enforced; i++)
        s->plan.entries[i].fits = s->more[i].way != WAY_DENIED;
    plan_report(&s->plan, s->bound, false, v);
    v->status = 503;
    v->unavailable = true;
    v->remaining = 0;
    v->retry_after_ms = DENIED_RETRY_MS;
}

/* Slices that are nearly spent are asked for before they are missed, and nobody waits for them; nor for those of shadow
 * rules. */
static void renew(struct shared *s)
{
    struct lease_news news = { 0 };
    for (size_t i = 0; i < s->plan.count; i++) {
        struct shared_entry *m = &s->more[i];
        if (!m->renew && !(m->too_little && i >= s->plan.enforced))
            continue;
        if (!news.counters)
            news = news_of(s);
        if (!news.up)
            return;
        ask_for(s, i, &news);
        m->renew = m->too_little = false;
    }
}

static void finish(struct shared *s, bool allowed, struct weir_verdict *v)
{
    s->allowed = allowed;
    request_clear(&s->request);
    if (!allowed)
        give_back(s, 0, s->plan.enforced);
    if (!allowed && is_denied(s))
        tell_denied(s, v);
    else
        plan_report(&s->plan, s->bound, allowed, v);
    if (s->plan.count > s->plan.enforced) {
        decide_shadows(s, v);
        renew(s);
    }
    if (s->request.receipt && allowed && plan_charges(&s->plan))
        shared_receipt(s, s->request.receipt);
}

/* ---- the call ---- */

static void add_cell(struct shared *s, size_t i, const struct lease_news *news, struct store_cell *cell)
{
    struct plan_entry *e = &s->plan.entries[i];
    owed_take(s, i);
    *cell = (struct store_cell){ .limit = &e->limit->limit, .field = e->limit->field, .debt = s->more[i].debt };
    store_windows(e->limit, clock_within(s->plan.now_us + news->offset_us), &cell->window, &cell->next);
    s->more[i].cell = cell;
}

/* Everything of the plan that counts in the store. */
static void make_call(struct shared *s)
{
    struct lease_news news = news_of(s);
    size_t rules = 0, cells = 0;
    for (size_t i = 0; i < s->plan.count; i++) {
        if (s->more[i].way != WAY_STORE)
            continue;
        if (is_first(s, i))
            s->rules[rules++] =
                (struct store_rule){ .key = shared_key(s, i), .cells = &s->cells[cells], .shadow = i >= s->plan.enforced };
        s->rules[rules - 1].cell_count++;
        add_cell(s, i, &news, &s->cells[cells++]);
    }
    s->call.rules = s->rules;
    s->call.rule_count = rules;
    s->call.cost = s->request.cost;
    s->call.charge = plan_charges(&s->plan);
    s->call.now_us = s->weir->store_by_now ? s->plan.now_us : 0;
}

static bool wants_store(const struct shared *s)
{
    for (size_t i = 0; i < s->plan.count; i++)
        if (s->more[i].way == WAY_STORE)
            return true;
    return false;
}

static void take_answer(struct shared *s)
{
    for (size_t i = 0; i < s->plan.count; i++) {
        struct plan_entry *e = &s->plan.entries[i];
        const struct store_cell *cell = s->more[i].cell;
        if (s->more[i].way != WAY_STORE)
            continue;
        e->look.state = cell->state;
        e->state = &e->look.state;
        e->fits = cell->fits;
        e->ask.now_us = s->call.server_us;
        e->window = s->call.server_us < cell->window.end_us ? cell->window : cell->next;
    }
}

/* ---- the steps ---- */

static void ask_for_missing(struct shared *s, const struct lease_news *news)
{
    for (size_t i = 0; i < s->plan.enforced; i++)
        if (s->more[i].too_little)
            ask_for(s, i, news);
}

/* Takes what counts on this host. `request` is there at the first step only: then keys are made if slices have to be asked
 * for, now or later. */
static enum here take_or_ask(struct shared *s, const struct weir_request *request, sv user, bool may_wait)
{
    bool charge = plan_charges(&s->plan);
    enum here here = take_here(s, 0, s->plan.enforced, charge);
    bool renews = false;
    for (size_t i = 0; i < s->plan.enforced; i++)
        renews = renews || s->more[i].renew;
    if (request && (here == HERE_SHORT || renews))
        shared_make_keys(s, request, user, WAY_SLICE);
    if (renews)
        renew(s);
    while (here == HERE_SHORT) {
        struct lease_news news = news_of(s);
        if (may_wait && news.up) {
            ask_for_missing(s, &news);
            return HERE_SHORT;
        }
        if (store_of(s))
            s->weir->ops->count(store_of(s), STORE_NOT_ASKED, 1);
        fail_rules(s, WAY_SLICE);
        here = take_here(s, 0, s->plan.enforced, charge);
    }
    return here;
}

/* What the store would have decided is decided by on_store_failure. */
static void decide_without(struct shared *s, struct weir_verdict *v)
{
    fail_rules(s, WAY_STORE);
    finish(s, take_here(s, 0, s->plan.enforced, plan_charges(&s->plan)) == HERE_FITS, v);
}

static enum step go_on(struct shared *s, const struct weir_request *request, sv user, bool may_wait, struct weir_verdict *v)
{
    enum here here = take_or_ask(s, request, user, may_wait);
    if (here == HERE_SHORT)
        return STEP_SLICES;
    if (here == HERE_FITS && wants_store(s)) {
        if (weir_store_up(s->weir)) {
            make_call(s);
            return STEP_STORE;
        }
        if (store_of(s))
            s->weir->ops->count(store_of(s), STORE_NOT_ASKED, 1);
        decide_without(s, v);
        return STEP_DECIDED;
    }
    finish(s, here == HERE_FITS, v);
    return STEP_DECIDED;
}

enum step shared_begin(struct shared *s, sv user, bool may_wait, struct weir_verdict *ret_verdict)
{
    struct weir_request request = s->request;
    if (s->exact && store_of(s))
        shared_make_keys(s, &request, user, WAY_STORE);
    /* Nobody waits for slices of shadow rules: this is when to ask. */
    for (size_t i = s->plan.enforced; i < s->plan.count; i++)
        if (s->more[i].way == WAY_SLICE && s->more[i].key_len == 0 && is_first(s, i))
            shared_make_keys(s, &request, user, WAY_SLICE);
    return go_on(s, &request, user, may_wait, ret_verdict);
}

enum step shared_again(struct shared *s, int64_t now_us, bool may_wait, struct weir_verdict *ret_verdict)
{
    s->plan.now_us = now_us;
    s->since_us = clock_steady_us();
    for (size_t i = 0; i < s->plan.count; i++) {
        struct plan_entry *e = &s->plan.entries[i];
        e->ask.now_us = now_us;
        if (e->limit->limit.algorithm == LIMIT_CALENDAR)
            e->window = limit_current_window(e->limit, now_us);
    }
    return go_on(s, NULL, (sv){ 0 }, may_wait, ret_verdict);
}

static void renew_windows(struct shared *s)
{
    for (size_t i = 0; i < s->plan.count; i++) {
        struct store_cell *cell = s->more[i].cell;
        if (s->more[i].way == WAY_STORE)
            store_windows(s->plan.entries[i].limit, clock_within(s->call.server_us), &cell->window, &cell->next);
    }
}

enum step shared_answered(struct shared *s, struct weir_verdict *ret_verdict)
{
    if (s->call.result == STORE_STALE && ++s->stale < STALE_TRIES) {
        renew_windows(s);
        return STEP_STORE;
    }
    owed_settle(s);
    if (s->call.result == STORE_DECIDED) {
        take_answer(s);
        finish(s, s->call.allowed, ret_verdict);
    } else {
        decide_without(s, ret_verdict);
    }
    return STEP_DECIDED;
}

void shared_late(struct shared *s, struct weir_verdict *ret_verdict)
{
    s->late = true;
    __atomic_add_fetch(&s->weir->late, 1, __ATOMIC_SEQ_CST);
    decide_without(s, ret_verdict);
}

/* An answer that came after the verdict. */
static void make_up(struct shared *s)
{
    bool made_up = false;
    if (s->call.result != STORE_DECIDED || !s->call.allowed || !s->call.charge)
        return;
    /* It passed, and was counted here in place of the store: there it is counted now. */
    for (size_t i = 0; s->allowed && i < s->plan.enforced; i++)
        if (s->more[i].taken && s->more[i].instead) {
            give_back(s, i, 1);
            made_up = true;
        }
    if (!s->allowed) {
        s->weir->ops->link_refund(s->call.link, &s->call);
        made_up = true;
    }
    if (made_up)
        s->weir->ops->count(store_of(s), STORE_REFUNDED, 1);
}

void shared_aftermath(struct shared *s)
{
    make_up(s);
    owed_settle(s);
    if (s->late)
        __atomic_sub_fetch(&s->weir->late, 1, __ATOMIC_SEQ_CST);
    s->late = false;
}

/* ---- looking ---- */

static uint32_t lease_left_now(const struct shared *s, const struct plan_entry *e)
{
    return lease_spend(s->bound->cells, e->ask.key, slice_of(e), e->limit->limit.max, e->ask.now_us, 0, false).left;
}

enum step shared_look(struct shared *s, sv user)
{
    struct weir_request request = s->request;
    bool up = weir_store_up(s->weir);
    for (size_t i = 0; i < s->plan.count; i++) {
        use(s, &s->plan.entries[i], false);
        if (s->more[i].way != WAY_SLICE)
            continue;
        s->more[i].held = lease_left_now(s, &s->plan.entries[i]);
        if (up)
            s->more[i].way = WAY_STORE; /* what was lent is counted there as limits are */
    }
    if (!up || !wants_store(s))
        return STEP_DECIDED;
    shared_make_keys(s, &request, user, WAY_STORE);
    make_call(s);
    s->call.charge = false;
    return STEP_STORE;
}

void shared_looked(struct shared *s)
{
    owed_settle(s);
    if (s->call.result == STORE_DECIDED)
        take_answer(s);
}
