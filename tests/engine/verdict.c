/* The verdict: what each of its fields says, and the line of JSON that it makes. */
#include "../limit/random.h"
#include "helpers.h"

#define RULE(id, limits) "  - { id: " id ", match: { event: e }, by: [key], limits: [" limits "] }\n"

/* ---- the named limit ---- */

static void names_the_limit_with_the_least_left(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "{ name: x, max: 9, per: 9s }, { name: y, max: 7, per: 70s }")
                                       RULE("b", "{ name: z, max: 8, per: 10s }"));
    EXPECT(weir, one("e", "k"), NOW, "pass a/y 6 of 7, reset 10000");
    EXPECT(weir, one("e", "k"), NOW, "pass a/y 5 of 7, reset 20000");
    /* 2.5 s later z has two back and y none. */
    EXPECT(weir, cost_of("e", "k", 0), NOW + 2500 * MS, "pass a/y 5 of 7, reset 17500");
    weir_close(weir);
}

/* The same rule and limit, whether the numbers are wanted or not; and a refusal has them always. */
static void a_brief_verdict_names_the_same(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "{ name: x, max: 9, per: 9s }, { name: y, max: 2, per: 70s }"));
    struct weir_request request = one("e", "k"), single = one("f", "k");
    struct weir_verdict v;
    request.brief = single.brief = true;
    assert_int_equal(weir_check(weir, &request, NOW, &v), 0);
    assert_true(v.allowed && v.applied);
    assert_string_equal(v.limit, "y");
    assert_int_equal(weir_check(weir, &single, NOW, &v), 0);
    assert_true(v.allowed && !v.applied);
    EXPECT(weir, one("e", "k"), NOW, "pass a/y 0 of 2, reset 70000");
    EXPECT(weir, request, NOW, "refuse 429 a/y 0 of 2, reset 70000, retry 35000");
    weir_close(weir);
    weir = open_rules("rules:\n" RULE("b", "{ algorithm: fixed_window, name: z, max: 1, per: 9s }"));
    assert_int_equal(weir_check(weir, &request, NOW, &v), 0);
    assert_true(v.allowed && v.applied && v.status == 0 && v.max == 1 && v.retry_after_ms == 0);
    assert_string_equal(v.rule, "b");
    assert_string_equal(v.limit, "z");
    EXPECT(weir, request, NOW, "refuse 429 b/z 0 of 1, reset 9000, retry 9000");
    weir_close(weir);
}

static void ties_go_to_file_order(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("b", "{ name: x, max: 3, per: 9s }, { name: a, max: 3, per: 90s }")
                                       RULE("a", "{ name: a, max: 3, per: 900s }"));
    EXPECT(weir, one("e", "k"), NOW, "pass b/x 2 of 3, reset 3000");
    weir_close(weir);
    weir = open_rules("rules:\n" RULE("b", "{ algorithm: fixed_window, name: x, max: 1, per: 9s }, "
                                           "{ algorithm: fixed_window, name: w, max: 1, per: 9s }")
                          RULE("a", "{ algorithm: fixed_window, max: 1, per: 9s }"));
    EXPECT(weir, one("e", "k"), NOW, "pass b/x 0 of 1, reset 9000");
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 b/x 0 of 1, reset 9000, retry 9000");
    weir_close(weir);
}

static void refusal_names_the_longest_wait(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "{ name: x, max: 2, per: 2s }, { name: y, max: 2, per: 60s }")
                                       RULE("b", "{ name: z, max: 2, per: 10s }"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 5), 2);
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/y 0 of 2, reset 60000, retry 30000");
    /* x has room again; it is not among those that refuse. */
    EXPECT(weir, one("e", "k"), NOW + 3 * S, "refuse 429 a/y 0 of 2, reset 57000, retry 27000");
    weir_close(weir);
}

