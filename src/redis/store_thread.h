/* What the files of the store's own thread share. Only that thread uses it. */
#ifndef REDIS_STORE_THREAD_H
#define REDIS_STORE_THREAD_H

#include "redis/link.h"

enum { HOST_ID_MAX = 17 };

struct store_thread {
    struct store *store;
    struct store_link *link;
    char hosts_key[STORE_KEY_NAME_MAX], born_key[STORE_KEY_NAME_MAX];
    char id[HOST_ID_MAX];        /* of this host, among those that count */
    bool up;                     /* as it was when last looked at */
    uint64_t server;             /* that hosts were last counted in */
    unsigned known_hosts;        /* fewer are not believed … */
    int64_t gathering_us;        /* … until then */
    int64_t sweep_us, status_us; /* when each is due */
    int64_t beat_us;
    unsigned beating;                          /* nodes whose clocks are awaited */
    int64_t asked_us, asked_now_us;            /* when TIME was sent: steady, and this host's clock */
    uint64_t epoch;                            /* that a node of a cluster has just told, before its map */
    int64_t alone_us;                          /* since when no node of a cluster is connected; 0: some is */
    uint64_t paid;                             /* tokens that the lender had paid when it was last looked at */
    struct store_call *waiting, **waiting_end; /* settlements, for a connection */
    size_t waiting_count;
};

static inline int64_t thread_deadline_us(const struct store_thread *t)
{
    return clock_steady_us() + t->store->options.deadline_ms * US_PER_MS;
}

/* ---- beat.c ---- */

void beat_init(struct store_thread *t);
/* After an outage: the other hosts have yet to come back. */
void beat_gather_hosts(struct store_thread *t);
/* Sends what is due: the beat, probes, and the question for the map of a cluster. */
void beat_run(struct store_thread *t, int64_t now_us);
/* When something is due next. */
int64_t beat_next_us(const struct store_thread *t);
/* This host is no longer counted. */
void beat_leave(struct store_thread *t, int64_t until_us);

#endif
