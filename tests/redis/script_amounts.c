/* The scripts of the store with large amounts, with a cost for each cell, and with costs of 0. Time is passed in; each test
 * begins with an empty store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "question.h"
#include "random.h"

#define TWO_31 (UINT64_C(1) << 31)
#define TWO_32 (UINT64_C(1) << 32)
#define MOST WEIR_AMOUNT_MAX

static const uint64_t edges[] = { TWO_31 - 1, TWO_31, TWO_32 - 2, TWO_32 - 1, TWO_32, TWO_32 + 1, MOST - 1, MOST };
enum { EDGES = sizeof edges / sizeof edges[0] };

static bool fits(struct question *q, uint64_t cost)
{
    set_costs(q, cost);
    return allowed(q);
}

/* An administrator changes the numbers of the first limit. */
static void change(struct question *q, uint64_t max, uint64_t burst)
{
    struct limit *l = &q->limits[0][0];
    limit_init(l, l->algorithm, max, burst, l->per_us);
}

static void refund(struct question *q, int64_t given)
{
    script_write_settle(&talk.out, SV("weir"), &q->call);
    assert_int_equal(read_integer(), given);
}

static uint64_t remaining(const struct question *q)
{
    const struct store_cell *cell = &q->cells[0][0];
    return limit_report(cell->limit, &cell->window, cell->state, q->call.now_us, 0).remaining;
}

static void question_of(struct question *q, enum limit_algorithm algorithm, uint64_t max)
{
    question_init(q, NOON_US);
    if (algorithm == LIMIT_CALENDAR)
        add_calendar(q, 0, max, DAY_US, NOON_US);
    else
        add(q, 0, algorithm, max, 60 * S);
}

/* ---- amounts ---- */

static void amounts_are_exact_up_to_the_largest(void **state)
{
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm <= LIMIT_CALENDAR; algorithm++)
        for (int i = 0; i < EDGES; i++) {
            struct question q;
            if (algorithm == LIMIT_SLIDING_WINDOW && edges[i] > LIMIT_SLIDE_MAX)
                continue;
            question_empty(state);
            question_of(&q, (enum limit_algorithm)algorithm, edges[i]);
            assert_true(edges[i] == MOST || !fits(&q, edges[i] + 1));
            assert_true(fits(&q, edges[i] - 1));
            assert_int_equal(remaining(&q), 1);
            assert_false(fits(&q, 2));
            assert_false(fits(&q, MOST));
            assert_true(fits(&q, 1));
            assert_int_equal(remaining(&q), 0);
            assert_false(fits(&q, 1));
            assert_true(fits(&q, 0));
        }
}

/* Buckets of any size and period: what has come back after some time is exact to the token. */
static void what_comes_back_is_exact(void **state)
{
    struct random rnd = { random_seed() };
    for (int i = 0; i < 300; i++) {
        struct question q;
        uint64_t max = random_one_in(&rnd, 3) ? edges[random_in(&rnd, 0, EDGES - 1)] : (uint64_t)random_scaled(&rnd, MOST);
        uint64_t burst = random_one_in(&rnd, 2) ? MOST : max;
        int64_t per_us = random_one_in(&rnd, 4) ? LIMIT_PER_MAX_US : 1000 + random_scaled(&rnd, LIMIT_PER_MAX_US - 1000);
        int64_t elapsed_us = random_in(&rnd, 0, per_us);
        question_empty(state);
        question_init(&q, NOON_US);
        add(&q, 0, LIMIT_TOKEN_BUCKET, max, per_us);
        change(&q, max, burst);
        assert_true(fits(&q, burst));
        uint64_t back = (uint64_t)((limit_wide)max * (uint64_t)elapsed_us / (uint64_t)per_us);
        q.call.now_us += elapsed_us;
        assert_true(back == MOST || !fits(&q, back + 1));
        assert_true(fits(&q, back));
        assert_true(back == 0 || !fits(&q, back));
    }
}

static void a_wait_ends_when_it_says(void **state)
{
    for (int i = 0; i < EDGES; i++) {
        struct question q;
        question_empty(state);
        question_of(&q, LIMIT_TOKEN_BUCKET, edges[i]);
        assert_true(fits(&q, edges[i]));
        uint64_t cost = edges[i] / 3;
        assert_false(fits(&q, cost));
        struct limit_report report = limit_report(q.cells[0][0].limit, NULL, q.cells[0][0].state, NOON_US, cost);
        limit_wide wait_us = ((limit_wide)cost * (60 * S) + edges[i] - 1) / edges[i];
        assert_int_equal(report.retry_after_us, (int64_t)wait_us);
        q.call.now_us = NOON_US + report.retry_after_us - 1;
        assert_false(fits(&q, cost));
        q.call.now_us++;
        assert_true(fits(&q, cost));
    }
}

