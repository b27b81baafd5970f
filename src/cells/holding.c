#include "cells/holding.h"

bool read_damaged(struct cell *c, word16 s, struct held *ret)
{
    ret->tag = 0;
    ret->ended_us = 0;
    ret->claimed = 0; /* the block is left to whoever finds it old */
    ret->count = 0;
    ret->state = (struct limit_state){ 0 };
    return same_16(load_16(&c->state), s);
}

enum put put_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                  const struct limit_outlook *outlook, int64_t now_us)
{
    struct limit_state next;
    bool put;
    if (h->count > 0) {
        if (!block_write(cells, key, now_us, h, &next))
            return PUT_NO_ROOM;
        put = replace_as(CELL_HELD, c, s, next, last_as_long(outlook, h));
        if (!put)
            block_free(cells, next, block_owner(cells, next));
    } else {
        put = replace(c, s, h->state, *outlook);
    }
    if (put && state_tag(s) == CELL_HELD)
        block_free(cells, state_payload(s), (word16){ key, h->claimed });
    return put ? PUT : PUT_LOST;
}

enum put put_without(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                     const struct limit_outlook *outlook, int64_t now_us)
{
    h->count = 0;
    return put_held(cells, c, key, s, h, outlook, now_us);
}

enum put put_anyhow(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h, const struct limit *limit,
                    const struct limit_outlook *outlook, int64_t now_us)
{
    enum put put = put_held(cells, c, key, s, h, outlook, now_us);
    bool slots = limit && limit->algorithm == LIMIT_CONCURRENT;
    return put == PUT_NO_ROOM && !slots ? put_without(cells, c, key, s, h, outlook, now_us) : put;
}
