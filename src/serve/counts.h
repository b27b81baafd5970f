/* Counts over time: what was passed, refused and would have been refused, by rule, for a day in steps of ten seconds and
 * for a month in steps of five minutes; and with them, who was refused (counts_lists.h). The admin loop reads the counters
 * of all loops at each step's end; a thread of libuv writes the differences to counts.db in the data folder, and answers
 * questions from there. If the file cannot be written, one line of the log says so, the steps are lost, and each further
 * step tries again. */
#ifndef SERVE_COUNTS_H
#define SERVE_COUNTS_H

#include "serve/counts_db.h"

struct counts;
struct server;

/* In the thread of the admin loop, once: `earlier` is what the file has of refused subjects and requests. Whoever takes a
 * part of it sets that part to NULL. */
struct counts_earlier;
typedef void counts_restored_fn(struct server *server, struct counts_earlier *earlier);

/* Before the admin loop starts; it opens no file yet. Returns 0 or WEIR_E_NO_MEMORY. */
int counts_new(struct counts **ret, struct server *server, counts_restored_fn *on_restored);
/* After the loops have ended, while they and the engine are still there: writes the step that has begun. */
void counts_free(struct counts *counts);

/* Stores the list of a window with the next step, and takes it over: `list` is empty afterwards. counts may be NULL. */
struct top_list;
void counts_keep_window(struct counts *counts, int64_t start_us, struct top_list *list);

enum {
    COUNTS_ASKED_RULES = 90,    /* in one question: a request has at most 100 parameters and cookies */
    COUNTS_ASKED_POINTS = 9000, /* … */
    COUNTS_ASKED_MAX = 200000,  /* … points of all its rules together */
    COUNTS_ASKED_BYTES = 32 << 20,
    COUNTS_WAITING_MAX = 16, /* questions */
};

/* A question, and its answer: what counts_db_read adds to `out`. It is the caller's, and lives until `done`. */
struct counts_question {
    struct counts_query query; /* `newest` is set here */
    struct buf out;
    int result;
    struct weir_error error;
    void (*done)(struct counts_question *question); /* in the thread of the admin loop */
    struct counts_question *next;
};
/* From the thread of the admin loop. False: too many are waiting; `done` will not be called. */
bool counts_ask(struct counts *counts, struct counts_question *question);

#endif
