/* The table's protocol. Read README.md first: it says which race each step is there for. */
#include "cells/cells.h"

#include "cells/layout.h"
#include "limit/take.h"

enum {
    RESERVED_OLD_US = 1000000, /* a reservation older than this was left by somebody who died */
    PATIENCE = 64,             /* tries before a reservation counts as left, whatever its age */
    CANDIDATES = 2 * BUCKET_CELLS,
    BUCKET_PLACES = (1 << BUCKET_CELLS) - 1,
    BUCKET_SPARE = 3, /* free cells of a bucket that only those get who find the other one fuller */
};

/* ---- places ---- */

/* The 32 cells that may hold a key, in the order in which everybody looks at them. */
struct places {
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

LIMIT_HOT struct places places_of(const struct cells *t, uint64_t key)
{
    uint64_t first = scale(key, t->bucket_count);
    uint64_t second = scale(second_hash(key), t->bucket_count);
    if (second == first)
        second = first + 1 < t->bucket_count ? first + 1 : 0;
    return (struct places){ { t->cell + first * BUCKET_CELLS, t->cell + second * BUCKET_CELLS }, key & 7 };
}

/* Lines in the order home, its 128-byte neighbour (which the CPU often loads along), the others. */
LIMIT_HOT struct cell *place(const struct places *p, unsigned i)
{
    unsigned line = p->home ^ (i >> 1 & 7);
    return p->bucket[i / BUCKET_CELLS] + (2 * line + (i & 1));
}

/* The home line of the bucket that a hash chooses. (Where both hashes choose the same bucket, the second line is one in
 * which nothing is found: a detour for few.) */
LIMIT_HOT struct cell *home_line(const struct cells *t, uint64_t hash, uint64_t key)
{
    return t->cell + scale(hash, t->bucket_count) * BUCKET_CELLS + 2 * (key & 7);
}

void cells_prefetch(const struct cells *cells, uint64_t key)
{
    __builtin_prefetch(home_line(cells, key, key), 1);
    __builtin_prefetch(home_line(cells, second_hash(key), key), 1);
}

/* ---- one cell ---- */

/* Reads a cell that should be the key's own: the state first, then the head again, so that a state that was given to
 * another key in between is noticed by its generation. */
LIMIT_HOT bool read_own(struct cell *c, uint64_t key, word16 *ret)
{
    word16 s = load_16(&c->state);
    if (state_tag(s) != CELL_LIVE || load_8(&c->head) != head_of(key, state_gen(s)))
        return false;
    *ret = s;
    return true;
}

/* Threads and processes with a cached `now` lag behind each other; none of them may find a cell gone that it still counts
 * in. */
enum { CLOCK_SKEW_MS = 100 };

#define BOOK_LOW ((UINT64_C(1) << (GEN_BITS + 8)) - 1) /* generation and share */

LIMIT_HOT int64_t decays_ms(int64_t decays_us)
{
    return decays_us / US_PER_MS + 1 + CLOCK_SKEW_MS;
}

/* book_decays_ms(book) >= decays_ms(decays_us), without a division. */
LIMIT_HOT bool book_covers(uint64_t book, int64_t decays_us)
{
    return (book_decays_ms(book) - CLOCK_SKEW_MS) * US_PER_MS > decays_us;
}

/* Out of line, with its words in registers: the path that most take is shorter for it. */
static __attribute__((noinline)) bool write_book(struct cell *c, word16 s, int64_t decays_us, int64_t spare_us,
                                                 uint8_t share)
{
    uint64_t gen = state_gen(s);
    for (;;) {
        uint64_t book = load_8(&c->book);
        bool ours = book_gen(book) == gen;
        bool covers = ours && book_covers(book, decays_us);
        if (covers && book_share(book) == share)
            return true;
        if (!ours && !same_16(load_16(&c->state), s))
            return false;
        int64_t set = covers ? book_decays_ms(book) : decays_ms(decays_us + spare_us);
        if (cas_8(&c->book, book, book_make(set, gen, share)))
            return true;
    }
}

/* The book must cover a state before the state is there: whoever judges a cell decayed reads its state first. False: the
 * cell is another's now. A generation that does not fit while the state is still the same is damage, and is mended. */
LIMIT_HOT bool raise_book(struct cell *c, word16 s, struct limit_outlook outlook)
{
    uint64_t book = load_8(&c->book);
    if (__builtin_expect((book & BOOK_LOW) == (state_gen(s) << 8 | outlook.share) && book_covers(book, outlook.decays_us),
                         1))
        return true;
    return write_book(c, s, outlook.decays_us, outlook.spare_us, outlook.share);
}

enum outcome { TAKEN, REFUSED, LOST /* the cell is not the key's any more */ };

/* Puts in the place of the state that was read what the charge (or a clock that was set right) makes of it. */
LIMIT_HOT bool commit(enum limit_algorithm algorithm, struct cell *c, word16 s, struct limit_state next,
                      const struct cells_ask *a, struct cells_taken *ret)
{
    uint64_t gen = state_gen(s);
    if (!raise_book(c, s, limit_outlook_by(algorithm, a->limit, next, a->now_us)) ||
        !cas_16(&c->state, s, state_make(next, gen, CELL_LIVE)))
        return false;
    *ret = (struct cells_taken){ next, c, head_of(a->key, gen), a->now_us, a->cost };
    return true;
}

/* A state that refuses is not decayed, and if it refuses 1, then it is at its limit. A book that says less was written
 * under other numbers of the limit, or by a charge that lost its race: its subject would be dropped, and be free. */
LIMIT_HOT bool book_tells_refusal(const struct cell *c, int64_t now_us)
{
    uint64_t book = load_8(&c->book);
    return book_share(book) == 255 && book_decays_ms(book) > now_us / US_PER_MS + CLOCK_SKEW_MS;
}

static __attribute__((noinline)) void mend_book(struct cell *c, word16 s, const struct cells_ask *a)
{
    if (a->cost > a->limit->capacity)
        return;
    uint64_t book = load_8(&c->book);
    struct limit_take take = limit_take(a->limit, a->window, state_payload(s), a->now_us, a->cost);
    struct limit_outlook outlook = limit_outlook(a->limit, take.next, a->now_us);
    if (outlook.share > book_share(book) || book_decays_ms(book) <= a->now_us / US_PER_MS + CLOCK_SKEW_MS)
        raise_book(c, s, outlook);
}

LIMIT_HOT enum outcome charge(enum limit_algorithm algorithm, struct cell *c, const struct cells_ask *a,
                              struct cells_taken *ret)
{
    word16 s;
    while (read_own(c, a->key, &s)) {
        struct limit_take take = limit_take_by(algorithm, a->limit, a->window, state_payload(s), a->now_us, a->cost);
        if (!take.fits && !take.rebased) {
            if (__builtin_expect(!book_tells_refusal(c, a->now_us), 0))
                mend_book(c, s, a);
            ret->state = state_payload(s);
            return REFUSED;
        }
        if (commit(algorithm, c, s, take.next, a, ret))
            return take.fits ? TAKEN : REFUSED;
    }
    return LOST;
}

/* ---- making a cell ---- */

struct reservation {
    struct cell *cell; /* NULL: none */
    word16 state;
};

/* Makes a reservation void. False: somebody has acted on it. */
static bool kill_reservation(const struct reservation *r)
{
    struct limit_state none = { 0 };
    return cas_16(&r->cell->state, r->state, state_make(none, (state_gen(r->state) + 1) & GEN_MASK, CELL_EMPTY));
}

struct scan {
    struct cell *live;
    struct reservation reserved; /* the first in order; others have been killed */
    bool unsettled;              /* a kill came too late: what was to be killed may be live now */
};

/* Looks at all candidates in order, head before state. */
static struct scan scan_all(const struct places *p, uint64_t key)
{
    struct scan found = { 0 };
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct cell *c = place(p, i);
        uint64_t head = load_8(&c->head);
        if (head >> GEN_BITS != (key & FINGERPRINT_MASK))
            continue;
        struct reservation r = { c, load_16(&c->state) };
        if (state_gen(r.state) != (head & GEN_MASK))
            continue;
        if (state_tag(r.state) == CELL_LIVE && !found.live)
            found.live = c;
        else if (state_tag(r.state) == CELL_RESERVED && !found.reserved.cell)
            found.reserved = r;
        else if (state_tag(r.state) == CELL_RESERVED && !kill_reservation(&r))
            found.unsettled = true;
    }
    if (found.live && found.reserved.cell)
        kill_reservation(&found.reserved);
    return found;
}

