/* A verdict as HTTP: standard headers, refusals. */
#include "../engine/helpers.h"

/* ---- headers ---- */

/* "Name: value\n" for each. */
static void headers_text(const struct weir_header *headers, size_t count, char text[LINE_MAX_BYTES])
{
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), LINE_MAX_BYTES - strlen(text), "%.*s: %.*s\n", (int)headers[i].name.len,
                 headers[i].name.ptr, (int)headers[i].value.len, headers[i].value.ptr);
}

/* The last request that was asked with its usage. */
static struct weir_request last;
static struct weir_usage usage;

static struct weir_verdict ask(struct weir *weir, struct weir_request request)
{
    request.usage = &usage;
    last = request;
    return check_at(weir, request, NOW);
}

static void expect_headers(struct weir *weir, const struct weir_verdict *verdict, unsigned style, const char *expected)
{
    struct weir_headers headers;
    char text[LINE_MAX_BYTES];
    weir_headers(weir, &last, verdict, style, &headers);
    headers_text(headers.header, headers.count, text);
    assert_string_equal(text, expected);
    for (size_t i = 0; i < headers.count; i++)
        assert_int_equal(headers.header[i].value.ptr[headers.header[i].value.len], '\0');
}

static void headers_of_a_pass_and_a_refusal(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: [{ name: per user, max: 2, per: 2500ms }] }]");
    struct weir_verdict v = ask(weir, one("e", "k"));
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD,
                   "RateLimit-Policy: \"a/per user\";q=2;w=3\nRateLimit: \"a/per user\";r=1;t=2\n");
    expect_headers(weir, &v, WEIR_HEADERS_LEGACY, "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 2\n");
    expect_headers(weir, &v, 0, "");
    ask(weir, one("e", "k"));
    v = ask(weir, one("e", "k"));
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY,
                   "RateLimit-Policy: \"a/per user\";q=2;w=3\nRateLimit: \"a/per user\";r=0;t=2\n"
                   "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 3\nRetry-After: 2\n");
    expect_headers(weir, &v, WEIR_HEADERS_LEGACY,
                   "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 3\nRetry-After: 2\n");
    expect_headers(weir, &v, 0, "");
    /* Never: there is nothing to wait for. */
    v = ask(weir, cost_of("e", "k", 3));
    assert_int_equal(v.retry_after_ms, WEIR_NEVER);
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD,
                   "RateLimit-Policy: \"a/per user\";q=2;w=3\nRateLimit: \"a/per user\";r=0;t=2\n");
    weir_close(weir);
}

static void headers_of_other_windows(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, match: { event: d }, limits: [100 per day] }, "
                                   "{ id: b, match: { event: b }, limits: [2 per 1s burst 20] }, "
                                   "{ id: c, match: { event: c }, limits: [4294967295 per 3650d] }]");
    struct weir_verdict v = ask(weir, one("d", "k"));
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD,
                   "RateLimit-Policy: \"a/day\";q=100;w=86400\nRateLimit: \"a/day\";r=99;t=6400\n");
    last.usage = NULL; /* then only the verdict speaks */
    v.max = WEIR_AMOUNT_MAX;
    v.remaining = WEIR_AMOUNT_MAX - 1;
    expect_headers(
        weir, &v, WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY,
        "RateLimit-Policy: \"a/day\";q=999999999999999;w=86400\nRateLimit: \"a/day\";r=999999999999999\n"
        "X-RateLimit-Limit: 9007199254740991\nX-RateLimit-Remaining: 9007199254740990\nX-RateLimit-Reset: 6400\n");
    v = ask(weir, one("b", "k"));
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD,
                   "RateLimit-Policy: \"b/token_bucket\";q=20;w=10\nRateLimit: \"b/token_bucket\";r=19;t=1\n");
    v = ask(weir, one("c", "k"));
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD,
                   "RateLimit-Policy: \"c/token_bucket\";q=4294967295;w=315360000\n"
                   "RateLimit: \"c/token_bucket\";r=4294967294;t=1\n");
    v = ask(weir, one("none", "k"));
    expect_headers(weir, &v, WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY, "");
    weir_close(weir);
}

/* ---- refusals ---- */

