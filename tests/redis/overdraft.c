/* Limits with overdraft that count in a real redis-server: exact, leased, and while the store does not answer. */
#include "hosts.h"

#include <signal.h>

static void test_overdraft(void **state)
{
    (void)state;
    static const char rules[] = "- { id: x, match: { event: x }, by: [key], limits: [{ max: 100, per: 1h, algorithm: "
                                "fixed_window, overdraft: true }] }\n"
                                "- { id: y, match: { event: y }, by: [key], limits: [{ max: 100, per: 100d, overdraft: "
                                "true }, { name: n, max: 500, per: "
                                "100d }] }\n"
                                "- { id: s, match: { event: s }, by: [key], lease: { slice: 10%, ttl: 100ms },\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, overdraft: true }] }\n";
    struct weir *a = open_host("overdraft", rules, (struct weir_options){ 0 });
    struct weir *b = open_host("overdraft", rules, (struct weir_options){ 0 });
    /* exact */
    assert_int_equal(passes_now(a, cost_of("x", "u", 99), 1), 1);
    struct weir_verdict v = check_now(b, cost_of("x", "u", 5000));
    assert_true(v.allowed);
    assert_int_equal(v.remaining, 0);
    assert_int_equal(v.debt, 4999);
    v = check_now(a, cost_of("x", "u", 5000));
    assert_false(v.allowed);
    assert_int_equal(v.debt, 4999);
    assert_true(v.retry_after_ms > 0);
    /* All or nothing: what was overdrawn is not charged if the other limit refuses. */
    assert_false(check_now(a, cost_of("y", "u", 501)).allowed);
    v = check_now(b, cost_of("y", "u", 500));
    assert_true(v.allowed);
    assert_int_equal(v.debt, 400);
    /* A receipt gives all of it back. */
    struct weir_receipt receipt;
    struct weir_request request = cost_of("x", "v", UINT64_MAX);
    request.receipt = &receipt;
    assert_int_equal(passes_now(a, cost_of("x", "v", 40), 1), 1);
    assert_true(check_now(a, request).allowed);
    assert_false(check_now(b, one("x", "v")).allowed);
    assert_int_equal(weir_refund(a, &receipt, weir_now_us()), 1);
    for (int i = 0; i < 1000 && check_now(b, peek_of("x", "v", 0)).remaining != 60; i++)
        usleep(5000);
    assert_int_equal(check_now(b, peek_of("x", "v", 0)).remaining, 60);
    /* leased: the slice pays what it has, the rest is owed to the store, and no host passes anything more */
    v = check_now(a, cost_of("s", "u", 5000));
    assert_true(v.allowed);
    assert_int_equal(v.remaining, 0);
    assert_true(v.debt >= 4900);
    assert_int_equal(passes_now(a, one("s", "u"), 20), 0);
    for (int i = 0; i < 1000 && passes_now(b, peek_of("s", "u", 1), 1) > 0 && passes_now(b, one("s", "u"), 1) > 0; i++)
        usleep(5000);
    assert_int_equal(passes_now(b, cost_of("s", "u", 7), 20), 0);
    /* More than a slice can hold is no obstacle. */
    assert_true(check_now(b, cost_of("s", "w", UINT64_C(1) << 40)).allowed);
    assert_int_equal(passes_now(b, one("s", "w"), 20), 0);
    weir_close(a);
    weir_close(b);
}

/* Without the store: the share of this host is overdrawn, and the store is told later. */
static void test_overdraft_without_the_store(void **state)
{
    (void)state;
    static const char rules[] =
        "- { id: x, match: { event: x }, by: [key], on_store_failure: local,\n"
        "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, overdraft: true }] }\n"
        "- { id: s, match: { event: s }, by: [key], on_store_failure: local, lease: { slice: 10%, ttl: 100ms },\n"
        "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, overdraft: true }] }\n";
    struct weir *weir = open_host("overdrawn", rules, (struct weir_options){ .store_deadline_ms = 50, .store_hosts = 2 });
    pid_t process = server_process();
    struct weir_store_status status = { .up = true };
    kill(process, SIGSTOP);
    static const char *const events[] = { "x", "s" };
    for (size_t i = 0; i < 2; i++) {
        struct weir_verdict v = check_now(weir, cost_of(events[i], "u", 5000));
        assert_true(v.allowed);
        assert_int_equal(v.remaining, 0);
        assert_true(v.debt >= 4900);
        v = check_now(weir, cost_of(events[i], "u", 5000));
        assert_false(v.allowed);
        assert_false(v.unavailable);
        assert_true(v.retry_after_ms > 0);
    }
    kill(process, SIGCONT);
    for (int i = 0; i < 2000 && (weir_store_status(weir, &status), !status.up); i++)
        usleep(5000);
    assert_true(status.up);
    /* A stand-in, whose max is 50, decides for a store that is late. What it had counted was given back to it if the store
     * has counted that after all. If it was not even sent, it is owed, and the next call that is sent tells the store. */
    for (size_t i = 0; i < 2; i++)
        for (int n = 0, tries = 0; n < 5; tries++) {
            struct weir_verdict v = check_now(weir, one(events[i], "u"));
            assert_false(v.allowed && v.max == 100);
            n += v.max == 100;
            assert_true(tries < 1000);
            usleep(60000);
        }
    weir_close(weir);
}

/* Lets a request through while the server stands still. Returns whether the store was asked for a slice then: on a slow
 * machine it is taken for unreachable before that. */
