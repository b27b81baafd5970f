/* Rules in a file. It is read with its lines; it is changed by writing it anew from the rule model. A file that includes
 * others is read with them, and not changed: weir would not know which of them to write. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/program.h"
#include "source/backend.h"

enum { SETTLING_MS = 20 }; /* how soon a file that was just written is looked at again */

/* ---- reading ---- */

static int read_text(struct source *source, struct weir_error *error)
{
    const char *path = source->address.path;
    buf_clear(&source->file_text);
    if (source->address.kind == SOURCE_ENVOY)
        return envoy_read(&path, 1, &source->address.envoy, &source->file_text, &source->file, error);
    return rules_file_read(path, &source->file_text, &source->file, error);
}

/* Reads the text, and the files that it includes. NULL: no memory. */
static struct rules *read_rules(struct source *source, struct rules_report *ret_report)
{
    included_done(&source->included);
    return rules_read_file(buf_sv(&source->file_text), source->address.path, &source->included, ret_report);
}

static struct stored_row row_of(const struct rule_row *row)
{
    bool setting = row->kind == ROW_SETTING, override = row->kind == ROW_OVERRIDE;
    return (struct stored_row){ .table = setting    ? TABLE_SETTINGS
                                         : override ? TABLE_OVERRIDES
                                                    : TABLE_RULES,
                                .key = override ? row->subject : row->id,
                                .rule = setting ? SV("") : row->id,
                                .text = row->text,
                                .enabled = true };
}

static bool keep_problems(struct source *source, const struct rules_report *report, struct source_reading *reading)
{
    size_t count = report->error_count < RULES_ERRORS_MAX ? report->error_count : RULES_ERRORS_MAX;
    sv name = arena_copy(&reading->arena, weir_str(source->address.path));
    reading->problems = ARENA_ARRAY(&reading->arena, struct source_problem, count + 1);
    for (size_t i = 0; reading->problems && i < count; i++) {
        char line[32];
        int n = snprintf(line, sizeof line, "line %d", report->errors[i].line);
        sv row = arena_copy(&reading->arena, report->errors[i].line > 0 ? sv_of(line, (size_t)n) : SV(""));
        sv file = report->errors[i].file.len > 0 ? arena_copy(&reading->arena, report->errors[i].file) : name;
        reading->problems[i] = (struct source_problem){ file, row, arena_copy(&reading->arena, report->errors[i].rule),
                                                        arena_copy(&reading->arena, report->errors[i].text) };
        if (!row.ptr || !file.ptr || !reading->problems[i].text.ptr)
            return false;
    }
    reading->problem_count = count;
    reading->unlisted = report->error_count - count;
    return reading->problems && name.ptr;
}

/* The content of the file and of those that it includes, as rows: bad rules too, unless one of them cannot be split. */
struct listing {
    struct rule_row *rows;
    sv *files; /* for each: the file that it is in */
    size_t count, cap;
    bool *good; /* for each: it is one of the rules that were read */
};

static bool make_room(struct listing *l, size_t more, struct arena *arena)
{
    size_t cap = 2 * (l->count + more) + 1;
    if (l->count + more <= l->cap)
        return true;
    struct rule_row *rows = ARENA_ARRAY(arena, struct rule_row, cap);
    sv *files = ARENA_ARRAY(arena, sv, cap);
    if (!rows || !files)
        return false;
    if (l->count > 0) {
        memcpy(rows, l->rows, l->count * sizeof *rows);
        memcpy(files, l->files, l->count * sizeof *files);
    }
    l->rows = rows;
    l->files = files;
    l->cap = cap;
    return true;
}

static int add_rows(struct listing *l, sv text, sv file, struct arena *arena, struct weir_error *error)
{
    struct rule_row *rows;
    size_t count;
    int r = rules_split_file(text, arena, &rows, &count, error);
    if (r < 0)
        return r;
    if (!make_room(l, count, arena))
        return no_memory(error);
    for (size_t i = 0; i < count; i++) {
        l->files[l->count] = file;
        l->rows[l->count++] = rows[i];
    }
    return 0;
}

/* In the order in which rules_read_file puts rules. */
static int split_all(const struct source *source, struct arena *arena, struct listing *l, struct weir_error *error)
{
    sv name = arena_copy(arena, weir_str(source->address.path));
    int r = name.ptr ? add_rows(l, buf_sv(&source->file_text), name, arena, error) : no_memory(error);
    for (size_t i = 0; i < source->included.count && r == 0; i++) {
        const struct included_file *file = &source->included.list[i];
        if (file->is_folder)
            continue;
        sv path = arena_copy(arena, file->path);
        r = path.ptr ? add_rows(l, buf_sv(&file->text), path, arena, error) : no_memory(error);
    }
    return r;
}

