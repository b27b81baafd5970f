/* RateLimit-Policy and RateLimit for whole plans, read by a parser of structured fields of its own; headers of language
 * models; problems, and which clients get them. */
#include "../engine/helpers.h"

#include <ctype.h>

#include "present/answer.h"

/* ---- a small reader of RFC 9651: lists of Strings whose parameters are Integers, Strings and Byte Sequences ---- */

struct item {
    char name[400];
    int64_t q, w, r, t; /* -1: not there */
    char qu[60], pk[60];
};

struct field {
    size_t count;
    struct item items[40];
};

static char take(const char **at)
{
    assert_true(**at);
    return *(*at)++;
}

static void read_string(const char **at, char *to, size_t cap)
{
    size_t n = 0;
    assert_int_equal(take(at), '"');
    for (char c; (c = take(at)) != '"'; to[n++] = c) {
        assert_true(n + 1 < cap && c >= 0x20 && c < 0x7f);
        if (c == '\\') {
            c = take(at);
            assert_true(c == '"' || c == '\\');
        }
    }
    to[n] = '\0';
}

static int64_t read_integer(const char **at)
{
    int64_t number = 0;
    size_t digits = 0;
    for (; isdigit((unsigned char)**at); digits++)
        number = 10 * number + (take(at) - '0');
    assert_in_range(digits, 1, 15);
    return number;
}

static void read_bytes(const char **at, char *to, size_t cap)
{
    size_t n = 0;
    assert_int_equal(take(at), ':');
    for (char c; (c = take(at)) != ':'; to[n++] = c)
        assert_true(n + 1 < cap && (isalnum((unsigned char)c) || c == '+' || c == '/' || c == '='));
    assert_int_equal(n % 4, 0);
    to[n] = '\0';
}

static void read_parameter(const char **at, struct item *item)
{
    char key[10];
    size_t n = 0;
    while (islower((unsigned char)**at) && n + 1 < sizeof key)
        key[n++] = take(at);
    key[n] = '\0';
    assert_int_equal(take(at), '=');
    if (strcmp(key, "qu") == 0)
        read_string(at, item->qu, sizeof item->qu);
    else if (strcmp(key, "pk") == 0)
        read_bytes(at, item->pk, sizeof item->pk);
    else {
        int64_t *to = strcmp(key, "q") == 0   ? &item->q
                      : strcmp(key, "w") == 0 ? &item->w
                      : strcmp(key, "r") == 0 ? &item->r
                      : strcmp(key, "t") == 0 ? &item->t
                                              : NULL;
        assert_non_null(to);
        assert_int_equal(*to, -1);
        *to = read_integer(at);
    }
}

static struct field read_field(const char *at)
{
    struct field f = { 0 };
    assert_true(strlen(at) < WEIR_HEADER_VALUE_MAX);
    do {
        assert_true(f.count < 40);
        struct item *item = &f.items[f.count++];
        *item = (struct item){ .q = -1, .w = -1, .r = -1, .t = -1 };
        while (f.count > 1 && *at == ' ')
            at++;
        read_string(&at, item->name, sizeof item->name);
        while (*at == ';') {
            at++;
            read_parameter(&at, item);
        }
    } while (*at == ',' && at++);
    assert_int_equal(*at, '\0');
    return f;
}

/* ---- requests ---- */

struct told {
    struct weir_verdict verdict;
    struct weir_request request;
    struct weir_usage usage;
    struct weir_headers headers;
    struct field policy, limits;
};

static const char *value_of(const struct told *told, const char *name)
{
    for (size_t i = 0; i < told->headers.count; i++)
        if (sv_eq(told->headers.header[i].name, weir_str(name)))
            return told->headers.header[i].value.ptr;
    return NULL;
}

static void ask_at(struct weir *weir, struct weir_request request, int64_t now_us, unsigned style, struct told *ret)
{
    memset(&ret->usage, 0xa5, sizeof ret->usage);
    request.usage = &ret->usage;
    ret->request = request;
    ret->verdict = check_at(weir, request, now_us);
    weir_headers(weir, &ret->request, &ret->verdict, style, &ret->headers);
    const char *policy = value_of(ret, "RateLimit-Policy"), *limits = value_of(ret, "RateLimit");
    assert_true(!policy == !limits);
    ret->policy = policy ? read_field(policy) : (struct field){ 0 };
    ret->limits = limits ? read_field(limits) : (struct field){ 0 };
    if (!policy)
        return;
    for (size_t i = 0; i < ret->policy.count; i++) {
        const struct item *item = &ret->policy.items[i];
        assert_true(item->q >= 0 && item->w != 0 && item->r == -1 && item->t == -1);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ret->policy.items[k].name, item->name);
    }
    const char *retry = value_of(ret, "Retry-After");
    for (size_t i = 0; i < ret->limits.count; i++) {
        const struct item *item = &ret->limits.items[i];
        assert_true(item->r >= 0 && item->q == -1 && item->w == -1);
        assert_true(!retry || item->t <= atoll(retry));
    }
}

