#include "model.h"

#define FINE_MAX UINT32_MAX /* a bucket beyond this counts in coarse parts */
enum { COARSE_PARTS = 256 };

uint64_t model_capacity(const struct model_limit *limit)
{
    if (limit->algorithm == LIMIT_TOKEN_BUCKET && limit->max > 0 && limit->burst > 0)
        return limit->burst;
    return limit->max;
}

static bool unused(const struct model_cell *cell)
{
    return cell->used == 0 && cell->count == 0 && cell->previous == 0;
}

/* ---- the parts of a bucket ---- */

/* What comes back of one token in one microsecond is `scale` of `used`; a token is `per` times that. */
static model_int scale(const struct model_limit *limit)
{
    return limit->in_parts ? MODEL_PARTS : 1;
}

static model_int token(const struct model_limit *limit)
{
    return limit->per_us * scale(limit);
}

/* A state of 2^32 tokens or more does not fit in fine parts, even if the limit's own numbers do by now. */
static bool is_coarse(const struct model_limit *limit, const struct model_cell *cell)
{
    return limit->max > FINE_MAX || limit->burst > FINE_MAX || cell->used >= token(limit) * ((model_int)FINE_MAX + 1);
}

static model_int round_up(const struct model_limit *limit, bool coarse, model_int used)
{
    model_int part = coarse ? token(limit) / COARSE_PARTS : limit->per_us;
    return limit->in_parts ? (used + part - 1) / part * part : used;
}

/* In how many microseconds a whole number of parts comes back; 0 if that is more than a thousandth of the period. */
static int64_t step_of(const struct model_limit *limit, bool coarse)
{
    model_int a = limit->per_us, b = (model_int)limit->max * (coarse ? COARSE_PARTS : MODEL_PARTS);
    while (b > 0) {
        model_int rest = a % b;
        a = b;
        b = rest;
    }
    int64_t step = (int64_t)(limit->per_us / a);
    return step <= limit->per_us / 1000 ? step : 0;
}

/* ---- a cell as it is at an instant ---- */

static void settle_bucket(const struct model_limit *limit, struct model_cell *cell, int64_t now_us, bool *rebased)
{
    cell->used = round_up(limit, is_coarse(limit, cell), cell->used);
    if (cell->when_us - now_us > limit->per_us) {
        *rebased = true;
        cell->when_us = now_us;
    }
    if (cell->when_us >= now_us)
        return;
    model_int back = (model_int)limit->max * (now_us - cell->when_us);
    cell->used = back > cell->used / scale(limit) ? 0 : cell->used - back * scale(limit);
    cell->when_us = now_us;
}

static void settle_window(const struct model_limit *limit, const struct window *window, struct model_cell *cell,
                          int64_t now_us, bool *rebased)
{
    if (now_us >= cell->end_us) {
        cell->count = 0;
    } else if (cell->start_us - now_us > cell->end_us - cell->start_us) {
        *rebased = true;
        bool calendar = limit->algorithm == LIMIT_CALENDAR;
        cell->start_us = calendar ? window->start_us : now_us;
        cell->end_us = calendar ? window->end_us : now_us + limit->per_us;
    }
}

static void settle_slide(const struct model_limit *limit, struct model_cell *cell, int64_t now_us, bool *rebased)
{
    if (cell->start_us - now_us > limit->per_us) {
        *rebased = true;
        cell->start_us = now_us;
    }
    while (!unused(cell) && now_us - cell->start_us >= limit->per_us) {
        cell->previous = cell->count;
        cell->count = 0;
        cell->start_us += limit->per_us;
    }
}

static struct model_cell settled(const struct model_limit *limit, const struct window *window, struct model_cell cell,
                                 int64_t now_us, bool *rebased)
{
    if (!unused(&cell)) {
        if (limit->algorithm == LIMIT_TOKEN_BUCKET)
            settle_bucket(limit, &cell, now_us, rebased);
        else if (limit->algorithm == LIMIT_SLIDING_WINDOW)
            settle_slide(limit, &cell, now_us, rebased);
        else
            settle_window(limit, window, &cell, now_us, rebased);
    }
    return unused(&cell) ? (struct model_cell){ 0 } : cell;
}

/* ---- questions to a settled cell ---- */