static int list_rows(struct source *source, struct source_reading *reading, struct listing *ret, struct weir_error *error)
{
    struct listing l = { 0 };
    const struct rules *rules = reading->rules;
    size_t rule = 0;
    int r = split_all(source, &reading->arena, &l, NULL);
    if (r < 0) {
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, 4 * (size_t)RULES_BYTES_MAX);
        rules_write(rules, &text);
        l = (struct listing){ 0 };
        sv name = arena_copy(&reading->arena, weir_str(source->address.path));
        r = text.failed || !name.ptr ? no_memory(error) : add_rows(&l, buf_sv(&text), name, &reading->arena, error);
    }
    if (r < 0)
        return r;
    l.good = ARENA_ARRAY(&reading->arena, bool, l.count + 1);
    if (!l.good)
        return no_memory(error);
    for (size_t i = 0; i < l.count; i++) {
        l.good[i] = l.rows[i].kind == ROW_RULE && rule < rules->rule_count && sv_eq(l.rows[i].id, rules->rules[rule]->id);
        rule += l.good[i];
    }
    *ret = l;
    return 0;
}

/* Both are in the order of the file; among the rules there may be last good versions by now. */
static const struct rule *next_rule(const struct rules *rules, sv id, size_t *at)
{
    while (*at < rules->rule_count && !sv_eq(rules->rules[*at]->id, id))
        ++*at;
    return *at < rules->rule_count ? rules->rules[(*at)++] : NULL;
}

static int keep_rows(struct source_reading *reading, const struct listing *l, struct weir_error *error)
{
    size_t rule = 0;
    reading->rows = ARENA_ARRAY(&reading->arena, struct source_row, l->count + 1);
    if (!reading->rows)
        return no_memory(error);
    for (size_t i = 0; i < l->count; i++) {
        if (l->rows[i].kind == ROW_OVERRIDE)
            continue;
        struct stored_row kept = row_of(&l->rows[i]);
        struct source_row row = row_listed(&kept, l->files[i]);
        if (l->good[i])
            row.parsed = next_rule(reading->rules, row.rule, &rule);
        if (row.parsed)
            row.enabled = row.parsed->kind->mode != MODE_OFF;
        reading->rows[reading->row_count++] = row;
    }
    return 0;
}

static int first_error(const struct source *source, const struct rules_report *report, const char *end,
                       struct weir_error *error)
{
    const struct rule_problem *first = &report->errors[0];
    sv file = first->file.len > 0 ? first->file : weir_str(source->address.path);
    return err_set(error, WEIR_E_RULES, "%.*s:%d: %s%.*s%s%.*s%s", SV_FMT(file), first->line,
                   first->rule.len ? "rule " : "", SV_FMT(first->rule), first->rule.len ? ": " : "", SV_FMT(first->text),
                   end);
}

static int make_reading(struct source *source, const struct rules *last, bool rows, struct source_reading *reading,
                        struct weir_error *error)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    struct listing listing = { 0 };
    reading->rules = read_rules(source, &report);
    if (!reading->rules || !keep_problems(source, &report, reading))
        return no_memory(error);
    if (report.unreadable && !last)
        return first_error(source, &report, "", error);
    int r = rows ? list_rows(source, reading, &listing, error) : 0;
    if (r < 0)
        return r;
    if (last && report.error_count > 0 && rules_keep_last_good(reading->rules, &report, last) < 0)
        return no_memory(error);
    return rows ? keep_rows(reading, &listing, error) : 0;
}

/* The rules have copies of all that they need. */
static void drop_texts(struct source *source)
{
    buf_done(&source->file_text);
    buf_init(&source->file_text, RULES_BYTES_MAX);
    included_drop_texts(&source->included);
}

static int file_read(struct source *source, const struct rules *last, bool rows, struct source_reading *ret,
                     struct weir_error *error)
{
    struct source_reading reading = { 0 };
    source->read_once = false;
    int r = read_text(source, error);
    if (r < 0)
        return r;
    r = make_reading(source, last, rows, &reading, error);
    source->read_once = true; /* a bad version is looked at once */
    source->changed = false;
    drop_texts(source);
    if (r < 0)
        source_reading_done(&reading);
    else
        *ret = reading;
    return r;
}

static enum files_state look(const struct source *source)
{
    struct file_version now;
    if (source->address.kind == SOURCE_ENVOY) {
        if (!envoy_version(source->address.path, &now))
            return FILES_GONE;
        return file_version_same(&now, &source->file) ? FILES_SAME
               : file_version_settled(&now)           ? FILES_CHANGED
                                                      : FILES_SETTLING;
    }
    return rules_files_look(source->address.path, &source->file, &source->included);
}

