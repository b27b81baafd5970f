#include "serve/counts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "engine/handle.h"
#include "serve/counts_lists.h"
#include "serve/log.h"
#include "serve/refusals.h"
#include "serve/server.h"
#include "serve/status_facts.h"

/* Steps that wait for a slow disk, and windows for a step: further ones are lost. */
enum { STEPS_WAITING_MAX = 6, WINDOWS_WAITING_MAX = 8 };

struct waiting_step {
    struct waiting_step *next;
    struct counts_refused refused;
    struct counts_step step; /* last: it has a flexible member */
};

enum work_kind { WORK_RESTORE, WORK_STEP, WORK_QUESTION };

struct counts {
    struct server *server;
    struct counts_db *db;   /* of the thread that works */
    struct tally_mark mark; /* the counters when the step began, or when its first part was handed over */
    int64_t at_s;           /* the step that has begun */
    uv_timer_t timer;
    struct waiting_step *steps; /* the oldest first */
    struct counts_question *questions;
    unsigned step_count, question_count;
    struct counts_window *windows; /* for the next step */
    unsigned window_count;

    /* Refused subjects and requests. Nothing is added to those of earlier runs before they were read: then nothing of this
     * run can be among them. */
    bool keeps; /* --keep-subjects */
    bool restored, restore_due;
    counts_restored_fn *on_restored;

    /* One piece of work at a time. */
    uv_work_t work;
    bool working;
    enum work_kind kind;
    struct counts_earlier earlier; /* what WORK_RESTORE has read */
    struct waiting_step *step;     /* that WORK_STEP writes */
    struct counts_question *question;
    struct weir_error error;
    int result;
    bool failing; /* and the log has said so */
};

static void step_free(struct waiting_step *step)
{
    if (step)
        counts_refused_done(&step->refused);
    free(step);
}

/* ---- in a thread of libuv ---- */

static int use_file(struct counts *counts)
{
    if (counts->kind == WORK_STEP)
        return counts_db_add(counts->db, &counts->step->step, &counts->step->refused, &counts->error);
    if (!counts->keeps)
        return counts_db_forget_refused(counts->db, &counts->error);
    int64_t now_s = clock_within(clock_now_us()) / US_PER_S;
    return counts_db_read_earlier(counts->db, now_s, &counts->earlier, &counts->error);
}

static void work(uv_work_t *work)
{
    struct counts *counts = work->data;
    struct counts_question *question = counts->question;
    if (counts->kind == WORK_QUESTION) {
        question->result = counts_db_read(counts->db, &question->query, &question->out, &question->error);
        return;
    }
    counts->result = use_file(counts);
    if (counts->result == WEIR_E_RULES) { /* a damaged file was put aside, and the second try finds a new one */
        log_say(LEVEL_ERROR, "counts", "%s", counts->error.text);
        counts->result = use_file(counts);
    }
}

/* ---- in the thread of the loop ---- */

/* A step without what was refused in it is not stored, either. */
static void report(struct counts *counts)
{
    bool failed = counts->result < 0 || !counts->restored;
    if (failed && !counts->failing)
        log_say(LEVEL_ERROR, "counts", "counts over time are not stored: %s", counts->error.text);
    else if (!failed && counts->failing)
        log_say(LEVEL_INFO, "counts", "counts over time are stored again");
    counts->failing = failed;
}

static void restore_done(struct counts *counts)
{
    counts->restored = counts->result == 0;
    report(counts);
    if (counts->earlier.top)
        counts->on_restored(counts->server, &counts->earlier);
    counts_earlier_done(&counts->earlier);
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

/* Returns the part of the newest step that the file does not have. NULL: no memory. */
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
    size_t other;
    bool some_unknown = tally_find(counts->server->tally, SV(STATS_OTHER), &other) &&
                        tally_busy(tally_rule_since(counts->server->tally, &counts->mark, other)) > 0;
    for (size_t i = 0; i < query->rule_count; i++) {
        size_t rule;
        if (tally_find(counts->server->tally, query->rules[i], &rule))
            step->rules[i].said = tally_rule_since(counts->server->tally, &counts->mark, rule);
        else
            step->rules[i].unknown = some_unknown;
    }
    return step;
}

static void begin_work(struct counts *counts);

