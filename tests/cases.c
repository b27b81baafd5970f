/* Lists the cases of a test in C, or runs only some of them. The linker puts it in front of cmocka's own function.
 *
 *   TEST_LIST=1       prints the name of each case on a line, and runs none
 *   TEST_CASES=FILE   runs the cases whose names are lines of FILE */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct CMUnitTest cases[];

int __real__cmocka_run_group_tests(const char *group, const cases all, size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const cases all, size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);

static bool is_line_of(FILE *file, const char *name)
{
    char line[200];
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, name) == 0)
            return true;
    }
    return false;
}

static int run_some(const char *path, const char *group, const cases all, size_t count, CMFixtureFunction setup,
                    CMFixtureFunction teardown)
{
    FILE *file = fopen(path, "re");
    struct CMUnitTest *some = calloc(count, sizeof *some);
    size_t some_count = 0;
    int failed = 0;
    if (!file || !some) {
        fprintf(stderr, "TEST_CASES: cannot read %s\n", path);
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < count; i++)
        if (all[i].test_func && is_line_of(file, all[i].name))
            some[some_count++] = all[i];
    fclose(file);
    if (some_count == 0)
        puts("1..0 # SKIP no case was asked for");
    else
        failed = __real__cmocka_run_group_tests(group, some, some_count, setup, teardown);
    free(some);
    return failed;
}

int __wrap__cmocka_run_group_tests(const char *group, const cases all, size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown)
{
    const char *path = getenv("TEST_CASES");
    if (getenv("TEST_LIST")) {
        for (size_t i = 0; i < count; i++)
            if (all[i].test_func)
                puts(all[i].name);
        return 0;
    }
    return path ? run_some(path, group, all, count, setup, teardown)
                : __real__cmocka_run_group_tests(group, all, count, setup, teardown);
}
