/* JSON requests: what is read, and what is said about mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "serve/ask.h"

static void check_text(sv found, const char *want)
{
    assert_int_equal(found.len, strlen(want));
    assert_memory_equal(found.ptr, want, found.len);
}

static void read_good(struct ask *ask, sv text)
{
    char why[ASK_WHY_MAX] = "";
    unsigned status = ask_read(ask, text, ASK_CHECK, why);
    if (status)
        fail_msg("%.*s: %u %s", SV_FMT(text), status, why);
}

static void check_bad(const char *text, unsigned want_status, const char *want)
{
    struct ask ask;
    char why[ASK_WHY_MAX] = "";
    /* A copy without NUL behind it, so that a sanitizer sees a step too far. */
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    unsigned status = ask_read(&ask, sv_of(copy, len), ASK_CHECK, why);
    if (status != want_status || strcmp(why, want) != 0)
        fail_msg("%s\n  found  %u %s\n  wanted %u %s", text, status, why, want_status, want);
    free(copy);
}

static void test_all_fields(void **state)
{
    (void)state;
    struct ask ask;
    read_good(&ask,
              SV("{\"method\": \"GET\", \"path\": \"/a?b\", \"host\": \"h\", \"ip\": \"1.2.3.4\", \"peer\": \"::1\",\n"
                 " \"user\": \"u\", \"event\": \"e\", \"key\": \"k\", \"cost\": 9007199254740991, \"peek\": true,\r\n"
                 "\t\"headers\": {\"X-A\": \"1\", \"X-B\": [\"2\", \"3\"]}} "));
    const struct weir_request *r = ask.requests;
    assert_false(ask.many);
    assert_int_equal(ask.count, 1);
    check_text(r->method, "GET");
    check_text(r->path, "/a?b");
    check_text(r->host, "h");
    check_text(r->ip, "1.2.3.4");
    check_text(r->peer, "::1");
    check_text(r->user, "u");
    check_text(r->event, "e");
    check_text(r->key, "k");
    assert_int_equal(r->cost, WEIR_AMOUNT_MAX);
    assert_true(r->peek);
    assert_int_equal(r->header_count, 3);
    check_text(r->headers[0].name, "X-A");
    check_text(r->headers[1].name, "X-B");
    check_text(r->headers[2].name, "X-B");
    check_text(r->headers[2].value, "3");
    ask_done(&ask);
    ask_done(NULL);
}

static void test_left_out(void **state)
{
    (void)state;
    struct ask ask;
    read_good(&ask, SV("{}"));
    assert_int_equal(ask.requests->cost, 1);
    assert_false(ask.requests->peek);
    assert_int_equal(ask.requests->path.len, 0);
    ask_done(&ask);
    read_good(&ask, SV("{\"path\":null,\"headers\":null,\"cost\":0,\"peek\":false}"));
    assert_int_equal(ask.requests->path.len, 0);
    assert_int_equal(ask.requests->header_count, 0);
    assert_int_equal(ask.requests->cost, 0);
    ask_done(&ask);
    read_good(&ask, SV("{\"cost\":null,\"peek\":null,\"ip\":null,\"peer\":\"\"}"));
    assert_int_equal(ask.requests->cost, 1);
    assert_false(ask.requests->peek);
    assert_int_equal(ask.requests->ip.len, 0);
    ask_done(&ask);
}

static void test_addresses(void **state)
{
    (void)state;
    const char *good[] = { "1.2.3.4", "1.2.3.4:80", "::1", "[2001:db8::1]:443", "::ffff:1.2.3.4", "" };
    const char *bad[] = { "zz", "999.1.1.1", "1.2.3.4,5.6.7.8", "1.2.3.4, 5.6.7.8", "10.0.0.0/8", "localhost", "unix:" };
    const char *names[] = { "ip", "peer" };
    char text[100], want[ASK_WHY_MAX];
    for (size_t n = 0; n < 2; n++) {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            struct ask ask;
            snprintf(text, sizeof text, "{\"%s\":\"%s\"}", names[n], good[i]);
            read_good(&ask, weir_str(text));
            check_text(n == 0 ? ask.requests->ip : ask.requests->peer, good[i]);
            ask_done(&ask);
        }
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            snprintf(text, sizeof text, "[{},{\"%s\":\"%s\"}]", names[n], bad[i]);
            snprintf(
                want, sizeof want,
                "request [1]: %s: must be one IPv4 or IPv6 address; put a whole X-Forwarded-For into headers, and into "
                "peer the address that sent it",
                names[n]);
            check_bad(text, 400, want);
        }
    }
    check_bad("{\"ip\":7}", 400, "ip: must be a string");
}

