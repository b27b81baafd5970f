#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/check.h"

/* zlib reads plain text straight into the caller's memory if its own buffer is at most half as long as what is wanted. */
enum { CHUNK = 1 << 17, GZIP_BUFFER = CHUNK / 2, BUFFER = 2 * CHUNK };

/* A descriptor of a file that can be read, or -1 with errno. */
static int open_file(const char *path, struct stat *ret_info)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, ret_info) == 0 && !S_ISDIR(ret_info->st_mode))
        return fd;
    close(fd);
    errno = EISDIR;
    return -1;
}

bool input_open(struct input *input, const char *path)
{
    struct stat info;
    *input = (struct input){ .cap = BUFFER };
    int fd = open_file(path, &info);
    if (fd < 0) {
        input->why = strerror(errno);
        return false;
    }
    if (S_ISREG(info.st_mode))
        input->bytes = info.st_size;
    input->buf = malloc(input->cap);
    input->gz = gzdopen(fd, "rb");
    if (!input->gz)
        close(fd);
    if (input->buf && input->gz && gzbuffer(input->gz, GZIP_BUFFER) == 0)
        return true;
    input_close(input);
    input->why = "out of memory";
    return false;
}

void input_close(struct input *input)
{
    if (!input)
        return;
    if (input->gz)
        gzclose_r(input->gz);
    free(input->buf);
    *input = (struct input){ 0 };
}

/* Moves the unread bytes to the front, and makes room for a chunk after them. */
static bool make_room(struct input *input)
{
    size_t left = input->end - input->start;
    if (input->start > 0 && left > 0)
        memmove(input->buf, input->buf + input->start, left);
    input->start = 0;
    input->end = left;
    if (input->cap - left >= CHUNK)
        return true;
    if (left > INPUT_LINE_MAX) {
        input->why = "the line is longer than 64 MiB";
        return false;
    }
    size_t cap = input->cap * 2;
    char *buf = realloc(input->buf, cap);
    if (!buf) {
        input->why = "out of memory";
        return false;
    }
    input->buf = buf;
    input->cap = cap;
    return true;
}

static bool fill(struct input *input)
{
    if (!make_room(input))
        return false;
    int code, n = gzread(input->gz, input->buf + input->end, CHUNK);
    if (n > 0) {
        input->end += (size_t)n;
        return true;
    }
    const char *text = gzerror(input->gz, &code);
    if (n == 0 && code == Z_OK) {
        input->ended = true;
        return true;
    }
    input->why = code == Z_ERRNO ? strerror(errno) : code == Z_BUF_ERROR ? "the gzip file is cut off" : text;
    return false;
}

static void give(struct input *input, size_t len, size_t skip, char **ret_line, size_t *ret_len)
{
    char *line = input->buf + input->start;
    input->start += len + skip;
    input->line++;
    if (len > 0 && line[len - 1] == '\r')
        len--;
    *ret_line = line;
    *ret_len = len;
}

int input_next_in_buffer(struct input *input, char **ret_line, size_t *ret_len)
{
    const char *from = input->buf + input->start;
    const char *end = memchr(from, '\n', input->end - input->start);
    if (!end)
        return 0;
    give(input, (size_t)(end - from), 1, ret_line, ret_len);
    return 1;
}

int input_next(struct input *input, char **ret_line, size_t *ret_len)
{
    size_t seen = 0;
    for (;;) {
        size_t left = input->end - input->start;
        const char *from = input->buf + input->start + seen;
        const char *end = left > seen ? memchr(from, '\n', left - seen) : NULL;
        if (end) {
            give(input, seen + (size_t)(end - from), 1, ret_line, ret_len);
            return 1;
        }
        seen = left;
        if (input->ended) {
            if (left == 0)
                return 0;
            give(input, left, 0, ret_line, ret_len);
            return 1;
        }
        if (!fill(input)) {
            input->line++;
            return -1;
        }
    }
}

/* ---- buffers ---- */

bool input_buffer_init(struct input_buffer *buffer)
{
    *buffer = (struct input_buffer){ malloc(BUFFER), BUFFER };
    return buffer->bytes != NULL;
}

void input_buffer_done(struct input_buffer *buffer)
{
    if (buffer)
        free(buffer->bytes);
}

bool input_buffer_is_large(const struct input_buffer *buffer)
{
    return buffer->cap > BUFFER;
}

void input_buffer_shrink(struct input_buffer *buffer)
{
    char *bytes = realloc(buffer->bytes, BUFFER);
    if (!bytes)
        return;
    buffer->bytes = bytes;
    buffer->cap = BUFFER;
}

/* What is left was read with the last line, so it is at most a chunk. */
void input_exchange(struct input *input, struct input_buffer *buffer)
{
    struct input_buffer given = { input->buf, input->cap };
    size_t left = input->end - input->start;
    CHECK(left <= buffer->cap);
    memcpy(buffer->bytes, input->buf + input->start, left);
    input->buf = buffer->bytes;
    input->cap = buffer->cap;
    input->start = 0;
    input->end = left;
    *buffer = given;
}

double input_progress(struct input *input)
{
    if (input->bytes <= 0)
        return -1;
    double part = (double)gzoffset(input->gz) / (double)input->bytes;
    return part > 1 ? 1 : part;
}
