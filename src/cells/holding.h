/* Reads and replaces the state of a cell together with its holds. */
#ifndef CELLS_HOLDING_H
#define CELLS_HOLDING_H

#include "cells/blocks.h"
#include "cells/cell.h"

/* Reads the state and the holds of a cell. Returns false if the cell has changed since `s` was read. A damaged block reads
 * as an unused cell, like a damaged cell. */
bool read_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *ret);

/* Returns the outlook of a state whose holds may last longer. */
struct limit_outlook last_as_long(struct limit_outlook outlook, const struct held *h);

enum put { PUT, PUT_LOST, PUT_NO_ROOM };
/* Replaces `s`, which was read from the cell, by the state and holds of `h`. */
enum put put_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h, struct limit_outlook outlook,
                  int64_t now_us);
/* Does the same without the holds, for when no block is free. The holds become charges, which refuses too much rather than
 * too little. Slots are freed instead, because nothing would end them. */
enum put put_without(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h, const struct limit *limit,
                     struct limit_outlook outlook, int64_t now_us);
/* Calls put_held() or, if no block is free, put_without(). Returns false if the cell has changed since `s` was read. */
bool put_anyhow(struct cells *cells, struct cell *c, uint64_t key, word16 s, struct held *h, const struct limit *limit,
                struct limit_outlook outlook, int64_t now_us);

#endif
