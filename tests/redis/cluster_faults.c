/* A real cluster that misbehaves: slots that stay in the middle of a move, nodes that are stopped. What concerns one slot
 * or one node leaves the others alone. */
#include "asker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster.h"
#include "redis/slot_map.h"

enum { MASTERS = 3, DEADLINE_MS = 50, MAX = 1000000, STUCK_MS = 4000 };

static struct cluster cluster;

static int start(void **state)
{
    static const char *const more[] = { "--enable-debug-command", "yes", NULL };
    (void)state;
    cluster_start(&cluster, MASTERS, 0, more);
    return 0;
}

static int end(void **state)
{
    (void)state;
    cluster_end(&cluster);
    return 0;
}

/* Subjects of tests do not meet: each has a slot of its own. */
static const char *tag_of(size_t node, unsigned nth, char ret[CLUSTER_KEY_MAX])
{
    unsigned slot = cluster_first_slot(&cluster, node) + 10 + nth;
    return cluster_tag(slot, slot, 0, ret);
}

static void open_asker(struct asker *a, size_t seeds)
{
    char address[SERVER_ADDRESS_MAX];
    asker_open(a, cluster_address(&cluster, seeds, "", address), DEADLINE_MS);
}

#define RUN_UNTIL(a, condition)                                   \
    do {                                                          \
        int64_t end_us = clock_steady_us() + LONG_MS * US_PER_MS; \
        while (!(condition) && clock_steady_us() < end_us)        \
            run_for(a, 5);                                        \
        assert_true(condition);                                   \
    } while (0)

/* Sends the call until it is decided, so the link has a connection to its node. */
static void decide(struct asked *q)
{
    struct asker *a = q->asker;
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    do {
        unsigned done = a->done;
        asked_send(q, 1000);
        store_link_flush(a->link);
        run_until(a, &a->done, done + 1);
        if (q->call.result != STORE_DECIDED)
            run_for(a, 5);
    } while (q->call.result != STORE_DECIDED && clock_steady_us() < until_us);
    assert_int_equal(q->call.result, STORE_DECIDED);
}

static uint64_t used(struct asker *a, const char *tag)
{
    static struct asked q;
    asked_init(&q, a, tag, MAX);
    q.call.charge = false;
    q.cell.cost = 0;
    decide(&q);
    return MAX - limit_report(&q.limit, NULL, q.cell.state, q.call.server_us, 0).remaining;
}

/* ---- slots that stay in the middle of a move ---- */

/* A settlement needs three keys, so it waits until the slot has moved. Other commands of its connection do not suffer. */
static void test_settlement_waits_for_its_slot(void **state)
{
    static struct asker a;
    static struct asked q, other;
    char tag[CLUSTER_KEY_MAX], beside[CLUSTER_KEY_MAX];
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&q, &a, tag_of(0, 0, tag), MAX);
    asked_init(&other, &a, tag_of(0, 1, beside), MAX);
    decide(&q);
    decide(&other);
    unsigned slot = cluster_slot(weir_str(tag));
    cluster_move_begin(&cluster, slot, 0, 1);
    q.cell.own = 1;
    q.cell.to = 0;
    store_settle(a.link, &q.call);
    unsigned downs = atomic_load(&a.events[WEIR_STORE_DOWN]), done = a.done, sent = 0;
    unsigned decided = a.results[STORE_DECIDED];
    for (int64_t until_us = clock_steady_us() + STUCK_MS * US_PER_MS; clock_steady_us() < until_us; sent++) {
        asked_send(&other, 1000);
        store_link_flush(a.link);
        run_until(&a, &a.done, done + sent + 1);
        run_for(&a, 2);
    }
    assert_int_equal(a.results[STORE_LOST], 0);
    assert_int_equal(a.results[STORE_DECIDED], decided + sent);
    assert_int_equal(atomic_load(&a.events[WEIR_STORE_DOWN]), downs);
    cluster_move_keys(&cluster, slot, 0, 1, 100);
    cluster_move_end(&cluster, slot, 0, 1);
    RUN_UNTIL(&a, used(&a, tag) == 0);
    asker_close(&a);
}

/* The slot is at another node by now, to which the link has no connection yet. */
static void test_settlement_at_a_new_node(void **state)
{
    static struct asker a;
    static struct asked q;
    char tag[CLUSTER_KEY_MAX];
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&q, &a, tag_of(0, 7, tag), MAX);
    decide(&q);
    unsigned slot = cluster_slot(weir_str(tag));
    const struct node *before = map_node(a.store, (uint16_t)slot);
    cluster_move(&cluster, slot, slot, 0, 1);
    RUN_UNTIL(&a, map_node(a.store, (uint16_t)slot) != before);
    q.cell.own = 1;
    q.cell.to = 0;
    store_settle(a.link, &q.call);
    store_link_flush(a.link);
    RUN_UNTIL(&a, used(&a, tag) == 0);
    asker_close(&a);
}

