/* Overrides: what holds for one subject of a rule in place of the rule's own limits. */
#include <stdlib.h>

#include "base/utf8.h"
#include "rules/reader.h"

enum override_field { RULE, BY, LIMITS, DENY, UNLIMITED, EXPIRES, WHY, OVERRIDE_FIELDS };

/* ---- the parts of one ---- */

static void read_override_limits(struct reader *r, const struct node *node, void *ret)
{
    struct rule_override *o = ret;
    size_t count = 0;
    o->limits = read_limit_list(r, node, &count);
    o->limit_count = (uint8_t)count;
}

static void read_true(struct reader *r, const struct node *node, void *ret)
{
    bool *on = ret;
    if (!node_is_bool(node, on) || !*on)
        report_error(r, node->line, "must be true, not %s; leave it out if you do not mean it", shown_node(r, node));
}

static void read_why(struct reader *r, const struct node *node, void *ret)
{
    sv text;
    if (!read_text(r, node, 0, RULE_TEXT_MAX, &text))
        return;
    if (text_has_control(text))
        report_error(r, node->line, "must be one line without control characters, not %s", shown_node(r, node));
    *(sv *)ret = text;
}

/* `rule` and `by` say whom it is for: overrides_read() reads them first. */
static const struct field override_fields[] = {
    [RULE] = { "rule" },
    [BY] = { "by" },
    [LIMITS] = { "limits", read_override_limits },
    [DENY] = { "deny", read_true },
    [UNLIMITED] = { "unlimited", read_true },
    [EXPIRES] = { "expires", read_expiry, offsetof(struct rule_override, expires_us) },
    [WHY] = { "why", read_why, offsetof(struct rule_override, why) },
    [OVERRIDE_FIELDS] = { NULL },
};

static void check_leased(struct reader *r, const struct node *node, const struct rule_override *o)
{
    for (size_t i = 0; i < o->limit_count; i++)
        if (o->limits[i].algorithm == LIMIT_CONCURRENT)
            report_error(
                r, node->line,
                "limits: the rule is leased, and a slot cannot be leased: limit `%.*s` is concurrent; " SLOTS_APART,
                SV_FMT(o->limits[i].name));
        else if (!limit_can_be_leased(&o->limits[i]))
            report_error(
                r, node->line,
                "limits: the rule is leased, which is allowed with fixed and calendar windows only; limit `%.*s` is "
                "a %s: give it `algorithm: fixed_window`",
                SV_FMT(o->limits[i].name), algorithm_names[o->limits[i].algorithm]);
}

/* `rule`: NULL if it is bad. */
static void read_kind(struct reader *r, const struct node *node, const struct node *const *nodes, const struct rule *rule,
                      struct rule_override *ret)
{
    bool deny = false, unlimited = false;
    int given = (nodes[LIMITS] != NULL) + (nodes[DENY] != NULL) + (nodes[UNLIMITED] != NULL);
    if (given != 1)
        report_error(r, node->line, "needs exactly one of `limits`, `deny: true` and `unlimited: true`, not %s",
                     given ? "several of them" : "none of them");
    read_field(r, &override_fields[LIMITS], nodes[LIMITS], ret);
    read_field(r, &override_fields[DENY], nodes[DENY], &deny);
    read_field(r, &override_fields[UNLIMITED], nodes[UNLIMITED], &unlimited);
    ret->kind = deny ? OVERRIDE_DENY : unlimited ? OVERRIDE_UNLIMITED : OVERRIDE_LIMITS;
    if (rule && rule->kind->rest->lease.on)
        check_leased(r, node, ret);
}

/* ---- whom it is for ---- */

static bool names_attribute(sv key, const struct rule_by *by)
{
    if (by->attribute == ATTR_DESCRIPTOR && by->name.len > 0) {
        char room[3 * DESCRIPTOR_KEY_MAX];
        const char *allowed;
        sv name = sv_starts(key, SV("descriptor:")) ? sv_from(key, strlen("descriptor:")) : (sv){ 0 };
        return name.len <= DESCRIPTOR_KEY_MAX && descriptor_name_read(name, room, &name, &allowed) && sv_eq(name, by->name);
    }
    if (by->attribute != ATTR_HEADER)
        return sv_eq(key, attribute_table[by->attribute].name);
    return sv_starts(key, SV("header:")) && sv_eq_lower(sv_trim(sv_from(key, 7)), by->name);
}

