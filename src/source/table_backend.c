/* Rules in tables. What is read is read in one transaction, and what is changed is changed in one, history included. */
#include "source/backend.h"

#include "base/err.h"
#include "base/instant.h"

enum { STATEMENT_MAX = 8192 };

/* ---- connecting, and looking at the tables ---- */

int store_connect(struct source *source, struct weir_error *error)
{
    if (source->sql && sql_lost(source->sql)) {
        sql_close(source->sql);
        source->sql = NULL;
    }
    if (source->sql)
        return 0;
    source->listening = false;
    return sql_open(&source->sql, &source->address, error);
}

int store_missing(const struct source *source, enum row_table table, struct weir_error *error)
{
    return err_set(error, WEIR_E_RULES, "%s: there is no table %s; `weir rules init` makes it, or: %s;",
                   source->address.shown, table_names[table], table_create(table, source->address.kind));
}

/* One that is not there may be out of sight; one that was there holds rules that nobody has removed. */
static int check_absent(struct source *source, enum row_table table, struct weir_error *error)
{
    if (source->known[table])
        return err_set(error, WEIR_E_RULES, "%s: the table %s is gone; `weir rules init` makes it anew, or: %s;",
                       source->address.shown, table_names[table], table_create(table, source->address.kind));
    return sql_table_denied(source->sql, table_names[table], error);
}

int store_tables(struct source *source, struct weir_error *error)
{
    for (int i = 0; i < TABLES; i++) {
        int r = sql_table(source->sql, table_names[i], &source->tables[i], error);
        if (r == 0 && source->tables[i].there)
            r = table_check_to_read(source, (enum row_table)i, error);
        else if (r == 0 && i < TABLE_HISTORY)
            r = check_absent(source, (enum row_table)i, error);
        if (r < 0)
            return r;
    }
    if (source->tables[TABLE_RULES].there || source->tables[TABLE_CALLS].there)
        return 0;
    return err_set(error, WEIR_E_RULES,
                   "%s: there is neither a table THROTTLED_CALLS nor a table WEIR_RULES; `weir rules init` makes both, or: "
                   "%s;",
                   source->address.shown, table_create(TABLE_CALLS, source->address.kind));
}

static int version_now(struct source *source, struct buf *out, struct weir_error *error)
{
    struct sql_table there[TABLE_HISTORY];
    size_t count = 0;
    for (int i = 0; i < TABLE_HISTORY; i++)
        if (source->tables[i].there)
            there[count++] = source->tables[i];
    return sql_version(source->sql, there, count, out, error);
}

/* ---- reading ---- */

struct loader {
    struct source *source;
    struct snapshot *snapshot;
    size_t cap;
    size_t bytes;
    enum row_table table;
};

static bool enabled_of(sv text, bool *ret)
{
    static const char *const yes[] = { "1", "true", "t" }, *const no[] = { "0", "false", "f" };
    for (size_t i = 0; i < 3; i++) {
        if (sv_eq_nocase(text, weir_str(yes[i])) || sv_eq_nocase(text, weir_str(no[i]))) {
            *ret = sv_eq_nocase(text, weir_str(yes[i]));
            return true;
        }
    }
    return false;
}

static sv keep_value(struct loader *l, const struct sql_value *value, struct weir_error *error, int *r)
{
    sv kept = arena_copy(&l->snapshot->arena, value->null ? SV("") : value->text);
    l->bytes += value->text.len;
    if (!kept.ptr)
        *r = no_memory(error);
    else if (l->bytes > RULES_BYTES_MAX)
        *r = err_set(error, WEIR_E_RULES, "%s: more than %d MiB of rules", l->source->address.shown, RULES_BYTES_MAX >> 20);
    return kept;
}

static void load_document(struct stored *row, const struct sql_value *values)
{
    bool rule = row->table == TABLE_RULES;
    if (values[1].null)
        row->fault = rule ? SV("RULE: must be a rule as JSON, not NULL") : SV("VALUE: must be JSON, not NULL");
    else if (row->text.len > SQL_VALUE_MAX)
        row->fault = rule ? SV("RULE: longer than 4 MiB") : SV("VALUE: longer than 4 MiB");
    else if (rule && !enabled_of(sv_trim(values[2].text), &row->enabled)) {
        row->enabled = true;
        row->fault = SV("ENABLED: must be 0 or 1 (or true or false)");
    }
}

