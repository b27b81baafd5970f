/* Instants and lengths of time as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "replay/time_text.h"

static int64_t parse(bool (*function)(sv, int64_t *), const char *text)
{
    int64_t us = -7;
    return function(weir_str(text), &us) ? us : -1;
}

static void test_rfc3339(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } cases[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "1970-01-01T00:00:01.5Z", 1500000 },
        { "1970-01-01t00:00:00.000001z", 1 },
        { "1970-01-01 00:00:00.0000019Z", 1 },
        { "1970-01-01T08:00:00+08:00", 0 },
        { "1969-12-31T20:30:00-03:30", 0 },
        { "2000-02-29T12:00:00Z", INT64_C(951825600000000) },
        { "2016-12-31T23:59:60Z", INT64_C(1483228800000000) },
        { "2100-02-28T23:59:59Z", INT64_C(4107542399000000) },
        { "1969-12-31T23:59:59Z", -1 },
        { "2100-02-29T00:00:00Z", -1 },
        { "2026-02-30T00:00:00Z", -1 },
        { "2026-13-01T00:00:00Z", -1 },
        { "2026-00-01T00:00:00Z", -1 },
        { "2026-01-00T00:00:00Z", -1 },
        { "2026-01-01T24:00:00Z", -1 },
        { "2026-01-01T00:60:00Z", -1 },
        { "2026-01-01T00:00:61Z", -1 },
        { "2026-01-01T00:00:00", -1 },
        { "2026-01-01T00:00:00.Z", -1 },
        { "2026-01-01T00:00:00+0800", -1 },
        { "2026-01-01T00:00:00+24:00", -1 },
        { "2026-01-01T00:00:00Z ", -1 },
        { "2026-1-1T00:00:00Z", -1 },
        { "2113-01-01T00:00:00Z", -1 },
        { "9999-12-31T23:59:59Z", -1 },
        { "", -1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (parse(when_parse_rfc3339, cases[i].text) != cases[i].us)
            fail_msg("%s is %lld", cases[i].text, (long long)parse(when_parse_rfc3339, cases[i].text));
}

static void test_access_log(void **state)
{
    (void)state;
    assert_int_equal(parse(when_parse_clf, "10/Oct/2000:13:55:36 -0700"), INT64_C(971211336000000));
    assert_int_equal(parse(when_parse_clf, "01/Jan/1970:00:00:00 +0000"), 0);
    assert_int_equal(parse(when_parse_clf, "29/Feb/2024:23:59:59 +0545"), INT64_C(1709230499000000));
    assert_int_equal(parse(when_parse_clf, "29/Feb/2023:23:59:59 +0000"), -1);
    assert_int_equal(parse(when_parse_clf, "10/Okt/2000:13:55:36 -0700"), -1);
    assert_int_equal(parse(when_parse_clf, "10/Oct/2000:13:55:36"), -1);
    assert_int_equal(parse(when_parse_clf, "10/Oct/2000:13:55:36 Z"), -1);
    assert_int_equal(parse(when_parse_clf, "31/Dec/1969:23:59:59 +0000"), -1);
}

static void test_either(void **state)
{
    (void)state;
    assert_int_equal(parse(when_parse, "0"), 0);
    assert_int_equal(parse(when_parse, "1760000000000"), INT64_C(1760000000000000));
    assert_int_equal(parse(when_parse, "1.5"), 1500);
    assert_int_equal(parse(when_parse, "1.0005"), 1000);
    assert_int_equal(parse(when_parse, "1970-01-01T00:00:02Z"), 2000000);
    assert_int_equal(parse(when_parse, "4503599627370"), INT64_C(4503599627370000));
    assert_int_equal(parse(when_parse, "4503599627371"), -1);
    assert_int_equal(parse(when_parse, "99999999999999999999"), -1);
    assert_int_equal(parse(when_parse, "-1"), -1);
    assert_int_equal(parse(when_parse, "1."), -1);
    assert_int_equal(parse(when_parse, "now"), -1);
    assert_int_equal(parse(when_parse, ""), -1);
}

/* Every day until 2112 against the C library, and back. */
static void test_calendar(void **state)
{
    (void)state;
    for (int64_t day = 0; day < CLOCK_END_US / (86400 * US_PER_S); day++) {
        time_t seconds = (time_t)(day * 86400 + day % 86400);
        struct tm tm;
        gmtime_r(&seconds, &tm);
        struct civil c = civil_from_us((int64_t)seconds * US_PER_S + 7);
        assert_int_equal(c.year, tm.tm_year + 1900);
        assert_int_equal(c.month, tm.tm_mon + 1);
        assert_int_equal(c.day, tm.tm_mday);
        assert_int_equal(c.hour, tm.tm_hour);
        assert_int_equal(c.minute, tm.tm_min);
        assert_int_equal(c.second, tm.tm_sec);
        assert_int_equal(civil_to_us(&c), (int64_t)seconds * US_PER_S + 7);
    }
}

static void test_written(void **state)
{
    (void)state;
    char text[INSTANT_TEXT_MAX];
    static const char *const instants[] = { "1970-01-01T00:00:00Z", "2026-03-01T12:30:45.250Z",
                                            "2100-12-31T23:59:59.000001Z" };
    for (size_t i = 0; i < 3; i++) {
        int64_t us;
        assert_true(when_parse_rfc3339(weir_str(instants[i]), &us));
        instant_text(us, text);
        assert_string_equal(text, instants[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc3339),  cmocka_unit_test(test_access_log), cmocka_unit_test(test_either),
        cmocka_unit_test(test_calendar), cmocka_unit_test(test_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
