/* Conditions beyond one plain value: what holds for whom, and what a client can do about it. */
#include "apply.h"

#include <time.h>

#include "match/pattern.h"

#define RULE(id, rest) "- { id: " id ", limits: [1 per 1s], " rest " }\n"

static void test_texts(void **state)
{
    (void)state;
    use("rules:\n" RULE("list", "match: { user: [ann, bob, ann] }")
            RULE("others", "match: { user: { not: [ann, { prefix: b }] } }")
                RULE("some", "match: { user: { present: true } }") RULE("nobody", "match: { user: { absent: true } }")
                    RULE("some-others", "match: { user: { present: true, not: ann } }")
                        RULE("jobs", "match: { key: { prefix: job-, not: job-test } }")
                            RULE("eu", "match: { key: { glob: '*-eu' }, user: [ann, bob] }")
                                RULE("star", "match: { key: 'job-*' }")
                                    RULE("key", "match: { key: [a, b], event: { not: [ocr] } }"));
    check(" others nobody");
    check_user("ann", " list some");
    check_user("bob", " list some some-others");
    check_user("ben", " some some-others");
    check_user("Ann", " others some some-others");
    request.key = WEIR_STR("job-1-eu");
    check_user("ann", " list some jobs eu");
    check(" others nobody jobs");
    request.key = WEIR_STR("job-test");
    check(" others nobody");
    request.key = WEIR_STR("job-*");
    check(" others nobody jobs star");
    request.key = WEIR_STR("b");
    check(" others nobody key");
    request.event = WEIR_STR("ocr");
    check(" others nobody");
    assert_true(ruleset_wants_user(ruleset));
    for (enum attribute i = 0; i < ATTR_HEADER; i++)
        assert_int_equal(ruleset_looks_at(ruleset, i, SV(""), now_us), i == ATTR_USER || i == ATTR_KEY || i == ATTR_EVENT);
}

static void test_hosts(void **state)
{
    (void)state;
    use("rules:\n" RULE("below", "match: { host: '*.Example.com' }")
            RULE("both", "match: { host: [example.com, '*.example.com'] }") RULE("api", "match: { host: { prefix: api. } }")
                RULE("not", "match: { host: { not: [example.com, '[::1]'] } }"));
    static const char *const cases[][2] = {
        { "a.example.com", " below both not" },
        { "a.b.EXAMPLE.com.:80", " below both not" },
        { "example.com", " both" },
        { "xexample.com", " not" },
        { "api.example.com", " below both api not" },
        { "api.example.org", " api not" },
        { "[::1]:80", "" },
        { "", " not" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        request.host = weir_str(cases[i][0]);
        check(cases[i][1]);
    }
    /* No host is so long that its end does not count. */
    static const char *const ends[][2] = { { ".Example.com.:80", " below both not" },
                                           { ".example.org", " not" },
                                           { ".example.com.x", " not" } };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int length = FACTS_HOST_MAX - 20; length < FACTS_HOST_MAX + 20; length++) {
            char host[FACTS_HOST_MAX + 60];
            memset(host, 'a', (size_t)length);
            strcpy(host + length, ends[i][0]);
            request.host = weir_str(host);
            check(ends[i][1]);
        }
}

static void test_addresses(void **state)
{
    (void)state;
    use("settings: { trusted_proxies: 192.0.2.1 }\n"
        "rules:\n" RULE("inner", "match: { ip: [10.0.0.0/8, 'fd00::/8'] }")
            RULE("outer", "match: { ip: { not: [10.0.0.0/8, 'fd00::/8'] } }")
                RULE("some", "match: { ip: { is: 10.0.0.0/8, not: 10.0.0.1 } }")
                    RULE("whole", "match: { ip: '2001:db8::1' }") RULE("unknown", "match: { ip: { absent: true } }"));
    struct weir_header forwarded = { WEIR_STR("X-Forwarded-For"), WEIR_STR("10.9.9.9, 10.0.0.1") };
    check(" outer unknown");
    request.ip = WEIR_STR("10.2.3.4");
    check(" inner some");
    request.ip = WEIR_STR("::ffff:10.0.0.1");
    check(" inner");
    request.ip = WEIR_STR("2001:db8::2");
    check(" outer");
    request.ip = WEIR_STR("2001:db8:0::1");
    check(" outer whole");
    request.ip = WEIR_STR("nonsense");
    check(" outer unknown");
    request.ip = WEIR_STR("");
    request.peer = WEIR_STR("192.0.2.1");
    request.headers = &forwarded;
    request.header_count = 1;
    check(" inner");
    request.peer = WEIR_STR("192.0.2.2");
    check(" outer");
    assert_true(ruleset_looks_at(ruleset, ATTR_IP, SV(""), now_us));
}