static void ask(struct weir *weir, struct weir_request request, struct told *ret)
{
    ask_at(weir, request, NOW, WEIR_HEADERS_STANDARD, ret);
}

static struct weir_request two_units(const char *key, uint64_t requests, uint64_t tokens)
{
    static struct weir_cost cost;
    cost = (struct weir_cost){ WEIR_STR("tokens"), tokens };
    struct weir_request request = cost_of("chat", key, requests);
    request.costs = &cost;
    request.cost_count = 1;
    return request;
}

#define CHAT                                                                                          \
    "rules:\n"                                                                                        \
    "  - { id: chat, match: { event: chat }, by: [key], limits: [{ name: minute, max: 3, per: 1m }, " \
    "{ name: tokens, max: 1000, per: 1m, unit: tokens }] }\n"                                         \
    "  - { id: day, match: { event: chat }, by: [key], limits: [100 per day] }\n"                     \
    "  - { id: trial, mode: shadow, limits: [1 per 1h] }\n"                                           \
    "  - { id: other, match: { event: other }, limits: [1 per 1h] }\n"

/* ---- cases ---- */

static void the_whole_plan_on_every_answer(void **state)
{
    (void)state;
    struct weir *weir = open_rules(CHAT);
    static struct told t;
    const char *policy = "\"chat/minute\";q=3;w=60, \"chat/tokens\";q=1000;qu=\"tokens\";w=60, \"day/day\";q=100;w=86400";
    ask(weir, two_units("k", 1, 100), &t);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), policy);
    /* The limit that decides comes first. More of a bucket is there long before it is full. */
    assert_string_equal(value_of(&t, "RateLimit"),
                        "\"chat/minute\";r=2;t=20, \"chat/tokens\";r=900;t=1, \"day/day\";r=99;t=6400");
    ask(weir, two_units("k", 1, 899), &t);
    assert_string_equal(value_of(&t, "RateLimit"),
                        "\"chat/minute\";r=1;t=20, \"chat/tokens\";r=1;t=1, \"day/day\";r=98;t=6400");
    /* Refused: only limits that refuse are there, and nothing was charged. */
    ask(weir, two_units("k", 1, 500), &t);
    assert_false(t.verdict.allowed);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), policy);
    assert_string_equal(value_of(&t, "RateLimit"), "\"chat/tokens\";r=1;t=1");
    assert_string_equal(value_of(&t, "Retry-After"), "30");
    ask(weir, two_units("k", 2, 500), &t);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), policy);
    assert_string_equal(value_of(&t, "RateLimit"), "\"chat/tokens\";r=1;t=1, \"chat/minute\";r=1;t=20");
    /* Peeks and costs of 0. */
    struct weir_request peek = two_units("new", 0, 0);
    peek.peek = true;
    ask(weir, peek, &t);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), policy);
    assert_string_equal(value_of(&t, "RateLimit"), "\"chat/minute\";r=3, \"chat/tokens\";r=1000, \"day/day\";r=100");
    /* Nothing applies but a rule in shadow mode. */
    ask(weir, one("none", "k"), &t);
    assert_int_equal(t.headers.count, 0);
    weir_close(weir);
}

static void brief_requests_know_refusals(void **state)
{
    (void)state;
    struct weir *weir = open_rules(CHAT);
    static struct told t;
    struct weir_request request = two_units("k", 3, 0);
    request.brief = true;
    ask(weir, request, &t);
    assert_int_equal(t.usage.count, 0);
    ask(weir, request, &t);
    assert_int_equal(t.policy.count, 3);
    assert_string_equal(value_of(&t, "RateLimit"), "\"chat/minute\";r=0;t=20");
    weir_close(weir);
}

