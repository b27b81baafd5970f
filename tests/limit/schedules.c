/* Every algorithm against the slow model, on random schedules of a virtual clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "limit/take.h"
#include "model.h"
#include "random.h"
#include "zonefile.h"

enum {
    RUNS = 2500,
    STEPS = 60,
    RECEIPTS = 4,
};

/* How closely a bucket must follow the model. */
enum accuracy {
    EXACT,         /* a period that divides a week, whole milliseconds: whatever the clock and the administrator do */
    EXACT_FORWARD, /* a period of whole milliseconds: as long as neither steps back */
    STRICT,        /* any: never more lenient, and stricter by no more than is said in README.md */
};

struct run {
    uint64_t seed;
    struct random rnd;
    enum accuracy accuracy;
    struct limit limit;
    struct model_limit model;
    struct limit_state state;
    struct model_cell cell;
    bool live;              /* an administrator changes the numbers */
    bool wide;              /* they may have more than 32 bits: then the length of a window may be rounded */
    uint64_t overdraw_most; /* with overdraft: no cost is more */
    struct tz tz;           /* calendar */
    enum calendar_unit unit;
    int64_t length_us; /* of CALENDAR_LENGTH */
    int64_t start_us, now_us;
    int64_t quantum_us; /* instants are multiples of this */
    struct limit_report last;
    /* STRICT: what rounding and lagging may have cost */
    uint64_t charges, rebases, quick;
    bool stepped_back;
    /* receipts of some of the last charges */
    struct limit_state taken[RECEIPTS];
    struct model_receipt receipt[RECEIPTS];
    int receipts;
};

