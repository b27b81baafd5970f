/* One cell: reading it, its book, and putting another state in the place of the one that was read. README.md says which
 * race each step is there for. */
#ifndef CELLS_CELL_H
#define CELLS_CELL_H

#include "base/check.h"
#include "cells/layout.h"
#include "limit/take.h"

/* A state that was read is live and this key's, if the head, read after it, has its generation: a state that was given to
 * another key in between is noticed by that. */
LIMIT_HOT bool is_own(const struct cell *c, uint64_t key, word16 s)
{
    return state_tag(s) == CELL_LIVE && load_8(&c->head) == head_with(key, s.high);
}

/* The two halves may belong to different states. A compare-and-swap from them then fails, so callers that do one may use
 * this. */
LIMIT_HOT word16 load_halves(const struct cell *c)
{
    uint64_t high = load_8(&c->state.high);
    return (word16){ load_8(&c->state.low), high };
}

LIMIT_HOT bool read_own(struct cell *c, uint64_t key, word16 *ret)
{
    *ret = load_16(&c->state);
    return is_own(c, key, *ret);
}

/* The same for cells with holds, too. */
LIMIT_HOT bool read_any(struct cell *c, uint64_t key, word16 *ret)
{
    *ret = load_16(&c->state);
    return cell_is_live(*ret) && load_8(&c->head) == head_of(key, state_gen(*ret));
}

/* Threads and processes with a cached `now` lag; none of them may find that a cell is gone in which it still counts. */
#define CLOCK_SKEW_US (100 * US_PER_MS + 1024)

/* Whether the book's time is at or after this time, to within the book's unit. */
LIMIT_HOT bool book_covers(uint64_t book, int64_t decays_us)
{
    return book >= (uint64_t)(decays_us + CLOCK_SKEW_US) << 8;
}

/* Returns the book after a charge. */
LIMIT_HOT uint64_t book_raised(uint64_t book, uint64_t gen, int64_t decays_us, int64_t spare_us, uint64_t share)
{
    if (book_gen(book) == gen && book_covers(book, decays_us))
        return (book & ~UINT64_C(0xff)) | share;
    return book_make(decays_us + spare_us + CLOCK_SKEW_US, gen, (uint8_t)share);
}

/* The book must cover a state before the state is written: a caller that judges whether a cell has decayed reads its state
 * first. False: the cell has another key now. If the generation does not fit although the state is the same, the book is
 * damaged, and is repaired. */
static inline bool raise_book(struct cell *c, word16 s, struct limit_outlook outlook)
{
    for (;;) {
        uint64_t book = load_8(&c->book), gen = state_gen(s);
        uint64_t to = book_raised(book, gen, outlook.decays_us, outlook.spare_us, outlook.share);
        if (to == book)
            return true;
        if (book_gen(book) != gen && !same_16(load_16(&c->state), s))
            return false;
        if (cas_8(&c->book, book, to))
            return true;
    }
}

enum outcome { TAKEN, REFUSED, LOST /* the cell is not the key's any more */ };

/* Puts another one in the place of the state that was read. `tag` is CELL_LIVE or CELL_HELD. */
LIMIT_HOT bool replace_as(enum cell_tag tag, struct cell *c, word16 s, struct limit_state next,
                          struct limit_outlook outlook)
{
    CHECK(next.time < CLOCK_END_US);
    uint64_t mark = (s.high & GEN_MASK << TAG_BITS) | tag;
    return raise_book(c, s, outlook) && cas_16(&c->state, s, (word16){ next.data, next.time << MARK_BITS | mark });
}

LIMIT_HOT bool replace(struct cell *c, word16 s, struct limit_state next, struct limit_outlook outlook)
{
    return replace_as(CELL_LIVE, c, s, next, outlook);
}

/* Returns the state after a charge. A limit with overdraft also admits a charge that does not fit, if 1 fits and the cost
 * is not one that never passes. */
LIMIT_HOT struct limit_take take_of(const struct cells_ask *a, struct limit_state state)
{
    struct limit_take take = limit_take(a->limit, a->window, state, a->now_us, a->cost);
    if (__builtin_expect(!take.fits, 0) && __builtin_expect(a->limit->overdraft && limit_needs(a->limit, a->cost) == 1, 0))
        take = limit_overdraw(a->limit, a->window, state, a->now_us, a->cost);
    return take;
}

/* A state that refuses is not decayed, and if it refuses 1, then it is at its limit. A book that says less was written
 * under other numbers of the limit, or by a charge that lost its race: its subject would be dropped, and be free. */
LIMIT_HOT bool book_tells_refusal(const struct cell *c, int64_t now_us)
{
    uint64_t book = load_8(&c->book);
    return book_share(book) == LIMIT_SHARE_FULL && book_covers(book, now_us);
}

/* Gives a cell up. False: it is not as it was read. */
static inline bool vacate(struct cell *c, word16 s)
{
    struct limit_state none = { 0 };
    return cas_16(&c->state, s, state_make(none, (state_gen(s) + 1) & GEN_MASK, CELL_EMPTY));
}

#endif
