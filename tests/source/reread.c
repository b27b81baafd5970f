/* Tables that are read again, sharing what did not change, beside the same tables read from scratch: the same rules, lines,
 * errors, text and decisions, after any change by hand.
 *
 * TEST_SEED is the seed of the first schedule, TEST_ROUNDS how many steps there are. */
#include "../rules/equal.h"
#include "engine/explain.h"
#include "engine/handle.h"
#include "source/backend.h"
#include "sources.h"

/* OTHERS: rules that never change, so that those that do are few, and are added to the indexes that are there. */
enum { RULES = 40, OTHERS = 250, STEPS = 60, REQUESTS = 60 };

static uint64_t seed;

static unsigned below(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* ---- random rows ---- */

static const char *any(const char *const *list, size_t count)
{
    return list[below((unsigned)count)];
}
#define ANY(list) any((list), sizeof(list) / sizeof *(list))

static void random_id(struct buf *out)
{
    if (below(20) == 0)
        buf_printf(out, "throttled-call-%u", 1 + below(4));
    else
        buf_printf(out, "r%u", below(RULES));
}

static void random_limit(struct buf *out)
{
    static const char *const limits[] = { "\"%u per 10s\"",
                                          "{\"max\": %u, \"per\": \"1m\", \"algorithm\": \"sliding_window\"}",
                                          "{\"name\": \"day\", \"calendar\": \"day\", \"max\": %u, \"tz\": \"Asia/Tokyo\"}",
                                          "{\"max\": %u, \"per\": \"1m\", \"algorithm\": \"fixed_window\"}" };
    buf_printf(out, ANY(limits), 1 + below(9));
}

static void random_document(struct buf *out)
{
    static const char *const matches[] = {
        "\"match\": {\"path\": \"/a/#\"}, ",
        "\"match\": {\"path\": [\"/b/{x}\", \"/c/*\"], \"method\": [\"GET\"]}, ",
        "\"match\": {\"path\": {\"regex\": \"/(a|b)/.*\"}}, ",
        "\"match\": {\"event\": \"e1\"}, ",
        "\"match\": {\"header\": {\"x-h\": [\"v1\", \"v2\"]}}, ",
        "\"match\": {\"ip\": [\"10.0.0.0/8\"]}, \"except\": {\"users\": [\"u1\"]}, ",
        "\"match\": {\"host\": \"h1\", \"path\": {\"not\": \"/a/1\"}}, ",
        "",
    };
    static const char *const bys[] = { "\"by\": [\"user\"]", "\"by\": [\"ip\"]", "\"by\": [\"path\"]",
                                       "\"by\": [\"user\", \"header:x-h\"]" };
    static const char *const others[] = { "",
                                          "",
                                          "",
                                          ", \"mode\": \"shadow\"",
                                          ", \"mode\": \"off\"",
                                          ", \"expires\": \"2001-01-01T00:00:00Z\"",
                                          ", \"expires\": \"2099-01-01T00:00:00Z\"",
                                          ", \"replaces\": [\"r1\", \"r2\", \"r3\"]",
                                          ", \"plan\": \"user\", \"plans\": {\"u0\": [\"2 per 1s\"], \"u2\": []}",
                                          ", \"penalty\": {\"after\": 2, \"within\": \"1m\", \"for\": \"1m\"}",
                                          ", \"reject\": {\"status\": 503, \"body\": \"no\"}",
                                          ", \"enabled\": false" };
    buf_printf(out, "{%s%s, \"limits\": [", ANY(matches), ANY(bys));
    for (unsigned i = 0, n = 1 + below(2); i < n; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        random_limit(out);
    }
    buf_printf(out, "]%s}", ANY(others));
}

static void random_bad(struct buf *out)
{
    static const char *const texts[] = { "",
                                         "{",
                                         "[]",
                                         "{\"limits\": [\"x\"]}",
                                         "{\"id\": \"other\", \"limits\": [\"1 per 1s\"]}",
                                         "{\"match\": {\"path\": {\"regex\": \"(\"}}, \"limits\": [\"1 per 1s\"]}",
                                         "{\"limits\": [\"1 per 1s\"], \"limit\": 1}",
                                         "limits: [1 per 1s]" };
    buf_add(out, weir_str(ANY(texts)));
}

/* ---- random changes, by hand ---- */

static void run(struct sql *sql, const char *statement, struct sql_value *values, size_t count)
{
    good(sql_run(sql, statement, values, count, NULL, NULL, NULL, &error));
}

static void change_rule(struct sql *sql)
{
    struct buf id, text;
    buf_init(&id, 100);
    buf_init(&text, 4000);
    random_id(&id);
    unsigned what = below(10);
    if (what == 0)
        random_bad(&text);
    else
        random_document(&text);
    struct sql_value values[] = { { .text = buf_sv(&id) }, { .text = buf_sv(&text) } };
    if (what < 8) {
        run(sql, "DELETE FROM WEIR_RULES WHERE ID = ?", values, 1);
        run(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES (?, ?)", values, 2);
    } else if (what == 8) {
        run(sql, "DELETE FROM WEIR_RULES WHERE ID = ?", values, 1);
    } else {
        static const char *const enabled[] = { "UPDATE WEIR_RULES SET ENABLED = 0 WHERE ID = ?",
                                               "UPDATE WEIR_RULES SET ENABLED = 1 WHERE ID = ?",
                                               "UPDATE WEIR_RULES SET ENABLED = 7 WHERE ID = ?" };
        run(sql, ANY(enabled), values, 1);
    }
    buf_done(&id);
    buf_done(&text);
}

static void change_call(struct sql *sql)
{
    static const char *const calls[] = { "GET /a/#", "/a/#", "/a//#", "/b/#/", "nothing", "PUT /c" };
    char number[8], max[8];
    snprintf(number, sizeof number, "%u", 1 + below(4));
    snprintf(max, sizeof max, "%u", below(5));
    struct sql_value values[] = { { .text = weir_str(number) },
                                  { .text = weir_str(ANY(calls)) },
                                  { .text = weir_str(max) } };
    run(sql, "DELETE FROM THROTTLED_CALLS WHERE THROTTLE_ID = ?", values, 1);
    run(sql, "DELETE FROM THROTTLED_CALLS WHERE NORMALIZED_CALL = ?", values + 1, 1);
    if (below(4))
        run(sql,
            "INSERT INTO THROTTLED_CALLS (THROTTLE_ID, NORMALIZED_CALL, MAX_LOCKS, LOCK_TIMEOUT_SECONDS) VALUES (?, ?, ?, "
            "10)",
            values, 3);
}

static void change_setting(struct sql *sql)
{
    static const char *const settings[][2] = {
        { "ignore_case", "true" },
        { "ignore_case", "false" },
        { "ignore_case", "maybe" },
        { "ids", "[\"[0-9]+\"]" },
        { "ids", "[\"(\"]" },
        { "ipv6_prefix", "48" },
        { "ipv6_prefix", "96" },
        { "ipv6_prefix", "0" },
        { "except", "{\"users\": [\"u2\"]}" },
        { "unknown", "1" },
        { "strip_prefixes", "[\"/api\"]" },
    };
    const char *const *setting = settings[below(sizeof settings / sizeof *settings)];
    struct sql_value values[] = { { .text = weir_str(setting[0]) }, { .text = weir_str(setting[1]) } };
    run(sql, "DELETE FROM WEIR_SETTINGS WHERE NAME = ?", values, 1);
    if (below(3))
        run(sql, "INSERT INTO WEIR_SETTINGS (NAME, VALUE) VALUES (?, ?)", values, 2);
}

static void change_override(struct sql *sql)
{
    static const char *const subjects[] = { "u0",    "u1", "2001:db8::1:2:3:4", "2001:db8::1:2:3:4", "u0,v1", "/a/1",
                                            "/a/1/", "%zz" };
    static const char *const documents[] = { "{\"deny\": true}",
                                             "{\"unlimited\": true}",
                                             "{\"limits\": [\"3 per 1s\"]}",
                                             "{\"limits\": [\"x\"]}",
                                             "{}",
                                             "{\"limits\": [\"3 per 1s\"], \"why\": \"w\"}" };
    struct buf id;
    buf_init(&id, 100);
    random_id(&id);
    struct sql_value values[] = { { .text = buf_sv(&id) },
                                  { .text = weir_str(ANY(subjects)) },
                                  { .text = weir_str(ANY(documents)) } };
    run(sql, "DELETE FROM WEIR_OVERRIDES WHERE RULE_ID = ? AND SUBJECT = ?", values, 2);
    if (below(4))
        run(sql, "INSERT INTO WEIR_OVERRIDES (RULE_ID, SUBJECT, OVERRIDE) VALUES (?, ?, ?)", values, 3);
    buf_done(&id);
}

/* Two rules, which do not name themselves, change places. */
static void swap_ids(struct sql *sql)
{
    char a[8], b[8];
    snprintf(a, sizeof a, "r%u", below(RULES));
    snprintf(b, sizeof b, "r%u", below(RULES));
    const char *moves[][2] = { { "aside", a }, { a, b }, { b, "aside" } };
    for (size_t i = 0; strcmp(a, b) != 0 && i < sizeof moves / sizeof *moves; i++) {
        struct sql_value values[] = { { .text = weir_str(moves[i][0]) }, { .text = weir_str(moves[i][1]) } };
        run(sql, "UPDATE WEIR_RULES SET ID = ? WHERE ID = ?", values, 2);
    }
}

static void change(struct sql *sql)
{
    good(sql_begin(sql, SQL_CHANGE, &error));
    for (unsigned i = below(4); i > 0; i--) {
        unsigned what = below(15);
        if (what == 14)
            swap_ids(sql);
        else if (what < 7)
            change_rule(sql);
        else if (what < 8)
            change_call(sql);
        else if (what < 10)
            change_setting(sql);
        else
            change_override(sql);
    }
    good(sql_commit(sql, &error));
}

/* ---- comparing ---- */

static void same_problems(const struct source_reading *a, const struct source_reading *b)
{
    struct buf x, y;
    buf_init(&x, 1 << 20);
    buf_init(&y, 1 << 20);
    buf_add(&x, SV(""));
    buf_add(&y, SV(""));
    for (size_t i = 0; i < a->problem_count; i++)
        source_problem_print(&a->problems[i], &x);
    for (size_t i = 0; i < b->problem_count; i++)
        source_problem_print(&b->problems[i], &y);
    assert_string_equal(x.ptr, y.ptr);
    assert_int_equal(a->unlisted, b->unlisted);
    assert_int_equal(a->unused_overrides, b->unused_overrides);
    buf_done(&x);
    buf_done(&y);
}

static void same_rules(const struct rules *a, const struct rules *b)
{
    assert_true(rules_equal(a, b));
    for (size_t i = 0; i < a->rule_count; i++)
        assert_int_equal(a->rules[i]->line, b->rules[i]->line);
    for (size_t i = 0; i < a->override_count; i++)
        assert_int_equal(a->overrides[i].line, b->overrides[i].line);
}

static void same_text(struct rules *a, const struct rules *b, struct rules_text *before)
{
    struct rules_text text;
    struct buf written;
    buf_init(&written, RULES_BYTES_MAX);
    rules_write(b, &written);
    assert_true(rules_text_write(&text, a, before));
    assert_true(sv_eq(buf_sv(&text.text), buf_sv(&written)));
    rules_text_done(before);
    *before = text;
    buf_done(&written);
}

static void note_request(struct facts *facts, void *data)
{
    (void)facts, (void)data;
}

static void note_rule(const struct explained_rule *rule, void *data)
{
    buf_printf(data, "%.*s %d %zu; ", SV_FMT(rule->rule->id), (int)rule->reason, rule->limit_count);
}

static void note_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    (void)request;
    buf_printf(data, "%d %s", verdict->allowed, verdict->rule);
}

static void same_explanation(struct weir *a, struct weir *b, const struct weir_request *request, int64_t now_us)
{
    static const struct explain_sink sink = { .request = note_request, .rule = note_rule, .verdict = note_verdict };
    struct buf one, two;
    buf_init(&one, 1 << 20);
    buf_init(&two, 1 << 20);
    assert_int_equal(weir_explain(a, request, now_us, &sink, &one), weir_explain(b, request, now_us, &sink, &two));
    assert_true(one.len > 0 && sv_eq(buf_sv(&one), buf_sv(&two)));
    buf_done(&one);
    buf_done(&two);
}

/* Expects the same headers from both, for all limits of a request. */
static void same_headers(struct weir *a, struct weir *b, struct weir_request *request, const struct weir_verdict *x,
                         const struct weir_verdict *y, struct weir_usage usage[2])
{
    struct weir_headers one, two;
    request->usage = &usage[0];
    weir_headers(a, request, x, WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY, &one);
    request->usage = &usage[1];
    weir_headers(b, request, y, WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY, &two);
    assert_int_equal(one.count, two.count);
    for (size_t i = 0; i < one.count; i++)
        assert_true(sv_eq(one.header[i].name, two.header[i].name) && sv_eq(one.header[i].value, two.header[i].value));
}

/* Charges of the last step, which are given back under other rules. */
static struct weir_receipt charged[2];

/* Both have decided the same requests so far, under the same rules. */
static void same_decisions(struct weir *a, struct weir *b, int64_t now_us)
{
    if (charged[0].count > 0)
        assert_int_equal(weir_refund(a, &charged[0], now_us), weir_refund(b, &charged[1], now_us));

    static const char *const paths[] = { "/a/1", "/a/x", "/b/1", "/B/q", "/c/d/e", "/api/a/1", "/PUT", "/c" };
    static const char *const users[] = { "u0", "u1", "u2", "u3", "" }, *const ips[] = { "10.0.0.1", "11.0.0.1",
                                                                                        "2001:db8::1:2:3:4", "" };
    static const char *const values[] = { "v1", "v2", "v3", "" };
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct weir_header header = { WEIR_STR("X-H"), weir_str(ANY(values)) };
        struct weir_request request = { .method = weir_str(below(2) ? "GET" : "PUT"),
                                        .path = weir_str(ANY(paths)),
                                        .user = weir_str(ANY(users)),
                                        .ip = weir_str(ANY(ips)),
                                        .host = weir_str(below(2) ? "h1" : "h2"),
                                        .event = weir_str(below(2) ? "e1" : ""),
                                        .headers = &header,
                                        .header_count = 1,
                                        .cost = 1 };
        struct weir_verdict x = { 0 }, y = { 0 };
        struct weir_usage usage[2];
        request.keep = true;
        request.usage = &usage[0];
        request.receipt = &charged[0];
        int checked = weir_check(a, &request, now_us + i, &x);
        request.usage = &usage[1];
        request.receipt = &charged[1];
        assert_int_equal(checked, weir_check(b, &request, now_us + i, &y));
        assert_int_equal(charged[0].count, charged[1].count);
        assert_int_equal(x.allowed, y.allowed);
        assert_int_equal(x.applied, y.applied);
        assert_int_equal(x.matched, y.matched);
        assert_int_equal(x.status, y.status);
        assert_int_equal(x.remaining, y.remaining);
        assert_int_equal(x.retry_after_ms, y.retry_after_ms);
        assert_int_equal(x.shadow_count, y.shadow_count);
        assert_string_equal(x.rule, y.rule);
        assert_string_equal(x.limit, y.limit);
        same_headers(a, b, &request, &x, &y, usage);
        request.usage = NULL;
        request.receipt = NULL;
        if (i % 8 == 0)
            same_explanation(a, b, &request, now_us + i);
    }
}

