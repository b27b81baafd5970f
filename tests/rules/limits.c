/* Limits: every form that is accepted, and the exact words for those that are not. */
#include "helpers.h"

#define DAY_US (86400 * US_PER_S)

/* A rule whose limits are `limits`, in flow style on line 1. */
static void with_limits(struct buf *text, const char *limits)
{
    buf_init(text, 1 << 20);
    buf_printf(text, "rules: [ { id: a, limits: %s } ]", limits);
}

static struct reading limits_of(const char *limits)
{
    struct buf text;
    with_limits(&text, limits);
    struct reading r = good_reading(text.ptr);
    buf_done(&text);
    return r;
}

static void expect_limits(const char *limits, const char *report)
{
    struct buf text;
    with_limits(&text, limits);
    expect_report(text.ptr, report);
    buf_done(&text);
}

static void lengths_of_the_short_form(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max, burst;
        int64_t per_us;
    } cases[] = {
        { "10 per 60s", 10, 10, 60 * US_PER_S },
        { "\"  10   per\\t60 s  \"", 10, 10, 60 * US_PER_S },
        { "5 per 1m burst 20", 5, 20, 60 * US_PER_S },
        { "5 per 1 m burst 1", 5, 1, 60 * US_PER_S },
        { "1 per 500ms", 1, 1, 500 * US_PER_MS },
        { "1 per 1ms", 1, 1, US_PER_MS },
        { "0 per 1h", 0, 0, 3600 * US_PER_S },
        { "4294967295 per 3650d burst 4294967295", UINT32_MAX, UINT32_MAX, 3650 * DAY_US },
        { "9007199254740991 per 3650d burst 4294967296", WEIR_AMOUNT_MAX, UINT64_C(4294967296), 3650 * DAY_US },
        { "7 per 315360000000ms", 7, 7, 3650 * DAY_US },
        { "7 per 1d", 7, 7, DAY_US },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reading r = limits_of(cases[i].text);
        const struct rule_limit *l = r.rules->rules[0]->kind->limits;
        assert_int_equal(l->algorithm, LIMIT_TOKEN_BUCKET);
        assert_int_equal(l->max, cases[i].max);
        assert_int_equal(l->burst, cases[i].burst);
        assert_int_equal(l->per_us, cases[i].per_us);
        assert_text(l->name, "token_bucket");
        assert_false(l->named);
        reading_done(&r);
    }
}

static void calendar_units_of_both_forms(void **state)
{
    (void)state;
    static const char *const units[] = { "minute", "hour", "day", "week", "month", "year" };
    static const char *const forms[] = { "100 per %s", "{ max: 100, per: %s }", "{ max: 100, calendar: %s }",
                                         "{ max: 100, algorithm: calendar, calendar: %s, tz: UTC }",
                                         "{ max: 100, algorithm: calendar, per: %s }" };
    for (int unit = 0; unit < CALENDAR_UNITS; unit++) {
        for (size_t form = 0; form < 5; form++) {
            char text[100];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, forms[form], units[unit]);
#pragma GCC diagnostic pop
            struct reading r = limits_of(text);
            const struct rule_limit *l = r.rules->rules[0]->kind->limits;
            assert_int_equal(l->algorithm, LIMIT_CALENDAR);
            assert_int_equal(l->unit, unit);
            assert_int_equal(l->max, 100);
            assert_int_equal(l->week_start, MONDAY);
            assert_text(l->zone->name, "UTC");
            assert_text(l->name, units[unit]);
            reading_done(&r);
        }
    }
}

static void calendar_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        int64_t per_us;
    } cases[] = {
        { "1s", "1s", US_PER_S },
        { "1000ms", "1s", US_PER_S },
        { "10m", "10m", 600 * US_PER_S },
        { "1500ms", "1500ms", 1500 * US_PER_MS },
        { "7 d", "7d", 7 * DAY_US },
        { "365d", "365d", 365 * DAY_US },
        { "3650d", "3650d", 3650 * DAY_US },
        { "24h", "1d", DAY_US },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        snprintf(text, sizeof text, "{ calendar: %s, max: 5%s }", cases[i].text, i % 2 ? ", algorithm: calendar" : "");
        struct reading r = limits_of(text);
        const struct rule_limit *l = r.rules->rules[0]->kind->limits;
        assert_int_equal(l->algorithm, LIMIT_CALENDAR);
        assert_int_equal(l->unit, CALENDAR_LENGTH);
        assert_int_equal(l->per_us, cases[i].per_us);
        assert_text(l->zone->name, "UTC");
        assert_text(l->name, cases[i].name);
        reading_done(&r);
    }
}

