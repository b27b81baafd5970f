/* libmicrohttpd has an epoll descriptor of its own; the loop polls it and lets the library run when it is readable. Sockets
 * are accepted by the loop and handed over, so that conns.h bounds them like all others: libmicrohttpd's own timeouts begin
 * anew with every byte, ours do not. A connection is ended by shutting its socket down, which the library then notices.
 *
 * The library calls: uri_seen (a request begins) · on_call, several times (headers, pieces of the body, all of it) ·
 * read_stream (it can send more of a stream) · on_completed (the answer is out, or the connection is lost). */
#include "serve/http.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/format.h"
#include "serve/server.h"
#include "serve/tls_relay.h"

enum {
    SPARE_CALLS_MAX = 64,      /* for reuse */
    SPARE_BODY_MAX = 64 << 10, /* a larger buffer is not kept with its call */
    HEADER_COST = 64,      /* bytes that the library takes for a header, a cookie or a parameter, in addition to its text */
    ANSWER_HEADERS = 4096, /* bytes for the headers of an answer, in addition to those of the request */
    OWN_HEADERS = 1024,    /* for the status line and headers that every answer has */
    BODY_BYTES_MAX =
        64 << 20, /* bytes of all bodies that a loop is reading: some thousand connections could have 1 MB each */
    STREAM_BLOCK = 4096,
    STREAM_SEND_BYTES = 32 << 10, /* of a stream in the kernel; it takes about twice that */
    ERROR_MAX = 2000,
    ROOM = 256,
    WAIT_STEP_MS = 50, /* how often it is checked which answers have waited */
};

struct http {
    struct MHD_Daemon *daemon;
    struct loop *loop;
    enum front front;
    struct http_service service;
    size_t body_bytes; /* of all calls */
    uv_poll_t poll;
    uv_idle_t rerun; /* the library has more to do than in its turn */
    uv_timer_t step; /* runs while answers wait */
    struct call *waiting;
    unsigned waiting_count;
    struct http_conn *entering;
    struct call *spare;
    unsigned spare_count;
};

struct http_conn {
    struct conn conn;
    struct call *call; /* under way */
};

/* An answer that is sent piece by piece. It belongs to its call. */
struct http_stream {
    struct call *call;
    struct buf pieces; /* that were not given to the library yet … */
    size_t taken;      /* … beginning here */
    bool ended;        /* after those */
    void (*gone)(void *data);
    void *data;
};

struct call {
    struct http_call http_call; /* first: the handler's */
    struct http *http;
    struct MHD_Connection *connection;
    struct MHD_Response *response; /* prepared, not queued yet */
    struct http_stream *stream;    /* NULL: the answer is whole */
    unsigned status;
    bool begun, handled, suspended;
    bool close; /* the connection, after the answer */
    int64_t wait_end_ms;
    struct buf body, answer;
    size_t body_seen;
    struct arena arena;
    struct weir_header headers[HTTP_HEADERS_MAX];
    struct call *next;
};

/* ---- calls ---- */

static struct call *call_take(struct http *http)
{
    struct call *call = http->spare;
    if (call) {
        http->spare = call->next;
        http->spare_count--;
        return call;
    }
    call = calloc(1, sizeof *call);
    if (call) {
        call->http = http;
        buf_init(&call->body, http->loop->server->config.request_bytes);
        buf_init(&call->answer, SIZE_MAX / 2);
    }
    return call;
}

static void call_free(struct call *call)
{
    buf_done(&call->body);
    buf_done(&call->answer);
    free(call);
}

static void stream_free(struct http_stream *stream)
{
    stream->gone(stream->data);
    buf_done(&stream->pieces);
    free(stream);
}

