/* Rules in a file. It is read with its lines; it is changed by writing it anew from the rule model. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "source/rows.h"

/* A file that was written to this recently may not be whole yet. */
enum { SETTLE_MS = 20 };

/* ---- reading bytes ---- */

static int64_t to_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct file_version version_of(const struct stat *st)
{
    return (struct file_version){ st->st_dev, st->st_ino, (uint64_t)st->st_size, to_ns(st->st_mtim), to_ns(st->st_ctim) };
}

static bool same_version(const struct file_version *a, const struct file_version *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns;
}

static int read_bytes(int fd, struct buf *out)
{
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        buf_add(out, sv_of(chunk, (size_t)n));
        if (out->failed)
            return -EFBIG;
    }
    return 0;
}

static int read_text(struct source *source, struct weir_error *error)
{
    const char *path = source->address.path;
    struct stat st;
    buf_clear(&source->file_text);
    /* Not waiting for one who writes to a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int no = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (no == 0 && !S_ISREG(st.st_mode))
        no = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    if (no == 0)
        no = read_bytes(fd, &source->file_text);
    if (fd >= 0)
        close(fd);
    if (no == -EFBIG)
        return err_set(error, WEIR_E_RULES, "%s: larger than %d MiB", path, RULES_BYTES_MAX >> 20);
    if (no < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s%s", path, strerror(-no),
                       no == -ENOENT ? "; `weir rules init` makes it" : "");
    source->file = version_of(&st);
    return 0;
}

/* ---- reading rules ---- */

static bool keep_problems(struct source *source, const struct rules_report *report, struct source_reading *reading)
{
    size_t count = report->error_count < RULES_ERRORS_MAX ? report->error_count : RULES_ERRORS_MAX;
    sv name = arena_copy(&reading->arena, weir_str(source->address.path));
    reading->problems = ARENA_ARRAY(&reading->arena, struct source_problem, count + 1);
    for (size_t i = 0; reading->problems && i < count; i++) {
        char line[32];
        int n = snprintf(line, sizeof line, "line %d", report->errors[i].line);
        sv row = arena_copy(&reading->arena, report->errors[i].line > 0 ? sv_of(line, (size_t)n) : SV(""));
        reading->problems[i] = (struct source_problem){ name, row, arena_copy(&reading->arena, report->errors[i].rule),
                                                        arena_copy(&reading->arena, report->errors[i].text) };
        if (!row.ptr || !reading->problems[i].text.ptr)
            return false;
    }
    reading->problem_count = count;
    reading->unlisted = report->error_count - count;
    return reading->problems && name.ptr;
}

/* Rows as the model says them, in the order of the rules. */
static int keep_rows(struct source *source, struct source_reading *reading, struct weir_error *error)
{
    struct rules *rules = reading->rules;
    struct rule_row *rows = NULL;
    size_t count = 0, rule = 0;
    struct buf text;
    buf_init(&text, 4 * (size_t)RULES_BYTES_MAX);
    rules_write(rules, &text);
    sv name = arena_copy(&reading->arena, weir_str(source->address.path));
    int r = text.failed || !name.ptr ? no_memory(error) : rules_split(buf_sv(&text), &reading->arena, &rows, &count, error);
    buf_done(&text);
    if (r < 0)
        return r;
    reading->rows = ARENA_ARRAY(&reading->arena, struct source_row, count + 1);
    if (!reading->rows)
        return no_memory(error);
    for (size_t i = 0; i < count; i++) {
        bool setting = rows[i].kind == ROW_SETTING;
        struct source_row row = { .table = name, .key = rows[i].id, .text = rows[i].text, .enabled = true };
        if (!setting && rule < rules->rule_count) {
            row.rule = row.key;
            row.parsed = &rules->rules[rule++];
            row.enabled = row.parsed->mode != MODE_OFF;
        }
        reading->rows[reading->row_count++] = row;
    }
    return 0;
}

static int first_error(struct source *source, const struct rules_report *report, const char *end, struct weir_error *error)
{
    const struct rule_problem *first = &report->errors[0];
    return err_set(error, WEIR_E_RULES, "%s:%d: %s%.*s%s%.*s%s", source->address.path, first->line,
                   first->rule.len ? "rule " : "", SV_FMT(first->rule), first->rule.len ? ": " : "", SV_FMT(first->text),
                   end);
}

static int file_read(struct source *source, const struct rules *last, struct source_reading *ret, struct weir_error *error)
{
    struct source_reading reading = { 0 };
    struct rules_report report = { 0 };
    source->read_once = false;
    int r = read_text(source, error);
    if (r < 0)
        return r;
    reading.rules = rules_read(buf_sv(&source->file_text), &report);
    bool made = reading.rules && keep_problems(source, &report, &reading);
    if (made && report.unreadable && !last)
        r = first_error(source, &report, "", error);
    else if (made && last && report.error_count > 0)
        made = rules_keep_last_good(reading.rules, &report, last) == 0;
    if (!made)
        r = no_memory(error);
    else if (r == 0)
        r = keep_rows(source, &reading, error);
    rules_report_done(&report);
    source->read_once = true; /* a bad version is looked at once */
    source->changed = false;
    if (r < 0)
        source_reading_done(&reading);
    else
        *ret = reading;
    return r;
}

static int file_changed(struct source *source, bool *ret, struct weir_error *error)
{
    struct stat st;
    if (stat(source->address.path, &st) < 0)
        return err_set(error, WEIR_E_SYSTEM, "%s: cannot be read: %s", source->address.path, strerror(errno));
    struct file_version now = version_of(&st);
    int64_t age_ms = clock_now_us() / US_PER_MS - now.modified_ns / 1000000;
    bool settled = age_ms < 0 || age_ms >= SETTLE_MS;
    *ret = source->changed || !source->read_once || (settled && !same_version(&now, &source->file));
    return 0;
}

static int file_wait(struct source *source, int timeout_ms, int wake_fd, struct weir_error *error)
{
    struct pollfd wake = { .fd = wake_fd, .events = POLLIN };
    (void)source;
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

static int file_begin(struct source *source, bool change, struct snapshot *ret, struct weir_error *error)
{
    struct snapshot snapshot = { 0 };
    struct rules_report report = { 0 };
    struct rule_row *rows = NULL;
    size_t count = 0, cap = 0;
    int r = read_text(source, error);
    if (r < 0)
        return r;
    sv text = buf_sv(&source->file_text);
    struct rules *rules = rules_read(text, &report);
    int line = change && !source->drop_comments && !is_json(text) ? comment_line(text) : 0;
    if (!rules)
        r = no_memory(error);
    else if (report.error_count > 0)
        r = first_error(source, &report, "; a file with errors is not changed, since that would drop them", error);
    else if (line > 0)
        r = err_set(error, WEIR_E_INVALID,
                    "%s:%d: a comment: a change made here writes the file anew and drops its comments; edit it by hand, or "
                    "say --drop-comments",
                    source->address.path, line);
    rules_report_done(&report);
    rules_free(rules);
    if (r == 0)
        r = rules_split(text, &snapshot.arena, &rows, &count, error);
    for (size_t i = 0; i < count && r == 0; i++) {
        struct stored *row = snapshot_add(&snapshot, &cap);
        if (!row) {
            r = no_memory(error);
            break;
        }
        bool setting = rows[i].kind == ROW_SETTING;
        *row = (struct stored){ .table = setting ? TABLE_SETTINGS : TABLE_RULES,
                                .key = rows[i].id,
                                .rule = setting ? SV("") : rows[i].id,
                                .text = rows[i].text,
                                .enabled = true };
    }
    if (r == 0)
        r = snapshot_index(&snapshot, error);
    if (r < 0)
        snapshot_done(&snapshot);
    else
        *ret = snapshot;
    return r;
}

static void file_end(struct source *source)
{
    (void)source;
}

static void write_json(const struct snapshot *after, struct buf *out)
{
    bool any = false;
    buf_add(out, SV("{\n"));
    for (size_t i = 0; i < after->count; i++) {
        if (after->rows[i].table != TABLE_SETTINGS)
            continue;
        buf_add(out, any ? SV(",\n    ") : SV("  \"settings\": {\n    "));
        buf_json(out, after->rows[i].key);
        buf_printf(out, ": %.*s", SV_FMT(after->rows[i].text));
        any = true;
    }
    buf_add(out, any ? SV("\n  },\n  \"rules\": [") : SV("  \"rules\": ["));
    any = false;
    for (size_t i = 0; i < after->count; i++) {
        if (after->rows[i].table != TABLE_RULES)
            continue;
        buf_printf(out, "%s\n    %.*s", any ? "," : "", SV_FMT(after->rows[i].text));
        any = true;
    }
    buf_add(out, any ? SV("\n  ]\n}\n") : SV("]\n}\n"));
}

static int write_yaml(const struct snapshot *after, struct buf *out, struct weir_error *error)
{
    struct rules_report report = { 0 };
    struct rule_row *rows = calloc(after->count + 1, sizeof *rows);
    for (size_t i = 0; rows && i < after->count; i++)
        rows[i] = (struct rule_row){ .kind = after->rows[i].table == TABLE_SETTINGS ? ROW_SETTING : ROW_RULE,
                                     .id = after->rows[i].key,
                                     .text = after->rows[i].text };
    struct rules *rules = rows ? rules_read_rows(rows, after->count, &report) : NULL;
    int r = rules ? 0 : no_memory(error);
    if (rules && report.error_count > 0)
        r = err_set(error, WEIR_E_RULES, "%.*s", SV_FMT(report.errors[0].text));
    if (r == 0)
        rules_write(rules, out);
    rules_report_done(&report);
    rules_free(rules);
    free(rows);
    return r;
}

static int file_apply(struct source *source, const struct snapshot *after, const struct plan *plan,
                      struct source_author author, struct weir_error *error)
{
    (void)plan;
    (void)author;
    struct buf text;
    struct stat st;
    int r = 0;
    buf_init(&text, RULES_BYTES_MAX);
    if (is_json(buf_sv(&source->file_text)))
        write_json(after, &text);
    else
        r = write_yaml(after, &text, error);
    if (r == 0 && text.failed)
        r = err_set(error, WEIR_E_RULES, "%s: it would be larger than %d MiB", source->address.path, RULES_BYTES_MAX >> 20);
    struct file_version now = { 0 };
    if (r == 0 && stat(source->address.path, &st) == 0)
        now = version_of(&st);
    if (r == 0 && !same_version(&now, &source->file))
        r = err_set(error, WEIR_E_SYSTEM, "%s: was changed by somebody else in this moment; please try again",
                    source->address.path);
    if (r == 0)
        r = source_write_file(source->address.path, buf_sv(&text), error);
    buf_done(&text);
    return r;
}

static int file_init(struct source *source, struct buf *out, struct weir_error *error)
{
    struct stat st;
    if (stat(source->address.path, &st) == 0) {
        buf_printf(out, "%s is there\n", source->address.path);
        return 0;
    }
    int r = source_write_file(source->address.path, SV("rules: []\n"), error);
    if (r == 0)
        buf_printf(out, "%s made\n", source->address.path);
    return r;
}

const struct backend file_backend = {
    .begin = file_begin,
    .apply = file_apply,
    .end = file_end,
    .read = file_read,
    .changed = file_changed,
    .wait = file_wait,
    .init = file_init,
};
