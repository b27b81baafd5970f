/* A store, a link and calls, for tests. */
#ifndef TESTS_REDIS_ASKER_H
#define TESTS_REDIS_ASKER_H

#include <stdatomic.h>

#include "daemon.h"
#include "redis/redis_store.h"

enum { LONG_MS = 20000 }; /* what takes longer has failed */

/* A call for one subject of one limit: fixed_window per hour. */
struct asked {
    struct limit limit;
    struct store_cell cell;
    struct store_rule rule;
    struct store_call call;
    char key[64];
    atomic_bool late, done;
    bool late_first; /* late came before done */
    struct asker *asker;
};

struct asker {
    struct cells *cells;
    struct store *store;
    struct store_link *link;
    atomic_uint events[8];
    char texts[8][512];
    unsigned late, done, nudged;
    unsigned results[8]; /* how many calls had which enum store_result */
    unsigned allowed;
};

void asker_open(struct asker *a, const char *address, uint32_t deadline_ms);
void asker_close(struct asker *a);
/* The address of a daemon; valid until the next call. */
const char *address_of(const struct daemon *d);
/* The same as people are told it. */
const char *shown_of(const struct daemon *d);

void asked_init(struct asked *q, struct asker *a, const char *key, uint32_t max);
/* Sends it over the link; within so many ms. */
void asked_send(struct asked *q, int deadline_ms);
void asked_post(struct asked *q, int deadline_ms);

/* Runs the link until *counter has reached `least`, and fails the test if it takes too long. */
void run_until(struct asker *a, const unsigned *counter, unsigned least);
void run_until_up(struct asker *a, bool up);
void run_until_event(struct asker *a, enum weir_store_event event, unsigned least);
void run_for(struct asker *a, int ms);
/* Waits until the link has a connection and a call over it is decided. */
void run_until_decided(struct asker *a);

#endif
