/* Reads and replaces the state of a cell together with its holds. */
#ifndef CELLS_HOLDING_H
#define CELLS_HOLDING_H

#include "cells/blocks.h"
#include "cells/cell.h"

/* The block that `s` names has not the content that the name says. */
bool read_damaged(struct cell *c, word16 s, struct held *ret);

/* Reads the state and the holds of a cell. Returns false if the cell has changed since `s` was read. A damaged block reads
 * as an unused cell, like a damaged cell. */
static inline bool read_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *ret)
{
    if (state_tag(s) == CELL_HELD)
        return block_read(cells, key, state_payload(s), ret) || read_damaged(c, s, ret);
    ret->state.time = state_payload(s).time;
    ret->state.data = state_payload(s).data;
    ret->tag = 0;
    ret->ended_us = 0;
    ret->count = 0;
    return true;
}

/* Returns the outlook of a state whose holds may last longer. */
static inline struct limit_outlook last_as_long(const struct limit_outlook *outlook, const struct held *h)
{
    int64_t until_us = h->count ? h->holds[h->count - 1].until_us : 0, decays_us = outlook->decays_us;
    if (until_us > decays_us)
        decays_us = until_us < CLOCK_END_US ? until_us : CLOCK_END_US;
    return (struct limit_outlook){ decays_us, outlook->spare_us, outlook->share };
}

enum put { PUT, PUT_LOST, PUT_NO_ROOM };
/* Replaces `s`, which was read from the cell, by the state and holds of `h`. */
enum put put_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                  const struct limit_outlook *outlook, int64_t now_us);
/* Does the same without the holds, for when no block is free. The holds become charges, which refuses too much rather than
 * too little. */
enum put put_without(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                     const struct limit_outlook *outlook, int64_t now_us);
/* Calls put_held() or, if no block is free, put_without(). PUT_NO_ROOM: these are slots, which nothing would end without
 * their holds; nothing has changed. */
enum put put_anyhow(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h, const struct limit *limit,
                    const struct limit_outlook *outlook, int64_t now_us);

#endif
