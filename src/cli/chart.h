/* Pictures of counts over time, in characters. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include "base/buf.h"
#include "cli/term.h"
#include "replay/timeline.h"

/* Bars that stand on a time axis: refused below, in full blocks, and passed on top of it. */
void chart_draw(struct buf *out, const struct term *term, const struct timeline *timeline, const struct series *passed,
                const struct series *refused);

/* One line of bars, exactly `width` columns wide; the highest bar is the series' own maximum. */
void chart_spark(struct buf *out, const struct term *term, const struct timeline *timeline, const struct series *series,
                 size_t width);

/* "1,234,567", and "12.3k" in at most five columns. */
enum { COUNT_TEXT_MAX = 32 };
const char *count_text(uint64_t n, char out[COUNT_TEXT_MAX]); /* returns out */
void count_text_short(uint64_t n, char out[COUNT_TEXT_MAX]);

#endif
