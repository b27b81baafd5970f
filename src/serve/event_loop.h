/* One thread with an event loop: its share of the listeners, its connections, its counters. The loops share nothing but the
 * engine. The first loops decide; a last one has the admin listener, so that nothing that is asked there holds up a
 * decision. */
#ifndef SERVE_EVENT_LOOP_H
#define SERVE_EVENT_LOOP_H

#include <pthread.h>
#include <uv.h>

#include <weir/weir.h>

#include "serve/conns.h"
#include "serve/tls_setup.h"
#include "serve/tokens.h"

struct sample;
struct server;
struct stats;

struct loop_task {
    void (*run)(struct loop_task *task);
    struct loop_task *next;
};

/* Speaks the protocol of a listener. */
struct loop_acceptor {
    void (*accept)(void *data, int fd, const struct sockaddr_storage *peer); /* a new connection; takes over fd */
    void (*free)(void *data);                                                /* called by loop_done */
    void *data;
    void (*drain)(void *data); /* may be NULL: the loop begins to drain */
};

struct loop;
struct loop_listener {
    uv_poll_t poll;
    struct loop *loop;
    struct loop_acceptor acceptor;
    int fd; /* -1: none */
};

struct loop {
    struct server *server;
    uv_loop_t uv;
    pthread_t thread;
    bool started;
    int64_t now_us;    /* as it was last read; … */
    unsigned now_uses; /* … for so many more decisions */
    struct conns conns;
    struct stats *stats;
    struct sample *sample; /* of its requests; NULL: it keeps none */
    struct loop_listener listeners[FRONTS];
    struct tls_setup tls;  /* the same */
    unsigned relays;       /* connections with TLS: see tls_relay.h */
    struct tokens *tokens; /* of its own thread, so that a reload needs no lock */
    bool draining;         /* no new connections; each is closed after its answer */
    int64_t drain_end_ms, drain_idle_ms;

    struct weir_loop *store; /* NULL: everything is decided at once */
    uv_poll_t store_poll;
    bool store_asked;   /* something may have to be sent before this turn ends */
    unsigned working;   /* commands that other threads are running with the engine */
    void *envoy_shared; /* of envoy_decide.c, which allocates it; freed with the loop */

    uv_prepare_t turn;
    uv_timer_t sweep;
    int64_t swept_ms; /* the last time */
    uv_async_t wake;
    pthread_mutex_t lock; /* of what follows */
    struct loop_task *tasks, **tasks_end;
    struct loop_task drain;
};

/* CLOCK_REALTIME, read once for a few decisions. */
int64_t loop_now_us(struct loop *loop);
/* Something was read from the network, or took its time: the clock is read again for the next decision. */
void loop_time_passed(struct loop *loop);
/* A clock that does not step, for deadlines. */
int64_t loop_now_ms(struct loop *loop);

/* From any thread: `run` is called in the loop's thread soon. The task is the caller's again once it runs. */
void loop_post(struct loop *loop, struct loop_task *task);

/* Gives the calling thread this priority, and short time slices: the kernel grants them sooner, and takes them away sooner.
 * Kernels before 6.12 ignore the length. */
void thread_set_turns(int nice);

int loop_init(struct loop *loop, struct server *server, const struct conns_limits *limits);
/* Takes over fd, a listening socket, and the acceptor, even if it returns an error. */
int loop_listen(struct loop *loop, enum front front, int fd, const struct loop_acceptor *acceptor);
/* For an acceptor: allocates a connection of `size` bytes, all 0, and initialises the uv_poll_t at poll_offset in it for
 * fd. The data of the uv_poll_t is the connection. Returns NULL, with fd closed, if memory or libuv fails. */
void *loop_conn_new(struct loop *loop, size_t size, size_t poll_offset, int fd);
/* Before it starts: decisions of this loop may wait for the store. */
int loop_open_store(struct loop *loop, struct weir *weir, struct weir_error *error);
int loop_start(struct loop *loop);
/* Answers what has been accepted, then ends, after server->config.drain_ms at the latest. From any thread; once. */
void loop_drain(struct loop *loop);
void loop_join(struct loop *loop);
/* After its end, while the engine is still there: what waits is decided now. */
void loop_close_store(struct loop *loop);
void loop_done(struct loop *loop);

#endif
