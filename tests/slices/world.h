/* The world of sim.c: subjects and what is known of their windows, hosts, messages, and what was spent for a time. */
#ifndef TESTS_SLICES_WORLD_H
#define TESTS_SLICES_WORLD_H

#include "../limit/random.h"
#include "slices/lender.h"
#include "slices/slice.h"

enum { SCHEDULES = 2000, STEPS = 250, HOSTS = 4, SUBJECTS = 3, WINDOWS = 600, FLIGHT = 512, UNSPENT = 32, HOLDS = 64 };
#define START_US INT64_C(1700000000000000)
#define TTL_MS 400
#define DRY_US (TTL_MS * US_PER_MS / 4)

/* What is known of one window of one subject. */
struct win {
    int64_t end_us;
    uint32_t max; /* largest */
    int64_t spent, lost, on_its_way, returned;
    int64_t waiting[HOSTS]; /* taken out of the cell, not sent yet */
};

struct subject {
    enum limit_algorithm algorithm;
    int64_t per_us;
    uint32_t max, slice;
    struct win wins[WINDOWS];
    unsigned win_count;
    int64_t count; /* the store's, of the last window */
};

/* What a host's cell of a subject should hold, and what the store last said. */
struct shadow {
    struct win *win;
    uint32_t tokens;
    int64_t end_us;  /* by the host's clock */
    uint32_t asleep; /* are there, and over by this host's clock: a clock that is set back wakes them */
    struct win *dry_win;
    uint32_t dry_max, dry_room;
    int64_t dry_returned;         /* to the window, until the store said that it is dry */
    uint32_t slice_max, need_max; /* that anybody asked for */
};

struct host {
    struct cells *cells;
    struct lender *lender;
    int64_t offset_us; /* its clock less the true one */
    int64_t guess_us;  /* what it takes the store's clock less its own for */
    int64_t cut_us;    /* until then it does not reach the store */
    struct shadow of[SUBJECTS];
};

struct flight {
    struct lend_call *call; /* NULL: its lender has died, or was told */
    struct lend_call copy;
    unsigned host, subject;
    int64_t arrives_us, told_us;   /* arrives: 0 never */
    bool on, arrived, told, heard; /* heard: its tokens are accounted for */
    enum lend_result result;
    struct lent lent;
    int64_t returned; /* to the window, until it arrived */
};

struct unspent {
    unsigned host, subject;
    int64_t end_us;
    uint32_t cost;
    struct win *win;
};

/* Tokens that were spent for a time. */
struct hold {
    struct subject *subject;
    struct win *win;
    uint32_t cost;
    int64_t entered_us; /* the store learns of it; 0: never */
    int64_t ends_us;
};

struct world {
    uint64_t seed;
    struct random rnd;
    int64_t now_us; /* true, and the store's */
    bool losses, steps, unspends, reserves;
    unsigned hosts;
    struct subject subjects[SUBJECTS];
    struct host host[HOSTS];
    struct flight flights[FLIGHT], *flights_end; /* those behind the end are not on */
    struct unspent unspent[UNSPENT];
    unsigned unspent_count;
    struct hold holds[HOLDS];
    unsigned hold_count;
    unsigned long dry, taken, ended;
};

#endif
