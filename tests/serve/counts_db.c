/* Counts in a file: steps add up whatever the clock does, the file stays within its bounds, and no file, disk or folder
 * breaks it for good. */
#include "counts_place.h"

static const struct counts_bounds small = { .rules = 3, .steps = 6, .coarse_steps = 4, .names = 8, .bytes = 4 << 20 };

/* ---- steps ---- */

static void a_step_is_there_in_both_resolutions(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    add(place, NOON, "a b", 5);
    add(place, NOON + 20, "a", 7);
    assert_string_equal(all(place, "allowed", NOON - 10, 10, 5), "null,5,null,7,null");
    assert_string_equal(passed(place, "a", NOON - 10, 10, 5), "null,5,null,7,null");
    assert_string_equal(passed(place, "b", NOON - 10, 10, 5), "null,6,null,0,null");
    assert_string_equal(passed(place, "unknown", NOON - 10, 10, 5), "null,0,null,0,null");
    assert_string_equal(all(place, "allowed", NOON - 300, 300, 3), "null,12,null");
    assert_string_equal(passed(place, "a", NOON - 300, 300, 3), "null,12,null");
    assert_string_equal(all(place, "refused", NOON, 300, 1), "2");
    place_free(place);
}

static void steps_add_up_to_coarser_ones(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    for (int i = 0; i < 60; i++)
        add(place, NOON + 10 * i, "a", 1);
    assert_string_equal(all(place, "allowed", NOON, 60, 10), "6,6,6,6,6,6,6,6,6,6");
    assert_string_equal(all(place, "allowed", NOON, 20, 3), "2,2,2");
    assert_string_equal(passed(place, "a", NOON, 300, 3), "30,30,null");
    assert_string_equal(passed(place, "a", NOON, 600, 1), "60");
    place_free(place);
}

/* A window sees neither the step before it nor the one after. */
static void a_window_ends_where_it_says(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    for (int i = -1; i < 4; i++)
        add(place, NOON + 10 * i, "a", (uint64_t)(10 + i));
    assert_string_equal(all(place, "allowed", NOON, 10, 3), "10,11,12");
    assert_string_equal(passed(place, "a", NOON, 30, 1), "33");
    place_free(place);
}

static void gauges_are_those_of_the_end(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct counts_step *step = step_of(NOON + 10 * i, "", 1);
        step->gauges = (struct counts_gauges){ 0.1 * (i + 1), i != 1, (uint64_t)(100 + i), (uint64_t)(7 - i) };
        assert_int_equal(counts_db_add(place->db, step, NULL, &error), 0);
        free(step);
    }
    assert_string_equal(all(place, "table_fill", NOON, 10, 3), "0.1,0.2,0.3");
    assert_string_equal(all(place, "table_fill", NOON, 300, 1), "0.3");
    assert_string_equal(all(place, "store_up", NOON, 10, 3), "1,0,1");
    assert_string_equal(all(place, "store_up", NOON, 30, 1), "0");
    assert_string_equal(all(place, "store_up", NOON, 300, 1), "0");
    assert_string_equal(all(place, "lease_tokens_held", NOON, 30, 1), "102");
    assert_string_equal(all(place, "holds", NOON, 300, 1), "5");
    place_free(place);
}

static void the_newest_part_is_not_in_the_file(void **state)
{
    struct place *place = place_new(&counts_bounds);
    sv ids[] = { SV("a"), SV("b") };
    (void)state;
    struct counts_step *newest = step_of(NOON + 10, "a b", 3);
    struct counts_query query = { NOON, 10, 2, newest, 0, NULL };
    assert_string_equal(column(read_query(place, &query), "allowed"), "null,3");
    assert_non_null(strstr(read_query(place, &query), "\"since\": \"2027-01-15T12:00:10Z\""));
    add(place, NOON, "b", 5);
    add(place, NOON + 10, "b", 10);
    assert_string_equal(column(read_query(place, &query), "allowed"), "5,13");
    query.rules = ids, query.rule_count = 2;
    assert_string_equal(column(read_query(place, &query), "passed"), "0,3");
    assert_string_equal(column(strstr(read_query(place, &query), "\"b\""), "passed"), "5,14");
    query.start_s = NOON + 20; /* it is before the window */
    assert_string_equal(column(read_query(place, &query), "passed"), "null,null");
    query.start_s = NOON - 20; /* … and after it */
    assert_string_equal(column(read_query(place, &query), "passed"), "null,null");
    free(newest);
    place_free(place);
}

