/* The limits once more, slowly: what section "The limits" of the design says, in exact fractions and by trying, so that the
 * fast ones have something to be compared with. Shares no code with src/limit but the names of the algorithms. */
#ifndef TESTS_LIMIT_MODEL_H
#define TESTS_LIMIT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "limit/calendar.h"
#include "limit/limit.h"

typedef __int128 model_int;

struct model_limit {
    enum limit_algorithm algorithm;
    uint64_t max;
    uint64_t burst; /* 0: max */
    int64_t per_us; /* all but calendar */
    bool overdraft; /* any cost passes if 1 fits, and all of it is charged */
    /* token_bucket: states are whole parts of a token, as src/limit/README.md says, so that equal means equal. Then used
     * is in 1/MODEL_PARTS of what it is in otherwise, and per_us at most a week. */
    bool in_parts;
};

#define MODEL_PARTS 3628800000 /* of a token; limits beyond 2^32 - 1 count in 256 */

/* All zero: unused. */
struct model_cell {
    /* token_bucket: used / per tokens at when_us. A fraction of its own for each period: see model_new_period. */
    model_int used;
    int64_t when_us;
    /* fixed_window and calendar; sliding_window has no end */
    int64_t start_us, end_us;
    uint64_t count, previous;
};

struct model_answer {
    bool fits;
    bool rebased;
    uint64_t remaining;     /* after the charge */
    uint64_t debt;          /* after the charge: how much has to come back before a cost of 0 fits, rounded up */
    int64_t reset_us;       /* after the charge; LIMIT_NEVER_US; MODEL_LATE_US or more: some time after that */
    int64_t retry_after_us; /* as reset_us */
};

#define MODEL_LATE_US (INT64_C(1) << 51)

/* What a charge was made to, for giving it back. */
struct model_receipt {
    struct model_cell taken;
    int64_t taken_us;
    uint64_t cost;
};

uint64_t model_capacity(const struct model_limit *limit);

/* `window` is the one that now_us lies in; calendar only. Look charges nothing. Take charges if it fits; ret_receipt may be
 * NULL. A clock that was put right is noted in the cell by both. */
struct model_answer model_look(const struct model_limit *limit, const struct window *window, struct model_cell *cell,
                               int64_t now_us, uint64_t cost);
struct model_answer model_take(const struct model_limit *limit, const struct window *window, struct model_cell *cell,
                               int64_t now_us, uint64_t cost, struct model_receipt *ret_receipt);
bool model_refund(const struct model_limit *limit, const struct model_receipt *receipt, struct model_cell *cell,
                  int64_t now_us);

/* Call it where a bucket's period changes: restates what is used, rounded up. */
void model_new_period(struct model_cell *cell, int64_t old_per_us, int64_t new_per_us);

#endif