static int load_row(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    struct loader *l = data;
    struct stored *row = snapshot_add(l->snapshot, &l->cap);
    sv kept[6] = { 0 };
    int r = 0;
    if (!row)
        return no_memory(error);
    if (l->snapshot->count > RULES_MAX)
        r = err_set(error, WEIR_E_RULES, "%s: more than %d rows", l->source->address.shown, RULES_MAX);
    for (size_t i = 0; i < count && i < 6 && r == 0; i++)
        kept[i] = keep_value(l, &values[i], error, &r);
    if (r < 0)
        return r;
    row->table = l->table;
    row->key = kept[0];
    if (l->table == TABLE_CALLS) {
        row->call = (struct call_columns){ { kept[1], values[1].null },
                                           { kept[2], values[2].null },
                                           { kept[3], values[3].null },
                                           { kept[4], values[4].null } };
        return call_read(row, &l->snapshot->arena, error);
    }
    size_t next = l->table == TABLE_RULES ? 3 : 2;
    row->rule = l->table == TABLE_RULES ? row->key : SV("");
    row->text = kept[1];
    row->updated_at = kept[next];
    row->updated_by = kept[next + 1];
    row->note = kept[next + 2];
    load_document(row, values);
    return 0;
}

static int load_table(struct loader *l, struct weir_error *error)
{
    const struct sql_table *table = &l->source->tables[l->table];
    const char *const *columns = table_columns(l->table);
    struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    for (size_t i = 0; columns[i]; i++) {
        const char *name = sql_column(table, columns[i]);
        buf_printf(&statement, "%s %s", i ? "," : "SELECT", name ? name : "NULL");
    }
    buf_printf(&statement, " FROM %s", table->name);
    int r = statement.failed ? no_memory(error) : sql_run(l->source->sql, statement.ptr, NULL, 0, load_row, l, NULL, error);
    buf_done(&statement);
    return r;
}

static int load(struct source *source, struct snapshot *ret, struct weir_error *error)
{
    struct loader l = { .source = source, .snapshot = ret };
    ret->ordered = true;
    int r = store_tables(source, error);
    if (r == 0) {
        buf_clear(&source->version);
        r = version_now(source, &source->version, error);
    }
    for (int i = 0; i < TABLE_HISTORY && r == 0; i++) {
        l.table = (enum row_table)i;
        if (source->tables[i].there)
            r = load_table(&l, error);
    }
    for (int i = 0; i < TABLE_HISTORY && r == 0; i++)
        source->known[i] = source->tables[i].there;
    return r < 0 ? r : snapshot_index(ret, error);
}

static void store_end(struct source *source)
{
    if (source->sql)
        sql_rollback(source->sql);
}

static int store_begin(struct source *source, bool change, struct snapshot *ret, struct weir_error *error)
{
    struct snapshot snapshot = { 0 };
    int r = store_connect(source, error);
    if (r == 0)
        r = sql_begin(source->sql, change ? SQL_CHANGE : SQL_READ, error);
    if (r < 0)
        return r;
    r = load(source, &snapshot, error);
    if (r < 0) {
        store_end(source);
        snapshot_done(&snapshot);
    } else {
        *ret = snapshot;
    }
    return r;
}

static int store_read(struct source *source, const struct rules *last, struct source_reading *ret, struct weir_error *error)
{
    struct snapshot snapshot = { 0 };
    source->read_once = false;
    int r = store_begin(source, false, &snapshot, error);
    if (r < 0)
        return r;
    r = sql_commit(source->sql, error);
    if (r == 0)
        r = snapshot_read(&snapshot, last, false, ret, error);
    snapshot_done(&snapshot);
    if (r == 0) {
        source->read_once = true;
        source->changed = false;
    }
    return r;
}

