/* Reading commands and writing replies, whatever the pieces in which they come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/resp.h"

enum { MOST = 4096, TEXT_MAX = 2048 };

/* The command as one text, its words in brackets; or what is wrong with it. */
static enum resp_parsed parse(sv bytes, size_t most, char text[TEXT_MAX], size_t *ret_bytes)
{
    static struct resp_command command;
    char *copy = malloc(bytes.len + 1); /* of the very size: whatever is read beyond it is noticed */
    assert_non_null(copy);
    char *exact = realloc(copy, bytes.len ? bytes.len : 1);
    if (bytes.len)
        memcpy(exact, bytes.ptr, bytes.len);
    enum resp_parsed r = resp_parse(exact, bytes.len, most, &command);
    size_t len = 0;
    text[0] = '\0';
    if (r == RESP_WHOLE)
        for (size_t i = 0; i < command.count && len < TEXT_MAX - 1; i++)
            len += (size_t)snprintf(text + len, TEXT_MAX - len, "[%.*s]", SV_FMT(command.args[i]));
    else if (r == RESP_WRONG)
        snprintf(text, TEXT_MAX, "%s", command.wrong);
    *ret_bytes = command.bytes;
    free(exact);
    return r;
}

static void expect_whole(sv bytes, const char *wanted)
{
    char text[TEXT_MAX];
    size_t used;
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(parse(sv_of(bytes.ptr, n), MOST, text, &used), RESP_PARTIAL);
    assert_int_equal(parse(bytes, MOST, text, &used), RESP_WHOLE);
    assert_string_equal(text, wanted);
    assert_int_equal(used, bytes.len);
    /* And with something behind it. */
    char more[TEXT_MAX];
    memcpy(more, bytes.ptr, bytes.len);
    memcpy(more + bytes.len, "*1\r\n", 4);
    assert_int_equal(parse(sv_of(more, bytes.len + 4), MOST, text, &used), RESP_WHOLE);
    assert_string_equal(text, wanted);
    assert_int_equal(used, bytes.len);
}

/* Wrong as soon as `bytes` are there, whatever follows. */
static void expect_wrong(sv bytes, const char *wanted)
{
    char text[TEXT_MAX];
    size_t used;
    if (bytes.len > 1)
        assert_int_equal(parse(sv_of(bytes.ptr, bytes.len - 1), MOST, text, &used), RESP_PARTIAL);
    assert_int_equal(parse(bytes, MOST, text, &used), RESP_WRONG);
    assert_string_equal(text, wanted);
}

static void arrays(void **state)
{
    (void)state;
    expect_whole(SV("*1\r\n$4\r\nPING\r\n"), "[PING]");
    expect_whole(SV("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"), "[ECHO][]");
    expect_whole(SV("*3\r\n$10\r\nWEIR.CHECK\r\n$3\r\nkey\r\n$4\r\na\r\nb\r\n"), "[WEIR.CHECK][key][a\r\nb]");
    expect_whole(SV("*0\r\n"), "");
    expect_whole(SV("*-1\r\n"), "");
    expect_whole(SV("*02\r\n$01\r\na\r\n$1\r\nb\r\n"), "[a][b]");
}

static void lines(void **state)
{
    (void)state;
    expect_whole(SV("PING\r\n"), "[PING]");
    expect_whole(SV("PING\n"), "[PING]");
    expect_whole(SV("\r\n"), "");
    expect_whole(SV("\n"), "");
    expect_whole(SV("weir.check  event\tocr \r\n"), "[weir.check][event][ocr]");
    expect_whole(SV("echo \"a b\" ''\n"), "[echo][a b][]");
    expect_whole(SV("echo \"\\x41\\n\\\"\\q\\xg\"\n"), "[echo][A\n\"qxg]");
    expect_whole(SV("echo 'it\\'s' 'a\\nb'\n"), "[echo][it's][a\\nb]");
    expect_whole(SV("echo a\"b c\"\n"), "[echo][ab c]");
    expect_whole(SV("echo gr\xc3\xbcn\n"), "[echo][gr\xc3\xbcn]");
}

static void wrong_arrays(void **state)
{
    (void)state;
    expect_wrong(SV("*x"), "invalid multibulk length");
    expect_wrong(SV("*\r"), "invalid multibulk length");
    expect_wrong(SV("*1\rx"), "invalid multibulk length");
    expect_wrong(SV("*1 "), "invalid multibulk length");
    expect_wrong(SV("*123456789012"), "invalid multibulk length");
    expect_wrong(SV("*1025\r\n"), "invalid multibulk length: at most 1024");
    expect_wrong(SV("*1000000\r\n"), "invalid multibulk length: at most 1024");
    expect_wrong(SV("*1\r\n:"), "expected '$', got ':'");
    expect_wrong(SV("*1\r\n\x01"), "expected '$', got byte 0x01");
    expect_wrong(SV("*1\r\n$-1\r\n"), "invalid bulk length");
    expect_wrong(SV("*1\r\n$\r"), "invalid bulk length");
    expect_wrong(SV("*1\r\n$1000000000\r\n"), "invalid bulk length: the whole command is too large");
    expect_wrong(SV("*1\r\n$999999999999"), "invalid bulk length");
    expect_wrong(SV("*1\r\n$1\r\nabc"), "expected a line end after a bulk string");
}

