/* Rules in tables. A read is one transaction, and so is a change, history included. */
#include "source/backend.h"

#include <limits.h>

#include "base/check.h"
#include "base/err.h"
#include "base/instant.h"
#include "base/program.h"

enum { STATEMENT_MAX = 8192 };

/* ---- connecting, and looking at the tables ---- */

/* This user may not be allowed to see a table that is missing. A table that was there held rules that nobody removed. */
static int check_absent(struct source *source, enum row_table table, struct weir_error *error)
{
    char room[PROGRAM_WORD_BYTES];
    if (source->known[table])
        return err_set(error, WEIR_E_RULES,
                       "%s: the table %s is gone; create it again with `%s rules init --from %s`, or: %s;",
                       source->address.shown, table_names[table], program_command(),
                       program_word(source->address.shown, room), table_create(table, source->address.kind));
    /* Databases and rights that are older than overrides go on without them. */
    return table == TABLE_OVERRIDES ? 0 : sql_table_denied(source->sql, table_names[table], error);
}

static int find_tables(struct source *source, struct weir_error *error)
{
    for (int i = 0; i < TABLES; i++) {
        int r = sql_table(source->sql, table_names[i], &source->tables[i], error);
        if (r == 0 && source->tables[i].there)
            r = table_check(source, (enum row_table)i, true, error);
        else if (r == 0 && i < TABLE_HISTORY)
            r = check_absent(source, (enum row_table)i, error);
        if (r < 0)
            return r;
    }
    if (source->tables[TABLE_RULES].there || source->tables[TABLE_CALLS].there)
        return 0;
    return err_set(error, WEIR_E_RULES,
                   "%s: there is neither a table THROTTLED_CALLS nor a table WEIR_RULES; create both with `weir rules "
                   "init --from %s`, or: %s;",
                   source->address.shown, source->address.shown, table_create(TABLE_CALLS, source->address.kind));
}

static int version_now(struct source *source, struct buf *out, struct weir_error *error)
{
    return sql_version(source->sql, source->tables, TABLE_HISTORY, out, error);
}

/* ---- reading ---- */

/* Which rows and columns of the tables to read. */
struct wanted {
    const struct source_overrides *overrides; /* NULL: all of them */
    bool notes;                               /* who changed a row, when and why */
    const struct seen *seen; /* rows of WEIR_RULES that say what they said before are left out; NULL: none is */
};

struct loader {
    struct source *source;
    struct snapshot *snapshot;
    struct wanted wanted;
    size_t next; /* see seen_next() */
    size_t cap;
    size_t bytes;
    size_t count; /* of rows of this table */
    enum row_table table;
};

static bool enabled_of(sv text, bool *ret)
{
    static const sv yes[] = { SV("1"), SV("true"), SV("t") }, no[] = { SV("0"), SV("false"), SV("f") };
    for (size_t i = 0; i < 3; i++) {
        bool on = sv_eq_nocase(text, yes[i]);
        if (on || sv_eq_nocase(text, no[i])) {
            *ret = on;
            return true;
        }
    }
    return false;
}

static sv keep_value(struct loader *l, const struct sql_value *value, struct weir_error *error, int *r)
{
    if (value->null || value->text.len == 0)
        return SV("");
    sv copy = arena_copy(&l->snapshot->arena, value->text);
    l->bytes += value->text.len;
    if (!copy.ptr)
        *r = no_memory(error);
    else if (l->bytes > RULES_BYTES_MAX)
        *r = err_set(error, WEIR_E_RULES, "%s: more than %d MiB of rules", l->source->address.shown, RULES_BYTES_MAX >> 20);
    return copy;
}

