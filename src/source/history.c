/* WEIR_HISTORY: every change that was made through here, so that it can be looked up and undone.
 *
 * A row's contents are kept as JSON: {"enabled":true,"rule":…}, {"value":…}, {"subject":"…","override":…} or the columns of
 * a call. A document is kept byte for byte after a beginning that we know, so that undoing restores it exactly; one that is
 * not JSON is kept as {"text":"…"}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/instant.h"
#include "base/utf8.h"
#include "source/backend.h"

enum { STATEMENT_MAX = 8192, UNDONE_MAX = 10000, ROW_KEY_MAX = 200 };

/* ---- a row as JSON ---- */

static const char *const call_names[CALL_COLUMNS] = { "NORMALIZED_CALL", "MAX_LOCKS", "LOCK_TIMEOUT_SECONDS",
                                                      "THROTTLE_EXPIRATION" };

static bool integer_text(sv text)
{
    sv digits = sv_starts(text, SV("-")) ? sv_from(text, 1) : text;
    for (size_t i = 0; i < digits.len; i++)
        if (!ascii_digit(digits.ptr[i]))
            return false;
    return digits.len > 0 && digits.len < 19 && (digits.len == 1 || digits.ptr[0] != '0');
}

static void add_column(struct buf *out, const char *name, const struct sql_value *value)
{
    buf_printf(out, "%s\"%s\":", out->len ? "," : "{", name);
    if (value->null)
        buf_add(out, SV("null"));
    else if (integer_text(value->text))
        buf_add(out, value->text);
    else
        buf_json(out, value->text);
}

/* Writes the beginning that comes before the document, or (`odd`) before the text of one that is not JSON. */
static void row_beginning(const struct stored_row *row, bool odd, struct buf *out)
{
    if (row->table == TABLE_OVERRIDES) {
        buf_add(out, SV("{\"subject\":"));
        buf_json(out, row->key);
        buf_add(out, odd ? SV(",\"text\":") : SV(",\"override\":"));
    } else if (row->table == TABLE_SETTINGS && !odd) {
        buf_add(out, SV("{\"value\":"));
    } else {
        buf_printf(out, "{\"enabled\":%s,\"%s\":", row->enabled ? "true" : "false", odd ? "text" : "rule");
    }
}

static void row_json(const struct stored_row *row, struct buf *out)
{
    if (row->table == TABLE_CALLS) {
        for (int i = 0; i < CALL_COLUMNS; i++)
            add_column(out, call_names[i], &row->call[i]);
    } else if (json_is_valid(row->text)) {
        row_beginning(row, false, out);
        buf_add(out, row->text);
    } else {
        row_beginning(row, true, out);
        buf_json(out, row->text);
    }
    buf_char(out, '}');
}

/* The column is shorter than a subject may be; the whole subject is in the row's JSON. */
static sv row_key(sv whole, char room[ROW_KEY_MAX + 1])
{
    static const struct hash_key key = { 0 };
    if (whole.len <= ROW_KEY_MAX)
        return whole;
    struct hash hash;
    hash_init(&hash, &key);
    hash_text(&hash, whole.ptr, whole.len);
    sv start = utf8_cut(whole, ROW_KEY_MAX - 20);
    int n = snprintf(room, ROW_KEY_MAX + 1, "%.*s… %016llx", SV_FMT(start), (unsigned long long)hash_final(&hash));
    return sv_of(room, (size_t)n);
}

/* ---- and back ---- */

static struct sql_value column_value(struct arena *arena, const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    if (json_is_integer(value))
        return (struct sql_value){ .text = arena_copy(arena, weir_str(number)) };
    if (json_is_string(value))
        return (struct sql_value){ .text = arena_copy(arena, sv_of(json_string_value(value), json_string_length(value))) };
    return (struct sql_value){ .text = SV(""), .null = true };
}

/* Returns the document after the beginning; if the beginning is another one, the document as it would be written now. */
static sv document_of(struct arena *arena, const struct stored_row *row, sv text, const json_t *json)
{
    static const char *const names[TABLES] = {
        [TABLE_RULES] = "rule", [TABLE_SETTINGS] = "value", [TABLE_OVERRIDES] = "override"
    };
    CLEANUP(buf_done) struct buf beginning;
    buf_init(&beginning, 6 * (size_t)SQL_VALUE_MAX);
    row_beginning(row, false, &beginning);
    const json_t *other = json_object_get(json, "text");
    const json_t *document = json_object_get(json, names[row->table]);
    if (sv_starts(text, buf_sv(&beginning)) && document)
        return arena_copy(arena, sv_of(text.ptr + beginning.len, text.len - beginning.len - 1));
    if (json_is_string(other))
        return arena_copy(arena, sv_of(json_string_value(other), json_string_length(other)));
    CLEANUP_FREE char *written = json_dumps(document, JSON_ENCODE_ANY);
    return arena_copy(arena, weir_str(written ? written : ""));
}

