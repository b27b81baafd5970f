/* Numbers of receipts, each of which is good once: see receipt_ring.c. */
#ifndef ENGINE_RECEIPT_RING_H
#define ENGINE_RECEIPT_RING_H

#include "cells/cells.h"

enum {
    RING_BLOCKS = 256,
    RING_BLOCK_NUMBERS = 64,
    /* A number can be used until this many further ones were drawn of its ring. */
    RING_WINDOW = (RING_BLOCKS - 1) * RING_BLOCK_NUMBERS,
};

/* Draws a number of the ring with this key. It can be used until until_us. */
uint64_t ring_draw_number(struct cells *cells, uint64_t ring, int64_t now_us, int64_t until_us);

enum ring_number { RING_OPEN, RING_USED, RING_FORGOTTEN };
/* Returns what the number was until now. RING_OPEN: it is the caller's, the first time for each number that was drawn, as
 * long as the ring remembers it. */
enum ring_number ring_use_number(struct cells *cells, uint64_t ring, uint64_t number, int64_t now_us);
/* The same, and the number stays what it is. */
enum ring_number ring_look_number(const struct cells *cells, uint64_t ring, uint64_t number);

#endif
