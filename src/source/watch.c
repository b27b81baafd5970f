/* The thread that follows a source.
 *
 * It looks whether anything has changed, reads only if so, and hands new rules on. Out of reach, it tries again after a
 * time that doubles from the poll interval up to half a minute. A pipe wakes it when it is to stop. */
#include "source/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

enum { POLL_DEFAULT_MS = 1000, POLL_MIN_MS = 100, POLL_MAX_MS = 3600000, BACK_OFF_MAX_MS = 30000 };

struct source_watch {
    struct source *source;
    struct source_watch_options options;
    struct rules *last; /* the thread's own copy of what it handed on */
    pthread_t thread;
    int wake[2];
    unsigned wait_ms;
    bool told_reachable, told; /* what on_state was last told */

    pthread_mutex_t lock; /* of what follows */
    bool stopping;
    int64_t good_us;
    bool reachable;
    size_t problem_count;
    char problem[400]; /* the first bad row */
    char reason[400];  /* why the source is out of reach, if it is */
    uint64_t reads, checks;
};

/* ---- state ---- */

static void state_now(struct source_watch *watch, struct source_watch_state *ret)
{
    pthread_mutex_lock(&watch->lock);
    struct source_watch_state state = { .good_us = watch->good_us,
                                        .reachable = watch->reachable,
                                        .problem_count = watch->problem_count,
                                        .reads = watch->reads,
                                        .checks = watch->checks };
    int64_t age_s = (clock_now_us() - watch->good_us) / US_PER_S;
    if (watch->reachable)
        snprintf(state.problem, sizeof state.problem, "%s", watch->problem);
    else if (watch->good_us == 0)
        snprintf(state.problem, sizeof state.problem, "no rules yet: %s", watch->reason);
    else
        snprintf(state.problem, sizeof state.problem, "rules are %lld s old: %s", (long long)(age_s > 0 ? age_s : 0),
                 watch->reason);
    pthread_mutex_unlock(&watch->lock);
    *ret = state;
}

void source_watch_state(struct source_watch *watch, struct source_watch_state *ret)
{
    state_now(watch, ret);
}

static bool stopping(struct source_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool stop = watch->stopping;
    pthread_mutex_unlock(&watch->lock);
    return stop;
}

/* Once for each change. */
static void tell_state(struct source_watch *watch)
{
    struct source_watch_state state;
    state_now(watch, &state);
    if (watch->told && watch->told_reachable == state.reachable)
        return;
    watch->told = true;
    watch->told_reachable = state.reachable;
    if (watch->options.on_state && !stopping(watch))
        watch->options.on_state(&state, watch->options.data);
}

static void out_of_reach(struct source_watch *watch, const struct weir_error *error)
{
    pthread_mutex_lock(&watch->lock);
    watch->reachable = false;
    snprintf(watch->reason, sizeof watch->reason, "%.*s", (int)sizeof watch->reason - 1, error->text);
    pthread_mutex_unlock(&watch->lock);
}

/* Problems of rows stay as the last reading found them. */
static void within_reach(struct source_watch *watch, const struct source_reading *reading)
{
    struct buf text;
    buf_init(&text, 8000);
    if (reading && reading->problem_count > 0)
        source_problem_print(&reading->problems[0], &text);
    pthread_mutex_lock(&watch->lock);
    watch->reachable = true;
    watch->good_us = clock_now_us();
    if (reading) {
        watch->problem_count = reading->problem_count + reading->unlisted;
        snprintf(watch->problem, sizeof watch->problem, "%.*s", (int)sizeof watch->problem - 1,
                 reading->problem_count && text.ptr ? text.ptr : "");
        watch->problem[strcspn(watch->problem, "\n")] = '\0';
    }
    pthread_mutex_unlock(&watch->lock);
    buf_done(&text);
}

static void count(struct source_watch *watch, uint64_t *counter)
{
    pthread_mutex_lock(&watch->lock);
    ++*counter;
    pthread_mutex_unlock(&watch->lock);
}

/* ---- following ---- */

static int read_now(struct source_watch *watch, struct weir_error *error)
{
    struct source_reading reading;
    int r = source_read(watch->source, watch->last, &reading, error);
    if (r < 0)
        return r;
    count(watch, &watch->reads);
    struct rules *copy = rules_copy(reading.rules);
    if (copy) {
        rules_free(watch->last);
        watch->last = copy;
    }
    within_reach(watch, &reading);
    if (!stopping(watch)) {
        watch->options.on_rules(reading.rules, reading.problems, reading.problem_count, watch->options.data);
        reading.rules = NULL;
    }
    source_reading_done(&reading);
    return 0;
}

