#include "engine/explain.h"

#include "base/err.h"
#include "engine/hazard.h"
#include "engine/shared.h"
#include "engine/weir.h"

static struct explained_limit explained(const struct bound_limit *limit, const struct window *window,
                                        struct limit_state state, int64_t now_us, uint32_t cost)
{
    return (struct explained_limit){
        .spec = limit->spec,
        .limit = limit->limit,
        .window = *window,
        .report = limit_report(&limit->limit, window, state, now_us, cost),
    };
}

/* What all rules are explained with. */
struct page {
    const struct bound *bound;
    struct facts *facts;
    const struct shared *shared; /* NULL: all rules count in the cells */
    bool known;                  /* the store has answered */
    int64_t now_us;
    uint32_t cost;
    const struct explain_sink *sink;
    void *data;
};

static void explain_limit(const struct page *page, const struct bound_limit *limit, uint64_t subject,
                          struct explained_limit *ret)
{
    struct window window = limit_current_window(limit, page->now_us);
    struct cells_ask ask = { cell_key(limit, subject), &limit->limit, &window, page->now_us, page->cost };
    struct cells_look look;
    cells_look(page->bound->cells, &ask, &look);
    *ret = explained(limit, &window, look.state, page->now_us, page->cost);
    ret->fits = look.fits;
}

static void explain_unknown(const struct page *page, const struct bound_limit *limit, struct explained_limit *ret)
{
    struct window window = limit_current_window(limit, page->now_us);
    *ret = explained(limit, &window, (struct limit_state){ 0 }, page->now_us, page->cost);
    ret->fits = ret->unknown = true;
}

/* As the store, or the slice, has it. */
static void explain_shared(const struct page *page, const struct bound_rule *rule, struct explained_limit *limits)
{
    if (!page->shared)
        return;
    const struct plan *plan = &page->shared->plan;
    uint64_t subject = subject_hash(page->bound, rule, page->facts);
    size_t i = 0;
    while (i < plan->count && (plan->entries[i].rule != rule || plan->entries[i].subject != subject))
        i++;
    /* Nobody asks the store about a request that is refused for a repeated header: its plan is empty. */
    for (size_t k = 0; i == plan->count && k < rule->limit_count; k++)
        explain_unknown(page, &rule->limits[k], &limits[k]);
    for (size_t k = 0; k < rule->limit_count && i < plan->count; k++, i++) {
        const struct plan_entry *e = &plan->entries[i];
        limits[k] = explained(e->limit, &e->window, *e->state, e->ask.now_us, page->cost);
        limits[k].fits = e->fits || page->shared->more[i].too_little;
        limits[k].unknown = !page->known;
        limits[k].held = page->shared->more[i].held;
    }
}

/* For the reading of the path that is in use. */
static void explain_limits(const struct page *page, const struct bound_rule *rule, struct explained_limit *limits)
{
    if (rule->counting != COUNT_LOCAL) {
        explain_shared(page, rule, limits);
        return;
    }
    uint64_t subject = subject_hash(page->bound, rule, page->facts);
    for (size_t i = 0; i < rule->limit_count; i++)
        explain_limit(page, &rule->limits[i], subject, &limits[i]);
}

static bool have_room(const struct explained_rule *rule)
{
    for (size_t i = 0; i < rule->rule->limit_count; i++)
        if (!rule->limits[i].fits)
            return false;
    return true;
}

static void explain_rule(const struct page *page, size_t index, struct explained_rule *ret)
{
    const struct bound *bound = page->bound;
    const struct bound_rule *rule = &bound->rules[index];
    ret->rule = rule->rule;
    ret->counting = rule->counting;
    ret->detail = (sv){ 0 };
    ret->reason = ruleset_explain(bound->ruleset, index, page->facts, page->now_us, &ret->detail);
    ret->reading = (sv){ 0 };
    if (ret->reason != MATCH_YES)
        return;
    explain_limits(page, rule, ret->limits);
    /* Of several subjects the first is shown, or one that has no room. */
    size_t shown = page->facts->reading, count = rule->by_path ? facts_readings(page->facts) : 0;
    for (size_t i = shown + 1; have_room(ret) && i < count; i++) {
        facts_use(page->facts, i);
        if (!ruleset_reads(bound->ruleset, index, page->facts))
            continue;
        explain_limits(page, rule, ret->limits);
        shown = have_room(ret) ? shown : i;
    }
    facts_use(page->facts, shown);
    if (have_room(ret) && count > 1)
        explain_limits(page, rule, ret->limits);
    for (size_t i = 0; i < rule->rule->by_count; i++)
        ret->by[i] = facts_attribute(page->facts, &rule->rule->by[i]);
    if (shown > 0)
        ret->reading = facts_path(page->facts);
}

static void explain_rules(const struct shared *shared, bool known, void *data)
{
    struct page *page = data;
    struct explained_rule rule;
    size_t count = ruleset_rules(page->bound->ruleset)->rule_count;
    page->shared = shared;
    page->known = known;
    for (size_t i = 0; i < count; i++) {
        explain_rule(page, i, &rule);
        page->sink->rule(&rule, page->data);
    }
}

static int explain_in(struct weir *weir, const struct bound *bound, const struct weir_request *request, sv user,
                      int64_t now_us, const struct explain_sink *sink, void *data)
{
    struct facts facts;
    struct page page = { bound, &facts, NULL, false, now_us, request->cost, sink, data };
    facts_init(&facts, bound->ruleset, request, user);
    sink->request(&facts, data);
    if (bound->shared)
        return weir_look_shared(weir, bound, request, user, now_us, explain_rules, &page);
    explain_rules(NULL, true, &page);
    return 0;
}

int weir_explain(struct weir *weir, const struct weir_request *request, int64_t now_us, const struct explain_sink *sink,
                 void *data)
{
    if (!clock_valid(now_us))
        return WEIR_E_INVALID;
    char user_buf[WEIR_USER_MAX];
    struct weir_request peek = *request;
    const struct bound *bound = weir_acquire(weir, request, user_buf, &peek.user);
    if (!bound)
        return WEIR_E_NO_MEMORY;
    peek.peek = true;
    int r = explain_in(weir, bound, &peek, peek.user, now_us, sink, data);
    hazard_release();
    struct weir_verdict verdict;
    struct weir_shadows shadows;
    if (r < 0)
        return r;
    peek.shadows = &shadows;
    r = weir_check(weir, &peek, now_us, &verdict);
    if (r == 0)
        sink->verdict(&peek, &verdict, data);
    return r;
}