/* A table that was not there may be by now; one that is gone makes the version fail. Then a reading says what is wrong. */
static int store_changed(struct source *source, bool *ret, struct weir_error *error)
{
    struct buf version;
    int r = store_connect(source, error);
    if (r < 0)
        return r;
    bool changed = source->changed || !source->read_once;
    for (int i = 0; i < TABLE_HISTORY && r == 0 && !changed; i++) {
        struct sql_table table;
        if (source->tables[i].there)
            continue;
        r = sql_table(source->sql, table_names[i], &table, error);
        changed = r == 0 && table.there;
    }
    buf_init(&version, 64 << 10);
    if (r == 0 && !changed) {
        r = version_now(source, &version, error);
        changed = r < 0 || !sv_eq(buf_sv(&version), buf_sv(&source->version));
        r = r < 0 && !sql_lost(source->sql) ? 0 : r;
    }
    buf_done(&version);
    if (r == 0)
        *ret = changed;
    return r;
}

static int store_wait(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error)
{
    int r = store_connect(source, error);
    if (r == 0 && !source->listening) {
        r = sql_listen(source->sql, error);
        source->listening = r == 0;
    }
    return r < 0 ? r : sql_wait(source->sql, timeout_ms, wake_fd, error);
}

/* ---- writing ---- */

static struct sql_value text_value(sv text)
{
    return (struct sql_value){ .text = text };
}

/* The values of a row's columns, the key last; returns how many. */
static size_t values_of(const struct stored *row, struct source_author author, const char *now, struct sql_value *values)
{
    size_t n = 0;
    if (row->table == TABLE_CALLS) {
        values[n++] = row->call.call;
        values[n++] = row->call.max;
        values[n++] = row->call.per;
        values[n++] = row->call.expires;
    } else {
        values[n++] = text_value(row->text);
        if (row->table == TABLE_RULES)
            values[n++] = text_value(row->enabled ? SV("1") : SV("0"));
        values[n++] = text_value(weir_str(now));
        values[n++] = text_value(author.who);
        values[n++] = text_value(author.note);
    }
    values[n++] = text_value(row->key);
    return n;
}

static void write_insert(const struct sql_table *table, const char *const *columns, struct buf *out)
{
    buf_printf(out, "INSERT INTO %s (", table->name);
    size_t count = 1;
    for (; columns[count]; count++)
        buf_printf(out, "%s, ", sql_column(table, columns[count]));
    buf_printf(out, "%s) VALUES (", sql_column(table, columns[0]));
    for (size_t i = 0; i < count; i++)
        buf_add(out, i ? SV(", ?") : SV("?"));
    buf_char(out, ')');
}

static void write_update(const struct sql_table *table, const char *const *columns, size_t first, struct buf *out)
{
    buf_printf(out, "UPDATE %s SET ", table->name);
    for (size_t i = first; columns[i]; i++)
        buf_printf(out, "%s%s = ?", i > first ? ", " : "", sql_column(table, columns[i]));
    buf_printf(out, " WHERE %s = ?", sql_column(table, columns[0]));
}

static int write_change(struct source *source, const struct change *change, struct source_author author, const char *now,
                        struct weir_error *error)
{
    const struct stored *row = change->after ? change->after : change->before;
    const struct sql_table *table = &source->tables[row->table];
    const char *const *columns = table_columns(row->table);
    struct sql_value values[8];
    size_t count = values_of(row, author, now, values);
    uint64_t changed = 0;
    /* A document that stays as it is is not written: it may be one that was too long to be read. */
    bool as_it_is =
        row->table == TABLE_RULES && change->before && change->after && change->before->text.ptr == change->after->text.ptr;
    struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    int r = table->there ? table_check(source, row->table, error) : store_missing(source, row->table, error);
    if (r < 0)
        return r;
    if (!change->before)
        write_insert(table, columns, &statement);
    else if (change->after)
        write_update(table, columns, 1 + as_it_is, &statement);
    else {
        buf_printf(&statement, "DELETE FROM %s WHERE %s = ?", table->name, sql_column(table, columns[0]));
        values[0] = values[count - 1];
        count = 1;
    }
    r = statement.failed
            ? no_memory(error)
            : sql_run(source->sql, statement.ptr, values + as_it_is, count - as_it_is, NULL, NULL, &changed, error);
    buf_done(&statement);
    if (r == 0 && changed == 0)
        r = err_set(error, WEIR_E_RULES, "%s: %s: row %.*s was changed by somebody else in this moment; please try again",
                    source->address.shown, table_names[row->table], SV_FMT(row->key));
    if (r == 0 && changed > 1)
        r = err_set(error, WEIR_E_RULES, "%s: %s: %llu rows have the key %.*s; nothing was changed", source->address.shown,
                    table_names[row->table], (unsigned long long)changed, SV_FMT(row->key));
    return r;
}

