/* Changes: worked out and judged on the rows in memory, then written, all or nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "base/utf8.h"
#include "source/backend.h"

enum { WHO_MAX = 200, NOTE_MAX = 1000 };

/* ---- plans ---- */

sv plan_copy(struct plan *plan, sv text)
{
    sv kept = arena_copy(plan->arena, text);
    if (!kept.ptr)
        no_memory(plan->error);
    return kept;
}

int plan_add(struct plan *plan, const char *what, const struct stored_row *before, const struct stored_row *after)
{
    if (plan->count == plan->cap) {
        size_t cap = plan->cap ? plan->cap * 2 : 16;
        struct change *changes = realloc(plan->changes, cap * sizeof *changes);
        if (!changes)
            return no_memory(plan->error);
        plan->changes = changes;
        plan->cap = cap;
    }
    plan->changes[plan->count++] = (struct change){ .what = what, .before = before, .after = after };
    return 0;
}

/* The one that was added last. */
static struct change *newest_change(const struct plan *plan)
{
    CHECK(plan->changes && plan->count > 0);
    return &plan->changes[plan->count - 1];
}

int plan_put(struct plan *plan, const char *what, const struct stored_row *before, struct stored_row after)
{
    struct stored_row *copy = ARENA_NEW(plan->arena, struct stored_row);
    if (!copy)
        return no_memory(plan->error);
    *copy = after;
    return plan_add(plan, what, before, copy);
}

struct rules *plan_rule(struct plan *plan, const struct stored_row *row)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    size_t count = 0;
    bool override = row->table == TABLE_OVERRIDES;
    const struct stored_row *rule = override ? snapshot_rule(plan->snapshot, row->rule) : NULL;
    CLEANUP_FREE struct rule_row *rows = cleanup_calloc(plan->snapshot->count + 2, sizeof *rows);
    for (size_t i = 0; rows && i < plan->snapshot->count; i++)
        if (plan->snapshot->rows[i].table == TABLE_SETTINGS)
            rows[count++] = row_to_read(&plan->snapshot->rows[i]);
    if (rows && rule)
        rows[count++] = row_to_read(rule);
    if (rows)
        rows[count++] = row_to_read(row);
    CLEANUP(rules_freep) struct rules *rules = rows ? rules_read_rows(rows, count, &report) : NULL;
    if (!rules)
        no_memory(plan->error);
    if (rules && (override ? rules->override_count : rules->rule_count) > 0)
        return STEAL(rules);
    for (size_t i = 0; i < report.error_count && i < RULES_ERRORS_MAX; i++)
        if (report.errors[i].line == (int)count)
            err_set(plan->error, WEIR_E_RULES, "%s%.*s%s%.*s", override ? "" : "rule ",
                    SV_FMT(override ? SV("") : row->rule), override ? "" : ": ", SV_FMT(report.errors[i].text));
    return NULL;
}

bool plan_is_good(struct plan *plan, const struct stored_row *row)
{
    CLEANUP(rules_freep) struct rules *rules = plan_rule(plan, row);
    return rules != NULL;
}

/* ---- judging ---- */

static bool change_is_of(const struct change *change, const struct source_problem *problem)
{
    const struct stored_row *row = change->after ? change->after : change->before;
    return sv_eq(row->key, problem->row) && sv_eq(weir_str(table_names[row->table]), problem->table) &&
           sv_eq(row->rule, problem->rule);
}

/* Returns the change of the bad row, if it is one of those that are changed. */
static const struct change *change_of(const struct plan *plan, const struct source_problem *problem)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->changes[i].after && change_is_of(&plan->changes[i], problem))
            return &plan->changes[i];
    return NULL;
}

static bool was_bad(const struct source_reading *before, const struct source_problem *problem)
{
    for (size_t i = 0; i < before->problem_count; i++)
        if (sv_eq(before->problems[i].row, problem->row) && sv_eq(before->problems[i].table, problem->table) &&
            sv_eq(before->problems[i].rule, problem->rule))
            return true;
    return false;
}

