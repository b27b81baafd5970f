/* Whether the servers answer, and signals to the threads when that changes. */
#include <unistd.h>

#include "redis/store_state.h"

void store_wake(struct store *store)
{
    uint64_t one = 1;
    if (write(store->wake_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

void lane_signal(struct lane_inbox *inbox, unsigned signals)
{
    uint64_t one = 1;
    if (atomic_fetch_or(&inbox->signals, signals) == 0 && write(inbox->event, &one, sizeof one) < 0)
        return; /* it is readable already */
}

void node_signal_all(struct node *node, unsigned signals)
{
    struct store *store = node->store;
    answers_came(store->cells); /* threads that block wait there */
    HOLD_LOCK(&store->lock);
    for (struct lane_inbox *lane = store->lanes; lane; lane = lane->next)
        if (lane->node == node)
            lane_signal(lane, signals);
}

void store_slices_came(struct store *store)
{
    node_signal_all(store->nodes[0], LANE_SLICES);
}

static void tell_unreachable(struct node *node)
{
    node_signal_all(node, LANE_UNREACHABLE);
    store_wake(node->store);
}

/* Nobody expects answers of a node that is not used. */
static bool is_expected(const struct node *node)
{
    return !atomic_load(&node->store->stopping) && atomic_load(&node->used);
}

void node_failed(struct node *node, const char *why, unsigned times)
{
    atomic_store(&node->fresh, false);
    if (is_expected(node) && breaker_failed(&node->breaker, why, times))
        tell_unreachable(node);
}

void node_unreachable(struct node *node, const char *why)
{
    atomic_store(&node->fresh, false);
    if (is_expected(node) && breaker_open(&node->breaker, why))
        tell_unreachable(node);
}

void node_read_shown(struct node *node, char shown[REDIS_SHOWN_MAX + 1])
{
    HOLD_LOCK(&node->store->lock);
    memcpy(shown, node->shown, sizeof node->shown);
}

void node_answers(struct node *node)
{
    char shown[REDIS_SHOWN_MAX + 1];
    node_read_shown(node, shown);
    if (atomic_load(&node->used) && breaker_close(&node->breaker, node->store->map ? NULL : shown)) {
        if (!atomic_load(&node->used)) /* it has just left: see node_use() */
            breaker_reset(&node->breaker);
        store_wake(node->store);
    }
    atomic_store(&node->fresh, false);
}

bool store_up(const struct store *store)
{
    bool up = false;
    unsigned count = atomic_load_explicit(&store->node_count, memory_order_acquire);
    for (unsigned i = 0; i < count && !up; i++)
        up = atomic_load_explicit(&store->nodes[i]->serves, memory_order_relaxed) && node_up(store->nodes[i]);
    return up;
}

uint32_t store_hosts(const struct store *store)
{
    return atomic_load_explicit(&store->hosts, memory_order_relaxed);
}

int64_t store_offset_us(const struct store *store)
{
    return atomic_load_explicit(&store->offset_us, memory_order_relaxed);
}
