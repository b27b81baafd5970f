#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/chart.h"

enum { BAR = 30 };
#define REDRAW_US (US_PER_S / 10)

void progress_init(struct progress *progress, const struct input *input)
{
    *progress = (struct progress){ .on = isatty(STDERR_FILENO) && input->bytes > 0 };
    progress->started_us = progress->on ? clock_steady_us() : 0;
}

void progress_show(struct progress *progress, uint64_t lines, double part)
{
    if (!progress->on)
        return;
    int64_t now = clock_steady_us();
    if (now - progress->started_us < 2 * REDRAW_US || now - progress->shown_us < REDRAW_US)
        return;
    progress->shown_us = now;
    char bar[BAR + 1], rate[COUNT_TEXT_MAX];
    for (int i = 0; i < BAR; i++)
        bar[i] = i < part * BAR ? '#' : '.';
    bar[BAR] = '\0';
    count_text_short(lines * (uint64_t)US_PER_S / (uint64_t)(now - progress->started_us), rate);
    fprintf(stderr, "\r[%s] %3.0f %%  %s lines a second ", bar, part * 100, rate);
}

/* Erases the bar. */
void progress_done(struct progress *progress)
{
    if (progress->on && progress->shown_us)
        fputs("\r\033[K", stderr);
    progress->on = false;
}
