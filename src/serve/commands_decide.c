/* WEIR.CHECK, WEIR.PEEK, WEIR.REFUND, CL.THROTTLE, and DEL for its keys. */
#include <stdlib.h>

#include "base/err.h"
#include "base/utf8.h"
#include "engine/throttle.h"
#include "rules/attributes.h"
#include "serve/commands.h"
#include "serve/log.h"
#include "serve/server.h"
#include "serve/stats.h"

/* ---- what is decided together ---- */

enum {
    BATCH_MOST = 64,
    REQUEST_HEADERS_MAX = 100,
    BATCH_HEADERS = 4 * REQUEST_HEADERS_MAX,
};

struct batch {
    size_t count, header_count;
    struct weir_request requests[BATCH_MOST];
    bool is_long[BATCH_MOST]; /* is wanted, of the replies */
    struct weir_header headers[BATCH_HEADERS];
    struct weir_verdict verdicts[BATCH_MOST];
    /* Of a request that waits they are used as soon as they are written, so that later requests may share them. */
    struct weir_shadows shadows[BATCH_MOST];
    struct weir_receipt receipts[BATCH_MOST];
};

int batch_new(struct batch **ret)
{
    struct batch *batch = malloc(sizeof *batch);
    if (!batch)
        return UV_ENOMEM;
    batch->count = batch->header_count = 0;
    *ret = batch;
    return 0;
}

void batch_free(struct batch *batch)
{
    free(batch);
}

