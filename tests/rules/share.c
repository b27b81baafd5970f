/* Equal lists of limits, of conditions, and of what rules count by are one. */
#include "equal.h"
#include "helpers.h"

#define RULE(id, limits) "- { id: " id ", by: [user], limits: [ " limits " ] }\n"

static const struct rule_limit *limits_of(const struct rules *rules, size_t rule)
{
    return rules->rules[rule]->kind->limits;
}

/* Pairs that differ in one field only. */
static void lists_that_differ_are_two(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "10 per 60s", "11 per 60s" },                                         /* max (and burst) */
        { "10 per 60s", "10 per 60s burst 11" },                                /* burst */
        { "10 per 60s", "10 per 61s" },                                         /* per_us */
        { "10 per 60s", "10 bytes per 60s" },                                   /* cost_unit */
        { "10 bytes per 60s", "10 bits per 60s" },                              /* the same */
        { "10 per day", "10 per month" },                                       /* unit */
        { "10 per 60s", "{ name: token_bucket, max: 10, per: 60s }" },          /* named */
        { "{ name: a, max: 10, per: 60s }", "{ name: b, max: 10, per: 60s }" }, /* name */
        { "{ max: 10, per: 60s }", "{ max: 10, per: 60s, overdraft: true }" },  /* overdraft */
        { "{ name: a, algorithm: fixed_window, max: 10, per: 60s }",
          "{ name: a, algorithm: sliding_window, max: 10, per: 60s }" },                      /* algorithm */
        { "{ calendar: week, max: 10 }", "{ calendar: week, max: 10, week_start: sunday }" }, /* week_start */
        { "{ calendar: day, max: 10 }", "{ calendar: day, max: 10, tz: Asia/Shanghai }" },    /* zone */
        { "{ calendar: day, max: 10, tz: Asia/Tokyo }", "{ calendar: day, max: 10, tz: Asia/Shanghai }" },
        { "10 concurrent", "{ concurrent: 10, ttl: 61s }" },
        { "10 per 60s", "10 per 60s, 10 per day" }, /* one more */
        { "10 per 60s, 10 per day", "10 per day, 10 per 60s" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[2000];
        const char *a = pairs[i][0], *b = pairs[i][1];
        snprintf(text, sizeof text, "rules:\n" RULE("a", "%s") RULE("b", "%s") RULE("c", "%s") RULE("d", "%s"), a, b, a, b);
        struct reading r = good_reading(text);
        const struct rules *rules = r.rules;
        if (limits_of(rules, 0) != limits_of(rules, 2) || limits_of(rules, 1) != limits_of(rules, 3) ||
            limits_of(rules, 0) == limits_of(rules, 1))
            print_error("%s\n%s\n", a, b);
        assert_ptr_equal(limits_of(rules, 0), limits_of(rules, 2));
        assert_ptr_equal(limits_of(rules, 1), limits_of(rules, 3));
        assert_ptr_not_equal(limits_of(rules, 0), limits_of(rules, 1));
        reading_done(&r);
    }
}

/* Rules that differ in one field beside their ids and paths. */
static void kinds_that_differ_are_two(void **state)
{
    (void)state;
    static const char same[] = "by: [user], limits: [ 1 per 1s ], match: { path: /%c }";
    static const char *const others[] = {
        "by: [ip], limits: [ 1 per 1s ]",
        "limits: [ 1 per 1s ]",
        "by: [user], limits: [ 2 per 1s ]",
        "by: [user], limits: none",
        "by: [user], limits: given",
        "by: [user], limits: [ 1 per 1s ], match: { method: GET }",
        "by: [user], limits: [ 1 per 1s ], match: { event: a }",
        "by: [user], limits: [ 1 per 1s ], mode: shadow",
        "by: [user], limits: [ 1 per 1s ], mode: off",
        "by: [user], limits: [ 1 per 1s ], enabled: false",
        "by: [user], limits: [ 1 per 1s ], enabled: false, mode: shadow",
        "by: [user], limits: [ 1 per 1s ], enabled: false, mode: off",
        "by: [user], limits: [ 1 per 1s ], ignore_case: true",
        "by: [user], limits: [ 1 per 1s ], counters: local",
        "by: [user], limits: [ 1 per 1s ], counters: shared",
        "by: [user], limits: [ 1 per 1s ], on_store_failure: deny",
        "by: [user], limits: [ 1 per 1s ], on_store_failure: allow",
        "by: [user], limits: [ 1 per 1s ], expires: 2030-01-01T00:00:00Z",
        "by: [user], limits: [ 1 per 1s ], hold_max: 50%",
    };
    enum { OTHERS = sizeof others / sizeof *others };
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_add(&text, SV("rules:\n"));
    for (size_t i = 0; i < 2 * OTHERS; i++)
        buf_printf(&text, "- { id: o%zu, %s }\n", i, others[i % OTHERS]);
    for (char c = 'a'; c <= 'c'; c++) {
        buf_printf(&text, "- { id: %c, ", c);
        buf_printf(&text, same, c);
        buf_add(&text, SV(" }\n"));
    }
    struct reading r = good_reading(buf_sv(&text).ptr);
    struct rule **rules = r.rules->rules;
    assert_int_equal(r.rules->rule_count, 2 * OTHERS + 3);
    for (size_t i = 0; i < 2 * OTHERS + 3; i++)
        for (size_t k = 0; k < i; k++) {
            bool equal = i < 2 * OTHERS ? k == i - OTHERS : k >= 2 * OTHERS;
            if ((rules[i]->kind == rules[k]->kind) != equal)
                fail_msg("%.*s and %.*s: one kind is wanted: %d", SV_FMT(rules[i]->id), SV_FMT(rules[k]->id), equal);
        }
    reading_done(&r);
    buf_done(&text);
}

