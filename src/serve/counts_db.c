/* Rows are ordered by time first: a step is written at the end of its table, old ones are removed at its beginning, and
 * their pages are used again. So a step costs few writes, and the file stays as large as its bounds make it. A rule over a
 * month is read by looking it up in each step. */
#include "serve/counts_db.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/instant.h"
#include "serve/counts_lists.h"
#include "serve/counts_lite.h"

enum {
    VERSION = 2,
    FILE_MODE = 0600, /* it has subjects in it */
    PAGE_BYTES = 4096,
    WAL_BYTES_MAX = 8 << 20,
    BUSY_MS = 2000,
    DEADLINE_S = 10,
    PROGRESS_STEPS = 10000, /* of SQLite's machine between two looks at the clock */
    PRUNED_MAX = 100,       /* steps in one call */
    NAME_AGE_S = 3600,      /* how exactly the last use of a name is known */
    OTHER = 0,              /* the number of STATS_OTHER */
    NONE = -1,
};

const struct counts_bounds counts_bounds = { COUNTS_RULES_MAX, COUNTS_STEPS_MAX, COUNTS_COARSE_MAX, COUNTS_NAMES_MAX,
                                             COUNTS_BYTES_MAX };

/* The schema of version 1. `upgrade` brings it to the current version, and upgrades files of version 1 the same way. */
static const char schema[] =
    "CREATE TABLE names (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, last_s INTEGER NOT NULL);"
#define TABLES(step)                                                                                              \
    "CREATE TABLE all_" step " (at_s INTEGER PRIMARY KEY, allowed INTEGER NOT NULL, refused INTEGER NOT NULL, "   \
    "shadow INTEGER NOT NULL, without_rule INTEGER NOT NULL, errors INTEGER NOT NULL, table_fill REAL NOT NULL, " \
    "store_up INTEGER, lease_tokens_held INTEGER NOT NULL, holds INTEGER NOT NULL);"                              \
    "CREATE TABLE rules_" step " (at_s INTEGER NOT NULL, rule INTEGER NOT NULL, passed INTEGER NOT NULL, "        \
    "refused INTEGER NOT NULL, would_refuse INTEGER NOT NULL, PRIMARY KEY (at_s, rule)) WITHOUT ROWID;"
    TABLES("10") TABLES("300");
static const char upgrade[] = "ALTER TABLE rules_10 ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;"
                              "ALTER TABLE rules_300 ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;";

/* The statements of one resolution.
 *
 * `dropped` is the number of steps of ten seconds in the row that counted some rules under STATS_OTHER: in its own row
 * those that there were, in another row those that counted this rule apart. If both are equal, the row has all of the rule.
 */
struct statements {
    const char *add_all, *add_rule, *count_rules, *fold, *remove_folded, *mark_folded;
    const char *count_steps, *ends, *remove_all, *remove_rules;
    const char *read_all, *read_rules; /* a list of numbers follows the latter */
};
#define BUSIEST(step) \
    "SELECT rule FROM rules_" step " WHERE at_s = ?1 AND rule <> 0 ORDER BY passed + refused + would_refuse DESC, rule"
