/* A store and its links, against a real server that is stopped, killed and emptied. */
#include "asker.h"
#include "slices/slice.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cells/cells.h"
#include "redis/link.h"

static struct daemon server;

static int start(void **state)
{
    (void)state;
    daemon_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_end(&server);
    return 0;
}

static void open_ready(struct asker *a, uint32_t deadline_ms)
{
    asker_open(a, address_of(&server), deadline_ms);
    run_until_decided(a);
}

/* How often the server was told that somebody counts there; each time the mark of its data is looked at, too. */
static long beats(void)
{
    const char *found = strstr(daemon_ask(&server, "INFO", "commandstats", NULL), "cmdstat_zcard:calls=");
    return found ? strtol(found + strlen("cmdstat_zcard:calls="), NULL, 10) : 0;
}

static void open_known(struct asker *a, uint32_t deadline_ms)
{
    long before = beats();
    open_ready(a, deadline_ms);
    for (int i = 0; i < LONG_MS && beats() == before; i++)
        run_for(a, 1);
    assert_true(beats() > before);
}

/* ---- calls ---- */

static void many_calls_travel_in_one_pipeline(void **state)
{
    (void)state;
    enum { MANY = 5000, MAX = 1234 };
    struct asker a;
    struct asked *calls = calloc(MANY, sizeof *calls);
    struct weir_store_status status;
    open_ready(&a, 5000);
    unsigned done = a.done, allowed = a.allowed;
    for (int i = 0; i < MANY; i++) {
        asked_init(&calls[i], &a, "many", MAX);
        asked_send(&calls[i], 15000);
    }
    store_link_flush(a.link);
    run_until(&a, &a.done, done + MANY);
    assert_int_equal(a.allowed - allowed, MAX);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(calls[i].call.allowed, i < MAX); /* in the order in which they were sent */
    store_status(a.store, &status);
    assert_true(status.up && status.configured);
    assert_true(status.calls >= MANY / 32 && status.calls < MANY); /* several for each call of the script */
    assert_int_equal(status.late + status.failed + status.lost, 0);
    assert_string_equal(status.address, shown_of(&server));
    asker_close(&a);
    free(calls);
}

static void *post_some(void *ptr)
{
    struct asked *calls = ptr;
    for (int i = 0; i < 50; i++) {
        asked_post(&calls[i], 15000);
        while (!atomic_load(&calls[i].done))
            usleep(100);
    }
    return NULL;
}

static void threads_that_block_post_their_calls(void **state)
{
    (void)state;
    enum { THREADS = 4, EACH = 50, MAX = 120 };
    struct asker a;
    struct asked *calls = calloc(THREADS * EACH, sizeof *calls);
    pthread_t threads[THREADS];
    unsigned allowed = 0;
    open_ready(&a, 5000);
    for (int i = 0; i < THREADS * EACH; i++)
        asked_init(&calls[i], &a, "posted", MAX);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_some, &calls[i * EACH]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS * EACH; i++) {
        assert_int_equal(calls[i].call.result, STORE_DECIDED);
        allowed += calls[i].call.allowed;
    }
    assert_int_equal(allowed, MAX);
    asker_close(&a);
    free(calls);
}

static void forgotten_scripts_are_loaded_again(void **state)
{
    (void)state;
    enum { MANY = 100 };
    struct asker a;
    static struct asked calls[MANY];
    open_ready(&a, 5000);
    unsigned done = a.done, allowed = a.allowed;
    assert_string_equal(daemon_ask(&server, "SCRIPT", "FLUSH", NULL), "OK");
    for (int i = 0; i < MANY; i++) {
        asked_init(&calls[i], &a, "flushed", MANY / 2);
        asked_send(&calls[i], 15000);
    }
    store_link_flush(a.link);
    run_until(&a, &a.done, done + MANY);
    assert_int_equal(a.allowed - allowed, MANY / 2);
    assert_int_equal(a.results[STORE_FAILED], 0);
    assert_int_equal(a.events[WEIR_STORE_DOWN], 0);
    asker_close(&a);
}

