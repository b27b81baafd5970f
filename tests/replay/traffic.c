/* Lines of recorded traffic: JSON, and access logs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "replay/traffic.h"

typedef bool (*reader)(char *, size_t, struct traffic *, char *);

static struct traffic traffic;
static char *line, why[TRAFFIC_WHY_MAX];

/* Reads a copy that has nothing behind its end, so that a sanitizer sees a step too far. */
static bool read_with(reader function, const char *text)
{
    traffic_done(&traffic);
    size_t len = strlen(text);
    free(line);
    line = malloc(len + (len == 0));
    assert_non_null(line);
    memcpy(line, text, len);
    return function(line, len, &traffic, why);
}

static void good(reader function, const char *text)
{
    if (!read_with(function, text))
        fail_msg("%s: %s", text, why);
}

static void bad(reader function, const char *text, const char *reason)
{
    if (read_with(function, text))
        fail_msg("%s was taken", text);
    if (!strstr(why, reason))
        fail_msg("%s: '%s' does not say '%s'", text, why, reason);
}

static void assert_sv(sv s, const char *expected)
{
    if (!sv_eq(s, weir_str(expected)))
        fail_msg("'%.*s' is not '%s'", SV_FMT(s), expected);
}

static void test_json_request(void **state)
{
    (void)state;
    good(traffic_from_json, "{\"t\":\"2026-03-01T00:00:00.5Z\",\"method\":\"GET\",\"path\":\"/x?y\",\"ip\":\"::1\","
                            "\"user\":\"u\",\"event\":\"e\",\"key\":\"k\",\"host\":\"h\",\"peer\":\"10.0.0.1\",\"cost\":3,"
                            "\"peek\":true,\"headers\":{\"A\":\"1\",\"X-Forwarded-For\":[\"2\",\"3\"]}}");
    const struct weir_request *r = &traffic.request;
    assert_int_equal(traffic.now_us, INT64_C(1772323200500000));
    assert_sv(r->method, "GET");
    assert_sv(r->path, "/x?y");
    assert_sv(r->ip, "::1");
    assert_sv(r->user, "u");
    assert_sv(r->event, "e");
    assert_sv(r->key, "k");
    assert_sv(r->host, "h");
    assert_sv(r->peer, "10.0.0.1");
    assert_int_equal(r->cost, 3);
    assert_true(r->peek);
    assert_int_equal(r->header_count, 3);
    assert_sv(r->headers[0].name, "A");
    assert_sv(r->headers[1].name, "X-Forwarded-For");
    assert_sv(r->headers[1].value, "2");
    assert_sv(r->headers[2].value, "3");
    good(traffic_from_json, " {\"t\": 5, \"user\": null, \"headers\": null} ");
    assert_int_equal(r->cost, 1);
    assert_false(r->peek);
    assert_int_equal(r->user.len, 0);
    assert_int_equal(r->header_count, 0);
    good(traffic_from_json, "{\"t\":1,\"cost\":9007199254740991}");
    assert_int_equal(r->cost, WEIR_AMOUNT_MAX);
    good(traffic_from_json, "{\"t\":1,\"cost\":null,\"costs\":null,\"peek\":null}");
    assert_int_equal(r->cost, 1);
    assert_int_equal(r->cost_count, 0);
    assert_false(r->peek);
    good(traffic_from_json, "{\"t\":1,\"cost\":null,\"costs\":{\"tokens\":3}}");
    assert_int_equal(r->cost, 0);
    assert_int_equal(r->cost_count, 1);
    good(traffic_from_json, "{\"t\":1,\"costs\":null,\"cost\":2}");
    assert_int_equal(r->cost, 2);
}

static void test_json_time(void **state)
{
    (void)state;
    good(traffic_from_json, "{\"t\":1760000000000}");
    assert_int_equal(traffic.now_us, INT64_C(1760000000000000));
    good(traffic_from_json, "{\"t\":1760000000000.125}");
    assert_int_equal(traffic.now_us, INT64_C(1760000000000125));
    good(traffic_from_json, "{\"t\":4503599627370}");
    static const char *const wrong[] = { "4503599627371",     "-1",   "1e300", "\"yesterday\"",
                                         "\"1760000000000\"", "null", "[]",    "true" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"t\":%s}", wrong[i]);
        bad(traffic_from_json, text, "t: must be");
    }
    bad(traffic_from_json, "{\"path\":\"/\"}", "t: must be given");
}

