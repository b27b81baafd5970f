/* Prepared checks: the same verdicts as those of weir_check, whatever the rules are, and while rules are replaced. */
#include <pthread.h>

#include "crowd.h"
#include "engine/handle.h"

static struct weir_prepared *prepare(struct weir *weir, struct weir_request request, const char *varies)
{
    struct weir_prepared *prepared = NULL;
    struct weir_error error = { .code = WEIR_OK };
    if (weir_prepare(&prepared, weir, &request, varies, &error) < 0)
        fail_msg("%s", error.text);
    return prepared;
}

static struct weir_verdict prepared_at(struct weir_prepared *prepared, const char *value, uint64_t cost, int64_t now_us)
{
    struct weir_verdict verdict;
    memset(&verdict, 0xa5, sizeof verdict);
    memset(&last_shadows, 0, sizeof last_shadows);
    assert_int_equal(weir_prepared_check(prepared, weir_str(value), cost, now_us, &verdict), 0);
    return verdict;
}

#define EXPECT_PREPARED(prepared, value, now_us, expected)                      \
    do {                                                                        \
        struct weir_verdict verdict_ = prepared_at(prepared, value, 1, now_us); \
        expect_verdict(&verdict_, expected, __FILE__, __LINE__);                \
    } while (0)

/* ---- beside weir_check, at random ---- */

enum { TEXT_MAX = 16000, RULES_MOST = 5, SCHEDULES = 1500 / CROWD_SLOWER, STEPS = 120, TEMPLATES = 6 };

struct text {
    char bytes[TEXT_MAX];
    size_t len;
};

static __attribute__((format(printf, 2, 3))) void add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->len += (size_t)vsnprintf(t->bytes + t->len, sizeof t->bytes - t->len, format, args);
    va_end(args);
    assert_true(t->len < sizeof t->bytes);
}

