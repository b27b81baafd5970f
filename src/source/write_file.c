/* A file written whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/new_file.h"
#include "source/source.h"

enum { LINKS_MAX = 40 };

static int cannot(const char *path, int no, struct weir_error *error)
{
    return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written: %s", path, strerror(no));
}

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
static int keep_owner(const char *path, int fd, const struct stat *old, struct weir_error *error)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return cannot(path, errno, error);
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) && fchown(fd, old->st_uid, old->st_gid) < 0)
        return err_set(
            error, WEIR_E_SYSTEM,
            "%s: cannot be replaced, since its owner and group (%u:%u) cannot be kept: %s; run this as that user "
            "or as root, or chown the file to the one that runs this (%u:%u)",
            path, (unsigned)old->st_uid, (unsigned)old->st_gid, strerror(errno), (unsigned)st.st_uid, (unsigned)st.st_gid);
    return fchmod(fd, old->st_mode & 07777) < 0 ? cannot(path, errno, error) : 0;
}

static int write_new(const char *path, int fd, sv head, sv text, struct weir_error *error)
{
    struct stat old;
    int r = write_all(fd, head);
    if (r == 0)
        r = write_all(fd, text);
    if (r < 0)
        return cannot(path, -r, error);
    if (stat(path, &old) == 0) {
        r = keep_owner(path, fd, &old, error);
        if (r < 0)
            return r;
    } else if (errno != ENOENT || fchmod(fd, 0644) < 0) {
        return cannot(path, errno, error);
    }
    return fsync(fd) < 0 ? cannot(path, errno, error) : 0;
}

/* Follows a link by one step. Returns 1 if *path is where it leads, 0 if it is not a link. */
static int follow_link(char path[PATH_MAX])
{
    char target[PATH_MAX], next[2 * PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return errno == EINVAL || errno == ENOENT ? 0 : -errno;
    target[n] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = slash && target[0] != '/' ? (int)(slash - path) + 1 : 0;
    int length = snprintf(next, sizeof next, "%.*s%s", folder, path, target);
    if (length >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(path, next, (size_t)length + 1);
    return 1;
}

/* A link stays one: what it stands for is replaced, or made where it is not there yet. */
static int find_target(const char *path, char real[PATH_MAX], struct weir_error *error)
{
    if (realpath(path, real))
        return 0;
    if (errno != ENOENT)
        return cannot(path, errno, error);
    if (snprintf(real, PATH_MAX, "%s", path) >= PATH_MAX)
        return cannot(path, ENAMETOOLONG, error);
    int r = 1;
    for (int steps = 0; r > 0; steps++)
        r = steps < LINKS_MAX ? follow_link(real) : -ELOOP;
    return r < 0 ? cannot(path, -r, error) : 0;
}

int source_write_file(const char *path, sv head, sv text, struct weir_error *error)
{
    char real[PATH_MAX], name[PATH_MAX];
    bool named;
    int r = find_target(path, real, error);
    if (r < 0)
        return r;
    CLEANUP_CLOSE int fd = new_file_open(real, name, &named);
    if (fd < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be written, since no file can be created beside it: %s", real,
                       strerror(errno));
    r = write_new(real, fd, head, text, error);
    if (r == 0 && (r = new_file_replace(name, named, real)) < 0)
        r = cannot(real, -r, error);
    if (r < 0) {
        if (named)
            unlink(name);
        return r;
    }
    r = new_file_sync_folder(real);
    return r < 0 ? cannot(path, -r, error) : 0;
}
