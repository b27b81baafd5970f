/* How long what is left of a window will last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "limit/take.h"
#include "random.h"

#define S US_PER_S
#define HOUR (3600 * S)
#define T0 (INT64_C(1700000000) * S)

static struct limit make(enum limit_algorithm algorithm, uint64_t max, int64_t per_us)
{
    struct limit l;
    limit_init(&l, algorithm, max, 0, per_us);
    return l;
}

static struct limit_state charged(const struct limit *l, const struct window *w, struct limit_state s, int64_t now_us,
                                  uint64_t cost)
{
    return limit_charge(l, w, s, now_us, cost);
}

static void a_fixed_window_goes_on_as_it_began(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_FIXED_WINDOW, 100, 60 * S); /* up to a minute, lengths are exact */
    struct limit_state s = { 0 };
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0), LIMIT_NEVER_US);
    s = charged(&l, NULL, s, T0, 10);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0), 9 * S);              /* ten in the first second, as far as is known */
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 2 * S), 18 * S);     /* ten in two seconds */
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 5999999), 53999991); /* just before the end … */
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 6 * S), LIMIT_NEVER_US); /* … and at it: it outlasts the window */
    s = charged(&l, NULL, s, T0 + 30 * S, 90);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 30 * S), 0);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 60 * S - 1), 0);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 60 * S), LIMIT_NEVER_US);
    s = charged(&l, NULL, s, T0 + 31 * S, 50);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 31 * S), 0); /* a debt */
}

static void a_calendar_window_began_when_it_began(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_CALENDAR, 100, 0);
    struct window day = { T0, T0 + 24 * HOUR };
    struct limit_state s = charged(&l, &day, (struct limit_state){ 0 }, T0 + 6 * HOUR, 50);
    int64_t lasts_us = limit_lasts_us(&l, &day, s, T0 + 6 * HOUR);
    assert_true(lasts_us > 6 * HOUR - S && lasts_us < 6 * HOUR + S);
    assert_int_equal(limit_lasts_us(&l, &day, s, T0 + 12 * HOUR + S), LIMIT_NEVER_US);
}

static void a_sliding_window_forgets_the_one_before(void **state)
{
    (void)state;
    struct limit l = make(LIMIT_SLIDING_WINDOW, 100, 100 * S);
    struct limit_state s = charged(&l, NULL, (struct limit_state){ 0 }, T0, 50);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 10 * S), 10 * S);
    /* In the next window the 50 fade by one in two seconds, as quickly as they come again: 100 are never used. */
    s = charged(&l, NULL, s, T0 + 120 * S, 10);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 120 * S), LIMIT_NEVER_US);
    /* Three in two seconds more than that: 30 in 20 s, 30 + 40 used, and a surplus of one a second. */
    s = charged(&l, NULL, s, T0 + 120 * S, 20);
    assert_int_equal(limit_lasts_us(&l, NULL, s, T0 + 120 * S), 30 * S);
}

/* At that time, and not a moment before, the pace has used everything. */
static void the_pace_uses_it_up(void **state)
{
    (void)state;
    struct random rnd = { random_seed() };
    for (int i = 0; i < 20000; i++) {
        int64_t per_us = random_in(&rnd, 2, 10000) * S, max = random_scaled(&rnd, 1000000);
        struct limit l = make(LIMIT_SLIDING_WINDOW, (uint64_t)max, per_us);
        int64_t now_us = T0 + random_in(&rnd, S, per_us - 1);
        struct limit_state s = { (uint64_t)T0, (uint64_t)(random_in(&rnd, 0, max) << 32 | random_in(&rnd, 0, max)) };
        struct limit_slide w = limit_slide_at(&l, s, now_us);
        int64_t lasts_us = limit_lasts_us(&l, NULL, s, now_us);
        uint64_t remaining = limit_remaining_slide(&l, &w);
        if (w.count == 0 && w.previous == 0) {
            assert_int_equal(lasts_us, LIMIT_NEVER_US);
            continue;
        }
        /* What comes in a microsecond, beyond what fades; rounding to milliseconds makes it less certain. */
        double comes = (double)w.count / (double)w.offset_us, fades = (double)w.previous / (double)per_us;
        double uncertain = comes / (double)w.offset_us * US_PER_MS, rest = (double)(per_us - w.offset_us);
        if (remaining == 0)
            assert_int_equal(lasts_us, 0);
        else if (lasts_us == LIMIT_NEVER_US)
            assert_true((comes - fades - uncertain) * (rest - 2 * US_PER_MS) <= (double)remaining);
        else
            assert_true((comes - fades + uncertain) * (double)(lasts_us + 2 * US_PER_MS) >= (double)remaining &&
                        (comes - fades - uncertain) * (double)lasts_us <= (double)remaining && (double)lasts_us < rest);
    }
}

static void others_have_no_window(void **state)
{
    (void)state;
    struct limit bucket = make(LIMIT_TOKEN_BUCKET, 10, 60 * S), slots = make(LIMIT_CONCURRENT, 10, 60 * S);
    struct limit none = make(LIMIT_FIXED_WINDOW, 0, 60 * S);
    struct limit_state s = { 0 };
    assert_int_equal(limit_lasts_us(&bucket, NULL, charged(&bucket, NULL, s, T0, 5), T0), LIMIT_NEVER_US);
    assert_int_equal(limit_lasts_us(&slots, NULL, (struct limit_state){ 0, 5 }, T0), LIMIT_NEVER_US);
    assert_int_equal(limit_lasts_us(&none, NULL, s, T0), LIMIT_NEVER_US);
}

/* Whatever a damaged table has, and however far the clock steps. */
static void any_bits_are_a_state(void **state)
{
    (void)state;
    static const enum limit_algorithm all[] = { LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW, LIMIT_CALENDAR };
    struct random rnd = { random_seed() };
    for (int i = 0; i < 300000; i++) {
        int64_t per_us = LIMIT_PER_MIN_US - 1 + random_scaled(&rnd, LIMIT_PER_MAX_US - LIMIT_PER_MIN_US + 1);
        int64_t now_us = random_scaled(&rnd, CLOCK_END_US - 1);
        struct window window = { now_us - random_in(&rnd, 0, now_us), now_us + per_us };
        struct limit l = make(all[i % 3], (uint64_t)random_scaled(&rnd, LIMIT_SLIDE_MAX), per_us);
        struct limit_state s = { (uint64_t)random_in(&rnd, 0, CLOCK_END_US - 1), random_u64(&rnd) };
        int64_t lasts_us = limit_lasts_us(&l, &window, s, now_us);
        assert_true(lasts_us == LIMIT_NEVER_US || (lasts_us >= 0 && lasts_us <= 2 * CLOCK_END_US));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_window_goes_on_as_it_began),
        cmocka_unit_test(a_calendar_window_began_when_it_began),
        cmocka_unit_test(a_sliding_window_forgets_the_one_before),
        cmocka_unit_test(the_pace_uses_it_up),
        cmocka_unit_test(others_have_no_window),
        cmocka_unit_test(any_bits_are_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