#define EXPECT(run, condition)          \
    do {                                \
        if (!(condition)) {             \
            describe(run);              \
            fail_msg("%s", #condition); \
        }                               \
    } while (0)

static void describe(const struct run *r)
{
    print_error("run seed %llu: algorithm %d, max %llu, burst %llu, per %lld, accuracy %d, now %lld\n",
                (unsigned long long)r->seed, r->model.algorithm, (unsigned long long)r->model.max,
                (unsigned long long)r->model.burst, (long long)r->model.per_us, r->accuracy, (long long)r->now_us);
    print_error("state %llu %llu; model: used %.3f of a period at %lld, window [%lld, %lld), count %llu, previous %llu\n",
                (unsigned long long)r->state.time, (unsigned long long)r->state.data, (double)r->cell.used,
                (long long)r->cell.when_us, (long long)r->cell.start_us, (long long)r->cell.end_us,
                (unsigned long long)r->cell.count, (unsigned long long)r->cell.previous);
}

/* ---- a random limit ---- */

static int64_t pick_per(struct random *rnd, enum accuracy accuracy)
{
    static const int64_t week_parts_ms[] = { 1,    2,     5,     10,     16,      100,     125,      500,      640,
                                             1000, 60000, 90000, 420000, 3600000, 7200000, 21600000, 86400000, 604800000 };
    if (accuracy == EXACT)
        return week_parts_ms[random_in(rnd, 0, sizeof week_parts_ms / sizeof week_parts_ms[0] - 1)] * US_PER_MS;
    if (accuracy == EXACT_FORWARD || random_one_in(rnd, 3))
        return random_scaled(rnd, LIMIT_PER_MAX_US / US_PER_MS) * US_PER_MS;
    return LIMIT_PER_MIN_US + random_scaled(rnd, LIMIT_PER_MAX_US - LIMIT_PER_MIN_US);
}

/* As far as the algorithm counts; often where the layout of states changes. */
static uint64_t pick_number(struct run *r)
{
    static const uint64_t edges[] = { UINT64_C(1) << 31, UINT64_C(1) << 32, LIMIT_MAX_MAX - 1 };
    uint64_t most = r->wide ? LIMIT_MAX_MAX : UINT32_MAX, number;
    if (random_one_in(&r->rnd, 10))
        number = edges[random_in(&r->rnd, 0, 2)] + (uint64_t)random_in(&r->rnd, -2, 1);
    else
        number = (uint64_t)random_scaled(&r->rnd, random_one_in(&r->rnd, 2)   ? 20
                                                  : random_one_in(&r->rnd, 2) ? UINT32_MAX
                                                                              : (int64_t)LIMIT_MAX_MAX);
    if (r->model.overdraft && most > (r->wide ? LIMIT_OVERDRAFT_MAX : LIMIT_SLIDE_OVERDRAFT_MAX))
        most = r->wide ? LIMIT_OVERDRAFT_MAX : LIMIT_SLIDE_OVERDRAFT_MAX;
    return number < most ? number : most;
}

/* Where a bucket is compared with fractions, no overdraft moves it to coarse parts, which round more. */
static void apply_limit(struct run *r)
{
    limit_init(&r->limit, r->model.algorithm, r->model.max, r->model.burst, r->model.per_us);
    r->limit.overdraft = r->model.overdraft;
    r->overdraw_most = limit_overdraft_cost(&r->limit);
    if (r->model.algorithm == LIMIT_TOKEN_BUCKET && r->accuracy != EXACT && r->limit.base == 0)
        r->overdraw_most = UINT32_MAX - r->limit.capacity;
}

static void begin(struct run *r, uint64_t seed, enum limit_algorithm algorithm, enum accuracy accuracy)
{
    static struct zonefile zone;
    *r = (struct run){ .seed = seed, .rnd = { seed }, .accuracy = accuracy, .quantum_us = 1 };
    r->model.algorithm = algorithm;
    r->wide = algorithm != LIMIT_SLIDING_WINDOW && random_one_in(&r->rnd, 2);
    r->model.overdraft = random_one_in(&r->rnd, 5);
    r->model.max = random_one_in(&r->rnd, 30) ? 0 : pick_number(r);
    if (algorithm == LIMIT_TOKEN_BUCKET) {
        r->model.burst = random_one_in(&r->rnd, 3) ? 0 : pick_number(r);
        r->quantum_us = accuracy == EXACT ? US_PER_MS : 1;
        r->model.in_parts = accuracy == EXACT;
    }
    r->model.per_us = pick_per(&r->rnd, algorithm == LIMIT_TOKEN_BUCKET ? accuracy : EXACT_FORWARD);
    if (algorithm == LIMIT_CALENDAR) {
        const char *why;
        r->model.per_us = 0;
        r->unit = (enum calendar_unit)random_in(&r->rnd, 0, CALENDAR_LENGTH);
        r->length_us = random_scaled(&r->rnd, 3650 * 86400) * US_PER_S;
        zonefile_make("EST5EDT,M3.2.0,M11.1.0", &zone);
        assert_int_equal(tz_parse(zone.bytes, zone.len, &r->tz, &why), 0);
    }
    r->start_us = r->now_us = random_in(&r->rnd, 0, CLOCK_END_US / 2 / r->quantum_us) * r->quantum_us;
    apply_limit(r);
    /* Coarse parts have long steps for most periods. */
    if (accuracy == EXACT_FORWARD && r->limit.base > 0)
        r->accuracy = STRICT;
}

static struct window window_at(const struct run *r, int64_t now_us)
{
    if (r->model.algorithm != LIMIT_CALENDAR)
        return (struct window){ 0 };
    return r->unit == CALENDAR_LENGTH ? aligned_window(r->length_us, now_us)
                                      : calendar_window(&r->tz, r->unit, MONDAY, now_us);
}

static int64_t length_at(const struct run *r)
{
    struct window w = window_at(r, r->now_us);
    return r->model.algorithm == LIMIT_CALENDAR ? w.end_us - w.start_us : r->model.per_us;
}

/* ---- a random next step ---- */

/* Back to before the cell's own time. Close to the point where a cell is rebased only if both must agree there. */
static int64_t pick_back(struct run *r)
{
    bool bucket = r->model.algorithm == LIMIT_TOKEN_BUCKET, slide = r->model.algorithm == LIMIT_SLIDING_WINDOW;
    int64_t time = bucket ? r->cell.when_us : r->cell.start_us;
    int64_t length = bucket || slide ? r->model.per_us : r->cell.end_us - r->cell.start_us;
    bool rounded = length >= (1 << LIMIT_LENGTH_MANTISSA) || (r->wide && (r->live || length != r->model.per_us));
    bool fuzzy = bucket ? r->accuracy != EXACT : !slide && rounded;
    int64_t q = r->quantum_us;
    switch (random_in(&r->rnd, 0, 3)) {
    case 0:
        return time - random_in(&r->rnd, 0, length / 2);
    case 1:
        return time - (fuzzy ? 2 * length : length + q) - random_scaled(&r->rnd, CLOCK_END_US / 4);
    case 2:
        return time - (fuzzy ? length / 2 : length);
    default:
        return time - (fuzzy ? 2 * length : length + q);
    }
}

static int64_t pick_now(struct run *r)
{
    int64_t q = r->quantum_us, now = r->now_us;
    switch (random_in(&r->rnd, 0, r->accuracy == EXACT_FORWARD ? 6 : 8)) {
    case 0:
        return now;
    case 1:
        return now + q;
    case 2:
        return now + random_scaled(&r->rnd, 3 * length_at(r));
    case 3:
        return now + random_scaled(&r->rnd, length_at(r) / 16 + 1);
    case 4:
        return now + (r->last.retry_after_us > 0 ? r->last.retry_after_us : 0);
    case 5:
        return now + (r->last.retry_after_us > q ? r->last.retry_after_us - q : 0);
    case 6:
        return now + (r->last.reset_us > 1 ? r->last.reset_us - random_in(&r->rnd, 0, 1) : 0);
    default:
        return pick_back(r);
    }
}

static void move_clock(struct run *r)
{
    int64_t next = (pick_now(r) + r->quantum_us - 1) / r->quantum_us * r->quantum_us;
    if (next < 0 || next > CLOCK_END_US - 2 * LIMIT_PER_MAX_US)
        next = r->now_us;
    r->stepped_back |= next < r->now_us;
    r->now_us = next;
}

static uint64_t pick_cost(struct run *r)
{
    uint64_t capacity = r->limit.capacity;
    switch (random_in(&r->rnd, 0, 9)) {
    case 0:
        return 0;
    case 1:
        return capacity;
    case 2:
        return capacity + 1;
    case 3:
        return pick_number(r);
    case 4:
        return r->last.remaining;
    case 5:
        return r->last.remaining + 1;
    case 6:
    case 7:
        return (uint64_t)random_scaled(&r->rnd, (int64_t)(capacity + 1));
    default:
        return 1;
    }
}

/* An administrator changes the numbers. */
static void change_limit(struct run *r)
{
    r->model.max = random_one_in(&r->rnd, 10) ? 0 : pick_number(r);
    if (r->model.algorithm == LIMIT_TOKEN_BUCKET && random_one_in(&r->rnd, 2))
        r->model.burst = random_one_in(&r->rnd, 3) ? 0 : pick_number(r);
    if (r->model.algorithm == LIMIT_FIXED_WINDOW && random_one_in(&r->rnd, 2))
        r->model.per_us = pick_per(&r->rnd, STRICT);
    apply_limit(r);
}

/* ---- comparing ---- */

static bool same_wait(int64_t wait, int64_t model_wait)
{
    return model_wait >= MODEL_LATE_US ? wait >= MODEL_LATE_US : wait == model_wait;
}

static void compare_exactly(const struct run *r, const struct limit_take *take, const struct limit_report *report,
                            const struct model_answer *answer)
{
    EXPECT(r, take->fits == answer->fits);
    EXPECT(r, take->rebased == answer->rebased);
    EXPECT(r, report->remaining == answer->remaining);
    EXPECT(r, r->limit.max == 0 || report->debt == answer->debt);
    EXPECT(r, same_wait(report->reset_us, answer->reset_us));
    EXPECT(r, same_wait(report->retry_after_us, answer->retry_after_us));
}

/* What a bucket may have lost against the model, in 1/per of a token: a part for each charge where it rounds; where
 * it lags by a step instead, that step's refill while the clock is set back, and for good where it was rebased. */
static model_int slack(const struct run *r)
{
    if (!r->limit.step_fine)
        return ((model_int)r->charges * r->model.per_us + r->limit.token - 1) / r->limit.token;
    model_int step = (model_int)r->model.max * (model_int)r->limit.step.by;
    return r->stepped_back ? step * (1 + (model_int)r->rebases) : 0;
}

/* The model has only been charged what the bucket was. */
static void compare_strictly(const struct run *r, const struct limit_take *take, const struct limit_report *report,
                             const struct model_answer *answer, uint64_t cost)
{
    model_int per = r->model.per_us, lost = slack(r);
    EXPECT(r, answer->fits || !take->fits);
    EXPECT(r, take->rebased == answer->rebased);
    if (answer->fits && !take->fits) {
        struct model_limit less = r->model;
        struct model_cell cell = r->cell;
        cell.used += lost;
        EXPECT(r, lost > 0 && !model_look(&less, NULL, &cell, r->now_us, cost).fits);
        return;
    }
    EXPECT(r, report->remaining <= answer->remaining);
    EXPECT(r, r->limit.max == 0 || report->debt >= answer->debt);
    EXPECT(r, r->limit.max == 0 || report->debt <= answer->debt + (lost + per - 1) / per);
    EXPECT(r, report->remaining + (lost + per - 1) / per >= answer->remaining);
    if (r->model.max == 0 || answer->reset_us >= MODEL_LATE_US)
        return;
    int64_t lost_us = (int64_t)(lost / r->model.max) + 1;
    EXPECT(r, report->reset_us >= answer->reset_us && report->reset_us <= answer->reset_us + lost_us);
    if (answer->retry_after_us == LIMIT_NEVER_US)
        EXPECT(r, report->retry_after_us == LIMIT_NEVER_US);
    else
        EXPECT(r, report->retry_after_us >= answer->retry_after_us &&
                      report->retry_after_us <= answer->retry_after_us + lost_us);
}

static bool fits_at(const struct run *r, struct limit_state s, int64_t now_us, uint64_t cost)
{
    struct window w = window_at(r, now_us);
    return limit_take(&r->limit, &w, s, now_us, cost).fits;
}

static void check_wait(const struct run *r, struct limit_state s, int64_t wait_us, uint64_t cost)
{
    if (wait_us <= 0 || r->now_us + wait_us >= CLOCK_END_US)
        return;
    EXPECT(r, fits_at(r, s, r->now_us + wait_us, cost));
    EXPECT(r, !fits_at(r, s, r->now_us + wait_us - 1, cost));
}

/* ---- the outlook of a state that has just been charged ---- */

static void check_decay(const struct run *r, struct limit_state s, struct limit_outlook outlook)
{
    int64_t then = outlook.decays_us;
    EXPECT(r, then >= r->now_us);
    if (then >= CLOCK_END_US)
        return;
    struct window w = window_at(r, then);
    struct limit_state zero = { 0 };
    const uint64_t costs[] = { 0, 1, r->limit.capacity };
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        struct limit_take aged = limit_take(&r->limit, &w, s, then, costs[i]);
        struct limit_take fresh = limit_take(&r->limit, &w, zero, then, costs[i]);
        EXPECT(r, aged.fits == fresh.fits && !aged.rebased);
        EXPECT(r, aged.next.time == fresh.next.time && aged.next.data == fresh.next.data);
    }
    if (r->limit.algorithm != LIMIT_TOKEN_BUCKET || r->limit.max == 0)
        return;
    /* Late by three parts in 255, one token, what the state lags behind, and a microsecond's rounding for each part. */
    struct limit_report report = limit_report(&r->limit, &w, s, r->now_us, 0);
    model_int token_us = r->limit.per_us / r->limit.max + 1, part_us = r->limit.capacity * token_us / 255 + 1;
    EXPECT(r, then - (r->now_us + report.reset_us) <= 3 * part_us + token_us + (model_int)r->limit.step.by + 256);
}

