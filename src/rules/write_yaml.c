/* Rules as YAML. What is written reads back the same: every text is either plainly a text or in double quotes. */
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

/* A template may have been decoded to bytes that are no text. */
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
    char text[IP_TEXT_MAX];
    ip_text(&cidr->ip, text);
    bool v4 = ip_is_v4(&cidr->ip);
    int prefix = v4 ? cidr->prefix - 96 : cidr->prefix, whole = v4 ? 32 : 128;
    char with_prefix[IP_TEXT_MAX + 8];
    int n = snprintf(with_prefix, sizeof with_prefix, prefix == whole ? "%s" : "%s/%d", text, prefix);
    if (v4)
        buf_add(out, sv_of(with_prefix, (size_t)n));
    else
        yaml_quote(out, sv_of(with_prefix, (size_t)n));
}

static void write_by_item(struct buf *out, const void *item)
{
    const struct rule_by *by = item;
    const char *quote = by->attribute == ATTR_HEADER ? "\"" : "";
    buf_add(out, weir_str(quote));
    rule_by_text(by, out);
    buf_add(out, weir_str(quote));
}

static void write_header_item(struct buf *out, const void *item)
{
    const struct rule_header *header = item;
    write_text(out, header->name);
    buf_add(out, SV(": "));
    write_text(out, header->value);
}

/* "  name: [a, b]"; nothing for an empty list. A list of headers is a mapping, in braces. */
static void write_items(struct buf *out, const char *before, const char *name, const void *items, size_t count, size_t size,
                        item_writer *write)
{
    bool map = write == write_header_item;
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

static void write_length(struct buf *out, int64_t us)
{
    static const struct {
        int64_t us;
        const char *unit;
    } units[] = { { 86400 * US_PER_S, "d" }, { 3600 * US_PER_S, "h" }, { 60 * US_PER_S, "m" }, { US_PER_S, "s" } };
    for (size_t i = 0; i < 4; i++) {
        if (us % units[i].us == 0) {
            buf_printf(out, "%lld%s", (long long)(us / units[i].us), units[i].unit);
            return;
        }
    }
    buf_printf(out, "%lldms", (long long)(us / US_PER_MS));
}

void rule_limit_text(const struct rule_limit *l, struct buf *out)
{
    buf_printf(out, "%" PRIu64 "%s%.*s per ", l->max, l->cost_unit.len ? " " : "", SV_FMT(l->cost_unit));
    if (l->algorithm == LIMIT_CALENDAR) {
        buf_add(out, weir_str(unit_names[l->unit]));
        if (l->unit == CALENDAR_WEEK && l->week_start != MONDAY)
            buf_printf(out, " from %s", weekday_names[l->week_start]);
        if (l->zone)
            buf_printf(out, " (%.*s)", SV_FMT(l->zone->name));
        return;
    }
    write_length(out, l->per_us);
    if (l->algorithm != LIMIT_TOKEN_BUCKET)
        buf_printf(out, " %s", algorithm_names[l->algorithm]);
    else if (l->burst != l->max)
        buf_printf(out, " burst %" PRIu64, l->burst);
}

static bool in_utc(const struct rule_limit *l)
{
    return !l->zone || sv_eq(l->zone->name, SV("UTC"));
}

static void write_short_limit(struct buf *out, const struct rule_limit *l)
{
    buf_printf(out, "\"%" PRIu64 "%s%.*s per ", l->max, l->cost_unit.len ? " " : "", SV_FMT(l->cost_unit));
    if (l->algorithm == LIMIT_CALENDAR)
        buf_add(out, weir_str(unit_names[l->unit]));
    else
        write_length(out, l->per_us);
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
        buf_printf(out, "calendar: %s, max: %" PRIu64, unit_names[l->unit], l->max);
        if (!in_utc(l)) {
            buf_add(out, SV(", tz: "));
            write_text(out, l->zone->name);
        }
        if (l->week_start != MONDAY)
            buf_printf(out, ", week_start: %s", weekday_names[l->week_start]);
    } else {
        buf_printf(out, "algorithm: %s, max: %" PRIu64 ", per: ", algorithm_names[l->algorithm], l->max);
        write_length(out, l->per_us);
        if (l->algorithm == LIMIT_TOKEN_BUCKET && l->burst != l->max)
            buf_printf(out, ", burst: %" PRIu64, l->burst);
    }
    if (l->cost_unit.len > 0) {
        buf_add(out, SV(", unit: "));
        write_text(out, l->cost_unit);
    }
    buf_char(out, '}');
}

