/* Processes that spend from one slice and ask through the first page, and are killed in the middle of it: a token is never
 * spent twice, and no place stays taken.
 *
 * slices_kill [--rounds N]: the first round is without kills, and exact. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "slices/asks.h"
#include "slices/slice.h"
#include "support.h"

enum { PROCESSES = 3, ROUND_MS = 300, PATIENCE_MS = 60000, COST = 2 };
#define KEY UINT64_C(0x123456789abcdef1)

struct log {
    uint64_t spent, asked;
    uint32_t stop;
};

static struct cells *table;
static struct log *log_;
static int64_t now_us, end_us;

static void ask_once(struct random *random)
{
    struct slice_ask ask = { .cell = (uint64_t)random_in(random, 1, 20), .need = 1, .slice = 5, .ttl_ms = 2000 };
    limit_init(&ask.limit, LIMIT_FIXED_WINDOW, 1000, 0, US_PER_S);
    ask.key_len = (uint16_t)snprintf(ask.key, sizeof ask.key, "{%d}:rule:key", (int)ask.cell);
    ask.field_len = (uint16_t)snprintf(ask.field, sizeof ask.field, "second.f");
    if (ask_post(table, &ask, clock_steady_us()))
        __atomic_fetch_add(&log_->asked, 1, __ATOMIC_SEQ_CST);
}

/* How many were there. */
static unsigned take_asks(void)
{
    struct slice_ask ask;
    unsigned found = 0;
    for (; ask_next(table, &ask, clock_steady_us()); found++) {
        char key[STORE_KEY_MAX];
        int len = snprintf(key, sizeof key, "{%d}:rule:key", (int)ask.cell);
        if (ask.key_len != len || memcmp(ask.key, key, (size_t)len) != 0)
            fail_msg("an ask for cell %d with the key %.*s", (int)ask.cell, ask.key_len, ask.key);
    }
    return found;
}

static _Noreturn void be_process(uint64_t seed)
{
    struct random random = { seed };
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || nice(10) == -1)
        _exit(1);
    while (!__atomic_load_n(&log_->stop, __ATOMIC_RELAXED)) {
        if (slice_spend(table, KEY, 100, 1000, now_us, COST, true).outcome == SLICE_TAKEN)
            __atomic_fetch_add(&log_->spent, COST, __ATOMIC_SEQ_CST);
        if (random_one_in(&random, 20))
            ask_once(&random);
        if (random_one_in(&random, 50)) /* some take asks, and die with them */
            take_asks();
    }
    _exit(0);
}

static pid_t start_process(uint64_t seed)
{
    pid_t pid = fork();
    if (pid == 0)
        be_process(seed);
    if (pid < 0)
        fail_msg("fork: %s", strerror(errno));
    return pid;
}

static void end_process(pid_t pid, bool killed)
{
    int status;
    if (killed)
        kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_round(bool kills, struct random *random)
{
    pid_t pids[PROCESSES];
    uint64_t put = 0, killed = 0, found = 0;
    memset(log_, 0, sizeof *log_);
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = start_process(random_u64(random));
    int64_t start = clock_steady_us(), until = start + ROUND_MS * US_PER_MS, at_most = start + PATIENCE_MS * US_PER_MS;
    /* Longer where they have hardly had a turn yet. */
    while (clock_steady_us() < until || (found == 0 && clock_steady_us() < at_most)) {
        struct timespec wait = { 0, random_in(random, 0, 500000) };
        nanosleep(&wait, NULL);
        put += 1000;
        slice_put(table, KEY, end_us, 1000, now_us, NULL);
        found += take_asks();
        if (!kills)
            continue;
        unsigned i = (unsigned)random_in(random, 0, PROCESSES - 1);
        end_process(pids[i], true);
        pids[i] = start_process(random_u64(random));
        killed++;
    }
    __atomic_store_n(&log_->stop, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < PROCESSES; i++)
        end_process(pids[i], false);
    uint64_t left = slice_collect(table, KEY, end_us, now_us);
    print_message("# %llu kills: %llu put, %llu spent, %llu left; %llu asked, %llu found here\n",
                  (unsigned long long)killed, (unsigned long long)put, (unsigned long long)log_->spent,
                  (unsigned long long)left, (unsigned long long)log_->asked, (unsigned long long)found);
    /* A process that died between spending and telling has spent. */
    assert_true(log_->spent + left <= put);
    assert_true(put - log_->spent - left <= COST * killed);
    assert_true(log_->asked > 0 && found > 0);
}

static unsigned rounds = 3;

static void test_kill(void **unused)
{
    (void)unused;
    struct random random = { random_seed() };
    table = table_of_cells(64);
    log_ = mmap(NULL, sizeof *log_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(log_, MAP_FAILED);
    now_us = T0_US;
    end_us = T0_US + 60 * US_PER_S;
    for (unsigned i = 0; i < rounds; i++)
        run_round(i > 0, &random);
    /* A second later every place can be had, whoever died in it. */
    int64_t later_us = clock_steady_us() + 2 * US_PER_S;
    struct slice_ask ask = { .need = 1, .slice = 5, .ttl_ms = 2000, .key_len = 5, .field_len = 3 };
    limit_init(&ask.limit, LIMIT_FIXED_WINDOW, 1000, 0, US_PER_S);
    memcpy(ask.key, "{a}:b", 5);
    memcpy(ask.field, "s.f", 3);
    unsigned places = 0;
    while (ask.cell++, ask_post(table, &ask, later_us))
        places++;
    assert_int_equal(places, 7);
    munmap(log_, sizeof *log_);
    cells_close(table);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "rounds", required_argument, NULL, 'r' }, { 0 } };
    for (int c; (c = getopt_long(argc, argv, "r:", options, NULL)) != -1;) {
        if (c != 'r')
            return 2;
        rounds = (unsigned)strtoul(optarg, NULL, 10);
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kill) };
    return cmocka_run_group_tests_name("slices/kill", tests, NULL, NULL);
}
