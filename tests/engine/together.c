/* Several requests that are decided together, and costs that are charged always or given back. */
#include "together.h"

#define TWO                                                                                            \
    "rules:\n"                                                                                         \
    "  - {id: a, match: {event: a}, by: key, limits: [{algorithm: fixed_window, max: 3, per: 60s}]}\n" \
    "  - {id: b, match: {event: b}, by: key, limits: [{algorithm: fixed_window, max: 5, per: 90s}]}\n"

/* ---- all or nothing ---- */

static void all_pass_or_none_is_charged(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    CALL(weir, NOW,
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass b/fixed_window 4 of 5, reset 90000",
         one("a", "x"), one("b", "x"));
    CALL(weir, NOW,
         "refuse 429 b/fixed_window 4 of 5, reset 90000, retry 90000\n"
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "refuse 429 b/fixed_window 4 of 5, reset 90000, retry 90000",
         one("a", "x"), cost_of("b", "x", 5));
    CALL(weir, NOW,
         "refuse 429 b/fixed_window 4 of 5, reset 90000, retry 90000\n"
         "refuse 429 a/fixed_window 2 of 3, reset 60000, retry 60000\n"
         "pass no rule\n"
         "refuse 429 b/fixed_window 4 of 5, reset 90000, retry 90000",
         cost_of("a", "x", 3), one("c", "x"), cost_of("b", "x", 5));
    EXPECT(weir, peek_of("a", "x", 1), NOW, "pass a/fixed_window 2 of 3, reset 60000");
    EXPECT(weir, peek_of("b", "x", 1), NOW, "pass b/fixed_window 4 of 5, reset 90000");
    /* Peeks and costs of 0 charge nothing. */
    CALL(weir, NOW,
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass b/fixed_window 4 of 5, reset 90000",
         peek_of("a", "x", 2), one("b", "x"));
    CALL(weir, NOW,
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass b/fixed_window 3 of 5, reset 90000",
         cost_of("a", "x", 0), one("b", "x"));
    weir_close(weir);
}

static void a_single_request_has_its_own_verdict(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    CALL(weir, NOW, "pass a/fixed_window 2 of 3, reset 60000\npass a/fixed_window 2 of 3, reset 60000", one("a", "x"));
    CALL(weir, NOW, "pass no rule\npass no rule", one("c", "x"));
    weir_close(weir);
}

/* ---- the same counter ---- */

static void parts_of_the_same_counter_do_not_pass_on_room_for_one(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    CALL(weir, NOW,
         "refuse 429 a/fixed_window 3 of 3, reset 0, retry -1\n"
         "pass a/fixed_window 3 of 3, reset 0\n"
         "refuse 429 a/fixed_window 3 of 3, reset 0, retry -1",
         cost_of("a", "x", 2), cost_of("a", "x", 2));
    CALL(weir, NOW,
         "pass a/fixed_window 0 of 3, reset 60000\n"
         "pass a/fixed_window 2 of 3, reset 60000\n"
         "pass a/fixed_window 0 of 3, reset 60000\n"
         "pass a/fixed_window 0 of 3, reset 60000",
         one("a", "x"), cost_of("a", "x", 2), cost_of("a", "x", 0));
    CALL(weir, NOW + S,
         "refuse 429 a/fixed_window 0 of 3, reset 59000, retry 59000\n"
         "refuse 429 a/fixed_window 0 of 3, reset 59000, retry 59000\n"
         "pass b/fixed_window 5 of 5, reset 0\n"
         "refuse 429 a/fixed_window 0 of 3, reset 59000, retry 59000",
         one("a", "x"), one("b", "x"), one("a", "x"));
    EXPECT(weir, peek_of("b", "x", 1), NOW, "pass b/fixed_window 5 of 5, reset 0");
    weir_close(weir);
}