static void write_limits(struct buf *out, const struct rule *rule)
{
    buf_add(out, SV("    limits:\n"));
    for (size_t i = 0; i < rule->limit_count; i++) {
        const struct rule_limit *l = &rule->limits[i];
        bool calendar = l->algorithm == LIMIT_CALENDAR && in_utc(l) && l->week_start == MONDAY;
        buf_add(out, SV("      - "));
        bool shortens = l->cost_unit.len == 0 || !ascii_digit(l->cost_unit.ptr[0]);
        if (!l->named && shortens && (calendar || l->algorithm == LIMIT_TOKEN_BUCKET))
            write_short_limit(out, l);
        else
            write_long_limit(out, l);
        buf_char(out, '\n');
    }
}

/* ---- the parts of a rule ---- */

static void write_paths(struct buf *out, const struct rule_match *m)
{
    buf_add(out, SV("      path:"));
    for (size_t i = 0; i < m->path_count; i++) {
        buf_printf(out, "%s", m->path_count > 1 ? "\n        - " : " ");
        if (m->paths[i].is_regex) {
            buf_add(out, SV("{regex: "));
            yaml_quote(out, m->paths[i].text);
            buf_char(out, '}');
        } else {
            write_template(out, m->paths[i].text);
        }
    }
    buf_char(out, '\n');
}

static void write_match(struct buf *out, const struct rule_match *m)
{
    if (m->text_count + m->method_count + m->path_count + m->header_count == 0)
        return;
    buf_add(out, SV("    match:\n"));
    WRITE_LIST(out, "      ", "method", m->methods, m->method_count, write_text_item);
    if (m->path_count > 0)
        write_paths(out, m);
    for (size_t i = 0; i < m->text_count; i++)
        write_field(out, "      ", attribute_table[m->texts[i].attribute].name.ptr, m->texts[i].value);
    WRITE_LIST(out, "      ", "header", m->headers, m->header_count, write_header_item);
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
    const struct rule_lease *lease = &rule->lease;
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
            write_length(out, lease->ttl_ms * US_PER_MS);
        }
        buf_add(out, SV("}\n"));
    } else if (rule->counters != COUNTERS_DEFAULT) {
        buf_printf(out, "    counters: %s\n", counters_names[rule->counters]);
    }
    if (rule->on_failure != ON_FAILURE_LOCAL)
        buf_printf(out, "    on_store_failure: %s\n", on_failure_names[rule->on_failure]);
}

static void write_rule(struct buf *out, const struct rule *rule)
{
    write_field(out, "  - ", "id", rule->id);
    write_match(out, &rule->match);
    WRITE_LIST(out, "    ", "by", rule->by, rule->by_count, write_by_item);
    write_limits(out, rule);
    enum rule_mode mode = rule->disabled ? rule->enabled_mode : rule->mode;
    if (mode != MODE_ENFORCE)
        buf_printf(out, "    mode: %s\n", mode == MODE_OFF ? "\"off\"" : mode_names[mode]);
    if (rule->disabled)
        buf_add(out, SV("    enabled: false\n"));
    if (rule->expires_us != RULE_NEVER_EXPIRES) {
        char text[INSTANT_TEXT_MAX];
        instant_text(rule->expires_us, text);
        buf_printf(out, "    expires: %s\n", text);
    }
    write_except(out, &rule->except, "    ", "      ");
    write_reject(out, &rule->reject, "    ", "      ");
    write_counters(out, rule);
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
    write_except(out, &s->except, "  ", "    ");
    write_reject(out, &s->reject, "  ", "    ");
}

void rules_write(const struct rules *rules, struct buf *out)
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
    for (size_t i = 0; i < rules->rule_count; i++)
        write_rule(out, &rules->rules[i]);
}
