/* Lines of a file, plain and compressed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "cli/input.h"

static char path[] = "/tmp/weir-input-XXXXXX";

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *mode, const char *text, size_t len)
{
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)len), len);
    assert_int_equal(gzclose(file), Z_OK);
}

static void assert_line(struct input *input, const char *expected)
{
    char *line;
    size_t len;
    assert_int_equal(input_next(input, &line, &len), 1);
    if (!sv_eq(sv_of(line, len), weir_str(expected)))
        fail_msg("'%.*s' is not '%s'", (int)len, line, expected);
}

static void test_lines(void **state)
{
    (void)state;
    static const char text[] = "one\n\r\ntwo\r\nthree";
    static const char *const modes[] = { "wbT", "wb9" };
    for (size_t i = 0; i < 2; i++) {
        struct input input;
        char *line;
        size_t len;
        write_file(modes[i], text, sizeof text - 1);
        assert_true(input_open(&input, path));
        assert_line(&input, "one");
        assert_line(&input, "");
        assert_line(&input, "two");
        assert_line(&input, "three");
        assert_int_equal(input.line, 4);
        assert_int_equal(input_next(&input, &line, &len), 0);
        assert_int_equal(input_next(&input, &line, &len), 0);
        assert_true(input_progress(&input) > 0.99);
        input_close(&input);
    }
}

static void test_long_lines(void **state)
{
    (void)state;
    enum { LEN = 3000000 };
    char *text = malloc(LEN + 4);
    assert_non_null(text);
    memset(text, 'x', LEN);
    memcpy(text + LEN, "\nab\n", 4);
    write_file("wb", text, LEN + 4);
    struct input input;
    char *line;
    size_t len;
    assert_true(input_open(&input, path));
    assert_int_equal(input_next(&input, &line, &len), 1);
    assert_int_equal(len, LEN);
    assert_memory_equal(line, text, LEN);
    assert_line(&input, "ab");
    assert_int_equal(input_next(&input, &line, &len), 0);
    input_close(&input);
    free(text);
}

static void test_trouble(void **state)
{
    (void)state;
    struct input input;
    char *line;
    size_t len;
    assert_false(input_open(&input, "/nonexistent/file"));
    assert_string_equal(input.why, "No such file or directory");
    assert_false(input_open(&input, "/tmp"));
    assert_string_equal(input.why, "Is a directory");
    char text[10000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * i % 251 + (i * 7919 >> 5) % 31);
    write_file("wb9", text, sizeof text);
    assert_int_equal(truncate(path, 3000), 0);
    assert_true(input_open(&input, path));
    int more;
    while ((more = input_next(&input, &line, &len)) > 0)
        continue;
    assert_int_equal(more, -1);
    assert_string_equal(input.why, "the gzip file is cut off");
    input_close(&input);
    input_close(NULL);
}

static void test_empty(void **state)
{
    (void)state;
    struct input input;
    char *line;
    size_t len;
    assert_int_equal(truncate(path, 0), 0);
    assert_true(input_open(&input, path));
    assert_int_equal(input_next(&input, &line, &len), 0);
    assert_true(input_progress(&input) < 0);
    input_close(&input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_trouble),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
