#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND INT64_C(1000000)

/* ---- calendar windows, by way of the C library ---- */

static int64_t utc_us(int year, int month, int day)
{
    struct tm tm = { .tm_year = year - 1900, .tm_mon = month, .tm_mday = day };
    return (int64_t)timegm(&tm) * SECOND;
}

static void calendar_window(const struct sim_limit *l, int64_t now_us, int64_t *start_us, int64_t *end_us)
{
    static const int64_t lengths[] = { 60 * SECOND, 3600 * SECOND, 86400 * SECOND, 7 * 86400 * SECOND };
    if (l->unit == SIM_LENGTH) {
        *start_us = now_us - now_us % l->per_us;
        *end_us = *start_us + l->per_us;
        return;
    }
    int64_t local = now_us + l->utc_offset_us;
    time_t seconds = (time_t)(local / SECOND);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    if (l->unit == SIM_MONTH) {
        *start_us = utc_us(tm.tm_year + 1900, tm.tm_mon, 1);
        *end_us = utc_us(tm.tm_year + 1900, tm.tm_mon + 1, 1);
    } else if (l->unit == SIM_YEAR) {
        *start_us = utc_us(tm.tm_year + 1900, 0, 1);
        *end_us = utc_us(tm.tm_year + 1901, 0, 1);
    } else {
        /* 5 January 1970 was a Monday; every unit but the week divides that. */
        int64_t length = lengths[l->unit], origin = 4 * 86400 * SECOND;
        *start_us = local - (local - origin) % length;
        *end_us = *start_us + length;
    }
    *start_us -= l->utc_offset_us;
    *end_us -= l->utc_offset_us;
}

/* ---- one limit, one cell ---- */

static uint64_t capacity(const struct sim_limit *l)
{
    return l->algorithm == SIM_BUCKET && l->max && l->burst ? l->burst : l->max;
}

static bool is_unused(const struct sim_state *s)
{
    return s->used == 0 && s->count == 0 && s->previous == 0;
}

/* What comes back in a microsecond. */
static __int128 rate(const struct sim_limit *l)
{
    return (__int128)l->max * (l->scale / l->per_us);
}

/* The state as it is now. A clock that was wrong is set right, and that is noted. */
static struct sim_state at(const struct sim_limit *l, struct sim_state s, int64_t now_us, bool *rebased)
{
    *rebased = false;
    if (is_unused(&s))
        return (struct sim_state){ 0 };
    if (l->algorithm == SIM_BUCKET) {
        *rebased = s.when_us - now_us > l->per_us;
        if (*rebased)
            s.when_us = now_us;
        if (now_us > s.when_us) {
            s.used -= rate(l) * (now_us - s.when_us);
            s.when_us = now_us;
        }
        s.used = s.used < 0 ? 0 : s.used;
    } else if (l->algorithm == SIM_SLIDING) {
        *rebased = s.start_us - now_us > l->per_us;
        if (*rebased)
            s.start_us = now_us;
        for (int i = 0; i < 2 && now_us >= s.start_us + l->per_us; i++) {
            s.previous = s.count;
            s.count = 0;
            s.start_us += l->per_us;
        }
    } else if (now_us >= s.end_us) {
        s.count = 0;
    } else if (s.start_us - now_us > s.end_us - s.start_us) {
        *rebased = true;
        s.start_us = now_us;
        s.end_us = now_us + l->per_us;
        if (l->algorithm == SIM_CALENDAR)
            calendar_window(l, now_us, &s.start_us, &s.end_us);
    }
    return is_unused(&s) ? (struct sim_state){ 0 } : s;
}

/* How much of `capacity` is in use at now_us, in parts of which `*whole` make one. `s` is of that time. */
static __int128 in_use(const struct sim_limit *l, const struct sim_state *s, int64_t now_us, __int128 *whole)
{
    *whole = 1;
    if (l->algorithm == SIM_BUCKET) {
        *whole = l->scale;
        return s->used;
    }
    if (l->algorithm != SIM_SLIDING)
        return s->count;
    *whole = l->per_us;
    int64_t into = now_us > s->start_us && !is_unused(s) ? now_us - s->start_us : 0;
    return (__int128)s->previous * (l->per_us - into) + (__int128)s->count * l->per_us;
}

static bool has_room(const struct sim_limit *l, const struct sim_state *s, int64_t now_us, uint64_t cost)
{
    __int128 whole, used = in_use(l, s, now_us, &whole);
    if (l->max == 0 || cost > capacity(l))
        return false;
    return used + cost * whole <= capacity(l) * whole;
}

