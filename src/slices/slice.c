/* How the state of a slice's cell changes when it is spent from, filled or collected. */
#include "slices/slice.h"

#include <unistd.h>

#include "base/check.h"
#include "limit/take.h"

/* A cell that holds tokens ranks above those of new subjects, or a flood of these would waste what was lent. But a subject
 * that loses a slice is refused too early at worst, and one that loses a count is admitted too often: so counts rank higher
 * from a quarter of their limit on. A mark is worth one call to the store. */
enum { SHARE_HELD = 64 };

enum { DRY_UNTIL_BITS = 17, DRY_ROOM_BITS = 8, DRY_MAX_BITS = 5 };
enum { DRY_BITS = DRY_UNTIL_BITS + DRY_ROOM_BITS + DRY_MAX_BITS };
enum { ROOM_LOCKED = (1 << DRY_ROOM_BITS) - 1 }; /* in place of a mark: room_pack() returns less */

/* ---- the words of a state ---- */

struct slice {
    int64_t end_us;
    bool asked;
    uint32_t dry; /* 0: no mark */
    uint32_t left;
};

LIMIT_HOT struct slice slice_of(struct limit_state s)
{
    return (struct slice){ limit_state_end(s), s.data >> 62 & 1, (uint32_t)(s.data >> 32) & ((UINT32_C(1) << DRY_BITS) - 1),
                           (uint32_t)s.data };
}

LIMIT_HOT struct limit_state slice_state(const struct slice *s)
{
    uint64_t end = (uint64_t)s->end_us;
    return (struct limit_state){ end & (CLOCK_END_US - 1), (end >> CLOCK_BITS & 1) << 63 | (uint64_t)s->asked << 62 |
                                                               (uint64_t)s->dry << 32 | s->left };
}

/* A slice whose window is over is empty. */
LIMIT_HOT struct slice slice_at(struct limit_state s, int64_t now_us)
{
    struct slice slice = slice_of(s);
    return slice.end_us > now_us ? slice : (struct slice){ 0 };
}

static bool same_window(int64_t a_us, int64_t b_us)
{
    int64_t apart = a_us - b_us;
    return apart <= SLICE_SAME_US && apart >= -SLICE_SAME_US;
}

/* Returns whether the slice is of the window that a caller knows to end at end_us: since then its end may have become
 * earlier, never later. The next window ends later. */
static bool is_of(const struct slice *s, int64_t end_us)
{
    return s->end_us > 0 && s->end_us <= end_us && same_window(s->end_us, end_us);
}

/* The store has answered about the window that ends at end_us: returns the slice of that window. Tokens of another one are
 * void. */
static struct slice slice_in(struct limit_state s, int64_t end_us, int64_t now_us)
{
    struct slice slice = slice_at(s, now_us);
    if (slice.end_us == 0 || !same_window(slice.end_us, end_us))
        return (struct slice){ .end_us = end_us };
    slice.end_us = slice.end_us < end_us ? slice.end_us : end_us;
    return slice;
}

static void slice_add(struct slice *s, uint32_t tokens)
{
    CHECK(s->end_us > 0); /* tokens belong to a window */
    s->left = tokens > UINT32_MAX - s->left ? UINT32_MAX : s->left + tokens;
}

LIMIT_HOT struct cells_change change_to(const struct slice *s, int64_t now_us)
{
    /* Without tokens it may be dropped at any time: nothing is lost. */
    int64_t decays_us = s->left > 0 || s->end_us < now_us ? s->end_us : now_us;
    return (struct cells_change){ .writes = true,
                                  .next = slice_state(s),
                                  .outlook = { decays_us, 0, s->left > 0 ? SHARE_HELD : LIMIT_SHARE_NONE } };
}

/* ---- locks ---- */

/* The tokens of a locked slice can pay, and nobody can spend them: see slice.h. A lock is in place of the dry mark, and
 * knows by its number who made it. */
LIMIT_HOT bool is_lock(uint32_t dry)
{
    return (dry >> DRY_UNTIL_BITS & ROOM_LOCKED) == ROOM_LOCKED;
}

LIMIT_HOT bool is_locked(const struct slice *s)
{
    return is_lock(s->dry);
}

