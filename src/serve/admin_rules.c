/* Rules and settings over HTTP: read from the source, and changed there. Each `work` runs in the rule thread. */
#include <jansson.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "serve/admin.h"

enum { SETTINGS_TRIES = 5 };

const struct source_row *admin_find_row(const struct source_reading *reading, const struct admin_job *job)
{
    for (size_t i = 0; i < reading->row_count; i++)
        if (!reading->rows[i].setting && sv_eq(reading->rows[i].rule, job->id))
            return &reading->rows[i];
    return NULL;
}

enum source_secrets admin_secrets(const struct admin_job *job)
{
    return job->role == ROLE_ADMIN ? SECRETS_SHOWN : SECRETS_HIDDEN;
}

static int no_such_rule(const struct admin_job *job, struct weir_error *error)
{
    return err_set(error, WEIR_E_UNKNOWN_RULE, "there is no rule `%.*s`", SV_SHOWN(job->id, 200));
}

/* ---- reading ---- */

/* The parameters of the list. */
enum { LIST_AFTER, LIST_QUERY, LIST_STATE, LIST_WITH };
enum { LIST_MOST_MAX = 10000 };

static bool is_long(const struct rule_limit *limits, size_t count)
{
    static const int64_t day_us = 24 * 3600 * US_PER_S;
    for (size_t i = 0; i < count; i++) {
        bool unit = limits[i].algorithm == LIMIT_CALENDAR && limits[i].unit != CALENDAR_LENGTH;
        bool slots = limits[i].algorithm == LIMIT_CONCURRENT;
        if (unit ? limits[i].unit >= CALENDAR_DAY : !slots && limits[i].per_us >= day_us)
            return true;
    }
    return false;
}

static bool has_by(const struct rule *rule)
{
    return rule->kind->by_count > 0;
}

static bool has_plans(const struct rule *rule)
{
    return rule->kind->rest->plan_count > 0;
}

/* A rule that counts all requests together, with a limit of a day or longer. */
static bool has_budget(const struct rule *rule)
{
    bool found = is_long(rule->kind->limits, rule->kind->limit_count);
    for (size_t i = 0; i < rule->kind->rest->plan_count; i++)
        found = found || is_long(rule->kind->rest->plans[i].limits, rule->kind->rest->plans[i].limit_count);
    return found && !has_by(rule);
}

static const char *const with_names[] = { "by", "plans", "budget", NULL };
static bool (*const with[])(const struct rule *rule) = { has_by, has_plans, has_budget };

static bool row_is_with(const struct source_row *row, sv name)
{
    return name.len == 0 || (row->parsed && with[word_find(name, with_names)](row->parsed));
}

/* Refuses an unknown word: it would select nothing, and an empty list looks like an answer. */
static int check_word(const char *name, sv word, const char *const *words, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf list;
    buf_init(&list, 1000);
    if (word.len == 0 || word_find(word, words) >= 0)
        return 0;
    for (size_t i = 0; words[i]; i++)
        buf_printf(&list, "%s%s", i ? ", " : "", words[i]);
    return err_set(error, WEIR_E_INVALID, "the parameter `%s` must be one of: %.*s; not `%.*s`", name,
                   SV_FMT(buf_sv(&list)), SV_SHOWN(word, 100));
}

/* Whether a text that people see of the row contains the query, whatever the case of its letters. */
static bool row_has(const struct source_row *row, sv query)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 64 << 10);
    if (query.len == 0)
        return true;
    buf_add(&text, row->rule);
    if (row->parsed) {
        buf_char(&text, '\n');
        source_show_match(row->parsed, &text);
        buf_char(&text, '\n');
        source_show_by(row->parsed, &text);
        buf_char(&text, '\n');
        source_show_limits(row->parsed, &text);
    }
    for (size_t i = 0; i + query.len <= text.len; i++)
        if (sv_eq_nocase(sv_of(text.ptr + i, query.len), query))
            return true;
    return false;
}

