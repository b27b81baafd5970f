/* The sync: what the service starts with, and what it follows. On SQLite and files; the servers have their tests end to
 * end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "serve/config.h"
#include "serve/rule_sync.h"
#include "source/sql.h"

enum { DEADLINE_MS = 30000 };

#define WAIT_FOR(condition)                                            \
    do {                                                               \
        int64_t until = clock_steady_us() + DEADLINE_MS * US_PER_MS;   \
        while (!(condition) && clock_steady_us() < until)              \
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL); \
        if (!(condition))                                              \
            fail_msg("not within %d ms: %s", DEADLINE_MS, #condition); \
    } while (0)

static const struct source_author me = { .who = { "tester", 6 } };
static struct weir_error error;
static char folder[100];

struct run {
    struct config config;
    struct rule_sync *sync;
    struct weir *weir;
};

static char *in_folder(const char *name, char path[200])
{
    snprintf(path, 200, "%s/%s", folder, name);
    return path;
}

static int start(struct run *run, const char *rules)
{
    *run = (struct run){ .config = { .data = folder, .rules = (char *)rules, .cells_keys = 1000, .poll_ms = 100 } };
    return rule_sync_start(&run->sync, &run->config, &run->weir, &error);
}

static void must_start(struct run *run, const char *rules)
{
    if (start(run, rules) < 0)
        fail_msg("%s", error.text);
}

static struct rule_sync_state state_of(const struct run *run)
{
    struct rule_sync_state state;
    rule_sync_state(run->sync, &state);
    return state;
}

/* What the first rule allows: requests for `event` that pass. */
static unsigned passes(const struct run *run, const char *event)
{
    struct weir_request request = { .event = weir_str(event), .key = WEIR_STR("u"), .cost = 1, .peek = true };
    struct weir_verdict verdict;
    assert_int_equal(weir_check(run->weir, &request, weir_now_us(), &verdict), 0);
    return verdict.applied ? verdict.max : 0;
}

static void write_file(const char *name, const char *text)
{
    char path[200];
    assert_int_equal(source_write_file(in_folder(name, path), SV(""), weir_str(text), &error), 0);
}

static bool has_file(const char *name)
{
    char path[200];
    return access(in_folder(name, path), F_OK) == 0;
}

static void move_file(const char *from, const char *to)
{
    char a[200], b[200];
    assert_int_equal(rename(in_folder(from, a), in_folder(to, b)), 0);
}

/* ---- the first start ---- */

static void the_first_start_has_example_rules(void **state)
{
    struct run run;
    (void)state;
    must_start(&run, NULL);
    struct rule_sync_state now = state_of(&run);
    assert_true(now.reachable);
    assert_false(now.is_file || now.from_copy);
    assert_int_equal(now.rules, 5);
    assert_int_equal(now.problem_count, 0);
    assert_true(now.good_us > 0);
    assert_int_equal(passes(&run, "ocr"), 20);
    rule_sync_stop(run.sync);
    assert_true(has_file("rules.db") && has_file("rules.last.yaml") && has_file("cells"));
    assert_false(has_file("rules.db.new"));
    rule_sync_stop(NULL);
}

struct change {
    struct source_job job;
    const char *rule; /* NULL: all are removed */
    unsigned max_when_done;
    int result;
    const struct run *run;
    _Atomic bool done;
};

static int make_change(struct source *source, struct source_job *base, struct weir_error *why)
{
    struct change *change = (struct change *)base;
    sv text = weir_str(change->rule ? change->rule : "rules: []");
    return change->rule ? source_put(source, text, true, me, why) : source_import(source, text, true, me, NULL, why);
}

static void change_done(struct source_job *base, int result, const struct weir_error *why)
{
    struct change *change = (struct change *)base;
    (void)why;
    change->result = result;
    change->max_when_done = passes(change->run, "ocr");
    atomic_store(&change->done, true);
}

