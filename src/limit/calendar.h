/* Natural minutes, hours, days, weeks, months and years in a time zone, and windows of any length, counted from 1970.
 *
 * Days and longer units begin at the first instant whose local date is theirs (where midnight does not exist: when the
 * clock has jumped over it; where it comes twice: the first time) and last until the next one begins.
 * Minutes and hours lie within one offset from UTC: where the clock goes back over an hour, each pass is an hour of its
 * own, and what a jump leaves of one is a short one. */
#ifndef LIMIT_CALENDAR_H
#define LIMIT_CALENDAR_H

#include "limit/tz.h"

enum calendar_unit {
    CALENDAR_MINUTE,
    CALENDAR_HOUR,
    CALENDAR_DAY,
    CALENDAR_WEEK,
    CALENDAR_MONTH,
    CALENDAR_YEAR,
    CALENDAR_UNITS,
    CALENDAR_LENGTH = CALENDAR_UNITS, /* not a unit of the calendar: see aligned_window() */
};

enum { MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY };

/* [start, end) in microseconds since 1970, start ≤ now < end. */
struct window {
    int64_t start_us, end_us;
};

struct window calendar_window(const struct tz *tz, enum calendar_unit unit, int week_start, int64_t now_us);

/* The window of this length that `now` is in: the first begins at 1970-01-01 00:00 UTC, and each where the last ends. */
struct window aligned_window(int64_t length_us, int64_t now_us);

#endif
