/* Settles a receipt: the true amounts replace the amounts that were held or charged.
 *
 * Nothing is given back that was not charged: a receipt is sealed with the table's secret and identity, and names cells by
 * their generation, so a cell that was given to another subject or was reset meanwhile gets nothing, nor does a later
 * window, a rule that was removed, or a bucket that fills at another rate by now.
 *
 * Nothing is settled twice: a hold tells by itself whether it was settled, and receipts of anything else are numbered; the
 * table knows which numbers can still be used (receipt_ring.c). The number is used first. A process that dies after that
 * leaves a hold to its time to live, and a charge as it is.
 *
 * Any host of a store can settle the limits that the store counts: the receipt is also sealed with the store's secret, and
 * the store prevents settling twice. Another host ignores the other limits of the receipt. */
#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/receipt.h"
#include "engine/receipt_ring.h"
#include "engine/tell.h"
#include "limit/take.h"

struct settling {
    struct weir *weir;
    const struct bound *bound;
    const struct weir_receipt *receipt;
    struct amounts amounts;
    bool renews;       /* else it is settled */
    uint32_t renew_ms; /* 0: slots, for as long as their limits say */
    int64_t now_us;
    const struct bound_terms *limits[WEIR_RECEIPT_LIMITS]; /* of charges in cells; NULL: nothing can be done for it */
    bool is_own;                                           /* it was made by this table */
    bool of_store;                                         /* what counts in the store was charged in this one */
    bool store;                                            /* some of it is to be settled there */
};

/* ---- cells ---- */

/* A slot is freed even if its rule was changed or removed; freeing needs only these fields of a limit. */
static const struct bound_terms lost_slot = {
    .limit = { .algorithm = LIMIT_CONCURRENT, .max = LIMIT_MAX_MAX, .capacity = LIMIT_MAX_MAX, .per_us = US_PER_S }
};

static bool is_slot(const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    return how.kind == RECEIPT_CELL && how.on_hold && how.algorithm == LIMIT_CONCURRENT;
}

static bool has_rate(const struct bound_terms *limit, const struct weir_charged *charged)
{
    return limit->limit.algorithm != LIMIT_TOKEN_BUCKET || limit_rate(&limit->limit) == charged->rate;
}

/* Returns the terms of a charge's limit as the rules in force have it, or NULL. A bucket that fills at another rate by now
 * gives nothing back. But a hold there has to end, and more than was charged is charged. Windows that slide are those of
 * the plan or the override that was charged, as long as one is in force that has them. */
static const struct bound_terms *limit_of(const struct settling *s, const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    bool bucket = how.algorithm == LIMIT_TOKEN_BUCKET;
    bool any_rate = !bucket || how.on_hold || (!s->renews && amount_of(&s->amounts, charged) > charged->cost);
    uint64_t rate = how.algorithm == LIMIT_CONCURRENT ? 0 : charged->rate;
    size_t slot;
    const struct bound_limit *limit = bound_limit_of_rate(s->bound, charged->limit, rate);
    if (!limit && any_rate)
        limit = bound_first_limit(s->bound, charged->limit, &slot);
    if (limit)
        return limit->terms;
    return is_slot(charged) ? &lost_slot : NULL;
}

static inline struct cells_charged in_cell(const struct settling *s, const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    bool slot = __builtin_expect(how.algorithm == LIMIT_CONCURRENT, 0);
    return (struct cells_charged){ .key = charged->key,
                                   .origin = charged->origin,
                                   .amount = charged->cost,
                                   .until_us = slot ? s->receipt->at_us + (int64_t)charged->rate : s->receipt->until_us,
                                   .id = how.on_hold ? s->receipt->hold : 0,
                                   .gen = how.gen };
}

/* A window that is over takes nothing, and nothing of it is given back. */
static const struct bound_terms *usable_cell(const struct settling *s, const struct weir_charged *charged)
{
    const struct bound_terms *limit = limit_of(s, charged);
    return limit && !limit_origin_over(&limit->limit, charged->origin, s->now_us) ? limit : NULL;
}

