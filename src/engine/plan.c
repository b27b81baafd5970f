/* The plan of a decision: one counter for each limit of each rule that applies. */
#include <stdlib.h>

#include "engine/handle.h"
#include "engine/hold.h"
#include "engine/keys.h"
#include "engine/named.h"
#include "engine/one_cell.h"
#include "engine/parts.h"
#include "engine/penalty.h"
#include "engine/remote.h"

enum { MATCHES_INLINE = 64 };

/* Starts loading the cells of counters before `loads`. */
static inline __attribute__((always_inline)) struct counter *
plan_rule(struct counter *c, const struct bound *bound, const struct bound_rule *rule, const struct bound_set *set,
          uint64_t subject, const struct weir_request *request, int64_t now_us, const struct counter *loads)
{
    for (size_t i = 0; i < set->limit_count; i++, c++) {
        const struct bound_limit *limit = &set->limits[i];
        counter_init(c, rule, limit, set->counter, subject, now_us, limit_cost(limit->terms, request));
        c->first = i == 0;
        if (set->counter == COUNTER_CELL && c < loads)
            cells_prefetch(bound->cells, c->ask.key);
    }
    return c;
}

/* ---- limits that requests bring ---- */

static bool brings_limit(const struct weir_request *request)
{
    return request->given_window_ms > 0;
}

/* Values above the maximum become the maximum. */
static void bring_limit(struct counter *c, const struct weir_request *request, int64_t now_us)
{
    const uint64_t longest_ms = LIMIT_PER_MAX_US / US_PER_MS;
    uint64_t max = request->given_max < LIMIT_MAX_MAX ? request->given_max : LIMIT_MAX_MAX;
    uint64_t window_ms = request->given_window_ms < longest_ms ? request->given_window_ms : longest_ms;
    limit_init(&c->numbers, LIMIT_CALENDAR, max, 0, 0);
    c->length_us = (int64_t)window_ms * US_PER_MS;
    c->given = true;
    c->window = counter_window(c, now_us);
    c->ask.limit = &c->numbers;
    c->ask.key = cell_key(c->limit, counter_subject(c));
}

/* An override has limits of its own. */
static void bring_limits(struct counter *from, const struct counter *end, const struct weir_request *request,
                         int64_t now_us)
{
    for (struct counter *c = from; c < end; c++)
        if (c->limit->terms->spec->given)
            bring_limit(c, request, now_us);
}

struct counter *decision_plan_set(struct counter *counters, const struct bound *bound, const struct bound_rule *rule,
                                  const struct bound_set *set, uint64_t subject, const struct weir_request *request,
                                  int64_t now_us)
{
    struct counter *end = plan_rule(counters, bound, rule, set, subject, request, now_us, counters + set->limit_count);
    if (rule->given)
        bring_limits(counters, end, request, now_us);
    return end;
}

/* ---- the counters of one request ---- */

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
        struct counter *end = decision_plan_set(c, bound, rule, set, subject, request, now_us);
        for (; c < end; c++)
            c->reading = (uint8_t)i;
    }
    facts_select_reading(facts, 0);
    return c;
}

/* Returns how many counters there are at most. */
static inline __attribute__((always_inline)) size_t count_limits(const struct bound *bound, const uint32_t *matches,
                                                                 size_t count, struct facts *facts)
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

/* Where each request meets another rule, what a decision reads of it comes from memory: the limit while the subject is
 * hashed, and a long id while the cell comes. */
static inline void load_rule(const struct bound_rule *rule)
{
    __builtin_prefetch(rule->own.limits);
    if (__builtin_expect(rule->name_len >= NAME_PIECE, 0))
        __builtin_prefetch(rule->long_name);
}

/* The same for a rule with any number of limits. The first one may be the second one in its cache line. */
static inline void load_rule_limits(const struct bound_rule *rule)
{
    enum { IN_A_LINE = 64 / sizeof(struct bound_limit) };
    load_rule(rule);
    for (size_t i = 1; i < rule->own.limit_count; i += IN_A_LINE)
        __builtin_prefetch(&rule->own.limits[i]);
}

