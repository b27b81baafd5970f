/* The sample, and what a change of the rules would have done. A simulation has a thread of its own with the lowest
 * priority, so that the loops do not notice it; a thread of libuv's pool could not have its priority back. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/instant.h"
#include "base/thread.h"
#include "serve/admin.h"
#include "serve/log.h"
#include "serve/sample.h"
#include "serve/simulation.h"

enum {
    WATCH_MS = 100, /* how late a client that has left is noticed */
    LEAST_MS = 200, /* that a simulation has even if its request was slow to arrive */
    LOWEST_PRIORITY = 19,
};

struct simulation {
    struct simulation_task task;
    struct loop_task done;
    uv_timer_t watch; /* of the client */
    struct server *server;
    struct loop *loop;
    struct http_call *call; /* of the loop's thread; NULL: answered */
    struct buf body;
    int64_t late_ms; /* on the loop's clock: answer then, whatever there is */
    struct sample *samples[SAMPLE_LOOPS_MAX];
    pthread_t thread;
    bool joined;
    bool cancelled; /* atomic */
};

/* ---- in its thread ---- */

static bool is_cancelled(void *data)
{
    const struct simulation *s = data;
    return __atomic_load_n(&s->cancelled, __ATOMIC_RELAXED) || server_ending(s->server);
}

static void *run(void *data)
{
    struct simulation *s = data;
    thread_set_turns(LOWEST_PRIORITY); /* with long slices, a loop that wakes would have to wait for the end of one */
    simulation_run(&s->task);
    loop_post(s->loop, &s->done);
    return NULL;
}

/* ---- in the admin loop ---- */

static void closed(uv_handle_t *watch)
{
    struct simulation *s = watch->data;
    buf_done(&s->task.out);
    buf_done(&s->body);
    free(s);
}

static void join(struct simulation *s)
{
    if (!s->joined)
        pthread_join(s->thread, NULL);
    s->joined = true;
}

static void tell_cancelled(struct simulation *s)
{
    const char *why =
        server_ending(s->server) ? "the service is ending" : "the client has closed its side of the connection";
    log_say(LEVEL_INFO, "simulate", "cancelled: %s", why);
    http_error(s->call, 503, NULL, "the simulation was cancelled: %s", why);
}

static void answer(struct simulation *s)
{
    const struct simulation_task *task = &s->task;
    if (task->status == 0)
        tell_cancelled(s);
    else if (task->out.failed)
        http_error(s->call, 503, NULL, "out of memory for the answer");
    else if (task->out.len > 0)
        http_answer(s->call, &(struct http_answer){ .status = task->status, .body = buf_sv(&task->out) });
    else
        http_error(s->call, task->status, task->hint, "%s", task->error.text);
}

static void finish(struct loop_task *task)
{
    struct simulation *s = (struct simulation *)((char *)task - offsetof(struct simulation, done));
    join(s);
    s->server->simulation = NULL;
    if (s->call)
        answer(s);
    uv_close((uv_handle_t *)&s->watch, closed);
}

static void cancel(struct simulation *s)
{
    __atomic_store_n(&s->cancelled, true, __ATOMIC_RELAXED);
}

/* The thread stops in time if it gets any: on a host that is busy, one of the lowest priority may not. */
static void answer_late(struct simulation *s)
{
    struct http_call *call = s->call;
    s->call = NULL;
    cancel(s);
    http_error(call, 504, "the host is busy; try again with a smaller log or sample, or give --request more time",
               "the simulation did not end in time");
}

