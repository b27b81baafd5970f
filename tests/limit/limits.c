/* What each algorithm promises, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "limit/take.h"
#include "random.h"

#define S US_PER_S
#define T0 (INT64_C(1700000000) * S)

static const struct window day = { T0 - 3600 * S, T0 + 82800 * S };

static struct limit make(enum limit_algorithm algorithm, uint64_t max, uint64_t burst, int64_t per_us)
{
    struct limit l;
    limit_init(&l, algorithm, max, burst, per_us);
    return l;
}

static bool take(const struct limit *l, struct limit_state *s, int64_t now_us, uint64_t cost)
{
    struct limit_take t = limit_take(l, &day, *s, now_us, cost);
    if (t.fits || t.rebased)
        *s = t.next;
    return t.fits;
}

static struct limit_report look(const struct limit *l, struct limit_state s, int64_t now_us, uint64_t cost)
{
    return limit_report(l, &day, s, now_us, cost);
}

static uint64_t most_of(enum limit_algorithm algorithm)
{
    return algorithm == LIMIT_SLIDING_WINDOW ? LIMIT_SLIDE_MAX : LIMIT_MAX_MAX;
}

static const enum limit_algorithm all[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW, LIMIT_CALENDAR };
enum { ALL = sizeof all / sizeof all[0] };

/* ---- costs that are special ---- */

static void special_costs(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        struct limit l = make(all[i], 3, 0, 60 * S), none = make(all[i], 0, 0, 60 * S);
        struct limit_state s = { 0 };
        assert_true(take(&l, &s, T0, 0));
        assert_false(take(&l, &s, T0, 4));
        assert_int_equal(look(&l, s, T0, 4).retry_after_us, LIMIT_NEVER_US);
        assert_true(take(&l, &s, T0, 3));
        assert_false(take(&l, &s, T0, 1));
        assert_true(take(&l, &s, T0, 0));
        assert_int_equal(look(&l, s, T0, 0).retry_after_us, 0);
        assert_int_equal(look(&l, s, T0, 4).retry_after_us, LIMIT_NEVER_US);
        /* Lowered below what is used, a look is refused until no more than that is used. */
        struct limit lowered = make(all[i], 2, 0, 60 * S);
        assert_false(take(&lowered, &s, T0, 0));
        assert_false(take(&lowered, &s, T0, 1));
        assert_int_equal(look(&lowered, s, T0, 0).remaining, 0);
        if (all[i] != LIMIT_CALENDAR) { /* the test's day does not end */
            int64_t wait_us = look(&lowered, s, T0, 0).retry_after_us;
            assert_true(wait_us > 0);
            assert_false(take(&lowered, &s, T0 + wait_us - 1, 0));
            assert_true(take(&lowered, &s, T0 + wait_us, 0));
        }
        assert_false(take(&none, &s, T0, 0));
        assert_false(take(&none, &s, T0, 1));
        assert_int_equal(look(&none, s, T0, 0).retry_after_us, LIMIT_NEVER_US);
        assert_int_equal(look(&none, s, T0, 1).retry_after_us, LIMIT_NEVER_US);
    }
}

/* ---- token bucket ---- */

static void a_bucket_lets_its_capacity_burst_and_then_refills(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_TOKEN_BUCKET, 10, 0, 60 * S);
    struct limit_state s = { 0 };
    for (int i = 0; i < 10; i++)
        assert_true(take(&l, &s, T0, 1));
    assert_false(take(&l, &s, T0, 1));
    assert_int_equal(look(&l, s, T0, 1).retry_after_us, 6 * S);
    assert_int_equal(look(&l, s, T0, 1).reset_us, 60 * S);
    assert_false(take(&l, &s, T0 + 6 * S - 1, 1));
    assert_true(take(&l, &s, T0 + 6 * S, 1));
    assert_false(take(&l, &s, T0 + 6 * S, 1));
    assert_true(take(&l, &s, T0 + 66 * S, 10));

    struct limit one = make(LIMIT_TOKEN_BUCKET, 1, 0, 1 * S);
    s = (struct limit_state){ 0 };
    assert_true(take(&one, &s, T0, 1));
    assert_false(take(&one, &s, T0 + S - 1, 1));
    assert_true(take(&one, &s, T0 + S, 1));

    struct limit burst = make(LIMIT_TOKEN_BUCKET, 5, 20, 60 * S);
    s = (struct limit_state){ 0 };
    assert_true(take(&burst, &s, T0, 20));
    assert_int_equal(look(&burst, s, T0, 1).retry_after_us, 12 * S);
    assert_int_equal(look(&burst, s, T0, 1).reset_us, 240 * S);
    assert_int_equal(limit_window_us(&burst, NULL), 240 * S);
    assert_int_equal(limit_window_us(&l, NULL), 60 * S);
}