static const char *one_of(struct random *rnd, const char *const *list, size_t count)
{
    return list[random_in(rnd, 0, (int64_t)count - 1)];
}
#define ONE_OF(rnd, ...) \
    one_of(rnd, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

static void add_limits(struct text *t, struct random *rnd, int count)
{
    add(t, "[");
    for (int i = 0; i < count; i++) {
        add(t, "%s{ name: l%d, ", i ? ", " : "", i);
        int max = random_one_in(rnd, 20) ? 0 : (int)random_scaled(rnd, 12);
        switch (random_in(rnd, 0, 9)) {
        case 0:
        case 1:
            add(t, "algorithm: fixed_window, max: %d, per: %ds", max, (int)random_scaled(rnd, 100));
            break;
        case 2:
            add(t, "algorithm: sliding_window, max: %d, per: %ds", max, (int)random_scaled(rnd, 100));
            break;
        case 3:
            add(t, "calendar: minute, max: %d", max);
            break;
        case 4:
            add(t, "algorithm: fixed_window, max: %d, per: 60s, overdraft: true", max);
            break;
        case 5:
            add(t, "max: %d, per: 60s, unit: tokens", max);
            break;
        case 6:
            add(t, "concurrent: %d, ttl: %ds", max, (int)random_scaled(rnd, 100));
            break;
        default:
            add(t, "max: %d, per: %ds, burst: %d", max, (int)random_scaled(rnd, 100), (int)random_scaled(rnd, 20));
        }
        add(t, " }");
    }
    add(t, "]");
}

static void add_conditions(struct text *t, struct random *rnd)
{
    const char *conditions[8];
    size_t count = 0;
    if (random_one_in(rnd, 2))
        conditions[count++] = ONE_OF(rnd, "event: e0", "event: [e0, e1]", "event: { not: e1 }");
    if (random_one_in(rnd, 6))
        conditions[count++] = ONE_OF(rnd, "path: '/a/*'", "path: '/a/#/b'", "path: { regex: '/a/.*' }", "path: /none");
    if (random_one_in(rnd, 10))
        conditions[count++] = ONE_OF(rnd, "key: k1", "key: { not: k2 }", "key: { prefix: k }", "key: { present: true }");
    if (random_one_in(rnd, 10))
        conditions[count++] = ONE_OF(rnd, "user: k1", "user: { not: k2 }", "user: { absent: true }");
    if (random_one_in(rnd, 10))
        conditions[count++] = ONE_OF(rnd, "method: GET", "method: POST");
    if (random_one_in(rnd, 10))
        conditions[count++] = ONE_OF(rnd, "header: { x-a: one }", "header: { x-a: two }");
    for (size_t i = 0; i < count; i++)
        add(t, "%s%s", i ? ", " : ", match: { ", conditions[i]);
    if (count > 0)
        add(t, " }");
}

static void add_rule(struct text *t, struct random *rnd, int number, bool *overridable)
{
    const char *by = ONE_OF(rnd, "key", "key", "key", "user", "event, key", "key, user", "path, key", "", "event",
                            "'header:x-a', key", "route, user", "key, event");
    add(t, "  - { id: rule-%d, by: [%s]", number, by);
    add_conditions(t, rnd);
    bool given = random_one_in(rnd, 25), plans = !given && random_one_in(rnd, 8);
    *overridable = !given && (strcmp(by, "key") == 0 || strcmp(by, "user") == 0);
    add(t, ", limits: ");
    if (given)
        add(t, "given");
    else
        add_limits(t, rnd, random_one_in(rnd, 3) ? (int)random_in(rnd, 2, 3) : 1);
    if (plans) {
        add(t, ", plan: %s, plans: { k1: ", ONE_OF(rnd, "key", "user", "event", "'header:x-a'"));
        add_limits(t, rnd, 1);
        add(t, ", one: ");
        add_limits(t, rnd, 2);
        add(t, " }");
    }
    if (random_one_in(rnd, 5))
        add(t, ", mode: %s", ONE_OF(rnd, "shadow", "shadow", "off"));
    if (random_one_in(rnd, 4))
        add(t, ", expires: %lld", (long long)(NOW / S + random_in(rnd, -5, 120)));
    if (random_one_in(rnd, 10))
        add(t, ", except: { %s }", ONE_OF(rnd, "user: [k1]", "ip: [10.0.0.0/8]", "user: [k3, k2]"));
    if (random_one_in(rnd, 8))
        add(t, ", penalty: { after: %d, within: 1m, for: %ds }", (int)random_in(rnd, 1, 3), (int)random_in(rnd, 1, 90));
    if (number > 0 && random_one_in(rnd, 8))
        add(t, ", replaces: [rule-%d]", (int)random_in(rnd, 0, number - 1));
    if (random_one_in(rnd, 6))
        add(t, ", reject: { status: 503 }");
    add(t, " }\n");
}

static void make_rules(struct text *t, struct random *rnd)
{
    bool overridable[RULES_MOST] = { false };
    int count = (int)random_in(rnd, 0, RULES_MOST);
    t->len = 0;
    if (random_one_in(rnd, 12))
        add(t, "settings: { except: { %s } }\n", ONE_OF(rnd, "user: [k1]", "ip: [10.0.0.0/8]"));
    add(t, "rules:%s\n", count ? "" : " []");
    for (int i = 0; i < count; i++)
        add_rule(t, rnd, i, &overridable[i]);
    const char *list = "overrides:\n";
    for (int i = 0; i < count; i++) {
        /* The text of the rule says what it counts by. */
        char wanted[40];
        snprintf(wanted, sizeof wanted, "id: rule-%d, by: [key]", i);
        if (!overridable[i] || !strstr(t->bytes, wanted) || !random_one_in(rnd, 3))
            continue;
        add(t, "%s  - { rule: rule-%d, by: { key: k%d }, %s", list, i, (int)random_in(rnd, 0, 3),
            ONE_OF(rnd, "deny: true", "unlimited: true", "limits: [3 per 30s]"));
        if (random_one_in(rnd, 2))
            add(t, ", expires: %lld", (long long)(NOW / S + random_in(rnd, 0, 100)));
        add(t, " }\n");
        list = "";
    }
}

static void random_template(struct random *rnd, struct weir_request *ret, const char **ret_varies)
{
    static const struct weir_header headers[] = { { WEIR_STR("X-A"), WEIR_STR("one") },
                                                  { WEIR_STR("x-a"), WEIR_STR("two") } };
    *ret = (struct weir_request){ .event = weir_str(ONE_OF(rnd, "e0", "e1", "e0", "")) };
    *ret_varies = random_one_in(rnd, 3) ? "user" : "key";
    if (random_one_in(rnd, 3))
        ret->path = weir_str(ONE_OF(rnd, "/a/1/b", "/a", "/x", "/a/%2e%2e/b", "/a/..;/b", "/a%2f1"));
    if (random_one_in(rnd, 3))
        ret->method = weir_str("GET");
    if (random_one_in(rnd, 3))
        ret->ip = weir_str(ONE_OF(rnd, "10.1.2.3", "192.0.2.1"));
    if (random_one_in(rnd, 3))
        ret->user = weir_str("k1");
    if (random_one_in(rnd, 3))
        ret->key = weir_str("k2");
    if (random_one_in(rnd, 3)) {
        ret->headers = headers + random_in(rnd, 0, 1);
        ret->header_count = ret->headers == headers ? (size_t)random_in(rnd, 1, 2) : 1;
    }
    if (random_one_in(rnd, 6)) {
        ret->given_max = (uint64_t)random_in(rnd, 0, 5);
        ret->given_window_ms = (uint64_t)random_in(rnd, 1, 3) * 20000;
    }
    ret->peek = random_one_in(rnd, 8);
    ret->brief = random_one_in(rnd, 4);
}

#define SAME(field) (a->field == b->field)

static bool same_verdict(const struct weir_verdict *a, const struct weir_verdict *b)
{
    return SAME(allowed) && SAME(applied) && SAME(unavailable) && SAME(matched) && SAME(status) && SAME(penalty) &&
           SAME(unnamed) && SAME(max) && SAME(remaining) && SAME(debt) && SAME(reset_ms) && SAME(retry_after_ms) &&
           SAME(window_ms) && SAME(window_end_ms) && SAME(shadow_count) && SAME(private_rule) && SAME(private_rules) &&
           strcmp(a->rule, b->rule) == 0 && strcmp(a->limit, b->limit) == 0 && strcmp(a->unit, b->unit) == 0;
}

struct beside {
    struct random rnd;
    uint64_t seed;
    struct weir *plain, *other;
    struct text rules;
    struct weir_request templates[TEMPLATES];
    const char *varies[TEMPLATES];
    struct weir_prepared *prepared[TEMPLATES];
    int64_t now_us;
};

static size_t no_user(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    (void)request;
    (void)cap;
    (void)data;
    memcpy(buf, "k1", 2);
    return 2;
}

static void one_step(struct beside *s, int step)
{
    static const char *const values[] = { "k0", "k1", "k2", "k3", "", "?", "a value that is longer than two words" };
    struct random *rnd = &s->rnd;
    size_t i = (size_t)random_in(rnd, 0, TEMPLATES - 1);
    struct weir_str value = weir_str(one_of(rnd, values, sizeof values / sizeof *values));
    struct weir_request request = s->templates[i];
    struct weir_verdict a, b;
    request.cost = random_one_in(rnd, 10) ? 0 : random_one_in(rnd, 30) ? UINT64_MAX : (uint64_t)random_scaled(rnd, 4);
    *(s->varies[i][0] == 'k' ? &request.key : &request.user) = value;
    int r = weir_check(s->plain, &request, s->now_us, &a);
    int p = weir_prepared_check(s->prepared[i], value, request.cost, s->now_us, &b);
    if (r == p && same_verdict(&a, &b))
        return;
    char line_a[LINE_MAX_BYTES], line_b[LINE_MAX_BYTES];
    last_shadows.count = 0;
    verdict_line(&a, &last_shadows, line_a);
    verdict_line(&b, &last_shadows, line_b);
    fail_msg(
        "seed %llu, step %d, template %zu: event %.*s, %s %.*s, cost %llu, now %+lld us:\nweir_check: %d %s\nprepared:  "
        " %d %s\n%s",
        (unsigned long long)s->seed, step, i, (int)request.event.len, request.event.ptr, s->varies[i], (int)value.len,
        value.ptr, (unsigned long long)request.cost, (long long)(s->now_us - NOW), r, line_a, p, line_b, s->rules.bytes);
}

static void renew_template(struct beside *s, size_t i)
{
    weir_prepared_free(s->prepared[i]);
    random_template(&s->rnd, &s->templates[i], &s->varies[i]);
    s->prepared[i] = prepare(s->other, s->templates[i], s->varies[i]);
}

/* Both have the same secret: which cells are dropped where there is no room depends on it. */
enum { TABLE_BYTES = 64 << 10 };
static _Alignas(128) char tables[2][TABLE_BYTES];

static void one_schedule(uint64_t seed)
{
    struct beside s = { .rnd = { seed }, .seed = seed, .now_us = NOW };
    make_rules(&s.rules, &s.rnd);
    struct weir_options options = { .rules_text = s.rules.bytes,
                                    .cells_memory = tables[0],
                                    .cells_memory_bytes = TABLE_BYTES,
                                    .user_id = random_one_in(&s.rnd, 4) ? no_user : NULL };
    memset(tables[0], 0, TABLE_BYTES);
    s.plain = open_with(options);
    memcpy(tables[1], tables[0], TABLE_BYTES);
    options.cells_memory = tables[1];
    s.other = open_with(options);
    for (size_t i = 0; i < TEMPLATES; i++)
        renew_template(&s, i);
    for (int step = 0; step < STEPS; step++) {
        if (random_one_in(&s.rnd, 15)) {
            make_rules(&s.rules, &s.rnd);
            set_rules(s.plain, s.rules.bytes);
            set_rules(s.other, s.rules.bytes);
        }
        if (random_one_in(&s.rnd, 20))
            renew_template(&s, (size_t)random_in(&s.rnd, 0, TEMPLATES - 1));
        if (random_one_in(&s.rnd, 4))
            s.now_us += random_one_in(&s.rnd, 8) ? -random_scaled(&s.rnd, 30 * S) : random_scaled(&s.rnd, 10 * S);
        one_step(&s, step);
    }
    for (size_t i = 0; i < TEMPLATES; i++)
        weir_prepared_free(s.prepared[i]);
    weir_close(s.plain);
    weir_close(s.other);
}

static void it_says_what_weir_check_says(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < SCHEDULES; i++)
        one_schedule(seed + i);
}

