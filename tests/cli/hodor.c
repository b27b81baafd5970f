/* Drogon's configuration becomes rules that weir reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cli/convert.h"
#include "rules/rules.h"

#define PLUGIN(config) "{\"plugins\":[{\"name\":\"drogon::plugin::Hodor\",\"config\":" config "}]}"

static struct hodor hodor;
static struct buf out;
static struct rules_report report;
static struct rules *rules;

static void clear(void)
{
    hodor_done(&hodor);
    buf_done(&out);
    rules_free(rules);
    rules_report_done(&report);
    hodor = (struct hodor){ 0 };
    out = (struct buf){ 0 };
    rules = NULL;
    report = (struct rules_report){ 0 };
}

/* Converts, and reads what came of it: there must be no error in it. */
static void convert(const char *text)
{
    clear();
    if (!hodor_read(&hodor, weir_str(text)))
        fail_msg("%s: %s", text, hodor.errors.ptr);
    buf_init(&out, 1 << 20);
    hodor_write(&hodor, "the file", &out);
    assert_false(out.failed);
    rules = rules_read(buf_sv(&out), &report);
    assert_non_null(rules);
    if (report.error_count)
        fail_msg("line %d: %.*s\n%s", report.errors[0].line, SV_FMT(report.errors[0].text), out.ptr);
}

static void refuse(const char *text, const char *reason)
{
    clear();
    if (hodor_read(&hodor, weir_str(text)))
        fail_msg("%s was taken", text);
    if (!strstr(buf_sv(&hodor.errors).ptr, reason))
        fail_msg("%s: '%s' does not say '%s'", text, hodor.errors.ptr, reason);
}

static void says(const char *text)
{
    if (!strstr(out.ptr, text))
        fail_msg("there is no '%s' in\n%s", text, out.ptr);
}

static void assert_sv(sv s, const char *expected)
{
    if (!sv_eq(s, weir_str(expected)))
        fail_msg("'%.*s' is not '%s'", SV_FMT(s), expected);
}

static const struct rule *rule(const char *id)
{
    for (size_t i = 0; i < rules->rule_count; i++)
        if (sv_eq(rules->rules[i]->id, weir_str(id)))
            return rules->rules[i];
    fail_msg("there is no rule %s in\n%s", id, out.ptr);
    return NULL;
}

static void assert_limit(const struct rule *r, enum limit_algorithm algorithm, uint32_t max, int64_t per_s)
{
    assert_int_equal(r->kind->limit_count, 1);
    assert_int_equal(r->kind->limits[0].algorithm, algorithm);
    assert_int_equal(r->kind->limits[0].max, max);
    assert_int_equal(r->kind->limits[0].per_us, per_s * US_PER_S);
}

static void test_everything(void **state)
{
    (void)state;
    convert("// a comment\n{ \"app\": {}, /* \" */ \"plugins\": [\n"
            "{\"name\":\"drogon::plugin::RealIpResolver\",\"config\":{\"trust_ips\":[\"127.0.0.1\",\"172.16.0.0/12\"]}},\n"
            "{\"name\":\"drogon::plugin::Hodor\",\"dependencies\":[\"drogon::plugin::RealIpResolver\"],\"config\":{\n"
            "\"algorithm\":\"fixed_window\",\"urls\":[\"^/api/.*\",\"/v1\"],\"time_unit\":30,\"capacity\":1000,"
            "\"ip_capacity\":100,\"user_capacity\":50,\"use_real_ip_resolver\":true,\"multi_threads\":false,"
            "\"rejection_message\":\"no // \\\"more\\\"\",\"limiter_expire_time\":900,\"trust_ips\":[\"10.0.0.0/8\"],\n"
            "\"sub_limits\":[{\"urls\":[\"^/login$\"],\"ip_capacity\":5,},{\"urls\":[\"/"
            "x\"],\"capacity\":1,\"user_capacity\":2}],\n"
            "},},],}\n");
    assert_int_equal(rules->rule_count, 6);
    assert_limit(rule("hodor"), LIMIT_FIXED_WINDOW, 1000, 30);
    assert_limit(rule("hodor-ip"), LIMIT_FIXED_WINDOW, 100, 30);
    assert_limit(rule("hodor-user"), LIMIT_FIXED_WINDOW, 50, 30);
    assert_limit(rule("hodor-sub-1-ip"), LIMIT_FIXED_WINDOW, 5, 30);
    assert_limit(rule("hodor-sub-2"), LIMIT_FIXED_WINDOW, 1, 30);
    assert_limit(rule("hodor-sub-2-user"), LIMIT_FIXED_WINDOW, 2, 30);
    assert_int_equal(rule("hodor")->kind->by_count, 0);
    assert_int_equal(rule("hodor-ip")->kind->by[0].attribute, ATTR_IP);
    assert_int_equal(rule("hodor-user")->kind->by[0].attribute, ATTR_USER);
    assert_int_equal(rule("hodor")->match.path_count, 2);
    assert_true(rule_path(&rule("hodor")->match, 1).is_regex);
    assert_sv(rule_path_text(rule_path(&rule("hodor")->match, 0)), "^/api/.*");
    assert_sv(rule_path_text(rule_path(&rule("hodor-sub-1-ip")->match, 0)), "^/login$");
    assert_true(rules->settings.ignore_case);
    says("Drogon treats /API as /api");
    assert_int_equal(rules->settings.trusted_proxy_count, 2);
    assert_int_equal(rules->settings.except.ip_count, 1);
    assert_int_equal(rules->settings.reject.status, 429);
    assert_sv(rules->settings.reject.body, "no // \"more\"");
    assert_sv(rules->settings.reject.content_type, "text/html; charset=utf-8");
}

