/* Holds and slots in the scripts of the store, the cases that have a name. Time is passed in; each test begins with an
 * empty store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "question.h"

#define HOLDS FIRST ":h"

/* ---- asking ---- */

/* Every charge of the question is a hold from now on. */
static void hold_all(struct question *q, uint32_t id, int64_t ttl_us, bool keep)
{
    uint16_t nth = 0;
    q->call.hold_id = id;
    for (size_t i = 0; i < q->call.rule_count; i++)
        for (size_t j = 0; j < q->rules[i].cell_count; j++) {
            struct store_cell *cell = &q->cells[i][j];
            cell->hold = (struct store_hold){ cell->cost > 0 ? ttl_us : 0, cell->cost, keep, nth++ };
        }
}

static void hold_none(struct question *q)
{
    q->call.hold_id = 0;
    for (size_t i = 0; i < RULES * CELLS; i++)
        q->cells[i / CELLS][i % CELLS].hold = (struct store_hold){ 0 };
}

/* A window of an hour in FIRST, with a hold of it. */
static void hold_in_window(struct question *q, uint64_t max, uint64_t cost, uint32_t id, int64_t ttl_us, bool keep)
{
    question_init(q, NOON_US);
    add(q, 0, LIMIT_FIXED_WINDOW, max, HOUR_US)->cost = cost;
    hold_all(q, id, ttl_us, keep);
    assert_true(allowed(q));
}

/* Settles what the question has charged, at a time; returns how many cells have changed. */
static int64_t settle(const struct question *q, uint64_t to, int64_t now_us)
{
    struct question s = *q;
    s.call.rules = s.rules;
    for (size_t i = 0; i < s.call.rule_count; i++) {
        s.rules[i].cells = s.cells[i];
        for (size_t j = 0; j < s.rules[i].cell_count; j++) {
            s.cells[i][j].to = to;
            s.cells[i][j].limit = &s.limits[i][j];
        }
    }
    s.call.now_us = now_us;
    script_write_settle(&talk.out, SV("weir"), &s.call);
    return read_integer();
}

static int64_t renew(const struct question *q, int64_t ttl_us, int64_t now_us)
{
    struct question s = *q;
    s.call.renew = true;
    for (size_t i = 0; i < RULES * CELLS; i++)
        s.cells[i / CELLS][i % CELLS].hold.ttl_us = ttl_us;
    return settle(&s, 0, now_us);
}

static bool passes(uint64_t max, uint64_t cost, int64_t now_us)
{
    struct question q;
    question_init(&q, now_us);
    add(&q, 0, LIMIT_FIXED_WINDOW, max, HOUR_US)->cost = cost;
    return allowed(&q);
}

static int64_t held(void)
{
    return INTEGER("ZCOUNT", HOLDS, "1", "+inf");
}

/* ---- the end of a hold ---- */

static void who_finds_no_room_gives_back_what_is_over(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    assert_int_equal(held(), 1);
    assert_false(passes(10, 1, NOON_US + 60 * S - 1));
    assert_int_equal(held(), 1);
    assert_true(passes(10, 10, NOON_US + 60 * S));
    assert_int_equal(held(), 0);
    assert_true(stored_count(FIRST, "one") == 10);
}

static void who_fits_leaves_it_alone(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 5, 1, 60 * S, false);
    assert_true(passes(10, 5, NOON_US + 61 * S));
    assert_int_equal(held(), 1);
    assert_true(stored_count(FIRST, "one") == 10);
}

static void a_look_sees_what_is_free(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    hold_none(&q);
    q.call.charge = false;
    set_costs(&q, 10);
    assert_false(allowed(&q));
    q.call.now_us += 60 * S;
    assert_true(allowed(&q));
    assert_int_equal(count_of(&q.cells[0][0]), 0);
}