static bool has_room(const struct model_limit *limit, const struct model_cell *cell, int64_t now_us, uint64_t cost)
{
    if (limit->max == 0 || cost > model_capacity(limit))
        return false;
    model_int per = limit->per_us;
    if (limit->algorithm == LIMIT_TOKEN_BUCKET)
        return cell->used + cost * token(limit) <= model_capacity(limit) * token(limit);
    if (limit->algorithm != LIMIT_SLIDING_WINDOW)
        return cell->count + cost <= limit->max;
    int64_t into = now_us > cell->start_us ? now_us - cell->start_us : 0;
    model_int in_view = unused(cell) ? 0 : cell->previous * (per - into);
    return in_view + (cell->count + cost) * per <= limit->max * per;
}

/* What has to fit. */
static uint64_t needs(const struct model_limit *limit, uint64_t cost)
{
    return limit->overdraft && cost > 1 ? 1 : cost;
}

/* By trying which larger limit would not be overdrawn. */
static uint64_t find_debt(const struct model_limit *limit, const struct model_cell *cell, int64_t now_us)
{
    struct model_limit larger = *limit;
    uint64_t capacity = model_capacity(limit), too_little = 0, enough = 2 * WEIR_AMOUNT_MAX;
    bool burst = limit->algorithm == LIMIT_TOKEN_BUCKET && limit->max > 0;
    if (limit->max == 0 || has_room(limit, cell, now_us, 0))
        return 0;
    while (enough - too_little > 1) {
        uint64_t debt = too_little + (enough - too_little) / 2;
        *(burst ? &larger.burst : &larger.max) = capacity + debt;
        if (has_room(&larger, cell, now_us, 0))
            enough = debt;
        else
            too_little = debt;
    }
    return enough;
}

static uint64_t find_remaining(const struct model_limit *limit, const struct model_cell *cell, int64_t now_us)
{
    uint64_t fits = 0, too_much = WEIR_AMOUNT_MAX + 1;
    while (too_much - fits > 1) {
        uint64_t middle = fits + (too_much - fits) / 2;
        if (has_room(limit, cell, now_us, middle))
            fits = middle;
        else
            too_much = middle;
    }
    return fits;
}

/* How long until the cell is unused (`empty`) or has room for a cost, by trying. Time only makes room. */
static int64_t find_wait(const struct model_limit *limit, const struct window *window, const struct model_cell *cell,
                         int64_t now_us, bool empty, uint64_t cost)
{
    bool rebased;
    int64_t too_early = -1, late = 4 * MODEL_LATE_US;
    while (late - too_early > 1) {
        int64_t wait = too_early + (late - too_early) / 2;
        struct model_cell then = settled(limit, window, *cell, now_us + wait, &rebased);
        bool enough = empty ? unused(&then) : has_room(limit, &then, now_us + wait, cost);
        if (enough)
            late = wait;
        else
            too_early = wait;
    }
    return late;
}

/* `cell` as it is kept. */
static void look_ahead(const struct model_limit *limit, const struct window *window, const struct model_cell *cell,
                       int64_t now_us, uint64_t cost, struct model_answer *answer)
{
    bool rebased;
    struct model_cell now = settled(limit, window, *cell, now_us, &rebased);
    answer->remaining = find_remaining(limit, &now, now_us);
    answer->debt = find_debt(limit, &now, now_us);
    answer->reset_us = 0;
    if (!unused(&now)) {
        bool stays = limit->max == 0 && limit->algorithm == LIMIT_TOKEN_BUCKET;
        answer->reset_us = stays ? LIMIT_NEVER_US : find_wait(limit, window, cell, now_us, true, 0);
    }
    answer->retry_after_us = 0;
    if (!answer->fits) {
        bool never = limit->max == 0 || cost > model_capacity(limit);
        answer->retry_after_us = never ? LIMIT_NEVER_US : find_wait(limit, window, cell, now_us, false, cost);
    }
}

/* ---- charging ---- */

/* `before` is the cell as it was kept until now, `cell` as it is at now_us. In parts, the charge is added to what was used
 * when the last step ended; or, if steps are too long, to what is used now, rounded up. */
static void charge_bucket(const struct model_limit *limit, const struct model_cell *before, struct model_cell *cell,
                          int64_t now_us, uint64_t cost)
{
    bool first = unused(cell), coarse = is_coarse(limit, before);
    if (first)
        cell->when_us = now_us;
    if (limit->in_parts && !first) {
        int64_t step = step_of(limit, coarse), lag = 0;
        if (step == 0)
            cell->used = round_up(limit, coarse, cell->used);
        else if (before->when_us < now_us)
            lag = (now_us - before->when_us) % step;
        cell->used += (model_int)limit->max * lag * scale(limit);
        cell->when_us -= lag;
    }
    cell->used += cost * token(limit);
}

