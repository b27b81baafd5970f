/* The path of a decision: plan, look at every cell, take them all or none, say what came of it.
 *
 * Enforced rules are one group: all of their limits have room, or none is charged. Each shadow rule is a group of its own,
 * charged only if the request passed. A single cell is taken without looking first: taking is all or nothing by itself. */
#include <stdlib.h>

#include "engine/refund.h"
#include "limit/take.h"

/* ---- plan ---- */

enum { MATCHES_INLINE = 64 };

static inline __attribute__((always_inline)) struct plan_entry *
plan_rule(struct plan_entry *entry, const struct bound *bound, const struct bound_rule *rule, uint64_t subject,
          const struct weir_request *request, int64_t now_us)
{
    for (size_t i = 0; i < rule->limit_count; i++, entry++) {
        const struct bound_limit *limit = &rule->limits[i];
        entry->rule = rule;
        entry->limit = limit;
        entry->subject = subject;
        entry->reading = 0;
        if (limit->limit.algorithm == LIMIT_CALENDAR)
            entry->window = limit_current_window(limit, now_us);
        entry->ask = (struct cells_ask){ cell_key(limit, subject), &limit->limit, &entry->window, now_us, request->cost };
        if (rule->counting == COUNT_LOCAL)
            cells_prefetch(bound->cells, entry->ask.key);
    }
    return entry;
}

/* A rule by path for a path that has several readings: the limits once for each reading that the rule matches, with the
 * subject that it has there. One of them is the subject of the server that serves the request, whichever way it reads. */
static __attribute__((noinline)) struct plan_entry *plan_readings(struct plan_entry *entry, const struct bound *bound,
                                                                  const struct bound_rule *rule, struct facts *facts,
                                                                  const struct weir_request *request, int64_t now_us)
{
    struct plan_entry *first = entry;
    for (size_t i = 0; i < facts_readings(facts); i++) {
        facts_use(facts, i);
        if (!ruleset_reads(bound->ruleset, (size_t)(rule - bound->rules), facts))
            continue;
        uint64_t subject = subject_hash(bound, rule, facts);
        const struct plan_entry *same = first;
        while (same < entry && same->subject != subject)
            same++;
        if (same < entry)
            continue;
        struct plan_entry *end = plan_rule(entry, bound, rule, subject, request, now_us);
        for (; entry < end; entry++)
            entry->reading = (uint8_t)i;
    }
    facts_use(facts, 0);
    return entry;
}

/* How many entries there are at most. */
static size_t count_limits(const struct bound *bound, const uint32_t *matches, size_t count, struct facts *facts)
{
    size_t needed = 0;
    size_t readings = bound->by_path && count > 0 ? facts_readings(facts) : 1;
    for (size_t i = 0; i < count; i++)
        needed += bound->rules[matches[i]].limit_count;
    for (size_t i = 0; readings > 1 && i < count; i++)
        if (bound->rules[matches[i]].by_path)
            needed += bound->rules[matches[i]].limit_count * (readings - 1);
    return needed;
}

/* The rules of one mode among those that match. several: the path has several readings, and some rule counts by path. */
static struct plan_entry *plan_mode(struct plan *plan, struct plan_entry *next, enum rule_mode mode,
                                    const struct bound *bound, const uint32_t *matches, size_t count, struct facts *facts,
                                    bool several)
{
    uint32_t class = UINT32_MAX;
    uint64_t subject = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bound_rule *rule = &bound->rules[matches[i]];
        if (rule->mode != mode)
            continue;
        if (several && rule->by_path) {
            plan->shared = plan->shared || rule->counting != COUNT_LOCAL;
            next = plan_readings(next, bound, rule, facts, plan->request, plan->now_us);
            continue;
        }
        if (rule->by_class != class)
            subject = subject_hash(bound, rule, facts);
        class = rule->by_class;
        plan->shared = plan->shared || rule->counting != COUNT_LOCAL;
        next = plan_rule(next, bound, rule, subject, plan->request, plan->now_us);
    }
    return next;
}