static bool row_is_listed(const struct source_row *row, const struct admin_job *job, int64_t now_us)
{
    sv state = job->texts[LIST_STATE];
    return !row->setting && row_is_with(row, job->texts[LIST_WITH]) && row_has(row, job->texts[LIST_QUERY]) &&
           (state.len == 0 || sv_eq(state, weir_str(source_row_state(row, now_us))));
}

/* A page of the rows: those after the one that `after` names, in the order of the source. */
static int list_rules(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = check_word("state", job->texts[LIST_STATE], source_row_states, error);
    if (r == 0)
        r = check_word("with", job->texts[LIST_WITH], with_names, error);
    if (r == 0)
        r = source_read(source, NULL, &reading, error);
    if (r < 0)
        return r;
    size_t count = 0, listed = 0, most = job->numbers[0] ? job->numbers[0] : SIZE_MAX;
    int64_t now_us = clock_now_us();
    sv after = job->texts[LIST_AFTER];
    bool begun = after.len == 0;
    buf_add(&job->out, SV("{\"source\":"));
    buf_json(&job->out, weir_str(source_name(source)));
    buf_printf(&job->out, ",\"read_only\":%s,\"problem_count\":%zu,\"rules\":[", source_is_file(source) ? "true" : "false",
               reading.problem_count + reading.unlisted);
    for (size_t i = 0; i < reading.row_count; i++) {
        const struct source_row *row = &reading.rows[i];
        if (row_is_listed(row, job, now_us)) {
            count++;
            if (begun && listed < most) {
                buf_add(&job->out, listed++ ? SV(",\n") : SV("\n"));
                source_row_json(&reading, row, &job->out);
            }
        }
        begun = begun || (!row->setting && sv_eq(row->rule, after));
    }
    buf_printf(&job->out, "],\"count\":%zu}\n", count);
    if (begun)
        return 0;
    return err_set(error, WEIR_E_UNKNOWN_RULE, "there is no rule `%.*s` any more; list again without `after`",
                   SV_SHOWN(after, 200));
}

/* The row as it is now, with its tag. */
static int show_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = source_read(source, NULL, &reading, error);
    if (r < 0)
        return r;
    const struct source_row *row = admin_find_row(&reading, job);
    if (!row)
        return no_such_rule(job, error);
    job->version = row->version;
    source_row_json(&reading, row, &job->out);
    buf_char(&job->out, '\n');
    return 0;
}

static int show_settings(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = source_read(source, NULL, &reading, error);
    if (r < 0)
        return r;
    source_settings_json(&reading, admin_secrets(job), &job->out);
    buf_char(&job->out, '\n');
    job->version = source_version(&reading, SV(""));
    return 0;
}

/* ---- changing ---- */

/* Runs inside the transaction, so that no other change can come between. */
int admin_check_tags(uint64_t version, void *data, struct weir_error *error)
{
    struct admin_job *job = data;
    const char *what = job->subject.len ? "the override" : job->id.len ? "the rule" : "the settings";
    const char *changed = job->subject.len || job->id.len ? "was changed since it was read (the header If-Match)"
                                                          : "were changed since they were read (the header If-Match)";
    bool matches = !job->if_match.ptr || admin_tag_in(job->if_match, version);
    job->version = version;
    if (matches && !admin_tag_in(job->if_none_match, version)) {
        job->moved = job->read_version && version != *job->read_version;
        return job->moved ? err_set(error, WEIR_E_SYSTEM, "others are changing the settings; try again") : 0;
    }
    job->status = 412;
    return err_set(error, WEIR_E_INVALID, "%s %s", what,
                   matches   ? "exists already (the header If-None-Match)"
                   : version ? changed
                             : "does not exist (the header If-Match)");
}

