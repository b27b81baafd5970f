/* Several requests in one decision, and costs that are charged always or given back, with counters in a real redis-server:
 * exact, leased, mixed with those of this host, in event loops, and while the store does not answer. */
#include "hosts.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "engine/handle.h"

#define WINDOW "limits: [{ max: 10, per: 1h, algorithm: fixed_window }]"
static const char RULES[] = "- { id: x, match: { event: x }, by: [key], " WINDOW " }\n"
                            "- { id: s, match: { event: s }, by: [key], lease: { slice: 20%, ttl: 100ms }, " WINDOW " }\n"
                            "- { id: h, match: { event: h }, by: [key], counters: local, " WINDOW " }\n"
                            "- { id: g, match: { event: g }, by: [key], limits: given }\n"
                            "- { id: v, match: { event: x }, mode: shadow, " WINDOW " }\n";

/* Decides on these, one after the other in the chain. */
static struct weir_verdict check_all(struct weir *weir, struct weir_request *requests, size_t count,
                                     struct weir_verdict *own)
{
    for (size_t i = 0; i < count; i++) {
        requests[i].with = i + 1 < count ? &requests[i + 1] : NULL;
        requests[i].own = &own[i];
    }
    return check_now(weir, requests[0]);
}

#define ALL(weir, own, ...)                                 \
    check_all(weir, (struct weir_request[]){ __VA_ARGS__ }, \
              sizeof((struct weir_request[]){ __VA_ARGS__ }) / sizeof(struct weir_request), own)

static struct weir_request charging(struct weir_request request, enum weir_charging charging)
{
    request.charging = charging;
    return request;
}

static uint64_t left(struct weir *weir, const char *event, const char *key)
{
    return check_now(weir, peek_of(event, key, 0)).remaining;
}

/* The same as another host hears it, which waits for the store: a host that does not may hear its own stand-in. It pays
 * what it owes when it asks. */
static uint64_t left_there(struct weir *weir, struct weir *patient, const char *event, const char *key)
{
    left(weir, event, key);
    return left(patient, event, key);
}

static void test_exact(void **state)
{
    (void)state;
    struct weir *a = open_host("exact", RULES, (struct weir_options){ 0 });
    struct weir *b = open_host("exact", RULES, (struct weir_options){ 0 });
    struct weir_verdict own[4], v;
    v = ALL(a, own, cost_of("x", "u", 3), cost_of("x", "u", 4), cost_of("x", "w", 1));
    assert_true(v.allowed);
    assert_int_equal(own[0].remaining, 7);
    assert_int_equal(own[1].remaining, 3);
    assert_int_equal(own[2].remaining, 9);
    v = ALL(b, own, cost_of("x", "u", 3), cost_of("x", "w", 1), cost_of("x", "u", 1));
    assert_false(v.allowed);
    assert_true(own[0].allowed && own[1].allowed && !own[2].allowed);
    assert_int_equal(own[0].remaining, 3);
    assert_int_equal(left(a, "x", "u"), 3);
    assert_int_equal(left(a, "x", "w"), 9);
    /* What this host refuses is not charged in the store, and the other way round. */
    v = ALL(a, own, cost_of("x", "u", 3), cost_of("h", "u", 11));
    assert_false(v.allowed);
    v = ALL(a, own, cost_of("h", "u", 3), cost_of("x", "u", 4));
    assert_false(v.allowed);
    assert_true(own[0].allowed);
    assert_int_equal(own[0].remaining, 10);
    assert_int_equal(left(a, "x", "u"), 3);
    assert_int_equal(left(a, "h", "u"), 10);
    /* One receipt, which another host settles. */
    struct weir_receipt receipt;
    struct weir_request first = cost_of("x", "r", 2);
    first.receipt = &receipt;
    first.ttl_ms = 60000;
    v = ALL(a, own, first, cost_of("x", "r", 3), cost_of("x", "q", 4));
    assert_true(v.allowed);
    assert_int_equal(receipt.count, 2);
    assert_int_equal(left(b, "x", "r"), 5);
    assert_int_equal(weir_refund(b, &receipt, weir_now_us()), 2);
    for (int i = 0; i < 1000 && (left(b, "x", "r") != 10 || left(b, "x", "q") != 10); i++)
        usleep(5000);
    assert_int_equal(left(b, "x", "r") + left(b, "x", "q"), 20);
    weir_close(a);
    weir_close(b);
}