/* ---- which way a request goes ---- */

static int kind_of(struct weir *weir, unsigned number)
{
    return (int)weir->current->prepared[number / PREPARED_PART]->plans[number % PREPARED_PART]->kind;
}

static void most_rules_need_no_matching(void **state)
{
    (void)state;
    static const struct {
        const char *rules;
        int kind;
    } cases[] = {
        { "[{ id: a, by: [key], limits: [9 per 1h] }]", PREPARED_CELL },
        { "[{ id: a, match: { event: e }, by: [event, key], limits: [9 per day] }]", PREPARED_CELL },
        { "[{ id: a, by: [key], limits: [9 per 1h] }, { id: b, match: { event: x, key: k }, by: [key], limits: [9 per 1h] "
          "}]",
          PREPARED_CELL },
        { "[{ id: a, by: [key], limits: [9 per 1h] }, { id: b, by: [user], limits: [9 per 1h] }]", PREPARED_CELL },
        { "[{ id: a, by: [key], limits: [9 per 1h, 10 per day] }]", PREPARED_RULES },
        { "[{ id: a, by: [key], limits: [9 per 1h] }, { id: b, by: [event], limits: [9 per 1h] }]", PREPARED_RULES },
        { "[{ id: a, by: [key, event], limits: [9 per 1h] }]", PREPARED_RULES },
        { "[{ id: a, by: [key], limits: [9 concurrent] }]", PREPARED_RULES },
        { "[{ id: a, by: [key], limits: [9 per 1h], penalty: { after: 3, within: 1m, for: 1m } }]", PREPARED_RULES },
        { "[{ id: a, by: [key], limits: [9 per 1h], mode: shadow }]", PREPARED_RULES },
        { "[{ id: a, by: [user], limits: [9 per 1h] }]", PREPARED_RULES },
        { "[{ id: a, match: { key: k }, by: [key], limits: [9 per 1h] }]", PREPARED_ORDINARY },
        { "[{ id: a, by: [key], limits: [9 per 1h] }, { id: b, match: { key: { not: k } }, limits: [9 per 1h] }]",
          PREPARED_ORDINARY },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "rules: %s", cases[i].rules);
        struct weir *weir = open_rules(text);
        struct weir_prepared *prepared = prepare(weir, (struct weir_request){ .event = WEIR_STR("e") }, "key");
        prepared_at(prepared, "k", 1, NOW);
        if (kind_of(weir, 0) != cases[i].kind)
            fail_msg("%s: %d, not %d", text, kind_of(weir, 0), cases[i].kind);
        weir_prepared_free(prepared);
        weir_close(weir);
    }
}

