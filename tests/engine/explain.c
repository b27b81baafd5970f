/* Explaining a request: every rule, why it applies or not, whom it counts for, and what is used. */
#include "engine/explain.h"

#include "helpers.h"

struct story {
    char text[LINE_MAX_BYTES];
    bool requested, judged;
    struct weir_verdict verdict;
};

static void add(struct story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct story *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), format, args);
    va_end(args);
}

static void tell_request(struct facts *facts, void *data)
{
    struct story *s = data;
    s->requested = true;
    add(s, "path %.*s user %.*s\n", SV_FMT(facts_path(facts)), SV_FMT(facts->user));
}

static void tell_rule(const struct explained_rule *rule, void *data)
{
    struct story *s = data;
    add(s, "%.*s: %d", SV_FMT(rule->rule->id), (int)rule->reason);
    if (rule->reason != MATCH_YES) {
        add(s, " %.*s\n", SV_FMT(rule->detail));
        return;
    }
    for (size_t i = 0; i < rule->rule->kind->by_count; i++)
        add(s, " <%.*s>", SV_FMT(rule->by[i]));
    for (size_t i = 0; i < rule->rule->kind->limit_count; i++) {
        const struct explained_limit *l = &rule->limits[i];
        add(s, " %.*s %s left %llu retry %lld", SV_FMT(l->spec->name), l->fits ? "fits" : "full",
            (unsigned long long)l->report.remaining, (long long)l->report.retry_after_us);
    }
    add(s, "\n");
}

static void tell_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    struct story *s = data;
    char line[LINE_MAX_BYTES];
    s->judged = true;
    verdict_line(verdict, request->shadows, line);
    add(s, "%s\n", line);
}

static const struct explain_sink sink = { tell_request, tell_rule, tell_verdict };

static const char rules[] =
    "rules:\n"
    "  - { id: yes, match: { path: '/a/#' }, by: [user, route], limits: [{ name: x, max: 2, per: 1h }, 3 per day] }\n"
    "  - { id: off, limits: [1 per 1h], mode: off }\n"
    "  - { id: gone, limits: [1 per 1h], expires: 1600000000 }\n"
    "  - { id: get, match: { method: GET }, limits: [1 per 1h] }\n"
    "  - { id: team, by: ['header:X-Team'], limits: [1 per 1h] }\n"
    "  - { id: root, except: { user: [u] }, limits: [1 per 1h] }\n"
    "  - { id: none, limits: [0 per 1h], mode: shadow }\n";

static size_t user_is_u(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    (void)request;
    (void)cap;
    (void)data;
    buf[0] = 'u';
    return 1;
}

static void explains_every_rule_and_charges_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_rules(rules);
    struct weir_request request = {
        .method = WEIR_STR("PUT"), .path = WEIR_STR("//a/7?q"), .user = WEIR_STR("u"), .cost = 1
    };
    assert_int_equal(passes(weir, request, NOW, 1), 1);
    char expected[LINE_MAX_BYTES];
    snprintf(expected, sizeof expected,
             "path /a/7 user u\n"
             "yes: %d <u> </a/#> x fits left 1 retry 0 day fits left 2 retry 0\n"
             "off: %d \ngone: %d \nget: %d \nteam: %d x-team\nroot: %d \nnone: %d token_bucket full left 0 retry -1\n"
             "pass yes/x 1 of 2, reset 1800000, shadow none\n",
             MATCH_YES, MATCH_OFF, MATCH_EXPIRED, MATCH_UNEQUAL + ATTR_METHOD, MATCH_NO_ATTRIBUTE, MATCH_EXCEPT_USER,
             MATCH_YES);
    for (int i = 0; i < 3; i++) {
        struct story story = { 0 };
        assert_int_equal(weir_explain(weir, &request, NOW, &sink, &story), 0);
        assert_string_equal(story.text, expected);
    }
    assert_int_equal(passes(weir, request, NOW, 9), 1);
    struct story story = { 0 };
    assert_int_equal(weir_explain(weir, &request, NOW, &sink, &story), 0);
    assert_non_null(strstr(story.text, "x full left 0 retry 1800000000 day fits left 1 retry 0\n"));
    assert_non_null(strstr(story.text, "\nrefuse 429 yes/x 0 of 2, reset 3600000, retry 1800000, shadow none\n"));
    weir_close(weir);
}

static void explains_with_the_user_of_the_getter(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .user_id = user_is_u });
    struct weir_request request = { .path = WEIR_STR("/a/7"), .cost = 0 };
    struct story story = { 0 };
    assert_int_equal(weir_explain(weir, &request, NOW, &sink, &story), 0);
    assert_non_null(strstr(story.text, "path /a/7 user u\n"));
    assert_non_null(strstr(story.text, "\npass yes/x 2 of 2, reset 0, shadow none\n"));
    assert_int_equal(weir_explain(weir, &request, -1, &sink, &story), WEIR_E_INVALID);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explains_every_rule_and_charges_nothing),
        cmocka_unit_test(explains_with_the_user_of_the_getter),
    };
    return cmocka_run_group_tests_name("engine/explain", tests, NULL, NULL);
}
