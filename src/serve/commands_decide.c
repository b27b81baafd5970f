/* WEIR.CHECK, WEIR.PEEK, WEIR.RESERVE, WEIR.SETTLE, WEIR.RENEW, WEIR.REFUND: requests as Redis clients send them. */
#include "base/err.h"
#include "rules/attributes.h"
#include "serve/commands.h"
#include "serve/server.h"
#include "serve/stats.h"

/* ---- attributes of a request ---- */

#define ATTRIBUTES REQUEST_ATTRIBUTE_NAMES "cost, cost:UNIT, header:NAME, descriptor:KEY, reply and answer"

enum {
    REPLY_BIT = 1 << REQUEST_ATTRIBUTE_COUNT,
    ANSWER_BIT = REPLY_BIT << 1,
    TTL_BIT = ANSWER_BIT << 1,
    EXPIRY_BIT = TTL_BIT << 1,
};

/* The request of a command. */
struct asked {
    struct weir_request *request;
    bool reserves;
    bool is_long, wants_receipt;
    enum reply_answer answer;
    unsigned seen; /* bits of the attributes that were there */
    struct cost_list costs;
};

/* Replies after the requests that were gathered before. */
static bool fail(struct commands *c, const char *before, sv word, const char *behind)
{
    if (commands_flush(c))
        resp_error(&c->out, "ERR %s '%.*s'%s", before, SV_SHOWN(word, 100), behind);
    return false;
}

/* `cost` and `cost:UNIT` */
static bool set_cost(struct commands *c, struct asked *asked, sv name, sv value)
{
    uint64_t cost;
    if (!sv_u64(value, WEIR_AMOUNT_MAX, &cost))
        return fail(c, "cost", value, " is not a whole number from 0 to 9007199254740991");
    sv unit = name.len > strlen("cost") ? sv_from(name, strlen("cost:")) : SV(UNIT_REQUESTS);
    const char *wrong = request_add_cost(asked->request, &asked->costs, unit, cost);
    return !wrong || fail(c, "attribute", name, wrong);
}

static bool add_header(struct commands *c, struct weir_request *request, sv name, sv value)
{
    if (name.len == 0)
        return fail(c, "a header without a name,", SV("header:"), ": write header:NAME");
    if (request->header_count == REQUEST_HEADERS_MAX)
        return fail(c, "too many headers at", name, ": at most 100 for a request");
    c->batch.headers[c->batch.header_count + request->header_count++] = (struct weir_header){ name, value };
    return true;
}

static bool add_entry(struct commands *c, struct weir_request *request, sv key, sv value)
{
    if (key.len == 0)
        return fail(c, "an entry without a key,", SV("descriptor:"), ": write descriptor:KEY");
    if (request->descriptor_count == WEIR_DESCRIPTOR_MAX)
        return fail(c, "too many entries at", key, ": at most 256 for a descriptor");
    c->batch.entries[c->batch.entry_count + request->descriptor_count++] = (struct weir_header){ key, value };
    return true;
}

static bool set_reply(struct commands *c, struct asked *asked, sv value)
{
    asked->wants_receipt = sv_eq(value, SV("receipt"));
    asked->is_long = asked->wants_receipt || sv_eq(value, SV("long"));
    return asked->is_long || fail(c, "reply", value, " is unknown; allowed: long, receipt");
}

static bool read_ttl(struct commands *c, sv value, uint32_t *ret)
{
    uint64_t ttl_ms;
    if (!sv_u64(value, WEIR_TTL_MAX_MS, &ttl_ms) || ttl_ms == 0)
        return fail(c, "ttl", value, " is not a whole number of milliseconds from 1 to 86400000");
    *ret = (uint32_t)ttl_ms;
    return true;
}

static bool set_expiry(struct commands *c, struct asked *asked, sv value)
{
    asked->request->keep = sv_eq(value, SV("keep"));
    return asked->request->keep || sv_eq(value, SV("release")) ||
           fail(c, "on_expiry", value, " is unknown; allowed: release, keep");
}

