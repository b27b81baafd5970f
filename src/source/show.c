/* Rules and rows as people and programs read them. */
#include "source/show.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "source/backend.h"

enum { SHOWN_MAX = 256 << 20 };

/* ---- rules in words ---- */

/* ", " between the parts of a list. */
static void between(struct buf *out, size_t index)
{
    buf_printf(out, "%s", index ? ", " : "");
}

/* "10 per 1m", or "free: 10 per 1m; pro: 100 per 1m; others: 5 per 1m". */
void source_show_limits(const struct rule *rule, struct buf *out)
{
    for (size_t i = 0; i < rule->kind->rest->plan_count; i++) {
        buf_printf(out, "%s%.*s: ", i ? "; " : "", SV_FMT(rule->kind->rest->plans[i].name));
        rule_limits_text(rule->kind->rest->plans[i].limits, rule->kind->rest->plans[i].limit_count, out);
    }
    if (rule->kind->rest->plan_count > 0)
        buf_printf(out, "; others: %s", rule->kind->limit_count == 0 ? "not limited" : "");
    if (rule->kind->unlimited)
        buf_add(out, SV("none"));
    rule_limits_text(rule->kind->limits, rule->kind->limit_count, out);
}

static bool is_list(const struct rule_condition *condition)
{
    return condition->is_not.count == 0 && condition->presence == PRESENCE_ANY;
}

/* "event ocr", "header x-plan=free or trial", "user not ann" */
static void show_condition(const struct rule_condition *condition, struct buf *out)
{
    buf_printf(out, "%s ", attribute_table[condition->attribute].name.ptr);
    if (condition->name.len > 0)
        buf_printf(out, "%.*s%s", SV_FMT(condition->name), is_list(condition) ? "=" : " ");
    rule_condition_text(condition, out);
}

static void show_paths(const struct rule_match *m, struct buf *out)
{
    for (size_t i = 0; i < rule_path_count(m); i++) {
        struct rule_path path = rule_path(m, i);
        between(out, i);
        buf_printf(out, "%s%s%.*s", i < m->path_count ? "" : "not ", path.is_regex ? "regex " : "",
                   SV_FMT(rule_path_text(path)));
    }
}

void source_show_match(const struct rule *rule, struct buf *out)
{
    const struct rule_kind *kind = rule->kind;
    size_t start = out->len;
    const struct rule_condition *method = rule_condition_of(rule, ATTR_METHOD);
    bool methods = method && is_list(method);
    for (size_t i = 0; methods && i < method->is.count; i++) {
        struct rule_values one = { &method->is.list[i], 1 };
        buf_printf(out, "%s", i ? "," : "");
        rule_values_text(&one, out);
    }
    if (methods && rule_path_count(&rule->match) > 0)
        buf_char(out, ' ');
    show_paths(&rule->match, out);
    for (size_t i = 0; i < kind->condition_count; i++) {
        if (methods && &kind->conditions[i] == method)
            continue;
        between(out, out->len > start);
        show_condition(&kind->conditions[i], out);
    }
    if (out->len == start)
        buf_add(out, SV("everything"));
}

void source_show_by(const struct rule *rule, struct buf *out)
{
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        between(out, i);
        rule_by_text(&rule->kind->by[i], out);
    }
    if (rule->kind->by_count == 0)
        buf_add(out, SV("all together"));
}

const char *const source_row_states[] = { "enforce", "shadow", "off", "expired", "disabled", "bad", NULL };

const char *source_row_state(const struct source_row *row, int64_t now_us)
{
    const struct rule *rule = row->parsed;
    if (!row->enabled)
        return "disabled";
    if (!rule)
        return "bad";
    return rule->kind->rest->expires_us <= now_us ? "expired" : mode_names[rule->kind->mode];
}

bool source_problem_is_of(const struct source_problem *problem, const struct source_row *row)
{
    bool line =
        sv_starts(problem->row, SV("line ")) && row->rule.len > 0; /* of a file, whose rows have none of their own */
    return sv_eq(problem->table, row->table) && ((sv_eq(problem->row, row->key) && sv_eq(problem->rule, row->rule)) ||
                                                 (line && sv_eq(problem->rule, row->rule)));
}

const char *source_override_state(const struct source_reading *reading, const struct source_row *row, int64_t now_us)
{
    static const char *const kinds[] = {
        [OVERRIDE_LIMITS] = "limits", [OVERRIDE_DENY] = "deny", [OVERRIDE_UNLIMITED] = "unlimited"
    };
    if (row->override)
        return row->override->expires_us <= now_us ? "expired" : kinds[row->override->kind];
    for (size_t i = 0; i < reading->problem_count; i++)
        if (sv_eq(reading->problems[i].row, row->key) && sv_eq(reading->problems[i].rule, row->rule))
            return "bad";
    return "unused";
}

