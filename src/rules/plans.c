/* Plans: several sets of limits in one rule, chosen by an attribute of the request. */
#include "rules/reader.h"

void read_plan(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    read_attribute(r, node, &reader_rest(r)->plan);
}

static bool same_name(const struct rule *rule, sv a, sv b)
{
    return rule->kind->ignore_case ? sv_eq_nocase(a, b) : sv_eq(a, b);
}

/* The name of a plan is a value of the attribute. */
static void read_plan_name(struct reader *r, const struct node *key, const struct rule *rule, struct rule_plan *ret)
{
    const char *allowed;
    if (!check_text(r, key, 1, RULE_NAME_MAX))
        return;
    if (text_has_control(key->text)) {
        report_error(r, key->line, "the name of a plan must not have control characters, as in %s", shown_node(r, key));
        return;
    }
    /* If `plan` is bad, that was reported, and the form of its values is unknown. */
    const struct rule_by *plan = &rule->kind->rest->plan;
    bool known = plan->attribute < ATTRIBUTE_COUNT;
    if (known && !by_value(&r->rules->settings, plan, key->text, &r->rules->arena, &ret->name, &allowed)) {
        r->no_memory = r->no_memory || !allowed;
        report_error(r, key->line, "must be a value of `plan`, %s, not %s", allowed ? allowed : "", shown_node(r, key));
    }
    /* As in `match`: get is GET. */
    if (plan->attribute == ATTR_METHOD && ret->name.len > 0)
        ret->name = reader_copy_upper(r, ret->name);
}

static void read_one_plan(struct reader *r, const struct node_item *item, const struct rule *rule, struct rule_plan *ret)
{
    read_plan_name(r, item->key, rule, ret);
    for (const struct rule_plan *other = rule->kind->rest->plans; other < ret; other++)
        if (ret->name.len > 0 && same_name(rule, other->name, ret->name))
            report_error(r, item->key->line, "the plan %s is given twice", shown_node(r, item->key));
    size_t before = path_field(r, item->key->kind == NODE_SCALAR ? item->key->text : SV("?"));
    ret->limits = read_limit_list(r, item->value, &ret->limit_count);
    path_end(r, before);
}

/* A bucket has no window: what was used comes back as the plan at hand says. Nor have slots: each has its own time. */
static bool same_window(const struct rule_limit *a, const struct rule_limit *b)
{
    if (a->algorithm == LIMIT_TOKEN_BUCKET || a->algorithm == LIMIT_CONCURRENT)
        return true;
    return a->per_us == b->per_us && a->unit == b->unit && a->week_start == b->week_start && !a->zone == !b->zone &&
           (!a->zone || sv_eq(a->zone->name, b->zone->name));
}

/* A limit keeps its count in another plan if the limit there has the same name and algorithm. */
static void compare_limits(struct reader *r, int line, const struct rule_limit *limit, const struct rule_limit *others,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!sv_eq(others[i].name, limit->name))
            continue;
        if (others[i].algorithm == limit->algorithm && !sv_eq(others[i].cost_unit, limit->cost_unit))
            report_advice(
                r, line,
                "limit `%.*s` has another unit in another plan, but limits with the same name share one count; give "
                "them different names",
                SV_FMT(limit->name));
        else if (others[i].algorithm == limit->algorithm && !same_window(&others[i], limit))
            report_advice(
                r, line,
                "limit `%.*s` has other windows in another plan, but limits with the same name share one count, so "
                "a subject that changes its plan may use the `max` of one in the window of the other; give them "
                "different names",
                SV_FMT(limit->name));
        else if (others[i].algorithm != limit->algorithm)
            report_advice(r, line,
                          "limit `%.*s` is a %s here and a %s in another plan, so its count begins at 0 when the plan of a "
                          "subject changes; use one algorithm, or give them different names",
                          SV_FMT(limit->name), algorithm_names[limit->algorithm], algorithm_names[others[i].algorithm]);
    }
}