/* ---- restarts and clocks ---- */

static void a_restart_goes_on(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    add(place, NOON, "a", 5);
    reopen(place, &counts_bounds);
    add(place, NOON, "a b", 1);
    assert_string_equal(all(place, "allowed", NOON, 10, 1), "6");
    assert_string_equal(passed(place, "a", NOON, 10, 1), "6");
    assert_string_equal(passed(place, "b", NOON, 300, 1), "2");
    place_free(place);
}

static void a_clock_that_goes_back_adds_up(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    for (int64_t at_s = NOON; at_s < NOON + 60; at_s += 10)
        add(place, at_s, "a", 1);
    for (int64_t at_s = NOON + 30; at_s < NOON + 70; at_s += 10)
        add(place, at_s, "a", 10);
    assert_string_equal(passed(place, "a", NOON, 10, 7), "1,1,1,11,11,11,10");
    assert_string_equal(passed(place, "a", NOON, 300, 1), "46");
    place_free(place);
}

/* With room for six steps. The farthest go first, so that a wrong clock costs as many steps as it made, and no more. */
static void a_wrong_clock_costs_little(void **state)
{
    static const int64_t wrong[] = { 10, NOON + INT64_C(1000000000) };
    (void)state;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        struct place *place = place_new(&small);
        for (int i = 0; i < 6; i++)
            add(place, NOON + 10 * i, "a", 1);
        add(place, wrong[k], "a", 1);
        assert_int_equal(number(place, "SELECT count(*) FROM all_10"), 6);
        for (int i = 6; i < 9; i++)
            add(place, NOON + 10 * i, "a", 1);
        assert_int_equal(number(place, "SELECT count(*) FROM all_10"), 6);
        assert_int_equal(number(place, "SELECT count(*) FROM all_10 WHERE abs(at_s - 1800014400) < 100"), 6);
        assert_string_equal(passed(place, "a", NOON + 60, 10, 3), "1,1,1");
        place_free(place);
    }
}

/* ---- bounds ---- */

static void old_steps_go(void **state)
{
    struct place *place = place_new(&small);
    (void)state;
    for (int i = 0; i < 200; i++)
        add(place, NOON + 10 * i, "a b", 1);
    assert_int_equal(number(place, "SELECT count(*) FROM all_10"), 6);
    assert_int_equal(number(place, "SELECT count(*) FROM rules_10"), 12);
    assert_int_equal(number(place, "SELECT count(*) FROM all_300"), 4);
    assert_int_equal(number(place, "SELECT min(at_s) FROM all_10"), NOON + 1940);
    assert_int_equal(number(place, "SELECT min(at_s) FROM rules_10"), NOON + 1940);
    assert_int_equal(number(place, "SELECT min(at_s) FROM rules_300"), NOON + 900);
    sv id = SV("a");
    struct counts_query query = { NOON, 10, 1, NULL, 1, &id };
    assert_non_null(strstr(read_query(place, &query), "\"since\": \"2027-01-15T12:32:20Z\""));
    place_free(place);
}