static void check_outlook(const struct run *r, struct limit_state s)
{
    struct window w = window_at(r, r->now_us);
    struct limit_outlook outlook = limit_outlook(&r->limit, s, r->now_us);
    check_decay(r, s, outlook);
    EXPECT(r, outlook.decays_us + outlook.spare_us <= 2 * CLOCK_END_US);
    bool room = limit_take(&r->limit, &w, s, r->now_us, 1).fits;
    bool lags = r->limit.algorithm == LIMIT_TOKEN_BUCKET && (int64_t)s.time < r->now_us;
    EXPECT(r, room || outlook.share == 255);
    if (lags)
        room = limit_take(&r->limit, &w, s, (int64_t)s.time, 1).fits;
    EXPECT(r, !room || outlook.share < 255);
    if (outlook.share == 255)
        return;
    double capacity = (double)r->limit.capacity,
           remaining = (double)limit_remaining(&r->limit, &w, s, lags ? (int64_t)s.time : r->now_us);
    double used = 255 * (capacity - remaining) / capacity;
    EXPECT(r, outlook.share <= used + 1.001 + 4 * 255 / capacity && outlook.share >= used - 1.001 - 4 * 255 / capacity);
}

/* A look leaves a state that says the same, if somebody stores it. */
static void check_look(struct run *r, struct limit_state next)
{
    int64_t then = r->now_us + random_scaled(&r->rnd, 2 * length_at(r));
    uint64_t cost = (uint64_t)random_scaled(&r->rnd, (int64_t)r->limit.capacity + 1);
    struct window w = window_at(r, then);
    struct limit_report a = limit_report(&r->limit, &w, r->state, then, cost);
    struct limit_report b = limit_report(&r->limit, &w, next, then, cost);
    /* Waits that reach beyond the end of the clock, as those of large debts do, are cut there. */
    bool same = r->limit.overdraft ? same_wait(a.reset_us, b.reset_us) && same_wait(a.retry_after_us, b.retry_after_us)
                                   : a.reset_us == b.reset_us && a.retry_after_us == b.retry_after_us;
    EXPECT(r, r->accuracy == STRICT || (a.remaining == b.remaining && same));
}

