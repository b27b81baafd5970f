/* Numbered strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "replay/intern.h"

static void test_numbered_strings(void **state)
{
    (void)state;
    struct intern intern;
    char text[32];
    intern_init(&intern, 5000, SIZE_MAX);
    assert_int_equal(intern_find(&intern, SV("0")), INTERN_NONE);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 5000; i++) {
            int len = snprintf(text, sizeof text, "%u", i);
            assert_int_equal(intern_add(&intern, sv_of(text, (size_t)len)), i);
        }
    assert_int_equal(intern_add(&intern, SV("x")), INTERN_NONE);
    assert_int_equal(intern_find(&intern, SV("4999")), 4999);
    assert_true(sv_eq(intern_text(&intern, 77), SV("77")));
    intern_done(&intern);
    intern_done(NULL);
}

/* Strings that are known take no room. */
static void test_bytes_are_bounded(void **state)
{
    (void)state;
    struct intern intern;
    intern_init(&intern, 100, 5);
    assert_int_equal(intern_add(&intern, SV("abc")), 0);
    assert_int_equal(intern_add(&intern, SV("def")), INTERN_NONE);
    assert_int_equal(intern_add(&intern, SV("de")), 1);
    assert_int_equal(intern_add(&intern, SV("x")), INTERN_NONE);
    assert_int_equal(intern_add(&intern, SV("abc")), 0);
    intern_done(&intern);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbered_strings),
        cmocka_unit_test(test_bytes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
