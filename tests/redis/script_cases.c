/* The scripts of the store, the cases that have a name. Time is passed in; each test begins with an empty store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "question.h"
#include "random.h"

/* ---- what a limit is ---- */

static void a_max_of_0_refuses_all(void **state)
{
    (void)state;
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm < LIMIT_CALENDAR; algorithm++)
        for (uint32_t cost = 0; cost < 2; cost++) {
            struct question q;
            question_init(&q, NOON_US);
            add(&q, 0, (enum limit_algorithm)algorithm, 0, S);
            set_costs(&q, cost);
            assert_false(allowed(&q));
            assert_false(q.cells[0][0].fits);
        }
    assert_int_equal(keys_in_store(), 0);
}

static void a_cost_above_the_capacity_never_fits(void **state)
{
    (void)state;
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm < LIMIT_CALENDAR; algorithm++) {
        struct question q;
        question_init(&q, NOON_US);
        add(&q, 0, (enum limit_algorithm)algorithm, 10, S);
        set_costs(&q, 11);
        assert_false(allowed(&q));
    }
    assert_int_equal(keys_in_store(), 0);
}

static void a_look_changes_nothing(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 3, S);
    add(&q, 0, LIMIT_TOKEN_BUCKET, 3, S);
    q.call.charge = false;
    assert_true(allowed(&q));
    q.call.charge = true;
    set_costs(&q, 0);
    assert_true(allowed(&q));
    assert_int_equal(keys_in_store(), 0);
    set_costs(&q, 3);
    assert_true(allowed(&q));
    set_costs(&q, 0);
    assert_true(allowed(&q));
    assert_int_equal(count_of(&q.cells[0][0]), 3);
}

/* All that the numbers of rules allow. */
static void extreme_numbers_are_exact(void **state)
{
    static const int64_t periods_us[] = { LIMIT_PER_MIN_US, LIMIT_PER_MAX_US };
    (void)state;
    for (int algorithm = LIMIT_TOKEN_BUCKET; algorithm < LIMIT_CALENDAR; algorithm++)
        for (int i = 0; i < 2; i++) {
            struct question q;
            talk_write(&talk, "FLUSHALL", NULL);
            assert_true(talk_read(&talk, &(struct reply){ 0 }));
            question_init(&q, NOON_US);
            add(&q, 0, (enum limit_algorithm)algorithm, UINT32_MAX, periods_us[i]);
            set_costs(&q, UINT32_MAX - 1);
            assert_true(allowed(&q));
            set_costs(&q, 2);
            assert_false(allowed(&q));
            set_costs(&q, 1);
            assert_true(allowed(&q));
            assert_false(allowed(&q));
            struct limit_report report = limit_report(&q.limits[0][0], NULL, q.cells[0][0].state, q.call.now_us, 1);
            assert_true(report.retry_after_us > 0);
            q.call.now_us += report.retry_after_us - 1;
            assert_false(allowed(&q));
            q.call.now_us++;
            assert_true(allowed(&q));
        }
}

static void a_changed_max_keeps_what_was_used(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    struct store_cell *cell = add(&q, 0, LIMIT_FIXED_WINDOW, 5, 10 * S);
    set_costs(&q, 4);
    assert_true(allowed(&q));
    limit_init(&q.limits[0][0], LIMIT_FIXED_WINDOW, 3, 0, 10 * S);
    set_costs(&q, 1);
    assert_false(allowed(&q));
    limit_init(&q.limits[0][0], LIMIT_FIXED_WINDOW, 6, 0, 20 * S);
    assert_true(allowed(&q));
    assert_int_equal(count_of(cell), 5);
    /* A new period counts from the next window on. */
    assert_int_equal(limit_state_end(cell->state), NOON_US + 10 * S);
    q.call.now_us = NOON_US + 10 * S;
    assert_true(allowed(&q));
    assert_int_equal(limit_state_end(cell->state), NOON_US + 30 * S);
    assert_int_equal(count_of(cell), 1);
}

/* ---- many cells ---- */

