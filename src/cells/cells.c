/* The table's protocol. Read README.md first: it says which race each step is there for. */
#include "cells/cells.h"

#include "base/check.h"
#include "cells/held.h"
#include "cells/make.h"
#include "cells/rebase.h"
#include "limit/take.h"

void cells_prefetch(const struct cells *cells, uint64_t key)
{
    if (cells->bucket_count <= SMALL_BUCKETS)
        return;
    __builtin_prefetch(home_line(cells, key, key), 1);
    __builtin_prefetch(home_line(cells, second_hash(key), key), 1);
}

bool cells_at_home(const struct cells *cells, uint64_t key)
{
    return cells->bucket_count <= SMALL_BUCKETS || head_is_of(load_8(&find_home(cells, key)->head), key);
}

void cells_prefetch_away(const struct cells *cells, uint64_t key, bool all)
{
    struct candidates p = candidates_of(cells, key);
    prefetch_lines(&p, 1, all ? BUCKET_LINES : LINES_NEAR);
}

void cells_prefetch_among(const struct cells *cells, uint64_t key, bool is_new)
{
    if (cells->bucket_count <= SMALL_BUCKETS)
        return;
    struct candidates p = candidates_of(cells, key);
    unsigned lines = is_new ? BUCKET_LINES : 1;
    /* One bucket after the other, so that the CPU translates one address at a time. */
    for (unsigned bucket = 0; bucket < 2; bucket++)
        for (unsigned i = 0; i < lines; i++)
            prefetch_line(candidate_line(&p, bucket, i));
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
    if (limit_needs(a->limit, a->cost) > a->limit->capacity)
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

/* `absent`: the caller has just seen that no candidate has the key. Then a cell is reserved at once; the scan that has to
 * come before it becomes LIVE finds whatever was made meanwhile. */
static __attribute__((noinline)) bool take_slow(struct cells *t, const struct cells_ask *a, bool absent,
                                                struct cells_taken *ret)
{
    struct candidates p = candidates_of(t, a->key);
    struct limit_state unused = { 0 };
    struct limit_take first = take_of(a, unused);
    struct newcomer n = { .key = a->key, .now_us = a->now_us, .first = first.next };
    if (first.fits)
        n.outlook = limit_outlook(a->limit, first.next, a->now_us);
    struct reservation seen = { 0 };
    for (unsigned tries = 0;; tries++) {
        struct scan found = { 0 };
        if (!absent || tries > 0)
            scan_all(&p, a->key, &found);
        if (found.live) {
            enum outcome outcome = charge(t, found.live, a, ret);
            if (outcome != LOST)
                return outcome == TAKEN;
            seen.cell = NULL;
        } else if (!first.fits) {
            ret->state = unused;
            return false;
        } else if (make(t, &p, &n, &found, &seen, tries)) {
            *ret = (struct cells_taken){ n.first,   seen.cell, head_of(a->key, state_gen(seen.state)),
                                         a->now_us, a->cost,   a->key };
            return true;
        }
    }
}

/* ---- the operations ---- */

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
    if (!head_is_of(load_8(&c->head), ask->key)) {
        c = find_elsewhere(cells, ask->key);
        return c ? take_from(cells, ask, ret, c) : take_slow(cells, ask, true, ret);
    }
    enum outcome outcome = charge(cells, c, ask, ret);
    return outcome == LOST ? take_slow(cells, ask, false, ret) : outcome == TAKEN;
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
    struct cell *c = find_home(cells, ask->key);
    /* There was no cell, and most new ones are made at home. */
    if (!look->cell && !head_is_of(load_8(&c->head), ask->key))
        return take_slow(cells, ask, true, ret);
    return take_from(cells, ask, ret, c);
}

struct limit_state cells_read(const struct cells *cells, uint64_t key)
{
    word16 seen;
    struct cell *c = find_home(cells, key);
    if (!read_own(c, key, &seen) && !look_elsewhere(cells, key, c, &seen))
        return (struct limit_state){ 0 };
    return state_payload(seen);
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