static unsigned put(struct run *run, const char *rule)
{
    struct change change = { .job = { make_change, change_done, .writes = true }, .rule = rule, .run = run };
    assert_true(rule_sync_run(run->sync, &change.job));
    WAIT_FOR(atomic_load(&change.done));
    assert_int_equal(change.result, 0);
    return change.max_when_done;
}

static void what_is_changed_is_in_force_and_stays(void **state)
{
    struct run run;
    (void)state;
    must_start(&run, NULL);
    assert_int_equal(put(&run, "{ id: ocr, match: { event: ocr }, by: key, limits: 7 per 1h }"), 7);
    assert_int_equal(state_of(&run).rules, 5);
    rule_sync_stop(run.sync);
    must_start(&run, NULL);
    assert_int_equal(passes(&run, "ocr"), 7);
    assert_int_equal(put(&run, NULL), 0);
    rule_sync_stop(run.sync);
    /* Nobody who removed the examples gets them again. */
    must_start(&run, NULL);
    assert_int_equal(state_of(&run).rules, 0);
    rule_sync_stop(run.sync);
}

/* ---- a source that is away ---- */

static void the_copy_is_there_while_the_source_is_not(void **state)
{
    struct run run;
    (void)state;
    must_start(&run, NULL);
    assert_int_equal(put(&run, "{ id: ocr, match: { event: ocr }, by: key, limits: 8 per 1h }"), 8);
    rule_sync_stop(run.sync);
    char address[220], path[200];
    snprintf(address, sizeof address, "sqlite:%s", in_folder("rules.db", path));
    move_file("rules.db", "away");
    must_start(&run, address);
    assert_int_equal(passes(&run, "ocr"), 8);
    assert_true(state_of(&run).from_copy);
    WAIT_FOR(strstr(state_of(&run).problem, "the rules are those of an earlier run: "));
    assert_false(state_of(&run).reachable);
    move_file("away", "rules.db");
    rule_sync_look_now(run.sync);
    WAIT_FOR(!state_of(&run).from_copy);
    WAIT_FOR(state_of(&run).reachable);
    assert_string_equal(state_of(&run).problem, "");
    rule_sync_stop(run.sync);
    /* Another source has nothing to do with it. */
    snprintf(address, sizeof address, "sqlite:%s", in_folder("other.db", path));
    assert_true(start(&run, address) < 0);
    assert_non_null(strstr(error.text, "there are no rules of an earlier run"));
    move_file("rules.last.yaml", "gone");
    snprintf(address, sizeof address, "sqlite:%s", in_folder("nowhere.db", path));
    assert_true(start(&run, address) < 0);
    assert_null(strchr(error.text, '\n'));
}

static void a_missing_database_is_made_from_the_copy(void **state)
{
    struct run run;
    (void)state;
    must_start(&run, NULL);
    put(&run, "{ id: mine, match: { event: mine }, by: key, limits: 6 per 1h }");
    put(&run, "{ id: ocr, match: { event: ocr }, by: key, limits: 8 per 1h }");
    rule_sync_stop(run.sync);
    for (int i = 0; i < 2; i++) {
        move_file("rules.db", "gone");
        must_start(&run, NULL);
        assert_int_equal(passes(&run, "mine"), 6);
        assert_int_equal(passes(&run, "ocr"), 8);
        assert_int_equal(state_of(&run).rules, 6);
        assert_false(state_of(&run).from_copy);
        rule_sync_stop(run.sync);
    }
    /* Neither do examples come back where all were removed. */
    must_start(&run, NULL);
    put(&run, NULL);
    rule_sync_stop(run.sync);
    move_file("rules.db", "gone");
    must_start(&run, NULL);
    assert_int_equal(state_of(&run).rules, 0);
    rule_sync_stop(run.sync);
}

