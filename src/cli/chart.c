#include "cli/chart.h"

#include <stdio.h>

#include "base/instant.h"
#include "present/present.h"

enum {
    ROWS = 8,
    EIGHTHS = ROWS * 8, /* steps of a bar */
    GUTTER = 8,         /* numbers and axis on the left */
    BAR_MAX = 6,        /* columns of one bar, if there are few bars */
    COLUMNS_LIMIT = 256,
};

static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
static const char *const ascii_ramp[] = { " ", ".", ".", ":", ":", "-", "=", "+", "#" };

struct bar {
    unsigned refused, total; /* in eighths of a row */
};

struct chart {
    const struct term *term;
    struct columns columns;
    size_t bar_width;
    uint64_t max;
    struct bar bars[COLUMNS_LIMIT];
};

const char *count_text(uint64_t n, char out[COUNT_TEXT_MAX])
{
    char digits[COUNT_TEXT_MAX];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

void count_text_short(uint64_t n, char out[COUNT_TEXT_MAX])
{
    static const char units[] = " kMGTPE";
    size_t unit = 0;
    uint64_t rest = 0;
    if (n < 10000) {
        snprintf(out, COUNT_TEXT_MAX, "%llu", (unsigned long long)n);
        return;
    }
    for (; n >= 1000; unit++) {
        rest = n % 1000;
        n /= 1000;
    }
    if (n < 100)
        snprintf(out, COUNT_TEXT_MAX, "%llu.%llu%c", (unsigned long long)n, (unsigned long long)rest / 100, units[unit]);
    else
        snprintf(out, COUNT_TEXT_MAX, "%llu%c", (unsigned long long)n, units[unit]);
}

/* At least one step for any count above zero, so that a single refusal can be seen. */
static unsigned steps(uint64_t n, uint64_t max, unsigned all)
{
    if (n == 0 || max == 0)
        return 0;
    unsigned part = (unsigned)((double)n * all / (double)max + 0.5);
    return part == 0 ? 1 : part;
}

static void plan(struct chart *c, const struct timeline *timeline, const struct series *passed,
                 const struct series *refused)
{
    uint64_t no[COLUMNS_LIMIT], yes[COLUMNS_LIMIT];
    for (size_t i = 0; i < c->columns.count; i++) {
        no[i] = columns_count(&c->columns, timeline, refused, i);
        yes[i] = columns_count(&c->columns, timeline, passed, i);
        if (no[i] + yes[i] > c->max)
            c->max = no[i] + yes[i];
    }
    for (size_t i = 0; i < c->columns.count; i++) {
        struct bar bar = { steps(no[i], c->max, EIGHTHS), steps(no[i] + yes[i], c->max, EIGHTHS) };
        if (bar.total < bar.refused + (yes[i] > 0) && bar.refused < EIGHTHS)
            bar.total = bar.refused + (yes[i] > 0);
        c->bars[i] = bar;
    }
}

static unsigned in_row(unsigned eighths, unsigned row)
{
    unsigned below = row * 8;
    return eighths <= below ? 0 : eighths - below > 8 ? 8 : eighths - below;
}

struct glyph {
    const char *color, *text;
};

static struct glyph glyph_of(const struct term *term, struct bar bar, unsigned row)
{
    unsigned refused = in_row(bar.refused, row), total = in_row(bar.total, row);
    if (!term->unicode) {
        bool low = row == 0;
        const char *text = refused >= 4 || (low && refused) ? "#" : total >= 4 || (low && total) ? ":" : " ";
        return (struct glyph){ text[0] == '#' ? term_red(term) : term_green(term), text };
    }
    if (!term->color)
        return (struct glyph){ "", refused ? blocks[refused] : total >= 4 || (row == 0 && total) ? "░" : " " };
    /* Two colours in one character: the background is the passed requests, so that a few refusals stay visible. */
    if (refused && refused < total)
        return (struct glyph){ "\033[31;42m", blocks[refused] };
    if (refused)
        return (struct glyph){ term_red(term), blocks[refused] };
    return (struct glyph){ term_green(term), blocks[total] };
}

static void draw_row(const struct chart *c, unsigned row, struct buf *out)
{
    char label[COUNT_TEXT_MAX] = "";
    if (row == ROWS - 1)
        count_text_short(c->max, label);
    else if (row == ROWS / 2 - 1 && c->max >= 2 * ROWS)
        count_text_short(c->max / 2, label);
    buf_printf(out, "%*s %s ", GUTTER - 3, label, c->term->unicode ? (label[0] ? "┤" : "│") : "|");
    size_t gap = c->bar_width > 2 ? 1 : 0;
    const char *color = "";
    for (size_t i = 0; i < c->columns.count; i++) {
        struct glyph glyph = glyph_of(c->term, c->bars[i], row);
        const char *wanted = glyph.text[0] == ' ' ? "" : glyph.color;
        if (strcmp(wanted, color) != 0)
            buf_printf(out, "%s%s", color[0] ? term_plain(c->term) : "", wanted);
        color = wanted;
        for (size_t k = gap; k < c->bar_width; k++)
            buf_add(out, weir_str(glyph.text));
        if (gap && color[0])
            buf_add(out, weir_str(term_plain(c->term)));
        color = gap ? "" : color;
        buf_add(out, weir_str(gap ? " " : ""));
    }
    buf_add(out, weir_str(color[0] ? term_plain(c->term) : ""));
    while (out->len > 0 && out->ptr[out->len - 1] == ' ')
        out->ptr[--out->len] = '\0';
    buf_char(out, '\n');
}

/* "13:20", and the date where a day begins. */
static void tick_text(int64_t us, int64_t tick_us, char *out, size_t cap)
{
    struct civil c = civil_from_us(us);
    if (us % (86400 * US_PER_S) == 0 && tick_us >= US_PER_S)
        snprintf(out, cap, "%04d-%02d-%02d", c.year, c.month, c.day);
    else if (tick_us >= 60 * US_PER_S)
        snprintf(out, cap, "%02d:%02d", c.hour, c.minute);
    else if (tick_us >= US_PER_S)
        snprintf(out, cap, "%02d:%02d:%02d", c.hour, c.minute, c.second);
    else
        snprintf(out, cap, "%02d:%02d:%02d.%03d", c.hour, c.minute, c.second, c.micros / 1000);
}

static void draw_axis(const struct chart *c, struct buf *out)
{
    char labels[COLUMNS_LIMIT + 32];
    size_t width = c->columns.count * c->bar_width, end = 0;
    int64_t tick_us = nice_width_us(c->columns.width_us * (int64_t)(14 / c->bar_width + 1));
    bool unicode = c->term->unicode;
    memset(labels, ' ', sizeof labels);
    buf_printf(out, "%*s %s", GUTTER - 3, "0", unicode ? "└─" : "+-");
    for (size_t i = 0; i < width; i++) {
        int64_t at_us = c->columns.start_us + (int64_t)(i / c->bar_width) * c->columns.width_us;
        bool tick = i % c->bar_width == 0 && at_us % tick_us == 0;
        buf_add(out, weir_str(tick ? (unicode ? "┬" : "+") : unicode ? "─" : "-"));
        if (!tick || (end && i < end + 2))
            continue;
        char text[32];
        tick_text(at_us, tick_us, text, sizeof text);
        size_t len = strlen(text);
        if (i + len > width + 2)
            continue;
        memcpy(labels + i, text, len);
        end = i + len;
    }
    buf_printf(out, "\n%*s%.*s\n", GUTTER, "", (int)end, labels);
}

static void draw_head(const struct chart *c, struct buf *out)
{
    const struct term *term = c->term;
    char span[SPAN_TEXT_MAX];
    span_text(c->columns.width_us, span);
    buf_printf(out, "%srequests in each %s%s (UTC)   %s%s%s refused  %s%s%s passed\n\n", term_bold(term), span,
               term_plain(term), term_red(term), term->unicode ? "█" : "#", term_plain(term), term_green(term),
               !term->unicode ? ":"
               : term->color  ? "█"
                              : "░",
               term_plain(term));
}

void chart_draw(struct buf *out, const struct term *term, const struct timeline *timeline, const struct series *passed,
                const struct series *refused)
{
    size_t room = term->columns - GUTTER - 1;
    struct chart c = { .term = term };
    c.columns = timeline_columns(timeline, room < COLUMNS_LIMIT ? room : COLUMNS_LIMIT);
    if (c.columns.count == 0)
        return;
    c.bar_width = room / c.columns.count;
    c.bar_width = c.bar_width > BAR_MAX ? BAR_MAX : c.bar_width;
    plan(&c, timeline, passed, refused);
    draw_head(&c, out);
    for (unsigned row = ROWS; row-- > 0;)
        draw_row(&c, row, out);
    draw_axis(&c, out);
}

void chart_spark(struct buf *out, const struct term *term, const struct timeline *timeline, const struct series *series,
                 size_t width)
{
    struct columns columns = timeline_columns(timeline, width < COLUMNS_LIMIT ? width : COLUMNS_LIMIT);
    uint64_t counts[COLUMNS_LIMIT], max = 0;
    for (size_t i = 0; i < columns.count; i++) {
        counts[i] = columns_count(&columns, timeline, series, i);
        max = counts[i] > max ? counts[i] : max;
    }
    for (size_t i = 0; i < columns.count; i++)
        buf_add(out, weir_str((term->unicode ? blocks : ascii_ramp)[steps(counts[i], max, 8)]));
    for (size_t i = columns.count; i < width; i++)
        buf_char(out, ' ');
}
