/* Finding the rules of a request: merge the lists that its indexes give, in file order, and verify each candidate. */
#include "match/ruleset.h"

/* What each regex said about this request, two bits each: evaluated at most once, and only if a candidate comes to it. Not
 * initialised before the first one. */
struct regex_memo {
    bool ready;
    uint8_t said[RULESET_MEMO_MAX / 4];
};
enum { SAID_NOTHING, SAID_NO, SAID_YES };

static bool regex_holds(const struct ruleset *ruleset, struct facts *facts, struct regex_memo *memo, uint32_t regex)
{
    if (facts_path_cut(facts))
        return true;
    if (regex >= RULESET_MEMO_MAX)
        return regex_match(ruleset->regexes[regex], facts_path(facts)) != REGEX_NO;
    if (!memo->ready) {
        size_t kept = ruleset->regex_count < RULESET_MEMO_MAX ? ruleset->regex_count : RULESET_MEMO_MAX;
        memset(memo->said, SAID_NOTHING, (kept + 3) / 4);
        memo->ready = true;
    }
    unsigned shift = 2 * (regex % 4);
    unsigned said = memo->said[regex / 4] >> shift & 3;
    if (said == SAID_NOTHING) {
        said = regex_match(ruleset->regexes[regex], facts_path(facts)) == REGEX_NO ? SAID_NO : SAID_YES;
        memo->said[regex / 4] |= (uint8_t)(said << shift);
    }
    return said == SAID_YES;
}

static bool path_holds(const struct ruleset *ruleset, const struct compiled_rule *rule, struct facts *facts,
                       struct regex_memo *memo)
{
    sv path = facts_path(facts);
    if (path.len == 0)
        return false;
    for (uint32_t i = 0; i < rule->path_count; i++) {
        const struct compiled_path *p = &rule->paths[i];
        if (p->is_regex ? regex_holds(ruleset, facts, memo, p->regex) : template_matches(p->template, path, &ruleset->ids))
            return true;
    }
    return false;
}

static bool method_holds(const struct rule_match *match, sv method)
{
    for (size_t i = 0; i < match->method_count; i++)
        if (sv_eq(match->methods[i], method))
            return true;
    return false;
}

bool headers_hold(const struct rule_match *match, const struct weir_request *request, sv *ret_missing)
{
    for (size_t i = 0; i < match->header_count; i++) {
        const struct rule_header *want = &match->headers[i];
        size_t k = 0;
        while (k < request->header_count &&
               !(sv_eq(request->headers[k].value, want->value) && sv_eq_nocase(request->headers[k].name, want->name)))
            k++;
        if (k == request->header_count) {
            *ret_missing = want->name;
            return false;
        }
    }
    return true;
}

/* Every attribute of `by` is there. */
static bool subject_is_there(const struct compiled_rule *rule, struct facts *facts)
{
    const struct weir_request *request = facts->request;
    unsigned by = rule->by;
    if (by & 1 << ATTR_USER && facts->user.len == 0)
        return false;
    if (by & 1 << ATTR_KEY && request->key.len == 0)
        return false;
    if (by & 1 << ATTR_IP && !facts_ip(facts))
        return false;
    if (by & 1 << ATTR_EVENT && request->event.len == 0)
        return false;
    if (by & 1 << ATTR_METHOD && request->method.len == 0)
        return false;
    if (by & (1 << ATTR_PATH | 1 << ATTR_ROUTE) && request->path.len == 0)
        return false;
    if (by & 1 << ATTR_HOST && facts_host(facts).len == 0)
        return false;
    if (by & 1 << ATTR_HEADER)
        for (size_t i = 0; i < rule->rule->by_count; i++)
            if (rule->rule->by[i].attribute == ATTR_HEADER && facts_header(facts, rule->rule->by[i].header).len == 0)
                return false;
    return true;
}

static bool excepted(const struct compiled_except *except, struct facts *facts)
{
    if (names_have(&except->users, facts->user))
        return true;
    if (except->ips.v4_count + except->ips.v6_count == 0)
        return false;
    const struct ip *ip = facts_ip(facts);
    return ip && networks_has(&except->ips, ip);
}