static int refuse(const struct source_problem *problem, bool own, struct weir_error *error)
{
    bool rule = problem->rule.len > 0;
    if (sv_eq(problem->table, weir_str(table_names[TABLE_OVERRIDES]))) /* whose text names it */
        return err_set(error, WEIR_E_RULES, "%s%.*s; nothing was changed", own ? "" : "this would break the ",
                       SV_FMT(problem->text));
    return err_set(error, WEIR_E_RULES, "%s%s %.*s: %.*s; nothing was changed", own ? "" : "this would break ",
                   rule ? "rule" : "setting", SV_FMT(rule ? problem->rule : problem->row), SV_FMT(problem->text));
}

/* A change may leave rows bad that were bad before, except those that it changes. */
static int judge(struct plan *plan, const struct source_reading *before, const struct source_reading *after,
                 struct weir_error *error)
{
    for (size_t i = 0; i < after->problem_count; i++) {
        const struct source_problem *problem = &after->problems[i];
        const struct change *change = change_of(plan, problem);
        bool own = change != NULL;
        if (own && change->may_be_bad)
            continue;
        if (own || (before->unlisted == 0 && !was_bad(before, problem)))
            return refuse(problem, own, error);
    }
    /* Not all problems are listed: those of the changed rows have to be looked for. */
    for (size_t j = 0; j < plan->count && after->unlisted > 0; j++) {
        const struct stored_row *row = plan->changes[j].may_be_bad ? NULL : plan->changes[j].after;
        if (row && row->rule.len && !plan_is_good(plan, row))
            return error->code;
    }
    return 0;
}

/* Returns the rule of a row, or NULL if it is bad. Its error is reported elsewhere. */
static struct rules *rule_if_good(struct plan *plan, const struct stored_row *row)
{
    struct weir_error *error = plan->error, ignored;
    plan->error = &ignored;
    struct rules *rules = plan_rule(plan, row);
    plan->error = error;
    return rules;
}

/* `gone`: `before` is what the rule was until it was removed. */
static int keep_subjects(struct plan *plan, const struct stored_row *before, const struct stored_row *after, bool gone)
{
    CLEANUP(rules_freep) struct rules *was = rule_if_good(plan, before), *is = rule_if_good(plan, after);
    if (!was || !is || rule_same_by(was->rules[0], is->rules[0]))
        return 0;
    return err_set(
        plan->error, WEIR_E_RULES,
        "rule %.*s: by: the rule has overrides%s, whose subjects are values of what it %s; remove them before you "
        "change `by`; nothing was changed",
        SV_FMT(after->rule), gone ? " from before it was removed" : "", gone ? "counted by then" : "counts by now");
}

/* A rule that comes back must count by what it counted by before: its overrides have waited for it. */
static int keep_unused_subjects(struct plan *plan, const struct stored_row *after)
{
    struct source *source = plan->source;
    struct stored_row last = { 0 };
    int r = source->backend->last ? source->backend->last(source, after->rule, plan->arena, &last, plan->error) : 0;
    return r < 0 || last.text.len == 0 ? r : keep_subjects(plan, &last, after, true);
}

/* Refuses a change of `by` in a rule that has overrides in a table: their subjects would be values of other attributes. */
static int overrides_keep_subjects(struct plan *plan, const struct snapshot *after)
{
    sv seen = { 0 };
    bool table = !in_files(plan->source); /* a file names the attributes */
    for (size_t i = 0; table && i < after->count; i++) {
        const struct stored_row *row = &after->rows[i];
        if (row->table != TABLE_OVERRIDES || sv_eq(row->rule, seen))
            continue;
        const struct stored_row *was = snapshot_rule(plan->snapshot, row->rule), *is = snapshot_rule(after, row->rule);
        bool back = !was && is;
        if (back && !snapshot_override(plan->snapshot, row->rule, row->key))
            continue; /* it comes with the rule */
        int r = 0;
        if (was && is && !sv_eq(was->text, is->text))
            r = keep_subjects(plan, was, is, false);
        else if (back)
            r = keep_unused_subjects(plan, is);
        if (r < 0)
            return r;
        seen = row->rule;
    }
    return 0;
}

