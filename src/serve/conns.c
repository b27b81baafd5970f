#include "serve/conns.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/random.h>

#include "base/hash.h"

enum {
    PEER_SLOTS_FIRST = 64,
    IPV6_PREFIX = 64,
    SENDERS_LOOKED_AT = 64,
    SLOW_MS = 1000,
    STREAM_MS_LEAST = 5000, /* a stream is looked at when it sends, which is each second */
    LISTED_MS = 250,        /* for so long an idle connection that is used stays where it is in its lists */
};

const char *const front_names[FRONTS] = { "http", "resp", "grpc", "admin" };

struct peer {
    struct ip ip; /* for IPv6 the network: a client that has one address of it has them all */
    uint64_t hash;
    unsigned count;
    struct conn *first, *last; /* those that are idle, longest first */
    struct peer *next;         /* in its slot */
};

/* Other threads read the counters. */
static void raise_count(uint64_t *counter)
{
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

static void count_open(struct conns *conns, enum front front, int change)
{
    __atomic_store_n(&conns->count, conns->count + (unsigned)change, __ATOMIC_RELAXED);
    __atomic_store_n(&conns->open[front], conns->open[front] + (unsigned)change, __ATOMIC_RELAXED);
}

/* ---- lists ---- */

static void join_state(struct conn *conn)
{
    struct conn_list *list = &conn->conns->lists[conn->state];
    conn->prev = list->last;
    conn->next = NULL;
    *(list->last ? &list->last->next : &list->first) = conn;
    list->last = conn;
    if (conn->state != CONN_IDLE || !conn->peer)
        return;
    struct peer *peer = conn->peer;
    conn->peer_prev = peer->last;
    conn->peer_next = NULL;
    *(peer->last ? &peer->last->peer_next : &peer->first) = conn;
    peer->last = conn;
}

static void part_state(struct conn *conn)
{
    struct conn_list *list = &conn->conns->lists[conn->state];
    *(conn->prev ? &conn->prev->next : &list->first) = conn->next;
    *(conn->next ? &conn->next->prev : &list->last) = conn->prev;
    if (conn->state != CONN_IDLE || !conn->peer)
        return;
    struct peer *peer = conn->peer;
    *(conn->peer_prev ? &conn->peer_prev->peer_next : &peer->first) = conn->peer_next;
    *(conn->peer_next ? &conn->peer_next->peer_prev : &peer->last) = conn->peer_prev;
}

/* ---- addresses ---- */

bool conn_address_of(const struct sockaddr_storage *from, struct ip *ret)
{
    if (from->ss_family == AF_INET6) {
        memcpy(ret->bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        return true;
    }
    if (from->ss_family != AF_INET)
        return false;
    *ret = (struct ip){ .bytes = { [10] = 0xff, [11] = 0xff } };
    memcpy(ret->bytes + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    return true;
}

static struct peer **slot_of(struct conns *conns, uint64_t hash)
{
    return &conns->peers[hash & (conns->peer_slots - 1)];
}

static uint64_t hash_of(const struct conns *conns, const struct ip *ip)
{
    struct hash h;
    hash_init(&h, &conns->key);
    hash_bytes(&h, ip->bytes, sizeof ip->bytes);
    return hash_final(&h);
}

/* Without memory for more slots the old ones do, slower. */
static void grow(struct conns *conns)
{
    unsigned slots = conns->peer_slots * 2;
    struct peer **old = conns->peers, **peers = calloc(slots, sizeof *peers);
    if (!peers)
        return;
    unsigned old_slots = conns->peer_slots;
    conns->peers = peers;
    conns->peer_slots = slots;
    for (unsigned i = 0; i < old_slots; i++)
        for (struct peer *peer = old[i], *next; peer; peer = next) {
            struct peer **slot = slot_of(conns, peer->hash);
            next = peer->next;
            peer->next = *slot;
            *slot = peer;
        }
    free(old);
}

static struct peer *find_peer(struct conns *conns, struct ip ip)
{
    if (!ip_is_v4(&ip))
        ip_mask(&ip, IPV6_PREFIX);
    uint64_t hash = hash_of(conns, &ip);
    struct peer *peer = *slot_of(conns, hash);
    while (peer && memcmp(&peer->ip, &ip, sizeof ip) != 0)
        peer = peer->next;
    if (peer || !(peer = calloc(1, sizeof *peer)))
        return peer;
    if (conns->peer_count++ >= conns->peer_slots)
        grow(conns);
    struct peer **slot = slot_of(conns, hash);
    *peer = (struct peer){ .ip = ip, .hash = hash, .next = *slot };
    *slot = peer;
    return peer;
}

static void drop_peer(struct conns *conns, struct peer *peer)
{
    struct peer **at = slot_of(conns, peer->hash);
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    conns->peer_count--;
    free(peer);
}

/* ---- coming and going ---- */

int conns_init(struct conns *conns, const struct conns_limits *limits)
{
    *conns = (struct conns){ .limits = *limits, .peer_slots = PEER_SLOTS_FIRST };
    conns->peers = calloc(conns->peer_slots, sizeof(struct peer *));
    if (!conns->peers)
        return -ENOMEM;
    return getrandom(&conns->key, sizeof conns->key, 0) == sizeof conns->key ? 0 : -EIO;
}

void conns_done(struct conns *conns)
{
    free(conns->peers);
    conns->peers = NULL;
}

void conn_leave(struct conn *conn)
{
    struct conns *conns = conn->conns;
    if (!conns)
        return;
    part_state(conn);
    conn->conns = NULL;
    count_open(conns, conn->front, -1);
    if (conn->peer && --conn->peer->count == 0)
        drop_peer(conns, conn->peer);
    conn->peer = NULL;
}

static void end(struct conn *conn, uint64_t *counter)
{
    raise_count(counter);
    conn_leave(conn);
    conn->shut(conn);
}

/* The oldest of the busy ones are slow senders, if there are any. */
static struct conn *slowest_sender(struct conns *conns)
{
    struct conn *conn = conns->lists[CONN_BUSY].first;
    for (int i = 0; conn && conn->complete; conn = conn->next)
        if (++i == SENDERS_LOOKED_AT)
            return NULL;
    return conn;
}

/* Sending a request takes less than a second. A slower sender is ended before idle connections; otherwise the connection
 * that has been in its state for longest is, so that new ones do not end each other. */
bool conns_end_one(struct conns *conns, int64_t now_ms)
{
    struct conn *idle = conns->lists[CONN_IDLE].first, *sender = slowest_sender(conns);
    bool slow = sender && (now_ms - sender->since_ms >= SLOW_MS || !idle || sender->since_ms <= idle->since_ms);
    struct conn *conn = slow ? sender : idle;
    if (conn)
        end(conn, &conns->gave_way);
    return conn;
}

static bool make_room(struct conns *conns, const struct peer *peer, int64_t now_ms)
{
    if (peer && peer->count > conns->limits.most_per_address) {
        if (peer->first)
            end(peer->first, &conns->gave_way);
        return peer->count <= conns->limits.most_per_address;
    }
    return conns->count < conns->limits.most || conns_end_one(conns, now_ms);
}

bool conns_enter(struct conns *conns, struct conn *conn, enum front front, int fd, const struct sockaddr_storage *from,
                 int64_t now_ms)
{
    struct ip ip;
    struct peer *peer = NULL;
    conn->fd = fd;
    conn->local = !conn_address_of(from, &ip);
    if (!conn->local) {
        ip_text(&ip, conn->address);
        peer = find_peer(conns, ip);
        if (peer)
            peer->count++; /* keeps the peer, even if the connection that gives way is its last */
    }
    if ((!conn->local && !peer) || !make_room(conns, peer, now_ms)) {
        raise_count(&conns->turned_away);
        if (peer && --peer->count == 0)
            drop_peer(conns, peer);
        return false;
    }
    if (!conn->counts_later)
        raise_count(&conns->accepted);
    conn->front = front;
    count_open(conns, front, 1);
    conn->conns = conns;
    conn->peer = peer;
    conn->state = CONN_IDLE;
    conn->since_ms = conn->listed_ms = now_ms;
    conn->spared = false;
    join_state(conn);
    return true;
}

/* ---- time ---- */

static void set_state(struct conn *conn, enum conn_state state, int64_t now_ms)
{
    if (!conn->conns)
        return;
    conn->complete = false;
    conn->since_ms = now_ms;
    conn->spared = false;
    if (state == CONN_IDLE && conn->state == CONN_IDLE && now_ms - conn->listed_ms < LISTED_MS)
        return;
    part_state(conn);
    conn->state = state;
    conn->listed_ms = now_ms;
    join_state(conn);
}

void conn_busy(struct conn *conn, int64_t now_ms)
{
    if (conn->state != CONN_BUSY)
        set_state(conn, CONN_BUSY, now_ms);
}

void conn_complete(struct conn *conn)
{
    conn->complete = true;
}

void conn_idle(struct conn *conn, int64_t now_ms)
{
    set_state(conn, CONN_IDLE, now_ms);
}

void conn_stream(struct conn *conn, int64_t now_ms)
{
    set_state(conn, CONN_STREAM, now_ms);
}

/* Lists are in the order of the time at which the connections joined them. Some that are idle were used since. */
void conns_sweep(struct conns *conns, int64_t now_ms, bool late)
{
    unsigned request_ms = conns->limits.request_ms, stream_ms = request_ms > STREAM_MS_LEAST ? request_ms : STREAM_MS_LEAST;
    const unsigned most_ms[CONN_STATES] = { conns->limits.idle_ms, request_ms, stream_ms };
    for (int state = 0; state < CONN_STATES; state++)
        for (struct conn *conn = conns->lists[state].first, *next; conn && now_ms - conn->listed_ms >= most_ms[state];
             conn = next) {
            next = conn->next;
            if (now_ms - conn->since_ms < most_ms[state])
                continue;
            if (late && !conn->spared)
                conn->spared = true;
            else
                end(conn, &conns->overdue);
        }
}

static void shut_one(struct conn *conn)
{
    conn_leave(conn);
    conn->shut(conn);
}

/* It has sent something that the loop has not read yet: on a slow machine the loop may be late. */
static bool has_sent(const struct conn *conn)
{
    int bytes = 0;
    return ioctl(conn->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

void conns_shut_idle(struct conns *conns)
{
    for (struct conn *conn = conns->lists[CONN_IDLE].first, *next; conn; conn = next) {
        next = conn->next;
        if (!has_sent(conn))
            shut_one(conn);
    }
}

void conns_shut_streams(struct conns *conns)
{
    while (conns->lists[CONN_STREAM].first)
        shut_one(conns->lists[CONN_STREAM].first);
}

void conns_shut_all(struct conns *conns)
{
    for (int state = 0; state < CONN_STATES; state++)
        while (conns->lists[state].first)
            shut_one(conns->lists[state].first);
}
