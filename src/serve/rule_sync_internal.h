/* Private to rule_sync*.c: the state, and how it starts (rule_sync_start.c). */
#ifndef SERVE_RULE_SYNC_INTERNAL_H
#define SERVE_RULE_SYNC_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "serve/config.h"
#include "serve/rule_sync.h"

struct problems {
    struct arena arena;
    struct source_problem *list;
    size_t count;
};

struct rule_sync {
    struct weir *weir;
    struct source_watch *watch;
    char *name; /* of the source */
    bool is_file;
    char *copy; /* its path */

    /* Of whoever starts it, then of its thread. */
    struct buf text; /* of the rules in force; empty: unknown */
    bool said_reachable;
    bool copy_failed; /* and this was said */
    bool has_store;   /* options.counters */
    uint64_t alone;   /* which rules were said to count on this host alone, though they are to be shared; 0: none */

    pthread_mutex_t lock; /* of what follows */
    struct problems problems;
    bool from_copy;
    size_t rules;
};

/* Says what is new among them, and keeps them. */
void rule_sync_note_problems(struct rule_sync *sync, const struct source_problem *list, size_t count);
/* Takes over the rules. 1: they are in force now; 0: they were already. */
int rule_sync_install(struct rule_sync *sync, struct rules *rules, struct weir_error *error);

/* Makes the database, if it is needed and missing: with the rules of the copy, or the example rules. */
int rule_sync_open_source(struct rule_sync *sync, const struct config *config, struct source **ret,
                          struct weir_error *error);
/* Reads the rules, or takes those of the copy, opens the engine and puts them in force. *ret: the same rules, the caller's.
 */
int rule_sync_first_rules(struct rule_sync *sync, struct source *source, const struct config *config, struct rules **ret,
                          struct weir_error *error);
/* The rules in force, for a start while the source is away, or one of them is bad. */
void rule_sync_write_copy(struct rule_sync *sync);

#endif
