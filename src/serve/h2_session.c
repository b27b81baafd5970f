/* Streams: nghttp2 calls on_begin_headers · on_header, each · on_frame_recv (headers or body complete) · on_data_chunk ·
 * read_answer (it can send more of an answer) · on_stream_close. An answer is headers, one message or several, and
 * trailers; an error is trailers alone. */
#include "serve/h2_session.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "base/zero.h"
#include "serve/server.h"

enum {
    HEADER_COST = 32,     /* as RFC 9113 counts a header: its bytes, and this */
    HEADERS_IGNORED = 4,  /* after so many times the maximum the stream is reset, and nobody looks at more */
    PREFIX = 5,           /* bytes before a message: whether it is compressed, and its length */
    MESSAGE_MAX = 400,    /* bytes of an encoded grpc-message */
    RESETS_BURST = 10000, /* streams that a client may reset, as a proxy does whose deadline has passed; … */
    RESETS_PER_SECOND = 1000,
    ALLOWANCE_MAX = 4000,       /* frames that ask for nothing: settings, pings, priorities, empty data … */
    ALLOWANCE_PER_SECOND = 200, /* … and how many more there may be as time passes, … */
    ALLOWANCE_PER_STREAM = 16,  /* … and for each request */
    CONTINUATIONS_MAX = 8,
};

#define NV(name, value)                                                             \
    {                                                                               \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE            \
    }