/* The rows as they will be. The caller ends with snapshot_done, also after an error. */
static int rows_after(const struct plan *plan, struct snapshot *ret, struct weir_error *error)
{
    int r = snapshot_copy(plan->snapshot, plan->count, ret, error);
    if (r < 0)
        return r;
    CLEANUP_FREE bool *gone = cleanup_calloc(ret->count + 1, sizeof *gone);
    sv path = in_files(plan->source) ? weir_str(plan->source->address.path) : SV("");
    if (!gone)
        return no_memory(error);
    for (size_t i = 0; i < plan->count; i++) {
        const struct change *change = &plan->changes[i];
        struct stored_row *row =
            change->before ? &ret->rows[change->before - plan->snapshot->rows] : &ret->rows[ret->count++];
        sv file = change->before ? change->before->file : path;
        if (change->after) {
            *row = *change->after;
            row->file = file;
        } else
            gone[row - ret->rows] = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < ret->count; i++)
        if (i >= plan->snapshot->count || !gone[i])
            ret->rows[kept++] = ret->rows[i];
    ret->count = kept;
    return snapshot_index(ret, error);
}

static int let_look(const struct source *source, const struct source_reading *after, struct weir_error *error)
{
    const struct source_terms *terms = &source->terms;
    return terms->dry_run && terms->look ? terms->look(after, terms->data, error) : 0;
}

static int judge_plan(struct plan *plan, struct snapshot *after, struct weir_error *error)
{
    CLEANUP(snapshot_done) struct snapshot copy = { 0 };
    CLEANUP(source_reading_done) struct source_reading was = { 0 }, will_be = { 0 };
    const struct snapshot_terms all = { .rows = true, .all = true };
    int r = rows_after(plan, after, error);
    if (r == 0)
        r = snapshot_read(after, &all, &will_be, error);
    /* How it was matters only where something will be bad. */
    bool compare = r == 0 && will_be.problem_count > 0;
    if (compare)
        r = snapshot_copy(plan->snapshot, 0, &copy, error);
    if (compare && r == 0)
        r = snapshot_read(&copy, &all, &was, error);
    if (r == 0)
        r = judge(plan, &was, &will_be, error);
    if (r == 0)
        r = overrides_keep_subjects(plan, after);
    return r < 0 ? r : let_look(plan->source, &will_be, error);
}

static bool text_fits(sv text, size_t max)
{
    return text.len <= max && utf8_valid(text) && !memchr(text.ptr ? text.ptr : "", 0, text.len);
}

/* An invisible character, or one that turns the direction of text, could make a name look like another one. */
static bool is_shown(sv text)
{
    for (size_t length; text.len > 0; text = sv_from(text, length)) {
        length = utf8_length(text);
        if (!utf8_shown(text, length))
            return false;
    }
    return true;
}

int source_check_author(struct source_author author, struct weir_error *error)
{
    if (author.who.len > WHO_MAX || !is_shown(author.who))
        return err_set(error, WEIR_E_INVALID,
                       "the name of who makes a change has at most %d bytes of UTF-8, without control and invisible "
                       "characters",
                       WHO_MAX);
    if (!text_fits(author.note, NOTE_MAX))
        return err_set(error, WEIR_E_INVALID, "a note has at most %d bytes of UTF-8", NOTE_MAX);
    return 0;
}

/* `one_override`: see source_change_override. */
static int change(struct source *source, bool one_override, plan_maker *make, void *data, struct source_author author,
                  struct weir_error *error)
{
    static const struct source_overrides none = { .most = 0 };
    struct weir_error own = { .code = WEIR_OK };
    CLEANUP(snapshot_done) struct snapshot snapshot = { 0 }, after = { 0 };
    struct plan plan = { .source = source, .snapshot = &snapshot, .arena = &snapshot.arena, .error = &own };
    int r = source_check_author(author, &own);
    if (r == 0)
        r = source->backend->begin(source, true, one_override ? &none : NULL, &snapshot, &own);
    bool begun = r == 0;
    if (r == 0 && source->terms.check && !one_override)
        r = source->terms.check(snapshot_version(&snapshot, source->terms.id), source->terms.data, &own);
    if (r == 0)
        r = make(&plan, data);
    if (r == 0 && plan.count > 0)
        r = judge_plan(&plan, &after, &own);
    if (r == 0 && plan.count > 0 && !source->terms.dry_run) {
        source->changed = true;
        r = source->backend->apply(source, &after, &plan, author, &own);
    }
    if (begun && source->backend->end)
        source->backend->end(source);
    free(plan.changes);
    if (r < 0 && error)
        *error = own;
    return r;
}

