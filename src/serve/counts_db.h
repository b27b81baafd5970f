/* Counts over time in a file, counts.db: for each step of ten seconds one row for all decisions, and one for each rule that
 * counted something. Steps of five minutes are their sums, and are kept for longer. No clock is read here, and nothing is
 * logged. One thread at a time may use it; it may wait for a disk.
 *
 * A file that cannot be read is renamed, and a new one begins. Each failure closes the file, and the next call opens it
 * again: so a full disk or a folder that became writable again needs nobody. */
#ifndef SERVE_COUNTS_DB_H
#define SERVE_COUNTS_DB_H

#include "base/buf.h"
#include "base/hash.h"
#include "serve/stats.h"
#include "serve/tally.h"

struct counts_db;
struct counts_earlier;
struct counts_refused;

enum {
    COUNTS_STEP_S = 10,           /* of the fine steps */
    COUNTS_COARSE_S = 300,        /* of the coarse ones */
    COUNTS_RULES_MAX = 250,       /* in a step; further ones are counted under STATS_OTHER */
    COUNTS_STEPS_MAX = 8640,      /* fine steps that are kept: a day … */
    COUNTS_COARSE_MAX = 8928,     /* … and coarse ones: 31 days */
    COUNTS_NAMES_MAX = 20000,     /* different rules in the file */
    COUNTS_BYTES_MAX = 384 << 20, /* of the file: twice what it has with all of these, and all lists of subjects */
};

/* Bounds; tests have smaller ones. */
struct counts_bounds {
    unsigned rules, steps, coarse_steps, names;
    uint64_t bytes;
};
extern const struct counts_bounds counts_bounds;

/* How things are at the end of a step. */
struct counts_gauges {
    double table_fill; /* 0 to 1 */
    int store_up;      /* 1, 0; -1: there is none */
    uint64_t lease_tokens_held, holds;
};

struct counts_rule {
    char id[WEIR_ID_MAX + 1];
    struct stats_said said;
    bool unknown; /* in the newest step of a query: it may have been counted under STATS_OTHER */
};

/* The counts of a step, or of a part of it. */
struct counts_step {
    int64_t at_s; /* the step begins, since 1970 */
    struct tally_all all;
    struct counts_gauges gauges;
    size_t count;
    struct counts_rule rules[];
};

/* The step of step_s seconds that a time belongs to. */
static inline int64_t counts_step_of(int64_t at_s, int64_t step_s)
{
    return at_s - at_s % step_s;
}

/* Opens nothing yet. The path is copied. `key` is that of the table of cells. Returns 0 or WEIR_E_NO_MEMORY. */
int counts_db_new(struct counts_db **ret, const char *path, const struct counts_bounds *bounds, const struct hash_key *key);
void counts_db_free(struct counts_db *db);

/* Adds a step to the file, and what was refused in it (may be NULL): to what it has of that step already. Removes the steps
 * beyond the bounds that are farthest from this one, so that a clock that was wrong for a while costs few others. Returns 0
 * or an error; then nothing was added. */
int counts_db_add(struct counts_db *db, const struct counts_step *step, const struct counts_refused *refused,
                  struct weir_error *error);

struct counts_query {
    int64_t start_s; /* a multiple of step_s */
    unsigned step_s; /* a multiple of COUNTS_STEP_S */
    size_t points;
    const struct counts_step *newest; /* which is not in the file yet; its rules are those of the query; NULL: none */
    size_t rule_count;                /* 0: of all decisions */
    const sv *rules;
};
/* Writes members of a JSON object, from "since" on. Returns 0 or an error; then `out` is to be dropped. */
int counts_db_read(struct counts_db *db, const struct counts_query *query, struct buf *out, struct weir_error *error);

/* Reads what earlier runs have added of refused subjects and requests. *ret is empty after an error. */
int counts_db_read_earlier(struct counts_db *db, int64_t now_s, struct counts_earlier *ret, struct weir_error *error);
/* Removes all of it. */
int counts_db_forget_refused(struct counts_db *db, struct weir_error *error);

#endif