struct victim {
    struct cell *cell;
    word16 state; /* the very state that was judged */
    bool dropped, at_limit;
};

/* Nothing is lost if this cell is taken. The state was read before; the book is read now: one of another generation says
 * that the cell has changed hands since, or that it is damaged. */
static bool is_free(struct cell *c, word16 s, uint64_t *ret_book, int64_t now_us)
{
    *ret_book = load_8(&c->book);
    switch (state_tag(s)) {
    case CELL_LIVE:
        return book_gen(*ret_book) != state_gen(s) || book_decays_ms(*ret_book) <= now_us / US_PER_MS;
    case CELL_RESERVED: {
        int64_t age = now_us - (int64_t)state_payload(s).time;
        return age > RESERVED_OLD_US || age < -RESERVED_OLD_US;
    }
    default:
        return true;
    }
}

/* Smallest share first, then the nearest reset. */
static uint64_t drop_rank(uint64_t book)
{
    return (uint64_t)book_share(book) << 56 | (uint64_t)book_decays_ms(book);
}

/* Which of the free places to take. A key is looked for in its two home lines before all others, so it goes to the emptier
 * of them, unless that is in a bucket which is nearly full and the other one is not. Else it goes to the emptier bucket,
 * and there to a line with nobody in it, if there is one, so that others still find room in their home lines. */
