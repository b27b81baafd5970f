/* Plans and overrides: which limits a subject counts with, and what stays when that changes. */
#include <time.h>

#include "helpers.h"

#include "engine/handle.h"
#include "engine/remote.h"

#define PLANS                                                                                                        \
    "plan: 'header:X-Plan', plans: { free: { max: 3, algorithm: fixed_window, per: 1h }, pro: { max: 6, algorithm: " \
    "fixed_window, per: 1h } }"
#define OWN "limits: { max: 4, algorithm: fixed_window, per: 1h }"
#define RULES "rules: [{ id: a, by: [user], " PLANS ", " OWN " }]\n"

static struct weir_request of(const char *user, const char *plan)
{
    static _Thread_local struct weir_header header;
    header = (struct weir_header){ weir_str("x-plan"), weir_str(plan) };
    return (struct weir_request){ .user = weir_str(user), .cost = 1, .headers = &header, .header_count = plan != NULL };
}

/* ---- plans ---- */

static void a_plan_has_its_own_limits(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    assert_int_equal(passes(weir, of("f", "free"), NOW, 9), 3);
    assert_int_equal(passes(weir, of("p", " pro\t"), NOW, 9), 6);
    assert_int_equal(passes(weir, of("n", NULL), NOW, 9), 4);
    assert_int_equal(passes(weir, of("e", ""), NOW, 9), 4);
    assert_int_equal(passes(weir, of("g", "gold"), NOW, 9), 4);
    assert_int_equal(passes(weir, of("c", "Free"), NOW, 9), 4);
    EXPECT(weir, of("f", "free"), NOW, "refuse 429 a/fixed_window 0 of 3, reset 3600000, retry 3600000");
    weir_close(weir);
    weir = open_rules("rules: [{ id: a, ignore_case: true, by: [user], " PLANS ", " OWN " }]");
    assert_int_equal(passes(weir, of("c", "FREE"), NOW, 9), 3);
    assert_int_equal(passes(weir, of("d", "Pro"), NOW, 9), 6);
    weir_close(weir);
}

static void a_changed_plan_keeps_what_was_used(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    assert_int_equal(passes(weir, of("u", "free"), NOW, 9), 3);
    EXPECT(weir, of("u", "pro"), NOW, "pass a/fixed_window 2 of 6, reset 3600000");
    EXPECT(weir, of("u", "none"), NOW, "refuse 429 a/fixed_window 0 of 4, reset 3600000, retry 3600000");
    assert_int_equal(passes(weir, of("u", "pro"), NOW, 9), 2);
    EXPECT(weir, of("u", "free"), NOW + 3600 * S, "pass a/fixed_window 2 of 3, reset 3600000");
    weir_close(weir);
}

/* Plans are named as people write paths and methods, and chosen as requests have them. */
static void plans_of_paths_and_methods(void **state)
{
    (void)state;
    static const struct {
        const char *plan, *path, *method;
        int passes;
    } cases[] = {
        { "path, plans: { '/a//b/': 1 per 1h, /c: 2 per 1h }", "/a/b", "GET", 1 },
        { "path, plans: { '/a//b/': 1 per 1h, /c: 2 per 1h }", "/c/?x", "GET", 2 },
        { "path, plans: { /Login: 1 per 1h }", "/login", "GET", 1 },
        { "path, plans: { /login: 1 per 1h }", "/other", "GET", 5 },
        { "route, plans: { '/u/#': 1 per 1h }", "/u/17", "GET", 1 },
        { "route, plans: { '/u/8/': 1 per 1h }", "/u/17", "GET", 1 },
        { "method, plans: { get: 1 per 1h }", "/", "GET", 1 },
        { "method, plans: { get: 1 per 1h }", "/", "POST", 5 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "settings: { ignore_case: true }\nrules: [{ id: a, by: [user], plan: %s, limits: 5 per 1h }]",
                 cases[i].plan);
        struct weir *weir = open_rules(text);
        struct weir_request request = {
            .user = weir_str("u"), .path = weir_str(cases[i].path), .method = weir_str(cases[i].method), .cost = 1
        };
        assert_int_equal(passes(weir, request, NOW, 9), cases[i].passes);
        weir_close(weir);
    }
}

