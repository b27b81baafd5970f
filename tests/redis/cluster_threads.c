/* Threads that decide in a real cluster, over loops and blocking, by rules in one slot and in two, while slots move,
 * masters hand over and connections are cut. Every request is answered, no limit lets through more than it has, and what
 * was let through is charged once. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../engine/helpers.h"
#include "base/clock.h"
#include "base/sv.h"
#include "cluster.h"

enum { MASTERS = 3, SUBJECTS = 6, BLOCKING = 2, LOOPS = 2, WINDOW = 20, SMALL = 200, LARGE = 1000000, TURNS = 3 };

static const char RULES[] = "rules:\n"
                            "- { id: many, match: { event: many }, by: [key], on_store_failure: deny,\n"
                            "    limits: [{ name: n, max: 1000000, per: 1h, algorithm: fixed_window }] }\n"
                            "- { id: few, match: { event: few }, by: [key], on_store_failure: deny,\n"
                            "    limits: [{ name: n, max: 200, per: 1h, algorithm: fixed_window }] }\n"
                            "- { id: user, match: { event: two }, by: [user], on_store_failure: deny,\n"
                            "    limits: [{ name: n, max: 1000000, per: 1h, algorithm: fixed_window }] }\n"
                            "- { id: key, match: { event: two }, by: [key], on_store_failure: deny,\n"
                            "    limits: [{ name: n, max: 200, per: 1h, algorithm: fixed_window }] }\n";

static struct cluster cluster;
static struct weir *weir;
static char subjects[SUBJECTS][CLUSTER_KEY_MAX];
static atomic_bool over;
static atomic_uint answered;

enum { MANY, FEW, TWO, EVENTS };
static const char *const events[EVENTS] = { "many", "few", "two" };
static atomic_uint passed[EVENTS][SUBJECTS];

/* The user of a subject is another subject: at another master, mostly. */
static struct weir_request request_of(unsigned event, unsigned subject)
{
    struct weir_request request = one(events[event], subjects[subject]);
    request.user = weir_str(subjects[(subject + 1) % SUBJECTS]);
    return request;
}

static void note(unsigned event, unsigned subject, const struct weir_verdict *verdict)
{
    atomic_fetch_add(&answered, 1);
    atomic_fetch_add(&passed[event][subject], verdict->allowed);
}

/* ---- those who ask ---- */

static void *ask_and_wait(void *unused)
{
    for (unsigned i = 0; !atomic_load(&over); i++) {
        struct weir_request request = request_of(i % EVENTS, i / EVENTS % SUBJECTS);
        struct weir_verdict verdict;
        if (weir_check(weir, &request, weir_now_us(), &verdict) < 0)
            abort();
        note(i % EVENTS, i / EVENTS % SUBJECTS, &verdict);
    }
    return unused;
}

struct waiting {
    unsigned event, subject;
    bool waits;
    unsigned *count;
};

static void decided(const struct weir_verdict *verdict, void *data)
{
    struct waiting *w = data;
    if (!w->waits)
        abort();
    w->waits = false;
    --*w->count;
    note(w->event, w->subject, verdict);
}

static void ask(struct weir_loop *loop, struct waiting *w)
{
    struct weir_request request = request_of(w->event, w->subject);
    struct weir_verdict verdict;
    w->waits = true;
    ++*w->count;
    int r = weir_loop_check(loop, &request, weir_now_us(), &verdict, decided, w);
    if (r < 0)
        abort();
    if (r == 1)
        decided(&verdict, w);
}

static void *run_loop(void *unused)
{
    struct weir_loop *loop;
    struct weir_error error;
    struct waiting window[WINDOW] = { 0 };
    unsigned count = 0, next = 0;
    if (weir_loop_open(&loop, weir, &error) < 0)
        abort();
    while (!atomic_load(&over) || count > 0) {
        for (size_t i = 0; i < WINDOW && !atomic_load(&over); i++) {
            if (window[i].waits)
                continue;
            window[i] = (struct waiting){ .event = next % EVENTS, .subject = next / EVENTS % SUBJECTS, .count = &count };
            next++;
            ask(loop, &window[i]);
        }
        weir_loop_flush(loop);
        poll(&(struct pollfd){ weir_loop_fd(loop), POLLIN, 0 }, 1, 100);
        weir_loop_run(loop);
    }
    weir_loop_close(loop);
    return unused;
}

/* ---- what happens meanwhile ---- */