static void test_json_wrong(void **state)
{
    (void)state;
    bad(traffic_from_json, "{\"t\":1,\"pth\":\"/\"}", "unknown field \"pth\"; allowed: t, method, path");
    bad(traffic_from_json, "{\"t\":1,\"user\":5}", "user: must be a string");
    bad(traffic_from_json, "{\"t\":1,\"cost\":-1}", "cost: must be a whole number from 0 to 9007199254740991");
    bad(traffic_from_json, "{\"t\":1,\"cost\":9007199254740992}", "cost: must be");
    bad(traffic_from_json, "{\"t\":1,\"cost\":1.5}", "cost: must be");
    bad(traffic_from_json, "{\"t\":1,\"peek\":1}", "peek: must be true or false");
    bad(traffic_from_json, "{\"t\":1,\"headers\":[]}", "headers: must be an object");
    bad(traffic_from_json, "{\"t\":1,\"headers\":{\"a\":1}}", "headers: must be an object of strings");
    bad(traffic_from_json, "{\"t\":1,\"t\":2}", "duplicate");
    bad(traffic_from_json, "{\"t\":1", "no JSON: column");
    bad(traffic_from_json, "{\"t\":1} x", "no JSON: column");
    bad(traffic_from_json, "[1]", "a line must be an object");
    bad(traffic_from_json, "{\"t\":1,\"path\":\"\xff\"}", "no JSON");
    bad(traffic_from_json, "{\"t\":1,\"path\":\"\\u0000\"}", "no JSON");
}

static void test_json_many_headers(void **state)
{
    (void)state;
    char text[4096] = "{\"t\":1,\"headers\":{\"a\":[";
    for (int i = 0; i < TRAFFIC_HEADERS_MAX; i++)
        strcat(text, "\"x\",");
    size_t len = strlen(text);
    strcpy(text + len - 1, "]}}");
    good(traffic_from_json, text);
    strcpy(text + len - 1, ",\"x\"]}}");
    bad(traffic_from_json, text, "headers: must be at most 256");
}

static void test_set_rules(void **state)
{
    (void)state;
    good(traffic_from_json, "{\"t\":1,\"set_rules\":[{\"id\":\"a\"}]}");
    assert_string_equal(traffic.set_rules, "[{\"id\":\"a\"}]");
    good(traffic_from_json, "{\"set_rules\":[],\"t\":\"2026-03-01T00:00:00Z\"}");
    assert_string_equal(traffic.set_rules, "[]");
    good(traffic_from_json, "{\"t\":1}");
    assert_null(traffic.set_rules);
    bad(traffic_from_json, "{\"t\":1,\"set_rules\":{}}", "set_rules: must be a list");
    bad(traffic_from_json, "{\"set_rules\":[]}", "set_rules: only t is allowed");
    bad(traffic_from_json, "{\"t\":1,\"set_rules\":[],\"path\":\"/\"}", "set_rules: only t is allowed");
    bad(traffic_from_json, "{\"t\":null,\"set_rules\":[]}", "t: must be");
}

#define AT "[10/Oct/2000:13:55:36 -0700]"