static uint64_t remaining(const struct sim_limit *l, const struct sim_state *s, int64_t now_us)
{
    __int128 whole, used = in_use(l, s, now_us, &whole), all = capacity(l) * whole;
    return used < all ? (uint64_t)((all - used) / whole) : 0;
}

static uint64_t debt(const struct sim_limit *l, const struct sim_state *s, int64_t now_us)
{
    __int128 whole, used = in_use(l, s, now_us, &whole), all = capacity(l) * whole;
    return used > all ? (uint64_t)((used - all + whole - 1) / whole) : 0;
}

/* The first wait after which there is room for a cost, or after which it is unused. Time only makes room. */
static int64_t wait_us(const struct sim_limit *l, const struct sim_state *s, int64_t now_us, bool unused, uint64_t cost)
{
    int64_t too_short = -1, enough = INT64_C(1) << 53;
    while (enough - too_short > 1) {
        int64_t wait = too_short + (enough - too_short) / 2;
        bool rebased;
        struct sim_state then = at(l, *s, now_us + wait, &rebased);
        if (unused ? is_unused(&then) : has_room(l, &then, now_us + wait, cost))
            enough = wait;
        else
            too_short = wait;
    }
    return enough;
}

static int64_t reset_us(const struct sim_limit *l, const struct sim_state *s, int64_t now_us)
{
    if (is_unused(s))
        return 0;
    return l->algorithm == SIM_BUCKET && l->max == 0 ? SIM_NEVER : wait_us(l, s, now_us, true, 0);
}

static int64_t retry_us(const struct sim_limit *l, const struct sim_state *s, int64_t now_us, uint64_t cost)
{
    return l->max == 0 || cost > capacity(l) ? SIM_NEVER : wait_us(l, s, now_us, false, cost);
}

static void charge(const struct sim_limit *l, struct sim_state *s, int64_t now_us, uint64_t cost)
{
    if (is_unused(s)) {
        s->when_us = s->start_us = now_us;
        s->end_us = now_us + l->per_us;
        if (l->algorithm == SIM_CALENDAR)
            calendar_window(l, now_us, &s->start_us, &s->end_us);
    }
    if (l->algorithm == SIM_BUCKET)
        s->used += (__int128)cost * l->scale;
    else
        s->count += cost;
    s->wide |= s->count > UINT32_MAX;
}

static int64_t window_us(const struct sim_limit *l, int64_t now_us)
{
    if (l->algorithm == SIM_CALENDAR) {
        int64_t start, end;
        calendar_window(l, now_us, &start, &end);
        return end - start;
    }
    if (l->algorithm == SIM_BUCKET && l->max)
        return (int64_t)(((__int128)capacity(l) * l->per_us + l->max - 1) / l->max);
    return l->per_us;
}

/* ---- cells ---- */

static bool is_cell_of(const struct sim_cell *c, const struct sim_rule *rule, const struct sim_limit *limit)
{
    return strcmp(c->rule, rule->id) == 0 && strcmp(c->limit_name, limit->name) == 0 && c->algorithm == limit->algorithm &&
           c->by == rule->by;
}

static struct sim_cell *find_cell(struct sim *sim, const struct sim_rule *rule, const struct sim_limit *limit,
                                  const struct sim_request *q)
{
    struct sim_cell fresh = { .algorithm = limit->algorithm, .by = rule->by };
    snprintf(fresh.rule, SIM_TEXT, "%s", rule->id);
    snprintf(fresh.limit_name, SIM_TEXT, "%s", limit->name);
    snprintf(fresh.event, SIM_TEXT, "%s", rule->by & SIM_BY_EVENT ? q->event : "");
    snprintf(fresh.key, SIM_TEXT, "%s", rule->by & SIM_BY_KEY ? q->key : "");
    snprintf(fresh.user, SIM_TEXT, "%s", rule->by & SIM_BY_USER ? q->user : "");
    snprintf(fresh.entry, SIM_TEXT, "%s", rule->by & SIM_BY_ENTRY ? q->entry : "");
    struct sim_cell *c = sim->cells, *end = c + sim->cell_count;
    while (c < end &&
           !(is_cell_of(c, rule, limit) && strcmp(c->event, fresh.event) == 0 && strcmp(c->key, fresh.key) == 0 &&
             strcmp(c->user, fresh.user) == 0 && strcmp(c->entry, fresh.entry) == 0))
        c++;
    if (c == end) {
        if (sim->cell_count++ == SIM_CELLS)
            __builtin_trap();
        *c = fresh;
    }
    c->limit = *limit;
    return c;
}

