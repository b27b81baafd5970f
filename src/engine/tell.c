#include "engine/tell.h"

#include <stdlib.h>

#include "engine/handle.h"
#include "engine/receipt.h"
#include "limit/take.h"

/* The deadline of a decision would be too short: nobody waits for this, and what is not sent is lost. */
#define TELL_WITHIN_US (10 * US_PER_S)

uint64_t amount_by_unit(const struct amounts *a, const struct weir_charged *charged)
{
    for (size_t i = 0; i < a->cost_count; i++)
        if (receipt_unit(a->costs[i].unit) == charged->unit)
            return a->costs[i].amount;
    return charged->unit == 0 && a->cost != WEIR_AS_HELD ? a->cost : charged->cost;
}

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

/* Returns for how long a charge is to be held from now on; 0: it is left as it is. */
static int64_t renewed_us(const struct telling *t, const struct weir_charged *charged)
{
    bool slot = receipt_how(charged).algorithm == LIMIT_CONCURRENT;
    return t->ttl_ms > 0 || !slot ? t->ttl_ms * US_PER_MS : (int64_t)charged->rate;
}

/* Holds have to be told that they are settled, also with what they were. Charges stay as they are then. */
static bool is_told(const struct telling *t, const struct weir_charged *charged, uint64_t to)
{
    struct receipt_how how = receipt_how(charged);
    switch (t->what) {
    case TELL_RENEWED:
        return how.on_hold && renewed_us(t, charged) > 0;
    case TELL_ENTERED:
        return how.on_hold && how.off_ms > 0;
    default:
        return how.on_hold || to != charged->cost;
    }
}

/* Returns false if it is not in the receipt. */
static bool add_to_call(struct posted *p, const struct weir_receipt *receipt, const struct telling *t,
                        const struct weir_charged *charged)
{
    struct receipt_how how = receipt_how(charged);
    struct receipt_name name;
    uint64_t to = how.algorithm == LIMIT_CONCURRENT ? 0 : amount_of(&t->amounts, charged);
    size_t i = p->call.rule_count;
    if (!receipt_name(receipt, charged, &name) || how.algorithm > LIMIT_CONCURRENT)
        return false;
    if (!is_told(t, charged, to))
        return t->what == TELL_SETTLED && charged->cost > 0;
    int64_t hold_us = t->what == TELL_RENEWED ? renewed_us(t, charged) : how.on_hold;
    if (!how.on_hold || how.off_ms > 0)
        how.nth = (uint32_t)(charged - receipt->charged); /* the mark of each charge is its own */
    struct limit *limit = &p->limits[i];
    limit_init(limit, how.algorithm, charged->limit, 0, (int64_t)charged->rate);
    size_t at = (size_t)(name.key.ptr - receipt->keys);
    p->cells[i] = (struct store_cell){ .limit = limit,
                                       .field = sv_of(p->keys + at + name.key.len, name.field.len),
                                       .off_us = how.off_ms * US_PER_MS,
                                       .cost = charged->cost,
                                       .to = to,
                                       .hold = { .ttl_us = hold_us, .keep = how.keep, .nth = (uint16_t)how.nth },
                                       .state = limit_origin_state(limit, charged->origin) };
    /* A bucket's charge is known by its time, by the clock of the server that counts it. */
    bool bucket = how.algorithm == LIMIT_TOKEN_BUCKET;
    p->rules[i] = (struct store_rule){ .key = sv_of(p->keys + at, name.key.len),
                                       .cells = &p->cells[i],
                                       .cell_count = 1,
                                       .server_us = bucket ? (int64_t)charged->origin : receipt->store_us };
    p->call.rule_count++;
    return true;
}

static void init_call(struct store_call *call, struct weir *weir, const struct weir_receipt *receipt,
                      const struct telling *t)
{
    call->settle = true;
    call->renew = t->what == TELL_RENEWED;
    call->enter = t->what == TELL_ENTERED;
    call->hold_id = receipt->hold;
    call->mark = receipt->store_seal ? receipt->store_seal : receipt->seal;
    call->now_us = weir->store_by_now ? t->now_us : 0;
    call->server_us = receipt->store_us;
    call->ends_us = receipt->store_us + (receipt->until_us - receipt->at_us);
    call->deadline_us = clock_steady_us() + TELL_WITHIN_US;
    call->done = on_sent;
}

int tell_store(struct weir *weir, const struct weir_receipt *receipt, const struct telling *telling)
{
    struct posted *p = weir_store_up(weir) ? malloc(sizeof *p) : NULL;
    int told = 0;
    if (!p)
        return 0;
    p->call = (struct store_call){ .rules = p->rules };
    init_call(&p->call, weir, receipt, telling);
    memcpy(p->keys, receipt->keys, receipt->keys_len);
    for (uint32_t i = 0; i < receipt->count; i++)
        if (receipt_how(&receipt->charged[i]).kind == RECEIPT_STORE)
            told += add_to_call(p, receipt, telling, &receipt->charged[i]);
    if (p->call.rule_count > 0)
        weir->ops->post(weir->store, &p->call);
    else
        free(p);
    return told;
}
