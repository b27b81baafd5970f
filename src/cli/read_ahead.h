/* A thread that reads an access log ahead of its decisions: it reads, parses and matches lines while the caller decides.
 * Blocks of lines come in the order of the log. Their number is fixed, so the memory does not grow with the log. */
#ifndef CLI_READ_AHEAD_H
#define CLI_READ_AHEAD_H

#include "cli/input.h"
#include "replay/log_block.h"

struct read_ahead;

/* A part of the log. */
struct read_block {
    struct log_block log;
    struct input_buffer text; /* of its lines */
    uint64_t line;            /* number of the last line */
    double part;              /* of input_progress(), after it */
    bool ended;               /* there is nothing after it */
    const char *why;          /* an error ended it: `why` of struct input; else NULL */
    uint64_t failed_line;     /* why: the number of the line that cannot be read */
};

/* Starts reading. `input` and `bound` belong to the thread until read_ahead_stop(). Returns NULL if out of memory, or if
 * a thread cannot be started. */
struct read_ahead *read_ahead_start(struct input *input, const struct bound *bound);
/* Waits for the next block, and takes back the one before. The last one says that it is. */
struct read_block *read_ahead_next(struct read_ahead *ahead);
/* Ends the thread, also if it is waiting for a pipe. NULL: does nothing. */
void read_ahead_stop(struct read_ahead *ahead);

#endif
