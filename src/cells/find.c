#include "cells/find.h"

struct cell *find_elsewhere(const struct cells *t, uint64_t key)
{
    struct candidates p = candidates_of(t, key);
    prefetch_lines(&p, 1, LINES_NEAR);
    struct cell *c = find_between(&p, key, 0, LINES_NEAR);
    if (c)
        return c;
    prefetch_lines(&p, LINES_NEAR, BUCKET_LINES);
    return find_between(&p, key, LINES_NEAR, BUCKET_LINES);
}

struct cell *look_elsewhere(const struct cells *cells, uint64_t key, const struct cell *home, word16 *ret)
{
    if (!head_is_of(load_8(&home->head), key)) {
        struct cell *c = find_elsewhere(cells, key);
        if (!c || read_any(c, key, ret))
            return c;
    }
    struct candidates p = candidates_of(cells, key);
    for (unsigned i = 0; i < CANDIDATES; i++)
        if (read_any(candidate(&p, i), key, ret))
            return candidate(&p, i);
    return NULL;
}

struct cell *cell_find(const struct cells *cells, uint64_t key, word16 *ret)
{
    struct cell *c = find_home(cells, key);
    return read_any(c, key, ret) ? c : look_elsewhere(cells, key, c, ret);
}
