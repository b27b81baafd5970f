/* Slices of a window's budget that this host may spend: each is in a cell of the table, so that every process of the host
 * spends from the same. They come from a store that many hosts share; whoever has a connection to it is the lender.
 *
 * A slice names its window by its end and dies with it. Spending is one compare-and-swap, as charging a limit is.
 *
 *   state   time 52: end of the window, its low bits
 *           data 64: bit 52 of the end · asked 1 · dry marks 30 · tokens left 32
 *   dry     hash of the limit's max 5 · what the store had 8 · until when, in ms 17
 *
 * The end is by this host's clock, and was worked out from the answer to a message: two answers about one window differ by
 * what they were on their way. So ends within LEASE_SAME_US of each other, while the earlier one is not over, are one
 * window; the earlier one counts.
 *
 * An absent cell is a host that has nothing: it has to ask. */
#ifndef CELLS_LEASE_H
#define CELLS_LEASE_H

#include <weir/weir.h>

#include "cells/cells.h"

#define LEASE_SAME_US US_PER_S
/* A mark that lies further ahead says nothing: it is an old one, or the clock stepped. The lender makes them for a quarter
 * of a second; the clock of who looks may lag behind his by the rest, since a turn of an event loop has one time for all.
 */
#define LEASE_DRY_MAX_US US_PER_S
/* Longer than a question to the store is under way: ten seconds to its deadline at most, and ten more until its connection
 * is given up. */
#define LEASE_CLAIM_US (30 * US_PER_S)

/* ---- spending ---- */

enum lease_outcome {
    LEASE_TAKEN,
    LEASE_SHORT, /* there is too little: ask the lender, and wait */
    LEASE_DRY,   /* too little, and the store had no more a moment ago: refused */
};

struct lease_spent {
    enum lease_outcome outcome;
    bool renew;     /* taken; little is left, and nobody has asked for more yet: ask, and do not wait */
    uint32_t left;  /* tokens of this host, after it */
    int64_t end_us; /* of the window, by this host's clock; 0: none is known */
};

/* Takes `cost` out of the slice in the cell of `key`. `slice` is a full one: with less than half of it left, it is time to
 * renew. `max` is the limit's: what the store said of another one does not count. cost 0, or charge false: looks. */
struct lease_spent lease_spend(struct cells *cells, uint64_t key, uint32_t slice, uint32_t max, int64_t now_us,
                               uint32_t cost, bool charge);
/* Puts back what was spent from the slice of the window that ends then, if it is still there. */
void lease_unspend(struct cells *cells, uint64_t key, int64_t end_us, uint32_t cost);

/* ---- lending ---- */

/* A slice has come: it is added to what is left of the same window; what was left of another dies. Nobody has asked any
 * more. Times are this host's. */
void lease_put(struct cells *cells, uint64_t key, int64_t end_us, uint32_t tokens, int64_t now_us);
/* The store has too little for somebody, no more than `room`: until then who lacks more than that here is refused without
 * asking. */
void lease_set_dry(struct cells *cells, uint64_t key, int64_t end_us, uint32_t max, uint32_t room, int64_t until_us,
                   int64_t now_us);
/* Takes out all that is left of the window that ends then, to be given back; the cell is given up. */
uint32_t lease_collect(struct cells *cells, uint64_t key, int64_t end_us, int64_t now_us);
/* What is left of the window that ends then. */
uint32_t lease_left(struct cells *cells, uint64_t key, int64_t end_us, int64_t now_us);

/* ---- asking ---- */

enum { LEASE_KEY_MAX = 344, LEASE_FIELD_MAX = WEIR_NAME_MAX + 2 };

/* What the lender has to know; he need not have the same rules. */
struct lease_ask {
    uint64_t cell;              /* key of the cell that the slice is put into */
    uint64_t owed;              /* key of the one that holds what is owed: see lease_owed */
    struct limit limit;         /* fixed_window or calendar */
    struct window window, next; /* calendar: by the store's clock, the current one and the one after it */
    uint32_t need;              /* what lacks of it here has to fit, or nothing is lent */
    uint32_t slice;             /* a full one */
    uint32_t ttl_ms;            /* given back if nobody spends from it for so long */
    uint16_t key_len, field_len;
    char key[LEASE_KEY_MAX]; /* in the store, without the prefix */
    char field[LEASE_FIELD_MAX];
};

/* Processes without a connection ask through the table's first page: some places, each for one ask. */

/* False: no place is free; try again in a millisecond. The same ask twice takes one place. Wakes the lender. */
bool lease_post(struct cells *cells, const struct lease_ask *ask, int64_t steady_us);

/* What the lender says of himself to all processes of the host. */
struct lease_news {
    bool counters;     /* rules count in the store by default (`weir serve --counters`); stays when the lender has gone */
    bool up;           /* the lender lives, and the store answers */
    uint32_t hosts;    /* at least 1 */
    int64_t offset_us; /* the store's clock less this host's */
};
/* A lender who has said nothing for a second is not there. */
struct lease_news lease_read_news(const struct cells *cells, int64_t steady_us);
void lease_tell_news(struct cells *cells, const struct lease_news *news, int64_t steady_us);
/* The table is a copy: the lender who spoke here is another host's, and there is one host more than he said. */
void lease_note_copy(struct cells *cells);

/* ---- what is owed ---- */

/* While the store is away, each limit counts what it lets through in a cell of its own besides the one that bounds it: this
 * amount is owed to the store. It is charged there when the store is back, and the cell is given up when that is certain.
 * The amount decays as the limit does. It has no upper bound: what was let through is owed, whatever `max` says. */

/* Adds `cost` to what is owed. `rank` is the limit whose share of the table's room the debt has: that of the count which it
 * stands for. Returns the state of the cell, for lease_unowe. */
struct limit_state lease_owe(struct cells *cells, uint64_t key, const struct limit *limit, const struct limit *rank,
                             const struct window *window, int64_t now_us, uint32_t cost);
/* Takes back `cost` that lease_owe added at owed_us and that left `owed`. */
void lease_unowe(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state owed, int64_t owed_us,
                 uint32_t cost, int64_t now_us);
/* The amount that is owed now; 0, without looking, if nothing was added for long. *ret_seen is for lease_pay. */
uint32_t lease_owed(struct cells *cells, uint64_t key, const struct limit *limit, const struct window *window,
                    int64_t now_us, struct limit_state *ret_seen);
/* Whoever pays does so alone: two processes of a host would charge the same amount twice. `who` is one number for one
 * payment, not 0. The claim ends by itself after LEASE_CLAIM_US, since its holder may die. False: somebody else is paying.
 */
bool lease_claim(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us);
void lease_release(struct cells *cells, uint64_t key, uint64_t who, int64_t now_us);
/* The store has charged all that lease_owed saw at seen_us. What was added since stays. */
void lease_pay(struct cells *cells, uint64_t key, const struct limit *limit, struct limit_state seen, int64_t seen_us,
               uint32_t paid, int64_t now_us);

/* For the lender: takes the next ask out of its place. False: there is none. */
bool lease_next_ask(struct cells *cells, struct lease_ask *ret, int64_t steady_us);
/* Waits until somebody has asked since `seen` (at first 0), at most for so long; returns what to give as `seen` next. */
uint32_t lease_wait_for_asks(struct cells *cells, uint32_t seen, int64_t most_us);

#endif
