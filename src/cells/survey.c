/* How full a table is. */
#include "cells/layout.h"

struct cells_stats cells_stats(const struct cells *cells)
{
    uint64_t count = cells->bucket_count * BUCKET_CELLS;
    return (struct cells_stats){ count, count * CELL_BYTES, __atomic_load_n(&cells->header->drops, __ATOMIC_RELAXED),
                                 __atomic_load_n(&cells->header->drops_at_limit, __ATOMIC_RELAXED) };
}

bool cells_has_size(const struct cells *cells, struct cells_size size, uint64_t *ret_keys)
{
    uint64_t buckets = 0;
    *ret_keys = cells->bucket_count * BUCKET_FILL;
    return cells_buckets(size, &buckets, NULL) == 0 && buckets == cells->bucket_count;
}

static unsigned count_bucket(struct cells *cells, uint64_t bucket, int64_t now_us)
{
    unsigned live = 0;
    for (unsigned i = 0; i < BUCKET_CELLS; i++) {
        struct cell *c = cells->cell + bucket * BUCKET_CELLS + i;
        word16 s = load_16(&c->state);
        live += cell_is_live(s) && !cell_is_free(s, load_8(&c->book), now_us);
    }
    return live;
}

/* Keys are hashes, so one bucket is as good a sample as another: those that lie together are read at once, and leave the
 * rest of a large file on its disk. */
uint64_t cells_estimate_live(struct cells *cells, int64_t now_us, uint64_t most)
{
    uint64_t live = 0, seen = 0, all = cells->bucket_count; /* of which there is at least one */
    do
        live += count_bucket(cells, seen++, now_us);
    while (seen < all && seen < most / BUCKET_CELLS);
    return (uint64_t)((unsigned __int128)live * all / seen);
}

uint64_t cells_count_live(struct cells *cells, int64_t now_us)
{
    return cells_estimate_live(cells, now_us, cells->bucket_count * BUCKET_CELLS);
}
