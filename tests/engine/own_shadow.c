/* What the shadow rules of a request say (own_shadow), whether any rule applies, and what else a verdict says about its
 * limit. */
#include "together.h"

#define DAY_US (24 * INT64_C(3600) * S)

#define SHADOWS                                                                                                       \
    "rules:\n"                                                                                                        \
    "  - {id: a, match: {event: a}, by: key, limits: [{algorithm: fixed_window, max: 3, per: 60s}], mode: shadow}\n"  \
    "  - {id: b, match: {event: b}, by: key, limits: [{algorithm: fixed_window, max: 5, per: 90s}]}\n"                \
    "  - {id: c, match: {event: b}, by: key, limits: [{name: big, max: 9, calendar: 1d}, {max: 4, calendar: day}],\n" \
    "     mode: shadow}\n"                                                                                            \
    "  - {id: none, match: {event: none}, limits: none}\n"                                                            \
    "  - {id: quiet, match: {event: quiet}, limits: none, mode: shadow}\n"

/* Lines of the shadow rules of each request. */
static void expect_shadows(struct weir *weir, struct call *c, int64_t now_us, const char *expected, const char *file,
                           int line)
{
    static struct weir_verdict shadow[PARTS];
    char text[3 * LINE_MAX_BYTES] = "", one_line[LINE_MAX_BYTES];
    struct weir_shadows none = { 0 };
    memset(shadow, 0xa5, sizeof shadow);
    for (size_t i = 0; i < c->count; i++)
        c->requests[i].own_shadow = &shadow[i];
    assert_int_equal(weir_check(weir, c->requests, now_us, &c->verdict), 0);
    for (size_t i = 0; i < c->count; i++) {
        verdict_line(&shadow[i], &none, one_line);
        strcat(strcat(text, i > 0 ? "\n" : ""), one_line);
        assert_true(shadow[i].matched == shadow[i].applied && shadow[i].shadow_count == 0);
    }
    expect_verdicts(text, expected, file, line);
}

#define SHADOW_CALL(weir, now_us, expected, ...) CALL_AND(expect_shadows, weir, now_us, expected, __VA_ARGS__)

static void one_request(void **state)
{
    (void)state;
    struct weir *weir = open_rules(SHADOWS);
    SHADOW_CALL(weir, NOW, "pass a/fixed_window 1 of 3, reset 60000", cost_of("a", "x", 2));
    SHADOW_CALL(weir, NOW, "refuse 429 a/fixed_window 1 of 3, reset 60000, retry 60000", cost_of("a", "x", 2));
    SHADOW_CALL(weir, NOW, "pass a/fixed_window 1 of 3, reset 60000", cost_of("a", "x", 0));
    SHADOW_CALL(weir, NOW, "pass a/fixed_window 0 of 3, reset 60000", one("a", "x"));
    SHADOW_CALL(weir, NOW, "pass no rule", one("unknown", "x"));
    SHADOW_CALL(weir, NOW, "pass no rule", one("none", "x"));
    SHADOW_CALL(weir, NOW, "pass no rule", one("quiet", "x"));
    weir_close(weir);
}

/* The verdict is of enforced rules all the same. */
static void beside_enforced_rules(void **state)
{
    (void)state;
    struct weir *weir = open_rules(SHADOWS);
    const int64_t now_us = 100 * DAY_US;
    static struct call call;
    SHADOW_CALL(weir, now_us, "pass c/day 1 of 4, reset 86400000", cost_of("b", "x", 3));
    SHADOW_CALL(weir, now_us, "refuse 429 c/day 1 of 4, reset 86400000, retry 86400000", cost_of("b", "x", 2));
    /* Refused, so nothing is charged. */
    SHADOW_CALL(weir, now_us, "pass c/day 1 of 4, reset 86400000", one("b", "x"));
    call_of(&call, 1, (struct weir_request[]){ one("b", "x") });
    expect_call(weir, &call, now_us,
                "refuse 429 b/fixed_window 0 of 5, reset 90000, retry 90000\n"
                "refuse 429 b/fixed_window 0 of 5, reset 90000, retry 90000",
                __FILE__, __LINE__);
    weir_close(weir);
}

static void each_of_several_requests(void **state)
{
    (void)state;
    struct weir *weir = open_rules(SHADOWS);
    SHADOW_CALL(weir, NOW,
                "pass a/fixed_window 2 of 3, reset 60000\n"
                "pass no rule\n"
                "pass a/fixed_window 0 of 3, reset 60000",
                one("a", "x"), one("none", "x"), cost_of("a", "x", 2));
    /* There is room for the first: as nothing is charged, all of it is left. */
    SHADOW_CALL(weir, NOW,
                "pass a/fixed_window 3 of 3, reset 0\n"
                "refuse 429 a/fixed_window 3 of 3, reset 0, retry -1",
                cost_of("a", "y", 2), cost_of("a", "y", 2));
    SHADOW_CALL(weir, NOW, "pass a/fixed_window 2 of 3, reset 60000", one("a", "y"));
    weir_close(weir);
}

