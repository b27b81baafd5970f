#include "base/instant.h"

#include <stdio.h>

#include "base/civil.h"

static const char month_names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

int64_t civil_to_us(const struct civil *c)
{
    int64_t days = civil_month_day(c->year, c->month) + c->day - 1;
    return (((days * 24 + c->hour) * 60 + c->minute) * 60 + c->second) * US_PER_S + c->micros;
}

struct civil civil_from_us(int64_t us)
{
    int64_t seconds = us / US_PER_S, days = seconds / DAY_S;
    int rest = (int)(seconds % DAY_S);
    struct civil c = { .year = (int)civil_year_of(days), .month = 12, .micros = (int)(us % US_PER_S) };
    while (civil_month_day(c.year, c.month) > days)
        c.month--;
    c.day = (int)(days - civil_month_day(c.year, c.month)) + 1;
    c.hour = rest / 3600;
    c.minute = rest / 60 % 60;
    c.second = rest % 60;
    return c;
}

/* ---- reading: each takes its part off the front of *s ---- */

static bool take_digits(sv *s, size_t count, int *ret)
{
    uint64_t value;
    if (s->len < count || !sv_u64(sv_of(s->ptr, count), 9999, &value))
        return false;
    *s = sv_from(*s, count);
    *ret = (int)value;
    return true;
}

static bool take_char(sv *s, char lower_case)
{
    if (s->len == 0 || ascii_lower(s->ptr[0]) != lower_case)
        return false;
    *s = sv_from(*s, 1);
    return true;
}

/* Digits of a fraction of `whole_us`. */
static bool take_fraction(sv *s, int64_t whole_us, int64_t *ret_us)
{
    int64_t us = 0;
    size_t digits = 0;
    for (; s->len > 0 && ascii_digit(s->ptr[0]); *s = sv_from(*s, 1), digits++) {
        whole_us /= 10;
        us += whole_us * (s->ptr[0] - '0');
    }
    *ret_us = us;
    return digits > 0;
}

/* "+08:00", "-0700" or "z". */
static bool take_offset(sv *s, bool colon, int *ret_minutes)
{
    int hours, minutes, sign = 1;
    *ret_minutes = 0;
    if (colon && take_char(s, 'z'))
        return true;
    if (take_char(s, '-'))
        sign = -1;
    else if (!take_char(s, '+'))
        return false;
    if (!take_digits(s, 2, &hours) || (colon && !take_char(s, ':')) || !take_digits(s, 2, &minutes) || hours > 23 ||
        minutes > 59)
        return false;
    *ret_minutes = sign * (hours * 60 + minutes);
    return true;
}

/* A leap second is the first one after it. */
static bool take_time(sv *s, struct civil *c)
{
    return take_digits(s, 2, &c->hour) && take_char(s, ':') && take_digits(s, 2, &c->minute) && take_char(s, ':') &&
           take_digits(s, 2, &c->second) && c->hour <= 23 && c->minute <= 59 &&
           (c->second <= 59 || (c->second == 60 && c->minute == 59));
}

static bool take_month(sv *s, int *ret)
{
    for (int i = 0; i < 12; i++)
        if (sv_starts(*s, sv_of(month_names + i * 3, 3))) {
            *s = sv_from(*s, 3);
            *ret = i + 1;
            return true;
        }
    return false;
}

static bool finish(sv rest, const struct civil *c, int offset_minutes, int64_t *ret_us)
{
    if (rest.len > 0 || c->month < 1 || c->month > 12 || c->day < 1 || c->day > civil_month_days(c->year, c->month))
        return false;
    *ret_us = civil_to_us(c) - offset_minutes * 60 * US_PER_S;
    return true;
}

bool instant_parse_rfc3339(sv s, int64_t *ret_us)
{
    struct civil c = { 0 };
    int64_t micros = 0;
    int offset;
    if (!take_digits(&s, 4, &c.year) || !take_char(&s, '-') || !take_digits(&s, 2, &c.month) || !take_char(&s, '-') ||
        !take_digits(&s, 2, &c.day) || (!take_char(&s, 't') && !take_char(&s, ' ')) || !take_time(&s, &c))
        return false;
    if (take_char(&s, '.') && !take_fraction(&s, US_PER_S, &micros))
        return false;
    c.micros = (int)micros;
    return take_offset(&s, true, &offset) && finish(s, &c, offset, ret_us);
}

bool instant_parse_clf(sv s, int64_t *ret_us)
{
    struct civil c = { 0 };
    int offset;
    return take_digits(&s, 2, &c.day) && take_char(&s, '/') && take_month(&s, &c.month) && take_char(&s, '/') &&
           take_digits(&s, 4, &c.year) && take_char(&s, ':') && take_time(&s, &c) && take_char(&s, ' ') &&
           take_offset(&s, false, &offset) && finish(s, &c, offset, ret_us);
}

bool instant_parse_number(sv text, int64_t unit_us, int64_t *ret_us)
{
    uint64_t units;
    int64_t micros = 0;
    sv fraction = text, whole = sv_cut(&fraction, '.');
    if (!sv_u64(whole, (uint64_t)(INT64_MAX / unit_us - 1), &units))
        return false;
    if (whole.len < text.len && (!take_fraction(&fraction, unit_us, &micros) || fraction.len > 0))
        return false;
    *ret_us = (int64_t)units * unit_us + micros;
    return true;
}

/* ---- writing ---- */

void instant_text(int64_t us, char out[INSTANT_TEXT_MAX])
{
    struct civil c = civil_from_us(us);
    char fraction[8] = "";
    if (c.micros % 1000)
        snprintf(fraction, sizeof fraction, ".%06u", (unsigned)c.micros % 1000000);
    else if (c.micros)
        snprintf(fraction, sizeof fraction, ".%03u", (unsigned)c.micros / 1000 % 1000);
    snprintf(out, INSTANT_TEXT_MAX, "%04u-%02u-%02uT%02u:%02u:%02u%sZ", (unsigned)c.year % 100000, (unsigned)c.month % 100,
             (unsigned)c.day % 100, (unsigned)c.hour % 100, (unsigned)c.minute % 100, (unsigned)c.second % 100, fraction);
}