#define STATEMENTS(step)                                                                                                \
    {                                                                                                                   \
        .add_all = "INSERT INTO all_" step " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO UPDATE "   \
                   "SET allowed = allowed + ?2, refused = refused + ?3, shadow = shadow + ?4, "                         \
                   "without_rule = without_rule + ?5, errors = errors + ?6, table_fill = ?7, "                          \
                   "store_up = min(store_up, ?8), lease_tokens_held = ?9, holds = ?10",                                 \
        .add_rule = "INSERT INTO rules_" step " VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET "             \
                    "passed = passed + ?3, refused = refused + ?4, would_refuse = would_refuse + ?5, "                  \
                    "dropped = dropped + ?6",                                                                           \
        .count_rules = "SELECT count(*) FROM rules_" step " WHERE at_s = ?1 AND rule <> 0",                             \
        .fold =                                                                                                         \
            "INSERT INTO rules_" step " SELECT ?1, 0, sum(passed), sum(refused), sum(would_refuse), 0 FROM rules_" step \
            " WHERE at_s = ?1 AND rule <> 0 AND rule NOT IN (" BUSIEST(                                                 \
                step) " LIMIT ?2) "                                                                                     \
                      "ON CONFLICT DO UPDATE SET passed = passed + excluded.passed, refused = refused + "               \
                      "excluded.refused, "                                                                              \
                      "would_refuse = would_refuse + excluded.would_refuse",                                            \
        .remove_folded =                                                                                                \
            "DELETE FROM rules_" step " WHERE at_s = ?1 AND rule <> 0 AND rule NOT IN (" BUSIEST(step) " LIMIT ?2)",    \
        .mark_folded = "UPDATE rules_" step " SET dropped = dropped + 1 WHERE at_s = ?1",                               \
        .count_steps = "SELECT count(*) FROM all_" step, .ends = "SELECT min(at_s), max(at_s) FROM all_" step,          \
        .remove_all = "DELETE FROM all_" step " WHERE at_s = ?1",                                                       \
        .remove_rules = "DELETE FROM rules_" step " WHERE at_s = ?1",                                                   \
        .read_all = "SELECT * FROM all_" step " WHERE at_s >= ?1 AND at_s < ?2 ORDER BY at_s",                          \
        .read_rules =                                                                                                   \
            "SELECT r.at_s, r.rule, r.passed, r.refused, r.would_refuse, r.dropped FROM all_" step                      \
            " a CROSS JOIN rules_" step " r ON r.at_s = a.at_s WHERE a.at_s >= ?1 AND a.at_s < ?2 AND r.rule IN (0,",   \
    }
static const struct statements resolutions[] = { STATEMENTS("10"), STATEMENTS("300") };
static const int64_t steps_s[] = { COUNTS_STEP_S, COUNTS_COARSE_S };
enum { FINE, COARSE, RESOLUTIONS };

struct counts_db {
    char *path;
    struct counts_bounds bounds;
    struct hash_key key;
    sqlite3 *db; /* NULL: closed */
    int64_t deadline_us;
};

static int late(void *data)
{
    const struct counts_db *db = data;
    return clock_steady_us() > db->deadline_us;
}

static void shut(struct counts_db *db)
{
    sqlite3_close_v2(db->db);
    db->db = NULL;
}

/* ---- the file ---- */

static bool is_damaged(int status)
{
    return (status & 0xff) == SQLITE_CORRUPT || (status & 0xff) == SQLITE_NOTADB || (status & 0xff) == SQLITE_ERROR ||
           (status & 0xff) == SQLITE_CONSTRAINT || (status & 0xff) == SQLITE_MISMATCH;
}

/* SQLite's own files beside it belong to it. Only one such file is kept, so that a disk is not filled with them. */
static int put_aside(struct counts_db *db, const char *why, struct weir_error *error)
{
    static const char *const parts[] = { "-wal", "-shm", "" };
    bool moved = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        CLEANUP_FREE char *from = NULL, *to = NULL;
        if (asprintf(&from, "%s%s", db->path, parts[i]) < 0 || asprintf(&to, "%s.damaged%s", db->path, parts[i]) < 0)
            return err_no_memory(error);
        unlink(to);
        moved = rename(from, to) == 0;
    }
    return moved ? err_set(error, WEIR_E_RULES, "%s cannot be used (%s): it is now %s.damaged, and a new file begins",
                           db->path, why, db->path)
                 : err_set(error, WEIR_E_SYSTEM, "%s cannot be used (%s), nor renamed: %s; remove it", db->path, why,
                           strerror(errno));
}

/* Says what failed, and closes the file. Returns WEIR_E_RULES if a new file begins: a second try may do. */
static int fail(struct counts_db *db, int status, struct weir_error *error)
{
    char why[200];
    bool told = db->db && (sqlite3_errcode(db->db) & 0xff) == (status & 0xff);
    snprintf(why, sizeof why, "%s", told ? sqlite3_errmsg(db->db) : sqlite3_errstr(status));
    shut(db);
    if (is_damaged(status))
        return put_aside(db, why, error);
    if ((status & 0xff) == SQLITE_INTERRUPT)
        snprintf(why, sizeof why, "it took more than %d s", DEADLINE_S);
    return err_set(error, WEIR_E_SYSTEM, "%s: %s", db->path, why);
}