static void call_release(struct call *call)
{
    struct http *http = call->http;
    http->body_bytes -= call->body.len;
    if (call->stream)
        stream_free(STEAL(call->stream));
    if (call->response)
        MHD_destroy_response(call->response);
    arena_done(&call->arena);
    if (http->spare_count >= SPARE_CALLS_MAX || call->body.cap > SPARE_BODY_MAX || call->answer.cap > SPARE_BODY_MAX) {
        call_free(call);
        return;
    }
    buf_clear(&call->body);
    buf_clear(&call->answer);
    call->http_call = (struct http_call){ .loop = NULL };
    call->response = NULL;
    call->body_seen = 0;
    call->begun = call->handled = call->suspended = call->close = false;
    call->next = http->spare;
    http->spare = call;
    http->spare_count++;
}

void *http_alloc(struct http_call *http_call, size_t bytes)
{
    return arena_alloc(&((struct call *)http_call)->arena, bytes);
}

struct buf http_take_body(struct http_call *http_call)
{
    struct call *call = (struct call *)http_call;
    struct buf body = call->body;
    call->http->body_bytes -= body.len;
    buf_init(&call->body, body.max);
    http_call->body = sv_of("", 0);
    return body;
}

/* ---- what the library calls ---- */

/* "http://host/path" is for proxies, but servers must accept it, too. */
static const char *path_part(const char *uri)
{
    if (strncasecmp(uri, "http://", 7) != 0)
        return uri;
    const char *path = uri + 7 + strcspn(uri + 7, "/?");
    return *path == '/' ? path : "/";
}

/* The first line of a request was read. */
static void *uri_seen(void *data, const char *uri, struct MHD_Connection *connection)
{
    struct http *http = data;
    struct http_conn *conn = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct call *call = call_take(http);
    conn_busy(&conn->conn, loop_now_ms(http->loop));
    conn->call = call;
    if (!call)
        return NULL;
    uri = path_part(uri);
    const char *mark = strchrnul(uri, '?');
    call->connection = connection;
    call->http_call.loop = http->loop;
    call->http_call.conn = &conn->conn;
    call->http_call.path = sv_of(uri, (size_t)(mark - uri));
    /* The library will cut it to pieces where it lies. */
    if (*mark)
        call->http_call.query = arena_copy(&call->arena, weir_str(mark + 1));
    return call;
}

static enum MHD_Result add_header(void *data, enum MHD_ValueKind kind, const char *name, size_t name_len, const char *value,
                                  size_t value_len)
{
    struct call *call = data;
    (void)kind;
    if (call->http_call.header_count == HTTP_HEADERS_MAX)
        return MHD_NO;
    call->headers[call->http_call.header_count++] =
        (struct weir_header){ { name, name_len }, { value ? value : "", value_len } };
    return MHD_YES;
}

/* The library keeps the headers of request and answer in one piece of memory of fixed size. */
static bool is_too_large(const struct call *call)
{
    const struct http_call *c = &call->http_call;
    size_t bytes = c->path.len + c->query.len;
    for (size_t i = 0; i < c->header_count; i++)
        bytes += c->headers[i].name.len + c->headers[i].value.len + 4;
    int headers = MHD_get_connection_values_n(call->connection, MHD_HEADER_KIND, NULL, NULL);
    int others = MHD_get_connection_values_n(call->connection, MHD_COOKIE_KIND, NULL, NULL) +
                 MHD_get_connection_values_n(call->connection, MHD_GET_ARGUMENT_KIND, NULL, NULL);
    return bytes > c->loop->server->config.header_bytes || headers > HTTP_HEADERS_MAX || others > HTTP_HEADERS_MAX;
}

/* False: the body cannot be read; the call has been answered, and the connection will be closed. Two servers that read the
 * same bytes must not disagree on where the next request begins. */
