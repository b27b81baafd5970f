#include "serve/counts_lists.h"

#include <stdlib.h>

#include "base/clock.h"
#include "refused/packed.h"
#include "serve/counts_lite.h"

enum { ROW_BYTES_MAX = 1 << 20, REFUSAL_BYTES_MAX = 8192 };

const char lists_schema[] = "CREATE TABLE top_300 (at_s INTEGER PRIMARY KEY, listed INTEGER NOT NULL, list BLOB NOT NULL);"
                            "CREATE TABLE top_3600 (at_s INTEGER PRIMARY KEY, listed INTEGER NOT NULL, list BLOB NOT NULL);"
                            "CREATE TABLE refusals (number INTEGER PRIMARY KEY, refusal BLOB NOT NULL);";

/* The lists of one length. */
struct table {
    int64_t step_us, kept_us;
    const char *write, *read_one, *read_long, *read_all, *prune;
};
#define TABLE(name, step, kept)                                                                                      \
    {                                                                                                                \
        .step_us = (step), .kept_us = (kept), .write = "INSERT OR REPLACE INTO " name " VALUES (?1, ?2, ?3)",        \
        .read_one = "SELECT at_s, list FROM " name " WHERE at_s = ?1",                                               \
        .read_long = "SELECT at_s, list FROM " name " WHERE listed > ?1 AND at_s <> ?2 LIMIT 1",                     \
        .read_all = "SELECT at_s, list FROM " name " ORDER BY abs(at_s - ?1) DESC",                                  \
        .prune = "DELETE FROM " name " WHERE at_s IN (SELECT at_s FROM " name " ORDER BY abs(at_s - ?1) DESC LIMIT " \
                 "max(0, (SELECT count(*) FROM " name ") - ?2))",                                                    \
    }
static const struct table tables[TOP_STEPS] = {
    [TOP_FINE] = TABLE("top_300", TOP_FINE_US, TOP_FINE_KEPT_US),
    [TOP_COARSE] = TABLE("top_3600", TOP_COARSE_US, TOP_COARSE_KEPT_US),
};

void counts_refused_done(struct counts_refused *refused)
{
    while (refused->windows) {
        struct counts_window *next = refused->windows->next;
        top_list_done(&refused->windows->list);
        free(refused->windows);
        refused->windows = next;
    }
    recent_list_done(&refused->recent);
    *refused = (struct counts_refused){ .windows = NULL };
}

void counts_earlier_done(struct counts_earlier *earlier)
{
    top_history_free(earlier->top);
    recent_list_done(&earlier->recent);
    *earlier = (struct counts_earlier){ .top = NULL };
}

/* ---- one list ---- */

/* The list of a row: an empty one if it is none. */
static int unpack(sqlite3_stmt *stmt, const struct hash_key *key, struct top_list *ret)
{
    return packed_add_list(lite_bytes(stmt, 1), key, ret) == WEIR_E_NO_MEMORY ? SQLITE_NOMEM : SQLITE_OK;
}

static int write_list(sqlite3 *db, const struct table *table, int64_t at_s, const struct top_list *list)
{
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, ROW_BYTES_MAX);
    packed_write_list(list, &bytes);
    int64_t values[] = { at_s, (int64_t)list->count };
    return bytes.failed ? SQLITE_NOMEM : lite_run_with_bytes(db, table->write, values, 2, buf_sv(&bytes));
}

/* ---- adding ---- */

static int add_span(const struct top_span *span, void *list)
{
    return top_list_add_span(list, span);
}

static int add_to_row(sqlite3 *db, const struct table *table, int64_t at_s, const struct top_list *list,
                      const struct hash_key *key)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    CLEANUP(top_list_done) struct top_list sum = { 0 };
    int status = lite_prepare(db, table->read_one, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt, &at_s, 1);
    status = sqlite3_step(stmt);
    if (status == SQLITE_ROW)
        status = unpack(stmt, key, &sum);
    else if (status == SQLITE_DONE)
        status = SQLITE_OK;
    if (status == SQLITE_OK && top_list_as_span(list, 0, 0, add_span, &sum) < 0)
        status = SQLITE_NOMEM;
    if (status != SQLITE_OK)
        return status;
    sqlite3_reset(stmt);
    top_list_sort(&sum);
    top_list_cut(&sum, TOP_HISTORY_SUMMED);
    return write_list(db, table, at_s, &sum);
}

/* The list that was added to until now keeps as many subjects as those in memory. */
static int shorten_another(sqlite3 *db, const struct table *table, int64_t at_s, const struct hash_key *key)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    CLEANUP(top_list_done) struct top_list list = { 0 };
    int status = lite_prepare(db, table->read_long, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt, (const int64_t[]){ TOP_HISTORY_LISTED, at_s }, 2);
    status = sqlite3_step(stmt);
    if (status != SQLITE_ROW)
        return status == SQLITE_DONE ? SQLITE_OK : status;
    int64_t other_s = sqlite3_column_int64(stmt, 0);
    status = unpack(stmt, key, &list);
    sqlite3_reset(stmt);
    if (status != SQLITE_OK)
        return status;
    top_list_sort(&list);
    top_list_cut(&list, TOP_HISTORY_LISTED);
    return write_list(db, table, other_s, &list);
}

