/* Slots of processes that die: free at once for whoever needs them. Those of the living are never lost. The times to live
 * are so long that none of them ends here by itself. */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cells/blocks.h"
#include "cells/owner.h"
#include "support.h"

enum { TTL_MS = 3600 * 1000, MANY = 400 };
#define TTL_US (TTL_MS * US_PER_MS)
#define LATER_US US_PER_S /* what was seen of an owner is forgotten by then */

struct scene {
    struct cells *cells;
    struct limit limit;
    uint64_t key;
    struct shared {
        uint32_t next_id;
        bool is_ready;
        uint32_t count;
        struct cells_charged slots[MANY];
    } * shared; /* with children */
};

static struct scene scene_of(uint32_t max)
{
    struct scene s = { table_of_cells(1 << 16), limit_of(LIMIT_CONCURRENT, max, TTL_US), key_of(max), NULL };
    s.shared = mmap(NULL, sizeof *s.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s.shared != MAP_FAILED);
    return s;
}

static void end_scene(struct scene *s)
{
    munmap(s->shared, sizeof *s->shared);
    cells_close(s->cells);
}

static bool take_slot(struct scene *s, int64_t now_us, struct cells_charged *ret)
{
    struct cells_ask ask = { s->key, &s->limit, NULL, now_us, 1 };
    struct cells_terms terms = { .id = __atomic_add_fetch(&s->shared->next_id, 1, __ATOMIC_RELAXED), .ttl_ms = TTL_MS };
    struct cells_taken taken;
    if (!cells_hold(s->cells, &ask, NULL, &terms, &taken))
        return false;
    if (ret)
        *ret = (struct cells_charged){ .key = s->key,
                                       .origin = cells_origin(s->cells, &s->limit, &taken),
                                       .amount = 1,
                                       .until_us = now_us + TTL_US,
                                       .id = terms.id,
                                       .gen = cells_generation(&taken) };
    return true;
}

static bool settle(struct scene *s, const struct cells_charged *slot, int64_t now_us)
{
    return cells_settle(s->cells, &s->limit, NULL, slot, 0, now_us);
}

static uint64_t used(struct scene *s, int64_t now_us)
{
    return state_in(s->cells, s->key, &s->limit, now_us).data;
}

static void add(const struct cells_held *held, void *data)
{
    *(uint64_t *)data += held->amount;
}

static uint64_t told(struct scene *s, int64_t now_us)
{
    uint64_t sum = 0;
    cells_each_hold(s->cells, now_us, UINT64_MAX, add, &sum);
    return sum;
}

/* ---- children ---- */

/* Takes slots, leaves them in s->shared, and waits to be killed. */
static pid_t child_with(struct scene *s, uint32_t slots, int64_t now_us)
{
    __atomic_store_n(&s->shared->is_ready, false, __ATOMIC_SEQ_CST);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(120); /* if the test fails */
        for (uint32_t i = 0; i < slots; i++)
            s->shared->count += take_slot(s, now_us, &s->shared->slots[s->shared->count]);
        __atomic_store_n(&s->shared->is_ready, true, __ATOMIC_SEQ_CST);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    while (!__atomic_load_n(&s->shared->is_ready, __ATOMIC_SEQ_CST))
        usleep(100);
    return pid;
}

static void reap(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    reap(pid);
}

/* ---- tests ---- */

