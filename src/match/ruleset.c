/* Finding the rules of a request: merge the lists that its indexes give, in file order, and verify each candidate. */
#include "match/ruleset.h"

enum { SAID_NOTHING, SAID_NO, SAID_YES };

/* A request on its way through its candidates. */
struct visit {
    const struct ruleset *ruleset;
    struct facts *facts;
    int64_t now_us;
    uint32_t *ret_rules;
    size_t cap, found;
    uint32_t fails;  /* CHECK_BRINGS or CHECK_BRINGS_NONE: a rule with this does not apply */
    uint32_t method; /* the request's bit, 0 if no rule names it; METHOD_UNKNOWN until it is needed */
    bool memo_ready; /* memo is not initialised before the first regex */
    uint8_t memo[RULESET_MEMO_MAX /
                 4]; /* what each regex said, two bits: evaluated once, and only if a candidate comes to it */
};

#define METHOD_UNKNOWN UINT32_MAX

/* Some reading of the path matches, or some text of it; the texts share a bound of their own. */
static __attribute__((noinline)) bool regex_holds_somehow(const struct regex *regex, struct facts *facts)
{
    for (size_t i = 0; facts->reading_count > 1 && i < facts->reading_count; i++) {
        const struct path_reading *reading = &facts->readings[i];
        if (reading->cut || regex_match_part(regex, reading->path, facts->reading_count) != REGEX_NO)
            return true;
    }
    size_t count = facts_texts(facts);
    for (size_t i = 0; i < count; i++) {
        const struct path_reading *text = &facts->texts[i].as;
        if (text->cut || regex_match_part(regex, text->path, count) != REGEX_NO)
            return true;
    }
    return false;
}

static inline bool regex_says(const struct regex *regex, struct facts *facts)
{
    if (facts->reading_count == 1 && (facts->path_cut || regex_match(regex, facts->path) != REGEX_NO))
        return true;
    return (facts->reading_count > 1 || facts->path_notes & PATH_MAY_HAVE_TEXTS) && regex_holds_somehow(regex, facts);
}

static bool regex_holds(struct visit *v, uint32_t regex)
{
    const struct ruleset *ruleset = v->ruleset;
    if (regex >= RULESET_MEMO_MAX)
        return regex_says(ruleset->regexes[regex], v->facts);
    if (!v->memo_ready) {
        size_t remembered = ruleset->regex_count < RULESET_MEMO_MAX ? ruleset->regex_count : RULESET_MEMO_MAX;
        memset(v->memo, SAID_NOTHING, (remembered + 3) / 4);
        v->memo_ready = true;
    }
    unsigned shift = 2 * (regex % 4);
    unsigned said = v->memo[regex / 4] >> shift & 3;
    if (said == SAID_NOTHING) {
        said = regex_says(ruleset->regexes[regex], v->facts) ? SAID_YES : SAID_NO;
        v->memo[regex / 4] |= (uint8_t)(said << shift);
    }
    return said == SAID_YES;
}

/* Some reading of the path matches. */
static bool template_holds(const struct ruleset *ruleset, sv template, const struct facts *facts)
{
    if (facts->reading_count <= 1)
        return template_matches(template, facts->path, facts->path_cut, &ruleset->ids);
    for (size_t i = 0; i < facts->reading_count; i++) {
        const struct path_reading *reading = &facts->readings[i];
        if (template_matches(template, reading->path, reading->cut, &ruleset->ids))
            return true;
    }
    return false;
}

/* `unsure`: what a path that is cut counts as, and a regex that reaches its bound. */
static bool path_fits(const struct ruleset *ruleset, const struct compiled_path *p, const struct path_view *view,
                      bool unsure)
{
    bool cut = view->reading.cut || (path_is_regex(p) && view->text.cut);
    if (cut && (path_is_regex(p) || !unsure))
        return unsure;
    if (!path_is_regex(p))
        return template_matches(path_template(p), view->reading.path, cut, &ruleset->ids);
    enum regex_result said = regex_match_part(ruleset->regexes[p->regex], view->text.path, view->parts);
    return said == REGEX_YES || (unsure && said == REGEX_BOUND);
}