static void charge(const struct model_limit *limit, const struct window *window, const struct model_cell *before,
                   struct model_cell *cell, int64_t now_us, uint64_t cost)
{
    bool first = unused(cell);
    if (limit->algorithm == LIMIT_TOKEN_BUCKET) {
        charge_bucket(limit, before, cell, now_us, cost);
        return;
    }
    cell->count += cost;
    if (first && limit->algorithm == LIMIT_CALENDAR) {
        cell->start_us = window->start_us;
        cell->end_us = window->end_us;
    } else if (first) {
        cell->start_us = now_us;
        cell->end_us = now_us + limit->per_us;
    }
}

/* An overdraft that fine parts cannot count. */
static bool goes_coarse(const struct model_limit *limit, const struct model_cell *now, uint64_t cost)
{
    return limit->algorithm == LIMIT_TOKEN_BUCKET && limit->overdraft &&
           now->used + cost * token(limit) > FINE_MAX * token(limit);
}

struct model_answer model_look(const struct model_limit *limit, const struct window *window, struct model_cell *cell,
                               int64_t now_us, uint64_t cost)
{
    struct model_answer answer = { 0 };
    struct model_cell now = settled(limit, window, *cell, now_us, &answer.rebased);
    answer.fits = has_room(limit, &now, now_us, needs(limit, cost));
    if (answer.rebased)
        *cell = now;
    look_ahead(limit, window, cell, now_us, needs(limit, cost), &answer);
    return answer;
}

struct model_answer model_take(const struct model_limit *limit, const struct window *window, struct model_cell *cell,
                               int64_t now_us, uint64_t cost, struct model_receipt *ret_receipt)
{
    struct model_answer answer = { 0 };
    struct model_cell now = settled(limit, window, *cell, now_us, &answer.rebased);
    answer.fits = has_room(limit, &now, now_us, needs(limit, cost));
    if (answer.fits && cost > 0 && goes_coarse(limit, &now, cost)) {
        struct model_limit coarse = *limit;
        coarse.burst = WEIR_AMOUNT_MAX;
        now = settled(&coarse, window, *cell, now_us, &answer.rebased);
        charge(&coarse, window, cell, &now, now_us, cost);
    } else if (answer.fits && cost > 0) {
        charge(limit, window, cell, &now, now_us, cost);
    }
    if (answer.rebased || (answer.fits && cost > 0))
        *cell = now;
    look_ahead(limit, window, cell, now_us, needs(limit, cost), &answer);
    if (ret_receipt && answer.fits)
        *ret_receipt = (struct model_receipt){ now, now_us, cost };
    return answer;
}

static uint64_t less(uint64_t count, uint64_t by)
{
    return count > by ? count - by : 0;
}

bool model_refund(const struct model_limit *limit, const struct model_receipt *receipt, struct model_cell *cell,
                  int64_t now_us)
{
    if (limit->algorithm == LIMIT_TOKEN_BUCKET) {
        int64_t since_us = now_us > receipt->taken_us ? now_us - receipt->taken_us : 0;
        model_int back = (model_int)limit->max * since_us, left = receipt->cost * (model_int)limit->per_us - back;
        if (left <= 0)
            return false;
        bool coarse = is_coarse(limit, cell) || receipt->cost > FINE_MAX;
        left = round_up(limit, coarse, left * scale(limit));
        cell->used = round_up(limit, coarse, cell->used);
        cell->used = cell->used > left ? cell->used - left : 0;
        return true;
    }
    if (limit->algorithm == LIMIT_SLIDING_WINDOW && cell->start_us == receipt->taken.start_us + limit->per_us) {
        cell->previous = less(cell->previous, receipt->cost);
        return true;
    }
    bool same_end = limit->algorithm == LIMIT_SLIDING_WINDOW || cell->end_us == receipt->taken.end_us;
    if (cell->start_us != receipt->taken.start_us || !same_end)
        return false;
    cell->count = less(cell->count, receipt->cost);
    return true;
}

void model_new_period(struct model_cell *cell, int64_t old_per_us, int64_t new_per_us)
{
    cell->used =
        (cell->used / old_per_us) * new_per_us + ((cell->used % old_per_us) * new_per_us + old_per_us - 1) / old_per_us;
}
