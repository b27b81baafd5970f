/* Settings, JSON, and lists of rules under the settings of others. */
#include "equal.h"
#include "helpers.h"

static void all_settings(void **state)
{
    (void)state;
    struct reading r = good_reading("settings:\n"
                                    "  ids: ['[0-9]+', 'x[a-f]{3}']\n"
                                    "  ignore_case: yes\n"
                                    "  strip_prefixes: [/api//v1/, /%61]\n"
                                    "  trusted_proxies: [10.0.0.0/8, '::1']\n"
                                    "  ipv6_prefix: 56\n"
                                    "  repeated_headers: last\n"
                                    "  headers: off\n"
                                    "  partition_key_secret: 0123456789abcdef\n"
                                    "  except: { ip: 127.0.0.1, user: [root, ' ann '] }\n"
                                    "  reject: { status: 503, body: later }\n"
                                    "rules: []\n");
    const struct settings *s = &r.rules->settings;
    assert_int_equal(s->id_count, 2);
    assert_text(s->ids[1], "x[a-f]{3}");
    assert_true(s->ignore_case);
    assert_int_equal(s->strip_prefix_count, 2);
    assert_text(s->strip_prefixes[0], "/api/v1");
    assert_text(s->strip_prefixes[1], "/a");
    assert_int_equal(s->trusted_proxy_count, 2);
    assert_int_equal(s->ipv6_prefix, 56);
    assert_int_equal(s->repeated_headers, REPEATED_LAST);
    assert_int_equal(s->headers, HEADERS_OFF);
    assert_true(sv_eq(s->partition_key_secret, SV("0123456789abcdef")));
    assert_int_equal(s->except.ip_count, 1);
    assert_text(s->except.users[0], "root");
    assert_text(s->except.users[1], " ann ");
    assert_int_equal(s->reject.status, 503);
    assert_text(s->reject.body, "later");
    assert_int_equal(r.report.bad_settings, 0);
    reading_done(&r);
    r = good_reading("settings: { ids: '[a-z]+', strip_prefixes: /x, trusted_proxies: 10.0.0.1, ignore_case: false }\n"
                     "rules: []");
    assert_int_equal(r.rules->settings.id_count, 1);
    assert_false(r.rules->settings.ignore_case);
    reading_done(&r);
    r = good_reading("rules: []");
    assert_null(r.rules->settings.ids);
    reading_done(&r);
}

static void bad_settings(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "settings: 5\nrules: []", "f:1: settings: must be a mapping (field: value), not 5\n" },
        { "settings: { trusted: x }\nrules: []", "f:1: settings: unknown field \"trusted\"; allowed: ids, ignore_case, "
                                                 "strip_prefixes, trusted_proxies, ipv6_prefix, "
                                                 "repeated_headers, headers, partition_key_secret, except, reject\n" },
        { "settings: { ids: [] }\nrules: []",
          "f:1: settings: ids: the list is empty; leave `ids` out for digits and UUIDs\n" },
        { "settings: { ids: ['[0-9]+', '(' ] }\nrules: []",
          "f:1: settings: ids[1]: invalid regular expression \"(\": missing closing parenthesis (at byte 1)\n" },
        { "settings: { ignore_case: 1 }\nrules: []", "f:1: settings: ignore_case: must be true or false, not 1\n" },
        { "settings: { ignore_case: 'true' }\nrules: []",
          "f:1: settings: ignore_case: must be true or false, not \"true\"\n" },
        { "settings: { strip_prefixes: [api] }\nrules: []",
          "f:1: settings: strip_prefixes[0]: \"api\": a path must begin with `/`\n" },
        { "settings: { strip_prefixes: [/] }\nrules: []",
          "f:1: settings: strip_prefixes[0]: \"/\": there is nothing to strip\n" },
        { "settings: { strip_prefixes: [/a/*] }\nrules: []", "f:1: settings: strip_prefixes[0]: \"/a/*\": a prefix must "
                                                             "not contain `#`, `*` or `{name}`: it is taken literally\n" },
        { "settings:\n  trusted_proxies:\n    - 10.0.0.0/8\n    - proxy\nrules: []",
          "f:4: settings: trusted_proxies[1]: must be an address or a network such as 10.0.0.0/8 or fd00::/8, not "
          "\"proxy\"\n" },
        { "settings: { repeated_headers: newest }\nrules: []",
          "f:1: settings: repeated_headers: must be refuse, first or last, not \"newest\"\n" },
        { "settings: { headers: both }\nrules: []",
          "f:1: settings: headers: must be standard, legacy, openai or off, not \"both\"\n" },
        { "settings: { headers: true }\nrules: []",
          "f:1: settings: headers: must be standard, legacy, openai or off, not true\n" },
        { "settings: { partition_key_secret: short }\nrules: []",
          "f:1: settings: partition_key_secret: must have 16 to 200 bytes, not 5\n" },
        { "settings: { ipv6_prefix: 0 }\nrules: []",
          "f:1: settings: ipv6_prefix: must be a whole number from 1 to 128, not 0\n" },
        { "settings: { ipv6_prefix: 129 }\nrules: []",
          "f:1: settings: ipv6_prefix: must be a whole number from 1 to 128, not 129\n" },
        { "settings: { ipv6_prefix: /64 }\nrules: []",
          "f:1: settings: ipv6_prefix: must be a whole number from 1 to 128, not \"/64\"\n" },
        { "settings: { except: { ips: x } }\nrules: []",
          "f:1: settings: except: unknown field \"ips\"; did you mean `ip`? Allowed: ip, user\n" },
        { "settings: { reject: { status: 200 } }\nrules: []",
          "f:1: settings: reject.status: must be a whole number from 400 to 599, not 200\n" },
    };
    EXPECT_REPORTS(cases);
}

