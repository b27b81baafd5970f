/* The last good rules stay. */
#include "equal.h"
#include "helpers.h"

/* The ids in order, and their first limits: "a1 b2". */
static void expect_rules(const struct rules *rules, const char *expected)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add(&text, SV(""));
    for (size_t i = 0; i < rules->rule_count; i++)
        buf_printf(&text, "%s%.*s%llu", i ? " " : "", SV_FMT(rules->rules[i]->id),
                   (unsigned long long)rules->rules[i]->kind->limits[0].max);
    assert_string_equal(text.ptr, expected);
    buf_done(&text);
}

static void expect_kept(const char *last_text, const char *fresh_text, const char *expected)
{
    struct reading last = good_reading(last_text), fresh = reading_of(weir_str(fresh_text));
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    reading_done(&last);
    expect_rules(fresh.rules, expected);
    reading_done(&fresh);
}

#define GOOD(id, max) "- { id: " id ", limits: " max " per 1s }\n"
#define BAD(id) "- { id: " id ", limits: x }\n"

static void bad_rules_come_back_where_they_stood(void **state)
{
    (void)state;
    const char *last = "rules:\n" GOOD("a", "1") GOOD("b", "1") GOOD("c", "1") GOOD("d", "1");
    expect_kept(last, "rules:\n" GOOD("a", "2") BAD("b") GOOD("c", "2") GOOD("d", "2"), "a2 b1 c2 d2");
    expect_kept(last, "rules:\n" BAD("a") BAD("b") BAD("c") BAD("d"), "a1 b1 c1 d1");
    expect_kept(last, "rules:\n" GOOD("d", "2") BAD("c") BAD("a"), "d2 c1 a1");
    expect_kept(last, "rules:\n" BAD("d") GOOD("a", "2"), "d1 a2");
    /* One that was not there before has nothing to come back to; one that is gone stays gone. */
    expect_kept(last, "rules:\n" BAD("x") GOOD("a", "2"), "a2");
    expect_kept(last, "rules: []", "");
    expect_kept(last, "rules:\n", "a1 b1 c1 d1");
    expect_kept("rules: []", "rules:\n" BAD("a"), "");
    /* Bad twice comes back once. */
    expect_kept(last, "rules:\n" BAD("a") BAD("a"), "a1");
    /* The first of two stands. */
    expect_kept(last, "rules:\n" GOOD("a", "2") GOOD("b", "2") GOOD("a", "3"), "a2 b2");
    expect_kept(last, "rules:\n" BAD("a") GOOD("b", "2") GOOD("a", "3"), "a1 b2");
}

static void nothing_readable_keeps_all(void **state)
{
    (void)state;
    const char *last = "settings: { ipv6_prefix: 48 }\nrules:\n" GOOD("a", "1") GOOD("b", "1");
    static const char *const broken[] = {
        "rules: [", "rules: 5", "\xff", "5", "- id: a\n", "{}", "rules:\n", "settings: {}"
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct reading old = good_reading(last), fresh = reading_of(weir_str(broken[i]));
        assert_true(fresh.report.unreadable);
        assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, old.rules), 0);
        assert_true(rules_equal(fresh.rules, old.rules));
        reading_done(&old);
        expect_rules(fresh.rules, "a1 b1");
        reading_done(&fresh);
    }
}

/* A report that names rules but not their places, as other sources may make. */
static void unknown_places_are_at_the_end(void **state)
{
    (void)state;
    struct reading last = good_reading("rules:\n" GOOD("a", "1") GOOD("b", "1") GOOD("c", "1") GOOD("d", "1"));
    struct reading fresh = good_reading("rules:\n" GOOD("x", "2") GOOD("c", "2"));
    struct rule_problem errors[] = { { .rule = SV("d"), .text = SV("bad row") },
                                     { .rule = SV("a"), .text = SV("bad row") },
                                     { .rule = SV("c"), .text = SV("bad row") } };
    struct rules_report report = { .errors = errors, .error_count = 3 };
    assert_int_equal(rules_keep_last_good(fresh.rules, &report, last.rules), 0);
    reading_done(&last);
    expect_rules(fresh.rules, "x2 c2 a1 d1");
    reading_done(&fresh);
}