static unsigned choose_free(uint32_t free)
{
    uint32_t in[2] = { free & BUCKET_PLACES, free >> BUCKET_CELLS };
    int count[2] = { __builtin_popcount(in[0]), __builtin_popcount(in[1]) };
    unsigned b = __builtin_popcount(in[1] & 3) > __builtin_popcount(in[0] & 3);
    if (in[b] & 3 && (count[b] > BUCKET_SPARE || count[b] >= count[!b]))
        return b * BUCKET_CELLS + (unsigned)__builtin_ctz(in[b]);
    b = count[1] > count[0];
    uint32_t empty_lines = in[b] & in[b] >> 1 & 0x5555;
    return b * BUCKET_CELLS + (unsigned)__builtin_ctz(empty_lines ? empty_lines : in[b]);
}

/* Free cells come first. Else a live one, as promise 4 says. Else every candidate is being made by somebody else at this
 * moment, or by somebody who died: the impatient take those, too, which is always safe; for others there is no cell. */
static struct victim choose_victim(const struct places *p, int64_t now_us, bool impatient)
{
    struct victim drop = { 0 }, unfinished = { 0 };
    word16 states[CANDIDATES];
    uint32_t free = 0;
    uint64_t lowest = UINT64_MAX;
    for (unsigned i = 0; i < CANDIDATES; i++) {
        struct cell *c = place(p, i);
        word16 s = states[i] = load_16(&c->state);
        uint64_t book;
        if (is_free(c, s, &book, now_us)) {
            free |= UINT32_C(1) << i;
        } else if (state_tag(s) == CELL_RESERVED) {
            unfinished = (struct victim){ .cell = c, .state = s };
        } else if (drop_rank(book) < lowest) {
            lowest = drop_rank(book);
            drop = (struct victim){ c, s, true, book_share(book) == 255 };
        }
        if (i == BUCKET_CELLS - 1 && (free & 3) == 3 && __builtin_popcount(free) > BUCKET_SPARE)
            break;
    }
    if (free) {
        unsigned i = choose_free(free);
        return (struct victim){ .cell = place(p, i), .state = states[i] };
    }
    return drop.cell || !impatient ? drop : unfinished;
}