static void plan_fill(struct plan *plan, const struct bound *bound, const uint32_t *matches, size_t count, size_t needed,
                      struct facts *facts)
{
    bool several = bound->by_path && facts_readings(facts) > 1;
    struct plan_entry *end = plan_mode(plan, plan->entries, MODE_ENFORCE, bound, matches, count, facts, several);
    plan->enforced = (size_t)(end - plan->entries);
    if (plan->enforced < needed)
        end = plan_mode(plan, end, MODE_SHADOW, bound, matches, count, facts, several);
    plan->count = (size_t)(end - plan->entries);
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
    if (__builtin_expect(facts.repeated.len > 0, 0))
        count = 0;
    size_t needed = count_limits(bound, matches, count, &facts);
    bool fits = needed <= room->cap;
    if (fits) {
        *ret = (struct plan){
            .entries = room->entries, .order = room->order, .request = request, .now_us = now_us, .repeated = facts.repeated
        };
        plan_fill(ret, bound, matches, count, needed, &facts);
    } else {
        *ret_needed = needed;
    }
    if (matches != inline_matches)
        free(matches);
    return fits;
}

/* ---- decide ---- */

/* Taking sees to both, and writes nothing where there is nothing to be mended. */
void entry_tell_refusal(struct cells *cells, const struct plan_entry *e)
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
        cells_look(cells, &e->ask, &e->look);
        e->state = &e->look.state;
        e->fits = e->look.fits;
        all = all && e->fits;
        if (write && !e->fits && e->look.cell)
            entry_tell_refusal(cells, e);
    }
    return all;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = (*(struct plan_entry *const *)a)->ask.key, y = (*(struct plan_entry *const *)b)->ask.key;
    return (x > y) - (x < y);
}

enum { RANKED = 8 };

/* Few are placed by counting those before them: keys are random, and every branch on them would be guessed wrong half of
 * the time. */
static void order_few(const struct group *g)
{
    for (size_t i = 0; i < g->count; i++) {
        uint64_t key = g->entries[i].ask.key;
        size_t rank = 0;
        for (size_t k = 0; k < i; k++)
            rank += g->entries[k].ask.key <= key;
        for (size_t k = i + 1; k < g->count; k++)
            rank += g->entries[k].ask.key < key;
        g->order[rank] = &g->entries[i];
    }
}

/* Everybody takes in one order, that of the keys, so that two requests for the same cells do not each get the one that the
 * other wants next. */
static void order_by_key(const struct group *g)
{
    if (g->count <= RANKED) {
        order_few(g);
        return;
    }
    for (size_t i = 0; i < g->count; i++)
        g->order[i] = &g->entries[i];
    qsort(g->order, g->count, sizeof *g->order, compare_keys);
}

static bool take_in_order(struct cells *cells, struct plan_entry **order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct plan_entry *e = order[i];
        e->fits = cells_take_looked(cells, &e->ask, &e->look, &e->taken);
        e->state = &e->taken.state;
        if (e->fits)
            continue;
        while (i-- > 0)
            cells_refund(order[i]->ask.limit, &order[i]->taken, order[i]->ask.now_us);
        return false;
    }
    return true;
}

bool decide_group(const struct group *g, struct cells *cells, bool charge)
{
    if (g->count == 1 && charge) {
        struct plan_entry *e = g->entries;
        e->fits = cells_take(cells, &e->ask, &e->taken);
        e->state = &e->taken.state;
        return e->fits;
    }
    if (!look_at_all(g, cells, charge))
        return false;
    if (!charge)
        return true;
    order_by_key(g);
    return take_in_order(cells, g->order, g->count);
}

/* ---- verdict ---- */

static int64_t ms_up(int64_t us)
{
    return us < 0 ? us : (us + US_PER_MS - 1) / US_PER_MS;
}

