/* Processes that share a file of cells are killed at random while they charge. What was admitted must be in the cells
 * afterwards, and no more than one charge for each that was killed may be there beside it.
 *
 *   cells_kill [--rounds N] [--seed N]     rounds of some 100 kills each (default: 8) */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef JITTER
#include "jitter.h"
#endif

#include "support.h"

enum {
    PROCESSES = 4,
    KEYS = 180000, /* in one round; each is made, and charged a few times */
    HOT_KEYS = 4,  /* charged all the time */
    MAX = 3,
    CELLS = 1 << 18,
    ROUND_MS = 1000 / (SLOWER > 1 ? 2 : 1),
};

/* What the processes have been told, written after they were told it. */
struct log {
    uint32_t walked; /* the key that they are at */
    uint32_t stop;
    uint64_t hot[HOT_KEYS];
    uint8_t admitted[KEYS];
};

struct round {
    const char *path;
    uint64_t number;
    int64_t now_us;
    struct limit limit, hot_limit;
    struct log *log;
};

static uint64_t round_key(const struct round *r, uint32_t key)
{
    return key_of(r->number << 32 | key);
}

static uint64_t hot_key(const struct round *r, uint32_t key)
{
    return round_key(r, KEYS + key);
}

/* ---- one process ---- */

static void charge_new(const struct round *r, struct cells *table, struct random *random)
{
    uint32_t at = __atomic_load_n(&r->log->walked, __ATOMIC_RELAXED);
    /* Not all at the very same key all the time: some come a little late. */
    at -= random_one_in(random, 4) && at > 8 ? (uint32_t)random_in(random, 0, 8) : 0;
    if (at >= KEYS)
        return;
    if (take(table, round_key(r, at), &r->limit, r->now_us, 1))
        __atomic_fetch_add(&r->log->admitted[at], 1, __ATOMIC_SEQ_CST);
    if (random_one_in(random, 6))
        __atomic_compare_exchange_n(&r->log->walked, &at, at + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void charge_hot(const struct round *r, struct cells *table, struct random *random)
{
    uint32_t key = (uint32_t)random_in(random, 0, HOT_KEYS - 1);
    if (take(table, hot_key(r, key), &r->hot_limit, r->now_us, 1))
        __atomic_fetch_add(&r->log->hot[key], 1, __ATOMIC_SEQ_CST);
}

static _Noreturn void be_process(const struct round *r, uint64_t seed)
{
    struct cells *table;
    struct weir_error error;
    struct random random = { seed };
    /* Never left behind, and never in the way of the one who kills. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || nice(10) == -1)
        _exit(1);
    if (cells_open(&table, r->path, (struct cells_size){ 0 }, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        _exit(1);
    }
    while (!__atomic_load_n(&r->log->stop, __ATOMIC_RELAXED)) {
        charge_new(r, table, &random);
        if (random_one_in(&random, 8))
            charge_hot(r, table, &random);
    }
    _exit(0);
}

static pid_t start_process(const struct round *r, uint64_t seed)
{
    pid_t pid = fork();
    if (pid == 0)
        be_process(r, seed);
    if (pid < 0)
        fail_msg("fork: %s", strerror(errno));
    return pid;
}

/* ---- one round ---- */

static int64_t steady_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Kills one after another and puts a new one in its place. How many. */
static unsigned kill_at_random(const struct round *r, struct random *random)
{
    pid_t pids[PROCESSES];
    unsigned kills = 0;
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = start_process(r, random_u64(random));
    int64_t end = steady_ms() + ROUND_MS;
    for (; steady_ms() < end && __atomic_load_n(&r->log->walked, __ATOMIC_RELAXED) < KEYS; kills++) {
        struct timespec wait = { 0, random_in(random, 0, 1000000) };
        nanosleep(&wait, NULL);
        unsigned i = (unsigned)random_in(random, 0, PROCESSES - 1);
        int status;
        kill(pids[i], SIGKILL);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        pids[i] = start_process(r, random_u64(random));
    }
    __atomic_store_n(&r->log->stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return kills;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* No key has two cells. How many were left in the middle of being made. */
static uint64_t check_cells(const struct cells *table)
{
    uint64_t count = table->bucket_count * BUCKET_CELLS, n = 0, reserved = 0;
    uint64_t *fingerprints = calloc(count, sizeof *fingerprints);
    assert_non_null(fingerprints);
    for (uint64_t i = 0; i < count; i++) {
        const struct cell *c = &table->cell[i];
        reserved += state_tag(c->state) == CELL_RESERVED;
        if (state_tag(c->state) == CELL_LIVE && head_gen(c->head) == state_gen(c->state))
            fingerprints[n++] = c->head >> MARK_BITS;
    }
    qsort(fingerprints, n, sizeof *fingerprints, compare_u64);
    for (uint64_t i = 1; i < n; i++)
        assert_int_not_equal(fingerprints[i - 1], fingerprints[i]);
    free(fingerprints);
    return reserved;
}

/* How many charges are there of which nobody was told. */
static uint64_t check_counts(const struct round *r, struct cells *table)
{
    uint64_t untold = 0;
    for (uint32_t k = 0; k < KEYS; k++) {
        uint32_t count = count_of(state_in(table, round_key(r, k), &r->limit, r->now_us)), told = r->log->admitted[k];
        if (told > count || count > MAX)
            fail_msg("key %u: %u admitted, %u in its cell, %d allowed", k, told, count, MAX);
        untold += count - told;
    }
    for (uint32_t k = 0; k < HOT_KEYS; k++) {
        uint64_t count = count_of(state_in(table, hot_key(r, k), &r->hot_limit, r->now_us)), told = r->log->hot[k];
        if (told > count)
            fail_msg("hot key %u: %llu admitted, %llu in its cell", k, (unsigned long long)told, (unsigned long long)count);
        untold += count - told;
    }
    return untold;
}

static unsigned run_round(struct round *r, struct cells *table, struct random *random)
{
    memset(r->log, 0, sizeof *r->log);
    unsigned kills = kill_at_random(r, random);
    uint64_t untold = check_counts(r, table);
    if (untold > kills)
        fail_msg("%llu charges of which nobody was told, but only %u kills", (unsigned long long)untold, kills);
    uint64_t reserved = check_cells(table);
    assert_int_equal(cells_stats(table).drops, 0);
    print_message("# round %llu: %u kills, %u keys; %llu charges without an answer, %llu cells half made\n",
                  (unsigned long long)r->number, kills, r->log->walked, (unsigned long long)untold,
                  (unsigned long long)reserved);
    return kills;
}

static unsigned rounds = 8;
static uint64_t seed;
static char path[] = "cells-kill-XXXXXX";

static int make_path(void **unused)
{
    (void)unused;
    const char *folder = getenv("TMPDIR");
    int fd = chdir(folder ? folder : "/tmp") < 0 ? -1 : mkstemp(path);
    return fd < 0 ? -1 : close(fd) | unlink(path);
}

static int remove_path(void **unused)
{
    (void)unused;
    return unlink(path);
}

static void test_kill(void **unused)
{
    (void)unused;
    struct cells *table;
    struct weir_error error;
    if (cells_open(&table, path, (struct cells_size){ .bytes = (uint64_t)CELLS * CELL_BYTES }, &error) < 0)
        fail_msg("%s", error.text);
    struct round r = { .path = path, .limit = limit_of(LIMIT_FIXED_WINDOW, MAX, 60 * US_PER_S) };
    r.hot_limit = limit_of(LIMIT_FIXED_WINDOW, UINT32_MAX, 60 * US_PER_S);
    r.log = mmap(NULL, sizeof *r.log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(r.log, MAP_FAILED);
    struct random random = { seed };
    unsigned kills = 0;
    for (r.number = 0; r.number < rounds; r.number++) {
        /* All cells of the round before have decayed, and what its dead have reserved is old. */
        r.now_us = T0_US + (int64_t)r.number * 3600 * US_PER_S;
        kills += run_round(&r, table, &random);
    }
    print_message("# %u kills\n", kills);
    munmap(r.log, sizeof *r.log);
    cells_close(table);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "rounds", required_argument, NULL, 'r' },
                                             { "seed", required_argument, NULL, 's' },
                                             { 0 } };
    seed = random_seed();
    for (int c; (c = getopt_long(argc, argv, "r:s:", options, NULL)) != -1;) {
        if (c == 'r')
            rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 's')
            seed = strtoull(optarg, NULL, 0);
        else
            return 2;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kill) };
    return cmocka_run_group_tests_name("cells/kill", tests, make_path, remove_path);
}