static void a_kept_hold_stays_charged(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, true);
    assert_false(passes(10, 1, NOON_US + 61 * S));
    assert_true(stored_count(FIRST, "one") == 10);
    /* Its true amount may come later, once. */
    assert_int_equal(settle(&q, 4, NOON_US + 62 * S), 1);
    assert_true(stored_count(FIRST, "one") == 4);
    assert_int_equal(settle(&q, 0, NOON_US + 63 * S), 0);
    assert_true(stored_count(FIRST, "one") == 4);
}

static void many_are_given_back_at_once(void **state)
{
    struct question q;
    (void)state;
    for (uint32_t i = 1; i <= 1200; i++)
        hold_in_window(&q, 1200, 1, i, 60 * S, false);
    assert_false(passes(1200, 1, NOON_US + 1));
    assert_true(passes(1200, 1200, NOON_US + 60 * S));
    assert_true(stored_count(FIRST, "one") == 1200);
}

static void every_algorithm_gives_back(void **state)
{
    (void)state;
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm <= LIMIT_CALENDAR; algorithm++) {
        struct question q;
        assert_int_equal(question_empty(NULL), 0);
        question_init(&q, NOON_US);
        if (algorithm == LIMIT_CALENDAR)
            add_calendar(&q, 0, 10, DAY_US, NOON_US);
        else
            add(&q, 0, (enum limit_algorithm)algorithm, 10, DAY_US);
        set_costs(&q, 10);
        hold_all(&q, 7, S, false);
        assert_true(allowed(&q));
        hold_none(&q);
        q.call.now_us += S - 1;
        assert_false(allowed(&q));
        q.call.now_us += 1;
        set_costs(&q, 9); /* a part of a token may be left in a bucket */
        assert_true(allowed(&q));
    }
}

/* ---- settling ---- */

static void settling_gives_back_or_charges_once(void **state)
{
    struct question less, more;
    (void)state;
    hold_in_window(&less, 10, 6, 1, 60 * S, false);
    hold_in_window(&more, 10, 4, 2, 60 * S, false);
    assert_int_equal(settle(&less, 1, NOON_US + S), 1);
    assert_true(stored_count(FIRST, "one") == 5);
    assert_int_equal(settle(&more, 40, NOON_US + S), 1);
    assert_true(stored_count(FIRST, "one") == 41);
    assert_int_equal(held(), 0);
    /* Twice is once, also when the time to live is over. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(settle(&less, 3, NOON_US + 2 * S + i * 600 * S), 0);
        assert_int_equal(settle(&more, 0, NOON_US + 2 * S + i * 600 * S), 0);
    }
    assert_true(stored_count(FIRST, "one") == 41);
    assert_false(passes(10, 1, NOON_US + HOUR_US - 1));
    assert_true(passes(10, 10, NOON_US + HOUR_US));
}

static void the_true_amount_is_charged_late(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    assert_true(passes(10, 2, NOON_US + 61 * S));
    assert_int_equal(settle(&q, 9, NOON_US + 62 * S), 1);
    assert_true(stored_count(FIRST, "one") == 11);
    assert_int_equal(settle(&q, 9, NOON_US + 63 * S), 0);
    assert_true(stored_count(FIRST, "one") == 11);
}

/* Nobody came meanwhile: what it held is still charged. */
static void a_hold_that_nobody_gave_back_is_settled(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    assert_int_equal(settle(&q, 3, NOON_US + 120 * S), 1);
    assert_true(stored_count(FIRST, "one") == 3);
    assert_int_equal(settle(&q, 3, NOON_US + 121 * S), 0);
}

static void a_window_that_is_over_takes_nothing(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    assert_true(passes(10, 2, NOON_US + HOUR_US));
    settle(&q, 9, NOON_US + HOUR_US + S);
    assert_true(stored_count(FIRST, "one") == 2);
}

static void a_bucket_counts_what_has_come_back(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, 10 * S)->cost = 8;
    hold_all(&q, 1, 60 * S, false);
    assert_true(allowed(&q));
    /* After 2 s it is as if 12 had been charged at noon: 10 are left. */
    assert_int_equal(settle(&q, 12, NOON_US + 2 * S), 1);
    hold_none(&q);
    set_costs(&q, 1);
    q.call.now_us = NOON_US + 2 * S;
    q.call.charge = false;
    assert_false(allowed(&q));
    assert_int_equal(q.cells[0][0].state.data, 10 * LIMIT_TOKEN);
}