static bool can_read_body(struct call *call)
{
    struct http_call *c = &call->http_call;
    uint64_t length = 0;
    unsigned lengths = 0, encodings = 0;
    for (size_t i = 0; i < c->header_count; i++) {
        lengths += sv_eq_nocase(c->headers[i].name, SV("content-length"));
        encodings += sv_eq_nocase(c->headers[i].name, SV("transfer-encoding"));
    }
    call->close = true;
    if (encodings == 1 && !sv_eq_nocase(http_header(c, "transfer-encoding"), SV("chunked")))
        http_error(c, 501, NULL, "the only supported Transfer-Encoding is chunked");
    else if (lengths + encodings > 1)
        http_error(c, 400, NULL, "send only one header Content-Length or Transfer-Encoding");
    else if (lengths && sv_u64(http_header(c, "content-length"), UINT64_MAX, &length) && length > call->body.max)
        http_error(c, 413,
                   call->body.max == c->loop->server->config.request_bytes ? "the limit is the option request-bytes" : NULL,
                   "the body has more than %zu bytes", call->body.max);
    else
        call->close = false;
    return !call->close;
}

/* The headers are complete. False: the call was answered, and the answer has to be sent at once. */
static bool take_headers(struct call *call, const char *method)
{
    struct http *http = call->http;
    call->begun = true;
    call->http_call.method = weir_str(method);
    call->http_call.headers = call->headers;
    MHD_get_connection_values_n(call->connection, MHD_HEADER_KIND, add_header, call);
    call->http_call.too_large = is_too_large(call);
    size_t body_max = http->service.body_max ? http->service.body_max(&call->http_call, http->service.data) : 0;
    call->body.max = body_max ? body_max : http->loop->server->config.request_bytes;
    if (!can_read_body(call))
        return false;
    call->handled = !http->service.screen(&call->http_call, http->service.data);
    return true;
}

/* Stores the piece, unless the call is answered already. False: it is too large. */
static bool add_body(struct call *call, sv piece)
{
    struct http *http = call->http;
    call->body_seen += piece.len;
    if (call->body_seen > call->body.max)
        return false;
    if (call->handled)
        return true;
    if (http->body_bytes + piece.len > BODY_BYTES_MAX)
        return false;
    size_t before = call->body.len;
    buf_add(&call->body, piece);
    http->body_bytes += call->body.len - before;
    return !call->body.failed;
}

/* If the headers are too large, the library may have no memory left for an answer, and would close without one. A gateway
 * would take that for a service that is unavailable, and might let the request pass. */
static enum MHD_Result answer_by_hand(struct call *call)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 64 << 10);
    buf_printf(&text,
               "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
               call->status, MHD_get_reason_phrase_for(call->status), call->answer.len);
    if (!sv_eq(call->http_call.method, SV("HEAD")))
        buf_add(&text, buf_sv(&call->answer));
    if (!text.failed)
        send(call->http_call.conn->fd, text.ptr, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    return MHD_NO; /* closes */
}

static enum MHD_Result queue(struct call *call)
{
    struct MHD_Response *response = call->response;
    if (!response)
        return MHD_NO;
    if (call->http_call.too_large)
        return answer_by_hand(call);
    enum MHD_Result r = MHD_queue_response(call->connection, call->status, response);
    MHD_destroy_response(response);
    call->response = NULL;
    return r;
}

/* ---- answers that wait ---- */

static void resume(struct call *call);

/* Those that have waited; all of them if the service ends, or if `all`. */
static void end_waits(struct http *http, bool all)
{
    int64_t now_ms = loop_now_ms(http->loop);
    bool ending = all || server_ending(http->loop->server);
    for (struct call **at = &http->waiting, *call; (call = *at);) {
        if (!ending && now_ms < call->wait_end_ms) {
            at = &call->next;
            continue;
        }
        *at = call->next;
        http->waiting_count--;
        call->http_call.wait_ms = 0;
        resume(call);
    }
    if (!http->waiting)
        uv_timer_stop(&http->step);
}

static void on_step(uv_timer_t *step)
{
    end_waits(step->data, false);
}