static int store_apply(struct source *source, const struct snapshot *after, const struct plan *plan,
                       struct source_author author, struct weir_error *error)
{
    (void)after;
    char now[INSTANT_TEXT_MAX];
    instant_text(clock_now_us(), now);
    int r = 0;
    /* What goes away first, so that it is in nobody's way. */
    for (int adding = 0; adding < 2; adding++)
        for (size_t i = 0; i < plan->count && r == 0; i++)
            if ((plan->changes[i].after != NULL) == adding)
                r = write_change(source, &plan->changes[i], author, now, error);
    if (r == 0)
        r = history_add(source, plan, author, error);
    return r < 0 ? r : sql_commit(source->sql, error);
}

/* ---- making the tables ---- */

static int make_tables(struct source *source, struct buf *out, struct weir_error *error)
{
    for (int i = 0; i < TABLES; i++) {
        const char *statement = table_create((enum row_table)i, source->address.kind);
        int r = sql_table(source->sql, table_names[i], &source->tables[i], error);
        if (r == 0 && source->tables[i].there) {
            buf_printf(out, "%s is there\n", table_names[i]);
            r = table_check(source, (enum row_table)i, error);
        } else if (r == 0) {
            r = sql_run(source->sql, statement, NULL, 0, NULL, NULL, NULL, error);
            if (r == 0)
                buf_printf(out, "%s made\n", table_names[i]);
        }
        if (r == 0)
            r = sql_table(source->sql, table_names[i], &source->tables[i], error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* PostgreSQL tells of changes at once, if triggers can be made; else they are seen at the next look. */
static void make_triggers(struct source *source, struct buf *out)
{
    static const char function[] = "CREATE OR REPLACE FUNCTION weir_rules_changed() RETURNS trigger LANGUAGE plpgsql AS "
                                   "'BEGIN NOTIFY weir_rules; RETURN NULL; END'";
    struct weir_error error;
    int r = sql_run(source->sql, function, NULL, 0, NULL, NULL, NULL, &error);
    for (int i = 0; i < TABLE_HISTORY && r == 0; i++) {
        struct buf statement;
        buf_init(&statement, STATEMENT_MAX);
        buf_printf(
            &statement,
            "CREATE OR REPLACE TRIGGER weir_rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH "
            "STATEMENT EXECUTE FUNCTION weir_rules_changed()",
            source->tables[i].name);
        r = statement.failed ? no_memory(&error) : sql_run(source->sql, statement.ptr, NULL, 0, NULL, NULL, NULL, &error);
        buf_done(&statement);
    }
    if (r < 0)
        buf_printf(out, "changes will be seen within the poll interval, not at once, since no trigger could be made: %s\n",
                   error.text);
}

static int store_init(struct source *source, struct buf *out, struct weir_error *error)
{
    int r = sql_create(&source->address, error);
    if (r == 0)
        r = store_connect(source, error);
    if (r == 0)
        r = sql_begin(source->sql, SQL_CHANGE, error);
    if (r < 0)
        return r;
    r = make_tables(source, out, error);
    if (r == 0)
        r = sql_commit(source->sql, error);
    else
        sql_rollback(source->sql);
    if (r == 0 && source->address.kind == SOURCE_POSTGRES)
        make_triggers(source, out);
    source->changed = true;
    return r;
}

const struct backend store_backend = {
    .begin = store_begin,
    .apply = store_apply,
    .end = store_end,
    .read = store_read,
    .changed = store_changed,
    .wait = store_wait,
    .init = store_init,
};