/* Cheap conditions first, regexes last. */
static bool conditions_hold(const struct ruleset *ruleset, const struct compiled_rule *rule, unsigned checks,
                            struct facts *facts, struct regex_memo *memo)
{
    const struct rule_match *match = &rule->rule->match;
    sv missing;
    if (checks & CHECK_EVENT && !sv_eq(match->event, facts->request->event))
        return false;
    if (checks & CHECK_METHOD && !method_holds(match, facts->request->method))
        return false;
    if (checks & CHECK_HOST && !sv_eq(rule->host, facts_host(facts)))
        return false;
    if (checks & CHECK_HEADER && !headers_hold(match, facts->request, &missing))
        return false;
    if (checks & (CHECK_EXCEPT_IP | CHECK_EXCEPT_USER) && excepted(rule->except, facts))
        return false;
    return !(checks & CHECK_PATH) || path_holds(ruleset, rule, facts, memo);
}

static bool applies(const struct ruleset *ruleset, const struct compiled_rule *rule, unsigned checks, struct facts *facts,
                    int64_t now_us, struct regex_memo *memo)
{
    if (now_us >= rule->expires_us || !subject_is_there(rule, facts))
        return false;
    return checks == 0 || conditions_hold(ruleset, rule, checks, facts, memo);
}

/* The lists of a request; more than RULESET_LISTS_MAX + 1: too many. */
static size_t find_lists(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX])
{
    size_t count = 0;
    if (ruleset->always)
        lists[count++] = ruleset->always;
    if (ruleset->has_events && facts->request->event.len > 0) {
        uint32_t list = table_find(&ruleset->table, SPACE_EVENT, facts->request->event);
        if (list != TABLE_NONE)
            lists[count++] = list;
    }
    if (ruleset->has_hosts && facts->request->host.len > 0) {
        uint32_t list = table_find(&ruleset->table, SPACE_HOST, facts_host(facts));
        if (list != TABLE_NONE)
            lists[count++] = list;
    }
    if (ruleset->tree.count > 0 && facts->request->path.len > 0) {
        sv path = facts_path(facts);
        count += tree_find(&ruleset->tree, &ruleset->table, path, &facts->segments, &ruleset->ids, lists + count,
                           RULESET_LISTS_MAX - count);
    }
    return count;
}

/* Where the merge stands in each list. */
struct cursor {
    const uint32_t *at, *end;
};

/* The lowest rule that any list has next, which they all leave behind; UINT32_MAX: there is none. */
static uint32_t next_candidate(struct cursor *cursors, size_t count)
{
    uint32_t lowest = UINT32_MAX;
    for (size_t i = 0; i < count; i++)
        if (cursors[i].at < cursors[i].end && *cursors[i].at < lowest)
            lowest = *cursors[i].at;
    for (size_t i = 0; i < count; i++)
        while (cursors[i].at < cursors[i].end && *cursors[i].at == lowest)
            cursors[i].at++;
    return lowest;
}

static size_t match_all(const struct ruleset *ruleset, struct facts *facts, int64_t now_us, uint32_t *ret_rules, size_t cap,
                        struct regex_memo *memo)
{
    size_t found = 0;
    for (size_t i = 0; i < ruleset->rules->rule_count; i++) {
        const struct compiled_rule *rule = &ruleset->compiled[i];
        if (!applies(ruleset, rule, rule->all_checks, facts, now_us, memo))
            continue;
        if (found < cap)
            ret_rules[found] = (uint32_t)i;
        found++;
    }
    return found;
}

size_t ruleset_match(const struct ruleset *ruleset, struct facts *facts, int64_t now_us, uint32_t *ret_rules, size_t cap)
{
    if (ruleset->has_except && excepted(&ruleset->except, facts))
        return 0;
    uint32_t lists[RULESET_LISTS_MAX];
    struct cursor cursors[RULESET_LISTS_MAX];
    struct regex_memo memo;
    memo.ready = false;
    size_t count = find_lists(ruleset, facts, lists);
    if (count > RULESET_LISTS_MAX)
        return match_all(ruleset, facts, now_us, ret_rules, cap, &memo);
    for (size_t i = 0; i < count; i++) {
        const struct rule_list *list = &ruleset->lists[lists[i]];
        cursors[i] = (struct cursor){ ruleset->pool + list->start, ruleset->pool + list->start + list->count };
    }
    size_t found = 0;
    uint32_t i;
    while ((i = next_candidate(cursors, count)) != UINT32_MAX) {
        const struct compiled_rule *rule = &ruleset->compiled[i];
        if (!applies(ruleset, rule, rule->checks, facts, now_us, &memo))
            continue;
        if (found < cap)
            ret_rules[found] = i;
        found++;
    }
    return found;
}