static void long_forms(void **state)
{
    (void)state;
    struct reading r =
        limits_of("[ { max: 3, per: 24h }, { name: 'a b', algorithm: fixed_window, max: 4, per: 1500ms },"
                  "  { algorithm: sliding_window, max: 5, per: 2 m }, { max: 6, per: 1s, burst: 60, name: 12 },"
                  "  { calendar: week, max: 7, tz: Asia/Kolkata, week_start: sunday } ]");
    const struct rule *rule = r.rules->rules[0];
    const struct rule_limit *l = rule->kind->limits;
    assert_int_equal(rule->kind->limit_count, 5);
    assert_int_equal(l[0].per_us, DAY_US);
    assert_int_equal(l[0].burst, 3);
    assert_int_equal(l[1].algorithm, LIMIT_FIXED_WINDOW);
    assert_int_equal(l[1].per_us, 1500 * US_PER_MS);
    assert_int_equal(l[1].burst, 0);
    assert_true(l[1].named);
    assert_text(l[1].name, "a b");
    assert_int_equal(l[2].algorithm, LIMIT_SLIDING_WINDOW);
    assert_text(l[2].name, "sliding_window");
    assert_int_equal(l[3].burst, 60);
    assert_text(l[3].name, "12");
    assert_int_equal(l[4].week_start, SUNDAY);
    assert_text(l[4].zone->name, "Asia/Kolkata");
    reading_done(&r);
}

static void texts_for_people(void **state)
{
    (void)state;
    struct reading r = limits_of(
        "[ 10 per 60s, 5 per 90s burst 20, 1 per 36h, 1 per 1500ms, { calendar: day, max: 100, tz: "
        "Asia/Shanghai }, { calendar: week, max: 2, week_start: sunday }, 3 per month, { algorithm: "
        "sliding_window, max: 5, per: 1m }, { name: o, max: 4503599627370495, per: 1m, overdraft: true }, { calendar: "
        "month, max: 7, overdraft: true }, { max: 9007199254740991, per: 1m, overdraft: false }, 10 concurrent, { "
        "concurrent: 2, ttl: 90s }, { calendar: 168h, max: 8 }, { calendar: 90s, max: 9, unit: bytes, overdraft: true } ]");
    static const char *const expected[] = { "10 per 1m",
                                            "5 per 90s burst 20",
                                            "1 per 36h",
                                            "1 per 1500ms",
                                            "100 per day (Asia/Shanghai)",
                                            "2 per week from sunday (UTC)",
                                            "3 per month (UTC)",
                                            "5 per 1m sliding_window",
                                            "4503599627370495 per 1m with overdraft",
                                            "7 per month (UTC) with overdraft",
                                            "9007199254740991 per 1m",
                                            "10 concurrent (ttl 1m)",
                                            "2 concurrent (ttl 90s)",
                                            "8 per 7d calendar",
                                            "9 bytes per 90s calendar with overdraft" };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct buf text;
        buf_init(&text, 1000);
        rule_limit_text(&r.rules->rules[0]->kind->limits[i], &text);
        assert_string_equal(text.ptr, expected[i]);
        buf_done(&text);
    }
    reading_done(&r);
}

#define FORMS                                                                                                              \
    "must look like \"10 per 60s\", \"5 per 1m burst 20\", \"100 per day\", \"1000 tokens per 1m\" or \"10 concurrent\", " \
    "not "
#define CALENDARS "must be a unit such as day, or a length such as 10m or 7d, from 1s to 3650d, not "
#define UNITS " (lengths: ms, s, m, h, d; calendar: minute, hour, day, week, month, year)\n"

