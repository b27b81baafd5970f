/* Connections of HTTP/2.
 *
 * All connections of a loop share one buffer for input and one for output. What a client has not taken yet is kept for its
 * connection, at most as much as the output buffer holds: until it is sent, nothing more is read, and nghttp2 is asked for
 * nothing more.
 *
 *   read once ──► nghttp2: streams ──► the service answers those that are complete ──► write once ──► keep what is left
 *
 * The time of a connection is that of its streams: when all that were open at its beginning are closed, it begins anew. A
 * stream that takes too long is answered or reset alone, somewhat before its connection would be ended. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/h2_session.h"
#include "serve/server.h"

enum {
    TICK_MS = 250,
    NOTICE_MS = 1000, /* a connection that will be closed, because it is idle, is told so before */
    PINGS_PER_TIMEOUT = 3,
    STREAM_MS_LEAST = 5000, /* see conns.c */
    DUE_STEP_MS = 5, /* deadlines are kept to this: clients must not make the loop look at all connections all the time */
    NS_PER_MS = 1000000,
};

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void end_conn(struct h2_conn *c)
{
    struct h2 *h2 = c->h2;
    if (c->session)
        h2_session_end(c);
    for (struct h2_conn **at = &h2->dirty; c->is_dirty && *at; at = &(*at)->dirty_next)
        if (*at == c) {
            *at = c->dirty_next;
            break;
        }
    *(c->prev ? &c->prev->next : &h2->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    byte_queue_clear(&c->out);
    conn_leave(&c->conn);
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->conn.fd);
}

static void on_event(uv_poll_t *poll, int status, int events);

static bool wait_for(struct h2_conn *c, int events)
{
    if (events == c->events)
        return true;
    c->events = events;
    return uv_poll_start(&c->poll, events, on_event) == 0;
}

/* ---- output ---- */

