/* Windows that people have been bitten by, each by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <time.h>

#include "base/clock.h"
#include "limit/calendar.h"
#include "zonefile.h"

static struct zonefile file;

static int64_t instant_us(const char *text)
{
    struct tm tm = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    assert_true(rest && *rest == '\0');
    return (int64_t)timegm(&tm) * US_PER_S;
}

static struct tz zone(const char *name)
{
    char path[200];
    struct tz tz;
    const char *why = NULL;
    snprintf(path, sizeof path, ZONEINFO "/%s", name);
    if (!zonefile_read(path, &file)) {
        print_message("# %s is missing (package tzdata)\n", path);
        skip();
    }
    if (tz_parse(file.bytes, file.len, &tz, &why) != 0)
        fail_msg("%s: %s", name, why);
    return tz;
}

static void check_week(const struct tz *tz, enum calendar_unit unit, int week_start, const char *start, const char *end)
{
    int64_t start_us = instant_us(start), end_us = instant_us(end);
    int64_t nows[] = { start_us, start_us + 1, start_us + (end_us - start_us) / 2, end_us - 1 };
    for (size_t i = 0; i < sizeof nows / sizeof nows[0]; i++) {
        struct window w = calendar_window(tz, unit, week_start, nows[i]);
        if (w.start_us != start_us || w.end_us != end_us)
            fail_msg("%s to %s, asked %lld µs into it: begins %lld s too late, ends %lld s too late", start, end,
                     (long long)(nows[i] - start_us), (long long)((w.start_us - start_us) / US_PER_S),
                     (long long)((w.end_us - end_us) / US_PER_S));
    }
}

static void check(const struct tz *tz, enum calendar_unit unit, const char *start, const char *end)
{
    check_week(tz, unit, MONDAY, start, end);
}

static void sao_paulo_has_no_midnight(void **state)
{
    (void)state;
    struct tz tz = zone("America/Sao_Paulo");
    check(&tz, CALENDAR_DAY, "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z");
    check(&tz, CALENDAR_DAY, "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
    check(&tz, CALENDAR_HOUR, "2018-11-04T02:00:00Z", "2018-11-04T03:00:00Z");
    check(&tz, CALENDAR_HOUR, "2018-11-04T03:00:00Z", "2018-11-04T04:00:00Z");
    check(&tz, CALENDAR_MONTH, "2018-11-01T03:00:00Z", "2018-12-01T02:00:00Z");
    /* At midnight back to 23:00: the day that has begun goes on. */
    check(&tz, CALENDAR_DAY, "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z");
}

static void lord_howe_moves_by_half_an_hour(void **state)
{
    (void)state;
    struct tz tz = zone("Australia/Lord_Howe");
    check(&tz, CALENDAR_DAY, "2024-04-06T13:00:00Z", "2024-04-07T13:30:00Z");
    check(&tz, CALENDAR_HOUR, "2024-04-06T14:00:00Z", "2024-04-06T15:00:00Z");
    check(&tz, CALENDAR_HOUR, "2024-04-06T15:00:00Z", "2024-04-06T15:30:00Z");
    check(&tz, CALENDAR_HOUR, "2024-04-06T15:30:00Z", "2024-04-06T16:30:00Z");
    check(&tz, CALENDAR_DAY, "2024-10-05T13:30:00Z", "2024-10-06T13:00:00Z");
    check(&tz, CALENDAR_HOUR, "2024-10-05T14:30:00Z", "2024-10-05T15:30:00Z");
    check(&tz, CALENDAR_HOUR, "2024-10-05T15:30:00Z", "2024-10-05T16:00:00Z");
    check(&tz, CALENDAR_HOUR, "2024-10-05T16:00:00Z", "2024-10-05T17:00:00Z");
}

static void berlin_has_days_of_23_and_25_hours(void **state)
{
    (void)state;
    struct tz tz = zone("Europe/Berlin");
    check(&tz, CALENDAR_DAY, "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z");
    check(&tz, CALENDAR_DAY, "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z");
    /* 02:00 to 03:00, twice. */
    check(&tz, CALENDAR_HOUR, "2024-10-27T00:00:00Z", "2024-10-27T01:00:00Z");
    check(&tz, CALENDAR_HOUR, "2024-10-27T01:00:00Z", "2024-10-27T02:00:00Z");
    check(&tz, CALENDAR_MINUTE, "2024-10-27T00:59:00Z", "2024-10-27T01:00:00Z");
    check(&tz, CALENDAR_MINUTE, "2024-10-27T01:00:00Z", "2024-10-27T01:01:00Z");
    check(&tz, CALENDAR_WEEK, "2024-03-24T23:00:00Z", "2024-03-31T22:00:00Z");
    check(&tz, CALENDAR_MONTH, "2024-09-30T22:00:00Z", "2024-10-31T23:00:00Z");
}

