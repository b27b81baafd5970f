/* One rule as matching looks at it, before an index finds it. */
#include <stdlib.h>

#include "match/builder.h"

bool compile_except(struct compiled_except *except, struct arena *arena, const struct rule_except *from)
{
    return networks_init(&except->ips, arena, from->ips, from->ip_count) &&
           names_init(&except->users, arena, from->users, from->user_count);
}
/* The number of a regex; the same text is compiled once. */
static int compile_regex(struct builder *b, const struct rule *rule, sv text, uint32_t *ret)
{
    struct ruleset *ruleset = b->ruleset;
    size_t count = ruleset->regex_count;
    uint32_t *number = table_put(&b->known, KNOWN_REGEX, text, (uint32_t)count);
    if (!number)
        return no_memory(b);
    *ret = *number;
    if (*number < count)
        return 0;
    if (count == b->regex_cap) {
        size_t cap = count ? count * 2 : 16;
        struct regex **regexes = realloc(ruleset->regexes, cap * sizeof *regexes);
        if (!regexes)
            return no_memory(b);
        ruleset->regexes = regexes;
        b->regex_cap = cap;
    }
    char why[200];
    int r = regex_new(&ruleset->regexes[count], text, ruleset->rules->settings.ignore_case, why, sizeof why);
    if (r < 0)
        return err_set(b->error, r == WEIR_E_NO_MEMORY ? r : WEIR_E_RULES, "rule %.*s: path: the regex `%.*s`: %s",
                       SV_FMT(rule->id), SV_FMT(text), why);
    ruleset->regex_count++;
    return 0;
}

static int compile_template(struct builder *b, const struct rule *rule, sv text, struct compiled_path *path)
{
    sv template = { 0 };
    int r = template_new(text, b->ruleset->rules->settings.ignore_case, &b->ruleset->arena, &template);
    path->template = template.ptr;
    path->length = (uint32_t) template.len;
    if (r == WEIR_E_INVALID)
        return err_set(b->error, WEIR_E_RULES, "rule %.*s: path: in `%.*s` a `*` stands before the end; use `{name}` there",
                       SV_FMT(rule->id), SV_FMT(text));
    return r < 0 ? no_memory(b) : 0;
}

static int compile_path(struct builder *b, const struct rule *rule, struct rule_path from)
{
    struct compiled_path *path = &b->ruleset->paths[b->ruleset->path_count++];
    *path = (struct compiled_path){ 0 };
    sv text = rule_path_text(from);
    return from.is_regex ? compile_regex(b, rule, text, &path->regex) : compile_template(b, rule, text, path);
}

struct compiled_rest *own_rest(struct builder *b, struct compiled_rule *compiled)
{
    struct ruleset *ruleset = b->ruleset;
    if (compiled->rest > 0)
        return &ruleset->rests[compiled->rest];
    if (ruleset->rest_count == b->rest_cap) {
        size_t cap = b->rest_cap ? 2 * b->rest_cap : 16;
        struct compiled_rest *rests = realloc(ruleset->rests, cap * sizeof *rests);
        if (!rests)
            return NULL;
        ruleset->rests = rests;
        b->rest_cap = cap;
    }
    compiled->rest = ruleset->rest_count++;
    struct compiled_rest *rest = &ruleset->rests[compiled->rest];
    *rest = (struct compiled_rest){ .expires_us = RULE_NEVER_EXPIRES, .first_path = PATHS_AS_WRITTEN };
    return rest;
}

/* Whether compiled_path() finds the same without the compiled paths, the first of which is this one. */
static bool are_as_written(const struct ruleset *ruleset, const struct rule_match *match, uint32_t first)
{
    for (size_t i = 0; i < rule_path_count(match); i++)
        if (ruleset->paths[first + i].template != rule_path(match, i).text)
            return false;
    return true;
}

static int compile_paths(struct builder *b, const struct rule *rule, struct compiled_rule *compiled)
{
    const struct rule_match *match = &rule->match;
    uint32_t first = b->ruleset->path_count;
    int r = 0;
    for (size_t i = 0; r == 0 && i < rule_path_count(match); i++)
        r = compile_path(b, rule, rule_path(match, i));
    if (r < 0)
        return r;
    if (are_as_written(b->ruleset, match, first)) {
        b->ruleset->path_count = first;
        return 0;
    }
    struct compiled_rest *rest = own_rest(b, compiled);
    if (!rest)
        return no_memory(b);
    rest->first_path = first;
    return 0;
}

/* The bit of a method; 0: all are taken. */
static uint32_t method_bit(struct ruleset *ruleset, sv method)
{
    size_t i = 0;
    while (i < ruleset->method_count && !sv_eq(ruleset->methods[i], method))
        i++;
    if (i == RULESET_METHODS_MAX)
        return 0;
    if (i == ruleset->method_count)
        ruleset->methods[ruleset->method_count++] = method;
    return UINT32_C(1) << i;
}

/* The methods as bits; 0: the condition is more than a list of methods, or one of them has no bit. */
static uint32_t method_bits(struct ruleset *ruleset, const struct compiled_condition *condition)
{
    uint32_t bits = 0;
    if (!condition_is_list(condition) || condition->is_not)
        return 0;
    for (size_t i = 0; i < condition->is.equal.count; i++) {
        uint32_t bit = method_bit(ruleset, condition->is.equal.sorted[i]);
        if (!bit)
            return 0;
        bits |= bit;
    }
    return bits;
}

