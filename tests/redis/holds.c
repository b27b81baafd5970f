/* Holds and receipts of the C library whose rules count in a real redis-server, also while it does not answer. */
#include "hosts.h"

static struct weir_request held_for(const char *event, uint64_t cost, uint32_t ttl_ms, struct weir_receipt *receipt)
{
    struct weir_request request = cost_of(event, "u", cost);
    request.ttl_ms = ttl_ms;
    request.receipt = receipt;
    return request;
}

/* The receipt of a hold whose answer is late names nothing: what passed is charged, and stays. The deadline is long enough
 * for a busy machine to send the call: one that was not sent has no late answer. */
static void test_late_hold(void **state)
{
    (void)state;
    struct weir *weir = open_host("latehold", AWAY, (struct weir_options){ .store_deadline_ms = 300, .store_hosts = 2 });
    struct weir_receipt receipt;
    pid_t process = server_process();
    kill(process, SIGSTOP);
    assert_false(check_now(weir, held_for("d", 4, 600000, &receipt)).allowed);
    assert_true(check_now(weir, held_for("l", 4, 100, &receipt)).allowed);
    assert_int_equal(receipt.count, 0);
    kill(process, SIGCONT);
    wait_until_up(weir, 2);
    usleep(200000); /* longer than the hold would have lasted */
    assert_int_equal(left_in_store(weir, "d"), 10);
    assert_int_equal(left_in_store(weir, "l"), 6);
    /* Somebody who needs the room does not find it. */
    struct weir_verdict verdict;
    do
        verdict = check_now(weir, cost_of("l", "u", 7));
    while (verdict.max != 10);
    assert_false(verdict.allowed);
    weir_close(weir);
}

/* While the store is unavailable, reservations are charges: they are owed to it, and end neither here nor there. */
static void test_hold_on_a_standin(void **state)
{
    (void)state;
    struct weir *weir = open_host("standhold", AWAY, (struct weir_options){ .store_deadline_ms = 20, .store_hosts = 2 });
    struct weir_receipt receipt;
    pid_t process = server_process();
    kill(process, SIGSTOP);
    open_breaker(weir);
    for (int i = 0; i < 5; i++) {
        assert_true(check_now(weir, held_for("l", 1, 1, &receipt)).allowed);
        assert_int_equal(receipt.count, 0);
    }
    usleep(20000);
    assert_false(check_now(weir, held_for("l", 1, 1, &receipt)).allowed);
    kill(process, SIGCONT);
    wait_until_up(weir, 0);
    assert_int_equal(left_when_paid(weir, "l", 5), 5);
    weir_close(weir);
}

/* A local and an exact rule hold together or not at all. */
static void test_mixed_holds(void **state)
{
    (void)state;
    struct weir *weir =
        open_host("mixhold",
                  "- { id: here, match: { event: e }, by: [key], counters: local, limits: [{ max: 10, per: 1h, "
                  "algorithm: fixed_window }] }\n"
                  "- { id: there, match: { event: e }, by: [key], limits: [{ max: 5, per: 1h, algorithm: "
                  "fixed_window }] }\n",
                  (struct weir_options){ 0 });
    struct weir_receipt first, second;
    assert_true(check_now(weir, held_for("e", 5, 600000, &first)).allowed);
    assert_int_equal(first.count, 2);
    assert_true(first.store_seal != 0);
    assert_false(check_now(weir, held_for("e", 1, 600000, &second)).allowed);
    assert_int_equal(second.count, 0);
    assert_int_equal(weir_settle(weir, &first, 2, NULL, 0, weir_now_us()), 2);
    assert_int_equal(weir_settle(weir, &first, 0, NULL, 0, weir_now_us()), 0);
    struct weir_verdict verdict;
    int tries = 0;
    do {
        usleep(5000); /* it is sent, and nobody waits for it */
        verdict = check_now(weir, held_for("e", 3, 100, &second));
    } while (!verdict.allowed && tries++ < 1000);
    assert_true(verdict.allowed);
    assert_int_equal(verdict.remaining, 0);
    /* Both end by themselves. */
    tries = 0;
    do {
        usleep(10000);
        verdict = check_now(weir, peek_of("e", "u", 3));
    } while (!verdict.allowed && tries++ < 1000);
    assert_true(verdict.allowed);
    assert_int_equal(weir_renew(weir, &second, 1000, weir_now_us()), 1); /* the store was told, and knows it is over */
    weir_close(weir);
}

/* Shadow rules were charged as the others were. */
static void test_refund_of_shadows(void **state)
{
    (void)state;
    struct weir *weir = open_host(
        "refund",
        "- { id: dark, mode: shadow, match: { event: e }, by: [key], limits: [{ max: 2, per: 1h, algorithm: fixed_window "
        "}] }\n"
        "- { id: real, match: { event: e }, by: [key], limits: [{ max: 3, per: 1h, algorithm: fixed_window }] }\n",
        (struct weir_options){ 0 });
    struct weir_receipt receipt;
    for (int i = 0; i < 5; i++) {
        struct weir_request request = one("e", "u");
        request.receipt = &receipt;
        struct weir_verdict verdict = check_now(weir, request);
        assert_true(verdict.allowed);
        assert_int_equal(verdict.remaining, 2);
        assert_int_equal(verdict.shadow_count, 0);
        assert_int_equal(receipt.count, 2);
        assert_int_equal(weir_refund(weir, &receipt, weir_now_us()), 2);
        usleep(20000); /* it is sent, and nobody waits for it */
    }
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_hold),
        cmocka_unit_test(test_hold_on_a_standin),
        cmocka_unit_test(test_mixed_holds),
        cmocka_unit_test(test_refund_of_shadows),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