static void names_are_unique_and_valid(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - { id: a/b, limits: [{ name: c, max: 9, per: 1s }] }\n"
                                   "  - { id: a, limits: [{ name: b/c, max: 9, per: 1s }] }\n"
                                   "  - { id: 'a%2Fb', limits: [{ name: c, max: 9, per: 1s }] }\n"
                                   "  - { id: 'say \"\xc3\xbc\" \\', limits: [{ name: x %, max: 9, per: 1s }] }\n");
    static struct told t;
    ask(weir, one("e", "k"), &t);
    assert_int_equal(t.policy.count, 4);
    assert_string_equal(t.policy.items[0].name, "a%2Fb/c");
    assert_string_equal(t.policy.items[1].name, "a/b/c");
    assert_string_equal(t.policy.items[2].name, "a%252Fb/c");
    assert_string_equal(t.policy.items[3].name, "say %22%C3%BC%22 %5C/x %");
    weir_close(weir);
}

/* The deciding limit is in RateLimit even if it is beyond the bound of RateLimit-Policy. */
static void long_plans_are_bounded(void **state)
{
    (void)state;
    enum { RULES = 30 };
    static char rules[RULES * 300];
    static struct told t;
    char first[WEIR_HEADER_VALUE_MAX];
    size_t n = (size_t)snprintf(rules, sizeof rules, "rules:\n");
    for (int i = 0; i < RULES; i++)
        n += (size_t)snprintf(rules + n, sizeof rules - n, "  - { id: r%d, by: [key], limits: [%d per 1h] }\n", i, 100 - i);
    struct weir *weir = open_rules(rules);
    for (int i = 0; i < 75; i++) {
        ask(weir, one("e", "k"), &t);
        assert_int_equal(t.verdict.allowed, i < 71);
        assert_int_equal(t.policy.count, WEIR_USAGE_LIMITS);
        assert_string_equal(t.limits.items[0].name, "r29/token_bucket");
        assert_int_equal(t.limits.items[0].r, i < 71 ? 70 - i : 0);
        if (i == 0)
            strcpy(first, value_of(&t, "RateLimit-Policy"));
        assert_string_equal(value_of(&t, "RateLimit-Policy"), first);
    }
    weir_close(weir);
    /* The longest names that there are. */
    n = (size_t)snprintf(rules, sizeof rules, "rules:\n");
    for (int i = 0; i < 9; i++)
        n += (size_t)snprintf(rules + n, sizeof rules - n,
                              "  - { id: '%d%099d', limits: [{ name: '%050d', max: 9007199254740991, per: 3650d, "
                              "unit: u%049d }, { name: a, max: 1, per: 1s }] }\n",
                              i, 0, 0, 0);
    for (char *c = rules; (c = strstr(c, "000000000")); c++)
        memset(c, '/', strspn(c, "0") > 90 ? 99 : 0), c += strspn(c, "/0") - 1;
    weir = open_rules(rules);
    static struct weir_headers headers;
    t.request = one("e", "k");
    t.request.usage = &t.usage;
    t.verdict = check_at(weir, t.request, NOW);
    weir_headers(weir, &t.request, &t.verdict, 15, &headers);
    read_field(headers.header[0].value.ptr);
    read_field(headers.header[1].value.ptr);
    for (size_t i = 0; i < headers.count; i++) {
        assert_true(headers.header[i].value.len < WEIR_HEADER_VALUE_MAX);
        assert_true(headers.header[i].value.ptr + headers.header[i].value.len < headers.text + WEIR_HEADERS_BYTES);
    }
    weir_close(weir);
}

static void every_algorithm_says_when_more_is_there(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, limits: ["
                                   "{ name: fixed, algorithm: fixed_window, max: 10, per: 100s }, "
                                   "{ name: sliding, algorithm: sliding_window, max: 10, per: 100s }, "
                                   "{ name: bucket, max: 10, per: 100s }, { name: day, calendar: day, max: 10 }] }]");
    static struct told t;
    ask(weir, cost_of("e", "k", 2), &t);
    assert_string_equal(value_of(&t, "RateLimit"), "\"a/fixed\";r=8;t=100, \"a/sliding\";r=8;t=150, \"a/bucket\";r=8;t=10, "
                                                   "\"a/day\";r=8;t=6400");
    ask_at(weir, cost_of("e", "k", 5), NOW + 99 * S, WEIR_HEADERS_STANDARD, &t);
    assert_string_equal(value_of(&t, "RateLimit"),
                        "\"a/fixed\";r=3;t=1, \"a/sliding\";r=3;t=16, \"a/bucket\";r=5;t=10, \"a/day\";r=3;t=6301");
    ask_at(weir, cost_of("e", "k", 4), NOW + 99 * S, WEIR_HEADERS_STANDARD, &t);
    assert_false(t.verdict.allowed);
    weir_close(weir);
}

