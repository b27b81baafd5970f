/* The subject that a refused request was counted for. */
#include "engine/explain.h"
#include "engine/handle.h"

#include "helpers.h"

static void expect_subject(struct weir *weir, struct weir_request request, const struct weir_verdict *verdict,
                           const char *expected)
{
    struct subject s;
    char text[SUBJECT_TEXT_MAX * 2] = "none";
    if (weir_subject(weir, &request, verdict, &s)) {
        int n = snprintf(text, sizeof text, "%.*s", SV_FMT(subject_rule(&s)));
        for (size_t i = 0; i < s.by_count; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, " %.*s=%.*s", SV_FMT(subject_name(&s, i)),
                          SV_FMT(subject_value(&s, i)));
        snprintf(text + n, sizeof text - (size_t)n, "%s", s.cut ? " cut" : "");
    }
    assert_string_equal(text, expected);
}

#define RULE(by) "rules: [ { id: r, match: { event: e }, by: [" by "], limits: [ \"0 per 1h\" ] } ]"

static void a_subject_is_named_as_it_is_counted(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("key, ip, \"header:X-Tenant\""));
    struct weir_header header = { WEIR_STR("x-tenant"), WEIR_STR("acme") };
    struct weir_request request = one("e", "k");
    request.ip = weir_str("2001:db8:1:2:3::4");
    request.headers = &header;
    request.header_count = 1;
    struct weir_verdict verdict = check_at(weir, request, NOW);
    expect_subject(weir, request, &verdict, "r key=k ip=2001:db8:1:2::/64 header:x-tenant=acme");
    weir_close(weir);
}

/* A header may be a password; two that begin alike are two. */
static void a_long_header_is_not_kept(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("\"header:Authorization\""));
    struct weir_header header = { WEIR_STR("authorization"), WEIR_STR("12345678") };
    struct weir_request request = one("e", "k");
    struct subject a, b;
    request.headers = &header;
    request.header_count = 1;
    struct weir_verdict verdict = check_at(weir, request, NOW);
    expect_subject(weir, request, &verdict, "r header:authorization=12345678");
    header.value = weir_str("Bearer swordfish");
    expect_subject(weir, request, &verdict, "r header:authorization=Bear\u2026 cut");
    assert_true(weir_subject(weir, &request, &verdict, &a));
    header.value = weir_str("Bearer cuttlefish");
    assert_true(weir_subject(weir, &request, &verdict, &b));
    assert_int_not_equal(a.key, b.key);
    header.value = weir_str("\u00e4bc\u00e4 and so on"); /* cut between characters */
    expect_subject(weir, request, &verdict, "r header:authorization=\u00e4bc\u2026 cut");
    char text[100];
    size_t len = weir_subject_text(weir, &request, &verdict, text, sizeof text);
    assert_int_equal(len, strlen(text));
    assert_string_equal(text, "header:authorization=\"\u00e4bc\u2026\"");
    weir_close(weir);
}

static void what_is_not_to_be_shown_is_escaped(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("key"));
    struct weir_request request = one("e", "");
    request.key = (struct weir_str){ "a\0b\u202ec\u2028\xc2\x9b\xff", 13 };
    struct weir_verdict verdict = check_at(weir, request, NOW);
    char text[100];
    weir_subject_text(weir, &request, &verdict, text, sizeof text);
    assert_string_equal(text, "key=\"a\\u0000b\\u202ec\\u2028\\u009b\ufffd\"");
    weir_close(weir);
}

static void one_by_nothing_is_the_rule_itself(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [ { id: r, match: { event: e }, limits: [ \"0 per 1h\" ] } ]");
    struct weir_verdict verdict = check_at(weir, one("e", "k"), NOW);
    expect_subject(weir, one("e", "k"), &verdict, "r");
    weir_close(weir);
}

static void what_was_not_refused_by_a_rule_has_none(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("key"));
    struct weir_verdict verdict = check_at(weir, one("other", "k"), NOW);
    expect_subject(weir, one("other", "k"), &verdict, "none");
    weir_check(weir, &(struct weir_request){ 0 }, -1, &verdict);
    expect_subject(weir, one("e", "k"), &verdict, "none");
    weir_close(weir);
}

static void rules_may_change_in_between(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("key"));
    struct weir_verdict verdict = check_at(weir, one("e", "k"), NOW);
    set_rules(weir, "rules:\n  - { id: first, match: { event: e }, limits: [ \"1 per 1h\" ] }\n"
                    "  - { id: r, match: { event: e }, by: [event, key], limits: [ \"0 per 1h\" ] }");
    expect_subject(weir, one("e", "k"), &verdict, "r event=e key=k");
    set_rules(weir, RULE("user"));
    expect_subject(weir, one("e", "k"), &verdict, "none");
    set_rules(weir, "rules: []");
    expect_subject(weir, one("e", "k"), &verdict, "none");
    weir_close(weir);
}