/* The view matches one of the paths, and none of those that must not match. Where weir is not sure, the rule applies. */
static bool view_passes(const struct ruleset *ruleset, const struct compiled_rule *rule, const struct path_view *view)
{
    size_t i = 0, end = rule->rule->match.path_count;
    struct compiled_path path;
    while (i < end && (path = compiled_path(ruleset, rule, i), !path_fits(ruleset, &path, view, true)))
        i++;
    if (end > 0 && i == end)
        return false;
    for (i = end; i < end + rule->rule->match.not_path_count; i++) {
        path = compiled_path(ruleset, rule, i);
        if (path_fits(ruleset, &path, view, false))
            return false;
    }
    return true;
}

/* For a rule with `not_paths`: some view of the path passes, or there is no path and none is wanted. */
static __attribute__((noinline)) bool some_view_passes(struct visit *v, const struct compiled_rule *rule)
{
    size_t count = facts_views(v->facts);
    if (count == 0)
        return rule->rule->match.path_count == 0;
    for (size_t i = 0; i < count; i++) {
        struct path_view view = facts_view(v->facts, i);
        if (view_passes(v->ruleset, rule, &view))
            return true;
    }
    return false;
}

static bool path_holds(struct visit *v, const struct compiled_rule *rule)
{
    sv path = facts_path(v->facts);
    if (path.len == 0)
        return false;
    for (size_t i = 0; i < rule->rule->match.path_count; i++) {
        struct compiled_path p = compiled_path(v->ruleset, rule, i);
        if (path_is_regex(&p) ? regex_holds(v, p.regex) : template_holds(v->ruleset, path_template(&p), v->facts))
            return true;
    }
    return false;
}

static uint32_t request_method(const struct ruleset *ruleset, sv method)
{
    for (size_t i = 0; i < ruleset->method_count; i++)
        if (sv_eq(ruleset->methods[i], method))
            return UINT32_C(1) << i;
    return 0;
}

static bool method_holds(struct visit *v, const struct compiled_rule *rule)
{
    if (v->method == METHOD_UNKNOWN)
        v->method = request_method(v->ruleset, facts_method(v->facts));
    return v->method & compiled_rest(v->ruleset, rule)->methods;
}

/* Attributes that are made of the lists of a request: its headers and its descriptor. */
#define MADE_OF_LISTS (BIT(ATTR_HEADER) | BIT(ATTR_DESCRIPTOR) | BIT(ATTR_DESCRIPTOR_KEYS))

/* The text of all entries is made only if it is needed: rules for limits that a request brings count by it, and seldom
 * apply. */
static bool list_has(const struct rule_by *by, struct facts *facts)
{
    if (by->attribute == ATTR_DESCRIPTOR && by->name.len == 0)
        return facts->request->descriptor_count > 0;
    return fact_is_there(by, facts_attribute(facts, by));
}

/* Those of `by` are there. */
static __attribute__((noinline)) bool lists_have_them(const struct rule *rule, struct facts *facts)
{
    for (size_t i = 0; i < rule->kind->by_count; i++)
        if (MADE_OF_LISTS & BIT(rule->kind->by[i].attribute) && !list_has(&rule->kind->by[i], facts))
            return false;
    return true;
}

/* Every attribute of `by` that is prepared is there; without preparing it where that is not needed. */
static __attribute__((noinline)) bool prepared_are_there(const struct rule *rule, uint32_t by, struct facts *facts)
{
    if (by & BIT(ATTR_IP) && !facts_ip(facts))
        return false;
    if (by & BIT(ATTR_METHOD) && facts_method(facts).len == 0)
        return false;
    if (by & (BIT(ATTR_PATH) | BIT(ATTR_ROUTE)) && facts->request->path.len == 0)
        return false;
    if (by & BIT(ATTR_HOST) && facts_host(facts).len == 0)
        return false;
    return !(by & MADE_OF_LISTS) || lists_have_them(rule, facts);
}

