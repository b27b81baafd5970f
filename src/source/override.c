/* Overrides: one that is set or removed, many that are imported, and reading a part of them. */
#include <limits.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/utf8.h"
#include "source/backend.h"

enum { SUBJECT_SHOWN = 200 };

/* ---- whom it is for ---- */

struct set_override {
    sv rule;
    struct source_subject subject;
    sv document; /* as JSON; empty: remove */
    struct buf *ret_subject;

    sv values[RULE_BY_MAX];
    sv text; /* the subject as it is stored */
};

static int wrong_count(const struct plan *plan, const struct rule *rule, size_t given)
{
    CLEANUP(buf_done) struct buf names;
    buf_init(&names, RULE_BY_MAX * (RULE_BY_TEXT_MAX + 2));
    for (size_t i = 0; i < rule->kind->by_count; i++) {
        buf_add(&names, i ? SV(", ") : SV(""));
        rule_by_text(&rule->kind->by[i], &names);
    }
    return err_set(plan->error, WEIR_E_INVALID, "rule %.*s counts by %.*s: give %d %s, not %zu", SV_FMT(rule->id),
                   SV_FMT(buf_sv(&names)), rule->kind->by_count, rule->kind->by_count == 1 ? "value" : "values", given);
}

static int subject_fits(const struct plan *plan, sv text)
{
    bool file = in_files(plan->source);
    if (!utf8_valid(text) || memchr(text.ptr ? text.ptr : "", '\0', text.len))
        return err_set(plan->error, WEIR_E_INVALID, "a subject must be UTF-8 without NUL characters");
    if (!file && text.len > SUBJECT_MAX)
        return err_set(plan->error, WEIR_E_INVALID, "the subject has %zu bytes; a table has room for %d", text.len,
                       SUBJECT_MAX);
    return 0;
}

/* The subject spelled as it is stored: values as requests have them. */
static int find_subject(struct plan *plan, const struct rules *rules, struct set_override *set)
{
    const struct rule *rule = rules->rules[0];
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    if (set->subject.count > 1 && set->subject.count != rule->kind->by_count)
        return wrong_count(plan, rule, set->subject.count);
    int r = subject_fits(plan, set->subject.text);
    if (r == 0)
        r = override_subject_split(&rules->settings, rule, set->subject.text, plan->arena, set->values, plan->error);
    if (r < 0)
        return r;
    override_subject_text(set->values, rule->kind->by_count, &text);
    set->text = plan_copy(plan, buf_sv(&text));
    return set->text.ptr && !text.failed ? subject_fits(plan, set->text) : no_memory(plan->error);
}

/* ---- one ---- */

/* The subject as it is stored. That of a rule that is gone or bad must be given as its row has it. */
static int find_subject_if(struct plan *plan, struct set_override *set)
{
    const struct stored_row *rule = snapshot_rule(plan->snapshot, set->rule);
    struct weir_error *error = plan->error, ignored;
    set->text = set->subject.text;
    plan->error = &ignored;
    CLEANUP(rules_freep) struct rules *rules = rule ? plan_rule(plan, rule) : NULL;
    plan->error = error;
    return rules ? find_subject(plan, rules, set) : subject_fits(plan, set->text);
}

/* A row that was written by others may be spelled otherwise. */
static int find_row(struct plan *plan, const struct set_override *set, const struct stored_row **ret)
{
    struct source *source = plan->source;
    bool other = !sv_eq(set->text, set->subject.text);
    int r = source->backend->find ? source->backend->find(source, set->rule, set->text, plan->snapshot, plan->error) : 0;
    if (r == 0 && other && source->backend->find)
        r = source->backend->find(source, set->rule, set->subject.text, plan->snapshot, plan->error);
    if (r < 0)
        return r;
    *ret = snapshot_override(plan->snapshot, set->rule, set->text);
    if (!*ret && other)
        *ret = snapshot_override(plan->snapshot, set->rule, set->subject.text);
    return 0;
}

/* The same for a change: asks the terms. */
static int find_row_to_change(struct plan *plan, const struct set_override *set, const struct stored_row **ret)
{
    const struct source_terms *terms = &plan->source->terms;
    int r = find_row(plan, set, ret);
    if (r == 0 && terms->check)
        r = terms->check(*ret ? row_listed(*ret, SV("")).version : 0, terms->data, plan->error);
    return r;
}

static int no_such_override(struct plan *plan, const struct set_override *set)
{
    return err_set(plan->error, WEIR_E_UNKNOWN_RULE, "%s: rule %.*s has no override for %.*s", plan->source->address.shown,
                   SV_FMT(utf8_cut(set->rule, WEIR_ID_MAX)), SV_FMT(utf8_cut(set->text, SUBJECT_SHOWN)));
}

