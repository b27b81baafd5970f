/* What one caller sees: take, look, refund, forget, and which cell goes when there is none left. */
#include "support.h"

enum { ALGORITHMS = LIMIT_CALENDAR + 1 };

static const struct window day = { T0_US - 3600 * US_PER_S, T0_US + 82800 * US_PER_S };

struct subject {
    struct cells *table;
    struct limit limit;
    uint64_t key;
};

static bool charge_at(const struct subject *s, int64_t now_us, uint32_t cost, struct cells_taken *ret)
{
    struct cells_ask ask = { s->key, &s->limit, &day, now_us, cost };
    return cells_take(s->table, &ask, ret);
}

static bool charge(const struct subject *s, uint32_t cost)
{
    struct cells_taken taken;
    return charge_at(s, T0_US, cost, &taken);
}

static struct cells_look look_at(const struct subject *s, uint32_t cost)
{
    struct cells_ask ask = { s->key, &s->limit, &day, T0_US, cost };
    struct cells_look look;
    cells_look(s->table, &ask, &look);
    return look;
}

/* Whole units. */
static uint64_t used(const struct subject *s)
{
    struct limit_state state = look_at(s, 1).state;
    return s->limit.algorithm == LIMIT_TOKEN_BUCKET ? state.data / LIMIT_TOKEN : count_of(state);
}

static size_t table_bytes(const struct cells *table)
{
    return table->bucket_count * BUCKET_CELLS * CELL_BYTES;
}

static struct cell *copy_cells(const struct cells *table)
{
    struct cell *copy = aligned_alloc(16, table_bytes(table));
    assert_non_null(copy);
    memcpy(copy, table->cell, table_bytes(table));
    return copy;
}

/* Checks that nothing was written since the copy was made, and frees it. */
static void assert_untouched(const struct cells *table, struct cell *copy)
{
    assert_memory_equal(table->cell, copy, table_bytes(table));
    free(copy);
}

/* ---- take and look ---- */

static void test_take_up_to_max(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 3, 60 * US_PER_S), key_of(1) };
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(used(&s), i);
            assert_true(look_at(&s, 3 - i).fits);
            assert_false(look_at(&s, 4 - i).fits);
            assert_true(charge(&s, 1));
        }
        struct cell *copy = copy_cells(s.table);
        assert_false(charge(&s, 1));
        assert_false(charge(&s, 2));
        assert_false(charge(&s, UINT32_MAX));
        assert_false(look_at(&s, 1).fits);
        assert_untouched(s.table, copy);
        assert_int_equal(used(&s), 3);
        assert_int_equal(cells_count_live(s.table, T0_US), 1);
        cells_close(s.table);
    }
}

static void test_no_cell_for_what_never_fits(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 3, 60 * US_PER_S), key_of(1) };
        struct subject none = { s.table, limit_of(a, 0, 60 * US_PER_S), key_of(2) };
        struct cell *copy = copy_cells(s.table);
        struct cells_taken taken;
        memset(&taken, 1, sizeof taken);
        assert_false(charge_at(&s, T0_US, 4, &taken));
        assert_int_equal(taken.state.data, 0);
        assert_false(charge(&none, 1));
        assert_null(look_at(&s, 1).cell);
        cells_prefetch(s.table, s.key);
        assert_untouched(s.table, copy);
        assert_true(charge(&s, 3));
        assert_false(charge(&s, 1));
        cells_close(s.table);
    }
}

static void test_take_looked(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 3, 60 * US_PER_S), key_of(1) };
        struct cells_ask ask = { s.key, &s.limit, &day, T0_US, 1 };
        struct cells_look absent = look_at(&s, 1), first;
        struct cells_taken taken;
        assert_true(cells_take_looked(s.table, &ask, &absent, &taken));
        assert_int_equal(used(&s), 1);
        first = look_at(&s, 1);
        assert_true(cells_take_looked(s.table, &ask, &first, &taken));
        /* What was looked at has changed since, twice. */
        assert_true(cells_take_looked(s.table, &ask, &first, &taken));
        assert_int_equal(used(&s), 3);
        assert_false(cells_take_looked(s.table, &ask, &first, &taken));
        assert_false(cells_take_looked(s.table, &ask, &absent, &taken));
        assert_int_equal(used(&s), 3);
        /* A look at a cell that was forgotten, and one at a cell that is another's. */
        assert_true(cells_forget(s.table, s.key));
        assert_true(cells_take_looked(s.table, &ask, &first, &taken));
        assert_int_equal(used(&s), 1);
        cells_close(s.table);
    }
}

