#include "serve/rule_sync.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "engine/weir.h"
#include "serve/log.h"
#include "serve/rule_sync_internal.h"

enum { PROBLEMS_LOGGED_MAX = 50, PROBLEM_BYTES_MAX = 1000 };

/* ---- what is wrong with rows ---- */

static void add_line(const struct source_problem *problem, struct buf *out)
{
    struct buf line;
    buf_init(&line, RULES_BYTES_MAX);
    source_problem_print(problem, &line);
    sv text = sv_trim(buf_sv(&line));
    text.len = text.len < PROBLEM_BYTES_MAX ? text.len : PROBLEM_BYTES_MAX;
    buf_add(out, text);
    buf_done(&line);
}

static bool same_problem(const struct source_problem *a, const struct source_problem *b)
{
    return sv_eq(a->row, b->row) && sv_eq(a->text, b->text) && sv_eq(a->table, b->table);
}

static bool was_known(const struct problems *before, const struct source_problem *problem)
{
    for (size_t i = 0; i < before->count; i++)
        if (same_problem(&before->list[i], problem))
            return true;
    return false;
}

/* Only what is new. */
static void log_problems(const struct rule_sync *sync, const struct source_problem *list, size_t count)
{
    size_t said = 0, unsaid = 0;
    for (size_t i = 0; i < count; i++) {
        struct buf line;
        if (was_known(&sync->problems, &list[i]))
            continue;
        if (said++ >= PROBLEMS_LOGGED_MAX) {
            unsaid++;
            continue;
        }
        buf_init(&line, 2 * PROBLEM_BYTES_MAX);
        add_line(&list[i], &line);
        log_say(LEVEL_WARNING, "rules", "bad %s: %.*s", sync->is_file ? "rule" : "row", SV_FMT(buf_sv(&line)));
        buf_done(&line);
    }
    if (unsaid > 0)
        log_say(LEVEL_WARNING, "rules", "and %zu more bad %s; GET /v1/status of the admin listener has them", unsaid,
                sync->is_file ? "rules" : "rows");
    if (count == 0 && sync->problems.count > 0)
        log_say(LEVEL_INFO, "rules", "all %s of %s are good again", sync->is_file ? "rules" : "rows", sync->name);
}

static struct problems copy_problems(const struct source_problem *list, size_t count)
{
    struct problems copy = { 0 };
    copy.list = ARENA_ARRAY(&copy.arena, struct source_problem, count + 1);
    for (; copy.list && copy.count < count; copy.count++) {
        const struct source_problem *from = &list[copy.count];
        copy.list[copy.count] = (struct source_problem){
            .table = arena_copy(&copy.arena, from->table),
            .row = arena_copy(&copy.arena, from->row),
            .rule = arena_copy(&copy.arena, from->rule),
            .text = arena_copy(&copy.arena, from->text),
        };
    }
    return copy;
}

void rule_sync_note_problems(struct rule_sync *sync, const struct source_problem *list, size_t count)
{
    log_problems(sync, list, count);
    struct problems copy = copy_problems(list, count);
    pthread_mutex_lock(&sync->lock);
    struct problems old = sync->problems;
    sync->problems = copy;
    pthread_mutex_unlock(&sync->lock);
    arena_done(&old.arena);
}

void rule_sync_problems(struct rule_sync *sync, rule_sync_problem *each, void *data)
{
    pthread_mutex_lock(&sync->lock);
    for (size_t i = 0; i < sync->problems.count; i++)
        each(&sync->problems.list[i], data);
    pthread_mutex_unlock(&sync->lock);
}

/* ---- rules that are to be shared, and no store ---- */

enum { ALONE_NAMED_MAX = 10 };

/* Said once for the same rules. */
static void tell_of_alone(struct rule_sync *sync, const struct rules *rules)
{
    static const struct hash_key key = { 0, 0 };
    size_t count = 0;
    struct hash hash;
    struct buf names;
    hash_init(&hash, &key);
    buf_init(&names, 2 * ALONE_NAMED_MAX * WEIR_ID_MAX);
    for (size_t i = 0; !sync->has_store && i < rules->rule_count; i++) {
        const struct rule *rule = &rules->rules[i];
        if (rule->counters != COUNTERS_SHARED || rule->mode == MODE_OFF)
            continue;
        hash_text(&hash, rule->id.ptr, rule->id.len);
        if (count++ >= ALONE_NAMED_MAX)
            continue;
        buf_add(&names, count > 1 ? SV(", ") : SV(""));
        buf_add(&names, rule->id);
    }
    uint64_t which = count > 0 ? hash_final(&hash) | 1 : 0;
    if (count > 0 && which != sync->alone)
        log_say(LEVEL_WARNING, "rules",
                "%zu %s to be shared by many hosts, but without --counters %s on this host alone: %.*s%s", count,
                count == 1 ? "rule is" : "rules are", count == 1 ? "it counts" : "they count", SV_FMT(buf_sv(&names)),
                count > ALONE_NAMED_MAX ? ", …" : "");
    sync->alone = which;
    buf_done(&names);
}

