/* The parts of a rule but its limits. */
#include "one_rule.h"

/* ---- the rule itself ---- */

static void the_least_rule(void **state)
{
    (void)state;
    struct reading r = rule_of("");
    const struct rule *rule = r.rules->rules[0];
    assert_text(rule->id, "a");
    assert_int_equal(rule->kind->mode, MODE_ENFORCE);
    assert_int_equal(rule->kind->rest->expires_us, RULE_NEVER_EXPIRES);
    assert_int_equal(rule->kind->by_count, 0);
    assert_int_equal(rule->kind->condition_count + rule->match.path_count + rule->match.not_path_count, 0);
    assert_false(rule->kind->ignore_case);
    assert_int_equal(rule->kind->rest->reject.status, 0);
    assert_false(rule->kind->rest->reject.has_body);
    reading_done(&r);
}

static void fields_without_a_value_are_not_there(void **state)
{
    (void)state;
    struct reading r =
        rule_of("ignore_case: , by: ~, mode: null, expires: , except: { ip: , user: }, reject: { status: , body: , "
                "content_type: , headers: }");
    assert_false(r.rules->rules[0]->kind->rest->reject.has_body);
    reading_done(&r);
}

static void bad_rules(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "rules: [ 5 ]", "f:1: rule #1: must be a mapping (field: value), not 5\n" },
        { "rules: [ ~ ]", "f:1: rule #1: must be a mapping (field: value), not nothing\n" },
        { "rules:\n- { limits: 1 per 1s }\n",
          "f:2: rule #1: needs `id`, which names it in verdicts and keeps its counts\n" },
        { "rules:\n- id: a\n", "f:2: rule a: needs `limits`, at least one, such as \"10 per 60s\"\n" },
        { "rules:\n- id: a\n  limit: 1 per 1s\n",
          "f:2: rule a: needs `limits`, at least one, such as \"10 per 60s\"\n"
          "f:3: rule a: unknown field \"limit\"; did you mean `limits`? Allowed: "
          "id, match, ignore_case, by, limits, plan, plans, mode, enabled, expires, except, "
          "reject, counters, lease, on_store_failure, penalty, hold_max, replaces\n" },
        { "rules:\n- id: a\n  limits: 1 per 1s\n  limits: 2 per 1s\n",
          "f:4: rule a: the field \"limits\" is given twice; the first is in line 3\n" },
        { "rules:\n- { id: a, limits: 1 per 1s }\n- { id: b, limits: 1 per 1s }\n- id: a\n  limits: 2 per 1s\n- { id: a, "
          "limits: "
          "3 per 1s }",
          "f:4: rule a: id: the rule in line 2 already has this id; ids must be unique\n"
          "f:6: rule a: id: the rule in line 2 already has this id; ids must be unique\n" },
        { "rules:\n- { id: '1', limits: 1 per 1s }\n- { id: 1, limits: 1 per 1s }\n",
          "f:3: rule 1: id: the rule in line 2 already has this id; ids must be unique\n" },
    };
    EXPECT_REPORTS(cases);
}

static void a_bad_rule_leaves_the_others(void **state)
{
    (void)state;
    struct reading r =
        reading_of(SV("rules:\n- { id: a, limits: 1 per 1s }\n- { id: b, limits: x }\n- { id: a, limits: 2 per 1s "
                      "}\n- { id: c, limits: 3 per 1s }\n"));
    assert_int_equal(r.rules->rule_count, 2);
    assert_text(r.rules->rules[0]->id, "a");
    assert_int_equal(r.rules->rules[0]->kind->limits[0].max, 1);
    assert_text(r.rules->rules[1]->id, "c");
    assert_int_equal(r.rules->rules[1]->line, 5);
    assert_int_equal(r.report.error_count, 2);
    assert_int_equal(r.report.bad_count, 2);
    assert_text(r.report.bad[0].id, "b");
    assert_int_equal(r.report.bad[0].before, 1);
    assert_text(r.report.bad[1].id, "a");
    assert_text(r.report.errors[0].rule, "b");
    assert_false(r.report.unreadable);
    reading_done(&r);
}

