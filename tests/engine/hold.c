/* Holds: reserve, settle, renew, cancel, and what happens if nobody comes. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../limit/random.h"
#include "crowd.h"
#include "holding.h"

/* ---- the ends of a hold ---- */

static void it_counts_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        struct weir_receipt receipt;
        held(weir, 60, 1000, NOW);
        assert_int_equal(left(weir, NOW), 40);
        assert_false(reserve(weir, 41, 1000, NOW, &receipt));
        assert_false(check_at(weir, cost_of("e", "k", 41), NOW).allowed);
        assert_true(check_at(weir, cost_of("e", "k", 40), NOW).allowed);
        weir_close(weir);
    }
}

static void less_is_given_back_and_more_is_owed(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        struct weir_receipt less = held(weir, 60, 1000, NOW), same = held(weir, 10, 1000, NOW);
        assert_int_equal(settle(weir, &less, 5, NOW), 1);
        assert_int_equal(left(weir, NOW), 85);
        assert_int_equal(settle(weir, &same, 10, NOW), 1);
        assert_int_equal(left(weir, NOW), 85);
        struct weir_receipt more = held(weir, 80, 1000, NOW);
        assert_int_equal(settle(weir, &more, 200, NOW), 1);
        assert_int_equal(left(weir, NOW), 0);
        /* The debt refuses those that cost nothing, too. */
        assert_false(check_at(weir, cost_of("e", "k", 0), NOW).allowed);
        /* Nothing of it ends with the hold. */
        assert_false(check_at(weir, cost_of("e", "k", 0), NOW + 2 * S).allowed);
        weir_close(weir);
    }
}

static void twice_is_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        held(weir, 10, 60000, NOW);
        struct weir_receipt receipt = held(weir, 50, 1000, NOW);
        assert_int_equal(settle(weir, &receipt, 20, NOW), 1);
        assert_int_equal(settle(weir, &receipt, 20, NOW), 0);
        assert_int_equal(settle(weir, &receipt, 0, NOW), 0);
        assert_int_equal(weir_renew(weir, &receipt, 1000, NOW), 0);
        assert_int_equal(weir_release(weir, &receipt, NOW), 0);
        assert_int_equal(left(weir, NOW), 70);
        assert_int_equal(settle(weir, &receipt, 20, NOW + 2 * S), 0);
        weir_close(weir);
    }
}

static void a_cancelled_one_leaves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        struct weir_receipt receipt = held(weir, 50, 1000, NOW);
        assert_int_equal(weir_refund(weir, &receipt, NOW), 1);
        assert_int_equal(left(weir, NOW), 100);
        assert_int_equal(left(weir, NOW + 2 * S), 100);
        weir_close(weir);
    }
}

static void it_ends_by_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        held(weir, 60, 1000, NOW);
        held(weir, 30, 2000, NOW);
        uint64_t before = left(weir, NOW + S - 1);
        assert_in_range(before, 10, 11); /* a bucket has got something back */
        assert_in_range(left(weir, NOW + S), 70, 71);
        assert_in_range(left(weir, NOW + 2 * S - 1), 70, 73);
        /* A bucket gets back what has not come back by itself, counted for each hold apart. */
        assert_in_range(left(weir, NOW + 2 * S), i == 2 ? 96 : 100, 100);
        /* … also if the next one wants all of it. */
        assert_true(check_at(weir, cost_of("e", "k", i == 2 ? 96 : 100), NOW + 2 * S).allowed);
        weir_close(weir);
    }
}

static void or_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        struct weir_receipt receipt;
        struct weir_request request = reservation(60, 1000, &receipt);
        request.keep = true;
        assert_true(check_at(weir, request, NOW).allowed);
        assert_in_range(left(weir, NOW + 2 * S), 40, 44);
        /* It can still be settled. */
        assert_int_equal(settle(weir, &receipt, 10, NOW + 2 * S), 1);
        assert_in_range(left(weir, NOW + 2 * S), 90, 94);
        assert_int_equal(settle(weir, &receipt, 10, NOW + 2 * S), 0);
        weir_close(weir);
    }
}