static void offsets_need_not_be_whole_hours(void **state)
{
    (void)state;
    struct tz kathmandu = zone("Asia/Kathmandu");
    check(&kathmandu, CALENDAR_HOUR, "2024-01-01T00:15:00Z", "2024-01-01T01:15:00Z");
    check(&kathmandu, CALENDAR_DAY, "2023-12-31T18:15:00Z", "2024-01-01T18:15:00Z");
    check(&kathmandu, CALENDAR_MINUTE, "2024-01-01T00:15:00Z", "2024-01-01T00:16:00Z");
    struct tz kolkata = zone("Asia/Kolkata");
    check(&kolkata, CALENDAR_HOUR, "2024-01-01T00:30:00Z", "2024-01-01T01:30:00Z");
    check(&kolkata, CALENDAR_YEAR, "2023-12-31T18:30:00Z", "2024-12-31T18:30:00Z");
    struct tz shanghai = zone("Asia/Shanghai");
    check(&shanghai, CALENDAR_DAY, "2024-05-31T16:00:00Z", "2024-06-01T16:00:00Z");
    /* Until 1972 Liberia was 44 minutes and 30 seconds behind. */
    struct tz monrovia = zone("Africa/Monrovia");
    check(&monrovia, CALENDAR_HOUR, "1971-06-01T00:44:30Z", "1971-06-01T01:44:30Z");
    check(&monrovia, CALENDAR_MINUTE, "1971-06-01T00:00:30Z", "1971-06-01T00:01:30Z");
}

