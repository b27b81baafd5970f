/* TZif files: what is refused, and the rules of their last line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <time.h>

#include "base/clock.h"
#include "limit/calendar.h"
#include "random.h"
#include "zonefile.h"

static struct zonefile file;
static struct random rnd;

static const char *refusal(const void *bytes, size_t len)
{
    struct tz tz;
    const char *why = NULL;
    return tz_parse(bytes, len, &tz, &why) == 0 ? NULL : why;
}

static struct tz with_footer(const char *footer)
{
    struct tz tz;
    const char *why = NULL;
    zonefile_make(footer, &file);
    if (tz_parse(file.bytes, file.len, &tz, &why) != 0)
        fail_msg("%s: %s", footer, why);
    return tz;
}

static int64_t instant_s(const char *text)
{
    struct tm tm = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    assert_true(rest && *rest == '\0');
    return timegm(&tm);
}

static void check_change(const struct tz *tz, const char *at, int32_t before_s, int32_t after_s)
{
    int64_t t = instant_s(at);
    struct tz_span before = tz_span_at(tz, t - 1), after = tz_span_at(tz, t);
    assert_int_equal(before.utoff_s, before_s);
    assert_int_equal(after.utoff_s, after_s);
    assert_int_equal(before.end_s, t);
    assert_int_equal(after.start_s, t);
}

/* ---- files ---- */

/* A file with two types and these transitions, back and forth, and no footer. */
static void make_table(const int64_t *times, size_t count, struct zonefile *ret)
{
    zonefile_make("", ret);
    unsigned char *header = ret->bytes + 54, *p = header + 44;
    header[35] = (unsigned char)count;
    header[39] = 2;
    for (size_t i = 0; i < count; i++)
        for (int b = 56; b >= 0; b -= 8)
            *p++ = (unsigned char)((uint64_t)times[i] >> b);
    for (size_t i = 0; i < count; i++)
        *p++ = (unsigned char)(1 - i % 2);
    static const unsigned char infos[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0x10, 1, 0 };
    memcpy(p, infos, sizeof infos);
    memcpy(p + sizeof infos, "UTC\0\n\n", 6);
    ret->len = (size_t)(p + sizeof infos + 6 - ret->bytes);
}

static void a_table_is_followed(void **state)
{
    (void)state;
    const int64_t times[] = { 1000, 2000, 3000 };
    make_table(times, 3, &file);
    struct tz tz;
    const char *why;
    assert_int_equal(tz_parse(file.bytes, file.len, &tz, &why), 0);
    struct tz_span s = tz_span_at(&tz, 0);
    assert_true(s.start_s == INT64_MIN && s.end_s == 1000 && s.utoff_s == 0);
    s = tz_span_at(&tz, 1000);
    assert_true(s.start_s == 1000 && s.end_s == 2000 && s.utoff_s == 3600);
    s = tz_span_at(&tz, 2999);
    assert_true(s.start_s == 2000 && s.end_s == 3000 && s.utoff_s == 0);
    s = tz_span_at(&tz, 3000);
    assert_true(s.start_s == 3000 && s.end_s == INT64_MAX && s.utoff_s == 3600);
    s = tz_span_at(&tz, INT64_MAX);
    assert_true(s.start_s == 3000 && s.utoff_s == 3600);
    s = tz_span_at(&tz, INT64_MIN);
    assert_true(s.end_s == 1000 && s.utoff_s == 0);
}

static void neighbours_of_one_offset_are_joined(void **state)
{
    (void)state;
    const int64_t times[] = { 1000, 2000, 3000 };
    make_table(times, 3, &file);
    memset(file.bytes + 54 + 44 + 24 + 3, 0, 12); /* both types are UTC now */
    struct tz tz;
    const char *why;
    assert_int_equal(tz_parse(file.bytes, file.len, &tz, &why), 0);
    struct tz_span s = tz_span_at(&tz, 2500);
    assert_true(s.start_s == INT64_MIN && s.end_s == INT64_MAX && s.utoff_s == 0);
    assert_int_equal(calendar_window(&tz, CALENDAR_HOUR, MONDAY, 1500 * US_PER_S).end_us, 3600 * US_PER_S);
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    const int64_t times[] = { 1000, 2000, 3000 };
    make_table(times, 3, &file);
    assert_null(refusal(file.bytes, file.len));
    for (size_t len = 0; len < file.len; len++) {
        unsigned char *copy = malloc(len ? len : 1); /* its own block, so that reading on is noticed */
        memcpy(copy, file.bytes, len);
        assert_non_null(refusal(copy, len));
        free(copy);
    }
}

