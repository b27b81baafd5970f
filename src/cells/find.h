/* Where the cell of a key is, and how it is found. */
#ifndef CELLS_FIND_H
#define CELLS_FIND_H

#include "cells/cell.h"

enum {
    CANDIDATES = 2 * BUCKET_CELLS,
    LINES_NEAR = 4, /* lines around home, home included, in which nearly all are */
};

/* ---- places ---- */

/* The 32 cells that may hold a key, in the order in which every caller looks at them. */
struct candidates {
    struct cell *bucket[2];
    uintptr_t home; /* bytes from the beginning of a bucket to the home line */
};

static inline uint64_t scale(uint64_t hash, uint64_t n)
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
    return (struct candidates){ { t->cell + first * BUCKET_CELLS, t->cell + second * BUCKET_CELLS },
                                (key & 7) * LINE_CELLS * CELL_BYTES };
}

/* The line of a bucket at a distance from home: home, its 128-byte neighbour (which the CPU often loads along), the
 * others. */
LIMIT_HOT struct cell *candidate_line(const struct candidates *p, unsigned bucket, unsigned distance)
{
    return (struct cell *)((char *)p->bucket[bucket] + (p->home ^ distance * LINE_CELLS * CELL_BYTES));
}

/* The lines of the first bucket, then those of the second. */
LIMIT_HOT struct cell *candidate(const struct candidates *p, unsigned i)
{
    return candidate_line(p, i / BUCKET_CELLS, i / LINE_CELLS % BUCKET_LINES) + i % LINE_CELLS;
}

/* The home line of the bucket that a hash chooses. (Where both hashes choose the same bucket, it is not what candidates_of
 * says of the second: a detour for few.) */
LIMIT_HOT struct cell *home_line(const struct cells *t, uint64_t hash, uint64_t key)
{
    return t->cell + scale(hash, t->bucket_count) * BUCKET_CELLS + 2 * (key & 7);
}

/* Whether the cell's head has the key's fingerprint. */
LIMIT_HOT bool has_key(const struct cell *c, uint64_t key)
{
    return head_is_of(load_8(&c->head), key);
}

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

/* Into the second level of the cache: many more lines are on their way at a time than into the first. */
static inline void prefetch_line(const struct cell *line)
{
    __builtin_prefetch(line, 0, 2);
}

/* Both lines at the same distance from home, from one distance to another. */
static inline void prefetch_lines(const struct candidates *p, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        prefetch_line(candidate_line(p, 0, i));
        prefetch_line(candidate_line(p, 1, i));
    }
}

/* Returns a cell with the key's fingerprint in the lines from one distance to another, the nearer ones first, or NULL. A
 * fingerprint that is all that is left of a cell hides those after it; a caller that meets one scans all lines. Most keys
 * that are looked for here are new, so that all branches go one way. */
LIMIT_HOT struct cell *find_between(const struct candidates *p, uint64_t key, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct cell *a = candidate_line(p, 0, i), *b = candidate_line(p, 1, i);
        if (__builtin_expect(has_key(&a[0], key) || has_key(&a[1], key) || has_key(&b[0], key) || has_key(&b[1], key), 0))
            return find_in_lines(a, b, key);
    }
    return NULL;
}

/* The same in all lines, the home ones once more: see home_line. Cache misses overlap, those of the far ones with each
 * other. */
struct cell *find_elsewhere(const struct cells *t, uint64_t key);
/* `home` is not the key's. Where there is a fingerprint that is all that is left of a cell, all are looked at. */
struct cell *look_elsewhere(const struct cells *cells, uint64_t key, const struct cell *home, word16 *ret);
/* Returns the key's cell and its state, which may have holds, or NULL. */
struct cell *cell_find(const struct cells *cells, uint64_t key, word16 *ret);

#endif
