/* Counters in a store that many hosts share, as the engine sees them: a table of operations, which is passed in when a
 * handle is opened. src/redis is the store that exists; it knows nothing of rules or decisions.
 *
 *   exact    a call decides on all cells of a plan in the store, all or nothing, by the store's clock
 *   leased   the store's own thread fetches slices of a window's budget and puts them into this host's cells
 * (slices/)
 *
 * Nothing here waits for the network: a call is sent, and its callback comes later, in the thread of the link that it was
 * sent over. */
#ifndef ENGINE_STORE_H
#define ENGINE_STORE_H

#include "base/hash.h"
#include "cells/cells.h"
#include "limit/limit.h"
#include "slices/asks.h"
#include <weir/weir.h>

struct cells;
struct store;
struct store_link;

/* How long a charge can be given back. */
enum { RECEIPT_LIFE_S = CELLS_LATE_US / US_PER_S };

/* ---- a call ---- */

/* A charge that is a hold: the store ends it by itself after its time to live, and knows it by the number of the call and
 * `nth` until it is settled. */
struct store_hold {
    int64_t ttl_us;  /* 0: the charge is not a hold */
    uint64_t amount; /* the counter's own part of the cost */
    bool keep;       /* after its time to live it is kept as a charge; else it is given back */
    uint16_t nth;    /* tells apart the holds of a call */
};

/* One limit of one subject. */
struct store_cell {
    const struct limit *limit;
    struct weir_str field;      /* its name within the key: the limit's name and the algorithm's letter, "day.c" */
    struct window window, next; /* of a calendar limit, by the store's clock: the current one, and the one after it */
    uint64_t cost;              /* in the limit's unit; 0 looks: it fits while no more than `max` is used */
    /* Its own part of the cost, which is what is given back. The rest is that of earlier cells of the same field. */
    uint64_t own;
    /* How the cost is charged if the call charges. WEIR_CHARGE_ALWAYS and WEIR_GIVE_BACK happen whatever the other cells
     * say; rules with such cells come first in a call. */
    enum weir_charging charging;
    struct store_hold hold; /* whether the charge is a hold */
    uint64_t to;            /* settling: what the cost becomes */
    int64_t off_us;         /* settling: it was charged to a slice; the end of its window may be wrong by this much */
    /* Let through on this host while the store was unavailable: added before anything is judged, even if the call only
     * looks. ret: 0 if it was certainly added. */
    uint64_t debt;
    struct limit_state state; /* ret: after the decision, as limit_report takes it */
    bool fits;                /* ret: had room for the cost */
};

enum store_result {
    STORE_DECIDED,
    STORE_STALE,  /* the windows are not those of the store's clock: server_us says it; nothing was charged */
    STORE_FAILED, /* the store refused (a key of another kind): nothing was charged; `why` says it */
    STORE_LOST,   /* the connection broke: it is not known whether it was charged */
    STORE_UNSENT, /* nothing was charged: the store is unavailable, or its queue is full */
    /* Only of a rule: nothing was charged, since another rule of the call failed first. */
    STORE_UNTRIED,
};

/* A rule for a subject: one key. Rules that are not shadow pass or fail together, and each shadow rule by itself: it is
 * charged only if the others have passed.
 *
 * The rules of a call may be in different servers. Then one of them may fail while the others answer: each has a result of
 * its own, and the clock of its server. What insists (see charging) was charged if its rule's result is STORE_DECIDED,
 * whatever the result of the call. */
struct store_rule {
    struct weir_str key; /* without the prefix: "{u1}:ocr:key" */
    struct store_cell *cells;
    size_t cell_count;
    bool shadow;
    bool fits; /* ret: all of its cells had room, and (if the call charges, and those that are not shadow passed) it was
                  charged */
    enum store_result result; /* ret */
    int64_t server_us;        /* ret: the clock of its server then; 0: not known. Settling: when it was charged, by that */
};

struct store_call {
    /* the question; it has to stay until done */
    struct store_rule *rules;
    size_t rule_count;
    bool charge; /* the cells are charged their costs; else the call only looks */
    /* It only looks, for a request that will be charged: a cell that refuses because of a wrong clock is set right, as it
     * is by a call that charges. */
    bool mends;
    bool settle;      /* nothing is decided: what the cells were charged at server_us, leaving their state, becomes `to` */
    bool renew;       /* with settle: instead, holds last for their ttl_us from now on */
    bool enter;       /* with settle: instead, the store learns of holds that slices have paid for, and will end them */
    uint32_t hold_id; /* number of the holds of the call; 0: there are none */
    uint64_t mark;    /* with settle: of the receipt, which changes a charge once; 0: the caller sees to that */
    int64_t ends_us;  /* with settle: when holds that slices paid for end by the store's clock, unless they are renewed */
    int64_t now_us;   /* 0: the store's clock counts; other times are for tests */
    int64_t deadline_us; /* clock_steady_us */

    /* the answer */
    enum store_result result; /* of all rules that are not shadow: STORE_DECIDED only if each of them is */
    bool allowed;             /* STORE_DECIDED: those that are not shadow have room, and were charged if `charge` */
    int64_t server_us;        /* the store's clock then (STORE_DECIDED, STORE_STALE); the earliest of its rules */
    char why[300];

    /* NULL, or called just before a posted call is sent, in the thread that sends it: the question may still be changed.
     * Not called if it is not sent. */
    void (*sending)(struct store_call *call);
    /* The deadline has passed, or it is certain that no answer will come before it. `done` still comes. At most once,
     * before `done`; not for calls whose answer is in time. */
    void (*late)(struct store_call *call);
    /* Exactly once. The call is the caller's again. */
    void (*done)(struct store_call *call);

