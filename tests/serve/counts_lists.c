/* Who was refused, in counts.db: lists add up over restarts and wrong clocks, within their bounds, and rows that are
 * damaged cost themselves only. */
#include "counts_place.h"

#include <fcntl.h>

#include "base/clock.h"
#include "serve/counts_lists.h"

#define NOON_US (NOON * US_PER_S)

/* A window whose subjects are "FIRST", "FIRST+1", … of a rule by key, refused n, n - 1, … times. */
static struct counts_window *window_of(int64_t start_us, unsigned first, unsigned count, uint64_t n)
{
    struct counts_window *window = calloc(1, sizeof *window);
    assert_non_null(window);
    window->start_us = start_us;
    assert_int_equal(top_list_reserve(&window->list, count), 0);
    for (; window->list.count < count; window->list.count++) {
        struct rule_by by = { .attribute = ATTR_KEY };
        struct rule_kind kind = { .by = &by, .by_count = 1 };
        struct rule rule = { .id = SV("ocr"), .kind = &kind };
        struct top_entry *entry = &window->list.entries[window->list.count];
        char value[20];
        snprintf(value, sizeof value, "%u", first + (unsigned)window->list.count);
        entry->count = n - window->list.count;
        subject_fill(&entry->subject, &rule, &(struct weir_str){ value, strlen(value) }, &key);
        window->list.total += entry->count;
    }
    return window;
}

static void add_window(struct place *place, int64_t start_us, unsigned first, unsigned count, uint64_t n)
{
    struct counts_refused refused = { .windows = window_of(start_us, first, count, n) };
    struct counts_step *step = step_of(NOON, "", 1);
    struct weir_error error;
    if (counts_db_add(place->db, step, &refused, &error) < 0)
        fail_msg("%s", error.text);
    free(step);
    counts_refused_done(&refused);
}

static struct counts_earlier read_earlier(struct place *place, int64_t now_s)
{
    struct counts_earlier earlier;
    struct weir_error error;
    if (counts_db_read_earlier(place->db, now_s, &earlier, &error) < 0)
        fail_msg("%s", error.text);
    return earlier;
}

/* The beginning of the list over this time: "KEY=COUNT KEY=COUNT of TOTAL". */
static const char *top_of(const struct counts_earlier *earlier, int64_t last_us, int64_t now_us)
{
    static char text[200];
    struct top_list list = { 0 };
    text[0] = '\0';
    assert_int_equal(top_history_read(earlier->top, now_us - last_us, now_us, &list), 0);
    top_list_sort(&list);
    for (size_t i = 0; i < list.count && i < 3; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s=%d ",
                 SV_FMT(subject_value(&list.entries[i].subject, 0)), (int)list.entries[i].count);
    snprintf(text + strlen(text), sizeof text - strlen(text), "of %d", (int)list.total);
    top_list_done(&list);
    return text;
}

static void lists_add_up_over_restarts(void **state)
{
    struct place *place = place_new(&counts_bounds);
    const int64_t hour_us = 3600 * US_PER_S, now_us = NOON_US + 2 * hour_us;
    (void)state;
    add_window(place, NOON_US, 1, 2, 10);
    add_window(place, NOON_US + TOP_WINDOW_US, 2, 1, 5);
    reopen(place, &counts_bounds);
    add_window(place, NOON_US + TOP_WINDOW_US, 2, 1, 5); /* the same window of another run */
    add_window(place, NOON_US + hour_us, 1, 1, 1);
    add_window(place, NOON_US - 300 * US_PER_S, 7, 1, 3); /* the clock has stepped back */
    reopen(place, &counts_bounds);
    struct counts_earlier earlier = read_earlier(place, now_us / US_PER_S);
    assert_string_equal(top_of(&earlier, 86400 * US_PER_S, now_us), "2=19 1=11 7=3 of 33");
    assert_string_equal(top_of(&earlier, 31 * 86400 * US_PER_S, now_us), "2=19 1=11 7=3 of 33");
    assert_string_equal(top_of(&earlier, 2 * hour_us, now_us), "2=19 1=11 of 30");
    assert_string_equal(top_of(&earlier, hour_us, now_us), "1=1 of 1");
    assert_int_equal(earlier.since_us, NOON_US - hour_us); /* of the coarse list */
    counts_earlier_done(&earlier);
    earlier = read_earlier(place, NOON - 7200); /* a clock that is behind sees nothing yet */
    assert_string_equal(top_of(&earlier, 86400 * US_PER_S, NOON_US - 2 * hour_us), "of 0");
    assert_int_equal(earlier.since_us, 0);
    counts_earlier_done(&earlier);
    place_free(place);
}