static void a_foreign_key_is_refused_and_told_once(void **state)
{
    (void)state;
    struct asker a;
    static struct asked calls[20];
    open_ready(&a, 5000);
    unsigned done = a.done;
    daemon_ask(&server, "SET", "weir:1:{foreign}:rule:key", "x", NULL);
    for (int i = 0; i < 20; i++) {
        asked_init(&calls[i], &a, "foreign", 10);
        asked_send(&calls[i], 15000);
    }
    store_link_flush(a.link);
    run_until(&a, &a.done, done + 20);
    assert_int_equal(a.results[STORE_FAILED], 20);
    assert_non_null(strstr(calls[0].call.why, "{foreign}"));
    assert_int_equal(a.events[WEIR_STORE_ODD], 1);
    assert_non_null(strstr(a.texts[WEIR_STORE_ODD], "weir:1:{foreign}:rule:key"));
    assert_int_equal(a.events[WEIR_STORE_DOWN], 0);
    assert_true(store_up(a.store));
    asker_close(&a);
}

static void a_refund_gives_back(void **state)
{
    (void)state;
    struct asker a;
    struct asked q;
    open_ready(&a, 5000);
    for (int i = 0; i < 3; i++) {
        unsigned done = a.done;
        asked_init(&q, &a, "refunded", 1);
        asked_send(&q, 15000);
        store_link_flush(a.link);
        run_until(&a, &a.done, done + 1);
        assert_true(q.call.allowed);
        store_settle(a.link, &q.call);
    }
    asker_close(&a);
}

static void keys_are_forgotten(void **state)
{
    (void)state;
    struct asker a;
    struct asked q;
    struct weir_error error;
    open_ready(&a, 5000);
    for (int i = 0; i < 3; i++) {
        unsigned done = a.done;
        asked_init(&q, &a, "reset", 1);
        asked_send(&q, 15000);
        store_link_flush(a.link);
        run_until(&a, &a.done, done + 1);
        assert_true(q.call.allowed);
        struct weir_str keys[] = { weir_str("{nobody}:rule:key"), q.rule.key };
        assert_int_equal(store_forget(a.store, keys, 2, &error), 1); /* nobody was never counted */
    }
    asker_close(&a);
}

/* ---- slices ---- */

static void slices_come_and_nudge(void **state)
{
    (void)state;
    struct asker a;
    struct weir_store_status status;
    struct slice_ask ask = { .cell = 77, .need = 1, .slice = 10, .ttl_ms = 60000 };
    open_ready(&a, 5000);
    limit_init(&ask.limit, LIMIT_FIXED_WINDOW, 1000, 0, 3600 * US_PER_S);
    ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{lent}:rule:key");
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "hour.f");
    assert_true(store_want(a.store, &ask));
    run_until(&a, &a.nudged, 1);
    assert_int_equal(slice_spend(a.cells, 77, 10, 1000, clock_now_us(), 10, true).outcome, SLICE_TAKEN);
    ask.need = 3;
    assert_true(ask_post(a.cells, &ask, clock_steady_us()));
    run_until(&a, &a.nudged, 2);
    assert_int_equal(slice_spend(a.cells, 77, 10, 1000, clock_now_us(), 3, true).outcome, SLICE_TAKEN);
    struct lender_status news = lender_status_read(a.cells, clock_steady_us());
    assert_true(news.counters && news.up);
    store_status(a.store, &status);
    for (int i = 0; i < LONG_MS && status.held != 7; i++) { /* what is held is looked up now and then */
        run_for(&a, 1);
        store_status(a.store, &status);
    }
    assert_int_equal(status.slices, 2);
    assert_int_equal(status.lent, 20);
    assert_int_equal(status.held, 7);
    asker_close(&a);
    /* Seven were not spent, and came back when it was closed. */
    asker_open(&a, address_of(&server), 5000);
    run_until_decided(&a);
    struct asked q;
    asked_init(&q, &a, "lent", 1000);
    q.cell.cost = 987;
    unsigned done = a.done;
    asked_send(&q, 15000);
    store_link_flush(a.link);
    run_until(&a, &a.done, done + 1);
    assert_true(q.call.allowed);
    asker_close(&a);
}

static void a_link_wakes_when_told(void **state)
{
    (void)state;
    struct asker a;
    open_ready(&a, 5000);
    int64_t at_us = clock_steady_us() + 30 * US_PER_MS;
    unsigned nudged = a.nudged;
    store_link_wake_at(a.link, at_us);
    run_until(&a, &a.nudged, nudged + 1);
    assert_true(clock_steady_us() >= at_us);
    asker_close(&a);
}

