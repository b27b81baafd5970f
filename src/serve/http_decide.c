/* Decisions over HTTP: POST /v1/check, /v1/reserve, /v1/settle, /v1/renew and /v1/refund for programs, /v1/auth for
 * gateways.
 */
#include <stdio.h>

#include "base/err.h"
#include "base/format.h"
#include "engine/handle.h"
#include "present/present.h"
#include "serve/ask.h"
#include "serve/auth.h"
#include "serve/decisions.h"
#include "serve/envoy_json.h"
#include "serve/http_decide.h"
#include "serve/log.h"
#include "serve/server.h"
#include "serve/stats.h"

enum {
    BATCH = 32, /* verdicts at a time: what belongs to them is large */
};

/* ---- what both do ---- */

/* A call is timed from here, where it has been read from the network. */
static struct decisions begin(struct http_call *call)
{
    loop_time_passed(call->loop);
    return (struct decisions){ .loop = call->loop, .read_ns = uv_hrtime() };
}

/* The memory of a call: with a store it may have to wait after its handler has returned. */
static void *memory_of(struct http_call *call, void *on_stack, size_t bytes)
{
    return call->loop->store ? http_alloc(call, bytes) : on_stack;
}

/* Answers that the request is a mistake, and logs it. */
static __attribute__((format(printf, 4, 5))) void mistake(struct http_call *call, unsigned status, const char *hint,
                                                          const char *format, ...)
{
    static const enum seldom kinds[2][2] = { { SELDOM_CHECK, SELDOM_CHECK_TOKEN }, { SELDOM_AUTH, SELDOM_AUTH_TOKEN } };
    char why[ASK_WHY_MAX];
    FORMAT_ARGUMENTS(why, format);
    log_limited(kinds[sv_eq(call->path, SV("/v1/auth"))][status == 401], "%.*s, request from %s: %u, %s",
                SV_FMT(call->path), conn_from(call->conn), status, why);
    http_error(call, status, hint, "%s", why);
}

static void unjudged(struct http_call *call, int code)
{
    http_error(call, 503, NULL, "the request cannot be judged: %s", err_text((enum weir_code)code));
}

/* Answers as the rule that refuses says. status: replaces the status of the rule, unless it is 0. */
static void answer_refusal(struct http_call *call, const struct weir_request *request, const struct weir_verdict *verdict,
                           unsigned status)
{
    struct weir_refusal refusal;
    struct weir_verdict as = *verdict;
    if (status && verdict->applied)
        as.status = (uint16_t)status; /* the body may say it, too */
    if (weir_refuse(call->loop->server->weir, request, &as, &refusal) < 0)
        unjudged(call, WEIR_E_NO_MEMORY);
    else
        http_answer(call, &(struct http_answer){ .status = status ? status : refusal.status,
                                                 .content_type = refusal.content_type,
                                                 .body = refusal.body,
                                                 .headers = refusal.headers,
                                                 .header_count = refusal.header_count });
}

/* ---- /v1/check ---- */

/* The results that a request may ask for beside its verdict. */
struct asked {
    struct weir_shadows shadows;
    struct weir_receipt receipt;
    struct weir_usage usage;
};

/* One request of a list. */
struct check_item {
    struct decision_wait wait; /* first */
    char *line;                /* its verdict, in the call's memory; NULL: no memory */
    size_t len;
};

struct check {
    struct decisions decisions; /* first */
    struct http_call *call;
    struct ask ask;
    /* of a list */
    struct buf body;
    size_t done; /* requests that are answered */
    bool waited;
    struct check_item items[BATCH]; /* the next ones */
    struct asked *asked;            /* as many as are decided together */
};

/* A caller's HTTP client may send the trace with the call, and not within the request. */
static sv trace_of_call(const void *of, const struct weir_request *request)
{
    const struct http_call *call = ((const struct check *)of)->call;
    (void)request;
    return trace_of_headers(call->headers, call->header_count);
}

