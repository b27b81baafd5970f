/* Rules in a file: read with their lines, changed by writing it anew. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "source/show.h"
#include "sources.h"

static char folder[64], path[128], address[160];

static void write_text(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect_text(const char *expected)
{
    char text[4096] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, expected);
}

static struct source *file_source(const char *text)
{
    struct source *source = NULL;
    unlink(path);
    if (text)
        write_text(text);
    good(source_open(&source, address, &error));
    return source;
}

static void a_file_is_read_with_its_lines(void **state)
{
    (void)state;
    struct source *source =
        file_source("# comments are no harm to reading\nsettings: { ipv6_prefix: 48 }\nrules:\n- { id: a, "
                    "limits: [1 per 1s] }\n- { id: b, limits: [x] }\n- { id: c, mode: off, limits: [3 per "
                    "1s] }\n");
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.problem_count, 1);
    struct buf text;
    buf_init(&text, 4000);
    source_problem_print(&reading.problems[0], &text);
    char wanted[200];
    snprintf(wanted, sizeof wanted, "%s: line 5: rule b: limits[0]: must look like", path);
    assert_memory_equal(text.ptr, wanted, strlen(wanted));
    buf_done(&text);
    assert_int_equal(reading.row_count, 4);
    assert_true(sv_eq(reading.rows[1].rule, SV("a")));
    assert_true(sv_eq(reading.rows[1].text, SV("{\"id\":\"a\",\"limits\":[\"1 per 1s\"]}")));
    assert_ptr_equal(reading.rows[1].parsed, reading.rules->rules[0]);
    /* One that is bad is in the list. */
    assert_true(sv_eq(reading.rows[2].text, SV("{\"id\":\"b\",\"limits\":[\"x\"]}")));
    assert_null(reading.rows[2].parsed);
    assert_true(source_problem_is_of(&reading.problems[0], &reading.rows[2]));
    assert_false(source_problem_is_of(&reading.problems[0], &reading.rows[1]));
    assert_ptr_equal(reading.rows[3].parsed, reading.rules->rules[1]);
    assert_false(reading.rows[3].enabled);
    source_reading_done(&reading);
    bad(source_remove(source, SV("a"), me, &error), "weir does not change a file with errors");
    source_close(source);
    source = file_source("rules: [");
    bad(source_read(source, NULL, &reading, &error), "rules.yaml:2: not YAML or JSON");
    source_close(source);
    source = file_source(NULL);
    bad(source_read(source, NULL, &reading, &error), "cannot be read: No such file or directory");
    assert_null(strstr(error.text, "weir rules init"));
    bad(source_remove(source, SV("a"), me, &error),
        "cannot be read: No such file or directory; create it with `weir rules init --from ");
    source_close(source);
}

static void the_mode_outlives_a_pause(void **state)
{
    static const struct {
        const char *before, *off, *on;
    } cases[] = {
        { "mode: shadow", "mode: shadow\n    enabled: false", "mode: shadow" },
        { "mode: enforce", "enabled: false", NULL },
        { "enabled: true", "enabled: false", NULL },
        { "mode: off", NULL, NULL },
        { "mode: off, enabled: false", NULL, NULL },
        { "mode: shadow, enabled: no", NULL, "mode: shadow" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "rules: [{ id: a, limits: [1 per 1s], %s }]\n", cases[i].before);
        struct source *source = file_source(text);
        good(source_enable(source, SV("a"), false, me, &error));
        if (cases[i].off)
            snprintf(text, sizeof text, "rules:\n  - id: a\n    limits:\n      - \"1 per 1s\"\n    %s\n", cases[i].off);
        expect_text(text);
        good(source_enable(source, SV("a"), true, me, &error));
        snprintf(text, sizeof text, "rules:\n  - id: a\n    limits:\n      - \"1 per 1s\"\n%s%s%s",
                 cases[i].on ? "    " : "", cases[i].on ? cases[i].on : "", cases[i].on ? "\n" : "");
        expect_text(text);
        source_close(source);
    }
    struct source *source =
        file_source("{\"rules\": [{\"id\": \"a\", \"mode\": \"shadow\", \"limits\": [\"1 per 1s\"]}]}\n");
    good(set(source, "a", "enabled", "false"));
    expect_text(
        "{\n  \"rules\": [\n    {\"id\": \"a\", \"mode\": \"shadow\", \"limits\": [\"1 per 1s\"], \"enabled\": false}\n"
        "  ]\n}\n");
    good(set(source, "a", "enabled", "true"));
    expect_text("{\n  \"rules\": [\n    {\"id\": \"a\", \"mode\": \"shadow\", \"limits\": [\"1 per 1s\"]}\n  ]\n}\n");
    bad(set(source, "a", "enabled", "maybe"), "rule a: enabled: must be true or false");
    source_close(source);
}