/* ---- hosts ---- */

static void hosts_are_counted(void **state)
{
    (void)state;
    struct asker a, b;
    daemon_ask(&server, "FLUSHALL", NULL);
    open_ready(&a, 5000);
    asker_open(&b, address_of(&server), 5000);
    run_until_decided(&b);
    for (int i = 0; i < 2000 && (store_hosts(a.store) != 2 || store_hosts(b.store) != 2); i++)
        usleep(5000);
    assert_int_equal(store_hosts(a.store), 2);
    assert_int_equal(store_hosts(b.store), 2);
    asker_close(&b);
    assert_string_equal(daemon_ask(&server, "ZCARD", "weir:1:hosts", NULL), ":1");
    for (int i = 0; i < 2000 && store_hosts(a.store) != 1; i++)
        usleep(5000);
    assert_int_equal(store_hosts(a.store), 1);
    asker_close(&a);
    assert_string_equal(daemon_ask(&server, "ZCARD", "weir:1:hosts", NULL), ":0");
}

/* ---- outages ---- */

static void a_stopped_server_is_told_in_time_and_answers_later(void **state)
{
    (void)state;
    enum { FEW = 10 };
    struct asker a;
    static struct asked calls[FEW], more;
    open_ready(&a, 20);
    unsigned late = a.late, done = a.done, decided = a.results[STORE_DECIDED], unsent = a.results[STORE_UNSENT];
    daemon_freeze(&server, true);
    for (int i = 0; i < FEW; i++) {
        asked_init(&calls[i], &a, "stopped", 1000);
        asked_send(&calls[i], 20);
    }
    store_link_flush(a.link);
    int64_t sent_us = clock_steady_us();
    run_until(&a, &a.late, late + FEW);
    assert_true(clock_steady_us() - sent_us >= 19 * US_PER_MS);
    assert_int_equal(a.done, done);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    assert_false(store_up(a.store));
    asked_init(&more, &a, "stopped", 1000);
    asked_send(&more, 20);
    assert_true(more.done);
    assert_int_equal(a.results[STORE_UNSENT], unsent + 1);
    asked_post(&more, 20);
    assert_true(more.done);
    assert_int_equal(more.call.result, STORE_UNSENT);
    run_for(&a, 200);
    assert_false(store_up(a.store));
    daemon_freeze(&server, false);
    run_until(&a, &a.results[STORE_DECIDED], decided + FEW);
    for (int i = 0; i < FEW; i++)
        assert_true(calls[i].late_first && calls[i].call.allowed);
    run_until_event(&a, WEIR_STORE_UP, 2);
    run_until_decided(&a);
    struct weir_store_status status;
    store_status(a.store, &status);
    assert_int_equal(status.opened, 1);
    assert_int_equal(status.late, FEW);
    assert_int_equal(status.replaced + status.emptied + status.lost, 0);
    asker_close(&a);
}

static void what_waits_is_bounded(void **state)
{
    (void)state;
    enum { TOO_MANY = STORE_FLIGHT_MAX + 10 };
    struct asker a;
    struct asked *calls = calloc(TOO_MANY, sizeof *calls);
    open_ready(&a, 15000);
    unsigned decided = a.results[STORE_DECIDED], unsent = a.results[STORE_UNSENT];
    daemon_freeze(&server, true);
    for (int i = 0; i < TOO_MANY; i++) {
        asked_init(&calls[i], &a, "bounded", TOO_MANY);
        asked_send(&calls[i], 15000);
        if (i % 1000 == 0)
            store_link_flush(a.link);
    }
    store_link_flush(a.link);
    assert_int_equal(a.results[STORE_UNSENT], unsent + 10);
    daemon_freeze(&server, false);
    run_until(&a, &a.results[STORE_DECIDED], decided + STORE_FLIGHT_MAX);
    asker_close(&a);
    free(calls);
}