static void rules_take_all_or_nothing(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    for (int i = 0; i < CELLS; i++)
        add(&q, 0, LIMIT_FIXED_WINDOW, 10, S);
    add(&q, 1, LIMIT_SLIDING_WINDOW, 10, S);
    add(&q, 1, LIMIT_FIXED_WINDOW, 2, S);
    add(&q, 1, LIMIT_TOKEN_BUCKET, 10, S);
    assert_true(allowed(&q));
    assert_true(allowed(&q));
    assert_false(allowed(&q));
    assert_true(q.rules[0].fits && !q.rules[1].fits);
    assert_true(q.cells[0][3].fits && q.cells[1][0].fits && !q.cells[1][1].fits && q.cells[1][2].fits);
    for (int i = 0; i < CELLS; i++)
        assert_int_equal(count_of(&q.cells[0][i]), 2);
    assert_int_equal(count_of(&q.cells[1][0]), 2);
    assert_int_equal(q.cells[1][2].state.data, 2 * LIMIT_TOKEN);
    assert_true(stored_count(FIRST, "four") == 2 && stored_count(SECOND, "two") == 2);
}

static void a_shadow_rule_is_a_group_of_its_own(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 1, S);
    add(&q, 0, LIMIT_FIXED_WINDOW, 9, S);
    add(&q, 1, LIMIT_FIXED_WINDOW, 2, S);
    q.rules[0].shadow = true;
    assert_true(allowed(&q));
    assert_true(q.rules[0].fits);
    assert_true(allowed(&q));
    assert_true(!q.rules[0].fits && q.rules[1].fits);
    assert_true(!q.cells[0][0].fits && q.cells[0][1].fits);
    assert_true(stored_count(FIRST, "one") == 1 && stored_count(FIRST, "two") == 1);
    assert_true(stored_count(SECOND, "one") == 2);
    /* A refusal charges no shadow, and says whether it would have had room. */
    limit_init(&q.limits[0][0], LIMIT_FIXED_WINDOW, 5, 0, S);
    assert_false(allowed(&q));
    assert_true(q.rules[0].fits && !q.rules[1].fits);
    assert_true(stored_count(FIRST, "one") == 1);
}

static void a_refund_gives_back_what_was_charged(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 1, S);
    add(&q, 1, LIMIT_FIXED_WINDOW, 5, S);
    add(&q, 1, LIMIT_TOKEN_BUCKET, 5, 5 * S);
    q.rules[0].shadow = true;
    assert_true(allowed(&q));
    assert_true(allowed(&q)); /* not the shadow */
    q.call.now_us += S / 2;
    script_write_settle(&talk.out, SV("weir"), &q.call);
    assert_int_equal(read_integer(), 2);
    assert_true(stored_count(FIRST, "one") == 1);
    q.call.charge = false;
    assert_true(allowed(&q));
    assert_int_equal(count_of(&q.cells[1][0]), 1);
    /* Half a token has come back since: half is given back. */
    assert_int_equal(q.cells[1][1].state.data, 3 * LIMIT_TOKEN / 2);
    /* Another window by now, and a bucket that has drained. */
    q.call.server_us = NOON_US;
    q.call.now_us = NOON_US + 10 * S;
    q.cells[1][0].state.time += (uint64_t)S;
    script_write_settle(&talk.out, SV("weir"), &q.call);
    assert_int_equal(read_integer(), 0);
}

/* ---- clocks ---- */

static void the_stores_clock_counts(void **state)
{
    struct question q;
    (void)state;
    for (int i = 0; i < 2; i++) {
        question_init(&q, 0);
        add(&q, 0, LIMIT_FIXED_WINDOW, 10, 3600 * S);
        assert_true(allowed(&q));
        assert_int_equal(count_of(&q.cells[0][0]), i + 1);
        assert_true(q.call.server_us <= clock_now_us() && q.call.server_us > clock_now_us() - 3600 * S);
    }
}

