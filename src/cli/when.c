#include "cli/when.h"

#include <stdio.h>

#include "limit/civil.h"

enum { YEAR_MIN = 1970, YEAR_MAX = 2112 };

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

/* Takes exactly `count` digits off *s. */
static bool take_digits(sv *s, size_t count, int *ret)
{
    int n = 0;
    if (s->len < count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!ascii_digit(s->ptr[i]))
            return false;
        n = n * 10 + (s->ptr[i] - '0');
    }
    *s = sv_from(*s, count);
    *ret = n;
    return true;
}

static bool take_char(sv *s, char c)
{
    if (s->len == 0 || ascii_lower(s->ptr[0]) != c)
        return false;
    *s = sv_from(*s, 1);
    return true;
}

/* "+08:00", "-0700" or "z". */
static bool take_offset(sv *s, bool colon, int *ret_minutes)
{
    int hours, minutes, sign = 1;
    if (colon && take_char(s, 'z')) {
        *ret_minutes = 0;
        return true;
    }
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

static bool take_time(sv *s, struct civil *c)
{
    return take_digits(s, 2, &c->hour) && take_char(s, ':') && take_digits(s, 2, &c->minute) && take_char(s, ':') &&
           take_digits(s, 2, &c->second) && c->hour <= 23 && c->minute <= 59 && c->second <= 60;
}

static bool take_fraction(sv *s, int *ret_micros)
{
    int micros = 0, digits = 0;
    if (!take_char(s, '.'))
        return true;
    for (; s->len > 0 && ascii_digit(s->ptr[0]); *s = sv_from(*s, 1), digits++)
        if (digits < 6)
            micros = micros * 10 + (s->ptr[0] - '0');
    for (int i = digits; i < 6; i++)
        micros *= 10;
    *ret_micros = micros;
    return digits > 0;
}

/* A date that exists, as an instant within our bounds. */
static bool finish(const struct civil *c, int offset_minutes, int64_t *ret_us)
{
    if (c->year < YEAR_MIN - 1 || c->year > YEAR_MAX + 1 || c->month < 1 || c->month > 12 || c->day < 1 ||
        c->day > civil_month_days(c->year, c->month))
        return false;
    int64_t us = civil_to_us(c) - offset_minutes * 60 * US_PER_S;
    if (!clock_valid(us))
        return false;
    *ret_us = us;
    return true;
}

bool when_parse_rfc3339(sv s, int64_t *ret_us)
{
    struct civil c = { 0 };
    int offset;
    if (!take_digits(&s, 4, &c.year) || !take_char(&s, '-') || !take_digits(&s, 2, &c.month) || !take_char(&s, '-') ||
        !take_digits(&s, 2, &c.day))
        return false;
    if (!take_char(&s, 't') && !take_char(&s, ' '))
        return false;
    return take_time(&s, &c) && take_fraction(&s, &c.micros) && take_offset(&s, true, &offset) && s.len == 0 &&
           finish(&c, offset, ret_us);
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

bool when_parse_clf(sv s, int64_t *ret_us)
{
    struct civil c = { 0 };
    int offset;
    return take_digits(&s, 2, &c.day) && take_char(&s, '/') && take_month(&s, &c.month) && take_char(&s, '/') &&
           take_digits(&s, 4, &c.year) && take_char(&s, ':') && take_time(&s, &c) && take_char(&s, ' ') &&
           take_offset(&s, false, &offset) && s.len == 0 && finish(&c, offset, ret_us);
}

bool when_parse(sv text, int64_t *ret_us)
{
    int micros = 0;
    uint64_t ms;
    if (when_parse_rfc3339(text, ret_us))
        return true;
    sv fraction = text, whole = sv_cut(&fraction, '.');
    if (!sv_u64(whole, (CLOCK_END_US - 1) / US_PER_MS, &ms))
        return false;
    if (whole.len < text.len) {
        sv rest = sv_from(text, whole.len);
        if (!take_fraction(&rest, &micros) || rest.len > 0)
            return false;
    }
    /* the fraction is one of a millisecond: its first three digits are microseconds */
    int64_t us = (int64_t)ms * US_PER_MS + micros / 1000;
    if (!clock_valid(us))
        return false;
    *ret_us = us;
    return true;
}

void when_text(int64_t us, char out[WHEN_TEXT_MAX])
{
    struct civil c = civil_from_us(us);
    int len =
        snprintf(out, WHEN_TEXT_MAX, "%04d-%02d-%02dT%02d:%02d:%02d", c.year, c.month, c.day, c.hour, c.minute, c.second);
    if (c.micros % 1000)
        len += snprintf(out + len, WHEN_TEXT_MAX - (size_t)len, ".%06d", c.micros);
    else if (c.micros)
        len += snprintf(out + len, WHEN_TEXT_MAX - (size_t)len, ".%03d", c.micros / 1000);
    snprintf(out + len, WHEN_TEXT_MAX - (size_t)len, "Z");
}

void span_text(int64_t us, char out[SPAN_TEXT_MAX])
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {
        { "d", 86400 * US_PER_S }, { "h", 3600 * US_PER_S }, { "min", 60 * US_PER_S },
        { "s", US_PER_S },         { "ms", US_PER_MS },      { "us", 1 },
    };
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof units[0] && us < units[i].us)
        i++;
    int64_t first = us / units[i].us, rest = us % units[i].us;
    int64_t second = i + 1 < sizeof units / sizeof units[0] ? rest / units[i + 1].us : 0;
    if (second && us < 100 * units[i].us)
        snprintf(out, SPAN_TEXT_MAX, "%lld %s %lld %s", (long long)first, units[i].name, (long long)second,
                 units[i + 1].name);
    else
        snprintf(out, SPAN_TEXT_MAX, "%lld %s", (long long)first, units[i].name);
}