static int row_from_json(struct arena *arena, sv text, struct stored_row *row, struct weir_error *error)
{
    json_auto_t *json = json_loadb(text.ptr, text.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(json))
        return err_set(error, WEIR_E_RULES, "WEIR_HISTORY: the entry of %.*s is not JSON", SV_FMT(row->key));
    row->enabled = !json_is_false(json_object_get(json, "enabled"));
    if (row->table == TABLE_CALLS) {
        for (int i = 0; i < CALL_COLUMNS; i++)
            row->call[i] = column_value(arena, json, call_names[i]);
        return call_read(row, arena, error);
    }
    if (row->table == TABLE_OVERRIDES)
        row->key = column_value(arena, json, "subject").text;
    row->text = document_of(arena, row, text, json);
    return row->text.ptr && row->key.ptr ? 0 : no_memory(error);
}

/* ---- adding ---- */

static sv shown_row(const struct stored_row *row, struct buf *out)
{
    buf_clear(out);
    if (row)
        row_json(row, out);
    return buf_sv(out);
}

static int add_event(struct source *source, const struct buf *statement, const struct change *change, const char *now,
                     struct source_author author, struct weir_error *error)
{
    const struct stored_row *row = change->after ? change->after : change->before;
    char room[ROW_KEY_MAX + 1];
    CLEANUP(buf_done) struct buf before, after;
    buf_init(&before, 6 * (size_t)SQL_VALUE_MAX + 100);
    buf_init(&after, 6 * (size_t)SQL_VALUE_MAX + 100);
    struct sql_value values[] = {
        { .text = weir_str(now) },
        { .text = author.who },
        { .text = author.note },
        { .text = weir_str(change->what) },
        { .text = weir_str(table_names[row->table]) },
        { .text = row_key(row->key, room) },
        { .text = row->rule },
        { .text = shown_row(change->before, &before), .null = !change->before },
        { .text = shown_row(change->after, &after), .null = !change->after },
    };
    if (before.failed || after.failed)
        return no_memory(error);
    return source_run(source, statement, values, 9, NULL, NULL, NULL, error);
}

int history_add(struct source *source, const struct plan *plan, struct source_author author, struct weir_error *error)
{
    char now[INSTANT_TEXT_MAX];
    CLEANUP(buf_done) struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    int r = table_check(source, TABLE_HISTORY, false, error);
    if (r < 0)
        return r;
    instant_text(clock_now_us(), now);
    table_insert(source, TABLE_HISTORY, true, &statement);
    for (size_t i = 0; i < plan->count && r == 0; i++)
        r = add_event(source, &statement, &plan->changes[i], now, author, error);
    return r;
}

static int record(struct source *source, const struct source_act *act, struct source_author author,
                  struct weir_error *error)
{
    char now[INSTANT_TEXT_MAX], room[ROW_KEY_MAX + 1];
    CLEANUP(buf_done) struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    int r = sql_table(source->sql, table_names[TABLE_HISTORY], &source->tables[TABLE_HISTORY], error);
    if (r == 0)
        r = table_check(source, TABLE_HISTORY, false, error);
    if (r < 0)
        return r;
    instant_text(clock_now_us(), now);
    table_insert(source, TABLE_HISTORY, true, &statement);
    struct sql_value values[] = {
        { .text = weir_str(now) },       { .text = author.who },
        { .text = author.note },         { .text = weir_str(act->what) },
        { .text = SV(SOURCE_SUBJECTS) }, { .text = row_key(act->subject, room) },
        { .text = act->rule },           { .null = true },
        { .text = act->details },
    };
    return source_run(source, &statement, values, 9, NULL, NULL, NULL, error);
}

int source_record(struct source *source, const struct source_act *act, struct source_author author,
                  struct weir_error *error)
{
    if (in_files(source))
        return 0;
    int r = source_check_author(author, error);
    if (r == 0)
        r = source_connect(source, error);
    if (r == 0)
        r = sql_begin(source->sql, SQL_CHANGE, error);
    if (r < 0)
        return r;
    r = record(source, act, author, error);
    if (r == 0)
        return sql_commit(source->sql, error);
    sql_rollback(source->sql);
    return r;
}

/* ---- looking up ---- */

