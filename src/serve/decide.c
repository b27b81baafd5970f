/* Decisions over HTTP: POST /v1/check for programs, /v1/auth for gateways. */
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "engine/weir.h"
#include "serve/ask.h"
#include "serve/auth.h"
#include "serve/http.h"
#include "serve/log.h"
#include "serve/server.h"
#include "serve/stats.h"

enum {
    BATCH = 32,   /* verdicts at a time: they are large */
    QUIET_S = 60, /* between two lines about mistakes of one kind */
};

/* ---- what both do ---- */

/* A decision is timed from here, where its request has been read from the network. */
struct decision {
    struct http_call *call;
    struct server *server;
    int64_t now_us;
    uint64_t start_ns;
};

static struct decision begin(struct http_call *call, struct server *server)
{
    return (struct decision){ call, server, loop_now_us(call->loop), uv_hrtime() };
}

static int decide(const struct decision *d, const struct weir_request *requests, size_t count, struct weir_verdict *ret)
{
    struct weir *weir = d->server->weir;
    int r =
        count == 1 ? weir_check(weir, requests, d->now_us, ret) : weir_check_batch(weir, requests, count, d->now_us, ret);
    stats_decided(d->call->loop->stats, weir, requests, ret, count, d->now_us, uv_hrtime() - d->start_ns);
    for (size_t i = 0; i < count; i++)
        if (!ret[i].allowed && !requests[i].peek)
            log_refusal(weir, &requests[i], &ret[i], d->now_us);
    return r;
}

/* Answers that the request is a mistake. A gateway hides that from people, so the log tells of it too: a line a minute for
 * each kind, whatever the number of clients. */
