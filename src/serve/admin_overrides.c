/* Overrides over HTTP: read from the source, and changed there. Each `work` runs in the rule thread. */
#include <jansson.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "serve/admin.h"
#include "source/show.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };
/* The parameters of the list. */
enum { LIST_AFTER, LIST_AFTER_RULE };

/* ---- reading ---- */

static bool has_rule(const struct source_reading *reading, const struct admin_job *job)
{
    return admin_find_row(reading, job) != NULL;
}

/* Lists the overrides of one rule, or of all rules. */
static int list_overrides(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    bool all = job->work->of_all;
    struct source_overrides which = { .rule = job->id,
                                      .after = job->texts[LIST_AFTER],
                                      .after_rule = job->texts[LIST_AFTER_RULE],
                                      .most = (unsigned)job->numbers[0] };
    if (all && (which.after.len > 0) != (which.after_rule.len > 0))
        return err_set(error, WEIR_E_INVALID,
                       "the parameters `after_rule` and `after` belong together: the rule and the subject of the last "
                       "override that was received");
    int r = source_read_overrides(source, &which, &reading, error);
    if (r < 0)
        return r;
    /* Those of a rule that was removed can still be looked at. */
    if (!all && reading.override_count == 0 && !has_rule(&reading, job))
        return err_set(error, WEIR_E_UNKNOWN_RULE, "there is no rule `%.*s`", SV_SHOWN(job->id, 200));
    buf_add(&job->out, SV("{\"overrides\":["));
    for (size_t i = 0; i < reading.override_count; i++) {
        buf_add(&job->out, i ? SV(",\n") : SV("\n"));
        source_override_json(&reading, &reading.overrides[i], &job->out);
    }
    buf_add(&job->out, SV("]}\n"));
    return 0;
}

static int read_override(struct source *source, struct admin_job *job, struct source_reading *ret, struct weir_error *error)
{
    int r = source_read_override(source, job->id, job->subject, ret, error);
    if (r == WEIR_E_UNKNOWN_RULE)
        return err_set(error, r, "rule `%.*s` has no override for `%.*s`", SV_SHOWN(job->id, 200),
                       SV_SHOWN(job->subject, 200));
    return r;
}

static int get_override(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = read_override(source, job, &reading, error);
    if (r < 0)
        return r;
    job->version = reading.overrides[0].version;
    source_override_json(&reading, &reading.overrides[0], &job->out);
    buf_char(&job->out, '\n');
    return 0;
}

/* ---- changing ---- */

/* As an answer to a change that was tried. */
static void add_tried(struct admin_job *job, const struct source_reading *reading, const struct source_row *row)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, ADMIN_BODY_MAX);
    source_override_json(reading, row, &text);
    buf_add(&job->out, SV("{\"dry_run\":true,"));
    buf_add(&job->out, sv_from(buf_sv(&text), 1));
    buf_char(&job->out, '\n');
    job->out.failed = job->out.failed || text.failed;
    job->shown = true;
}

static int look(const struct source_reading *after, void *data, struct weir_error *error)
{
    struct admin_job *job = data;
    (void)error;
    for (size_t i = 0; i < after->override_count && !job->shown; i++)
        if (sv_eq(after->overrides[i].rule, job->id) && sv_eq(after->overrides[i].key, buf_sv(&job->stored)))
            add_tried(job, after, &after->overrides[i]);
    return 0;
}

static void set_terms(struct source *source, struct admin_job *job)
{
    struct source_terms terms = { .dry_run = job->dry_run, .check = admin_check_tags, .look = look, .data = job };
    source_set_terms(source, &terms);
}

static int check_body(const struct admin_job *job, struct weir_error *error)
{
    json_error_t why;
    json_auto_t *value = json_loadb(job->body.ptr, job->body.len, JSON_REJECT_DUPLICATES, &why);
    if (!value)
        return err_set(error, WEIR_E_INVALID, "the body is not JSON: line %d: %s", why.line, why.text);
    if (!json_is_object(value))
        return err_set(error, WEIR_E_INVALID, "the body must be an object, {\"limits\": [\"10 per 60s\"]}");
    if (json_object_get(value, "override") || json_object_get(value, "subject") || json_object_get(value, "version"))
        return err_set(error, WEIR_E_INVALID,
                       "the body has more than the override: send only the value of `override` from the answer to GET, "
                       "without `subject`, `version` and so on");
    return 0;
}

static int put_override(struct source *source, struct admin_job *job, struct weir_error *error)
{
    struct source_subject subject = { .text = job->subject };
    int r = check_body(job, error);
    if (r < 0)
        return r;
    set_terms(source, job);
    r = source_put_override(source, job->id, subject, job->body, job->author, &job->stored, error);
    admin_clear_terms(source);
    if (r == WEIR_E_UNKNOWN_RULE)
        return err_set(error, r, "there is no rule `%.*s`", SV_SHOWN(job->id, 200));
    if (r < 0 || (job->dry_run && job->shown))
        job->version = 0;
    else if (job->dry_run) { /* nothing would change */
        CLEANUP(source_reading_done) struct source_reading reading = { 0 };
        r = read_override(source, job, &reading, error);
        job->version = 0;
        if (r == 0)
            add_tried(job, &reading, &reading.overrides[0]);
    } else {
        job->status = job->version ? 200 : 201;
        r = get_override(source, job, error);
    }
    return r;
}

static int delete_override(struct source *source, struct admin_job *job, struct weir_error *error)
{
    struct source_subject subject = { .text = job->subject };
    set_terms(source, job);
    int r = source_remove_override(source, job->id, subject, job->author, error);
    admin_clear_terms(source);
    job->version = 0;
    if (r == WEIR_E_UNKNOWN_RULE)
        return err_set(error, r, "rule `%.*s` has no override for `%.*s`", SV_SHOWN(job->id, 200),
                       SV_SHOWN(job->subject, 200));
    if (r == 0)
        job->status = 204;
    return r;
}

/* ---- what the routes name ---- */

const struct admin_work admin_list_overrides = { .run = list_overrides,
                                                 .numbers = { { "most", 1, LIST_MAX, LIST_DEFAULT } },
                                                 .texts = { "after" } };
const struct admin_work admin_list_all_overrides = { .run = list_overrides,
                                                     .of_all = true,
                                                     .numbers = { { "most", 1, LIST_MAX, LIST_DEFAULT } },
                                                     .texts = { "after", "after_rule" } };
const struct admin_work admin_get_override = { .run = get_override };
const struct admin_work admin_put_override = {
    .run = put_override, .change = "override put", .needs_json = true, .takes_dry_run = true
};
const struct admin_work admin_delete_override = { .run = delete_override,
                                                  .change = "override removed",
                                                  .takes_dry_run = true };
