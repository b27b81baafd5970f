/* The subjects that are refused most at present: a list of fixed size, with a bound on its error.
 *
 * Space-saving (Metwally, Agrawal, El Abbadi 2005): as many subjects as fit are counted exactly. A new subject replaces the
 * one with the smallest count, and begins with that count, which is its error: it may have been refused as often before.
 * With K slots and N refusals, count - error <= true count <= count. A subject that was refused more than N / K times has
 * a slot; one without a slot was refused at most as often as the smallest count.
 *
 * "At present" is the current window of TOP_WINDOW_US and the one before; windows begin at the same time in all threads.
 * Lists of windows and of threads add up: a subject that is missing in one list counts there as its smallest count, so that
 * the bounds hold for the sum. */
#ifndef REFUSED_MOST_REFUSED_H
#define REFUSED_MOST_REFUSED_H

#include "base/clock.h"
#include "refused/subject.h"

enum { TOP_SLOTS = 1000 };
#define TOP_WINDOW_US (30 * US_PER_S)

/* Used by one thread at a time. */
struct top;
int top_new(struct top **ret, unsigned slots);
void top_free(struct top *top);
void top_add(struct top *top, const struct subject *subject, int64_t now_us);

struct top_entry {
    uint64_t count, error;
    struct subject subject;
};

/* The sum of some lists. */
struct top_list {
    struct top_entry *entries; /* after top_list_sort: each subject once, highest count first */
    size_t count, cap;
    uint64_t total;    /* refusals, of those who are not listed too */
    uint64_t unlisted; /* a subject that is not listed was refused at most this often */
};

/* Room for one more `top`, so that top_collect, which others may have to wait for, asks for no memory. */
int top_list_reserve(struct top_list *list, unsigned slots);
void top_collect(struct top *top, int64_t now_us, struct top_list *list);
/* The same for one window, the current one or the one before: its number is its start / TOP_WINDOW_US. */
void top_collect_window(struct top *top, int64_t now_us, int64_t number, struct top_list *list);
/* Once, when all are collected. */
void top_list_sort(struct top_list *list);
void top_list_done(struct top_list *list);

#endif
