#include "rules/rules_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "rules/rules.h"

/* A file that was written to this recently may not be whole yet. */
enum { SETTLE_MS = 20 };

static int64_t to_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct file_version version_of(const struct stat *st)
{
    return (struct file_version){ st->st_dev, st->st_ino, (uint64_t)st->st_size, to_ns(st->st_mtim), to_ns(st->st_ctim) };
}

static int read_bytes(int fd, struct buf *out)
{
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        buf_add(out, sv_of(chunk, (size_t)n));
        if (out->failed)
            return -EFBIG;
    }
    return 0;
}

int rules_file_read(const char *path, struct buf *out, struct file_version *ret_version, struct weir_error *error)
{
    struct stat st;
    /* Not waiting for one who writes to a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int no = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (no == 0 && !S_ISREG(st.st_mode))
        no = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    if (no == 0)
        no = read_bytes(fd, out);
    if (fd >= 0)
        close(fd);
    if (no < 0 && no != -EFBIG)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s", path, strerror(-no));
    *ret_version = version_of(&st);
    if (no == -EFBIG)
        return err_set(error, WEIR_E_RULES, "%s: larger than %d MiB", path, RULES_BYTES_MAX >> 20);
    return 0;
}

bool rules_file_version(const char *path, struct file_version *ret)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return false;
    *ret = version_of(&st);
    return true;
}

bool file_version_same(const struct file_version *a, const struct file_version *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns;
}

bool file_version_settled(const struct file_version *version)
{
    int64_t age_ms = clock_now_us() / US_PER_MS - version->modified_ns / 1000000;
    return age_ms < 0 || age_ms >= SETTLE_MS;
}