/* The answer follows a long reply. All replies of an EXEC are kept until the last, so they have to be short. */
static bool set_answer(struct commands *c, struct asked *asked, sv value)
{
    if (c->session->queue.state != QUEUE_CLOSED)
        return fail(c, "answer", value, " is not allowed between MULTI and EXEC");
    asked->answer = sv_eq(value, SV("always"))    ? ANSWER_ALWAYS
                    : sv_eq(value, SV("refused")) ? ANSWER_REFUSED
                                                  : ANSWER_NEVER;
    return asked->answer || fail(c, "answer", value, " is unknown; allowed: always, refused");
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
    else if (sv_starts(name, SV("descriptor:")))
        return add_entry(c, request, sv_from(name, strlen("descriptor:")), value);
    else if (sv_eq(name, SV("cost")) || sv_starts(name, SV("cost:")))
        return set_cost(c, asked, name, value);
    else if (sv_eq(name, SV("reply")))
        bit = REPLY_BIT;
    else if (asked->reserves && sv_eq(name, SV("ttl")))
        bit = TTL_BIT;
    else if (asked->reserves && sv_eq(name, SV("on_expiry")))
        bit = EXPIRY_BIT;
    else if (sv_eq(name, SV("answer")))
        bit = ANSWER_BIT;
    else
        return fail(c, "unknown attribute", name,
                    sv_eq(name, SV("refundable")) ? "; for a receipt: reply receipt"
                    : asked->reserves             ? "; allowed: ttl, on_expiry, " ATTRIBUTES
                                                  : "; allowed: " ATTRIBUTES);
    if (asked->seen & bit)
        return fail(c, "attribute", name, " is given twice");
    asked->seen |= bit;
    if (bit == REPLY_BIT)
        return set_reply(c, asked, value);
    if (bit == TTL_BIT)
        return read_ttl(c, value, &request->ttl_ms);
    if (bit == EXPIRY_BIT)
        return set_expiry(c, asked, value);
    if (bit == ANSWER_BIT)
        return set_answer(c, asked, value);
    if (!attribute_accepts(attribute, value))
        return fail(c, attribute_table[attribute].name.ptr, value,
                    " is not one IPv4 or IPv6 address; put a whole X-Forwarded-For into header:X-Forwarded-For, and into "
                    "peer the address that sent it");
    request_set(request, attribute, value);
    return true;
}

/* The attributes of a request, with headers and entries in the batch. */
static bool read_request(struct commands *c, struct asked *asked, const sv *args, size_t count)
{
    if (count % 2 != 0)
        return fail(c, "attribute", args[count - 1], " has no value: they come in pairs, attr value [attr value ...]");
    *asked->request = (struct weir_request){ .headers = &c->batch.headers[c->batch.header_count],
                                             .descriptor = &c->batch.entries[c->batch.entry_count],
                                             .cost = 1 };
    asked->costs = (struct cost_list){ .room = &c->batch.costs[c->batch.cost_count] };
    for (size_t i = 0; i < count; i += 2)
        if (!set_attribute(c, asked, args[i], args[i + 1]))
            return false;
    return true;
}

/* Adds a request to those that wait. */
static void gather(struct commands *c, const sv *args, size_t count, bool peek, bool reserves)
{
    struct batch *b = &c->batch;
    bool full = b->count == BATCH_MOST || b->header_count > BATCH_HEADERS - REQUEST_HEADERS_MAX ||
                b->entry_count > BATCH_ENTRIES - WEIR_DESCRIPTOR_MAX || b->cost_count > BATCH_COSTS - WEIR_COSTS_MAX;
    if (full && !commands_flush(c))
        return;
    struct asked asked = { .request = &b->requests[b->count], .reserves = reserves, .is_long = reserves };
    if (!read_request(c, &asked, args + 1, count - 1))
        return;
    if (reserves && asked.request->ttl_ms == 0) {
        fail(c, "WEIR.RESERVE needs", SV("ttl"), ", how long the hold lasts, in milliseconds");
        return;
    }
    asked.request->peek = peek;
    asked.request->shadows = &b->shadows[b->count];
    asked.request->receipt = &b->receipts[b->count];
    asked.request->if_held = !asked.wants_receipt && !reserves;
    asked.request->usage = asked.answer ? &b->usages[b->count] : NULL;
    b->answers[b->count] = asked.answer;
    b->header_count += asked.request->header_count;
    b->entry_count += asked.request->descriptor_count;
    b->cost_count += asked.request->cost_count;
    b->is_long[b->count++] = asked.is_long || asked.answer;
}

