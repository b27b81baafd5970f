/* Which debts are paid while answers are late: decisions that are driven by hand, against a store that this file plays. */
#include "slices/lender.h"

struct store {
    struct cells *cells;
    struct lender *lender;
};

#include "played.h"

enum { LATE_MOST = 200 };

static const struct played_rule rules[RULES] = {
    { "e0", "", "A" },
    { "e1", "", "B" },
    { "al", "on_store_failure: allow", "C" },
    { "de", "on_store_failure: deny", "D" },
    { "r4", "", "E" },
    { "r5", "", "F" },
    { "r6", "", "G" },
    { "r7", "", "H" },
    { "r8", "", "I" },
};

static bool up;
static int64_t now_us;
static uint64_t reconciled;
static struct store_call *posted; /* and not answered yet */

static bool played_up(const struct store *store)
{
    (void)store;
    return up;
}

static void count(struct store *store, enum store_event event, uint64_t n)
{
    (void)store;
    reconciled += event == STORE_RECONCILED ? n : 0;
}

/* Takes its time with the first call, which is not sent then after all. The next one waits for that. */
static void post(struct store *store, struct store_call *call)
{
    (void)store;
    if (!posted) {
        posted = call;
        return;
    }
    end_call(posted, STORE_UNSENT);
    posted->done(posted);
    posted = NULL;
    if (call->sending)
        call->sending(call);
    decide(call, T0_US);
    call->done(call);
}

static void settle(struct store_link *link, const struct store_call *call)
{
    (void)link;
    for (size_t i = 0; i < call->rule_count; i++)
        if (call->rules[i].fits)
            settle_rule(&call->rules[i]);
}

static const struct store_ops played = {
    .open = played_open,
    .close = played_close,
    .up = played_up,
    .hosts = played_hosts,
    .offset_us = played_offset_us,
    .count = count,
    .post = post,
    .want = played_want,
    .link_settle = settle,
};