/* The quick way says yes only where the long one does, and then the same; only the share of a sliding window is rounded up.
 */
static void check_quick(struct run *r, const struct limit_take *take, uint64_t cost)
{
    struct limit_quick quick;
    if (!limit_quick_by(r->limit.algorithm, &r->limit, r->state, r->now_us, cost, &quick))
        return;
    r->quick++;
    EXPECT(r, take->fits && !take->rebased);
    EXPECT(r, quick.next.time == take->next.time && quick.next.data == take->next.data);
    struct limit_outlook outlook = limit_outlook(&r->limit, take->next, r->now_us);
    double slack = 0;
    if (r->limit.algorithm == LIMIT_SLIDING_WINDOW) { /* by a microsecond's worth of the previous window, and 3 */
        double previous = (double)(r->state.data >> 32), parts = (double)(r->limit.per_us >> r->limit.slide_shift);
        slack = 1 + 255 * (previous * 2 / parts + 3) / (double)r->limit.max;
    }
    EXPECT(r, quick.decays_us == outlook.decays_us);
    EXPECT(r, outlook.share < 255 && quick.share < 255);
    EXPECT(r, quick.share >= outlook.share && (double)quick.share <= outlook.share + slack);
}

/* ---- one step ---- */

static void note_charge(struct run *r, const struct limit_take *take, const struct model_receipt *receipt)
{
    r->charges++;
    int i = r->receipts < RECEIPTS ? r->receipts++ : (int)random_in(&r->rnd, 0, RECEIPTS - 1);
    r->taken[i] = take->next;
    r->receipt[i] = *receipt;
}