static void bad_short_forms(void **state)
{
    (void)state;
    static const char *const forms[] = { "10/60s",
                                         "10 per",
                                         "per 60s",
                                         "10",
                                         "10 per 60",
                                         "10 per 1h 30m",
                                         "10 per m",
                                         "10 per 60sec",
                                         "10 per 1.5h",
                                         "-1 per 60s",
                                         "+1 per 60s",
                                         "ten per 60s",
                                         "10 per 010s",
                                         "010 per 10s",
                                         "10 each 60s",
                                         "10 per 60s burst",
                                         "10 per 60s bust 5",
                                         "10 per 60s burst x",
                                         "10 per 60s burst 5 5",
                                         "10 PER 60s",
                                         "10 per second",
                                         "1 2 3 4 5 6 7 8 9",
                                         "10 5 per 60s",
                                         "10 a/b per 60s",
                                         "10 tokens 60s",
                                         "ten concurrent",
                                         "concurrent",
                                         "-1 concurrent",
                                         "010 concurrent",
                                         "10 tokens per",
                                         "10 tokens tokens per 60s",
                                         "10 per 60s, 5 per 1s" };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char limits[100], expected[500];
        bool number = strspn(forms[i], "0123456789") == strlen(forms[i]);
        snprintf(limits, sizeof limits, number ? "%s" : "'%s'", forms[i]);
        snprintf(expected, sizeof expected, "f:1: rule a: limits: " FORMS "%s%s%s" UNITS, number ? "" : "\"", forms[i],
                 number ? "" : "\"");
        expect_limits(limits, expected);
    }
    expect_limits("[[10 per 60s]]", "f:1: rule a: limits[0]: " FORMS "a list" UNITS);
    expect_limits("[~]", "f:1: rule a: limits[0]: " FORMS "nothing" UNITS);
}

static void short_forms_out_of_bounds(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "9007199254740992 per 1s",
          "f:1: rule a: limits: max must be a whole number from 0 to 9007199254740991, not \"9007199254740992\"\n" },
        { "99999999999999999999999 per 1s",
          "f:1: rule a: limits: max must be a whole number from 0 to 9007199254740991, not \"99999999999999999999999\"\n" },
        { "1 per 0s", "f:1: rule a: limits: the time must be from 1ms to 3650d, not \"0s\"\n" },
        { "1 per 3651d", "f:1: rule a: limits: the time must be from 1ms to 3650d, not \"3651d\"\n" },
        { "1 per 99999999999999999999999ms",
          "f:1: rule a: limits: the time must be from 1ms to 3650d, not \"99999999999999999999999ms\"\n" },
        { "1 per 315360000001ms", "f:1: rule a: limits: the time must be from 1ms to 3650d, not \"315360000001ms\"\n" },
        { "1 per 1s burst 0", "f:1: rule a: limits: burst must be a whole number from 1 to 9007199254740991, not \"0\"\n" },
        { "1 per 1s burst 9007199254740992",
          "f:1: rule a: limits: burst must be a whole number from 1 to 9007199254740991, not \"9007199254740992\"\n" },
        { "100 per day burst 5",
          "f:1: rule a: limits: burst is allowed with a length such as 1d, not with the calendar unit day\n" },
        { "100 per day Asia/Shanghai",
          "f:1: rule a: limits: nothing may follow the calendar unit here; for a time zone write { "
          "calendar: day, max: 100, tz: … }\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_limits(cases[i].text, cases[i].report);
}

#define MAX_ERROR "must be a whole number from 0 to 9007199254740991, not "