static void two_clocks_at_a_boundary_count_in_one_window(void **state)
{
    struct question old, new;
    const int64_t midnight_us = NOON_US + DAY_US / 2;
    (void)state;
    /* The caller is in the old day, the store in the new one; then the caller is there too. */
    question_init(&old, midnight_us);
    add_calendar(&old, 0, 2, DAY_US, midnight_us - 1);
    assert_true(allowed(&old));
    assert_int_equal(limit_state_end(old.cells[0][0].state), midnight_us + DAY_US);
    question_init(&new, midnight_us + 1);
    add_calendar(&new, 0, 2, DAY_US, midnight_us + 1);
    assert_true(allowed(&new));
    assert_false(allowed(&new));
    assert_false(allowed(&old));
    assert_int_equal(count_of(&old.cells[0][0]), 2);
}

static void windows_of_another_time_are_stale(void **state)
{
    const int64_t midnight_us = NOON_US + DAY_US / 2;
    static const int64_t callers_us[] = { 0, -2 * DAY_US - 1, DAY_US, 300 * DAY_US };
    (void)state;
    for (size_t i = 0; i < sizeof callers_us / sizeof callers_us[0]; i++) {
        struct question q;
        question_init(&q, midnight_us - 1);
        add(&q, 0, LIMIT_FIXED_WINDOW, 10, S)->debt = 1;
        add_calendar(&q, 1, 10, DAY_US, midnight_us + callers_us[i]);
        ask(&q);
        assert_int_equal(q.call.result, STORE_STALE);
        assert_int_equal(q.call.server_us, midnight_us - 1);
    }
    assert_int_equal(keys_in_store(), 0);
}

/* The clock was a month ahead: what was used counts in the window that is now, and a refusal notes that. */
static void a_wrong_clock_moves_the_window(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US + 30 * DAY_US);
    add_calendar(&q, 0, 1, DAY_US, q.call.now_us);
    add(&q, 0, LIMIT_FIXED_WINDOW, 1, 60 * S);
    add(&q, 0, LIMIT_SLIDING_WINDOW, 1, 60 * S);
    add(&q, 0, LIMIT_TOKEN_BUCKET, 1, 60 * S);
    assert_true(allowed(&q));
    question_init(&q, NOON_US);
    struct store_cell *day = add_calendar(&q, 0, 1, DAY_US, NOON_US);
    struct store_cell *fixed = add(&q, 0, LIMIT_FIXED_WINDOW, 1, 60 * S);
    struct store_cell *slide = add(&q, 0, LIMIT_SLIDING_WINDOW, 1, 60 * S);
    struct store_cell *bucket = add(&q, 0, LIMIT_TOKEN_BUCKET, 1, 60 * S);
    assert_false(allowed(&q));
    q.call.now_us += S;
    assert_false(allowed(&q));
    assert_int_equal(limit_state_end(day->state), NOON_US + DAY_US / 2);
    assert_int_equal(limit_state_end(fixed->state), NOON_US + 60 * S);
    assert_int_equal(slide->state.time, NOON_US);
    assert_int_equal(bucket->state.time, NOON_US);
    assert_int_equal(bucket->state.data, LIMIT_TOKEN);
}

/* ---- debt ---- */

static void debt_counts_before_anything_is_judged(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    q.expires = true;
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, 60 * S)->debt = 9;
    add(&q, 0, LIMIT_SLIDING_WINDOW, 10, 60 * S)->debt = 20;
    add(&q, 0, LIMIT_TOKEN_BUCKET, 10, 60 * S)->debt = 30;
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, 60 * S);
    assert_false(allowed(&q));
    assert_true(q.cells[0][0].fits && !q.cells[0][1].fits && !q.cells[0][2].fits && q.cells[0][3].fits);
    assert_int_equal(count_of(&q.cells[0][0]), 9);
    assert_int_equal(count_of(&q.cells[0][1]), 20);
    assert_int_equal(q.cells[0][2].state.data, 30 * LIMIT_TOKEN);
    assert_true(stored_count(FIRST, "one") == 9 && stored_count(FIRST, "two") == 20);
    assert_int_equal(INTEGER("HEXISTS", FIRST, "four"), 0);
    assert_true(INTEGER("PTTL", FIRST) >= 180 * 1000);
    q.cells[0][0].debt = q.cells[0][1].debt = q.cells[0][2].debt = UINT32_MAX;
    assert_false(allowed(&q));
    assert_int_equal(count_of(&q.cells[0][0]), UINT64_C(9) + UINT32_MAX);
    assert_int_equal(count_of(&q.cells[0][1]), UINT32_MAX);
    assert_int_equal(q.cells[0][2].state.data, LIMIT_COARSE + (UINT64_C(30) + UINT32_MAX) * LIMIT_TOKEN_COARSE);
}