static const char everywhere[] = "rules:\n"
                                 "- id: a\n"
                                 "  by: [user, header:x-a]\n"
                                 "  limits: [ 5 per 1s, { name: n, calendar: day, max: 7, tz: Asia/Shanghai } ]\n"
                                 "- id: b\n"
                                 "  by: ip\n"
                                 "  plan: user\n"
                                 "  plans:\n"
                                 "    free: [ 5 per 1s, { name: n, calendar: day, max: 7, tz: Asia/Shanghai } ]\n"
                                 "    paid: 9 per 1s\n"
                                 "- id: c\n"
                                 "  by: [user, header:X-A]\n"
                                 "  limits: 9 per 1s\n"
                                 "overrides:\n"
                                 "- { rule: b, by: { ip: 10.0.0.1 }, limits: 9 per 1s }\n"
                                 "- rule: b\n"
                                 "  by: { ip: 10.0.0.2 }\n"
                                 "  limits: [ 5 per 1s, { name: n, calendar: day, max: 7, tz: Asia/Shanghai } ]\n";

static void expect_shared(const struct rules *rules)
{
    const struct rule *a = rules->rules[0], *b = rules->rules[1], *c = rules->rules[2];
    assert_int_equal(a->kind->limit_count, 2);
    assert_ptr_equal(a->kind->limits, b->kind->rest->plans[0].limits);
    assert_ptr_equal(a->kind->limits, rules->overrides[1].limits);
    assert_ptr_equal(b->kind->rest->plans[1].limits, c->kind->limits);
    assert_ptr_equal(b->kind->rest->plans[1].limits, rules->overrides[0].limits);
    assert_ptr_not_equal(a->kind->limits, c->kind->limits);
    assert_ptr_equal(a->kind->by, c->kind->by);
    assert_ptr_not_equal(a->kind->by, b->kind->by);
}

static void rules_plans_and_overrides_share(void **state)
{
    (void)state;
    struct reading r = good_reading(everywhere);
    expect_shared(r.rules);
    assert_text(r.rules->rules[2]->kind->by[1].name, "x-a");
    assert_text(r.rules->rules[0]->kind->limits[1].zone->name, "Asia/Shanghai");
    reading_done(&r);
}

static void copies_share_among_themselves(void **state)
{
    (void)state;
    struct reading r = good_reading(everywhere);
    struct rules *copy = rules_copy(r.rules);
    assert_non_null(copy);
    assert_true(rules_equal(copy, r.rules));
    expect_shared(copy);
    assert_ptr_not_equal(copy->rules[0]->kind->limits, r.rules->rules[0]->kind->limits);
    assert_ptr_not_equal(copy->rules[0]->kind->by, r.rules->rules[0]->kind->by);
    reading_done(&r);
    expect_shared(copy);
    assert_text(copy->rules[1]->kind->rest->plans[0].limits[1].name, "n");
    assert_text(copy->rules[1]->kind->rest->plans[0].limits[1].zone->name, "Asia/Shanghai");
    rules_free(copy);
}

