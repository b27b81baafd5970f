#include "cells/make.h"

enum {
    PATIENCE = 64, /* tries before a reservation counts as left, whatever its age */
    BUCKET_PLACES = (1 << BUCKET_CELLS) - 1,
    BUCKET_SPARE = 3, /* free cells of a bucket that are used only if the other bucket is fuller */
};

struct scan scan_all(const struct candidates *p, uint64_t key)
{
    struct scan found = { 0 };
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct cell *c = candidate(p, i);
        uint64_t head = load_8(&c->head);
        if (!head_is_of(head, key))
            continue;
        struct reservation r = { c, load_16(&c->state) };
        if (head != head_of(key, state_gen(r.state)))
            continue;
        if (cell_is_live(r.state) && !found.live)
            found.live = c;
        else if (state_tag(r.state) == CELL_RESERVED && !found.reserved.cell)
            found.reserved = r;
        else if (state_tag(r.state) == CELL_RESERVED && !vacate(r.cell, r.state))
            found.unsettled = true;
    }
    if (found.live && found.reserved.cell)
        vacate(found.reserved.cell, found.reserved.state);
    return found;
}

struct victim {
    struct cell *cell;
    word16 state;  /* the very state that was judged */
    uint8_t share; /* of a live cell, which is dropped; else LIMIT_SHARE_NONE */
};

/* Smallest share first, then the nearest reset. */
static uint64_t drop_rank(uint64_t book)
{
    return (uint64_t)book_share(book) << 56 | book >> BOOK_LOW_BITS;
}

/* Which of the free places to take. A key is looked for in its two home lines first, then in the lines next to them, and so
 * on; so it goes into the first pair of lines with room, and there into the emptier one, unless that is in a bucket which
 * is nearly full and the other one is not. */
static unsigned choose_free(uint32_t free)
{
    uint32_t in[2] = { free & BUCKET_PLACES, free >> BUCKET_CELLS };
    int count[2] = { __builtin_popcount(in[0]), __builtin_popcount(in[1]) };
    bool open[2] = { count[0] > BUCKET_SPARE || count[0] >= count[1], count[1] > BUCKET_SPARE || count[1] >= count[0] };
    for (unsigned i = 0;; i += 2) {
        unsigned room[2] = { open[0] ? in[0] >> i & 3 : 0, open[1] ? in[1] >> i & 3 : 0 };
        unsigned b = __builtin_popcount(room[1]) > __builtin_popcount(room[0]);
        if (room[b])
            return b * BUCKET_CELLS + i + (unsigned)__builtin_ctz(room[b]);
    }
}

/* A free cell comes first, then a live one, as promise 4 says. If there is neither, other callers are making every
 * candidate at this moment, or died while they did. An impatient caller takes such a cell, which is always safe; others get
 * none. */
static struct victim choose_victim(const struct candidates *p, int64_t now_us, bool impatient)
{
    struct victim drop = { 0 }, unfinished = { 0 };
    word16 states[CANDIDATES];
    uint32_t free = 0;
    uint64_t lowest = UINT64_MAX;
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct cell *c = candidate(p, i);
        word16 s = states[i] = load_16(&c->state);
        uint64_t book = load_8(&c->book);
        if (cell_is_free(s, book, now_us)) {
            free |= UINT32_C(1) << i;
        } else if (state_tag(s) == CELL_RESERVED) {
            unfinished = (struct victim){ .cell = c, .state = s };
        } else if (drop_rank(book) < lowest) {
            lowest = drop_rank(book);
            drop = (struct victim){ c, s, book_share(book) };
        }
        if (i == BUCKET_CELLS - 1 && (free & 3) == 3 && __builtin_popcount(free) > BUCKET_SPARE)
            break;
    }
    if (free) {
        unsigned i = choose_free(free);
        return (struct victim){ .cell = candidate(p, i), .state = states[i] };
    }
    return drop.cell || !impatient ? drop : unfinished;
}

static bool still_ours(const struct reservation *r)
{
    return same_16(load_16(&r->cell->state), r->state);
}

/* Puts `to` into a word of a reserved cell by compare-and-swap: a caller that was delayed until another one took the cell
 * overwrites nothing. */
static bool publish(const struct reservation *r, uint64_t *word, uint64_t to)
{
    for (;;) {
        uint64_t was = load_8(word);
        if (!still_ours(r))
            return false;
        if (cas_8(word, was, to))
            return true;
    }
}

static void count_drop(struct cells *t, const struct victim *v)
{
    if (v->share == LIMIT_SHARE_NONE)
        return;
    __atomic_fetch_add(&t->header->drops, 1, __ATOMIC_RELAXED);
    if (v->share == LIMIT_SHARE_FULL)
        __atomic_fetch_add(&t->header->drops_at_limit, 1, __ATOMIC_RELAXED);
}

/* Seizes a cell and publishes it as reserved for the key. {NULL}: try again, unless n->no_room. */
static struct reservation reserve(struct cells *t, const struct candidates *p, struct newcomer *n, bool impatient)
{
    struct reservation none = { 0 };
    struct victim v = choose_victim(p, n->now_us, impatient);
    n->no_room = n->outlook.share == LIMIT_SHARE_NONE && v.share != LIMIT_SHARE_NONE;
    if (!v.cell || n->no_room)
        return none;
    uint64_t gen = (state_gen(v.state) + 1) & GEN_MASK;
    /* One left from 1024 generations ago, and delayed until now, is the same only if it was for this key, too. */
    struct limit_state mark = { (uint64_t)n->now_us, n->key };
    struct reservation r = { v.cell, state_make(mark, gen, CELL_RESERVED) };
    if (!cas_16(&v.cell->state, v.state, r.state))
        return none;
    count_drop(t, &v);
    int64_t decays_us = n->outlook.decays_us + n->outlook.spare_us + CLOCK_SKEW_US;
    if (!publish(&r, &v.cell->book, book_make(decays_us, gen, n->outlook.share)) ||
        !publish(&r, &v.cell->head, head_of(n->key, gen)))
        return none;
    return r;
}

bool make(struct cells *t, const struct candidates *p, struct newcomer *n, const struct scan *found,
          struct reservation *seen, unsigned tries)
{
    const struct reservation *r = &found->reserved;
    if (!r->cell)
        *seen = reserve(t, p, n, tries > PATIENCE);
    else if (r->cell != seen->cell || !same_16(r->state, seen->state))
        *seen = *r;
    else
        return !found->unsettled && replace(r->cell, r->state, n->first, n->outlook);
    return false;
}
