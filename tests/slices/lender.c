/* The lender by itself: what it sends, and what it makes of the answers. tests/sim/lease.c runs it against a network. */
#include "slices/lender.h"
#include "slices/debt.h"
#include "slices/slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../limit/random.h"

enum { MAX = 1000, SLICE = 50, TTL_MS = 2000 };
#define T0_US INT64_C(1700000000000000)
#define AHEAD_US (5 * US_PER_S) /* the store's clock */
#define CELL UINT64_C(0x123456789abcdef1)
#define STORE_END_US (T0_US + AHEAD_US + 60 * US_PER_S)

static struct cells *cells;
static struct lender *lender;

static int set_up(void **state)
{
    (void)state;
    struct weir_error error;
    if (cells_open(&cells, NULL, (struct cells_size){ .keys = 100000 }, &error) < 0)
        return -1;
    return lender_new(&lender, cells);
}

static int tear_down(void **state)
{
    (void)state;
    lender_free(lender);
    cells_close(cells);
    return 0;
}

static struct slice_ask ask_for(uint64_t cell, uint32_t need)
{
    struct slice_ask ask = { .cell = cell, .need = need, .slice = SLICE, .ttl_ms = TTL_MS };
    limit_init(&ask.limit, LIMIT_FIXED_WINDOW, MAX, 0, 60 * US_PER_S);
    ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{%llu}:rule:key", (unsigned long long)cell);
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "minute.f");
    return ask;
}

static bool wants(uint64_t cell, uint32_t need)
{
    struct slice_ask ask = ask_for(cell, need);
    return lender_ask(lender, &ask);
}

static struct lent lent_at(int64_t now_us, uint32_t tokens, uint32_t room)
{
    return (struct lent){ .tokens = tokens, .end_us = STORE_END_US, .server_us = now_us + AHEAD_US, .room = room };
}

static struct slice_spent look(int64_t now_us, uint32_t cost)
{
    return slice_spend(cells, CELL, SLICE, MAX, now_us, cost, false);
}

/* Asks, and is lent so many at once. */
static void lend(int64_t now_us, uint32_t tokens)
{
    assert_true(wants(CELL, 1));
    struct lend_call *call = lender_next(lender, now_us);
    assert_non_null(call);
    struct lent lent = lent_at(now_us, tokens, 500);
    assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, now_us));
}

static void test_slice_comes(void **state)
{
    (void)state;
    assert_null(lender_next(lender, T0_US));
    assert_true(wants(CELL, 3));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_int_equal(call->kind, LEND_TAKE);
    assert_int_equal(call->ask.need, 3);
    assert_int_equal(call->ask.slice, SLICE);
    /* 10 ms on its way there, 20 ms back: the window is over here when it is over there, or 10 ms before. */
    struct lent lent = lent_at(T0_US + 10 * US_PER_MS, 40, 500);
    assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US + 30 * US_PER_MS));
    struct slice_spent spent = look(T0_US + 30 * US_PER_MS, 1);
    assert_int_equal(spent.left, 40);
    assert_int_equal(spent.end_us, T0_US + 60 * US_PER_S - 10 * US_PER_MS);
    struct lender_counts counts = lender_counts(lender);
    assert_true(counts.slices == 1 && counts.lent == 40 && counts.held == 40 && counts.returned == 0);
}

static void test_one_ask_at_a_time(void **state)
{
    (void)state;
    assert_true(wants(CELL, 1));
    assert_true(wants(CELL, 7));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_int_equal(call->ask.need, 7);
    assert_true(wants(CELL, 2)); /* is on its way */
    assert_null(lender_next(lender, T0_US));
    assert_false(lender_answer(lender, call, LEND_FAILED, NULL, T0_US));
    assert_null(lender_next(lender, T0_US));
}

