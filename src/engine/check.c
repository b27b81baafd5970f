/* Deciding on a request, and on a batch of them. */
#include <stdlib.h>

#include "base/check.h"
#include "engine/counter.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/parts.h"
#include "engine/verdict.h"

/* The answer of the callback is cut to the buffer. The buffer is zeroed first, so that the same user is the same subject
 * each time. */
static sv ask_user(const struct weir *weir, const struct weir_request *request, char *buf, size_t cap)
{
    memset(buf, 0, cap);
    size_t len = weir->options.user_id(request, buf, cap, weir->options.user_id_data);
    return sv_of(buf, len < cap ? len : cap);
}

static inline const struct bound *acquire_in(struct weir *weir, const struct weir_request *request,
                                             char user_buf[WEIR_USER_MAX], sv *ret_user, void ***ret_slot)
{
    const struct bound *bound = hazard_acquire_in((void *const *)&weir->current, ret_slot);
    *ret_user = request->user;
    if (!bound || ret_user->len || !weir->options.user_id || !bound->wants_user)
        return bound;
    /* Nothing is held meanwhile: the callback may do what it likes. */
    hazard_release_in(*ret_slot);
    *ret_user = ask_user(weir, request, user_buf, WEIR_USER_MAX);
    return hazard_acquire_in((void *const *)&weir->current, ret_slot);
}

const struct bound *weir_acquire(struct weir *weir, const struct weir_request *request, char user_buf[WEIR_USER_MAX],
                                 sv *ret_user)
{
    void **slot;
    return acquire_in(weir, request, user_buf, ret_user, &slot);
}

/* ---- several requests ---- */

/* A hold has a receipt, and neither has what is charged in any case. */
bool request_valid(const struct weir_request *request)
{
    bool valid = true, in_any_case = false;
    size_t count = 0;
    for (const struct weir_request *r = request; r && count <= WEIR_TOGETHER_MAX; r = r->with, count++) {
        valid = valid && r->charging <= WEIR_GIVE_BACK;
        in_any_case = in_any_case || r->charging != WEIR_CHARGE_IF_ROOM;
    }
    return valid && count <= WEIR_TOGETHER_MAX && !(in_any_case && request->ttl_ms > 0);
}

static bool lacks_user(const struct weir_request *request)
{
    for (; request; request = request->with)
        if (request->user.len == 0)
            return true;
    return false;
}

static void set_users(const struct weir *weir, const struct weir_request *request, struct users *ret)
{
    for (size_t i = 0; request; request = request->with, i++)
        ret->of[i] = request->user.len > 0 || !ret->room
                         ? request->user
                         : ask_user(weir, request, ret->room + i * WEIR_USER_MAX, WEIR_USER_MAX);
}

const struct bound *weir_acquire_all(struct weir *weir, const struct weir_request *request, struct users *ret)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    ret->room = NULL;
    if (!bound || !weir->options.user_id || !bound->wants_user || !lacks_user(request)) {
        set_users(weir, request, ret);
        return bound;
    }
    hazard_release();
    ret->room = malloc(request_parts(request) * WEIR_USER_MAX);
    if (!ret->room)
        return NULL;
    set_users(weir, request, ret);
    bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        users_done(ret);
    return bound;
}

void users_done(struct users *users)
{
    free(users->room);
}

/* ---- one decision ---- */

/* A decision with room for the counters of most requests. It grows for the others. */
struct roomy {
    struct decision d;
    struct counter counters[COUNTERS_INLINE], *order[COUNTERS_INLINE];
};

static inline struct decision *roomy_init(struct roomy *r, struct weir_verdict *ret)
{
    r->d.counters = r->counters;
    r->d.order = r->order;
    r->d.cap = COUNTERS_INLINE;
    r->d.grows = true;
    r->d.grown = NULL;
    r->d.verdict = ret;
    return &r->d;
}

/* Runs a decision that grows, if there was memory to plan it. */
static inline int run_planned(struct decision *d, bool planned, const struct weir_request *request)
{
    if (__builtin_expect(planned, 1))
        decision_run(d);
    else
        parts_unjudged(request, d->verdict);
    if (__builtin_expect(d->grown != NULL, 0))
        free(d->grown);
    return planned ? 0 : WEIR_E_NO_MEMORY;
}

/* All rules count in cells. */
static inline int decide_one(const struct bound *bound, const struct weir_request *request, const sv *users, int64_t now_us,
                             struct weir_verdict *ret)
{
    struct roomy room;
    struct decision *d = roomy_init(&room, ret);
    size_t needed;
    return run_planned(d, decision_plan(d, bound, request, users, now_us, &needed), request);
}

/* The request was made for other rules than these. */
static inline bool are_others(const struct bound *bound, uint64_t rules)
{
    return __builtin_expect(rules != 0 && rules != bound->version, 0);
}

