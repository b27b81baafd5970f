/* MariaDB and MySQL. Statements with values or rows are prepared ones; the others go as they are, since servers cannot
 * prepare all of them. */
#include <errmsg.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "source/sql_client.h"

enum {
    CELL_BYTES = 256, /* of a value are fetched with its row; longer ones are asked for one by one */
    GRACE_S = 2,      /* the server gives up on a statement first, and says why */
    LOCK_S = 4,       /* and before that, on waiting for somebody else */
    PACKET_MAX = 64 << 20,
};

/* Errors of MySQL that MariaDB's header does not define. */
enum { ER_CLIENT_IDLE = 4031, ER_QUERY_TOO_LATE = 3024 };

struct cell {
    char bytes[CELL_BYTES];
    char *large; /* grows to the longest value that was seen */
    size_t large_size;
    unsigned long length;
    my_bool null, error;
};

struct mysql {
    struct sql sql;
    MYSQL *conn;
    bool encrypted; /* has to be */
    struct cell cells[SQL_COLUMNS_MAX];
};

static int fail(struct mysql *m, unsigned number, const char *text, struct weir_error *error)
{
    char line[128];
    switch (number) {
    case ER_LOCK_WAIT_TIMEOUT:
        text = "somebody else is changing it, and has not finished; please try again";
        break;
    case ER_LOCK_DEADLOCK:
        text = "somebody else changed it at the same time; please try again";
        break;
    case ER_STATEMENT_TIMEOUT:
    case ER_QUERY_TOO_LATE:
        snprintf(line, sizeof line, "no answer within %d s", SQL_TIMEOUT_MS / 1000);
        text = line;
        break;
    case CR_SERVER_LOST:
    case CR_SERVER_GONE_ERROR:
    case CR_SERVER_LOST_EXTENDED:
    case CR_COMMANDS_OUT_OF_SYNC:
    case CR_NET_PACKET_TOO_LARGE:
    case CR_MALFORMED_PACKET:
    case ER_SERVER_SHUTDOWN:
    case ER_CONNECTION_KILLED:
    case ER_CLIENT_IDLE:
        m->sql.lost = true;
        break;
    }
    return sql_fail(&m->sql, error, text && *text ? text : "the server gives no reason");
}

static int fail_conn(struct mysql *m, struct weir_error *error)
{
    return fail(m, mysql_errno(m->conn), mysql_error(m->conn), error);
}

static int fail_stmt(struct mysql *m, MYSQL_STMT *stmt, struct weir_error *error)
{
    /* An error among the rows stands only in the connection. */
    return mysql_stmt_errno(stmt) != 0 ? fail(m, mysql_stmt_errno(stmt), mysql_stmt_error(stmt), error)
                                       : fail_conn(m, error);
}

/* ---- connecting ---- */

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void start_library(void)
{
    mysql_server_init(0, NULL, NULL);
}

static bool file_option(sv name, enum mysql_option *ret)
{
    static const struct {
        const char *name;
        enum mysql_option option;
    } files[] = { { "ssl-ca", MYSQL_OPT_SSL_CA }, { "ssl-cert", MYSQL_OPT_SSL_CERT }, { "ssl-key", MYSQL_OPT_SSL_KEY } };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (sv_eq(name, weir_str(files[i].name))) {
            *ret = files[i].option;
            return true;
        }
    return false;
}