/* What was counted here while the store was away goes along with an ask, and stays owed until it is certainly charged. */
static void test_debts(void **state)
{
    (void)state;
    enum { OWED = 99 };
    struct slice_ask ask = ask_for(CELL, 1);
    struct lent stale = { .stale = true, .server_us = T0_US }, lent = lent_at(T0_US, 40, 500);
    ask.owed = OWED;
    debt_add(cells, OWED, &ask.limit, &ask.limit, NULL, T0_US, 7);
    static const enum lend_result undone[] = { LEND_LOST, LEND_UNSENT, LEND_FAILED };
    for (int i = 0; i < 4; i++) {
        assert_true(lender_ask(lender, &ask));
        struct lend_call *call = lender_next(lender, T0_US);
        assert_int_equal(call->debt, 7);
        assert_true(lender_ask(lender, &ask)); /* is on its way: nobody pays twice */
        assert_null(lender_next(lender, T0_US));
        lender_answer(lender, call, i < 3 ? undone[i] : LEND_ANSWERED, &stale, T0_US);
    }
    assert_true(lender_ask(lender, &ask));
    struct lend_call *call = lender_next(lender, T0_US);
    debt_add(cells, OWED, &ask.limit, &ask.limit, NULL, T0_US, 42); /* meanwhile: what has come pays, as far as it goes */
    assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US));
    assert_int_equal(lender_counts(lender).paid, 7 + 40);
    assert_int_equal(look(T0_US, 0).left, 0);
    assert_true(lender_ask(lender, &ask));
    call = lender_next(lender, T0_US);
    assert_int_equal(call->debt, 2);
    lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US);
    assert_true(lender_ask(lender, &ask));
    assert_null(lender_next(lender, T0_US)); /* nothing is owed, and there is enough */
}

/* Whoever owes something asks, and nobody may ask after that. */
static void test_debt_while_flying(void **state)
{
    (void)state;
    enum { OWED = 99 };
    struct slice_ask ask = ask_for(CELL, 1);
    struct lent lent = lent_at(T0_US, 40, 500);
    ask.owed = OWED;
    assert_true(lender_ask(lender, &ask));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_int_equal(call->debt, 0);
    debt_add(cells, OWED, &ask.limit, &ask.limit, NULL, T0_US, 47);
    assert_true(lender_ask(lender, &ask));
    assert_null(lender_next(lender, T0_US)); /* one at a time */
    lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US);
    call = lender_next(lender, T0_US);
    assert_non_null(call);
    assert_int_equal(call->debt, 7);
    lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US);
    assert_null(lender_next(lender, T0_US));
    assert_int_equal(lender_counts(lender).paid, 47);
}

/* Nothing passes on a limit that was overdrawn: what comes late pays, as far as it goes. */
static void test_overdraft_while_flying(void **state)
{
    (void)state;
    enum { OWED = 99 };
    struct slice_ask ask = ask_for(CELL, 1);
    struct limit_state seen;
    ask.owed = OWED;
    ask.limit.overdraft = true;
    for (uint64_t debt = 30; debt <= 70; debt += 40) {
        struct lent lent = lent_at(T0_US, 40, 500);
        assert_true(lender_ask(lender, &ask));
        struct lend_call *call = lender_next(lender, T0_US);
        assert_int_equal(call->debt, 0);
        debt_add(cells, OWED, &ask.limit, &ask.limit, NULL, T0_US, debt);
        assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US));
        assert_int_equal(look(T0_US, 0).left, debt < 40 ? 40 - debt : 0);
        assert_int_equal(debt_amount(cells, OWED, &ask.limit, NULL, T0_US, &seen), debt < 40 ? 0 : debt - 40);
        struct slice_spent spent = slice_spend_any(cells, CELL, SLICE, MAX, T0_US, 10, true);
        assert_int_equal(spent.taken, debt < 40 ? 10 : 0);
    }
    assert_int_equal(lender_counts(lender).paid, 70);
    assert_int_equal(lender_counts(lender).held, 0);
    assert_true(lender_ask(lender, &ask));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_int_equal(call->debt, 30);
    lender_answer(lender, call, LEND_FAILED, NULL, T0_US);
}

/* Somebody else is paying, and what has come must neither pay twice nor be spent: it goes back. */
static void test_overdraft_that_another_pays(void **state)
{
    (void)state;
    enum { OWED = 99, PAYER = 7 };
    struct slice_ask ask = ask_for(CELL, 1);
    struct lent lent = lent_at(T0_US, 40, 500);
    ask.owed = OWED;
    for (int overdraft = 1; overdraft >= 0; overdraft--) {
        ask.limit.overdraft = overdraft;
        assert_true(lender_ask(lender, &ask));
        struct lend_call *call = lender_next(lender, T0_US);
        debt_add(cells, OWED, &ask.limit, &ask.limit, NULL, T0_US, 30);
        assert_true(debt_claim(cells, OWED, PAYER, T0_US));
        assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US));
        assert_int_equal(lender_counts(lender).held, 40); /* until it is given back */
        assert_int_equal(lender_counts(lender).paid, 0);
        call = lender_next(lender, T0_US);
        if (!overdraft) { /* it was let through in place of the store, and nothing is overdrawn */
            assert_null(call);
            assert_int_equal(look(T0_US, 1).left, 40);
            return;
        }
        assert_int_equal(look(T0_US, 1).outcome, SLICE_DRY);
        assert_int_equal(call->kind, LEND_RETURN);
        assert_int_equal(call->tokens, 40);
        assert_int_equal(call->end_us, STORE_END_US);
        lender_answer(lender, call, LEND_ANSWERED, NULL, T0_US);
        assert_int_equal(lender_counts(lender).held, 0);
        debt_release(cells, OWED, PAYER, T0_US);
        cells_forget(cells, OWED);
        cells_forget(cells, CELL);
    }
}