static void test_always_and_back(void **state)
{
    (void)state;
    struct weir *a = open_host("always", RULES, (struct weir_options){ 0 });
    struct weir_verdict own[4], v;
    v = check_now(a, charging(cost_of("x", "u", 8), WEIR_CHARGE_ALWAYS));
    assert_true(v.allowed && v.remaining == 2);
    v = check_now(a, charging(cost_of("x", "u", 8), WEIR_CHARGE_ALWAYS));
    assert_true(!v.allowed && v.remaining == 0 && v.retry_after_ms > 0);
    v = check_now(a, charging(cost_of("x", "u", 7), WEIR_GIVE_BACK));
    assert_true(v.allowed && v.remaining == 1); /* 16 - 7 */
    v = check_now(a, charging(cost_of("x", "u", 1000), WEIR_GIVE_BACK));
    assert_true(v.allowed && v.remaining == 10);
    /* This host refuses: the store is charged all the same, and what charges only if there is room is not. */
    v = ALL(a, own, cost_of("h", "u", 11), charging(cost_of("x", "u", 4), WEIR_CHARGE_ALWAYS), cost_of("x", "w", 4));
    assert_false(v.allowed);
    assert_true(!own[0].allowed && own[1].allowed && own[1].remaining == 6);
    assert_int_equal(left(a, "x", "u"), 6);
    assert_int_equal(left(a, "x", "w"), 10);
    /* The same counter both ways, in either order. */
    v = ALL(a, own, cost_of("x", "u", 3), charging(cost_of("x", "u", 2), WEIR_CHARGE_ALWAYS));
    assert_true(v.allowed);
    assert_int_equal(left(a, "x", "u"), 1);
    v = ALL(a, own, charging(cost_of("x", "u", 6), WEIR_GIVE_BACK), cost_of("x", "u", 7));
    assert_true(v.allowed);
    assert_int_equal(left(a, "x", "u"), 0);
    v = ALL(a, own, charging(cost_of("x", "u", 1), WEIR_CHARGE_ALWAYS), cost_of("x", "u", 1));
    assert_true(!v.allowed && !own[0].allowed && !own[1].allowed);
    v = check_now(a, charging(cost_of("x", "u", 2), WEIR_GIVE_BACK));
    assert_int_equal(v.remaining, 1);
    weir_close(a);
}

/* A slice pays, and what it does not have is owed to the store. */
static void test_leased(void **state)
{
    (void)state;
    struct weir *a = open_host("leased", RULES, (struct weir_options){ .store_hosts = 1 });
    struct weir_verdict own[4], v;
    unsigned passed = 0;
    /* Two at a time of one counter: never more than there is. */
    for (int i = 0; i < 50; i++) {
        v = ALL(a, own, one("s", "u"), one("h", "k"), one("s", "u"));
        passed += v.allowed;
        assert_int_equal(own[2].allowed && own[1].allowed, v.allowed);
        check_now(a, charging(one("h", "k"), WEIR_GIVE_BACK));
        usleep(2000);
    }
    assert_int_equal(passed, 5);
    assert_int_equal(left(a, "h", "k"), 10);
    assert_int_equal(passes_now(a, one("s", "u"), 10), 0);
    /* Always: the host has nothing, so it owes it. */
    v = check_now(a, charging(cost_of("s", "u", 5), WEIR_CHARGE_ALWAYS));
    assert_false(v.allowed);
    v = check_now(a, charging(cost_of("s", "w", 8), WEIR_CHARGE_ALWAYS));
    assert_true(v.allowed);
    v = check_now(a, charging(cost_of("s", "w", 8), WEIR_CHARGE_ALWAYS));
    assert_false(v.allowed);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(passes_now(a, one("s", "w"), 4), 0);
        usleep(50000);
    }
    /* Giving back fills the slice, and no more. */
    passed = 0;
    for (int i = 0; i < 200 && passed < 10; i++, usleep(1000))
        passed += passes_now(a, one("s", "z"), 1);
    assert_int_equal(passed, 10);
    v = check_now(a, charging(cost_of("s", "z", 1000), WEIR_GIVE_BACK));
    assert_true(v.allowed);
    unsigned again = passes_now(a, one("s", "z"), 20);
    assert_true(again <= 2); /* 20% of 10 */
    weir_close(a);
}

