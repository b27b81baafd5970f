/* Rules that are replaced while they are in use: what was used stays used. */
#include "helpers.h"

#define RULE(limits) "rules: [{ id: a, by: [key], limits: [" limits "] }]"

static void raising_never_refuses(void **state)
{
    (void)state;
    static const char *const before[] = { RULE("4 per 1h"), RULE("{ algorithm: fixed_window, max: 4, per: 1h }"),
                                          RULE("{ algorithm: sliding_window, max: 4, per: 1h }"), RULE("4 per year") };
    static const char *const after[] = { RULE("6 per 1h"), RULE("{ algorithm: fixed_window, max: 6, per: 1h }"),
                                         RULE("{ algorithm: sliding_window, max: 6, per: 1h }"), RULE("6 per year") };
    for (size_t i = 0; i < 4; i++) {
        struct weir *weir = open_rules(before[i]);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 4);
        set_rules(weir, after[i]);
        assert_int_equal(check_at(weir, cost_of("e", "k", 0), NOW).remaining, 2);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 2);
        weir_close(weir);
    }
}

static void lowering_never_forgives(void **state)
{
    (void)state;
    static const char *const before[] = { RULE("6 per 1h"), RULE("{ algorithm: fixed_window, max: 6, per: 1h }"),
                                          RULE("{ algorithm: sliding_window, max: 6, per: 1h }"), RULE("6 per year") };
    static const char *const after[] = { RULE("2 per 1h"), RULE("{ algorithm: fixed_window, max: 2, per: 1h }"),
                                         RULE("{ algorithm: sliding_window, max: 2, per: 1h }"), RULE("2 per year") };
    for (size_t i = 0; i < 4; i++) {
        struct weir *weir = open_rules(before[i]);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 5), 5);
        set_rules(weir, after[i]);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 0);
        /* And back: the five are still there. */
        set_rules(weir, before[i]);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 1);
        weir_close(weir);
    }
}

static void a_bucket_keeps_its_tokens_used(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("10 per 10s"));
    EXPECT(weir, cost_of("e", "k", 8), NOW, "pass a/token_bucket 2 of 10, reset 8000");
    set_rules(weir, RULE("4 per 4s"));
    /* Eight used of four: four have to come back before there is room, at one in a second. */
    EXPECT(weir, one("e", "k"), NOW, "refuse 429 a/token_bucket 0 of 4, reset 8000, retry 5000");
    EXPECT(weir, one("e", "k"), NOW + 5 * S, "pass a/token_bucket 0 of 4, reset 4000");
    set_rules(weir, RULE("4 per 4s burst 40"));
    EXPECT(weir, one("e", "k"), NOW + 5 * S, "pass a/token_bucket 35 of 40, reset 5000");
    /* A faster rate counts from now on. */
    set_rules(weir, RULE("4 per 1s burst 40"));
    EXPECT(weir, cost_of("e", "k", 0), NOW + 6 * S, "pass a/token_bucket 39 of 40, reset 250");
    weir_close(weir);
}

/* After the old rate's time its place in the table looks free to newcomers; whoever is refused keeps it all the same. */
static void lowering_does_not_give_a_place_away(void **state)
{
    (void)state;
    static const char *const before[] = { RULE("10 per 1s"), RULE("10 per 1s, { name: z, max: 100, per: 1s }") };
    static const char *const after[] = { RULE("10 per 1h"), RULE("10 per 1h, { name: z, max: 100, per: 1s }") };
    for (int i = 0; i < 2; i++) {
        struct weir *weir = open_with((struct weir_options){ .rules_text = before[i], .cells_bytes = 2048 });
        assert_true(check_at(weir, cost_of("e", "k", 10), NOW).allowed);
        set_rules(weir, after[i]);
        assert_false(check_at(weir, one("e", "k"), NOW + 5 * S).allowed);
        for (int newcomer = 0; newcomer < 1000; newcomer++) {
            char key[20];
            snprintf(key, sizeof key, "new-%d", newcomer);
            assert_true(check_at(weir, one("e", key), NOW + 5 * S).allowed);
            assert_false(check_at(weir, peek_of("e", "k", 1), NOW + 5 * S).allowed);
        }
        weir_close(weir);
    }
}

static void a_new_period_counts_from_the_next_window(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("{ algorithm: fixed_window, max: 2, per: 10s }"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 2);
    set_rules(weir, RULE("{ algorithm: fixed_window, max: 2, per: 1h }"));
    EXPECT(weir, one("e", "k"), NOW + 4 * S, "refuse 429 a/fixed_window 0 of 2, reset 6000, retry 6000");
    EXPECT(weir, one("e", "k"), NOW + 10 * S, "pass a/fixed_window 1 of 2, reset 3600000");
    set_rules(weir, RULE("{ algorithm: fixed_window, max: 2, per: 10s }"));
    EXPECT(weir, one("e", "k"), NOW + 60 * S, "pass a/fixed_window 0 of 2, reset 3550000");
    EXPECT(weir, one("e", "k"), NOW + 3610 * S, "pass a/fixed_window 1 of 2, reset 10000");
    weir_close(weir);
}