static void buckets_and_sliding_windows_are_joined_too(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n"
                   "  - {id: b, match: {event: b}, by: key, limits: 4 per 4s}\n"
                   "  - {id: s, match: {event: s}, by: key, limits: [{algorithm: sliding_window, max: 4, per: 4s}]}\n");
    for (int i = 0; i < 2; i++) {
        const char *event = i ? "s" : "b";
        static struct call call;
        const struct weir_request requests[] = { cost_of(event, "x", 3), cost_of(event, "x", 1) };
        call_of(&call, 2, requests);
        assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
        assert_true(call.verdict.allowed);
        assert_int_equal(call.own[0].remaining, 1);
        assert_int_equal(call.own[1].remaining, 0);
        assert_int_equal(weir_check(weir, call.requests, NOW + S, &call.verdict), 0);
        assert_false(call.verdict.allowed);
    }
    weir_close(weir);
}

static void plans_of_the_same_subject_share_its_count(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n"
                                   "  - id: p\n    by: key\n    plan: event\n    plans:\n"
                                   "      free: [{algorithm: fixed_window, max: 3, per: 60s}]\n"
                                   "      pro: [{algorithm: fixed_window, max: 10, per: 60s}]\n"
                                   "    limits: [{algorithm: fixed_window, max: 1, per: 60s}]\n");
    static struct call call;
    const struct weir_request requests[] = { cost_of("pro", "x", 2), cost_of("free", "x", 2) };
    call_of(&call, 2, requests);
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_false(call.verdict.allowed);
    EXPECT(weir, peek_of("pro", "x", 1), NOW, "pass p/fixed_window 10 of 10, reset 0");
    call.requests[1].cost = 1;
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_true(call.verdict.allowed);
    EXPECT(weir, peek_of("pro", "x", 1), NOW, "pass p/fixed_window 7 of 10, reset 60000");
    weir_close(weir);
}

static void slots_of_the_same_counter_are_two(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules:\n  - {id: n, by: key, limits: 3 concurrent}\n");
    static struct call call;
    struct weir_receipt receipt;
    const struct weir_request requests[] = { one("a", "x"), one("a", "x") };
    call_of(&call, 2, requests);
    call.requests[0].receipt = &receipt;
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_true(call.verdict.allowed);
    assert_int_equal(receipt.count, 1);
    EXPECT(weir, peek_of("a", "x", 1), NOW, "pass n/concurrent 1 of 3, reset 60000");
    struct weir_receipt second;
    call.requests[0].receipt = &second;
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_false(call.verdict.allowed);
    assert_true(call.own[0].allowed);
    assert_false(call.own[1].allowed);
    assert_int_equal(second.count, 0);
    assert_int_equal(weir_release(weir, &receipt, NOW), 1);
    assert_int_equal(weir_release(weir, &receipt, NOW), 0);
    assert_int_equal(passes(weir, one("a", "x"), NOW, 5), 3);
    weir_close(weir);
}

static void one_receipt_is_for_all(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    static struct call call;
    struct weir_receipt receipt;
    for (int held = 0; held < 2; held++) {
        const struct weir_request requests[] = { one("a", "x"), cost_of("b", "x", 2), one("a", "x") };
        call_of(&call, 3, requests);
        call.requests[0].receipt = &receipt;
        call.requests[0].ttl_ms = held ? 5000 : 0;
        assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
        assert_true(call.verdict.allowed);
        assert_int_equal(receipt.count, 2);
        EXPECT(weir, peek_of("a", "x", 1), NOW, "pass a/fixed_window 1 of 3, reset 60000");
        EXPECT(weir, peek_of("b", "x", 1), NOW, "pass b/fixed_window 3 of 5, reset 90000");
        assert_int_equal(weir_refund(weir, &receipt, NOW), 2);
        assert_int_equal(weir_refund(weir, &receipt, NOW), 0);
        EXPECT(weir, peek_of("a", "x", 1), NOW, "pass a/fixed_window 3 of 3, reset 0");
        EXPECT(weir, peek_of("b", "x", 1), NOW, "pass b/fixed_window 5 of 5, reset 0");
    }
    weir_close(weir);
}

