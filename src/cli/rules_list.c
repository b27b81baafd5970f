/* weir rules list: a table for people, an object for programs. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

enum { COLUMNS = 6, CELL_MAX = 48, PROBLEM_MAX = 1000 };

static const char *const titles[COLUMNS] = { "ID", "LIMITS", "MATCH", "BY", "STATE", "ROW" };

struct line {
    sv cells[COLUMNS];
    const struct source_row *row; /* NULL: the titles */
};

struct table {
    struct arena *arena;
    struct line *lines;
    size_t count;
    size_t widths[COLUMNS];
};

/* An id is not cut, so that it can be copied; other columns are cut. */
static void put_cell(struct table *table, struct line *line, size_t column, sv text)
{
    CLEANUP(buf_done) struct buf plain;
    buf_init(&plain, RULES_BYTES_MAX);
    plain_add(&plain, text, column == 0 || column == COLUMNS - 1 ? WEIR_ID_MAX * 2 : CELL_MAX);
    line->cells[column] = arena_copy(table->arena, buf_sv(&plain));
    size_t width = term_width(line->cells[column]);
    if (width > table->widths[column])
        table->widths[column] = width;
}

/* Where the rule counts, if it says so, before its limits, because a long text is cut at its end. */
static void add_limits(struct buf *out, const struct rule *rule)
{
    if (rule->kind->counters != COUNTERS_DEFAULT)
        buf_printf(out, "%s: ", rule->kind->rest->lease.on ? "leased" : counters_names[rule->kind->counters]);
    source_show_limits(rule, out);
}

static void put_rule(struct table *table, struct line *line, const struct rule *rule)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    for (size_t column = 1; column <= 3; column++) {
        buf_clear(&text);
        if (!rule)
            buf_char(&text, '-');
        else if (column == 1)
            add_limits(&text, rule);
        else if (column == 2)
            source_show_match(rule, &text);
        else
            source_show_by(rule, &text);
        put_cell(table, line, column, buf_sv(&text));
    }
}

static void put_row(struct table *table, const struct source_row *row, int64_t now_us)
{
    struct line *line = &table->lines[table->count++];
    char where[512];
    line->row = row;
    snprintf(where, sizeof where, "%.*s %.*s", SV_FMT(row->table), (int)(row->key.len < 200 ? row->key.len : 200),
             row->key.ptr);
    put_cell(table, line, 0, row->rule.len ? row->rule : SV("?"));
    put_rule(table, line, row->parsed);
    put_cell(table, line, 4, weir_str(source_row_state(row, now_us)));
    put_cell(table, line, 5, weir_str(where));
}

static bool make_table(struct table *table, const struct source_reading *reading)
{
    int64_t now_us = clock_now_us();
    table->lines = ARENA_ARRAY(table->arena, struct line, reading->row_count + 1);
    if (!table->lines)
        return false;
    struct line *head = &table->lines[table->count++];
    for (size_t i = 0; i < COLUMNS; i++)
        put_cell(table, head, i, weir_str(titles[i]));
    for (size_t i = 0; i < reading->row_count; i++)
        if (!reading->rows[i].setting)
            put_row(table, &reading->rows[i], now_us);
    return true;
}

static void print_problem(const struct term *term, const struct source_problem *problem, bool whole, struct buf *out)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_OUTPUT_MAX);
    if (whole)
        source_problem_print(problem, &text);
    else
        buf_add(&text, problem->text);
    sv line = buf_sv(&text);
    if (line.len > 0 && line.ptr[line.len - 1] == '\n')
        line.len--;
    buf_printf(out, "  %s! ", term_red(term));
    plain_add(out, line, PROBLEM_MAX);
    buf_printf(out, "%s\n", term_plain(term));
}

static const char *color_of(const struct term *term, const struct line *line)
{
    if (!line->row)
        return term_bold(term);
    if (sv_eq(line->cells[4], SV("enforce")))
        return "";
    return sv_eq(line->cells[4], SV("bad")) ? term_red(term) : term_dim(term);
}

static void print_line(const struct table *table, const struct line *line, const struct term *term, struct buf *out)
{
    const char *color = color_of(term, line);
    buf_printf(out, "%s", color);
    for (size_t i = 0; i < COLUMNS; i++) {
        buf_add(out, line->cells[i]);
        if (i + 1 < COLUMNS)
            buf_printf(out, "%*s", (int)(table->widths[i] - term_width(line->cells[i]) + 2), "");
    }
    buf_printf(out, "%s\n", color[0] ? term_plain(term) : "");
}

