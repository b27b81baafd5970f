/* WEIR.CHECK and WEIR.PEEK: the requests of a pipeline are gathered, decided together, and answered together.
 *
 * A session whose batch has to wait for the store carries out nothing more until all of its verdicts are there. The memory
 * that the requests lie in is used by others meanwhile, so they are copied, for the log and the list of the most refused.
 * If the connection ends meanwhile, its wait ends by itself later.
 */
#include <stdlib.h>

#include "rules/attributes.h"
#include "serve/commands.h"
#include "serve/decisions.h"
#include "serve/server.h"

/* ---- replies ---- */

enum {
    VERDICT_MAX = 9 * RESP_NUMBER_MAX + WEIR_ID_MAX + 2 + WEIR_NAME_MAX + 2,
    LONG_MAX_BYTES = 6 * RESP_NUMBER_MAX + WEIR_RECEIPT_TEXT_MAX + 2 + WEIR_UNIT_MAX + 2,
};

static char *put_text(char *to, const char *text)
{
    size_t len = strlen(text);
    to = resp_put_number(to, '$', (int64_t)len);
    memcpy(to, text, len);
    memcpy(to + len, "\r\n", 2);
    return to + len + 2;
}

static char *put_literal(char *to, sv text)
{
    memcpy(to, text.ptr, text.len);
    return to + text.len;
}

static char *put_receipt(char *to, const struct weir_receipt *receipt)
{
    char text[WEIR_RECEIPT_TEXT_MAX];
    weir_receipt_text(receipt, text, sizeof text);
    return put_text(to, text);
}

/* [… window_ms, status, unavailable, receipt] */
static char *put_rest(char *to, const struct weir_verdict *v, const struct weir_receipt *receipt, sv null)
{
    to = v->applied ? resp_put_number(to, ':', v->window_ms) : put_literal(to, null);
    to = resp_put_number(to, ':', v->status);
    to = resp_put_number(to, ':', v->unavailable);
    if (!receipt || receipt->count == 0)
        return put_literal(to, null);
    return put_receipt(to, receipt);
}

/* ---- answers to HTTP clients ---- */

/* The answer for a client of the caller, as RESP: [content_type, body, header name, value, …]. */
struct answer_items {
    size_t count; /* 0: it was not asked for */
    struct resp_out text;
};

static void add_headers(struct answer_items *to, const struct weir_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        resp_bulk(&to->text, headers[i].name);
        resp_bulk(&to->text, headers[i].value);
    }
    to->count += 2 * count;
}

/* The items of a request that is decided, for a client of this protocol. The caller frees them with resp_out_done. */
static struct answer_items answer_items(const struct commands *c, enum reply_answer when,
                                        const struct weir_request *request, const struct weir_verdict *v, unsigned protocol)
{
    struct weir *weir = c->loop->server->weir;
    struct answer_items items = { .text = { .protocol = protocol } };
    struct weir_headers headers;
    struct weir_refusal refusal;
    if (when == ANSWER_NEVER || (when == ANSWER_REFUSED && v->allowed))
        return items;
    items.count = 2;
    if (v->allowed || weir_refuse(weir, request, v, &refusal) < 0) {
        weir_headers(weir, request, v, WEIR_HEADERS_SETTING, &headers);
        resp_null(&items.text);
        resp_null(&items.text);
        add_headers(&items, headers.header, headers.count);
    } else {
        resp_bulk(&items.text, refusal.content_type);
        resp_bulk(&items.text, refusal.body);
        add_headers(&items, refusal.headers, refusal.header_count);
    }
    return items;
}

/* [allowed, rule, limit, max, remaining, reset_ms, retry_after_ms]: null where the JSON of a verdict has it.
 * receipt: NULL, or its count may be 0. answer: NULL, or its count may be 0; a reply with an answer is long. */
static void put_reply(struct resp_out *out, const struct weir_verdict *v, const struct weir_receipt *receipt, bool is_long,
                      const struct answer_items *answer)
{
    sv null = out->protocol == 3 ? SV("_\r\n") : SV("$-1\r\n");
    bool longer = is_long || (receipt && receipt->count > 0);
    char *start = resp_room(out, VERDICT_MAX + (longer ? LONG_MAX_BYTES : 0)), *to = start;
    if (!start)
        return;
    /* A long reply about a limit with a unit of its own has that at its end, and one about a penalty a 1 after the unit.
     * One with an answer has both. */
    bool has_answer = answer && answer->count > 0, has_penalty = is_long && (v->penalty || has_answer);
    bool has_unit = has_penalty || (is_long && v->applied && v->unit[0]);
    /* A short one that holds a slot has the hold. */
    bool has_hold = !is_long && receipt && receipt->count > 0;
    to = resp_put_number(
        to, '*', (is_long ? 11 : 7) + has_unit + has_penalty + has_hold + (int64_t)(has_answer ? answer->count : 0));
    to = put_literal(to, v->allowed ? SV(":1\r\n") : SV(":0\r\n"));
    if (v->applied) {
        to = put_text(to, v->rule);
        to = put_text(to, v->limit);
        to = resp_put_number(to, ':', (int64_t)v->max);
        to = resp_put_number(to, ':', (int64_t)v->remaining);
        to = resp_put_number(to, ':', v->reset_ms);
    } else {
        for (int i = 0; i < 5; i++)
            to = put_literal(to, null);
    }
    to = resp_put_number(to, ':', v->retry_after_ms);
    if (is_long)
        to = put_rest(to, v, receipt, null);
    if (has_hold)
        to = put_receipt(to, receipt);
    if (has_unit)
        to = v->applied ? put_text(to, v->unit[0] ? v->unit : UNIT_REQUESTS) : put_literal(to, null);
    if (has_penalty)
        to = resp_put_number(to, ':', v->penalty);
    out->len += (size_t)(to - start);
    if (has_answer) {
        out->failed = out->failed || answer->text.failed;
        resp_raw(out, sv_of(answer->text.ptr, answer->text.len));
    }
}

