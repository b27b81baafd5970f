/* Options: defaults, flags, the file, and what is said of a wrong one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "serve/config.h"

enum { WORDS_MAX = 16 };

static char file[] = "/tmp/weir-config-XXXXXX";

static void write_file(const char *text)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

/* Words end with NULL. */
static int read_words(struct config *ret, struct weir_error *error, const char *const *words)
{
    char *argv[WORDS_MAX] = { (char *)"serve" };
    int argc = 1;
    while (words[argc - 1]) {
        argv[argc] = (char *)words[argc - 1];
        argc++;
    }
    return config_read(ret, argc, argv, error);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static struct config good(const char *const *words)
{
    struct config config;
    struct weir_error error = { 0 };
    if (read_words(&config, &error, words) < 0)
        fail_msg("%s", error.text);
    return config;
}

static void is_bad(const char *const *words, const char *expected)
{
    struct config config = { .data = (char *)"as it was" };
    struct weir_error error = { 0 };
    if (read_words(&config, &error, words) == 0)
        fail_msg("taken, and not: %s", expected);
    assert_string_equal(error.text, expected);
    assert_string_equal(config.data, "as it was");
}

static void is_bad_file(const char *text, const char *expected)
{
    char sentence[600];
    write_file(text);
    snprintf(sentence, sizeof sentence, "%s:%s", file, expected);
    is_bad(WORDS("--config", file), sentence);
}

static void test_defaults(void **state)
{
    (void)state;
    struct config config = good(WORDS());
    assert_null(config.config);
    assert_string_equal(config.data, "./weir-data");
    assert_null(config.rules);
    assert_null(config.cells);
    assert_int_equal(config.cells_keys, 786432);
    assert_int_equal(config.poll_ms, 1000);
    assert_string_equal(config.http, "127.0.0.1:8080");
    assert_string_equal(config.resp, "127.0.0.1:6380");
    assert_string_equal(config.admin, "127.0.0.1:8081");
    assert_int_equal(config.threads, 0);
    assert_null(config.token_file);
    assert_null(config.user_header);
    assert_null(config.admin_hosts);
    assert_int_equal(config.connections, 16000);
    assert_int_equal(config.connections_per_address, 4000);
    assert_int_equal(config.idle_ms, 60000);
    assert_int_equal(config.request_ms, 10000);
    assert_int_equal(config.drain_ms, 10000);
    assert_int_equal(config.request_bytes, 1 << 20);
    assert_int_equal(config.header_bytes, 8 << 10);
    assert_int_equal(config.pipeline_bytes, 1 << 20);
    assert_int_equal(config.log, CONFIG_LOG_PLAIN);
    assert_int_equal(config.log_refusals, 10);
    config_done(&config);
    config_done(NULL);
}

static void test_flags(void **state)
{
    (void)state;
    struct config config = good(WORDS("--http=[::1]:0", "--resp", "unix:/run/weir.sock", "--admin", "off", "--log", "json",
                                      "--user-header", "X-User", "--rules=sqlite:a=b.db"));
    assert_string_equal(config.http, "[::1]:0");
    assert_string_equal(config.resp, "unix:/run/weir.sock");
    assert_string_equal(config.admin, "off");
    assert_int_equal(config.log, CONFIG_LOG_JSON);
    assert_string_equal(config.user_header, "X-User");
    assert_string_equal(config.rules, "sqlite:a=b.db");
    config_done(&config);
}

static void test_amounts(void **state)
{
    (void)state;
    static const struct {
        const char *flag;
        size_t offset;
        unsigned value;
    } cases[] = {
        { "--idle=500ms", offsetof(struct config, idle_ms), 500 },
        { "--idle=2s", offsetof(struct config, idle_ms), 2000 },
        { "--idle=3m", offsetof(struct config, idle_ms), 180000 },
        { "--idle=24h", offsetof(struct config, idle_ms), 86400000 },
        { "--idle=1d", offsetof(struct config, idle_ms), 86400000 },
        { "--drain=0s", offsetof(struct config, drain_ms), 0 },
        { "--connections=1", offsetof(struct config, connections), 1 },
        { "--log-refusals=0", offsetof(struct config, log_refusals), 0 },
        { "--header-bytes=32k", offsetof(struct config, header_bytes), 32768 },
        { "--header-bytes=1M", offsetof(struct config, header_bytes), 1048576 },
        { "--header-bytes=4096", offsetof(struct config, header_bytes), 4096 },
        { "--cells-keys=2m", offsetof(struct config, cells_keys), 2000000 },
        { "--cells-keys=1g", offsetof(struct config, cells_keys), 1000000000 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config = good(WORDS(cases[i].flag));
        assert_int_equal(*(unsigned *)((char *)&config + cases[i].offset), cases[i].value);
        config_done(&config);
    }
}

#define SEE "; see 'weir serve --help'"

static void test_wrong_flags(void **state)
{
    (void)state;
    is_bad(WORDS("--frobnicate", "x"), "unknown option --frobnicate" SEE);
    is_bad(WORDS("--htpp=off"), "unknown option --htpp (did you mean --http?)" SEE);
    is_bad(WORDS("-x"), "unknown option -x" SEE);
    is_bad(WORDS("--"), "unknown option --" SEE);
    is_bad(WORDS("--help=x"), "--help takes no value" SEE);
    is_bad(WORDS("--http"), "--http needs a value (ADDR)" SEE);
    is_bad(WORDS("--idle", "2s", "--idle=3s"), "--idle is given twice; leave out one" SEE);
    is_bad(WORDS("mysql://ann:secret@h/db"), "unexpected argument 'mysql'; a value follows the name of its option" SEE);
    is_bad(WORDS("--rules="), "--rules: has 0 bytes; allowed: 1 to 4095 bytes" SEE);
    is_bad(WORDS("--log=xml"), "--log: 'xml' is not allowed here; allowed: plain|json" SEE);
    is_bad(WORDS("--user-header", "X User"),
           "--user-header: 'X User' is not allowed here; allowed: the name of a header, such as X-User-Id" SEE);
    is_bad(WORDS("--resp", "redis.example.com:6380"),
           "--resp: 'redis.example.com:6380' is not allowed here; allowed: HOST:PORT (HOST an IP address, localhost or *; "
           "IPv6 in brackets), unix:PATH or off" SEE);
    is_bad(WORDS("--http", "redis://:secret@h:1"),
           "--http: '***' is not allowed here; allowed: HOST:PORT (HOST an IP address, "
           "localhost or *; IPv6 in brackets), unix:PATH or off" SEE);
    is_bad(WORDS("--http=off", "--resp=off", "--admin=off"),
           "--http, --resp, --grpc and --admin are all off, so no client could connect; leave out one");
}

static void test_out_of_bounds(void **state)
{
    (void)state;
#define TIMES ", with ms, s, m, h or d after the number" SEE
#define SIZES "; k, m or g may follow the number" SEE
    is_bad(WORDS("--idle=60"), "--idle: '60' is not allowed here; allowed: 100ms to 1d" TIMES);
    is_bad(WORDS("--idle=99ms"), "--idle: '99ms' is not allowed here; allowed: 100ms to 1d" TIMES);
    is_bad(WORDS("--idle=25h"), "--idle: '25h' is not allowed here; allowed: 100ms to 1d" TIMES);
    is_bad(WORDS("--idle=2S"), "--idle: '2S' is not allowed here; allowed: 100ms to 1d" TIMES);
    is_bad(WORDS("--idle=-1s"), "--idle: '-1s' is not allowed here; allowed: 100ms to 1d" TIMES);
    is_bad(WORDS("--drain=s"), "--drain: 's' is not allowed here; allowed: 0ms to 1h" TIMES);
    is_bad(WORDS("--idle=99999999999999999999h"),
           "--idle: '99999999999999999999h' is not allowed here; allowed: 100ms to 1d" TIMES);
    is_bad(WORDS("--request-bytes=65m"), "--request-bytes: '65m' is not allowed here; allowed: 1k to 64m" SIZES);
    is_bad(WORDS("--request-bytes=1t"), "--request-bytes: '1t' is not allowed here; allowed: 1k to 64m" SIZES);
    is_bad(WORDS("--cells-keys=0"), "--cells-keys: '0' is not allowed here; allowed: 1 to 50g" SIZES);
    is_bad(WORDS("--threads=257"), "--threads: '257' is not allowed here; allowed: 0 to 256" SEE);
    is_bad(WORDS("--connections=1k"), "--connections: '1k' is not allowed here; allowed: 1 to 1000000" SEE);
}

static void test_file(void **state)
{
    (void)state;
    write_file("# of the tests\nhttp: off\nidle: 5s\nlog: json\nthreads: 2\n\"data\": '/var/lib/weir'\n");
    struct config config = good(WORDS("--config", file, "--idle=7s"));
    assert_string_equal(config.http, "off");
    assert_int_equal(config.idle_ms, 7000);
    assert_int_equal(config.log, CONFIG_LOG_JSON);
    assert_int_equal(config.threads, 2);
    assert_string_equal(config.data, "/var/lib/weir");
    assert_string_equal(config.config, file);
    config_done(&config);

    write_file("# nothing yet\n");
    config = good(WORDS("--config", file));
    assert_int_equal(config.idle_ms, 60000);
    config_done(&config);
}

static void test_wrong_files(void **state)
{
    (void)state;
    is_bad(WORDS("--config", "/nonexistent/weir.yaml"),
           "/nonexistent/weir.yaml: cannot be read: No such file or directory");
    is_bad_file("http: off\n\nhtpp: off\n", "3: unknown option htpp (did you mean http?)");
    is_bad_file("http: off\nidle: 5\n",
                "2: idle: '5' is not allowed here; allowed: 100ms to 1d, with ms, s, m, h or d after the number");
    is_bad_file("idle: 5s\nidle: 5s\n", "2: idle is given twice; leave out one");
    is_bad_file("http: [off]\n", "1: http: must be one value, not a list or mapping");
    is_bad_file("http:\n", "1: http: has no value; leave out the line for the default");
    is_bad_file("config: other.yaml\n",
                "1: a configuration file cannot name another one; --config is for the command line");
    is_bad_file("- http\n", "1: not a list of options; each line is NAME: VALUE");
    is_bad_file("http\n", "1: not a list of options; each line is NAME: VALUE");
    is_bad_file("[a]: b\n", "1: not the name of an option");
}

/* A flag wins over the file, but does not hide that the file is wrong. */
static void test_wrong_file_beneath_a_flag(void **state)
{
    (void)state;
    char expected[200];
    write_file("idle: 5\n");
    snprintf(expected, sizeof expected,
             "%s:1: idle: '5' is not allowed here; allowed: 100ms to 1d, with ms, s, m, h or d after the number", file);
    is_bad(WORDS("--config", file, "--idle=5s"), expected);
}

static void test_not_yaml(void **state)
{
    (void)state;
    struct config config;
    struct weir_error error = { 0 };
    write_file("http: off\nidle: {\n");
    assert_int_equal(read_words(&config, &error, WORDS("--config", file)), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "not YAML"));
    assert_ptr_equal(strstr(error.text, file), error.text);
}

static void exchange(struct config *config, const char *text, const char *live, const char *restart)
{
    char *argv[] = { (char *)"serve", (char *)"--config", file, (char *)"--request=3s" };
    struct config fresh;
    struct config_changes changes;
    struct weir_error error = { 0 };
    write_file(text);
    assert_int_equal(config_read(&fresh, 4, argv, &error), 0);
    config_exchange(config, &fresh, &changes);
    assert_string_equal(changes.live, live);
    assert_string_equal(changes.restart, restart);
    config_done(&fresh);
}

static void test_reload(void **state)
{
    (void)state;
    const char *before = "idle: 5s\nthreads: 2\n";
    write_file(before);
    struct config config = good(WORDS("--config", file, "--request=3s"));
    exchange(&config, before, "", "");
    exchange(&config, "idle: 6s\nthreads: 3\nhttp: off\nlog: json\ntoken-file: /t\nrequest: 1s\n", "token-file, idle, log",
             "http, threads");
    assert_int_equal(config.idle_ms, 6000);
    assert_int_equal(config.request_ms, 3000);
    assert_int_equal(config.threads, 2);
    assert_int_equal(config.log, CONFIG_LOG_JSON);
    assert_string_equal(config.http, "127.0.0.1:8080");
    assert_string_equal(config.token_file, "/t");
    exchange(&config, "", "token-file, idle, log", "threads");
    assert_null(config.token_file);
    config_done(&config);
}

/* What turns out to be unusable is taken back. */
static void test_back_and_forth(void **state)
{
    (void)state;
    struct config config = good(WORDS("--idle=5s")), fresh = good(WORDS("--token-file=/t", "--idle=6s", "--threads=2"));
    struct config_changes changes;
    config_exchange(&config, &fresh, &changes);
    assert_string_equal(config.token_file, "/t");
    config_exchange(&config, &fresh, &changes);
    assert_string_equal(changes.live, "token-file, idle");
    assert_null(config.token_file);
    assert_int_equal(config.idle_ms, 5000);
    assert_string_equal(fresh.token_file, "/t");
    config_done(&config);
    config_done(&fresh);
}

/* What --help, the manual and the tables rely on. */
static void test_table(void **state)
{
    (void)state;
    size_t all = CONFIG_NAMES_MAX - 1;
    for (const struct config_option *option = config_options; option->name; option++) {
        assert_true(strspn(option->name, "abcdefghijklmnopqrstuvwxyz-") == strlen(option->name));
        assert_true(option->help[0] && option->argument[0]);
        assert_true(option->help[strlen(option->help) - 1] != '.');
        if (option->text[0])
            assert_int_equal(option->text[strlen(option->text) - 1], '.');
        assert_true(option->min <= option->max);
        assert_true(strlen(option->name) + 2 < all);
        all -= strlen(option->name) + 2;
    }
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_flags),
        cmocka_unit_test(test_amounts),        cmocka_unit_test(test_wrong_flags),
        cmocka_unit_test(test_out_of_bounds),  cmocka_unit_test(test_file),
        cmocka_unit_test(test_wrong_files),    cmocka_unit_test(test_wrong_file_beneath_a_flag),
        cmocka_unit_test(test_not_yaml),       cmocka_unit_test(test_reload),
        cmocka_unit_test(test_back_and_forth), cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