static void bad_numbers(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "{ per: 1s }", "f:1: rule a: limits: needs `max`, a whole number from 0 to 9007199254740991\n" },
        { "{ max: , per: 1s }", "f:1: rule a: limits: needs `max`, a whole number from 0 to 9007199254740991\n" },
        { "{ max: ten, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "\"ten\"\n" },
        { "{ max: '10', per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "the text \"10\"; leave the quotes out\n" },
        { "{ max: 'x', per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "the text \"x\"\n" },
        { "{ max: -1, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "-1\n" },
        { "{ max: 1.5, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "1.5\n" },
        { "{ max: 1e3, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "1e3\n" },
        { "{ max: 010, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "010\n" },
        { "{ max: 1_000, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "\"1_000\"\n" },
        { "{ algorithm: sliding_window, max: 4294967296, per: 1s }",
          "f:1: rule a: limits.max: a sliding_window counts to 4294967295 at most; take token_bucket, fixed_window or "
          "calendar for more\n" },
        { "{ max: 9007199254740992, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "9007199254740992\n" },
        { "{ max: true, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "true\n" },
        { "{ max: [1], per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "a list\n" },
        { "{ max: {}, per: 1s }", "f:1: rule a: limits.max: " MAX_ERROR "a mapping\n" },
        { "{ max: 1, per: 1s, burst: 0 }",
          "f:1: rule a: limits.burst: must be a whole number from 1 to 9007199254740991, not 0\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_limits(cases[i].text, cases[i].report);
}

#define LENGTHS "a length such as 500ms, 60s, 1m, 24h or 1d, from 1ms to 3650d"

static void bad_lengths_and_combinations(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "{ max: 1 }", "f:1: rule a: limits: needs `per`, " LENGTHS ", or `calendar`\n" },
        { "{ max: 1, per: 60 }", "f:1: rule a: limits.per: must be " LENGTHS "; 60 has no unit\n" },
        { "{ max: 1, per: fortnight }", "f:1: rule a: limits.per: must be " LENGTHS ", not \"fortnight\"\n" },
        { "{ max: 1, per: [1s] }", "f:1: rule a: limits.per: must be " LENGTHS ", not a list\n" },
        { "{ max: 1, per: 0ms }", "f:1: rule a: limits.per: must be from 1ms to 3650d, not \"0ms\"\n" },
        { "{ max: 1, per: 87601h }", "f:1: rule a: limits.per: must be from 1ms to 3650d, not \"87601h\"\n" },
        { "{ algorithm: token_bucket, max: 1, per: day }",
          "f:1: rule a: limits.per: `day` is a calendar unit, and token_bucket takes " LENGTHS
          "; write `calendar: day` for the natural day\n" },
        { "{ algorithm: calendar, max: 1, per: 1d }",
          "f:1: rule a: limits.per: must be minute, hour, day, week, month or year, not \"1d\"\n" },
        { "{ algorithm: calendar, max: 1 }",
          "f:1: rule a: limits: algorithm calendar needs `calendar`: minute, hour, day, week, month or year\n" },
        { "{ calendar: dya, max: 1 }", "f:1: rule a: limits.calendar: must be minute, hour, day, week, month or year, not "
                                       "\"dya\"; did you mean `day`?\n" },
        { "{ calendar: 7 days, max: 1 }", "f:1: rule a: limits.calendar: " CALENDARS "\"7 days\"\n" },
        { "{ calendar: 7, max: 1 }", "f:1: rule a: limits.calendar: " CALENDARS "7\n" },
        { "{ calendar: 999ms, max: 1 }", "f:1: rule a: limits.calendar: " CALENDARS "\"999ms\"\n" },
        { "{ calendar: 3651d, max: 1 }", "f:1: rule a: limits.calendar: " CALENDARS "\"3651d\"\n" },
        { "{ calendar: 1d, tz: UTC, max: 1 }", "f:1: rule a: limits.tz: is allowed with a calendar unit such as day only: "
                                               "windows of a length are counted from 1970 in UTC\n" },
        { "{ calendar: 7d, week_start: sunday, max: 1 }",
          "f:1: rule a: limits.week_start: is allowed with `calendar: week` only\n" },
        { "{ calendar: 7d, per: 7d, max: 1 }",
          "f:1: rule a: limits.per: cannot be combined with `calendar`; leave one of the two out\n" },
        { "{ calendar: 7d, algorithm: fixed_window, max: 1 }",
          "f:1: rule a: limits.calendar: is allowed with algorithm calendar only; leave `algorithm` out\n" },
        { "{ calendar: day, per: 1d, max: 1 }",
          "f:1: rule a: limits.per: cannot be combined with `calendar`; leave one of the two out\n" },
        { "{ calendar: day, algorithm: fixed_window, max: 1 }",
          "f:1: rule a: limits.calendar: is allowed with algorithm calendar only; leave `algorithm` out\n" },
        { "{ calendar: day, burst: 5, max: 1 }",
          "f:1: rule a: limits.burst: is allowed with token_bucket only, not with a calendar window\n" },
        { "{ algorithm: fixed_window, burst: 5, max: 1, per: 1s }",
          "f:1: rule a: limits.burst: is allowed with token_bucket only\n" },
        { "{ tz: UTC, max: 1, per: 1s }", "f:1: rule a: limits.tz: is allowed with `calendar` only\n" },
        { "{ week_start: sunday, max: 1, per: 1s }",
          "f:1: rule a: limits.week_start: is allowed with `calendar: week` only\n" },
        { "{ calendar: day, week_start: sunday, max: 1 }",
          "f:1: rule a: limits.week_start: is allowed with `calendar: week` only\n" },
        { "{ calendar: week, week_start: Sunday, max: 1 }",
          "f:1: rule a: limits.week_start: must be monday, tuesday, wednesday, thursday, friday, saturday or sunday, not "
          "\"Sunday\"; did you mean `sunday`?\n" },
        { "{ algorithm: leaky_bucket, max: 1, per: 1s }",
          "f:1: rule a: limits.algorithm: must be token_bucket, fixed_window, sliding_window or calendar, not "
          "\"leaky_bucket\"\n" },
        { "{ algorithm: [], max: 1, per: 1s }",
          "f:1: rule a: limits.algorithm: must be token_bucket, fixed_window, sliding_window or calendar, not a list\n" },
        { "{ limit: 4, max: 1, per: 1s }",
          "f:1: rule a: limits: unknown field \"limit\"; allowed: name, algorithm, max, per, "
          "burst, calendar, tz, week_start, unit, overdraft, concurrent, ttl\n" },
        { "{ max: 1, per: 1s, unit: a b }",
          "f:1: rule a: limits.unit: must be a name of letters, digits, `_`, `-` and `.`, such as tokens, not \"a b\"\n" },
        { "{ max: 1, per: 1s, overdraft: often }",
          "f:1: rule a: limits.overdraft: must be true or false, not \"often\"\n" },
        { "{ max: 4503599627370496, per: 1s, overdraft: true }",
          "f:1: rule a: limits.overdraft: a limit with overdraft has a `max` of at most 4503599627370495, so that debts "
          "can be "
          "counted, too; lower it, or leave `overdraft` out\n" },
        { "{ max: 1, per: 1s, burst: 4503599627370496, overdraft: true }",
          "f:1: rule a: limits.overdraft: a limit with overdraft has a `max` of at most 4503599627370495, and so is its "
          "`burst`, so "
          "that debts can be counted, too; lower it, or leave `overdraft` out\n" },
        { "{ algorithm: sliding_window, max: 2147483648, per: 1s, overdraft: true }",
          "f:1: rule a: limits.overdraft: a sliding_window with overdraft has a `max` of at most 2147483647, so that debts "
          "can be "
          "counted, too; lower it, or leave `overdraft` out\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_limits(cases[i].text, cases[i].report);
}

static void slots(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max;
        int64_t ttl_us;
        const char *written;
    } cases[] = {
        { "10 concurrent", 10, 60 * US_PER_S, "\"10 concurrent\"" },
        { "' 10   concurrent '", 10, 60 * US_PER_S, "\"10 concurrent\"" },
        { "0 concurrent", 0, 60 * US_PER_S, "\"0 concurrent\"" },
        { "{ concurrent: 10 }", 10, 60 * US_PER_S, "\"10 concurrent\"" },
        { "{ concurrent: 10, algorithm: concurrent, max: , per: ~ }", 10, 60 * US_PER_S, "\"10 concurrent\"" },
        { "{ concurrent: 9007199254740991, ttl: 1ms }", WEIR_AMOUNT_MAX, US_PER_MS,
          "{concurrent: 9007199254740991, ttl: 1ms}" },
        { "{ concurrent: 1, ttl: 1d }", 1, DAY_US, "{concurrent: 1, ttl: 1d}" },
        { "{ concurrent: 1, ttl: 24 h, name: concurrent }", 1, DAY_US, "{name: concurrent, concurrent: 1, ttl: 1d}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reading r = limits_of(cases[i].text);
        const struct rule_limit *l = r.rules->rules[0]->kind->limits;
        assert_int_equal(l->algorithm, LIMIT_CONCURRENT);
        assert_int_equal(l->max, cases[i].max);
        assert_int_equal(l->per_us, cases[i].ttl_us);
        assert_int_equal(l->burst, 0);
        assert_text(l->name, "concurrent");
        struct buf out;
        buf_init(&out, 1000);
        rules_write(r.rules, &out);
        assert_non_null(strstr(out.ptr, cases[i].written));
        buf_done(&out);
        reading_done(&r);
    }
    struct reading r = limits_of("10 concurrent per 1m");
    assert_int_equal(r.rules->rules[0]->kind->limits[0].algorithm, LIMIT_TOKEN_BUCKET);
    assert_text(r.rules->rules[0]->kind->limits[0].cost_unit, "concurrent");
    reading_done(&r);
}

#define NOT_WITH                                                                                                         \
    ": cannot be combined with `concurrent`, which counts requests that are in flight and takes only `name` and `ttl`; " \
    "leave it out, or write a second limit\n"
#define SLOT_TTLS "f:1: rule a: limits.ttl: must be a length such as 500ms, 60s, 1m or 24h, from 1ms to 24h"

static void bad_slots(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "{ concurrent: 1, max: 2 }", "f:1: rule a: limits.max" NOT_WITH },
        { "{ concurrent: 1, per: 1s }", "f:1: rule a: limits.per" NOT_WITH },
        { "{ concurrent: 1, burst: 2 }", "f:1: rule a: limits.burst" NOT_WITH },
        { "{ concurrent: 1, calendar: day }", "f:1: rule a: limits.calendar" NOT_WITH },
        { "{ concurrent: 1, tz: UTC, week_start: sunday }",
          "f:1: rule a: limits.tz" NOT_WITH "f:1: rule a: limits.week_start" NOT_WITH },
        { "{ concurrent: 1, unit: tokens }", "f:1: rule a: limits.unit" NOT_WITH },
        { "{ concurrent: 1, algorithm: fixed_window }",
          "f:1: rule a: limits.algorithm: cannot be combined with `concurrent`; leave one of the two out\n" },
        { "{ concurrent: 1, algorithm: [] }",
          "f:1: rule a: limits.algorithm: cannot be combined with `concurrent`; leave one of the two out\n" },
        { "{ algorithm: concurrent, max: 7 }",
          "f:1: rule a: limits: algorithm: a limit of requests in flight is written { concurrent: 7, ttl: 60s }; write "
          "`concurrent: 7` in place of `algorithm: concurrent` and `max`\n" },
        { "{ algorithm: concurrent }",
          "f:1: rule a: limits: algorithm: a limit of requests in flight is written { concurrent: 10, ttl: 60s }; write "
          "`concurrent: 10` in place of `algorithm: concurrent`\n" },
        { "{ max: 1, per: 1s, ttl: 1s }", "f:1: rule a: limits.ttl: is allowed with `concurrent` only\n" },
        { "{ concurrent: -1 }", "f:1: rule a: limits.concurrent: " MAX_ERROR "-1\n" },
        { "{ concurrent: ten }", "f:1: rule a: limits.concurrent: " MAX_ERROR "\"ten\"\n" },
        { "{ concurrent: true }", "f:1: rule a: limits.concurrent: " MAX_ERROR "true\n" },
        { "{ concurrent: 9007199254740992 }", "f:1: rule a: limits.concurrent: " MAX_ERROR "9007199254740992\n" },
        { "{ concurrent: 1, ttl: 0s }", "f:1: rule a: limits.ttl: must be from 1ms to 24h, not \"0s\"\n" },
        { "{ concurrent: 1, ttl: 86400001ms }", "f:1: rule a: limits.ttl: must be from 1ms to 24h, not \"86400001ms\"\n" },
        { "{ concurrent: 1, ttl: 60 }", SLOT_TTLS "; 60 has no unit\n" },
        { "{ concurrent: 1, ttl: hour }", SLOT_TTLS ", not \"hour\"\n" },
        { "{ concurrent: 1, ttl: [1s] }", SLOT_TTLS ", not a list\n" },
        { "9007199254740992 concurrent",
          "f:1: rule a: limits: concurrent must be a whole number from 0 to 9007199254740991, not \"9007199254740992\"\n" },
        { "10 concurrent 60s", "f:1: rule a: limits: nothing may follow `concurrent` here; for a time to live write { "
                               "concurrent: 10, ttl: … }\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_limits(cases[i].text, cases[i].report);
}

static void counts_of_limits(void **state)
{
    (void)state;
    expect_limits("[]",
                  "f:1: rule a: limits: the list is empty; a rule needs at least one limit, such as \"10 per 60s\"\n");
    struct buf text;
    buf_init(&text, 1000);
    for (int i = 0; i < RULE_LIMITS_MAX; i++)
        buf_printf(&text, "%s{ name: l%d, max: 1, per: 1s }", i ? ", " : "[", i);
    buf_add(&text, SV("]"));
    struct reading r = limits_of(text.ptr);
    assert_int_equal(r.rules->rules[0]->kind->limit_count, RULE_LIMITS_MAX);
    reading_done(&r);
    text.len--;
    buf_add(&text, SV(", 1 per 1s]"));
    expect_limits(text.ptr, "f:1: rule a: limits: 17 are too many; at most 16\n");
    buf_done(&text);
}

/* ---- names ---- */

#define ADVICE(index, name, taken)                                                   \
    "f:1: rule a: advice: limits[" index "]: gets the name " name ", because " taken \
    " is already used; give it a name, so that it keeps its counts when others change\n"

static void default_names_make_way(void **state)
{
    (void)state;
    static const struct {
        const char *limits;
        const char *names[4];
        const char *advice;
    } cases[] = {
        { "[1 per 1s, 2 per 2s, 3 per 3s]",
          { "token_bucket", "token_bucket-2", "token_bucket-3" },
          ADVICE("1", "token_bucket-2", "token_bucket") ADVICE("2", "token_bucket-3", "token_bucket") },
        { "[1 per day, 2 per hour]", { "day", "hour" }, "" },
        { "[1 per day, { calendar: day, max: 4, tz: Asia/Tokyo }]", { "day", "day-2" }, ADVICE("1", "day-2", "day") },
        /* A given name stands, wherever it is. */
        { "[1 per day, { name: day, max: 1, per: 1s }, { name: day-2, max: 1, per: 1s }]",
          { "day-3", "day", "day-2" },
          ADVICE("0", "day-3", "day") },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reading r = limits_of(cases[i].limits);
        for (size_t j = 0; j < r.rules->rules[0]->kind->limit_count; j++)
            assert_text(r.rules->rules[0]->kind->limits[j].name, cases[i].names[j]);
        assert_string_equal(r.text.ptr, cases[i].advice);
        reading_done(&r);
    }
}

#define MULTIPLE(index, unit)                                                                                              \
    "f:1: rule a: advice: limits[" index "]: " unit                                                                        \
    " is the name of a unit here, and does not multiply the number; write the number in full, such as \"1073741824 bytes " \
    "per day\"\n"

static void units_that_look_like_multiples(void **state)
{
    (void)state;
    expect_limits("[10 GiB per day, { name: x, unit: MB, max: 5, per: 1m }, 3 gibbons per hour]",
                  MULTIPLE("0", "GiB") MULTIPLE("1", "MB"));
}

static void no_room_at_all(void **state)
{
    (void)state;
    expect_limits("[1 per 1s, { name: x, max: 0, per: 1m }]",
                  "f:1: rule a: advice: limits[1]: max 0 has no room for any request, so everything is refused; to limit "
                  "nothing, write `mode: off`; to refuse one subject, write an override with `deny: true`\n");
}

#define NAME_ERROR "f:1: rule a: limits.name: must be printable ASCII without \", \\, and leading or trailing blanks, not "

static void bad_names(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "[{ name: x, max: 1, per: 1s }, { name: x, max: 2, per: 1s }]",
          "f:1: rule a: limits[1]: the name \"x\" is given twice, first in line 1; the limits of a rule need different "
          "names\n" },
        { "{ name: 'a\"b', max: 1, per: 1s }", NAME_ERROR "\"a\\\"b\"\n" },
        { "{ name: 'a\\b', max: 1, per: 1s }", NAME_ERROR "\"a\\\\b\"\n" },
        { "{ name: ' a', max: 1, per: 1s }", NAME_ERROR "\" a\"\n" },
        { "{ name: \"a\\nb\", max: 1, per: 1s }", NAME_ERROR "\"a\\nb\"\n" },
        { "{ name: ä, max: 1, per: 1s }", NAME_ERROR "\"ä\"\n" },
        { "{ name: '', max: 1, per: 1s }", "f:1: rule a: limits.name: must have 1 to 50 bytes, not 0\n" },
        { "{ name: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeef, max: 1, per: 1s }",
          "f:1: rule a: limits.name: must have 1 to 50 bytes, not 51\n" },
        { "{ name: [a], max: 1, per: 1s }", "f:1: rule a: limits.name: must be text, not a list\n" },
        { "{ name: true, max: 1, per: 1s }",
          "f:1: rule a: limits.name: must be text, not true; put it in quotes if you mean the text\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_limits(cases[i].text, cases[i].report);
    struct reading r = limits_of("{ name: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee, max: 1, per: 1s }");
    assert_int_equal(r.rules->rules[0]->kind->limits[0].name.len, WEIR_NAME_MAX);
    reading_done(&r);
}

/* ---- zones ---- */

static void zones_are_read_once(void **state)
{
    (void)state;
    struct reading r =
        limits_of("[{ name: a, calendar: day, max: 1, tz: Asia/Shanghai }, { name: b, calendar: hour, max: 1, tz: "
                  "Asia/Shanghai }, { name: c, calendar: day, max: 1, tz: UTC }, 1 per day]");
    const struct rule_limit *l = r.rules->rules[0]->kind->limits;
    assert_ptr_equal(l[0].zone, l[1].zone);
    assert_ptr_equal(l[2].zone, l[3].zone);
    assert_int_equal(tz_span_at(&l[0].zone->tz, 1700000000).utoff_s, 8 * 3600);
    assert_int_equal(tz_span_at(&l[2].zone->tz, 1700000000).utoff_s, 0);
    size_t count = 0;
    for (const struct zone *zone = r.rules->zones; zone; zone = zone->next)
        count++;
    assert_int_equal(count, 2);
    reading_done(&r);
}

static void bad_zones(void **state)
{
    (void)state;
    static const struct report_case cases[] = {
        { "Asia/Shanghia", "unknown time zone \"Asia/Shanghia\"; did you mean `Asia/Shanghai`?\n" },
        { "asia/shanghai", "unknown time zone \"asia/shanghai\"; did you mean `Asia/Shanghai`?\n" },
        { "Shanghai", "unknown time zone \"Shanghai\"; did you mean `Asia/Shanghai`?\n" },
        { "Mars/Olympus_Mons", "unknown time zone \"Mars/Olympus_Mons\"; `timedatectl list-timezones` lists them\n" },
        { "../../../etc/passwd", "unknown time zone \"../../../etc/passwd\"; `timedatectl list-timezones` lists them\n" },
        { "/etc/localtime", "unknown time zone \"/etc/localtime\"; `timedatectl list-timezones` lists them\n" },
        { "Asia/", "unknown time zone \"Asia/\"; `timedatectl list-timezones` lists them\n" },
        { "Asia", "unknown time zone \"Asia\"; `timedatectl list-timezones` lists them\n" },
        { "[UTC]", "must be text, not a list\n" },
        { "''", "must have 1 to 100 bytes, not 0\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char limits[200], report[300];
        snprintf(limits, sizeof limits, "{ calendar: day, max: 1, tz: %s }", cases[i].text);
        snprintf(report, sizeof report, "f:1: rule a: limits.tz: %s", cases[i].report);
        expect_limits(limits, report);
    }
}

/* In a folder of its own: a database that is missing, and files that are no zones. */
static void other_zone_databases(void **state)
{
    (void)state;
    char dir[] = "/tmp/weir-zones-XXXXXX", path[100];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/Bad", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a zone", file);
    fclose(file);
    setenv("TZDIR", dir, 1);
    expect_limits("{ calendar: day, max: 1, tz: Bad }",
                  "f:1: rule a: limits.tz: the file of the time zone \"Bad\" cannot be used: not a TZif file\n");
    remove(path);
    remove(dir);
    char expected[300];
    snprintf(
        expected, sizeof expected,
        "f:1: rule a: limits.tz: unknown time zone \"Asia/Tokyo\"; only UTC is known, because %s cannot be read; install "
        "tzdata\n",
        dir);
    expect_limits("{ calendar: day, max: 1, tz: Asia/Tokyo }", expected);
    struct reading r = limits_of("{ calendar: day, max: 1, tz: UTC }");
    reading_done(&r);
    unsetenv("TZDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_of_the_short_form),
        cmocka_unit_test(calendar_units_of_both_forms),
        cmocka_unit_test(calendar_lengths),
        cmocka_unit_test(long_forms),
        cmocka_unit_test(texts_for_people),
        cmocka_unit_test(bad_short_forms),
        cmocka_unit_test(short_forms_out_of_bounds),
        cmocka_unit_test(bad_numbers),
        cmocka_unit_test(bad_lengths_and_combinations),
        cmocka_unit_test(counts_of_limits),
        cmocka_unit_test(slots),
        cmocka_unit_test(bad_slots),
        cmocka_unit_test(default_names_make_way),
        cmocka_unit_test(units_that_look_like_multiples),
        cmocka_unit_test(no_room_at_all),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(zones_are_read_once),
        cmocka_unit_test(bad_zones),
        cmocka_unit_test(other_zone_databases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
