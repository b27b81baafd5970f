/* Every zone of the system against glibc: offsets at random instants and around each transition, and the windows of every
 * unit.
 *
 * The windows are derived anew from glibc's offsets alone: a unit's number at an instant (the day counted from 1970, the
 * month counted from 1900, …) never falls, so the bounds of a window are found by bisection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <ftw.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "limit/calendar.h"
#include "random.h"
#include "zonefile.h"

enum {
    DAY = 86400,
    SPANS_MAX = 4000,
    PROBES_MAX = 40000,
    RANDOM_OFFSETS = 500,
    RANDOM_WINDOWS = 40,
    FILES_MAX = 2000,
};

#define FROM_S INT64_C(0)
#define UNTIL_S INT64_C(4133980800)   /* 2101 */
#define MARGIN_S (INT64_C(800) * DAY) /* a year's window may begin and end outside */

/* Stretches of one offset, as glibc has them. */
struct spans {
    size_t count;
    struct {
        int64_t start;
        int32_t utoff;
        int64_t reached; /* the latest local time shown before this one begins */
    } at[SPANS_MAX];
};

static struct random rnd;
static struct zonefile file;
static struct spans spans;
static int64_t probes[PROBES_MAX];
static const char *zone_path;

static struct {
    size_t count;
    dev_t dev[FILES_MAX];
    ino_t ino[FILES_MAX];
} seen;
static size_t zones_checked;

#define CHECK(condition, ...)                                                             \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            print_error("%s: seed %llu: ", zone_path, (unsigned long long)random_seed()); \
            print_error(__VA_ARGS__);                                                     \
            print_error("\n");                                                            \
            fail();                                                                       \
        }                                                                                 \
    } while (0)

/* ---- what glibc says ---- */

static int32_t glibc_utoff(int64_t t)
{
    time_t time = (time_t)t;
    struct tm tm;
    assert_non_null(localtime_r(&time, &tm));
    return (int32_t)tm.tm_gmtoff;
}

static void add_span(int64_t start, int32_t utoff)
{
    assert_true(spans.count < SPANS_MAX);
    int64_t reached = INT64_MIN;
    if (spans.count > 0) {
        size_t last = spans.count - 1;
        reached = start - 1 + spans.at[last].utoff;
        if (reached < spans.at[last].reached)
            reached = spans.at[last].reached;
    }
    spans.at[spans.count].start = start;
    spans.at[spans.count].utoff = utoff;
    spans.at[spans.count++].reached = reached;
}

/* Adds the changes of offset in (from, to]. */
static void find_changes(int64_t from, int64_t to)
{
    int32_t utoff = spans.at[spans.count - 1].utoff, at_end = glibc_utoff(to);
    while (utoff != at_end) {
        int64_t low = from, high = to;
        while (high - low > 1) {
            int64_t middle = low + (high - low) / 2;
            if (glibc_utoff(middle) == utoff)
                low = middle;
            else
                high = middle;
        }
        utoff = glibc_utoff(high);
        add_span(high, utoff);
        from = high;
    }
}

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t table_time(const struct tz *tz, uint32_t i)
{
    uint64_t t = 0;
    for (int b = 0; b < 8; b++)
        t = t << 8 | tz->times[8 * i + b];
    return (int64_t)t;
}

/* Asks once a week and at every transition that the file lists: nothing changes twice in between. */
static void find_spans(const struct tz *tz)
{
    int64_t begin = FROM_S - MARGIN_S, end = UNTIL_S + MARGIN_S;
    size_t count = 0;
    for (int64_t t = begin; t < end; t += 7 * DAY)
        probes[count++] = t;
    for (uint32_t i = 0; i < tz->time_count; i++) {
        int64_t t = table_time(tz, i);
        assert_true(count + 2 < PROBES_MAX);
        if (t > begin && t < end) {
            probes[count++] = t - 1;
            probes[count++] = t;
        }
    }
    qsort(probes, count, sizeof probes[0], compare_int64);
    spans.count = 0;
    add_span(begin, glibc_utoff(begin));
    for (size_t i = 1; i < count; i++)
        find_changes(probes[i - 1], probes[i]);
}

