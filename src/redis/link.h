/* A link: what one event loop, or the store's own thread, has to the store. It has a lane to each node. */
#ifndef REDIS_LINK_H
#define REDIS_LINK_H

#include "redis/lane.h"
#include "redis/slot_map.h"

struct parked;

struct store_link {
    struct store *store;
    int epoll;           /* of all lanes; of the only one, if there is no cluster */
    bool shut;           /* for good */
    struct lane **lanes; /* by the number of their node; NULL: not made yet */
    unsigned lane_max;
    /* Commands that wait for a slot that is being moved, or for a new map. */
    struct parked *parked, **parked_end;
    size_t parked_count, parked_bytes;
    /* decision_calls.c's */
    size_t waiting;             /* decisions without an answer: gathered, written or sent */
    struct store_call *refused; /* that could not be sent, and have to be told so */
    struct store_call *resting; /* in a cluster: that wait for a slot that is being moved, to be asked for again … */
    int64_t rested_us;          /* … then */
};

/* The lane to a node; makes it if there is none yet. Returns NULL if it cannot. */
struct lane *link_lane(struct store_link *link, struct node *node);
/* The lane to the node that has the key (without its prefix), which may have to be connected first. *ret_place is the
 * command's. Returns NULL if no node is known to have it. */
struct lane *link_lane_for(struct store_link *link, sv key, uint16_t *ret_place);

/* Whether something was sent, or waits to be. */
bool link_is_busy(const struct store_link *link);

/* Runs the lanes that have something to do, and parked commands; calls `after` for each such lane: a deadline has come, or
 * not. */
void link_run(struct store_link *link, void (*after)(struct lane *lane, bool due));
void link_shut(struct store_link *link);
void link_free(struct store_link *link);

#endif
