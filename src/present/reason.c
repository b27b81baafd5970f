/* Why a rule does not apply, as a sentence. */
#include "base/instant.h"
#include "present/present.h"

enum { PATHS_SHOWN = 5 };

/* "must be POST or PUT", "must be present and not be a or b" */
static void add_wanted(struct buf *out, const struct rule_condition *condition)
{
    const char *before = "must";
    if (condition->presence != PRESENCE_ANY) {
        buf_printf(out, "%s be %s", before, condition->presence == PRESENT ? "present" : "absent");
        before = " and";
    }
    if (condition->is.count > 0) {
        buf_printf(out, "%s be ", before);
        rule_values_text(&condition->is, out);
        before = " and";
    }
    if (condition->is_not.count > 0) {
        buf_printf(out, "%s not be ", before);
        rule_values_text(&condition->is_not, out);
    }
}

/* "the method must be POST or PUT, and is GET". The address of the client is not shown here: weir finds it in several
 * places. */
static void add_mismatch(struct buf *out, const struct rule_condition *condition, const struct weir_request *request)
{
    char room[DESCRIPTOR_TEXT_MAX];
    sv is = { 0 };
    if (condition->attribute < REQUEST_ATTRIBUTE_COUNT)
        is = request_get(request, condition->attribute);
    else if (condition->attribute == ATTR_DESCRIPTOR_KEYS)
        is = descriptor_keys(request, room);
    else if (request->given_window_ms > 0)
        is = SV("given");
    buf_printf(out, "the %s ", attribute_table[condition->attribute].name.ptr);
    add_wanted(out, condition);
    if (condition->attribute == ATTR_IP)
        return;
    buf_add(out, SV(", and is "));
    buf_add(out, is.len ? is : SV("not given"));
}

static void add_path_list(struct buf *out, const struct rule_match *match, size_t from, size_t count)
{
    for (size_t i = 0; i < count && i < PATHS_SHOWN; i++) {
        struct rule_path path = rule_path(match, from + i);
        buf_add(out, weir_str(i ? ", " : ""));
        buf_add(out, weir_str(path.is_regex ? "regex " : ""));
        buf_add(out, rule_path_text(path));
    }
    buf_add(out, weir_str(count > PATHS_SHOWN ? ", ..." : ""));
}

static void add_paths(struct buf *out, const struct rule_match *match)
{
    if (match->path_count > 0) {
        buf_add(out, SV("the path does not fit "));
        add_path_list(out, match, 0, match->path_count);
    }
    if (match->not_path_count > 0) {
        buf_add(out, match->path_count > 0 ? SV(", or fits ") : SV("the path fits "));
        add_path_list(out, match, match->path_count, match->not_path_count);
        buf_add(out, SV(", which the rule excludes"));
    }
}

/* "the header x-plan is not free" */
static void add_named(struct buf *out, const struct rule_condition *condition)
{
    buf_printf(out, "the %s %.*s ", condition->attribute == ATTR_HEADER ? "header" : "descriptor entry",
               SV_FMT(condition->name));
    if (condition->presence == PRESENCE_ANY && condition->is_not.count == 0) {
        buf_add(out, SV("is not "));
        rule_values_text(&condition->is, out);
    } else {
        add_wanted(out, condition);
    }
}

static void add_unequal(struct buf *out, const struct rule *rule, enum attribute attribute, sv detail,
                        const struct weir_request *request)
{
    for (size_t i = 0; i < rule->kind->condition_count; i++) {
        const struct rule_condition *condition = &rule->kind->conditions[i];
        bool holds = attribute == ATTR_PATH && condition->presence == PRESENT && request->path.len > 0;
        if (condition->attribute != attribute || holds)
            continue;
        if (!attribute_has_name(attribute)) {
            add_mismatch(out, condition, request);
            return;
        }
        if (sv_eq(condition->name, detail))
            add_named(out, condition);
    }
    if (attribute == ATTR_PATH)
        add_paths(out, &rule->match);
}

static void add_expiry(struct buf *out, int64_t us)
{
    char text[INSTANT_TEXT_MAX];
    instant_text(us, text);
    buf_printf(out, "it expired at %s", text);
}

void explain_reason(const struct explained_rule *rule, const struct weir_request *request, struct buf *out)
{
    if (rule->reason >= MATCH_UNEQUAL) {
        add_unequal(out, rule->rule, (enum attribute)(rule->reason - MATCH_UNEQUAL), rule->detail, request);
        return;
    }
    switch (rule->reason) {
    case MATCH_YES:
        break;
    case MATCH_OFF:
        buf_add(out, SV("it is off"));
        break;
    case MATCH_EXPIRED:
        add_expiry(out, rule->rule->kind->rest->expires_us);
        break;
    case MATCH_EXCEPT_IP:
    case MATCH_EXCEPT_USER:
        buf_printf(out, "the %s is excepted%s", rule->reason == MATCH_EXCEPT_IP ? "client's address" : "user",
                   rule->detail.len ? " from all rules, in the settings" : "");
        break;
    case MATCH_NO_ATTRIBUTE:
        buf_add(out, SV("it counts by "));
        buf_add(out, rule->detail);
        buf_add(out, SV(", which the request does not have"));
        break;
    case MATCH_REPEATED:
        buf_add(out, SV("the request repeats the header "));
        buf_add(out, rule->detail);
        buf_add(out, rule->rule->kind->mode == MODE_ENFORCE ? SV(" with different values, and is refused for that")
                                                            : SV(" with different values, and would be refused for that"));
        break;
    case MATCH_REPLACED:
        buf_printf(out, "it is replaced by rule %.*s", SV_FMT(rule->detail));
        break;
    case MATCH_NO_LIMIT:
        buf_add(out, SV("its limit is given by requests, and this one brings none"));
        break;
    case MATCH_UNEQUAL:
        break;
    }
}
