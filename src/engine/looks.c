/* The attributes that rules look at, for callers that make requests of something larger. */
#include "engine/handle.h"
#include "engine/hazard.h"
#include "engine/verdict.h"

const struct weir_attribute *weir_attribute(size_t i)
{
#define PUBLIC_ATTRIBUTE(NAME, field, uses, ...) \
    { (uses) & (IN_MATCH | IN_BY) ? #field : NULL, offsetof(struct weir_request, field), ((uses)&IS_ADDRESS) != 0 },
    static const struct weir_attribute all[] = { REQUEST_ATTRIBUTES(PUBLIC_ATTRIBUTE) };
    for (enum attribute k = 0; k < REQUEST_ATTRIBUTE_COUNT; k++)
        if (all[k].name && i-- == 0)
            return &all[k];
    return NULL;
}

/* An attribute as callers name it. */
struct named_attribute {
    enum attribute attribute; /* ATTRIBUTE_COUNT: not an attribute of rules, such as the cost, which matters to all rules */
    sv header;                /* in lower case; empty: all of them */
    char lower[RULE_NAME_MAX];
};

/* False: no rule can look at a header with a name of this length. */
static bool find_attribute(const char *text, struct named_attribute *ret)
{
    sv name = weir_str(text);
    ret->header = (sv){ 0 };
    if (sv_starts(name, SV("header:"))) {
        name = sv_from(name, strlen("header:"));
        for (size_t i = 0; i < name.len && i < sizeof ret->lower; i++)
            ret->lower[i] = ascii_lower(name.ptr[i]);
        ret->attribute = ATTR_HEADER;
        ret->header = sv_of(ret->lower, name.len);
        return name.len <= sizeof ret->lower;
    }
    ret->attribute = sv_starts(name, SV("descriptor:")) ? ATTR_DESCRIPTOR : attribute_find(name);
    if (ret->attribute < ATTRIBUTE_COUNT && !(attribute_table[ret->attribute].uses & (IN_MATCH | IN_BY)))
        ret->attribute = ATTRIBUTE_COUNT;
    return true;
}

static bool some_rule_looks_at(const struct bound *bound, const char *attribute, int64_t now_us)
{
    struct named_attribute named;
    if (!find_attribute(attribute, &named))
        return false;
    return named.attribute == ATTRIBUTE_COUNT || ruleset_looks_at(bound->ruleset, named.attribute, named.header, now_us);
}

static bool some_rule_ever_looks_at(const struct bound *bound, const char *attribute)
{
    struct named_attribute named;
    if (!find_attribute(attribute, &named))
        return false;
    if (named.attribute == ATTR_HEADER && named.header.len == 0)
        return ruleset_looks_at_headers(bound->ruleset);
    return named.attribute == ATTRIBUTE_COUNT || ruleset_ever_looks_at(bound->ruleset, named.attribute, named.header);
}

uint64_t weir_looks_at(struct weir *weir, const char *const *attributes, size_t count, bool *ret_looks)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    for (size_t i = 0; i < count; i++)
        ret_looks[i] = !bound || some_rule_ever_looks_at(bound, attributes[i]);
    if (!bound)
        return 0;
    uint64_t version = bound->version;
    hazard_release();
    return version;
}

enum weir_take weir_repeated(struct weir *weir, const char *attribute, struct weir_str header, int64_t now_us,
                             struct weir_verdict *ret_verdict)
{
    static const enum weir_take takes[] = {
        [REPEATED_REFUSE] = WEIR_TAKE_NONE, [REPEATED_FIRST] = WEIR_TAKE_FIRST, [REPEATED_LAST] = WEIR_TAKE_LAST
    };
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound) {
        verdict_unjudged(ret_verdict, NULL);
        return WEIR_TAKE_NONE;
    }
    enum weir_take take = takes[ruleset_rules(bound->ruleset)->settings.repeated_headers];
    if (take == WEIR_TAKE_NONE && !some_rule_looks_at(bound, attribute, now_us))
        take = WEIR_TAKE_FIRST;
    hazard_release();
    if (take == WEIR_TAKE_NONE)
        verdict_repeated(ret_verdict, header);
    return take;
}

bool weir_trusts(struct weir *weir, sv address)
{
    const struct bound *bound = hazard_acquire((void *const *)&weir->current);
    if (!bound)
        return false;
    bool trusts = ruleset_trusts(bound->ruleset, address);
    hazard_release();
    return trusts;
}