/* The library calls on_call again after it. */
static enum MHD_Result begin_wait(struct call *call)
{
    struct http *http = call->http;
    http_suspend(&call->http_call);
    call->wait_end_ms = loop_now_ms(http->loop) + call->http_call.wait_ms;
    call->next = http->waiting;
    http->waiting = call;
    http->waiting_count++;
    if (!uv_is_active((uv_handle_t *)&http->step)) /* starting it anew would put it off */
        uv_timer_start(&http->step, on_step, WAIT_STEP_MS, WAIT_STEP_MS);
    return MHD_YES;
}

unsigned http_waiting(const struct http_call *http_call)
{
    return ((const struct call *)http_call)->http->waiting_count;
}

static enum MHD_Result on_call(void *data, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *upload, size_t *upload_size, void **ret_call)
{
    struct http *http = data;
    struct call *call = *ret_call;
    (void)connection, (void)url, (void)version;
    if (!call)
        return MHD_NO;
    if (!call->begun)
        return take_headers(call, method) ? MHD_YES : queue(call);
    if (*upload_size > 0) {
        bool good = add_body(call, sv_of(upload, *upload_size));
        *upload_size = 0;
        /* The library cannot send an answer before a body's end. */
        return good ? MHD_YES : MHD_NO;
    }
    conn_complete(call->http_call.conn);
    if (!call->handled) {
        call->handled = true;
        call->http_call.body = buf_sv(&call->body);
        http->service.handle(&call->http_call, http->service.data);
    }
    if (call->response)
        return call->http_call.wait_ms ? begin_wait(call) : queue(call);
    return call->suspended ? MHD_YES : MHD_NO;
}

static void on_completed(void *data, struct MHD_Connection *connection, void **ret_call,
                         enum MHD_RequestTerminationCode why)
{
    struct http *http = data;
    struct call *call = *ret_call;
    (void)connection, (void)why;
    if (!call)
        return;
    struct http_conn *conn = (struct http_conn *)call->http_call.conn;
    conn_idle(&conn->conn, loop_now_ms(http->loop));
    conn->call = NULL;
    call_release(call);
    *ret_call = NULL;
}

static void on_connection(void *data, struct MHD_Connection *connection, void **ret_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *http = data;
    (void)connection;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *ret_context = http->entering;
        http->entering = NULL;
        return;
    }
    struct http_conn *conn = *ret_context;
    if (!conn)
        return;
    /* For a request whose headers did not fit, the library does not call on_completed. */
    if (conn->call)
        call_release(conn->call);
    conn_leave(&conn->conn);
    free(conn);
}

/* Paths are matched as they were sent, and parameters are decoded by http_parameter. */
static size_t leave_escaped(void *data, struct MHD_Connection *connection, char *text)
{
    (void)data, (void)connection;
    return strlen(text);
}

/* ---- running ---- */

static void run(struct http *http);

static void on_rerun(uv_idle_t *rerun)
{
    uv_idle_stop(rerun);
    run(rerun->data);
}

static void run(struct http *http)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    MHD_run(http->daemon);
    if (MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES && timeout_ms == 0)
        uv_idle_start(&http->rerun, on_rerun);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run(poll->data);
}

/* A stream may be suspended, and the library does not look at its socket then. While the loop drains, a stream ends as one
 * that is over. */
static void shut(struct conn *conn)
{
    struct call *call = ((struct http_conn *)conn)->call;
    struct http_stream *stream = call ? call->stream : NULL;
    if (!stream || !call->http->loop->draining)
        shutdown(conn->fd, SHUT_RDWR);
    if (stream)
        http_stream_end(stream);
}

void http_accept(void *data, int fd, const struct sockaddr_storage *peer)
{
    struct http *http = data;
    struct http_conn *conn = calloc(1, sizeof *conn);
    socklen_t len = peer->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *peer;
    if (conn)
        conn->conn.shut = shut;
    if (!conn || !conns_enter(&http->loop->conns, &conn->conn, http->front, fd, peer, loop_now_ms(http->loop))) {
        free(conn);
        close(fd);
        return;
    }
    http->entering = conn;
    /* The library closes the socket if it cannot take it. */
    if (MHD_add_connection(http->daemon, fd, (const struct sockaddr *)peer, len) != MHD_YES && http->entering) {
        http->entering = NULL;
        conn_leave(&conn->conn);
        free(conn);
    }
}

