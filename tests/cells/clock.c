/* Clocks that step, through the table: small steps back between threads that read the time at different moments, and steps
 * of minutes, as when a clock is set. */
#include "cells/blocks.h"
#include "support.h"

enum { ALGORITHMS = LIMIT_CALENDAR + 1, MAX = 5 };

#define MINUTE_US (60 * US_PER_S)

struct subject {
    struct cells *table;
    struct limit limit;
    int64_t per_us;
};

/* A natural window of that length. */
static struct window window_at(int64_t now_us, int64_t per_us)
{
    int64_t start = now_us - now_us % per_us;
    return (struct window){ start, start + per_us };
}

static bool charge(const struct subject *s, int64_t now_us)
{
    struct window window = window_at(now_us, s->per_us);
    struct cells_ask ask = { key_of(1), &s->limit, &window, now_us, 1 };
    struct cells_taken taken;
    return cells_take(s->table, &ask, &taken);
}

/* How many of 2 × MAX pass. */
static int charge_many(const struct subject *s, int64_t now_us)
{
    int passed = 0;
    for (int i = 0; i < 2 * MAX; i++)
        passed += charge(s, now_us);
    return passed;
}

/* When what was used at now_us is out of sight. */
static int64_t decay_time(const struct subject *s, int64_t now_us)
{
    switch (s->limit.algorithm) {
    case LIMIT_CALENDAR:
        return window_at(now_us, s->per_us).end_us;
    case LIMIT_SLIDING_WINDOW:
        return now_us + 2 * s->per_us;
    default:
        return now_us + s->per_us;
    }
}

static struct subject subject_of(enum limit_algorithm algorithm, int64_t per_us)
{
    return (struct subject){ table_of_cells(32), limit_of(algorithm, MAX, per_us), per_us };
}

/* New keys, more than the table holds: they take every cell that they may. */
static void flood(struct cells *table, int64_t now_us)
{
    static uint64_t next = 1000;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, MAX, 10 * US_PER_MS);
    for (int i = 0; i < 200; i++)
        assert_true(take(table, key_of(next++), &limit, now_us, 1));
}

/* ---- small steps, between threads ---- */

/* The one whose clock is ahead finds the window over and fills the table with others. The one behind still counts in it. */
static void test_laggard_at_the_end(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int64_t lag_ms = 1; lag_ms <= 50; lag_ms += 7) {
            struct subject s = subject_of(a, US_PER_S);
            assert_int_equal(charge_many(&s, T0_US), MAX);
            int64_t end = decay_time(&s, T0_US);
            flood(s.table, end + lag_ms * US_PER_MS - 1);
            assert_non_null(cell_of(s.table, key_of(1)));
            int64_t behind = end - 1;
            /* A bucket has given back all but a little by then, and a sliding window has slid on. */
            int most = a == LIMIT_TOKEN_BUCKET || a == LIMIT_SLIDING_WINDOW ? MAX - 1 : 0;
            assert_true(charge_many(&s, behind) <= most + (a == LIMIT_SLIDING_WINDOW));
            cells_close(s.table);
        }
    }
}

/* The one ahead has opened the next window. The one behind charges that one, too: the old one is not opened again. */
static void test_laggard_joins_the_newer_window(void **unused)
{
    (void)unused;
    static const enum limit_algorithm windowed[] = { LIMIT_FIXED_WINDOW, LIMIT_CALENDAR };
    for (int i = 0; i < 2; i++) {
        struct subject s = subject_of(windowed[i], US_PER_S);
        assert_int_equal(charge_many(&s, T0_US), MAX);
        int64_t end = decay_time(&s, T0_US);
        assert_true(charge(&s, end + 20 * US_PER_MS));
        assert_int_equal(charge_many(&s, end - 30 * US_PER_MS), MAX - 1);
        assert_int_equal(charge_many(&s, end + 40 * US_PER_MS), 0);
        cells_close(s.table);
    }
}

/* A bucket's time does not go back: what came back is not given a second time. */
static void test_laggard_at_a_bucket(void **unused)
{
    (void)unused;
    struct subject s = subject_of(LIMIT_TOKEN_BUCKET, US_PER_S);
    assert_int_equal(charge_many(&s, T0_US), MAX);
    int admitted = 0;
    for (int64_t now = T0_US; now < T0_US + 10 * US_PER_S; now += 10 * US_PER_MS)
        admitted += charge(&s, now) + charge(&s, now - 50 * US_PER_MS);
    assert_in_range(admitted, 10 * MAX - 1, 10 * MAX);
    cells_close(s.table);
}

