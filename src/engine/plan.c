/* The plan of a decision: one counter for each limit of each rule that applies. */
#include <stdlib.h>

#include "engine/decision.h"
#include "engine/hold.h"
#include "engine/keys.h"
#include "engine/named.h"
#include "engine/penalty.h"
#include "engine/remote.h"

enum { MATCHES_INLINE = 64 };

static inline __attribute__((always_inline)) struct counter *plan_rule(struct counter *c, const struct bound *bound,
                                                                       const struct bound_rule *rule,
                                                                       const struct bound_set *set, uint64_t subject,
                                                                       const struct weir_request *request, int64_t now_us)
{
    for (size_t i = 0; i < set->limit_count; i++, c++) {
        const struct bound_limit *limit = &set->limits[i];
        c->rule = rule;
        c->limit = limit;
        c->subject = subject;
        c->kind = set->counter;
        c->held = c->on_hold = false;
        c->reading = 0;
        c->penalty = PENALTY_NONE;
        if (limit->limit.algorithm == LIMIT_CALENDAR)
            c->window = limit_current_window(limit, now_us);
        c->ask =
            (struct cells_ask){ cell_key(limit, subject), &limit->limit, &c->window, now_us, limit_cost(limit, request) };
        if (set->counter == COUNTER_CELL)
            cells_prefetch(bound->cells, c->ask.key);
    }
    return c;
}

/* A rule by path for a path that has several readings: the limits once for each reading that the rule matches, with the
 * subject that it has there, and the limits of that subject. One of them is the subject as the server that serves the
 * request reads it. */
static __attribute__((noinline)) struct counter *plan_readings(struct counter *c, const struct bound *bound,
                                                               const struct bound_rule *rule, struct facts *facts,
                                                               const struct weir_request *request, int64_t now_us)
{
    struct counter *first = c;
    for (size_t i = 0; i < facts_readings(facts); i++) {
        facts_select_reading(facts, i);
        if (!ruleset_reads(bound->ruleset, (size_t)(rule - bound->rules), facts))
            continue;
        uint64_t subject = subject_hash(bound, rule, facts);
        const struct bound_set *set = bound_limits(bound, rule, facts, subject, now_us);
        const struct counter *same = first;
        while (same < c && (same->subject != subject || same->limit != set->limits))
            same++;
        if (same < c)
            continue;
        struct counter *end = plan_rule(c, bound, rule, set, subject, request, now_us);
        for (; c < end; c++)
            c->reading = (uint8_t)i;
    }
    facts_select_reading(facts, 0);
    return c;
}

/* Returns how many counters there are at most. */
static size_t count_limits(const struct bound *bound, const uint32_t *matches, size_t count, struct facts *facts)
{
    size_t needed = 0;
    size_t readings = bound->by_path && count > 0 ? facts_readings(facts) : 1;
    for (size_t i = 0; i < count; i++)
        needed += bound->rules[matches[i]].limit_most;
    for (size_t i = 0; readings > 1 && i < count; i++)
        if (bound->rules[matches[i]].by_path)
            needed += bound->rules[matches[i]].limit_most * (readings - 1);
    return needed;
}

/* The rules of one mode among those that match. several: the path has several readings, and some rule counts by path. */
static struct counter *plan_mode(struct decision *d, struct counter *next, enum rule_mode mode, const uint32_t *matches,
                                 size_t count, struct facts *facts, bool several, bool *remote)
{
    const struct bound *bound = d->bound;
    uint32_t class = UINT32_MAX;
    uint64_t subject = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bound_rule *rule = &bound->rules[matches[i]];
        if (rule->mode != mode)
            continue;
        d->penalties |= rule->penalises;
        *remote = *remote || rule->counter != COUNTER_CELL;
        if (several && rule->by_path) {
            next = plan_readings(next, bound, rule, facts, d->request, d->now_us);
            continue;
        }
        if (rule->by_class != class)
            subject = subject_hash(bound, rule, facts);
        class = rule->by_class;
        const struct bound_set *set = bound_limits(bound, rule, facts, subject, d->now_us);
        next = plan_rule(next, bound, rule, set, subject, d->request, d->now_us);
        if (__builtin_expect(rule->penalises, 0))
            cells_prefetch(bound->cells, penalty_cell(rule, subject));
    }
    return next;
}