static void test_defaults(void **state)
{
    (void)state;
    convert(PLUGIN("{\"ip_capacity\":7}"));
    assert_int_equal(rules->rule_count, 1);
    assert_limit(rule("hodor-ip"), LIMIT_TOKEN_BUCKET, 7, 60);
    assert_int_equal(rule("hodor-ip")->match.path_count, 0);
    assert_sv(rules->settings.reject.body, "Too many requests");
    assert_int_equal(rules->settings.trusted_proxy_count, 0);
    assert_false(rules->settings.ignore_case);
    says("A bucket of N lets N through at once.");
    says("/64");
    convert("{\"plugins\":[{\"name\":\"drogon::plugin::Hodor\"}]}");
    assert_int_equal(rules->rule_count, 0);
    says("Every capacity is 0");
    convert(PLUGIN("{\"algorithm\":\"slidingWindow\",\"capacity\":4294967295,\"urls\":null}"));
    assert_limit(rule("hodor"), LIMIT_SLIDING_WINDOW, UINT32_MAX, 60);
    convert(PLUGIN("{\"algorithm\":\"leaky\",\"capacity\":1,\"urls\":[]}"));
    assert_limit(rule("hodor"), LIMIT_TOKEN_BUCKET, 1, 60);
    says("Hodor reads \"leaky\" as token_bucket");
}

static void test_yaml(void **state)
{
    (void)state;
    convert("# Drogon\nplugins:\n  - name: drogon::plugin::Hodor\n    config:\n      algorithm: fixed_window\n      urls: "
            "['^/a\\d+$']\n"
            "      ip_capacity: 3\n      sub_limits:\n        - urls:\n            - /b\n          capacity: 9\n");
    assert_sv(rule_path_text(rule_path(&rule("hodor-ip")->match, 0)), "^/a\\d+$");
    assert_limit(rule("hodor-sub-1"), LIMIT_FIXED_WINDOW, 9, 60);
}

static void test_said(void **state)
{
    (void)state;
    convert(PLUGIN("{\"capacity\":1,\"colour\":\"red\",\"sub_limits\":[{\"capacity\":1},{\"urls\":[\"/a\"]},"
                   "{\"urls\":[\"/b\"],\"capacity\":2,\"time_unit\":5}]}"));
    says("\"colour\" in the configuration is not a field that Drogon reads");
    says("\"time_unit\" in an entry of sub_limits");
    says("hodor-sub-1 (line 1) is left out: it has no urls");
    says("hodor-sub-2 (line 1) is left out: all its capacities are 0");
    assert_int_equal(rules->rule_count, 2);
    convert("{\"plugins\":[{\"name\":\"drogon::plugin::Hodor\",\"config\":{\"capacity\":1}},"
            "{\"name\":\"drogon::plugin::Hodor\",\"config\":{\"capacity\":2}}]}");
    assert_limit(rule("hodor"), LIMIT_TOKEN_BUCKET, 2, 60);
    says("more than one plugin Hodor");
    convert("{\"plugins\":[{\"name\":\"drogon::plugin::Hodor\",\"config\":{\"capacity\":1}},"
            "{\"name\":\"drogon::plugin::RealIpResolver\",\"config\":{\"trust_ips\":[\"10.0.0.0/8\"]}}]}");
    assert_int_equal(rules->settings.trusted_proxy_count, 0);
    says("# trusted_proxies: [\"10.0.0.0/8\"]");
    convert("{\"plugins\":[{\"name\":\"drogon::plugin::Hodor\",\"config\":{\"capacity\":1,\"use_real_ip_resolver\":true}},"
            "{\"name\":\"drogon::plugin::RealIpResolver\",\"config\":{\"trust_ips\":[\"10.0.0.0/"
            "8\"],\"from_header\":\"X-Real-IP\"}}]}");
    assert_int_equal(rules->settings.trusted_proxy_count, 1);
    says("from_header names another header");
}