#define ID_ERROR "must have 1 to 100 bytes, no control characters, and no blank at either end, not "
#define TEN "0123456789"

static void ids(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "''", "f:1: rule #1: id: " ID_ERROR "\"\"\n" },
        { "' a'", "f:1: rule #1: id: " ID_ERROR "\" a\"\n" },
        { "\"a\\n\"", "f:1: rule #1: id: " ID_ERROR "\"a\\n\"\n" },
        { "\"a\\tb\"", "f:1: rule #1: id: " ID_ERROR "\"a\\tb\"\n" },
        { "\"a\\u0085b\"", "f:1: rule #1: id: " ID_ERROR "\"a\\u0085b\"\n" },
        { "[a]", "f:1: rule #1: id: must be text, not a list\n" },
        { "{a: b}", "f:1: rule #1: id: must be text, not a mapping\n" },
        { "x" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN,
          "f:1: rule #1: id: " ID_ERROR "\"x" TEN TEN TEN TEN TEN "012345678…\"\n" },
        { TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN, "" },
        { "a b/c:ü😀", "" },
        { "42", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, "rules: [ { id: %s, limits: 1 per 1s } ]", cases[i].text);
        expect_report(text, cases[i].report);
    }
}

/* ---- templates ---- */

static void good_templates(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        { "/", "/" },
        { "//", "/" },
        { "/a/", "/a" },
        { "//a///b//", "/a/b" },
        { "/repo/#/bundle", "/repo/#/bundle" },
        { "/u/{name}/{x-1.y_z}", "/u/{name}/{x-1.y_z}" },
        { "/files/*", "/files/*" },
        { "/*", "/*" },
        { "/files/*//", "/files/*" },
        { "/%61%2f%25%00", "/a%2F%25%00" },
        { "/%23/%7b%7d%2A%3f", "/%23/%7B%7D%2A%3F" },
        { "/a%20b", "/a b" },
        { "/ü/A.b~c", "/ü/A.b~c" },
        { "/...", "/..." },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[100];
        snprintf(text, sizeof text, "match: { path: '%s' }", good[i][0]);
        struct reading r = rule_of(text);
        assert_text(rule_path_text(rule_path(&r.rules->rules[0]->match, 0)), good[i][1]);
        reading_done(&r);
    }
    expect_rule("match: { path: '/users/:id' }",
                "f:1: rule a: advice: match.path: \":id\" is taken literally; write {name} for any one segment\n");
}

static void bad_templates(void **state)
{
    (void)state;
    static const char *const whole =
        "`#`, `{name}` and a final `*` stand for whole segments; use { regex: … } for parts of one";
    static const char *const dots = "a path must not contain `.` or `..` segments: they are resolved before matching";
    static const char *const query = "a path must not contain `?`: the query is removed before matching";
    static const char *const params = "a path must not contain `;`, encoded or not: parameters are removed before matching";
    static const char *const percent = "`%` must be followed by two hexadecimal digits; `%` itself is `%25`";
    static const char *const rest =
        "`*` stands for the rest of the path, so it must be the last segment; use `{name}` for one segment";
    const char *const bad[][2] = {
        { "a", "a path must begin with `/`" },
        { "*", "a path must begin with `/`" },
        { "/a#b", whole },
        { "/##", whole },
        { "/{a", whole },
        { "/a}", whole },
        { "/{}", whole },
        { "/{a}b", whole },
        { "/{a b}", whole },
        { "/{a:b}", whole },
        { "/a*", whole },
        { "/**", whole },
        { "/*/a", rest },
        { "/a?b=c", query },
        { "/a;b", params },
        { "/a%3bb", params },
        { "/a/./b", dots },
        { "/a/..", dots },
        { "/%2e%2E/b", dots },
        { "/100%", percent },
        { "/%zz", percent },
        { "/%1", percent },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[100], report[300];
        snprintf(text, sizeof text, "match: { path: '%s' }", bad[i][0]);
        snprintf(report, sizeof report, "f:1: rule a: match.path: \"%s\": %s\n", bad[i][0], bad[i][1]);
        expect_rule(text, report);
    }
}

