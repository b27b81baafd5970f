/* Prepared checks: requests that differ in one attribute only, for which the rules that apply are found once.
 *
 * A plan belongs to a version of the rules and is kept with it (bound.prepared), so it is replaced and freed with the
 * rules: a check acquires the rules in force, as weir_check does, and looks there for the plan of its own number. The
 * first check that finds none makes one. So any number of threads share a prepared check without a lock.
 *
 * A plan says which rules apply, for any value of the attribute that varies. If that depends on the value, or on something
 * that is not known beforehand, the plan is PREPARED_ORDINARY and each request goes to weir_check. What depends on the
 * subject (overrides, penalties, plans by the attribute that varies) is decided for each request, by the code that decides
 * all others. Only the simplest and most frequent plan has a short way: one rule, one limit, one cell. */
#include <stdlib.h>

#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/one_cell.h"

/* A plan does not outlast the next expiry of a rule. After so many the requests go to weir_check, until rules change. */
enum { PLANS_MOST = 8, RULES_MOST = 64 };

struct weir_prepared {
    struct weir *weir;
    enum attribute varies;
    unsigned number;
    struct hash start;           /* of a subject, before its first value: the cells of a handle stay the same */
    struct weir_request request; /* without the attribute that varies */
    struct arena arena;          /* its strings */
};

/* ---- which rules apply ---- */

/* Stands for any value while rules are matched. */
static struct weir_request any_request(const struct weir_prepared *p)
{
    struct weir_request request = p->request;
    request_set(&request, p->varies, SV("?"));
    return request;
}

/* Returns whether it may depend on the value that varies if the rule applies. ruleset_explain() names one reason why it
 * does not: if that is another one, then the value does not matter. */
static bool depends_on_value(const struct weir_prepared *p, const struct bound *bound, size_t rule, struct facts *facts)
{
    sv detail;
    const struct rule *r = bound->rules[rule].rule;
    bool looks = p->varies == ATTR_USER && r->kind->rest->except.user_count > 0;
    for (size_t i = 0; i < r->kind->condition_count; i++)
        looks = looks || r->kind->conditions[i].attribute == p->varies;
    if (!looks)
        return false;
    enum match_reason reason = ruleset_explain(bound->ruleset, rule, facts, INT64_MIN, &detail);
    return reason == MATCH_YES || reason == MATCH_EXCEPT_USER || reason == MATCH_REPEATED ||
           reason == MATCH_UNEQUAL + p->varies;
}

static bool is_ordinary(const struct weir_prepared *p, const struct bound *bound, struct facts *facts)
{
    const struct rules *rules = ruleset_rules(bound->ruleset);
    if (p->weir->options.user_id && bound->wants_user && p->varies != ATTR_USER && p->request.user.len == 0)
        return true;
    if (p->varies == ATTR_USER && rules->settings.except.user_count > 0)
        return true;
    if (bound->by_path && facts_readings(facts) > 1)
        return true;
    for (size_t i = 0; bound->matches >> p->varies & 1 && i < rules->rule_count; i++)
        if (depends_on_value(p, bound, i, facts))
            return true;
    return facts->repeated.len > 0;
}

/* Returns whether the last value of the rule's subjects is the one that varies. *ret is the hash of those before it. */
static bool varies_last(const struct weir_prepared *p, const struct bound *bound, const struct rule *rule,
                        struct facts *facts, struct hash *ret)
{
    hash_init(ret, &bound->hash_key);
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        if (rule->kind->by[i].attribute == p->varies)
            return i + 1 == rule->kind->by_count;
        subject_add(ret, facts_attribute(facts, &rule->kind->by[i]));
    }
    return false;
}

/* Keeps the rules that have not expired. Sets the time for which they are these. */
static void leave_out_expired(struct prepared_plan *plan, const struct bound *bound, int64_t now_us)
{
    size_t kept = 0;
    plan->from_us = INT64_MIN;
    plan->until_us = INT64_MAX;
    for (size_t i = 0; i < plan->rule_count; i++) {
        int64_t expires_us = bound->rules[plan->rules[i]].rule->kind->rest->expires_us;
        if (expires_us > now_us) {
            plan->rules[kept++] = plan->rules[i];
            plan->until_us = expires_us < plan->until_us ? expires_us : plan->until_us;
        } else {
            plan->from_us = expires_us > plan->from_us ? expires_us : plan->from_us;
        }
    }
    plan->rule_count = (uint32_t)kept;
}

