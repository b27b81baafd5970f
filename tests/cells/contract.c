/* What callers of src/cells and src/limit have to keep to: whoever breaks it is stopped, in every build, before the table
 * is touched. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static struct cells *table;
static struct limit window, day;

static void take_nothing(void)
{
    take(table, key_of(1), &window, T0_US, 0);
}

static void take_before_1970(void)
{
    take(table, key_of(1), &window, -1, 1);
}

static void take_after_2112(void)
{
    take(table, key_of(1), &window, CLOCK_END_US, 1);
}

static void take_without_a_window(void)
{
    take(table, key_of(1), &day, T0_US, 1);
}

static void look_after_2112(void)
{
    state_in(table, key_of(1), &window, CLOCK_END_US);
}

static void take_too_many_at_once(void)
{
    struct cells_ask asks[CELLS_BATCH + 1];
    struct cells_taken taken[CELLS_BATCH + 1];
    bool fits[CELLS_BATCH + 1];
    for (unsigned i = 0; i < CELLS_BATCH + 1; i++)
        asks[i] = (struct cells_ask){ key_of(i), &window, NULL, T0_US, 1 };
    cells_take_batch(table, asks, CELLS_BATCH + 1, taken, fits);
}

static void refund_what_was_not_taken(void)
{
    struct cells_taken taken = { 0 };
    cells_refund(table, &window, &taken, T0_US);
}

static struct cells_change too_late(struct limit_state state, void *data)
{
    (void)state, (void)data;
    return (struct cells_change){ .writes = true, .next = { .time = CLOCK_END_US, .data = 1 } };
}

static void write_a_time_that_does_not_fit(void)
{
    cells_update(table, key_of(1), T0_US, too_late, NULL);
}

static void make_a_limit_without_a_period(void)
{
    limit_of(LIMIT_FIXED_WINDOW, 1, 0);
}

static void refund_at_no_time(void)
{
    struct limit_state state = { 0 };
    limit_refund(&window, 0, 1, -1, &state);
}

static void (*const broken[])(void) = { take_nothing,
                                        take_before_1970,
                                        take_after_2112,
                                        take_without_a_window,
                                        look_after_2112,
                                        take_too_many_at_once,
                                        refund_what_was_not_taken,
                                        write_a_time_that_does_not_fit,
                                        make_a_limit_without_a_period,
                                        refund_at_no_time };

static void test_whoever_breaks_the_contract_is_stopped(void **state)
{
    (void)state;
    table = table_of_cells(1024);
    window = limit_of(LIMIT_FIXED_WINDOW, 10, US_PER_S);
    limit_init(&day, LIMIT_CALENDAR, 10, 0, 0);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(STDERR_FILENO);
            broken[i]();
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("case %zu was not stopped", i);
    }
    /* The children share the table. */
    assert_int_equal(cells_count_live(table, T0_US), 0);
    cells_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_whoever_breaks_the_contract_is_stopped) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
