/* The connections of one loop: how many there may be, in all and for each address, and until when each has to get on.
 *
 * A connection is idle (waiting for the first byte of a request) or busy (a request has begun and its answer is not out
 * yet). Either may last for a fixed time that no trickle of bytes extends. Where there are as many as there may be, the one
 * that has been idle for longest gives way to a newcomer (of the same address, if it is that address that has too many), or
 * one that is slow in sending its request. So neither idle connections nor slow senders, however many, keep anybody out.
 *
 * All of it belongs to one thread. */
#ifndef SERVE_CONNS_H
#define SERVE_CONNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/hash.h"
#include "base/ip.h"

struct peer; /* all connections of one address */

enum front { FRONT_HTTP, FRONT_RESP, FRONT_ADMIN, FRONTS };
extern const char *const front_names[FRONTS]; /* "http", "resp", "admin" */

enum conn_state { CONN_IDLE, CONN_BUSY, CONN_STATES };

struct conn {
    int fd;
    bool local;                /* a unix socket: there is no address */
    char address[IP_TEXT_MAX]; /* of the peer; "" if it is local */
    enum front front;
    enum conn_state state;
    bool complete;                   /* busy: its request is there, and only the answer is not out yet */
    int64_t since_ms;                /* it is in this state */
    bool spared;                     /* it was overdue when the loop was late, and has had a turn since */
    void (*shut)(struct conn *conn); /* ends it, now or when the loop comes to it; it is not counted any more */
    struct conns *conns;
    struct peer *peer;                  /* NULL: local */
    struct conn *prev, *next;           /* of all in its state, longest first */
    struct conn *peer_prev, *peer_next; /* of its address that are idle, longest first */
};

/* For people. */
static inline const char *conn_from(const struct conn *conn)
{
    return conn->local ? "a unix socket" : conn->address;
}

struct conns_limits {
    unsigned most, most_per_address;
    unsigned idle_ms, request_ms;
};

struct conn_list {
    struct conn *first, *last;
};

struct conns {
    struct conns_limits limits;
    struct conn_list lists[CONN_STATES];
    struct hash_key key;
    struct peer **peers; /* hash table */
    unsigned peer_slots, peer_count;
    unsigned count;
    unsigned open[FRONTS];                             /* `count` by front */
    uint64_t accepted, turned_away, gave_way, overdue; /* since the start */
};

int conns_init(struct conns *conns, const struct conns_limits *limits);
void conns_done(struct conns *conns); /* no connection is left */

/* A newcomer, idle from now on. `conn` is zero but for `shut`. False: there is no room for it; the caller closes fd. */
bool conns_enter(struct conns *conns, struct conn *conn, enum front front, int fd, const struct sockaddr_storage *peer,
                 int64_t now_ms);
void conn_leave(struct conn *conn); /* may be called again */

void conn_busy(struct conn *conn, int64_t now_ms); /* its time begins with the first call */
void conn_complete(struct conn *conn);             /* the rest is ours: it does not give way any more */
void conn_idle(struct conn *conn, int64_t now_ms);
/* Makes room by ending one, as for a newcomer. False: nobody gives way. */
bool conns_yield(struct conns *conns, int64_t now_ms);

/* Ends those whose time is over. late: the loop stood still, and has not heard yet what came meanwhile, nor run later
 * timers; so whoever seems overdue gets a turn, once. */
void conns_sweep(struct conns *conns, int64_t now_ms, bool late);
void conns_shut_idle(struct conns *conns); /* but not those that have sent something that was not read yet */
void conns_shut_all(struct conns *conns);

#endif