bool source_event_is_change(const struct source_event *event)
{
    return !sv_eq(event->table, SV(SOURCE_SUBJECTS));
}

struct listing {
    source_event_row *row;
    void *data;
};

static int list_event(const struct sql_value *v, size_t count, void *data, struct weir_error *error)
{
    struct listing *l = data;
    uint64_t number;
    if (count < 10 || v[0].null || !sv_u64(v[0].text, INT64_MAX, &number))
        return err_set(error, WEIR_E_RULES, "WEIR_HISTORY: HISTORY_ID must be a number");
    struct source_event event = { .number = (int64_t)number,
                                  .at = v[1].text,
                                  .who = v[2].text,
                                  .note = v[3].text,
                                  .what = v[4].text,
                                  .table = v[5].text,
                                  .key = v[6].text,
                                  .rule = v[7].text,
                                  .before = v[8].null ? SV("") : v[8].text,
                                  .after = v[9].null ? SV("") : v[9].text };
    return l->row(&event, l->data, error);
}

static bool is_of_settings(sv id)
{
    return sv_eq(id, SOURCE_SETTINGS);
}

/* Which events are asked for. */
struct which {
    sv id;          /* of this rule, or SOURCE_SETTINGS; empty: of all */
    int64_t number; /* this one alone, whatever `id` is; 0: not one alone */
    int64_t before; /* only those with a lower number; 0: all */
    unsigned most;
};

/* The newest first. */
static int walk(struct source *source, const struct which *which, struct listing *l, struct weir_error *error)
{
    const struct sql_table *table = &source->tables[TABLE_HISTORY];
    CLEANUP(buf_done) struct buf statement;
    char number[32], before[32];
    struct sql_value params[2] = { 0 };
    size_t count = 0;
    buf_init(&statement, STATEMENT_MAX);
    int r = table_check(source, TABLE_HISTORY, false, error);
    if (r < 0)
        return r;
    table_select(source, TABLE_HISTORY, true, &statement);
    snprintf(number, sizeof number, "%lld", (long long)which->number);
    snprintf(before, sizeof before, "%lld", (long long)which->before);
    bool settings = is_of_settings(which->id);
    if (which->number || which->id.len) {
        const char *column = which->number ? "history_id" : settings ? "table_name" : "rule_id";
        buf_printf(&statement, " WHERE %s = ?", sql_column(table, column));
        params[count++].text = which->number ? weir_str(number)
                               : settings    ? weir_str(table_names[TABLE_SETTINGS])
                                             : which->id;
    }
    if (which->before) {
        buf_printf(&statement, " %s %s < ?", count ? "AND" : "WHERE", sql_column(table, "history_id"));
        params[count++].text = weir_str(before);
    }
    buf_printf(&statement, " ORDER BY %s DESC LIMIT %u", sql_column(table, "history_id"), which->most);
    return source_run(source, &statement, params, count, list_event, l, NULL, error);
}

struct last_rule {
    struct arena *arena;
    struct stored_row *row;
    bool found;
};

/* The entries of a rule are about its overrides, too. */
static int take_last(const struct source_event *event, void *data, struct weir_error *error)
{
    struct last_rule *last = data;
    enum row_table table = sv_eq(event->table, weir_str(table_names[TABLE_CALLS])) ? TABLE_CALLS : TABLE_RULES;
    struct stored_row row = { .table = table };
    if (!sv_eq(event->table, weir_str(table_names[table])))
        return 0;
    row.key = arena_copy(last->arena, event->key);
    row.rule = arena_copy(last->arena, event->rule);
    int r = row.key.ptr && row.rule.ptr ? 0 : no_memory(error);
    if (r == 0)
        r = row_from_json(last->arena, event->after.len > 0 ? event->after : event->before, &row, error);
    last->found = r == 0;
    if (r == 0)
        *last->row = row;
    return r < 0 ? r : -1;
}

int history_last_rule(struct source *source, sv id, struct arena *arena, struct stored_row *ret, struct weir_error *error)
{
    struct last_rule last = { arena, ret, false };
    struct listing l = { .row = take_last, .data = &last };
    struct which which = { .id = id, .most = UNDONE_MAX };
    int r = source->tables[TABLE_HISTORY].there ? walk(source, &which, &l, error) : 0;
    return last.found ? 0 : r;
}

