/* Statements of SQLite for counts.db. All of these return a status of SQLite, SQLITE_OK if all is well. */
#ifndef SERVE_COUNTS_LITE_H
#define SERVE_COUNTS_LITE_H

#include <sqlite3.h>

#include "base/cleanup.h"
#include "base/sv.h"

CLEANUP_POINTER(sqlite3_stmt *, sqlite3_finalize);

int lite_run(sqlite3 *db, const char *sql);
int lite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret);
void lite_bind(sqlite3_stmt *stmt, const int64_t *values, int count);
/* Runs a statement to its end with these numbers. ret (may be NULL): the first columns of its first row, which is there. */
int lite_run_with(sqlite3 *db, const char *sql, const int64_t *values, int count, int64_t *ret, int columns);
/* The same with bytes in place of the last parameter, count + 1. They stay as they are until it returns. */
int lite_run_with_bytes(sqlite3 *db, const char *sql, const int64_t *values, int count, sv bytes);
/* The bytes of a column, valid until the next step. */
sv lite_bytes(sqlite3_stmt *stmt, int column);

#endif
