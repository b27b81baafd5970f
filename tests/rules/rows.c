/* Rows: each a document of its own. */
#include "equal.h"
#include "helpers.h"

#define ROW(ROW_ID, TEXT)                  \
    (struct rule_row)                      \
    {                                      \
        .id = SV(ROW_ID), .text = SV(TEXT) \
    }
#define CALL(ROW_ID, TEXT)                                   \
    (struct rule_row)                                        \
    {                                                        \
        .kind = ROW_CALL, .id = SV(ROW_ID), .text = SV(TEXT) \
    }
#define SETTING(NAME, TEXT)                                   \
    (struct rule_row)                                         \
    {                                                         \
        .kind = ROW_SETTING, .id = SV(NAME), .text = SV(TEXT) \
    }
#define READ(rows) rows_of((rows), sizeof(rows) / sizeof *(rows))

static struct reading rows_of(struct rule_row *rows, size_t count)
{
    struct reading r;
    r.rules = rules_read_rows(rows, count, &r.report);
    assert_non_null(r.rules);
    buf_init(&r.text, 16 << 20);
    buf_add(&r.text, SV(""));
    rules_report_print(&r.report, SV("t"), false, &r.text);
    return r;
}

#define ASIDE(ROW_ID, TEXT)                                  \
    (struct rule_row)                                        \
    {                                                        \
        .id = SV(ROW_ID), .text = SV(TEXT), .disabled = true \
    }

/* It is off, it takes nothing from others, and nobody is told that it is bad. */
static void a_row_that_is_disabled(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        ROW("a", "{\"limits\": [\"1 per 1s\"]}"),          ASIDE("b", "{\"limits\": [\"2 per 1s\"], \"mode\": \"shadow\"}"),
        ASIDE("a", "{\"limits\": [\"3 per 1s\"]}"),        ASIDE("broken", "{\"limits\": ["),
        ASIDE("bad", "{\"limits\": [], \"lease\": true}"), ASIDE("c", "{\"limits\": [\"1 per 1s\", \"2 per 1s\"]}"),
    };
    struct reading r = READ(rows);
    assert_string_equal(r.text.ptr, "");
    assert_int_equal(r.report.error_count + r.report.advice_count + r.report.bad_count, 0);
    assert_int_equal(r.rules->rule_count, 3);
    assert_int_equal(rules_in_force(r.rules, 0), 1);
    assert_int_equal(r.rules->rules[0]->kind->limits[0].max, 1);
    assert_text(r.rules->rules[1]->id, "b");
    assert_int_equal(r.rules->rules[1]->kind->mode, MODE_OFF);
    assert_int_equal(r.rules->rules[1]->kind->enabled_mode, MODE_SHADOW);
    assert_text(r.rules->rules[2]->id, "c");
    /* Bad and disabled, its last good version does not come back. */
    struct rule_row before[] = { ROW("broken", "{\"limits\": [\"1 per 1s\"]}") };
    struct reading last = READ(before);
    assert_int_equal(rules_keep_last_good(r.rules, &r.report, last.rules), 0);
    assert_int_equal(r.rules->rule_count, 3);
    reading_done(&last);
    reading_done(&r);
}

static void a_bad_row_hides_no_other(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        ROW("a", "{\"limits\": [\"1 per 1s\"]}"),
        ROW("broken", "{\"limits\": ["),
        ROW("b", "{\"id\": \"b\", \"limits\": [\"2 per 1s\"]}"),
        ROW("other", "{\"id\": \"name\", \"limits\": [\"2 per 1s\"]}"),
        ROW("a", "{\"limits\": [\"9 per 1s\"]}"),
        ROW("none", ""),
        ROW("list", "[]"),
        { .id = SV("faulty"), .text = SV("{}"), .fault = SV("ENABLED: must be 0 or 1") },
        ROW("c", "{\"limits\": [\"-1 per 1s\"]}"),
        ROW("\xff", "{\"limits\": [\"3 per 1s\"]}"),
        ROW("nul", "{\"limits\": [\"3 per 1s\"], \"by\": [\"\\u0000\"]}"),
        ROW("d", "{\"limits\": [\"4 per 1s\"]}"),
    };
    struct reading r = READ(rows);
    assert_int_equal(r.rules->rule_count, 3);
    assert_text(r.rules->rules[0]->id, "a");
    assert_int_equal(r.rules->rules[0]->kind->limits[0].max, 1);
    assert_text(r.rules->rules[1]->id, "b");
    assert_ptr_equal(r.rules->rules[1], rows[2].rule);
    assert_null(rows[1].rule);
    assert_text(r.rules->rules[2]->id, "d");
    assert_int_equal(r.report.error_count, 9);
    static const char *const said[] = {
        "t:2: rule broken: not YAML or JSON",
        "t:4: rule other: id: must be the id of the row or be left out, not \"name\"",
        "t:5: rule a: another row already has this id",
        "t:6: rule none: is empty; it must be a rule as JSON",
        "t:7: rule list: must be a mapping",
        "t:8: rule faulty: ENABLED: must be 0 or 1",
        "t:9: rule c: limits",
        "t:10: rule #10: the id is not UTF-8",
        "t:11: rule nul: a NUL character",
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (!strstr(r.text.ptr, said[i]))
            print_error("%s\nis not in\n%s", said[i], r.text.ptr);
        assert_non_null(strstr(r.text.ptr, said[i]));
    }
    assert_false(r.report.unreadable);
    reading_done(&r);
}