static void settled_late_it_charges_what_is_true(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        struct weir_receipt receipt = held(weir, 60, 1000, NOW);
        assert_int_equal(left(weir, NOW + 5 * S), 100);
        assert_int_equal(settle(weir, &receipt, 50, NOW + 5 * S), 1);
        assert_in_range(left(weir, NOW + 5 * S), 50, 59);
        assert_int_equal(settle(weir, &receipt, 50, NOW + 5 * S), 0);
        assert_in_range(left(weir, NOW + 5 * S), 50, 59);
        weir_close(weir);
    }
}

/* A bucket has refilled by the time that the true amount is known. That repays what was held, and the true amount once. */
static void a_bucket_is_repaid_once(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct weir *weir = open_rules("rules: [" RULE("r", BUCKET("100")) "]");
        struct weir_receipt receipt = held(weir, 10, over ? 1000 : 60000, NOW);
        assert_int_equal(settle(weir, &receipt, 100, NOW + 30 * S), 1);
        assert_int_equal(left(weir, NOW + 30 * S), 50);
        assert_int_equal(left(weir, NOW + 60 * S), 100);
        weir_close(weir);
    }
}

/* Many wait for the same time to pass: it repays one of them, not each. */
static void a_bucket_repays_many_as_one(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct weir *weir = open_rules("rules: [" RULE("r", BUCKET("100")) "]");
        struct weir_receipt receipts[10];
        for (int i = 0; i < 10; i++)
            receipts[i] = held(weir, 1, over ? 1000 : 120000, NOW);
        for (int i = 0; i < 10; i++)
            assert_int_equal(settle(weir, &receipts[i], 100, NOW + 60 * S), 1);
        /* 1000 were used, of which 100 have come back; of those that were over and are joined, what was held counts, too.
         */
        int64_t wait_ms = check_at(weir, cost_of("e", "k", 100), NOW + 60 * S).retry_after_ms;
        assert_true(wait_ms >= 540000 && wait_ms <= (over ? 546000 : 540000));
        weir_close(weir);
    }
}

/* A fixed window that nobody used any more begins anew; the true amount is charged all the same while the old one lasts. */
static void settled_late_into_another_window(void **state)
{
    (void)state;
    struct weir *weir = open_kind(0);
    struct weir_receipt first = held(weir, 60, 1000, NOW), second = held(weir, 20, 1000, NOW);
    assert_true(check_at(weir, one("e", "k"), NOW + 30 * S).allowed);
    assert_int_equal(settle(weir, &first, 50, NOW + 40 * S), 1);
    assert_int_equal(left(weir, NOW + 40 * S), 49);
    assert_int_equal(settle(weir, &second, 20, NOW + 61 * S), 0); /* its window is over */
    assert_int_equal(left(weir, NOW + 61 * S), 49);
    weir_close(weir);
}

static void a_window_that_is_over_takes_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_kind(0);
    struct weir_receipt receipt = held(weir, 60, 120000, NOW);
    assert_int_equal(left(weir, NOW + 60 * S), 100); /* a hold belongs to its window */
    check_at(weir, cost_of("e", "k", 30), NOW + 61 * S);
    assert_int_equal(settle(weir, &receipt, 0, NOW + 61 * S), 0);
    assert_int_equal(left(weir, NOW + 61 * S), 70);
    assert_int_equal(left(weir, NOW + 119 * S), 70);
    assert_int_equal(left(weir, NOW + 120 * S), 70); /* and its end gives nothing back to another */
    weir_close(weir);
}

