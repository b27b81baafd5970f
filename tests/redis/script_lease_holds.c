/* Holds that slices have paid for, in the scripts of the store. Their messages are lost and overtake each other. Time is
 * passed in; each test begins with an empty store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "../limit/random.h"
#include "question.h"

#define HOLDS FIRST ":h"
#define OFF_US (10 * S)

/* ---- asking ---- */

/* The fields of a receipt that describe a hold. */
struct slice_hold {
    uint32_t id;
    uint64_t mark, amount;
    int64_t taken_us, ends_us;
    int64_t origin_us; /* end of the window, as the host knows it */
};

/* A slice of just this much is lent out of a window of an hour, and spent. Returns false if there is too little. */
static bool reserve(struct slice_hold *ret, uint64_t max, uint32_t amount, int64_t ttl_us, int64_t now_us)
{
    static uint32_t id;
    struct slice_ask ask;
    ask_init(&ask, max, amount, 1);
    ask.limit.per_us = HOUR_US;
    struct lent lent = lend(&ask, 1000, now_us);
    id++;
    *ret = (struct slice_hold){ .id = id, .mark = UINT64_C(0x1234567800000000) + id, .amount = amount };
    ret->taken_us = now_us;
    ret->ends_us = now_us + ttl_us;
    ret->origin_us = lent.end_us - 20 * US_PER_MS; /* as long as the ask was on its way */
    return lent.tokens == amount;
}

/* Does a later one with it; returns how many cells have changed. */
static int64_t tell(const struct slice_hold *h, struct store_call call, uint64_t to, int64_t ttl_us, int64_t now_us)
{
    struct limit limit;
    limit_init(&limit, LIMIT_FIXED_WINDOW, 10, 0, HOUR_US);
    struct store_cell cell = { .limit = &limit,
                               .field = weir_str("one"),
                               .cost = h->amount,
                               .to = to,
                               .off_us = OFF_US,
                               .hold = { .ttl_us = ttl_us, .nth = 3 },
                               .state = limit_origin_state(&limit, (uint64_t)h->origin_us) };
    struct store_rule rule = { .key = weir_str("{u1}:first:key"), .cells = &cell, .cell_count = 1 };
    call.rules = &rule;
    call.rule_count = 1;
    call.settle = true;
    call.hold_id = h->id;
    call.mark = h->mark;
    call.server_us = h->taken_us;
    call.ends_us = h->ends_us;
    call.now_us = now_us;
    script_write_settle(&talk.out, SV("weir"), &call);
    return read_integer();
}

static void enter(const struct slice_hold *h, int64_t now_us)
{
    assert_int_equal(tell(h, (struct store_call){ .enter = true }, 0, 1, now_us), 0);
}

static int64_t settle(const struct slice_hold *h, uint64_t to, int64_t now_us)
{
    return tell(h, (struct store_call){ 0 }, to, 1, now_us);
}

static int64_t renew(const struct slice_hold *h, int64_t ttl_us, int64_t now_us)
{
    return tell(h, (struct store_call){ .renew = true }, 0, ttl_us, now_us);
}

/* Takes so much of a max of 10 for good. */
static bool lends(uint32_t amount, int64_t now_us)
{
    struct slice_hold h;
    return reserve(&h, 10, amount, S, now_us);
}

static double used(void)
{
    return stored_count(FIRST, "one");
}

static int64_t held(void)
{
    return INTEGER("ZCOUNT", HOLDS, "1", "+inf");
}

static void forget_subject(void)
{
    struct weir_str key = weir_str("{u1}:first:key");
    script_write_forget(&talk.out, SV("weir"), &key, 1);
    assert_int_equal(read_integer(), 1);
}

/* ---- the end of a hold ---- */

static void who_wants_a_slice_gives_back_what_is_over(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 10, 60 * S, NOON_US));
    enter(&h, NOON_US);
    assert_true(used() == 10); /* it was charged when the slice was lent */
    assert_int_equal(held(), 1);
    assert_false(lends(1, NOON_US + 60 * S - 1));
    assert_true(lends(10, NOON_US + 60 * S));
    assert_true(used() == 10);
    assert_int_equal(held(), 0);
    assert_false(lends(1, NOON_US + 120 * S));
}

