#include "replay/timeline.h"

#include <stdlib.h>

#define MS US_PER_MS
#define S US_PER_S
#define MIN (60 * US_PER_S)
#define H (3600 * US_PER_S)
#define D (86400 * US_PER_S)

/* Widths of a bin: each divides the next, so that bins can be joined. */
static const int64_t bin_widths[] = { MS,     10 * MS, 100 * MS, 500 * MS, S,        5 * S,  15 * S,
                                      30 * S, MIN,     5 * MIN,  15 * MIN, 30 * MIN, H,      3 * H,
                                      6 * H,  12 * H,  D,        7 * D,    28 * D,   364 * D };

/* Widths of a column: lengths that a clock shows. A width that is not a multiple of the bins is skipped. */
static const int64_t column_widths[] = {
    MS,     2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS, 500 * MS, S,       2 * S,   5 * S,
    10 * S, 15 * S, 30 * S, MIN,     2 * MIN, 5 * MIN, 10 * MIN, 15 * MIN, 30 * MIN, H,       2 * H,   3 * H,
    6 * H,  12 * H, D,      2 * D,   7 * D,   14 * D,  28 * D,   56 * D,   182 * D,  364 * D, 728 * D, 3640 * D,
};

enum {
    BIN_WIDTHS = sizeof bin_widths / sizeof bin_widths[0],
    COLUMN_WIDTHS = sizeof column_widths / sizeof column_widths[0],
};

void timeline_init(struct timeline *timeline)
{
    *timeline = (struct timeline){ .width_us = bin_widths[0], .first_us = INT64_MAX, .last_us = -1, .whole_seconds = true };
}

void timeline_done(struct timeline *timeline)
{
    if (!timeline)
        return;
    while (timeline->all) {
        struct series *next = timeline->all->next;
        free(timeline->all);
        timeline->all = next;
    }
}

struct series *timeline_series(struct timeline *timeline)
{
    struct series *series = calloc(1, sizeof *series);
    if (!series)
        return NULL;
    series->next = timeline->all;
    timeline->all = series;
    return series;
}

/* Moves every count to its bin after a change of start and width. */
static void rearrange(struct timeline *timeline, int64_t start_us, int64_t width_us)
{
    uint64_t moved[SERIES_BINS];
    for (struct series *series = timeline->all; series; series = series->next) {
        memset(moved, 0, sizeof moved);
        for (size_t i = 0; i < SERIES_BINS; i++)
            if (series->counts[i])
                moved[(timeline->start_us + (int64_t)i * timeline->width_us - start_us) / width_us] += series->counts[i];
        memcpy(series->counts, moved, sizeof moved);
    }
    timeline->start_us = start_us;
    timeline->width_us = width_us;
}

/* Chooses bins that contain [first, last]. If time runs backwards, it leaves room before them, so that this is rarely done.
 */
static void widen(struct timeline *timeline, bool backwards)
{
    size_t i = 0;
    while (bin_widths[i] < timeline->width_us)
        i++;
    while (i + 1 < BIN_WIDTHS && timeline->last_us / bin_widths[i] - timeline->first_us / bin_widths[i] >= SERIES_BINS)
        i++;
    int64_t width = bin_widths[i], bins = timeline->last_us / width - timeline->first_us / width + 1;
    int64_t first = timeline->first_us / width, spare = backwards ? (SERIES_BINS - bins) / 2 : 0;
    rearrange(timeline, (first > spare ? first - spare : 0) * width, width);
}

size_t timeline_bin(struct timeline *timeline, int64_t now_us)
{
    bool fresh = timeline->last_us < timeline->first_us;
    bool before = !fresh && now_us < timeline->start_us;
    if (now_us < timeline->first_us)
        timeline->first_us = now_us;
    if (now_us > timeline->last_us)
        timeline->last_us = now_us;
    if (now_us % US_PER_S)
        timeline->whole_seconds = false;
    if (fresh || before || now_us - timeline->start_us >= SERIES_BINS * timeline->width_us)
        widen(timeline, before);
    return (size_t)((now_us - timeline->start_us) / timeline->width_us);
}

int64_t nice_width_us(int64_t at_least_us)
{
    for (size_t i = 0; i < COLUMN_WIDTHS; i++)
        if (column_widths[i] >= at_least_us)
            return column_widths[i];
    return column_widths[COLUMN_WIDTHS - 1];
}

struct columns timeline_columns(const struct timeline *timeline, size_t columns)
{
    if (timeline->last_us < timeline->first_us)
        return (struct columns){ .width_us = S };
    for (size_t i = 0;; i++) {
        int64_t width = column_widths[i];
        bool fits = width % timeline->width_us == 0 && !(timeline->whole_seconds && width < S);
        int64_t first = timeline->first_us / width, count = timeline->last_us / width - first + 1;
        if (i + 1 == COLUMN_WIDTHS || (fits && count <= (int64_t)columns))
            return (struct columns){ .start_us = first * width, .width_us = width, .count = (size_t)count };
    }
}

uint64_t columns_count(const struct columns *columns, const struct timeline *timeline, const struct series *series,
                       size_t column)
{
    int64_t from = columns->start_us + (int64_t)column * columns->width_us, to = from + columns->width_us;
    uint64_t sum = 0;
    for (int64_t at = from; at < to; at += timeline->width_us) {
        int64_t bin = (at - timeline->start_us) / timeline->width_us;
        if (at >= timeline->start_us && bin < SERIES_BINS)
            sum += series->counts[bin];
    }
    return sum;
}