/* No two locks that meet in a cell have the same number, or hardly ever. In containers that share a table, all processes
 * may have the same number: the addresses of their memory differ. */
static uint32_t lock_make(void)
{
    static uint32_t made;
    uint32_t place = (uint32_t)((uintptr_t)&made >> 12) ^ (uint32_t)getpid();
    uint32_t number = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED) + (place * UINT32_C(0x9e3779b1) >> 15);
    return (uint32_t)ROOM_LOCKED << DRY_UNTIL_BITS | (number & ((1u << DRY_UNTIL_BITS) - 1));
}

/* Tokens come into the slice. Where some can be spent already, nothing is owed, and these can be, too. `lock` 0: the caller
 * does not want one, and leaves that of another. Returns the caller's lock, or 0. */
static uint32_t slice_receive(struct slice *s, uint32_t tokens, uint32_t lock)
{
    bool locks = lock != 0 && (s->left == 0 || is_locked(s));
    slice_add(s, tokens);
    s->dry = locks ? lock : s->dry;
    return locks ? lock : 0;
}

/* ---- dry marks ---- */

/* Four binary digits and an exponent, rounded down: a request that did not get it wanted more in any case. */
static uint32_t room_pack(uint64_t all)
{
    uint32_t room = all < UINT32_MAX ? (uint32_t)all : UINT32_MAX; /* no request lacks more */
    if (room < 16)
        return room;
    unsigned shift = 28 - (unsigned)__builtin_clz(room);
    return 8 * (shift + 1) + (room >> shift & 7);
}

static uint32_t room_unpack(uint32_t packed)
{
    return packed < 16 ? packed : (8 + (packed & 7)) << (packed / 8 - 1 < 28 ? packed / 8 - 1 : 28);
}

static uint32_t max_hash(uint64_t max)
{
    return (uint32_t)((max + 1) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - DRY_MAX_BITS));
}

static uint32_t dry_make(uint64_t max, uint64_t room, int64_t until_us)
{
    uint32_t until_ms = (uint32_t)(until_us / US_PER_MS) & ((1u << DRY_UNTIL_BITS) - 1);
    return max_hash(max) << (DRY_ROOM_BITS + DRY_UNTIL_BITS) | room_pack(room) << DRY_UNTIL_BITS | until_ms;
}

/* Returns whether the store has just said that it has no more than *ret_room of this limit. */
static bool dry_at(uint32_t dry, uint64_t max, int64_t now_us, uint32_t *ret_room)
{
    uint32_t ahead_ms = (dry - (uint32_t)(now_us / US_PER_MS)) & ((1u << DRY_UNTIL_BITS) - 1);
    *ret_room = room_unpack(dry >> DRY_UNTIL_BITS & ((1u << DRY_ROOM_BITS) - 1));
    return dry != 0 && !is_lock(dry) && dry >> (DRY_ROOM_BITS + DRY_UNTIL_BITS) == max_hash(max) && ahead_ms > 0 &&
           ahead_ms < SLICE_DRY_MAX_US / US_PER_MS;
}

/* ---- spending ---- */

struct spending {
    int64_t now_us;
    uint32_t slice;
    uint32_t cost, least; /* takes `cost`, or what there is of it, but not less than `least` */
    uint64_t max;
    bool charge;
    bool pays; /* takes what is locked, too */
    struct slice_spent spent;
};

static __attribute__((noinline)) void refuse(struct spending *p, const struct slice *s)
{
    uint32_t room;
    bool dry = dry_at(s->dry, p->max, p->now_us, &room) && p->least - s->left > room;
    p->spent = (struct slice_spent){ dry ? SLICE_DRY : SLICE_SHORT, false, s->left, 0, s->end_us };
}

/* The process that asked may have died, so every caller that finds too little asks again. A caller that only leaves less
 * than half asks if nobody has, and not at all if the store has just said that there is no more. */