static void renewed_it_goes_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        struct weir_receipt receipt = held(weir, 60, 1000, NOW);
        assert_int_equal(weir_renew(weir, &receipt, 5000, NOW + S / 2), 1);
        assert_in_range(left(weir, NOW + 5 * S), 40, 50);
        assert_int_equal(weir_renew(weir, &receipt, 1000, NOW + 5 * S), 1);
        assert_in_range(left(weir, NOW + 6 * S - 1), 40, 52);
        assert_int_equal(left(weir, NOW + 6 * S), 100);
        assert_int_equal(weir_renew(weir, &receipt, 1000, NOW + 6 * S), 0);
        weir_close(weir);
    }
    /* The receipt of before still settles it. */
    struct weir *weir = open_kind(0);
    struct weir_receipt receipt = held(weir, 60, 1000, NOW);
    assert_int_equal(weir_renew(weir, &receipt, 5000, NOW + S / 2), 1);
    assert_int_equal(settle(weir, &receipt, 10, NOW + 3 * S), 1);
    assert_int_equal(left(weir, NOW + 3 * S), 90);
    assert_int_equal(left(weir, NOW + 9 * S), 90);
    weir_close(weir);
}

/* ---- several limits, units ---- */

/* The rules change while the work runs: it is paid for all the same. */
static void a_changed_max_forgets_no_true_amount(void **state)
{
    (void)state;
    const char *more = "rules: [" RULE("r", BUCKET("200")) "]";
    for (int after = 0; after < 2; after++) {
        struct weir *weir = open_rules("rules: [" RULE("r", BUCKET("100")) "]");
        struct weir_receipt owing = held(weir, 10, 1000, NOW), less = held(weir, 20, 1000, NOW);
        set_rules(weir, more);
        assert_int_equal(left(weir, NOW), 170);
        int64_t at = NOW + (after ? 1001 * MS : 0);
        assert_int_equal(settle(weir, &owing, 110, at), 1);
        assert_int_equal(settle(weir, &owing, 110, at), 0);
        if (!after)
            assert_int_equal(weir_renew(weir, &less, 1000, at), 1);
        /* A bucket gives nothing back at another rate. One that is over has been given back before. */
        assert_int_equal(settle(weir, &less, 5, at), 1);
        assert_true(left(weir, at) <= (after ? 200 - 110 - 5 + 4 : 200 - 110 - 20));
        assert_true(left(weir, NOW + 2 * S) <= 200 - 110 - (after ? 5 : 20) + 7);
        assert_true(left(weir, NOW + 2 * S) >= 200 - 110 - (after ? 5 : 20));
        weir_close(weir);
    }
}

static void all_or_nothing(void **state)
{
    (void)state;
    struct weir *weir =
        open_rules("rules: [" RULE("a", FIXED("f", "100") ", " SLIDING("100")) ", " RULE("b", DAY("30")) "]");
    struct weir_receipt receipt;
    assert_false(reserve(weir, 31, 1000, NOW, &receipt));
    assert_int_equal(left(weir, NOW), 30);
    receipt = held(weir, 30, 1000, NOW);
    assert_int_equal(receipt.count, 3);
    assert_false(reserve(weir, 1, 1000, NOW, &receipt));
    assert_int_equal(left(weir, NOW + S), 30);
    assert_true(check_at(weir, cost_of("e", "k", 30), NOW + S).allowed);
    weir_close(weir);
}

#define UNITS                                                                                                          \
    "rules: [" RULE("r",                                                                                               \
                    FIXED("calls", "10") ", { name: t, algorithm: fixed_window, max: 1000, per: 60s, unit: tokens }, " \
                                         "{ name: c, calendar: month, max: 5000, unit: dollars }") "]"

static uint64_t used_of(struct weir *weir, const char *unit, int64_t now_us)
{
    static const struct {
        const char *unit;
        uint64_t max;
    } all[] = { { "", 10 }, { "tokens", 1000 }, { "dollars", 5000 } };
    struct weir_cost cost = { weir_str(unit), 0 };
    for (size_t i = 0; i < 3; i++)
        if (strcmp(all[i].unit, unit) == 0)
            for (uint64_t used = 0;; used++) {
                struct weir_request request = peek_of("e", "k", unit[0] ? 0 : all[i].max - used);
                cost.amount = all[i].max - used;
                request.costs = &cost;
                request.cost_count = unit[0] != '\0';
                if (check_at(weir, request, now_us).allowed)
                    return used;
            }
    return UINT64_MAX;
}