/* Time that has passed repays one of several, not each. */
static void a_bucket_repays_many_as_one(void **state)
{
    struct question q;
    (void)state;
    for (uint32_t id = 1; id <= 10; id++) {
        question_init(&q, NOON_US);
        add(&q, 0, LIMIT_TOKEN_BUCKET, 10, 10 * S)->cost = 1;
        hold_all(&q, id, 60 * S, false);
        assert_true(allowed(&q));
    }
    for (uint32_t id = 1; id <= 10; id++) {
        q.call.hold_id = id;
        assert_int_equal(settle(&q, 10, NOON_US + 10 * S), 1);
    }
    hold_none(&q);
    q.call.now_us = NOON_US + 10 * S;
    q.call.charge = false;
    assert_false(allowed(&q));
    assert_int_equal(q.cells[0][0].state.data, 90 * LIMIT_TOKEN);
}

/* A reservation did not name its unit. The work may take longer than the bucket takes to fill. */
static void a_bucket_that_was_looked_at_is_charged_while_the_hold_lasts(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, 10 * S)->cost = 0;
    q.call.mark = 11;
    assert_true(allowed(&q));
    q.call.ends_us = q.call.server_us + 60 * S;
    /* As if 100 had been charged at noon: 80 are left. */
    assert_int_equal(settle(&q, 100, NOON_US + 20 * S), 1);
    assert_int_equal(settle(&q, 200, NOON_US + 21 * S), 0);
    assert_int_equal(settle(&q, 200, NOON_US + 69 * S), 0);
    assert_int_equal(settle(&q, 200, NOON_US + 70 * S), 0);
    q.call.now_us = NOON_US + 20 * S;
    q.call.charge = false;
    assert_false(allowed(&q));
    assert_int_equal(q.cells[0][0].state.data, 80 * LIMIT_TOKEN);
}

static void a_charge_is_settled_once_by_its_mark(void **state)
{
    struct question first, second;
    (void)state;
    hold_in_window(&first, 10, 3, 0, 0, false);
    hold_in_window(&second, 10, 3, 0, 0, false);
    first.call.mark = 11;
    second.call.mark = 12;
    assert_int_equal(settle(&first, 1, NOON_US + S), 1);
    assert_int_equal(settle(&first, 1, NOON_US + 2 * S), 0);
    assert_int_equal(settle(&first, 0, NOON_US + HOUR_US - 1), 0);
    assert_true(stored_count(FIRST, "one") == 4);
    assert_int_equal(settle(&second, 3, NOON_US + S), 0); /* leaves no mark */
    assert_int_equal(settle(&second, 5, NOON_US + S), 1);
    assert_true(stored_count(FIRST, "one") == 6);
    /* Marks go with the window, at the latest when another one comes. */
    assert_int_equal(INTEGER("ZCARD", HOLDS), 2);
    assert_true(INTEGER("PTTL", HOLDS) <= (HOUR_US + 2 * S) / US_PER_MS);
    assert_true(INTEGER("PTTL", HOLDS) > 3590 * 1000);
    hold_in_window(&first, 10, 1, 0, 0, false); /* the window is the old one */
    question_init(&first, NOON_US + HOUR_US);
    add(&first, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US)->cost = 3;
    assert_true(allowed(&first));
    first.call.mark = 13;
    assert_int_equal(settle(&first, 0, NOON_US + HOUR_US + S), 1);
    assert_int_equal(INTEGER("ZCARD", HOLDS), 1);
}

/* ---- renewing ---- */

