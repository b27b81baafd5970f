/* Counts over time, of which neither the beginning nor the end is known before: a fixed number of bins whose width grows
 * with what they have to hold. All series of a timeline share its bins. */
#ifndef REPLAY_TIMELINE_H
#define REPLAY_TIMELINE_H

#include "base/clock.h"
#include "base/sv.h"

enum { SERIES_BINS = 2048 };

struct series {
    struct series *next; /* of the same timeline */
    uint64_t counts[SERIES_BINS];
};

struct timeline {
    int64_t start_us; /* of bin 0: a multiple of width_us */
    int64_t width_us;
    int64_t first_us, last_us; /* the earliest and the latest instant seen; first > last: none yet */
    bool whole_seconds;        /* nothing finer was seen */
    struct series *all;
};

void timeline_init(struct timeline *timeline);
void timeline_done(struct timeline *timeline);

/* A new series of zeros; NULL when there is no memory. */
struct series *timeline_series(struct timeline *timeline);

/* The bin of an instant; widens the bins of all series if it must. */
size_t timeline_bin(struct timeline *timeline, int64_t now_us);

/* How to draw a timeline in at most `columns` columns, each a length of time that people use. */
struct columns {
    int64_t start_us; /* of column 0 */
    int64_t width_us; /* of one column */
    size_t count;
};

struct columns timeline_columns(const struct timeline *timeline, size_t columns);
/* The count of one column. */
uint64_t columns_count(const struct columns *columns, const struct timeline *timeline, const struct series *series,
                       size_t column);
/* The shortest length of time that people use and that is at least this long. */
int64_t nice_width_us(int64_t at_least_us);

#endif
