/* The subjects that were refused most over a longer time: lists of 5 minutes for a day, and of an hour for 31 days, each
 * with the TOP_HISTORY_LISTED most refused.
 *
 * They are made of the windows of the threads' lists (most_refused.h), which are collected when they are over. Sums of
 * lists are lists, with the same bounds; cutting one raises what a subject that is not listed may have been refused. */
#ifndef REFUSED_TOP_HISTORY_H
#define REFUSED_TOP_HISTORY_H

#include "refused/top_lists.h"

#define TOP_FINE_US (300 * US_PER_S)
#define TOP_FINE_KEPT_US (86400 * US_PER_S)
#define TOP_COARSE_US (3600 * US_PER_S)
#define TOP_COARSE_KEPT_US (31 * 86400 * US_PER_S)
enum { TOP_HISTORY_LISTED = 100, TOP_HISTORY_SUMMED = 1000 };
enum top_step { TOP_FINE, TOP_COARSE, TOP_STEPS };

/* Used by one thread at a time. */
struct top_history;
int top_history_new(struct top_history **ret);
void top_history_free(struct top_history *history);

/* Adds the list of a step that is over, from an earlier run; start_us is a multiple of the step. When there are too many,
 * those that were added first go first. */
int top_history_put(struct top_history *history, enum top_step step, int64_t start_us, const struct top_list *list);
/* Takes over what was put into another one, and frees it. An error: lists are missing. */
int top_history_take_over(struct top_history *history, struct top_history *earlier);

/* Returns whether a window of TOP_WINDOW_US is over, and was not added yet. *ret is its number: the caller collects it from
 * all threads (top_collect_window), sorts the list and adds it. To be asked at least once in each window. */
bool top_history_due(const struct top_history *history, int64_t now_us, int64_t *ret);
int top_history_add(struct top_history *history, int64_t number, const struct top_list *list);

/* Returns the start of the lists that top_history_read sums up for a time that begins at from_us. */
int64_t top_history_start(int64_t from_us, int64_t now_us);
/* Adds everything since then to `list`, which top_list_sort has to sort. The window that is not over is for the caller to
 * add. */
int top_history_read(struct top_history *history, int64_t from_us, int64_t now_us, struct top_list *list);

#endif
