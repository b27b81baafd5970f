/* Opening and closing the store, and its table of operations. */
#include "redis/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/thread.h"

enum { DEADLINE_MS = 20, ASKS_WAIT_MS = 100 };

/* ---- the secret ---- */

/* A thread that reads between the two words of another mark has a secret that nobody shares: its receipt is void, as those
 * are that were made before the store lost its data. */
bool store_secret(const struct store *store, struct hash_key *ret)
{
    ret->k0 = atomic_load(&store->secret[0]);
    ret->k1 = atomic_load(&store->secret[1]);
    return ret->k0 != 0;
}

/* ---- status ---- */

void store_count_event(struct store *store, enum store_event event, uint64_t n)
{
    atomic_uint_fast64_t *const counters[] = { [STORE_RECONCILED] = &store->counts.reconciled,
                                               [STORE_REFUNDED] = &store->counts.refunded,
                                               [STORE_NOT_ASKED] = &store->counts.unsent };
    store_count(counters[event], n);
}

/* The problem of the first node that has one. */
static void add_node_status(struct node *node, struct weir_store_status *ret)
{
    struct breaker *breaker = &node->breaker;
    ret->opened += atomic_load(&breaker->opened);
    if (!atomic_load(&node->used))
        return;
    ret->nodes += atomic_load(&node->serves);
    ret->nodes_up += atomic_load(&node->serves) && node_up(node);
    HOLD_LOCK(&breaker->lock);
    if (breaker->why[0])
        memcpy(ret->problem, breaker->why, sizeof ret->problem);
}

void store_status(struct store *store, struct weir_store_status *ret)
{
    struct store_counts *c = &store->counts;
    *ret = (struct weir_store_status){
        .configured = true,
        .up = store_up(store),
        .hosts = store_hosts(store),
        .offset_us = store_offset_us(store),
        .calls = atomic_load(&c->calls),
        .late = atomic_load(&c->late),
        .failed = atomic_load(&c->failed),
        .lost = atomic_load(&c->lost),
        .unsent = atomic_load(&c->unsent),
        .refunded = atomic_load(&c->refunded),
        .replaced = atomic_load(&c->replaced),
        .emptied = atomic_load(&c->emptied),
        .reconciled = atomic_load(&c->reconciled),
        .slices = atomic_load(&c->slices),
        .lent = atomic_load(&c->lent),
        .returned = atomic_load(&c->returned),
        .held = atomic_load(&c->held),
    };
    char shown[REDIS_SHOWN_MAX + 1] = "";
    if (store->address.kind == REDIS_SENTINEL)
        node_read_shown(store->nodes[0], shown);
    for (unsigned i = atomic_load(&store->node_count); i-- > 0;)
        add_node_status(store->nodes[i], ret);
    snprintf(ret->address, sizeof ret->address, shown[0] ? "%.120s (%.70s)" : "%.199s", store->address.shown, shown);
}

static bool store_has_several(const struct store *store)
{
    return store->map;
}

/* ---- opening and closing ---- */

/* Other processes ask for slices through the cells file. */
static void *wait_for_asks(void *ptr)
{
    struct store *store = ptr;
    uint32_t seen = 0;
    while (!atomic_load(&store->stopping)) {
        uint32_t now = ask_wait(store->cells, seen, ASKS_WAIT_MS * US_PER_MS);
        if (now != seen)
            store_wake(store);
        seen = now;
    }
    return NULL;
}

static void init_conditions(struct store *store)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&store->connect, &steady);
    pthread_cond_init(&store->forgotten, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&store->lock, NULL);
}

static void store_free(struct store *store)
{
    store_link_free(store->own);
    lender_free(store->lender);
    if (store->wake_fd >= 0)
        close(store->wake_fd);
    if (store->stop_fd >= 0)
        close(store->stop_fd);
    pthread_cond_destroy(&store->connect);
    pthread_cond_destroy(&store->forgotten);
    pthread_mutex_destroy(&store->lock);
    nodes_free(store);
    free(store->map);
    credentials_done(&store->credentials);
    explicit_bzero(&store->address, sizeof store->address);
    free(store);
}

