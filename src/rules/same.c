/* Whether rules match the same requests, so that what finds one of them also finds the other. */
#include "rules/reader.h"

static bool same_texts(const sv *a, size_t a_count, const sv *b, size_t b_count)
{
    bool same = a_count == b_count;
    for (size_t i = 0; same && i < a_count; i++)
        same = sv_eq(a[i], b[i]);
    return same;
}

static bool same_network(const struct cidr *a, const struct cidr *b)
{
    return a->prefix == b->prefix && memcmp(&a->ip, &b->ip, sizeof a->ip) == 0;
}

static bool same_networks(const struct cidr *a, size_t a_count, const struct cidr *b, size_t b_count)
{
    bool same = a_count == b_count;
    for (size_t i = 0; same && i < a_count; i++)
        same = same_network(&a[i], &b[i]);
    return same;
}

static bool same_except(const struct rule_except *a, const struct rule_except *b)
{
    return same_networks(a->ips, a->ip_count, b->ips, b->ip_count) &&
           same_texts(a->users, a->user_count, b->users, b->user_count);
}

static bool same_value_lists(const struct rule_values *a, const struct rule_values *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) {
        const struct rule_value *x = &a->list[i], *y = &b->list[i];
        same = x->kind == y->kind &&
               (x->kind == VALUE_NETWORK ? same_network(&x->network, &y->network) : sv_eq(x->text, y->text));
    }
    return same;
}

static bool same_paths(const struct rule_match *a, const struct rule_match *b)
{
    bool same = a->path_count == b->path_count && a->not_path_count == b->not_path_count;
    for (size_t i = 0; same && i < rule_path_count(a); i++) {
        struct rule_path x = rule_path(a, i), y = rule_path(b, i);
        same = x.is_regex == y.is_regex && sv_eq(rule_path_text(x), rule_path_text(y));
    }
    return same;
}

bool same_conditions(const struct rule_condition *a, size_t a_count, const struct rule_condition *b, size_t b_count)
{
    _Static_assert(sizeof *a == 64, "a new field of a condition is compared, and in the hash of share_conditions()");
    bool same = a_count == b_count;
    for (size_t i = 0; a != b && same && i < a_count; i++)
        same = a[i].attribute == b[i].attribute && a[i].presence == b[i].presence && sv_eq(a[i].name, b[i].name) &&
               same_value_lists(&a[i].is, &b[i].is) && same_value_lists(&a[i].is_not, &b[i].is_not);
    return same;
}

static bool same_penalty(const struct rule_penalty *a, const struct rule_penalty *b)
{
    return a->after == b->after && a->grow == b->grow && a->within_us == b->within_us && a->for_us == b->for_us &&
           a->most_us == b->most_us;
}

bool same_short_rests(const struct rule_rest *a, const struct rule_rest *b)
{
    return a->lease.on == b->lease.on && a->lease.slice == b->lease.slice && a->lease.ttl_ms == b->lease.ttl_ms &&
           a->hold_max_percent == b->hold_max_percent && a->expires_us == b->expires_us &&
           same_penalty(&a->penalty, &b->penalty) && a->reject.status == b->reject.status && sv_eq(a->file, b->file);
}

static bool same_kind(const struct rule_kind *a, const struct rule_kind *b)
{
    const struct rule_rest *x = a->rest, *y = b->rest;
    bool plans = x->plan_count > 0;
    return a->mode == b->mode && x->expires_us == y->expires_us && a->ignore_case == b->ignore_case &&
           same_conditions(a->conditions, a->condition_count, b->conditions, b->condition_count) &&
           same_by_lists(a->by, a->by_count, b->by, b->by_count) && same_except(&x->except, &y->except) &&
           plans == (y->plan_count > 0) &&
           (!plans || (x->plan.attribute == y->plan.attribute && sv_eq(x->plan.name, y->plan.name)));
}

bool rule_matches_same(const struct rule *a, const struct rule *b)
{
    return same_paths(&a->match, &b->match) && (a->kind == b->kind || same_kind(a->kind, b->kind));
}

bool settings_match_same(const struct settings *a, const struct settings *b)
{
    return same_texts(a->ids, a->id_count, b->ids, b->id_count) && !a->ids == !b->ids && a->ignore_case == b->ignore_case &&
           same_texts(a->strip_prefixes, a->strip_prefix_count, b->strip_prefixes, b->strip_prefix_count) &&
           same_networks(a->trusted_proxies, a->trusted_proxy_count, b->trusted_proxies, b->trusted_proxy_count) &&
           a->ipv6_prefix == b->ipv6_prefix && a->repeated_headers == b->repeated_headers &&
           same_except(&a->except, &b->except);
}