static void never_counts_as_longest(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "\"10 per 3650d\", { name: small, max: 5, per: 1s }")
                                       RULE("b", "{ name: smaller, max: 4, per: 1s }"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 4), 4);
    EXPECT(weir, cost_of("e", "k", 6), NOW, "refuse 429 a/small 1 of 5, reset 800, retry -1");
    EXPECT(weir, cost_of("e", "k", 5), NOW, "refuse 429 b/smaller 0 of 4, reset 1000, retry -1");
    EXPECT(weir, cost_of("e", "k", UINT32_MAX), NOW, "refuse 429 a/token_bucket 6 of 10, reset 126144000000, retry -1");
    weir_close(weir);
}

static void waits_are_rounded_up(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "\"7 per 1s\""));
    /* One token comes back in 142857 1/7 µs. */
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 7);
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 7, reset 1000, retry 143");
    EXPECT(weir, one("e", "k"), NOW + 142857, "refuse 429 a/token_bucket 0 of 7, reset 858, retry 1");
    EXPECT(weir, one("e", "k"), NOW + 142858, "pass a/token_bucket 0 of 7, reset 1000");
    weir_close(weir);
}

/* The wait that a refusal names is enough, and a millisecond less is not. */
static void the_wait_is_exact(void **state)
{
    (void)state;
    static const char *const limits[] = { "\"3 per 7s\"", "{ algorithm: fixed_window, max: 3, per: 7s }",
                                          "{ algorithm: sliding_window, max: 3, per: 7s }", "\"3 per minute\"",
                                          "\"3 per 7s burst 5\"" };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules:\n" RULE("a", "%s"), limits[i]);
        struct weir *weir = open_rules(rules);
        int64_t now = NOW;
        for (int round = 0; round < 20; round++) {
            while (check_at(weir, one("e", "k"), now).allowed)
                now += 123 * MS;
            int64_t wait_ms = check_at(weir, one("e", "k"), now).retry_after_ms;
            assert_true(wait_ms > 0);
            assert_false(check_at(weir, peek_of("e", "k", 1), now + (wait_ms - 1) * MS).allowed);
            now += wait_ms * MS;
            assert_true(check_at(weir, peek_of("e", "k", 1), now).allowed);
        }
        weir_close(weir);
    }
}

static void max_is_the_capacity(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "\"2 per 1s burst 20\""));
    EXPECT(weir, cost_of("e", "k", 19), NOW, "pass a/token_bucket 1 of 20, reset 9500");
    struct weir_verdict v = check_at(weir, one("e", "k"), NOW);
    assert_int_equal(v.max, 20);
    assert_int_equal(v.window_ms, 10000);
    EXPECT(weir, cost_of("e", "k", 3), NOW, "refuse 429 a/token_bucket 0 of 20, reset 10000, retry 1500");
    weir_close(weir);
}

static void reset_of_each_algorithm(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "{ algorithm: fixed_window, max: 9, per: 1m }"));
    EXPECT(weir, one("e", "k"), NOW, "pass a/fixed_window 8 of 9, reset 60000");
    EXPECT(weir, one("e", "k"), NOW + 59999999, "pass a/fixed_window 7 of 9, reset 1");
    EXPECT(weir, one("e", "k"), NOW + 60 * S, "pass a/fixed_window 8 of 9, reset 60000");
    weir_close(weir);
    weir = open_rules("rules:\n" RULE("a", "{ algorithm: sliding_window, max: 9, per: 1m }"));
    EXPECT(weir, one("e", "k"), NOW, "pass a/sliding_window 8 of 9, reset 120000");
    EXPECT(weir, cost_of("e", "k", 0), NOW + 60 * S, "pass a/sliding_window 8 of 9, reset 60000");
    weir_close(weir);
    weir = open_rules("rules:\n" RULE("a", "\"9 per minute\""));
    EXPECT(weir, one("e", "k"), NOW, "pass a/minute 8 of 9, reset 40000");
    weir_close(weir);
}