static struct weir_receipt hold_units(struct weir *weir, uint64_t tokens, uint64_t dollars)
{
    struct weir_receipt receipt;
    struct weir_cost costs[] = { { WEIR_STR("tokens"), tokens }, { WEIR_STR("dollars"), dollars } };
    struct weir_request request = reservation(1, 1000, &receipt);
    request.costs = costs;
    request.cost_count = 2;
    assert_true(check_at(weir, request, NOW).allowed);
    return receipt;
}

static void units_are_settled_by_name(void **state)
{
    (void)state;
    struct weir *weir = open_rules(UNITS);
    struct weir_cost actual[] = { { WEIR_STR("tokens"), 120 }, { WEIR_STR("dollars"), 7 } };
    struct weir_receipt receipt = hold_units(weir, 900, 40);
    assert_int_equal(used_of(weir, "tokens", NOW), 900);
    assert_int_equal(weir_settle(weir, &receipt, WEIR_AS_HELD, actual, 2, NOW), 3);
    assert_int_equal(used_of(weir, "", NOW), 1);
    assert_int_equal(used_of(weir, "tokens", NOW), 120);
    assert_int_equal(used_of(weir, "dollars", NOW), 7);
    /* Units that are not named keep what was held. */
    receipt = hold_units(weir, 100, 40);
    assert_int_equal(weir_settle(weir, &receipt, WEIR_AS_HELD, actual, 1, NOW), 3);
    assert_int_equal(used_of(weir, "tokens", NOW + 2 * S), 240);
    assert_int_equal(used_of(weir, "dollars", NOW + 2 * S), 47);
    /* Cancelled, nothing of any unit is left. */
    receipt = hold_units(weir, 100, 40);
    assert_int_equal(settle(weir, &receipt, 0, NOW), 3);
    assert_int_equal(used_of(weir, "tokens", NOW), 240);
    assert_int_equal(used_of(weir, "dollars", NOW), 47);
    assert_int_equal(used_of(weir, "", NOW), 2);
    weir_close(weir);
}

static void units_that_were_not_named_are_charged_when_settled(void **state)
{
    (void)state;
    struct weir *weir = open_rules(UNITS);
    struct weir_cost actual[] = { { WEIR_STR("tokens"), 120 }, { WEIR_STR("dollars"), 7 } };
    struct weir_receipt receipt = held(weir, 1, 1000, NOW);
    assert_int_equal(weir_settle(weir, &receipt, 1, actual, 2, NOW), 3);
    assert_int_equal(weir_settle(weir, &receipt, 1, actual, 2, NOW), 0);
    assert_int_equal(used_of(weir, "tokens", NOW), 120);
    assert_int_equal(used_of(weir, "dollars", NOW), 7);
    assert_int_equal(used_of(weir, "", NOW), 1);
    /* Late, and into the month, when the minute is over. */
    receipt = held(weir, 1, 1000, NOW);
    assert_int_equal(weir_settle(weir, &receipt, 1, actual, 1, NOW + 2 * S), 2);
    assert_int_equal(used_of(weir, "tokens", NOW + 2 * S), 240);
    receipt = held(weir, 1, 1000, NOW);
    assert_int_equal(weir_settle(weir, &receipt, 1, actual, 2, NOW + 90 * S), 1);
    assert_int_equal(used_of(weir, "dollars", NOW + 90 * S), 14);
    assert_int_equal(used_of(weir, "tokens", NOW + 90 * S), 0);
    /* Nothing is charged for those that are not named then, either, and a cancelled one leaves nothing. */
    receipt = held(weir, 1, 1000, NOW + 90 * S);
    assert_int_equal(weir_settle(weir, &receipt, 1, NULL, 0, NOW + 90 * S), 1);
    receipt = held(weir, 1, 1000, NOW + 90 * S);
    assert_int_equal(weir_refund(weir, &receipt, NOW + 90 * S), 1);
    assert_int_equal(used_of(weir, "", NOW + 90 * S), 1);
    assert_int_equal(used_of(weir, "dollars", NOW + 90 * S), 14);
    weir_close(weir);
}

