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

/* ---- conditions ---- */

static bool same_byte(char a, char b, bool ignore_case)
{
    return ignore_case ? ascii_lower(a) == ascii_lower(b) : a == b;
}

/* Goes back to the last `*` where a byte does not fit. */
static bool glob_fits(sv glob, sv text, bool ignore_case)
{
    size_t g = 0, t = 0, star = SIZE_MAX, after = 0;
    while (t < text.len) {
        if (g < glob.len && glob.ptr[g] == '*') {
            star = g++;
            after = t;
        } else if (g < glob.len && same_byte(glob.ptr[g], text.ptr[t], ignore_case)) {
            g++;
            t++;
        } else if (star != SIZE_MAX) {
            g = star + 1;
            t = ++after;
        } else {
            return false;
        }
    }
    while (g < glob.len && glob.ptr[g] == '*')
        g++;
    return g == glob.len;
}

static bool value_fits(const struct rule_value *value, sv text, bool ignore_case)
{
    sv wanted = value->text;
    if (value->kind == VALUE_GLOB)
        return glob_fits(wanted, text, ignore_case);
    if (value->kind == VALUE_PREFIX && text.len > wanted.len)
        text.len = wanted.len;
    return ignore_case ? sv_eq_nocase(text, wanted) : sv_eq(text, wanted);
}

static bool some_value_fits(const struct rule_values *values, struct facts *facts, sv text, bool ignore_case)
{
    for (size_t i = 0; i < values->count; i++)
        if (values->list[i].kind == VALUE_NETWORK ? cidr_has(&values->list[i].network, facts_ip(facts))
                                                  : value_fits(&values->list[i], text, ignore_case))
            return true;
    return false;
}

static bool condition_fits(const struct rule *rule, const struct rule_condition *condition, struct facts *facts)
{
    bool header = condition->attribute == ATTR_HEADER, ignore_case = header && rule->kind->ignore_case;
    bool refuse = facts->ruleset->rules->settings.repeated_headers == REPEATED_REFUSE;
    if (header && refuse && facts_header_differs(facts, condition->name))
        return true; /* the request is refused for that, further on */
    sv text = facts_attribute(facts, &(struct rule_by){ condition->attribute, condition->name });
    if (condition->attribute == ATTR_HOST && text.len == FACTS_HOST_MAX) {
        text = facts_whole_host(facts);
        ignore_case = true;
    }
    struct rule_by by = { condition->attribute, condition->name };
    if (!fact_is_there(&by, text))
        return condition->presence != PRESENT && condition->is.count == 0;
    return condition->presence != ABSENT &&
           (condition->is.count == 0 || some_value_fits(&condition->is, facts, text, ignore_case)) &&
           !some_value_fits(&condition->is_not, facts, text, ignore_case);
}

/* The first condition on one of these attributes that does not hold; NULL: all do. */
static const struct rule_condition *first_unequal(const struct rule *rule, uint32_t attributes, struct facts *facts)
{
    for (size_t i = 0; i < rule->kind->condition_count; i++) {
        const struct rule_condition *condition = &rule->kind->conditions[i];
        if (BIT(condition->attribute) & attributes && !condition_fits(rule, condition, facts))
            return condition;
    }
    return NULL;
}

/* ---- paths ---- */

/* `unsure`: what a path that is cut and a regex that reaches its bound count as. */
static bool some_path_fits(const struct ruleset *ruleset, const struct compiled_rule *rule, size_t from, size_t count,
                           const struct path_view *view, bool unsure)
{
    for (size_t i = from; i < from + count; i++) {
        struct compiled_path path = compiled_path(ruleset, rule, i);
        const struct compiled_path *p = &path;
        enum regex_result said = REGEX_BOUND;
        if (!path_is_regex(p) && (unsure || !view->reading.cut))
            said = template_matches(path_template(p), view->reading.path, view->reading.cut, &ruleset->ids) ? REGEX_YES
                                                                                                            : REGEX_NO;
        else if (path_is_regex(p) && !view->reading.cut && !view->text.cut)
            said = regex_match_part(ruleset->regexes[p->regex], view->text.path, view->parts);
        if (said == REGEX_YES || (said == REGEX_BOUND && unsure))
            return true;
    }
    return false;
}