/* ---- costs and peeks ---- */

static void cost_zero_looks(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "\"2 per 60s\""));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass a/token_bucket 2 of 2, reset 0");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 2);
    for (int i = 0; i < 3; i++)
        EXPECT(weir, cost_of("e", "k", 0), NOW, "pass a/token_bucket 0 of 2, reset 60000");
    set_rules(weir, "rules:\n" RULE("a", "\"1 per 60s\""));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "refuse 429 a/token_bucket 0 of 1, reset 120000, retry 60000");
    EXPECT(weir, cost_of("e", "k", 0), NOW + 60 * S, "pass a/token_bucket 0 of 1, reset 60000");
    set_rules(weir, "rules:\n" RULE("a", "\"0 per 60s\""));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "refuse 429 a/token_bucket 0 of 0, reset -1, retry -1");
    weir_close(weir);
}

static void peek_answers_for_the_cost(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n" RULE("a", "\"5 per 50s\", { name: h, algorithm: fixed_window, max: 4, per: 1h }"));
    EXPECT(weir, peek_of("e", "k", 4), NOW, "pass a/h 4 of 4, reset 0");
    EXPECT(weir, peek_of("e", "k", 5), NOW, "refuse 429 a/h 4 of 4, reset 0, retry -1");
    EXPECT(weir, cost_of("e", "k", 3), NOW, "pass a/h 1 of 4, reset 3600000");
    EXPECT(weir, peek_of("e", "k", 1), NOW, "pass a/h 1 of 4, reset 3600000");
    EXPECT(weir, peek_of("e", "k", 2), NOW, "refuse 429 a/h 1 of 4, reset 3600000, retry 3600000");
    EXPECT(weir, one("e", "k"), NOW, "pass a/h 0 of 4, reset 3600000");
    weir_close(weir);
}

static void max_zero_refuses_all(void **state)
{
    (void)state;
    static const char *const limits[] = { "\"0 per 60s\"", "{ algorithm: fixed_window, max: 0, per: 7s }",
                                          "{ algorithm: sliding_window, max: 0, per: 7s }", "\"0 per day\"",
                                          "\"0 per 60s burst 5\"" };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules:\n" RULE("a", "%s"), limits[i]);
        struct weir *weir = open_rules(rules);
        for (uint32_t cost = 0; cost < 3; cost++) {
            struct weir_verdict v = check_at(weir, cost_of("e", "k", cost), NOW);
            assert_false(v.allowed);
            assert_int_equal(v.retry_after_ms, WEIR_NEVER);
            assert_int_equal(v.max, 0);
            assert_int_equal(v.remaining, 0);
        }
        weir_close(weir);
    }
}

static void the_largest_numbers(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n" RULE("a", "\"4294967295 per 3650d\", { name: f, algorithm: fixed_window, max: "
                                        "4294967295, per: 3650d }, { name: s, algorithm: sliding_window, "
                                        "max: 4294967295, per: 3650d }, \"4294967295 per year\""));
    EXPECT(weir, cost_of("e", "k", UINT32_MAX - 1), NOW, "pass a/token_bucket 1 of 4294967295, reset 315359999927");
    EXPECT(weir, cost_of("e", "k", 2), NOW, "refuse 429 a/s 1 of 4294967295, reset 630720000000, retry 315360000074");
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 0 of 4294967295, reset 315360000000");
    weir_close(weir);
}

