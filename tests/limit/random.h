/* A seeded generator: the same numbers in every run. The seed is printed by a failing test and may be set by TEST_SEED. */
#ifndef TESTS_LIMIT_RANDOM_H
#define TESTS_LIMIT_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_seed(void)
{
    const char *given = getenv("TEST_SEED");
    return given ? strtoull(given, NULL, 0) : 20240229;
}

static inline uint64_t random_u64(struct random *r)
{
    r->state += 0x9e3779b97f4a7c15;
    uint64_t x = r->state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* From low to high, both included. */
static inline int64_t random_in(struct random *r, int64_t low, int64_t high)
{
    uint64_t count = (uint64_t)high - (uint64_t)low + 1;
    return low + (int64_t)(count ? random_u64(r) % count : random_u64(r));
}

static inline int random_one_in(struct random *r, int n)
{
    return random_in(r, 1, n) == 1;
}

/* From 1 to high, small numbers as likely as large ones. */
static inline int64_t random_scaled(struct random *r, int64_t high)
{
    if (high < 1)
        abort();
    int bits = (int)random_in(r, 0, 63 - __builtin_clzll((uint64_t)high));
    int64_t n = (int64_t)(random_u64(r) >> (63 - bits));
    return n < 1 ? 1 : n > high ? high : n;
}

#endif
