/* Opening a handle: what is refused and how it is said, what two handles share. */
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "helpers.h"

#define RULES "rules: [{ id: a, by: [key], limits: [{ algorithm: fixed_window, max: 5, per: 1h }] }]"

static int try_open(struct weir_options options, struct weir_error *error)
{
    struct weir *weir = (struct weir *)&options;
    memset(error, 0, sizeof *error);
    int r = weir_open(&weir, &options, error);
    if (r < 0) {
        assert_int_equal(error->code, r);
        assert_ptr_equal(weir, (struct weir *)&options); /* written only on success */
        assert_true(strlen(error->text) > 0);
    } else {
        weir_close(weir);
    }
    return r;
}

static void wrong_options(void **state)
{
    (void)state;
    enum { SIZE = sizeof(struct weir_options) };
    struct weir_error error;
    struct weir *weir;
    assert_int_equal(weir_open(&weir, NULL, &error), WEIR_E_INVALID);
    assert_int_equal(try_open((struct weir_options){ .rules_text = RULES }, &error), WEIR_E_INVALID);
    assert_string_equal(error.text, "options.size must be sizeof(struct weir_options)");
    assert_int_equal(try_open((struct weir_options){ .size = SIZE + 1, .rules_text = RULES }, &error), WEIR_E_INVALID);
    assert_int_equal(try_open((struct weir_options){ .size = 1, .rules_text = RULES }, &error), WEIR_E_INVALID);
    assert_int_equal(try_open((struct weir_options){ .size = SIZE }, &error), WEIR_E_INVALID);
    assert_non_null(strstr(error.text, "rules_file or options.rules_text"));
    assert_int_equal(try_open((struct weir_options){ .size = SIZE, .rules_text = RULES, .rules_file = "x" }, &error),
                     WEIR_E_INVALID);
    assert_int_equal(
        try_open((struct weir_options){ .size = SIZE, .rules_text = RULES, .cells_keys = 1, .cells_bytes = 1 }, &error),
        WEIR_E_INVALID);
    assert_int_equal(try_open((struct weir_options){ .size = SIZE, .rules_text = RULES, .watch_ms = 1 }, &error),
                     WEIR_E_INVALID);
    assert_int_equal(try_open((struct weir_options){ .size = SIZE, .rules_text = RULES, .cells_keys = UINT64_MAX }, &error),
                     WEIR_E_INVALID);
    /* Nobody need ask why. */
    assert_int_equal(weir_open(&weir, &(struct weir_options){ .size = SIZE }, NULL), WEIR_E_INVALID);
    weir_close(NULL);
}

/* A program that was built when the structure ended earlier. */
static void options_of_an_older_header(void **state)
{
    (void)state;
    struct {
        struct weir_options options;
    } old;
    struct weir_error error;
    struct weir *weir;
    static const size_t sizes[] = { offsetof(struct weir_options, cells_file), offsetof(struct weir_options, watch_ms),
                                    offsetof(struct weir_options, on_rules), offsetof(struct weir_options, cells_memory) };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(&old, 0xff, sizeof old);
        memset(&old, 0, sizes[i]);
        old.options.size = sizes[i];
        old.options.rules_text = RULES;
        assert_int_equal(weir_open(&weir, &old.options, &error), 0);
        assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 5);
        weir_close(weir);
    }
}

static void rules_that_cannot_be_had(void **state)
{
    (void)state;
    enum { SIZE = sizeof(struct weir_options) };
    struct weir_error error;
    struct folder folder;
    folder_make(&folder);
    char cells[300], rules[300];
    snprintf(cells, sizeof cells, "%s", folder_file(&folder, "cells"));
    snprintf(rules, sizeof rules, "%s", folder_file(&folder, "rules.yaml"));
    struct weir_options options = { .size = SIZE, .rules_file = rules, .cells_file = cells, .cells_keys = 100 };
    assert_int_equal(try_open(options, &error), WEIR_E_SYSTEM);
    assert_non_null(strstr(error.text, rules));
    assert_non_null(strstr(error.text, "No such file"));
    write_file(rules, "");
    assert_int_equal(try_open(options, &error), WEIR_E_RULES);
    assert_non_null(strstr(error.text, "is empty"));
    options.rules_file = folder.path;
    assert_int_equal(try_open(options, &error), WEIR_E_SYSTEM);
    /* Nothing was made on the way. */
    assert_int_equal(access(cells, F_OK), -1);
    folder_remove(&folder, (const char *const[]){ "rules.yaml", NULL });
}

