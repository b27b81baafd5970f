/* Where the table of the service is: in memory that outlives the process, with a copy in the data folder; or in a plain
 * file.
 *
 * A file on a disk makes decisions wait: the kernel protects each page that it writes back, and the next decision there
 * takes a fault. So the table is in a tmpfs, and `cells` in the data folder is a link to it: every process opens the same
 * path, wherever the table is. A reboot clears the tmpfs, and `cells.saved` is read back. */
#ifndef SERVE_TABLE_PLACE_H
#define SERVE_TABLE_PLACE_H

#include <stdbool.h>

struct config;
struct weir_error;

struct table_place {
    char *path;  /* what every process opens */
    char *live;  /* the table in memory that `path` links to; NULL: `path` is a plain file, and the rest is not used */
    char *saved; /* its copy on the disk */
};

/* Finds the table or makes it, reads back what was saved, and takes over a table in a plain file. Logs where the counts
 * are. */
int table_place_prepare(struct table_place *ret, const struct config *config, struct weir_error *error);
/* Logs that a cells file is a copy. */
void table_tell_copied(const char *path);
void table_place_done(struct table_place *place);

#endif
