/* Decisions and settlements: what the engine sends over a link. */
#include <stdio.h>

#include "redis/divided.h"
#include "redis/link.h"

enum { TRIES_MAX = 4 };

#define REST_US (4 * US_PER_MS)

/* ---- decisions ---- */

void store_refuse(struct store *store, struct store_call *call)
{
    store_count(&store->counts.unsent, 1);
    call->result = STORE_UNSENT;
    call->why[0] = '\0';
    store_call_answered(call);
    call->done(call);
}

/* A batch travels in one call of the script. `data` is its first call; the others follow it by `next`. */
static void batch_late(void *data)
{
    struct store_call *first = data;
    struct store *store = first->link->store;
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        call->told_late = true;
        store_count(&store->counts.late, 1);
        call->late(call);
    }
}

static void note_failed(struct lane *lane, const struct store_call *call)
{
    store_count(&lane->store->counts.failed, 1);
    breaker_report_key(&lane->node->breaker, weir_str(call->why));
}

static void fail_batch(struct store_call *first, sv why)
{
    for (struct store_call *call = first; call; call = call->next) {
        call->result = STORE_FAILED;
        snprintf(call->why, sizeof call->why, "%.*s", SV_FMT(why));
    }
}

static void read_answer(struct store_call *first, const struct reply *reply)
{
    if (reply->kind != REPLY_BULK || !script_read_decide(first, reply->text))
        fail_batch(first, SV("the answer is not one of weir's script"));
}

/* In a cluster: what a node says of keys that it does not have, or not all of. Nothing was charged. */
static const char *const elsewhere[] = { "TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "READONLY" };
enum { MOVED_CODES = 3, ELSEWHERE_CODES = sizeof elsewhere / sizeof *elsewhere };

static bool is_elsewhere(const struct lane *lane, const struct store_call *call, size_t codes)
{
    bool found = false;
    for (size_t i = 0; lane->redirect && call->result == STORE_FAILED && i < codes; i++)
        found = found || sv_starts(weir_str(call->why), weir_str(elsewhere[i]));
    return found;
}

/* Until its deadline; all that rest are asked for again at the same time. */
static void rest(struct store_link *link, struct store_call *call, int64_t now_us)
{
    if (!link->resting)
        link->rested_us = now_us + REST_US;
    call->next = link->resting;
    link->resting = call;
    link->waiting++;
    lane_wake_by(link->lanes[0], link->rested_us);
}

static void wake_resting(struct store_link *link)
{
    int64_t now_us = link->resting ? clock_steady_us() : 0;
    struct store_call *first = link->resting;
    if (!first)
        return;
    if (now_us < link->rested_us && !link->shut) {
        lane_wake_by(link->lanes[0], link->rested_us); /* the timer may have gone off for something else */
        return;
    }
    link->resting = NULL;
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        link->waiting--;
        if (now_us >= call->deadline_us || link->shut)
            store_refuse(link->store, call);
        else
            call->again(link, call);
    }
}

/* A decision that was sent together with others is asked for alone: then the node says where its keys are, and link.c
 * follows. If they are at two nodes, each key is asked for by itself. If that is only one, but its holds are elsewhere, the
 * slot has to move on first. Returns false if all that was tried. */
static bool try_again(struct lane *lane, struct store_call *call)
{
    int64_t now_us = clock_steady_us();
    if (!is_elsewhere(lane, call, ELSEWHERE_CODES) || call->told_late || now_us >= call->deadline_us || lane->link->shut)
        return false;
    if (call->alone && call->rule_count == 1 && is_elsewhere(lane, call, MOVED_CODES)) {
        rest(lane->link, call, now_us);
        return true;
    }
    if (call->tries == TRIES_MAX)
        return false;
    call->tries++;
    if (call->alone && call->rule_count > 1)
        map_set_moving(lane->store, hash_slot(call->rules[0].key));
    call->alone = true;
    call->again(lane->link, call);
    return true;
}