static void all_errors_with_their_lines(void **state)
{
    (void)state;
    struct weir_error error;
    struct weir_options options = { .size = sizeof options,
                                    .rules_text = "settings:\n"
                                                  "  color: red\n"
                                                  "rules:\n"
                                                  "  - id: a\n"
                                                  "    limits: [ten per 1s]\n"
                                                  "  - id: a\n"
                                                  "    limits: [1 per 1s]\n"
                                                  "  - id: b\n"
                                                  "    by: [key]\n" };
    assert_int_equal(try_open(options, &error), WEIR_E_RULES);
    const char *line2 = strstr(error.text, "rules:2: "), *line5 = strstr(error.text, "rules:5: rule a: "),
               *line6 = strstr(error.text, "rules:6: rule a: "), *line8 = strstr(error.text, "rules:8: rule b: ");
    assert_ptr_equal(line2, error.text);
    assert_true(line2 < line5 && line5 < line6 && line6 < line8);
}

static void more_errors_than_fit(void **state)
{
    (void)state;
    char text[20000] = "rules:\n";
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "  - { id: rule-%d, limits: [bad] }\n", i);
    struct weir_error error;
    assert_int_equal(try_open((struct weir_options){ .size = sizeof(struct weir_options), .rules_text = text }, &error),
                     WEIR_E_RULES);
    assert_non_null(strstr(error.text, "rules:2: rule rule-0: "));
    const char *end = strstr(error.text, "\n… 100 errors in all");
    assert_non_null(end);
    assert_string_equal(end, "\n… 100 errors in all");
    /* One line that alone is too long is cut. */
    snprintf(text, sizeof text, "rules:\n  - { id: a, limits: [1 per 1s], %0990d: 1, x: 2 }\n", 1);
    assert_int_equal(try_open((struct weir_options){ .size = sizeof(struct weir_options), .rules_text = text }, &error),
                     WEIR_E_RULES);
    assert_non_null(strstr(error.text, "rules:2: rule a: "));
}

static void text_up_to_its_length(void **state)
{
    (void)state;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULES "garbage", .rules_text_len = strlen(RULES) });
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 5);
    weir_close(weir);
}

static void cells_that_cannot_be_had(void **state)
{
    (void)state;
    struct weir_error error;
    struct folder folder;
    folder_make(&folder);
    const char *foreign = folder_file(&folder, "foreign");
    write_file(foreign, "this is no cells file");
    struct weir_options options = { .size = sizeof options, .rules_text = RULES, .cells_file = foreign };
    assert_int_equal(try_open(options, &error), WEIR_E_CELLS);
    assert_non_null(strstr(error.text, foreign));
    options.cells_file = "/nonexistent/folder/cells";
    assert_int_equal(try_open(options, &error), WEIR_E_SYSTEM);
    folder_remove(&folder, (const char *const[]){ "foreign", NULL });
}

