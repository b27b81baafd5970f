/* Several files, read as one: the order of their rules, whose line an error names, and what a folder stands for. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helpers.h"
#include "rules/included.h"

static char folder[200];

static const char *at(const char *name)
{
    static char paths[4][300];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/weir-include-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    return mkdir(at("d"), 0700);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

struct whole {
    struct included included;
    struct reading reading;
};

static struct whole read_whole(const char *text)
{
    struct whole w;
    put("top.yaml", text);
    w.reading.rules = rules_read_file(weir_str(text), at("top.yaml"), &w.included, &w.reading.report);
    assert_non_null(w.reading.rules);
    buf_init(&w.reading.text, 1 << 20);
    buf_add(&w.reading.text, SV(""));
    rules_report_print(&w.reading.report, SV("top"), true, &w.reading.text);
    return w;
}

static void whole_done(struct whole *w)
{
    included_done(&w->included);
    reading_done(&w->reading);
}

/* Reports name files by their paths: `want` has no folder. */
static void expect_whole(const char *text, const char *ids, const char *want)
{
    struct whole w = read_whole(text);
    char got[2000] = "", *name;
    for (size_t i = 0; i < w.reading.rules->rule_count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), " %.*s", SV_FMT(w.reading.rules->rules[i]->id));
    assert_string_equal(got, ids);
    struct buf report;
    buf_init(&report, 1 << 20);
    buf_add(&report, SV(""));
    for (const char *c = w.reading.text.ptr; *c; c = name ? name + strlen(folder) + 1 : c + strlen(c)) {
        name = strstr(c, folder);
        buf_add(&report, name ? sv_of(c, (size_t)(name - c)) : weir_str(c));
    }
    assert_string_equal(report.ptr, want);
    buf_done(&report);
    whole_done(&w);
}

#define RULE(id) "  - { id: " id ", limits: 1 per 1s }\n"
#define DENY(user) "  - { rule: a, by: { user: " user " }, deny: true }\n"

static void rules_of_all_files(void **state)
{
    (void)state;
    put("one.yaml", "rules:\n" RULE("one"));
    put("two.json",
        "{\"include\": \"d\", \"rules\": [{\"id\": \"two\", \"limits\": \"1 per 1s\"}], \"problems\": [\"p\"]}");
    put("d/b.yml", "rules:\n" RULE("b"));
    put("d/a.yaml", "rules:\n" RULE("a1") RULE("a2"));
    put("d/B.json", "{\"rules\": [{\"id\": \"B\", \"limits\": \"1 per 1s\"}], \"settings\": {\"ipv6_prefix\": 48}}");
    put("d/.c.yaml", "nonsense");
    put("d/c.yaml~", "nonsense");
    put("d/.yaml", "nonsense");
    mkdir(at("d/e.yaml"), 0700);
    expect_whole("include: [ one.yaml, ./two.json ]\nrules:\n" RULE("top") "problems: [ q ]\n", " top one two B a1 a2 b",
                 "");
    struct whole w = read_whole("include: two.json\n");
    assert_int_equal(w.reading.rules->settings.ipv6_prefix, 48);
    assert_int_equal(w.reading.rules->rules[3]->line, 3);
    assert_true(sv_eq(w.reading.rules->rules[3]->kind->rest->file, weir_str(at("d/a.yaml"))));
    /* Rules of one file share what says so; those of others do not. */
    assert_ptr_equal(w.reading.rules->rules[2]->kind->rest, w.reading.rules->rules[3]->kind->rest);
    assert_ptr_not_equal(w.reading.rules->rules[1]->kind->rest, w.reading.rules->rules[2]->kind->rest);
    assert_int_equal(w.reading.rules->problem_count, 1);
    assert_int_equal(w.included.count, 5);
    whole_done(&w);
    char text[400];
    snprintf(text, sizeof text, "include: %s\nrules: []\n", at("d/a.yaml"));
    expect_whole(text, " a1 a2", "");
    rmdir(at("d/e.yaml"));
}

