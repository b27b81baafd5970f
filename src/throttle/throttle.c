#include "throttle/throttle.h"

#include "cells/cells.h"

/* No text is as long as this, and no limit's identity begins with it: see engine/bound.c. */
#define THROTTLE_MARK (UINT64_MAX - 1)

static uint64_t throttle_key(const struct cells *cells, unsigned space, sv key)
{
    struct hash h;
    hash_init(&h, cells_hash_key(cells));
    hash_word(&h, THROTTLE_MARK);
    hash_word(&h, space);
    hash_text(&h, key.ptr, key.len);
    return hash_final(&h);
}

struct question {
    const struct gcra *gcra;
    int64_t now_us;
    struct gcra_take take;
};

static struct cells_change judge(struct limit_state state, void *data)
{
    struct question *q = data;
    q->take = gcra_take(q->gcra, state, q->now_us);
    return (struct cells_change){ .writes = q->take.writes, .next = q->take.next, .outlook = q->take.outlook };
}

enum gcra_code throttle_take(struct cells *cells, unsigned space, sv key, const struct gcra *gcra, int64_t now_us,
                             struct gcra_answer *ret)
{
    if (!clock_valid(now_us))
        return GCRA_TOO_LARGE;
    struct question q = { .gcra = gcra, .now_us = now_us };
    cells_update(cells, throttle_key(cells, space, key), now_us, judge, &q);
    if (q.take.code == GCRA_OK)
        *ret = q.take.answer;
    return q.take.code;
}

bool throttle_forget(struct cells *cells, unsigned space, sv key)
{
    return cells_forget(cells, throttle_key(cells, space, key));
}