/* As an answer to a change, with the rule or the settings as they are in `reading`. */
static void add_tried(struct admin_job *job, const struct source_reading *reading)
{
    const struct source_row *row = job->id.len > 0 ? admin_find_row(reading, job) : NULL;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, ADMIN_BODY_MAX);
    if (job->id.len == 0)
        source_settings_json(reading, admin_secrets(job), &text);
    else if (row)
        source_row_json(reading, row, &text);
    sv members = sv_from(buf_sv(&text), 1);
    buf_printf(&job->out, "{\"dry_run\":true%s", members.len > 1 ? "," : "");
    buf_add(&job->out, members);
    buf_char(&job->out, '\n');
    job->out.failed = job->out.failed || text.failed;
    job->shown = true;
}

static int look(const struct source_reading *after, void *data, struct weir_error *error)
{
    (void)error;
    add_tried(data, after);
    return 0;
}

void admin_set_terms(struct source *source, struct admin_job *job, bool enable)
{
    struct source_terms terms = { .dry_run = job->dry_run,
                                  .enable = enable,
                                  .check = job->work->of_all ? NULL : admin_check_tags,
                                  .look = look,
                                  .id = job->id,
                                  .data = job };
    source_set_terms(source, &terms);
}

void admin_clear_terms(struct source *source)
{
    source_set_terms(source, &(struct source_terms){ 0 });
}

static int tried(struct source *source, struct admin_job *job, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    job->version = 0;
    if (job->shown)
        return 0;
    /* Nothing would change. */
    int r = source_read(source, NULL, &reading, error);
    if (r < 0)
        return r;
    add_tried(job, &reading);
    return 0;
}

/* The whole answer to GET instead of the rule in it. */
static bool is_whole_row(const json_t *value)
{
    return json_object_get(value, "rule") || json_object_get(value, "state") || json_object_get(value, "version");
}

/* An object; of a rule with the id that the path has. */
static json_t *read_body(const struct admin_job *job, struct weir_error *error)
{
    json_error_t why;
    json_auto_t *value = json_loadb(job->body.ptr, job->body.len, JSON_REJECT_DUPLICATES, &why);
    json_t *id = json_object_get(value, "id");
    if (!value)
        err_set(error, WEIR_E_INVALID, "the body is not JSON: line %d: %s", why.line, why.text);
    else if (!json_is_object(value))
        err_set(error, WEIR_E_INVALID, "the body must be an object, {\"field\": value, …}");
    else if (job->id.len > 0 && is_whole_row(value))
        err_set(error, WEIR_E_INVALID,
                "the body has more than the rule: send only the value of `rule` from the answer to GET, without "
                "`state`, `version` and so on");
    else if (job->id.len > 0 && id &&
             (!json_is_string(id) || !sv_eq(sv_of(json_string_value(id), json_string_length(id)), job->id)))
        err_set(error, WEIR_E_INVALID, "id: must equal the id in the path, or be left out");
    else
        return STEAL(value);
    return NULL;
}

/* The row after a change, or as it would be after a dry run. */
static int changed_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    if (job->dry_run)
        return tried(source, job, error);
    job->status = job->version ? 200 : 201;
    return show_rule(source, job, error);
}

static int put_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    json_auto_t *body = read_body(job, error);
    if (!body)
        return WEIR_E_INVALID;
    json_auto_t *rule = json_object(); /* with the id first, for people */
    if (json_object_set_new(rule, "id", json_stringn(job->id.ptr, job->id.len)) < 0 || json_object_update(rule, body) < 0)
        return err_no_memory(error);
    const json_t *mode = json_object_get(rule, "mode");
    bool off = json_is_false(mode) || (json_is_string(mode) && strcmp(json_string_value(mode), "off") == 0);
    CLEANUP_FREE char *text = json_dumps(rule, JSON_COMPACT);
    admin_set_terms(source, job, !off);
    int r = text ? source_put(source, weir_str(text), true, job->author, error) : err_no_memory(error);
    admin_clear_terms(source);
    return r < 0 ? r : changed_rule(source, job, error);
}