int weir_decide_matched(const struct bound *bound, const struct matched *m, struct weir_verdict *ret)
{
    struct roomy room;
    struct decision *d = roomy_init(&room, ret);
    size_t needed;
    return run_planned(d, decision_plan_matched(d, bound, m, &needed), m->request);
}

/* Several that are decided together, or one that does something else with its costs than most. */
static __attribute__((noinline)) int check_special(struct weir *weir, uint64_t rules, const struct weir_request *request,
                                                   int64_t now_us, int64_t until_us, struct weir_verdict *ret_verdict)
{
    struct users users;
    if (!request_valid(request)) {
        parts_unjudged(request, ret_verdict);
        return WEIR_E_INVALID;
    }
    const struct bound *bound = weir_acquire_all(weir, request, &users);
    if (!bound) {
        parts_unjudged(request, ret_verdict);
        return WEIR_E_NO_MEMORY;
    }
    int r;
    if (are_others(bound, rules)) {
        parts_unjudged(request, ret_verdict);
        r = WEIR_E_CHANGED;
    } else {
        r = bound->remote ? weir_check_remote(weir, bound, request, users.of, now_us, until_us, ret_verdict)
                          : decide_one(bound, request, users.of, now_us, ret_verdict);
    }
    hazard_release();
    users_done(&users);
    return r;
}

static inline bool is_special(const struct weir_request *request)
{
    return __builtin_expect(request->with || request->charging != WEIR_CHARGE_IF_ROOM, 0);
}

/* rules: see weir_check_for; 0: the request was made for any. */
static inline int weir_check_until(struct weir *weir, uint64_t rules, const struct weir_request *request, int64_t now_us,
                                   int64_t until_us, struct weir_verdict *ret_verdict)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    void **slot;
    if (!clock_valid(now_us)) {
        parts_unjudged(request, ret_verdict);
        return WEIR_E_INVALID;
    }
    if (is_special(request))
        return check_special(weir, rules, request, now_us, until_us, ret_verdict);
    const struct bound *bound = acquire_in(weir, request, user_buf, &user, &slot);
    if (!bound) {
        verdict_unjudged(ret_verdict, request);
        return WEIR_E_NO_MEMORY;
    }
    if (are_others(bound, rules)) {
        hazard_release_in(slot);
        verdict_unjudged(ret_verdict, request);
        return WEIR_E_CHANGED;
    }
    int r = bound->remote ? weir_check_remote(weir, bound, request, &user, now_us, until_us, ret_verdict)
                          : decide_one(bound, request, &user, now_us, ret_verdict);
    hazard_release_in(slot);
    return r;
}

int weir_check(struct weir *weir, const struct weir_request *request, int64_t now_us, struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, 0, request, now_us, -1, ret_verdict);
}

int weir_check_soon(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                    struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, 0, request, now_us, until_us < 0 ? 0 : until_us, ret_verdict);
}

int weir_check_for(struct weir *weir, uint64_t rules, const struct weir_request *request, int64_t now_us, int64_t until_us,
                   struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, rules, request, now_us, until_us < 0 ? 0 : until_us, ret_verdict);
}

/* ---- batches ---- */

enum { BATCH = 16, BATCH_ROOM = 64 };

/* One cell to charge, and nothing else. */
static bool is_single(const struct decision *d)
{
    return d->count == 1 && d->enforced == 1 && d->charges && d->counters->ask.cost > 0 && !d->holds && !d->penalties;
}

/* Their cells are loaded from memory at the same time. */
static void run_singles(struct decision *decisions, unsigned count)
{
    struct cells_ask asks[CELLS_BATCH];
    struct cells_taken taken[CELLS_BATCH];
    bool fits[CELLS_BATCH];
    for (unsigned i = 0; i < count; i++)
        asks[i] = decisions[i].counters->ask;
    cells_take_batch(decisions->bound->cells, asks, count, taken, fits);
    for (unsigned i = 0; i < count; i++) {
        struct decision *d = &decisions[i];
        d->counters->taken = taken[i];
        d->allowed = cell_taken(d->counters, fits[i]) == COUNTER_FITS;
        d->state = DECISION_REPORT;
        decision_run(d);
    }
}

static void run_some(struct decision *decisions, size_t count)
{
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 0; i + n < count && n < CELLS_BATCH && is_single(&decisions[i + n]); n++)
            ;
        if (n > 1) {
            run_singles(decisions + i, (unsigned)n);
        } else {
            decision_run(&decisions[i]);
            n = 1;
        }
    }
}

/* Requests that are planned, which starts loading their cells, and then decided. */
struct batch {
    struct counter counters[BATCH_ROOM], *order[BATCH_ROOM];
    struct decision decisions[BATCH];
    size_t count, used;
};