static void bytes_that_wait_are_bounded(void **state)
{
    (void)state;
    enum { CALLS = 250, KEY = 100000 }; /* the kernel keeps some of them, too */
    struct asker a;
    static struct asked calls[CALLS];
    static char key[KEY];
    open_ready(&a, 15000);
    daemon_freeze(&server, true); /* or it might take them as fast as they are sent */
    unsigned done = a.done, decided = a.results[STORE_DECIDED], unsent = a.results[STORE_UNSENT];
    memset(key, 'k', sizeof key);
    for (int i = 0; i < CALLS; i++) {
        asked_init(&calls[i], &a, "long", 1000);
        calls[i].rule.key = (struct weir_str){ key, KEY };
        asked_send(&calls[i], 15000);
    }
    unsigned most = STORE_QUEUE_MAX / KEY, together = 32;
    store_link_flush(a.link);
    daemon_freeze(&server, false);
    run_until(&a, &a.done, done + CALLS);
    assert_in_range(a.results[STORE_UNSENT] - unsent, 1, CALLS - most + together);
    assert_in_range(a.results[STORE_DECIDED] - decided, most - together, CALLS - 1);
    asker_close(&a);
}

static void a_killed_server_is_noticed_and_found_again(void **state)
{
    (void)state;
    enum { FEW = 3 };
    struct asker a;
    static struct asked calls[FEW];
    struct weir_store_status status;
    open_known(&a, 100);
    daemon_freeze(&server, true);
    unsigned done = a.done;
    for (int i = 0; i < FEW; i++) {
        asked_init(&calls[i], &a, "killed", 1000);
        asked_send(&calls[i], 5000);
    }
    store_link_flush(a.link);
    daemon_kill(&server);
    run_until(&a, &a.done, done + FEW);
    assert_int_equal(a.results[STORE_LOST], FEW);
    for (int i = 0; i < FEW; i++)
        assert_true(calls[i].late_first);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    assert_non_null(strstr(a.texts[WEIR_STORE_DOWN], shown_of(&server)));
    daemon_again(&server);
    run_until_event(&a, WEIR_STORE_UP, 2);
    run_until_event(&a, WEIR_STORE_REPLACED, 1);
    run_until_event(&a, WEIR_STORE_EMPTIED, 1);
    run_until_decided(&a);
    store_status(a.store, &status);
    assert_int_equal(status.replaced, 1);
    assert_int_equal(status.emptied, 1);
    assert_int_equal(status.lost, FEW);
    assert_int_equal(status.opened, 1);
    asker_close(&a);
}

static void an_emptied_store_is_noticed(void **state)
{
    (void)state;
    struct asker a;
    open_known(&a, 5000);
    daemon_ask(&server, "FLUSHALL", NULL);
    run_until_event(&a, WEIR_STORE_EMPTIED, 1);
    /* Also by the one who made the mark that is gone. */
    daemon_ask(&server, "FLUSHALL", NULL);
    run_until_event(&a, WEIR_STORE_EMPTIED, 2);
    assert_int_equal(a.events[WEIR_STORE_REPLACED], 0);
    asker_close(&a);
}

static void a_connection_that_is_cut_is_made_again(void **state)
{
    (void)state;
    struct asker a;
    open_ready(&a, 5000);
    daemon_ask(&server, "CLIENT", "KILL", "TYPE", "normal", NULL);
    run_for(&a, 20);
    run_until_decided(&a);
    assert_int_equal(a.events[WEIR_STORE_REPLACED], 0);
    asker_close(&a);
}

static void a_store_that_is_full_is_away(void **state)
{
    (void)state;
    struct asker a;
    static struct asked calls[10];
    open_ready(&a, 5000);
    unsigned done = a.done;
    daemon_ask(&server, "CONFIG", "SET", "maxmemory", "1", NULL);
    for (int i = 0; i < 10; i++) {
        asked_init(&calls[i], &a, "full", 1000);
        asked_send(&calls[i], 5000);
    }
    store_link_flush(a.link);
    run_until(&a, &a.done, done + 10);
    assert_int_equal(a.results[STORE_FAILED], 10);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    assert_non_null(strstr(a.texts[WEIR_STORE_DOWN], "OOM"));
    struct weir_store_status before, after;
    store_status(a.store, &before);
    run_for(&a, 1500); /* longer than a beat */
    assert_false(store_up(a.store));
    store_status(a.store, &after);
    assert_in_range(after.failed - before.failed, 1, 20); /* probes, and nothing that is repeated without a pause */
    daemon_ask(&server, "CONFIG", "SET", "maxmemory", "0", NULL);
    run_until_event(&a, WEIR_STORE_UP, 2);
    run_until_decided(&a);
    asker_close(&a);
}