/* Asked for one token at every chance, a bucket gives its capacity and max per period, neither more nor less. */
static void a_bucket_neither_gains_nor_loses_in_the_long_run(void **state)
{
    (void)state;
    enum { RUNS = 300, STEPS = 5000 };
    struct random rnd = { random_seed() };
    for (int run = 0; run < RUNS; run++) {
        uint32_t max = (uint32_t)random_scaled(&rnd, 5000), burst = (uint32_t)random_scaled(&rnd, 50);
        int64_t per = random_scaled(&rnd, INT64_C(604800000)) * US_PER_MS;
        struct limit l = make(LIMIT_TOKEN_BUCKET, max, burst, per);
        struct limit_state s = { 0 };
        uint64_t passed = 0, lost = 0;
        int64_t now = T0;
        for (int i = 0; i < STEPS; i++) {
            lost += i > 0 && look(&l, s, now, 1).remaining == burst;
            while (take(&l, &s, now, 1))
                passed++;
            now += i < STEPS - 1 ? random_scaled(&rnd, per / max / 4 + 1) : 0;
        }
        limit_wide most = (limit_wide)burst * (uint64_t)per + (limit_wide)max * (uint64_t)(now - T0);
        assert_true((limit_wide)passed * (uint64_t)per <= most);
        /* Nothing was lost to a full bucket: then all that came back was given out, but for a part of one. */
        if (!lost)
            assert_true((limit_wide)(passed + 1) * (uint64_t)per > most);
    }
}

/* ---- fixed and calendar windows ---- */

static void a_fixed_window_opens_with_its_first_charge(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_FIXED_WINDOW, 2, 0, 60 * S);
    struct limit_state s = { 0 };
    assert_false(take(&l, &s, T0 - 5 * S, 3));
    assert_true(take(&l, &s, T0, 1));
    assert_true(take(&l, &s, T0 + 59 * S, 1));
    assert_false(take(&l, &s, T0 + 60 * S - 1, 1));
    assert_int_equal(look(&l, s, T0 + 59 * S, 1).retry_after_us, 1 * S);
    assert_int_equal(look(&l, s, T0 + 59 * S, 1).reset_us, 1 * S);
    assert_true(take(&l, &s, T0 + 60 * S, 2));
    /* A changed period counts from the next window. */
    struct limit longer = make(LIMIT_FIXED_WINDOW, 2, 0, 3600 * S), shorter = make(LIMIT_FIXED_WINDOW, 2, 0, 1 * S);
    assert_false(take(&longer, &s, T0 + 120 * S - 1, 1));
    assert_false(take(&shorter, &s, T0 + 120 * S - 1, 1));
    assert_true(take(&longer, &s, T0 + 120 * S, 1));
    assert_int_equal(look(&shorter, s, T0 + 120 * S, 1).reset_us, 3600 * S);
}

static void a_calendar_window_ends_where_it_is_told(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_CALENDAR, 2, 0, 0);
    struct limit_state s = { 0 };
    assert_true(take(&l, &s, T0, 2));
    assert_false(take(&l, &s, day.end_us - 1, 1));
    assert_int_equal(look(&l, s, T0, 1).retry_after_us, day.end_us - T0);
    struct window next = { day.end_us, day.end_us + 90000 * S };
    assert_true(limit_take(&l, &next, s, day.end_us, 2).fits);
    assert_int_equal(limit_window_us(&l, &next), 90000 * S);
}

static void lengths_are_rounded_up_a_little(void **state)
{
    (void)state;
    struct random rnd = { random_seed() };
    for (int i = 0; i < 1000000; i++) {
        int64_t length = random_scaled(&rnd, LIMIT_LENGTH_MAX_US);
        int64_t kept = limit_length_unpack(limit_length_pack(length));
        assert_true(kept >= length && kept - length <= length >> (LIMIT_LENGTH_MANTISSA - 1));
        assert_true(limit_length_pack(length) <= INT32_MAX);
    }
    assert_int_equal(limit_length_unpack(limit_length_pack((1 << LIMIT_LENGTH_MANTISSA) - 1)), (1 << 26) - 1);
    assert_true(limit_length_unpack(limit_length_pack(LIMIT_PER_MAX_US)) >= LIMIT_PER_MAX_US);
    assert_int_equal(limit_length_unpack(limit_length_pack(INT64_MAX)), LIMIT_LENGTH_MAX_US);
}