/* ---- what is not a hold ---- */

static void wrong_arguments(void **state)
{
    (void)state;
    struct weir *weir = open_kind(0);
    struct weir_receipt receipt = held(weir, 1, 1000, NOW);
    struct weir_request request = reservation(1, 0, &receipt);
    struct weir_verdict verdict;
    assert_int_equal(weir_reserve(weir, &request, NOW, &verdict), WEIR_E_INVALID);
    assert_false(verdict.allowed);
    request.ttl_ms = WEIR_TTL_MAX_MS + 1;
    assert_int_equal(weir_reserve(weir, &request, NOW, &verdict), WEIR_E_INVALID);
    request = reservation(1, 1000, NULL);
    assert_int_equal(weir_reserve(weir, &request, NOW, &verdict), WEIR_E_INVALID);
    receipt = held(weir, 1, 1000, NOW);
    struct weir_cost huge = { WEIR_STR("tokens"), WEIR_AMOUNT_MAX + 1 };
    assert_int_equal(settle(weir, &receipt, WEIR_AMOUNT_MAX + 1, NOW), WEIR_E_INVALID);
    assert_int_equal(weir_settle(weir, &receipt, 1, &huge, 1, NOW), WEIR_E_INVALID);
    assert_int_equal(weir_settle(weir, &receipt, 1, &huge, WEIR_COSTS_MAX + 1, NOW), WEIR_E_INVALID);
    assert_int_equal(settle(weir, &receipt, 1, -1), WEIR_E_INVALID);
    assert_int_equal(weir_renew(weir, &receipt, 0, NOW), 0); /* it has no slots */
    assert_int_equal(weir_renew(weir, &receipt, WEIR_TTL_MAX_MS + 1, NOW), WEIR_E_INVALID);
    assert_int_equal(settle(weir, &receipt, 1, NOW), 1);
    weir_close(weir);
}

static void a_peek_holds_nothing(void **state)
{
    (void)state;
    struct weir *weir = open_kind(0);
    struct weir_receipt receipt = { .count = 9 };
    struct weir_request request = reservation(60, 1000, &receipt);
    request.peek = true;
    assert_true(check_at(weir, request, NOW).allowed);
    assert_int_equal(receipt.count, 0);
    assert_int_equal(left(weir, NOW), 100);
    weir_close(weir);
}

static void a_shadow_rule_holds_too(void **state)
{
    (void)state;
    struct weir *weir = open_rules("rules: [{ id: r, mode: shadow, by: [key], limits: [" FIXED("f", "2") "] }]");
    struct weir_receipt receipt = held(weir, 2, 1000, NOW);
    assert_int_equal(check_at(weir, one("e", "k"), NOW).shadow_count, 1);
    assert_int_equal(settle(weir, &receipt, 1, NOW), 1);
    assert_int_equal(check_at(weir, one("e", "k"), NOW).shadow_count, 0);
    weir_close(weir);
}

static void a_reset_forgets_holds(void **state)
{
    (void)state;
    struct weir *weir = open_kind(0);
    struct weir_receipt receipt = held(weir, 60, 1000, NOW);
    struct weir_str by = WEIR_STR("k");
    struct weir_error error;
    assert_int_equal(weir_reset(weir, "r", &by, 1, &error), 0);
    assert_int_equal(left(weir, NOW), 100);
    held(weir, 30, 60000, NOW);
    assert_int_equal(settle(weir, &receipt, 0, NOW), 0);
    assert_int_equal(left(weir, NOW), 70);
    assert_int_equal(left(weir, NOW + 2 * S), 70);
    weir_close(weir);
}

