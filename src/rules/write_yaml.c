/* Rules as YAML. The output reads back as the same rules: every text is either clearly a text or in double quotes. */
#include <inttypes.h>
#include <stdio.h>

#include "base/instant.h"
#include "base/utf8.h"
#include "rules/reader.h"

/* ---- texts ---- */

/* Words that no YAML reader takes for anything but text, in a flow list too. */
static bool writes_plain(sv s)
{
    static const char *const reserved[] = { "true", "false", "yes", "no", "on", "off", "null", "y", "n", NULL };
    if (s.len == 0 || s.len > 80)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = ascii_lower(s.ptr[i]);
        bool letter = c >= 'a' && c <= 'z';
        if (!letter && (i == 0 ? c != '/' : !ascii_digit(c) && c != '_' && c != '-' && c != '.' && c != '/'))
            return false;
    }
    for (size_t i = 0; reserved[i]; i++)
        if (sv_eq_nocase(s, weir_str(reserved[i])))
            return false;
    return true;
}

static void write_text(struct buf *out, sv s)
{
    if (writes_plain(s))
        buf_add(out, s);
    else
        yaml_quote(out, s);
}

/* "  name: TEXT" and a line end; `before` is the indentation. */
static void write_field(struct buf *out, const char *before, const char *name, sv text)
{
    buf_printf(out, "%s%s: ", before, name);
    write_text(out, text);
    buf_char(out, '\n');
}

/* A template may have been decoded to bytes that are not text. */
static void write_template(struct buf *out, sv s)
{
    if (utf8_valid(s) && !text_has_control(s)) {
        write_text(out, s);
        return;
    }
    buf_char(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            buf_printf(out, "%%%02X", c);
        else
            buf_char(out, (char)c);
    }
    buf_char(out, '"');
}

/* ---- lists, each on a line ---- */

typedef void item_writer(struct buf *out, const void *item);

static void write_text_item(struct buf *out, const void *item)
{
    write_text(out, *(const sv *)item);
}

static void write_template_item(struct buf *out, const void *item)
{
    write_template(out, *(const sv *)item);
}

static void write_cidr_item(struct buf *out, const void *item)
{
    const struct cidr *cidr = item;
    char text[CIDR_TEXT_MAX];
    sv written = sv_of(text, cidr_text(cidr, text));
    if (ip_is_v4(&cidr->ip))
        buf_add(out, written);
    else
        yaml_quote(out, written);
}

static void write_by_item(struct buf *out, const void *item)
{
    const struct rule_by *by = item;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULE_BY_TEXT_MAX);
    rule_by_text(by, &text);
    if (by->name.len > 0)
        yaml_quote(out, buf_sv(&text));
    else
        buf_add(out, buf_sv(&text));
    out->failed = out->failed || text.failed;
}

static void write_header_item(struct buf *out, const void *item)
{
    const struct rule_header *header = item;
    write_text(out, header->name);
    buf_add(out, SV(": "));
    write_text(out, header->value);
}

static void write_condition_item(struct buf *out, const void *item);

/* "  name: [a, b]"; nothing for an empty list. A list of headers is a mapping, in braces. */
static void write_items(struct buf *out, const char *before, const char *name, const void *items, size_t count, size_t size,
                        item_writer *write)
{
    bool map = write == write_header_item || write == write_condition_item;
    if (count == 0)
        return;
    buf_printf(out, "%s%s: %c", before, name, map ? '{' : '[');
    for (size_t i = 0; i < count; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        write(out, (const char *)items + i * size);
    }
    buf_add(out, map ? SV("}\n") : SV("]\n"));
}

#define WRITE_LIST(out, before, name, items, count, write) \
    write_items(out, before, name, items, count, sizeof *(items), write)

/* ---- limits ---- */

