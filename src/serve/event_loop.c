#include "serve/event_loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "serve/log.h"
#include "serve/sample.h"
#include "serve/server.h"
#include "serve/stats.h"

enum {
    ACCEPT_MOST = 64,     /* in one turn, so that new connections do not delay the others */
    SWEEP_MS = 250,       /* how late a deadline may be noticed */
    DRAIN_SWEEP_MS = 20,  /* the same during the shutdown */
    TURN_NS = 100000,     /* the shortest that there are */
    DRAIN_GRACE_MS = 100, /* requests that arrive this soon after the signal are still answered */
    NOW_USES = 8,         /* of one reading of the clock */
};

/* ---- time ---- */

void loop_time_passed(struct loop *loop)
{
    loop->now_uses = 0;
}

/* A turn under deep pipelines takes longer than a short period lasts, so one reading does not serve all of it. */
int64_t loop_now_us(struct loop *loop)
{
    if (loop->now_uses == 0) {
        loop->now_us = clock_now_us();
        loop->now_uses = NOW_USES;
    }
    loop->now_uses--;
    return loop->now_us;
}

int64_t loop_now_ms(struct loop *loop)
{
    return (int64_t)uv_now(&loop->uv);
}

static void flush_store(struct loop *loop);

/* Runs just before the loop waits for events. */
static void on_turn(uv_prepare_t *turn)
{
    struct loop *loop = turn->data;
    flush_store(loop);
    loop_time_passed(loop);
}

/* ---- the store ---- */

/* A flush may decide requests; their connections continue, and may ask again. */
static void flush_store(struct loop *loop)
{
    while (loop->store_asked) {
        loop->store_asked = false;
        weir_loop_flush(loop->store);
    }
}

static void on_store(uv_poll_t *poll, int status, int events)
{
    struct loop *loop = poll->data;
    (void)status, (void)events;
    loop->store_asked = true; /* it may have something of its own to send */
    weir_loop_run(loop->store);
}

int loop_open_store(struct loop *loop, struct weir *weir, struct weir_error *error)
{
    int r = weir_loop_open(&loop->store, weir, error);
    if (r < 0)
        return r;
    r = uv_poll_init(&loop->uv, &loop->store_poll, weir_loop_fd(loop->store));
    if (r < 0) {
        weir_loop_close(loop->store);
        loop->store = NULL;
    } else {
        loop->store_poll.data = loop;
        r = uv_poll_start(&loop->store_poll, UV_READABLE, on_store);
    }
    return r < 0 ? err_set(error, WEIR_E_SYSTEM, "cannot create an event loop: %s", uv_strerror(r)) : 0;
}

void loop_close_store(struct loop *loop)
{
    if (!loop->store)
        return;
    while (loop->working > 0)
        uv_run(&loop->uv, UV_RUN_ONCE);
    struct weir_loop *store = loop->store;
    uv_close((uv_handle_t *)&loop->store_poll, NULL);
    loop->store = NULL; /* from now on no connection asks */
    weir_loop_close(store);
}

/* ---- new connections ---- */

/* Out of descriptors: ends a connection if one can be ended, and leaves new ones to the kernel until the next sweep. */
static void pause_accepting(struct loop_listener *listener, int why)
{
    log_limited(SELDOM_ACCEPT, "new connections have to wait: %s; see ulimit -n, LimitNOFILE= and --connections",
                strerror(why));
    conns_end_one(&listener->loop->conns, loop_now_ms(listener->loop));
    uv_poll_stop(&listener->poll);
}

/* True: there may be more. */
static bool accept_one(struct loop_listener *listener)
{
    struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof peer;
    int fd = accept4(listener->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        listener->acceptor.accept(listener->acceptor.data, fd, &peer);
        return true;
    }
    int why = errno;
    if (why == EMFILE || why == ENFILE || why == ENOMEM || why == ENOBUFS)
        pause_accepting(listener, why);
    return why == ECONNABORTED || why == EINTR;
}

static void on_connections(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    for (int i = 0; i < ACCEPT_MOST && accept_one(poll->data); i++)
        ;
}

/* Also after pause_accepting. */
static int accept_from(struct loop_listener *listener)
{
    return uv_poll_start(&listener->poll, UV_READABLE, on_connections);
}

int loop_listen(struct loop *loop, enum front front, int fd, const struct loop_acceptor *acceptor)
{
    struct loop_listener *listener = &loop->listeners[front];
    *listener = (struct loop_listener){ .fd = fd, .loop = loop, .acceptor = *acceptor };
    int r = uv_poll_init(&loop->uv, &listener->poll, fd);
    if (r < 0) {
        close(fd);
        listener->fd = -1;
        return r;
    }
    listener->poll.data = listener;
    return accept_from(listener);
}