static const char *by_names(const struct rule *rule, struct buf *out)
{
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        rule_by_text(&rule->kind->by[i], out);
    }
    return out->ptr && !out->failed ? out->ptr : "";
}

static bool has_subjects(struct reader *r, int line, const struct rule *rule)
{
    if (rule->kind->by_count == 0)
        report_error(r, line, "the rule has no `by`: it counts for all together, so it cannot have overrides");
    return rule->kind->by_count > 0;
}

static void read_value(struct reader *r, const struct node *node, const struct rule_by *by, sv *ret)
{
    const char *allowed;
    if (!check_text(r, node, by_may_be_empty(by) ? 0 : 1, by_value_max(by)) ||
        by_value(&r->rules->settings, by, node->text, &r->rules->arena, ret, &allowed))
        return;
    r->no_memory = r->no_memory || !allowed;
    report_error(r, node->line, "must be %s, not %s", allowed ? allowed : "", shown_node(r, node));
}

/* { user: "4711" }: one value for each attribute of the rule. */
static bool read_subject(struct reader *r, const struct node *node, const struct rule *rule, sv *values)
{
    CLEANUP(buf_done) struct buf names;
    buf_init(&names, RULE_BY_MAX * (RULE_BY_TEXT_MAX + 2));
    size_t errors = r->errors;
    if (node->kind != NODE_MAP) {
        report_error(r, node->line, "must be a mapping with a value for each of %s, not %s", by_names(rule, &names),
                     shown_node(r, node));
        return false;
    }
    for (const struct node_item *item = node->first; item; item = item->next) {
        size_t i = 0;
        while (i < rule->kind->by_count &&
               (item->key->kind != NODE_SCALAR || !names_attribute(item->key->text, &rule->kind->by[i])))
            i++;
        if (i == rule->kind->by_count) {
            report_error(r, item->key->line, "the rule counts by %s, not by %s", by_names(rule, &names),
                         shown_node(r, item->key));
            return false;
        }
        size_t before = path_field(r, item->key->text);
        if (values[i].ptr)
            report_error(r, item->key->line, "is given twice");
        read_value(r, item->value, &rule->kind->by[i], &values[i]);
        path_end(r, before);
    }
    for (size_t i = 0; r->errors == errors && i < rule->kind->by_count; i++)
        if (!values[i].ptr)
            report_error(r, node->line, "needs a value for each of %s", by_names(rule, &names));
    return r->errors == errors;
}

/* Returns the rule, or NULL if it does not exist or is bad. A bad rule was reported, and its last good version has
 * overrides of its own. */
static const struct rule *find_rule(struct override_reader *o, int line, sv id)
{
    struct reader *r = o->r;
    const struct id_entry *good = ids_find(o->good, r->rules->rule_count, id);
    if (good)
        return r->rules->rules[good->index];
    if (!ids_find(r->rule_ids, r->rule_id_count, id))
        report_error(r, line, "there is no rule %s", shown_text(r, id));
    return NULL;
}

/* The id of the rule that it is for; empty after an error. */
static sv read_rule_id(struct reader *r, const struct node *node, const struct node *rule, const struct rule_row *row)
{
    if (!rule && row)
        return row->id;
    if (!rule) {
        report_error(r, node->line, "needs `rule`, the id of the rule that it is for");
        return (sv){ 0 };
    }
    size_t before = path_field(r, SV("rule")), errors = r->errors;
    if (check_text(r, rule, 1, WEIR_ID_MAX) && row && !sv_eq(rule->text, row->id))
        report_error(r, rule->line, "must be the rule of the row or be left out, not %s", shown_node(r, rule));
    path_end(r, before);
    return r->errors == errors ? rule->text : (sv){ 0 };
}

/* ---- one ---- */