static void test_given(void **state)
{
    (void)state;
    struct weir *a = open_host("given", RULES, (struct weir_options){ 0 });
    struct weir *b = open_host("given", RULES, (struct weir_options){ 0 });
    struct weir_request hour = cost_of("g", "u", 3), year = hour;
    struct weir_verdict own[4], v;
    hour.given_max = 7;
    hour.given_window_ms = UINT64_C(3600) * 1000 * 24 * 365;
    year.given_max = 5;
    year.given_window_ms = UINT64_C(3600) * 1000 * 24 * 3650;
    v = ALL(a, own, hour, year, hour);
    assert_true(v.allowed);
    assert_true(own[0].remaining == 4 && own[1].remaining == 2 && own[2].remaining == 1);
    assert_false(check_now(b, year).allowed);
    assert_false(check_now(b, hour).allowed);
    hour.given_max = 9;
    v = check_now(b, hour);
    assert_true(v.allowed && v.remaining == 0 && v.max == 9);
    weir_close(a);
    weir_close(b);
}

/* Stand-ins count while the store does not answer, and what was charged is owed to it. */
static void test_without_the_store(void **state)
{
    (void)state;
    struct weir *weir = open_host("away", RULES, (struct weir_options){ .store_deadline_ms = 50, .store_hosts = 1 });
    struct weir *patient = open_host("away", RULES, (struct weir_options){ .store_hosts = 1 });
    pid_t process = server_process();
    struct weir_store_status status = { .up = true };
    struct weir_verdict own[4], v;
    kill(process, SIGSTOP);
    v = ALL(weir, own, cost_of("x", "u", 4), cost_of("s", "u", 4), cost_of("x", "u", 4), cost_of("h", "u", 1));
    assert_true(v.allowed);
    assert_true(own[0].remaining == 6 && own[1].remaining == 6 && own[2].remaining == 2);
    v = ALL(weir, own, cost_of("h", "u", 1), cost_of("x", "u", 2), cost_of("x", "u", 1));
    assert_false(v.allowed);
    assert_true(own[0].allowed && own[1].allowed && !own[2].allowed);
    assert_int_equal(left(weir, "h", "u"), 9);
    v = ALL(weir, own, charging(cost_of("x", "k", 7), WEIR_CHARGE_ALWAYS), cost_of("h", "u", 99));
    assert_true(!v.allowed && own[0].allowed);
    v = check_now(weir, charging(cost_of("x", "k", 7), WEIR_CHARGE_ALWAYS));
    assert_false(v.allowed);
    v = check_now(weir, charging(cost_of("x", "k", 6), WEIR_GIVE_BACK));
    assert_true(v.allowed);
    kill(process, SIGCONT);
    for (int i = 0; i < 2000 && (weir_store_status(weir, &status), !status.up); i++)
        usleep(5000);
    assert_true(status.up);
    /* 8 and 4 were let through, and 14 less 6 were charged. Late answers and debts are settled soon. */
    for (int i = 0; i < 1000 && (left_there(weir, patient, "x", "u") != 2 || left_there(weir, patient, "x", "k") > 3); i++)
        usleep(5000);
    assert_int_equal(left_there(weir, patient, "x", "u"), 2);
    assert_true(left_there(weir, patient, "x", "k") <= 3);
    weir_close(weir);
    weir_close(patient);
}