static void renewing_extends(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    assert_int_equal(renew(&q, 60 * S, NOON_US + 59 * S), 1);
    assert_false(passes(10, 1, NOON_US + 119 * S - 1));
    assert_int_equal(renew(&q, S, NOON_US + 60 * S), 1); /* in place of what is left */
    assert_true(passes(10, 1, NOON_US + 61 * S));
    assert_int_equal(renew(&q, 60 * S, NOON_US + 61 * S), 0);
    assert_int_equal(settle(&q, 10, NOON_US + 62 * S), 1);
    assert_true(stored_count(FIRST, "one") == 11);
    assert_int_equal(renew(&q, 60 * S, NOON_US + 62 * S), 0);
}

static void what_is_over_is_not_renewed(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    assert_int_equal(renew(&q, 60 * S, NOON_US + 60 * S), 0);
    assert_true(passes(10, 1, NOON_US + 60 * S));
}

/* ---- all or nothing ---- */

static void a_refusal_holds_nothing(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    add(&q, 0, LIMIT_SLIDING_WINDOW, 10, HOUR_US);
    add(&q, 1, LIMIT_TOKEN_BUCKET, 2, HOUR_US);
    set_costs(&q, 3);
    hold_all(&q, 1, 60 * S, false);
    assert_false(allowed(&q));
    assert_int_equal(keys_in_store(), 0);
    /* Three limits of two rules are held and given back together. */
    set_costs(&q, 2);
    hold_all(&q, 2, 60 * S, false);
    assert_true(allowed(&q));
    assert_int_equal(keys_in_store(), 4);
    assert_int_equal(held(), 2);
    assert_int_equal(settle(&q, 0, NOON_US + 1), 3);
    assert_true(stored_count(FIRST, "one") == 0);
    assert_true(stored_count(FIRST, "two") == 0);
    assert_int_equal(settle(&q, 0, NOON_US + 2), 0);
}

static void a_damaged_rule_holds_nothing(void **state)
{
    struct question q;
    (void)state;
    put(SECOND, "one", (double[]){ 1 }, 1);
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    add(&q, 1, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    hold_all(&q, 1, 60 * S, false);
    ask_with(&q, SV("weir"));
    assert_non_null(strstr(q.error, "BADSTATE " SECOND " one"));
    assert_int_equal(keys_in_store(), 1);
}

static void foreign_holds_are_an_error_that_names_them(void **state)
{
    struct question q;
    (void)state;
    assert_int_equal(INTEGER("SADD", HOLDS, "x"), 1);
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 1, HOUR_US);
    assert_true(allowed(&q)); /* it need not know */
    ask_with(&q, SV("weir"));
    assert_non_null(strstr(q.error, "BADSTATE " FIRST));
    hold_all(&q, 1, S, false);
    ask_with(&q, SV("weir"));
    assert_non_null(strstr(q.error, "BADSTATE " FIRST));
    assert_true(stored_count(FIRST, "one") == 1);
}

static void a_shadow_rule_holds_what_it_charges(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    add(&q, 1, LIMIT_FIXED_WINDOW, 1, HOUR_US);
    q.rules[1].shadow = true;
    hold_all(&q, 1, 60 * S, false);
    assert_true(allowed(&q));
    q.call.hold_id = 2;
    assert_true(allowed(&q));
    assert_int_equal(held(), 2);
    assert_int_equal(INTEGER("ZCARD", SECOND ":h"), 1);
    /* The shadow of the second was not charged: nothing of it is settled. */
    assert_int_equal(settle(&q, 0, NOON_US + 1), 1);
    assert_true(stored_count(SECOND, "one") == 1);
    hold_none(&q);
    q.call.now_us += 60 * S;
    assert_true(allowed(&q));
    assert_true(q.rules[1].fits);
}