static struct cells_change judge_spend(struct limit_state state, void *data)
{
    struct spending *p = data;
    struct slice s = slice_at(state, p->now_us);
    if (__builtin_expect(is_locked(&s), 0) && !p->pays)
        s.left = 0; /* as a caller sees it: a cost is refused, and nothing is written */
    if (__builtin_expect(s.left < p->least, 0)) {
        refuse(p, &s);
        return (struct cells_change){ 0 };
    }
    p->spent = (struct slice_spent){ SLICE_TAKEN, false, s.left, 0, s.end_us };
    if (p->cost == 0 || !p->charge)
        return (struct cells_change){ 0 };
    p->spent.taken = p->cost < s.left ? p->cost : s.left;
    s.left -= p->spent.taken;
    uint32_t room;
    if (__builtin_expect(s.left < p->slice / 2 + (p->slice & 1), 0) && !s.asked && !dry_at(s.dry, p->max, p->now_us, &room))
        s.asked = p->spent.renew = true;
    p->spent.left = s.left;
    return change_to(&s, p->now_us);
}

struct slice_spent slice_spend(struct cells *cells, uint64_t key, uint32_t slice, uint64_t max, int64_t now_us,
                               uint32_t cost, bool charge)
{
    struct spending p = { now_us, slice, cost, cost, max, charge, false, { 0 } };
    CHECK(clock_valid(now_us) && slice > 0);
    cells_update(cells, key, now_us, judge_spend, &p);
    return p.spent;
}

struct slice_spent slice_spend_any(struct cells *cells, uint64_t key, uint32_t slice, uint64_t max, int64_t now_us,
                                   uint64_t cost, bool charge)
{
    uint32_t most = cost < SLICE_TOKENS_MAX ? (uint32_t)cost : SLICE_TOKENS_MAX;
    struct spending p = { now_us, slice, most, 1, max, charge, false, { 0 } };
    CHECK(clock_valid(now_us) && slice > 0 && cost > 0);
    cells_update(cells, key, now_us, judge_spend, &p);
    return p.spent;
}

/* A full slice of 0: paying asks for no other. */
struct slice_spent slice_pay(struct cells *cells, uint64_t key, int64_t now_us, uint64_t most)
{
    struct spending p = { .now_us = now_us, .least = 1, .charge = true, .pays = true };
    p.cost = most < SLICE_TOKENS_MAX ? (uint32_t)most : SLICE_TOKENS_MAX;
    CHECK(clock_valid(now_us));
    if (most > 0)
        cells_update(cells, key, now_us, judge_spend, &p);
    return p.spent;
}

/* ---- other changes ---- */

struct turn {
    int64_t end_us, now_us, until_us;
    uint32_t tokens;
    uint64_t max, room;
    bool collect;
    uint32_t wants;      /* a lock; 0: none */
    uint32_t left, lock; /* ret */
};

/* The lock that a caller wants who passes ret_lock. */
static uint32_t wanted(const uint32_t *ret_lock)
{
    return ret_lock ? lock_make() : 0;
}

static void set_lock(uint32_t *ret_lock, const struct turn *t)
{
    if (ret_lock)
        *ret_lock = t->lock;
}

static struct cells_change judge_unspend(struct limit_state state, void *data)
{
    struct turn *t = data;
    struct slice s = slice_of(state);
    t->lock = 0;
    if (!is_of(&s, t->end_us))
        return (struct cells_change){ 0 };
    t->lock = slice_receive(&s, t->tokens, t->wants);
    return change_to(&s, t->now_us);
}

/* Makes no cell, so it need not know the time. */
void slice_unspend(struct cells *cells, uint64_t key, int64_t end_us, uint32_t cost, uint32_t *ret_lock)
{
    struct turn t = { .end_us = end_us, .now_us = end_us, .tokens = cost, .wants = wanted(ret_lock) };
    if (cost > 0)
        cells_update(cells, key, clock_within(end_us), judge_unspend, &t);
    set_lock(ret_lock, &t);
}

/* t->room is a full slice. */
static struct cells_change judge_give_back(struct limit_state state, void *data)
{
    struct turn *t = data;
    struct slice s = slice_at(state, t->now_us);
    uint32_t lacks = s.left < t->room ? (uint32_t)t->room - s.left : 0;
    t->left = s.left;
    t->lock = 0;
    if (s.end_us == 0 || lacks == 0)
        return (struct cells_change){ 0 };
    t->lock = slice_receive(&s, t->tokens < lacks ? t->tokens : lacks, t->wants);
    t->left = s.left;
    return change_to(&s, t->now_us);
}