/* The text of the headers, the text of cookies a second time, the cost of each, and the answer. */
static size_t pool_bytes(const struct config *config)
{
    return 2 * (size_t)config->header_bytes + 2 * HTTP_HEADERS_MAX * HEADER_COST + ANSWER_HEADERS;
}

static int start(struct http *http)
{
    const struct config *config = &http->loop->server->config;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_call, http, MHD_OPTION_URI_LOG_CALLBACK, uri_seen, http, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped,
        http, MHD_OPTION_CONNECTION_LIMIT, config->connections + 1000, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        pool_bytes(config), MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!http->daemon)
        return UV_ENOMEM;
    int r =
        uv_poll_init(&http->loop->uv, &http->poll, MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    if (r == 0)
        r = uv_idle_init(&http->loop->uv, &http->rerun);
    if (r == 0)
        r = uv_timer_init(&http->loop->uv, &http->step);
    http->poll.data = http->rerun.data = http->step.data = http;
    return r < 0 ? r : uv_poll_start(&http->poll, UV_READABLE, on_readable);
}

int http_new(struct http **ret, struct loop *loop, enum front front, const struct http_service *service)
{
    struct http *http = calloc(1, sizeof *http);
    if (!http)
        return UV_ENOMEM;
    *http = (struct http){ .loop = loop, .front = front, .service = *service };
    int r = start(http);
    if (r == 0)
        *ret = http;
    else {
        if (http->daemon)
            MHD_stop_daemon(http->daemon);
        free(http);
    }
    return r;
}

/* The handles are in the same memory, and libuv may close them in any order. */
static void closed(uv_handle_t *handle)
{
    struct http *http = handle->data;
    handle->data = NULL;
    if (!http->poll.data && !http->rerun.data && !http->step.data)
        free(http);
}

/* The library is stopped first: it calls back for each connection that is left. */
void http_free(void *data)
{
    struct http *http = data;
    if (!http)
        return;
    uv_poll_stop(&http->poll);
    end_waits(http, true);
    MHD_stop_daemon(http->daemon);
    for (struct call *call; (call = http->spare);) {
        http->spare = call->next;
        call_free(call);
    }
    uv_close((uv_handle_t *)&http->poll, closed);
    uv_close((uv_handle_t *)&http->rerun, closed);
    uv_close((uv_handle_t *)&http->step, closed);
}

/* ---- for handlers: the request ---- */

sv http_header(const struct http_call *call, const char *lower_case_name)
{
    sv name = weir_str(lower_case_name);
    for (size_t i = 0; i < call->header_count; i++)
        if (sv_eq_nocase(call->headers[i].name, name))
            return call->headers[i].value;
    return sv_of(NULL, 0);
}

sv http_decode(struct http_call *call, sv text, bool query)
{
    char *out = http_alloc(call, text.len + 1);
    size_t len = 0;
    if (!out)
        return sv_of(NULL, 0);
    for (size_t i = 0; i < text.len; i++) {
        int high = text.ptr[i] == '%' && i + 2 < text.len ? ascii_hex(text.ptr[i + 1]) : -1;
        int low = high >= 0 ? ascii_hex(text.ptr[i + 2]) : -1;
        if (low >= 0) {
            out[len++] = (char)(high << 4 | low);
            i += 2;
        } else
            out[len++] = query && text.ptr[i] == '+' ? ' ' : text.ptr[i];
    }
    return sv_of(out, len);
}

