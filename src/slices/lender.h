/* Fetches slices for this host, and returns to the store what is not needed. Pure but for the cells: time is passed in, and
 * what is to be sent is handed out, so that tests/sim can run it against any network.
 *
 *   lender_ask ──► queue ──► lender_next ──► (sent to the store) ──► lender_answer ──► slice_put, slice_set_dry
 *   lender_sweep, lender_recall ──► slice_collect ──► queue ──► lender_next ──► (sent once, no answer needed)
 *
 * Invariant: a token is in at most one place: the store's budget, on its way, this host's cell, or spent. If a message is
 * lost or a process dies, the store takes the tokens on their way for spent: they are never spent twice. */
#ifndef SLICES_LENDER_H
#define SLICES_LENDER_H

#include "slices/asks.h"

enum {
    LENDER_QUEUE_MAX = 4096,  /* asks and returns that wait to be sent */
    LENDER_FLIGHT_MAX = 1024, /* that are on their way */
    LENDER_SLICES_MAX = 65536 /* slices that are looked after; further ones die with their windows */
};

struct lender;

enum lend_kind { LEND_TAKE, LEND_RETURN };

/* One message to the store. The lender's memory: valid until lender_answer. */
struct lend_call {
    enum lend_kind kind;
    struct slice_ask ask;
    uint32_t lacks;         /* LEND_TAKE: of what is needed, the part that this host does not have */
    uint64_t debt;          /* LEND_TAKE: let through while the store was unavailable, to be charged there */
    int64_t end_us;         /* LEND_RETURN: of the window, by the store's clock … */
    uint32_t tokens;        /* … and how many */
    int64_t sent_us;        /* this host's clock when it was handed out */
    struct lend_call *next; /* the lender's own */
};

/* The answer to a LEND_TAKE. */
struct lent {
    bool stale;        /* the windows are not those of the store's clock */
    uint32_t tokens;   /* lent; 0: there is too little */
    int64_t end_us;    /* of the window, by the store's clock */
    int64_t server_us; /* the store's clock */
    uint64_t room;     /* what is left in the store after this */
};

enum lend_result {
    LEND_ANSWERED,
    LEND_UNSENT, /* it certainly never reached the store: a return is sent again after the next sweep */
    LEND_LOST,   /* it is not known whether it reached the store */
    LEND_FAILED, /* the store refused, and changed nothing */
};

int lender_new(struct lender **ret, struct cells *cells);
/* No message may be on its way. Slices stay in their cells. */
void lender_free(struct lender *lender);

/* Asks for a slice. One ask for a cell waits or is on its way at a time: later ones are merged with it or ignored, and
 * their callers look again when it is answered. An ask that brings a debt is sent even if there is enough. Returns false if
 * too many are waiting. */
bool lender_ask(struct lender *lender, const struct slice_ask *ask);
/* The next message to send, or NULL. */
struct lend_call *lender_next(struct lender *lender, int64_t now_us);
/* Returns whether an ask was dropped since the last call: there is enough by now, or the store has said that there is no
 * more. Callers that wait should look again then, too. */
bool lender_dropped(struct lender *lender);
/* The result of a message. `lent` is for a LEND_TAKE that was answered. `call` is freed. Returns whether callers that wait
 * for slices should look again. */
bool lender_answer(struct lender *lender, struct lend_call *call, enum lend_result result, const struct lent *lent,
                   int64_t now_us);
/* Returns slices that nobody has spent from for their ttl (while the store answers), and forgets those whose windows are
 * over. To be called every 50 ms or so. */
void lender_sweep(struct lender *lender, bool up, int64_t now_us);
/* Returns all slices. */
void lender_recall(struct lender *lender, int64_t now_us);

struct lender_counts {
    uint64_t slices, lent, returned; /* see struct weir_store_status */
    uint64_t paid;                   /* of what was owed */
    uint64_t held;                   /* as of the last sweep */
};
struct lender_counts lender_counts(const struct lender *lender);

#endif