/* Creates what the file lacks: all of it, or what came after its version. */
static int complete_file(struct counts_db *db, int64_t version)
{
    char set[40];
    snprintf(set, sizeof set, "PRAGMA user_version = %d", VERSION);
    int status = version < 1 ? lite_run(db->db, schema) : SQLITE_OK;
    if (status == SQLITE_OK)
        status = lite_run(db->db, upgrade);
    if (status == SQLITE_OK)
        status = lite_run(db->db, lists_schema);
    return status == SQLITE_OK ? lite_run(db->db, set) : status;
}

static int begin_file(struct counts_db *db)
{
    int64_t version, tables;
    int status = lite_run_with(db->db, "PRAGMA user_version", NULL, 0, &version, 1);
    if (status == SQLITE_OK)
        status = lite_run_with(db->db, "SELECT count(*) FROM sqlite_master", NULL, 0, &tables, 1);
    if (status != SQLITE_OK || version == VERSION)
        return status;
    if (version < 0 || version > VERSION || (version == 0 && tables > 0))
        return SQLITE_NOTADB; /* somebody else's, or of a later version */
    status = lite_run(db->db, "BEGIN IMMEDIATE");
    if (status == SQLITE_OK)
        status = lite_run_with(db->db, "PRAGMA user_version", NULL, 0, &version,
                               1); /* another process may have made it meanwhile */
    if (status == SQLITE_OK && version < VERSION)
        status = complete_file(db, version);
    return status == SQLITE_OK ? lite_run(db->db, "COMMIT") : status;
}

static int set_up(struct counts_db *db)
{
    char pragmas[300];
    snprintf(pragmas, sizeof pragmas,
             "PRAGMA page_size = %d; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
             "PRAGMA journal_size_limit = %d; PRAGMA max_page_count = %lld",
             PAGE_BYTES, WAL_BYTES_MAX, (long long)(db->bounds.bytes / PAGE_BYTES));
    sqlite3_db_config(db->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_busy_timeout(db->db, BUSY_MS);
    sqlite3_progress_handler(db->db, PROGRESS_STEPS, late, db);
    int status = lite_run(db->db, pragmas);
    return status == SQLITE_OK ? begin_file(db) : status;
}

/* SQLite would let others read a new file. Its further files get the mode of this one, unless they are there already: from
 * an earlier version, or copied. The file is closed before SQLite opens it: closing it later would release the locks of
 * SQLite. */
static bool make_private(const char *path)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    bool done = true;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char name[PATH_MAX + 8];
        int len = snprintf(name, sizeof name, "%s%s", path, ends[i]);
        done = done && len < (int)sizeof name && (chmod(name, FILE_MODE) == 0 || errno == ENOENT);
    }
    return done;
}