static void a_bad_setting_has_its_default_and_the_rules_stand(void **state)
{
    (void)state;
    struct reading r =
        reading_of(SV("rules: [ { id: a, limits: 1 per 1s } ]\n"
                      "settings: { ipv6_prefix: 48, trusted_proxies: [10.0.0.0/8, x], reject: { status: 503, body: "
                      "[] } }\n"));
    assert_int_equal(r.report.error_count, 2);
    assert_int_equal(r.rules->rule_count, 1);
    assert_int_equal(r.rules->settings.ipv6_prefix, 48);
    assert_int_equal(r.rules->settings.trusted_proxy_count, 0);
    assert_int_equal(r.rules->settings.reject.status, 0);
    assert_int_equal(r.report.bad_settings, 1u << SETTING_TRUSTED_PROXIES | 1u << SETTING_REJECT);
    reading_done(&r);
}

/* ---- JSON ---- */

static void json_and_yaml_are_the_same_model(void **state)
{
    (void)state;
    struct reading yaml = good_reading("settings:\n"
                                       "  trusted_proxies: [10.0.0.0/8]\n"
                                       "  ignore_case: true\n"
                                       "rules:\n"
                                       "  - id: entity-bundle\n"
                                       "    match: { method: [GET, POST], path: '/repo/v1/entity/#/bundle' }\n"
                                       "    by: [user]\n"
                                       "    limits: [ '10 per 60s' ]\n"
                                       "  - id: ocr 😀\n"
                                       "    match: { event: ocr }\n"
                                       "    by: key\n"
                                       "    limits: { name: day, calendar: day, max: 100, tz: Asia/Shanghai }\n"
                                       "    mode: off\n"
                                       "    expires: 1798761600\n"
                                       "    reject: { body: \"{\\\"a\\\":\\\"/\\\"}\\n\", status: 503 }\n");
    struct reading json = good_reading(
        "\t{\"settings\":{\"trusted_proxies\":[\"10.0.0.0/8\"],\"ignore_case\":true},\n"
        "\t\t\"rules\":[{\"id\":\"entity-bundle\",\"match\":{\"method\":[\"GET\",\"POST\"],"
        "\"path\":\"\\/repo\\/v1\\/entity\\/#\\/bundle\"},\"by\":[\"user\"],\"limits\":[\"10 per "
        "60s\"],\"mode\":\"enforce\"},\n"
        "{\"id\":\"ocr \\uD83D\\ude00\",\"match\":{\"event\":\"ocr\"},\"by\":[\"key\"],"
        "\"limits\":[{\"name\":\"day\",\"calendar\":\"day\",\"max\":100,\"tz\":\"Asia\\u002fShanghai\"}],\"mode\":false,"
        "\"expires\":\"2027-01-01T00:00:00Z\",\"except\":null,\"reject\":{\"body\":\"{\\\"a\\\":\\\"\\/"
        "\\\"}\\n\",\"status\":503}}]}");
    assert_true(rules_equal(yaml.rules, json.rules));
    assert_int_equal(json.rules->rules[1]->line, 3);
    reading_done(&yaml);
    reading_done(&json);
}

/* JSON strings may hold what YAML would fold, refuse or take for the end of a line. */
static void json_strings_are_kept(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        { "a\xe2\x80\xa8"
          "b",
          "a\xe2\x80\xa8"
          "b" }, /* U+2028 */
        { "a\xc2\x85"
          "b",
          "a\xc2\x85"
          "b" },
        { "a\x7f"
          "b",
          "a\x7f"
          "b" },
        { "a\xef\xbb\xbf"
          "b",
          "a\xef\xbb\xbf"
          "b" },
        { "\\ud83d\\ude00", "😀" },
        { "\\\\ud83d", "\\ud83d" },
        { "\\\\\\uD83D\\uDE00", "\\😀" },
        { "# ' \\\" \\\\", "# ' \" \\" },
        { "\\u00fc\\t\\r\\n\\b\\f", "ü\t\r\n\b\f" },
        { "\xf0\x9f\x98\x80", "😀" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"settings\":{\"reject\":{\"body\":\"%s\"}},\"rules\":[]}", texts[i][0]);
        struct reading r = good_reading(text);
        assert_text(r.rules->settings.reject.body, texts[i][1]);
        reading_done(&r);
    }
}

