/* A progress bar on stderr, where that is a terminal and the end is known. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli/input.h"

struct progress {
    bool on;
    int64_t started_us, shown_us;
};

void progress_init(struct progress *progress, const struct input *input);
/* Call it once in some hundred or thousand lines: it draws ten times a second. `part` is that of input_progress(). */
void progress_show(struct progress *progress, uint64_t lines, double part);
void progress_done(struct progress *progress);

#endif