static void wrong_lines(void **state)
{
    (void)state;
    expect_wrong(SV("\x16"), "expected '*' or the name of a command, got byte 0x16");
    expect_wrong(SV("$"), "expected '*' or the name of a command, got byte 0x24");
    expect_wrong(SV("\xff"), "expected '*' or the name of a command, got byte 0xff");
    expect_wrong(SV("ping\x01\n"), "a control character in an inline request");
    expect_wrong(SV("ping\rping\n"), "a control character in an inline request");
    expect_wrong(SV("echo \"a\n"), "unbalanced quotes in request");
    expect_wrong(SV("echo \"a\"b\n"), "unbalanced quotes in request");
    expect_wrong(SV("echo 'a\n"), "unbalanced quotes in request");
    expect_wrong(SV("echo \"a\\\n"), "unbalanced quotes in request");
}

/* What is too large is turned down before it is there. */
static void bounds(void **state)
{
    (void)state;
    static char long_line[RESP_INLINE_MAX + 1];
    char text[TEXT_MAX];
    size_t used;
    memset(long_line, 'a', sizeof long_line);
    assert_int_equal(parse(sv_of(long_line, MOST - 1), MOST, text, &used), RESP_PARTIAL);
    assert_int_equal(parse(sv_of(long_line, MOST), MOST, text, &used), RESP_WRONG);
    assert_string_equal(text, "too big inline request");
    assert_int_equal(parse(sv_of(long_line, RESP_INLINE_MAX), 1 << 20, text, &used), RESP_WRONG);

    static char many[3 * RESP_ARGS_MAX];
    for (size_t i = 0; i < sizeof many; i += 2)
        memcpy(many + i, "a ", 2);
    many[2 * RESP_ARGS_MAX] = '\n';
    assert_int_equal(parse(sv_of(many, sizeof many), MOST, text, &used), RESP_WHOLE);
    many[2 * RESP_ARGS_MAX] = 'a';
    many[2 * RESP_ARGS_MAX + 1] = '\n';
    assert_int_equal(parse(sv_of(many, sizeof many), MOST, text, &used), RESP_WRONG);

    sv whole = SV("*2\r\n$4\r\necho\r\n$3\r\nabc\r\n");
    assert_int_equal(parse(whole, whole.len, text, &used), RESP_WHOLE);
    assert_int_equal(parse(whole, 20, text, &used), RESP_WRONG);
    assert_int_equal(parse(sv_of(whole.ptr, 18), 20, text, &used), RESP_WRONG);
}

static void http(void **state)
{
    (void)state;
    static const char *const begins[] = {
        "GET ",    "POST / HTTP/1.1\r\n", "post ", "Put ",    "DELETE\t",        "HEAD ", "OPTIONS ", "CONNECT ", "PATCH ",
        "TRACE\r", "PRI * HTTP",          "Host:", "hOsT: x", "Content-Length:", "get\n"
    };
    char text[TEXT_MAX];
    size_t used;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        assert_int_equal(parse(weir_str(begins[i]), MOST, text, &used), RESP_HTTP);
    assert_int_equal(parse(SV("GETX a\n"), MOST, text, &used), RESP_WHOLE);
    assert_int_equal(parse(SV("echo host: x\n"), MOST, text, &used), RESP_WHOLE);
    assert_int_equal(parse(SV("*1\r\n$4\r\nPOST\r\n"), MOST, text, &used), RESP_WHOLE);
}

/* ---- replies ---- */

static void expect_out(struct resp_out *out, const char *wanted)
{
    assert_false(out->failed);
    assert_int_equal(out->len, strlen(wanted));
    assert_memory_equal(out->ptr, wanted, out->len);
    out->len = 0;
}

static void replies(void **state)
{
    (void)state;
    struct resp_out out = { .protocol = 2 };
    resp_status(&out, "OK");
    resp_error(&out, "ERR no '%s'\r\n", "a\nb");
    expect_out(&out, "+OK\r\n-ERR no 'a b'\r\n");
    /* What a client sent goes back to its terminal, or to a reader that wants UTF-8. */
    resp_error(&out, "ERR no '%s'", "a\x1b[31m\xff\u202e\u20ac\xc2\x9b");
    expect_out(&out, "-ERR no 'a?[31m??\u20ac?'\r\n");
    resp_integer(&out, 0);
    resp_integer(&out, -1);
    resp_integer(&out, INT64_MIN);
    resp_integer(&out, INT64_MAX);
    expect_out(&out, ":0\r\n:-1\r\n:-9223372036854775808\r\n:9223372036854775807\r\n");
    resp_array(&out, 2);
    resp_text(&out, "");
    resp_null(&out);
    resp_map(&out, 1);
    resp_bulk(&out, SV("a\r\n"));
    expect_out(&out, "*2\r\n$0\r\n\r\n$-1\r\n*2\r\n$3\r\na\r\n\r\n");
    out.protocol = 3;
    resp_map(&out, 1);
    resp_null(&out);
    expect_out(&out, "%1\r\n_\r\n");
    resp_error(&out, "%s", "");
    expect_out(&out, "-\r\n");
    resp_out_done(&out);
    resp_out_done(NULL);
}

static void replies_grow(void **state)
{
    (void)state;
    struct resp_out out = { .protocol = 2 };
    for (int i = 0; i < 100000; i++)
        resp_integer(&out, i % 10);
    assert_int_equal(out.len, 400000);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(out.ptr[4 * i + 1], '0' + i % 10);
    resp_out_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays), cmocka_unit_test(lines), cmocka_unit_test(wrong_arrays), cmocka_unit_test(wrong_lines),
        cmocka_unit_test(bounds), cmocka_unit_test(http),  cmocka_unit_test(replies),      cmocka_unit_test(replies_grow),
    };
    return cmocka_run_group_tests_name("resp", tests, NULL, NULL);
}