static void test_log_lines(void **state)
{
    (void)state;
    const struct weir_request *r = &traffic.request;
    good(traffic_from_log,
         "203.0.113.9 - alice " AT " \"POST /a b?c HTTP/1.1\" 200 2326 \"http://from/\" \"Mozilla/5.0 (X11)\"");
    assert_int_equal(traffic.now_us, INT64_C(971211336000000));
    assert_sv(r->ip, "203.0.113.9");
    assert_sv(r->user, "alice");
    assert_sv(r->method, "POST");
    assert_sv(r->path, "/a b?c");
    assert_int_equal(r->header_count, 2);
    assert_sv(r->headers[0].name, "referer");
    assert_sv(r->headers[0].value, "http://from/");
    assert_sv(r->headers[1].name, "user-agent");
    assert_sv(r->headers[1].value, "Mozilla/5.0 (X11)");
    good(traffic_from_log, "::1 - - " AT " \"GET / HTTP/2.0\" 304 -");
    assert_sv(r->ip, "::1");
    assert_int_equal(r->user.len, 0);
    assert_int_equal(r->header_count, 0);
    good(traffic_from_log, "::1 - - " AT " \"GET / HTTP/2.0\" 304 - \"-\" \"-\" \"10.0.0.1\" rt=0.003");
    assert_int_equal(r->header_count, 0);
    good(traffic_from_log, "::1 - [x] y " AT " \"GET /old\" 200 1");
    assert_sv(r->user, "[x] y");
    assert_sv(r->path, "/old");
    good(traffic_from_log, "::1 - - [2026-03-01T00:00:00+00:00] \"GET / HTTP/1.1\" 200 1");
    assert_int_equal(traffic.now_us, INT64_C(1772323200000000));
    good(traffic_from_log, "example.org:443 192.0.2.1 - bob " AT " \"GET / HTTP/1.1\" 200 1");
    assert_sv(r->host, "example.org:443");
    assert_sv(r->ip, "192.0.2.1");
    assert_sv(r->user, "bob");
}

static void test_log_request(void **state)
{
    (void)state;
    const struct weir_request *r = &traffic.request;
    good(traffic_from_log, "192.0.2.1 - - " AT " \"GET /\\x22\\\"\\\\\\t\\x4\\xzz HTTP/1.1\" 200 1");
    assert_sv(r->path, "/\"\"\\\tx4xzz");
    good(traffic_from_log, "192.0.2.1 - - " AT " \"GET http://example.org:8080/a?b HTTP/1.1\" 200 1");
    assert_sv(r->host, "example.org:8080");
    assert_sv(r->path, "/a?b");
    good(traffic_from_log, "192.0.2.1 - - " AT " \"GET https://example.org HTTP/1.1\" 200 1");
    assert_sv(r->host, "example.org");
    assert_sv(r->path, "/");
    good(traffic_from_log, "192.0.2.1 - - " AT " \"OPTIONS * HTTP/1.1\" 200 1");
    assert_sv(r->path, "*");
    static const char *const junk[] = {
        "-", "", "\\x16\\x03\\x01", "GET", "GET ", "hello world", " / HTTP/1.1", "G\\x00T / HTTP/1.1", "GET  HTTP/1.1"
    };
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "192.0.2.1 - - " AT " \"%s\" 400 0 \"-\" \"-\"", junk[i]);
        good(traffic_from_log, text);
        assert_sv(r->method, "");
        assert_sv(r->path, "");
        assert_sv(r->ip, "192.0.2.1");
    }
}

static void test_log_wrong(void **state)
{
    (void)state;
    bad(traffic_from_log, "hello", "not an access log line");
    bad(traffic_from_log, "{\"t\":1}", "not an access log line");
    bad(traffic_from_log, "192.0.2.1 - - [yesterday] \"GET / HTTP/1.1\" 200 1", "no time such as [10/Oct/2000");
    bad(traffic_from_log, "192.0.2.1 - - [10/Oct/1960:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1", "from 1970 to 2112");
    bad(traffic_from_log, "192.0.2.1 - - " AT " GET / HTTP/1.1 200 1", "no request in quotes");
    bad(traffic_from_log, "192.0.2.1 - - " AT " \"GET / HTTP/1.1", "no request in quotes");
    bad(traffic_from_log, "192.0.2.1 - - " AT " \"GET / HTTP/1.1\\\"", "no request in quotes");
    bad(traffic_from_log, "192.0.2.1 - - " AT " \"GET / HTTP/1.1\"", "no status");
    bad(traffic_from_log, "192.0.2.1 - - " AT " \"GET / HTTP/1.1\" OK 1", "no status");
    bad(traffic_from_log, " " AT " \"GET / HTTP/1.1\" 200 1", "no address");
    bad(traffic_from_log, "", "not an access log line");
}

static int done(void **state)
{
    (void)state;
    traffic_done(&traffic);
    free(line);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_request),      cmocka_unit_test(test_json_time), cmocka_unit_test(test_json_wrong),
        cmocka_unit_test(test_json_many_headers), cmocka_unit_test(test_set_rules), cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_log_request),       cmocka_unit_test(test_log_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, done);
}