static void two_handles_on_a_file_count_together(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    struct weir_options options = { .rules_text = RULES, .cells_file = folder_file(&folder, "cells"), .cells_keys = 100 };
    struct weir *first = open_with(options), *second = open_with(options);
    assert_int_equal(passes(first, one("e", "k"), NOW, 2), 2);
    assert_int_equal(passes(second, one("e", "k"), NOW, 9), 3);
    EXPECT(first, one("e", "k"), NOW, "refuse 429 a/fixed_window 0 of 5, reset 3600000, retry 3600000");
    weir_close(first);
    weir_close(second);
    /* And the counts outlive both. */
    struct weir *third = open_with(options);
    assert_int_equal(passes(third, one("e", "k"), NOW, 9), 0);
    weir_close(third);
    /* Two tables in memory have nothing to do with each other. */
    first = open_rules(RULES);
    second = open_rules(RULES);
    assert_int_equal(passes(first, one("e", "k"), NOW, 9), 5);
    assert_int_equal(passes(second, one("e", "k"), NOW, 9), 5);
    weir_close(first);
    weir_close(second);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

static void two_processes_on_a_file_count_together(void **state)
{
    (void)state;
    struct folder folder;
    folder_make(&folder);
    struct weir_options options = { .rules_text = RULES, .cells_file = folder_file(&folder, "cells"), .cells_keys = 100 };
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct weir *weir = open_with(options);
            unsigned passed = passes(weir, one("e", "k"), NOW, 2);
            weir_close(weir);
            _exit((int)passed);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 2);
    }
    struct weir *weir = open_with(options);
    assert_int_equal(passes(weir, one("e", "k"), NOW, 9), 1);
    weir_close(weir);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

/* ---- a table in the caller's memory ---- */

enum { MEMORY_BYTES = 64 << 10 };

static void *shared_memory(void)
{
    void *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void memory_that_cannot_be_used(void **state)
{
    (void)state;
    char *memory = shared_memory();
    struct weir_error error;
    struct weir_options options = {
        .size = sizeof options, .rules_text = RULES, .cells_memory = memory, .cells_memory_bytes = MEMORY_BYTES
    };
    struct weir_options file = options, keys = options, bytes = options, misaligned = options, small = options;
    file.cells_file = "cells";
    keys.cells_keys = 1000;
    bytes.cells_bytes = MEMORY_BYTES;
    misaligned.cells_memory = memory + 8;
    small.cells_memory_bytes = 100;
    const struct weir_options bad[] = { file, keys, bytes, misaligned, small };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(try_open(bad[i], &error), WEIR_E_INVALID);
    /* None of them has touched it. */
    for (size_t i = 0; i < MEMORY_BYTES; i++)
        assert_int_equal(memory[i], 0);
    assert_int_equal(try_open(options, &error), 0);
    options.cells_memory_bytes = MEMORY_BYTES / 2;
    assert_int_equal(try_open(options, &error), WEIR_E_CELLS);
    /* A mistake in the rules leaves the memory as it was, too. */
    memset(memory, 0, MEMORY_BYTES);
    options.rules_text = "rules: [";
    assert_int_equal(try_open(options, &error), WEIR_E_RULES);
    assert_int_equal(memory[0], 0);
    munmap(memory, MEMORY_BYTES);
}

static void handles_on_one_memory_count_together(void **state)
{
    (void)state;
    struct weir_options options = { .rules_text = RULES,
                                    .cells_memory = shared_memory(),
                                    .cells_memory_bytes = MEMORY_BYTES };
    struct weir *first = open_with(options), *second = open_with(options);
    struct weir_status status;
    weir_status(first, &status);
    assert_in_range(status.bytes, MEMORY_BYTES - 8192, MEMORY_BYTES - 1);
    assert_int_equal(passes(first, one("e", "k"), NOW, 2), 2);
    assert_int_equal(passes(second, one("e", "k"), NOW, 1), 1);
    weir_close(first);
    /* One that inherits a handle, and one that opens its own. */
    for (int own = 0; own < 2; own++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit((int)passes(own ? open_with(options) : second, one("e", "k"), NOW, 1));
        int ended;
        assert_int_equal(waitpid(pid, &ended, 0), pid);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
    }
    assert_int_equal(passes(second, one("e", "k"), NOW, 9), 0);
    weir_close(second);
    /* And the counts outlive all of them. */
    struct weir *third = open_with(options);
    assert_int_equal(passes(third, one("e", "k"), NOW, 9), 0);
    weir_close(third);
    munmap(options.cells_memory, MEMORY_BYTES);
}

static void trusted_proxies_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = { "10.0.0.0/33",  "10.0.0",     "proxy.example",
                                       "10.0.0.0/8 x", "::1,nobody", "10.0.0.0/8;::1" };
    struct weir_error error;
    struct weir_options options = { .size = sizeof options, .rules_text = RULES };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.trusted_proxies = bad[i];
        assert_int_equal(try_open(options, &error), WEIR_E_INVALID);
        assert_non_null(strstr(error.text, "a trusted proxy must be an address or a network"));
    }
    assert_non_null(strstr(error.text, "not `10.0.0.0/8;::1`"));
    options.trusted_proxies = " ,\n10.0.0.0/8 ,, fd00::/8\t127.0.0.1, ";
    assert_int_equal(try_open(options, &error), 0);
}

