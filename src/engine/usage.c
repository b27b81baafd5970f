/* Reports the remaining amounts of a request's limits, for the headers of its answer. */
#include "engine/counter.h"
#include "engine/remote.h"
#include "engine/verdict.h"

static int64_t ms_up(int64_t us)
{
    return us < 0 ? us : (us + US_PER_MS - 1) / US_PER_MS;
}

/* A refused request charges nothing, so this uses the state of a cell from before the decision took and gave back its
 * cost. Counters of other kinds that have room may not have been asked for their state. */
static const struct limit_state *state_of(const struct decision *d, const struct counter *c)
{
    if (c->kind == COUNTER_STANDIN && remote_of(d, c)->standin != ON_FAILURE_LOCAL)
        return NULL; /* the store knows */
    if (d->allowed || c->outcome == COUNTER_REFUSES || c->kind == COUNTER_COUNTED)
        return c->state;
    return c->kind == COUNTER_CELL ? &c->look.state : NULL;
}

/* More is available as soon as one unit more than now would fit. */
static struct weir_left left_of(const struct decision *d, const struct counter *c)
{
    const struct limit *limit = counter_limit(c);
    bool slots = limit->algorithm == LIMIT_CONCURRENT; /* which have no window */
    struct weir_left left = {
        .rule = (uint32_t)(c->rule - d->bound->rules),
        .limit = bound_limit_number(d->bound, c->limit),
        .refuses = !d->allowed && c->outcome == COUNTER_REFUSES,
        .reading = c->reading,
        .given_max = c->given ? limit->max : 0,
        .window_ms = slots ? 0 : ms_up(limit_window_us(limit, &c->window)),
    };
    const struct limit_state *state = state_of(d, c);
    if (!state)
        return left;
    struct counter seen;
    if (state != c->state) {
        seen = *c;
        seen.state = state;
        c = &seen;
    }
    left.known = true;
    left.remaining = counter_remaining(c);
    struct limit_report report = counter_report(c, left.remaining + 1);
    left.more_ms = ms_up(report.retry_after_us);
    left.reset_ms = ms_up(report.reset_us);
    return left;
}

/* The limit of a rule by path counts once for each reading of the path, and is one policy. */
static struct weir_left *same_policy(const struct decision *d, struct weir_usage *usage, const struct counter *c)
{
    uint32_t rule = (uint32_t)(c->rule - d->bound->rules);
    for (uint32_t i = usage->count; c->rule->by_path && i-- > 0 && usage->left[i].rule == rule;)
        if (sv_eq(limit_name(bound_limit_at(d->bound, usage->left[i].limit)), limit_name(c->limit)))
            return &usage->left[i];
    return NULL;
}

static bool is_named(const struct decision *d, const struct counter *c)
{
    const struct weir_verdict *v = d->verdict;
    return v->applied && c->rule - d->bound->rules == v->private_rule && c->reading == verdict_reading(v) &&
           sv_eq(limit_name(c->limit), weir_str(v->limit));
}

/* If two counts have the same policy, the one that the verdict names stays, else the one with less left. The policy keeps
 * the reading of the first, so that its partition is the same in every answer. */
static void join(struct weir_left *to, struct weir_left left, bool to_is_named, bool named)
{
    left.reading = to->reading;
    left.refuses = to->refuses = left.refuses || to->refuses;
    if (named || (!to_is_named && left.known && (!to->known || left.remaining < to->remaining)))
        *to = left;
}

void usage_fill(const struct decision *d)
{
    enum { NONE = WEIR_USAGE_LIMITS + 1 };
    struct weir_usage *usage = d->request->usage;
    if (d->allowed && d->request->brief)
        return;
    usage->rules = d->bound->version;
    usage->named = NONE;
    for (size_t i = 0; i < d->enforced; i++) {
        const struct counter *c = &d->counters[i];
        bool named = usage->named == NONE && is_named(d, c);
        struct weir_left *to = same_policy(d, usage, c);
        if (!to && !named && usage->count >= WEIR_USAGE_LIMITS)
            continue;
        uint32_t index = to ? (uint32_t)(to - usage->left) : usage->count++;
        if (to)
            join(to, left_of(d, c), usage->named == index, named);
        else
            usage->left[index] = left_of(d, c);
        if (named)
            usage->named = index;
    }
    usage->listed = usage->count < WEIR_USAGE_LIMITS ? usage->count : WEIR_USAGE_LIMITS;
}