/* ---- waiting ---- */

struct wait_item {
    struct decision_wait wait;   /* first */
    struct weir_request request; /* a copy, if it waits; its strings are in `copies` */
    bool is_long;
    enum reply_answer when;
    struct weir_verdict verdict;
    struct weir_receipt *receipt; /* or NULL; most have none */
    struct answer_items answer;
};

struct wait {
    struct decisions decisions; /* first */
    struct commands *commands;
    struct session *session;  /* NULL: it is gone */
    size_t count, cap;        /* items */
    bool for_command, failed; /* see wait_for_command, wait_end_command */
    char *error;              /* of wait_end_command */
    char *copies;
    size_t copy_bytes;
    struct wait_item items[];
};

static size_t bytes_of(size_t items)
{
    return sizeof(struct wait) + items * sizeof(struct wait_item);
}

void wait_free(struct wait *w)
{
    if (!w)
        return;
    w->commands->budget.used -= bytes_of(w->cap);
    free(w);
}

static void wait_end(struct wait *w)
{
    struct commands *c = w->commands;
    for (size_t i = 0; i < w->count; i++) {
        free(w->items[i].receipt);
        resp_out_done(&w->items[i].answer.text);
    }
    free(w->copies);
    free(w->error);
    c->budget.used -= w->copy_bytes;
    bool keep = !c->spare || c->spare->cap < w->cap;
    wait_free(keep ? c->spare : w);
    if (keep)
        c->spare = w;
}

/* The session of the wait goes on, if it is still there. */
static void resume_session(struct decisions *decisions)
{
    struct wait *w = (struct wait *)decisions;
    if (w->session)
        w->commands->decided(w->session);
    else
        wait_end(w);
}

/* At once: what the request points to is used by others later. Without room for it the reply has no answer. */
static void keep_answer(struct wait *w, struct wait_item *item)
{
    struct answer_items *answer = &item->answer;
    *answer = answer_items(w->commands, item->when, item->wait.request, &item->verdict, w->session->protocol);
    if (byte_budget_take(&w->commands->budget, answer->text.cap)) {
        w->copy_bytes += answer->text.cap;
    } else {
        resp_out_done(&answer->text);
        *answer = (struct answer_items){ 0 };
    }
}

static void take_verdict(struct decision_wait *wait, const struct weir_verdict *v)
{
    struct wait_item *item = (struct wait_item *)wait;
    const struct weir_receipt *receipt = wait->request->receipt;
    struct wait *w = (struct wait *)wait->all;
    item->verdict = *v;
    if (item->when && w->session)
        keep_answer(w, item);
    if (receipt && receipt->count > 0 && (item->receipt = malloc(sizeof *item->receipt)))
        *item->receipt = *receipt;
}

/* NULL: there is no room. */
static struct wait *wait_new(struct commands *c, size_t count)
{
    struct wait *w = c->spare;
    size_t cap = w ? w->cap : 0;
    if (cap >= count && w) {
        c->spare = NULL;
    } else {
        cap = count;
        if (!byte_budget_take(&c->budget, bytes_of(cap)))
            return NULL;
        w = malloc(bytes_of(cap));
        if (!w) {
            c->budget.used -= bytes_of(cap);
            return NULL;
        }
    }
    *w = (struct wait){ .decisions = { c->loop, c->read_ns, 0, take_verdict, resume_session },
                        .commands = c,
                        .session = c->session,
                        .count = count,
                        .cap = cap };
    for (size_t i = 0; i < count; i++) {
        w->items[i].is_long = c->batch.is_long[i];
        w->items[i].receipt = NULL;
        w->items[i].when = c->batch.answers[i];
        w->items[i].answer = (struct answer_items){ 0 };
    }
    return w;
}

void wait_leave(struct session *session)
{
    if (session->wait)
        session->wait->session = NULL;
    session->wait = NULL;
}

/* ---- copies of requests ---- */

static size_t copy_text(sv *text, char *to, size_t at)
{
    if (to) {
        if (text->len > 0)
            memcpy(to + at, text->ptr, text->len);
        text->ptr = to + at;
    }
    return at + text->len;
}