/* The rule counts exactly from now on. */
static void who_decides_gives_back_what_is_over(void **state)
{
    struct slice_hold h;
    struct question q;
    (void)state;
    assert_true(reserve(&h, 10, 10, 60 * S, NOON_US));
    enter(&h, NOON_US);
    question_init(&q, NOON_US + 60 * S - 1);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    assert_false(allowed(&q));
    q.call.now_us++;
    assert_true(allowed(&q));
    assert_true(used() == 1);
}

/* Its time to live counts from when the store learns of it: never less, whatever the host's clock was. */
static void entered_late(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 10, S, NOON_US));
    assert_false(lends(1, NOON_US + 2 * S));
    enter(&h, NOON_US + 2 * S);
    assert_false(lends(1, NOON_US + 3 * S - 1));
    assert_true(lends(10, NOON_US + 3 * S));
}

static void a_clock_that_stepped(void **state)
{
    struct slice_hold h[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(reserve(&h[i], 10, 5, 60 * S, NOON_US));
        int64_t wrong_us = i ? HOUR_US : -HOUR_US;
        h[i].taken_us += wrong_us;
        h[i].ends_us += wrong_us;
        enter(&h[i], NOON_US);
    }
    assert_false(lends(1, NOON_US + 60 * S - 1));
    assert_true(lends(10, NOON_US + 60 * S));
}

static void one_that_was_not_entered_stays_charged(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 10, S, NOON_US));
    assert_false(lends(1, NOON_US + HOUR_US - 1));
    /* It can be settled after its end, too, once. */
    assert_int_equal(settle(&h, 4, NOON_US + 60 * S), 1);
    assert_int_equal(settle(&h, 0, NOON_US + 61 * S), 0);
    assert_true(used() == 4);
    enter(&h, NOON_US + 62 * S);
    assert_false(lends(7, NOON_US + 63 * S));
    assert_true(lends(6, NOON_US + 63 * S));
}

static void entering_twice_is_once(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 8, S, NOON_US));
    enter(&h, NOON_US);
    enter(&h, NOON_US);
    assert_true(lends(10, NOON_US + S));
    enter(&h, NOON_US + S); /* it was given back */
    assert_false(lends(1, NOON_US + 2 * S));
    assert_true(used() == 10);
}

/* ---- settling ---- */

static void settling_is_once(void **state)
{
    struct slice_hold less, more;
    (void)state;
    assert_true(reserve(&less, 10, 6, 60 * S, NOON_US));
    assert_true(reserve(&more, 10, 4, 60 * S, NOON_US));
    enter(&less, NOON_US + 1);
    enter(&more, NOON_US + 1);
    assert_int_equal(settle(&less, 1, NOON_US + S), 1);
    assert_true(used() == 5);
    assert_int_equal(settle(&more, 40, NOON_US + S), 1);
    assert_true(used() == 41);
    assert_int_equal(held(), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(settle(&less, 3, NOON_US + 2 * S + i * 600 * S), 0);
        assert_int_equal(settle(&more, 0, NOON_US + 2 * S + i * 600 * S), 0);
        assert_int_equal(renew(&more, 60 * S, NOON_US + 2 * S + i * 600 * S), 0);
        enter(&less, NOON_US + 2 * S + i * 600 * S);
    }
    assert_int_equal(held(), 0);
    assert_true(used() == 41);
}

/* As held: nothing changes but that it does not end any more. */
static void settling_as_held_keeps_it(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 6, S, NOON_US));
    assert_int_equal(settle(&h, 6, NOON_US + 1), 1);
    enter(&h, NOON_US + 2);
    assert_true(lends(4, NOON_US + 2 * S));
    assert_false(lends(1, NOON_US + 3 * S));
    assert_int_equal(settle(&h, 0, NOON_US + 3 * S), 0);
    assert_true(used() == 10);
}

static void a_settlement_overtakes_the_entry(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 10, 60 * S, NOON_US));
    assert_int_equal(settle(&h, 3, NOON_US + S), 1);
    assert_true(used() == 3);
    enter(&h, NOON_US + S);
    assert_int_equal(held(), 0);
    assert_true(lends(7, NOON_US + 61 * S));
    assert_false(lends(1, NOON_US + 62 * S));
}

static void the_true_amount_is_charged_late(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 10, 60 * S, NOON_US));
    enter(&h, NOON_US);
    assert_true(lends(2, NOON_US + 61 * S));
    assert_int_equal(settle(&h, 9, NOON_US + 62 * S), 1);
    assert_true(used() == 11);
    assert_int_equal(settle(&h, 0, NOON_US + 63 * S), 0);
    assert_true(used() == 11);
}

