/* The table's protocol. Read README.md first: it says which race each step is there for. */
#include "cells/cells.h"

#include "base/check.h"
#include "cells/blocks.h"
#include "cells/cell.h"
#include "cells/held.h"
#include "cells/rebase.h"
#include "limit/take.h"

enum {
    PATIENCE = 64, /* tries before a reservation counts as left, whatever its age */
    CANDIDATES = 2 * BUCKET_CELLS,
    BUCKET_PLACES = (1 << BUCKET_CELLS) - 1,
    BUCKET_LINES = BUCKET_CELLS / 2,
    BUCKET_SPARE = 3,     /* free cells of a bucket that are used only if the other bucket is fuller */
    SMALL_BUCKETS = 1024, /* a table of up to half a megabyte is in the cache anyway */
    LINES_NEAR = 4,       /* lines around home, home included, in which nearly all are */
};

/* ---- places ---- */

/* The 32 cells that may hold a key, in the order in which every caller looks at them. */
struct candidates {
    struct cell *bucket[2];
    unsigned home; /* line of the bucket */
};

static uint64_t scale(uint64_t hash, uint64_t n)
{
    return (uint64_t)((unsigned __int128)hash * n >> 64);
}

LIMIT_HOT uint64_t second_hash(uint64_t key)
{
    return (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

LIMIT_HOT struct candidates candidates_of(const struct cells *t, uint64_t key)
{
    uint64_t first = scale(key, t->bucket_count);
    uint64_t second = scale(second_hash(key), t->bucket_count);
    if (second == first)
        second = first + 1 < t->bucket_count ? first + 1 : 0;
    return (struct candidates){ { t->cell + first * BUCKET_CELLS, t->cell + second * BUCKET_CELLS }, key & 7 };
}

/* Lines in the order home, its 128-byte neighbour (which the CPU often loads along), the others. */
LIMIT_HOT struct cell *candidate(const struct candidates *p, unsigned i)
{
    unsigned line = p->home ^ (i >> 1 & 7);
    return p->bucket[i / BUCKET_CELLS] + (2 * line + (i & 1));
}

/* The home line of the bucket that a hash chooses. (Where both hashes choose the same bucket, it is not what candidates_of
 * says of the second: a detour for few.) */
LIMIT_HOT struct cell *home_line(const struct cells *t, uint64_t hash, uint64_t key)
{
    return t->cell + scale(hash, t->bucket_count) * BUCKET_CELLS + 2 * (key & 7);
}

void cells_prefetch(const struct cells *cells, uint64_t key)
{
    if (cells->bucket_count <= SMALL_BUCKETS)
        return;
    __builtin_prefetch(home_line(cells, key, key), 1);
    __builtin_prefetch(home_line(cells, second_hash(key), key), 1);
}

/* ---- one cell ---- */

/* Puts in the place of the state that was read what the charge (or a clock that was set right) makes of it. */
static bool commit(struct cell *c, word16 s, struct limit_state next, const struct cells_ask *a, struct cells_taken *ret)
{
    if (!replace(c, s, next, limit_outlook(a->limit, next, a->now_us)))
        return false;
    *ret = (struct cells_taken){ next, c, head_of(a->key, state_gen(s)), a->now_us, a->cost, a->key };
    return true;
}

static __attribute__((noinline)) void mend_book(struct cell *c, word16 s, const struct cells_ask *a)
{
    if (a->cost > a->limit->capacity && !a->limit->overdraft)
        return;
    uint64_t book = load_8(&c->book);
    struct limit_take take = take_of(a, state_payload(s));
    struct limit_outlook outlook = limit_outlook(a->limit, take.next, a->now_us);
    if (outlook.share > book_share(book) || !book_covers(book, a->now_us))
        raise_book(c, s, outlook);
}

static enum outcome charge(struct cells *t, struct cell *c, const struct cells_ask *ask, struct cells_taken *ret)
{
    word16 s;
    struct cells_ask ahead;
    const struct cells_ask *a = ask;
    bool rebases = false; /* it may: this is asked once, since the answer leaves a mark */
    while (s = load_halves(c), is_own(c, a->key, s)) {
        a = ask;
        struct limit_take take = take_of(a, state_payload(s));
        if (__builtin_expect(take.rebased, 0)) {
            ahead = *ask;
            take = rebase_take(t, &ahead, state_payload(s), true, &rebases);
            a = &ahead;
        }
        if (__builtin_expect(!take.fits && !take.rebased, 0)) {
            if (__builtin_expect(!same_16(load_16(&c->state), s), 0))
                continue;
            if (__builtin_expect(!book_tells_refusal(c, a->now_us), 0))
                mend_book(c, s, a);
            ret->state = state_payload(s);
            return REFUSED;
        }
        if (commit(c, s, take.next, a, ret))
            return take.fits ? TAKEN : REFUSED;
    }
    return state_tag(s) == CELL_HELD ? held_charge(t, c, ask, ret) : LOST;
}

/* ---- making a cell ---- */

struct reservation {
    struct cell *cell; /* NULL: none */
    word16 state;
};

struct scan {
    struct cell *live;
    struct reservation reserved; /* the first in order; others have been killed */
    bool unsettled;              /* a kill came too late: what was to be killed may be live now */
};

/* Looks at all candidates in order, head before state. */
static struct scan scan_all(const struct candidates *p, uint64_t key)
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

/* A cell that is to be made, and what will be in it. */
struct newcomer {
    uint64_t key;
    int64_t now_us;
    struct limit_state first;
    struct limit_outlook outlook;
    bool no_room; /* it is not a count, and there are only counts where it could be */
};

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

/* After a scan that found no live one: the next step of making it. `seen` is the reservation that was there before that
 * scan began. True: it is made, and is seen->cell. */
static bool make(struct cells *t, const struct candidates *p, struct newcomer *n, const struct scan *found,
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

static __attribute__((noinline)) bool take_slow(struct cells *t, const struct cells_ask *a, struct cells_taken *ret)
{
    struct candidates p = candidates_of(t, a->key);
    struct limit_state unused = { 0 };
    struct limit_take first = take_of(a, unused);
    struct newcomer n = { .key = a->key, .now_us = a->now_us, .first = first.next };
    if (first.fits)
        n.outlook = limit_outlook(a->limit, first.next, a->now_us);
    struct reservation seen = { 0 };
    for (unsigned tries = 0;; tries++) {
        struct scan found = scan_all(&p, a->key);
        if (found.live) {
            enum outcome outcome = charge(t, found.live, a, ret);
            if (outcome != LOST)
                return outcome == TAKEN;
            seen.cell = NULL;
        } else if (!first.fits) {
            ret->state = unused;
            return false;
        } else if (make(t, &p, &n, &found, &seen, tries)) {
            *ret = (struct cells_taken){ n.first, seen.cell, head_of(a->key, state_gen(seen.state)), a->now_us, a->cost, a->key };
            return true;
        }
    }
}

/* ---- the operations ---- */

/* The later one of two, if its fingerprint is the key's. The CPU cannot predict which one it is, so no branch may depend on
 * it, whatever the compiler thinks. */
LIMIT_HOT struct cell *prefer(struct cell *later, struct cell *earlier, uint64_t wanted)
{
    uint64_t differs = load_8(&later->head) ^ wanted;
#if defined(__x86_64__)
    __asm__("cmpq %3, %2\n\tcmovbe %1, %0" : "+r"(earlier) : "r"(later), "r"(differs), "i"((int)MARK_MASK) : "cc");
    return earlier;
#else
    return differs <= MARK_MASK ? later : earlier;
#endif
}

/* The cell with the key's fingerprint in two lines, or any of them. */
LIMIT_HOT struct cell *find_in_lines(struct cell *a, struct cell *b, uint64_t key)
{
    uint64_t wanted = key << MARK_BITS;
    return prefer(a + 1, prefer(b, prefer(b + 1, a, wanted), wanted), wanted);
}

/* Where most are, in a fresh table more than nine in ten: in a home line. It may be another's, and the caller has to look
 * at its head, anyway. */
LIMIT_HOT struct cell *find_home(const struct cells *t, uint64_t key)
{
    return find_in_lines(home_line(t, key, key), home_line(t, second_hash(key), key), key);
}

/* Both lines at the same distance from home, from one distance to another. */
static void prefetch_lines(const struct candidates *p, unsigned from, unsigned to)
{
    for (unsigned i = 2 * from; i < 2 * to; i += 2) {
        __builtin_prefetch(candidate(p, i), 1);
        __builtin_prefetch(candidate(p, BUCKET_CELLS + i), 1);
    }
}

/* Returns a cell with the key's fingerprint in the lines from one distance to another, the nearer ones first, or NULL. A
 * fingerprint that is all that is left of a cell hides those after it; a caller that meets one scans all lines. */
LIMIT_HOT struct cell *find_between(const struct candidates *p, uint64_t key, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct cell *c = find_in_lines(candidate(p, 2 * i), candidate(p, BUCKET_CELLS + 2 * i), key);
        if (head_is_of(load_8(&c->head), key))
            return c;
    }
    return NULL;
}

/* The same in all lines, the home ones once more: see home_line. Cache misses overlap, those of the far ones with each
 * other. */
static struct cell *find_elsewhere(const struct cells *t, uint64_t key)
{
    struct candidates p = candidates_of(t, key);
    prefetch_lines(&p, 1, LINES_NEAR);
    struct cell *c = find_between(&p, key, 0, LINES_NEAR);
    if (c)
        return c;
    prefetch_lines(&p, LINES_NEAR, BUCKET_LINES);
    return find_between(&p, key, LINES_NEAR, BUCKET_LINES);
}

/* Like commit, but one try, and of a live state. */
LIMIT_HOT bool commit_quick(struct cell *c, word16 s, const struct limit_quick *q, const struct cells_ask *a,
                            struct cells_taken *ret)
{
    uint64_t book = load_8(&c->book), gen = state_gen(s), mark = s.high & MARK_MASK;
    bool same = (book & BOOK_LOW_MASK) == (gen << 8 | q->share) && book_covers(book, q->decays_us);
    if (__builtin_expect(!same, 0)) {
        uint64_t to = book_raised(book, gen, q->decays_us, a->limit->spare_us, q->share);
        if (book_gen(book) != gen || !cas_8(&c->book, book, to))
            return false;
    }
    if (__builtin_expect(!cas_16(&c->state, s, (word16){ q->next.data, q->next.time << MARK_BITS | mark }), 0))
        return false;
    *ret = (struct cells_taken){ q->next, c, head_with(a->key, s.high), a->now_us, a->cost, a->key };
    return true;
}

static bool take_any(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret, struct cell *c);

LIMIT_HOT bool take_by(enum limit_algorithm algorithm, struct cells *cells, const struct cells_ask *ask,
                       struct cells_taken *ret, struct cell *c)
{
    struct limit_quick quick;
    word16 s = load_halves(c);
    if (__builtin_expect(is_own(c, ask->key, s), 1) &&
        limit_quick_by(algorithm, ask->limit, state_payload(s), ask->now_us, ask->cost, &quick) &&
        commit_quick(c, s, &quick, ask, ret))
        return true;
    return take_any(cells, ask, ret, c);
}

/* One function for each algorithm, so that each saves only the registers that it needs. */
#define TAKE_BY(name, algorithm)                                                                                          \
    static __attribute__((noinline)) bool name(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret, \
                                               struct cell *c)                                                            \
    {                                                                                                                     \
        return take_by(algorithm, cells, ask, ret, c);                                                                    \
    }
TAKE_BY(take_bucket, LIMIT_TOKEN_BUCKET)
TAKE_BY(take_slide, LIMIT_SLIDING_WINDOW)
TAKE_BY(take_count, LIMIT_FIXED_WINDOW)

/* From the cell that seems to be the key's. */
LIMIT_HOT bool take_from(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret, struct cell *c)
{
    CHECK(ask->cost > 0 && clock_valid(ask->now_us));
    switch (ask->limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return take_bucket(cells, ask, ret, c);
    case LIMIT_SLIDING_WINDOW:
        return take_slide(cells, ask, ret, c);
    case LIMIT_CONCURRENT:
        return take_any(cells, ask, ret, c);
    default:
        return take_count(cells, ask, ret, c);
    }
}

/* The slow path. A key that is not at home is found, and may take the quick path from there. It comes back here only if
 * another key has just taken its cell. */
static __attribute__((noinline)) bool take_any(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret,
                                               struct cell *c)
{
    enum outcome outcome = LOST;
    if (head_is_of(load_8(&c->head), ask->key))
        outcome = charge(cells, c, ask, ret);
    else if ((c = find_elsewhere(cells, ask->key)))
        return take_from(cells, ask, ret, c);
    return outcome == LOST ? take_slow(cells, ask, ret) : outcome == TAKEN;
}

bool cells_take(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret)
{
    return take_from(cells, ask, ret, find_home(cells, ask->key));
}

/* Finds the cells of a batch: all in the home lines, then those that were not there in the lines around them, and so on;
 * each time those that are wanted are loaded at once. */
static __attribute__((noinline)) void find_batch(const struct cells *t, const struct cells_ask *asks, unsigned count,
                                                 struct cell **ret)
{
    struct cell *first[CELLS_BATCH], *second[CELLS_BATCH];
    unsigned open[CELLS_BATCH], open_count = 0;
    /* One line of each first: in pairs they take a quarter longer on the CPUs that we tried. */
    for (unsigned i = 0; i < count; i++) {
        first[i] = home_line(t, asks[i].key, asks[i].key);
        __builtin_prefetch(first[i], 1);
    }
    for (unsigned i = 0; i < count; i++) {
        second[i] = home_line(t, second_hash(asks[i].key), asks[i].key);
        __builtin_prefetch(second[i], 1);
    }
    for (unsigned i = 0; i < count; i++) {
        ret[i] = find_in_lines(first[i], second[i], asks[i].key);
        if (__builtin_expect(!head_is_of(load_8(&ret[i]->head), asks[i].key), 0))
            open[open_count++] = i;
    }
    for (unsigned from = 0, to = 2; open_count > 0 && from < BUCKET_LINES; from = to, to *= 2) {
        struct candidates candidates[CELLS_BATCH];
        for (unsigned k = 0; k < open_count; k++) {
            candidates[k] = candidates_of(t, asks[open[k]].key);
            prefetch_lines(&candidates[k], from, to);
        }
        unsigned left = 0;
        for (unsigned k = 0; k < open_count; k++) {
            unsigned i = open[k];
            struct cell *c = find_between(&candidates[k], asks[i].key, from, to);
            if (c)
                ret[i] = c;
            else
                open[left++] = i;
        }
        open_count = left;
    }
}

/* First all are found, then all are taken: the CPU does not load ahead of a compare-and-swap. */
void cells_take_batch(struct cells *cells, const struct cells_ask *asks, unsigned count, struct cells_taken *ret_taken,
                      bool *ret)
{
    CHECK(count <= CELLS_BATCH);
    struct cell *found[CELLS_BATCH];
    find_batch(cells, asks, count, found);
    for (unsigned i = 0; i < count; i++)
        ret[i] = take_from(cells, &asks[i], &ret_taken[i], found[i]);
}

/* `home` is not the key's. Where there is a fingerprint that is all that is left of a cell, all are looked at. */
static __attribute__((noinline)) struct cell *look_elsewhere(const struct cells *cells, uint64_t key,
                                                             const struct cell *home, word16 *ret)
{
    if (!head_is_of(load_8(&home->head), key)) {
        struct cell *c = find_elsewhere(cells, key);
        if (!c || read_any(c, key, ret))
            return c;
    }
    struct candidates p = candidates_of(cells, key);
    for (unsigned i = 0; i < CANDIDATES; i++)
        if (read_any(candidate(&p, i), key, ret))
            return candidate(&p, i);
    return NULL;
}

struct cell *cell_find(struct cells *cells, uint64_t key, word16 *ret)
{
    struct cell *c = find_home(cells, key);
    return read_any(c, key, ret) ? c : look_elsewhere(cells, key, c, ret);
}

LIMIT_HOT bool look_fits(struct cells *cells, const struct cells_ask *ask, struct limit_state state)
{
    struct limit_take take = take_of(ask, state);
    if (__builtin_expect(take.rebased, 0)) {
        struct cells_ask ahead = *ask;
        bool rebases = false;
        take = rebase_take(cells, &ahead, state, false, &rebases);
    }
    return take.fits;
}

/* No pointer to `seen` leaves this function: it would be written in halves and read whole, and the CPU would have to wait
 * for that. */
LIMIT_HOT void look_by(enum limit_algorithm algorithm, struct cells *cells, const struct cells_ask *ask,
                       struct cells_look *ret)
{
    word16 seen = { 0, 0 };
    struct cell *c = find_home(cells, ask->key);
    if (__builtin_expect(!read_own(c, ask->key, &seen), 0)) {
        word16 found = { 0, 0 };
        c = look_elsewhere(cells, ask->key, c, &found);
        seen = c ? found : (word16){ 0, 0 };
    }
    ret->cell = c;
    ret->seen.low = seen.low;
    ret->seen.high = seen.high;
    ret->state = state_payload(seen);
    if (__builtin_expect(state_tag(seen) == CELL_HELD, 0)) {
        ret->state = held_state(cells, c, ask->key, ask->limit, seen, ask->now_us);
        ret->quick = false;
        ret->fits = look_fits(cells, ask, ret->state);
        return;
    }
    ret->quick = ask->cost > 0 && limit_quick_by(algorithm, ask->limit, ret->state, ask->now_us, ask->cost, &ret->charge);
    ret->fits = ret->quick || look_fits(cells, ask, ret->state);
}

#define LOOK_BY(name, algorithm)                                                                                         \
    static __attribute__((noinline)) void name(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret) \
    {                                                                                                                    \
        look_by(algorithm, cells, ask, ret);                                                                             \
    }
LOOK_BY(look_bucket, LIMIT_TOKEN_BUCKET)
LOOK_BY(look_slide, LIMIT_SLIDING_WINDOW)
LOOK_BY(look_count, LIMIT_FIXED_WINDOW)
LOOK_BY(look_concurrent, LIMIT_CONCURRENT)

void cells_look(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret)
{
    CHECK(clock_valid(ask->now_us));
    switch (ask->limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        look_bucket(cells, ask, ret);
        return;
    case LIMIT_SLIDING_WINDOW:
        look_slide(cells, ask, ret);
        return;
    case LIMIT_CONCURRENT:
        look_concurrent(cells, ask, ret);
        return;
    default:
        look_count(cells, ask, ret);
    }
}

bool cells_take_looked(struct cells *cells, const struct cells_ask *ask, const struct cells_look *look,
                       struct cells_taken *ret)
{
    CHECK(ask->cost > 0);
    if (__builtin_expect(look->cell && look->quick && commit_quick(look->cell, look->seen, &look->charge, ask, ret), 1))
        return true;
    return cells_take(cells, ask, ret);
}

struct limit_state cells_read(const struct cells *cells, uint64_t key)
{
    word16 seen;
    struct cell *c = find_home(cells, key);
    if (!read_own(c, key, &seen) && !look_elsewhere(cells, key, c, &seen))
        return (struct limit_state){ 0 };
    return state_payload(seen);
}

bool cells_forget(struct cells *cells, uint64_t key)
{
    struct candidates p = candidates_of(cells, key);
    for (;;) {
        struct cell *c = scan_all(&p, key).live;
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

bool cells_refund(struct cells *cells, const struct limit *limit, const struct cells_taken *taken, int64_t now_us)
{
    CHECK(taken->cell && taken->cost > 0 && clock_valid(now_us));
    for (;;) {
        word16 s = load_16(&taken->cell->state);
        struct limit_state payload = state_payload(s);
        bool done;
        if (!cell_is_live(s) || state_gen(s) != head_gen(taken->head) || load_8(&taken->cell->head) != taken->head)
            return false;
        if (state_tag(s) == CELL_HELD) {
            if (held_refund(cells, s, limit, taken, now_us, &done))
                return done;
            continue;
        }
        if (!limit_refund(limit, limit_origin(limit, taken->state, taken->at_us), taken->cost, now_us, &payload))
            return false;
        if (cas_16(&taken->cell->state, s, state_make(payload, state_gen(s), CELL_LIVE)))
            return true;
    }
}

uint32_t cells_generation(const struct cells_taken *taken)
{
    return (uint32_t)head_gen(taken->head);
}

/* ---- any other change ---- */

/* False: the cell is not the key's any more. */
static bool update_live(struct cells *t, struct cell *c, uint64_t key, int64_t now_us, cells_judge *judge, void *data)
{
    word16 s;
    while (read_any(c, key, &s)) {
        if (__builtin_expect(state_tag(s) == CELL_HELD, 0)) {
            if (held_update(t, c, key, s, now_us, judge, data))
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
        struct scan found = scan_all(&p, key);
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
