/* Decisions that wait for the store.
 *
 * The session of a batch that has to wait carries out nothing more until all of its verdicts are there. Where a request
 * came from is used by others meanwhile, so that a copy of it is kept, for the log and the list of those who are refused;
 * of a verdict just what the reply says, since whole ones are large. A connection that ends meanwhile leaves its wait
 * behind, which then ends by itself. */
#include <stdlib.h>

#include "serve/commands.h"
#include "serve/log.h"
#include "serve/server.h"
#include "serve/stats.h"

struct wait_item {
    struct wait *wait;
    bool waits;
    struct weir_request request; /* its strings are those of the wait; of a decision made at once nothing */
    bool is_long;
    struct reply reply;
    struct weir_receipt *receipt; /* or NULL; most have none */
    char rule[WEIR_ID_MAX + 1], limit[WEIR_NAME_MAX + 1];
};

struct wait {
    struct commands *commands;
    struct session *session; /* NULL: it is gone */
    size_t count, cap;       /* items */
    size_t left;             /* of them, without a verdict */
    uint64_t read_ns;
    bool own, failed; /* see wait_begin; it was in vain */
    char *text;       /* of the requests; of wait_begin: what was wrong */
    size_t text_bytes;
    struct wait_item items[];
};

/* ---- life ---- */

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

/* NULL: there is no room. */
static struct wait *wait_new(struct commands *c, size_t count)
{
    struct wait *w = c->spare;
    if (w && w->cap >= count) {
        c->spare = NULL;
    } else {
        if (!byte_budget_take(&c->budget, bytes_of(count)))
            return NULL;
        w = malloc(bytes_of(count));
        if (!w) {
            c->budget.used -= bytes_of(count);
            return NULL;
        }
        w->cap = count;
    }
    w->commands = c;
    w->session = c->session;
    w->count = count;
    w->left = w->text_bytes = 0;
    w->own = w->failed = false;
    w->read_ns = c->read_ns;
    w->text = NULL;
    return w;
}

static void wait_end(struct wait *w)
{
    struct commands *c = w->commands;
    for (size_t i = 0; i < w->count; i++)
        free(w->items[i].receipt);
    free(w->text);
    c->budget.used -= w->text_bytes;
    if (!c->spare || c->spare->cap < w->cap) {
        wait_free(c->spare);
        c->spare = w;
    } else {
        wait_free(w);
    }
}

void wait_leave(struct session *session)
{
    if (session->wait)
        session->wait->session = NULL;
    session->wait = NULL;
}

/* ---- requests ---- */

static const size_t texts[] = {
    offsetof(struct weir_request, method), offsetof(struct weir_request, path), offsetof(struct weir_request, host),
    offsetof(struct weir_request, ip),     offsetof(struct weir_request, peer), offsetof(struct weir_request, user),
    offsetof(struct weir_request, event),  offsetof(struct weir_request, key),
};
enum { TEXTS = sizeof texts / sizeof *texts };

static sv *text_of(struct weir_request *r, size_t i)
{
    return (sv *)((char *)r + texts[i]);
}

static size_t request_bytes(struct weir_request *r)
{
    size_t bytes = r->header_count * sizeof *r->headers;
    for (size_t i = 0; i < TEXTS; i++)
        bytes += text_of(r, i)->len;
    for (size_t i = 0; i < r->header_count; i++)
        bytes += r->headers[i].name.len + r->headers[i].value.len;
    return bytes;
}

static void move_text(sv *text, char **at)
{
    if (text->len > 0)
        memcpy(*at, text->ptr, text->len);
    text->ptr = *at;
    *at += text->len;
}

static void move_headers(struct weir_request *r, struct weir_header *to, char **at)
{
    for (size_t i = 0; i < r->header_count; i++) {
        to[i] = r->headers[i];
        move_text(&to[i].name, at);
        move_text(&to[i].value, at);
    }
    r->headers = to;
}

/* Nothing of it: then a refusal is counted, but nobody knows whose. */
static void forget(struct weir_request *r)
{
    *r = (struct weir_request){ .cost = r->cost, .peek = r->peek };
}