void rule_limit_text(const struct rule_limit *l, struct buf *out)
{
    if (l->given) {
        buf_add(out, SV("given by the request"));
        return;
    }
    if (l->algorithm == LIMIT_CONCURRENT) {
        buf_printf(out, "%" PRIu64 " concurrent (ttl ", l->max);
        rule_length_text(out, l->per_us);
        buf_char(out, ')');
        return;
    }
    buf_printf(out, "%" PRIu64 "%s%.*s per ", l->max, l->cost_unit.len ? " " : "", SV_FMT(l->cost_unit));
    if (l->algorithm == LIMIT_CALENDAR) {
        rule_calendar_text(l, out);
        if (l->unit == CALENDAR_LENGTH)
            buf_add(out, SV(" calendar"));
        if (l->unit == CALENDAR_WEEK && l->week_start != MONDAY)
            buf_printf(out, " from %s", weekday_names[l->week_start]);
        if (l->zone && l->unit != CALENDAR_LENGTH)
            buf_printf(out, " (%.*s)", SV_FMT(l->zone->name));
    } else {
        rule_length_text(out, l->per_us);
        if (l->algorithm != LIMIT_TOKEN_BUCKET)
            buf_printf(out, " %s", algorithm_names[l->algorithm]);
        else if (l->burst != l->max)
            buf_printf(out, " burst %" PRIu64, l->burst);
    }
    if (l->overdraft)
        buf_add(out, SV(" with overdraft"));
}

void rule_limits_text(const struct rule_limit *limits, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        rule_limit_text(&limits[i], out);
    }
}

static bool in_utc(const struct rule_limit *l)
{
    return !l->zone || sv_eq(l->zone->name, SV("UTC"));
}

static void write_short_limit(struct buf *out, const struct rule_limit *l)
{
    if (l->algorithm == LIMIT_CONCURRENT) {
        buf_printf(out, "\"%" PRIu64 " concurrent\"", l->max);
        return;
    }
    buf_printf(out, "\"%" PRIu64 "%s%.*s per ", l->max, l->cost_unit.len ? " " : "", SV_FMT(l->cost_unit));
    if (l->algorithm == LIMIT_CALENDAR)
        buf_add(out, weir_str(unit_names[l->unit]));
    else
        rule_length_text(out, l->per_us);
    if (l->algorithm == LIMIT_TOKEN_BUCKET && l->burst != l->max)
        buf_printf(out, " burst %" PRIu64, l->burst);
    buf_char(out, '"');
}

static void write_long_limit(struct buf *out, const struct rule_limit *l)
{
    buf_char(out, '{');
    if (l->named) {
        buf_add(out, SV("name: "));
        write_text(out, l->name);
        buf_add(out, SV(", "));
    }
    if (l->algorithm == LIMIT_CALENDAR) {
        buf_add(out, SV("calendar: "));
        rule_calendar_text(l, out);
        buf_printf(out, ", max: %" PRIu64, l->max);
        if (!in_utc(l)) {
            buf_add(out, SV(", tz: "));
            write_text(out, l->zone->name);
        }
        if (l->week_start != MONDAY)
            buf_printf(out, ", week_start: %s", weekday_names[l->week_start]);
    } else if (l->algorithm == LIMIT_CONCURRENT) {
        buf_printf(out, "concurrent: %" PRIu64 ", ttl: ", l->max);
        rule_length_text(out, l->per_us);
    } else {
        buf_printf(out, "algorithm: %s, max: %" PRIu64 ", per: ", algorithm_names[l->algorithm], l->max);
        rule_length_text(out, l->per_us);
        if (l->algorithm == LIMIT_TOKEN_BUCKET && l->burst != l->max)
            buf_printf(out, ", burst: %" PRIu64, l->burst);
    }
    if (l->cost_unit.len > 0) {
        buf_add(out, SV(", unit: "));
        write_text(out, l->cost_unit);
    }
    if (l->overdraft)
        buf_add(out, SV(", overdraft: true"));
    buf_char(out, '}');
}