static struct weir *open_weir(void)
{
    memset(charged, 0, sizeof charged);
    struct weir *weir = NULL;
    struct weir_options options = {
        .size = sizeof options, .rules_text = "rules: []", .rules_text_len = 9, .cells_keys = 10000
    };
    good(weir_open(&weir, &options, &error));
    return weir;
}

struct kept {
    struct source *source;
    struct rules *last;
    struct rules_text text;
    struct weir *shares, *anew;
};

static void kept_done(struct kept *k)
{
    rules_free(k->last);
    rules_text_done(&k->text);
    source_close(k->source);
    weir_close(k->shares);
    weir_close(k->anew);
}

static void step(struct kept *k, struct place *place, int64_t now_us)
{
    struct source_reading a, b;
    struct source *fresh = open_source(place);
    good(source_read_rules(k->source, k->last, &a, &error));
    good(source_read(fresh, k->last, &b, &error));
    source_close(fresh);
    same_rules(a.rules, b.rules);
    same_problems(&a, &b);
    same_text(a.rules, b.rules, &k->text);
    good(weir_take_rules(k->shares, rules_share(a.rules), &error));
    good(weir_take_rules(k->anew, rules_share(b.rules), &error));
    same_decisions(k->shares, k->anew, now_us);
    rules_free(k->last);
    k->last = rules_share(a.rules);
    source_reading_done(&a);
    source_reading_done(&b);
}