static void charged_whether_or_not_there_is_room(void **state)
{
    (void)state;
    struct weir *weir = open_rules(SHADOWS);
    SHADOW_CALL(weir, NOW,
                "pass a/fixed_window 1 of 3, reset 60000\n"
                "refuse 429 a/fixed_window 0 of 3, reset 60000, retry -1",
                always(cost_of("a", "x", 2)), always(cost_of("a", "x", 2)));
    SHADOW_CALL(weir, NOW, "refuse 429 a/fixed_window 0 of 3, reset 60000, retry 60000", always(one("a", "x")));
    SHADOW_CALL(weir, NOW, "pass a/fixed_window 1 of 3, reset 60000", back(cost_of("a", "x", 3)));
    weir_close(weir);
}

/* A look sees what the requests before it have charged, and not what those after it charge. */
static void a_look_between_charges(void **state)
{
    (void)state;
    struct weir *weir = open_rules(SHADOWS);
    CALL(weir, NOW,
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1\n"
         "pass b/fixed_window 5 of 5, reset 0\n"
         "pass b/fixed_window 1 of 5, reset 90000\n"
         "pass b/fixed_window 1 of 5, reset 90000\n"
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1, shadow c",
         always(cost_of("b", "x", 0)), always(cost_of("b", "x", 4)), always(cost_of("b", "x", 0)),
         always(cost_of("b", "x", 2)));
    CALL(weir, NOW,
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry 90000\n"
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry 90000, shadow c\n"
         "pass b/fixed_window 5 of 5, reset 0",
         always(cost_of("b", "x", 0)), always(cost_of("b", "y", 0)));
    weir_close(weir);
}

/* ---- verdicts ---- */

static struct weir_verdict decide(struct weir *weir, struct weir_request request, int64_t now_us)
{
    struct weir_verdict verdict;
    memset(&verdict, 0xa5, sizeof verdict);
    assert_int_equal(weir_check(weir, &request, now_us, &verdict), 0);
    return verdict;
}

static void a_rule_that_limits_nothing_applies(void **state)
{
    (void)state;
    struct weir *weir = open_rules(SHADOWS);
    static struct call call;
    const char *const events[] = { "a", "b", "none", "quiet", "unknown" };
    for (size_t i = 0; i < 5; i++) {
        struct weir_verdict v = decide(weir, one(events[i], "x"), NOW);
        assert_true(v.allowed && v.matched == (i < 4) && v.applied == (i == 1));
    }
    call_of(&call, 3, (struct weir_request[]){ one("unknown", "x"), one("none", "x"), one("a", "x") });
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_true(call.verdict.matched && !call.own[0].matched && call.own[1].matched && call.own[2].matched);
    weir_close(weir);
}

static void names_and_windows(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - {id: named, match: {event: a}, limits: [{name: n, max: 2, calendar: 1h}]}\n"
                                   "  - {id: made, match: {event: b}, limits: [{max: 2, calendar: day}]}\n"
                                   "  - {id: bucket, match: {event: c}, limits: [\"5 per 60s\"]}\n"
                                   "  - {id: given, match: {event: d}, limits: given}\n");
    const int64_t now_us = 100 * DAY_US + 60 * S;
    struct weir_verdict v = decide(weir, cost_of("a", "x", 0), now_us);
    assert_true(!v.unnamed && v.reset_ms == 0 && v.window_end_ms == 59 * 60 * 1000);
    v = decide(weir, one("a", "x"), now_us);
    assert_true(!v.unnamed && v.reset_ms == 59 * 60 * 1000 && v.window_end_ms == v.reset_ms);
    v = decide(weir, cost_of("b", "x", 3), now_us);
    assert_true(!v.allowed && v.unnamed && v.window_end_ms == (24 * 60 - 1) * 60 * 1000);
    v = decide(weir, one("c", "x"), now_us);
    assert_true(v.unnamed && v.window_end_ms == 0);
    v = decide(weir, given(one("d", "x"), 7, 90000), now_us);
    assert_true(v.unnamed && v.window_end_ms == 30000);
    v = decide(weir, one("unknown", "x"), now_us);
    assert_true(!v.unnamed && v.window_end_ms == 0);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request),
        cmocka_unit_test(beside_enforced_rules),
        cmocka_unit_test(each_of_several_requests),
        cmocka_unit_test(charged_whether_or_not_there_is_room),
        cmocka_unit_test(a_look_between_charges),
        cmocka_unit_test(a_rule_that_limits_nothing_applies),
        cmocka_unit_test(names_and_windows),
    };
    return cmocka_run_group_tests_name("engine/own_shadow", tests, NULL, NULL);
}
