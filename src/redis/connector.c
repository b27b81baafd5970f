/* The thread that makes connections: it looks up names, asks sentinels and loads scripts, so that no other thread waits
 * for that. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "redis/store_state.h"

#define BACKOFF_MIN_US (50 * US_PER_MS)
#define LOOK_US US_PER_S /* how often sentinels are asked for the master */
#define BACKOFF_MAX_US US_PER_S

static struct link_inbox *link_without_connection(struct store *store)
{
    struct link_inbox *link = store->links;
    while (link && !link->wants_connection)
        link = link->next;
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
    HOLD_LOCK(&store->lock);
    while (!atomic_load(&store->stopping) && work == OVER) {
        int64_t now_us = clock_steady_us();
        bool wanted = link_without_connection(store);
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
    return work;
}

/* In a planned failover the old master goes on answering for some seconds. A host that counts there counts alone. */
static void look_for_master(struct store *store)
{
    char shown[REDIS_SHOWN_MAX + 1];
    store_read_shown(store, shown);
    if (shown[0] == '\0' || !redis_master_moved(&store->address, &store->credentials, store->stop_fd, shown))
        return;
    {
        HOLD_LOCK(&store->lock);
        store->server++;
    }
    store_signal_all(store, LINK_REPLACED);
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

/* A link that wants a connection now gets it: the one that it was made for may be closed. Returns whether the server was
 * replaced. */
static bool give_connection(struct store *store, const struct connected *c)
{
    HOLD_LOCK(&store->lock);
    bool replaced = note_server(store, c);
    struct link_inbox *link = link_without_connection(store);
    if (link) {
        atomic_fetch_add(&store->connected, 1);
        link->wants_connection = false;
        link->fd = c->fd;
        link->tls = c->tls;
        link->server = store->server;
        link_signal(link, LINK_CONNECTION);
    } else {
        close(c->fd);
        tls_free(c->tls);
    }
    return replaced;
}

static void hand_over(struct store *store, const struct connected *c)
{
    atomic_store(&store->offset_us, c->offset_us);
    bool replaced = give_connection(store, c);
    atomic_store(&store->failing, false);
    store_answers(store);
    if (!replaced)
        return;
    store_count(&store->counts.replaced, 1);
    breaker_tell(&store->breaker, WEIR_STORE_REPLACED,
                 "the store %s is now another server, or was restarted (%s): counts that it did not save are lost",
                 store->address.shown, c->shown);
    store_signal_all(store, LINK_REPLACED);
}

/* While other links have a connection, a connection that cannot be made is one failure among others. */
static void not_connected(struct store *store, const char *why)
{
    atomic_store(&store->failing, true);
    if (atomic_load(&store->connected) == 0)
        store_unreachable(store, why);
    else
        store_failed(store, why, 1);
    store_signal_all(store, LINK_UNREACHABLE);
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
        if (redis_connect(&store->address, &store->credentials, store->stop_fd, &connected, why) == 0) {
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
