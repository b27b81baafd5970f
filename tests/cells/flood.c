/* A flood of new keys through a small table: it must not free a subject that is being refused. */
#include "support.h"

enum {
    TABLE_CELLS = 4096,
    FLOOD = 24000000 / SLOWER,
    SUBJECTS = 64, /* of each algorithm */
    MAX = 5,
};

static const struct window day = { T0_US - 3600 * US_PER_S, T0_US + 82800 * US_PER_S };

static uint64_t subject_key(int algorithm, unsigned subject)
{
    return key_of(UINT64_C(1) << 60 | (uint64_t)algorithm << 32 | subject);
}

static bool ask_subject(struct cells *table, const struct limit *limit, unsigned subject, int64_t now_us)
{
    struct cells_ask ask = { subject_key(limit->algorithm, subject), limit, &day, now_us, 1 };
    struct cells_taken taken;
    return cells_take(table, &ask, &taken);
}

static void test_flood(void **unused)
{
    (void)unused;
    struct cells *table = table_of_cells(TABLE_CELLS);
    struct limit limits[4], flood = limit_of(LIMIT_FIXED_WINDOW, MAX, 3600 * US_PER_S);
    for (int a = 0; a < 4; a++) {
        limits[a] = limit_of(a, MAX, 3600 * US_PER_S);
        for (unsigned s = 0; s < SUBJECTS; s++) {
            for (unsigned i = 0; i < MAX; i++)
                assert_true(ask_subject(table, &limits[a], s, T0_US));
            assert_false(ask_subject(table, &limits[a], s, T0_US));
        }
    }
    struct random random = { random_seed() };
    uint64_t refused = 0;
    for (uint64_t i = 0; i < FLOOD; i++) {
        int64_t now = T0_US + (int64_t)i * 10;
        if (!take(table, key_of(i), &flood, now, 1))
            fail_msg("a new key was refused");
        if (i % 64 != 0)
            continue;
        int a = (int)random_in(&random, 0, 3);
        unsigned s = (unsigned)random_in(&random, 0, SUBJECTS - 1);
        if (ask_subject(table, &limits[a], s, now))
            fail_msg("subject %u of algorithm %d is free after %llu keys", s, a, (unsigned long long)i);
        refused++;
    }
    struct cells_stats stats = cells_stats(table);
    print_message("# %d keys through %d cells: %llu drops, %llu at their limit; %d subjects refused %llu times\n", FLOOD,
                  TABLE_CELLS, (unsigned long long)stats.drops, (unsigned long long)stats.drops_at_limit, 4 * SUBJECTS,
                  (unsigned long long)refused);
    assert_true(stats.drops >= FLOOD - TABLE_CELLS && stats.drops <= FLOOD);
    assert_int_equal(stats.drops_at_limit, 0);
    cells_close(table);
}

/* Where even the smallest share is a whole one, somebody at the limit has to go, and that is counted apart. */
static void test_flood_of_the_refused(void **unused)
{
    (void)unused;
    struct cells *table = table_of_cells(TABLE_CELLS);
    struct limit one = limit_of(LIMIT_TOKEN_BUCKET, 1, 3600 * US_PER_S);
    for (uint64_t i = 0; i < 100 * TABLE_CELLS; i++)
        assert_true(take(table, key_of(i), &one, T0_US + (int64_t)i, 1));
    struct cells_stats stats = cells_stats(table);
    assert_in_range(stats.drops, 99 * TABLE_CELLS, 100 * TABLE_CELLS);
    assert_int_equal(stats.drops_at_limit, stats.drops);
    cells_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_flood), cmocka_unit_test(test_flood_of_the_refused) };
    return cmocka_run_group_tests_name("cells/flood", tests, NULL, NULL);
}
