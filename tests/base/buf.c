/* Buffers with a maximum, JSON strings, UTF-8, arenas and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"

static void test_grows(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(buf_sv(&b).len, 0);
    buf_add(&b, (sv){ NULL, 0 });
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    buf_char(&b, '.');
    assert_false(b.failed);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 1);
    assert_int_equal(strlen(b.ptr), b.len);
    buf_clear(&b);
    assert_string_equal(b.ptr, "");
    buf_done(&b);
    buf_done(NULL);
}

static void test_maximum(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 5);
    buf_add(&b, SV("abcde"));
    assert_false(b.failed);
    buf_char(&b, 'f');
    assert_true(b.failed);
    assert_string_equal(b.ptr, "abcde");
    buf_clear(&b);
    buf_printf(&b, "%s", "123456");
    assert_true(b.failed);
    buf_add(&b, SV("a"));
    assert_int_equal(b.len, 0);
    buf_done(&b);
}

static void test_room(void **state)
{
    (void)state;
    char room[8];
    struct buf b;
    buf_over(&b, room, sizeof room);
    char *to = buf_room(&b, 7);
    assert_non_null(to);
    memcpy(to, "abc", 3);
    buf_grown(&b, to + 3);
    assert_string_equal(room, "abc");
    assert_non_null(buf_room(&b, 4));
    assert_false(b.failed);
    assert_null(buf_room(&b, 5));
    assert_true(b.failed);
    assert_string_equal(room, "abc");
}

static void test_over(void **state)
{
    (void)state;
    char room[8];
    struct buf b;
    buf_over(&b, room, sizeof room);
    assert_string_equal(room, "");
    buf_printf(&b, "%d", 12345);
    buf_printf(&b, "%d", 678);
    assert_true(b.failed);
    assert_string_equal(room, "12345");
    buf_clear(&b);
    buf_printf(&b, "%s", "1234567");
    assert_false(b.failed);
    assert_ptr_equal(b.ptr, room);
    buf_char(&b, '8');
    assert_true(b.failed);
    assert_string_equal(room, "1234567");
}

static void test_numbers(void **state)
{
    (void)state;
    const int64_t numbers[] = { 0, 1, -1, 9, 10, 4294967295, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char want[32];
        struct buf b;
        buf_init(&b, 100);
        buf_number(&b, numbers[i]);
        snprintf(want, sizeof want, "%lld", (long long)numbers[i]);
        assert_string_equal(b.ptr, want);
        buf_done(&b);
    }
}

static void check_json(sv text, const char *want)
{
    struct buf b;
    buf_init(&b, 1000);
    buf_json(&b, text);
    assert_false(b.failed);
    assert_string_equal(b.ptr, want);
    buf_done(&b);
}

static void test_json(void **state)
{
    (void)state;
    check_json((sv){ NULL, 0 }, "\"\"");
    check_json(SV("plain"), "\"plain\"");
    check_json(SV("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    check_json(SV("\n\t\r\x01\x7f"), "\"\\n\\t\\u000d\\u0001\\u007f\"");
    check_json(SV("a\0b"), "\"a\\u0000b\"");
    check_json(SV("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), "\"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
    check_json(SV("\xff\xc3(\xe2\x82"), "\"\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\"");
    check_json(SV("\xc2\x9b \u202e \u2028 \ufeff \U000e0041"), "\"\\u009b \\u202e \\u2028 \\ufeff \\udb40\\udc41\"");
}

/* As UTF-8, whatever it is; returns its length. */
static size_t encode(uint32_t code, char to[4])
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((0xf00 >> n & 0xff) | code);
    return n;
}

/* Whatever is not to be shown is neither as it stands in JSON, nor lost. tests/e2e/test_commands.py holds the table against
 * that of Python. */
