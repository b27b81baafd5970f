/* Limits with overdraft: while anything is left a request passes, whatever it costs, and the rest is owed. */
#include "helpers.h"

#include <pthread.h>

#define EXPECT_DEBT(weir, request, now_us, expected) assert_int_equal(check_at(weir, request, now_us).debt, expected)

/* ---- each kind of limit ---- */

static void a_bucket_repays_before_anything_passes(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: { max: 10, per: 10s, overdraft: true } }]");
    EXPECT(weir, cost_of("e", "k", 9), NOW, "pass a/token_bucket 1 of 10, reset 9000");
    struct weir_verdict v = check_at(weir, cost_of("e", "k", 26), NOW);
    assert_true(v.allowed);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.debt, 25);
    assert_int_equal(v.reset_ms, 35000);
    /* Whatever it costs, it passes when 1 fits. */
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 10, reset 35000, retry 26000");
    EXPECT(weir, cost_of("e", "k", 1000), NOW, "refuse 429 a/token_bucket 0 of 10, reset 35000, retry 26000");
    EXPECT(weir, cost_of("e", "k", 0), NOW, "refuse 429 a/token_bucket 0 of 10, reset 35000, retry 25000");
    EXPECT_DEBT(weir, peek_of("e", "k", 0), NOW + 10 * S, 15);
    EXPECT_DEBT(weir, peek_of("e", "k", 0), NOW + 10 * S - MS, 16);
    EXPECT(weir, cost_of("e", "k", 1000), NOW + 26 * S - MS, "refuse 429 a/token_bucket 0 of 10, reset 9001, retry 1");
    EXPECT(weir, peek_of("e", "k", 1000), NOW + 26 * S, "pass a/token_bucket 1 of 10, reset 9000");
    EXPECT_DEBT(weir, cost_of("e", "k", 1000), NOW + 26 * S, 999);
    EXPECT_DEBT(weir, one("e", "other"), NOW, 0);
    weir_close(weir);
}

static void windows_owe_until_they_are_over(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules: [{ id: f, match: { event: f }, by: [key], limits: { name: w, algorithm: fixed_window, max: 100, per: 1h, "
        "overdraft: true } }, "
        "{ id: s, match: { event: s }, by: [key], limits: { name: w, algorithm: sliding_window, max: 10, per: 10s, "
        "overdraft: "
        "true } }, "
        "{ id: d, match: { event: d }, by: [key], limits: { name: w, calendar: day, max: 100, overdraft: true } }]");
    EXPECT(weir, cost_of("f", "k", 99), NOW, "pass f/w 1 of 100, reset 3600000");
    EXPECT_DEBT(weir, cost_of("f", "k", 5000), NOW, 4999);
    EXPECT(weir, cost_of("f", "k", 101), NOW + S, "refuse 429 f/w 0 of 100, reset 3599000, retry 3599000");
    EXPECT(weir, cost_of("f", "k", 100), NOW + 3600 * S, "pass f/w 0 of 100, reset 3600000");
    EXPECT(weir, one("f", "k"), NOW + 3600 * S, "refuse 429 f/w 0 of 100, reset 3600000, retry 3600000");
    EXPECT_DEBT(weir, one("f", "k"), NOW + 3600 * S, 0);
    EXPECT_DEBT(weir, cost_of("s", "k", 15), NOW, 5);
    EXPECT(weir, cost_of("s", "k", 50), NOW + S, "refuse 429 s/w 0 of 10, reset 19000, retry 13000");
    EXPECT_DEBT(weir, cost_of("s", "k", 50), NOW + 14 * S, 49);
    EXPECT_DEBT(weir, cost_of("d", "k", UINT64_C(1) << 40), NOW, (UINT64_C(1) << 40) - 100);
    EXPECT(weir, one("d", "k"), NOW, "refuse 429 d/w 0 of 100, reset 6400000, retry 6400000");
    EXPECT(weir, one("d", "k"), NOW + 6400 * S, "pass d/w 99 of 100, reset 86400000");
    weir_close(weir);
}

/* ---- amounts ---- */

static const char *const forms[] = {
    "{ name: x, algorithm: fixed_window, max: 100, per: 3650d, overdraft: true }",
    "{ name: x, calendar: year, max: 100, overdraft: true }",
    "{ name: x, max: 100, per: 1d, overdraft: true }",
    "{ name: x, max: 4503599627370495, per: 3650d, overdraft: true }",
    "{ name: x, algorithm: sliding_window, max: 100, per: 3650d, overdraft: true }",
    "{ name: x, algorithm: sliding_window, max: 2147483647, per: 3650d, overdraft: true }",
};

static struct weir *open_form(size_t i)
{
    char rules[300];
    snprintf(rules, sizeof rules, "rules: [{ id: a, by: [key], limits: %s }]", forms[i]);
    return open_rules(rules);
}

/* A client cannot make a count end where states do, and have more given back than it was charged. */
static void a_refund_undoes_all_of_it(void **state)
{
    (void)state;
    static const uint64_t costs[] = { 2, 101, UINT32_MAX, UINT64_C(1) << 32, WEIR_AMOUNT_MAX, UINT64_MAX };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t k = 0; k < sizeof costs / sizeof *costs; k++) {
            struct weir *weir = open_form(i);
            struct weir_receipt receipt;
            struct weir_request request = cost_of("e", "k", costs[k]);
            assert_int_equal(passes(weir, cost_of("e", "k", 40), NOW, 1), 1);
            uint64_t left = check_at(weir, peek_of("e", "k", 0), NOW).remaining;
            request.receipt = &receipt;
            assert_int_equal(passes(weir, request, NOW, 1), 1);
            assert_int_equal(receipt.count, 1);
            assert_int_equal(weir_refund(weir, &receipt, NOW), 1);
            assert_int_equal(check_at(weir, peek_of("e", "k", 0), NOW).remaining, left);
            assert_int_equal(weir_refund(weir, &receipt, NOW), 0);
            weir_close(weir);
        }
}

static void nothing_is_left_of_0(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, limits: { max: 0, per: 10s, overdraft: true } }]");
    EXPECT(weir, cost_of("e", "k", 5), NOW, "refuse 429 a/token_bucket 0 of 0, reset 0, retry -1");
    weir_close(weir);
}

