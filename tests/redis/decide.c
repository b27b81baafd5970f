/* Decisions of the C library whose rules count in a real redis-server: of threads that block, of event loops, in slices,
 * and while the store does not answer. Every test has keys of its own by its prefix. */
#include "hosts.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "engine/explain.h"
#include "engine/handle.h"

static int64_t server_counts(const char *what)
{
    char text[8000], *at;
    ask_server(text, sizeof text, "INFO", "commandstats", NULL);
    at = strstr(text, what);
    return at ? strtoll(strstr(at, "calls=") + 6, NULL, 10) : 0;
}

/* ---- exact ---- */

static void test_two_hosts(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "- { id: r, match: { event: e }, by: [key], limits: [{ max: 7, per: 1h, algorithm: fixed_window }] }",
        "- { id: r, match: { event: e }, by: [key], limits: [{ max: 7, per: 1h, algorithm: sliding_window }] }",
        "- { id: r, match: { event: e }, by: [key], limits: [{ max: 7, per: 100d }] }",
        "- { id: r, match: { event: e }, by: [key], limits: [{ max: 7, calendar: year, tz: Asia/Shanghai }] }",
        "- { id: r, match: { event: e }, by: [key], limits: [{ max: 7, calendar: year }, { max: 9, per: 100d }] }",
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct weir *a = open_host("two", rules[i], (struct weir_options){ 0 });
        struct weir *b = open_host("two", rules[i], (struct weir_options){ 0 });
        char key[8];
        snprintf(key, sizeof key, "u%zu", i);
        struct weir_request request = one("e", key);
        struct weir_verdict verdict = check_now(a, request);
        assert_true(verdict.allowed);
        assert_int_equal(verdict.max, 7);
        assert_int_equal(verdict.remaining, 6);
        assert_int_equal(passes_now(b, request, 3) + passes_now(a, request, 10) + passes_now(b, request, 3), 6);
        verdict = check_now(b, request);
        assert_string_equal(verdict.rule, "r");
        assert_int_equal(verdict.status, 429);
        assert_int_equal(verdict.remaining, 0);
        assert_true(verdict.retry_after_ms > 0);
        assert_true(verdict.reset_ms > 0);
        assert_int_equal(passes_now(a, one("e", "another"), 1), 1);
        weir_close(a);
        weir_close(b);
    }
}

static void test_looks(void **state)
{
    (void)state;
    struct weir *weir = open_host(
        "looks", "- { id: r, match: { event: e }, by: [key], limits: [{ max: 3, per: 1h, algorithm: fixed_window }] }",
        (struct weir_options){ 0 });
    assert_true(check_now(weir, peek_of("e", "u", 3)).allowed);
    assert_false(check_now(weir, peek_of("e", "u", 4)).allowed);
    assert_int_equal(check_now(weir, cost_of("e", "u", 4)).retry_after_ms, WEIR_NEVER);
    assert_int_equal(check_now(weir, cost_of("e", "u", 2)).remaining, 1);
    assert_false(check_now(weir, peek_of("e", "u", 2)).allowed);
    assert_true(check_now(weir, cost_of("e", "u", 0)).allowed);
    assert_int_equal(check_now(weir, one("e", "u")).remaining, 0);
    weir_close(weir);
}

/* Local and shared rules are all or nothing together. */
static void test_mixed(void **state)
{
    (void)state;
    struct weir *weir = open_host(
        "mixed",
        "- { id: here, match: { event: e }, by: [key], counters: local, limits: [{ max: 5, per: 1h, algorithm: "
        "fixed_window }] }\n"
        "- { id: there, match: { event: e }, by: [key], limits: [{ max: 3, per: 1h, algorithm: fixed_window }] }\n"
        "- { id: small, match: { event: e, header: { x: y } }, counters: local, by: [key],\n"
        "    limits: [{ max: 1, per: 1h, algorithm: fixed_window }] }\n"
        "- { id: only-here, match: { event: l }, by: [key], counters: local, limits: [{ max: 5, per: 1h }] }\n",
        (struct weir_options){ 0 });
    struct weir_header header = { WEIR_STR("X"), WEIR_STR("y") };
    struct weir_request marked = one("e", "u");
    marked.headers = &header;
    marked.header_count = 1;
    assert_int_equal(check_now(weir, marked).remaining, 0);
    /* Refused here: the store is not asked. */
    int64_t before = server_counts("cmdstat_evalsha:");
    assert_string_equal(check_now(weir, marked).rule, "small");
    assert_int_equal(server_counts("cmdstat_evalsha:"), before);
    assert_int_equal(passes_now(weir, one("l", "u"), 2), 2);
    /* Refused there: what was taken here is given back. */
    assert_int_equal(passes_now(weir, one("e", "u"), 9), 2);
    struct weir_verdict verdict = check_now(weir, peek_of("e", "u", 0));
    assert_string_equal(verdict.rule, "there");
    set_rules(weir, "- { id: here, match: { event: e }, by: [key], counters: local,\n"
                    "    limits: [{ max: 5, per: 1h, algorithm: fixed_window }] }\n");
    assert_int_equal(check_now(weir, peek_of("e", "u", 0)).remaining, 2);
    weir_close(weir);
}

