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

enum put put_without(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                     const struct limit_outlook *outlook, int64_t now_us)
{
    h->count = 0;
    return put_held(cells, c, key, s, h, outlook, now_us);
}