static void print_settings(const struct source_reading *reading, struct buf *out)
{
    bool any = false;
    for (size_t i = 0; i < reading->row_count; i++) {
        const struct source_row *row = &reading->rows[i];
        if (!row->setting)
            continue;
        buf_printf(out, "%s  ", any ? "" : "\nSETTINGS\n");
        plain_add(out, row->key, CELL_MAX);
        buf_add(out, SV(": "));
        plain_add(out, row->text, (size_t)2 * CELL_MAX);
        buf_char(out, '\n');
        any = true;
    }
}

/* Whether the problem was printed below its row. */
static bool belongs(const struct table *table, const struct source_problem *problem)
{
    for (size_t i = 1; i < table->count; i++)
        if (source_problem_is_of(problem, table->lines[i].row))
            return true;
    return false;
}

static void print_table(const struct table *table, const struct source_reading *reading, struct buf *out)
{
    struct term term = term_of(STDOUT_FILENO);
    if (table->count > 1)
        print_line(table, &table->lines[0], &term, out);
    for (size_t i = 1; i < table->count; i++) {
        print_line(table, &table->lines[i], &term, out);
        for (size_t k = 0; k < reading->problem_count; k++)
            if (source_problem_is_of(&reading->problems[k], table->lines[i].row))
                print_problem(&term, &reading->problems[k], false, out);
    }
    print_settings(reading, out);
    for (size_t k = 0; k < reading->problem_count; k++)
        if (!belongs(table, &reading->problems[k]))
            print_problem(&term, &reading->problems[k], true, out);
}

static void print_counts(const struct table *table, const struct source_reading *reading, const char *from, struct buf *out)
{
    if (reading->unlisted)
        buf_printf(out, "  and %zu more problems\n", reading->unlisted);
    size_t count = table->count - 1, bad = reading->problem_count + reading->unlisted;
    buf_printf(out, "%s%zu %s in %s", count || bad ? "\n" : "", count, count == 1 ? "rule" : "rules", from);
    size_t overrides = reading->rules->override_count;
    if (overrides)
        buf_printf(out, ", %zu %s", overrides, overrides == 1 ? "override" : "overrides");
    if (bad)
        buf_printf(out, ", %zu %s", bad, bad == 1 ? "problem" : "problems");
    buf_char(out, '\n');
    if (reading->unused_overrides)
        buf_printf(out, "%zu more %s not used, because the rule does not exist; `weir rules override` lists all\n",
                   reading->unused_overrides, reading->unused_overrides == 1 ? "override is" : "overrides are");
}

static void print_json(const struct source_reading *reading, struct buf *out)
{
    size_t count = 0;
    buf_add(out, SV("{\"rules\":["));
    for (size_t i = 0; i < reading->row_count; i++)
        if (!reading->rows[i].setting) {
            buf_printf(out, "%s", count++ ? ",\n" : "\n");
            source_row_json(reading, &reading->rows[i], out);
        }
    buf_add(out, SV("],\n\"settings\":"));
    source_settings_json(reading, SECRETS_SHOWN, out);
    buf_add(out, SV(",\n\"problems\":["));
    for (size_t i = 0; i < reading->problem_count; i++) {
        buf_printf(out, "%s", i ? ",\n" : "");
        source_problem_json(&reading->problems[i], out);
    }
    buf_printf(out, "],\n\"unlisted_problems\":%zu}\n", reading->unlisted);
}

int rules_list(struct rules_call *call)
{
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    int status = rules_read_source(call, &reading);
    if (status >= 0)
        return status;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, RULES_OUTPUT_MAX);
    CLEANUP(arena_done) struct arena arena = { 0 };
    struct table table = { .arena = &arena };
    if (call->options->json) {
        print_json(&reading, &out);
    } else if (make_table(&table, &reading)) {
        print_table(&table, &reading, &out);
        print_counts(&table, &reading, source_name(call->source), &out);
    } else {
        out.failed = true;
    }
    return cli_print(&out, reading.problem_count ? RULES_NOTHING : RULES_DONE);
}