/* Moves a list of headers or entries, which begins at `ret`, and their strings, which begin at `at`. */
static size_t copy_list(const struct weir_header *from, size_t count, struct weir_header *ret, char *to, size_t at)
{
    for (size_t i = 0; i < count; i++) {
        struct weir_header one = from[i];
        at = copy_text(&one.name, to, at);
        at = copy_text(&one.value, to, at);
        if (to)
            ret[i] = one;
    }
    return at;
}

/* Moves headers, entries and strings to `to`. NULL: moves nothing. Returns the bytes that they take. */
static size_t copy_request(struct weir_request *r, char *to)
{
    struct weir_header *headers = (struct weir_header *)(void *)to, *entries = NULL;
    if (headers)
        entries = headers + r->header_count;
    size_t at = (r->header_count + r->descriptor_count) * sizeof *headers;
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv text = request_get(r, i);
        at = copy_text(&text, to, at);
        request_set(r, i, text);
    }
    at = copy_list(r->headers, r->header_count, headers, to, at);
    at = copy_list(r->descriptor, r->descriptor_count, entries, to, at);
    if (to) {
        r->headers = headers;
        r->descriptor = entries;
    }
    return (at + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *); /* the next one has headers, too */
}

/* Without room for the copies a refusal is counted, but not for whom. */
static void copy_requests(struct wait *w)
{
    size_t bytes = 0;
    for (size_t i = 0; i < w->count; i++)
        if (w->items[i].wait.waits) {
            w->items[i].request = *w->items[i].wait.request;
            w->items[i].request.costs = NULL; /* the decision has them */
            w->items[i].request.cost_count = 0;
            w->items[i].wait.request = &w->items[i].request;
            bytes += copy_request(&w->items[i].request, NULL);
        }
    if (byte_budget_take(&w->commands->budget, bytes)) {
        w->copy_bytes += bytes;
        w->copies = malloc(bytes + 1);
    }
    char *to = w->copies;
    for (size_t i = 0; i < w->count; i++) {
        struct weir_request *r = &w->items[i].request;
        if (!w->items[i].wait.waits)
            continue;
        if (to)
            to += copy_request(r, to);
        else
            *r = (struct weir_request){
                .cost = r->cost, .peek = r->peek, .receipt = r->receipt, .shadows = r->shadows, .usage = r->usage
            };
    }
}

/* ---- deciding ---- */

/* False: the session waits, or there is no memory, and out.failed ends the connection. */
static __attribute__((noinline)) bool decide_with_store(struct commands *c, size_t count)
{
    struct batch *b = &c->batch;
    struct wait *w = wait_new(c, count);
    if (!w) {
        c->out.failed = true;
        return false;
    }
    if (decisions_make(&w->decisions, &w->items->wait, sizeof *w->items, b->requests, b->verdicts, count) ==
        DECISIONS_WAIT) {
        copy_requests(w);
        c->session->wait = w;
        return false;
    }
    wait_end(w);
    return true;
}

bool commands_flush(struct commands *c)
{
    struct batch *b = &c->batch;
    size_t count = b->count;
    if (count == 0)
        return true;
    b->count = b->header_count = b->entry_count = b->cost_count = 0;
    if (!c->loop->store)
        decisions_make(&(struct decisions){ .loop = c->loop, .read_ns = c->read_ns }, NULL, 0, b->requests, b->verdicts,
                       count);
    else if (!decide_with_store(c, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (__builtin_expect(b->answers[i] == ANSWER_NEVER, 1)) {
            put_reply(&c->out, &b->verdicts[i], b->requests[i].receipt, b->is_long[i], NULL);
            continue;
        }
        struct answer_items answer = answer_items(c, b->answers[i], &b->requests[i], &b->verdicts[i], c->out.protocol);
        put_reply(&c->out, &b->verdicts[i], b->requests[i].receipt, true, &answer);
        resp_out_done(&answer.text);
    }
    return true;
}

/* ---- waiting for something else than decisions ---- */

struct wait *wait_for_command(struct commands *c)
{
    struct wait *w = wait_new(c, 0);
    if (w)
        w->for_command = true;
    c->session->wait = w;
    return w;
}

void wait_end_command(struct wait *w, const char *error)
{
    w->error = error ? strdup(error) : NULL;
    w->failed = error;
    resume_session(&w->decisions);
}

bool wait_is_for_command(const struct session *session)
{
    return session->wait && session->wait->for_command;
}

void commands_answer(struct commands *c, struct session *session)
{
    struct wait *w = session->wait;
    session->wait = NULL;
    c->out.protocol = session->protocol;
    for (size_t i = 0; i < w->count; i++)
        put_reply(&c->out, &w->items[i].verdict, w->items[i].receipt, w->items[i].is_long, &w->items[i].answer);
    if (w->failed)
        resp_error(&c->out, "ERR %s", w->error ? w->error : "out of memory");
    else if (w->for_command)
        resp_status(&c->out, "OK");
    wait_end(w);
}
