/* The table, compiled into the test with pauses: before each load and compare-and-swap a thread may give up its turn or
 * spin for a while, so that what seldom happens between two of them does. */
#ifndef TESTS_CELLS_JITTER_H
#define TESTS_CELLS_JITTER_H

#include <sched.h>

#include "cells/layout.h"

typedef typeof(((struct cell *)0)->state) state_word;

static void jitter(void)
{
    static _Thread_local uint32_t state;
    if (state == 0)
        state = (uint32_t)(uintptr_t)&state | 1;
    state = state * 1664525 + 1013904223;
    if (state >> 26 != 0)
        return;
    if ((state >> 20 & 63) == 0)
        sched_yield();
    else
        for (volatile uint32_t i = state >> 12 & 255; i > 0; i--)
            ;
}

static inline uint64_t jittery_load_8(const uint64_t *p)
{
    jitter();
    return load_8(p);
}

static inline bool jittery_cas_8(uint64_t *p, uint64_t from, uint64_t to)
{
    jitter();
    return cas_8(p, from, to);
}

static inline state_word jittery_load_16(state_word *p)
{
    jitter();
    return load_16(p);
}

static inline bool jittery_cas_16(state_word *p, state_word from, state_word to)
{
    jitter();
    return cas_16(p, from, to);
}

#define load_8 jittery_load_8
#define cas_8 jittery_cas_8
#define load_16 jittery_load_16
#define cas_16 jittery_cas_16
#include "cells/cells.c"
#undef load_8
#undef cas_8
#undef load_16
#undef cas_16

#endif