/* `of_row`: the subject of the row, which the document may leave out; NULL: the override is in a list. */
static bool read_values(struct reader *r, const struct node *by, int line, const struct rule *rule, const sv *of_row,
                        sv *values)
{
    CLEANUP(buf_done) struct buf names;
    buf_init(&names, RULE_BY_MAX * (RULE_BY_TEXT_MAX + 2));
    if (!has_subjects(r, line, rule))
        return false;
    if (!by && !of_row)
        report_error(r, line, "needs `by`, a mapping with a value for each of %s", by_names(rule, &names));
    size_t before = path_field(r, SV("by"));
    bool good = by ? read_subject(r, by, rule, values) : of_row != NULL;
    if (by && good && of_row && !same_values(values, rule->kind->by_count, of_row, rule->kind->by_count)) {
        report_error(r, by->line, "must be the subject of the row or be left out");
        good = false;
    }
    path_end(r, before);
    for (size_t i = 0; of_row && i < rule->kind->by_count; i++)
        values[i] = of_row[i];
    return good;
}

/* All but whom it is for. `rule`: as for read_kind(). */
static void read_effect(struct reader *r, const struct node *node, const struct node *const *nodes, const struct rule *rule,
                        struct rule_override *ret)
{
    read_kind(r, node, nodes, rule, ret);
    read_field(r, &override_fields[EXPIRES], nodes[EXPIRES], ret);
    read_field(r, &override_fields[WHY], nodes[WHY], ret);
}

static bool read_one(struct override_reader *o, const struct node *node, const struct rule_row *row,
                     struct rule_override *ret)
{
    struct reader *r = o->r;
    const struct node *nodes[OVERRIDE_FIELDS] = { 0 };
    size_t errors = r->errors;
    find_fields(r, node, override_fields, nodes);
    sv id = node->kind == NODE_MAP ? read_rule_id(r, node, nodes[RULE], row) : (sv){ 0 };
    const struct rule *rule = id.len ? find_rule(o, node->line, id) : NULL;
    if (!rule) {
        /* The override of a bad rule has no effect, but its errors are reported together with those of the rule. */
        r->override_rule = id;
        if (id.len && r->errors == errors)
            read_effect(r, node, nodes, NULL, &(struct rule_override){ 0 });
        return false;
    }
    r->override_rule = rule->id;
    *ret = (struct rule_override){ .rule = rule->id,
                                   .line = r->row ? r->row : node->line,
                                   .values = reader_alloc(r, rule->kind->by_count * sizeof(sv)),
                                   .value_count = rule->kind->by_count,
                                   .expires_us = RULE_NEVER_EXPIRES };
    const sv *of_row = row && row->subject.len > 0 ? r->override_values : NULL;
    if (!ret->values || !read_values(r, nodes[BY], node->line, rule, of_row, ret->values))
        return false;
    r->override_values = ret->values;
    r->override_value_count = ret->value_count;
    read_effect(r, node, nodes, rule, ret);
    return r->errors == errors;
}

bool overrides_name(struct override_reader *o, const struct rule_row *row)
{
    struct reader *r = o->r;
    struct weir_error error = { 0 };
    bool text = utf8_valid(row->id) && utf8_valid(row->subject) &&
                (row->subject.len == 0 || !memchr(row->subject.ptr, '\0', row->subject.len));
    r->override_number++;
    r->override_rule = text ? row->id : (sv){ 0 };
    r->override_values = &row->subject;
    r->override_value_count = text && row->subject.len > 0;
    const struct rule *rule = text ? find_rule(o, 0, row->id) : NULL;
    int code = row->subject.len > 0 ? -1 : 0;
    if (!text)
        report_error(r, 0, "the rule or the subject is not UTF-8, or has a NUL character");
    if (rule && code < 0)
        code = override_subject_split(&r->rules->settings, rule, row->subject, &r->rules->arena, o->values, &error);
    if (code == WEIR_E_NO_MEMORY)
        r->no_memory = true;
    else if (code < 0 && rule)
        report_error(r, 0, "%s", error.text);
    r->override_values = o->values;
    r->override_value_count = rule && row->subject.len > 0 && code == 0 ? rule->kind->by_count : 0;
    if (rule && code == 0 && row->fault.len > 0)
        report_error(r, 0, "%.*s", SV_FMT(row->fault));
    return rule && code == 0 && row->fault.len == 0;
}