/* The rules that are good share; those that come back from the last set have lists of their own. */
static void the_last_good_rules_share(void **state)
{
    (void)state;
    struct reading last = good_reading("rules:\n" RULE("a", "5 per 1s") RULE("b", "5 per 1s") RULE("c", "5 per 1s"));
    struct reading fresh =
        reading_of(SV("rules:\n" RULE("a", "x") RULE("b", "5 per 1s") RULE("c", "x") RULE("d", "5 per 1s")));
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    reading_done(&last);
    const struct rules *rules = fresh.rules;
    assert_int_equal(rules->rule_count, 4);
    assert_ptr_equal(limits_of(rules, 0), limits_of(rules, 2));
    assert_ptr_equal(limits_of(rules, 1), limits_of(rules, 3));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(limits_of(rules, i)->max, 5);
    reading_done(&fresh);
}

static void lists_to_count_by_that_differ_are_two(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "user",           "ip",         "[user, ip]",     "[ip, user]", "header:x-a", "header:x-b", "[user, header:x-a]",
        "descriptor:x-a", "descriptor", "descriptor_keys"
    };
    enum { COUNT = sizeof lists / sizeof *lists };
    struct buf text;
    buf_init(&text, 100000);
    buf_add(&text, SV("rules:\n"));
    for (int i = 0; i < 2 * COUNT; i++)
        buf_printf(&text, "- { id: r%d, by: %s, limits: 1 per 1s }\n", i, lists[i % COUNT]);
    buf_char(&text, '\0');
    struct reading r = good_reading(text.ptr);
    buf_done(&text);
    for (size_t i = 0; i < 2 * COUNT; i++)
        for (size_t k = 0; k < 2 * COUNT; k++)
            assert_int_equal(r.rules->rules[i]->kind->by == r.rules->rules[k]->kind->by, i % COUNT == k % COUNT);
    reading_done(&r);
}

#define MATCH(id, conditions) "- { id: " id ", match: { path: /" id ", " conditions " }, limits: 1 per 1s }\n"

static const struct rule_condition *conditions_of(const struct rules *rules, size_t rule)
{
    return rules->rules[rule]->kind->conditions;
}

/* Pairs that differ in one thing only. */
static void conditions_that_differ_are_two(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "user: a", "key: a" },                                 /* attribute */
        { "user: a", "user: b" },                                /* value */
        { "user: a", "user: [a, b]" },                           /* one more */
        { "user: [a, b]", "user: [b, a]" },                      /* order */
        { "user: [a, b]", "user: ab" },                          /* no text runs into the next */
        { "user: 'a*'", "user: { glob: 'a*' }" },                /* kind */
        { "user: { prefix: a }", "user: a" },                    /* the same */
        { "user: a", "user: { not: a }" },                       /* is, is_not */
        { "user: { is: a, not: b }", "user: { is: [a, b] }" },   /* the same */
        { "user: a", "user: { is: a, present: true }" },         /* presence */
        { "user: { present: true }", "user: { absent: true }" }, /* the same */
        { "header: { a: x }", "header: { b: x }" },              /* name */
        { "header: { a: x }", "descriptor: { a: x }" },          /* attribute */
        { "header: { a: x, b: y }", "header: { b: y, a: x }" },  /* order */
        { "ip: 10.0.0.0/8", "ip: 10.0.0.0/9" },                  /* prefix of a network */
        { "ip: 10.0.0.0/8", "ip: 11.0.0.0/8" },                  /* address of a network */
        { "user: a", "user: a, method: GET" },                   /* one more condition */
        { "host: a.example", "host: '*.a.example'" },            /* kind */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[2000];
        const char *a = pairs[i][0], *b = pairs[i][1];
        snprintf(text, sizeof text, "rules:\n" MATCH("a", "%s") MATCH("b", "%s") MATCH("c", "%s") MATCH("d", "%s"), a, b, a,
                 b);
        struct reading r = reading_of(weir_str(text));
        assert_int_equal(r.report.error_count, 0);
        struct rules *copy = rules_copy(r.rules);
        assert_true(rules_equal(copy, r.rules));
        for (int k = 0; k < 2; k++) {
            const struct rules *rules = k ? copy : r.rules;
            if (conditions_of(rules, 0) == conditions_of(rules, 1))
                print_error("%s\n%s\n", a, b);
            assert_ptr_equal(conditions_of(rules, 0), conditions_of(rules, 2));
            assert_ptr_equal(conditions_of(rules, 1), conditions_of(rules, 3));
            assert_ptr_not_equal(conditions_of(rules, 0), conditions_of(rules, 1));
            assert_text(rule_path_text(rule_path(&rules->rules[3]->match, 0)), "/d");
        }
        assert_ptr_not_equal(conditions_of(copy, 0), conditions_of(r.rules, 0));
        reading_done(&r);
        rules_free(copy);
    }
}