/* libmicrohttpd does not look at the socket of a call that waits. */
static void on_watch(uv_timer_t *watch)
{
    struct simulation *s = watch->data;
    char byte;
    if (!s->call)
        return;
    if (recv(s->call->conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        cancel(s);
    else if (loop_now_ms(s->loop) >= s->late_ms)
        answer_late(s);
}

void simulation_stop(struct server *server)
{
    if (!server->simulation)
        return;
    cancel(server->simulation);
    join(server->simulation);
}

static size_t samples_of(const struct server *server, struct sample *ret[SAMPLE_LOOPS_MAX])
{
    size_t count = 0;
    for (unsigned i = 0; i < server->loop_count && count < SAMPLE_LOOPS_MAX; i++)
        if (server->loops[i].sample)
            ret[count++] = server->loops[i].sample;
    return count;
}

/* The answer has to be out when the time of the request is: the thread stops after 4/5 of it, and 1/10 is for the rest. */
static void set_times(struct simulation *s)
{
    unsigned request_ms = s->loop->conns.limits.request_ms;
    int64_t now_ms = loop_now_ms(s->loop), left_ms = s->call->conn->since_ms + request_ms / 5 * 4 - now_ms;
    if (left_ms < LEAST_MS)
        left_ms = LEAST_MS;
    s->task.end_us = clock_steady_us() + left_ms * US_PER_MS;
    s->late_ms = now_ms + left_ms + request_ms / 10;
}

static void fill_task(struct simulation *s)
{
    const struct server *server = s->server;
    s->task = (struct simulation_task){ .weir = server->weir,
                                        .body = buf_sv(&s->body),
                                        .samples = s->samples,
                                        .sample_count = samples_of(server, s->samples),
                                        .hashed = server->config.sample_values == CONFIG_SAMPLE_HASHED,
                                        .key = server->sample_key,
                                        .cancelled = is_cancelled,
                                        .data = s };
    buf_init(&s->task.out, ADMIN_BODY_MAX);
    set_times(s);
}

static void busy(struct http_call *call, const char *why)
{
    call->extra = (struct weir_header){ WEIR_STR("Retry-After"), WEIR_STR("5") };
    http_error(call, 503, NULL, "%s", why);
}

void admin_simulate(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    if (!http_is_json(call) || !admin_check_parameters(call, none))
        return;
    if (server->simulation) {
        busy(call, "another simulation is running; there can be only one at a time");
        return;
    }
    struct simulation *s = calloc(1, sizeof *s);
    if (!s) {
        busy(call, "out of memory");
        return;
    }
    s->server = server;
    s->loop = call->loop;
    s->call = call;
    s->body = http_take_body(call);
    s->done.run = finish;
    fill_task(s);
    if (thread_start(&s->thread, run, s) != 0) {
        buf_done(&s->body);
        free(s);
        busy(call, "cannot start a thread");
        return;
    }
    server->simulation = s;
    http_suspend(call);
    uv_timer_init(&call->loop->uv, &s->watch);
    s->watch.data = s;
    uv_timer_start(&s->watch, on_watch, WATCH_MS, WATCH_MS);
}

/* ---- the sample ---- */

struct header_list {
    struct buf *out;
    size_t count;
};

static void add_header(sv name, int64_t since_us, void *data)
{
    struct header_list *list = data;
    (void)since_us;
    buf_add(list->out, list->count++ ? SV(",") : SV(""));
    buf_json(list->out, name);
}

static void add_instant(struct buf *out, const char *name, int64_t us)
{
    char text[INSTANT_TEXT_MAX];
    instant_text(us, text);
    buf_printf(out, ",\"%s\":\"%s\"", name, text);
}

void admin_sample(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    struct sample *samples[SAMPLE_LOOPS_MAX];
    struct sample_span span;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 1 << 20);
    if (!admin_check_parameters(call, none))
        return;
    size_t count = samples_of(server, samples);
    struct header_list list = { .out = &out };
    sample_span(samples, count, &span);
    buf_printf(&out, "{\"size\":%u,\"values\":\"%s\",\"requests\":%llu,\"seen\":%llu,\"memory_bytes\":%llu",
               server->config.sample, server->config.sample_values == CONFIG_SAMPLE_HASHED ? "hashed" : "plain",
               (unsigned long long)span.requests, (unsigned long long)span.seen,
               (unsigned long long)server->config.sample * SAMPLE_REQUEST_BYTES);
    if (span.requests > 0) {
        add_instant(&out, "from", span.from_us);
        add_instant(&out, "to", span.to_us);
    }
    buf_printf(&out, ",\"simulating\":%s,\"headers\":[", server->simulation ? "true" : "false");
    if (count > 0)
        sample_headers(samples[0], add_header, &list);
    buf_add(&out, SV("]}\n"));
    admin_answer(call, SV(""), &out);
}
