/* Decisions and refunds: what the engine sends over a link. */
#include <stdio.h>

#include "redis/link.h"

/* ---- decisions ---- */

void store_refuse(struct store *store, struct store_call *call)
{
    store_count(&store->counts.unsent, 1);
    if (!breaker_is_open(&store->breaker))
        breaker_note_away(&store->breaker);
    call->result = STORE_UNSENT;
    call->why[0] = '\0';
    call->done(call);
}

static void decision_late(void *data)
{
    struct store_call *call = data;
    store_count(&link_store(call->link)->counts.late, 1);
    call->late(call);
}

static void read_answer(struct store_link *link, struct store_call *call, const struct reply *reply)
{
    if (reply->kind == REPLY_BULK && script_read_decide(call, reply->text))
        return;
    store_count(&link_store(link)->counts.failed, 1);
    call->result = STORE_FAILED;
    snprintf(call->why, sizeof call->why, "the answer is not one of weir's script");
    breaker_note_away(&link_store(link)->breaker);
    breaker_odd(&link_store(link)->breaker, weir_str(call->why));
}

static void decision_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct store_call *call = data;
    if (how == STORE_UNSENT)
        return store_refuse(link_store(link), call);
    call->result = how;
    call->why[0] = '\0';
    if (how == STORE_DECIDED)
        read_answer(link, call, reply);
    else if (how == STORE_FAILED)
        snprintf(call->why, sizeof call->why, "%.*s", SV_FMT(reply->text));
    else
        store_count(&link_store(link)->counts.lost, 1);
    call->done(call);
}

static const struct link_kind decision = { .script = true, .late = decision_late, .done = decision_done };

/* Bytes that are sent without waiting for the end of the turn: the store then works on the first calls of a turn while the
 * others are still being written. */
enum { ENOUGH = 2048 };

void store_send(struct store_link *link, struct store_call *call)
{
    struct store *store = link_store(link);
    call->link = link;
    if (link_usable(link)) {
        script_write_decide(link_begin(link), store->prefix, call);
        if (link_end(link, &decision, call, call->deadline_us)) {
            store_count(&store->counts.calls, 1);
            if (link_unsent(link) >= ENOUGH)
                store_link_flush(link);
            return;
        }
    }
    store_refuse(store, call);
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