static void overrides_and_plans(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n"
                   "  - { id: a, by: [key], limits: [10 per 1h], plan: user, plans: { gold: [{ max: 99, per: 1h }] } }\n"
                   "overrides:\n"
                   "  - { rule: a, by: { key: bad }, deny: true }\n"
                   "  - { rule: a, by: { key: free }, unlimited: true }\n");
    static struct told t;
    struct weir_request gold = one("e", "k");
    gold.user = WEIR_STR("gold");
    ask(weir, gold, &t);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), "\"a/token_bucket\";q=99;w=3600");
    ask(weir, one("e", "bad"), &t);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), "\"a/deny\";q=0;w=1");
    assert_string_equal(value_of(&t, "RateLimit"), "\"a/deny\";r=0");
    ask(weir, one("e", "free"), &t);
    assert_int_equal(t.headers.count, 0);
    weir_close(weir);
}

/* A rule by path counts for every reading of the path, and is one policy. */
static void readings_of_a_path(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [path], limits: [10 per 1h] }]");
    static struct told t;
    struct weir_request request = { .path = WEIR_STR("/a%2Fb"), .cost = 1 };
    ask(weir, request, &t);
    assert_int_equal(t.policy.count, 1);
    assert_int_equal(t.limits.count, 1);
    assert_int_equal(t.limits.items[0].r, 9);
    weir_close(weir);
}

static void rules_that_change_in_between(void **state)
{
    (void)state;
    struct weir *weir = open_rules(CHAT), *other = open_rules("rules: [{ id: x, limits: [9 per 1s] }]");
    static struct told t;
    ask(weir, two_units("k", 1, 1), &t);
    /* Another handle at the same version. */
    weir_headers(other, &t.request, &t.verdict, WEIR_HEADERS_STANDARD, &t.headers);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), "\"chat/minute\";q=3;w=60");
    set_rules(weir, "rules: []");
    weir_headers(weir, &t.request, &t.verdict, WEIR_HEADERS_STANDARD, &t.headers);
    assert_string_equal(value_of(&t, "RateLimit-Policy"), "\"chat/minute\";q=3;w=60");
    assert_string_equal(value_of(&t, "RateLimit"), "\"chat/minute\";r=2");
    weir_headers(weir, NULL, &t.verdict, WEIR_HEADERS_STANDARD, &t.headers);
    assert_string_equal(value_of(&t, "RateLimit"), "\"chat/minute\";r=2");
    weir_close(weir);
    weir_close(other);
}

/* ---- partition keys ---- */

#define SECRET(text) "settings: { partition_key_secret: " text " }\n"

static void partition_of(const char *secret, const char *key, char ret[60])
{
    char rules[1000];
    static struct told t;
    snprintf(rules, sizeof rules, "%s%s", secret, CHAT);
    struct weir *weir = open_rules(rules);
    ask(weir, two_units(key, 1, 1), &t);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(t.policy.items[i].pk, t.policy.items[0].pk); /* the same `by`: the same partition */
        assert_string_equal(t.limits.items[i].pk, t.policy.items[0].pk);
    }
    strcpy(ret, t.policy.items[0].pk);
    ask(weir, one("other", key), &t);
    assert_string_equal(t.policy.items[0].pk, ""); /* it counts for everybody together */
    weir_close(weir);
}

static void partition_keys(void **state)
{
    (void)state;
    char a[60], b[60], c[60], d[60], none[60];
    partition_of(SECRET("0123456789abcdef"), "ann", a);
    partition_of(SECRET("0123456789abcdef"), "bob", b);
    partition_of(SECRET("0123456789abcdef"), "ann", c); /* another table */
    partition_of(SECRET("another secret 16"), "ann", d);
    partition_of("", "ann", none);
    assert_int_equal(strlen(a), 12);
    assert_string_equal(a, c);
    assert_string_not_equal(a, b);
    assert_string_not_equal(a, d);
    assert_string_equal(none, "");
}

/* ---- language models ---- */

static void expect_openai(const struct told *t, const char *kind, const char *limit, const char *left, const char *reset)
{
    char name[60];
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", kind);
    assert_string_equal(value_of(t, name), limit);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", kind);
    assert_string_equal(value_of(t, name), left);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", kind);
    assert_string_equal(value_of(t, name), reset);
}

