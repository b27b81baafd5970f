/* CL.THROTTLE in the cells: exact under threads, kept in the file, apart from the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include "engine/handle.h"
#include "throttle/throttle.h"

#define T0 (INT64_C(1763200000) * US_PER_S)

static const char rules[] = "rules:\n"
                            "  - id: k\n"
                            "    by: [key]\n"
                            "    limits: [ \"2 per 60s\" ]\n";

static struct weir *open_weir(const char *cells_file)
{
    struct weir_options options = {
        .size = sizeof options, .rules_text = rules, .cells_file = cells_file, .cells_keys = 1000
    };
    struct weir_error error;
    struct weir *weir;
    if (weir_open(&weir, &options, &error) < 0)
        fail_msg("%s", error.text);
    return weir;
}

static struct gcra numbers(int64_t max_burst, int64_t count, int64_t period_s, int64_t quantity)
{
    struct gcra gcra;
    assert_int_equal(gcra_init(&gcra, max_burst, count, period_s, quantity), GCRA_OK);
    return gcra;
}

static bool passes(struct weir *weir, unsigned space, sv key, const struct gcra *gcra, int64_t now_us)
{
    struct gcra_answer answer;
    assert_int_equal(throttle_take(weir->cells, space, key, gcra, now_us, &answer), GCRA_OK);
    return !answer.limited;
}

static void keys_are_forgotten(void **unused)
{
    (void)unused;
    struct weir *weir = open_weir(NULL);
    struct gcra one = numbers(0, 1, 60, 1);
    assert_false(throttle_forget(weir->cells, 0, SV("a")));
    assert_true(passes(weir, 0, SV("a"), &one, T0));
    assert_true(passes(weir, 1, SV("a"), &one, T0));
    assert_true(throttle_forget(weir->cells, 0, SV("a")));
    assert_false(throttle_forget(weir->cells, 0, SV("a")));
    assert_true(passes(weir, 0, SV("a"), &one, T0));
    assert_false(passes(weir, 1, SV("a"), &one, T0));
    weir_close(weir);
}

static void keys_are_apart(void **unused)
{
    (void)unused;
    struct weir *weir = open_weir(NULL);
    struct gcra one = numbers(0, 1, 60, 1);
    struct weir_request request = { .key = WEIR_STR("a"), .cost = 1 };
    struct weir_verdict verdict;
    assert_true(passes(weir, 0, SV("a"), &one, T0));
    assert_false(passes(weir, 0, SV("a"), &one, T0));
    assert_true(passes(weir, 1, SV("a"), &one, T0));
    assert_true(passes(weir, 0, SV("b"), &one, T0));
    assert_true(passes(weir, 0, SV(""), &one, T0));
    assert_int_equal(weir_check(weir, &request, T0, &verdict), 0);
    assert_true(verdict.allowed);
    assert_int_equal(verdict.remaining, 1);
    assert_true(passes(weir, 0, SV("a"), &one, T0 + 60 * US_PER_S));
    weir_close(weir);
}

static void errors_charge_nothing(void **unused)
{
    (void)unused;
    struct weir *weir = open_weir(NULL);
    struct gcra back = numbers(2, 1, 60, -1), one = numbers(0, 1, 60, 1);
    struct gcra_answer answer = { .limit = 77 };
    assert_int_equal(throttle_take(weir->cells, 0, SV("a"), &back, T0, &answer), GCRA_EXPIRED);
    assert_int_equal(throttle_take(weir->cells, 0, SV("a"), &one, -1, &answer), GCRA_TOO_LARGE);
    assert_int_equal(answer.limit, 77);
    assert_true(passes(weir, 0, SV("a"), &one, T0));
    weir_close(weir);
}

static void outlives_the_process(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/weir-throttle-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/cells", folder);
    struct gcra one = numbers(0, 1, 60, 1);
    struct weir *weir = open_weir(file), *other = open_weir(file);
    assert_true(passes(weir, 0, SV("a"), &one, T0));
    assert_false(passes(other, 0, SV("a"), &one, T0));
    weir_close(weir);
    weir_close(other);
    weir = open_weir(file);
    assert_false(passes(weir, 0, SV("a"), &one, T0 + 59 * US_PER_S));
    weir_close(weir);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- threads ---- */

enum { THREADS = 4, KEYS = 200, BURST = 50 };

struct caller {
    pthread_t thread;
    struct weir *weir;
    unsigned passed;
};

static void *call(void *data)
{
    struct caller *caller = data;
    struct gcra one;
    gcra_init(&one, BURST - 1, 1, 60, 1);
    for (int round = 0; round < BURST; round++)
        for (int key = 0; key < KEYS; key++) {
            struct gcra_answer answer;
            throttle_take(caller->weir->cells, 0, sv_of((char *)&key, sizeof key), &one, T0, &answer);
            caller->passed += !answer.limited;
        }
    return NULL;
}

static void exact_under_threads(void **unused)
{
    (void)unused;
    struct weir *weir = open_weir(NULL);
    struct caller callers[THREADS] = { 0 };
    unsigned passed = 0;
    for (int i = 0; i < THREADS; i++) {
        callers[i].weir = weir;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        passed += callers[i].passed;
    }
    assert_int_equal(passed, KEYS * BURST);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_apart),        cmocka_unit_test(keys_are_forgotten),
        cmocka_unit_test(errors_charge_nothing), cmocka_unit_test(outlives_the_process),
        cmocka_unit_test(exact_under_threads),
    };
    return cmocka_run_group_tests_name("throttle", tests, NULL, NULL);
}
