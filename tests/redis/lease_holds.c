/* Holds of leased rules, of two handles of the C library that count in one real redis-server. */
#include "hosts.h"

static const char RULES[] =
    "- { id: s, match: { event: s }, by: [key], lease: { slice: 10%, ttl: 100ms }, on_store_failure: deny,\n"
    "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: c, match: { event: c }, by: [key], lease: { slice: 10%, ttl: 100ms }, on_store_failure: deny,\n"
    "    limits: [{ calendar: year, max: 100 }] }\n"
    "- { id: o, match: { event: o }, by: [key], lease: { slice: 10%, ttl: 100ms }, on_store_failure: deny,\n"
    "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, overdraft: true }] }\n"
    "- { id: dark, mode: shadow, match: { event: d }, by: [key], lease: { slice: 10%, ttl: 100ms },\n"
    "    limits: [{ max: 60, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: m, hold_max: 50%, match: { event: m }, by: [key], lease: { slice: 10%, ttl: 100ms },\n"
    "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: here, match: { event: x }, by: [key], counters: local,\n"
    "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: there, match: { event: x }, by: [key], on_store_failure: deny,\n"
    "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n"
    "- { id: lent, match: { event: x }, by: [key], lease: { slice: 10%, ttl: 100ms }, on_store_failure: deny,\n"
    "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n";

#define WINDOW "fixed_window.f"
enum { LONG_MS = 600000 };

static struct weir *first, *second;

/* The two have slices of the same counts. */
static void open_both(const char *prefix)
{
    first = open_host(prefix, RULES, (struct weir_options){ 0 });
    second = open_host(prefix, RULES, (struct weir_options){ 0 });
}

static void close_both(void)
{
    weir_close(first);
    weir_close(second);
}

static bool reserve(struct weir *weir, const char *event, uint64_t cost, uint32_t ttl_ms, struct weir_receipt *receipt)
{
    struct weir_request request = cost_of(event, "u", cost);
    request.ttl_ms = ttl_ms;
    request.receipt = receipt;
    return check_now(weir, request).allowed;
}

/* Asks until it passes: what was given back is on its way, and slices of other hosts are. */
static void passes_soon(struct weir *weir, const char *event, uint64_t cost)
{
    for (int i = 0; i < 2000; i++) {
        if (check_now(weir, cost_of(event, "u", cost)).allowed)
            return;
        usleep(5000);
    }
    fail_msg("%s: %llu never passed", event, (unsigned long long)cost);
}

/* All that a window has is used: nothing passes on either host, also after idle slices were given back. */
static void is_spent(const char *event)
{
    usleep(400000);
    for (int i = 0; i < 3; i++) {
        assert_false(check_now(first, cost_of(event, "u", 1)).allowed);
        assert_false(check_now(second, cost_of(event, "u", 1)).allowed);
        usleep(100000);
    }
}

/* Waits until the store counts this much: messages may be on their way. */
static void counts_soon(const char *key, const char *field, double count)
{
    double numbers[3] = { 0 };
    struct talk talk;
    struct reply reply;
    assert_true(talk_open(&talk, &server));
    for (int i = 0; i < 2000; i++) {
        talk_write(&talk, "HGET", key, field, NULL);
        assert_true(talk_read(&talk, &reply));
        if (reply.text.len == sizeof numbers)
            memcpy(numbers, reply.text.ptr, sizeof numbers);
        if (numbers[2] == count)
            break;
        usleep(5000);
    }
    talk_close(&talk);
    if (numbers[2] != count)
        fail_msg("%s: %g, not %g", key, numbers[2], count);
}

/* Returns how many members the set of holds has. */
static int64_t members(const char *key)
{
    struct talk talk;
    struct reply reply;
    assert_true(talk_open(&talk, &server));
    talk_write(&talk, "ZCARD", key, NULL);
    assert_true(talk_read(&talk, &reply) && reply.kind == REPLY_INTEGER);
    talk_close(&talk);
    return reply.integer;
}

/* ---- the end of a hold ---- */

static void test_ends_by_itself(void **state)
{
    (void)state;
    open_both("ends");
    static const char *const events[] = { "s", "c" };
    for (int i = 0; i < 2; i++) {
        struct weir_receipt receipt;
        assert_true(reserve(first, events[i], 100, 300, &receipt));
        assert_int_equal(receipt.count, 1);
        assert_true(receipt.hold != 0 && receipt.store_seal != 0);
        bool passes = check_now(second, cost_of(events[i], "u", 1)).allowed;
        if (weir_now_us() >= receipt.until_us)
            continue; /* the machine stood still */
        assert_false(passes);
        passes_soon(second, events[i], 100);
        is_spent(events[i]);
    }
    close_both();
}