static void call_done(struct lane *lane, struct store_call *call, enum store_result how)
{
    lane->link->waiting--;
    if (how == STORE_UNSENT) {
        store_refuse(lane->store, call);
        return;
    }
    if (how == STORE_LOST) {
        store_count(&lane->store->counts.lost, 1);
        call->result = how;
    }
    if (call->result == STORE_FAILED) {
        if (try_again(lane, call))
            return;
        if (how == STORE_DECIDED)
            note_failed(lane, call);
        else if (is_elsewhere(lane, call, MOVED_CODES)) /* judge_error in lane.c has counted the others */
            store_count(&lane->store->counts.failed, 1);
    }
    store_call_answered(call);
    call->done(call);
}

static void batch_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    struct store_call *first = data;
    if (how == STORE_DECIDED)
        read_answer(first, reply);
    else if (how == STORE_FAILED)
        fail_batch(first, reply->text);
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        call_done(lane, call, how);
    }
}

static const struct lane_kind batch_kind = { .script = true, .late = batch_late, .done = batch_done };

/* Callers of a batch that cannot be sent are told later: the one that asks now is in the middle of something. */
static void refuse_later(struct store_link *link, struct store_call *first)
{
    struct store_call **end = &link->refused;
    while (*end)
        end = &(*end)->next;
    *end = first;
}

/* In a cluster a call may have been meant for a node that has left: another one has its slot now. */
static bool goes_elsewhere(struct store_link *link, struct store_call *call)
{
    uint16_t place;
    const struct lane *lane = link->store->map ? link_lane_for(link, call->rules[0].key, &place) : NULL;
    return lane && lane_usable(lane) && call->tries++ < TRIES_MAX;
}

/* Returns whether there is something to send again. */
static bool tell_refused(struct store_link *link)
{
    bool more = false;
    for (struct store_call *first; (first = link->refused);) {
        link->refused = NULL;
        for (struct store_call *call = first, *next; call; call = next) {
            next = call->next;
            link->waiting--;
            if (goes_elsewhere(link, call)) {
                call->again(link, call);
                more = true;
            } else
                store_refuse(link->store, call);
        }
    }
    return more;
}

/* Writes a call of the script for all of them. In a cluster declared keys have to be in one slot: PLACE_NONE declares none.
 */
static bool send_batch(struct lane *lane, struct store_call *first, unsigned count, int64_t deadline_us, uint16_t place)
{
    if (!lane_usable(lane))
        return false;
    if (lane->store->map && place == PLACE_NONE)
        script_write_decide_many(lane_begin(lane), lane->store->prefix, first);
    else
        script_write_decide(lane_begin(lane), lane->store->prefix, first);
    if (!lane_end(lane, &batch_kind, first, deadline_us))
        return false;
    lane_last(lane)->decisions = count;
    lane_last(lane)->place = place;
    store_count(&lane->store->counts.calls, 1);
    return true;
}