static const char status_texts[GRPC_STATUSES][3] = { "0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                                     "9", "10", "11", "12", "13", "14", "15", "16" };

static nghttp2_nv status_nv(enum grpc_status status)
{
    const char *text = status_texts[status];
    return (nghttp2_nv){ (uint8_t *)"grpc-status", (uint8_t *)text, 11, strlen(text),
                         NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE };
}

/* ---- memory ---- */

static struct h2_stream *stream_take(struct h2 *h2)
{
    struct h2_stream *s = h2->spare;
    if (!byte_budget_take(&h2->budget, sizeof *s))
        return NULL;
    if (s) {
        h2->spare = s->next;
        h2->spare_count--;
    } else if (!(s = malloc(sizeof *s))) {
        h2->budget.used -= sizeof *s;
        return NULL;
    }
    zero(s, offsetof(struct h2_stream, room));
    s->path[0] = '\0';
    s->body_ptr = s->answer_ptr = s->room;
    s->body_cap = s->answer_cap = H2_INLINE;
    return s;
}

static void give_back(struct h2 *h2, char **ptr, size_t *cap, char *room, size_t room_cap)
{
    if (*ptr == room)
        return;
    h2->budget.used -= *cap;
    free(*ptr);
    *ptr = room;
    *cap = room_cap;
}

static void drop_body(struct h2_stream *s)
{
    give_back(s->conn->h2, &s->body_ptr, &s->body_cap, s->room, H2_INLINE);
}

static void stream_release(struct h2_stream *s)
{
    struct h2 *h2 = s->conn->h2;
    drop_body(s);
    h2->budget.used -= sizeof *s;
    give_back(h2, &s->answer_ptr, &s->answer_cap, s->room, H2_INLINE);
    if (h2->spare_count == H2_SPARE_STREAMS) {
        free(s);
        return;
    }
    s->next = h2->spare;
    h2->spare = s;
    h2->spare_count++;
}

/* Makes room for `want` bytes after `used`. False: no memory, or the budget of the loop does not allow it. */
static bool grow(struct h2 *h2, char **ptr, size_t *cap, char *room, size_t used, size_t want)
{
    size_t fresh = *cap;
    if (want <= *cap - used)
        return true;
    while (fresh - used < want)
        fresh *= 2;
    size_t counted = *ptr == room ? 0 : *cap;
    if (!byte_budget_take(&h2->budget, fresh - counted))
        return false;
    char *bytes = *ptr == room ? malloc(fresh) : realloc(*ptr, fresh);
    if (!bytes) {
        h2->budget.used -= fresh - counted;
        return false;
    }
    if (*ptr == room)
        memcpy(bytes, room, used);
    *ptr = bytes;
    *cap = fresh;
    return true;
}

/* ---- streams of a connection ---- */

static void join(struct h2_conn *c, struct h2_stream *s)
{
    s->prev = c->last;
    s->next = NULL;
    *(c->last ? &c->last->next : &c->first) = s;
    c->last = s;
    s->generation = c->generation + 1;
    c->open++;
    c->receiving++;
}

static void set_answered(struct h2_stream *s)
{
    if (s->state == H2_RECEIVING)
        s->conn->receiving--;
    s->state = H2_ANSWERED;
    drop_body(s);
}

/* The answer of the service is not needed any more. */
static void abandon(struct h2_stream *s)
{
    if (s->state == H2_HANDED)
        s->conn->h2->service->gone(s);
}

static void leave_generation(const struct h2_stream *s)
{
    struct h2_conn *c = s->conn;
    if (!s->watch && s->generation <= c->generation)
        c->generation_open--;
}

static void part(struct h2_stream *s)
{
    struct h2_conn *c = s->conn;
    abandon(s);
    if (s->watch) {
        c->watching--;
        c->h2->watches--;
    }
    if (s->state == H2_RECEIVING)
        c->receiving--;
    if (s->state == H2_READY)
        c->h2->ready[s->ready_at] = NULL;
    *(s->prev ? &s->prev->next : &c->first) = s->next;
    *(s->next ? &s->next->prev : &c->last) = s->prev;
    c->open--;
    leave_generation(s);
    c->closed_some = true;
    c->current = c->current == s ? NULL : c->current;
    stream_release(s);
}

/* What comes for a stream comes in pieces, one after another. */
static __attribute__((noinline)) struct h2_stream *find_stream(struct h2_conn *c, int32_t id)
{
    c->current = nghttp2_session_get_stream_user_data(c->session, id);
    return c->current;
}

static inline struct h2_stream *stream_of(struct h2_conn *c, int32_t id)
{
    return c->current && c->current->id == id ? c->current : find_stream(c, id);
}

/* Something is to be sent. In the turn of its connection it is sent at the end; else soon. */
static void wake(struct h2_conn *c)
{
    if (c->in_turn || c->is_dirty)
        return;
    c->is_dirty = true;
    c->dirty_next = c->h2->dirty;
    c->h2->dirty = c;
    if (!uv_is_active((uv_handle_t *)&c->h2->flush))
        uv_idle_start(&c->h2->flush, c->h2->flush_cb);
}

/* ---- answers ---- */

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                           nghttp2_data_source *source, void *data)
{
    struct h2_stream *s = source->ptr;
    size_t rest = s->answer_len - s->answer_sent, n = rest < room ? rest : room;
    (void)data;
    memcpy(to, s->answer_ptr + s->answer_sent, n);
    s->answer_sent += n;
    if (s->answer_sent < s->answer_len)
        return (ssize_t)n;
    if (!s->ended) {
        s->answer_len = s->answer_sent = 0;
        return n ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->plain)
        return (ssize_t)n;
    nghttp2_nv trailer = status_nv(s->status);
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (nghttp2_submit_trailer(session, id, &trailer, 1) != 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return (ssize_t)n;
}

static void reset(struct h2_stream *s, uint32_t code)
{
    nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE, s->id, code);
    wake(s->conn);
}

static bool add_message(struct h2_stream *s, sv message)
{
    char prefix[PREFIX] = { 0 };
    if (!grow(s->conn->h2, &s->answer_ptr, &s->answer_cap, s->room, s->answer_len, PREFIX + message.len))
        return false;
    for (int i = 0; i < 4; i++)
        prefix[1 + i] = (char)(message.len >> (24 - 8 * i));
    memcpy(s->answer_ptr + s->answer_len, prefix, PREFIX);
    memcpy(s->answer_ptr + s->answer_len + PREFIX, message.ptr, message.len);
    s->answer_len += PREFIX + message.len;
    return true;
}

