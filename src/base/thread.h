/* Threads beside those of the program. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Signals belong to the program: none may arrive in a thread that it does not know. Returns 0 or an errno. */
static inline int thread_start(pthread_t *ret, void *(*run)(void *), void *data)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int no = pthread_create(ret, NULL, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return no;
}

#endif