/* ---- by ---- */

static void attributes(void **state)
{
    (void)state;
    struct reading r = rule_of("by: [ip, user, key, event, method, host, path, 'header:X-Tenant']");
    const struct rule *rule = r.rules->rules[0];
    static const enum attribute expected[] = { ATTR_IP,     ATTR_USER, ATTR_KEY,  ATTR_EVENT,
                                               ATTR_METHOD, ATTR_HOST, ATTR_PATH, ATTR_HEADER };
    assert_int_equal(rule->kind->by_count, 8);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(rule->kind->by[i].attribute, expected[i]);
    assert_text(rule->kind->by[7].name, "x-tenant");
    reading_done(&r);
    r = rule_of("by: route");
    assert_int_equal(r.rules->rules[0]->kind->by[0].attribute, ATTR_ROUTE);
    reading_done(&r);
    r = rule_of("by: []");
    assert_int_equal(r.rules->rules[0]->kind->by_count, 0);
    reading_done(&r);
}

static void bad_attributes(void **state)
{
    (void)state;
    static const struct report_case listed[] = {
        { "by: users",
          "f:1: rule a: by: must be %s, descriptor:KEY or header:NAME, not \"users\"; did you mean `user`?\n" },
        { "by: [ip, address]", "f:1: rule a: by[1]: must be %s, descriptor:KEY or header:NAME, not \"address\"\n" },
        { "by: peer", "f:1: rule a: by: must be %s, descriptor:KEY or header:NAME, not \"peer\"\n" },
        { "by: header", "f:1: rule a: by: must be %s, descriptor:KEY or header:NAME, not \"header\"\n" },
        { "by: 'header:'", "f:1: rule a: by: must be %s, descriptor:KEY or header:NAME, not \"header:\"\n" },
        { "by: 'header:a b'", "f:1: rule a: by: must be %s, descriptor:KEY or header:NAME, not \"header:a b\"\n" },
        { "by: { header: X }", "f:1: rule a: by: must be %s, descriptor:KEY or header:NAME, not a mapping\n" },
        { "by: [~]", "f:1: rule a: by[0]: must be %s, descriptor:KEY or header:NAME, not nothing\n" },
    };
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        expect_listed(listed[i].text, IN_BY, listed[i].report);
    static const struct report_case cases[] = {
        { "by: [user, ip, user]", "f:1: rule a: by[2]: \"user\" is given twice\n" },
        { "by: ['header:A', 'header:B', 'header:a']", "f:1: rule a: by[2]: \"header:a\" is given twice\n" },
        { "by: [ip, user, key, event, method, host, path, route, 'header:a']",
          "f:1: rule a: by: 9 are too many; at most 8\n" },
    };
    EXPECT_RULES(cases);
}

/* ---- mode and expires ---- */

static void modes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum rule_mode mode;
    } good[] = { { "enforce", MODE_ENFORCE }, { "shadow", MODE_SHADOW }, { "off", MODE_OFF },  { "Off", MODE_OFF },
                 { "false", MODE_OFF },       { "no", MODE_OFF },        { "'off'", MODE_OFF } };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[40];
        snprintf(text, sizeof text, "mode: %s", good[i].text);
        struct reading r = rule_of(text);
        assert_int_equal(r.rules->rules[0]->kind->mode, good[i].mode);
        reading_done(&r);
    }
    struct reading r = rule_of("mode: shadow, enabled: false");
    assert_int_equal(r.rules->rules[0]->kind->mode, MODE_OFF);
    assert_true(r.rules->rules[0]->kind->disabled);
    assert_int_equal(r.rules->rules[0]->kind->enabled_mode, MODE_SHADOW);
    reading_done(&r);
    r = rule_of("mode: shadow, enabled: true");
    assert_int_equal(r.rules->rules[0]->kind->mode, MODE_SHADOW);
    assert_false(r.rules->rules[0]->kind->disabled);
    reading_done(&r);
    static const struct report_case cases[] = {
        { "enabled: 0", "f:1: rule a: enabled: must be true or false, not 0\n" },
        { "enabled: shadow", "f:1: rule a: enabled: must be true or false, not \"shadow\"\n" },
        { "mode: true", "f:1: rule a: mode: must be enforce, shadow or off, not true\n" },
        { "mode: on", "f:1: rule a: mode: must be enforce, shadow or off, not on\n" },
        { "mode: Shadow", "f:1: rule a: mode: must be enforce, shadow or off, not \"Shadow\"; did you mean `shadow`?\n" },
        { "mode: [off]", "f:1: rule a: mode: must be enforce, shadow or off, not a list\n" },
    };
    EXPECT_RULES(cases);
}

