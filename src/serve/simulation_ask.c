/* The body of POST /v1/simulate, and the rules that it means. */
#include <jansson.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/format.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "serve/simulation.h"

enum { REASON_MAX = 1000 };

int simulation_refuse(struct simulation_task *task, unsigned status, const char *hint, const char *format, ...)
{
    char text[REASON_MAX];
    FORMAT_ARGUMENTS(text, format);
    err_set(&task->error, WEIR_E_INVALID, "%s", text);
    task->status = status;
    task->hint = hint;
    return -1;
}

static int no_memory(struct simulation_task *task)
{
    return simulation_refuse(task, 503, NULL, "out of memory");
}

/* ---- the body ---- */

static const char *const fields[] = { "rules", "remove", "input", "log", "strict", "top" };
static const char *const inputs[] = { "sample", "json", "combined", NULL };

static bool is_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(name, fields[i]) == 0)
            return true;
    return false;
}

static int read_input(struct simulation_task *task, const json_t *body, struct simulation_asked *ret)
{
    const json_t *log = json_object_get(body, "log"), *input = json_object_get(body, "input");
    int which = json_is_string(input) ? word_find(weir_str(json_string_value(input)), inputs) : input ? -1 : INPUT_SAMPLE;
    if (which < 0)
        return simulation_refuse(task, 400, NULL, "input: must be \"sample\", \"json\" or \"combined\"");
    if (which == INPUT_SAMPLE && log)
        return simulation_refuse(task, 400, NULL, "log: give its format beside it, `\"input\": \"json\"` or \"combined\"");
    if (which != INPUT_SAMPLE && !json_is_string(log))
        return simulation_refuse(task, 400, NULL, "log: must be the text of the log");
    if (which == INPUT_SAMPLE && task->sample_count == 0)
        return simulation_refuse(task, 409, "start the service with --sample N, or send a log",
                                 "no sample is kept: the option sample is 0");
    ret->input = (enum simulation_input)which;
    ret->log = sv_of(json_string_value(log), json_string_length(log));
    return 0;
}

static int read_fields(struct simulation_task *task, json_t *body, struct simulation_asked *ret)
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value) if (!is_field(name)) return simulation_refuse(
        task, 400, "allowed: rules, remove, input, log, strict, top", "unknown field `%.100s`", name);
    const json_t *top = json_object_get(body, "top"), *strict = json_object_get(body, "strict");
    ret->strict = json_is_true(strict);
    if (strict && !json_is_boolean(strict))
        return simulation_refuse(task, 400, NULL, "strict: must be true or false");
    ret->rules = json_object_get(body, "rules");
    ret->remove = json_object_get(body, "remove");
    if (ret->rules && (!json_is_array(ret->rules) || json_array_size(ret->rules) > SIMULATION_RULES_MAX))
        return simulation_refuse(task, 400, NULL, "rules: must be a list of at most %d rules", SIMULATION_RULES_MAX);
    if (ret->remove && (!json_is_array(ret->remove) || json_array_size(ret->remove) > SIMULATION_RULES_MAX))
        return simulation_refuse(task, 400, NULL, "remove: must be a list of at most %d ids", SIMULATION_RULES_MAX);
    ret->top = top ? (unsigned)json_integer_value(top) : 10;
    if (top && (!json_is_integer(top) || json_integer_value(top) < 0 || json_integer_value(top) > SIMULATION_TOP_MAX))
        return simulation_refuse(task, 400, NULL, "top: must be a whole number from 0 to %d", SIMULATION_TOP_MAX);
    return read_input(task, body, ret);
}

/* Where the string that begins at `from` ends; `to` if it does not. */
static const char *skip_string(const char *from, const char *to)
{
    for (from++; from < to && *from != '"'; from++)
        if (*from == '\\')
            from++;
    return from < to ? from : to;
}

/* A value takes some hundred bytes of memory, and may take two of the body: so they are counted before they are read. Each
 * but the first follows one of these characters; what is no JSON is counted somehow. */
