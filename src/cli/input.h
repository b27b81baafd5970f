/* Lines of a file or of stdin, gzip or plain. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "base/sv.h"

enum { INPUT_LINE_MAX = 64 << 20 };

struct input {
    void *gz;
    char *buf;
    size_t start, end, cap; /* what was read and not yet given out is buf[start … end) */
    bool ended;
    uint64_t line;   /* number of the line given last, from 1 */
    int64_t bytes;   /* size of a regular file, else 0 */
    const char *why; /* why input_open or input_next failed */
};

bool input_open(struct input *input, const char *path); /* "-": stdin */
void input_close(struct input *input);

/* 1: the next line, without its end, which may be changed until the next call that reads; 0: no more; -1: see `why`. */
int input_next(struct input *input, char **ret_line, size_t *ret_len);

/* The same for lines that are already in the buffer. Returns 1, or 0 if the buffer has no whole line. */
int input_next_in_buffer(struct input *input, char **ret_line, size_t *ret_len);

/* A buffer for the lines of an input. */
struct input_buffer {
    char *bytes;
    size_t cap;
};
/* Returns false if out of memory. input_buffer_done() takes one that is zero, too. */
bool input_buffer_init(struct input_buffer *buffer);
void input_buffer_done(struct input_buffer *buffer);
/* It had to grow, for a long line. */
bool input_buffer_is_large(const struct input_buffer *buffer);
/* Gives back what it has grown by; the contents are lost. */
void input_buffer_shrink(struct input_buffer *buffer);
/* Exchanges the buffer of the input for one that was not given lines before: lines that were given out stay valid, and are
 * the caller's. */
void input_exchange(struct input *input, struct input_buffer *buffer);

/* Part of the file that was read, 0 to 1; negative where that is not known. */
double input_progress(struct input *input);

#endif