/* Commands that wait for a slot are answered when the link or the store is closed. */
static void test_closing_while_commands_wait(void **state)
{
    static struct asker a;
    static struct asked q, over_link, posted;
    char tag[CLUSTER_KEY_MAX];
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&q, &a, tag_of(0, 8, tag), MAX);
    decide(&q);
    unsigned slot = cluster_slot(weir_str(tag));
    cluster_move_begin(&cluster, slot, 0, 1);
    cluster_move_keys(&cluster, slot, 0, 1, 100);
    struct asked *const both[] = { &over_link, &posted };
    for (size_t i = 0; i < 2; i++) {
        asked_init(both[i], &a, tag, MAX);
        both[i]->cell.hold = (struct store_hold){ .ttl_us = US_PER_S, .amount = 1 };
        both[i]->call.hold_id = 7;
    }
    asked_send(&over_link, LONG_MS);
    asked_post(&posted, LONG_MS);
    q.cell.own = 1;
    q.cell.to = 0;
    store_settle(a.link, &q.call);
    run_for(&a, 200);
    assert_false(atomic_load(&over_link.done) || atomic_load(&posted.done));
    int64_t begin_us = clock_steady_us();
    asker_close(&a);
    assert_true(clock_steady_us() - begin_us < 2 * US_PER_S);
    for (size_t i = 0; i < 2; i++) { /* STORE_LOST: it was sent once more at that moment */
        assert_true(atomic_load(&both[i]->done));
        assert_true(both[i]->call.result == STORE_UNSENT || both[i]->call.result == STORE_LOST);
    }
    cluster_move_end(&cluster, slot, 0, 1);
}

/* A decision that waits for a slot is told so at its deadline, not later. */
static void test_parked_decisions_end_in_time(void **state)
{
    static struct asker a;
    static struct asked q;
    char tag[CLUSTER_KEY_MAX];
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&q, &a, tag_of(0, 2, tag), MAX);
    decide(&q);
    unsigned slot = cluster_slot(weir_str(tag));
    cluster_move_begin(&cluster, slot, 0, 1);
    cluster_move_keys(&cluster, slot, 0, 1, 100);
    q.cell.hold = (struct store_hold){ .ttl_us = US_PER_S, .amount = 1 }; /* may not follow ASK */
    q.call.hold_id = 7;
    int64_t least_us = INT64_MAX;
    for (int i = 0; i < 10; i++) {
        unsigned done = a.done;
        int64_t begin_us = clock_steady_us();
        asked_send(&q, 40);
        store_link_flush(a.link);
        run_until(&a, &a.done, done + 1);
        int64_t took_us = clock_steady_us() - begin_us;
        least_us = took_us < least_us ? took_us : least_us;
        assert_int_not_equal(q.call.result, STORE_DECIDED);
    }
    assert_true(least_us < 60 * US_PER_MS);
    cluster_move_end(&cluster, slot, 0, 1);
    asker_close(&a);
}

/* The mark that a probe writes is in the first slot of a node. If that slot stays in the middle of a move, the node answers
 * nevertheless. */
static void test_node_comes_back_while_its_mark_moves(void **state)
{
    static struct asker a;
    static struct asked q;
    char tag[CLUSTER_KEY_MAX];
    char word[8], mark[32];
    unsigned slot = cluster_first_slot(&cluster, 2);
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&q, &a, tag_of(2, 3, tag), MAX);
    decide(&q);
    hash_slot_word((uint16_t)slot, word);
    snprintf(mark, sizeof mark, "weir:1:born:{%s}", word);
    RUN_UNTIL(&a, strcmp(daemon_ask(&cluster.nodes[2], "EXISTS", mark, NULL), ":1") == 0);
    cluster_move_begin(&cluster, slot, 2, 1);
    assert_true(cluster_move_keys(&cluster, slot, 2, 1, 100) > 0);
    cluster_freeze(&cluster, 2, true);
    int64_t until_us = clock_steady_us() + 800 * US_PER_MS;
    while (store_up_for(a.store, weir_str(q.key)) && clock_steady_us() < until_us) {
        unsigned late = a.late;
        static struct asked lost[100];
        static size_t next;
        assert_true(next < 100);
        asked_init(&lost[next], &a, tag, MAX);
        asked_send(&lost[next], 10);
        store_link_flush(a.link);
        if (!lost[next++].done)
            run_until(&a, &a.late, late + 1);
    }
    cluster_freeze(&cluster, 2, false);
    assert_false(store_up_for(a.store, weir_str(q.key)));
    RUN_UNTIL(&a, store_up_for(a.store, weir_str(q.key)));
    cluster_move_end(&cluster, slot, 2, 1);
    cluster_move(&cluster, slot, slot, 1, 2);
    asker_close(&a);
}

