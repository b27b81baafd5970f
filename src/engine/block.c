/* The driver of threads that block: they wait for slices, and for the store's answer, until the deadline. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "engine/handle.h"
#include "engine/parts.h"
#include "engine/remote.h"

enum { ROOM = 8 }; /* counters of most requests */

int weir_deadline_ms(const struct weir *weir)
{
    enum { DEFAULT_MS = 20 };
    return weir->options.store_deadline_ms ? (int)weir->options.store_deadline_ms : DEFAULT_MS;
}

static int64_t deadline_of(const struct decision *d)
{
    return d->remote->since_us + weir_deadline_ms(d->remote->weir) * US_PER_MS;
}

/* ---- the store's answer ---- */

/* Exists as long as the decision, which outlives its caller if the answer is late. */
struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done;
    bool left; /* the caller has left: the thread that brings the answer deals with it */
};

static void waiting_free(struct decision *d)
{
    struct waiting *w = d->remote->driver;
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->answered);
    free(w);
    decision_free(d);
}

static bool waiting_new(struct decision *d)
{
    struct waiting *w = calloc(1, sizeof *w);
    pthread_condattr_t steady;
    if (!w)
        return false;
    d->remote->driver = w;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&w->answered, &steady);
    pthread_condattr_destroy(&steady);
    remote_hold_rules(d);
    return true;
}

/* The caller looks at the clock itself. */
static void on_late(struct store_call *call)
{
    (void)call;
}

static void on_done(struct store_call *call)
{
    struct decision *d = decision_of(call);
    struct waiting *w = d->remote->driver;
    pthread_mutex_lock(&w->lock);
    w->done = true;
    bool left = w->left;
    pthread_cond_signal(&w->answered);
    pthread_mutex_unlock(&w->lock);
    if (!left)
        return;
    decision_aftermath(d);
    waiting_free(d);
}

/* Calls that were posted before this one, and were not sent, are done by now: what they owe is owed. */
static void on_sending(struct store_call *call)
{
    struct decision *d = decision_of(call);
    struct waiting *w = d->remote->driver;
    pthread_mutex_lock(&w->lock);
    if (!w->left)
        remote_take_debts_along(d);
    pthread_mutex_unlock(&w->lock);
}

static bool wait_until(struct waiting *w, int64_t until_us)
{
    struct timespec at = { until_us / US_PER_S, until_us % US_PER_S * 1000 };
    while (!w->done)
        if (pthread_cond_timedwait(&w->answered, &w->lock, &at) == ETIMEDOUT)
            return w->done;
    return true;
}

/* Sends the call. Returns false if there is no answer in time: then the caller holds the lock, and leaves with it. */
static bool ask_store(struct decision *d, int64_t until_us)
{
    struct waiting *w = d->remote->driver;
    struct store_call *call = &d->remote->call;
    w->done = false;
    call->deadline_us = until_us;
    call->sending = d->state == DECISION_CALL && call->charge && remote_withholds(d) ? on_sending : NULL;
    call->late = on_late;
    call->done = on_done;
    d->remote->weir->ops->post(d->remote->weir->store, call);
    pthread_mutex_lock(&w->lock);
    if (!wait_until(w, until_us))
        return false;
    pthread_mutex_unlock(&w->lock);
    return true;
}

static void leave(struct decision *d)
{
    struct waiting *w = d->remote->driver;
    w->left = true;
    pthread_mutex_unlock(&w->lock);
}

/* From DECISION_CALL on. Frees the decision, now or when the answer comes. */
static void wait_for_store(struct decision *d, int64_t until_us)
{
    if (!waiting_new(d)) { /* nothing was sent */
        decision_late(d);
        d->remote->call.result = STORE_UNSENT;
        decision_aftermath(d);
        decision_free(d);
        return;
    }
    while (d->state == DECISION_CALL) {
        if (!ask_store(d, until_us)) {
            decision_late(d);
            leave(d);
            return;
        }
        decision_answered(d);
    }
    CHECK(d->state == DECISION_DONE);
    waiting_free(d);
}

/* ---- one decision ---- */

/* Runs it, and waits for slices if the caller blocks. until_us: see weir_check_remote. */
static void run_and_wait(struct decision *d, int64_t until_us, int64_t deadline_us)
{
    struct cells *cells = d->bound->cells;
    int64_t now_us = d->now_us, start_us = d->remote->since_us;
    bool blocks = until_us < 0;
    uint32_t seen = answers_seen(cells);
    d->remote->may_wait = blocks || now_us < until_us;
    decision_run(d);
    while (d->state == DECISION_SLICES && blocks) {
        int64_t left_us = deadline_us - clock_steady_us();
        answers_wait(cells, seen, left_us < d->remote->retry_us ? left_us : d->remote->retry_us);
        seen = answers_seen(cells);
        int64_t steady_us = clock_steady_us();
        d->remote->may_wait = steady_us < deadline_us;
        decision_resume(d, now_us + steady_us - start_us);
    }
}

static bool counts_in_store(const struct decision *d)
{
    return d->remote && remote_wants_store(d);
}

int weir_check_remote(struct weir *weir, const struct bound *bound, const struct weir_request *request, const sv *users,
                      int64_t now_us, int64_t until_us, struct weir_verdict *ret)
{
    _Alignas(16) char room[DECISION_BYTES(ROOM)];
    struct decision *on_stack = decision_init(room, ROOM, weir), *d = on_stack;
    size_t needed = ROOM;
    /* The store's answer may come when the caller has left: then the decision must not be on its stack. */
    if (!decision_plan(d, bound, request, users, now_us, &needed) || counts_in_store(d))
        d = decision_new(weir, bound, request, users, now_us, needed);
    if (!d) {
        parts_unjudged(request, ret);
        return WEIR_E_NO_MEMORY;
    }
    int64_t deadline_us = d->remote ? deadline_of(d) : 0;
    d->verdict = ret;
    if (d->remote)
        run_and_wait(d, until_us, deadline_us);
    else
        decision_run(d);
    int waits = d->state == DECISION_SLICES;
    if (d->state == DECISION_CALL)
        wait_for_store(d, deadline_us);
    else if (d != on_stack)
        decision_free(d);
    return waits;
}

int weir_look_remote(struct weir *weir, const struct bound *bound, const struct weir_request *request, const sv *users,
                     int64_t now_us, weir_look_sink *look, void *data)
{
    return weir_look_decision(decision_new(weir, bound, request, users, now_us, ROOM), look, data);
}

int weir_look_decision(struct decision *d, weir_look_sink *look, void *data)
{
    if (!d)
        return WEIR_E_NO_MEMORY;
    decision_look(d);
    if (d->state == DECISION_CALL && !waiting_new(d)) { /* nothing was sent */
        d->remote->call.result = STORE_UNSENT;
        decision_aftermath(d);
        d->state = DECISION_DONE;
    }
    if (d->state != DECISION_CALL) {
        look(d, false, data);
        decision_free(d);
        return 0;
    }
    if (!ask_store(d, deadline_of(d))) {
        look(d, false, data);
        leave(d);
        return 0;
    }
    decision_looked(d);
    look(d, d->remote->call.result == STORE_DECIDED, data);
    waiting_free(d);
    return 0;
}
