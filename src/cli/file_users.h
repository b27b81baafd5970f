/* Which processes of this host have a file mapped. */
#ifndef CLI_FILE_USERS_H
#define CLI_FILE_USERS_H

#include <sys/stat.h>

#include "base/buf.h"

/* Adds "weir (4711), nginx (4712)" for processes that have this file mapped, other than this one. Returns how many there
 * are. *ret_unseen: the number of processes that this user may not look at. */
size_t file_users(const char *path, const struct stat *file, struct buf *out, size_t *ret_unseen);

#endif
