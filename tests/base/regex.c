/* Regexes match a whole string, end in bounded steps, and may be used by many threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/regex.h"

static struct regex *compile(const char *pattern, bool ignore_case)
{
    struct regex *regex = NULL;
    char error[200];
    if (regex_new(&regex, weir_str(pattern), ignore_case, error, sizeof error) < 0)
        fail_msg("%s: %s", pattern, error);
    return regex;
}

static void check(const char *pattern, bool ignore_case, sv text, enum regex_result want)
{
    struct regex *regex = compile(pattern, ignore_case);
    enum regex_result got = regex_match(regex, text);
    regex_free(regex);
    if (got != want)
        fail_msg("%s on \"%.*s\": %d instead of %d", pattern, SV_FMT(sv_of(text.ptr, text.len < 60 ? text.len : 60)), got,
                 want);
}

static void test_whole(void **state)
{
    (void)state;
    check("/(login|token)", false, SV("/login"), REGEX_YES);
    check("/(login|token)", false, SV("/login/"), REGEX_NO);
    check("/(login|token)", false, SV("x/login"), REGEX_NO);
    check("/(login|token)", false, SV("/LOGIN"), REGEX_NO);
    check("/(login|token)", true, SV("/LOGIN"), REGEX_YES);
    check("/login$", false, SV("/login\n"), REGEX_NO);
    check("a|ab", false, SV("ab"), REGEX_YES);
    check("", false, SV(""), REGEX_YES);
    check("", false, (sv){ NULL, 0 }, REGEX_YES);
    check("a*", false, (sv){ NULL, 0 }, REGEX_YES);
    check("/.*", false, SV("/a\nb"), REGEX_YES);
    check("/a.b", false, SV("/a\0b"), REGEX_YES);
    check("/.", false, SV("/\xc3\xa9"), REGEX_NO);
    check("(*UTF)/.", false, SV("/\xc3\xa9"), REGEX_YES);
    check("(*UTF)/.", false, SV("/\xff"), REGEX_BOUND);
    check("(?:/[a-z0-9]+)*", false, SV("/a/b2/c/d/e/f/g"), REGEX_YES);
}

/* Patterns that take exponential or long polynomial time, each with a text made for it. */
static void test_bound(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "(a+)+b",
        "(a|aa)+b",
        "(a*)*b",
        ".*?[ac]*b",
        "a*?a*?a*?b",
        ".*.*.*.*.*b",
        "(?:a|a?)+b",
        "(.*)\\1\\1b",
        "(a?){90}a{90}b",
        "(?:(?:(?=a)a)*)*b",
        "(*NO_JIT)(a+)+b",
        "(*LIMIT_MATCH=4000000000)(a+)+b",
        "(*NO_JIT)(*LIMIT_MATCH=4000000000)(*LIMIT_HEAP=4000000000)(*LIMIT_DEPTH=4000000000)(a+)+b",
    };
    static char text[8192];
    memset(text, 'a', sizeof text);
    text[sizeof text - 2] = 'b';
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        check(patterns[i], false, sv_of(text, sizeof text), REGEX_BOUND);
    check("(*NO_JIT)(a(?R)?b)", false, SV("aaabbb"), REGEX_YES);
    check("a*b.", false, sv_of(text, sizeof text), REGEX_YES);
    check("[a-z]+", false, sv_of(text, sizeof text), REGEX_YES);
}

/* What only walks over its text is not cut short by the bound where a path is not absurdly long. */
static void test_no_false_bound(void **state)
{
    (void)state;
    static char text[1400];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? 'a' : '/';
    sv all = sv_of(text, sizeof text);
    check("(?:/[a-z])*", false, all, REGEX_YES);
    check("(?:/[^/]+)+", false, all, REGEX_YES);
    check(".*(?:login|token).*", false, all, REGEX_NO);
    check("(*NO_JIT).*(?:login|token).*", false, all, REGEX_NO);
    check("(?!.*login).*", false, all, REGEX_YES);
}

static void test_errors(void **state)
{
    (void)state;
    struct regex *regex = NULL;
    char error[200] = "";
    assert_int_equal(regex_new(&regex, SV("a(b"), false, error, sizeof error), WEIR_E_INVALID);
    assert_non_null(strstr(error, "parenthesis"));
    assert_non_null(strstr(error, "byte 3"));
    assert_null(regex);
    char text[5000];
    memset(text, 'a', sizeof text);
    assert_int_equal(regex_new(&regex, sv_of(text, sizeof text), false, error, sizeof error), WEIR_E_INVALID);
    assert_non_null(strstr(error, "4096"));
    assert_int_equal(regex_new(&regex, SV("((a{1000}){1000}){1000}"), false, error, sizeof error), WEIR_E_INVALID);
    assert_int_equal(regex_new(&regex, SV("a\\Cb"), false, error, sizeof error), WEIR_E_INVALID);
    regex_free(NULL);
}

struct share {
    struct regex *easy, *hard;
    int wrong;
};

static void *match_much(void *data)
{
    struct share *share = data;
    char text[300];
    memset(text, 'a', sizeof text);
    text[298] = 'b';
    int wrong = 0;
    for (int i = 0; i < 300; i++) {
        wrong += regex_match(share->easy, SV("/users/42")) != REGEX_YES;
        wrong += regex_match(share->easy, SV("/users/x")) != REGEX_NO;
        wrong += i % 100 == 0 && regex_match(share->hard, sv_of(text, sizeof text)) != REGEX_BOUND;
    }
    __atomic_fetch_add(&share->wrong, wrong, __ATOMIC_RELAXED);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct share share = { compile("/users/[0-9]+", false), compile("(a+)+b", false), 0 };
    for (int round = 0; round < 5; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, match_much, &share), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    assert_int_equal(share.wrong, 0);
    regex_free(share.easy);
    regex_free(share.hard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_bound),   cmocka_unit_test(test_no_false_bound),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("regex", tests, NULL, NULL);
}
