/* Cells that have holds: what the protocol in cells.c leaves to held.c. */
#ifndef CELLS_HELD_H
#define CELLS_HELD_H

#include "cells/cell.h"

/* Charges a cell that has holds. */
enum outcome held_charge(struct cells *cells, struct cell *c, const struct cells_ask *ask, struct cells_taken *ret);
/* Returns the state of the cell, which was read as `s`, without the holds that are over. */
struct limit_state held_state(struct cells *cells, struct cell *c, uint64_t key, const struct limit *limit, word16 s,
                              int64_t now_us);
/* As cells_refund of such a cell. *ret_done is false if there is nothing to give back to. */
bool held_refund(struct cells *cells, word16 s, const struct limit *limit, const struct cells_taken *taken, int64_t now_us,
                 bool *ret_done);

#endif