static void a_window_that_is_over_takes_nothing(void **state)
{
    struct slice_hold h, later;
    (void)state;
    assert_true(reserve(&h, 10, 10, 7200 * S, NOON_US));
    enter(&h, NOON_US);
    assert_true(reserve(&later, 10, 7, 60 * S, NOON_US + HOUR_US));
    settle(&h, 1, NOON_US + HOUR_US + S);
    h.mark++;
    assert_int_equal(settle(&h, 1, NOON_US + HOUR_US + OFF_US), 0);
    assert_int_equal(renew(&h, S, NOON_US + HOUR_US + OFF_US), 0);
    enter(&h, NOON_US + HOUR_US + OFF_US);
    assert_int_equal(held(), 0);
    assert_true(used() == 7);
    enter(&later, NOON_US + HOUR_US);
    assert_false(lends(4, NOON_US + HOUR_US + 30 * S));
    assert_true(lends(10, NOON_US + HOUR_US + 60 * S));
}

/* For as long as a receipt is good, a hold that was given back is not forgotten, or it would be given back again. */
static void given_back_once_in_two_days(void **state)
{
    struct slice_hold h, other;
    struct slice_ask ask;
    (void)state;
    ask_init(&ask, 16, 8, 1);
    ask.limit.per_us = 30 * DAY_US;
    int64_t end_us = lend(&ask, 1, NOON_US).end_us;
    assert_int_equal(lend(&ask, 1, NOON_US).tokens, 8);
    h = (struct slice_hold){ 77, 77, 8, NOON_US, NOON_US + DAY_US, end_us };
    other = (struct slice_hold){ 78, 78, 8, NOON_US, NOON_US + DAY_US, end_us };
    /* It is renewed for a shorter time, and given back soon. */
    assert_int_equal(renew(&h, S, NOON_US + S), 1);
    assert_int_equal(lend(&ask, 1, NOON_US + 2 * S).tokens, 8);
    assert_true(used() == 16);
    /* Others that are over are given back later. */
    enter(&other, NOON_US + S);
    assert_int_equal(lend(&ask, 1, NOON_US + 2 * DAY_US - S).tokens, 8);
    assert_int_equal(settle(&h, 0, NOON_US + 2 * DAY_US - 1), 1);
    assert_true(used() == 16);
}

/* After that nobody knows whether it was settled. */
static void a_receipt_that_is_too_old(void **state)
{
    struct slice_hold h;
    struct slice_ask ask;
    (void)state;
    ask_init(&ask, 10, 10, 1);
    ask.limit.per_us = 30 * DAY_US;
    h = (struct slice_hold){ 77, 77, 10, NOON_US, NOON_US + S, lend(&ask, 1, NOON_US).end_us };
    assert_int_equal(settle(&h, 0, NOON_US + S + DAY_US), 0);
    enter(&h, NOON_US + S + DAY_US);
    assert_int_equal(held(), 0);
    assert_true(used() == 10);
    assert_int_equal(settle(&h, 3, NOON_US + S + DAY_US - 1), 1);
    assert_true(used() == 3);
    /* Nothing is held for longer than a day, whatever a receipt says. */
    h = (struct slice_hold){ 78, 78, 3, NOON_US, NOON_US + 9 * DAY_US, h.origin_us };
    assert_int_equal(settle(&h, 0, NOON_US + 2 * DAY_US), 0);
    assert_true(used() == 3);
}

/* ---- renewing ---- */

static void renewing_extends(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 10, 60 * S, NOON_US));
    enter(&h, NOON_US);
    assert_int_equal(renew(&h, 60 * S, NOON_US + 59 * S), 1);
    assert_false(lends(1, NOON_US + 119 * S - 1));
    assert_int_equal(renew(&h, S, NOON_US + 60 * S), 1); /* in place of what is left */
    assert_true(lends(1, NOON_US + 61 * S));
    assert_int_equal(renew(&h, 60 * S, NOON_US + 61 * S), 0);
}

static void a_renewal_overtakes_the_entry(void **state)
{
    struct slice_hold h, lost;
    (void)state;
    assert_true(reserve(&h, 10, 5, 60 * S, NOON_US));
    assert_true(reserve(&lost, 10, 5, 60 * S, NOON_US));
    assert_int_equal(renew(&h, 100 * S, NOON_US + S), 1);
    enter(&h, NOON_US + 2 * S);
    assert_false(lends(1, NOON_US + 101 * S - 1));
    assert_true(lends(5, NOON_US + 101 * S));
    /* The other one was never entered, and is over. */
    assert_int_equal(renew(&lost, 60 * S, NOON_US + 102 * S), 0);
    assert_int_equal(held(), 0);
    assert_false(lends(1, NOON_US + 200 * S));
}

