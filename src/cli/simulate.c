/* weir simulate: replays recorded traffic on a virtual clock, from empty cells (src/replay). Here are its options, its
 * input and what it prints. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/plain_text.h"
#include "cli/progress.h"
#include "cli/read_ahead.h"
#include "cli/request.h"
#include "cli/simulate.h"
#include "present/present.h"
#include "replay/traffic.h"

enum { FORMAT_JSON, FORMAT_COMBINED };
enum { CELLS_KEYS_DEFAULT = 4000000, OUTPUT_MAX = 256 << 20, SUBJECTS_MAX = 1 << 20, LINES_PER_LOOK = 4096 };
enum { LONG_BYTES = 64 << 20 }; /* of a file, also if it is compressed: some 400,000 lines or more */

struct simulate_options {
    const char *rules;
    int format;
    bool verdicts, json, strict;
    uint64_t top;
    uint64_t cells_keys;
};

#define AT(field) offsetof(struct simulate_options, field)

static const struct option options[] = {
    { "rules", "FILE", OPTION_TEXT, AT(rules), "the rules, in YAML or JSON (required; -: stdin)" },
    { "format", "json|combined", OPTION_CHOICE, AT(format),
      "format of INPUT: JSON Lines (default), or an access log of nginx or Apache, common or combined" },
    { "verdicts", NULL, OPTION_FLAG, AT(verdicts), "print only the verdict on each request, one line of JSON each" },
    { "json", NULL, OPTION_FLAG, AT(json), "print the summary as JSON" },
    { "strict", NULL, OPTION_FLAG, AT(strict), "stop at the first bad line (default: skip bad lines)" },
    { "top", "N", OPTION_NUMBER, AT(top), "how many of the most refused subjects to list for each rule (default 10)" },
    { "cells-keys", "N", OPTION_COUNT, AT(cells_keys),
      "how many keys can be counted at the same time: one for each subject of each limit (default 4m)", .min = 1,
      .max = OPTION_CELLS_KEYS_MAX },
    { 0 },
};

static const struct command command = {
    .name = "simulate",
    .usage = "--rules FILE [OPTION]... INPUT",
    .text =
        "Replays recorded requests against rules and shows which of them would have passed. It begins with empty counts, "
        "and "
        "decides each request at the time in its line. INPUT (-: stdin) may be compressed with gzip.\n\n"
        "A line of JSON has the time \"t\" (RFC 3339, or milliseconds since 1970) and any of " REQUEST_ATTRIBUTE_NAMES
        "headers, descriptor, cost, costs and peek. "
        "A line {\"t\": ..., \"set_rules\": [...]} replaces the rules, removes all overrides and keeps the settings; a "
        "whole "
        "document in place of the list replaces all of them.",
    .footer = "The exit status is 0, or 2 after an error. Bad lines are reported with their numbers, skipped "
              "and counted, unless --strict or --verdicts is given.\n\n"
              "Example:\n  weir simulate --rules rules.yaml --format combined access.log.gz",
    .options = options,
};

struct simulation {
    struct simulate_options options;
    const char *name; /* of the input */
    struct input input;
    struct replay replay;
    struct traffic traffic;
};

static int bad_line(const struct simulation *s, uint64_t line, const char *why)
{
    plain_printf("%s:%llu: %s", s->name, (unsigned long long)line, why);
    return EXIT_BAD;
}

/* Clients write what is in a log, and a log that is rotated or cut ends in half a line: it is skipped, unless all lines are
 * wanted. Returns -1 to go on, or the exit status. */
static int skip_line(struct simulation *s, uint64_t line, const char *why)
{
    if (s->options.strict || s->options.verdicts)
        return bad_line(s, line, why);
    if (s->replay.totals.bad_lines++ < TRAFFIC_BAD_SHOWN)
        bad_line(s, line, why);
    return -1;
}

