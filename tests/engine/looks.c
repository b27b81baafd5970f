/* What rules look at: a request that leaves out everything else gets the same verdict, also while rules change. */
#include <pthread.h>

#include "../limit/random.h"
#include "helpers.h"

/* ---- random rules and requests ---- */

static const char *const names[] = {
    "method", "path",       "host",       "ip",           "user",         "event",  "key",
    "domain", "header:X-A", "header:X-B", "descriptor:a", "descriptor:b", "header", "header:x-forwarded-for"
};
enum { METHOD, PATH, HOST, IP, USER, EVENT, KEY, DOMAIN, HEADER_A, HEADER_B, ENTRY_A, ENTRY_B, HEADERS, FORWARDED, NAMES };
_Static_assert(sizeof names / sizeof *names == NAMES, "a name for each");

static const char *pick(struct random *r, const char *const *list, size_t count)
{
    return list[random_in(r, 0, (int64_t)count - 1)];
}

#define PICK(r, ...) \
    pick(r, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

static size_t random_rule(struct random *r, int i, char *to, size_t cap)
{
    const char *by =
        PICK(r, "[ip]", "[user]", "[key]", "[path]", "[route]", "[host]", "[method]", "[event, user]", "[domain]",
             "['header:X-A']", "['header:X-B', ip]", "['descriptor:a']", "[descriptor]", "[descriptor_keys]", "[]");
    const char *match =
        PICK(r, "", "", "match: { path: '/a/*' }, ", "match: { method: GET }, ", "match: { host: h1 }, ",
             "match: { ip: 10.1.0.0/16 }, ", "match: { user: u1 }, ", "match: { event: e1 }, ",
             "match: { key: { not: k1 } }, ", "match: { header: { X-A: v1 } }, ",
             "match: { header: { X-B: { not: v1 } } }, ", "match: { descriptor: { b: v1 } }, ", "match: { domain: d1 }, ");
    const char *except = PICK(r, "", "", "", ", except: { user: [u2] }", ", except: { ip: [10.2.0.0/16] }");
    const char *mode = PICK(r, "enforce", "enforce", "enforce", "shadow", "'off'");
    const char *plan =
        PICK(r, "", "", "", ", plan: user, plans: { u1: 7 per 1h }", ", plan: 'header:X-B', plans: { v1: 7 per 1h }");
    int len = snprintf(to, cap, "- { id: r%d, %sby: %s, limits: [%d per 1h], mode: %s%s%s }\n", i, match, by,
                       (int)random_in(r, 0, 4), mode, except, plan);
    return (size_t)len;
}

static void random_rules(struct random *r, char *to, size_t cap)
{
    size_t len = (size_t)snprintf(to, cap, "settings: { repeated_headers: %s, trusted_proxies: [%s]%s }\nrules:\n",
                                  PICK(r, "refuse", "first", "last"), PICK(r, "", "10.0.0.0/8"),
                                  PICK(r, "", "", ", except: { user: [u3] }", ", except: { ip: [10.3.0.0/16] }"));
    int count = (int)random_in(r, 1, 3);
    for (int i = 0; i < count; i++)
        len += random_rule(r, i, to + len, cap - len);
}

struct made {
    struct weir_request request;
    struct weir_header headers[5], entries[2];
};

static struct weir_str random_value(struct random *r, const char *first, const char *second)
{
    return random_one_in(r, 5) ? (struct weir_str){ 0 } : weir_str(random_one_in(r, 2) ? first : second);
}

static void random_request(struct random *r, struct made *made)
{
    const char *const headers[] = { "x-a", "X-A", "x-B", "X-Forwarded-For", "Accept" };
    *made = (struct made){ .request = { .cost = 1, .headers = made->headers, .descriptor = made->entries } };
    struct weir_request *q = &made->request;
    q->method = random_value(r, "GET", "POST");
    q->path = random_value(r, "/a/1", "/b");
    q->host = random_value(r, "h1", "h2");
    q->ip = random_one_in(r, 2) ? random_value(r, "10.1.0.1", "10.2.0.1") : (struct weir_str){ 0 };
    q->peer = random_value(r, "10.3.0.1", "192.0.2.1");
    q->user = random_value(r, "u1", "u2");
    q->event = random_value(r, "e1", "e2");
    q->key = random_value(r, "k1", "k2");
    q->domain = random_value(r, "d1", "d2");
    for (size_t i = 0; i < 5; i++)
        if (random_one_in(r, 2))
            made->headers[q->header_count++] =
                (struct weir_header){ weir_str(headers[i]),
                                      i == 3 ? random_value(r, "10.1.0.2", "198.51.100.1") : random_value(r, "v1", "v2") };
    for (size_t i = 0; i < 2; i++)
        if (random_one_in(r, 2))
            made->entries[q->descriptor_count++] =
                (struct weir_header){ weir_str(i ? "b" : "a"), random_value(r, "v1", "v2") };
}

/* Leaves out what no rule looks at. */
static struct weir_request lean(const struct made *made, const bool *looks, struct weir_header *headers,
                                struct weir_header *entries)
{
    const struct weir_request *from = &made->request;
    struct weir_request q = *from;
    struct weir_str *const fields[] = { &q.method, &q.path, &q.host, &q.ip, &q.user, &q.event, &q.key, &q.domain };
    for (size_t i = METHOD; i <= DOMAIN; i++)
        if (!looks[i])
            *fields[i] = (struct weir_str){ 0 };
    if (!looks[IP])
        q.peer = (struct weir_str){ 0 };
    q.headers = headers;
    q.header_count = 0;
    for (size_t i = 0; looks[HEADERS] && i < from->header_count; i++) {
        char letter = from->headers[i].name.ptr[2];
        bool wanted = letter == 'a' || letter == 'A' ? looks[HEADER_A] : letter == 'F' ? looks[FORWARDED] : looks[HEADER_B];
        if (wanted)
            headers[q.header_count++] = from->headers[i];
    }
    q.descriptor = entries;
    q.descriptor_count = 0;
    for (size_t i = 0; i < from->descriptor_count; i++)
        if (looks[from->descriptor[i].name.ptr[0] == 'a' ? ENTRY_A : ENTRY_B])
            entries[q.descriptor_count++] = from->descriptor[i];
    return q;
}

/* Both handles have the same rules. */
static void compare_verdicts(struct random *r, struct weir *whole, struct weir *part, const char *rules)
{
    bool looks[NAMES];
    uint64_t version = weir_looks_at(part, names, NAMES, looks);
    assert_true(version > 0);
    for (int n = 0; n < 20; n++) {
        struct made made;
        struct weir_header headers[5], entries[2];
        struct weir_verdict want, got;
        struct weir_shadows want_shadows, got_shadows;
        char want_line[LINE_MAX_BYTES], got_line[LINE_MAX_BYTES];
        random_request(r, &made);
        struct weir_request request = lean(&made, looks, headers, entries);
        made.request.shadows = &want_shadows;
        request.shadows = &got_shadows;
        assert_int_equal(weir_check(whole, &made.request, NOW, &want), 0);
        assert_int_equal(weir_check_for(part, version, &request, NOW, 0, &got), 0);
        verdict_line(&want, &want_shadows, want_line);
        verdict_line(&got, &got_shadows, got_line);
        if (strcmp(want_line, got_line) != 0 || want.matched != got.matched)
            fail_msg("seed %llu: %s\nwhole: %s\npart: %s", (unsigned long long)random_seed(), rules, want_line, got_line);
    }
}

static void what_is_left_out_changes_nothing(void **state)
{
    (void)state;
    struct random r = { random_seed() };
    struct weir *whole = open_rules("rules: []"), *part = open_rules("rules: []");
    for (int round = 0; round < 500; round++) {
        char rules[4000];
        random_rules(&r, rules, sizeof rules);
        set_rules(whole, rules);
        set_rules(part, rules);
        compare_verdicts(&r, whole, part, rules);
    }
    weir_close(whole);
    weir_close(part);
}

/* ---- what is looked at ---- */

static void check_looks(struct weir *weir, const char *rules, const char *want)
{
    bool looks[NAMES];
    char got[500] = "";
    set_rules(weir, rules);
    weir_looks_at(weir, names, NAMES, looks);
    for (size_t i = 0; i < NAMES; i++)
        if (looks[i])
            snprintf(got + strlen(got), sizeof got - strlen(got), " %s", names[i]);
    assert_string_equal(got, want);
}

static void attributes_of_rules(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: []");
    check_looks(weir, "rules: []", "");
    check_looks(weir, "settings: { trusted_proxies: [10.0.0.0/8] }\nrules: []", "");
    check_looks(weir, "rules: [ { id: a, by: [ip], limits: [1 per 1s] } ]", " ip");
    check_looks(weir, "settings: { trusted_proxies: [10.0.0.0/8] }\nrules: [ { id: a, by: [ip], limits: [1 per 1s] } ]",
                " ip header header:x-forwarded-for");
    check_looks(weir, "settings: { trusted_proxies: [10.0.0.0/8] }\nrules: [ { id: a, by: [user], limits: [1 per 1s] } ]",
                " user");
    check_looks(weir, "settings: { except: { ip: [10.0.0.0/8] } }\nrules: [ { id: a, by: [route], limits: [1 per 1s] } ]",
                " path ip");
    check_looks(weir, "rules: [ { id: a, mode: shadow, by: ['header:x-b'], limits: [1 per 1s] } ]", " header:X-B header");
    check_looks(weir, "rules: [ { id: a, mode: 'off', by: ['header:x-b'], limits: [1 per 1s] } ]", "");
    check_looks(weir, "rules: [ { id: a, expires: 2001-01-01T00:00:00Z, by: [key], limits: [1 per 1s] } ]", " key");
    check_looks(weir, "rules: [ { id: a, by: [descriptor_keys], limits: [1 per 1s] } ]", " descriptor:a descriptor:b");
    bool looks[3];
    weir_looks_at(weir, (const char *const[]){ "cost", "cost:tokens", "anything" }, 3, looks);
    assert_true(looks[0] && looks[1] && looks[2]); /* not an attribute of rules */
    weir_close(weir);
}

static void other_rules_are_noticed(void **state)
{
    (void)state;
    bool looks;
    struct weir_verdict verdict;
    struct weir_request request = one("e", "k"), two[2] = { one("e", "k"), one("e", "k") };
    struct weir *weir = open_rules("rules: [ { id: a, by: [key], limits: [10 per 1h] } ]");
    uint64_t version = weir_looks_at(weir, (const char *const[]){ "key" }, 1, &looks);
    two[0].with = &two[1];
    assert_int_equal(weir_check_for(weir, version, &request, NOW, 0, &verdict), 0);
    assert_int_equal(verdict.remaining, 9);
    assert_int_equal(weir_check_for(weir, version, two, NOW, 0, &verdict), 0);
    set_rules(weir, "rules: [ { id: a, by: [key], limits: [10 per 1h] } ]");
    assert_int_equal(weir_check_for(weir, version, &request, NOW, 0, &verdict), WEIR_E_CHANGED);
    assert_false(verdict.allowed);
    assert_int_equal(verdict.status, 503);
    assert_int_equal(weir_check_for(weir, version, two, NOW, 0, &verdict), WEIR_E_CHANGED);
    assert_false(verdict.allowed);
    /* Nothing was charged meanwhile. */
    assert_int_equal(weir_check_for(weir, 0, &request, NOW, 0, &verdict), 0);
    assert_int_equal(verdict.remaining, 6);
    uint64_t newer = weir_looks_at(weir, NULL, 0, NULL);
    assert_true(newer > version);
    assert_int_equal(weir_check_for(weir, newer, &request, NOW, 0, &verdict), 0);
    assert_int_equal(verdict.remaining, 5);
    weir_close(weir);
}

/* ---- while rules change ---- */

enum { CHANGES = 2000 };
static bool stop;

/* Each refuses everybody who has what it counts by. */
static const char *const refusing[] = { "rules: [ { id: a, by: [key], limits: [ { max: 0, per: 1s } ] } ]",
                                        "rules: [ { id: a, by: [user], limits: [ { max: 0, per: 1s } ] } ]" };

static void *change(void *weir)
{
    for (int i = 0; i < CHANGES; i++)
        set_rules(weir, refusing[i % 2]);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    return NULL;
}

static void nobody_passes_between_two_versions(void **state)
{
    (void)state;
    static const char *const both[] = { "key", "user" };
    struct weir *weir = open_rules(refusing[0]);
    bool looks[2] = { false, false };
    uint64_t version = weir_looks_at(weir, both, 2, looks);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change, weir), 0);
    for (unsigned n = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE) || n < 1000; n++) {
        struct weir_verdict verdict;
        struct weir_request request = { .cost = 1 };
        request.key = looks[0] ? WEIR_STR("k") : (struct weir_str){ 0 };
        request.user = looks[1] ? WEIR_STR("u") : (struct weir_str){ 0 };
        int r = weir_check_for(weir, version, &request, NOW, 0, &verdict);
        assert_false(verdict.allowed);
        if (r == WEIR_E_CHANGED)
            version = weir_looks_at(weir, both, 2, looks);
        else
            assert_int_equal(r, 0);
    }
    pthread_join(thread, NULL);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_changes_nothing),
        cmocka_unit_test(attributes_of_rules),
        cmocka_unit_test(other_rules_are_noticed),
        cmocka_unit_test(nobody_passes_between_two_versions),
    };
    return cmocka_run_group_tests_name("looks", tests, NULL, NULL);
}