static void test_shadow(void **state)
{
    (void)state;
    struct weir *weir = open_host(
        "shadow",
        "- { id: dark, mode: shadow, match: { event: e }, by: [key], limits: [{ max: 2, per: 1h, algorithm: fixed_window "
        "}] }\n"
        "- { id: slice, mode: shadow, lease: true, match: { event: e }, by: [key],\n"
        "    limits: [{ max: 3, per: 1h, algorithm: fixed_window }] }\n"
        "- { id: real, match: { event: e }, by: [key], limits: [{ max: 9, per: 1h, algorithm: fixed_window }] }\n",
        (struct weir_options){ 0 });
    struct weir_verdict verdict = { 0 };
    for (int i = 0; i < 4; i++) {
        verdict = check_now(weir, one("e", "u"));
        assert_true(verdict.allowed);
        assert_string_equal(verdict.rule, "real");
        usleep(20000); /* slices of shadow rules come without anybody waiting for them */
    }
    assert_true(verdict.shadow_count >= 1);
    assert_string_equal(last_shadows.names[0], "dark");
    weir_close(weir);
}

/* What was used is kept when max changes, and other numbers count at once. */
static void test_change(void **state)
{
    (void)state;
    struct weir *weir =
        open_host("change", "- { id: r, match: { event: e }, by: [key], limits: [{ max: 4, calendar: year }] }",
                  (struct weir_options){ 0 });
    assert_int_equal(passes_now(weir, one("e", "u"), 9), 4);
    set_rules(weir, "- { id: r, match: { event: e }, by: [key], limits: [{ max: 6, calendar: year }] }");
    assert_int_equal(passes_now(weir, one("e", "u"), 9), 2);
    set_rules(weir, "- { id: r, match: { event: e }, by: [key], limits: [{ max: 2, calendar: year }] }");
    assert_int_equal(passes_now(weir, one("e", "u"), 9), 0);
    set_rules(weir, "- { id: r, match: { event: e }, by: [key], limits: [{ max: 0, calendar: year }] }");
    assert_int_equal(check_now(weir, one("e", "new")).retry_after_ms, WEIR_NEVER);
    struct weir_error error;
    struct weir_str by = WEIR_STR("u");
    set_rules(weir, "- { id: r, match: { event: e }, by: [key], limits: [{ max: 2, calendar: year }] }");
    assert_int_equal(weir_reset(weir, "r", &by, 1, &error), 0);
    assert_int_equal(passes_now(weir, one("e", "u"), 9), 2);
    weir_close(weir);
}

/* ---- many at once ---- */

enum { THREADS = 4, EACH = 100, MOST = 150 };

struct crowd {
    struct weir *weir;
    unsigned passed;
};

