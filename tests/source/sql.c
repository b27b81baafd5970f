/* The same cases on SQLite, MariaDB and PostgreSQL. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "places.h"
#include "source/sql.h"

enum { LONG_BYTES = 1 << 20 };

static struct weir_error error;

static void good(int r)
{
    if (r < 0)
        fail_msg("%s", error.text);
}

static void run(struct sql *sql, const char *statement)
{
    good(sql_run(sql, statement, NULL, 0, NULL, NULL, NULL, &error));
}

/* ---- values ---- */

/* One value that has to come back. */
static int is_value(const struct sql_value *values, size_t count, void *data, struct weir_error *e)
{
    const struct sql_value *wanted = data;
    (void)e;
    assert_int_equal(count, 1);
    assert_int_equal(values[0].null, wanted->null);
    assert_true(wanted->null || sv_eq(values[0].text, wanted->text));
    return 0;
}

static int count_rows(const struct sql_value *values, size_t count, void *data, struct weir_error *e)
{
    (void)values;
    (void)count;
    (void)e;
    ++*(int *)data;
    return 0;
}

static void expect(struct sql *sql, const char *statement, const char *text)
{
    struct sql_value wanted = { .text = weir_str(text) };
    good(sql_run(sql, statement, NULL, 0, is_value, &wanted, NULL, &error));
}

static void make_texts(struct sql *sql)
{
    run(sql, "DROP TABLE IF EXISTS texts");
    run(sql, sql_kind(sql) == SOURCE_MYSQL ? "CREATE TABLE texts (n int PRIMARY KEY, v longtext) CHARACTER SET utf8mb4"
                                           : "CREATE TABLE texts (n int PRIMARY KEY, v text)");
}

static int put(struct sql *sql, const char *number, struct sql_value value)
{
    struct sql_value params[] = { { .text = weir_str(number) }, value };
    return sql_run(sql, "INSERT INTO texts (n, v) VALUES (?, ?)", params, 2, NULL, NULL, NULL, &error);
}

static void get(struct sql *sql, const char *number, struct sql_value *wanted)
{
    struct sql_value param = { .text = weir_str(number) };
    good(sql_run(sql, "SELECT v FROM texts WHERE n = ?", &param, 1, is_value, wanted, NULL, &error));
}

static void test_values(void **state)
{
    struct sql *sql = place_connect(*state);
    char *long_text = malloc(LONG_BYTES), number[16];
    memset(long_text, '\'', LONG_BYTES);
    struct sql_value values[] = {
        { .text = SV("plain") },
        { .text = SV("") },
        { .null = true },
        { .text = SV("NULL") },
        { .text = SV("'; DROP TABLE texts; --") },
        { .text = SV("\\' \\\\ \" ` ? $1 %s {} \r\n\t") },
        { .text = SV("\xf0\x9f\x8c\x8a \xe4\xb8\xad\xe6\x96\x87") },
        { .text = sv_of(long_text, LONG_BYTES) },
        { .text = sv_of(long_text, 255) },
        { .text = sv_of(long_text, 256) },
        { .text = sv_of(long_text, 257) },
    };
    make_texts(sql);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(number, sizeof number, "%zu", i);
        good(put(sql, number, values[i]));
        get(sql, number, &values[i]);
    }
    free(long_text);
    sql_close(sql);
}

/* Kept as they are, or refused with a reason; never cut, never the end of the connection. */
static void test_hostile_bytes(void **state)
{
    struct sql *sql = place_connect(*state);
    struct sql_value nul = { .text = SV("a\0b") }, broken = { .text = SV("a\xff\xc3(") };
    make_texts(sql);
    if (sql_kind(sql) == SOURCE_POSTGRES) {
        assert_int_equal(put(sql, "1", nul), WEIR_E_INVALID);
        assert_non_null(strstr(error.text, "NUL"));
    } else {
        good(put(sql, "1", nul));
        get(sql, "1", &nul);
    }
    if (sql_kind(sql) == SOURCE_SQLITE) {
        good(put(sql, "2", broken));
        get(sql, "2", &broken);
    } else {
        assert_int_equal(put(sql, "2", broken), WEIR_E_SYSTEM);
        assert_false(sql_lost(sql));
        expect(sql, "SELECT count(*) FROM texts WHERE n = 2", "0");
    }
    sql_close(sql);
}