static void expect_refusal(struct weir *weir, const char *event, unsigned status, const char *type, const char *body,
                           const char *headers)
{
    struct weir_verdict v = ask(weir, one(event, "k"));
    struct weir_request request = last;
    struct weir_refusal refusal;
    char text[LINE_MAX_BYTES];
    assert_false(v.allowed);
    assert_int_equal(weir_refuse(weir, &request, &v, &refusal), 0);
    assert_int_equal(refusal.status, status);
    assert_int_equal(v.status, status);
    assert_int_equal(refusal.content_type.len, strlen(type));
    assert_memory_equal(refusal.content_type.ptr, type, strlen(type));
    assert_int_equal(refusal.body.len, strlen(body));
    assert_memory_equal(refusal.body.ptr, body, strlen(body));
    headers_text(refusal.headers, refusal.header_count, text);
    assert_string_equal(text, headers);
}

#define PLAIN "text/plain; charset=utf-8"
#define TOO_MANY "Too many requests\n"
#define POLICY(id) "RateLimit-Policy: \"" id "/token_bucket\";q=0;w=9\n"
#define STANDARD(id) POLICY(id) "RateLimit: \"" id "/token_bucket\";r=0\n"
#define LEGACY "X-RateLimit-Limit: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0\n"
#define OWN "X-A: one\nx-ratelimit-limit: mine\nRateLimit: ours\n"
#define RULE(id, reject) "  - { id: " id ", match: { event: " id " }, limits: [0 per 9s], reject: {" reject "} }\n"

static void refusals_without_settings(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n" RULE("none", "") RULE("status", "status: 503") RULE("body", "body: '{}'")
                       RULE("type", "content_type: text/html") RULE("both", "body: '', content_type: a/b")
                           RULE("headers", "headers: { X-A: one, X-B: two }") RULE("own", "headers: { ratelimit: mine }"));
    expect_refusal(weir, "none", 429, PLAIN, TOO_MANY, STANDARD("none"));
    expect_refusal(weir, "status", 503, PLAIN, TOO_MANY, STANDARD("status"));
    expect_refusal(weir, "body", 429, PLAIN, "{}", STANDARD("body"));
    expect_refusal(weir, "type", 429, "text/html", TOO_MANY, STANDARD("type"));
    expect_refusal(weir, "both", 429, "a/b", "", STANDARD("both"));
    expect_refusal(weir, "headers", 429, PLAIN, TOO_MANY, "X-A: one\nX-B: two\n" STANDARD("headers"));
    /* What the rule says itself is not said twice. */
    expect_refusal(weir, "own", 429, PLAIN, TOO_MANY, "ratelimit: mine\n" POLICY("own"));
    weir_close(weir);
}

static void settings_stand_behind_each_field(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("settings: { reject: { status: 420, body: calm, content_type: a/b, headers: { X-S: s } } }\n"
                   "rules:\n" RULE("none", "") RULE("status", "status: 503") RULE("body", "body: no")
                       RULE("type", "content_type: c/d") RULE("headers", "headers: { X-A: one }"));
    expect_refusal(weir, "none", 420, "a/b", "calm", "X-S: s\n" STANDARD("none"));
    expect_refusal(weir, "status", 503, "a/b", "calm", "X-S: s\n" STANDARD("status"));
    expect_refusal(weir, "body", 420, PLAIN, "no", "X-S: s\n" STANDARD("body")); /* the settings' type is for their body */
    expect_refusal(weir, "type", 420, "c/d", "calm", "X-S: s\n" STANDARD("type"));
    expect_refusal(weir, "headers", 420, "a/b", "calm", "X-A: one\n" STANDARD("headers"));
    weir_close(weir);
}

static void a_wait_is_in_the_refusal(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: [1 per 90s], reject: { headers: { X-A: '1' } } }]");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 1), 1);
    expect_refusal(
        weir, "e", 429, PLAIN, TOO_MANY,
        "X-A: 1\nRateLimit-Policy: \"a/token_bucket\";q=1;w=90\nRateLimit: \"a/token_bucket\";r=0;t=90\nRetry-After: "
        "90\n");
    weir_close(weir);
}

static void expect_refusal_as(struct weir *weir, const char *event, unsigned style, const char *headers)
{
    struct weir_verdict v = ask(weir, one(event, "k"));
    struct weir_request request = last;
    struct weir_refusal refusal;
    char text[LINE_MAX_BYTES];
    assert_int_equal(weir_refuse_as(weir, &request, &v, style, &refusal), 0);
    assert_int_equal(refusal.status, 503);
    assert_int_equal(refusal.body.len, 2);
    assert_memory_equal(refusal.body.ptr, "no", 2);
    headers_text(refusal.headers, refusal.header_count, text);
    assert_string_equal(text, headers);
}

