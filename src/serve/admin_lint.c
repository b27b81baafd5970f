/* Checks rules that are being written, without a change of anything: what `weir lint` does for a file. */
#include <jansson.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/handle.h"
#include "engine/hazard.h"
#include "rules/rules.h"
#include "serve/admin.h"

/* Before a document there may be empty lines, comments, directives and its mark. */
static bool is_before_document(sv line)
{
    sv text = sv_trim(line);
    return text.len == 0 || text.ptr[0] == '#' || text.ptr[0] == '%' || sv_eq(text, SV("---"));
}

/* One rule as the only item of a list. Its lines stay where they are, since errors name them. */
static void add_as_list(sv rule, struct buf *out)
{
    bool begun = false;
    if (sv_starts(rule, SV("\xef\xbb\xbf")))
        rule = sv_from(rule, 3);
    while (rule.len > 0) {
        sv line = sv_cut(&rule, '\n');
        if (begun || !is_before_document(line)) {
            buf_add(out, begun ? SV("  ") : SV("- "));
            buf_add(out, line);
            begun = true;
        }
        buf_char(out, '\n');
    }
}

/* How the text has to be read. */
enum kind { KIND_RULE, KIND_LIST, KIND_FILE };

static enum kind kind_of(sv json)
{
    static const char *const members[] = { "rules", "settings", "overrides", "include" };
    json_auto_t *value = json_loadb(json.ptr, json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (json_object_get(value, members[i]))
            return KIND_FILE;
    return json_is_array(value) ? KIND_LIST : KIND_RULE;
}

/* NULL: no memory. */
static struct rules *read_text(struct server *server, sv text, enum kind kind, struct rules_report *report)
{
    if (kind == KIND_FILE)
        return rules_read(text, report);
    CLEANUP(buf_done) struct buf list;
    buf_init(&list, RULES_BYTES_MAX);
    if (kind == KIND_RULE)
        add_as_list(text, &list);
    const struct bound *bound = hazard_acquire((void *const *)&server->weir->current);
    struct rules *rules = NULL;
    if (bound && !list.failed)
        rules = rules_read_list(kind == KIND_RULE ? buf_sv(&list) : text, ruleset_rules(bound->ruleset), report);
    if (bound)
        hazard_release();
    return rules;
}

static void add_problems(const struct rule_problem *problems, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count && i < RULES_ERRORS_MAX; i++) {
        buf_printf(out, "%s{\"line\": %d, \"rule\": ", i ? ", " : "", problems[i].line);
        buf_json(out, problems[i].rule);
        buf_add(out, SV(", \"text\": "));
        buf_json(out, problems[i].text);
        buf_char(out, '}');
    }
}

/* A rule that limits everything is a mistake as often as not. Files are full of them, so `weir lint` does not say it; here
 * somebody writes one rule. */
static void add_unmatched(const struct rule *rule, bool first, struct buf *out)
{
    if (rule->kind->mode != MODE_ENFORCE || rule->kind->condition_count + rule_path_count(&rule->match) > 0)
        return;
    buf_printf(out, "%s{\"line\": %d, \"rule\": ", first ? "" : ", ", rule->line);
    buf_json(out, rule->id);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 4000);
    buf_add(&text, SV("match: is missing, so the rule applies to every request"));
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_add(&text, i ? SV(" and ") : SV(" that has "));
        rule_by_text(&rule->kind->by[i], &text);
    }
    buf_add(&text, SV("; say which requests it is for, or try it with `mode: shadow` first"));
    buf_add(out, SV(", \"text\": "));
    buf_json(out, buf_sv(&text));
    buf_char(out, '}');
    out->failed = out->failed || text.failed;
}

static bool is_rules(struct http_call *call)
{
    sv type = http_header(call, "content-type"), kind = sv_trim(sv_cut(&type, ';'));
    if (sv_eq_nocase(kind, SV("application/yaml")) || sv_eq_nocase(kind, SV("application/json")))
        return true;
    http_error(call, 415, "send the header Content-Type: application/yaml",
               "only application/yaml and application/json are accepted here");
    return false;
}

void admin_lint(struct http_call *call, struct server *server)
{
    static const char *const none[] = { NULL };
    CLEANUP(buf_done) struct buf json, out;
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    struct weir_error error = { 0 };
    buf_init(&json, RULES_BYTES_MAX);
    buf_init(&out, ADMIN_BODY_MAX);
    if (!admin_check_parameters(call, none) || !is_rules(call))
        return;
    bool readable = rules_json(call->body, &json, &error) == 0;
    enum kind kind = readable ? kind_of(buf_sv(&json)) : KIND_FILE; /* whose reader reports errors of syntax, too */
    CLEANUP(rules_freep) struct rules *rules = read_text(server, call->body, kind, &report);
    if (!rules) {
        http_error(call, 503, NULL, "out of memory");
        return;
    }
    buf_printf(&out, "{\"valid\": %s, \"document\": ", report.error_count == 0 ? "true" : "false");
    buf_add(&out, readable ? buf_sv(&json) : SV("null"));
    buf_add(&out, SV(", \"errors\": ["));
    add_problems(report.errors, report.error_count, &out);
    buf_add(&out, SV("], \"advice\": ["));
    add_problems(report.advice, report.advice_count, &out);
    if (kind == KIND_RULE && rules->rule_count == 1)
        add_unmatched(rules->rules[0], report.advice_count == 0, &out);
    buf_add(&out, SV("]}\n"));
    admin_answer(call, SV(""), &out);
}
