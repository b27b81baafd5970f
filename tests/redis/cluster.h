/* A real Redis Cluster for tests: nodes on free ports of loopback, each a daemon, which ends with the test, however that
 * ends. A function that waits aborts the test if what it waits for does not come within half a minute. */
#ifndef TESTS_REDIS_CLUSTER_H
#define TESTS_REDIS_CLUSTER_H

#include "daemon.h"

enum { CLUSTER_NODES_MAX = 12, CLUSTER_SLOTS = 16384, CLUSTER_KEY_MAX = 32, CLUSTER_NODE_TIMEOUT_MS = 1000 };

struct cluster {
    struct daemon nodes[CLUSTER_NODES_MAX]; /* the masters, then the replicas: node i begins as a replica of i % masters */
    char ids[CLUSTER_NODES_MAX][41];
    bool frozen[CLUSTER_NODES_MAX];
    size_t masters, count;
    pid_t cleaner; /* removes the folders if the test does not */
    int link;
};

/* `replicas`: of each master. Slots are divided evenly. `more`: further arguments of all nodes, up to NULL, which stay
 * valid; or NULL. Nodes speak TLS, too, on a second port and with each other if SERVERS_TLS is set, see servers.h. Waits
 * until all nodes serve, which takes 2 to 3 s: Redis lets no new master serve earlier. */
void cluster_start(struct cluster *c, size_t masters, size_t replicas, const char *const *more);
void cluster_end(struct cluster *c);
/* The address for a store; `more`: what comes after the ports. Only the first `seeds` nodes are named. */
const char *cluster_address(const struct cluster *c, size_t seeds, const char *more, char ret[SERVER_ADDRESS_MAX]);

/* ---- slots ---- */

/* The slot of a key, by its hash tag if it has one. */
unsigned cluster_slot(sv key);
/* Writes a text of which the slot is between `first` and `last`: for the hash tags of keys. The nth such one, from 0. */
const char *cluster_tag(unsigned first, unsigned last, unsigned nth, char ret[CLUSTER_KEY_MAX]);
/* The slots that node i < masters begins with. */
unsigned cluster_first_slot(const struct cluster *c, size_t i);
unsigned cluster_last_slot(const struct cluster *c, size_t i);
/* Waits until all nodes that run agree on which node serves the slot. Returns its index. */
size_t cluster_owner(const struct cluster *c, unsigned slot);
/* Waits until all nodes that run say cluster_state:ok. */
void cluster_wait_ok(const struct cluster *c);

/* ---- failures ---- */

/* kill -9. */
void cluster_kill(struct cluster *c, size_t i);
/* Starts it again on the same ports. It remembers the cluster, but no keys. */
void cluster_again(struct cluster *c, size_t i);
/* SIGSTOP, SIGCONT. */
void cluster_freeze(struct cluster *c, size_t i, bool frozen);
/* Waits until another node than i serves the slot, as all nodes that run see it. Returns its index. An election needs most
 * of the masters, so 3 at least. */
size_t cluster_wait_failover(const struct cluster *c, unsigned slot, size_t i);
/* A planned failover: the replica takes the place of its master, which becomes its replica. Waits until all nodes agree. */
void cluster_failover(const struct cluster *c, size_t replica);

/* ---- moving slots ---- */

/* From the first call on the slot is MIGRATING at `from` and IMPORTING at `to`, until the last. Between them keys move one
 * by one. */
void cluster_move_begin(const struct cluster *c, unsigned slot, size_t from, size_t to);
/* False: there is no such key at `from`. */
bool cluster_move_key(const struct cluster *c, const char *key, size_t from, size_t to);
/* Moves up to `most` keys of the slot. Returns the number of keys that were moved. */
size_t cluster_move_keys(const struct cluster *c, unsigned slot, size_t from, size_t to, size_t most);
/* Waits until all nodes agree. No key may be left at `from`. */
void cluster_move_end(const struct cluster *c, unsigned slot, size_t from, size_t to);
/* Slots `first` to `last` with all of their keys, one slot after the other. */
void cluster_move(const struct cluster *c, unsigned first, unsigned last, size_t from, size_t to);

#endif