/* Nobody can settle it, and it ends. */
static void test_without_a_receipt(void **state)
{
    (void)state;
    open_both("none");
    assert_true(reserve(first, "s", 100, 300, NULL));
    passes_soon(second, "s", 100);
    is_spent("s");
    close_both();
}

static void test_kept(void **state)
{
    (void)state;
    open_both("kept");
    struct weir_receipt receipt;
    struct weir_request request = cost_of("s", "u", 100);
    request.ttl_ms = 1;
    request.keep = true;
    request.receipt = &receipt;
    assert_true(check_now(first, request).allowed);
    is_spent("s");
    assert_int_equal(members("kept:1:{u}:s:key:h"), 0);
    assert_int_equal(weir_renew(second, &receipt, LONG_MS, weir_now_us()), 0);
    assert_int_equal(weir_settle(second, &receipt, 40, NULL, 0, weir_now_us()), 1);
    counts_soon("kept:1:{u}:s:key", WINDOW, 40);
    weir_settle(first, &receipt, 0, NULL, 0, weir_now_us());
    passes_soon(second, "s", 60);
    is_spent("s");
    close_both();
}

/* The handle is gone; what it held is free after its time to live. */
static void test_closed(void **state)
{
    (void)state;
    open_both("closed");
    struct weir_receipt receipt;
    assert_true(reserve(first, "s", 90, 300, &receipt));
    weir_close(first);
    passes_soon(second, "s", 100);
    assert_false(check_now(second, cost_of("s", "u", 1)).allowed);
    weir_close(second);
}

/* ---- settling ---- */

static void test_settled(void **state)
{
    (void)state;
    open_both("settled");
    struct weir_receipt before, after, more;
    int64_t now_us = weir_now_us();
    /* before its end, on the other host, and again on both */
    assert_true(reserve(first, "s", 60, LONG_MS, &before));
    assert_int_equal(weir_settle(second, &before, 25, NULL, 0, now_us), 1);
    counts_soon("settled:1:{u}:s:key", WINDOW, 25);
    weir_settle(second, &before, 0, NULL, 0, now_us);
    weir_settle(first, &before, 7, NULL, 0, now_us);
    passes_soon(first, "s", 75);
    is_spent("s");
    /* after its end, when somebody has the room by now: its true amount is charged */
    assert_true(reserve(first, "c", 100, 50, &after));
    passes_soon(second, "c", 90);
    assert_int_equal(weir_settle(second, &after, 10, NULL, 0, weir_now_us()), 1);
    counts_soon("settled:1:{u}:c:key", "year.c", 100);
    weir_settle(first, &after, 0, NULL, 0, weir_now_us());
    is_spent("c");
    /* as held, and renewing what was settled: it does not end */
    assert_true(reserve(first, "m", 50, 200, &more));
    assert_int_equal(weir_release(second, &more, weir_now_us()), 1);
    weir_renew(first, &more, 1, weir_now_us());
    passes_soon(second, "m", 50);
    is_spent("m");
    close_both();
}

/* A settlement with more than there is room for. */
static void test_more(void **state)
{
    (void)state;
    open_both("more");
    struct weir_receipt receipt;
    assert_true(reserve(first, "s", 10, LONG_MS, &receipt));
    assert_int_equal(weir_settle(second, &receipt, 5000, NULL, 0, weir_now_us()), 1);
    counts_soon("more:1:{u}:s:key", WINDOW, 5000);
    is_spent("s");
    close_both();
}

static void test_renewed(void **state)
{
    (void)state;
    open_both("renewed");
    struct weir_receipt receipt;
    assert_true(reserve(first, "s", 100, 1500, &receipt));
    assert_int_equal(weir_renew(second, &receipt, LONG_MS, weir_now_us()), 1);
    usleep(1700000);
    is_spent("s");
    assert_int_equal(weir_renew(second, &receipt, 100, weir_now_us()), 1);
    passes_soon(first, "s", 100);
    is_spent("s");
    close_both();
}

/* ---- beside other rules ---- */

