/* Counts over time, and how they are drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cli/chart.h"

static uint64_t sum(const struct series *series)
{
    uint64_t n = 0;
    for (size_t i = 0; i < SERIES_BINS; i++)
        n += series->counts[i];
    return n;
}

static uint64_t sum_columns(const struct columns *columns, const struct timeline *timeline, const struct series *series)
{
    uint64_t n = 0;
    for (size_t i = 0; i < columns->count; i++)
        n += columns_count(columns, timeline, series, i);
    return n;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 11;
}

/* Whatever the order and the span of the instants: nothing is lost, and each is in the column of its time. */
static void test_nothing_is_lost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct timeline timeline;
        timeline_init(&timeline);
        struct series *series = timeline_series(&timeline);
        assert_non_null(series);
        uint64_t random = seed, spans[] = { 1, 1000, 3600 * US_PER_S, INT64_C(400) * 86400 * US_PER_S, CLOCK_END_US };
        uint64_t span = spans[seed % 5], start = next_random(&random) % (uint64_t)(CLOCK_END_US - (int64_t)span + 1);
        int64_t instants[500];
        for (size_t i = 0; i < 500; i++) {
            uint64_t way = seed % 3 == 0   ? i * span / 500
                           : seed % 3 == 1 ? span - 1 - i * span / 500
                                           : next_random(&random) % span;
            instants[i] = (int64_t)(start + way);
            series->counts[timeline_bin(&timeline, instants[i])]++;
        }
        assert_int_equal(sum(series), 500);
        struct columns columns = timeline_columns(&timeline, 70);
        assert_in_range(columns.count, 1, 70);
        assert_int_equal(sum_columns(&columns, &timeline, series), 500);
        uint64_t first = 0;
        for (size_t i = 0; i < 500; i++)
            first += instants[i] < columns.start_us + columns.width_us;
        if (columns_count(&columns, &timeline, series, 0) != first)
            fail_msg("seed %llu", (unsigned long long)seed);
        timeline_done(&timeline);
    }
    timeline_done(NULL);
}

/* A log that runs backwards, line by line, rearranges the bins seldom: this takes no time. */
static void test_backwards(void **state)
{
    (void)state;
    struct timeline timeline;
    timeline_init(&timeline);
    struct series *series = timeline_series(&timeline);
    for (int64_t i = 0; i < 1000000; i++)
        series->counts[timeline_bin(&timeline, (2000000 - i) * US_PER_S)]++;
    assert_int_equal(sum(series), 1000000);
    timeline_done(&timeline);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        const char *text, *short_text;
    } cases[] = {
        { 0, "0", "0" },
        { 999, "999", "999" },
        { 1000, "1,000", "1000" },
        { 9999, "9,999", "9999" },
        { 12345, "12,345", "12.3k" },
        { 999999, "999,999", "999k" },
        { 1234567, "1,234,567", "1.2M" },
        { UINT64_MAX, "18,446,744,073,709,551,615", "18.4E" },
    };
    char text[COUNT_TEXT_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        count_text(cases[i].n, text);
        assert_string_equal(text, cases[i].text);
        count_text_short(cases[i].n, text);
        assert_string_equal(text, cases[i].short_text);
    }
}

static void fill(struct timeline *timeline, struct series **passed, struct series **refused)
{
    timeline_init(timeline);
    *passed = timeline_series(timeline);
    *refused = timeline_series(timeline);
    for (int64_t minute = 0; minute < 8; minute++) {
        (*passed)->counts[timeline_bin(timeline, minute * 60 * US_PER_S)] += 4;
        (*refused)->counts[timeline_bin(timeline, minute * 60 * US_PER_S)] += minute == 5 ? 4 : 0;
    }
}

static void test_ascii(void **state)
{
    (void)state;
    struct term term = { .columns = 80 };
    struct timeline timeline;
    struct series *passed, *refused;
    struct buf out;
    fill(&timeline, &passed, &refused);
    buf_init(&out, 1 << 20);
    chart_draw(&out, &term, &timeline, passed, refused);
    assert_string_equal(out.ptr, "requests in each 10 s (UTC)   # refused  : passed\n"
                                 "\n"
                                 "    8 |                               :\n"
                                 "      |                               :\n"
                                 "      |                               :\n"
                                 "      |                               :\n"
                                 "      | :     :     :     :     :     #     :     :\n"
                                 "      | :     :     :     :     :     #     :     :\n"
                                 "      | :     :     :     :     :     #     :     :\n"
                                 "      | :     :     :     :     :     #     :     :\n"
                                 "    0 +-+-----------------------------+------------\n"
                                 "        1970-01-01                    00:05\n");
    buf_clear(&out);
    chart_spark(&out, &term, &timeline, refused, 10);
    assert_string_equal(out.ptr, "     #    ");
    buf_done(&out);
    timeline_done(&timeline);
}

static void test_colour(void **state)
{
    (void)state;
    struct term term = { .columns = 60, .unicode = true, .color = true };
    struct timeline timeline;
    struct series *passed, *refused;
    struct buf out;
    fill(&timeline, &passed, &refused);
    buf_init(&out, 1 << 20);
    chart_draw(&out, &term, &timeline, passed, refused);
    assert_non_null(strstr(out.ptr, "\033[31m"));
    assert_non_null(strstr(out.ptr, "\033[32m"));
    /* each line gives back the colour that it takes */
    for (char *save, *line = strtok_r(out.ptr, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *last = line;
        for (const char *p = line; (p = strchr(p, '\033')); p++)
            last = p;
        assert_true(*last != '\033' || strncmp(last, "\033[0m", 4) == 0);
    }
    buf_done(&out);
    timeline_done(&timeline);
}

static void test_nothing(void **state)
{
    (void)state;
    struct term term = { .columns = 80, .unicode = true };
    struct timeline timeline;
    struct buf out;
    timeline_init(&timeline);
    struct series *series = timeline_series(&timeline);
    buf_init(&out, 1 << 20);
    chart_draw(&out, &term, &timeline, series, series);
    assert_int_equal(out.len, 0);
    timeline_bin(&timeline, CLOCK_END_US - 1);
    chart_draw(&out, &term, &timeline, series, series);
    assert_false(out.failed);
    buf_done(&out);
    timeline_done(&timeline);
}

static void assert_safe(bool unicode, const char *text, size_t columns, const char *expected)
{
    struct term term = { .unicode = unicode };
    struct buf out;
    buf_init(&out, 1000);
    term_add(&term, &out, weir_str(text), columns);
    assert_string_equal(buf_sv(&out).ptr, expected);
    buf_done(&out);
}

/* What strangers wrote into a log does not reach the terminal as a command. */
static void test_strangers_text(void **state)
{
    (void)state;
    assert_safe(true, "abc", 10, "abc");
    assert_safe(true, "a\033[2Jb\x7f\r\n", 20, "a?[2Jb???");
    assert_safe(true, "h\xc3\xa9\xc2\x9bz\xff", 20, "h\xc3\xa9?z?");
    assert_safe(true, "a\u202eb\u2028c\u200fd\ufeff", 20, "a?b?c?d?");
    assert_safe(false, "h\xc3\xa9", 20, "h?");
    assert_safe(true, "0123456789", 10, "0123456789");
    assert_safe(true, "0123456789a", 10, "0123456...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost), cmocka_unit_test(test_backwards), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_ascii),           cmocka_unit_test(test_colour),    cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_strangers_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
