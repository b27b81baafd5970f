/* weir_charge: costs that are known only afterwards count whether or not there is room. */
#include "helpers.h"

#include <pthread.h>

static void charge_at(struct weir *weir, struct weir_request request, int64_t now_us)
{
    assert_int_equal(weir_charge(weir, &request, now_us), 0);
}

/* ---- each kind of limit ---- */

static void a_bucket_repays_before_anything_passes(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: '10 per 10s' }]");
    charge_at(weir, cost_of("e", "k", 35), NOW);
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 10, reset 35000, retry 26000");
    EXPECT(weir, cost_of("e", "k", 0), NOW, "refuse 429 a/token_bucket 0 of 10, reset 35000, retry 25000");
    EXPECT(weir, cost_of("e", "k", 0), NOW + 25 * S, "pass a/token_bucket 0 of 10, reset 10000");
    EXPECT(weir, one("e", "k"), NOW + 26 * S - MS, "refuse 429 a/token_bucket 0 of 10, reset 9001, retry 1");
    EXPECT(weir, one("e", "k"), NOW + 26 * S, "pass a/token_bucket 0 of 10, reset 10000");
    EXPECT(weir, one("e", "other"), NOW, "pass a/token_bucket 9 of 10, reset 1000");
    weir_close(weir);
}

static void a_window_refuses_until_it_is_over(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, match: { event: e }, by: [key], limits: { name: w, algorithm: fixed_window, max: 100, "
                   "per: 1h } }, "
                   "{ id: b, match: { event: day }, by: [key], limits: { name: d, calendar: day, max: 1000000 } }]");
    assert_int_equal(passes(weir, cost_of("e", "k", 60), NOW, 1), 1);
    charge_at(weir, cost_of("e", "k", 41), NOW + S);
    EXPECT(weir, cost_of("e", "k", 0), NOW + S, "refuse 429 a/w 0 of 100, reset 3599000, retry 3599000");
    EXPECT(weir, one("e", "k"), NOW + 3600 * S, "pass a/w 99 of 100, reset 3600000");
    charge_at(weir, cost_of("day", "k", 1000001), NOW + 3600 * S);
    EXPECT(weir, cost_of("day", "k", 0), NOW + 3600 * S, "refuse 429 b/d 0 of 1000000, reset 2800000, retry 2800000");
    EXPECT(weir, cost_of("day", "k", 0), NOW + 7200 * S, "pass b/d 1000000 of 1000000, reset 0");
    weir_close(weir);
}

static void a_sliding_window_carries_it_on(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: { name: s, algorithm: sliding_window, max: 10, "
                                   "per: 10s } }]");
    charge_at(weir, cost_of("e", "k", 15), NOW);
    EXPECT(weir, one("e", "k"), NOW + S, "refuse 429 a/s 0 of 10, reset 19000, retry 13000");
    EXPECT(weir, one("e", "k"), NOW + 14 * S, "pass a/s 0 of 10, reset 16000");
    weir_close(weir);
}

/* ---- amounts ---- */

static void amounts_have_no_end_before_two_to_the_53(void **state)
{
    (void)state;
    static const char *const limits[] = {
        "{ name: x, algorithm: fixed_window, max: 100, per: 3650d }",
        "{ name: x, calendar: year, max: 100 }",
        "{ name: x, max: 100, per: 1s }",
        "{ name: x, max: 9007199254740991, per: 1s }",
        "{ name: x, algorithm: sliding_window, max: 4294967295, per: 3650d }",
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules: [{ id: a, by: [key], limits: %s }]", limits[i]);
        struct weir *weir = open_rules(rules);
        for (unsigned n = 0; n < 3; n++) {
            charge_at(weir, cost_of("e", "k", UINT64_C(1) << 40), NOW);
            charge_at(weir, cost_of("e", "k", WEIR_AMOUNT_MAX), NOW);
            charge_at(weir, cost_of("e", "k", UINT64_MAX), NOW);
        }
        assert_int_equal(check_at(weir, one("e", "k"), NOW).allowed, 0);
        assert_int_equal(check_at(weir, one("e", "k"), NOW).remaining, 0);
        assert_int_equal(check_at(weir, one("e", "other"), NOW).allowed, 1);
        weir_close(weir);
    }
}

/* 10 GiB under a max of 100: as long as 2^32 bytes and more take to come back. */
static void a_small_limit_counts_large_costs(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: { name: x, max: 1000000, per: 1s } }]");
    charge_at(weir, cost_of("e", "k", UINT64_C(10737418240)), NOW);
    struct weir_verdict v = check_at(weir, cost_of("e", "k", 0), NOW);
    assert_false(v.allowed);
    assert_in_range(v.retry_after_ms, 10736419, 10736420);
    assert_int_equal(passes(weir, cost_of("e", "k", 0), NOW + (v.retry_after_ms - 1) * MS, 1), 0);
    assert_int_equal(passes(weir, cost_of("e", "k", 0), NOW + v.retry_after_ms * MS, 1), 1);
    weir_close(weir);
}

/* ---- against a limit that has room ---- */

