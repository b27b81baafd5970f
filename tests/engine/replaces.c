/* Limits that requests bring, and rules that replace others. */
#include "together.h"

#include "engine/explain.h"
#include "present/present.h"

/* ---- limits that requests bring ---- */

static void a_request_may_bring_its_limit(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n  - {id: g, by: key, limits: given}\n");
    int64_t minute = NOW - NOW % (60 * S);
    EXPECT(weir, one("e", "x"), NOW, "pass no rule");
    EXPECT(weir, given(one("e", "x"), 3, 60000), minute, "pass g/given 2 of 3, reset 60000");
    EXPECT(weir, given(one("e", "x"), 3, 60000), minute + 59 * S, "pass g/given 1 of 3, reset 1000");
    /* Another max goes on with what was used, and another length has a window of its own. */
    EXPECT(weir, given(one("e", "x"), 10, 60000), minute + 59 * S, "pass g/given 7 of 10, reset 1000");
    EXPECT(weir, given(one("e", "x"), 2, 60000), minute + 59 * S, "refuse 429 g/given 0 of 2, reset 1000, retry 1000");
    EXPECT(weir, given(one("e", "x"), 2, 1000), minute + 59 * S + 1, "pass g/given 1 of 2, reset 1000");
    EXPECT(weir, given(one("e", "x"), 3, 60000), minute + 60 * S, "pass g/given 2 of 3, reset 60000");
    EXPECT(weir, given(one("e", "x"), 0, 60000), minute + 60 * S, "refuse 429 g/given 0 of 0, reset 60000, retry -1");
    /* Out of range is the most that is in it. */
    struct weir_verdict v = check_at(weir, given(one("e", "y"), UINT64_MAX, UINT64_MAX), NOW);
    assert_true(v.allowed && v.max == WEIR_AMOUNT_MAX && v.window_ms == INT64_C(3650) * 86400 * 1000);
    struct weir_receipt receipt;
    struct weir_request request = given(cost_of("e", "r", 3), 3, 60000);
    request.receipt = &receipt;
    EXPECT(weir, request, minute, "pass g/given 0 of 3, reset 60000");
    assert_int_equal(weir_settle(weir, &receipt, 2, NULL, 0, minute + S), 1);
    EXPECT(weir, given(one("e", "r"), 3, 60000), minute + S, "pass g/given 0 of 3, reset 59000");
    request.ttl_ms = 500;
    EXPECT(weir, request, minute + 60 * S, "pass g/given 0 of 3, reset 60000");
    EXPECT(weir, given(one("e", "r"), 3, 60000), minute + 61 * S, "pass g/given 2 of 3, reset 59000");
    struct weir_error error;
    assert_int_equal(weir_reset(weir, "g", (struct weir_str[]){ weir_str("r") }, 1, &error), 0);
    EXPECT(weir, given(one("e", "r"), 3, 60000), minute + 61 * S, "pass g/given 2 of 3, reset 59000");
    weir_close(weir);
}

static void parts_bring_their_limits(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n  - {id: g, by: key, limits: given}\n"
                                   "overrides:\n  - {rule: g, by: {key: vip}, unlimited: true}\n"
                                   "  - {rule: g, by: {key: small}, limits: ['1 per day']}\n");
    int64_t minute = NOW - NOW % (60 * S);
    CALL(weir, minute,
         "pass g/given 0 of 3, reset 60000\n"
         "pass g/given 2 of 3, reset 60000\n"
         "pass g/given 0 of 3, reset 60000\n"
         "pass g/given 7 of 10, reset 2820000\n"
         "pass no rule",
         given(one("e", "x"), 3, 60000), given(cost_of("e", "x", 2), 3, 60000), given(cost_of("e", "x", 3), 10, 3600000),
         one("e", "x"));
    EXPECT(weir, given(one("e", "vip"), 0, 1000), NOW, "pass no rule");
    EXPECT(weir, one("e", "small"), NOW, "pass no rule");
    struct weir_verdict v = check_at(weir, given(one("e", "small"), 9, 1000), NOW);
    assert_int_equal(v.max, 1);
    weir_close(weir);
}

/* ---- rules that replace others ---- */

#define REPLACING                                                                                                 \
    "rules:\n"                                                                                                    \
    "  - {id: all, by: key, limits: [{algorithm: fixed_window, max: 1, per: 60s}]}\n"                             \
    "  - {id: vip, match: {event: vip}, limits: none, replaces: [all]}\n"                                         \
    "  - {id: big, match: {event: [big, both]}, by: key, limits: [{algorithm: fixed_window, max: 9, per: 60s}], " \
    "replaces: [all, none-such]}\n"                                                                               \
    "  - {id: off, mode: \"off\", limits: none, replaces: [all]}\n"                                               \
    "  - {id: top, match: {event: both}, limits: none, replaces: [big]}\n"