/* The rules of one mode among those that match. subjects: of matched_subjects(), or NULL. several: the path has several
 * readings, and some rule counts by path. */
static struct counter *plan_mode(struct decision *d, struct counter *next, enum rule_mode mode, const uint32_t *matches,
                                 size_t count, const uint64_t *subjects, struct facts *facts, bool several, bool *remote)
{
    const struct bound *bound = d->bound;
    uint32_t class = UINT32_MAX;
    uint64_t subject = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bound_rule *rule = &bound->rules[matches[i]];
        if (rule->mode != mode)
            continue;
        load_rule_limits(rule);
        d->penalties |= rule->penalises;
        *remote = *remote || rule->counter != COUNTER_CELL;
        if (several && rule->by_path) {
            next = plan_readings(next, bound, rule, facts, d->request, d->now_us);
            continue;
        }
        if (subjects)
            subject = subjects[i];
        else if (rule->by_class != class)
            subject = subject_hash(bound, rule, facts);
        class = rule->by_class;
        const struct bound_set *set = bound_limits(bound, rule, facts, subject, d->now_us);
        struct counter *first = next;
        next = plan_rule(first, bound, rule, set, subject, d->request, d->now_us, d->counters + PLAN_LOADS);
        if (__builtin_expect(rule->special, 0)) {
            bring_limits(first, next, d->request, d->now_us);
            cells_prefetch(bound->cells, penalty_cell(rule, subject));
        }
    }
    return next;
}

/* The counters are made. */
static inline __attribute__((always_inline)) void plan_end(struct decision *d, bool several, bool remote, const sv *users)
{
    for (size_t i = 0; __builtin_expect(d->bound->units, 0) && i < d->count; i++)
        d->charges |= d->counters[i].ask.cost > 0;
    d->charges = d->charges && !d->request->peek;
    d->holds = false;
    if (__builtin_expect(d->insists, 0))
        parts_set_charging(d);
    if (several)
        parts_join(d);
    if (__builtin_expect(d->request->ttl_ms > 0 || d->bound->slots, 0))
        hold_plan(d);
    if (__builtin_expect(remote, 0))
        remote_init(d, users);
    else
        d->remote = NULL;
}

static void plan_fill(struct decision *d, const uint32_t *matches, size_t count, const uint64_t *subjects, size_t needed,
                      struct facts *facts, const sv *users)
{
    bool several = d->bound->by_path && facts_readings(facts) > 1, remote = false;
    d->penalties = false;
    struct counter *end = plan_mode(d, d->counters, MODE_ENFORCE, matches, count, subjects, facts, several, &remote);
    d->enforced = (size_t)(end - d->counters);
    if (d->enforced < needed)
        end = plan_mode(d, end, MODE_SHADOW, matches, count, subjects, facts, several, &remote);
    d->count = (size_t)(end - d->counters);
    d->matched = count > 0;
    d->charges = d->request->cost > 0;
    d->insists = d->request->charging != WEIR_CHARGE_IF_ROOM;
    plan_end(d, false, remote, users);
}

static void plan_begin(struct decision *d, const struct bound *bound, const struct weir_request *request, int64_t now_us)
{
    d->state = DECISION_TAKE;
    d->bound = bound;
    d->request = request;
    d->now_us = now_us;
    d->parts = 1;
    d->one_cell = false;
}

/* ---- rules that match ---- */

/* Numbers of rules. Most lists are short. */
struct numbers {
    uint32_t *list, few[MATCHES_INLINE];
    size_t count, cap;
};

static void numbers_init(struct numbers *n)
{
    n->list = n->few;
    n->count = 0;
    n->cap = MATCHES_INLINE;
}

static void numbers_done(struct numbers *n)
{
    if (n->list != n->few)
        free(n->list);
}

/* Keeps the contents of the list. Returns false if out of memory. */
static bool numbers_reserve(struct numbers *n, size_t cap)
{
    if (cap <= n->cap)
        return true;
    uint32_t *list = malloc(cap * sizeof *list);
    if (!list)
        return false;
    memcpy(list, n->list, n->count * sizeof *list);
    numbers_done(n);
    n->list = list;
    n->cap = cap;
    return true;
}

