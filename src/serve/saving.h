/* A thread that saves the table in memory to the disk. It has a low priority, uses at most a twentieth of a CPU, and
 * writes at most 64 MiB in a second. If several services count in a table, one of them saves it, and when that ends
 * another. */
#ifndef SERVE_SAVING_H
#define SERVE_SAVING_H

#include <stdbool.h>
#include <stdint.h>

struct cells;
struct saving;
struct weir_error;

/* live: the file of the table; saved: its copy; every_ms: from the beginning of a save to that of the next one. The thread
 * reads through the mapping of those who decide: so it takes no memory of its own, and the pages are there before they need
 * them. */
int saving_start(struct saving **ret, struct cells *cells, const char *live, const char *saved, unsigned every_ms,
                 struct weir_error *error);
/* Ends the thread: `cells` may be closed then. Takes NULL. */
void saving_end(struct saving *saving);
/* Saves once more, after everything that counts has ended. Takes NULL. */
void saving_free(struct saving *saving);

struct saving_status {
    bool active;       /* this process saves; false: another one does */
    double age_s;      /* counts that are older are saved; without a save so far since the start */
    uint64_t saves;    /* since the start */
    uint64_t failures; /* the same */
    uint64_t bytes;    /* written */
};
/* Any thread may ask. */
void saving_status(struct saving *saving, struct saving_status *ret);

#endif
