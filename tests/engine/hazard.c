/* What a thread looks at is not freed under it, however fast it is replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/hazard.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

/* Wiped when it is no longer needed, and not used again for a while, so that a look at it then is seen without a sanitizer,
 * too. */
struct thing {
    uint64_t number, again;
    struct thing *next;
};

static struct thing *shared;
static bool stop;
static uint64_t torn, looks;

static struct thing *new_thing(uint64_t number)
{
    struct thing *thing = malloc(sizeof *thing);
    assert_non_null(thing);
    *thing = (struct thing){ number, ~number, NULL };
    return thing;
}

enum { WIPED = 10000 };
static struct thing *wiped[WIPED];

static void free_thing(struct thing *thing)
{
    static size_t next;
    __atomic_store_n(&thing->number, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&thing->again, 1, __ATOMIC_RELAXED);
    free(wiped[next % WIPED]);
    wiped[next++ % WIPED] = thing;
}

static int free_wiped(void **state)
{
    (void)state;
    for (size_t i = 0; i < WIPED; i++) {
        free(wiped[i]);
        wiped[i] = NULL;
    }
    return 0;
}

static void *look(void *ptr)
{
    (void)ptr;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        struct thing *thing = hazard_acquire((void *const *)&shared);
        for (int i = 0; i < 20; i++)
            if (__atomic_load_n(&thing->number, __ATOMIC_RELAXED) != ~__atomic_load_n(&thing->again, __ATOMIC_RELAXED))
                __atomic_add_fetch(&torn, 1, __ATOMIC_RELAXED);
        hazard_release();
        __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static struct thing *free_unused(struct thing *retired)
{
    for (struct thing **link = &retired; *link;) {
        struct thing *thing = *link;
        if (hazard_held(thing)) {
            link = &thing->next;
            continue;
        }
        *link = thing->next;
        free_thing(thing);
    }
    return retired;
}

static void nothing_is_freed_under_a_reader(void **state)
{
    (void)state;
    enum { THREADS = 4, LOOKS = 4000000 };
    pthread_t threads[THREADS];
    struct thing *retired = NULL;
    stop = false;
    shared = new_thing(0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, look, NULL), 0);
    for (uint64_t i = 1; __atomic_load_n(&looks, __ATOMIC_RELAXED) < LOOKS; i++) {
        struct thing *old = __atomic_exchange_n(&shared, new_thing(i), __ATOMIC_SEQ_CST);
        old->next = retired;
        retired = free_unused(old);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(torn, 0);
    assert_null(free_unused(retired));
    free_thing(shared);
}

static sem_t looking, looked;

static void *look_and_wait(void *ptr)
{
    struct thing *thing = hazard_acquire(ptr);
    sem_post(&looking);
    sem_wait(&looked);
    bool same = thing->number == ~thing->again;
    hazard_release();
    return same ? NULL : ptr;
}

static void held_until_it_is_released(void **state)
{
    (void)state;
    pthread_t thread;
    void *result;
    struct thing *thing = new_thing(7), *own = new_thing(8);
    sem_init(&looking, 0, 0);
    sem_init(&looked, 0, 0);
    assert_false(hazard_held(thing));
    /* Each thread in turn finds a slot, those that others have left included. */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pthread_create(&thread, NULL, look_and_wait, &thing), 0);
        sem_wait(&looking);
        assert_true(hazard_held(thing));
        assert_ptr_equal(hazard_acquire((void *const *)&own), own);
        assert_true(hazard_held(own));
        hazard_release();
        assert_false(hazard_held(own));
        sem_post(&looked);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_null(result);
        assert_false(hazard_held(thing));
    }
    sem_destroy(&looking);
    sem_destroy(&looked);
    free_thing(thing);
    free_thing(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_freed_under_a_reader),
        cmocka_unit_test(held_until_it_is_released),
    };
    return cmocka_run_group_tests_name("engine/hazard", tests, NULL, free_wiped);
}
