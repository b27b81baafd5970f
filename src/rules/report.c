#include <stdio.h>

#include "base/utf8.h"
#include "rules/reader.h"

void rules_report_done(struct rules_report *report)
{
    if (!report)
        return;
    arena_done(&report->arena);
    *report = (struct rules_report){ 0 };
}

/* ---- collecting ---- */

enum { SUBJECT_SHOWN_MAX = 100 };

/* "override of rule api for 4711: " */
static void name_override(const struct reader *r, char *to, size_t size)
{
    CLEANUP(buf_done) struct buf subject;
    buf_init(&subject, RULES_BYTES_MAX);
    override_subject_text(r->override_values, r->override_value_count, &subject);
    if (text_has_control(buf_sv(&subject)))
        buf_clear(&subject);
    sv cut = utf8_cut(buf_sv(&subject), SUBJECT_SHOWN_MAX);
    if (r->override_rule.len == 0)
        snprintf(to, size, "override #%zu: ", r->override_number);
    else
        snprintf(to, size, "override of rule %.*s%s%.*s%s: ", SV_FMT(r->override_rule), cut.len ? " for " : "", SV_FMT(cut),
                 cut.len < subject.len ? "…" : "");
}

static void add_problem(struct reader *r, struct rule_problem **list, size_t *count, int line, const char *format,
                        va_list args)
{
    if ((*count)++ >= RULES_ERRORS_MAX)
        return;
    line = r->row ? r->row : line;
    struct arena *arena = &r->report->arena;
    if (!*list)
        *list = ARENA_ARRAY(arena, struct rule_problem, RULES_ERRORS_MAX);
    char message[1200];
    vsnprintf(message, sizeof message, format, args);
    char whom[WEIR_ID_MAX + SUBJECT_SHOWN_MAX + 40] = "";
    if (r->in_settings)
        snprintf(whom, sizeof whom, "settings: ");
    else if (r->override_number > 0)
        name_override(r, whom, sizeof whom);
    else if (r->rule_number > 0 && r->rule_id.len == 0)
        snprintf(whom, sizeof whom, "rule #%zu: ", r->rule_number);
    char text[sizeof whom + READER_PATH_MAX + sizeof message + 2];
    int n = snprintf(text, sizeof text, "%s%.*s%s%s", whom, (int)r->path_len, r->path, r->path_len ? ": " : "", message);
    sv copy = arena_copy(arena, sv_of(text, (size_t)n)), rule = arena_copy(arena, r->rule_id);
    if (!*list || !copy.ptr || !rule.ptr) {
        r->no_memory = true;
        return;
    }
    (*list)[*count - 1] = (struct rule_problem){ .line = line, .rule = rule, .text = copy };
}

void report_error(struct reader *r, int line, const char *format, ...)
{
    r->errors++;
    if (r->quiet)
        return;
    va_list args;
    va_start(args, format);
    add_problem(r, &r->report->errors, &r->report->error_count, line, format, args);
    va_end(args);
}

void report_advice(struct reader *r, int line, const char *format, ...)
{
    if (r->quiet)
        return;
    va_list args;
    va_start(args, format);
    add_problem(r, &r->report->advice, &r->report->advice_count, line, format, args);
    va_end(args);
}

void report_bad_rule(struct reader *r, size_t before, size_t rule_max)
{
    struct rules_report *report = r->report;
    if (r->rule_id.len == 0)
        return;
    if (!report->bad)
        report->bad = ARENA_ARRAY(&report->arena, struct rule_bad, rule_max);
    sv id = arena_copy(&report->arena, r->rule_id);
    if (!report->bad || !id.ptr)
        r->no_memory = true;
    else
        report->bad[report->bad_count++] = (struct rule_bad){ id, before };
}

/* Doubles the array whenever it is full. */
void report_bad_override(struct reader *r)
{
    struct rules_report *report = r->report;
    size_t count = report->bad_override_count;
    if (r->override_value_count == 0)
        return;
    if ((count & (count - 1)) == 0) {
        struct override_bad *longer = ARENA_ARRAY(&report->arena, struct override_bad, count ? 2 * count : 1);
        if (longer && count)
            memcpy(longer, report->bad_overrides, count * sizeof *longer);
        r->no_memory = r->no_memory || !longer;
        if (!longer)
            return;
        report->bad_overrides = longer;
    }
    struct override_bad bad = { .rule = arena_copy(&report->arena, r->override_rule),
                                .values = ARENA_ARRAY(&report->arena, sv, r->override_value_count),
                                .value_count = r->override_value_count };
    bool failed = !bad.rule.ptr || !bad.values;
    for (size_t i = 0; !failed && i < bad.value_count; i++)
        failed = !(bad.values[i] = arena_copy(&report->arena, r->override_values[i])).ptr;
    r->no_memory = r->no_memory || failed;
    if (!failed)
        report->bad_overrides[report->bad_override_count++] = bad;
}

