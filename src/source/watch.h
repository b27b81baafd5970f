/* A thread that follows a source: it reads the source when it has changed, and reports the result. Decisions never wait for
 * it. Other threads may give it jobs with the source. */
#ifndef SOURCE_WATCH_H
#define SOURCE_WATCH_H

#include "source/source.h"

struct source_watch;

struct source_watch_state {
    int64_t good_us; /* when the rules that are in force were last known to be those of the source */
    bool reachable;
    char reason[400];  /* why it is unreachable, if it is */
    char problem[512]; /* "rules are 312 s old: connection refused", or the first bad row, or "" */
    size_t problem_count;
    uint64_t reads, checks;
};

struct source_watch_options {
    unsigned poll_ms; /* 100 to 3,600,000; default 1000 */
    /* New rules, to be put in force; takes them over. Problems are those of single rows. Called from the thread. Negative:
     * they could not be, and are read again later, as if the source had been unreachable. */
    int (*on_rules)(struct rules *rules, const struct source_problem *problems, size_t count, void *data,
                    struct weir_error *error);
    /* Reachable or not any more, and why; once for each change. */
    void (*on_state)(const struct source_watch_state *state, void *data);
    /* After each look, whatever it found. May be NULL. */
    void (*on_look)(void *data);
    void *data;
    bool was_read;     /* `last` is what the source said a moment ago: it is read again only once it has changed … */
    bool had_problems; /* … or if some rows were bad */
};

/* Takes over `source`. `last` (may be NULL, shared): last good versions for rows that are bad now. */
int source_watch_start(struct source_watch **ret, struct source *source, struct rules *last,
                       const struct source_watch_options *options, struct weir_error *error);
void source_watch_state(struct source_watch *watch, struct source_watch_state *ret);
/* Waits for the thread. Jobs that have not begun are done with an error. */
void source_watch_stop(struct source_watch *watch);

/* Work with the source, in its thread. */
struct source_job {
    int (*run)(struct source *source, struct source_job *job, struct weir_error *error);
    /* Receives the result and the error of `run`; or why it was not run, or why its changes are not in force
     * (WEIR_E_SYSTEM). The job is the caller's again. */
    void (*done)(struct source_job *job, int result, const struct weir_error *error);
    bool writes; /* what it wrote is read back, and on_rules is told of it, before it is done */
    struct source_job *next;
};
enum { SOURCE_JOBS_MAX = 64 };
/* False: too many are waiting, or the watch is being stopped; neither of the job's functions will be called. */
bool source_watch_run(struct source_watch *watch, struct source_job *job);
/* Looks at the source now, also if it was unreachable. */
void source_watch_look_now(struct source_watch *watch);

#endif