/* ---- states of buckets ---- */

static void a_state_is_long_from_2_32_tokens_on(void **state)
{
    struct question q;
    double numbers[3];
    (void)state;
    question_of(&q, LIMIT_TOKEN_BUCKET, MOST);
    assert_true(fits(&q, TWO_32 - 2));
    assert_int_equal(stored(FIRST, "one", numbers), 2);
    assert_true(numbers[0] == (double)NOON_US && numbers[1] == 0x1p20 * (0x1p32 - 2));
    assert_true(fits(&q, 1));
    assert_int_equal(stored(FIRST, "one", numbers), 3);
    assert_true(numbers[0] == -(double)NOON_US && numbers[1] == 0x1p32 - 1 && numbers[2] == 0);
    assert_int_equal(remaining(&q), MOST - (TWO_32 - 1));
    refund(&q, 1);
    assert_int_equal(stored(FIRST, "one", numbers), 2);
    assert_true(numbers[1] == 0x1p20 * (0x1p32 - 2));
}

/* What has come back of the cost is rounded up to a part, which makes the parts a whole token here. */
static void a_refund_of_a_long_state_carries(void **state)
{
    struct question q;
    double numbers[3];
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_TOKEN_BUCKET, 1, LIMIT_PER_MAX_US);
    put(FIRST, "one", (double[]){ -NOON_US, 0x1p33, 0x1p20 - 1 }, 3);
    q.call.server_us = NOON_US;
    q.call.now_us = NOON_US + 1;
    set_costs(&q, 5);
    refund(&q, 1);
    assert_int_equal(stored(FIRST, "one", numbers), 3);
    assert_true(numbers[0] == -(double)NOON_US && numbers[1] == 0x1p33 - 4 && numbers[2] == 0);
    /* And borrows; never below 0. */
    refund(&q, 1);
    assert_int_equal(stored(FIRST, "one", numbers), 3);
    assert_true(numbers[1] == 0x1p33 - 9 && numbers[2] == 1);
    set_costs(&q, MOST);
    refund(&q, 1);
    assert_int_equal(stored(FIRST, "one", numbers), 2);
    assert_true(numbers[0] == (double)NOON_US && numbers[1] == 0);
}

/* As earlier versions stored it. */
static void a_short_state_of_2_32_tokens_counts(void **state)
{
    struct question q;
    (void)state;
    put(FIRST, "one", (double[]){ NOON_US, 0x1p20 * (0x1p32 - 1) }, 2);
    question_of(&q, LIMIT_TOKEN_BUCKET, TWO_32 - 1);
    assert_false(fits(&q, 1));
    assert_int_equal(remaining(&q), 0);
    change(&q, TWO_32 + 1, 0);
    assert_false(fits(&q, 3));
    assert_true(fits(&q, 2));
}