/* Every attribute of `by` is there. */
static inline bool subject_is_there(const struct rule *rule, uint32_t by, struct facts *facts)
{
    const uint32_t prepared = FACTS_PREPARED | BIT(ATTR_HEADER);
    if (by & BIT(ATTR_USER) && facts->user.len == 0)
        return false;
    for (uint32_t left = by & ~prepared; left; left &= left - 1)
        if (request_get(facts->request, (enum attribute)__builtin_ctz(left)).len == 0)
            return false;
    return !(by & prepared & ~BIT(ATTR_USER)) || prepared_are_there(rule, by, facts);
}

static bool excepted(const struct compiled_except *except, struct facts *facts)
{
    if (names_contain(&except->users, facts->user, false))
        return true;
    if (except->ips.v4_count + except->ips.v6_count == 0)
        return false;
    const struct ip *ip = facts_ip(facts);
    return ip && networks_has(&except->ips, ip);
}

/* The rule applies, but for a header that says two things. Shadow rules refuse nothing. Of several headers the first by
 * name is reported, whatever the order in which rules are found. */
static bool is_repeated(struct visit *v, const struct compiled_rule *rule)
{
    sv name = facts_repeated(v->facts, rule->rule);
    sv *reported = &v->facts->repeated;
    if (name.len > 0 && rule->rule->kind->mode == MODE_ENFORCE && (reported->len == 0 || sv_compare(name, *reported) < 0))
        *reported = name;
    return name.len > 0;
}

/* Cheap conditions first, regexes last; a header that is repeated matters only if all else holds. */
static bool conditions_hold(struct visit *v, const struct compiled_rule *rule, uint32_t checks)
{
    const struct compiled_rest *rest = compiled_rest(v->ruleset, rule);
    if (checks & CHECK_OFF || (checks & CHECK_EXPIRES && v->now_us >= rest->expires_us))
        return false;
    if (checks & CHECK_METHODS && !method_holds(v, rule))
        return false;
    /* Conditions are in lines of their own: they are not read if none is to be looked at. */
    for (size_t i = 0; checks & CHECK_CONDITIONS && i < rest->condition_count; i++)
        if (checks & BIT(rest->conditions[i].attribute) && !condition_holds(&rest->conditions[i], v->facts))
            return false;
    if (checks & CHECK_EXCEPT && excepted(rest->except, v->facts))
        return false;
    if (checks & CHECK_NOT_PATHS ? !some_view_passes(v, rule) : checks & CHECK_PATHS && !path_holds(v, rule))
        return false;
    return !(checks & CHECK_REPEATED) || !is_repeated(v, rule);
}

static void consider(struct visit *v, uint32_t i, bool all)
{
    const struct compiled_rule *rule = &v->ruleset->compiled[i];
    uint32_t number = i;
    if (__builtin_expect(v->ruleset->numbers != NULL, 0) && (number = v->ruleset->numbers[i]) == TABLE_NONE)
        return;
    const struct compiled_kind *kind = &v->ruleset->kinds[rule->kind];
    uint32_t checks = all ? kind->all : kind->checks;
    if (checks & v->fails || !subject_is_there(rule->rule, kind->by, v->facts) ||
        (checks && !conditions_hold(v, rule, checks)))
        return;
    if (v->found < v->cap)
        v->ret_rules[v->found] = number;
    v->found++;
}

/* Adds those that are not there yet. */
static size_t add_lists(uint32_t lists[RULESET_LISTS_MAX], size_t count, const uint32_t *found, size_t n)
{
    for (size_t i = 0; i < n && count <= RULESET_LISTS_MAX; i++) {
        size_t same = 0;
        while (same < count && lists[same] != found[i])
            same++;
        if (same < count)
            continue;
        if (count < RULESET_LISTS_MAX)
            lists[count] = found[i];
        count++;
    }
    return count;
}