static void check_broken(size_t at, unsigned char value, const char *why)
{
    const int64_t times[] = { 1000, 2000, 3000 };
    make_table(times, 3, &file);
    file.bytes[at] = value;
    assert_string_equal(refusal(file.bytes, file.len), why);
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    enum { SECOND = 54, TIMES = SECOND + 44, TYPES = TIMES + 24, INFOS = TYPES + 3 };
    check_broken(0, 't', "not a TZif file");
    check_broken(4, 0, "a TZif file of version 1; version 2 or later is needed (zic writes it)");
    check_broken(20, 0xff, "a truncated TZif file");
    check_broken(SECOND, 'X', "a truncated TZif file");
    check_broken(SECOND + 20, 0xff, "a truncated TZif file");
    check_broken(SECOND + 24, 1, "a truncated TZif file");
    check_broken(SECOND + 31, 1, "a TZif file with leap seconds; take the zone of the same name outside of right/");
    check_broken(SECOND + 32, 0xff, "a TZif file with impossible counts");
    check_broken(SECOND + 38, 0xff, "a TZif file with impossible counts");
    check_broken(SECOND + 39, 0, "a TZif file with impossible counts");
    check_broken(SECOND + 40, 0xff, "a truncated TZif file");
    check_broken(TIMES + 8, 0x80, "a TZif file whose transitions do not rise");
    check_broken(TIMES + 16, 0x7f, "a TZif file whose transitions do not rise");
    check_broken(TYPES + 1, 2, "a TZif file with a transition to a type that it does not have");
    check_broken(INFOS, 0x80, "a TZif file with an offset of more than 26 hours");
    check_broken(INFOS + 1, 0x02, "a TZif file with an offset of more than 26 hours");
    const int64_t twice[] = { 1000, 1000 };
    make_table(twice, 2, &file);
    assert_string_equal(refusal(file.bytes, file.len), "a TZif file whose transitions do not rise");
    assert_string_equal(refusal("", 0), "not a TZif file");
    struct tz tz;
    tz_utc(&tz);
    const char *why;
    assert_int_equal(tz_parse("TZif", 4, &tz, &why), -1);
    assert_true(tz.has_footer); /* as it was */
}

static void leap_second_zones_are_refused(void **state)
{
    (void)state;
    if (!zonefile_read(ZONEINFO "/right/Europe/Berlin", &file)) {
        print_message("# " ZONEINFO "/right is missing (package tzdata)\n");
        skip();
    }
    assert_non_null(strstr(refusal(file.bytes, file.len), "leap seconds"));
}

/* Random damage to a real file: refused, or whatever it says now is still a calendar. */
static void damage_does_no_harm(void **state)
{
    (void)state;
    enum { ROUNDS = 20000 };
    static struct zonefile original;
    if (!zonefile_read(ZONEINFO "/America/St_Johns", &original)) {
        print_message("# " ZONEINFO " is missing (package tzdata)\n");
        skip();
    }
    rnd.state = random_seed();
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(file.bytes, original.bytes, original.len);
        for (int64_t n = random_in(&rnd, 1, 4); n > 0; n--)
            file.bytes[random_in(&rnd, 0, (int64_t)original.len - 1)] = (unsigned char)random_u64(&rnd);
        struct tz tz;
        const char *why;
        if (tz_parse(file.bytes, original.len, &tz, &why) != 0)
            continue;
        int64_t now_us = random_in(&rnd, 0, CLOCK_END_US - 1);
        for (enum calendar_unit unit = 0; unit < CALENDAR_UNITS; unit++) {
            struct window w = calendar_window(&tz, unit, MONDAY, now_us);
            assert_true(w.start_us <= now_us && now_us < w.end_us);
            assert_int_equal(calendar_window(&tz, unit, MONDAY, w.end_us).start_us, w.end_us);
        }
    }
}

/* ---- footers ---- */