/* A rule whose limit the request brings does not apply to one that brings none. */
static void leave_out_given(const struct bound *bound, const struct weir_request *request, struct numbers *matches)
{
    size_t kept = 0;
    for (size_t i = 0; !brings_limit(request) && i < matches->count; i++)
        if (!bound->rules[matches->list[i]].given)
            matches->list[kept++] = matches->list[i];
    matches->count = brings_limit(request) ? matches->count : kept;
}

/* Also a rule that is replaced replaces others. */
static void leave_out_replaced(const struct bound *bound, const struct numbers *replacing, struct numbers *matches)
{
    size_t kept = 0;
    for (size_t i = 0; i < matches->count; i++) {
        size_t k = 0;
        while (k < replacing->count && !bound_replaces(&bound->rules[replacing->list[k]], matches->list[i]))
            k++;
        if (k == replacing->count)
            matches->list[kept++] = matches->list[i];
    }
    matches->count = kept;
}

/* Adds those that replace others. Returns false if out of memory. */
static bool gather_replacing(const struct bound *bound, const struct numbers *matches, struct numbers *replacing)
{
    if (!numbers_reserve(replacing, replacing->count + matches->count))
        return false;
    for (size_t i = 0; i < matches->count; i++)
        if (bound->rules[matches->list[i]].rest->replace_count > 0)
            replacing->list[replacing->count++] = matches->list[i];
    return true;
}

/* Returns false if out of memory. */
static bool find_matches(const struct bound *bound, struct facts *facts, int64_t now_us, struct numbers *ret)
{
    size_t count = ruleset_match(bound->ruleset, facts, now_us, ret->list, ret->cap);
    if (count > ret->cap) {
        ret->count = 0;
        if (!numbers_reserve(ret, count))
            return false;
        count = ruleset_match(bound->ruleset, facts, now_us, ret->list, count);
    }
    ret->count = __builtin_expect(facts->repeated.len > 0, 0) ? 0 : count;
    return true;
}

/* One rule, which nothing else can replace, and whose limit need not be brought. */
static bool stays_alone(const struct bound *bound, const uint32_t *list, size_t count)
{
    return count == 1 && !bound->rules[list[0]].given && bound->rules[list[0]].rest->replace_count == 0;
}

/* For a request that is decided alone: removes rules with given limits if it brings none, and rules that others replace.
 * Returns how many rules are left; SIZE_MAX: out of memory. */
static __attribute__((noinline)) size_t leave_out(const struct bound *bound, const struct weir_request *request,
                                                  uint32_t *list, size_t count)
{
    struct numbers replacing, matches = { .list = list, .count = count, .cap = count };
    numbers_init(&replacing);
    leave_out_given(bound, request, &matches);
    bool gathered = gather_replacing(bound, &matches, &replacing);
    if (gathered)
        leave_out_replaced(bound, &replacing, &matches);
    numbers_done(&replacing);
    return gathered ? matches.count : SIZE_MAX;
}

/* ---- room ---- */

/* There is too little room for the counters. Returns false if it stays so: *ret_needed is what decision_plan() says then.
 */
static __attribute__((noinline)) bool make_room(struct decision *d, size_t needed, size_t *ret_needed)
{
    *ret_needed = needed;
    if (!d->grows)
        return false;
    d->grown = malloc(needed * (sizeof *d->counters + sizeof *d->order));
    if (!d->grown) {
        *ret_needed = 0;
        return false;
    }
    d->counters = d->grown;
    d->order = (struct counter **)(d->counters + needed);
    d->cap = needed;
    return true;
}

/* ---- several requests ---- */

struct together {
    struct decision *d;
    const sv *users;
    struct facts facts;
    struct numbers matches, replacing;
    struct counter *next;
    size_t needed;
    bool remote, shadows;
};