/* ---- keys ---- */

static void a_key_expires_when_its_limits_have_decayed(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US + 1);
    q.expires = true;
    add_calendar(&q, 0, 100, DAY_US, NOON_US);
    add_calendar(&q, 0, 100, HOUR_US, NOON_US);
    assert_true(allowed(&q));
    int64_t ttl_ms = INTEGER("PTTL", FIRST);
    assert_true(ttl_ms >= DAY_US / 2 / US_PER_MS && ttl_ms < DAY_US / 2 / US_PER_MS + 2000);
    /* Whoever takes it away: the next window, or one charge in sixteen, sees to it; for all limits of the key. */
    assert_int_equal(INTEGER("PERSIST", FIRST), 1);
    q.call.now_us = NOON_US + HOUR_US + 1;
    assert_true(allowed(&q));
    assert_true(INTEGER("PTTL", FIRST) >= (DAY_US / 2 - HOUR_US) / US_PER_MS - 1);
    assert_int_equal(INTEGER("PERSIST", FIRST), 1);
    q.call.now_us += 15;
    assert_int_equal(q.call.now_us % 16, 0);
    assert_true(allowed(&q));
    assert_true(INTEGER("PTTL", FIRST) >= (DAY_US / 2 - HOUR_US) / US_PER_MS - 1);
}

static void a_bucket_that_fills_stays_longer(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    q.expires = true;
    add(&q, 0, LIMIT_TOKEN_BUCKET, 1000, 1000 * S);
    for (int used = 1; used <= 20; used++) {
        set_costs(&q, used % 2 ? 99 : 1);
        assert_true(allowed(&q));
        int64_t drain_ms = (int64_t)(q.cells[0][0].state.data / LIMIT_TOKEN) * 1000;
        assert_true(INTEGER("PTTL", FIRST) >= drain_ms);
    }
}

static void a_foreign_key_is_an_error_that_names_it(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, S)->debt = 1;
    add(&q, 1, LIMIT_FIXED_WINDOW, 10, S);
    talk_write(&talk, "SET", SECOND, "7", NULL);
    assert_true(talk_read(&talk, &(struct reply){ 0 }));
    ask_with(&q, SV("weir"));
    assert_non_null(strstr(q.error, "BADSTATE " SECOND " one: WRONGTYPE"));
    assert_int_equal(INTEGER("EXISTS", FIRST), 0);
}

