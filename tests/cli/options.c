/* Options: one table for reading and for --help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "cli/options.h"

struct values {
    bool flag;
    const char *text;
    int choice;
    uint64_t number;
    uint64_t size, count, length, bare;
    int64_t when;
    struct option_list list;
};

static const struct option options[] = {
    { "flag", NULL, OPTION_FLAG, offsetof(struct values, flag), "a flag" },
    { "text", "FILE", OPTION_TEXT, offsetof(struct values, text),
      "a text with enough words in its help to need a second line of it" },
    { "choice", "one|two|three", OPTION_CHOICE, offsetof(struct values, choice), "a choice" },
    { "number", "N", OPTION_NUMBER, offsetof(struct values, number), "a number" },
    { "size", "N", OPTION_SIZE, offsetof(struct values, size), "a size", .min = 1 },
    { "count", "N", OPTION_COUNT, offsetof(struct values, count), "a count", .min = 1 },
    { "length", "TIME", OPTION_LENGTH, offsetof(struct values, length), "a length", .min = 100, .max = 86400000 },
    { "bare", "TIME", OPTION_LENGTH, offsetof(struct values, bare), "a length", .min = 1000, .max = 3600000, .bare = 1000 },
    { "when", "TIME", OPTION_TIME, offsetof(struct values, when), "an instant" },
    { "list", "X", OPTION_LIST, offsetof(struct values, list), "a list" },
    { 0 },
};

static const struct command command = {
    .name = "try", .usage = "[OPTION]...", .text = "Tries.", .footer = "Done.", .options = options
};

static struct values values;
static char *words[80];
static size_t count;
static char said[4096];

/* Reads `line`, split at blanks; what goes to stderr (or stdout) lands in `said`. */
static int read_line(const char *line, FILE **stream)
{
    static char copy[1024];
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    words[0] = copy;
    for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[argc++] = word;
    values = (struct values){ 0 };
    FILE *file = tmpfile(), *old = *stream;
    assert_non_null(file);
    fflush(old);
    *stream = file;
    int status = options_read(&command, argc, words, &values, &count);
    *stream = old;
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return status;
}

static int parse(const char *line)
{
    return read_line(line, &stderr);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(
        parse("--flag --text a --choice=two --number 4294967295 --size 3k --count=3k --when 5 --list a --list=b=c"), -1);
    assert_true(values.flag);
    assert_string_equal(values.text, "a");
    assert_int_equal(values.choice, 1);
    assert_int_equal(values.number, UINT32_MAX);
    assert_int_equal(values.size, 3 * 1024);
    assert_int_equal(values.count, 3000);
    assert_int_equal(values.when, 5000);
    assert_int_equal(values.list.count, 2);
    assert_string_equal(values.list.items[1], "b=c");
    assert_int_equal(count, 0);
    assert_string_equal(said, "");
    assert_int_equal(parse("--size 2G --count 7M --text="), -1);
    assert_int_equal(values.size, UINT64_C(2) << 30);
    assert_int_equal(values.count, 7000000);
    assert_string_equal(values.text, "");
    assert_int_equal(parse("--length 1d --bare 3600"), -1);
    assert_int_equal(values.length, 86400000);
    assert_int_equal(values.bare, 3600000);
    assert_int_equal(parse("--length=90s --bare 2m"), -1);
    assert_int_equal(values.length, 90000);
    assert_int_equal(values.bare, 120000);
    assert_int_equal(parse("--flag --flag --list a --list a"), -1);
    assert_int_equal(values.list.count, 2);
    assert_int_equal(parse("--text --flag"), -1);
    assert_string_equal(values.text, "--flag");
    assert_false(values.flag);
}

static void test_arguments(void **state)
{
    (void)state;
    assert_int_equal(parse("a --flag - -- --text -x"), -1);
    assert_int_equal(count, 4);
    assert_string_equal(words[0], "a");
    assert_string_equal(words[1], "-");
    assert_string_equal(words[2], "--text");
    assert_string_equal(words[3], "-x");
    assert_true(values.flag);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        { "--nope", "weir try: unknown option --nope; see 'weir try --help'\n" },
        { "--nope=1", "unknown option --nope;" },
        { "--lenght=1s", "unknown option --lenght (did you mean --length?); see" },
        { "-x", "unknown option -x;" },
        { "--flag=1", "--flag takes no value" },
        { "--text", "--text needs a value (FILE)" },
        { "--choice four", "--choice: 'four' is not allowed here; allowed: one|two|three" },
        { "--choice=", "--choice: ''" },
        { "--number -1", "--number: '-1' is not allowed here; allowed: 0 to 4294967295" },
        { "--number 4294967296", "--number: '4294967296'" },
        { "--size 0", "--size: '0'" },
        { "--size k", "--size: 'k'" },
        { "--size 99999999999999999999g", "--size: " },
        { "--size 18446744073709551615k", "--size: " },
        { "--text a --text b", "weir try: --text is given twice; leave out one; see" },
        { "--choice one --choice=one", "--choice is given twice" },
        { "--number 1 --flag --number=1", "--number is given twice" },
        { "--size 1 --count 1 --size 1", "--size is given twice" },
        { "--length 1000",
          "--length: '1000' is not allowed here; allowed: 100ms to 1d, with ms, s, m, h or d after the number" },
        { "--length 99ms", "allowed: 100ms to 1d" },
        { "--length 2d", "allowed: 100ms to 1d" },
        { "--length 060s", "allowed: 100ms to 1d" },
        { "--length 1M", "allowed: 100ms to 1d" },
        { "--length ms", "allowed: 100ms to 1d" },
        { "--length=", "allowed: 100ms to 1d" },
        { "--length 99999999999999999999d", "allowed: 100ms to 1d" },
        { "--bare 0", "allowed: 1s to 1h" },
        { "--bare 3601", "allowed: 1s to 1h" },
        { "--when 1 --when 1", "--when is given twice" },
        { "--when tomorrow", "--when: 'tomorrow' is not allowed here; allowed: RFC 3339" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(cases[i].line), EXIT_BAD);
        if (!strstr(said, cases[i].part))
            fail_msg("%s: %s", cases[i].line, said);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    }
    char many[1024] = "";
    for (int i = 0; i <= OPTION_LIST_MAX; i++)
        strcat(many, "--list=x ");
    assert_int_equal(parse(many), EXIT_BAD);
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(read_line("--help", &stdout), 0);
    assert_non_null(strstr(said, "Usage: weir try [OPTION]...\n\nTries.\n\nOptions:\n"));
    for (const struct option *o = options; o->name; o++)
        assert_non_null(strstr(said, o->name));
    for (const struct option *o = options; o->name; o++)
        assert_non_null(strstr(said, o->name));
    assert_non_null(strstr(said, "--text FILE           a text with"));
    assert_non_null(strstr(said, "\n\nDone.\n"));
    for (char *save, *part = strtok_r(said, "\n", &save); part; part = strtok_r(NULL, "\n", &save))
        assert_true(strlen(part) <= 80);
    assert_int_equal(read_line("--flag -h", &stdout), 0);
}

static void test_wrap(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    options_wrap("First.\n\n"
                 "  word   what stands behind it goes on below itself, for as many lines as it takes to say it all\n"
                 "End.",
                 0, file);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(said, "First.\n\n"
                              "  word   what stands behind it goes on below itself, for as many lines as it\n"
                              "         takes to say it all\n"
                              "End.\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_arguments), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_help),   cmocka_unit_test(test_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