/* ssl-mode=disabled, required or verify; ssl-ca=FILE, ssl-cert=FILE, ssl-key=FILE. */
static int apply_query(struct mysql *m, const char *query, struct weir_error *error)
{
    sv rest = weir_str(query);
    my_bool yes = 1, no = 0;
    while (rest.len > 0) {
        sv value = sv_cut(&rest, '&');
        sv name = sv_cut(&value, '=');
        char path[1000];
        enum mysql_option option;
        if (sv_eq(name, SV("ssl-mode")) && sv_eq(value, SV("disabled"))) {
            mysql_optionsv(m->conn, MYSQL_OPT_SSL_ENFORCE, &no);
        } else if (sv_eq(name, SV("ssl-mode")) && (sv_eq(value, SV("required")) || sv_eq(value, SV("verify")))) {
            m->encrypted = true;
            mysql_optionsv(m->conn, MYSQL_OPT_SSL_ENFORCE, &yes);
            if (value.ptr[0] == 'v')
                mysql_optionsv(m->conn, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
        } else if (file_option(name, &option) && value.len > 0 && value.len < sizeof path) {
            snprintf(path, sizeof path, "%.*s", SV_FMT(value));
            mysql_optionsv(m->conn, option, path);
        } else {
            return err_set(error, WEIR_E_INVALID,
                           "%s: invalid option after ?; allowed: socket=PATH, ssl-mode=disabled, ssl-mode=required, "
                           "ssl-mode=verify, ssl-ca=PATH, ssl-cert=PATH, ssl-key=PATH",
                           m->sql.shown);
        }
    }
    return 0;
}

/* Values of the user's own files count where the address does not say anything. */
static int set_options(struct mysql *m, const struct source_address *a, struct weir_error *error)
{
    unsigned connect_s = SQL_TIMEOUT_MS / 1000, answer_s = connect_s + GRACE_S;
    unsigned no_files = 0;
    unsigned long packet = PACKET_MAX;
    m->conn = mysql_init(NULL);
    if (!m->conn)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    mysql_optionsv(m->conn, MYSQL_READ_DEFAULT_GROUP, "weir");
    mysql_optionsv(m->conn, MYSQL_OPT_CONNECT_TIMEOUT, &connect_s);
    mysql_optionsv(m->conn, MYSQL_OPT_READ_TIMEOUT, &answer_s);
    mysql_optionsv(m->conn, MYSQL_OPT_WRITE_TIMEOUT, &answer_s);
    mysql_optionsv(m->conn, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet);
    mysql_optionsv(m->conn, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_optionsv(m->conn, MYSQL_OPT_LOCAL_INFILE, &no_files); /* a server cannot ask for files of this host */
    return apply_query(m, a->query, error);
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int require_database(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    const struct sql *sql = data;
    return count == 1 && !values[0].null
               ? 0
               : err_set(error, WEIR_E_INVALID,
                         "%s: the address does not name a database; write mysql://USER@HOST/DATABASE", sql->shown);
}

/* The same settings for every session: standard quotes, errors rather than cut values, UTC. */
static int settle(struct mysql *m, struct weir_error *error)
{
    char statement[400];
    unsigned answer_s = SQL_TIMEOUT_MS / 1000;
    if (mysql_set_character_set(m->conn, "utf8mb4") != 0)
        return fail_conn(m, error);
    snprintf(statement, sizeof statement,
             "SET SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,"
             "NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', innodb_lock_wait_timeout = %d, lock_wait_timeout = %d, "
             "autocommit = 1",
             LOCK_S, LOCK_S);
    int r = sql_run(&m->sql, statement, NULL, 0, NULL, NULL, NULL, error);
    if (r < 0)
        return r;
    /* MariaDB in seconds, or MySQL in milliseconds; an older one has neither, and the client's own deadline holds. */
    snprintf(statement, sizeof statement, "SET SESSION max_statement_time = %u", answer_s);
    if (sql_run(&m->sql, statement, NULL, 0, NULL, NULL, NULL, NULL) < 0 && !m->sql.lost) {
        snprintf(statement, sizeof statement, "SET SESSION max_execution_time = %d", SQL_TIMEOUT_MS);
        sql_run(&m->sql, statement, NULL, 0, NULL, NULL, NULL, NULL);
    }
    return sql_run(&m->sql, "SELECT DATABASE()", NULL, 0, require_database, &m->sql, NULL, error);
}

static int mysql_client_connect(struct sql *sql, const struct source_address *a, struct weir_error *error)
{
    struct mysql *m = (struct mysql *)sql;
    pthread_once(&started, start_library);
    int r = set_options(m, a, error);
    if (r < 0)
        return r;
    bool socket = a->host[0] == '/';
    if (!mysql_real_connect(m->conn, socket ? "localhost" : or_null(a->host), or_null(a->user), or_null(a->password),
                            or_null(a->database), a->port, socket ? a->host : NULL, CLIENT_FOUND_ROWS)) {
        m->sql.lost = true;
        return fail_conn(m, error);
    }
    /* The library goes on without where the server has no TLS, unless it is to look at certificates too. */
    if (m->encrypted && !mysql_get_ssl_cipher(m->conn))
        return sql_fail(&m->sql, error, "the server does not support TLS, but ssl-mode requires it");
    return settle(m, error);
}

static void mysql_client_close(struct sql *sql)
{
    struct mysql *m = (struct mysql *)sql;
    if (m->conn)
        mysql_close(m->conn);
    for (size_t i = 0; i < SQL_COLUMNS_MAX; i++)
        free(m->cells[i].large);
}

/* ---- statements ---- */

static int run_plain(struct mysql *m, const char *statement, uint64_t *ret_changed, struct weir_error *error)
{
    if (mysql_real_query(m->conn, statement, strlen(statement)) != 0)
        return fail_conn(m, error);
    MYSQL_RES *result = mysql_use_result(m->conn);
    if (!result && mysql_field_count(m->conn) > 0)
        return fail_conn(m, error);
    uint64_t changed = result ? 0 : mysql_affected_rows(m->conn);
    /* Nobody looks at the rows, but an error may stand among them. */
    while (result && mysql_fetch_row(result))
        continue;
    mysql_free_result(result);
    if (mysql_errno(m->conn) != 0)
        return fail_conn(m, error);
    if (ret_changed)
        *ret_changed = changed;
    return 0;
}

static int execute(struct mysql *m, MYSQL_STMT *stmt, const char *statement, const struct sql_value *params,
                   size_t param_count, struct weir_error *error)
{
    MYSQL_BIND binds[SQL_PARAMS_MAX] = { 0 };
    unsigned long lengths[SQL_PARAMS_MAX];
    my_bool nulls[SQL_PARAMS_MAX];
    if (mysql_stmt_prepare(stmt, statement, strlen(statement)) != 0)
        return fail_stmt(m, stmt, error);
    if (mysql_stmt_param_count(stmt) != param_count)
        return sql_fail(&m->sql, error, "the statement has another number of parameters than values were given");
    for (size_t i = 0; i < param_count; i++) {
        lengths[i] = params[i].text.len;
        nulls[i] = params[i].null;
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        binds[i].buffer = (void *)(params[i].text.len ? params[i].text.ptr : "");
        binds[i].buffer_length = binds[i].length_value = lengths[i];
        binds[i].length = &lengths[i];
        binds[i].is_null = &nulls[i];
    }
    if ((param_count > 0 && mysql_stmt_bind_param(stmt, binds) != 0) || mysql_stmt_execute(stmt) != 0)
        return fail_stmt(m, stmt, error);
    return 0;
}

static int read_large(struct mysql *m, MYSQL_STMT *stmt, unsigned column, struct sql_value *ret, struct weir_error *error)
{
    struct cell *cell = &m->cells[column];
    size_t size = cell->length > SQL_VALUE_MAX ? SQL_VALUE_MAX + 1 : cell->length;
    if (size > cell->large_size) {
        free(cell->large);
        cell->large_size = 0;
        cell->large = malloc(size);
        if (!cell->large)
            return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
        cell->large_size = size;
    }
    unsigned long length;
    MYSQL_BIND bind = { .buffer_type = MYSQL_TYPE_STRING,
                        .buffer = cell->large,
                        .buffer_length = size,
                        .length = &length,
                        .is_null = &cell->null,
                        .error = &cell->error };
    if (mysql_stmt_fetch_column(stmt, &bind, column, 0) != 0)
        return fail_stmt(m, stmt, error);
    *ret = sql_text(cell->large, size);
    return 0;
}

static int read_row(struct mysql *m, MYSQL_STMT *stmt, unsigned columns, sql_row *row, void *data, struct weir_error *error)
{
    struct sql_value values[SQL_COLUMNS_MAX];
    for (unsigned i = 0; i < columns; i++) {
        const struct cell *cell = &m->cells[i];
        values[i] = (struct sql_value){ .text = SV(""), .null = cell->null };
        if (cell->null)
            continue;
        if (cell->length <= CELL_BYTES) {
            values[i] = sql_text(cell->bytes, cell->length);
            continue;
        }
        int r = read_large(m, stmt, i, &values[i], error);
        if (r < 0)
            return r;
    }
    return row(values, columns, data, error);
}

static int read_rows(struct mysql *m, MYSQL_STMT *stmt, sql_row *row, void *data, struct weir_error *error)
{
    MYSQL_BIND binds[SQL_COLUMNS_MAX] = { 0 };
    unsigned columns = mysql_stmt_field_count(stmt);
    int status, r = 0;
    if (columns == 0)
        return 0;
    if (columns > SQL_COLUMNS_MAX)
        return sql_fail(&m->sql, error, "too many columns");
    for (unsigned i = 0; i < columns; i++) {
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        binds[i].buffer = m->cells[i].bytes;
        binds[i].buffer_length = CELL_BYTES;
        binds[i].length = &m->cells[i].length;
        binds[i].is_null = &m->cells[i].null;
        binds[i].error = &m->cells[i].error;
    }
    if (mysql_stmt_bind_result(stmt, binds) != 0)
        return fail_stmt(m, stmt, error);
    while (r >= 0 && (status = mysql_stmt_fetch(stmt)) != MYSQL_NO_DATA) {
        if (status != 0 && status != MYSQL_DATA_TRUNCATED)
            return fail_stmt(m, stmt, error);
        if (row)
            r = read_row(m, stmt, columns, row, data, error);
    }
    return r < 0 ? r : 0;
}

static int mysql_client_run(struct sql *sql, const char *statement, const struct sql_value *params, size_t param_count,
                            sql_row *row, void *data, uint64_t *ret_changed, struct weir_error *error)
{
    struct mysql *m = (struct mysql *)sql;
    if (param_count == 0 && !row)
        return run_plain(m, statement, ret_changed, error);
    MYSQL_STMT *stmt = mysql_stmt_init(m->conn);
    if (!stmt)
        return fail_conn(m, error);
    int r = execute(m, stmt, statement, params, param_count, error);
    if (r == 0)
        r = read_rows(m, stmt, row, data, error);
    if (r == 0 && ret_changed)
        *ret_changed = mysql_stmt_field_count(stmt) > 0 ? 0 : mysql_stmt_affected_rows(stmt);
    /* Reads off what is left of the rows. */
    mysql_stmt_close(stmt);
    return r;
}

/* ---- changes ---- */

/* QUOTE keeps NULL and 'NULL' apart, and ends each value visibly; a sum does not depend on the order of the rows. As bytes,
 * since columns may have character sets that do not mix. */
static void mysql_client_table_version(const struct sql_table *table, struct buf *statement)
{
    buf_add(statement, SV("SELECT COUNT(*), SUM(CAST(CONV(LEFT(MD5(CONCAT_WS(','"));
    for (size_t c = 0; c < table->column_count; c++)
        buf_printf(statement, ", QUOTE(CAST(%s AS BINARY))", table->columns[c].quoted);
    buf_printf(statement, ")), 15), 16, 10) AS UNSIGNED)) FROM %s", table->name);
}

/* The catalogue hides tables on which the user has no right at all. */
static int mysql_client_denied(struct sql *sql, const char *name, struct weir_error *error)
{
    struct mysql *m = (struct mysql *)sql;
    char statement[200];
    snprintf(statement, sizeof statement, "SELECT 1 FROM `%s` LIMIT 0", name);
    int r = run_plain(m, statement, NULL, error);
    if (r == 0 || mysql_errno(m->conn) == ER_NO_SUCH_TABLE)
        return 0;
    if (mysql_errno(m->conn) != ER_TABLEACCESS_DENIED_ERROR)
        return r;
    return err_set(error, WEIR_E_RULES,
                   "%s: this user may not read the table %s, nor see whether it is there; GRANT SELECT on it, or on all "
                   "tables of the database if it is not there",
                   sql->shown, name);
}

/* The lock keeps those who change through weir apart; SERIALIZABLE those who change by hand, since it locks what it reads.
 */
const struct sql_client mysql_client = {
    .size = sizeof(struct mysql),
    .connect = mysql_client_connect,
    .close = mysql_client_close,
    .run = mysql_client_run,
    .table_version = mysql_client_table_version,
    .denied = mysql_client_denied,
    .begin = { [SQL_READ] = { "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                              "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY" },
               [SQL_CHANGE] = { "SELECT GET_LOCK(CONCAT('weir.', MD5(DATABASE())), 4)",
                                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "START TRANSACTION" } },
    .unlock = "SELECT RELEASE_LOCK(CONCAT('weir.', MD5(DATABASE())))",
    .columns = "SELECT '', TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "
               "WHERE TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) = ? ORDER BY TABLE_NAME, ORDINAL_POSITION",
    .quote = '`',
};