/* Whoever removed the file wants a new one. */
static int need_file(struct counts_db *db, struct weir_error *error)
{
    int moved = 0;
    db->deadline_us = clock_steady_us() + DEADLINE_S * US_PER_S;
    if (db->db && sqlite3_file_control(db->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && !moved)
        return 0;
    shut(db);
    bool private = make_private(db->path);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int status = private ? sqlite3_open_v2(db->path, &db->db, flags, NULL) : SQLITE_PERM;
    if (status == SQLITE_OK)
        status = set_up(db);
    return status == SQLITE_OK ? 0 : fail(db, status, error);
}

int counts_db_new(struct counts_db **ret, const char *path, const struct counts_bounds *bounds, const struct hash_key *key)
{
    struct counts_db *db = calloc(1, sizeof *db);
    if (db)
        db->path = strdup(path);
    if (!db || !db->path) {
        free(db);
        return WEIR_E_NO_MEMORY;
    }
    db->bounds = *bounds;
    db->key = *key;
    *ret = db;
    return 0;
}

void counts_db_free(struct counts_db *db)
{
    if (!db)
        return;
    db->deadline_us = INT64_MAX;
    shut(db);
    free(db->path);
    free(db);
}

/* ---- names ---- */

struct names {
    sqlite3_stmt *find, *add;
};

static void names_done(struct names *names)
{
    sqlite3_finalize(names->find);
    sqlite3_finalize(names->add);
}

static int names_init(struct counts_db *db, struct names *names)
{
    int status = lite_prepare(db->db, "SELECT number, last_s FROM names WHERE id = ?1", &names->find);
    if (status != SQLITE_OK)
        return status;
    return lite_prepare(db->db,
                        "INSERT INTO names (id, last_s) SELECT ?1, ?2 WHERE (SELECT count(*) FROM names) < ?3 OR "
                        "EXISTS (SELECT 1 FROM names WHERE id = ?1) ON CONFLICT DO UPDATE SET last_s = ?2",
                        &names->add);
}

/* *ret: NONE if it has no number. *ret_last_s: the last time that it was added. */
static int find_name(const struct names *names, sv id, int64_t *ret, int64_t *ret_last_s)
{
    *ret = sv_eq(id, SV(STATS_OTHER)) ? OTHER : NONE;
    *ret_last_s = INT64_MAX;
    if (*ret == OTHER)
        return SQLITE_OK;
    sqlite3_bind_text(names->find, 1, id.ptr, (int)id.len, SQLITE_STATIC);
    int status = sqlite3_step(names->find);
    if (status == SQLITE_ROW) {
        *ret = sqlite3_column_int64(names->find, 0);
        *ret_last_s = sqlite3_column_int64(names->find, 1);
    }
    sqlite3_reset(names->find);
    return status == SQLITE_ROW || status == SQLITE_DONE ? SQLITE_OK : status;
}

static int add_name(struct counts_db *db, const struct names *names, sv id, int64_t at_s)
{
    sqlite3_bind_text(names->add, 1, id.ptr, (int)id.len, SQLITE_STATIC);
    sqlite3_bind_int64(names->add, 2, at_s);
    sqlite3_bind_int64(names->add, 3, db->bounds.names);
    int status = sqlite3_step(names->add);
    return status == SQLITE_DONE ? sqlite3_reset(names->add) : status;
}

/* Beyond the bound of names, the number of STATS_OTHER. */
static int number_of(struct counts_db *db, const struct names *names, sv id, int64_t at_s, int64_t *ret)
{
    int64_t last_s;
    int status = find_name(names, id, ret, &last_s);
    if (status == SQLITE_OK && (*ret == NONE || last_s < at_s - NAME_AGE_S)) {
        status = add_name(db, names, id, at_s);
        if (status == SQLITE_OK)
            status = find_name(names, id, ret, &last_s);
    }
    if (*ret == NONE)
        *ret = OTHER;
    return status;
}

static int numbers_of(struct counts_db *db, const struct counts_step *step, int64_t *ret)
{
    CLEANUP(names_done) struct names names = { NULL, NULL };
    int status = names_init(db, &names);
    for (size_t i = 0; status == SQLITE_OK && i < step->count; i++)
        status = number_of(db, &names, weir_str(step->rules[i].id), step->at_s, &ret[i]);
    return status;
}

/* A name that no row can have any more. */
static int prune_names(struct counts_db *db)
{
    return lite_run(db->db, "DELETE FROM names WHERE last_s < (SELECT min(at_s) FROM (SELECT at_s FROM all_10 UNION ALL "
                            "SELECT at_s FROM all_300)) - 7200");
}

/* ---- adding ---- */

static int add_all(struct counts_db *db, const struct statements *sql, const struct counts_step *step, int64_t at_s)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    const struct tally_all *all = &step->all;
    const struct counts_gauges *gauges = &step->gauges;
    int status = lite_prepare(db->db, sql->add_all, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt,
              (const int64_t[]){ at_s, (int64_t)all->allowed, (int64_t)all->refused, (int64_t)all->shadow,
                                 (int64_t)all->without_rule, (int64_t)all->errors, 0, gauges->store_up,
                                 (int64_t)gauges->lease_tokens_held, (int64_t)gauges->holds },
              10);
    sqlite3_bind_double(stmt, 7, gauges->table_fill);
    if (gauges->store_up < 0)
        sqlite3_bind_null(stmt, 8);
    status = sqlite3_step(stmt);
    return status == SQLITE_DONE ? SQLITE_OK : status;
}

