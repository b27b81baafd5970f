#include "serve/counts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/log.h"
#include "serve/server.h"
#include "serve/status_facts.h"

/* Steps that wait for a slow disk. Further ones are lost. */
enum { STEPS_WAITING_MAX = 6 };

struct waiting_step {
    struct waiting_step *next;
    struct counts_step step; /* last: it has a flexible member */
};

struct counts {
    struct server *server;
    struct counts_db *db;   /* of the thread that works */
    struct tally_mark mark; /* the counters when the step began, or when its first part was handed over */
    int64_t at_s;           /* the step that has begun */
    uv_timer_t timer;
    struct waiting_step *steps; /* the oldest first */
    struct counts_question *questions;
    unsigned step_count, question_count;

    /* One piece of work at a time. */
    uv_work_t work;
    bool working;
    struct waiting_step *step; /* that it writes, or … */
    struct counts_question *question;
    struct weir_error error;
    int result;
    bool failing; /* and the log has said so */
};

/* ---- in a thread of libuv ---- */

/* A damaged file is put aside, and the second try finds a new one. */
static void write_step(struct counts *counts)
{
    struct weir_error aside = { .code = WEIR_OK };
    counts->result = counts_db_add(counts->db, &counts->step->step, &counts->error);
    if (counts->result == WEIR_E_RULES) {
        aside = counts->error;
        counts->result = counts_db_add(counts->db, &counts->step->step, &counts->error);
    }
    if (aside.code != WEIR_OK)
        log_say(LEVEL_ERROR, "counts", "%s", aside.text);
}

static void work(uv_work_t *work)
{
    struct counts *counts = work->data;
    struct counts_question *question = counts->question;
    if (counts->step)
        write_step(counts);
    else
        question->result = counts_db_read(counts->db, &question->query, &question->out, &question->error);
}

/* ---- in the thread of the loop ---- */

static void step_written(struct counts *counts)
{
    bool failed = counts->result < 0;
    if (failed && !counts->failing)
        log_say(LEVEL_ERROR, "counts", "counts over time are not stored: %s", counts->error.text);
    else if (!failed && counts->failing)
        log_say(LEVEL_INFO, "counts", "counts over time are stored again");
    counts->failing = failed;
    free(STEAL(counts->step));
}

static void question_answered(struct counts *counts)
{
    struct counts_question *question = STEAL(counts->question);
    if (question->result == WEIR_E_RULES)
        log_say(LEVEL_ERROR, "counts", "%s", question->error.text);
    free((void *)STEAL(question->query.newest));
    question->done(question);
}

static struct counts_gauges read_gauges(struct server *server)
{
    struct status_facts facts;
    status_look(server, &facts);
    return (struct counts_gauges){
        .table_fill = facts.engine.cells ? (double)facts.used_cells / (double)facts.engine.cells : 0,
        .store_up = facts.store.configured ? facts.store.up : -1,
        .lease_tokens_held = facts.store.held,
        .holds = status_holds(server, clock_within(facts.now_us)),
    };
}

/* The part of the newest step that the file does not have. NULL: no memory. */
static struct counts_step *newest(struct counts *counts, const struct counts_query *query)
{
    struct counts_step *step = calloc(1, sizeof *step + query->rule_count * sizeof step->rules[0]);
    if (!step || tally_read(counts->server->tally) < 0) {
        free(step);
        return NULL;
    }
    step->at_s = counts->at_s;
    step->all = tally_since(counts->server->tally, &counts->mark);
    step->gauges = read_gauges(counts->server);
    step->count = query->rule_count;
    for (size_t i = 0; i < query->rule_count; i++) {
        size_t rule;
        if (tally_find(counts->server->tally, query->rules[i], &rule))
            step->rules[i].said = tally_rule_since(counts->server->tally, &counts->mark, rule);
    }
    return step;
}

static void begin_work(struct counts *counts);

static void work_done(uv_work_t *work, int status)
{
    struct counts *counts = work->data;
    (void)status; /* nobody cancels it */
    counts->working = false;
    if (counts->step)
        step_written(counts);
    else
        question_answered(counts);
    begin_work(counts);
}

/* Steps first: then `newest` has just what the file does not have. */
static void begin_work(struct counts *counts)
{
    if (counts->working || (!counts->steps && !counts->questions))
        return;
    if (counts->steps) {
        counts->step = counts->steps;
        counts->steps = counts->step->next;
        counts->step_count--;
    } else {
        counts->question = counts->questions;
        counts->questions = counts->question->next;
        counts->question_count--;
        counts->question->query.newest = newest(counts, &counts->question->query);
    }
    counts->working = true;
    uv_queue_work(&counts->server->loops[counts->server->loop_count].uv, &counts->work, work, work_done);
}