/* All three kinds of counters hold and end together. */
static void test_mixed(void **state)
{
    (void)state;
    open_both("mixed");
    struct weir_receipt receipt, refused;
    assert_true(reserve(first, "x", 100, 300, &receipt));
    assert_int_equal(receipt.count, 3);
    bool passes = reserve(first, "x", 1, 300, &refused);
    if (weir_now_us() < receipt.until_us)
        assert_int_equal(passes + refused.count, 0);
    passes_soon(first, "x", 100);
    close_both();
    /* One refuses: nothing was entered, and what the slice gave is back. */
    open_both("refused");
    assert_true(check_now(second, cost_of("x", "u", 1)).allowed); /* there has 99 left for the first */
    assert_false(reserve(first, "x", 100, LONG_MS, &refused));
    assert_int_equal(members("refused:1:{u}:lent:key:h"), 0);
    passes_soon(first, "x", 99);
    close_both();
}

static void test_shadow(void **state)
{
    (void)state;
    open_both("shadow");
    struct weir_receipt receipt;
    struct weir_request request = cost_of("d", "u", 60);
    struct weir_verdict verdict;
    for (int i = 0; i < 2000; i++) { /* a slice of a shadow rule is not waited for */
        assert_true(reserve(first, "d", 60, 300, &receipt));
        if (receipt.count == 1)
            break;
        usleep(5000);
    }
    assert_int_equal(receipt.count, 1);
    assert_true(receipt.hold != 0);
    for (int i = 0; i < 2000; i++) {
        request.receipt = &receipt;
        verdict = check_now(second, request);
        assert_true(verdict.allowed);
        if (receipt.count == 1)
            break;
        usleep(5000);
    }
    assert_int_equal(receipt.count, 1);
    close_both();
}

/* A path with two readings, each with a plan of its own, holds for both. */
static void test_plans(void **state)
{
    (void)state;
    static const char rules[] =
        "- { id: p, by: [key], lease: { slice: 10%, ttl: 100ms }, on_store_failure: deny, plan: path,\n"
        "    plans: { /a/b: [{ name: n, max: 100, per: 1h, algorithm: fixed_window }] },\n"
        "    limits: [{ name: n, max: 60, per: 1h, algorithm: fixed_window }] }\n";
    struct weir *weir = open_host("plans", rules, (struct weir_options){ 0 });
    struct weir_receipt receipt;
    struct weir_request both = cost_of("e", "u", 20), all = cost_of("e", "u", 100);
    both.path = weir_str("/a%2Fb");
    both.ttl_ms = 300;
    both.receipt = &receipt;
    all.path = weir_str("/a/b");
    assert_true(check_now(weir, both).allowed);
    assert_int_equal(receipt.count, 2);
    for (int i = 0; i < 2000 && members("plans:1:{u}:p:key:h") < 2; i++)
        usleep(1000);
    assert_int_equal(members("plans:1:{u}:p:key:h"), 2);
    unsigned passed = 0;
    for (int i = 0; i < 2000 && passed == 0; i++, usleep(5000))
        passed = passes_now(weir, all, 1);
    assert_int_equal(passed, 1);
    assert_int_equal(weir_settle(weir, &receipt, 7, NULL, 0, weir_now_us()), 2);
    counts_soon("plans:1:{u}:p:key", "n.f", 114);
    weir_close(weir);
}

static void test_bounds(void **state)
{
    (void)state;
    open_both("bounds");
    struct weir_receipt receipt;
    struct weir_request peek = peek_of("m", "u", 1);
    /* hold_max is 50% */
    assert_false(reserve(first, "m", 51, LONG_MS, &receipt));
    assert_int_equal(receipt.count, 0);
    assert_true(reserve(first, "m", 50, LONG_MS, &receipt));
    assert_int_equal(receipt.count, 1);
    /* Neither a peek nor a cost of 0 holds anything. */
    peek.ttl_ms = LONG_MS;
    peek.receipt = &receipt;
    assert_true(check_now(first, peek).allowed);
    assert_int_equal(receipt.count, 0);
    assert_true(reserve(first, "m", 0, LONG_MS, &receipt));
    assert_int_equal(receipt.count, 0);
    passes_soon(second, "m", 50);
    is_spent("m");
    assert_int_equal(members("bounds:1:{u}:m:key:h"), 1);
    close_both();
}

/* ---- overdrawn slices ---- */

