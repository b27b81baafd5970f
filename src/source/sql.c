#include "source/sql.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "source/sql_client.h"

enum { STATEMENT_MAX = 64 << 10 };

int sql_fail(const struct sql *sql, struct weir_error *error, const char *text)
{
    char line[WEIR_ERROR_MAX];
    size_t len = 0;
    for (; *text && len + 1 < sizeof line; text++) {
        bool blank = *text == '\n' || *text == '\r' || *text == '\t' || *text == ' ';
        if (blank && (len == 0 || line[len - 1] == ' '))
            continue;
        line[len++] = blank ? ' ' : *text;
    }
    if (len > 0 && line[len - 1] == ' ')
        len--;
    return err_set(error, WEIR_E_SYSTEM, "%s: %.*s", sql->shown, (int)len, line);
}

int sql_append(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    (void)error;
    for (size_t i = 0; i < count; i++) {
        buf_add(data, values[i].null ? SV("-") : values[i].text);
        buf_char(data, ' ');
    }
    return 0;
}

void sql_close(struct sql *sql)
{
    if (!sql)
        return;
    sql->client->close(sql);
    free(sql->shown);
    free(sql);
}

enum source_kind sql_kind(const struct sql *sql)
{
    return sql->kind;
}

bool sql_lost(const struct sql *sql)
{
    return sql->lost;
}

int sql_run(struct sql *sql, const char *statement, const struct sql_value *params, size_t param_count, sql_row *row,
            void *data, uint64_t *ret_changed, struct weir_error *error)
{
    if (sql->running)
        return err_set(error, WEIR_E_INVALID, "%s: a statement cannot be run from within the rows of another", sql->shown);
    if (param_count > SQL_PARAMS_MAX)
        return err_set(error, WEIR_E_INVALID, "%s: a statement has at most %d parameters", sql->shown, SQL_PARAMS_MAX);
    if (sql->lost)
        return sql_fail(sql, error, "the connection was lost");
    sql->running = true;
    int r = sql->client->run(sql, statement, params, param_count, row, data, ret_changed, error);
    sql->running = false;
    return r;
}

/* ---- transactions ---- */

static int run_plain(struct sql *sql, const char *statement, struct weir_error *error)
{
    return sql_run(sql, statement, NULL, 0, NULL, NULL, NULL, error);
}

static int read_lock(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    (void)error;
    *(bool *)data = count == 1 && !values[0].null && !sv_eq(values[0].text, SV("0"));
    return 0;
}

static int take_lock(struct sql *sql, const char *statement, struct weir_error *error)
{
    bool taken = false;
    int r = sql_run(sql, statement, NULL, 0, read_lock, &taken, NULL, error);
    if (r < 0)
        return r;
    if (!taken)
        return sql_fail(sql, error, "somebody else is changing the rules and has not finished; try again");
    sql->locked = true;
    return 0;
}

static void unlock(struct sql *sql)
{
    sql->open = false;
    if (sql->locked && !sql->lost)
        run_plain(sql, sql->client->unlock, NULL);
    sql->locked = false;
}

int sql_begin(struct sql *sql, enum sql_purpose purpose, struct weir_error *error)
{
    if (sql->open)
        return err_set(error, WEIR_E_INVALID, "%s: a transaction is open already", sql->shown);
    for (const char *const *s = sql->client->begin[purpose]; *s; s++) {
        bool lock = strncmp(*s, "SELECT", 6) == 0;
        int r = lock ? take_lock(sql, *s, error) : run_plain(sql, *s, error);
        if (r < 0) {
            unlock(sql);
            return r;
        }
    }
    sql->open = true;
    return 0;
}

int sql_commit(struct sql *sql, struct weir_error *error)
{
    if (!sql->open)
        return err_set(error, WEIR_E_INVALID, "%s: no transaction is open", sql->shown);
    int r = run_plain(sql, "COMMIT", error);
    if (r < 0)
        sql_rollback(sql);
    else
        unlock(sql);
    return r;
}

void sql_rollback(struct sql *sql)
{
    if (!sql || !sql->open)
        return;
    if (!sql->lost && run_plain(sql, "ROLLBACK", NULL) < 0)
        sql->lost = true; /* nobody knows what is open in it now */
    unlock(sql);
}

/* ---- tables ---- */

/* Appends `name` in quotes. */
static bool add_quoted(char *out, size_t size, sv name, char quote)
{
    size_t len = strlen(out);
    if (name.len == 0 || len + 2 * name.len + 3 > size)
        return false;
    out[len++] = quote;
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] == quote)
            out[len++] = quote;
        out[len++] = name.ptr[i];
    }
    out[len++] = quote;
    out[len] = '\0';
    return true;
}

struct lookup {
    struct sql *sql;
    const char *name;
    struct sql_table *table;
    bool shadowed; /* rows of a schema that comes later are not ours */
    char schema[160];
};