static int is_cut(const struct sql_value *values, size_t count, void *data, struct weir_error *e)
{
    (void)e;
    assert_int_equal(count, 2);
    assert_int_equal(values[0].text.len, SQL_VALUE_MAX + 1);
    assert_true(sv_eq(values[1].text, SV("5")));
    ++*(int *)data;
    return 0;
}

static void test_longest(void **state)
{
    struct sql *sql = place_connect(*state);
    size_t len = SQL_VALUE_MAX + 100000;
    char *text = malloc(len);
    int rows = 0;
    memset(text, 'x', len);
    make_texts(sql);
    good(put(sql, "5", (struct sql_value){ .text = sv_of(text, len) }));
    good(sql_run(sql, "SELECT v, n FROM texts", NULL, 0, is_cut, &rows, NULL, &error));
    assert_int_equal(rows, 1);
    free(text);
    sql_close(sql);
}

/* Numbers are texts too, and what is compared with them. */
static void test_numbers(void **state)
{
    struct sql *sql = place_connect(*state);
    struct sql_value params[] = { { .text = SV("7") }, { .text = SV("-9223372036854775808") }, { .null = true } };
    struct sql_value two[] = { { .text = SV("-5") }, { .text = SV("1") } };
    uint64_t changed = 99;
    int rows = 0;
    run(sql, "DROP TABLE IF EXISTS numbers");
    run(sql, "CREATE TABLE numbers (a int, b bigint, c int)");
    for (int i = 0; i < 3; i++)
        good(sql_run(sql, "INSERT INTO numbers (a, b, c) VALUES (?, ?, ?)", params, 3, NULL, NULL, &changed, &error));
    assert_int_equal(changed, 1);
    expect(sql, "SELECT DISTINCT b FROM numbers WHERE c IS NULL", "-9223372036854775808");
    good(sql_run(sql, "SELECT a FROM numbers WHERE b < ? LIMIT ?", two, 2, count_rows, &rows, NULL, &error));
    assert_int_equal(rows, 1);
    good(sql_run(sql, "UPDATE numbers SET a = 7", NULL, 0, NULL, NULL, &changed, &error));
    assert_int_equal(changed, 3); /* also where they had that value */
    good(sql_run(sql, "UPDATE numbers SET c = 1 WHERE a = ?", params, 1, NULL, NULL, &changed, &error));
    assert_int_equal(changed, 3);
    good(sql_run(sql, "SELECT a FROM numbers", NULL, 0, count_rows, &rows, &changed, &error));
    assert_int_equal(changed, 0);
    good(sql_run(sql, "DELETE FROM numbers WHERE a = 8", NULL, 0, NULL, NULL, &changed, &error));
    assert_int_equal(changed, 0);
    assert_true(sql_run(sql, "INSERT INTO numbers (a) VALUES (?)", &params[1], 1, NULL, NULL, NULL, &error) < 0 ||
                sql_kind(sql) == SOURCE_SQLITE); /* which keeps what it is given */
    sql_close(sql);
}

/* ---- statements ---- */

static int stop_at_two(const struct sql_value *values, size_t count, void *data, struct weir_error *e)
{
    (void)values;
    (void)count;
    return ++*(int *)data == 2 ? err_set(e, WEIR_E_BLANK, "that is enough") : 0;
}

static int run_inside(const struct sql_value *values, size_t count, void *data, struct weir_error *e)
{
    (void)values;
    (void)count;
    return sql_run(data, "SELECT 1", NULL, 0, NULL, NULL, NULL, e);
}

static void test_rows(void **state)
{
    struct sql *sql = place_connect(*state);
    char number[16];
    int rows = 0;
    make_texts(sql);
    good(sql_begin(sql, SQL_CHANGE, &error));
    for (int i = 0; i < 1000; i++) {
        snprintf(number, sizeof number, "%d", i);
        good(put(sql, number, (struct sql_value){ .text = SV("x") }));
    }
    good(sql_commit(sql, &error));
    assert_int_equal(sql_run(sql, "SELECT v FROM texts", NULL, 0, stop_at_two, &rows, NULL, &error), WEIR_E_BLANK);
    assert_string_equal(error.text, "that is enough");
    assert_int_equal(rows, 2);
    assert_int_equal(sql_run(sql, "SELECT v FROM texts", NULL, 0, run_inside, sql, NULL, &error), WEIR_E_INVALID);
    rows = 0;
    good(sql_run(sql, "SELECT v FROM texts", NULL, 0, count_rows, &rows, NULL, &error));
    assert_int_equal(rows, 1000);
    run(sql, "SELECT v FROM texts"); /* with nobody to look at them */
    expect(sql, "SELECT count(*) FROM texts", "1000");
    sql_close(sql);
}