/* All headers first, since they have to be aligned. */
static void keep_requests(struct wait *w)
{
    size_t bytes = 0, headers = 0;
    for (size_t i = 0; i < w->count; i++)
        if (w->items[i].waits) {
            bytes += request_bytes(&w->items[i].request);
            headers += w->items[i].request.header_count;
        }
    if (byte_budget_take(&w->commands->budget, bytes)) {
        w->text_bytes = bytes;
        w->text = malloc(bytes + 1);
    }
    struct weir_header *header = (struct weir_header *)(void *)w->text;
    char *at = w->text ? w->text + headers * sizeof *header : NULL;
    for (size_t i = 0; i < w->count; i++) {
        struct weir_request *r = &w->items[i].request;
        if (!w->items[i].waits)
            continue;
        if (!w->text) {
            forget(r);
            continue;
        }
        for (size_t k = 0; k < TEXTS; k++)
            move_text(text_of(r, k), &at);
        move_headers(r, header, &at);
        header += r->header_count;
    }
}

/* ---- verdicts ---- */

static void take_verdict(struct wait_item *item, const struct weir_request *request, const struct weir_verdict *v)
{
    const struct wait *w = item->wait;
    struct loop *loop = w->commands->loop;
    struct weir *weir = loop->server->weir;
    int64_t now_us = loop_now_us(loop);
    stats_decided(loop->stats, weir, request, v, 1, now_us, uv_hrtime() - w->read_ns);
    if (!v->allowed && !request->peek)
        log_refusal(weir, request, v, now_us);
    item->reply = reply_of(v, item->is_long);
    item->reply.receipt = item->receipt = v->receipt.count ? malloc(sizeof *item->receipt) : NULL;
    if (item->receipt)
        *item->receipt = v->receipt;
    if (!v->applied)
        return;
    item->reply.rule = memcpy(item->rule, v->rule, sizeof item->rule);
    item->reply.limit = memcpy(item->limit, v->limit, sizeof item->limit);
}

static void tell(struct wait *w)
{
    if (w->session)
        w->commands->decided(w->session);
    else
        wait_end(w);
}

static void on_decided(const struct weir_verdict *v, void *data)
{
    struct wait_item *item = data;
    struct wait *w = item->wait;
    take_verdict(item, &item->request, v);
    if (--w->left == 0)
        tell(w);
}

bool wait_check(struct commands *c, const struct weir_request *requests, const bool *is_long, struct weir_verdict *verdicts,
                size_t count)
{
    struct wait *w = wait_new(c, count);
    if (!w) {
        c->out.failed = true;
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct wait_item *item = &w->items[i];
        item->wait = w;
        item->is_long = is_long[i];
        item->receipt = NULL;
        item->waits = loop_check(c->loop, &requests[i], &verdicts[i], on_decided, item) == 0;
        w->left += item->waits;
    }
    if (w->left == 0) {
        wait_end(w);
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (w->items[i].waits)
            w->items[i].request = requests[i];
        else
            take_verdict(&w->items[i], &requests[i], &verdicts[i]);
    }
    keep_requests(w);
    c->session->wait = w;
    return false;
}

/* ---- something else than decisions ---- */

struct wait *wait_begin(struct commands *c)
{
    struct wait *w = wait_new(c, 0);
    if (w)
        w->own = true;
    c->session->wait = w;
    return w;
}

void wait_over(struct wait *w, const char *error)
{
    w->failed = error;
    w->text = error ? strdup(error) : NULL;
    tell(w);
}

bool wait_is_own(const struct session *session)
{
    return session->wait && session->wait->own;
}

/* ---- replies ---- */

void commands_answer(struct commands *c, struct session *session)
{
    struct wait *w = session->wait;
    session->wait = NULL;
    c->out.protocol = session->protocol;
    for (size_t i = 0; i < w->count; i++)
        put_reply(&c->out, w->items[i].reply);
    if (w->failed)
        resp_error(&c->out, "ERR %s", w->text ? w->text : "out of memory");
    else if (w->own)
        resp_status(&c->out, "OK");
    wait_end(w);
}
