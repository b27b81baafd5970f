/* Rules that replace others, rules that limit nothing, and those whose limit requests bring. */
#include "helpers.h"

#include "equal.h"

static void written_and_read(const char *text, const char *written)
{
    struct reading r = good_reading(text);
    struct buf out;
    buf_init(&out, 100000);
    rules_write(r.rules, &out);
    if (!strstr(out.ptr, written))
        fail_msg("%s\nhas no\n%s", out.ptr, written);
    struct reading again = good_reading(out.ptr);
    assert_true(rules_equal(r.rules, again.rules));
    struct rules *copy = rules_copy(r.rules);
    assert_true(rules_equal(r.rules, copy));
    rules_free(copy);
    buf_done(&out);
    reading_done(&again);
    reading_done(&r);
}

static void good_values(void **state)
{
    (void)state;
    written_and_read("rules: [ { id: a, limits: none }, { id: b, limits: 1 per 1s, replaces: a } ]", "    replaces: [a]\n");
    written_and_read("rules: [ { id: a, limits: none, replaces: [b] }, { id: b, limits: 1 per 1s } ]",
                     "    limits: none\n");
    written_and_read(
        "rules: [ { id: a, by: key, limits: given, lease: true, penalty: { after: 1, within: 1s, for: 1s } } ]",
        "    limits: given\n");
    struct reading r =
        good_reading("rules: [ { id: a, limits: given, replaces: [] }, { id: b, limits: none, replaces: ~ } ]");
    assert_true(rule_limit_is_given(r.rules->rules[0]) && !r.rules->rules[0]->kind->unlimited);
    assert_true(r.rules->rules[1]->kind->unlimited && r.rules->rules[1]->kind->limit_count == 0);
    assert_int_equal(r.rules->rules[0]->kind->rest->replace_count + r.rules->rules[1]->kind->rest->replace_count, 0);
    struct buf text;
    buf_init(&text, 100);
    rule_limits_text(r.rules->rules[0]->kind->limits, 1, &text);
    assert_string_equal(text.ptr, "given by the request");
    buf_done(&text);
    reading_done(&r);
}

static void bad_values(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules: [ { id: a, limits: 1 per 1s, replaces: a } ]",
          "f:1: rule a: replaces: a rule cannot replace itself; leave \"a\" out\n" },
        { "rules: [ { id: a, limits: none, replaces: [b, { c: d }] }, { id: b, limits: none } ]",
          "f:1: rule a: replaces[1]: must be text, not a mapping\n" },
        { "rules: [ { id: a, limits: none, plan: user, plans: { x: 1 per 1s } } ]",
          "f:1: rule a: plan: cannot be combined with `limits: none`, which limits nothing; leave one of the two out\n"
          "f:1: rule a: plans: cannot be combined with `limits: none`, which limits nothing; leave one of the two out\n" },
        { "rules: [ { id: a, limits: none, lease: true } ]",
          "f:1: rule a: lease: cannot be combined with `limits: none`, which limits nothing; leave one of the two out\n" },
        { "rules: [ { id: a, limits: given, plan: user, plans: { x: 1 per 1s } } ]",
          "f:1: rule a: plan: cannot be combined with `limits: given`, for which each request brings its limit; leave one "
          "of the "
          "two out\n"
          "f:1: rule a: plans: cannot be combined with `limits: given`, for which each request brings its limit; leave one "
          "of the "
          "two out\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_report(cases[i].text, cases[i].report);
}

static void advice(void **state)
{
    (void)state;
    struct reading r =
        good_reading("rules: [ { id: a, limits: none, mode: shadow, replaces: [gone, b] }, { id: b, limits: 1 per 1s } ]");
    assert_int_equal(r.report.advice_count, 2);
    reading_done(&r);
}

/* A rule that is there in words only where a list is expected. */
static void words_are_not_limits(void **state)
{
    (void)state;
    struct reading r = reading_of(SV("rules: [ { id: a, limits: [given] }, { id: b, limits: [none] } ]"));
    assert_int_equal(r.report.error_count, 2);
    reading_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_values),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(advice),
        cmocka_unit_test(words_are_not_limits),
    };
    return cmocka_run_group_tests_name("rules/replaces", tests, NULL, NULL);
}
