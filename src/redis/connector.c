/* The thread that makes connections: names are looked up, sentinels asked and scripts loaded here, and nobody else waits.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "redis/link.h"

#define BACKOFF_MIN_US (50 * US_PER_MS)
#define LOOK_US US_PER_S /* how often sentinels are asked for the master */
#define BACKOFF_MAX_US US_PER_S

static struct store_link *who_wants(struct store *store)
{
    struct store_link *link = store->links;
    while (link && !link_wants(link))
        link = link_next(link);
    return link;
}

static void wait_until(struct store *store, int64_t at_us)
{
    struct timespec at = { at_us / US_PER_S, at_us % US_PER_S * 1000 };
    pthread_cond_timedwait(&store->connect, &store->lock, &at);
}

enum work { OVER, CONNECT, LOOK_FOR_MASTER };

static enum work wait_for_work(struct store *store, int64_t not_before_us)
{
    bool sentinels = store->address.kind == REDIS_SENTINEL;
    int64_t look_us = sentinels ? clock_steady_us() + LOOK_US : INT64_MAX;
    enum work work = OVER;
    pthread_mutex_lock(&store->lock);
    while (!atomic_load(&store->stopping) && work == OVER) {
        int64_t now_us = clock_steady_us();
        bool wanted = who_wants(store);
        if (wanted && now_us >= not_before_us)
            work = CONNECT;
        else if (wanted)
            wait_until(store, not_before_us);
        else if (now_us >= look_us)
            work = LOOK_FOR_MASTER;
        else if (sentinels)
            wait_until(store, look_us);
        else
            pthread_cond_wait(&store->connect, &store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    return work;
}

/* In a planned failover the old master goes on answering for some seconds. Who counts there counts alone. */
static void look_for_master(struct store *store)
{
    char shown[REDIS_SHOWN_MAX + 1];
    pthread_mutex_lock(&store->lock);
    memcpy(shown, store->shown, sizeof shown);
    pthread_mutex_unlock(&store->lock);
    if (shown[0] == '\0' || !redis_master_moved(&store->address, store->stop_fd, shown))
        return;
    pthread_mutex_lock(&store->lock);
    store->server++;
    pthread_mutex_unlock(&store->lock);
    store_poke_all(store, LINK_REPLACED);
}

/* Another server, or the same one started again, has another run id. */
static bool note_server(struct store *store, const struct connected *c)
{
    bool first = store->run_id[0] == '\0', same = c->run_id[0] == '\0' || strcmp(store->run_id, c->run_id) == 0;
    if (!same)
        memcpy(store->run_id, c->run_id, sizeof store->run_id);
    store->server += !same;
    memcpy(store->shown, c->shown, sizeof store->shown);
    return !first && !same;
}

/* Whoever wants a connection now gets it: the one it was made for may have gone. */
static void hand_over(struct store *store, const struct connected *c)
{
    atomic_store(&store->offset_us, c->offset_us);
    pthread_mutex_lock(&store->lock);
    bool replaced = note_server(store, c);
    struct store_link *link = who_wants(store);
    if (link) {
        atomic_fetch_add(&store->connected, 1);
        link_hand(link, c->fd, store->server);
    }
    pthread_mutex_unlock(&store->lock);
    if (!link)
        close(c->fd);
    store_works(store);
    if (!replaced)
        return;
    store_count(&store->counts.replaced, 1);
    breaker_tell(&store->breaker, WEIR_STORE_REPLACED,
                 "another server answers for the store %s now, or the same one started again (%s): what it did not save is "
                 "forgotten",
                 store->address.shown, c->shown);
    store_poke_all(store, LINK_REPLACED);
}

/* Where others still have a connection, that there is no further one is a failure like any other. */
static void not_connected(struct store *store, const char *why)
{
    if (atomic_load(&store->connected) == 0)
        store_gone(store, why);
    else
        store_failed(store, why, 1);
    store_poke_all(store, LINK_AWAY);
}

void *connector_run(void *ptr)
{
    struct store *store = ptr;
    struct connected connected;
    char why[CONNECT_WHY_MAX] = "";
    int64_t not_before_us = 0, backoff_us = 0;
    for (enum work work; (work = wait_for_work(store, not_before_us)) != OVER;) {
        if (work == LOOK_FOR_MASTER) {
            look_for_master(store);
            continue;
        }
        if (redis_connect(&store->address, store->stop_fd, &connected, why) == 0) {
            backoff_us = 0;
            hand_over(store, &connected);
        } else if (!atomic_load(&store->stopping)) {
            backoff_us = backoff_us ? backoff_us * 2 : BACKOFF_MIN_US;
            if (backoff_us > BACKOFF_MAX_US)
                backoff_us = BACKOFF_MAX_US;
            not_connected(store, why);
        }
        not_before_us = clock_steady_us() + backoff_us;
    }
    return NULL;
}