#define INSTANT                                                                                                  \
    "must be a valid date and time such as 2027-01-01T00:00:00Z or 2027-01-01T08:00:00+08:00, or seconds since " \
    "1970, not "

static void good_instants(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {
        { "2027-01-01T00:00:00Z", 1798761600000000 },
        { "'2027-01-01t08:00:00.25+08:00'", 1798761600250000 },
        { "2027-01-01 00:00:00z", 1798761600000000 },
        { "2026-12-31T18:30:00-05:30", 1798761600000000 },
        { "2024-02-29T00:00:00Z", 1709164800000000 },
        { "2016-12-31T23:59:60Z", 1483228800000000 },
        { "1970-01-01T00:00:00Z", 0 },
        { "9999-12-31T23:59:59.9999999Z", 253402300799999999 },
        { "1798761600", 1798761600000000 },
        { "1798761600.5", 1798761600500000 },
        { "0", 0 },
        { "2000-02-29T12:00:00-00:00", 951825600000000 },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[60];
        snprintf(text, sizeof text, "expires: %s", good[i].text);
        struct reading r = rule_of(text);
        assert_int_equal(r.rules->rules[0]->kind->rest->expires_us, good[i].us);
        reading_done(&r);
    }
}

static void bad_instants(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "2027-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2027-13-01T00:00:00Z",
        "2027-01-01",
        "2027-01-01T00:00:00",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:60:00Z",
        "2027-01-01T00:00:60Z",
        "2027-01-01T00:00:00.Z",
        "2027-01-01T00:00:00+24:00",
        "2027-01-01T00:00:00Zx",
        "2027-1-1T00:00:00Z",
        "tomorrow",
        "2027-01-01T00:00:00+0800",
        "2027-00-01T00:00:00Z",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[60], report[300];
        snprintf(text, sizeof text, "expires: '%s'", bad[i]);
        snprintf(report, sizeof report, "f:1: rule a: expires: " INSTANT "\"%s\"\n", bad[i]);
        expect_rule(text, report);
    }
    static const struct report_case cases[] = {
        { "expires: -5", "f:1: rule a: expires: " INSTANT "-5\n" },
        { "expires: 1e9", "f:1: rule a: expires: " INSTANT "1e9\n" },
        { "expires: '1798761600'", "f:1: rule a: expires: " INSTANT "\"1798761600\"\n" },
        { "expires: [0]", "f:1: rule a: expires: " INSTANT "a list\n" },
        { "expires: 1798761600000", "f:1: rule a: expires: must be in the years 1970 to 9999, not 1798761600000 "
                                    "seconds; are they milliseconds?\n" },
        { "expires: 99999999999999999999", "f:1: rule a: expires: " INSTANT "99999999999999999999\n" },
        { "expires: 1969-12-31T23:59:59Z",
          "f:1: rule a: expires: must be in the years 1970 to 9999, not \"1969-12-31T23:59:59Z\"\n" },
        { "expires: 9999-12-31T23:59:59-01:00",
          "f:1: rule a: expires: must be in the years 1970 to 9999, not \"9999-12-31T23:59:59-01:00\"\n" },
    };
    EXPECT_RULES(cases);
}

/* ---- except and reject ---- */

