/* A counts.db in a folder of its own, for tests. */
#ifndef TESTS_SERVE_COUNTS_PLACE_H
#define TESTS_SERVE_COUNTS_PLACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <sqlite3.h>

#include "serve/counts_db.h"

#define NOON INT64_C(1800014400) /* 2027-01-15T12:00:00Z, a multiple of 300 */

static const struct hash_key key = { 1, 2 };

struct place {
    char folder[40], path[60];
    struct counts_db *db;
};

static inline void open_db(struct place *place, const struct counts_bounds *bounds)
{
    assert_int_equal(counts_db_new(&place->db, place->path, bounds, &key), 0);
}

static inline void reopen(struct place *place, const struct counts_bounds *bounds)
{
    counts_db_free(place->db);
    open_db(place, bounds);
}

static inline struct place *place_new(const struct counts_bounds *bounds)
{
    struct place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    snprintf(place->folder, sizeof place->folder, "/tmp/weir-counts-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->path, sizeof place->path, "%s/counts.db", place->folder);
    open_db(place, bounds);
    return place;
}

static inline void place_free(struct place *place)
{
    char command[100];
    counts_db_free(place->db);
    chmod(place->folder, 0700);
    snprintf(command, sizeof command, "rm -r %s", place->folder);
    assert_int_equal(system(command), 0);
    free(place);
}

/* A step in which each of these rules, "a b c", passed n, n + 1, …; all decisions together: n allowed, 1 refused. */
static inline struct counts_step *step_of(int64_t at_s, const char *rules, uint64_t n)
{
    struct counts_step *step = calloc(1, sizeof *step + 20000 * sizeof step->rules[0]);
    assert_non_null(step);
    step->at_s = at_s;
    step->all = (struct tally_all){ .allowed = n, .refused = 1 };
    step->gauges = (struct counts_gauges){ .table_fill = 0.25, .store_up = -1, .holds = n };
    for (sv rest = weir_str(rules); rest.len > 0;) {
        sv id = sv_cut(&rest, ' ');
        struct counts_rule *rule = &step->rules[step->count];
        snprintf(rule->id, sizeof rule->id, "%.*s", SV_FMT(id));
        rule->said.passed = n + step->count++;
    }
    return step;
}

static inline int try_to_add(struct place *place, int64_t at_s, const char *rules, uint64_t n, struct weir_error *error)
{
    struct counts_step *step = step_of(at_s, rules, n);
    int r = counts_db_add(place->db, step, NULL, error);
    free(step);
    return r;
}

static inline void add(struct place *place, int64_t at_s, const char *rules, uint64_t n)
{
    struct weir_error error;
    if (try_to_add(place, at_s, rules, n, &error) < 0)
        fail_msg("%s", error.text);
}

static inline const char *read_query(struct place *place, const struct counts_query *query)
{
    static char text[4000];
    struct weir_error error;
    struct buf out;
    buf_init(&out, 32 << 20);
    if (counts_db_read(place->db, query, &out, &error) < 0)
        fail_msg("%s", error.text);
    assert_false(out.failed);
    snprintf(text, sizeof text, "%s", out.ptr);
    buf_done(&out);
    return text;
}

/* The values of one column: "null,1,2". */
static inline const char *column(const char *text, const char *name)
{
    static char values[3000];
    char head[40];
    snprintf(head, sizeof head, "\"%s\": [", name);
    const char *at = strstr(text, head);
    if (!at)
        fail_msg("there is no %s in %s", name, text);
    at += strlen(head);
    snprintf(values, sizeof values, "%.*s", (int)strcspn(at, "]"), at);
    return values;
}

static inline const char *all(struct place *place, const char *name, int64_t start_s, unsigned step_s, size_t points)
{
    return column(read_query(place, &(struct counts_query){ .start_s = start_s, .step_s = step_s, .points = points }),
                  name);
}

static inline const char *passed(struct place *place, const char *rule, int64_t start_s, unsigned step_s, size_t points)
{
    sv id = weir_str(rule);
    struct counts_query query = { .start_s = start_s, .step_s = step_s, .points = points, .rule_count = 1, .rules = &id };
    return column(read_query(place, &query), "passed");
}

static inline int64_t number(struct place *place, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    int status = sqlite3_step(stmt);
    int64_t result = status == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return result;
}

static inline void run_sql(struct place *place, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

#endif
