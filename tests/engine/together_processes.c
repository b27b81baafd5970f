/* Processes that decide on chains of requests in one cells file, and are killed at it. A chain is all or nothing: a process
 * that dies in the middle of one may leave the charges of that chain behind, or a part of them, and nothing else. No
 * counter is ever above its max, and the slots of the dead are free. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../limit/random.h"
#include "helpers.h"

enum { VICTIMS = 4, KILLS = 200, KEYS = 30000, NEAR = 6, PARTS = 5 };
/* Windows, buckets, slots, and what is charged whatever the others say. */
enum what { WINDOW, BUCKET, SLOTS, ALWAYS, WHATS };

static const char rules[] =
    "rules:\n"
    "  - {id: w, match: {event: w}, by: key, limits: [{algorithm: fixed_window, max: 7, per: 1h}]}\n"
    "  - {id: t, match: {event: t}, by: key, limits: 9 per 3650d}\n"
    "  - {id: n, match: {event: n}, by: key, limits: 2 concurrent}\n"
    "  - {id: a, match: {event: a}, by: key, limits: [{algorithm: fixed_window, max: 4000000000, per: 1h}]}\n";
static const char *const events[WHATS] = { "w", "t", "n", "a" };
static const uint32_t most[WHATS] = { 7, 9, 2, UINT32_MAX };

struct part {
    enum what what;
    unsigned key;
    uint32_t cost;
};

/* What all processes see. */
struct shared {
    uint32_t first; /* of the keys that they ask about: on through all of them, near to each other, so that they meet */
    uint32_t charged[WHATS][KEYS];
    struct {
        uint32_t count; /* of the parts of the chain that it decides on; 0: none */
        struct part parts[PARTS];
    } at[VICTIMS];
};

static struct shared *shared_new(void)
{
    void *map = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    return map;
}

static void pick_chain(struct shared *s, int victim, struct random *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct part *p = &s->at[victim].parts[i];
        p->what = (enum what)random_in(r, 0, WHATS - 1);
        p->key = (unsigned)(__atomic_load_n(&s->first, __ATOMIC_RELAXED) + random_in(r, 0, NEAR - 1)) % KEYS;
        p->cost = p->what == SLOTS ? 1 : (uint32_t)random_in(r, 1, 3);
    }
    __atomic_store_n(&s->at[victim].count, count, __ATOMIC_SEQ_CST);
}

static void decide(struct weir *weir, struct shared *s, int victim, uint32_t count)
{
    struct weir_request requests[PARTS];
    struct weir_verdict verdict;
    struct weir_receipt receipt;
    char keys[PARTS][20];
    for (uint32_t i = 0; i < count; i++) {
        const struct part *p = &s->at[victim].parts[i];
        snprintf(keys[i], sizeof keys[i], "k%u", p->key);
        requests[i] = cost_of(events[p->what], keys[i], p->cost);
        requests[i].charging = p->what == ALWAYS ? WEIR_CHARGE_ALWAYS : WEIR_CHARGE_IF_ROOM;
        requests[i].with = i + 1 < count ? &requests[i + 1] : NULL;
    }
    requests[0].receipt = &receipt;
    requests[0].if_held = true;
    if (weir_check(weir, requests, NOW, &verdict) < 0)
        _exit(1);
    for (uint32_t i = 0; i < count; i++) {
        const struct part *p = &s->at[victim].parts[i];
        if (p->what != SLOTS && (verdict.allowed || p->what == ALWAYS))
            __atomic_add_fetch(&s->charged[p->what][p->key], p->cost, __ATOMIC_SEQ_CST);
    }
    if (verdict.allowed && receipt.count > 0)
        weir_release(weir, &receipt, NOW);
    __atomic_store_n(&s->at[victim].count, 0, __ATOMIC_SEQ_CST);
}

static pid_t start_deciding(struct weir_options options, struct shared *s, int victim, uint64_t seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct weir *weir = open_with(options);
    for (struct random r = { seed };;) {
        uint32_t count = (uint32_t)random_in(&r, 1, PARTS);
        pick_chain(s, victim, &r, count);
        decide(weir, s, victim, count);
        if (random_one_in(&r, 16))
            __atomic_add_fetch(&s->first, 1, __ATOMIC_RELAXED);
    }
}

/* What its last chain may have left behind is added to `left`. */
static void kill_one(pid_t pid, struct shared *s, int victim, uint32_t left[WHATS][KEYS])
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* not by an accident of its own */
    for (uint32_t i = 0; i < s->at[victim].count; i++) {
        const struct part *p = &s->at[victim].parts[i];
        left[p->what][p->key] += p->cost;
    }
    s->at[victim].count = 0;
}

static void check_counts(struct weir *weir, const struct shared *s, uint32_t left[WHATS][KEYS])
{
    for (int what = 0; what < WHATS; what++)
        for (unsigned key = 0; key < KEYS; key++) {
            char name[20];
            snprintf(name, sizeof name, "k%u", key);
            struct weir_verdict v = check_at(weir, peek_of(events[what], name, 0), NOW);
            uint64_t used = v.max - v.remaining, charged = s->charged[what][key];
            bool good = used >= charged && used <= charged + left[what][key] && used <= most[what] && v.debt == 0;
            if (what == SLOTS ? used > 0 : !good)
                fail_msg("%s of %s: %llu are used, %llu were charged, and the killed may have left %u", events[what], name,
                         (unsigned long long)used, (unsigned long long)charged, left[what][key]);
        }
}

static void the_killed_leave_at_most_their_last_chain(void **state)
{
    (void)state;
    static uint32_t left[WHATS][KEYS];
    struct folder folder;
    folder_make(&folder);
    struct random r = { random_seed() };
    struct shared *s = shared_new();
    struct weir_options options = { .rules_text = rules,
                                    .cells_file = folder_file(&folder, "cells"),
                                    .cells_keys = (uint64_t)KEYS * WHATS * 3 / 2 };
    struct weir *weir = open_with(options);
    pid_t pids[VICTIMS];
    for (int i = 0; i < VICTIMS; i++)
        pids[i] = start_deciding(options, s, i, random_u64(&r));
    for (int i = 0; i < KILLS; i++) {
        struct timespec pause = { .tv_nsec = random_in(&r, 0, 3000000) };
        nanosleep(&pause, NULL);
        int victim = (int)random_in(&r, 0, VICTIMS - 1);
        kill_one(pids[victim], s, victim, left);
        pids[victim] = start_deciding(options, s, victim, random_u64(&r));
    }
    for (int i = 0; i < VICTIMS; i++)
        kill_one(pids[i], s, i, left);
    check_counts(weir, s, left);
    weir_close(weir);
    munmap(s, sizeof *s);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_killed_leave_at_most_their_last_chain) };
    return cmocka_run_group_tests_name("engine/together_processes", tests, NULL, NULL);
}