enum {
    VERDICT_MAX = 8 * RESP_NUMBER_MAX + WEIR_ID_MAX + 2 + WEIR_NAME_MAX + 2,
    LONG_MAX_BYTES = 4 * RESP_NUMBER_MAX + WEIR_RECEIPT_TEXT_MAX + 2,
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

/* [… window_ms, status, unavailable, receipt] */
static char *put_rest(char *to, const struct weir_verdict *v, const struct weir_receipt *receipt, sv null)
{
    char text[WEIR_RECEIPT_TEXT_MAX];
    to = v->applied ? resp_put_number(to, ':', v->window_ms) : put_literal(to, null);
    to = resp_put_number(to, ':', v->status);
    to = resp_put_number(to, ':', v->unavailable);
    if (!receipt || receipt->count == 0)
        return put_literal(to, null);
    weir_receipt_text(receipt, text, sizeof text);
    return put_text(to, text);
}

/* [allowed, rule, limit, max, remaining, reset_ms, retry_after_ms]: null where the JSON of a verdict has it. */
void put_reply(struct resp_out *out, const struct weir_verdict *v, const struct weir_receipt *receipt, bool is_long)
{
    sv null = out->protocol == 3 ? SV("_\r\n") : SV("$-1\r\n");
    char *start = resp_room(out, VERDICT_MAX + (is_long ? LONG_MAX_BYTES : 0)), *to = start;
    if (!start)
        return;
    to = put_literal(to, is_long ? SV("*11\r\n") : SV("*7\r\n"));
    to = put_literal(to, v->allowed ? SV(":1\r\n") : SV(":0\r\n"));
    if (v->applied) {
        to = put_text(to, v->rule);
        to = put_text(to, v->limit);
        to = resp_put_number(to, ':', v->max);
        to = resp_put_number(to, ':', v->remaining);
        to = resp_put_number(to, ':', v->reset_ms);
    } else {
        for (int i = 0; i < 5; i++)
            to = put_literal(to, null);
    }
    to = resp_put_number(to, ':', v->retry_after_ms);
    if (is_long)
        to = put_rest(to, v, receipt, null);
    out->len += (size_t)(to - start);
}

bool commands_flush(struct commands *c)
{
    struct batch *b = c->batch;
    struct weir *weir = c->loop->server->weir;
    size_t count = b->count;
    if (count == 0)
        return true;
    int64_t now_us = loop_now_us(c->loop);
    b->count = b->header_count = 0;
    /* What cannot be judged is refused, and its verdict names no rule. */
    if (!c->loop->store)
        weir_check_batch(weir, b->requests, count, now_us, b->verdicts);
    else if (!wait_check(c, b->requests, b->is_long, b->verdicts, count))
        return false;
    stats_decided(c->loop->stats, weir, b->requests, b->verdicts, count, now_us, uv_hrtime() - c->read_ns);
    for (size_t i = 0; i < count; i++) {
        if (!b->verdicts[i].allowed && !b->requests[i].peek)
            log_refusal(weir, &b->requests[i], &b->verdicts[i], now_us);
        put_reply(&c->out, &b->verdicts[i], b->requests[i].receipt, b->is_long[i]);
    }
    return true;
}

/* ---- attributes of a request ---- */

#define ATTRIBUTES REQUEST_ATTRIBUTE_NAMES "cost, header:NAME and reply"

enum { COST_BIT = 1 << REQUEST_ATTRIBUTE_COUNT, REPLY_BIT = COST_BIT << 1 };

/* What a command asks. */
struct asked {
    struct weir_request *request;
    bool is_long, wants_receipt;
    unsigned seen; /* bits of the attributes that were there */
};

/* Answered behind those that wait. */
static bool fail(struct commands *c, const char *before, sv word, const char *behind)
{
    if (commands_flush(c))
        resp_error(&c->out, "ERR %s '%.*s'%s", before, word.len < 100 ? (int)word.len : 100, word.ptr, behind);
    return false;
}

static bool set_cost(struct commands *c, struct weir_request *request, sv value)
{
    uint64_t cost;
    if (!sv_u64(value, UINT32_MAX, &cost))
        return fail(c, "cost", value, " is no whole number from 0 to 4294967295");
    request->cost = (uint32_t)cost;
    return true;
}

static bool add_header(struct commands *c, struct weir_request *request, sv name, sv value)
{
    if (name.len == 0)
        return fail(c, "a header without a name,", SV("header:"), ": write header:NAME");
    if (request->header_count == REQUEST_HEADERS_MAX)
        return fail(c, "too many headers at", name, ": at most 100 for a request");
    c->batch->headers[c->batch->header_count + request->header_count++] = (struct weir_header){ name, value };
    return true;
}

static bool set_reply(struct commands *c, struct asked *asked, sv value)
{
    asked->wants_receipt = sv_eq(value, SV("receipt"));
    asked->is_long = asked->wants_receipt || sv_eq(value, SV("long"));
    return asked->is_long || fail(c, "reply", value, " is unknown; there are long and receipt");
}

static bool set_attribute(struct commands *c, struct asked *asked, sv name, sv value)
{
    struct weir_request *request = asked->request;
    unsigned bit;
    enum attribute attribute = attribute_find(name);
    if (attribute < REQUEST_ATTRIBUTE_COUNT)
        bit = 1u << attribute;
    else if (sv_starts(name, SV("header:")))
        return add_header(c, request, sv_from(name, 7), value);
    else if (sv_eq(name, SV("cost")))
        bit = COST_BIT;
    else if (sv_eq(name, SV("reply")))
        bit = REPLY_BIT;
    else
        return fail(c, "unknown attribute", name,
                    sv_eq(name, SV("refundable")) ? "; for a receipt: reply receipt" : "; there are " ATTRIBUTES);
    if (asked->seen & bit)
        return fail(c, "attribute", name, " is there twice");
    asked->seen |= bit;
    if (bit == COST_BIT)
        return set_cost(c, request, value);
    if (bit == REPLY_BIT)
        return set_reply(c, asked, value);
    if (!attribute_accepts(attribute, value))
        return fail(c, attribute_table[attribute].name.ptr, value,
                    " is not one IPv4 or IPv6 address; a whole X-Forwarded-For belongs into header:X-Forwarded-For, with "
                    "peer, the address that sent it");
    request_set(request, attribute, value);
    return true;
}

/* The attributes of a request, with headers in the batch. */
static bool read_request(struct commands *c, struct asked *asked, const sv *args, size_t count)
{
    if (count % 2 != 0)
        return fail(c, "attribute", args[count - 1], " has no value: they come in pairs, attr value [attr value ...]");
    *asked->request = (struct weir_request){ .headers = &c->batch->headers[c->batch->header_count], .cost = 1 };
    for (size_t i = 0; i < count; i += 2)
        if (!set_attribute(c, asked, args[i], args[i + 1]))
            return false;
    return true;
}

/* Adds a request to those that wait. */
static void gather(struct commands *c, const sv *args, size_t count, bool peek)
{
    struct batch *b = c->batch;
    if ((b->count == BATCH_MOST || b->header_count > BATCH_HEADERS - REQUEST_HEADERS_MAX) && !commands_flush(c))
        return;
    struct asked asked = { .request = &b->requests[b->count] };
    if (!read_request(c, &asked, args + 1, count - 1))
        return;
    asked.request->peek = peek;
    asked.request->shadows = &b->shadows[b->count];
    asked.request->receipt = asked.wants_receipt ? &b->receipts[b->count] : NULL;
    b->header_count += asked.request->header_count;
    b->is_long[b->count++] = asked.is_long;
}

void weir_check_command(struct commands *c, const sv *args, size_t count)
{
    gather(c, args, count, false);
}

void weir_peek_command(struct commands *c, const sv *args, size_t count)
{
    gather(c, args, count, true);
}

/* ---- WEIR.REFUND receipt attr value [attr value ...] ---- */

void weir_refund_command(struct commands *c, const sv *args, size_t count)
{
    struct weir_receipt receipt;
    struct weir_request request;
    if (weir_receipt_read(args[1], &receipt) < 0) {
        fail(c, "this is no receipt, as WEIR.CHECK gives them with `reply receipt`:", args[1], "");
        return;
    }
    if (!read_request(c, &(struct asked){ .request = &request }, args + 2, count - 2))
        return;
    int given = weir_refund(c->loop->server->weir, &request, &receipt, loop_now_us(c->loop));
    if (given > 0)
        stats_refunded(c->loop->stats);
    if (given < 0)
        resp_error(&c->out, "ERR %s", err_text((enum weir_code)given));
    else
        resp_integer(&c->out, given);
}

/* ---- CL.THROTTLE key max_burst count period [quantity] ---- */

#define CELL_ERROR "Cell error: Store error: "

/* As Rust reads one: digits, a sign before them. */
static bool read_int64(sv s, int64_t *ret)
{
    bool negative = s.len > 0 && s.ptr[0] == '-';
    int64_t n = 0;
    if (negative || (s.len > 0 && s.ptr[0] == '+'))
        s = sv_from(s, 1);
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        int digit = s.ptr[i] - '0';
        if (!ascii_digit(s.ptr[i]) || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, negative ? -digit : digit, &n))
            return false;
    }
    *ret = n;
    return true;
}

