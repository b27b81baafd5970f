/* Which rules apply to a request, condition by condition. */
#include "apply.h"

static void check_path(const char *path, const char *want)
{
    request.path = weir_str(path);
    check(want);
}

static void test_templates(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: bundle, match: { path: '/repo/v1/entity/#/bundle' }, limits: [1 per 1s] }\n"
        "- { id: name, match: { path: '/users/{name}' }, limits: [1 per 1s] }\n"
        "- { id: me, match: { path: /users/me }, limits: [1 per 1s] }\n"
        "- { id: user, match: { path: '/users/#' }, limits: [1 per 1s] }\n"
        "- { id: files, match: { path: '/files/*' }, limits: [1 per 1s] }\n"
        "- { id: root, match: { path: / }, limits: [1 per 1s] }\n"
        "- { id: all, match: { path: '/*' }, limits: [1 per 1s] }\n"
        "- { id: two, match: { path: [/a/b, '/{x}/b', /c] }, limits: [1 per 1s] }\n"
        "- { id: encoded, match: { path: '/x%2fy/%7Ez' }, limits: [1 per 1s] }\n"
        "- { id: signs, match: { path: '/%23/%2A/%7Bx%7D' }, limits: [1 per 1s] }\n");
    check_path("/repo/v1/entity/42/bundle", " bundle all");
    check_path("/repo//v1/%65ntity;x/42/./bundle/?q", " bundle all");
    check_path("/repo/v1/entity/6ba7b810-9dad-11d1-80b4-00c04fd430C8/bundle", " bundle all");
    check_path("/repo/v1/entity/x42/bundle", " all");
    check_path("/repo/v1/entity/42", " all");
    check_path("/repo/v1/entity/42/bundle/x", " all");
    check_path("/REPO/v1/entity/42/bundle", " all");
    check_path("/users/me", " name me all");
    check_path("/users/7", " name user all");
    check_path("/users", " all");
    check_path("/users/a%2Fb", " name all");
    check_path("/files", " files all");
    check_path("/files/a/b/c/d", " files all");
    check_path("/filesystem", " all");
    check_path("/", " root all");
    check_path("*", " all");
    check_path("/a/b", " all two");
    check_path("/c", " all two");
    check_path("/x%2Fy/~z", " all encoded");
    check_path("/%23/*/{x}", " all signs");
    check_path("/1/*/{x}", " all");
    check_path("/%23/a/{x}", " all");
    check_path("", "");
}

static void test_settings_of_paths(void **state)
{
    (void)state;
    use("settings: { ids: ['[a-f]+', 'x[0-9]{2}'], ignore_case: true, strip_prefixes: [/api/v1, /API] }\n"
        "rules:\n"
        "- { id: id, match: { path: '/Users/#' }, limits: [1 per 1s] }\n"
        "- { id: regex, match: { path: { regex: '/Login' } }, limits: [1 per 1s] }\n"
        "- { id: root, match: { path: / }, limits: [1 per 1s] }\n"
        "- { id: v1, match: { path: /v1 }, limits: [1 per 1s] }\n");
    check_path("/users/abc", " id");
    check_path("/users/ABC", " id");
    check_path("/USERS/X12", " id");
    check_path("/users/42", "");
    check_path("/LOGIN", " regex");
    check_path("/api/v1/users/abc", " id");
    check_path("/Api/V1/users/abc", " id");
    check_path("/api/users/abc", " id");
    check_path("/api/v1", " root");
    check_path("/apiv1", "");
    check_path("/api/api/v1", "");
    check_path("/api/v1/v1", " v1");
    check_path("/%61pi/v1/v1", " v1");
}

static void test_regexes(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: login, match: { path: { regex: '/(login|token)' } }, limits: [1 per 1s] }\n"
        "- { id: hard, match: { path: { regex: '/(a+)+b' } }, limits: [1 per 1s] }\n"
        "- { id: mixed, match: { path: [{ regex: '/login' }, '/x/{y}', { regex: '/z.*' }] }, limits: [1 per 1s] }\n"
        "- { id: post, match: { method: POST, path: { regex: '/login' } }, limits: [1 per 1s] }\n");
    check_path("/login", " login mixed");
    check_path("/token", " login");
    check_path("/tokens", "");
    check_path("/x/1", " mixed");
    check_path("/zz/y/x", " mixed");
    request.method = WEIR_STR("POST");
    check_path("/login", " login mixed post");

    static char path[20000];
    memset(path, 'a', 4000);
    path[0] = '/';
    path[3998] = 'b';
    request.path = (sv){ path, 4000 };
    check(" hard");
    /* A path that was cut matches every regex. */
    memset(path, 'c', sizeof path);
    path[0] = '/';
    request.path = (sv){ path, sizeof path };
    check(" login hard mixed post");
}

