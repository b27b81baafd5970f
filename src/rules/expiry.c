/* Instants in rules: RFC 3339, or seconds since 1970. */
#include <stdio.h>

#include "limit/civil.h"
#include "rules/reader.h"

/* Exactly `count` digits off the front of *s, followed by `then` (NUL: whatever); -1: they are not there. */
static int take(sv *s, size_t count, char then)
{
    uint64_t value;
    if (s->len < count || !sv_u64(sv_of(s->ptr, count), 9999, &value))
        return -1;
    *s = sv_from(*s, count);
    if (then != '\0' && (s->len == 0 || s->ptr[0] != then))
        return -1;
    *s = sv_from(*s, then != '\0');
    return (int)value;
}

/* Digits of a fraction as microseconds; what is finer is cut. -1: there are none. */
static int take_fraction(sv *s)
{
    int us = 0, count = 0;
    for (; s->len > 0 && ascii_digit(s->ptr[0]); *s = sv_from(*s, 1), count++)
        us = count < 6 ? us * 10 + (s->ptr[0] - '0') : us;
    for (int i = count; i < 6; i++)
        us *= 10;
    return count > 0 ? us : -1;
}

/* "Z", "+08:00": minutes. False: something else, or something behind it. */
static bool take_offset(sv s, int *ret_minutes)
{
    if (s.len == 1 && ascii_lower(s.ptr[0]) == 'z') {
        *ret_minutes = 0;
        return true;
    }
    if (s.len == 0 || (s.ptr[0] != '+' && s.ptr[0] != '-'))
        return false;
    int sign = s.ptr[0] == '-' ? -1 : 1;
    s = sv_from(s, 1);
    int hours = take(&s, 2, ':'), minutes = take(&s, 2, '\0');
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || s.len > 0)
        return false;
    *ret_minutes = sign * (hours * 60 + minutes);
    return true;
}

static bool parse_rfc3339(sv s, int64_t *ret_us)
{
    int year = take(&s, 4, '-'), month = take(&s, 2, '-'), day = take(&s, 2, '\0');
    if (year < 0 || month < 1 || month > 12 || day < 1 || day > civil_month_days(year, month) || s.len == 0)
        return false;
    if (ascii_lower(s.ptr[0]) != 't' && s.ptr[0] != ' ')
        return false;
    s = sv_from(s, 1);
    int hour = take(&s, 2, ':'), minute = take(&s, 2, ':'), second = take(&s, 2, '\0'), us = 0, offset = 0;
    bool leap = second == 60 && minute == 59;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || (second > 59 && !leap))
        return false;
    if (s.len > 0 && s.ptr[0] == '.') {
        s = sv_from(s, 1);
        us = take_fraction(&s);
    }
    if (us < 0 || !take_offset(s, &offset))
        return false;
    int64_t minutes = ((civil_month_day(year, month) + day - 1) * 24 + hour) * 60 + minute - offset;
    *ret_us = (minutes * 60 + second) * US_PER_S + us;
    return true;
}

/* "1767225600", "1767225600.5". */
static bool parse_epoch(sv s, int64_t *ret_us)
{
    sv fraction = s;
    sv whole = sv_cut(&fraction, '.');
    uint64_t seconds;
    int us = 0;
    if (!sv_u64(whole, INT64_MAX / US_PER_S - 1, &seconds))
        return false;
    if (whole.len < s.len)
        us = take_fraction(&fraction);
    if (us < 0 || fraction.len > 0)
        return false;
    *ret_us = (int64_t)seconds * US_PER_S + us;
    return true;
}

bool read_expiry(struct reader *r, const struct node *node, int64_t *ret_us)
{
    int64_t us;
    bool number = node_is_number(node);
    bool good = number ? parse_epoch(node->text, &us) : node->kind == NODE_SCALAR && parse_rfc3339(node->text, &us);
    if (!good) {
        report_error(
            r, node->line,
            "must be a date that exists and a time as in 2027-01-01T00:00:00Z or 2027-01-01T08:00:00+08:00, or seconds "
            "since 1970, not %s",
            shown_node(r, node));
    } else if (us < 0 || us >= EXPIRY_MAX_US) {
        report_error(r, node->line, "must lie in the years 1970 to 9999, unlike %s%s", shown_node(r, node),
                     number ? " seconds; are they milliseconds?" : "");
        good = false;
    } else {
        *ret_us = us;
    }
    return good;
}

void expiry_text(int64_t us, char out[EXPIRY_TEXT_MAX])
{
    int64_t seconds = us / US_PER_S, day = seconds / DAY_S, year = civil_year_of(day);
    unsigned of_day = (unsigned)(seconds % DAY_S), fraction = (unsigned)(us % US_PER_S);
    int month = 12;
    while (civil_month_day(year, month) > day)
        month--;
    char part[16] = "";
    if (fraction)
        snprintf(part, sizeof part, ".%06u", fraction);
    snprintf(out, EXPIRY_TEXT_MAX, "%04d-%02d-%02dT%02u:%02u:%02u%sZ", (int)year, month,
             (int)(day - civil_month_day(year, month)) + 1, of_day / 3600, of_day / 60 % 60, of_day % 60, part);
}