/* Sends, and keeps the rest. False: the connection is lost. */
static bool send_bytes(struct h2_conn *c, sv bytes)
{
    ssize_t n = send(c->conn.fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    size_t done = n > 0 ? (size_t)n : 0;
    if (c->out.len == 0)
        return byte_queue_append(&c->out, sv_from(bytes, done));
    byte_queue_consume(&c->out, done);
    return true;
}

/* Gathers frames into the buffer of the loop. Negative: the session has failed. */
static ssize_t gather(struct h2_conn *c)
{
    struct h2 *h2 = c->h2;
    size_t len = 0;
    while (len + H2_FRAME_MAX <= H2_OUTPUT_BYTES) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(c->session, &bytes);
        if (n < 0 || (size_t)n > H2_OUTPUT_BYTES - len)
            return -1;
        if (n == 0)
            break;
        memcpy(h2->output + len, bytes, (size_t)n);
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* False: the connection is lost. */
static bool flush(struct h2_conn *c)
{
    if (c->out.len > 0 && !send_bytes(c, sv_of(c->out.ptr + c->out.start, c->out.len)))
        return false;
    while (c->session && c->out.len == 0) {
        c->in_turn = true;
        ssize_t len = gather(c);
        c->in_turn = false;
        if (len < 0)
            return false;
        if (len == 0)
            break;
        if (!send_bytes(c, sv_of(c->h2->output, (size_t)len)))
            return false;
    }
    return true;
}

/* ---- time ---- */

static void restart_busy(struct h2_conn *c, int64_t now_ms)
{
    conn_idle(&c->conn, now_ms);
    conn_busy(&c->conn, now_ms);
    c->generation++;
    c->generation_open = c->open - c->watching;
}

static void keep_time(struct h2_conn *c)
{
    int64_t now_ms = loop_now_ms(c->h2->loop);
    unsigned streams = c->open - c->watching;
    bool blocked = c->out.len > 0;
    if (blocked || streams > 0) {
        if (c->conn.state != CONN_BUSY || blocked != c->blocked || (!blocked && c->generation_open == 0))
            restart_busy(c, now_ms);
        c->conn.complete = c->receiving == 0;
    } else if (c->watching > 0) {
        if (c->conn.state != CONN_STREAM)
            conn_stream(&c->conn, now_ms);
    } else if (c->conn.state != CONN_IDLE || c->closed_some)
        conn_idle(&c->conn, now_ms);
    c->blocked = blocked;
    c->closed_some = false;
}

/* The timer for the earliest deadline of a stream that is not answered in its turn. */
static void on_due(uv_timer_t *timer);

static void set_due(struct h2 *h2)
{
    if (!h2->due_changed)
        return;
    h2->due_changed = false;
    uint64_t now_ns = uv_hrtime();
    uint64_t wait_ms = h2->due_ns <= now_ns ? 0 : (h2->due_ns - now_ns) / NS_PER_MS + 1;
    wait_ms = wait_ms < DUE_STEP_MS ? DUE_STEP_MS : wait_ms;
    if (h2->due_ns != UINT64_MAX)
        uv_timer_start(&h2->due, on_due, wait_ms, 0);
}

/* ---- one turn ---- */

/* After the last frame: closing with unread input would make the peer lose it. */
static bool linger(struct h2_conn *c)
{
    conn_busy(&c->conn, loop_now_ms(c->h2->loop));
    if (c->out.len > 0)
        return wait_for(c, UV_WRITABLE);
    if (!c->shut_down && shutdown(c->conn.fd, SHUT_WR) < 0)
        return false;
    c->shut_down = true;
    return wait_for(c, UV_READABLE);
}

/* Sends what there is, and waits for what comes next. False: the connection is over. */
static bool settle(struct h2_conn *c)
{
    if (!flush(c))
        return false;
    if (!c->ending && c->session && !nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session)) {
        h2_session_end(c);
        c->ending = true;
    }
    if (c->ending)
        return linger(c);
    keep_time(c);
    set_due(c->h2);
    return wait_for(c, c->out.len > 0 ? UV_WRITABLE : UV_READABLE);
}

static bool is_http1(sv bytes)
{
    sv rest = bytes, line = sv_cut(&rest, '\n');
    return line.len < bytes.len && memmem(line.ptr, line.len, " HTTP/1.", 8);
}

/* A client of HTTP/1.1 is told; one that speaks neither would not understand it. */
static bool refuse_protocol(struct h2_conn *c)
{
    static const char body[] = "this address speaks gRPC over HTTP/2, without TLS and without an upgrade\n";
    char text[300];
    int len =
        snprintf(text, sizeof text,
                 "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n"
                 "\r\n%s",
                 sizeof body - 1, body);
    c->ending = true;
    return send_bytes(c, sv_of(text, (size_t)len)) && linger(c);
}

static bool begin(struct h2_conn *c, size_t len)
{
    size_t n = len < NGHTTP2_CLIENT_MAGIC_LEN ? len : NGHTTP2_CLIENT_MAGIC_LEN;
    if (memcmp(c->h2->input, NGHTTP2_CLIENT_MAGIC, n) != 0)
        return is_http1(sv_of(c->h2->input, len)) && refuse_protocol(c);
    return h2_session_begin(c);
}

/* Reads once: a client that has sent more has its turn after the others. */
static bool read_some(struct h2_conn *c)
{
    struct h2 *h2 = c->h2;
    ssize_t n = recv(c->conn.fd, h2->input, H2_INPUT_BYTES, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    if (c->ending)
        return true;
    c->read_ns = uv_hrtime();
    loop_time_passed(h2->loop);
    if (!c->session && !begin(c, (size_t)n))
        return false;
    if (c->ending)
        return true;
    c->in_turn = true;
    bool good = h2_session_receive(c, (size_t)n);
    c->in_turn = false;
    if (!good) /* what is queued, such as a GOAWAY, may still be sent */
        return flush(c) && false;
    return settle(c);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct h2_conn *c = poll->data;
    bool open = status == 0;
    if (open && events & UV_WRITABLE)
        open = settle(c);
    if (open && events & UV_READABLE && c->events & UV_READABLE)
        open = read_some(c);
    if (!open)
        end_conn(c);
}

/* Connections that were answered outside of their turn. */
static void on_flush(uv_idle_t *idle)
{
    struct h2 *h2 = (struct h2 *)((char *)idle - offsetof(struct h2, flush));
    uv_idle_stop(idle);
    while (h2->dirty) {
        struct h2_conn *c = h2->dirty;
        h2->dirty = c->dirty_next;
        c->is_dirty = false;
        if (!settle(c))
            end_conn(c);
    }
}

/* ---- timers ---- */

static void on_due(uv_timer_t *timer)
{
    struct h2 *h2 = timer->data;
    uint64_t now_ns = uv_hrtime();
    h2->due_ns = UINT64_MAX;
    for (struct h2_conn *c = h2->conns; c; c = c->next) {
        if (c->due_ns <= now_ns) {
            h2_session_sweep(c, 0, now_ns);
            h2_session_find_due(c);
        }
        h2->due_ns = c->due_ns < h2->due_ns ? c->due_ns : h2->due_ns;
    }
    h2->due_changed = true;
    set_due(h2);
}

static void notice_idle(struct h2 *h2, int64_t now_ms)
{
    const struct conns *conns = &h2->loop->conns;
    int64_t idle_ms = conns->limits.idle_ms, notice_ms = idle_ms / 2 < NOTICE_MS ? idle_ms / 2 : NOTICE_MS;
    for (struct conn *conn = conns->lists[CONN_IDLE].first, *next; conn; conn = next) {
        struct h2_conn *c = (struct h2_conn *)conn;
        next = conn->next;
        if (now_ms - conn->since_ms < idle_ms - notice_ms)
            break;
        if (conn->front != FRONT_GRPC || !c->session || c->noticed)
            continue;
        c->noticed = true;
        nghttp2_submit_shutdown_notice(c->session);
        if (!settle(c))
            end_conn(c);
    }
}

/* A peer that is gone does not answer a ping. */
static void ping_watchers(struct h2 *h2, int64_t now_ms)
{
    const struct conns *conns = &h2->loop->conns;
    int64_t timeout_ms = conns->limits.request_ms > STREAM_MS_LEAST ? conns->limits.request_ms : STREAM_MS_LEAST;
    for (struct conn *conn = conns->lists[CONN_STREAM].first, *next; conn; conn = next) {
        struct h2_conn *c = (struct h2_conn *)conn;
        next = conn->next;
        if (conn->front != FRONT_GRPC || now_ms - c->pinged_ms < timeout_ms / PINGS_PER_TIMEOUT)
            continue;
        c->pinged_ms = now_ms;
        nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL);
        if (!settle(c))
            end_conn(c);
    }
}

/* Streams end before the time of their connection does. */
static uint64_t stream_ms(const struct h2 *h2)
{
    unsigned request_ms = h2->loop->conns.limits.request_ms;
    return request_ms - (request_ms / 4 < 2 * TICK_MS ? request_ms / 4 : 2 * TICK_MS);
}

static void on_tick(uv_timer_t *timer)
{
    struct h2 *h2 = timer->data;
    int64_t now_ms = loop_now_ms(h2->loop);
    uint64_t now_ns = uv_hrtime(), most_ns = stream_ms(h2) * NS_PER_MS;
    for (struct h2_conn *c = h2->conns; c; c = c->next)
        if (c->first)
            h2_session_sweep(c, now_ns > most_ns ? now_ns - most_ns : 0, now_ns);
    notice_idle(h2, now_ms);
    ping_watchers(h2, now_ms);
    unsigned eighth = h2->loop->conns.limits.request_ms / 8; /* a reload may have changed it */
    uv_timer_set_repeat(timer, eighth < TICK_MS ? eighth : TICK_MS);
}

/* ---- the listener ---- */

/* For a new connection, because it timed out, or at the end. */
static void shut_conn(struct conn *conn)
{
    struct h2_conn *c = (struct h2_conn *)conn;
    if (c->session) {
        nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR);
        flush(c);
    }
    end_conn(c);
}

