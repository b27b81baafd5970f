/* The scripts that decide and settle, on random limits, costs, holds and clocks: windows against the engine's own
 * arithmetic, which they have to follow exactly; buckets against the model's fractions, within the rounding that
 * src/redis/README.md states.
 *
 * All runs of a test go on step by step together, so that a step of all of them is one pipeline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "limit/take.h"
#include "model.h"
#include "random.h"
#include "redis/script.h"
#include "servers.h"
#include "zonefile.h"

enum { RUNS = 300, STEPS = 60, RECEIPTS = 6, KEEP_LOOK = 16 };

enum receipt_state {
    CHARGED, /* not a hold */
    HELD,
    OVER,   /* it is over, and was given back or kept */
    SETTLED /* for good: whatever is done to it changes nothing */
};

/* A charge, which can be settled later. */
struct receipt {
    enum receipt_state state;
    struct limit_state theirs, ours; /* as the charge left it: in the store, and here */
    struct limit limit;              /* as it was then */
    struct store_hold hold;
    uint32_t hold_id;
    int64_t until_us, drop_us; /* of a hold: its end; over: it is forgotten then */
    int64_t settled_us;
    uint64_t mark;
    int64_t taken_us;
    uint64_t cost;
};

enum action { DECIDE, SETTLE, RENEW };

struct run {
    uint64_t seed;
    struct random rnd;
    struct model_limit model;
    struct limit limit;
    struct limit_state state; /* of a window: what the engine would have */
    struct model_cell cell;   /* of a bucket: what the model has */
    struct limit_report last;
    enum calendar_unit unit;
    int64_t length_us; /* of CALENDAR_LENGTH */
    int64_t now_us, latest_us;
    /* Of a bucket a refund may leave a part of a token, which has a time, where the model has none: so a clock that steps
     * back and refunds are not for the same run. */
    bool forward;
    bool wide; /* amounts may have more than 32 bits: then the engine rounds the length of a window */
    uint64_t roundings;
    struct receipt receipts[RECEIPTS];
    int receipt_count;
    uint32_t ids;
    /* the step */
    enum action action;
    struct receipt *settled;
    char key[48], holds[52]; /* with their prefix */
    struct store_cell cells[1];
    struct store_rule rule;
    struct store_call call;
};

static struct redis_server server;
static struct talk talk;
static struct tz tz;
static struct run runs[RUNS];