/* Where servers read a path differently, the rules of all of them apply, each once. */
static void test_readings(void **state)
{
    (void)state;
    use("settings: { strip_prefixes: [/api] }\n"
        "rules:\n"
        "- { id: adm, match: { path: '/adm/*' }, limits: [1 per 1s] }\n"
        "- { id: x, match: { path: /x }, limits: [1 per 1s] }\n"
        "- { id: ab, match: { path: /a/b }, by: [path], limits: [1 per 1s] }\n"
        "- { id: name, match: { path: '/a/{name}' }, limits: [1 per 1s] }\n"
        "- { id: number, match: { path: '/n/#' }, limits: [1 per 1s] }\n"
        "- { id: regex, match: { path: { regex: '/r(/[a-z]+)?$' } }, limits: [1 per 1s] }\n"
        "- { id: all, by: [route], limits: [1 per 1s] }\n");
    check_path("/adm//../x", " adm x all");
    check_path("/adm/../x", " x all");
    check_path("/adm%2F..%2Fx", " x all");
    check_path("/x//../adm", " adm all");
    check_path("/a/..;/b", " all");
    check_path("/adm/..;/x", " adm x all");
    check_path("/adm/;/../x", " adm x all");
    check_path("/adm/%3b/../x", " adm x all");
    check_path("/a;v=1/b", " ab name all");
    check_path("/a%2fb", " ab name all");
    check_path("/a/b%2fc", " name all");
    check_path("/n/7%0a", " number all");
    check_path("/n/7%0a%0a", " all");
    check_path("/x%0A", " x all");
    check_path("/x/%0A", " x all");
    check_path("/r%0a", " regex all");
    check_path("/r/b%0a", " regex all");
    check_path("/api//../x", " x all");
    check_path("/api/x%0a", " x all");
    check_path("/api%2Fx", " x all");
    check_path("/b/../api/x", " x all");
}

/* What is read of a path that is too long may go on in any way. */
static void test_cut(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: tree, match: { path: '/tree/*' }, limits: [1 per 1s] }\n"
        "- { id: name, match: { path: '/tree/{name}/end' }, limits: [1 per 1s] }\n"
        "- { id: id, match: { path: '/tree/#/end' }, limits: [1 per 1s] }\n"
        "- { id: two, match: { path: ['/one', '/{a}/{b}/{c}/d'] }, limits: [1 per 1s] }\n"
        "- { id: one, match: { path: '/tree/{name}' }, limits: [1 per 1s] }\n"
        "- { id: short, match: { path: /tree }, limits: [1 per 1s] }\n"
        "- { id: literal, match: { path: /tree/xxx/end }, limits: [1 per 1s] }\n"
        "- { id: event, match: { event: e, path: '/tree/{name}/end' }, limits: [1 per 1s] }\n"
        "- { id: other, match: { path: '/other/{name}/end' }, limits: [1 per 1s] }\n");
    static char path[20000];
    memset(path, 'x', sizeof path);
    memcpy(path, "/tree/", 6);
    memcpy(path + sizeof path - 4, "/end", 4);
    request.path = sv_of(path, sizeof path);
    check(" tree name two one");
    memset(path + 6, '7', sizeof path - 10);
    check(" tree name id two one");
    request.event = WEIR_STR("e");
    check(" tree name id two one event");
    request.event = WEIR_STR("");
    /* What is behind a `#` may take all of it back. */
    memcpy(path + sizeof path - 15, "#/../../other/7", 15);
    check(" tree name id two one");
    memcpy(path + sizeof path - 19, "#/../../other/7/end", 19);
    check(" tree name id two one other");
    memset(path + sizeof path - 19, '7', 15);
    /* With many readings to make, less is read of each. */
    memset(path + 6, 'x', 1500);
    memcpy(path + 1506, "/..;/%2F.%0a", 12);
    request.path = sv_of(path, 1518);
    check(" tree name two one");
    memcpy(path, "/other/", 7);
    check(" two other");
}