/* The whole verdict, of a cell that was taken or has refused. */
static __attribute__((noinline)) void report_cell(const struct weir_prepared *p, const struct bound *bound,
                                                  const struct bound_rule *rule, uint64_t subject,
                                                  const struct cells_ask *ask, const struct cells_taken *taken, bool fits,
                                                  struct weir_verdict *ret)
{
    struct counter counter;
    struct decision d;
    d.counters = &counter;
    d.cap = 1;
    d.verdict = ret;
    decision_plan_cell(&d, bound, &p->request, rule, subject, ask->cost, ask->now_us);
    counter.taken = *taken;
    d.allowed = cell_taken(&counter, fits) == COUNTER_FITS;
    d.state = DECISION_REPORT;
    decision_run_cell(&d);
}

static void make_verdict(const struct weir_prepared *p, const struct bound *bound, struct prepared_plan *plan)
{
    struct cells_taken unused = { .cost = 0 };
    struct cells_ask ask = { .cost = 1 };
    plan->same = plan->terms->limit.algorithm != LIMIT_CALENDAR;
    if (!plan->same)
        return;
    report_cell(p, bound, plan->rule, 0, &ask, &unused, true, &plan->passes.verdict);
    verdict_like_init(&plan->passes, &plan->terms->limit);
}

/* Returns NULL if out of memory. */
static struct prepared_plan *make_plan(const struct weir_prepared *p, const struct bound *bound, int64_t now_us)
{
    struct facts facts;
    uint32_t rules[RULES_MOST];
    struct weir_request request = any_request(p);
    facts_init(&facts, bound->ruleset, &request, request.user);
    /* Rules that have expired match, too: from INT64_MIN on every rule that is not off is there. */
    size_t count = ruleset_match(bound->ruleset, &facts, INT64_MIN, rules, RULES_MOST);
    bool ordinary = count > RULES_MOST || is_ordinary(p, bound, &facts);
    count = ordinary ? 0 : count;
    struct prepared_plan *plan = calloc(1, sizeof *plan + count * sizeof rules[0]);
    if (!plan)
        return NULL;
    plan->rule_count = (uint32_t)count;
    memcpy(plan->rules, rules, count * sizeof rules[0]);
    leave_out_expired(plan, bound, now_us);
    plan->kind = ordinary || bound->remote ? PREPARED_ORDINARY : PREPARED_RULES;
    const struct bound_rule *rule = plan->rule_count == 1 ? &bound->rules[plan->rules[0]] : NULL;
    if (rule && rule->one_cell && varies_last(p, bound, rule->rule, &facts, &plan->subject)) {
        plan->kind = PREPARED_CELL;
        plan->rule = rule;
        plan->terms = rule->own.limits->terms;
        plan->limit_id = rule->own.limits->id;
        plan->alone = rule->rule->kind->by_count == 1;
        make_verdict(p, bound, plan);
    }
    return plan;
}

/* ---- plans of a version of the rules ---- */