/* ---- sliding window ---- */

static void a_sliding_window_weighs_the_one_before(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_SLIDING_WINDOW, 10, 0, 60 * S);
    struct limit_state s = { 0 };
    assert_true(take(&l, &s, T0, 10));
    assert_false(take(&l, &s, T0 + 60 * S, 1));
    assert_int_equal(look(&l, s, T0, 1).retry_after_us, 66 * S);
    assert_int_equal(look(&l, s, T0, 1).reset_us, 120 * S);
    assert_false(take(&l, &s, T0 + 66 * S - 1, 1));
    assert_true(take(&l, &s, T0 + 66 * S, 1));
    assert_int_equal(look(&l, s, T0 + 90 * S, 1).remaining, 4);
    assert_int_equal(look(&l, s, T0 + 90 * S, 5).retry_after_us, 6 * S);
    /* Two windows later nothing of it is left, and the next one begins with its first charge. */
    assert_true(take(&l, &s, T0 + 185 * S, 10));
    assert_int_equal(look(&l, s, T0 + 185 * S, 1).retry_after_us, 66 * S);
}

/* ---- clocks ---- */

/* A small step back: as if the clock had stood still. */
static void a_small_step_back_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        struct limit l = make(all[i], 4, 0, 60 * S);
        struct limit_state s = { 0 };
        assert_true(take(&l, &s, T0, 3));
        struct limit_state then = s;
        assert_true(take(&l, &s, T0 - 50 * S, 1));
        assert_false(take(&l, &s, T0 - 50 * S, 1));
        assert_int_equal(s.time, then.time);
        assert_false(limit_take(&l, &day, s, T0 - 50 * S, 1).rebased);
        assert_false(take(&l, &s, T0, 1));
    }
}

static void a_clock_that_was_wrong_locks_nobody_out(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        struct limit l = make(all[i], 4, 0, 60 * S);
        struct limit_state s = { 0 };
        int64_t wrong = T0 + 400 * 86400 * S;
        struct window far = { wrong - 40000 * S, wrong + 46400 * S };
        struct limit_take t = limit_take(&l, &far, s, wrong, 4);
        assert_true(t.fits);
        /* Refused, as what was used is kept, and yet to be stored. */
        t = limit_take(&l, &day, t.next, T0, 1);
        assert_true(t.rebased && !t.fits);
        int64_t reset = look(&l, t.next, T0, 1).reset_us;
        assert_true(reset > 0 && reset <= (all[i] == LIMIT_CALENDAR ? day.end_us - T0 : 120 * S));
        assert_false(limit_take(&l, &day, t.next, T0, 1).rebased);
        assert_int_equal(look(&l, t.next, T0, 0).remaining, 0);
    }
}

/* The very microsecond at which a cell is ahead by more than its period. */
static void the_edge_of_a_period_ahead(void **state)
{
    (void)state;
    static const enum limit_algorithm own_time[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW };
    for (int i = 0; i < 3; i++) {
        struct limit l = make(own_time[i], 4, 0, 60 * S);
        struct limit_state s = { 0 };
        assert_true(take(&l, &s, T0, 2));
        assert_false(limit_take(&l, NULL, s, T0 - 60 * S, 1).rebased);
        struct limit_take t = limit_take(&l, NULL, s, T0 - 60 * S - 1, 1);
        assert_true(t.rebased && t.fits);
        assert_int_equal(limit_report(&l, NULL, t.next, T0 - 60 * S - 1, 0).remaining, 1);
    }
}

/* ---- changes of a limit ---- */

/* A state as schedules leave it. */
static struct limit_state worn_state(struct random *rnd, const struct limit *l, int64_t *now)
{
    struct limit_state s = { 0 };
    for (int i = 0; i < 6; i++) {
        *now += random_scaled(rnd, l->algorithm == LIMIT_CALENDAR ? 3600 * S : l->per_us);
        take(l, &s, *now, (uint32_t)random_scaled(rnd, (int64_t)l->capacity));
    }
    return s;
}