static void test_lists(void **state)
{
    (void)state;
    struct ask ask;
    read_good(&ask, SV("[]"));
    assert_true(ask.many);
    assert_int_equal(ask.count, 0);
    ask_done(&ask);
    read_good(&ask,
              SV("[{\"headers\":{\"A\":\"1\"}}, {\"key\":\"k\"}, {\"headers\":{\"B\":\"2\",\"A\":\"3\"},\"cost\":7}]"));
    assert_int_equal(ask.count, 3);
    check_text(ask.requests[0].headers[0].value, "1");
    assert_int_equal(ask.requests[1].header_count, 0);
    assert_int_equal(ask.requests[1].cost, 1);
    check_text(ask.requests[2].headers[0].name, "B");
    check_text(ask.requests[2].headers[1].value, "3");
    assert_int_equal(ask.requests[2].cost, 7);
    ask_done(&ask);
}

static void add_list(struct buf *text, size_t count, const char *item)
{
    buf_init(text, 1 << 20);
    buf_char(text, '[');
    for (size_t i = 0; i < count; i++)
        buf_printf(text, i ? ",%s" : "%s", item);
    buf_char(text, ']');
    assert_false(text->failed);
}

static void test_many(void **state)
{
    (void)state;
    struct ask ask;
    struct buf text;
    char why[ASK_WHY_MAX];
    add_list(&text, ASK_REQUESTS_MAX, "{\"key\":\"\\u00e9\",\"headers\":{\"a\":\"1\",\"b\":\"2\"}}");
    read_good(&ask, buf_sv(&text));
    assert_int_equal(ask.count, ASK_REQUESTS_MAX);
    for (size_t i = 0; i < ask.count; i++) {
        check_text(ask.requests[i].key, "é");
        assert_int_equal(ask.requests[i].header_count, 2);
        check_text(ask.requests[i].headers[1].value, "2");
    }
    ask_done(&ask);
    buf_done(&text);
    add_list(&text, ASK_REQUESTS_MAX + 1, "{}");
    assert_int_equal(ask_read(&ask, buf_sv(&text), ASK_CHECK, why), 413);
    assert_string_equal(why, "at most 1000 requests are allowed in one list");
    buf_done(&text);
}

static void add_headers(struct buf *text, unsigned count)
{
    buf_init(text, 1 << 20);
    buf_add(text, SV("{\"headers\":{"));
    for (unsigned i = 0; i < count; i++)
        buf_printf(text, "%s\"x-%u\":\"%u\"", i ? "," : "", i, i);
    buf_add(text, SV("}}"));
}

static void test_header_bounds(void **state)
{
    (void)state;
    struct ask ask;
    struct buf text;
    char why[ASK_WHY_MAX];
    add_headers(&text, ASK_HEADERS_MAX);
    read_good(&ask, buf_sv(&text));
    assert_int_equal(ask.requests->header_count, ASK_HEADERS_MAX);
    check_text(ask.requests->headers[99].name, "x-99");
    ask_done(&ask);
    buf_done(&text);
    add_headers(&text, ASK_HEADERS_MAX + 1);
    assert_int_equal(ask_read(&ask, buf_sv(&text), ASK_CHECK, why), 400);
    assert_string_equal(why, "headers: at most 100 are allowed");
    buf_done(&text);
}

static void test_strings(void **state)
{
    (void)state;
    struct ask ask;
    read_good(
        &ask,
        SV("{\"key\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00fc\\u20ac\\ud83d\\ude00é€😀\",\"\\u0075ser\":\"\\u0001\"}"));
    check_text(ask.requests->key, "\"\\/\b\f\n\r\tAü€😀é€😀");
    check_text(ask.requests->user, "\x01");
    ask_done(&ask);
    read_good(&ask, SV("{\"key\":\"\"}"));
    check_text(ask.requests->key, "");
    ask_done(&ask);
}