/* ---- bounds, getter, batches ---- */

static void too_many_are_not_judged(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    static struct call call;
    memset(&call, 0, sizeof call);
    for (int i = 0; i < PARTS; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i % 7);
        static char keys[PARTS][20];
        memcpy(keys[i], key, sizeof key);
        add(&call, cost_of(i % 2 ? "a" : "b", keys[i], 0));
    }
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), WEIR_E_INVALID);
    assert_false(call.verdict.allowed);
    assert_int_equal(call.verdict.status, 503);
    assert_false(call.own[0].allowed);
    assert_int_equal(call.own[63].status, 503);
    call.requests[WEIR_TOGETHER_MAX - 1].with = NULL;
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_true(call.verdict.allowed && call.own[63].allowed);
    /* A circle is too many. */
    call.requests[3].with = &call.requests[1];
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), WEIR_E_INVALID);
    /* What is charged in any case has no receipt, and is not a hold. */
    struct weir_request hold = always(one("a", "x"));
    hold.ttl_ms = 1000;
    assert_int_equal(weir_check(weir, &hold, NOW, &call.verdict), WEIR_E_INVALID);
    weir_close(weir);
}

static size_t name_user(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    (void)data;
    assert_true(request->event.len < cap);
    memcpy(buf, request->event.ptr, request->event.len);
    return request->event.len;
}

static void each_request_has_its_user(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){
        .rules_text = "rules:\n  - {id: u, by: user, limits: [{algorithm: fixed_window, max: 2, per: 60s}]}\n",
        .user_id = name_user });
    struct weir_request named = one("c", "x");
    named.user = weir_str("bob");
    CALL(weir, NOW,
         "pass u/fixed_window 0 of 2, reset 60000\n"
         "pass u/fixed_window 1 of 2, reset 60000\n"
         "pass u/fixed_window 0 of 2, reset 60000\n"
         "pass u/fixed_window 1 of 2, reset 60000",
         one("ann", "x"), cost_of("eve", "x", 2), named);
    struct weir_request bob = one("", "x");
    bob.user = weir_str("bob");
    EXPECT(weir, bob, NOW, "pass u/fixed_window 0 of 2, reset 60000");
    weir_close(weir);
}

static void batches_have_calls_in_them(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    struct weir_request with = cost_of("b", "x", 5),
                        requests[4] = { one("a", "x"), one("a", "x"), one("a", "x"), one("b", "x") };
    struct weir_verdict verdicts[4], own[2];
    requests[1].with = &with;
    requests[1].own = &own[0];
    with.own = &own[1];
    assert_int_equal(weir_check_batch(weir, requests, 4, NOW, verdicts), 0);
    assert_true(verdicts[0].allowed && verdicts[1].allowed && verdicts[2].allowed && !verdicts[3].allowed);
    assert_int_equal(own[0].remaining, 1);
    assert_int_equal(own[1].remaining, 0);
    assert_int_equal(weir_check_batch(weir, requests, 3, NOW, verdicts), 0);
    assert_false(verdicts[0].allowed || verdicts[1].allowed || verdicts[2].allowed);
    weir_close(weir);
}

static void a_repeated_header_refuses_all(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n  - {id: h, by: 'header:x', limits: 10 per 60s}\n  - {id: k, by: key, limits: 10 per 60s}\n");
    struct weir_header headers[] = { { weir_str("X"), weir_str("1") }, { weir_str("x"), weir_str("2") } };
    struct weir_request bad = one("e", "k");
    bad.headers = headers;
    bad.header_count = 2;
    CALL(weir, NOW, "refuse 400 no rule, retry -1\npass no rule\nrefuse 400 no rule, retry -1", one("e", "k"), bad);
    EXPECT(weir, peek_of("e", "k", 1), NOW, "pass k/token_bucket 10 of 10, reset 0");
    weir_close(weir);
}

/* ---- what each part is told ---- */