/* One half of them comes before the rules that change, the other half after these. */
static void add_others(struct sql *sql)
{
    good(sql_begin(sql, SQL_CHANGE, &error));
    for (unsigned i = 0; i < OTHERS; i++) {
        char id[16], text[120];
        snprintf(id, sizeof id, "%c%u", i % 2 ? 'q' : 's', i);
        snprintf(text, sizeof text, "{\"match\": {\"path\": \"/other/%u/*\"}, \"limits\": [\"1 per 1s\"]}", i);
        struct sql_value values[] = { { .text = weir_str(id) }, { .text = weir_str(text) } };
        run(sql, "INSERT INTO WEIR_RULES (ID, RULE) VALUES (?, ?)", values, 2);
    }
    good(sql_commit(sql, &error));
}

static void sharing_changes_nothing(void **state)
{
    struct place *place = *state;
    const char *given = getenv("TEST_SEED"), *rounds = getenv("TEST_ROUNDS");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    unsigned steps = rounds ? (unsigned)strtoul(rounds, NULL, 10) : STEPS;
    struct kept k = { .source = fresh_source(place), .shares = open_weir(), .anew = open_weir() };
    struct sql *sql = place_connect(place);
    seed = first;
    add_others(sql);
    for (unsigned i = 0; i < RULES; i++)
        change_rule(sql);
    for (unsigned i = 0; i < steps; i++) {
        print_message("# TEST_SEED=%llu, step %u\n", (unsigned long long)first, i);
        change(sql);
        step(&k, place, INT64_C(1800000000000000) + i * INT64_C(700000));
    }
    sql_close(sql);
    kept_done(&k);
}

