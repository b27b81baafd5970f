/* SQLite: the statements run in this process, on a file. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/program.h"
#include "source/sql_client.h"

enum {
    PROGRESS_STEPS = 10000, /* of SQLite's machine between two looks at the clock */
    ROWS_PER_LOOK = 256,
};

struct sqlite {
    struct sql sql;
    sqlite3 *db;
    int64_t opened_us; /* tells the versions of two connections apart, since data_version counts from 1 in each */
    int64_t deadline_us;
};

static int fail(struct sqlite *s, int status, struct weir_error *error)
{
    char text[WEIR_ERROR_MAX];
    switch (status & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        snprintf(text, sizeof text, "another process has had it locked for more than %d s", SQL_TIMEOUT_MS / 1000);
        return sql_fail(&s->sql, error, text);
    case SQLITE_INTERRUPT:
        snprintf(text, sizeof text, "no answer within %d s", SQL_TIMEOUT_MS / 1000);
        return sql_fail(&s->sql, error, text);
    case SQLITE_READONLY:
        return sql_fail(&s->sql, error, "the database is read-only; check the permissions of the file and its folder");
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        s->sql.lost = true; /* another file may stand there next time */
        break;
    }
    return sql_fail(&s->sql, error, s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(status));
}

static int late(void *data)
{
    const struct sqlite *s = data;
    return clock_steady_us() > s->deadline_us;
}

static void start_clock(struct sqlite *s)
{
    s->deadline_us = clock_steady_us() + SQL_TIMEOUT_MS * 1000LL;
}

/* The file may come from anywhere: its schema gets no power over this process. */
static int be_careful(struct sqlite *s)
{
    static const struct {
        int option, value;
    } settings[] = {
        { SQLITE_DBCONFIG_DEFENSIVE, 1 }, { SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0 },  { SQLITE_DBCONFIG_DQS_DML, 0 },
        { SQLITE_DBCONFIG_DQS_DDL, 0 },   { SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0 },
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int status = sqlite3_db_config(s->db, settings[i].option, settings[i].value, NULL);
        if (status != SQLITE_OK)
            return status;
    }
    sqlite3_progress_handler(s->db, PROGRESS_STEPS, late, s);
    return sqlite3_busy_timeout(s->db, SQL_TIMEOUT_MS);
}