int source_change(struct source *source, plan_maker *make, void *data, struct source_author author,
                  struct weir_error *error)
{
    return change(source, false, make, data, author, error);
}

int source_change_override(struct source *source, plan_maker *make, void *data, struct source_author author,
                           struct weir_error *error)
{
    return change(source, true, make, data, author, error);
}

int refuse_report(struct plan *plan, const struct rules_report *report)
{
    char more[40] = "";
    if (report->error_count == 0)
        return 0;
    const struct rule_problem *first = &report->errors[0];
    if (report->error_count > 1)
        snprintf(more, sizeof more, "; %zu errors in all", report->error_count);
    return err_set(plan->error, WEIR_E_RULES, "%s%.*s%s%.*s%s; nothing was changed", first->rule.len ? "rule " : "",
                   SV_FMT(first->rule), first->rule.len ? ": " : "", SV_FMT(first->text), more);
}

/* ---- one rule ---- */

int no_such_rule(struct plan *plan, sv id)
{
    return err_set(plan->error, WEIR_E_UNKNOWN_RULE, "%s: there is no rule %.*s", plan->source->address.shown,
                   (int)(id.len < WEIR_ID_MAX ? id.len : WEIR_ID_MAX), id.ptr ? id.ptr : "");
}

/* Turns a whole rule into the row of THROTTLED_CALLS that says the same. */
static int to_call(struct plan *plan, const struct stored_row *old, struct stored_row *row)
{
    struct stored_row call = { .table = TABLE_CALLS, .key = old->key, .rule = old->rule, .enabled = true };
    CLEANUP(rules_freep) struct rules *before = plan_rule(plan, old), *rules = plan_rule(plan, row);
    if (!rules)
        return plan->error->code;
    int r = call_from_rule(rules->rules[0], old, before ? before->rules[0] : NULL, &call, plan->arena, plan->error);
    if (r == 0)
        *row = call;
    return r;
}

struct set {
    sv id, field, value;
    bool enabled;
};

static int set_document(struct plan *plan, const struct set *set, const struct stored_row *old, struct stored_row *row)
{
    CLEANUP(rules_freep) struct rules *rules = plan_rule(plan, old);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, SQL_VALUE_MAX);
    if (!rules)
        return plan->error->code;
    int r = document_set(old->text, rules->rules[0], set->field, set->value, &text, plan->error);
    *row = *old;
    row->text = r == 0 ? plan_copy(plan, buf_sv(&text)) : (sv){ 0 };
    return r == 0 && !row->text.ptr ? WEIR_E_NO_MEMORY : r;
}

/* A rule that is switched off is exported with mode `off`. Taken back in, it keeps the mode that its row has. */
static int keep_mode(struct plan *plan, const struct stored_row *old, struct stored_row *row)
{
    CLEANUP(rules_freep) struct rules *before = plan_rule(plan, old), *rules = plan_rule(plan, row);
    if (!before || !rules || rules->rules[0]->kind->mode != MODE_OFF)
        return 0;
    CLEANUP(buf_done) struct buf was, is;
    buf_init(&was, 4 * (size_t)SQL_VALUE_MAX);
    buf_init(&is, 4 * (size_t)SQL_VALUE_MAX);
    struct rule_kind kind = *rules->rules[0]->kind;
    enum rule_mode mode = kind.mode = before->rules[0]->kind->mode;
    rules->rules[0]->kind = &kind; /* of both sets, nothing is kept */
    rules_write(before, &was);
    rules_write(rules, &is);
    if (!was.failed && !is.failed && sv_eq(buf_sv(&was), buf_sv(&is))) {
        row->text = old->text;
        return 0;
    }
    struct set set = { .field = SV("mode"), .value = mode == MODE_SHADOW ? SV("shadow") : SV("") };
    return mode == MODE_OFF ? 0 : set_document(plan, &set, row, row);
}

/* A table has a column for `enabled`: what the document says goes there, and leaves the document. *ret_said: it says it. A
 * bad document is judged later. */
static int take_enabled(struct plan *plan, struct stored_row *row, bool *ret_said)
{
    struct set set = { .field = SV("enabled") };
    bool table = !in_files(plan->source);
    CLEANUP(rules_freep) struct rules *rules = table && document_has(row->text, "enabled") ? plan_rule(plan, row) : NULL;
    *ret_said = rules != NULL;
    if (!rules)
        return 0;
    row->enabled = !rules->rules[0]->kind->disabled;
    return set_document(plan, &set, row, row);
}

