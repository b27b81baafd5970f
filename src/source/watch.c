/* The thread that follows a source.
 *
 * It looks whether anything has changed, reads only if so, and hands new rules on. Out of reach, it tries again after a
 * time that doubles from the poll interval up to half a minute. A pipe wakes it when there is a job, or it is to stop. */
#include "source/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"
#include "base/thread.h"
#include "source/backend.h"

enum { POLL_DEFAULT_MS = 1000, POLL_MIN_MS = 100, POLL_MAX_MS = 3600000, BACK_OFF_MAX_MS = 30000, NICE = 10 };

struct source_watch {
    struct source *source;
    struct source_watch_options options;
    struct rules *last; /* what it handed on, shared */
    pthread_t thread;
    int wake[2];
    unsigned wait_ms;
    bool again;                /* it has to be read, whatever the version says */
    bool told_reachable, told; /* what on_state was last told */

    pthread_mutex_t lock; /* of what follows */
    bool stopping;
    bool poked;
    struct source_job *jobs, **jobs_end;
    unsigned job_count;
    struct source_watch_state state; /* `problem`: the first bad row; `reason`: also of the last time it was unreachable */
};

/* ---- state ---- */

void source_watch_state(struct source_watch *watch, struct source_watch_state *ret)
{
    HOLD_LOCK(&watch->lock);
    *ret = watch->state;
    int64_t age_s = (clock_now_us() - ret->good_us) / US_PER_S;
    if (ret->reachable)
        ret->reason[0] = '\0';
    else if (ret->good_us == 0)
        snprintf(ret->problem, sizeof ret->problem, "no rules yet: %s", ret->reason);
    else
        snprintf(ret->problem, sizeof ret->problem, "rules are %lld s old: %s", (long long)(age_s > 0 ? age_s : 0),
                 ret->reason);
}

static bool stopping(struct source_watch *watch)
{
    HOLD_LOCK(&watch->lock);
    return watch->stopping;
}

/* Once for each change. */
static void tell_state(struct source_watch *watch)
{
    struct source_watch_state state;
    source_watch_state(watch, &state);
    if (watch->told && watch->told_reachable == state.reachable)
        return;
    watch->told = true;
    watch->told_reachable = state.reachable;
    if (watch->options.on_state && !stopping(watch))
        watch->options.on_state(&state, watch->options.data);
}

static void out_of_reach(struct source_watch *watch, const struct weir_error *error)
{
    HOLD_LOCK(&watch->lock);
    watch->state.reachable = false;
    snprintf(watch->state.reason, sizeof watch->state.reason, "%.*s", (int)sizeof watch->state.reason - 1, error->text);
}

/* Problems of rows stay as the last reading found them. */
static void within_reach(struct source_watch *watch, const struct source_reading *reading)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 8000);
    if (reading && reading->problem_count > 0)
        source_problem_print(&reading->problems[0], &text);
    HOLD_LOCK(&watch->lock);
    watch->state.reachable = true;
    watch->state.good_us = clock_now_us();
    if (reading) {
        watch->state.problem_count = reading->problem_count + reading->unlisted;
        snprintf(watch->state.problem, sizeof watch->state.problem, "%.*s", (int)sizeof watch->state.problem - 1,
                 reading->problem_count && text.ptr ? text.ptr : "");
        watch->state.problem[strcspn(watch->state.problem, "\n")] = '\0';
    }
}

static void count(struct source_watch *watch, uint64_t *counter)
{
    HOLD_LOCK(&watch->lock);
    ++*counter;
}

/* ---- following ---- */

static int hand_on(struct source_watch *watch, struct source_reading *reading, struct weir_error *error)
{
    if (stopping(watch))
        return 0;
    struct rules *rules = reading->rules;
    reading->rules = NULL;
    return watch->options.on_rules(rules, reading->problems, reading->problem_count, watch->options.data, error);
}

static int read_now(struct source_watch *watch, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = source_read_rules(watch->source, watch->last, &reading, error);
    if (r < 0)
        return r;
    count(watch, &watch->state.reads);
    CLEANUP(rules_freep) struct rules *rules = rules_share(reading.rules);
    r = hand_on(watch, &reading, error);
    if (r == 0) {
        within_reach(watch, &reading);
        rules_free(watch->last);
        watch->last = STEAL(rules);
    }
    return r;
}

/* One look. Negative: the source is unreachable. */
static int look(struct source_watch *watch, struct weir_error *error)
{
    bool changed = true;
    /* A new connection listens before anything is read, so that no change falls between the two. */
    int r = source_wait(watch->source, 0, -1, error);
    r = r < 0 ? r : 0;
    if (r == 0 && !watch->again) {
        count(watch, &watch->state.checks);
        r = source_changed(watch->source, &changed, error);
    }
    if (r == 0 && changed)
        r = read_now(watch, error);
    else if (r == 0)
        within_reach(watch, NULL);
    watch->again = r < 0;
    if (r < 0)
        out_of_reach(watch, error);
    tell_state(watch);
    if (watch->options.on_look && !stopping(watch))
        watch->options.on_look(watch->options.data);
    return r;
}

/* ---- jobs ---- */

static void wake(struct source_watch *watch)
{
    /* A pipe that is full wakes, too. */
    ssize_t ignored = write(watch->wake[1], "", 1);
    (void)ignored;
}

bool source_watch_run(struct source_watch *watch, struct source_job *job)
{
    HOLD_LOCK(&watch->lock);
    if (watch->stopping || watch->job_count == SOURCE_JOBS_MAX)
        return false;
    job->next = NULL;
    *watch->jobs_end = job;
    watch->jobs_end = &job->next;
    watch->job_count++;
    wake(watch);
    return true;
}

