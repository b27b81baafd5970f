/* Settles a receipt: the true amounts replace the amounts that were held or charged.
 *
 * Nothing is given back that was not charged: a receipt is sealed with the table's secret and identity, and names cells by
 * their generation, so a cell that was given to another subject or was reset meanwhile gets nothing, nor does a later
 * window, a rule that was removed, or a bucket that fills at another rate by now.
 *
 * Nothing is settled twice: receipts are numbered, and the table knows which numbers can still be used (receipt_ring.c).
 * The number is used first. A process that dies after that leaves a hold to its time to live, and a charge as it is.
 *
 * Any host of a store can settle the limits that the store counts: the receipt is also sealed with the store's secret, and
 * the store prevents settling twice. Another host ignores the other limits of the receipt. */
#include <stdlib.h>

#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/receipt.h"
#include "engine/receipt_ring.h"
#include "engine/remote.h"
#include "limit/take.h"

/* The true amounts. */
struct amounts {
    uint64_t cost; /* WEIR_AS_HELD: what it was */
    const struct weir_cost *costs;
    size_t cost_count;
};

struct settling {
    struct weir *weir;
    const struct bound *bound;
    const struct weir_receipt *receipt;
    struct amounts amounts;
    bool renews;       /* else it is settled */
    uint32_t renew_ms; /* 0: slots, for as long as their limits say */
    int64_t now_us;
    const struct bound_limit *limits[WEIR_RECEIPT_LIMITS]; /* of charges in cells; NULL: nothing can be done for it */
    bool is_own;                                           /* it was made by this table */
    bool of_store;                                         /* what counts in the store was charged in this one */
    bool store;                                            /* some of it is to be settled there */
};

static uint64_t true_amount(const struct amounts *a, const struct weir_charged *charged)
{
    for (size_t i = 0; i < a->cost_count; i++)
        if (receipt_unit(a->costs[i].unit) == charged->unit)
            return a->costs[i].amount;
    bool applies = charged->unit == 0 || (a->cost == 0 && a->cost_count == 0);
    return applies && a->cost != WEIR_AS_HELD ? a->cost : charged->cost;
}

/* ---- cells ---- */

/* A slot is freed even if its rule was changed or removed; freeing needs only these fields of a limit. */
static const struct bound_limit lost_slot = {
    .limit = { .algorithm = LIMIT_CONCURRENT, .max = LIMIT_MAX_MAX, .capacity = LIMIT_MAX_MAX, .per_us = US_PER_S }
};

static bool is_slot(const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    return how.kind == RECEIPT_CELL && how.on_hold && how.algorithm == LIMIT_CONCURRENT;
}

/* Returns the limit of a charge as the rules in force have it, or NULL. */
static const struct bound_limit *limit_of(const struct settling *s, const struct weir_charged *charged)
{
    const struct bound_limit *limit;
    size_t slot = 0;
    while ((limit = bound_next_limit(s->bound, charged->limit, &slot)) != NULL)
        if (receipt_rate(&limit->limit) == charged->rate)
            return limit;
    return is_slot(charged) ? &lost_slot : NULL;
}

static struct cells_charged in_cell(const struct settling *s, const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    return (struct cells_charged){ .key = charged->key,
                                   .origin = charged->origin,
                                   .amount = charged->cost,
                                   .until_us = s->receipt->until_us,
                                   .id = how.on_hold ? s->receipt->hold : 0,
                                   .gen = how.gen };
}

/* A window that is over takes nothing, and nothing of it is given back. */
static bool is_over(const struct limit *limit, const struct weir_charged *charged, int64_t now_us)
{
    bool window = limit->algorithm == LIMIT_FIXED_WINDOW || limit->algorithm == LIMIT_CALENDAR;
    return window && limit_origin_end(charged->origin) <= now_us;
}

static const struct bound_limit *usable_cell(const struct settling *s, const struct weir_charged *charged)
{
    const struct bound_limit *limit = limit_of(s, charged);
    return limit && !is_over(&limit->limit, charged, s->now_us) ? limit : NULL;
}