static size_t span_of(int64_t t)
{
    size_t low = 0, high = spans.count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (spans.at[middle].start <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t whole(int64_t a, int64_t by)
{
    return a >= 0 ? a / by : -((by - 1 - a) / by);
}

/* The number of the unit that an instant lies in. */
static int64_t label(enum calendar_unit unit, int week_start, int64_t t)
{
    size_t i = span_of(t);
    int64_t local = t + spans.at[i].utoff;
    if (unit == CALENDAR_MINUTE || unit == CALENDAR_HOUR)
        return ((int64_t)i << 40) + whole(local, unit == CALENDAR_MINUTE ? 60 : 3600);
    int64_t reached = local > spans.at[i].reached ? local : spans.at[i].reached;
    if (unit == CALENDAR_DAY)
        return whole(reached, DAY);
    if (unit == CALENDAR_WEEK)
        return whole(whole(reached, DAY) + 3 - week_start, 7);
    struct tm tm;
    time_t time = (time_t)reached;
    gmtime_r(&time, &tm);
    return unit == CALENDAR_MONTH ? tm.tm_year * 12 + tm.tm_mon : tm.tm_year;
}

/* The first instant in (low, high] whose label is `wanted` or more. */
static int64_t first_with(enum calendar_unit unit, int week_start, int64_t low, int64_t high, int64_t wanted)
{
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (label(unit, week_start, middle) >= wanted)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* ---- what is checked ---- */

static void check_offset(const struct tz *tz, int64_t t)
{
    struct tz_span span = tz_span_at(tz, t);
    CHECK(span.start_s <= t && t < span.end_s, "at %lld: not in its span", (long long)t);
    CHECK(span.utoff_s == glibc_utoff(t), "at %lld: offset %d, not %d", (long long)t, span.utoff_s, glibc_utoff(t));
}

static void check_unit(const struct tz *tz, enum calendar_unit unit, int week_start, int64_t now_us)
{
    static const int64_t reach[CALENDAR_UNITS] = { 120, 7200, 5 * DAY, 12 * DAY, 40 * DAY, 380 * DAY };
    int64_t now = now_us / US_PER_S;
    struct window w = calendar_window(tz, unit, week_start, now_us);
    int64_t number = label(unit, week_start, now);
    int64_t start = first_with(unit, week_start, now - reach[unit], now, number);
    int64_t end = first_with(unit, week_start, now, now + reach[unit], number + 1);
    CHECK(w.start_us == start * US_PER_S && w.end_us == end * US_PER_S,
          "unit %d, week from %d, at %lld: [%lld, %lld), not [%lld, %lld)", unit, week_start, (long long)now,
          (long long)(w.start_us / US_PER_S), (long long)(w.end_us / US_PER_S), (long long)start, (long long)end);
    CHECK(w.start_us <= now_us && now_us < w.end_us, "unit %d at %lld: not in its window", unit, (long long)now);
    CHECK(calendar_window(tz, unit, week_start, w.end_us).start_us == w.end_us, "unit %d at %lld: a gap after it", unit,
          (long long)now);
    CHECK(w.start_us == 0 || calendar_window(tz, unit, week_start, w.start_us - 1).end_us == w.start_us,
          "unit %d at %lld: a gap before it", unit, (long long)now);
}

static void check_windows(const struct tz *tz, int64_t t)
{
    int64_t now_us = t * US_PER_S + random_in(&rnd, 0, US_PER_S - 1);
    for (enum calendar_unit unit = 0; unit < CALENDAR_UNITS; unit++)
        check_unit(tz, unit, (int)random_in(&rnd, MONDAY, SUNDAY), now_us);
}

static void check_around(const struct tz *tz, int64_t change)
{
    static const int64_t steps[] = { -DAY, -3600, -1, 0, 1, 3600, DAY };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        check_offset(tz, change + steps[i]);
    if (change < FROM_S + DAY || change >= UNTIL_S)
        return;
    check_windows(tz, change - 1);
    check_windows(tz, change);
    check_windows(tz, change + random_in(&rnd, -DAY, DAY));
}

static void check_zone(const char *path)
{
    zone_path = path;
    struct tz tz;
    const char *why = NULL;
    CHECK(tz_parse(file.bytes, file.len, &tz, &why) == 0, "refused as %s", why);
    char value[400];
    snprintf(value, sizeof value, ":%s", path);
    setenv("TZ", value, 1);
    tzset();
    find_spans(&tz);
    for (size_t i = 1; i < spans.count; i++) {
        /* Beyond the table the changes are of one kind: some of them will do. */
        if (spans.at[i].start < INT64_C(2145916800) || random_one_in(&rnd, 8))
            check_around(&tz, spans.at[i].start);
    }
    for (uint32_t i = 0; i < tz.time_count; i++)
        if (table_time(&tz, i) >= FROM_S - MARGIN_S)
            check_offset(&tz, table_time(&tz, i));
    for (int i = 0; i < RANDOM_OFFSETS; i++)
        check_offset(&tz, random_in(&rnd, FROM_S, UNTIL_S));
    for (int i = 0; i < RANDOM_WINDOWS; i++)
        check_windows(&tz, random_in(&rnd, FROM_S, UNTIL_S));
    zones_checked++;
}

/* Many names are links to one file: each file once. */
static bool is_new(const struct stat *st)
{
    for (size_t i = 0; i < seen.count; i++)
        if (seen.dev[i] == st->st_dev && seen.ino[i] == st->st_ino)
            return false;
    assert_true(seen.count < FILES_MAX);
    seen.dev[seen.count] = st->st_dev;
    seen.ino[seen.count++] = st->st_ino;
    return true;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type != FTW_F)
        return 0;
    const char *name = path + sizeof ZONEINFO;
    if (strncmp(name, "right/", 6) == 0 || strncmp(name, "posix/", 6) == 0 || !is_new(st))
        return 0;
    if (zonefile_read(path, &file) && file.len > 4 && memcmp(file.bytes, "TZif", 4) == 0)
        check_zone(path);
    return 0;
}

static void every_zone_agrees_with_glibc(void **state)
{
    (void)state;
    rnd.state = random_seed();
    assert_int_equal(nftw(ZONEINFO, visit, 16, 0), 0);
    unsetenv("TZ");
    tzset();
    if (zones_checked == 0) {
        print_message("# " ZONEINFO " is missing (package tzdata)\n");
        skip();
    }
    print_message("# %zu zones\n", zones_checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_zone_agrees_with_glibc) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