void *loop_conn_new(struct loop *loop, size_t size, size_t poll_offset, int fd)
{
    int yes = 1;
    char *conn = calloc(1, size);
    uv_poll_t *poll = conn ? (uv_poll_t *)(void *)(conn + poll_offset) : NULL;
    if (!poll || uv_poll_init(&loop->uv, poll, fd) < 0) {
        free(conn);
        close(fd);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    poll->data = conn;
    return conn;
}

static void close_listener(struct loop_listener *listener)
{
    if (listener->fd < 0)
        return;
    uv_close((uv_handle_t *)&listener->poll, NULL);
    close(listener->fd);
    listener->fd = -1;
}

/* ---- shutdown ---- */

static void drain(struct loop *loop)
{
    loop->draining = true;
    loop->drain_end_ms = loop_now_ms(loop) + loop->server->config.drain_ms;
    loop->drain_idle_ms = loop_now_ms(loop) + DRAIN_GRACE_MS;
    for (int front = 0; front < FRONTS; front++)
        if (loop->listeners[front].acceptor.drain)
            loop->listeners[front].acceptor.drain(loop->listeners[front].acceptor.data);
    conns_shut_streams(&loop->conns);
    for (int front = 0; front < FRONTS; front++) {
        struct loop_listener *listener = &loop->listeners[front];
        /* For their clients, connections in the backlog of the kernel are accepted. */
        for (int i = 0; listener->fd >= 0 && i < LISTEN_BACKLOG && accept_one(listener); i++)
            ;
        close_listener(listener);
    }
    uv_timer_set_repeat(&loop->sweep, DRAIN_SWEEP_MS);
    uv_timer_again(&loop->sweep);
}

static void continue_drain(struct loop *loop)
{
    int64_t now_ms = loop_now_ms(loop);
    if (now_ms >= loop->drain_end_ms)
        conns_shut_all(&loop->conns);
    else if (now_ms >= loop->drain_idle_ms)
        conns_shut_idle(&loop->conns);
    /* What a connection has sent at its end is still in its relay. */
    if (loop->conns.count == 0 && (loop->relays == 0 || now_ms >= loop->drain_end_ms + DRAIN_GRACE_MS))
        uv_stop(&loop->uv);
}

static void on_sweep(uv_timer_t *timer)
{
    struct loop *loop = timer->data;
    int64_t now_ms = loop_now_ms(loop);
    conns_sweep(&loop->conns, now_ms, now_ms - loop->swept_ms > 2 * SWEEP_MS);
    loop->swept_ms = now_ms;
    if (loop->draining) {
        continue_drain(loop);
        return;
    }
    for (int front = 0; front < FRONTS; front++)
        if (loop->listeners[front].fd >= 0 && !uv_is_active((uv_handle_t *)&loop->listeners[front].poll))
            accept_from(&loop->listeners[front]);
}

static void run_drain(struct loop_task *task)
{
    drain((struct loop *)((char *)task - offsetof(struct loop, drain)));
}

void loop_drain(struct loop *loop)
{
    loop->drain.run = run_drain;
    loop_post(loop, &loop->drain);
}

/* ---- tasks of other threads ---- */

void loop_post(struct loop *loop, struct loop_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&loop->lock);
    *loop->tasks_end = task;
    loop->tasks_end = &task->next;
    pthread_mutex_unlock(&loop->lock);
    uv_async_send(&loop->wake);
}

static void run_tasks(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct loop_task *task = loop->tasks;
    loop->tasks = NULL;
    loop->tasks_end = &loop->tasks;
    pthread_mutex_unlock(&loop->lock);
    for (struct loop_task *next; task; task = next) {
        next = task->next; /* a task may be gone once it has run */
        task->run(task);
    }
}

static void on_wake(uv_async_t *wake)
{
    run_tasks(wake->data);
}

/* ---- life ---- */

int loop_init(struct loop *loop, struct server *server, const struct conns_limits *limits)
{
    *loop = (struct loop){ .server = server };
    for (int front = 0; front < FRONTS; front++)
        loop->listeners[front].fd = -1;
    int r = uv_loop_init(&loop->uv);
    if (r < 0) {
        loop->server = NULL;
        return r;
    }
    loop->tasks_end = &loop->tasks;
    pthread_mutex_init(&loop->lock, NULL);
    uv_prepare_init(&loop->uv, &loop->turn);
    uv_timer_init(&loop->uv, &loop->sweep);
    loop->turn.data = loop->sweep.data = loop->wake.data = loop;
    r = uv_async_init(&loop->uv, &loop->wake, on_wake);
    if (r == 0)
        r = conns_init(&loop->conns, limits);
    if (r == 0)
        r = stats_new(&loop->stats);
    if (r == 0)
        r = uv_prepare_start(&loop->turn, on_turn);
    if (r == 0)
        r = uv_timer_start(&loop->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    return r;
}

/* As the kernel has it; its header and that of the C library cannot be included both. */
struct turns {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void thread_set_turns(int nice)
{
    struct turns turns = { .size = sizeof turns, .nice = nice, .runtime_ns = TURN_NS };
    syscall(SYS_sched_setattr, 0, &turns, 0);
}

static void *run(void *data)
{
    struct loop *loop = data;
    thread_set_turns(getpriority(PRIO_PROCESS, 0)); /* a thread that decides needs no long ones */
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return NULL;
}

int loop_start(struct loop *loop)
{
    int no = thread_start(&loop->thread, run, loop);
    loop->started = no == 0;
    return -no;
}

void loop_join(struct loop *loop)
{
    if (loop->started)
        pthread_join(loop->thread, NULL);
    loop->started = false;
}

static void close_handle(uv_handle_t *handle, void *data)
{
    (void)data;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void loop_done(struct loop *loop)
{
    if (!loop->server)
        return;
    run_tasks(loop);
    for (int front = 0; front < FRONTS; front++) {
        struct loop_listener *listener = &loop->listeners[front];
        close_listener(listener);
        if (listener->acceptor.free)
            listener->acceptor.free(listener->acceptor.data);
    }
    uv_walk(&loop->uv, close_handle, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    uv_loop_close(&loop->uv);
    pthread_mutex_destroy(&loop->lock);
    conns_done(&loop->conns);
    stats_free(loop->stats);
    sample_free(loop->sample);
    free(loop->envoy_shared);
}