static int patch_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    json_auto_t *body = read_body(job, error);
    if (!body)
        return WEIR_E_INVALID;
    json_object_del(body, "id"); /* which is the one in the path */
    CLEANUP_FREE char *text = json_dumps(body, JSON_COMPACT);
    admin_set_terms(source, job, false);
    int r = text ? source_patch(source, job->id, weir_str(text), job->author, error) : err_no_memory(error);
    admin_clear_terms(source);
    return r < 0 ? r : changed_rule(source, job, error);
}

static int switch_rule(struct source *source, struct admin_job *job, bool enabled, struct weir_error *error)
{
    admin_set_terms(source, job, false);
    int r = source_enable(source, job->id, enabled, job->author, error);
    admin_clear_terms(source);
    return r < 0 ? r : changed_rule(source, job, error);
}

static int enable_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    return switch_rule(source, job, true, error);
}

static int disable_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    return switch_rule(source, job, false, error);
}

static int delete_rule(struct source *source, struct admin_job *job, struct weir_error *error)
{
    admin_set_terms(source, job, false);
    int r = source_remove(source, job->id, job->author, error);
    admin_clear_terms(source);
    buf_clear(&job->out);
    job->version = 0;
    if (r == WEIR_E_UNKNOWN_RULE)
        return no_such_rule(job, error);
    if (r == 0)
        job->status = 204;
    return r;
}

/* ---- settings ---- */

/* Settings that the body does not name are removed. *ret_version: the version of the settings that were read. */
static int name_all(struct source *source, json_t *settings, uint64_t *ret_version, struct weir_error *error)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int r = source_read(source, NULL, &reading, error);
    if (r < 0)
        return r;
    for (size_t i = 0; i < reading.row_count; i++) {
        const struct source_row *row = &reading.rows[i];
        sv name = arena_copy(&reading.arena, row->key);
        if (row->setting && name.ptr && !json_object_get(settings, name.ptr))
            json_object_set_new_nocheck(settings, name.ptr, json_null());
    }
    *ret_version = source_version(&reading, SV(""));
    return 0;
}

static int put_once(struct source *source, struct admin_job *job, struct weir_error *error)
{
    uint64_t read_version;
    json_auto_t *settings = read_body(job, error);
    int r = settings ? name_all(source, settings, &read_version, error) : WEIR_E_INVALID;
    if (r < 0)
        return r;
    CLEANUP_FREE char *text = json_dumps(settings, JSON_COMPACT);
    job->read_version = &read_version;
    admin_set_terms(source, job, false);
    r = text ? source_put_settings(source, weir_str(text), job->author, error) : err_no_memory(error);
    admin_clear_terms(source);
    job->read_version = NULL;
    return r;
}

static int put_settings(struct source *source, struct admin_job *job, struct weir_error *error)
{
    int r = 0, tries = 0;
    do {
        job->moved = false;
        r = put_once(source, job, error);
    } while (job->moved && ++tries < SETTINGS_TRIES);
    if (r < 0)
        return r;
    return job->dry_run ? tried(source, job, error) : show_settings(source, job, error);
}

/* ---- what the routes name ---- */

const struct admin_work admin_list_rules = { .run = list_rules,
                                             .numbers = { { "most", 1, LIST_MOST_MAX, 0 } },
                                             .texts = { "after", "q", "state", "with" } };
const struct admin_work admin_get_rule = { .run = show_rule };
const struct admin_work admin_put_rule = { .run = put_rule, .change = "put", .needs_json = true, .takes_dry_run = true };
const struct admin_work admin_patch_rule = {
    .run = patch_rule, .change = "changed", .needs_json = true, .takes_dry_run = true
};
const struct admin_work admin_enable_rule = { .run = enable_rule, .change = "enabled", .takes_dry_run = true };
const struct admin_work admin_disable_rule = { .run = disable_rule, .change = "disabled", .takes_dry_run = true };
const struct admin_work admin_delete_rule = { .run = delete_rule, .change = "removed", .takes_dry_run = true };
const struct admin_work admin_get_settings = { .run = show_settings };
const struct admin_work admin_put_settings = {
    .run = put_settings, .change = "put", .needs_json = true, .takes_dry_run = true
};
