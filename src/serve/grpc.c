#include "serve/grpc.h"

#include "base/format.h"
#include "envoy/envoy.h"
#include "serve/envoy_decide.h"
#include "serve/log.h"
#include "serve/server.h"

enum {
    PREFIX = 5, /* bytes before a message */
    WHY_MAX = 300,
    TIMEOUT_DIGITS_MAX = 8,
};

struct method {
    sv path;
    void (*run)(struct h2_stream *stream, sv message); /* NULL: ShouldRateLimit, whose calls are decided together */
    bool open;                                         /* it needs no token */
};

static __attribute__((format(printf, 3, 4))) void fail(struct h2_stream *stream, enum grpc_status status,
                                                       const char *format, ...)
{
    char why[WHY_MAX];
    FORMAT_ARGUMENTS(why, format);
    log_limited(status == GRPC_UNAUTHENTICATED ? SELDOM_GRPC_TOKEN : SELDOM_GRPC,
                "grpc: a call is answered with status %d: %s", status, why);
    h2_fail(stream, status, why);
}

/* ---- ShouldRateLimit ---- */

static void answer(struct envoy_call *call, const struct envoy_answer *answer)
{
    enum { ANSWER_MAX = 32 << 10 };
    struct h2_stream *stream = call->to;
    char room[ANSWER_MAX];
    struct buf out;
    stream->data = NULL;
    if (!answer) {
        h2_fail(stream, GRPC_UNAVAILABLE, "the request cannot be judged; nothing was charged");
        return;
    }
    buf_over(&out, room, sizeof room);
    envoy_write_answer(&out, answer);
    if (out.failed)
        h2_fail(stream, GRPC_INTERNAL, "the answer is too long");
    else
        h2_reply(stream, buf_sv(&out));
}

static void should_rate_limit(struct h2_stream *stream, sv message, struct envoy_batch *batch)
{
    struct envoy_request request;
    char why[ENVOY_WHY_MAX];
    if (envoy_read_request(&request, message, why) != ENVOY_OK) {
        fail(stream, GRPC_INVALID_ARGUMENT, "%s; nothing was charged", why);
        return;
    }
    struct envoy_question question = { stream->loop, &request,
                                       message,      stream->began_ns,
                                       answer,       stream,
                                       batch,        sv_of(stream->trace, stream->traces == 1 ? stream->trace_len : 0) };
    struct envoy_call *pending = NULL;
    switch (envoy_decide(&question, &pending, why)) {
    case ENVOY_ANSWERED:
        break;
    case ENVOY_PENDING:
        stream->data = pending;
        break;
    case ENVOY_MISTAKE:
        fail(stream, GRPC_INVALID_ARGUMENT, "%s; nothing was charged", why);
        break;
    case ENVOY_FULL:
        fail(stream, GRPC_RESOURCE_EXHAUSTED, "too many decisions are waiting for the store, or out of memory");
        break;
    }
}

/* ---- headers ---- */

static const struct method methods[] = {
    { SV("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"), NULL, false },
    { SV("/grpc.health.v1.Health/Check"), grpc_health_check, true },
    { SV("/grpc.health.v1.Health/Watch"), grpc_health_watch, true },
};

static void take_path(struct h2_stream *stream, sv path)
{
    size_t len = path.len < H2_PATH_MAX - 1 ? path.len : H2_PATH_MAX - 1;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (sv_eq(path, methods[i].path))
            stream->method = &methods[i];
    if (stream->method)
        return;
    memcpy(stream->path, path.ptr, len); /* for people */
    stream->path[len] = '\0';
}

static bool is_grpc(sv type)
{
    static const sv name = SV("application/grpc");
    sv rest = sv_from(type, name.len);
    return sv_starts(type, name) &&
           (rest.len == 0 || rest.ptr[0] == ';' || sv_eq(rest, SV("+proto")) || sv_starts(rest, SV("+proto;")));
}

/* "20m": 20 milliseconds. */
static void take_timeout(struct h2_stream *stream, sv text)
{
    static const struct {
        char letter;
        uint64_t ns;
    } units[] = { { 'H', UINT64_C(3600000000000) },
                  { 'M', UINT64_C(60000000000) },
                  { 'S', 1000000000 },
                  { 'm', 1000000 },
                  { 'u', 1000 },
                  { 'n', 1 } };
    uint64_t number, unit_ns = 0;
    char letter = text.len ? text.ptr[text.len - 1] : '\0';
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (units[i].letter == letter)
            unit_ns = units[i].ns;
    stream->bad_timeout = text.len < 2 || text.len > TIMEOUT_DIGITS_MAX + 1 || !unit_ns ||
                          !sv_u64(sv_of(text.ptr, text.len - 1), 99999999, &number);
    if (!stream->bad_timeout)
        stream->deadline_ns =
            number < (UINT64_MAX - stream->began_ns) / unit_ns ? stream->began_ns + number * unit_ns : UINT64_MAX;
}

static void take_method(struct h2_stream *stream, sv method)
{
    stream->post = sv_eq(method, SV("POST"));
}

static void take_type(struct h2_stream *stream, sv type)
{
    stream->grpc = is_grpc(type);
}

static void take_token(struct h2_stream *stream, sv value)
{
    const struct tokens *tokens = stream->loop->tokens;
    const struct token *token = tokens->required ? token_find(tokens, token_of_bearer(value)) : NULL;
    stream->token = token && token->role == ROLE_ASK;
    stream->tokens = tokens->generation;
    if (stream->token)
        memcpy(stream->token_hash, token->hash, sizeof stream->token_hash);
}

static void take_trace(struct h2_stream *stream, sv value)
{
    if (stream->traces++ > 0 || !trace_is_valid(value))
        return;
    stream->trace_len = TRACE_LEN;
    memcpy(stream->trace, value.ptr, TRACE_LEN);
}

