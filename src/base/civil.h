/* The Gregorian calendar: days since 1970-01-01 and years and months. */
#ifndef BASE_CIVIL_H
#define BASE_CIVIL_H

#include <stdbool.h>
#include <stdint.h>

#define DAY_S INT64_C(86400)

static inline int64_t floor_div(int64_t a, int64_t by)
{
    return a / by - (a % by < 0);
}

static inline bool civil_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Leap days before a year, counted from the year 1. */
static inline int64_t civil_leap_days(int64_t year)
{
    return floor_div(year - 1, 4) - floor_div(year - 1, 100) + floor_div(year - 1, 400);
}

/* 1 January of a year. */
static inline int64_t civil_year_day(int64_t year)
{
    return 365 * (year - 1970) + civil_leap_days(year) - civil_leap_days(1970);
}

static inline int64_t civil_year_of(int64_t day)
{
    enum { CYCLE_YEARS = 400, CYCLE_DAYS = 146097 };
    int64_t year = 1970 + floor_div(day * CYCLE_YEARS, CYCLE_DAYS);
    while (civil_year_day(year) > day)
        year--;
    while (civil_year_day(year + 1) <= day)
        year++;
    return year;
}

static inline int civil_month_days(int64_t year, int month)
{
    if (month == 2)
        return civil_leap(year) ? 29 : 28;
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

/* The first of a month (1 to 12). */
static inline int64_t civil_month_day(int64_t year, int month)
{
    int64_t day = civil_year_day(year);
    for (int before = 1; before < month; before++)
        day += civil_month_days(year, before);
    return day;
}

/* 0 is Monday. */
static inline int civil_weekday(int64_t day)
{
    return (int)(day + 3 - 7 * floor_div(day + 3, 7));
}

#endif
