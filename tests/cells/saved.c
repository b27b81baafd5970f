/* Saving a table and making it again: what is read back was in the table, whoever counts meanwhile, dies, or damages the
 * file. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cells/saved_layout.h"
#include "support.h"

enum { KEYS = 2000, CELLS = 4096 };

static char folder[200];
static const char *const names[] = { "live", "saved", "saved.new", "again", "copy" };

static int make_folder(void **unused)
{
    (void)unused;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cells-saved-XXXXXX", tmp ? tmp : "/tmp");
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

/* ---- support ---- */

static struct cells *must_open(const char *path)
{
    struct cells *table = NULL;
    struct weir_error error;
    if (cells_open(&table, path, (struct cells_size){ .bytes = CELLS * CELL_BYTES }, &error) < 0)
        fail_msg("%s", error.text);
    return table;
}

struct saving {
    struct cells *table;
    struct cells_saver *saver;
    int fd;
};

static struct saving begin(const char *path)
{
    struct saving s = { must_open(path), NULL, open(path, O_RDWR | O_CLOEXEC) };
    assert_true(s.fd >= 0);
    assert_int_equal(cells_saver_new(&s.saver, s.table, s.fd, "saved", NULL), 0);
    return s;
}

static void end(struct saving *s)
{
    cells_saver_free(s->saver);
    cells_close(s->table);
    close(s->fd);
}

/* A pass as the service makes it. */
static int pass(struct saving *s)
{
    int r;
    do
        r = cells_save_some(s->saver, T0_US, NULL);
    while (r == CELLS_SAVE_MORE);
    return r;
}

static struct cells_restored restore(struct cells **ret)
{
    struct cells_restored restored;
    struct weir_error error;
    unlink("again");
    if (cells_restore("saved", "again", T0_US, &restored, &error) < 0)
        fail_msg("%s", error.text);
    *ret = must_open("again");
    return restored;
}

static uint32_t used(struct cells *table, uint64_t key, const struct limit *limit)
{
    return count_of(state_in(table, key_of(key), limit, T0_US));
}

static struct limit plenty(void)
{
    return limit_of(LIMIT_FIXED_WINDOW, UINT32_MAX, 3600 * US_PER_S);
}

