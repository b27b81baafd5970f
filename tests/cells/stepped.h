/* The protocol of the table, with a scheduler that stops a worker at any load, store and compare-and-swap. The workers are
 * coroutines. */
#ifndef TESTS_CELLS_STEPPED_H
#define TESTS_CELLS_STEPPED_H

#include <ucontext.h>

#include "support.h"

typedef typeof(((struct cell *)0)->state) state_word;

static void step(bool writes);

static uint64_t stepped_load_8(const uint64_t *p)
{
    step(false);
    return load_8(p);
}

static bool stepped_cas_8(uint64_t *p, uint64_t from, uint64_t to)
{
    step(true);
    return cas_8(p, from, to);
}

static state_word stepped_load_16(state_word *p)
{
    step(false);
    return load_16(p);
}

static bool stepped_cas_16(state_word *p, state_word from, state_word to)
{
    step(true);
    return cas_16(p, from, to);
}

static uint64_t stepped_load_plain(const uint64_t *p)
{
    step(false);
    return load_plain(p);
}

static void stepped_store_plain(uint64_t *p, uint64_t word)
{
    step(true);
    store_plain(p, word);
}

#define load_8 stepped_load_8
#define cas_8 stepped_cas_8
#define load_16 stepped_load_16
#define cas_16 stepped_cas_16
#define load_plain stepped_load_plain
#define store_plain stepped_store_plain
#include "cells/blocks.c"
#include "cells/cells.c"
#include "cells/find.c"
#include "cells/held.c"
#include "cells/holding.c"
#include "cells/make.c"
#include "cells/update.c"
#undef load_8
#undef cas_8
#undef load_16
#undef cas_16
#undef load_plain
#undef store_plain

enum {
    STEPPED_MAX = 5, /* workers */
    STEPPED_STACK_BYTES = 256 * 1024,
    STEPPED_STEPS_MAX = 1000000, /* in one round; more is an endless loop */
    STEPPED_SCENES_MAX = 20,
};

static struct {
    ucontext_t scheduler, workers[STEPPED_MAX];
    unsigned current, budget, steps;
    bool only_writes; /* in this round workers stop nowhere but in front of a write */
    bool in_worker;
    void (*work)(void), (*endless)(void);
} stepped;

static char stepped_stacks[STEPPED_MAX][STEPPED_STACK_BYTES];

static void step(bool writes)
{
    if (!stepped.in_worker)
        return;
    if (++stepped.steps >= STEPPED_STEPS_MAX)
        stepped.endless();
    if (stepped.only_writes && !writes)
        return;
    if (stepped.budget-- > 0)
        return;
    stepped.in_worker = false;
    swapcontext(&stepped.workers[stepped.current], &stepped.scheduler);
    stepped.in_worker = true;
}

static void stepped_work(void)
{
    stepped.in_worker = true;
    stepped.work();
    stepped.in_worker = false;
    swapcontext(&stepped.workers[stepped.current], &stepped.scheduler);
}

/* Each worker calls `work` once. */
static void stepped_start(unsigned count, void (*work)(void), void (*endless)(void))
{
    stepped.work = work;
    stepped.endless = endless;
    stepped.steps = 0;
    for (unsigned i = 0; i < count; i++) {
        ucontext_t *context = &stepped.workers[i];
        getcontext(context);
        context->uc_stack.ss_sp = stepped_stacks[i];
        context->uc_stack.ss_size = STEPPED_STACK_BYTES;
        context->uc_link = NULL;
        makecontext(context, stepped_work, 0);
    }
}

/* The worker goes on for so many steps. */
static void stepped_run(unsigned worker, unsigned budget)
{
    stepped.current = worker;
    stepped.budget = budget;
    swapcontext(&stepped.scheduler, &stepped.workers[worker]);
}

/* ---- scenes, and their rounds ---- */

/* A file's own; its first member is its name. */
struct scene;

/* One round from each of the next seeds: TEST_ROUNDS of them, or as many as usual; a single one if TEST_SEED alone is
 * given. */
static void stepped_rounds(const struct scene *scene, unsigned long usual,
                           void (*run_round)(const struct scene *, uint64_t seed))
{
    const char *rounds = getenv("TEST_ROUNDS");
    uint64_t seed = random_seed();
    unsigned long count = rounds ? strtoul(rounds, NULL, 10) : usual / SLOWER;
    if (getenv("TEST_SEED") && !rounds)
        count = 1;
    for (unsigned long i = 0; i < count; i++)
        run_round(scene, seed + i);
}

/* Runs a test for each scene of an array. */
static int stepped_main(const char *group, const void *scenes, size_t count, size_t scene_bytes, CMUnitTestFunction test)
{
    static struct CMUnitTest tests[STEPPED_SCENES_MAX];
    assert_true(count <= STEPPED_SCENES_MAX);
    for (size_t i = 0; i < count; i++) {
        const void *scene = (const char *)scenes + i * scene_bytes;
        tests[i] = (struct CMUnitTest){ *(const char *const *)scene, test, NULL, NULL, (void *)(uintptr_t)scene };
    }
    /* Those of the array that are left empty do not count. */
    return cmocka_run_group_tests_name(group, tests, NULL, NULL);
}

#endif