/* ---- callers that are stale ---- */

/* The engine rounds the length of a window up to 26 bits. */
static int64_t rounded_up(int64_t length_us)
{
    int64_t unit = 1;
    while (length_us > unit * ((1 << 26) - 1))
        unit *= 2;
    return (length_us + unit - 1) / unit * unit;
}

static int64_t period_us(const struct sim_limit *l, const struct sim_state *s)
{
    bool window = l->algorithm == SIM_FIXED || l->algorithm == SIM_CALENDAR;
    return window ? rounded_up(s->end_us - s->start_us) : l->per_us;
}

static int64_t own_time_us(const struct sim_limit *l, const struct sim_state *s)
{
    if (l->algorithm == SIM_BUCKET)
        return s->when_us;
    return l->algorithm == SIM_SLIDING ? s->start_us : s->end_us - period_us(l, s);
}

/* What becomes of the note of a rebase if this cell, which is more than a period ahead of now_us, is rebased once more.
 * False: it is not, since the caller is stale. */
static bool rebase(const struct sim_cell *c, const struct sim_limit *l, int64_t now_us, struct sim_rebase *ret)
{
    enum { FREE = 3, MOST = 15 };
    int64_t per = period_us(l, &c->state), own = own_time_us(l, &c->state);
    struct sim_rebase r = c->rebase;
    if (!r.made)
        r = (struct sim_rebase){ .made = true, .lead_us = own };
    else if (own - r.to_us > per) { /* it has gone ahead since */
        int64_t gone = (own - r.lead_us) / per, distance = per;
        if (gone > 0)
            r.returns = gone < r.returns ? r.returns - (unsigned)gone : 0;
        for (unsigned i = FREE; i < r.returns; i++)
            distance *= 2;
        if (llabs(now_us - r.to_us) < distance)
            return false;
        r.returns += r.returns < MOST;
        if (own > r.lead_us || own < r.lead_us - 2 * per)
            r.lead_us = own;
    }
    r.to_us = now_us;
    r.until_us = own + 2 * per;
    *ret = r;
    return true;
}

/* ---- about cells ---- */

bool sim_owner(const struct sim *sim, const struct sim_cell *cell, const struct sim_rule **ret_rule,
               const struct sim_limit **ret_limit)
{
    for (size_t i = 0; i < sim->rule_count; i++) {
        for (size_t k = 0; k < sim->rules[i].limit_count; k++) {
            *ret_rule = &sim->rules[i];
            *ret_limit = &sim->rules[i].limits[k];
            if (is_cell_of(cell, *ret_rule, *ret_limit))
                return true;
        }
    }
    return false;
}

bool sim_unused_at(const struct sim_cell *cell, int64_t now_us)
{
    bool rebased;
    struct sim_state s = at(&cell->limit, cell->state, now_us, &rebased);
    return is_unused(&s);
}

bool sim_doubtful_at(const struct sim_cell *cell, const struct sim_limit *limit, int64_t now_us)
{
    const struct sim_state *s = &cell->state;
    bool window = cell->algorithm == SIM_FIXED || cell->algorithm == SIM_CALENDAR;
    int64_t length = s->end_us - s->start_us, over = s->start_us - now_us - length;
    bool own = limit->algorithm == SIM_FIXED && length == limit->per_us;
    if (window && !is_unused(s) && !own && (s->wide || limit->max > UINT32_MAX) && over > -length / 2)
        return true;
    if (window && !is_unused(s) && over > 0 && (over <= length >> 20 || s->end_us - now_us <= limit->per_us))
        return true;
    bool rebased;
    at(limit, *s, now_us, &rebased);
    return rebased && cell->rebase.made && cell->latest_us >= cell->rebase.until_us;
}

/* ---- the plan ---- */

struct entry {
    const struct sim_rule *rule;
    const struct sim_limit *limit;
    struct sim_cell *cell;
    struct sim_state state; /* now */
    struct sim_state shown; /* what the verdict tells of */
    bool rebased, fits;
    struct sim_rebase rebase; /* if it is rebased */
};

struct plan {
    struct entry entries[SIM_RULES * SIM_LIMITS];
    size_t count;
};

static bool applies(const struct sim_rule *rule, const struct sim_request *q)
{
    if (rule->mode == SIM_OFF || (rule->event[0] && strcmp(rule->event, q->event) != 0))
        return false;
    return !(rule->by & SIM_BY_EVENT && !q->event[0]) && !(rule->by & SIM_BY_KEY && !q->key[0]) &&
           !(rule->by & SIM_BY_USER && !q->user[0]) && !(rule->by & SIM_BY_ENTRY && !q->entry);
}