void h2_accept(void *data, int fd, const struct sockaddr_storage *peer)
{
    struct h2 *h2 = data;
    struct loop *loop = h2->loop;
    struct h2_conn *c = loop_conn_new(loop, sizeof *c, offsetof(struct h2_conn, poll), fd);
    if (!c)
        return;
    c->h2 = h2;
    c->due_ns = UINT64_MAX;
    c->out.budget = &h2->budget;
    c->conn.shut = shut_conn;
    c->conn.fd = fd;
    c->next = h2->conns;
    if (c->next)
        c->next->prev = c;
    h2->conns = c;
    if (!conns_enter(&loop->conns, &c->conn, FRONT_GRPC, fd, peer, loop_now_ms(loop)) || !wait_for(c, UV_READABLE))
        end_conn(c);
}

/* Clients are told to send nothing more; what they have sent by then is answered. */
void h2_drain(void *data)
{
    struct h2 *h2 = data;
    for (struct h2_conn *c = h2->conns, *next; c; c = next) {
        next = c->next;
        if (!c->session || c->ending)
            continue;
        c->in_turn = true;
        for (struct h2_stream *s = c->first; s; s = s->next)
            if (s->watch)
                h2->service->drain(s);
        c->in_turn = false;
        c->noticed = true;
        nghttp2_submit_shutdown_notice(c->session);
        if (!settle(c))
            end_conn(c);
    }
}

static void handle_closed(uv_handle_t *handle)
{
    struct h2 *h2 = handle->data;
    if (--h2->handles == 0)
        free(h2);
}

int h2_new(struct h2 **ret, struct loop *loop, const struct h2_service *service)
{
    struct h2 *h2 = calloc(1, sizeof *h2);
    if (!h2)
        return UV_ENOMEM;
    h2->loop = loop;
    h2->service = service;
    h2->due_ns = UINT64_MAX;
    h2->budget.max = byte_budget_max(loop->server->config.request_bytes);
    if (h2_session_setup(h2) < 0) {
        h2_session_teardown(h2);
        free(h2);
        return UV_ENOMEM;
    }
    uv_idle_init(&loop->uv, &h2->flush);
    uv_timer_init(&loop->uv, &h2->tick);
    uv_timer_init(&loop->uv, &h2->due);
    h2->handles = 3;
    h2->flush_cb = on_flush;
    h2->flush.data = h2->tick.data = h2->due.data = h2;
    uv_timer_start(&h2->tick, on_tick, TICK_MS, TICK_MS);
    *ret = h2;
    return 0;
}

/* The loop has ended, and has no connections any more. */
void h2_free(void *data)
{
    struct h2 *h2 = data;
    if (!h2)
        return;
    while (h2->conns)
        end_conn(h2->conns);
    h2_session_teardown(h2);
    uv_close((uv_handle_t *)&h2->flush, handle_closed);
    uv_close((uv_handle_t *)&h2->tick, handle_closed);
    uv_close((uv_handle_t *)&h2->due, handle_closed);
}