static void exceptions(void **state)
{
    (void)state;
    struct reading r = rule_of("except: { ip: [10.0.0.0/8, 'fd00::/8', 1.2.3.4, 0.0.0.0/0], user: [root, 1001] }");
    const struct rule_except *e = &r.rules->rules[0]->kind->rest->except;
    assert_int_equal(e->ip_count, 4);
    assert_int_equal(e->ips[0].prefix, 104);
    assert_int_equal(e->ips[1].prefix, 8);
    assert_int_equal(e->ips[2].prefix, 128);
    assert_int_equal(e->ips[3].prefix, 96);
    assert_text(e->users[1], "1001");
    reading_done(&r);
    r = rule_of("except: { ip: '::1', user: a }");
    assert_int_equal(r.rules->rules[0]->kind->rest->except.ip_count + r.rules->rules[0]->kind->rest->except.user_count, 2);
    reading_done(&r);
    r = rule_of("except: { ip: [], user: [] }");
    reading_done(&r);
#define CIDR_ERROR "must be an address or a network such as 10.0.0.0/8 or fd00::/8, not "
    static const struct report_case cases[] = {
        { "except: [10.0.0.0/8]", "f:1: rule a: except: must be a mapping (field: value), not a list\n" },
        { "except: { users: a }",
          "f:1: rule a: except: unknown field \"users\"; did you mean `user`? Allowed: ip, user\n" },
        { "except: { ip: 10.0.0.0/33 }", "f:1: rule a: except.ip: " CIDR_ERROR "\"10.0.0.0/33\"\n" },
        { "except: { ip: ['::1', localhost, 10] }",
          "f:1: rule a: except.ip[1]: " CIDR_ERROR "\"localhost\"\nf:1: rule a: except.ip[2]: " CIDR_ERROR "10\n" },
        { "except: { ip: [[]] }", "f:1: rule a: except.ip[0]: " CIDR_ERROR "a list\n" },
        { "except: { user: [a, ~] }", "f:1: rule a: except.user[1]: must be text, not nothing\n" },
        { "except: { user: '' }", "f:1: rule a: except.user: must have 1 to 1000 bytes, not 0\n" },
    };
    EXPECT_RULES(cases);
}

static void refusals(void **state)
{
    (void)state;
    struct reading r =
        rule_of("reject: { status: 503, body: '', content_type: 'text/plain; charset=utf-8', headers: { X-Why: "
                "slow, Link: '<a>; rel=help' } }");
    const struct rule_reject *j = &r.rules->rules[0]->kind->rest->reject;
    assert_int_equal(j->status, 503);
    assert_true(j->has_body);
    assert_int_equal(j->body.len, 0);
    assert_text(j->content_type, "text/plain; charset=utf-8");
    assert_int_equal(j->header_count, 2);
    assert_text(j->headers[0].name, "X-Why");
    assert_text(j->headers[1].value, "<a>; rel=help");
    reading_done(&r);
    r = rule_of("reject: { body: 42 }");
    assert_text(r.rules->rules[0]->kind->rest->reject.body, "42");
    reading_done(&r);
    static const struct report_case cases[] = {
        { "reject: 503", "f:1: rule a: reject: must be a mapping (field: value), not 503\n" },
        { "reject: { status: 399 }", "f:1: rule a: reject.status: must be a whole number from 400 to 599, not 399\n" },
        { "reject: { status: 600 }", "f:1: rule a: reject.status: must be a whole number from 400 to 599, not 600\n" },
        { "reject: { statsu: 429 }",
          "f:1: rule a: reject: unknown field \"statsu\"; did you mean `status`? Allowed: status, body, "
          "content_type, headers\n" },
        { "reject: { body: {} }", "f:1: rule a: reject.body: must be text, not a mapping\n" },
        { "reject: { content_type: json }",
          "f:1: rule a: reject.content_type: must be a media type such as application/json, not \"json\"\n" },
        { "reject: { content_type: \"a/b\\r\\nX: y\" }",
          "f:1: rule a: reject.content_type: must be a media type such as application/json, not \"a/b\\u000d\\nX: y\"\n" },
        { "reject: { headers: { X: \"a\\nb\" } }", "f:1: rule a: reject.headers.X: the value of a header must not contain "
                                                   "line breaks or other control characters\n" },
        { "reject: { headers: { 'X:': b } }",
          "f:1: rule a: reject.headers: the name of a header must have 1 to 100 letters, "
          "digits or any of !#$%&'*+-.^_`|~, not "
          "\"X:\"\n" },
        { "reject: { headers: { Content-Length: 5 } }",
          "f:1: rule a: reject.headers: Content-Length is set by the server\n" },
        { "reject: { headers: { content-type: a/b } }",
          "f:1: rule a: reject.headers: content-type is set by `content_type`\n" },
    };
    EXPECT_RULES(cases);
}

