/* Sources in tests: fresh tables, rows by hand, and what a reading says. */
#ifndef TESTS_SOURCE_SOURCES_H
#define TESTS_SOURCE_SOURCES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "places.h"
#include "source/source.h"

static struct weir_error error;
static const struct source_author me = { .who = { "tester", 6 }, .note = { "a note", 6 } };

static inline void good(int r)
{
    if (r < 0)
        fail_msg("%s", error.text);
}

/* It failed, and said this. */
static inline void bad(int r, const char *said)
{
    if (r >= 0)
        fail_msg("no error, where one says: %s", said);
    if (!strstr(error.text, said))
        fail_msg("%s\ndoes not say: %s", error.text, said);
}

static inline void hand(struct sql *sql, const char *statement)
{
    good(sql_run(sql, statement, NULL, 0, NULL, NULL, NULL, &error));
}

static inline void drop_tables(struct place *place)
{
    struct sql *sql = place_connect(place);
    hand(sql, "DROP TABLE IF EXISTS throttled_calls"); /* which is another one on MariaDB */
    hand(sql, "DROP TABLE IF EXISTS weir_rules");
    hand(sql, "DROP TABLE IF EXISTS WEIR_RULES");
    hand(sql, "DROP TABLE IF EXISTS THROTTLED_CALLS");
    hand(sql, "DROP TABLE IF EXISTS WEIR_SETTINGS");
    hand(sql, "DROP TABLE IF EXISTS WEIR_OVERRIDES");
    hand(sql, "DROP TABLE IF EXISTS WEIR_HISTORY");
    sql_close(sql);
}

static inline struct source *open_source(struct place *place)
{
    struct source *source = NULL;
    good(source_open(&source, place->address, &error));
    return source;
}

/* With tables that are new and empty. */
static inline struct source *fresh_source(struct place *place)
{
    struct buf out;
    drop_tables(place);
    struct source *source = open_source(place);
    buf_init(&out, 4000);
    good(source_init(source, &out, &error));
    buf_done(&out);
    return source;
}

static inline void put(struct source *source, const char *rule)
{
    good(source_put(source, weir_str(rule), false, me, &error));
}

static inline int set(struct source *source, const char *id, const char *field, const char *value)
{
    return source_set(source, weir_str(id), weir_str(field), weir_str(value), me, &error);
}

/* "ocr 10 per 1m; x 5 per 1s": the rules in force. */
static inline void expect_rules(struct source *source, const struct rules *last, const char *expected)
{
    struct source_reading reading;
    struct buf text;
    good(source_read(source, last, &reading, &error));
    buf_init(&text, 1 << 20);
    buf_add(&text, SV(""));
    for (size_t i = 0; i < reading.rules->rule_count; i++) {
        buf_printf(&text, "%s%s%.*s", i ? "; " : "", reading.rules->rules[i]->kind->disabled ? "disabled " : "",
                   SV_FMT(reading.rules->rules[i]->id));
        for (size_t j = 0; j < reading.rules->rules[i]->kind->limit_count; j++) {
            buf_char(&text, ' ');
            rule_limit_text(&reading.rules->rules[i]->kind->limits[j], &text);
        }
    }
    if (strcmp(text.ptr, expected) != 0)
        print_error("problem: %.*s\n", reading.problem_count ? (int)reading.problems[0].text.len : 0,
                    reading.problem_count ? reading.problems[0].text.ptr : "");
    assert_string_equal(text.ptr, expected);
    buf_done(&text);
    source_reading_done(&reading);
}

/* All problems, as they are printed. */
static inline void expect_problems(struct source *source, size_t count, const char *const *said)
{
    struct source_reading reading;
    struct buf text;
    good(source_read(source, NULL, &reading, &error));
    buf_init(&text, 1 << 20);
    buf_add(&text, SV(""));
    for (size_t i = 0; i < reading.problem_count; i++)
        source_problem_print(&reading.problems[i], &text);
    for (size_t i = 0; i < count; i++) {
        if (!strstr(text.ptr, said[i]))
            print_error("%s\nis not in\n%s", said[i], text.ptr);
        assert_non_null(strstr(text.ptr, said[i]));
    }
    if (reading.problem_count != count)
        print_error("%s", text.ptr);
    assert_int_equal(reading.problem_count, count);
    buf_done(&text);
    source_reading_done(&reading);
}

#endif
