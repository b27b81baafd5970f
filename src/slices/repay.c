#include "slices/repay.h"

/* A debt of a limit without overdraft was mostly let through in place of the store, within this host's share: then
 * nothing is overdrawn, and tokens may be spent while somebody else pays. */
uint64_t repay_with_new(const struct repay *r, uint32_t lock, bool *ret_held)
{
    struct payment payment;
    uint64_t paid = 0;
    bool mine = payment_begin(&payment, r->cells, r->owed, r->limit, r->window, r->now_us);
    *ret_held = !mine && r->limit->overdraft && lock != 0;
    if (*ret_held)
        return 0;
    if (payment.amount > 0) {
        uint32_t taken = slice_pay(r->cells, r->slice, r->now_us, payment.amount).taken;
        if (taken > 0)
            payment.amount = taken;
        paid = payment_end(&payment, r->cells, r->owed, r->limit, taken > 0, r->now_us);
    }
    slice_unlock(r->cells, r->slice, lock, r->now_us);
    return paid;
}

struct slice_spent repay_new(const struct repay *r, struct limit_state owed, uint64_t cost)
{
    struct slice_spent spent = slice_pay(r->cells, r->slice, r->now_us, cost);
    if (spent.taken > 0)
        debt_undo(r->cells, r->owed, r->limit, owed, r->now_us, spent.taken, r->now_us);
    return spent;
}