static void test_events_hosts_methods(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: any, limits: [1 per 1s] }\n"
        "- { id: ocr, match: { event: ocr }, limits: [1 per 1s] }\n"
        "- { id: ocr-post, match: { event: ocr, method: [POST, PUT] }, limits: [1 per 1s] }\n"
        "- { id: host, match: { host: 'Example.com:443' }, limits: [1 per 1s] }\n"
        "- { id: host-path, match: { host: example.com, path: /a }, limits: [1 per 1s] }\n"
        "- { id: v6, match: { host: '[2001:DB8::1]' }, limits: [1 per 1s] }\n"
        "- { id: event-host, match: { host: example.com, event: ocr }, limits: [1 per 1s] }\n");
    check(" any");
    request.event = WEIR_STR("ocr");
    check(" any ocr");
    request.event = WEIR_STR("OCR");
    check(" any");
    request.event = WEIR_STR("ocr");
    request.method = WEIR_STR("PUT");
    check(" any ocr ocr-post");
    request.method = WEIR_STR("put");
    check(" any ocr");
    request.host = WEIR_STR("EXAMPLE.com.:8080");
    check(" any ocr host event-host");
    request.event = WEIR_STR("");
    check_path("/a/", " any host host-path");
    request.host = WEIR_STR("[2001:db8::1]:80");
    check(" any v6");
}

static const char header_rules[] = "- { id: one, match: { header: { X-Plan: free } }, limits: [1 per 1s] }\n"
                                   "- { id: two, match: { header: { x-plan: free, X-Beta: 'yes' } }, limits: [1 per 1s] }\n"
                                   "- { id: by, by: ['header:X-Key'], limits: [1 per 1s] }\n"
                                   "- { id: shadow, mode: shadow, by: ['header:X-Shadow'], limits: [1 per 1s] }\n"
                                   "- { id: elsewhere, match: { path: /x }, by: ['header:X-There'], limits: [1 per 1s] }\n"
                                   "- { id: plain, limits: [1 per 1s] }\n";

static void use_headers(const char *repeated)
{
    char yaml[2000];
    snprintf(yaml, sizeof yaml, "settings: { repeated_headers: %s }\nrules:\n%s", repeated, header_rules);
    use(yaml);
}

static void test_headers(void **state)
{
    (void)state;
    use_headers("refuse");
    struct weir_header headers[] = {
        { WEIR_STR("x-PLAN"), WEIR_STR(" \tfree") }, { WEIR_STR("X-Plan"), WEIR_STR("free\t") },
        { WEIR_STR("x-beta"), WEIR_STR("yes") },     { WEIR_STR("x-key"), WEIR_STR("\t") },
        { WEIR_STR("x-key"), WEIR_STR("") },
    };
    request.headers = headers;
    request.header_count = 0;
    check(" plain");
    request.header_count = 2;
    check(" one plain");
    request.header_count = 3;
    check(" one two plain");
    request.header_count = 5;
    check(" one two plain");
    headers[4].value = WEIR_STR("\tk1 ");
    headers[3] = headers[4];
    check(" one two by plain");
    struct facts facts;
    facts_init(&facts, ruleset, &request, WEIR_STR(""));
    assert_true(sv_eq(facts_attribute(&facts, ruleset_rules(ruleset)->rules[2]->kind->by), SV("k1")));
}

/* What the rules make of a header that is there with these values, and which one they refuse the request for. */
static void check_twice(const char *name, const char *first, const char *second, const char *want, const char *refused_for)
{
    struct weir_header headers[] = { { weir_str(name), weir_str(first) },
                                     { WEIR_STR("accept"), WEIR_STR("a") },
                                     { WEIR_STR("accept"), WEIR_STR("b") },
                                     { weir_str(name), weir_str(second) } };
    struct facts facts;
    uint32_t found[100];
    request.headers = headers;
    request.header_count = 4;
    check(want);
    facts_init(&facts, ruleset, &request, WEIR_STR(""));
    ruleset_match(ruleset, &facts, now_us, found, 100);
    assert_true(sv_eq(facts.repeated, weir_str(refused_for)));
}