static void footers_of_all_kinds_are_read(void **state)
{
    (void)state;
    struct tz tz = with_footer("<+03>-3");
    assert_int_equal(tz_span_at(&tz, 0).utoff_s, 3 * 3600);
    assert_true(tz_span_at(&tz, 0).start_s == INT64_MIN && tz_span_at(&tz, 0).end_s == INT64_MAX);
    tz = with_footer("NPT-5:45");
    assert_int_equal(tz_span_at(&tz, 0).utoff_s, 5 * 3600 + 45 * 60);
    tz = with_footer("LMT+0:44:30");
    assert_int_equal(tz_span_at(&tz, 0).utoff_s, -2670);
    tz = with_footer("<-02>2<-01>,M3.5.0/-1,M10.5.0/0"); /* America/Nuuk */
    check_change(&tz, "2024-03-31T01:00:00Z", -7200, -3600);
    check_change(&tz, "2024-10-27T01:00:00Z", -3600, -7200);
    tz = with_footer("EET-2EEST,M3.4.4/50,M10.4.4/50"); /* Asia/Gaza: Saturday at 02:00 */
    check_change(&tz, "2087-03-29T00:00:00Z", 7200, 10800);
    check_change(&tz, "2087-10-24T23:00:00Z", 10800, 7200);
    tz = with_footer("IST-1GMT0,M10.5.0,M3.5.0/1"); /* Europe/Dublin */
    check_change(&tz, "2024-03-31T01:00:00Z", 0, 3600);
    check_change(&tz, "2024-10-27T01:00:00Z", 3600, 0);
    tz = with_footer("AEST-10AEDT,M10.1.0,M4.1.0/3");
    check_change(&tz, "2024-04-06T16:00:00Z", 39600, 36000);
    check_change(&tz, "2024-10-05T16:00:00Z", 36000, 39600);
    /* J60 is 1 March in every year; 59 is 29 February in a leap year. */
    tz = with_footer("AAA0BBB,J60/0,J300/0");
    check_change(&tz, "2024-03-01T00:00:00Z", 0, 3600);
    check_change(&tz, "2023-03-01T00:00:00Z", 0, 3600);
    tz = with_footer("AAA0BBB,59/0,300/0");
    check_change(&tz, "2024-02-29T00:00:00Z", 0, 3600);
    check_change(&tz, "2023-03-01T00:00:00Z", 0, 3600);
}

/* The hours of a rule reach a week into the years beside its own. */
static void rules_may_fire_in_another_year(void **state)
{
    (void)state;
    struct tz tz = with_footer("AAA0BBB,J364/167,J365/167");
    check_change(&tz, "2023-01-05T23:00:00Z", 0, 3600);
    check_change(&tz, "2023-01-06T22:00:00Z", 3600, 0);
    struct tz_span span = tz_span_at(&tz, instant_s("2024-01-03T00:00:00Z"));
    assert_int_equal(span.start_s, instant_s("2023-01-06T22:00:00Z"));
    assert_int_equal(span.end_s, instant_s("2024-01-05T23:00:00Z"));
    tz = with_footer("AAA0BBB,J1/-167,J2/-167");
    span = tz_span_at(&tz, instant_s("2023-12-28T00:00:00Z"));
    assert_int_equal(span.start_s, instant_s("2023-12-26T00:00:00Z"));
    assert_int_equal(span.end_s, instant_s("2024-12-25T01:00:00Z"));
}

static void summer_time_may_last_all_year(void **state)
{
    (void)state;
    struct tz tz = with_footer("EST5EDT,0/0,J365/25");
    for (int64_t t = 0; t < INT64_C(4000000000); t += 40000)
        assert_int_equal(tz_span_at(&tz, t).utoff_s, -4 * 3600);
    assert_int_equal(tz_span_at(&tz, instant_s("2024-01-01T04:59:59Z")).utoff_s, -4 * 3600);
    assert_int_equal(tz_span_at(&tz, instant_s("2024-01-01T05:00:00Z")).utoff_s, -4 * 3600);
    int64_t now_us = instant_s("2024-01-01T05:00:00Z") * US_PER_S;
    struct window w = calendar_window(&tz, CALENDAR_DAY, MONDAY, now_us);
    assert_int_equal(w.start_us, instant_s("2024-01-01T04:00:00Z") * US_PER_S);
    tz = with_footer("XXX3EDT4,0/0,J365/23");
    for (int64_t t = 0; t < INT64_C(4000000000); t += 40000)
        assert_int_equal(tz_span_at(&tz, t).utoff_s, -4 * 3600);
    tz = with_footer("AAA0BBB,J100/0,J100/1"); /* not for an instant */
    for (int64_t t = 0; t < INT64_C(4000000000); t += 40000)
        assert_int_equal(tz_span_at(&tz, t).utoff_s, 0);
}

