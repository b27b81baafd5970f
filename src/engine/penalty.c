/* Penalties. A cell for each rule and subject counts refusals, and then remembers the penalty:
 *
 *   time: end of the last penalty    data: level 6 · refusals 16 · start of their window, in units of 1024 µs 42
 *
 * The window of refusals opens with the first one and lasts `within`, as a fixed window does. `after` refusals in it begin
 * a penalty, and the next window opens with the first refusal after its end: refusals during a penalty write nothing. The
 * level counts penalties in a row. It is forgotten `most` after the end of the last one; where penalties do not grow, at
 * its end.
 *
 * A penalty that ends later than its whole length from now on was begun by a clock that was set back since, or by numbers
 * of the rule that were changed since. It is cut to that length: nobody is refused for longer than a penalty lasts. The
 * window of refusals is moved in the same way, with its count kept.
 *
 * A penalty that a person began has its own length, which is kept where the window of refusals was: nobody counts refusals
 * while it runs. BY_HAND in place of their number marks it. Programs of an earlier version take that for a window that is
 * over, and cut the penalty to the rule's length.
 *
 * In a full table these cells are dropped before the counts of subjects that have used more than half of a limit, and after
 * those that have used less: a flood of new subjects lifts no penalty, and a crowd of penalised ones does not push out
 * counts that refuse. A dropped cell loses a penalty, not a count: the limits hold without it. */
#include "engine/penalty.h"

#include "base/check.h"
#include "base/err.h"
#include "engine/counter.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/named.h"

enum { SINCE_BITS = 42, SINCE_SHIFT = 10, COUNT_BITS = 16, SHARE = LIMIT_SHARES / 2 };
#define SINCE_MASK ((UINT64_C(1) << SINCE_BITS) - 1)
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)

_Static_assert(SINCE_BITS + SINCE_SHIFT == CLOCK_BITS, "every time fits");

#define BY_HAND COUNT_MASK /* more than `after` can be */

/* ---- the state ---- */

struct record {
    int64_t end_us; /* of the last penalty, if level > 0 */
    unsigned level;
    unsigned count;
    int64_t since_us;  /* start of the window, if count > 0 */
    int64_t length_us; /* of a penalty that runs and that a person began; else 0 */
};

static struct record record_of(struct limit_state state)
{
    uint64_t count = state.data >> SINCE_BITS & COUNT_MASK;
    int64_t us = (int64_t)((state.data & SINCE_MASK) << SINCE_SHIFT);
    return (struct record){ .end_us = (int64_t)state.time,
                            .level = (unsigned)(state.data >> (SINCE_BITS + COUNT_BITS)),
                            .count = count == BY_HAND ? 0 : (unsigned)count,
                            .since_us = us,
                            .length_us = count == BY_HAND ? us : 0 };
}

static struct limit_state state_of(const struct record *r)
{
    uint64_t count = r->length_us > 0 ? BY_HAND : r->count;
    uint64_t us = (uint64_t)(r->length_us > 0 ? r->length_us : r->since_us);
    return (struct limit_state){ (uint64_t)r->end_us, (uint64_t)r->level << (SINCE_BITS + COUNT_BITS) |
                                                          count << SINCE_BITS | us >> SINCE_SHIFT };
}

int64_t penalty_length_us(const struct rule_penalty *penalty, unsigned level)
{
    int64_t us = penalty->for_us;
    for (unsigned i = 1; i < level && penalty->grow > 1 && us < penalty->most_us; i++)
        us = us > penalty->most_us / penalty->grow ? penalty->most_us : us * penalty->grow;
    return us < penalty->most_us ? us : penalty->most_us;
}

static int64_t memory_us(const struct rule_penalty *penalty)
{
    return penalty->grow > 1 ? penalty->most_us : 0;
}

/* Makes the record what it means at this time. Returns whether a time in it was moved, because it is too far ahead. */
static bool bring_to(struct record *r, const struct rule_penalty *penalty, int64_t now_us)
{
    bool moved = false;
    int64_t length_us = r->length_us > 0 ? r->length_us : penalty_length_us(penalty, r->level);
    if (r->level == 0 || now_us >= r->end_us)
        r->length_us = 0;
    if (r->level > 0 && r->end_us - now_us > length_us) {
        r->end_us = clock_within(now_us + length_us);
        moved = true;
    }
    if (r->level > 0 && now_us >= r->end_us && now_us - r->end_us >= memory_us(penalty)) {
        r->level = 0;
        r->end_us = 0;
    }
    if (r->count > 0 && r->since_us - now_us > penalty->within_us) {
        r->since_us = now_us;
        moved = true;
    }
    if (r->count > 0 && now_us - r->since_us >= penalty->within_us)
        r->count = 0;
    return moved;
}

static struct penalty_view view_of(const struct record *r, int64_t now_us)
{
    return (struct penalty_view){ .rest_us = r->level > 0 && r->end_us > now_us ? r->end_us - now_us : 0,
                                  .level = r->level,
                                  .refused = r->count,
                                  .by_hand = r->length_us > 0 };
}