struct told {
    char text[500];
};

static void tell(const struct weir_rule_said *said, void *context)
{
    struct told *told = context;
    size_t len = strlen(told->text);
    snprintf(told->text + len, sizeof told->text - len, "%.*s%s ", (int)said->rule.len, said->rule.ptr,
             said->said == WEIR_SAYS_PASS     ? ""
             : said->said == WEIR_SAYS_REFUSE ? "!"
                                              : "?");
}

static void each_part_hears_of_its_own_rules(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        TWO "  - {id: w, mode: shadow, by: key, limits: [{algorithm: fixed_window, max: 2, per: 60s}]}\n"
            "  - {id: v, match: {event: b}, mode: shadow, limits: [{algorithm: fixed_window, max: 1, per: 60s}]}\n");
    static struct call call;
    struct told told[3] = { 0 };
    const struct weir_request requests[] = { one("a", "x"), one("b", "x"), one("a", "x") };
    call_of(&call, 3, requests);
    for (int i = 0; i < 3; i++) {
        call.requests[i].each_rule = tell;
        call.requests[i].context = &told[i];
    }
    /* Three for the shadow rule w, which has room for two. */
    expect_call(weir, &call, NOW,
                "pass a/fixed_window 1 of 3, reset 60000\n"
                "pass a/fixed_window 2 of 3, reset 60000\n"
                "pass b/fixed_window 4 of 5, reset 90000\n"
                "pass a/fixed_window 1 of 3, reset 60000, shadow w",
                __FILE__, __LINE__);
    assert_int_equal(call.verdict.shadow_count, 1);
    assert_string_equal(told[0].text, "a w ");
    assert_string_equal(told[1].text, "b w v ");
    assert_string_equal(told[2].text, "a w? ");
    assert_int_equal(call.usage[0].count, 1);
    assert_int_equal(call.usage[0].left[0].remaining, 2);
    assert_int_equal(call.usage[1].left[0].remaining, 4);
    assert_int_equal(call.usage[2].left[0].remaining, 1);
    memset(told, 0, sizeof told);
    expect_call(weir, &call, NOW,
                "refuse 429 a/fixed_window 1 of 3, reset 60000, retry 60000\n"
                "pass a/fixed_window 1 of 3, reset 60000\n"
                "pass b/fixed_window 4 of 5, reset 90000, shadow v\n"
                "refuse 429 a/fixed_window 1 of 3, reset 60000, retry 60000, shadow w",
                __FILE__, __LINE__);
    assert_string_equal(told[0].text, "a w ");
    assert_string_equal(told[1].text, "b w v? ");
    assert_string_equal(told[2].text, "a! w? ");
    weir_close(weir);
}

static void penalties_are_of_the_part(void **state)
{
    (void)state;
    struct weir *weir = open_rules(
        "rules:\n"
        "  - {id: p, match: {event: p}, by: key, limits: 1 per 60s, penalty: {after: 2, within: 60s, for: 10m}}\n"
        "  - {id: q, match: {event: q}, by: key, limits: 5 per 60s}\n");
    EXPECT(weir, one("p", "x"), NOW, "pass p/token_bucket 0 of 1, reset 60000");
    /* One call is one refusal, however many of its parts it is for. */
    CALL(weir, NOW,
         "refuse 429 p/token_bucket 0 of 1, reset 60000, retry -1\n"
         "refuse 429 p/token_bucket 0 of 1, reset 60000, retry 60000\n"
         "refuse 429 p/token_bucket 0 of 1, reset 60000, retry -1\n"
         "pass q/token_bucket 5 of 5, reset 0",
         one("p", "x"), one("p", "x"), one("q", "x"));
    CALL(weir, NOW,
         "refuse 429 p/token_bucket 0 of 1, reset 600000, retry 600000\n"
         "pass q/token_bucket 5 of 5, reset 0\n"
         "refuse 429 p/token_bucket 0 of 1, reset 600000, retry 600000",
         one("q", "x"), one("p", "x"));
    CALL(weir, NOW + 61 * S,
         "refuse 429 p/token_bucket 1 of 1, reset 0, retry -1\n"
         "refuse 429 p/token_bucket 0 of 1, reset 539000, retry 539000\n"
         "pass q/token_bucket 5 of 5, reset 0\n"
         "refuse 429 p/token_bucket 1 of 1, reset 0, retry -1",
         one("p", "x"), one("q", "x"), one("p", "x"));
    /* Who gives back is not refused. */
    EXPECT(weir, back(one("p", "x")), NOW + 30 * S, "pass p/token_bucket 1 of 1, reset 0");
    EXPECT(weir, peek_of("q", "x", 1), NOW, "pass q/token_bucket 5 of 5, reset 0");
    weir_close(weir);
}