static void *run_thread(void *data)
{
    struct crowd *crowd = data;
    struct weir_verdict verdict;
    for (int i = 0; i < EACH; i++) {
        struct weir_request request = { .event = WEIR_STR("e"), .key = WEIR_STR("u"), .cost = 1 };
        if (weir_check(crowd->weir, &request, weir_now_us(), &verdict) == 0 && verdict.allowed)
            __atomic_add_fetch(&crowd->passed, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct crowd crowd = { open_host("threads",
                                     "- { id: r, match: { event: e }, by: [key],\n"
                                     "    limits: [{ max: 150, per: 1h, algorithm: fixed_window }] }",
                                     (struct weir_options){ 0 }),
                           0 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_thread, &crowd);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd.passed, MOST);
    weir_close(crowd.weir);
}

/* ---- event loops ---- */

struct tally {
    unsigned passed, refused, waiting, shadows, receipts;
};

/* For all requests of the loops: they are used as soon as they are written. */
static struct weir_shadows asked_shadows;
static struct weir_receipt asked_receipt;

static void on_decided(const struct weir_verdict *verdict, void *data)
{
    struct tally *tally = data;
    tally->passed += verdict->allowed;
    tally->refused += !verdict->allowed;
    tally->waiting--;
    tally->shadows += asked_shadows.count;
    tally->receipts += asked_receipt.count > 0;
    assert_int_equal(asked_shadows.count, verdict->shadow_count);
}

static void ask_loop(struct weir_loop *loop, struct weir_request request, struct tally *tally)
{
    struct weir_verdict verdict;
    request.shadows = &asked_shadows;
    request.receipt = &asked_receipt;
    int r = weir_loop_check(loop, &request, weir_now_us(), &verdict, on_decided, tally);
    assert_true(r >= 0);
    tally->waiting++;
    if (r == 1)
        on_decided(&verdict, tally);
}

static void run_loops(struct weir_loop *const loops[2], struct tally *tally)
{
    for (int i = 0; i < 2; i++)
        weir_loop_flush(loops[i]);
    while (tally->waiting > 0)
        for (int i = 0; i < 2; i++) {
            poll(&(struct pollfd){ weir_loop_fd(loops[i]), POLLIN, 0 }, 1, 10);
            weir_loop_run(loops[i]);
            weir_loop_flush(loops[i]);
        }
}

static void test_loops(void **state)
{
    (void)state;
    struct weir *weir =
        open_host("loops",
                  "- { id: r, match: { event: e }, by: [key], limits: [{ max: 700, per: 1h, algorithm: fixed_window }] }\n"
                  "- { id: s, mode: shadow, match: { event: e }, by: [key], limits: [{ max: 600, per: 1h, algorithm: "
                  "fixed_window }] }",
                  (struct weir_options){ 0 });
    struct weir_loop *loops[2];
    struct tally tally = { 0 };
    struct weir_error error;
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_loop_open(&loops[i], weir, &error), 0);
    while (tally.passed == 0) { /* links get their connections in the background */
        for (int i = 0; i < 500; i++)
            ask_loop(loops[i % 2], one("e", "first"), &tally);
        run_loops(loops, &tally);
    }
    tally = (struct tally){ 0 };
    for (int i = 0; i < 1000; i++)
        ask_loop(loops[i % 2], one("e", "u"), &tally);
    run_loops(loops, &tally);
    assert_int_equal(tally.passed, 700);
    assert_int_equal(tally.refused, 300);
    assert_int_equal(tally.shadows, 400);
    assert_int_equal(tally.receipts, 700);
    /* What still waits when a loop is closed is decided. */
    for (int i = 0; i < 10; i++)
        ask_loop(loops[0], one("e", "late"), &tally);
    weir_loop_close(loops[0]);
    weir_loop_close(loops[1]);
    assert_int_equal(tally.waiting, 0);
    weir_close(weir);
}

/* ---- slices ---- */

static const char LEASED[] = "- { id: r, match: { event: e }, by: [key], lease: { slice: 10%, ttl: 100ms },\n"
                             "    limits: [{ name: h, max: 500, per: 1h, algorithm: fixed_window },\n"
                             "             { name: y, max: 400, calendar: year }] }";

static void test_slices(void **state)
{
    (void)state;
    struct weir *a = open_host("slices", LEASED, (struct weir_options){ 0 });
    struct weir *b = open_host("slices", LEASED, (struct weir_options){ 0 });
    int64_t before = server_counts("cmdstat_evalsha:");
    unsigned passed = 0;
    for (int i = 0; i < 150; i++)
        passed += passes_now(a, one("e", "u"), 1) + passes_now(b, one("e", "u"), 1);
    assert_int_equal(passed, 300);
    assert_true(server_counts("cmdstat_evalsha:") - before < 100);
    /* All of it is found in the end, by whoever asks; slices that nobody spends come back. */
    for (int i = 0; i < 500 && passed < 400; i++) {
        passed += passes_now(a, one("e", "u"), 1);
        usleep(10000);
    }
    assert_int_equal(passed, 400);
    assert_int_equal(passes_now(a, one("e", "u"), 20) + passes_now(b, one("e", "u"), 20), 0);
    struct weir_verdict verdict = check_now(b, one("e", "u"));
    assert_string_equal(verdict.limit, "y");
    assert_true(verdict.retry_after_ms > 0);
    weir_close(a);
    weir_close(b);
}