static void write_limit(struct buf *out, const struct rule_limit *l)
{
    bool calendar = l->algorithm == LIMIT_CALENDAR && l->unit != CALENDAR_LENGTH && in_utc(l) && l->week_start == MONDAY;
    bool slots = l->algorithm == LIMIT_CONCURRENT && l->per_us == slot_ttl_default_us;
    bool shortens = !l->overdraft && (l->cost_unit.len == 0 || !ascii_digit(l->cost_unit.ptr[0]));
    if (!l->named && shortens && (calendar || slots || l->algorithm == LIMIT_TOKEN_BUCKET))
        write_short_limit(out, l);
    else
        write_long_limit(out, l);
}

static void write_limits(struct buf *out, const char *before, const struct rule_limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%s- ", before);
        write_limit(out, &limits[i]);
        buf_char(out, '\n');
    }
}

static void write_plans(struct buf *out, const struct rule *rule)
{
    const struct rule_rest *rest = rule->kind->rest;
    if (rest->plan_count == 0)
        return;
    buf_add(out, SV("    plan: "));
    write_by_item(out, &rest->plan);
    buf_add(out, SV("\n    plans:\n"));
    for (size_t i = 0; i < rest->plan_count; i++) {
        buf_add(out, SV("      "));
        write_text(out, rest->plans[i].name);
        buf_add(out, SV(":\n"));
        write_limits(out, "        ", rest->plans[i].limits, rest->plans[i].limit_count);
    }
}

/* ---- the parts of a rule ---- */

static void write_path_item(struct buf *out, const void *item)
{
    const struct rule_path *path = item;
    if (!path->is_regex) {
        write_template(out, rule_path_text(*path));
        return;
    }
    buf_add(out, SV("{regex: "));
    yaml_quote(out, rule_path_text(*path));
    buf_char(out, '}');
}

static void write_value_item(struct buf *out, const void *item)
{
    const struct rule_value *value = item;
    if (value->kind == VALUE_NETWORK) {
        write_cidr_item(out, &value->network);
    } else if (value->kind == VALUE_EQUAL) {
        write_text(out, value->text);
    } else {
        buf_add(out, value->kind == VALUE_GLOB ? SV("{glob: ") : SV("{prefix: "));
        write_text(out, value->text);
        buf_char(out, '}');
    }
}

/* Values of a condition. */
struct part {
    const void *items;
    size_t count, size;
    item_writer *write;
};

/* One alone, several as a list. */
static void write_part(struct buf *out, const struct part *part)
{
    buf_add(out, part->count > 1 ? SV("[") : SV(""));
    for (size_t i = 0; i < part->count; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        part->write(out, (const char *)part->items + i * part->size);
    }
    buf_add(out, part->count > 1 ? SV("]") : SV(""));
}

/* "a", "[a, b]" or "{is: a, not: [b, c], present: true}". */
static void write_condition(struct buf *out, struct part is, struct part is_not, enum presence presence)
{
    if (is_not.count == 0 && presence == PRESENCE_ANY) {
        write_part(out, &is);
        return;
    }
    buf_char(out, '{');
    if (is.count > 0) {
        buf_add(out, SV("is: "));
        write_part(out, &is);
    }
    if (is_not.count > 0) {
        buf_add(out, is.count > 0 ? SV(", not: ") : SV("not: "));
        write_part(out, &is_not);
    }
    if (presence != PRESENCE_ANY)
        buf_printf(out, "%s%s: true", is.count + is_not.count > 0 ? ", " : "", presence == PRESENT ? "present" : "absent");
    buf_char(out, '}');
}

static struct part part_of(const struct rule_values *values)
{
    return (struct part){ values->list, values->count, sizeof *values->list, write_value_item };
}

static void write_condition_item(struct buf *out, const void *item)
{
    const struct rule_condition *condition = item;
    write_text(out, condition->name.len > 0 ? condition->name : attribute_table[condition->attribute].name);
    buf_add(out, SV(": "));
    write_condition(out, part_of(&condition->is), part_of(&condition->is_not), condition->presence);
}