/* One row changes: the others are not read again, and one index finds all of them. */
static void what_did_not_change_is_shared(void **state)
{
    struct place *place = *state;
    struct source *source = fresh_source(place);
    struct source_reading before, after;
    put(source, "{ id: a, match: { path: /a }, limits: [1 per 1s] }");
    put(source, "{ id: b, match: { path: /b }, limits: [1 per 1s] }");
    put(source, "{ id: c, match: { path: /c }, by: [user], limits: [1 per 1s] }");
    good(source_put_override(source, SV("c"), (struct source_subject){ .text = SV("x") }, SV("{deny: true}"), me, NULL,
                             &error));
    good(source_read_rules(source, NULL, &before, &error));
    good(set(source, "b", "max", "2"));
    good(source_read_rules(source, before.rules, &after, &error));
    assert_true(rule_is_shared(before.rules->rules[0], after.rules->rules[0]));
    assert_false(rule_is_shared(before.rules->rules[1], after.rules->rules[1]));
    assert_true(rule_is_shared(before.rules->rules[2], after.rules->rules[2]));
    assert_ptr_equal(before.rules->overrides[0].values, after.rules->overrides[0].values);
    struct ruleset *old, *new;
    uint32_t *was;
    good(ruleset_follow(&old, NULL, rules_share(before.rules), &was, &error));
    assert_null(was);
    good(ruleset_follow(&new, old, rules_share(after.rules), &was, &error));
    assert_true(ruleset_is_like(old, new));
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(was[i], i);
    free(was);
    source_reading_done(&before);
    ruleset_free(old); /* the new one goes on */
    ruleset_free(new);
    source_reading_done(&after);
    source_close(source);
}

