/* One rule at a time, by the rules as they were read: no index, no tree, no table. */
#include "match/ruleset.h"

static bool ip_listed(const struct rule_except *except, struct facts *facts)
{
    const struct ip *ip = except->ip_count > 0 ? facts_ip(facts) : NULL;
    for (size_t i = 0; ip && i < except->ip_count; i++)
        if (cidr_has(&except->ips[i], ip))
            return true;
    return false;
}

static bool user_listed(const struct rule_except *except, struct facts *facts)
{
    for (size_t i = 0; i < except->user_count; i++)
        if (sv_eq(except->users[i], facts->user))
            return true;
    return false;
}

/* The regex matches the reading in use, or a text of it. */
static bool regex_reads(const struct regex *regex, struct facts *facts)
{
    if (facts_path_cut(facts) || regex_match_part(regex, facts_path(facts), facts_readings(facts)) != REGEX_NO)
        return true;
    size_t count = facts_texts(facts);
    for (size_t i = 0; i < count; i++) {
        const struct path_text *text = &facts->texts[i];
        if (text->reading == facts->reading && (text->as.cut || regex_match_part(regex, text->as.path, count) != REGEX_NO))
            return true;
    }
    return false;
}

static bool reading_holds(const struct ruleset *ruleset, const struct compiled_rule *compiled, struct facts *facts)
{
    sv path = facts_path(facts);
    bool cut = facts_path_cut(facts);
    for (size_t i = 0; i < compiled->path_count; i++) {
        const struct compiled_path *p = &compiled->paths[i];
        if (p->is_regex && regex_reads(ruleset->regexes[p->regex], facts))
            return true;
        if (!p->is_regex && template_matches(p->template, path, cut, &ruleset->ids))
            return true;
    }
    return false;
}

/* Leaves the first reading in use that matches; if none does, the first of all. */
static bool some_path_matches(const struct ruleset *ruleset, const struct compiled_rule *compiled, struct facts *facts)
{
    for (size_t i = 0; i < facts_readings(facts); i++) {
        facts_use(facts, i);
        if (reading_holds(ruleset, compiled, facts))
            return true;
    }
    facts_use(facts, 0);
    return false;
}

bool ruleset_reads(const struct ruleset *ruleset, size_t rule, struct facts *facts)
{
    const struct compiled_rule *compiled = &ruleset->compiled[rule];
    return compiled->path_count == 0 || reading_holds(ruleset, compiled, facts);
}

void facts_use_first(struct facts *facts, size_t rule)
{
    const struct compiled_rule *compiled = &facts->ruleset->compiled[rule];
    facts_use(facts, 0);
    if (compiled->path_count > 0)
        some_path_matches(facts->ruleset, compiled, facts);
}

static enum match_reason explain_match(const struct ruleset *ruleset, const struct compiled_rule *compiled,
                                       struct facts *facts, sv *detail)
{
    const struct rule_match *match = &compiled->rule->match;
    for (size_t i = 0; i < compiled->text_count; i++)
        if (!sv_eq(compiled->texts[i].value, facts_text(facts, compiled->texts[i].attribute)))
            return MATCH_UNEQUAL + compiled->texts[i].attribute;
    size_t method = 0;
    while (method < match->method_count && !sv_eq(match->methods[method], facts_method(facts)))
        method++;
    if (match->method_count > 0 && method == match->method_count)
        return MATCH_UNEQUAL + ATTR_METHOD;
    if (match->path_count > 0 && !some_path_matches(ruleset, compiled, facts))
        return MATCH_UNEQUAL + ATTR_PATH;
    return headers_hold(match, facts, detail) ? MATCH_YES : MATCH_UNEQUAL + ATTR_HEADER;
}

static enum match_reason explain_except(const struct ruleset *ruleset, const struct rule *rule, struct facts *facts,
                                        sv *detail)
{
    const struct rule_except *lists[] = { &ruleset->rules->settings.except, &rule->except };
    for (size_t i = 0; i < 2; i++) {
        *detail = i == 0 ? SV("settings") : sv_of("", 0);
        if (ip_listed(lists[i], facts))
            return MATCH_EXCEPT_IP;
        if (user_listed(lists[i], facts))
            return MATCH_EXCEPT_USER;
    }
    return MATCH_YES;
}

enum match_reason ruleset_explain(const struct ruleset *ruleset, size_t rule, struct facts *facts, int64_t now_us,
                                  sv *ret_detail)
{
    const struct compiled_rule *compiled = &ruleset->compiled[rule];
    const struct rule *r = compiled->rule;
    sv detail = sv_of("", 0);
    enum match_reason reason = MATCH_YES;
    facts_use(facts, 0);
    if (r->mode == MODE_OFF)
        reason = MATCH_OFF;
    else if (now_us >= r->expires_us)
        reason = MATCH_EXPIRED;
    if (reason == MATCH_YES)
        reason = explain_match(ruleset, compiled, facts, &detail);
    if (reason == MATCH_YES)
        reason = explain_except(ruleset, r, facts, &detail);
    for (size_t i = 0; reason == MATCH_YES && i < r->by_count; i++)
        if (facts_attribute(facts, &r->by[i]).len == 0) {
            reason = MATCH_NO_ATTRIBUTE;
            detail = r->by[i].attribute == ATTR_HEADER ? r->by[i].header : attribute_table[r->by[i].attribute].name;
        }
    sv repeated = reason == MATCH_YES ? facts_repeated(facts, r) : sv_of("", 0);
    if (repeated.len > 0) {
        reason = MATCH_REPEATED;
        detail = repeated;
    }
    if (reason != MATCH_YES)
        facts_use(facts, 0);
    *ret_detail = detail;
    return reason;
}
