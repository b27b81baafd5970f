/* A cell and its holds: reading both, and putting others in their place. */
#ifndef CELLS_HOLDING_H
#define CELLS_HOLDING_H

#include "cells/blocks.h"
#include "cells/cell.h"

/* Reads what a cell has. False: it is not as it was read any more. What a damaged block had is lost, as damaged cells are.
 */
bool read_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *ret);

/* Returns the outlook of a state whose holds may last longer. */
static inline struct limit_outlook last_as_long(const struct limit_outlook *outlook, const struct held *h)
{
    int64_t until_us = h->count ? h->holds[h->count - 1].until_us : 0, decays_us = outlook->decays_us;
    if (until_us > decays_us)
        decays_us = until_us < CLOCK_END_US ? until_us : CLOCK_END_US;
    return (struct limit_outlook){ decays_us, outlook->spare_us, outlook->share };
}

enum put { PUT, PUT_LOST, PUT_NO_ROOM };
/* Puts it in the place of what was read. */
enum put put_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                  const struct limit_outlook *outlook, int64_t now_us);
/* The same without its holds, where there is no block for them: they become charges that stay, which refuses too much
 * rather than too little. */
enum put put_without(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h,
                     const struct limit_outlook *outlook, int64_t now_us);
/* One or the other. PUT_NO_ROOM: these are slots, which would stay for ever without their holds; nothing has changed. */
enum put put_anyhow(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h, const struct limit *limit,
                    const struct limit_outlook *outlook, int64_t now_us);

#endif