/* Against a plain array, in a table that is 3/4 full, and for any keys there are. */
static void test_many_keys(void **unused)
{
    (void)unused;
    enum { KEYS = 12000, ASKS = 200000 };
    static uint32_t counts[KEYS];
    struct cells *table = table_of_cells(KEYS / 3 * 4);
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 50, 60 * US_PER_S);
    struct random random = { random_seed() };
    for (int i = 0; i < ASKS; i++) {
        uint32_t k = (uint32_t)random_in(&random, 0, KEYS - 1), cost = (uint32_t)random_in(&random, 1, 20);
        uint64_t key = k == 0 ? 0 : k == 1 ? UINT64_MAX : key_of(k);
        bool fits = counts[k] + cost <= 50;
        if (take(table, key, &limit, T0_US, cost) != fits)
            fail_msg("key %u, %u used, cost %u: wrong answer", k, counts[k], cost);
        counts[k] += fits ? cost : 0;
    }
    uint64_t live = 0;
    for (uint32_t k = 0; k < KEYS; k++) {
        uint64_t key = k == 0 ? 0 : k == 1 ? UINT64_MAX : key_of(k);
        assert_int_equal(count_of(state_in(table, key, &limit, T0_US)), counts[k]);
        live += counts[k] > 0;
    }
    assert_int_equal(cells_count_live(table, T0_US), live);
    assert_int_equal(cells_stats(table).drops, 0);
    cells_close(table);
}

/* The same in batches, in which keys may come more than once. */
static void test_batches(void **unused)
{
    (void)unused;
    enum { KEYS = 3000, BATCHES = 20000 };
    static uint32_t counts[KEYS];
    struct cells *table = table_of_cells(KEYS / 3 * 4);
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 50, 60 * US_PER_S);
    struct random random = { random_seed() };
    for (int i = 0; i < BATCHES; i++) {
        struct cells_ask asks[CELLS_BATCH];
        struct cells_taken taken[CELLS_BATCH];
        bool passed[CELLS_BATCH];
        uint32_t number[CELLS_BATCH];
        unsigned n = (unsigned)random_in(&random, 0, CELLS_BATCH);
        for (unsigned k = 0; k < n; k++) {
            number[k] = (uint32_t)random_in(&random, 0, i % 4 ? KEYS - 1 : 9);
            uint64_t key = number[k] == 0 ? 0 : key_of(number[k]);
            asks[k] = (struct cells_ask){ key, &limit, NULL, T0_US, (uint32_t)random_in(&random, 1, 5) };
        }
        cells_take_batch(table, asks, n, taken, passed);
        for (unsigned k = 0; k < n; k++) {
            uint32_t *count = &counts[number[k]];
            assert_int_equal(passed[k], *count + asks[k].cost <= 50);
            *count += passed[k] ? asks[k].cost : 0;
            assert_int_equal(count_of(taken[k].state), *count);
        }
    }
    assert_int_equal(cells_stats(table).drops, 0);
    cells_close(table);
}

static void test_smallest_table(void **unused)
{
    (void)unused;
    struct cells *table = table_of_cells(1);
    struct limit limit = limit_of(LIMIT_TOKEN_BUCKET, 2, 60 * US_PER_S);
    assert_int_equal(cells_stats(table).cells, 32);
    /* Two buckets are the two of every key: all of the table fits. */
    for (uint64_t k = 0; k < 32; k++)
        assert_true(take(table, key_of(k), &limit, T0_US, 1));
    for (uint64_t k = 0; k < 32; k++)
        assert_true(take(table, key_of(k), &limit, T0_US, 1) && !take(table, key_of(k), &limit, T0_US, 1));
    assert_int_equal(cells_stats(table).drops, 0);
    assert_int_equal(cells_count_live(table, T0_US), 32);
    cells_close(table);
}

/* ---- limits that change ---- */