static void errors_name_their_file(void **state)
{
    (void)state;
    put("one.yaml",
        "\nrules:\n  - id: a\n    limits: x\n" RULE("top") RULE("b") "  - { id: c, limits: 1 per 1s, mode: x }\n");
    expect_whole("include: one.yaml\nrules:\n" RULE("top") "  - 7\n", " top b",
                 "top:4: rule #2: must be a mapping (field: value), not 7\n"
                 "one.yaml:4: rule a: limits: must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", "
                 "\"1000 tokens per 1m\" or \"10 concurrent\", not \"x\" "
                 "(lengths: ms, s, m, h, d; calendar: minute, hour, day, week, month, year)\n"
                 "one.yaml:5: rule top: id: the rule in line 3 of top.yaml already has this id; ids must be unique\n"
                 "one.yaml:7: rule c: mode: must be enforce, shadow or off, not \"x\"\n");
    put("two.yaml", "\noverrides:\n" DENY("u") DENY("u") DENY("top"));
    expect_whole(
        "include: two.yaml\nrules:\n  - { id: a, by: user, limits: 1 per 1s }\noverrides:\n" DENY("top"), " a",
        "two.yaml:4: override of rule a for u: the override in line 3 is for the same subject; keep one of them\n"
        "two.yaml:5: override of rule a for top: the override in line 5 of top.yaml is for the same subject; keep one "
        "of them\n");
}

