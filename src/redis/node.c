/* The servers of a store. */
#include <stdio.h>
#include <stdlib.h>

#include "redis/store_state.h"

void nodes_free(struct store *store)
{
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++) {
        breaker_done(&store->nodes[i]->breaker);
        free(store->nodes[i]);
    }
    atomic_store(&store->node_count, 0);
}

static bool same_endpoint(const struct redis_endpoint *a, const struct redis_endpoint *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

struct node *node_find(struct store *store, const struct redis_endpoint *endpoint)
{
    HOLD_LOCK(&store->lock);
    for (unsigned i = 0; i < atomic_load(&store->node_count); i++)
        if (same_endpoint(&store->nodes[i]->endpoint, endpoint))
            return store->nodes[i];
    return NULL;
}

/* Its lanes close the connections that they have to another server. */
static void set_endpoint(struct node *node, const struct redis_endpoint *endpoint)
{
    struct store *store = node->store;
    HOLD_LOCK(&store->lock);
    node->endpoint = *endpoint;
    redis_endpoint_show(endpoint, node->shown);
    node->run_id[0] = '\0';
    node->server++;
}

static void set_name(struct node *node)
{
    char shown[REDIS_SHOWN_MAX + 1];
    node_read_shown(node, shown);
    HOLD_LOCK(&node->breaker.lock);
    snprintf(node->name, sizeof node->name, "%s (%s)", node->store->address.shown, shown);
}

static struct node *make(struct store *store)
{
    unsigned number = atomic_load(&store->node_count);
    struct node *node = number < NODES_MAX ? calloc(1, sizeof *node) : NULL;
    if (!node)
        return NULL;
    node->store = store;
    node->number = number;
    snprintf(node->name, sizeof node->name, "%s", store->address.shown);
    breaker_init(&node->breaker, &store->options, node->name);
    return node;
}

/* The entry of a node that is not used, and to which no lane has a connection any more. The first ones are those of the
 * address: they are asked when no other answers. */
static struct node *find_unused(struct store *store)
{
    for (unsigned i = (unsigned)store->address.endpoint_count; i < atomic_load(&store->node_count); i++)
        if (!atomic_load(&store->nodes[i]->used) && atomic_load(&store->nodes[i]->connected) == 0)
            return store->nodes[i];
    return NULL;
}

/* Takes the entry of a node that has left before it makes another one: masters may come back with new addresses for ever,
 * and each entry has lanes with descriptors. */
struct node *node_add(struct store *store, const struct redis_endpoint *endpoint)
{
    struct node *unused = find_unused(store), *fresh = unused ? NULL : make(store), *node = unused ? unused : fresh;
    if (!node)
        return NULL;
    if (endpoint) {
        set_endpoint(node, endpoint);
        set_name(node);
    }
    node->watch = (struct node_watch){ 0 };
    atomic_store(&node->serves, !endpoint);
    if (fresh) {
        store->nodes[fresh->number] = fresh;
        atomic_fetch_add(&store->node_count, 1);
    }
    node_use(node, true);
    return node;
}

void node_use(struct node *node, bool used)
{
    struct store *store = node->store;
    if (atomic_exchange(&node->used, used) == used)
        return;
    {
        HOLD_LOCK(&store->lock);
        atomic_store(&node->failing, false);
        atomic_store(&node->fresh, used && store->map);
        node->not_before_us = node->backoff_us = 0;
        pthread_cond_signal(&store->connect);
    }
    breaker_reset(&node->breaker);
    node_signal_all(node, LANE_REPLACED | LANE_UNREACHABLE);
}
