/* The most refused subjects and the newest refusals in counts.db, so that a restart does not forget them: a row for each
 * list of refused/top_history.h, to which the windows of 30 s are added, and a row for each refusal. All of these return a
 * status of SQLite, and run within a transaction of the caller. */
#ifndef SERVE_COUNTS_LISTS_H
#define SERVE_COUNTS_LISTS_H

#include <sqlite3.h>

#include "refused/recent.h"
#include "refused/top_history.h"

enum { COUNTS_REFUSALS_MAX = 500 }; /* the newest */

/* The most refused subjects of a window. */
struct counts_window {
    struct counts_window *next;
    int64_t start_us;
    struct top_list list; /* sorted, at most TOP_HISTORY_SUMMED */
};

/* Refused subjects and requests that the file does not have yet. */
struct counts_refused {
    struct counts_window *windows;
    struct recent_list recent; /* the newest first */
};
void counts_refused_done(struct counts_refused *refused);

/* Those of earlier runs, from the file. */
struct counts_earlier {
    struct top_history *top; /* NULL: not read */
    int64_t since_us;        /* the start of the first list; 0: there is none */
    struct recent_list recent;
};
void counts_earlier_done(struct counts_earlier *earlier);

extern const char lists_schema[];
/* Adds to what the file has of the same times. A row that is not a list is replaced. Refusals that are older than all lists
 * are removed, so that none stays forever. */
int lists_add(sqlite3 *db, const struct counts_refused *refused, const struct hash_key *key);
/* Leaves out rows that are not lists. now_s: with too many lists, those farthest from it are the first to go. */
int lists_read(sqlite3 *db, int64_t now_s, const struct hash_key *key, struct counts_earlier *ret);
/* Without a transaction of the caller: the subjects are overwritten in the file, not only removed. */
int lists_forget(sqlite3 *db);

#endif
