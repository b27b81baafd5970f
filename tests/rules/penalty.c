/* Whom a rule penalises: `penalty`. */
#include "helpers.h"

#include "equal.h"

static const char *with(char text[static 400], const char *penalty)
{
    snprintf(text, 400, "rules: [ { id: a, by: user, limits: 1 per day, penalty: %s } ]", penalty);
    return text;
}

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

struct good {
    const char *text;
    struct rule_penalty penalty;
    const char *written;
};

static void good_values(void **state)
{
    (void)state;
    static const struct good cases[] = {
        { "", { 0 }, "" },
        { "~", { 0 }, "" },
        { "{ after: 5, within: 1m, for: 15m, grow: 3, most: 12h }",
          { 5, 3, MINUTE, 15 * MINUTE, 12 * HOUR },
          "    penalty: {after: 5, within: 1m, for: 15m, grow: 3, most: 12h}\n" },
        { "{ after: 1, within: 1s, for: 1s }",
          { 1, 2, SECOND, SECOND, DAY },
          "    penalty: {after: 1, within: 1s, for: 1s, grow: 2, most: 1d}\n" },
        { "{ after: 10000, within: 3650d, for: 3650d, grow: 100, most: 3650d }",
          { 10000, 100, 3650 * DAY, 3650 * DAY, 3650 * DAY },
          "    penalty: {after: 10000, within: 3650d, for: 3650d, grow: 100, most: 3650d}\n" },
        { "{ after: 1, within: 1500ms, for: 25h, grow: ~, most: ~ }",
          { 1, 2, 1500 * 1000, 25 * HOUR, 25 * HOUR },
          "    penalty: {after: 1, within: 1500ms, for: 25h, grow: 2, most: 25h}\n" },
        { "{ after: 1, within: 1s, for: 5s, grow: 1 }",
          { 1, 1, SECOND, 5 * SECOND, 5 * SECOND },
          "    penalty: {after: 1, within: 1s, for: 5s, grow: 1, most: 5s}\n" },
        { "{ after: 1, within: 1s, for: 5s, most: 5s }",
          { 1, 2, SECOND, 5 * SECOND, 5 * SECOND },
          "    penalty: {after: 1, within: 1s, for: 5s, grow: 2, most: 5s}\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        struct reading r = good_reading(with(text, cases[i].text));
        const struct rule_penalty *p = &r.rules->rules[0]->kind->rest->penalty, *wanted = &cases[i].penalty;
        assert_int_equal(p->after, wanted->after);
        assert_int_equal(p->grow, wanted->grow);
        assert_int_equal(p->within_us, wanted->within_us);
        assert_int_equal(p->for_us, wanted->for_us);
        assert_int_equal(p->most_us, wanted->most_us);
        struct buf out;
        buf_init(&out, 10000);
        rules_write(r.rules, &out);
        if (cases[i].written[0])
            assert_non_null(strstr(out.ptr, cases[i].written));
        else
            assert_null(strstr(out.ptr, "penalty"));
        struct reading again = good_reading(out.ptr);
        assert_true(rules_equal(r.rules, again.rules));
        buf_done(&out);
        reading_done(&again);
        reading_done(&r);
    }
}

#define LENGTHS "must be a length such as 30s, 15m or 24h, from 1s to 3650d"
#define AFTERS "penalty.after: must be a whole number from 1 to 10000, not "
#define GROWS "penalty.grow: must be a whole number from 1 to 100, not "

static void bad_values(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "5", "penalty: must be a mapping (field: value), not 5" },
        { "true", "penalty: must be a mapping (field: value), not true" },
        { "{ after: 1, within: 1s }",
          "penalty: needs `for`, how long the first penalty lasts, a length such as 30s, 15m or 24h, from 1s to 3650d" },
        { "{ after: 1, for: 1s }",
          "penalty: needs `within`, the time in which refusals are counted, a length such as 30s, 15m "
          "or 24h, from 1s to 3650d" },
        { "{ within: 1s, for: 1s }",
          "penalty: needs `after`, the number of refusals that begin a penalty, from 1 to 10000" },
        { "{ after: 0, within: 1s, for: 1s }", AFTERS "0" },
        { "{ after: 10001, within: 1s, for: 1s }", AFTERS "10001" },
        { "{ after: -1, within: 1s, for: 1s }", AFTERS "-1" },
        { "{ after: 1, within: 999ms, for: 1s }", "penalty.within: must be from 1s to 3650d, not \"999ms\"" },
        { "{ after: 1, within: 1, for: 1s }", "penalty.within: " LENGTHS ", not 1" },
        { "{ after: 1, within: day, for: 1s }", "penalty.within: " LENGTHS ", not \"day\"" },
        { "{ after: 1, within: 1s, for: 0s }", "penalty.for: must be from 1s to 3650d, not \"0s\"" },
        { "{ after: 1, within: 1s, for: 3651d }", "penalty.for: must be from 1s to 3650d, not \"3651d\"" },
        { "{ after: 1, within: 1s, for: [1s] }", "penalty.for: " LENGTHS ", not a list" },
        { "{ after: 1, within: 1s, for: 1s, grow: 0 }", GROWS "0" },
        { "{ after: 1, within: 1s, for: 1s, grow: 101 }", GROWS "101" },
        { "{ after: 1, within: 1s, for: 1s, grow: 1.5 }", GROWS "1.5" },
        { "{ after: 1, within: 1s, for: 10s, most: 9s }", "penalty.most: must be at least as long as `for`, not \"9s\"" },
        { "{ after: 1, within: 1s, for: 10s, mots: 9s }",
          "penalty: unknown field \"mots\"; did you mean `most`? Allowed: after, within, for, grow, most" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400], report[300];
        snprintf(report, sizeof report, "f:1: rule a: %s\n", cases[i].report);
        expect_report(with(text, cases[i].text), report);
    }
}

static void advice(void **state)
{
    (void)state;
    struct reading r = reading_of(weir_str(
        "rules:\n- { id: a, by: user, limits: 1 per day, penalty: { after: 1, within: 1s, for: 1s, grow: 1, most: 2s } }\n"
        "- { id: b, by: user, limits: 1 per day, mode: shadow, penalty: { after: 1, within: 1s, for: 1s } }\n- { id: c, "
        "limits: 1 per day, penalty: { after: 1, within: 1s, for: 1s } }\n"));
    struct buf out;
    buf_init(&out, 10000);
    rules_report_print(&r.report, SV("f"), true, &out);
    assert_text(buf_sv(&out),
                "f:2: rule a: advice: penalty.most: has no effect, because penalties do not grow with `grow: 1`; leave one "
                "of them out\n"
                "f:3: rule b: advice: penalty: has no effect while the rule is in shadow mode, which penalises nobody\n"
                "f:4: rule c: advice: penalty: penalises everybody together, because the rule has no `by`; count by ip, "
                "user or key to penalise those who are refused\n");
    buf_done(&out);
    reading_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_values),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