/* ---- putting rules in force ---- */

int rule_sync_install(struct rule_sync *sync, struct rules *rules, struct weir_error *error)
{
    size_t count = rules_in_force(rules, clock_now_us());
    struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    rules_write(rules, &text);
    bool same = !text.failed && sync->text.len > 0 && sv_eq(buf_sv(&sync->text), buf_sv(&text));
    if (!same)
        tell_of_alone(sync, rules);
    int r = same ? 0 : weir_take_rules(sync->weir, rules, error);
    if (same)
        rules_free(rules);
    if (r < 0) {
        buf_done(&text);
        return r;
    }
    buf_done(&sync->text);
    sync->text = text;
    pthread_mutex_lock(&sync->lock);
    sync->rules = count;
    pthread_mutex_unlock(&sync->lock);
    if (!same)
        log_say(LEVEL_INFO, "rules", "%zu %s of %s %s in force", count, count == 1 ? "rule" : "rules", sync->name,
                count == 1 ? "is" : "are");
    return !same;
}

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
    pthread_mutex_lock(&sync->lock);
    sync->from_copy = false;
    pthread_mutex_unlock(&sync->lock);
    return 0;
}

static void on_state(const struct source_watch_state *state, void *data)
{
    struct rule_sync *sync = data;
    if (state->reachable == sync->said_reachable)
        return;
    sync->said_reachable = state->reachable;
    if (state->reachable)
        log_say(LEVEL_INFO, "source", "the rules of %s can be had again", sync->name);
    else
        log_say(LEVEL_WARNING, "source", "the rules of %s cannot be had: %s; the last good ones stay in force", sync->name,
                state->reason);
}

/* ---- from start to end ---- */

static int open_all(struct rule_sync *sync, const struct config *config, struct weir_error *error)
{
    struct source *source = NULL;
    struct rules *last = NULL;
    struct source_watch_options options = {
        .poll_ms = config->poll_ms, .on_rules = on_rules, .on_state = on_state, .data = sync
    };
    int r = rule_sync_open_source(sync, config, &source, error);
    if (r == 0)
        r = rule_sync_first_rules(sync, source, config, &last, error);
    if (r < 0) {
        source_close(source);
        return r;
    }
    sync->said_reachable = options.was_read = !sync->from_copy;
    r = source_watch_start(&sync->watch, source, last, &options, error); /* takes over the source in any case */
    rules_free(last);
    return r;
}

int rule_sync_start(struct rule_sync **ret, const struct config *config, struct weir **ret_weir, struct weir_error *error)
{
    struct rule_sync *sync = calloc(1, sizeof *sync);
    if (!sync)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
    pthread_mutex_init(&sync->lock, NULL);
    buf_init(&sync->text, RULES_BYTES_MAX);
    int r = open_all(sync, config, error);
    if (r < 0) {
        rule_sync_stop(sync);
        return r;
    }
    *ret_weir = sync->weir;
    *ret = sync;
    return 0;
}

void rule_sync_stop(struct rule_sync *sync)
{
    if (!sync)
        return;
    source_watch_stop(sync->watch);
    weir_close(sync->weir);
    arena_done(&sync->problems.arena);
    buf_done(&sync->text);
    pthread_mutex_destroy(&sync->lock);
    free(sync->copy);
    free(sync->name);
    free(sync);
}

bool rule_sync_run(struct rule_sync *sync, struct source_job *job)
{
    return source_watch_run(sync->watch, job);
}

void rule_sync_poke(struct rule_sync *sync)
{
    source_watch_poke(sync->watch);
}

void rule_sync_state(struct rule_sync *sync, struct rule_sync_state *ret)
{
    struct source_watch_state watch;
    source_watch_state(sync->watch, &watch);
    *ret = (struct rule_sync_state){ .is_file = sync->is_file,
                                     .reachable = watch.reachable,
                                     .good_us = watch.good_us,
                                     .problem_count = watch.problem_count };
    pthread_mutex_lock(&sync->lock);
    ret->from_copy = sync->from_copy;
    ret->rules = sync->rules;
    if (sync->from_copy)
        snprintf(ret->problem, sizeof ret->problem, "the rules are those of an earlier run: %s", watch.reason);
    else
        memcpy(ret->problem, watch.problem, sizeof ret->problem);
    pthread_mutex_unlock(&sync->lock);
    snprintf(ret->source, sizeof ret->source, "%s", sync->name);
}