/* ---- clocks ---- */

static void a_clock_that_steps_back_locks_nobody_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir *weir = open_kind(i);
        held(weir, 60, 1000, NOW + 3600 * S);
        /* Whoever charges or is refused now shortens it. */
        check_at(weir, cost_of("e", "k", 100), NOW);
        check_at(weir, one("e", "k"), NOW);
        assert_in_range(left(weir, NOW + 3 * S), 90, 100);
        weir_close(weir);
    }
}

/* ---- many holds of one subject ---- */

static void hundreds_at_once(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = "rules: [" RULE("r", FIXED("f", "1000")) "]", .cells_keys = 100000 });
    static struct weir_receipt receipts[MANY];
    struct weir_receipt none;
    for (int i = 0; i < MANY; i++)
        receipts[i] = held(weir, 1, 1000 + (uint32_t)i, NOW + i);
    assert_false(reserve(weir, 1, 1000, NOW, &none));
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(settle(weir, &receipts[i], (uint64_t)(i % 4 != 0), NOW + MANY), 1);
    assert_int_equal(left(weir, NOW + MANY), 250);
    /* None of the others ends too early, and all of them end soon after their time. */
    assert_int_equal(left(weir, NOW + S), 250);
    assert_in_range(left(weir, NOW + S + 500 * MS), 250, 500);
    assert_int_equal(left(weir, NOW + 2 * S + 2 * MS), 750);
    weir_close(weir);
}

/* ---- random schedules, against a list of holds ---- */

enum { MOST = 50, STEPS = 4000, KEPT = 60, ENDS = 6 };

struct promise {
    struct weir_receipt receipt;
    uint64_t amount;
    int64_t until_us, window_us;
    bool open;
};

static uint64_t model_used(const struct promise *promises, uint64_t settled, int64_t now_us)
{
    uint64_t used = settled;
    for (int i = 0; i < KEPT; i++)
        used += promises[i].open && promises[i].until_us > now_us ? promises[i].amount : 0;
    return used;
}

/* A calendar window, so that its bounds are known; a table with large blocks, and at most ENDS holds at a time, so that
 * each ends exactly. */
static void schedules_follow_the_model(void **state)
{
    (void)state;
    static struct promise promises[KEPT];
    struct random random = { random_seed() };
    for (int round = 0; round < 20; round++) {
        struct weir *weir = open_with((struct weir_options){
            .rules_text = "rules: [" RULE("r", "{ name: y, calendar: year, max: 50 }") "]", .cells_keys = 100000 });
        int64_t now_us = NOW;
        uint64_t settled = 0;
        int open = 0;
        memset(promises, 0, sizeof promises);
        for (int step = 0; step < STEPS / 20; step++) {
            struct promise *p = &promises[random_in(&random, 0, KEPT - 1)];
            now_us += random_in(&random, 0, 300) * MS;
            open = 0;
            for (int i = 0; i < KEPT; i++)
                open += promises[i].open && promises[i].until_us > now_us;
            uint64_t used = model_used(promises, settled, now_us), cost = (uint64_t)random_in(&random, 1, 20);
            if (!p->open && open < ENDS) {
                uint32_t ttl_ms = (uint32_t)random_in(&random, 1, 2000);
                bool passes = reserve(weir, cost, ttl_ms, now_us, &p->receipt);
                assert_int_equal(passes, used + cost <= MOST);
                if (passes)
                    *p = (struct promise){ p->receipt, cost, now_us + ttl_ms * MS, 0, true };
            } else if (p->open && random_one_in(&random, 3)) {
                bool lives = p->until_us > now_us;
                assert_int_equal(weir_renew(weir, &p->receipt, 700, now_us), lives);
                p->until_us = lives ? now_us + 700 * MS : p->until_us;
            } else if (p->open) {
                uint64_t to = (uint64_t)random_in(&random, 0, (int64_t)p->amount + 2);
                bool nothing = to == 0 && p->until_us <= now_us; /* released already */
                assert_int_equal(settle(weir, &p->receipt, to, now_us), !nothing);
                settled += to;
                p->open = false;
            }
            used = model_used(promises, settled, now_us);
            assert_int_equal(left(weir, now_us), used < MOST ? MOST - used : 0);
        }
        weir_close(weir);
    }
}

