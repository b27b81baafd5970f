/* Whether rules match the same requests, so that what finds one of them also finds the other. */
#include "rules/rules.h"

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

static bool same_values(const struct rule_values *a, const struct rule_values *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) {
        const struct rule_value *x = &a->list[i], *y = &b->list[i];
        same = x->kind == y->kind &&
               (x->kind == VALUE_NETWORK ? same_network(&x->network, &y->network) : sv_eq(x->text, y->text));
    }
    return same;
}

static bool same_paths(const struct rule_path *a, size_t a_count, const struct rule_path *b, size_t b_count)
{
    bool same = a_count == b_count;
    for (size_t i = 0; same && i < a_count; i++)
        same = a[i].is_regex == b[i].is_regex && sv_eq(a[i].text, b[i].text);
    return same;
}

static bool same_match(const struct rule_match *a, const struct rule_match *b)
{
    bool same = a->condition_count == b->condition_count && same_paths(a->paths, a->path_count, b->paths, b->path_count) &&
                same_paths(a->not_paths, a->not_path_count, b->not_paths, b->not_path_count);
    for (size_t i = 0; same && i < a->condition_count; i++) {
        const struct rule_condition *x = &a->conditions[i], *y = &b->conditions[i];
        same = x->attribute == y->attribute && x->presence == y->presence && sv_eq(x->name, y->name) &&
               same_values(&x->is, &y->is) && same_values(&x->is_not, &y->is_not);
    }
    return same;
}

bool rule_matches_same(const struct rule *a, const struct rule *b)
{
    bool plans = a->plan_count > 0;
    return a->mode == b->mode && a->expires_us == b->expires_us && a->ignore_case == b->ignore_case &&
           same_match(&a->match, &b->match) && rule_same_by(a, b) && same_except(&a->rest->except, &b->rest->except) &&
           plans == (b->plan_count > 0) &&
           (!plans || (a->plan.attribute == b->plan.attribute && sv_eq(a->plan.name, b->plan.name)));
}

bool settings_match_same(const struct settings *a, const struct settings *b)
{
    return same_texts(a->ids, a->id_count, b->ids, b->id_count) && !a->ids == !b->ids && a->ignore_case == b->ignore_case &&
           same_texts(a->strip_prefixes, a->strip_prefix_count, b->strip_prefixes, b->strip_prefix_count) &&
           same_networks(a->trusted_proxies, a->trusted_proxy_count, b->trusted_proxies, b->trusted_proxy_count) &&
           a->ipv6_prefix == b->ipv6_prefix && a->repeated_headers == b->repeated_headers &&
           same_except(&a->except, &b->except);
}