static int add_rules(struct counts_db *db, const struct statements *sql, const struct counts_step *step, int64_t at_s,
                     const int64_t *numbers)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db->db, sql->add_rule, &stmt);
    bool some_dropped = false, other_marked = false;
    for (size_t i = 0; i < step->count; i++)
        some_dropped = some_dropped || numbers[i] == OTHER;
    for (size_t i = 0; status == SQLITE_OK && i < step->count; i++) {
        const struct stats_said *said = &step->rules[i].said;
        bool dropped = some_dropped && !(numbers[i] == OTHER && other_marked); /* each row once */
        other_marked = other_marked || numbers[i] == OTHER;
        lite_bind(stmt,
                  (const int64_t[]){ at_s, numbers[i], (int64_t)said->passed, (int64_t)said->refused,
                                     (int64_t)said->would_refuse, dropped },
                  6);
        status = sqlite3_step(stmt);
        status = status == SQLITE_DONE ? sqlite3_reset(stmt) : status;
    }
    return status;
}

/* The least busy rules of a step that has too many become part of STATS_OTHER. */
static int fold(struct counts_db *db, const struct statements *sql, int64_t at_s)
{
    int64_t count, values[] = { at_s, db->bounds.rules };
    int status = lite_run_with(db->db, sql->count_rules, values, 1, &count, 1);
    if (status != SQLITE_OK || count <= db->bounds.rules)
        return status;
    status = lite_run_with(db->db, sql->fold, values, 2, NULL, 0);
    if (status == SQLITE_OK)
        status = lite_run_with(db->db, sql->remove_folded, values, 2, NULL, 0);
    return status == SQLITE_OK ? lite_run_with(db->db, sql->mark_folded, values, 1, NULL, 0) : status;
}

static int prune(struct counts_db *db, const struct statements *sql, int64_t at_s, unsigned most)
{
    int64_t count, ends[2];
    int status = lite_run_with(db->db, sql->count_steps, NULL, 0, &count, 1);
    for (int i = 0; status == SQLITE_OK && count > most && i < PRUNED_MAX; i++, count--) {
        status = lite_run_with(db->db, sql->ends, NULL, 0, ends, 2);
        int64_t farthest = at_s - ends[0] >= ends[1] - at_s ? ends[0] : ends[1];
        if (status == SQLITE_OK)
            status = lite_run_with(db->db, sql->remove_all, &farthest, 1, NULL, 0);
        if (status == SQLITE_OK)
            status = lite_run_with(db->db, sql->remove_rules, &farthest, 1, NULL, 0);
    }
    return status;
}

static int add_step(struct counts_db *db, const struct counts_step *step, const struct counts_refused *refused,
                    int64_t *numbers)
{
    const unsigned most[RESOLUTIONS] = { db->bounds.steps, db->bounds.coarse_steps };
    int status = lite_run(db->db, "BEGIN IMMEDIATE");
    if (status == SQLITE_OK)
        status = numbers_of(db, step, numbers);
    for (int i = 0; status == SQLITE_OK && i < RESOLUTIONS; i++) {
        const struct statements *sql = &resolutions[i];
        int64_t at_s = counts_step_of(step->at_s, steps_s[i]);
        status = add_all(db, sql, step, at_s);
        if (status == SQLITE_OK)
            status = add_rules(db, sql, step, at_s, numbers);
        if (status == SQLITE_OK)
            status = fold(db, sql, at_s);
        if (status == SQLITE_OK)
            status = prune(db, sql, at_s, most[i]);
    }
    if (status == SQLITE_OK && step->at_s % NAME_AGE_S == 0)
        status = prune_names(db);
    if (status == SQLITE_OK && refused)
        status = lists_add(db->db, refused, &db->key);
    return status == SQLITE_OK ? lite_run(db->db, "COMMIT") : status;
}