static void close_batch(struct lane *lane)
{
    struct batch *batch = &lane->batch;
    struct store_call *first = batch->first;
    unsigned count = (unsigned)batch->count;
    batch->first = NULL;
    batch->count = batch->cells = 0;
    if (first && !send_batch(lane, first, count, batch->deadline_us, PLACE_NONE))
        refuse_later(lane->link, first);
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

static void gather(struct lane *lane, struct store_call *call)
{
    struct batch *batch = &lane->batch;
    size_t cells = 0;
    for (size_t i = 0; i < call->rule_count; i++)
        cells += call->rules[i].cell_count;
    if (batch->first && !fits_batch(batch, call, cells))
        close_batch(lane);
    if (!batch->first) {
        batch->end = &batch->first;
        batch->deadline_us = call->deadline_us;
        lane_wake_by(lane, call->deadline_us); /* without a flush it is sent late, and its caller is told */
    }
    *batch->end = call;
    batch->end = &call->next;
    batch->count++;
    batch->cells += cells;
}

/* ---- decisions in a cluster ---- */

/* Holds and slots are in a second key beside the rule's own. */
static bool touches_one_key(const struct store_call *call)
{
    bool one = call->rule_count == 1;
    for (size_t i = 0; one && i < call->rules[0].cell_count; i++) {
        const struct store_cell *cell = &call->rules[0].cells[i];
        one = cell->hold.ttl_us == 0 && cell->limit->algorithm != LIMIT_CONCURRENT;
    }
    return one;
}

/* With its keys declared, so that the node says where they are if it does not have them. */
static void send_alone(struct lane *lane, struct store_call *call, uint16_t place)
{
    if (send_batch(lane, call, 1, call->deadline_us, place))
        lane_last(lane)->one_key = touches_one_key(call);
    else
        refuse_later(lane->link, call);
}

void store_send_one(struct store_link *link, struct store_call *call)
{
    uint16_t place;
    struct lane *lane = link_lane_for(link, call->rules[0].key, &place);
    call->link = link;
    call->next = NULL;
    if (!lane || !lane_usable(lane) || link->waiting >= STORE_FLIGHT_MAX) {
        store_refuse(link->store, call);
        return;
    }
    link->waiting++;
    if (place != PLACE_NONE && call->alone)
        send_alone(lane, call, place);
    else
        gather(lane, call);
}

/* While a slot is being moved, its keys may be at two nodes: each is a place of its own. */
uint32_t store_place(struct store *store, sv key)
{
    if (!store->map)
        return 0;
    uint32_t slot = hash_slot(key);
    if (!map_is_moving(store, (uint16_t)slot))
        return slot;
    static const struct hash_key none = { 0, 0 };
    struct hash h;
    hash_init(&h, &none);
    hash_text(&h, key.ptr, key.len);
    return HASH_SLOTS | (uint32_t)hash_final(&h) << 15;
}

/* ---- turns ---- */

static void flush_lane(struct lane *lane, bool now)
{
    if (now || !lane_gathers(lane))
        close_batch(lane);
    lane_flush(lane);
}

static void flush(struct store_link *link, bool now)
{
    do {
        for (unsigned i = 0; i < link->lane_max; i++)
            if (link->lanes[i])
                flush_lane(link->lanes[i], now);
    } while (tell_refused(link));
}

void store_link_flush(struct store_link *link)
{
    flush(link, false);
}

void store_link_run(struct store_link *link)
{
    link_run(link, flush_lane);
    wake_resting(link);
    flush(link, false);
}

void store_link_free(struct store_link *link)
{
    if (!link)
        return;
    flush(link, true);
    link_shut(link);
    wake_resting(link);
    flush(link, true); /* refuses what callbacks have asked for meanwhile */
    link_free(link);
}

/* ---- settlements ---- */

#define SETTLE_PATIENCE_US (10 * US_PER_S)

static void settle_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    (void)data, (void)reply;
    if (how == STORE_LOST || how == STORE_UNSENT)
        store_count(&lane->store->counts.lost, 1);
}

static const struct lane_kind settle_kind = { .script = true, .patience_us = SETTLE_PATIENCE_US, .done = settle_done };

static void settle_at(struct lane *lane, const struct store_call *call, uint16_t place)
{
    struct store *store = lane->store;
    bool sent = lane_connected(lane) || (store->map && lane_usable(lane));
    if (sent) {
        script_write_settle(lane_begin(lane), store->prefix, call);
        sent = lane_end(lane, &settle_kind, NULL, clock_steady_us() + store->options.deadline_ms * US_PER_MS);
    }
    if (sent)
        lane_last(lane)->place = place;
    store_count(sent ? &store->counts.calls : &store->counts.lost, 1);
}

/* Also while the breaker is open: an answer has just come. In a cluster the node that has the slot by now may be another
 * one, to which a connection is being made. And one key after another: a script may be refused in the middle, and what it
 * had settled until then must not be settled again. */
void store_settle_one(struct store_link *link, const struct store_call *call)
{
    uint16_t place;
    if (!link->store->map) {
        settle_at(link->lanes[0], call, PLACE_NONE);
        return;
    }
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_call one = *call;
        one.rules = &call->rules[i];
        one.rule_count = 1;
        if (one.rules->shadow && !one.rules->fits)
            continue;
        struct lane *lane = link_lane_for(link, one.rules->key, &place);
        if (lane)
            settle_at(lane, &one, place);
        else
            store_count(&link->store->counts.lost, 1);
    }
}
