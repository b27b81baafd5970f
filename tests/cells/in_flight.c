/* cells_each_hold: what is held, found again in the blocks. */
#include <pthread.h>

#include "support.h"

enum { TTL_MS = 10000, HELD_MAX = 1000 };
#define TTL_US (TTL_MS * US_PER_MS)

struct told {
    uint64_t cells, holds, amount, tags;
};

static void add(const struct cells_held *held, void *data)
{
    struct told *t = data;
    t->cells++;
    t->holds += held->holds;
    t->amount += held->amount;
    t->tags ^= held->tag;
}

static struct told tell(struct cells *cells, int64_t now_us, uint64_t most)
{
    struct told t = { 0 };
    cells_each_hold(cells, now_us, most, add, &t);
    return t;
}

static unsigned marks(const struct cells *cells)
{
    unsigned count = 0;
    for (size_t i = 0; i < BLOCK_PART_WORDS; i++)
        count += (unsigned)__builtin_popcountll(cells->header->small_parts[i]) +
                 (unsigned)__builtin_popcountll(cells->header->large_parts[i]);
    return count;
}

static bool hold(struct cells *cells, const struct limit *limit, uint64_t number, uint32_t id, uint64_t cost,
                 int64_t now_us, struct cells_charged *ret)
{
    struct cells_ask ask = { key_of(number), limit, NULL, now_us, cost };
    struct cells_terms terms = { .id = id, .ttl_ms = TTL_MS, .tag = number };
    struct cells_taken taken;
    if (!cells_hold(cells, &ask, NULL, &terms, &taken) || terms.kept)
        return false;
    *ret = (struct cells_charged){ .key = ask.key,
                                   .origin = cells_origin(cells, limit, &taken),
                                   .amount = cost,
                                   .until_us = now_us + TTL_US,
                                   .id = id,
                                   .gen = cells_generation(&taken) };
    return true;
}

static void what_is_held_is_told(void **state)
{
    (void)state;
    struct cells *cells = table_of_cells(1 << 16);
    struct limit limit = limit_of(LIMIT_CONCURRENT, 200, TTL_US);
    struct cells_charged a, b, c[150];
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).cells, 0);
    assert_true(hold(cells, &limit, 1, 7, 2, T0_US, &a));
    assert_true(hold(cells, &limit, 2, 9, 3, T0_US, &b));
    struct told t = tell(cells, T0_US, UINT64_MAX);
    assert_true(t.cells == 2 && t.holds == 2 && t.amount == 5 && t.tags == (1 ^ 2));
    /* More than a large block has room for. */
    for (uint32_t i = 0; i < 150; i++)
        assert_true(hold(cells, &limit, 3, i + 1, 1, T0_US, &c[i]));
    t = tell(cells, T0_US, UINT64_MAX);
    assert_true(t.cells == 3 && t.holds < 152 && t.amount == 155);
    for (uint32_t i = 0; i < 150; i++)
        assert_true(cells_settle(cells, &limit, NULL, &c[i], 0, T0_US));
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).amount, 5);
    assert_true(cells_forget(cells, a.key)); /* a reset */
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).amount, 3);
    assert_int_equal(tell(cells, T0_US + TTL_US - 1, UINT64_MAX).amount, 3);
    assert_int_equal(tell(cells, T0_US + TTL_US, UINT64_MAX).amount, 0);
    cells_close(cells);
}

static void parts_without_holds_are_not_read(void **state)
{
    (void)state;
    struct cells *cells = table_of_cells(1 << 16);
    struct limit limit = limit_of(LIMIT_CONCURRENT, 200, TTL_US);
    static struct cells_charged held[HELD_MAX];
    uint32_t count = 0;
    assert_int_equal(marks(cells), 0);
    while (count < 100 && hold(cells, &limit, count, 1, 1, T0_US, &held[count]))
        count++;
    assert_int_equal(count, 100);
    assert_true(marks(cells) > 10);
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).amount, 100);
    for (uint32_t i = 0; i < count; i++)
        assert_true(cells_settle(cells, &limit, NULL, &held[i], 0, T0_US));
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).amount, 0);
    assert_int_equal(marks(cells), 0);
    assert_true(hold(cells, &limit, 1, 1, 1, T0_US, &held[0]));
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).amount, 1);
    cells_close(cells);
}

static void many_blocks_are_sampled(void **state)
{
    (void)state;
    struct cells *cells = table_of_cells(1 << 20); /* 8,192 small blocks */
    struct limit limit = limit_of(LIMIT_CONCURRENT, 200, TTL_US);
    struct cells_charged held;
    for (uint32_t i = 0; i < HELD_MAX; i++)
        assert_true(hold(cells, &limit, i, 1, 5, T0_US, &held));
    assert_int_equal(tell(cells, T0_US, UINT64_MAX).amount, 5 * HELD_MAX);
    struct told t = tell(cells, T0_US, cells->small.count / 4);
    assert_true(t.amount > 3 * HELD_MAX && t.amount < 8 * HELD_MAX);
    assert_int_equal(tell(cells, T0_US, 0).amount, 0);
    cells_close(cells);
}

/* ---- while others hold and settle ---- */

struct crowd {
    struct cells *cells;
    struct limit limit;
    bool stop;
};

struct worker {
    struct crowd *crowd;
    uint64_t number;
    struct cells_charged last;
    bool holds;
};

static void *work(void *data)
{
    struct worker *w = data;
    for (int i = 0; i < 20000 / SLOWER; i++) {
        if (w->holds)
            cells_settle(w->crowd->cells, &w->crowd->limit, NULL, &w->last, 0, T0_US);
        w->holds = hold(w->crowd->cells, &w->crowd->limit, w->number, (uint32_t)i + 1, 1, T0_US + i, &w->last);
    }
    return NULL;
}

static void *walk(void *data)
{
    struct crowd *c = data;
    while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE))
        assert_true(tell(c->cells, T0_US, UINT64_MAX).amount <= 8);
    return NULL;
}

/* A mark that is cleared while a block is claimed would hide it. */
static void no_hold_is_hidden(void **state)
{
    (void)state;
    struct crowd c = { table_of_cells(1 << 14), limit_of(LIMIT_CONCURRENT, 200, TTL_US), false };
    struct worker w[2] = { { .crowd = &c, .number = 1 }, { .crowd = &c, .number = 2 } };
    pthread_t workers[2], walkers[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&workers[i], NULL, work, &w[i]), 0);
        assert_int_equal(pthread_create(&walkers[i], NULL, walk, &c), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i], NULL);
    __atomic_store_n(&c.stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++)
        pthread_join(walkers[i], NULL);
    assert_int_equal(tell(c.cells, T0_US, UINT64_MAX).amount, w[0].holds + w[1].holds);
    cells_close(c.cells);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_is_told),
        cmocka_unit_test(parts_without_holds_are_not_read),
        cmocka_unit_test(many_blocks_are_sampled),
        cmocka_unit_test(no_hold_is_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