/* The only one; in a cluster those of the address, which know the others. */
static bool add_nodes(struct store *store)
{
    bool cluster = store->address.kind == REDIS_CLUSTER, good = !cluster || map_new(&store->map) == 0;
    for (size_t i = 0; good && i < (cluster ? store->address.endpoint_count : 1); i++)
        good = node_add(store, cluster ? &store->address.endpoints[i] : NULL) != NULL;
    return good;
}

static struct store *store_new(const struct redis_address *address, const struct store_options *options,
                               struct cells *cells)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return NULL;
    store->address = *address;
    store->prefix = weir_str(store->address.prefix);
    store->options = *options;
    if (options->deadline_ms == 0)
        store->options.deadline_ms = DEADLINE_MS;
    store->cells = cells;
    store_inbox_init(&store->inbox);
    /* The cells say how many hosts there were last, and the clock of the store, in case the store is unreachable. */
    struct lender_status last = lender_status_read(cells, clock_steady_us());
    atomic_init(&store->hosts, options->hosts ? options->hosts : last.hosts);
    atomic_init(&store->offset_us, last.offset_us);
    init_conditions(store);
    store->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    store->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (store->wake_fd < 0 || store->stop_fd < 0 || lender_new(&store->lender, cells) < 0 || !add_nodes(store) ||
        store_link_new(&store->own, store, NULL, NULL) < 0) {
        store_free(store);
        return NULL;
    }
    return store;
}

static void stop(struct store *store)
{
    uint64_t one = 1;
    {
        HOLD_LOCK(&store->lock);
        atomic_store(&store->stopping, true);
        pthread_cond_broadcast(&store->connect);
    }
    if (write(store->stop_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
    store_wake(store);
}

static int start_threads(struct store *store)
{
    static void *(*const runs[])(void *) = { connector_run, store_thread_run, wait_for_asks };
    pthread_t *threads[] = { &store->connector, &store->thread, &store->waiter };
    int no = 0;
    size_t started = 0;
    while (started < 3 && (no = thread_start(threads[started], runs[started], store)) == 0)
        started++;
    if (no == 0)
        return 0;
    stop(store);
    while (started-- > 0)
        pthread_join(*threads[started], NULL);
    return no;
}

int store_open(struct store **ret, const struct store_options *options, struct cells *cells, struct weir_error *error)
{
    struct redis_address address;
    int r = redis_address_read(&address, options->address, error);
    struct store *store = r == 0 ? store_new(&address, options, cells) : NULL;
    explicit_bzero(&address, sizeof address);
    if (r < 0)
        return r;
    if (!store)
        return err_set(error, WEIR_E_SYSTEM, "cannot open the store: out of memory or file descriptors");
    /* A file that cannot be used now is a mistake in the address; one that is replaced later is a failure of the store. */
    r = credentials_read(&store->credentials, &store->address, error);
    if (r < 0) {
        store_free(store);
        return r;
    }
    int no = start_threads(store);
    if (no != 0) {
        store_free(store);
        return err_set(error, WEIR_E_SYSTEM, "cannot start a thread for the store: %s", strerror(no));
    }
    store->pid = getpid();
    *ret = store;
    return 0;
}

/* A child of fork has neither the threads nor a lock that is free for sure: it changes nothing. */
void store_close(struct store *store)
{
    if (!store || store->pid != getpid())
        return;
    stop(store);
    pthread_join(store->connector, NULL);
    pthread_join(store->thread, NULL);
    pthread_join(store->waiter, NULL);
    store_free(store);
}

const struct store_ops redis_store = {
    .open = store_open,
    .close = store_close,
    .up = store_up,
    .several = store_has_several,
    .answers = store_up_for,
    .hosts = store_hosts,
    .offset_us = store_offset_us,
    .secret = store_secret,
    .status = store_status,
    .count = store_count_event,
    .post = store_post,
    .forget = store_forget,
    .want = store_want,
    .recall = store_recall,
    .link_new = store_link_new,
    .link_free = store_link_free,
    .link_fd = store_link_fd,
    .link_run = store_link_run,
    .link_wake_at = store_link_wake_at,
    .link_send = store_send,
    .link_flush = store_link_flush,
    .link_settle = store_settle,
};