/* The next `count` requests of the call, with the memory for what they ask for. */
static struct weir_request *next_requests(struct check *check, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct weir_request *request = &check->ask.requests[check->done + i];
        request->shadows = &check->asked[i].shadows;
        request->receipt = &check->asked[i].receipt;
        request->if_held = !check->ask.refundable[check->done + i] && request->ttl_ms == 0;
        request->usage = check->ask.many ? NULL : &check->asked[i].usage; /* only a single answer has headers */
    }
    return check->ask.requests + check->done;
}

static void answer_verdict(struct http_call *call, const struct weir_request *request, const struct weir_verdict *verdict)
{
    struct weir_headers headers;
    char line[VERDICT_JSON_MAX + 1];
    size_t len = weir_verdict_json(request, verdict, line, VERDICT_JSON_MAX);
    line[len] = '\n';
    weir_headers(call->loop->server->weir, request, verdict, WEIR_HEADERS_SETTING, &headers);
    http_answer(call, &(struct http_answer){ .status = verdict->allowed ? 200 : 429,
                                             .body = { line, len + 1 },
                                             .headers = headers.header,
                                             .header_count = headers.count });
}

static void answer_one(struct check *check, int code, const struct weir_verdict *verdict)
{
    const struct weir_request *request = check->ask.requests;
    if (code < 0)
        unjudged(check->call, code);
    else if (!verdict->allowed && check->ask.reject)
        answer_refusal(check->call, request, verdict, 0);
    else
        answer_verdict(check->call, request, verdict);
    ask_done(&check->ask);
}

static void one_decided(struct decision_wait *wait, const struct weir_verdict *verdict)
{
    answer_one((struct check *)wait->all, WEIR_OK, verdict);
}

static void check_one(struct check *check)
{
    struct weir_verdict verdict;
    check->decisions.decided = one_decided;
    int r = decisions_make(&check->decisions, &check->items->wait, 0, next_requests(check, 1), &verdict, 1);
    if (r == DECISIONS_WAIT)
        http_suspend(check->call);
    else
        answer_one(check, r, &verdict);
}

static void add_line(struct check *check, sv line)
{
    buf_add(&check->body, check->body.len > 1 ? SV(",\n") : SV(""));
    buf_add(&check->body, line);
}

static void take_line(struct decision_wait *wait, const struct weir_verdict *verdict)
{
    struct check_item *item = (struct check_item *)wait;
    char line[VERDICT_JSON_MAX];
    item->len = weir_verdict_json(wait->request, verdict, line, sizeof line);
    item->line = http_alloc(((struct check *)wait->all)->call, item->len);
    if (item->line)
        memcpy(item->line, line, item->len);
}

static size_t next_count(const struct check *check)
{
    size_t rest = check->ask.count - check->done;
    return rest < BATCH ? rest : BATCH;
}

static void answer_many(struct check *check)
{
    buf_add(&check->body, SV("]\n"));
    ask_done(&check->ask);
    if (check->body.failed)
        unjudged(check->call, WEIR_E_NO_MEMORY);
    else
        http_answer(check->call, &(struct http_answer){ .status = 200, .body = buf_sv(&check->body) });
    buf_done(&check->body);
}

/* A request that cannot be judged is refused: its verdict names no rule. */
static void check_many(struct check *check)
{
    for (size_t n; (n = next_count(check)) > 0; check->done += n) {
        struct weir_verdict verdicts[BATCH];
        char line[VERDICT_JSON_MAX];
        if (check->waited && !check->call->loop->store) {
            check->body.failed = true; /* the service is stopping, and weir_check_batch would block for the store */
            break;
        }
        struct weir_request *requests = next_requests(check, n);
        if (decisions_make(&check->decisions, &check->items->wait, sizeof *check->items, requests, verdicts, n) ==
            DECISIONS_WAIT) {
            check->waited = true;
            http_suspend(check->call);
            return;
        }
        for (size_t i = 0; i < n; i++)
            add_line(check, sv_of(line, weir_verdict_json(&requests[i], &verdicts[i], line, sizeof line)));
    }
    answer_many(check);
}

static void some_decided(struct decisions *decisions)
{
    struct check *check = (struct check *)decisions;
    size_t count = next_count(check);
    for (size_t i = 0; i < count; i++) {
        check->body.failed |= !check->items[i].line;
        if (check->items[i].line)
            add_line(check, sv_of(check->items[i].line, check->items[i].len));
    }
    check->done += count;
    check_many(check);
}

