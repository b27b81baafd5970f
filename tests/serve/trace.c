/* traceparent: what a client sends is used only in its exact form. */
#include "serve/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GOOD "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static void test_valid(void **state)
{
    (void)state;
    static const char *const valid[] = { GOOD, "00-00000000000000000000000000000001-1000000000000000-00",
                                         "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-ff" };
    for (size_t i = 0; i < sizeof valid / sizeof *valid; i++)
        assert_true(trace_is_valid(weir_str(valid[i])));
}

static void test_invalid(void **state)
{
    (void)state;
    static const char *const invalid[] = {
        "",
        "00",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7 01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "00-4bf92f3577b34da6a3ce929d0e0e473\n-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473\"-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b -01",
    };
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        assert_false(trace_is_valid(weir_str(invalid[i])));
}

/* Each byte may be any: of the 256 only digits, and for a dash the dash, are accepted. */
static void test_every_byte(void **state)
{
    (void)state;
    for (size_t at = 0; at < TRACE_LEN; at++) {
        unsigned accepted = 0;
        for (unsigned byte = 0; byte < 256; byte++) {
            char text[] = GOOD;
            text[at] = (char)byte;
            accepted += trace_is_valid(sv_of(text, TRACE_LEN));
        }
        bool fixed = at < 2 || GOOD[at] == '-';
        assert_int_equal(accepted, fixed ? 1 : 16);
    }
}

static void test_headers(void **state)
{
    (void)state;
    struct weir_header headers[] = { { WEIR_STR("Accept"), WEIR_STR(GOOD) },
                                     { WEIR_STR("TraceParent"), WEIR_STR(" " GOOD "\t") },
                                     { WEIR_STR("traceparent"), WEIR_STR(GOOD) } };
    assert_int_equal(trace_of_headers(NULL, 0).len, 0);
    assert_int_equal(trace_of_headers(headers, 1).len, 0);
    assert_true(sv_eq(trace_of_headers(headers, 2), SV(GOOD)));
    assert_int_equal(trace_of_headers(headers, 3).len, 0); /* nobody knows which is meant */
    headers[1].value = WEIR_STR("00-1-2-3");
    assert_int_equal(trace_of_headers(headers, 2).len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
