/* The circuit breaker: it is open while the store fails, and then nobody asks it. One for each server of a store.
 *
 * It opens after BREAKER_FAILURES failures in a row, or at once when there is no connection. An answer in time closes it:
 * the store's thread probes. A new breaker is open, since nothing has answered yet. */
#ifndef REDIS_BREAKER_H
#define REDIS_BREAKER_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/sv.h"
#include "engine/store.h"

enum { BREAKER_FAILURES = 5 };

struct breaker {
    atomic_bool open;
    atomic_uint failures; /* since the last success */
    _Atomic int64_t odd_us;
    atomic_uint_fast64_t opened;
    pthread_mutex_t lock; /* of changes, so that they are told in their order */
    bool told_down;
    char why[200];       /* it is open */
    const char *address; /* of the store, for people */
    void (*tell)(enum weir_store_event event, const char *text, void *data);
    void *tell_data;
};

void breaker_init(struct breaker *b, const struct store_options *options, const char *address);
void breaker_done(struct breaker *b);

static inline bool breaker_is_open(const struct breaker *b)
{
    return atomic_load_explicit(&b->open, memory_order_acquire);
}

/* A call was answered in time. Costs nothing while all goes well. */
static inline void breaker_worked(struct breaker *b)
{
    if (atomic_load_explicit(&b->failures, memory_order_relaxed) != 0)
        atomic_store_explicit(&b->failures, 0, memory_order_relaxed);
}

/* Both return whether this call has opened it. `why` is part of a sentence. */
bool breaker_failed(struct breaker *b, const char *why, unsigned times);
bool breaker_open(struct breaker *b, const char *why);
/* Open, as a new one is, and nobody is told: nothing is expected of the server any more. */
void breaker_reset(struct breaker *b);
/* Returns whether this call has closed it. `where`: the server, unless the address says it; or NULL. */
bool breaker_close(struct breaker *b, const char *where);
/* Reports an event, in its order. */
__attribute__((format(printf, 3, 4))) void breaker_tell(struct breaker *b, enum weir_store_event event, const char *format,
                                                        ...);
/* Reports a key that cannot be used, at most once a minute. */
void breaker_report_key(struct breaker *b, sv what);

#endif