/* Nothing is written, so that nothing in the file can be lost. */
static void a_file_can_be_tried(void **state)
{
    static const char text[] = "# why\nrules: [{ id: a, limits: [1 per 1s] }, { id: b, limits: [x] }]\n";
    struct source *source = file_source(text);
    (void)state;
    source_set_terms(source, &(struct source_terms){ .dry_run = true });
    good(source_put(source, SV("{ id: a, limits: [2 per 1s] }"), true, me, &error));
    good(source_put(source, SV("{ id: b, limits: [2 per 1s] }"), true, me, &error));
    bad(source_put(source, SV("{ id: a, limits: [y] }"), true, me, &error), "rule a: limits[0]");
    expect_text(text);
    source_close(source);
}

static void a_file_is_changed_through_the_model(void **state)
{
    (void)state;
    struct source *source = file_source(NULL);
    struct buf out;
    buf_init(&out, 4000);
    good(source_init(source, &out, &error));
    good(source_init(source, &out, &error));
    buf_done(&out);
    expect_text("rules: []\n");
    put(source, "{ id: b, limits: [2 per 1s] }");
    put(source, "{ id: a, match: { path: '/x/#' }, by: user, limits: [1 per 1s] }");
    good(set(source, "b", "max", "20"));
    good(source_enable(source, SV("b"), false, me, &error));
    good(source_put_settings(source, SV("{ ipv6_prefix: 48 }"), me, &error));
    expect_text("settings:\n  ipv6_prefix: 48\nrules:\n  - id: b\n    limits:\n      - \"20 per 1s\"\n    enabled: false\n"
                "  - id: a\n    match:\n      path: \"/x/#\"\n    by: [user]\n    limits:\n      - \"1 per 1s\"\n");
    good(source_enable(source, SV("b"), true, me, &error));
    good(set(source, "b", "mode", "shadow"));
    good(source_enable(source, SV("b"), true, me, &error)); /* it is */
    good(source_enable(source, SV("b"), false, me, &error));
    struct source_reading reading;
    good(source_read(source, NULL, &reading, &error));
    assert_false(reading.rows[1].enabled);
    assert_int_equal(reading.rules->rules[0]->kind->mode, MODE_OFF);
    source_reading_done(&reading);
    good(source_enable(source, SV("b"), true, me, &error));
    good(source_read(source, NULL, &reading, &error));
    assert_int_equal(reading.rules->rules[0]->kind->mode, MODE_SHADOW);
    source_reading_done(&reading);
    bad(source_enable(source, SV("nobody"), true, me, &error), "there is no rule nobody");
    good(set(source, "b", "mode", ""));
    good(source_remove(source, SV("a"), me, &error));
    bad(set(source, "b", "max", "-5"), "rule b: limits[0].max");
    bad(source_put(source, SV("{ id: b, limits: [2 per 1s] }"), false, me, &error), "there is a rule b already");
    expect_text("settings:\n  ipv6_prefix: 48\nrules:\n  - id: b\n    limits:\n      - \"20 per 1s\"\n");
    bad(source_history(source, SV(""), 0, 10, NULL, NULL, &error), "a file has no history; keep it under version control");
    bad(source_undo(source, SV(""), 0, me, NULL, &error), "a file has no history; keep it under version control");
    bad(source_throttle(source, SV("/x"), 1, 1000000, RULE_NEVER_EXPIRES, me, (char[64]){ 0 }, &error),
        "THROTTLED_CALLS is a table of a database");
    source_close(source);
}

static void json_stays_json(void **state)
{
    (void)state;
    struct source *source =
        file_source("{\"settings\": {\"ipv6_prefix\": 48}, \"rules\": [{\"id\": \"a\", \"limits\": [\"1 per "
                    "1s\"]}]}");
    put(source, "{ id: b, match: { event: '# no comment' }, limits: [2 per 1s] }");
    expect_text(
        "{\n  \"settings\": {\n    \"ipv6_prefix\": 48\n  },\n  \"rules\": [\n    {\"id\":\"a\",\"limits\":[\"1 per "
        "1s\"]},\n    {\"id\":\"b\",\"match\":{\"event\":\"# no comment\"},\"limits\":[\"2 per 1s\"]}\n  ]\n}\n");
    good(source_remove(source, SV("a"), me, &error));
    good(source_remove(source, SV("b"), me, &error));
    expect_rules(source, NULL, "");
    source_close(source);
}

