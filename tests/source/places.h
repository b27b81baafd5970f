/* The three databases, and cases that are run on each of them. */
#ifndef TESTS_SOURCE_PLACES_H
#define TESTS_SOURCE_PLACES_H

#include "servers.h"
#include "source/sql.h"

struct place {
    enum source_kind kind;
    const char *name;
    struct server *server; /* NULL: SQLite, or it is not installed */
    char address[512];
};

struct place_case {
    const char *name;
    void (*run)(void **state); /* *state: struct place */
    /* AT_ONCE: for all of them, *state: NULL */
    enum { ON_ALL, ON_SERVERS, ON_SQLITE, ON_MYSQL, ON_POSTGRES, AT_ONCE } where;
};

/* Runs each case on each database; those of a server that is not installed are skipped. Returns main's status. */
int places_run(const struct place_case *cases, size_t count);

/* For a case that is run AT_ONCE: the databases that are there. */
struct place *places_here(size_t *ret_count);

/* A new connection; the test fails if there is none. Skips the test if the server is not installed. */
struct sql *place_connect(struct place *place);
/* The address as messages show it; valid until the next call. */
const char *place_shown(const struct place *place);
/* The temporary folder of the SQLite database. */
const char *places_folder(void);

#endif
