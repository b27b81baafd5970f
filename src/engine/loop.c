/* The driver of event loops: a decision that has to wait is kept until the store answers, or slices come. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/parts.h"
#include "engine/remote.h"

enum {
    ROOM = 4,         /* counters of most requests: thousands may wait */
    SPARE_MOST = 1024 /* decisions that are over, and whose memory is reused */
};

struct pending {
    _Alignas(16) struct decision *d; /* its memory follows, aligned */
    struct weir_loop *loop;
    weir_decided *decided;
    void *data;
    struct weir_verdict *at_once; /* while weir_loop_check runs: where its caller wants the verdict */
    bool told;                    /* the verdict was given */
    bool over;                    /* … and the store has answered */
    int64_t until_us;             /* clock_steady_us */
    int64_t now_us, since_us;     /* the request's clock, and clock_steady_us then */
    struct pending *next;         /* in loop->waiting, or loop->spare */
};

struct weir_loop {
    struct weir *weir;
    struct store_link *link;
    struct pending *waiting; /* for slices, the latest first */
    struct pending *spare;
    unsigned spare_count;
    bool closing;
};

/* ---- memory ---- */

static struct pending *pending_new(struct weir_loop *loop, size_t cap)
{
    struct pending *p = cap == ROOM ? loop->spare : NULL;
    if (p) {
        loop->spare = p->next;
        loop->spare_count--;
    } else if (!(p = malloc(sizeof *p + DECISION_BYTES(cap)))) {
        return NULL;
    }
    *p = (struct pending){ .loop = loop, .d = decision_init(p + 1, cap, loop->weir) };
    p->d->remote->driver = p;
    return p;
}

static void pending_free(struct pending *p)
{
    struct weir_loop *loop = p->loop;
    if (p->d->remote)
        remote_release_rules(p->d);
    if (p->d->cap != ROOM || loop->spare_count == SPARE_MOST || loop->closing) {
        free(p);
        return;
    }
    p->next = loop->spare;
    loop->spare = p;
    loop->spare_count++;
}

/* ---- resuming ---- */

/* Where the verdict goes: to the caller of weir_loop_check while that runs. */
static struct weir_verdict *verdict_room(const struct pending *p, struct weir_verdict *own)
{
    return p->at_once ? p->at_once : own;
}

static void tell(struct pending *p)
{
    CHECK(p->d->state == DECISION_DONE);
    p->told = true;
    if (!p->at_once)
        p->decided(p->d->verdict, p->data);
}

static void on_late(struct store_call *call)
{
    struct weir_verdict verdict;
    struct pending *p = decision_of(call)->remote->driver;
    p->d->verdict = verdict_room(p, &verdict);
    decision_late(p->d);
    tell(p);
}

static void send_call(struct pending *p);

static void on_done(struct store_call *call)
{
    struct weir_verdict verdict;
    struct pending *p = decision_of(call)->remote->driver;
    if (p->told) {
        decision_aftermath(p->d);
    } else {
        p->d->verdict = verdict_room(p, &verdict);
        decision_answered(p->d);
        if (p->d->state == DECISION_CALL) {
            send_call(p);
            return;
        }
        tell(p);
    }
    p->over = true;
    if (!p->at_once)
        pending_free(p);
}

static void send_call(struct pending *p)
{
    struct store_call *call = &p->d->remote->call;
    call->deadline_us = p->until_us;
    call->late = on_late;
    call->done = on_done;
    p->loop->weir->ops->link_send(p->loop->link, call);
}

static void wait_for_slices(struct pending *p)
{
    p->next = p->loop->waiting;
    p->loop->waiting = p;
}

/* Slices may have come, or its time is over. */
static void resume(struct pending *p, bool may_wait)
{
    struct weir_verdict verdict;
    int64_t steady_us = clock_steady_us();
    p->d->verdict = &verdict;
    p->d->remote->may_wait = may_wait && steady_us < p->until_us;
    decision_resume(p->d, p->now_us + steady_us - p->since_us);
    if (p->d->state == DECISION_SLICES) {
        wait_for_slices(p);
    } else if (p->d->state == DECISION_CALL) {
        send_call(p);
    } else {
        tell(p);
        pending_free(p);
    }
}

/* The decision with the earliest deadline has to be resumed in time. */
static void set_timer(struct weir_loop *loop)
{
    int64_t first_us = 0;
    for (const struct pending *p = loop->waiting; p; p = p->next)
        if (first_us == 0 || p->until_us < first_us)
            first_us = p->until_us;
    loop->weir->ops->link_wake_at(loop->link, first_us);
}