static void raising_never_refuses_and_lowering_never_forgives(void **state)
{
    (void)state;
    struct random rnd = { random_seed() };
    for (int i = 0; i < 200000; i++) {
        enum limit_algorithm algorithm = all[i % ALL];
        int64_t per = random_scaled(&rnd, 100000000) * US_PER_MS, now = T0;
        int64_t most = (int64_t)most_of(algorithm);
        uint64_t small = (uint64_t)random_scaled(&rnd, most), large = (uint64_t)random_in(&rnd, (int64_t)small, most);
        struct limit low = make(algorithm, small, 0, per), high = make(algorithm, large, 0, per);
        bool raise = random_one_in(&rnd, 2);
        struct limit_state s = worn_state(&rnd, raise ? &low : &high, &now);
        now += random_one_in(&rnd, 2) ? random_scaled(&rnd, per) : 0;
        uint64_t cost = (uint64_t)random_scaled(&rnd, (int64_t)small);
        struct limit_report a = look(&low, s, now, cost), b = look(&high, s, now, cost);
        assert_true(b.remaining >= a.remaining);
        assert_true(a.retry_after_us != 0 || b.retry_after_us == 0);
        /* Not one unit that was used is given back by the change: at the very instant of it the same is used. */
        uint64_t used_low = low.capacity - a.remaining, used_high = high.capacity - b.remaining;
        if (algorithm != LIMIT_TOKEN_BUCKET && a.remaining > 0)
            assert_int_equal(used_low, used_high);
        if (algorithm == LIMIT_TOKEN_BUCKET && a.remaining > 0)
            assert_true(used_low + (low.token != high.token) >= used_high); /* 1/256 may be rounded up */
    }
}

/* More than a lowered bucket holds was used: it decays when the last of it has come back. */
static void an_overfull_bucket_decays_late(void **state)
{
    (void)state;
    struct limit high = make(LIMIT_TOKEN_BUCKET, 1000, 0, 60 * S), low = make(LIMIT_TOKEN_BUCKET, 1, 0, 60 * S);
    struct limit zero = make(LIMIT_TOKEN_BUCKET, 0, 0, 60 * S);
    struct limit_state s = { 0 };
    assert_true(take(&high, &s, T0, 1000));
    struct limit_outlook outlook = limit_outlook(&low, s, T0);
    assert_int_equal(outlook.decays_us, T0 + 1000 * 60 * S);
    assert_int_equal(outlook.share, 255);
    outlook = limit_outlook(&zero, s, T0);
    assert_int_equal(outlook.decays_us, CLOCK_END_US);
    assert_int_equal(outlook.share, 255);
    assert_int_equal(look(&zero, s, T0, 1).reset_us, LIMIT_NEVER_US);
    /* It is raised again, and what was used is still used. */
    assert_false(take(&high, &s, T0, 1));
    assert_true(take(&high, &s, T0 + 30 * S, 500));
}

/* ---- refunds ---- */

static void a_refund_finds_its_window(void **state)
{
    (void)state;
    static const enum limit_algorithm windows[] = { LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW, LIMIT_CALENDAR };
    for (int i = 0; i < 3; i++) {
        struct limit l = make(windows[i], 5, 0, 60 * S);
        struct limit_state s = { 0 }, taken;
        assert_true(take(&l, &s, T0, 3));
        taken = s;
        assert_true(take(&l, &s, T0 + S, 2));
        assert_true(limit_refund(&l, limit_origin(&l, taken, T0), 3, T0 + 2 * S, &s));
        assert_int_equal(look(&l, s, T0 + 2 * S, 0).remaining, 3);
        assert_true(limit_refund(&l, limit_origin(&l, taken, T0), 3, T0 + 2 * S, &s));
        assert_int_equal(look(&l, s, T0 + 2 * S, 0).remaining, 5);
        assert_int_equal(look(&l, s, T0 + 2 * S, 0).reset_us, 0);
    }
    struct limit fixed = make(LIMIT_FIXED_WINDOW, 5, 0, 60 * S);
    struct limit_state s = { 0 }, taken;
    assert_true(take(&fixed, &s, T0, 3));
    taken = s;
    assert_true(take(&fixed, &s, T0 + 70 * S, 3));
    assert_false(limit_refund(&fixed, limit_origin(&fixed, taken, T0), 3, T0 + 71 * S, &s));
    assert_int_equal(look(&fixed, s, T0 + 71 * S, 0).remaining, 2);
}