/* Returns NULL if out of memory. */
static __attribute__((noinline)) struct prepared_part *make_part(struct bound *bound, unsigned number)
{
    struct prepared_part **to = &bound->prepared[number / PREPARED_PART], *found = NULL;
    struct prepared_part *part = calloc(1, sizeof *part);
    if (part && __atomic_compare_exchange_n(to, &found, part, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return part;
    free(part);
    return found;
}

static struct prepared_part *part_of(const struct bound *bound, unsigned number)
{
    return __atomic_load_n(&bound->prepared[number / PREPARED_PART], __ATOMIC_ACQUIRE);
}

static inline bool covers(const struct prepared_plan *plan, int64_t now_us)
{
    return plan && now_us >= plan->from_us && now_us < plan->until_us;
}

/* Returns NULL if out of memory, or if there were too many: ask weir_check. */
static __attribute__((noinline)) const struct prepared_plan *find_plan(const struct weir_prepared *p,
                                                                       const struct bound *bound, int64_t now_us)
{
    struct prepared_part *part = part_of(bound, p->number);
    if (!part && !(part = make_part((struct bound *)bound, p->number)))
        return NULL;
    struct prepared_plan **newest = &part->plans[p->number % PREPARED_PART];
    struct prepared_plan *found = __atomic_load_n(newest, __ATOMIC_ACQUIRE), *made = NULL;
    for (;;) {
        for (const struct prepared_plan *plan = found; plan; plan = plan->older)
            if (covers(plan, now_us)) {
                free(made);
                return plan;
            }
        if ((found && found->age + 1 >= PLANS_MOST) || (!made && !(made = make_plan(p, bound, now_us)))) {
            free(made);
            return NULL;
        }
        made->older = found;
        made->age = found ? found->age + 1 : 0;
        if (__atomic_compare_exchange_n(newest, &found, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return made;
    }
}

static inline const struct prepared_plan *plan_of(const struct weir_prepared *p, const struct bound *bound, int64_t now_us)
{
    const struct prepared_part *part = part_of(bound, p->number);
    const struct prepared_plan *plan =
        part ? __atomic_load_n(&part->plans[p->number % PREPARED_PART], __ATOMIC_ACQUIRE) : NULL;
    return __builtin_expect(covers(plan, now_us), 1) ? plan : find_plan(p, bound, now_us);
}

/* ---- checking ---- */

static struct weir_request whole_request(const struct weir_prepared *p, sv value, uint64_t cost)
{
    struct weir_request request = p->request;
    request_set(&request, p->varies, value);
    request.cost = cost;
    return request;
}

static __attribute__((noinline)) int check_ordinary(const struct weir_prepared *p, sv value, uint64_t cost, int64_t now_us,
                                                    struct weir_verdict *ret)
{
    struct weir_request request = whole_request(p, value, cost);
    return weir_check(p->weir, &request, now_us, ret);
}

static __attribute__((noinline)) int check_rules(const struct weir_prepared *p, const struct bound *bound,
                                                 const struct prepared_plan *plan, sv value, uint64_t cost, int64_t now_us,
                                                 struct weir_verdict *ret)
{
    struct weir_request request = whole_request(p, value, cost);
    const struct matched matched = {
        .request = &request, .now_us = now_us, .rules = plan->rules, .rule_count = plan->rule_count
    };
    return weir_decide_matched(bound, &matched, ret);
}

static inline uint64_t hash_subject(const struct hash *before, sv value)
{
    struct hash subject = { before->v0, before->v1, before->v2, before->v3, 0, 0 }; /* texts leave the rest as it was */
    subject_add(&subject, value);
    return hash_final(&subject);
}

static __attribute__((noinline)) uint64_t hash_after_others(const struct prepared_plan *plan, sv value)
{
    return hash_subject(&plan->subject, value);
}

/* The time of a check is that of a chain of steps of which each needs the one before: the hash, the key, the cell, its
 * state. So the hash of most begins with what `p` has itself, and does not wait until the rules and the plan are found. */
LIMIT_HOT void check_cell(const struct weir_prepared *p, const struct bound *bound, const struct prepared_plan *plan,
                          sv value, uint64_t cost, int64_t now_us, struct weir_verdict *ret)
{
    const struct bound_terms *terms = plan->terms;
    uint64_t hash = __builtin_expect(plan->alone, 1) ? hash_subject(&p->start, value) : hash_after_others(plan, value);
    struct window window;
    struct cells_taken taken;
    struct cells_ask ask = { key_mix(plan->limit_id, hash), &terms->limit, &window, now_us,
                             limit_cost_within(terms, cost) };
    cells_prefetch(bound->cells, ask.key);
    if (__builtin_expect(terms->limit.algorithm == LIMIT_CALENDAR, 0))
        window = limit_current_window(terms, now_us);
    bool fits = cells_take(bound->cells, &ask, &taken);
    if (__builtin_expect(!fits || !plan->same, 0))
        report_cell(p, bound, plan->rule, hash, &ask, &taken, fits, ret);
    else
        verdict_of_passed(&plan->passes, taken.state, now_us, p->request.brief, ret);
}

int weir_prepared_check(struct weir_prepared *p, struct weir_str value, uint64_t cost, int64_t now_us,
                        struct weir_verdict *ret_verdict)
{
    if (__builtin_expect(value.len == 0 || !clock_valid(now_us), 0))
        return check_ordinary(p, value, cost, now_us, ret_verdict);
    void **slot;
    const struct bound *bound = hazard_acquire_in((void *const *)&p->weir->current, &slot);
    if (__builtin_expect(!bound, 0))
        return check_ordinary(p, value, cost, now_us, ret_verdict);
    int r = 0;
    const struct prepared_plan *plan = plan_of(p, bound, now_us);
    if (__builtin_expect(plan && plan->kind == PREPARED_CELL && cost > 0 && !p->request.peek, 1)) {
        check_cell(p, bound, plan, value, cost, now_us, ret_verdict);
    } else if (!plan || plan->kind == PREPARED_ORDINARY || bound->remote) {
        hazard_release_in(slot);
        return check_ordinary(p, value, cost, now_us, ret_verdict);
    } else {
        r = check_rules(p, bound, plan, value, cost, now_us, ret_verdict);
    }
    hazard_release_in(slot);
    return r;
}

/* ---- preparing ---- */

/* Returns a number that no other prepared check of the handle has; PREPARED_MAX: all are in use. */
static unsigned take_number(struct weir *weir)
{
    for (unsigned part = 0; part < PREPARED_PARTS; part++) {
        uint64_t used = __atomic_load_n(&weir->prepared[part], __ATOMIC_RELAXED);
        while (~used) {
            unsigned bit = (unsigned)__builtin_ctzll(~used);
            if (__atomic_compare_exchange_n(&weir->prepared[part], &used, used | UINT64_C(1) << bit, false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                return part * PREPARED_PART + bit;
        }
    }
    return PREPARED_MAX;
}

/* The next one with this number must not find the plan of this one. Nobody uses that any more: it is only in the rules that
 * are in force, and in older ones, which nobody acquires from now on. */
static void leave_number(struct weir *weir, unsigned number)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return;
    struct prepared_part *part = part_of(bound, number);
    if (part)
        prepared_plan_free(__atomic_exchange_n(&part->plans[number % PREPARED_PART], NULL, __ATOMIC_ACQ_REL));
    hazard_release();
    __atomic_and_fetch(&weir->prepared[number / PREPARED_PART], ~(UINT64_C(1) << number % PREPARED_PART), __ATOMIC_ACQ_REL);
}

/* Returns NULL, or what a prepared check cannot do. */
static const char *why_not(const struct weir_request *r)
{
    if (r->with || r->own || r->own_shadow)
        return "requests that are decided together cannot be prepared; use weir_check";
    if (r->receipt || r->ttl_ms > 0 || r->shadows || r->usage || r->each_rule)
        return "a prepared check has only a verdict; for a receipt, a hold, shadows, usage or each_rule use weir_check";
    if (r->charging != WEIR_CHARGE_IF_ROOM || r->cost_count > 0)
        return "a prepared check charges one cost, in requests, if there is room; for others use weir_check";
    return NULL;
}

/* Returns NULL if out of memory. */
static const struct weir_header *copy_headers(struct arena *arena, const struct weir_header *from, size_t count)
{
    struct weir_header *to = ARENA_ARRAY(arena, struct weir_header, count + 1);
    for (size_t i = 0; to && i < count; i++) {
        to[i] = (struct weir_header){ arena_copy(arena, from[i].name), arena_copy(arena, from[i].value) };
        if (!to[i].name.ptr || !to[i].value.ptr)
            return NULL;
    }
    return to;
}

/* Returns false if out of memory. */
static bool copy_request(struct weir_prepared *p, const struct weir_request *from)
{
    struct weir_request *to = &p->request;
    *to = *from;
    request_set(to, p->varies, (sv){ 0 });
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        sv value = request_get(to, i);
        if (value.len == 0)
            continue;
        request_set(to, i, arena_copy(&p->arena, value));
        if (!request_get(to, i).ptr)
            return false;
    }
    to->peer_bytes = from->peer_bytes.len > 0 ? arena_copy(&p->arena, from->peer_bytes) : from->peer_bytes;
    if (from->peer_bytes.len > 0 && !to->peer_bytes.ptr)
        return false;
    to->headers = copy_headers(&p->arena, from->headers, from->header_count);
    to->descriptor = copy_headers(&p->arena, from->descriptor, from->descriptor_count);
    return to->headers && to->descriptor;
}

int weir_prepare(struct weir_prepared **ret, struct weir *weir, const struct weir_request *request, const char *varies,
                 struct weir_error *error)
{
    enum attribute attribute = attribute_find(weir_str(varies));
    const char *why = why_not(request);
    if (attribute != ATTR_KEY && attribute != ATTR_USER)
        why = "only `key` or `user` can vary";
    if (why)
        return err_set(error, WEIR_E_INVALID, "%s", why);
    struct weir_prepared *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    p->weir = weir;
    p->varies = attribute;
    p->number = PREPARED_MAX;
    hash_init(&p->start, cells_hash_key(weir->cells));
    int r = copy_request(p, request) ? 0 : err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    if (r == 0 && (p->number = take_number(weir)) == PREPARED_MAX)
        r = err_set(error, WEIR_E_INVALID, "%d prepared checks are in use; a handle has no more", PREPARED_MAX);
    if (r < 0) {
        weir_prepared_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

void weir_prepared_free(struct weir_prepared *p)
{
    if (!p)
        return;
    if (p->number < PREPARED_MAX)
        leave_number(p->weir, p->number);
    arena_done(&p->arena);
    free(p);
}
