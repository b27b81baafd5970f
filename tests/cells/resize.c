/* The counts of a table are in a table of another size, each under its key and once: nobody is admitted twice. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cells/find.h"
#include "cells/resize.h"
#include "support.h"

enum { BUCKETS = 8192, KEYS = BUCKETS * 3 / SLOWER };
#define HOUR_US (3600 * US_PER_S)

static char folder[200];
static const char *const names[] = { "old", "new", "copy" };

static int make_folder(void **unused)
{
    (void)unused;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cells-resize-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_files(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(names[i]);
    return 0;
}

static int remove_folder(void **unused)
{
    remove_files(unused);
    return chdir("/") | rmdir(folder);
}

static struct cells *open_table(const char *path, uint64_t buckets)
{
    struct cells *table = NULL;
    struct weir_error error;
    if (cells_open(&table, path, (struct cells_size){ .bytes = buckets * BUCKET_CELLS * CELL_BYTES }, &error) < 0)
        fail_msg("%s", error.text);
    return table;
}

static int remake(struct cells *from, const char *to, uint64_t buckets, bool copy, bool drop, struct cells_resized *ret)
{
    struct weir_error error = { 0 };
    struct cells_remake how = { .size.bytes = buckets * BUCKET_CELLS * CELL_BYTES, .copy = copy, .drop = drop };
    int fd = open("old", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(to);
    int r = cells_remake(from, fd, to, &how, T0_US, ret, &error);
    close(fd);
    return r;
}

/* The limits of the test, one kind for each key in turn. */
static struct limit kind_of(uint64_t i, struct window *ret_window)
{
    static const enum limit_algorithm kinds[] = { LIMIT_TOKEN_BUCKET, LIMIT_FIXED_WINDOW, LIMIT_SLIDING_WINDOW,
                                                  LIMIT_CALENDAR };
    *ret_window = (struct window){ T0_US / HOUR_US * HOUR_US, (T0_US / HOUR_US + 1) * HOUR_US };
    return limit_of(kinds[i % 4], 1000, HOUR_US);
}

static void fill_table(struct cells *table, uint64_t keys)
{
    for (uint64_t i = 0; i < keys; i++) {
        struct window window;
        struct limit limit = kind_of(i, &window);
        struct cells_ask ask = { key_of(i), &limit, limit.algorithm == LIMIT_CALENDAR ? &window : NULL, T0_US,
                                 i % 7 ? 1 + i % 900 : 1000 };
        struct cells_taken taken;
        assert_true(cells_take(table, &ask, &taken));
    }
}

/* Each key has one cell, where a look and a scan find it, with the state that it had. */
static void same_counts(struct cells *old, struct cells *now, uint64_t keys)
{
    for (uint64_t i = 0; i < keys; i++) {
        struct limit_state was = cells_read(old, key_of(i)), is = cells_read(now, key_of(i));
        if (was.data != is.data || was.time != is.time)
            fail_msg("key %llu has another state", (unsigned long long)i);
        struct candidates p = candidates_of(now, key_of(i));
        unsigned cells = 0;
        for (unsigned c = 0; c < CANDIDATES; c++)
            cells += head_is_of(candidate(&p, c)->head, key_of(i));
        if (cells != 1)
            fail_msg("key %llu has %u cells", (unsigned long long)i, cells);
    }
}

static void test_any_size(void **unused)
{
    (void)unused;
    struct cells *old = open_table("old", BUCKETS);
    fill_table(old, KEYS);
    static const double factors[] = { 0.5, 0.7, 1.01, 2, 3.3 };
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        struct cells_resized done;
        assert_int_equal(remake(old, "new", (uint64_t)(BUCKETS * factors[i]), false, false, &done), 0);
        struct cells *now = open_table("new", 1);
        assert_int_equal(now->bucket_count, (uint64_t)(BUCKETS * factors[i]));
        assert_int_equal(done.kept, KEYS);
        assert_int_equal(done.lost, 0);
        same_counts(old, now, KEYS);
        assert_false(cells_copied(now));
        assert_true(cells_identity(now) == cells_identity(old));
        cells_close(now);
    }
    cells_close(old);
}