/* `document`: its column; the one that follows is ENABLED in a rule. */
static void load_document(struct stored_row *row, const struct sql_value *document)
{
    static const struct {
        sv missing, too_long;
    } faults[TABLES] = {
        [TABLE_RULES] = { SV("RULE: must be a rule as JSON, not NULL"), SV("RULE: longer than 4 MiB") },
        [TABLE_SETTINGS] = { SV("VALUE: must be JSON, not NULL"), SV("VALUE: longer than 4 MiB") },
        [TABLE_OVERRIDES] = { SV("OVERRIDE: must be an override as JSON, not NULL"), SV("OVERRIDE: longer than 4 MiB") },
    };
    if (document->null)
        row->fault = faults[row->table].missing;
    else if (row->text.len > SQL_VALUE_MAX)
        row->fault = faults[row->table].too_long;
    else if (row->table == TABLE_OVERRIDES && row->key.len == 0)
        row->fault = SV("SUBJECT: must not be empty");
    else if (row->table == TABLE_RULES && !enabled_of(sv_trim(document[1].text), &row->enabled)) {
        row->enabled = true;
        row->fault = SV("ENABLED: must be 0 or 1 (or true or false)");
    }
}

/* Whether the row of a rule says what a row said before: then its rule is known. Another row that says the same is not. */
static bool is_known(struct loader *l, const struct sql_value *values)
{
    struct snapshot *snapshot = l->snapshot;
    if (l->table != TABLE_RULES || !snapshot->seen)
        return false;
    struct stored_row row = { .table = TABLE_RULES, .key = values[0].text, .text = values[1].text, .enabled = true };
    row.rule = row.key;
    load_document(&row, &values[1]);
    const struct seen_row *seen = seen_next(snapshot->seen, row.rule, seen_version(&row), &l->next);
    size_t number = seen ? (size_t)(seen - snapshot->seen->rows) : 0;
    size_t bytes = row.key.len + row.text.len + values[2].text.len;
    if (!seen || snapshot->known[number] || l->bytes + bytes > RULES_BYTES_MAX)
        return false;
    l->bytes += bytes;
    snapshot->known[number] = (uint32_t)l->count;
    snapshot->known_count++;
    return true;
}

static int load_row(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    struct loader *l = data;
    sv copies[6] = { 0 };
    int r = 0;
    size_t most = l->table == TABLE_OVERRIDES ? RULES_OVERRIDES_MAX : RULES_MAX;
    if (++l->count > most)
        return err_set(error, WEIR_E_RULES, "%s: %s: more than %zu rows", l->source->address.shown, table_names[l->table],
                       most);
    if (is_known(l, values))
        return 0;
    struct stored_row *row = snapshot_add(l->snapshot, &l->cap);
    if (!row)
        return no_memory(error);
    row->came = (uint32_t)l->count - 1;
    for (size_t i = 0; i < count && i < 6 && r == 0; i++)
        copies[i] = keep_value(l, &values[i], error, &r);
    if (r < 0)
        return r;
    row->table = l->table;
    row->key = copies[0];
    if (l->table == TABLE_CALLS) {
        for (int i = 0; i < CALL_COLUMNS; i++)
            row->call[i] = (struct sql_value){ copies[1 + i], values[1 + i].null };
        return call_read(row, &l->snapshot->arena, error);
    }
    size_t document = table_keys(l->table), next = document + 1 + (l->table == TABLE_RULES);
    row->rule = l->table == TABLE_SETTINGS ? SV("") : row->key;
    if (l->table == TABLE_OVERRIDES)
        row->key = copies[1];
    row->text = copies[document];
    row->updated_at = copies[next];
    row->updated_by = copies[next + 1];
    row->note = copies[next + 2];
    load_document(row, values + document);
    return 0;
}

/* A page of the rows of all rules. */
static void add_page(const struct source *source, const struct source_overrides *which, struct sql_value *params,
                     size_t *param_count, struct buf *out)
{
    const struct sql_table *table = &source->tables[TABLE_OVERRIDES];
    const char *subject = sql_column(table, "subject"), *rule = sql_column(table, "rule_id");
    const char *order = sql_byte_order(source->sql);
    if (which->after_rule.len > 0) {
        buf_printf(out, " WHERE (%s%s > ? OR (%s = ? AND %s%s > ?))", rule, order, rule, subject, order);
        params[(*param_count)++].text = which->after_rule;
        params[(*param_count)++].text = which->after_rule;
        params[(*param_count)++].text = which->after;
    }
    buf_printf(out, " ORDER BY %s%s, %s%s LIMIT %u", rule, order, subject, order, which->most);
}