uint32_t slice_give_back(struct cells *cells, uint64_t key, uint32_t slice, uint64_t cost, int64_t now_us,
                         uint32_t *ret_lock)
{
    struct turn t = { .now_us = now_us, .room = slice, .wants = wanted(ret_lock) };
    t.tokens = cost < slice ? (uint32_t)cost : slice;
    if (cost > 0)
        cells_update(cells, key, now_us, judge_give_back, &t);
    set_lock(ret_lock, &t);
    return t.left;
}

static struct cells_change judge_put(struct limit_state state, void *data)
{
    struct turn *t = data;
    t->lock = 0;
    if (t->end_us <= t->now_us)
        return (struct cells_change){ 0 };
    struct slice s = slice_in(state, t->end_us, t->now_us);
    s.asked = false;
    s.dry = is_locked(&s) ? s.dry : 0;
    t->lock = slice_receive(&s, t->tokens, t->wants);
    return change_to(&s, t->now_us);
}

void slice_put(struct cells *cells, uint64_t key, int64_t end_us, uint32_t tokens, int64_t now_us, uint32_t *ret_lock)
{
    struct turn t = { .end_us = end_us, .now_us = now_us, .tokens = tokens, .wants = wanted(ret_lock) };
    if (tokens > 0)
        cells_update(cells, key, now_us, judge_put, &t);
    set_lock(ret_lock, &t);
}

static struct cells_change judge_unlock(struct limit_state state, void *data)
{
    const struct turn *t = data;
    struct slice s = slice_of(state);
    if (s.dry != t->wants)
        return (struct cells_change){ 0 };
    s.dry = 0;
    return change_to(&s, t->now_us);
}

void slice_unlock(struct cells *cells, uint64_t key, uint32_t lock, int64_t now_us)
{
    struct turn t = { .now_us = now_us, .wants = lock };
    if (lock != 0)
        cells_update(cells, key, now_us, judge_unlock, &t);
}

static struct cells_change judge_dry(struct limit_state state, void *data)
{
    struct turn *t = data;
    struct slice s = slice_in(state, t->end_us, t->now_us);
    s.asked = false;
    t->lock = 0;
    if (is_locked(&s) && s.left > 0) {
        t->lock = slice_receive(&s, 0, t->wants);
        return change_to(&s, t->now_us);
    }
    s.dry = dry_make(t->max, t->room, t->until_us);
    struct cells_change change = change_to(&s, t->now_us);
    if (s.left == 0)
        change.outlook.decays_us = t->until_us < s.end_us ? t->until_us : s.end_us;
    return change;
}

void slice_set_dry(struct cells *cells, uint64_t key, int64_t end_us, uint64_t max, uint64_t room, int64_t until_us,
                   int64_t now_us, uint32_t *ret_lock)
{
    struct turn t = { .end_us = end_us, .now_us = now_us, .until_us = until_us, .max = max, .room = room };
    t.wants = wanted(ret_lock);
    if (end_us > now_us)
        cells_update(cells, key, now_us, judge_dry, &t);
    set_lock(ret_lock, &t);
}

static struct cells_change judge_left(struct limit_state state, void *data)
{
    struct turn *t = data;
    struct slice s = slice_at(state, t->now_us);
    bool there = is_of(&s, t->end_us);
    t->left = there ? s.left : 0;
    return (struct cells_change){ .writes = there && t->collect, .forgets = true };
}

uint32_t slice_collect(struct cells *cells, uint64_t key, int64_t end_us, int64_t now_us)
{
    struct turn t = { .end_us = end_us, .now_us = now_us, .collect = true };
    cells_update(cells, key, now_us, judge_left, &t);
    return t.left;
}

uint32_t slice_left(struct cells *cells, uint64_t key, int64_t end_us, int64_t now_us)
{
    struct turn t = { .end_us = end_us, .now_us = now_us };
    cells_update(cells, key, now_us, judge_left, &t);
    return t.left;
}
