/* Where a rule counts: counters, lease, on_store_failure; and hold_max. */
#include "helpers.h"

#include "equal.h"

/* A rule with a calendar window and, in its mapping, `rest`; all on line 1. */
static const char *with(char text[static 400], const char *rest)
{
    snprintf(text, 400, "rules: [ { id: a, limits: 1 per day, %s } ]", rest);
    return text;
}

static struct reading rule_of(const char *rest)
{
    char text[400];
    struct reading r = good_reading(with(text, rest));
    assert_int_equal(r.rules->rule_count, 1);
    return r;
}

struct good {
    const char *text;
    enum rule_counters counters;
    struct rule_lease lease;
    enum rule_on_failure on_failure;
    const char *written; /* behind the limits */
};

#define LEASE(slice, ttl_ms) \
    {                        \
        true, slice, ttl_ms  \
    }

static void good_values(void **state)
{
    (void)state;
    static const struct good cases[] = {
        { "", COUNTERS_DEFAULT, { 0 }, ON_FAILURE_LOCAL, "" },
        { "counters: , lease: ~, on_store_failure: null", COUNTERS_DEFAULT, { 0 }, ON_FAILURE_LOCAL, "" },
        { "counters: local", COUNTERS_LOCAL, { 0 }, ON_FAILURE_LOCAL, "    counters: local\n" },
        { "counters: shared", COUNTERS_SHARED, { 0 }, ON_FAILURE_LOCAL, "    counters: shared\n" },
        { "counters: local, lease: false", COUNTERS_LOCAL, { 0 }, ON_FAILURE_LOCAL, "    counters: local\n" },
        { "lease: no", COUNTERS_DEFAULT, { 0 }, ON_FAILURE_LOCAL, "" },
        { "on_store_failure: local", COUNTERS_DEFAULT, { 0 }, ON_FAILURE_LOCAL, "" },
        { "on_store_failure: allow", COUNTERS_DEFAULT, { 0 }, ON_FAILURE_ALLOW, "    on_store_failure: allow\n" },
        { "on_store_failure: deny", COUNTERS_DEFAULT, { 0 }, ON_FAILURE_DENY, "    on_store_failure: deny\n" },
        { "lease: true", COUNTERS_SHARED, LEASE(500, 2000), ON_FAILURE_LOCAL, "    lease: true\n" },
        { "counters: shared, lease: true", COUNTERS_SHARED, LEASE(500, 2000), ON_FAILURE_LOCAL, "    lease: true\n" },
        { "lease: {}", COUNTERS_SHARED, LEASE(500, 2000), ON_FAILURE_LOCAL, "    lease: true\n" },
        { "lease: { slice: , ttl: }", COUNTERS_SHARED, LEASE(500, 2000), ON_FAILURE_LOCAL, "    lease: true\n" },
        { "lease: { slice: 5%, ttl: 2s }", COUNTERS_SHARED, LEASE(500, 2000), ON_FAILURE_LOCAL, "    lease: true\n" },
        { "lease: { slice: 0.01%, ttl: 100ms }", COUNTERS_SHARED, LEASE(1, 100), ON_FAILURE_LOCAL,
          "    lease: {slice: 0.01%, ttl: 100ms}\n" },
        { "lease: { slice: 100%, ttl: 1h }", COUNTERS_SHARED, LEASE(10000, 3600000), ON_FAILURE_LOCAL,
          "    lease: {slice: 100%, ttl: 1h}\n" },
        { "lease: { slice: 100.00%, ttl: 60m }", COUNTERS_SHARED, LEASE(10000, 3600000), ON_FAILURE_LOCAL,
          "    lease: {slice: 100%, ttl: 1h}\n" },
        { "lease: { slice: '12.5 %' }", COUNTERS_SHARED, LEASE(1250, 2000), ON_FAILURE_LOCAL,
          "    lease: {slice: 12.5%}\n" },
        { "lease: { slice: 0.05%, ttl: 1500 ms }, on_store_failure: deny", COUNTERS_SHARED, LEASE(5, 1500), ON_FAILURE_DENY,
          "    lease: {slice: 0.05%, ttl: 1500ms}\n    on_store_failure: deny\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct good *c = &cases[i];
        struct reading r = rule_of(c->text);
        const struct rule *rule = r.rules->rules[0];
        struct rule_rest rest = { .lease = c->lease };
        struct rule_kind kind = { .counters = c->counters, .on_failure = c->on_failure, .rest = &rest };
        struct rule wanted = { .kind = &kind };
        if (!counters_equal(rule, &wanted) || r.text.len > 0)
            fail_msg("%s: counters %d, lease %d %u %u, on_failure %d, %s", c->text, (int)rule->kind->counters,
                     rule->kind->rest->lease.on, rule->kind->rest->lease.slice, rule->kind->rest->lease.ttl_ms,
                     (int)rule->kind->on_failure, r.text.ptr);
        struct buf out;
        buf_init(&out, 1000);
        rules_write(r.rules, &out);
        sv written = buf_sv(&out), head = SV("rules:\n  - id: a\n    limits:\n      - \"1 per day\"\n");
        assert_true(sv_starts(written, head));
        assert_text(sv_from(written, head.len), c->written);
        buf_done(&out);
        reading_done(&r);
    }
}

#define SLICES "lease.slice: must be a part of the window's budget such as 5% or 0.5%, from 0.01% to 100%"
#define STEPS SLICES ", in steps of 0.01%, not "
#define TTLS "lease.ttl: must be a length such as 500ms, 2s or 1m, from 100ms to 1h, not "
#define TTL_BOUNDS "lease.ttl: must be from 100ms to 1h, not "

static void bad_values(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "counters: redis", "counters: must be local or shared, not \"redis\"" },
        { "counters: share", "counters: must be local or shared, not \"share\"; did you mean `shared`?" },
        { "counters: ''", "counters: must be local or shared, not \"\"" },
        { "counters: [local]", "counters: must be local or shared, not a list" },
        { "on_store_failure: refuse", "on_store_failure: must be local, allow or deny, not \"refuse\"" },
        { "on_store_failure: true", "on_store_failure: must be local, allow or deny, not true" },
        { "lease: 5%", "lease: must be true, false or { slice: 5%, ttl: 2s }, not \"5%\"" },
        { "lease: [true]", "lease: must be true, false or { slice: 5%, ttl: 2s }, not a list" },
        { "lease: { slcie: 5% }", "lease: unknown field \"slcie\"; did you mean `slice`? Allowed: slice, ttl" },
        { "lease: { slice: 5 }", SLICES "; 5 has no percent sign" },
        { "lease: { slice: 0.5 }", SLICES "; 0.5 has no percent sign" },
        { "lease: { slice: 0% }", STEPS "\"0%\"" },
        { "lease: { slice: 0.00% }", STEPS "\"0.00%\"" },
        { "lease: { slice: 0.001% }", STEPS "\"0.001%\"" },
        { "lease: { slice: 100.01% }", STEPS "\"100.01%\"" },
        { "lease: { slice: 101% }", STEPS "\"101%\"" },
        { "lease: { slice: 99999999999999999999% }", STEPS "\"99999999999999999999%\"" },
        { "lease: { slice: 05% }", STEPS "\"05%\"" },
        { "lease: { slice: 5.% }", STEPS "\"5.%\"" },
        { "lease: { slice: .5% }", STEPS "\".5%\"" },
        { "lease: { slice: -5% }", STEPS "\"-5%\"" },
        { "lease: { slice: 5%% }", STEPS "\"5%%\"" },
        { "lease: { slice: 1.2.3% }", STEPS "\"1.2.3%\"" },
        { "lease: { slice: '%' }", STEPS "\"%\"" },
        { "lease: { slice: {} }", STEPS "a mapping" },
        { "lease: { ttl: 99ms }", TTL_BOUNDS "\"99ms\"" },
        { "lease: { ttl: 0s }", TTL_BOUNDS "\"0s\"" },
        { "lease: { ttl: 3601s }", TTL_BOUNDS "\"3601s\"" },
        { "lease: { ttl: 1d }", TTL_BOUNDS "\"1d\"" },
        { "lease: { ttl: 99999999999999999999s }", TTL_BOUNDS "\"99999999999999999999s\"" },
        { "lease: { ttl: 2 }", TTLS "2" },
        { "lease: { ttl: hour }", TTLS "\"hour\"" },
        { "lease: { ttl: [2s] }", TTLS "a list" },
        { "counters: local, lease: true",
          "lease: needs counters that hosts share, not `counters: local`; leave one of the two out" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400], report[300];
        snprintf(report, sizeof report, "f:1: rule a: %s\n", cases[i].report);
        expect_report(with(text, cases[i].text), report);
    }
}