/* Which rows of WEIR_OVERRIDES: of one rule, or all. */
static void add_range(const struct source *source, const struct source_overrides *which, struct sql_value *params,
                      size_t *param_count, struct buf *out)
{
    const struct sql_table *table = &source->tables[TABLE_OVERRIDES];
    const char *subject = sql_column(table, "subject"), *order = sql_byte_order(source->sql);
    if (which->rule.len == 0) {
        if (which->most != UINT_MAX)
            add_page(source, which, params, param_count, out);
        return;
    }
    buf_printf(out, " WHERE %s = ?", sql_column(table, "rule_id"));
    params[(*param_count)++].text = which->rule;
    if (which->subject.len > 0) {
        buf_printf(out, " AND %s = ?", subject);
        params[(*param_count)++].text = which->subject;
    }
    if (which->after.len > 0) {
        buf_printf(out, " AND %s%s > ?", subject, order);
        params[(*param_count)++].text = which->after;
    }
    buf_printf(out, " ORDER BY %s%s LIMIT %u", subject, order, which->most);
}

static int load_table(struct loader *l, enum row_table table, struct weir_error *error)
{
    const struct source_overrides *which = table == TABLE_OVERRIDES ? l->wanted.overrides : NULL;
    CLEANUP(buf_done) struct buf statement;
    struct sql_value params[3] = { 0 };
    size_t param_count = 0;
    buf_init(&statement, STATEMENT_MAX);
    l->table = table;
    l->count = 0;
    if (!l->source->tables[table].there || (which && which->most == 0))
        return 0;
    table_select(l->source, table, l->wanted.notes, &statement);
    if (which)
        add_range(l->source, which, params, &param_count, &statement);
    return source_run(l->source, &statement, params, param_count, load_row, l, NULL, error);
}

/* After the settings: under others no rule is known. */
static bool begin_known(struct snapshot *snapshot, const struct seen *seen)
{
    bool holds = seen && seen->rules && seen->settings == seen_settings(snapshot);
    if (!holds || seen->rules->bases >= RULES_BASES_MAX) /* then all rows are read */
        return true;
    snapshot->known = cleanup_calloc(seen->rule_count + 1, sizeof *snapshot->known);
    snapshot->seen = snapshot->known ? seen : NULL;
    return snapshot->known != NULL;
}

static int load(struct source *source, const struct wanted *wanted, struct snapshot *ret, struct weir_error *error)
{
    static const enum row_table order[] = { TABLE_SETTINGS, TABLE_RULES, TABLE_CALLS, TABLE_OVERRIDES };
    struct loader l = { .source = source, .snapshot = ret, .wanted = *wanted };
    ret->ordered = true;
    int r = find_tables(source, error);
    if (r == 0 && !wanted->overrides) { /* else not everything is read */
        buf_clear(&source->version);
        r = version_now(source, &source->version, error);
    }
    for (size_t i = 0; i < sizeof order / sizeof *order && r == 0; i++) {
        r = load_table(&l, order[i], error);
        if (r == 0 && order[i] == TABLE_SETTINGS && !begin_known(ret, wanted->seen))
            r = no_memory(error);
    }
    for (int i = 0; i < TABLE_HISTORY && r == 0; i++)
        source->known[i] = source->tables[i].there;
    return r < 0 ? r : snapshot_index(ret, error);
}

static void tables_end(struct source *source)
{
    sql_rollback(source->sql);
}

static int begin(struct source *source, bool change, const struct wanted *wanted, struct snapshot *ret,
                 struct weir_error *error)
{
    CLEANUP(snapshot_done) struct snapshot snapshot = { 0 };
    int r = source_connect(source, error);
    if (r == 0)
        r = sql_begin(source->sql, change ? SQL_CHANGE : SQL_READ, error);
    if (r < 0)
        return r;
    r = load(source, wanted, &snapshot, error);
    if (r < 0) {
        tables_end(source);
        return r;
    }
    *ret = snapshot;
    snapshot = (struct snapshot){ 0 };
    return 0;
}