static void a_sliding_refund_follows_into_the_previous_window(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_SLIDING_WINDOW, 10, 0, 60 * S);
    struct limit_state s = { 0 }, taken;
    assert_true(take(&l, &s, T0, 8));
    taken = s;
    assert_true(take(&l, &s, T0 + 90 * S, 2));
    assert_int_equal(look(&l, s, T0 + 90 * S, 0).remaining, 4);
    assert_true(limit_refund(&l, limit_origin(&l, taken, T0), 8, T0 + 90 * S, &s));
    assert_int_equal(look(&l, s, T0 + 90 * S, 0).remaining, 8);
    assert_true(take(&l, &s, T0 + 130 * S, 1));
    assert_false(limit_refund(&l, limit_origin(&l, taken, T0), 8, T0 + 130 * S, &s));
}

static void a_bucket_refund_is_less_what_came_back(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_TOKEN_BUCKET, 10, 0, 10 * S);
    struct limit_state s = { 0 }, taken;
    assert_true(take(&l, &s, T0, 5));
    assert_true(take(&l, &s, T0, 4));
    taken = s;
    assert_true(limit_refund(&l, limit_origin(&l, taken, T0), 4, T0 + 3 * S, &s));
    assert_int_equal(look(&l, s, T0 + 3 * S, 0).remaining, 5);
    assert_false(limit_refund(&l, limit_origin(&l, taken, T0), 4, T0 + 4 * S, &s));
    s = (struct limit_state){ 0 };
    assert_true(limit_refund(&l, limit_origin(&l, taken, T0), 4, T0, &s));
    assert_int_equal(s.data, 0);
}

/* Taken and given back, with others in between: never better off than without. */
static void a_refund_is_no_gift(void **state)
{
    (void)state;
    struct random rnd = { random_seed() };
    for (int i = 0; i < 100000; i++) {
        int64_t per = random_scaled(&rnd, 10000000) * US_PER_MS, now = T0;
        struct limit l = make(all[i % 3], (uint32_t)random_scaled(&rnd, 1000000), 0, per);
        struct limit_state without = worn_state(&rnd, &l, &now), with = without, taken;
        int64_t taken_us = now + random_scaled(&rnd, per);
        uint32_t cost = (uint32_t)random_scaled(&rnd, l.max), other = (uint32_t)random_scaled(&rnd, l.max);
        if (!take(&l, &with, taken_us, cost))
            continue;
        taken = with;
        now = taken_us + random_scaled(&rnd, per) - 1;
        if (take(&l, &with, now, other))
            take(&l, &without, now, other);
        limit_refund(&l, limit_origin(&l, taken, taken_us), cost, now, &with);
        struct limit_report a = look(&l, with, now, other), b = look(&l, without, now, other);
        /* Windows that begin with a charge begin earlier here. */
        if (all[i % 3] == LIMIT_TOKEN_BUCKET)
            assert_true(a.remaining <= b.remaining && a.reset_us >= b.reset_us);
        else if (limit_state_end(with) == limit_state_end(without) || with.time == without.time)
            assert_true(a.remaining <= b.remaining);
    }
}

/* ---- robustness ---- */

static void divisors_divide(void **state)
{
    (void)state;
    struct random rnd = { random_seed() };
    for (int i = 0; i < 1000000; i++) {
        uint64_t by = random_u64(&rnd) >> random_in(&rnd, 0, 63) | 1, x = random_u64(&rnd) >> random_in(&rnd, 0, 63);
        struct limit_divisor d = { by, UINT64_MAX / by };
        assert_true(limit_divide(x, &d) == x / by);
        x = x / by * by;
        assert_true(limit_divide(x, &d) == x / by);
        assert_true(limit_divide(x - 1, &d) == (x - 1) / by);
    }
}