static void test_shown(void **state)
{
    (void)state;
    static const uint32_t hidden[] = { 0,      0x1b,   0x7f,   0x85,   0x9f,   0xad,   0x61c,   0x180e,  0x200b,
                                       0x200d, 0x200f, 0x2028, 0x2029, 0x202a, 0x202e, 0x2060,  0x2066,  0x206f,
                                       0xfdd0, 0xfdef, 0xfeff, 0xfffb, 0xfffe, 0xffff, 0x1fffe, 0xe0001, 0x10ffff };
    static const uint32_t shown[] = { ' ',    'z',    '~',    0xa0,   0xac,   0xae,    0x600 - 1, 0x2027,
                                      0x202f, 0x2070, 0xfdcf, 0xfdf0, 0xfffd, 0x1f600, 0xe0100,   0x10fffd };
    char bytes[4];
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        size_t n = encode(hidden[i], bytes);
        assert_int_equal(utf8_length(sv_of(bytes, n)), n);
        assert_int_equal(utf8_code(sv_of(bytes, n), n), hidden[i]);
        if (utf8_shown(sv_of(bytes, n), n))
            fail_msg("U+%04X is shown", hidden[i]);
    }
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        size_t n = encode(shown[i], bytes);
        if (!utf8_shown(sv_of(bytes, n), n))
            fail_msg("U+%04X is not shown", shown[i]);
    }
    assert_int_equal(utf8_cut(SV("a\u20ac\u20ac"), 7).len, 7);
    assert_int_equal(utf8_cut(SV("a\u20ac\u20ac"), 6).len, 4);
    assert_int_equal(utf8_cut(SV("a\u20ac\u20ac"), 4).len, 4);
    assert_int_equal(utf8_cut(SV("a\u20ac\u20ac"), 3).len, 1);
    assert_int_equal(utf8_cut(SV("\U0001f600\U0001f600"), 7).len, 4);
    assert_int_equal(utf8_cut(SV("\x80\x80\x80\x80\x80\x80"), 5).len, 5);
    assert_int_equal(utf8_cut(SV("\u20ac"), 0).len, 0);
    assert_false(utf8_shown(SV("\xff"), 0));
    assert_false(utf8_shown(SV("\xed\xa0\x80"), 0)); /* a surrogate */
}

/* RFC 3629's own table of what is well-formed, checked over all code points and all short byte strings. */
static void test_utf8(void **state)
{
    (void)state;
    size_t valid = 0;
    for (uint32_t word = 0; word < 1 << 24; word++) {
        char bytes[4] = { (char)(word >> 16), (char)(word >> 8), (char)word, (char)0xbf };
        valid += utf8_length(sv_of(bytes, 3)) == 3;
    }
    assert_int_equal(valid, 0x10000 - 0x800 - 0x800);
    assert_int_equal(utf8_length(SV("\xf0\x90\x80\x80")), 4);
    assert_int_equal(utf8_length(SV("\xf4\x8f\xbf\xbf")), 4);
    const sv bad[] = {
        SV(""),         SV("\x80"),     SV("\xc0\x80"),         SV("\xc1\xbf"),         SV("\xf0\x8f\xbf\xbf"),
        SV("\xe0\x9f"), SV("\xf0\x9f"), SV("\xf4\x90\x80\x80"), SV("\xf5\x80\x80\x80"), SV("\xed\xa0\x80")
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (utf8_length(bad[i]) != 0)
            fail_msg("case %zu is a character", i);
    assert_true(utf8_valid(SV("")));
    assert_true(utf8_valid(SV("a\xc3\xa9z")));
    assert_false(utf8_valid(SV("a\xc3")));
}

static void test_arena(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    for (size_t size = 0; size < 5000; size += 7) {
        char *p = arena_alloc(&arena, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(uint64_t), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        if (size > 0)
            memset(p, 0xff, size);
    }
    char *large = arena_alloc(&arena, 1 << 20);
    assert_non_null(large);
    memset(large, 1, 1 << 20);
    sv copy = arena_copy(&arena, SV("hello"));
    assert_string_equal(copy.ptr, "hello");
    assert_int_equal(copy.len, 5);
    copy = arena_copy(&arena, (sv){ NULL, 0 });
    assert_non_null(copy.ptr);
    assert_null(arena_alloc(&arena, SIZE_MAX - 8));
    assert_null(arena_array(&arena, SIZE_MAX / 4, 8));
    arena_done(&arena);
    arena_done(&arena);
    arena_done(NULL);
}

static void test_errors(void **state)
{
    (void)state;
    struct weir_error error;
    assert_int_equal(err_set(&error, WEIR_E_CELLS, "%s: %d", "file", 7), WEIR_E_CELLS);
    assert_int_equal(error.code, WEIR_E_CELLS);
    assert_string_equal(error.text, "file: 7");
    assert_int_equal(err_set(NULL, WEIR_E_INVALID, "nobody listens"), WEIR_E_INVALID);
    for (int i = 0; i < 6; i++) { /* cut between characters */
        char text[WEIR_ERROR_MAX + 20];
        int n = snprintf(text, sizeof text, "%.*s", i, "abcdef");
        while (n + 4 < (int)sizeof text)
            n += snprintf(text + n, sizeof text - (size_t)n, "\u20ac");
        err_set(&error, WEIR_E_CELLS, "%s", text);
        assert_true(utf8_valid(weir_str(error.text)));
        assert_true(strlen(error.text) >= sizeof error.text - 4);
    }
    assert_string_equal(err_text(WEIR_E_NO_MEMORY), "out of memory");
    assert_string_equal(err_text(WEIR_OK), "no error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),  cmocka_unit_test(test_maximum), cmocka_unit_test(test_room),
        cmocka_unit_test(test_over),   cmocka_unit_test(test_numbers), cmocka_unit_test(test_json),
        cmocka_unit_test(test_shown),  cmocka_unit_test(test_utf8),    cmocka_unit_test(test_arena),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