static int file_changed(struct source *source, bool *ret, struct weir_error *error)
{
    enum files_state state = look(source);
    if (state == FILES_GONE)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s", source->address.path, strerror(errno));
    *ret = source->changed || !source->read_once || state == FILES_CHANGED;
    return 0;
}

static int file_wait(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error)
{
    struct pollfd wake = { .fd = wake_fd, .events = POLLIN };
    if (timeout_ms > SETTLING_MS && look(source) == FILES_SETTLING)
        timeout_ms = SETTLING_MS;
    if (poll(&wake, 1, timeout_ms) < 0 && errno != EINTR)
        return err_set(error, WEIR_E_SYSTEM, "cannot wait: %s", strerror(errno));
    return 0;
}

/* ---- changing ---- */

/* The line of the first comment; 0: none. A `#` in a block of text may be taken for one, which only asks once too often. */
static int comment_line(sv text)
{
    int line = 1;
    char quote = '\0', before = '\n';
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool start = before == '\n' || before == ' ' || before == '\t';
        if (quote)
            quote = c == quote && !(quote == '"' && before == '\\') ? '\0' : quote;
        else if ((c == '"' || c == '\'') && (start || strchr("[{,:", before)))
            quote = c;
        else if (c == '#' && start)
            return line;
        line += c == '\n';
        before = before == '\\' && c == '\\' ? '\0' : c;
    }
    return 0;
}

static bool is_json(sv text)
{
    sv s = sv_trim(text);
    return s.len > 0 && s.ptr[0] == '{';
}

static int no_file(const struct source *source, struct weir_error *error)
{
    char room[PROGRAM_WORD_BYTES];
    return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s; create it with `%s rules init --from %s`",
                   source->address.path, strerror(ENOENT), program_command(), program_word(source->address.shown, room));
}

/* Returns an error if the text must not be rewritten. */
static int check_text(const struct source *source, const struct rules_report *report, struct weir_error *error)
{
    sv text = buf_sv(&source->file_text);
    int line = !source->drop_comments && !is_json(text) ? comment_line(text) : 0;
    if (source->address.kind == SOURCE_ENVOY)
        return err_set(
            error, WEIR_E_INVALID,
            "%s: weir does not change a configuration of envoyproxy/ratelimit; change its files, or take it over "
            "with `weir convert envoy`",
            source->address.path);
    if (source->included.count > 0)
        return err_set(
            error, WEIR_E_INVALID,
            "%s: has `include`, and weir does not change such a file; edit the files by hand, or name the one file "
            "that has the rule (weir rules --from FILE)",
            source->address.path);
    if (report->error_count > 0)
        return first_error(source, report, "; weir does not change a file with errors, since that would drop them", error);
    if (line > 0)
        return err_set(error, WEIR_E_INVALID,
                       "%s:%d: a comment: this change would rewrite the file without its comments; edit the file by hand, "
                       "or use --drop-comments",
                       source->address.path, line);
    return 0;
}

/* Overrides are found by their subjects as requests have them; the file may spell them otherwise. Bad ones stay as they
 * are. */
static int spell_subjects(struct rule_row *rows, size_t count, struct arena *arena, struct weir_error *error)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    if (count == 0)
        return 0;
    CLEANUP(rules_freep) struct rules *rules = rules_read_rows(rows, count, &report);
    if (!rules)
        return no_memory(error);
    for (size_t i = 0; i < rules->override_count; i++) {
        const struct rule_override *override = &rules->overrides[i];
        CLEANUP(buf_done) struct buf subject;
        buf_init(&subject, RULES_BYTES_MAX);
        override_subject_text(override->values, override->value_count, &subject);
        sv kept = arena_copy(arena, buf_sv(&subject));
        if (subject.failed || !kept.ptr)
            return no_memory(error);
        rows[override->line - 1].subject = kept;
    }
    return 0;
}

