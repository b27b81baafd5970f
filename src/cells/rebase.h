/* Cells that are more than a period ahead of their callers: rebase.c has the reasons. */
#ifndef CELLS_REBASE_H
#define CELLS_REBASE_H

#include "cells/cells.h"

/* The mark of a cell is in the cell of its key XOR this: keys are hashes, so that is another cell. */
#define REBASE_MARK_KEY UINT64_C(0x636c6f636b2d6d6b)

struct rebase {
    int64_t now_us;            /* of the caller */
    struct limit_own_time own; /* of the cell, more than a period ahead of now_us */
    bool may_write;            /* a rebase is noted in the mark */
    bool stale; /* ret: the caller is stale, and has to be judged at the cell's own time; else rebase the cell */
};

/* For cells_update of the mark, with a struct rebase. If cells_update has no room for a mark, the caller is stale, too. */
struct cells_change rebase_judge(struct limit_state state, void *rebase);

/* A charge to a state that is more than a period ahead of the caller. Where the caller is stale, *ask becomes one at the
 * cell's own time. *rebases: this was decided before, since the answer leaves a mark. */
struct limit_take rebase_take(struct cells *cells, struct cells_ask *ask, struct limit_state state, bool may_write,
                              bool *rebases);

#endif