static bool still_ours(const struct reservation *r)
{
    return same_16(load_16(&r->cell->state), r->state);
}

/* Puts `to` into a word of a reserved cell by compare-and-swap, so that one who was delayed until the cell had gone to
 * somebody else overwrites nothing. */
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
    if (!v->dropped)
        return;
    __atomic_fetch_add(&t->header->drops, 1, __ATOMIC_RELAXED);
    if (v->at_limit)
        __atomic_fetch_add(&t->header->drops_at_limit, 1, __ATOMIC_RELAXED);
}

/* Seizes a cell and publishes it as reserved for the key. {NULL}: try again. */
static struct reservation reserve(struct cells *t, const struct places *p, const struct cells_ask *a,
                                  struct limit_state first, bool impatient)
{
    struct reservation none = { 0 };
    struct victim v = choose_victim(p, a->now_us, impatient);
    if (!v.cell)
        return none;
    uint64_t gen = (state_gen(v.state) + 1) & GEN_MASK;
    /* One left from 1024 generations ago, and delayed until now, is the same only if it was for this key, too. */
    struct limit_state mark = { (uint64_t)a->now_us, a->key };
    struct reservation r = { v.cell, state_make(mark, gen, CELL_RESERVED) };
    if (!cas_16(&v.cell->state, v.state, r.state))
        return none;
    count_drop(t, &v);
    struct limit_outlook outlook = limit_outlook(a->limit, first, a->now_us);
    int64_t decays = decays_ms(outlook.decays_us + outlook.spare_us);
    if (!publish(&r, &v.cell->book, book_make(decays, gen, outlook.share)) ||
        !publish(&r, &v.cell->head, head_of(a->key, gen)))
        return none;
    return r;
}

static __attribute__((noinline)) bool take_slow(struct cells *t, const struct cells_ask *a, struct cells_taken *ret)
{
    struct places p = places_of(t, a->key);
    struct limit_state unused = { 0 };
    struct limit_take first = limit_take(a->limit, a->window, unused, a->now_us, a->cost);
    struct reservation seen = { 0 }; /* before the scan that now begins */
    for (unsigned tries = 0;; tries++) {
        struct scan found = scan_all(&p, a->key);
        if (found.live) {
            enum outcome outcome = charge(a->limit->algorithm, found.live, a, ret);
            if (outcome != LOST)
                return outcome == TAKEN;
            seen.cell = NULL;
        } else if (!first.fits) {
            ret->state = unused;
            return false;
        } else if (!found.reserved.cell) {
            seen = reserve(t, &p, a, first.next, tries > PATIENCE);
        } else if (found.reserved.cell != seen.cell || !same_16(found.reserved.state, seen.state)) {
            seen = found.reserved;
        } else if (!found.unsettled && commit(a->limit->algorithm, seen.cell, seen.state, first.next, a, ret)) {
            return true;
        }
    }
}

/* ---- the operations ---- */

/* The first cell whose fingerprint is the key's in `lines` lines of a bucket, the home line being number 0, or NULL. Which
 * one it is cannot be guessed, so all are compared and no branch depends on it. Whoever uses it has to check the rest of
 * its head. */
LIMIT_HOT struct cell *find_in_lines(struct cell *bucket, uint64_t key, unsigned from, unsigned lines)
{
    uint64_t wanted = head_of(key, 0), home = key & 7;
    unsigned found = 0;
#pragma GCC unroll 4
    for (unsigned i = 0; i < lines; i++) {
        const struct cell *line = bucket + 2 * (home ^ (from + i));
        found |= (unsigned)((load_8(&line[0].head) ^ wanted) <= GEN_MASK) << 2 * i;
        found |= (unsigned)((load_8(&line[1].head) ^ wanted) <= GEN_MASK) << (2 * i + 1);
    }
    unsigned first = (unsigned)__builtin_ctz(found | 1u << 2 * lines);
    return found ? bucket + 2 * (home ^ (from + first / 2)) + first % 2 : NULL;
}

