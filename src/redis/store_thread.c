/* The store's own thread: calls of threads that block, slices, and what beat.c sends. */
#include "redis/store_thread.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define SWEEP_US (50 * US_PER_MS)
#define STATUS_US (200 * US_PER_MS)
#define CLOSE_US (200 * US_PER_MS)
#define PATIENCE_US (10 * US_PER_S) /* of what is given back, while its slot is being moved */

static void tell_status(struct store_thread *t, int64_t now_us)
{
    struct store *store = t->store;
    struct lender_status status = {
        .counters = true, .up = store_up(store), .hosts = store_hosts(store), .offset_us = store_offset_us(store)
    };
    if (!store->options.visits)
        lender_status_write(store->cells, &status, now_us);
    t->status_us = now_us + STATUS_US;
}

/* The store has begun or ceased to answer since the last turn. */
static void notice_change(struct store_thread *t, int64_t now_us)
{
    bool up = store_up(t->store);
    if (up == t->up)
        return;
    t->up = up;
    if (up)
        beat_gather_hosts(t);
    tell_status(t, now_us);
    answers_came(t->store->cells); /* threads that wait for slices can stop waiting, or ask */
}

/* ---- slices ---- */

static void lend_done(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    static const enum lend_result results[] = {
        [STORE_DECIDED] = LEND_ANSWERED,
        [STORE_FAILED] = LEND_FAILED,
        [STORE_LOST] = LEND_LOST,
        [STORE_UNSENT] = LEND_UNSENT,
    };
    struct store *store = lane->store;
    struct lend_call *call = data;
    struct lent lent = { 0 };
    enum lend_result result = results[how];
    if (how == STORE_LOST)
        store_count(&store->counts.lost, 1);
    if (result == LEND_ANSWERED && call->kind == LEND_TAKE &&
        (reply->kind != REPLY_BULK || !script_read_lend(reply->text, &lent)))
        result = LEND_LOST;
    if (result == LEND_ANSWERED && lent.stale) /* the next ask has to be for the right window */
        atomic_store(&store->offset_us, lent.server_us - clock_now_us());
    if (lender_answer(store->lender, call, result, &lent, clock_now_us()))
        store->slices_came = true;
}

static const struct lane_kind lend_kind = { .script = true, .done = lend_done };
static const struct lane_kind return_kind = { .script = true, .patience_us = PATIENCE_US, .done = lend_done };

/* Returns false if it cannot be sent. */
static bool send_lend(struct store_thread *t, struct lend_call *call)
{
    struct store *store = t->store;
    uint16_t place;
    sv key = sv_of(call->ask.key, call->ask.key_len);
    struct lane *lane = link_lane_for(t->link, key, &place);
    if (!lane || !lane_usable(lane))
        return false;
    struct buf *out = lane_begin(lane);
    if (call->kind == LEND_TAKE)
        script_write_lend(out, store->prefix, &call->ask, call->lacks, call->debt, store_hosts(store), 0);
    else
        script_write_return(out, store->prefix, &call->ask, call->end_us, call->tokens);
    if (!lane_end(lane, call->kind == LEND_TAKE ? &lend_kind : &return_kind, call, thread_deadline_us(t)))
        return false;
    lane_last(lane)->place = place;
    lane_last(lane)->one_key = true;
    store_count(&store->counts.calls, 1);
    return true;
}

static void run_lender(struct store_thread *t)
{
    struct store *store = t->store;
    struct lender *lender = store->lender;
    struct slice_ask ask;
    int64_t now_us = clock_now_us();
    while (!store->options.visits && ask_next(store->cells, &ask, clock_steady_us()))
        lender_ask(lender, &ask);
    for (struct lend_call *call; (call = lender_next(lender, now_us));)
        if (!send_lend(t, call))
            lender_answer(lender, call, LEND_UNSENT, NULL, now_us);
    if (lender_dropped(lender))
        store_slices_came(store);
    struct lender_counts counts = lender_counts(lender);
    atomic_store(&store->counts.slices, counts.slices);
    atomic_store(&store->counts.lent, counts.lent);
    atomic_store(&store->counts.returned, counts.returned);
    atomic_store(&store->counts.held, counts.held);
    store_count(&store->counts.reconciled, counts.paid - t->paid);
    t->paid = counts.paid;
}

/* ---- what others have left here ---- */

static bool is_connected(struct store_thread *t, const struct store_call *call)
{
    bool connected = true;
    uint16_t place;
    for (size_t i = 0; connected && i < call->rule_count; i++) {
        const struct lane *lane = link_lane_for(t->link, call->rules[i].key, &place);
        connected = lane && lane_connected(lane);
    }
    return connected;
}

/* A settlement was accepted because the store is up: other links may have their connections, while this one has yet to get
 * or take its own. It waits for that until its deadline, in its order: nobody would send it again. */
static bool wait_for_connection(struct store_thread *t, struct store_call *call)
{
    if (!call->settle || t->waiting_count == STORE_POSTED_MAX || is_connected(t, call))
        return false;
    call->next = NULL;
    *t->waiting_end = call;
    t->waiting_end = &call->next;
    t->waiting_count++;
    return true;
}