static uint64_t cost_of(const struct sim_limit *l, const struct sim_request *q)
{
    uint64_t cost = l->counts ? q->others[l->counts] : q->cost;
    /* The most that can be owed beside what is used. */
    uint64_t most = (l->algorithm == SIM_SLIDING ? UINT32_MAX : (UINT64_C(1) << 53) - 1) - capacity(l);
    return l->overdraft && cost > most ? most : cost;
}

/* What has to fit. */
static uint64_t need_of(const struct sim_limit *l, const struct sim_request *q)
{
    uint64_t cost = cost_of(l, q);
    return l->overdraft && cost > 1 ? 1 : cost;
}

static void add_rule(struct plan *plan, struct sim *sim, const struct sim_rule *rule, const struct sim_request *q,
                     int64_t now_us)
{
    for (size_t i = 0; i < rule->limit_count; i++) {
        struct entry *e = &plan->entries[plan->count++];
        *e = (struct entry){ .rule = rule, .limit = &rule->limits[i], .cell = find_cell(sim, rule, &rule->limits[i], q) };
        e->state = at(e->limit, e->cell->state, now_us, &e->rebased);
        int64_t judged_us = now_us;
        if (e->rebased && !sim->one_clock && !rebase(e->cell, e->limit, now_us, &e->rebase)) {
            e->rebased = false;
            e->state = e->cell->state;
            judged_us = own_time_us(e->limit, &e->state);
        }
        e->fits = has_room(e->limit, &e->state, judged_us, need_of(e->limit, q));
    }
}

/* All or nothing. Writes nothing where it refuses, but for a clock that was wrong. */
static bool decide_plan(struct plan *plan, const struct sim_request *q, int64_t now_us, bool write)
{
    bool all = true;
    for (size_t i = 0; i < plan->count; i++)
        all = all && plan->entries[i].fits;
    for (size_t i = 0; write && i < plan->count; i++) {
        struct entry *e = &plan->entries[i];
        if (all && cost_of(e->limit, q) == 0)
            continue;
        if (all)
            charge(e->limit, &e->state, now_us, cost_of(e->limit, q));
        else if (e->fits || !e->rebased)
            continue;
        if (e->rebased)
            e->cell->rebase = e->rebase;
        e->cell->state = e->state;
        e->cell->latest_us = now_us;
    }
    bool rebased;
    for (size_t i = 0; i < plan->count; i++) {
        struct entry *e = &plan->entries[i];
        e->shown = at(e->limit, e->state, now_us, &rebased);
    }
    return all;
}

/* ---- penalties ---- */

/* The engine knows when a window of refusals began to 1024 µs. */
enum { SINCE_US = 1024 };

/* Who is penalised, among the subjects of a plan. */
struct sentence {
    const struct sim_rule *rules;
    bool runs[SIM_RULES];
    const struct entry *first; /* of the rule whose penalty lasts longest; NULL: nobody is */
    int64_t rest_us;
};

static int64_t length_us(const struct sim_penalty *p, unsigned level)
{
    __int128 length = p->for_us;
    while (--level > 0 && length < p->most_us)
        length *= p->grow;
    return length < p->most_us ? (int64_t)length : p->most_us;
}

static int64_t remembered_us(const struct sim_penalty *p)
{
    return p->grow > 1 ? p->most_us : 0;
}

/* Returns whether a time was too far ahead. */
static bool punished_at(struct sim_punished *x, const struct sim_penalty *p, int64_t now_us)
{
    bool moved = false;
    if (x->level > 0 && x->end_us > now_us + length_us(p, x->level)) {
        x->end_us = now_us + length_us(p, x->level);
        moved = true;
    }
    if (x->level > 0 && now_us >= x->end_us + remembered_us(p) && now_us >= x->end_us)
        x->level = 0;
    if (x->count > 0 && x->since_us > now_us + p->within_us) {
        x->since_us = now_us / SINCE_US * SINCE_US;
        moved = true;
    }
    if (x->count > 0 && now_us >= x->since_us + p->within_us)
        x->count = 0;
    return moved;
}

bool sim_forgiven_at(const struct sim_punished *punished, const struct sim_penalty *p, int64_t now_us)
{
    struct sim_punished x = *punished;
    punished_at(&x, p, now_us);
    return x.level == 0 && x.count == 0;
}