/* A process without a store, on the same cells: it waits by its own timer. */
static void test_without_store(void **state)
{
    (void)state;
    struct folder folder;
    char used[2] = "";
    folder_make(&folder);
    struct weir *lender =
        open_host("without", LEASED, (struct weir_options){ .cells_file = folder_file(&folder, "cells") });
    struct weir *other = open_with((struct weir_options){
        .cells_file = folder_file(&folder, "cells"), .rules_text = file_of(LEASED), .never_wait = true });
    struct weir_verdict verdict;
    struct weir_request request;
    int waited = 0, r = 0;
    /* The lender seems to have gone until it has written its status, and on a machine that stands still for a second: then
     * another subject is tried, a little later. */
    for (char key[] = "a"; waited == 0 && key[0] <= 'z'; key[0]++) {
        usleep(key[0] == 'a' ? 0 : 100000);
        request = one("e", key);
        int64_t until_us = weir_now_us() + PATIENT_MS * MS;
        while ((r = weir_check_soon(other, &request, weir_now_us(), until_us, &verdict)) == 1) {
            waited++;
            usleep(1000);
        }
        used[0] = key[0];
    }
    request = one("e", used);
    assert_int_equal(r, 0);
    assert_true(waited > 0);
    assert_true(verdict.allowed);
    assert_int_equal(verdict.max, 400);
    assert_true(verdict.remaining < 50);
    /* Both spend from one slice. */
    assert_int_equal(passes_now(lender, request, 450) + passes_now(other, request, 50), 399);
    struct weir_error error;
    static const char shared[] = "- { id: r, limits: [\"5 per 1h\"] }";
    assert_true(weir_set_rules(other, shared, strlen(shared), &error) < 0);
    assert_non_null(strstr(error.text, "lease: true"));
    weir_close(other);
    weir_close(lender);
    static const char *const files[] = { "cells", NULL };
    folder_remove(&folder, files);
}

/* What it owes is told to the store by the lender, even if nobody asks for a slice after that. */
static void test_debt_without_store(void **state)
{
    (void)state;
    struct folder folder;
    struct weir_store_status status = { 0 };
    struct lender_status lends = { 0 };
    folder_make(&folder);
    struct weir *lender = open_host("owes", LEASED, (struct weir_options){ .cells_file = folder_file(&folder, "cells") });
    struct weir *other = open_with((struct weir_options){
        .cells_file = folder_file(&folder, "cells"), .rules_text = file_of(LEASED), .never_wait = true });
    for (int i = 0; i < 2000 && (lends = lender_status_read(other->cells, clock_steady_us()), !lends.up); i++)
        usleep(5000);
    assert_true(lends.up);
    struct weir_request request = cost_of("e", "u", 5);
    assert_int_equal(weir_charge(other, &request, weir_now_us()), 0);
    for (int i = 0; i < 2000 && (weir_store_status(lender, &status), status.reconciled < 10); i++)
        usleep(5000);
    assert_int_equal(status.reconciled, 10); /* of two limits */
    weir_close(other);
    weir_close(lender);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

/* ---- when the store is away ---- */

static void test_never_there(void **state)
{
    (void)state;
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = file_of(AWAY), .counters = "redis://127.0.0.1:1/0", .store_hosts = 3 });
    assert_int_equal(passes_now(weir, one("l", "u"), 9), 3);
    assert_int_equal(check_now(weir, one("l", "u")).max, 3);
    assert_int_equal(passes_now(weir, one("a", "u"), 50), 50);
    struct weir_verdict verdict = check_now(weir, one("d", "u"));
    assert_false(verdict.allowed);
    assert_int_equal(verdict.status, 503);
    assert_string_equal(verdict.rule, "d");
    assert_int_equal(verdict.retry_after_ms, 1000);
    assert_int_equal(passes_now(weir, one("s", "u"), 9), 3);
    weir_close(weir);
}

static void assert_unavailable(struct weir *weir, struct weir_request request, bool unavailable)
{
    struct weir_verdict verdict = check_now(weir, request);
    assert_false(verdict.allowed);
    assert_int_equal(verdict.unavailable, unavailable);
    assert_int_equal(verdict.status, unavailable ? 503 : 429);
    assert_true(unavailable ? verdict.retry_after_ms == 1000 : verdict.retry_after_ms == -1);
}

