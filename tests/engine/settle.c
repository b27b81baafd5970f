/* Which holds can be settled: those of a child of a fork, those whose cells are free, those that are over. */
#include <sys/wait.h>

#include "holding.h"

/* ---- a forked child ---- */

/* The child goes on where its parent was, also in what numbers are drawn from. */
static void a_child_settles_what_is_its_own(void **state)
{
    (void)state;
    struct weir *weir = open_kind(0);
    struct weir_receipt before = held(weir, 1, 1000, NOW), after;
    assert_int_equal(settle(weir, &before, 0, NOW), 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct weir_request request = reservation(10, 1000, &after);
        struct weir_verdict verdict;
        bool made = weir_reserve(weir, &request, NOW, &verdict) == 0 && verdict.allowed;
        _exit(made ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    after = held(weir, 10, 1000, NOW);
    assert_int_equal(settle(weir, &after, 0, NOW), 1);
    assert_int_equal(settle(weir, &after, 0, NOW), 0);
    assert_int_equal(left(weir, NOW), 90); /* the child's */
    weir_close(weir);
}

/* ---- cells that are free ---- */

/* Others come, and take the cells that are free. */
static void others_come(struct weir *weir, int64_t now_us)
{
    char key[20];
    for (int i = 0; i < 600; i++) {
        snprintf(key, sizeof key, "o%d", i);
        struct weir_request request = cost_of("o", key, 1);
        assert_true(check_at(weir, request, now_us).allowed);
    }
}

#define TOKENS "{ name: b, max: 1000, per: 60s, unit: tokens }"
#define OTHERS "{ id: o, match: { event: o }, by: [key], limits: [{ name: f, max: 10, per: 60s }] }"

/* Nothing is charged until then: so nothing but the receipt's number says that it is out. */
static void what_was_not_named_is_settled_while_the_hold_lasts(void **state)
{
    (void)state;
    int lost = 0;
    for (int i = 0; i < 20; i++) {
        struct weir *weir = open_rules("rules: [" RULE("r", TOKENS) ", " OTHERS "]");
        struct weir_receipt receipt = held(weir, 1, 60000, NOW);
        others_come(weir, NOW + 5 * S);
        struct weir_cost tokens = { weir_str("tokens"), 500 };
        lost += weir_settle(weir, &receipt, WEIR_AS_HELD, &tokens, 1, NOW + 5 * S) == 0;
        weir_close(weir);
    }
    assert_int_equal(lost, 0);
}

/* ---- holds that nobody settles ---- */

/* Each subject comes again after its hold is over, and the hold waits for its settlement: it takes no slot from others. */
static void holds_that_are_over_leave_room_for_others(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", DAY("100")) ", { id: s, match: { event: s }, by: [key], limits: "
                                                                    "[{ name: c, concurrent: 1, ttl: 60s }] }]");
    char key[20];
    struct weir_receipt receipt;
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "k%d", i);
        struct weir_request request = reservation(1, 1000, &receipt);
        request.key = weir_str(key);
        assert_true(check_at(weir, request, NOW + i * 2 * S).allowed);
        request.ttl_ms = 0;
        request.receipt = NULL;
        assert_true(check_at(weir, request, NOW + (i * 2 + 1) * S + 1).allowed);
    }
    unsigned passed = 0;
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "s%d", i);
        struct weir_request request = cost_of("s", key, 1);
        request.receipt = &receipt;
        passed += check_at(weir, request, NOW + 2000 * S).allowed;
    }
    assert_int_equal(passed, 8);
    weir_close(weir);
}

/* ---- seals ---- */

/* A bucket has a rate, the window after it has none: all words in their order, but each in the field before it. */
static void words_in_other_fields_break_the_seal(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [" RULE("r", BUCKET("100") ", " DAY("100")) "]");
    struct weir_receipt receipt = held(weir, 10, 1000, NOW), moved = receipt;
    struct weir_charged *first = &moved.charged[0], *second = &moved.charged[1], was = receipt.charged[1];
    assert_true(first->rate != 0 && was.rate == 0);
    *second = (struct weir_charged){ .limit = first->rate,
                                     .key = was.limit,
                                     .origin = was.key,
                                     .cost = was.origin,
                                     .unit = (uint32_t)was.cost,
                                     .how = (uint32_t)(was.cost >> 32),
                                     .rate = was.unit | (uint64_t)was.how << 32 };
    first->rate = 0;
    assert_int_equal(settle(weir, &moved, 0, NOW), 0);
    assert_int_equal(settle(weir, &receipt, 0, NOW), 2);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_settles_what_is_its_own),
        cmocka_unit_test(what_was_not_named_is_settled_while_the_hold_lasts),
        cmocka_unit_test(holds_that_are_over_leave_room_for_others),
        cmocka_unit_test(words_in_other_fields_break_the_seal),
    };
    return cmocka_run_group_tests_name("engine/settle", tests, NULL, NULL);
}
