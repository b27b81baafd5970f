/* Counters in a store that many hosts share, as the engine sees them. src/redis is the store that there is: it defines
 * these functions, and knows nothing of rules or plans.
 *
 *   exact    a call decides on all cells of a plan in the store, atomically, by the store's clock
 *   leased   the store's own thread fetches slices of a window's budget and puts them into this host's cells
 * (cells/lease.h)
 *
 * Nothing here waits for the network: a call is sent, and its callback comes later, in the thread of the link that it was
 * sent over. */
#ifndef ENGINE_STORE_H
#define ENGINE_STORE_H

#include "cells/lease.h"
#include "limit/limit.h"
#include <weir/weir.h>

struct cells;
struct store;
struct store_link;

/* How long what was charged can be given back. */
enum { RECEIPT_LIFE_S = 3600 };

/* ---- a call ---- */

/* One limit of one subject. */
struct store_cell {
    const struct limit *limit;
    struct weir_str field;      /* its name within the key: the limit's name and the algorithm's letter, "day.c" */
    struct window window, next; /* of a calendar limit, by the store's clock: the current one, and the one after it */
    int64_t off_us;             /* of a refund: by so much the end of its window may be off */
    uint32_t debt;              /* was charged on this host while the store was away: added before anything is judged */
    struct limit_state state;   /* ret: after the decision, as limit_report takes it */
    bool fits;                  /* ret: had room for the cost */
};

/* A rule for a subject: one key. Rules that are not shadow pass or fail together, and each shadow rule by itself: it is
 * charged only if the others have passed. */
struct store_rule {
    struct weir_str key; /* without the prefix: "{u1}:ocr:key" */
    struct store_cell *cells;
    size_t cell_count;
    bool shadow;
    bool fits; /* ret: all of its cells had room, and (if the call charges, and those that are not shadow passed) it was
                  charged */
};

enum store_result {
    STORE_DECIDED,
    STORE_STALE,  /* the windows are not those of the store's clock: server_us says it; nothing was charged */
    STORE_FAILED, /* the store refused (a key of another kind): nothing was charged; `why` says it */
    STORE_LOST,   /* nobody knows whether it was charged: the connection broke */
    STORE_UNSENT, /* nothing was charged: the store is away, or too much waits for it already */
};

struct store_call {
    /* the question; it has to stay until done */
    struct store_rule *rules;
    size_t rule_count;
    uint32_t cost;
    bool charge;
    bool refund;    /* nothing is decided: the cells are given back the cost, taken at server_us and leaving their state */
    int64_t now_us; /* 0: the store's clock counts, as it always should but in tests */
    int64_t deadline_us; /* clock_steady_us */

    /* the answer */
    enum store_result result;
    bool allowed;      /* STORE_DECIDED: those that are not shadow have room, and were charged if `charge` */
    int64_t server_us; /* the store's clock then (STORE_DECIDED, STORE_STALE) */
    char why[300];

    /* The deadline has passed, or it is certain that no answer will come before it. `done` still comes. At most once,
     * before `done`; not for calls whose answer is in time. */
    void (*late)(struct store_call *call);
    /* Exactly once. The call is the caller's again. */
    void (*done)(struct store_call *call);

    /* the store's own */
    struct store_link *link; /* that it was sent over: store_refund may be asked of it in `done` */
    struct store_call *next;
};

/* Gives back what a call has charged, as limit_refund would: windows only if they are still the same. `call` is one that
 * was answered (STORE_DECIDED, allowed, charge); it is copied, sent once and forgotten. */
void store_refund(struct store_link *link, const struct store_call *call);

/* ---- the store ---- */

struct store_options {
    const char *address;  /* see docs/redis.md */
    uint32_t deadline_ms; /* for each decision; the engine sets the deadlines of calls, the store those of its own */
    uint32_t hosts;       /* 0: counted through the store */
    bool visits;          /* for a moment: not counted as a host, and the cells' other processes do not notice */
    /* Told once of each change (store_event), from the store's thread or a link's. */
    void (*on_event)(enum weir_store_event event, const char *text, void *data);
    void *on_event_data;
};

/* Checks the address, makes the store's thread and returns at once: a store that is away is no error, since it may come
 * back. Slices go into `cells`, which have to stay. */
int store_open(struct store **ret, const struct store_options *options, struct cells *cells, struct weir_error *error);
/* Gives slices back, as far as the store answers within a fifth of a second. No link may be left.
 * A child of fork must not use the store or its links; this leaves all alone there. */
void store_close(struct store *store);

/* Is there any use in asking? False while the circuit breaker is open or there is no connection. From any thread, cheap. */
bool store_up(const struct store *store);
/* Hosts that count in the store, as far as is known: at least 1. */
uint32_t store_hosts(const struct store *store);
/* The store's clock less this host's, as it was last known on this host; 0 until it is. */
int64_t store_offset_us(const struct store *store);
void store_status(struct store *store, struct weir_store_status *ret);
/* For the status: so many tokens of debts were charged; an answer that came too late was made up for; the store was not
 * asked, since it is away. */
void store_count_reconciled(struct store *store, uint64_t tokens);
void store_count_refunded(struct store *store);
void store_count_unsent(struct store *store);

/* From any thread: the store's own thread sends it and calls back there; done may be called before it returns, too
 * (STORE_UNSENT). For callers that block. */
void store_post(struct store *store, struct store_call *call);

/* Forgets keys in the store, and that what they were charged so far can be given back; from any thread, waits until it is
 * done, at most for the deadline. Returns how many of the keys were there. */
int store_forget(struct store *store, const struct weir_str *keys, size_t count, struct weir_error *error);

/* ---- slices ---- */

/* From any thread: a slice is wanted, see cells/lease.h; copied. False: too many wait already. */
bool store_want(struct store *store, const struct lease_ask *ask);
/* The rules have changed: all slices are given back, so that new numbers count. From any thread. */
void store_recall(struct store *store);

/* ---- links: one for each event loop ---- */

/* To be used by one thread only. Callbacks may use it, but neither run nor free it. `nudged` is called in store_link_run
 * when slices have come since it was last called. */
int store_link_new(struct store_link **ret, struct store *store, void (*nudged)(void *data), void *data);
/* What still waits is told late and done (STORE_LOST). */
void store_link_free(struct store_link *link);
/* Readable when store_link_run has something to do (replies, deadlines, news). It stays the same. */
int store_link_fd(const struct store_link *link);
void store_link_run(struct store_link *link);
/* `nudged` is called at this time (clock_steady_us) at the latest; 0: no more. */
void store_link_wake_at(struct store_link *link, int64_t steady_us);
/* Queues a call; late and done may be called before it returns (STORE_UNSENT). */
void store_send(struct store_link *link, struct store_call *call);
/* Sends what was queued, in one write. At the end of each turn. */
void store_link_flush(struct store_link *link);

#endif