static void work_done(uv_work_t *work, int status)
{
    struct counts *counts = work->data;
    (void)status; /* nobody cancels it */
    counts->working = false;
    if (counts->kind == WORK_RESTORE)
        restore_done(counts);
    else if (counts->kind == WORK_QUESTION)
        question_answered(counts);
    else {
        report(counts);
        step_free(STEAL(counts->step));
    }
    begin_work(counts);
}

static void begin_step(struct counts *counts)
{
    counts->kind = WORK_STEP;
    counts->step = counts->steps;
    counts->steps = counts->step->next;
    counts->step_count--;
    if (!counts->restored)
        counts_refused_done(&counts->step->refused);
}

static void begin_question(struct counts *counts)
{
    counts->kind = WORK_QUESTION;
    counts->question = counts->questions;
    counts->questions = counts->question->next;
    counts->question_count--;
    counts->question->query.newest = newest(counts, &counts->question->query);
}

/* Steps before questions: then `newest` has just what the file does not have. */
static void begin_work(struct counts *counts)
{
    if (counts->working || (!counts->restore_due && !counts->steps && !counts->questions))
        return;
    if (counts->restore_due) {
        counts->restore_due = false;
        counts->kind = WORK_RESTORE;
    } else if (counts->steps)
        begin_step(counts);
    else
        begin_question(counts);
    counts->working = true;
    uv_queue_work(&counts->server->loops[counts->server->loop_count].uv, &counts->work, work, work_done);
}

/* ---- steps ---- */

static void fill_rule(struct counts_rule *to, const char *id, struct stats_said said)
{
    snprintf(to->id, sizeof to->id, "%s", id);
    to->said = said;
}

/* Lists that have no memory are lost. */
static void take_refused(struct counts *counts, struct counts_refused *ret)
{
    ret->windows = STEAL(counts->windows);
    counts->window_count = 0;
    if (counts->keeps)
        refusals_take(counts->server->refusals, COUNTS_REFUSALS_MAX, &ret->recent);
}

/* Returns the counts since the mark, in the step that has begun. NULL: no memory. */
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
    if (tally_set_mark(counts->server->tally, &counts->mark) < 0) {
        free(taken);
        return NULL;
    }
    take_refused(counts, &taken->refused);
    return taken;
}

static void hand_over(struct counts *counts, struct waiting_step *step)
{
    struct waiting_step **end = &counts->steps;
    if (!step || counts->step_count == STEPS_WAITING_MAX) {
        step_free(step);
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
        counts->restore_due = !counts->restored && !(counts->working && counts->kind == WORK_RESTORE);
        hand_over(counts, take_step(counts));
        counts->at_s = at_s;
    }
    begin_work(counts);
    int64_t rest_us = (at_s + COUNTS_STEP_S) * US_PER_S - now_us;
    uv_timer_start(timer, on_time, (uint64_t)(rest_us / US_PER_MS + 1), 0);
}

void counts_keep_window(struct counts *counts, int64_t start_us, struct top_list *list)
{
    struct counts_window *window, **end;
    if (!counts || !counts->keeps || counts->window_count == WINDOWS_WAITING_MAX || !(window = calloc(1, sizeof *window)))
        return;
    window->start_us = start_us;
    window->list = *list;
    *list = (struct top_list){ .entries = NULL };
    for (end = &counts->windows; *end; end = &(*end)->next)
        ;
    *end = window;
    counts->window_count++;
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

int counts_new(struct counts **ret, struct server *server, counts_restored_fn *on_restored)
{
    CLEANUP_FREE char *path = NULL;
    struct counts *counts = calloc(1, sizeof *counts);
    if (!counts || asprintf(&path, "%s/counts.db", server->config.data) < 0 ||
        counts_db_new(&counts->db, path, &counts_bounds, cells_hash_key(server->weir->cells)) < 0) {
        free(counts);
        return WEIR_E_NO_MEMORY;
    }
    counts->server = server;
    counts->keeps = server->config.keep_subjects == CONFIG_YES;
    counts->restore_due = true;
    counts->on_restored = on_restored;
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
    counts_refused_done(&(struct counts_refused){ .windows = counts->windows });
    tally_mark_done(&counts->mark);
    uv_close((uv_handle_t *)&counts->timer, closed);
}