static void damaged_states_are_told(void **state)
{
    static const struct {
        enum limit_algorithm algorithm;
        double numbers[3];
    } cases[] = {
        { LIMIT_TOKEN_BUCKET, { NOON_US, 0x1p32, 0 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, 0x1p53, 0 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, -1, 0 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, 0x1p32, 0x1p20 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, 0x1p32, -1 } },
        { LIMIT_TOKEN_BUCKET, { -0x1p52, 0x1p32, 0 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, NAN, 0 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, 1, NAN } },
        { LIMIT_TOKEN_BUCKET, { NAN, 1, 0 } },
        { LIMIT_TOKEN_BUCKET, { -INFINITY, 1, 0 } },
        { LIMIT_TOKEN_BUCKET, { -NOON_US, INFINITY, 0 } },
        { LIMIT_FIXED_WINDOW, { NOON_US + S, S, 0x1p53 } },
        { LIMIT_SLIDING_WINDOW, { NOON_US, 1, 4294967296.0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct question q;
        double numbers[3];
        question_empty(state);
        question_of(&q, cases[i].algorithm, TWO_31);
        put(FIRST, "one", cases[i].numbers, 3);
        ask_with(&q, SV("weir"));
        assert_non_null(strstr(q.error, "BADSTATE " FIRST " one: this is not a state of a "));
        assert_int_equal(stored(FIRST, "one", numbers), 3);
        assert_memory_equal(numbers, cases[i].numbers, sizeof numbers);
        /* A refund leaves a bucket alone that it cannot read. */
        q.call.server_us = NOON_US;
        if (cases[i].algorithm == LIMIT_TOKEN_BUCKET)
            refund(&q, 0);
    }
}

static void a_window_longer_than_any_is_read(void **state)
{
    struct question q;
    (void)state;
    put(FIRST, "one", (double[]){ NOON_US + S, 0x1p52, 5 }, 3);
    question_of(&q, LIMIT_FIXED_WINDOW, 10);
    assert_true(fits(&q, 1));
    assert_int_equal(remaining(&q), 4);
}

static void answers_with_long_states_are_checked(void **state)
{
    struct question q;
    const double good[] = { 3, NOON_US, -NOON_US, 0x1p52, 1 };
    (void)state;
    question_of(&q, LIMIT_TOKEN_BUCKET, MOST);
    for (size_t len = 0; len <= sizeof good; len++)
        assert_int_equal(script_read_decide(&q.call, sv_of((const char *)good, len)), len == sizeof good);
    assert_int_equal(remaining(&q), MOST - (UINT64_C(1) << 52) - 1);
    static const double wrong[] = { -0x1p52, 0x1p53, 0x1p20 };
    for (int i = 0; i < 3; i++) {
        double numbers[5];
        memcpy(numbers, good, sizeof numbers);
        numbers[2 + i] = wrong[i];
        assert_false(script_read_decide(&q.call, sv_of((const char *)numbers, sizeof numbers)));
        numbers[2 + i] = NAN;
        assert_false(script_read_decide(&q.call, sv_of((const char *)numbers, sizeof numbers)));
    }
}

/* ---- numbers that change ---- */

static void a_max_across_2_32_keeps_what_was_used(void **state)
{
    static const enum limit_algorithm algorithms[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_CALENDAR };
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        struct question q;
        question_empty(state);
        question_of(&q, algorithms[i], 1000);
        assert_true(fits(&q, 900));
        change(&q, MOST, 0);
        assert_false(fits(&q, MOST - 899));
        assert_true(fits(&q, TWO_32 - 900));
        /* Lowered: overdrawn, for a cost of 0, too. */
        change(&q, 1000, 0);
        assert_false(fits(&q, 1));
        assert_false(fits(&q, 0));
        assert_int_equal(remaining(&q), 0);
        change(&q, TWO_32 - 1, 0);
        assert_false(fits(&q, 0));
        change(&q, TWO_32, 0);
        assert_true(fits(&q, 0));
        assert_false(fits(&q, 1));
        change(&q, 2 * TWO_32, 0);
        assert_int_equal(remaining(&q), TWO_32);
        assert_false(fits(&q, TWO_32 + 1));
        assert_true(fits(&q, TWO_32));
    }
}

/* A bucket that is overdrawn is refilled by its new numbers. */
static void a_lowered_bucket_comes_back_in_time(void **state)
{
    struct question q;
    (void)state;
    question_of(&q, LIMIT_TOKEN_BUCKET, 2 * TWO_32);
    assert_true(fits(&q, 2 * TWO_32));
    change(&q, TWO_31, 0);
    q.call.now_us = NOON_US + 3 * 60 * S - 1;
    assert_false(fits(&q, 0));
    q.call.now_us++;
    assert_true(fits(&q, 0));
    assert_false(fits(&q, 1));
    q.call.now_us += 60 * S;
    assert_true(fits(&q, TWO_31));
}

/* ---- a cost for each cell ---- */

static void each_cell_has_its_own_cost(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    struct store_cell *requests = add(&q, 0, LIMIT_FIXED_WINDOW, 10, 60 * S);
    struct store_cell *tokens = add(&q, 0, LIMIT_TOKEN_BUCKET, 5 * TWO_32, 60 * S);
    struct store_cell *bytes = add(&q, 1, LIMIT_FIXED_WINDOW, MOST, 60 * S);
    tokens->cost = 2 * TWO_32;
    bytes->cost = MOST / 3;
    assert_true(allowed(&q) && allowed(&q));
    assert_false(allowed(&q));
    assert_true(requests->fits && !tokens->fits && bytes->fits);
    assert_int_equal(count_of(requests), 2);
    assert_int_equal(count_of(bytes), MOST / 3 * 2);
    tokens->cost = TWO_32;
    assert_true(allowed(&q));
    assert_int_equal(limit_report(tokens->limit, NULL, tokens->state, NOON_US, 0).remaining, 0);
    /* Each gets back its own. */
    refund(&q, 3);
    assert_true(stored_count(FIRST, "one") == 2 && stored_count(SECOND, "one") == (double)(MOST / 3 * 2));
    tokens->cost = 2;
    bytes->cost = 0;
    refund(&q, 2);
    assert_true(stored_count(FIRST, "one") == 1 && stored_count(SECOND, "one") == (double)(MOST / 3 * 2));
    tokens->cost = TWO_32 + 3;
    assert_false(allowed(&q));
    tokens->cost = TWO_32 + 2;
    assert_true(allowed(&q));
}

/* Limits of one rule in some order, of which some cost nothing: these are not written, and do not keep the key. */
static void a_cost_of_0_writes_nothing(void **state)
{
    static const char *const fields[] = { "one", "two", "three" };
    for (unsigned costs = 0; costs < 8; costs++)
        for (unsigned count = 1; count <= 3; count++) {
            struct question q;
            int64_t longest_ms = 0;
            double numbers[3];
            question_empty(state);
            question_init(&q, NOON_US);
            q.expires = true;
            for (unsigned i = 0; i < count; i++) {
                int64_t per_us = (i + 1) * HOUR_US;
                add(&q, 0, i == 1 ? LIMIT_SLIDING_WINDOW : LIMIT_FIXED_WINDOW, 10, per_us)->cost = costs >> i & 1;
                if (costs >> i & 1)
                    longest_ms = per_us * (i == 1 ? 2 : 1) / US_PER_MS;
            }
            assert_true(allowed(&q));
            for (unsigned i = 0; i < count; i++) {
                assert_int_equal(stored(FIRST, fields[i], numbers), costs >> i & 1 ? 3 : 0);
                assert_int_equal(count_of(&q.cells[0][i]), costs >> i & 1);
            }
            int64_t ttl_ms = INTEGER("PTTL", FIRST);
            longest_ms = count > 2 && costs >> 1 & 1 ? 4 * HOUR_US / US_PER_MS : longest_ms;
            assert_true(longest_ms == 0 ? ttl_ms < 0 : ttl_ms >= longest_ms && ttl_ms < longest_ms + 2000);
        }
}

static void a_cost_of_0_leaves_the_expiry_alone(void **state)
{
    struct question q;
    (void)state;
    question_of(&q, LIMIT_FIXED_WINDOW, 10);
    assert_true(fits(&q, 1));
    assert_int_equal(INTEGER("PTTL", FIRST), -1); /* questions take it away */
    q.expires = true;
    assert_true(fits(&q, 0));
    assert_int_equal(INTEGER("PTTL", FIRST), -1);
    assert_true(fits(&q, 1));
    assert_true(INTEGER("PTTL", FIRST) > 0);
}

/* Debt is charged, also to a limit that the request costs nothing. */
static void debt_of_a_cost_of_0_counts(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, S);
    add(&q, 0, LIMIT_FIXED_WINDOW, MOST, S)->debt = TWO_32;
    q.cells[0][1].cost = 0;
    assert_true(allowed(&q));
    assert_true(stored_count(FIRST, "one") == 1 && stored_count(FIRST, "two") == (double)TWO_32);
    assert_int_equal(count_of(&q.cells[0][1]), TWO_32);
}

