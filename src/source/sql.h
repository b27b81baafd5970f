/* One way to talk to three databases: SQLite, MariaDB/MySQL, PostgreSQL. What they do not agree on (placeholders, how to
 * begin, how to look at the catalogue) ends here; what the tables mean begins in table_backend.c.
 *
 * Values travel as text, bound as parameters, never pasted into a statement. A statement has `?` for each of them. */
#ifndef SOURCE_SQL_H
#define SOURCE_SQL_H

#include "base/buf.h"
#include "source/address.h"

struct weir_error;
struct sql;

struct sql_value {
    sv text; /* any bytes */
    bool null;
};

enum {
    SQL_PARAMS_MAX = 16,
    SQL_COLUMNS_MAX = 64,
    SQL_VALUE_MAX =
        4 << 20, /* bytes of a value that is read; a longer one is cut to one byte more, so that its reader sees it */
    SQL_TIMEOUT_MS = 5000, /* for connecting, and for an answer */
};

/* Connects. WEIR_E_SYSTEM: "sqlite:rules.db: unable to open database file; …", never with a password in it. */
int sql_open(struct sql **ret, const struct source_address *address, struct weir_error *error);
/* Makes an SQLite database that is not there yet; sql_open does not, since a typing mistake would leave an empty file.
 * Others: nothing, and 0. */
int sql_create(const struct source_address *address, struct weir_error *error);
void sql_close(struct sql *sql);
enum source_kind sql_kind(const struct sql *sql);
/* The connection is gone, and only a new one can help. */
bool sql_lost(const struct sql *sql);

/* Called for each row as it comes; may not use the connection. Negative: stop, and return that. */
typedef int sql_row(const struct sql_value *values, size_t count, void *data, struct weir_error *error);

/* One statement, with as many `?` as there are params. *ret_changed (may be NULL): rows that it changed. `row` may be NULL
 * where none are expected. */
int sql_run(struct sql *sql, const char *statement, const struct sql_value *params, size_t param_count, sql_row *row,
            void *data, uint64_t *ret_changed, struct weir_error *error);

/* A transaction that sees one state of all tables; to read only, or to change (which locks as early as it has to, so that a
 * commit does not fail for somebody else's sake). */
enum sql_purpose { SQL_READ, SQL_CHANGE };
int sql_begin(struct sql *sql, enum sql_purpose purpose, struct weir_error *error);
int sql_commit(struct sql *sql, struct weir_error *error);
void sql_rollback(struct sql *sql);

/* A table whose name is `name` but for case, as the database spells it, ready to stand in a statement (quoted), and its
 * columns likewise. */
struct sql_table {
    bool there;
    char name[160];
    size_t column_count;
    struct {
        char name[72];   /* in lower case */
        char quoted[80]; /* as it stands in a statement */
    } columns[SQL_COLUMNS_MAX];
};
int sql_table(struct sql *sql, const char *name, struct sql_table *ret, struct weir_error *error);
/* For a table that sql_table does not find: an error if this user may not read it, so that nobody can tell whether it is
 * there. */
int sql_table_denied(struct sql *sql, const char *name, struct weir_error *error);
/* The column's quoted name, or NULL. */
const char *sql_column(const struct sql_table *table, const char *lower_case_name);

/* Returns the text to write after a column whose texts are to be compared and sorted byte by byte; empty if the database
 * does so anyway. */
const char *sql_byte_order(const struct sql *sql);

/* Something that differs after each change of these tables, whoever made it; computed by the database, much cheaper than
 * reading them. Appended to *out. */
int sql_version(struct sql *sql, const struct sql_table *tables, size_t count, struct buf *out, struct weir_error *error);

/* PostgreSQL: tell this connection of NOTIFY weir_rules. Others: nothing, and 0. */
int sql_listen(struct sql *sql, struct weir_error *error);
/* Waits until a notification came (1), the time is over (0), `wake_fd` (-1: none) is readable (0), or the connection broke
 * (negative). */
int sql_wait(struct sql *sql, int timeout_ms, int wake_fd, struct weir_error *error);

#endif
