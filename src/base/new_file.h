/* Files that have no name until they are complete. */
#ifndef BASE_NEW_FILE_H
#define BASE_NEW_FILE_H

#include <limits.h>
#include <stdbool.h>

/* Opens a file without a name in the folder of `path`: nothing of it stays if the process is killed. `name` is a path to it
 * under /proc. Without /proc, or on a file system that cannot do this, the file has a name (*ret_named). Returns the
 * descriptor, or -1 and errno. */
int new_file_open(const char *path, char name[PATH_MAX], bool *ret_named);
/* Puts the file in place of `path`, whether there is one or not. Returns 0 or -errno. */
int new_file_replace(const char *name, bool named, const char *path);
/* Writes the folder of `path` to the disk, if its file system can do that. Returns 0 or -errno. */
int new_file_sync_folder(const char *path);

#endif