/* Many laggards at random: no window of a key begins before its last one has ended, and none holds more than max. */
static void test_random_lags(void **unused)
{
    (void)unused;
    struct subject s = subject_of(LIMIT_FIXED_WINDOW, 200 * US_PER_MS);
    struct random random = { random_seed() };
    int64_t now = T0_US, last_end = 0;
    uint32_t in_window = 0;
    for (int i = 0; i < 200000 / SLOWER; i++) {
        now += random_in(&random, 0, 5) * US_PER_MS;
        int64_t mine = now - random_in(&random, 0, 50) * US_PER_MS;
        struct cells_ask ask = { key_of(1), &s.limit, NULL, mine, 1 };
        struct cells_taken taken;
        if (random_one_in(&random, 4))
            take(s.table, key_of(2 + (uint64_t)i), &s.limit, now, 1);
        if (!cells_take(s.table, &ask, &taken))
            continue;
        int64_t end = limit_state_end(taken.state);
        if (end != last_end) {
            assert_true(end - s.per_us >= last_end);
            in_window = 0;
            last_end = end;
        }
        assert_true(++in_window <= MAX);
        assert_int_equal(in_window, count_of(taken.state));
    }
    cells_close(s.table);
}

/* ---- steps of minutes ---- */

/* Less than a period: the cell's own time goes on as if nothing had been. */
static void test_back_by_less_than_a_period(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = subject_of(a, 60 * MINUTE_US);
        assert_int_equal(charge_many(&s, T0_US), MAX);
        for (int64_t back = 1; back < 30; back++)
            assert_int_equal(charge_many(&s, T0_US - back * MINUTE_US), 0);
        assert_int_equal(charge_many(&s, T0_US), 0);
        assert_int_equal(charge_many(&s, decay_time(&s, T0_US)), MAX);
        cells_close(s.table);
    }
}

/* More than a period: the clock was wrong before. What was used stays used, and counts from now on. */
static void test_back_by_more_than_a_period(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = subject_of(a, MINUTE_US);
        assert_int_equal(charge_many(&s, T0_US), MAX);
        int64_t now = T0_US - 10 * MINUTE_US;
        assert_int_equal(charge_many(&s, now), 0);
        int64_t free_again = decay_time(&s, now);
        assert_true(charge_many(&s, free_again - 1) < MAX);
        assert_int_equal(charge_many(&s, free_again + 2 * MINUTE_US), MAX);
        cells_close(s.table);
    }
}

/* Some are left over when the clock steps back: no more than those pass. */
static void test_back_with_some_left(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = subject_of(a, MINUTE_US);
        assert_true(charge(&s, T0_US) && charge(&s, T0_US) && charge(&s, T0_US));
        assert_int_equal(charge_many(&s, T0_US - 7 * MINUTE_US), MAX - 3);
        assert_int_equal(charge_many(&s, T0_US - 7 * MINUTE_US), 0);
        cells_close(s.table);
    }
}

/* The clock steps forward by minutes, and is set right again. */
static void test_forward_and_back(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = subject_of(a, MINUTE_US);
        assert_int_equal(charge_many(&s, T0_US), MAX);
        /* As far as anybody can tell, these minutes have passed. */
        assert_int_equal(charge_many(&s, T0_US + 10 * MINUTE_US), MAX);
        for (int second = 0; second < 5; second++)
            assert_true(charge_many(&s, T0_US + second * US_PER_S) <= (a == LIMIT_TOKEN_BUCKET));
        assert_int_equal(charge_many(&s, decay_time(&s, T0_US + 5 * US_PER_S) + MINUTE_US), MAX);
        cells_close(s.table);
    }
}

/* A step of a random length, forward or back. */
static int64_t random_step(struct random *random, int64_t now_us)
{
    int64_t step = random_scaled(random, 100 * MINUTE_US);
    return random_one_in(random, 2) && now_us - step > T0_US / 2 ? -step : step;
}