static void test_wrong_statements(void **state)
{
    struct place *place = *state;
    struct sql *sql = place_connect(place);
    struct sql_value params[SQL_PARAMS_MAX + 1] = { 0 };
    const char *const wrong[] = { "SELEC 1", "SELECT 1 FROM nowhere", "SELECT \"nothing\" FROM texts", "" };
    make_texts(sql);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int rows = 0;
        int r = sql_run(sql, wrong[i], NULL, 0, count_rows, &rows, NULL, &error);
        assert_true(r < 0 || wrong[i][0] == '\0');
        assert_false(sql_lost(sql));
        assert_null(strchr(error.text, '\n'));
        assert_int_equal(strncmp(error.text, place_shown(place), strlen(place_shown(place))), 0);
    }
    assert_true(sql_run(sql, "SELECT n FROM texts WHERE n = ?", params, 2, NULL, NULL, NULL, &error) < 0);
    assert_true(sql_run(sql, "SELECT n FROM texts WHERE n = ? AND v = ?", params, 1, NULL, NULL, NULL, &error) < 0);
    assert_int_equal(sql_run(sql, "SELECT 1", params, SQL_PARAMS_MAX + 1, NULL, NULL, NULL, &error), WEIR_E_INVALID);
    good(put(sql, "1", (struct sql_value){ .text = SV("x") }));
    assert_true(put(sql, "1", (struct sql_value){ .text = SV("y") }) < 0);
    expect(sql, "SELECT v FROM texts", "x");
    sql_close(sql);
}

/* ---- transactions ---- */

static void test_transactions(void **state)
{
    struct sql *a = place_connect(*state), *b = place_connect(*state);
    make_texts(a);
    good(sql_begin(a, SQL_CHANGE, &error));
    assert_int_equal(sql_begin(a, SQL_READ, &error), WEIR_E_INVALID);
    good(put(a, "1", (struct sql_value){ .text = SV("x") }));
    sql_rollback(a);
    sql_rollback(a);
    assert_int_equal(sql_commit(a, &error), WEIR_E_INVALID);
    expect(b, "SELECT count(*) FROM texts", "0");

    /* What was read first stays. */
    good(sql_begin(a, SQL_READ, &error));
    expect(a, "SELECT count(*) FROM texts", "0");
    good(put(b, "1", (struct sql_value){ .text = SV("x") }));
    expect(a, "SELECT count(*) FROM texts", "0");
    good(sql_commit(a, &error));
    expect(a, "SELECT count(*) FROM texts", "1");

    /* A failed statement in the middle, and the whole of it undone. */
    good(sql_begin(a, SQL_CHANGE, &error));
    good(put(a, "2", (struct sql_value){ .text = SV("x") }));
    assert_true(put(a, "2", (struct sql_value){ .text = SV("x") }) < 0);
    if (sql_kind(a) == SOURCE_POSTGRES)
        assert_int_equal(sql_commit(a, &error), WEIR_E_SYSTEM);
    sql_rollback(a);
    expect(b, "SELECT count(*) FROM texts", "1");
    good(sql_begin(b, SQL_CHANGE, &error));
    good(sql_commit(b, &error));
    sql_close(a);
    sql_close(b);
    sql_rollback(NULL);
    sql_close(NULL);
}

/* A reader may not write. */
static void test_reading_only(void **state)
{
    struct sql *sql = place_connect(*state);
    make_texts(sql);
    good(sql_begin(sql, SQL_READ, &error));
    assert_true(put(sql, "1", (struct sql_value){ .text = SV("x") }) < 0);
    sql_rollback(sql);
    expect(sql, "SELECT count(*) FROM texts", "0");
    sql_close(sql);
}

static int read_number(const struct sql_value *values, size_t count, void *data, struct weir_error *e)
{
    (void)count;
    (void)e;
    *(int *)data = atoi(values[0].text.ptr);
    return 0;
}

struct adder {
    struct sql *sql;
    int r;
    struct weir_error error;
};

enum { ADDERS = 3, ADDITIONS = 20 };

