/* Deep copies, from the arena of one set into that of another, and what they are for: the last good rules stay. */
#include <stdlib.h>

#include "rules/reader.h"

struct copier {
    struct arena *arena;
    bool failed;
};

static sv copy_text(struct copier *c, sv text)
{
    sv copy = arena_copy(c->arena, text);
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

static void copy_match(struct copier *c, struct rule_match *m)
{
    m->texts = copy_items(c, m->texts, m->text_count, sizeof *m->texts, offsetof(struct rule_text, value));
    m->methods = copy_texts(c, m->methods, m->method_count);
    m->paths = copy_items(c, m->paths, m->path_count, sizeof *m->paths, offsetof(struct rule_path, text));
    m->headers = copy_headers(c, m->headers, m->header_count);
}

static bool copy_rule(struct rules *into, const struct rule *from, struct rule *ret)
{
    struct copier c = { &into->arena };
    struct rule rule = *from;
    rule.id = copy_text(&c, rule.id);
    copy_match(&c, &rule.match);
    rule.by = copy_items(&c, rule.by, rule.by_count, sizeof *rule.by, offsetof(struct rule_by, header));
    rule.limits = copy_items(&c, rule.limits, rule.limit_count, sizeof *rule.limits, offsetof(struct rule_limit, name));
    for (size_t i = 0; rule.limits && i < rule.limit_count; i++) {
        rule.limits[i].cost_unit = copy_text(&c, rule.limits[i].cost_unit);
        if (rule.limits[i].zone)
            c.failed = !(rule.limits[i].zone = zone_copy(into, rule.limits[i].zone)) || c.failed;
    }
    copy_except(&c, &rule.except);
    copy_reject(&c, &rule.reject);
    *ret = rule;
    return !c.failed;
}

bool settings_copy(struct arena *arena, const struct settings *from, struct settings *ret)
{
    struct copier c = { arena };
    struct settings s = *from;
    s.ids = copy_texts(&c, s.ids, s.id_count);
    s.strip_prefixes = copy_texts(&c, s.strip_prefixes, s.strip_prefix_count);
    s.trusted_proxies = copy_bytes(&c, s.trusted_proxies, s.trusted_proxy_count * sizeof *s.trusted_proxies);
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
    bool *taken;               /* by index in `last` */
    struct restored *restored; /* by their place */
    size_t count;
};

static struct id_entry *sorted_ids(const struct rules *rules)
{
    struct id_entry *ids = calloc(rules->rule_count + 1, sizeof *ids);
    for (size_t i = 0; ids && i < rules->rule_count; i++)
        ids[i] = (struct id_entry){ rules->rules[i].id, i };
    if (ids)
        ids_sort(ids, rules->rule_count);
    return ids;
}

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
        restore(m, m->last->rules[i].id, end);
    if (m->count - known > 1)
        qsort(m->restored + known, m->count - known, sizeof *m->restored, compare_last);
}

static bool put_together(struct merge *m)
{
    struct rules *fresh = m->fresh;
    if (m->count == 0)
        return true;
    size_t total = fresh->rule_count + m->count, out = 0, next = 0;
    struct rule *merged = ARENA_ARRAY(&fresh->arena, struct rule, total);
    for (size_t i = 0; merged && i <= fresh->rule_count; i++) {
        for (; next < m->count && (m->restored[next].before <= i || i == fresh->rule_count); next++)
            if (!copy_rule(fresh, &m->last->rules[m->restored[next].last_index], &merged[out++]))
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
    if (bad & 1u << SETTING_EXCEPT)
        s->except = last->except;
    if (bad & 1u << SETTING_REJECT)
        s->reject = last->reject;
}

void rules_free(struct rules *rules)
{
    if (!rules)
        return;
    arena_done(&rules->arena);
    free(rules);
}

struct rules *rules_copy(const struct rules *rules)
{
    struct rules_report nothing = { .unreadable = true };
    CLEANUP(rules_freep) struct rules *copy = cleanup_calloc(1, sizeof *copy);
    return copy && rules_keep_last_good(copy, &nothing, rules) == 0 ? STEAL(copy) : NULL;
}

int rules_keep_last_good(struct rules *fresh, const struct rules_report *report, const struct rules *last)
{
    CLEANUP_FREE struct id_entry *fresh_ids = sorted_ids(fresh), *last_ids = sorted_ids(last);
    CLEANUP_FREE bool *taken = cleanup_calloc(last->rule_count + 1, sizeof *taken);
    CLEANUP_FREE struct restored *restored = cleanup_calloc(last->rule_count + 1, sizeof *restored);
    struct settings settings;
    if (!fresh_ids || !last_ids || !taken || !restored || !settings_copy(&fresh->arena, &last->settings, &settings))
        return WEIR_E_NO_MEMORY;
    struct merge m = { fresh, last, fresh_ids, last_ids, taken, restored, 0 };
    choose(&m, report);
    if (!put_together(&m))
        return WEIR_E_NO_MEMORY;
    keep_settings(&fresh->settings, &settings, report->unreadable ? (1u << SETTINGS) - 1 : report->bad_settings);
    return 0;
}