static void the_least_busy_are_counted_together(void **state)
{
    struct place *place = place_new(&small);
    (void)state;
    add(place, NOON, "a b c", 10);
    add(place, NOON, "d e", 1); /* 1 and 2, where there are 10, 11 and 12 */
    assert_string_equal(passed(place, "a", NOON, 10, 1), "10");
    assert_string_equal(passed(place, "d", NOON, 10, 1), "null"); /* it is somewhere among the others */
    assert_string_equal(passed(place, STATS_OTHER, NOON, 10, 1), "3");
    add(place, NOON + 10, "e " STATS_OTHER, 30);
    assert_string_equal(passed(place, "e", NOON, 10, 2), "null,30");
    assert_string_equal(passed(place, STATS_OTHER, NOON, 10, 2), "3,31");
    assert_string_equal(passed(place, "e", NOON, 300, 1), "null");       /* 30 of it are known, and 2 are not */
    assert_string_equal(passed(place, STATS_OTHER, NOON, 300, 1), "44"); /* a is the least busy now */
    assert_string_equal(passed(place, "a", NOON, 300, 1), "null");
    assert_string_equal(passed(place, "b", NOON, 300, 1), "null"); /* it may be among the others of the second step */
    assert_int_equal(number(place, "SELECT sum(passed) FROM rules_300"), number(place, "SELECT sum(passed) FROM rules_10"));
    assert_int_equal(
        number(place, "SELECT max(n) FROM (SELECT count(*) AS n FROM rules_300 WHERE rule <> 0 GROUP BY at_s)"), 3);
    place_free(place);
}

/* Known is what every step of a point counts apart, also if the step was added in parts. */
static void unknown_is_not_zero(void **state)
{
    struct place *place = place_new(&counts_bounds);
    sv ids[] = { SV("a"), SV("x") };
    (void)state;
    for (int i = 0; i < 3; i++) /* the second step has others */
        add(place, NOON + 10 * i, i == 1 ? "a b " STATS_OTHER : "a b c", 5);
    add(place, NOON + 10, "c d", 1); /* … and a second part without */
    assert_string_equal(passed(place, "a", NOON, 10, 3), "5,5,5");
    assert_string_equal(passed(place, "c", NOON, 10, 3), "7,null,7");
    assert_string_equal(passed(place, "d", NOON, 10, 3), "0,null,0");
    assert_string_equal(passed(place, "never", NOON, 10, 3), "0,null,0");
    assert_string_equal(passed(place, "a", NOON, 300, 1), "15");
    assert_string_equal(passed(place, "a", NOON, 30, 1), "15");
    assert_string_equal(passed(place, "c", NOON, 300, 1), "null");
    assert_string_equal(passed(place, "c", NOON, 20, 2), "null,7");
    assert_string_equal(passed(place, STATS_OTHER, NOON, 10, 3), "0,7,0");
    struct counts_step *newest = step_of(NOON + 30, "a x", 3);
    newest->rules[1].unknown = true;
    struct counts_query query = { NOON + 20, 10, 2, newest, 2, ids };
    assert_string_equal(column(read_query(place, &query), "passed"), "5,3");
    assert_string_equal(column(strstr(read_query(place, &query), "\"x\""), "passed"), "0,null");
    free(newest);
    place_free(place);
}

static void names_have_a_bound(void **state)
{
    struct place *place = place_new(&small);
    (void)state;
    for (int i = 0; i < 12; i++) {
        char id[20];
        snprintf(id, sizeof id, "r%d", i);
        add(place, NOON + 10 * i, id, 1);
    }
    assert_int_equal(number(place, "SELECT count(*) FROM names"), 8);
    assert_string_equal(passed(place, STATS_OTHER, NOON + 60, 10, 6), "0,0,1,1,1,1");
    assert_string_equal(passed(place, "r7", NOON + 60, 10, 6), "0,1,null,null,null,null");
    assert_string_equal(passed(place, "r9", NOON + 60, 10, 6), "0,0,null,null,null,null");
    /* Their steps are gone after some hours, and so are they. */
    for (int i = 0; i < 50; i++)
        add(place, NOON + 7200 + 300 * i, "r11", 1);
    assert_int_equal(number(place, "SELECT count(*) FROM names"), 1);
    assert_string_equal(passed(place, "r11", NOON + 7200 + 300 * 49, 300, 1), "1");
    place_free(place);
}

