/* Private to rule_sync*.c. */
#ifndef SERVE_RULE_SYNC_INTERNAL_H
#define SERVE_RULE_SYNC_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "serve/config.h"
#include "serve/rule_sync.h"
#include "source/kept_text.h"

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

    /* Used by the thread that starts it, then by the rule thread. */
    struct kept_text kept; /* of the rules in force, if their text is known; in the copy */
    bool said_reachable;
    bool copy_failed;      /* and this was logged */
    int64_t copy_again_us; /* when the copy is tried again after it failed, by the steady clock */
    bool has_store;        /* config.counters */
    uint64_t unshared;     /* hash of the rules that were warned of: see warn_of_unshared; 0: none */

    pthread_mutex_t lock; /* of what follows */
    struct problems problems;
    bool from_copy;
    size_t rules;
};

CLEANUP_POINTER(struct source *, source_close);

/* rule_sync_install.c */
/* Logs what is new among the problems, and keeps all of them. */
void rule_sync_note_problems(struct rule_sync *sync, const struct source_problem *list, size_t count);
/* Takes over the rules. Returns 1 if they are in force now, 0 if they were before, or an error. */
int rule_sync_install(struct rule_sync *sync, struct rules *rules, struct weir_error *error);

/* rule_sync_copy.c */
void rule_sync_write_copy(struct rule_sync *sync);
bool rule_sync_read_copy_text(const struct rule_sync *sync, struct buf *text);
/* Whether it is a copy of a rules.db in a data folder, wherever that was. */
bool rule_sync_is_copy_of_own(sv text);
/* NULL: there is no copy of this source that can be used. */
struct rules *rule_sync_read_copy(const struct rule_sync *sync);

/* rule_sync_start.c */
/* Creates the database, if it is needed and missing: with the rules of the copy, or the example rules. */
int rule_sync_open_source(struct rule_sync *sync, const struct config *config, struct source **ret,
                          struct weir_error *error);
/* Reads the rules from the source or the copy, opens the engine and puts them into force. *ret: a copy of them. */
int rule_sync_first_rules(struct rule_sync *sync, struct source *source, const struct config *config, struct rules **ret,
                          struct weir_error *error);

#endif