/* ---- rules ---- */

static void all_or_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: [ { name: o, max: 10, per: 1h, overdraft: true }, "
                                   "{ name: n, max: 20, per: 1h } ] }]");
    EXPECT(weir, cost_of("e", "k", 21), NOW, "refuse 429 a/n 20 of 20, reset 0, retry -1");
    EXPECT(weir, cost_of("e", "k", 15), NOW, "pass a/o 0 of 10, reset 5400000");
    /* Something is left of the first, but not enough of the second. */
    EXPECT(weir, cost_of("e", "k", 18), NOW + 2160 * S, "refuse 429 a/n 17 of 20, reset 540000, retry 180000");
    EXPECT(weir, peek_of("e", "k", 0), NOW + 2160 * S, "pass a/o 1 of 10, reset 3240000");
    weir_close(weir);
}

static void units_plans_and_overrides(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules: [{ id: a, by: [key], plan: user, plans: { pro: { name: t, max: 100, per: 1h, unit: tokens, overdraft: true "
        "} }, "
        "limits: { name: t, max: 10, per: 1h, unit: tokens } }]\n"
        "overrides: [{ rule: a, by: { key: vip }, limits: { name: t, max: 1, per: 1h, unit: tokens, overdraft: true } }]");
    struct weir_cost tokens = { WEIR_STR("tokens"), 150 };
    struct weir_request request = { .key = WEIR_STR("k"), .costs = &tokens, .cost_count = 1, .cost = 1 };
    EXPECT(weir, request, NOW, "refuse 429 a/t 10 of 10, reset 0, retry -1");
    request.user = WEIR_STR("pro");
    EXPECT(weir, request, NOW, "pass a/t 0 of 100, reset 5400000");
    EXPECT_DEBT(weir, request, NOW, 50);
    /* The debt stays with the subject, whatever its plan is; only a limit with overdraft says how much it is. */
    request.user = WEIR_STR("");
    EXPECT(weir, request, NOW, "refuse 429 a/t 0 of 10, reset 54000000, retry -1");
    EXPECT_DEBT(weir, request, NOW, 0);
    request.key = WEIR_STR("vip");
    EXPECT_DEBT(weir, request, NOW, 149);
    /* A unit that costs nothing is refused if it is overdrawn. */
    request.cost_count = 0;
    assert_false(check_at(weir, request, NOW).allowed);
    weir_close(weir);
}

static void shadow_rules_owe_too(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, mode: shadow, limits: { max: 5, per: 1h, overdraft: true } }]");
    EXPECT(weir, cost_of("e", "k", 50), NOW, "pass no rule");
    EXPECT(weir, one("e", "k"), NOW, "pass no rule, shadow a");
    weir_close(weir);
}

static void a_reload_keeps_the_debt(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, limits: { max: 10, per: 10s, overdraft: true } }]");
    EXPECT_DEBT(weir, cost_of("e", "k", 30), NOW, 20);
    set_rules(weir, "[{ id: a, limits: { max: 10, per: 10s } }]");
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 10, reset 30000, retry 21000");
    EXPECT(weir, cost_of("e", "k", 11), NOW + 60 * S, "refuse 429 a/token_bucket 10 of 10, reset 0, retry -1");
    set_rules(weir, "[{ id: a, limits: { max: 10, per: 10s, overdraft: true } }]");
    EXPECT_DEBT(weir, cost_of("e", "k", 11), NOW + 60 * S, 1);
    weir_close(weir);
}