/* All rules in all steps; then it goes on for as long again, and the file does not grow. */
static void the_file_does_not_grow(void **state)
{
    static const struct counts_bounds bounds = { 50, 300, 60, 1000, 64 << 20 };
    struct place *place = place_new(&bounds);
    struct stat before, after;
    char rules[1000] = "";
    (void)state;
    for (int i = 0; i < 60; i++)
        snprintf(rules + strlen(rules), sizeof rules - strlen(rules), "%srule%d", i ? " " : "", i);
    for (int i = 0; i < 2400; i++) {
        add(place, NOON + 60 * i, rules, 1000000);
        if (i == 1200) {
            reopen(place, &bounds); /* empties the log into the file */
            assert_int_equal(stat(place->path, &before), 0);
        }
    }
    assert_int_equal(number(place, "SELECT count(*) FROM rules_10"), 300 * 51);
    assert_int_equal(number(place, "SELECT count(*) FROM rules_300"), 60 * 51);
    reopen(place, &bounds);
    assert_int_equal(stat(place->path, &after), 0);
    assert_true(after.st_size <= before.st_size + 16 * 4096);
    place_free(place);
}

static void ten_thousand_rules_are_many(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    (void)state;
    struct counts_step *step = step_of(NOON, "", 1);
    for (; step->count < 10000; step->count++) {
        snprintf(step->rules[step->count].id, sizeof step->rules[0].id, "rule-%05zu", step->count);
        step->rules[step->count].said.passed = step->count + 1;
    }
    assert_int_equal(counts_db_add(place->db, step, NULL, &error), 0);
    assert_int_equal(number(place, "SELECT count(*) FROM rules_10"), COUNTS_RULES_MAX + 1);
    assert_int_equal(number(place, "SELECT sum(passed) FROM rules_300"), 10000 * 10001 / 2);
    assert_string_equal(passed(place, "rule-09750", NOON, 10, 1), "9751");
    assert_string_equal(passed(place, "rule-09749", NOON, 10, 1), "null");
    assert_string_equal(passed(place, "rule-09749", NOON, 300, 1), "null");
    free(step);
    place_free(place);
}

/* ---- files ---- */

static void write_file(const char *path, const char *text, size_t len)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    fclose(file);
}

static void a_bad_file_is_put_aside(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    char aside[100];
    (void)state;
    snprintf(aside, sizeof aside, "%s.damaged", place->path);
    for (int i = 0; i < 2; i++) { /* a second one replaces the first */
        char text[9000];
        memset(text, 'x', sizeof text);
        write_file(place->path, text, sizeof text);
        assert_int_equal(try_to_add(place, NOON, "a", 5, &error), WEIR_E_RULES);
        assert_non_null(strstr(error.text, "counts.db.damaged"));
        assert_int_equal(access(aside, F_OK), 0);
        add(place, NOON, "a", 5);
        assert_string_equal(passed(place, "a", NOON, 10, 1), "5");
        reopen(place, &counts_bounds);
    }
    place_free(place);
}

static void the_database_of_others_is_put_aside(void **state)
{
    static const char *const others[] = { "CREATE TABLE mine (x); INSERT INTO mine VALUES (1)", "PRAGMA user_version = 2",
                                          "PRAGMA user_version = 3", "PRAGMA user_version = -1",
                                          "CREATE TABLE mine (x); PRAGMA user_version = 1" };
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct place *place = place_new(&counts_bounds);
        struct weir_error error;
        run_sql(place, others[i]);
        assert_int_equal(try_to_add(place, NOON, "a", 5, &error), WEIR_E_RULES);
        add(place, NOON, "a", 5);
        assert_string_equal(passed(place, "a", NOON, 10, 1), "5");
        place_free(place);
    }
}

/* Pages in the middle, as a bad disk leaves them. */
static void a_damaged_page_is_noticed(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    struct stat st;
    int r = 0;
    (void)state;
    for (int i = 0; i < 1000; i++)
        add(place, NOON + 10 * i, "a b c d", 1);
    counts_db_free(place->db);
    assert_int_equal(stat(place->path, &st), 0);
    FILE *file = fopen(place->path, "r+");
    assert_non_null(file);
    for (long at = 4096; at < st.st_size; at += 1024)
        assert_true(fseek(file, at, SEEK_SET) == 0 && fwrite("\xff\xff\xff\xff\xff\xff\xff\xff", 8, 1, file) == 1);
    fclose(file);
    open_db(place, &counts_bounds);
    for (int i = 0; i < 3 && r == 0; i++)
        r = try_to_add(place, NOON + 10000 + 10 * i, "a b c d", 1, &error);
    assert_int_equal(r, WEIR_E_RULES);
    add(place, NOON, "a", 5);
    assert_string_equal(passed(place, "a", NOON, 10, 1), "5");
    place_free(place);
}