static struct cells_change change_to(const struct record *r, const struct rule_penalty *penalty)
{
    int64_t decays_us = r->level > 0 ? r->end_us + memory_us(penalty) : 0;
    if (r->count > 0 && r->since_us + penalty->within_us > decays_us)
        decays_us = r->since_us + penalty->within_us;
    return (struct cells_change){ .writes = true,
                                  .next = state_of(r),
                                  .outlook = { .decays_us = clock_within(decays_us), .share = SHARE } };
}

/* ---- the cell ---- */

struct question {
    const struct rule_penalty *penalty;
    int64_t now_us;
    struct penalty_view view;
    bool begins;
    int64_t length_us; /* of a penalty that a person begins */
};

static struct cells_change judge_moved(struct limit_state state, void *data)
{
    struct question *q = data;
    struct record r = record_of(state);
    bool moved = bring_to(&r, q->penalty, q->now_us);
    q->view = view_of(&r, q->now_us);
    return moved ? change_to(&r, q->penalty) : (struct cells_change){ 0 };
}

static struct cells_change judge_refusal(struct limit_state state, void *data)
{
    struct question *q = data;
    struct record r = record_of(state);
    bring_to(&r, q->penalty, q->now_us);
    q->view = view_of(&r, q->now_us);
    q->begins = false;
    if (q->view.rest_us > 0) /* another thread or process was quicker */
        return (struct cells_change){ 0 };
    if (r.count == 0)
        r.since_us = q->now_us;
    if (++r.count >= q->penalty->after) {
        r.count = 0;
        r.level += r.level < PENALTY_LEVEL_MAX;
        r.end_us = clock_within(q->now_us + penalty_length_us(q->penalty, r.level));
        q->begins = true;
    }
    q->view = view_of(&r, q->now_us);
    return change_to(&r, q->penalty);
}

/* One that runs already is replaced, and counts as the same: who asks twice has asked once. */
static struct cells_change judge_begin(struct limit_state state, void *data)
{
    struct question *q = data;
    struct record r = record_of(state);
    bring_to(&r, q->penalty, q->now_us);
    if (view_of(&r, q->now_us).rest_us == 0)
        r.level += r.level < PENALTY_LEVEL_MAX;
    r.count = 0;
    r.length_us = q->length_us + (1 << SINCE_SHIFT) - 1; /* its state rounds down */
    r.end_us = clock_within(q->now_us + q->length_us);
    q->view = view_of(&r, q->now_us);
    return change_to(&r, q->penalty);
}

struct penalty_view penalty_look(const struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t now_us)
{
    struct record r = record_of(cells_read(cells, penalty_cell(rule, subject)));
    bring_to(&r, &rule->rule->kind->rest->penalty, now_us);
    return view_of(&r, now_us);
}

struct penalty_view penalty_check(struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t now_us)
{
    struct record r = record_of(cells_read(cells, penalty_cell(rule, subject)));
    if (__builtin_expect(!bring_to(&r, &rule->rule->kind->rest->penalty, now_us), 1))
        return view_of(&r, now_us);
    struct question q = { .penalty = &rule->rule->kind->rest->penalty, .now_us = now_us };
    cells_update(cells, penalty_cell(rule, subject), now_us, judge_moved, &q);
    return q.view;
}

bool penalty_refused(struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t now_us,
                     struct penalty_view *ret)
{
    struct question q = { .penalty = &rule->rule->kind->rest->penalty, .now_us = now_us };
    cells_update(cells, penalty_cell(rule, subject), now_us, judge_refusal, &q);
    *ret = q.view;
    return q.begins;
}

struct penalty_view penalty_begin(struct cells *cells, const struct bound_rule *rule, uint64_t subject, int64_t length_us,
                                  int64_t now_us)
{
    struct question q = { .penalty = &rule->rule->kind->rest->penalty, .now_us = now_us, .length_us = length_us };
    CHECK(length_us > 0 && length_us <= PENALTY_BY_HAND_MAX_US);
    cells_update(cells, penalty_cell(rule, subject), now_us, judge_begin, &q);
    return q.view;
}

bool penalty_forget(struct cells *cells, const struct bound_rule *rule, uint64_t subject)
{
    return cells_forget(cells, key_mix(penalty_id(cells_hash_key(cells), rule->rule), subject));
}

/* ---- of a decision ---- */

/* Returns the end of the counters from i on that belong to the same rule, subject and request. */
static size_t same_subject(const struct decision *d, size_t i)
{
    size_t end = i;
    while (end < d->enforced && d->counters[end].rule == d->counters[i].rule &&
           d->counters[end].subject == d->counters[i].subject && d->counters[end].part == d->counters[i].part)
        end++;
    return end;
}

/* A request that gives back is never refused. The leader of joined counters applies the penalty for them. */
static bool may_penalise(const struct counter *c)
{
    return c->rule->penalises && c->kind != COUNTER_JOINED && c->charging != WEIR_GIVE_BACK;
}

