/* Blocks: the state of a cell that has holds, together with these.
 *
 * A state is 16 bytes and changes by one compare-and-swap; a state with its holds has no room there. So the cell of a
 * subject with holds names a block. A block is never changed while a cell names it: a change writes another block, and one
 * compare-and-swap of the cell puts that in its place. So a charge, its hold, and the end of either are one step, also for
 * a process that dies.
 *
 *   owner    key 64 · claimed at 27 · by which process 25 · number of the claim 11 · 1; even: free
 *   content  state · tag · when holds were last looked at · holds
 *
 * The cell has the number of the block and a checksum of its content and claim. A reader that finds another content reads
 * the cell again: the block was given to another cell meanwhile, or to the same one anew. Two claims of a block have
 * different checksums even if they have the same content, so a cell that is as it was names what it named. */
#ifndef CELLS_BLOCKS_H
#define CELLS_BLOCKS_H

#include "cells/layout.h"

enum {
    BLOCK_SMALL_HOLDS = 6,
    BLOCK_LARGE_HOLDS = 126,
    BLOCK_FEW_HOLDS = 4, /* so many holds of a block are not joinable at most: the others can always make room */
};

/* One hold; or several that end at about the same time, if a block has no room for each. In a block it is these four words.
 */
struct hold {
    int64_t until_us;
    uint64_t origin; /* see limit_origin; of a slot its owner, or 0 */
    uint64_t amount; /* of one that is over: what had come back by itself, see limit_repaid */
    uint64_t terms;  /* id 32 · ttl in ms 30 · joinable 1 · over 1 */
};

enum { HOLD_WORDS = 4, HOLD_TTL_SHIFT = 32, HOLD_TTL_BITS = 30 };
#define HOLD_JOINABLE (UINT64_C(1) << 62)
#define HOLD_OVER (UINT64_C(1) << 63) /* given back: it is there so that it can be settled late, once */
_Static_assert(sizeof(struct hold) == HOLD_WORDS * sizeof(uint64_t), "a hold is its words");
_Static_assert(WEIR_TTL_MAX_MS >> HOLD_TTL_BITS == 0, "a ttl has room");

static inline uint64_t hold_terms(uint32_t id, uint32_t ttl_ms)
{
    return id | (uint64_t)ttl_ms << HOLD_TTL_SHIFT;
}

/* 0: of several. */
static inline uint32_t hold_id(const struct hold *h)
{
    return (uint32_t)h->terms;
}

static inline int64_t hold_ttl_us(const struct hold *h)
{
    return (int64_t)(h->terms >> HOLD_TTL_SHIFT & ((1u << HOLD_TTL_BITS) - 1)) * US_PER_MS;
}

static inline bool hold_is_joinable(const struct hold *h)
{
    return h->terms & HOLD_JOINABLE;
}

static inline bool hold_is_over(const struct hold *h)
{
    return h->terms & HOLD_OVER;
}

/* A cell's state and holds, by the time when they end. */
struct held {
    struct limit_state state;
    uint64_t tag;     /* the caller's, for cells_each_hold */
    int64_t ended_us; /* holds that were to end by then have been given back */
    uint64_t claimed; /* high word of the owner of the block that this was read from */
    bool windows;     /* they may belong to several windows; false: to a bucket */
    uint32_t count;
    struct hold holds[BLOCK_LARGE_HOLDS + 1];
};

/* The same of a cell with one hold: what settling that needs. */
struct held_one {
    struct limit_state state;
    uint64_t claimed;
    struct hold hold;
};

/* Word by word: read as a whole, just written in halves, it would make the CPU wait. */
static inline struct limit_state state_of(const struct held *h)
{
    return (struct limit_state){ load_plain(&h->state.time), load_plain(&h->state.data) };
}

static inline struct hold hold_at(const struct held *h, uint32_t i)
{
    const struct hold *hold = &h->holds[i];
    return (struct hold){ (int64_t)load_plain((const uint64_t *)&hold->until_us), load_plain(&hold->origin),
                          load_plain(&hold->amount), load_plain(&hold->terms) };
}

/* There are few, and mostly one: a call of memmove would cost more than they do. */
static inline void remove_hold(struct held *h, uint32_t i)
{
    for (h->count--; i < h->count; i++)
        h->holds[i] = h->holds[i + 1];
}

/* Returns the bytes of the blocks of a table with so many buckets. */
size_t blocks_bytes(uint64_t bucket_count);
/* The blocks of a table begin there. */
void blocks_place(struct cells *cells, char *base);

/* Reads the block that a state names. Returns false if the block has been reused, or is damaged. */
bool block_read(struct cells *cells, uint64_t key, struct limit_state name, struct held *ret);
/* The same for a block with one hold. Returns false if it has more. */
bool block_read_one(const struct cells *cells, uint64_t key, struct limit_state name, struct held_one *ret);
/* Writes a block that no cell names yet, with at least one hold. Holds that do not fit are merged. *ret_claimed is the high
 * word of its owner. Returns false if no block is free. */
bool block_write(struct cells *cells, uint64_t key, int64_t now_us, struct held *held, struct limit_state *ret,
                 uint64_t *ret_claimed);
/* The same for the first hold of a cell. */
bool block_write_one(struct cells *cells, uint64_t key, int64_t now_us, struct limit_state state, uint64_t tag,
                     const struct hold *hold, struct limit_state *ret, uint64_t *ret_claimed);
/* Returns the owner of a block. Call it while a cell names the block. */
word16 block_owner(const struct cells *cells, struct limit_state name);
/* Frees a block that no cell names any more. Does nothing if the block has a new owner: it can be claimed at any time. */
void block_free(struct cells *cells, struct limit_state name, word16 owner);

#endif
