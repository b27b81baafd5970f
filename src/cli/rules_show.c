/* weir rules show, export: rules in the form that a rules file has. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/program.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

enum { COMMENT_MAX = 1000 };

static void add_comment(struct buf *out, sv text)
{
    if (text.len > 0 && text.ptr[text.len - 1] == '\n')
        text.len--;
    buf_add(out, SV("# "));
    plain_add(out, text, COMMENT_MAX);
    buf_char(out, '\n');
}

/* One rule as a rules file. */
static void add_rule(const struct rule *rule, struct buf *out)
{
    struct rule *list[] = { (struct rule *)rule };
    struct rules one = { .settings = { .ipv6_prefix = 64 }, .rules = list, .rule_count = 1 };
    rules_write(&one, out);
}

/* Comments: its row, who changed it last, and its problems. */
static void add_origin(const struct source_reading *reading, const struct source_row *row, struct buf *out)
{
    CLEANUP(buf_done) struct buf line;
    buf_init(&line, RULES_OUTPUT_MAX);
    buf_printf(&line, "%.*s: row %.*s%s", SV_FMT(row->table), SV_FMT(row->key), row->enabled ? "" : ", disabled");
    add_comment(out, buf_sv(&line));
    buf_clear(&line);
    if (row->updated_at.len + row->updated_by.len > 0) {
        buf_add(&line, SV("changed "));
        rules_add_time(row->updated_at, &line);
        buf_printf(&line, " by %.*s%s%.*s", SV_FMT(row->updated_by), row->note.len ? ": " : "", SV_FMT(row->note));
        add_comment(out, buf_sv(&line));
    }
    for (size_t i = 0; i < reading->problem_count; i++) {
        if (!source_problem_is_of(&reading->problems[i], row))
            continue;
        buf_clear(&line);
        buf_printf(&line, "bad: %.*s", SV_FMT(reading->problems[i].text));
        add_comment(out, buf_sv(&line));
    }
}

/* Returns whether the row is good. */
static bool show_row(const struct source_reading *reading, const struct source_row *row, bool json, struct buf *out)
{
    const struct rule *rule = row->parsed;
    if (json) {
        source_row_json(reading, row, out);
        buf_char(out, '\n');
    } else {
        add_origin(reading, row, out);
        if (rule)
            add_rule(rule, out);
        else
            add_comment(out, row->text);
    }
    return rule != NULL;
}

int rules_show(struct rules_call *call)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    sv id = weir_str(call->words[0]);
    int status = rules_read_source(call, &reading);
    if (status >= 0)
        return status;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, RULES_OUTPUT_MAX);
    char room[PROGRAM_WORD_BYTES];
    bool found = false, good = true;
    for (size_t i = 0; i < reading.row_count; i++) {
        const struct source_row *row = &reading.rows[i];
        if (row->setting || !sv_eq(row->rule, id))
            continue;
        good = show_row(&reading, row, call->options->json, &out) && good;
        found = true;
    }
    if (!found)
        cli_error("there is no rule '%s' in %s; `%s rules list --from %s` lists them", call->words[0],
                  source_name(call->source), program_command(), program_word(source_name(call->source), room));
    return cli_print(&out, found && good ? RULES_DONE : RULES_NOTHING);
}

/* ---- export ---- */

/* The id may be in the row instead of the document, and whether the rule is enabled always is. */
static json_t *rule_json(const struct source_row *row)
{
    json_t *value = source_json_load(row->text);
    if (json_is_object(value) && !json_object_get(value, "id"))
        json_object_set_new(value, "id", json_stringn(row->rule.ptr, row->rule.len));
    if (json_is_object(value) && !row->enabled && row->parsed->kind->disabled)
        json_object_set_new(value, "enabled", json_false());
    return value;
}

/* Those of a file are read by themselves. */
static int export_overrides(struct source *source, const struct source_reading *reading, json_t *to,
                            struct weir_error *error)
{
    static const struct source_overrides all = { .most = UINT_MAX };
    CLEANUP(source_reading_done) struct source_reading of_file = { 0 };
    bool file = source_is_file(source) && reading->rules->override_count > 0;
    int r = file ? source_read_overrides(source, &all, &of_file, error) : 0;
    const struct source_reading *from = file ? &of_file : reading;
    for (size_t i = 0; i < from->override_count && r == 0; i++)
        if (from->overrides[i].override)
            json_array_append_new(to, source_override_document(from, &from->overrides[i]));
    return r;
}

static int export_json(struct source *source, const struct source_reading *reading, struct buf *out,
                       struct weir_error *error)
{
    json_t *rules = json_array(), *settings = json_object();
    json_auto_t *overrides = json_array();
    for (size_t i = 0; i < reading->row_count; i++) {
        const struct source_row *row = &reading->rows[i];
        if (!row->setting && row->parsed)
            json_array_append_new(rules, rule_json(row));
        else if (row->setting)
            json_object_setn_new_nocheck(settings, row->key.ptr, row->key.len, source_json_load(row->text));
    }
    json_auto_t *all = json_pack("{s:o, s:o}", "settings", settings, "rules", rules);
    int r = export_overrides(source, reading, overrides, error);
    if (r == 0 && json_array_size(overrides) > 0)
        json_object_set(all, "overrides", overrides);
    CLEANUP_FREE char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    if (text)
        buf_add(out, weir_str(text));
    buf_char(out, '\n');
    out->failed = out->failed || !text;
    return r;
}

int rules_export(struct rules_call *call)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int status = rules_read_source(call, &reading);
    if (status >= 0)
        return status;
    CLEANUP(buf_done) struct buf out, problems;
    buf_init(&out, RULES_OUTPUT_MAX);
    buf_init(&problems, RULES_OUTPUT_MAX);
    struct weir_error error = { 0 };
    if (call->options->json && export_json(call->source, &reading, &out, &error) < 0)
        return cli_fail(&error);
    if (!call->options->json)
        rules_write(reading.rules, &out);
    for (size_t i = 0; i < reading.problem_count; i++) {
        buf_clear(&problems);
        buf_add(&problems, SV("left out: "));
        source_problem_print(&reading.problems[i], &problems);
        plain_say(buf_sv(&problems));
    }
    if (reading.unlisted)
        cli_error("and %zu more problems", reading.unlisted);
    return cli_print(&out, reading.problem_count ? RULES_NOTHING : RULES_DONE);
}