/* Returns how long a slot lasts by the rules in force, 0 if it is not one. Plans may differ: the shortest. */
static uint32_t slot_ttl_ms(const struct settling *s, const struct weir_charged *charged)
{
    const struct bound_limit *limit;
    int64_t ttl_us = 0;
    size_t slot = 0;
    while (is_slot(charged) && (limit = bound_next_limit(s->bound, charged->limit, &slot)) != NULL)
        ttl_us = ttl_us == 0 || limit->limit.per_us < ttl_us ? limit->limit.per_us : ttl_us;
    struct receipt_how how = receipt_how(charged);
    if (how.kind == RECEIPT_STORE && how.algorithm == LIMIT_CONCURRENT)
        ttl_us = (int64_t)charged->rate;
    return (uint32_t)(ttl_us / US_PER_MS);
}

/* Returns for how long a charge is to be held from now on; 0: it is left as it is. */
static uint32_t renewed_ms(const struct settling *s, const struct weir_charged *charged)
{
    return s->renew_ms > 0 ? s->renew_ms : slot_ttl_ms(s, charged);
}

static bool settle_cell(const struct settling *s, uint32_t i)
{
    const struct weir_charged *charged = &s->receipt->charged[i];
    const struct bound_limit *limit = s->limits[i];
    if (!limit)
        return false;
    struct cells_charged in = in_cell(s, charged);
    struct window window = { 0 };
    bool slot = limit->limit.algorithm == LIMIT_CONCURRENT;
    uint64_t to = slot ? 0 : true_amount(&s->amounts, charged);
    if (limit->limit.algorithm == LIMIT_CALENDAR)
        window = limit_current_window(limit, s->now_us);
    return cells_settle(s->bound->cells, &limit->limit, &window, &in, to, s->now_us) || (to == in.amount && in.id == 0);
}

/* ---- the store ---- */

/* A call that belongs to nobody: it is sent, and freed when it was. */
struct posted {
    struct store_call call; /* first */
    struct store_rule rules[WEIR_RECEIPT_LIMITS];
    struct store_cell cells[WEIR_RECEIPT_LIMITS];
    struct limit limits[WEIR_RECEIPT_LIMITS];
    char keys[WEIR_RECEIPT_KEYS_MAX];
};

static void on_sent(struct store_call *call)
{
    free(call);
}

/* A hold must be settled even if its amount does not change. A charge needs no call then. */
static bool is_told(const struct settling *s, const struct weir_charged *charged, uint64_t to)
{
    bool on_hold = receipt_how(charged).on_hold;
    return s->renews ? on_hold && renewed_ms(s, charged) > 0 : on_hold || to != charged->cost;
}

/* Returns false if it is not in the receipt. */
static bool add_to_call(struct posted *p, const struct settling *s, const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    struct receipt_name name;
    uint64_t to = how.algorithm == LIMIT_CONCURRENT ? 0 : true_amount(&s->amounts, charged);
    size_t i = p->call.rule_count;
    if (!receipt_name(s->receipt, charged, &name) || how.algorithm > LIMIT_CONCURRENT)
        return false;
    if (!is_told(s, charged, to))
        return !s->renews;
    int64_t hold_us = how.on_hold ? 1 : 0;
    if (s->renews)
        hold_us = renewed_ms(s, charged) * US_PER_MS;
    if (!how.on_hold)
        how.nth = (uint32_t)(charged - s->receipt->charged); /* the mark of each charge is its own */
    struct limit *limit = &p->limits[i];
    limit_init(limit, how.algorithm, charged->limit, 0, (int64_t)charged->rate);
    size_t at = (size_t)(name.key.ptr - s->receipt->keys);
    p->cells[i] = (struct store_cell){ .limit = limit,
                                       .field = sv_of(p->keys + at + name.key.len, name.field.len),
                                       .off_us = how.off_ms * US_PER_MS,
                                       .cost = charged->cost,
                                       .to = to,
                                       .hold = { .ttl_us = hold_us, .keep = how.keep, .nth = (uint16_t)how.nth },
                                       .state = limit_origin_state(limit, charged->origin) };
    p->rules[i] = (struct store_rule){ .key = sv_of(p->keys + at, name.key.len), .cells = &p->cells[i], .cell_count = 1 };
    p->call.rule_count++;
    return true;
}