static void add_refusals(struct place *place, uint64_t first, unsigned count)
{
    struct counts_refused refused = { .windows = NULL };
    struct counts_step *step = step_of(NOON, "", 1);
    struct weir_error error;
    assert_int_equal(recent_list_reserve(&refused.recent, count), 0);
    for (unsigned i = 0; i < count; i++) {
        struct recent_refusal *refusal = &refused.recent.entries[refused.recent.count++];
        *refusal = (struct recent_refusal){ .number = first + count - 1 - i, .at_us = NOON_US, .status = 429 };
        snprintf(refusal->limit, sizeof refusal->limit, "l%u", (unsigned)refusal->number);
    }
    assert_int_equal(counts_db_add(place->db, step, &refused, &error), 0);
    free(step);
    counts_refused_done(&refused);
}

/* More subjects and lists than are kept. */
static void lists_have_bounds(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    for (int i = 0; i < 400; i++)
        add_window(place, NOON_US + i * 300 * US_PER_S, 1, 150, 1000);
    add_window(place, NOON_US + 400 * 300 * US_PER_S, 1, 1000, 2000);
    add_window(place, NOON_US + 400 * 300 * US_PER_S, 901, 1000, 2000);
    assert_int_equal(number(place, "SELECT count(*) FROM top_300"), 289);
    assert_int_equal(number(place, "SELECT min(at_s) FROM top_300"), NOON + 112 * 300);
    assert_int_equal(number(place, "SELECT count(*) FROM top_300 WHERE listed > 100"), 1); /* the one that goes on */
    assert_int_equal(number(place, "SELECT max(listed) FROM top_300"), 1000);
    assert_int_equal(number(place, "SELECT count(*) FROM top_3600"), 34);
    assert_int_equal(number(place, "SELECT count(*) FROM top_3600 WHERE listed > 100"), 1);
    place_free(place);
}

/* If nobody is refused any more, empty lists take the place of the old ones, and old refusals go with these. */
static void old_subjects_go(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    add_window(place, NOON_US, 12345678, 2, 10);
    add_refusals(place, (uint64_t)NOON_US + 1, 3);
    for (int i = 1; i < 745; i++)
        add_window(place, NOON_US + i * 3600 * US_PER_S, 1, 0, 0);
    assert_int_equal(number(place, "SELECT count(*) FROM top_3600 WHERE listed > 0"), 1);
    assert_int_equal(number(place, "SELECT count(*) FROM refusals"), 3);
    add_window(place, NOON_US + 745 * 3600 * US_PER_S, 1, 0, 0);
    assert_int_equal(number(place, "SELECT count(*) FROM top_3600 WHERE listed > 0"), 0);
    assert_int_equal(number(place, "SELECT count(*) FROM top_300 WHERE listed > 0"), 0);
    assert_int_equal(number(place, "SELECT count(*) FROM refusals"), 0);
    place_free(place);
}

/* A row that is not a list costs that row. Odd times are no lists, either. */
static void damaged_lists_are_left_out(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    add_window(place, NOON_US, 1, 2, 10);
    add_window(place, NOON_US + 300 * US_PER_S, 1, 2, 10);
    run_sql(place, "UPDATE top_300 SET list = x'ffffff' WHERE at_s = 1800014400;"
                   "UPDATE top_3600 SET list = 'text', listed = 900;"
                   "INSERT INTO top_300 SELECT at_s + 1, listed, list FROM top_300;"
                   "INSERT INTO top_300 SELECT -300, listed, list FROM top_300 LIMIT 1;"
                   "INSERT INTO top_300 VALUES (300, 1, x''), (9223372036854775500, 1, x'00');"
                   "INSERT INTO refusals VALUES (1, x'00'), (-5, x''), (9223372036854775807, x'00')");
    struct counts_earlier earlier = read_earlier(place, NOON + 600);
    assert_string_equal(top_of(&earlier, 3600 * US_PER_S, NOON_US + 600 * US_PER_S), "1=10 2=9 of 19");
    assert_string_equal(top_of(&earlier, 31 * 86400 * US_PER_S, NOON_US + 600 * US_PER_S), "of 0");
    assert_int_equal(earlier.recent.count, 0);
    counts_earlier_done(&earlier);
    add_window(place, NOON_US, 5, 1, 4);
    add_window(place, NOON_US + 3600 * US_PER_S, 5, 1, 4);
    earlier = read_earlier(place, NOON + 4000);
    assert_string_equal(top_of(&earlier, 31 * 86400 * US_PER_S, NOON_US + 4000 * US_PER_S), "5=8 of 8");
    counts_earlier_done(&earlier);
    place_free(place);
}