/* A query would be ignored, so it is an error. */
static bool has_query(struct http_call *call, const char *what)
{
    if (call->query.len > 0)
        mistake(call, 400, "send it in the body: {\"event\": \"ocr\", \"key\": \"u1\"}",
                "the request belongs in the body, not in the query; nothing was %s", what);
    return call->query.len > 0;
}

static void decide(struct http_call *call, enum ask_kind kind)
{
    struct check on_stack, *check = memory_of(call, &on_stack, sizeof on_stack);
    char why[ASK_WHY_MAX];
    if (!check) {
        unjudged(call, WEIR_E_NO_MEMORY);
        return;
    }
    check->decisions = begin(call);
    check->decisions.trace = trace_of_call;
    check->call = call;
    if (has_query(call, "charged"))
        return;
    unsigned status = ask_read(&check->ask, call->body, kind, why);
    if (status) {
        mistake(call, status, NULL, "%s; nothing was charged", why);
        return;
    }
    size_t together = check->ask.count < BATCH ? check->ask.count : BATCH;
    struct asked asked[BATCH]; /* pages that are not used cost nothing */
    check->asked = memory_of(call, asked, together * sizeof *asked);
    check->done = 0;
    if (together > 0 && !check->asked) {
        ask_done(&check->ask);
        unjudged(call, WEIR_E_NO_MEMORY);
        return;
    }
    if (!check->ask.many) {
        check_one(check);
        return;
    }
    check->decisions.decided = take_line;
    check->decisions.finished = some_decided;
    check->waited = false;
    buf_init(&check->body, (1 + check->ask.count) * VERDICT_JSON_MAX);
    buf_char(&check->body, '[');
    check_many(check);
}

static void check(struct http_call *call, struct server *server)
{
    (void)server;
    decide(call, ASK_CHECK);
}

static void reserve(struct http_call *call, struct server *server)
{
    (void)server;
    decide(call, ASK_RESERVE);
}

/* ---- /v1/settle, /v1/renew, /v1/refund ---- */

struct ending {
    enum ask_kind kind;
    const char *done, *hint;   /* words for people */
    const char *name, *answer; /* of the text that was sent, and of the number of limits in the answer */
};

static const struct ending settling = { ASK_SETTLE, "settled", "send the \"hold\" that /v1/reserve or /v1/check answered",
                                        "hold", "settled" };
static const struct ending renewing = { ASK_RENEW, "renewed", "send the \"hold\" that /v1/reserve or /v1/check answered",
                                        "hold", "renewed" };
static const struct ending refunding = { ASK_REFUND, "refunded",
                                         "send what /v1/check answered to a request with \"refundable\": true", "receipt",
                                         "given_back" };

/* Returns the number of limits. */
static int end_hold(struct http_call *call, struct server *server, const struct ask *ask,
                    const struct weir_receipt *receipt, enum ask_kind kind)
{
    const struct weir_request *r = ask->requests;
    int64_t now_us = loop_now_us(call->loop);
    if (kind == ASK_SETTLE)
        return weir_settle(server->weir, receipt, r->cost, r->costs, r->cost_count, now_us);
    if (kind == ASK_RENEW)
        return weir_renew(server->weir, receipt, ask->ttl_ms, now_us);
    int given = weir_refund(server->weir, receipt, now_us);
    if (given > 0)
        stats_refunded(call->loop->stats);
    return given;
}

/* Adds a unit in which something was settled that no limit of the receipt counts: its name may be misspelt. */
static void add_uncounted(struct buf *out, const struct weir_receipt *receipt, sv unit, uint64_t amount, size_t *count)
{
    if (amount == 0 || amount == WEIR_AS_HELD || weir_receipt_counts(receipt, unit))
        return;
    buf_add(out, (*count)++ ? SV(",") : SV(",\"uncounted\":["));
    buf_json(out, unit.len ? unit : SV("requests"));
}

