/* Reading an access log ahead: the same lines in the same order as one after another, whatever their lengths, and a thread
 * that ends when it has to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "cli/read_ahead.h"
#include "engine/handle.h"

enum { LINES = 30000, LONG = 700000 };

static char path[] = "/tmp/weir-ahead-XXXXXX";
static struct weir *weir;

static int setup(void **state)
{
    (void)state;
    struct weir_options options = { .size = sizeof options,
                                    .cells_keys = 1000,
                                    .rules_text =
                                        "rules:\n"
                                        "  - { id: all, by: [ip], limits: [5 per 1m] }\n"
                                        "  - { id: odd, match: { path: /odd }, by: [ip], limits: [5 per 1m] }\n" };
    struct weir_error error;
    int fd = mkstemp(path);
    return fd < 0 || close(fd) < 0 || weir_open_with(&weir, &options, NULL, false, &error) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    weir_close(weir);
    return unlink(path);
}

/* Line `number` of the log; some are bad, blank, very long, or end in CRLF. */
static void write_line(gzFile file, unsigned number)
{
    const char *end = number % 5 ? "\n" : "\r\n";
    if (number % 1000 == 7)
        assert_true(gzprintf(file, "junk %u%s", number, end) > 0);
    else if (number % 1000 == 8)
        assert_true(gzprintf(file, " %s", end) > 0);
    else
        assert_true(gzprintf(file,
                             "10.0.%u.%u - u%u [10/Oct/2020:13:%02u:36 +0000] \"GET %s HTTP/1.1\" 200 1 \"-\" \"a\"%s",
                             number / 250, number % 250, number, number % 60, number % 2 ? "/odd" : "/even",
                             number % 10000 == 9 ? " " : end) > 0);
    for (unsigned i = 0; number % 10000 == 9 && i < LONG; i += 10)
        assert_int_equal(gzwrite(file, i + 10 < LONG ? "zzzzzzzzzz" : "zzzzzzzzz\n", 10), 10);
}

static void write_log(const char *mode)
{
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    for (unsigned number = 1; number <= LINES; number++)
        write_line(file, number);
    assert_int_equal(gzclose(file), Z_OK);
}

static void check_line(const struct log_block *block, const struct log_line *line, unsigned number)
{
    char user[20], ip[20];
    assert_int_equal(line->number, number);
    if (number % 1000 == 7) {
        assert_non_null(line->why);
        return;
    }
    snprintf(user, sizeof user, "u%u", number);
    snprintf(ip, sizeof ip, "10.0.%u.%u", number / 250, number % 250);
    assert_null(line->why);
    assert_true(sv_eq(line->request.user, weir_str(user)));
    assert_true(sv_eq(line->request.ip, weir_str(ip)));
    assert_int_equal(line->rule_count, 1 + number % 2);
    assert_int_equal(block->rules[line->first_rule], 0);
    assert_false(line->unreadable);
}

static unsigned next_number(unsigned number)
{
    return ++number % 1000 == 8 ? number + 1 : number;
}

static void read_all(void)
{
    struct input input;
    unsigned number = 0;
    assert_true(input_open(&input, path));
    struct read_ahead *ahead = read_ahead_start(&input, weir->current);
    assert_non_null(ahead);
    for (bool ended = false; !ended;) {
        const struct read_block *block = read_ahead_next(ahead);
        for (size_t i = 0; i < block->log.count; i++)
            check_line(&block->log, &block->log.lines[i], number = next_number(number));
        ended = block->ended;
        assert_null(block->why);
    }
    assert_int_equal(number, LINES);
    read_ahead_stop(ahead);
    input_close(&input);
}

static void test_all_lines(void **state)
{
    (void)state;
    static const char *const modes[] = { "wbT", "wb1" };
    for (size_t i = 0; i < 2; i++) {
        write_log(modes[i]);
        read_all();
    }
}

/* The caller wants no more, while all blocks are full. */
static void test_stop_full(void **state)
{
    (void)state;
    struct input input;
    write_log("wbT");
    assert_true(input_open(&input, path));
    struct read_ahead *ahead = read_ahead_start(&input, weir->current);
    assert_non_null(ahead);
    assert_int_equal(read_ahead_next(ahead)->log.lines[0].number, 1);
    read_ahead_stop(ahead);
    input_close(&input);
}

/* The caller wants no more, while nobody writes to the pipe that the thread reads. */
static void test_stop_pipe(void **state)
{
    (void)state;
    struct input input;
    int ends[2], before = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    assert_true(input_open(&input, "-"));
    struct read_ahead *ahead = read_ahead_start(&input, weir->current);
    assert_non_null(ahead);
    assert_int_equal(write(ends[1], "x", 1), 1);
    read_ahead_stop(ahead);
    input_close(&input);
    dup2(before, STDIN_FILENO);
    close(before);
    close(ends[0]);
    close(ends[1]);
}

/* A line that cannot be read is reported after the lines before it. */
static void test_cut_off(void **state)
{
    (void)state;
    struct input input;
    write_log("wb9");
    assert_int_equal(truncate(path, 50000), 0);
    assert_true(input_open(&input, path));
    struct read_ahead *ahead = read_ahead_start(&input, weir->current);
    assert_non_null(ahead);
    uint64_t last = 0;
    const struct read_block *block;
    do {
        block = read_ahead_next(ahead);
        last = block->log.count ? block->log.lines[block->log.count - 1].number : last;
    } while (!block->ended);
    assert_string_equal(block->why, "the gzip file is cut off");
    assert_true(last > 100);
    assert_true(block->failed_line > last && block->failed_line <= last + 2);
    read_ahead_stop(ahead);
    input_close(&input);
}

static void test_too_long(void **state)
{
    (void)state;
    enum { PIECE = 1 << 20, PIECES = 140 };
    struct input input;
    char *piece = calloc(1, PIECE);
    assert_non_null(piece);
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    write_line(file, 1);
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(gzwrite(file, piece, PIECE), PIECE);
    assert_int_equal(gzclose(file), Z_OK);
    free(piece);
    assert_true(input_open(&input, path));
    struct read_ahead *ahead = read_ahead_start(&input, weir->current);
    assert_non_null(ahead);
    const struct read_block *block = read_ahead_next(ahead);
    assert_int_equal(block->log.count, 1);
    check_line(&block->log, &block->log.lines[0], 1);
    block = read_ahead_next(ahead);
    assert_true(block->ended);
    assert_int_equal(block->failed_line, 2);
    assert_string_equal(block->why, "the line is longer than 64 MiB");
    read_ahead_stop(ahead);
    input_close(&input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_lines), cmocka_unit_test(test_stop_full), cmocka_unit_test(test_stop_pipe),
        cmocka_unit_test(test_cut_off),   cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