static uint32_t random_below(uint64_t *seed, uint32_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % end;
}

enum { ROOM = 1000000, SMALL = 20 };

/* The same limit with more room counts the same, and says what the small one must say. */
static void what_is_used_is_what_was_charged(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "{ name: x, max: 20, per: 7s, burst: %d }",
        "{ name: x, algorithm: fixed_window, max: %d, per: 7s }",
        "{ name: x, algorithm: sliding_window, max: %d, per: 7s }",
        "{ name: x, calendar: minute, max: %d }",
    };
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
        char small[200], large[200], rules[600];
        snprintf(small, sizeof small, forms[form], SMALL);
        snprintf(large, sizeof large, forms[form], ROOM);
        snprintf(rules, sizeof rules,
                 "rules: [{ id: small, match: { event: s }, by: [key], limits: %s }, "
                 "{ id: large, match: { event: l }, by: [key], limits: %s }]",
                 small, large);
        struct weir *weir = open_rules(rules);
        uint64_t seed = form + 1;
        int64_t now_us = NOW;
        for (unsigned i = 0; i < 20000; i++) {
            now_us += random_below(&seed, 4) ? random_below(&seed, 2 * 1000000) : random_below(&seed, 10) * S;
            uint64_t cost = random_below(&seed, 8) ? random_below(&seed, 8) : random_below(&seed, 60);
            if (random_below(&seed, 3) == 0) {
                charge_at(weir, cost_of("s", "k", cost), now_us);
                charge_at(weir, cost_of("l", "k", cost), now_us);
            } else if (check_at(weir, cost_of("s", "k", cost), now_us).allowed) {
                assert_int_equal(passes(weir, cost_of("l", "k", cost), now_us, 1), 1);
            }
            uint64_t left = check_at(weir, peek_of("l", "k", 0), now_us).remaining;
            uint64_t used = ROOM - left; /* rounded up */
            struct weir_verdict v = check_at(weir, peek_of("s", "k", 0), now_us);
            assert_int_equal(v.remaining, used < SMALL ? SMALL - used : 0);
            assert_int_equal(v.allowed, used <= SMALL);
        }
        weir_close(weir);
    }
}

/* ---- rules ---- */

static void only_the_named_units_are_charged(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: [ { name: r, max: 5, per: 1h }, "
                                   "{ name: b, max: 100, per: 1h, unit: bytes } ] }]");
    struct weir_cost bytes = { WEIR_STR("bytes"), 150 };
    struct weir_request later = { .event = WEIR_STR("e"), .key = WEIR_STR("k"), .costs = &bytes, .cost_count = 1 };
    assert_int_equal(passes(weir, one("e", "k"), NOW, 1), 1);
    charge_at(weir, later, NOW);
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/b 0 of 100, reset 5400000, retry 1800000");
    assert_int_equal(check_at(weir, one("e", "k"), NOW + 1800 * S).allowed, 1);
    weir_close(weir);
}

static void shadow_rules_count_it(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, mode: shadow, limits: '5 per 1h' }, { id: b, match: { event: x }, "
                                   "mode: 'off', limits: '1 per 1h' }]");
    charge_at(weir, cost_of("e", "k", 6), NOW);
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass no rule, shadow a");
    weir_close(weir);
}

static void nothing_to_charge(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: '5 per 1h' }, { id: none, match: { event: none }, "
                                   "limits: '0 per 1h' }]");
    struct weir_request request = one("e", "k");
    assert_int_equal(weir_charge(weir, &request, -1), WEIR_E_INVALID);
    charge_at(weir, one("e", NULL), NOW);
    charge_at(weir, cost_of("e", "k", 0), NOW);
    charge_at(weir, one("none", "x"), NOW);
    EXPECT(weir, peek_of("e", "k", 0), NOW, "pass a/token_bucket 5 of 5, reset 0");
    weir_close(weir);
}

/* ---- many at once ---- */

enum { THREADS = 4, CHARGES = 20000 };

static void *charge_often(void *data)
{
    struct weir_request request = cost_of("e", "k", 3);
    for (unsigned i = 0; i < CHARGES; i++)
        if (weir_charge(data, &request, NOW) != 0)
            return data;
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: { name: w, algorithm: fixed_window, max: 1000000, "
                                   "per: 1h } }]");
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, charge_often, weir), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(check_at(weir, peek_of("e", "k", 0), NOW).remaining, 1000000 - 3 * THREADS * CHARGES);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_repays_before_anything_passes),
        cmocka_unit_test(a_window_refuses_until_it_is_over),
        cmocka_unit_test(a_sliding_window_carries_it_on),
        cmocka_unit_test(amounts_have_no_end_before_two_to_the_53),
        cmocka_unit_test(a_small_limit_counts_large_costs),
        cmocka_unit_test(what_is_used_is_what_was_charged),
        cmocka_unit_test(only_the_named_units_are_charged),
        cmocka_unit_test(shadow_rules_count_it),
        cmocka_unit_test(nothing_to_charge),
        cmocka_unit_test(threads_lose_nothing),
    };
    return cmocka_run_group_tests_name("engine/charge", tests, NULL, NULL);
}