/* One look. Negative: out of reach. */
static int look(struct source_watch *watch, bool *again, struct weir_error *error)
{
    bool changed = true;
    /* A new connection listens before anything is read, so that no change falls between the two. */
    int r = source_wait(watch->source, 0, -1, error);
    r = r < 0 ? r : 0;
    if (r == 0 && !*again) {
        count(watch, &watch->checks);
        r = source_changed(watch->source, &changed, error);
    }
    if (r == 0 && changed)
        r = read_now(watch, error);
    else if (r == 0)
        within_reach(watch, NULL);
    *again = r < 0;
    return r;
}

/* Waits before the next try, each time longer. */
static void back_off(struct source_watch *watch)
{
    struct pollfd wake = { .fd = watch->wake[0], .events = POLLIN };
    unsigned longest = watch->options.poll_ms > BACK_OFF_MAX_MS ? watch->options.poll_ms : BACK_OFF_MAX_MS;
    poll(&wake, 1, (int)watch->wait_ms);
    watch->wait_ms = watch->wait_ms * 2 < longest ? watch->wait_ms * 2 : longest;
}

static void *follow(void *data)
{
    struct source_watch *watch = data;
    bool again = true; /* it has to be read, whatever the version says */
    while (!stopping(watch)) {
        struct weir_error error = { .code = WEIR_OK };
        int r = look(watch, &again, &error);
        if (r == 0) {
            tell_state(watch);
            r = source_wait(watch->source, (int)watch->options.poll_ms, watch->wake[0], &error);
        }
        if (r >= 0) {
            watch->wait_ms = watch->options.poll_ms;
            continue;
        }
        out_of_reach(watch, &error);
        tell_state(watch);
        back_off(watch);
    }
    return NULL;
}

/* ---- starting and stopping ---- */

static void watch_free(struct source_watch *watch)
{
    for (int i = 0; i < 2; i++)
        if (watch->wake[i] >= 0)
            close(watch->wake[i]);
    pthread_mutex_destroy(&watch->lock);
    rules_free(watch->last);
    source_close(watch->source);
    free(watch);
}

static int start_thread(struct source_watch *watch, struct weir_error *error)
{
    /* Signals are the host's: none is to arrive in a thread that it does not know of. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int no = pthread_create(&watch->thread, NULL, follow, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return no ? err_set(error, WEIR_E_SYSTEM, "no thread for following the rules: %s", strerror(no)) : 0;
}

int source_watch_start(struct source_watch **ret, struct source *source, const struct rules *last,
                       const struct source_watch_options *options, struct weir_error *error)
{
    struct source_watch *watch = calloc(1, sizeof *watch);
    int r = 0;
    unsigned poll_ms = options->poll_ms ? options->poll_ms : POLL_DEFAULT_MS;
    if (!watch) {
        source_close(source);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    }
    *watch = (struct source_watch){ .source = source, .options = *options, .wake = { -1, -1 }, .wait_ms = poll_ms };
    watch->options.poll_ms = poll_ms;
    pthread_mutex_init(&watch->lock, NULL);
    if (poll_ms < POLL_MIN_MS || poll_ms > POLL_MAX_MS)
        r = err_set(error, WEIR_E_INVALID, "the poll interval must be %d ms to %d ms, not %u ms", POLL_MIN_MS, POLL_MAX_MS,
                    poll_ms);
    else if (last && !(watch->last = rules_copy(last)))
        r = err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    else if (pipe2(watch->wake, O_CLOEXEC | O_NONBLOCK) < 0)
        r = err_set(error, WEIR_E_SYSTEM, "no pipe: %s", strerror(errno));
    if (r == 0)
        r = start_thread(watch, error);
    if (r < 0)
        watch_free(watch);
    else
        *ret = watch;
    return r;
}

void source_watch_stop(struct source_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    pthread_mutex_unlock(&watch->lock);
    ssize_t ignored = write(watch->wake[1], "", 1);
    (void)ignored;
    pthread_join(watch->thread, NULL);
    watch_free(watch);
}