static void new_rules_count_from_the_next_request_on(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: a, by: [key], limits: [{ name: x, max: 2, per: 1h }] }]");
    struct weir_prepared *prepared = prepare(weir, (struct weir_request){ .event = WEIR_STR("e") }, "key");
    EXPECT_PREPARED(prepared, "k", NOW, "pass a/x 1 of 2, reset 1800000");
    EXPECT_PREPARED(prepared, "k", NOW, "pass a/x 0 of 2, reset 3600000");
    EXPECT_PREPARED(prepared, "k", NOW, "refuse 429 a/x 0 of 2, reset 3600000, retry 1800000");
    set_rules(weir, "rules: [{ id: a, by: [key], limits: [{ name: x, max: 4, per: 1h }] }]");
    EXPECT_PREPARED(prepared, "k", NOW, "pass a/x 1 of 4, reset 2700000");
    /* The count is the one of weir_check. */
    EXPECT(weir, one("e", "k"), NOW, "pass a/x 0 of 4, reset 3600000");
    set_rules(weir, "rules: [{ id: b, by: [key], limits: [{ name: x, max: 1, per: 1h }] }]");
    EXPECT_PREPARED(prepared, "k", NOW, "pass b/x 0 of 1, reset 3600000");
    set_rules(weir, "rules: []");
    EXPECT_PREPARED(prepared, "k", NOW, "pass no rule");
    weir_prepared_free(prepared);
    weir_close(weir);
}

