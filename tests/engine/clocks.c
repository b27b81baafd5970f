/* Callers whose clocks disagree, through the API: a stale one and a current one that take turns. */
#include "helpers.h"

enum { MAX = 50 };

static const char *const limits[] = {
    "{ algorithm: token_bucket, max: 50, per: 1s }",
    "{ algorithm: fixed_window, max: 50, per: 1s }",
    "{ algorithm: sliding_window, max: 50, per: 1s }",
    "{ calendar: minute, max: 50 }",
    "{ algorithm: fixed_window, max: 50, per: 1s }, { algorithm: token_bucket, max: 50, per: 1s }",
};
enum { LIMITS = sizeof limits / sizeof *limits, CALENDAR = 3 };

static struct weir *open_limits(const char *text)
{
    char rules[300];
    snprintf(rules, sizeof rules, "rules:\n  - { id: r, match: { event: e }, by: [key], limits: [ %s ] }\n", text);
    return open_rules(rules);
}

/* Two callers that stand still, one of them 1.5 periods behind. */
static void two_callers_pass_twice_the_limit_at_most(void **state)
{
    (void)state;
    for (int i = 0; i < LIMITS; i++) {
        struct weir *weir = open_limits(limits[i]);
        int64_t lag_us = i == CALENDAR ? 150 * S : 1500 * MS;
        int passed = 0;
        for (int k = 0; k < 10000; k++)
            passed += passes(weir, one("e", "k"), NOW, 1) + passes(weir, one("e", "k"), NOW - lag_us, 1);
        assert_in_range(passed, MAX, 2 * MAX);
        weir_close(weir);
    }
}

/* The same in batches, while time goes by: a process that is stopped again and again in the middle of its batch. */
static void batches_with_an_old_time(void **state)
{
    (void)state;
    enum { BATCH = 16, SECONDS = 60 };
    struct weir_request requests[BATCH];
    for (int k = 0; k < BATCH; k++)
        requests[k] = one("e", "k");
    for (int i = 0; i < CALENDAR; i++) {
        struct weir *weir = open_limits(limits[i]);
        struct weir_verdict verdicts[BATCH];
        int passed = 0;
        for (int64_t ms = 0; ms < SECONDS * 1000; ms += 10) {
            int64_t lag_us = ms % 3000 < 1500 ? 3 * S : 0;
            assert_int_equal(weir_check_batch(weir, requests, BATCH, NOW + ms * MS - lag_us, verdicts), 0);
            for (int k = 0; k < BATCH; k++)
                passed += verdicts[k].allowed;
            passed += passes(weir, one("e", "k"), NOW + ms * MS, 1);
        }
        assert_in_range(passed, MAX * SECONDS / 2, 2 * MAX * (SECONDS + 1));
        weir_close(weir);
    }
}

/* A clock that was wrong and is set back: what was used stays used, and nobody waits for longer than a period. */
static void a_clock_that_is_set_back_locks_nobody_out(void **state)
{
    (void)state;
    for (int i = 0; i < CALENDAR; i++) {
        struct weir *weir = open_limits(limits[i]);
        assert_int_equal(passes(weir, one("e", "k"), NOW, MAX - 10), MAX - 10);
        int64_t now = NOW - 3600 * S;
        assert_int_equal(passes(weir, one("e", "k"), now, MAX), 10);
        assert_int_equal(passes(weir, one("e", "k"), now + 2 * S, 2 * MAX), MAX);
        weir_close(weir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_callers_pass_twice_the_limit_at_most),
        cmocka_unit_test(batches_with_an_old_time),
        cmocka_unit_test(a_clock_that_is_set_back_locks_nobody_out),
    };
    return cmocka_run_group_tests_name("engine/clocks", tests, NULL, NULL);
}
