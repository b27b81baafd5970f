/* What few rules have, apart from the others; and where small lists of a rule are. */
#include "equal.h"
#include "one_rule.h"

/* Everything that struct rule_rest has in one letter each, in order of its fields. */
static void describe(const struct rule *rule, char *to)
{
    const struct rule_rest *rest = rule->kind->rest;
    bool has[] = { rest->plan.name.len > 0,
                   rest->plan_count > 0,
                   rest->lease.on,
                   rest->hold_max_percent > 0,
                   rest->expires_us != RULE_NEVER_EXPIRES,
                   rest->except.user_count > 0,
                   rest->reject.status > 0,
                   rest->penalty.after > 0,
                   rest->replace_count > 0,
                   rest->file.len > 0 };
    for (size_t i = 0; i < sizeof has; i++)
        if (has[i])
            *to++ = "npLheErPRf"[i];
    *to = '\0';
}

static void each_field_alone(void **state)
{
    (void)state;
    static const struct {
        const char *text, *has;
    } cases[] = {
        { "plan: 'header:x-p', plans: { a: 2 per 1s }", "np" },
        { "limits: 5 per day, lease: { slice: 7% }", "L" },
        { "hold_max: 50%", "h" },
        { "expires: 2030-01-01T00:00:00Z", "e" },
        { "expires: 0", "e" },
        { "except: { user: ann }", "E" },
        { "reject: { status: 503 }", "r" },
        { "penalty: { after: 3, within: 1m, for: 2m }", "P" },
        { "replaces: [b]", "R" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[500], has[20];
        bool limits = strncmp(cases[i].text, "limits", 6) == 0;
        snprintf(text, sizeof text, "rules: [ { id: a, by: user, %s%s } ]", limits ? "" : "limits: 1 per 1s, ",
                 cases[i].text);
        struct reading r = good_reading(text);
        struct rules *copy = rules_copy(r.rules);
        assert_non_null(copy);
        describe(r.rules->rules[0], has);
        assert_string_equal(has, cases[i].has);
        assert_true(rules_equal(copy, r.rules));
        assert_ptr_not_equal(copy->rules[0]->kind->rest, r.rules->rules[0]->kind->rest);
        struct buf written;
        buf_init(&written, 1 << 20);
        rules_write(r.rules, &written);
        reading_done(&r);
        struct reading back = good_reading(written.ptr);
        assert_true(rules_equal(copy, back.rules));
        reading_done(&back);
        describe(copy->rules[0], has);
        assert_string_equal(has, cases[i].has);
        buf_done(&written);
        rules_free(copy);
    }
}

/* Two rules with the same have one, unless it has lists or long texts. */
static void the_same_is_shared(void **state)
{
    (void)state;
    static const struct {
        const char *text, *other;
        bool shared;
    } cases[] = {
        { "lease: true", "lease: { slice: 6% }", true },
        { "lease: { slice: 6% }", "lease: { slice: 6%, ttl: 3s }", true },
        { "hold_max: 50%", "hold_max: 51%", true },
        { "expires: 2030-01-01T00:00:00Z", "expires: 2030-01-01T00:00:01Z", true },
        { "reject: { status: 503 }", "reject: { status: 502 }", true },
        { "penalty: { after: 3, within: 1m, for: 2m }", "penalty: { after: 4, within: 1m, for: 2m }", true },
        { "penalty: { after: 3, within: 1m, for: 2m }", "penalty: { after: 3, within: 61s, for: 2m }", true },
        { "penalty: { after: 3, within: 1m, for: 2m }", "penalty: { after: 3, within: 1m, for: 3m }", true },
        { "penalty: { after: 3, within: 1m, for: 2m }", "penalty: { after: 3, within: 1m, for: 2m, grow: 3 }", true },
        { "penalty: { after: 3, within: 1m, for: 2m }", "penalty: { after: 3, within: 1m, for: 2m, most: 1h }", true },
        { "lease: true", "lease: true, hold_max: 50%", true },
        { "except: { user: ann }", "except: { user: bob }", false },
        { "except: { ip: 10.0.0.1 }", "except: { ip: 10.0.0.2 }", false },
        { "reject: { body: a }", "reject: { body: b }", false },
        { "reject: { content_type: a/b }", "reject: { content_type: a/c }", false },
        { "reject: { headers: { a: b } }", "reject: { headers: { a: c } }", false },
        { "replaces: [x]", "replaces: [y]", false },
        { "plan: user, plans: { a: 1 per day }", "plan: user, plans: { a: 2 per day }", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *a = cases[i].text, *b = cases[i].other;
        char text[1000];
        snprintf(text, sizeof text,
                 "rules: [ { id: a, by: ip, limits: 5 per day, %s }, { id: b, by: ip, limits: 5 per day, %s },\n"
                 "  { id: c, by: ip, limits: 5 per day, %s } ]",
                 a, b, a);
        struct reading r = good_reading(text);
        struct rules *copy = rules_copy(r.rules);
        assert_true(rules_equal(copy, r.rules));
        for (int k = 0; k < 2; k++) {
            struct rule *const *rules = k ? copy->rules : r.rules->rules;
            if ((rules[0]->kind->rest == rules[2]->kind->rest) != cases[i].shared ||
                rules[0]->kind->rest == rules[1]->kind->rest)
                print_error("%s\n%s\n", a, b);
            assert_int_equal(rules[0]->kind->rest == rules[2]->kind->rest, cases[i].shared);
            assert_ptr_not_equal(rules[0]->kind->rest, rules[1]->kind->rest);
            assert_ptr_not_equal(rules[1]->kind->rest, rules[2]->kind->rest);
        }
        assert_ptr_not_equal(copy->rules[0]->kind->rest, r.rules->rules[0]->kind->rest);
        reading_done(&r);
        rules_free(copy);
    }
}

static void most_rules_share_one(void **state)
{
    (void)state;
    static const char *const texts[] = { "by: user",
                                         "mode: shadow",
                                         "enabled: false",
                                         "counters: local",
                                         "on_store_failure: deny",
                                         "lease: false",
                                         "ignore_case: true",
                                         "match: { path: /a, method: [GET], header: { a: b } }" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct reading r = rule_of(texts[i]);
        struct rules *copy = rules_copy(r.rules);
        assert_ptr_equal(r.rules->rules[0]->kind->rest, &rule_no_rest);
        assert_ptr_equal(copy->rules[0]->kind->rest, &rule_no_rest);
        assert_true(rules_equal(copy, r.rules));
        rules_free(copy);
        reading_done(&r);
    }
}

/* Small fields of a rule do not run into each other. */
static void all_words_together(void **state)
{
    (void)state;
    static const char *const modes[] = { "enforce", "shadow", "\"off\"" };
    for (int i = 0; i < 3 * 2 * 2 * 3 * 2; i++) {
        int mode = i % 3, disabled = i / 3 % 2, local = i / 6 % 2, failure = i / 12 % 3, ignore = i / 36;
        char text[300];
        snprintf(text, sizeof text, "mode: %s, enabled: %s, counters: %s, on_store_failure: %s, ignore_case: %s",
                 modes[mode], disabled ? "false" : "true", counters_names[1 + local], on_failure_names[failure],
                 ignore ? "true" : "false");
        struct buf whole;
        with_rule(&whole, text);
        struct reading r = reading_of(buf_sv(&whole));
        buf_done(&whole);
        assert_int_equal(r.report.error_count, 0);
        const struct rule *rule = r.rules->rules[0];
        assert_int_equal(rule->kind->mode, disabled ? MODE_OFF : (enum rule_mode)mode);
        assert_true(!disabled || rule->kind->enabled_mode == (enum rule_mode)mode);
        assert_int_equal(rule->kind->disabled, disabled);
        assert_int_equal(rule->kind->counters, local ? COUNTERS_SHARED : COUNTERS_LOCAL);
        assert_int_equal(rule->kind->on_failure, failure);
        assert_int_equal(rule->kind->ignore_case, ignore);
        assert_false(rule->kind->unlimited);
        assert_int_equal(rule->kind->by_count, 0);
        assert_int_equal(rule->kind->limit_count, 1);
        reading_done(&r);
    }
}

static void paths_and_excluded_paths_are_one_list(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count, not_count;
        const char *all; /* in the order of the list */
    } cases[] = {
        { "/a", 1, 0, "/a" },
        { "[/a, { regex: b }, /c]", 3, 0, "/a ~b /c" },
        { "{ regex: a }", 1, 0, "~a" },
        { "{ not: /a }", 0, 1, "/a" },
        { "{ not: [/a, { regex: b }] }", 0, 2, "/a ~b" },
        { "{ not: [/c, /d], is: [/a, /b] }", 2, 2, "/a /b /c /d" },
        { "{ regex: a, not: { regex: b } }", 1, 1, "~a ~b" },
        { "{ absent: true }", 0, 0, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "match: { path: %s }", cases[i].text);
        struct reading r = rule_of(text);
        struct rules *copy = rules_copy(r.rules);
        const struct rule_match *match = &copy->rules[0]->match;
        assert_true(rules_equal(copy, r.rules));
        reading_done(&r);
        assert_int_equal(match->path_count, cases[i].count);
        assert_int_equal(match->not_path_count, cases[i].not_count);
        assert_int_equal(match->alone, cases[i].count + cases[i].not_count == 1);
        struct buf all;
        buf_init(&all, 1000);
        buf_add(&all, SV(""));
        for (size_t k = 0; k < rule_path_count(match); k++)
            buf_printf(&all, "%s%s%.*s", k ? " " : "", rule_path(match, k).is_regex ? "~" : "",
                       SV_FMT(rule_path_text(rule_path(match, k))));
        assert_string_equal(all.ptr, cases[i].all);
        buf_done(&all);
        rules_free(copy);
    }
}

/* As many as can be: they are counted in few bits. */
static void the_most_of_each(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, 4 << 20);
    buf_add(&text, SV("rules:\n- id: a\n  limits: 1 per 1s\n  match:\n    path: { is: ["));
    for (int i = 0; i < RULE_PATHS_MAX; i++)
        buf_printf(&text, "%s/a%d", i ? ", " : "", i);
    buf_add(&text, SV("], not: ["));
    for (int i = 0; i < RULE_PATHS_MAX; i++)
        buf_printf(&text, "%s{ regex: b%d }", i ? ", " : "", i);
    buf_add(&text, SV("] }\n    header: {"));
    for (int i = 0; i < RULE_HEADERS_MAX; i++)
        buf_printf(&text, "%sx-%d: v", i ? ", " : "", i);
    buf_add(&text, SV("}\n    descriptor: {"));
    for (int i = 0; i < RULE_HEADERS_MAX; i++)
        buf_printf(&text, "%sk%d: v", i ? ", " : "", i);
    buf_add(&text, SV("}\n    method: [GET]\n"));
    struct reading r = reading_of(buf_sv(&text));
    buf_done(&text);
    assert_int_equal(r.report.error_count, 0);
    const struct rule_match *match = &r.rules->rules[0]->match;
    assert_int_equal(match->path_count, RULE_PATHS_MAX);
    assert_int_equal(match->not_path_count, RULE_PATHS_MAX);
    assert_int_equal(r.rules->rules[0]->kind->condition_count, 2 * RULE_HEADERS_MAX + 1);
    assert_text(rule_path_text(rule_path(match, 2 * RULE_PATHS_MAX - 1)), "b999");
    assert_text(r.rules->rules[0]->kind->conditions[2 * RULE_HEADERS_MAX].name, "k31");
    reading_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_alone),
        cmocka_unit_test(the_same_is_shared),
        cmocka_unit_test(most_rules_share_one),
        cmocka_unit_test(all_words_together),
        cmocka_unit_test(paths_and_excluded_paths_are_one_list),
        cmocka_unit_test(the_most_of_each),
    };
    return cmocka_run_group_tests_name("rules/rest", tests, NULL, NULL);
}
