/* base/check.h and base/cleanup.h: assertions that NDEBUG does not remove, and variables that release what they own. */
#define NDEBUG
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/cleanup.h"

static void a_false_condition_aborts_and_names_its_place(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        int costs = 1;
        CHECK(costs == 1);
        CHECK(costs == 2);
        _exit(0);
    }
    close(ends[1]);
    char text[512] = "";
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "check.c:"));
    assert_non_null(strstr(text, "costs == 2"));
}

static int released;

static void count_free(void *memory)
{
    released++;
    free(memory);
}

CLEANUP_POINTER(char *, count_free);

static char *make(int how)
{
    CLEANUP(count_freep) char *text = NULL;
    if (how == 0)
        return NULL;
    text = strdup("text");
    return how == 1 ? NULL : STEAL(text);
}

static void a_scope_releases_what_it_has_not_handed_over(void **state)
{
    (void)state;
    assert_null(make(0));
    assert_int_equal(released, 0);
    assert_null(make(1));
    assert_int_equal(released, 1);
    CLEANUP_FREE char *text = make(2);
    assert_string_equal(text, "text");
    assert_int_equal(released, 1);

    int other = -1;
    {
        CLEANUP_CLOSE int fd = dup(STDERR_FILENO);
        CLEANUP_CLOSE int none = -1;
        assert_true(fd >= 0 && none < 0);
        other = fd;
    }
    assert_int_equal(close(other), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_false_condition_aborts_and_names_its_place),
        cmocka_unit_test(a_scope_releases_what_it_has_not_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