sv http_parameter(struct http_call *call, const char *name, unsigned i)
{
    for (sv rest = call->query; rest.len > 0;) {
        sv value = sv_cut(&rest, '&');
        sv key = http_decode(call, sv_cut(&value, '='), true);
        if (sv_eq(key, weir_str(name)) && i-- == 0)
            return http_decode(call, value, true);
    }
    return sv_of(NULL, 0);
}

/* ---- for handlers: the answer ---- */

static bool is_printable(sv value)
{
    for (size_t i = 0; i < value.len; i++)
        if ((unsigned char)value.ptr[i] < ' ' && value.ptr[i] != '\t')
            return false;
    return true;
}

/* `text` with a NUL at its end, for the library: in `room` if it fits there. */
static const char *with_nul(struct call *call, sv text, char room[ROOM])
{
    if (text.len >= ROOM)
        return arena_copy(&call->arena, text).ptr;
    memcpy(room, text.ptr, text.len);
    room[text.len] = '\0';
    return room;
}

static void add_answer_header(struct call *call, sv name, sv value)
{
    char name_room[ROOM], value_room[ROOM];
    const char *n = with_nul(call, name, name_room), *v = with_nul(call, value, value_room);
    if (n && v && is_printable(value))
        MHD_add_response_header(call->response, n, v);
}

static void resume(struct call *call)
{
    call->suspended = false;
    MHD_resume_connection(call->connection);
    uv_idle_start(&call->http->rerun, on_rerun);
}

static bool has_header(const struct http_answer *answer, sv name)
{
    for (size_t i = 0; i < answer->header_count; i++)
        if (sv_eq_nocase(answer->headers[i].name, name))
            return true;
    return false;
}

static void add_answer_headers(struct call *call, const struct http_answer *answer)
{
    const struct http_service *service = &call->http->service;
    size_t bytes = 0;
    for (size_t i = 0; i < service->header_count; i++)
        if (!has_header(answer, service->headers[i].name))
            add_answer_header(call, service->headers[i].name, service->headers[i].value);
    /* One that does not fit is left out, and not those after it: Retry-After comes last. */
    for (size_t i = 0; i < answer->header_count; i++) {
        size_t more = answer->headers[i].name.len + answer->headers[i].value.len + 4;
        if (bytes + more > ANSWER_HEADERS - OWN_HEADERS)
            continue;
        bytes += more;
        add_answer_header(call, answer->headers[i].name, answer->headers[i].value);
    }
    if (call->http_call.extra.name.len > 0)
        add_answer_header(call, call->http_call.extra.name, call->http_call.extra.value);
    if (server_ending(call->http->loop->server) || call->close)
        MHD_add_response_header(call->response, "Connection", "close");
}

void http_answer(struct http_call *http_call, const struct http_answer *answer)
{
    struct call *call = (struct call *)http_call;
    buf_clear(&call->answer);
    buf_add(&call->answer, answer->body);
    call->response = call->answer.failed
                         ? NULL
                         : MHD_create_response_from_buffer(call->answer.len, call->answer.ptr, MHD_RESPMEM_PERSISTENT);
    call->status = answer->status;
    if (call->response) {
        if (answer->body.len > 0)
            add_answer_header(call, SV("Content-Type"),
                              answer->content_type.len ? answer->content_type : SV("application/json"));
        add_answer_headers(call, answer);
    }
    if (call->suspended)
        resume(call);
}

void http_too_large(struct http_call *call)
{
    http_error(call, 431, "the limit is the option header-bytes",
               "the headers have more than %llu bytes, or there are more than %d of them",
               (unsigned long long)call->loop->server->config.header_bytes, HTTP_HEADERS_MAX);
}

void http_bad_method(struct http_call *call, sv allow)
{
    call->extra = (struct weir_header){ WEIR_STR("Allow"), allow };
    http_error(call, 405, NULL, "%.*s takes %.*s only", SV_SHOWN(call->path, 200), SV_FMT(allow));
}

