/* Shadow rules: each a group of its own, charged only if the request passed and all of its limits have room, reported when
 * it would have refused, never the verdict's rule. */
#include "helpers.h"

#define ENFORCE(id, limits) "  - { id: " id ", match: { event: e }, by: [key], limits: [" limits "] }\n"
#define SHADOW(id, limits) "  - { id: " id ", match: { event: e }, by: [key], mode: shadow, limits: [" limits "] }\n"

static void a_shadow_alone_lets_all_pass(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" SHADOW("s", "2 per 1h"));
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    EXPECT(weir, one("e", "k"), NOW, "pass no rule, shadow s");
    struct weir_request request = { .shadows = &last_shadows };
    struct weir_verdict v = check_at(weir, one("e", "k"), NOW);
    char json[300];
    weir_verdict_json(&request, &v, json, sizeof json);
    assert_string_equal(
        json, "{\"allowed\":true,\"status\":200,\"rule\":null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":"
              "null,\"retry_after_ms\":0,\"shadow\":[\"s\"]}");
    weir_close(weir);
}

static void a_shadow_is_never_the_rule_that_is_named(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" SHADOW("s", "3 per 3650d") ENFORCE("a", "5 per 5s"));
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 4 of 5, reset 1000");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 4), 4);
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 5, reset 5000, retry 1000, shadow s");
    weir_close(weir);
}

/* Uses up `max` of rule `id` while it is enforced, and then shows what is left of it in a state of the table. */
static uint32_t left_of(struct weir *weir, const char *rules)
{
    set_rules(weir, rules);
    return check_at(weir, cost_of("e", "k", 0), NOW).remaining;
}

static void charged_only_if_the_request_passed(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" ENFORCE("a", "2 per 1h") SHADOW("s", "10 per 1h"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 50), 2);
    assert_int_equal(left_of(weir, "rules:\n" ENFORCE("s", "10 per 1h")), 8);
    weir_close(weir);
}

static void charged_only_if_all_of_its_limits_have_room(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" SHADOW("s", "{ name: x, max: 10, per: 1h }, { name: y, max: 2, per: 1h }"));
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    for (int i = 0; i < 5; i++)
        EXPECT(weir, one("e", "k"), NOW, "pass no rule, shadow s");
    assert_int_equal(left_of(weir, "rules:\n" ENFORCE("s", "{ name: x, max: 10, per: 1h }")), 8);
    weir_close(weir);
}

static void each_shadow_is_a_group_of_its_own(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" SHADOW("s", "1 per 1h") ENFORCE("a", "9 per 1h") SHADOW("t", "3 per 1h")
                                       SHADOW("u", "2 per 1h, 0 per day"));
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 8 of 9, reset 400000, shadow u");
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 7 of 9, reset 800000, shadow s u");
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 6 of 9, reset 1200000, shadow s u");
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 5 of 9, reset 1600000, shadow s t u");
    /* u never had room for both: its first limit is as new. */
    assert_int_equal(left_of(weir, "rules:\n" ENFORCE("u", "2 per 1h")), 2);
    weir_close(weir);
}

static void reported_also_for_refusals_and_peeks(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" ENFORCE("a", "1 per 1h") SHADOW("s", "1 per 1h") SHADOW("t", "2 per 1h"));
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 0 of 1, reset 3600000");
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 1, reset 3600000, retry 3600000, shadow s");
    EXPECT(weir, peek_of("e", "k", 2), NOW, "refuse 429 a/token_bucket 0 of 1, reset 3600000, retry -1, shadow s t");
    EXPECT(weir, cost_of("e", "k", 0), NOW, "pass a/token_bucket 0 of 1, reset 3600000");
    EXPECT(weir, peek_of("e", "new", 2), NOW, "refuse 429 a/token_bucket 1 of 1, reset 0, retry -1, shadow s");
    weir_close(weir);
}

static void more_than_can_be_listed_are_counted(void **state)
{
    (void)state;
    char rules[4000] = "rules:\n";
    for (int i = 0; i < 20; i++)
        snprintf(rules + strlen(rules), sizeof rules - strlen(rules), SHADOW("s%d", "0 per 1h"), i);
    struct weir *weir = open_rules(rules);
    struct weir_verdict v = check_at(weir, one("e", "k"), NOW);
    assert_true(v.allowed);
    assert_int_equal(v.shadow_count, 20);
    assert_int_equal(last_shadows.count, WEIR_SHADOW_MAX);
    assert_string_equal(last_shadows.names[WEIR_SHADOW_MAX - 1], "s15");
    struct weir_request request = { .shadows = &last_shadows };
    char json[500];
    weir_verdict_json(&request, &v, json, sizeof json);
    assert_non_null(strstr(json, "\"s14\",\"s15\"]}"));
    weir_close(weir);
}

static void from_shadow_to_enforce_counts_stay(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" SHADOW("s", "3 per 1h"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 2), 2);
    set_rules(weir, "rules:\n" ENFORCE("s", "3 per 1h"));
    EXPECT(weir, one("e", "k"), NOW, "pass s/token_bucket 0 of 3, reset 3600000");
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 s/token_bucket 0 of 3, reset 3600000, retry 1200000");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shadow_alone_lets_all_pass),
        cmocka_unit_test(a_shadow_is_never_the_rule_that_is_named),
        cmocka_unit_test(charged_only_if_the_request_passed),
        cmocka_unit_test(charged_only_if_all_of_its_limits_have_room),
        cmocka_unit_test(each_shadow_is_a_group_of_its_own),
        cmocka_unit_test(reported_also_for_refusals_and_peeks),
        cmocka_unit_test(more_than_can_be_listed_are_counted),
        cmocka_unit_test(from_shadow_to_enforce_counts_stay),
    };
    return cmocka_run_group_tests_name("engine/shadow", tests, NULL, NULL);
}