/* Another algorithm or name is another count. */
static void limits_of_other_names_start_anew(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [user], plan: key, plans: { x: [{ name: n, max: 1, per: 1h }, { name: m, "
                   "max: 5, per: 1h }], y: [{ name: n, algorithm: fixed_window, max: 1, per: 1h }, { name: m, max: "
                   "2, per: 1h }] } }]");
    struct weir_request x = { .user = weir_str("u"), .key = weir_str("x"), .cost = 1 }, y = x, none = x;
    y.key = weir_str("y");
    none.key = weir_str("z");
    EXPECT(weir, x, NOW, "pass a/n 0 of 1, reset 3600000");
    EXPECT(weir, x, NOW, "refuse 429 a/n 0 of 1, reset 3600000, retry 3600000");
    EXPECT(weir, y, NOW, "pass a/n 0 of 1, reset 3600000");
    EXPECT(weir, y, NOW, "refuse 429 a/n 0 of 1, reset 3600000, retry 3600000");
    /* Whoever has none of the plans is not limited. */
    EXPECT(weir, none, NOW, "pass no rule");
    weir_close(weir);
}

static void a_header_of_a_plan_must_not_say_two_things(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    struct weir_header twice[] = { { weir_str("X-Plan"), weir_str("free") }, { weir_str("x-plan"), weir_str("pro") } };
    struct weir_request request = { .user = weir_str("u"), .cost = 1, .headers = twice, .header_count = 2 };
    struct weir_verdict v = check_at(weir, request, NOW);
    assert_false(v.allowed);
    assert_int_equal(v.status, WEIR_BAD_REQUEST);
    assert_string_equal(v.limit, "x-plan");
    struct weir_verdict verdict;
    assert_int_equal(weir_repeated(weir, "header:X-Plan", weir_str("x-plan"), NOW, &verdict), WEIR_TAKE_NONE);
    assert_int_equal(weir_repeated(weir, "header:X-Other", weir_str("x-other"), NOW, &verdict), WEIR_TAKE_FIRST);
    weir_close(weir);
}

static int64_t asked;

static size_t give_user(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    (void)request;
    (void)data;
    asked++;
    return (size_t)snprintf(buf, cap, "vip");
}

static void a_plan_of_users_asks_for_the_user(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){
        .rules_text = "rules: [{ id: a, by: [key], plan: user, plans: { vip: 5 per 1h }, limits: 1 per 1h }]",
        .user_id = give_user });
    asked = 0;
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 5);
    assert_true(asked >= 9);
    weir_close(weir);
}

/* ---- overrides ---- */

#define OVERRIDES                                                                                                          \
    "overrides: [{ rule: a, by: { user: big }, limits: { max: 8, algorithm: fixed_window, per: 1h }, expires: 1700003600 " \
    "}, { rule: a, by: { user: bad }, deny: true }, { rule: "                                                              \
    "a, by: { user: friend }, unlimited: true }]\n"

static void an_override_wins(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES OVERRIDES);
    assert_int_equal(passes(weir, of("big", "free"), NOW, 20), 8);
    assert_int_equal(passes(weir, of("other", "free"), NOW, 20), 3);
    EXPECT(weir, of("bad", "pro"), NOW, "refuse 429 a/deny 0 of 0, reset 0, retry -1");
    struct weir_request look = of("bad", NULL);
    look.cost = 0;
    EXPECT(weir, look, NOW, "refuse 429 a/deny 0 of 0, reset 0, retry -1");
    for (int i = 0; i < 20; i++)
        EXPECT(weir, of("friend", "free"), NOW, "pass no rule");
    weir_close(weir);
}

static void an_override_expires_by_the_decisions_clock(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES OVERRIDES);
    int64_t end = NOW + 3600 * S;
    EXPECT(weir, of("big", "free"), end - 1, "pass a/fixed_window 7 of 8, reset 3600000");
    EXPECT(weir, of("big", "free"), end, "pass a/fixed_window 1 of 3, reset 3600000");
    EXPECT(weir, of("big", "free"), end - 1, "pass a/fixed_window 5 of 8, reset 3600000");
    weir_close(weir);
}

