/* Each receipt is good once, and remembering that takes a bounded number of cells, however many there are.
 *
 * The receipts of one subject are numbered. A cell counts them, and blocks of 64 numbers have a cell each, with a bit for
 * each number that is out and was not used. Using a number clears its bit. The cells of the blocks are a ring: the 257th
 * block takes the place of the first, whose receipts are then too old to be used.
 *
 *   counter   time: incarnation, random            data: numbers drawn
 *   block     time: hash of incarnation and block  data: bits of the numbers that can be used
 *
 * If the table has dropped a cell, its content is not guessed. A counter that is made anew has another incarnation, and a
 * block that is made anew has the bit of the number it is made for and no other. So a number that the table does not
 * remember cannot be used: its charge stays, which refuses one too many at worst. A hold would not stay, so it is settled
 * by its own number: see settle.c.
 *
 * These cells are not counts (LIMIT_SHARE_NONE): they take the place of no count. In a full table a number that finds no
 * place cannot be used. */
#include "engine/receipt_ring.h"

#include <sys/random.h>

/* A number: incarnation 24 · how many were drawn before 40 */
enum { DRAWN_BITS = 40, INCARNATION_BITS = 24 };
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
    uint64_t incarnation, drawn;
};

static struct cells_change judge_draw(struct limit_state state, void *data)
{
    struct draw *d = data;
    d->incarnation = state.time ? state.time : new_incarnation(d->now_us);
    d->drawn = state.time ? state.data : 0;
    return (struct cells_change){ .writes = true, .next = { d->incarnation, d->drawn + 1 }, .outlook = d->outlook };
}

/* ---- blocks ---- */

struct slot {
    uint64_t key; /* of the block's cell */
    uint64_t tag; /* what its time is while it is this block's */
    uint64_t bit;
    struct limit_outlook outlook;
    enum ring_number was;
};

/* The ring is a keyed hash: mixing it is enough. */
static struct slot slot_of(uint64_t ring, uint64_t number)
{
    uint64_t block = (number & DRAWN_MASK) / RING_BLOCK_NUMBERS;
    return (struct slot){ .key = key_mix(ring, 1 + block % RING_BLOCKS),
                          .tag = key_mix(number >> DRAWN_BITS, block) & STATE_TIME_MASK,
                          .bit = UINT64_C(1) << number % RING_BLOCK_NUMBERS };
}

static struct cells_change judge_open(struct limit_state state, void *data)
{
    const struct slot *s = data;
    uint64_t bits = state.time == s->tag ? state.data | s->bit : s->bit;
    return (struct cells_change){ .writes = true, .next = { s->tag, bits }, .outlook = s->outlook };
}

static enum ring_number number_in(const struct slot *s, struct limit_state state)
{
    return state.time != s->tag ? RING_FORGOTTEN : state.data & s->bit ? RING_OPEN : RING_USED;
}

static struct cells_change judge_use(struct limit_state state, void *data)
{
    struct slot *s = data;
    s->was = number_in(s, state);
    return (struct cells_change){ .writes = s->was == RING_OPEN,
                                  .next = { s->tag, state.data & ~s->bit },
                                  .outlook = s->outlook };
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
    uint64_t number = draw.incarnation << DRAWN_BITS | (draw.drawn & DRAWN_MASK);
    struct slot slot = slot_of(ring, number);
    slot.outlook = outlook;
    cells_update(cells, slot.key, now_us, judge_open, &slot);
    return number;
}

enum ring_number ring_use_number(struct cells *cells, uint64_t ring, uint64_t number, int64_t now_us)
{
    struct slot slot = slot_of(ring, number);
    slot.outlook = (struct limit_outlook){ .decays_us = now_us, .share = LIMIT_SHARE_NONE };
    slot.was = RING_FORGOTTEN;
    cells_update(cells, slot.key, now_us, judge_use, &slot);
    return slot.was;
}

enum ring_number ring_look_number(const struct cells *cells, uint64_t ring, uint64_t number)
{
    struct slot slot = slot_of(ring, number);
    return number_in(&slot, cells_read(cells, slot.key));
}