/* The next decision, to be planned. */
static struct decision *batch_next(struct batch *batch, struct weir_verdict *ret)
{
    struct decision *d = &batch->decisions[batch->count];
    d->counters = batch->counters + batch->used;
    d->order = batch->order;
    d->cap = BATCH_ROOM - batch->used;
    d->grows = false;
    d->verdict = ret;
    return d;
}

static void batch_planned(struct batch *batch)
{
    batch->used += batch->decisions[batch->count++].count;
}

/* Plans as many requests as there is room for, and decides them. Returns how many. */
static size_t decide_some(const struct bound *bound, const struct weir_request *requests, size_t count, int64_t now_us,
                          struct weir_verdict *ret)
{
    struct batch batch;
    size_t needed;
    batch.count = batch.used = 0;
    for (size_t i = 0; i < count && i < BATCH; i++) {
        struct decision *d = batch_next(&batch, &ret[i]);
        if (is_special(&requests[i]) || !decision_plan(d, bound, &requests[i], &requests[i].user, now_us, &needed))
            break;
        batch_planned(&batch);
    }
    run_some(batch.decisions, batch.count);
    return batch.count;
}

/* One that does not go with the others. */
static int decide_apart(const struct weir *weir, const struct bound *bound, const struct weir_request *request,
                        int64_t now_us, struct weir_verdict *ret)
{
    struct users users = { .room = NULL };
    if (!request_valid(request)) {
        parts_unjudged(request, ret);
        return WEIR_E_INVALID;
    }
    set_users(weir, request, &users);
    return decide_one(bound, request, users.of, now_us, ret);
}

static int check_each(struct weir *weir, const struct weir_request *requests, size_t count, int64_t now_us,
                      struct weir_verdict *ret)
{
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        int r = weir_check(weir, &requests[i], now_us, &ret[i]);
        result = r < 0 ? r : result;
    }
    return result;
}

int weir_check_batch(struct weir *weir, const struct weir_request *requests, size_t count, int64_t now_us,
                     struct weir_verdict *ret_verdicts)
{
    /* With a getter each has to ask for its user first, which may take any time: nothing to overlap. */
    const struct bound *bound = NULL;
    if (!clock_valid(now_us) || weir->options.user_id || !(bound = hazard_acquire((void *const *)&weir->current)))
        return check_each(weir, requests, count, now_us, ret_verdicts);
    if (bound->remote) {
        hazard_release();
        return check_each(weir, requests, count, now_us, ret_verdicts);
    }
    int result = 0;
    for (size_t done = 0; done < count;) {
        size_t n = decide_some(bound, requests + done, count - done, now_us, ret_verdicts + done);
        if (n == 0) {
            int r = decide_apart(weir, bound, &requests[done], now_us, &ret_verdicts[done]);
            result = r < 0 ? r : result;
            n = 1;
        }
        done += n;
    }
    hazard_release();
    return result;
}

/* Close together, so that the CPU translates the addresses of several cells at a time: in a large table that takes longer
 * than to plan the request. A subject with limits of its own has other cells, which are loaded when it is planned. */
static void prefetch_cells(const struct bound *bound, const struct matched *requests, size_t count)
{
    for (size_t i = 0; i < count && i < BATCH; i++) {
        const struct matched *m = &requests[i];
        for (size_t k = 0; m->subjects && k < m->rule_count; k++) {
            const struct bound_set *set = &bound->rules[m->rules[k]].own;
            for (size_t limit = 0; limit < set->limit_count; limit++)
                cells_prefetch(bound->cells, cell_key(&set->limits[limit], m->subjects[k]));
        }
    }
}

/* The same as decide_some. */
static size_t decide_some_matched(const struct bound *bound, const struct matched *requests, size_t count,
                                  struct weir_verdict *ret)
{
    struct batch batch;
    size_t needed;
    batch.count = batch.used = 0;
    prefetch_cells(bound, requests, count);
    for (size_t i = 0; i < count && i < BATCH; i++) {
        if (!decision_plan_matched(batch_next(&batch, &ret[i]), bound, &requests[i], &needed))
            break;
        batch_planned(&batch);
    }
    run_some(batch.decisions, batch.count);
    return batch.count;
}

size_t weir_check_matched(struct weir *weir, const struct matched *requests, size_t count,
                          struct weir_verdict *ret_verdicts)
{
    size_t done = 0;
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return 0;
    CHECK(!bound->remote);
    while (done < count) {
        const struct matched *m = &requests[done];
        size_t n = decide_some_matched(bound, m, count - done, ret_verdicts + done);
        if (n == 0 && decide_one(bound, m->request, &m->request->user, m->now_us, &ret_verdicts[done]) < 0)
            break;
        done += n > 0 ? n : 1;
    }
    hazard_release();
    return done;
}
