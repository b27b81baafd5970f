/* Decisions and refunds: what the engine sends over a link. */
#include <stdio.h>

#include "redis/link.h"

/* ---- decisions ---- */

void store_refuse(struct store *store, struct store_call *call)
{
    store_count(&store->counts.unsent, 1);
    call->result = STORE_UNSENT;
    call->why[0] = '\0';
    call->done(call);
}

/* Calls that travel together, in one call of the script: the first, and those behind it. */

static void bunch_late(void *data)
{
    struct store_call *first = data;
    struct store *store = link_store(first->link);
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        store_count(&store->counts.late, 1);
        call->late(call);
    }
}

static void note_failed(struct store_link *link, const struct store_call *call)
{
    struct store *store = link_store(link);
    store_count(&store->counts.failed, 1);
    breaker_odd(&store->breaker, weir_str(call->why));
}

static void fail_bunch(struct store_call *first, sv why)
{
    for (struct store_call *call = first; call; call = call->next) {
        call->result = STORE_FAILED;
        snprintf(call->why, sizeof call->why, "%.*s", SV_FMT(why));
    }
}

static void read_answer(struct store_link *link, struct store_call *first, const struct reply *reply)
{
    if (reply->kind != REPLY_BULK || !script_read_decide(first, reply->text))
        fail_bunch(first, SV("the answer is not one of weir's script"));
    for (const struct store_call *call = first; call; call = call->next)
        if (call->result == STORE_FAILED)
            note_failed(link, call);
}

static void bunch_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct store_call *first = data;
    if (how == STORE_DECIDED)
        read_answer(link, first, reply);
    else if (how == STORE_FAILED)
        fail_bunch(first, reply->text);
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        link_count_calls(link, -1);
        if (how == STORE_UNSENT) {
            store_refuse(link_store(link), call);
            continue;
        }
        if (how == STORE_LOST) {
            store_count(&link_store(link)->counts.lost, 1);
            call->result = how;
        }
        call->done(call);
    }
}

static const struct link_kind bunch_kind = { .script = true, .late = bunch_late, .done = bunch_done };

/* Of a bunch that cannot be sent others are told later: who asks now is in the middle of something. */
static void refuse_later(struct store_link *link, struct store_call *first)
{
    struct store_call **end = link_refused(link);
    while (*end)
        end = &(*end)->next;
    *end = first;
}

static void tell_refused(struct store_link *link)
{
    for (struct store_call *first; (first = *link_refused(link));) {
        *link_refused(link) = NULL;
        bunch_done(link, first, STORE_UNSENT, NULL);
    }
}

/* Writes what was gathered. */
static void close_bunch(struct store_link *link)
{
    struct bunch bunch = *link_bunch(link);
    *link_bunch(link) = (struct bunch){ 0 };
    if (!bunch.first)
        return;
    if (link_usable(link)) {
        script_write_decide(link_begin(link), link_store(link)->prefix, bunch.first);
        if (link_end(link, &bunch_kind, bunch.first, bunch.deadline_us)) {
            link_weigh(link, (unsigned)bunch.count);
            store_count(&link_store(link)->counts.calls, 1);
            return;
        }
    }
    refuse_later(link, bunch.first);
}

/* In one call of the script the store reads its clock once, and does once what every call costs. More would let others
 * wait. */
enum { BUNCH_MOST = 32, BUNCH_CELLS = 128 };
#define BUNCH_APART_US US_PER_MS /* deadlines: those of one bunch are told late together */

static bool fits_bunch(const struct bunch *bunch, const struct store_call *call, size_t cells)
{
    return bunch->count < BUNCH_MOST && bunch->cells + cells <= BUNCH_CELLS && call->now_us == bunch->first->now_us &&
           call->deadline_us - bunch->deadline_us < BUNCH_APART_US && bunch->deadline_us <= call->deadline_us;
}

void store_send(struct store_link *link, struct store_call *call)
{
    struct bunch *bunch = link_bunch(link);
    size_t cells = 0;
    call->link = link;
    call->next = NULL;
    if (call->refund) {
        store_refund(link, call);
        call->done(call);
        return;
    }
    if (!link_usable(link) || link_calls(link) >= STORE_FLIGHT_MAX) {
        store_refuse(link_store(link), call);
        return;
    }
    for (size_t i = 0; i < call->rule_count; i++)
        cells += call->rules[i].cell_count;
    if (bunch->first && !fits_bunch(bunch, call, cells))
        close_bunch(link);
    link_count_calls(link, 1);
    if (!bunch->first) {
        *bunch = (struct bunch){ .first = call, .end = &bunch->first, .deadline_us = call->deadline_us };
        link_wake_by(link, call->deadline_us); /* if nobody flushes, it is sent too late, but told */
    }
    *bunch->end = call;
    bunch->end = &call->next;
    bunch->count++;
    bunch->cells += cells;
}

void store_link_flush(struct store_link *link)
{
    if (!link_gathers(link))
        close_bunch(link);
    link_flush(link);
    tell_refused(link);
}

/* ---- refunds ---- */

static void refund_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)data, (void)reply;
    if (how == STORE_LOST)
        store_count(&link_store(link)->counts.lost, 1);
}

static const struct link_kind refund = { .script = true, .done = refund_done };

/* Also while the breaker is open: an answer has just come. */
void store_refund(struct store_link *link, const struct store_call *call)
{
    struct store *store = link_store(link);
    if (!link_connected(link))
        return;
    script_write_refund(link_begin(link), store->prefix, call);
    if (link_end(link, &refund, NULL, clock_steady_us() + store->options.deadline_ms * US_PER_MS))
        store_count(&store->counts.calls, 1);
}