static void more_than_32_bits(void **state)
{
    (void)state;
    const uint64_t most = WEIR_AMOUNT_MAX;
    struct weir *weir =
        open_rules("rules:\n" RULE("a", "\"9007199254740991 per 1h\", { name: f, algorithm: fixed_window, max: "
                                        "9007199254740991, per: 2h }, \"9007199254740991 per day\""));
    EXPECT(weir, cost_of("e", "k", most + 1), NOW,
           "refuse 429 a/token_bucket 9007199254740991 of 9007199254740991, reset 0, retry -1");
    EXPECT(weir, cost_of("e", "k", UINT64_MAX), NOW,
           "refuse 429 a/token_bucket 9007199254740991 of 9007199254740991, reset 0, retry -1");
    EXPECT(weir, cost_of("e", "k", most - 1), NOW, "pass a/token_bucket 1 of 9007199254740991, reset 3600000");
    EXPECT(weir, cost_of("e", "k", UINT64_MAX), NOW,
           "refuse 429 a/token_bucket 1 of 9007199254740991, reset 3600000, retry -1");
    EXPECT(weir, cost_of("e", "k", UINT64_MAX - 5), NOW,
           "refuse 429 a/token_bucket 1 of 9007199254740991, reset 3600000, retry -1");
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 0 of 9007199254740991, reset 3600000");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 0);
    /* Lowered to less than was used, below 2^32, and raised again. */
    set_rules(weir, "rules:\n" RULE("a", "{ name: f, algorithm: fixed_window, max: 5, per: 2h }"));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "refuse 429 a/f 0 of 5, reset 7200000, retry 7200000");
    set_rules(weir, "rules:\n" RULE("a", "{ name: f, algorithm: fixed_window, max: 9007199254740990, per: 2h }"));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "refuse 429 a/f 0 of 9007199254740990, reset 7200000, retry 7200000");
    weir_close(weir);
}

/* ---- units ---- */

static struct weir_request in_units(uint64_t requests, const struct weir_cost *costs, size_t count)
{
    struct weir_request request = cost_of("e", "k", requests);
    request.costs = costs;
    request.cost_count = count;
    return request;
}

static void expect_unit(struct weir *weir, struct weir_request request, bool allowed, const char *limit, const char *unit,
                        uint64_t remaining)
{
    struct weir_verdict v;
    assert_int_equal(weir_check(weir, &request, NOW, &v), 0);
    assert_int_equal(v.allowed, allowed);
    assert_string_equal(v.limit, limit);
    assert_string_equal(v.unit, unit);
    assert_int_equal(v.remaining, remaining);
}

static void units_pass_or_fail_together(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n" RULE("a", "{ name: r, max: 100, per: 1h }, { name: t, unit: tokens, algorithm: "
                                        "fixed_window, max: 50, per: 1h }, \"40 bytes per day\""));
    const struct weir_cost tokens[] = { { WEIR_STR("other"), 9 }, { WEIR_STR("tokens"), 30 } },
                           bytes[] = { { WEIR_STR("bytes"), 40 } },
                           both[] = { { WEIR_STR("bytes"), 1 }, { WEIR_STR("tokens"), 15 } };
    expect_unit(weir, in_units(1, tokens, 2), true, "t", "tokens", 20);
    /* Too many tokens: neither of the two others is charged. */
    expect_unit(weir, in_units(1, tokens, 2), false, "t", "tokens", 20);
    expect_unit(weir, in_units(99, NULL, 0), true, "r", "", 0);
    /* What is not named costs 0, and passes while no more than max is used. */
    expect_unit(weir, in_units(0, bytes, 1), true, "r", "", 0);
    expect_unit(weir, in_units(0, both, 2), false, "day", "bytes", 0);
    expect_unit(weir, in_units(0, both + 1, 1), true, "r", "", 0);
    struct weir_request peek = in_units(0, tokens, 2);
    peek.peek = true;
    expect_unit(weir, peek, false, "t", "tokens", 5);
    /* Lowered below what is used, a unit refuses requests that cost it nothing. */
    set_rules(weir,
              "rules:\n" RULE("a", "{ name: r, max: 200, per: 1h }, { name: t, unit: tokens, algorithm: fixed_window, "
                                   "max: 44, per: 1h }"));
    expect_unit(weir, in_units(1, NULL, 0), false, "t", "tokens", 0);
    set_rules(weir,
              "rules:\n" RULE("a", "{ name: r, max: 200, per: 1h }, { name: t, unit: tokens, algorithm: fixed_window, "
                                   "max: 45, per: 1h }"));
    expect_unit(weir, in_units(1, NULL, 0), true, "t", "tokens", 0);
    weir_close(weir);
}

