#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/plain_text.h"

enum { FILE_BYTES_MAX = 64 << 20 };

int cli_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    plain_vprintf("weir: ", format, args);
    va_end(args);
    return EXIT_BAD;
}

void cli_warn_copied(bool copied, const char *path)
{
    if (copied)
        cli_error(
            "%s is a copy of another cells file, or comes from another machine: from now on it counts as a host of its "
            "own; the counts stay, receipts and slices of the original are not valid here",
            path);
}

int cli_fail(const struct weir_error *error)
{
    plain_say(weir_str(error->text));
    return EXIT_BAD;
}

int cli_print(const struct buf *text, int status)
{
    if (text->failed)
        return cli_error("out of memory");
    fwrite(buf_sv(text).ptr, 1, text->len, stdout);
    return status;
}

int cli_finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (errno == EPIPE)
        return EXIT_BAD;
    return cli_error("cannot write the output: %s", strerror(errno));
}

static bool read_all(int fd, struct buf *out, const char **ret_why)
{
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0)
            return true;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            *ret_why = strerror(errno);
            return false;
        }
        buf_add(out, sv_of(chunk, (size_t)n));
        if (out->failed) {
            *ret_why = "larger than 64 MiB";
            return false;
        }
    }
}

bool cli_read_file(const char *path, struct buf *ret, const char **ret_why)
{
    buf_init(ret, FILE_BYTES_MAX);
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        *ret_why = strerror(errno);
        return false;
    }
    bool ok = read_all(fd, ret, ret_why);
    if (fd != STDIN_FILENO)
        close(fd);
    if (!ok)
        buf_done(ret);
    return ok;
}

const char *cli_file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "stdin" : path;
}

bool cli_read_named(const char *path, struct buf *ret)
{
    const char *why;
    bool read = cli_read_file(path, ret, &why);
    if (!read)
        cli_error("%s: %s", cli_file_name(path), why);
    return read;
}
