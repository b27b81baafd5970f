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
    ret->windows = true;
    ret->count = 0;
    return true;
}

/* Returns the outlook of a state with a hold that may last longer. */
static inline struct limit_outlook last_until(const struct limit_outlook *outlook, int64_t until_us)
{
    int64_t decays_us = outlook->decays_us;
    if (until_us > decays_us)
        decays_us = until_us < CLOCK_END_US ? until_us : CLOCK_END_US;
    return (struct limit_outlook){ decays_us, outlook->spare_us, outlook->share };
}

/* The same for all holds. */
static inline struct limit_outlook last_as_long(const struct limit_outlook *outlook, const struct held *h)
{
    return last_until(outlook, h->count ? h->holds[h->count - 1].until_us : 0);
}

enum put { PUT, PUT_LOST, PUT_NO_ROOM };
/* Replaces `s`, which was read from the cell, by the state and holds of `h`. */
static inline enum put put_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                                const struct limit_outlook *outlook, int64_t now_us)
{
    struct limit_state next;
    uint64_t claimed;
    bool put;
    if (h->count > 0) {
        if (!block_write(cells, key, now_us, h, &next, &claimed))
            return PUT_NO_ROOM;
        put = replace_as(CELL_HELD, c, s, next, last_as_long(outlook, h));
        if (!put)
            block_free(cells, next, (word16){ key, claimed });
    } else {
        put = replace(c, s, state_of(h), *outlook);
    }
    if (put && state_tag(s) == CELL_HELD)
        block_free(cells, state_payload(s), (word16){ key, h->claimed });
    return put ? PUT : PUT_LOST;
}

/* Does the same without the holds, for when no block is free. The holds become charges, which refuses too much rather than
 * too little. */
enum put put_without(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                     const struct limit_outlook *outlook, int64_t now_us);

/* Calls put_held() or, if no block is free, put_without(). PUT_NO_ROOM: these are slots, which nothing would end without
 * their holds; nothing has changed. */
static inline enum put put_anyhow(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                                  const struct limit *limit, const struct limit_outlook *outlook, int64_t now_us)
{
    enum put put = put_held(cells, c, key, s, h, outlook, now_us);
    bool slots = limit && limit->algorithm == LIMIT_CONCURRENT;
    return put == PUT_NO_ROOM && !slots ? put_without(cells, c, key, s, h, outlook, now_us) : put;
}

#endif
