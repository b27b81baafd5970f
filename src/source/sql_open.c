/* Connecting: which client an address needs, and a new connection after the last one was lost. */
#include <stdlib.h>

#include "base/err.h"
#include "base/secret.h"
#include "source/backend.h"
#include "source/sql_client.h"

static const struct sql_client *client_of(enum source_kind kind)
{
    switch (kind) {
    case SOURCE_SQLITE:
        return &sqlite_client;
    case SOURCE_MYSQL:
        return &mysql_client;
    case SOURCE_POSTGRES:
        return &postgres_client;
    case SOURCE_FILE:
    case SOURCE_ENVOY:
        break;
    }
    return NULL;
}

/* A file with the password is read for each connection: one that was replaced counts from the next one on. */
static int connect_as(struct sql *sql, const struct source_address *address, struct weir_error *error)
{
    char password[SECRET_MAX + 1];
    struct source_address with = *address;
    struct weir_error own;
    if (address->password_file[0] == '\0')
        return sql->client->connect(sql, address, error);
    if (secret_read(password, "password_file of the address", address->password_file, &own) < 0)
        return sql_fail(sql, error, own.text); /* as if the database were unreachable: the last good rules stay */
    with.password = password;
    int r = sql->client->connect(sql, &with, error);
    explicit_bzero(password, sizeof password);
    return r;
}

int sql_open(struct sql **ret, const struct source_address *address, struct weir_error *error)
{
    const struct sql_client *client = client_of(address->kind);
    if (!client)
        return err_set(error, WEIR_E_INVALID, "%s is not a database", address->shown);
    struct sql *sql = calloc(1, client->size);
    if (!sql)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    sql->client = client;
    sql->kind = address->kind;
    sql->shown = strdup(address->shown);
    int r = sql->shown ? connect_as(sql, address, error) : err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    if (r < 0)
        sql_close(sql);
    else
        *ret = sql;
    return r;
}

int source_connect(struct source *source, struct weir_error *error)
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

int source_run(struct source *source, const struct buf *statement, const struct sql_value *params, size_t param_count,
               sql_row *row, void *data, uint64_t *ret_changed, struct weir_error *error)
{
    if (statement->failed)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for the rules");
    return sql_run(source->sql, statement->ptr, params, param_count, row, data, ret_changed, error);
}