static void a_rule_replaces_others(void **state)
{
    (void)state;
    struct weir *weir = open_rules(REPLACING);
    EXPECT(weir, cost_of("other", "x", 2), NOW, "refuse 429 all/fixed_window 1 of 1, reset 0, retry -1");
    EXPECT(weir, cost_of("vip", "x", 99), NOW, "pass no rule");
    EXPECT(weir, cost_of("big", "x", 2), NOW, "pass big/fixed_window 7 of 9, reset 60000");
    /* A rule that is replaced replaces others all the same. */
    EXPECT(weir, cost_of("both", "x", 99), NOW, "pass no rule");
    /* For those that are decided with it, too, before and after it. */
    CALL(weir, NOW, "pass no rule\npass no rule\npass no rule", cost_of("other", "x", 5), one("vip", "y"));
    CALL(weir, NOW, "pass no rule\npass no rule\npass no rule", one("vip", "y"), cost_of("other", "x", 5));
    CALL(weir, NOW,
         "pass big/fixed_window 6 of 9, reset 60000\n"
         "pass no rule\n"
         "pass big/fixed_window 6 of 9, reset 60000",
         cost_of("other", "x", 5), one("big", "x"));
    EXPECT(weir, peek_of("other", "x", 1), NOW, "pass all/fixed_window 1 of 1, reset 0");
    set_rules(weir, "[{id: all, by: key, limits: 1 per 60s}, {id: g, limits: given, replaces: [all]},"
                    " {id: s, match: {event: s}, mode: shadow, limits: 1 per 60s, replaces: [all]}]");
    EXPECT(weir, cost_of("e", "x", 2), NOW, "refuse 429 all/token_bucket 1 of 1, reset 0, retry -1");
    EXPECT(weir, given(cost_of("e", "x", 2), 2, 1000), NOW, "pass g/given 0 of 2, reset 1000");
    EXPECT(weir, cost_of("s", "x", 2), NOW, "pass no rule, shadow s");
    weir_close(weir);
}

static void many_rules_replace_many(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static char rules[100000];
    char *to = rules + sprintf(rules, "rules:\n");
    for (int i = 0; i < MANY; i++)
        to += sprintf(to, "  - {id: r%d, by: key, limits: 1 per 60s, replaces: [r%d, r%d]}\n", i, (i + 1) % MANY,
                      (i + 2) % MANY);
    sprintf(to, "  - {id: last, by: key, limits: 7 per 60s}\n");
    struct weir *weir = open_rules(rules);
    EXPECT(weir, one("e", "x"), NOW, "pass last/token_bucket 6 of 7, reset 8572");
    CALL(weir, NOW,
         "pass last/token_bucket 4 of 7, reset 25715\npass last/token_bucket 5 of 7, reset 17143\npass last/token_bucket 4 "
         "of 7, reset 25715",
         one("e", "x"), one("e", "x"));
    weir_close(weir);
}

/* ---- explaining ---- */

struct explained {
    char text[2000];
};

static void explain_request(struct facts *facts, void *data)
{
    (void)facts;
    ((struct explained *)data)->text[0] = '\0';
}

static void explain_one(const struct explained_rule *rule, void *data)
{
    struct explained *x = data;
    struct weir_request nobody = { 0 };
    struct buf reason;
    buf_init(&reason, 1000);
    explain_reason(rule, &nobody, &reason);
    size_t len = strlen(x->text);
    snprintf(x->text + len, sizeof x->text - len, "%.*s: %s", (int)rule->rule->id.len, rule->rule->id.ptr,
             rule->reason == MATCH_YES ? "applies" : reason.ptr);
    for (size_t i = 0; i < rule->limit_count; i++) {
        len = strlen(x->text);
        snprintf(x->text + len, sizeof x->text - len, ", %llu of %llu%s",
                 (unsigned long long)rule->limits[i].report.remaining, (unsigned long long)rule->limits[i].limit.capacity,
                 rule->limits[i].fits ? "" : ", refuses");
    }
    strcat(x->text, "\n");
    buf_done(&reason);
}

static void explain_end(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    (void)request;
    strcat(((struct explained *)data)->text, verdict->allowed ? "pass" : "refuse");
}

static void expect_explained(struct weir *weir, struct weir_request request, const char *expected)
{
    static const struct explain_sink sink = { explain_request, explain_one, explain_end, NULL };
    struct explained x;
    assert_int_equal(weir_explain(weir, &request, NOW, &sink, &x), 0);
    assert_string_equal(x.text, expected);
}

/* The first request is explained; the verdict is that of all. */
static void explain_says_what_is_replaced(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - {id: all, by: key, limits: [{algorithm: fixed_window, max: 1, per: 60s}]}\n"
                                   "  - {id: vip, match: {event: vip}, limits: none, replaces: [all]}\n"
                                   "  - {id: g, by: key, limits: given}\n");
    expect_explained(weir, cost_of("e", "x", 2),
                     "all: applies, 1 of 1, refuses\n"
                     "vip: the event must be vip, and is not given\n"
                     "g: its limit is given by requests, and this one brings none\n"
                     "refuse");
    expect_explained(weir, given(cost_of("vip", "x", 2), 5, 60000),
                     "all: it is replaced by rule vip\n"
                     "vip: applies\n"
                     "g: applies, 5 of 5\n"
                     "pass");
    struct weir_request with = given(cost_of("vip", "x", 1), 5, 60000), first = given(cost_of("e", "x", 5), 5, 60000);
    first.with = &with;
    expect_explained(weir, first,
                     "all: it is replaced by rule vip\n"
                     "vip: the event must be vip, and is not given\n"
                     "g: applies, 5 of 5\n"
                     "refuse");
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_may_bring_its_limit), cmocka_unit_test(parts_bring_their_limits),
        cmocka_unit_test(a_rule_replaces_others),        cmocka_unit_test(many_rules_replace_many),
        cmocka_unit_test(explain_says_what_is_replaced),
    };
    return cmocka_run_group_tests_name("engine/replaces", tests, NULL, NULL);
}
