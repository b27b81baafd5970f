/* The keeper's own: its state, and how it starts (keeper_start.c). */
#ifndef SERVE_KEEPER_PARTS_H
#define SERVE_KEEPER_PARTS_H

#include <pthread.h>

#include "base/arena.h"
#include "serve/config.h"
#include "serve/keeper.h"

struct problems {
    struct arena arena;
    struct source_problem *list;
    size_t count;
};

struct keeper {
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
void keeper_note_problems(struct keeper *keeper, const struct source_problem *list, size_t count);
/* Takes over the rules. 1: they are in force now; 0: they were already. */
int keeper_install(struct keeper *keeper, struct rules *rules, struct weir_error *error);

/* Makes the database, if it is needed and missing: with the rules of the copy, or the example rules. */
int keeper_open_source(struct keeper *keeper, const struct config *config, struct source **ret, struct weir_error *error);
/* Reads the rules, or takes those of the copy, opens the engine and puts them in force. *ret: the same rules, the caller's.
 */
int keeper_first_rules(struct keeper *keeper, struct source *source, const struct config *config, struct rules **ret,
                       struct weir_error *error);
/* The rules in force, for a start while the source is away, or one of them is bad. */
void keeper_write_copy(struct keeper *keeper);

#endif