static void settings_are_read_first(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        ROW("a", "{\"match\": {\"path\": {\"regex\": \"/A\"}}, \"limits\": [\"1 per 1s\"]}"),
        SETTING("ids", "[\"[A-Z]{3}\"]"),
        SETTING("ipv6_prefix", "48"),
        SETTING("ignore_case", "true"),
        SETTING("strip_prefixes", "{"),
        SETTING("trusted_proxy", "[]"),
        SETTING("ids", "[]"),
    };
    struct reading r = READ(rows);
    assert_true(r.rules->settings.ignore_case);
    assert_int_equal(r.rules->settings.ipv6_prefix, 48);
    assert_int_equal(r.rules->settings.id_count, 1);
    assert_int_equal(r.rules->rule_count, 1);
    assert_int_equal(r.report.error_count, 3);
    assert_int_equal(r.report.bad_settings, 1u << SETTING_STRIP_PREFIXES | 1u << SETTING_IDS);
    assert_non_null(strstr(r.text.ptr, "t:5: settings: strip_prefixes: not YAML or JSON"));
    assert_non_null(strstr(r.text.ptr, "t:6: settings: unknown field \"trusted_proxy\""));
    assert_non_null(strstr(r.text.ptr, "t:7: settings: ids: another row already has this name"));
    reading_done(&r);
}

#define CALL_TEXT(METHOD, PATH) "{\"match\":{" METHOD "\"path\":\"" PATH "\"},\"by\":[\"user\"],\"limits\":[\"1 per 1s\"]}"

static void calls_are_unique_once_normalised(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        CALL("c1", CALL_TEXT("", "/entity/#")),
        CALL("c2", CALL_TEXT("", "//entity/#/")),
        CALL("c3", CALL_TEXT("\"method\":\"get\",", "/entity/#")),
        CALL("c4", CALL_TEXT("\"method\":\"GET\",", "/%65ntity/#")),
        CALL("c5", CALL_TEXT("", "/Entity/#")),
        ROW("r", CALL_TEXT("", "/entity/#")),
        SETTING("ignore_case", "false"),
    };
    struct reading r = READ(rows);
    assert_int_equal(r.rules->rule_count, 4);
    assert_non_null(strstr(r.text.ptr, "t:2: rule c2: match: after normalising this is the same call as in rule c1"));
    assert_non_null(strstr(r.text.ptr, "t:4: rule c4: match: after normalising this is the same call as in rule c3"));
    assert_int_equal(r.report.bad_count, 2);
    reading_done(&r);
    rows[6].text = SV("true");
    r = READ(rows);
    assert_int_equal(r.rules->rule_count, 3);
    assert_non_null(strstr(r.text.ptr, "t:5: rule c5: match: after normalising this is the same call as in rule c1"));
    reading_done(&r);
}

static void an_expired_call_is_in_nobodys_way(void **state)
{
    (void)state;
#define EXPIRED "{\"match\":{\"path\":\"/x\"},\"expires\":\"2001-01-01T00:00:00Z\",\"limits\":[\"1 per 1s\"]}"
    struct rule_row rows[] = {
        CALL("c1", EXPIRED),
        CALL("c2", CALL_TEXT("", "//x")),
        CALL("c3", EXPIRED),
        CALL("c4", CALL_TEXT("", "/x/")),
    };
    struct reading r = READ(rows);
    assert_int_equal(r.report.error_count, 1);
    assert_non_null(strstr(r.text.ptr, "t:4: rule c4: match: after normalising this is the same call as in rule c2"));
    reading_done(&r);
}