/* Short ones are copied in pieces. The verdict is full of other bytes before. */
static void names_of_all_lengths(void **state)
{
    (void)state;
    static const int ids[] = { 1, 15, 16, 31, 32, 47, 48, WEIR_ID_MAX }, names[] = { 1, 16, 47, 48, WEIR_NAME_MAX };
    char letters[WEIR_ID_MAX + 1], text[2 * WEIR_ID_MAX + 100];
    memset(letters, 'a', WEIR_ID_MAX);
    letters[WEIR_ID_MAX] = '\0';
    for (size_t i = 0; i < sizeof ids / sizeof *ids * (sizeof names / sizeof *names); i++) {
        int id = ids[i % (sizeof ids / sizeof *ids)], name = names[i / (sizeof ids / sizeof *ids)];
        snprintf(text, sizeof text, "rules: [{ id: %.*s, by: [key], limits: [{ name: %.*s, max: 9, per: 1h }] }]", id,
                 letters, name, letters);
        struct weir *weir = open_rules(text);
        struct weir_prepared *prepared = prepare(weir, (struct weir_request){ .event = WEIR_STR("e") }, "key");
        struct weir_request request = { .event = WEIR_STR("e"), .key = WEIR_STR("k"), .cost = 1 };
        struct weir_verdict wanted, found;
        memset(&found, 'x', sizeof found);
        assert_int_equal(weir_prepared_check(prepared, WEIR_STR("other"), 1, NOW, &found), 0);
        assert_int_equal(weir_check(weir, &request, NOW, &wanted), 0);
        assert_int_equal(strlen(found.rule), id);
        assert_true(same_verdict(&wanted, &found));
        weir_prepared_free(prepared);
        weir_close(weir);
    }
}

