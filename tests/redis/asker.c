#include "asker.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "cells/cells.h"

static void on_event(enum weir_store_event event, const char *text, void *data)
{
    struct asker *a = data;
    snprintf(a->texts[event], sizeof a->texts[event], "%s", text);
    atomic_fetch_add(&a->events[event], 1);
}

static void on_nudge(void *data)
{
    struct asker *a = data;
    a->nudged++;
}

const char *shown_of(const struct daemon *d)
{
    static char address[64];
    unsigned tls_port = d->server.tls_port;
    snprintf(address, sizeof address, tls_port ? "rediss://127.0.0.1:%u" : "redis://127.0.0.1:%u",
             tls_port ? tls_port : d->server.port);
    return address;
}

const char *address_of(const struct daemon *d)
{
    static char address[SERVER_ADDRESS_MAX];
    return redis_server_address(&d->server, address, "");
}

void asker_open(struct asker *a, const char *address, uint32_t deadline_ms)
{
    struct weir_error error;
    *a = (struct asker){ 0 };
    struct store_options options = {
        .address = address, .deadline_ms = deadline_ms, .on_event = on_event, .on_event_data = a
    };
    assert_int_equal(cells_open(&a->cells, NULL, (struct cells_size){ .keys = 1000 }, &error), 0);
    assert_int_equal(store_open(&a->store, &options, a->cells, &error), 0);
    assert_int_equal(store_link_new(&a->link, a->store, on_nudge, a), 0);
}

void asker_close(struct asker *a)
{
    store_link_free(a->link);
    store_close(a->store);
    cells_close(a->cells);
}

static void on_late(struct store_call *call)
{
    struct asked *q = (struct asked *)((char *)call - offsetof(struct asked, call));
    assert_false(atomic_load(&q->late));
    assert_false(atomic_load(&q->done));
    atomic_store(&q->late, true);
    if (call->link == q->asker->link)
        q->asker->late++;
}

static void on_done(struct store_call *call)
{
    struct asked *q = (struct asked *)((char *)call - offsetof(struct asked, call));
    struct asker *a = q->asker;
    assert_false(atomic_load(&q->done));
    q->late_first = atomic_load(&q->late);
    if (call->link == a->link) {
        a->done++;
        a->results[call->result]++;
        a->allowed += call->result == STORE_DECIDED && call->allowed;
    }
    atomic_store(&q->done, true);
}

void asked_init(struct asked *q, struct asker *a, const char *key, uint32_t max)
{
    *q = (struct asked){ .asker = a };
    limit_init(&q->limit, LIMIT_FIXED_WINDOW, max, 0, 3600 * US_PER_S);
    snprintf(q->key, sizeof q->key, "{%s}:rule:key", key);
    q->cell = (struct store_cell){ .limit = &q->limit, .field = weir_str("hour.f"), .cost = 1 };
    q->rule = (struct store_rule){ .key = weir_str(q->key), .cells = &q->cell, .cell_count = 1 };
    q->call = (struct store_call){ .rules = &q->rule, .rule_count = 1, .charge = true, .late = on_late, .done = on_done };
}

void asked_send(struct asked *q, int deadline_ms)
{
    q->late = q->done = false;
    q->call.deadline_us = clock_steady_us() + deadline_ms * US_PER_MS;
    store_send(q->asker->link, &q->call);
}

void asked_post(struct asked *q, int deadline_ms)
{
    q->late = q->done = false;
    q->call.deadline_us = clock_steady_us() + deadline_ms * US_PER_MS;
    store_post(q->asker->store, &q->call);
}

static void turn(struct asker *a, int most_ms)
{
    struct pollfd fd = { .fd = store_link_fd(a->link), .events = POLLIN };
    if (poll(&fd, 1, most_ms) > 0)
        store_link_run(a->link);
}

void run_until(struct asker *a, const unsigned *counter, unsigned least)
{
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    while (*counter < least && clock_steady_us() < until_us)
        turn(a, 1000);
    assert_true(*counter >= least);
}

void run_until_up(struct asker *a, bool up)
{
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    while (store_up(a->store) != up && clock_steady_us() < until_us)
        turn(a, 5);
    assert_int_equal(store_up(a->store), up);
}

void run_until_event(struct asker *a, enum weir_store_event event, unsigned least)
{
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    while (atomic_load(&a->events[event]) < least && clock_steady_us() < until_us)
        turn(a, 5);
    assert_int_equal(atomic_load(&a->events[event]), least);
}

void run_for(struct asker *a, int ms)
{
    int64_t until_us = clock_steady_us() + ms * US_PER_MS;
    for (int64_t left_us; (left_us = until_us - clock_steady_us()) > 0;)
        turn(a, (int)(left_us / US_PER_MS) + 1);
}

void run_until_decided(struct asker *a)
{
    static struct asked q;
    unsigned before = a->results[STORE_DECIDED];
    int64_t until_us = clock_steady_us() + LONG_MS * US_PER_MS;
    while (a->results[STORE_DECIDED] == before && clock_steady_us() < until_us) {
        unsigned done = a->done;
        asked_init(&q, a, "ready", 1000000000);
        asked_send(&q, 5000);
        store_link_flush(a->link);
        while (a->done == done)
            turn(a, 1000);
        turn(a, 2);
    }
    assert_true(a->results[STORE_DECIDED] > before);
}