/* A step to a time that is at least two minutes from all those that the clock has shown. */
static int64_t step_to_new_time(struct random *random, const int64_t *shown_us, int count)
{
    for (;;) {
        int64_t now = shown_us[count - 1] + random_step(random, shown_us[count - 1]);
        bool new = true;
        for (int i = 0; i < count; i++)
            new = new &&llabs(now - shown_us[i]) >= 2 * MINUTE_US;
        if (new)
            return now;
    }
}

/* Whatever the clock did: three periods without a further step, and the subject is free. */
static void test_nobody_is_locked_out(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    for (int round = 0; round < 5000 / SLOWER; round++) {
        struct subject s = subject_of(round % ALGORITHMS, MINUTE_US);
        int64_t shown_us[11] = { T0_US };
        int steps = (int)random_in(&random, 1, 10);
        for (int i = 1; i <= steps; i++) {
            shown_us[i] = step_to_new_time(&random, shown_us, i);
            charge_many(&s, shown_us[i]);
        }
        assert_int_equal(charge_many(&s, shown_us[steps] + 3 * MINUTE_US), MAX);
        cells_close(s.table);
    }
}

/* A question that is never answered with yes, but lets a clock be set right. */
static void ask_too_much(const struct subject *s, int64_t now_us)
{
    struct window window = window_at(now_us, s->per_us);
    struct cells_ask ask = { key_of(1), &s->limit, &window, now_us, MAX + 1 };
    struct cells_taken taken;
    assert_false(cells_take(s->table, &ask, &taken));
}

/* A clock that goes back and forth between the same times looks like two callers, one of them stale. That takes some
 * periods more, in which the subject is asked for. */
static void test_nobody_is_locked_out_by_a_clock_that_flaps(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    for (int round = 0; round < 5000 / SLOWER; round++) {
        struct subject s = subject_of(round % ALGORITHMS, MINUTE_US);
        int64_t now = T0_US;
        for (int64_t steps = random_in(&random, 1, 8); steps > 0; steps--) {
            now += random_step(&random, now);
            charge_many(&s, now);
        }
        for (int minute = 0; minute < 40; minute++)
            ask_too_much(&s, now += MINUTE_US);
        assert_int_equal(charge_many(&s, now + 3 * MINUTE_US), MAX);
        cells_close(s.table);
    }
}

/* ---- callers that are stale ---- */

static const int lag_parts[] = { 105, 150, 199, 200, 201, 300, 1000, 100000 }; /* of a period, in 1/100 */

/* One is current and the other stale, both stand still. */
static void test_stale_caller_that_stands_still(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        for (unsigned l = 0; l < sizeof lag_parts / sizeof lag_parts[0]; l++) {
            struct subject s = subject_of(a, US_PER_S);
            int passed = 0;
            for (int i = 0; i < 1000; i++)
                passed += charge(&s, T0_US) + charge(&s, T0_US - lag_parts[l] * US_PER_S / 100);
            assert_true(passed <= 2 * MAX);
            cells_close(s.table);
        }
    }
}

/* Callers whose clocks go on, each at its own lag, that stop now and then for up to three periods. With
 * two of them no more passes in the long run than twice what the limit allows. */
static void take_turns(enum limit_algorithm algorithm, struct random *random, int callers)
{
    enum { PERIODS = 200 };
    struct subject s = subject_of(algorithm, US_PER_S);
    int64_t lag_us[4], stopped_us[4] = { 0 }, passed = 0;
    for (int i = 0; i < callers; i++)
        lag_us[i] = i == 0 ? 0 : random_scaled(random, 20 * US_PER_S);
    for (int64_t now = T0_US; now < T0_US + PERIODS * US_PER_S; now += random_scaled(random, US_PER_S / 20)) {
        int i = (int)random_in(random, 0, callers - 1);
        if (now < stopped_us[i])
            continue;
        if (random_one_in(random, 200))
            stopped_us[i] = now + random_scaled(random, 3 * US_PER_S);
        passed += charge(&s, now - lag_us[i]);
    }
    assert_true(passed <= 2 * (callers - 1) * MAX * PERIODS + callers * MAX);
    cells_close(s.table);
}