/* While the store is away nobody else could have what lies idle. */
static void test_idle_while_away(void **state)
{
    (void)state;
    lend(T0_US, 40);
    lender_sweep(lender, false, T0_US + 30 * US_PER_S);
    assert_null(lender_next(lender, T0_US + 30 * US_PER_S));
    assert_int_equal(look(T0_US + 30 * US_PER_S, 1).left, 40);
    lender_sweep(lender, true, T0_US + 31 * US_PER_S);
    struct lend_call *call = lender_next(lender, T0_US + 31 * US_PER_S);
    assert_int_equal(call->tokens, 40);
    assert_int_equal(lender_counts(lender).held, 40); /* until it is given back */
    lender_answer(lender, call, LEND_ANSWERED, NULL, T0_US + 31 * US_PER_S);
    assert_int_equal(lender_counts(lender).held, 0);
}

static void test_enough_meanwhile(void **state)
{
    (void)state;
    lend(T0_US, SLICE);
    assert_true(wants(CELL, 1));
    assert_null(lender_next(lender, T0_US));
    assert_int_equal(slice_spend(cells, CELL, SLICE, MAX, T0_US, 40, true).outcome, SLICE_TAKEN);
    assert_true(wants(CELL, 1));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_int_equal(call->ask.slice, SLICE - 10); /* so that it holds no more than a slice */
    lender_answer(lender, call, LEND_LOST, NULL, T0_US);
}

/* Near the end of the budget a host does not gather small slices until it has a large one. */
static void test_small_slices(void **state)
{
    (void)state;
    lend(T0_US, 6);
    assert_int_equal(slice_spend(cells, CELL, SLICE, MAX, T0_US, 1, true).renew, true);
    assert_true(wants(CELL, 1));
    assert_null(lender_next(lender, T0_US));
    assert_int_equal(slice_spend(cells, CELL, SLICE, MAX, T0_US, 3, true).outcome, SLICE_TAKEN);
    assert_true(wants(CELL, 1));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_non_null(call);
    lender_answer(lender, call, LEND_LOST, NULL, T0_US);
}

/* Three are here and one is there: who wants four gets them. */
static void test_rest_is_asked_for(void **state)
{
    (void)state;
    lend(T0_US, 3);
    assert_true(wants(CELL, 4));
    struct lend_call *call = lender_next(lender, T0_US);
    assert_true(call->ask.need == 4 && call->lacks == 1);
    struct lent none = lent_at(T0_US, 0, 0), one = lent_at(T0_US, 1, 0);
    assert_true(lender_answer(lender, call, LEND_ANSWERED, &none, T0_US));
    assert_int_equal(look(T0_US, 4).outcome, SLICE_DRY);
    assert_int_equal(look(T0_US, 3).outcome, SLICE_TAKEN);
    int64_t later_us = T0_US + 250 * US_PER_MS;
    assert_true(wants(CELL, 4));
    assert_true(lender_answer(lender, lender_next(lender, later_us), LEND_ANSWERED, &one, later_us));
    assert_int_equal(look(later_us, 4).outcome, SLICE_TAKEN);
}

/* What a mark says is about what is lacking, too. */
static void test_dry_for_the_rest(void **state)
{
    (void)state;
    lend(T0_US, 3);
    assert_true(wants(CELL, 9));
    struct lent lent = lent_at(T0_US, 0, 2);
    assert_true(lender_answer(lender, lender_next(lender, T0_US), LEND_ANSWERED, &lent, T0_US));
    assert_int_equal(look(T0_US, 6).outcome, SLICE_DRY);
    assert_int_equal(look(T0_US, 5).outcome, SLICE_SHORT);
}

