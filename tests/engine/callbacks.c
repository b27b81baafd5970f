/* The host's own functions: who the user is, what a refusal looks like. */
#include "helpers.h"

#define BY_USER "rules: [{ id: a, match: { event: e }, by: [user], limits: [2 per 1h] }]"
#define BY_KEY "rules: [{ id: b, match: { event: e }, by: [key], limits: [2 per 1h] }]"

/* ---- the user ---- */

struct getter {
    const char *user;
    size_t claims; /* how long it says the user is; 0: as long as it is */
    unsigned calls;
    size_t cap;
    const void *context;
    struct weir *weir; /* asked in between, about another event */
    struct weir_verdict between;
};

static size_t get_user(const struct weir_request *request, char *buf, size_t cap, void *data)
{
    struct getter *g = data;
    g->calls++;
    g->cap = cap;
    g->context = request->context;
    size_t len = strlen(g->user);
    memcpy(buf, g->user, len < cap ? len : cap);
    struct weir *weir = g->weir;
    g->weir = NULL; /* what it asks asks for the user, too */
    if (weir) {
        struct weir_request other = { .event = WEIR_STR("e"), .user = WEIR_STR("between"), .cost = 1 };
        assert_int_equal(weir_check(weir, &other, NOW, &g->between), 0);
        set_rules(weir, BY_USER);
        assert_int_equal(weir_detect(weir, "none", "k", NULL), WEIR_NO_RULE);
    }
    return g->claims ? g->claims : len;
}

static struct weir *open_getter(struct getter *g, const char *rules)
{
    return open_with((struct weir_options){ .rules_text = rules, .user_id = get_user, .user_id_data = g });
}

static void the_getter_is_asked_for_the_user(void **state)
{
    (void)state;
    struct getter g = { .user = "u1" };
    struct weir *weir = open_getter(&g, BY_USER);
    struct weir_request request = one("e", "k");
    int mine;
    request.context = &mine;
    EXPECT(weir, request, NOW, "pass a/token_bucket 1 of 2, reset 1800000");
    assert_int_equal(g.calls, 1);
    assert_ptr_equal(g.context, &mine);
    assert_true(g.cap >= 256);
    /* It is the same subject as one that the caller names. */
    request.user = WEIR_STR("u1");
    EXPECT(weir, request, NOW, "pass a/token_bucket 0 of 2, reset 3600000");
    assert_int_equal(g.calls, 1);
    g.user = "u2";
    request.user = weir_str(NULL);
    EXPECT(weir, request, NOW, "pass a/token_bucket 1 of 2, reset 1800000");
    g.user = "u1";
    EXPECT(weir, request, NOW, "refuse 429 a/token_bucket 0 of 2, reset 3600000, retry 1800000");
    weir_close(weir);
}

static void the_getter_is_asked_only_if_a_rule_wants_the_user(void **state)
{
    (void)state;
    struct getter g = { .user = "u1" };
    struct weir *weir = open_getter(&g, BY_KEY);
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 2);
    assert_int_equal(g.calls, 0);
    set_rules(weir, "rules: [{ id: b, by: [key], limits: [2 per 1h], except: { user: [u1] } }]");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 3);
    assert_int_equal(g.calls, 3);
    set_rules(weir, "rules: [{ id: a, by: [user], limits: [2 per 1h], mode: off }]");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 3);
    assert_int_equal(g.calls, 3);
    set_rules(weir, "{ settings: { except: { user: [u1] } }, rules: [{ id: b, by: [key], limits: [2 per 1h] }] }");
    assert_int_equal(passes(weir, one("e", "k"), NOW, 3), 3);
    assert_int_equal(g.calls, 6);
    weir_close(weir);
}

static void no_user_no_rule(void **state)
{
    (void)state;
    struct getter g = { .user = "" };
    struct weir *weir = open_getter(&g, BY_USER);
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    assert_int_equal(g.calls, 1);
    weir_close(weir);
    weir = open_rules(BY_USER);
    EXPECT(weir, one("e", "k"), NOW, "pass no rule");
    weir_close(weir);
}

/* What does not fit is cut, and is the same subject each time, also if the getter wrote nothing. */
static void a_user_longer_than_the_buffer(void **state)
{
    (void)state;
    char user[2000];
    memset(user, 'u', sizeof user - 1);
    user[sizeof user - 1] = '\0';
    struct getter g = { .user = user };
    struct weir *weir = open_getter(&g, BY_USER);
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 2);
    g.claims = SIZE_MAX;
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 0);
    g.user = "";
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 2);
    weir_close(weir);
}

static void the_getter_may_use_weir(void **state)
{
    (void)state;
    struct getter g = { .user = "u1" };
    struct weir *weir = open_getter(&g, BY_USER);
    g.weir = weir;
    EXPECT(weir, one("e", "k"), NOW, "pass a/token_bucket 1 of 2, reset 1800000");
    assert_true(g.between.applied);
    assert_int_equal(g.between.remaining, 1);
    assert_int_equal(g.calls, 2);
    struct weir_request batch[3] = { one("e", "k"), one("e", "k"), one("e", "k") };
    struct weir_verdict verdicts[3];
    assert_int_equal(weir_check_batch(weir, batch, 3, NOW, verdicts), 0);
    assert_int_equal(g.calls, 5);
    assert_true(verdicts[0].allowed);
    assert_false(verdicts[1].allowed);
    assert_false(verdicts[2].allowed);
    weir_close(weir);
}

/* ---- the refusal ---- */

struct factory {
    unsigned calls;
    const struct weir_request *request;
    char rule[WEIR_ID_MAX + 1];
    char body[20];
};

static void build(const struct weir_request *request, const struct weir_verdict *verdict, struct weir_refusal *refusal,
                  void *data)
{
    struct factory *f = data;
    f->calls++;
    f->request = request;
    snprintf(f->rule, sizeof f->rule, "%s", verdict->rule);
    /* It comes filled with the rule's own. */
    snprintf(f->body, sizeof f->body, "<%.*s>", (int)refusal->body.len, refusal->body.ptr);
    refusal->body = weir_str(f->body);
    refusal->status = 400;
}

static void the_factory_builds_the_refusal(void **state)
{
    (void)state;
    struct factory f = { 0 };
    struct weir *weir = open_with((struct weir_options){
        .rules_text = "rules: [{ id: a, limits: [0 per 1s], reject: { body: no, content_type: a/b } }]",
        .refuse = build,
        .refuse_data = &f });
    struct weir_request request = one("e", "k");
    struct weir_verdict v = check_at(weir, request, NOW);
    struct weir_refusal refusal;
    assert_int_equal(f.calls, 0);
    assert_int_equal(weir_refuse(weir, &request, &v, &refusal), 0);
    assert_int_equal(f.calls, 1);
    assert_ptr_equal(f.request, &request);
    assert_string_equal(f.rule, "a");
    assert_int_equal(refusal.status, 400);
    assert_int_equal(refusal.body.len, 4);
    assert_memory_equal(refusal.body.ptr, "<no>", 4);
    assert_memory_equal(refusal.content_type.ptr, "a/b", 3);
    assert_int_equal(refusal.header_count, 2);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_getter_is_asked_for_the_user),
        cmocka_unit_test(the_getter_is_asked_only_if_a_rule_wants_the_user),
        cmocka_unit_test(no_user_no_rule),
        cmocka_unit_test(a_user_longer_than_the_buffer),
        cmocka_unit_test(the_getter_may_use_weir),
        cmocka_unit_test(the_factory_builds_the_refusal),
    };
    return cmocka_run_group_tests_name("engine/callbacks", tests, NULL, NULL);
}
