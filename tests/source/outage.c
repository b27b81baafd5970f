/* Databases that are slow, gone, locked, or want another password. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "places.h"
#include "source/sql.h"

/* Generous: the machine may be busy. */
enum { PATIENCE_MS = 4 * SQL_TIMEOUT_MS };

static struct weir_error error;

static int try_open(const char *text, struct sql **ret)
{
    struct source_address address;
    int r = address_read(text, &address, &error);
    if (r == 0) {
        r = sql_open(ret, &address, &error);
        address_done(&address);
    }
    assert_null(r < 0 ? strstr(error.text, SERVER_PASSWORD) : NULL);
    assert_null(r < 0 ? strstr(error.text, SERVER_PASSWORD_ENCODED) : NULL);
    return r;
}

static void opens(const char *text)
{
    struct sql *sql = NULL;
    if (try_open(text, &sql) < 0)
        fail_msg("%s", error.text);
    sql_close(sql);
}

static void needs_server(const struct place *place)
{
    if (place->kind == SOURCE_SQLITE || place->server)
        return;
    print_message("# %s is not installed\n", server_missing(place->kind));
    skip();
}

static int run(struct sql *sql, const char *statement)
{
    return sql_run(sql, statement, NULL, 0, NULL, NULL, NULL, &error);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

/* From the address, $WEIR_DB_PASSWORD, and where the clients of the database look for it themselves. */
static void test_passwords(void **state)
{
    struct place *place = *state;
    struct sql *sql = NULL;
    char path[200], text[200];
    needs_server(place);
    setenv("HOME", places_folder(), 1);
    opens(server_tcp_address(place->server));
    assert_int_equal(try_open(server_address_with(place->server, "hunter2"), &sql), WEIR_E_SYSTEM);
    assert_null(strstr(error.text, "hunter2"));
    assert_true(try_open(server_address_with(place->server, NULL), &sql) < 0);
    setenv("WEIR_DB_PASSWORD", SERVER_PASSWORD, 1);
    opens(server_address_with(place->server, NULL));
    unsetenv("WEIR_DB_PASSWORD");

    if (place->kind == SOURCE_MYSQL) {
        snprintf(path, sizeof path, "%s/.my.cnf", places_folder());
        snprintf(text, sizeof text, "[client]\npassword=%s\n", SERVER_PASSWORD);
        write_file(path, text);
    } else {
        snprintf(path, sizeof path, "%s/pgpass", places_folder());
        write_file(path, "*:*:*:" SERVER_USER ":s\\:e/c@ret\n");
        setenv("PGPASSFILE", path, 1);
    }
    opens(server_address_with(place->server, NULL));
    unlink(path);
    unsetenv("PGPASSFILE");
}

static void test_wrong_places(void **state)
{
    struct place *place = *state;
    struct sql *sql = NULL;
    char text[600];
    needs_server(place);
    if (place->kind == SOURCE_SQLITE) {
        snprintf(text, sizeof text, "sqlite:%s/absent.db", places_folder());
        assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
        assert_non_null(strstr(error.text, "weir rules init"));
        assert_int_equal(access(text + strlen("sqlite:"), F_OK), -1);
        snprintf(text, sizeof text, "%s/none.db", places_folder());
        write_file(text, "This is a rules file, and no database at all. It is long enough to be looked at, too.........");
        snprintf(text, sizeof text, "sqlite:%s/none.db", places_folder());
        assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
        assert_non_null(strstr(error.text, "not a database"));
        snprintf(text, sizeof text, "sqlite:%s", places_folder());
        assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
        return;
    }
    const char *scheme = place->kind == SOURCE_MYSQL ? "mysql" : "postgres";
    snprintf(text, sizeof text, "%s://weir:%s@127.0.0.1:%u/absent", scheme, SERVER_PASSWORD_ENCODED,
             server_port(place->server));
    assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
    assert_non_null(strstr(error.text, "absent"));
    snprintf(text, sizeof text, "%s://weir:%s@%%2Ftmp%%2Fabsent%%2Fsocket/weir", scheme, SERVER_PASSWORD_ENCODED);
    assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
    snprintf(text, sizeof text, "%s?nonsense=1", place->address);
    assert_true(try_open(text, &sql) < 0);
    assert_non_null(strstr(error.text, place->kind == SOURCE_MYSQL ? "ssl-mode" : "nonsense"));
    /* These servers have no certificate. */
    snprintf(text, sizeof text, "%s?%s", server_tcp_address(place->server),
             place->kind == SOURCE_MYSQL ? "ssl-mode=required" : "sslmode=require");
    assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
    snprintf(text, sizeof text, "%s?%s", server_tcp_address(place->server),
             place->kind == SOURCE_MYSQL ? "ssl-mode=disabled" : "sslmode=disable");
    opens(text);
    if (place->kind == SOURCE_MYSQL) {
        snprintf(text, sizeof text, "%s?ssl-mode=verify", server_tcp_address(place->server));
        assert_int_equal(try_open(text, &sql), WEIR_E_SYSTEM);
        snprintf(text, sizeof text, "mysql://weir:%s@127.0.0.1:%u", SERVER_PASSWORD_ENCODED, server_port(place->server));
        assert_int_equal(try_open(text, &sql), WEIR_E_INVALID);
        assert_non_null(strstr(error.text, "does not name a database"));
    }
}

static void test_file_is_no_database(void **state)
{
    struct sql *sql = NULL;
    (void)state;
    assert_int_equal(try_open("file:rules.yaml", &sql), WEIR_E_INVALID);
}

/* ---- patience ---- */

struct job {
    struct sql *sql;
    const char *statement; /* NULL: begin a change */
    int r;
    struct weir_error error;
};

static void *work(void *data)
{
    struct job *job = data;
    job->r = job->statement ? sql_run(job->sql, job->statement, NULL, 0, NULL, NULL, NULL, &job->error)
                            : sql_begin(job->sql, SQL_CHANGE, &job->error);
    return NULL;
}

static void start_all(struct job *jobs, pthread_t *threads, size_t count, void *(*run_one)(void *))
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_one, &jobs[i]), 0);
}