static int put_row(struct plan *plan, const struct stored_row *old, sv rule, sv subject, sv text)
{
    struct stored_row row = { .table = TABLE_OVERRIDES, .key = subject, .rule = rule, .text = text, .enabled = true };
    if (!row.text.ptr)
        return no_memory(plan->error);
    if (old)
        row.key = old->key;
    if (old && old->fault.len == 0 && json_is_same(old->text, row.text))
        return 0;
    return plan_put(plan, old ? "change" : "add", old, row);
}

static int make_put(struct plan *plan, void *data)
{
    struct set_override *set = data;
    const struct stored_row *rule = snapshot_rule(plan->snapshot, set->rule), *old = NULL;
    CLEANUP(buf_done) struct buf whole;
    buf_init(&whole, SQL_VALUE_MAX);
    if (!rule)
        return no_such_rule(plan, set->rule);
    CLEANUP(rules_freep) struct rules *rules = plan_rule(plan, rule);
    if (!rules)
        return plan->error->code;
    int r = find_subject(plan, rules, set);
    if (r == 0 && set->ret_subject)
        buf_add(set->ret_subject, set->text);
    if (r == 0)
        r = find_row_to_change(plan, set, &old);
    bool file = in_files(plan->source);
    if (r == 0 && file)
        r = document_of_override(set->document, rules->rules[0], set->values, &whole, plan->error);
    sv text = file ? buf_sv(&whole) : set->document;
    return r < 0 ? r : put_row(plan, old, set->rule, set->text, plan_copy(plan, text));
}

int source_put_override(struct source *source, sv rule, struct source_subject subject, sv document,
                        struct source_author author, struct buf *ret_subject, struct weir_error *error)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, SQL_VALUE_MAX);
    int r = rules_json(document, &text, error);
    if (r < 0)
        return r;
    struct set_override set = { .rule = rule, .subject = subject, .document = buf_sv(&text), .ret_subject = ret_subject };
    return source_change_override(source, make_put, &set, author, error);
}

/* The override of a rule that is gone or bad can be removed, too. */
static int make_remove(struct plan *plan, void *data)
{
    struct set_override *set = data;
    const struct stored_row *old = NULL;
    int r = find_subject_if(plan, set);
    if (r == 0)
        r = find_row_to_change(plan, set, &old);
    if (r < 0)
        return r;
    return old ? plan_add(plan, "remove", old, NULL) : no_such_override(plan, set);
}

int source_remove_override(struct source *source, sv rule, struct source_subject subject, struct source_author author,
                           struct weir_error *error)
{
    struct set_override set = { .rule = rule, .subject = subject };
    return source_change_override(source, make_remove, &set, author, error);
}

/* ---- many ---- */

/* The text's own rows, then the source's rules and settings that it does not replace: an override may be for one of them.
 * Overrides get their subjects from their documents, in the order of the rule's `by`. */
static struct rule_row *rows_to_read(const struct plan *plan, const struct rule_row *rows, size_t count, size_t *ret_count)
{
    const struct snapshot *snapshot = plan->snapshot;
    CLEANUP(snapshot_done) struct snapshot named = { .ordered = true };
    CLEANUP_FREE struct rule_row *all = cleanup_calloc(count + snapshot->count + 1, sizeof *all);
    size_t cap = 0, n = 0;
    for (size_t i = 0; all && i < count; i++) {
        struct stored_row *row = snapshot_add(&named, &cap);
        if (!row)
            break;
        bool setting = rows[i].kind == ROW_SETTING, override = rows[i].kind == ROW_OVERRIDE;
        *row =
            (struct stored_row){ .table = setting ? TABLE_SETTINGS : TABLE_RULES, .key = override ? SV("") : rows[i].id };
        all[n] = rows[i];
        if (override)
            all[n].subject = SV("");
        n++;
    }
    if (!all || n < count || snapshot_index(&named, plan->error) < 0)
        return NULL;
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct stored_row *row = &snapshot->rows[i];
        bool setting = row->table == TABLE_SETTINGS;
        if (row->table != TABLE_OVERRIDES &&
            !snapshot_find(&named, setting ? TABLE_SETTINGS : TABLE_RULES, setting ? row->key : row->rule))
            all[n++] = row_to_read(row);
    }
    *ret_count = n;
    return STEAL(all);
}