int counts_db_add(struct counts_db *db, const struct counts_step *step, const struct counts_refused *refused,
                  struct weir_error *error)
{
    CLEANUP_FREE int64_t *numbers = cleanup_calloc(step->count + 1, sizeof *numbers);
    if (!numbers)
        return err_no_memory(error);
    int r = need_file(db, error);
    if (r < 0)
        return r;
    int status = add_step(db, step, refused, numbers);
    return status == SQLITE_OK ? 0 : fail(db, status, error);
}

/* ---- reading ---- */

enum { ALLOWED, REFUSED, SHADOW, WITHOUT_RULE, ERRORS, SUMS, FILL = SUMS, STORE_UP, LEASE_TOKENS, HOLDS, COLUMNS };
static const char *const columns[COLUMNS] = { "allowed", "refused",    "shadow",   "without_rule",
                                              "errors",  "table_fill", "store_up", "lease_tokens_held",
                                              "holds" };
static const char *const rule_columns[] = { "passed", "refused", "would_refuse" };
enum { RULE_COLUMNS = 3 };

/* One point of all decisions. */
struct point {
    bool known; /* the service ran */
    bool has_store;
    uint64_t sums[SUMS];
    uint64_t dropped; /* of STATS_OTHER */
    double fill;
    int64_t up, gauges[COLUMNS - LEASE_TOKENS];
};

/* Adds a step to a point. The gauges of the point are those of its last step. */
static void add_point(struct point *point, const uint64_t sums[SUMS], const struct counts_gauges *gauges)
{
    for (int i = 0; i < SUMS; i++)
        point->sums[i] += sums[i];
    point->fill = gauges->table_fill;
    if (gauges->store_up >= 0) {
        point->up = point->has_store ? (point->up && gauges->store_up) : gauges->store_up;
        point->has_store = true;
    }
    point->gauges[0] = (int64_t)gauges->lease_tokens_held;
    point->gauges[1] = (int64_t)gauges->holds;
    point->known = true;
}

static size_t index_of(const struct counts_query *query, int64_t at_s)
{
    return at_s < query->start_s ? query->points : (size_t)(at_s - query->start_s) / query->step_s;
}

static const struct statements *statements_of(const struct counts_query *query)
{
    return &resolutions[query->step_s % COUNTS_COARSE_S == 0 ? COARSE : FINE];
}

static int64_t end_of(const struct counts_query *query)
{
    return query->start_s + (int64_t)query->points * query->step_s;
}

static int read_all(struct counts_db *db, const struct counts_query *query, struct point *points)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db->db, statements_of(query)->read_all, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt, (const int64_t[]){ query->start_s, end_of(query) }, 2);
    while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
        uint64_t sums[SUMS];
        for (int i = 0; i < SUMS; i++)
            sums[i] = (uint64_t)sqlite3_column_int64(stmt, 1 + i);
        struct counts_gauges gauges = {
            .table_fill = sqlite3_column_double(stmt, 1 + FILL),
            .store_up =
                sqlite3_column_type(stmt, 1 + STORE_UP) == SQLITE_NULL ? -1 : sqlite3_column_int(stmt, 1 + STORE_UP),
            .lease_tokens_held = (uint64_t)sqlite3_column_int64(stmt, 1 + LEASE_TOKENS),
            .holds = (uint64_t)sqlite3_column_int64(stmt, 1 + HOLDS),
        };
        add_point(&points[index_of(query, sqlite3_column_int64(stmt, 0))], sums, &gauges);
    }
    const struct counts_step *newest = query->newest;
    if (status == SQLITE_DONE && newest && index_of(query, newest->at_s) < query->points) {
        const struct tally_all *all = &newest->all;
        uint64_t sums[SUMS] = { all->allowed, all->refused, all->shadow, all->without_rule, all->errors };
        add_point(&points[index_of(query, newest->at_s)], sums, &newest->gauges);
    }
    return status == SQLITE_DONE ? SQLITE_OK : status;
}

