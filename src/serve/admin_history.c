/* The history of rules, settings and overrides over HTTP, and undoing. Each `work` runs in the rule thread. */
#include "base/err.h"
#include "serve/admin.h"

enum { HISTORY_DEFAULT = 20, HISTORY_MAX = 1000 };

static int add_event(const struct source_event *event, void *data, struct weir_error *error)
{
    struct admin_job *job = data;
    struct buf *out = &job->out;
    (void)error;
    buf_add(out, out->ptr[out->len - 1] == '[' ? SV("\n") : SV(",\n"));
    source_event_json(event, admin_secrets(job), out);
    return out->failed ? err_no_memory(error) : 0;
}

static sv history_id(const struct admin_job *job)
{
    if (job->work->of_all)
        return SV("");
    return job->id.len > 0 ? job->id : SOURCE_SETTINGS;
}

static int get_history(struct source *source, struct admin_job *job, struct weir_error *error)
{
    buf_add(&job->out, SV("{\"events\":["));
    int r = job->out.failed ? err_no_memory(error)
                            : source_history(source, history_id(job), (int64_t)job->numbers[1], (unsigned)job->numbers[0],
                                             add_event, job, error);
    buf_add(&job->out, SV("]}\n"));
    return r;
}

/* The rule or the settings as they are now. */
static int show_undone(struct source *source, struct admin_job *job, const struct source_undone *undone,
                       struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = source_read(source, NULL, &reading, error);
    if (r < 0)
        return r;
    const struct source_row *row = admin_find_row(&reading, job);
    buf_char(&job->out, '{');
    source_undone_json(undone, &job->out);
    if (job->id.len == 0) {
        buf_add(&job->out, SV(",\"settings\":"));
        source_settings_json(&reading, admin_secrets(job), &job->out);
    } else
        source_json_add_member("rule", row ? row->text : SV(""), &job->out);
    buf_add(&job->out, SV("}\n"));
    return 0;
}

static int undo(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_undone_done) struct source_undone undone = { 0 };
    admin_set_terms(source, job, false);
    int r = source_undo(source, history_id(job), (int64_t)job->numbers[0], job->author, &undone, error);
    admin_clear_terms(source);
    if (r == WEIR_E_INVALID && !job->status)
        job->status = 409;
    if (r < 0)
        return r;
    job->version = 0;
    if (job->work->of_all) {
        buf_char(&job->out, '{');
        source_undone_json(&undone, &job->out);
        buf_add(&job->out, SV("}\n"));
        return 0;
    }
    return show_undone(source, job, &undone, error);
}

/* ---- what the routes name ---- */

#define NUMBERS_OF_HISTORY                           \
    {                                                \
        { "most", 1, HISTORY_MAX, HISTORY_DEFAULT }, \
        {                                            \
            "before", 1, INT64_MAX, 0                \
        }                                            \
    }
#define NUMBERS_OF_UNDO               \
    {                                 \
        {                             \
            "number", 1, INT64_MAX, 0 \
        }                             \
    }

const struct admin_work admin_get_history = { .run = get_history, .needs_history = true, .numbers = NUMBERS_OF_HISTORY };
const struct admin_work admin_undo = {
    .run = undo, .change = "set back", .needs_history = true, .numbers = NUMBERS_OF_UNDO
};
const struct admin_work admin_get_all_history = {
    .run = get_history, .needs_history = true, .of_all = true, .numbers = NUMBERS_OF_HISTORY
};
const struct admin_work admin_undo_any = {
    .run = undo, .change = "set back", .needs_history = true, .of_all = true, .numbers = NUMBERS_OF_UNDO
};