static void two_errors_are_told_together(void **state)
{
    (void)state;
    char text[400];
    expect_report(with(text, "lease: { slice: 5, ttl: 9h }"),
                  "f:1: rule a: " SLICES "; 5 has no percent sign\nf:1: rule a: " TTL_BOUNDS "\"9h\"\n");
}

#define ONLY "is allowed with fixed and calendar windows only; limit "
#define DO ": give it `algorithm: fixed_window`, or leave `lease` out\n"

static void windows_only(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules:\n- id: a\n  limits: 1 per 1s\n  lease: true\n",
          "f:4: rule a: lease: " ONLY "`token_bucket` is a token_bucket" DO },
        { "rules:\n- id: a\n  limits: [ 5 per day, { name: rate, max: 1, per: 1s, algorithm: sliding_window } ]\n"
          "  lease: { slice: 1% }\n",
          "f:4: rule a: lease: " ONLY "`rate` is a sliding_window" DO },
        { "rules:\n- id: a\n  lease: true\n  limits: [ { name: x, max: 1, per: 1s }, { name: y, max: 1, per: 1s } ]\n",
          "f:3: rule a: lease: " ONLY "`x` is a token_bucket" DO "f:3: rule a: lease: " ONLY "`y` is a token_bucket" DO },
        /* What kind a limit is must be known. */
        { "rules:\n- { id: a, lease: true, limits: [ { name: x, max: 1, per: 1s, algorithm: fixed } ] }\n",
          "f:2: rule a: limits[0].algorithm: must be token_bucket, fixed_window, sliding_window or calendar, not "
          "\"fixed\"\n" },
        { "rules:\n- { id: a, lease: true }\n", "f:2: rule a: needs `limits`, at least one, such as \"10 per 60s\"\n" },
        { "rules:\n- id: a\n  limits: [ 5 per day, { name: running, concurrent: 3 } ]\n  lease: true\n",
          "f:4: rule a: lease: a slot cannot be leased: limit `running` is concurrent; put it into a rule of its own with "
          "`counters: local`\n" },
        { "rules:\n- { id: a, by: user, limits: 5 per day, lease: true }\noverrides:\n- { rule: a, by: { user: ann }, "
          "limits: 3 concurrent }\n",
          "f:4: override of rule a for ann: limits: the rule is leased, and a slot cannot be leased: limit `concurrent` is "
          "concurrent; put it into a rule of its own with `counters: local`\n" },
        { "rules: [ { id: a, lease: false, limits: 1 per 1s } ]", "" },
        { "rules: [ { id: a, lease: true, limits: [ 1 per day, { max: 1, per: 1s, algorithm: fixed_window } ] } ]", "" },
    };
    EXPECT_REPORTS(cases);
}

