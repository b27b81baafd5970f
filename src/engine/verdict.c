#include "engine/verdict.h"

#include "engine/counter.h"
#include "engine/remote.h"

static int64_t ms_up(int64_t us)
{
    return us < 0 ? us : (us + US_PER_MS - 1) / US_PER_MS;
}

/* In pieces that overlap at the end: names are short, and a call would cost more than they do. */
static inline void copy_text(char *to, size_t cap, sv from)
{
    enum { PIECE = 16 };
    size_t n = from.len < cap - 1 ? from.len : cap - 1, done = 0;
    for (; done + PIECE <= n; done += PIECE)
        memcpy(to + done, from.ptr + done, PIECE);
    if (n >= PIECE)
        memcpy(to + n - PIECE, from.ptr + n - PIECE, PIECE);
    else if (n > 8)
        memcpy(to, from.ptr, 8), memcpy(to + n - 8, from.ptr + n - 8, 8);
    else if (n >= 4)
        memcpy(to, from.ptr, 4), memcpy(to + n - 4, from.ptr + n - 4, 4);
    else
        for (; done < n; done++)
            to[done] = from.ptr[done];
    to[n] = '\0';
}

void verdict_blank(struct weir_verdict *v)
{
    v->allowed = v->applied = v->unavailable = v->matched = v->penalty = v->unnamed = false;
    v->status = 0;
    v->max = v->remaining = v->debt = 0;
    v->shadow_count = v->private_rule = 0;
    v->reset_ms = v->retry_after_ms = v->window_ms = v->window_end_ms = 0;
    v->rule[0] = v->limit[0] = v->unit[0] = '\0';
    v->private_rules = 0;
}

void verdict_unjudged(struct weir_verdict *v, const struct weir_request *request)
{
    verdict_blank(v);
    if (request)
        request_clear(request);
    v->status = 503;
}

void verdict_repeated(struct weir_verdict *v, sv header)
{
    verdict_blank(v);
    v->status = WEIR_BAD_REQUEST;
    v->retry_after_ms = WEIR_NEVER;
    copy_text(v->limit, sizeof v->limit, header);
}

/* Few names are longer than three pieces, which fit everywhere. */
enum { NAME_PIECES = 3 };
_Static_assert(NAME_PIECES *NAME_PIECE <= WEIR_NAME_MAX + 1 && NAME_PIECES * NAME_PIECE <= WEIR_ID_MAX + 1, "they fit");

/* The same for a name that is followed by zeros: see NAME_PIECE. */
static inline void copy_name(char *to, size_t cap, const char *from, size_t len)
{
    if (__builtin_expect(len >= NAME_PIECES * NAME_PIECE, 0)) {
        copy_text(to, cap, sv_of(from, len));
        return;
    }
    for (size_t done = 0; done <= len; done += NAME_PIECE)
        memcpy(to + done, from + done, NAME_PIECE);
}

/* All of the verdict. A brief one says nothing about the limit's numbers. */
LIMIT_HOT void name_limit(const struct decision *d, const struct counter *c, const struct limit_report *report)
{
    struct weir_verdict *v = d->verdict;
    const struct bound_terms *terms = c->limit->terms;
    v->allowed = d->allowed;
    v->applied = v->matched = true;
    v->unavailable = false;
    v->penalty = c->penalty != PENALTY_NONE;
    v->unnamed = terms->unnamed;
    v->status = d->allowed ? 0 : c->rule->status;
    v->max = c->ask.limit->capacity;
    v->remaining = report->remaining;
    v->debt = c->ask.limit->overdraft ? report->debt : 0; /* others were lowered, or charged afterwards */
    bool calendar = c->ask.limit->algorithm == LIMIT_CALENDAR;
    v->window_end_ms = calendar ? ms_up(c->window.end_us - c->ask.now_us) : 0;
    v->reset_ms = v->retry_after_ms = v->window_ms = 0;
    if (!d->allowed)
        v->retry_after_ms = ms_up(report->retry_after_us);
    if (!d->allowed || !d->request->brief) {
        v->reset_ms = ms_up(report->reset_us);
        v->window_ms = ms_up(limit_window_us(c->ask.limit, &c->window));
    }
    v->shadow_count = 0;
    v->private_rule = (uint32_t)(c->rule - d->bound->rules);
    v->private_rules = d->bound->version | (uint64_t)c->reading << VERDICT_VERSION_BITS;
    if (__builtin_expect(c->rule->name_len < NAME_PIECE, 1))
        memcpy(v->rule, c->rule->name, NAME_PIECE);
    else
        copy_name(v->rule, sizeof v->rule, c->rule->long_name, c->rule->name_len);
    copy_name(v->limit, sizeof v->limit, terms->name, terms->name_len);
    v->unit[0] = '\0';
    if (__builtin_expect(terms->counts_other, 0))
        copy_text(v->unit, sizeof v->unit, terms->spec->cost_unit);
}

