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

#define STORE_OVERDUE_US (10 * US_PER_S)      /* then a connection is given up … */
#define STORE_OVERDUE_MOVES_US (1 * US_PER_S) /* … sooner where another server may take its place */

enum {
    STORE_FLIGHT_MAX = 10000,   /* calls of a link without an answer */
    STORE_QUEUE_MAX = 8 << 20,  /* bytes of these */
    STORE_ANSWER_MAX = 4 << 20, /* bytes of an answer; the longest is that of CLUSTER SLOTS */
    STORE_POSTED_MAX = 10000,   /* calls that wait for the store's thread */
    STORE_WANTED_MAX = 1024,    /* asks that do */
    STORE_MARK_MAX = 64,
    STORE_KEY_NAME_MAX = SCRIPT_PREFIX_MAX + 32,
    NODES_MAX = 512, /* masters of a cluster */
    NODE_NAME_MAX = 2 * REDIS_SHOWN_MAX + 4,
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

enum { PLACE_NONE = UINT16_MAX };

struct wanted {
    struct wanted *next;
    struct slice_ask ask;
};

/* Lives until both the thread that waits for it and the store's thread have released it. */
struct forget {
    struct forget *next;
    struct buf command;
    uint16_t place; /* its slot in a cluster; PLACE_NONE: there is no cluster */
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

/* Signals that other threads leave for the thread of a lane. */
struct lane_inbox {
    struct lane_inbox *next; /* store->lanes */
    struct node *node;
    int event;           /* eventfd: readable while there are signals */
    atomic_uint signals; /* enum lane_signal */
    /* With store->lock held: */
    bool wants_connection;
    int fd;          /* a new connection; -1: none */
    struct tls *tls; /* of it, or NULL */
    uint64_t server; /* that it is connected to */
};

enum lane_signal {
    LANE_CONNECTION = 1,  /* there is a new connection */
    LANE_SLICES = 2,      /* slices have come */
    LANE_UNREACHABLE = 4, /* the server does not answer */
    LANE_REPLACED = 8,    /* another server has taken the place of the node's, or the node is not used any more */
};

/* What the store's thread knows about a node. */
struct node_watch {
    uint16_t mark_slot;                /* in a cluster: the first slot of the node … */
    char mark_key[STORE_KEY_NAME_MAX]; /* … and a key in it; "": it has no slot */
    char mark[STORE_MARK_MAX + 1];     /* of its data, as it was seen last; "": none */
    bool up;                           /* as it was when last looked at */
    int64_t up_us;                     /* since when it is */
    int64_t probe_us, backoff_us, probed_us;
    bool probing; /* its answer is awaited */
};

/* A server that holds counters: the only one, or a master of a cluster. Each link has a lane to each. The entry of a
 * master that has left the cluster is used again for another one. */
struct node {
    struct store *store;
    unsigned number; /* store->nodes */
    struct breaker breaker;
    atomic_uint connected;    /* lanes that have a connection, or are about to take one */
    atomic_bool failing;      /* the last attempt to make a connection failed: nobody waits for the next */
    atomic_bool used;         /* connections to it are wanted */
    atomic_bool serves;       /* it has slots: not a node that is only asked for the others, or about to get its first */
    atomic_bool fresh;        /* in a cluster: it has just joined, and no connection to it was made or refused yet */
    _Atomic int64_t asked_us; /* when a node last sent somebody there by ASK */

    /* With store->lock held: */
    struct redis_endpoint endpoint; /* in a cluster */
    uint64_t server;                /* changes with the server: another run id, or another address */
    char run_id[RUN_ID_MAX + 1];
    char shown[REDIS_SHOWN_MAX + 1]; /* the server that was connected to last */
    /* The store's thread changes it, with the breaker's lock held. Of the store, and of the node in a cluster: for people.
     */
    char name[NODE_NAME_MAX];

    int64_t not_before_us, backoff_us; /* the connector's */
    struct node_watch watch;           /* the store's thread's */
};

struct store {
    struct redis_address address; /* only the connector changes it, and neither kind nor prefix */
    sv prefix;
    struct store_options options;
    struct cells *cells;
    struct store_counts counts;
    /* Only the store's thread adds nodes, after the first ones. */
    struct node *nodes[NODES_MAX];
    atomic_uint node_count;
    struct slot_map *map; /* NULL: there is one node */
    _Atomic int64_t offset_us;
    atomic_uint_fast64_t secret[2]; /* the mark of the store's data; the first is 0 until it is known */
    atomic_uint hosts;
    atomic_bool stopping;
    pid_t pid; /* the process that has the threads */

    pthread_mutex_t lock; /* protects what follows, up to the connector's part */
    struct lane_inbox *lanes;
    struct store_inbox inbox;
    pthread_cond_t forgotten; /* a forget is done */

    /* the connector's */
    pthread_t connector;
    struct credentials credentials;
    pthread_cond_t connect; /* a link wants a connection, or the store is closed */
    int stop_fd;            /* readable: the store is closed */

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
void lane_signal(struct lane_inbox *inbox, unsigned signals);
/* Signals all lanes to the node. */
void node_signal_all(struct node *node, unsigned signals);
/* Signals each link, by its lane to the first node: see store_link_new(). */
void store_slices_came(struct store *store);
/* `times` failures for the breaker to count. */
void node_failed(struct node *node, const char *why, unsigned times);
/* Opens the breaker at once. */
void node_unreachable(struct node *node, const char *why);
/* Closes the breaker. */
void node_answers(struct node *node);
/* The server that was connected to last. */
void node_read_shown(struct node *node, char shown[REDIS_SHOWN_MAX + 1]);
static inline bool node_up(const struct node *node)
{
    return !breaker_is_open(&node->breaker);
}
/* Calls wait for the first connection to a node that has just joined. */
static inline bool node_takes_calls(const struct node *node)
{
    return node_up(node) || atomic_load(&node->fresh);
}

/* ---- node.c ---- */

/* Adds a node, which is used from now on; endpoint: NULL if there is no cluster. Returns NULL if there is no room. */
struct node *node_add(struct store *store, const struct redis_endpoint *endpoint);
/* Returns the node with this address, also one that is not used; NULL: there is none. */
struct node *node_find(struct store *store, const struct redis_endpoint *endpoint);
/* Lets lanes connect to the node, or not any more. */
void node_use(struct node *node, bool used);
void nodes_free(struct store *store);

/* ---- decision_calls.c ---- */

/* Tells the caller that its call was not sent. */
void store_refuse(struct store *store, struct store_call *call);

/* ---- inbox.c ---- */

void store_inbox_init(struct store_inbox *inbox);
/* All of it. The store's thread has to free or call back each. */
struct store_inbox store_take_inbox(struct store *store);
/* The store's thread has released it; found < 0: it failed. */
void forget_done(struct store *store, struct forget *forget, int64_t found);

#endif