static void ask(struct run *r)
{
    uint64_t cost = pick_cost(r);
    if (r->model.overdraft && cost > r->overdraw_most)
        cost = r->overdraw_most;
    struct window w = window_at(r, r->now_us);
    struct limit_take take = limit_take(&r->limit, &w, r->state, r->now_us, cost);
    if (!take.fits && cost > 0 && r->model.overdraft)
        take = limit_overdraw(&r->limit, &w, r->state, r->now_us, cost);
    if (cost > 0)
        check_quick(r, &take, cost);
    struct limit_state after = (take.fits && cost > 0) || take.rebased ? take.next : r->state;
    struct limit_report report =
        limit_report(&r->limit, &w, after, r->now_us, take.fits ? 0 : limit_needs(&r->limit, cost));
    if (take.fits)
        report.retry_after_us = 0; /* what is in debt refuses 0 */
    struct model_receipt receipt;
    if (r->accuracy != STRICT || r->model.algorithm != LIMIT_TOKEN_BUCKET) {
        struct model_answer answer = model_take(&r->model, &w, &r->cell, r->now_us, cost, &receipt);
        compare_exactly(r, &take, &report, &answer);
    } else {
        r->rebases += take.rebased;
        r->charges += take.fits;
        struct model_answer answer = take.fits ? model_take(&r->model, &w, &r->cell, r->now_us, cost, &receipt)
                                               : model_look(&r->model, &w, &r->cell, r->now_us, cost);
        compare_strictly(r, &take, &report, &answer, cost);
    }
    check_wait(r, after, report.retry_after_us, limit_needs(&r->limit, cost));
    EXPECT(r, limit_remaining(&r->limit, &w, after, r->now_us) == report.remaining);
    if (take.fits && cost > 0)
        note_charge(r, &take, &receipt);
    if (take.fits && cost > 0)
        check_outlook(r, after);
    if (take.fits && cost == 0 && !take.rebased)
        check_look(r, take.next);
    r->last = report;
    r->state = after;
}