static void the_newest_refusals_stay(void **state)
{
    struct place *place = place_new(&counts_bounds);
    (void)state;
    add_refusals(place, 1000, 1);
    add_refusals(place, 2000, 300);
    add_refusals(place, 3000, 300);
    reopen(place, &counts_bounds);
    struct counts_earlier earlier = read_earlier(place, NOON);
    assert_int_equal(earlier.recent.count, COUNTS_REFUSALS_MAX);
    assert_int_equal(earlier.recent.entries[0].number, 3299);
    assert_int_equal(earlier.recent.entries[300].number, 2299);
    assert_int_equal(earlier.recent.entries[499].number, 2100);
    assert_string_equal(earlier.recent.entries[499].limit, "l2100");
    counts_earlier_done(&earlier);
    assert_int_equal(number(place, "SELECT count(*) FROM refusals"), COUNTS_REFUSALS_MAX);
    place_free(place);
}

static bool file_has(const char *path, const char *text)
{
    static char bytes[4 << 20];
    FILE *file = fopen(path, "r");
    size_t len = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    return len > 0 && memmem(bytes, len, text, strlen(text));
}

static void what_was_refused_can_be_forgotten(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct weir_error error;
    char wal[80];
    (void)state;
    snprintf(wal, sizeof wal, "%s-wal", place->path);
    add_window(place, NOON_US, 12345678, 2, 10);
    add_refusals(place, 1, 3);
    reopen(place, &counts_bounds);
    assert_true(file_has(place->path, "12345678"));
    assert_int_equal(counts_db_forget_refused(place->db, &error), 0);
    assert_false(file_has(place->path, "12345678"));
    assert_false(file_has(wal, "12345678"));
    struct counts_earlier earlier = read_earlier(place, NOON);
    assert_string_equal(top_of(&earlier, 86400 * US_PER_S, NOON_US + US_PER_S), "of 0");
    assert_int_equal(earlier.recent.count, 0);
    counts_earlier_done(&earlier);
    assert_string_equal(all(place, "allowed", NOON, 10, 1), "2"); /* the counts are still there */
    place_free(place);
}

static void nobody_else_reads_the_file(void **state)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    struct place *place = place_new(&counts_bounds);
    (void)state;
    umask(0);
    add(place, NOON, "a", 5);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[80];
        struct stat st;
        snprintf(path, sizeof path, "%s%s", place->path, ends[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    umask(022);
    place_free(place);
}

/* The file as the first version made it. */
static void a_file_of_version_1_is_taken_over(void **state)
{
    struct place *place = place_new(&counts_bounds);
    struct stat st;
    (void)state;
    run_sql(place, "CREATE TABLE names (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, last_s INTEGER NOT NULL);"
#define OLD(step)                                                                                                 \
    "CREATE TABLE all_" step " (at_s INTEGER PRIMARY KEY, allowed INTEGER NOT NULL, refused INTEGER NOT NULL, "   \
    "shadow INTEGER NOT NULL, without_rule INTEGER NOT NULL, errors INTEGER NOT NULL, table_fill REAL NOT NULL, " \
    "store_up INTEGER, lease_tokens_held INTEGER NOT NULL, holds INTEGER NOT NULL);"                              \
    "CREATE TABLE rules_" step " (at_s INTEGER NOT NULL, rule INTEGER NOT NULL, passed INTEGER NOT NULL, "        \
    "refused INTEGER NOT NULL, would_refuse INTEGER NOT NULL, PRIMARY KEY (at_s, rule)) WITHOUT ROWID;"           \
    "INSERT INTO all_" step " VALUES (1800014400, 5, 1, 0, 0, 0, 0.5, NULL, 0, 0);"                               \
    "INSERT INTO rules_" step " VALUES (1800014400, 0, 3, 0, 0), (1800014400, 1, 2, 0, 0);"
            OLD("10") OLD("300") "INSERT INTO names VALUES (1, 'a', 1800014400); PRAGMA user_version = 1");
    assert_int_equal(chmod(place->path, 0644), 0);
    char wal[80];
    snprintf(wal, sizeof wal, "%s-wal", place->path);
    int left = open(wal, O_WRONLY | O_CREAT, 0644); /* of a service that was killed */
    assert_true(left >= 0 && close(left) == 0);
    assert_string_equal(passed(place, "a", NOON, 10, 1), "2");
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    add(place, NOON + 10, "a", 4);
    assert_string_equal(passed(place, "a", NOON, 10, 2), "2,4");
    assert_string_equal(passed(place, STATS_OTHER, NOON, 10, 2), "3,0");
    add_window(place, NOON_US, 1, 1, 1);
    assert_int_equal(number(place, "SELECT count(*) FROM top_300"), 1);
    assert_int_equal(number(place, "PRAGMA user_version"), 2);
    assert_int_equal(stat(place->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    place_free(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_add_up_over_restarts),
        cmocka_unit_test(lists_have_bounds),
        cmocka_unit_test(old_subjects_go),
        cmocka_unit_test(damaged_lists_are_left_out),
        cmocka_unit_test(the_newest_refusals_stay),
        cmocka_unit_test(what_was_refused_can_be_forgotten),
        cmocka_unit_test(nobody_else_reads_the_file),
        cmocka_unit_test(a_file_of_version_1_is_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