/* ---- always ---- */

static void always_counts_whatever_there_is(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules(TWO "  - {id: s, match: {event: s}, by: key, limits: [{algorithm: sliding_window, max: 3, per: 60s}]}\n"
                       "  - {id: t, match: {event: t}, by: key, limits: 3 per 60s}\n");
    EXPECT(weir, always(cost_of("a", "x", 2)), NOW, "pass a/fixed_window 1 of 3, reset 60000");
    EXPECT(weir, always(cost_of("a", "x", 2)), NOW, "refuse 429 a/fixed_window 0 of 3, reset 60000, retry 60000");
    EXPECT(weir, one("a", "x"), NOW, "refuse 429 a/fixed_window 0 of 3, reset 60000, retry 60000");
    /* 4 were counted: giving back 2 leaves room for 1. */
    EXPECT(weir, back(cost_of("a", "x", 2)), NOW, "pass a/fixed_window 1 of 3, reset 60000");
    EXPECT(weir, always(cost_of("s", "x", 7)), NOW, "refuse 429 s/sliding_window 0 of 3, reset 120000, retry -1");
    EXPECT(weir, always(cost_of("t", "x", 4)), NOW, "refuse 429 t/token_bucket 0 of 3, reset 80000, retry -1");
    EXPECT(weir, one("t", "x"), NOW + 20 * S, "refuse 429 t/token_bucket 0 of 3, reset 60000, retry 20000");
    struct weir_request peek = always(cost_of("b", "x", 9));
    peek.peek = true;
    EXPECT(weir, peek, NOW, "refuse 429 b/fixed_window 5 of 5, reset 0, retry -1");
    EXPECT(weir, always(cost_of("b", "x", 0)), NOW, "pass b/fixed_window 5 of 5, reset 0");
    /* As much as there is. */
    EXPECT(weir, always(cost_of("b", "y", WEIR_AMOUNT_MAX)), NOW,
           "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1");
    EXPECT(weir, always(cost_of("b", "y", UINT64_MAX)), NOW, "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1");
    weir_close(weir);
}

static void always_of_one_part_is_charged_whatever_the_others_say(void **state)
{
    (void)state;
    struct weir *weir = open_rules(TWO);
    CALL(weir, NOW,
         "refuse 429 b/fixed_window 5 of 5, reset 0, retry -1\n"
         "pass a/fixed_window 1 of 3, reset 60000\n"
         "refuse 429 b/fixed_window 5 of 5, reset 0, retry -1",
         always(cost_of("a", "x", 2)), cost_of("b", "x", 6));
    EXPECT(weir, peek_of("a", "x", 1), NOW, "pass a/fixed_window 1 of 3, reset 60000");
    /* Its own refusal refuses the others. */
    CALL(weir, NOW,
         "refuse 429 a/fixed_window 0 of 3, reset 60000, retry 60000\n"
         "pass b/fixed_window 5 of 5, reset 0\n"
         "refuse 429 a/fixed_window 0 of 3, reset 60000, retry 60000",
         one("b", "x"), always(cost_of("a", "x", 2)));
    EXPECT(weir, peek_of("b", "x", 1), NOW, "pass b/fixed_window 5 of 5, reset 0");
    /* The same counter, one after the other. Together they never fit. */
    CALL(weir, NOW,
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1\n"
         "pass b/fixed_window 1 of 5, reset 90000\n"
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1\n"
         "refuse 429 b/fixed_window 0 of 5, reset 90000, retry -1",
         always(cost_of("b", "x", 4)), always(cost_of("b", "x", 2)), always(one("b", "x")));
    /* With one that charges if there is room: that one comes after it. */
    CALL(weir, NOW,
         "refuse 429 a/fixed_window 1 of 3, reset 60000, retry 60000\n"
         "refuse 429 a/fixed_window 1 of 3, reset 60000, retry 60000\n"
         "pass a/fixed_window 1 of 3, reset 60000",
         cost_of("a", "y", 2), always(cost_of("a", "y", 2)));
    EXPECT(weir, peek_of("a", "y", 1), NOW, "pass a/fixed_window 1 of 3, reset 60000");
    weir_close(weir);
}