/* ---- costs of 0 ---- */

static void a_cost_of_0_passes_while_no_more_than_max_is_used(void **state)
{
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm <= LIMIT_CALENDAR; algorithm++) {
        struct question q;
        question_empty(state);
        question_of(&q, (enum limit_algorithm)algorithm, 10);
        assert_true(fits(&q, 0));
        assert_true(fits(&q, 10));
        assert_true(fits(&q, 0));
        change(&q, 9, 0);
        assert_false(fits(&q, 0));
        q.call.charge = false;
        assert_false(fits(&q, 0));
        change(&q, 0, 0);
        assert_false(fits(&q, 0));
        change(&q, 10, 0);
        assert_true(fits(&q, 0));
    }
}

/* A limit of which the request costs nothing refuses it while overdrawn, and nothing is charged. */
static void an_overdrawn_limit_refuses_for_all(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, S);
    add(&q, 1, LIMIT_FIXED_WINDOW, 10, S);
    assert_true(fits(&q, 5));
    change(&q, 4, 0);
    q.cells[0][0].cost = 0;
    q.cells[1][0].cost = 1;
    assert_false(allowed(&q));
    assert_true(!q.rules[0].fits && q.rules[1].fits);
    assert_true(stored_count(SECOND, "one") == 5);
}

/* Else it would be refused for as long as the clock was wrong. */
static void a_cost_of_0_puts_a_wrong_clock_right(void **state)
{
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm <= LIMIT_SLIDING_WINDOW; algorithm++) {
        struct question q;
        question_empty(state);
        question_of(&q, (enum limit_algorithm)algorithm, 10);
        q.call.now_us = NOON_US + 30 * DAY_US;
        assert_true(fits(&q, 10));
        change(&q, 9, 0);
        q.call.now_us = NOON_US;
        assert_false(fits(&q, 0));
        q.call.now_us = NOON_US + 3 * 60 * S;
        assert_true(fits(&q, 0));
    }
}