/* More of them than plans are kept for. */
static void rules_expire_one_after_another(void **state)
{
    (void)state;
    struct text t = { .len = 0 };
    add(&t, "rules:\n");
    for (int i = 0; i < 20; i++)
        add(&t, "  - { id: r%02d, by: [key], limits: [{ name: x, max: %d, per: 1h }], expires: %lld }\n", i, 1000 + i,
            (long long)(NOW / S + 1 + i));
    struct weir *weir = open_rules(t.bytes);
    struct weir_prepared *prepared = prepare(weir, (struct weir_request){ .event = WEIR_STR("e") }, "key");
    for (int round = 0; round < 2; round++) /* and again: the clock was set back */
        for (int i = 0; i < 20; i++) {
            char key[20];
            snprintf(key, sizeof key, "k%d-%d", round, i);
            struct weir_verdict v = prepared_at(prepared, key, 1, NOW + i * S);
            assert_int_equal(v.max, 1000 + i);
            v = prepared_at(prepared, key, 1, NOW + (i + 1) * S - 1);
            assert_int_equal(v.max, 1000 + i);
            assert_int_equal(v.remaining, 998 + i);
        }
    EXPECT_PREPARED(prepared, "k", NOW + 20 * S, "pass no rule");
    weir_prepared_free(prepared);
    weir_close(weir);
}

static void a_number_is_used_again(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n"
                   "  - { id: a, match: { event: a }, by: [key], limits: [{ name: x, max: 2, per: 1h }] }\n"
                   "  - { id: b, match: { event: b }, by: [key], limits: [{ name: x, max: 9, per: 1h }] }\n");
    struct weir_prepared *first = prepare(weir, (struct weir_request){ .event = WEIR_STR("a") }, "key");
    assert_int_equal(prepared_at(first, "k", 1, NOW).max, 2);
    weir_prepared_free(first);
    first = prepare(weir, (struct weir_request){ .event = WEIR_STR("b") }, "key");
    assert_int_equal(prepared_at(first, "k", 1, NOW).max, 9);
    static struct weir_prepared *all[PREPARED_MAX];
    for (unsigned i = 1; i < PREPARED_MAX; i++)
        all[i] = prepare(weir, (struct weir_request){ .event = WEIR_STR("a") }, "key");
    struct weir_error error;
    struct weir_prepared *none = NULL;
    assert_int_equal(weir_prepare(&none, weir, &(struct weir_request){ .cost = 1 }, "key", &error), WEIR_E_INVALID);
    assert_null(none);
    assert_int_equal(prepared_at(all[PREPARED_MAX - 1], "k2", 1, NOW).max, 2);
    for (unsigned i = 1; i < PREPARED_MAX; i++)
        weir_prepared_free(all[i]);
    weir_prepared_free(first);
    weir_prepared_free(NULL);
    weir_close(weir);
}