static void write_paths(struct buf *out, const struct rule_match *m, enum presence presence)
{
    if (m->path_count + m->not_path_count == 0 && presence == PRESENCE_ANY)
        return;
    struct rule_path only = rule_path_count(m) == 1 ? rule_path(m, 0) : (struct rule_path){ 0 };
    const struct rule_path *list = m->alone ? &only : m->list, *others = list ? list + m->path_count : NULL;
    struct part is = { list, m->path_count, sizeof *list, write_path_item };
    struct part is_not = { others, m->not_path_count, sizeof *list, write_path_item };
    bool lines = is.count > 1 && is_not.count == 0 && presence == PRESENCE_ANY;
    buf_add(out, lines ? SV("      path:") : SV("      path: "));
    for (size_t i = 0; lines && i < is.count; i++) {
        buf_add(out, SV("\n        - "));
        write_path_item(out, &list[i]);
    }
    if (!lines)
        write_condition(out, is, is_not, presence);
    buf_char(out, '\n');
}

static void write_match(struct buf *out, const struct rule *rule)
{
    const struct rule_match *m = &rule->match;
    const struct rule_condition *conditions = rule->kind->conditions;
    const struct rule_condition *method = rule_condition_of(rule, ATTR_METHOD), *path = rule_condition_of(rule, ATTR_PATH);
    size_t texts = 0, count = rule->kind->condition_count;
    if (count + rule_path_count(m) == 0)
        return;
    buf_add(out, SV("    match:\n"));
    if (method) {
        bool list = method->is.count == 1 && method->is_not.count == 0 && method->presence == PRESENCE_ANY;
        buf_printf(out, "      method: %s", list ? "[" : "");
        write_condition(out, part_of(&method->is), part_of(&method->is_not), method->presence);
        buf_add(out, list ? SV("]\n") : SV("\n"));
    }
    write_paths(out, m, path ? path->presence : PRESENCE_ANY);
    if (count == 0)
        return;
    for (; texts < count && !attribute_has_name(conditions[texts].attribute); texts++) {
        if (&conditions[texts] == method || &conditions[texts] == path)
            continue;
        buf_add(out, SV("      "));
        write_condition_item(out, &conditions[texts]);
        buf_char(out, '\n');
    }
    size_t headers = texts;
    while (headers < count && conditions[headers].attribute == ATTR_HEADER)
        headers++;
    WRITE_LIST(out, "      ", "header", conditions + texts, headers - texts, write_condition_item);
    WRITE_LIST(out, "      ", "descriptor", conditions + headers, count - headers, write_condition_item);
}

static void write_except(struct buf *out, const struct rule_except *e, const char *before, const char *inside)
{
    if (e->ip_count + e->user_count == 0)
        return;
    buf_printf(out, "%sexcept:\n", before);
    WRITE_LIST(out, inside, "ip", e->ips, e->ip_count, write_cidr_item);
    WRITE_LIST(out, inside, "user", e->users, e->user_count, write_text_item);
}

static void write_reject(struct buf *out, const struct rule_reject *j, const char *before, const char *inside)
{
    if (!j->status && !j->has_body && j->content_type.len == 0 && j->header_count == 0)
        return;
    buf_printf(out, "%sreject:\n", before);
    if (j->status)
        buf_printf(out, "%sstatus: %u\n", inside, j->status);
    if (j->has_body) {
        buf_printf(out, "%sbody: ", inside);
        yaml_quote(out, j->body);
        buf_char(out, '\n');
    }
    if (j->content_type.len > 0)
        write_field(out, inside, "content_type", j->content_type);
    WRITE_LIST(out, inside, "headers", j->headers, j->header_count, write_header_item);
}

static void write_slice(struct buf *out, uint32_t slice)
{
    buf_printf(out, "slice: %u", slice / 100);
    if (slice % 10)
        buf_printf(out, ".%02u", slice % 100);
    else if (slice % 100)
        buf_printf(out, ".%u", slice % 100 / 10);
    buf_char(out, '%');
}

