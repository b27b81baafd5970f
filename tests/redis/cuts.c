/* Connections are cut again and again while threads decide, over links and by posting. Whatever breaks: every call is done
 * exactly once, what was decided was charged, and what was said not to be charged was not. */
#include "asker.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "cells/cells.h"

enum { LOOPS = 2, POSTERS = 2, WINDOW = 40, MAX = 1000000000, CUT_MS = 7, CUTS = 150 };

static struct daemon server;
static struct store *store;
static atomic_bool over;
static atomic_uint decided, lost, unsent;

struct cut_call {
    struct limit limit;
    struct store_cell cell;
    struct store_rule rule;
    struct store_call call;
    unsigned *waiting; /* of a loop */
    atomic_bool done, late;
};

static struct cut_call *cut_call_of(struct store_call *call)
{
    return (struct cut_call *)((char *)call - offsetof(struct cut_call, call));
}

static void on_late(struct store_call *call)
{
    struct cut_call *c = cut_call_of(call);
    if (atomic_exchange(&c->late, true) || atomic_load(&c->done))
        abort();
}

static void on_done(struct store_call *call)
{
    struct cut_call *c = cut_call_of(call);
    if (call->result == STORE_DECIDED && call->allowed)
        atomic_fetch_add(&decided, 1);
    else if (call->result == STORE_LOST)
        atomic_fetch_add(&lost, 1);
    else if (call->result == STORE_UNSENT)
        atomic_fetch_add(&unsent, 1);
    else
        abort();
    if (c->waiting)
        --*c->waiting;
    if (atomic_exchange(&c->done, true))
        abort();
}

static void prepare(struct cut_call *c, unsigned *waiting)
{
    *c = (struct cut_call){ .waiting = waiting };
    limit_init(&c->limit, LIMIT_FIXED_WINDOW, MAX, 0, 3600 * US_PER_S);
    c->cell = (struct store_cell){ .limit = &c->limit, .field = weir_str("hour.f"), .cost = 1 };
    c->rule = (struct store_rule){ .key = weir_str("{cut}:rule:key"), .cells = &c->cell, .cell_count = 1 };
    c->call = (struct store_call){
        .rules = &c->rule,
        .rule_count = 1,
        .charge = true,
        .late = on_late,
        .done = on_done,
        .deadline_us = clock_steady_us() + 20 * US_PER_MS,
    };
}

static void *loop(void *unused)
{
    struct store_link *link;
    struct cut_call *calls = calloc(WINDOW, sizeof *calls);
    unsigned waiting = 0;
    (void)unused;
    if (!calls || store_link_new(&link, store, NULL, NULL) < 0)
        abort();
    while (!atomic_load(&over)) {
        struct pollfd fd = { .fd = store_link_fd(link), .events = POLLIN };
        for (int i = 0; i < WINDOW; i++)
            if (calls[i].call.done == NULL || atomic_load(&calls[i].done)) {
                waiting++;
                prepare(&calls[i], &waiting);
                store_send(link, &calls[i].call);
            }
        store_link_flush(link);
        if (poll(&fd, 1, waiting ? 1000 : 1) > 0)
            store_link_run(link);
    }
    store_link_free(link);
    if (waiting > 0)
        abort();
    free(calls);
    return NULL;
}

static void *poster(void *unused)
{
    struct cut_call c;
    (void)unused;
    while (!atomic_load(&over)) {
        prepare(&c, NULL);
        store_post(store, &c.call);
        while (!atomic_load(&c.done))
            usleep(50);
        usleep(200);
    }
    return NULL;
}

static double charged(void)
{
    struct talk talk;
    struct reply reply;
    double count;
    assert_true(talk_open(&talk, &server.server));
    talk_write(&talk, "HGET", "weir:1:{cut}:rule:key", "hour.f", NULL);
    assert_true(talk_read(&talk, &reply));
    assert_int_equal(reply.text.len, 3 * sizeof count);
    memcpy(&count, reply.text.ptr + 2 * sizeof count, sizeof count);
    talk_close(&talk);
    return count;
}

/* For so many more, 20 seconds at most. */
static void wait_for_decisions(unsigned more)
{
    for (unsigned n = atomic_load(&decided), i = 0; i < 4000 && atomic_load(&decided) < n + more; i++)
        usleep(5000);
}

static void cuts_lose_nothing(void **state)
{
    (void)state;
    struct cells *cells;
    struct weir_error error;
    pthread_t threads[LOOPS + POSTERS];
    daemon_start(&server, NULL);
    struct store_options options = { .address = address_of(&server), .deadline_ms = 20 };
    assert_int_equal(cells_open(&cells, NULL, (struct cells_size){ .keys = 1000 }, &error), 0);
    assert_int_equal(store_open(&store, &options, cells, &error), 0);
    for (int i = 0; i < LOOPS + POSTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < LOOPS ? loop : poster, NULL), 0);
    for (int i = 0; i < CUTS; i++) {
        usleep(CUT_MS * 1000);
        wait_for_decisions(1); /* else a busy machine cuts connections that nobody has used */
        if (i % 10 == 0)
            daemon_ask(&server, "SCRIPT", "FLUSH", NULL);
        daemon_ask(&server, "CLIENT", "KILL", "TYPE", "normal", NULL);
    }
    wait_for_decisions(100);
    atomic_store(&over, true);
    for (int i = 0; i < LOOPS + POSTERS; i++)
        pthread_join(threads[i], NULL);
    store_close(store);
    cells_close(cells);
    double count = charged();
    print_message("# charged %.0f, decided %u, lost %u, unsent %u\n", count, decided, lost, unsent);
    assert_true(decided > 100 && lost > 0);
    assert_true(count >= decided);
    assert_true(count <= (double)decided + lost);
    daemon_end(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cuts_lose_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
