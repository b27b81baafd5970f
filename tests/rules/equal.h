/* Whether two sets of rules say the same; lines apart. */
#ifndef TESTS_RULES_EQUAL_H
#define TESTS_RULES_EQUAL_H

#include "rules/rules.h"

static inline bool texts_equal(const sv *a, size_t a_count, const sv *b, size_t b_count)
{
    bool equal = a_count == b_count;
    for (size_t i = 0; equal && i < a_count; i++)
        equal = sv_eq(a[i], b[i]);
    return equal;
}

static inline bool cidrs_equal(const struct cidr *a, size_t a_count, const struct cidr *b, size_t b_count)
{
    bool equal = a_count == b_count;
    for (size_t i = 0; equal && i < a_count; i++)
        equal = a[i].prefix == b[i].prefix && memcmp(&a[i].ip, &b[i].ip, sizeof a[i].ip) == 0;
    return equal;
}

static inline bool headers_equal(const struct rule_header *a, size_t a_count, const struct rule_header *b, size_t b_count)
{
    bool equal = a_count == b_count;
    for (size_t i = 0; equal && i < a_count; i++)
        equal = sv_eq(a[i].name, b[i].name) && sv_eq(a[i].value, b[i].value);
    return equal;
}

static inline bool values_equal(const struct rule_values *a, const struct rule_values *b)
{
    bool equal = a->count == b->count;
    for (size_t i = 0; equal && i < a->count; i++)
        equal = a->list[i].kind == b->list[i].kind &&
                (a->list[i].kind == VALUE_NETWORK ? cidrs_equal(&a->list[i].network, 1, &b->list[i].network, 1)
                                                  : sv_eq(a->list[i].text, b->list[i].text));
    return equal;
}

static inline bool paths_equal(const struct rule_match *a, const struct rule_match *b)
{
    bool equal = a->path_count == b->path_count && a->not_path_count == b->not_path_count;
    for (size_t i = 0; equal && i < rule_path_count(a); i++) {
        struct rule_path x = rule_path(a, i), y = rule_path(b, i);
        equal = x.is_regex == y.is_regex && sv_eq(rule_path_text(x), rule_path_text(y));
    }
    return equal;
}

static inline bool match_equal(const struct rule *a, const struct rule *b)
{
    bool equal = a->kind->condition_count == b->kind->condition_count && paths_equal(&a->match, &b->match);
    for (size_t i = 0; equal && i < a->kind->condition_count; i++) {
        const struct rule_condition *x = &a->kind->conditions[i], *y = &b->kind->conditions[i];
        equal = x->attribute == y->attribute && sv_eq(x->name, y->name) && x->presence == y->presence &&
                values_equal(&x->is, &y->is) && values_equal(&x->is_not, &y->is_not);
    }
    return equal;
}

static inline bool limit_equal(const struct rule_limit *a, const struct rule_limit *b)
{
    return sv_eq(a->name, b->name) && sv_eq(a->cost_unit, b->cost_unit) && a->named == b->named &&
           a->overdraft == b->overdraft && a->given == b->given && a->algorithm == b->algorithm && a->max == b->max &&
           a->burst == b->burst && a->per_us == b->per_us && a->unit == b->unit && a->week_start == b->week_start &&
           !a->zone == !b->zone && (!a->zone || sv_eq(a->zone->name, b->zone->name));
}

static inline bool limits_equal(const struct rule_limit *a, size_t a_count, const struct rule_limit *b, size_t b_count)
{
    bool equal = a_count == b_count;
    for (size_t i = 0; equal && i < a_count; i++)
        equal = limit_equal(&a[i], &b[i]);
    return equal;
}

static inline bool plans_equal(const struct rule *a, const struct rule *b)
{
    bool equal = a->kind->rest->plan_count == b->kind->rest->plan_count && a->kind->ignore_case == b->kind->ignore_case;
    if (equal && a->kind->rest->plan_count > 0)
        equal = a->kind->rest->plan.attribute == b->kind->rest->plan.attribute &&
                sv_eq(a->kind->rest->plan.name, b->kind->rest->plan.name);
    for (size_t i = 0; equal && i < a->kind->rest->plan_count; i++)
        equal = sv_eq(a->kind->rest->plans[i].name, b->kind->rest->plans[i].name) &&
                limits_equal(a->kind->rest->plans[i].limits, a->kind->rest->plans[i].limit_count,
                             b->kind->rest->plans[i].limits, b->kind->rest->plans[i].limit_count);
    return equal;
}

