/* The bytes that a fuzz target gets, as numbers. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

struct input {
    const uint8_t *at, *end;
};

static inline uint64_t number(struct input *in, unsigned bytes)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < bytes && in->at < in->end; i++)
        n = n << 8 | *in->at++;
    return n;
}

static inline size_t rest(const struct input *in)
{
    return (size_t)(in->end - in->at);
}

#endif