/* A limit that stands twice in a call: the last one is charged what both cost, and each has a hold of its own. */
static void holds_of_one_limit_are_told_apart(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US)->cost = 2;
    struct store_cell *last = add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    last->cost = 2;
    last->field = q.cells[0][0].field;
    hold_all(&q, 1, 60 * S, false);
    last->cost = 4;
    assert_true(allowed(&q));
    assert_true(stored_count(FIRST, "one") == 4);
    assert_int_equal(held(), 2);
    assert_true(passes(10, 10, NOON_US + 60 * S));
}

static void plans_of_a_batch_hold_each_for_itself(void **state)
{
    struct question q[3];
    struct reply reply;
    (void)state;
    for (int i = 0; i < 3; i++) {
        question_init(&q[i], NOON_US);
        add(&q[i], 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
        add(&q[i], 1, LIMIT_TOKEN_BUCKET, 10, HOUR_US);
        if (i != 1)
            hold_all(&q[i], 1 + (uint32_t)i, 60 * S, false);
    }
    q[0].call.next = &q[1].call;
    q[1].call.next = &q[2].call;
    script_write_decide(&talk.out, SV("weir"), &q[0].call);
    assert_true(talk_read(&talk, &reply));
    assert_true(reply.kind == REPLY_BULK && script_read_decide(&q[0].call, reply.text));
    for (int i = 0; i < 3; i++)
        assert_true(q[i].call.result == STORE_DECIDED && q[i].call.allowed);
    assert_int_equal(held(), 2);
    assert_int_equal(settle(&q[2], 0, NOON_US + 1), 2);
    assert_int_equal(settle(&q[0], 0, NOON_US + 1), 2);
    assert_true(stored_count(FIRST, "one") == 1);
}

/* ---- keys ---- */

static void holds_stay_as_long_as_they_matter(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    q.expires = true;
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    hold_all(&q, 1, S, false);
    assert_true(allowed(&q));
    /* Nobody may come before the window is over: what it held is given back even so. */
    assert_true(INTEGER("PTTL", HOLDS) > 3599 * 1000);
    assert_int_equal(renew(&q, 2 * HOUR_US, NOON_US), 1);
    assert_true(INTEGER("PTTL", HOLDS) > 7199 * 1000);
    /* And it may last for longer than what it charged. */
    question_init(&q, NOON_US);
    q.expires = true;
    q.rules[0].key = weir_str("{u1}:second:key");
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, S);
    hold_all(&q, 1, 60 * S, false);
    assert_true(allowed(&q));
    assert_true(INTEGER("PTTL", SECOND ":h") > 60 * 1000);
}

static void a_debt_stays_as_long_as_it_matters(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    q.expires = true;
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, 10 * S);
    hold_all(&q, 1, S, false);
    assert_true(allowed(&q));
    assert_int_equal(settle(&q, 1000, NOON_US + 1), 1);
    assert_true(INTEGER("PTTL", FIRST) > 990 * 1000);
}

/* One that is over is dropped when its window is, at the latest when another one is over. */
static void what_cannot_be_settled_is_dropped(void **state)
{
    struct question q;
    (void)state;
    hold_in_window(&q, 10, 10, 1, S, false);
    assert_true(passes(10, 1, NOON_US + S));
    assert_int_equal(INTEGER("ZCARD", HOLDS), 1);
    question_init(&q, NOON_US + HOUR_US + S); /* the next window */
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US)->cost = 10;
    hold_all(&q, 2, S, false);
    assert_true(allowed(&q));
    assert_true(passes(10, 1, NOON_US + HOUR_US + 2 * S));
    assert_int_equal(INTEGER("ZCARD", HOLDS), 1);
}

static void a_subject_that_is_forgotten_holds_nothing(void **state)
{
    struct question q, later;
    struct weir_str key = weir_str("{u1}:first:key");
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    script_write_forget(&talk.out, SV("weir"), &key, 1);
    assert_int_equal(read_integer(), 1);
    assert_int_equal(INTEGER("EXISTS", HOLDS), 0);
    assert_true(passes(10, 4, NOON_US + 1));
    assert_int_equal(settle(&q, 0, NOON_US + 2), 0);
    assert_true(stored_count(FIRST, "one") == 4);
    /* What is held since can be settled. */
    hold_in_window(&later, 10, 6, 2, 60 * S, false);
    assert_int_equal(settle(&later, 1, NOON_US + 2), 1);
    assert_true(stored_count(FIRST, "one") == 5);
}