static void slots_of_the_dead_are_free(void **state)
{
    (void)state;
    struct scene s = scene_of(3);
    int64_t now_us = T0_US;
    assert_true(take_slot(&s, now_us, NULL));
    pid_t pid = child_with(&s, 2, now_us);
    assert_false(take_slot(&s, now_us, NULL));
    /* A process that is stopped lives. */
    int status;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_false(take_slot(&s, now_us += LATER_US, NULL));
    assert_int_equal(used(&s, now_us), 3);
    assert_int_equal(told(&s, now_us), 3);
    end(pid);
    /* Looks say so, too, and leave it to others to write it. */
    assert_int_equal(used(&s, now_us += LATER_US), 1);
    assert_int_equal(told(&s, now_us), 1);
    assert_true(take_slot(&s, now_us, NULL));
    assert_true(take_slot(&s, now_us, NULL));
    assert_false(take_slot(&s, now_us, NULL));
    assert_int_equal(used(&s, now_us), 3);
    /* A slot that ended with its process is not given back a second time. */
    assert_false(settle(&s, &s.shared->slots[0], now_us));
    assert_int_equal(used(&s, now_us), 3);
    end_scene(&s);
}

/* A refusal that is one all the same, since the limit was lowered, leaves the cell without the dead. */
static void a_refusal_ends_them(void **state)
{
    (void)state;
    struct scene s = scene_of(4);
    for (int i = 0; i < 2; i++)
        assert_true(take_slot(&s, T0_US, NULL));
    end(child_with(&s, 2, T0_US));
    s.limit = limit_of(LIMIT_CONCURRENT, 2, TTL_US);
    assert_false(take_slot(&s, T0_US + LATER_US, NULL));
    struct cells_look look;
    struct cells_ask ask = { s.key, &s.limit, NULL, T0_US + LATER_US, 1 };
    struct held h;
    cells_look(s.cells, &ask, &look);
    assert_true(block_read(s.cells, s.key, state_payload(look.seen), &h));
    assert_int_equal(h.count, 2);
    assert_int_equal(h.state.data, 2);
    end_scene(&s);
}

/* The parent has to wait for its child: until then the kernel keeps what is left of it. */
static void one_that_is_not_reaped_seems_to_live(void **state)
{
    (void)state;
    struct scene s = scene_of(1);
    pid_t pid = child_with(&s, 1, T0_US);
    siginfo_t info;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_false(take_slot(&s, T0_US + LATER_US, NULL));
    reap(pid);
    assert_true(take_slot(&s, T0_US + 2 * LATER_US, NULL));
    end_scene(&s);
}

static void a_child_has_its_own(void **state)
{
    (void)state;
    struct scene s = scene_of(2);
    struct cells_charged own;
    assert_true(take_slot(&s, T0_US, &own));
    assert_true(is_owner(own.origin));
    pid_t pid = child_with(&s, 1, T0_US);
    assert_true(is_owner(s.shared->slots[0].origin));
    assert_true(own.origin != s.shared->slots[0].origin);
    end(pid);
    assert_true(take_slot(&s, T0_US + LATER_US, NULL));
    assert_false(take_slot(&s, T0_US + LATER_US, NULL)); /* that of the parent stays */
    assert_true(settle(&s, &own, T0_US + LATER_US));
    end_scene(&s);
}

/* However the child was made: no handler of fork runs here. */
static void a_bare_clone_has_its_own(void **state)
{
    (void)state;
    uint64_t own = owner_self(), *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(other != MAP_FAILED && is_owner(own));
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        *other = owner_self();
        syscall(SYS_exit_group, 0);
    }
    reap(pid);
    assert_true(is_owner(*other) && *other != own);
    assert_true(owner_is_dead(*other));
    munmap(other, 4096);
}

/* A process keeps its slots when its parent dies. */
static void a_grandchild_stays(void **state)
{
    (void)state;
    struct scene s = scene_of(2);
    pid_t *grandchild = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(grandchild != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        take_slot(&s, T0_US, NULL);
        *grandchild = child_with(&s, 1, T0_US);
        _exit(0);
    }
    reap(pid);
    assert_true(take_slot(&s, T0_US + LATER_US, NULL));
    assert_false(take_slot(&s, T0_US + LATER_US, NULL));
    end(*grandchild);
    munmap(grandchild, 4096);
    end_scene(&s);
}

