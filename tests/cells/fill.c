/* How often a live cell is dropped at the default fill of 3/4: in a fresh table, and after its whole population has been
 * replaced many times. With TEST_ROUNDS=N (script/soak) in a table of the default size, with N × 20 million inserts. */
#include "support.h"

enum {
    LIVES = 64, /* different lifetimes */
    STEP_US = 100,
    INSERTS = 20000000,
};

static uint64_t table_cells = CELLS_DEFAULT / 8, inserts = INSERTS / 4 / SLOWER;

static void report(const char *what, uint64_t count, uint64_t drops)
{
    print_message("# %s, %llu cells: %llu inserts, %llu drops of a live cell, %.3f in a million\n", what,
                  (unsigned long long)table_cells, (unsigned long long)count, (unsigned long long)drops,
                  1e6 * (double)drops / (double)count);
    assert_true(drops * 1000000 <= count);
}

static void test_fresh(void **unused)
{
    (void)unused;
    uint64_t drops = 0, tables = 16 / (SLOWER > 1 ? 4 : 1), live = table_cells / 4 * 3;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 3600 * US_PER_S);
    for (uint64_t t = 0; t < tables; t++) {
        struct cells *table = table_of_cells(table_cells);
        for (uint64_t i = 0; i < live; i++) {
            if (!take(table, key_of(t << 32 | i), &limit, T0_US, 1))
                fail_msg("a new key was refused");
        }
        drops += cells_stats(table).drops;
        assert_int_equal(cells_count_live(table, T0_US) + cells_stats(table).drops, live);
        assert_in_range(cells_estimate_live(table, T0_US, table_cells / 8), live - live / 50, live + live / 50);
        cells_close(table);
    }
    report("fresh", tables * live, drops);
}

/* Lifetimes from 1/4 to 7/4 of the mean, so that cells come free all over the table. A cell is free again some 100 ms after
 * its window has ended (CLOCK_SKEW_US): that is part of its life here. */
static void make_limits(struct limit *limits, int64_t mean_us)
{
    for (int64_t i = 0; i < LIVES; i++) {
        int64_t life = mean_us / 4 + mean_us * 3 / 2 * i / (LIVES - 1);
        limits[i] = limit_of(LIMIT_FIXED_WINDOW, 5, life - 101 * US_PER_MS);
    }
}

static void test_churn(void **unused)
{
    (void)unused;
    struct limit limits[LIVES];
    const uint64_t live = table_cells / 4 * 3, filling = 2 * live;
    make_limits(limits, (int64_t)live * STEP_US);
    struct cells *table = table_of_cells(table_cells);
    struct random random = { random_seed() };
    uint64_t drops = 0;
    for (uint64_t i = 0; i < filling + inserts; i++) {
        int64_t now = T0_US + (int64_t)i * STEP_US;
        if (i == filling)
            drops = cells_stats(table).drops;
        if (!take(table, key_of(i), &limits[random_in(&random, 0, LIVES - 1)], now, 1))
            fail_msg("a new key was refused");
        if (i >= filling && (i - filling) % (inserts / 8) == 0)
            assert_in_range(cells_count_live(table, now), live - live / 100, live + live / 100);
    }
    report("churn", inserts, cells_stats(table).drops - drops);
    print_message("# the population was replaced %llu times\n", (unsigned long long)(inserts / live));
    cells_close(table);
}

int main(void)
{
    const char *rounds = getenv("TEST_ROUNDS");
    if (rounds) {
        table_cells = CELLS_DEFAULT;
        inserts = INSERTS * strtoull(rounds, NULL, 10);
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fresh), cmocka_unit_test(test_churn) };
    return cmocka_run_group_tests_name("cells/fill", tests, NULL, NULL);
}