static void a_damaged_field_is_an_error_that_names_it(void **state)
{
    static const struct {
        enum limit_algorithm algorithm;
        size_t count;
        double numbers[4];
    } cases[] = {
        { LIMIT_FIXED_WINDOW, 2, { NOON_US, S } },
        { LIMIT_FIXED_WINDOW, 4, { NOON_US, S, 1, 1 } },
        { LIMIT_FIXED_WINDOW, 3, { NOON_US, S, -1 } },
        { LIMIT_FIXED_WINDOW, 3, { NOON_US, S, NAN } },
        { LIMIT_FIXED_WINDOW, 3, { NOON_US, NAN, 1 } },
        { LIMIT_FIXED_WINDOW, 3, { NAN, S, 1 } },
        { LIMIT_FIXED_WINDOW, 3, { -INFINITY, S, 1 } },
        { LIMIT_FIXED_WINDOW, 3, { INFINITY, S, 1 } },
        { LIMIT_FIXED_WINDOW, 3, { NOON_US, S, 0x1p53 } },
        { LIMIT_SLIDING_WINDOW, 2, { NOON_US, 1 } },
        { LIMIT_SLIDING_WINDOW, 3, { NAN, 1, 1 } },
        { LIMIT_SLIDING_WINDOW, 3, { NOON_US, INFINITY, 1 } },
        { LIMIT_SLIDING_WINDOW, 3, { NOON_US, 1, 1e300 } },
        { LIMIT_TOKEN_BUCKET, 3, { NOON_US, 1, 1 } },
        { LIMIT_TOKEN_BUCKET, 2, { NAN, 1 } },
        { LIMIT_TOKEN_BUCKET, 2, { NOON_US, NAN } },
        { LIMIT_TOKEN_BUCKET, 2, { NOON_US, -1 } },
        { LIMIT_TOKEN_BUCKET, 2, { NOON_US, 0x1p52 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct question q;
        question_init(&q, NOON_US);
        add(&q, 0, LIMIT_FIXED_WINDOW, 10, S);
        add(&q, 0, cases[i].algorithm, 10, S);
        put(FIRST, "two", cases[i].numbers, cases[i].count);
        ask_with(&q, SV("weir"));
        assert_non_null(strstr(q.error, "BADSTATE " FIRST " two: this is not a state of a "));
        assert_int_equal(INTEGER("HEXISTS", FIRST, "one"), 0);
    }
}

static void names_in_errors_are_one_line(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, S);
    q.rules[0].key = SV("{a\r\nb}:first:key");
    talk_write(&talk, "SET", "weir:1:{a\r\nb}:first:key", "7", NULL);
    assert_true(talk_read(&talk, &(struct reply){ 0 }));
    ask_with(&q, SV("weir"));
    assert_non_null(strstr(q.error, "weir:1:{a??b}:first:key one: WRONGTYPE"));
}

static void layouts_and_prefixes_do_not_meet(void **state)
{
    struct question q;
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 1, S);
    talk_write(&talk, "SET", "weir:2:{u1}:first:key", "of a later version", NULL);
    assert_true(talk_read(&talk, &(struct reply){ 0 }));
    assert_true(allowed(&q));
    ask_with(&q, SV("other"));
    assert_true(q.call.allowed);
    assert_false(allowed(&q));
    assert_int_equal(INTEGER("EXISTS", FIRST, "other:1:{u1}:first:key", "weir:2:{u1}:first:key"), 3);
}

/* ---- slices ---- */

static void slices_shrink_and_never_pass_the_max(void **state)
{
    struct slice_ask ask;
    uint32_t sum = 0, tokens;
    (void)state;
    ask_init(&ask, 1000, 1, 50);
    uint32_t last = 50;
    while ((tokens = lend(&ask, 4, NOON_US).tokens) > 0) {
        assert_true(tokens <= last);
        last = tokens;
        sum += tokens;
    }
    assert_int_equal(last, 1);
    assert_int_equal(sum, 1000);
    assert_true(stored_count(FIRST, "one") == 1000);
    assert_true(INTEGER("PTTL", FIRST) >= 60 * 1000);
    /* The next window. */
    struct lent lent = lend(&ask, 4, NOON_US + 60 * S);
    assert_int_equal(lent.tokens, 50);
    assert_int_equal(lent.end_us, NOON_US + 120 * S);
    assert_int_equal(lent.room, 950);
}

static void a_need_is_lent_whole_or_not_at_all(void **state)
{
    struct slice_ask ask;
    (void)state;
    ask_init(&ask, 100, 80, 5);
    assert_int_equal(lend(&ask, 10, NOON_US).tokens, 80);
    struct lent lent = lend(&ask, 10, NOON_US);
    assert_true(lent.tokens == 0 && lent.room == 20 && lent.end_us == NOON_US + 60 * S);
    /* Debt counts even then. */
    lent = lend_with(&ask, 80, 30, 10, NOON_US);
    assert_true(lent.tokens == 0 && lent.room == 0);
    assert_true(stored_count(FIRST, "one") == 110);
    ask_init(&ask, 0, 0, 5);
    assert_int_equal(lend(&ask, 1, NOON_US).tokens, 0);
}