static void advice(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules:\n- id: a\n  limits: 1 per day\n  on_store_failure: deny\n  counters: local\n",
          "f:4: rule a: advice: on_store_failure: has no effect, because a rule with `counters: local` needs no store; "
          "leave it out\n" },
        { "rules: [ { id: a, limits: 1 per day, counters: shared, on_store_failure: local } ]", "" },
    };
    EXPECT_REPORTS(cases);
}

static void holds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t percent;
    } good[] = { { "hold_max: 50%", 50 }, { "hold_max: '1 %'", 1 }, { "hold_max: 100%", 100 }, { "hold_max: ~", 0 } };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct reading r = rule_of(good[i].text);
        assert_int_equal(r.rules->rules[0]->kind->rest->hold_max_percent, good[i].percent);
        struct buf out;
        buf_init(&out, 1000);
        rules_write(r.rules, &out);
        struct reading again = good_reading(out.ptr);
        assert_true(rules_equal(r.rules, again.rules));
        reading_done(&again);
        buf_done(&out);
        reading_done(&r);
    }
#define HOLD_SHARES "hold_max: must be a part of a limit's max in whole percent such as 50%, from 1% to 100%"
    static const struct report_case bad[] = {
        { "hold_max: 50", HOLD_SHARES "; 50 has no percent sign" },
        { "hold_max: 0%", HOLD_SHARES ", not \"0%\"" },
        { "hold_max: 101%", HOLD_SHARES ", not \"101%\"" },
        { "hold_max: 0.5%", HOLD_SHARES ", not \"0.5%\"" },
        { "hold_max: 050%", HOLD_SHARES ", not \"050%\"" },
        { "hold_max: -5%", HOLD_SHARES ", not \"-5%\"" },
        { "hold_max: '%'", HOLD_SHARES ", not \"%\"" },
        { "hold_max: 99999999999999999999%", HOLD_SHARES ", not \"99999999999999999999%\"" },
        { "hold_max: true", HOLD_SHARES ", not true" },
        { "hold_max: {}", HOLD_SHARES ", not a mapping" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[400], report[300];
        snprintf(report, sizeof report, "f:1: rule a: %s\n", bad[i].report);
        expect_report(with(text, bad[i].text), report);
    }
}

static void copies_have_them(void **state)
{
    (void)state;
    struct reading r = rule_of("lease: { slice: 1%, ttl: 5s }, on_store_failure: allow, hold_max: 7%");
    struct rules *copy = rules_copy(r.rules);
    assert_non_null(copy);
    assert_true(rules_equal(r.rules, copy));
    assert_int_equal(copy->rules[0]->kind->rest->lease.slice, 100);
    assert_int_equal(copy->rules[0]->kind->rest->hold_max_percent, 7);
    rules_free(copy);
    reading_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_values),  cmocka_unit_test(bad_values), cmocka_unit_test(two_errors_are_told_together),
        cmocka_unit_test(windows_only), cmocka_unit_test(advice),     cmocka_unit_test(copies_have_them),
        cmocka_unit_test(holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