/* The store was asked, and answers when it is too late: what it has charged is not owed to it any more. */
static void test_late(void **state)
{
    (void)state;
    struct weir *weir = open_host("late", RULES, (struct weir_options){ .store_deadline_ms = 50, .store_hosts = 1 });
    struct weir *patient = open_host("late", RULES, (struct weir_options){ .store_hosts = 1 });
    pid_t process = server_process();
    struct weir_store_status status = { .up = true };
    struct weir_verdict own[4], v;
    kill(process, SIGSTOP);
    v = ALL(weir, own, cost_of("h", "u", 11), charging(cost_of("x", "k", 4), WEIR_CHARGE_ALWAYS), cost_of("x", "u", 3));
    assert_true(!v.allowed && own[1].allowed && own[2].allowed);
    v = ALL(weir, own, charging(cost_of("x", "l", 4), WEIR_CHARGE_ALWAYS), cost_of("x", "l", 3), cost_of("x", "u", 2));
    assert_true(v.allowed);
    kill(process, SIGCONT);
    for (int i = 0; i < 2000 && (weir_store_status(weir, &status), !status.up); i++)
        usleep(5000);
    for (int i = 0; i < 1000 && (left_there(weir, patient, "x", "k") != 6 || left_there(weir, patient, "x", "l") != 3 ||
                                 left_there(weir, patient, "x", "u") != 8);
         i++)
        usleep(5000);
    for (int i = 0; i < 5; i++, usleep(20000)) {
        assert_int_equal(left_there(weir, patient, "x", "k"), 6);
        assert_int_equal(left_there(weir, patient, "x", "l"), 3);
        assert_int_equal(left_there(weir, patient, "x", "u"), 8);
    }
    weir_close(weir);
    weir_close(patient);
}

/* A caller that does not wait begins again: nothing was charged before. */
static void test_soon(void **state)
{
    (void)state;
    struct weir *weir = open_host("soon", RULES, (struct weir_options){ .store_hosts = 1 });
    struct weir_request requests[2] = { charging(cost_of("h", "u", 2), WEIR_CHARGE_ALWAYS), one("s", "u") };
    struct weir_verdict v;
    int again = 0;
    requests[0].with = &requests[1];
    int64_t until_us = weir_now_us() + 10 * S;
    while (weir_check_soon(weir, requests, weir_now_us(), until_us, &v) == 1 && again++ < 5000)
        usleep(1000);
    assert_true(again > 0 && v.allowed);
    assert_int_equal(left(weir, "h", "u"), 8);
    weir_close(weir);
}

/* ---- loops ---- */

struct looped {
    struct weir_verdict own[2], verdict;
    struct weir_request requests[2];
    bool done;
};

static void on_decided(const struct weir_verdict *verdict, void *data)
{
    struct looped *l = data;
    l->verdict = *verdict;
    l->done = true;
}

