/* The pages and the examples: every block of rules in them must read without errors or advice, but for the reminder that
 * each rule with plans by a header gets. */
#include <glob.h>

#include "helpers.h"

static const char *root = ".";

static struct buf file_text(const char *path)
{
    struct buf text;
    buf_init(&text, 16 << 20);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buf_add(&text, sv_of(chunk, n));
    fclose(file);
    assert_false(text.failed);
    return text;
}

static void expect_clean(sv text, const char *path, int line)
{
    struct reading r = reading_of(text);
    size_t reminders = 0;
    for (size_t i = 0; i < r.report.advice_count; i++)
        reminders += sv_starts(r.report.advice[i].text, SV("plan: whoever can send the header "));
    if (r.report.error_count + r.report.advice_count > reminders)
        print_error("%s, block in line %d:\n%s\n", path, line, r.text.ptr);
    assert_int_equal(r.report.error_count + r.report.advice_count, reminders);
    reading_done(&r);
}

/* A block of yaml that begins with `rules:` or `settings:`, a block of json that begins with `{` and has one of them. */
static bool is_rules(sv language, sv block)
{
    if (sv_eq(language, SV("yaml")))
        return sv_starts(block, SV("rules:")) || sv_starts(block, SV("settings:"));
    bool names = memmem(block.ptr, block.len, "\"rules\"", 7) || memmem(block.ptr, block.len, "\"settings\"", 10);
    return sv_eq(language, SV("json")) && sv_starts(block, SV("{")) && names;
}

static int check_page(const char *path)
{
    struct buf text = file_text(path);
    int checked = 0, number = 0, start = 0;
    sv language = { 0 }, block = { 0 };
    bool inside = false;
    for (sv rest = buf_sv(&text); rest.len > 0;) {
        sv line = sv_cut(&rest, '\n');
        number++;
        if (!sv_starts(line, SV("```")))
            continue;
        if (inside) {
            block.len = (size_t)(line.ptr - block.ptr);
            if (is_rules(language, block)) {
                expect_clean(block, path, start);
                checked++;
            }
        } else {
            language = sv_from(line, 3);
            block = rest;
            start = number + 1;
        }
        inside = !inside;
    }
    buf_done(&text);
    return checked;
}

static void pages_have_good_rules(void **state)
{
    (void)state;
    char pattern[4096];
    glob_t pages = { 0 };
    snprintf(pattern, sizeof pattern, "%s/docs/*.md", root);
    assert_int_equal(glob(pattern, 0, NULL, &pages), 0);
    snprintf(pattern, sizeof pattern, "%s/*.md", root);
    glob(pattern, GLOB_APPEND, NULL, &pages);
    int of_reference = 0;
    for (size_t i = 0; i < pages.gl_pathc; i++) {
        int count = check_page(pages.gl_pathv[i]);
        if (strstr(pages.gl_pathv[i], "/docs/rules.md"))
            of_reference = count;
    }
    assert_true(of_reference >= 10);
    globfree(&pages);
}

static void examples_are_good(void **state)
{
    (void)state;
    char pattern[4096];
    glob_t files = { 0 };
    snprintf(pattern, sizeof pattern, "%s/examples/*.yaml", root);
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct buf text = file_text(files.gl_pathv[i]);
        expect_clean(buf_sv(&text), files.gl_pathv[i], 1);
        buf_done(&text);
    }
    globfree(&files);
}

/* The root of the tree is the argument. */
int main(int argc, char **argv)
{
    if (argc > 1)
        root = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_have_good_rules),
        cmocka_unit_test(examples_are_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