static void *add(void *data)
{
    struct adder *adder = data;
    struct weir_error *e = &adder->error;
    for (int i = 0; i < ADDITIONS && adder->r >= 0; i++) {
        int number = 0;
        char text[16];
        adder->r = sql_begin(adder->sql, SQL_CHANGE, e);
        if (adder->r == 0)
            adder->r = sql_run(adder->sql, "SELECT n FROM texts", NULL, 0, read_number, &number, NULL, e);
        snprintf(text, sizeof text, "%d", number + 1);
        struct sql_value param = { .text = weir_str(text) };
        if (adder->r == 0)
            adder->r = sql_run(adder->sql, "UPDATE texts SET n = ?", &param, 1, NULL, NULL, NULL, e);
        if (adder->r == 0)
            adder->r = sql_commit(adder->sql, e);
    }
    return NULL;
}

/* Nobody's change is lost, and nobody fails for another's sake. */
static void test_many_change(void **state)
{
    struct sql *sql = place_connect(*state);
    struct adder adders[ADDERS] = { 0 };
    pthread_t threads[ADDERS];
    make_texts(sql);
    good(put(sql, "0", (struct sql_value){ .null = true }));
    for (int i = 0; i < ADDERS; i++) {
        adders[i].sql = place_connect(*state);
        assert_int_equal(pthread_create(&threads[i], NULL, add, &adders[i]), 0);
    }
    for (int i = 0; i < ADDERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < ADDERS; i++) {
        if (adders[i].r < 0)
            fail_msg("%s", adders[i].error.text);
        sql_close(adders[i].sql);
    }
    expect(sql, "SELECT n FROM texts", "60");
    sql_close(sql);
}

/* ---- tables ---- */

static void quoted(struct sql *sql, const char *statement)
{
    run(sql, statement); /* "…" is a name in all of them: MariaDB is told so */
}

static void test_tables(void **state)
{
    struct sql *sql = place_connect(*state);
    struct sql_table table = { 0 };
    quoted(sql, "DROP TABLE IF EXISTS \"Throttled_Calls\"");
    good(sql_table(sql, "THROTTLED_CALLS", &table, &error));
    assert_false(table.there);
    assert_null(sql_column(&table, "throttle_id"));
    quoted(sql, "CREATE TABLE \"Throttled_Calls\" (\"Throttle_ID\" int, max_locks int, \"a\"\"b`c '?\" int)");
    good(sql_table(sql, "THROTTLED_CALLS", &table, &error));
    assert_true(table.there);
    assert_int_equal(table.column_count, 3);
    assert_non_null(sql_column(&table, "throttle_id"));
    assert_null(sql_column(&table, "throttle"));
    assert_string_equal(table.columns[2].name, "a\"b`c '?");

    char statement[500];
    struct sql_value params[] = { { .text = SV("1") }, { .text = SV("2") }, { .text = SV("3") } };
    snprintf(statement, sizeof statement, "INSERT INTO %s (%s, %s, %s) VALUES (?, ?, ?)", table.name,
             sql_column(&table, "throttle_id"), sql_column(&table, "max_locks"), table.columns[2].quoted);
    good(sql_run(sql, statement, params, 3, NULL, NULL, NULL, &error));
    quoted(sql, "DROP TABLE \"Throttled_Calls\"");
    sql_close(sql);
}

/* Two tables that may be meant: neither is taken. */
static void test_ambiguous(void **state)
{
    struct sql *sql = place_connect(*state);
    struct sql_table table = { 0 };
    quoted(sql, "CREATE TABLE \"Twice\" (a int)");
    quoted(sql, "CREATE TABLE \"TWICE\" (a int)");
    assert_int_equal(sql_table(sql, "twice", &table, &error), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "Twice"));
    assert_non_null(strstr(error.text, "TWICE"));
    quoted(sql, "DROP TABLE \"Twice\"");
    good(sql_table(sql, "twice", &table, &error));
    assert_true(table.there);
    quoted(sql, "DROP TABLE \"TWICE\"");
    sql_close(sql);
}