static void flip(const char *path, off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* ---- what is saved ---- */

static void test_comes_back(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    for (unsigned key = 0; key < KEYS; key++)
        assert_true(take(s.table, key_of(key), &limit, T0_US, 1 + key));
    assert_int_equal(pass(&s), CELLS_SAVED);
    struct cells *again;
    struct cells_restored restored = restore(&again);
    assert_int_equal(restored.damaged + restored.unended + restored.dropped, 0);
    assert_int_equal(restored.saved_us, T0_US);
    assert_memory_equal(cells_hash_key(again), cells_hash_key(s.table), sizeof(struct hash_key));
    assert_int_equal(cells_count_live(again, T0_US), KEYS);
    assert_int_equal(cells_stats(again).cells, cells_stats(s.table).cells);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(used(again, key, &limit), 1 + key);
    cells_close(again);
    end(&s);
}

/* Only what has changed is written, and nothing where nothing has. */
static void test_writes_changes(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    for (unsigned key = 0; key < KEYS; key++)
        take(s.table, key_of(key), &limit, T0_US, 1);
    assert_int_equal(pass(&s), CELLS_SAVED);
    uint64_t whole = cells_saver_bytes(s.saver);
    assert_true(whole > (uint64_t)KEYS * CELL_BYTES);
    assert_int_equal(pass(&s), CELLS_SAVED);
    assert_int_equal(cells_saver_bytes(s.saver), whole);
    take(s.table, key_of(7), &limit, T0_US, 10);
    assert_int_equal(pass(&s), CELLS_SAVED);
    assert_int_equal(cells_saver_bytes(s.saver), whole + SAVED_ALIGN);
    struct cells *again;
    restore(&again);
    assert_int_equal(used(again, 7, &limit), 11);
    assert_int_equal(used(again, 8, &limit), 1);
    cells_close(again);
    end(&s);
}

/* A log that grows is replaced by a new file, again and again. */
static void test_new_files(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    off_t most = 0;
    unsigned shorter = 0;
    for (unsigned round = 1; round <= 250; round++) {
        off_t before = round > 1 ? size_of("saved") : 0;
        for (unsigned key = 0; key < KEYS; key++)
            take(s.table, key_of(key), &limit, T0_US, 1);
        assert_int_equal(pass(&s), CELLS_SAVED);
        most = size_of("saved") > most ? size_of("saved") : most;
        shorter += size_of("saved") < before;
    }
    assert_true(shorter > 0 && most < 20 << 20);
    struct cells *again;
    restore(&again);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(used(again, key, &limit), 250);
    cells_close(again);
    assert_int_equal(access("saved.new", F_OK), -1);
    end(&s);
}

/* The end saves what was counted after the pass under way came past it. */
static void test_end(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    for (unsigned key = 0; key < KEYS; key++)
        take(s.table, key_of(key), &limit, T0_US, 1);
    assert_int_equal(cells_save_all(s.saver, T0_US, NULL), CELLS_SAVED);
    for (unsigned key = 0; key < KEYS; key++)
        take(s.table, key_of(key), &limit, T0_US, 1);
    assert_int_equal(cells_save_all(s.saver, T0_US, NULL), CELLS_SAVED);
    struct cells *again;
    restore(&again);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(used(again, key, &limit), 2);
    cells_close(again);
    end(&s);
}

/* ---- holds ---- */

/* Returns the last of them. */
static struct cells_charged hold_some(struct cells *table, const struct limit *limit, unsigned key, unsigned count)
{
    struct cells_charged charged = { 0 };
    for (unsigned i = 1; i <= count; i++) {
        struct cells_ask ask = { key_of(key), limit, NULL, T0_US, 2 };
        struct cells_terms terms = { .id = i, .ttl_ms = 60000 + i, .tag = key };
        struct cells_taken taken;
        assert_true(cells_hold(table, &ask, NULL, &terms, &taken) && !terms.kept);
        charged = (struct cells_charged){ .key = ask.key,
                                          .origin = terms.origin,
                                          .amount = ask.cost,
                                          .until_us = T0_US + terms.ttl_ms * US_PER_MS,
                                          .id = i,
                                          .gen = cells_generation(&taken),
                                          .alone = !terms.joinable };
    }
    return charged;
}

static void test_holds(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    hold_some(s.table, &limit, 1, 1);
    hold_some(s.table, &limit, 2, 20);
    assert_int_equal(pass(&s), CELLS_SAVED);
    struct cells_charged charged = hold_some(s.table, &limit, 3, 3);
    take(s.table, key_of(3), &limit, T0_US, 5);
    assert_int_equal(pass(&s), CELLS_SAVED);
    struct cells *again;
    assert_int_equal(restore(&again).dropped, 0);
    static const unsigned holds[] = { 0, 1, 20, 3 };
    for (unsigned key = 1; key <= 3; key++) {
        struct cells_held held = cells_holds(again, key_of(key), &limit, T0_US);
        assert_int_equal(held.holds, holds[key]);
        assert_int_equal(held.amount, 2 * holds[key]);
        assert_int_equal(held.tag, key);
        assert_int_equal(used(again, key, &limit), 2 * holds[key] + (key == 3 ? 5 : 0));
    }
    /* Settled there as here; the others end with their time. */
    assert_true(cells_settle(again, &limit, NULL, &charged, 0, T0_US));
    assert_false(cells_settle(again, &limit, NULL, &charged, 0, T0_US));
    assert_int_equal(used(again, 3, &limit), 9);
    int64_t later_us = T0_US + 70 * US_PER_S;
    assert_int_equal(count_of(state_in(again, key_of(3), &limit, later_us)), 5);
    cells_close(again);
    end(&s);
}

/* Blocks of earlier records are given back: no number of saves uses up those of the table. */
static void test_blocks_do_not_leak(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    for (unsigned round = 1; round <= 60; round++) {
        for (unsigned key = 0; key < 5; key++) {
            struct cells_ask ask = { key_of(key), &limit, NULL, T0_US, 1 };
            struct cells_terms terms = { .id = round, .ttl_ms = 60000 };
            struct cells_taken taken;
            cells_hold(s.table, &ask, NULL, &terms, &taken);
        }
        assert_int_equal(pass(&s), CELLS_SAVED);
    }
    struct cells *again;
    assert_int_equal(restore(&again).dropped, 0);
    for (unsigned key = 0; key < 5; key++)
        assert_int_equal(cells_holds(again, key_of(key), &limit, T0_US).amount, 60);
    cells_close(again);
    end(&s);
}

/* ---- identity ---- */

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ssize_t n;
    while ((n = read(in, bytes, sizeof bytes)) > 0)
        assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in);
    close(out);
}