/* More bad rules than errors are listed. */
static void many_bad_rules_come_back(void **state)
{
    (void)state;
    struct buf good, bad;
    buf_init(&good, 1 << 20);
    buf_init(&bad, 1 << 20);
    buf_add(&good, SV("rules:\n"));
    buf_add(&bad, SV("rules:\n"));
    for (int i = 0; i < 3000; i++) {
        buf_printf(&good, "- { id: r%d, limits: 1 per 1s }\n", i);
        buf_printf(&bad, "- { id: r%d, limits: %s }\n", i, i % 3 ? "x" : "2 per 1s");
    }
    struct reading last = good_reading(good.ptr), fresh = reading_of(buf_sv(&bad));
    assert_int_equal(fresh.report.error_count, 2000);
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    assert_int_equal(fresh.rules->rule_count, 3000);
    for (size_t i = 0; i < 3000; i++) {
        assert_true(sv_eq(fresh.rules->rules[i]->id, last.rules->rules[i]->id));
        assert_int_equal(fresh.rules->rules[i]->kind->limits[0].max, i % 3 ? 1 : 2);
    }
    reading_done(&last);
    reading_done(&fresh);
    buf_done(&good);
    buf_done(&bad);
}

static void every_part_is_copied(void **state)
{
    (void)state;
    struct reading last =
        good_reading("rules:\n"
                     "- id: a\n"
                     "  match: { event: e, method: [GET, PUT], host: h, path: [/a, { regex: b }], header: { X: y } }\n"
                     "  by: [user, 'header:Z']\n"
                     "  limits: [ { name: n, calendar: week, max: 1, tz: Asia/Tokyo, week_start: sunday }, 5 per 1s burst "
                     "9, 3 per day ]\n"
                     "  mode: shadow\n"
                     "  expires: 2030-01-01T00:00:00.5Z\n"
                     "  except: { ip: [10.0.0.0/8, '::1'], user: [u, v] }\n"
                     "  reject: { status: 503, body: b, content_type: a/b, headers: { H: i } }\n");
    struct reading copy = good_reading("rules: []");
    struct rule_bad bad[] = { { SV("a"), 7 } };
    struct rules_report report = { .bad = bad, .bad_count = 1 };
    assert_int_equal(rules_keep_last_good(copy.rules, &report, last.rules), 0);
    assert_true(rules_equal(copy.rules, last.rules));
    assert_int_equal(copy.rules->rules[0]->line, 2);
    struct buf before, after;
    buf_init(&before, 1 << 20);
    buf_init(&after, 1 << 20);
    rules_write(last.rules, &before);
    reading_done(&last); /* what still points there is found by the sanitizer */
    rules_write(copy.rules, &after);
    assert_string_equal(before.ptr, after.ptr);
    assert_int_equal(tz_span_at(&copy.rules->rules[0]->kind->limits[0].zone->tz, 1700000000).utoff_s, 9 * 3600);
    buf_done(&before);
    buf_done(&after);
    reading_done(&copy);
}

static void bad_settings_come_back(void **state)
{
    (void)state;
    const char *all = "settings: { ids: ['a+'], ignore_case: true, strip_prefixes: [/x], trusted_proxies: [10.0.0.0/8], "
                      "ipv6_prefix: 48, repeated_headers: last, headers: openai, partition_key_secret: 0123456789abcdef, "
                      "except: { user: [root] }, reject: { status: 503 } }\nrules: []";
    struct reading last = good_reading(all);
    struct reading fresh =
        reading_of(SV("settings: { ids: ['('], ignore_case: 5, strip_prefixes: [x], trusted_proxies: [x], "
                      "ipv6_prefix: x, repeated_headers: x, headers: x, partition_key_secret: x, except: [], reject: { "
                      "status: 1 } }\nrules: []"));
    assert_int_equal(fresh.report.bad_settings, (1u << SETTINGS) - 1);
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    assert_true(settings_equal(&fresh.rules->settings, &last.rules->settings));
    reading_done(&fresh);
    /* A good one is the new one; one that is not there has its default. */
    fresh = reading_of(SV("settings: { ipv6_prefix: 32, trusted_proxies: x }\nrules: []"));
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    assert_int_equal(fresh.rules->settings.ipv6_prefix, 32);
    assert_int_equal(fresh.rules->settings.trusted_proxy_count, 1);
    assert_null(fresh.rules->settings.ids);
    reading_done(&fresh);
    fresh = reading_of(SV("settings: []\nrules: []"));
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    assert_true(settings_equal(&fresh.rules->settings, &last.rules->settings));
    reading_done(&fresh);
    reading_done(&last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_rules_come_back_where_they_stood),
        cmocka_unit_test(nothing_readable_keeps_all),
        cmocka_unit_test(unknown_places_are_at_the_end),
        cmocka_unit_test(many_bad_rules_come_back),
        cmocka_unit_test(every_part_is_copied),
        cmocka_unit_test(bad_settings_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
