/* A progress bar on stderr, where that is a terminal and the end is known. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli/input.h"

struct progress {
    bool on;
    int64_t started_us, shown_us;
};

void progress_init(struct progress *progress, const struct input *input);
/* Call it often: it looks at the clock once in some thousand lines, and draws ten times a second. */
void progress_show(struct progress *progress, struct input *input);
void progress_done(struct progress *progress);

#endif