/* The same in the two home lines, where most are: in a fresh table more than nine in ten. The empty asm keeps the compiler
 * from making branches of it. */
LIMIT_HOT struct cell *find_home(const struct cells *t, uint64_t key)
{
    struct cell *a = home_line(t, key, key), *b = home_line(t, second_hash(key), key);
    uint64_t wanted = head_of(key, 0);
    uint64_t a0 = (load_8(&a[0].head) ^ wanted) <= GEN_MASK, a1 = (load_8(&a[1].head) ^ wanted) <= GEN_MASK;
    uint64_t b0 = (load_8(&b[0].head) ^ wanted) <= GEN_MASK, b1 = (load_8(&b[1].head) ^ wanted) <= GEN_MASK;
    __asm__("" : "+r"(a0), "+r"(a1), "+r"(b0), "+r"(b1));
    uint64_t not_in_a = (a0 | a1) - 1; /* all bits, or none */
    uintptr_t line = (uintptr_t)a + (((uintptr_t)b - (uintptr_t)a) & not_in_a);
    uint64_t second = a1 | (b1 & not_in_a);
    return __builtin_expect(a0 | a1 | b0 | b1, 1) ? (struct cell *)line + second : NULL;
}

/* The same outside of them; the likelier places first. A fingerprint that turns out to be all that is left of a cell hides
 * those behind it here; whoever meets one scans them all. */
static __attribute__((noinline)) struct cell *find_elsewhere(const struct cells *t, uint64_t key)
{
    struct places p = places_of(t, key);
    /* All at once: in a large table each line may be a cache miss. */
    for (unsigned i = 0; i < BUCKET_CELLS; i += 2) {
        __builtin_prefetch(p.bucket[0] + i, 1);
        __builtin_prefetch(p.bucket[1] + i, 1);
    }
    struct cell *c = find_in_lines(p.bucket[0], key, 1, 3);
    c = c ? c : find_in_lines(p.bucket[1], key, 0, 4);
    c = c ? c : find_in_lines(p.bucket[0], key, 4, 4);
    return c ? c : find_in_lines(p.bucket[1], key, 4, 4);
}

LIMIT_HOT bool take_by(enum limit_algorithm algorithm, struct cells *cells, const struct cells_ask *ask,
                       struct cells_taken *ret)
{
    struct cell *c = find_home(cells, ask->key);
    if (__builtin_expect(!c, 0))
        c = find_elsewhere(cells, ask->key);
    enum outcome outcome = __builtin_expect(c != NULL, 1) ? charge(algorithm, c, ask, ret) : LOST;
    return __builtin_expect(outcome == LOST, 0) ? take_slow(cells, ask, ret) : outcome == TAKEN;
}

/* One function for each algorithm, so that each saves only the registers that it needs. */
#define TAKE_BY(name, algorithm)                                                                                          \
    static __attribute__((noinline)) bool name(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret) \
    {                                                                                                                     \
        return take_by(algorithm, cells, ask, ret);                                                                       \
    }
TAKE_BY(take_bucket, LIMIT_TOKEN_BUCKET)
TAKE_BY(take_slide, LIMIT_SLIDING_WINDOW)
TAKE_BY(take_count, LIMIT_FIXED_WINDOW)

bool cells_take(struct cells *cells, const struct cells_ask *ask, struct cells_taken *ret)
{
    switch (ask->limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        return take_bucket(cells, ask, ret);
    case LIMIT_SLIDING_WINDOW:
        return take_slide(cells, ask, ret);
    default:
        return take_count(cells, ask, ret);
    }
}

/* Behind a fingerprint that is all that is left of a cell. */
static __attribute__((noinline)) struct cell *look_everywhere(const struct cells *cells, uint64_t key, word16 *ret)
{
    struct places p = places_of(cells, key);
    for (unsigned i = 0; i < CANDIDATES; i++)
        if (read_own(place(&p, i), key, ret))
            return place(&p, i);
    return NULL;
}

/* `seen` is never behind a pointer that leaves this function: it would be written in halves and read whole, for which a CPU
 * has to wait. */
