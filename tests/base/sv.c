/* String views, and views of nothing: a NULL pointer with length 0 is as good as "". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/sv.h"

static const sv nothing = { NULL, 0 };

static void assert_sv(sv got, const char *want)
{
    if (!sv_eq(got, weir_str(want)))
        fail_msg("\"%.*s\" instead of \"%s\"", SV_FMT(got), want);
}

static void test_equal(void **state)
{
    (void)state;
    assert_true(sv_eq(SV("abc"), SV("abc")));
    assert_false(sv_eq(SV("abc"), SV("abd")));
    assert_false(sv_eq(SV("abc"), SV("ab")));
    assert_true(sv_eq(nothing, SV("")));
    assert_true(sv_eq_nocase(SV("X-Key"), SV("x-kEY")));
    assert_false(sv_eq_nocase(SV("X-Key"), SV("x-key2")));
    assert_false(sv_eq_nocase(SV("@[`{"), SV("`{@[")));
    assert_true(sv_eq_nocase(nothing, SV("")));
    assert_true(sv_starts(SV("/api/v1"), SV("/api")));
    assert_false(sv_starts(SV("/ap"), SV("/api")));
    assert_true(sv_starts(nothing, nothing));
    assert_true(sv_starts(SV("a"), nothing));
}

static bool equal_slowly(const char *s, const char *lower, size_t len)
{
    while (len > 0 && ascii_lower(s[len - 1]) == lower[len - 1])
        len--;
    return len == 0;
}

/* Every byte at every place of a text that is compared in words. */
static void test_equal_lower(void **state)
{
    (void)state;
    enum { MOST = 27 };
    char text[MOST], lower[MOST];
    for (size_t len = 0; len <= MOST; len++) {
        memset(text, 'Q', sizeof text);
        memset(lower, 'q', sizeof lower);
        assert_true(sv_eq_lower(sv_of(text, len), sv_of(lower, len)));
        assert_false(sv_eq_lower(sv_of(text, len), sv_of(lower, len + 1)));
        for (size_t at = 0; at < len; at++) {
            for (int c = -128; c < 128; c++) {
                text[at] = (char)c;
                lower[at] = ascii_lower((char)c);
                assert_true(sv_eq_lower(sv_of(text, len), sv_of(lower, len)));
                lower[at] = (char)(lower[at] ^ 0x20);
                assert_int_equal(sv_eq_lower(sv_of(text, len), sv_of(lower, len)), equal_slowly(text, lower, len));
                lower[at] = 'q';
                assert_int_equal(sv_eq_lower(sv_of(text, len), sv_of(lower, len)), equal_slowly(text, lower, len));
            }
            text[at] = 'Q';
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    assert_sv(sv_from(SV("abc"), 1), "bc");
    assert_sv(sv_from(SV("abc"), 3), "");
    assert_sv(sv_from(SV("abc"), 9), "");
    assert_sv(sv_from(nothing, 2), "");
    assert_sv(sv_trim(SV(" \t\r\n a b \v\f")), "a b");
    assert_sv(sv_trim(SV("   ")), "");
    assert_sv(sv_trim(nothing), "");
    assert_true(sv_blank(SV(" \n")));
    assert_true(sv_blank(nothing));
    assert_false(sv_blank(SV(" a ")));
}

static void test_cut(void **state)
{
    (void)state;
    sv rest = SV("a,b,,c");
    assert_sv(sv_cut(&rest, ','), "a");
    assert_sv(sv_cut(&rest, ','), "b");
    assert_sv(sv_cut(&rest, ','), "");
    assert_sv(rest, "c");
    assert_sv(sv_cut(&rest, ','), "c");
    assert_int_equal(rest.len, 0);
    assert_sv(sv_cut(&rest, ','), "");
    rest = nothing;
    assert_sv(sv_cut(&rest, ','), "");
    assert_int_equal(rest.len, 0);
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t n = 7;
    assert_true(sv_u64(SV("0"), 0, &n));
    assert_int_equal(n, 0);
    assert_true(sv_u64(SV("18446744073709551615"), UINT64_MAX, &n));
    assert_true(n == UINT64_MAX);
    assert_true(sv_u64(SV("0007"), 7, &n));
    assert_int_equal(n, 7);
    assert_true(sv_u64(SV("4294967295"), UINT32_MAX, &n));

    n = 1;
    const char *bad[] = { "", "-1", "+1", " 1", "1 ", "1a", "0x1", "18446744073709551616", "99999999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (sv_u64(weir_str(bad[i]), UINT64_MAX, &n))
            fail_msg("\"%s\" is a number", bad[i]);
    assert_false(sv_u64(SV("4294967296"), UINT32_MAX, &n));
    assert_false(sv_u64(SV("8"), 7, &n));
    assert_false(sv_u64(SV("70"), 7, &n));
    assert_false(sv_u64(SV("1"), 0, &n));
    assert_false(sv_u64(nothing, 9, &n));
    assert_int_equal(n, 1);
}

static void test_unescape(void **state)
{
    (void)state;
    char to[8] = "";
    const char *bad[] = { "%", "%4", "a%4", "%zz", "%4z", "%z1", "%00", "%%41" };
    assert_int_equal(sv_unescape(SV("a%41%2fz"), to, sizeof to), 4);
    assert_memory_equal(to, "aA/z", 5);
    assert_int_equal(sv_unescape(nothing, to, sizeof to), 0);
    assert_int_equal(sv_unescape(SV("%61%62%63"), to, 2), 3); /* as much as there is room for */
    assert_memory_equal(to, "ab/z", 5);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(sv_unescape(weir_str(bad[i]), to, sizeof to), -1);
    for (int c = -128; c < 128; c++) {
        const char *digits = "0123456789abcdef", *at = c ? strchr(digits, ascii_lower((char)c)) : NULL;
        assert_int_equal(ascii_hex((char)c), at ? at - digits : -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal), cmocka_unit_test(test_equal_lower), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_cut),   cmocka_unit_test(test_numbers),     cmocka_unit_test(test_unescape),
    };
    return cmocka_run_group_tests_name("sv", tests, NULL, NULL);
}