/* What the slice paid and what is owed end together, on whichever host and in whichever way. */
static void test_overdrawn(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        open_both(way == 0 ? "over" : way == 1 ? "oversettled" : "overlate");
        struct weir_receipt receipt;
        assert_true(check_now(second, cost_of("o", "u", 20)).allowed);
        assert_true(reserve(first, "o", 5000, way == 1 ? LONG_MS : 300, &receipt));
        if (way == 1)
            is_spent("o");
        if (way == 1)
            assert_int_equal(weir_settle(second, &receipt, 30, NULL, 0, weir_now_us()), 1);
        /* Overdraft would let a larger one pass as soon as anything is left. */
        unsigned passed = 0, left = way == 1 ? 50 : 80;
        for (int i = 0; i < 2000 && passed < left; i++) {
            passed += passes_now(second, cost_of("o", "u", 1), 1);
            usleep(2000);
        }
        assert_int_equal(passed, left);
        is_spent("o");
        if (way == 2) {
            assert_int_equal(weir_settle(second, &receipt, 500, NULL, 0, weir_now_us()), 1);
            counts_soon("overlate:1:{u}:o:key", WINDOW, 600);
        }
        close_both();
    }
}

/* ---- the store is unavailable ---- */

static void test_without_the_store(void **state)
{
    (void)state;
    static const char local[] = "- { id: s, by: [key], lease: { slice: 50%, ttl: 10s },\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n"
                                "- { id: a, match: { event: a }, by: [key], on_store_failure: allow,\n"
                                "    limits: [{ max: 10, per: 1h, algorithm: fixed_window }] }\n";
    struct weir *weir = open_host("outage", local, (struct weir_options){ .store_deadline_ms = 50, .store_hosts = 1 });
    struct weir_receipt receipt;
    pid_t process = server_process();
    while (passes_now(weir, cost_of("s", "u", 10), 1) == 0)
        usleep(1000);
    kill(process, SIGSTOP);
    open_breaker(weir);
    /* The slice is spent as before. The store does not learn of it: it stays a charge, which can be settled later. */
    assert_true(reserve(weir, "s", 20, 1, &receipt));
    assert_int_equal(receipt.count, 1);
    assert_int_equal(weir_settle(weir, &receipt, 0, NULL, 0, weir_now_us()), 0);
    kill(process, SIGCONT);
    wait_until_up(weir, 0);
    assert_int_equal(members("outage:1:{u}:s:key:h"), 0);
    int64_t told = 0;
    for (int i = 0; i < 2000 && told == 0; i++) {
        told = weir_settle(weir, &receipt, 5, NULL, 0, weir_now_us());
        usleep(5000);
    }
    assert_true(members("outage:1:{u}:s:key:h") <= 1);
    weir_close(weir);
    counts_soon("outage:1:{u}:s:key", WINDOW, 15);
}

/* A process without a connection cannot tell the store: its hold stays a charge, until somebody with one renews or settles
 * it. */
static void test_without_a_connection(void **state)
{
    (void)state;
    static const char rules[] = "- { id: s, by: [key], lease: { slice: 10%, ttl: 10s }, on_store_failure: deny,\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n";
    struct folder folder;
    folder_make(&folder);
    const char *cells = folder_file(&folder, "cells");
    struct weir *lender = open_host("alone", rules, (struct weir_options){ .cells_file = cells });
    struct weir *alone = open_with((struct weir_options){
        .cells_file = folder_file(&folder, "cells"), .rules_text = file_of(rules), .never_wait = true });
    struct weir_receipt settled, renewed;
    passes_soon(lender, "s", 1); /* some of the slice is left, or it comes soon */
    for (int i = 0; i < 2000 && !reserve(alone, "s", 2, 1, &settled); i++)
        usleep(5000);
    for (int i = 0; i < 2000 && !reserve(alone, "s", 2, LONG_MS, &renewed); i++)
        usleep(5000);
    assert_int_equal(settled.count, 1);
    assert_int_equal(renewed.count, 1);
    assert_int_equal(members("alone:1:{u}:s:key:h"), 0);
    assert_int_equal(weir_renew(lender, &renewed, 1, weir_now_us()), 1);
    assert_int_equal(weir_settle(lender, &settled, 0, NULL, 0, weir_now_us()), 1);
    weir_close(alone);
    /* One mark, and one hold that is over: all but 1 is free. */
    for (int i = 0; i < 2000 && members("alone:1:{u}:s:key:h") < 2; i++)
        usleep(1000);
    assert_int_equal(members("alone:1:{u}:s:key:h"), 2);
    passes_soon(lender, "s", 99);
    assert_false(check_now(lender, cost_of("s", "u", 1)).allowed);
    weir_close(lender);
    static const char *const files[] = { "cells", NULL };
    folder_remove(&folder, files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_by_itself),
        cmocka_unit_test(test_without_a_receipt),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_more),
        cmocka_unit_test(test_renewed),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_shadow),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_overdrawn),
        cmocka_unit_test(test_without_the_store),
        cmocka_unit_test(test_without_a_connection),
    };
    return cmocka_run_group_tests_name("redis/lease_holds", tests, start, stop);
}