static bool longer(int64_t a_us, int64_t b_us)
{
    return b_us != LIMIT_NEVER_US && (a_us == LIMIT_NEVER_US || a_us > b_us);
}

/* Refused: returns the limit with the longest wait among these; the first of equals. */
static const struct counter *longest_wait(const struct counter *counters, size_t count, struct limit_report *ret)
{
    const struct counter *named = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct counter *c = &counters[i];
        if (c->outcome == COUNTER_FITS)
            continue;
        struct limit_report report = counter_report(c, limit_needs(c->ask.limit, c->ask.cost));
        if (!named || longer(report.retry_after_us, ret->retry_after_us)) {
            named = c;
            *ret = report;
        }
    }
    return named;
}

/* Allowed: returns the limit with the least left; the first of equals; NULL if there is none. */
static const struct counter *least_left(const struct decision *d)
{
    const struct counter *named = NULL;
    uint64_t least = 0;
    if (d->enforced == 1)
        return d->counters;
    for (size_t i = 0; i < d->enforced; i++) {
        const struct counter *c = &d->counters[i];
        uint64_t remaining = counter_remaining(c);
        if (!named || remaining < least) {
            named = c;
            least = remaining;
        }
    }
    return named;
}

/* Nothing is left while a penalty lasts. The limit that is named is the first of those that count for the subject. */
static void name_penalty(const struct decision *d)
{
    name_limit(d, d->penalised, &(struct limit_report){ .reset_us = d->penalty_us, .retry_after_us = d->penalty_us });
}

void verdict_fill(const struct decision *d)
{
    struct limit_report report = { 0 };
    const struct counter *named = d->allowed ? least_left(d) : longest_wait(d->counters, d->enforced, &report);
    if (__builtin_expect(d->penalties, 0) && !d->allowed && d->penalised &&
        (!named || !longer(report.retry_after_us, d->penalty_us))) {
        name_penalty(d);
        return;
    }
    if (!named) {
        verdict_blank(d->verdict);
        d->verdict->allowed = d->allowed;
        d->verdict->matched = d->matched != 0;
        return;
    }
    if (d->allowed && !d->request->brief)
        report = counter_report(named, 0);
    name_limit(d, named, &report);
}

void verdict_of_cell(const struct decision *d)
{
    const struct counter *c = d->counters;
    struct limit_report report = { 0 };
    if (!d->allowed)
        report = counter_report(c, limit_needs(c->ask.limit, c->ask.cost));
    else if (!d->request->brief)
        report = counter_report(c, 0);
    name_limit(d, c, &report);
}

void verdict_like_init(struct verdict_like *like, const struct limit *limit)
{
    size_t rule = strlen(like->verdict.rule) / NAME_PIECE + 1, name = strlen(like->verdict.limit) / NAME_PIECE + 1;
    bool is_short = rule <= NAME_PIECES && name <= NAME_PIECES;
    like->limit = limit;
    like->rule_pieces = is_short ? (uint8_t)rule : 0;
    like->limit_pieces = is_short ? (uint8_t)name : 0;
}

void verdict_add_left(struct weir_verdict *verdict, const struct limit *limit, struct limit_state state, int64_t now_us)
{
    struct limit_report report = limit_report(limit, NULL, state, now_us, 0);
    verdict->remaining = report.remaining;
    verdict->debt = limit->overdraft ? report.debt : 0;
    verdict->reset_ms = ms_up(report.reset_us);
}

static bool denies(const struct decision *d, const struct counter *c)
{
    return c->kind == COUNTER_STANDIN && remote_of(d, c)->standin == ON_FAILURE_DENY;
}

/* Refused because the store is unavailable: the verdict names a rule that denies then, not one that has no room. */
static void report_denied(struct decision *d)
{
    enum { DENIED_RETRY_MS = 1000 };
    for (size_t i = 0; i < d->enforced; i++)
        d->counters[i].outcome = denies(d, &d->counters[i]) ? COUNTER_REFUSES : COUNTER_FITS;
    d->penalised = NULL;
    verdict_fill(d);
    d->verdict->status = 503;
    d->verdict->unavailable = true;
    d->verdict->remaining = 0;
    d->verdict->retry_after_ms = DENIED_RETRY_MS;
}

