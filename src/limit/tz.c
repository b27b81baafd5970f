#include "limit/tz.h"

#include <string.h>

#include "base/civil.h"

enum {
    HEADER_BYTES = 44,
    HEADER_COUNTS = 20, /* where the six counts begin */
    INFO_BYTES = 6,
    INFOS_MAX = 256,   /* an index is one byte */
    TIMES_MAX = 10000, /* far more than any zone has; bounds the work of a look-up */
    NAME_MIN = 3,
};

#define TIME_MAX_S (INT64_C(1) << 60) /* so that adding offsets cannot overflow; files use -2^59 for "always" */

/* ---- bytes ---- */

static uint32_t read_4(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int64_t read_8(const uint8_t *p)
{
    return (int64_t)((uint64_t)read_4(p) << 32 | read_4(p + 4));
}

static int64_t time_at(const struct tz *tz, uint32_t i)
{
    return read_8(tz->times + 8 * (size_t)i);
}

static int32_t info_utoff(const struct tz *tz, uint32_t info)
{
    return (int32_t)read_4(tz->infos + INFO_BYTES * (size_t)info);
}

/* ---- the footer: a POSIX TZ string ---- */

struct text {
    const char *p, *end;
};

static bool eat(struct text *t, char c)
{
    if (t->p == t->end || *t->p != c)
        return false;
    t->p++;
    return true;
}

static bool eat_number(struct text *t, int32_t max, int32_t *ret)
{
    int32_t n = 0;
    const char *begin = t->p;
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++) {
        n = n * 10 + (*t->p - '0');
        if (n > max)
            return false;
    }
    if (t->p == begin)
        return false;
    *ret = n;
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* EST, or <+03>. */
static bool eat_name(struct text *t)
{
    bool quoted = eat(t, '<');
    const char *begin = t->p;
    while (t->p < t->end &&
           (is_letter(*t->p) || (quoted && ((*t->p >= '0' && *t->p <= '9') || *t->p == '+' || *t->p == '-'))))
        t->p++;
    return t->p - begin >= NAME_MIN && (!quoted || eat(t, '>'));
}

/* [+-]hh[:mm[:ss]] */
static bool eat_time(struct text *t, int32_t hours_max, int32_t *ret_s)
{
    bool negative = eat(t, '-');
    if (!negative)
        eat(t, '+');
    int32_t h, m = 0, s = 0;
    if (!eat_number(t, hours_max, &h))
        return false;
    if (eat(t, ':') && (!eat_number(t, 59, &m) || (eat(t, ':') && !eat_number(t, 59, &s))))
        return false;
    int32_t total = h * 3600 + m * 60 + s;
    *ret_s = negative ? -total : total;
    return true;
}

/* Jn, n or Mm.w.d, and perhaps /time. */
static bool eat_date(struct text *t, struct tz_rule_date *ret)
{
    enum { TWO_O_CLOCK = 7200, HOURS_MAX = 167 };
    *ret = (struct tz_rule_date){ .time_s = TWO_O_CLOCK };
    int32_t n = 0, week = 0, day = 0;
    if (eat(t, 'M')) {
        ret->kind = TZ_MONTH_WEEK_DAY;
        if (!eat_number(t, 12, &n) || !eat(t, '.') || !eat_number(t, 5, &week) || !eat(t, '.') || !eat_number(t, 6, &day))
            return false;
        if (n < 1 || week < 1)
            return false;
        ret->month = (uint8_t)n;
        ret->week = (uint8_t)week;
        ret->day = (uint8_t)day;
    } else {
        ret->kind = eat(t, 'J') ? TZ_JULIAN_NO_LEAP : TZ_JULIAN;
        if (!eat_number(t, 365, &n) || (ret->kind == TZ_JULIAN_NO_LEAP && n < 1))
            return false;
        ret->julian = (uint16_t)n;
    }
    return !eat(t, '/') || eat_time(t, HOURS_MAX, &ret->time_s);
}

static bool read_footer(struct text t, struct tz *tz)
{
    enum { OFFSET_HOURS_MAX = 24 };
    int32_t west_s; /* POSIX counts offsets westwards */
    if (!eat_name(&t) || !eat_time(&t, OFFSET_HOURS_MAX, &west_s))
        return false;
    tz->has_footer = true;
    tz->std_utoff_s = -west_s;
    if (t.p == t.end)
        return true;
    if (!eat_name(&t))
        return false;
    tz->dst_utoff_s = tz->std_utoff_s + 3600;
    if (t.p < t.end && *t.p != ',') {
        if (!eat_time(&t, OFFSET_HOURS_MAX, &west_s))
            return false;
        tz->dst_utoff_s = -west_s;
    }
    tz->has_dst = tz->dst_utoff_s != tz->std_utoff_s;
    return eat(&t, ',') && eat_date(&t, &tz->dst_start) && eat(&t, ',') && eat_date(&t, &tz->dst_end) && t.p == t.end;
}

/* ---- the file ---- */

struct header {
    uint8_t version;
    uint32_t isutcs, isstds, leaps, times, infos, chars;
};

static bool read_header(const uint8_t *p, size_t len, struct header *ret)
{
    if (len < HEADER_BYTES || memcmp(p, "TZif", 4) != 0)
        return false;
    const uint8_t *counts = p + HEADER_COUNTS;
    *ret = (struct header){ p[4],
                            read_4(counts),
                            read_4(counts + 4),
                            read_4(counts + 8),
                            read_4(counts + 12),
                            read_4(counts + 16),
                            read_4(counts + 20) };
    return true;
}

static uint64_t block_bytes(const struct header *h, unsigned time_bytes)
{
    return (uint64_t)h->times * (time_bytes + 1) + (uint64_t)h->infos * INFO_BYTES + h->chars +
           (uint64_t)h->leaps * (time_bytes + 4) + h->isstds + h->isutcs;
}

/* Returns the error in the tables, or NULL. */
static const char *check_tables(const struct tz *tz)
{
    for (uint32_t i = 0; i < tz->info_count; i++) {
        int32_t utoff = info_utoff(tz, i);
        if (utoff < -TZ_UTOFF_MAX_S || utoff > TZ_UTOFF_MAX_S)
            return "a TZif file with an offset of more than 26 hours";
    }
    int64_t before = -TIME_MAX_S;
    for (uint32_t i = 0; i < tz->time_count; i++) {
        if (tz->types[i] >= tz->info_count)
            return "a TZif file with a transition to a type that it does not have";
        int64_t time = time_at(tz, i);
        if (time <= before || time >= TIME_MAX_S)
            return "a TZif file whose transitions do not rise";
        before = time;
    }
    return NULL;
}

static const char *check_counts(const struct header *h)
{
    if (h->leaps > 0)
        return "a TZif file with leap seconds; take the zone of the same name outside of right/";
    if (h->infos < 1 || h->infos > INFOS_MAX || h->times > TIMES_MAX)
        return "a TZif file with impossible counts";
    return NULL;
}

static const char *parse(const uint8_t *p, size_t len, struct tz *tz)
{
    static const char truncated[] = "a truncated TZif file";
    struct header h;
    if (!read_header(p, len, &h))
        return "not a TZif file";
    if (h.version < '2')
        return "a TZif file of version 1; version 2 or later is needed (zic writes it)";
    uint64_t skip = HEADER_BYTES + block_bytes(&h, 4);
    if (skip > len || !read_header(p + skip, len - skip, &h))
        return truncated;
    p += skip + HEADER_BYTES;
    len -= skip + HEADER_BYTES;
    const char *why = check_counts(&h);
    if (why)
        return why;
    uint64_t block = block_bytes(&h, 8);
    if (block >= len || p[block] != '\n')
        return truncated;
    *tz = (struct tz){ .times = p, .types = p + 8 * (size_t)h.times, .time_count = h.times, .info_count = h.infos };
    tz->infos = tz->types + h.times;
    const char *footer = (const char *)p + block + 1, *footer_end = footer, *end = (const char *)p + len;
    while (footer_end < end && *footer_end != '\n')
        footer_end++;
    if (footer_end == end)
        return truncated;
    if (footer < footer_end && !read_footer((struct text){ footer, footer_end }, tz))
        return "a TZif file whose last line is not a POSIX TZ rule";
    return check_tables(tz);
}

int tz_parse(const void *bytes, size_t len, struct tz *ret, const char **ret_why)
{
    struct tz tz;
    const char *why = parse(bytes, len, &tz);
    if (why) {
        *ret_why = why;
        return -1;
    }
    *ret = tz;
    return 0;
}

void tz_utc(struct tz *ret)
{
    *ret = (struct tz){ .has_footer = true };
}

/* ---- the offset at an instant ---- */

/* Local seconds, counted as if they were UTC, at which a rule fires in a year. */
static int64_t rule_local(const struct tz_rule_date *rule, int64_t year)
{
    int64_t day = civil_year_day(year);
    if (rule->kind == TZ_JULIAN) {
        day += rule->julian;
    } else if (rule->kind == TZ_JULIAN_NO_LEAP) {
        enum { FEBRUARY_28 = 59 };
        day += rule->julian - 1 + (rule->julian > FEBRUARY_28 && civil_leap(year));
    } else {
        day = civil_month_day(year, rule->month);
        int sunday_is_0 = (civil_weekday(day) + 1) % 7;
        int in_month = (rule->day - sunday_is_0 + 7) % 7 + 7 * (rule->week - 1);
        /* Week 5 is the last one, which may be the fourth. */
        day += in_month < civil_month_days(year, rule->month) ? in_month : in_month - 7;
    }
    return day * DAY_S + rule->time_s;
}

/* Looks at the changes of the years around. If two changes are at the same instant, the one of the later year counts
 * (summer time all year ends when the next one begins), and within one year the end (a summer time of no length). */
static struct tz_span footer_span(const struct tz *tz, int64_t utc_s)
{
    struct tz_span span = { INT64_MIN, INT64_MAX, tz->std_utoff_s };
    if (!tz->has_dst)
        return span;
    int64_t year = civil_year_of(floor_div(utc_s, DAY_S));
    for (int64_t y = year - 2; y <= year + 2; y++) {
        int64_t start = rule_local(&tz->dst_start, y) - tz->std_utoff_s,
                end = rule_local(&tz->dst_end, y) - tz->dst_utoff_s;
        struct tz_span changes[] = { { start, 0, tz->dst_utoff_s }, { end, 0, tz->std_utoff_s } };
        for (int i = 0; i < 2; i++) {
            int64_t at = changes[i].start_s;
            if (at > utc_s && at < span.end_s)
                span.end_s = at;
            if (at <= utc_s && at >= span.start_s) {
                span.start_s = at;
                span.utoff_s = changes[i].utoff_s;
            }
        }
    }
    return span;
}

static struct tz_span after_table(const struct tz *tz, int64_t last_s, int64_t utc_s)
{
    if (!tz->has_footer) {
        uint32_t info = tz->time_count ? tz->types[tz->time_count - 1] : 0;
        return (struct tz_span){ last_s, INT64_MAX, info_utoff(tz, info) };
    }
    struct tz_span span = footer_span(tz, utc_s);
    if (span.start_s < last_s)
        span.start_s = last_s;
    return span;
}

/* As it stands in the file: its neighbours may have the same offset. */
static struct tz_span plain_span(const struct tz *tz, int64_t utc_s)
{
    uint32_t low = 0, high = tz->time_count; /* the first transition after utc_s lies in between */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (time_at(tz, middle) <= utc_s)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t start = low > 0 ? time_at(tz, low - 1) : INT64_MIN;
    if (low == tz->time_count)
        return after_table(tz, start, utc_s);
    return (struct tz_span){ start, time_at(tz, low), info_utoff(tz, low > 0 ? tz->types[low - 1] : 0) };
}

struct tz_span tz_span_at(const struct tz *tz, int64_t utc_s)
{
    utc_s = utc_s < -TIME_MAX_S ? -TIME_MAX_S : utc_s > TIME_MAX_S ? TIME_MAX_S : utc_s;
    struct tz_span span = plain_span(tz, utc_s);
    /* Beyond the table a neighbour with the same offset is rare, and one of them is enough. */
    uint32_t joins_max = tz->time_count + 1;
    for (uint32_t i = 0; i < joins_max && span.start_s != INT64_MIN; i++) {
        struct tz_span before = plain_span(tz, span.start_s - 1);
        if (before.utoff_s != span.utoff_s)
            break;
        span.start_s = before.start_s;
    }
    for (uint32_t i = 0; i < joins_max && span.end_s != INT64_MAX; i++) {
        struct tz_span after = plain_span(tz, span.end_s);
        if (after.utoff_s != span.utoff_s)
            break;
        span.end_s = after.end_s;
    }
    return span;
}
