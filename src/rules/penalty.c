/* `penalty` of a rule: whom it refuses too often, it refuses for longer. */
#include "rules/reader.h"

#define PENALTY_MIN_US US_PER_S
#define PENALTY_MAX_US LIMIT_PER_MAX_US
#define MOST_DEFAULT_US (86400 * US_PER_S)
#define LENGTHS "a length such as 30s, 15m or 24h, from 1s to 3650d"

enum { AFTER_MAX = 10000, GROW_DEFAULT = 2, GROW_MAX = 100 };

static void read_after(struct reader *r, const struct node *node, void *ret)
{
    uint64_t after;
    if (read_number(r, node, 1, AFTER_MAX, &after))
        *(uint32_t *)ret = (uint32_t)after;
}

static void read_grow(struct reader *r, const struct node *node, void *ret)
{
    uint64_t grow;
    if (read_number(r, node, 1, GROW_MAX, &grow))
        *(uint32_t *)ret = (uint32_t)grow;
}

static void read_time(struct reader *r, const struct node *node, void *ret)
{
    sv text = node->kind == NODE_SCALAR ? sv_trim(node->text) : (sv){ 0 };
    enum amount_found found = read_length(text, PENALTY_MIN_US, PENALTY_MAX_US, ret);
    if (found == AMOUNT_OUT_OF_RANGE)
        report_error(r, node->line, "must be from 1s to 3650d, not %s", shown_node(r, node));
    else if (found != AMOUNT_GOOD)
        report_error(r, node->line, "must be " LENGTHS ", not %s", shown_node(r, node));
}

static const struct field penalty_fields[] = {
    { "after", read_after, offsetof(struct rule_penalty, after),
      "needs `after`, the number of refusals that begin a penalty, from 1 to 10000" },
    { "within", read_time, offsetof(struct rule_penalty, within_us),
      "needs `within`, the time in which refusals are counted, " LENGTHS },
    { "for", read_time, offsetof(struct rule_penalty, for_us), "needs `for`, how long the first penalty lasts, " LENGTHS },
    { "grow", read_grow, offsetof(struct rule_penalty, grow) },
    { "most", read_time, offsetof(struct rule_penalty, most_us) },
    { NULL },
};

static void check_most(struct reader *r, const struct node *node, const struct rule_penalty *p)
{
    const struct node *most = node_get(node, SV("most"));
    size_t before = path_field(r, SV("most"));
    if (p->most_us < p->for_us)
        report_error(r, most->line, "must be at least as long as `for`, not %s", shown_node(r, most));
    else if (p->grow == 1 && p->most_us > p->for_us)
        report_advice(r, most->line, "has no effect, because penalties do not grow with `grow: 1`; leave one of them out");
    path_end(r, before);
}

/* After the limits and the mode. */
void read_penalty(struct reader *r, const struct node *node, void *ret)
{
    struct rule *rule = ret;
    struct rule_penalty penalty = { .grow = GROW_DEFAULT };
    if (!read_fields(r, node, penalty_fields, &penalty))
        return;
    if (penalty.most_us > 0)
        check_most(r, node, &penalty);
    else
        penalty.most_us = penalty.grow == 1 || penalty.for_us > MOST_DEFAULT_US ? penalty.for_us : MOST_DEFAULT_US;
    if (rule->kind->mode == MODE_SHADOW)
        report_advice(r, node->line, "has no effect while the rule is in shadow mode, which penalises nobody");
    if (rule->kind->by_count == 0)
        report_advice(
            r, node->line,
            "penalises everybody together, because the rule has no `by`; count by ip, user or key to penalise those who "
            "are refused");
    reader_rest(r)->penalty = penalty;
}