/* ---- subjects that are forgotten, and debts ---- */

static void a_subject_that_is_forgotten_holds_nothing(void **state)
{
    struct slice_hold entered, lost;
    (void)state;
    assert_true(reserve(&entered, 10, 5, 60 * S, NOON_US));
    assert_true(reserve(&lost, 10, 5, 60 * S, NOON_US));
    enter(&entered, NOON_US);
    entered.taken_us = lost.taken_us = clock_now_us() - 1; /* the server's clock says when it was forgotten */
    forget_subject();
    assert_true(lends(6, NOON_US + 1));
    enter(&entered, NOON_US + 2);
    enter(&lost, NOON_US + 2);
    assert_int_equal(renew(&lost, 60 * S, NOON_US + 2), 0);
    assert_int_equal(settle(&entered, 0, NOON_US + 2), 0);
    assert_int_equal(settle(&lost, 0, NOON_US + 2), 0);
    assert_int_equal(held(), 0);
    assert_true(used() == 6);
}

/* An overdrawn slice: 4 of 30 were lent, and the rest is a debt. */
static void debts_are_paid_before_and_after(void **state)
{
    (void)state;
    for (int paid_first = 0; paid_first <= 1; paid_first++) {
        struct slice_hold other, h;
        struct slice_ask ask;
        assert_int_equal(question_empty(NULL), 0);
        assert_true(reserve(&other, 100, 60, 600 * S, NOON_US));
        assert_true(reserve(&h, 100, 4, 60 * S, NOON_US));
        h.amount = 30;
        ask_init(&ask, 100, 1, 1);
        ask.limit.per_us = HOUR_US;
        if (paid_first)
            assert_int_equal(lend_with(&ask, 100, 26, 1000, NOON_US + S).tokens, 0);
        enter(&h, NOON_US + S);
        assert_int_equal(lend_with(&ask, 100, 0, 1000, NOON_US + 61 * S).tokens, 0); /* gives it back */
        assert_true(used() == (paid_first ? 60 : 34));
        if (!paid_first)
            assert_int_equal(lend_with(&ask, 100, 26, 1000, NOON_US + 61 * S).tokens, 0);
        assert_true(used() == 60);
        assert_int_equal(settle(&h, 0, NOON_US + 62 * S), 1);
        assert_int_equal(settle(&other, 0, NOON_US + 62 * S), 1);
        assert_true(used() == 0);
    }
}

static void a_count_is_never_below_zero(void **state)
{
    struct slice_hold h;
    (void)state;
    assert_true(reserve(&h, 10, 4, 60 * S, NOON_US));
    h.amount = 30;
    assert_int_equal(settle(&h, 2, NOON_US + S), 1);
    assert_true(used() == 2);
}

/* ---- keys ---- */

static void holds_stay_as_long_as_their_window(void **state)
{
    struct slice_hold h;
    (void)state;
    int64_t now_us = clock_now_us();
    assert_true(reserve(&h, 10, 4, S, now_us));
    enter(&h, now_us);
    assert_true(INTEGER("PTTL", HOLDS) > 3595 * 1000);
    assert_true(INTEGER("PTTL", HOLDS) <= 3612 * 1000);
    assert_int_equal(INTEGER("DEL", HOLDS), 1);
    assert_int_equal(settle(&h, 4, now_us), 1);
    assert_true(INTEGER("PTTL", HOLDS) > 3595 * 1000);
    assert_true(INTEGER("PTTL", HOLDS) <= 3612 * 1000);
}

/* ---- all orders ---- */

/* Random orders of everything. What is counted has to be what was settled, and what is held or was never entered. */

enum { RUNS = 60, STEPS = 150, HELD_MAX = 40, MAX = 100 };

struct known {
    struct slice_hold hold;
    bool entered, given_back, settled;
    int64_t time_us; /* when it ends, if it is entered */
    uint64_t to;
};

struct run {
    uint64_t seed;
    struct random rnd;
    int64_t now_us;
    struct known known[HELD_MAX];
    size_t count;
};