static void test_stale_callers_take_turns(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    for (int i = 0; i < 400 / SLOWER; i++)
        take_turns(i % ALGORITHMS, &random, 2);
    /* The callers that lead gain from each that is stale. */
    for (int i = 0; i < 100 / SLOWER; i++)
        take_turns(i % ALGORITHMS, &random, 3);
}

/* A current caller and one whose lag is another one each time: as time goes by they pass twice the limit, and a few limits
 * once. */
static void take_turns_with_any_lag(enum limit_algorithm algorithm, struct random *random, int64_t most_us)
{
    enum { PERIODS = 200, ONCE = 3 + 12 };
    struct subject s = subject_of(algorithm, US_PER_S);
    int64_t passed = 0;
    for (int64_t now = T0_US; now < T0_US + PERIODS * US_PER_S; now += US_PER_S / 100)
        passed += charge(&s, now) + charge(&s, now - random_in(random, 0, most_us));
    assert_true(passed <= (2 * PERIODS + ONCE) * MAX);
    cells_close(s.table);
}

static void test_stale_caller_with_any_lag(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    for (int a = 0; a < ALGORITHMS; a++)
        for (int64_t most_s = 1; most_s <= 1000; most_s *= 10)
            take_turns_with_any_lag(a, &random, most_s * US_PER_S);
}

/* Somebody plays back what has been, faster than it was, beside a current caller. */
static void test_stale_caller_that_catches_up(void **unused)
{
    (void)unused;
    enum { PERIODS = 100, ONCE = 3 + 12 };
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int64_t speed = 2; speed <= 2000; speed *= 10) {
            struct subject s = subject_of(a, US_PER_S);
            int64_t passed = 0;
            for (int64_t at = 0; at < PERIODS * US_PER_S; at += US_PER_S / 100) {
                int64_t behind = (PERIODS * US_PER_S - at) * (speed - 1);
                passed += charge(&s, T0_US + at) + charge(&s, T0_US + at - behind);
            }
            assert_true(passed <= (3 * PERIODS + ONCE) * MAX);
            cells_close(s.table);
        }
    }
}

/* In a table that is full of counts there is no room for marks: then nobody is rebased. */
static void test_stale_caller_in_a_full_table(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = subject_of(a, US_PER_S);
        struct limit other = limit_of(LIMIT_FIXED_WINDOW, 100, 60 * MINUTE_US);
        for (uint64_t k = 1000; k < 1200; k++)
            take(s.table, key_of(k), &other, T0_US, 90);
        int passed = 0;
        for (int i = 0; i < 1000; i++)
            passed += charge(&s, T0_US) + charge(&s, T0_US - 1500 * US_PER_MS);
        assert_true(passed <= 2 * MAX);
        cells_close(s.table);
    }
}

static struct cells_change put_state(struct limit_state state, void *data)
{
    (void)state;
    return (struct cells_change){ .writes = true,
                                  .next = *(struct limit_state *)data,
                                  .outlook = { .decays_us = CLOCK_END_US - 1, .share = LIMIT_SHARES } };
}

/* ---- holds ---- */

static bool hold(struct cells *table, const struct limit *limit, uint32_t id, uint32_t ttl_ms, int64_t now_us)
{
    struct cells_ask ask = { key_of(1), limit, NULL, now_us, 1 };
    struct cells_terms terms = { .id = id, .ttl_ms = ttl_ms };
    struct cells_taken taken;
    return cells_hold(table, &ask, NULL, &terms, &taken) && !terms.kept;
}

static void expect_order(struct cells *table, const struct limit *limit, int64_t now_us)
{
    struct cells_ask ask = { key_of(1), limit, NULL, now_us, 1 };
    struct cells_look look;
    struct held h;
    cells_look(table, &ask, &look);
    assert_true(block_read(table, ask.key, state_payload(look.seen), &h));
    for (uint32_t i = 1; i < h.count; i++)
        assert_true(h.holds[i - 1].until_us <= h.holds[i].until_us);
}

/* The clock is set back: holds last for their time to live from now on, so those that ended first may end last. When some
 * have to be joined, none of them ends too early. */