static void bad_footers_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "X",
        "UT0",
        "EST",
        "EST5x",
        "EST25",
        "EST5:60",
        "EST5:",
        "EST5:00:",
        "EST-",
        "<EST5",
        "<+3>-3",
        "<E T>5",
        "E5T5",
        "EST5EDT",
        "EST5EDT4",
        "EST5EDT,",
        "EST5EDT,M3.2.0",
        "EST5EDT,M3.2.0,",
        "EST5EDT,M3.2.0,M11.1.0,",
        "EST5EDT,M13.2.0,M11.1.0",
        "EST5EDT,M0.2.0,M11.1.0",
        "EST5EDT,M3.0.0,M11.1.0",
        "EST5EDT,M3.6.0,M11.1.0",
        "EST5EDT,M3.2.7,M11.1.0",
        "EST5EDT,M3.2,M11.1.0",
        "EST5EDT,J0,J300",
        "EST5EDT,J366,J300",
        "EST5EDT,366,300",
        "EST5EDT,M3.2.0/168,M11.1.0",
        "EST5EDT,M3.2.0/,M11.1.0",
        "EST5EDT,M99999999999.2.0,M11.1.0",
        "EST99999999999999999999",
        ":America/New_York",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        zonefile_make(bad[i], &file);
        if (!refusal(file.bytes, file.len))
            fail_msg("%s was taken", bad[i]);
        assert_string_equal(refusal(file.bytes, file.len), "a TZif file whose last line is not a POSIX TZ rule");
    }
}

static size_t random_date(char *out, size_t cap, int month)
{
    char date[32];
    if (random_one_in(&rnd, 3))
        snprintf(date, sizeof date, "J%d", (int)random_in(&rnd, month * 30 - 10, month * 30 + 10));
    else if (random_one_in(&rnd, 2))
        snprintf(date, sizeof date, "%d", (int)random_in(&rnd, month * 30 - 10, month * 30 + 10));
    else
        snprintf(date, sizeof date, "M%d.%d.%d", month, (int)random_in(&rnd, 1, 5), (int)random_in(&rnd, 0, 6));
    if (random_one_in(&rnd, 3))
        return (size_t)snprintf(out, cap, ",%s", date);
    return (size_t)snprintf(out, cap, ",%s/%d:%02d", date, (int)random_in(&rnd, -167, 167), (int)random_in(&rnd, 0, 59));
}

static void random_footers_agree_with_glibc(void **state)
{
    (void)state;
    enum { ROUNDS = 500, INSTANTS = 200 };
    rnd.state = random_seed();
    for (int round = 0; round < ROUNDS; round++) {
        /* Not close to a new year, where glibc has a mind of its own. */
        int months[2] = { (int)random_in(&rnd, 2, 5), (int)random_in(&rnd, 7, 10) }, south = random_one_in(&rnd, 2);
        char footer[120];
        int offset = (int)random_in(&rnd, -12, 12);
        size_t n =
            (size_t)snprintf(footer, sizeof footer, "<%+03d>%d:%02d", -offset, offset, 15 * (int)random_in(&rnd, 0, 3));
        n += (size_t)snprintf(footer + n, sizeof footer - n, "DST");
        if (random_one_in(&rnd, 2))
            n += (size_t)snprintf(footer + n, sizeof footer - n, "%d:30", (int)random_in(&rnd, -12, 12));
        n += random_date(footer + n, sizeof footer - n, months[south]);
        random_date(footer + n, sizeof footer - n, months[!south]);
        struct tz tz = with_footer(footer);
        setenv("TZ", footer, 1);
        tzset();
        for (int i = 0; i < INSTANTS; i++) {
            time_t t = random_in(&rnd, 0, INT64_C(4133980800));
            if (i % 2)
                t = (time_t)(tz_span_at(&tz, t).end_s - random_in(&rnd, 0, 1));
            struct tm tm;
            localtime_r(&t, &tm);
            if (tz_span_at(&tz, t).utoff_s != tm.tm_gmtoff)
                fail_msg("%s at %lld: %d, not %ld", footer, (long long)t, tz_span_at(&tz, t).utoff_s, tm.tm_gmtoff);
        }
    }
    unsetenv("TZ");
    tzset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_followed),
        cmocka_unit_test(neighbours_of_one_offset_are_joined),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(leap_second_zones_are_refused),
        cmocka_unit_test(damage_does_no_harm),
        cmocka_unit_test(footers_of_all_kinds_are_read),
        cmocka_unit_test(rules_may_fire_in_another_year),
        cmocka_unit_test(summer_time_may_last_all_year),
        cmocka_unit_test(bad_footers_are_refused),
        cmocka_unit_test(random_footers_agree_with_glibc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