/* Rows that say the same, and mean something else because another row has changed. */
static void what_depends_on_another_row_is_read(void **state)
{
    static const char *const changes[] = {
        "INSERT INTO WEIR_OVERRIDES (RULE_ID, SUBJECT, OVERRIDE) VALUES ('a', '2001:db8::1:2:3:4', '{\"deny\": true}')",
        "INSERT INTO WEIR_SETTINGS (NAME, VALUE) VALUES ('ipv6_prefix', '48')",
        "UPDATE WEIR_SETTINGS SET VALUE = '96' WHERE NAME = 'ipv6_prefix'",
        "UPDATE WEIR_RULES SET RULE = '{\"by\": [\"user\"], \"limits\": [\"1 per 1s\"]}' WHERE ID = 'a'",
        "UPDATE WEIR_RULES SET ENABLED = 0 WHERE ID = 'b'",
        "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('0', '{\"limits\": [\"1 per 1s\"]}')", /* every line is another one */
        "INSERT INTO THROTTLED_CALLS (THROTTLE_ID, NORMALIZED_CALL, MAX_LOCKS, LOCK_TIMEOUT_SECONDS) VALUES (7, '/a/#', 1, "
        "1)",
        "INSERT INTO THROTTLED_CALLS (THROTTLE_ID, NORMALIZED_CALL, MAX_LOCKS, LOCK_TIMEOUT_SECONDS) VALUES (3, '/a//#', "
        "1, 1)",
        "INSERT INTO WEIR_RULES (ID, RULE) VALUES ('throttled-call-7', '{\"limits\": [\"1 per 1s\"]}')",
        "DELETE FROM WEIR_RULES WHERE ID = 'a'",
        "UPDATE WEIR_RULES SET RULE = '{' WHERE ID = 'c'",
        "DELETE FROM WEIR_SETTINGS",
    };
    struct place *place = *state;
    struct kept k = { .source = fresh_source(place), .shares = open_weir(), .anew = open_weir() };
    struct sql *sql = place_connect(place);
    put(k.source, "{ id: a, by: [ip], limits: [1 per 1s] }");
    put(k.source, "{ id: b, by: [ip], limits: [1 per 1s] }");
    put(k.source, "{ id: c, by: [ip], limits: [1 per 1s] }");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        hand(sql, changes[i]);
        step(&k, place, INT64_C(1800000000000000) + (int64_t)i);
    }
    kept_done(&k);
    sql_close(sql);
}