/* Settles or renews the limits that the store counts and returns their number. Nothing waits for the answer. */
static int settle_store(const struct settling *s)
{
    struct weir *weir = s->weir;
    struct posted *p = s->of_store && weir_store_up(weir) ? malloc(sizeof *p) : NULL;
    int settled = 0;
    if (!p)
        return 0;
    p->call = (struct store_call){ .rules = p->rules, .settle = true, .done = on_sent };
    p->call.renew = s->renews;
    p->call.hold_id = s->receipt->hold;
    p->call.mark = s->receipt->store_seal ? s->receipt->store_seal : s->receipt->seal;
    p->call.now_us = weir->store_by_now ? s->now_us : 0;
    p->call.server_us = s->receipt->store_us;
    p->call.deadline_us = clock_steady_us() + weir_deadline_ms(weir) * US_PER_MS;
    memcpy(p->keys, s->receipt->keys, s->receipt->keys_len);
    for (uint32_t i = 0; i < s->receipt->count; i++)
        if (receipt_how(&s->receipt->charged[i]).kind == RECEIPT_STORE)
            settled += add_to_call(p, s, &s->receipt->charged[i]);
    if (p->call.rule_count > 0)
        weir->ops->post(weir->store, &p->call);
    else
        free(p);
    return settled;
}

/* ---- both ---- */

/* Finds the limits. False: nothing can be settled now, and the receipt is not used up. */
static bool find_limits(struct settling *s)
{
    bool usable = false;
    s->store = false;
    for (uint32_t i = 0; i < s->receipt->count; i++) {
        bool in_store = receipt_how(&s->receipt->charged[i]).kind == RECEIPT_STORE;
        s->limits[i] = in_store || !s->is_own ? NULL : usable_cell(s, &s->receipt->charged[i]);
        s->store = s->store || (in_store && s->of_store);
        usable = usable || s->limits[i];
    }
    return usable || (s->store && weir_store_up(s->weir));
}

static bool use_number(const struct settling *s)
{
    struct cells *cells = s->bound->cells;
    return !s->is_own || ring_use_number(cells, receipt_ring(s->receipt, cells), s->receipt->number, s->now_us);
}

/* A number that the table does not remember, since too many came after it, cannot be told from one that was used. The hold
 * itself says whether its slot is still taken: so no slot is lost behind a busy subject. */
static int free_slots(const struct settling *s)
{
    int freed = 0;
    for (uint32_t i = 0; i < s->receipt->count; i++) {
        const struct weir_charged *charged = &s->receipt->charged[i];
        struct cells_charged in = in_cell(s, charged);
        in.alone = true;
        freed += s->limits[i] && is_slot(charged) &&
                 cells_settle(s->bound->cells, &s->limits[i]->limit, NULL, &in, 0, s->now_us);
    }
    return freed;
}

/* The store is told even if the number was used: it may have been unavailable then, and settles nothing twice. */
static int settle_all(struct settling *s)
{
    int settled = 0;
    if (!find_limits(s))
        return 0;
    bool first = use_number(s);
    for (uint32_t i = 0; first && i < s->receipt->count; i++)
        settled += settle_cell(s, i);
    int freed = first ? 0 : free_slots(s), told = s->store ? settle_store(s) : 0;
    return first ? settled + told : freed;
}

/* A receipt is valid for a day by the clock of the host that made it. Other hosts know only the store's clock. */
static bool is_fresh(const struct settling *s)
{
    const struct weir_receipt *r = s->receipt;
    int64_t last_us = r->until_us > r->at_us ? r->until_us : r->at_us, now_us = s->now_us;
    if (!s->is_own)
        now_us += s->weir->ops->offset_us(s->weir->store) - (r->store_us - r->at_us);
    return now_us - last_us < RECEIPT_LIFE_US && r->at_us - now_us <= RECEIPT_AHEAD_US;
}

/* Returns 1 if it can be used, 0 if not, or an error. */
static int check_receipt(struct settling *s)
{
    const struct weir_receipt *r = s->receipt;
    if (r->count == 0)
        return 0; /* of a request that was not charged; the rest of it was never written */
    if (!clock_valid(s->now_us) || r->count > WEIR_RECEIPT_LIMITS || r->keys_len > sizeof r->keys)
        return WEIR_E_INVALID;
    s->is_own = receipt_is_sealed(r, s->weir->cells);
    /* A receipt that was made before the store's secret was known is good on its own host. */
    s->of_store = receipt_is_of_store(r, s->weir) || (s->is_own && r->store_seal == 0);
    return (s->is_own || s->of_store) && is_fresh(s);
}

