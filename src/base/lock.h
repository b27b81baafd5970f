/* Mutexes that are released at the end of a scope. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>

#include "base/cleanup.h"

static inline pthread_mutex_t *lock_hold(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void lock_release(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* Holds a mutex from here to the end of the scope. */
#define HOLD_LOCK(mutex) CLEANUP(lock_release) __attribute__((unused)) pthread_mutex_t *held_lock = lock_hold(mutex)

#endif