/* A lease says that counters are shared. */
static void write_counters(struct buf *out, const struct rule *rule)
{
    const struct rule_lease *lease = &rule->kind->rest->lease;
    bool slice = lease->slice != lease_default.slice, ttl = lease->ttl_ms != lease_default.ttl_ms;
    if (lease->on && !slice && !ttl) {
        buf_add(out, SV("    lease: true\n"));
    } else if (lease->on) {
        buf_add(out, SV("    lease: {"));
        if (slice)
            write_slice(out, lease->slice);
        buf_printf(out, "%s", slice && ttl ? ", " : "");
        if (ttl) {
            buf_add(out, SV("ttl: "));
            rule_length_text(out, lease->ttl_ms * US_PER_MS);
        }
        buf_add(out, SV("}\n"));
    } else if (rule->kind->counters != COUNTERS_DEFAULT) {
        buf_printf(out, "    counters: %s\n", counters_names[rule->kind->counters]);
    }
    if (rule->kind->on_failure != ON_FAILURE_LOCAL)
        buf_printf(out, "    on_store_failure: %s\n", on_failure_names[rule->kind->on_failure]);
    if (rule->kind->rest->hold_max_percent > 0)
        buf_printf(out, "    hold_max: %u%%\n", rule->kind->rest->hold_max_percent);
}

static void write_penalty(struct buf *out, const struct rule_penalty *p)
{
    if (p->after == 0)
        return;
    buf_printf(out, "    penalty: {after: %u, within: ", p->after);
    rule_length_text(out, p->within_us);
    buf_add(out, SV(", for: "));
    rule_length_text(out, p->for_us);
    buf_printf(out, ", grow: %u, most: ", p->grow);
    rule_length_text(out, p->most_us);
    buf_add(out, SV("}\n"));
}

void write_rule(struct buf *out, const struct rule *rule)
{
    write_field(out, "  - ", "id", rule->id);
    write_match(out, rule);
    if (rule->kind->ignore_case)
        buf_add(out, SV("    ignore_case: true\n"));
    WRITE_LIST(out, "    ", "by", rule->kind->by, rule->kind->by_count, write_by_item);
    write_plans(out, rule);
    if (rule->kind->unlimited)
        buf_add(out, SV("    limits: none\n"));
    else if (rule_limit_is_given(rule))
        buf_add(out, SV("    limits: given\n"));
    else if (rule->kind->limit_count > 0)
        buf_add(out, SV("    limits:\n"));
    if (!rule_limit_is_given(rule))
        write_limits(out, "      ", rule->kind->limits, rule->kind->limit_count);
    enum rule_mode mode = rule->kind->disabled ? rule->kind->enabled_mode : rule->kind->mode;
    if (mode != MODE_ENFORCE)
        buf_printf(out, "    mode: %s\n", mode == MODE_OFF ? "\"off\"" : mode_names[mode]);
    if (rule->kind->disabled)
        buf_add(out, SV("    enabled: false\n"));
    if (rule->kind->rest->expires_us != RULE_NEVER_EXPIRES) {
        char text[INSTANT_TEXT_MAX];
        instant_text(rule->kind->rest->expires_us, text);
        buf_printf(out, "    expires: %s\n", text);
    }
    write_except(out, &rule->kind->rest->except, "    ", "      ");
    write_reject(out, &rule->kind->rest->reject, "    ", "      ");
    write_counters(out, rule);
    write_penalty(out, &rule->kind->rest->penalty);
    WRITE_LIST(out, "    ", "replaces", rule->kind->rest->replaces, rule->kind->rest->replace_count, write_text_item);
}

/* ---- overrides ---- */