static void a_removed_file_comes_back(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    add(place, NOON, "a", 5);
    assert_int_equal(unlink(place->path), 0);
    add(place, NOON + 10, "a", 6);
    assert_string_equal(passed(place, "a", NOON, 10, 2), "null,6");
    assert_int_equal(access(place->path, F_OK), 0);
    place_free(place);
}

/* A disk without room: what is there stays, and it goes on when there is room again. */
static void a_full_disk_is_no_end(void **state)
{
    static const struct counts_bounds tiny = { 250, 8640, 8928, 20000, 20 * 4096 };
    struct place *place = place_new(&tiny);
    struct weir_error error;
    int r = 0, i = 0;
    (void)state;
    for (; r == 0; i++) {
        assert_true(i < 100000);
        r = try_to_add(place, NOON + 10 * i, "a b c d", 1, &error);
    }
    assert_int_equal(r, WEIR_E_SYSTEM);
    assert_non_null(strstr(error.text, "full"));
    assert_int_equal(try_to_add(place, NOON + 10 * i, "a b c d", 1, &error), WEIR_E_SYSTEM);
    assert_string_equal(passed(place, "a", NOON, 10, 2), "1,1");
    assert_string_equal(passed(place, "a", NOON + 10 * (i - 2), 10, 3), "1,null,null");
    reopen(place, &counts_bounds);
    add(place, NOON + 10 * i, "a b c d", 1);
    assert_string_equal(passed(place, "a", NOON + 10 * (i - 2), 10, 3), "1,null,1");
    place_free(place);
}

static void without_a_folder_it_waits_for_one(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    char moved[60];
    (void)state;
    snprintf(moved, sizeof moved, "%s-moved", place->folder);
    assert_int_equal(rename(place->folder, moved), 0);
    assert_int_equal(try_to_add(place, NOON, "a", 5, &error), WEIR_E_SYSTEM);
    assert_int_equal(rename(moved, place->folder), 0);
    add(place, NOON, "a", 5);
    assert_string_equal(passed(place, "a", NOON, 10, 1), "5");
    place_free(place);
}

/* Another process keeps it, such as a backup: that step is lost, and no more. */
static void a_lock_of_others_passes(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    sqlite3 *other;
    (void)state;
    add(place, NOON, "a", 5);
    assert_int_equal(sqlite3_open(place->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(try_to_add(place, NOON + 10, "a", 5, &error), WEIR_E_SYSTEM);
    assert_string_equal(passed(place, "a", NOON, 10, 2), "5,null");
    sqlite3_close(other);
    add(place, NOON + 20, "a", 5);
    assert_string_equal(passed(place, "a", NOON, 10, 3), "5,null,5");
    place_free(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_there_in_both_resolutions),
        cmocka_unit_test(steps_add_up_to_coarser_ones),
        cmocka_unit_test(a_window_ends_where_it_says),
        cmocka_unit_test(gauges_are_those_of_the_end),
        cmocka_unit_test(the_newest_part_is_not_in_the_file),
        cmocka_unit_test(a_restart_goes_on),
        cmocka_unit_test(a_clock_that_goes_back_adds_up),
        cmocka_unit_test(a_wrong_clock_costs_little),
        cmocka_unit_test(old_steps_go),
        cmocka_unit_test(the_least_busy_are_counted_together),
        cmocka_unit_test(unknown_is_not_zero),
        cmocka_unit_test(names_have_a_bound),
        cmocka_unit_test(the_file_does_not_grow),
        cmocka_unit_test(ten_thousand_rules_are_many),
        cmocka_unit_test(a_bad_file_is_put_aside),
        cmocka_unit_test(the_database_of_others_is_put_aside),
        cmocka_unit_test(a_damaged_page_is_noticed),
        cmocka_unit_test(a_removed_file_comes_back),
        cmocka_unit_test(a_full_disk_is_no_end),
        cmocka_unit_test(without_a_folder_it_waits_for_one),
        cmocka_unit_test(a_lock_of_others_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