static void what_was_used_stays_used(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULES);
    assert_int_equal(passes(weir, of("big", "free"), NOW, 20), 3);
    set_rules(weir, RULES OVERRIDES);
    assert_int_equal(passes(weir, of("big", "free"), NOW, 20), 5);
    set_rules(weir, RULES "overrides: [{ rule: a, by: { user: big }, deny: true }]");
    assert_int_equal(passes(weir, of("big", "free"), NOW, 20), 0);
    set_rules(weir, RULES "overrides: [{ rule: a, by: { user: big }, unlimited: true }]");
    assert_int_equal(passes(weir, of("big", "free"), NOW, 20), 20);
    set_rules(weir,
              RULES "overrides: [{ rule: a, by: { user: big }, limits: { max: 10, algorithm: fixed_window, per: 1h } }]");
    assert_int_equal(passes(weir, of("big", "free"), NOW, 20), 2);
    weir_close(weir);
}

/* The first that has not expired, of several spellings of one path. */
static void an_expired_override_hides_no_other(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [path], limits: 1 per 1h }]\n"
                   "overrides:\n"
                   "- { rule: a, by: { path: /x }, unlimited: true, expires: 1700003600 }\n"
                   "- { rule: a, by: { path: /x/ }, limits: 2 per 1h, expires: 1700003600 }\n"
                   "- { rule: a, by: { path: //x }, limits: { name: n, max: 3, per: 1h }, expires: 1700007200 }\n"
                   "- { rule: a, by: { path: /./x }, deny: true }\n"
                   "- { rule: a, by: { path: /y/../x }, unlimited: true }\n");
    struct weir_request request = { .path = weir_str("/x"), .cost = 1 };
    struct weir_str path = weir_str("/x");
    struct weir_error error;
    EXPECT(weir, request, NOW, "pass no rule");
    assert_int_equal(passes(weir, request, NOW + 3600 * S, 9), 3);
    /* A reset finds the limits of each of them. */
    assert_int_equal(weir_reset(weir, "a", &path, 1, &error), 0);
    assert_int_equal(passes(weir, request, NOW + 3600 * S, 9), 3);
    EXPECT(weir, request, NOW + 7200 * S, "refuse 429 a/deny 0 of 0, reset 0, retry -1");
    weir_close(weir);
}

static void one_of_many_spellings_outlasts_the_others(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    char text[100 * COUNT] = "rules: [{ id: a, by: [path], limits: 9 per 1h }]\noverrides:\n", slashes[COUNT];
    memset(slashes, '/', sizeof slashes);
    for (int i = 0; i < COUNT; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "- { rule: a, by: { path: '%.*s/x' }, deny: true, expires: %d }\n", i,
                 slashes, 1700000001 + i);
    }
    struct weir *weir = open_rules(text);
    struct weir_request request = { .path = weir_str("/x"), .cost = 1 };
    for (int i = 0; i <= COUNT; i++)
        assert_int_equal(check_at(weir, request, NOW + i * S).allowed, i == COUNT);
    weir_close(weir);
}