/* A path has no slash at its end. */
static void test_last_slash(void **state)
{
    (void)state;
    static const struct {
        const char *url, *regex;
    } cases[] = {
        { "/a/", "/a" },    { "^/a/$", "^/a$" }, { "/a\\\\/", "/a" },  { "/", "/" },         { "^/$", "^/$" },
        { "/a|/", "/a|/" }, { "/a/?", "/a/?" },  { "/a/.*", "/a/.*" }, { "(/a/)", "(/a/)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, PLUGIN("{\"capacity\":1,\"urls\":[\"%s\"]}"), cases[i].url);
        convert(text);
        assert_sv(rule_path_text(rule_path(&rule("hodor")->match, 0)), cases[i].regex);
    }
}

/* Whatever stands in strings and names comes out as it was, and breaks nothing. */
static void test_odd_text(void **state)
{
    (void)state;
    convert(PLUGIN("{\"capacity\":1,\"rejection_message\":\"a\\n\\tb \\u0085 \\u2028 \\ufeff # ' \\\\ {{x}} \\u00e9\"}"));
    assert_sv(rules->settings.reject.body, "a\n\tb \xc2\x85 \xe2\x80\xa8 \xef\xbb\xbf # ' \\ {{x}} \xc3\xa9");
    convert(PLUGIN("{\"capacity\":1,\"a\\nrules: [1]\":1,\"b\\rc\\u0085d\":2}"));
    assert_int_equal(rules->rule_count, 1);
    convert(PLUGIN("{\"capacity\":1,\"urls\":[\"/a\\\"b\\\\.c\"]}"));
    assert_sv(rule_path_text(rule_path(&rule("hodor")->match, 0)), "/a\"b\\.c");
}

static void test_errors(void **state)
{
    (void)state;
    refuse("", "not a Drogon configuration");
    refuse("[]", "not a Drogon configuration");
    refuse("{}", "not a Drogon configuration: it has no list \"plugins\"");
    refuse("{\"plugins\":{}}", "not a Drogon configuration");
    refuse("{\"plugins\":[]}", "there is no plugin \"drogon::plugin::Hodor\"");
    refuse("{\"plugins\":[", "not YAML or JSON");
    refuse(PLUGIN("[]"), "config: must be an object");
    refuse(PLUGIN("{\"capacity\":-1}"), "capacity: must be a whole number from 0 to 4294967295");
    refuse(PLUGIN("{\"capacity\":\"5\"}"), "capacity: must be");
    refuse(PLUGIN("{\"capacity\":4294967296}"), "capacity: must be");
    refuse(PLUGIN("{\"time_unit\":0}"), "time_unit: must be a whole number from 1 to");
    refuse(PLUGIN("{\"urls\":\"/x\"}"), "urls: must be a list");
    refuse(PLUGIN("{\"urls\":[[]]}"), "urls: must be a list of strings");
    refuse(PLUGIN("{\"urls\":[\"(\"]}"), "urls: '(' is not a regular expression that weir can use");
    refuse(PLUGIN("{\"sub_limits\":{}}"), "sub_limits: must be a list");
    refuse(PLUGIN("{\"sub_limits\":[1]}"), "sub_limits: must be a list of objects");
    refuse(PLUGIN("{\"trust_ips\":[\"10.0.0.0/99\"]}"), "trust_ips: '10.0.0.0/99' is not an address");
    refuse(PLUGIN("{\"use_real_ip_resolver\":\"maybe\"}"), "use_real_ip_resolver: must be true or false");
    refuse(PLUGIN("{\"rejection_message\":[]}"), "rejection_message: must be a string");
    refuse("\n\n" PLUGIN("{\n\"capacity\":-1,\n\"ip_capacity\":-1}"), "4: capacity");
    assert_non_null(strstr(hodor.errors.ptr, "5: ip_capacity"));
}

static void test_comments(void **state)
{
    (void)state;
    static const struct {
        const char *text, *plain;
    } cases[] = {
        { "{} // x\n", "{}     \n" },
        { "{/*a\nb*/}", "{   \n   }" },
        { "{\"//\":\"/*\"}", "{\"//\":\"/*\"}" },
        { "[1,2,]", "[1,2 ]" },
        { "[1, /*x*/ ]", "[1        ]" },
        { "{\"a\\\"//\":1}", "{\"a\\\"//\":1}" },
        { "a: //b\n", "a: //b\n" },
        { "/* x", "/* x" },
        { "{\"a", "{\"a" },
        { "{\"a\\", "{\"a\\" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf plain;
        buf_init(&plain, 1000);
        drogon_strip_comments(weir_str(cases[i].text), &plain);
        assert_string_equal(plain.ptr, cases[i].plain);
        buf_done(&plain);
    }
}

static int done(void **state)
{
    (void)state;
    clear();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything), cmocka_unit_test(test_defaults),   cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_said),       cmocka_unit_test(test_last_slash), cmocka_unit_test(test_odd_text),
        cmocka_unit_test(test_errors),     cmocka_unit_test(test_comments),
    };
    return cmocka_run_group_tests(tests, NULL, done);
}