/* One rule in one point: the columns, and `dropped`. */
typedef uint64_t rule_sums[RULE_COLUMNS + 1];
enum { DROPPED = RULE_COLUMNS };

static int find_numbers(struct counts_db *db, const struct counts_query *query, int64_t *ret)
{
    CLEANUP(names_done) struct names names = { NULL, NULL };
    int64_t last_s;
    int status = names_init(db, &names);
    for (size_t i = 0; status == SQLITE_OK && i < query->rule_count; i++)
        status = find_name(&names, query->rules[i], &ret[i], &last_s);
    return status;
}

/* One reading for all rules, since those of a step are neighbours in the file. */
static int prepare_rules(struct counts_db *db, const struct counts_query *query, const int64_t *numbers, sqlite3_stmt **ret)
{
    CLEANUP(buf_done) struct buf sql;
    buf_init(&sql, 1 << 16);
    buf_add(&sql, weir_str(statements_of(query)->read_rules));
    for (size_t i = 0; i < query->rule_count; i++)
        buf_printf(&sql, "%s%lld", i ? "," : "", (long long)numbers[i]);
    buf_char(&sql, ')');
    int status = sql.failed ? SQLITE_NOMEM : lite_prepare(db->db, sql.ptr, ret);
    if (status == SQLITE_OK)
        lite_bind(*ret, (const int64_t[]){ query->start_s, end_of(query) }, 2);
    return status;
}

static void add_newest(const struct counts_query *query, struct point *points, rule_sums *sums)
{
    size_t last = query->newest ? index_of(query, query->newest->at_s) : query->points;
    if (last >= query->points)
        return;
    points[last].dropped++;
    for (size_t i = 0; i < query->rule_count; i++) {
        const struct counts_rule *rule = &query->newest->rules[i];
        uint64_t *sum = sums[i * query->points + last];
        sum[0] += rule->said.passed;
        sum[1] += rule->said.refused;
        sum[2] += rule->said.would_refuse;
        sum[DROPPED] += !rule->unknown;
    }
}

/* `sums`: the points of the first rule, of the second, and so on. A rule may be asked for twice. */
static int read_rules(struct counts_db *db, const struct counts_query *query, const int64_t *numbers, struct point *points,
                      rule_sums *sums)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = prepare_rules(db, query, numbers, &stmt);
    if (status != SQLITE_OK)
        return status;
    while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
        size_t point = index_of(query, sqlite3_column_int64(stmt, 0));
        int64_t number = sqlite3_column_int64(stmt, 1);
        if (number == OTHER)
            points[point].dropped += (uint64_t)sqlite3_column_int64(stmt, 2 + DROPPED);
        for (size_t i = 0; i < query->rule_count; i++)
            for (int k = 0; numbers[i] == number && k <= DROPPED; k++)
                sums[i * query->points + point][k] += (uint64_t)sqlite3_column_int64(stmt, 2 + k);
    }
    add_newest(query, points, sums);
    return status == SQLITE_DONE ? SQLITE_OK : status;
}

/* ---- as JSON ---- */

static void write_all(const struct counts_query *query, const struct point *points, struct buf *out)
{
    buf_add(out, SV(",\n\"all\": {"));
    for (int k = 0; k < COLUMNS; k++) {
        buf_printf(out, "%s\"%s\": [", k ? ",\n" : "", columns[k]);
        for (size_t i = 0; i < query->points; i++) {
            const struct point *p = &points[i];
            if (i > 0)
                buf_char(out, ',');
            if (!p->known || (k == STORE_UP && !p->has_store))
                buf_add(out, SV("null"));
            else if (k == FILL)
                buf_printf(out, "%.6g", p->fill);
            else
                buf_number(out, k < SUMS ? (int64_t)p->sums[k] : k == STORE_UP ? p->up : p->gauges[k - LEASE_TOKENS]);
        }
        buf_char(out, ']');
    }
    buf_char(out, '}');
}