static void mark(struct decision *d, size_t from, size_t end, enum counter_penalty penalty, int64_t rest_us)
{
    for (size_t i = from; i < end; i++)
        d->counters[i].penalty = penalty;
    if (!d->penalised || rest_us > d->penalty_us) {
        d->penalised = &d->counters[from];
        d->penalty_us = rest_us;
    }
}

bool decision_find_penalties(struct decision *d)
{
    d->penalised = NULL;
    for (size_t i = 0, end; i < d->enforced; i = end) {
        struct counter *c = &d->counters[i];
        end = same_subject(d, i);
        if (!may_penalise(c))
            continue;
        struct penalty_view view = d->charges ? penalty_check(d->bound->cells, c->rule, c->subject, d->now_us)
                                              : penalty_look(d->bound->cells, c->rule, c->subject, d->now_us);
        if (view.rest_us > 0)
            mark(d, i, end, PENALTY_RUNS, view.rest_us);
    }
    return d->penalised;
}

/* A stand-in refuses because the store is unavailable, and an override that denies because somebody said so: neither is the
 * subject's doing. */
static bool own_limits_refuse(const struct decision *d, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        const struct counter *c = &d->counters[i];
        if (c->outcome == COUNTER_REFUSES && c->kind != COUNTER_STANDIN && !limit_denies(c->limit))
            return true;
    }
    return false;
}

/* A subject that has different plans in two requests is refused once. */
static bool counted_before(const struct decision *d, size_t i)
{
    for (size_t k = 0; d->parts > 1 && k < i; k++)
        if (d->counters[k].rule == d->counters[i].rule && d->counters[k].subject == d->counters[i].subject &&
            d->counters[k].part != d->counters[i].part && d->counters[k].outcome == COUNTER_REFUSES)
            return true;
    return false;
}

void decision_count_refusals(struct decision *d)
{
    CHECK(!d->allowed);
    for (size_t i = 0, end; i < d->enforced; i = end) {
        struct counter *c = &d->counters[i];
        struct penalty_view view;
        end = same_subject(d, i);
        if (may_penalise(c) && c->penalty == PENALTY_NONE && !counted_before(d, i) && own_limits_refuse(d, i, end) &&
            penalty_refused(d->bound->cells, c->rule, c->subject, d->now_us, &view))
            mark(d, i, end, PENALTY_BEGINS, view.rest_us);
    }
}

/* ---- of subjects that are known by name ---- */

static bool is_exempt(const struct bound *bound, const struct bound_rule *rule, uint64_t subject, int64_t now_us)
{
    const struct override_slot *override = bound_override(bound, rule, subject, now_us);
    return override && bound->overrides.effects[override->effect].set.limit_count == 0;
}

void weir_look_penalties(struct weir *weir, const struct penalised_entry *entries, size_t count, int64_t now_us,
                         struct penalty_view *ret)
{
    const struct bound_rule *rule = NULL;
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    for (size_t i = 0; i < count; i++) {
        sv id = subject_rule(&entries[i].subject);
        if (bound && (i == 0 || !sv_eq(id, subject_rule(&entries[i - 1].subject))))
            rule = bound_find(bound, id);
        ret[i] = (struct penalty_view){ 0 };
        if (rule && rule->penalises && !is_exempt(bound, rule, entries[i].hash, now_us))
            ret[i] = penalty_look(bound->cells, rule, entries[i].hash, now_us);
    }
    if (bound)
        hazard_release();
}

/* Returns why this subject cannot be penalised, or 0. */
static int refuse_penalty(const struct named *named, int64_t now_us, struct weir_error *error)
{
    sv id = named->rule->rule->id;
    if (!named->rule->penalises && named->rule->rule->kind->rest->penalty.after > 0)
        return err_set(error, WEIR_E_INVALID, "rule %.*s is not in mode enforce, and penalises nobody", SV_FMT(id));
    if (!named->rule->penalises)
        return err_set(error, WEIR_E_INVALID, "rule %.*s has no `penalty`", SV_FMT(id));
    if (is_exempt(named->bound, named->rule, named->hash, now_us))
        return err_set(error, WEIR_E_INVALID, "an override of rule %.*s makes this subject unlimited", SV_FMT(id));
    return 0;
}

int weir_penalise(struct weir *weir, const struct subject_name *name, int64_t length_us, int64_t now_us,
                  struct penalised_entry *ret, struct weir_error *error)
{
    struct named named;
    int r = named_begin(weir, name, &named, error);
    if (r < 0)
        return r;
    struct cells *cells = named.bound->cells;
    if (refuse_penalty(&named, now_us, error) < 0)
        r = WEIR_CANNOT_PENALISE;
    else {
        ret->hash = named.hash;
        ret->ends_us = now_us + penalty_begin(cells, named.rule, named.hash, length_us, now_us).rest_us;
        subject_fill(&ret->subject, named.rule->rule, named.values, cells_hash_key(cells));
    }
    named_end(&named);
    return r;
}