/* One subject of one rule, however its values are written. */
static void subjects_are_those_of_facts(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("settings: { ipv6_prefix: 48, strip_prefixes: [/api] }\n"
                   "rules:\n"
                   "- { id: ip, match: { event: ip }, by: [ip], limits: 9 per 1h }\n"
                   "- { id: host, match: { event: host }, by: [host], limits: 9 per 1h }\n"
                   "- { id: path, match: { event: path }, by: [path], limits: 9 per 1h }\n"
                   "- { id: route, match: { event: route }, by: [route], limits: 9 per 1h }\n"
                   "- { id: two, match: { event: two }, by: [user, 'header:T'], limits: 9 per 1h }\n"
                   "- { id: twin, match: { event: two }, by: [user, 'header:T'], limits: 9 per 1h, mode: shadow }\n"
                   "overrides:\n"
                   "- { rule: ip, by: { ip: '2001:db8:1:2::3' }, deny: true }\n"
                   "- { rule: ip, by: { ip: 10.0.0.1 }, deny: true }\n"
                   "- { rule: host, by: { host: 'API.Example.com:443' }, deny: true }\n"
                   "- { rule: path, by: { path: /api/a//b/./c }, deny: true }\n"
                   "- { rule: route, by: { route: /users/17/x }, deny: true }\n"
                   "- { rule: two, by: { 'header:t': x, user: u }, deny: true }\n");
    struct weir_header header = { weir_str("t"), weir_str(" x ") };
#define DENIED(...) assert_string_equal(check_at(weir, (struct weir_request){ .cost = 1, __VA_ARGS__ }, NOW).limit, "deny")
#define PASSES(...) assert_true(check_at(weir, (struct weir_request){ .cost = 1, __VA_ARGS__ }, NOW).allowed)
    DENIED(.event = weir_str("ip"), .ip = weir_str("2001:db8:1:ffff::1"));
    PASSES(.event = weir_str("ip"), .ip = weir_str("2001:db8:2:ffff::1"));
    DENIED(.event = weir_str("ip"), .ip = weir_str("::ffff:10.0.0.1"));
    PASSES(.event = weir_str("ip"), .ip = weir_str("10.0.0.2"));
    DENIED(.event = weir_str("host"), .host = weir_str("api.EXAMPLE.com."));
    DENIED(.event = weir_str("path"), .path = weir_str("/a/b/c"));
    DENIED(.event = weir_str("path"), .path = weir_str("/api/a/x/../b/c?q"));
    PASSES(.event = weir_str("path"), .path = weir_str("/a/b"));
    DENIED(.event = weir_str("route"), .path = weir_str("/users/4/x"));
    DENIED(.event = weir_str("two"), .user = weir_str("u"), .headers = &header, .header_count = 1);
    PASSES(.event = weir_str("two"), .user = weir_str("x"), .headers = &header, .header_count = 1);
    weir_close(weir);
}

/* A route as it is shown, or nearly so. */
static void routes_are_spelled_as_they_are_counted(void **state)
{
    (void)state;
    struct weir *weir = open_rules("settings: { ignore_case: true, strip_prefixes: [/api] }\n"
                                   "rules: [{ id: r, by: [route], limits: 9 per 1h }]\n"
                                   "overrides:\n"
                                   "- { rule: r, by: { route: '/Users/#' }, deny: true }\n"
                                   "- { rule: r, by: { route: '/api/a/#//b/' }, deny: true }\n"
                                   "- { rule: r, by: { route: '/c/17/#' }, deny: true }\n"
                                   "- { rule: r, by: { route: '/d?/#' }, deny: true }\n");
    static const char *const denied[] = { "/users/7", "/USERS/8/", "/a/7/b", "/api/a/7/b", "/c/1/2", "/d%3f/1" };
    static const char *const passing[] = { "/users", "/users/x", "/a/7", "/c/17", "/d", "/d/1" };
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++)
        DENIED(.path = weir_str(denied[i]));
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        PASSES(.path = weir_str(passing[i]));
    struct weir_str route = weir_str("/E/#/");
    struct weir_error error;
    for (int i = 0; i < 9; i++)
        check_at(weir, (struct weir_request){ .cost = 1, .path = weir_str("/e/7") }, NOW);
    assert_false(check_at(weir, (struct weir_request){ .cost = 1, .path = weir_str("/e/8") }, NOW).allowed);
    assert_int_equal(weir_reset(weir, "r", &route, 1, &error), 0);
    PASSES(.path = weir_str("/e/8"));
    weir_close(weir);
}

/* A path that servers read differently: the override of one reading holds. */
static void each_reading_has_its_own_override(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [path], limits: 2 per 1h }]\n"
                   "overrides: [{ rule: a, by: { path: /x/b }, deny: true }, { rule: a, by: { path: /free }, "
                   "unlimited: true }]");
    struct weir_request request = { .path = weir_str("/x%2Fb"), .cost = 1 };
    struct weir_verdict v = check_at(weir, request, NOW);
    assert_false(v.allowed);
    assert_string_equal(v.limit, "deny");
    request.path = weir_str("/free");
    assert_int_equal(passes(weir, request, NOW, 9), 9);
    request.path = weir_str("/free/..%2fy");
    assert_int_equal(passes(weir, request, NOW, 9), 2);
    weir_close(weir);
}

