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
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
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
    assert_string_equal(err_text(WEIR_E_NO_MEMORY), "out of memory");
    assert_string_equal(err_text(WEIR_OK), "no error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),   cmocka_unit_test(test_maximum), cmocka_unit_test(test_over),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_json),    cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_arena),   cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