static void plan_fill(struct decision *d, const uint32_t *matches, size_t count, size_t needed, struct facts *facts,
                      sv user)
{
    bool several = d->bound->by_path && facts_readings(facts) > 1, remote = false;
    d->penalties = false;
    struct counter *end = plan_mode(d, d->counters, MODE_ENFORCE, matches, count, facts, several, &remote);
    d->enforced = (size_t)(end - d->counters);
    if (d->enforced < needed)
        end = plan_mode(d, end, MODE_SHADOW, matches, count, facts, several, &remote);
    d->count = (size_t)(end - d->counters);
    d->charges = d->request->cost > 0;
    for (size_t i = 0; __builtin_expect(d->bound->units, 0) && i < d->count; i++)
        d->charges |= d->counters[i].ask.cost > 0;
    d->charges = d->charges && !d->request->peek;
    d->holds = false;
    if (__builtin_expect(d->request->ttl_ms > 0 || d->bound->slots, 0))
        hold_plan(d);
    if (__builtin_expect(remote, 0))
        remote_init(d, user);
    else
        d->remote = NULL;
}

bool decision_plan(struct decision *d, const struct bound *bound, const struct weir_request *request, sv user,
                   int64_t now_us, size_t *ret_needed)
{
    struct facts facts;
    uint32_t inline_matches[MATCHES_INLINE], *matches = inline_matches;
    facts_init(&facts, bound->ruleset, request, user);
    size_t count = ruleset_match(bound->ruleset, &facts, now_us, matches, MATCHES_INLINE);
    if (count > MATCHES_INLINE) {
        matches = malloc(count * sizeof *matches);
        if (!matches) {
            *ret_needed = 0;
            return false;
        }
        count = ruleset_match(bound->ruleset, &facts, now_us, matches, count);
    }
    if (__builtin_expect(facts.repeated.len > 0, 0))
        count = 0;
    size_t needed = count_limits(bound, matches, count, &facts);
    bool fits = needed <= d->cap;
    if (fits) {
        d->state = DECISION_TAKE;
        d->bound = bound;
        d->request = request;
        d->now_us = now_us;
        d->repeated = facts.repeated;
        plan_fill(d, matches, count, needed, &facts, user);
    } else {
        *ret_needed = needed;
    }
    if (matches != inline_matches)
        free(matches);
    return fits;
}

/* ---- memory ---- */

/* Arrays whose members contain 16-byte words come first. */
struct decision *decision_init(void *memory, size_t cap, struct weir *weir)
{
    struct counter *counters = memory;
    struct decision *d = (struct decision *)(counters + cap);
    struct remote *r = (struct remote *)(d + 1);
    *r = (struct remote){ .weir = weir, .counters = (struct remote_counter *)(r + 1) };
    r->cells = (struct store_cell *)(r->counters + cap);
    r->call.rules = (struct store_rule *)(r->cells + cap);
    *d = (struct decision){ .counters = counters, .cap = cap, .remote = r };
    d->order = (struct counter **)(r->call.rules + cap);
    return d;
}

struct decision *decision_new(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                              int64_t now_us, size_t cap)
{
    for (;;) {
        void *memory = cap ? malloc(DECISION_BYTES(cap)) : NULL;
        if (!memory)
            return NULL;
        struct decision *d = decision_init(memory, cap, weir);
        if (decision_plan(d, bound, request, user, now_us, &cap))
            return d;
        free(memory);
    }
}

struct decision *decision_new_for(struct weir *weir, const struct bound *bound, const struct named *named,
                                  const struct bound_set *set, const struct weir_request *request, int64_t now_us)
{
    void *memory = malloc(DECISION_BYTES(set->limit_count));
    if (!memory)
        return NULL;
    struct decision *d = decision_init(memory, set->limit_count, weir);
    d->state = DECISION_TAKE;
    d->bound = bound;
    d->request = request;
    d->now_us = now_us;
    d->count = d->enforced =
        (size_t)(plan_rule(d->counters, bound, named->rule, set, named->hash, request, now_us) - d->counters);
    remote_init(d, (sv){ 0 });
    struct remote_counter *first = d->remote->counters;
    first->key_len = key_write(first->key, named->rule, named->values);
    return d;
}

void decision_free(struct decision *d)
{
    if (d->remote)
        remote_release_rules(d);
    free(d->counters);
}