/* Then nothing is known of the rest: no rule is given. */
static void whatever_is_missing_is_unreadable(void **state)
{
    (void)state;
    put("good.yaml", "rules:\n" RULE("good"));
    put("list.yaml", "[]");
    put("empty.yaml", "# nothing\n");
    put("none.yaml", "problems: []\n");
    put("map.yaml", "rules: {}\n");
    put("broken.yaml", "rules:\n  - [\n");
    put("loop.yaml", "rules: []\ninclude: loop2.yaml\n");
    put("loop2.yaml", "rules: []\ninclude: ./loop.yaml\n");
    put("back.yaml", "rules: []\ninclude: top.yaml\n");
    put("settings.yaml", "settings: { ipv6_prefix: 32 }\nrules: []\n");
    put("odd.yaml", "rules: []\ncolour: red\n");
    for (int i = 0; i < 9; i++) {
        char name[20], text[60];
        snprintf(name, sizeof name, "deep%d.yaml", i);
        snprintf(text, sizeof text, "rules: []\ninclude: deep%d.yaml\n", i + 1);
        put(name, text);
    }
    static const struct report_case cases[] = {
        { "missing.yaml", "top:1: include: missing.yaml: cannot be read: No such file or directory\n" },
        { "list.yaml", "list.yaml:1: must be a mapping with `rules`; put a list under `rules:`\n" },
        { "empty.yaml", "empty.yaml:1: is empty; to have no rules, write `rules: []`\n" },
        { "none.yaml", "none.yaml:1: has no `rules`; to have no rules, write `rules: []`\n" },
        { "map.yaml", "map.yaml:1: rules: must be a list, not a mapping\n" },
        { "broken.yaml",
          "broken.yaml:3: not YAML or JSON: did not find expected node content while parsing a flow node that "
          "begins in line 3\n" },
        { "loop.yaml", "loop2.yaml:2: include: ./loop.yaml is included twice, or includes itself\n" },
        { "back.yaml", "back.yaml:2: include: top.yaml is included twice, or includes itself\n" },
        { "top.yaml", "top:1: include: top.yaml is included twice, or includes itself\n" },
        { "good.yaml, good.yaml", "top:1: include: good.yaml is included twice, or includes itself\n" },
        { "settings.yaml",
          "settings.yaml:1: settings: only one file may have this field; it is in line 2 of top.yaml already\n" },
        { "deep0.yaml", "deep7.yaml:2: include: files include files more than 8 levels deep\n" },
        { "", "top:1: include: must have 1 to 100 entries, not 0\n" },
        { "~", "top:1: include: must be text, not nothing\n" },
        { "[a]", "top:1: include: must be text, not a list\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text, "include: [%s]\nsettings: { ipv6_prefix: 56 }\nrules:\n" RULE("top"), cases[i].text);
        expect_whole(text, "", cases[i].report);
        struct whole w = read_whole(text);
        assert_true(w.reading.report.unreadable);
        whole_done(&w);
    }
    put("both.yaml", "rules: []\ninclude: good.yaml\ninclude: odd.yaml\n");
    expect_whole("include: good.yaml\nrules: []\ninclude: odd.yaml\n", "",
                 "top:3: include: is given twice; the first is in line 1\n");
    expect_whole("rules: []\ninclude: both.yaml\n", "", "both.yaml:3: include: is given twice; the first is in line 2\n");
    expect_whole("include: odd.yaml\nrules:\n" RULE("top"), " top",
                 "odd.yaml:2: unknown field \"colour\"; allowed: settings, rules, overrides, include, problems\n");
    mkdir(at("nothing"), 0700);
    expect_whole("include: nothing\n", "", "top:1: has no `rules`; to have no rules, write `rules: []`\n");
    expect_report("include: a\nrules: []\n", "f:1: include: only a rules file can include others\n");
}

static void many_files(void **state)
{
    (void)state;
    mkdir(at("many"), 0700);
    for (int i = 0; i < INCLUDED_MAX - 1; i++) {
        char name[40], text[80];
        snprintf(name, sizeof name, "many/%04d.yaml", i);
        snprintf(text, sizeof text, "rules: [ { id: r%d, limits: 1 per 1s } ]\n", i);
        put(name, text);
    }
    struct whole w = read_whole("include: many\n");
    assert_int_equal(w.reading.report.error_count, 0);
    assert_int_equal(w.reading.rules->rule_count, INCLUDED_MAX - 1);
    assert_text(w.reading.rules->rules[700]->id, "r700");
    whole_done(&w);
    put("many/more.yaml", "rules: []\n");
    expect_whole("include: many\n", "", "top:1: include: more than 1000 files\n");
}

static void age(const char *name, int seconds)
{
    struct timespec times[2] = { { .tv_sec = 1000000 + seconds }, { .tv_sec = 1000000 + seconds } };
    assert_int_equal(utimensat(AT_FDCWD, at(name), times, 0), 0);
}

static void changes_are_seen(void **state)
{
    (void)state;
    struct file_version version;
    mkdir(at("seen"), 0700);
    put("seen/a.yaml", "rules: []\n");
    unlink(at("later.yaml"));
    struct whole w = read_whole("include: [ seen, later.yaml ]\n");
    assert_true(rules_file_version(at("top.yaml"), &version));
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_SAME);
    put("later.yaml", "rules: []\n");
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_SETTLING);
    age("later.yaml", 1);
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_CHANGED);
    whole_done(&w);

    w = read_whole("include: [ seen, later.yaml ]\n");
    assert_true(rules_file_version(at("top.yaml"), &version));
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_SAME);
    age("seen/a.yaml", 2); /* changed in its place: the folder does not tell */
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_CHANGED);
    whole_done(&w);

    w = read_whole("include: [ seen, later.yaml ]\n");
    assert_true(rules_file_version(at("top.yaml"), &version));
    put("seen/b.yaml", "rules: []\n");
    age("seen", 3);
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_CHANGED);
    unlink(at("seen/b.yaml"));
    unlink(at("later.yaml"));
    age("seen", 4);
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_CHANGED);
    unlink(at("top.yaml"));
    assert_int_equal(rules_files_look(at("top.yaml"), &version, &w.included), FILES_GONE);
    whole_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_all_files),
        cmocka_unit_test(errors_name_their_file),
        cmocka_unit_test(whatever_is_missing_is_unreadable),
        cmocka_unit_test(many_files),
        cmocka_unit_test(changes_are_seen),
    };
    return cmocka_run_group_tests_name("include", tests, make_folder, remove_folder);
}
