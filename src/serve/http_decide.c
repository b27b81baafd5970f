/* Decisions over HTTP: POST /v1/check and /v1/refund for programs, /v1/auth for gateways. */
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
    BATCH = 32, /* verdicts at a time: they are large */
};

/* ---- what both do ---- */

/* A decision is timed from here, where its request has been read from the network. */
struct decision {
    struct http_call *call;
    struct server *server;
    int64_t now_us;
    uint64_t start_ns;
    bool waits; /* for the store: the call is suspended until it is answered */
};

static struct decision begin(struct http_call *call, struct server *server)
{
    loop_time_passed(call->loop);
    return (struct decision){ call, server, loop_now_us(call->loop), uv_hrtime(), false };
}

/* Where a call keeps what it needs until its answer: with a store that may be after its handler has returned. */
static void *place(struct http_call *call, void *here, size_t bytes)
{
    return call->loop->store ? http_alloc(call, bytes) : here;
}

static void note(const struct decision *d, const struct weir_request *requests, const struct weir_verdict *verdicts,
                 size_t count)
{
    struct weir *weir = d->server->weir;
    stats_decided(d->call->loop->stats, weir, requests, verdicts, count, d->now_us, uv_hrtime() - d->start_ns);
    for (size_t i = 0; i < count; i++)
        if (!verdicts[i].allowed && !requests[i].peek)
            log_refusal(weir, &requests[i], &verdicts[i], d->now_us);
}

static void suspend(struct decision *d)
{
    if (!d->waits)
        http_suspend(d->call);
    d->waits = true;
}

/* One request. False: `decided` will be called. */
static bool decide_one(struct decision *d, const struct weir_request *request, struct weir_verdict *ret, int *ret_code,
                       weir_decided *decided, void *data)
{
    struct loop *loop = d->call->loop;
    int r =
        loop->store ? loop_check(loop, request, ret, decided, data) : weir_check(d->server->weir, request, d->now_us, ret);
    if (loop->store && r == 0) {
        suspend(d);
        return false;
    }
    note(d, request, ret, 1);
    *ret_code = r;
    return true;
}