/* ---- steps ---- */

static void fill_rule(struct counts_rule *to, const char *id, struct stats_said said)
{
    snprintf(to->id, sizeof to->id, "%s", id);
    to->said = said;
}

/* What was counted since the mark, in the step that has begun. NULL: no memory. */
static struct waiting_step *take_step(struct counts *counts)
{
    CLEANUP_FREE struct tally_rule *busiest = cleanup_calloc(COUNTS_RULES_MAX, sizeof *busiest);
    struct stats_said rest;
    if (!busiest || tally_read(counts->server->tally) < 0)
        return NULL;
    size_t count = tally_busiest(counts->server->tally, &counts->mark, busiest, COUNTS_RULES_MAX, &rest);
    struct waiting_step *taken = calloc(1, sizeof *taken + (count + 1) * sizeof taken->step.rules[0]);
    if (!taken)
        return NULL;
    struct counts_step *step = &taken->step;
    step->at_s = counts->at_s;
    step->all = tally_since(counts->server->tally, &counts->mark);
    step->gauges = read_gauges(counts->server);
    for (; step->count < count; step->count++)
        fill_rule(&step->rules[step->count], tally_rule_id(counts->server->tally, busiest[step->count].rule),
                  busiest[step->count].said);
    if (tally_busy(rest) > 0)
        fill_rule(&step->rules[step->count++], STATS_OTHER, rest);
    if (tally_set_mark(counts->server->tally, &counts->mark) == 0)
        return taken;
    free(taken);
    return NULL;
}

static void hand_over(struct counts *counts, struct waiting_step *step)
{
    struct waiting_step **end = &counts->steps;
    if (!step || counts->step_count == STEPS_WAITING_MAX) {
        free(step);
        return;
    }
    while (*end)
        end = &(*end)->next;
    *end = step;
    counts->step_count++;
    begin_work(counts);
}

/* The clock of the wall may step: the counts since the last time belong to the step that had begun then. */
static void on_time(uv_timer_t *timer)
{
    struct counts *counts = timer->data;
    int64_t now_us = clock_within(clock_now_us());
    int64_t at_s = counts_step_of(now_us / US_PER_S, COUNTS_STEP_S);
    if (at_s != counts->at_s) {
        hand_over(counts, take_step(counts));
        counts->at_s = at_s;
    }
    int64_t rest_us = (at_s + COUNTS_STEP_S) * US_PER_S - now_us;
    uv_timer_start(timer, on_time, (uint64_t)(rest_us / US_PER_MS + 1), 0);
}

/* ---- questions ---- */

bool counts_ask(struct counts *counts, struct counts_question *question)
{
    struct counts_question **end = &counts->questions;
    if (counts->question_count == COUNTS_WAITING_MAX)
        return false;
    while (*end)
        end = &(*end)->next;
    *end = question;
    question->next = NULL;
    counts->question_count++;
    begin_work(counts);
    return true;
}

/* ---- life ---- */

int counts_new(struct counts **ret, struct server *server)
{
    CLEANUP_FREE char *path = NULL;
    struct counts *counts = calloc(1, sizeof *counts);
    if (!counts || asprintf(&path, "%s/counts.db", server->config.data) < 0 ||
        counts_db_new(&counts->db, path, &counts_bounds) < 0) {
        free(counts);
        return WEIR_E_NO_MEMORY;
    }
    counts->server = server;
    counts->work.data = counts->timer.data = counts;
    counts->at_s = counts_step_of(clock_within(clock_now_us()) / US_PER_S, COUNTS_STEP_S);
    uv_timer_init(&server->loops[server->loop_count].uv, &counts->timer);
    uv_timer_start(&counts->timer, on_time, 0, 0);
    *ret = counts;
    return 0;
}

static void closed(uv_handle_t *timer)
{
    free(timer->data);
}

/* The loop's thread is gone, so this one runs what is left of its work. */
void counts_free(struct counts *counts)
{
    if (!counts)
        return;
    uv_loop_t *uv = &counts->server->loops[counts->server->loop_count].uv;
    uv_timer_stop(&counts->timer);
    hand_over(counts, take_step(counts));
    while (counts->working)
        uv_run(uv, UV_RUN_ONCE);
    counts_db_free(counts->db);
    tally_mark_done(&counts->mark);
    uv_close((uv_handle_t *)&counts->timer, closed);
}
