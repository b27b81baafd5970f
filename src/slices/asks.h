/* Asking the lender of this host for slices, and what the lender says about itself. Processes that have a connection to the
 * store ask their own lender (lender.h); the others ask through the table. */
#ifndef SLICES_ASKS_H
#define SLICES_ASKS_H

#include <weir/weir.h>

#include "cells/cells.h"

enum { STORE_KEY_MAX = 344, STORE_FIELD_MAX = WEIR_NAME_MAX + 2 };

/* All that the lender has to know: it need not have the same rules. */
struct slice_ask {
    uint64_t cell;              /* key of the cell that the slice is put into */
    uint64_t owed;              /* key of the cell that holds what is owed: see debt.h */
    struct limit limit;         /* fixed_window or calendar */
    struct window window, next; /* calendar: by the store's clock, the current one and the one after it */
    uint32_t need;              /* nothing is lent if less than the missing part of this is left in the store */
    uint32_t slice;             /* a full one */
    uint32_t ttl_ms;            /* a slice that nobody spends from for this long is returned to the store */
    uint16_t key_len, field_len;
    char key[STORE_KEY_MAX]; /* in the store, without the prefix */
    char field[STORE_FIELD_MAX];
};

/* Puts an ask on the board and wakes the lender. The same ask twice takes one slot. Returns false if no slot is free: try
 * again in a millisecond. */
bool ask_post(struct cells *cells, const struct slice_ask *ask, int64_t steady_us);
/* For the lender: takes the next ask from the board. Returns false if there is none. */
bool ask_next(struct cells *cells, struct slice_ask *ret, int64_t steady_us);
/* For the lender: waits until there were asks since `seen` (at first 0), at most for so long; returns the next `seen`. */
uint32_t ask_wait(struct cells *cells, uint32_t seen, int64_t most_us);

/* For the lender: answers have come. Wakes everybody in answers_wait, in all processes. */
void answers_came(struct cells *cells);
/* Returns how often answers have come. */
uint32_t answers_seen(const struct cells *cells);
/* Waits until answers came since `seen`, at most for so long. */
void answers_wait(struct cells *cells, uint32_t seen, int64_t most_us);

/* The status of the lender, which all processes of the host can read. */
struct lender_status {
    bool counters;     /* rules count in the store by default (`weir serve --counters`); stays when the lender has gone */
    bool up;           /* the lender lives, and the store answers */
    uint32_t hosts;    /* at least 1 */
    int64_t offset_us; /* the store's clock less this host's */
};
/* A lender that has written nothing for a second is not `up`. */
struct lender_status lender_status_read(const struct cells *cells, int64_t steady_us);
void lender_status_write(struct cells *cells, const struct lender_status *status, int64_t steady_us);
/* The table is a copy of another host's, and so is its lender's status: that lender is not here, and there is one host more
 * than it said. */
void lender_status_note_copy(struct cells *cells);

#endif