static void advise_on_limits(struct reader *r, const struct node *node, const struct rule *rule)
{
    const struct node_item *item = node->first;
    const struct rule_rest *rest = rule->kind->rest;
    for (size_t i = 0; i < rest->plan_count && item; i++, item = item->next) {
        const struct rule_plan *plan = &rest->plans[i];
        size_t before = path_field(r, plan->name);
        for (size_t k = 0; k < plan->limit_count; k++) {
            compare_limits(r, item->key->line, &plan->limits[k], rule->kind->limits, rule->kind->limit_count);
            for (size_t other = 0; other < i; other++)
                compare_limits(r, item->key->line, &plan->limits[k], rest->plans[other].limits,
                               rest->plans[other].limit_count);
        }
        path_end(r, before);
    }
}

void read_plans(struct reader *r, const struct node *node, void *ret)
{
    struct rule *rule = ret;
    struct rule_rest *rest = reader_rest(r);
    size_t errors = r->errors;
    if (node->kind != NODE_MAP || node->count == 0) {
        report_error(r, node->line, "must be a mapping of plans to their limits, such as { free: [ \"100 per minute\" ] }");
        return;
    }
    if (node->count > RULE_PLANS_MAX) {
        report_error(r, node->line, "%u plans are too many; at most %d", node->count, RULE_PLANS_MAX);
        return;
    }
    rest->plans = reader_alloc(r, node->count * sizeof *rest->plans);
    size_t count = 0;
    for (const struct node_item *item = node->first; item && rest->plans; item = item->next)
        read_one_plan(r, item, rule, &rest->plans[count++]);
    if (r->errors == errors && rest->plan.attribute < ATTRIBUTE_COUNT) {
        rest->plan_count = count;
        advise_on_limits(r, node, rule);
    }
}

/* The user is authenticated, and an address cannot be chosen freely. Anything else may be what the client sent. */
static void advise_on_plan(struct reader *r, const struct node *node, const struct rule_by *plan)
{
    if (plan->attribute == ATTR_USER || plan->attribute == ATTR_IP)
        return;
    size_t before = path_field(r, SV("plan"));
    if (plan->attribute == ATTR_HEADER)
        report_advice(
            r, node->line,
            "whoever can send the header %.*s can choose the plan; have your gateway set it, and drop what clients "
            "send",
            SV_FMT(plan->name));
    else if (plan->name.len > 0)
        report_advice(
            r, node->line,
            "whoever can choose the entry %.*s of a descriptor can choose the plan; do not make it of what clients "
            "send",
            SV_FMT(plan->name));
    else
        report_advice(r, node->line,
                      "whoever can choose the %s of a request can choose the plan; do not let clients set it",
                      attribute_table[plan->attribute].name.ptr);
    path_end(r, before);
}

void check_plans(struct reader *r, const struct node *node, const struct rule *rule)
{
    const struct node *plan = node_get(node, SV("plan")), *plans = node_get(node, SV("plans"));
    const struct node *limits = node_get(node, SV("limits"));
    bool has_plan = plan && !node_is_null(plan), has_plans = plans && !node_is_null(plans);
    bool has_limits = limits && !node_is_null(limits);
    if (node->kind != NODE_MAP)
        return;
    if (!has_limits && !has_plan && !has_plans)
        report_error(r, node->line, "needs `limits`, at least one, such as \"10 per 60s\"");
    else if (has_plan && !has_plans)
        report_error(r, plan->line, "plan: needs `plans`, such as { free: [ \"100 per minute\" ] }");
    else if (has_plans && !has_plan)
        report_error(r, plans->line, "plans: needs `plan`, the attribute that names the plan, such as \"header:X-Plan\"");
    if (!has_plan || !has_plans || rule->kind->rest->plan_count == 0)
        return;
    advise_on_plan(r, plan, &rule->kind->rest->plan);
    if (!has_limits)
        report_advice(r, plans->line,
                      "plans: this rule does not limit requests that have none of these plans; add `limits` for them");
}