int plan_put_rule(struct plan *plan, sv id, sv text, bool replace)
{
    const struct stored_row *old = snapshot_rule(plan->snapshot, id);
    struct stored_row row = { .table = TABLE_RULES, .key = id, .rule = id, .text = text, .enabled = true };
    if (old && !replace)
        return err_set(plan->error, WEIR_E_INVALID, "%s: there is a rule %.*s already; nothing was changed",
                       plan->source->address.shown, SV_FMT(id));
    bool said = false;
    int r = 0;
    if (old && old->table == TABLE_CALLS) {
        r = to_call(plan, old, &row);
    } else {
        r = take_enabled(plan, &row, &said);
        if (r == 0 && old && !said)
            row.enabled = old->enabled || plan->source->terms.enable;
        if (r == 0 && old && !said && !row.enabled)
            r = keep_mode(plan, old, &row);
    }
    if (r < 0)
        return r;
    if (old && old->fault.len == 0 && old->enabled == row.enabled && json_is_same(old->text, row.text))
        return 0;
    return plan_put(plan, old ? "change" : "add", old, row);
}

struct put {
    sv text;
    bool replace;
};

static int make_put(struct plan *plan, void *data)
{
    const struct put *put = data;
    struct rule_row *rows;
    size_t count;
    int r = rules_split(put->text, plan->arena, &rows, &count, plan->error);
    if (r < 0)
        return r;
    if (count != 1 || rows[0].kind != ROW_RULE)
        return err_set(plan->error, WEIR_E_INVALID,
                       "one rule is expected here, with its `id`; import takes many, settings and overrides");
    return plan_put_rule(plan, rows[0].id, rows[0].text, put->replace);
}

int source_put(struct source *source, sv rule, bool replace, struct source_author author, struct weir_error *error)
{
    struct put put = { rule, replace };
    return source_change(source, make_put, &put, author, error);
}

/* A rule that is enabled is in force, whatever its document said. It keeps a mode other than `off`. */
static int switch_on(struct plan *plan, struct stored_row *row)
{
    static const struct set enabled = { .field = { "enabled", 7 } };
    static const struct set enforce = { .field = { "mode", 4 }, .value = { "enforce", 7 } };
    CLEANUP(rules_freep) struct rules *rules = plan_rule(plan, row);
    if (!rules)
        return plan->error->code;
    bool disabled = rules->rules[0]->kind->disabled;
    bool off = (disabled ? rules->rules[0]->kind->enabled_mode : rules->rules[0]->kind->mode) == MODE_OFF;
    int r = disabled ? set_document(plan, &enabled, row, row) : 0;
    return r == 0 && off ? set_document(plan, &enforce, row, row) : r;
}

/* A file has no column for it, but the field `enabled`. A rule whose mode is `off` is disabled already. */
static int switch_off(struct plan *plan, struct stored_row *row)
{
    static const struct set disabled = { .field = { "enabled", 7 }, .value = { "false", 5 } };
    if (!in_files(plan->source)) {
        row->enabled = false;
        return 0;
    }
    CLEANUP(rules_freep) struct rules *rules = plan_rule(plan, row);
    return rules && rules->rules[0]->kind->mode == MODE_OFF ? 0 : set_document(plan, &disabled, row, row);
}

static int make_enable(struct plan *plan, void *data)
{
    const struct set *set = data;
    const struct stored_row *old = snapshot_rule(plan->snapshot, set->id);
    if (!old)
        return no_such_rule(plan, set->id);
    if (old->table == TABLE_CALLS)
        return err_set(plan->error, WEIR_E_INVALID,
                       "a row of THROTTLED_CALLS cannot be switched off and on; let it expire (expires=…), or remove it");
    struct stored_row row = *old;
    row.enabled = true;
    row.fault = (sv){ 0 };
    int r = set->enabled ? switch_on(plan, &row) : switch_off(plan, &row);
    if (r < 0 || (old->enabled == row.enabled && old->fault.len == 0 && sv_eq(old->text, row.text)))
        return r;
    r = plan_put(plan, set->enabled ? "enable" : "disable", old, row);
    if (r == 0)
        newest_change(plan)->may_be_bad = !set->enabled;
    return r;
}