const struct sim_rule *sim_punisher(const struct sim *sim, const struct sim_punished *punished)
{
    for (size_t i = 0; i < sim->rule_count; i++)
        if (strcmp(sim->rules[i].id, punished->rule) == 0 && sim->rules[i].by == punished->by)
            return &sim->rules[i];
    return NULL;
}

static struct sim_punished *find_punished(struct sim *sim, const struct sim_rule *rule, const struct sim_request *q)
{
    struct sim_punished fresh = { .by = rule->by };
    snprintf(fresh.rule, SIM_TEXT, "%s", rule->id);
    snprintf(fresh.event, SIM_TEXT, "%s", rule->by & SIM_BY_EVENT ? q->event : "");
    snprintf(fresh.key, SIM_TEXT, "%s", rule->by & SIM_BY_KEY ? q->key : "");
    snprintf(fresh.user, SIM_TEXT, "%s", rule->by & SIM_BY_USER ? q->user : "");
    snprintf(fresh.entry, SIM_TEXT, "%s", rule->by & SIM_BY_ENTRY ? q->entry : "");
    struct sim_punished *x = sim->punished, *end = x + sim->punished_count;
    while (x < end &&
           (strcmp(x->rule, fresh.rule) != 0 || x->by != fresh.by || strcmp(x->event, fresh.event) != 0 ||
            strcmp(x->key, fresh.key) != 0 || strcmp(x->user, fresh.user) != 0 || strcmp(x->entry, fresh.entry) != 0))
        x++;
    if (x == end) {
        if (sim->punished_count++ == SIM_CELLS)
            __builtin_trap();
        *x = fresh;
    }
    return x;
}

static void write_punished(struct sim_punished *to, const struct sim_punished *x, const struct sim_penalty *p,
                           int64_t now_us)
{
    *to = *x;
    to->latest_us = now_us;
    to->forgotten_us = x->level > 0 ? x->end_us + remembered_us(p) : 0;
    if (x->count > 0 && x->since_us + p->within_us > to->forgotten_us)
        to->forgotten_us = x->since_us + p->within_us;
}

static void punish(struct sentence *s, const struct entry *first, int64_t rest_us)
{
    s->runs[first->rule - s->rules] = true;
    if (!s->first || rest_us > s->rest_us) {
        s->first = first;
        s->rest_us = rest_us;
    }
}

static void find_penalties(struct sim *sim, const struct plan *plan, const struct sim_request *q, int64_t now_us,
                           bool write, struct sentence *s)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct entry *e = &plan->entries[i];
        if ((i > 0 && plan->entries[i - 1].rule == e->rule) || e->rule->penalty.after == 0)
            continue;
        struct sim_punished *there = find_punished(sim, e->rule, q), x = *there;
        if (punished_at(&x, &e->rule->penalty, now_us) && write)
            write_punished(there, &x, &e->rule->penalty, now_us);
        if (x.level > 0 && x.end_us > now_us)
            punish(s, e, x.end_us - now_us);
    }
}

static bool rule_refuses(const struct plan *plan, const struct sim_rule *rule)
{
    bool refuses = false;
    for (size_t i = 0; i < plan->count; i++)
        refuses = refuses || (plan->entries[i].rule == rule && !plan->entries[i].fits);
    return refuses;
}

static void count_refusals(struct sim *sim, const struct plan *plan, const struct sim_request *q, int64_t now_us,
                           struct sentence *s)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct entry *e = &plan->entries[i];
        const struct sim_penalty *p = &e->rule->penalty;
        if ((i > 0 && plan->entries[i - 1].rule == e->rule) || p->after == 0 || s->runs[e->rule - s->rules] ||
            !rule_refuses(plan, e->rule))
            continue;
        struct sim_punished *there = find_punished(sim, e->rule, q), x = *there;
        punished_at(&x, p, now_us);
        if (x.count++ == 0)
            x.since_us = now_us / SINCE_US * SINCE_US;
        if (x.count >= p->after) {
            x.count = 0;
            x.level++;
            x.end_us = now_us + length_us(p, x.level);
            punish(s, e, x.end_us - now_us);
        }
        write_punished(there, &x, p, now_us);
    }
}

static int64_t ms_up(int64_t us);

static void name_penalty(const struct sentence *s, int64_t now_us, struct sim_verdict *v)
{
    const struct sim_limit *l = s->first->limit;
    v->applied = v->penalty = true;
    v->rule = s->first->rule->id;
    v->limit = l->name;
    v->unit = l->counts;
    v->max = capacity(l);
    v->reset_ms = v->retry_after_ms = ms_up(s->rest_us);
    v->window_ms = ms_up(window_us(l, now_us));
}