static void test_identity(void **unused)
{
    (void)unused;
    struct saving s = begin("live");
    s.table->header->origin.low |= 12345;
    assert_int_equal(pass(&s), CELLS_SAVED);
    struct cells *again;
    restore(&again);
    assert_false(cells_copied(again));
    assert_int_equal(cells_identity(again), 12345);
    cells_close(again);
    assert_int_equal(rename("saved", "copy"), 0);
    copy_file("copy", "saved");
    restore(&again);
    assert_true(cells_copied(again));
    assert_int_not_equal(cells_identity(again), 12345);
    cells_close(again);
    again = must_open("again");
    assert_false(cells_copied(again));
    cells_close(again);
    end(&s);
}

static void test_mode(void **unused)
{
    (void)unused;
    struct stat st;
    struct saving s = begin("live");
    assert_int_equal(chmod("live", 0640), 0);
    assert_int_equal(pass(&s), CELLS_SAVED);
    assert_int_equal(stat("saved", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    struct cells *again;
    restore(&again);
    assert_int_equal(stat("again", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    cells_close(again);
    end(&s);
}

/* ---- damage ---- */

/* Each key is charged once in each of three saves. */
static off_t save_thrice(const struct limit *limit)
{
    struct saving s = begin("live");
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned key = 0; key < KEYS; key++)
            assert_true(take(s.table, key_of(key), limit, T0_US, 1));
        hold_some(s.table, limit, KEYS + round, 1 + 5 * round);
        assert_int_equal(pass(&s), CELLS_SAVED);
    }
    end(&s);
    return size_of("saved");
}

static void check_values(struct cells *table, const struct limit *limit, unsigned least)
{
    for (unsigned key = 0; key < KEYS; key++)
        assert_in_range(used(table, key, limit), least, 3);
}

/* One byte anywhere: the file is refused, or the record that has it is left out. */
static void test_flipped_bytes(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    off_t bytes = save_thrice(&limit);
    struct random random = { random_seed() };
    print_message("# seed %llu, file of %lld bytes\n", (unsigned long long)random_seed(), (long long)bytes);
    for (unsigned round = 0; round < 300 / SLOWER + 40; round++) {
        off_t at = round < 40 ? (off_t)round * 4 : (off_t)(random_u64(&random) % (uint64_t)bytes);
        struct cells_restored restored;
        struct weir_error error;
        flip("saved", at);
        unlink("again");
        int r = cells_restore("saved", "again", T0_US, &restored, &error);
        if (at < (off_t)offsetof(struct saved_header, checksum) + 8) {
            assert_int_equal(r, WEIR_E_CELLS);
            assert_int_equal(strncmp(error.text, "saved: ", 7), 0);
            assert_int_equal(access("again", F_OK), -1);
        } else {
            assert_int_equal(r, 0);
            struct cells *again = must_open("again");
            check_values(again, &limit, 0);
            cells_close(again);
        }
        flip("saved", at);
    }
}

static void test_cut_files(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    off_t bytes = save_thrice(&limit);
    struct cells *again;
    unsigned least = 3;
    for (off_t length = bytes; length > 0; length -= length > 3 * SAVED_ALIGN ? bytes / 40 + 1 : 700) {
        struct cells_restored restored;
        struct weir_error error;
        assert_int_equal(truncate("saved", length), 0);
        unlink("again");
        int r = cells_restore("saved", "again", T0_US, &restored, &error);
        assert_int_equal(r, length < SAVED_ALIGN ? WEIR_E_CELLS : 0);
        if (r < 0)
            continue;
        assert_int_equal(restored.damaged, 0);
        again = must_open("again");
        for (unsigned key = 0; key < KEYS; key++)
            least = used(again, key, &limit) < least ? used(again, key, &limit) : least;
        check_values(again, &limit, least);
        cells_close(again);
    }
    assert_int_equal(least, 0);
}

static void refuse(const char *text)
{
    struct cells_restored restored;
    struct weir_error error = { .code = WEIR_OK };
    assert_true(cells_restore("saved", "again", T0_US, &restored, &error) < 0);
    if (!strstr(error.text, text))
        fail_msg("'%s' instead of '%s'", error.text, text);
    assert_int_equal(access("again", F_OK), -1);
}

static void edit_header(void (*edit)(struct saved_header *))
{
    struct saved_header header;
    int fd = open("saved", O_RDWR);
    assert_int_equal(pread(fd, &header, sizeof header, 0), sizeof header);
    edit(&header);
    header.checksum = saved_header_sum(&header);
    assert_int_equal(pwrite(fd, &header, sizeof header, 0), sizeof header);
    close(fd);
}

static void other_layout(struct saved_header *h)
{
    h->cells_version += 2;
}

static void other_size(struct saved_header *h)
{
    h->cells_version = CELLS_VERSION;
    h->bucket_count = UINT64_C(1) << 60;
}

static void smaller(struct saved_header *h)
{
    h->bucket_count = 2;
}

static void test_refused(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    refuse("No such file");
    assert_int_equal(mkdir("saved", 0700), 0);
    refuse("not a regular file");
    assert_int_equal(rmdir("saved"), 0);
    save_thrice(&limit);
    edit_header(other_layout);
    refuse("layout");
    edit_header(other_size);
    refuse("damaged");
    /* Lines of a larger table are not written outside of a smaller one. */
    edit_header(smaller);
    struct cells *again;
    assert_true(restore(&again).damaged > 0);
    cells_close(again);
    unlink("again");
    copy_file("live", "copy");
    assert_int_equal(rename("copy", "saved"), 0);
    refuse("not a saved table");
}

/* The disk is full: the old file stays, and a later pass writes a whole new one. */
static void test_no_room(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    take(s.table, key_of(1), &limit, T0_US, 1);
    assert_int_equal(pass(&s), CELLS_SAVED);
    struct rlimit before, small = { .rlim_cur = (rlim_t)size_of("saved") };
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (unsigned key = 0; key < KEYS; key++)
        take(s.table, key_of(key), &limit, T0_US, 1);
    int first = pass(&s), second = pass(&s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(first, WEIR_E_SYSTEM);
    assert_int_equal(second, WEIR_E_SYSTEM);
    assert_int_equal(access("saved.new", F_OK), -1);
    struct cells *again;
    restore(&again);
    assert_int_equal(used(again, 1, &limit), 1);
    cells_close(again);
    assert_int_equal(pass(&s), CELLS_SAVED);
    restore(&again);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(used(again, key, &limit), key == 1 ? 2 : 1);
    cells_close(again);
    end(&s);
}

/* The counts survive if somebody removes, replaces or truncates the saved file. */
static void test_file_is_touched(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    struct cells *again;
    take(s.table, key_of(1), &limit, T0_US, 1);
    assert_int_equal(pass(&s), CELLS_SAVED);
    for (unsigned i = 0; i < 6; i++) {
        if (i % 3 == 0)
            assert_int_equal(unlink("saved"), 0);
        else if (i % 3 == 1)
            assert_int_equal(truncate("saved", SAVED_ALIGN + 100 * i), 0);
        else
            assert_int_equal(rename("again", "saved"), 0);
        if (i > 2)
            take(s.table, key_of(2), &limit, T0_US, 1);
        assert_int_equal(pass(&s), CELLS_SAVED);
        struct cells_restored restored = restore(&again);
        assert_int_equal(restored.damaged + restored.unended + restored.dropped, 0);
        assert_int_equal(used(again, 1, &limit), 1);
        assert_int_equal(used(again, 2, &limit), i > 2 ? i - 2 : 0);
        cells_close(again);
    }
    assert_int_equal(unlink("saved"), 0);
    assert_int_equal(cells_save_all(s.saver, T0_US, NULL), 0);
    restore(&again);
    assert_int_equal(used(again, 1, &limit), 1);
    cells_close(again);
    end(&s);
}

/* Two who save to one file would mix their tables: the second is told, until the first ends. */
static void test_one_saves(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live"), other = begin("copy");
    take(s.table, key_of(1), &limit, T0_US, 1);
    take(other.table, key_of(1), &limit, T0_US, 2);
    assert_int_equal(cells_save_some(s.saver, T0_US, NULL), CELLS_SAVED);
    assert_int_equal(cells_save_some(other.saver, T0_US, NULL), WEIR_E_SYSTEM);
    assert_int_equal(cells_save_some(s.saver, T0_US, NULL), CELLS_SAVED);
    struct cells *again;
    restore(&again);
    assert_int_equal(used(again, 1, &limit), 1);
    cells_close(again);
    end(&s);
    assert_int_equal(cells_save_some(other.saver, T0_US, NULL), CELLS_SAVED);
    restore(&again);
    assert_int_equal(used(again, 1, &limit), 2);
    cells_close(again);
    end(&other);
}

/* ---- while others count ---- */

enum { RISING = 64, KILLS = 25 };

/* What the processes of a test share. */
struct board {
    uint64_t before[RISING]; /* told before a charge of a key … */
    uint64_t after[RISING];  /* … and after it */
    uint64_t saved[RISING];  /* `after` of each key when the last completed pass began */
    uint64_t passes;
};

static void rise(struct cells *table, struct board *board, unsigned key, const struct limit *limit)
{
    board->before[key]++;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!take(table, key_of(key), limit, T0_US, 1))
        abort();
    __atomic_store_n(&board->after[key], board->before[key], __ATOMIC_SEQ_CST);
}

/* Saves and counts until it is killed. */
static void save_and_count(struct board *board, uint64_t seed)
{
    struct limit limit = plenty();
    struct random random = { seed };
    struct saving s = begin("live");
    for (;;) {
        uint64_t seen[RISING];
        for (unsigned i = 0; i < RISING; i++)
            seen[i] = board->after[i];
        int r;
        do {
            for (uint64_t charges = random_u64(&random) % 200; charges > 0; charges--)
                rise(s.table, board, random_u64(&random) % RISING, &limit);
            r = cells_save_some(s.saver, T0_US, NULL);
        } while (r == CELLS_SAVE_MORE);
        if (r < 0)
            abort();
        /* Killed in between, some keys have a later promise than others: each is true. */
        for (unsigned i = 0; i < RISING; i++)
            __atomic_store_n(&board->saved[i], seen[i], __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&board->passes, 1, __ATOMIC_SEQ_CST);
    }
}

/* Killed at any moment: what is read back is no older than the last completed pass, and no newer than what was charged. */
static void test_killed(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct random random = { random_seed() };
    print_message("# seed %llu\n", (unsigned long long)random_seed());
    for (unsigned round = 0; round < KILLS; round++) {
        uint64_t passes = __atomic_load_n(&board->passes, __ATOMIC_SEQ_CST), more = 1 + random_u64(&random) % 4;
        pid_t child = fork();
        if (child == 0)
            save_and_count(board, random_u64(&random) + round);
        while (__atomic_load_n(&board->passes, __ATOMIC_SEQ_CST) < passes + more)
            usleep(100);
        usleep((useconds_t)(random_u64(&random) % 3000));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct cells *again;
        assert_int_equal(restore(&again).damaged, 0);
        for (unsigned key = 0; key < RISING; key++)
            assert_in_range(used(again, key, &limit), board->saved[key], board->before[key]);
        cells_close(again);
        /* The machine was rebooted: the table in memory is the one that was saved. */
        bool rebooted = round % 2;
        if (rebooted)
            assert_int_equal(rename("again", "live"), 0);
        /* A charge that was told of before the kill may not have been made. */
        struct cells *live = must_open("live");
        for (unsigned key = 0; key < RISING; key++) {
            board->before[key] = board->after[key] = used(live, key, &limit);
            board->saved[key] = rebooted ? board->before[key] : board->saved[key];
        }
        cells_close(live);
    }
    munmap(board, sizeof *board);
}

/* ---- threads ---- */

enum { THREADS = 2, PASSES = 40 };

struct counting {
    struct cells *table;
    unsigned first;
    bool stop;
};

/* A pair of keys in a round: both halves of a bucket's state have the same value, so that a torn one would show. */
static void *count(void *data)
{
    struct counting *c = data;
    struct random random = { random_seed() + c->first };
    struct limit limit = plenty(), slots = limit_of(LIMIT_FIXED_WINDOW, 1000000, 3600 * US_PER_S);
    uint32_t id = 1;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        uint64_t key = random_u64(&random) % 500;
        take(c->table, key_of(key), &limit, T0_US, 3);
        struct cells_ask ask = { key_of(1000 + c->first + key % 8), &slots, NULL, T0_US, 5 };
        struct cells_terms terms = { .id = id++, .ttl_ms = 3600000 };
        struct cells_taken taken;
        if (!cells_hold(c->table, &ask, NULL, &terms, &taken) || terms.kept)
            continue;
        struct cells_charged charged = { .key = ask.key,
                                         .origin = terms.origin,
                                         .amount = 5,
                                         .until_us = T0_US + 3600 * US_PER_S,
                                         .id = terms.id,
                                         .gen = cells_generation(&taken),
                                         .alone = !terms.joinable };
        cells_settle(c->table, &slots, NULL, &charged, 0, T0_US);
        if (random_u64(&random) % 1000 == 0)
            cells_forget(c->table, key_of(key));
    }
    return NULL;
}

/* Each value in the copy is one that its cell had: charges are threes, and holds are fives with their charge. */
static void check_copy(const struct limit *limit)
{
    struct cells *again;
    struct cells_restored restored = restore(&again);
    assert_int_equal(restored.damaged + restored.unended, 0);
    for (unsigned key = 0; key < 500; key++)
        assert_int_equal(used(again, key, limit) % 3, 0);
    for (unsigned key = 1000; key < 1000 + 8 * THREADS; key++) {
        struct cells_held held = cells_holds(again, key_of(key), limit, T0_US);
        assert_int_equal(held.amount % 5, 0);
        assert_int_equal(used(again, key, limit), held.amount);
    }
    cells_close(again);
}

static void test_threads(void **unused)
{
    (void)unused;
    struct limit limit = plenty();
    struct saving s = begin("live");
    pthread_t threads[THREADS];
    struct counting counting[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        counting[i] = (struct counting){ s.table, 8 * i, false };
        assert_int_equal(pthread_create(&threads[i], NULL, count, &counting[i]), 0);
    }
    for (unsigned i = 0; i < PASSES / (SLOWER > 4 ? 4 : 1); i++) {
        assert_int_equal(pass(&s), CELLS_SAVED);
        check_copy(&limit);
    }
    for (unsigned i = 0; i < THREADS; i++)
        __atomic_store_n(&counting[i].stop, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(cells_save_all(s.saver, T0_US, NULL), CELLS_SAVED);
    struct cells *again;
    restore(&again);
    for (unsigned key = 0; key < 500; key++)
        assert_int_equal(used(again, key, &limit), used(s.table, key, &limit));
    cells_close(again);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_comes_back, remove_files),
        cmocka_unit_test_teardown(test_writes_changes, remove_files),
        cmocka_unit_test_teardown(test_new_files, remove_files),
        cmocka_unit_test_teardown(test_end, remove_files),
        cmocka_unit_test_teardown(test_holds, remove_files),
        cmocka_unit_test_teardown(test_blocks_do_not_leak, remove_files),
        cmocka_unit_test_teardown(test_identity, remove_files),
        cmocka_unit_test_teardown(test_mode, remove_files),
        cmocka_unit_test_teardown(test_flipped_bytes, remove_files),
        cmocka_unit_test_teardown(test_cut_files, remove_files),
        cmocka_unit_test_teardown(test_refused, remove_files),
        cmocka_unit_test_teardown(test_no_room, remove_files),
        cmocka_unit_test_teardown(test_file_is_touched, remove_files),
        cmocka_unit_test_teardown(test_one_saves, remove_files),
        cmocka_unit_test_teardown(test_killed, remove_files),
        cmocka_unit_test_teardown(test_threads, remove_files),
    };
    return cmocka_run_group_tests_name("cells/saved", tests, make_folder, remove_folder);
}