static const struct {
    sv name;
    void (*take)(struct h2_stream *stream, sv value);
} headers[] = {
    { SV(":path"), take_path },           { SV(":method"), take_method },      { SV("content-type"), take_type },
    { SV("grpc-timeout"), take_timeout }, { SV("authorization"), take_token }, { SV("traceparent"), take_trace },
};

static unsigned number_of_header(sv name)
{
    for (unsigned i = 0; i < sizeof headers / sizeof headers[0]; i++)
        if (sv_eq(headers[i].name, name))
            return i + 1;
    return 0;
}

static void on_header(struct h2_stream *stream, unsigned number, sv value)
{
    headers[number - 1].take(stream, value);
}

/* A token may have been withdrawn since the headers came. */
static bool is_valid(const struct h2_stream *stream)
{
    const struct tokens *tokens = stream->loop->tokens;
    if (!stream->token || stream->tokens == tokens->generation)
        return stream->token;
    const struct token *token = token_with_hash(tokens, stream->token_hash);
    return token && token->role == ROLE_ASK;
}

static bool has_token(const struct h2_stream *stream, const struct method *method)
{
    return method->open || !stream->loop->tokens->required || is_valid(stream);
}

/* The answer comes when the request is complete: some clients do not expect it before. */
static void on_headers_done(struct h2_stream *stream)
{
    const struct method *method = stream->method;
    stream->drop = !stream->post || !stream->grpc || !method || !has_token(stream, method) || stream->bad_timeout;
    if (stream->drop)
        stream->deadline_ns = UINT64_MAX; /* it is answered in any case, and strangers set no timers */
}

static void refuse_call(struct h2_stream *stream)
{
    const struct method *method = stream->method;
    if (!stream->post)
        h2_fail_http(stream, "405", SV("a call of gRPC is a POST\n"));
    else if (!stream->grpc)
        h2_fail_http(stream, "415", SV("this address speaks gRPC: Content-Type has to be application/grpc\n"));
    else if (!method)
        fail(stream, GRPC_UNIMPLEMENTED,
             "unknown method %.100s; there are envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit and "
             "grpc.health.v1.Health",
             stream->path);
    else if (!has_token(stream, method))
        fail(stream, GRPC_UNAUTHENTICATED, "the token is missing or wrong; send the metadata authorization: Bearer TOKEN");
    else
        fail(stream, GRPC_INVALID_ARGUMENT, "grpc-timeout: not a valid timeout, such as 20m");
}

/* ---- messages ---- */

static bool read_prefix(struct h2_stream *stream, sv *ret)
{
    const unsigned char *at = (const unsigned char *)stream->body.ptr;
    if (stream->body.len < PREFIX) {
        fail(stream, GRPC_INVALID_ARGUMENT, "the call has no message");
        return false;
    }
    if (at[0] != 0) {
        fail(stream, at[0] == 1 ? GRPC_UNIMPLEMENTED : GRPC_INVALID_ARGUMENT, "compressed messages are not supported");
        return false;
    }
    uint32_t len = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
    *ret = sv_from(stream->body, PREFIX);
    if (len == ret->len)
        return true;
    fail(stream, GRPC_INVALID_ARGUMENT,
         len > ret->len ? "the message is not complete" : "the call has more than one message");
    return false;
}

/* The clock is read only if the deadline is near: what was read last has hardly taken longer. */
static bool is_due(const struct h2_stream *stream)
{
    enum { NEAR_NS = 10000000 };
    uint64_t read_ns = h2_read_ns(stream);
    return stream->deadline_ns <= read_ns ||
           (stream->deadline_ns - read_ns < NEAR_NS && stream->deadline_ns <= uv_hrtime());
}

static void run(struct h2_stream *stream, struct envoy_batch *batch)
{
    const struct method *method = stream->method;
    sv message;
    if (stream->drop)
        refuse_call(stream);
    else if (is_due(stream))
        h2_fail(stream, GRPC_DEADLINE_EXCEEDED, "the deadline has passed; nothing was charged");
    else if (read_prefix(stream, &message)) {
        if (method->run)
            method->run(stream, message);
        else
            should_rate_limit(stream, message, batch);
    }
}

static void on_complete(struct h2_stream *const *streams, size_t count)
{
    struct envoy_batch batch;
    batch.count = 0;
    for (size_t i = 0; i < count; i++)
        run(streams[i], &batch);
    envoy_batch_decide(&batch);
}

static void on_refuse(struct h2_stream *stream, enum h2_refusal why)
{
    const struct config *config = &stream->loop->server->config;
    switch (why) {
    case H2_HEADERS_TOO_LARGE:
        fail(stream, GRPC_RESOURCE_EXHAUSTED, "the headers have more than %llu bytes; the limit is the option header-bytes",
             (unsigned long long)config->header_bytes);
        break;
    case H2_BODY_TOO_LARGE:
        fail(stream, GRPC_RESOURCE_EXHAUSTED, "the message has more than %llu bytes; the limit is the option request-bytes",
             (unsigned long long)config->request_bytes);
        break;
    case H2_NO_MEMORY:
        fail(stream, GRPC_RESOURCE_EXHAUSTED, "the server's buffers are full; try again later");
        break;
    case H2_OVERDUE:
        h2_fail(stream, GRPC_DEADLINE_EXCEEDED, "the decision was not made in time");
        break;
    }
}

/* The charge of a decision that is still pending is given back. */
static void on_gone(struct h2_stream *stream)
{
    if (stream->data)
        envoy_abandon(stream->data);
    stream->data = NULL;
}

const struct h2_service grpc_service = { number_of_header, on_header, on_headers_done,  on_complete,
                                         on_refuse,        on_gone,   grpc_health_drain };