static void a_store_that_is_not_there_may_come(void **state)
{
    (void)state;
    struct asker a;
    struct asked q;
    daemon_kill(&server);
    asker_open(&a, address_of(&server), 20);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    assert_non_null(strstr(a.texts[WEIR_STORE_DOWN], "Connection refused"));
    asked_init(&q, &a, "absent", 10);
    asked_send(&q, 20);
    assert_int_equal(q.call.result, STORE_UNSENT);
    assert_int_equal(store_hosts(a.store), 1);
    daemon_again(&server);
    run_until_event(&a, WEIR_STORE_UP, 1);
    run_until_decided(&a);
    assert_int_equal(a.events[WEIR_STORE_DOWN], 1);
    asker_close(&a);
}

/* The store's thread is connected first. The store is up then, and a call over another link waits for its connection. */
static void a_store_that_is_back_is_waited_for(void **state)
{
    (void)state;
    struct asker a;
    struct asked q;
    open_ready(&a, 5000);
    daemon_kill(&server);
    run_until_event(&a, WEIR_STORE_DOWN, 1);
    run_for(&a, 200); /* attempts fail, and the link is told */
    asked_init(&q, &a, "back", 10);
    asked_send(&q, 5000);
    assert_int_equal(q.call.result, STORE_UNSENT);

    daemon_again(&server);
    for (int i = 0; i < LONG_MS && atomic_load(&a.events[WEIR_STORE_UP]) < 2; i++)
        usleep(1000); /* the link does not run: it has not taken its connection yet */
    assert_true(store_up(a.store));
    unsigned done = a.done;
    asked_init(&q, &a, "back", 10);
    asked_send(&q, 5000);
    store_link_flush(a.link);
    assert_int_equal(a.done, done);
    run_until(&a, &a.done, done + 1);
    assert_int_equal(q.call.result, STORE_DECIDED);
    assert_false(q.late);
    asker_close(&a);
}

static void set_password(struct talk *admin, const char *password)
{
    struct reply reply;
    talk_write(admin, "CONFIG", "SET", "requirepass", password, NULL);
    assert_true(talk_read(admin, &reply));
    assert_int_equal(reply.kind, REPLY_STATUS);
}

/* The server goes on answering to the store's thread, and lets nobody else in. */
static void a_link_that_is_not_let_in_makes_nobody_wait(void **state)
{
    (void)state;
    struct asker a;
    struct asked q;
    struct talk admin;
    open_ready(&a, 10000);
    assert_true(talk_open(&admin, &server.server));
    set_password(&admin, "secret");
    shutdown(a.link->lanes[0]->socket, SHUT_RDWR);
    for (int i = 0; i < LONG_MS && a.link->lanes[0]->socket >= 0; i++)
        run_for(&a, 1);
    assert_int_equal(a.link->lanes[0]->socket, -1);

    unsigned done = a.done;
    asked_init(&q, &a, "locked", 10);
    asked_send(&q, 2 * LONG_MS); /* waits, at most until the connector has failed */
    store_link_flush(a.link);
    run_until(&a, &a.done, done + 1);
    assert_int_equal(q.call.result, STORE_UNSENT);
    for (unsigned i = 2; i < 32; i++) {
        run_for(&a, 50); /* the breaker may be open now and then, as further attempts fail */
        asked_send(&q, 2 * LONG_MS);
        assert_int_equal(a.done, done + i);
        assert_int_equal(q.call.result, STORE_UNSENT);
    }

    set_password(&admin, "");
    run_until_decided(&a);
    talk_close(&admin);
    asker_close(&a);
}

static void decide_once(struct asker *a, struct asked *q)
{
    unsigned done = a->done;
    asked_send(q, LONG_MS);
    store_link_flush(a->link);
    run_until(a, &a->done, done + 1);
    assert_int_equal(q->call.result, STORE_DECIDED);
}

/* The store's thread was connected first. */
static void cut_off_own_thread(struct talk *admin)
{
    struct reply reply;
    char id[24] = "";
    talk_write(admin, "CLIENT", "LIST", NULL);
    assert_true(talk_read(admin, &reply));
    for (sv rest = reply.text; rest.len > 0 && !id[0];) {
        sv line = sv_cut(&rest, '\n'), first = sv_cut(&line, ' ');
        if (memmem(line.ptr, line.len, " name=weir ", strlen(" name=weir ")))
            snprintf(id, sizeof id, "%.*s", SV_FMT(sv_from(first, strlen("id="))));
    }
    talk_write(admin, "CLIENT", "KILL", "ID", id, NULL);
    assert_true(talk_read(admin, &reply));
    assert_int_equal(reply.integer, 1);
}

