/* A table as a whole: what is in it, and the same counts in a table of another size or in a copy. */
#ifndef CELLS_RESIZE_H
#define CELLS_RESIZE_H

#include "cells/cells.h"

struct cells_facts {
    uint32_t layout;
    uint64_t keys;      /* that fit at the default fill of 3/4 */
    uint64_t buckets;   /* of 16 cells */
    uint64_t bytes;     /* of the file */
    uint64_t live;      /* cells in use and not decayed … */
    uint64_t full;      /* … those of them that are at their limit … */
    uint64_t held;      /* … and those that have holds */
    uint64_t torn;      /* cells whose words do not belong together: they count as empty */
    uint64_t lost;      /* cells whose holds are damaged: they count as empty */
    uint64_t misplaced; /* cells where no key finds them: they count as empty, too; only if asked for */
    int64_t made_us;
};
/* Reads the whole table. `places`: also looks whether each cell is where its key is looked for, which takes some
 * microseconds each. */
void cells_survey(struct cells *cells, int64_t now_us, bool places, struct cells_facts *ret);

struct cells_resized {
    uint64_t kept;      /* counts that are in the new table */
    uint64_t lost;      /* counts that have no place there */
    uint64_t lost_full; /* those of them that are at their limit */
    uint64_t lost_keys; /* those of them whose keys the old table, which is small, does not tell apart */
};
/* How a table is made of another. */
struct cells_remake {
    struct cells_size size;           /* both 0: that of the old one */
    bool copy;                        /* the new one is another host, see cells_identity() */
    bool drop;                        /* makes the table although counts are lost */
    void (*note)(struct cells *made); /* what else has to be in it before it has a name; NULL: nothing */
};
/* Makes a table at `to`, which must not exist, with the counts of `from`. Counts made in `from` meanwhile may be missing.
 * WEIR_E_CELLS with ret->lost > 0: nothing was made, since counts would be lost. */
int cells_remake(struct cells *from, int from_fd, const char *to, const struct cells_remake *how, int64_t now_us,
                 struct cells_resized *ret, struct weir_error *error);

#endif