static void give_back(struct run *r)
{
    if (r->receipts == 0)
        return;
    int i = (int)random_in(&r->rnd, 0, r->receipts - 1);
    bool done = limit_refund(&r->limit, limit_origin(&r->limit, r->taken[i], r->receipt[i].taken_us), r->receipt[i].cost,
                             r->now_us, &r->state);
    EXPECT(r, done == model_refund(&r->model, &r->receipt[i], &r->cell, r->now_us));
    r->receipts--;
    r->taken[i] = r->taken[r->receipts];
    r->receipt[i] = r->receipt[r->receipts];
}

/* Returns how many were answered in the quick way. */
static uint64_t run_schedule(uint64_t seed, enum limit_algorithm algorithm, enum accuracy accuracy)
{
    struct run r;
    begin(&r, seed, algorithm, accuracy);
    r.live = accuracy == EXACT && random_one_in(&r.rnd, 2);
    for (int step = 0; step < STEPS; step++) {
        ask(&r);
        move_clock(&r);
        if (r.live && random_one_in(&r.rnd, 6))
            change_limit(&r);
        if (r.live && random_one_in(&r.rnd, 6))
            give_back(&r);
    }
    return r.quick;
}

static void run_all(enum limit_algorithm algorithm, enum accuracy accuracy)
{
    uint64_t seed = random_seed(), quick = 0;
    for (int run = 0; run < RUNS; run++)
        quick += run_schedule(seed + (uint64_t)run, algorithm, accuracy);
    print_message("# %llu of %llu in the quick way\n", (unsigned long long)quick, (unsigned long long)RUNS * STEPS);
    assert_true(quick >= (uint64_t)RUNS * STEPS / 50);
}

static void fixed_windows_follow_the_model(void **state)
{
    (void)state;
    run_all(LIMIT_FIXED_WINDOW, EXACT);
}

static void calendar_windows_follow_the_model(void **state)
{
    (void)state;
    run_all(LIMIT_CALENDAR, EXACT);
}

static void sliding_windows_follow_the_model(void **state)
{
    (void)state;
    run_all(LIMIT_SLIDING_WINDOW, EXACT);
}

static void buckets_of_a_week_follow_the_model(void **state)
{
    (void)state;
    run_all(LIMIT_TOKEN_BUCKET, EXACT);
}

static void buckets_of_milliseconds_follow_the_model_forward(void **state)
{
    (void)state;
    run_all(LIMIT_TOKEN_BUCKET, EXACT_FORWARD);
}

static void all_buckets_are_as_strict_as_the_model(void **state)
{
    (void)state;
    run_all(LIMIT_TOKEN_BUCKET, STRICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_windows_follow_the_model),
        cmocka_unit_test(calendar_windows_follow_the_model),
        cmocka_unit_test(sliding_windows_follow_the_model),
        cmocka_unit_test(buckets_of_a_week_follow_the_model),
        cmocka_unit_test(buckets_of_milliseconds_follow_the_model_forward),
        cmocka_unit_test(all_buckets_are_as_strict_as_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