/* Adds the lists of a path that has several readings or is cut. */
static __attribute__((noinline)) size_t find_readings(const struct ruleset *ruleset, struct facts *facts,
                                                      uint32_t lists[RULESET_LISTS_MAX], size_t count)
{
    size_t used = facts->reading;
    for (size_t i = 0; i < facts->reading_count && count <= RULESET_LISTS_MAX; i++) {
        uint32_t found[RULESET_LISTS_MAX];
        facts_select_reading(facts, i);
        size_t n = facts->path_cut
                       ? prefix_index_find(&ruleset->begin, facts->path, &ruleset->ids, found, RULESET_LISTS_MAX)
                       : tree_find(&ruleset->tree, &ruleset->table, facts->path, &facts->segments, &ruleset->ids,
                                   &ruleset->lines, found, RULESET_LISTS_MAX);
        count = n > RULESET_LISTS_MAX ? n : add_lists(lists, count, found, n);
    }
    facts_select_reading(facts, used);
    return count;
}

/* Adds the lists of the templates that the path matches. */
static inline size_t find_paths(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX],
                                size_t count)
{
    sv path = facts_path(facts);
    if (facts->reading_count > 1 || facts->path_cut)
        return find_readings(ruleset, facts, lists, count);
    return count + tree_find(&ruleset->tree, &ruleset->table, path, &facts->segments, &ruleset->ids, &ruleset->lines,
                             lists + count, RULESET_LISTS_MAX - count);
}

/* Adds the lists of the values that the entries of the descriptor have. */
static size_t find_entries(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX],
                           size_t count)
{
    const struct weir_request *request = facts->request;
    bool plain = facts_descriptor_plain(facts);
    for (size_t i = 0; i < request->descriptor_count && i < WEIR_DESCRIPTOR_MAX; i++) {
        char room[DESCRIPTOR_KEY_MAX];
        sv name = plain ? request->descriptor[i].name : descriptor_name(request, i, room);
        uint32_t list = name.len > 0 ? entry_list(ruleset, name, request->descriptor[i].value) : TABLE_NONE;
        if (list == TABLE_NONE)
            continue;
        if (count == RULESET_LISTS_MAX)
            return RULESET_LISTS_MAX + 1;
        lists[count++] = list;
    }
    return count;
}

/* Adds the list of a text, if there is one. */
static size_t find_text(const struct ruleset *ruleset, uint32_t space, sv text, uint32_t lists[RULESET_LISTS_MAX],
                        size_t count)
{
    uint32_t list = table_find(&ruleset->table, space, text);
    return list == TABLE_NONE ? count : add_lists(lists, count, &list, 1);
}

/* Writes the text in lower case; false: it is longer than the room. */
static bool to_lower(sv text, char *out, size_t cap)
{
    for (size_t i = 0; text.len <= cap && i < text.len; i++)
        out[i] = ascii_lower(text.ptr[i]);
    return text.len <= cap;
}

/* Adds the lists of a header with this name, in lower case. If it has different values and such requests are refused, all
 * rules that look at it may refuse. */
static size_t find_header(const struct ruleset *ruleset, struct facts *facts, sv lower_case_name,
                          uint32_t lists[RULESET_LISTS_MAX], size_t count)
{
    char folded[RULE_TEXT_MAX];
    uint32_t number = table_find(&ruleset->table, ATTR_HEADER, lower_case_name);
    if (number == TABLE_NONE)
        return count;
    sv name = ruleset->header_names[number]; /* which facts keep */
    count = find_text(ruleset, NAMED_SPACE, name, lists, count);
    bool refuse = ruleset->rules->settings.repeated_headers == REPEATED_REFUSE;
    if (refuse && facts_header_differs(facts, name))
        return find_text(ruleset, VALUED_SPACE, name, lists, count);
    sv value = facts_header(facts, name);
    if (value.len == 0)
        return count;
    count = find_text(ruleset, HEADER_SPACE + 2 * number, value, lists, count);
    if (ruleset->folds && to_lower(value, folded, sizeof folded))
        count = find_text(ruleset, HEADER_SPACE + 2 * number + 1, sv_of(folded, value.len), lists, count);
    return count;
}