static int set_up(void **state)
{
    (void)state;
    p = (struct played){ .rnd = { 1 } };
    up = true;
    now_us = T0_US;
    reconciled = 0;
    open_played(rules, &played);
    p.hosts = 1;
    for (size_t i = 0; i < RULES; i++)
        assert_true(p.max[i] >= 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    check_ledger();
    weir_close(p.weir);
    return 0;
}

static struct weir_request request_of(const char *method, const char *user, uint64_t cost)
{
    return (struct weir_request){ .method = weir_str(method), .user = weir_str(user), .cost = cost };
}

/* Decides as far as the store's answer. */
static struct decision *begin(const struct weir_request *request, struct weir_verdict *verdict)
{
    sv user = request->user;
    struct decision *d = decision_new(p.weir, p.weir->current, request, &user, now_us, RULES);
    assert_non_null(d);
    d->verdict = verdict;
    decision_run(d);
    return d;
}

/* While the store is unavailable: it is owed. */
static void pass_without(const char *method, const char *user, uint64_t cost)
{
    struct weir_verdict v;
    struct weir_request request = request_of(method, user, cost);
    up = false;
    struct decision *d = begin(&request, &v);
    assert_int_equal(d->state, DECISION_DONE);
    assert_true(v.allowed);
    enter(&request, true);
    decision_free(d);
    up = true;
}

/* Its answer is late. Returns the decision, which is made. */
static struct decision *be_late(const char *method, const char *user, uint64_t cost, bool passes)
{
    struct weir_verdict v;
    struct weir_request request = request_of(method, user, cost);
    struct decision *d = begin(&request, &v);
    assert_int_equal(d->state, DECISION_CALL);
    decision_late(d);
    assert_int_equal(d->state, DECISION_DONE);
    assert_int_equal(v.allowed, passes);
    enter(&request, v.allowed);
    return d;
}

/* The late answer comes, or is known to be lost. */
static void be_answered(struct decision *d, bool decided)
{
    if (decided)
        decide(&d->remote->call, T0_US);
    else
        end_call(&d->remote->call, STORE_UNSENT);
    decision_aftermath(d);
    decision_free(d);
}

/* Asks the store for nothing, and returns the debt that goes along. */
static uint64_t debt_along(const char *method, const char *user)
{
    struct weir_verdict v;
    struct weir_request request = request_of(method, user, 0);
    struct decision *d = begin(&request, &v);
    assert_int_equal(d->state, DECISION_CALL);
    uint64_t debt = d->remote->call.rules[0].cells[0].debt;
    decide(&d->remote->call, T0_US);
    decision_answered(d);
    decision_free(d);
    return debt;
}

/* ---- tests ---- */

/* Answers about one subject are late all the time; those about others are not. */
static void test_other_subjects_pay(void **state)
{
    (void)state;
    struct decision *late = be_late("A", "u0", 1, true);
    pass_without("A", "u1", 1);
    pass_without("B", "u0", 1);
    for (int i = 0; i < 10; i++) {
        struct decision *next = be_late("C", "u0", 1, true);
        be_answered(late, true);
        late = next;
    }
    assert_int_equal(debt_along("A", "u1"), 1); /* another subject */
    assert_int_equal(debt_along("B", "u0"), 1); /* another limit of the same */
    assert_int_equal(debt_along("A", "u1"), 0);
    assert_int_equal(reconciled, 2);
    be_answered(late, true);
}

/* What a late answer may undo is not paid, or it would be charged twice. */
static void test_its_own_debt_waits(void **state)
{
    (void)state;
    pass_without("C", "u0", 2);
    struct decision *late[2] = { be_late("C", "u0", 1, true), be_late("C", "u0", 1, true) };
    /* The first of them has taken the 2 along; the second could not. */
    assert_int_equal(late[0]->remote->call.rules[0].cells[0].debt, 2);
    assert_int_equal(late[1]->remote->call.rules[0].cells[0].debt, 0);
    assert_int_equal(debt_along("C", "u0"), 0);
    be_answered(late[0], true);
    assert_int_equal(reconciled, 2);
    assert_int_equal(debt_along("C", "u0"), 0);
    be_answered(late[1], false);
    assert_int_equal(debt_along("C", "u0"), 1);
    assert_int_equal(reconciled, 3);
}

/* A late answer to a request that was refused undoes no debt. Somebody else had claimed the debt when it was sent. */
static void test_refused_and_unanswered(void **state)
{
    (void)state;
    struct weir_verdict v;
    struct weir_request look = request_of("A", "u0", 0);
    uint64_t share = p.max[0];
    pass_without("A", "u0", share);
    struct decision *payer = begin(&look, &v);
    struct decision *late = be_late("A", "u0", 1, false);
    assert_int_equal(late->remote->call.rules[0].cells[0].debt, 0);
    end_call(&payer->remote->call, STORE_LOST);
    decision_answered(payer);
    decision_free(payer);
    assert_int_equal(debt_along("A", "u0"), share);
    be_answered(late, true);
}

/* A call that has taken the debt along may be late for longer than its claim lasts: nobody else pays until it is answered.
 */
static void test_late_for_long(void **state)
{
    (void)state;
    uint64_t share = p.max[0];
    pass_without("A", "u0", share);
    struct decision *late = be_late("A", "u0", 1, false);
    assert_int_equal(late->remote->call.rules[0].cells[0].debt, share);
    now_us += 2 * DEBT_CLAIM_US;
    assert_int_equal(debt_along("A", "u0"), 0);
    be_answered(late, true);
    assert_int_equal(reconciled, share);
    assert_int_equal(debt_along("A", "u0"), 0);
}

/* Each is counted once, and none stays counted. */
static void test_many_are_late(void **state)
{
    (void)state;
    struct decision *late[LATE_MOST];
    pass_without("C", "u1", 3);
    for (int i = 0; i < LATE_MOST; i++)
        late[i] = be_late("C", "u0", 1, true);
    assert_int_equal(debt_along("C", "u1"), 3);
    for (int i = 0; i < LATE_MOST; i++)
        be_answered(late[i], i % 2);
    for (size_t i = 0; i < LATE_SLOTS; i++)
        assert_int_equal(p.weir->late[i], 0);
    uint64_t charged = p.ledger[2][0].store;
    assert_int_equal(debt_along("C", "u0"), LATE_MOST - charged);
}

/* A call that was made while an earlier one waited to be sent: the earlier one is refused, and what it owes goes along. */
static void test_debts_when_it_is_sent(void **state)
{
    (void)state;
    struct weir_verdict v;
    struct weir_request first = request_of("A", "u0", p.max[0]), second = request_of("A", "u0", 1);
    assert_int_equal(weir_check(p.weir, &first, T0_US, &v), 0);
    assert_true(v.allowed);
    enter(&first, true);
    assert_non_null(posted);
    assert_int_equal(weir_check(p.weir, &second, T0_US, &v), 0);
    assert_false(v.allowed); /* the store has been told of the first one */
    assert_int_equal(p.ledger[0][0].store, p.max[0]);
    assert_int_equal(reconciled, p.max[0]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_other_subjects_pay), TEST(test_its_own_debt_waits), TEST(test_refused_and_unanswered),
        TEST(test_late_for_long),      TEST(test_many_are_late),      TEST(test_debts_when_it_is_sent),
    };
    return cmocka_run_group_tests_name("sim/debts", tests, NULL, NULL);
}
