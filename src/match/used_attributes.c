/* The attributes that enforced rules use: for callers that make an attribute from something that a client may send twice.
 * Those that only shadow rules use are noted, too, for callers that keep or make what rules may look at. */
#include <stdlib.h>

#include "match/ruleset.h"

static int compare_headers(const void *a, const void *b)
{
    const struct looked_header *x = a, *y = b;
    return sv_compare(x->name, y->name);
}

static void look_until(struct ruleset *ruleset, enum attribute attribute, bool looks, int64_t until_us)
{
    if (!looks)
        return;
    ruleset->looks.attributes |= BIT(attribute);
    if (until_us > ruleset->looks.until_us[attribute])
        ruleset->looks.until_us[attribute] = until_us;
}

static void add_header(struct ruleset *ruleset, sv name, int64_t until_us)
{
    ruleset->looks.headers[ruleset->looks.header_count++] = (struct looked_header){ name, until_us };
}

static void add_attribute(struct ruleset *ruleset, const struct rule_by *by, int64_t until_us)
{
    enum attribute attribute = by->attribute;
    if (attribute == ATTR_HEADER)
        add_header(ruleset, by->name, until_us);
    else
        look_until(ruleset,
                   attribute == ATTR_ROUTE             ? ATTR_PATH
                   : attribute == ATTR_DESCRIPTOR_KEYS ? ATTR_DESCRIPTOR
                                                       : attribute,
                   true, until_us);
}

static void add_rule(struct ruleset *ruleset, const struct rule *rule, int64_t until_us)
{
    const struct rule_except *everybodys = &ruleset->rules->settings.except;
    look_until(ruleset, ATTR_PATH, rule_path_count(&rule->match) > 0, until_us);
    look_until(ruleset, ATTR_IP, rule->kind->rest->except.ip_count > 0 || everybodys->ip_count > 0, until_us);
    look_until(ruleset, ATTR_USER, rule->kind->rest->except.user_count > 0 || everybodys->user_count > 0, until_us);
    for (size_t i = 0; i < rule->kind->condition_count; i++)
        add_attribute(ruleset, &(struct rule_by){ rule->kind->conditions[i].attribute, rule->kind->conditions[i].name },
                      until_us);
    for (size_t i = 0; i < rule->kind->by_count; i++)
        add_attribute(ruleset, &rule->kind->by[i], until_us);
    if (rule->kind->rest->plan_count > 0)
        add_attribute(ruleset, &rule->kind->rest->plan, until_us);
}

/* Each name once, with the latest time. */
static void merge_headers(struct ruleset *ruleset)
{
    struct looked_header *headers = ruleset->looks.headers;
    size_t count = 0;
    if (ruleset->looks.header_count > 1)
        qsort(headers, ruleset->looks.header_count, sizeof *headers, compare_headers);
    for (size_t i = 0; i < ruleset->looks.header_count; i++) {
        if (count == 0 || compare_headers(&headers[count - 1], &headers[i]) != 0)
            headers[count++] = headers[i];
        else if (headers[i].until_us > headers[count - 1].until_us)
            headers[count - 1].until_us = headers[i].until_us;
    }
    ruleset->looks.header_count = count;
}

bool compile_looks(struct ruleset *ruleset)
{
    const struct rules *rules = ruleset->rules;
    size_t most = 0;
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct rule *rule = rules->rules[i];
        most += rule->kind->rest->plan_count > 0;
        for (size_t k = 0; k < rule->kind->condition_count; k++)
            most += rule->kind->conditions[k].attribute == ATTR_HEADER;
        for (size_t k = 0; k < rule->kind->by_count; k++)
            most += rule->kind->by[k].attribute == ATTR_HEADER;
    }
    ruleset->looks.attributes = 0;
    ruleset->looks.header_count = 0;
    ruleset->looks.headers = calloc(most + 1, sizeof *ruleset->looks.headers);
    if (!ruleset->looks.headers)
        return false;
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++)
        ruleset->looks.until_us[i] = INT64_MIN;
    for (size_t i = 0; i < rules->rule_count; i++)
        if (rules->rules[i]->kind->mode != MODE_OFF)
            add_rule(ruleset, rules->rules[i],
                     rules->rules[i]->kind->mode == MODE_ENFORCE ? rules->rules[i]->kind->rest->expires_us : INT64_MIN);
    merge_headers(ruleset);
    ruleset->looks.user = ruleset->looks.attributes & BIT(ATTR_USER) || rules->settings.except.user_count > 0;
    return true;
}

static const struct looked_header *find_header(const struct ruleset *ruleset, sv name)
{
    struct looked_header key = { .name = name };
    return ruleset->looks.header_count == 0 || name.len == 0
               ? NULL
               : bsearch(&key, ruleset->looks.headers, ruleset->looks.header_count, sizeof key, compare_headers);
}

bool ruleset_looks_at(const struct ruleset *ruleset, enum attribute attribute, sv header, int64_t now_us)
{
    if (attribute != ATTR_HEADER)
        return now_us < ruleset->looks.until_us[attribute];
    const struct looked_header *found = find_header(ruleset, header);
    return found && now_us < found->until_us;
}

/* Rules look at the address of a client that a proxy may name in X-Forwarded-For. */
static bool looks_at_forwarded(const struct ruleset *ruleset)
{
    return ruleset->looks.attributes & BIT(ATTR_IP) && ruleset->trusted.v4_count + ruleset->trusted.v6_count > 0;
}

bool ruleset_ever_looks_at(const struct ruleset *ruleset, enum attribute attribute, sv header)
{
    if (attribute != ATTR_HEADER)
        return ruleset->looks.attributes & BIT(attribute);
    return find_header(ruleset, header) || (sv_eq(header, SV("x-forwarded-for")) && looks_at_forwarded(ruleset));
}

bool ruleset_looks_at_headers(const struct ruleset *ruleset)
{
    return ruleset->looks.header_count > 0 || looks_at_forwarded(ruleset);
}

size_t ruleset_header_count(const struct ruleset *ruleset)
{
    return ruleset->looks.header_count;
}

sv ruleset_header(const struct ruleset *ruleset, size_t i)
{
    return ruleset->looks.headers[i].name;
}
