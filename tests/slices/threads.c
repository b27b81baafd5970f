/* Threads on one slice, and on the places for asks: every token and every ask is accounted for.
 *
 * Built twice, as it is and with pauses at every step of the table (jitter.h). */
#include <pthread.h>
#include <sched.h>

#ifdef JITTER
#include "jitter.h"
enum { BUILD_SLOWER = 2 };
#else
enum { BUILD_SLOWER = 1 };
#endif

#include "slices/asks.h"
#include "slices/slice.h"
#include "support.h"

enum { THREADS = 4, PACE = SLOWER * BUILD_SLOWER, TURNS = 400000 / PACE, ASKS = 20000 / PACE };
#define END_US (T0_US + 60 * US_PER_S)
#define STEADY_US (1000 * US_PER_S)
#define KEY UINT64_C(0x123456789abcdef1)

struct tally {
    _Alignas(128) uint64_t put, spent, collected;
};

struct work {
    struct cells *table;
    unsigned number;
    struct tally tally;
    uint64_t *seen;
    unsigned *stop;
};

static void run(void *(*member)(void *), struct work works[THREADS])
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, member, &works[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- one slice ---- */

static void *hammer(void *data)
{
    struct work *w = data;
    struct random random = { w->number };
    for (unsigned n = 0; n < TURNS; n++) {
        uint32_t cost = (uint32_t)random_in(&random, 1, 3);
        struct slice_spent spent = slice_spend(w->table, KEY, 64, 1000, T0_US, cost, true);
        if (spent.outcome == SLICE_TAKEN)
            w->tally.spent += cost;
        if (spent.outcome == SLICE_TAKEN && random_one_in(&random, 5)) {
            w->tally.spent -= cost;
            slice_unspend(w->table, KEY, spent.end_us, cost, NULL);
        }
        if (spent.renew || spent.outcome == SLICE_SHORT) {
            w->tally.put += 64;
            slice_put(w->table, KEY, END_US + random_in(&random, 0, 1000), 64, T0_US, NULL);
        }
        if (random_one_in(&random, 50)) /* of another max: all go on */
            slice_set_dry(w->table, KEY, END_US, 999, 0, T0_US + US_PER_S / 4, T0_US, NULL);
    }
    return NULL;
}

static void test_sum(void **unused)
{
    (void)unused;
    struct cells *table = table_of_cells(64);
    struct work works[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        works[i] = (struct work){ .table = table, .number = i };
    slice_put(table, KEY, END_US + 1000, 1, T0_US, NULL);
    run(hammer, works);
    uint64_t put = 1, spent = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        put += works[i].tally.put;
        spent += works[i].tally.spent;
    }
    assert_true(spent > TURNS / 2);
    assert_int_equal(spent + slice_left(table, KEY, END_US + 1000, T0_US), put);
    cells_close(table);
}

/* The last one lends and takes back, the others spend; the cell is given up again and again. */
static void *come_and_go(void *data)
{
    struct work *w = data;
    struct random random = { w->number };
    for (unsigned n = 0; n < TURNS / 2; n++) {
        if (w->number < THREADS - 1) {
            w->tally.spent += slice_spend(w->table, KEY, 64, 1000, T0_US, 1, true).outcome == SLICE_TAKEN;
        } else if (random_one_in(&random, 2)) {
            w->tally.put += 5;
            slice_put(w->table, KEY, END_US, 5, T0_US, NULL);
        } else {
            w->tally.collected += slice_collect(w->table, KEY, END_US, T0_US);
        }
    }
    return NULL;
}

static void test_collect(void **unused)
{
    (void)unused;
    struct cells *table = table_of_cells(64);
    struct work works[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        works[i] = (struct work){ .table = table, .number = i };
    run(come_and_go, works);
    uint64_t spent = 0;
    for (unsigned i = 0; i < THREADS; i++)
        spent += works[i].tally.spent;
    const struct tally *lender = &works[THREADS - 1].tally;
    assert_int_equal(spent + lender->collected + slice_left(table, KEY, END_US, T0_US), lender->put);
    cells_close(table);
}

/* ---- asks ---- */

static bool take_ask(struct work *w)
{
    struct slice_ask ask;
    if (!ask_next(w->table, &ask, STEADY_US))
        return false;
    char key[STORE_KEY_MAX];
    int len = snprintf(key, sizeof key, "{%llu}:rule:key", (unsigned long long)ask.cell);
    assert_int_equal(ask.key_len, len);
    assert_memory_equal(ask.key, key, (size_t)len);
    assert_int_equal(ask.need, ask.cell % 1000 + 1);
    __atomic_fetch_add(&w->seen[ask.cell], 1, __ATOMIC_RELAXED);
    return true;
}

/* The first two ask, the others are lenders. */
static void *ask_or_lend(void *data)
{
    struct work *w = data;
    struct slice_ask ask = { .slice = 5, .ttl_ms = 2000 };
    limit_init(&ask.limit, LIMIT_FIXED_WINDOW, 1000, 0, US_PER_S);
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "second.f");
    for (uint64_t n = 0; n < ASKS && w->number < 2; n++) {
        ask.cell = 2 * n + w->number;
        ask.need = (uint32_t)(ask.cell % 1000 + 1);
        ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{%llu}:rule:key", (unsigned long long)ask.cell);
        while (!ask_post(w->table, &ask, STEADY_US))
            sched_yield();
    }
    if (w->number < 2)
        __atomic_fetch_add(w->stop, 1, __ATOMIC_SEQ_CST);
    uint32_t posted = 0;
    while (w->number >= 2) {
        bool last = __atomic_load_n(w->stop, __ATOMIC_SEQ_CST) == 2;
        if (!take_ask(w) && last)
            break;
        if (!last)
            posted = ask_wait(w->table, posted, 1000);
    }
    return NULL;
}

static void test_asks(void **unused)
{
    (void)unused;
    struct cells *table = table_of_cells(64);
    struct work works[THREADS];
    uint64_t *seen = calloc(2 * ASKS, sizeof *seen);
    unsigned stop = 0;
    assert_non_null(seen);
    for (unsigned i = 0; i < THREADS; i++)
        works[i] = (struct work){ .table = table, .number = i, .seen = seen, .stop = &stop };
    run(ask_or_lend, works);
    for (unsigned i = 0; i < 2 * ASKS; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
    cells_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sum), cmocka_unit_test(test_collect),
                                        cmocka_unit_test(test_asks) };
    return cmocka_run_group_tests_name("slices/threads", tests, NULL, NULL);
}
