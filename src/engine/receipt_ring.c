/* Each receipt is good once, and remembering that takes a bounded number of cells, however many there are.
 *
 * The receipts of one subject are numbered. A cell counts them, with a bit for each of the last 64 that was not used; so
 * drawing a number and using it soon is one change each. A number that leaves this window unused gets a bit in a block of 64
 * numbers, which has a cell of its own. The cells of the blocks are a ring: the 257th block takes the place of the first,
 * whose receipts are then too old to be used.
 *
 *   counter   time: incarnation (random) 24 · numbers drawn 28   data: bits of the last 64, the newest lowest
 *   block     time: hash of incarnation and block                data: bits of the numbers that can be used
 *
 * If the table has dropped a cell, its content is not guessed. A counter that is made anew has another incarnation, and a
 * block that is made anew has the bit of the number it is made for and no other. So a number that the table does not
 * remember cannot be used: its charge stays, which refuses one too many at worst. The same is true of a process that dies
 * while it moves a number to its block.
 *
 * These cells are not counts (LIMIT_SHARE_NONE): they take the place of no count. In a full table a number that finds no
 * place cannot be used. */
#include "engine/receipt_ring.h"

#include <sys/random.h>

/* A number: incarnation 24 · how many were drawn before 28 */
enum { DRAWN_BITS = 28, INCARNATION_BITS = 24, WINDOW = 64 };
#define DRAWN_MASK ((UINT64_C(1) << DRAWN_BITS) - 1)
#define STATE_TIME_MASK ((UINT64_C(1) << CLOCK_BITS) - 1)

/* ---- the counter ---- */

static uint64_t new_incarnation(int64_t now_us)
{
    uint32_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint32_t)now_us;
    return random % ((1u << INCARNATION_BITS) - 1) + 1;
}

struct draw {
    int64_t now_us;
    struct limit_outlook outlook;
    uint64_t number, left; /* ret: left: the number that leaves the window unused */
    bool leaves;
};

static struct cells_change judge_draw(struct limit_state state, void *data)
{
    struct draw *d = data;
    uint64_t number = state.time ? state.time : new_incarnation(d->now_us) << DRAWN_BITS;
    d->number = number;
    d->left = (number & ~DRAWN_MASK) | ((number - WINDOW) & DRAWN_MASK);
    d->leaves = state.data >> (WINDOW - 1);
    return (struct cells_change){ .writes = true,
                                  .next = { (number & ~DRAWN_MASK) | ((number + 1) & DRAWN_MASK), state.data << 1 | 1 },
                                  .outlook = d->outlook };
}

struct use {
    uint64_t number;
    struct limit_outlook outlook;
    bool in_window, used_now; /* ret */
};

static struct cells_change judge_use_recent(struct limit_state state, void *data)
{
    struct use *u = data;
    uint64_t back = (state.time - 1 - u->number) & DRAWN_MASK;
    u->in_window = state.time >> DRAWN_BITS == u->number >> DRAWN_BITS && back < WINDOW;
    u->used_now = u->in_window && state.data >> back & 1;
    return (struct cells_change){ .writes = u->used_now,
                                  .next = { state.time, state.data & ~((uint64_t)u->used_now << (back % WINDOW)) },
                                  .outlook = u->outlook };
}

/* ---- blocks ---- */

struct slot {
    uint64_t key; /* of the block's cell */
    uint64_t tag; /* what its time is while it is this block's */
    uint64_t bit;
    struct limit_outlook outlook;
    bool used_now;
};

/* The ring is a keyed hash: mixing it is enough. */
static struct slot slot_of(uint64_t ring, uint64_t number)
{
    uint64_t block = (number & DRAWN_MASK) / RING_BLOCK_NUMBERS, incarnation = number >> DRAWN_BITS;
    return (struct slot){ .key = key_mix(ring, 1 + block % RING_BLOCKS),
                          .tag = key_mix(incarnation, block) & STATE_TIME_MASK,
                          .bit = UINT64_C(1) << number % RING_BLOCK_NUMBERS };
}

static struct cells_change judge_open(struct limit_state state, void *data)
{
    const struct slot *s = data;
    uint64_t bits = state.time == s->tag ? state.data | s->bit : s->bit;
    return (struct cells_change){ .writes = true, .next = { s->tag, bits }, .outlook = s->outlook };
}

static struct cells_change judge_use(struct limit_state state, void *data)
{
    struct slot *s = data;
    s->used_now = state.time == s->tag && (state.data & s->bit);
    return (struct cells_change){ .writes = s->used_now, .next = { s->tag, state.data & ~s->bit }, .outlook = s->outlook };
}

/* ---- both ---- */

uint64_t ring_draw_number(struct cells *cells, uint64_t ring, int64_t now_us, int64_t until_us)
{
    /* Set a little late, so that not every receipt has to move it. */
    struct limit_outlook outlook = { .decays_us = until_us,
                                     .spare_us = (until_us - now_us) / 16,
                                     .share = LIMIT_SHARE_NONE };
    struct draw draw = { .now_us = now_us, .outlook = outlook };
    cells_update(cells, ring, now_us, judge_draw, &draw);
    if (draw.leaves) {
        struct slot slot = slot_of(ring, draw.left);
        slot.outlook = outlook;
        cells_update(cells, slot.key, now_us, judge_open, &slot);
    }
    return draw.number;
}

bool ring_use_number(struct cells *cells, uint64_t ring, uint64_t number, int64_t now_us)
{
    struct limit_outlook outlook = { .decays_us = now_us, .share = LIMIT_SHARE_NONE };
    struct use use = { .number = number, .outlook = outlook };
    cells_update(cells, ring, now_us, judge_use_recent, &use);
    if (use.in_window)
        return use.used_now;
    struct slot slot = slot_of(ring, number);
    slot.outlook = outlook;
    cells_update(cells, slot.key, now_us, judge_use, &slot);
    return slot.used_now;
}