static void test_max_changes(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 10, 60 * US_PER_S), key_of(1) };
        assert_true(charge(&s, 6));
        s.limit = limit_of(a, 5, 60 * US_PER_S);
        assert_false(charge(&s, 1));
        s.limit = limit_of(a, 7, 60 * US_PER_S);
        assert_true(charge(&s, 1));
        assert_false(charge(&s, 1));
        s.limit = limit_of(a, 20, 60 * US_PER_S);
        assert_true(charge(&s, 13));
        assert_false(charge(&s, 1));
        assert_int_equal(used(&s), 20);
        cells_close(s.table);
    }
}

static void flood(struct cells *table, int64_t now_us, unsigned keys)
{
    static uint64_t next = 1000000;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 3600 * US_PER_S);
    for (unsigned i = 0; i < keys; i++)
        assert_true(take(table, key_of(next++), &limit, now_us, 1));
}

/* The book was written under the larger limit. A refusal under the smaller one says that the cell is worth more. */
static void test_smaller_max_is_not_flooded_away(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(32), limit_of(a, 100, 3600 * US_PER_S), key_of(1) };
        assert_true(charge(&s, 10));
        s.limit = limit_of(a, 10, 3600 * US_PER_S);
        assert_false(charge(&s, 1));
        flood(s.table, T0_US + 1, 1000);
        assert_false(charge(&s, 1));
        cells_close(s.table);
    }
}

static void test_slower_rate_is_not_reused(void **unused)
{
    (void)unused;
    static const enum limit_algorithm rated[] = { LIMIT_TOKEN_BUCKET, LIMIT_SLIDING_WINDOW };
    for (unsigned i = 0; i < 2; i++) {
        struct subject s = { table_of_cells(32), limit_of(rated[i], 5, US_PER_S), key_of(1) };
        struct cells_taken taken;
        assert_true(charge(&s, 5));
        s.limit = limit_of(rated[i], 5, 3600 * US_PER_S);
        assert_false(charge_at(&s, T0_US + 2050 * US_PER_MS, 1, &taken));
        flood(s.table, T0_US + 10 * US_PER_S, 1000);
        assert_false(charge_at(&s, T0_US + 10 * US_PER_S, 1, &taken));
        cells_close(s.table);
    }
}

/* ---- refund and forget ---- */

static void test_refund(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 5, 60 * US_PER_S), key_of(1) };
        struct cells_taken three, two;
        assert_true(charge_at(&s, T0_US, 3, &three));
        assert_true(charge_at(&s, T0_US, 2, &two));
        cells_refund(s.table, &s.limit, &three, T0_US);
        assert_int_equal(used(&s), 2);
        assert_true(charge(&s, 3));
        cells_refund(s.table, &s.limit, &two, T0_US);
        /* Never below nothing. */
        cells_refund(s.table, &s.limit, &three, T0_US);
        cells_refund(s.table, &s.limit, &three, T0_US);
        assert_int_equal(used(&s), 0);
        assert_true(charge(&s, 5));
        assert_false(charge(&s, 1));
        cells_close(s.table);
    }
}

static void test_refund_of_another_life(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 5, 60 * US_PER_S), key_of(1) };
        struct cells_taken taken;
        assert_true(charge_at(&s, T0_US, 3, &taken));
        assert_true(cells_forget(s.table, s.key));
        struct cell *copy = copy_cells(s.table);
        cells_refund(s.table, &s.limit, &taken, T0_US);
        assert_untouched(s.table, copy);
        assert_true(charge(&s, 4));
        cells_refund(s.table, &s.limit, &taken, T0_US);
        assert_int_equal(used(&s), 4);
        cells_close(s.table);
    }
}

static void test_refund_to_a_cell_of_another(void **unused)
{
    (void)unused;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    struct subject s = { table_of_cells(32), limit, key_of(1) };
    struct cells_taken taken;
    assert_true(charge_at(&s, T0_US, 1, &taken));
    for (uint64_t k = 100; k < 200; k++)
        assert_true(take(s.table, key_of(k), &limit, T0_US, 3));
    assert_int_equal(used(&s), 0);
    struct cell *copy = copy_cells(s.table);
    cells_refund(s.table, &limit, &taken, T0_US);
    assert_untouched(s.table, copy);
    cells_close(s.table);
}

