/* Decisions of threads that block: they wait for slices by a timer, and for the store's answer until the deadline. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "engine/shared.h"
#include "engine/weir.h"

enum { ROOM = 8 }; /* entries of most plans */

int weir_deadline_ms(const struct weir *weir)
{
    enum { DEFAULT_MS = 20 };
    return weir->options.store_deadline_ms ? (int)weir->options.store_deadline_ms : DEFAULT_MS;
}

/* ---- the store's answer ---- */

/* It outlives its caller where the answer is late. */
struct waiting {
    struct shared *s;
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool done;
    bool given_up; /* the caller has gone: the answer is dealt with by whoever brings it */
};

static void waiting_free(struct waiting *w)
{
    void *memory = w->s->plan.entries;
    shared_release(w->s);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->told);
    free(memory);
    free(w);
}

static void on_late(struct store_call *call)
{
    (void)call; /* the caller looks at the clock himself */
}

static void on_done(struct store_call *call)
{
    struct shared *s = (struct shared *)((char *)call - offsetof(struct shared, call));
    struct waiting *w = s->waiting;
    pthread_mutex_lock(&w->lock);
    w->done = true;
    bool given_up = w->given_up;
    pthread_cond_signal(&w->told);
    pthread_mutex_unlock(&w->lock);
    if (!given_up)
        return;
    shared_aftermath(s);
    waiting_free(w);
}

static bool wait_until(struct waiting *w, int64_t until_us)
{
    struct timespec at = { until_us / US_PER_S, until_us % US_PER_S * 1000 };
    while (!w->done)
        if (pthread_cond_timedwait(&w->told, &w->lock, &at) == ETIMEDOUT)
            return w->done;
    return true;
}

/* Sends s->call. False: there is no answer in time, and the caller leaves with the lock. */
static bool ask_store(struct waiting *w, int64_t until_us)
{
    struct shared *s = w->s;
    w->done = false;
    s->call.deadline_us = until_us;
    s->call.late = on_late;
    s->call.done = on_done;
    s->weir->ops->post(s->weir->store, &s->call);
    pthread_mutex_lock(&w->lock);
    if (!wait_until(w, until_us))
        return false;
    pthread_mutex_unlock(&w->lock);
    return true;
}

static void give_up(struct waiting *w)
{
    w->given_up = true;
    pthread_mutex_unlock(&w->lock);
}

/* Again and again (its windows may not have been the store's), until it is decided or too late. */
static void decide_in_store(struct waiting *w, int64_t until_us, struct weir_verdict *ret)
{
    do
        if (!ask_store(w, until_us)) {
            shared_late(w->s, ret);
            give_up(w);
            return;
        }
    while (shared_answered(w->s, ret) == STEP_STORE);
    waiting_free(w);
}

static struct waiting *waiting_new(struct shared *s)
{
    struct waiting *w = calloc(1, sizeof *w);
    pthread_condattr_t steady;
    if (!w)
        return NULL;
    w->s = s;
    s->waiting = w;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&w->told, &steady);
    pthread_condattr_destroy(&steady);
    shared_hold(s);
    return w;
}

/* ---- one decision ---- */

/* until_us: see weir_check_shared. STEP_SLICES only where the caller does not want to wait for them. */
static enum step take_slices(struct shared *s, sv user, int64_t until_us, int64_t deadline_us, struct weir_verdict *ret)
{
    int64_t now_us = s->plan.now_us, start_us = s->since_us;
    bool blocks = until_us < 0;
    uint32_t seen = answers_seen(s->bound->cells);
    enum step step = shared_begin(s, user, blocks || now_us < until_us, ret);
    while (step == STEP_SLICES && blocks) {
        answers_wait(s->bound->cells, seen, deadline_us - clock_steady_us());
        seen = answers_seen(s->bound->cells);
        int64_t steady_us = clock_steady_us();
        step = shared_again(s, now_us + steady_us - start_us, steady_us < deadline_us, ret);
    }
    return step;
}

/* One that the store may have to be asked about: its memory may outlive the caller. */
static int decide_exact(struct shared *s, sv user, int64_t until_us, struct weir_verdict *ret)
{
    int64_t deadline_us = s->since_us + weir_deadline_ms(s->weir) * US_PER_MS;
    void *memory = s->plan.entries;
    enum step step = take_slices(s, user, until_us, deadline_us, ret);
    struct waiting *w = step == STEP_STORE ? waiting_new(s) : NULL;
    if (w) {
        decide_in_store(w, deadline_us, ret);
        return 0;
    }
    if (step == STEP_STORE) { /* no memory to wait with: nothing was sent */
        shared_late(s, ret);
        s->call.result = STORE_UNSENT;
        shared_aftermath(s);
    }
    free(memory);
    return step == STEP_SLICES;
}

int weir_check_shared(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                      int64_t now_us, int64_t until_us, struct weir_verdict *ret)
{
    _Alignas(16) char room[SHARED_BYTES(ROOM)];
    struct shared *s = shared_init(room, ROOM, weir);
    size_t needed = ROOM;
    bool fits = shared_plan(s, bound, request, user, now_us, &needed);
    if (fits && !s->plan.shared) {
        plan_decide(&s->plan, bound, ret);
        return 0;
    }
    if (fits && !s->exact) {
        int64_t deadline_us = s->since_us + weir_deadline_ms(weir) * US_PER_MS;
        return take_slices(s, user, until_us, deadline_us, ret) == STEP_SLICES;
    }
    s = shared_new(weir, bound, request, user, now_us, needed);
    if (!s) {
        verdict_unjudged(ret);
        return WEIR_E_NO_MEMORY;
    }
    if (s->plan.shared)
        return decide_exact(s, user, until_us, ret);
    plan_decide(&s->plan, bound, ret);
    free(s->plan.entries);
    return 0;
}

int weir_look_shared(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                     int64_t now_us, void (*look)(const struct shared *s, bool known, void *data), void *data)
{
    struct shared *s = shared_new(weir, bound, request, user, now_us, ROOM);
    struct waiting *w = NULL;
    if (!s)
        return WEIR_E_NO_MEMORY;
    enum step step = s->plan.shared ? shared_look(s, user) : STEP_DECIDED;
    if (step == STEP_STORE && (w = waiting_new(s))) {
        if (!ask_store(w, clock_steady_us() + weir_deadline_ms(weir) * US_PER_MS)) {
            look(s, false, data);
            give_up(w);
            return 0;
        }
        shared_looked(s);
        look(s, s->call.result == STORE_DECIDED, data);
        waiting_free(w);
        return 0;
    }
    look(s, false, data);
    free(s->plan.entries);
    return 0;
}