static int tables_begin(struct source *source, bool change, const struct source_overrides *which, struct snapshot *ret,
                        struct weir_error *error)
{
    return begin(source, change, &(struct wanted){ .overrides = which, .notes = true }, ret, error);
}

static int tables_find(struct source *source, sv rule, sv subject, struct snapshot *snapshot, struct weir_error *error)
{
    struct source_overrides which = { .rule = rule, .subject = subject, .most = 2 };
    struct wanted wanted = { .overrides = &which, .notes = true };
    struct loader l = { .source = source, .snapshot = snapshot, .wanted = wanted, .cap = snapshot->count };
    int r = load_table(&l, TABLE_OVERRIDES, error);
    return r < 0 ? r : snapshot_index(snapshot, error);
}

/* Returns 1 as snapshot_read does. */
static int read_tables(struct source *source, const struct snapshot_terms *terms, struct source_reading *ret,
                       struct weir_error *error)
{
    CLEANUP(snapshot_done) struct snapshot snapshot = { 0 };
    struct wanted wanted = { .notes = terms->rows, .seen = terms->rows ? NULL : &source->seen };
    int r = begin(source, false, &wanted, &snapshot, error);
    if (r == 0)
        r = sql_commit(source->sql, error);
    return r < 0 ? r : snapshot_read(&snapshot, terms, ret, error);
}

static int tables_read(struct source *source, const struct rules *last, bool rows, struct source_reading *ret,
                       struct weir_error *error)
{
    struct snapshot_terms terms = { .last = last, .rows = rows, .seen = &source->seen };
    source->read_once = false;
    int r = read_tables(source, &terms, ret, error);
    if (r > 0) {
        seen_done(&source->seen);
        r = read_tables(source, &terms, ret, error);
        CHECK(r <= 0); /* all rows were there */
    }
    if (r < 0)
        return r;
    source->read_once = true;
    source->changed = false;
    return 0;
}

/* A table that was missing may exist now. One that is gone makes the version fail; then source_read says what is wrong. */
static int tables_changed(struct source *source, bool *ret, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf version;
    buf_init(&version, 64 << 10);
    int r = source_connect(source, error);
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
    if (r == 0 && !changed) {
        r = version_now(source, &version, error);
        changed = r < 0 || !sv_eq(buf_sv(&version), buf_sv(&source->version));
        r = r < 0 && !sql_lost(source->sql) ? 0 : r;
    }
    if (r == 0)
        *ret = changed;
    return r;
}

