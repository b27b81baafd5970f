/* Deep copies, from the arena of one set into that of another, and what they are for: the last good rules stay. */
#include <stdlib.h>

#include "rules/reader.h"

struct copier {
    struct arena *arena;
    struct shared_lists *shared;
    bool failed;
};

static sv copy_text(struct copier *c, sv text)
{
    sv copy = text.len > 0 ? arena_copy(c->arena, text) : SV("");
    c->failed = c->failed || !copy.ptr;
    return copy;
}

static void *copy_bytes(struct copier *c, const void *from, size_t size)
{
    void *copy = arena_alloc(c->arena, size);
    c->failed = c->failed || !copy;
    if (copy && size)
        memcpy(copy, from, size);
    return copy;
}

/* An array whose elements have a text at `offset`. NULL stays NULL: for `ids` that is another thing than an empty list. */
static void *copy_items(struct copier *c, const void *from, size_t count, size_t size, size_t offset)
{
    char *copy = from ? copy_bytes(c, from, count * size) : NULL;
    for (size_t i = 0; copy && i < count; i++) {
        sv *text = (sv *)(void *)(copy + i * size + offset);
        *text = copy_text(c, *text);
    }
    return copy;
}

static sv *copy_texts(struct copier *c, const sv *from, size_t count)
{
    return copy_items(c, from, count, sizeof *from, 0);
}

static struct rule_header *copy_headers(struct copier *c, const struct rule_header *from, size_t count)
{
    struct rule_header *copy = copy_items(c, from, count, sizeof *from, offsetof(struct rule_header, name));
    for (size_t i = 0; copy && i < count; i++)
        copy[i].value = copy_text(c, from[i].value);
    return copy;
}

static void copy_except(struct copier *c, struct rule_except *e)
{
    e->ips = copy_bytes(c, e->ips, e->ip_count * sizeof *e->ips);
    e->users = copy_texts(c, e->users, e->user_count);
}

static void copy_reject(struct copier *c, struct rule_reject *reject)
{
    reject->body = copy_text(c, reject->body);
    reject->content_type = copy_text(c, reject->content_type);
    reject->headers = copy_headers(c, reject->headers, reject->header_count);
}

static void copy_values(struct copier *c, struct rule_values *values)
{
    struct rule_value *list = values->count > 0 ? copy_bytes(c, values->list, values->count * sizeof *values->list) : NULL;
    for (size_t i = 0; list && i < values->count; i++)
        if (list[i].kind != VALUE_NETWORK)
            list[i].text = copy_text(c, list[i].text);
    values->list = list;
}

static const struct rule_condition *copy_conditions(struct copier *c, const struct rule_condition *from, size_t count)
{
    struct arena_mark before = arena_mark(c->arena);
    struct rule_condition *conditions =
        count > 0 ? copy_items(c, from, count, sizeof *from, offsetof(struct rule_condition, name)) : NULL;
    for (size_t i = 0; conditions && i < count; i++) {
        copy_values(c, &conditions[i].is);
        copy_values(c, &conditions[i].is_not);
    }
    if (c->failed)
        return NULL;
    const struct rule_condition *shared = share_conditions(c->shared, conditions, count);
    if (shared != conditions)
        arena_back(c->arena, &before);
    return shared;
}

const struct rule_condition *conditions_copy(struct arena *arena, struct shared_lists *shared,
                                             const struct rule_condition *from, size_t count)
{
    struct copier c = { arena, shared };
    return copy_conditions(&c, from, count);
}

static void copy_match(struct copier *c, struct rule_match *m)
{
    if (m->alone) {
        m->text = copy_text(c, sv_of(m->text, m->length)).ptr;
        return;
    }
    size_t count = rule_path_count(m);
    struct rule_path *list = count > 0 ? copy_bytes(c, m->list, count * sizeof *list) : NULL;
    for (size_t i = 0; list && i < count; i++)
        list[i].text = copy_text(c, rule_path_text(list[i])).ptr;
    m->list = list;
}