static void test_repeated_headers(void **state)
{
    (void)state;
    use_headers("refuse");
    check_twice("X-Plan", "free", "\tfree ", " one plain", "");
    check_twice("X-Plan", "paid", "free", " plain", "x-plan");
    check_twice("X-Plan", "free", "paid", " plain", "x-plan");
    check_twice("X-Plan", "gold", "paid", " plain", "x-plan");
    check_twice("X-Key", "junk", "real", " plain", "x-key");
    check_twice("X-Key", "", "real", " plain", "x-key");
    check_twice("X-Key", "real", " ", " plain", "x-key");
    check_twice("X-Key", "", "\t", " plain", "");
    check_twice("X-Shadow", "junk", "real", " plain", ""); /* it refuses nothing, and cannot count either */
    check_twice("X-There", "junk", "real", " plain", "");  /* the rule that looks at it is for another path */
    request.path = WEIR_STR("/x");
    check_twice("X-There", "junk", "real", " plain", "x-there");
    use_headers("first");
    check_twice("X-Plan", "paid", "free", " plain", "");
    check_twice("X-Plan", "free", "paid", " one plain", "");
    check_twice("X-Key", "", "real", " by plain", "");
    check_twice("X-Shadow", "junk", "real", " shadow plain", "");
    use_headers("last");
    check_twice("X-Plan", "paid", "free", " one plain", "");
    check_twice("X-Plan", "free", "paid", " plain", "");
    check_twice("X-Key", "real", " ", " by plain", "");
}

/* What is counted for two values of a header. */
static void test_which_of_two(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *want;
    } cases[] = { { "first", "k1" }, { "last", "k2" } };
    struct weir_header headers[] = { { WEIR_STR("x-key"), WEIR_STR("\t") },
                                     { WEIR_STR("x-key"), WEIR_STR(" k1") },
                                     { WEIR_STR("X-KEY"), WEIR_STR("k2\t") },
                                     { WEIR_STR("x-key"), WEIR_STR("") } };
    for (size_t i = 0; i < 2; i++) {
        use_headers(cases[i].setting);
        request.headers = headers;
        request.header_count = 4;
        struct facts facts;
        facts_init(&facts, ruleset, &request, WEIR_STR(""));
        assert_true(sv_eq(facts_attribute(&facts, ruleset_rules(ruleset)->rules[2]->kind->by), weir_str(cases[i].want)));
    }
}

static void test_looks(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: key, by: [key], limits: [1 per 1s], expires: 1700000010 }\n"
        "- { id: header, match: { header: { X-A: a } }, by: ['header:X-B'], limits: [1 per 1s] }\n"
        "- { id: early, by: ['header:X-B'], limits: [1 per 1s], expires: 1600000000 }\n"
        "- { id: gone, by: ['header:X-C'], limits: [1 per 1s], expires: 1600000000 }\n"
        "- { id: shadow, by: [user, 'header:X-D'], mode: shadow, limits: [1 per 1s] }\n"
        "- { id: off, by: [event], mode: off, limits: [1 per 1s] }\n"
        "- { id: route, by: [route], except: { ip: 1.2.3.4 }, limits: [1 per 1s] }\n");
    static const bool want[ATTR_HEADER] = { [ATTR_KEY] = true, [ATTR_PATH] = true, [ATTR_IP] = true };
    for (int i = 0; i < ATTR_HEADER; i++)
        assert_int_equal(ruleset_looks_at(ruleset, i, SV(""), now_us), want[i]);
    assert_false(ruleset_looks_at(ruleset, ATTR_KEY, SV(""), now_us + 10 * US_PER_S));
    assert_true(ruleset_looks_at(ruleset, ATTR_HEADER, SV("x-a"), now_us));
    assert_true(ruleset_looks_at(ruleset, ATTR_HEADER, SV("x-b"), now_us));
    assert_false(ruleset_looks_at(ruleset, ATTR_HEADER, SV("x-c"), now_us));
    assert_false(ruleset_looks_at(ruleset, ATTR_HEADER, SV("x-d"), now_us));
    assert_false(ruleset_looks_at(ruleset, ATTR_HEADER, SV("x-"), now_us));
    use("settings: { except: { user: root } }\nrules:\n- { id: a, mode: shadow, limits: [1 per 1s] }\n");
    assert_false(ruleset_looks_at(ruleset, ATTR_USER, SV(""), now_us));
    use("settings: { except: { user: root } }\nrules:\n- { id: a, limits: [1 per 1s] }\n");
    assert_true(ruleset_looks_at(ruleset, ATTR_USER, SV(""), now_us));
}

