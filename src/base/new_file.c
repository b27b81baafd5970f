#include "base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static int open_folder(const char *path, int flags)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    return open(slash ? folder : ".", flags | O_CLOEXEC, 0600);
}

int new_file_open(const char *path, char name[PATH_MAX], bool *ret_named)
{
    int fd = access("/proc/self/fd", X_OK) == 0 ? open_folder(path, O_TMPFILE | O_RDWR) : -1;
    *ret_named = fd < 0;
    if (fd >= 0)
        snprintf(name, PATH_MAX, "/proc/self/fd/%d", fd);
    else if (snprintf(name, PATH_MAX, "%s.new-XXXXXX", path) < PATH_MAX)
        fd = mkostemp(name, O_CLOEXEC);
    else
        errno = ENAMETOOLONG;
    return fd;
}

/* A link cannot take the place of a file, so it comes beside it for a moment. */
int new_file_replace(const char *name, bool named, const char *path)
{
    enum { TRIES = 1000 };
    char beside[PATH_MAX];
    if (named)
        return rename(name, path) < 0 ? -errno : 0;
    int r = -EEXIST;
    for (int i = 0; r == -EEXIST && i < TRIES; i++) {
        if (snprintf(beside, sizeof beside, "%s.new-%d-%d", path, (int)getpid(), i) >= (int)sizeof beside)
            return -ENAMETOOLONG;
        r = linkat(AT_FDCWD, name, AT_FDCWD, beside, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
    }
    if (r == 0 && rename(beside, path) < 0) {
        r = -errno;
        unlink(beside);
    }
    return r;
}

int new_file_sync_folder(const char *path)
{
    CLEANUP_CLOSE int fd = open_folder(path, O_RDONLY | O_DIRECTORY);
    return (fd < 0 || fsync(fd) < 0) && errno != EINVAL ? -errno : 0;
}