static const struct rule_limit *copy_limits(struct copier *c, struct rules *into, const struct rule_limit *from,
                                            size_t count)
{
    struct arena_mark before = arena_mark(c->arena);
    struct rule_limit *limits = copy_items(c, from, count, sizeof *from, offsetof(struct rule_limit, name));
    for (size_t i = 0; limits && i < count; i++) {
        limits[i].cost_unit = copy_text(c, limits[i].cost_unit);
        if (limits[i].zone)
            c->failed = !(limits[i].zone = zone_copy(into, limits[i].zone)) || c->failed;
    }
    if (c->failed)
        return NULL;
    const struct rule_limit *shared = share_limits(c->shared, limits, count);
    if (shared != limits)
        arena_back(c->arena, &before); /* zones stay, as in read_limit_list() */
    return shared;
}

static const struct rule_by *copy_by(struct copier *c, const struct rule_by *from, size_t count)
{
    struct arena_mark before = arena_mark(c->arena);
    const struct rule_by *by = copy_items(c, from, count, sizeof *from, offsetof(struct rule_by, name));
    const struct rule_by *shared = share_by(c->shared, by, count);
    if (shared != by)
        arena_back(c->arena, &before);
    return shared;
}

static const struct rule_rest *copy_rest(struct copier *c, struct rules *into, const struct rule_rest *from)
{
    if (from == &rule_no_rest)
        return from;
    struct arena_mark before = arena_mark(c->arena);
    struct rule_rest rest = *from;
    rest.plan.name = copy_text(c, rest.plan.name);
    rest.plans = copy_items(c, rest.plans, rest.plan_count, sizeof *rest.plans, offsetof(struct rule_plan, name));
    for (size_t i = 0; rest.plans && i < rest.plan_count; i++)
        rest.plans[i].limits = copy_limits(c, into, rest.plans[i].limits, rest.plans[i].limit_count);
    rest.file = copy_text(c, rest.file);
    rest.replaces = copy_texts(c, rest.replaces, rest.replace_count);
    copy_except(c, &rest.except);
    copy_reject(c, &rest.reject);
    const struct rule_rest *copy = copy_bytes(c, &rest, sizeof rest),
                           *shared = c->failed ? copy : share_rest(c->shared, copy);
    if (shared != copy)
        arena_back(c->arena, &before);
    return shared;
}

static const struct rule_kind *copy_kind(struct copier *c, struct rules *into, const struct rule_kind *from)
{
    struct rule_kind kind = *from;
    kind.conditions = copy_conditions(c, kind.conditions, kind.condition_count);
    kind.by = copy_by(c, kind.by, kind.by_count);
    kind.limits = copy_limits(c, into, kind.limits, kind.limit_count);
    kind.rest = copy_rest(c, into, kind.rest);
    struct arena_mark before = arena_mark(c->arena);
    const struct rule_kind *copy = copy_bytes(c, &kind, sizeof kind),
                           *shared = c->failed ? copy : share_kind(c->shared, copy);
    if (shared != copy)
        arena_back(c->arena, &before);
    return shared;
}

/* NULL: no memory. */
static struct rule *copy_rule(struct rules *into, struct shared_lists *shared, const struct rule *from)
{
    struct copier c = { &into->arena, shared };
    struct rule rule = *from;
    rule.id = copy_text(&c, rule.id);
    copy_match(&c, &rule.match);
    rule.kind = copy_kind(&c, into, rule.kind);
    struct rule *copy = copy_bytes(&c, &rule, sizeof rule);
    return c.failed ? NULL : copy;
}

static bool copy_override(struct rules *into, struct shared_lists *shared, const struct rule_override *from, sv rule,
                          struct rule_override *ret)
{
    struct copier c = { &into->arena, shared };
    *ret = *from;
    ret->rule = rule;
    ret->values = copy_texts(&c, from->values, from->value_count);
    ret->limits = copy_limits(&c, into, from->limits, from->limit_count);
    ret->why = copy_text(&c, from->why);
    return !c.failed;
}

bool settings_copy(struct arena *arena, const struct settings *from, struct settings *ret)
{
    struct copier c = { arena };
    struct settings s = *from;
    s.ids = copy_texts(&c, s.ids, s.id_count);
    s.strip_prefixes = copy_texts(&c, s.strip_prefixes, s.strip_prefix_count);
    s.trusted_proxies = copy_bytes(&c, s.trusted_proxies, s.trusted_proxy_count * sizeof *s.trusted_proxies);
    s.partition_key_secret = copy_text(&c, s.partition_key_secret);
    copy_except(&c, &s.except);
    copy_reject(&c, &s.reject);
    if (!c.failed)
        *ret = s;
    return !c.failed;
}

