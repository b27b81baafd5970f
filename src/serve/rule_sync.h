/* Keeps the rules in force equal to those of their source. A thread of its own, the rule thread, follows the source and
 * makes changes there, over one connection: so a change is in force when it is answered, and no older rules come after it.
 * The last good rules are copied to the data folder, for a start while the source is unreachable or one of them is bad. */
#ifndef SERVE_RULE_SYNC_H
#define SERVE_RULE_SYNC_H

#include "source/source.h"
#include "source/watch.h"

struct config;
struct rule_sync;
struct weir;

/* Opens the source (makes a new SQLite one with example rules in the data folder, if none was named, or with the last good
 * rules if that was there before), the engine with the cells, and follows. *ret_weir belongs to the result: rule_sync_stop
 * closes it. */
int rule_sync_start(struct rule_sync **ret, const struct config *config, struct weir **ret_weir, struct weir_error *error);
void rule_sync_stop(struct rule_sync *sync);

/* Runs in the rule thread with the source; see source/watch.h. Its changes are in force before it is done. False: too many
 * are waiting, and neither of the job's functions will be called. */
bool rule_sync_run(struct rule_sync *sync, struct source_job *job);

/* Look at the source now (SIGHUP). */
void rule_sync_look_now(struct rule_sync *sync);

struct rule_sync_state {
    char source[300]; /* its address without password */
    bool is_file;     /* which is read-only for the API */
    bool from_copy;   /* the rules are those of the copy in the data folder: the source was not reached yet */
    bool reachable;
    int64_t good_us; /* when the rules in force were last known to be those of the source */
    size_t rules;
    size_t problem_count;
    char problem[512];
};
void rule_sync_state(struct rule_sync *sync, struct rule_sync_state *ret);
bool rule_sync_is_file(const struct rule_sync *sync);
/* The problems of the newest reading, each as source_problem_print prints it, for /v1/status. */
typedef void rule_sync_problem(const struct source_problem *problem, void *data);
void rule_sync_problems(struct rule_sync *sync, rule_sync_problem *each, void *data);

#endif