static void test_loop(void **state)
{
    (void)state;
    struct weir *weir = open_host("loop", RULES, (struct weir_options){ .store_hosts = 1 });
    struct weir_loop *loop;
    struct weir_error error;
    static struct looped looped[20];
    memset(looped, 0, sizeof looped);
    assert_int_equal(weir_loop_open(&loop, weir, &error), 0);
    for (int i = 0; i < 20; i++) {
        struct looped *l = &looped[i];
        l->requests[0] = one("x", "u");
        l->requests[1] = one(i % 2 ? "s" : "x", "u");
        l->requests[0].with = &l->requests[1];
        l->requests[0].own = &l->own[0];
        l->requests[1].own = &l->own[1];
        int r = weir_loop_check(loop, l->requests, weir_now_us(), &l->verdict, on_decided, l);
        assert_true(r >= 0);
        l->done = l->done || r == 1;
    }
    weir_loop_flush(loop);
    for (int i = 0, done = 0; done < 20 && i < 5000; i++) {
        struct pollfd fd = { weir_loop_fd(loop), POLLIN, 0 };
        poll(&fd, 1, 5);
        weir_loop_run(loop);
        weir_loop_flush(loop);
        done = 0;
        for (int k = 0; k < 20; k++)
            done += looped[k].done;
    }
    unsigned x = 0, s = 0;
    for (int i = 0; i < 20; i++) {
        assert_true(looped[i].done);
        assert_int_equal(looped[i].verdict.allowed, looped[i].own[0].allowed && looped[i].own[1].allowed);
        x += looped[i].verdict.allowed * (i % 2 ? 1 : 2);
        s += looped[i].verdict.allowed * (i % 2);
    }
    assert_int_equal(left(weir, "x", "u"), 10 - x);
    assert_true(x >= 9 && s <= 10);
    weir_loop_close(loop);
    weir_close(weir);
}

/* ---- rules that change meanwhile ---- */

/* Its rules are those that it began with; what it counts is found by those that come after them. */
struct waiting {
    struct weir *weir;
    struct looped chain;
};

static void make_chain(struct looped *l, const char *second)
{
    l->requests[0] = cost_of("x", "u", 3);
    l->requests[1] = cost_of(second, "v", 2);
    l->requests[0].with = &l->requests[1];
    l->requests[0].own = &l->own[0];
    l->requests[1].own = &l->own[1];
}

static void *ask_once(void *data)
{
    struct waiting *w = data;
    make_chain(&w->chain, "x");
    return weir_check(w->weir, w->chain.requests, weir_now_us(), &w->chain.verdict) < 0 ? (void *)"failed" : NULL;
}

/* Without x, with another x, and as before: the versions in between are freed while the chains wait. */
static void change_rules(struct weir *weir)
{
    for (int i = 0; i < 20; i++) {
        set_rules(weir, "rules:\n- { id: y, match: { event: y }, limits: [\"5 per 1h\"] }\n");
        set_rules(weir, "rules:\n- { id: x, match: { event: x }, by: [key], limits: [\"1 per 1h\"] }\n");
        set_rules(weir, file_of(RULES));
    }
}

static void wait_for(struct weir_loop *loop, const struct looped *l)
{
    for (int i = 0; !l->done && i < 5000; i++) {
        struct pollfd fd = { weir_loop_fd(loop), POLLIN, 0 };
        poll(&fd, 1, 5);
        weir_loop_run(loop);
        weir_loop_flush(loop);
    }
    assert_true(l->done);
}