/* ---- the last good ones ---- */

/* A rule of the last set that stays, and the rule of the fresh set that it comes before. */
struct restored {
    size_t last_index;
    size_t before;
};

struct merge {
    struct rules *fresh;
    const struct rules *last;
    struct id_entry *fresh_ids, *last_ids;
    struct shared_lists *shared; /* of what is copied */
    bool *taken;                 /* by index in `last` */
    struct restored *restored;   /* by their place */
    size_t count;
};

static void restore(struct merge *m, sv id, size_t before)
{
    const struct id_entry *old = ids_find(m->last_ids, m->last->rule_count, id);
    if (!old || m->taken[old->index] || ids_find(m->fresh_ids, m->fresh->rule_count, id))
        return;
    m->taken[old->index] = true;
    m->restored[m->count++] = (struct restored){ old->index, before };
}

static int compare_last(const void *a, const void *b)
{
    const struct restored *x = a, *y = b;
    return (x->last_index > y->last_index) - (x->last_index < y->last_index);
}

/* Those whose place is known, in file order; then the others, in their old order. */
static void choose(struct merge *m, const struct rules_report *report)
{
    size_t end = m->fresh->rule_count;
    for (size_t i = 0; i < report->bad_count; i++)
        restore(m, report->bad[i].id, report->bad[i].before < end ? report->bad[i].before : end);
    size_t known = m->count;
    for (size_t i = 0; i < report->error_count && i < RULES_ERRORS_MAX; i++)
        restore(m, report->errors[i].rule, end);
    for (size_t i = 0; report->unreadable && i < m->last->rule_count; i++)
        restore(m, m->last->rules[i]->id, end);
    if (m->count - known > 1)
        qsort(m->restored + known, m->count - known, sizeof *m->restored, compare_last);
}

static bool put_together(struct merge *m)
{
    struct rules *fresh = m->fresh;
    if (m->count == 0)
        return true;
    size_t total = fresh->rule_count + m->count, out = 0, next = 0;
    struct rule **merged = ARENA_ARRAY(&fresh->lists, struct rule *, total);
    for (size_t i = 0; merged && i <= fresh->rule_count; i++) {
        for (; next < m->count && (m->restored[next].before <= i || i == fresh->rule_count); next++)
            if (!(merged[out++] = copy_rule(fresh, m->shared, m->last->rules[m->restored[next].last_index])))
                return false;
        if (i < fresh->rule_count)
            merged[out++] = fresh->rules[i];
    }
    if (!merged)
        return false;
    fresh->rules = merged;
    fresh->rule_count = total;
    return true;
}

/* ---- overrides ---- */

static int compare_sorted(const void *a, const void *b)
{
    return override_compare(*(struct rule_override *const *)a, *(struct rule_override *const *)b);
}

static const struct rule_override **sorted_overrides(const struct rules *rules)
{
    const struct rule_override **sorted = cleanup_calloc(rules->override_count + 1, sizeof *sorted);
    for (size_t i = 0; sorted && i < rules->override_count; i++)
        sorted[i] = &rules->overrides[i];
    if (sorted && rules->override_count > 1)
        qsort(sorted, rules->override_count, sizeof *sorted, compare_sorted);
    return sorted;
}

static const struct rule_override *find_sorted(const struct rule_override **sorted, size_t count,
                                               const struct rule_override *wanted)
{
    const struct rule_override **found = count ? bsearch(&wanted, sorted, count, sizeof *sorted, compare_sorted) : NULL;
    return found ? *found : NULL;
}

/* Which overrides of the last set stay. */
struct override_merge {
    struct merge *m;
    const struct rule_override **fresh, **last; /* sorted by subject */
    bool *stays;                                /* by index in the last set */
};

/* Returns the rule that an override of the last set has in the new set, if it still counts by the same; NULL: the override
 * does not stay.
 */
static const struct rule *rule_of_last(const struct override_merge *o, const struct rule_override *last)
{
    const struct merge *m = o->m;
    const struct id_entry *now = ids_find(m->fresh_ids, m->fresh->rule_count, last->rule);
    const struct id_entry *then = ids_find(m->last_ids, m->last->rule_count, last->rule);
    const struct rule *rule = now ? m->fresh->rules[now->index] : NULL;
    return rule && then && rule_same_by(rule, m->last->rules[then->index]) ? rule : NULL;
}