static void sum_overdrawn(const struct weir_rule_said *said, void *context)
{
    *(uint64_t *)context += said->overdrawn;
}

static void rules_say_what_was_overdrawn(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: [ { name: o, max: 10, per: 1h, overdraft: true }, "
                                   "{ name: p, max: 20, per: 1h, overdraft: true } ] }]");
    uint64_t overdrawn = 0;
    struct weir_request request = cost_of("e", "k", 8);
    request.each_rule = sum_overdrawn;
    request.context = &overdrawn;
    check_at(weir, request, NOW);
    assert_int_equal(overdrawn, 0);
    request.cost = 30;
    check_at(weir, request, NOW);
    assert_int_equal(overdrawn, 28 + 18);
    check_at(weir, request, NOW);
    assert_int_equal(overdrawn, 28 + 18); /* a refusal owes nothing */
    weir_close(weir);
}

/* ---- many at once ---- */

enum { THREADS = 4, ROUNDS = 300 };

struct crowd {
    struct weir *weir;
    unsigned passed;
};

static void *overdraw_often(void *data)
{
    struct crowd *crowd = data;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        for (unsigned n = 0; n < 3; n++)
            if (check_at(crowd->weir, cost_of("e", key, 1000), NOW).allowed)
                __atomic_add_fetch(&crowd->passed, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* What is judged is what is charged: of all that want the last unit one gets it. */
static void one_overdraws(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct crowd crowd = { .weir = open_form(i) };
        pthread_t threads[THREADS];
        for (unsigned n = 0; n < ROUNDS; n++) {
            char key[16];
            snprintf(key, sizeof key, "k%u", n);
            assert_int_equal(passes(crowd.weir, cost_of("e", key, 99), NOW, 1), 1);
        }
        for (unsigned n = 0; n < THREADS; n++)
            assert_int_equal(pthread_create(&threads[n], NULL, overdraw_often, &crowd), 0);
        for (unsigned n = 0; n < THREADS; n++)
            assert_int_equal(pthread_join(threads[n], NULL), 0);
        assert_int_equal(crowd.passed, ROUNDS);
        weir_close(crowd.weir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_repays_before_anything_passes),
        cmocka_unit_test(windows_owe_until_they_are_over),
        cmocka_unit_test(a_refund_undoes_all_of_it),
        cmocka_unit_test(nothing_is_left_of_0),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(units_plans_and_overrides),
        cmocka_unit_test(shadow_rules_owe_too),
        cmocka_unit_test(a_reload_keeps_the_debt),
        cmocka_unit_test(rules_say_what_was_overdrawn),
        cmocka_unit_test(one_overdraws),
    };
    return cmocka_run_group_tests_name("engine/overdraft", tests, NULL, NULL);
}
