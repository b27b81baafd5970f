/* The state of the store, which its files share. */
#ifndef REDIS_STORE_STATE_H
#define REDIS_STORE_STATE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/lock.h"
#include "redis/address.h"
#include "redis/breaker.h"
#include "redis/connect.h"
#include "redis/redis_store.h"
#include "slices/lender.h"

#define STORE_OVERDUE_US (10 * US_PER_S)         /* then a connection is given up … */
#define STORE_OVERDUE_SENTINEL_US (1 * US_PER_S) /* … sooner where sentinels may know another master */

enum {
    STORE_FLIGHT_MAX = 10000,   /* calls of a link without an answer */
    STORE_QUEUE_MAX = 8 << 20,  /* bytes of these */
    STORE_ANSWER_MAX = 1 << 20, /* bytes of an answer */
    STORE_POSTED_MAX = 10000,   /* calls that wait for the store's thread */
    STORE_WANTED_MAX = 1024,    /* asks that do */
};

/* Counts of the store as a whole, with those of its links. */
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
    struct slice_ask ask;
};

/* Lives until both the thread that waits for it and the store's thread have released it. */
struct forget {
    struct forget *next;
    struct buf command;
    unsigned holders;
    bool done;
    int64_t found; /* number of the keys that were there; negative: not known */
};

/* Calls and asks that other threads leave for the store's own thread. */
struct store_inbox {
    struct store_call *posted, **posted_end;
    size_t posted_count;
    struct wanted *wanted, **wanted_end;
    size_t wanted_count;
    struct forget *forgets;
    bool recall;
};

/* Signals that other threads leave for the thread of a link. */
struct link_inbox {
    struct link_inbox *next; /* store->links */
    int event;               /* eventfd: readable while there are signals */
    atomic_uint signals;     /* enum link_signal */
    /* With store->lock held: */
    bool wants_connection;
    int fd;          /* a new connection; -1: none */
    struct tls *tls; /* of it, or NULL */
    uint64_t server; /* that it is connected to */
};

enum link_signal {
    LINK_CONNECTION = 1,  /* there is a new connection */
    LINK_SLICES = 2,      /* slices have come */
    LINK_UNREACHABLE = 4, /* the store does not answer */
    LINK_REPLACED = 8,    /* another server has taken the place of the store's */
};

struct store {
    struct redis_address address; /* only the connector changes it, and neither kind nor prefix */
    sv prefix;
    struct store_options options;
    struct cells *cells;
    struct breaker breaker;
    struct store_counts counts;
    _Atomic int64_t offset_us;
    atomic_uint_fast64_t secret[2]; /* the mark of the store's data; the first is 0 until it is known */
    atomic_uint hosts;
    atomic_uint connected; /* links that have a connection, or are about to take one */
    atomic_bool failing;   /* the last attempt to make a connection failed: nobody waits for the next */
    atomic_bool stopping;
    pid_t pid; /* the process that has the threads */

    pthread_mutex_t lock; /* protects what follows, up to the connector's part */
    struct link_inbox *links;
    struct store_inbox inbox;
    pthread_cond_t forgotten;        /* a forget is done */
    char shown[REDIS_SHOWN_MAX + 1]; /* the server that was connected to last */

    /* the connector's */
    pthread_t connector;
    struct credentials credentials;
    pthread_cond_t connect; /* a link wants a connection, or the store is closed */
    int stop_fd;            /* readable: the store is closed */
    uint64_t server;        /* changes with the server: another run id, or another master by the sentinels */
    char run_id[RUN_ID_MAX + 1];

    /* the store's thread's */
    pthread_t thread, waiter;
    int wake_fd;
    struct store_link *own;
    bool slices_came; /* in this turn */
    struct lender *lender;
};

/* ---- threads ---- */

/* Makes connections for links that want one, until store->stopping. */
void *connector_run(void *store);
/* The store's own thread. */
void *store_thread_run(void *store);

/* ---- health.c ---- */

/* Wakes the store's thread. */
void store_wake(struct store *store);
void link_signal(struct link_inbox *inbox, unsigned signals);
void store_signal_all(struct store *store, unsigned signals);
/* `times` failures for the breaker to count. */
void store_failed(struct store *store, const char *why, unsigned times);
/* Opens the breaker at once. */
void store_unreachable(struct store *store, const char *why);
/* Closes the breaker. */
void store_answers(struct store *store);
/* The server that was connected to last. */
void store_read_shown(struct store *store, char shown[REDIS_SHOWN_MAX + 1]);

/* ---- decisions.c ---- */

/* Tells the caller that its call was not sent. */
void store_refuse(struct store *store, struct store_call *call);

/* ---- inbox.c ---- */

void store_inbox_init(struct store_inbox *inbox);
/* All of it. The store's thread has to free or call back each. */
struct store_inbox store_take_inbox(struct store *store);
/* The store's thread has released it; found < 0: it failed. */
void forget_done(struct store *store, struct forget *forget, int64_t found);

#endif