static bool pass_without(struct weir *weir, const char *key)
{
    struct weir_store_status status;
    pid_t process = server_process();
    weir_store_status(weir, &status);
    uint64_t calls = status.calls;
    kill(process, SIGSTOP);
    bool passed = check_now(weir, cost_of("s", key, 5000)).allowed;
    for (int i = 0; i < 40 && (weir_store_status(weir, &status), status.calls == calls); i++)
        usleep(5000);
    kill(process, SIGCONT);
    assert_true(passed);
    wait_until_up(weir, 0);
    return status.calls > calls;
}

/* Lets a request through, and waits for the slice that it had asked for. Returns whether one came that was asked for before
 * there was a debt: on a slow machine the ask is sent after that, and takes the debt along. *ret_paid is what was paid
 * before. */
static bool slice_comes_late(struct weir *weir, const char *key, uint64_t *ret_paid)
{
    struct weir_store_status status;
    weir_store_status(weir, &status);
    *ret_paid = status.reconciled;
    if (!pass_without(weir, key))
        return false;
    for (int i = 0; i < 2000 && (weir_store_status(weir, &status), status.lent == 0 && status.reconciled == *ret_paid); i++)
        usleep(5000);
    return status.lent > 0;
}

/* The slice that the request waited for comes after it was let through without: it pays a part of the debt. */
static void test_a_slice_that_comes_late(void **state)
{
    (void)state;
    static const char rules[] = "- { id: s, by: [key], on_store_failure: local, lease: { slice: 10%, ttl: 60s },\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, overdraft: true }] }\n";
    struct weir *weir = open_host("late", rules, (struct weir_options){ .store_deadline_ms = 50 });
    struct weir_store_status status = { 0 };
    uint64_t paid;
    char key[] = "a";
    while (!slice_comes_late(weir, key, &paid) && key[0] < 'z')
        key[0]++;
    weir_store_status(weir, &status);
    assert_int_equal(status.lent, 10);
    for (int i = 0; i < 20; i++)
        assert_false(check_now(weir, cost_of("s", key, 5000)).allowed);
    for (int i = 0; i < 1000 && (weir_store_status(weir, &status), status.reconciled < paid + 5000); i++) {
        assert_false(check_now(weir, one("s", key)).allowed);
        usleep(5000);
    }
    assert_int_equal(status.reconciled, paid + 5000);
    weir_close(weir);
}

/* What the slice paid and what is owed both come back, whether or not the store has been told of the debt. */
static void test_refund_of_a_slice(void **state)
{
    (void)state;
    static const char rules[] = "- { id: s, by: [key], lease: { slice: 10%, ttl: 100ms },\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, overdraft: true }] }\n";
    for (unsigned wait_us = 0; wait_us <= 100000; wait_us += 100000) {
        struct weir *weir = open_host(wait_us ? "later" : "soon", rules, (struct weir_options){ 0 });
        struct weir_receipt receipt;
        struct weir_request request = cost_of("s", "u", 5000);
        request.receipt = &receipt;
        assert_int_equal(passes_now(weir, cost_of("s", "u", 10), 1), 1);
        assert_true(check_now(weir, request).allowed);
        usleep(wait_us);
        assert_int_equal(weir_refund(weir, &receipt, weir_now_us()), 1);
        assert_int_equal(weir_refund(weir, &receipt, weir_now_us()), 0);
        unsigned passed = 0;
        for (int i = 0; i < 2000 && passed < 90; i++) {
            passed += passes_now(weir, one("s", "u"), 1);
            usleep(passed < 50 ? 0 : 5000);
        }
        assert_int_equal(passed, 90);
        usleep(200000);
        assert_int_equal(passes_now(weir, one("s", "u"), 20), 0);
        weir_close(weir);
    }
}

/* The store refuses what a slice was overdrawn for: both the slice and the debt are as before. The slice is not returned
 * while the store is asked, however long that takes: what was taken out of it would have no place to come back to. */
static void test_refused_by_the_store(void **state)
{
    (void)state;
    static const char rules[] = "- { id: s, by: [key], lease: { slice: 10%, ttl: 60s },\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window, unit: t, overdraft: true }] }\n"
                                "- { id: x, by: [key], limits: [{ max: 300, per: 1h, algorithm: fixed_window }] }\n";
    struct weir *weir = open_host("mixed", rules, (struct weir_options){ 0 });
    struct weir_cost cost = { WEIR_STR("t"), 1 };
    struct weir_request request = cost_of("e", "u", 1);
    request.costs = &cost;
    request.cost_count = 1;
    unsigned passed = passes_now(weir, request, 5);
    assert_int_equal(passed, 5);
    request.cost = 300;
    cost.amount = 5000;
    assert_int_equal(passes_now(weir, request, 20), 0);
    request.cost = cost.amount = 1;
    for (int i = 0; i < 2000 && passed < 100; i++) {
        passed += passes_now(weir, request, 1);
        usleep(passed < 50 ? 0 : 5000);
    }
    assert_int_equal(passed, 100);
    usleep(200000);
    assert_int_equal(passes_now(weir, request, 20), 0);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overdraft),
        cmocka_unit_test(test_overdraft_without_the_store),
        cmocka_unit_test(test_a_slice_that_comes_late),
        cmocka_unit_test(test_refund_of_a_slice),
        cmocka_unit_test(test_refused_by_the_store),
    };
    return cmocka_run_group_tests_name("redis/overdraft", tests, start, stop);
}