/* The store is up, since other links have their connections. A settlement that was accepted waits for that of the store's
 * thread. */
static void a_settlement_waits_for_a_connection(void **state)
{
    (void)state;
    struct asker a;
    struct asked q, other;
    struct talk admin;
    open_ready(&a, 10000);
    assert_true(talk_open(&admin, &server.server));
    asked_init(&q, &a, "settled", 1);
    asked_init(&other, &a, "other", 1000000);
    decide_once(&a, &q);
    assert_true(q.call.allowed);
    set_password(&admin, "secret");
    cut_off_own_thread(&admin);
    for (int i = 0; i < LONG_MS && atomic_load(&a.store->nodes[0]->connected) > 1; i++)
        decide_once(&a, &other); /* the breaker stays closed */
    assert_int_equal(atomic_load(&a.store->nodes[0]->connected), 1);

    q.call.settle = true;
    asked_post(&q, LONG_MS);
    set_password(&admin, "");
    for (int i = 0; i < LONG_MS && !atomic_load(&q.done); i++)
        run_for(&a, 1);
    assert_true(atomic_load(&q.done));
    asked_init(&q, &a, "settled", 1);
    for (int i = 0; i < LONG_MS && !q.call.allowed; i++) {
        decide_once(&a, &q);
        run_for(&a, 1);
    }
    assert_true(q.call.allowed);
    talk_close(&admin);
    asker_close(&a);
}

/* ---- closing ---- */

static void closing_does_not_wait_for_a_stopped_server(void **state)
{
    (void)state;
    struct asker a;
    static struct asked calls[3];
    open_ready(&a, 5000);
    unsigned done = a.done;
    daemon_freeze(&server, true);
    for (int i = 0; i < 3; i++) {
        asked_init(&calls[i], &a, "closing", 10);
        asked_send(&calls[i], 5000);
    }
    store_link_flush(a.link);
    int64_t since_us = clock_steady_us();
    asker_close(&a);
    assert_true(clock_steady_us() - since_us < 5 * US_PER_S);
    assert_int_equal(a.done, done + 3);
    assert_int_equal(a.results[STORE_LOST], 3);
    /* One that is still connecting is not waited for either. */
    asker_open(&a, address_of(&server), 20);
    usleep(20000);
    asker_close(&a);
    daemon_freeze(&server, false);
}

static void a_child_leaves_the_threads_alone(void **state)
{
    (void)state;
    struct asker a;
    int status = -1;
    open_ready(&a, 5000);
    pid_t pid = fork();
    if (pid == 0) {
        store_close(a.store);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    run_until_decided(&a);
    asker_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_calls_travel_in_one_pipeline),
        cmocka_unit_test(threads_that_block_post_their_calls),
        cmocka_unit_test(forgotten_scripts_are_loaded_again),
        cmocka_unit_test(a_foreign_key_is_refused_and_told_once),
        cmocka_unit_test(a_refund_gives_back),
        cmocka_unit_test(keys_are_forgotten),
        cmocka_unit_test(slices_come_and_nudge),
        cmocka_unit_test(a_link_wakes_when_told),
        cmocka_unit_test(hosts_are_counted),
        cmocka_unit_test(a_stopped_server_is_told_in_time_and_answers_later),
        cmocka_unit_test(what_waits_is_bounded),
        cmocka_unit_test(bytes_that_wait_are_bounded),
        cmocka_unit_test(a_killed_server_is_noticed_and_found_again),
        cmocka_unit_test(an_emptied_store_is_noticed),
        cmocka_unit_test(a_connection_that_is_cut_is_made_again),
        cmocka_unit_test(a_store_that_is_full_is_away),
        cmocka_unit_test(a_store_that_is_not_there_may_come),
        cmocka_unit_test(a_store_that_is_back_is_waited_for),
        cmocka_unit_test(a_link_that_is_not_let_in_makes_nobody_wait),
        cmocka_unit_test(a_settlement_waits_for_a_connection),
        cmocka_unit_test(closing_does_not_wait_for_a_stopped_server),
        cmocka_unit_test(a_child_leaves_the_threads_alone),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
