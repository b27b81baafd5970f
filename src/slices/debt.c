/* Debts to the store: see debt.h. */
#include "slices/debt.h"

#include <unistd.h>

#include "base/check.h"
#include "limit/take.h"
#include "slices/board.h"

#define DEBT_STEP_US (100 * US_PER_MS) /* so that not every decision writes to one word */
/* Keys are hashes: XOR with a constant gives the key of another cell. */
#define CLAIM_MARK UINT64_C(0x636c61696d2d6d6b)

/* ---- the amount ---- */

/* debt_amount() looks for a debt during two windows after this. A bucket owes for longer if it owes more than its capacity.
 */
static int64_t last_owed_us(const struct limit *limit, const struct window *window, struct limit_state owed, int64_t now_us)
{
    int64_t last_us = limit_outlook(limit, owed, now_us).decays_us - 2 * limit_window_us(limit, window);
    return last_us > now_us ? last_us : now_us;
}

/* A time that a wrong clock has left too far ahead costs a look at a cell, and nothing else. */
static void note_owed(struct cells *cells, int64_t at_us)
{
    int64_t *owed_us = &board_of(cells)->debt_us;
    int64_t before_us = __atomic_load_n(owed_us, __ATOMIC_RELAXED);
    while (before_us < at_us - DEBT_STEP_US &&
           !__atomic_compare_exchange_n(owed_us, &before_us, at_us, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

struct limit_state debt_add(struct cells *cells, uint64_t key, const struct limit *limit, const struct limit *rank,
                            const struct window *window, int64_t now_us, uint64_t cost)
{
    CHECK(cost > 0 && clock_valid(now_us));
    struct cells_ask ask = { key, limit, window, now_us, cost };
    note_owed(cells, now_us);
    struct limit_state owed = cells_charge(cells, &ask, rank);
    note_owed(cells, last_owed_us(limit, window, owed, now_us));
    return owed;
}

uint64_t debt_amount(struct cells *cells, uint64_t key, const struct limit *limit, const struct window *window,
                     int64_t now_us, struct limit_state *ret_seen)
{
    int64_t owed_us = __atomic_load_n(&board_of(cells)->debt_us, __ATOMIC_RELAXED);
    if (owed_us == 0 || owed_us < now_us - 2 * limit_window_us(limit, window))
        return 0;
    struct cells_ask ask = { key, limit, window, now_us, 0 };
    struct cells_look look;
    cells_look(cells, &ask, &look);
    *ret_seen = look.state;
    if (!look.cell)
        return 0;
    struct limit free;
    limit_without_bound(limit, &free);
    return free.capacity - limit_remaining(&free, window, look.state, now_us);
}

/* ---- who pays ---- */

struct claim {
    uint64_t who;
    int64_t now_us;
    bool release;
    bool held; /* ret: by the caller */
};

static struct cells_change judge_claim(struct limit_state state, void *data)
{
    struct claim *c = data;
    int64_t left_us = (int64_t)state.time - c->now_us, until_us = c->now_us + DEBT_CLAIM_US;
    /* The caller's clock may lag behind the holder's. A claim much further ahead was made by a clock that was wrong. */
    bool taken = state.data != 0 && left_us > 0 && left_us <= 2 * DEBT_CLAIM_US;
    c->held = c->release ? state.data == c->who : !taken;
    /* If a claim is dropped, a debt may be paid twice. Counts are worth more. */
    return (struct cells_change){ .writes = c->held,
                                  .forgets = c->release,
                                  .next = { .time = (uint64_t)until_us, .data = c->who },
                                  .outlook = { .decays_us = until_us, .share = LIMIT_SHARE_NONE } };
}

bool debt_claim(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us)
{
    struct claim claim = { .who = who, .now_us = now_us };
    if (now_us < CLOCK_END_US - DEBT_CLAIM_US)
        cells_update(cells, key ^ CLAIM_MARK, now_us, judge_claim, &claim);
    return claim.held;
}

void debt_release(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us)
{
    struct claim claim = { .who = who, .now_us = now_us, .release = true };
    cells_update(cells, key ^ CLAIM_MARK, now_us, judge_claim, &claim);
}

struct paying {
    const struct limit *limit;
    struct limit_state seen;
    int64_t seen_us, now_us;
    uint64_t paid;
    bool all; /* pays all that was seen, not only the last charge */
};

/* The part of the previous window that counted then was paid as well. limit_refund gives a cost back to one window only. */
static bool pay_slide(const struct limit *limit, struct limit_state seen, struct limit_state *state)
{
    uint64_t previous = state->data >> 32, count = (uint32_t)state->data;
    if (state->time == seen.time) {
        previous = limit_less(previous, seen.data >> 32);
        count = limit_less(count, (uint32_t)seen.data);
    } else if (state->time == seen.time + (uint64_t)limit->per_us) {
        previous = limit_less(previous, (uint32_t)seen.data);
    } else {
        return false;
    }
    state->data = previous << 32 | count;
    return true;
}

static bool is_nothing(const struct limit *limit, struct limit_state state)
{
    bool window = limit->algorithm == LIMIT_FIXED_WINDOW || limit->algorithm == LIMIT_CALENDAR;
    return window ? limit_state_count(state) == 0 : state.data == 0;
}

static struct cells_change judge_pay(struct limit_state state, void *data)
{
    const struct paying *p = data;
    bool slide = p->all && p->limit->algorithm == LIMIT_SLIDING_WINDOW;
    bool paid = slide ? pay_slide(p->limit, p->seen, &state)
                      : limit_refund(p->limit, limit_origin(p->limit, p->seen, p->seen_us), p->paid, p->now_us, &state);
    return (struct cells_change){ .writes = paid,
                                  .forgets = is_nothing(p->limit, state),
                                  .next = state,
                                  .outlook = limit_outlook(p->limit, state, p->now_us) };
}

void debt_undo(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state owed, int64_t owed_us,
               uint64_t cost, int64_t now_us)
{
    struct paying paying = { limit, owed, owed_us, now_us, cost, false };
    cells_update(cells, key, now_us, judge_pay, &paying);
}

void debt_pay(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state seen, int64_t seen_us,
              uint64_t paid, int64_t now_us)
{
    struct paying paying = { limit, seen, seen_us, now_us, paid, true };
    cells_update(cells, key, now_us, judge_pay, &paying);
}

/* ---- a payment ---- */

/* Payments of two processes may lie at the same address. */
static uint64_t payer(const struct payment *p)
{
    return (uint64_t)getpid() << 48 ^ (uint64_t)(uintptr_t)p;
}

bool payment_begin(struct payment *p, struct cells *cells, uint64_t key, const struct limit *limit,
                   const struct window *window, int64_t now_us)
{
    p->seen_us = now_us;
    p->amount = debt_amount(cells, key, limit, window, now_us, &p->seen);
    if (p->amount == 0)
        return true;
    if (!debt_claim(cells, key, payer(p), now_us)) {
        p->amount = 0;
        return false;
    }
    /* Once more: the previous holder of the claim may have paid meanwhile. */
    p->amount = debt_amount(cells, key, limit, window, now_us, &p->seen);
    if (p->amount == 0)
        debt_release(cells, key, payer(p), now_us);
    return true;
}

uint64_t payment_end(struct payment *p, struct cells *cells, uint64_t key, const struct limit *limit, bool charged,
                     int64_t now_us)
{
    uint64_t paid = charged ? p->amount : 0;
    CHECK(clock_valid(now_us));
    if (p->amount == 0)
        return 0;
    if (charged)
        debt_pay(cells, key, limit, p->seen, p->seen_us, paid, now_us);
    debt_release(cells, key, payer(p), now_us);
    p->amount = 0;
    return paid;
}