/* The space of an entry's values in the table. */
static bool number_entry(struct ruleset *ruleset, struct compiled_condition *condition)
{
    uint32_t *number = table_put(&ruleset->table, ATTR_DESCRIPTOR, condition->name, ruleset->entry_count);
    if (!number)
        return false;
    ruleset->entry_count += *number == ruleset->entry_count;
    condition->space = ENTRY_SPACE + *number;
    return true;
}

/* The space of a header's values in the table. */
static bool number_header(struct ruleset *ruleset, struct compiled_condition *condition)
{
    uint32_t *number = table_put(&ruleset->table, ATTR_HEADER, condition->name, ruleset->header_count);
    if (!number)
        return false;
    ruleset->header_count += *number == ruleset->header_count;
    condition->space = HEADER_SPACE + 2 * *number + condition->ignore_case;
    return true;
}

/* The bit that has a condition checked. */
static uint32_t check_of(const struct compiled_rest *rest, const struct compiled_condition *condition)
{
    if (condition->attribute == ATTR_METHOD && rest->methods)
        return CHECK_METHODS;
    if (condition->attribute == ATTR_DESCRIPTOR_LIMIT && !condition->has_is && !condition->is_not) {
        if (condition->presence == PRESENT)
            return CHECK_BRINGS;
        if (condition->presence == ABSENT)
            return CHECK_BRINGS_NONE;
    }
    return BIT(condition->attribute);
}

/* Adds to *checks what has to be checked. */
static bool compile_conditions(struct builder *b, const struct rule *rule, struct compiled_rest *rest, uint32_t *checks)
{
    struct arena *arena = &b->ruleset->arena;
    size_t count = rule->kind->condition_count;
    struct compiled_condition *conditions = ARENA_ARRAY(arena, struct compiled_condition, count);
    rest->conditions = conditions;
    rest->condition_count = (uint32_t)count;
    for (size_t i = 0; conditions && i < count; i++) {
        if (!condition_init(&conditions[i], arena, &rule->kind->conditions[i], rule->kind->ignore_case))
            return false;
        if (conditions[i].attribute == ATTR_DESCRIPTOR && !number_entry(b->ruleset, &conditions[i]))
            return false;
        if (conditions[i].attribute == ATTR_HEADER && !number_header(b->ruleset, &conditions[i]))
            return false;
        if (conditions[i].attribute == ATTR_METHOD)
            rest->methods = method_bits(b->ruleset, &conditions[i]);
        *checks |= check_of(rest, &conditions[i]);
    }
    return conditions;
}

static bool has_exceptions(const struct rule *rule)
{
    return rule->kind->rest->except.ip_count + rule->kind->rest->except.user_count > 0;
}

static bool compile_rule_except(struct builder *b, const struct rule *rule, struct compiled_rest *rest)
{
    struct compiled_except *except = ARENA_NEW(&b->ruleset->arena, struct compiled_except);
    rest->except = except;
    return except && compile_except(except, &b->ruleset->arena, &rule->kind->rest->except);
}

/* Adds to *checks what has to be checked. Returns false if out of memory. */
static bool compile_rest(struct builder *b, const struct rule *rule, struct compiled_rule *compiled, uint32_t *checks)
{
    bool expires = rule->kind->rest->expires_us != RULE_NEVER_EXPIRES, except = has_exceptions(rule);
    if (rule->kind->condition_count == 0 && !except && !expires)
        return true;
    struct compiled_rest *rest = own_rest(b, compiled);
    if (!rest)
        return false;
    rest->expires_us = rule->kind->rest->expires_us;
    *checks |= (expires ? CHECK_EXPIRES : 0) | (except ? CHECK_EXCEPT : 0);
    return compile_conditions(b, rule, rest, checks) && (!except || compile_rule_except(b, rule, rest));
}

/* Adds what is checked of the rule until an index implies a part of it. The header of a plan is not a condition: it is read
 * when all conditions hold, and must not have different values. */
static void add_checks(const struct rule *rule, struct compiled_kind *kind)
{
    bool plan_of_header = rule->kind->rest->plan_count > 0 && rule->kind->rest->plan.attribute == ATTR_HEADER;
    kind->all |= rule->match.path_count > 0 ? CHECK_PATHS : 0;
    kind->all |= rule->match.not_path_count > 0 ? CHECK_NOT_PATHS : 0;
    kind->all |= rule->kind->mode == MODE_OFF ? CHECK_OFF : 0;
    kind->all |= (kind->all | kind->by) & BIT(ATTR_HEADER) || plan_of_header ? CHECK_REPEATED : 0;
    kind->checks = kind->all;
}

int compile_rule(struct builder *b, uint32_t number)
{
    const struct rule *rule = b->ruleset->rules->rules[number];
    struct compiled_rule *compiled = &b->ruleset->compiled[number];
    struct compiled_kind *kind = &b->kinds[number];
    compiled->rule = rule;
    for (size_t i = 0; i < rule->kind->by_count; i++)
        kind->by |= BIT(rule->kind->by[i].attribute);
    if (!compile_rest(b, rule, compiled, &kind->all))
        return no_memory(b);
    add_checks(rule, kind);
    return compile_paths(b, rule, compiled);
}