static int tables_wait(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error)
{
    int r = source_connect(source, error);
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

/* The values of a row's columns, those of its key last; returns how many. */
static size_t values_of(const struct stored_row *row, struct source_author author, const char *now,
                        struct sql_value *values)
{
    size_t n = 0;
    if (row->table == TABLE_CALLS) {
        memcpy(values, row->call, sizeof row->call);
        n = CALL_COLUMNS;
    } else {
        values[n++] = text_value(row->text);
        if (row->table == TABLE_RULES)
            values[n++] = text_value(row->enabled ? SV("1") : SV("0"));
        values[n++] = text_value(weir_str(now));
        values[n++] = text_value(author.who);
        values[n++] = text_value(author.note);
    }
    if (row->table == TABLE_OVERRIDES)
        values[n++] = text_value(row->rule);
    values[n++] = text_value(row->key);
    return n;
}

static void write_where(const struct source *source, enum row_table table, struct buf *out)
{
    for (size_t i = 0; i < table_keys(table); i++)
        buf_printf(out, " %s %s = ?", i ? "AND" : "WHERE", sql_column(&source->tables[table], table_columns(table)[i]));
}

static void write_update(const struct source *source, enum row_table table, size_t first, struct buf *out)
{
    const char *const *columns = table_columns(table);
    buf_printf(out, "UPDATE %s SET ", source->tables[table].name);
    for (size_t i = first; columns[i]; i++)
        buf_printf(out, "%s%s = ?", i > first ? ", " : "", sql_column(&source->tables[table], columns[i]));
    write_where(source, table, out);
}

static int write_change(struct source *source, const struct change *change, struct source_author author, const char *now,
                        struct weir_error *error)
{
    const struct stored_row *row = change->after ? change->after : change->before;
    size_t keys = table_keys(row->table);
    struct sql_value values[8];
    size_t count = values_of(row, author, now, values);
    uint64_t changed = 0;
    /* A document that does not change is not written: it may be one that was too long to be read. */
    bool same_text =
        row->table == TABLE_RULES && change->before && change->after && change->before->text.ptr == change->after->text.ptr;
    CLEANUP(buf_done) struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    int r = table_check(source, row->table, false, error);
    if (r < 0)
        return r;
    if (!change->before)
        table_insert(source, row->table, false, &statement);
    else if (change->after)
        write_update(source, row->table, keys + same_text, &statement);
    else {
        buf_printf(&statement, "DELETE FROM %s", source->tables[row->table].name);
        write_where(source, row->table, &statement);
        memmove(values, values + count - keys, keys * sizeof *values);
        count = keys;
    }
    r = source_run(source, &statement, values + same_text, count - same_text, NULL, NULL, &changed, error);
    if (r == 0 && changed == 0)
        r = err_set(error, WEIR_E_RULES, "%s: %s: row %.*s was changed by somebody else at the same time; try again",
                    source->address.shown, table_names[row->table], SV_FMT(row->key));
    if (r == 0 && changed > 1)
        r = err_set(error, WEIR_E_RULES, "%s: %s: %llu rows have the key %.*s; nothing was changed", source->address.shown,
                    table_names[row->table], (unsigned long long)changed, SV_FMT(row->key));
    return r;
}

static int tables_apply(struct source *source, const struct snapshot *after, const struct plan *plan,
                        struct source_author author, struct weir_error *error)
{
    (void)after;
    char now[INSTANT_TEXT_MAX];
    instant_text(clock_now_us(), now);
    int r = 0;
    /* Removals come first, so that they do not conflict with additions. */
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
            buf_printf(out, "%s already exists\n", table_names[i]);
            r = table_check(source, (enum row_table)i, false, error);
        } else if (r == 0) {
            r = sql_run(source->sql, statement, NULL, 0, NULL, NULL, NULL, error);
            if (r == 0)
                buf_printf(out, "%s is created\n", table_names[i]);
        }
        if (r == 0)
            r = sql_table(source->sql, table_names[i], &source->tables[i], error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* PostgreSQL reports changes at once if weir can create triggers; else weir sees them when it next looks. */
static void make_triggers(struct source *source, struct buf *out)
{
    static const char function[] = "CREATE OR REPLACE FUNCTION weir_rules_changed() RETURNS trigger LANGUAGE plpgsql AS "
                                   "'BEGIN NOTIFY weir_rules; RETURN NULL; END'";
    struct weir_error error;
    int r = sql_run(source->sql, function, NULL, 0, NULL, NULL, NULL, &error);
    for (int i = 0; i < TABLE_HISTORY && r == 0; i++) {
        CLEANUP(buf_done) struct buf statement;
        buf_init(&statement, STATEMENT_MAX);
        buf_printf(
            &statement,
            "CREATE OR REPLACE TRIGGER weir_rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH "
            "STATEMENT EXECUTE FUNCTION weir_rules_changed()",
            source->tables[i].name);
        r = source_run(source, &statement, NULL, 0, NULL, NULL, NULL, &error);
    }
    if (r < 0)
        buf_printf(out,
                   "weir sees changes within the poll interval, not at once, because it could not create a trigger: %s\n",
                   error.text);
}

static int tables_init(struct source *source, struct buf *out, struct weir_error *error)
{
    int r = sql_create(&source->address, error);
    if (r == 0)
        r = source_connect(source, error);
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

const struct backend table_backend = {
    .begin = tables_begin,
    .find = tables_find,
    .last = history_last_rule,
    .apply = tables_apply,
    .end = tables_end,
    .read = tables_read,
    .changed = tables_changed,
    .wait = tables_wait,
    .init = tables_init,
};