/* No share of a host has room for these, however long they wait; the store may have, when it is back. */
static void test_no_share(void **state)
{
    (void)state;
    static const char rules[] =
        "- { id: w, match: { event: w }, by: [key], limits: [{ max: 10, per: 1h, algorithm: fixed_window }] }\n"
        "- { id: f, match: { event: f }, by: [key], limits: [{ max: 2, per: 1h, algorithm: fixed_window }] }\n"
        "- { id: b, match: { event: b }, by: [key], limits: [{ max: 30, burst: 2, per: 1h }] }\n";
    struct weir *weir = open_with(
        (struct weir_options){ .rules_text = file_of(rules), .counters = "redis://127.0.0.1:1/0", .store_hosts = 3 });
    assert_unavailable(weir, cost_of("w", "u", 4), true);
    assert_unavailable(weir, cost_of("w", "u", 11), false); /* nor has the store */
    assert_int_equal(check_now(weir, cost_of("w", "u", 3)).allowed, true);
    assert_unavailable(weir, one("f", "u"), true);
    assert_unavailable(weir, one("b", "u"), true); /* three hosts with 10 each would let 30 through at once */
    assert_unavailable(weir, cost_of("b", "u", 3), false);
    weir_close(weir);
}

/* The server does what it was asked, but too late. The deadline is long enough for a busy machine to send the call: one
 * that was not sent has no late answer. */
static void test_late(void **state)
{
    (void)state;
    struct weir *weir = open_host("late", AWAY, (struct weir_options){ .store_deadline_ms = 300, .store_hosts = 2 });
    pid_t process = server_process();
    /* Refused for want of an answer, and charged there: it is given back. */
    kill(process, SIGSTOP);
    struct weir_verdict verdict = check_now(weir, one("d", "u"));
    assert_false(verdict.allowed);
    assert_int_equal(verdict.status, 503);
    /* Let through and counted here, and charged there, too: here it is given back. */
    assert_true(check_now(weir, one("l", "u")).allowed);
    kill(process, SIGCONT);
    wait_until_up(weir, 1);
    usleep(20000); /* the refund was sent, and nobody hears of it */
    assert_int_equal(left_in_store(weir, "d"), 10);
    assert_int_equal(left_in_store(weir, "l"), 9);
    weir_close(weir);
}

/* What was spent here while the store was away is charged there when it is back. */
static void test_debt(void **state)
{
    (void)state;
    struct weir *weir = open_host("debt", AWAY, (struct weir_options){ .store_deadline_ms = 20, .store_hosts = 2 });
    struct weir_store_status status;
    pid_t process = server_process();
    kill(process, SIGSTOP);
    open_breaker(weir);
    assert_int_equal(passes_now(weir, one("l", "u"), 9), 5);
    kill(process, SIGCONT);
    wait_until_up(weir, 0);
    assert_int_equal(left_when_paid(weir, "l", 5), 5);
    weir_store_status(weir, &status);
    assert_true(status.opened >= 1);
    weir_close(weir);
}

/* ---- costs that are known only afterwards ---- */

static void charge_now(struct weir *weir, struct weir_request request)
{
    assert_int_equal(weir_charge(weir, &request, weir_now_us()), 0);
}

static void test_charge(void **state)
{
    (void)state;
    static const char rules[] = "- { id: x, match: { event: x }, by: [key], limits: [{ max: 100, per: 1h, algorithm: "
                                "fixed_window }] }\n"
                                "- { id: s, match: { event: s }, by: [key], lease: { slice: 10%, ttl: 100ms },\n"
                                "    limits: [{ max: 100, per: 1h, algorithm: fixed_window }] }\n";
    struct weir *a = open_host("charge", rules, (struct weir_options){ 0 });
    struct weir *b = open_host("charge", rules, (struct weir_options){ 0 });
    /* The host's next request for the subject takes it to the store. */
    charge_now(a, cost_of("x", "u", 60));
    assert_int_equal(check_now(a, cost_of("x", "u", 0)).remaining, 40);
    charge_now(b, cost_of("x", "u", 50));
    assert_false(check_now(b, cost_of("x", "u", 0)).allowed);
    assert_false(check_now(a, cost_of("x", "u", 0)).allowed);
    /* More than there is of a lease. */
    charge_now(a, cost_of("s", "u", 250));
    assert_int_equal(passes_now(a, one("s", "u"), 20), 0);
    assert_int_equal(passes_now(b, one("s", "u"), 20), 0);
    /* Less than that: the rest is found in the end, and no more. */
    unsigned passed = passes_now(a, one("s", "v"), 1);
    charge_now(a, cost_of("s", "v", 30));
    for (int i = 0; i < 500 && passed < 70; i++) {
        passed += passes_now(a, one("s", "v"), 1) + passes_now(b, one("s", "v"), 1);
        usleep(passed < 50 ? 0 : 10000);
    }
    usleep(200000);
    passed += passes_now(a, one("s", "v"), 20) + passes_now(b, one("s", "v"), 20);
    assert_int_equal(passed, 70);
    weir_close(a);
    weir_close(b);
}