static void apia_skips_a_date(void **state)
{
    (void)state;
    struct tz tz = zone("Pacific/Apia");
    check(&tz, CALENDAR_DAY, "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
    check(&tz, CALENDAR_DAY, "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
    check(&tz, CALENDAR_WEEK, "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z");
    /* A week that would begin on the date that is not there. */
    check_week(&tz, CALENDAR_WEEK, FRIDAY, "2011-12-30T10:00:00Z", "2012-01-05T10:00:00Z");
    check(&tz, CALENDAR_MONTH, "2011-12-01T10:00:00Z", "2011-12-31T10:00:00Z");
}

static void kwajalein_skips_one_too(void **state)
{
    (void)state;
    struct tz tz = zone("Pacific/Kwajalein");
    check(&tz, CALENDAR_DAY, "1993-08-20T12:00:00Z", "1993-08-21T12:00:00Z");
    check(&tz, CALENDAR_DAY, "1993-08-21T12:00:00Z", "1993-08-22T12:00:00Z");
}

static void st_johns_changed_a_minute_past_midnight(void **state)
{
    (void)state;
    struct tz tz = zone("America/St_Johns");
    /* 00:01 becomes 23:01 of the day before; that day is not opened again. */
    check(&tz, CALENDAR_DAY, "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z");
    check(&tz, CALENDAR_DAY, "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
    check(&tz, CALENDAR_HOUR, "2010-11-07T02:30:00Z", "2010-11-07T02:31:00Z");
    check(&tz, CALENDAR_HOUR, "2010-11-07T02:31:00Z", "2010-11-07T03:30:00Z");
    check(&tz, CALENDAR_HOUR, "2010-11-07T03:30:00Z", "2010-11-07T04:30:00Z");
    check(&tz, CALENDAR_DAY, "2011-03-13T03:30:00Z", "2011-03-14T02:30:00Z");
    /* In 1988 by two hours. */
    check(&tz, CALENDAR_DAY, "1988-10-30T01:30:00Z", "1988-10-31T03:30:00Z");
}

static void weeks_begin_where_they_are_told_to(void **state)
{
    (void)state;
    struct tz utc;
    tz_utc(&utc);
    check_week(&utc, CALENDAR_WEEK, MONDAY, "2024-02-26T00:00:00Z", "2024-03-04T00:00:00Z");
    check_week(&utc, CALENDAR_WEEK, SUNDAY, "2024-02-25T00:00:00Z", "2024-03-03T00:00:00Z");
    check_week(&utc, CALENDAR_WEEK, SATURDAY, "2024-02-24T00:00:00Z", "2024-03-02T00:00:00Z");
    check_week(&utc, CALENDAR_WEEK, THURSDAY, "1970-01-01T00:00:00Z", "1970-01-08T00:00:00Z");
    struct tz new_york = zone("America/New_York");
    check_week(&new_york, CALENDAR_WEEK, SUNDAY, "2024-11-03T04:00:00Z", "2024-11-10T05:00:00Z");
}

static void months_and_years_have_their_lengths(void **state)
{
    (void)state;
    struct tz utc;
    tz_utc(&utc);
    check(&utc, CALENDAR_MONTH, "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z");
    check(&utc, CALENDAR_MONTH, "2023-02-01T00:00:00Z", "2023-03-01T00:00:00Z");
    check(&utc, CALENDAR_MONTH, "2000-02-01T00:00:00Z", "2000-03-01T00:00:00Z");
    check(&utc, CALENDAR_MONTH, "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z");
    check(&utc, CALENDAR_DAY, "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z");
    check(&utc, CALENDAR_DAY, "2100-02-28T00:00:00Z", "2100-03-01T00:00:00Z");
    check(&utc, CALENDAR_MONTH, "2024-12-01T00:00:00Z", "2025-01-01T00:00:00Z");
    check(&utc, CALENDAR_YEAR, "1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z");
    check(&utc, CALENDAR_YEAR, "2023-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
    check(&utc, CALENDAR_YEAR, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z");
    check(&utc, CALENDAR_YEAR, "2112-01-01T00:00:00Z", "2113-01-01T00:00:00Z");
    struct tz new_york = zone("America/New_York");
    check(&new_york, CALENDAR_YEAR, "2023-01-01T05:00:00Z", "2024-01-01T05:00:00Z");
}

static void the_far_future_follows_the_footer(void **state)
{
    (void)state;
    struct tz new_york = zone("America/New_York");
    check(&new_york, CALENDAR_DAY, "2090-03-12T05:00:00Z", "2090-03-13T04:00:00Z");
    check(&new_york, CALENDAR_DAY, "2090-11-05T04:00:00Z", "2090-11-06T05:00:00Z");
    check(&new_york, CALENDAR_DAY, "2090-07-04T04:00:00Z", "2090-07-05T04:00:00Z");
    struct tz sydney = zone("Australia/Sydney");
    check(&sydney, CALENDAR_DAY, "2090-01-25T13:00:00Z", "2090-01-26T13:00:00Z");
    check(&sydney, CALENDAR_DAY, "2090-04-01T13:00:00Z", "2090-04-02T14:00:00Z");
    check(&sydney, CALENDAR_DAY, "2090-09-30T14:00:00Z", "2090-10-01T13:00:00Z");
    check(&sydney, CALENDAR_YEAR, "2089-12-31T13:00:00Z", "2090-12-31T13:00:00Z");
}

/* In Dublin winter time is the exception, an hour less than standard. */
static void dublin_saves_in_winter(void **state)
{
    (void)state;
    struct tz tz = zone("Europe/Dublin");
    check(&tz, CALENDAR_DAY, "2024-01-15T00:00:00Z", "2024-01-16T00:00:00Z");
    check(&tz, CALENDAR_DAY, "2024-07-14T23:00:00Z", "2024-07-15T23:00:00Z");
    check(&tz, CALENDAR_DAY, "2090-03-26T00:00:00Z", "2090-03-26T23:00:00Z");
    check(&tz, CALENDAR_DAY, "2090-10-28T23:00:00Z", "2090-10-30T00:00:00Z");
    check(&tz, CALENDAR_DAY, "2090-12-24T00:00:00Z", "2090-12-25T00:00:00Z");
}

static void lengths_are_counted_from_1970(void **state)
{
    (void)state;
    static const struct {
        int64_t length_s;
        const char *start, *end;
    } cases[] = {
        { 1, "2024-02-29T23:59:59Z", "2024-03-01T00:00:00Z" },
        { 600, "1970-01-01T00:00:00Z", "1970-01-01T00:10:00Z" },
        { 7 * 86400, "2023-12-28T00:00:00Z", "2024-01-04T00:00:00Z" },
        { 30 * 86400, "2023-12-19T00:00:00Z", "2024-01-18T00:00:00Z" },
        { 365 * 86400, "2023-12-19T00:00:00Z", "2024-12-18T00:00:00Z" },
        { 3650 * INT64_C(86400), "2019-12-20T00:00:00Z", "2029-12-17T00:00:00Z" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t start_us = instant_us(cases[i].start), end_us = instant_us(cases[i].end);
        int64_t nows[] = { start_us, start_us + 1, start_us + (end_us - start_us) / 2, end_us - 1 };
        for (size_t k = 0; k < 4; k++) {
            struct window w = aligned_window(cases[i].length_s * US_PER_S, nows[k]);
            assert_int_equal(w.start_us, start_us);
            assert_int_equal(w.end_us, end_us);
        }
    }
    assert_int_equal(aligned_window(1500 * US_PER_MS, 4500 * US_PER_MS - 1).start_us, 3 * US_PER_S);
    assert_int_equal(aligned_window(US_PER_S, -1).start_us, -US_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sao_paulo_has_no_midnight),
        cmocka_unit_test(lord_howe_moves_by_half_an_hour),
        cmocka_unit_test(berlin_has_days_of_23_and_25_hours),
        cmocka_unit_test(offsets_need_not_be_whole_hours),
        cmocka_unit_test(apia_skips_a_date),
        cmocka_unit_test(kwajalein_skips_one_too),
        cmocka_unit_test(st_johns_changed_a_minute_past_midnight),
        cmocka_unit_test(weeks_begin_where_they_are_told_to),
        cmocka_unit_test(months_and_years_have_their_lengths),
        cmocka_unit_test(the_far_future_follows_the_footer),
        cmocka_unit_test(dublin_saves_in_winter),
        cmocka_unit_test(lengths_are_counted_from_1970),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