/* never_wait: nobody asks a store for them; and slices have to be put where somebody else can. */
static void rules_that_would_wait(void **state)
{
    (void)state;
    struct weir_error error;
    struct folder folder;
    folder_make(&folder);
    struct weir_options options = { .size = sizeof options, .rules_text = RULES, .never_wait = true };
    assert_int_equal(try_open(options, &error), 0);
    options.rules_text = "rules:\n- { id: a, counters: shared, limits: [\"5 per 1h\"] }";
    assert_int_equal(try_open(options, &error), WEIR_E_RULES);
    assert_non_null(strstr(error.text, "rules:2: rule a counts in the store"));
    options.rules_text = "rules:\n- { id: b, lease: true, limits: [5 per day] }";
    assert_int_equal(try_open(options, &error), WEIR_E_RULES);
    assert_non_null(strstr(error.text, "rules:2: rule b is leased, and the cells here are in memory"));
    options.cells_file = folder_file(&folder, "cells");
    assert_int_equal(try_open(options, &error), 0);
    options = (struct weir_options){ .size = sizeof options, .rules_text = options.rules_text };
    assert_int_equal(try_open(options, &error), 0);
    folder_remove(&folder, (const char *const[]){ "cells", NULL });
}

static void the_size_of_the_table(void **state)
{
    (void)state;
    struct weir_status status;
    struct weir *weir = open_with((struct weir_options){ .rules_text = RULES, .cells_keys = 3000 });
    weir_status(weir, &status);
    assert_in_range(status.cells, 4000, 4016);
    assert_int_equal(status.bytes, status.cells * 32);
    weir_close(weir);
    weir = open_with((struct weir_options){ .rules_text = RULES, .cells_bytes = 64 << 10 });
    weir_status(weir, &status);
    assert_int_equal(status.bytes, 64 << 10);
    weir_close(weir);
    struct weir_options options = { .size = sizeof options, .rules_text = RULES };
    assert_int_equal(weir_open(&weir, &options, NULL), 0);
    weir_status(weir, &status);
    assert_int_equal(status.cells, 1048576);
    assert_int_equal(status.rules, 1);
    assert_int_equal(status.drops, 0);
    assert_false(status.rules_bad);
    weir_close(weir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(options_of_an_older_header),
        cmocka_unit_test(rules_that_cannot_be_had),
        cmocka_unit_test(all_errors_with_their_lines),
        cmocka_unit_test(more_errors_than_fit),
        cmocka_unit_test(text_up_to_its_length),
        cmocka_unit_test(cells_that_cannot_be_had),
        cmocka_unit_test(two_handles_on_a_file_count_together),
        cmocka_unit_test(two_processes_on_a_file_count_together),
        cmocka_unit_test(memory_that_cannot_be_used),
        cmocka_unit_test(handles_on_one_memory_count_together),
        cmocka_unit_test(trusted_proxies_that_are_none),
        cmocka_unit_test(rules_that_would_wait),
        cmocka_unit_test(the_size_of_the_table),
    };
    return cmocka_run_group_tests_name("engine/open", tests, NULL, NULL);
}
