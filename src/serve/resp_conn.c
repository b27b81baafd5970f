/* RESP connections.
 *
 * All connections of a loop share one buffer for input and one for replies. A connection has memory of its own only for an
 * incomplete command, and for replies that its client has not read yet. So idle connections cost next to nothing.
 *
 *   read once ──► parse ──► run, in batches ──► send once ──► queue what is left of input and replies
 *
 * While a client has more than config.pipeline_bytes of unread replies, nothing more is read or run for it. The queues of
 * all connections have a common budget (byte_queue.h); a connection that would exceed it is ended. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/commands.h"
#include "serve/resp_conn.h"
#include "serve/server.h"

enum {
    INPUT_BYTES = 64 * 1024,
    /* Maximum bytes of a command and of unread replies before the client has sent its token: enough for a token and a name.
     */
    STRANGER_BYTES = 4 * 1024,
};

/* Shared by all connections of a loop. */
struct resp {
    struct loop *loop;
    struct commands commands;
    struct resp_command command;
    char input[INPUT_BYTES];
};

enum ending {
    ENDING_NOT,
    ENDING_WELL,  /* once the replies are sent */
    ENDING_WRONG, /* the same, but further input is read and dropped: closing at once would make the peer lose the reply */
    ENDING_AT_ONCE,
};

/* In an order that keeps together what each request needs: the end of `poll`, the fields after it, the end of `conn` and
 * the beginning of `session`. */
struct resp_conn {
    uv_poll_t poll;
    struct resp *resp;
    int events; /* that are waited for */
    enum ending ending;
    uint64_t answered, sent; /* bytes, since it came */
    uint64_t due; /* the requests whose time is running end when so many bytes are sent; UINT64_MAX: not known yet */
    struct byte_queue in, out;
    bool shut_down; /* nothing more will be sent */
    struct conn conn;
    struct session session;
};

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void end_conn(struct resp_conn *c)
{
    byte_queue_clear(&c->in);
    byte_queue_clear(&c->out);
    session_done(&c->session);
    conn_leave(&c->conn);
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->conn.fd);
}

static void shut_conn(struct conn *conn)
{
    end_conn((struct resp_conn *)((char *)conn - offsetof(struct resp_conn, conn)));
}

static void on_event(uv_poll_t *poll, int status, int events);

static bool wait_for(struct resp_conn *c, int events)
{
    if (events == c->events)
        return true;
    c->events = events;
    return uv_poll_start(&c->poll, events, on_event) == 0;
}

static void on_decided(struct session *session);

int resp_new(struct resp **ret, struct loop *loop)
{
    struct resp *resp = calloc(1, sizeof *resp);
    if (!resp)
        return UV_ENOMEM;
    resp->loop = loop;
    commands_init(&resp->commands, loop, on_decided);
    *ret = resp;
    return 0;
}

void resp_free(void *data)
{
    struct resp *resp = data;
    if (!resp)
        return;
    commands_done(&resp->commands);
    free(resp);
}

void resp_accept(void *data, int fd, const struct sockaddr_storage *peer)
{
    struct resp *resp = data;
    struct loop *loop = resp->loop;
    struct resp_conn *c = loop_conn_new(loop, sizeof *c, offsetof(struct resp_conn, poll), fd);
    if (!c)
        return;
    c->resp = resp;
    c->in.budget = c->out.budget = &resp->commands.budget;
    c->conn.shut = shut_conn;
    c->conn.fd = fd;
    bool entered = conns_enter(&loop->conns, &c->conn, FRONT_RESP, fd, peer, loop_now_ms(loop));
    session_init(&c->session, &resp->commands, &c->conn);
    if (!entered || !wait_for(c, UV_READABLE))
        end_conn(c);
}

/* ---- answers ---- */

