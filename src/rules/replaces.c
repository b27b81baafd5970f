/* Rules that replace others. */
#include "rules/reader.h"

static void read_replaced_id(struct reader *r, const struct node *node, void *ret)
{
    sv *id = ret;
    if (!read_text(r, node, 1, WEIR_ID_MAX, id))
        return;
    if (sv_eq(*id, r->rule_id))
        report_error(r, node->line, "a rule cannot replace itself; leave %s out", shown_node(r, node));
    else if (!ids_find(r->rule_ids, r->rule_id_count, *id))
        report_advice(r, node->line, "there is no rule %s", shown_node(r, node));
}

/* After the mode. */
void read_replaces(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = { .read = read_replaced_id, .size = sizeof(sv), .max = RULE_REPLACES_MAX };
    struct rule *rule = ret;
    struct rule_rest *rest = reader_rest(r);
    rest->replaces = read_list(r, node, &list, &rest->replace_count);
    if (rest->replace_count > 0 && rule->kind->mode == MODE_SHADOW)
        report_advice(r, node->line,
                      "the rule is in shadow mode, and replaces others all the same: requests to which it applies are not "
                      "limited by those");
}
