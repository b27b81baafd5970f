/* Settings, and whole texts of rules, settings and overrides: changes of many rows at once. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "source/backend.h"

static int put_setting(struct plan *plan, sv name, sv value)
{
    const struct stored_row *old = snapshot_find(plan->snapshot, TABLE_SETTINGS, name);
    struct stored_row row = { .table = TABLE_SETTINGS, .key = name, .text = value, .enabled = true };
    if (sv_eq(value, SV("null")))
        return old ? plan_add(plan, "remove", old, NULL) : 0;
    if (old && old->fault.len == 0 && json_is_same(old->text, value))
        return 0;
    return plan_put(plan, old ? "change" : "add", old, row);
}

struct import {
    sv text;
    bool replace, settings_only;
    struct buf *out;
};

static enum row_table table_of(const struct rule_row *row)
{
    return row->kind == ROW_SETTING ? TABLE_SETTINGS : row->kind == ROW_OVERRIDE ? TABLE_OVERRIDES : TABLE_RULES;
}

static int remove_others(struct plan *plan, const struct rule_row *rows, size_t count)
{
    CLEANUP(snapshot_done) struct snapshot named = { .ordered = true };
    size_t cap = 0;
    for (size_t i = 0; i < count; i++) {
        struct stored_row *row = snapshot_add(&named, &cap);
        if (!row)
            return no_memory(plan->error);
        *row = (struct stored_row){ .table = table_of(&rows[i]), .key = rows[i].id };
        if (row->table == TABLE_OVERRIDES)
            row->rule = rows[i].id, row->key = rows[i].subject;
    }
    int r = snapshot_index(&named, plan->error);
    for (size_t i = 0; i < plan->snapshot->count && r == 0; i++) {
        const struct stored_row *row = &plan->snapshot->rows[i];
        bool setting = row->table == TABLE_SETTINGS;
        if (row->table == TABLE_CALLS && row->rule.len == 0)
            continue; /* it has no key to be removed by */
        if (row->table == TABLE_OVERRIDES
                ? !snapshot_override(&named, row->rule, row->key)
                : !snapshot_find(&named, setting ? TABLE_SETTINGS : TABLE_RULES, setting ? row->key : row->rule))
            r = plan_add(plan, "remove", row, NULL);
    }
    return r;
}

/* Reports errors in rules and settings; overrides_import() handles overrides. */
static int check_rows(struct plan *plan, const struct rule_row *rows, size_t count)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP_FREE struct rule_row *some = cleanup_calloc(count + 1, sizeof *some);
    size_t some_count = 0;
    for (size_t i = 0; some && i < count; i++)
        if (rows[i].kind != ROW_OVERRIDE)
            some[some_count++] = rows[i];
    CLEANUP(rules_freep) struct rules *rules = some ? rules_read_rows(some, some_count, &report) : NULL;
    return rules ? refuse_report(plan, &report) : no_memory(plan->error);
}

static void count_changes(const struct plan *plan, struct buf *out)
{
    size_t added = 0, changed = 0, removed = 0;
    for (size_t i = 0; i < plan->count; i++) {
        added += !plan->changes[i].before;
        removed += !plan->changes[i].after;
        changed += plan->changes[i].before && plan->changes[i].after;
    }
    buf_printf(out, "%zu added, %zu changed, %zu removed\n", added, changed, removed);
}

static int make_import(struct plan *plan, void *data)
{
    struct import *import = data;
    struct rule_row *rows;
    size_t count;
    int r = rules_split(import->text, plan->arena, &rows, &count, plan->error);
    if (r == 0)
        r = check_rows(plan, rows, count);
    for (size_t i = 0; i < count && r == 0; i++) {
        if (rows[i].kind == ROW_SETTING)
            r = put_setting(plan, rows[i].id, rows[i].text);
        else if (import->settings_only)
            r = err_set(plan->error, WEIR_E_INVALID, "only settings are allowed here, not rules");
        else if (rows[i].kind == ROW_RULE)
            r = plan_put_rule(plan, rows[i].id, rows[i].text, true);
    }
    if (r == 0)
        r = overrides_import(plan, rows, count);
    if (r == 0 && import->replace)
        r = remove_others(plan, rows, count);
    if (r == 0 && import->out)
        count_changes(plan, import->out);
    return r;
}

int source_import(struct source *source, sv text, bool replace, struct source_author author, struct buf *out,
                  struct weir_error *error)
{
    struct import import = { .text = text, .replace = replace };
    CLEANUP(buf_done) struct buf said;
    buf_init(&said, 1000);
    import.out = &said;
    int r = source_change(source, make_import, &import, author, error);
    if (r == 0 && out)
        buf_add(out, buf_sv(&said));
    return r;
}

int source_put_settings(struct source *source, sv settings, struct source_author author, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    buf_add(&text, SV("{\"settings\":"));
    int r = rules_json(settings, &text, error);
    buf_char(&text, '}');
    struct import import = { .text = buf_sv(&text), .settings_only = true };
    if (r < 0)
        return r;
    return text.failed ? no_memory(error) : source_change(source, make_import, &import, author, error);
}
