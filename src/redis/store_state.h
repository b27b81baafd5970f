/* What the files of the store share. */
#ifndef REDIS_STORE_STATE_H
#define REDIS_STORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/buf.h"
#include "redis/address.h"
#include "redis/breaker.h"
#include "redis/connect.h"
#include "redis/lender.h"
#include "redis/store.h"

#define STORE_OVERDUE_US (10 * US_PER_S)         /* then a connection is given up … */
#define STORE_OVERDUE_SENTINEL_US (1 * US_PER_S) /* … sooner where sentinels may know another master */

enum {
    STORE_FLIGHT_MAX = 10000,   /* calls of a link without an answer */
    STORE_QUEUE_MAX = 8 << 20,  /* bytes of these */
    STORE_ANSWER_MAX = 1 << 20, /* bytes of an answer */
    STORE_POSTED_MAX = 10000,   /* calls that wait for the store's thread */
    STORE_WANTED_MAX = 1024,    /* asks that do */
};

/* Of the store as a whole; what is counted of links is summed up here, too. */
struct store_counts {
    atomic_uint_fast64_t calls, late, failed, lost, unsent, refunded, replaced, emptied, reconciled;
    atomic_uint_fast64_t slices, lent, returned, held; /* the lender's, as of a moment ago */
};

static inline void store_count(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

struct wanted {
    struct wanted *next;
    struct lease_ask ask;
};

/* Lives until both the one who waits and the store's thread are done with it. */
struct forget {
    struct forget *next;
    struct buf command;
    unsigned holders;
    bool done;
    int64_t found; /* of the keys so many were there; below 0: nobody knows */
};

struct store {
    struct redis_address address; /* the connector's, but for kind and prefix */
    sv prefix;
    struct store_options options;
    struct cells *cells;
    struct breaker breaker;
    struct store_counts counts;
    _Atomic int64_t offset_us;
    atomic_uint hosts;
    atomic_uint connected; /* links that have a connection, or are about to take one */
    atomic_bool stopping;
    pid_t pid; /* that has the threads */

    pthread_mutex_t lock; /* of the rest */
    struct store_link *links;
    struct store_call *posted, **posted_end;
    size_t posted_count;
    struct wanted *wanted, **wanted_end;
    size_t wanted_count;
    struct forget *forgets;
    pthread_cond_t forgotten; /* one of these is done */
    bool recall;
    char shown[REDIS_SHOWN_MAX + 1]; /* the server that was connected to last */

    /* the connector's */
    pthread_t connector;
    pthread_cond_t connect; /* somebody wants a connection, or all is over */
    int stop_fd;            /* readable: all is over */
    uint64_t server;        /* changes with the server: another run id, or another master by the sentinels */
    char run_id[RUN_ID_MAX + 1];

    /* the store's thread's */
    pthread_t thread, waiter;
    int wake_fd;
    struct store_link *own;
    bool nudge; /* slices have come in this turn */
    struct lender *lender;
};

/* Makes connections for links that want one, until store->stopping. */
void *connector_run(void *store);
/* The store's own thread. */
void *store_keeper_run(void *store);

/* Says that a call was not sent. */
void store_refuse(struct store *store, struct store_call *call);
/* The store's thread is done with it; found < 0: it failed. */
void forget_done(struct store *store, struct forget *forget, int64_t found);
/* What other threads have left for the store's own; each has to be freed, or called back. */
struct store_call *store_take_posted(struct store *store);
struct wanted *store_take_wanted(struct store *store);
struct forget *store_take_forgets(struct store *store);
bool store_take_recall(struct store *store);

void store_wake(struct store *store);
/* All links. */
void store_poke_all(struct store *store, unsigned news);
/* A failure of the store, for the breaker; and one that leaves no doubt. */
void store_failed(struct store *store, const char *why, unsigned times);
void store_gone(struct store *store, const char *why);
/* The store answers. */
void store_works(struct store *store);

#endif
