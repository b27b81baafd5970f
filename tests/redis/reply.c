/* Replies, whole and in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "redis/reply.h"

static struct reply r;

static ssize_t parse(const char *text)
{
    return reply_parse(weir_str(text), &r);
}

static void each_kind(void **state)
{
    (void)state;
    assert_int_equal(parse("+OK\r\n+more"), 5);
    assert_int_equal(r.kind, REPLY_STATUS);
    assert_true(sv_eq(r.text, SV("OK")));
    assert_int_equal(parse("-ERR no\r\n"), 9);
    assert_int_equal(r.kind, REPLY_ERROR);
    assert_true(sv_eq(r.text, SV("ERR no")));
    assert_int_equal(parse(":-42\r\n"), 6);
    assert_int_equal(r.kind, REPLY_INTEGER);
    assert_int_equal(r.integer, -42);
    assert_int_equal(parse(":-9223372036854775808\r\n"), 23);
    assert_true(r.integer == INT64_MIN);
    assert_int_equal(parse(":9223372036854775807\r\n"), 22);
    assert_true(r.integer == INT64_MAX);
    assert_int_equal(parse("$4\r\n\r\nab\r\n"), 10);
    assert_int_equal(r.kind, REPLY_BULK);
    assert_true(sv_eq(r.text, SV("\r\nab")));
    assert_int_equal(parse("$0\r\n\r\n"), 6);
    assert_int_equal(r.kind, REPLY_BULK);
    assert_int_equal(r.text.len, 0);
    assert_int_equal(parse("$-1\r\n"), 5);
    assert_int_equal(r.kind, REPLY_NULL);
    assert_int_equal(parse("*-1\r\n"), 5);
    assert_int_equal(r.kind, REPLY_NULL);
    assert_int_equal(parse("*0\r\n"), 4);
    assert_int_equal(r.kind, REPLY_ARRAY);
    assert_false(reply_next(&r, &r));
}

static void arrays_are_walked(void **state)
{
    (void)state;
    struct reply inner, element;
    assert_int_equal(parse("*3\r\n:1\r\n*2\r\n$1\r\na\r\n+b\r\n$-1\r\n"), 28);
    assert_int_equal(r.count, 3);
    assert_true(reply_next(&r, &element));
    assert_int_equal(element.integer, 1);
    assert_true(reply_next(&r, &inner));
    assert_int_equal(inner.kind, REPLY_ARRAY);
    assert_true(reply_next(&inner, &element) && sv_eq(element.text, SV("a")));
    assert_true(reply_next(&inner, &element) && sv_eq(element.text, SV("b")));
    assert_false(reply_next(&inner, &element));
    assert_true(reply_next(&r, &element));
    assert_int_equal(element.kind, REPLY_NULL);
    assert_false(reply_next(&r, &element));
}

static void wrong_ones_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "OK\r\n",
        " +OK\r\n",
        "+O\nK\r\n",
        "+OK\rx",
        ":\r\n",
        ":x\r\n",
        ":1 \r\n",
        ":--1\r\n",
        "$-2\r\n",
        "*-2\r\n",
        "$1\r\nab\r",
        "$1\r\na\rx",
        "$x\r\n",
        "$99999999999\r\n",
        "*99999999999\r\n",
        "_\r\n",
        "*1\r\n?",
        ":9223372036854775808\r\n",
        ":11111111111111111111111",
        "$1\r\nab",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (parse(wrong[i]) != -1)
            fail_msg("taken: %s", wrong[i]);
    assert_int_equal(parse("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), 36);
    static char long_line[100000] = "-";
    memset(long_line + 1, 'x', sizeof long_line - 2);
    assert_int_equal(parse(long_line), -1);
}

/* Whatever is cut off, it is not whole yet; and it is never read beyond its end. */
static void cut_anywhere(const char *text, size_t len)
{
    for (size_t n = 0; n < len; n++) {
        char *part = malloc(n + 1);
        memcpy(part, text, n);
        char *exact = realloc(part, n ? n : 1);
        assert_int_equal(reply_parse(sv_of(exact, n), &r), 0);
        free(exact);
    }
    assert_int_equal(reply_parse(sv_of(text, len), &r), len);
}

static unsigned seed = 7;

static unsigned pick(unsigned n)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % n;
}

static size_t write_random(char *to, unsigned depth)
{
    unsigned kind = pick(depth < 4 ? 6 : 4), n = pick(5);
    size_t len;
    switch (kind) {
    case 0:
        return (size_t)sprintf(to, "+%.*s\r\n", (int)n, "words");
    case 1:
        return (size_t)sprintf(to, "-ERR %.*s\r\n", (int)n, "words");
    case 2:
        return (size_t)sprintf(to, ":%d\r\n", (int)pick(100000) - 50000);
    case 3:
        return (size_t)sprintf(to, pick(4) ? "$%u\r\n%.*s\r\n" : "$-1\r\n", n, (int)n, "\r\n\r\n\r\n");
    default:
        len = (size_t)sprintf(to, "*%u\r\n", n);
        while (n-- > 0)
            len += write_random(to + len, depth + 1);
        return len;
    }
}

static void pieces_are_not_whole(void **state)
{
    (void)state;
    static char text[1 << 16];
    for (int i = 0; i < 300; i++) {
        size_t len = write_random(text, 0);
        cut_anywhere(text, len < 2000 ? len : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind),
        cmocka_unit_test(arrays_are_walked),
        cmocka_unit_test(wrong_ones_are_refused),
        cmocka_unit_test(pieces_are_not_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
