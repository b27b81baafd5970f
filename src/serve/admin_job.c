/* Calls that need the rule thread: suspended, worked on there, answered in the loop's thread. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/err.h"
#include "serve/admin.h"
#include "serve/log.h"

enum { LATE_MAX_MS = 20000 };

/* ---- tags ---- */

enum { TAG_MAX = 24 };

static sv tag_text(uint64_t version, char text[TAG_MAX])
{
    return sv_of(text, (size_t)snprintf(text, TAG_MAX, "\"%016" PRIx64 "\"", version));
}

bool admin_tag_in(sv tags, uint64_t version)
{
    char text[TAG_MAX];
    sv tag = tag_text(version, text);
    while (version && tags.len > 0) {
        sv one = sv_trim(sv_cut(&tags, ','));
        if (sv_eq(one, tag) || sv_eq(one, SV("*")))
            return true;
    }
    return false;
}

bool admin_tags_are_good(sv tags)
{
    do {
        sv one = sv_trim(sv_cut(&tags, ','));
        if (sv_starts(one, SV("W/")))
            one = sv_from(one, 2);
        bool quoted = one.len >= 2 && one.ptr[0] == '"' && one.ptr[one.len - 1] == '"';
        if (!quoted && !sv_eq(one, SV("*")))
            return false;
    } while (tags.len > 0);
    return true;
}

/* ---- from the call ---- */

/* A tag with a syntax error would look like an old version. */
static bool tags_are_good(struct http_call *call)
{
    static const char *const names[] = { "if-match", "if-none-match" };
    for (size_t i = 0; i < 2; i++) {
        sv tags = http_header(call, names[i]);
        if (tags.ptr && !admin_tags_are_good(tags)) {
            http_error(call, 400, "send the ETag as it came, such as If-Match: \"0123456789abcdef\"",
                       "the header %s must be `*` or versions in quotes", i ? "If-None-Match" : "If-Match");
            return false;
        }
    }
    return true;
}

static bool copy(struct admin_job *job, sv text, sv *ret)
{
    *ret = text.ptr ? arena_copy(&job->arena, text) : (sv){ 0 };
    return !text.ptr || ret->ptr;
}

static bool copy_texts(struct admin_job *job, struct http_call *call, const struct admin_work *work)
{
    bool copied = true;
    for (size_t i = 0; i < ADMIN_TEXTS && work->texts[i]; i++)
        copied = copied && copy(job, http_parameter(call, work->texts[i], 0), &job->texts[i]);
    return copied;
}

static bool copy_all(struct admin_job *job, struct http_call *call, const struct admin_work *work, sv id, sv subject)
{
    job->dry_run = admin_is_dry_run(call);
    return copy(job, id, &job->id) && copy(job, subject, &job->subject) && copy_texts(job, call, work) &&
           copy(job, call->body, &job->body) && copy(job, http_header(call, "if-match"), &job->if_match) &&
           copy(job, http_header(call, "if-none-match"), &job->if_none_match) &&
           copy(job, admin_author(call), &job->author.who) &&
           copy(job, sv_trim(http_header(call, "x-weir-note")), &job->author.note);
}

static void job_free(struct admin_job *job)
{
    arena_done(&job->arena);
    buf_done(&job->out);
    buf_done(&job->stored);
    free(job);
}

/* ---- to the answer ---- */

static unsigned status_of(const struct admin_job *job)
{
    if (job->status)
        return job->status;
    switch (job->result) {
    case WEIR_E_INVALID:
        return 400;
    case WEIR_E_UNKNOWN_RULE:
        return 404;
    case WEIR_E_RULES:
        return job->work->change ? 422 : 503; /* the rules that were sent are bad, or those of the source */
    default:
        return job->result < 0 ? 503 : 200;
    }
}

static void answer(struct admin_job *job)
{
    struct http_call *call = job->call;
    char tag[TAG_MAX];
    struct weir_header etag = { WEIR_STR("ETag"), tag_text(job->version, tag) };
    bool known =
        !job->work->change && admin_tag_in(job->if_none_match, job->version); /* to the client: it is not sent again */
    struct http_answer good = { known ? 304 : status_of(job), SV(""), known ? SV("") : buf_sv(&job->out), &etag,
                                job->version != 0 };
    if (job->result < 0) {
        if (good.status == 503)
            call->extra = (struct weir_header){ WEIR_STR("Retry-After"), WEIR_STR("5") };
        http_error(call, good.status,
                   good.status == 412 ? "read it again, and apply the change to the current version" : NULL, "%s",
                   job->error.text);
    } else if (job->out.failed)
        http_error(call, 503, NULL, "out of memory for the answer");
    else
        http_answer(call, &good);
}

static void closed(uv_handle_t *late)
{
    job_free(late->data);
}

static void finish(struct loop_task *task)
{
    struct admin_job *job = (struct admin_job *)((char *)task - offsetof(struct admin_job, task));
    if (job->result >= 0 && job->job.writes)
        log_say(LEVEL_INFO, "change", "%s%.*s: %s by %.*s",
                job->id.len         ? "rule "
                : job->work->of_all ? "history"
                                    : "settings",
                SV_FMT(job->id), job->work->change, SV_FMT(job->author.who));
    if (job->call)
        answer(job);
    uv_close((uv_handle_t *)&job->late, closed);
}

