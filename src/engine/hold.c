#include "engine/hold.h"

#include <sys/random.h>

#include "cells/owner.h"
#include "engine/counter.h"

/* ---- numbers ---- */

/* Tells apart the holds of one cell. Not 0. A child of a fork must not go on where its parent was: it would settle holds
 * of others as its own. */
static uint32_t next_id(void)
{
    static _Thread_local uint64_t seed, process;
    uint64_t self = owner_process();
    bool fresh = process != self;
    process = self;
    if (fresh && getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint64_t)clock_steady_us() ^ (uint64_t)(uintptr_t)&seed ^ self;
    seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = (seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x >> 32) | 1;
}

/* ---- planning ---- */

/* Returns the most that one hold may take of a limit. */
static uint64_t most_of(const struct counter *c)
{
    uint32_t percent = c->rule->rule->kind->rest->hold_max_percent;
    uint64_t capacity = c->ask.limit->capacity;
    return percent == 0 ? capacity : (uint64_t)((unsigned __int128)capacity * percent / 100);
}

/* No wait is long enough. This is decided here, as a denial is: neither the store nor what stands in for it is asked. */
static void refuse_hold(struct decision *d, struct counter *c)
{
    c->ask.cost = WEIR_AMOUNT_MAX + 1;
    for (size_t i = 0; i < d->count; i++)
        if (d->counters[i].rule == c->rule && d->counters[i].kind != COUNTER_JOINED)
            d->counters[i].kind = COUNTER_CELL;
}

void hold_plan(struct decision *d)
{
    bool reserves = d->request->ttl_ms > 0;
    for (size_t i = 0; i < d->count; i++) {
        struct counter *c = &d->counters[i];
        if (c->kind == COUNTER_JOINED)
            continue;
        bool slot = c->ask.limit->algorithm == LIMIT_CONCURRENT;
        bool in_cell = c->ask.cost > 0 && hold_wants(d, c);
        d->holds = d->holds || in_cell || (c->ask.cost > 0 && reserves && c->kind == COUNTER_STORE);
        if (in_cell && c->kind == COUNTER_CELL)
            cells_prefetch_hold(d->bound->cells, c->ask.key);
        if (reserves && !slot && c->rule->rule->kind->rest->hold_max_percent > 0 && c->ask.cost > most_of(c))
            refuse_hold(d, c);
    }
    if (d->holds)
        d->hold_id = next_id();
}

struct store_hold hold_in_store(const struct decision *d, const struct counter *c, size_t nth)
{
    bool holds = d->holds && c->ask.cost > 0 && (hold_wants(d, c) || d->request->ttl_ms > 0);
    if (!holds)
        return (struct store_hold){ 0 };
    return (struct store_hold){
        .ttl_us = hold_ttl_ms(d, c) * US_PER_MS, .amount = c->ask.cost, .keep = !hold_wants(d, c), .nth = (uint16_t)nth
    };
}

/* ---- taking ---- */

enum counter_outcome hold_take(const struct decision *d, struct counter *c, const struct cells_look *look)
{
    struct cells_terms terms;
    terms.id = d->hold_id;
    terms.ttl_ms = hold_ttl_ms(d, c);
    terms.tag = c->limit->id;
    bool fits = cells_hold(d->bound->cells, &c->ask, look, &terms, &c->taken);
    c->on_hold = fits && !terms.kept;
    c->joinable = terms.joinable;
    c->origin = terms.origin;
    if (!fits && terms.kept)
        c->taken.state = (struct limit_state){ .data = c->ask.limit->max }; /* the table is full: as if all were taken */
    return cell_taken(c, fits);
}

void hold_give_back(const struct decision *d, const struct counter *c, int64_t now_us)
{
    struct cells_charged charged = {
        .key = c->ask.key,
        .origin = c->origin,
        .amount = c->ask.cost,
        .until_us = c->taken.at_us + hold_ttl_ms(d, c) * US_PER_MS,
        .id = d->hold_id,
        .gen = cells_generation(&c->taken),
    };
    cells_settle(d->bound->cells, c->ask.limit, &c->window, &charged, 0, now_us);
}