void verdict_refuse(struct decision *d)
{
    for (size_t i = 0; d->remote && i < d->enforced; i++)
        if (denies(d, &d->counters[i])) {
            report_denied(d);
            return;
        }
    verdict_fill(d);
}

void verdict_of_shadows(const struct decision *d, struct weir_verdict *ret, size_t from, size_t end)
{
    struct decision shadows;
    if (from == end) {
        verdict_blank(ret);
        ret->allowed = true;
        return;
    }
    shadows = *d;
    shadows.verdict = ret;
    shadows.counters = d->counters + from;
    shadows.count = shadows.enforced = end - from;
    shadows.matched = 1;
    shadows.penalised = NULL;
    shadows.allowed = true;
    for (size_t i = from; i < end; i++)
        shadows.allowed = shadows.allowed && d->counters[i].outcome != COUNTER_REFUSES;
    verdict_fill(&shadows);
}

/* Returns by how much this request exceeded the max of a limit. Something was left before, so all of the debt is this
 * request's. */
static uint64_t overdrawn(const struct counter *c)
{
    return c->held && c->ask.limit->overdraft ? counter_report(c, 0).debt : 0;
}

/* Calls request->each_rule for the rule that has these counters. */
static inline __attribute__((always_inline)) void tell_rule(const struct decision *d, const struct counter *counters,
                                                            size_t count, enum weir_said says, enum weir_penalty penalty,
                                                            uint64_t debt)
{
    struct weir_rule_said said = {
        .rule = counters->rule->rule->id,
        .said = says,
        .overdrawn = debt,
        .private_rule = (uint32_t)(counters->rule - d->bound->rules),
        .private_rules = d->bound->version,
        .penalty = penalty,
    };
    if (__builtin_expect(says != WEIR_SAYS_PASS, 0) && penalty != WEIR_PENALTY_RUNS) {
        struct limit_report report = { 0 };
        said.limit = limit_name(longest_wait(counters, count, &report)->limit);
    }
    d->request->each_rule(&said, d->request->context);
}

void verdict_rule_of_cell(const struct decision *d)
{
    const struct counter *c = d->counters;
    tell_rule(d, c, 1, c->outcome == COUNTER_REFUSES ? WEIR_SAYS_REFUSE : WEIR_SAYS_PASS, WEIR_PENALTY_NONE, overdrawn(c));
}

void verdict_each_rule(const struct decision *d)
{
    for (size_t i = 0, end; i < d->count; i = end) {
        const struct counter *first = &d->counters[i];
        bool refuses = false, runs = false, begins = false;
        uint64_t debt = 0;
        for (end = i; end < d->count && d->counters[end].rule == first->rule; end++) {
            refuses |= d->counters[end].outcome == COUNTER_REFUSES;
            debt += overdrawn(&d->counters[end]);
            runs |= d->counters[end].penalty == PENALTY_RUNS;
            begins |= d->counters[end].penalty == PENALTY_BEGINS;
        }
        enum weir_said says = WEIR_SAYS_PASS;
        if (runs || refuses)
            says = runs || i < d->enforced ? WEIR_SAYS_REFUSE : WEIR_SAYS_WOULD_REFUSE;
        enum weir_penalty penalty = begins ? WEIR_PENALTY_BEGINS : WEIR_PENALTY_NONE;
        tell_rule(d, first, end - i, says, runs ? WEIR_PENALTY_RUNS : penalty, debt);
    }
}

void verdict_add_shadow(struct weir_verdict *verdict, struct weir_shadows *shadows, const struct bound_rule *rule)
{
    if (shadows && shadows->count < WEIR_SHADOW_MAX)
        copy_text(shadows->names[shadows->count++], sizeof shadows->names[0], rule->rule->id);
    verdict->shadow_count++;
}

const struct bound_rule *verdict_rule(const struct bound *bound, const struct weir_verdict *v)
{
    size_t i = v->private_rule;
    /* The verdict may be of older rules, or of another handle. */
    if (verdict_version(v) == bound->version && i < ruleset_rules(bound->ruleset)->rule_count &&
        sv_eq(bound->rules[i].rule->id, weir_str(v->rule)))
        return &bound->rules[i];
    return bound_find(bound, weir_str(v->rule));
}