LIMIT_HOT void look_by(enum limit_algorithm algorithm, struct cells *cells, const struct cells_ask *ask,
                       struct cells_look *ret)
{
    word16 seen = { 0, 0 };
    struct cell *c = find_home(cells, ask->key);
    if (__builtin_expect(!c, 0))
        c = find_elsewhere(cells, ask->key);
    if (__builtin_expect(c && !read_own(c, ask->key, &seen), 0)) {
        word16 found = { 0, 0 };
        c = look_everywhere(cells, ask->key, &found);
        seen = found;
    }
    ret->cell = c;
    ret->seen.low = seen.low;
    ret->seen.high = seen.high;
    ret->state = state_payload(seen);
    ret->take = limit_take_by(algorithm, ask->limit, ask->window, state_payload(seen), ask->now_us, ask->cost);
}

#define LOOK_BY(name, algorithm)                                                                                         \
    static __attribute__((noinline)) void name(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret) \
    {                                                                                                                    \
        look_by(algorithm, cells, ask, ret);                                                                             \
    }
LOOK_BY(look_bucket, LIMIT_TOKEN_BUCKET)
LOOK_BY(look_slide, LIMIT_SLIDING_WINDOW)
LOOK_BY(look_count, LIMIT_FIXED_WINDOW)

void cells_look(struct cells *cells, const struct cells_ask *ask, struct cells_look *ret)
{
    switch (ask->limit->algorithm) {
    case LIMIT_TOKEN_BUCKET:
        look_bucket(cells, ask, ret);
        return;
    case LIMIT_SLIDING_WINDOW:
        look_slide(cells, ask, ret);
        return;
    default:
        look_count(cells, ask, ret);
    }
}

bool cells_take_looked(struct cells *cells, const struct cells_ask *ask, const struct cells_look *look,
                       struct cells_taken *ret)
{
    if (__builtin_expect(look->cell && look->take.fits &&
                             commit(ask->limit->algorithm, look->cell, look->seen, look->take.next, ask, ret),
                         1))
        return true;
    return cells_take(cells, ask, ret);
}

bool cells_forget(struct cells *cells, uint64_t key)
{
    struct places p = places_of(cells, key);
    struct limit_state none = { 0 };
    for (;;) {
        struct cell *c = scan_all(&p, key).live;
        word16 s;
        if (!c)
            return false;
        if (read_own(c, key, &s) && cas_16(&c->state, s, state_make(none, (state_gen(s) + 1) & GEN_MASK, CELL_EMPTY)))
            return true;
    }
}

void cells_refund(const struct limit *limit, const struct cells_taken *taken, int64_t now_us)
{
    for (;;) {
        word16 s = load_16(&taken->cell->state);
        struct limit_state payload = state_payload(s);
        if (state_tag(s) != CELL_LIVE || state_gen(s) != (taken->head & GEN_MASK) ||
            load_8(&taken->cell->head) != taken->head ||
            !limit_refund(limit, taken->state, taken->at_us, taken->cost, now_us, &payload))
            return;
        if (cas_16(&taken->cell->state, s, state_make(payload, state_gen(s), CELL_LIVE)))
            return;
    }
}

const struct hash_key *cells_hash_key(const struct cells *cells)
{
    return &cells->secret;
}

struct cells_stats cells_stats(const struct cells *cells)
{
    uint64_t count = cells->bucket_count * BUCKET_CELLS;
    return (struct cells_stats){ count, count * CELL_BYTES, __atomic_load_n(&cells->header->drops, __ATOMIC_RELAXED),
                                 __atomic_load_n(&cells->header->drops_at_limit, __ATOMIC_RELAXED) };
}

uint64_t cells_count_live(struct cells *cells, int64_t now_us)
{
    uint64_t live = 0, count = cells->bucket_count * BUCKET_CELLS;
    for (uint64_t i = 0; i < count; i++) {
        struct cell *c = cells->cell + i;
        word16 s = load_16(&c->state);
        uint64_t book;
        live += state_tag(s) == CELL_LIVE && !is_free(c, s, &book, now_us);
    }
    return live;
}
