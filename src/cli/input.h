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

/* 1: the next line, without its end, which may be changed until the next call; 0: no more; -1: see `why`. */
int input_next(struct input *input, char **ret_line, size_t *ret_len);

/* Part of the file that was read, 0 to 1; negative where that is not known. */
double input_progress(struct input *input);

#endif