/* One column of a bad row of THROTTLED_CALLS; the others stay as they are. */
static int mend_call(struct plan *plan, const struct set *set, const struct stored_row *old)
{
    struct stored_row base, row, mended = *old;
    int r = call_stand_in(old, false, &base, plan->arena, plan->error);
    if (r == 0 && !plan_is_good(plan, &base))
        r = call_stand_in(old, true, &base, plan->arena, plan->error);
    if (r == 0)
        r = set_document(plan, set, &base, &row);
    if (r == 0)
        r = to_call(plan, &base, &row);
    if (r == 0)
        r = call_take_column(set->field, row.call, mended.call, plan->error);
    if (r == 0)
        r = call_read(&mended, plan->arena, plan->error);
    if (r == 0)
        r = plan_put(plan, "change", old, mended);
    if (r == 0)
        newest_change(plan)->may_be_bad = !plan_is_good(plan, &mended);
    return r;
}

static int make_set(struct plan *plan, void *data)
{
    const struct set *set = data;
    const struct stored_row *old = snapshot_rule(plan->snapshot, set->id);
    struct stored_row row;
    if (!old)
        return no_such_rule(plan, set->id);
    if (old->table == TABLE_CALLS && !plan_is_good(plan, old))
        return mend_call(plan, set, old);
    int r = set_document(plan, set, old, &row);
    if (r == 0 && old->table == TABLE_CALLS)
        r = to_call(plan, old, &row);
    if (r < 0 || json_is_same(row.text, old->text))
        return r;
    return plan_put(plan, "change", old, row);
}

/* The document as it would be if it were put whole, except that the rule stays enabled or disabled unless the patch says
 * so. */
static int make_patch(struct plan *plan, void *data)
{
    const struct set *set = data;
    const struct stored_row *old = snapshot_rule(plan->snapshot, set->id);
    CLEANUP(buf_done) struct buf text;
    bool said;
    buf_init(&text, SQL_VALUE_MAX);
    if (!old)
        return no_such_rule(plan, set->id);
    struct stored_row row = *old;
    int r = document_patch(old->text, set->value, &text, plan->error);
    if (r < 0)
        return r;
    row.text = plan_copy(plan, buf_sv(&text));
    row.fault = (sv){ 0 };
    if (!row.text.ptr)
        return WEIR_E_NO_MEMORY;
    r = old->table == TABLE_CALLS ? to_call(plan, old, &row) : take_enabled(plan, &row, &said);
    if (r < 0 || (old->fault.len == 0 && old->enabled == row.enabled && json_is_same(old->text, row.text)))
        return r;
    return plan_put(plan, "change", old, row);
}

int source_patch(struct source *source, sv id, sv patch, struct source_author author, struct weir_error *error)
{
    struct set set = { .id = id, .value = patch };
    return source_change(source, make_patch, &set, author, error);
}

int source_enable(struct source *source, sv id, bool enabled, struct source_author author, struct weir_error *error)
{
    struct set set = { .id = id, .enabled = enabled };
    return source_change(source, make_enable, &set, author, error);
}

int source_set(struct source *source, sv id, sv field, sv value, struct source_author author, struct weir_error *error)
{
    struct set set = { .id = id, .field = field, .value = value };
    bool on = value.len == 0 || sv_eq(value, SV("true"));
    if (!sv_eq(field, SV("enabled")))
        return source_change(source, make_set, &set, author, error);
    if (!on && !sv_eq(value, SV("false")))
        return err_set(error, WEIR_E_INVALID, "rule %.*s: enabled: must be true or false; nothing was changed",
                       (int)(id.len < WEIR_ID_MAX ? id.len : WEIR_ID_MAX), id.ptr ? id.ptr : "");
    return source_enable(source, id, on, author, error);
}

static int make_remove(struct plan *plan, void *data)
{
    const struct set *set = data;
    const struct stored_row *old = snapshot_rule(plan->snapshot, set->id);
    return old ? plan_add(plan, "remove", old, NULL) : no_such_rule(plan, set->id);
}

int source_remove(struct source *source, sv id, struct source_author author, struct weir_error *error)
{
    struct set set = { .id = id };
    return source_change(source, make_remove, &set, author, error);
}