/* All that is needed while there is so much, and the rest of it to whom that is enough. */
static void what_lacks_is_enough(void **state)
{
    struct slice_ask ask;
    (void)state;
    ask_init(&ask, 100, 40, 5);
    assert_int_equal(lend_with(&ask, 10, 0, 10, NOON_US).tokens, 40);
    assert_int_equal(lend_with(&ask, 10, 0, 10, NOON_US).tokens, 40);
    struct lent lent = lend_with(&ask, 21, 0, 10, NOON_US);
    assert_true(lent.tokens == 0 && lent.room == 20);
    assert_int_equal(lend_with(&ask, 20, 0, 10, NOON_US).tokens, 20);
    assert_int_equal(lend_with(&ask, 1, 0, 10, NOON_US).tokens, 0);
}

static void a_slice_goes_back_to_its_window_only(void **state)
{
    struct slice_ask ask;
    (void)state;
    ask_init(&ask, 100, 1, 40);
    assert_int_equal(give_back(&ask, NOON_US + 60 * S, 5), 0);
    assert_int_equal(keys_in_store(), 0);
    assert_int_equal(lend(&ask, 1, NOON_US).tokens, 40);
    assert_int_equal(give_back(&ask, NOON_US + 60 * S, 15), 15);
    assert_true(stored_count(FIRST, "one") == 25);
    assert_int_equal(give_back(&ask, NOON_US + 60 * S - 1, 5), 0);
    assert_true(stored_count(FIRST, "one") == 25);
    assert_int_equal(give_back(&ask, NOON_US + 60 * S, 90), 25);
    assert_true(stored_count(FIRST, "one") == 0);
    assert_true(INTEGER("PTTL", FIRST) > 0);
}

static void slices_know_stale_windows_and_foreign_keys(void **state)
{
    struct slice_ask ask;
    struct reply reply;
    (void)state;
    ask_init(&ask, 100, 1, 40);
    limit_init(&ask.limit, LIMIT_CALENDAR, 100, 0, 0);
    ask.window = (struct window){ NOON_US, NOON_US + HOUR_US };
    ask.next = (struct window){ NOON_US + HOUR_US, NOON_US + 2 * HOUR_US };
    assert_true(lend(&ask, 1, NOON_US - 1).stale && lend(&ask, 1, NOON_US + 2 * HOUR_US).stale);
    assert_int_equal(keys_in_store(), 0);
    assert_int_equal(lend(&ask, 1, NOON_US + HOUR_US).end_us, NOON_US + 2 * HOUR_US);
    talk_write(&talk, "SET", FIRST, "7", NULL);
    assert_true(talk_read(&talk, &reply));
    script_write_lend(&talk.out, SV("weir"), &ask, 1, 0, 1, NOON_US);
    assert_true(talk_read(&talk, &reply) && reply.kind == REPLY_ERROR);
    assert_true(sv_starts(reply.text, SV("BADSTATE " FIRST " one: WRONGTYPE")));
    script_write_return(&talk.out, SV("weir"), &ask, NOON_US, 1);
    assert_true(talk_read(&talk, &reply) && reply.kind == REPLY_ERROR);
}

/* ---- arithmetic and answers ---- */