void source_show_override(const struct rule_override *override, struct buf *out)
{
    if (override->kind == OVERRIDE_LIMITS)
        rule_limits_text(override->limits, override->limit_count, out);
    else
        buf_add(out, override->kind == OVERRIDE_DENY ? SV("deny") : SV("unlimited"));
}

/* Some rule has to be there, and any will do: the limits do not depend on it. */
struct rules *source_read_unused(const struct source_row *row)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP(buf_done) struct buf document;
    buf_init(&document, RULES_BYTES_MAX);
    if (document_of_override(row->text, NULL, NULL, &document, NULL) < 0)
        return NULL;
    struct rule_row rows[] = {
        { .kind = ROW_RULE, .id = SV("any"), .text = SV("{\"by\":[\"user\"],\"limits\":[\"1 per 1s\"]}") },
        { .kind = ROW_OVERRIDE, .id = SV("any"), .subject = SV("any"), .text = buf_sv(&document) },
    };
    CLEANUP(rules_freep) struct rules *rules = rules_read_rows(rows, sizeof rows / sizeof *rows, &report);
    return rules && rules->override_count == 1 ? STEAL(rules) : NULL;
}

/* ---- JSON ---- */

json_t *source_json_load(sv text)
{
    CLEANUP(buf_done) struct buf json;
    buf_init(&json, RULES_BYTES_MAX);
    bool good = rules_json(text, &json, NULL) == 0 && !json.failed;
    return good ? json_loadb(buf_sv(&json).ptr, json.len, JSON_DECODE_ANY, NULL) : NULL;
}

void source_json_add(sv text, struct buf *out)
{
    json_auto_t *value = source_json_load(text);
    CLEANUP_FREE char *line = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (line)
        buf_add(out, weir_str(line));
    else
        buf_json(out, text);
}

void source_json_add_member(const char *name, sv text, struct buf *out)
{
    buf_printf(out, ",\"%s\":", name);
    if (text.len > 0)
        source_json_add(text, out);
    else
        buf_add(out, SV("null"));
}

static void add_field(struct buf *out, const char *name, sv text)
{
    buf_printf(out, ",\"%s\":", name);
    buf_json(out, text);
}

void source_problem_json(const struct source_problem *problem, struct buf *out)
{
    buf_add(out, SV("{\"table\":"));
    buf_json(out, problem->table);
    add_field(out, "row", problem->row);
    add_field(out, "rule", problem->rule);
    add_field(out, "text", problem->text);
    buf_char(out, '}');
}

/* Shorter than a secret may be, so that it cannot be written back as one. */
static sv setting_text(sv name, sv text, enum source_secrets secrets)
{
    bool hidden = secrets == SECRETS_HIDDEN && text.len > 0 && sv_eq(name, SV("partition_key_secret"));
    return hidden ? SV("\"(hidden)\"") : text;
}

void source_settings_json(const struct source_reading *reading, enum source_secrets secrets, struct buf *out)
{
    size_t count = 0;
    buf_char(out, '{');
    for (size_t i = 0; i < reading->row_count; i++) {
        if (!reading->rows[i].setting)
            continue;
        buf_printf(out, "%s", count++ ? "," : "");
        buf_json(out, reading->rows[i].key);
        buf_char(out, ':');
        source_json_add(setting_text(reading->rows[i].key, reading->rows[i].text, secrets), out);
    }
    buf_char(out, '}');
}

void source_event_json(const struct source_event *event, enum source_secrets secrets, struct buf *out)
{
    bool setting = sv_eq(event->table, weir_str(table_names[TABLE_SETTINGS]));
    sv name = setting ? event->key : SV("");
    buf_printf(out, "{\"number\":%" PRId64, event->number);
    add_field(out, "at", event->at);
    add_field(out, "who", event->who);
    add_field(out, "what", event->what);
    add_field(out, "rule", event->rule);
    add_field(out, "table", event->table);
    add_field(out, "row", event->key);
    add_field(out, "note", event->note);
    buf_printf(out, ",\"undoable\":%s", source_event_is_change(event) ? "true" : "false");
    source_json_add_member("before", setting_text(name, event->before, secrets), out);
    source_json_add_member("after", setting_text(name, event->after, secrets), out);
    buf_char(out, '}');
}

void source_undone_text(const struct source_undone *undone, struct buf *out)
{
    static const struct {
        const char *what, *text;
    } results[] = { { "add", "is back" },
                    { "change", "is as it was before" },
                    { "remove", "is removed" },
                    { "enable", "is enabled" },
                    { "disable", "is disabled" } };
    if (sv_eq(undone->table, weir_str(table_names[TABLE_OVERRIDES])))
        buf_printf(out, "the override of rule %.*s for %.*s", SV_FMT(undone->rule), SV_FMT(undone->row));
    else if (sv_eq(undone->table, weir_str(table_names[TABLE_SETTINGS])))
        buf_printf(out, "the setting %.*s", SV_FMT(undone->row));
    else
        buf_printf(out, "rule %.*s", SV_FMT(undone->rule));
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (strcmp(results[i].what, undone->what) == 0)
            buf_printf(out, " %s", results[i].text);
}

