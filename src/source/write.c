/* A file written whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "source/source.h"

static int write_all(int fd, sv text)
{
    while (text.len > 0) {
        ssize_t n = write(fd, text.ptr, text.len);
        if (n < 0 && errno != EINTR)
            return -errno;
        text = sv_from(text, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

/* Those who read the old file must be able to read the new one. */
static int keep_owner(int fd, const struct stat *old)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) && fchown(fd, old->st_uid, old->st_gid) < 0)
        return -errno;
    return fchmod(fd, old->st_mode & 07777) < 0 ? -errno : 0;
}

static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return r == -EINVAL ? 0 : r; /* some file systems have no such thing */
}

static int write_new(const char *path, const char *temporary, int fd, sv text)
{
    struct stat old;
    int r = write_all(fd, text);
    if (r == 0 && stat(path, &old) == 0)
        r = keep_owner(fd, &old);
    else if (r == 0)
        r = errno != ENOENT || fchmod(fd, 0644) < 0 ? -errno : 0;
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0 && rename(temporary, path) < 0)
        r = -errno;
    return r;
}

int source_write_file(const char *path, sv text, struct weir_error *error)
{
    char real[PATH_MAX], temporary[PATH_MAX + 16];
    /* A link stays one: what it stands for is replaced. */
    if (!realpath(path, real) && (errno != ENOENT || snprintf(real, sizeof real, "%s", path) >= (int)sizeof real))
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", real);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written, since no file can be made beside it: %s", path,
                       strerror(errno));
    int r = write_new(real, temporary, fd, text);
    close(fd);
    if (r < 0)
        unlink(temporary);
    else
        r = sync_folder(real);
    return r < 0 ? err_set(error, WEIR_E_SYSTEM, "%s: cannot be written: %s", path, strerror(-r)) : 0;
}