/* A damaged cell may hold anything. Nothing overflows (the sanitizers watch), and what is charged is charged. */
static void any_bits_are_a_state(void **state)
{
    (void)state;
    struct random rnd = { random_seed() };
    for (int i = 0; i < 1000000; i++) {
        enum limit_algorithm algorithm = all[i % ALL];
        int64_t most = random_one_in(&rnd, 2) ? UINT32_MAX : (int64_t)most_of(algorithm);
        struct limit l = make(algorithm, (uint64_t)random_scaled(&rnd, most), (uint64_t)random_scaled(&rnd, most),
                              random_scaled(&rnd, LIMIT_PER_MAX_US / US_PER_MS) * US_PER_MS);
        struct limit_state s = { random_u64(&rnd) >> random_in(&rnd, 12, 63), random_u64(&rnd) >> random_in(&rnd, 0, 63) };
        if (random_one_in(&rnd, 3))
            s.data = LIMIT_COARSE + s.data % -LIMIT_COARSE;
        int64_t now = random_in(&rnd, day.start_us, day.end_us - 1);
        uint64_t cost = (uint64_t)random_scaled(&rnd, (int64_t)l.capacity);
        struct limit_take t = limit_take(&l, &day, s, now, cost);
        uint64_t before = look(&l, s, now, cost).remaining;
        assert_int_equal(t.fits, before >= cost);
        assert_true(t.next.time < (uint64_t)CLOCK_END_US);
        if (t.fits) {
            assert_int_equal(look(&l, t.next, now, 0).remaining, before - cost);
            assert_true(limit_outlook(&l, t.next, now).decays_us > now);
            assert_true(limit_refund(&l, limit_origin(&l, t.next, now), cost, now, &t.next));
        }
        limit_refund(&l, limit_origin(&l, s, now), cost, now, &s);
        assert_true(look(&l, s, now, 0).remaining >= before);
    }
}

/* ---- more than 32 bits ---- */

#define TERA UINT64_C(1000000000000)

/* Files of earlier versions hold these. */
static void states_of_32_bits_are_as_they_were(void **state)
{
    (void)state;
    struct limit bucket = make(LIMIT_TOKEN_BUCKET, 10, 0, 60 * S), window = make(LIMIT_FIXED_WINDOW, 10, 0, 60 * S);
    struct limit_state s = { 0 }, w = { 0 };
    assert_true(take(&bucket, &s, T0, 3) && take(&window, &w, T0, 3));
    assert_true(s.time == T0 && s.data == UINT64_C(10886400000));
    assert_true(w.time == T0 + 60 * S && w.data == (UINT64_C(60000000) << 32 | 3));
    /* The largest of them, lagging behind: 2^32 - 1 tokens in a day are refilled in steps of 100 microseconds. */
    struct limit most = make(LIMIT_TOKEN_BUCKET, UINT32_MAX, 0, 86400 * S);
    struct limit_state full = { T0, UINT32_MAX * LIMIT_TOKEN + most.step_units - 1 };
    assert_true(full.data < LIMIT_COARSE);
    assert_false(take(&most, &full, T0, 1));
    assert_int_equal(look(&most, full, T0, 1).remaining, 0);
    assert_int_equal(look(&most, full, T0 + 99, 0).remaining, 0);
}

static void a_changed_max_keeps_what_was_used_beyond_32_bits(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        if (all[i] == LIMIT_SLIDING_WINDOW)
            continue;
        struct limit high = make(all[i], 5 * TERA, 0, 3600 * S), low = make(all[i], 100, 0, 3600 * S);
        struct limit_state s = { 0 };
        assert_true(take(&low, &s, T0, 60));
        assert_int_equal(look(&high, s, T0, 0).remaining, 5 * TERA - 60);
        assert_true(take(&high, &s, T0, 3 * TERA + 1));
        assert_int_equal(look(&high, s, T0, 0).remaining, 2 * TERA - 61);
        /* Lowered: nothing is forgiven, not even what the count has above 32 bits. */
        assert_false(take(&low, &s, T0 + 1, 0));
        assert_int_equal(look(&low, s, T0, 0).remaining, 0);
        assert_int_equal(limit_outlook(&low, s, T0).share, LIMIT_SHARE_FULL);
        if (all[i] == LIMIT_TOKEN_BUCKET)
            assert_int_equal(look(&low, s, T0, 0).reset_us, CLOCK_END_US);
        /* And raised once more. */
        assert_int_equal(look(&high, s, T0, 0).remaining, 2 * TERA - 61);
        /* A refund leads back to 32 bits. */
        struct limit_state charged = s;
        assert_true(limit_refund(&high, limit_origin(&high, charged, T0), 3 * TERA + 1, T0, &s));
        assert_int_equal(look(&low, s, T0, 0).remaining, 40);
        assert_true(take(&low, &s, T0, 40));
        assert_false(take(&low, &s, T0, 1));
    }
}

