/* Deciding on a request, and on a batch of them. */
#include <stdlib.h>

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

const struct bound *weir_acquire(struct weir *weir, const struct weir_request *request, char user_buf[WEIR_USER_MAX],
                                 sv *ret_user)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    *ret_user = request->user;
    if (!bound || ret_user->len || !weir->options.user_id || !bound->wants_user)
        return bound;
    /* Nothing is held meanwhile: the callback may do what it likes. */
    hazard_release();
    *ret_user = ask_user(weir, request, user_buf, WEIR_USER_MAX);
    return hazard_acquire((void *const *)&weir->current);
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

/* A decision with more counters than fit on the stack. */
static __attribute__((noinline)) int decide_large(const struct bound *bound, const struct weir_request *request,
                                                  const sv *users, int64_t now_us, size_t needed, struct weir_verdict *ret)
{
    for (;;) {
        struct decision d = { .cap = needed, .verdict = ret };
        void *memory = needed ? malloc(needed * (sizeof *d.counters + sizeof *d.order)) : NULL;
        if (!memory) {
            parts_unjudged(request, ret);
            return WEIR_E_NO_MEMORY;
        }
        d.counters = memory;
        d.order = (struct counter **)(d.counters + needed);
        bool planned = decision_plan(&d, bound, request, users, now_us, &needed);
        if (planned)
            decision_run(&d);
        free(memory);
        if (planned)
            return 0;
    }
}

/* All rules count in cells. */
static inline int decide_one(const struct bound *bound, const struct weir_request *request, const sv *users, int64_t now_us,
                             struct weir_verdict *ret)
{
    struct counter counters[COUNTERS_INLINE], *order[COUNTERS_INLINE];
    struct decision d;
    size_t needed;
    d.counters = counters;
    d.order = order;
    d.cap = COUNTERS_INLINE;
    d.verdict = ret;
    if (__builtin_expect(!decision_plan(&d, bound, request, users, now_us, &needed), 0))
        return decide_large(bound, request, users, now_us, needed, ret);
    decision_run(&d);
    return 0;
}

/* Several that are decided together, or one that does something else with its costs than most. */
static __attribute__((noinline)) int check_special(struct weir *weir, const struct weir_request *request, int64_t now_us,
                                                   int64_t until_us, struct weir_verdict *ret_verdict)
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
    int r = bound->remote ? weir_check_remote(weir, bound, request, users.of, now_us, until_us, ret_verdict)
                          : decide_one(bound, request, users.of, now_us, ret_verdict);
    hazard_release();
    users_done(&users);
    return r;
}

static inline bool is_special(const struct weir_request *request)
{
    return __builtin_expect(request->with || request->charging != WEIR_CHARGE_IF_ROOM, 0);
}

static inline int weir_check_until(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                                   struct weir_verdict *ret_verdict)
{
    char user_buf[WEIR_USER_MAX];
    sv user;
    if (!clock_valid(now_us)) {
        parts_unjudged(request, ret_verdict);
        return WEIR_E_INVALID;
    }
    if (is_special(request))
        return check_special(weir, request, now_us, until_us, ret_verdict);
    const struct bound *bound = weir_acquire(weir, request, user_buf, &user);
    if (!bound) {
        verdict_unjudged(ret_verdict, request);
        return WEIR_E_NO_MEMORY;
    }
    int r = bound->remote ? weir_check_remote(weir, bound, request, &user, now_us, until_us, ret_verdict)
                          : decide_one(bound, request, &user, now_us, ret_verdict);
    hazard_release();
    return r;
}

int weir_check(struct weir *weir, const struct weir_request *request, int64_t now_us, struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, request, now_us, -1, ret_verdict);
}

int weir_check_soon(struct weir *weir, const struct weir_request *request, int64_t now_us, int64_t until_us,
                    struct weir_verdict *ret_verdict)
{
    return weir_check_until(weir, request, now_us, until_us < 0 ? 0 : until_us, ret_verdict);
}

const struct weir_attribute *weir_attribute(size_t i)
{
#define PUBLIC_ATTRIBUTE(NAME, field, uses, ...) \
    { (uses) & (IN_MATCH | IN_BY) ? #field : NULL, offsetof(struct weir_request, field), ((uses)&IS_ADDRESS) != 0 },
    static const struct weir_attribute all[] = { REQUEST_ATTRIBUTES(PUBLIC_ATTRIBUTE) };
    for (enum attribute k = 0; k < REQUEST_ATTRIBUTE_COUNT; k++)
        if (all[k].name && i-- == 0)
            return &all[k];
    return NULL;
}

/* A name that is not an attribute of rules, such as the cost, matters to all rules. */
static bool some_rule_looks_at(const struct bound *bound, const char *attribute, int64_t now_us)
{
    sv name = weir_str(attribute);
    char lower[RULE_NAME_MAX];
    if (sv_starts(name, SV("header:"))) {
        name = sv_from(name, strlen("header:"));
        for (size_t i = 0; i < name.len && i < sizeof lower; i++)
            lower[i] = ascii_lower(name.ptr[i]);
        return name.len <= sizeof lower && ruleset_looks_at(bound->ruleset, ATTR_HEADER, sv_of(lower, name.len), now_us);
    }
    if (sv_starts(name, SV("descriptor:")))
        return ruleset_looks_at(bound->ruleset, ATTR_DESCRIPTOR, (sv){ 0 }, now_us);
    enum attribute found = attribute_find(name);
    if (found == ATTRIBUTE_COUNT || !(attribute_table[found].uses & (IN_MATCH | IN_BY)))
        return true;
    return ruleset_looks_at(bound->ruleset, found, (sv){ 0 }, now_us);
}

enum weir_take weir_repeated(struct weir *weir, const char *attribute, struct weir_str header, int64_t now_us,
                             struct weir_verdict *ret_verdict)
{
    static const enum weir_take takes[] = {
        [REPEATED_REFUSE] = WEIR_TAKE_NONE, [REPEATED_FIRST] = WEIR_TAKE_FIRST, [REPEATED_LAST] = WEIR_TAKE_LAST
    };
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound) {
        verdict_unjudged(ret_verdict, NULL);
        return WEIR_TAKE_NONE;
    }
    enum weir_take take = takes[ruleset_rules(bound->ruleset)->settings.repeated_headers];
    if (take == WEIR_TAKE_NONE && !some_rule_looks_at(bound, attribute, now_us))
        take = WEIR_TAKE_FIRST;
    hazard_release();
    if (take == WEIR_TAKE_NONE)
        verdict_repeated(ret_verdict, header);
    return take;
}

bool weir_trusts(struct weir *weir, sv address)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return false;
    bool trusts = ruleset_trusts(bound->ruleset, address);
    hazard_release();
    return trusts;
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

/* Plans as many requests as there is room for, which starts loading their cells; then decides them. Returns how many. */
static size_t decide_some(const struct bound *bound, const struct weir_request *requests, size_t count, int64_t now_us,
                          struct weir_verdict *ret)
{
    struct counter counters[BATCH_ROOM], *order[BATCH_ROOM];
    struct decision decisions[BATCH];
    size_t n = 0, used = 0, needed;
    for (; n < count && n < BATCH; used += decisions[n++].count) {
        struct decision *d = &decisions[n];
        d->counters = counters + used;
        d->order = order;
        d->cap = BATCH_ROOM - used;
        d->verdict = &ret[n];
        if (is_special(&requests[n]) || !decision_plan(d, bound, &requests[n], &requests[n].user, now_us, &needed))
            break;
    }
    run_some(decisions, n);
    return n;
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
