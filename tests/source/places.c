#include "places.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct place places[] = {
    { .kind = SOURCE_SQLITE, .name = "sqlite" },
    { .kind = SOURCE_MYSQL, .name = "mysql" },
    { .kind = SOURCE_POSTGRES, .name = "postgres" },
};

enum { PLACES = sizeof places / sizeof *places };

static char folder[64];

const char *places_folder(void)
{
    return folder;
}

static int start(void **state)
{
    struct source_address address;
    struct weir_error error;
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weir-places-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    unsetenv("WEIR_DB_PASSWORD");
    unsetenv("PGPASSWORD");
    snprintf(places[0].address, sizeof places[0].address, "sqlite:%s/rules.db", folder);
    if (address_read(places[0].address, &address, &error) < 0 || sql_create(&address, &error) < 0)
        return -1;
    address_done(&address);
    for (int i = 1; i < PLACES; i++) {
        if (server_missing(places[i].kind))
            continue;
        places[i].server = server_start(places[i].kind);
        if (!places[i].server)
            return -1;
        snprintf(places[i].address, sizeof places[i].address, "%s", server_address(places[i].server));
    }
    /* So that readers and a writer do not wait for each other. */
    struct sql *sql = place_connect(&places[0]);
    int r = sql_run(sql, "PRAGMA journal_mode = WAL", NULL, 0, NULL, NULL, NULL, &error);
    sql_close(sql);
    return r;
}

static int stop(void **state)
{
    char command[128];
    (void)state;
    for (int i = 0; i < PLACES; i++)
        server_stop(places[i].server);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

struct sql *place_connect(struct place *place)
{
    struct source_address address;
    struct weir_error error;
    struct sql *sql = NULL;
    if (!place->address[0]) {
        print_message("# %s is not installed\n", server_missing(place->kind));
        skip();
    }
    if (address_read(place->address, &address, &error) < 0 || sql_open(&sql, &address, &error) < 0)
        fail_msg("%s", error.text);
    address_done(&address);
    return sql;
}

const char *place_shown(const struct place *place)
{
    static char shown[600];
    struct source_address address;
    if (address_read(place->address, &address, NULL) < 0)
        return "";
    snprintf(shown, sizeof shown, "%s", address.shown);
    address_done(&address);
    return shown;
}

struct place *places_here(size_t *ret_count)
{
    static struct place here[PLACES];
    *ret_count = 0;
    for (int i = 0; i < PLACES; i++)
        if (places[i].address[0])
            here[(*ret_count)++] = places[i];
        else
            print_message("# %s is not installed\n", server_missing(places[i].kind));
    return here;
}

enum { TESTS_MAX = 96 };

static struct CMUnitTest tests[TESTS_MAX];
static char names[TESTS_MAX][100];
static size_t test_count;

static void add(const struct place_case *c, struct place *place)
{
    if (test_count == TESTS_MAX)
        abort();
    snprintf(names[test_count], sizeof names[0], "%s: %s", place ? place->name : "all", c->name);
    tests[test_count] = (struct CMUnitTest){ .name = names[test_count], .test_func = c->run, .initial_state = place };
    test_count++;
}

static bool wanted(const struct place_case *c, const struct place *place)
{
    switch (c->where) {
    case ON_SERVERS:
        return place->kind != SOURCE_SQLITE;
    case ON_SQLITE:
        return place->kind == SOURCE_SQLITE;
    case ON_MYSQL:
        return place->kind == SOURCE_MYSQL;
    case ON_POSTGRES:
        return place->kind == SOURCE_POSTGRES;
    case ON_ALL:
    case AT_ONCE:
        break;
    }
    return true;
}

int places_run(const struct place_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (cases[i].where == AT_ONCE)
            add(&cases[i], NULL);
        for (int p = 0; p < PLACES && cases[i].where != AT_ONCE; p++)
            if (wanted(&cases[i], &places[p]))
                add(&cases[i], &places[p]);
    }
    /* Those of the array that are left empty do not count. */
    return cmocka_run_group_tests(tests, start, stop);
}
