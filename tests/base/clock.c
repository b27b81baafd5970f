/* The recent time is the clock's, or at most some microseconds older. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

enum { OLDEST_US = 10 };

static bool recent_is_right(void)
{
    int64_t before = clock_now_us(), recent = clock_recent_us();
    return recent >= before - OLDEST_US && recent <= clock_now_us();
}

/* Once more, since somebody may set the clock just then. */
static void expect_recent(void)
{
    assert_true(recent_is_right() || recent_is_right());
}

static void test_without_pause(void **state)
{
    (void)state;
    for (int i = 0; i < 100000; i++)
        expect_recent();
}

static void test_never_goes_back(void **state)
{
    (void)state;
    int64_t last = clock_recent_us();
    int back = 0;
    for (int i = 0; i < 100000; i++) {
        int64_t now = clock_recent_us();
        back += now < last;
        last = now;
    }
    assert_true(back <= 1); /* if the clock was set */
}

static void test_after_sleep(void **state)
{
    (void)state;
    for (long ns = 1000; ns <= 10000000; ns *= 10) {
        clock_recent_us();
        nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
        expect_recent();
    }
}

static void test_on_each_cpu(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < 4 * CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i % CPU_SETSIZE, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(i % CPU_SETSIZE, &one);
        clock_recent_us();
        if (sched_setaffinity(0, sizeof one, &one) == 0)
            expect_recent();
    }
    sched_setaffinity(0, sizeof all, &all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_pause),
        cmocka_unit_test(test_never_goes_back),
        cmocka_unit_test(test_after_sleep),
        cmocka_unit_test(test_on_each_cpu),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