/* Blanks at the ends of a value are no part of it: neither for what a rule matches, nor for whom it counts or excepts. */
/* No part of a method or a host, but of an event, a key and a user, which a program names. */
static void test_blanks(void **state)
{
    (void)state;
    use("settings: { except: { user: [' root\t'] } }\n"
        "rules:\n"
        "- { id: event, match: { event: ' ocr' }, by: [key], limits: [1 per 1s] }\n"
        "- { id: method, match: { method: POST }, by: [method], limits: [1 per 1s] }\n"
        "- { id: host, match: { host: example.com }, limits: [1 per 1s] }\n"
        "- { id: user, by: [user], limits: [1 per 1s], except: { user: [ann] } }\n");
    request.key = WEIR_STR("\tk");
    request.event = WEIR_STR("ocr");
    check("");
    request.event = WEIR_STR(" ocr");
    check(" event");
    request.method = WEIR_STR("POST ");
    request.host = WEIR_STR(" Example.com:80\t");
    check(" event method host");
    check_user(" ", " event method host user");
    check_user("ann", " event method host");
    check_user("\tann", " event method host user");
    check_user("root", " event method host user");
    check_user(" root\t", "");
    struct facts facts;
    facts_init(&facts, ruleset, &request, WEIR_STR("\tann b "));
    assert_true(sv_eq(facts.user, SV("\tann b ")));
    assert_true(sv_eq(facts_attribute(&facts, ruleset_rules(ruleset)->rules[0]->kind->by), SV("\tk")));
    assert_true(sv_eq(facts_attribute(&facts, ruleset_rules(ruleset)->rules[1]->kind->by), SV("POST")));
}

static void test_except(void **state)
{
    (void)state;
    use("settings: { except: { ip: [192.0.2.0/24], user: [root] } }\n"
        "rules:\n"
        "- { id: plain, limits: [1 per 1s] }\n"
        "- { id: inner, limits: [1 per 1s], except: { ip: [10.0.0.0/8, 'fd00::/8'], user: [ann, bob] } }\n"
        "- { id: no-v4, limits: [1 per 1s], except: { ip: [0.0.0.0/0] } }\n"
        "- { id: no-v6, limits: [1 per 1s], except: { ip: ['::/0'] } }\n");
    check(" plain inner no-v4 no-v6");
    check_user("ann", " plain no-v4 no-v6");
    check_user("anna", " plain inner no-v4 no-v6");
    check_user("root", "");
    request.ip = WEIR_STR("10.1.2.3");
    check(" plain no-v6");
    request.ip = WEIR_STR("::ffff:10.1.2.3");
    check(" plain no-v6");
    request.ip = WEIR_STR("fdff::1");
    check(" plain no-v4");
    request.ip = WEIR_STR("2001::1");
    check(" plain inner no-v4");
    request.ip = WEIR_STR("192.0.2.7");
    check("");
    assert_true(ruleset_wants_user(ruleset));
}

static void test_mode_and_expiry(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: on, limits: [1 per 1s], expires: 1700000001 }\n"
        "- { id: over, limits: [1 per 1s], expires: 1700000000 }\n"
        "- { id: off, by: [user], limits: [1 per 1s], mode: off }\n"
        "- { id: shadow, limits: [1 per 1s], mode: shadow }\n");
    check(" on shadow");
    assert_false(ruleset_wants_user(ruleset));
    check_user("u", " on shadow");
}

static void test_by(void **state)
{
    (void)state;
    use("rules:\n"
        "- { id: ip, by: [ip], limits: [1 per 1s] }\n"
        "- { id: user, by: [user], limits: [1 per 1s] }\n"
        "- { id: key, by: [key], limits: [1 per 1s] }\n"
        "- { id: event, by: [event], limits: [1 per 1s] }\n"
        "- { id: method, by: [method], limits: [1 per 1s] }\n"
        "- { id: host, by: [host], limits: [1 per 1s] }\n"
        "- { id: path, by: [path], limits: [1 per 1s] }\n"
        "- { id: route, by: [route], limits: [1 per 1s] }\n"
        "- { id: both, by: [user, ip], limits: [1 per 1s] }\n");
    check("");
    check_user("u", " user");
    request.ip = WEIR_STR("unix:");
    check("");
    request.ip = WEIR_STR("1.2.3.4");
    check(" ip");
    check_user("u", " ip user both");
    request.key = WEIR_STR("k");
    request.event = WEIR_STR("e");
    request.method = WEIR_STR("GET");
    request.host = WEIR_STR(":80");
    check(" ip key event method");
    request.host = WEIR_STR("h");
    check_path("/", " ip key event method host path route");
    assert_true(ruleset_wants_user(ruleset));
}