static void test_schemas(void **state)
{
    struct sql *sql = place_connect(*state);
    struct sql_table table = { 0 };
    if (sql_kind(sql) == SOURCE_POSTGRES) {
        run(sql, "CREATE SCHEMA \"First\"");
        run(sql, "CREATE TABLE \"First\".\"PLACED\" (a int)");
        run(sql, "CREATE TABLE placed (b int, c int)");
        good(sql_table(sql, "placed", &table, &error));
        assert_string_equal(table.name, "\"public\".\"placed\"");
        run(sql, "SET search_path = \"First\", public");
        good(sql_table(sql, "placed", &table, &error));
        assert_string_equal(table.name, "\"First\".\"PLACED\"");
        assert_int_equal(table.column_count, 1);
        run(sql, "DROP TABLE placed, \"First\".\"PLACED\"");
        run(sql, "DROP SCHEMA \"First\"");
    } else if (sql_kind(sql) == SOURCE_MYSQL) {
        run(sql, "CREATE DATABASE other");
        run(sql, "CREATE TABLE other.placed (a int)");
        good(sql_table(sql, "placed", &table, &error));
        assert_false(table.there);
        run(sql, "DROP DATABASE other");
    }
    sql_close(sql);
}

/* ---- changes ---- */

static void version(struct sql *sql, const struct sql_table tables[2], char ret[200])
{
    struct buf out;
    buf_init(&out, 199);
    good(sql_version(sql, tables, 2, &out, &error));
    strcpy(ret, buf_sv(&out).ptr);
    buf_done(&out);
}

static void test_version(void **state)
{
    static const char *const changes[] = {
        "INSERT INTO texts (n, v) VALUES (1, NULL)",
        "UPDATE texts SET v = 'NULL'",
        "UPDATE texts SET v = ''",
        "INSERT INTO texts (n, v) VALUES (2, 'a')",
        "UPDATE texts SET v = 'b' WHERE n = 1",
        "UPDATE texts SET v = CASE v WHEN 'a' THEN 'b' ELSE 'a' END",
        "UPDATE texts SET n = n + 10",
        "DELETE FROM texts WHERE n = 11",
        "DELETE FROM texts",
    };
    struct sql *own = place_connect(*state), *other = place_connect(*state);
    struct sql_table tables[2] = { 0 };
    char before[200], after[200];
    make_texts(other);
    good(sql_table(own, "texts", &tables[0], &error));
    good(sql_table(own, "absent", &tables[1], &error));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        version(own, tables, before);
        version(own, tables, after);
        assert_string_equal(before, after);
        run(i % 2 ? own : other, changes[i]);
        version(own, tables, after);
        assert_string_not_equal(before, after);
    }
    sql_close(own);
    sql_close(other);
}

static void test_listen(void **state)
{
    struct sql *own = place_connect(*state), *other = place_connect(*state);
    int wake[2];
    assert_int_equal(pipe(wake), 0);
    good(sql_listen(own, &error));
    assert_int_equal(sql_wait(own, 0, -1, &error), 0);
    assert_int_equal(sql_wait(own, 50, -1, &error), 0);
    if (sql_kind(own) == SOURCE_POSTGRES) {
        run(other, "NOTIFY weir_rules");
        assert_int_equal(sql_wait(own, 30000, wake[0], &error), 1);
        assert_int_equal(sql_wait(own, 0, wake[0], &error), 0);
        run(other, "NOTIFY weir_rules, 'x'");
        run(own, "SELECT 1"); /* it may come with the answer to something else */
        assert_int_equal(sql_wait(own, 30000, -1, &error), 1);
        run(other, "NOTIFY others");
        assert_int_equal(sql_wait(own, 50, -1, &error), 0);
    }
    assert_int_equal(write(wake[1], "", 1), 1);
    assert_int_equal(sql_wait(own, 600000, wake[0], &error), 0);
    close(wake[0]);
    close(wake[1]);
    sql_close(own);
    sql_close(other);
}

static const struct place_case cases[] = {
    { "values come back as they were", test_values },
    { "hostile bytes are data", test_hostile_bytes },
    { "a value that is too long is cut visibly", test_longest },
    { "numbers", test_numbers },
    { "rows", test_rows },
    { "wrong statements", test_wrong_statements },
    { "transactions", test_transactions },
    { "reading only", test_reading_only, ON_SERVERS },
    { "many change at once", test_many_change },
    { "tables are found in any case", test_tables },
    { "ambiguous tables", test_ambiguous, ON_SERVERS },
    { "schemas", test_schemas, ON_SERVERS },
    { "version", test_version },
    { "listen", test_listen },
};

int main(void)
{
    return places_run(cases, sizeof cases / sizeof *cases);
}