static void slots_are_taken_only_if_all_passes(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules:\n  - {id: n, by: key, limits: [2 concurrent, {algorithm: fixed_window, max: 2, per: 60s}]}\n");
    struct weir_receipt receipt;
    struct weir_request request = always(one("a", "x"));
    request.receipt = &receipt;
    EXPECT(weir, request, NOW, "pass n/concurrent 1 of 2, reset 60000");
    assert_int_equal(receipt.count, 1); /* the slot */
    EXPECT(weir, request, NOW, "pass n/concurrent 0 of 2, reset 60000");
    EXPECT(weir, request, NOW, "refuse 429 n/fixed_window 0 of 2, reset 60000, retry 60000");
    assert_int_equal(receipt.count, 0);
    EXPECT(weir, back(cost_of("a", "x", 9)), NOW, "pass n/concurrent 0 of 2, reset 60000");
    weir_close(weir);
}

/* ---- giving back ---- */

static void no_more_is_given_back_than_is_used(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules(TWO "  - {id: s, match: {event: s}, by: key, limits: [{algorithm: sliding_window, max: 4, per: 60s}]}\n"
                       "  - {id: t, match: {event: t}, by: key, limits: 4 per 60s}\n"
                       "  - {id: c, match: {event: c}, by: key, limits: 4 per minute}\n");
    static const char *const events[] = { "b", "s", "t", "c" };
    for (size_t i = 0; i < 4; i++) {
        struct weir_verdict v = check_at(weir, back(cost_of(events[i], "x", 2)), NOW);
        assert_true(v.allowed && v.remaining == v.max);
        v = check_at(weir, cost_of(events[i], "x", 3), NOW);
        uint64_t left = v.remaining;
        assert_int_equal(left, v.max - 3);
        struct weir_request peek = back(cost_of(events[i], "x", 2));
        peek.peek = true;
        v = check_at(weir, peek, NOW);
        assert_true(v.allowed && v.remaining == left);
        v = check_at(weir, back(cost_of(events[i], "x", 2)), NOW);
        assert_true(v.allowed && v.remaining == left + 2);
        v = check_at(weir, back(cost_of(events[i], "x", UINT64_MAX)), NOW);
        assert_true(v.allowed && v.remaining == v.max);
        assert_int_equal(passes(weir, one(events[i], "x"), NOW, 9), v.max);
    }
    /* Beyond 32 bits, and a bucket some of which has come back by itself. */
    set_rules(weir, "[{id: w, by: key, limits: 1099511627776 per 3650d}, {id: v, by: key, limits: [{calendar: year, max: "
                    "1099511627776}]}]");
    EXPECT(weir, cost_of("", "w", UINT64_C(1) << 39), NOW,
           "pass w/token_bucket 549755813888 of 1099511627776, reset 157680000000");
    EXPECT(weir, back(cost_of("", "w", UINT64_C(1) << 38)), NOW,
           "pass w/token_bucket 824633720832 of 1099511627776, reset 78840000000");
    struct weir_verdict wide = check_at(weir, peek_of("", "w", 1), NOW);
    assert_int_equal(wide.remaining, UINT64_C(824633720832));
    wide = check_at(weir, back(cost_of("", "w", UINT64_MAX)), NOW + 86400 * S);
    assert_int_equal(wide.remaining, UINT64_C(1) << 40);
    set_rules(weir, "[{id: a, match: {event: a}, by: key, limits: [{algorithm: fixed_window, max: 3, per: 60s}]},"
                    " {id: s, match: {event: s}, by: key, limits: [{algorithm: sliding_window, max: 4, per: 60s}]}]");
    /* What is still in view of the previous window is not given back. */
    assert_int_equal(passes(weir, one("s", "z"), NOW, 4), 4);
    EXPECT(weir, back(cost_of("s", "z", 4)), NOW + 75 * S, "pass s/sliding_window 1 of 4, reset 45000");
    /* Nor what an earlier window counted. */
    assert_int_equal(passes(weir, one("a", "z"), NOW, 4), 3);
    EXPECT(weir, back(cost_of("a", "z", 4)), NOW + 60 * S, "pass a/fixed_window 3 of 3, reset 0");
    weir_close(weir);
}

