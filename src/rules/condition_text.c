/* Conditions as people read them. */
#include "rules/rules.h"

enum { VALUES_SHOWN = 10 };

const struct rule_condition *rule_condition_of(const struct rule *rule, enum attribute attribute)
{
    for (size_t i = 0; i < rule->kind->condition_count; i++)
        if (rule->kind->conditions[i].attribute == attribute)
            return &rule->kind->conditions[i];
    return NULL;
}

static void value_text(const struct rule_value *value, struct buf *out)
{
    if (value->kind == VALUE_NETWORK) {
        char text[CIDR_TEXT_MAX];
        buf_add(out, sv_of(text, cidr_text(&value->network, text)));
        return;
    }
    buf_add(out, value->text.len > 0 ? value->text : SV("(empty)"));
    if (value->kind == VALUE_PREFIX)
        buf_char(out, '*');
}

void rule_values_text(const struct rule_values *values, struct buf *out)
{
    for (size_t i = 0; i < values->count && i < VALUES_SHOWN; i++) {
        buf_add(out, weir_str(i == 0 ? "" : i + 1 == values->count ? " or " : ", "));
        value_text(&values->list[i], out);
    }
    if (values->count > VALUES_SHOWN)
        buf_printf(out, " or %zu more", values->count - VALUES_SHOWN);
}

void rule_condition_text(const struct rule_condition *condition, struct buf *out)
{
    size_t start = out->len;
    rule_values_text(&condition->is, out);
    if (condition->is_not.count > 0) {
        buf_add(out, weir_str(out->len > start ? ", not " : "not "));
        rule_values_text(&condition->is_not, out);
    }
    if (condition->presence != PRESENCE_ANY)
        buf_printf(out, "%s%s", out->len > start ? ", " : "", condition->presence == PRESENT ? "present" : "absent");
}