static void headers_of_language_models(void **state)
{
    (void)state;
    struct weir *weir = open_rules("settings: { headers: openai }\n" CHAT);
    static struct told t;
    ask_at(weir, two_units("k", 1, 100), NOW, WEIR_HEADERS_SETTING, &t);
    assert_int_equal(t.headers.count, 6);
    expect_openai(&t, "requests", "3", "2", "20s");
    expect_openai(&t, "tokens", "1000", "900", "6s");
    ask_at(weir, two_units("k", 1, 901), NOW, WEIR_HEADERS_SETTING, &t);
    assert_int_equal(t.headers.count, 7);
    expect_openai(&t, "requests", "3", "2", "20s");
    expect_openai(&t, "tokens", "1000", "900", "6s");
    assert_string_equal(value_of(&t, "Retry-After"), "1");
    /* Of two limits of one unit it is the one with less left. */
    set_rules(weir, "settings: { headers: openai }\nrules:\n  - { id: a, limits: [100 per day, 1000 per 1h] }");
    ask_at(weir, one("e", "k"), NOW, WEIR_HEADERS_SETTING, &t);
    assert_int_equal(t.headers.count, 3);
    expect_openai(&t, "requests", "100", "99", "1h46m40s");
    set_rules(weir, "settings: { headers: off }\nrules:\n  - { id: a, limits: [100 per day] }");
    ask_at(weir, one("e", "k"), NOW, WEIR_HEADERS_SETTING, &t);
    assert_int_equal(t.headers.count, 0);
    weir_close(weir);
}

static void expect_reset(const char *limit, const char *reset)
{
    char rules[200];
    static struct told t;
    snprintf(rules, sizeof rules, "rules: [{ id: a, limits: [{ algorithm: fixed_window, max: 1, per: %s }] }]", limit);
    struct weir *weir = open_rules(rules);
    ask_at(weir, one("e", "k"), NOW, WEIR_HEADERS_OPENAI, &t);
    expect_openai(&t, "requests", "1", "0", reset);
    weir_close(weir);
}

static void lengths_of_time(void **state)
{
    (void)state;
    expect_reset("1ms", "1ms");
    expect_reset("20ms", "20ms");
    expect_reset("999ms", "999ms");
    expect_reset("1s", "1s");
    expect_reset("1500ms", "1.5s");
    expect_reset("1050ms", "1.05s");
    expect_reset("72172ms", "1m12.172s");
    expect_reset("6m", "6m0s");
    expect_reset("1h", "1h0m0s");
    expect_reset("3650d", "87600h0m0s");
}

/* ---- problems ---- */

static bool accepts(const char *accept)
{
    struct weir_header headers[] = { { WEIR_STR("X-A"), WEIR_STR("application/problem+json") },
                                     { WEIR_STR("ACCEPT"), weir_str(accept) } };
    return problem_accepted(&(struct weir_request){ .headers = headers, .header_count = accept ? 2 : 1 });
}

static void which_clients_get_problems(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "application/problem+json",
        "application/json",
        "application/*",
        "APPLICATION/JSON ; charset=utf-8",
        "application/json, text/plain, */*",
        "text/html;q=0.9, application/json;q=0.9",
        "application/json;q=0.001",
        "text/plain;q=0.5, application/json;q=0.5",
        "*/*, text/plain;q=0",
        "*/*;q=0.5,application/problem+json;q=0.6",
        ",,application/json",
        "text/html;a=\"x, application/json;q=0\", application/json",
        "application/json;Q=1.000",
        "application/json;q=0.5, */*;q=0.1",
    };
    static const char *const no[] = {
        "",
        "*/*",
        "text/plain",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "application/json;q=0",
        "application/problem+json;q=0, */*",
        "application/problem+json;q=0, application/json",
        "application/json;q=2",
        "application/json;q=1.001",
        "application/json;q=x",
        "application/json;q=0.1, text/plain",
        "application/jsonx",
        "application/json;q=0.0001",
        "text/html;a=\"application/json",
        "text/html;a=\"\\\", application/json\"",
        "application/json;q=-1",
        "application/json;q=",
        "application/json;q=0., text/plain;q=1",
        "*",
    };
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        if (!accepts(yes[i]))
            fail_msg("no problem for %s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        if (accepts(no[i]))
            fail_msg("a problem for %s", no[i]);
    assert_false(accepts(NULL));
    assert_false(problem_accepted(NULL));
    /* Two headers are one list. */
    struct weir_header two[] = { { WEIR_STR("accept"), WEIR_STR("text/html") },
                                 { WEIR_STR("accept"), WEIR_STR("application/json") } };
    assert_true(problem_accepted(&(struct weir_request){ .headers = two, .header_count = 2 }));
    /* Only the first ranges are read. */
    char many[2000] = "";
    for (int i = 0; i < 64; i++)
        strcat(many, "a/b,");
    strcat(many, "application/json");
    assert_false(accepts(many));
}

