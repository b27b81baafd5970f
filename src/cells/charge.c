/* Charges that need no room, since what has happened already is counted, whatever the limit says; and giving back what
 * nobody has a receipt for. */
#include "base/check.h"
#include "cells/cells.h"
#include "limit/take.h"

struct charge {
    const struct cells_ask *ask;
    const struct limit *rank;
    struct limit_state state; /* ret */
};

static struct cells_change judge_charge(struct limit_state state, void *data)
{
    struct charge *c = data;
    const struct cells_ask *ask = c->ask;
    c->state = limit_charge(ask->limit, ask->window, state, ask->now_us, ask->cost);
    return (struct cells_change){ .writes = c->state.data != 0,
                                  .next = c->state,
                                  .outlook = limit_outlook(c->rank, c->state, ask->now_us) };
}

struct limit_state cells_charge(struct cells *cells, const struct cells_ask *ask, const struct limit *rank)
{
    CHECK(ask->cost > 0 && clock_valid(ask->now_us));
    struct charge charge = { ask, rank, { 0 } };
    cells_update(cells, ask->key, ask->now_us, judge_charge, &charge);
    return charge.state;
}

static struct cells_change judge_give_back(struct limit_state state, void *data)
{
    struct charge *c = data;
    const struct cells_ask *ask = c->ask;
    c->state = limit_give_back(ask->limit, ask->window, state, ask->now_us, ask->cost);
    return (struct cells_change){ .writes = state.data != 0 && c->state.data != state.data,
                                  .next = c->state,
                                  .outlook = limit_outlook(ask->limit, c->state, ask->now_us) };
}

struct limit_state cells_give_back(struct cells *cells, const struct cells_ask *ask)
{
    CHECK(clock_valid(ask->now_us));
    struct charge charge = { ask, ask->limit, { 0 } };
    cells_update(cells, ask->key, ask->now_us, judge_give_back, &charge);
    return charge.state;
}