static void comments_are_not_dropped_unasked(void **state)
{
    (void)state;
    static const char *const commented[] = { "# why\nrules: []\n", "rules: [] # none\n",
                                             "rules:\n- { id: a, limits: [1 per 1s] }\n   # end\n" };
    for (size_t i = 0; i < 3; i++) {
        struct source *source = file_source(commented[i]);
        bad(source_put(source, SV("{ id: b, limits: [2 per 1s] }"), false, me, &error), "without its comments");
        assert_non_null(strstr(error.text, "use --drop-comments"));
        expect_text(commented[i]);
        source_drop_comments(source);
        put(source, "{ id: b, limits: [2 per 1s] }");
        source_close(source);
    }
    struct source *source = file_source("rules:\n- { id: \"a # b\", match: { path: /x/# }, limits: ['1 per 1s'] }\n");
    put(source, "{ id: b, limits: [2 per 1s] }");
    source_close(source);
}

static void mode_and_owner_are_kept(void **state)
{
    (void)state;
    struct source *source = file_source("rules: []\n");
    struct stat before, after;
    char link[160];
    snprintf(link, sizeof link, "%s/link.yaml", folder);
    assert_int_equal(symlink("rules.yaml", link), 0);
    assert_int_equal(chmod(path, 0640), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(stat(path, &before), 0);
    put(source, "{ id: b, limits: [2 per 1s] }");
    good(source_write_file(link, SV("rules: []\n"), SV("# through a link\n"), &error));
    expect_text("rules: []\n# through a link\n");
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_uid, before.st_uid);
    assert_int_equal(after.st_gid, before.st_gid);
    assert_int_equal(lstat(link, &after), 0);
    assert_true(S_ISLNK(after.st_mode));
    assert_int_equal(unlink(path), 0);
    mode_t mask = umask(077);
    good(source_write_file(path, SV(""), SV("rules: []\n"), &error));
    umask(mask);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_mode & 07777, 0644);
    bad(source_write_file("/nowhere/at/all", SV(""), SV(""), &error), "/nowhere/at/all: cannot be written");
    unlink(link);
    source_close(source);
}

static void changes_are_noticed(void **state)
{
    (void)state;
    struct source *source = file_source("rules: []\n");
    struct source_reading reading;
    bool changed = false;
    good(source_read(source, NULL, &reading, &error));
    source_reading_done(&reading);
    good(source_changed(source, &changed, &error));
    assert_false(changed);
    put(source, "{ id: b, limits: [2 per 1s] }");
    good(source_changed(source, &changed, &error));
    assert_true(changed);
    good(source_read(source, NULL, &reading, &error));
    source_reading_done(&reading);
    write_text("rules: [] \n");
    for (int i = 0; i < 500; i++) {
        good(source_changed(source, &changed, &error));
        if (changed)
            break;
        good(source_wait(source, 10, -1, &error));
    }
    assert_true(changed);
    unlink(path);
    bad(source_changed(source, &changed, &error), "No such file");
    source_close(source);
}

/* The process is killed in the middle of a file: the old one stays, and nothing is beside it. */
static void a_killed_writer_leaves_nothing(void **state)
{
    (void)state;
    static char long_text[100000];
    memset(long_text, '#', sizeof long_text);
    write_text("rules: []\n");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = { 0, 0 }, few = { 50000, 50000 };
        struct weir_error ignored;
        setrlimit(RLIMIT_CORE, &no_core);
        setrlimit(RLIMIT_FSIZE, &few); /* beyond that the kernel kills it */
        source_write_file(path, SV(""), sv_of(long_text, sizeof long_text), &ignored);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            assert_string_equal(entry->d_name, "rules.yaml");
    closedir(entries);
    expect_text("rules: []\n");
    good(source_write_file(path, SV("# "), SV("rules: []\n"), &error));
    expect_text("# rules: []\n");
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weir-file-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/rules.yaml", folder);
    snprintf(address, sizeof address, "file:%s", path);
    return 0;
}

/* Nothing else was left there. */
static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_with_its_lines),
        cmocka_unit_test(a_file_can_be_tried),
        cmocka_unit_test(a_file_is_changed_through_the_model),
        cmocka_unit_test(the_mode_outlives_a_pause),
        cmocka_unit_test(json_stays_json),
        cmocka_unit_test(comments_are_not_dropped_unasked),
        cmocka_unit_test(mode_and_owner_are_kept),
        cmocka_unit_test(changes_are_noticed),
        cmocka_unit_test(a_killed_writer_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