bool overrides_share(struct override_reader *o, const struct rule_row *row)
{
    const struct rule_override *same = row->same_override;
    const struct rules *rules = o->r->rules;
    const struct id_entry *entry = same ? ids_find(o->good, rules->rule_count, row->id) : NULL;
    /* A rule that has not changed has the very text of its id. */
    if (!entry || rules->rules[entry->index]->id.ptr != same->rule.ptr)
        return false;
    o->r->override_number++;
    o->list[o->count] = *same;
    o->list[o->count++].line = o->r->row;
    return true;
}

void overrides_read(struct override_reader *o, const struct node *node, const struct rule_row *row)
{
    struct reader *r = o->r;
    if (!row) {
        r->override_number++;
        r->override_rule = (sv){ 0 };
        r->override_value_count = 0;
    }
    if (read_one(o, node, row, &o->list[o->count]))
        o->count++;
    else
        report_bad_override(r);
}

/* ---- all ---- */

bool overrides_begin(struct override_reader *o, struct reader *r, size_t most)
{
    size_t count = r->rules->rule_count;
    *o = (struct override_reader){ .r = r, .good = ARENA_ARRAY(r->scratch, struct id_entry, count + 1) };
    o->list = reader_list(r, (most + 1) * sizeof *o->list);
    r->no_memory = r->no_memory || !o->good;
    if (r->no_memory)
        return false;
    for (size_t i = 0; i < count; i++)
        o->good[i] = (struct id_entry){ r->rules->rules[i]->id, i };
    ids_sort(o->good, count);
    r->rule_number = 0;
    r->rule_id = (sv){ 0 };
    return true;
}

static int compare_overrides(const void *a, const void *b)
{
    const struct rule_override *x = *(struct rule_override *const *)a, *y = *(struct rule_override *const *)b;
    int order = override_compare(x, y);
    return order ? order : (x > y) - (x < y);
}

/* If several overrides are for one subject, the first stands. The others are marked by `values` of NULL. */
static void find_twins(struct override_reader *o)
{
    struct reader *r = o->r;
    struct rule_override **sorted = ARENA_ARRAY(r->scratch, struct rule_override *, o->count + 1);
    r->no_memory = r->no_memory || !sorted;
    for (size_t i = 0; sorted && i < o->count; i++)
        sorted[i] = &o->list[i];
    if (sorted && o->count > 1)
        qsort(sorted, o->count, sizeof *sorted, compare_overrides);
    for (size_t i = 1, first = 0; sorted && i < o->count; i++) {
        struct rule_override *twin = sorted[i];
        if (override_compare(sorted[first], twin) != 0) {
            first = i;
            continue;
        }
        r->row = r->row ? twin->line : 0;
        r->override_rule = twin->rule;
        r->override_values = twin->values;
        r->override_value_count = twin->value_count;
        if (r->row)
            report_error(r, twin->line, "row %d is for the same subject; keep one of them", sorted[first]->line);
        else
            report_error(r, twin->line, "the override in %s is for the same subject; keep one of them",
                         shown_line(r, sorted[first]->line, twin->line));
        twin->values = NULL;
    }
}

void overrides_end(struct override_reader *o)
{
    struct reader *r = o->r;
    size_t count = 0;
    r->override_number = o->count + 1; /* errors name the override */
    find_twins(o);
    for (size_t i = 0; i < o->count; i++)
        if (o->list[i].values)
            o->list[count++] = o->list[i];
    r->rules->overrides = o->list;
    r->rules->override_count = count;
    r->override_number = 0;
    r->override_value_count = 0;
}

void read_overrides(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    struct override_reader o;
    bool list = node->kind == NODE_LIST;
    if (r->report->unreadable)
        return;
    if (!list || node->count > RULES_OVERRIDES_MAX) {
        r->report->overrides_unreadable = true;
        if (list)
            report_error(r, node->line, "%u overrides are too many; at most %d", node->count, RULES_OVERRIDES_MAX);
        else
            report_error(r, node->line, "must be a list of overrides (- rule: …), not %s; to have none, leave it out",
                         shown_node(r, node));
        return;
    }
    if (!overrides_begin(&o, r, node->count))
        return;
    r->path_len = 0; /* an override is named by its rule and subject instead */
    for (const struct node_item *item = node->first; item && !r->no_memory; item = item->next)
        overrides_read(&o, item->value, NULL);
    overrides_end(&o);
}