static void nobodys_slots_outlive_the_process(void **state)
{
    (void)state;
    struct scene s = scene_of(1);
    cells_disown(s.cells);
    end(child_with(&s, 1, T0_US));
    assert_int_equal(s.shared->slots[0].origin, 0);
    assert_false(take_slot(&s, T0_US + LATER_US, NULL));
    assert_int_equal(told(&s, T0_US + LATER_US), 1);
    assert_false(take_slot(&s, T0_US + TTL_US - 1, NULL));
    assert_true(settle(&s, &s.shared->slots[0], T0_US + LATER_US));
    assert_true(take_slot(&s, T0_US + LATER_US, NULL));
    end_scene(&s);
}

/* Whoever renews a slot goes on with the work of the process that took it. */
static void one_that_another_renews_is_nobodys(void **state)
{
    (void)state;
    struct scene s = scene_of(2);
    int64_t now_us = T0_US;
    pid_t pid = child_with(&s, 2, now_us);
    struct cells_charged slot = s.shared->slots[0];
    assert_true(cells_renew(s.cells, &s.limit, &slot, TTL_MS, now_us));
    end(pid);
    assert_true(take_slot(&s, now_us += LATER_US, NULL));
    assert_false(take_slot(&s, now_us, NULL));
    assert_true(settle(&s, &slot, now_us));
    assert_true(take_slot(&s, now_us, NULL));
    end_scene(&s);
}