static void a_bad_row_keeps_its_last_good_version(void **state)
{
    (void)state;
    struct rule_row rows[] = {
        ROW("a", "{\"limits\": [\"1 per 1s\"]}"),
        ROW("b", "{\"limits\": [\"2 per 1s\"]}"),
        ROW("c", "{\"limits\": [\"3 per 1s\"]}"),
        SETTING("ipv6_prefix", "48"),
    };
    struct reading last = READ(rows);
    rows[1].text = SV("{");
    rows[2].text = SV("{\"limits\": [\"4 per 1s\"]}");
    rows[3].text = SV("4800");
    struct reading fresh = READ(rows);
    assert_int_equal(fresh.rules->rule_count, 2);
    assert_int_equal(rules_keep_last_good(fresh.rules, &fresh.report, last.rules), 0);
    assert_int_equal(fresh.rules->rule_count, 3);
    assert_int_equal(fresh.rules->rules[1]->kind->limits[0].max, 2);
    assert_int_equal(fresh.rules->rules[2]->kind->limits[0].max, 4);
    assert_int_equal(fresh.rules->settings.ipv6_prefix, 48);
    struct rules *copy = rules_copy(fresh.rules);
    assert_true(rules_equal(copy, fresh.rules));
    rules_free(copy);
    reading_done(&last);
    reading_done(&fresh);
}

static void too_many_rows(void **state)
{
    (void)state;
    struct rule_row *rows = calloc((size_t)RULES_MAX + 1, sizeof *rows);
    struct rules_report report;
    assert_non_null(rows);
    struct rules *rules = rules_read_rows(rows, (size_t)RULES_MAX + 1, &report);
    free(rows);
    assert_true(report.unreadable);
    assert_int_equal(rules->rule_count, 0);
    rules_free(rules);
    rules_report_done(&report);
}

/* ---- taking apart ---- */

static void expect_split(const char *text, const char *expected)
{
    struct arena arena = { 0 };
    struct rule_row *rows = NULL;
    size_t count = 0;
    struct weir_error error;
    struct buf shown;
    buf_init(&shown, 1 << 20);
    buf_add(&shown, SV(""));
    if (rules_split(weir_str(text), &arena, &rows, &count, &error) < 0)
        buf_add(&shown, weir_str(error.text));
    for (size_t i = 0; i < count; i++)
        buf_printf(&shown, "%s%.*s %.*s\n", rows[i].kind == ROW_SETTING ? "setting " : "", SV_FMT(rows[i].id),
                   SV_FMT(rows[i].text));
    assert_string_equal(shown.ptr, expected);
    buf_done(&shown);
    arena_done(&arena);
}

static void texts_are_taken_apart(void **state)
{
    (void)state;
    expect_split("{ id: a, limits: [10 per 1s] }", "a {\"id\":\"a\",\"limits\":[\"10 per 1s\"]}\n");
    expect_split("- { id: a, mode: off, n: 007, m: 7, x: ~ }",
                 "a {\"id\":\"a\",\"mode\":\"off\",\"n\":\"007\",\"m\":7,\"x\":null}\n");
    expect_split("settings: { ids: ['a\\b'], ignore_case: off }\nrules:\n- id: \"q\\\"\"\n  e: 2027-01-01T00:00:00Z\n",
                 "setting ids [\"a\\\\b\"]\nsetting ignore_case false\n"
                 "q\" {\"id\":\"q\\\"\",\"e\":\"2027-01-01T00:00:00Z\"}\n");
    expect_split("- { id: a, limits: [3 concurrent, { concurrent: 2, ttl: 5s }], hold_max: 50% }",
                 "a {\"id\":\"a\",\"limits\":[\"3 concurrent\",{\"concurrent\":2,\"ttl\":\"5s\"}],\"hold_max\":\"50%\"}\n");
    expect_split("settings: {}\n", "");
    expect_split("problems: [x]\nrules: [{ id: a }]\n", "a {\"id\":\"a\"}\n");
    expect_split("rules: []\n", "");
    expect_split("", "is empty");
    expect_split("rules: 5", "line 1: rules: must be a list of rules (- id: …)");
    expect_split("rules: []\ninclude: a.yaml",
                 "line 2: include: cannot be followed here; `weir rules export --from FILE` prints all files as one");
    expect_split("rules: []\nrule: []",
                 "line 2: unknown field `rule`; allowed: settings, rules, overrides, include, problems");
    expect_split("- 5", "line 1: a rule must be a mapping (id: …)");
    expect_split("{ limits: x }",
                 "line 1: a rule needs `id`: 1 to 100 bytes, no control characters, and no blank at either "
                 "end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_row_hides_no_other),
        cmocka_unit_test(settings_are_read_first),
        cmocka_unit_test(a_row_that_is_disabled),
        cmocka_unit_test(calls_are_unique_once_normalised),
        cmocka_unit_test(an_expired_call_is_in_nobodys_way),
        cmocka_unit_test(a_bad_row_keeps_its_last_good_version),
        cmocka_unit_test(too_many_rows),
        cmocka_unit_test(texts_are_taken_apart),
    };
    return cmocka_run_group_tests_name("rules/rows", tests, NULL, NULL);
}
