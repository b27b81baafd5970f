#include "serve/rule_sync.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"
#include "engine/handle.h"
#include "serve/log.h"
#include "serve/rule_sync_internal.h"

/* ---- called in the rule thread ---- */

static int on_rules(struct rules *rules, const struct source_problem *problems, size_t count, void *data,
                    struct weir_error *error)
{
    struct rule_sync *sync = data;
    int r = rule_sync_install(sync, rules, error);
    if (r < 0)
        return r;
    rule_sync_note_problems(sync, problems, count);
    if (r > 0)
        rule_sync_write_copy(sync);
    HOLD_LOCK(&sync->lock);
    sync->from_copy = false;
    return 0;
}

static void on_state(const struct source_watch_state *state, void *data)
{
    struct rule_sync *sync = data;
    if (state->reachable == sync->said_reachable)
        return;
    sync->said_reachable = state->reachable;
    if (state->reachable)
        log_say(LEVEL_INFO, "source", "weir can read the rules from %s again", sync->name);
    else
        log_say(LEVEL_WARNING, "source", "cannot read the rules from %s: %s; the last good ones stay in force", sync->name,
                state->reason);
}

/* The rules may not change for months after the disk was full for a minute. */
static void on_look(void *data)
{
    struct rule_sync *sync = data;
    if (sync->copy_failed && sync->kept.text.rules && clock_steady_us() >= sync->copy_again_us)
        rule_sync_write_copy(sync);
}

/* ---- from start to end ---- */

static int open_all(struct rule_sync *sync, const struct config *config, struct weir_error *error)
{
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(rules_freep) struct rules *last = NULL;
    struct source_watch_options options = {
        .poll_ms = config->poll_ms, .on_rules = on_rules, .on_state = on_state, .on_look = on_look, .data = sync
    };
    int r = rule_sync_open_source(sync, config, &source, error);
    if (r == 0)
        r = rule_sync_first_rules(sync, source, config, &last, error);
    if (r < 0)
        return r;
    sync->said_reachable = options.was_read = !sync->from_copy;
    options.had_problems = sync->problems.count > 0;
    return source_watch_start(&sync->watch, STEAL(source), last, &options, error); /* takes over the source in any case */
}

CLEANUP_POINTER(struct rule_sync *, rule_sync_stop);

int rule_sync_start(struct rule_sync **ret, const struct config *config, struct weir **ret_weir, struct weir_error *error)
{
    CLEANUP(rule_sync_stopp) struct rule_sync *sync = cleanup_calloc(1, sizeof *sync);
    if (!sync)
        return err_no_memory(error);
    pthread_mutex_init(&sync->lock, NULL);
    int r = open_all(sync, config, error);
    if (r < 0)
        return r;
    *ret_weir = sync->weir;
    *ret = STEAL(sync);
    return 0;
}

void rule_sync_stop(struct rule_sync *sync)
{
    if (!sync)
        return;
    source_watch_stop(sync->watch);
    weir_close(sync->weir);
    arena_done(&sync->problems.arena);
    kept_text_done(&sync->kept);
    pthread_mutex_destroy(&sync->lock);
    free(sync->copy);
    free(sync->name);
    free(sync);
}

bool rule_sync_run(struct rule_sync *sync, struct source_job *job)
{
    return source_watch_run(sync->watch, job);
}

void rule_sync_look_now(struct rule_sync *sync)
{
    source_watch_look_now(sync->watch);
}

bool rule_sync_is_file(const struct rule_sync *sync)
{
    return sync->is_file;
}

void rule_sync_state(struct rule_sync *sync, struct rule_sync_state *ret)
{
    struct source_watch_state watch;
    source_watch_state(sync->watch, &watch);
    *ret = (struct rule_sync_state){ .is_file = sync->is_file,
                                     .reachable = watch.reachable,
                                     .good_us = watch.good_us,
                                     .problem_count = watch.problem_count };
    snprintf(ret->source, sizeof ret->source, "%s", sync->name);
    HOLD_LOCK(&sync->lock);
    ret->from_copy = sync->from_copy;
    ret->rules = sync->rules;
    if (sync->from_copy)
        snprintf(ret->problem, sizeof ret->problem, "the rules are those of an earlier run: %s", watch.reason);
    else
        memcpy(ret->problem, watch.problem, sizeof ret->problem);
}

void rule_sync_problems(struct rule_sync *sync, rule_sync_problem *each, void *data)
{
    HOLD_LOCK(&sync->lock);
    for (size_t i = 0; i < sync->problems.count; i++)
        each(&sync->problems.list[i], data);
}