static void test_charge_while_unavailable(void **state)
{
    (void)state;
    struct weir *weir = open_host("unpaid", AWAY, (struct weir_options){ .store_deadline_ms = 20, .store_hosts = 2 });
    pid_t process = server_process();
    kill(process, SIGSTOP);
    open_breaker(weir);
    charge_now(weir, cost_of("l", "u", 7));
    assert_int_equal(passes_now(weir, one("l", "u"), 5), 0); /* its share is 5 */
    kill(process, SIGCONT);
    wait_until_up(weir, 0);
    assert_int_equal(left_when_paid(weir, "l", 7), 3);
    weir_close(weir);
}

/* A key that is not weir's. */
static void test_odd_key(void **state)
{
    (void)state;
    struct weir *weir = open_host("odd", AWAY, (struct weir_options){ .store_hosts = 1 });
    char text[100];
    ask_server(text, sizeof text, "SET", "odd:1:{u}:d:key", "mine");
    struct weir_verdict verdict = check_now(weir, one("d", "u"));
    assert_false(verdict.allowed);
    assert_int_equal(verdict.status, 503);
    assert_int_equal(check_now(weir, one("d", "v")).remaining, 9);
    struct weir_store_status status;
    weir_store_status(weir, &status);
    assert_true(status.up);
    assert_int_equal(status.failed, 1);
    weir_close(weir);
}

/* ---- explain ---- */

static void note_nothing(struct facts *facts, void *data)
{
    (void)facts, (void)data;
}

static void note_rule(const struct explained_rule *rule, void *data)
{
    uint32_t *remaining = data;
    if (rule->reason == MATCH_YES) {
        assert_int_equal(rule->counting, COUNTER_STORE);
        assert_false(rule->limits[0].unknown);
        *remaining = rule->limits[0].report.remaining;
    }
}

static void note_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    (void)request;
    (void)data;
    assert_true(verdict->allowed);
}

static void test_explain(void **state)
{
    (void)state;
    struct weir *weir = open_host("explain", AWAY, (struct weir_options){ 0 });
    struct explain_sink sink = { note_nothing, note_rule, note_verdict };
    struct weir_request request = one("l", "u");
    uint32_t remaining = 0;
    passes_now(weir, request, 3);
    assert_int_equal(weir_explain(weir, &request, weir_now_us(), &sink, &remaining), 0);
    assert_int_equal(remaining, 7);
    assert_int_equal(check_now(weir, request).remaining, 6);
    weir_close(weir);
}

static void note_unknown(const struct explained_rule *rule, void *data)
{
    unsigned *unknown = data;
    *unknown += rule->reason == MATCH_YES && rule->limits[0].unknown;
}

static void note_any_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    (void)request, (void)verdict, (void)data;
}

/* The answer comes when nobody waits for it any more. */
static void test_explain_late(void **state)
{
    (void)state;
    struct weir *weir = open_host("unknown", AWAY, (struct weir_options){ .store_deadline_ms = 30 });
    struct explain_sink sink = { note_nothing, note_unknown, note_any_verdict };
    struct weir_request request = one("l", "u");
    unsigned unknown = 0;
    pid_t process = server_process();
    kill(process, SIGSTOP);
    assert_int_equal(weir_explain(weir, &request, weir_now_us(), &sink, &unknown), 0);
    assert_int_equal(unknown, 1);
    kill(process, SIGCONT);
    wait_until_up(weir, 0);
    assert_int_equal(left_in_store(weir, "l"), 10);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_hosts),     cmocka_unit_test(test_looks),
        cmocka_unit_test(test_mixed),         cmocka_unit_test(test_shadow),
        cmocka_unit_test(test_change),        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_loops),         cmocka_unit_test(test_slices),
        cmocka_unit_test(test_without_store), cmocka_unit_test(test_debt_without_store),
        cmocka_unit_test(test_never_there),   cmocka_unit_test(test_no_share),
        cmocka_unit_test(test_late),          cmocka_unit_test(test_debt),
        cmocka_unit_test(test_charge),        cmocka_unit_test(test_charge_while_unavailable),
        cmocka_unit_test(test_odd_key),       cmocka_unit_test(test_explain),
        cmocka_unit_test(test_explain_late),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
