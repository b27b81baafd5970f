/* The connections of one loop: how many there may be, in all and for each address, and their timeouts.
 *
 * A connection is idle (waiting for the first byte of a request) or busy (a request has begun and its answer is not sent
 * yet). Either state has a fixed timeout that no trickle of bytes extends. At the maximum, a new connection replaces the
 * one that has been idle for longest (of the same address, if that address has too many), or one that is slow in sending
 * its request. So neither idle connections nor slow senders, however many, keep others out. ("For longest" is to within a
 * quarter of a second: a connection that is used moves to the end of its list only that often, since its neighbours there
 * are other connections, whose memory is in no cache.)
 *
 * A stream is an answer without an end. It has the timeout of a request, 5 s at least, which begins anew whenever the peer
 * has received everything so far. Its sender bounds how many there are, and how long they last.
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

enum front { FRONT_HTTP, FRONT_RESP, FRONT_GRPC, FRONT_ADMIN, FRONTS };
extern const char *const front_names[FRONTS]; /* "http", "resp", "grpc", "admin" */

enum conn_state { CONN_IDLE, CONN_BUSY, CONN_STREAM, CONN_STATES };

/* What each request needs is together, at the end, where the protocol's own state follows: with thousands of connections
 * none of it is in a cache. */
struct conn {
    bool local;                /* a unix socket: there is no address */
    char address[IP_TEXT_MAX]; /* of the peer; "" if it is local */
    bool counts_later;         /* it is not one of those that were accepted */
    enum front front;
    void (*shut)(struct conn *conn);    /* ends it, now or when the loop comes to it; it is not counted any more */
    struct peer *peer;                  /* NULL: local */
    struct conn *prev, *next;           /* of all in its state, in the order of listed_ms */
    struct conn *peer_prev, *peer_next; /* of its address that are idle, in the same order */
    struct conns *conns;
    int64_t since_ms;  /* it is in this state */
    int64_t listed_ms; /* it joined its lists; not after since_ms */
    enum conn_state state;
    int fd;
    bool complete; /* busy: its request is there, and only the answer is not out yet */
    bool spared;   /* it was overdue when the loop was late, and has had a turn since */
};

/* The IP address of a socket. False: it is not an IP socket. */
bool conn_address_of(const struct sockaddr_storage *from, struct ip *ret);

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

/* Adds a connection, which is idle. `conn` is zero except for `shut` and `counts_later`. False: there are too many; the
 * caller closes fd. */
bool conns_enter(struct conns *conns, struct conn *conn, enum front front, int fd, const struct sockaddr_storage *peer,
                 int64_t now_ms);
void conn_leave(struct conn *conn); /* may be called again */

void conn_busy(struct conn *conn, int64_t now_ms); /* its time begins with the first call */
void conn_complete(struct conn *conn);             /* the request is complete: the connection is not replaced any more */
void conn_idle(struct conn *conn, int64_t now_ms);
void conn_stream(struct conn *conn, int64_t now_ms); /* its time begins with each call */
/* Ends a connection, as for a new one. False: none can be ended. */
bool conns_end_one(struct conns *conns, int64_t now_ms);

/* Ends connections that timed out. late: the loop itself was late, and has not read what arrived meanwhile, nor run later
 * timers; so connections that seem overdue get another turn, once. */
void conns_sweep(struct conns *conns, int64_t now_ms, bool late);
void conns_shut_idle(struct conns *conns); /* but not those that have sent something that was not read yet */
void conns_shut_streams(struct conns *conns);
void conns_shut_all(struct conns *conns);

#endif
