/* The path of a decision: plan, look at every cell, take them all or none, say what came of it.
 *
 * Enforced rules are one group: all of their limits have room, or none is charged. Each shadow rule is a group of its own,
 * charged only if the request passed. A single cell is taken without looking first: taking is all or nothing by itself. */
#include <stdlib.h>

#include "engine/engine.h"

/* ---- plan ---- */

enum { MATCHES_INLINE = 64 };

static void plan_rule(struct plan_entry **next, const struct bound *bound, const struct bound_rule *rule, uint64_t subject,
                      const struct weir_request *request, int64_t now_us)
{
    for (size_t i = 0; i < rule->rule->limit_count; i++) {
        const struct bound_limit *limit = &rule->limits[i];
        struct plan_entry *entry = (*next)++;
        entry->rule = rule;
        entry->limit = limit;
        entry->window = limit_current_window(limit, now_us);
        entry->ask =
            (struct cells_ask){ cell_key(bound, limit, subject), &limit->limit, &entry->window, now_us, request->cost };
        cells_prefetch(bound->cells, entry->ask.key);
    }
}

static size_t count_limits(const struct bound *bound, const uint32_t *matches, size_t count)
{
    size_t needed = 0;
    for (size_t i = 0; i < count; i++)
        needed += bound->rules[matches[i]].rule->limit_count;
    return needed;
}

static void plan_fill(struct plan *plan, const struct bound *bound, const uint32_t *matches, size_t count,
                      struct facts *facts)
{
    struct plan_entry *next = plan->entries;
    uint32_t class = UINT32_MAX;
    uint64_t subject = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bound_rule *rule = &bound->rules[matches[i]];
        if (rule->by_class != class)
            subject = subject_hash(bound, rule, facts);
        class = rule->by_class;
        plan_rule(&next, bound, rule, subject, plan->request, plan->now_us);
    }
    plan->count = (size_t)(next - plan->entries);
}

bool plan_make(struct plan *ret, const struct bound *bound, const struct weir_request *request, sv user, int64_t now_us,
               const struct plan_room *room, size_t *ret_needed)
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
    size_t needed = count_limits(bound, matches, count);
    bool fits = needed <= room->cap;
    if (fits) {
        *ret = (struct plan){ .entries = room->entries, .order = room->order, .request = request, .now_us = now_us };
        plan_fill(ret, bound, matches, count, &facts);
    } else {
        *ret_needed = needed;
    }
    if (matches != inline_matches)
        free(matches);
    return fits;
}

/* ---- decide ---- */

/* A part of a plan that passes or fails as one. */
struct group {
    struct plan_entry *entries;
    struct plan_entry **order; /* room for `count` */
    size_t count;
    enum rule_mode mode; /* only entries of rules in this mode */
};

static bool in_group(const struct group *g, const struct plan_entry *e)
{
    return e->rule->rule->mode == g->mode;
}

static size_t group_size(const struct group *g, size_t *ret_only)
{
    size_t size = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (in_group(g, &g->entries[i])) {
            *ret_only = i;
            size++;
        }
    }
    return size;
}

/* A clock that was wrong is set right even where the request is refused, or its subject would stay locked out. */
static void store_rebase(struct cells *cells, const struct plan_entry *e)
{
    struct cells_taken taken;
    if (cells_take(cells, &e->ask, &taken))
        cells_refund(e->ask.limit, &taken, e->ask.now_us);
}

static bool look_at_all(const struct group *g, struct cells *cells, bool write)
{
    bool all = true;
    for (size_t i = 0; i < g->count; i++) {
        struct plan_entry *e = &g->entries[i];
        if (!in_group(g, e))
            continue;
        cells_look(cells, &e->ask, &e->look);
        e->state = e->look.state;
        /* Cost 0 is allowed unless max is 0, even where more than max is used. */
        e->fits = e->ask.cost == 0 ? e->ask.limit->max > 0 : e->look.take.fits;
        all = all && e->fits;
        if (write && !e->fits && e->look.take.rebased)
            store_rebase(cells, e);
    }
    return all;
}

static int compare_places(const void *a, const void *b, void *cells)
{
    uint64_t x = cells_place(cells, (*(struct plan_entry *const *)a)->ask.key);
    uint64_t y = cells_place(cells, (*(struct plan_entry *const *)b)->ask.key);
    return (x > y) - (x < y);
}

/* Everybody takes in the order of the cells' places, so that two requests for the same cells do not each get the one that
 * the other wants next. */
static size_t order_by_place(const struct group *g, struct cells *cells)
{
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        if (in_group(g, &g->entries[i]))
            g->order[n++] = &g->entries[i];
    if (n > PLAN_INLINE) {
        qsort_r(g->order, n, sizeof *g->order, compare_places, cells);
        return n;
    }
    for (size_t i = 1; i < n; i++) {
        struct plan_entry *e = g->order[i];
        size_t k = i;
        for (; k > 0 && cells_place(cells, e->ask.key) < cells_place(cells, g->order[k - 1]->ask.key); k--)
            g->order[k] = g->order[k - 1];
        g->order[k] = e;
    }
    return n;
}

static bool take_in_order(struct cells *cells, struct plan_entry **order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct plan_entry *e = order[i];
        e->fits = cells_take_looked(cells, &e->ask, &e->look, &e->taken);
        e->state = e->taken.state;
        if (e->fits)
            continue;
        while (i-- > 0)
            cells_refund(order[i]->ask.limit, &order[i]->taken, order[i]->ask.now_us);
        return false;
    }
    return true;
}