/* Charges from before are known by the store's clock. */
static void charges_before_it_was_forgotten_stay(void **state)
{
    struct question before, after;
    struct weir_str key = weir_str("{u1}:first:key");
    (void)state;
    question_init(&before, 0);
    add_calendar(&before, 0, 10, DAY_US, clock_now_us())->cost = 5;
    after = before;
    after.call.rules = after.rules;
    after.rules[0].cells = after.cells[0];
    after.cells[0][0].limit = &after.limits[0][0];
    assert_true(allowed(&before));
    script_write_forget(&talk.out, SV("weir"), &key, 1);
    assert_int_equal(read_integer(), 1);
    assert_true(allowed(&after));
    assert_true(after.call.server_us > before.call.server_us);
    assert_int_equal(settle(&before, 0, 0), 0);
    assert_true(stored_count(FIRST, "one") == 5);
    assert_int_equal(settle(&after, 0, 0), 1);
    assert_true(stored_count(FIRST, "one") == 0);
}

/* A rule that is leased from now on. */
static void slices_find_what_is_over(void **state)
{
    struct question q;
    struct slice_ask ask;
    (void)state;
    hold_in_window(&q, 10, 10, 1, 60 * S, false);
    ask_init(&ask, 10, 3, 3);
    assert_int_equal(lend(&ask, 1, NOON_US + 60 * S - 1).tokens, 0);
    assert_int_equal(lend(&ask, 1, NOON_US + 60 * S).tokens, 3);
    assert_int_equal(held(), 0);
    assert_true(stored_count(FIRST, "one") == 3);
}

/* ---- slots ---- */

static void take_slot(struct question *q, uint64_t max, uint32_t id, int64_t now_us)
{
    question_init(q, now_us);
    add(q, 0, LIMIT_CONCURRENT, max, 60 * S);
    hold_all(q, id, 60 * S, false);
}

static uint64_t slots_in_use(const struct question *q)
{
    return q->cells[0][0].state.data;
}

static void slots_are_free_when_they_are_released_or_over(void **state)
{
    struct question q[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        take_slot(&q[i], 2, 1 + (uint32_t)i, NOON_US + i * S);
    assert_true(allowed(&q[0]));
    assert_true(allowed(&q[1]));
    assert_int_equal(slots_in_use(&q[1]), 2);
    assert_false(allowed(&q[2]));
    assert_int_equal(slots_in_use(&q[2]), 2);
    assert_int_equal(settle(&q[0], 1, NOON_US + 2 * S), 1); /* whatever it has cost */
    assert_int_equal(settle(&q[0], 1, NOON_US + 2 * S), 0);
    assert_true(allowed(&q[2]));
    assert_false(allowed(&q[3]));
    q[3].call.now_us = NOON_US + 61 * S; /* the second is over, the third is not */
    assert_true(allowed(&q[3]));
    assert_int_equal(slots_in_use(&q[3]), 2);
    assert_int_equal(settle(&q[1], 1, NOON_US + 61 * S), 0);
    assert_int_equal(renew(&q[2], 3600 * S, NOON_US + 61 * S), 1);
    q[0].call.hold_id = 9;
    q[0].call.now_us = NOON_US + 121 * S; /* the fourth is over, too */
    assert_true(allowed(&q[0]));
    q[0].call.hold_id = 10;
    assert_false(allowed(&q[0]));
}

/* Somebody has deleted the holds, or the server has evicted them: nothing else would ever free the slots. */
static void slots_go_with_their_holds(void **state)
{
    struct question q;
    (void)state;
    take_slot(&q, 2, 1, NOON_US);
    assert_true(allowed(&q));
    q.call.hold_id = 2;
    assert_true(allowed(&q));
    assert_int_equal(INTEGER("DEL", HOLDS), 1);
    for (uint32_t i = 3; i < 6; i++) {
        q.call.hold_id = i;
        assert_int_equal(allowed(&q), i < 5);
    }
}

static void slots_and_windows_pass_together(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_CONCURRENT, 1, 60 * S);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, HOUR_US);
    hold_all(&q, 1, 60 * S, false);
    q.cells[0][1].hold = (struct store_hold){ 0 }; /* a check that is not a reservation */
    assert_true(allowed(&q));
    q.call.hold_id = 2;
    assert_false(allowed(&q));
    assert_true(q.cells[0][1].fits);
    assert_true(stored_count(FIRST, "two") == 1);
    q.call.now_us += 60 * S;
    assert_true(allowed(&q));
    assert_true(stored_count(FIRST, "two") == 2); /* the charge of the first stays */
}

