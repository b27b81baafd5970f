/* weir rules override: what holds for one subject of a rule; set, removed, listed. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/plain_text.h"
#include "cli/rules_cmd.h"

enum { COLUMNS = 6, CELL_MAX = 60, SUBJECT_CELL_MAX = 1000, PROBLEM_MAX = 1000 };

/* ---- if nothing is found ---- */

/* Options say what is done, while other programs have a verb here, which is read as the id of a rule. */
static void explain_verb(const struct rules_call *call)
{
    static const struct {
        const char *verb, *purpose, *words;
    } verbs[] = {
        { "list", "list overrides", "[RULE [SUBJECT...]]" },
        { "show", "show an override", "RULE SUBJECT..." },
        { "add", "add an override", "RULE SUBJECT... --limit LIMIT (or --deny, --unlimited)" },
        { "set", "set an override", "RULE SUBJECT... --limit LIMIT (or --deny, --unlimited)" },
        { "remove", "remove an override", "RULE SUBJECT... --remove" },
        { "rm", "remove an override", "RULE SUBJECT... --remove" },
    };
    for (size_t i = 0; call->word_count > 0 && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(call->words[0], verbs[i].verb) == 0)
            cli_error("'%s' is read as the id of a rule; to %s: weir rules override %s", verbs[i].verb, verbs[i].purpose,
                      verbs[i].words);
}

static int fail(const struct rules_call *call, const struct weir_error *error)
{
    int status = rules_fail(error);
    if (error->code == WEIR_E_UNKNOWN_RULE)
        explain_verb(call);
    return status;
}

/* ---- listing ---- */

struct list {
    struct arena *arena;
    sv (*lines)[COLUMNS];
    size_t count;
    size_t widths[COLUMNS];
};

/* A subject is not cut, so that it can be copied; other columns are cut. */
static void put_cell(struct list *list, size_t column, sv text)
{
    CLEANUP(buf_done) struct buf plain;
    buf_init(&plain, RULES_OUTPUT_MAX);
    plain_add(&plain, text, column < 2 ? SUBJECT_CELL_MAX : CELL_MAX);
    sv *cell = &list->lines[list->count][column];
    *cell = arena_copy(list->arena, buf_sv(&plain));
    size_t width = term_width(*cell);
    if (width > list->widths[column])
        list->widths[column] = width;
}

static void put_row(struct list *list, const struct source_reading *reading, const struct source_row *row, int64_t now_us)
{
    const char *state = source_override_state(reading, row, now_us);
    CLEANUP(rules_freep) struct rules *unused = strcmp(state, "unused") == 0 ? source_read_unused(row) : NULL;
    const struct rule_override *override = unused ? &unused->overrides[0] : row->override;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_OUTPUT_MAX);
    if (override)
        source_show_override(override, &text);
    else
        buf_char(&text, '-');
    put_cell(list, 0, row->rule);
    put_cell(list, 1, row->key);
    put_cell(list, 2, buf_sv(&text));
    put_cell(list, 3, weir_str(state));
    char until[INSTANT_TEXT_MAX] = "-";
    if (override && override->expires_us != RULE_NEVER_EXPIRES)
        instant_text(override->expires_us, until);
    put_cell(list, 4, weir_str(until));
    put_cell(list, 5, override ? override->why : SV(""));
    list->count++;
}

static void print_line(const struct list *list, size_t line, const char *color, const struct term *term, struct buf *out)
{
    buf_printf(out, "%s", color);
    for (size_t i = 0; i < COLUMNS; i++) {
        sv cell = list->lines[line][i];
        buf_add(out, cell);
        if (i + 1 < COLUMNS && (i + 2 < COLUMNS || list->lines[line][i + 1].len > 0))
            buf_printf(out, "%*s", (int)(list->widths[i] - term_width(cell) + 2), "");
    }
    buf_printf(out, "%s\n", color[0] ? term_plain(term) : "");
}