#define EXPECT(run, condition)          \
    do {                                \
        if (!(condition)) {             \
            describe(run);              \
            fail_msg("%s", #condition); \
        }                               \
    } while (0)

static void describe(const struct run *r)
{
    print_error("run seed %llu: algorithm %d, max %llu, burst %llu, per %lld, now %lld, cost %llu, debt %llu\n",
                (unsigned long long)r->seed, r->model.algorithm, (unsigned long long)r->model.max,
                (unsigned long long)r->model.burst, (long long)r->model.per_us, (long long)r->now_us,
                (unsigned long long)r->cells[0].cost, (unsigned long long)r->cells[0].debt);
    print_error("state %llu %llu, theirs %llu %llu, fits %d; model: used %.3f of a period at %lld\n",
                (unsigned long long)r->state.time, (unsigned long long)r->state.data,
                (unsigned long long)r->cells[0].state.time, (unsigned long long)r->cells[0].state.data, r->cells[0].fits,
                (double)r->cell.used, (long long)r->cell.when_us);
}

static bool is_bucket(const struct run *r)
{
    return r->model.algorithm == LIMIT_TOKEN_BUCKET;
}

/* ---- a random limit ---- */

/* As far as the algorithm counts; often where the state of a bucket changes its form. */
static uint64_t pick_number(struct run *r)
{
    static const uint64_t edges[] = { UINT64_C(1) << 31, UINT64_C(1) << 32, LIMIT_MAX_MAX - 1 };
    uint64_t most = r->wide ? LIMIT_MAX_MAX : UINT32_MAX, number;
    if (random_one_in(&r->rnd, 10))
        number = edges[random_in(&r->rnd, 0, 2)] + (uint64_t)random_in(&r->rnd, -2, 1);
    else
        number = (uint64_t)random_scaled(&r->rnd, random_one_in(&r->rnd, 2) ? 20 : (int64_t)most);
    if (r->model.overdraft)
        most /= 2;
    return number < most ? number : most;
}

static void apply_limit(struct run *r)
{
    limit_init(&r->limit, r->model.algorithm, r->model.max, r->model.burst, r->model.per_us);
    r->limit.overdraft = r->model.overdraft;
}

static int64_t pick_per(struct random *rnd)
{
    static const int64_t usual_us[] = { LIMIT_PER_MIN_US, US_PER_S, 60 * US_PER_S, 86400 * US_PER_S, LIMIT_PER_MAX_US };
    if (random_one_in(rnd, 3))
        return usual_us[random_in(rnd, 0, sizeof usual_us / sizeof usual_us[0] - 1)];
    return LIMIT_PER_MIN_US + random_scaled(rnd, LIMIT_PER_MAX_US - LIMIT_PER_MIN_US);
}

static void begin(struct run *r, uint64_t seed, enum limit_algorithm algorithm)
{
    *r = (struct run){ .seed = seed, .rnd = { seed } };
    r->model.algorithm = algorithm;
    r->wide = algorithm != LIMIT_SLIDING_WINDOW && random_one_in(&r->rnd, 2);
    r->model.overdraft = random_one_in(&r->rnd, 3);
    r->model.max = random_one_in(&r->rnd, 30) ? 0 : pick_number(r);
    r->model.per_us = algorithm == LIMIT_CALENDAR ? 0 : pick_per(&r->rnd);
    if (is_bucket(r))
        r->model.burst = random_one_in(&r->rnd, 3) ? 0 : pick_number(r);
    r->forward = is_bucket(r) && random_one_in(&r->rnd, 2);
    r->unit = (enum calendar_unit)random_in(&r->rnd, 0, CALENDAR_LENGTH);
    r->length_us = random_scaled(&r->rnd, 3650 * 86400) * US_PER_S;
    r->now_us = random_in(&r->rnd, CLOCK_END_US / 8, CLOCK_END_US / 2);
    apply_limit(r);
    snprintf(r->key, sizeof r->key, "weir:%d:{%llu}:schedule:%d", SCRIPT_LAYOUT, (unsigned long long)seed, algorithm);
    snprintf(r->holds, sizeof r->holds, "%s:h", r->key);
    const char *tail = strchr(r->key, '{');
    r->cells[0] = (struct store_cell){ .limit = &r->limit, .field = SV("limit.x") };
    r->rule = (struct store_rule){ .key = { tail, strlen(tail) }, .cells = r->cells, .cell_count = 1 };
    r->call = (struct store_call){ .rules = &r->rule, .rule_count = 1 };
}

static struct window window_at(const struct run *r, int64_t now_us)
{
    if (r->model.algorithm != LIMIT_CALENDAR)
        return (struct window){ 0 };
    return r->unit == CALENDAR_LENGTH ? aligned_window(r->length_us, now_us)
                                      : calendar_window(&tz, r->unit, MONDAY, now_us);
}

static int64_t length_at(const struct run *r)
{
    struct window w = window_at(r, r->now_us);
    return r->model.algorithm == LIMIT_CALENDAR ? w.end_us - w.start_us : r->model.per_us;
}

/* ---- a random next step ---- */

/* Returns the state of a fixed or calendar window, as the engine knows it. */
static int64_t state_length_us(const struct run *r)
{
    struct window w = window_at(r, r->now_us);
    return limit_length_unpack(limit_count_read(&r->limit, &w, r->state).length);
}

/* Close to where a window is rebased: the engine knows its length only roughly. */
static bool is_doubtful(const struct run *r, int64_t now_us)
{
    if (is_bucket(r) || r->model.algorithm == LIMIT_SLIDING_WINDOW)
        return false;
    int64_t length = state_length_us(r);
    int64_t off = limit_state_end(r->state) - now_us - 2 * length;
    int64_t rounded = r->wide ? length : length >> 20; /* that of a large count by up to a half */
    return off <= rounded && -off <= rounded + 1;
}

/* Back to before the cell's own time. */
static int64_t pick_back(struct run *r)
{
    int64_t length = length_at(r), time;
    if (is_bucket(r))
        time = r->cell.when_us;
    else if (r->model.algorithm == LIMIT_SLIDING_WINDOW)
        time = (int64_t)r->state.time;
    else {
        length = state_length_us(r);
        time = limit_state_end(r->state) - length;
    }
    if (random_one_in(&r->rnd, 2))
        return time - random_in(&r->rnd, 0, length / 2);
    return time - 2 * length - random_scaled(&r->rnd, CLOCK_END_US / 16);
}

static int64_t pick_now(struct run *r)
{
    int64_t now = r->now_us;
    switch (random_in(&r->rnd, 0, r->forward ? 6 : 7)) {
    case 0:
        return now;
    case 1:
        return now + 1;
    case 2:
        return now + random_scaled(&r->rnd, 3 * length_at(r));
    case 3:
        return now + random_scaled(&r->rnd, length_at(r) / 16 + 1);
    case 4:
        return now + (r->last.retry_after_us > 0 ? r->last.retry_after_us - random_in(&r->rnd, 0, 1) : 0);
    case 5:
        return now + (r->last.reset_us > 0 ? r->last.reset_us - random_in(&r->rnd, 0, 1) : 0);
    case 6:
        return now / KEEP_LOOK * KEEP_LOOK + KEEP_LOOK;
    default:
        return pick_back(r);
    }
}

static void move_clock(struct run *r)
{
    int64_t next = pick_now(r);
    if (next > 0 && next < CLOCK_END_US - 3 * LIMIT_PER_MAX_US && !is_doubtful(r, next))
        r->now_us = next;
    r->latest_us = r->now_us > r->latest_us ? r->now_us : r->latest_us;
}

static uint64_t pick_any_cost(struct run *r)
{
    uint64_t capacity = r->limit.capacity, last = r->last.remaining;
    switch (random_in(&r->rnd, 0, 7)) {
    case 0:
        return 0;
    case 1:
        return capacity;
    case 2:
        return capacity < LIMIT_MAX_MAX ? capacity + 1 : capacity;
    case 3:
        return last;
    case 4:
        return last < LIMIT_MAX_MAX ? last + 1 : last;
    case 5:
        return (uint64_t)random_scaled(&r->rnd, (int64_t)(capacity + 1));
    default:
        return 1;
    }
}

/* With overdraft often far beyond the capacity; below 2^32 in all unless the run is wide. */
static uint64_t pick_cost(struct run *r)
{
    if (!r->model.overdraft)
        return pick_any_cost(r);
    uint64_t most = r->wide ? limit_overdraft_cost(&r->limit) : UINT32_MAX - r->limit.capacity;
    uint64_t cost = random_one_in(&r->rnd, 3) ? (uint64_t)random_scaled(&r->rnd, (int64_t)most) : pick_any_cost(r);
    return cost < most ? cost : most;
}

/* An administrator changes the numbers. */
static void change_limit(struct run *r)
{
    r->model.max = random_one_in(&r->rnd, 10) ? 0 : pick_number(r);
    if (is_bucket(r) && random_one_in(&r->rnd, 2))
        r->model.burst = random_one_in(&r->rnd, 3) ? 0 : pick_number(r);
    if (r->model.algorithm == LIMIT_FIXED_WINDOW && random_one_in(&r->rnd, 2))
        r->model.per_us = pick_per(&r->rnd);
    apply_limit(r);
}

/* ---- what should come of it ---- */

struct expected {
    bool fits;
    bool stored; /* something was written */
    bool folded; /* holds that were over were given back */
    struct limit_report report;
};

/* The count of any window. */
static uint64_t count_of(const struct run *r, struct limit_state s)
{
    return r->model.algorithm == LIMIT_SLIDING_WINDOW ? (uint32_t)s.data : limit_state_count(s);
}

static uint64_t sum_up_to(uint64_t a, uint64_t b, uint64_t most)
{
    return a + b < most ? a + b : most;
}

static void add_debt(struct run *r, const struct window *w, uint64_t debt)
{
    if (r->model.algorithm == LIMIT_SLIDING_WINDOW) {
        struct limit_slide slide = limit_slide_at(&r->limit, r->state, r->now_us);
        slide.count = (uint32_t)sum_up_to(slide.count, debt, UINT32_MAX);
        r->state = limit_slide_state(&slide);
    } else {
        struct limit_count count = limit_count_at(&r->limit, w, r->state, r->now_us);
        count.count = sum_up_to(count.count, debt, LIMIT_MAX_MAX);
        r->state = limit_count_state(&count);
    }
}

/* ---- holds ---- */

/* Returns the part of a cost that has not come back, in 1/per of a token. */
static model_int left_of(const struct receipt *receipt, uint64_t cost, int64_t now_us)
{
    int64_t since_us = now_us > receipt->taken_us ? now_us - receipt->taken_us : 0;
    model_int left = (model_int)cost * receipt->limit.per_us - (model_int)receipt->limit.max * since_us;
    return left > 0 ? left : 0;
}

/* More counts from when it was charged, but not from before the last charge. */
static void charge_since(struct model_cell *cell, const struct receipt *receipt, uint64_t more, int64_t now_us)
{
    model_int most = (model_int)LIMIT_MAX_MAX * receipt->limit.per_us;
    int64_t since_us = receipt->taken_us > cell->when_us ? receipt->taken_us : cell->when_us;
    since_us = since_us < now_us ? since_us : now_us;
    if (since_us > cell->when_us) {
        cell->used -= (model_int)receipt->limit.max * (since_us - cell->when_us);
        cell->used = cell->used > 0 ? cell->used : 0;
        cell->when_us = since_us;
    }
    cell->used += (model_int)more * receipt->limit.per_us;
    cell->used = cell->used < most ? cell->used : most;
    model_int back = (model_int)receipt->limit.max * (now_us - cell->when_us);
    if (now_us > cell->when_us && back < cell->used) { /* by the rate that it had then, as long as something is left */
        cell->used -= back;
        cell->when_us = now_us;
    }
}

static void amend_model(struct run *r, const struct receipt *receipt, uint64_t from, uint64_t to)
{
    if (receipt->limit.max == 0)
        return;
    if (to > from)
        charge_since(&r->cell, receipt, to - from, r->now_us);
    else
        r->cell.used -= left_of(receipt, from, r->now_us) - left_of(receipt, to, r->now_us);
    r->cell.used = r->cell.used < 0 ? 0 : r->cell.used;
    r->roundings += 2;
}

/* A charge of a bucket that is not a hold can be settled until it has come back, and for a period at least. */
static bool is_over(const struct run *r, const struct receipt *receipt)
{
    model_int per = receipt->limit.per_us, since = r->now_us - receipt->taken_us;
    return is_bucket(r) && receipt->state == CHARGED && since >= per &&
           since * (model_int)receipt->limit.max >= per * (model_int)receipt->cost;
}

/* Returns whether something changed, which is not known of a bucket. */
static bool amend(struct run *r, const struct receipt *receipt, uint64_t from, uint64_t to)
{
    struct window w = window_at(r, r->now_us);
    if (!is_bucket(r))
        return limit_amend(&receipt->limit, &w, limit_origin(&receipt->limit, receipt->ours, receipt->taken_us), from, to,
                           r->now_us, &r->state);
    if (!is_over(r, receipt))
        amend_model(r, receipt, from, to);
    return false;
}

static int64_t dropped_us(const struct run *r, const struct receipt *receipt)
{
    int64_t day_us = r->now_us + 86400 * US_PER_S, end_us;
    if (is_bucket(r))
        end_us = r->now_us + receipt->limit.per_us;
    else if (r->model.algorithm == LIMIT_SLIDING_WINDOW)
        end_us = (int64_t)receipt->ours.time + 2 * receipt->limit.per_us;
    else
        end_us = limit_state_end(receipt->ours);
    return end_us < day_us ? end_us : day_us;
}

static int count_held(const struct run *r, bool over)
{
    int count = 0;
    for (int i = 0; i < r->receipt_count; i++)
        count += r->receipts[i].state == HELD && (!over || r->receipts[i].until_us <= r->now_us);
    return count;
}

static void fold(struct run *r)
{
    for (int i = 0; i < r->receipt_count; i++) {
        struct receipt *receipt = &r->receipts[i];
        if (receipt->state != HELD || receipt->until_us > r->now_us)
            continue;
        if (!receipt->hold.keep)
            amend(r, receipt, receipt->cost, 0);
        receipt->drop_us = dropped_us(r, receipt);
        receipt->state = OVER;
    }
}

/* A window: the engine's arithmetic. Holds that are over are given back if there is no room, or if this is to be one. */
static struct expected expect_window(struct run *r)
{
    uint64_t cost = r->cells[0].cost, debt = r->cells[0].debt;
    struct window w = window_at(r, r->now_us);
    struct expected expected = { .stored = debt > 0 };
    struct limit_state before = r->state;
    if (debt > 0)
        add_debt(r, &w, debt);
    struct limit_take take = limit_take(&r->limit, &w, r->state, r->now_us, cost);
    if (!take.fits && cost > 0 && r->limit.overdraft)
        take = limit_overdraw(&r->limit, &w, r->state, r->now_us, cost);
    if (count_held(r, true) > 0 && (r->call.hold_id != 0 || (!take.fits && r->limit.max > 0))) {
        r->state = before;
        fold(r);
        if (debt > 0)
            add_debt(r, &w, debt);
        take = limit_take(&r->limit, &w, r->state, r->now_us, cost);
        if (!take.fits && cost > 0 && r->limit.overdraft)
            take = limit_overdraw(&r->limit, &w, r->state, r->now_us, cost);
        expected.folded = true;
    }
    bool charged = take.fits && cost > 0 && r->call.charge;
    if (charged) {
        r->state = take.next;
    } else if (take.rebased && !take.fits && r->call.charge) {
        r->state = take.next;
        expected.stored = true;
    }
    expected.stored |= charged;
    expected.fits = take.fits;
    expected.report = limit_report(&r->limit, &w, r->state, r->now_us, limit_needs(&r->limit, cost));
    return expected;
}

static void check_window(struct run *r)
{
    struct window w = window_at(r, r->now_us);
    struct limit_state before = r->state, theirs = r->cells[0].state;
    struct expected expected = expect_window(r);
    struct limit_report report = limit_report(&r->limit, &w, theirs, r->now_us, limit_needs(&r->limit, r->cells[0].cost));
    EXPECT(r, r->cells[0].fits == expected.fits);
    EXPECT(r, report.remaining == expected.report.remaining && report.debt == expected.report.debt);
    EXPECT(r, report.reset_us == expected.report.reset_us);
    EXPECT(r, report.retry_after_us == expected.report.retry_after_us);
    bool same_count = theirs.time == r->state.time && count_of(r, theirs) == count_of(r, r->state);
    EXPECT(r, !expected.stored || (same_count && (r->wide || theirs.data == r->state.data)));
    EXPECT(r, expected.stored || expected.folded || count_of(r, before) == 0 || count_of(r, theirs) == count_of(r, before));
    r->last = report;
}

/* What the store may have lost of a bucket: 1/2^20 token for each time that it rounded, in 1/per of a token. */
static model_int lost_in_store(const struct run *r)
{
    return ((model_int)(r->roundings + 1) * r->model.per_us >> 20) + 1;
}

/* And where the state is read: 1/LIMIT_TOKEN, or more for large amounts. */
static model_int lost_in_all(const struct run *r)
{
    bool coarse = r->limit.base > 0 || r->cells[0].state.data >= LIMIT_COARSE;
    return lost_in_store(r) + (coarse ? r->model.per_us / (model_int)LIMIT_TOKEN_COARSE + 1 : 0);
}

/* A bucket: the model is charged what the store has charged. The rounding may decide whether there is room, so the store
 * says whether holds were given back. */
static void check_bucket(struct run *r, int64_t held)
{
    uint64_t cost = r->cells[0].cost, debt = r->cells[0].debt;
    bool fits = r->cells[0].fits, charges = r->call.charge && fits && r->call.hold_id != 0;
    bool folded = held - charges < count_held(r, false);
    EXPECT(r, folded || count_held(r, true) == 0 || (fits && r->call.hold_id == 0) || r->limit.max == 0);
    if (folded)
        fold(r);
    if (debt > 0) {
        struct model_limit wide = { LIMIT_TOKEN_BUCKET, r->model.max, LIMIT_MAX_MAX, r->model.per_us };
        EXPECT(r, model_take(&wide, NULL, &r->cell, r->now_us, debt, NULL).fits);
        r->roundings++;
    }
    bool charged = fits && cost > 0 && r->call.charge, refused = !fits && r->call.charge;
    struct model_cell before = r->cell, looked = r->cell;
    /* A clock that was wrong is put right by a charge, and by one that is refused. */
    struct model_answer answer = charged ? model_take(&r->model, NULL, &r->cell, r->now_us, cost, NULL)
                                         : model_look(&r->model, NULL, refused ? &r->cell : &looked, r->now_us, cost);
    r->roundings += charged;
    model_int per = r->model.per_us, lost = lost_in_all(r);
    struct limit_report report = limit_report(&r->limit, NULL, r->cells[0].state, r->now_us, limit_needs(&r->limit, cost));
    EXPECT(r, answer.fits || !fits);
    if (answer.fits && !fits) {
        before.used += lost_in_store(r);
        EXPECT(r, !model_look(&r->model, NULL, &before, r->now_us, cost).fits);
    } else {
        EXPECT(r, report.remaining <= answer.remaining);
        EXPECT(r, report.remaining + (lost + per - 1) / per >= answer.remaining);
    }
    if (r->model.max > 0 && answer.reset_us < MODEL_LATE_US) {
        int64_t lost_us = (int64_t)(lost / r->model.max) + 2;
        EXPECT(r, report.reset_us >= answer.reset_us && report.reset_us <= answer.reset_us + lost_us);
    }
    r->last = report;
}

/* ---- one step ---- */

static void note_charge(struct run *r)
{
    int i = r->receipt_count < RECEIPTS ? r->receipt_count++ : (int)random_in(&r->rnd, 0, RECEIPTS - 1);
    bool holds = r->call.hold_id != 0;
    while (r->receipts[i].state == HELD)
        i = (i + 1) % RECEIPTS; /* one that is held is not forgotten: it is given back some time */
    r->receipts[i] = (struct receipt){ .state = holds ? HELD : CHARGED,
                                       .theirs = r->cells[0].state,
                                       .ours = r->state,
                                       .limit = r->limit,
                                       .hold = r->cells[0].hold,
                                       .hold_id = r->call.hold_id,
                                       .until_us = r->now_us + r->cells[0].hold.ttl_us,
                                       .mark = random_u64(&r->rnd) | 1,
                                       .taken_us = r->now_us,
                                       .cost = r->cells[0].cost };
}

/* The caller's idea of the time lags behind now and then: then the current window is its next one. */
static void pick_windows(struct run *r)
{
    struct window now = window_at(r, r->now_us);
    bool lags = now.end_us > 0 && random_one_in(&r->rnd, 3);
    r->cells[0].window = lags ? window_at(r, now.start_us - 1) : now;
    r->cells[0].next = lags ? now : window_at(r, now.end_us);
}

/* A bucket of the model has room for it, and what is used stays below 2^32 unless the run is wide. */
static uint64_t pick_debt(struct run *r)
{
    model_int most = r->wide ? INT64_C(1) << 52 : INT32_MAX;
    model_int used = is_bucket(r) ? r->cell.used / r->model.per_us : (model_int)count_of(r, r->state);
    if (r->model.max == 0 || used > most)
        return 0;
    return (uint64_t)random_scaled(&r->rnd, r->wide ? INT64_C(1) << 50 : 1000);
}

/* One more receipt has room without forgetting a hold. */
static bool may_hold(const struct run *r)
{
    return (r->forward || !is_bucket(r)) && count_held(r, false) < RECEIPTS - 1;
}

static void ask_decision(struct run *r)
{
    bool holds = may_hold(r) && random_one_in(&r->rnd, 3);
    r->cells[0].limit = &r->limit;
    r->cells[0].cost = pick_cost(r);
    r->call.charge = holds || !random_one_in(&r->rnd, 10);
    r->cells[0].debt = random_one_in(&r->rnd, 20) ? pick_debt(r) : 0;
    holds = holds && r->cells[0].cost > 0;
    r->call.hold_id = holds ? ++r->ids : 0;
    r->cells[0].hold = (struct store_hold){ 0 };
    if (holds)
        r->cells[0].hold = (struct store_hold){ .ttl_us = 1 + random_scaled(&r->rnd, length_at(r)),
                                                .amount = r->cells[0].cost,
                                                .keep = random_one_in(&r->rnd, 4),
                                                .nth = (uint16_t)random_in(&r->rnd, 0, 3) };
    script_write_decide(&talk.out, SV("weir"), &r->call);
}

/* More than was charged, less, or the same. What is used stays as small as pick_debt() keeps it. */
static uint64_t pick_to(struct run *r, const struct receipt *receipt)
{
    if (random_one_in(&r->rnd, 3))
        return 0;
    if (random_one_in(&r->rnd, 3) && receipt->cost < UINT32_MAX)
        return receipt->cost + pick_debt(r) % 1000;
    return (uint64_t)random_in(&r->rnd, 0, (int64_t)receipt->cost);
}

static void ask_settlement(struct run *r)
{
    const struct receipt *receipt = r->settled;
    r->call.server_us = receipt->taken_us;
    r->call.hold_id = receipt->hold_id;
    r->call.mark = receipt->mark;
    r->call.renew = r->action == RENEW;
    r->cells[0].limit = &receipt->limit;
    r->cells[0].hold = receipt->hold;
    if (r->call.renew)
        r->cells[0].hold.ttl_us = 1 + random_scaled(&r->rnd, length_at(r));
    r->cells[0].cost = receipt->cost;
    r->cells[0].to = pick_to(r, receipt);
    r->cells[0].state = receipt->theirs;
    script_write_settle(&talk.out, SV("weir"), &r->call);
}

/* Where the store's rounding decides. */
static bool is_nearly_over(const struct run *r, const struct receipt *receipt)
{
    model_int max = receipt->limit.max, since = r->now_us - receipt->taken_us;
    model_int off = since * max - (model_int)receipt->limit.per_us * (model_int)receipt->cost;
    return off <= max && -off <= max;
}

/* The store does not know calendars: if the clock is before the window of a charge, it takes that for the current one.
 * Where the counts of a sliding window end, it leaves out how much of the previous one is still in view, and where those of
 * others become wide, the engine rounds lengths. And it knows windows by their ends alone. */
static bool agree_on(const struct run *r, const struct receipt *receipt)
{
    if (is_bucket(r))
        return !is_nearly_over(r, receipt);
    uint64_t previous = r->model.algorithm == LIMIT_SLIDING_WINDOW ? r->state.data >> 32 : 0;
    if (!r->wide && previous + count_of(r, r->state) + receipt->cost >= UINT32_MAX - 1000)
        return false;
    if (r->model.algorithm == LIMIT_CALENDAR)
        return window_at(r, limit_state_end(receipt->ours) - 1).start_us <= r->now_us;
    if (r->model.algorithm == LIMIT_SLIDING_WINDOW)
        return true;
    return limit_state_end(r->state) != limit_state_end(receipt->ours) ||
           limit_own_time(&r->limit, r->state).at_us == limit_own_time(&r->limit, receipt->ours).at_us;
}

static void ask(struct run *r)
{
    bool may_settle = r->receipt_count > 0 && (r->forward || !is_bucket(r));
    r->settled = &r->receipts[random_in(&r->rnd, 0, r->receipt_count > 0 ? r->receipt_count - 1 : 0)];
    r->action = may_settle && random_one_in(&r->rnd, 4) ? SETTLE : DECIDE;
    if (r->action == SETTLE && r->settled->state == HELD && random_one_in(&r->rnd, 4))
        r->action = RENEW;
    if (r->action == SETTLE && !agree_on(r, r->settled))
        r->action = DECIDE;
    /* What the store has forgotten, or not yet, is not told apart. */
    bool forgotten = r->settled->state >= OVER && (r->now_us < r->latest_us || r->settled->drop_us <= r->now_us);
    r->action = forgotten ? DECIDE : r->action;
    r->call.now_us = r->now_us;
    pick_windows(r);
    if (r->action == DECIDE)
        ask_decision(r);
    else
        ask_settlement(r);
    talk_write(&talk, "ZCOUNT", r->holds, "1", "+inf", NULL);
    /* The store's own clock goes on while the virtual one stands: nothing may expire by it. */
    talk_write(&talk, "PTTL", r->key, NULL);
    talk_write(&talk, "PERSIST", r->key, NULL);
    talk_write(&talk, "PERSIST", r->holds, NULL);
}

static void check_renewal(struct run *r, int64_t renewed)
{
    struct receipt *receipt = r->settled;
    bool lasts = receipt->until_us > r->now_us;
    EXPECT(r, renewed == lasts);
    if (lasts)
        receipt->until_us = r->now_us + r->cells[0].hold.ttl_us;
}

static void check_settlement(struct run *r, int64_t settled)
{
    struct receipt *receipt = r->settled;
    uint64_t from = receipt->cost, to = r->cells[0].to;
    if (receipt->state == SETTLED) {
        EXPECT(r, settled == 0);
        return;
    }
    if (receipt->state == OVER && !receipt->hold.keep)
        from = 0;
    bool done = (receipt->state != CHARGED || from != to) && amend(r, receipt, from, to);
    if (receipt->state != CHARGED)
        EXPECT(r, settled == 1);
    else if (!is_bucket(r))
        EXPECT(r, settled == done);
    /* A charge that was left as it is can be settled again. */
    bool again = receipt->state == CHARGED && settled == 0;
    receipt->drop_us = receipt->state == CHARGED ? r->now_us + 86400 * US_PER_S : INT64_MAX;
    receipt->state = again ? CHARGED : SETTLED;
}

/* Never too short; and told anew by every charge of a bucket, where a window opens, and now and then. */
static void check_expiry(struct run *r, int64_t pttl_ms, struct limit_state before)
{
    if (r->action != DECIDE)
        return;
    bool charged = r->cells[0].fits && r->cells[0].cost > 0 && r->call.charge;
    struct limit_state theirs = r->cells[0].state;
    bool slides = r->model.algorithm == LIMIT_SLIDING_WINDOW;
    bool opened = (slides ? before.data : limit_state_count(before)) == 0 || before.time != theirs.time;
    if (charged && (is_bucket(r) || opened || r->now_us % KEEP_LOOK == 0))
        EXPECT(r, pttl_ms > 0);
    struct window w = window_at(r, r->now_us);
    int64_t reset_us = limit_report(&r->limit, &w, theirs, r->now_us, 0).reset_us;
    if (pttl_ms > 0 && reset_us < MODEL_LATE_US)
        EXPECT(r, pttl_ms >= reset_us / US_PER_MS);
}

static void check(struct run *r)
{
    struct reply reply;
    struct limit_state before = r->state;
    EXPECT(r, talk_read(&talk, &reply));
    if (reply.kind == REPLY_ERROR)
        print_error("%.*s\n", SV_FMT(reply.text));
    if (r->action != DECIDE) {
        EXPECT(r, reply.kind == REPLY_INTEGER);
        (r->action == RENEW ? check_renewal : check_settlement)(r, reply.integer);
        EXPECT(r, talk_read(&talk, &reply));
    } else {
        EXPECT(r, reply.kind == REPLY_BULK && script_read_decide(&r->call, reply.text));
        EXPECT(r, talk_read(&talk, &reply) && reply.kind == REPLY_INTEGER);
        EXPECT(r, r->call.result == STORE_DECIDED && r->call.server_us == r->now_us);
        EXPECT(r, r->call.allowed == r->cells[0].fits && r->rule.fits == r->cells[0].fits);
        if (is_bucket(r))
            check_bucket(r, reply.integer);
        else
            check_window(r);
        if (r->call.allowed && r->cells[0].cost > 0 && r->call.charge)
            note_charge(r);
    }
    EXPECT(r, reply.integer == count_held(r, false));
    EXPECT(r, talk_read(&talk, &reply) && reply.kind == REPLY_INTEGER);
    check_expiry(r, reply.integer, before);
    EXPECT(r, talk_read(&talk, &reply) && talk_read(&talk, &reply));
}

static void run_all(enum limit_algorithm algorithm)
{
    uint64_t seed = random_seed();
    talk_close(&talk);
    assert_true(talk_open(&talk, &server));
    for (int i = 0; i < RUNS; i++)
        begin(&runs[i], seed + (uint64_t)i, algorithm);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < RUNS; i++)
            ask(&runs[i]);
        for (int i = 0; i < RUNS; i++) {
            check(&runs[i]);
            move_clock(&runs[i]);
            if (random_one_in(&runs[i].rnd, 10))
                change_limit(&runs[i]);
        }
    }
}

static void fixed_windows_are_the_engines(void **state)
{
    (void)state;
    run_all(LIMIT_FIXED_WINDOW);
}

static void calendar_windows_are_the_engines(void **state)
{
    (void)state;
    run_all(LIMIT_CALENDAR);
}

static void sliding_windows_are_the_engines(void **state)
{
    (void)state;
    run_all(LIMIT_SLIDING_WINDOW);
}

static void buckets_are_as_strict_as_the_model(void **state)
{
    (void)state;
    run_all(LIMIT_TOKEN_BUCKET);
}

static int set_up(void **state)
{
    static struct zonefile zone;
    const char *why;
    (void)state;
    zonefile_make("EST5EDT,M3.2.0,M11.1.0", &zone);
    if (tz_parse(zone.bytes, zone.len, &tz, &why) != 0 || !redis_server_start(&server) || !talk_open(&talk, &server))
        return -1;
    return talk_load_scripts(&talk) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    talk_close(&talk);
    redis_server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_windows_are_the_engines),
        cmocka_unit_test(calendar_windows_are_the_engines),
        cmocka_unit_test(sliding_windows_are_the_engines),
        cmocka_unit_test(buckets_are_as_strict_as_the_model),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