/* A header that says two things is refused by every rule that looks at it, whatever the condition is. */
static void test_headers(void **state)
{
    (void)state;
    static const char *const yaml[] = {
        "X-A: [a, b]", "X-A: { not: a }", "X-A: { present: true }", "X-A: { absent: true }", "X-A: { glob: 'a*' }",
    };
    static const struct {
        const char *first, *second; /* NULL: it is there once */
        const char *holds;          /* by the number of the condition, with `refuse` */
    } cases[] = {
        { "a", NULL, "10101" },    { "b", NULL, "11100" },        { "", NULL, "01010" },      { " \t", NULL, "01010" },
        { "\ta ", NULL, "10101" }, { "a", " a", "10101" },        { "a", "b", "RRRRR" },      { "", "a", "RRRRR" },
        { "A", NULL, "01100" },    { "\xff\xfe", NULL, "01100" }, { "a\xff", NULL, "01101" },
    };
    for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++) {
        char text[200];
        snprintf(text, sizeof text, "rules:\n- { id: r, limits: [1 per 1s], match: { header: { %s } } }\n", yaml[i]);
        use(text);
        assert_true(ruleset_looks_at(ruleset, ATTR_HEADER, SV("x-a"), now_us));
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            struct weir_header headers[] = { { WEIR_STR("X-A"), weir_str(cases[k].first) },
                                             { WEIR_STR("x-a"), weir_str(cases[k].second) } };
            request.headers = headers;
            request.header_count = cases[k].second ? 2 : 1;
            struct facts facts;
            uint32_t found[1];
            facts_init(&facts, ruleset, &request, request.user);
            size_t count = ruleset_match(ruleset, &facts, now_us, found, 1);
            char got = facts.repeated.len ? 'R' : count ? '1' : '0';
            if (got != cases[k].holds[i])
                fail_msg("%s: case %zu: %c", yaml[i], k, got);
            sv detail;
            enum match_reason reason = ruleset_explain(ruleset, 0, &facts, now_us, &detail);
            assert_int_equal(reason == MATCH_YES ? '1' : reason == MATCH_REPEATED ? 'R' : '0', got);
        }
        request.header_count = 0;
        check(i == 1 || i == 3 ? " r" : "");
    }
}