static void test_reload(void **state)
{
    (void)state;
    struct weir *weir = open_host("reload", RULES, (struct weir_options){ .store_hosts = 1 });
    static struct waiting blocked;
    static struct looped looped;
    struct weir_loop *loop;
    struct weir_error error;
    pthread_t thread;
    void *why;
    pid_t process = server_process();
    assert_int_equal(weir_loop_open(&loop, weir, &error), 0);
    /* A connection of the loop, and a slice. */
    make_chain(&looped, "s");
    int r = weir_loop_check(loop, looped.requests, weir_now_us(), &looped.verdict, on_decided, &looped);
    looped.done = r == 1;
    weir_loop_flush(loop);
    wait_for(loop, &looped);
    assert_true(looped.verdict.allowed);
    kill(process, SIGSTOP);
    memset(&looped, 0, sizeof looped);
    make_chain(&looped, "s");
    assert_int_equal(weir_loop_check(loop, looped.requests, weir_now_us(), &looped.verdict, on_decided, &looped), 0);
    weir_loop_flush(loop);
    blocked = (struct waiting){ .weir = weir };
    assert_int_equal(pthread_create(&thread, NULL, ask_once, &blocked), 0); /* for an answer; the loop for a slice, too */
    const struct bound *bound = weir->current;
    for (int i = 0; i < 2000 && __atomic_load_n(&bound->waiting, __ATOMIC_SEQ_CST) < 2; i++)
        usleep(1000);
    assert_int_equal(bound->waiting, 2);
    change_rules(weir);
    assert_false(looped.done);
    kill(process, SIGCONT);
    change_rules(weir);
    wait_for(loop, &looped);
    pthread_join(thread, &why);
    assert_null(why);
    assert_true(looped.verdict.allowed && looped.own[0].allowed && looped.own[1].allowed);
    assert_true(blocked.chain.verdict.allowed);
    assert_int_equal(left(weir, "x", "u"), 1);
    assert_int_equal(left(weir, "x", "v"), 8);
    /* Twice 2 of 10 are spent. */
    unsigned passed = 0;
    for (int i = 0; i < 2000 && passed < 6; i++, usleep(2000))
        passed += passes_now(weir, one("s", "v"), 1);
    assert_int_equal(passed, 6);
    assert_int_equal(passes_now(weir, one("s", "v"), 10), 0);
    weir_loop_close(loop);
    weir_close(weir);
}

/* ---- many at once, with outages ---- */

struct crowd {
    struct weir *weir;
    unsigned seed, x, h;
};

static void *ask_often(void *data)
{
    struct crowd *c = data;
    static const char *const events[] = { "x", "s", "h" };
    for (int i = 0; i < 300; i++) {
        struct weir_verdict own[3], verdict;
        struct weir_request requests[3];
        for (int k = 0; k < 3; k++) {
            requests[k] = one(events[rand_r(&c->seed) % 3], rand_r(&c->seed) % 2 ? "m" : "n");
            requests[k].with = k < 2 ? &requests[k + 1] : NULL;
            requests[k].own = &own[k];
        }
        if (weir_check(c->weir, requests, weir_now_us(), &verdict) < 0)
            return (void *)"failed";
        for (int k = 0; k < 3 && verdict.allowed; k++) {
            c->x += requests[k].event.ptr[0] == 'x';
            c->h += requests[k].event.ptr[0] == 'h';
            if (!own[k].allowed)
                return (void *)"a part refuses what passed";
        }
    }
    return NULL;
}

static void test_crowd(void **state)
{
    (void)state;
    static const char rules[] =
        "- { id: x, match: { event: x }, by: [key], limits: [{ max: 200, per: 1h, algorithm: fixed_window }] }\n"
        "- { id: s, match: { event: s }, by: [key], lease: true, limits: [{ max: 5000, per: 1h, algorithm: fixed_window }] "
        "}\n"
        "- { id: h, match: { event: h }, by: [key], counters: local, limits: [{ max: 5000, per: 1h, algorithm: "
        "fixed_window }] }\n";
    struct weir *weir = open_host("crowd", rules, (struct weir_options){ .store_hosts = 1 });
    struct crowd crowd[4];
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        crowd[i] = (struct crowd){ weir, i + 1, 0, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &crowd[i]), 0);
    }
    unsigned x = 0, h = 0;
    for (unsigned i = 0; i < 4; i++) {
        void *why;
        pthread_join(threads[i], &why);
        if (why)
            fail_msg("%s", (const char *)why);
        x += crowd[i].x;
        h += crowd[i].h;
    }
    /* What passed was charged, and what was refused was not. */
    assert_int_equal(left(weir, "x", "m") + left(weir, "x", "n"), 400 - x);
    assert_int_equal(left(weir, "h", "m") + left(weir, "h", "n"), 10000 - h);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_always_and_back),
        cmocka_unit_test(test_leased),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_without_the_store),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_soon),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests_name("redis/together", tests, start, stop);
}