static int add_window(sqlite3 *db, const struct counts_window *window, const struct hash_key *key)
{
    int status = SQLITE_OK;
    for (int i = 0; status == SQLITE_OK && i < TOP_STEPS; i++) {
        const struct table *table = &tables[i];
        int64_t at_s = window->start_us / table->step_us * table->step_us / US_PER_S;
        status = add_to_row(db, table, at_s, &window->list, key);
        if (status == SQLITE_OK)
            status = shorten_another(db, table, at_s, key);
        if (status == SQLITE_OK)
            status =
                lite_run_with(db, table->prune, (const int64_t[]){ at_s, table->kept_us / table->step_us + 1 }, 2, NULL, 0);
    }
    return status;
}

static int add_refusals(sqlite3 *db, const struct recent_list *recent)
{
    int status = SQLITE_OK;
    for (size_t i = 0; status == SQLITE_OK && i < recent->count; i++) {
        CLEANUP(buf_done) struct buf bytes;
        buf_init(&bytes, REFUSAL_BYTES_MAX);
        packed_write_refusal(&recent->entries[i], &bytes);
        int64_t number = (int64_t)recent->entries[i].number;
        status = bytes.failed ? SQLITE_NOMEM
                              : lite_run_with_bytes(db, "INSERT OR REPLACE INTO refusals VALUES (?1, ?2)", &number, 1,
                                                    buf_sv(&bytes));
    }
    if (status != SQLITE_OK || recent->count == 0)
        return status;
    return lite_run_with(db,
                         "DELETE FROM refusals WHERE number <= (SELECT number FROM refusals ORDER BY number DESC "
                         "LIMIT 1 OFFSET ?1)",
                         (const int64_t[]){ COUNTS_REFUSALS_MAX }, 1, NULL, 0);
}

int lists_add(sqlite3 *db, const struct counts_refused *refused, const struct hash_key *key)
{
    int status = SQLITE_OK;
    for (const struct counts_window *w = refused->windows; status == SQLITE_OK && w; w = w->next)
        status = add_window(db, w, key);
    if (status == SQLITE_OK && refused->windows)
        status = lite_run(db, "DELETE FROM refusals WHERE number < (SELECT min(at_s) FROM top_3600) * 1000000");
    return status == SQLITE_OK ? add_refusals(db, &refused->recent) : status;
}

/* ---- reading ---- */

static int read_lists(sqlite3 *db, enum top_step step, int64_t now_s, const struct hash_key *key,
                      struct counts_earlier *ret)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db, tables[step].read_all, &stmt);
    if (status != SQLITE_OK)
        return status;
    lite_bind(stmt, &now_s, 1);
    while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
        CLEANUP(top_list_done) struct top_list list = { 0 };
        int64_t at_s = sqlite3_column_int64(stmt, 0);
        if (at_s < 0 || at_s >= CLOCK_END_US / US_PER_S || at_s * US_PER_S % tables[step].step_us != 0)
            continue;
        status = unpack(stmt, key, &list);
        top_list_sort(&list);
        if (status == SQLITE_OK && top_history_put(ret->top, step, at_s * US_PER_S, &list) < 0)
            status = SQLITE_NOMEM;
        if (status != SQLITE_OK)
            return status;
        if (at_s <= now_s && (ret->since_us == 0 || at_s * US_PER_S < ret->since_us))
            ret->since_us = at_s * US_PER_S;
    }
    return status == SQLITE_DONE ? SQLITE_OK : status;
}

static int read_refusals(sqlite3 *db, const struct hash_key *key, struct recent_list *ret)
{
    CLEANUP(sqlite3_finalizep) sqlite3_stmt *stmt = NULL;
    int status = lite_prepare(db, "SELECT number, refusal FROM refusals ORDER BY number DESC LIMIT ?1", &stmt);
    if (status != SQLITE_OK)
        return status;
    if (recent_list_reserve(ret, COUNTS_REFUSALS_MAX) < 0)
        return SQLITE_NOMEM;
    lite_bind(stmt, (const int64_t[]){ COUNTS_REFUSALS_MAX }, 1);
    while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct recent_refusal *to = &ret->entries[ret->count];
        int64_t number = sqlite3_column_int64(stmt, 0);
        to->number = (uint64_t)number;
        if (clock_valid(number) && packed_read_refusal(lite_bytes(stmt, 1), key, to))
            ret->count++;
    }
    return status == SQLITE_DONE ? SQLITE_OK : status;
}

int lists_read(sqlite3 *db, int64_t now_s, const struct hash_key *key, struct counts_earlier *ret)
{
    int status = top_history_new(&ret->top) < 0 ? SQLITE_NOMEM : SQLITE_OK;
    for (enum top_step step = 0; status == SQLITE_OK && step < TOP_STEPS; step++)
        status = read_lists(db, step, now_s, key, ret);
    return status == SQLITE_OK ? read_refusals(db, key, &ret->recent) : status;
}

int lists_forget(sqlite3 *db)
{
    return lite_run(db, "PRAGMA secure_delete = ON; BEGIN IMMEDIATE; DELETE FROM top_300; DELETE FROM top_3600; "
                        "DELETE FROM refusals; COMMIT; PRAGMA secure_delete = OFF; PRAGMA wal_checkpoint(TRUNCATE)");
}
