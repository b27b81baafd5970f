/* Making a cell for a key that has none. README.md, "Making a cell", says which race each step is there for. */
#ifndef CELLS_MAKE_H
#define CELLS_MAKE_H

#include "cells/find.h"

struct reservation {
    struct cell *cell; /* NULL: none */
    word16 state;
};

struct scan {
    struct cell *live;
    struct reservation reserved; /* the first in order; others have been killed */
    bool unsettled;              /* a kill came too late: what was to be killed may be live now */
};

/* Looks at all candidates in order, head before state. */
void scan_all(const struct candidates *p, uint64_t key, struct scan *ret);

/* A cell that is to be made, and what will be in it. */
struct newcomer {
    uint64_t key;
    int64_t now_us;
    struct limit_state first;
    struct limit_outlook outlook;
    bool no_room; /* it is not a count, and there are only counts where it could be */
};

/* After a scan that found no live one: the next step of making it. `seen` is the reservation that was there before that
 * scan began. True: it is made, and is seen->cell. */
bool make(struct cells *t, const struct candidates *p, struct newcomer *n, const struct scan *found,
          struct reservation *seen, unsigned tries);

#endif
