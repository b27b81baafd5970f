#include "cli/file_users.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { USERS_SHOWN_MAX = 5 };

/* "7f…-7f… rw-s 00000000 00:19 4711      /dev/shm/x". The device is not always the one that stat() says (overlayfs, btrfs),
 * so the path counts, too. */
static bool line_is_of(const char *line, const char *path, const struct stat *file)
{
    unsigned major_number, minor_number;
    unsigned long long inode;
    int at = 0;
    if (sscanf(line, "%*s %*s %*s %x:%x %llu %n", &major_number, &minor_number, &inode, &at) != 3 || at == 0 ||
        inode != file->st_ino)
        return false;
    size_t len = strlen(path);
    bool same_path = strncmp(line + at, path, len) == 0 && (line[at + (int)len] == '\n' || line[at + (int)len] == '\0');
    return same_path || (major_number == major(file->st_dev) && minor_number == minor(file->st_dev));
}

/* Returns 1 if the process has it mapped, 0 if not, -1 if this user may not know. A process that ends has not. */
static int has_mapped(const char *pid, const char *path, const struct stat *file)
{
    char name[300], *line = NULL;
    size_t room = 0;
    snprintf(name, sizeof name, "/proc/%s/maps", pid);
    FILE *maps = fopen(name, "re");
    if (!maps)
        return errno == EACCES || errno == EPERM ? -1 : 0;
    int found = 0;
    errno = 0;
    while (!found && getline(&line, &room, maps) > 0)
        found = line_is_of(line, path, file);
    if (!found && (errno == EACCES || errno == EPERM))
        found = -1;
    free(line);
    fclose(maps);
    return found;
}

static void add_user(const char *pid, size_t count, struct buf *out)
{
    char name[300], command[40] = "?";
    if (count > USERS_SHOWN_MAX)
        return;
    if (count == USERS_SHOWN_MAX) {
        buf_add(out, SV(", …"));
        return;
    }
    snprintf(name, sizeof name, "/proc/%s/comm", pid);
    FILE *comm = fopen(name, "re");
    if (comm && fgets(command, sizeof command, comm))
        command[strcspn(command, "\n")] = '\0';
    for (char *c = command; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?'; /* the process chose it, and this is for a terminal */
    if (comm)
        fclose(comm);
    buf_printf(out, "%s%s (process %s)", count ? ", " : "", command, pid);
}

size_t file_users(const char *path, const struct stat *file, struct buf *out, size_t *ret_unseen)
{
    char own[24];
    size_t count = 0;
    struct dirent *entry;
    snprintf(own, sizeof own, "%ld", (long)getpid());
    DIR *processes = opendir("/proc");
    *ret_unseen = processes ? 0 : 1;
    while (processes && (entry = readdir(processes))) {
        const char *pid = entry->d_name;
        if (pid[0] < '1' || pid[0] > '9' || strcmp(pid, own) == 0)
            continue;
        int found = has_mapped(pid, path, file);
        *ret_unseen += found < 0;
        if (found > 0)
            add_user(pid, count++, out);
    }
    if (processes)
        closedir(processes);
    return count;
}