/* The rules that apply to one request. Returns false if out of memory. */
static bool match_part(struct together *t, const struct weir_request *request, size_t part)
{
    const struct bound *bound = t->d->bound;
    facts_init(&t->facts, bound->ruleset, request, t->users[part]);
    if (!find_matches(bound, &t->facts, t->d->now_us, &t->matches))
        return false;
    if (t->facts.repeated.len > 0 && t->d->repeated.len == 0) {
        t->d->repeated = t->facts.repeated;
        t->d->repeated_part = part;
    }
    leave_out_given(bound, request, &t->matches);
    return true;
}

static void plan_part(struct together *t, const struct weir_request *request, size_t part, enum rule_mode mode)
{
    struct decision *d = t->d;
    struct counter *c = t->next;
    bool several = d->bound->by_path && facts_readings(&t->facts) > 1;
    d->request = request;
    d->matched |= (uint64_t)(t->matches.count > 0) << part;
    t->next = plan_mode(d, c, mode, t->matches.list, t->matches.count, NULL, &t->facts, several, &t->remote);
    for (; c < t->next; c++) {
        c->part = (uint8_t)part;
        c->charging = request->charging;
    }
}

/* Returns false if out of memory. */
static bool plan_parts(struct together *t, const struct weir_request *first, enum rule_mode mode)
{
    struct decision *d = t->d;
    size_t part = 0;
    for (const struct weir_request *request = first; request; request = request->with, part++) {
        if (!match_part(t, request, part))
            return false;
        leave_out_replaced(d->bound, &t->replacing, &t->matches);
        for (size_t i = 0; i < t->matches.count; i++)
            t->shadows = t->shadows || d->bound->rules[t->matches.list[i]].mode == MODE_SHADOW;
        if (mode == MODE_ENFORCE)
            t->needed += count_limits(d->bound, t->matches.list, t->matches.count, &t->facts);
        if (t->needed <= d->cap)
            plan_part(t, request, part, mode);
    }
    return true;
}

/* All requests must be matched before it is known which rules are replaced. */
static bool gather_parts(struct together *t, const struct weir_request *first)
{
    size_t part = 0;
    bool good = true;
    for (const struct weir_request *request = first; good && request; request = request->with, part++)
        good = match_part(t, request, part) && gather_replacing(t->d->bound, &t->matches, &t->replacing);
    return good;
}

/* Plans the enforced rules of all parts. If there is too little room, it is known only at the end, so that they are planned
 * again. */
static bool plan_enforced(struct together *t, const struct weir_request *first)
{
    struct decision *d = t->d;
    if ((d->bound->replaces && !gather_parts(t, first)) || !plan_parts(t, first, MODE_ENFORCE)) {
        t->needed = 0;
        return false;
    }
    if (t->needed <= d->cap)
        return true;
    if (!make_room(d, t->needed, &t->needed))
        return false;
    t->next = d->counters;
    t->needed = 0;
    d->penalties = false;
    if (plan_parts(t, first, MODE_ENFORCE))
        return true;
    t->needed = 0;
    return false;
}

static bool plan_all(struct together *t, const struct weir_request *first)
{
    struct decision *d = t->d;
    if (!plan_enforced(t, first))
        return false;
    d->enforced = (size_t)(t->next - d->counters);
    if (t->shadows && !plan_parts(t, first, MODE_SHADOW)) {
        t->needed = 0;
        return false;
    }
    d->count = (size_t)(t->next - d->counters);
    d->request = first;
    d->charges = d->insists = false;
    d->parts = 0;
    for (const struct weir_request *request = first; request; request = request->with, d->parts++) {
        d->charges = d->charges || request->cost > 0;
        d->insists = d->insists || request->charging != WEIR_CHARGE_IF_ROOM;
    }
    if (d->repeated.len > 0)
        d->enforced = d->count = 0;
    plan_end(d, true, t->remote && d->count > 0, t->users);
    return true;
}

static __attribute__((noinline)) bool plan_together(struct decision *d, const struct bound *bound,
                                                    const struct weir_request *first, const sv *users, int64_t now_us,
                                                    size_t *ret_needed)
{
    struct together t;
    plan_begin(d, bound, first, now_us);
    t.d = d;
    t.users = users;
    t.next = d->counters;
    t.needed = 0;
    t.remote = t.shadows = false;
    numbers_init(&t.matches);
    numbers_init(&t.replacing);
    d->penalties = false;
    d->matched = 0;
    d->repeated = (sv){ 0 };
    d->repeated_part = 0;
    bool planned = plan_all(&t, first);
    numbers_done(&t.matches);
    numbers_done(&t.replacing);
    if (!planned)
        *ret_needed = t.needed;
    return planned;
}