/* The rule's own headers are there in any style, and not said twice. */
static void refusals_of_a_style(void **state)
{
    (void)state;
    struct weir *weir = open_rules("settings: { reject: { status: 503, body: no } }\n"
                                   "rules:\n" RULE("none", "")
                                       RULE("own", "headers: { X-A: one, x-ratelimit-limit: mine, RateLimit: ours }"));
    struct weir_verdict passed = check_at(weir, one("another", "k"), NOW);
    struct weir_refusal refusal;
    expect_refusal_as(weir, "none", 0, "");
    expect_refusal_as(weir, "none", WEIR_HEADERS_STANDARD, STANDARD("none"));
    expect_refusal_as(weir, "none", WEIR_HEADERS_LEGACY, LEGACY);
    expect_refusal_as(weir, "none", WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY, STANDARD("none") LEGACY);
    expect_refusal_as(weir, "own", 0, OWN);
    expect_refusal_as(weir, "own", WEIR_HEADERS_STANDARD, OWN POLICY("own"));
    expect_refusal_as(weir, "own", WEIR_HEADERS_LEGACY, OWN "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0\n");
    /* One that was let through has no limit to speak of. */
    assert_int_equal(weir_refuse_as(weir, NULL, &passed, WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY, &refusal), 0);
    assert_int_equal(refusal.header_count, 0);
    weir_close(weir);
}

/* The verdict is of rules that have been replaced, or of another handle. */
static void verdicts_of_other_rules(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("x", "") RULE("a", "body: old, status: 501"));
    struct weir *other = open_rules("rules:\n" RULE("b", "body: other"));
    struct weir_request request = one("a", "k");
    struct weir_verdict v = check_at(weir, request, NOW);
    struct weir_refusal refusal;
    /* Another handle at the same version, with fewer rules. */
    assert_int_equal(weir_refuse(other, &request, &v, &refusal), 0);
    assert_memory_equal(refusal.body.ptr, TOO_MANY, refusal.body.len);
    set_rules(weir, "rules:\n" RULE("a", "body: new, status: 502"));
    assert_int_equal(weir_refuse(weir, &request, &v, &refusal), 0);
    assert_memory_equal(refusal.body.ptr, "new", 3);
    assert_int_equal(refusal.status, 501);
    set_rules(weir, "rules: []");
    assert_int_equal(weir_refuse(weir, &request, &v, &refusal), 0);
    assert_memory_equal(refusal.body.ptr, TOO_MANY, refusal.body.len);
    assert_int_equal(refusal.status, 501);
    weir_close(weir);
    weir_close(other);
}

static void a_refusal_outlives_its_rules(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n" RULE("a", "body: first, headers: { X-A: one }"));
    struct weir_request request = one("a", "k");
    struct weir_verdict v = check_at(weir, request, NOW);
    struct weir_refusal refusal;
    assert_int_equal(weir_refuse(weir, &request, &v, &refusal), 0);
    set_rules(weir, "rules: []");
    set_rules(weir, "rules: []");
    assert_memory_equal(refusal.body.ptr, "first", 5);
    assert_memory_equal(refusal.headers[0].name.ptr, "X-A", 3);
    weir_close(weir);
}

static void a_request_that_cannot_be_judged(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: []");
    struct weir_request request = one("a", "k");
    struct weir_verdict v;
    struct weir_refusal refusal;
    char text[LINE_MAX_BYTES];
    assert_int_equal(weir_check(weir, &request, -1, &v), WEIR_E_INVALID);
    assert_int_equal(weir_refuse(weir, &request, &v, &refusal), 0);
    assert_int_equal(refusal.status, 503);
    assert_memory_equal(refusal.body.ptr, "Could not be judged; try again later\n", refusal.body.len);
    assert_int_equal(refusal.header_count, 0);
    weir_verdict_json(&request, &v, text, sizeof text);
    assert_string_equal(
        text, "{\"allowed\":false,\"status\":503,\"rule\":null,\"limit\":null,\"max\":null,\"remaining\":null,\"reset_ms\":"
              "null,\"retry_after_ms\":0}");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_a_pass_and_a_refusal), cmocka_unit_test(headers_of_other_windows),
        cmocka_unit_test(refusals_without_settings),       cmocka_unit_test(settings_stand_behind_each_field),
        cmocka_unit_test(a_wait_is_in_the_refusal),        cmocka_unit_test(refusals_of_a_style),
        cmocka_unit_test(verdicts_of_other_rules),         cmocka_unit_test(a_refusal_outlives_its_rules),
        cmocka_unit_test(a_request_that_cannot_be_judged),
    };
    return cmocka_run_group_tests_name("present/answer", tests, NULL, NULL);
}