static void another_algorithm_or_by_starts_afresh(void **state)
{
    (void)state;
    static const char *const others[] = {
        RULE("{ name: x, algorithm: sliding_window, max: 3, per: 1h }"),
        RULE("{ name: x, algorithm: token_bucket, max: 3, per: 1h }"),
        RULE("{ name: x, calendar: year, max: 3 }"),
        RULE("{ name: y, algorithm: fixed_window, max: 3, per: 1h }"),
        "rules: [{ id: b, by: [key], limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }] }]",
        "rules: [{ id: a, by: [event], limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }] }]",
        "rules: [{ id: a, by: [event, key], limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }] }]",
        "rules: [{ id: a, limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }] }]",
        "rules: [{ id: a, by: ['header:Key'], limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }] }]",
        "rules: [{ id: a, by: ['header:Other'], limits: [{ name: x, algorithm: fixed_window, max: 3, per: 1h }] }]",
    };
    const char *first = RULE("{ name: x, algorithm: fixed_window, max: 3, per: 1h }");
    struct weir *weir = open_rules(first);
    struct weir_header headers[] = { { WEIR_STR("Key"), WEIR_STR("k") }, { WEIR_STR("other"), WEIR_STR("k") } };
    struct weir_request request = one("k", "k");
    request.headers = headers;
    request.header_count = 2;
    assert_int_equal(passes(weir, request, NOW, 9), 3);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        set_rules(weir, others[i]);
        if (check_at(weir, peek_of("k", "k", 0), NOW).applied)
            assert_int_equal(check_at(weir, peek_of("k", "k", 0), NOW).remaining, 3);
        assert_int_equal(passes(weir, request, NOW, 9), 3);
        set_rules(weir, first);
        assert_int_equal(passes(weir, request, NOW, 9), 0);
    }
    weir_close(weir);
}

static void all_else_may_change_and_counts_stay(void **state)
{
    (void)state;
    static const char *const others[] = {
        "rules: [{ id: b, limits: [9 per 1s] }, { id: a, by: [key], limits: [9 per 1s, { name: x, max: 3, per: 1h }] }]",
        "rules: [{ id: a, by: [key], match: { event: e }, limits: [{ name: x, max: 3, per: 1h }] }]",
        "rules: [{ id: a, by: [key], limits: [{ name: x, max: 3, per: 1h }], reject: { status: 503 } }]",
        "rules: [{ id: a, by: [key], limits: [{ name: x, max: 3, per: 1h }], expires: 2100-01-01T00:00:00Z }]",
        "{ settings: { ignore_case: true }, rules: [{ id: a, by: [key], limits: [{ name: x, max: 3, per: 1h }] }] }",
    };
    struct weir *weir = open_rules(RULE("{ name: x, max: 3, per: 1h }"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 3);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        set_rules(weir, others[i]);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 0);
    }
    set_rules(weir, "rules: []");
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    set_rules(weir, RULE("{ name: x, max: 4, per: 1h }"));
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 1);
    weir_close(weir);
}

static void a_bare_list_keeps_the_settings(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "--- # of today\n- { id: a, match: { path: /x }, by: [key], limits: [0 per 1s] }\n",
        "[{\"id\": \"a\", \"match\": {\"path\": \"/x\"}, \"by\": [\"key\"], \"limits\": [\"0 per 1s\"]}]",
        "- { id: a, match: { path: /x }, by: [key], limits: [0 per 1s] }\n",
        "# new ones\n---\n\n-\n  id: a\n  match: { path: /x }\n  by: [key]\n  limits: [0 per 1s]\n",
    };
    struct weir *weir = open_rules("settings: { strip_prefixes: [/api], reject: { status: 418 } }\nrules: []");
    struct weir_request request = { .path = WEIR_STR("/api/x"), .key = WEIR_STR("k"), .cost = 1 };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        set_rules(weir, "[]");
        EXPECT(weir, request, NOW, "pass no rule");
        set_rules(weir, lists[i]);
        EXPECT(weir, request, NOW, "refuse 418 a/token_bucket 0 of 0, reset 0, retry -1");
    }
    /* A whole document brings its own. */
    set_rules(weir, "rules: [{ id: a, match: { path: /x }, by: [key], limits: [0 per 1s] }]");
    EXPECT(weir, request, NOW, "pass no rule");
    weir_close(weir);
}

static void bad_rules_change_nothing(void **state)
{
    (void)state;
    static const char bad[] = "rules:\n"
                              "  - { id: a, by: [key], limits: [100 per 1h] }\n"
                              "  - { id: b, by: [key], limits: [1 per 1x] }\n"
                              "  - { id: c, color: red, limits: [1 per 1h] }\n";
    struct weir *weir = open_rules(RULE("1 per 1h"));
    struct weir_error error;
    assert_int_equal(weir_set_rules(weir, bad, sizeof bad - 1, &error), WEIR_E_RULES);
    assert_int_equal(error.code, WEIR_E_RULES);
    assert_non_null(strstr(error.text, "rules:3: rule b: "));
    assert_non_null(strstr(error.text, "\nrules:4: rule c: "));
    assert_int_equal(weir_set_rules(weir, bad, sizeof bad - 1, NULL), WEIR_E_RULES);
    assert_int_equal(weir_set_rules(weir, "rules: [", 8, &error), WEIR_E_RULES);
    assert_int_equal(weir_set_rules(weir, "", 0, &error), WEIR_E_RULES);
    assert_int_equal(weir_set_rules(weir, "# nothing\n", 10, &error), WEIR_E_RULES);
    assert_string_equal(error.text, "rules:1: is empty; to have no rules, write `rules: []`");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 1);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raising_never_refuses),
        cmocka_unit_test(lowering_never_forgives),
        cmocka_unit_test(a_bucket_keeps_its_tokens_used),
        cmocka_unit_test(lowering_does_not_give_a_place_away),
        cmocka_unit_test(a_new_period_counts_from_the_next_window),
        cmocka_unit_test(another_algorithm_or_by_starts_afresh),
        cmocka_unit_test(all_else_may_change_and_counts_stay),
        cmocka_unit_test(a_bare_list_keeps_the_settings),
        cmocka_unit_test(bad_rules_change_nothing),
    };
    return cmocka_run_group_tests_name("engine/change", tests, NULL, NULL);
}