static void a_copy_that_somebody_changed_is_written_anew(void **state)
{
    struct run run;
    (void)state;
    must_start(&run, NULL);
    put(&run, "{ id: mine, match: { event: mine }, by: key, limits: 6 per 1h }");
    write_file("rules.last.yaml", "rules: []\n");
    put(&run, "{ id: ocr, match: { event: ocr }, by: key, limits: 8 per 1h }");
    rule_sync_stop(run.sync);
    move_file("rules.db", "gone");
    must_start(&run, NULL);
    assert_int_equal(passes(&run, "mine"), 6);
    assert_int_equal(passes(&run, "ocr"), 8);
    assert_int_equal(state_of(&run).rules, 6);
    rule_sync_stop(run.sync);
}

static void a_copy_that_is_no_good(void **state)
{
    struct run run;
    (void)state;
    write_file("rules.last.yaml", "# The last good rules of sqlite:somewhere/rules.db\nrules: [\n");
    assert_true(start(&run, NULL) < 0);
    assert_non_null(strstr(error.text, "rules.db is missing, and weir cannot create it from "));
    assert_non_null(strstr(error.text, "remove the copy"));
    assert_false(has_file("rules.db") || has_file("rules.db.new"));
    /* That of another source is none. */
    write_file("rules.last.yaml", "# The last good rules of mysql://host/db\nrules: []\n");
    must_start(&run, NULL);
    assert_int_equal(state_of(&run).rules, 5);
    rule_sync_stop(run.sync);
}

/* ---- bad rows ---- */

static void count_problem(const struct source_problem *problem, void *data)
{
    size_t *count = data;
    ++*count;
    assert_true(sv_eq(problem->row, SV("ocr")) && sv_eq(problem->table, SV("WEIR_RULES")));
    assert_true(problem->text.len > 0);
}

static void write_row(const char *rule)
{
    struct sql_value values[] = { { .text = weir_str(rule) }, { .text = SV("ocr") } };
    struct source_address where = { 0 };
    char address[220], path[200];
    struct sql *sql = NULL;
    snprintf(address, sizeof address, "sqlite:%s", in_folder("rules.db", path));
    assert_int_equal(address_read(address, &where, &error), 0);
    assert_int_equal(sql_open(&sql, &where, &error), 0);
    assert_int_equal(sql_run(sql, "UPDATE WEIR_RULES SET RULE = ? WHERE ID = ?", values, 2, NULL, NULL, NULL, &error), 0);
    sql_close(sql);
    address_done(&where);
}

static void a_bad_row_keeps_its_last_good_version(void **state)
{
    struct run run;
    size_t count = 0;
    (void)state;
    must_start(&run, NULL);
    assert_int_equal(put(&run, "{ id: ocr, match: { event: ocr }, by: key, limits: 9 per 1h }"), 9);
    write_row("{}");
    WAIT_FOR(state_of(&run).problem_count == 1);
    assert_int_equal(passes(&run, "ocr"), 9);
    rule_sync_problems(run.sync, count_problem, &count);
    assert_int_equal(count, 1);
    assert_non_null(strstr(state_of(&run).problem, "WEIR_RULES: row ocr: rule ocr: "));
    rule_sync_stop(run.sync);
    /* After a restart too. */
    must_start(&run, NULL);
    assert_int_equal(passes(&run, "ocr"), 9);
    rule_sync_problems(run.sync, count_problem, &count);
    assert_int_equal(count, 2);
    write_row("{match: {event: ocr}, by: key, limits: 4 per 1h}");
    WAIT_FOR(passes(&run, "ocr") == 4);
    WAIT_FOR(state_of(&run).problem_count == 0);
    rule_sync_stop(run.sync);
}

/* ---- files ---- */