static void expect_body(struct weir *weir, struct weir_request request, int64_t now_us, const char *type, const char *body)
{
    static struct weir_usage usage;
    struct weir_header accept = { WEIR_STR("Accept"), WEIR_STR("application/json") };
    struct weir_verdict verdict;
    struct weir_refusal refusal;
    request.headers = &accept;
    request.header_count = 1;
    request.usage = &usage;
    weir_check(weir, &request, now_us, &verdict);
    assert_false(verdict.allowed);
    assert_int_equal(weir_refuse(weir, &request, &verdict, &refusal), 0);
    char text[2000];
    snprintf(text, sizeof text, "%.*s", (int)refusal.content_type.len, refusal.content_type.ptr);
    assert_string_equal(text, type);
    snprintf(text, sizeof text, "%.*s", (int)refusal.body.len, refusal.body.ptr);
    assert_string_equal(text, body);
}

#define PROBLEM "application/problem+json"
#define TYPES "{\"type\":\"https://iana.org/assignments/http-problem-types#"

static void problems(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules(CHAT "  - { id: own, match: { event: own }, limits: [0 per 1s], reject: { body: mine } }\n"
                        "  - { id: teapot, match: { event: teapot }, limits: [0 per 1s], reject: { status: 418 } }\n");
    expect_body(weir, two_units("k", 4, 1001), NOW, PROBLEM,
                TYPES "quota-exceeded\",\"title\":\"Request cannot be satisfied as assigned quota has been exceeded\","
                      "\"status\":429,\"detail\":\"Too many requests; no wait will help\","
                      "\"violated-policies\":[\"chat/minute\",\"chat/tokens\"]}\n");
    assert_int_equal(passes(weir, two_units("k", 3, 1), NOW, 1), 1);
    expect_body(
        weir, two_units("k", 1, 1), NOW, PROBLEM,
        TYPES "quota-exceeded\",\"title\":\"Request cannot be satisfied as assigned quota has been exceeded\","
              "\"status\":429,\"detail\":\"Too many requests; retry in 20 s\",\"violated-policies\":[\"chat/minute\"]}\n");
    expect_body(weir, one("teapot", "k"), NOW, PROBLEM,
                TYPES "quota-exceeded\",\"title\":\"Request cannot be satisfied as assigned quota has been exceeded\","
                      "\"status\":418,\"detail\":\"Too many requests; no wait will help\","
                      "\"violated-policies\":[\"teapot/token_bucket\"]}\n");
    expect_body(weir, one("own", "k"), NOW, "text/plain; charset=utf-8", "mine");
    expect_body(weir, one("own", "k"), -1, PROBLEM,
                TYPES
                "temporary-reduced-capacity\",\"title\":\"Request cannot be satisfied due to temporary server capacity "
                "constraints\",\"detail\":\"The request could not be judged\"}\n");
    set_rules(weir, "settings: { reject: { body: ours } }\nrules: [{ id: a, limits: [0 per 1s] }]");
    expect_body(weir, one("own", "k"), NOW, "text/plain; charset=utf-8", "ours");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_plan_on_every_answer),
        cmocka_unit_test(brief_requests_know_refusals),
        cmocka_unit_test(names_are_unique_and_valid),
        cmocka_unit_test(long_plans_are_bounded),
        cmocka_unit_test(every_algorithm_says_when_more_is_there),
        cmocka_unit_test(overrides_and_plans),
        cmocka_unit_test(readings_of_a_path),
        cmocka_unit_test(rules_that_change_in_between),
        cmocka_unit_test(partition_keys),
        cmocka_unit_test(headers_of_language_models),
        cmocka_unit_test(lengths_of_time),
        cmocka_unit_test(which_clients_get_problems),
        cmocka_unit_test(problems),
    };
    return cmocka_run_group_tests_name("present/headers", tests, NULL, NULL);
}