static void note_said(const struct weir_rule_said *said, void *context)
{
    snprintf(context, 100, "%.*s/%.*s %d", (int)said->rule.len, said->rule.ptr, (int)said->limit.len, said->limit.ptr,
             (int)said->said);
}

static void shadow_rules_have_overrides(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [key], limits: 9 per 1h, mode: shadow }]\n"
                   "overrides: [{ rule: a, by: { key: k }, deny: true }, { rule: a, by: { key: f }, unlimited: "
                   "true }]");
    EXPECT(weir, one("e", "k"), NOW, "pass no rule, shadow a");
    EXPECT(weir, one("e", "f"), NOW, "pass no rule");
    EXPECT(weir, one("e", "g"), NOW, "pass no rule");
    char said[100] = "";
    struct weir_request request = one("e", "k");
    request.each_rule = note_said;
    request.context = said;
    EXPECT(weir, request, NOW, "pass no rule, shadow a");
    assert_string_equal(said, "a/deny 2");
    weir_close(weir);
}

/* ---- resets and refunds ---- */

static void a_reset_forgets_all_plans(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [key], plan: event, plans: { x: { name: x, max: 1, per: 1h }, y: { name: "
                   "y, max: 1, per: 1h } }, limits: 1 per 1h }]\n"
                   "overrides: [{ rule: a, by: { key: o }, limits: { name: z, max: 2, per: 1h } }]");
    struct weir_error error;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(passes(weir, one("x", "k"), NOW, 9), 1);
        assert_int_equal(passes(weir, one("y", "k"), NOW, 9), 1);
        assert_int_equal(passes(weir, one("z", "k"), NOW, 9), 1);
        assert_int_equal(weir_reset(weir, "a", (struct weir_str[]){ weir_str("k") }, 1, &error), 0);
        assert_int_equal(passes(weir, one("x", "o"), NOW, 9), 2);
        assert_int_equal(weir_reset(weir, "a", (struct weir_str[]){ weir_str("o") }, 1, &error), 0);
    }
    weir_close(weir);
}

/* A receipt names the count, which is the same whatever plan or override the subject has by now. */
static void a_refund_finds_the_same_count(void **state)
{
    (void)state;
    static const char *const rules[] = {
        RULES, RULES "overrides: [{ rule: a, by: { user: u }, unlimited: true }]",
        RULES "overrides: [{ rule: a, by: { user: u }, deny: true }]",
        RULES "overrides: [{ rule: a, by: { user: u }, limits: { max: 8, algorithm: fixed_window, per: 1h } }]"
    };
    struct weir *weir = open_rules(RULES);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct weir_receipt receipt;
        struct weir_request request = of("u", "free");
        request.receipt = &receipt;
        set_rules(weir, RULES);
        EXPECT(weir, request, NOW, "pass a/fixed_window 2 of 3, reset 3600000");
        assert_int_equal(receipt.count, 1);
        set_rules(weir, rules[i]);
        assert_int_equal(weir_refund(weir, &receipt, NOW), 1);
        assert_int_equal(weir_refund(weir, &receipt, NOW), 0);
    }
    weir_close(weir);
}

