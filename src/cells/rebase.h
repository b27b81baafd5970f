/* Cells that are more than a period ahead of their callers: see rebase.c. */
#ifndef CELLS_REBASE_H
#define CELLS_REBASE_H

#include "cells/cells.h"

/* `state` is more than a period ahead of ask->now_us. True: the caller is stale, and is to be judged at the cell's own
 * time. False: the clock was set back, and the cell is to be rebased; if may_write, that is noted. */
bool cells_is_stale(struct cells *cells, const struct cells_ask *ask, struct limit_state state, bool may_write);

#endif