static void submit(struct h2_stream *s)
{
    static const nghttp2_nv headers[] = { NV(":status", "200"), NV("content-type", "application/grpc") };
    nghttp2_data_provider provider = { .source.ptr = s, .read_callback = read_answer };
    if (nghttp2_submit_response(s->conn->session, s->id, headers, 2, &provider) != 0)
        reset(s, NGHTTP2_INTERNAL_ERROR);
    wake(s->conn);
}

void h2_reply(struct h2_stream *s, sv message)
{
    set_answered(s);
    s->ended = true;
    s->status = GRPC_OK;
    if (!add_message(s, message)) {
        h2_fail(s, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    submit(s);
}

/* Percent-encoded, as gRPC demands: bytes outside of printable ASCII, and `%`. */
static size_t encode(const char *text, char to[MESSAGE_MAX])
{
    static const char hex[] = "0123456789ABCDEF";
    size_t len = 0;
    for (; *text && len + 3 <= MESSAGE_MAX; text++) {
        unsigned char c = (unsigned char)*text;
        if (c >= ' ' && c <= '~' && c != '%') {
            to[len++] = (char)c;
            continue;
        }
        to[len++] = '%';
        to[len++] = hex[c >> 4];
        to[len++] = hex[c & 15];
    }
    return len;
}

void h2_fail(struct h2_stream *s, enum grpc_status status, const char *message)
{
    char encoded[MESSAGE_MAX];
    nghttp2_nv headers[4] = { NV(":status", "200"), NV("content-type", "application/grpc"), status_nv(status) };
    set_answered(s);
    headers[3] = (nghttp2_nv){ (uint8_t *)"grpc-message", (uint8_t *)encoded, 12, encode(message, encoded),
                               NGHTTP2_NV_FLAG_NO_COPY_NAME };
    if (nghttp2_submit_response(s->conn->session, s->id, headers, 4, NULL) != 0)
        reset(s, NGHTTP2_INTERNAL_ERROR);
    wake(s->conn);
}

void h2_fail_http(struct h2_stream *s, const char *http_status, sv text)
{
    nghttp2_nv headers[] = { { (uint8_t *)":status", (uint8_t *)http_status, 7, strlen(http_status),
                               NGHTTP2_NV_FLAG_NO_COPY_NAME },
                             NV("content-type", "text/plain") };
    nghttp2_data_provider provider = { .source.ptr = s, .read_callback = read_answer };
    set_answered(s);
    s->ended = s->plain = true;
    s->answer_len = text.len < s->answer_cap ? text.len : s->answer_cap;
    memcpy(s->answer_ptr, text.ptr, s->answer_len);
    if (nghttp2_submit_response(s->conn->session, s->id, headers, 2, &provider) != 0)
        reset(s, NGHTTP2_INTERNAL_ERROR);
    wake(s->conn);
}

/* ---- streams of several messages ---- */

bool h2_watch(struct h2_stream *s)
{
    struct h2 *h2 = s->conn->h2;
    if (h2->watches == H2_WATCHES_MAX)
        return false;
    set_answered(s);
    leave_generation(s);
    s->watch = true;
    h2->watches++;
    s->conn->watching++;
    submit(s);
    return true;
}

bool h2_watch_send(struct h2_stream *s, sv message)
{
    if (!add_message(s, message)) {
        reset(s, NGHTTP2_INTERNAL_ERROR);
        return false;
    }
    nghttp2_session_resume_data(s->conn->session, s->id); /* fails unless it waits for more, which is well */
    wake(s->conn);
    return true;
}

void h2_watch_end(struct h2_stream *s, enum grpc_status status)
{
    s->ended = true;
    s->status = status;
    nghttp2_session_resume_data(s->conn->session, s->id);
    wake(s->conn);
}

/* ---- what nghttp2 calls ---- */

/* Frames that ask for nothing cost time all the same: a client that sends too many is told to stop. */
static void spend_allowance(struct h2_conn *c)
{
    int64_t now_ms = loop_now_ms(c->h2->loop);
    if (c->allowance > 0) {
        c->allowance--;
        return;
    }
    c->allowance = (now_ms - c->allowance_ms) * ALLOWANCE_PER_SECOND / 1000;
    c->allowance = c->allowance < ALLOWANCE_MAX ? c->allowance : ALLOWANCE_MAX;
    c->allowance_ms = now_ms;
    if (c->allowance <= 0)
        nghttp2_session_terminate_session(c->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static bool asks(const nghttp2_frame_hd *hd)
{
    return hd->type == NGHTTP2_HEADERS ||
           (hd->type == NGHTTP2_DATA && (hd->length > 0 || hd->flags & NGHTTP2_FLAG_END_STREAM));
}

/* nghttp2 ignores a stream that is older than one that was opened already. HTTP/2 makes it an error of the connection. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *data)
{
    struct h2_conn *c = data;
    int32_t id = hd->stream_id;
    if (!asks(hd))
        spend_allowance(c);
    if (hd->type != NGHTTP2_HEADERS || id % 2 == 0)
        return 0;
    if (id > c->last_id) {
        if (id > c->last_id + 2) {
            c->gap_from = c->last_id + 1;
            c->gap_to = id - 1;
        }
        c->last_id = id;
    } else if (id >= c->gap_from && id <= c->gap_to)
        nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR);
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct h2_conn *c = data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        find_stream(c, frame->hd.stream_id); /* these are trailers */
        return 0;
    }
    struct h2_stream *s = stream_take(c->h2);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s->loop = c->h2->loop;
    s->conn = c;
    s->id = frame->hd.stream_id;
    s->began_ns = c->read_ns;
    s->deadline_ns = UINT64_MAX;
    s->header_bytes_most = s->loop->server->config.header_bytes;
    join(c, s);
    c->allowance += ALLOWANCE_PER_STREAM;
    nghttp2_session_set_stream_user_data(session, s->id, s);
    c->current = s;
    return 0;
}

/* More headers than so many times the maximum. */
static inline bool has_too_many(const struct h2_stream *s, size_t times)
{
    return s->header_bytes > s->header_bytes_most * times || s->header_count > H2_HEADERS_MAX * times;
}

static void refuse_malformed(struct h2_stream *s)
{
    if (s->state != H2_RECEIVING)
        return;
    set_answered(s);
    reset(s, NGHTTP2_PROTOCOL_ERROR);
}

static sv text_of(nghttp2_rcbuf *buf)
{
    nghttp2_vec bytes = nghttp2_rcbuf_get_buf(buf);
    return sv_of((const char *)bytes.base, bytes.len);
}

static void forget(struct h2_known *known)
{
    if (known->name) {
        nghttp2_rcbuf_decref(known->name);
        nghttp2_rcbuf_decref(known->value);
    }
    known->name = known->value = NULL;
}

/* Judges a field, and remembers it unless it is long or a secret. Some clients send the same bytes anew each time. */
static void learn(const struct h2_service *service, struct h2_known *known, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                  uint8_t flags)
{
    sv name_text = text_of(name), value_text = text_of(value);
    if (known->name && sv_eq(known->name_text, name_text) && sv_eq(known->value_text, value_text))
        return;
    forget(known);
    known->name_text = name_text;
    known->value_text = value_text;
    size_t bytes = name_text.len + value_text.len + HEADER_COST;
    known->bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    known->field = h2_field_judge(name_text, value_text);
    known->number = known->field.kind != H2_FIELD_IGNORED ? service->wants(name_text) : 0;
    if (flags & NGHTTP2_NV_FLAG_NO_INDEX || bytes > H2_KNOWN_BYTES)
        return;
    nghttp2_rcbuf_incref(name);
    nghttp2_rcbuf_incref(value);
    known->name = name;
    known->value = value;
}

static inline int take_field(struct h2_stream *s, const struct h2_known *known, bool trailer)
{
    s->header_bytes += known->bytes;
    s->header_count++;
    if (__builtin_expect(has_too_many(s, 1), 0))
        return has_too_many(s, HEADERS_IGNORED) ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
    if (s->state != H2_RECEIVING)
        return 0;
    if (!h2_fields_add(&s->fields, known->field, known->value_text, trailer))
        refuse_malformed(s);
    else if (known->number && !trailer)
        s->conn->h2->service->header(s, known->number, known->value_text);
    return 0;
}

/* Apart, so that those that are known do not pay for it. */
static __attribute__((noinline)) int take_new_field(struct h2_stream *s, struct h2_known *known, bool trailer,
                                                    nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags)
{
    learn(s->conn->h2->service, known, name, value, flags);
    return take_field(s, known, trailer);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *data)
{
    struct h2_conn *c = data;
    struct h2_stream *s = c->current;
    (void)session;
    if (frame->hd.type != NGHTTP2_HEADERS || !s || s->id != frame->hd.stream_id)
        return 0; /* on_begin_headers has set the current one */
    struct h2_known *known = &c->known[s->header_count < H2_KNOWN_FIELDS ? s->header_count : H2_KNOWN_FIELDS - 1];
    bool trailer = frame->headers.cat != NGHTTP2_HCAT_REQUEST;
    if (known->name == name && known->value == value)
        return take_field(s, known, trailer);
    return take_new_field(s, known, trailer, name, value, flags);
}

static void headers_done(struct h2_stream *s)
{
    struct h2 *h2 = s->conn->h2;
    if (s->state == H2_RECEIVING && !has_too_many(s, 1) && !h2_fields_complete(&s->fields))
        refuse_malformed(s);
    if (s->state != H2_RECEIVING)
        return;
    if (has_too_many(s, 1))
        h2->service->refuse(s, H2_HEADERS_TOO_LARGE);
    else
        h2->service->headers_done(s);
    if (s->deadline_ns < s->conn->due_ns)
        s->conn->due_ns = s->deadline_ns;
    if (s->deadline_ns < h2->due_ns) {
        h2->due_ns = s->deadline_ns;
        h2->due_changed = true;
    }
}

/* The service gets the requests of one read together, after nghttp2 has taken all of it. The code of nghttp2 and that of a
 * decision do not fit into the first cache of a CPU at the same time: one request after another would load both each
 * time. */
static void hand_over(struct h2 *h2)
{
    size_t count = 0;
    for (unsigned i = 0; i < h2->ready_count; i++)
        if (h2->ready[i]) {
            h2->ready[i]->state = H2_HANDED;
            h2->ready[count++] = h2->ready[i];
        }
    h2->ready_count = 0;
    if (count > 0)
        h2->service->complete(h2->ready, count);
}

static void complete(struct h2_stream *s)
{
    struct h2 *h2 = s->conn->h2;
    if (!h2_fields_ended(&s->fields))
        refuse_malformed(s);
    if (s->state != H2_RECEIVING)
        return;
    s->state = H2_READY;
    s->conn->receiving--;
    s->body = sv_of(s->body_ptr, s->body.len);
    if (h2->ready_count == H2_READY_MAX)
        hand_over(h2);
    s->ready_at = h2->ready_count;
    h2->ready[h2->ready_count++] = s;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *data)
{
    struct h2_conn *c = data;
    struct h2_stream *s = stream_of(c, id);
    size_t most = c->h2->loop->server->config.request_bytes + PREFIX;
    (void)session, (void)flags;
    if (!s || s->state != H2_RECEIVING)
        return 0;
    if (!h2_fields_received(&s->fields, len))
        refuse_malformed(s);
    if (s->state != H2_RECEIVING || s->drop)
        return 0;
    if (len > most - s->body.len) {
        c->h2->service->refuse(s, H2_BODY_TOO_LARGE);
        return 0;
    }
    if (!grow(c->h2, &s->body_ptr, &s->body_cap, s->room, s->body.len, len)) {
        c->h2->service->refuse(s, H2_NO_MEMORY);
        return 0;
    }
    memcpy(s->body_ptr + s->body.len, bytes, len);
    s->body.len += len;
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct h2_conn *c = data;
    struct h2_stream *s = NULL;
    bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        s = stream_of(c, frame->hd.stream_id);
        if (s && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            headers_done(s);
        else if (s && !ends)
            refuse_malformed(s); /* trailers are the end */
        if (s && ends)
            complete(s);
        break;
    case NGHTTP2_DATA:
        s = stream_of(c, frame->hd.stream_id);
        if (s && ends)
            complete(s);
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK && c->conn.state == CONN_STREAM)
            conn_stream(&c->conn, loop_now_ms(c->h2->loop));
        break;
    default:
        break;
    }
    return 0;
}

/* An answer may end before its request does. The client need not send the rest. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    (void)data;
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    struct h2_stream *s = stream_of(data, id);
    (void)session, (void)code;
    if (s)
        part(s);
    return 0;
}

/* ---- time ---- */

uint64_t h2_read_ns(const struct h2_stream *s)
{
    return s->conn->read_ns;
}

void h2_session_sweep(struct h2_conn *c, uint64_t began_before_ns, uint64_t now_ns)
{
    for (struct h2_stream *s = c->first, *next; s; s = next) {
        bool late = s->began_ns < began_before_ns, due = s->deadline_ns <= now_ns;
        next = s->next;
        if (s->watch || (!late && !due))
            continue;
        if (s->state != H2_ANSWERED) {
            abandon(s);
            c->h2->service->refuse(s, H2_OVERDUE);
        } else if (late)
            reset(s, NGHTTP2_CANCEL); /* it does not take its answer */
    }
}

void h2_session_find_due(struct h2_conn *c)
{
    c->due_ns = UINT64_MAX;
    for (const struct h2_stream *s = c->first; s; s = s->next)
        if (s->state != H2_ANSWERED && s->deadline_ns < c->due_ns)
            c->due_ns = s->deadline_ns;
}

/* ---- life ---- */

int h2_session_setup(struct h2 *h2)
{
    h2_memory_init(&h2->memory);
    if (nghttp2_session_callbacks_new(&h2->callbacks) != 0 || nghttp2_option_new(&h2->option) != 0)
        return UV_ENOMEM;
    nghttp2_session_callbacks_set_on_begin_frame_callback(h2->callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(h2->callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(h2->callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(h2->callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(h2->callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(h2->callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(h2->callbacks, on_stream_close);
    nghttp2_option_set_stream_reset_rate_limit(h2->option, RESETS_BURST, RESETS_PER_SECOND);
    nghttp2_option_set_no_http_messaging(h2->option, 1); /* see h2_fields.h */
    nghttp2_option_set_max_continuations(h2->option, CONTINUATIONS_MAX);
    return 0;
}

void h2_session_teardown(struct h2 *h2)
{
    while (h2->spare) {
        struct h2_stream *s = h2->spare;
        h2->spare = s->next;
        free(s);
    }
    nghttp2_session_callbacks_del(h2->callbacks);
    nghttp2_option_del(h2->option);
    h2_memory_done(&h2->memory);
}

bool h2_session_begin(struct h2_conn *c)
{
    uint32_t header_bytes = (uint32_t)c->h2->loop->server->config.header_bytes;
    nghttp2_settings_entry settings[] = { { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
                                          { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, header_bytes },
                                          { NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 } };
    c->allowance = ALLOWANCE_MAX;
    c->allowance_ms = loop_now_ms(c->h2->loop);
    return nghttp2_session_server_new3(&c->session, c->h2->callbacks, c, c->h2->option, h2_memory_calls(&c->h2->memory)) ==
               0 &&
           nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof settings[0]) == 0;
}

bool h2_session_receive(struct h2_conn *c, size_t len)
{
    ssize_t used = nghttp2_session_mem_recv(c->session, (const uint8_t *)c->h2->input, len);
    hand_over(c->h2);
    return used >= 0;
}

void h2_session_end(struct h2_conn *c)
{
    for (struct h2_stream *s = c->first, *next; s; s = next) {
        next = s->next;
        part(s);
    }
    for (size_t i = 0; i < H2_KNOWN_FIELDS; i++)
        forget(&c->known[i]);
    nghttp2_session_del(c->session);
    c->session = NULL;
}