static void slots_stay_while_they_are_held(void **state)
{
    struct question q;
    (void)state;
    take_slot(&q, 2, 1, NOON_US);
    q.expires = true;
    assert_true(allowed(&q));
    assert_true(INTEGER("PTTL", FIRST) > 60 * 1000 - 500);
    assert_true(INTEGER("PTTL", HOLDS) > 60 * 1000 - 500);
    assert_int_equal(renew(&q, HOUR_US, NOON_US), 1);
    assert_true(INTEGER("PTTL", FIRST) > 3599 * 1000);
    assert_true(INTEGER("PTTL", HOLDS) > 3599 * 1000);
}

static void a_damaged_count_of_slots_is_an_error(void **state)
{
    struct question q;
    (void)state;
    put(FIRST, "one", (double[]){ -1 }, 1);
    take_slot(&q, 2, 1, NOON_US);
    ask_with(&q, SV("weir"));
    assert_non_null(strstr(q.error, "this is not a count of slots"));
}

#define TEST(name) cmocka_unit_test_setup(name, question_empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_finds_no_room_gives_back_what_is_over),
        TEST(who_fits_leaves_it_alone),
        TEST(a_look_sees_what_is_free),
        TEST(a_kept_hold_stays_charged),
        TEST(many_are_given_back_at_once),
        TEST(every_algorithm_gives_back),
        TEST(settling_gives_back_or_charges_once),
        TEST(the_true_amount_is_charged_late),
        TEST(a_hold_that_nobody_gave_back_is_settled),
        TEST(a_window_that_is_over_takes_nothing),
        TEST(a_bucket_counts_what_has_come_back),
        TEST(a_bucket_repays_many_as_one),
        TEST(a_bucket_that_was_looked_at_is_charged_while_the_hold_lasts),
        TEST(a_charge_is_settled_once_by_its_mark),
        TEST(renewing_extends),
        TEST(what_is_over_is_not_renewed),
        TEST(a_refusal_holds_nothing),
        TEST(a_damaged_rule_holds_nothing),
        TEST(foreign_holds_are_an_error_that_names_them),
        TEST(a_shadow_rule_holds_what_it_charges),
        TEST(holds_of_one_limit_are_told_apart),
        TEST(plans_of_a_batch_hold_each_for_itself),
        TEST(holds_stay_as_long_as_they_matter),
        TEST(a_debt_stays_as_long_as_it_matters),
        TEST(what_cannot_be_settled_is_dropped),
        TEST(a_subject_that_is_forgotten_holds_nothing),
        TEST(charges_before_it_was_forgotten_stay),
        TEST(slices_find_what_is_over),
        TEST(slots_are_free_when_they_are_released_or_over),
        TEST(slots_go_with_their_holds),
        TEST(slots_and_windows_pass_together),
        TEST(slots_stay_while_they_are_held),
        TEST(a_damaged_count_of_slots_is_an_error),
    };
    return cmocka_run_group_tests(tests, question_set_up, question_tear_down);
}
