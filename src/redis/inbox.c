/* The inbox of the store's thread: calls, asks for slices and keys to forget, from other threads. */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "redis/slot_map.h"

enum { FORGET_BYTES_MAX = 1 << 20 };

void store_inbox_init(struct store_inbox *inbox)
{
    *inbox = (struct store_inbox){ .posted_end = &inbox->posted, .wanted_end = &inbox->wanted };
}

struct store_inbox store_take_inbox(struct store *store)
{
    HOLD_LOCK(&store->lock);
    struct store_inbox taken = store->inbox;
    store_inbox_init(&store->inbox);
    return taken;
}

/* False: there is no room. *ret_first: the inbox was empty, and the store's thread has to be woken. */
static bool add_call(struct store *store, struct store_call *call, bool *ret_first)
{
    HOLD_LOCK(&store->lock);
    struct store_inbox *inbox = &store->inbox;
    bool may_answer = call->rule_count > 0 ? store_up_for(store, call->rules[0].key) : store_up(store);
    if (!may_answer || inbox->posted_count == STORE_POSTED_MAX || atomic_load(&store->stopping))
        return false;
    *ret_first = inbox->posted_count++ == 0;
    *inbox->posted_end = call;
    inbox->posted_end = &call->next;
    return true;
}

void store_post(struct store *store, struct store_call *call)
{
    bool first = false;
    call->next = NULL;
    call->link = store->own;
    if (!add_call(store, call, &first))
        store_refuse(store, call);
    else if (first)
        store_wake(store);
}

static bool add_wanted(struct store *store, struct wanted *wanted, bool *ret_first)
{
    HOLD_LOCK(&store->lock);
    struct store_inbox *inbox = &store->inbox;
    if (inbox->wanted_count == STORE_WANTED_MAX)
        return false;
    *ret_first = inbox->wanted_count++ == 0;
    *inbox->wanted_end = wanted;
    inbox->wanted_end = &wanted->next;
    return true;
}

bool store_want(struct store *store, const struct slice_ask *ask)
{
    CLEANUP_FREE struct wanted *wanted = cleanup_calloc(1, sizeof *wanted);
    bool first = false;
    if (!wanted)
        return false;
    wanted->ask = *ask;
    wanted->next = NULL;
    if (!add_wanted(store, wanted, &first))
        return false;
    wanted = NULL;
    if (first)
        store_wake(store);
    return true;
}

void store_recall(struct store *store)
{
    {
        HOLD_LOCK(&store->lock);
        store->inbox.recall = true;
    }
    store_wake(store);
}

/* ---- forgetting ---- */

static void forget_release(struct forget *forget)
{
    if (--forget->holders > 0)
        return;
    buf_done(&forget->command);
    free(forget);
}

void forget_done(struct store *store, struct forget *forget, int64_t found)
{
    HOLD_LOCK(&store->lock);
    forget->done = true;
    forget->found = found;
    pthread_cond_broadcast(&store->forgotten);
    forget_release(forget);
}

/* Returns the number of keys that were there; negative: the store did not answer in time. */
static int64_t wait_for_forget(struct store *store, struct forget *forget)
{
    int64_t until_us = clock_steady_us() + store->options.deadline_ms * US_PER_MS;
    struct timespec at = { until_us / US_PER_S, until_us % US_PER_S * 1000 };
    HOLD_LOCK(&store->lock);
    forget->next = store->inbox.forgets;
    store->inbox.forgets = forget;
    store_wake(store);
    while (!forget->done && pthread_cond_timedwait(&store->forgotten, &store->lock, &at) != ETIMEDOUT)
        ;
    int64_t found = forget->done ? forget->found : -1;
    forget_release(forget);
    return found;
}

/* Keys that are in one slot. Returns how many existed. */
static int forget_some(struct store *store, const struct weir_str *keys, size_t count, uint16_t place,
                       struct weir_error *error)
{
    struct forget *forget = calloc(1, sizeof *forget);
    if (!forget)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    forget->holders = 1;
    forget->place = place;
    buf_init(&forget->command, FORGET_BYTES_MAX);
    script_write_forget(&forget->command, store->prefix, keys, count);
    if (forget->command.failed) {
        forget_release(forget);
        return err_set(error, WEIR_E_INVALID, "too many keys to forget at once");
    }
    forget->holders++;
    int64_t found = wait_for_forget(store, forget);
    if (found < 0)
        return err_set(error, WEIR_E_SYSTEM, "the store %s did not confirm in time that it forgot the keys; try again",
                       store->address.shown);
    return found < (int64_t)count ? (int)found : (int)count;
}

int store_forget(struct store *store, const struct weir_str *keys, size_t count, struct weir_error *error)
{
    int total = 0;
    if (!store->map)
        return forget_some(store, keys, count, PLACE_NONE, error);
    for (size_t i = 0; i < count; i++) {
        int found = forget_some(store, &keys[i], 1, hash_slot(keys[i]), error);
        if (found < 0)
            return found;
        total += found;
    }
    return total;
}
