/* Clocks that disagree by more than a period.
 *
 * A caller meets a cell whose time is more than a period ahead in two cases, which look the same to it. Either the clock
 * was wrong and has been set back: then the cell has to be rebased, or its subject would be locked out for as long as the
 * clock was wrong. Or this caller is stale (a process that was stopped, a long batch, a cached time) while others are
 * current: then the cell should not be rebased, because the next current caller finds a cell of long ago, all of which has
 * decayed. The two together would pass a whole limit each time they take turns.
 *
 * So a rebase leaves a mark, in a cell of its own: the caller's time (`to`), the cell's (`lead`), and how many times the
 * lead has come back. If a cell that has a mark is ahead again, the lead came back: either the clock stepped once more, or
 * callers take turns. The caller is then rebased only if its time is far enough from `to`: a period for the first few
 * times, and twice as far each time after that, less one time for each period that the lead goes on. Else the caller is
 * stale: it is judged at the cell's own time, as one that lags by less than a period is.
 *
 * The effect: two callers that take turns gain one limit in each period of the lead, or of the stale caller's own time. If
 * the lag varies, they gain in addition a few limits once: FREE_RETURNS, and one for each doubling of its range. A clock
 * that is set back locks nobody out for longer than a period. One that goes ahead and is set back to about the same time
 * more than once cannot be told from two callers, and may lock out for longer.
 *
 * A mark is not a count: in a full table it takes the place of no count. Then the caller is stale. */
#include "cells/rebase.h"

#include <stdlib.h>

#include "cells/cell.h"

enum {
    FREE_RETURNS = 3, /* of the lead, before a caller has to be further away each time */
    RETURNS_MAX = FREE_RETURNS + 12,
};

/* The state of a mark: its time is `to`, its data lead (52) and above it the returns. */
struct mark {
    int64_t to_us, lead_us;
    unsigned returns;
};

/* A damaged one must not make shifts too long. */
static struct mark mark_of(struct limit_state state)
{
    unsigned returns = (unsigned)(state.data >> CLOCK_BITS);
    return (struct mark){ (int64_t)state.time, (int64_t)(state.data & (CLOCK_END_US - 1)),
                          returns < RETURNS_MAX ? returns : RETURNS_MAX };
}

/* The lead has come back since the mark was made. False: the caller is stale. */
static bool may_return(const struct rebase *j, struct mark *mark)
{
    int64_t per_us = j->own.period_us, lead_us = j->own.at_us, since_us = lead_us - mark->lead_us;
    if (since_us > 0 && per_us > 0)
        mark->returns -= since_us / per_us < mark->returns ? (unsigned)(since_us / per_us) : mark->returns;
    unsigned doublings = mark->returns > FREE_RETURNS ? mark->returns - FREE_RETURNS : 0;
    if (llabs(j->now_us - mark->to_us) >> doublings < per_us)
        return false;
    if (mark->returns < RETURNS_MAX)
        mark->returns++;
    /* A lead that is lower by far is that of another clock. */
    if (since_us > 0 || since_us < -2 * per_us)
        mark->lead_us = lead_us;
    return true;
}

struct cells_change rebase_judge(struct limit_state state, void *data)
{
    struct rebase *j = data;
    struct mark mark = mark_of(state);
    bool first = state.data == 0, led = j->own.at_us - mark.to_us > j->own.period_us;
    if (first)
        mark.lead_us = j->own.at_us;
    j->stale = !first && led && !may_return(j, &mark);
    int64_t decays_us = j->own.at_us + 2 * j->own.period_us;
    return (struct cells_change){
        .writes = j->may_write && !j->stale,
        .next = { (uint64_t)j->now_us, (uint64_t)mark.returns << CLOCK_BITS | (uint64_t)mark.lead_us },
        .outlook = { .decays_us = decays_us < CLOCK_END_US ? decays_us : CLOCK_END_US, .share = LIMIT_SHARE_NONE },
    };
}

struct limit_take rebase_take(struct cells *cells, struct cells_ask *ask, struct limit_state state, bool may_write,
                              bool *rebases)
{
    struct rebase rebase = { ask->now_us, limit_own_time(ask->limit, state), may_write, false };
    rebase.own.at_us = clock_within(rebase.own.at_us); /* the state may be damaged */
    *rebases =
        *rebases || (cells_update(cells, ask->key ^ REBASE_MARK_KEY, ask->now_us, rebase_judge, &rebase) && !rebase.stale);
    if (!*rebases)
        ask->now_us = rebase.own.at_us;
    return take_of(ask, state);
}