static bool choose_overrides(struct override_merge *o, const struct rules_report *report)
{
    const struct merge *m = o->m;
    size_t last_count = m->last->override_count, chosen = 0;
    for (size_t i = 0; i < report->bad_override_count; i++) {
        const struct override_bad *bad = &report->bad_overrides[i];
        struct rule_override wanted = { .rule = bad->rule, .values = bad->values, .value_count = bad->value_count };
        const struct rule_override *old = find_sorted(o->last, last_count, &wanted);
        if (old)
            o->stays[old - m->last->overrides] = true;
    }
    for (size_t i = 0; i < last_count; i++) {
        const struct rule_override *old = &m->last->overrides[i];
        const struct id_entry *rule = ids_find(m->last_ids, m->last->rule_count, old->rule);
        bool all = report->unreadable || report->overrides_unreadable || (rule && m->taken[rule->index]);
        o->stays[i] = (o->stays[i] || all) && rule_of_last(o, old) && !find_sorted(o->fresh, m->fresh->override_count, old);
        chosen += o->stays[i];
    }
    return chosen > 0;
}

static bool put_overrides_together(struct override_merge *o)
{
    struct rules *fresh = o->m->fresh;
    const struct rules *last = o->m->last;
    size_t count = fresh->override_count;
    struct rule_override *merged = ARENA_ARRAY(&fresh->lists, struct rule_override, count + last->override_count);
    if (!merged)
        return false;
    if (count)
        memcpy(merged, fresh->overrides, count * sizeof *merged);
    for (size_t i = 0; i < last->override_count; i++)
        if (o->stays[i] && !copy_override(fresh, o->m->shared, &last->overrides[i],
                                          rule_of_last(o, &last->overrides[i])->id, &merged[count++]))
            return false;
    fresh->overrides = merged;
    fresh->override_count = count;
    return true;
}

/* After the rules: those that stay are in `fresh`, and its ids are sorted anew. */
static bool keep_overrides(struct merge *m, const struct rules_report *report)
{
    if (m->last->override_count == 0)
        return true;
    CLEANUP_FREE const struct rule_override **fresh = sorted_overrides(m->fresh), **last = sorted_overrides(m->last);
    CLEANUP_FREE struct id_entry *ids = ids_of_rules(m->fresh);
    CLEANUP_FREE bool *stays = cleanup_calloc(m->last->override_count, sizeof *stays);
    if (!fresh || !last || !ids || !stays)
        return false;
    struct merge with_last = *m;
    with_last.fresh_ids = ids;
    struct override_merge o = { &with_last, fresh, last, stays };
    return !choose_overrides(&o, report) || put_overrides_together(&o);
}

/* `last` is a copy already. */
static void keep_settings(struct settings *s, const struct settings *last, unsigned bad)
{
    if (bad & 1u << SETTING_IDS) {
        s->ids = last->ids;
        s->id_count = last->id_count;
    }
    if (bad & 1u << SETTING_IGNORE_CASE)
        s->ignore_case = last->ignore_case;
    if (bad & 1u << SETTING_STRIP_PREFIXES) {
        s->strip_prefixes = last->strip_prefixes;
        s->strip_prefix_count = last->strip_prefix_count;
    }
    if (bad & 1u << SETTING_TRUSTED_PROXIES) {
        s->trusted_proxies = last->trusted_proxies;
        s->trusted_proxy_count = last->trusted_proxy_count;
    }
    if (bad & 1u << SETTING_IPV6_PREFIX)
        s->ipv6_prefix = last->ipv6_prefix;
    if (bad & 1u << SETTING_REPEATED_HEADERS)
        s->repeated_headers = last->repeated_headers;
    if (bad & 1u << SETTING_HEADERS)
        s->headers = last->headers;
    if (bad & 1u << SETTING_PARTITION_KEY_SECRET)
        s->partition_key_secret = last->partition_key_secret;
    if (bad & 1u << SETTING_EXCEPT)
        s->except = last->except;
    if (bad & 1u << SETTING_REJECT)
        s->reject = last->reject;
}