/* Sends what the peer accepts now, and queues the rest. False: the connection is lost. */
static bool send_answers(struct resp_conn *c, struct resp_out *out)
{
    c->answered += out->len;
    sv fresh = sv_of(out->ptr, out->len);
    bool wanted = !out->failed && c->ending != ENDING_AT_ONCE;
    out->len = 0; /* in any case: the next connection uses it */
    out->failed = false;
    if (!wanted || (c->out.len > 0 && !byte_queue_append(&c->out, fresh)))
        return false;
    sv bytes = c->out.len > 0 ? sv_of(c->out.ptr + c->out.start, c->out.len) : fresh;
    if (bytes.len == 0)
        return true;
    ssize_t n = send(c->conn.fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    size_t done = n > 0 ? (size_t)n : 0;
    c->sent += done;
    if (c->out.len > 0) {
        byte_queue_consume(&c->out, done);
        return true;
    }
    return byte_queue_append(&c->out, sv_from(fresh, done));
}

static size_t stranger_limit(const struct resp_conn *c, size_t most)
{
    return c->session.access == ACCESS_NONE && most > STRANGER_BYTES ? STRANGER_BYTES : most;
}

static bool may_answer(const struct resp_conn *c)
{
    return !c->session.wait &&
           c->out.len + c->resp->commands.out.len < stranger_limit(c, c->resp->loop->server->config.pipeline_bytes);
}

/* Runs one command. False: it is incomplete, has to wait, or is the last one. */
static bool answer_one(struct resp_conn *c, char *bytes, size_t len, size_t *ret_used)
{
    struct resp *resp = c->resp;
    /* resp_parse changes an inline command in place, so it is parsed once only. */
    if (bytes[0] != '*' && !commands_flush(&resp->commands))
        return false;
    switch (resp_parse(bytes, len, stranger_limit(c, c->resp->loop->server->config.request_bytes), &resp->command)) {
    case RESP_WHOLE:
        if (resp->command.count > 0 && !commands_run(&resp->commands, &resp->command))
            return false;
        *ret_used = resp->command.bytes;
        if (c->session.quit)
            c->ending = ENDING_WELL;
        return !c->session.quit;
    case RESP_PARTIAL:
        return false;
    case RESP_WRONG:
        if (!commands_flush(&resp->commands))
            return false;
        resp_error(&resp->commands.out, "ERR Protocol error: %s", resp->command.wrong);
        c->ending = ENDING_WRONG;
        return false;
    default:
        c->ending = ENDING_AT_ONCE;
        return false;
    }
}

/* Runs the commands that are complete and may be answered now. Returns their bytes. */
static size_t answer_some(struct resp_conn *c, char *bytes, size_t len)
{
    struct commands *commands = &c->resp->commands;
    size_t at = 0, used = 0;
    commands_begin(commands, &c->session);
    bool more = commands_continue(commands);
    for (; more && at < len && may_answer(c); at += used) {
        used = 0;
        more = answer_one(c, bytes + at, len - at, &used);
    }
    commands_flush(commands);
    return at;
}

/* ---- time ---- */

/* The time of a request begins with its first byte, and ends when its answer is sent. If several requests are pending, only
 * the time of the first runs; when all that were pending at its beginning are answered, the time of the next ones begins.
 */
static void keep_time(struct resp_conn *c, bool answered)
{
    int64_t now_ms = loop_now_ms(c->resp->loop);
    bool asked = c->in.len > 0 || c->session.wait;
    if (answered && !c->session.wait && c->due == UINT64_MAX)
        c->due = c->answered;
    bool over = c->conn.state == CONN_IDLE || c->sent >= c->due;
    if (!asked && c->out.len == 0) {
        conn_idle(&c->conn, now_ms);
    } else if (over) {
        conn_idle(&c->conn, now_ms);
        conn_busy(&c->conn, now_ms);
        c->due = asked ? UINT64_MAX : c->answered;
    }
    if (c->in.len == 0 || c->session.wait)
        conn_complete(&c->conn);
}

/* ---- one turn ---- */

/* After the last reply. False: it is over. */
static bool wind_up(struct resp_conn *c)
{
    if (c->out.len > 0)
        return wait_for(c, UV_WRITABLE);
    if (c->ending == ENDING_WELL)
        return false;
    if (!c->shut_down && shutdown(c->conn.fd, SHUT_WR) < 0)
        return false;
    c->shut_down = true;
    return wait_for(c, UV_READABLE);
}

/* Nothing is pending on either side. Closing with unread input would make the peer lose replies in flight. */
static bool is_done(const struct resp_conn *c)
{
    int unread = 0;
    return c->in.len == 0 && c->out.len == 0 && !c->session.wait &&
           (ioctl(c->conn.fd, FIONREAD, &unread) < 0 || unread == 0);
}

static bool wait_for_next(struct resp_conn *c, bool answered)
{
    if (c->ending != ENDING_NOT) {
        conn_busy(&c->conn, loop_now_ms(c->resp->loop));
        return wind_up(c);
    }
    keep_time(c, answered);
    if (c->resp->loop->draining && is_done(c))
        return false;
    /* A client that waits for the store mostly sends nothing more: on_event handles the others. */
    int reading = c->session.wait ? c->events & UV_READABLE : may_answer(c) ? UV_READABLE : 0;
    return wait_for(c, reading | (c->out.len > 0 ? UV_WRITABLE : 0));
}

/* There is no memory for what the client has sent. */
static bool refuse_more(struct resp_conn *c)
{
    struct resp_out *out = &c->resp->commands.out;
    byte_queue_clear(&c->in);
    resp_error(out, "ERR the server's buffers are full and have no room for a command of this size; try again later");
    c->ending = ENDING_WRONG;
    return send_answers(c, out) && wait_for_next(c, false);
}

/* Answers `len` bytes that were read, of c->in or of the loop's memory. False: the connection is over. */
static bool answer(struct resp_conn *c, char *bytes, size_t len)
{
    bool own = c->in.len > 0;
    size_t at = 0, used;
    do {
        used = answer_some(c, bytes + at, len - at);
        at += used;
        if (!send_answers(c, &c->resp->commands.out))
            return false;
    } while (used > 0 && at < len && may_answer(c) && c->ending == ENDING_NOT);
    size_t rest = c->ending == ENDING_NOT ? len - at : 0;
    if (own)
        byte_queue_consume(&c->in, len - rest);
    else if (!byte_queue_append(&c->in, sv_of(bytes + at, rest)))
        return c->session.wait ? false : refuse_more(c);
    return wait_for_next(c, at > 0);
}

/* The client has sent its last byte. */
static bool at_end(struct resp_conn *c)
{
    if (c->ending == ENDING_WRONG)
        return false;
    c->ending = ENDING_WELL;
    return wind_up(c);
}

/* Where to read to: after the incomplete command. A short one is moved to the loop's memory. False: no memory. */
static bool room_to_read(struct resp_conn *c, char **ret, size_t *ret_room)
{
    char *input = c->resp->input;
    size_t room = stranger_limit(c, INPUT_BYTES), kept = c->ending == ENDING_NOT ? c->in.len : 0;
    if (kept > INPUT_BYTES / 2) {
        char *to = byte_queue_reserve(&c->in, room);
        if (!to)
            return false;
        *ret = to;
    } else {
        if (kept > 0)
            memcpy(input, c->in.ptr + c->in.start, kept);
        *ret = input + kept;
        room = room < INPUT_BYTES - kept ? room : INPUT_BYTES - kept;
    }
    *ret_room = room;
    return true;
}

/* Reads once: a client that has sent more has its turn after the others. */
static bool read_some(struct resp_conn *c)
{
    size_t room;
    char *to;
    if (!room_to_read(c, &to, &room))
        return refuse_more(c);
    ssize_t n = recv(c->conn.fd, to, room, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return at_end(c);
    if (c->ending != ENDING_NOT)
        return true;
    if (c->in.len > INPUT_BYTES / 2) {
        c->in.len += (size_t)n;
        return answer(c, c->in.ptr, c->in.len);
    }
    size_t len = c->in.len + (size_t)n;
    byte_queue_clear(&c->in);
    return answer(c, c->resp->input, len);
}

/* Unread replies had stopped the connection; commands that were read before are next. */
static bool send_some(struct resp_conn *c)
{
    if (!send_answers(c, &c->resp->commands.out))
        return false;
    if (c->in.len > 0 && c->ending == ENDING_NOT && may_answer(c))
        return answer(c, c->in.ptr + c->in.start, c->in.len);
    return wait_for_next(c, false);
}

/* The connection has waited for verdicts, which are there now. */
static bool resume(struct resp_conn *c)
{
    struct commands *commands = &c->resp->commands;
    commands_answer(commands, &c->session);
    if (!send_answers(c, &commands->out))
        return false;
    if (c->session.queue.running && c->in.len == 0)
        return answer(c, c->resp->input, 0);
    if (!c->session.queue.running) {
        if (c->in.len == 0 || !may_answer(c))
            return wait_for_next(c, true);
        keep_time(c, true);
    }
    return answer(c, c->in.ptr + c->in.start, c->in.len);
}

static void on_decided(struct session *session)
{
    struct resp_conn *c = (struct resp_conn *)((char *)session - offsetof(struct resp_conn, session));
    if (!resume(c))
        end_conn(c);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct resp_conn *c = (struct resp_conn *)poll; /* its first field; `data` is on a cache line of its own */
    bool open = status == 0;
    if (open && events & UV_WRITABLE)
        open = send_some(c);
    if (open && events & UV_READABLE && c->events & UV_READABLE)
        open = c->session.wait ? wait_for(c, c->events & ~UV_READABLE) : read_some(c);
    if (!open)
        end_conn(c);
}
