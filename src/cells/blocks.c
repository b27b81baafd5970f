#include "cells/blocks.h"

#include "cells/find.h"
#include "cells/owner.h"

enum {
    SMALL_BYTES = 256,
    LARGE_BYTES = 4096,
    SMALL_SHARE = 8,   /* one small block for so many buckets: a sixteenth of the cells' bytes */
    LARGE_SHARE = 128, /* the same for large ones */
    SMALL_LEAST = 4,
    PROBES = 16,
    COUNT_BITS = 12,
    LINE_BYTES = 64,
};

/* A block that was claimed longer ago, and that no cell names, was left by a process that died, if that is certain … */
#define CLAIM_OLD_US (60 * US_PER_S)
/* … and otherwise after this. Who is stopped for longer in the middle of a claim damages what others have written. */
#define CLAIM_LOST_US (24 * 3600 * US_PER_S)

struct block {
    word16 owner;
    uint64_t data, time_count, tag, ended;
    uint64_t words[][HOLD_WORDS]; /* of each hold */
};

_Static_assert(sizeof(struct block) + BLOCK_SMALL_HOLDS * 32 <= SMALL_BYTES, "a small block has room");
_Static_assert(sizeof(struct block) + BLOCK_LARGE_HOLDS * 32 <= LARGE_BYTES, "a large block has room");

static uint64_t small_count(uint64_t buckets)
{
    return buckets / SMALL_SHARE > SMALL_LEAST ? buckets / SMALL_SHARE : SMALL_LEAST;
}

static uint64_t large_count(uint64_t buckets)
{
    return buckets / LARGE_SHARE;
}

size_t blocks_bytes(uint64_t bucket_count)
{
    return small_count(bucket_count) * SMALL_BYTES + large_count(bucket_count) * LARGE_BYTES;
}

enum { PARTS = BLOCK_PART_WORDS * 64 };

static struct block_room room_of(char *base, uint64_t count, uint64_t *parts)
{
    unsigned shift = 0;
    while (count > (uint64_t)PARTS << shift)
        shift++;
    return (struct block_room){ base, count, parts, shift };
}

void blocks_place(struct cells *cells, char *base)
{
    struct cells_header *header = cells->header;
    char *large = base + small_count(cells->bucket_count) * SMALL_BYTES;
    cells->small = room_of(base, small_count(cells->bucket_count), header->small_parts);
    cells->large = room_of(large, large_count(cells->bucket_count), header->large_parts);
}

/* ---- names ---- */

/* A name is a state: its time is 1 + twice the number of the block, and 1 more if it is large; its data is the checksum. */
static struct block *block_at(const struct cells *cells, uint64_t name, uint32_t *ret_most)
{
    bool large = (name - 1) & 1;
    uint64_t number = (name - 1) >> 1;
    const struct block_room *room = large ? &cells->large : &cells->small;
    *ret_most = large ? BLOCK_LARGE_HOLDS : BLOCK_SMALL_HOLDS;
    if (name == 0 || number >= room->count)
        return NULL;
    return (struct block *)(room->base + number * (large ? LARGE_BYTES : SMALL_BYTES));
}

static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 32;
}

/* ---- reading ---- */

bool block_read(struct cells *cells, uint64_t key, struct limit_state name, struct held *ret)
{
    uint32_t most;
    const struct block *b = block_at(cells, name.time, &most);
    if (!b)
        return false;
    uint64_t claimed = load_8(&b->owner.high), data = load_plain(&b->data), time_count = load_plain(&b->time_count);
    uint64_t tag = load_plain(&b->tag), ended = load_plain(&b->ended);
    uint64_t sum = mix(mix(mix(mix(mix(key, claimed), data), time_count), tag), ended);
    uint32_t count = time_count & ((1u << COUNT_BITS) - 1);
    if (count > most)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *from = b->words[i];
        uint64_t until = load_plain(from), origin = load_plain(from + 1), amount = load_plain(from + 2);
        uint64_t terms = load_plain(from + 3);
        sum = mix(mix(mix(mix(sum, until), origin), amount), terms);
        ret->holds[i] = (struct hold){ (int64_t)until, origin, amount, terms };
    }
    ret->state.time = time_count >> COUNT_BITS;
    ret->state.data = data;
    ret->tag = tag;
    ret->ended_us = (int64_t)ended;
    ret->claimed = claimed;
    ret->windows = true;
    ret->count = count;
    return sum == name.data;
}