/* Slots that a process renews itself stay its own. */
static void one_that_the_owner_renews_stays_its_own(void **state)
{
    (void)state;
    struct scene s = scene_of(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct cells_charged slot;
        bool done = take_slot(&s, T0_US, &slot) && cells_renew(s.cells, &s.limit, &slot, TTL_MS, T0_US + 1);
        _exit(done ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(take_slot(&s, T0_US + LATER_US, NULL));
    end_scene(&s);
}

/* More than a block has room for: those of one owner are joined. */
static void joined_slots_have_one_owner(void **state)
{
    (void)state;
    enum { EACH = 50 };
    static struct cells_charged own[2 * EACH];
    struct scene s = scene_of(4 * EACH);
    int64_t now_us = T0_US;
    pid_t pids[2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < EACH; i++)
            assert_true(take_slot(&s, now_us, &own[k * EACH + i]));
        pids[k] = child_with(&s, EACH, now_us);
    }
    assert_int_equal(s.shared->count, 2 * EACH);
    assert_false(take_slot(&s, now_us, NULL));
    end(pids[0]);
    assert_int_equal(used(&s, now_us += LATER_US), 3 * EACH);
    end(pids[1]);
    assert_int_equal(used(&s, now_us += LATER_US), 2 * EACH);
    /* All slots are taken: this ends those of the dead. */
    for (int i = 0; i < 2 * EACH; i++)
        assert_true(take_slot(&s, now_us, NULL));
    assert_false(take_slot(&s, now_us, NULL));
    for (int i = 0; i < 2 * EACH; i++)
        assert_true(settle(&s, &own[i], now_us));
    assert_int_equal(used(&s, now_us), 2 * EACH);
    end_scene(&s);
}

/* Slots of two owners have to be joined: they are nobody's then, and none of the living is lost. */
static void the_living_lose_nothing_when_joined(void **state)
{
    (void)state;
    enum { ROUNDS = 7, EACH = 20 };
    static struct cells_charged own[ROUNDS * EACH];
    struct scene s = scene_of(2 * ROUNDS * EACH);
    int64_t now_us = T0_US;
    uint32_t count = 0;
    pid_t pids[ROUNDS * EACH];
    /* Each child has one slot, between two of ours. */
    for (uint32_t i = 0; i < ROUNDS * EACH; i++) {
        assert_true(take_slot(&s, now_us += US_PER_MS, &own[count++]));
        pids[i] = child_with(&s, 1, now_us += US_PER_MS);
    }
    for (uint32_t i = 0; i < ROUNDS * EACH; i++)
        end(pids[i]);
    now_us += LATER_US;
    assert_true(used(&s, now_us) >= count);
    assert_true(used(&s, now_us) < 2 * count);
    while (take_slot(&s, now_us, NULL))
        ;
    assert_int_equal(used(&s, now_us), s.limit.max);
    uint64_t before = used(&s, now_us);
    for (uint32_t i = 0; i < count; i++)
        assert_true(settle(&s, &own[i], now_us));
    assert_int_equal(used(&s, now_us), before - count);
    /* A slot of a dead process is not taken out of what belongs to others. */
    for (uint32_t i = 0; i < s.shared->count; i++)
        settle(&s, &s.shared->slots[i], now_us);
    assert_int_equal(used(&s, now_us), before - count);
    assert_int_equal(used(&s, now_us + 2 * TTL_US), 0);
    end_scene(&s);
}

/* A flood of refusals asks the kernel once in a while. */
static void what_was_seen_is_remembered_for_a_moment(void **state)
{
    (void)state;
    struct scene s = scene_of(1);
    pid_t pid = child_with(&s, 1, T0_US);
    uint64_t owner = s.shared->slots[0].origin;
    assert_false(owner_seems_dead(owner, T0_US));
    end(pid);
    assert_true(owner_is_dead(owner));
    assert_false(owner_seems_dead(owner, T0_US));
    assert_true(owner_seems_dead(owner, T0_US + LATER_US));
    assert_true(owner_seems_dead(owner, T0_US)); /* the clock was set back */
    end_scene(&s);
}

static void others_are_left_alone(void **state)
{
    (void)state;
    uint64_t own = owner_self();
    uint64_t other_place = own ^ UINT64_C(1) << 40;
    assert_false(owner_is_dead(0));
    assert_false(owner_is_dead(own));
    assert_false(owner_is_dead(other_place));
    assert_false(owner_is_dead((other_place & ~UINT64_C(0x3fffff)) | 0x3fffff));
    assert_false(owner_is_dead(own & ~UINT64_C(0x3fffff))); /* damage */
    assert_true(owner_is_dead(own | 0x3fffff));             /* beyond all process ids */
    assert_false(owner_is_dead(UINT64_MAX));
    assert_false(owner_is_dead((own | 0x3fffff) & ~OWNER_MARK)); /* a window */
}

/* There a process has another id than here, or the same as another one here. */
static void in_another_pid_namespace(void **state)
{
    (void)state;
    struct scene s = scene_of(1);
    pid_t *inside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(inside != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
            _exit(1);
        alarm(120);
        *inside = child_with(&s, 1, T0_US);
        for (;;)
            pause();
    }
    int status = 0;
    while (*(volatile pid_t *)inside == 0 && waitpid(pid, &status, WNOHANG) == 0)
        usleep(100);
    if (*inside == 0) {
        print_message("cannot make a pid namespace\n");
    } else {
        bool while_alive = take_slot(&s, T0_US + LATER_US, NULL);
        kill(*inside, SIGKILL); /* the first process of a namespace heeds no alarm */
        end(pid);
        reap(*inside);
        assert_true(is_owner(s.shared->slots[0].origin));
        assert_false(while_alive);
        assert_false(take_slot(&s, T0_US + 2 * LATER_US, NULL)); /* for all that is known here it may live */
        assert_true(take_slot(&s, T0_US + TTL_US, NULL));
    }
    munmap(inside, 4096);
    end_scene(&s);
}

/* ---- blocks ---- */

/* Claims all blocks of a small table, and names none of them in a cell. */
static unsigned claim_all(struct cells *cells, int64_t now_us)
{
    const struct hold hold = { now_us + TTL_US, 0, 1, hold_terms(1, TTL_MS) };
    struct limit_state name;
    uint64_t claimed;
    unsigned count = 0;
    while (block_write_one(cells, key_of(count), now_us, (struct limit_state){ 0, 1 }, 0, &hold, &name, &claimed))
        count++;
    return count;
}

/* Who stands still in the middle of a claim still writes when it goes on: its block is nobody else's, unless it has died.
 */
static void blocks_of_the_living_stay(void **state)
{
    (void)state;
    struct scene s = scene_of(1);
    cells_close(s.cells);
    s.cells = table_of_cells(2 * BUCKET_CELLS);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(120);
        s.shared->count = claim_all(s.cells, T0_US);
        __atomic_store_n(&s.shared->is_ready, true, __ATOMIC_SEQ_CST);
        for (;;)
            pause();
    }
    while (!__atomic_load_n(&s.shared->is_ready, __ATOMIC_SEQ_CST))
        usleep(100);
    assert_true(s.shared->count >= 4);
    assert_int_equal(claim_all(s.cells, T0_US), 0);
    assert_int_equal(claim_all(s.cells, T0_US + 23 * 3600 * US_PER_S), 0);
    assert_int_equal(claim_all(s.cells, T0_US - 3600 * US_PER_S), 0); /* the clock was set back */
    end(pid);
    assert_int_equal(claim_all(s.cells, T0_US + 20 * US_PER_S), 0);
    assert_int_equal(claim_all(s.cells, T0_US + 100 * US_PER_S), s.shared->count);
    /* They are this process's now. Nobody may live that long. */
    assert_int_equal(claim_all(s.cells, T0_US + 3600 * US_PER_S), 0);
    assert_int_equal(claim_all(s.cells, T0_US + 25 * 3600 * US_PER_S), s.shared->count);
    end_scene(&s);
}