/* A copy that could not be written, as on a full disk, is written later, although no rule changes any more. */
static void a_copy_that_failed_is_written_later(void **state)
{
    struct run run;
    char path[200];
    (void)state;
    must_start(&run, NULL);
    assert_int_equal(unlink(in_folder("rules.last.yaml", path)), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(put(&run, "{ id: ocr, match: { event: ocr }, by: [key], limits: [7 per 1h] }"), 7);
    assert_int_equal(rmdir(path), 0);
    WAIT_FOR(has_file("rules.last.yaml"));
    rule_sync_stop(run.sync);
    move_file("rules.db", "away.db");
    must_start(&run, NULL);
    assert_int_equal(passes(&run, "ocr"), 7);
    rule_sync_stop(run.sync);
}

static void a_file_is_followed(void **state)
{
    struct run run;
    char path[200];
    (void)state;
    write_file("rules.yaml", "rules: [{ id: ocr, match: { event: ocr }, by: key, limits: 2 per 1h }, { id: bad }]\n");
    must_start(&run, in_folder("rules.yaml", path));
    assert_true(state_of(&run).is_file);
    assert_int_equal(state_of(&run).rules, 1);
    assert_int_equal(passes(&run, "ocr"), 2);
    WAIT_FOR(state_of(&run).problem_count > 0);
    write_file("rules.yaml", "rules: [{ id: ocr, match: { event: ocr }, by: key, limits: 3 per 1h }]\n");
    WAIT_FOR(passes(&run, "ocr") == 3);
    assert_false(has_file("rules.db"));
    rule_sync_stop(run.sync);
    assert_true(start(&run, "nosuch:thing") < 0);
}

static void a_bad_rule_of_a_file_keeps_its_last_good_version(void **state)
{
    struct run run;
    char path[200];
    (void)state;
    write_file("rules.yaml", "rules: [{ id: ocr, match: { event: ocr }, by: key, limits: 3 per 1h }]\n");
    must_start(&run, in_folder("rules.yaml", path));
    rule_sync_stop(run.sync);
    /* After a restart too, as often as there is one. */
    write_file("rules.yaml", "rules: [{ id: ocr, match: { event: ocr }, by: key, limits: x }, { id: b, match: { event: b "
                             "}, limits: 1 per 1h }]");
    for (int i = 0; i < 2; i++) {
        must_start(&run, path);
        assert_int_equal(passes(&run, "ocr"), 3);
        assert_int_equal(state_of(&run).rules, 2);
        assert_false(state_of(&run).from_copy);
        WAIT_FOR(state_of(&run).problem_count == 1);
        rule_sync_stop(run.sync);
    }
    /* The copy of one file is nothing to another. */
    write_file("other.yaml", "rules: [{ id: ocr, match: { event: ocr }, by: key, limits: x }]");
    must_start(&run, in_folder("other.yaml", path));
    assert_int_equal(state_of(&run).rules, 0);
    rule_sync_stop(run.sync);
}

static void a_file_that_cannot_be_read_ends_the_start(void **state)
{
    struct run run;
    char path[200];
    (void)state;
    write_file("rules.yaml", "rules: []\n");
    must_start(&run, in_folder("rules.yaml", path));
    rule_sync_stop(run.sync);
    write_file("rules.yaml", "rules: [\n");
    assert_true(start(&run, path) < 0);
    assert_non_null(strstr(error.text, "rules.yaml"));
    move_file("rules.yaml", "away");
    assert_true(start(&run, path) < 0);
    assert_non_null(strstr(error.text, "rules.yaml: cannot be read: No such file or directory"));
    assert_null(strstr(error.text, "weir rules init"));
}

static void cells_that_cannot_be_used(void **state)
{
    struct run run;
    char path[200];
    (void)state;
    write_file("cells", "something else");
    assert_true(start(&run, NULL) < 0);
    assert_non_null(strstr(error.text, in_folder("cells", path)));
}

/* ---- */

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weir-rule-sync-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[200];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_first_start_has_example_rules),
        CASE(what_is_changed_is_in_force_and_stays),
        CASE(the_copy_is_there_while_the_source_is_not),
        CASE(a_bad_row_keeps_its_last_good_version),
        CASE(a_missing_database_is_made_from_the_copy),
        CASE(a_copy_that_somebody_changed_is_written_anew),
        CASE(a_copy_that_is_no_good),
        CASE(a_copy_that_failed_is_written_later),
        CASE(a_file_is_followed),
        CASE(a_bad_rule_of_a_file_keeps_its_last_good_version),
        CASE(a_file_that_cannot_be_read_ends_the_start),
        CASE(cells_that_cannot_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