static size_t listed(size_t count)
{
    return count < RULES_ERRORS_MAX ? count : RULES_ERRORS_MAX;
}

/* By insertion: they are few, and nearly in order. Those of one line stay as they came. */
static void sort_problems(struct rule_problem *list, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct rule_problem moved = list[i];
        size_t at = i;
        for (; at > 0 && list[at - 1].line > moved.line; at--)
            list[at] = list[at - 1];
        list[at] = moved;
    }
}

void report_sort(struct rules_report *report)
{
    sort_problems(report->errors, listed(report->error_count));
    sort_problems(report->advice, listed(report->advice_count));
}

/* ---- files ---- */

/* The last one that begins before the line; NULL: the rules file itself. */
static const struct included_file *included_file(const struct reader *r, int line)
{
    size_t low = 0, high = r->included ? r->included->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->included->list[middle].lines_before < line)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &r->included->list[low - 1] : NULL;
}

int line_in_file(const struct reader *r, int line)
{
    const struct included_file *file = included_file(r, line);
    return file ? line - file->lines_before : line;
}

sv file_of_line(const struct reader *r, int line)
{
    const struct included_file *file = included_file(r, line);
    return file ? file->path : (sv){ 0 };
}

const char *shown_line(struct reader *r, int line, int from)
{
    const struct included_file *file = included_file(r, line);
    sv name = { 0 };
    if (file != included_file(r, from))
        name = file ? file->path : weir_str(r->included->top);
    int shown = name.len < sizeof r->shown - 40 ? (int)name.len : (int)sizeof r->shown - 40;
    snprintf(r->shown, sizeof r->shown, "line %d%s%.*s", line_in_file(r, line), name.len ? " of " : "", shown,
             name.len ? name.ptr : "");
    return r->shown;
}

static void locate(struct reader *r, struct rule_problem *list, size_t count)
{
    for (size_t i = 0; r->included && i < listed(count); i++) {
        sv file = file_of_line(r, list[i].line);
        list[i].file = file.len > 0 ? arena_copy(&r->report->arena, file) : file;
        list[i].line = line_in_file(r, list[i].line);
        r->no_memory = r->no_memory || (file.len > 0 && !list[i].file.ptr);
    }
}

void report_locate(struct reader *r)
{
    locate(r, r->report->errors, r->report->error_count);
    locate(r, r->report->advice, r->report->advice_count);
}

/* ---- showing values ---- */

const char *shown_text(struct reader *r, sv text)
{
    char cut[READER_SHOWN_MAX + 4];
    size_t n = 0;
    while (n < text.len) {
        size_t length = utf8_length(sv_from(text, n));
        length = length ? length : 1;
        if (n + length > READER_SHOWN_MAX)
            break;
        n += length;
    }
    memcpy(cut, text.ptr, n);
    if (n < text.len) {
        memcpy(cut + n, "…", 3);
        n += 3;
    }
    struct buf out;
    buf_over(&out, r->shown, sizeof r->shown);
    yaml_quote(&out, sv_of(cut, n));
    return out.failed ? "this text" : r->shown;
}

const char *shown_node(struct reader *r, const struct node *node)
{
    if (node->kind == NODE_LIST)
        return "a list";
    if (node->kind == NODE_MAP)
        return "a mapping";
    if (node_is_null(node))
        return "nothing";
    bool ignored;
    if ((node_is_number(node) || node_is_bool(node, &ignored)) && node->text.len <= READER_SHOWN_MAX) {
        snprintf(r->shown, sizeof r->shown, "%.*s", SV_FMT(node->text));
        return r->shown;
    }
    return shown_text(r, node->text);
}

/* ---- printing ---- */

static void print_problems(const struct rule_problem *list, size_t count, sv file, const char *kind, struct buf *out)
{
    for (size_t i = 0; i < listed(count); i++) {
        buf_add(out, list[i].file.len > 0 ? list[i].file : file);
        if (list[i].line > 0)
            buf_printf(out, ":%d", list[i].line);
        buf_add(out, SV(": "));
        if (list[i].rule.len > 0)
            buf_printf(out, "rule %.*s: ", SV_FMT(list[i].rule));
        buf_printf(out, "%s%.*s\n", kind, SV_FMT(list[i].text));
    }
}

void rules_report_print(const struct rules_report *report, sv file, bool with_advice, struct buf *out)
{
    print_problems(report->errors, report->error_count, file, "", out);
    if (report->error_count > RULES_ERRORS_MAX) {
        buf_add(out, file);
        buf_printf(out, ": and %zu more errors\n", report->error_count - RULES_ERRORS_MAX);
    }
    if (with_advice)
        print_problems(report->advice, report->advice_count, file, "advice: ", out);
}