static void test_refund_later(void **unused)
{
    (void)unused;
    struct subject s = { table_of_cells(64), limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S), key_of(1) };
    struct cells_taken taken, other;
    assert_true(charge_at(&s, T0_US, 3, &taken));
    assert_true(charge_at(&s, T0_US + 60 * US_PER_S, 4, &other));
    cells_refund(s.table, &s.limit, &taken, T0_US + 60 * US_PER_S);
    assert_int_equal(used(&s), 4);

    /* A bucket has given some of it back already: 2 in 24 s. */
    s.limit = limit_of(LIMIT_TOKEN_BUCKET, 5, 60 * US_PER_S), s.key = key_of(2);
    assert_true(charge_at(&s, T0_US, 5, &taken));
    assert_true(charge_at(&s, T0_US + 24 * US_PER_S, 1, &other));
    assert_int_equal(used(&s), 4);
    cells_refund(s.table, &s.limit, &taken, T0_US + 24 * US_PER_S);
    assert_int_equal(used(&s), 1);

    /* In a sliding window it has become the previous count. */
    s.limit = limit_of(LIMIT_SLIDING_WINDOW, 5, 60 * US_PER_S), s.key = key_of(3);
    assert_true(charge_at(&s, T0_US, 5, &taken));
    assert_false(charge_at(&s, T0_US + 60 * US_PER_S, 1, &other));
    assert_true(charge_at(&s, T0_US + 72 * US_PER_S, 1, &other));
    assert_false(charge_at(&s, T0_US + 72 * US_PER_S, 1, &other));
    cells_refund(s.table, &s.limit, &taken, T0_US + 72 * US_PER_S);
    assert_true(charge_at(&s, T0_US + 72 * US_PER_S, 4, &other));
    cells_close(s.table);
}

static void test_forget(void **unused)
{
    (void)unused;
    for (int a = 0; a < ALGORITHMS; a++) {
        struct subject s = { table_of_cells(64), limit_of(a, 2, 60 * US_PER_S), key_of(1) };
        assert_false(cells_forget(s.table, s.key));
        /* Often enough for the generations to come round. */
        for (int i = 0; i < 3000; i++) {
            assert_true(charge(&s, 2));
            assert_false(charge(&s, 1));
            assert_true(cells_forget(s.table, s.key));
            assert_false(cells_forget(s.table, s.key));
        }
        assert_int_equal(cells_count_live(s.table, T0_US), 0);
        cells_close(s.table);
    }
}

/* ---- which cell goes ---- */

/* Fills all 32 cells of a table: key i has used (i % 4 + 1) of 8, until (i / 4 + 1) minutes from now. */
static struct cells *full_table(struct limit *limits)
{
    struct cells *table = table_of_cells(32);
    for (uint64_t i = 0; i < 8; i++)
        limits[i] = limit_of(LIMIT_FIXED_WINDOW, 8, (int64_t)(i + 1) * 60 * US_PER_S);
    for (uint64_t i = 0; i < 32; i++)
        assert_true(take(table, key_of(i), &limits[i / 4], T0_US, i % 4 + 1));
    assert_int_equal(cells_stats(table).drops, 0);
    return table;
}

static void test_smallest_share_goes_first(void **unused)
{
    (void)unused;
    struct limit limits[8];
    struct cells *table = full_table(limits);
    for (unsigned n = 0; n < 32; n++) {
        unsigned share = n / 8, reset = n % 8, gone = reset * 4 + share;
        assert_non_null(cell_of(table, key_of(gone)));
        /* A newcomer that has used more than any of them. */
        assert_true(take(table, key_of(100 + n), &limits[7], T0_US, 7));
        assert_null(cell_of(table, key_of(gone)));
        assert_int_equal(cells_stats(table).drops, n + 1);
    }
    assert_int_equal(cells_stats(table).drops_at_limit, 0);
    cells_close(table);
}