#define EXPECT(r, what)                                                                             \
    do {                                                                                            \
        if (!(what))                                                                                \
            fail_msg("seed %llu, line %d: not %s", (unsigned long long)(r)->seed, __LINE__, #what); \
    } while (0)

static uint64_t sum(const struct run *r)
{
    uint64_t sum = 1; /* for good, so that the window is always the same */
    for (size_t i = 0; i < r->count; i++) {
        const struct known *k = &r->known[i];
        sum += k->settled ? k->to : k->given_back ? 0 : k->hold.amount;
    }
    return sum;
}

static void fold_known(struct run *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct known *k = &r->known[i];
        k->given_back = k->given_back || (k->entered && !k->settled && k->time_us <= r->now_us);
    }
}

static void reserve_some(struct run *r)
{
    struct known *k = &r->known[r->count];
    uint32_t amount = (uint32_t)random_in(&r->rnd, 1, MAX / 4);
    uint64_t before = sum(r);
    *k = (struct known){ 0 };
    bool lent = reserve(&k->hold, MAX, amount, random_in(&r->rnd, 1, 30) * S, r->now_us);
    k->hold.origin_us -= random_in(&r->rnd, 0, 3 * S);
    if (before + amount > MAX)
        fold_known(r);
    EXPECT(r, lent == (sum(r) + amount <= MAX));
    r->count += lent;
}

/* Whoever comes first enters it, unless it was settled. */
static void enter_known(const struct run *r, struct known *k)
{
    if (k->settled || k->entered)
        return;
    k->time_us = r->now_us + k->hold.ends_us - k->hold.taken_us;
    k->entered = true;
}

static void tell_some(struct run *r)
{
    struct known *k = &r->known[random_in(&r->rnd, 0, (int64_t)r->count - 1)];
    int64_t ttl_us = random_in(&r->rnd, 1, 30) * S;
    uint64_t to = random_one_in(&r->rnd, 2) ? 0 : (uint64_t)random_in(&r->rnd, 0, MAX / 3);
    switch (random_in(&r->rnd, 0, 2)) {
    case 0:
        enter(&k->hold, r->now_us);
        enter_known(r, k);
        return;
    case 1:
        if (k->hold.ends_us > r->now_us)
            enter_known(r, k);
        bool renewed = k->entered && !k->settled && !k->given_back && k->time_us > r->now_us;
        EXPECT(r, renew(&k->hold, ttl_us, r->now_us) == renewed);
        k->time_us = renewed ? r->now_us + ttl_us : k->time_us;
        return;
    default:
        EXPECT(r, settle(&k->hold, to, r->now_us) == !k->settled);
        k->to = k->settled ? k->to : to;
        k->settled = true;
    }
}

static void any_order(void **state)
{
    (void)state;
    for (uint64_t seed = random_seed(); seed < random_seed() + RUNS; seed++) {
        static struct run r;
        r = (struct run){ .seed = seed, .rnd.state = seed, .now_us = NOON_US };
        assert_int_equal(question_empty(NULL), 0);
        struct slice_hold first;
        assert_true(reserve(&first, MAX, 1, S, NOON_US));
        for (int i = 0; i < STEPS; i++) {
            r.now_us += random_one_in(&r.rnd, 3) ? random_in(&r.rnd, 0, 8 * S) : 0;
            if (r.count < HELD_MAX && (r.count == 0 || random_one_in(&r.rnd, 4)))
                reserve_some(&r);
            else
                tell_some(&r);
            EXPECT(&r, used() == (double)sum(&r));
        }
    }
}

#define TEST(name) cmocka_unit_test_setup(name, question_empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_wants_a_slice_gives_back_what_is_over),
        TEST(who_decides_gives_back_what_is_over),
        TEST(entered_late),
        TEST(a_clock_that_stepped),
        TEST(one_that_was_not_entered_stays_charged),
        TEST(entering_twice_is_once),
        TEST(settling_is_once),
        TEST(settling_as_held_keeps_it),
        TEST(a_settlement_overtakes_the_entry),
        TEST(the_true_amount_is_charged_late),
        TEST(a_window_that_is_over_takes_nothing),
        TEST(given_back_once_in_two_days),
        TEST(a_receipt_that_is_too_old),
        TEST(renewing_extends),
        TEST(a_renewal_overtakes_the_entry),
        TEST(a_subject_that_is_forgotten_holds_nothing),
        TEST(debts_are_paid_before_and_after),
        TEST(a_count_is_never_below_zero),
        TEST(holds_stay_as_long_as_their_window),
        TEST(any_order),
    };
    return cmocka_run_group_tests(tests, question_set_up, question_tear_down);
}