/* In pieces that overlap at the end: names are short, and a call would cost more than they do. */
static void copy_text(char *to, size_t cap, sv from)
{
    enum { PIECE = 16 };
    size_t n = from.len < cap - 1 ? from.len : cap - 1, done = 0;
    for (; done + PIECE <= n; done += PIECE)
        memcpy(to + done, from.ptr + done, PIECE);
    if (n >= PIECE)
        memcpy(to + n - PIECE, from.ptr + n - PIECE, PIECE);
    else if (n > 8)
        memcpy(to, from.ptr, 8), memcpy(to + n - 8, from.ptr + n - 8, 8);
    else
        for (; done < n; done++)
            to[done] = from.ptr[done];
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
    v->allowed = v->applied = v->unavailable = false;
    v->status = 0;
    v->max = v->remaining = v->shadow_count = v->private_rule = 0;
    v->reset_ms = v->retry_after_ms = v->window_ms = 0;
    v->rule[0] = v->limit[0] = '\0';
    v->private_rules = 0;
}

void verdict_repeated(struct weir_verdict *v, sv header)
{
    verdict_blank(v);
    v->status = WEIR_BAD_REQUEST;
    v->retry_after_ms = WEIR_NEVER;
    copy_text(v->limit, sizeof v->limit, header);
}

static void name_rule(struct weir_verdict *v, const struct bound *bound, const struct plan_entry *e)
{
    v->applied = true;
    v->max = e->ask.limit->capacity;
    copy_text(v->rule, sizeof v->rule, e->rule->rule->id);
    copy_text(v->limit, sizeof v->limit, e->limit->spec->name);
    v->private_rules = bound->version | (uint64_t)e->reading << VERDICT_VERSION_BITS;
    v->private_rule = (uint32_t)(e->rule - bound->rules);
}

static void name_limit(struct weir_verdict *v, const struct bound *bound, const struct plan_entry *e,
                       const struct limit_report *report)
{
    name_rule(v, bound, e);
    v->status = v->allowed ? 0 : refusal_status(bound, e->rule->rule);
    v->remaining = report->remaining;
    v->reset_ms = ms_up(report->reset_us);
    v->retry_after_ms = v->allowed ? 0 : ms_up(report->retry_after_us);
    v->window_ms = ms_up(limit_window_us(e->ask.limit, &e->window));
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
    for (size_t i = 0; i < plan->enforced; i++) {
        const struct plan_entry *e = &plan->entries[i];
        if (e->fits)
            continue;
        struct limit_report report = limit_report(e->ask.limit, &e->window, *e->state, e->ask.now_us, e->ask.cost);
        if (!named || longer(report.retry_after_us, longest.retry_after_us)) {
            named = e;
            longest = report;
        }
    }
    if (named)
        name_limit(v, bound, named, &longest);
}

/* The limit with the least left; the first of equals. NULL: there is none. */
static const struct plan_entry *least_left(const struct plan *plan)
{
    const struct plan_entry *named = NULL;
    uint32_t least = 0;
    if (plan->enforced == 1)
        return plan->entries;
    for (size_t i = 0; i < plan->enforced; i++) {
        const struct plan_entry *e = &plan->entries[i];
        uint32_t remaining = limit_remaining(e->ask.limit, &e->window, *e->state, e->ask.now_us);
        if (!named || remaining < least) {
            named = e;
            least = remaining;
        }
    }
    return named;
}

static void report_pass(struct weir_verdict *v, const struct bound *bound, const struct plan *plan)
{
    const struct plan_entry *named = least_left(plan);
    if (!named)
        return;
    if (plan->request->brief) {
        name_rule(v, bound, named);
        return;
    }
    struct limit_report report = limit_report(named->ask.limit, &named->window, *named->state, named->ask.now_us, 0);
    name_limit(v, bound, named, &report);
}