static void check_attribute(enum attribute attribute, const char *want)
{
    struct facts facts;
    struct rule_by by = { .attribute = attribute };
    facts_init(&facts, ruleset, &request, WEIR_STR("u"));
    for (int twice = 0; twice < 2; twice++) {
        sv got = facts_attribute(&facts, &by);
        if (!sv_eq(got, weir_str(want)))
            fail_msg("%s: \"%.*s\" instead of \"%s\"", attribute_table[attribute].name.ptr, SV_FMT(got), want);
    }
}

static void test_attributes(void **state)
{
    (void)state;
    use("settings: { trusted_proxies: [10.0.0.0/8], strip_prefixes: [/api] }\nrules: []\n");
    request.method = WEIR_STR("GET");
    request.path = WEIR_STR("/api/Users/42//6ba7b810-9dad-11d1-80b4-00c04fd430c8/x?y");
    request.host = WEIR_STR("Example.com:80");
    request.event = WEIR_STR("e");
    request.key = WEIR_STR("k");
    check_attribute(ATTR_METHOD, "GET");
    check_attribute(ATTR_PATH, "/Users/42/6ba7b810-9dad-11d1-80b4-00c04fd430c8/x");
    check_attribute(ATTR_ROUTE, "/Users/#/#/x");
    check_attribute(ATTR_HOST, "example.com");
    check_attribute(ATTR_USER, "u");
    check_attribute(ATTR_EVENT, "e");
    check_attribute(ATTR_KEY, "k");
    check_attribute(ATTR_IP, "");
    request.path = WEIR_STR("*");
    check_attribute(ATTR_ROUTE, "*");
    char deep[1000] = "", route[1000] = "";
    for (int i = 0; i < 100; i++) {
        strcat(deep, "/42");
        strcat(route, i < PATH_SEGMENTS_MAX ? "/#" : "/42");
    }
    request.path = weir_str(deep);
    check_attribute(ATTR_ROUTE, route);
    request.path = WEIR_STR("/");
    check_attribute(ATTR_ROUTE, "/");

    const char *addresses[][2] = { { "1.2.3.4", "1.2.3.4" },
                                   { " 1.2.3.4 ", "1.2.3.4" },
                                   { "1.2.3.4:80", "1.2.3.4" },
                                   { "::ffff:1.2.3.4", "1.2.3.4" },
                                   { "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64" },
                                   { "[2001:db8:1:2:ffff::]:80", "2001:db8:1:2::/64" },
                                   { "::1", "::/64" } };
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        request.ip = weir_str(addresses[i][0]);
        check_attribute(ATTR_IP, addresses[i][1]);
    }
    request.ip = (sv){ NULL, 0 };
    request.peer = WEIR_STR("10.1.1.1");
    request.headers = &(struct weir_header){ WEIR_STR("X-Forwarded-For"), WEIR_STR("1.1.1.1, 2.2.2.2") };
    request.header_count = 1;
    check_attribute(ATTR_IP, "2.2.2.2");

    use("settings: { ipv6_prefix: 128 }\nrules: []\n");
    request.ip = WEIR_STR("2001:DB8::1");
    check_attribute(ATTR_IP, "2001:db8::1");
    use("settings: { ipv6_prefix: 48 }\nrules: []\n");
    request.ip = WEIR_STR("2001:db8:1:2::1");
    check_attribute(ATTR_IP, "2001:db8:1::/48");
}

static void check_reason(enum match_reason want, const char *want_detail)
{
    struct facts facts;
    sv detail;
    facts_init(&facts, ruleset, &request, request.user);
    assert_int_equal(ruleset_explain(ruleset, 0, &facts, now_us, &detail), want);
    assert_true(sv_eq(detail, weir_str(want_detail)));
}