    /* the store's own */
    struct store_link *link; /* that it was sent over: link_settle may be asked of it in `done` */
    struct store_call *next;
    void (*again)(struct store_link *link, struct store_call *call); /* in a cluster: sends it once more … */
    unsigned tries;                                                  /* … how often it was … */
    bool alone;                                                      /* … and not together with others */
    bool told_late;
};

/* One server has answered for all rules of the call, or has not: sets what each of them says. */
static inline void store_call_answered(struct store_call *call)
{
    bool told = call->result == STORE_DECIDED || call->result == STORE_STALE;
    for (size_t i = 0; i < call->rule_count; i++) {
        struct store_rule *rule = &call->rules[i];
        rule->result = call->result;
        rule->server_us = told ? call->server_us : 0;
        for (size_t j = 0; call->result == STORE_DECIDED && j < rule->cell_count; j++)
            rule->cells[j].debt = 0;
    }
}

/* ---- the store ---- */

/* Events that the engine reports to the store, for its status. */
enum store_event {
    STORE_RECONCILED, /* tokens of debts were charged */
    STORE_REFUNDED,   /* a charge was given back, since its answer came too late */
    STORE_NOT_ASKED,  /* a decision was made without the store, since it is unreachable */
};

struct store_options {
    const char *address;  /* see docs/redis.md */
    uint32_t deadline_ms; /* for each decision; the engine sets the deadlines of calls, the store those of its own */
    uint32_t hosts;       /* 0: counted through the store */
    bool visits;          /* for one command: not counted as a host, and other processes of the cells do not notice */
    /* Called once for each change, in the store's thread or a link's. */
    void (*on_event)(enum weir_store_event event, const char *text, void *data);
    void *on_event_data;
};

/* The operations of a store. Any thread may call them, unless a comment says otherwise. */
struct store_ops {
    /* Checks the address, makes the store's thread and returns at once: a store that is unreachable is not an error, since
     * it may come back. Slices go into `cells`, which have to stay. */
    int (*open)(struct store **ret, const struct store_options *options, struct cells *cells, struct weir_error *error);
    /* Gives slices back, as far as the store answers within a fifth of a second. No link may be left. A child of fork must
     * not use the store or its links; this leaves all alone there. NULL is ignored. */
    void (*close)(struct store *store);

    /* Returns false while the circuit breaker is open or there is no connection; of several servers, to all of them.
     * Cheap. */
    bool (*up)(const struct store *store);
    /* Returns whether keys are in several servers, which are up or down one by one. Cheap. NULL: they are not. */
    bool (*several)(const struct store *store);
    /* If they are: returns whether the server of this key is up. Cheap. */
    bool (*answers)(const struct store *store, struct weir_str key);
    /* Returns the number of hosts that count in the store, as far as is known: at least 1. */
    uint32_t (*hosts)(const struct store *store);
    /* Returns the store's clock less this host's, as it was last known on this host; 0 until it is. */
    int64_t (*offset_us)(const struct store *store);
    /* Writes a secret that all hosts of the store share, and nobody else. It changes when the store has lost its data.
     * Returns false until it is known. */
    bool (*secret)(const struct store *store, struct hash_key *ret);
    void (*status)(struct store *store, struct weir_store_status *ret);
    /* For the status. */
    void (*count)(struct store *store, enum store_event event, uint64_t n);

    /* The store's own thread sends the call and calls back there. done may be called before it returns, too
     * (STORE_UNSENT). For callers that block. */
    void (*post)(struct store *store, struct store_call *call);
    /* Forgets keys in the store; earlier charges to them cannot be given back any more. Waits until it is done, until the
     * deadline at most. Returns how many of the keys existed. */
    int (*forget)(struct store *store, const struct weir_str *keys, size_t count, struct weir_error *error);

    /* A slice is wanted, see slices/; the ask is copied. Returns false if too many are waiting already. */
    bool (*want)(struct store *store, const struct slice_ask *ask);
    /* The rules have changed: all slices are given back, so that new numbers count. */
    void (*recall)(struct store *store);

    /* Links, one for each event loop, to be used by its thread only. Callbacks may use a link, but neither run nor free it.
     * `nudged` is called in link_run when slices have come since it was last called. */
    int (*link_new)(struct store_link **ret, struct store *store, void (*nudged)(void *data), void *data);
    /* `late` and `done` are called for calls that still wait (STORE_LOST). */
    void (*link_free)(struct store_link *link);
    /* Returns a descriptor that is readable when link_run has something to do (replies, deadlines, slices). It stays the
     * same.
     */
    int (*link_fd)(const struct store_link *link);
    void (*link_run)(struct store_link *link);
    /* `nudged` is called at this time (clock_steady_us) at the latest; 0: no more. */
    void (*link_wake_at)(struct store_link *link, int64_t steady_us);
    /* Queues a call; late and done may be called before it returns (STORE_UNSENT). */
    void (*link_send)(struct store_link *link, struct store_call *call);
    /* Sends what was queued, in one write. At the end of each turn. */
    void (*link_flush)(struct store_link *link);
    /* Settles what a call has charged, as limit_amend would: windows only while they last. `call` is one that was answered
     * (STORE_DECIDED, allowed, charge), with what its costs become; it is copied, sent once and forgotten. */
    void (*link_settle)(struct store_link *link, const struct store_call *call);
};

#endif