static void a_refund_gives_each_unit_its_own(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules:\n" RULE("a", "{ name: r, algorithm: fixed_window, max: 100, per: 1h }, { name: t, unit: tokens, "
                             "algorithm: fixed_window, max: 50, per: 1h }, { name: b, unit: bytes, max: 9, per: 1h }"));
    const struct weir_cost tokens[] = { { WEIR_STR("tokens"), 30 } };
    struct weir_receipt receipt;
    struct weir_request request = in_units(7, tokens, 1), look = in_units(0, NULL, 0);
    request.receipt = &receipt;
    expect_unit(weir, request, true, "b", "bytes", 9);
    assert_int_equal(receipt.count, 2);
    request.receipt = NULL;
    request.costs = NULL;
    request.cost_count = 0; /* the receipt has them */
    assert_int_equal(weir_refund(weir, &receipt, NOW), 2);
    set_rules(weir, "rules:\n" RULE("a", "{ name: r, algorithm: fixed_window, max: 100, per: 1h }"));
    expect_unit(weir, look, true, "r", "", 100);
    set_rules(weir, "rules:\n" RULE("a", "{ name: t, unit: tokens, algorithm: fixed_window, max: 50, per: 1h }"));
    expect_unit(weir, look, true, "t", "tokens", 50);
    weir_close(weir);
}

/* ---- several limits ---- */

static void a_refusal_charges_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules:\n" RULE("a", "{ name: x, max: 10, per: 1h }, { name: y, algorithm: fixed_window, max: 10, per: 1h }")
            RULE("b", "{ name: z, algorithm: sliding_window, max: 10, per: 1h }, { name: w, calendar: day, max: "
                      "3 }") "  - { id: x, match: { event: x }, limits: [\"1 per 1s\"] }\n");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 100), 3);
    set_rules(weir, "rules:\n" RULE("a", "{ name: x, max: 10, per: 1h }"));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass a/x 7 of 10, reset 1080000");
    set_rules(weir, "rules:\n" RULE("a", "{ name: y, algorithm: fixed_window, max: 10, per: 1h }"));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass a/y 7 of 10, reset 3600000");
    set_rules(weir, "rules:\n" RULE("b", "{ name: z, algorithm: sliding_window, max: 10, per: 1h }"));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass b/z 7 of 10, reset 7200000");
    set_rules(weir, "rules:\n" RULE("b", "{ name: w, calendar: day, max: 3 }"));
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass b/w 0 of 3, reset 6400000");
    weir_close(weir);
}

static void subjects_do_not_meet(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [event, key], limits: [1 per 1h] }, { id: b, limits: [9 per 1h] }]");
    /* Values that would run together without their lengths. */
    EXPECT(weir, one("ab", "c"), NOW, "pass a/token_bucket 0 of 1, reset 3600000");
    EXPECT(weir, one("a", "bc"), NOW, "pass a/token_bucket 0 of 1, reset 3600000");
    EXPECT(weir, one("ab", "c"), NOW, "refuse 429 a/token_bucket 0 of 1, reset 3600000, retry 3600000");
    /* Without a key rule a does not apply; b counts for everybody together. */
    EXPECT(weir, one("ab", ""), NOW, "pass b/token_bucket 6 of 9, reset 1200000");
    weir_close(weir);
}

/* ---- no rule, modes, expiry ---- */