/* The table is made by hand, and has no key: rows that say the same, rows with one id, and rows that change places. */
static void rows_without_a_key(void **state)
{
    static const char *const changes[] = {
        "DROP TABLE WEIR_RULES",
        "CREATE TABLE WEIR_RULES (ID VARCHAR(100), RULE VARCHAR(1000), ENABLED SMALLINT)",
        "INSERT INTO WEIR_RULES VALUES ('c', '{\"by\": [\"ip\"], \"limits\": [\"3 per 1s\"]}', 1)",
        "INSERT INTO WEIR_RULES VALUES ('a', '{\"by\": [\"ip\"], \"limits\": [\"1 per 1s\"]}', 1)",
        "INSERT INTO WEIR_RULES VALUES ('b', '{\"by\": [\"ip\"], \"limits\": [\"2 per 1s\"]}', 0)",
        "INSERT INTO WEIR_RULES VALUES ('d', '{\"by\": [\"ip\"], \"limits\": [\"4 per 1s\"]}', 1)",
        "INSERT INTO WEIR_RULES VALUES ('a', '{\"by\": [\"ip\"], \"limits\": [\"1 per 1s\"]}', 1)", /* the same again */
        "INSERT INTO WEIR_RULES VALUES ('c', '{\"by\": [\"ip\"], \"limits\": [\"9 per 1s\"]}', 1)", /* another */
        "UPDATE WEIR_RULES SET ID = CASE ID WHEN 'a' THEN 'b' WHEN 'b' THEN 'a' ELSE ID END",
        "UPDATE WEIR_RULES SET ENABLED = 1",
        "DELETE FROM WEIR_RULES WHERE ID = 'c'",
        "UPDATE WEIR_RULES SET RULE = '{\"limits\": [\"7 per 1s\"]}'", /* more than can be shared */
        "UPDATE WEIR_RULES SET RULE = NULL WHERE ID = 'd'",
        "UPDATE WEIR_RULES SET ID = NULL WHERE ID = 'a'",
        "UPDATE WEIR_RULES SET ENABLED = NULL WHERE ID = 'd'",
        "DELETE FROM WEIR_RULES",
    };
    struct place *place = *state;
    struct kept k = { .source = fresh_source(place), .shares = open_weir(), .anew = open_weir() };
    struct sql *sql = place_connect(place);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        hand(sql, changes[i]);
        if (i > 0)
            step(&k, place, INT64_C(1800000000000000) + (int64_t)i);
        if (i > 0) /* with nothing changed */
            step(&k, place, INT64_C(1800000000000000) + (int64_t)i);
    }
    kept_done(&k);
    sql_close(sql);
}