static void write_ended(struct buf *out, const struct ending *ending, int limits, const struct ask *ask,
                        const struct weir_receipt *receipt)
{
    const struct weir_request *r = ask->requests;
    size_t uncounted = 0;
    buf_printf(out, "{\"%s\":%d", ending->answer, limits);
    if (ending->kind == ASK_SETTLE) {
        add_uncounted(out, receipt, (sv){ 0 }, r->cost, &uncounted);
        for (size_t i = 0; i < r->cost_count; i++)
            add_uncounted(out, receipt, r->costs[i].unit, r->costs[i].amount, &uncounted);
    }
    buf_add(out, uncounted ? SV("]}\n") : SV("}\n"));
}

static void end(struct http_call *call, struct server *server, const struct ending *ending)
{
    enum { ANSWER_MAX = 64 << 10 };
    struct ask ask;
    struct weir_receipt receipt;
    struct buf answer;
    char why[ASK_WHY_MAX];
    if (has_query(call, ending->done))
        return;
    unsigned status = ask_read(&ask, call->body, ending->kind, why);
    if (status) {
        mistake(call, status, NULL, "%s; nothing was %s", why, ending->done);
        return;
    }
    bool read = weir_receipt_read(ask.receipt, &receipt) == 0;
    int limits = read ? end_hold(call, server, &ask, &receipt, ending->kind) : 0;
    buf_init(&answer, ANSWER_MAX);
    if (read && limits >= 0)
        write_ended(&answer, ending, limits, &ask, &receipt);
    ask_done(&ask);
    if (!read) {
        mistake(call, 400, ending->hint, "%s: not a valid %s; nothing was %s", ending->name, ending->name, ending->done);
    } else if (limits < 0) {
        unjudged(call, limits);
    } else if (answer.failed) {
        unjudged(call, WEIR_E_NO_MEMORY);
    } else {
        http_answer(call, &(struct http_answer){ .status = 200, .body = buf_sv(&answer) });
    }
    buf_done(&answer);
}

static void settle(struct http_call *call, struct server *server)
{
    end(call, server, &settling);
}

static void renew(struct http_call *call, struct server *server)
{
    end(call, server, &renewing);
}

static void refund(struct http_call *call, struct server *server)
{
    end(call, server, &refunding);
}

/* ---- /v1/auth ---- */

/* `deny=STATUS` is the only parameter: the status of a refusal, for gateways that do not accept every status. 0: not given.
 */
static bool read_deny(const struct http_call *call, unsigned *ret)
{
    static const sv name = SV("deny=");
    uint64_t status = 0;
    if (call->query.len > 0 &&
        (!sv_starts(call->query, name) || !sv_u64(sv_from(call->query, name.len), 599, &status) || status < 400))
        return false;
    *ret = (unsigned)status;
    return true;
}

struct auth_check {
    struct decisions decisions; /* first */
    struct http_call *call;
    struct decision_wait wait;
    struct auth auth;
    struct weir_shadows shadows; /* for the statistics */
    struct weir_usage usage;
    unsigned deny;
};

static void answer_auth(const struct auth_check *check, const struct weir_verdict *verdict)
{
    struct weir_headers headers;
    if (!verdict->allowed) {
        answer_refusal(check->call, &check->auth.request, verdict, check->deny);
        return;
    }
    weir_headers(check->call->loop->server->weir, &check->auth.request, verdict, WEIR_HEADERS_SETTING, &headers);
    http_answer(check->call,
                &(struct http_answer){ .status = 200, .headers = headers.header, .header_count = headers.count });
}

static void auth_decided(struct decision_wait *wait, const struct weir_verdict *verdict)
{
    answer_auth((struct auth_check *)wait->all, verdict);
}