void weir_check_command(struct commands *c, const sv *args, size_t count)
{
    gather(c, args, count, false, false);
}

void weir_peek_command(struct commands *c, const sv *args, size_t count)
{
    gather(c, args, count, true, false);
}

void weir_reserve_command(struct commands *c, const sv *args, size_t count)
{
    gather(c, args, count, false, true);
}

/* ---- WEIR.SETTLE hold [cost N] [cost:UNIT N ...], WEIR.RENEW hold ttl MS, WEIR.REFUND receipt ---- */

static bool read_receipt(struct commands *c, sv text, struct weir_receipt *ret)
{
    return weir_receipt_read(text, ret) == 0 ||
           fail(c, "not a valid hold or receipt (WEIR.RESERVE returns one, and WEIR.CHECK for `reply receipt`):", text, "");
}

static void answer_limits(struct commands *c, int limits)
{
    if (limits < 0)
        resp_error(&c->out, "ERR %s", err_text((enum weir_code)limits));
    else
        resp_integer(&c->out, limits);
}

/* The costs alone are read into the request. A unit that is not named keeps what was held. */
static bool read_costs(struct commands *c, struct asked *asked, const sv *args, size_t count)
{
    if (count % 2 != 0)
        return fail(c, "attribute", args[count - 1], " has no value: they come in pairs, cost N [cost:UNIT N ...]");
    *asked->request = (struct weir_request){ .cost = WEIR_AS_HELD };
    asked->costs = (struct cost_list){ .room = c->batch.costs };
    for (size_t i = 0; i < count; i += 2)
        if (!sv_eq(args[i], SV("cost")) && !sv_starts(args[i], SV("cost:")))
            return fail(c, "unknown attribute", args[i], "; allowed: cost, cost:UNIT");
        else if (!set_cost(c, asked, args[i], args[i + 1]))
            return false;
    if (!asked->costs.requests)
        asked->request->cost = WEIR_AS_HELD;
    return true;
}

void weir_settle_command(struct commands *c, const sv *args, size_t count)
{
    struct weir_receipt receipt;
    struct weir_request request;
    struct asked asked = { .request = &request };
    if (read_receipt(c, args[1], &receipt) && read_costs(c, &asked, args + 2, count - 2))
        answer_limits(c, weir_settle(c->loop->server->weir, &receipt, request.cost, request.costs, request.cost_count,
                                     loop_now_us(c->loop)));
}

void weir_renew_command(struct commands *c, const sv *args, size_t count)
{
    struct weir_receipt receipt;
    uint32_t ttl_ms;
    (void)count;
    if (!read_receipt(c, args[1], &receipt))
        return;
    if (!sv_eq(args[2], SV("ttl")))
        fail(c, "unknown attribute", args[2], "; allowed: ttl");
    else if (read_ttl(c, args[3], &ttl_ms))
        answer_limits(c, weir_renew(c->loop->server->weir, &receipt, ttl_ms, loop_now_us(c->loop)));
}

/* The attributes of the request are accepted, and not needed. */
void weir_refund_command(struct commands *c, const sv *args, size_t count)
{
    struct weir_receipt receipt;
    struct weir_request request;
    if (!read_receipt(c, args[1], &receipt) ||
        !read_request(c, &(struct asked){ .request = &request }, args + 2, count - 2))
        return;
    int given = weir_refund(c->loop->server->weir, &receipt, loop_now_us(c->loop));
    if (given > 0)
        stats_refunded(c->loop->stats);
    answer_limits(c, given);
}