/* The function as it stands in the script, with numbers of any size that can occur. */
static void products_are_divided_exactly(void **state)
{
    struct reply reply;
    struct random rnd = { random_seed() };
    sv text = scripts[SCRIPT_DECIDE].text;
    const char *from = strstr(text.ptr, "local function muldiv"), *to = strstr(from, "\nend\n");
    char program[2000], sha[41];
    (void)state;
    snprintf(program, sizeof program, "%.*s\nend\nreturn struct.pack('<dd', muldiv(ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0))",
             (int)(to - from), from);
    talk_write(&talk, "SCRIPT", "LOAD", program, NULL);
    assert_true(talk_read(&talk, &reply) && reply.kind == REPLY_BULK);
    snprintf(sha, sizeof sha, "%.*s", SV_FMT(reply.text));
    enum { TRIES = 2000 };
    static int64_t numbers[TRIES][3];
    for (int i = 0; i < TRIES; i++) {
        char words[3][24];
        int64_t c = LIMIT_PER_MIN_US + random_scaled(&rnd, LIMIT_PER_MAX_US - LIMIT_PER_MIN_US);
        int64_t a = random_one_in(&rnd, 4) ? c : random_in(&rnd, 0, c), b = random_scaled(&rnd, (INT64_C(1) << 53) - 1);
        memcpy(numbers[i], (int64_t[]){ a, b, c }, sizeof numbers[i]);
        for (int j = 0; j < 3; j++)
            snprintf(words[j], sizeof words[j], "%lld", (long long)numbers[i][j]);
        talk_write(&talk, "EVALSHA", sha, "0", words[0], words[1], words[2], NULL);
    }
    for (int i = 0; i < TRIES; i++) {
        double got[2];
        assert_true(talk_read(&talk, &reply) && reply.text.len == sizeof got);
        memcpy(got, reply.text.ptr, sizeof got);
        limit_wide product = (limit_wide)numbers[i][0] * (uint64_t)numbers[i][1], c = (limit_wide)numbers[i][2];
        assert_true(got[0] == (double)(uint64_t)(product / c) && got[1] == (double)(uint64_t)(product % c));
    }
}

static void answers_that_are_none_are_told(void **state)
{
    struct question q;
    struct lent lent;
    char bytes[200] = { 0 };
    double numbers[8] = { 3, NOON_US, NOON_US + S, S, 1 };
    (void)state;
    question_init(&q, NOON_US);
    add(&q, 0, LIMIT_FIXED_WINDOW, 10, S);
    memcpy(bytes, numbers, sizeof numbers);
    assert_true(script_read_decide(&q.call, sv_of(bytes, 40)));
    for (size_t len = 0; len <= 48; len++)
        assert_int_equal(script_read_decide(&q.call, sv_of(bytes, len)), len == 40);
    for (int i = 0; i < 5; i++) {
        double wrong[5];
        memcpy(wrong, numbers, sizeof wrong);
        wrong[i] = i % 2 ? NAN : 0x1p60;
        assert_false(script_read_decide(&q.call, sv_of((const char *)wrong, sizeof wrong)));
    }
    memcpy(bytes, (double[]){ 1, NOON_US, 5, NOON_US + S, 1, 0 }, 6 * sizeof(double));
    for (size_t len = 0; len <= 48; len++)
        assert_int_equal(script_read_lend(sv_of(bytes, len), &lent), len == 40);
}

#define TEST(name) cmocka_unit_test_setup(name, question_empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_max_of_0_refuses_all),
        TEST(a_cost_above_the_capacity_never_fits),
        TEST(a_look_changes_nothing),
        TEST(extreme_numbers_are_exact),
        TEST(a_changed_max_keeps_what_was_used),
        TEST(rules_take_all_or_nothing),
        TEST(a_shadow_rule_is_a_group_of_its_own),
        TEST(a_refund_gives_back_what_was_charged),
        TEST(the_stores_clock_counts),
        TEST(two_clocks_at_a_boundary_count_in_one_window),
        TEST(windows_of_another_time_are_stale),
        TEST(a_wrong_clock_moves_the_window),
        TEST(debt_counts_before_anything_is_judged),
        TEST(a_key_expires_when_its_limits_have_decayed),
        TEST(a_bucket_that_fills_stays_longer),
        TEST(a_foreign_key_is_an_error_that_names_it),
        TEST(a_damaged_field_is_an_error_that_names_it),
        TEST(names_in_errors_are_one_line),
        TEST(layouts_and_prefixes_do_not_meet),
        TEST(slices_shrink_and_never_pass_the_max),
        TEST(a_need_is_lent_whole_or_not_at_all),
        TEST(what_lacks_is_enough),
        TEST(a_slice_goes_back_to_its_window_only),
        TEST(slices_know_stale_windows_and_foreign_keys),
        TEST(products_are_divided_exactly),
        TEST(answers_that_are_none_are_told),
    };
    return cmocka_run_group_tests(tests, question_set_up, question_tear_down);
}