static void what_cannot_be_prepared(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: []");
    struct weir_receipt receipt;
    struct weir_shadows shadows;
    struct weir_verdict verdict;
    struct weir_cost cost = { WEIR_STR("tokens"), 1 };
    struct weir_request other = { .cost = 1 };
    const struct weir_request bad[] = {
        { .with = &other }, { .own = &verdict },     { .own_shadow = &verdict },          { .receipt = &receipt },
        { .ttl_ms = 1 },    { .shadows = &shadows }, { .costs = &cost, .cost_count = 1 }, { .charging = WEIR_GIVE_BACK },
    };
    struct weir_prepared *prepared = NULL;
    struct weir_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(weir_prepare(&prepared, weir, &bad[i], "key", &error), WEIR_E_INVALID);
        assert_int_equal(error.code, WEIR_E_INVALID);
    }
    static const char *const names[] = { "ip", "path", "header:x", "", "nothing" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(weir_prepare(&prepared, weir, &other, names[i], NULL), WEIR_E_INVALID);
    assert_null(prepared);
    prepared = prepare(weir, other, "user");
    memset(&verdict, 0xa5, sizeof verdict);
    assert_int_equal(weir_prepared_check(prepared, weir_str("u"), 1, -1, &verdict), WEIR_E_INVALID);
    assert_false(verdict.allowed);
    assert_int_equal(verdict.status, 503);
    weir_prepared_free(prepared);
    weir_close(weir);
}

/* The request and its strings may change afterwards. */
static void the_request_is_copied(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules:\n"
        "  - { id: a, match: { event: ocr, header: { x-a: one } }, by: ['header:x-a', key], limits: [2 per 1h],\n"
        "      except: { ip: [45.45.45.45] } }\n");
    char event[] = "ocr", name[] = "X-A", value[] = "one", peer[] = "\x7f\0\0\1"; /* four times '-' is excepted */
    struct weir_header header = { weir_str(name), weir_str(value) };
    struct weir_request request = {
        .event = weir_str(event), .headers = &header, .header_count = 1, .peer_bytes = { peer, 4 }, .cost = 7
    };
    struct weir_prepared *prepared = prepare(weir, request, "key");
    memset(peer, '-', 4);
    memset(event, '-', strlen(event));
    memset(name, '-', strlen(name));
    memset(value, '-', strlen(value));
    header = (struct weir_header){ { NULL, 9 }, { NULL, 9 } };
    EXPECT_PREPARED(prepared, "k", NOW, "pass a/token_bucket 1 of 2, reset 1800000");
    weir_prepared_free(prepared);
    weir_close(weir);
}

/* ---- threads ---- */

enum { THREADS = 4, KEYS = 2000 / CROWD_SLOWER };

struct worker {
    pthread_t thread;
    struct weir *weir;
    struct weir_prepared *a, *b; /* shared by all */
    struct tally *tallies;
    bool *stop;
    uint64_t seed, done;
};