static int table_found(struct lookup *l, sv schema, sv name, struct weir_error *error)
{
    struct sql_table *table = l->table;
    char quoted[sizeof table->name] = "";
    bool fits = schema.len == 0 || add_quoted(quoted, sizeof quoted - 1, schema, l->sql->client->quote);
    if (fits && schema.len > 0)
        memcpy(quoted + strlen(quoted), ".", 2);
    if (!fits || !add_quoted(quoted, sizeof quoted, name, l->sql->client->quote) || schema.len >= sizeof l->schema)
        return err_set(error, WEIR_E_INVALID, "%s: the name of the schema of table %s is too long", l->sql->shown, l->name);
    if (!table->there) {
        memcpy(l->schema, schema.ptr ? schema.ptr : "", schema.len);
        l->schema[schema.len] = '\0';
        memcpy(table->name, quoted, sizeof quoted);
        table->there = true;
    } else if (!sv_eq(schema, weir_str(l->schema))) {
        l->shadowed = true;
    } else if (strcmp(quoted, table->name) != 0) {
        return err_set(error, WEIR_E_INVALID,
                       "%s: tables %s and %s differ only in upper and lower case, and either could be meant by %s; please "
                       "rename or drop one",
                       l->sql->shown, table->name, quoted, l->name);
    }
    return 0;
}

static int add_column(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    struct lookup *l = data;
    struct sql_table *table = l->table;
    if (count != 3 || values[1].null || values[2].null)
        return sql_fail(l->sql, error, "the catalogue cannot be read");
    if (l->shadowed)
        return 0;
    int r = table_found(l, values[0].text, values[1].text, error);
    if (r < 0 || l->shadowed)
        return r;
    if (table->column_count == SQL_COLUMNS_MAX)
        return err_set(error, WEIR_E_INVALID, "%s: table %s has more than %d columns", l->sql->shown, table->name,
                       SQL_COLUMNS_MAX);
    sv name = values[2].text;
    char *lower = table->columns[table->column_count].name, *quoted = table->columns[table->column_count].quoted;
    *quoted = '\0';
    if (name.len >= sizeof table->columns[0].name ||
        !add_quoted(quoted, sizeof table->columns[0].quoted, name, l->sql->client->quote))
        return 0; /* none of those that anyone asks for */
    for (size_t i = 0; i < name.len; i++)
        lower[i] = ascii_lower(name.ptr[i]);
    lower[name.len] = '\0';
    table->column_count++;
    return 0;
}

int sql_table(struct sql *sql, const char *name, struct sql_table *ret, struct weir_error *error)
{
    struct sql_table table = { 0 };
    struct lookup l = { .sql = sql, .name = name, .table = &table };
    char lower[72];
    size_t len = strlen(name);
    if (len >= sizeof lower)
        return err_set(error, WEIR_E_INVALID, "the name of a table has at most %zu bytes", sizeof lower - 1);
    for (size_t i = 0; i <= len; i++)
        lower[i] = ascii_lower(name[i]);
    struct sql_value param = { .text = sv_of(lower, len) };
    int r = sql_run(sql, sql->client->columns, &param, 1, add_column, &l, NULL, error);
    if (r == 0)
        *ret = table;
    return r;
}

int sql_table_denied(struct sql *sql, const char *name, struct weir_error *error)
{
    return sql->client->denied ? sql->client->denied(sql, name, error) : 0;
}

const char *sql_column(const struct sql_table *table, const char *lower_case_name)
{
    for (size_t i = 0; i < table->column_count; i++)
        if (strcmp(table->columns[i].name, lower_case_name) == 0)
            return table->columns[i].quoted;
    return NULL;
}

const char *sql_byte_order(const struct sql *sql)
{
    return sql->client->byte_order ? sql->client->byte_order : "";
}

/* ---- changes ---- */

static int table_version(struct sql *sql, const struct sql_table *table, struct buf *out, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf statement;
    buf_init(&statement, STATEMENT_MAX);
    sql->client->table_version(table, &statement);
    return statement.failed ? err_set(error, WEIR_E_NO_MEMORY, "out of memory")
                            : sql_run(sql, statement.ptr, NULL, 0, sql_append, out, NULL, error);
}

int sql_version(struct sql *sql, const struct sql_table *tables, size_t count, struct buf *out, struct weir_error *error)
{
    int r = sql->client->version ? sql->client->version(sql, out, error) : 0;
    for (size_t i = 0; sql->client->table_version && r == 0 && i < count; i++) {
        if (tables[i].there)
            r = table_version(sql, &tables[i], out, error);
        else
            buf_add(out, SV("- "));
    }
    return r == 0 && out->failed ? err_set(error, WEIR_E_NO_MEMORY, "out of memory") : r;
}

int sql_listen(struct sql *sql, struct weir_error *error)
{
    return sql->client->listen ? run_plain(sql, sql->client->listen, error) : 0;
}

int sql_wait(struct sql *sql, int timeout_ms, int wake_fd, struct weir_error *error)
{
    struct pollfd wake = { .fd = wake_fd, .events = POLLIN };
    if (sql->client->wait)
        return sql->client->wait(sql, timeout_ms, wake_fd, error);
    /* A negative descriptor is ignored. A signal ends the wait early, which costs one look at the version. */
    if (poll(&wake, 1, timeout_ms) < 0 && errno != EINTR)
        return err_set(error, WEIR_E_SYSTEM, "cannot wait: %s", strerror(errno));
    return 0;
}