static void no_rule_applies(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "1 per 1s"));
    struct weir_verdict v = check_at(weir, one("other", "k"), NOW);
    char json[200];
    expect_verdict(&v, "pass no rule", __FILE__, __LINE__);
    assert_false(v.applied);
    assert_int_equal(v.retry_after_ms, 0);
    weir_verdict_json(&(struct weir_request){ 0 }, &v, json, sizeof json);
    assert_string_equal(
        json, "{\"allowed\":true,\"status\":200,\"rule\":null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":"
              "null,\"retry_after_ms\":0}");
    weir_close(weir);
}

static void rules_that_are_off_or_expired_are_not_there(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - { id: a, by: [key], limits: [1 per 1h], mode: off }\n"
                                   "  - { id: b, by: [key], limits: [1 per 1h], expires: 1700000001 }\n");
    EXPECT(weir, one("e", "k"), NOW, "pass b/token_bucket 0 of 1, reset 3600000");
    EXPECT(weir, one("e", "k"), NOW + S - 1, "refuse 429 b/token_bucket 0 of 1, reset 3599001, retry 3599001");
    EXPECT(weir, one("e", "k"), NOW + S, "pass no rule");
    weir_close(weir);
}

static void a_clock_out_of_bounds_is_refused(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "9 per 1s"));
    static const int64_t wrong[] = { -1, INT64_MIN, INT64_MAX, INT64_C(1) << 52 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct weir_request request = one("e", "k");
        struct weir_verdict v = { .allowed = true };
        assert_int_equal(weir_check(weir, &request, wrong[i], &v), WEIR_E_INVALID);
        expect_verdict(&v, "refuse 503 no rule, retry 0", __FILE__, __LINE__);
        v.allowed = true;
        assert_int_equal(weir_check_batch(weir, &request, 1, wrong[i], &v), WEIR_E_INVALID);
        assert_false(v.allowed);
    }
    EXPECT(weir, one("e", "k"), 0, "pass a/token_bucket 8 of 9, reset 112");
    EXPECT(weir, one("e", "k2"), (INT64_C(1) << 52) - 1, "pass a/token_bucket 8 of 9, reset 112");
    weir_close(weir);
}

/* ---- JSON ---- */

static void json_text(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - { id: 'a\"b\\ü', by: [key], limits: [{ name: 'x y', max: 1, per: 1h }] }\n"
                                   "  - { id: s1, by: [key], mode: shadow, limits: [1 per 1h] }\n"
                                   "  - { id: s2, by: [key], mode: shadow, limits: [1 per 1h] }\n");
    char json[500], shorter[40];
    struct weir_request request = { .shadows = &last_shadows };
    struct weir_verdict v = check_at(weir, one("e", "k"), NOW);
    size_t len = weir_verdict_json(&request, &v, json, sizeof json);
    assert_string_equal(
        json,
        "{\"allowed\":true,\"status\":200,\"rule\":\"a\\\"b\\\\ü\",\"limit\":\"x y\",\"max\":1,\"remaining\":0,\"reset_"
        "ms\":3600000,\"retry_after_ms\":0,\"shadow\":[]}");
    assert_int_equal(len, strlen(json));
    v = check_at(weir, one("e", "k"), NOW + 1);
    len = weir_verdict_json(&request, &v, json, sizeof json);
    assert_string_equal(
        json, "{\"allowed\":false,\"status\":429,\"rule\":\"a\\\"b\\\\ü\",\"limit\":\"x y\",\"max\":1,\"remaining\":0,"
              "\"reset_ms\":3600000,\"retry_after_ms\":3600000,\"shadow\":[\"s1\",\"s2\"]}");
    assert_int_equal(weir_verdict_json(&request, &v, shorter, sizeof shorter), len);
    assert_int_equal(strlen(shorter), sizeof shorter - 1);
    assert_memory_equal(json, shorter, sizeof shorter - 1);
    assert_int_equal(weir_verdict_json(&request, &v, NULL, 0), len);
    weir_close(weir);
}

/* ---- a calendar from end to end ---- */

