/* What the tests of the table share. */
#ifndef TESTS_CELLS_SUPPORT_H
#define TESTS_CELLS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <weir/weir.h>

#include "../limit/random.h"
#include "cells/layout.h"
#include "limit/take.h"

#if defined(CELLS_TSAN)
enum { SLOWER = 16 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 8 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { SLOWER = 8 };
#else
enum { SLOWER = 1 };
#endif
#else
enum { SLOWER = 1 };
#endif

#define T0_US INT64_C(1700000000000000) /* a Tuesday in 2023 */

static inline struct cells *table_of_cells(uint64_t cells)
{
    struct cells *table = NULL;
    struct weir_error error;
    if (cells_open(&table, NULL, (struct cells_size){ .bytes = cells * CELL_BYTES }, &error) < 0)
        fail_msg("%s", error.text);
    return table;
}

static inline struct limit limit_of(enum limit_algorithm algorithm, uint32_t max, int64_t per_us)
{
    struct limit limit;
    limit_init(&limit, algorithm, max, 0, per_us);
    return limit;
}

/* Keys as the engine makes them: evenly spread. */
static inline uint64_t key_of(uint64_t number)
{
    struct hash h;
    hash_init(&h, &(struct hash_key){ 1, 2 });
    hash_word(&h, number);
    hash_word(&h, 3);
    h.length = 16;
    return hash_final(&h);
}

static inline bool take(struct cells *table, uint64_t key, const struct limit *limit, int64_t now_us, uint32_t cost)
{
    struct cells_ask ask = { key, limit, NULL, now_us, cost };
    struct cells_taken taken;
    return cells_take(table, &ask, &taken);
}

static inline struct limit_state state_in(struct cells *table, uint64_t key, const struct limit *limit, int64_t now_us)
{
    struct cells_ask ask = { key, limit, NULL, now_us, 1 };
    struct cells_look look;
    cells_look(table, &ask, &look);
    return look.state;
}

/* The count of a fixed, calendar or sliding window. */
static inline uint32_t count_of(struct limit_state state)
{
    return (uint32_t)state.data;
}

/* The cell that holds a key, or NULL. */
static inline struct cell *cell_of(struct cells *table, uint64_t key)
{
    struct limit any = limit_of(LIMIT_FIXED_WINDOW, 1, US_PER_S);
    struct cells_ask ask = { key, &any, NULL, T0_US, 1 };
    struct cells_look look;
    cells_look(table, &ask, &look);
    return look.cell;
}

#endif
