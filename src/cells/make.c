#include "cells/make.h"

#include "cells/blocks.h"

enum {
    PATIENCE = 64,    /* tries before a reservation counts as left, whatever its age */
    BUCKET_SPARE = 3, /* free cells of a bucket that are used only if the other bucket is fuller */
};

/* This cell had the key's fingerprint in its head. */
static __attribute__((noinline)) void scan_one(struct scan *found, struct cell *c, uint64_t head, uint64_t key)
{
    struct reservation r = { c, load_16(&c->state) };
    if (head != head_of(key, state_gen(r.state)))
        return;
    if (cell_is_live(r.state) && !found->live)
        found->live = c;
    else if (state_tag(r.state) == CELL_RESERVED && !found->reserved.cell)
        found->reserved = r;
    else if (state_tag(r.state) == CELL_RESERVED && !vacate(r.cell, r.state))
        found->unsettled = true;
}

LIMIT_HOT void scan_cell(struct scan *found, struct cell *c, uint64_t key)
{
    uint64_t head = load_8(&c->head);
    if (__builtin_expect(head_is_of(head, key), 0))
        scan_one(found, c, head, key);
}

void scan_all(const struct candidates *p, uint64_t key, struct scan *ret)
{
    *ret = (struct scan){ 0 };
    for (unsigned i = 0; i < CANDIDATES; i += LINE_CELLS) {
        struct cell *line = candidate(p, i);
        scan_cell(ret, &line[0], key);
        scan_cell(ret, &line[1], key);
    }
    if (ret->live && ret->reserved.cell)
        vacate(ret->reserved.cell, ret->reserved.state);
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

/* How many of the cells of a line these two bits are. */
LIMIT_HOT unsigned cells_in(unsigned bits)
{
    return (bits + 1) >> 1;
}

/* The free places of both buckets, as far as they were looked at: two bits for each line, home first. */
struct free_places {
    unsigned in[2], count[2];
};

/* Which of the free places to take. A key is looked for in its two home lines first, then in the lines next to them, and so
 * on; so it goes into the first pair of lines with room, and there into the emptier one, unless that is in a bucket which
 * is nearly full and the other one is not. Returns CANDIDATES if no place is free. */
static unsigned choose_free(const struct free_places *f)
{
    bool open[2] = { f->count[0] > BUCKET_SPARE || f->count[0] >= f->count[1],
                     f->count[1] > BUCKET_SPARE || f->count[1] >= f->count[0] };
    for (unsigned i = 0; i < BUCKET_CELLS; i += LINE_CELLS) {
        unsigned room[2] = { open[0] ? f->in[0] >> i & 3 : 0, open[1] ? f->in[1] >> i & 3 : 0 };
        unsigned b = cells_in(room[1]) > cells_in(room[0]);
        if (room[b])
            return b * BUCKET_CELLS + i + (room[b] == 2);
    }
    return CANDIDATES;
}

/* cell_is_free() of the upper half of a state, where no branch depends on whether a cell was ever used, or has decayed: the
 * CPU could not predict it. */
LIMIT_HOT bool seems_free(uint64_t high, uint64_t book, int64_t now_us)
{
    unsigned tag = high & 3;
    if (__builtin_expect(tag == CELL_RESERVED, 0))
        return cell_is_free((word16){ 0, high }, book, now_us);
    bool other = book_gen(book) != (high >> TAG_BITS & GEN_MASK), decayed = book_decays_us(book) <= now_us;
    return (tag == CELL_EMPTY) | other | decayed;
}

LIMIT_HOT bool place_is_free(const struct cell *c, int64_t now_us)
{
    uint64_t high = load_8(&c->state.high);
    return seems_free(high, load_8(&c->book), now_us);
}

/* Looks no further than it takes to choose: if a bucket has more than BUCKET_SPARE, only its first free place matters, and
 * nothing is emptier than an empty home line. */
static unsigned find_free(const struct candidates *p, int64_t now_us)
{
    struct free_places f = { 0 };
    for (unsigned i = 0; i < BUCKET_LINES; i++) {
        for (unsigned b = 0; b < 2; b++) {
            const struct cell *line = candidate_line(p, b, i);
            unsigned first = place_is_free(&line[0], now_us), second = place_is_free(&line[1], now_us);
            f.in[b] |= (first | second << 1) << LINE_CELLS * i;
            f.count[b] += first + second;
        }
        if (f.count[0] > BUCKET_SPARE && (f.count[1] > BUCKET_SPARE || (f.in[0] & 3) == 3))
            break;
    }
    return choose_free(&f);
}

/* There was no free cell. A live one has to go, as promise 4 says. If there is none, other callers are making every
 * candidate at this moment, or died while they did. An impatient caller takes such a cell, which is always safe; others get
 * none. */
static struct victim choose_drop(const struct candidates *p, int64_t now_us, bool impatient)
{
    struct victim drop = { 0 }, unfinished = { 0 };
    uint64_t lowest = UINT64_MAX;
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct cell *c = candidate(p, i);
        word16 s = load_16(&c->state);
        uint64_t book = load_8(&c->book);
        if (cell_is_free(s, book, now_us))
            return (struct victim){ .cell = c, .state = s };
        if (state_tag(s) == CELL_RESERVED) {
            unfinished = (struct victim){ .cell = c, .state = s };
        } else if (drop_rank(book) < lowest) {
            lowest = drop_rank(book);
            drop = (struct victim){ c, s, book_share(book) };
        }
    }
    return drop.cell || !impatient ? drop : unfinished;
}

/* A free place was found by halves of states. The whole state that will be replaced is judged once more; {NULL}: another
 * caller was quicker. */
static struct victim choose_victim(const struct candidates *p, int64_t now_us, bool impatient)
{
    unsigned free = find_free(p, now_us);
    if (free == CANDIDATES)
        return choose_drop(p, now_us, impatient);
    struct cell *c = candidate(p, free);
    word16 s = load_16(&c->state);
    bool is_free = cell_is_free(s, load_8(&c->book), now_us);
    return is_free ? (struct victim){ .cell = c, .state = s } : (struct victim){ 0 };
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

/* Returns the owner of the block that the victim names, to free it afterwards; nobody, if it is not the victim's own. */
static word16 block_of(const struct cells *t, const struct victim *v)
{
    word16 owner = { 0, 0 };
    if (__builtin_expect(state_tag(v->state) == CELL_HELD, 0))
        owner = block_owner(t, state_payload(v->state));
    return load_8(&v->cell->head) == head_of(owner.low, state_gen(v->state)) ? owner : (word16){ 0, 0 };
}

/* Seizes a cell and publishes it as reserved for the key. {NULL}: try again, unless n->no_room. The holds of a cell that is
 * seized are over or dropped with it: nobody else would free their block while the process lives that made it. */
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
    word16 owner = block_of(t, &v);
    if (!cas_16(&v.cell->state, v.state, r.state))
        return none;
    if (__builtin_expect(owner.high != 0, 0))
        block_free(t, state_payload(v.state), owner);
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