/* ---- the verdict ---- */

static int64_t ms_up(int64_t us)
{
    return us < 0 ? us : (us + 999) / 1000;
}

static bool waits_longer(int64_t a, int64_t b)
{
    if (a == SIM_NEVER || b == SIM_NEVER)
        return a == SIM_NEVER && b != SIM_NEVER;
    return a > b;
}

static void name_limit(const struct plan *plan, const struct sim_request *q, int64_t now_us,
                       const struct sentence *sentence, struct sim_verdict *v)
{
    const struct entry *named = NULL;
    int64_t longest = 0;
    uint64_t least = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct entry *e = &plan->entries[i];
        if (!v->allowed && e->fits)
            continue;
        uint64_t left = remaining(e->limit, &e->shown, now_us);
        int64_t retry = v->allowed ? 0 : retry_us(e->limit, &e->shown, now_us, need_of(e->limit, q));
        if (named && !(v->allowed ? left < least : waits_longer(retry, longest)))
            continue;
        named = e;
        least = left;
        longest = retry;
    }
    if (!v->allowed && sentence->first && (!named || !waits_longer(longest, sentence->rest_us))) {
        name_penalty(sentence, now_us, v);
        return;
    }
    if (!named)
        return;
    v->applied = true;
    v->penalty = !v->allowed && sentence->runs[named->rule - sentence->rules];
    v->rule = named->rule->id;
    v->limit = named->limit->name;
    v->unit = named->limit->counts;
    v->max = capacity(named->limit);
    v->remaining = least;
    v->debt = named->limit->overdraft ? debt(named->limit, &named->shown, now_us) : 0;
    v->reset_ms = ms_up(reset_us(named->limit, &named->shown, now_us));
    v->retry_after_ms = ms_up(longest);
    v->window_ms = ms_up(window_us(named->limit, now_us));
}

/* Something is to be charged, if it is allowed. */
static bool charges(const struct sim *sim, const struct sim_request *q)
{
    bool some = q->cost > 0;
    for (size_t i = 0; i < sim->rule_count; i++)
        for (size_t k = 0; applies(&sim->rules[i], q) && k < sim->rules[i].limit_count; k++)
            some = some || cost_of(&sim->rules[i].limits[k], q) > 0;
    return some && !q->peek;
}

void sim_decide(struct sim *sim, const struct sim_request *q, int64_t now_us, struct sim_verdict *ret)
{
    struct plan enforced = { .count = 0 };
    bool write = charges(sim, q);
    *ret = (struct sim_verdict){ .rule = "", .limit = "" };
    for (size_t i = 0; i < sim->rule_count; i++)
        if (applies(&sim->rules[i], q) && sim->rules[i].mode == SIM_ENFORCE)
            add_rule(&enforced, sim, &sim->rules[i], q, now_us);
    struct sentence sentence = { .rules = sim->rules };
    find_penalties(sim, &enforced, q, now_us, write, &sentence);
    bool penalised = sentence.first;
    /* The store is not asked about a request that is refused anyway. */
    for (size_t i = 0; sim->one_clock && penalised && i < enforced.count; i++)
        enforced.entries[i].fits = true;
    ret->allowed = decide_plan(&enforced, q, now_us, write && !penalised) && !penalised;
    if (!ret->allowed && write)
        count_refusals(sim, &enforced, q, now_us, &sentence);
    name_limit(&enforced, q, now_us, &sentence, ret);
    for (size_t i = 0; i < sim->rule_count; i++) {
        struct plan shadow = { .count = 0 };
        if (!applies(&sim->rules[i], q) || sim->rules[i].mode != SIM_SHADOW)
            continue;
        add_rule(&shadow, sim, &sim->rules[i], q, now_us);
        bool known = !(sim->one_clock && penalised);
        if (!decide_plan(&shadow, q, now_us, write && ret->allowed) && known)
            ret->shadow[ret->shadow_count++] = sim->rules[i].id;
    }
}

void sim_reset(struct sim *sim, const struct sim_rule *rule, const struct sim_request *q)
{
    for (size_t i = 0; i < rule->limit_count; i++)
        find_cell(sim, rule, &rule->limits[i], q)->state = (struct sim_state){ 0 };
    struct sim_punished *x = find_punished(sim, rule, q);
    x->level = x->count = 0;
}