static int sqlite_connect(struct sql *sql, const struct source_address *address, struct weir_error *error)
{
    struct sqlite *s = (struct sqlite *)sql;
    char room[PROGRAM_WORD_BYTES];
    s->opened_us = clock_steady_us();
    int status = sqlite3_open_v2(address->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (status == SQLITE_CANTOPEN && access(address->path, F_OK) < 0 && errno == ENOENT)
        return err_set(error, WEIR_E_SYSTEM,
                       "%s: there is no such file; `%s rules init --from %s` creates one without rules", address->shown,
                       program_command(), program_word(address->shown, room));
    if (status == SQLITE_OK)
        status = be_careful(s);
    if (status != SQLITE_OK)
        return fail(s, status, error);
    /* Opening reads nothing yet. */
    return sql_run(&s->sql, "SELECT count(*) FROM sqlite_master", NULL, 0, NULL, NULL, NULL, error);
}

static void sqlite_close(struct sql *sql)
{
    sqlite3_close_v2(((struct sqlite *)sql)->db);
}

/* Whoever replaced the file meant its new contents. */
static int still_there(struct sqlite *s, struct weir_error *error)
{
    int moved = 0;
    if (!sqlite3_get_autocommit(s->db) ||
        sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || !moved)
        return 0;
    s->sql.lost = true;
    return sql_fail(&s->sql, error, "the file was removed or replaced");
}

static int prepare(struct sqlite *s, const char *statement, const struct sql_value *params, size_t param_count,
                   sqlite3_stmt **ret, struct weir_error *error)
{
    const char *rest = "";
    int status = sqlite3_prepare_v2(s->db, statement, -1, ret, &rest);
    if (status != SQLITE_OK)
        return fail(s, status, error);
    if (!*ret || !sv_blank(weir_str(rest)))
        return sql_fail(&s->sql, error, "exactly one statement is run at a time");
    if ((size_t)sqlite3_bind_parameter_count(*ret) != param_count)
        return sql_fail(&s->sql, error, "the statement has another number of parameters than values were given");
    for (size_t i = 0; i < param_count && status == SQLITE_OK; i++) {
        sv text = params[i].text;
        status = params[i].null ? sqlite3_bind_null(*ret, (int)i + 1)
                                : sqlite3_bind_text64(*ret, (int)i + 1, text.len ? text.ptr : "", text.len, SQLITE_STATIC,
                                                      SQLITE_UTF8);
    }
    return status == SQLITE_OK ? 0 : fail(s, status, error);
}

static int read_row(struct sqlite *s, sqlite3_stmt *stmt, sql_row *row, void *data, struct weir_error *error)
{
    struct sql_value values[SQL_COLUMNS_MAX];
    int count = sqlite3_column_count(stmt);
    if (count > SQL_COLUMNS_MAX)
        return sql_fail(&s->sql, error, "too many columns");
    for (int i = 0; i < count; i++) {
        int type = sqlite3_column_type(stmt, i);
        values[i] = (struct sql_value){ .text = SV(""), .null = type == SQLITE_NULL };
        if (type == SQLITE_NULL)
            continue;
        const char *ptr = type == SQLITE_BLOB ? sqlite3_column_blob(stmt, i) : (const char *)sqlite3_column_text(stmt, i);
        size_t len = (size_t)sqlite3_column_bytes(stmt, i);
        if (ptr)
            values[i] = sql_text(ptr, len);
        else if (len > 0)
            return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    }
    return row(values, (size_t)count, data, error);
}

static int step_all(struct sqlite *s, sqlite3_stmt *stmt, sql_row *row, void *data, struct weir_error *error)
{
    int status, r = 0;
    unsigned rows = 0;
    start_clock(s);
    while (r >= 0 && (status = sqlite3_step(stmt)) != SQLITE_DONE) {
        if (status != SQLITE_ROW)
            return fail(s, status, error);
        if (row)
            r = read_row(s, stmt, row, data, error);
        if (++rows % ROWS_PER_LOOK == 0)
            start_clock(s);
    }
    return r < 0 ? r : 0;
}

/* A connection stays open between readings, and a reading goes through all rows once: pages that were read before would
 * save it little. Inside a transaction they stay. */
static void give_back_pages(struct sqlite *s)
{
    if (sqlite3_get_autocommit(s->db))
        sqlite3_db_release_memory(s->db);
}

static int sqlite_run(struct sql *sql, const char *statement, const struct sql_value *params, size_t param_count,
                      sql_row *row, void *data, uint64_t *ret_changed, struct weir_error *error)
{
    struct sqlite *s = (struct sqlite *)sql;
    sqlite3_stmt *stmt = NULL;
    sqlite3_int64 before = sqlite3_total_changes64(s->db);
    start_clock(s);
    int r = still_there(s, error);
    if (r == 0)
        r = prepare(s, statement, params, param_count, &stmt, error);
    if (r == 0)
        r = step_all(s, stmt, row, data, error);
    sqlite3_finalize(stmt);
    give_back_pages(s);
    if (r == 0 && ret_changed)
        *ret_changed = sqlite3_total_changes64(s->db) == before ? 0 : (uint64_t)sqlite3_changes64(s->db);
    return r;
}

/* data_version tells of others' commits, the other two of what this connection did. */
static int sqlite_version(struct sql *sql, struct buf *out, struct weir_error *error)
{
    struct sqlite *s = (struct sqlite *)sql;
    int r = sql_run(sql, "PRAGMA data_version", NULL, 0, sql_append, out, NULL, error);
    if (r == 0)
        r = sql_run(sql, "PRAGMA schema_version", NULL, 0, sql_append, out, NULL, error);
    if (r == 0)
        buf_printf(out, "%lld %lld", sqlite3_total_changes64(s->db), (long long)s->opened_us);
    return r;
}

const struct sql_client sqlite_client = {
    .size = sizeof(struct sqlite),
    .connect = sqlite_connect,
    .close = sqlite_close,
    .run = sqlite_run,
    .version = sqlite_version,
    .begin = { [SQL_READ] = { "BEGIN" }, [SQL_CHANGE] = { "BEGIN IMMEDIATE" } },
    .columns = "SELECT '', t.name, c.name FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c "
               "WHERE t.type IN ('table', 'view') AND lower(t.name) = ? AND c.hidden <> 1 ORDER BY t.name, c.cid",
    .quote = '"',
};

int sql_create(const struct source_address *address, struct weir_error *error)
{
    sqlite3 *db = NULL;
    if (address->kind != SOURCE_SQLITE)
        return 0;
    int status = sqlite3_open_v2(address->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (status != SQLITE_OK)
        err_set(error, WEIR_E_SYSTEM, "%s: %s", address->shown, db ? sqlite3_errmsg(db) : sqlite3_errstr(status));
    sqlite3_close_v2(db);
    return status == SQLITE_OK ? 0 : WEIR_E_SYSTEM;
}