/* The same after spelling is taken away: GET is get, and a host has no dot at its end. */
static void conditions_are_compared_as_they_are_kept(void **state)
{
    (void)state;
    struct reading r = good_reading(
        "rules:\n" MATCH("a", "method: get, host: A.example., header: { X-A: v }, descriptor: { 'a%23': w }")
            MATCH("b", "method: GET, host: a.example, header: { x-a: [v] }, descriptor: { 'a%23': { is: w } }"));
    assert_ptr_equal(conditions_of(r.rules, 0), conditions_of(r.rules, 1));
    assert_int_equal(r.rules->rules[1]->kind->condition_count, 4);
    assert_text(conditions_of(r.rules, 1)[0].is.list[0].text, "GET");
    assert_text(conditions_of(r.rules, 1)[1].is.list[0].text, "a.example");
    assert_text(conditions_of(r.rules, 1)[2].name, "x-a");
    assert_text(conditions_of(r.rules, 1)[3].name, "a%23");
    reading_done(&r);
}

static void many_lists(void **state)
{
    (void)state;
    enum { RULES = 5000, LISTS = 1700 };
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV("rules:\n"));
    for (int i = 0; i < RULES; i++)
        buf_printf(&text, "- { id: r%d, limits: [ 7 per 1s, { name: n%d, max: %d, per: 1h } ] }\n", i, i % LISTS,
                   i % LISTS + 1);
    buf_char(&text, '\0');
    struct reading r = good_reading(text.ptr);
    buf_done(&text);
    for (size_t i = 0; i < RULES; i++) {
        const struct rule *rule = r.rules->rules[i];
        char name[20];
        snprintf(name, sizeof name, "n%zu", i % LISTS);
        assert_text(rule->kind->limits[1].name, name);
        assert_int_equal(rule->kind->limits[1].max, i % LISTS + 1);
        assert_ptr_equal(rule->kind->limits, limits_of(r.rules, i % LISTS));
        if (i > 0)
            assert_ptr_not_equal(rule->kind->limits, limits_of(r.rules, i - 1));
    }
    reading_done(&r);
}

/* What a set shares with an earlier one stays in that one's memory; rows that are read anew share with each other. */
static void rows_share(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        { .id = SV("a"), .text = SV("{limits: 5 per 1s, by: user}") },
        { .id = SV("b"), .text = SV("{limits: 5 per 1s, by: user}") },
        { .id = SV("c"), .text = SV("{limits: 6 per 1s, by: user}") },
        { .id = SV("d"), .text = SV("{limits: 5 per 1s, by: user}") },
        { .id = SV("e"), .text = SV("{limits: 5 per 1s, by: user}") },
    };
    enum { COUNT = sizeof rows / sizeof *rows };
    struct rules_report report;
    struct rules *before = rules_read_rows(rows, COUNT, &report);
    assert_int_equal(report.error_count, 0);
    assert_ptr_equal(limits_of(before, 0), limits_of(before, 1));
    assert_ptr_equal(limits_of(before, 0), limits_of(before, 4));
    assert_ptr_not_equal(limits_of(before, 0), limits_of(before, 2));
    rows[1].text = rows[2].text = SV("{limits: 7 per 1s, by: user}");
    rows[1].rule = rows[2].rule = NULL;
    struct rules *after = rules_reread_rows(rows, COUNT, before, &report);
    assert_int_equal(report.error_count, 0);
    rules_free(before);
    assert_true(after->base != NULL);
    assert_ptr_equal(limits_of(after, 0), limits_of(after, 3));
    assert_ptr_equal(limits_of(after, 1), limits_of(after, 2));
    assert_int_equal(limits_of(after, 0)->max, 5);
    assert_int_equal(limits_of(after, 1)->max, 7);
    rules_free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_differ_are_two),
        cmocka_unit_test(kinds_that_differ_are_two),
        cmocka_unit_test(rules_plans_and_overrides_share),
        cmocka_unit_test(copies_share_among_themselves),
        cmocka_unit_test(the_last_good_rules_share),
        cmocka_unit_test(lists_to_count_by_that_differ_are_two),
        cmocka_unit_test(conditions_that_differ_are_two),
        cmocka_unit_test(conditions_are_compared_as_they_are_kept),
        cmocka_unit_test(many_lists),
        cmocka_unit_test(rows_share),
    };
    return cmocka_run_group_tests_name("rules/share", tests, NULL, NULL);
}