static void calendar_in_shanghai(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - id: ocr\n"
                                   "    match: { event: ocr }\n"
                                   "    by: [key]\n"
                                   "    limits:\n"
                                   "      - { name: day, calendar: day, max: 5, tz: Asia/Shanghai }\n"
                                   "      - { name: hour, calendar: hour, max: 3, tz: Asia/Shanghai }\n");
    /* 06:13:20 on the 15th in Shanghai: 17:46:40 until midnight, 46:40 until seven. */
    EXPECT(weir, one("ocr", "u"), NOW, "pass ocr/hour 2 of 3, reset 2800000");
    assert_int_equal(passes(weir, one("ocr", "u"), NOW, 9), 2);
    EXPECT(weir, one("ocr", "u"), NOW, "refuse 429 ocr/hour 0 of 3, reset 2800000, retry 2800000");
    EXPECT(weir, one("ocr", "u"), NOW + 2800 * S, "pass ocr/day 1 of 5, reset 61200000");
    assert_int_equal(check_at(weir, one("ocr", "u"), NOW + 2800 * S).window_ms, 86400000);
    EXPECT(weir, one("ocr", "u"), NOW + 2801 * S, "refuse 429 ocr/day 0 of 5, reset 61199000, retry 61199000");
    EXPECT(weir, one("ocr", "u"), NOW + 64000 * S - 1, "refuse 429 ocr/day 0 of 5, reset 1, retry 1");
    EXPECT(weir, one("ocr", "u"), NOW + 64000 * S, "pass ocr/hour 2 of 3, reset 3600000");
    /* The kept window goes back with the clock. */
    EXPECT(weir, one("ocr", "v"), NOW, "pass ocr/hour 2 of 3, reset 2800000");
    weir_close(weir);
}

/* ---- the short way ---- */

/* The texts that a request gets besides its verdict. */
struct told {
    struct weir_shadows shadows;
    struct weir_usage usage;
    struct weir_receipt receipt;
    char rules[500];
};

static void note_rule(const struct weir_rule_said *said, void *context)
{
    struct told *told = context;
    size_t len = strlen(told->rules);
    snprintf(told->rules + len, sizeof told->rules - len, "%.*s %.*s %d %llu; ", (int)said->rule.len, said->rule.ptr,
             (int)said->limit.len, said->limit.ptr, said->said, (unsigned long long)said->overdrawn);
}

static struct weir_verdict ask(struct weir *weir, struct weir_request request, int64_t now_us, struct told *told)
{
    struct weir_verdict verdict;
    memset(told, 0xa5, sizeof *told);
    told->rules[0] = '\0';
    request.shadows = &told->shadows;
    request.usage = &told->usage;
    request.receipt = &told->receipt;
    request.if_held = true;
    request.each_rule = note_rule;
    request.context = told;
    assert_int_equal(weir_check(weir, &request, now_us, &verdict), 0);
    return verdict;
}

