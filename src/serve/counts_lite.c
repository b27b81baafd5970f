#include "serve/counts_lite.h"

int lite_run(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

int lite_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret)
{
    return sqlite3_prepare_v2(db, sql, -1, ret, NULL);
}

void lite_bind(sqlite3_stmt *stmt, const int64_t *values, int count)
{
    for (int i = 0; i < count; i++)
        sqlite3_bind_int64(stmt, i + 1, values[i]);
}

static int finish(sqlite3_stmt *stmt, int status)
{
    while (status == SQLITE_ROW)
        status = sqlite3_step(stmt);
    return status == SQLITE_DONE ? SQLITE_OK : status;
}

int lite_run_with(sqlite3 *db, const char *sql, const int64_t *values, int count, int64_t *ret, int columns)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db, sql, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt, values, count);
    status = sqlite3_step(stmt);
    for (int i = 0; status == SQLITE_ROW && i < columns; i++)
        ret[i] = sqlite3_column_int64(stmt, i);
    return finish(stmt, status);
}

int lite_run_with_bytes(sqlite3 *db, const char *sql, const int64_t *values, int count, sv bytes)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db, sql, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt, values, count);
    sqlite3_bind_blob(stmt, count + 1, bytes.ptr, (int)bytes.len, SQLITE_STATIC);
    return finish(stmt, sqlite3_step(stmt));
}

sv lite_bytes(sqlite3_stmt *stmt, int column)
{
    const char *bytes = sqlite3_column_blob(stmt, column); /* before its length is asked for */
    return sv_of(bytes, (size_t)sqlite3_column_bytes(stmt, column));
}