static void test_bad_values(void **state)
{
    (void)state;
    static const char cost[] = "cost: must be a whole number from 0 to 9007199254740991";
    const char *costs[] = {
        "-1", "1.0", "1e3", "9007199254740992", "99999999999999999999", "\"1\"", "01", "nul", "+1", ""
    };
    char text[64];
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        snprintf(text, sizeof text, "{\"cost\":%s}", costs[i]);
        check_bad(text, 400, cost);
    }
    check_bad("{\"path\":1}", 400, "path: must be a string");
    check_bad("{\"user\":{}}", 400, "user: must be a string");
    check_bad("{\"peek\":1}", 400, "peek: must be true or false");
    check_bad("{\"peek\":\"\"}", 400, "peek: must be true or false");
    check_bad("{\"headers\":[]}", 400, "headers: must be an object: {\"X-Name\": \"value\"}");
    check_bad("{\"headers\":{\"a\":1}}", 400,
              "headers: must be an object of strings, or of lists of strings where a header is repeated");
    check_bad("{\"headers\":{\"a\":[null]}}", 400,
              "headers: must be an object of strings, or of lists of strings where a header is repeated");
    check_bad("{\"headers\":{\"a\":[]}}", 400, "headers: a list must have a value");
    check_bad("{\"headers\":{\"a\":\"1\",\"\\u0061\":\"2\"}}", 400,
              "headers: \"a\" is given twice; send a list of its values");
    check_bad("{\"key\":\"a\",\"key\":\"a\"}", 400, "key: is given twice");
    check_bad("{\"Path\":\"/\"}", 400, "unknown field \"Path\"; allowed: " ASK_FIELDS);
    check_bad("{\"costs\":{\"tokens\":-1}}", 400, "costs: \"tokens\" must be a whole number from 0 to 9007199254740991");
    check_bad("{\"costs\":{\"tokens\":1,\"tokens\":2}}", 400, "costs: \"tokens\" is given twice");
    check_bad("{\"costs\":{\"requests\":1,\"requests\":2}}", 400, "costs: \"requests\" is given twice");
    check_bad("{\"costs\":{\"a b\":1}}", 400,
              "costs: \"a b\" is not the name of a unit: letters, digits, `_`, `-` and `.`, 1 to 50 bytes");
    check_bad("{\"costs\":{\"\":1}}", 400,
              "costs: \"\" is not the name of a unit: letters, digits, `_`, `-` and `.`, 1 to 50 bytes");
    check_bad("{\"costs\":[]}", 400, "costs: must be an object: {\"requests\": 1, \"tokens\": 1200}");
    check_bad("{\"cost\":1,\"costs\":{}}", 400, "costs: cannot be combined with cost; write that as \"requests\" here");
    check_bad("{\"costs\":{},\"cost\":1}", 400, "cost: cannot be combined with costs; write it as \"requests\" there");
    check_bad("[{},{\"cost\":-1}]", 400, "request [1]: cost: must be a whole number from 0 to 9007199254740991");
    check_bad("[{},1]", 400, "request [1]: a request must be an object: {\"event\": \"ocr\", \"key\": \"u1\"}");
    check_bad("[[]]", 400, "request [0]: a request must be an object: {\"event\": \"ocr\", \"key\": \"u1\"}");
    check_bad("\"a\"", 400, "a request must be an object: {\"event\": \"ocr\", \"key\": \"u1\"}");
    check_bad("", 400, "a request must be an object: {\"event\": \"ocr\", \"key\": \"u1\"}");
}

static void test_no_json(void **state)
{
    (void)state;
    check_bad("{", 400, "not JSON: byte 2: a name in quotes is missing");
    check_bad("{\"key\"", 400, "not JSON: byte 7: a colon is missing");
    check_bad("{\"key\":\"a\"", 400, "not JSON: byte 11: a comma or } is missing");
    check_bad("{\"key\":\"a\",}", 400, "not JSON: byte 12: a name in quotes is missing");
    check_bad("{\"key\":nullx}", 400, "not JSON: byte 12: a comma or } is missing");
    check_bad("{} {}", 400, "not JSON: byte 4: unexpected text after the end");
    check_bad("[{}", 400, "request [0]: not JSON: byte 4: a comma or ] is missing");
    check_bad("{\"key\":\"a", 400, "not JSON: byte 10: the string does not end");
    check_bad("{\"key\":\"\\", 400, "not JSON: byte 10: one of \" \\ / b f n r t u has to follow a backslash");
    check_bad("{\"key\":\"\\x\"}", 400, "not JSON: byte 10: one of \" \\ / b f n r t u has to follow a backslash");
    check_bad("{\"key\":\"\\u00g0\"}", 400, "not JSON: byte 13: four hexadecimal digits have to follow \\u");
    check_bad("{\"key\":\"\\u0", 400, "not JSON: byte 12: four hexadecimal digits have to follow \\u");
    check_bad("{\"key\":\"\\ud800\"}", 400, "not JSON: byte 15: the second half of a surrogate pair is missing");
    check_bad("{\"key\":\"\\ud800 \\udc00\"}", 400, "not JSON: byte 15: the second half of a surrogate pair is missing");
    check_bad("{\"key\":\"\\ud800\\ud800\"}", 400,
              "not JSON: byte 21: NUL and half a surrogate pair are not allowed in a string");
    check_bad("{\"key\":\"\\udc00\"}", 400, "not JSON: byte 15: NUL and half a surrogate pair are not allowed in a string");
    check_bad("{\"key\":\"\\u0000\"}", 400, "not JSON: byte 15: NUL and half a surrogate pair are not allowed in a string");
    check_bad("{\"key\":\"\n\"}", 400, "not JSON: byte 9: a control character in a string has to be escaped");
    check_bad("{\"key\":\"\xff\"}", 400, "not JSON: byte 9: this is not UTF-8");
    check_bad("{\"key\":\"\xc3", 400, "not JSON: byte 9: this is not UTF-8");
}