static void test_dry(void **state)
{
    (void)state;
    assert_true(wants(CELL, 5));
    struct lend_call *call = lender_next(lender, T0_US);
    struct lent lent = lent_at(T0_US, 0, 4);
    assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US));
    assert_int_equal(look(T0_US, 5).outcome, SLICE_DRY);
    assert_int_equal(look(T0_US, 4).outcome, SLICE_SHORT);
    assert_int_equal(look(T0_US + 250 * US_PER_MS, 5).outcome, SLICE_SHORT);
    assert_true(wants(CELL, 5));
    assert_false(lender_dropped(lender));
    assert_null(lender_next(lender, T0_US)); /* the store has just said so */
    assert_true(lender_dropped(lender));     /* who asked has seen something else, and is to look again */
    assert_false(lender_dropped(lender));
    assert_int_equal(lender_counts(lender).slices, 0);
}

static void test_no_answer(void **state)
{
    (void)state;
    static const enum lend_result results[] = { LEND_UNSENT, LEND_LOST, LEND_FAILED };
    for (unsigned i = 0; i < 3; i++) {
        assert_true(wants(CELL, 1));
        assert_false(lender_answer(lender, lender_next(lender, T0_US), results[i], NULL, T0_US));
        assert_int_equal(look(T0_US, 1).outcome, SLICE_SHORT);
    }
    /* An answer that cannot be. */
    assert_true(wants(CELL, 1));
    struct lent lent = { .tokens = 5, .end_us = T0_US, .server_us = T0_US };
    lender_answer(lender, lender_next(lender, T0_US), LEND_ANSWERED, &lent, T0_US);
    assert_int_equal(look(T0_US, 1).outcome, SLICE_SHORT);
}

/* ---- giving back ---- */

static void test_idle_slice_goes_back(void **state)
{
    (void)state;
    lend(T0_US, 10);
    lender_sweep(lender, true, T0_US + US_PER_S);
    assert_int_equal(slice_spend(cells, CELL, SLICE, MAX, T0_US + US_PER_S, 4, true).outcome, SLICE_TAKEN);
    lender_sweep(lender, true, T0_US + 2 * US_PER_S);
    assert_int_equal(lender_counts(lender).held, 6);
    lender_sweep(lender, true, T0_US + 4 * US_PER_S - 1);
    assert_null(lender_next(lender, T0_US + 4 * US_PER_S - 1));
    lender_sweep(lender, true, T0_US + 4 * US_PER_S);
    struct lend_call *call = lender_next(lender, T0_US + 4 * US_PER_S);
    assert_int_equal(call->kind, LEND_RETURN);
    assert_int_equal(call->tokens, 6);
    assert_int_equal(call->end_us, STORE_END_US);
    struct slice_ask ask = ask_for(CELL, 1);
    assert_int_equal(call->ask.key_len, ask.key_len);
    assert_memory_equal(call->ask.key, ask.key, ask.key_len);
    assert_int_equal(call->ask.field_len, ask.field_len);
    assert_memory_equal(call->ask.field, ask.field, ask.field_len);
    assert_int_equal(look(T0_US + 4 * US_PER_S, 1).outcome, SLICE_SHORT);
    assert_false(lender_answer(lender, call, LEND_ANSWERED, NULL, T0_US + 4 * US_PER_S));
    struct lender_counts counts = lender_counts(lender);
    assert_true(counts.returned == 6 && counts.held == 0);
}

/* A caller that wants more than there is anywhere does not keep tokens from others that it cannot use. */
static void test_asked_for_and_not_spent(void **state)
{
    (void)state;
    lend(T0_US, 3);
    lender_sweep(lender, true, T0_US);
    int64_t now_us = T0_US + 2 * US_PER_S;
    assert_true(wants(CELL, 4));
    struct lent none = lent_at(now_us, 0, 0);
    assert_true(lender_answer(lender, lender_next(lender, now_us), LEND_ANSWERED, &none, now_us));
    lender_sweep(lender, true, now_us);
    struct lend_call *call = lender_next(lender, now_us);
    assert_int_equal(call->kind, LEND_RETURN);
    assert_int_equal(call->tokens, 3);
    lender_answer(lender, call, LEND_ANSWERED, NULL, now_us);
}