/* Adds the lists of the headers that the request has. */
static size_t find_headers(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX],
                           size_t count)
{
    const struct weir_request *request = facts->request;
    char lower[RULE_NAME_MAX];
    for (size_t i = 0; i < request->header_count && count <= RULESET_LISTS_MAX; i++) {
        sv name = request->headers[i].name;
        if (ruleset->header_lengths >> name.len % 64 & 1 && to_lower(name, lower, sizeof lower))
            count = find_header(ruleset, facts, sv_of(lower, name.len), lists, count);
    }
    return count;
}

/* Adds the lists of the networks that the client's address is in. */
static size_t find_networks(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX],
                            size_t count)
{
    const struct ip *ip = facts_ip(facts);
    for (unsigned word = 0; ip && word < sizeof ruleset->network_lengths / sizeof ruleset->network_lengths[0]; word++)
        for (uint64_t left = ruleset->network_lengths[word]; left; left &= left - 1) {
            unsigned length = 64 * word + (unsigned)__builtin_ctzll(left);
            struct ip network = *ip;
            ip_mask(&network, length);
            count = find_text(ruleset, NETWORK_SPACE + length, sv_of((const char *)network.bytes, sizeof network.bytes),
                              lists, count);
            if (count > RULESET_LISTS_MAX)
                return count;
        }
    return count;
}

/* Adds the lists of the literals that occur in what regexes are run on. If some of that is cut, every regex matches. */
static size_t find_regexes(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX],
                           size_t count)
{
    struct literals_seen seen;
    literals_seen_init(&seen, &ruleset->literals);
    size_t views = facts_views(facts);
    for (size_t i = 0; i < views && count <= RULESET_LISTS_MAX; i++) {
        struct path_view view = facts_view(facts, i);
        if (view.reading.cut || view.text.cut)
            return add_lists(lists, count, &ruleset->with_regex, 1);
        count += literal_index_find(&ruleset->literals, view.text.path, &seen, lists + count, RULESET_LISTS_MAX - count);
    }
    return count;
}

/* Adds the lists of everything but texts. */
static __attribute__((noinline)) size_t find_more(const struct ruleset *ruleset, struct facts *facts,
                                                  uint32_t lists[RULESET_LISTS_MAX], size_t count)
{
    bool path = facts->request->path.len > 0;
    if (ruleset->finds & FINDS_ENTRIES)
        count = find_entries(ruleset, facts, lists, count);
    if (ruleset->finds & FINDS_HEADERS && count <= RULESET_LISTS_MAX)
        count = find_headers(ruleset, facts, lists, count);
    if (ruleset->finds & FINDS_NETWORKS && count <= RULESET_LISTS_MAX)
        count = find_networks(ruleset, facts, lists, count);
    if (ruleset->finds & FINDS_PATHS && path && count <= RULESET_LISTS_MAX)
        count = find_paths(ruleset, facts, lists, count);
    if (ruleset->finds & FINDS_REGEXES && path && count <= RULESET_LISTS_MAX)
        count = find_regexes(ruleset, facts, lists, count);
    return count;
}

/* The lists of a request; more than RULESET_LISTS_MAX: too many. */
static size_t find_lists(const struct ruleset *ruleset, struct facts *facts, uint32_t lists[RULESET_LISTS_MAX])
{
    size_t count = 0;
    if (ruleset->always)
        lists[count++] = ruleset->always;
    for (uint32_t left = ruleset->indexed; left; left &= left - 1) {
        enum attribute attribute = (enum attribute)__builtin_ctz(left);
        sv text = facts_text(facts, attribute);
        uint32_t list = text.len > 0 ? table_find(&ruleset->table, attribute, text) : TABLE_NONE;
        if (list != TABLE_NONE)
            lists[count++] = list;
    }
    if (__builtin_expect(ruleset->finds, 0))
        return ruleset->finds != FINDS_PATHS  ? find_more(ruleset, facts, lists, count)
               : facts->request->path.len > 0 ? find_paths(ruleset, facts, lists, count)
                                              : count;
    return count;
}

/* Where the merge stands in each list. */
struct cursor {
    const uint32_t *at, *end;
};