static int file_begin(struct source *source, bool change, const struct source_overrides *which, struct snapshot *ret,
                      struct weir_error *error)
{
    (void)which; /* it is read whole anyway */
    CLEANUP(snapshot_done) struct snapshot snapshot = { 0 };
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    struct listing l = { 0 };
    size_t cap = 0;
    int r = read_text(source, error);
    if (r == WEIR_E_SYSTEM && access(source->address.path, F_OK) < 0 && errno == ENOENT)
        return no_file(source, error);
    if (r < 0)
        return r;
    CLEANUP(rules_freep) struct rules *rules = read_rules(source, &report);
    if (!rules)
        return no_memory(error);
    r = change && !source->terms.dry_run ? check_text(source, &report, error) : 0;
    if (r == 0 && report.unreadable && source->included.count > 0)
        r = first_error(source, &report, "", error);
    if (r == 0)
        r = split_all(source, &snapshot.arena, &l, error);
    if (r == 0)
        r = spell_subjects(l.rows, l.count, &snapshot.arena, error);
    for (size_t i = 0; i < l.count && r == 0; i++) {
        struct stored_row *row = snapshot_add(&snapshot, &cap);
        if (!row)
            return no_memory(error);
        *row = row_of(&l.rows[i]);
        row->file = l.files[i];
    }
    if (r == 0)
        r = snapshot_index(&snapshot, error);
    if (r < 0)
        return r;
    *ret = snapshot;
    snapshot = (struct snapshot){ 0 };
    return 0;
}

/* The rows of a table as a list: "rules": [ … ] */
static void write_json_list(const struct snapshot *after, enum row_table table, const char *name, struct buf *out)
{
    bool any = false;
    buf_printf(out, "  \"%s\": [", name);
    for (size_t i = 0; i < after->count; i++) {
        if (after->rows[i].table != table)
            continue;
        buf_printf(out, "%s\n    %.*s", any ? "," : "", SV_FMT(after->rows[i].text));
        any = true;
    }
    buf_add(out, any ? SV("\n  ]") : SV("]"));
}

static void write_json(const struct snapshot *after, struct buf *out)
{
    bool any = false, overrides = false;
    buf_add(out, SV("{\n"));
    for (size_t i = 0; i < after->count; i++) {
        if (after->rows[i].table != TABLE_SETTINGS)
            continue;
        buf_add(out, any ? SV(",\n    ") : SV("  \"settings\": {\n    "));
        buf_json(out, after->rows[i].key);
        buf_printf(out, ": %.*s", SV_FMT(after->rows[i].text));
        any = true;
    }
    buf_add(out, any ? SV("\n  },\n") : SV(""));
    write_json_list(after, TABLE_RULES, "rules", out);
    for (size_t i = 0; i < after->count; i++)
        overrides = overrides || after->rows[i].table == TABLE_OVERRIDES;
    if (overrides) {
        buf_add(out, SV(",\n"));
        write_json_list(after, TABLE_OVERRIDES, "overrides", out);
    }
    buf_add(out, SV("\n}\n"));
}

static int write_yaml(const struct snapshot *after, struct buf *out, struct weir_error *error)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP_FREE struct rule_row *rows = cleanup_calloc(after->count + 1, sizeof *rows);
    for (size_t i = 0; rows && i < after->count; i++)
        rows[i] = row_to_read(&after->rows[i]);
    CLEANUP(rules_freep) struct rules *rules = rows ? rules_read_rows(rows, after->count, &report) : NULL;
    if (!rules)
        return no_memory(error);
    if (report.error_count > 0)
        return err_set(error, WEIR_E_RULES, "%.*s", SV_FMT(report.errors[0].text));
    rules_write(rules, out);
    return 0;
}

static int file_apply(struct source *source, const struct snapshot *after, const struct plan *plan,
                      struct source_author author, struct weir_error *error)
{
    (void)plan, (void)author;
    CLEANUP(buf_done) struct buf text;
    struct file_version now = { 0 };
    int r = 0;
    buf_init(&text, RULES_BYTES_MAX);
    if (is_json(buf_sv(&source->file_text)))
        write_json(after, &text);
    else
        r = write_yaml(after, &text, error);
    if (r < 0)
        return r;
    if (text.failed)
        return err_set(error, WEIR_E_RULES, "%s: would be larger than %d MiB", source->address.path, RULES_BYTES_MAX >> 20);
    rules_file_version(source->address.path, &now);
    if (!file_version_same(&now, &source->file))
        return err_set(error, WEIR_E_SYSTEM, "%s: was changed by somebody else at the same time; try again",
                       source->address.path);
    return source_write_file(source->address.path, SV(""), buf_sv(&text), error);
}

static int file_init(struct source *source, struct buf *out, struct weir_error *error)
{
    if (source->address.kind == SOURCE_ENVOY)
        return check_text(source, NULL, error);
    if (access(source->address.path, F_OK) == 0) {
        buf_printf(out, "%s already exists\n", source->address.path);
        return 0;
    }
    int r = source_write_file(source->address.path, SV(""), SV("rules: []\n"), error);
    if (r == 0)
        buf_printf(out, "%s is created\n", source->address.path);
    return r;
}

const struct backend file_backend = {
    .begin = file_begin,
    .apply = file_apply,
    .read = file_read,
    .changed = file_changed,
    .wait = file_wait,
    .init = file_init,
};