/* False: the gateway made a mistake, and the call was answered. */
static bool read_auth(struct http_call *call, struct server *server, struct auth_check *ret)
{
    sv peer = call->conn->local ? sv_of("", 0) : weir_str(call->conn->address);
    struct auth_gateway gateway = { peer, weir_str(server->config.user_header), call->loop->tokens->required };
    char why[AUTH_WHY_MAX];
    if (!call->conn->local && !weir_trusts(server->weir, peer)) {
        mistake(call, 400, "add the gateway's address to trusted_proxies in the settings of the rules",
                "%s is not a trusted proxy, so the client of this request is unknown", call->conn->address);
        return false;
    }
    if (!read_deny(call, &ret->deny)) {
        mistake(call, 400, "for example /v1/auth?deny=403", "the only parameter is deny, a status from 400 to 599");
        return false;
    }
    /* The client caused this, so it gets a refusal: a gateway may let requests pass when it sees an error. */
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
    struct auth_check on_stack, *check = memory_of(call, &on_stack, sizeof on_stack);
    struct weir_verdict verdict;
    if (!check) {
        unjudged(call, WEIR_E_NO_MEMORY);
        return;
    }
    check->decisions = begin(call);
    check->decisions.decided = auth_decided;
    check->call = call;
    if (!read_auth(call, server, check))
        return;
    check->auth.request.shadows = &check->shadows;
    check->auth.request.usage = &check->usage;
    if (decisions_make(&check->decisions, &check->wait, 0, &check->auth.request, &verdict, 1) == DECISIONS_WAIT)
        http_suspend(call);
    else
        answer_auth(check, &verdict);
}

/* ---- routes ---- */

struct route {
    sv path;
    sv method; /* empty: any */
    void (*run)(struct http_call *call, struct server *server);
    bool json;         /* the body has to be */
    bool may_be_large; /* it handles headers that are too large */
    bool open;         /* it needs no token */
    bool page;         /* a page of another origin has to say that the body is JSON; other programs need not */
    size_t body_max;   /* 0: as for all */
};

static const struct route routes[] = {
    { SV("/v1/check"), SV("POST"), check, .json = true },
    { SV("/v1/reserve"), SV("POST"), reserve, .json = true },
    { SV("/v1/settle"), SV("POST"), settle, .json = true },
    { SV("/v1/renew"), SV("POST"), renew, .json = true },
    { SV("/v1/refund"), SV("POST"), refund, .json = true },
    { SV("/v1/auth"), SV(""), auth, .may_be_large = true },
    { SV("/json"), SV("POST"), envoy_json, .page = true, .body_max = ENVOY_JSON_MAX },
    { SV("/healthcheck"), SV(""), envoy_healthcheck, .open = true, .body_max = 1 },
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
    return token_may_ask(call->loop->tokens, http_header(call, "authorization"));
}

/* False: the call has been answered. */
static bool check_token(struct http_call *call, const struct route *route)
{
    call->tokens = call->loop->tokens->generation;
    if (route->open || has_token(call))
        return true;
    call->extra = (struct weir_header){ WEIR_STR("WWW-Authenticate"), WEIR_STR("Bearer") };
    mistake(call, 401, "send the header Authorization: Bearer TOKEN", "the token is missing or wrong");
    return false;
}

/* A browser says the origin of a page with every POST to another one. */
static bool wants_json(const struct http_call *call, const struct route *route)
{
    return route->json || (route->page && http_header(call, "origin").ptr);
}

size_t decide_body_max(const struct http_call *call, void *server)
{
    const struct route *route = find_route(call);
    (void)server;
    return route ? route->body_max : 0;
}

bool decide_screen(struct http_call *call, void *server)
{
    const struct route *route = find_route(call);
    (void)server;
    call->data = route;
    if (call->too_large && !(route && route->may_be_large)) {
        http_too_large(call);
    } else if (!route) {
        http_error(
            call, 404,
            "there are POST /v1/check, /v1/reserve, /v1/settle, /v1/renew, /v1/refund and /v1/auth, and POST /json and "
            "/healthcheck as Envoy's rate limit service has them; rules and metrics are at the admin address",
            "there is nothing at %.*s", SV_SHOWN(call->path, 200));
    } else if (route->method.len > 0 && !sv_eq(call->method, route->method)) {
        http_bad_method(call, route->method);
    } else if (!check_token(call, route)) {
        return false;
    } else
        return !wants_json(call, route) || http_is_json(call);
    return false;
}

void decide_handle(struct http_call *call, void *server)
{
    const struct route *route = call->data;
    /* The token may have been withdrawn since the headers came. */
    if (call->tokens == call->loop->tokens->generation || check_token(call, route))
        route->run(call, server);
}
