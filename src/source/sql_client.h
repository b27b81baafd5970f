/* The operations that sql.c needs from each database. */
#ifndef SOURCE_SQL_CLIENT_H
#define SOURCE_SQL_CLIENT_H

#include "source/sql.h"

/* The first member of each client's own structure. */
struct sql {
    const struct sql_client *client;
    enum source_kind kind;
    char *shown; /* the address, for messages */
    bool lost;
    bool running; /* inside a statement: its rows are still coming */
    bool open;    /* inside a transaction */
    bool locked;  /* holding the lock of those who change */
};

struct sql_client {
    size_t size; /* of the client's own structure, which begins as zeros, with the fields above set */
    int (*connect)(struct sql *sql, const struct source_address *address, struct weir_error *error);
    void (*close)(struct sql *sql); /* also after connect has failed, or was not called; frees what connect made */
    int (*run)(struct sql *sql, const char *statement, const struct sql_value *params, size_t param_count, sql_row *row,
               void *data, uint64_t *ret_changed, struct weir_error *error);
    /* Writes a statement whose rows differ after each change of a table. NULL: `version` is for the whole database. */
    void (*table_version)(const struct sql_table *table, struct buf *statement);
    int (*version)(struct sql *sql, struct buf *out, struct weir_error *error);
    /* NULL: there is nothing to wait for. */
    int (*wait)(struct sql *sql, int timeout_ms, int wake_fd, struct weir_error *error);
    /* Statements that begin a transaction, by purpose. One that is a SELECT gets a lock, and answers 0 or NULL without. */
    const char *begin[2][4];
    const char *unlock; /* NULL: the lock ends with the transaction */
    const char *listen; /* NULL: no notifications */
    /* A name in lower case to rows of schema (or ''), table and column, in their order. */
    const char *columns;
    const char *byte_order; /* as sql_byte_order; NULL: nothing */
    /* As sql_table_denied. NULL: the catalogue shows what may not be read, too. */
    int (*denied)(struct sql *sql, const char *name, struct weir_error *error);
    char quote;
};

extern const struct sql_client sqlite_client, mysql_client, postgres_client;

/* "ADDRESS: TEXT", on one line. */
int sql_fail(const struct sql *sql, struct weir_error *error, const char *text);

/* Appends each value and a blank to a buffer. */
sql_row sql_append;

/* A value that was read, cut as sql.h says. */
static inline struct sql_value sql_text(const char *ptr, size_t len)
{
    return (struct sql_value){ .text = sv_of(ptr, len > SQL_VALUE_MAX ? SQL_VALUE_MAX + 1 : len) };
}

#endif
