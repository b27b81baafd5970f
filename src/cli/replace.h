/* A file that is replaced whole: whoever reads it has the old text or the new one, also after a power cut. */
#ifndef CLI_REPLACE_H
#define CLI_REPLACE_H

#include <sys/stat.h>

#include "base/sv.h"

struct weir_error;

/* Writes beside the file, then renames. Mode and owner stay; a new file has mode 0644. A symbolic link stays, and what it
 * points to is replaced. *ret_stat: of the new file. WEIR_E_SYSTEM: which step failed, and why. */
int replace_file(const char *path, sv text, struct stat *ret_stat, struct weir_error *error);

/* The same file, unchanged since? */
bool replace_same(const struct stat *a, const struct stat *b);

#endif
