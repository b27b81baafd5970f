#include "cli/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"

enum { MODE_NEW = 0644 };

static int fail(struct weir_error *error, const char *path, const char *what)
{
    return err_set(error, WEIR_E_SYSTEM, "%s: %s: %s", path, what, strerror(errno));
}

static bool write_all(int fd, sv text)
{
    while (text.len > 0) {
        ssize_t n = write(fd, text.ptr, text.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        text = sv_from(text, (size_t)n);
    }
    return true;
}

/* The owner first: a change of owner may take bits of the mode away. */
static int copy_access(int fd, const char *path, const struct stat *old, struct weir_error *error)
{
    struct stat fresh;
    if (old && fstat(fd, &fresh) < 0)
        return fail(error, path, "cannot be looked at");
    if (old && (fresh.st_uid != old->st_uid || fresh.st_gid != old->st_gid) && fchown(fd, old->st_uid, old->st_gid) < 0)
        return err_set(
            error, WEIR_E_SYSTEM,
            "%s: cannot keep its owner %u and group %u: %s; run this as that owner, or give the file to the user "
            "that runs it",
            path, (unsigned)old->st_uid, (unsigned)old->st_gid, strerror(errno));
    if (fchmod(fd, old ? old->st_mode & 07777 : MODE_NEW) < 0)
        return fail(error, path, "cannot keep its mode");
    return 0;
}

static int fill(int fd, const char *path, sv text, const struct stat *old, struct stat *ret, struct weir_error *error)
{
    int code = copy_access(fd, path, old, error);
    if (code < 0)
        return code;
    if (!write_all(fd, text))
        return fail(error, path, "cannot write");
    if (fsync(fd) < 0)
        return fail(error, path, "cannot write to the disk");
    if (fstat(fd, ret) < 0)
        return fail(error, path, "cannot be looked at");
    return 0;
}

/* "a/b.yaml" is in "a", "b.yaml" in "." */
static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int len = slash ? (int)(slash - path) : 0;
    if (!slash)
        snprintf(out, PATH_MAX, ".");
    else
        snprintf(out, PATH_MAX, "%.*s", len ? len : 1, path);
}

/* Until the folder is on the disk, a power cut could bring the old file back. */
static int sync_folder(const char *path, struct weir_error *error)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot; they have other ways to keep their word, or none. */
    int code =
        fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? fail(error, folder, "cannot write the folder to the disk") : 0;
    if (fd >= 0)
        close(fd);
    return code;
}

static int replace_at(const char *path, sv text, const struct stat *old, struct stat *ret_stat, struct weir_error *error)
{
    char folder[PATH_MAX], temporary[PATH_MAX + 256];
    struct stat fresh;
    const char *slash = strrchr(path, '/');
    folder_of(path, folder);
    snprintf(temporary, sizeof temporary, "%s/.%.200s.XXXXXX", folder, slash ? slash + 1 : path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return fail(error, path, "cannot write beside it, in its folder");
    int code = fill(fd, path, text, old, &fresh, error);
    if (close(fd) < 0 && code == 0)
        code = fail(error, path, "cannot write");
    if (code == 0 && rename(temporary, path) < 0)
        code = fail(error, path, "cannot be replaced");
    if (code < 0) {
        unlink(temporary);
        return code;
    }
    code = sync_folder(path, error);
    if (code == 0)
        *ret_stat = fresh;
    return code;
}

int replace_file(const char *path, sv text, struct stat *ret_stat, struct weir_error *error)
{
    struct stat old;
    if (path[0] == 0 || strlen(path) >= PATH_MAX)
        return err_set(error, WEIR_E_INVALID, "a file name must have 1 to %d bytes", PATH_MAX - 1);
    bool there = stat(path, &old) == 0;
    if (!there && errno != ENOENT)
        return fail(error, path, "cannot be looked at");
    if (there && !S_ISREG(old.st_mode))
        return err_set(error, WEIR_E_INVALID, "%s: is no regular file", path);
    char *target = there ? realpath(path, NULL) : NULL;
    if (there && !target)
        return fail(error, path, "cannot be looked at");
    int code = replace_at(target ? target : path, text, there ? &old : NULL, ret_stat, error);
    free(target);
    return code;
}

bool replace_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}
