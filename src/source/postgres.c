/* PostgreSQL, through libpq without blocking: every wait has its deadline here. */
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "source/sql_client.h"

/* The server gives up first, and says why: on waiting for somebody else, then on a statement; the client only if it cannot.
 */
enum { LOCK_MS = 4000, GRACE_MS = 2000 };

struct postgres {
    struct sql sql;
    PGconn *conn;
};

static int lost(struct postgres *p, struct weir_error *error, const char *text)
{
    p->sql.lost = true;
    return sql_fail(&p->sql, error, text && *text ? text : "the connection was lost");
}

static int late(struct postgres *p, struct weir_error *error)
{
    char text[64];
    snprintf(text, sizeof text, "no answer within %d s", SQL_TIMEOUT_MS / 1000);
    return lost(p, error, text);
}

static int64_t deadline(int timeout_ms)
{
    return clock_steady_us() + timeout_ms * 1000LL;
}

/* 1: ready, 0: the time is over. */
static int wait_socket(const struct postgres *p, short events, int64_t deadline_us)
{
    struct pollfd fd = { .fd = PQsocket(p->conn), .events = events };
    for (;;) {
        int64_t left_us = deadline_us - clock_steady_us();
        int n = poll(&fd, 1, left_us > 0 ? (int)((left_us + 999) / 1000) : 0);
        if (n > 0 || (n < 0 && errno != EINTR))
            return 1;
        if (left_us <= 0)
            return 0;
    }
}

/* ---- connecting ---- */

static void no_notice(void *data, const char *text)
{
    (void)data;
    (void)text;
}

/* Passes the text after `?` to libpq as an address of its own, and adds the other parts of the address to it. */
static int begin_connecting(struct postgres *p, const struct source_address *a, struct weir_error *error)
{
    enum { PARTS_MAX = 12 };
    const char *names[PARTS_MAX] = { "dbname" }, *values[PARTS_MAX];
    CLEANUP_FREE char *rest = NULL;
    char port[16];
    size_t count = 1;
    snprintf(port, sizeof port, "%u", a->port);
    if (asprintf(&rest, "postgresql://?%s", a->query) < 0) {
        rest = NULL; /* its value is undefined */
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    }
    values[0] = rest;
    const struct {
        const char *name, *value;
    } parts[] = {
        { "host", a->host },
        { "port", a->port ? port : "" },
        { "user", a->user },
        { "password", a->password },
        { "dbname", a->database },
        { "client_encoding", "UTF8" },
        { "fallback_application_name", "weir" },
        { "tcp_user_timeout", "5000" },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].value[0]) {
            names[count] = parts[i].name;
            values[count++] = parts[i].value;
        }
    names[count] = values[count] = NULL;
    p->conn = PQconnectStartParams(names, values, 1);
    if (!p->conn)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    PQsetNoticeProcessor(p->conn, no_notice, NULL);
    return PQstatus(p->conn) == CONNECTION_BAD ? lost(p, error, PQerrorMessage(p->conn)) : 0;
}

static int finish_connecting(struct postgres *p, struct weir_error *error)
{
    int64_t until_us = deadline(SQL_TIMEOUT_MS);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    while (status != PGRES_POLLING_OK) {
        if (status == PGRES_POLLING_FAILED)
            return lost(p, error, PQerrorMessage(p->conn));
        if (!wait_socket(p, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_us))
            return late(p, error);
        status = PQconnectPoll(p->conn);
    }
    if (PQsetnonblocking(p->conn, 1) < 0)
        return lost(p, error, PQerrorMessage(p->conn));
    return 0;
}

static int settle(struct postgres *p, struct weir_error *error)
{
    char statement[400];
    snprintf(statement, sizeof statement,
             "SELECT set_config('statement_timeout', '%d', false), set_config('lock_timeout', '%d', false), "
             "set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO', false), "
             "set_config('standard_conforming_strings', 'on', false)",
             SQL_TIMEOUT_MS, LOCK_MS);
    return sql_run(&p->sql, statement, NULL, 0, NULL, NULL, NULL, error);
}

static int postgres_connect(struct sql *sql, const struct source_address *address, struct weir_error *error)
{
    struct postgres *p = (struct postgres *)sql;
    int r = begin_connecting(p, address, error);
    if (r == 0)
        r = finish_connecting(p, error);
    return r < 0 ? r : settle(p, error);
}

static void postgres_close(struct sql *sql)
{
    PQfinish(((struct postgres *)sql)->conn);
}

/* ---- statements ---- */

