/* A copy of a table on a disk, for a table that lies in memory that a reboot clears. README.md has the reasons.
 *
 *   file     header (4096 bytes) · records, each a multiple of 4096 bytes
 *   record   magic, number, time, bytes, checksum · entries · zeros
 *   entry    a line of the table (two cells); or a cell's state and holds, after its line; or words of the table's header
 *
 * The first records have all lines that were in use when the file was begun, later ones the lines that have changed since.
 * The last entry for a line counts. Nothing in the file is ever changed: a new file replaces it when it has become too
 * long. */
#ifndef CELLS_SAVED_H
#define CELLS_SAVED_H

#include "cells/cells.h"

struct cells_saver;

/* Saves the table to a file of this name. `fd` is the file of the table, which must stay open: a saved file gets its mode
 * and group. */
int cells_saver_new(struct cells_saver **ret, struct cells *cells, int fd, const char *path, struct weir_error *error);
void cells_saver_free(struct cells_saver *saver);

enum { CELLS_SAVED = 0, CELLS_SAVE_MORE = 1 };
/* Looks at the next 128 KiB of the table, and writes the lines that have changed. Returns CELLS_SAVED when a pass through
 * the table is complete and on the disk: all that was counted before its first call is there. The next call begins another
 * pass. Negative: the pass has failed, the next call begins another with a new file, and the old file is left as it is. If
 * somebody has removed, replaced or truncated the file, the next pass writes everything to a new one. */
int cells_save_some(struct cells_saver *saver, int64_t now_us, struct weir_error *error);
/* From now on the saver reads the table through this mapping of it. */
void cells_saver_use(struct cells_saver *saver, struct cells *cells);
/* A whole pass, from the beginning. */
int cells_save_all(struct cells_saver *saver, int64_t now_us, struct weir_error *error);
/* Returns the bytes written so far. */
uint64_t cells_saver_bytes(const struct cells_saver *saver);

struct cells_restored {
    int64_t saved_us; /* time of the last record; 0: there is none */
    uint64_t damaged; /* bytes that were left out, with records after them */
    uint64_t unended; /* bytes at the end that are not a record: a save that was not completed */
    uint64_t dropped; /* cells with holds that could not be restored */
};
/* Makes a table at `path`, where nothing may be, of what was saved. */
int cells_restore(const char *saved, const char *path, int64_t now_us, struct cells_restored *ret,
                  struct weir_error *error);

#endif