/* ---- the whole ---- */

/* These are the rules that apply. */
static inline __attribute__((always_inline)) bool plan_rules(struct decision *d, const struct bound *bound,
                                                             const struct matched *m, struct facts *facts, const sv *users,
                                                             size_t *ret_needed)
{
    size_t needed = count_limits(bound, m->rules, m->rule_count, facts);
    if (__builtin_expect(needed > d->cap, 0) && !make_room(d, needed, ret_needed))
        return false;
    plan_begin(d, bound, m->request, m->now_us);
    d->repeated = facts->repeated;
    plan_fill(d, m->rules, m->rule_count, m->subjects, needed, facts, users);
    return true;
}

bool decision_plan(struct decision *d, const struct bound *bound, const struct weir_request *request, const sv *users,
                   int64_t now_us, size_t *ret_needed)
{
    struct facts facts;
    uint32_t inline_matches[MATCHES_INLINE], *matches = inline_matches;
    if (__builtin_expect(request->with != NULL, 0))
        return plan_together(d, bound, request, users, now_us, ret_needed);
    facts_init(&facts, bound->ruleset, request, *users);
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
    if (__builtin_expect(bound->leaves_out, 0) && !stays_alone(bound, matches, count) &&
        (count = leave_out(bound, request, matches, count)) == SIZE_MAX) {
        if (matches != inline_matches)
            free(matches);
        *ret_needed = 0;
        return false;
    }
    if (count == 1 && matches == inline_matches && bound->rules[*matches].one_cell && d->cap > 0 &&
        request_may_be_one_cell(request)) {
        const struct bound_rule *rule = &bound->rules[*matches];
        load_rule(rule);
        decision_plan_cell(d, bound, request, rule, subject_hash(bound, rule, &facts), request->cost, now_us);
        cells_prefetch(bound->cells, d->counters->ask.key);
        return true;
    }
    const struct matched found = { .request = request, .now_us = now_us, .rules = matches, .rule_count = count };
    bool fits = plan_rules(d, bound, &found, &facts, users, ret_needed);
    if (matches != inline_matches)
        free(matches);
    return fits;
}

bool decision_plan_matched(struct decision *d, const struct bound *bound, const struct matched *m, size_t *ret_needed)
{
    struct facts facts;
    const sv *user = &m->request->user;
    if (__builtin_expect(bound->leaves_out || m->repeated.len > 0, 0))
        return decision_plan(d, bound, m->request, user, m->now_us, ret_needed);
    facts_init(&facts, bound->ruleset, m->request, *user);
    return plan_rules(d, bound, m, &facts, user, ret_needed);
}

void matched_subjects(const struct bound *bound, struct facts *facts, const uint32_t *rules, size_t count,
                      uint64_t *ret_subjects)
{
    uint32_t class = UINT32_MAX;
    uint64_t subject = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bound_rule *rule = &bound->rules[rules[i]];
        if (rule->by_class != class)
            subject = subject_hash(bound, rule, facts);
        class = rule->by_class;
        ret_subjects[i] = subject;
    }
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

struct decision *decision_new(struct weir *weir, const struct bound *bound, const struct weir_request *request,
                              const sv *users, int64_t now_us, size_t cap)
{
    for (;;) {
        void *memory = cap ? malloc(DECISION_BYTES(cap)) : NULL;
        if (!memory)
            return NULL;
        struct decision *d = decision_init(memory, cap, weir);
        if (decision_plan(d, bound, request, users, now_us, &cap))
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
    plan_begin(d, bound, request, now_us);
    d->count = d->enforced =
        (size_t)(plan_rule(d->counters, bound, named->rule, set, named->hash, request, now_us, d->counters + d->cap) -
                 d->counters);
    remote_init(d, &(sv){ 0 });
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