void source_watch_look_now(struct source_watch *watch)
{
    HOLD_LOCK(&watch->lock);
    watch->poked = true;
    wake(watch);
}

static bool take_poke(struct source_watch *watch)
{
    HOLD_LOCK(&watch->lock);
    bool poked = watch->poked;
    watch->poked = false;
    return poked;
}

static struct source_job *next_job(struct source_watch *watch)
{
    HOLD_LOCK(&watch->lock);
    struct source_job *job = watch->jobs;
    if (job) {
        watch->jobs = job->next;
        watch->job_count--;
    }
    if (!watch->jobs)
        watch->jobs_end = &watch->jobs;
    return job;
}

/* When a job is done, its changes are in force. */
static int run_job(struct source_watch *watch, struct source_job *job)
{
    struct weir_error error = { .code = WEIR_OK }, why = { .code = WEIR_OK };
    uint64_t seen = source_seen(watch->source);
    int result = job->run(watch->source, job, &error);
    /* The source does not report again what the job has read, but those who follow the source have not seen it. */
    watch->again = watch->again || source_seen(watch->source) != seen;
    if (result >= 0 && job->writes && look(watch, &why) < 0)
        result = err_set(&error, WEIR_E_SYSTEM,
                         "the change was written, and takes effect as soon as weir can read it back: %.*s",
                         WEIR_ERROR_MAX - 100, why.text);
    job->done(job, result, &error);
    return result;
}

/* Returns whether one of them reached the source, as far as can be told. */
static bool run_jobs(struct source_watch *watch)
{
    struct source_job *job;
    char bytes[256];
    bool reached = false;
    while (read(watch->wake[0], bytes, sizeof bytes) == sizeof bytes)
        continue;
    while (!stopping(watch) && (job = next_job(watch)))
        reached = run_job(watch, job) != WEIR_E_SYSTEM || reached;
    return reached;
}

static void leave_jobs(struct source_watch *watch)
{
    struct weir_error error;
    struct source_job *job;
    err_set(&error, WEIR_E_SYSTEM, "not done: the service is stopping");
    while ((job = next_job(watch)))
        job->done(job, WEIR_E_SYSTEM, &error);
}

/* ---- the thread ---- */

/* Waits before the next try, each time longer. Jobs try for themselves; the first that reaches the source ends the wait. */
static void back_off(struct source_watch *watch)
{
    struct pollfd fd = { .fd = watch->wake[0], .events = POLLIN };
    unsigned longest = watch->options.poll_ms > BACK_OFF_MAX_MS ? watch->options.poll_ms : BACK_OFF_MAX_MS;
    int64_t until_us = clock_steady_us() + watch->wait_ms * US_PER_MS, left_us;
    while ((left_us = until_us - clock_steady_us()) > 0) {
        if (poll(&fd, 1, (int)(left_us / US_PER_MS) + 1) <= 0)
            continue;
        bool reached = run_jobs(watch);
        if (take_poke(watch) || reached || stopping(watch))
            return;
    }
    watch->wait_ms = watch->wait_ms * 2 < longest ? watch->wait_ms * 2 : longest;
}

static void *follow(void *data)
{
    struct source_watch *watch = data;
    /* Where there are more threads than CPUs, those that decide go first: reading rules can wait for some milliseconds. */
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    watch->again = !watch->options.was_read || watch->options.had_problems;
    while (!stopping(watch)) {
        struct weir_error error = { .code = WEIR_OK };
        int r = look(watch, &error);
        if (r == 0) {
            r = source_wait(watch->source, (int)watch->options.poll_ms, watch->wake[0], &error);
            if (r < 0)
                out_of_reach(watch, &error);
            tell_state(watch);
        }
        if (r < 0) {
            back_off(watch);
            continue;
        }
        watch->wait_ms = watch->options.poll_ms;
        take_poke(watch);
        run_jobs(watch);
    }
    leave_jobs(watch);
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
    int no = thread_start(&watch->thread, follow, watch);
    return no ? err_set(error, WEIR_E_SYSTEM, "cannot start a thread that follows the rules: %s", strerror(no)) : 0;
}

int source_watch_start(struct source_watch **ret, struct source *source, struct rules *last,
                       const struct source_watch_options *options, struct weir_error *error)
{
    struct source_watch *watch = calloc(1, sizeof *watch);
    int r = 0;
    unsigned poll_ms = options->poll_ms ? options->poll_ms : POLL_DEFAULT_MS;
    if (!watch) {
        source_close(source);
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    }
    *watch = (struct source_watch){ .source = source,
                                    .options = *options,
                                    .wake = { -1, -1 },
                                    .wait_ms = poll_ms,
                                    .state = { .good_us = options->was_read ? clock_now_us() : 0,
                                               .reachable = options->was_read,
                                               .reason = "weir has not tried to read it yet" } };
    watch->options.poll_ms = poll_ms;
    watch->last = last ? rules_share(last) : NULL;
    watch->jobs_end = &watch->jobs;
    pthread_mutex_init(&watch->lock, NULL);
    if (poll_ms < POLL_MIN_MS || poll_ms > POLL_MAX_MS)
        r = err_set(error, WEIR_E_INVALID, "the poll interval must be %d ms to %d ms, not %u ms", POLL_MIN_MS, POLL_MAX_MS,
                    poll_ms);
    else if (pipe2(watch->wake, O_CLOEXEC | O_NONBLOCK) < 0)
        r = err_set(error, WEIR_E_SYSTEM, "cannot create a pipe: %s", strerror(errno));
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
    {
        HOLD_LOCK(&watch->lock);
        watch->stopping = true;
    }
    wake(watch);
    pthread_join(watch->thread, NULL);
    watch_free(watch);
}