/* A receipt of a bucket is refunded at the rate that was charged, which an override may have for itself. */
static void a_refund_finds_the_rate(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    char *text = malloc(COUNT * 80 + 200), *to = text;
    assert_non_null(text);
    to += sprintf(to, "rules: [{ id: a, by: [key], limits: 5000 per 1h }]\noverrides:\n");
    for (int i = 0; i < COUNT; i++)
        to += sprintf(to, "- { rule: a, by: { key: k%d }, limits: %d per 1h }\n", i, 1 + i);
    struct weir *weir = open_with((struct weir_options){ .rules_text = text, .cells_keys = 4 * COUNT });
    for (int i = 0; i <= COUNT; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i);
        struct weir_receipt receipt;
        struct weir_request request = one("e", key);
        request.receipt = &receipt;
        int max = i < COUNT ? 1 + i : 5000;
        assert_int_equal(check_at(weir, request, NOW).remaining, max - 1);
        assert_int_equal(weir_refund(weir, &receipt, NOW), 1);
        assert_int_equal(check_at(weir, peek_of("e", key, 1), NOW).remaining, max);
        assert_true(check_at(weir, request, NOW).allowed);
        /* Nothing has this rate any more. */
        if (i == COUNT) {
            set_rules(weir, "rules: [{ id: a, by: [key], limits: 4999 per 1h }]");
            assert_int_equal(weir_refund(weir, &receipt, NOW), 0);
        }
    }
    weir_close(weir);
    free(text);
}

/* ---- many ---- */

/* The windows of one name may have different lengths in plans and overrides: the receipt tells which slid. */
static void a_settlement_finds_the_windows(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "rules: [{ id: a, by: [key], plan: 'header:X-Plan', plans: { pro: [{ algorithm: sliding_window, max: 10, per: %s "
        "}] }, "
        "limits: [{ algorithm: sliding_window, max: 4, per: %s }] }]",
        "rules: [{ id: a, by: [key], limits: [{ algorithm: sliding_window, max: 4, per: %2$s }] }]\n"
        "overrides: [{ rule: a, by: { key: k }, limits: [{ algorithm: sliding_window, max: 10, per: %1$s }] }]",
    };
    struct weir_header plan = { WEIR_STR("X-Plan"), WEIR_STR("pro") };
    for (int i = 0; i < 8; i++) {
        char text[500];
        bool longer = i & 1, hold = i & 2;
        snprintf(text, sizeof text, rules[i / 4], longer ? "1h" : "10s", longer ? "10s" : "1h");
        struct weir *weir = open_rules(text);
        struct weir_receipt receipt;
        struct weir_request request = cost_of("e", "k", 5);
        request.headers = &plan;
        request.header_count = 1;
        request.receipt = &receipt;
        request.ttl_ms = hold ? 3600 * 1000 : 0;
        assert_true(check_at(weir, request, NOW).allowed);
        request.receipt = NULL;
        request.ttl_ms = 0;
        request.cost = 1;
        int64_t later = NOW + (longer ? 150 : 11) * S; /* in the same window, or early in the next one */
        assert_true(check_at(weir, request, later).allowed);
        assert_int_equal(weir_settle(weir, &receipt, 8, NULL, 0, later), 1);
        request.cost = 0;
        assert_int_equal(check_at(weir, request, later).remaining, longer ? 10 - 8 - 1 : 10 - 1 - 8 * 9 / 10 - 1);
        weir_close(weir);
    }
}

static void many_overrides(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    char *text = malloc(COUNT * 80 + 200), *to = text;
    assert_non_null(text);
    to += sprintf(to,
                  "rules: [{ id: a, by: [key], limits: 1 per 1h }, { id: b, by: [key], limits: 1 per 1h, mode: shadow }]\n"
                  "overrides:\n");
    for (int i = 0; i < COUNT; i++)
        to += sprintf(to, "- { rule: %s, by: { key: k%d }, limits: %d per 1h }\n", i % 3 ? "a" : "b", i, 1 + i % 5);
    struct weir *weir = open_with((struct weir_options){ .rules_text = text, .cells_keys = 4 * COUNT });
    for (int i = 0; i < COUNT; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i);
        struct weir_verdict v = check_at(weir, peek_of("e", key, 1), NOW);
        assert_true(v.allowed);
        assert_int_equal(v.max, i % 3 ? 1 + i % 5 : 1);
        snprintf(key, sizeof key, "n%d", i);
        assert_int_equal(check_at(weir, peek_of("e", key, 1), NOW).max, 1);
    }
    weir_close(weir);
    free(text);
}

/* Returns how long rules with so many overrides take to read, in ticks of the processor's clock. The value of `field` ends
 * in a number, another one for each override if they differ. */