int history_call_keys(struct source *source, sql_row *row, void *data, struct weir_error *error)
{
    const struct sql_table *table = &source->tables[TABLE_HISTORY];
    struct sql_value params[] = { { .text = weir_str(table_names[TABLE_CALLS]) },
                                  { .text = weir_str(table_names[TABLE_RULES]) },
                                  { .text = SV(CALL_ID_PREFIX "%") } };
    CLEANUP(buf_done) struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    int r = table->there ? table_check(source, TABLE_HISTORY, false, error) : 0;
    if (r < 0 || !table->there)
        return r;
    const char *key = sql_column(table, "row_key"), *name = sql_column(table, "table_name");
    buf_printf(&statement, "SELECT DISTINCT %s FROM %s WHERE %s = ? OR (%s = ? AND %s LIKE ?)", key, table->name, name,
               name, key);
    return source_run(source, &statement, params, 3, row, data, NULL, error);
}

static int file_has_none(const struct source *source, struct weir_error *error)
{
    return err_set(error, WEIR_E_INVALID, "%s: a file has no history; keep it under version control",
                   source->address.shown);
}

int source_history(struct source *source, sv id, int64_t before, unsigned most, source_event_row *row, void *data,
                   struct weir_error *error)
{
    struct listing l = { .row = row, .data = data };
    struct which which = { .id = id, .before = before, .most = most };
    if (in_files(source))
        return file_has_none(source, error);
    int r = source_connect(source, error);
    if (r == 0)
        r = sql_begin(source->sql, SQL_READ, error);
    if (r < 0)
        return r;
    r = sql_table(source->sql, table_names[TABLE_HISTORY], &source->tables[TABLE_HISTORY], error);
    if (r == 0)
        r = walk(source, &which, &l, error);
    sql_rollback(source->sql);
    return r;
}

/* ---- undoing ---- */

struct undo {
    sv id;
    int64_t number;
    struct arena *arena;
    int64_t *undone; /* numbers of events that later ones have undone */
    size_t undone_count;
    bool found;
    struct source_event event; /* copied */
    struct source_undone done;
};

static bool keep_event(struct undo *u, const struct source_event *event)
{
    u->event = *event;
    sv *texts[] = { &u->event.what, &u->event.table, &u->event.key, &u->event.rule, &u->event.before, &u->event.after };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i] = arena_copy(u->arena, *texts[i]);
        if (!texts[i]->ptr)
            return false;
    }
    u->found = true;
    return true;
}

/* An event that is undone has no effect, not even that of undoing another. */
static int look_at_event(const struct source_event *event, void *data, struct weir_error *error)
{
    struct undo *u = data;
    uint64_t number;
    if (u->number == 0 && !source_event_is_change(event))
        return 0;
    for (size_t i = 0; u->number == 0 && i < u->undone_count; i++)
        if (u->undone[i] == event->number)
            return 0;
    if (u->number != 0 || !sv_starts(event->what, SV("undo ")))
        return keep_event(u, event) ? -1 : no_memory(error);
    if (!u->undone)
        u->undone = ARENA_ARRAY(u->arena, int64_t, UNDONE_MAX);
    if (!u->undone)
        return no_memory(error);
    if (u->undone_count == UNDONE_MAX)
        return err_set(error, WEIR_E_INVALID, "the last %d changes are all undone; give the number of a change",
                       UNDONE_MAX);
    if (sv_u64(sv_from(event->what, 5), INT64_MAX, &number))
        u->undone[u->undone_count++] = (int64_t)number;
    return 0;
}

static bool same_value(const struct sql_value *a, const struct sql_value *b)
{
    return a->null == b->null && (a->null || sv_eq(a->text, b->text));
}

static bool same_row(const struct stored_row *a, const struct stored_row *b)
{
    if (!a || !b)
        return !a && !b;
    for (int i = 0; i < CALL_COLUMNS; i++)
        if (!same_value(&a->call[i], &b->call[i]))
            return false;
    return a->table == TABLE_CALLS || (a->enabled == b->enabled && json_is_same(a->text, b->text));
}

/* Reads a row as the history has it. *ret is NULL if the row did not exist. */
static int row_then(struct plan *plan, const struct source_event *event, sv text, struct stored_row **ret)
{
    enum row_table table = TABLE_RULES;
    *ret = NULL;
    while (table < TABLE_HISTORY && !sv_eq(event->table, weir_str(table_names[table])))
        table++;
    if (table == TABLE_HISTORY)
        return err_set(plan->error, WEIR_E_RULES, "WEIR_HISTORY: there is no table %.*s", SV_FMT(event->table));
    if (text.len == 0)
        return 0;
    struct stored_row *row = ARENA_NEW(plan->arena, struct stored_row);
    if (!row)
        return no_memory(plan->error);
    *row = (struct stored_row){ .table = table, .key = event->key, .rule = event->rule };
    *ret = row;
    return row_from_json(plan->arena, text, row, plan->error);
}