void source_undone_json(const struct source_undone *undone, struct buf *out)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, SHOWN_MAX);
    source_undone_text(undone, &text);
    buf_printf(out, "\"undone\":%" PRId64 ",\"what\":\"%s\"", undone->number, undone->what);
    add_field(out, "text", buf_sv(&text));
    buf_add(out, SV(",\"change\":{\"what\":"));
    buf_json(out, undone->change);
    add_field(out, "rule", undone->rule);
    add_field(out, "table", undone->table);
    add_field(out, "row", undone->row);
    buf_char(out, '}');
    out->failed = out->failed || text.failed;
}

static void add_summary_json(const struct rule *rule, struct buf *out)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, SHOWN_MAX);
    source_show_limits(rule, &text);
    add_field(out, "limits", buf_sv(&text));
    buf_clear(&text);
    source_show_match(rule, &text);
    add_field(out, "match", buf_sv(&text));
    buf_clear(&text);
    source_show_by(rule, &text);
    add_field(out, "by", buf_sv(&text));
}

/* Adds who changed the row last, when and why. */
static void add_update(const struct source_row *row, struct buf *out)
{
    add_field(out, "updated_at", row->updated_at);
    add_field(out, "updated_by", row->updated_by);
    add_field(out, "note", row->note);
}

static void add_problems(const struct source_reading *reading, const struct source_row *row, struct buf *out)
{
    size_t count = 0;
    buf_add(out, SV(",\"problems\":["));
    for (size_t i = 0; i < reading->problem_count; i++)
        if (source_problem_is_of(&reading->problems[i], row)) {
            buf_printf(out, "%s", count++ ? "," : "");
            buf_json(out, reading->problems[i].text);
        }
    buf_char(out, ']');
}

/* Its rule; NULL: the override was not read. */
static const struct rule *rule_of(const struct source_reading *reading, const struct rule_override *override)
{
    for (size_t i = 0; override && i < reading->rules->rule_count; i++)
        if (sv_eq(reading->rules->rules[i]->id, override->rule))
            return reading->rules->rules[i];
    return NULL;
}

json_t *source_override_document(const struct source_reading *reading, const struct source_row *row)
{
    const struct rule *rule = rule_of(reading, row->override);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    if (!rule || document_of_override(row->text, rule, row->override->values, &text, NULL) < 0)
        return NULL;
    return json_loadb(text.ptr, text.len, 0, NULL);
}

/* The subject, value by value; nothing if the override was not read. */
static void add_by(const struct source_reading *reading, const struct rule_override *override, struct buf *out)
{
    const struct rule *rule = rule_of(reading, override);
    buf_add(out, SV(",\"by\":["));
    for (size_t i = 0; rule && i < rule->kind->by_count && i < override->value_count; i++) {
        CLEANUP(buf_done) struct buf name;
        buf_init(&name, RULE_BY_TEXT_MAX);
        rule_by_text(&rule->kind->by[i], &name);
        buf_add(out, i ? SV(",{\"name\":") : SV("{\"name\":"));
        buf_json(out, buf_sv(&name));
        add_field(out, "value", override->values[i]);
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

void source_override_json(const struct source_reading *reading, const struct source_row *row, struct buf *out)
{
    buf_add(out, SV("{\"rule\":"));
    buf_json(out, row->rule);
    add_field(out, "subject", row->key);
    add_by(reading, row->override, out);
    add_field(out, "state", weir_str(source_override_state(reading, row, clock_now_us())));
    add_field(out, "table", row->table);
    buf_printf(out, ",\"version\":\"%016" PRIx64 "\"", row->version);
    add_update(row, out);
    buf_add(out, SV(",\"override\":"));
    source_json_add(row->text, out);
    add_problems(reading, row, out);
    buf_char(out, '}');
}

void source_row_json(const struct source_reading *reading, const struct source_row *row, struct buf *out)
{
    const struct rule *rule = row->parsed;
    buf_add(out, SV("{\"id\":"));
    buf_json(out, row->rule);
    add_field(out, "state", weir_str(source_row_state(row, clock_now_us())));
    if (rule)
        add_summary_json(rule, out);
    add_field(out, "table", row->table);
    add_field(out, "row", row->key);
    buf_printf(out, ",\"version\":\"%016" PRIx64 "\",\"enabled\":%s", row->version, row->enabled ? "true" : "false");
    add_update(row, out);
    buf_add(out, SV(",\"rule\":"));
    source_json_add(row->text, out);
    add_problems(reading, row, out);
    buf_char(out, '}');
}