static void join_all(const pthread_t *threads, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* A statement that does not end, and the lock of somebody who does not finish. */
static void test_deadlines(void **state)
{
    static const char *const endless[] = {
        [SOURCE_SQLITE] = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        /* SLEEP is not always woken when its time is over. */
        [SOURCE_MYSQL] = "SELECT count(*) FROM information_schema.COLUMNS a, information_schema.COLUMNS b, "
                         "information_schema.COLUMNS c",
        [SOURCE_POSTGRES] = "SELECT pg_sleep(600)",
    };
    size_t count;
    struct place *here = places_here(&count);
    struct sql *holders[3];
    struct job slow[3] = { 0 }, locked[3] = { 0 };
    pthread_t threads[6];
    int64_t start_us = clock_steady_us();
    (void)state;
    for (size_t i = 0; i < count; i++) {
        holders[i] = place_connect(&here[i]);
        slow[i] = (struct job){ .sql = place_connect(&here[i]), .statement = endless[here[i].kind] };
        locked[i] = (struct job){ .sql = place_connect(&here[i]) };
        assert_int_equal(sql_begin(holders[i], SQL_CHANGE, &error), 0);
    }
    start_all(slow, threads, count, work);
    start_all(locked, threads + count, count, work);
    join_all(threads, 2 * count);
    assert_true(clock_steady_us() - start_us < PATIENCE_MS * 1000LL);
    for (size_t i = 0; i < count; i++) {
        assert_true(slow[i].r < 0 && locked[i].r < 0);
        if (sql_lost(slow[i].sql) || sql_lost(locked[i].sql))
            fail_msg("lost: %s; %s", slow[i].error.text, locked[i].error.text);
        assert_non_null(strstr(slow[i].error.text, here[i].kind == SOURCE_POSTGRES ? "timeout" : "no answer within"));
        assert_int_equal(run(slow[i].sql, "SELECT 1"), 0);
        assert_non_null(strstr(locked[i].error.text, here[i].kind == SOURCE_SQLITE ? "locked" : "somebody else"));
        assert_int_equal(sql_commit(holders[i], &error), 0);
        work(&locked[i]);
        assert_int_equal(locked[i].r, 0);
        assert_int_equal(sql_commit(locked[i].sql, &error), 0);
        sql_close(slow[i].sql);
        sql_close(locked[i].sql);
        sql_close(holders[i]);
    }
}

static void *open_one(void *data)
{
    struct job *job = data;
    struct source_address address;
    job->r = address_read(job->statement, &address, &job->error);
    if (job->r == 0) {
        job->r = sql_open(&job->sql, &address, &job->error);
        address_done(&address);
    }
    return NULL;
}

/* A server that stands still: neither a statement nor a new connection waits for ever. */
static void test_frozen(void **state)
{
    size_t count;
    struct place *here = places_here(&count);
    struct job running[3] = { 0 }, opening[6] = { 0 };
    pthread_t threads[9];
    int64_t start_us = clock_steady_us();
    (void)state;
    here++; /* SQLite is no server */
    count--;
    for (size_t i = 0; i < count; i++) {
        running[i] = (struct job){ .sql = place_connect(&here[i]), .statement = "SELECT 1" };
        opening[2 * i].statement = server_address(here[i].server);
        opening[2 * i + 1].statement = server_tcp_address(here[i].server);
        assert_true(server_freeze(here[i].server, true));
    }
    start_all(running, threads, count, work);
    start_all(opening, threads + count, 2 * count, open_one);
    join_all(threads, 3 * count);
    assert_true(clock_steady_us() - start_us < PATIENCE_MS * 1000LL);
    for (size_t i = 0; i < count; i++) {
        assert_true(server_freeze(here[i].server, false));
        assert_true(running[i].r < 0 && opening[2 * i].r < 0 && opening[2 * i + 1].r < 0);
        assert_true(sql_lost(running[i].sql));
        sql_close(running[i].sql);
        opens(here[i].address);
    }
}

/* ---- gone ---- */

static void test_killed(void **state)
{
    struct place *place = *state;
    struct sql *sql = NULL;
    needs_server(place);
    struct sql *idle = place_connect(place), *busy = place_connect(place), *waiting = place_connect(place);
    run(idle, "DROP TABLE IF EXISTS kept");
    assert_int_equal(run(idle, "CREATE TABLE kept (n int)"), 0);
    assert_int_equal(run(idle, "INSERT INTO kept (n) VALUES (1)"), 0);
    assert_int_equal(sql_begin(busy, SQL_CHANGE, &error), 0);
    assert_int_equal(run(busy, "INSERT INTO kept (n) VALUES (2)"), 0);
    assert_int_equal(sql_listen(waiting, &error), 0);
    assert_true(server_kill(place->server));

    assert_int_equal(run(idle, "SELECT n FROM kept"), WEIR_E_SYSTEM);
    assert_true(sql_lost(idle));
    assert_int_equal(run(idle, "SELECT n FROM kept"), WEIR_E_SYSTEM);
    assert_int_equal(sql_commit(busy, &error), WEIR_E_SYSTEM);
    assert_true(sql_lost(busy));
    sql_rollback(busy);
    if (place->kind == SOURCE_POSTGRES) {
        assert_true(sql_wait(waiting, 30000, -1, &error) < 0);
        assert_true(sql_lost(waiting));
    }
    assert_int_equal(try_open(place->address, &sql), WEIR_E_SYSTEM);
    assert_int_equal(try_open(server_tcp_address(place->server), &sql), WEIR_E_SYSTEM);
    sql_close(idle);
    sql_close(busy);
    sql_close(waiting);

    assert_true(server_restart(place->server));
    sql = place_connect(place);
    uint64_t changed = 0;
    assert_int_equal(sql_run(sql, "DELETE FROM kept", NULL, 0, NULL, NULL, &changed, &error), 0);
    assert_int_equal(changed, 1);
    sql_close(sql);
}

/* SQLite goes on with a file that has no name any more; those who put another there mean that one. */
static void test_replaced(void **state)
{
    (void)state;
    char path[200], moved[200], text[220];
    struct sql *sql = NULL;
    struct source_address address;
    snprintf(path, sizeof path, "%s/replaced.db", places_folder());
    snprintf(moved, sizeof moved, "%s/moved.db", places_folder());
    snprintf(text, sizeof text, "sqlite:%s", path);
    assert_int_equal(address_read(text, &address, &error), 0);
    assert_int_equal(sql_create(&address, &error), 0);
    assert_int_equal(sql_create(&address, &error), 0);
    assert_int_equal(try_open(text, &sql), 0);
    assert_int_equal(run(sql, "CREATE TABLE t (n int)"), 0);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(run(sql, "SELECT n FROM t"), WEIR_E_SYSTEM);
    assert_true(sql_lost(sql));
    assert_non_null(strstr(error.text, "replaced"));
    sql_close(sql);
    assert_int_equal(sql_create(&address, &error), 0);
    assert_int_equal(try_open(text, &sql), 0);
    assert_true(run(sql, "SELECT n FROM t") < 0);
    sql_close(sql);
    address_done(&address);
}

/* One who may only read the file reads it. root may write everything, and is nobody meanwhile. */
static void test_read_only_file(void **state)
{
    char path[200], text[220];
    struct sql *sql = NULL;
    struct source_address address;
    bool root = geteuid() == 0;
    (void)state;
    snprintf(path, sizeof path, "%s/protected.db", places_folder());
    snprintf(text, sizeof text, "sqlite:%s", path);
    assert_int_equal(address_read(text, &address, &error), 0);
    assert_int_equal(sql_create(&address, &error), 0);
    assert_int_equal(try_open(text, &sql), 0);
    assert_int_equal(run(sql, "CREATE TABLE t (n int)"), 0);
    sql_close(sql);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(places_folder(), 0755), 0);
    assert_int_equal(root ? seteuid(65534) : 0, 0);
    int opened = try_open(text, &sql), read = -1, changed = 0;
    if (opened == 0) {
        read = run(sql, "SELECT n FROM t");
        changed = run(sql, "DELETE FROM t");
        sql_close(sql);
    }
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(opened, 0);
    assert_int_equal(read, 0);
    assert_int_equal(changed, WEIR_E_SYSTEM);
    assert_non_null(strstr(error.text, "is read-only"));
    address_done(&address);
}

static const struct place_case cases[] = {
    { "passwords", test_passwords, ON_SERVERS },
    { "wrong places", test_wrong_places },
    { "a file is no database", test_file_is_no_database, ON_SQLITE },
    { "deadlines", test_deadlines, AT_ONCE },
    { "servers that stand still", test_frozen, AT_ONCE },
    { "a server that was killed", test_killed, ON_SERVERS },
    { "a file that was replaced", test_replaced, ON_SQLITE },
    { "a file that may only be read", test_read_only_file, ON_SQLITE },
};

int main(void)
{
    return places_run(cases, sizeof cases / sizeof *cases);
}