static clock_t time_to_open(const char *field, bool differ, int count)
{
    char *text = malloc((size_t)count * 200 + 200), *to = text;
    assert_non_null(text);
    to += sprintf(to, "rules: [{ id: a, by: [key], limits: 1 per 1h }]\noverrides:\n");
    for (int i = 0; i < count; i++)
        to += sprintf(to, "- { rule: a, by: { key: k%d }, limits: { per: 1h, %s%d } }\n", i, field, differ ? i + 1 : 1);
    clock_t begun = clock();
    struct weir *weir = open_with((struct weir_options){ .rules_text = text, .cells_keys = 100 });
    clock_t took = clock() - begun;
    weir_close(weir);
    free(text);
    return took;
}

/* Overrides that do the same share their limits. Finding those takes no longer if no two do the same, in whatever they
 * differ. */
static void overrides_that_all_differ(void **state)
{
    (void)state;
    enum { COUNT = 40000, TIMES = 8 };
    static const char *const fields[] = { "max: 9, name: customer-",
                                          "max: ",
                                          "max: 9, burst: ",
                                          "max: 9, unit: tokens-",
                                          "max: 9, algorithm: fixed_window, name: n-",
                                          "algorithm: fixed_window, max: " };
    clock_t same = time_to_open(fields[0], false, COUNT);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_true(time_to_open(fields[i], true, COUNT) < TIMES * same);
}

/* Tokens that were lent for the max of one plan are not spent by another one. */
static void slices_are_lent_for_one_max(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [user], plan: 'header:X-Plan', plans: { free: 3 per day, pro: 6 per "
                   "day, trial: 3 per day }, limits: 4 per day }, { id: b, by: [user], limits: 3 per day }, "
                   "{ id: c, by: [user], limits: 4 per day }]");
    const struct bound *bound = weir->current;
    const struct bound_rule *rule = &bound->rules[0];
    uint64_t cells[4];
    for (size_t i = 0; i < 3; i++)
        cells[i] = slice_cell_of(bound->cells, rule, rule->rest->plans[i].limits, 1);
    cells[3] = slice_cell_of(bound->cells, rule, rule->own.limits, 1);
    assert_true(cells[0] != cells[1] && cells[0] == cells[2] && cells[0] != cells[3] && cells[1] != cells[3]);
    for (size_t i = 1; i < 3; i++) {
        uint64_t cell = slice_cell_of(bound->cells, &bound->rules[i], bound->rules[i].own.limits, 1);
        for (size_t k = 0; k < 4; k++)
            assert_true(cell != cells[k]);
    }
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_has_its_own_limits),
        cmocka_unit_test(a_changed_plan_keeps_what_was_used),
        cmocka_unit_test(plans_of_paths_and_methods),
        cmocka_unit_test(limits_of_other_names_start_anew),
        cmocka_unit_test(a_header_of_a_plan_must_not_say_two_things),
        cmocka_unit_test(a_plan_of_users_asks_for_the_user),
        cmocka_unit_test(an_override_wins),
        cmocka_unit_test(an_override_expires_by_the_decisions_clock),
        cmocka_unit_test(what_was_used_stays_used),
        cmocka_unit_test(an_expired_override_hides_no_other),
        cmocka_unit_test(one_of_many_spellings_outlasts_the_others),
        cmocka_unit_test(subjects_are_those_of_facts),
        cmocka_unit_test(routes_are_spelled_as_they_are_counted),
        cmocka_unit_test(each_reading_has_its_own_override),
        cmocka_unit_test(shadow_rules_have_overrides),
        cmocka_unit_test(a_reset_forgets_all_plans),
        cmocka_unit_test(a_refund_finds_the_same_count),
        cmocka_unit_test(a_refund_finds_the_rate),
        cmocka_unit_test(a_settlement_finds_the_windows),
        cmocka_unit_test(many_overrides),
        cmocka_unit_test(overrides_that_all_differ),
        cmocka_unit_test(slices_are_lent_for_one_max),
    };
    return cmocka_run_group_tests_name("engine/plans", tests, NULL, NULL);
}