/* Sets do not hold on to each other for ever. */
static void memory_is_given_back(void **state)
{
    struct source *source = fresh_source(*state);
    put(source, "{ id: a, limits: [1 per 1s] }");
    put(source, "{ id: b, limits: [1 per 1s] }");
    put(source, "{ id: c, limits: [1 per 1s] }");
    bool shared = false, anew = false;
    struct sql *sql = place_connect(*state);
    for (unsigned i = 0; i < 2 * RULES_BASES_MAX; i++) {
        struct source_reading reading;
        char text[80];
        snprintf(text, sizeof text, "UPDATE WEIR_RULES SET RULE = '{\"limits\": [\"%u per 1s\"]}' WHERE ID = 'b'", i + 2);
        hand(sql, text);
        good(source_read_rules(source, NULL, &reading, &error));
        assert_true(reading.rules->bases <= RULES_BASES_MAX);
        shared = shared || reading.rules->base;
        anew = anew || (i > 0 && !reading.rules->base);
        source_reading_done(&reading);
    }
    assert_true(shared && anew);
    sql_close(sql);
    source_close(source);
}

int main(void)
{
    static const struct place_case cases[] = {
        { "sharing changes nothing", sharing_changes_nothing },
        { "what did not change is shared", what_did_not_change_is_shared },
        { "what depends on another row is read", what_depends_on_another_row_is_read },
        { "rows without a key", rows_without_a_key },
        { "memory is given back", memory_is_given_back },
    };
    return places_run(cases, sizeof cases / sizeof *cases);
}