/* A text that begins with a bracket may be YAML all the same. */
static void flow_yaml_is_left_alone(void **state)
{
    (void)state;
    struct reading r = good_reading("{ settings: { reject: { body: '\\ud83d\\ude00 \" ' } }, # it's \"\n rules: [] }");
    assert_text(r.rules->settings.reject.body, "\\ud83d\\ude00 \" ");
    reading_done(&r);
}

static void errors_of_json_have_lines(void **state)
{
    (void)state;
    expect_report("\n\n{\"rules\":[\n{\"id\":\"a\",\n\"limits\":[{\"max\":\"10\",\"per\":\"1s\"}]}]}",
                  "f:5: rule a: limits[0].max: must be a whole number from 0 to 9007199254740991, not the text \"10\"; "
                  "leave the quotes "
                  "out\n");
    /* An escape that there is none of, of more than one byte. */
    expect_report("{\"a\":\"\\ü\"}",
                  "f:1: not YAML or JSON: found unknown escape character while parsing a quoted scalar that "
                  "begins in line 1\n");
    expect_report("{\"rules\":[{\"id\":\"a\",\"id\":\"b\",\"limits\":[\"1 per 1s\"]}]}",
                  "f:1: rule a: the field \"id\" is given twice; the first is in line 1\n");
}

/* ---- bare lists ---- */

static struct rules *read_list(const char *text, const struct rules *base, struct rules_report *ret)
{
    struct rules *rules = rules_read_list(weir_str(text), base, ret);
    assert_non_null(rules);
    return rules;
}

static void lists_take_over_settings(void **state)
{
    (void)state;
    struct reading base =
        good_reading("settings: { ids: ['a+'], ignore_case: true, strip_prefixes: [/x], trusted_proxies: "
                     "[10.0.0.0/8], ipv6_prefix: 48, except: { user: [root], ip: [10.0.0.1] }, reject: { status: "
                     "503, body: b, content_type: a/b, headers: { A: b } } }\nrules: [ { id: old, limits: 1 per "
                     "1s } ]");
    struct rules_report report;
    struct rules *rules = read_list("- id: new\n  limits: 2 per 2s\n", base.rules, &report);
    assert_int_equal(report.error_count, 0);
    assert_int_equal(rules->rule_count, 1);
    assert_text(rules->rules[0]->id, "new");
    assert_true(settings_equal(&rules->settings, &base.rules->settings));
    assert_ptr_not_equal(rules->settings.ids[0].ptr, base.rules->settings.ids[0].ptr);
    reading_done(&base);
    assert_text(rules->settings.reject.headers[0].value, "b");
    rules_report_done(&report);
    rules_free(rules);
}

static void lists_without_a_base(void **state)
{
    (void)state;
    struct rules_report report;
    struct rules *rules = read_list("[{\"id\":\"a\",\"limits\":[\"1 per 1s\"]},{\"id\":\"b\"}]", NULL, &report);
    assert_int_equal(rules->rule_count, 1);
    assert_int_equal(rules->settings.ipv6_prefix, 64);
    assert_int_equal(report.error_count, 1);
    assert_text(report.errors[0].text, "needs `limits`, at least one, such as \"10 per 60s\"");
    rules_report_done(&report);
    rules_free(rules);
    rules = read_list("[]", NULL, &report);
    assert_int_equal(rules->rule_count + report.error_count, 0);
    rules_report_done(&report);
    rules_free(rules);
    rules = read_list("", NULL, &report);
    assert_true(report.unreadable);
    assert_text(report.errors[0].text, "is empty; to have no rules, write `[]`");
    rules_report_done(&report);
    rules_free(rules);
    rules = read_list("rules: []", NULL, &report);
    assert_true(report.unreadable);
    assert_text(report.errors[0].text, "must be a list of rules (- id: …), not a mapping");
    rules_report_done(&report);
    rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_settings),
        cmocka_unit_test(bad_settings),
        cmocka_unit_test(a_bad_setting_has_its_default_and_the_rules_stand),
        cmocka_unit_test(json_and_yaml_are_the_same_model),
        cmocka_unit_test(json_strings_are_kept),
        cmocka_unit_test(flow_yaml_is_left_alone),
        cmocka_unit_test(errors_of_json_have_lines),
        cmocka_unit_test(lists_take_over_settings),
        cmocka_unit_test(lists_without_a_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