/* In a slot that moves, a key that is over exists for Redis until somebody reads it. The other decisions of the same call
 * of the script are answered as they were charged. */
static void test_key_that_is_over_while_its_slot_moves(void **state)
{
    static struct asker a;
    static struct asked q, other;
    char tag[CLUSTER_KEY_MAX], beside[CLUSTER_KEY_MAX], name[96];
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&other, &a, tag_of(0, 4, beside), MAX);
    asked_init(&q, &a, tag_of(0, 5, tag), MAX);
    decide(&q);
    decide(&other);
    unsigned slot = cluster_slot(weir_str(tag));
    daemon_ask(&cluster.nodes[0], "DEBUG", "SET-ACTIVE-EXPIRE", "0", NULL);
    snprintf(name, sizeof name, "weir:1:%s", q.key);
    assert_string_equal(daemon_ask(&cluster.nodes[0], "PEXPIRE", name, "1", NULL), ":1");
    usleep(20 * 1000);
    cluster_move_begin(&cluster, slot, 0, 1);
    unsigned done = a.done;
    asked_send(&other, 1000);
    asked_send(&q, 1000);
    store_link_flush(a.link);
    run_until(&a, &a.done, done + 2);
    uint64_t charged = used(&a, beside);
    assert_int_equal(other.call.result, STORE_DECIDED);
    assert_int_equal(charged, 2);
    assert_int_equal(q.call.result, STORE_DECIDED);
    daemon_ask(&cluster.nodes[0], "DEBUG", "SET-ACTIVE-EXPIRE", "1", NULL);
    cluster_move_keys(&cluster, slot, 0, 1, 100);
    cluster_move_end(&cluster, slot, 0, 1);
    assert_int_equal(used(&a, tag), 1);
    asker_close(&a);
}

/* ---- nodes that are stopped ---- */

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The link has an idle connection to a node that is stopped, and the store's thread has none any more: it waits. */
static void test_waiting_for_a_node_costs_nothing(void **state)
{
    static struct asker a;
    static struct asked q;
    char tag[CLUSTER_KEY_MAX];
    (void)state;
    open_asker(&a, MASTERS);
    asked_init(&q, &a, tag_of(2, 6, tag), MAX);
    decide(&q);
    const struct node *node = map_node(a.store, hash_slot(weir_str(q.key)));
    cluster_freeze(&cluster, 2, true);
    RUN_UNTIL(&a, !node_up(node) && atomic_load(&node->connected) == 1);
    run_for(&a, 1000); /* longer than the time between two probes */
    double before = cpu_s();
    run_for(&a, 2000);
    double took = cpu_s() - before;
    cluster_freeze(&cluster, 2, false);
    assert_true(took < 0.6);
    asker_close(&a);
    cluster_wait_ok(&cluster);
}

/* Nodes that accept connections and say nothing cost a second each. The others are connected nevertheless. */
static void test_stopped_seeds_do_not_keep_others_away(void **state)
{
    static struct asker a;
    (void)state;
    cluster_freeze(&cluster, 0, true);
    cluster_freeze(&cluster, 1, true);
    open_asker(&a, MASTERS);
    /* Whether it does its work is another question: a third of the masters is not a cluster. */
    uint16_t slot = (uint16_t)cluster_first_slot(&cluster, 2);
    RUN_UNTIL(&a, map_node(a.store, slot) && atomic_load(&map_node(a.store, slot)->connected) > 0);
    cluster_freeze(&cluster, 0, false);
    cluster_freeze(&cluster, 1, false);
    asker_close(&a);
    cluster_wait_ok(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settlement_waits_for_its_slot),
        cmocka_unit_test(test_settlement_at_a_new_node),
        cmocka_unit_test(test_closing_while_commands_wait),
        cmocka_unit_test(test_parked_decisions_end_in_time),
        cmocka_unit_test(test_node_comes_back_while_its_mark_moves),
        cmocka_unit_test(test_key_that_is_over_while_its_slot_moves),
        cmocka_unit_test(test_waiting_for_a_node_costs_nothing),
        cmocka_unit_test(test_stopped_seeds_do_not_keep_others_away),
    };
    return cmocka_run_group_tests(tests, start, end);
}