/* `?` becomes $1, $2, …, apart from those in quotes. */
static bool number_placeholders(const char *statement, size_t expected, struct buf *out)
{
    char quote = 0;
    size_t count = 0;
    for (const char *c = statement; *c; c++) {
        if (quote ? *c == quote : *c == '\'' || *c == '"')
            quote = quote ? 0 : *c;
        if (*c == '?' && !quote)
            buf_printf(out, "$%zu", ++count);
        else
            buf_char(out, *c);
    }
    return !out->failed && count == expected;
}

/* Parameters travel as text that ends in NUL. */
static int copy_params(struct postgres *p, const struct sql_value *params, size_t count, char *copies[SQL_PARAMS_MAX],
                       struct weir_error *error)
{
    for (size_t i = 0; i < count; i++) {
        sv text = params[i].text;
        if (params[i].null)
            continue;
        if (text.len > 0 && memchr(text.ptr, '\0', text.len))
            return err_set(error, WEIR_E_INVALID, "%s: a value contains a NUL byte, which PostgreSQL cannot keep in a text",
                           p->sql.shown);
        copies[i] = malloc(text.len + 1);
        if (!copies[i])
            return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
        memcpy(copies[i], text.len ? text.ptr : "", text.len);
        copies[i][text.len] = '\0';
    }
    return 0;
}

static int send_all(struct postgres *p, struct weir_error *error)
{
    int64_t until_us = deadline(SQL_TIMEOUT_MS + GRACE_MS);
    for (;;) {
        int left = PQflush(p->conn);
        if (left <= 0)
            return left == 0 ? 0 : lost(p, error, PQerrorMessage(p->conn));
        if (!wait_socket(p, POLLIN | POLLOUT, until_us))
            return late(p, error);
        if (!PQconsumeInput(p->conn))
            return lost(p, error, PQerrorMessage(p->conn));
    }
}

/* The next result; *ret NULL: there are no more. */
static int next_result(struct postgres *p, PGresult **ret, struct weir_error *error)
{
    int64_t until_us = deadline(SQL_TIMEOUT_MS + GRACE_MS);
    while (PQisBusy(p->conn)) {
        if (!wait_socket(p, POLLIN, until_us))
            return late(p, error);
        if (!PQconsumeInput(p->conn))
            return lost(p, error, PQerrorMessage(p->conn));
    }
    *ret = PQgetResult(p->conn);
    return 0;
}

static int read_rows(struct postgres *p, const PGresult *result, sql_row *row, void *data, struct weir_error *error)
{
    struct sql_value values[SQL_COLUMNS_MAX];
    int columns = PQnfields(result), r = 0;
    if (columns > SQL_COLUMNS_MAX)
        return sql_fail(&p->sql, error, "too many columns");
    for (int i = 0; row && r >= 0 && i < PQntuples(result); i++) {
        for (int c = 0; c < columns; c++) {
            values[c] = sql_text(PQgetvalue(result, i, c), (size_t)PQgetlength(result, i, c));
            values[c].null = PQgetisnull(result, i, c);
        }
        r = row(values, (size_t)columns, data, error);
    }
    return r < 0 ? r : 0;
}

static const char *explain(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state && strcmp(state, "55P03") == 0)
        return "somebody else is changing it and has not finished; try again";
    if (state && (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0))
        return "somebody else changed it at the same time; try again";
    return text ? text : PQresultErrorMessage(result);
}

/* After a failed statement the server rolls back at COMMIT, and reports no error. */
static int check_status(struct postgres *p, const char *statement, PGresult *result, struct weir_error *error)
{
    switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_EMPTY_QUERY:
        return 0;
    case PGRES_COMMAND_OK:
        if (strcmp(statement, "COMMIT") != 0 || strcmp(PQcmdStatus(result), "ROLLBACK") != 0)
            return 0;
        return sql_fail(&p->sql, error, "nothing was changed, because a statement of the transaction failed");
    default:
        break;
    }
    if (PQstatus(p->conn) == CONNECTION_BAD)
        return lost(p, error, PQresultErrorMessage(result));
    return sql_fail(&p->sql, error, explain(result));
}