static inline bool override_equal(const struct rule_override *a, const struct rule_override *b)
{
    return sv_eq(a->rule, b->rule) && texts_equal(a->values, a->value_count, b->values, b->value_count) &&
           a->kind == b->kind && limits_equal(a->limits, a->limit_count, b->limits, b->limit_count) &&
           a->expires_us == b->expires_us && sv_eq(a->why, b->why);
}

static inline bool except_equal(const struct rule_except *a, const struct rule_except *b)
{
    return cidrs_equal(a->ips, a->ip_count, b->ips, b->ip_count) &&
           texts_equal(a->users, a->user_count, b->users, b->user_count);
}

static inline bool reject_equal(const struct rule_reject *a, const struct rule_reject *b)
{
    return a->status == b->status && a->has_body == b->has_body && sv_eq(a->body, b->body) &&
           sv_eq(a->content_type, b->content_type) &&
           headers_equal(a->headers, a->header_count, b->headers, b->header_count);
}

static inline bool counters_equal(const struct rule *a, const struct rule *b)
{
    return a->kind->counters == b->kind->counters && a->kind->on_failure == b->kind->on_failure &&
           a->kind->rest->lease.on == b->kind->rest->lease.on && a->kind->rest->lease.slice == b->kind->rest->lease.slice &&
           a->kind->rest->lease.ttl_ms == b->kind->rest->lease.ttl_ms &&
           a->kind->rest->penalty.after == b->kind->rest->penalty.after &&
           a->kind->rest->penalty.grow == b->kind->rest->penalty.grow &&
           a->kind->rest->penalty.within_us == b->kind->rest->penalty.within_us &&
           a->kind->rest->penalty.for_us == b->kind->rest->penalty.for_us &&
           a->kind->rest->penalty.most_us == b->kind->rest->penalty.most_us &&
           a->kind->rest->hold_max_percent == b->kind->rest->hold_max_percent && a->kind->unlimited == b->kind->unlimited &&
           texts_equal(a->kind->rest->replaces, a->kind->rest->replace_count, b->kind->rest->replaces,
                       b->kind->rest->replace_count);
}

static inline bool rule_equal(const struct rule *a, const struct rule *b)
{
    bool equal =
        sv_eq(a->id, b->id) && a->kind->mode == b->kind->mode && a->kind->rest->expires_us == b->kind->rest->expires_us &&
        match_equal(a, b) && a->kind->ignore_case == b->kind->ignore_case && a->kind->by_count == b->kind->by_count &&
        plans_equal(a, b) && limits_equal(a->kind->limits, a->kind->limit_count, b->kind->limits, b->kind->limit_count) &&
        except_equal(&a->kind->rest->except, &b->kind->rest->except) &&
        reject_equal(&a->kind->rest->reject, &b->kind->rest->reject) && counters_equal(a, b);
    for (size_t i = 0; equal && i < a->kind->by_count; i++)
        equal = a->kind->by[i].attribute == b->kind->by[i].attribute && sv_eq(a->kind->by[i].name, b->kind->by[i].name);
    return equal;
}

static inline bool settings_equal(const struct settings *a, const struct settings *b)
{
    return !a->ids == !b->ids && texts_equal(a->ids, a->id_count, b->ids, b->id_count) &&
           a->ignore_case == b->ignore_case &&
           texts_equal(a->strip_prefixes, a->strip_prefix_count, b->strip_prefixes, b->strip_prefix_count) &&
           cidrs_equal(a->trusted_proxies, a->trusted_proxy_count, b->trusted_proxies, b->trusted_proxy_count) &&
           a->ipv6_prefix == b->ipv6_prefix && a->repeated_headers == b->repeated_headers && a->headers == b->headers &&
           sv_eq(a->partition_key_secret, b->partition_key_secret) && except_equal(&a->except, &b->except) &&
           reject_equal(&a->reject, &b->reject);
}

static inline bool rules_equal(const struct rules *a, const struct rules *b)
{
    bool equal = settings_equal(&a->settings, &b->settings) && a->rule_count == b->rule_count &&
                 a->override_count == b->override_count;
    for (size_t i = 0; equal && i < a->rule_count; i++)
        equal = rule_equal(a->rules[i], b->rules[i]);
    for (size_t i = 0; equal && i < a->override_count; i++)
        equal = override_equal(&a->overrides[i], &b->overrides[i]);
    return equal;
}

#endif