static void print_problems(const struct source_reading *reading, const struct source_row *row, const struct term *term,
                           struct buf *out)
{
    for (size_t i = 0; i < reading->problem_count; i++) {
        const struct source_problem *problem = &reading->problems[i];
        if (!sv_eq(problem->row, row->key) || !sv_eq(problem->rule, row->rule))
            continue;
        buf_printf(out, "  %s! ", term_red(term));
        plain_add(out, problem->text, PROBLEM_MAX);
        buf_printf(out, "%s\n", term_plain(term));
    }
}

static void print_list(const struct source_reading *reading, struct buf *out)
{
    static const char *const titles[COLUMNS] = { "RULE", "SUBJECT", "LIMITS", "STATE", "UNTIL", "WHY" };
    struct term term = term_of(STDOUT_FILENO);
    CLEANUP(arena_done) struct arena arena = { 0 };
    struct list list = { .arena = &arena,
                         .lines = arena_alloc(&arena, (reading->override_count + 1) * sizeof *list.lines) };
    int64_t now_us = clock_now_us();
    if (!list.lines) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < COLUMNS; i++)
        put_cell(&list, i, weir_str(titles[i]));
    list.count++;
    for (size_t i = 0; i < reading->override_count; i++)
        put_row(&list, reading, &reading->overrides[i], now_us);
    print_line(&list, 0, term_bold(&term), &term, out);
    for (size_t i = 0; i < reading->override_count; i++) {
        const struct source_row *row = &reading->overrides[i];
        bool in_force = row->override && row->override->expires_us > now_us;
        print_line(&list, i + 1, in_force ? "" : term_dim(&term), &term, out);
        if (!row->override)
            print_problems(reading, row, &term, out);
    }
}

static void print_json(const struct source_reading *reading, struct buf *out)
{
    buf_add(out, SV("{\"overrides\":["));
    for (size_t i = 0; i < reading->override_count; i++) {
        buf_add(out, i ? SV(",\n") : SV("\n"));
        source_override_json(reading, &reading->overrides[i], out);
    }
    buf_add(out, SV("]}\n"));
}

/* The exit status says if none is found, or one of them is bad. */
static int print_all(struct rules_call *call, const struct source_reading *reading)
{
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, RULES_OUTPUT_MAX);
    bool bad = false;
    for (size_t i = 0; i < reading->override_count; i++)
        bad = bad || strcmp(source_override_state(reading, &reading->overrides[i], 0), "bad") == 0;
    if (call->options->json)
        print_json(reading, &out);
    else if (reading->override_count > 0)
        print_list(reading, &out);
    else
        cli_error("no overrides%s%s in %s", call->word_count ? " of rule " : "", call->word_count ? call->words[0] : "",
                  source_name(call->source));
    if (reading->override_count == 0)
        explain_verb(call);
    return cli_print(&out, reading->override_count == 0 || bad ? RULES_NOTHING : RULES_DONE);
}