/* Returns the lowest rule that is next in any list, and moves all lists past it; UINT32_MAX at the end of all. */
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

/* Two lists with one rule each, which differ or not. */
static void visit_two(struct visit *v, uint32_t a, uint32_t b)
{
    uint32_t first = (a < b ? a : b) & ~LIST_ONE, last = (a < b ? b : a) & ~LIST_ONE;
    rule_lines_load(&v->ruleset->lines, first);
    rule_lines_load(&v->ruleset->lines, last);
    consider(v, first, false);
    if (first != last)
        consider(v, last, false);
}

static void visit_lists(struct visit *v, uint32_t *lists, size_t count)
{
    if (count == 2 && lists[0] & lists[1] & LIST_ONE) {
        visit_two(v, lists[0], lists[1]);
        return;
    }
    struct cursor cursors[RULESET_LISTS_MAX];
    for (size_t i = 0; i < count; i++) {
        const uint32_t *list = &lists[i];
        size_t length = 1;
        if (*list & LIST_ONE) {
            lists[i] &= ~LIST_ONE;
        } else {
            list = &v->ruleset->pool[*list];
            length = *list++;
        }
        cursors[i] = (struct cursor){ list, list + length };
    }
    uint32_t rule;
    while ((rule = next_candidate(cursors, count)) != UINT32_MAX)
        consider(v, rule, false);
}

/* The rules that the indexes of one ruleset find. */
static size_t match_indexed(const struct ruleset *ruleset, struct facts *facts, int64_t now_us, uint32_t *ret_rules,
                            size_t cap)
{
    /* Field by field: the memo is large, and few requests need it. */
    struct visit v;
    v.ruleset = ruleset;
    v.facts = facts;
    v.now_us = now_us;
    v.ret_rules = ret_rules;
    v.cap = cap;
    v.found = 0;
    v.fails = facts->request->given_window_ms > 0 ? CHECK_BRINGS_NONE : CHECK_BRINGS;
    v.method = METHOD_UNKNOWN;
    v.memo_ready = false;
    uint32_t lists[RULESET_LISTS_MAX];
    size_t count = find_lists(ruleset, facts, lists);
    if (count == 1 && lists[0] & LIST_ONE) {
        rule_lines_load(&ruleset->lines, lists[0] & ~LIST_ONE);
        consider(&v, lists[0] & ~LIST_ONE, false);
    } else if (count <= RULESET_LISTS_MAX)
        visit_lists(&v, lists, count);
    else
        for (size_t i = 0; i < ruleset->compiled_count; i++)
            consider(&v, (uint32_t)i, true);
    return v.found;
}

/* Two rising lists become one: the first `a` numbers, and the `b` numbers after them, which are few. */
static void merge(uint32_t *numbers, size_t a, size_t b)
{
    for (size_t i = a; i < a + b; i++) {
        uint32_t number = numbers[i];
        size_t at = i;
        while (at > 0 && numbers[at - 1] > number)
            at--;
        memmove(numbers + at + 1, numbers + at, (i - at) * sizeof *numbers);
        numbers[at] = number;
    }
}

/* If there are more than `cap`, it does not matter which of them are written. */
static __attribute__((noinline)) size_t match_layers(const struct ruleset *ruleset, struct facts *facts, int64_t now_us,
                                                     uint32_t *ret_rules, size_t cap)
{
    size_t found = match_indexed(ruleset, facts, now_us, ret_rules, cap), written = found < cap ? found : cap;
    size_t added = match_indexed(ruleset->added, facts, now_us, ret_rules + written, cap - written);
    if (added <= cap - written)
        merge(ret_rules, written, added);
    return found + added;
}

size_t ruleset_match(const struct ruleset *ruleset, struct facts *facts, int64_t now_us, uint32_t *ret_rules, size_t cap)
{
    if (ruleset->has_except && excepted(&ruleset->except, facts))
        return 0;
    if (__builtin_expect(ruleset->added != NULL, 0))
        return match_layers(ruleset, facts, now_us, ret_rules, cap);
    return match_indexed(ruleset, facts, now_us, ret_rules, cap);
}