/* ---- debts, slices ---- */

static void debts_stop_at_the_largest_amount(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, 60 * S)->debt = TWO_32;
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, 60 * S)->debt = TWO_32;
    add(&q, 0, LIMIT_SLIDING_WINDOW, 10, 60 * S)->debt = TWO_32;
    assert_false(allowed(&q));
    assert_int_equal(count_of(&q.cells[0][0]), TWO_32);
    assert_int_equal(q.cells[0][1].state.data, LIMIT_COARSE + TWO_32 * LIMIT_TOKEN_COARSE);
    assert_int_equal(count_of(&q.cells[0][2]), UINT32_MAX);
    q.cells[0][0].debt = q.cells[0][1].debt = q.cells[0][2].debt = MOST;
    assert_false(allowed(&q));
    assert_int_equal(count_of(&q.cells[0][0]), MOST);
    assert_int_equal(q.cells[0][1].state.data, LIMIT_COARSE + MOST * LIMIT_TOKEN_COARSE);
    assert_int_equal(count_of(&q.cells[0][2]), UINT32_MAX);
}

static void slices_of_large_limits_are_exact(void **state)
{
    struct slice_ask ask;
    (void)state;
    ask_init(&ask, MOST, 1, UINT32_MAX);
    struct lent lent = lend(&ask, 1, NOON_US);
    assert_true(lent.tokens == UINT32_MAX && lent.room == MOST - UINT32_MAX);
    /* What the host has of it already and what it is lent are no more than a cell holds. */
    ask.need = UINT32_MAX;
    lent = lend_with(&ask, 10, 0, 1, NOON_US);
    assert_true(lent.tokens == 10 && lent.room == MOST - UINT32_MAX - 10);
    /* Debt, and the very last tokens. */
    lent = lend_with(&ask, 1, MOST - UINT32_MAX - 10 - 3, UINT32_MAX, NOON_US);
    assert_true(lent.tokens == 1 && lent.room == 2);
    assert_true(stored_count(FIRST, "one") == (double)(MOST - 2));
    ask.need = 2;
    assert_int_equal(lend(&ask, 1, NOON_US).tokens, 2);
    assert_int_equal(lend(&ask, 1, NOON_US).tokens, 0);
    assert_int_equal(give_back(&ask, NOON_US + 60 * S, UINT32_MAX), UINT32_MAX);
    assert_true(stored_count(FIRST, "one") == (double)(MOST - UINT32_MAX));
    lent = lend_with(&ask, 2, MOST, 1, NOON_US);
    assert_true(lent.tokens == 0 && lent.room == 0);
    assert_true(stored_count(FIRST, "one") == (double)MOST);
}

#define TEST(name) cmocka_unit_test_setup(name, question_empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(amounts_are_exact_up_to_the_largest),
        TEST(what_comes_back_is_exact),
        TEST(a_wait_ends_when_it_says),
        TEST(a_state_is_long_from_2_32_tokens_on),
        TEST(a_refund_of_a_long_state_carries),
        TEST(a_short_state_of_2_32_tokens_counts),
        TEST(damaged_states_are_told),
        TEST(a_window_longer_than_any_is_read),
        TEST(answers_with_long_states_are_checked),
        TEST(a_max_across_2_32_keeps_what_was_used),
        TEST(a_lowered_bucket_comes_back_in_time),
        TEST(each_cell_has_its_own_cost),
        TEST(a_cost_of_0_writes_nothing),
        TEST(a_cost_of_0_leaves_the_expiry_alone),
        TEST(debt_of_a_cost_of_0_counts),
        TEST(a_cost_of_0_passes_while_no_more_than_max_is_used),
        TEST(an_overdrawn_limit_refuses_for_all),
        TEST(a_cost_of_0_puts_a_wrong_clock_right),
        TEST(debts_stop_at_the_largest_amount),
        TEST(slices_of_large_limits_are_exact),
    };
    return cmocka_run_group_tests(tests, question_set_up, question_tear_down);
}