/* Processes that open one file, as programs do. */
static void in_a_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-owners-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/cells", folder);
    struct scene s = scene_of(2);
    cells_close(s.cells);
    struct cells_size size = { .keys = 1000 };
    pid_t pid = fork();
    if (pid == 0) {
        alarm(120);
        if (cells_open(&s.cells, path, size, NULL) < 0)
            _exit(1);
        take_slot(&s, T0_US, NULL);
        cells_close(s.cells);
        if (cells_open(&s.cells, path, size, NULL) < 0)
            _exit(1);
        take_slot(&s, T0_US, NULL);
        __atomic_store_n(&s.shared->is_ready, true, __ATOMIC_SEQ_CST);
        for (int fd = 3; fd < 100; fd++)
            close(fd);
        for (;;)
            pause();
    }
    while (!__atomic_load_n(&s.shared->is_ready, __ATOMIC_SEQ_CST))
        usleep(100);
    assert_int_equal(cells_open(&s.cells, path, size, NULL), 0);
    assert_false(take_slot(&s, T0_US, NULL)); /* a handle that was closed changes nothing */
    end(pid);
    assert_true(take_slot(&s, T0_US + LATER_US, NULL));
    assert_true(take_slot(&s, T0_US + LATER_US, NULL));
    end_scene(&s);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_of_the_dead_are_free),
        cmocka_unit_test(a_refusal_ends_them),
        cmocka_unit_test(one_that_is_not_reaped_seems_to_live),
        cmocka_unit_test(a_child_has_its_own),
        cmocka_unit_test(a_bare_clone_has_its_own),
        cmocka_unit_test(a_grandchild_stays),
        cmocka_unit_test(nobodys_slots_outlive_the_process),
        cmocka_unit_test(one_that_another_renews_is_nobodys),
        cmocka_unit_test(one_that_the_owner_renews_stays_its_own),
        cmocka_unit_test(joined_slots_have_one_owner),
        cmocka_unit_test(the_living_lose_nothing_when_joined),
        cmocka_unit_test(what_was_seen_is_remembered_for_a_moment),
        cmocka_unit_test(others_are_left_alone),
        cmocka_unit_test(in_another_pid_namespace),
        cmocka_unit_test(blocks_of_the_living_stay),
        cmocka_unit_test(in_a_file),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* children of children are ours when those are dead */
    return cmocka_run_group_tests_name("cells/owners", tests, NULL, NULL);
}
