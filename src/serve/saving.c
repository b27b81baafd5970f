#include "serve/saving.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"
#include "base/thread.h"
#include "cells/saved.h"
#include "serve/log.h"

enum {
    NICE = 10,             /* more, and a machine whose CPUs are all busy would never save */
    CPU_SHARE = 20,        /* a twentieth of a CPU */
    BYTES_PER_US = 67,     /* 64 MiB/s */
    RETRY_US = 5000000,    /* after a failure */
    TAKE_OVER_US = 500000, /* how often to look whether another process has stopped saving */
};

struct saving {
    struct cells_saver *saver;
    int fd; /* of the table; its lock says who saves */
    char *live, *saved;
    int64_t every_us;
    pthread_t thread;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t wake;
    bool stopping, failing, unlinked;
    int64_t safe_us; /* by the steady clock: what was counted before is saved */
    struct saving_status status;
};

/* ---- what became of a pass ---- */

static void note_saved(struct saving *s, int64_t begun_us)
{
    HOLD_LOCK(&s->lock);
    s->safe_us = begun_us;
    s->status.saves++;
    if (s->failing)
        log_say(LEVEL_INFO, "saving", "the counts can be saved to %s again", s->saved);
    s->failing = false;
}

static void note_failed(struct saving *s, const struct weir_error *error)
{
    HOLD_LOCK(&s->lock);
    s->status.failures++;
    if (!s->failing)
        log_say(LEVEL_ERROR, "saving",
                "the counts cannot be saved, and a reboot would lose those since the last save; weir goes on trying: %s",
                error->text);
    s->failing = true;
}

/* The table goes on, but nobody can open it any more. */
static void note_unlinked(struct saving *s)
{
    struct stat st;
    if (s->unlinked || fstat(s->fd, &st) < 0 || st.st_nlink > 0)
        return;
    s->unlinked = true;
    log_say(
        LEVEL_WARNING, "saving",
        "%s was removed: this process goes on counting in it and saving it, but no other can open it; restart the service",
        s->live);
}

/* ---- the thread ---- */

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

/* By the steady clock. Returns false when it is time to stop. */
static bool wait_until(struct saving *s, int64_t until_us)
{
    struct timespec until = { .tv_sec = until_us / US_PER_S, .tv_nsec = until_us % US_PER_S * 1000 };
    HOLD_LOCK(&s->lock);
    s->status.bytes = cells_saver_bytes(s->saver);
    while (!s->stopping && pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0)
        ;
    return !s->stopping;
}

/* Returns how long a pass that has taken this much so far should have lasted. What a pass waits for a busy CPU or disk it
 * need not wait again: else each of its many steps would be late. */
static int64_t pace_us(int64_t cpu, uint64_t bytes)
{
    int64_t by_cpu = cpu * CPU_SHARE, by_bytes = (int64_t)bytes / BYTES_PER_US;
    return by_cpu > by_bytes ? by_cpu : by_bytes;
}

/* Returns false when it is time to stop. */
static bool save_once(struct saving *s)
{
    struct weir_error error;
    int64_t begun_us = clock_steady_us(), cpu = cpu_us();
    uint64_t bytes = cells_saver_bytes(s->saver);
    bool stays;
    int r;
    do {
        r = cells_save_some(s->saver, clock_now_us(), &error);
        int64_t until_us = begun_us + pace_us(cpu_us() - cpu, cells_saver_bytes(s->saver) - bytes);
        stays = wait_until(s, until_us);
    } while (r == CELLS_SAVE_MORE && stays);
    if (r < 0)
        note_failed(s, &error);
    else if (r == CELLS_SAVED)
        note_saved(s, begun_us);
    if (!stays)
        return false;
    return wait_until(s, begun_us + (r < 0 && s->every_us < RETRY_US ? RETRY_US : s->every_us));
}

/* The lock goes with the process that has it. */
static bool try_lock(struct saving *s)
{
    HOLD_LOCK(&s->lock);
    s->status.active = flock(s->fd, LOCK_EX | LOCK_NB) == 0;
    return s->status.active;
}

static void *run(void *data)
{
    struct saving *s = data;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    bool saves = s->status.active;
    while (!saves && wait_until(s, clock_steady_us() + TAKE_OVER_US))
        saves = try_lock(s);
    while (saves && save_once(s))
        note_unlinked(s);
    return NULL;
}

/* ---- from start to end ---- */

static void release(struct saving *s)
{
    cells_saver_free(s->saver);
    if (s->fd >= 0)
        close(s->fd);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->live);
    free(s->saved);
    free(s);
}

static int open_table(struct saving *s, struct cells *cells, const char *live, const char *saved, struct weir_error *error)
{
    s->live = strdup(live);
    s->saved = strdup(saved);
    if (!s->live || !s->saved)
        return err_no_memory(error);
    s->fd = open(live, O_RDWR | O_CLOEXEC);
    if (s->fd < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: %s", live, strerror(errno));
    return cells_saver_new(&s->saver, cells, s->fd, saved, error);
}

static int start_thread(struct saving *s, struct weir_error *error)
{
    int no = thread_start(&s->thread, run, s);
    return no == 0 ? 0 : err_set(error, WEIR_E_SYSTEM, "cannot start a thread: %s", strerror(no));
}

int saving_start(struct saving **ret, struct cells *cells, const char *live, const char *saved, unsigned every_ms,
                 struct weir_error *error)
{
    struct saving *s = calloc(1, sizeof *s);
    pthread_condattr_t steady;
    if (!s)
        return err_no_memory(error);
    s->fd = -1;
    s->every_us = every_ms * US_PER_MS;
    s->safe_us = clock_steady_us();
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &steady);
    pthread_condattr_destroy(&steady);
    int r = open_table(s, cells, live, saved, error);
    if (r == 0) {
        try_lock(s);
        r = start_thread(s, error);
    }
    if (r < 0)
        release(s);
    else
        *ret = s;
    return r;
}

void saving_end(struct saving *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

static int save_last(struct saving *s, struct weir_error *error)
{
    struct cells *cells = NULL;
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    int r = cells_open(&cells, path, (struct cells_size){ 0 }, error);
    if (r < 0)
        return r;
    cells_saver_use(s->saver, cells);
    r = cells_save_all(s->saver, clock_now_us(), error);
    cells_close(cells);
    return r;
}

void saving_free(struct saving *s)
{
    struct weir_error error;
    if (!s)
        return;
    if (s->status.active && save_last(s, &error) < 0)
        note_failed(s, &error);
    release(s);
}

void saving_status(struct saving *s, struct saving_status *ret)
{
    HOLD_LOCK(&s->lock);
    *ret = s->status;
    ret->age_s = (double)(clock_steady_us() - s->safe_us) / (double)US_PER_S;
}