static void what_is_too_long_is_cut_between_characters(void **state)
{
    (void)state;
    struct weir *weir = open_rules(RULE("key"));
    char key[2001] = "", expected[1000];
    for (int i = 0; i < 1000; i++)
        memcpy(key + 2 * i, "\u00e4", 2);
    struct weir_verdict verdict = check_at(weir, one("e", key), NOW);
    size_t room = SUBJECT_TEXT_MAX - strlen("rkey");
    snprintf(expected, sizeof expected, "r key=%.*s cut", (int)(room / 2 * 2), key);
    expect_subject(weir, one("e", key), &verdict, expected);
    /* They look alike, and are two. */
    struct subject a, b;
    struct weir_request request = one("e", key);
    assert_true(weir_subject(weir, &request, &verdict, &a));
    memcpy(key + 1998, "zz", 2);
    assert_true(weir_subject(weir, &request, &verdict, &b));
    assert_int_not_equal(a.key, b.key);
    weir_close(weir);
}

static void many_and_long_attributes_fit(void **state)
{
    (void)state;
    struct weir_header headers[RULE_BY_MAX];
    char names[RULE_BY_MAX][RULE_NAME_MAX + 1], value[1000], rules[2000];
    int n = snprintf(rules, sizeof rules, "rules: [ { id: %0*d, match: { event: e }, by: [", WEIR_ID_MAX, 1);
    memset(value, 'v', sizeof value);
    for (int i = 0; i < RULE_BY_MAX; i++) {
        snprintf(names[i], sizeof names[i], "h%0*d", RULE_NAME_MAX - 1, i);
        n += snprintf(rules + n, sizeof rules - (size_t)n, "%s\"header:%s\"", i ? ", " : "", names[i]);
        headers[i] = (struct weir_header){ weir_str(names[i]), { value, sizeof value } };
    }
    snprintf(rules + n, sizeof rules - (size_t)n, "], limits: [ \"0 per 1h\" ] } ]");
    struct weir *weir = open_rules(rules);
    struct weir_request request = one("e", "k");
    request.headers = headers;
    request.header_count = RULE_BY_MAX;
    struct weir_verdict verdict = check_at(weir, request, NOW);
    struct subject s;
    assert_true(weir_subject(weir, &request, &verdict, &s));
    assert_true(s.cut);
    assert_int_equal(subject_rule(&s).len, WEIR_ID_MAX);
    sv last = subject_value(&s, RULE_BY_MAX - 1);
    assert_true(last.len > 0 && last.ptr + last.len <= s.text + SUBJECT_TEXT_MAX);
    weir_close(weir);
}

/* If a path has several readings, the one that has no room. */
static void a_path_is_named_as_it_was_refused(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: r, match: { path: '/p/*' }, by: [path], limits: [2 per 1h] }]");
    static const char *const spellings[] = { "/p/zz", "/p/other%2F..%2Fzz", "/p/zz%0a", "/p/x/..;/zz" };
    struct weir_request request = { .path = weir_str("/p/zz"), .cost = 1 };
    assert_int_equal(passes(weir, request, NOW, 3), 2);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char text[200];
        request.path = weir_str(spellings[i]);
        struct weir_verdict v = check_at(weir, request, NOW);
        assert_false(v.allowed);
        weir_subject_text(weir, &request, &v, text, sizeof text);
        assert_string_equal(text, "path=\"/p/zz\"");
    }
    weir_close(weir);
}

/* ---- finding ---- */

static bool add_found(const struct found_subject *found, void *data)
{
    char *text = data;
    snprintf(text + strlen(text), 200 - strlen(text), "%.*s%s ", SV_FMT(found->rule->id), found->used ? " used" : "");
    return true;
}

/* Each length of a window has a count of its own, and none is known to the rule. */
static void limits_that_requests_bring_are_looked_at(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [{ id: a, by: [key], limits: given }, { id: b, by: [key], limits: [3 per 1h] }]\n"
                   "overrides: [{ rule: b, by: { key: k }, limits: [2 per 1h] }]");
    struct subject_search search = { .value = SV("k") };
    struct weir_request request = cost_of("e", "k", 0);
    char text[200] = "";
    assert_int_equal(weir_find_subjects(weir, &search, NOW, add_found, text, NULL), 0);
    assert_string_equal(text, "b ");
    request.cost = request.given_max = 1;
    request.given_window_ms = 3600 * 1000;
    assert_true(check_at(weir, request, NOW).allowed);
    text[0] = '\0';
    assert_int_equal(weir_find_subjects(weir, &search, NOW, add_found, text, NULL), 0);
    assert_string_equal(text, "a used b used ");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_subject_is_named_as_it_is_counted), cmocka_unit_test(a_path_is_named_as_it_was_refused),
        cmocka_unit_test(one_by_nothing_is_the_rule_itself),   cmocka_unit_test(what_was_not_refused_by_a_rule_has_none),
        cmocka_unit_test(rules_may_change_in_between),         cmocka_unit_test(what_is_too_long_is_cut_between_characters),
        cmocka_unit_test(many_and_long_attributes_fit),        cmocka_unit_test(a_long_header_is_not_kept),
        cmocka_unit_test(what_is_not_to_be_shown_is_escaped),  cmocka_unit_test(limits_that_requests_bring_are_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