/* ---- threads ---- */

enum { THREADS = 4, TRIES = 250 };

struct crowd {
    struct weir *weir;
    unsigned passed;
};

static void *reserve_many(void *data)
{
    struct crowd *crowd = data;
    for (int i = 0; i < TRIES; i++) {
        struct weir_receipt receipt;
        struct weir_request request = reservation(1, 60000, &receipt);
        struct weir_verdict verdict;
        weir_check(crowd->weir, &request, NOW, &verdict);
        __atomic_add_fetch(&crowd->passed, verdict.allowed, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

/* A thousand at once for a hundred: exactly a hundred pass. */
static void a_thousand_for_a_hundred(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct crowd crowd = { open_kind(i), 0 };
        pthread_t threads[THREADS];
        for (int k = 0; k < THREADS; k++)
            assert_int_equal(pthread_create(&threads[k], NULL, reserve_many, &crowd), 0);
        for (int k = 0; k < THREADS; k++)
            pthread_join(threads[k], NULL);
        assert_int_equal(crowd.passed, 100);
        assert_int_equal(left(crowd.weir, NOW), 0);
        assert_int_equal(left(crowd.weir, NOW + 59 * S) > 0, i == 2); /* a bucket fills meanwhile */
        weir_close(crowd.weir);
    }
}

static void *settle_one(void *data)
{
    struct promise *p = data;
    struct weir *weir = (struct weir *)(uintptr_t)p->window_us;
    int settled = settle(weir, &p->receipt, 10, NOW);
    __atomic_add_fetch(&p->amount, (uint64_t)settled, __ATOMIC_SEQ_CST);
    return NULL;
}

static void many_settle_it_once(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct weir *weir = open_kind(0);
        struct promise p = { .receipt = held(weir, 60, 1000, NOW), .window_us = (int64_t)(uintptr_t)weir };
        pthread_t threads[THREADS];
        for (int k = 0; k < THREADS; k++)
            assert_int_equal(pthread_create(&threads[k], NULL, settle_one, &p), 0);
        for (int k = 0; k < THREADS; k++)
            pthread_join(threads[k], NULL);
        assert_int_equal(p.amount, 1);
        assert_int_equal(left(weir, NOW), 90);
        weir_close(weir);
    }
}

/* ---- processes that are killed ---- */

#ifndef CROWD_TSAN

enum { PROCESSES = 4, KILLS = 40, BUDGET = 100, TTL_MS = 300 };

/* What the processes were told. */
struct shared {
    int64_t over_us; /* the ledger was exceeded */
    uint64_t releases;
    int64_t until_us[PROCESSES][BUDGET]; /* of each hold; 0: none */
};

/* Reads all, and again if something was released meanwhile: then the same unit may have been counted twice. */
static uint64_t in_ledger(const struct shared *shared)
{
    for (;;) {
        uint64_t sum = 0, releases = __atomic_load_n(&shared->releases, __ATOMIC_SEQ_CST);
        int64_t until_us[PROCESSES][BUDGET];
        for (int p = 0; p < PROCESSES; p++)
            for (int i = 0; i < BUDGET; i++)
                until_us[p][i] = __atomic_load_n(&shared->until_us[p][i], __ATOMIC_SEQ_CST);
        int64_t now_us = weir_now_us();
        for (int p = 0; p < PROCESSES; p++)
            for (int i = 0; i < BUDGET; i++)
                sum += until_us[p][i] > now_us;
        if (__atomic_load_n(&shared->releases, __ATOMIC_SEQ_CST) == releases)
            return sum;
    }
}

static void hold_and_settle(struct weir *weir, struct shared *shared, int p, struct random *random)
{
    static struct weir_receipt receipts[BUDGET];
    for (;;) {
        int i = (int)random_in(random, 0, BUDGET - 1);
        int64_t now_us = weir_now_us(), *until_us = &shared->until_us[p][i];
        if (*until_us > now_us && random_one_in(random, 2)) {
            __atomic_add_fetch(&shared->releases, 1, __ATOMIC_SEQ_CST);
            __atomic_store_n(until_us, 0, __ATOMIC_SEQ_CST);
            weir_refund(weir, &receipts[i], now_us);
        } else if (*until_us <= now_us && reserve(weir, 1, TTL_MS, now_us, &receipts[i])) {
            __atomic_store_n(until_us, now_us + TTL_MS * MS, __ATOMIC_SEQ_CST);
        }
        if (in_ledger(shared) > BUDGET)
            __atomic_store_n(&shared->over_us, now_us, __ATOMIC_SEQ_CST);
    }
}

static pid_t start_holder(struct weir_options options, struct shared *shared, int p)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct random random = { random_seed() + (uint64_t)getpid() };
    hold_and_settle(open_with(options), shared, p, &random);
    _exit(0);
}