static bool leave_waiting(struct admin_job *job, int stage)
{
    int waiting = ADMIN_WAITING;
    return __atomic_compare_exchange_n(&job->stage, &waiting, stage, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Work that has begun continues, and its result is lost. */
static void on_late(uv_timer_t *late)
{
    struct admin_job *job = late->data;
    struct http_call *call = job->call;
    struct rule_sync_state state;
    bool given_up = leave_waiting(job, ADMIN_GIVEN_UP);
    job->call = NULL;
    rule_sync_state(job->loop->server->rule_sync, &state);
    http_error(call, 504, !given_up && job->work->change ? "the change may still be made: check before you retry" : NULL,
               "%s has not answered in time%s%s%s", state.source, state.reachable ? "" : "; ",
               state.reachable ? "" : state.problem, given_up ? "; nothing was done" : "");
}

/* ---- in the rule thread ---- */

static int run(struct source *source, struct source_job *base, struct weir_error *error)
{
    struct admin_job *job = (struct admin_job *)base;
    if (!leave_waiting(job, ADMIN_BEGUN))
        return err_set(error, WEIR_E_SYSTEM, "the request timed out before it was begun");
    return job->work->run(source, job, error);
}

static void done(struct source_job *base, int result, const struct weir_error *error)
{
    struct admin_job *job = (struct admin_job *)base;
    job->result = result;
    if (result < 0)
        job->error = *error;
    loop_post(job->loop, &job->task);
}

/* ---- starting ---- */

/* A value that is not understood must not become a change. */
static bool dry_run_is_known(struct http_call *call)
{
    static const char *const values[] = { "1", "true", "0", "false" };
    sv value = http_parameter(call, "dry_run", 0);
    for (size_t i = 0; value.ptr && i < sizeof values / sizeof *values; i++)
        if (sv_eq(value, weir_str(values[i])))
            return true;
    if (value.ptr)
        http_error(call, 400, NULL, "the parameter `dry_run` must be 1 or 0");
    return !value.ptr;
}

/* The comments of a file belong to its author, so it is not rewritten. */
static bool source_can(const struct admin_job *job)
{
    const struct admin_work *work = job->work;
    struct rule_sync_state state;
    rule_sync_state(job->loop->server->rule_sync, &state);
    if (!state.is_file)
        return true;
    if (work->needs_history)
        http_error(job->call, 409, "keep it under version control", "the rules are in %s: a file has no history here",
                   state.source);
    else if (work->change && !job->dry_run)
        http_error(job->call, 409,
                   "change the file: the service notices it, and the change is in force within a second or so",
                   "the rules are in %s, a file that the service only reads", state.source);
    else
        return true;
    return false;
}

/* NULL: the call has been answered. */
static struct admin_job *job_new(struct http_call *call, sv id, sv subject, const struct admin_work *work)
{
    struct admin_job *job = calloc(1, sizeof *job);
    if (job && copy_all(job, call, work, id, subject)) {
        job->job.run = run;
        job->job.done = done;
        job->job.writes = work->change && !job->dry_run;
        job->task.run = finish;
        job->call = call;
        job->loop = call->loop;
        job->work = work;
        job->role = admin_caller(call).role;
        buf_init(&job->out, ADMIN_BODY_MAX);
        buf_init(&job->stored, ADMIN_BODY_MAX);
        return job;
    }
    if (job)
        job_free(job);
    http_error(call, 503, NULL, "out of memory");
    return NULL;
}

/* False: a parameter is unknown or wrong, and the call has been answered. */
static bool read_parameters(struct http_call *call, const struct admin_work *work, uint64_t numbers[ADMIN_NUMBERS])
{
    const char *names[ADMIN_NUMBERS + ADMIN_TEXTS + 2] = { 0 };
    size_t count = 0;
    if (work->takes_dry_run)
        names[count++] = "dry_run";
    for (size_t i = 0; i < ADMIN_NUMBERS && work->numbers[i].name; i++)
        names[count++] = work->numbers[i].name;
    for (size_t i = 0; i < ADMIN_TEXTS && work->texts[i]; i++)
        names[count++] = work->texts[i];
    if (!admin_check_parameters(call, names) || !dry_run_is_known(call))
        return false;
    for (size_t i = 0; i < ADMIN_NUMBERS && work->numbers[i].name; i++)
        if (!admin_number(call, work->numbers[i].name, work->numbers[i].min, work->numbers[i].max,
                          work->numbers[i].otherwise, &numbers[i]))
            return false;
    return true;
}

void admin_job_start(struct http_call *call, struct server *server, sv id, sv subject, const struct admin_work *work)
{
    uint64_t numbers[ADMIN_NUMBERS] = { 0 };
    if ((work->needs_json && !http_is_json(call)) || !read_parameters(call, work, numbers) || !tags_are_good(call))
        return;
    struct admin_job *job = job_new(call, id, subject, work);
    if (!job)
        return;
    memcpy(job->numbers, numbers, sizeof numbers);
    if (!source_can(job)) {
        job_free(job);
        return;
    }
    struct loop *loop = job->loop;
    unsigned late_ms = loop->conns.limits.request_ms / 5 * 4;
    if (!rule_sync_run(server->rule_sync, &job->job)) {
        job_free(job);
        call->extra = (struct weir_header){ WEIR_STR("Retry-After"), WEIR_STR("5") };
        http_error(call, 503, NULL, "%d other requests are already waiting for the source of the rules", SOURCE_JOBS_MAX);
        return;
    }
    /* Even if it is done at once, it is answered in a later turn of this loop. */
    http_suspend(call);
    uv_timer_init(&loop->uv, &job->late);
    job->late.data = job;
    uv_timer_start(&job->late, on_late, late_ms < LATE_MAX_MS ? late_ms : LATE_MAX_MS, 0);
}
