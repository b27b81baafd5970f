/* Keys, and the order in which they are asked for: drawn before the stopwatch runs, and then read from one end to the
 * other, which costs next to nothing. */
#include <stdlib.h>

#include "decisions/bench.h"

enum { SLICES_SMALL = 16, SLICES_LARGE = 510, SMALL = 100000 };

/* splitmix64's finish. */
uint64_t bench_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t bench_random(struct bench_random *r)
{
    return bench_mix(r->state += UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t bench_below(struct bench_random *r, uint64_t n)
{
    return (uint64_t)((unsigned __int128)bench_random(r) * n >> 64);
}

/* A rank from 0 to n - 1, each in proportion to 1 / (rank + 1): an octave by chance, a number in it by chance, and that
 * kept with a chance that makes up for its place in the octave. */
static uint64_t draw_zipf(struct bench_random *r, uint64_t n)
{
    unsigned octaves = 64 - (unsigned)__builtin_clzll(n);
    for (;;) {
        uint64_t first = UINT64_C(1) << bench_below(r, octaves);
        uint64_t rank = first + bench_below(r, first);
        if (rank <= n && bench_below(r, rank) < first)
            return rank - 1;
    }
}

static uint64_t draw(struct bench_random *r, enum bench_order order, uint64_t n)
{
    return order == BENCH_ZIPF ? draw_zipf(r, n) : bench_below(r, n);
}

bool bench_stream_init(struct bench_stream *s, const uint64_t *pool, uint64_t count, unsigned limits,
                       enum bench_order order, unsigned threads)
{
    size_t slices = count < SMALL ? SLICES_SMALL : SLICES_LARGE / limits;
    *s = (struct bench_stream){ .slices = slices, .limits = limits };
    for (unsigned t = 0; t < threads; t++) {
        struct bench_random r = { t + 1 };
        size_t draws = slices * BENCH_SLICE;
        uint64_t *next = s->keys[t] = malloc(draws * limits * sizeof *next);
        if (!next)
            return false;
        for (size_t i = 0; i < draws; i++) {
            uint64_t subject = draw(&r, order, count / limits);
            for (unsigned k = 0; k < limits; k++)
                *next++ = pool ? pool[subject * limits + k] : subject;
        }
    }
    return true;
}

void bench_stream_done(struct bench_stream *s)
{
    for (unsigned t = 0; t < BENCH_THREADS_MAX; t++)
        free(s->keys[t]);
    *s = (struct bench_stream){ 0 };
}