static void mistake(struct http_call *call, unsigned status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void mistake(struct http_call *call, unsigned status, const char *hint, const char *format, ...)
{
    static int64_t quiet_until_s[2][2]; /* of /v1/check and /v1/auth; of other mistakes and wrong tokens */
    int64_t *quiet = &quiet_until_s[sv_eq(call->path, SV("/v1/auth"))][status == 401];
    int64_t now_s = loop_now_ms(call->loop) / 1000, until_s = __atomic_load_n(quiet, __ATOMIC_RELAXED);
    char why[ASK_WHY_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (now_s >= until_s &&
        __atomic_compare_exchange_n(quiet, &until_s, now_s + QUIET_S, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        log_say(LEVEL_WARNING, "mistake", "%.*s, asked from %s: %u, %s (others like this are not logged for %d s)",
                SV_FMT(call->path), call->conn->local ? "a unix socket" : call->conn->address, status, why, QUIET_S);
    http_error(call, status, hint, "%s", why);
}

static void unjudged(struct http_call *call, int code)
{
    http_error(call, 503, NULL, "the request cannot be judged: %s", err_text((enum weir_code)code));
}

/* ---- /v1/check ---- */

static void check_one(const struct decision *d, const struct ask *ask)
{
    struct weir_verdict verdict;
    struct weir_headers headers;
    char line[VERDICT_JSON_MAX + 1];
    int r = decide(d, ask->requests, 1, &verdict);
    if (r < 0) {
        unjudged(d->call, r);
        return;
    }
    size_t len = weir_verdict_json(&verdict, line, VERDICT_JSON_MAX);
    line[len] = '\n';
    weir_headers(&verdict, WEIR_HEADERS_STANDARD, &headers);
    http_answer(d->call, &(struct http_answer){ .status = verdict.allowed ? 200 : 429,
                                                .body = { line, len + 1 },
                                                .headers = headers.header,
                                                .header_count = headers.count });
}

static void check_many(const struct decision *d, const struct ask *ask)
{
    struct weir_verdict verdicts[BATCH];
    char line[VERDICT_JSON_MAX];
    struct buf body;
    buf_init(&body, (1 + ask->count) * sizeof line);
    buf_char(&body, '[');
    for (size_t done = 0, n; done < ask->count; done += n) {
        n = ask->count - done < BATCH ? ask->count - done : BATCH;
        /* What cannot be judged is refused, and its verdict names no rule. */
        decide(d, ask->requests + done, n, verdicts);
        for (size_t i = 0; i < n; i++) {
            size_t len = weir_verdict_json(&verdicts[i], line, sizeof line);
            buf_add(&body, done + i > 0 ? SV(",\n") : SV(""));
            buf_add(&body, sv_of(line, len));
        }
    }
    buf_add(&body, SV("]\n"));
    if (body.failed)
        unjudged(d->call, WEIR_E_NO_MEMORY);
    else
        http_answer(d->call, &(struct http_answer){ .status = 200, .body = buf_sv(&body) });
    buf_done(&body);
}

/* A page of another origin can send any text, but not this type without asking first, and nobody tells it yes. */
static bool is_json(const struct http_call *call)
{
    sv type = http_header(call, "content-type");
    return sv_eq_nocase(sv_trim(sv_cut(&type, ';')), SV("application/json"));
}

static void check(struct http_call *call, struct server *server)
{
    struct decision d = begin(call, server);
    struct ask ask;
    char why[ASK_WHY_MAX];
    if (call->query.len > 0) {
        mistake(call, 400, "send it in the body: {\"event\": \"ocr\", \"key\": \"u1\"}",
                "what is asked about belongs into the body, and not behind a `?`; nothing was charged");
        return;
    }
    unsigned status = ask_read(&ask, call->body, why);
    if (status) {
        mistake(call, status, NULL, "%s; nothing was charged", why);
        return;
    }
    if (ask.many)
        check_many(&d, &ask);
    else
        check_one(&d, &ask);
    ask_done(&ask);
}

/* ---- /v1/auth ---- */

/* `deny=STATUS` is the only parameter: the status of a refusal, for gateways that do not know each. 0: none was given. */
static bool read_deny(const struct http_call *call, unsigned *ret)
{
    static const sv name = { "deny=", 5 };
    uint64_t status = 0;
    if (call->query.len > 0 &&
        (!sv_starts(call->query, name) || !sv_u64(sv_from(call->query, name.len), 599, &status) || status < 400))
        return false;
    *ret = (unsigned)status;
    return true;
}

static void pass(struct http_call *call, const struct weir_verdict *verdict)
{
    struct weir_headers headers;
    weir_headers(verdict, WEIR_HEADERS_STANDARD, &headers);
    http_answer(call, &(struct http_answer){ .status = 200, .headers = headers.header, .header_count = headers.count });
}

static void refuse(const struct decision *d, const struct weir_request *request, const struct weir_verdict *verdict,
                   unsigned deny)
{
    struct weir_refusal refusal;
    int r = weir_refuse(d->server->weir, request, verdict, &refusal);
    char *type = r < 0 ? NULL : http_alloc(d->call, refusal.content_type.len + 1);
    if (!type) {
        unjudged(d->call, WEIR_E_NO_MEMORY);
        return;
    }
    memcpy(type, refusal.content_type.ptr, refusal.content_type.len);
    type[refusal.content_type.len] = '\0';
    http_answer(d->call, &(struct http_answer){ .status = deny ? deny : refusal.status,
                                                .content_type = type,
                                                .body = refusal.body,
                                                .headers = refusal.headers,
                                                .header_count = refusal.header_count });
}

static void auth(struct http_call *call, struct server *server)
{
    struct decision d = begin(call, server);
    sv peer = call->conn->local ? sv_of("", 0) : weir_str(call->conn->address);
    struct auth_gateway gateway = { peer, weir_str(server->config.user_header), call->loop->tokens.decide[0] != '\0' };
    struct auth auth;
    struct weir_verdict verdict;
    char why[AUTH_WHY_MAX];
    unsigned deny;
    if (!call->conn->local && !weir_trusts(server->weir, peer)) {
        mistake(call, 400, "add the gateway's address to trusted_proxies in the settings of the rules",
                "%s is not a trusted proxy, so nobody knows whose request this is", call->conn->address);
        return;
    }
    if (!read_deny(call, &deny)) {
        mistake(call, 400, "for example /v1/auth?deny=403", "the only parameter is deny, a status from 400 to 599");
        return;
    }
    /* A client's doing, so it is refused as clients are: what a gateway takes for an error may let requests pass. */
    if (call->too_large && deny)
        http_error(call, deny, NULL, "the headers of the request are too large");
    else if (call->too_large)
        http_too_large(call);
    if (call->too_large)
        return;
    if (!auth_read(&auth, &gateway, call->headers, call->header_count, why)) {
        mistake(call, 400, "docs/forward-auth.md has a configuration for each gateway", "%s", why);
        return;
    }
    decide(&d, &auth.request, 1, &verdict);
    if (verdict.allowed)
        pass(call, &verdict);
    else
        refuse(&d, &auth.request, &verdict, deny);
}

/* ---- routes ---- */

struct route {
    sv path;
    sv method; /* the only one, if there is one */
    void (*run)(struct http_call *call, struct server *server);
    bool json;         /* the body has to be */
    bool may_be_large; /* it deals with headers that are too large itself */
};

static const struct route routes[] = {
    { { "/v1/check", 9 }, { "POST", 4 }, check, .json = true },
    { { "/v1/auth", 8 }, { "", 0 }, auth, .may_be_large = true },
};

static const struct route *find_route(const struct http_call *call)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (sv_eq(call->path, routes[i].path))
            return &routes[i];
    return NULL;
}

static bool has_token(const struct http_call *call)
{
    const char *token = call->loop->tokens.decide;
    return token[0] == '\0' || token_is_bearer(token, http_header(call, "authorization"));
}

bool decide_screen(struct http_call *call, void *server)
{
    const struct route *route = find_route(call);
    (void)server;
    call->data = route;
    if (call->too_large && !(route && route->may_be_large)) {
        http_too_large(call);
    } else if (!route) {
        http_error(call, 404, "there are POST /v1/check and /v1/auth; rules and metrics are at the admin address",
                   "there is nothing at %.*s", call->path.len < 200 ? (int)call->path.len : 200, call->path.ptr);
    } else if (route->method.len > 0 && !sv_eq(call->method, route->method)) {
        call->extra = (struct weir_header){ WEIR_STR("Allow"), route->method };
        http_error(call, 405, NULL, "%s takes %s only", route->path.ptr, route->method.ptr);
    } else if (!has_token(call)) {
        call->extra = (struct weir_header){ WEIR_STR("WWW-Authenticate"), WEIR_STR("Bearer") };
        mistake(call, 401, "send the header Authorization: Bearer TOKEN", "the token is missing or wrong");
    } else if (route->json && !is_json(call)) {
        http_error(call, 415, "send the header Content-Type: application/json", "only application/json is taken here");
    } else
        return true;
    return false;
}

void decide_handle(struct http_call *call, void *server)
{
    const struct route *route = call->data;
    route->run(call, server);
}