static void print_problems(const struct simulation *s, const struct rules_report *report)
{
    for (size_t i = 0; i < report->error_count && i < RULES_ERRORS_MAX; i++) {
        const struct rule_problem *p = &report->errors[i];
        plain_printf("%s:%llu: set_rules: %s%.*s%s%.*s", s->name, (unsigned long long)s->input.line,
                     p->rule.len ? "rule " : "", SV_FMT(p->rule), p->rule.len ? ": " : "", SV_FMT(p->text));
    }
}

static int set_rules(struct simulation *s, sv text)
{
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    struct weir_error error;
    bool list = sv_starts(text, SV("["));
    CLEANUP(rules_freep)
    struct rules *rules =
        list ? rules_read_list(text, ruleset_rules(s->replay.ruleset), &report) : rules_read(text, &report);
    print_problems(s, &report);
    if (!rules)
        return cli_error("out of memory");
    if (report.error_count > 0)
        return EXIT_BAD;
    s->replay.totals.rule_changes++;
    return replay_set_rules(&s->replay, STEAL(rules), &error) < 0 ? bad_line(s, s->input.line, error.text) : -1;
}

static int print_verdict(const struct weir_request *request, const struct weir_verdict *verdict)
{
    char line[VERDICT_JSON_MAX];
    size_t len = weir_verdict_json(request, verdict, line, sizeof line - 1);
    line[len] = '\n';
    return fwrite(line, 1, len + 1, stdout) == len + 1 ? -1 : EXIT_BAD;
}

static int decide(struct simulation *s)
{
    struct weir_request *request = &s->traffic.request;
    int64_t now = s->traffic.now_us;
    struct weir_verdict verdict;
    int code = replay_decide(&s->replay, request, now, &verdict);
    if (code < 0)
        return bad_line(s, s->input.line, err_text((enum weir_code)code));
    if (s->options.verdicts)
        return print_verdict(request, &verdict);
    return replay_count(&s->replay, request, now, &verdict) ? -1 : cli_error("out of memory");
}

/* ---- JSON Lines ---- */

static int replay_json_line(struct simulation *s, char *line, size_t len)
{
    char why[TRAFFIC_WHY_MAX];
    if (sv_blank(sv_of(line, len)))
        return -1;
    bool not_json = s->input.line == 1 && line[0] != '{';
    if (!traffic_from_json(line, len, &s->traffic, why)) {
        if (not_json)
            strncat(why, " (for an access log: --format combined)", sizeof why - strlen(why) - 1);
        return skip_line(s, s->input.line, why);
    }
    int status = s->traffic.set_rules ? set_rules(s, weir_str(s->traffic.set_rules)) : decide(s);
    traffic_done(&s->traffic);
    return status;
}

/* All lines. -1, or the exit status. */
static int replay_json_lines(struct simulation *s, struct progress *progress)
{
    char *line;
    size_t len;
    int more, status = -1;
    while (status < 0 && (more = input_next(&s->input, &line, &len)) != 0) {
        status = more > 0 ? replay_json_line(s, line, len) : bad_line(s, s->input.line, s->input.why);
        if (s->input.line % LINES_PER_LOOK == 0)
            progress_show(progress, s->input.line, input_progress(&s->input));
    }
    return status;
}

/* ---- access logs ---- */

static int replay_block(struct simulation *s, const struct log_block *block)
{
    const struct replay_batch *batch = &s->replay.batch;
    int status = -1;
    for (size_t at = 0, count; status < 0 && at < block->count; at += count) {
        const struct log_line *line = &block->lines[at];
        count = 1;
        if (line->why) {
            status = skip_line(s, line->number, line->why);
            continue;
        }
        count = replay_decide_lines(&s->replay, block, at);
        if (count == 0)
            return bad_line(s, line->number, err_text(WEIR_E_NO_MEMORY));
        for (size_t i = 0; status < 0 && i < count; i++)
            if (s->options.verdicts)
                status = print_verdict(&batch->requests[i], &batch->verdicts[i]);
            else if (!replay_count_line(&s->replay, block, i))
                status = cli_error("out of memory");
    }
    return status;
}

