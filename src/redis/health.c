/* Whether the store answers, and signals to the threads when that changes. */
#include <unistd.h>

#include "redis/store_state.h"

void store_wake(struct store *store)
{
    uint64_t one = 1;
    if (write(store->wake_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

void link_signal(struct link_inbox *inbox, unsigned signals)
{
    uint64_t one = 1;
    if (atomic_fetch_or(&inbox->signals, signals) == 0 && write(inbox->event, &one, sizeof one) < 0)
        return; /* it is readable already */
}

void store_signal_all(struct store *store, unsigned signals)
{
    answers_came(store->cells); /* threads that block wait there */
    HOLD_LOCK(&store->lock);
    for (struct link_inbox *link = store->links; link; link = link->next)
        link_signal(link, signals);
}

static void tell_unreachable(struct store *store)
{
    store_signal_all(store, LINK_UNREACHABLE);
    store_wake(store);
}

void store_failed(struct store *store, const char *why, unsigned times)
{
    if (!atomic_load(&store->stopping) && breaker_failed(&store->breaker, why, times))
        tell_unreachable(store);
}

void store_unreachable(struct store *store, const char *why)
{
    if (!atomic_load(&store->stopping) && breaker_open(&store->breaker, why))
        tell_unreachable(store);
}

void store_read_shown(struct store *store, char shown[REDIS_SHOWN_MAX + 1])
{
    HOLD_LOCK(&store->lock);
    memcpy(shown, store->shown, sizeof store->shown);
}

void store_answers(struct store *store)
{
    char shown[REDIS_SHOWN_MAX + 1];
    store_read_shown(store, shown);
    if (breaker_close(&store->breaker, shown))
        store_wake(store);
}

bool store_up(const struct store *store)
{
    return !breaker_is_open(&store->breaker);
}

uint32_t store_hosts(const struct store *store)
{
    return atomic_load_explicit(&store->hosts, memory_order_relaxed);
}

int64_t store_offset_us(const struct store *store)
{
    return atomic_load_explicit(&store->offset_us, memory_order_relaxed);
}