/* In a small table a cell may belong to dozens of keys. Some counts may have no place, but none is found twice. */
static void test_small_tables(void **unused)
{
    (void)unused;
    static const uint64_t sizes[] = { 2, 3, 16, 84, 500, 2000 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t keys = sizes[i] * 6;
        unlink("old");
        struct cells *old = open_table("old", sizes[i]);
        fill_table(old, keys);
        for (uint64_t to = 2; to <= 4000; to = to * 5 / 2) {
            struct cells_resized done;
            assert_int_equal(remake(old, "new", to, false, true, &done), 0);
            assert_int_equal(done.kept + done.lost, keys);
            struct cells *now = open_table("new", 1);
            unsigned found = 0;
            for (uint64_t k = 0; k < keys; k++) {
                struct candidates p = candidates_of(now, key_of(k));
                unsigned cells = 0;
                for (unsigned c = 0; c < CANDIDATES; c++)
                    cells += head_is_of(candidate(&p, c)->head, key_of(k));
                assert_true(cells <= 1);
                found += cells;
            }
            assert_int_equal(found, done.kept);
            cells_close(now);
        }
        cells_close(old);
    }
}

static void test_holds(void **unused)
{
    (void)unused;
    struct cells *old = open_table("old", BUCKETS);
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 1000, HOUR_US), slots = limit_of(LIMIT_CONCURRENT, 10, HOUR_US);
    cells_disown(old);
    for (uint64_t key = 0; key < 50; key++)
        for (uint32_t id = 1; id <= 1 + key % 9; id++) {
            struct cells_ask ask = { key_of(key), key % 2 ? &slots : &limit, NULL, T0_US, 1 };
            struct cells_terms terms = { .id = id, .ttl_ms = 60000, .tag = key };
            struct cells_taken taken;
            assert_true(cells_hold(old, &ask, NULL, &terms, &taken) && !terms.kept);
        }
    struct cells_resized done;
    assert_int_equal(remake(old, "new", BUCKETS * 3 + 1, false, false, &done), 0);
    assert_int_equal(done.kept, 50);
    struct cells *now = open_table("new", 1);
    for (uint64_t key = 0; key < 50; key++) {
        const struct limit *l = key % 2 ? &slots : &limit;
        struct cells_held held = cells_holds(now, key_of(key), l, T0_US);
        assert_int_equal(held.holds, 1 + key % 9);
        assert_int_equal(held.tag, key);
        struct cells_held over = cells_holds(now, key_of(key), l, T0_US + 61 * US_PER_S);
        assert_int_equal(over.holds, 0);
    }
    cells_close(now);
    cells_close(old);
}

static void test_too_small(void **unused)
{
    (void)unused;
    struct cells *old = open_table("old", 1024);
    fill_table(old, 8000);
    struct cells_resized done;
    assert_int_equal(remake(old, "new", 256, false, false, &done), WEIR_E_CELLS);
    assert_true(done.lost > 8000 - 256 * 16 - 1 && done.lost_full == 0);
    assert_int_equal(access("new", F_OK), -1);
    assert_int_equal(remake(old, "new", 256, false, true, &done), 0);
    struct cells *now = open_table("new", 1);
    for (uint64_t i = 0; i < 8000; i += 7) /* those at their limit are there */
        assert_true(cells_read(now, key_of(i)).data == cells_read(old, key_of(i)).data);
    cells_close(now);
    cells_close(old);
}

static void test_decayed_cells_go(void **unused)
{
    (void)unused;
    struct cells *old = open_table("old", 64);
    struct limit limit = limit_of(LIMIT_FIXED_WINDOW, 10, US_PER_S);
    take(old, key_of(1), &limit, T0_US - HOUR_US, 3);
    take(old, key_of(2), &limit, T0_US, 3);
    struct cells_resized done;
    assert_int_equal(remake(old, "new", 64, false, false, &done), 0);
    assert_int_equal(done.kept, 1);
    cells_close(old);
}

static void test_a_copy_is_another_host(void **unused)
{
    (void)unused;
    struct cells *old = open_table("old", BUCKETS);
    fill_table(old, 1000);
    struct cells_resized done;
    struct stat st;
    assert_int_equal(chmod("old", 0640), 0);
    assert_int_equal(remake(old, "copy", BUCKETS, true, false, &done), 0);
    assert_true(stat("copy", &st) == 0 && (st.st_mode & 0777) == 0640);
    struct cells *copy = open_table("copy", 1);
    same_counts(old, copy, 1000);
    assert_true(cells_identity(copy) != cells_identity(old));
    assert_false(cells_copied(copy)); /* it has its identity already */
    cells_close(copy);
    cells_close(old);
}