void verdict_add_shadow(struct weir_verdict *v, const struct plan *plan, const struct bound_rule *rule)
{
    struct weir_shadows *shadows = plan->request->shadows;
    if (shadows && shadows->count < WEIR_SHADOW_MAX)
        copy_text(shadows->names[shadows->count++], sizeof shadows->names[0], rule->rule->id);
    v->shadow_count++;
}

static void decide_shadows(struct plan *plan, struct cells *cells, bool charge, struct weir_verdict *v)
{
    for (size_t i = plan->enforced; i < plan->count;) {
        const struct bound_rule *rule = plan->entries[i].rule;
        struct group g = { plan->entries + i, plan->order, plan_rule_entries(plan, i) };
        i += g.count;
        if (!decide_group(&g, cells, charge))
            verdict_add_shadow(v, plan, rule);
    }
}

bool plan_charges(const struct plan *plan)
{
    return !plan->request->peek && plan->request->cost > 0;
}

void plan_report(const struct plan *plan, const struct bound *bound, bool allowed, struct weir_verdict *v)
{
    verdict_blank(v);
    v->allowed = allowed;
    if (allowed)
        report_pass(v, bound, plan);
    else
        report_refusal(v, bound, plan);
}

size_t plan_rule_entries(const struct plan *plan, size_t i)
{
    size_t end = i;
    while (end < plan->count && plan->entries[end].rule == plan->entries[i].rule)
        end++;
    return end - i;
}

bool plan_rule_fits(const struct plan *plan, size_t i)
{
    const struct bound_rule *rule = plan->entries[i].rule;
    while (i > 0 && plan->entries[i - 1].rule == rule)
        i--;
    bool fits = true;
    for (; fits && i < plan->count && plan->entries[i].rule == rule; i++)
        fits = plan->entries[i].fits;
    return fits;
}

void plan_decide(struct plan *plan, const struct bound *bound, struct weir_verdict *ret)
{
    if (__builtin_expect(plan->repeated.len > 0, 0)) {
        verdict_repeated(ret, plan->repeated);
        return;
    }
    struct cells *cells = bound->cells;
    struct group enforced = { plan->entries, plan->order, plan->enforced };
    bool charge = plan_charges(plan), allowed = decide_group(&enforced, cells, charge);
    plan_report(plan, bound, allowed, ret);
    decide_shadows(plan, cells, charge && allowed, ret);
    if (__builtin_expect(plan->request->receipt != NULL, 0) && charge && allowed)
        plan_receipt(plan, cells, plan->request->receipt);
}

/* ---- batches ---- */

/* One cell to charge, and nothing else. */
static bool is_single(const struct plan *plan)
{
    return plan->count == 1 && plan->enforced == 1 && plan_charges(plan);
}

static void decide_singles(struct plan *plans, unsigned count, const struct bound *bound, struct weir_verdict *ret)
{
    struct cells_ask asks[CELLS_BATCH];
    struct cells_taken taken[CELLS_BATCH];
    bool fits[CELLS_BATCH];
    for (unsigned i = 0; i < count; i++)
        asks[i] = plans[i].entries->ask;
    cells_take_batch(bound->cells, asks, count, taken, fits);
    for (unsigned i = 0; i < count; i++) {
        struct plan_entry *e = plans[i].entries;
        e->fits = fits[i];
        e->state = &taken[i].state;
        plan_report(&plans[i], bound, fits[i], &ret[i]);
        if (__builtin_expect(plans[i].request->receipt != NULL, 0) && fits[i]) {
            e->taken = taken[i];
            plan_receipt(&plans[i], bound->cells, plans[i].request->receipt);
        }
    }
}

void plans_decide(struct plan *plans, size_t count, const struct bound *bound, struct weir_verdict *ret)
{
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 0; i + n < count && n < CELLS_BATCH && is_single(&plans[i + n]); n++)
            ;
        if (n > 1) {
            decide_singles(plans + i, (unsigned)n, bound, ret + i);
        } else {
            plan_decide(&plans[i], bound, &ret[i]);
            n = 1;
        }
    }
}