static bool subject_of(const struct rules_call *call, struct buf *text, struct source_subject *ret)
{
    sv values[RULE_BY_MAX];
    size_t count = call->word_count - 1;
    if (count > RULE_BY_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        values[i] = weir_str(call->words[1 + i]);
    if (count != 1) /* a single value stands for itself */
        override_subject_text(values, count, text);
    *ret = (struct source_subject){ .text = count == 1 ? values[0] : buf_sv(text), .count = count };
    return !text->failed;
}

static int list_overrides(struct rules_call *call, const struct source_subject *subject)
{
    struct weir_error error = { 0 };
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    struct source_overrides which = { .rule = call->word_count ? weir_str(call->words[0]) : SV(""), .most = UINT_MAX };
    int r = subject ? source_read_override(call->source, which.rule, subject->text, &reading, &error)
                    : source_read_overrides(call->source, &which, &reading, &error);
    return r < 0 ? fail(call, &error) : print_all(call, &reading);
}

/* ---- changing ---- */

/* The override as JSON. A limit that begins with a brace is YAML or JSON, any other is a short form. False: *why has the
 * reason. */
static bool write_document(const struct rules_options *o, int64_t expires_us, struct buf *out, struct weir_error *why)
{
    char until[INSTANT_TEXT_MAX];
    bool good = true;
    if (o->deny || o->unlimited)
        buf_printf(out, "{\"%s\":true", o->deny ? "deny" : "unlimited");
    for (size_t i = 0; i < o->limits.count && good; i++) {
        sv limit = weir_str(o->limits.items[i]);
        buf_add(out, i ? SV(",") : SV("{\"limits\":["));
        if (sv_starts(sv_trim(limit), SV("{")))
            good = rules_json(limit, out, why) == 0;
        else
            buf_json(out, limit);
    }
    buf_add(out, o->limits.count ? SV("]") : SV(""));
    if (expires_us != RULE_NEVER_EXPIRES) {
        instant_text(expires_us, until);
        buf_printf(out, ",\"expires\":\"%s\"", until);
    }
    if (o->why) {
        buf_add(out, SV(",\"why\":"));
        buf_json(out, weir_str(o->why));
    }
    buf_char(out, '}');
    return good;
}

static int set_override(struct rules_call *call, const struct source_subject *subject)
{
    struct weir_error error = { 0 };
    CLEANUP(buf_done) struct buf document, stored;
    int64_t expires_us;
    buf_init(&document, RULES_OUTPUT_MAX);
    buf_init(&stored, RULES_OUTPUT_MAX);
    int status = rules_read_until(call, &expires_us);
    if (status >= 0)
        return status;
    sv rule = weir_str(call->words[0]);
    if (!write_document(call->options, expires_us, &document, &error))
        return options_error(call->command, "--limit: %s", error.text);
    if (source_put_override(call->source, rule, *subject, buf_sv(&document), call->author, &stored, &error) < 0)
        return fail(call, &error);
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, RULES_OUTPUT_MAX);
    plain_add(&out, rule, WEIR_ID_MAX);
    buf_add(&out, SV(": the override for "));
    plain_add(&out, buf_sv(&stored), SUBJECT_CELL_MAX);
    buf_printf(&out, " is in %s\n", source_name(call->source));
    return cli_print(&out, RULES_DONE);
}

static int remove_override(struct rules_call *call, const struct source_subject *subject)
{
    struct weir_error error = { 0 };
    if (source_remove_override(call->source, weir_str(call->words[0]), *subject, call->author, &error) < 0)
        return fail(call, &error);
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, RULES_OUTPUT_MAX);
    plain_add(&out, weir_str(call->words[0]), WEIR_ID_MAX);
    buf_add(&out, SV(": the override for "));
    plain_add(&out, subject->text, SUBJECT_CELL_MAX);
    buf_add(&out, SV(" is removed\n"));
    return cli_print(&out, RULES_DONE);
}

/* Options that have no effect are errors. Returns -1 to go on, or the exit status. */
static int check_options(const struct rules_call *call)
{
    const struct rules_options *o = call->options;
    int kinds = (o->limits.count > 0) + o->deny + o->unlimited + o->remove;
    bool details = o->why || o->expires || o->for_ms;
    if (kinds > 1)
        return options_error(call->command,
                             "--limit, --deny, --unlimited and --remove cannot be combined; give one of them");
    if (kinds == 1 && call->word_count < 2)
        return options_error(call->command, "override needs RULE and SUBJECT to change something");
    if (details && (kinds == 0 || o->remove))
        return options_error(call->command, "--why, --expires and --for need --limit, --deny or --unlimited");
    if (kinds == 0 && (o->author || o->note || o->drop_comments))
        return options_error(call->command,
                             "--author, --note and --drop-comments need --limit, --deny, --unlimited or --remove");
    if (kinds == 1 && o->json)
        return options_error(call->command, "--json is for lists");
    return -1;
}

int rules_override(struct rules_call *call)
{
    const struct rules_options *o = call->options;
    struct source_subject subject;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_OUTPUT_MAX);
    int status = check_options(call);
    if (status >= 0)
        return status;
    if (call->word_count < 2)
        return list_overrides(call, NULL);
    if (!subject_of(call, &text, &subject))
        return options_error(call->command, "a rule counts by at most %d values", RULE_BY_MAX);
    if (o->remove)
        return remove_override(call, &subject);
    return o->limits.count || o->deny || o->unlimited ? set_override(call, &subject) : list_overrides(call, &subject);
}
