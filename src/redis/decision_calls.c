/* Decisions and settlements: what the engine sends over a link. */
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

/* A batch travels in one call of the script. `data` is its first call; the others follow it by `next`. */
static void batch_late(void *data)
{
    struct store_call *first = data;
    struct store *store = first->link->store;
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        store_count(&store->counts.late, 1);
        call->late(call);
    }
}

static void note_failed(struct store_link *link, const struct store_call *call)
{
    struct store *store = link->store;
    store_count(&store->counts.failed, 1);
    breaker_report_key(&store->breaker, weir_str(call->why));
}

static void fail_batch(struct store_call *first, sv why)
{
    for (struct store_call *call = first; call; call = call->next) {
        call->result = STORE_FAILED;
        snprintf(call->why, sizeof call->why, "%.*s", SV_FMT(why));
    }
}

static void read_answer(struct store_link *link, struct store_call *first, const struct reply *reply)
{
    if (reply->kind != REPLY_BULK || !script_read_decide(first, reply->text))
        fail_batch(first, SV("the answer is not one of weir's script"));
    for (const struct store_call *call = first; call; call = call->next)
        if (call->result == STORE_FAILED)
            note_failed(link, call);
}

static void batch_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    struct store_call *first = data;
    if (how == STORE_DECIDED)
        read_answer(link, first, reply);
    else if (how == STORE_FAILED)
        fail_batch(first, reply->text);
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        link->batch.waiting--;
        if (how == STORE_UNSENT) {
            store_refuse(link->store, call);
            continue;
        }
        if (how == STORE_LOST) {
            store_count(&link->store->counts.lost, 1);
            call->result = how;
        }
        call->done(call);
    }
}

static const struct link_kind batch_kind = { .script = true, .late = batch_late, .done = batch_done };

/* Callers of a batch that cannot be sent are told later: the one that asks now is in the middle of something. */
static void refuse_later(struct store_link *link, struct store_call *first)
{
    struct store_call **end = &link->batch.refused;
    while (*end)
        end = &(*end)->next;
    *end = first;
}

static void tell_refused(struct store_link *link)
{
    for (struct store_call *first; (first = link->batch.refused);) {
        link->batch.refused = NULL;
        batch_done(link, first, STORE_UNSENT, NULL);
    }
}

/* Writes what was gathered. */
static void close_batch(struct store_link *link)
{
    struct batch *batch = &link->batch;
    struct store_call *first = batch->first;
    unsigned count = (unsigned)batch->count;
    batch->first = NULL;
    batch->count = batch->cells = 0;
    if (!first)
        return;
    if (link_usable(link)) {
        script_write_decide(link_begin(link), link->store->prefix, first);
        if (link_end(link, &batch_kind, first, batch->deadline_us)) {
            link_set_decisions(link, count);
            store_count(&link->store->counts.calls, 1);
            return;
        }
    }
    refuse_later(link, first);
}

/* In one call of the script the store reads its clock once, and does once what every call costs. More would let others
 * wait. */
enum { BATCH_CALLS_MAX = 32, BATCH_CELLS_MAX = 128 };
#define BATCH_APART_US US_PER_MS /* deadlines: those of one batch are told late together */

static bool fits_batch(const struct batch *batch, const struct store_call *call, size_t cells)
{
    return batch->count < BATCH_CALLS_MAX && batch->cells + cells <= BATCH_CELLS_MAX &&
           call->now_us == batch->first->now_us && call->deadline_us - batch->deadline_us < BATCH_APART_US &&
           batch->deadline_us <= call->deadline_us;
}

void store_send(struct store_link *link, struct store_call *call)
{
    struct batch *batch = &link->batch;
    size_t cells = 0;
    call->link = link;
    call->next = NULL;
    if (call->settle) {
        store_settle(link, call);
        call->done(call);
        return;
    }
    if (!link_usable(link) || batch->waiting >= STORE_FLIGHT_MAX) {
        store_refuse(link->store, call);
        return;
    }
    for (size_t i = 0; i < call->rule_count; i++)
        cells += call->rules[i].cell_count;
    if (batch->first && !fits_batch(batch, call, cells))
        close_batch(link);
    batch->waiting++;
    if (!batch->first) {
        batch->end = &batch->first;
        batch->deadline_us = call->deadline_us;
        link_wake_by(link, call->deadline_us); /* without a flush it is sent late, and its caller is told */
    }
    *batch->end = call;
    batch->end = &call->next;
    batch->count++;
    batch->cells += cells;
}

static void flush(struct store_link *link, bool now)
{
    if (now || !link_gathers(link))
        close_batch(link);
    link_flush(link);
    tell_refused(link);
}

void store_link_flush(struct store_link *link)
{
    flush(link, false);
}

void store_link_run(struct store_link *link)
{
    bool due = link_run(link);
    flush(link, due);
}

void store_link_free(struct store_link *link)
{
    if (!link)
        return;
    flush(link, true);
    link_shut(link);
    flush(link, true); /* refuses what callbacks have asked for meanwhile */
    link_free(link);
}

/* ---- settlements ---- */

static void settle_done(struct store_link *link, void *data, enum store_result how, const struct reply *reply)
{
    (void)data, (void)reply;
    if (how == STORE_LOST)
        store_count(&link->store->counts.lost, 1);
}

static const struct link_kind settle_kind = { .script = true, .done = settle_done };

/* Also while the breaker is open: an answer has just come. */
void store_settle(struct store_link *link, const struct store_call *call)
{
    struct store *store = link->store;
    if (!link_connected(link))
        return;
    script_write_settle(link_begin(link), store->prefix, call);
    if (link_end(link, &settle_kind, NULL, clock_steady_us() + store->options.deadline_ms * US_PER_MS))
        store_count(&store->counts.calls, 1);
}