/* Each on a line, as there may be many: "  - {rule: api, by: {user: "4711"}, deny: true}". */
static void write_override(struct buf *out, const struct rule_override *o, const struct rule *rule)
{
    buf_add(out, SV("  - {rule: "));
    write_text(out, o->rule);
    buf_add(out, SV(", by: {"));
    for (size_t i = 0; i < o->value_count; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        write_by_item(out, &rule->kind->by[i]);
        buf_add(out, SV(": "));
        write_text(out, o->values[i]);
    }
    buf_add(out, SV("}, "));
    if (o->kind != OVERRIDE_LIMITS)
        buf_printf(out, "%s: true", o->kind == OVERRIDE_DENY ? "deny" : "unlimited");
    else
        buf_add(out, SV("limits: ["));
    for (size_t i = 0; i < o->limit_count; i++) {
        buf_add(out, i ? SV(", ") : SV(""));
        write_limit(out, &o->limits[i]);
    }
    if (o->kind == OVERRIDE_LIMITS)
        buf_char(out, ']');
    if (o->expires_us != RULE_NEVER_EXPIRES) {
        char text[INSTANT_TEXT_MAX];
        instant_text(o->expires_us, text);
        buf_printf(out, ", expires: %s", text);
    }
    if (o->why.len > 0) {
        buf_add(out, SV(", why: "));
        write_text(out, o->why);
    }
    buf_add(out, SV("}\n"));
}

void write_overrides(struct buf *out, const struct rules *rules)
{
    if (rules->override_count == 0)
        return;
    CLEANUP_FREE struct id_entry *ids = ids_of_rules(rules);
    out->failed = out->failed || !ids;
    buf_add(out, SV("overrides:\n"));
    for (size_t i = 0; ids && i < rules->override_count; i++) {
        const struct id_entry *rule = ids_find(ids, rules->rule_count, rules->overrides[i].rule);
        if (rule)
            write_override(out, &rules->overrides[i], rules->rules[rule->index]);
    }
}

/* ---- the whole ---- */

static void write_settings(struct buf *out, const struct settings *s)
{
    WRITE_LIST(out, "  ", "ids", s->ids, s->id_count, write_text_item);
    if (s->ignore_case)
        buf_add(out, SV("  ignore_case: true\n"));
    WRITE_LIST(out, "  ", "strip_prefixes", s->strip_prefixes, s->strip_prefix_count, write_template_item);
    WRITE_LIST(out, "  ", "trusted_proxies", s->trusted_proxies, s->trusted_proxy_count, write_cidr_item);
    if (s->ipv6_prefix != 64)
        buf_printf(out, "  ipv6_prefix: %u\n", s->ipv6_prefix);
    if (s->repeated_headers != REPEATED_REFUSE)
        buf_printf(out, "  repeated_headers: %s\n", repeated_names[s->repeated_headers]);
    if (s->headers != HEADERS_STANDARD)
        buf_printf(out, "  headers: %s\n", s->headers == HEADERS_OFF ? "\"off\"" : header_setting_names[s->headers]);
    if (s->partition_key_secret.len > 0) {
        buf_add(out, SV("  partition_key_secret: "));
        write_text(out, s->partition_key_secret);
        buf_char(out, '\n');
    }
    write_except(out, &s->except, "  ", "    ");
    write_reject(out, &s->reject, "  ", "    ");
}

void write_before_rules(struct buf *out, const struct rules *rules)
{
    if (rules->problem_count > 0) {
        buf_add(out, SV("problems:\n"));
        for (size_t i = 0; i < rules->problem_count; i++) {
            buf_add(out, SV("  - "));
            write_text(out, rules->problems[i]);
            buf_char(out, '\n');
        }
    }
    size_t start = out->len;
    buf_add(out, SV("settings:\n"));
    size_t after = out->len;
    write_settings(out, &rules->settings);
    if (out->len == after && !out->failed)
        out->len = start; /* nothing but defaults */
    buf_printf(out, "%s", rules->rule_count ? "rules:\n" : "rules: []\n");
}

void rules_write(const struct rules *rules, struct buf *out)
{
    write_before_rules(out, rules);
    for (size_t i = 0; i < rules->rule_count; i++)
        write_rule(out, rules->rules[i]);
    write_overrides(out, rules);
}
