/* Clocks that disagree by more than a period.
 *
 * A caller meets a cell whose time is more than a period ahead in two cases, which look the same to it. Either the clock
 * was wrong and has been set back: then the cell has to be rebased, or its subject would be locked out for as long as the
 * clock was wrong. Or this caller is stale (a process that was stopped, a long batch, a cached time) while others are
 * current: then the cell should not be rebased, because the next current caller finds a cell of long ago, all of which has
 * decayed. The two together would pass a whole limit each time they take turns.
 *
 * So a cell is rebased once for each period of its callers' time while the leading clock stays where it is. A rebase leaves
 * a mark, in a cell of its own, whose key says which period the caller's time fell into: that time, and the cell's. A
 * caller who finds a mark less than a period from its own time, less than two from the cell's, and a cell that has gone
 * ahead since, is stale: it is judged at the cell's own time, as one that lags by less than a period is.
 *
 * What follows: two callers who take turns, however far apart they are, gain one limit in each period. A clock that is set
 * back locks nobody out for longer than a period. One that goes back and forth between the same times cannot be told from
 * two callers, and locks out for a period more each time.
 *
 * Marks have the share 0, below every count, so the table drops them first. A lost mark costs one more rebase. */
#include "cells/rebase.h"

#include <stdlib.h>

/* Keys are hashes: another bit pattern leads to another cell. */
#define MARK_KEY UINT64_C(0x636c6f636b2d6d6b)

struct judging {
    int64_t now_us;
    struct limit_own_time own;
    bool may_write;
    bool stale;
};

/* A mark's time is the caller's at the rebase, its data is the cell's. */
static bool is_stale(const struct judging *j, struct limit_state mark)
{
    int64_t to_us = (int64_t)mark.time, ahead_us = (int64_t)mark.data, per_us = j->own.period_us;
    return ahead_us != 0 && llabs(j->now_us - to_us) < per_us && j->own.at_us - to_us > per_us &&
           llabs(j->own.at_us - ahead_us) < 2 * per_us;
}

static struct cells_change judge_mark(struct limit_state mark, void *data)
{
    struct judging *j = data;
    j->stale = j->stale || is_stale(j, mark);
    int64_t decays_us = j->own.at_us + 2 * j->own.period_us;
    return (struct cells_change){
        .writes = j->may_write && !j->stale,
        .next = { (uint64_t)j->now_us, (uint64_t)j->own.at_us },
        .outlook = { .decays_us = decays_us < CLOCK_END_US ? decays_us : CLOCK_END_US, .share = 0 },
    };
}

static void judge_period(struct cells *cells, uint64_t key, int64_t period, struct judging *j)
{
    uint64_t mark_key = key ^ MARK_KEY ^ (uint64_t)period * UINT64_C(0x9e3779b97f4a7c15);
    cells_update(cells, mark_key, j->now_us, judge_mark, j);
}

bool cells_is_stale(struct cells *cells, const struct cells_ask *ask, struct limit_state state, bool may_write)
{
    struct judging j = { .now_us = ask->now_us, .own = limit_own_time(ask->limit, state) };
    int64_t period = j.own.period_us > 0 ? j.now_us / j.own.period_us : j.now_us;
    judge_period(cells, ask->key, period - 1, &j);
    j.may_write = may_write;
    judge_period(cells, ask->key, period, &j);
    return j.stale;
}