/* Of these redis-cell brings its server down. */
static bool is_text(const sv *args, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!utf8_valid(args[i]))
            return false;
    return true;
}

static void throttle_answer(struct resp_out *out, const struct gcra_answer *a)
{
    resp_array(out, 5);
    resp_integer(out, a->limited);
    resp_integer(out, a->limit);
    resp_integer(out, a->remaining);
    resp_integer(out, a->retry_after_s);
    resp_integer(out, a->reset_after_s);
}

static void throttle(struct commands *c, sv key, const int64_t n[4])
{
    static const char *const errors[] = {
        [GCRA_ZERO_RATE] = "Zero rates are not supported",
        [GCRA_TOO_LARGE] = "The numbers are too large: together they come to more than 292 years",
        [GCRA_EXPIRED] = "Error while setting key expire",
    };
    struct weir *weir = c->loop->server->weir;
    int64_t now_us = loop_now_us(c->loop);
    struct gcra gcra;
    struct gcra_answer answer;
    enum gcra_code code = gcra_init(&gcra, n[0], n[1], n[2], n[3]);
    if (code == GCRA_OK)
        code = weir_throttle(weir, c->session->database, key, &gcra, now_us, &answer);
    if (code == GCRA_OK) {
        enum outcome outcome = n[3] == 0 ? OUTCOME_PEEKED : answer.limited ? OUTCOME_REFUSED : OUTCOME_ALLOWED;
        stats_throttled(c->loop->stats, weir, outcome, c->session->database, key, now_us);
        throttle_answer(&c->out, &answer);
    } else {
        resp_error(&c->out, CELL_ERROR "%s", errors[code]);
    }
}

void throttle_command(struct commands *c, const sv *args, size_t count)
{
    int64_t n[4] = { [3] = 1 };
    if (!is_text(args, count)) {
        resp_error(&c->out, CELL_ERROR "An argument is not UTF-8");
        return;
    }
    if (count != 5 && count != 6) {
        resp_error(&c->out, CELL_ERROR "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]");
        return;
    }
    for (size_t i = 2; i < count; i++)
        if (!read_int64(args[i], &n[i - 2])) {
            resp_error(&c->out, CELL_ERROR "Couldn't parse as integer: %.*s", SV_FMT(args[i]));
            return;
        }
    throttle(c, args[1], n);
}

/* ---- DEL key [key ...] ---- */

void del_command(struct commands *c, const sv *args, size_t count)
{
    int64_t forgotten = 0;
    for (size_t i = 1; i < count; i++)
        forgotten += weir_throttle_forget(c->loop->server->weir, c->session->database, args[i]);
    resp_integer(&c->out, forgotten);
}