/* ---- many ---- */

static void many_counters_take_memory(void **state)
{
    (void)state;
    static char rules[20000];
    char *to = rules + sprintf(rules, "rules:\n");
    for (int i = 0; i < 40; i++)
        to += sprintf(to, "  - {id: r%d, by: %s, limits: [{algorithm: fixed_window, max: %d, per: 60s}], mode: %s}\n", i,
                      i % 3 ? "key" : "event", 64 + i, i % 5 ? "enforce" : "shadow");
    struct weir *weir = open_with((struct weir_options){ .rules_text = rules, .cells_keys = 10000 });
    static struct call call;
    static char keys[WEIR_TOGETHER_MAX][8];
    memset(&call, 0, sizeof call);
    for (int i = 0; i < WEIR_TOGETHER_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        add(&call, one("e", keys[i]));
    }
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_true(call.verdict.allowed);
    assert_int_equal(call.verdict.remaining, 3); /* r3, by event */
    assert_int_equal(call.own[0].remaining, 64); /* r1, by key: 65 - 1 */
    assert_int_equal(weir_check(weir, call.requests, NOW, &call.verdict), 0);
    assert_false(call.verdict.allowed);
    assert_string_equal(call.verdict.rule, "r3");
    for (int i = 0; i < WEIR_TOGETHER_MAX; i++)
        assert_int_equal(call.own[i].allowed, i < 3);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pass_or_none_is_charged),
        cmocka_unit_test(a_single_request_has_its_own_verdict),
        cmocka_unit_test(parts_of_the_same_counter_do_not_pass_on_room_for_one),
        cmocka_unit_test(buckets_and_sliding_windows_are_joined_too),
        cmocka_unit_test(plans_of_the_same_subject_share_its_count),
        cmocka_unit_test(slots_of_the_same_counter_are_two),
        cmocka_unit_test(one_receipt_is_for_all),
        cmocka_unit_test(too_many_are_not_judged),
        cmocka_unit_test(each_request_has_its_user),
        cmocka_unit_test(batches_have_calls_in_them),
        cmocka_unit_test(a_repeated_header_refuses_all),
        cmocka_unit_test(each_part_hears_of_its_own_rules),
        cmocka_unit_test(penalties_are_of_the_part),
        cmocka_unit_test(always_counts_whatever_there_is),
        cmocka_unit_test(always_of_one_part_is_charged_whatever_the_others_say),
        cmocka_unit_test(slots_are_taken_only_if_all_passes),
        cmocka_unit_test(no_more_is_given_back_than_is_used),
        cmocka_unit_test(many_counters_take_memory),
    };
    return cmocka_run_group_tests_name("engine/together", tests, NULL, NULL);
}