static void test_nul(void **state)
{
    (void)state;
    struct ask ask;
    char why[ASK_WHY_MAX];
    assert_int_equal(ask_read(&ask, SV("{}\0"), ASK_CHECK, why), 400);
    assert_int_equal(ask_read(&ask, SV("\0{}"), ASK_CHECK, why), 400);
    assert_int_equal(ask_read(&ask, SV("{\"key\":\"a\0b\"}"), ASK_CHECK, why), 400);
    assert_int_equal(ask_read(&ask, SV("{\"key\":\"\\\0\"}"), ASK_CHECK, why), 400);
}

/* Whatever is cut off a good text makes it a bad one, and is not looked at. */
static void test_cut(void **state)
{
    (void)state;
    static const char text[] = "[{\"key\":\"a\\u00e9\\ud83d\\ude00é\",\"cost\":12,\"peek\":true},"
                               "{\"headers\":{\"a\":[\"b\",\"c\"],\"d\":\"\\n\"},\"user\":null}]";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        struct ask ask;
        char why[ASK_WHY_MAX], *copy = malloc(len ? len : 1);
        assert_non_null(copy);
        memcpy(copy, text, len);
        assert_int_equal(ask_read(&ask, sv_of(copy, len), ASK_CHECK, why), 400);
        free(copy);
    }
}

static void test_costs(void **state)
{
    (void)state;
    static struct ask ask;
    char why[ASK_WHY_MAX];
    const char *text = "[{\"costs\":{\"tokens\":5,\"requests\":2,\"bytes\":9007199254740991}},{},{\"costs\":{}},"
                       "{\"costs\":{\"a\":1}},{\"costs\":null,\"cost\":3},{\"cost\":null,\"costs\":{\"b\":7}}]";
    assert_int_equal(ask_read(&ask, weir_str(text), ASK_CHECK, why), 0);
    assert_int_equal(ask.count, 6);
    const struct weir_request *r = ask.requests;
    assert_int_equal(r[0].cost, 2);
    assert_int_equal(r[0].cost_count, 2);
    assert_true(sv_eq(r[0].costs[0].unit, SV("tokens")) && r[0].costs[0].amount == 5);
    assert_true(sv_eq(r[0].costs[1].unit, SV("bytes")) && r[0].costs[1].amount == WEIR_AMOUNT_MAX);
    assert_true(r[1].cost == 1 && r[1].cost_count == 0);
    assert_true(r[2].cost == 0 && r[2].cost_count == 0);
    assert_true(r[3].cost == 0 && r[3].cost_count == 1 && sv_eq(r[3].costs[0].unit, SV("a")));
    assert_true(r[4].cost == 3 && r[4].cost_count == 0);
    assert_true(r[5].cost == 0 && r[5].cost_count == 1 && r[5].costs[0].amount == 7);
    ask_done(&ask);
    /* As many as are allowed, in each of many requests. */
    char many[8000] = "[", *to = many + 1;
    for (int i = 0; i < 20; i++) {
        to += sprintf(to, "%s{\"costs\":{", i ? "," : "");
        for (int k = 0; k < WEIR_COSTS_MAX; k++)
            to += sprintf(to, "%s\"u%d\":%d", k ? "," : "", k, 100 * i + k);
        to += sprintf(to, "}}");
    }
    strcpy(to, "]");
    assert_int_equal(ask_read(&ask, weir_str(many), ASK_CHECK, why), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ask.requests[i].costs[15].amount, 100 * i + 15);
    ask_done(&ask);
    to = many + sprintf(many, "{\"costs\":{\"requests\":1");
    for (int k = 0; k < WEIR_COSTS_MAX + 1; k++)
        to += sprintf(to, ",\"u%d\":1", k);
    strcpy(to, "}}");
    assert_int_equal(ask_read(&ask, weir_str(many), ASK_CHECK, why), 400);
    assert_non_null(strstr(why, "\"u16\" is too many"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fields), cmocka_unit_test(test_addresses),  cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_lists),      cmocka_unit_test(test_many),       cmocka_unit_test(test_header_bounds),
        cmocka_unit_test(test_strings),    cmocka_unit_test(test_bad_values), cmocka_unit_test(test_no_json),
        cmocka_unit_test(test_nul),        cmocka_unit_test(test_cut),        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
