/* Keeps the rules: follows their source in a thread of its own, puts what it finds into force, and makes changes there.
 * One thread and one connection for both, so that what a change wrote is in force when it is answered, and nothing older
 * comes after it. The last good rules are kept in the data folder, for a start while the source is away or one of them is
 * bad. */
#ifndef SERVE_KEEPER_H
#define SERVE_KEEPER_H

#include "source/source.h"
#include "source/watch.h"

struct config;
struct keeper;
struct weir;

/* Opens the source (makes a new SQLite one with example rules in the data folder, if none was named, or with the last good
 * rules if that was there before), the engine with the cells, and follows. *ret_weir is the keeper's: keeper_stop closes
 * it. */
int keeper_start(struct keeper **ret, const struct config *config, struct weir **ret_weir, struct weir_error *error);
void keeper_stop(struct keeper *keeper);

/* Runs in the keeper's thread with the source; see source/watch.h. What it wrote is in force before it is done. False: too
 * many are waiting, and neither of the job's functions will be called. */
bool keeper_run(struct keeper *keeper, struct source_job *job);

/* Look at the source now (SIGHUP). */
void keeper_poke(struct keeper *keeper);

struct keeper_state {
    char source[300]; /* its address without password */
    bool is_file;     /* which is read-only for the API */
    bool from_copy;   /* the rules are those of the copy in the data folder: the source was not reached yet */
    bool reachable;
    int64_t good_us; /* when the rules in force were last known to be those of the source */
    size_t rules;
    size_t problem_count;
    char problem[512];
};
void keeper_state(struct keeper *keeper, struct keeper_state *ret);
/* The problems of the newest reading, each as source_problem_print prints it, for /v1/status. */
typedef void keeper_problem(const struct source_problem *problem, void *data);
void keeper_problems(struct keeper *keeper, keeper_problem *each, void *data);

#endif