static int read_results(struct postgres *p, const char *statement, sql_row *row, void *data, uint64_t *ret_changed,
                        struct weir_error *error)
{
    PGresult *result = NULL;
    int r = 0;
    uint64_t changed = 0;
    for (;;) {
        int read = next_result(p, &result, r < 0 ? NULL : error);
        if (read < 0 || !result) {
            r = r < 0 ? r : read;
            break;
        }
        /* After a failure the rest is only read off, so that the connection is ready for the next statement. */
        if (r == 0)
            r = check_status(p, statement, result, error);
        if (r == 0)
            r = read_rows(p, result, row, data, error);
        if (PQresultStatus(result) == PGRES_COMMAND_OK)
            changed += strtoull(PQcmdTuples(result), NULL, 10);
        bool copying = PQresultStatus(result) == PGRES_COPY_IN || PQresultStatus(result) == PGRES_COPY_OUT;
        PQclear(result);
        if (copying)
            return lost(p, error, "COPY is not supported here");
    }
    if (PQstatus(p->conn) == CONNECTION_BAD)
        p->sql.lost = true;
    if (r == 0 && ret_changed)
        *ret_changed = changed;
    return r;
}

static int postgres_run(struct sql *sql, const char *statement, const struct sql_value *params, size_t param_count,
                        sql_row *row, void *data, uint64_t *ret_changed, struct weir_error *error)
{
    struct postgres *p = (struct postgres *)sql;
    char *copies[SQL_PARAMS_MAX] = { NULL };
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 20);
    int r = copy_params(p, params, param_count, copies, error);
    /* A statement without values may contain `?` as it likes, such as the body of a function. */
    if (r == 0 && param_count > 0 && !number_placeholders(statement, param_count, &text))
        r = sql_fail(sql, error, "the statement has another number of parameters than values were given");
    if (r == 0 && !PQsendQueryParams(p->conn, param_count ? text.ptr : statement, (int)param_count, NULL,
                                     (const char *const *)copies, NULL, NULL, 0))
        r = lost(p, error, PQerrorMessage(p->conn));
    if (r == 0) {
        PQsetSingleRowMode(p->conn);
        r = send_all(p, error);
    }
    if (r == 0)
        r = read_results(p, statement, row, data, ret_changed, error);
    for (size_t i = 0; i < param_count; i++)
        free(copies[i]);
    return r;
}

/* ---- changes ---- */

/* A sum does not depend on the order of the rows. */
static void postgres_table_version(const struct sql_table *table, struct buf *statement)
{
    buf_printf(statement, "SELECT count(*), sum(hashtextextended((weir_row.*)::text, 0)::numeric) FROM %s AS weir_row",
               table->name);
}

static bool take_notifications(struct postgres *p)
{
    PGnotify *note;
    bool any = false;
    while ((note = PQnotifies(p->conn))) {
        any = true;
        PQfreemem(note);
    }
    return any;
}

static int postgres_wait(struct sql *sql, int timeout_ms, int wake_fd, struct weir_error *error)
{
    struct postgres *p = (struct postgres *)sql;
    int64_t until_us = deadline(timeout_ms);
    if (sql->lost)
        return lost(p, error, NULL);
    for (;;) {
        struct pollfd fds[] = { { .fd = PQsocket(p->conn), .events = POLLIN }, { .fd = wake_fd, .events = POLLIN } };
        if (take_notifications(p))
            return 1;
        int64_t left_us = until_us - clock_steady_us();
        int n = poll(fds, 2, left_us > 0 ? (int)((left_us + 999) / 1000) : 0);
        if (n <= 0 && left_us > 0 && (n == 0 || errno == EINTR))
            continue;
        if (n <= 0)
            return 0;
        if (fds[0].revents && !PQconsumeInput(p->conn))
            return lost(p, error, PQerrorMessage(p->conn));
        if (take_notifications(p))
            return 1;
        if (fds[1].revents)
            return 0;
    }
}

/* The lock is taken before the transaction begins, since its snapshot would not see what others did while it waited. 'weir'
 * is its number. */
const struct sql_client postgres_client = {
    .size = sizeof(struct postgres),
    .connect = postgres_connect,
    .close = postgres_close,
    .run = postgres_run,
    .table_version = postgres_table_version,
    .wait = postgres_wait,
    .begin = { [SQL_READ] = { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" },
               [SQL_CHANGE] = { "SELECT pg_advisory_lock(2003134834)", "BEGIN ISOLATION LEVEL REPEATABLE READ" } },
    .unlock = "SELECT pg_advisory_unlock(2003134834)",
    .listen = "LISTEN weir_rules",
    .columns = "SELECT n.nspname, c.relname, a.attname FROM pg_catalog.pg_class c "
               "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
               "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid "
               "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped "
               "AND n.nspname = ANY (current_schemas(false)) AND lower(c.relname::text) = ? "
               "ORDER BY array_position(current_schemas(false), n.nspname), c.relname, a.attnum",
    .byte_order = " COLLATE \"C\"",
    .quote = '"',
};