/* Some view of the reading in use matches one of the paths, and none of those that must not match. */
static bool reading_holds(const struct ruleset *ruleset, const struct compiled_rule *compiled, struct facts *facts)
{
    size_t path_count = compiled->rule->match.path_count;
    size_t count = facts_views(facts);
    for (size_t i = 0; i < count; i++) {
        struct path_view view = facts_view(facts, i);
        if (view.number == facts->reading &&
            (path_count == 0 || some_path_fits(ruleset, compiled, 0, path_count, &view, true)) &&
            !some_path_fits(ruleset, compiled, path_count, compiled->rule->match.not_path_count, &view, false))
            return true;
    }
    return false;
}

static bool has_paths(const struct rule *rule)
{
    return rule_path_count(&rule->match) > 0;
}

/* Leaves the first reading in use that matches; if none does, the first of all. */
static bool some_path_matches(const struct ruleset *ruleset, const struct compiled_rule *compiled, struct facts *facts)
{
    if (facts_readings(facts) == 0)
        return compiled->rule->match.path_count == 0;
    for (size_t i = 0; i < facts_readings(facts); i++) {
        facts_select_reading(facts, i);
        if (reading_holds(ruleset, compiled, facts))
            return true;
    }
    facts_select_reading(facts, 0);
    return false;
}

bool ruleset_reads(const struct ruleset *ruleset, size_t rule, struct facts *facts)
{
    struct placed_rule placed = ruleset_place(ruleset, rule);
    return !has_paths(placed.rule->rule) || reading_holds(placed.in, placed.rule, facts);
}

void facts_select_first_match(struct facts *facts, size_t rule)
{
    struct placed_rule placed = ruleset_place(facts->ruleset, rule);
    facts_select_reading(facts, 0);
    if (has_paths(placed.rule->rule))
        some_path_matches(placed.in, placed.rule, facts);
}

static enum match_reason explain_match(const struct ruleset *ruleset, const struct compiled_rule *compiled,
                                       struct facts *facts, sv *detail)
{
    const struct rule *rule = compiled->rule;
    const struct rule_condition *unequal = first_unequal(rule, ~(BIT(ATTR_METHOD) | BIT(ATTR_HEADER)), facts);
    if (!unequal)
        unequal = first_unequal(rule, BIT(ATTR_METHOD), facts);
    if (unequal) {
        *detail = unequal->name;
        return MATCH_UNEQUAL + unequal->attribute;
    }
    if (has_paths(rule) && !some_path_matches(ruleset, compiled, facts))
        return MATCH_UNEQUAL + ATTR_PATH;
    unequal = first_unequal(rule, BIT(ATTR_HEADER), facts);
    if (!unequal)
        return MATCH_YES;
    *detail = unequal->name;
    return MATCH_UNEQUAL + ATTR_HEADER;
}

static enum match_reason explain_except(const struct ruleset *ruleset, const struct rule *rule, struct facts *facts,
                                        sv *detail)
{
    const struct rule_except *lists[] = { &ruleset->rules->settings.except, &rule->kind->rest->except };
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
    struct placed_rule placed = ruleset_place(ruleset, rule);
    const struct rule *r = ruleset->rules->rules[rule];
    sv detail = sv_of("", 0);
    enum match_reason reason = MATCH_YES;
    facts_select_reading(facts, 0);
    if (r->kind->mode == MODE_OFF)
        reason = MATCH_OFF;
    else if (now_us >= r->kind->rest->expires_us)
        reason = MATCH_EXPIRED;
    if (reason == MATCH_YES)
        reason = explain_match(placed.in, placed.rule, facts, &detail);
    if (reason == MATCH_YES)
        reason = explain_except(ruleset, r, facts, &detail);
    for (size_t i = 0; reason == MATCH_YES && i < r->kind->by_count; i++)
        if (!fact_is_there(&r->kind->by[i], facts_attribute(facts, &r->kind->by[i]))) {
            reason = MATCH_NO_ATTRIBUTE;
            detail = r->kind->by[i].name.len > 0 ? r->kind->by[i].name : attribute_table[r->kind->by[i].attribute].name;
        }
    sv repeated = reason == MATCH_YES ? facts_repeated(facts, r) : sv_of("", 0);
    if (repeated.len > 0) {
        reason = MATCH_REPEATED;
        detail = repeated;
    }
    if (reason != MATCH_YES)
        facts_select_reading(facts, 0);
    *ret_detail = detail;
    return reason;
}
