/* The thread that makes connections: it looks up names, asks sentinels and loads scripts, so that no other thread waits
 * for that. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "redis/store_state.h"

#define BACKOFF_MIN_US (50 * US_PER_MS)
#define BACKOFF_MAX_US US_PER_S
#define LOOK_US US_PER_S /* how often sentinels are asked for the master */

/* A lane that wants a connection to a node that is used: the one that may be tried first. So nodes that do not answer,
 * which take a second each, do not keep the others waiting: these come before their next attempts. */
static struct lane_inbox *lane_without_connection(struct store *store)
{
    struct lane_inbox *first = NULL;
    for (struct lane_inbox *lane = store->lanes; lane; lane = lane->next) {
        bool wants = lane->wants_connection && atomic_load(&lane->node->used);
        if (wants && (!first || lane->node->not_before_us < first->node->not_before_us))
            first = lane;
    }
    return first;
}

static void wait_until(struct store *store, int64_t at_us)
{
    struct timespec at = { at_us / US_PER_S, at_us % US_PER_S * 1000 };
    pthread_cond_timedwait(&store->connect, &store->lock, &at);
}

enum work { OVER, CONNECT, LOOK_FOR_MASTER };

/* CONNECT: *ret is the node. */
static enum work wait_for_work(struct store *store, struct node **ret)
{
    bool sentinels = store->address.kind == REDIS_SENTINEL;
    int64_t look_us = sentinels ? clock_steady_us() + LOOK_US : INT64_MAX;
    enum work work = OVER;
    HOLD_LOCK(&store->lock);
    while (!atomic_load(&store->stopping) && work == OVER) {
        int64_t now_us = clock_steady_us();
        const struct lane_inbox *wanted = lane_without_connection(store);
        if (wanted && now_us >= wanted->node->not_before_us) {
            *ret = wanted->node;
            work = CONNECT;
        } else if (wanted)
            wait_until(store, wanted->node->not_before_us);
        else if (now_us >= look_us)
            work = LOOK_FOR_MASTER;
        else if (sentinels)
            wait_until(store, look_us);
        else
            pthread_cond_wait(&store->connect, &store->lock);
    }
    return work;
}

/* In a planned failover the old master goes on answering for some seconds. A host that counts there counts alone. */
static void look_for_master(struct store *store)
{
    struct node *node = store->nodes[0];
    char shown[REDIS_SHOWN_MAX + 1];
    node_read_shown(node, shown);
    if (shown[0] == '\0' || !redis_master_moved(&store->address, &store->credentials, store->stop_fd, shown))
        return;
    {
        HOLD_LOCK(&store->lock);
        node->server++;
    }
    node_signal_all(node, LANE_REPLACED);
}

/* Another server, or the same one started again, has another run id. */
static bool note_server(struct node *node, const struct connected *c)
{
    bool first = node->run_id[0] == '\0', same = c->run_id[0] == '\0' || strcmp(node->run_id, c->run_id) == 0;
    if (!same)
        memcpy(node->run_id, c->run_id, sizeof node->run_id);
    node->server += !same;
    memcpy(node->shown, c->shown, sizeof node->shown);
    return !first && !same;
}

static void drop_connection(const struct connected *c)
{
    close(c->fd);
    tls_free(c->tls);
}

static struct lane_inbox *lane_to(struct node *node)
{
    struct lane_inbox *lane = node->store->lanes;
    while (lane && !(lane->wants_connection && lane->node == node))
        lane = lane->next;
    return lane;
}

/* A lane that wants a connection now gets it: the one that it was made for may be closed. */
static void give_connection(struct node *node, const struct connected *c)
{
    struct lane_inbox *lane = atomic_load(&node->used) ? lane_to(node) : NULL;
    if (!lane) {
        drop_connection(c);
        return;
    }
    atomic_fetch_add(&node->connected, 1);
    lane->wants_connection = false;
    lane->fd = c->fd;
    lane->tls = c->tls;
    lane->server = node->server;
    lane_signal(lane, LANE_CONNECTION);
}

/* Returns false if the node has another address by now (`server` is what node->server was before): its entry was used for
 * another node meanwhile. */
static bool take_in(struct node *node, uint64_t server, const struct connected *c, bool *ret_replaced)
{
    HOLD_LOCK(&node->store->lock);
    if (node->server != server)
        return false;
    *ret_replaced = note_server(node, c);
    give_connection(node, c);
    return true;
}

static void hand_over(struct node *node, uint64_t server, const struct connected *c)
{
    struct store *store = node->store;
    bool replaced = false;
    if (!take_in(node, server, c, &replaced)) {
        drop_connection(c);
        return;
    }
    atomic_store(&store->offset_us, c->offset_us);
    atomic_store(&node->failing, false);
    node_answers(node);
    if (!replaced)
        return;
    store_count(&store->counts.replaced, 1);
    breaker_tell(&node->breaker, WEIR_STORE_REPLACED,
                 "the store %s is now another server, or was restarted (%s): counts that it did not save are lost",
                 store->address.shown, c->shown);
    node_signal_all(node, LANE_REPLACED);
}

/* While other lanes have a connection, a connection that cannot be made is one failure among others. */
static void not_connected(struct node *node, const char *why)
{
    if (!atomic_load(&node->used))
        return;
    atomic_store(&node->failing, true);
    if (atomic_load(&node->connected) == 0)
        node_unreachable(node, why);
    else
        node_failed(node, why, 1);
    node_signal_all(node, LANE_UNREACHABLE);
}

static void set_backoff(struct node *node, bool connected)
{
    HOLD_LOCK(&node->store->lock);
    int64_t backoff_us = connected ? 0 : (node->backoff_us ? node->backoff_us * 2 : BACKOFF_MIN_US);
    node->backoff_us = backoff_us < BACKOFF_MAX_US ? backoff_us : BACKOFF_MAX_US;
    node->not_before_us = clock_steady_us() + node->backoff_us;
}

static void connect_node(struct node *node)
{
    struct store *store = node->store;
    struct connected connected;
    struct redis_endpoint endpoint;
    uint64_t server;
    char why[CONNECT_WHY_MAX] = "";
    {
        HOLD_LOCK(&store->lock);
        endpoint = node->endpoint;
        server = node->server;
    }
    const struct redis_endpoint *to = store->map ? &endpoint : NULL;
    if (redis_connect(&store->address, &store->credentials, store->stop_fd, to, &connected, why) == 0) {
        set_backoff(node, true);
        hand_over(node, server, &connected);
    } else if (!atomic_load(&store->stopping)) {
        set_backoff(node, false);
        not_connected(node, why);
    }
}

void *connector_run(void *ptr)
{
    struct store *store = ptr;
    struct node *node = NULL;
    for (enum work work; (work = wait_for_work(store, &node)) != OVER;) {
        if (work == LOOK_FOR_MASTER)
            look_for_master(store);
        else
            connect_node(node);
    }
    return NULL;
}