/* Returns how long a slot lasts by the rules in force, 0 if it is not one. Plans may differ: the shortest. */
static uint32_t slot_ttl_ms(const struct settling *s, const struct weir_charged *charged)
{
    size_t slot;
    const struct bound_limit *limit = is_slot(charged) ? bound_first_limit(s->bound, charged->limit, &slot) : NULL;
    int64_t ttl_us = limit ? limit->terms->limit.per_us : 0;
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

/* The window that was charged goes on: see usable_cell(). Its length does not matter as long as it does. */
static struct window given_window(const struct weir_charged *charged)
{
    int64_t end_us = limit_origin_end(charged->origin);
    return (struct window){ end_us > US_PER_S ? end_us - US_PER_S : 0, end_us };
}

/* alone: the hold itself has to tell that it was not settled. */
static bool settle_cell(const struct settling *s, const struct weir_charged *charged, const struct bound_terms *limit,
                        bool alone)
{
    if (!limit)
        return false;
    struct cells_charged in = in_cell(s, charged);
    if (alone && in.id == 0)
        return false;
    in.alone = alone;
    in.stays = !has_rate(limit, charged);
    struct window window = { 0 };
    bool slot = limit->limit.algorithm == LIMIT_CONCURRENT;
    uint64_t to = slot ? 0 : amount_of(&s->amounts, charged);
    if (limit->limit.algorithm == LIMIT_CALENDAR)
        window = limit->spec->given ? given_window(charged) : limit_current_window(limit, s->now_us);
    bool same = in.id == 0 && to == in.amount && to > 0; /* a charge that was right */
    return cells_settle(s->bound->cells, &limit->limit, &window, &in, to, s->now_us) || same;
}

/* ---- the store ---- */

/* Settles or renews the limits that the store counts and returns their number. Nothing waits for the answer. */
static int settle_store(const struct settling *s)
{
    struct telling telling = { .amounts = s->amounts, .ttl_ms = s->renew_ms, .now_us = s->now_us };
    telling.what = s->renews ? TELL_RENEWED : TELL_SETTLED;
    return s->of_store ? tell_store(s->weir, s->receipt, &telling) : 0;
}

/* ---- both ---- */

/* Finds the limits. False: nothing can be settled now, and the receipt is not used up. */
static bool find_limits(struct settling *s)
{
    bool usable = false;
    s->store = false;
    const struct weir_charged *charged = s->receipt->charged, *end = charged + s->receipt->count;
    for (const struct bound_terms **limit = s->limits; charged < end; charged++, limit++) {
        bool in_store = receipt_how(charged).kind == RECEIPT_STORE;
        *limit = in_store || !s->is_own ? NULL : usable_cell(s, charged);
        s->store = s->store || (in_store && s->of_store);
        usable = usable || *limit;
    }
    return usable || (s->store && weir_store_up(s->weir));
}

static enum ring_number use_number(const struct settling *s)
{
    struct cells *cells = s->bound->cells;
    if (!s->is_own)
        return RING_OPEN;
    if (s->receipt->number == 0)
        return RING_FORGOTTEN;
    return ring_use_number(cells, receipt_ring(s->receipt, cells), s->receipt->number, s->now_us);
}

/* Holds tell by themselves whether they were settled. So a receipt of nothing else has no number, and one whose number the
 * table does not remember, since too many came after it, is settled as far as they tell: no slot is lost behind a busy
 * subject, and no true amount. If the number is known to be used, then somebody else may be settling the holds just now.
 * Slots are free after both.
 *
 * The store is told even if the number was used: it may have been unavailable then, and settles nothing twice. */
static int settle_all(struct settling *s)
{
    int settled = 0;
    if (!find_limits(s))
        return 0;
    enum ring_number number = use_number(s);
    const struct weir_charged *charged = s->receipt->charged, *end = charged + s->receipt->count;
    for (const struct bound_terms **limit = s->limits; charged < end; charged++, limit++)
        if (number != RING_USED || is_slot(charged))
            settled += settle_cell(s, charged, *limit, number != RING_OPEN);
    int told = s->store ? settle_store(s) : 0;
    return number == RING_OPEN ? settled + told : settled;
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

/* The receipt may be made up: then other cells are loaded, and nothing else happens to them. */
static void prefetch_cells(const struct settling *s)
{
    for (uint32_t i = 0; i < s->receipt->count; i++) {
        cells_prefetch(s->weir->cells, s->receipt->charged[i].key);
        cells_prefetch_hold(s->weir->cells, s->receipt->charged[i].key);
    }
}

/* Returns 1 if it can be used, 0 if not, or an error. */
static int check_receipt(struct settling *s)
{
    const struct weir_receipt *r = s->receipt;
    if (r->count == 0)
        return 0; /* of a request that was not charged; the rest of it was never written */
    if (!clock_valid(s->now_us) || r->count > WEIR_RECEIPT_LIMITS || r->keys_len > sizeof r->keys)
        return WEIR_E_INVALID;
    prefetch_cells(s);
    s->is_own = receipt_is_sealed(r, s->bound);
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
    s.renew_ms = 0;
    s.now_us = now_us;
    if (!amounts_valid(&s.amounts))
        return WEIR_E_INVALID;
    s.bound = hazard_acquire((void *const *)&weir->current);
    if (!s.bound)
        return WEIR_E_NO_MEMORY;
    int r = check_receipt(&s);
    r = r > 0 ? settle_all(&s) : r;
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

/* A hold that was settled must not be renewed: it would be taken from those that were joined, which are others' by now. */
static int renew_all(struct settling *s)
{
    struct cells *cells = s->bound->cells;
    bool alone = s->receipt->number == 0 ||
                 ring_look_number(cells, receipt_ring(s->receipt, cells), s->receipt->number) != RING_OPEN;
    find_limits(s);
    int renewed = s->receipt->hold != 0 && s->store ? settle_store(s) : 0;
    for (uint32_t i = 0; i < s->receipt->count; i++) {
        const struct weir_charged *charged = &s->receipt->charged[i];
        struct cells_charged in = in_cell(s, charged);
        uint32_t ttl_ms = renewed_ms(s, charged);
        in.alone = alone;
        renewed +=
            s->limits[i] && in.id != 0 && ttl_ms > 0 && cells_renew(cells, &s->limits[i]->limit, &in, ttl_ms, s->now_us);
    }
    return renewed;
}

int weir_renew(struct weir *weir, const struct weir_receipt *receipt, uint32_t ttl_ms, int64_t now_us)
{
    struct settling s = { .weir = weir, .receipt = receipt, .renews = true, .renew_ms = ttl_ms, .now_us = now_us };
    if (!ttl_valid(ttl_ms) && ttl_ms != 0)
        return WEIR_E_INVALID;
    s.bound = hazard_acquire((void *const *)&weir->current);
    if (!s.bound)
        return WEIR_E_NO_MEMORY;
    int r = check_receipt(&s);
    r = r > 0 ? renew_all(&s) : r;
    hazard_release();
    return r;
}