/* ---- a copy of a table that is in use ---- */

enum { COPIES = 8, HELD_KEYS = 10, USED_KEYS = 4000 };

struct user {
    struct cells *table;
    struct limit limit;
    bool holds;
    bool began, stop; /* atomic */
};

/* Uses up what is left of each key, one after another; or takes hold after hold of a few. */
static void *use_table(void *data)
{
    struct user *u = data;
    struct cells_taken taken;
    for (uint32_t i = 0; !__atomic_load_n(&u->stop, __ATOMIC_ACQUIRE); i++) {
        struct cells_ask ask = { key_of(i % (u->holds ? HELD_KEYS : USED_KEYS)), &u->limit, NULL, T0_US, 1 };
        struct cells_terms terms = { .id = i + 1, .ttl_ms = 60000 };
        if (u->holds)
            cells_hold(u->table, &ask, NULL, &terms, &taken);
        else
            cells_take(u->table, &ask, &taken);
        __atomic_store_n(&u->began, true, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Returns how many of the keys have lost what was counted before the copy began. */
static unsigned copy_in_use(bool holds, uint64_t keys, uint64_t used)
{
    struct user user = { .table = open_table("old", BUCKETS), .holds = holds };
    struct cells_resized done;
    unsigned lost = 0;
    pthread_t thread;
    user.limit = limit_of(LIMIT_FIXED_WINDOW, holds ? 1u << 30 : used + 1, HOUR_US);
    for (uint64_t key = 0; key < keys; key++)
        take(user.table, key_of(key), &user.limit, T0_US, used);
    assert_int_equal(pthread_create(&thread, NULL, use_table, &user), 0);
    while (!__atomic_load_n(&user.began, __ATOMIC_ACQUIRE))
        ;
    assert_int_equal(remake(user.table, "copy", BUCKETS, true, true, &done), 0);
    __atomic_store_n(&user.stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    struct cells *copy = open_table("copy", 1);
    for (uint64_t key = 0; key < keys; key++) {
        struct cells_ask ask = { key_of(key), &user.limit, NULL, T0_US, 0 };
        struct cells_look look;
        cells_look(copy, &ask, &look);
        lost += limit_remaining(&user.limit, NULL, look.state, T0_US) > user.limit.max - used;
    }
    cells_close(copy);
    cells_close(user.table);
    remove_files(NULL);
    return lost;
}

static void test_counts_that_change_are_copied(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < COPIES; i++) {
        assert_int_equal(copy_in_use(false, USED_KEYS, 900), 0);
        assert_int_equal(copy_in_use(true, HELD_KEYS, 900), 0);
    }
}

static void test_survey(void **unused)
{
    (void)unused;
    struct cells *old = open_table("old", 1024);
    struct cells_facts facts;
    fill_table(old, 700);
    cells_survey(old, T0_US, true, &facts);
    assert_int_equal(facts.live, 700);
    assert_int_equal(facts.full, 100);
    assert_int_equal(facts.torn + facts.lost + facts.misplaced, 0);
    unsigned torn = 0;
    for (uint64_t i = 0; i < 1024 * BUCKET_CELLS && torn < 5; i++)
        if (cell_is_live(old->cell[i].state)) {
            old->cell[i].head ^= 1 << TAG_BITS;
            torn++;
        }
    cells_survey(old, T0_US, true, &facts);
    assert_int_equal(facts.live, 695);
    assert_int_equal(facts.torn, 5);
    cells_close(old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_any_size, remove_files),
        cmocka_unit_test_teardown(test_small_tables, remove_files),
        cmocka_unit_test_teardown(test_holds, remove_files),
        cmocka_unit_test_teardown(test_too_small, remove_files),
        cmocka_unit_test_teardown(test_decayed_cells_go, remove_files),
        cmocka_unit_test_teardown(test_a_copy_is_another_host, remove_files),
        cmocka_unit_test_teardown(test_counts_that_change_are_copied, remove_files),
        cmocka_unit_test_teardown(test_survey, remove_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