void http_error(struct http_call *call, unsigned status, const char *hint, const char *format, ...)
{
    char text[ERROR_MAX];
    CLEANUP(buf_done) struct buf body;
    FORMAT_ARGUMENTS(text, format);
    buf_init(&body, 16 * ERROR_MAX);
    buf_add(&body, SV("{\"error\": "));
    buf_json(&body, weir_str(text));
    if (hint) {
        buf_add(&body, SV(", \"hint\": "));
        buf_json(&body, weir_str(hint));
    }
    buf_add(&body, SV("}\n"));
    http_answer(call, &(struct http_answer){ .status = status, .body = buf_sv(&body) });
}

bool http_is_json(struct http_call *call)
{
    sv type = http_header(call, "content-type");
    sv kind = sv_trim(sv_cut(&type, ';'));
    bool patch = sv_eq(call->method, SV("PATCH")) && sv_eq_nocase(kind, SV("application/merge-patch+json"));
    bool json = patch || sv_eq_nocase(kind, SV("application/json"));
    if (!json)
        http_error(call, 415, "send the header Content-Type: application/json", "only application/json is accepted here");
    return json;
}

void http_suspend(struct http_call *http_call)
{
    struct call *call = (struct call *)http_call;
    if (!call->suspended)
        MHD_suspend_connection(call->connection);
    call->suspended = true;
}

/* ---- streams ---- */

/* The library wants to send. Without a piece it is suspended until there is one. */
static ssize_t read_stream(void *data, uint64_t position, char *to, size_t most)
{
    struct http_stream *stream = data;
    size_t rest = stream->pieces.len - stream->taken, n = rest < most ? rest : most;
    (void)position;
    if (n > 0) {
        memcpy(to, stream->pieces.ptr + stream->taken, n);
        stream->taken += n;
        return (ssize_t)n;
    }
    if (stream->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    http_suspend(&stream->call->http_call);
    return 0;
}

struct http_stream *http_stream_begin(struct http_call *http_call, sv content_type, void (*gone)(void *data), void *data)
{
    struct call *call = (struct call *)http_call;
    struct http_stream *stream = calloc(1, sizeof *stream);
    call->response =
        stream ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, stream, NULL) : NULL;
    if (!call->response) {
        free(stream);
        http_error(http_call, 503, NULL, "out of memory");
        return NULL;
    }
    *stream = (struct http_stream){ .call = call, .gone = gone, .data = data };
    buf_init(&stream->pieces, HTTP_STREAM_BYTES_MAX);
    call->stream = stream;
    call->status = 200;
    add_answer_header(call, SV("Content-Type"), content_type);
    add_answer_headers(call, &(struct http_answer){ 0 });
    int bytes = STREAM_SEND_BYTES;
    setsockopt(tls_relay_socket(http_call->loop, http_call->conn->fd), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    conn_stream(http_call->conn, loop_now_ms(call->http->loop));
    if (call->suspended)
        resume(call);
    return stream;
}

static bool is_all_received(const struct http_stream *stream)
{
    const struct http_call *call = &stream->call->http_call;
    return stream->taken == stream->pieces.len && tls_relay_unsent(call->loop, call->conn->fd) == 0;
}

bool http_stream_send(struct http_stream *stream, sv piece)
{
    struct call *call = stream->call;
    struct buf *pieces = &stream->pieces;
    if (is_all_received(stream))
        conn_stream(call->http_call.conn, loop_now_ms(call->http->loop));
    if (stream->taken > 0) {
        memmove(pieces->ptr, pieces->ptr + stream->taken, pieces->len - stream->taken);
        pieces->len -= stream->taken;
        stream->taken = 0;
    }
    buf_add(pieces, piece);
    if (pieces->failed) {
        shutdown(call->http_call.conn->fd, SHUT_RDWR);
        http_stream_end(stream);
        return false;
    }
    if (call->suspended)
        resume(call);
    return true;
}

void http_stream_end(struct http_stream *stream)
{
    stream->ended = true;
    if (stream->call->suspended)
        resume(stream->call);
}