static bool amounts_valid(const struct amounts *a)
{
    bool valid = (a->cost <= WEIR_AMOUNT_MAX || a->cost == WEIR_AS_HELD) && a->cost_count <= WEIR_COSTS_MAX;
    for (size_t i = 0; valid && i < a->cost_count; i++)
        valid = a->costs[i].amount <= WEIR_AMOUNT_MAX;
    return valid;
}

int weir_settle(struct weir *weir, const struct weir_receipt *receipt, uint64_t cost, const struct weir_cost *costs,
                size_t cost_count, int64_t now_us)
{
    struct settling s;
    s.weir = weir;
    s.receipt = receipt;
    s.amounts = (struct amounts){ cost, costs, cost_count };
    s.renews = false;
    s.now_us = now_us;
    int r = amounts_valid(&s.amounts) ? check_receipt(&s) : WEIR_E_INVALID;
    if (r <= 0)
        return r;
    s.bound = hazard_acquire((void *const *)&weir->current);
    if (!s.bound)
        return WEIR_E_NO_MEMORY;
    r = settle_all(&s);
    hazard_release();
    return r;
}

int weir_release(struct weir *weir, const struct weir_receipt *receipt, int64_t now_us)
{
    return weir_settle(weir, receipt, WEIR_AS_HELD, NULL, 0, now_us);
}

int weir_refund(struct weir *weir, const struct weir_receipt *receipt, int64_t now_us)
{
    return weir_settle(weir, receipt, 0, NULL, 0, now_us);
}

/* ---- reserve and renew ---- */

static bool ttl_valid(uint32_t ttl_ms)
{
    return ttl_ms > 0 && ttl_ms <= WEIR_TTL_MAX_MS;
}

int weir_reserve(struct weir *weir, const struct weir_request *request, int64_t now_us, struct weir_verdict *ret_verdict)
{
    if (ttl_valid(request->ttl_ms) && request->receipt)
        return weir_check(weir, request, now_us, ret_verdict);
    weir_check(weir, request, -1, ret_verdict); /* refuses it */
    return WEIR_E_INVALID;
}

uint32_t weir_slot_ttl_ms(struct weir *weir, const struct weir_receipt *receipt)
{
    struct settling s = { .weir = weir, .receipt = receipt };
    uint32_t shortest = 0;
    s.bound = receipt->count <= WEIR_RECEIPT_LIMITS ? hazard_acquire((void *const *)&weir->current) : NULL;
    for (uint32_t i = 0; s.bound && i < receipt->count; i++) {
        uint32_t ttl_ms = slot_ttl_ms(&s, &receipt->charged[i]);
        shortest = ttl_ms > 0 && (shortest == 0 || ttl_ms < shortest) ? ttl_ms : shortest;
    }
    if (s.bound)
        hazard_release();
    return shortest;
}

static int renew_all(struct settling *s)
{
    find_limits(s);
    int renewed = s->receipt->hold != 0 && s->store ? settle_store(s) : 0;
    for (uint32_t i = 0; i < s->receipt->count; i++) {
        const struct weir_charged *charged = &s->receipt->charged[i];
        struct cells_charged in = in_cell(s, charged);
        uint32_t ttl_ms = renewed_ms(s, charged);
        renewed += s->limits[i] && in.id != 0 && ttl_ms > 0 &&
                   cells_renew(s->bound->cells, &s->limits[i]->limit, &in, ttl_ms, s->now_us);
    }
    return renewed;
}

int weir_renew(struct weir *weir, const struct weir_receipt *receipt, uint32_t ttl_ms, int64_t now_us)
{
    struct settling s = { .weir = weir, .receipt = receipt, .renews = true, .renew_ms = ttl_ms, .now_us = now_us };
    int r = ttl_valid(ttl_ms) || ttl_ms == 0 ? check_receipt(&s) : WEIR_E_INVALID;
    if (r <= 0)
        return r;
    s.bound = hazard_acquire((void *const *)&weir->current);
    if (!s.bound)
        return WEIR_E_NO_MEMORY;
    r = renew_all(&s);
    hazard_release();
    return r;
}
