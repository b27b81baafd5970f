#include "engine/owed.h"

#include <unistd.h>

#include "engine/weir.h"
#include "slices/debt.h"

/* Subjects are hashes: one bit pattern more or less keeps the cells apart. */
#define OWED_MARK UINT64_C(0x696e73746561642d)

uint64_t owed_cell(const struct bound_limit *limit, uint64_t subject)
{
    return cell_key(limit, subject ^ OWED_MARK);
}

/* ---- what is let through in place of the store ---- */

void owed_add(struct shared *s, size_t i)
{
    const struct plan_entry *e = &s->plan.entries[i];
    struct shared_entry *m = &s->more[i];
    m->owed = debt_add(s->bound->cells, owed_cell(e->limit, e->subject), &e->limit->limit, &m->limit, &e->window,
                       e->ask.now_us, e->ask.cost);
}

void owed_drop(struct shared *s, size_t i)
{
    const struct plan_entry *e = &s->plan.entries[i];
    debt_undo(s->bound->cells, owed_cell(e->limit, e->subject), &e->limit->limit, s->more[i].owed, e->ask.now_us,
              e->ask.cost, shared_now_us(s));
}

/* ---- paying ---- */

/* What was counted in place of the store is charged there by one call of this host at a time: this is who. Calls of two
 * processes may lie at the same address. */
static uint64_t payer(const struct shared_entry *m)
{
    return (uint64_t)getpid() << 48 ^ (uint64_t)(uintptr_t)m;
}

static void end_claim(struct shared *s, size_t i)
{
    const struct plan_entry *e = &s->plan.entries[i];
    struct shared_entry *m = &s->more[i];
    if (m->claimed)
        debt_release(s->bound->cells, owed_cell(e->limit, e->subject), payer(m), shared_now_us(s));
    m->claimed = false;
    m->debt = 0;
}

void owed_take(struct shared *s, size_t i)
{
    const struct plan_entry *e = &s->plan.entries[i];
    struct shared_entry *m = &s->more[i];
    struct cells *cells = s->bound->cells;
    uint64_t cell = owed_cell(e->limit, e->subject);
    m->seen_us = e->ask.now_us;
    m->debt = debt_amount(cells, cell, &e->limit->limit, &e->window, m->seen_us, &m->seen);
    if (m->debt == 0)
        return;
    m->claimed = debt_claim(cells, cell, payer(m), m->seen_us);
    /* Once more: who had it before may have paid meanwhile. */
    m->debt = m->claimed ? debt_amount(cells, cell, &e->limit->limit, &e->window, m->seen_us, &m->seen) : 0;
    /* Looked at last: a late call is counted here before what it takes is seen above, and its answer makes up for that. */
    if (m->debt == 0 || __atomic_load_n(&s->weir->late, __ATOMIC_SEQ_CST) > 0)
        end_claim(s, i);
}

void owed_settle(struct shared *s)
{
    uint64_t paid = 0;
    for (size_t i = 0; i < s->plan.count; i++) {
        const struct plan_entry *e = &s->plan.entries[i];
        struct shared_entry *m = &s->more[i];
        if (m->debt > 0 && s->call.result == STORE_DECIDED) {
            debt_pay(s->bound->cells, owed_cell(e->limit, e->subject), &e->limit->limit, m->seen, m->seen_us, m->debt,
                     shared_now_us(s));
            paid += m->debt;
        }
        end_claim(s, i);
    }
    if (paid > 0)
        s->weir->ops->count(s->weir->store, STORE_RECONCILED, paid);
}