static bool has_too_many_values(sv body)
{
    unsigned count = 1;
    const char *to = body.ptr + body.len;
    for (const char *at = body.ptr; at < to && count <= SIMULATION_VALUES_MAX; at++)
        if (*at == '"')
            at = skip_string(at, to);
        else
            count += *at == ',' || *at == ':' || *at == '[' || *at == '{';
    return count > SIMULATION_VALUES_MAX;
}

int simulation_ask(struct simulation_task *task, struct simulation_asked *ret)
{
    *ret = (struct simulation_asked){ 0 };
    if (has_too_many_values(task->body))
        return simulation_refuse(task, 413, "change fewer rules at a time; the log is one text, in `log`",
                                 "the body has more than %d JSON values", SIMULATION_VALUES_MAX);
    json_error_t why;
    json_t *body = json_loadb(task->body.ptr, task->body.len, JSON_REJECT_DUPLICATES, &why);
    ret->json = body;
    if (!body)
        return simulation_refuse(task, 400, NULL, "the body is not JSON: line %d: %.200s", why.line, why.text);
    if (!json_is_object(body))
        return simulation_refuse(task, 400, NULL, "the body must be an object, {\"rules\": […], \"input\": \"sample\"}");
    return read_fields(task, body, ret);
}

void simulation_asked_done(struct simulation_asked *asked)
{
    if (asked)
        json_decref(asked->json);
}

/* ---- rules ---- */

/* The rules as rows, so that one can take the place of another. */
struct rows {
    struct arena arena;
    struct rule_row *list;
    size_t count;
};

static void rows_done(struct rows *rows)
{
    arena_done(&rows->arena);
}

static sv text_of(const json_t *string)
{
    return sv_of(json_string_value(string), json_string_length(string));
}

static int split(struct simulation_task *task, const struct rules *now, size_t more, struct rows *ret)
{
    CLEANUP(buf_done) struct buf text;
    struct rule_row *list;
    buf_init(&text, SIZE_MAX / 2);
    rules_write(now, &text);
    if (text.failed)
        return no_memory(task);
    if (rules_split(buf_sv(&text), &ret->arena, &list, &ret->count, &task->error) < 0)
        return simulation_refuse(task, 503, NULL, "cannot read the rules in force: %.300s", task->error.text);
    ret->list = ARENA_ARRAY(&ret->arena, struct rule_row, ret->count + more + 1);
    if (!ret->list)
        return no_memory(task);
    if (ret->count > 0)
        memcpy(ret->list, list, ret->count * sizeof *list);
    return 0;
}

static struct rule_row *find_rule(const struct rows *rows, sv id)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->list[i].kind == ROW_RULE && sv_eq(rows->list[i].id, id))
            return &rows->list[i];
    return NULL;
}

/* With its overrides. */
static int remove_rule(struct simulation_task *task, struct rows *rows, const json_t *which)
{
    sv id = text_of(which);
    size_t kept = 0;
    if (!json_is_string(which))
        return simulation_refuse(task, 400, NULL, "remove: must be a list of ids");
    if (!find_rule(rows, id))
        return simulation_refuse(task, 422, NULL, "remove: there is no rule `%.*s`", SV_SHOWN(id, 200));
    for (size_t i = 0; i < rows->count; i++)
        if (rows->list[i].kind == ROW_SETTING || !sv_eq(rows->list[i].id, id))
            rows->list[kept++] = rows->list[i];
    rows->count = kept;
    return 0;
}