/* Decisions that go on waiting return to the list; callbacks may add others. */
static void resume_all(struct weir_loop *loop, bool may_wait)
{
    struct pending *list = loop->waiting;
    loop->waiting = NULL;
    for (struct pending *p = list, *next; p; p = next) {
        next = p->next;
        resume(p, may_wait);
    }
}

static void on_nudge(void *data)
{
    struct weir_loop *loop = data;
    resume_all(loop, true);
    set_timer(loop);
}

/* ---- the interface ---- */

int weir_loop_open(struct weir_loop **ret, struct weir *weir, struct weir_error *error)
{
    if (!weir->store)
        return err_set(error, WEIR_E_INVALID, "a weir_loop is for handles that were opened with options.counters");
    struct weir_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    loop->weir = weir;
    int r = weir->ops->link_new(&loop->link, weir->store, on_nudge, loop);
    if (r < 0) {
        free(loop);
        return err_set(error, (enum weir_code)r, "cannot create a link to the store: %s", err_text((enum weir_code)r));
    }
    *ret = loop;
    return 0;
}

void weir_loop_close(struct weir_loop *loop)
{
    if (!loop)
        return;
    loop->closing = true;
    while (loop->waiting)
        resume_all(loop, false);
    loop->weir->ops->link_free(loop->link);
    for (struct pending *p; (p = loop->spare);) {
        loop->spare = p->next;
        free(p);
    }
    free(loop);
}

int weir_loop_fd(const struct weir_loop *loop)
{
    return loop->weir->ops->link_fd(loop->link);
}

void weir_loop_run(struct weir_loop *loop)
{
    loop->weir->ops->link_run(loop->link);
}

void weir_loop_flush(struct weir_loop *loop)
{
    loop->weir->ops->link_flush(loop->link);
}

/* Planned. Returns NULL if there is no memory. */
static struct pending *plan_pending(struct weir_loop *loop, const struct bound *bound, const struct weir_request *request,
                                    const sv *users, int64_t now_us)
{
    for (size_t cap = ROOM;;) {
        struct pending *p = cap ? pending_new(loop, cap) : NULL;
        if (!p || decision_plan(p->d, bound, request, users, now_us, &cap))
            return p;
        pending_free(p);
    }
}

/* It has stopped before its end. Returns 1 if it need not wait after all, and the verdict is there. */
static int begin_to_wait(struct pending *p, struct weir_verdict *ret)
{
    remote_hold_rules(p->d);
    p->since_us = clock_steady_us();
    p->until_us = p->since_us + weir_deadline_ms(p->loop->weir) * US_PER_MS;
    if (p->d->state == DECISION_SLICES) {
        wait_for_slices(p);
        if (!p->next)
            p->loop->weir->ops->link_wake_at(p->loop->link, p->until_us);
        return 0;
    }
    p->at_once = ret;
    send_call(p);
    p->at_once = NULL;
    int told = p->told;
    if (p->over)
        pending_free(p);
    return told;
}

static int check_in(struct weir_loop *loop, const struct bound *bound, const struct weir_request *request, const sv *users,
                    int64_t now_us, struct weir_verdict *ret, weir_decided *decided, void *data)
{
    struct pending *p = plan_pending(loop, bound, request, users, now_us);
    if (!p) {
        parts_unjudged(request, ret);
        return WEIR_E_NO_MEMORY;
    }
    p->decided = decided;
    p->data = data;
    p->now_us = now_us;
    p->d->verdict = ret;
    if (p->d->remote)
        p->d->remote->may_wait = true;
    decision_run(p->d);
    if (p->d->state != DECISION_DONE)
        return begin_to_wait(p, ret);
    pending_free(p);
    return 1;
}

int weir_loop_check(struct weir_loop *loop, const struct weir_request *request, int64_t now_us,
                    struct weir_verdict *ret_verdict, weir_decided *decided, void *data)
{
    struct users users;
    if (!clock_valid(now_us) || !request_valid(request)) {
        parts_unjudged(request, ret_verdict);
        return WEIR_E_INVALID;
    }
    const struct bound *bound = weir_acquire_all(loop->weir, request, &users);
    if (!bound) {
        parts_unjudged(request, ret_verdict);
        return WEIR_E_NO_MEMORY;
    }
    int r = check_in(loop, bound, request, users.of, now_us, ret_verdict, decided, data);
    hazard_release();
    users_done(&users);
    return r;
}