static void test_holds_stay_in_order(void **unused)
{
    (void)unused;
    enum { EACH = 63, LONG_MS = 100000, SHORT_MS = 60000 };
    struct cells *table = table_of_cells(1 << 14);
    struct limit limit = limit_of(LIMIT_CONCURRENT, 1000, US_PER_S);
    int64_t later_us = T0_US + 50 * US_PER_S, now_us = T0_US - 120 * MINUTE_US;
    for (uint32_t i = 0; i < EACH; i++) {
        assert_true(hold(table, &limit, 1 + i, LONG_MS, T0_US));
        assert_true(hold(table, &limit, 1 + EACH + i, SHORT_MS, later_us));
    }
    assert_true(hold(table, &limit, 1 + 2 * EACH, SHORT_MS, now_us)); /* one more than a block has room for */
    expect_order(table, &limit, now_us);
    assert_int_equal(state_in(table, key_of(1), &limit, now_us).data, 2 * EACH + 1);
    assert_int_equal(state_in(table, key_of(1), &limit, now_us + SHORT_MS * US_PER_MS).data, EACH);
    assert_int_equal(state_in(table, key_of(1), &limit, now_us + LONG_MS * US_PER_MS - 1).data, EACH);
    assert_int_equal(state_in(table, key_of(1), &limit, now_us + LONG_MS * US_PER_MS).data, 0);
    cells_close(table);
}

/* Whatever a state says about its own time, a caller is judged, and its charge can be given back. */
static void test_damaged_states(void **unused)
{
    struct random random = { random_seed() };
    (void)unused;
    for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++) {
        struct subject s = subject_of(algorithm, MINUTE_US);
        for (int i = 0; i < 20000; i++) {
            uint64_t length = random_u64(&random) >> 32, count = (uint64_t)random_in(&random, 0, 3);
            struct limit_state state = { random_u64(&random) % CLOCK_END_US, length << 32 | count };
            int64_t now_us = random_in(&random, 0, 1) ? T0_US : random_in(&random, 0, CLOCK_END_US - 1);
            struct window window = window_at(now_us, s.per_us);
            struct cells_ask ask = { key_of((uint64_t)random_in(&random, 1, 3)), &s.limit, &window, now_us, 1 };
            struct cells_taken taken;
            cells_update(s.table, ask.key, now_us, put_state, &state);
            for (int k = 0; k < 3; k++)
                if (cells_take(s.table, &ask, &taken))
                    cells_refund(s.table, &s.limit, &taken, now_us);
        }
        cells_close(s.table);
    }
}

/* The ends of time. */
static void test_ends_of_time(void **unused)
{
    (void)unused;
    static const int64_t times[] = { 0, 1, 999, CLOCK_END_US - 1, T0_US, CLOCK_END_US - 2, 0 };
    static const int64_t periods[] = { LIMIT_PER_MIN_US, MINUTE_US, LIMIT_PER_MAX_US };
    for (int a = 0; a < ALGORITHMS; a++) {
        for (int p = 0; p < 3; p++) {
            struct subject s = subject_of(a, periods[p]);
            for (unsigned i = 0; i < sizeof times / sizeof times[0]; i++) {
                assert_true(charge_many(&s, times[i]) <= MAX);
                assert_int_equal(charge_many(&s, times[i]), 0);
                flood(s.table, times[i]);
            }
            cells_close(s.table);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laggard_at_the_end),
        cmocka_unit_test(test_laggard_joins_the_newer_window),
        cmocka_unit_test(test_laggard_at_a_bucket),
        cmocka_unit_test(test_random_lags),
        cmocka_unit_test(test_back_by_less_than_a_period),
        cmocka_unit_test(test_back_by_more_than_a_period),
        cmocka_unit_test(test_back_with_some_left),
        cmocka_unit_test(test_forward_and_back),
        cmocka_unit_test(test_nobody_is_locked_out),
        cmocka_unit_test(test_nobody_is_locked_out_by_a_clock_that_flaps),
        cmocka_unit_test(test_stale_caller_that_stands_still),
        cmocka_unit_test(test_stale_callers_take_turns),
        cmocka_unit_test(test_stale_caller_with_any_lag),
        cmocka_unit_test(test_stale_caller_that_catches_up),
        cmocka_unit_test(test_stale_caller_in_a_full_table),
        cmocka_unit_test(test_holds_stay_in_order),
        cmocka_unit_test(test_damaged_states),
        cmocka_unit_test(test_ends_of_time),
    };
    return cmocka_run_group_tests_name("cells/clock", tests, NULL, NULL);
}
