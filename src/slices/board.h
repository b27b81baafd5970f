/* The notice board in the first page of the table, after its header: what processes of a host that count in the same
 * table tell each other about the store.
 *
 *   board   what the lender says about itself · when something was last owed · BOARD_SLOTS slots, each for one ask
 *   slot    state: time 52 · count of changes 10 · tag 2; checksum of the ask; the ask
 */
#ifndef SLICES_BOARD_H
#define SLICES_BOARD_H

#include "cells/layout.h"
#include "slices/asks.h"

enum { BOARD_OFFSET = 512, BOARD_SLOTS = 7 };

enum { ASK_OVERDRAFT = 1 << 8 };

/* An ask as a slot holds it. */
struct written_ask {
    uint64_t cell, owed;
    int64_t per_us;
    struct window window, next;
    uint64_t max;
    uint32_t algorithm; /* and ASK_OVERDRAFT */
    uint32_t need, slice, ttl_ms;
    uint16_t key_len, field_len;
    char key[STORE_KEY_MAX];
    char field[STORE_FIELD_MAX];
};

enum { ASK_WORDS = sizeof(struct written_ask) / 8 };
_Static_assert(sizeof(struct written_ask) % 8 == 0, "an ask is copied in words");

struct ask_slot {
    uint64_t state;
    uint64_t checksum;
    uint64_t words[ASK_WORDS];
};

enum { STATUS_COUNTERS = 1, STATUS_UP = 2 };

struct board {
    uint64_t beat_us; /* when the lender last wrote its status, by the clock that all processes of a host share */
    uint64_t flags;   /* hosts 32 · STATUS_… 32 */
    int64_t offset_us;
    int64_t debt_us;  /* when something was last owed to the store: see last_owed_us */
    uint32_t posted;  /* number of asks so far; a futex for the lender */
    uint32_t brought; /* number of answers so far; a futex for those who wait for slices */
    struct ask_slot slot[BOARD_SLOTS];
};

_Static_assert(sizeof(struct cells_header) <= BOARD_OFFSET, "the board comes after the header …");
_Static_assert(BOARD_OFFSET + sizeof(struct board) <= CELLS_HEADER_BYTES, "… and fits its page");

static inline struct board *board_of(const struct cells *cells)
{
    return (struct board *)((char *)cells->header + BOARD_OFFSET);
}

#endif