static void write_rule(const struct counts_query *query, const struct point *points, size_t rule, rule_sums *sums,
                       struct buf *out)
{
    buf_add(out, rule ? SV(",\n{\"rule\": ") : SV("\n{\"rule\": "));
    buf_json(out, query->rules[rule]);
    for (int k = 0; k < RULE_COLUMNS; k++) {
        buf_printf(out, ", \"%s\": [", rule_columns[k]);
        for (size_t i = 0; i < query->points; i++) {
            if (i > 0)
                buf_char(out, ',');
            if (points[i].known && sums[i][DROPPED] == points[i].dropped)
                buf_number(out, (int64_t)sums[i][k]);
            else
                buf_add(out, SV("null"));
        }
        buf_char(out, ']');
    }
    buf_char(out, '}');
}

static int write_rules(struct counts_db *db, const struct counts_query *query, struct point *points, struct buf *out)
{
    CLEANUP_FREE rule_sums *sums = cleanup_calloc(query->points * query->rule_count, sizeof *sums);
    CLEANUP_FREE int64_t *numbers = cleanup_calloc(query->rule_count, sizeof *numbers);
    int status = sums && numbers ? find_numbers(db, query, numbers) : SQLITE_NOMEM;
    if (status == SQLITE_OK)
        status = read_rules(db, query, numbers, points, sums);
    if (status != SQLITE_OK)
        return status;
    buf_add(out, SV(",\n\"rules\": ["));
    for (size_t i = 0; i < query->rule_count; i++)
        write_rule(query, points, i, sums + i * query->points, out);
    buf_char(out, ']');
    return SQLITE_OK;
}

/* Writes the beginning of the first step that the file has in this resolution. */
static int write_since(struct counts_db *db, const struct counts_query *query, struct buf *out)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db->db, statements_of(query)->ends, &stmt);
    if (status != SQLITE_OK)
        return status;
    status = sqlite3_step(stmt);
    bool stored = status == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL;
    int64_t since_s = stored ? sqlite3_column_int64(stmt, 0) : query->newest ? query->newest->at_s : 0;
    char text[INSTANT_TEXT_MAX];
    instant_text(clock_within(since_s * US_PER_S), text);
    buf_printf(out, since_s > 0 ? "\"since\": \"%s\"" : "\"since\": null", text);
    return status == SQLITE_ROW ? SQLITE_OK : status;
}

int counts_db_read(struct counts_db *db, const struct counts_query *query, struct buf *out, struct weir_error *error)
{
    CLEANUP_FREE struct point *points = cleanup_calloc(query->points, sizeof *points);
    if (!points)
        return err_no_memory(error);
    int r = need_file(db, error);
    if (r < 0)
        return r;
    int status = lite_run(db->db, "BEGIN");
    if (status == SQLITE_OK)
        status = write_since(db, query, out);
    if (status == SQLITE_OK)
        status = read_all(db, query, points);
    if (status == SQLITE_OK && query->rule_count > 0)
        status = write_rules(db, query, points, out);
    else if (status == SQLITE_OK)
        write_all(query, points, out);
    if (status == SQLITE_OK)
        status = lite_run(db->db, "COMMIT");
    return status == SQLITE_OK ? 0 : fail(db, status, error);
}

/* ---- what was refused ---- */

int counts_db_read_earlier(struct counts_db *db, int64_t now_s, struct counts_earlier *ret, struct weir_error *error)
{
    *ret = (struct counts_earlier){ .top = NULL };
    int r = need_file(db, error);
    if (r < 0)
        return r;
    int status = lite_run(db->db, "BEGIN");
    if (status == SQLITE_OK)
        status = lists_read(db->db, now_s, &db->key, ret);
    if (status == SQLITE_OK)
        status = lite_run(db->db, "COMMIT");
    if (status == SQLITE_OK)
        return 0;
    counts_earlier_done(ret);
    return fail(db, status, error);
}

int counts_db_forget_refused(struct counts_db *db, struct weir_error *error)
{
    int r = need_file(db, error);
    if (r < 0)
        return r;
    int status = lists_forget(db->db);
    return status == SQLITE_OK ? 0 : fail(db, status, error);
}
