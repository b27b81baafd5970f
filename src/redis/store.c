#include "redis/link.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"

enum { DEADLINE_MS = 20, FORGET_BYTES_MAX = 1 << 20, ASKS_WAIT_MS = 100 };

/* ---- telling everybody ---- */

void store_wake(struct store *store)
{
    uint64_t one = 1;
    if (write(store->wake_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

void store_poke_all(struct store *store, unsigned news)
{
    pthread_mutex_lock(&store->lock);
    for (struct store_link *link = store->links; link; link = link_next(link))
        link_poke(link, news);
    pthread_mutex_unlock(&store->lock);
    answers_came(store->cells); /* threads that block wait there */
}

static void tell_away(struct store *store)
{
    store_poke_all(store, LINK_AWAY);
    store_wake(store);
}

void store_failed(struct store *store, const char *why, unsigned times)
{
    if (!atomic_load(&store->stopping) && breaker_failed(&store->breaker, why, times))
        tell_away(store);
}

void store_gone(struct store *store, const char *why)
{
    if (!atomic_load(&store->stopping) && breaker_open(&store->breaker, why))
        tell_away(store);
}

static void read_shown(struct store *store, char shown[REDIS_SHOWN_MAX + 1])
{
    pthread_mutex_lock(&store->lock);
    memcpy(shown, store->shown, sizeof store->shown);
    pthread_mutex_unlock(&store->lock);
}

void store_works(struct store *store)
{
    char shown[REDIS_SHOWN_MAX + 1];
    read_shown(store, shown);
    if (breaker_close(&store->breaker, shown))
        store_wake(store);
}

/* ---- what is known ---- */

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

void store_note(struct store *store, enum store_event event, uint64_t n)
{
    atomic_uint_fast64_t *const counters[] = { [STORE_RECONCILED] = &store->counts.reconciled,
                                               [STORE_REFUNDED] = &store->counts.refunded,
                                               [STORE_NOT_ASKED] = &store->counts.unsent };
    store_count(counters[event], n);
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
        .opened = atomic_load(&store->breaker.opened),
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
        read_shown(store, shown);
    pthread_mutex_lock(&store->breaker.lock);
    memcpy(ret->problem, store->breaker.why, sizeof ret->problem);
    pthread_mutex_unlock(&store->breaker.lock);
    snprintf(ret->address, sizeof ret->address, shown[0] ? "%.120s (%.70s)" : "%.199s", store->address.shown, shown);
}

/* ---- for the store's thread ---- */

void store_post(struct store *store, struct store_call *call)
{
    call->next = NULL;
    call->link = store->own;
    pthread_mutex_lock(&store->lock);
    bool taken = store_up(store) && store->posted_count < STORE_POSTED_MAX && !atomic_load(&store->stopping);
    bool first = store->posted_count == 0;
    if (taken) {
        *store->posted_end = call;
        store->posted_end = &call->next;
        store->posted_count++;
    }
    pthread_mutex_unlock(&store->lock);
    if (!taken)
        store_refuse(store, call);
    else if (first)
        store_wake(store);
}

struct store_call *store_take_posted(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    struct store_call *list = store->posted;
    store->posted = NULL;
    store->posted_end = &store->posted;
    store->posted_count = 0;
    pthread_mutex_unlock(&store->lock);
    return list;
}

bool store_want(struct store *store, const struct slice_ask *ask)
{
    struct wanted *wanted = malloc(sizeof *wanted);
    if (!wanted)
        return false;
    wanted->ask = *ask;
    wanted->next = NULL;
    pthread_mutex_lock(&store->lock);
    bool taken = store->wanted_count < STORE_WANTED_MAX, first = store->wanted_count == 0;
    if (taken) {
        *store->wanted_end = wanted;
        store->wanted_end = &wanted->next;
        store->wanted_count++;
    }
    pthread_mutex_unlock(&store->lock);
    if (!taken)
        free(wanted);
    else if (first)
        store_wake(store);
    return taken;
}

struct wanted *store_take_wanted(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    struct wanted *list = store->wanted;
    store->wanted = NULL;
    store->wanted_end = &store->wanted;
    store->wanted_count = 0;
    pthread_mutex_unlock(&store->lock);
    return list;
}

void store_recall(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    store->recall = true;
    pthread_mutex_unlock(&store->lock);
    store_wake(store);
}

bool store_take_recall(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    bool recall = store->recall;
    store->recall = false;
    pthread_mutex_unlock(&store->lock);
    return recall;
}

/* ---- forgetting ---- */

struct forget *store_take_forgets(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    struct forget *list = store->forgets;
    store->forgets = NULL;
    pthread_mutex_unlock(&store->lock);
    return list;
}

static void forget_release(struct forget *forget)
{
    if (--forget->holders > 0)
        return;
    buf_done(&forget->command);
    free(forget);
}

void forget_done(struct store *store, struct forget *forget, int64_t found)
{
    pthread_mutex_lock(&store->lock);
    forget->done = true;
    forget->found = found;
    pthread_cond_broadcast(&store->forgotten);
    forget_release(forget);
    pthread_mutex_unlock(&store->lock);
}

/* How many there were; below 0: it has not said so in time. */
static int64_t wait_for_forget(struct store *store, struct forget *forget)
{
    int64_t until_us = clock_steady_us() + store->options.deadline_ms * US_PER_MS;
    struct timespec at = { until_us / US_PER_S, until_us % US_PER_S * 1000 };
    pthread_mutex_lock(&store->lock);
    forget->next = store->forgets;
    store->forgets = forget;
    store_wake(store);
    while (!forget->done && pthread_cond_timedwait(&store->forgotten, &store->lock, &at) != ETIMEDOUT)
        ;
    int64_t found = forget->done ? forget->found : -1;
    forget_release(forget);
    pthread_mutex_unlock(&store->lock);
    return found;
}

int store_forget(struct store *store, const struct weir_str *keys, size_t count, struct weir_error *error)
{
    struct forget *forget = calloc(1, sizeof *forget);
    if (!forget)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    buf_init(&forget->command, FORGET_BYTES_MAX);
    script_write_forget(&forget->command, store->prefix, keys, count);
    if (forget->command.failed) {
        buf_done(&forget->command);
        free(forget);
        return err_set(error, WEIR_E_INVALID, "too much to forget at once");
    }
    forget->holders = 2;
    int64_t found = wait_for_forget(store, forget);
    if (found < 0)
        return err_set(error, WEIR_E_SYSTEM, "the store %s has not said that it forgot; try again when it answers",
                       store->address.shown);
    return found < (int64_t)count ? (int)found : (int)count;
}

/* ---- opening and closing ---- */

/* Asks of other processes come through the cells. */
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
    breaker_done(&store->breaker);
    explicit_bzero(&store->address, sizeof store->address);
    free(store);
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
    store->posted_end = &store->posted;
    store->wanted_end = &store->wanted;
    /* The cells know how many there were last, and the store's clock, should the store be away. */
    struct lender_status last = lender_status_read(cells, clock_steady_us());
    atomic_init(&store->hosts, options->hosts ? options->hosts : last.hosts);
    atomic_init(&store->offset_us, last.offset_us);
    init_conditions(store);
    breaker_init(&store->breaker, &store->options, store->address.shown);
    store->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    store->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (store->wake_fd < 0 || store->stop_fd < 0 || lender_new(&store->lender, cells) < 0 ||
        store_link_new(&store->own, store, NULL, NULL) < 0) {
        store_free(store);
        return NULL;
    }
    return store;
}

static void stop(struct store *store)
{
    uint64_t one = 1;
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->stopping, true);
    pthread_cond_broadcast(&store->connect);
    pthread_mutex_unlock(&store->lock);
    if (write(store->stop_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
    store_wake(store);
}

static int start_threads(struct store *store)
{
    static void *(*const runs[])(void *) = { connector_run, store_keeper_run, wait_for_asks };
    pthread_t *threads[] = { &store->connector, &store->thread, &store->waiter };
    sigset_t all, before;
    int no = 0;
    size_t started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    while (started < 3 && (no = pthread_create(threads[started], NULL, runs[started], store)) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
        return err_set(error, WEIR_E_SYSTEM, "no memory or descriptors for the store");
    int no = start_threads(store);
    if (no != 0) {
        store_free(store);
        return err_set(error, WEIR_E_SYSTEM, "no thread for the store: %s", strerror(no));
    }
    store->pid = getpid();
    *ret = store;
    return 0;
}

/* A child of fork has neither the threads nor a lock that is surely free: it leaves all as it is. */
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
    .hosts = store_hosts,
    .offset_us = store_offset_us,
    .status = store_status,
    .count = store_note,
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
    .link_refund = store_refund,
};