bool block_read_one(const struct cells *cells, uint64_t key, struct limit_state name, struct held_one *ret)
{
    uint32_t most;
    const struct block *b = block_at(cells, name.time, &most);
    if (!b)
        return false;
    uint64_t claimed = load_8(&b->owner.high), data = load_plain(&b->data), time_count = load_plain(&b->time_count);
    uint64_t until = load_plain(b->words[0]), origin = load_plain(b->words[0] + 1), amount = load_plain(b->words[0] + 2);
    uint64_t terms = load_plain(b->words[0] + 3);
    uint64_t sum = mix(mix(mix(key, claimed), data), time_count);
    sum = mix(mix(sum, load_plain(&b->tag)), load_plain(&b->ended));
    sum = mix(mix(mix(mix(sum, until), origin), amount), terms);
    ret->state.time = time_count >> COUNT_BITS;
    ret->state.data = data;
    ret->claimed = claimed;
    ret->hold = (struct hold){ (int64_t)until, origin, amount, terms };
    return (time_count & ((1u << COUNT_BITS) - 1)) == 1 && sum == name.data;
}

/* ---- parts ---- */

/* A large table has many blocks, most of which nobody has ever touched. Parts of them are marked when a block there is
 * claimed, so that cells_each_hold need not read the others. It clears a mark where it finds nothing, and looks again: a
 * claim writes the owner before it looks at the mark, so one of the two sees the other. */
static uint64_t part_begin(const struct block_room *room, uint64_t part)
{
    uint64_t begin = part << room->part_shift;
    return begin < room->count ? begin : room->count;
}

static bool is_marked(const struct block_room *room, uint64_t part)
{
    return load_8(&room->parts[part / 64]) >> part % 64 & 1;
}

static void mark(const struct block_room *room, uint64_t part, bool used)
{
    uint64_t *word = &room->parts[part / 64], bit = UINT64_C(1) << part % 64, was;
    do
        was = load_8(word);
    while (!(was & bit) == used && !cas_8(word, was, was ^ bit));
}

/* ---- claiming ---- */

/* Holds that are over have been given back, and stay only so that they can be settled late. Whoever holds now comes before
 * them: their cell goes on without a block. Its book covers the state already. */
static bool drop_over(struct cells *cells, struct cell *c, uint64_t key, word16 s)
{
    struct held h;
    if (!block_read(cells, key, state_payload(s), &h))
        return false;
    for (uint32_t i = 0; i < h.count; i++)
        if (!hold_is_over(&h.holds[i]))
            return false;
    return cas_16(&c->state, s, state_make(h.state, state_gen(s), CELL_LIVE));
}

/* The high word of an owner: when it was claimed, in 2^25 µs 27 · process 22 · place 3 · number of the claim 11 · 1. The
 * time is where versions before had one in microseconds: they are off by half a minute with these, and so is this one with
 * theirs. Where the place of a process cannot be known, its number is 0. */
enum {
    CLAIM_MASK = MARK_MASK & ~1,
    CLAIMED = 1,
    CLAIM_PLACE_BITS = 3,
    CLAIM_PLACE_SHIFT = MARK_BITS,
    CLAIM_PROCESS_SHIFT = CLAIM_PLACE_SHIFT + CLAIM_PLACE_BITS,
    CLAIM_TIME_BITS = CLAIM_PLACE_BITS + OWNER_PROCESS_BITS,
};

static uint64_t claim_process(uint64_t owner)
{
    uint64_t place = owner >> OWNER_PROCESS_BITS & ((1u << CLAIM_PLACE_BITS) - 1);
    return (owner & OWNER_PROCESS_MASK) << CLAIM_PROCESS_SHIFT | place << CLAIM_PLACE_SHIFT;
}

static uint64_t claim_word(uint64_t before, int64_t now_us)
{
    uint64_t time = (uint64_t)now_us >> CLAIM_TIME_BITS << (CLAIM_TIME_BITS + MARK_BITS);
    return time | claim_process(owner_self()) | ((before + 2) & CLAIM_MASK) | CLAIMED;
}

