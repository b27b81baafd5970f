/* Where rules are: "file:rules.yaml", "sqlite:/var/lib/weir.db", "mysql://user:pass@host:3306/db",
 * "postgres://user@host/db?sslmode=require"; "envoy:/etc/ratelimit?merge=true", files of envoyproxy/ratelimit. A bare path
 * is a file. */
#ifndef SOURCE_ADDRESS_H
#define SOURCE_ADDRESS_H

#include "base/sv.h"
#include "source/envoy.h"

struct weir_error;

enum source_kind { SOURCE_FILE, SOURCE_ENVOY, SOURCE_SQLITE, SOURCE_MYSQL, SOURCE_POSTGRES };

struct source_address {
    enum source_kind kind;
    char *path;     /* of a file or an SQLite database */
    char *user;     /* "" where it is not given, here and below */
    char *password; /* also from $WEIR_DB_PASSWORD; the clients' own files (~/.my.cnf, ~/.pgpass, $PGPASSWORD) count too */
    char *password_file; /* read for each connection, in place of `password` */
    char *host;          /* a name, an address, or the folder or file of a socket (percent-encoded, or ?socket=) */
    unsigned port;       /* 0: the usual one */
    char *database;
    char *query;                /* what follows `?`: handed on to PostgreSQL; of MariaDB ssl-mode and ssl-ca */
    struct envoy_options envoy; /* its zone is part of `query` */
    char *shown;                /* the address without its password, for messages */
};

/* WEIR_E_INVALID: what is wrong and what is allowed. */
int address_read(const char *text, struct source_address *ret, struct weir_error *error);
void address_done(struct source_address *address);

#endif