/* Once only, unless it is certain that it never got there, and only while its window lasts. */
static void test_return_that_fails(void **state)
{
    (void)state;
    lend(T0_US, 10);
    lender_recall(lender, T0_US);
    struct lend_call *call = lender_next(lender, T0_US);
    assert_int_equal(call->tokens, 10);
    lender_answer(lender, call, LEND_UNSENT, NULL, T0_US);
    assert_null(lender_next(lender, T0_US));
    lender_sweep(lender, true, T0_US);
    call = lender_next(lender, T0_US);
    assert_int_equal(call->tokens, 10);
    lender_answer(lender, call, LEND_LOST, NULL, T0_US);
    lender_sweep(lender, true, T0_US);
    assert_null(lender_next(lender, T0_US));
    lend(T0_US, 10);
    lender_recall(lender, T0_US);
    lender_answer(lender, lender_next(lender, T0_US), LEND_UNSENT, NULL, T0_US);
    lender_sweep(lender, true, T0_US + 60 * US_PER_S);
    assert_null(lender_next(lender, T0_US + 60 * US_PER_S));
}

static void test_next_window(void **state)
{
    (void)state;
    lend(T0_US, 10);
    /* The store is in the next window, though this host's clock, which was set back, is not. */
    assert_int_equal(slice_spend(cells, CELL, SLICE, MAX, T0_US, 8, true).outcome, SLICE_TAKEN);
    assert_true(wants(CELL, 1));
    struct lend_call *call = lender_next(lender, T0_US);
    struct lent lent = lent_at(T0_US, 7, 500);
    lent.end_us += 500 * US_PER_MS;
    assert_true(lender_answer(lender, call, LEND_ANSWERED, &lent, T0_US));
    assert_int_equal(look(T0_US, 1).left, 7);
    assert_int_equal(lender_counts(lender).held, 7);
    lender_sweep(lender, true, T0_US + 61 * US_PER_S); /* over: nothing to give back */
    assert_null(lender_next(lender, T0_US + 61 * US_PER_S));
    assert_int_equal(lender_counts(lender).held, 0);
}

/* ---- bounds ---- */

static uint64_t cell_of(uint64_t number)
{
    return random_u64(&(struct random){ number });
}

static uint64_t drain(int64_t now_us)
{
    uint64_t tokens = 0;
    for (struct lend_call *call; (call = lender_next(lender, now_us));) {
        struct lent lent = lent_at(now_us, 2, 500);
        tokens += call->kind == LEND_RETURN ? call->tokens : 0;
        lender_answer(lender, call, LEND_ANSWERED, &lent, now_us);
    }
    return tokens;
}

static void test_bounds(void **state)
{
    (void)state;
    uint64_t cell = 1, slices = 0;
    while (slices < LENDER_SLICES_MAX + 1000) {
        uint64_t waiting = 0;
        for (; wants(cell_of(cell), 1); cell++)
            waiting++;
        assert_int_equal(waiting, LENDER_QUEUE_MAX);
        slices += waiting;
        drain(T0_US);
    }
    assert_int_equal(lender_counts(lender).held, 2 * LENDER_SLICES_MAX);
    /* More than fit into the queue at once. */
    lender_recall(lender, T0_US);
    assert_int_equal(drain(T0_US), 2 * LENDER_SLICES_MAX);
    assert_int_equal(lender_counts(lender).held, 0);
    assert_int_equal(lender_counts(lender).returned, 2 * LENDER_SLICES_MAX);
}

static void test_flight(void **state)
{
    (void)state;
    static struct lend_call *calls[LENDER_FLIGHT_MAX];
    for (uint64_t i = 0; i <= LENDER_FLIGHT_MAX; i++)
        assert_true(wants(cell_of(i), 1));
    for (unsigned i = 0; i < LENDER_FLIGHT_MAX; i++)
        assert_non_null(calls[i] = lender_next(lender, T0_US));
    assert_null(lender_next(lender, T0_US));
    for (unsigned i = 0; i < LENDER_FLIGHT_MAX; i++)
        lender_answer(lender, calls[i], LEND_LOST, NULL, T0_US);
    assert_int_equal(drain(T0_US), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_slice_comes),
        TEST(test_one_ask_at_a_time),
        TEST(test_debts),
        TEST(test_debt_while_flying),
        TEST(test_overdraft_while_flying),
        TEST(test_overdraft_that_another_pays),
        TEST(test_idle_while_away),
        TEST(test_enough_meanwhile),
        TEST(test_small_slices),
        TEST(test_rest_is_asked_for),
        TEST(test_dry_for_the_rest),
        TEST(test_dry),
        TEST(test_no_answer),
        TEST(test_idle_slice_goes_back),
        TEST(test_asked_for_and_not_spent),
        TEST(test_return_that_fails),
        TEST(test_next_window),
        TEST(test_bounds),
        TEST(test_flight),
    };
    return cmocka_run_group_tests_name("slices/lender", tests, NULL, NULL);
}