/* Only of one in the same place it can be known. A place that merely looks the same has to be old as well. */
static bool claimer_is_dead(uint64_t claimed)
{
    uint64_t self = owner_self(), process = claimed >> CLAIM_PROCESS_SHIFT & OWNER_PROCESS_MASK;
    uint64_t owner = (self & ~OWNER_PROCESS_MASK) | process;
    uint64_t mask = (UINT64_C(1) << (CLAIM_TIME_BITS + MARK_BITS)) - 1;
    return process != 0 && ((claimed & mask) | MARK_MASK) == (claim_process(owner) | MARK_MASK) && owner_is_dead(owner);
}

static bool claim_is_left(uint64_t claimed, int64_t now_us)
{
    int64_t age_us = now_us - (int64_t)(claimed >> MARK_BITS);
    if (age_us > CLAIM_LOST_US || age_us < -CLAIM_LOST_US)
        return true;
    return (age_us > CLAIM_OLD_US || age_us < -CLAIM_OLD_US) && claimer_is_dead(claimed);
}

/* Returns the cell that names the block, or NULL. */
static struct cell *named_by(struct cells *cells, word16 owner, uint64_t name, word16 *ret)
{
    struct cell *c = cell_find(cells, owner.low, ret);
    return c && state_tag(*ret) == CELL_HELD && state_payload(*ret).time == name ? c : NULL;
}

/* Whether nobody needs the block any more: its process died before a cell named it, or its cell was dropped; or the holds
 * are over and nobody has come since, so that the cell has decayed. Such a cell is given up here. The process may have
 * named the block before it died, so that is looked at once more: then nobody is left who could name it. */
static bool is_left(struct cells *cells, word16 owner, uint64_t name, int64_t now_us)
{
    word16 s;
    struct cell *c = named_by(cells, owner, name, &s);
    if (c)
        return cell_is_free(s, load_8(&c->book), now_us) ? vacate(c, s) : drop_over(cells, c, owner.low, s);
    return claim_is_left(owner.high, now_us) && !named_by(cells, owner, name, &s);
}

/* A key has the same blocks again and again, which are in the cache. */
static uint64_t first_block(const struct block_room *room, uint64_t key)
{
    return scale(mix(key, 0), room->count);
}

void cells_prefetch_hold(const struct cells *cells, uint64_t key)
{
    if (cells->bucket_count <= SMALL_BUCKETS)
        return;
    const char *block = cells->small.base + first_block(&cells->small, key) * SMALL_BYTES;
    __builtin_prefetch(block, 1);
    __builtin_prefetch(block + LINE_BYTES, 1);
}

/* Returns a block that is the caller's now, or NULL; *ret_claimed is the high word of its owner. A free one first: that of
 * a dead process takes a search. */
static inline struct block *claim(struct cells *cells, bool large, uint64_t key, int64_t now_us, uint64_t *ret_name,
                                  uint64_t *ret_claimed)
{
    const struct block_room *room = large ? &cells->large : &cells->small;
    uint64_t start = first_block(room, key);
    for (unsigned i = 0; room->count > 0 && i < 2 * PROBES; i++) {
        uint64_t number = start + i % PROBES;
        while (number >= room->count)
            number -= room->count;
        struct block *b = (struct block *)(room->base + number * (large ? LARGE_BYTES : SMALL_BYTES));
        word16 owner = load_16(&b->owner);
        word16 mine = { key, claim_word(owner.high, now_us) };
        bool free = !(owner.high & CLAIMED);
        *ret_name = 1 + (number << 1 | large);
        *ret_claimed = mine.high;
        if ((free || (i >= PROBES && is_left(cells, owner, *ret_name, now_us))) && cas_16(&b->owner, owner, mine)) {
            mark(room, number >> room->part_shift, true);
            return b;
        }
    }
    return NULL;
}

word16 block_owner(const struct cells *cells, struct limit_state name)
{
    uint32_t most;
    struct block *b = block_at(cells, name.time, &most);
    return b ? load_16(&b->owner) : (word16){ 0, 0 };
}

void block_free(struct cells *cells, struct limit_state name, word16 owner)
{
    uint32_t most;
    struct block *b = block_at(cells, name.time, &most);
    if (b)
        cas_16(&b->owner, owner, (word16){ 0, owner.high & CLAIM_MASK });
}

/* ---- writing ---- */

/* Returns whether they can be joined without loss: slots of two owners are nobody's then. */
static bool are_alike(const struct hold *a, const struct hold *b)
{
    return a->origin == b->origin || !is_owner(a->origin | b->origin);
}