static void the_largest_amounts(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        uint64_t most = most_of(all[i]);
        struct limit l = make(all[i], most, 0, 3600 * S);
        struct limit_state s = { 0 };
        assert_false(take(&l, &s, T0, most + 1));
        assert_int_equal(look(&l, s, T0, most + 1).retry_after_us, LIMIT_NEVER_US);
        assert_true(take(&l, &s, T0, most - 1));
        assert_false(take(&l, &s, T0, 2));
        assert_int_equal(look(&l, s, T0, 2).remaining, 1);
        assert_true(take(&l, &s, T0, 1));
        assert_false(take(&l, &s, T0, 1));
        assert_int_equal(look(&l, s, T0, 1).remaining, 0);
        assert_true(look(&l, s, T0, most).retry_after_us > 0);
        assert_int_equal(limit_outlook(&l, s, T0).share, LIMIT_SHARE_FULL);
    }
}

/* The window of a wide count knows its length to a quarter, and exactly if it is the limit's own. */
static void a_wide_window_tells_a_clock_that_was_wrong(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_FIXED_WINDOW, 5 * TERA, 0, 3600 * S);
    struct limit_state s = { 0 };
    assert_true(take(&l, &s, T0, TERA));
    assert_false(limit_take(&l, NULL, s, T0 - 3600 * S, 1).rebased);
    struct limit_take back = limit_take(&l, NULL, s, T0 - 3600 * S - 1, 1);
    assert_true(back.rebased && back.fits && limit_state_end(back.next) == T0 - 1);
    assert_int_equal(limit_state_count(back.next), TERA + 1);
    struct limit other = make(LIMIT_FIXED_WINDOW, 5 * TERA, 0, 60 * S);
    assert_false(limit_take(&other, NULL, s, T0 - 3600 * S, 1).rebased);
    assert_true(limit_take(&other, NULL, s, T0 - 2 * 3600 * S, 1).rebased);
    struct limit_own_time own = limit_own_time(&l, s);
    assert_int_equal(own.at_us, T0);
    assert_int_equal(own.period_us, 3600 * S);
}

static void a_bucket_state_is_made_in_the_parts_that_hold_it(void **state)
{
    (void)state;
    struct limit low = make(LIMIT_TOKEN_BUCKET, 100, 0, 60 * S), high = make(LIMIT_TOKEN_BUCKET, 5 * TERA, 0, 60 * S);
    struct limit_state small = limit_bucket_state(T0, (limit_wide)(3 << 20 | 1), 20);
    assert_int_equal(look(&low, small, T0, 0).remaining, 96);
    assert_int_equal(look(&high, small, T0, 0).remaining, 5 * TERA - 4);
    struct limit_state large = limit_bucket_state(T0, (limit_wide)TERA << 20 | 1, 20);
    assert_int_equal(look(&high, large, T0, 0).remaining, 4 * TERA - 1);
    assert_int_equal(look(&low, large, T0, 0).remaining, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_costs),
        cmocka_unit_test(a_bucket_lets_its_capacity_burst_and_then_refills),
        cmocka_unit_test(a_bucket_neither_gains_nor_loses_in_the_long_run),
        cmocka_unit_test(a_fixed_window_opens_with_its_first_charge),
        cmocka_unit_test(a_calendar_window_ends_where_it_is_told),
        cmocka_unit_test(lengths_are_rounded_up_a_little),
        cmocka_unit_test(a_sliding_window_weighs_the_one_before),
        cmocka_unit_test(a_small_step_back_changes_nothing),
        cmocka_unit_test(a_clock_that_was_wrong_locks_nobody_out),
        cmocka_unit_test(the_edge_of_a_period_ahead),
        cmocka_unit_test(raising_never_refuses_and_lowering_never_forgives),
        cmocka_unit_test(an_overfull_bucket_decays_late),
        cmocka_unit_test(a_refund_finds_its_window),
        cmocka_unit_test(a_sliding_refund_follows_into_the_previous_window),
        cmocka_unit_test(a_bucket_refund_is_less_what_came_back),
        cmocka_unit_test(a_refund_is_no_gift),
        cmocka_unit_test(divisors_divide),
        cmocka_unit_test(any_bits_are_a_state),
        cmocka_unit_test(states_of_32_bits_are_as_they_were),
        cmocka_unit_test(a_changed_max_keeps_what_was_used_beyond_32_bits),
        cmocka_unit_test(the_largest_amounts),
        cmocka_unit_test(a_wide_window_tells_a_clock_that_was_wrong),
        cmocka_unit_test(a_bucket_state_is_made_in_the_parts_that_hold_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