static void go_on_for(unsigned requests)
{
    unsigned until = atomic_load(&answered) + requests;
    for (int i = 0; i < 30000 && atomic_load(&answered) < until; i++)
        usleep(1000);
    assert_true(atomic_load(&answered) >= until);
}

static void move_subjects(void)
{
    for (unsigned i = 0; i < SUBJECTS; i++) {
        unsigned slot = cluster_slot(weir_str(subjects[i]));
        size_t from = cluster_owner(&cluster, slot), to = (from + 1) % MASTERS;
        cluster_move_begin(&cluster, slot, from, to);
        go_on_for(50);
        cluster_move_keys(&cluster, slot, from, to, 1);
        go_on_for(50);
        while (cluster_move_keys(&cluster, slot, from, to, 10) > 0)
            ;
        cluster_move_end(&cluster, slot, from, to);
        go_on_for(50);
    }
}

static void cut_connections(void)
{
    for (size_t i = 0; i < cluster.count; i++)
        daemon_ask(&cluster.nodes[i], "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", NULL);
    go_on_for(200);
}

static void hand_over(void)
{
    for (size_t i = MASTERS; i < cluster.count; i++)
        cluster_failover(&cluster, i);
    go_on_for(200);
    for (size_t i = 0; i < MASTERS; i++)
        cluster_failover(&cluster, i);
    go_on_for(200);
}

/* ---- what is charged ---- */

static uint64_t used_of(unsigned event, unsigned subject, uint64_t max)
{
    struct weir_request request = request_of(event, subject);
    struct weir_verdict verdict = { 0 };
    request.peek = true;
    if (event == MANY || event == FEW)
        request.user = (struct weir_str){ 0 };
    for (int i = 0; i < 1000 && verdict.max != max; i++) {
        assert_true(weir_check(weir, &request, weir_now_us(), &verdict) >= 0);
        usleep(verdict.max == max ? 0 : 10000);
    }
    assert_int_equal(verdict.max, max);
    return max - verdict.remaining;
}

/* A late answer may be given back a little later. */
static void is_charged(unsigned event, unsigned subject, uint64_t max)
{
    unsigned count = atomic_load(&passed[event][subject]);
    struct weir_store_status status;
    uint64_t used = 0;
    weir_store_status(weir, &status);
    for (int i = 0; i < 300; i++) {
        used = used_of(event, subject, max);
        if (used >= count && used <= count + status.lost)
            return;
        usleep(10000);
    }
    fail_msg("%s %s: %u have passed, %llu are charged, %llu were lost", events[event], subjects[subject], count,
             (unsigned long long)used, (unsigned long long)status.lost);
}

static void everything_at_once(void **state)
{
    (void)state;
    pthread_t threads[BLOCKING + LOOPS];
    for (size_t i = 0; i < BLOCKING + LOOPS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < BLOCKING ? ask_and_wait : run_loop, NULL), 0);
    go_on_for(500);
    for (int turn = 0; turn < TURNS; turn++) {
        move_subjects();
        cut_connections();
    }
    hand_over();
    atomic_store(&over, true);
    for (size_t i = 0; i < BLOCKING + LOOPS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < SUBJECTS; i++) {
        assert_true(atomic_load(&passed[FEW][i]) <= SMALL);
        assert_true(atomic_load(&passed[TWO][i]) <= SMALL);
        is_charged(MANY, i, LARGE);
        is_charged(FEW, i, SMALL);
        is_charged(TWO, i, SMALL);
    }
}

static int start(void **state)
{
    (void)state;
    char address[SERVER_ADDRESS_MAX];
    struct weir_store_status status = { 0 };
    cluster_start(&cluster, MASTERS, 1, NULL);
    for (unsigned i = 0; i < SUBJECTS; i++)
        cluster_tag(cluster_first_slot(&cluster, i % MASTERS), cluster_last_slot(&cluster, i % MASTERS), i, subjects[i]);
    cluster_address(&cluster, 1, "", address);
    weir = open_with((struct weir_options){ .rules_text = RULES, .counters = address, .store_deadline_ms = 2000 });
    for (int i = 0; i < 1000 && status.nodes_up < MASTERS; i++) {
        usleep(5000);
        weir_store_status(weir, &status);
    }
    return status.nodes_up == MASTERS ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    weir_close(weir);
    cluster_end(&cluster);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(everything_at_once) };
    return cmocka_run_group_tests_name("redis/cluster_threads", tests, start, stop);
}