/* Returns what two belong to together. A bucket's charge counts from the earlier one on: so not too much comes back. Slots
 * of two owners are nobody's. Of holds of two windows nobody knows any more how much belongs to which, as parts of them are
 * settled: they belong to none, and what is left of them at their end stays charged. */
static uint64_t joined_origin(const struct held *h, const struct hold *a, const struct hold *b)
{
    if (a->origin == b->origin || (are_alike(a, b) && !h->windows))
        return a->origin < b->origin ? a->origin : b->origin;
    return 0;
}

/* Two become one, which ends when the later of them does: so nothing ends too early. */
static void join(struct held *h, uint32_t i, uint32_t k)
{
    struct hold *a = &h->holds[i], *b = &h->holds[k];
    b->amount += a->amount;
    b->origin = joined_origin(h, a, b);
    int64_t ttl_us = hold_ttl_us(hold_ttl_us(a) > hold_ttl_us(b) ? a : b);
    b->terms = hold_terms(0, (uint32_t)(ttl_us / US_PER_MS)) | HOLD_JOINABLE;
    remove_hold(h, i);
}

/* Returns how much is lost if two holds are joined, of which the second ends later. */
static uint64_t loss_of(const struct hold *a, const struct hold *b)
{
    uint64_t gap_us = (uint64_t)(b->until_us - a->until_us);
    return are_alike(a, b) ? gap_us : gap_us | UINT64_C(1) << 63;
}

/* Joins those that end closest to each other, slots of one owner first. False: there are no two. */
static bool join_closest(struct held *h)
{
    uint32_t before = UINT32_MAX, best = UINT32_MAX, best_next = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < h->count; i++) {
        if (!hold_is_joinable(&h->holds[i]))
            continue;
        uint64_t loss = before < i ? loss_of(&h->holds[before], &h->holds[i]) : UINT64_MAX;
        if (loss < least) {
            least = loss;
            best = before;
            best_next = i;
        }
        before = i;
    }
    if (best < best_next)
        join(h, best, best_next);
    return best < best_next;
}

static bool make_room(struct held *h, uint32_t most)
{
    while (h->count > most)
        if (!join_closest(h))
            return false;
    return true;
}

/* Write what a block begins with, and one of its holds. Each returns the checksum so far. */
static inline uint64_t write_head(struct block *b, uint64_t key, uint64_t claimed, struct limit_state state, uint32_t count,
                                  uint64_t tag, int64_t ended_us)
{
    uint64_t time_count = state.time << COUNT_BITS | count;
    store_plain(&b->data, state.data);
    store_plain(&b->time_count, time_count);
    store_plain(&b->tag, tag);
    store_plain(&b->ended, (uint64_t)ended_us);
    return mix(mix(mix(mix(mix(key, claimed), state.data), time_count), tag), (uint64_t)ended_us);
}

static inline uint64_t write_hold(uint64_t *to, uint64_t sum, const struct hold *from)
{
    store_plain(to, (uint64_t)from->until_us);
    store_plain(to + 1, from->origin);
    store_plain(to + 2, from->amount);
    store_plain(to + 3, from->terms);
    return mix(mix(mix(mix(sum, (uint64_t)from->until_us), from->origin), from->amount), from->terms);
}

static uint64_t write_content(struct block *b, uint64_t key, uint64_t claimed, const struct held *h)
{
    uint64_t sum = write_head(b, key, claimed, h->state, h->count, h->tag, h->ended_us);
    for (uint32_t i = 0; i < h->count; i++)
        sum = write_hold(b->words[i], sum, &h->holds[i]);
    return sum;
}

bool block_write_one(struct cells *cells, uint64_t key, int64_t now_us, struct limit_state state, uint64_t tag,
                     const struct hold *hold, struct limit_state *ret, uint64_t *ret_claimed)
{
    CHECK(state.time < CLOCK_END_US);
    uint64_t name, claimed;
    struct block *b = claim(cells, false, key, now_us, &name, &claimed);
    if (!b)
        return false;
    ret->time = name;
    ret->data = write_hold(b->words[0], write_head(b, key, claimed, state, 1, tag, now_us), hold);
    *ret_claimed = claimed;
    return true;
}