static void test_case(void **state)
{
    (void)state;
    use("rules:\n" RULE("exact", "match: { header: { X-Plan: Free } }")
            RULE("any", "ignore_case: true, match: { header: { X-Plan: [Free, TRIAL, 'Ünder'] } }")
                RULE("not", "ignore_case: true, match: { header: { X-Plan: { present: true, not: FREE } } }")
                    RULE("begin", "ignore_case: true, match: { header: { X-Plan: { prefix: FR } } }")
                        RULE("glob", "ignore_case: true, match: { header: { X-Plan: { glob: 'F*eE' } } }")
                            RULE("user", "ignore_case: true, match: { user: FREE }"));
    static const char *const cases[][2] = {
        { "free", " any begin glob" }, { "Free", " exact any begin glob" },
        { "FREE", " any begin glob" }, { "trial", " any not" },
        { "fr", " not begin" },        { "ünder", " not" },
        { "ÜNDER", " any not" },       { "feE", " not glob" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir_header header = { WEIR_STR("x-plan"), weir_str(cases[i][0]) };
        request.headers = &header;
        request.header_count = 1;
        check_user("free", cases[i][1]);
    }
}

/* `not` holds in the reading that another condition on the path holds in, and nothing that is unsure keeps a rule away. */
static void test_paths(void **state)
{
    (void)state;
    use("rules:\n" RULE("api", "match: { path: { is: '/api/*', not: [/api/health, { regex: '/api/v[0-9]+/ping' }] } }")
            RULE("rest", "match: { path: { not: '/api/*' } }")
                RULE("bound", "match: { path: { not: { regex: '/(a+)+b' } } }")
                    RULE("some", "match: { path: { present: true } }") RULE("none", "match: { path: { absent: true } }")
                        RULE("by", "match: { path: { not: /x } }, by: [path]"));
    check(" rest bound none");
    static const char *const cases[][2] = {
        { "/api/users", " api bound some by" },
        { "/api/health", " bound some by" },
        { "/api//./health/", " bound some by" },
        { "/api/health;x", " api bound some by" }, /* another server takes it for another path */
        { "/api/v2/ping", " bound some by" },
        { "/x", " rest bound some" },
        { "/aaab", " rest some by" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        request.path = weir_str(cases[i][0]);
        check(cases[i][1]);
    }
    assert_true(ruleset_looks_at(ruleset, ATTR_PATH, SV(""), now_us));
    /* A path that is cut, and a regex that reaches its bound. */
    static char path[PATH_BYTES_MAX + 100];
    memset(path, 'a', sizeof path - 1);
    memcpy(path, "/api/", 5);
    request.path = weir_str(path);
    check(" api rest bound some by");
    char slow[] = "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac";
    request.path = weir_str(slow);
    check(" rest bound some by");
}

/* More methods than there are bits. */
static void test_methods(void **state)
{
    (void)state;
    struct buf yaml;
    buf_init(&yaml, 1 << 16);
    buf_add(&yaml, SV("rules:\n"));
    for (int i = 0; i < 40; i++)
        buf_printf(&yaml, RULE("m%d", "match: { method: [M%d, GET] }"), i, i);
    buf_add(&yaml,
            SV(RULE("not", "match: { method: { not: [GET, M39] } }") RULE("glob", "match: { method: { glob: 'M*9' } }")));
    buf_char(&yaml, '\0');
    use(yaml.ptr);
    buf_done(&yaml);
    request.method = WEIR_STR("M3");
    check(" m3 not");
    request.method = WEIR_STR("M39");
    check(" m39 glob");
    request.method = WEIR_STR("m39");
    check(" not");
}

/* A rule is found by each text of its lists, and its other conditions still count. */
static void test_lists_in_the_table(void **state)
{
    (void)state;
    enum { MANY = 500 };
    struct buf yaml;
    buf_init(&yaml, 1 << 20);
    buf_add(&yaml, SV("rules:\n"));
    for (int i = 0; i < MANY; i++) {
        buf_printf(&yaml, RULE("u%d", "match: { user: [a%d, b%d, all], event: { not: e%d } }"), i, i, i, i);
        buf_printf(&yaml, RULE("k%d", "match: { key: { is: [k%d, j%d, all], not: [j%d] }, path: '/*' }"), i, i, i, i);
    }
    struct ruleset *many = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    for (int i = 0; i < MANY; i += 13) {
        char user[20], key[20], event[20];
        snprintf(user, sizeof user, "%c%d", i % 2 ? 'a' : 'b', i);
        snprintf(key, sizeof key, "%c%d", i % 3 ? 'k' : 'j', i);
        snprintf(event, sizeof event, "e%d", i % 5 ? i + 1 : i);
        request = (struct weir_request){ .key = weir_str(key), .event = weir_str(event), .path = WEIR_STR("/x") };
        struct facts facts;
        uint32_t found[4];
        facts_init(&facts, many, &request, weir_str(user));
        size_t count = ruleset_match(many, &facts, now_us, found, 4), at = 0;
        if (i % 5)
            assert_int_equal(found[at++], 2 * i);
        if (i % 3)
            assert_int_equal(found[at++], 2 * i + 1);
        assert_int_equal(count, at);
    }
    ruleset_free(many);
}

/* Returns the rules that apply, as " 1 7", and checks them against the explanation of each. */
static const char *applying(const struct ruleset *many, const struct weir_request *asked)
{
    static char got[4000];
    static struct facts facts, again;
    uint32_t found[100];
    facts_init(&facts, many, asked, asked->user);
    facts_init(&again, many, asked, asked->user);
    size_t count = ruleset_match(many, &facts, now_us, found, 100), at = 0;
    bool repeated = false;
    got[0] = '\0';
    for (size_t i = 0; i < ruleset_rules(many)->rule_count; i++) {
        sv detail;
        enum match_reason reason = ruleset_explain(many, i, &again, now_us, &detail);
        assert_int_equal(reason == MATCH_YES, at < count && found[at] == i);
        repeated = repeated || reason == MATCH_REPEATED;
        if (reason == MATCH_YES)
            snprintf(got + strlen(got), sizeof got - strlen(got), " %u", found[at++]);
    }
    assert_int_equal(at, count);
    assert_int_equal(repeated, facts.repeated.len > 0);
    return got;
}

enum { MANY_RULES = 1000 };

static struct ruleset *many_rules(const char *settings, const char *match)
{
    struct buf yaml;
    buf_init(&yaml, 4 << 20);
    buf_printf(&yaml, "settings: { %s }\nrules:\n", settings);
    for (int i = 0; i < MANY_RULES; i++) {
        buf_printf(&yaml, "- { id: r%d, limits: [1 per 1s], ", i);
        for (const char *c = match; *c; c++)
            if (*c == '@')
                buf_printf(&yaml, "%d", i);
            else
                buf_char(&yaml, *c);
        buf_add(&yaml, SV(" }\n"));
    }
    struct ruleset *many = read_ruleset(buf_sv(&yaml));
    buf_done(&yaml);
    return many;
}

static void check_header(const struct ruleset *many, const char *name, const char *value, const char *second,
                         const char *want)
{
    const struct weir_header headers[] = { { WEIR_STR("Accept"), WEIR_STR("x") },
                                           { weir_str(name), weir_str(value) },
                                           { WEIR_STR("x-tenant"), weir_str(second ? second : "") } };
    struct weir_request asked = { .headers = headers, .header_count = second ? 3 : 2 };
    assert_string_equal(applying(many, &asked), want);
}

/* Many rules for values of one header: exactly, without case, and in a request that repeats it. */
static void test_many_values(void **state)
{
    (void)state;
    struct ruleset *many = many_rules("repeated_headers: refuse", "match: { header: { X-Tenant: [Tenant-@, all] } }");
    check_header(many, "X-TENANT", " Tenant-7\t", NULL, " 7");
    check_header(many, "X-TENANT", "tenant-7", NULL, "");
    check_header(many, "X-TENANT", "", NULL, "");
    check_header(many, "X-Tenants", "Tenant-7", NULL, "");
    check_header(many, "X-Tenant", "Tenant-7", "Tenant-7", " 7");
    check_header(many, "X-Tenant", "Tenant-7", "Tenant-8", "");
    check_header(many, "X-Tenant", "none", "nothing", "");
    ruleset_free(many);
    many = many_rules("repeated_headers: last", "match: { header: { X-Tenant: Tenant-@ } }, ignore_case: true");
    check_header(many, "X-Tenant", "TENANT-7", NULL, " 7");
    check_header(many, "X-Tenant", "TENANT-7", "tenant-999", " 999");
    check_header(many, "X-Tenant", "TENANT-7", "", " 7");
    char longer[RULE_TEXT_MAX + 20];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    check_header(many, "X-Tenant", longer, NULL, "");
    check_header(many, longer, "tenant-7", NULL, "");
    ruleset_free(many);
}

/* Many names of headers, of which one has to be there; and two headers, of which either may find the rule. */
static void test_many_headers(void **state)
{
    (void)state;
    struct ruleset *many = many_rules("", "match: { header: { X-@: { prefix: v, not: v2 } } }");
    check_header(many, "x-77", "v1", NULL, " 77");
    check_header(many, "x-77", "v2", NULL, "");
    check_header(many, "x-77", "w", NULL, "");
    check_header(many, "x-7777", "v", NULL, "");
    ruleset_free(many);
    many = many_rules("", "match: { header: { X-@: { present: true } } }");
    check_header(many, "x-77", "v1", NULL, " 77");
    check_header(many, "x-77", " ", NULL, "");
    ruleset_free(many);
    many = many_rules("", "match: { header: { Accept: x, X-@: v } }");
    check_header(many, "x-77", "v", NULL, " 77");
    check_header(many, "x-77", "w", NULL, "");
    ruleset_free(many);
    /* More of them than lists that a request merges. */
    many = many_rules("", "match: { header: { X-@: v } }");
    static struct weir_header headers[MANY_RULES];
    static char names[MANY_RULES][10];
    for (int i = 0; i < MANY_RULES; i++) {
        snprintf(names[i], sizeof names[i], "X-%d", i);
        headers[i] = (struct weir_header){ weir_str(names[i]), i % 50 == 7 ? SV("v") : SV("w") };
    }
    struct weir_request asked = { .headers = headers, .header_count = MANY_RULES };
    assert_string_equal(applying(many, &asked),
                        " 7 57 107 157 207 257 307 357 407 457 507 557 607 657 707 757 807 857 907 957");
    ruleset_free(many);
}

static void test_many_networks(void **state)
{
    (void)state;
    struct ruleset *many =
        many_rules("", "match: { ip: { is: ['2001:db8:@::/48', '2001:db9::@'], not: '2001:db8:7:7::/64' } }");
    static const char *const cases[][2] = {
        { "2001:db8:7::1", " 7" },
        { "2001:db8:7:7::1", "" },
        { "2001:db8:77::", " 77" },
        { "2001:db9::7", " 7" },
        { "2001:db9::1:7", "" },
        { "1.2.3.4", "" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weir_request asked = { .ip = weir_str(cases[i][0]) };
        assert_string_equal(applying(many, &asked), cases[i][1]);
    }
    ruleset_free(many);
    use("rules:\n" RULE("all", "match: { ip: '::/0' }") RULE("v4", "match: { ip: 0.0.0.0/0 }")
            RULE("ten", "match: { ip: [10.0.0.0/8, 11.1.1.1] }") RULE("one", "match: { ip: 10.1.1.1 }"));
    request.ip = WEIR_STR("10.1.1.1");
    check(" v4 ten one");
    request.ip = WEIR_STR("11.1.1.1");
    check(" v4 ten");
    request.ip = WEIR_STR("::1");
    check(" all");
}

static void check_path(const struct ruleset *many, const char *path, const char *want)
{
    struct weir_request asked = { .path = weir_str(path) };
    assert_string_equal(applying(many, &asked), want);
}

/* Many regexes: what they need finds them in whatever they are run on. */
static void test_many_regexes(void **state)
{
    (void)state;
    struct ruleset *many = many_rules("", "match: { path: { regex: '/api/v[0-9]+/item@/.*' } }");
    check_path(many, "/api/v1/item7/x", " 7");
    check_path(many, "/api/v1/item7", "");
    check_path(many, "/api/v1/item7//", " 7"); /* as a server has it that keeps slashes */
    check_path(many, "/api/v1/x%2F..%2Fitem7/x", " 7");
    check_path(many, "/api/v1/ITEM7/x", "");
    check_path(many, "/api/item7/item8/v1", "");
    check_path(many, "", "");
    ruleset_free(many);
    many = many_rules("ignore_case: true", "match: { path: { regex: '/(Item@|Thing@)(/.*)?' } }");
    check_path(many, "/iTEM7", " 7");
    check_path(many, "/thing999/x", " 999");
    ruleset_free(many);
    many = many_rules("", "match: { path: ['/t@/#', { regex: '/[a-z]/r@' }, { regex: '(?i)/I@/.*' }] }, by: [path]");
    check_path(many, "/t7/1", " 7");
    check_path(many, "/x/r7", " 7");
    check_path(many, "/i7/", " 7");
    check_path(many, "/t7/x", "");
    ruleset_free(many);
    /* One of them needs nothing that is known. */
    many = many_rules("", "match: { path: [{ regex: '/r@(?=x)x' }, { regex: '/s@' }] }");
    check_path(many, "/r7x", " 7");
    check_path(many, "/s7", " 7");
    ruleset_free(many);
}

/* Every regex matches a path that is cut. */
static void test_many_regexes_and_a_cut_path(void **state)
{
    (void)state;
    use("rules:\n" RULE("a", "match: { path: { regex: '/a1' } }") RULE("b", "match: { path: { regex: '/b1' } }")
            RULE("c", "match: { path: [/c, { regex: '/c1' }] }") RULE("d", "match: { path: /d }")
                RULE("e", "match: { path: { is: { regex: '/e1' }, not: /x } }"));
    static char path[PATH_BYTES_MAX + 100];
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    request.path = weir_str(path);
    check(" a b c e");
    request.path = WEIR_STR("/c");
    check(" c");
    request.path = WEIR_STR("/c1");
    check(" c");
}

/* ---- globs ---- */

static bool glob(const char *text, sv value, bool ignore_case)
{
    struct arena arena = { 0 };
    struct pattern pattern;
    struct rule_value from = { .kind = VALUE_GLOB, .text = weir_str(text) };
    assert_true(pattern_init(&pattern, &arena, &from, ignore_case));
    bool matches = pattern_matches(&pattern, value, ignore_case);
    arena_done(&arena);
    return matches;
}

static void test_globs(void **state)
{
    (void)state;
    static const struct {
        const char *glob, *text;
        bool matches;
    } cases[] = {
        { "a*", "a", true },
        { "a*", "ba", false },
        { "*a", "a", true },
        { "*a", "ab", false },
        { "a*a", "a", false },
        { "a*a", "aa", true },
        { "*ab*", "aab", true },
        { "*aab*", "aaab", true },
        { "*abab*c", "abaababc", true },
        { "*a*b*", "ba", false },
        { "a**b", "ab", true },
        { "*aba*aba*", "ababa", false },
        { "*aba*aba*", "abaaba", true },
        { "x*yz*", "xyz", true },
        { "*.b", ".b", true },
        { "a?c*", "abc", false },
        { "[a]*", "a", false },
        { "*\xff*", "a\xff\x80", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (glob(cases[i].glob, weir_str(cases[i].text), false) != cases[i].matches)
            fail_msg("%s %s", cases[i].glob, cases[i].text);
    assert_true(glob("*B*d", SV("aBxD"), true));
    assert_false(glob("*B*d", SV("abxd"), false));
}

/* Values that make a search go back again and again: a thousand bytes of pattern, a megabyte of value. */
static void test_globs_are_linear(void **state)
{
    (void)state;
    enum { LONG = 1 << 20 };
    char pattern[RULE_TEXT_MAX + 1] = "*";
    memset(pattern + 1, 'a', RULE_TEXT_MAX - 3);
    strcpy(pattern + RULE_TEXT_MAX - 2, "b*");
    char stars[RULE_TEXT_MAX + 1] = "";
    for (size_t i = 0; i + 4 < sizeof stars; i += 2)
        memcpy(stars + i, "*a", 3);
    strcat(stars, "*b");
    char *value = malloc(LONG);
    assert_non_null(value);
    memset(value, 'a', LONG);
    clock_t start = clock();
    for (int i = 0; i < 2; i++) {
        assert_false(glob(pattern, sv_of(value, LONG), i));
        assert_false(glob(stars, sv_of(value, LONG), i));
    }
    /* Some milliseconds; it would be minutes if time grew with the product, and for ever if it grew faster. */
    assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
    free(value);
}

static int forget(void **state)
{
    (void)state;
    ruleset_free(ruleset);
    ruleset = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_case),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_lists_in_the_table),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_many_headers),
        cmocka_unit_test(test_many_networks),
        cmocka_unit_test(test_many_regexes),
        cmocka_unit_test(test_many_regexes_and_a_cut_path),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_globs_are_linear),
    };
    return cmocka_run_group_tests_name("conditions", tests, NULL, forget);
}