static struct store_call *take_waiting(struct store_thread *t)
{
    struct store_call *first = t->waiting;
    t->waiting = NULL;
    t->waiting_end = &t->waiting;
    t->waiting_count = 0;
    return first;
}

static void send_calls(struct store_thread *t, struct store_call *first)
{
    int64_t now_us = clock_steady_us();
    for (struct store_call *call = first, *next; call; call = next) {
        next = call->next;
        if (call->deadline_us <= now_us)
            store_refuse(t->store, call);
        else if (!wait_for_connection(t, call)) {
            if (call->sending)
                call->sending(call);
            store_send(t->link, call);
        }
    }
}

static void forget_answered(struct lane *lane, void *data, enum store_result how, const struct reply *reply)
{
    bool good = how == STORE_DECIDED && reply->kind == REPLY_INTEGER && reply->integer >= 0;
    forget_done(lane->store, data, good ? reply->integer : -1);
}

static const struct lane_kind forget_kind = { .script = true, .done = forget_answered };

static bool send_forget(struct store_thread *t, struct forget *f)
{
    struct store *store = t->store;
    struct node *node = f->place != PLACE_NONE ? map_node(store, f->place) : store->nodes[0];
    struct lane *lane = node ? link_lane(t->link, node) : NULL;
    if (!lane || !lane_usable(lane))
        return false;
    buf_add(lane_begin(lane), buf_sv(&f->command));
    if (!lane_end(lane, &forget_kind, f, thread_deadline_us(t)))
        return false;
    lane_last(lane)->place = f->place;
    return true;
}

static void send_forgets(struct store_thread *t, struct forget *first)
{
    for (struct forget *f = first, *next; f; f = next) {
        next = f->next;
        if (!send_forget(t, f))
            forget_done(t->store, f, -1);
    }
}

/* Asks are sent before calls: a receipt of an overdrawn slice must not be settled before the ask that takes its debt along,
 * or the count would have nothing to give back from. */
static void empty_inbox(struct store_thread *t)
{
    struct store_inbox inbox = store_take_inbox(t->store);
    for (struct wanted *w = inbox.wanted, *next; w; w = next) {
        next = w->next;
        lender_ask(t->store->lender, &w->ask);
        free(w);
    }
    if (inbox.wanted_count > 0)
        run_lender(t);
    send_calls(t, take_waiting(t));
    send_calls(t, inbox.posted);
    send_forgets(t, inbox.forgets);
    if (inbox.recall)
        lender_recall(t->store->lender, clock_now_us());
}

/* ---- turns ---- */

static void run_due_work(struct store_thread *t)
{
    int64_t now_us = clock_steady_us();
    notice_change(t, now_us);
    beat_run(t, now_us);
    if (t->sweep_us <= now_us) {
        lender_sweep(t->store->lender, store_up(t->store), clock_now_us());
        t->sweep_us = now_us + SWEEP_US;
    }
    if (t->status_us <= now_us)
        tell_status(t, now_us);
}

static void wait_for_work(struct store_thread *t, int64_t most_us)
{
    uint64_t count;
    struct pollfd fds[] = { { .fd = t->store->wake_fd, .events = POLLIN },
                            { .fd = store_link_fd(t->link), .events = POLLIN } };
    int n = poll(fds, 2, most_us > 0 ? (int)((most_us + US_PER_MS - 1) / US_PER_MS) : 0);
    if (n > 0 && fds[0].revents && read(t->store->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    if (n > 0 && fds[1].revents)
        store_link_run(t->link);
    if (t->store->slices_came)
        store_slices_came(t->store);
    t->store->slices_came = false;
}

static int64_t until_due(const struct store_thread *t)
{
    int64_t first_us = t->sweep_us < t->status_us ? t->sweep_us : t->status_us, next_us = beat_next_us(t);
    return (next_us < first_us ? next_us : first_us) - clock_steady_us();
}

/* Slices are given back, as far as the store answers in time, and this host is no longer counted. */
static void take_leave(struct store_thread *t)
{
    int64_t until_us = clock_steady_us() + CLOSE_US;
    lender_recall(t->store->lender, clock_now_us());
    beat_leave(t, until_us);
    do {
        empty_inbox(t);
        run_lender(t);
        store_link_flush(t->link);
        if (!link_is_busy(t->link))
            break;
        wait_for_work(t, until_us - clock_steady_us());
    } while (clock_steady_us() < until_us);
}

void *store_thread_run(void *ptr)
{
    struct store *store = ptr;
    struct store_thread t = { .store = store, .link = store->own };
    beat_init(&t);
    take_waiting(&t);
    while (!atomic_load(&store->stopping)) {
        empty_inbox(&t);
        run_due_work(&t);
        run_lender(&t);
        store_link_flush(t.link);
        wait_for_work(&t, until_due(&t));
    }
    take_leave(&t);
    empty_inbox(&t);
    for (struct store_call *call = take_waiting(&t), *next; call; call = next) {
        next = call->next;
        store_refuse(store, call);
    }
    store_link_free(store->own); /* it may still call back with t */
    store->own = NULL;
    return NULL;
}
