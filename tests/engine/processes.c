/* Processes that decide in one cells file, and are killed at it. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "crowd.h"

enum { PROCESSES = 4, KEYS = 10000 / CROWD_SLOWER, TRIES = 4 };

/* Seen by all processes. */
static struct tally *shared_tallies(unsigned keys)
{
    void *map = mmap(NULL, keys * sizeof(struct tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    return map;
}

static struct weir_options options_in(struct folder *folder, uint64_t keys)
{
    return (
        struct weir_options){ .rules_text = CROWD_RULES, .cells_file = folder_file(folder, "cells"), .cells_keys = keys };
}

/* ---- counting together ---- */

static pid_t start_asking(struct weir_options options, struct tally *tallies, uint64_t seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct weir *weir = open_with(options);
    crowd_ask(weir, tallies, KEYS, TRIES, seed);
    weir_close(weir);
    _exit(0);
}

static void wait_for_all(const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void every_cell_holds_what_was_admitted(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    struct tally *tallies = shared_tallies(KEYS);
    pid_t pids[PROCESSES];
    /* The file is made by whoever comes first. */
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start_asking(options_in(&folder, KEYS * 6), tallies, random_seed() + (uint64_t)i);
    wait_for_all(pids, PROCESSES);
    struct weir *weir = open_with(options_in(&folder, KEYS * 6));
    crowd_check(weir, tallies, KEYS, 0);
    weir_close(weir);
    munmap(tallies, KEYS * sizeof *tallies);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

/* A table in memory is shared with the children of a fork. */
static void children_count_in_the_parents_table(void **state)
{
    (void)state;
    struct tally *tallies = shared_tallies(KEYS);
    struct weir *weir = open_with((struct weir_options){ .rules_text = CROWD_RULES, .cells_keys = KEYS * 6 });
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            crowd_ask(weir, tallies, KEYS, TRIES, random_seed() + (uint64_t)i);
            weir_close(weir);
            _exit(0);
        }
    }
    wait_for_all(pids, PROCESSES);
    crowd_check(weir, tallies, KEYS, 0);
    weir_close(weir);
    munmap(tallies, KEYS * sizeof *tallies);
}

/* The watcher is a thread of the parent; a child may close its handle all the same. */
static void a_child_may_close_a_watched_handle(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    char rules[300];
    snprintf(rules, sizeof rules, "%s", folder_file(&folder, "rules.yaml"));
    write_file(rules, CROWD_RULES);
    struct weir *weir = open_with((struct weir_options){ .rules_file = rules, .watch_ms = UINT32_MAX });
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char key[20];
        struct weir_verdict verdict;
        struct weir_request request = crowd_request(key, 0, false);
        int r = weir_check(weir, &request, NOW, &verdict);
        weir_close(weir);
        _exit(r == 0 && verdict.allowed ? 0 : 1);
    }
    wait_for_all(&pid, 1);
    char key[20];
    assert_int_equal(check_at(weir, crowd_request(key, 0, false), NOW).remaining, 1);
    weir_close(weir);
    folder_remove(&folder, (const char *const[]){ "rules.yaml", NULL });
}

/* 0: new rules, of which there are none, have come. */
static int see_the_change(struct weir *weir)
{
    struct timespec soon = { .tv_nsec = 2000000 };
    for (int i = 0; i < 5000; i++) {
        char key[20];
        struct weir_verdict verdict;
        struct weir_request request = crowd_request(key, 0, false);
        request.cost = 0;
        weir_poll_aside(weir);
        weir_check(weir, &request, NOW, &verdict);
        if (!verdict.applied) {
            weir_close(weir);
            return 0;
        }
        nanosleep(&soon, NULL);
    }
    return 3;
}

/* Each for itself; the parent does not look. */
static void children_poll_with_the_parents_handle(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    char rules[300], spare[300];
    snprintf(rules, sizeof rules, "%s", folder_file(&folder, "rules.yaml"));
    snprintf(spare, sizeof spare, "%s", folder_file(&folder, "spare.yaml"));
    write_file(rules, CROWD_RULES);
    struct weir *weir = open_with((struct weir_options){ .rules_file = rules });
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            _exit(see_the_change(weir));
    }
    write_file(spare, "rules: []");
    assert_int_equal(rename(spare, rules), 0);
    wait_for_all(pids, PROCESSES);
    /* The parent has not looked. */
    char key[20];
    assert_true(check_at(weir, crowd_request(key, 0, false), NOW).applied);
    weir_close(weir);
    folder_remove(&folder, (const char *const[]){ "rules.yaml", NULL });
}

/* ---- being killed ---- */

enum { KILLS = 200 / CROWD_SLOWER + 10, VICTIMS = 4, LIVES_KEYS = 60000 };

static pid_t start_asking_for_ever(struct weir_options options, struct tally *tallies, uint64_t seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct weir *weir = open_with(options);
    struct random r = { seed };
    for (;;) {
        char key[20];
        /* Near to each other, so that they meet, and on through all keys. */
        unsigned number = (unsigned)(random_u64(&r) % 64 + tallies[LIVES_KEYS].a) % LIVES_KEYS;
        struct weir_request request = crowd_request(key, number, random_one_in(&r, 2));
        struct weir_verdict verdict;
        weir_check(weir, &request, NOW, &verdict);
        crowd_count(&tallies[number], &request, &verdict);
        if (random_one_in(&r, 8))
            __atomic_add_fetch(&tallies[LIVES_KEYS].a, 1, __ATOMIC_RELAXED);
    }
}

static void kill_one(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    /* Not by an accident of its own. */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void the_killed_leave_at_most_one_charge_each(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    struct random r = { random_seed() };
    struct tally *tallies = shared_tallies(LIVES_KEYS + 1);
    struct weir_options options = options_in(&folder, LIVES_KEYS * 6);
    struct weir *weir = open_with(options);
    pid_t pids[VICTIMS];
    for (int i = 0; i < VICTIMS; i++)
        pids[i] = start_asking_for_ever(options, tallies, random_u64(&r));
    for (int i = 0; i < KILLS; i++) {
        struct timespec pause = { .tv_nsec = random_in(&r, 0, 3000000) };
        nanosleep(&pause, NULL);
        int victim = (int)random_in(&r, 0, VICTIMS - 1);
        kill_one(pids[victim]);
        pids[victim] = start_asking_for_ever(options, tallies, random_u64(&r));
    }
    for (int i = 0; i < VICTIMS; i++)
        kill_one(pids[i]);
    crowd_check(weir, tallies, LIVES_KEYS, KILLS + VICTIMS);
    /* And the table goes on working. */
    crowd_ask(weir, tallies, KEYS, TRIES, 1);
    crowd_check(weir, tallies, LIVES_KEYS, KILLS + VICTIMS);
    weir_close(weir);
    munmap(tallies, (LIVES_KEYS + 1) * sizeof *tallies);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_holds_what_was_admitted),       cmocka_unit_test(children_count_in_the_parents_table),
        cmocka_unit_test(a_child_may_close_a_watched_handle),       cmocka_unit_test(children_poll_with_the_parents_handle),
        cmocka_unit_test(the_killed_leave_at_most_one_charge_each),
    };
    return cmocka_run_group_tests_name("engine/processes", tests, NULL, NULL);
}