static const char *difference(const struct stored_row *now, const struct stored_row *then)
{
    if (!now || !then)
        return then ? "add" : "remove";
    if (now->enabled != then->enabled && sv_eq(now->text, then->text))
        return then->enabled ? "enable" : "disable";
    return "change";
}

static int not_its_change(const struct undo *u, struct weir_error *error)
{
    if (is_of_settings(u->id))
        return err_set(error, WEIR_E_INVALID, "change %lld does not belong to the settings", (long long)u->event.number);
    return err_set(error, WEIR_E_INVALID, "change %lld does not belong to rule %.*s", (long long)u->event.number,
                   SV_FMT(utf8_cut(u->id, WEIR_ID_MAX)));
}

/* The texts outlive the plan. `row`: NULL if neither version of it is known. */
static bool keep_undone(struct undo *u, const struct stored_row *row, const char *what)
{
    struct source_undone *done = &u->done;
    *done = (struct source_undone){ .number = u->event.number, .what = what };
    done->change = arena_copy(&done->arena, u->event.what);
    done->table = arena_copy(&done->arena, u->event.table);
    done->row = arena_copy(&done->arena, row ? row->key : u->event.key);
    done->rule = arena_copy(&done->arena, u->event.rule);
    return done->change.ptr && done->table.ptr && done->row.ptr && done->rule.ptr;
}

static int make_undo(struct plan *plan, void *data)
{
    struct undo *u = data;
    struct listing l = { .row = look_at_event, .data = u };
    struct which which = { .id = u->id, .number = u->number, .most = UNDONE_MAX };
    u->arena = plan->arena;
    int r = walk(plan->source, &which, &l, plan->error);
    if (!u->found && r == 0)
        return err_set(plan->error, WEIR_E_INVALID, "there is no such change to undo");
    if (!u->found)
        return r;
    const struct source_event *event = &u->event;
    bool of_it =
        is_of_settings(u->id) ? sv_eq(event->table, weir_str(table_names[TABLE_SETTINGS])) : sv_eq(u->id, event->rule);
    if (u->id.len > 0 && !of_it)
        return not_its_change(u, plan->error);
    if (!source_event_is_change(event))
        return err_set(plan->error, WEIR_E_INVALID,
                       "change %lld (%.*s) cannot be undone: it changed what a subject has used, and no rule",
                       (long long)event->number, SV_FMT(utf8_cut(event->what, 40)));
    struct stored_row *then = NULL, *later = NULL;
    r = row_then(plan, event, event->before, &then);
    if (r == 0)
        r = row_then(plan, event, event->after, &later);
    if (r < 0)
        return r;
    const struct stored_row *either = then ? then : later, *now = NULL;
    if (either && either->table == TABLE_OVERRIDES)
        now = snapshot_override(plan->snapshot, either->rule, either->key);
    else if (either)
        now = snapshot_find(plan->snapshot, either->table, either->key);
    if (!same_row(now, later))
        return err_set(
            plan->error, WEIR_E_INVALID,
            "change %lld of %.*s cannot be undone, because the row was changed after it; undo the later changes first",
            (long long)event->number, SV_FMT(event->rule.len ? event->rule : event->key));
    char what[32];
    int n = snprintf(what, sizeof what, "undo %lld", (long long)event->number);
    sv copy = plan_copy(plan, sv_of(what, (size_t)n));
    bool kept = keep_undone(u, either, difference(now, then));
    r = copy.ptr && kept ? plan_add(plan, copy.ptr, now, then) : no_memory(plan->error);
    /* A bad row that was removed or switched off may come back, and is as bad as it was. */
    if (r == 0 && then && (!later || (later->text.len > 0 && sv_eq(then->text, later->text)))) {
        plan->changes[plan->count - 1].may_be_bad = !plan_is_good(plan, then);
    }
    return r;
}

int source_undo(struct source *source, sv id, int64_t number, struct source_author author, struct source_undone *ret,
                struct weir_error *error)
{
    struct undo u = { .id = id, .number = number };
    if (in_files(source))
        return file_has_none(source, error);
    if (number < 0)
        return err_set(error, WEIR_E_INVALID, "changes are numbered from 1");
    int r = source_change(source, make_undo, &u, author, error);
    if (r == 0 && ret)
        *ret = u.done;
    else
        source_undone_done(&u.done);
    return r;
}

void source_undone_done(struct source_undone *undone)
{
    if (!undone)
        return;
    arena_done(&undone->arena);
    *undone = (struct source_undone){ 0 };
}