bool block_write(struct cells *cells, uint64_t key, int64_t now_us, struct held *held, struct limit_state *ret,
                 uint64_t *ret_claimed)
{
    CHECK(held->count > 0 && held->state.time < CLOCK_END_US);
    struct block *b = NULL;
    uint64_t claimed = 0;
    uint32_t most = held->count > BLOCK_SMALL_HOLDS ? BLOCK_LARGE_HOLDS : BLOCK_SMALL_HOLDS;
    while (!(b = claim(cells, most == BLOCK_LARGE_HOLDS, key, now_us, &ret->time, &claimed))) {
        if (most == BLOCK_SMALL_HOLDS)
            return false;
        most = BLOCK_SMALL_HOLDS;
    }
    bool fits = make_room(held, most);
    if (fits)
        ret->data = write_content(b, key, claimed, held);
    else
        block_free(cells, *ret, (word16){ key, claimed });
    *ret_claimed = claimed;
    return fits;
}

/* ---- telling of all ---- */

/* Adds what is held in one block. A block that is replaced meanwhile is read again, a few times. Returns false if it is
 * free.
 */
static bool tell(struct cells *cells, uint64_t name, int64_t now_us, struct cells_held *ret)
{
    enum { TRIES = 4 };
    uint32_t most;
    struct block *b = block_at(cells, name, &most);
    for (int i = 0; i < TRIES; i++) {
        struct held h;
        word16 s, owner = load_16(&b->owner);
        if (!(owner.high & CLAIMED))
            return false;
        bool named = cell_find(cells, owner.low, &s) && state_tag(s) == CELL_HELD;
        if (!named || state_payload(s).time != name)
            return true;
        if (!block_read(cells, owner.low, state_payload(s), &h))
            continue;
        ret->tag = h.tag;
        for (uint32_t k = 0; k < h.count; k++) {
            const struct hold *hold = &h.holds[k];
            bool lasts = hold->until_us > now_us && !hold_is_over(hold) && !owner_seems_dead(hold->origin, now_us);
            ret->holds += lasts;
            ret->amount += lasts ? h.holds[k].amount : 0;
        }
        return true;
    }
    return true;
}

/* A walk through the blocks of one kind. */
struct walk {
    struct cells *cells;
    const struct block_room *room;
    bool large;
    int64_t now_us;
    uint64_t all, most; /* blocks of parts that are marked, and how many of them to look at */
    cells_hold_sink *each;
    void *data;
};

static uint64_t scaled(const struct walk *w, uint64_t n)
{
    return w->most < w->all ? (uint64_t)((unsigned __int128)n * w->all / w->most) : n;
}

/* Returns whether some block of the part is in use. */
static bool walk_part(const struct walk *w, uint64_t part, uint64_t most)
{
    bool used = false;
    uint64_t begin = part_begin(w->room, part), end = part_begin(w->room, part + 1);
    for (uint64_t i = begin; i < end && i - begin < most; i++) {
        struct cells_held held = { 0 };
        used = tell(w->cells, 1 + (i << 1 | w->large), w->now_us, &held) || used;
        held.holds = scaled(w, held.holds);
        held.amount = scaled(w, held.amount);
        if (held.holds > 0)
            w->each(&held, w->data);
    }
    return used;
}

static void walk_all(struct walk *w)
{
    if (w->room->count == 0)
        return;
    for (uint64_t part = 0; part < PARTS; part++)
        w->all += is_marked(w->room, part) ? part_begin(w->room, part + 1) - part_begin(w->room, part) : 0;
    uint64_t left = w->most;
    for (uint64_t part = 0; part < PARTS && left > 0; part++) {
        uint64_t count = part_begin(w->room, part + 1) - part_begin(w->room, part);
        if (!is_marked(w->room, part))
            continue;
        if (!walk_part(w, part, left) && count <= left) {
            mark(w->room, part, false);
            if (walk_part(w, part, left))
                mark(w->room, part, true);
        }
        left -= count < left ? count : left;
    }
}

void cells_each_hold(struct cells *cells, int64_t now_us, uint64_t most, cells_hold_sink *each, void *data)
{
    struct walk small = {
        .cells = cells, .room = &cells->small, .now_us = now_us, .most = most, .each = each, .data = data
    };
    struct walk large = small;
    large.room = &cells->large;
    large.large = true;
    walk_all(&small);
    walk_all(&large);
}