static bool decide_group(const struct group *g, struct cells *cells, bool charge)
{
    size_t only = 0, size = group_size(g, &only);
    if (size == 0)
        return true;
    if (size == 1 && charge) {
        struct plan_entry *e = &g->entries[only];
        e->fits = cells_take(cells, &e->ask, &e->taken);
        e->state = e->taken.state;
        return e->fits;
    }
    return look_at_all(g, cells, charge) && (!charge || take_in_order(cells, g->order, order_by_place(g, cells)));
}

/* ---- verdict ---- */

static int64_t ms_up(int64_t us)
{
    return us < 0 ? us : (us + US_PER_MS - 1) / US_PER_MS;
}

static void copy_text(char *to, size_t cap, sv from)
{
    size_t n = from.len < cap - 1 ? from.len : cap - 1;
    memcpy(to, from.ptr, n);
    to[n] = '\0';
}

static uint16_t refusal_status(const struct bound *bound, const struct rule *rule)
{
    uint16_t status = rule->reject.status;
    if (status == 0)
        status = ruleset_rules(bound->ruleset)->settings.reject.status;
    return status ? status : 429;
}

void verdict_blank(struct weir_verdict *v)
{
    v->allowed = v->applied = false;
    v->status = 0;
    v->max = v->remaining = v->shadow_count = v->private_rule = 0;
    v->reset_ms = v->retry_after_ms = v->window_ms = 0;
    v->rule[0] = v->limit[0] = '\0';
    v->private_rules = 0;
}

static void name_limit(struct weir_verdict *v, const struct bound *bound, const struct plan_entry *e,
                       const struct limit_report *report)
{
    v->applied = true;
    v->status = v->allowed ? 0 : refusal_status(bound, e->rule->rule);
    v->max = e->ask.limit->capacity;
    v->remaining = report->remaining;
    v->reset_ms = ms_up(report->reset_us);
    v->retry_after_ms = v->allowed ? 0 : ms_up(report->retry_after_us);
    v->window_ms = ms_up(limit_window_us(e->ask.limit, &e->window));
    copy_text(v->rule, sizeof v->rule, e->rule->rule->id);
    copy_text(v->limit, sizeof v->limit, e->limit->spec->name);
    v->private_rules = bound->version;
    v->private_rule = (uint32_t)(e->rule - bound->rules);
}

static bool longer(int64_t a_us, int64_t b_us)
{
    return b_us != LIMIT_NEVER_US && (a_us == LIMIT_NEVER_US || a_us > b_us);
}

/* Refused: the limit with the longest wait; the first of equals. */
static void report_refusal(struct weir_verdict *v, const struct bound *bound, const struct plan *plan)
{
    const struct plan_entry *named = NULL;
    struct limit_report longest = { 0 };
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *e = &plan->entries[i];
        if (e->rule->rule->mode != MODE_ENFORCE || e->fits)
            continue;
        struct limit_report report = limit_report(e->ask.limit, &e->window, e->state, plan->now_us, e->ask.cost);
        if (!named || longer(report.retry_after_us, longest.retry_after_us)) {
            named = e;
            longest = report;
        }
    }
    if (named)
        name_limit(v, bound, named, &longest);
}

/* Allowed: the limit with the least left; the first of equals. */
static void report_pass(struct weir_verdict *v, const struct bound *bound, const struct plan *plan)
{
    const struct plan_entry *named = NULL;
    uint32_t least = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_entry *e = &plan->entries[i];
        if (e->rule->rule->mode != MODE_ENFORCE)
            continue;
        uint32_t remaining = limit_remaining(e->ask.limit, &e->window, e->state, plan->now_us);
        if (!named || remaining < least) {
            named = e;
            least = remaining;
        }
    }
    if (!named)
        return;
    struct limit_report report = limit_report(named->ask.limit, &named->window, named->state, plan->now_us, 0);
    name_limit(v, bound, named, &report);
}

static void decide_shadows(struct plan *plan, struct cells *cells, bool charge, struct weir_verdict *v)
{
    for (size_t i = 0; i < plan->count;) {
        const struct rule *rule = plan->entries[i].rule->rule;
        struct group g = { plan->entries + i, plan->order, rule->limit_count, MODE_SHADOW };
        if (rule->mode == MODE_SHADOW && !decide_group(&g, cells, charge)) {
            if (v->shadow_count < WEIR_SHADOW_MAX)
                copy_text(v->shadow[v->shadow_count], sizeof v->shadow[0], rule->id);
            v->shadow_count++;
        }
        i += rule->limit_count;
    }
}

void plan_decide(struct plan *plan, const struct bound *bound, struct weir_verdict *ret)
{
    struct cells *cells = bound->cells;
    struct group enforced = { plan->entries, plan->order, plan->count, MODE_ENFORCE };
    bool charge = !plan->request->peek && plan->request->cost > 0;
    verdict_blank(ret);
    ret->allowed = decide_group(&enforced, cells, charge);
    if (ret->allowed)
        report_pass(ret, bound, plan);
    else
        report_refusal(ret, bound, plan);
    decide_shadows(plan, cells, charge && ret->allowed, ret);
}
