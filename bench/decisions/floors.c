/* What the machine itself takes: nothing that keeps state in a table of this size with such an instruction can be faster.
 *
 * The memory is of the kind that the table is made of: a shared mapping, in the pages that the system gives it. */
#include <stdlib.h>
#include <sys/mman.h>

#include "cells/atomic.h"
#include "decisions/bench.h"

struct line {
    uint64_t next; /* line of a random round trip through all */
    uint64_t unused;
    word16 state;
    word16 more[2];
};

struct bench_floor {
    struct line *lines;
    uint64_t count;
    uint64_t at; /* where the round trip goes on in the next run */
};

/* One cycle through all lines, in random order (Sattolo). */
static void make_cycle(struct bench_floor *f)
{
    struct bench_random r = { 1 };
    for (uint64_t i = 0; i < f->count; i++)
        f->lines[i].next = i;
    for (uint64_t i = f->count - 1; i > 0; i--) {
        uint64_t k = bench_below(&r, i), next = f->lines[i].next;
        f->lines[i].next = f->lines[k].next;
        f->lines[k].next = next;
    }
}

struct bench_floor *bench_floor_new(uint64_t bytes)
{
    struct bench_floor *f = malloc(sizeof *f);
    if (!f)
        return NULL;
    *f = (struct bench_floor){ .count = bytes / sizeof(struct line) ? bytes / sizeof(struct line) : 1 };
    f->lines = mmap(NULL, f->count * sizeof(struct line), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->lines == MAP_FAILED) {
        free(f);
        return NULL;
    }
    make_cycle(f);
    return f;
}

void bench_floor_free(struct bench_floor *f)
{
    if (!f)
        return;
    munmap(f->lines, f->count * sizeof(struct line));
    free(f);
}

/* As a decision has to: it reads the state, makes another one of it, and puts that in its place. */
static void run_cas(struct bench_worker *w, const uint64_t *keys)
{
    struct bench_floor *f = w->subject;
    (void)keys;
    for (unsigned i = 0; i < BENCH_SLICE; i++) {
        word16 s = load_16(&f->lines->state);
        w->taken += cas_16(&f->lines->state, s, (word16){ s.low + 1, s.high });
    }
}

static void run_access(struct bench_worker *w, const uint64_t *keys)
{
    struct bench_floor *f = w->subject;
    (void)keys;
    uint64_t at = f->at;
    for (unsigned i = 0; i < BENCH_SLICE; i++)
        at = __atomic_load_n(&f->lines[at].next, __ATOMIC_RELAXED);
    f->at = at;
    w->taken += BENCH_SLICE;
}

static void run_prefetched(struct bench_worker *w, const uint64_t *keys)
{
    struct bench_floor *f = w->subject;
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN) {
        struct line *line[BENCH_TURN];
        for (unsigned i = 0; i < BENCH_TURN; i++) {
            line[i] = f->lines + (uint64_t)((unsigned __int128)keys[i] * f->count >> 64);
            __builtin_prefetch(line[i], 1);
        }
        for (unsigned i = 0; i < BENCH_TURN; i++) {
            word16 s = load_16(&line[i]->state);
            w->taken += cas_16(&line[i]->state, s, (word16){ s.low + 1, s.high });
        }
    }
}

size_t bench_floor_cases(struct bench_floor *floor, struct bench_kind kind, const struct bench_stream *stream,
                         struct bench_case *ret)
{
    size_t n = 0;
    struct bench_case c = { .kind = kind, .subject = floor };
    c.kind.limits = 1;
    c.kind.what = BENCH_CAS;
    c.run = run_cas;
    ret[n++] = c;
    if (!stream)
        return n;
    c.kind.what = BENCH_ACCESS;
    c.run = run_access;
    ret[n++] = c;
    c.stream = stream;
    c.kind.what = BENCH_PREFETCHED;
    c.kind.batch = true;
    c.run = run_prefetched;
    ret[n++] = c;
    return n;
}