/* In the place of the rule with the same id, or at the end. */
static int put_rule(struct simulation_task *task, struct rows *rows, size_t known, const json_t *rule)
{
    const json_t *id = json_object_get(rule, "id");
    if (!json_is_string(id) || json_string_length(id) == 0 || json_string_length(id) > WEIR_ID_MAX)
        return simulation_refuse(task, 422, NULL, "rules: each rule must be an object with an `id` of 1 to %d bytes",
                                 WEIR_ID_MAX);
    CLEANUP_FREE char *text = json_dumps(rule, JSON_COMPACT);
    sv copy = text ? arena_copy(&rows->arena, weir_str(text)) : (sv){ 0 };
    struct rows before = { .list = rows->list, .count = known };
    struct rule_row *row = find_rule(&before, text_of(id));
    if (!copy.ptr)
        return no_memory(task);
    if (!row)
        row = &rows->list[rows->count++];
    *row = (struct rule_row){ .kind = ROW_RULE, .id = text_of(id), .text = copy };
    return 0;
}

static int refuse_rules(struct simulation_task *task, const struct rules_report *report)
{
    struct buf *out = &task->out;
    const struct rule_problem *first = &report->errors[0];
    CLEANUP(buf_done) struct buf line;
    buf_init(&line, 4 * RULE_PATH_MAX);
    buf_printf(&line, "%s%.*s%s%.*s", first->rule.len ? "rule " : "", SV_FMT(first->rule), first->rule.len ? ": " : "",
               SV_SHOWN(first->text, RULE_PATH_MAX));
    buf_add(out, SV("{\"error\":"));
    buf_json(out, buf_sv(&line));
    buf_add(out, SV(",\"problems\":["));
    for (size_t i = 0; i < report->error_count && i < RULES_ERRORS_MAX; i++) {
        buf_add(out, i ? SV(",{\"rule\":") : SV("{\"rule\":"));
        buf_json(out, report->errors[i].rule);
        buf_add(out, SV(",\"text\":"));
        buf_json(out, report->errors[i].text);
        buf_char(out, '}');
    }
    buf_add(out, SV("]}\n"));
    task->status = 422;
    return -1;
}

static bool is_repeated(const json_t *rules, size_t i)
{
    const json_t *id = json_object_get(json_array_get(rules, i), "id");
    for (size_t k = 0; json_is_string(id) && k < i; k++)
        if (json_equal(id, json_object_get(json_array_get(rules, k), "id")))
            return true;
    return false;
}

static int change_rows(struct simulation_task *task, const struct simulation_asked *asked, struct rows *rows)
{
    size_t i;
    json_t *item;
    int r = 0;
    json_array_foreach(asked->remove, i, item) if (r == 0) r = remove_rule(task, rows, item);
    size_t known = rows->count;
    json_array_foreach(asked->rules, i, item)
    {
        if (r == 0 && is_repeated(asked->rules, i))
            r = simulation_refuse(task, 422, NULL, "rules: `%.200s` is there twice; leave out one",
                                  json_string_value(json_object_get(item, "id")));
        if (r == 0)
            r = put_rule(task, rows, known, item);
    }
    return r;
}

static int change_rules(struct simulation_task *task, const struct simulation_asked *asked, const struct rules *now,
                        struct rules **ret)
{
    CLEANUP(rows_done) struct rows rows = { .count = 0 };
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    int r = split(task, now, json_array_size(asked->rules), &rows);
    if (r == 0)
        r = change_rows(task, asked, &rows);
    if (r < 0)
        return r;
    CLEANUP(rules_freep) struct rules *then = rules_read_rows(rows.list, rows.count, &report);
    if (!then)
        return no_memory(task);
    if (report.error_count > 0)
        return refuse_rules(task, &report);
    *ret = STEAL(then);
    return 0;
}

int simulation_rules(struct simulation_task *task, const struct simulation_asked *asked, struct rules **ret_now,
                     struct rules **ret_then)
{
    const struct bound *bound = hazard_acquire((void *const *)&task->weir->current);
    CLEANUP(rules_freep) struct rules *now = bound ? rules_copy(ruleset_rules(bound->ruleset)) : NULL;
    if (bound)
        hazard_release();
    if (!now)
        return no_memory(task);
    int r = change_rules(task, asked, now, ret_then);
    if (r == 0)
        *ret_now = STEAL(now);
    return r;
}
