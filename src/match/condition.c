#include "match/condition.h"

#include <stdlib.h>

#include "match/ruleset.h"

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    const sv *x = a, *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->len ? memcmp(x->ptr, y->ptr, x->len) : 0;
}

/* Compares a name as it came with one in lower case. */
static int compare_to_lower(const void *name, const void *lower)
{
    const sv *x = name, *y = lower;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    for (size_t i = 0; i < x->len; i++) {
        unsigned char c = (unsigned char)ascii_lower(x->ptr[i]), d = (unsigned char)y->ptr[i];
        if (c != d)
            return c < d ? -1 : 1;
    }
    return 0;
}

bool names_init(struct names *names, struct arena *arena, const sv *texts, size_t count)
{
    sv *sorted = ARENA_ARRAY(arena, sv, count);
    *names = (struct names){ sorted, 0 };
    if (!sorted || count == 0)
        return sorted;
    memcpy(sorted, texts, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 0; i < count; i++)
        if (names->count == 0 || !sv_eq(sorted[names->count - 1], sorted[i]))
            sorted[names->count++] = sorted[i];
    return true;
}

bool names_contain(const struct names *names, sv name, bool ignore_case)
{
    if (names->count <= 1)
        return names->count == 1 && (ignore_case ? sv_eq_lower(name, *names->sorted) : sv_eq(name, *names->sorted));
    return bsearch(&name, names->sorted, names->count, sizeof name, ignore_case ? compare_to_lower : compare_names);
}

/* ---- compiling ---- */

static sv lower_case(struct arena *arena, sv text)
{
    sv copy = arena_copy(arena, text);
    char *ptr = (char *)(uintptr_t)copy.ptr;
    for (size_t i = 0; i < copy.len; i++)
        ptr[i] = ascii_lower(ptr[i]);
    return copy;
}

static bool init_texts(struct compiled_values *values, struct arena *arena, const struct rule_values *from,
                       bool ignore_case)
{
    CLEANUP_FREE sv *texts = cleanup_calloc(from->count + 1, sizeof *texts);
    struct pattern *patterns = ARENA_ARRAY(arena, struct pattern, from->count);
    size_t count = 0;
    if (!texts || !patterns)
        return false;
    for (size_t i = 0; i < from->count; i++) {
        const struct rule_value *value = &from->list[i];
        if (value->kind != VALUE_EQUAL) {
            if (!pattern_init(&patterns[values->pattern_count++], arena, value, ignore_case))
                return false;
            continue;
        }
        texts[count] = ignore_case ? lower_case(arena, value->text) : value->text;
        if (!texts[count++].ptr)
            return false;
    }
    values->patterns = patterns;
    return names_init(&values->equal, arena, texts, count);
}

static bool init_networks(struct compiled_values *values, struct arena *arena, const struct rule_values *from)
{
    CLEANUP_FREE struct cidr *cidrs = cleanup_calloc(from->count + 1, sizeof *cidrs);
    struct networks *networks = ARENA_NEW(arena, struct networks);
    for (size_t i = 0; cidrs && i < from->count; i++)
        cidrs[i] = from->list[i].network;
    values->networks = networks;
    return cidrs && networks && networks_init(networks, arena, cidrs, from->count);
}

static bool init_values(struct compiled_values *values, struct arena *arena, const struct rule_values *from,
                        bool ignore_case)
{
    *values = (struct compiled_values){ 0 };
    if (from->count == 0)
        return true;
    /* Most conditions have one text. */
    if (from->count == 1 && from->list[0].kind == VALUE_EQUAL && !ignore_case) {
        values->equal = (struct names){ &from->list[0].text, 1 };
        return true;
    }
    return from->list[0].kind == VALUE_NETWORK ? init_networks(values, arena, from)
                                               : init_texts(values, arena, from, ignore_case);
}

bool condition_init(struct compiled_condition *condition, struct arena *arena, const struct rule_condition *from,
                    bool ignore_case)
{
    ignore_case = ignore_case && from->attribute == ATTR_HEADER;
    *condition = (struct compiled_condition){ .attribute = (uint8_t)from->attribute,
                                              .presence = (uint8_t)from->presence,
                                              .ignore_case = ignore_case,
                                              .has_is = from->is.count > 0,
                                              .is_one_text = from->is.count == 1 && from->is_not.count == 0 &&
                                                             from->is.list[0].kind == VALUE_EQUAL && !ignore_case &&
                                                             from->attribute != ATTR_DESCRIPTOR,
                                              .space = from->attribute,
                                              .name = from->name };
    if (!init_values(&condition->is, arena, &from->is, ignore_case))
        return false;
    if (from->is_not.count == 0)
        return true;
    struct compiled_values *is_not = ARENA_NEW(arena, struct compiled_values);
    condition->is_not = is_not;
    return is_not && init_values(is_not, arena, &from->is_not, ignore_case);
}

/* ---- holding ---- */

static bool values_have(const struct compiled_values *values, sv text, bool ignore_case)
{
    if (names_contain(&values->equal, text, ignore_case))
        return true;
    for (size_t i = 0; i < values->pattern_count; i++)
        if (pattern_matches(&values->patterns[i], text, ignore_case))
            return true;
    return false;
}

static bool ip_holds(const struct compiled_condition *c, const struct ip *ip)
{
    if (!ip)
        return c->presence != PRESENT && !c->has_is;
    return c->presence != ABSENT && (!c->has_is || networks_has(c->is.networks, ip)) &&
           !(c->is_not && networks_has(c->is_not->networks, ip));
}

static inline bool text_holds(const struct compiled_condition *c, sv text)
{
    if (c->is_one_text)
        return sv_eq(*c->is.equal.sorted, text);
    if (text.len == 0)
        return c->presence != PRESENT && !c->has_is;
    return c->presence != ABSENT && (!c->has_is || values_have(&c->is, text, c->ignore_case)) &&
           !(c->is_not && values_have(c->is_not, text, c->ignore_case));
}

/* An entry may be there and have an empty value. */
static bool entry_holds(const struct compiled_condition *c, sv value)
{
    if (!value.ptr)
        return c->presence != PRESENT && !c->has_is;
    return c->presence != ABSENT && (!c->has_is || values_have(&c->is, value, false)) &&
           !(c->is_not && values_have(c->is_not, value, false));
}

/* A host that was cut is compared whole: the end of a name says whose it is. */
static bool host_holds(const struct compiled_condition *c, struct facts *facts)
{
    sv host = facts_host(facts);
    if (__builtin_expect(host.len < FACTS_HOST_MAX, 1))
        return text_holds(c, host);
    struct compiled_condition lower = *c;
    lower.ignore_case = true;
    return text_holds(&lower, facts_whole_host(facts));
}

/* If such requests are refused, a condition on a header with different values holds: the refusal follows later. */
bool condition_holds_slowly(const struct compiled_condition *condition, struct facts *facts)
{
    if (condition->attribute == ATTR_IP)
        return ip_holds(condition, facts_ip(facts));
    if (condition->attribute == ATTR_HOST)
        return host_holds(condition, facts);
    if (condition->attribute == ATTR_DESCRIPTOR)
        return entry_holds(condition, facts_entry(facts, condition->name));
    if (condition->attribute != ATTR_HEADER)
        return text_holds(condition, facts_text(facts, (enum attribute)condition->attribute));
    return text_holds(condition, facts_header(facts, condition->name)) ||
           (facts->ruleset->rules->settings.repeated_headers == REPEATED_REFUSE &&
            facts_header_differs(facts, condition->name));
}
