/* The text of the rules in force, which only a file has while no rule changes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/kept_text.h"
#include "source/source.h"

#define HEAD "# Kept.\n"
#define ONE "{ id: a, limits: [1 per 1s] }"
#define TWO ONE ", { id: b, limits: [2 per 1s] }"

static struct weir_error error;
static char folder[100], path[120];

/* The text of these rules, made with the help of the one that was kept before. */
static struct kept_text text_of(const char *yaml, struct kept_text *before)
{
    struct rules_report report;
    struct kept_text kept = { 0 };
    struct rules *rules = rules_read(weir_str(yaml), &report);
    assert_non_null(rules);
    assert_int_equal(report.error_count, 0);
    assert_true(rules_text_write(&kept.text, rules, &before->text));
    rules_report_done(&report);
    rules_free(rules);
    return kept;
}

static void expect_text(const struct kept_text *kept, const char *yaml)
{
    struct kept_text none = { 0 }, fresh = text_of(yaml, &none);
    assert_non_null(kept->text.text.ptr);
    assert_string_equal(kept->text.text.ptr, fresh.text.text.ptr);
    kept_text_done(&fresh);
}

static void write_text(struct kept_text *kept)
{
    assert_int_equal(kept_text_write(kept, path, SV(HEAD), &error), 0);
}

static void only_the_file_has_it(void **state)
{
    struct kept_text none = { 0 }, kept = text_of("rules: [" TWO "]", &none);
    struct file_version version;
    struct buf file;
    (void)state;
    expect_text(&kept, "rules: [" TWO "]");
    write_text(&kept);
    assert_null(kept.text.text.ptr);
    buf_init(&file, RULES_BYTES_MAX);
    assert_int_equal(rules_file_read(path, &file, &version, &error), 0);
    for (int i = 0; i < 2; i++) {
        kept_text_load(&kept, path);
        expect_text(&kept, "rules: [" TWO "]");
        assert_int_equal(file.len, strlen(HEAD) + kept.text.text.len);
        assert_string_equal(file.ptr + strlen(HEAD), kept.text.text.ptr);
        kept_text_load(&kept, path);
        kept_text_unload(&kept);
        assert_null(kept.text.text.ptr);
    }
    buf_done(&file);
    kept_text_done(&kept);
}

static void a_text_without_a_file_stays(void **state)
{
    struct kept_text none = { 0 }, kept = text_of("rules: [" ONE "]", &none);
    (void)state;
    kept_text_unload(&kept);
    kept_text_load(&kept, path);
    expect_text(&kept, "rules: [" ONE "]");
    assert_true(kept_text_write(&kept, "/nowhere/at/all", SV(HEAD), &error) < 0);
    expect_text(&kept, "rules: [" ONE "]");
    /* The file has an earlier text, and cannot be written any more. */
    write_text(&kept);
    kept_text_load(&kept, path);
    assert_true(kept_text_write(&kept, "/nowhere/at/all", SV(HEAD), &error) < 0);
    kept_text_unload(&kept);
    expect_text(&kept, "rules: [" ONE "]");
    kept_text_done(&kept);
    kept_text_load(&none, path);
    kept_text_unload(&none);
    assert_null(none.text.rules);
}

/* Somebody changes the file, and it may look like the one that was written. */
static void overwrite(const char *bytes, size_t len)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void a_file_that_was_changed_is_not_used(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct kept_text none = { 0 }, kept = text_of("rules: [" TWO "]", &none);
        write_text(&kept);
        usleep(20000); /* a file's time is that of a tick of the kernel */
        if (how == 0)
            overwrite("# Other\n", strlen(HEAD));
        else if (how == 1)
            assert_int_equal(truncate(path, 20), 0);
        else if (how == 2)
            assert_int_equal(unlink(path), 0);
        else
            assert_int_equal(source_write_file(path, SV(HEAD), SV("rules: []\n"), &error), 0);
        kept_text_load(&kept, path);
        assert_null(kept.text.rules);
        assert_null(kept.text.text.ptr);
        /* The next one is written whole. */
        struct kept_text next = text_of("rules: [" ONE "]", &kept);
        expect_text(&next, "rules: [" ONE "]");
        write_text(&next);
        kept_text_done(&next);
        kept_text_done(&kept);
    }
}

/* Two services with one data folder: each writes the file, and never takes the text of the other one for its own. */
static _Atomic bool stop;

static void *write_other(void *data)
{
    struct weir_error why;
    (void)data;
    while (!stop) {
        struct kept_text none = { 0 }, kept = text_of("rules: [{ id: a, limits: [2 per 1s] }]", &none);
        kept_text_write(&kept, path, SV(HEAD), &why);
        kept_text_done(&kept);
    }
    return NULL;
}

static void a_file_of_another_service_is_not_used(void **state)
{
    enum { ROUNDS = 5000 };
    pthread_t thread;
    (void)state;
    stop = false;
    assert_int_equal(pthread_create(&thread, NULL, write_other, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct kept_text none = { 0 }, kept = text_of("rules: [" ONE "]", &none);
        write_text(&kept);
        kept_text_load(&kept, path);
        if (kept.text.rules)
            expect_text(&kept, "rules: [" ONE "]");
        kept_text_done(&kept);
    }
    stop = true;
    pthread_join(thread, NULL);
}

static int make_folder(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/weir-kept-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/rules.last.yaml", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_the_file_has_it, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_text_without_a_file_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_was_changed_is_not_used, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_of_another_service_is_not_used, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