static int import_one(struct plan *plan, const struct rule_override *override, struct rule_row *row)
{
    CLEANUP(buf_done) struct buf subject, document;
    buf_init(&subject, RULES_BYTES_MAX);
    buf_init(&document, SQL_VALUE_MAX);
    bool file = in_files(plan->source);
    override_subject_text(override->values, override->value_count, &subject);
    row->subject = plan_copy(plan, buf_sv(&subject));
    if (!row->subject.ptr || subject.failed)
        return no_memory(plan->error);
    int r = subject_fits(plan, row->subject);
    if (r == 0 && !file)
        r = document_of_override(row->text, NULL, NULL, &document, plan->error);
    sv text = file ? row->text : buf_sv(&document);
    const struct stored_row *old = snapshot_override(plan->snapshot, row->id, row->subject);
    return r < 0 ? r : put_row(plan, old, row->id, row->subject, plan_copy(plan, text));
}

int overrides_import(struct plan *plan, struct rule_row *rows, size_t count)
{
    size_t overrides = 0, all_count = 0;
    for (size_t i = 0; i < count; i++)
        overrides += rows[i].kind == ROW_OVERRIDE;
    if (overrides == 0)
        return 0;
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP_FREE struct rule_row *all = rows_to_read(plan, rows, count, &all_count);
    CLEANUP(rules_freep) struct rules *rules = all ? rules_read_rows(all, all_count, &report) : NULL;
    if (!rules)
        return no_memory(plan->error);
    /* Rows of the source may be bad, and stay so. */
    for (size_t i = 0; i < report.error_count && i < RULES_ERRORS_MAX; i++)
        if (report.errors[i].line <= (int)count)
            return refuse_report(plan, &report);
    int r = 0;
    for (size_t i = 0; i < rules->override_count && r == 0; i++)
        r = import_one(plan, &rules->overrides[i], &rows[rules->overrides[i].line - 1]);
    return r;
}

/* ---- reading some of them ---- */

static bool follows(const struct source_overrides *which, const struct source_row *row)
{
    int order = which->after_rule.len > 0 ? sv_compare(row->rule, which->after_rule) : 0;
    return order != 0 ? order > 0 : which->after.len == 0 || sv_compare(row->key, which->after) > 0;
}

static bool is_wanted(const struct source_overrides *which, const struct source_row *row)
{
    return (which->rule.len == 0 || sv_eq(row->rule, which->rule)) &&
           (which->subject.len == 0 || sv_eq(row->key, which->subject)) && follows(which, row);
}

static int compare_overrides(const void *a, const void *b)
{
    const struct source_row *x = a, *y = b;
    int order = sv_compare(x->rule, y->rule);
    return order ? order : sv_compare(x->key, y->key);
}

/* A file is read whole. */
static void leave_out_others(const struct source_overrides *which, struct source_reading *reading)
{
    size_t kept = 0;
    if (which->most != UINT_MAX && reading->override_count > 1)
        qsort(reading->overrides, reading->override_count, sizeof *reading->overrides, compare_overrides);
    for (size_t i = 0; i < reading->override_count && kept < which->most; i++)
        if (is_wanted(which, &reading->overrides[i]))
            reading->overrides[kept++] = reading->overrides[i];
    reading->override_count = kept;
}

static int read_some(struct snapshot *snapshot, const struct source_overrides *which, struct source_reading *ret,
                     struct weir_error *error)
{
    int r = snapshot_read(snapshot, &(struct snapshot_terms){ .rows = true }, ret, error);
    if (r == 0)
        leave_out_others(which, ret);
    return r;
}

int source_read_overrides(struct source *source, const struct source_overrides *which, struct source_reading *ret,
                          struct weir_error *error)
{
    CLEANUP(snapshot_done) struct snapshot snapshot = { 0 };
    int r = source->backend->begin(source, false, which, &snapshot, error);
    if (r < 0)
        return r;
    if (source->backend->end)
        source->backend->end(source);
    return read_some(&snapshot, which, ret, error);
}

int source_read_override(struct source *source, sv rule, sv subject, struct source_reading *ret, struct weir_error *error)
{
    static const struct source_overrides none = { .most = 0 };
    struct weir_error own = { .code = WEIR_OK };
    CLEANUP(snapshot_done) struct snapshot snapshot = { 0 };
    struct plan plan = { .source = source, .snapshot = &snapshot, .arena = &snapshot.arena, .error = &own };
    struct set_override set = { .rule = rule, .subject = { .text = subject } };
    const struct stored_row *row = NULL;
    int r = source->backend->begin(source, false, &none, &snapshot, &own);
    bool begun = r == 0;
    if (r == 0)
        r = find_subject_if(&plan, &set);
    if (r == 0)
        r = find_row(&plan, &set, &row);
    if (r == 0 && !row)
        r = no_such_override(&plan, &set);
    if (begun && source->backend->end)
        source->backend->end(source);
    struct source_overrides which = { .rule = rule, .subject = row ? row->key : SV(""), .most = 1 };
    if (r == 0)
        return read_some(&snapshot, &which, ret, error);
    if (error)
        *error = own;
    return r;
}