/* ---- bounds ---- */

static void repeat(struct buf *text, const char *before, int count, const char *what, const char *after)
{
    buf_init(text, 16 << 20);
    buf_add(text, weir_str(before));
    for (int i = 0; i < count; i++)
        buf_add(text, weir_str(what));
    buf_add(text, weir_str(after));
}

static void lists_and_texts_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *before, *what, *after;
        int max;
        const char *report;
    } cases[] = {
        { "match: { method: [", "GET,", "] }", RULE_METHODS_MAX, "match.method: 33 are too many; at most 32" },
        { "match: { path: [", "/a,", "] }", RULE_PATHS_MAX, "match.path: 1001 are too many; at most 1000" },
        { "except: { ip: [", "'::1',", "] }", RULE_EXCEPT_MAX, "except.ip: 10001 are too many; at most 10000" },
        { "except: { user: [", "u,", "] }", RULE_EXCEPT_MAX, "except.user: 10001 are too many; at most 10000" },
        { "match: { event: ", "e", " }", RULE_TEXT_MAX, "match.event: must have 1 to 1000 bytes, not 1001" },
        { "match: { host: ", "h", " }", 255, "match.host: must have 1 to 255 bytes, not 256" },
        { "match: { method: ", "m", " }", RULE_NAME_MAX, "match.method: must have 1 to 100 bytes, not 101" },
        { "match: { path: ", "/", " }", RULE_PATH_MAX, "match.path: must have 1 to 4096 bytes, not 4097" },
        { "match: { path: { regex: ", "a", " } }", RULE_PATH_MAX, "match.path.regex: must have 1 to 4096 bytes, not 4097" },
        { "match: { header: { X: ", "v", " } }", RULE_TEXT_MAX, "match.header.X: must have 1 to 1000 bytes, not 1001" },
        { "reject: { body: ", "b", " }", RULE_BODY_MAX, "reject.body: must have 0 to 65536 bytes, not 65537" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf text;
        repeat(&text, cases[i].before, cases[i].max, cases[i].what, cases[i].after);
        struct reading r = rule_of(text.ptr);
        reading_done(&r);
        buf_done(&text);
        char report[200];
        snprintf(report, sizeof report, "f:1: rule a: %s\n", cases[i].report);
        repeat(&text, cases[i].before, cases[i].max + 1, cases[i].what, cases[i].after);
        expect_rule(text.ptr, report);
        buf_done(&text);
    }
    struct buf text;
    buf_init(&text, 10000);
    buf_add(&text, SV("match: { header: {"));
    for (int i = 0; i <= RULE_HEADERS_MAX; i++)
        buf_printf(&text, "h%d: v,", i);
    buf_add(&text, SV("} }"));
    expect_rule(text.ptr, "f:1: rule a: match.header: 33 headers are too many; at most 32\n");
    buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_rule),
        cmocka_unit_test(fields_without_a_value_are_not_there),
        cmocka_unit_test(bad_rules),
        cmocka_unit_test(a_bad_rule_leaves_the_others),
        cmocka_unit_test(ids),
        cmocka_unit_test(good_templates),
        cmocka_unit_test(bad_templates),
        cmocka_unit_test(attributes),
        cmocka_unit_test(bad_attributes),
        cmocka_unit_test(modes),
        cmocka_unit_test(good_instants),
        cmocka_unit_test(bad_instants),
        cmocka_unit_test(exceptions),
        cmocka_unit_test(refusals),
        cmocka_unit_test(lists_and_texts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