/* Answers that the request is a mistake, and the log tells of it too. */
static void mistake(struct http_call *call, unsigned status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void mistake(struct http_call *call, unsigned status, const char *hint, const char *format, ...)
{
    static const enum seldom kinds[2][2] = { { SELDOM_CHECK, SELDOM_CHECK_TOKEN }, { SELDOM_AUTH, SELDOM_AUTH_TOKEN } };
    char why[ASK_WHY_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    log_seldom(kinds[sv_eq(call->path, SV("/v1/auth"))][status == 401], "%.*s, asked from %s: %u, %s", SV_FMT(call->path),
               conn_from(call->conn), status, why);
    http_error(call, status, hint, "%s", why);
}

static void unjudged(struct http_call *call, int code)
{
    http_error(call, 503, NULL, "the request cannot be judged: %s", err_text((enum weir_code)code));
}

/* ---- /v1/check ---- */

/* One of a list that waits for the store. */
struct check_item {
    struct check *check;
    struct weir_request *request;
    char *line; /* its verdict, in the call's memory; NULL: there was none left */
    size_t len;
};

struct check {
    struct decision decision;
    struct ask ask;
    /* of a list */
    struct buf body;
    size_t done, left; /* of its requests: answered; of those that are asked together: without a verdict */
    struct check_item items[BATCH];
};

static void answer_one(struct check *check, int code, const struct weir_verdict *verdict)
{
    struct http_call *call = check->decision.call;
    struct weir_headers headers;
    char line[VERDICT_JSON_MAX + 1];
    ask_done(&check->ask);
    if (code < 0) {
        unjudged(call, code);
        return;
    }
    size_t len = weir_verdict_json(verdict, line, VERDICT_JSON_MAX);
    line[len] = '\n';
    weir_headers(verdict, WEIR_HEADERS_STANDARD, &headers);
    http_answer(call, &(struct http_answer){ .status = verdict->allowed ? 200 : 429,
                                             .body = { line, len + 1 },
                                             .headers = headers.header,
                                             .header_count = headers.count });
}

static void one_decided(const struct weir_verdict *verdict, void *data)
{
    struct check *check = data;
    note(&check->decision, check->ask.requests, verdict, 1);
    answer_one(check, WEIR_OK, verdict);
}

static void check_one(struct check *check)
{
    struct weir_verdict verdict;
    int code;
    if (decide_one(&check->decision, check->ask.requests, &verdict, &code, one_decided, check))
        answer_one(check, code, &verdict);
}

static void add_line(struct check *check, sv line)
{
    buf_add(&check->body, check->body.len > 1 ? SV(",\n") : SV(""));
    buf_add(&check->body, line);
}

/* What cannot be judged is refused, and its verdict names no rule. */
static void decide_some(struct check *check, size_t count)
{
    struct decision *d = &check->decision;
    const struct weir_request *requests = check->ask.requests + check->done;
    struct weir_verdict verdicts[BATCH];
    char line[VERDICT_JSON_MAX];
    d->now_us = loop_now_us(d->call->loop);
    weir_check_batch(d->server->weir, requests, count, d->now_us, verdicts);
    note(d, requests, verdicts, count);
    for (size_t i = 0; i < count; i++)
        add_line(check, sv_of(line, weir_verdict_json(&verdicts[i], line, sizeof line)));
}

/* Whole verdicts would take much more room. */
static void take_line(struct check_item *item, const struct weir_verdict *verdict)
{
    char line[VERDICT_JSON_MAX];
    item->len = weir_verdict_json(verdict, line, sizeof line);
    item->line = http_alloc(item->check->decision.call, item->len);
    if (item->line)
        memcpy(item->line, line, item->len);
}

static void add_lines(struct check *check, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct check_item *item = &check->items[i];
        check->body.failed |= !item->line;
        if (item->line)
            add_line(check, sv_of(item->line, item->len));
    }
}

static void many_decided(const struct weir_verdict *verdict, void *data);

/* The same with the store. False: it waits. */
static bool ask_some(struct check *check, size_t count)
{
    check->left = 0;
    for (size_t i = 0; i < count; i++) {
        struct check_item *item = &check->items[i];
        struct weir_verdict verdict;
        int code;
        *item = (struct check_item){ .check = check, .request = &check->ask.requests[check->done + i] };
        if (decide_one(&check->decision, item->request, &verdict, &code, many_decided, item))
            take_line(item, &verdict);
        else
            check->left++;
    }
    if (check->left == 0)
        add_lines(check, count);
    return check->left == 0;
}

static size_t next_count(const struct check *check)
{
    size_t rest = check->ask.count - check->done;
    return rest < BATCH ? rest : BATCH;
}

static void answer_many(struct check *check)
{
    struct http_call *call = check->decision.call;
    buf_add(&check->body, SV("]\n"));
    ask_done(&check->ask);
    if (check->body.failed)
        unjudged(call, WEIR_E_NO_MEMORY);
    else
        http_answer(call, &(struct http_answer){ .status = 200, .body = buf_sv(&check->body) });
    buf_done(&check->body);
}

static void check_many(struct check *check)
{
    bool store = check->decision.call->loop->store;
    for (size_t n; (n = next_count(check)) > 0; check->done += n) {
        if (!store && check->decision.waits)
            check->body.failed = true; /* the loop is at its end, and nobody is there to hear of it */
        else if (!store)
            decide_some(check, n);
        else if (!ask_some(check, n))
            return;
    }
    answer_many(check);
}

static void many_decided(const struct weir_verdict *verdict, void *data)
{
    struct check_item *item = data;
    struct check *check = item->check;
    note(&check->decision, item->request, verdict, 1);
    take_line(item, verdict);
    if (--check->left > 0)
        return;
    size_t count = next_count(check);
    add_lines(check, count);
    check->done += count;
    check_many(check);
}

/* A page of another origin can send any text, but not this type without asking first, and nobody tells it yes. */
static bool is_json(const struct http_call *call)
{
    sv type = http_header(call, "content-type");
    return sv_eq_nocase(sv_trim(sv_cut(&type, ';')), SV("application/json"));
}

/* Says so where there is something that nobody would look at. */
static bool has_query(struct http_call *call, const char *what)
{
    if (call->query.len > 0)
        mistake(call, 400, "send it in the body: {\"event\": \"ocr\", \"key\": \"u1\"}",
                "what is asked about belongs into the body, and not behind a `?`; nothing was %s", what);
    return call->query.len > 0;
}

static void check(struct http_call *call, struct server *server)
{
    struct check here, *check = place(call, &here, sizeof here);
    char why[ASK_WHY_MAX];
    if (!check) {
        unjudged(call, WEIR_E_NO_MEMORY);
        return;
    }
    check->decision = begin(call, server);
    if (has_query(call, "charged"))
        return;
    unsigned status = ask_read(&check->ask, call->body, false, why);
    if (status) {
        mistake(call, status, NULL, "%s; nothing was charged", why);
        return;
    }
    if (!check->ask.many) {
        check_one(check);
        return;
    }
    check->done = 0;
    buf_init(&check->body, (1 + check->ask.count) * VERDICT_JSON_MAX);
    buf_char(&check->body, '[');
    check_many(check);
}

/* ---- /v1/refund ---- */

static void refund(struct http_call *call, struct server *server)
{
    struct ask ask;
    struct weir_receipt receipt;
    char why[ASK_WHY_MAX], answer[64];
    if (has_query(call, "given back"))
        return;
    unsigned status = ask_read(&ask, call->body, true, why);
    if (status) {
        mistake(call, status, NULL, "%s; nothing was given back", why);
        return;
    }
    bool read = weir_receipt_read(ask.receipt, &receipt) == 0;
    int given = read ? weir_refund(server->weir, ask.requests, &receipt, loop_now_us(call->loop)) : 0;
    ask_done(&ask);
    if (given > 0)
        stats_refunded(call->loop->stats);
    if (!read) {
        mistake(call, 400, "send what /v1/check answered to a request with \"refundable\": true",
                "receipt: is none; nothing was given back");
    } else if (given < 0) {
        unjudged(call, given);
    } else {
        int len = snprintf(answer, sizeof answer, "{\"given_back\":%d}\n", given);
        http_answer(call, &(struct http_answer){ .status = 200, .body = { answer, (size_t)len } });
    }
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

struct auth_check {
    struct decision decision;
    struct auth auth;
    unsigned deny;
};

static void refuse(const struct auth_check *check, const struct weir_verdict *verdict)
{
    struct http_call *call = check->decision.call;
    struct weir_refusal refusal;
    int r = weir_refuse(check->decision.server->weir, &check->auth.request, verdict, &refusal);
    char *type = r < 0 ? NULL : http_alloc(call, refusal.content_type.len + 1);
    if (!type) {
        unjudged(call, WEIR_E_NO_MEMORY);
        return;
    }
    memcpy(type, refusal.content_type.ptr, refusal.content_type.len);
    type[refusal.content_type.len] = '\0';
    http_answer(call, &(struct http_answer){ .status = check->deny ? check->deny : refusal.status,
                                             .content_type = type,
                                             .body = refusal.body,
                                             .headers = refusal.headers,
                                             .header_count = refusal.header_count });
}

static void answer_auth(const struct auth_check *check, const struct weir_verdict *verdict)
{
    if (verdict->allowed)
        pass(check->decision.call, verdict);
    else
        refuse(check, verdict);
}

static void auth_decided(const struct weir_verdict *verdict, void *data)
{
    struct auth_check *check = data;
    note(&check->decision, &check->auth.request, verdict, 1);
    answer_auth(check, verdict);
}

/* What the gateway says. False: it is a mistake, and so it was told. */
static bool read_auth(struct http_call *call, struct server *server, struct auth_check *ret)
{
    sv peer = call->conn->local ? sv_of("", 0) : weir_str(call->conn->address);
    struct auth_gateway gateway = { peer, weir_str(server->config.user_header), call->loop->tokens.decide[0] != '\0' };
    char why[AUTH_WHY_MAX];
    if (!call->conn->local && !weir_trusts(server->weir, peer)) {
        mistake(call, 400, "add the gateway's address to trusted_proxies in the settings of the rules",
                "%s is not a trusted proxy, so nobody knows whose request this is", call->conn->address);
        return false;
    }
    if (!read_deny(call, &ret->deny)) {
        mistake(call, 400, "for example /v1/auth?deny=403", "the only parameter is deny, a status from 400 to 599");
        return false;
    }
    /* A client's doing, so it is refused as clients are: what a gateway takes for an error may let requests pass. */
    if (call->too_large && ret->deny)
        http_error(call, ret->deny, NULL, "the headers of the request are too large");
    else if (call->too_large)
        http_too_large(call);
    if (call->too_large)
        return false;
    if (!auth_read(&ret->auth, &gateway, call->headers, call->header_count, why)) {
        mistake(call, 400, "docs/forward-auth.md has a configuration for each gateway", "%s", why);
        return false;
    }
    return true;
}

static void auth(struct http_call *call, struct server *server)
{
    struct auth_check here, *check = place(call, &here, sizeof here);
    struct weir_verdict verdict;
    int code;
    if (!check) {
        unjudged(call, WEIR_E_NO_MEMORY);
        return;
    }
    check->decision = begin(call, server);
    if (read_auth(call, server, check) &&
        decide_one(&check->decision, &check->auth.request, &verdict, &code, auth_decided, check))
        answer_auth(check, &verdict);
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
    { { "/v1/refund", 10 }, { "POST", 4 }, refund, .json = true },
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
        http_error(call, 404,
                   "there are POST /v1/check, POST /v1/refund and /v1/auth; rules and metrics are at the admin address",
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