static void test_reasons(void **state)
{
    (void)state;
    use("settings: { except: { user: [root] } }\n"
        "rules:\n"
        "- id: all\n"
        "  match: { event: e, method: GET, host: h, path: /p, header: { X-A: a } }\n"
        "  by: [key, 'header:X-B']\n"
        "  except: { ip: [10.0.0.0/8], user: [ann] }\n"
        "  limits: [1 per 1s]\n");
    struct weir_header headers[] = { { WEIR_STR("x-a"), WEIR_STR("a") },
                                     { WEIR_STR("x-b"), WEIR_STR("b") },
                                     { WEIR_STR("x-a"), WEIR_STR("c") } };
    request.headers = headers;
    check_reason(MATCH_UNEQUAL + ATTR_HOST, "");
    request.host = WEIR_STR("h");
    check_reason(MATCH_UNEQUAL + ATTR_EVENT, "");
    request.event = WEIR_STR("e");
    check_reason(MATCH_UNEQUAL + ATTR_METHOD, "");
    request.method = WEIR_STR("GET");
    check_reason(MATCH_UNEQUAL + ATTR_PATH, "");
    request.path = WEIR_STR("/p");
    check_reason(MATCH_UNEQUAL + ATTR_HEADER, "x-a");
    request.header_count = 1;
    request.ip = WEIR_STR("10.0.0.1");
    check_reason(MATCH_EXCEPT_IP, "");
    request.ip = WEIR_STR("11.0.0.1");
    request.user = WEIR_STR("ann");
    check_reason(MATCH_EXCEPT_USER, "");
    request.user = WEIR_STR("root");
    check_reason(MATCH_EXCEPT_USER, "settings");
    request.user = WEIR_STR("u");
    check_reason(MATCH_NO_ATTRIBUTE, "key");
    request.key = WEIR_STR("k");
    check_reason(MATCH_NO_ATTRIBUTE, "x-b");
    request.header_count = 2;
    check_reason(MATCH_YES, "");
    request.header_count = 3;
    check_reason(MATCH_REPEATED, "x-a");
    use("rules:\n- { id: off, mode: off, limits: [1 per 1s] }\n");
    check_reason(MATCH_OFF, "");
    use("rules:\n- { id: over, expires: 1, limits: [1 per 1s] }\n");
    check_reason(MATCH_EXPIRED, "");
}

static void test_few_places(void **state)
{
    (void)state;
    use("rules:\n- { id: a, limits: [1 per 1s] }\n- { id: b, limits: [1 per 1s] }\n- { id: c, limits: [1 per 1s] }\n");
    struct facts facts;
    facts_init(&facts, ruleset, &request, request.user);
    uint32_t found[3] = { 9, 9, 9 };
    assert_int_equal(ruleset_match(ruleset, &facts, now_us, found, 2), 3);
    assert_int_equal(found[0], 0);
    assert_int_equal(found[1], 1);
    assert_int_equal(found[2], 9);
    assert_int_equal(ruleset_match(ruleset, &facts, now_us, NULL, 0), 3);
}

static void test_bad_rules(void **state)
{
    (void)state;
    struct rule_path paths[] = { { .text = "/a/*/b", .length = 6 }, { .text = "(", .length = 1, .is_regex = true } };
    for (int i = 0; i < 2; i++) {
        struct rules_report report = { 0 };
        struct rules *rules = rules_read(SV("rules:\n- { id: bad, match: { path: /x }, limits: [1 per 1s] }\n"), &report);
        rules_report_done(&report);
        rules->rules[0]->match = (struct rule_match){ .list = &paths[i], .path_count = 1 };
        struct ruleset *none = NULL;
        struct weir_error error;
        assert_int_equal(ruleset_new(&none, rules, &error), WEIR_E_RULES);
        assert_null(none);
        assert_non_null(strstr(error.text, "rule bad: path:"));
    }
    ruleset_free(NULL);
}

static int done(void **state)
{
    (void)state;
    ruleset_free(ruleset);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_settings_of_paths),
        cmocka_unit_test(test_readings),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_regexes),
        cmocka_unit_test(test_events_hosts_methods),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_except),
        cmocka_unit_test(test_repeated_headers),
        cmocka_unit_test(test_which_of_two),
        cmocka_unit_test(test_looks),
        cmocka_unit_test(test_blanks),
        cmocka_unit_test(test_mode_and_expiry),
        cmocka_unit_test(test_by),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_few_places),
        cmocka_unit_test(test_bad_rules),
    };
    return cmocka_run_group_tests_name("ruleset", tests, NULL, done);
}