static void test_at_limit_goes_last(void **unused)
{
    (void)unused;
    struct limit limits[8];
    struct cells *table = full_table(limits);
    for (uint64_t i = 0; i < 32; i++)
        assert_true(take(table, key_of(i), &limits[i / 4], T0_US, 7 - i % 4));
    assert_true(take(table, key_of(100), &limits[0], T0_US, 1));
    struct cells_stats stats = cells_stats(table);
    assert_true(stats.drops == 1 && stats.drops_at_limit == 1);
    /* The one that has just come has used least. */
    assert_true(take(table, key_of(101), &limits[0], T0_US, 1));
    assert_null(cell_of(table, key_of(100)));
    stats = cells_stats(table);
    assert_true(stats.drops == 2 && stats.drops_at_limit == 1);
    cells_close(table);
}

static void test_decayed_cells_are_reused(void **unused)
{
    (void)unused;
    for (int a = 0; a < LIMIT_CALENDAR; a++) {
        struct cells *table = table_of_cells(32);
        struct limit limit = limit_of(a, 5, 60 * US_PER_S);
        int64_t now = T0_US;
        for (uint64_t turn = 0; turn < 100; turn++, now += 140 * US_PER_S) {
            assert_int_equal(cells_count_live(table, now), 0);
            for (uint64_t k = 0; k < 32; k++)
                assert_true(take(table, key_of(turn * 32 + k), &limit, now, 5));
            assert_int_equal(cells_count_live(table, now), 32);
        }
        assert_int_equal(cells_stats(table).drops, 0);
        cells_close(table);
    }
}

static void test_free_before_live(void **unused)
{
    (void)unused;
    struct limit limits[8];
    struct cells *table = full_table(limits);
    assert_true(cells_forget(table, key_of(31)));
    assert_true(take(table, key_of(100), &limits[0], T0_US, 1));
    assert_int_equal(cells_stats(table).drops, 0);
    /* The windows of the first four end; they linger for another 100 ms, and up to two units of the book. */
    int64_t now = T0_US + 60 * US_PER_S + 100 * US_PER_MS + 2 * 1024;
    for (uint64_t k = 200; k < 205; k++)
        assert_true(take(table, key_of(k), &limits[7], now, 7));
    assert_int_equal(cells_stats(table).drops, 0);
    assert_true(take(table, key_of(205), &limits[7], now, 7));
    assert_int_equal(cells_stats(table).drops, 1);
    cells_close(table);
}

/* Reservations of processes that died hold nobody up, and are swept up after a second. */
static void test_cells_of_the_dead(void **unused)
{
    (void)unused;
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 5, 60 * US_PER_S);
    for (int64_t age = 0; age < 3; age++) {
        struct cells *table = table_of_cells(32);
        for (unsigned i = 0; i < 32; i++) {
            table->cell[i].head = head_of(key_of(i), 5);
            table->cell[i].state = state_make((struct limit_state){ (uint64_t)T0_US, i }, 5, CELL_RESERVED);
        }
        int64_t now = T0_US + age * 1500 * US_PER_MS * (age == 1 ? 1 : -1);
        /* One's own is simply finished; another's is taken over. */
        for (uint64_t k = 0; k < 64; k++) {
            for (int i = 0; i < 5; i++)
                assert_true(take(table, key_of(k), &limit, now, 1));
            assert_false(take(table, key_of(k), &limit, now, 1));
        }
        assert_int_equal(cells_count_live(table, now), 32);
        cells_close(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_up_to_max),
        cmocka_unit_test(test_no_cell_for_what_never_fits),
        cmocka_unit_test(test_take_looked),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_smallest_table),
        cmocka_unit_test(test_max_changes),
        cmocka_unit_test(test_smaller_max_is_not_flooded_away),
        cmocka_unit_test(test_slower_rate_is_not_reused),
        cmocka_unit_test(test_refund),
        cmocka_unit_test(test_refund_of_another_life),
        cmocka_unit_test(test_refund_to_a_cell_of_another),
        cmocka_unit_test(test_refund_later),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_smallest_share_goes_first),
        cmocka_unit_test(test_at_limit_goes_last),
        cmocka_unit_test(test_decayed_cells_are_reused),
        cmocka_unit_test(test_free_before_live),
        cmocka_unit_test(test_cells_of_the_dead),
    };
    return cmocka_run_group_tests_name("cells/take", tests, NULL, NULL);
}