static void killed_every_50_ms_they_never_exceed_it(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    struct weir_options options = { .rules_text = "rules: [" RULE("r", "{ name: y, calendar: year, max: 100 }") "]",
                                    .cells_file = folder_file(&folder, "cells"),
                                    .cells_keys = 10000 };
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    struct weir *weir = open_with(options);
    pid_t pids[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        pids[p] = start_holder(options, shared, p);
    for (int kill_no = 0; kill_no < KILLS; kill_no++) {
        nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000 * 1000 }, NULL);
        int p = kill_no % PROCESSES;
        kill(pids[p], SIGKILL);
        waitpid(pids[p], NULL, 0);
        /* Its receipts are gone; what it held ends by itself. */
        pids[p] = start_holder(options, shared, p);
    }
    for (int p = 0; p < PROCESSES; p++) {
        kill(pids[p], SIGKILL);
        waitpid(pids[p], NULL, 0);
    }
    int64_t end_us = weir_now_us();
    assert_int_equal(shared->over_us, 0);
    assert_int_equal(left(weir, end_us + 2 * TTL_MS * MS), BUDGET);
    weir_close(weir);
    munmap(shared, sizeof *shared);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_counts_at_once),
        cmocka_unit_test(less_is_given_back_and_more_is_owed),
        cmocka_unit_test(twice_is_once),
        cmocka_unit_test(a_cancelled_one_leaves_nothing),
        cmocka_unit_test(it_ends_by_itself),
        cmocka_unit_test(or_is_kept),
        cmocka_unit_test(settled_late_it_charges_what_is_true),
        cmocka_unit_test(a_bucket_is_repaid_once),
        cmocka_unit_test(a_bucket_repays_many_as_one),
        cmocka_unit_test(settled_late_into_another_window),
        cmocka_unit_test(a_window_that_is_over_takes_nothing),
        cmocka_unit_test(renewed_it_goes_on),
        cmocka_unit_test(a_changed_max_forgets_no_true_amount),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(units_are_settled_by_name),
        cmocka_unit_test(units_that_were_not_named_are_charged_when_settled),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(a_peek_holds_nothing),
        cmocka_unit_test(a_shadow_rule_holds_too),
        cmocka_unit_test(a_reset_forgets_holds),
        cmocka_unit_test(a_clock_that_steps_back_locks_nobody_out),
        cmocka_unit_test(hundreds_at_once),
        cmocka_unit_test(schedules_follow_the_model),
        cmocka_unit_test(a_thousand_for_a_hundred),
        cmocka_unit_test(many_settle_it_once),
#ifndef CROWD_TSAN
        cmocka_unit_test(killed_every_50_ms_they_never_exceed_it),
#endif
    };
    return cmocka_run_group_tests_name("engine/hold", tests, NULL, NULL);
}