/* ---- sharing ---- */

struct rules *rules_share(struct rules *rules)
{
    __atomic_add_fetch(&rules->users, 1, __ATOMIC_RELAXED);
    return rules;
}

struct rules *rules_hold(struct rules *rules)
{
    __atomic_add_fetch(&rules->holders, 1, __ATOMIC_RELAXED);
    return rules;
}

void rules_let_go(struct rules *rules)
{
    while (rules && __atomic_fetch_sub(&rules->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        struct rules *base = rules->base;
        arena_done(&rules->arena);
        free(rules);
        rules = base;
    }
}

void rules_free(struct rules *rules)
{
    if (!rules || __atomic_fetch_sub(&rules->users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    arena_done(&rules->lists);
    rules_let_go(rules);
}

void rules_build_on(struct rules *rules, struct rules *base)
{
    rules->base = rules_hold(base);
    rules->bases = base->bases + 1;
    rules->zones = base->zones;
}

struct rules *rules_some(struct rules *rules, const uint32_t *numbers, size_t count)
{
    CLEANUP(rules_freep) struct rules *some = cleanup_calloc(1, sizeof *some);
    if (!some)
        return NULL;
    rules_build_on(some, rules);
    some->settings = rules->settings;
    some->rules = ARENA_ARRAY(&some->lists, struct rule *, count);
    if (!some->rules)
        return NULL;
    for (size_t i = 0; i < count; i++)
        some->rules[i] = rules->rules[numbers[i]];
    some->rule_count = count;
    return STEAL(some);
}

struct rules *rules_copy(const struct rules *rules)
{
    struct rules_report nothing = { .unreadable = true };
    CLEANUP(rules_freep) struct rules *copy = cleanup_calloc(1, sizeof *copy);
    return copy && rules_keep_last_good(copy, &nothing, rules) == 0 ? STEAL(copy) : NULL;
}

bool rules_leave_out(struct rules *rules, bool (*out)(const struct rule *rule))
{
    CLEANUP_FREE struct id_entry *ids = ids_of_rules(rules);
    /* New lists: others may know the old ones. */
    struct rule **left = ARENA_ARRAY(&rules->lists, struct rule *, rules->rule_count + 1);
    struct rule_override *left_overrides = ARENA_ARRAY(&rules->lists, struct rule_override, rules->override_count + 1);
    size_t count = 0;
    if (!ids || !left || !left_overrides)
        return false;
    for (size_t i = 0; i < rules->override_count; i++) {
        const struct id_entry *rule = ids_find(ids, rules->rule_count, rules->overrides[i].rule);
        if (rule && !out(rules->rules[rule->index]))
            left_overrides[count++] = rules->overrides[i];
    }
    rules->overrides = left_overrides;
    rules->override_count = count;
    count = 0;
    for (size_t i = 0; i < rules->rule_count; i++)
        if (!out(rules->rules[i]))
            left[count++] = rules->rules[i];
    rules->rules = left;
    rules->rule_count = count;
    return true;
}

int rules_keep_last_good(struct rules *fresh, const struct rules_report *report, const struct rules *last)
{
    CLEANUP_FREE struct id_entry *fresh_ids = ids_of_rules(fresh), *last_ids = ids_of_rules(last);
    CLEANUP_FREE bool *taken = cleanup_calloc(last->rule_count + 1, sizeof *taken);
    CLEANUP_FREE struct restored *restored = cleanup_calloc(last->rule_count + 1, sizeof *restored);
    struct settings settings;
    if (!fresh_ids || !last_ids || !taken || !restored || !settings_copy(&fresh->arena, &last->settings, &settings))
        return WEIR_E_NO_MEMORY;
    CLEANUP(shared_lists_done) struct shared_lists shared = { 0 };
    struct merge m = { fresh, last, fresh_ids, last_ids, &shared, taken, restored, 0 };
    choose(&m, report);
    struct rules before = *fresh;
    if (!put_together(&m) || !keep_overrides(&m, report)) {
        fresh->rules = before.rules;
        fresh->rule_count = before.rule_count;
        return WEIR_E_NO_MEMORY;
    }
    keep_settings(&fresh->settings, &settings, report->unreadable ? (1u << SETTINGS) - 1 : report->bad_settings);
    return 0;
}
