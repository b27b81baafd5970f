#include "limit/calendar.h"

#include "base/check.h"
#include "base/civil.h"
#include "base/clock.h"

/* No zone is further from UTC than tz_parse allows. */
enum { FARTHEST_S = TZ_UTOFF_MAX_S + 1 };

/* A window in whole seconds. */
struct stretch {
    int64_t start_s, end_s;
};

/* The first instant whose local time is the given one or later. Walks forward from an offset that is surely too early. */
static int64_t first_instant(const struct tz *tz, int64_t local_s)
{
    int64_t from = local_s - FARTHEST_S;
    for (;;) {
        struct tz_span span = tz_span_at(tz, from);
        int64_t at = local_s - span.utoff_s;
        if (at < span.end_s)
            return at > span.start_s ? at : span.start_s;
        from = span.end_s;
    }
}

static int64_t day_start(const struct tz *tz, int64_t day)
{
    return first_instant(tz, day * DAY_S);
}

/* The last day that has begun. Where the clock goes back over midnight that is still the later of the two. */
static int64_t day_at(const struct tz *tz, int64_t utc_s)
{
    int64_t day = floor_div(utc_s + tz_span_at(tz, utc_s).utoff_s, DAY_S);
    while (day_start(tz, day + 1) <= utc_s)
        day++;
    return day;
}

static struct stretch days_at(const struct tz *tz, enum calendar_unit unit, int week_start, int64_t utc_s)
{
    int64_t first = day_at(tz, utc_s), next = first + 1;
    int64_t year = civil_year_of(first);
    if (unit == CALENDAR_WEEK) {
        first -= (civil_weekday(first) - week_start + 7) % 7;
        next = first + 7;
    } else if (unit == CALENDAR_MONTH) {
        int month = 12;
        while (civil_month_day(year, month) > first)
            month--;
        first = civil_month_day(year, month);
        next = first + civil_month_days(year, month);
    } else if (unit == CALENDAR_YEAR) {
        first = civil_year_day(year);
        next = civil_year_day(year + 1);
    }
    return (struct stretch){ day_start(tz, first), day_start(tz, next) };
}

static struct stretch clock_unit_at(const struct tz *tz, int64_t length_s, int64_t utc_s)
{
    struct tz_span span = tz_span_at(tz, utc_s);
    int64_t start = floor_div(utc_s + span.utoff_s, length_s) * length_s - span.utoff_s, end = start + length_s;
    return (struct stretch){ start > span.start_s ? start : span.start_s, end < span.end_s ? end : span.end_s };
}

struct window calendar_window(const struct tz *tz, enum calendar_unit unit, int week_start, int64_t now_us)
{
    enum { MINUTE_S = 60, HOUR_S = 3600 };
    CHECK(unit < CALENDAR_UNITS && week_start >= MONDAY && week_start <= SUNDAY);
    int64_t now_s = floor_div(now_us, US_PER_S);
    struct stretch at;
    if (unit == CALENDAR_MINUTE || unit == CALENDAR_HOUR)
        at = clock_unit_at(tz, unit == CALENDAR_MINUTE ? MINUTE_S : HOUR_S, now_s);
    else
        at = days_at(tz, unit, week_start, now_s);
    return (struct window){ at.start_s * US_PER_S, at.end_s * US_PER_S };
}

struct window aligned_window(int64_t length_us, int64_t now_us)
{
    CHECK(length_us > 0);
    int64_t start_us = floor_div(now_us, length_us) * length_us;
    return (struct window){ start_us, start_us + length_us };
}
