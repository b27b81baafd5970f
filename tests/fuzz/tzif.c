/* Any bytes as a TZif file, and any bytes as the last line of an otherwise good one: refused, or a calendar without gaps.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "limit/calendar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_instant(const struct tz *tz, int64_t now_us, int week_start)
{
    struct tz_span span = tz_span_at(tz, now_us / US_PER_S);
    require(span.start_s <= now_us / US_PER_S && now_us / US_PER_S < span.end_s);
    require(span.utoff_s >= -TZ_UTOFF_MAX_S && span.utoff_s <= TZ_UTOFF_MAX_S);
    for (enum calendar_unit unit = 0; unit < CALENDAR_UNITS; unit++) {
        struct window w = calendar_window(tz, unit, week_start, now_us);
        require(w.start_us <= now_us && now_us < w.end_us);
        require(calendar_window(tz, unit, week_start, w.end_us).start_us == w.end_us);
        require(calendar_window(tz, unit, week_start, w.end_us - 1).start_us == w.start_us);
        require(w.start_us < US_PER_S || calendar_window(tz, unit, week_start, w.start_us - 1).end_us == w.start_us);
    }
}

static void check_file(const uint8_t *bytes, size_t len)
{
    struct tz tz;
    const char *why = NULL;
    if (tz_parse(bytes, len, &tz, &why) < 0) {
        require(why != NULL);
        return;
    }
    tz_span_at(&tz, INT64_MIN);
    tz_span_at(&tz, INT64_MAX);
    for (int64_t year = 0; year < 142; year += 7)
        check_instant(&tz, (year * 365 * 86400 + 12345) * US_PER_S + 678, (int)(year % 7));
    int64_t now_s = 0;
    for (int i = 0; i < 20 && now_s < CLOCK_END_US / US_PER_S; i++) {
        check_instant(&tz, now_s * US_PER_S, i % 7);
        int64_t end_s = tz_span_at(&tz, now_s).end_s;
        if (end_s >= CLOCK_END_US / US_PER_S)
            break;
        check_instant(&tz, end_s * US_PER_S - 1, i % 7);
        now_s = end_s;
    }
}

/* The smallest good file: no transitions, one type. */
static void check_footer(const uint8_t *data, size_t size)
{
    enum { BLOCK = 44 + 6 + 4, FOOTER_MAX = 200 };
    static const uint8_t block[BLOCK] = { 'T', 'Z', 'i', 'f', '3', [39] = 1, [43] = 4 };
    if (size > FOOTER_MAX)
        return;
    uint8_t file[2 * BLOCK + 1 + FOOTER_MAX + 1];
    memcpy(file, block, BLOCK);
    memcpy(file + BLOCK, block, BLOCK);
    file[2 * BLOCK] = '\n';
    if (size > 0)
        memcpy(file + 2 * BLOCK + 1, data, size);
    file[2 * BLOCK + 1 + size] = '\n';
    check_file(file, 2 * BLOCK + 1 + size + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_file(data, size);
    check_footer(data, size);
    return 0;
}