/* All lines. -1, or the exit status. */
static int replay_log_lines(struct simulation *s, struct progress *progress)
{
    struct read_ahead *ahead = read_ahead_start(&s->input, s->replay.weir->current);
    if (!ahead)
        return cli_error("out of memory for reading ahead, or no thread can be started");
    int status = -1;
    for (bool ended = false; status < 0 && !ended;) {
        const struct read_block *block = read_ahead_next(ahead);
        status = replay_block(s, &block->log);
        if (status < 0 && block->why)
            status = bad_line(s, block->failed_line, block->why);
        progress_show(progress, block->line, block->part);
        ended = block->ended;
    }
    read_ahead_stop(ahead);
    return status;
}

static int replay_lines(struct simulation *s)
{
    struct progress progress;
    progress_init(&progress, &s->input);
    s->replay.brief = !s->options.verdicts;
    int status = (s->options.format == FORMAT_COMBINED ? replay_log_lines : replay_json_lines)(s, &progress);
    progress_done(&progress);
    return status;
}

static int print_summary(struct simulation *s)
{
    struct term term = term_of(STDOUT_FILENO);
    struct simulation_result result = { .input = s->name, .totals = &s->replay.totals, .top = (unsigned)s->options.top };
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, OUTPUT_MAX);
    weir_status(s->replay.weir, &result.status);
    if (s->options.json) {
        replay_json(&s->replay, result.top, false, &out);
        buf_char(&out, '\n');
    } else
        simulation_text(&result, &term, &out);
    return cli_print(&out, 0);
}

/* Returns -1 to go on, or the exit status. */
static int start(struct simulation *s, const char *path)
{
    static const struct totals_bounds bounds = { SUBJECTS_MAX, SIZE_MAX };
    CLEANUP(buf_done) struct buf text = { 0 };
    struct rules *rules;
    struct weir_error error;
    if (!load_rules(s->options.rules, &text, &rules))
        return EXIT_BAD;
    if (!input_open(&s->input, path)) {
        rules_free(rules);
        return cli_error("%s: %s", s->name, s->input.why);
    }
    struct replay_size size = { s->options.cells_keys, s->input.bytes >= LONG_BYTES };
    return replay_init(&s->replay, rules, size, &bounds, &error) == 0 ? -1 : cli_fail(&error);
}

static int run(struct simulation *s)
{
    const char *path = s->name;
    s->name = cli_file_name(path);
    int status = start(s, path);
    if (status >= 0)
        return status;
    status = replay_lines(s);
    if (status >= 0)
        return status;
    if (s->replay.totals.bad_lines > 0 && s->replay.totals.requests == 0)
        return cli_error("%s: no line is a %s", s->name,
                         s->options.format == FORMAT_COMBINED ? "line of an access log" : "request in JSON");
    return s->options.verdicts ? 0 : print_summary(s);
}

int cli_simulate(int argc, char **argv)
{
    struct simulate_options given = { .top = 10, .cells_keys = CELLS_KEYS_DEFAULT };
    size_t count;
    int status = options_read(&command, argc, argv, &given, &count);
    if (status >= 0)
        return status;
    if (!given.rules)
        return options_error(&command, "--rules FILE is required");
    if (count != 1)
        return count ? options_error(&command, "unexpected argument '%s'; only one INPUT is allowed", argv[1])
                     : options_error(&command, "INPUT is required (-: stdin)");
    if (strcmp(given.rules, "-") == 0 && strcmp(argv[0], "-") == 0)
        return options_error(&command, "--rules and INPUT cannot both be stdin; give one of them as a file");
    if (given.verdicts && given.json)
        return options_error(&command, "--verdicts and --json cannot be combined; leave out one");
    struct simulation *s = calloc(1, sizeof *s);
    if (!s)
        return cli_error("out of memory");
    s->options = given;
    s->name = argv[0];
    status = run(s);
    input_close(&s->input);
    replay_done(&s->replay);
    free(s);
    return status;
}
