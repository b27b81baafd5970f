/* Tables to measure on: fresh ones, and ones in which many generations of keys came and went. */
#include <stdlib.h>

#include "decisions/bench.h"
#include "limit/take.h"

#define START_US (INT64_C(1800000000) * US_PER_S)
#define PER_US (60 * US_PER_S)

/* A cell is kept this much longer, for callers whose clocks lag behind. */
#define KEPT_US (100 * US_PER_MS)

enum { CHUNK = 1024 };

enum { HEADROOM = 10 };

/* A turn of BENCH_TURN decisions takes one microsecond on the clock of the runs, about what it takes in truth. */
struct limit bench_limit(uint64_t keys)
{
    struct limit limit;
    int64_t max = HEADROOM * BENCH_TURN * PER_US / (int64_t)keys;
    limit_init(&limit, LIMIT_TOKEN_BUCKET, max < UINT32_MAX ? (uint32_t)max : UINT32_MAX, 0, PER_US);
    return limit;
}

static bool table_open(struct bench_table *t, uint64_t keys, uint64_t room)
{
    *t = (struct bench_table){ .limit = bench_limit(keys), .now_us = START_US };
    struct weir_error error;
    if (cells_open(&t->cells, NULL, (struct cells_size){ .keys = keys }, &error) < 0)
        t->cells = NULL;
    t->pool = malloc(room * sizeof t->pool[0]);
    if (t->cells && t->pool)
        return true;
    bench_table_done(t);
    return false;
}

void bench_table_done(struct bench_table *t)
{
    cells_close(t->cells);
    free(t->pool);
    *t = (struct bench_table){ 0 };
}

/* Charges every key of the pool once. */
static void charge_all(struct bench_table *t)
{
    for (uint64_t i = 0; i < t->count; i++) {
        struct cells_ask ask = { t->pool[i], &t->limit, NULL, t->now_us, 1 };
        struct cells_taken taken;
        if (i + BENCH_TURN < t->count)
            cells_prefetch(t->cells, t->pool[i + BENCH_TURN]);
        cells_take(t->cells, &ask, &taken);
        t->now_us += i % BENCH_TURN == 0;
    }
}

bool bench_table_fresh(struct bench_table *t, uint64_t keys)
{
    if (!table_open(t, keys, keys))
        return false;
    for (uint64_t i = 0; i < keys; i++)
        t->pool[i] = bench_mix(i + 1);
    t->count = keys;
    charge_all(t);
    return true;
}

/* ---- aging ---- */

/* Newcomers arrive evenly, each takes some part of its limit, and its cell is free again a while after that has come back:
 * some seconds, for some more than for others. As many arrive as are needed for `keys` of them to be there at any time. */
struct aging {
    struct bench_table *table;
    uint64_t keys, total, next;
    int64_t mean_life_us;
};

static uint64_t newcomer_key(uint64_t i)
{
    return bench_mix(i + 1);
}

static uint32_t newcomer_cost(const struct limit *limit, uint64_t i)
{
    struct bench_random r = { i };
    return (uint32_t)bench_below(&r, limit->max / 32) + 1;
}

static int64_t newcomer_us(const struct aging *a, uint64_t i)
{
    return START_US + (int64_t)((double)i * (double)a->mean_life_us / (double)a->keys);
}

static int64_t newcomer_end_us(const struct aging *a, uint64_t i)
{
    const struct limit *limit = &a->table->limit;
    struct limit_state unused = { 0 };
    int64_t now = newcomer_us(a, i);
    struct limit_take take = limit_take(limit, NULL, unused, now, newcomer_cost(limit, i));
    struct limit_outlook outlook = limit_outlook(limit, take.next, now);
    return outlook.decays_us + outlook.spare_us + KEPT_US;
}

static int64_t mean_life_us(const struct aging *a)
{
    enum { SAMPLES = 10000 };
    int64_t sum = 0;
    for (uint64_t i = 0; i < SAMPLES; i++)
        sum += newcomer_end_us(a, i) - START_US;
    return sum / SAMPLES;
}

/* Threads take chunks in turns, so that their clocks stay near each other. */
static void age_thread(unsigned index, void *data)
{
    struct aging *a = data;
    struct bench_table *t = a->table;
    uint64_t start;
    (void)index;
    while ((start = __atomic_fetch_add(&a->next, CHUNK, __ATOMIC_RELAXED)) < a->total) {
        for (uint64_t i = start; i < start + CHUNK; i++) {
            struct cells_ask ask = { newcomer_key(i), &t->limit, NULL, newcomer_us(a, i), newcomer_cost(&t->limit, i) };
            struct cells_taken taken;
            cells_prefetch(t->cells, newcomer_key(i + BENCH_TURN));
            cells_take(t->cells, &ask, &taken);
        }
    }
}

bool bench_table_aged(struct bench_table *t, uint64_t keys, unsigned generations, unsigned threads)
{
    uint64_t room = keys + keys / 8 + 64;
    if (!table_open(t, keys, room))
        return false;
    struct aging a = { .table = t, .keys = keys, .mean_life_us = 0 };
    a.mean_life_us = mean_life_us(&a);
    a.total = (generations * keys + CHUNK) / CHUNK * CHUNK;
    bench_threads(keys < 100 * CHUNK ? 1 : threads, age_thread, &a);
    int64_t end_us = newcomer_us(&a, a.total);
    for (uint64_t i = a.total; i-- > 0 && t->count < room && end_us - newcomer_us(&a, i) < PER_US;)
        if (newcomer_end_us(&a, i) > end_us)
            t->pool[t->count++] = newcomer_key(i);
    t->now_us = end_us;
    charge_all(t);
    return true;
}

/* ---- decisions ---- */

void bench_run_single(struct bench_worker *w, const uint64_t *keys)
{
    struct bench_table *t = w->subject;
    struct cells_ask ask = { .limit = &t->limit, .cost = 1 };
    struct cells_taken taken;
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN) {
        ask.now_us = w->now_us++;
        for (unsigned i = 0; i < BENCH_TURN; i++) {
            ask.key = keys[i];
            w->taken += cells_take(t->cells, &ask, &taken);
        }
    }
}

void bench_run_batch(struct bench_worker *w, const uint64_t *keys)
{
    struct bench_table *t = w->subject;
    struct cells_ask asks[BENCH_TURN];
    struct cells_taken taken[BENCH_TURN];
    bool passed[BENCH_TURN];
    for (unsigned i = 0; i < BENCH_TURN; i++)
        asks[i] = (struct cells_ask){ .limit = &t->limit, .cost = 1 };
    for (const uint64_t *end = keys + BENCH_SLICE; keys < end; keys += BENCH_TURN, w->now_us++) {
        for (unsigned i = 0; i < BENCH_TURN; i++) {
            asks[i].key = keys[i];
            asks[i].now_us = w->now_us;
        }
        cells_take_batch(t->cells, asks, BENCH_TURN, taken, passed);
        for (unsigned i = 0; i < BENCH_TURN; i++)
            w->taken += passed[i];
    }
}