/* A request that asks for `own`, too, does not take it. */
static void the_short_way_tells_the_same(void **state)
{
    (void)state;
    static const char *const limits[] = { "{ max: 5, per: 10s }",
                                          "{ max: 5, per: 10s, overdraft: true }",
                                          "{ algorithm: fixed_window, max: 5, per: 10s }",
                                          "{ calendar: minute, max: 5 }",
                                          "{ concurrent: 3, ttl: 5s }",
                                          "{ max: 0, per: 1s }" };
    struct random r = { random_seed() };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char rules[300];
        snprintf(rules, sizeof rules, "rules: [ { id: a, match: { event: e }, by: [key], limits: [ %s ] } ]", limits[i]);
        struct weir *short_way = open_rules(rules), *long_way = open_rules(rules);
        for (int n = 0; n < 300; n++) {
            struct told got, want;
            struct weir_verdict own, a, b;
            char got_line[LINE_MAX_BYTES], want_line[LINE_MAX_BYTES];
            struct weir_request request = cost_of("e", n % 3 ? "k" : "other", (uint64_t)random_in(&r, 0, 4));
            request.brief = random_one_in(&r, 2);
            a = ask(short_way, request, NOW + n * S / 2, &got);
            request.own = &own;
            b = ask(long_way, request, NOW + n * S / 2, &want);
            verdict_line(&a, &got.shadows, got_line);
            verdict_line(&b, &want.shadows, want_line);
            assert_string_equal(got_line, want_line);
            assert_string_equal(got.rules, want.rules);
            assert_int_equal(got.shadows.count, want.shadows.count);
            assert_int_equal(got.receipt.count, want.receipt.count);
            assert_int_equal(got.usage.count, want.usage.count);
            for (uint32_t k = 0; k < want.usage.count; k++) {
                assert_int_equal(got.usage.left[k].remaining, want.usage.left[k].remaining);
                assert_int_equal(got.usage.left[k].refuses, want.usage.left[k].refuses);
                assert_int_equal(got.usage.left[k].more_ms, want.usage.left[k].more_ms);
                assert_int_equal(got.usage.left[k].reset_ms, want.usage.left[k].reset_ms);
            }
        }
        weir_close(short_way);
        weir_close(long_way);
    }
}

/* Names are copied in pieces; a short id is in the bound rule itself. */
static void names_of_any_length(void **state)
{
    (void)state;
    char id[WEIR_ID_MAX + 1], name[WEIR_NAME_MAX + 1];
    for (int len = 1; len <= WEIR_ID_MAX; len++) {
        char rules[400];
        snprintf(id, sizeof id, "%0*d", len, 0);
        snprintf(name, sizeof name, "n%0*d", len % (WEIR_NAME_MAX - 1) + 1, 0);
        snprintf(rules, sizeof rules, "rules: [{ id: 'r%s', by: [key], limits: [{ name: %s, max: 2, per: 1h }] }]", id + 1,
                 name);
        id[0] = 'r';
        struct weir *weir = open_rules(rules);
        for (int i = 0; i < 3; i++) {
            struct weir_verdict verdict = check_at(weir, one("e", "k"), NOW);
            assert_int_equal(verdict.allowed, i < 2);
            assert_string_equal(verdict.rule, id);
            assert_string_equal(verdict.limit, name);
        }
        weir_close(weir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_short_way_tells_the_same),
        cmocka_unit_test(names_the_limit_with_the_least_left),
        cmocka_unit_test(ties_go_to_file_order),
        cmocka_unit_test(refusal_names_the_longest_wait),
        cmocka_unit_test(never_counts_as_longest),
        cmocka_unit_test(waits_are_rounded_up),
        cmocka_unit_test(the_wait_is_exact),
        cmocka_unit_test(max_is_the_capacity),
        cmocka_unit_test(reset_of_each_algorithm),
        cmocka_unit_test(cost_zero_looks),
        cmocka_unit_test(peek_answers_for_the_cost),
        cmocka_unit_test(max_zero_refuses_all),
        cmocka_unit_test(the_largest_numbers),
        cmocka_unit_test(more_than_32_bits),
        cmocka_unit_test(units_pass_or_fail_together),
        cmocka_unit_test(a_refund_gives_each_unit_its_own),
        cmocka_unit_test(a_refusal_charges_nothing),
        cmocka_unit_test(subjects_do_not_meet),
        cmocka_unit_test(no_rule_applies),
        cmocka_unit_test(rules_that_are_off_or_expired_are_not_there),
        cmocka_unit_test(a_clock_out_of_bounds_is_refused),
        cmocka_unit_test(a_brief_verdict_names_the_same),
        cmocka_unit_test(json_text),
        cmocka_unit_test(calendar_in_shanghai),
        cmocka_unit_test(names_of_any_length),
    };
    return cmocka_run_group_tests_name("engine/verdict", tests, NULL, NULL);
}
