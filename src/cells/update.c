/* Changes of a state that do not belong to a limit, and forgetting a cell. */
#include "cells/holding.h"
#include "cells/make.h"

/* Updates a cell that has holds, and keeps them. Returns false if the cell has changed since it was read. */
static bool update_held(struct cells *cells, struct cell *c, uint64_t key, word16 s, int64_t now_us, cells_judge *judge,
                        void *data)
{
    struct held h;
    if (!read_held(cells, c, key, s, &h))
        return false;
    struct cells_change change = judge(h.state, data);
    if (!change.writes)
        return true;
    if (change.forgets && h.count == 0)
        return vacate(c, s);
    h.state = change.next;
    return put_anyhow(cells, c, key, s, &h, NULL, &change.outlook, now_us) == PUT;
}

/* False: the cell is not the key's any more. */
static bool update_live(struct cells *t, struct cell *c, uint64_t key, int64_t now_us, cells_judge *judge, void *data)
{
    word16 s;
    while (read_any(c, key, &s)) {
        if (__builtin_expect(state_tag(s) == CELL_HELD, 0)) {
            if (update_held(t, c, key, s, now_us, judge, data))
                return true;
            continue;
        }
        struct cells_change change = judge(state_payload(s), data);
        if (!change.writes)
            return true;
        if (change.forgets ? vacate(c, s) : replace(c, s, change.next, change.outlook))
            return true;
    }
    return false;
}

bool cells_update(struct cells *cells, uint64_t key, int64_t now_us, cells_judge *judge, void *data)
{
    CHECK(clock_valid(now_us));
    struct limit_state unused = { 0 };
    struct cell *c = find_home(cells, key);
    if (!head_is_of(load_8(&c->head), key))
        c = find_elsewhere(cells, key);
    if (c && update_live(cells, c, key, now_us, judge, data))
        return true;
    struct candidates p = candidates_of(cells, key);
    struct reservation seen = { 0 };
    for (unsigned tries = 0;; tries++) {
        struct scan found;
        scan_all(&p, key, &found);
        if (found.live) {
            if (update_live(cells, found.live, key, now_us, judge, data))
                return true;
            seen.cell = NULL;
            continue;
        }
        struct cells_change first = judge(unused, data);
        struct newcomer n = { key, now_us, first.next, first.outlook, false };
        if (!first.writes || first.forgets || make(cells, &p, &n, &found, &seen, tries))
            return true;
        if (n.no_room)
            return false;
    }
}

bool cells_forget(struct cells *cells, uint64_t key)
{
    struct candidates p = candidates_of(cells, key);
    for (;;) {
        struct scan found;
        scan_all(&p, key, &found);
        struct cell *c = found.live;
        word16 s;
        if (!c)
            return false;
        if (!read_any(c, key, &s))
            continue;
        word16 owner = state_tag(s) == CELL_HELD ? block_owner(cells, state_payload(s)) : (word16){ 0, 0 };
        if (!vacate(c, s))
            continue;
        if (state_tag(s) == CELL_HELD)
            block_free(cells, state_payload(s), owner);
        return true;
    }
}