static void *ask_prepared(void *ptr)
{
    struct worker *w = ptr;
    struct random rnd = { w->seed };
    while (!__atomic_load_n(w->stop, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < KEYS; i++) {
            char key[20];
            struct weir_verdict v;
            struct weir_request request = crowd_request(key, i, random_one_in(&rnd, 2));
            struct weir_prepared *prepared = request.event.ptr[0] == 'b' ? w->b : w->a;
            if (weir_prepared_check(prepared, request.key, 1, NOW, &v) == 0)
                crowd_count(&w->tallies[i], &request, &v);
        }
        /* And one that is not shared, whose number others had before. */
        struct weir_verdict v;
        struct weir_prepared *own = prepare(w->weir, (struct weir_request){ .event = WEIR_STR("own") }, "user");
        weir_prepared_check(own, weir_str("u"), 1, NOW, &v);
        weir_prepared_free(own);
        __atomic_add_fetch(&w->done, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static bool all_have_asked(struct worker *workers)
{
    for (int i = 0; i < THREADS; i++)
        if (__atomic_load_n(&workers[i].done, __ATOMIC_RELAXED) == 0)
            return false;
    return true;
}

/* Rules of `a` and `b` that are one cell, several rules, or depend on the key, in turns: no cell holds more or less than
 * was admitted. */
static void rules_are_swapped_under_prepared_checks(void **state)
{
    (void)state;
    static const char *const variants[] = {
        CROWD_RULES,
        "rules:\n" CROWD_RULES_BC CROWD_RULES_A,
        "rules:\n  - { id: other, match: { key: [key-0, key-1] }, by: [event], limits: [4000000000 per 1s] "
        "}\n" CROWD_RULES_A CROWD_RULES_BC,
        "rules:\n" CROWD_RULES_A CROWD_RULES_BC "  - { id: old, by: [key], limits: [9 per 1h], expires: 1600000000 }\n",
    };
    enum { SWAPS = 600 / CROWD_SLOWER };
    struct worker workers[THREADS];
    bool stop = false;
    struct weir *weir = open_with((struct weir_options){ .rules_text = CROWD_RULES, .cells_keys = KEYS * 10 });
    struct tally *tallies = calloc(KEYS, sizeof *tallies);
    assert_non_null(tallies);
    struct weir_prepared *a = prepare(weir, (struct weir_request){ .event = WEIR_STR("a") }, "key");
    struct weir_prepared *b = prepare(weir, (struct weir_request){ .event = WEIR_STR("b") }, "key");
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker){ .weir = weir, .a = a, .b = b, .tallies = tallies, .stop = &stop, .seed = random_seed() + i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, ask_prepared, &workers[i]), 0);
    }
    for (int i = 0; i < SWAPS || !all_have_asked(workers); i++)
        set_rules(weir, variants[(size_t)i % (sizeof variants / sizeof *variants)]);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    set_rules(weir, "rules:\n" CROWD_RULES_A CROWD_RULES_BC);
    crowd_check(weir, tallies, KEYS, 0);
    weir_prepared_free(a);
    weir_prepared_free(b);
    free(tallies);
    weir_close(weir);
}

/* One cell, many threads, a max that goes up and down: never more than the highest. */
static void never_more_than_max(void **state)
{
    (void)state;
    enum { SWAPS = 300 / CROWD_SLOWER };
    static const char *const rules[] = { "rules:\n  - { id: c, by: [key], limits: [{ name: w, max: 2, per: 1h }] }\n",
                                         "rules:\n  - { id: c, by: [key], limits: [{ name: w, max: 5, per: 1h }] }\n" };
    struct worker workers[THREADS];
    bool stop = false;
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules[0], .cells_keys = KEYS * 10 });
    struct tally *tallies = calloc(KEYS, sizeof *tallies);
    assert_non_null(tallies);
    struct weir_prepared *a = prepare(weir, (struct weir_request){ .event = WEIR_STR("a") }, "key");
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker){ .weir = weir, .a = a, .b = a, .tallies = tallies, .stop = &stop, .seed = random_seed() + i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, ask_prepared, &workers[i]), 0);
    }
    for (int i = 0; i < SWAPS || !all_have_asked(workers); i++)
        set_rules(weir, rules[i % 2]);
    set_rules(weir, rules[1]);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (unsigned i = 0; i < KEYS; i++) {
        assert_true(tallies[i].a + tallies[i].b <= W_MAX);
        assert_int_equal(crowd_counts(weir, i).w, tallies[i].a + tallies[i].b);
    }
    weir_prepared_free(a);
    free(tallies);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_weir_check_says),
        cmocka_unit_test(most_rules_need_no_matching),
        cmocka_unit_test(new_rules_count_from_the_next_request_on),
        cmocka_unit_test(names_of_all_lengths),
        cmocka_unit_test(rules_expire_one_after_another),
        cmocka_unit_test(a_number_is_used_again),
        cmocka_unit_test(what_cannot_be_prepared),
        cmocka_unit_test(the_request_is_copied),
        cmocka_unit_test(rules_are_swapped_under_prepared_checks),
        cmocka_unit_test(never_more_than_max),
    };
    return cmocka_run_group_tests_name("engine/prepared", tests, NULL, NULL);
}
