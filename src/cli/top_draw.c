/* weir top: drawing. The answers of the service may contain text of its clients, so all of it goes through term_add. */
#include <math.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/chart.h"
#include "cli/top.h"
#include "present/present.h"

enum {
    HEAD_ROWS = 9, /* before the first subject */
    RULE_COLUMNS_MIN = 8,
    RULE_COLUMNS_MAX = 30,
    COUNT_COLUMNS = 12,
    RATE_COLUMNS = 9,
    LABEL_COLUMNS = 13,
    TEXT_BYTES_MAX = 4096,
};

struct drawing {
    const struct top_view *view;
    const struct top_options *options;
    const struct term *term;
    struct buf *out;
    bool live;
};

unsigned top_room(unsigned rows)
{
    return rows > HEAD_ROWS + 1 ? rows - HEAD_ROWS : 1;
}

/* ---- numbers ---- */

static const char *grouped(double value, char out[COUNT_TEXT_MAX])
{
    return count_text(value > 0 && value < 1e18 ? (uint64_t)rint(value) : 0, out);
}

/* Small numbers with one decimal. */
static const char *rate_text(double value, char out[COUNT_TEXT_MAX])
{
    if (value >= 9.95 || value <= 0)
        return grouped(value, out);
    snprintf(out, COUNT_TEXT_MAX, "%.1f", value);
    return out;
}

/* In whole seconds from one second on. */
static const char *span(double seconds, char out[SPAN_TEXT_MAX])
{
    int64_t ms = seconds > 0 && seconds < 1e11 ? (int64_t)(seconds * 1000) : 0;
    if (ms == 0)
        snprintf(out, SPAN_TEXT_MAX, "0 s");
    else
        span_text((ms < 1000 ? ms : ms - ms % 1000) * US_PER_MS, out);
    return out;
}

static json_t *at(json_t *object, const char *name, const char *field)
{
    return json_object_get(json_object_get(object, name), field);
}

static double number(json_t *object, const char *name, const char *field)
{
    return json_number_value(at(object, name, field));
}

/* ---- lines ---- */

static void add_label(const struct drawing *d, const char *label)
{
    buf_printf(d->out, "%s%-*s%s", term_dim(d->term), LABEL_COLUMNS, label, term_plain(d->term));
}

static void add_text(const struct drawing *d, const char *text, size_t columns)
{
    term_add(d->term, d->out, weir_str(text ? text : "?"), columns);
}

static void draw_title(const struct drawing *d)
{
    char up[SPAN_TEXT_MAX];
    json_t *status = d->view->status;
    buf_printf(d->out, "%sweir ", term_bold(d->term));
    add_text(d, json_string_value(json_object_get(status, "version")), 20);
    buf_printf(d->out, "%s at %s, up %s%s\n", term_plain(d->term), d->options->admin,
               span(json_number_value(json_object_get(status, "uptime_s")), up), d->live ? "; q ends this" : "");
}

static void draw_decisions(const struct drawing *d)
{
    char a[COUNT_TEXT_MAX], b[COUNT_TEXT_MAX], c[COUNT_TEXT_MAX];
    const struct top_view *n = d->view;
    add_label(d, "decisions");
    buf_printf(d->out, "%s allowed, %s refused, %s shadow\n", grouped(number(n->status, "decisions", "allowed"), a),
               grouped(number(n->status, "decisions", "refused"), b), grouped(number(n->status, "decisions", "shadow"), c));
    if (!n->has_rates)
        return;
    add_label(d, "a second");
    buf_printf(d->out, "%s allowed, %s%s refused%s, %s shadow\n", rate_text(n->allowed_per_s, a),
               n->refused_per_s > 0 ? term_yellow(d->term) : "", rate_text(n->refused_per_s, b), term_plain(d->term),
               rate_text(n->shadow_per_s, c));
}

static void draw_rules(const struct drawing *d)
{
    char count[COUNT_TEXT_MAX], age[SPAN_TEXT_MAX];
    json_t *status = d->view->status;
    const char *reason = json_string_value(at(status, "source", "problem"));
    double problems = number(status, "rules", "problem_count");
    add_label(d, "rules");
    buf_printf(d->out, "%s from ", grouped(number(status, "rules", "count"), count));
    add_text(d, json_string_value(at(status, "source", "address")), 60);
    if (json_is_number(at(status, "rules", "age_s")))
        buf_printf(d->out, ", checked %s ago", span(number(status, "rules", "age_s"), age));
    else
        buf_add(d->out, SV(", of an earlier run"));
    if (!json_is_true(at(status, "source", "reachable"))) {
        buf_printf(d->out, ", %ssource unreachable", term_red(d->term));
        if (reason)
            buf_add(d->out, SV(": "));
        add_text(d, reason ? reason : "", 200);
        buf_add(d->out, weir_str(term_plain(d->term)));
    }
    /* The source may be a database, where some rows are settings. */
    const char *what = json_is_true(at(status, "source", "read_only")) ? "rule" : "row";
    buf_printf(d->out, ", %s%s bad %s%s%s\n", problems > 0 ? term_red(d->term) : "", grouped(problems, count), what,
               problems == 1 ? "" : "s", problems > 0 ? term_plain(d->term) : "");
}

static void draw_table(const struct drawing *d)
{
    char used[COUNT_TEXT_MAX], cells[COUNT_TEXT_MAX], drops[COUNT_TEXT_MAX];
    json_t *status = d->view->status;
    double at_limit = number(status, "table", "drops_at_limit");
    add_label(d, "table");
    buf_printf(d->out, "%s of %s cells in use (%.1f %%), %s dropped", grouped(number(status, "table", "used"), used),
               grouped(number(status, "table", "cells"), cells), 100 * number(status, "table", "fill"),
               grouped(number(status, "table", "drops"), drops));
    if (at_limit > 0)
        buf_printf(d->out, ", %s%s of them at their limit: the table is too small%s", term_red(d->term),
                   grouped(at_limit, drops), term_plain(d->term));
    buf_char(d->out, '\n');
}

static bool has_store(const struct drawing *d)
{
    return json_is_object(json_object_get(d->view->status, "store"));
}

static void draw_store(const struct drawing *d)
{
    char hosts[COUNT_TEXT_MAX], late[COUNT_TEXT_MAX];
    json_t *status = d->view->status;
    double count = number(status, "store", "hosts");
    add_label(d, "store");
    add_text(d, json_string_value(at(status, "store", "address")), 60);
    if (!json_is_true(at(status, "store", "up")))
        buf_printf(d->out, ", %sunreachable: rules follow their on_store_failure%s", term_red(d->term),
                   term_plain(d->term));
    buf_printf(d->out, ", %s host%s, %s decisions timed out\n", grouped(count, hosts), count == 1 ? "" : "s",
               grouped(number(status, "store", "late"), late));
}

static void draw_connections(const struct drawing *d)
{
    char text[COUNT_TEXT_MAX];
    json_t *status = d->view->status;
    double away = number(status, "connections", "turned_away");
    add_label(d, "connections");
    buf_printf(d->out, "%s http, ", grouped(number(status, "connections", "http"), text));
    buf_printf(d->out, "%s resp, ", grouped(number(status, "connections", "resp"), text));
    buf_printf(d->out, "%s admin", grouped(number(status, "connections", "admin"), text));
    if (away > 0)
        buf_printf(d->out, "; %s%s turned away%s", term_yellow(d->term), grouped(away, text), term_plain(d->term));
    buf_char(d->out, '\n');
}

/* ---- who is refused ---- */

static size_t rule_columns(json_t *subjects)
{
    size_t widest = RULE_COLUMNS_MIN, i;
    json_t *subject;
    json_array_foreach(subjects, i, subject)
    {
        const char *rule = json_string_value(json_object_get(subject, "rule"));
        size_t width = rule ? term_width(weir_str(rule)) : 0;
        widest = width > widest ? width : widest;
    }
    return widest < RULE_COLUMNS_MAX ? widest : RULE_COLUMNS_MAX;
}

/* A subject may contain NUL. */
static sv text_of(const json_t *string)
{
    return json_is_string(string) ? sv_of(json_string_value(string), json_string_length(string)) : SV("?");
}

/* "ip=203.0.113.9 user=anna" */
static void add_subject(json_t *subject, struct buf *out)
{
    json_t *by = json_object_get(subject, "by"), *one;
    size_t i;
    json_array_foreach(by, i, one)
    {
        buf_add(out, i ? SV(" ") : SV(""));
        buf_add(out, text_of(json_object_get(one, "name")));
        buf_char(out, '=');
        buf_add(out, text_of(json_object_get(one, "value")));
    }
    if (json_array_size(by) == 0)
        buf_add(out, SV("everybody"));
    if (json_is_true(json_object_get(subject, "cut")))
        buf_add(out, SV(" (cut)"));
}

static void draw_subject(const struct drawing *d, json_t *subject, double window_s, size_t rule_width)
{
    char least[COUNT_TEXT_MAX], most[COUNT_TEXT_MAX], counts[2 * COUNT_TEXT_MAX], rates[COUNT_TEXT_MAX];
    double refused = json_number_value(json_object_get(subject, "refused"));
    double error = json_number_value(json_object_get(subject, "error"));
    const char *rule = json_string_value(json_object_get(subject, "rule"));
    grouped(refused, most);
    snprintf(counts, sizeof counts, "%s%s%s", error > 0 ? grouped(refused - error, least) : "", error > 0 ? "-" : "", most);
    buf_printf(d->out, "%*s %*s  ", COUNT_COLUMNS, counts, RATE_COLUMNS,
               rate_text(window_s > 0 ? refused / window_s : 0, rates));
    buf_add(d->out, weir_str(term_bold(d->term)));
    term_add_padded(d->term, d->out, weir_str(rule ? rule : "?"), rule_width);
    buf_printf(d->out, "%s  ", term_plain(d->term));
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    add_subject(subject, &text);
    size_t used = COUNT_COLUMNS + RATE_COLUMNS + rule_width + 5;
    term_add(d->term, d->out, buf_sv(&text), d->term->columns > used + 10 ? d->term->columns - used - 1 : 10);
    buf_char(d->out, '\n');
}

static void draw_subjects(const struct drawing *d, unsigned most)
{
    json_t *top = d->view->top, *subjects = json_object_get(top, "subjects"), *subject;
    double window_s = json_number_value(json_object_get(top, "window_s"));
    double refused = json_number_value(json_object_get(top, "refused"));
    double unlisted = json_number_value(json_object_get(top, "unlisted_at_most"));
    char all[COUNT_TEXT_MAX], bound[COUNT_TEXT_MAX], time[SPAN_TEXT_MAX];
    buf_printf(d->out, "\nrefused most in the last %s, of %s in all", span(window_s, time), grouped(refused, all));
    if (unlisted > 0)
        buf_printf(d->out, "; subjects that are not listed: at most %s times each", grouped(unlisted, bound));
    buf_char(d->out, '\n');
    if (json_array_size(subjects) == 0) {
        buf_printf(d->out, "%snobody", term_dim(d->term));
        if (d->view->no_rule) {
            buf_add(d->out, SV(": there is no rule "));
            add_text(d, d->options->rule, RULE_COLUMNS_MAX);
        }
        buf_printf(d->out, "%s\n", term_plain(d->term));
        return;
    }
    size_t width = rule_columns(subjects), i;
    buf_printf(d->out, "%s%*s %*s  %-*s  %s%s\n", term_dim(d->term), COUNT_COLUMNS, "REFUSED", RATE_COLUMNS, "A SECOND",
               (int)width, "RULE", "WHO", term_plain(d->term));
    json_array_foreach(subjects, i, subject)
    {
        if (i < most)
            draw_subject(d, subject, window_s, width);
    }
}

/* ---- who is penalised ---- */

/* Returns how many rows this takes, at most TOP_PENALTIES + 2. */
static unsigned penalty_rows(const struct drawing *d)
{
    size_t listed = json_array_size(json_object_get(d->view->penalties, "penalties"));
    return listed > 0 ? (unsigned)listed + 2 : 0;
}

static void draw_penalty(const struct drawing *d, json_t *penalty, size_t rule_width)
{
    char rest[SPAN_TEXT_MAX];
    const char *rule = json_string_value(json_object_get(penalty, "rule"));
    buf_printf(d->out, "%*s  ", COUNT_COLUMNS + RATE_COLUMNS + 1,
               span(json_number_value(json_object_get(penalty, "rest_ms")) / 1000, rest));
    buf_add(d->out, weir_str(term_bold(d->term)));
    term_add_padded(d->term, d->out, weir_str(rule ? rule : "?"), rule_width);
    buf_printf(d->out, "%s  ", term_plain(d->term));
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    add_subject(penalty, &text);
    size_t used = COUNT_COLUMNS + RATE_COLUMNS + rule_width + 5;
    term_add(d->term, d->out, buf_sv(&text), d->term->columns > used + 10 ? d->term->columns - used - 1 : 10);
    buf_char(d->out, '\n');
}

/* Nothing if nobody is: most services have no penalties. */
static void draw_penalties(const struct drawing *d)
{
    json_t *penalties = json_object_get(d->view->penalties, "penalties"), *penalty;
    char running[COUNT_TEXT_MAX];
    size_t width = rule_columns(penalties), i;
    if (json_array_size(penalties) == 0)
        return;
    buf_printf(d->out, "\npenalised: %s\n",
               grouped(json_number_value(json_object_get(d->view->penalties, "running")), running));
    json_array_foreach(penalties, i, penalty)
    {
        draw_penalty(d, penalty, width);
    }
}

/* ---- all of it ---- */

static void draw_away(const struct drawing *d)
{
    char age[SPAN_TEXT_MAX];
    buf_printf(d->out, "%sno answer: ", term_red(d->term));
    add_text(d, d->view->away.text, 400);
    span_text((int64_t)d->options->interval_ms * US_PER_MS, age);
    buf_printf(d->out, "%s\nretrying every %s until q is pressed", term_plain(d->term), age);
    if (d->view->status)
        buf_printf(d->out, "; the last answer was %s ago",
                   span((double)(clock_steady_us() - d->view->steady_us) / (double)US_PER_S, age));
    buf_char(d->out, '\n');
}

void top_draw(const struct top_view *view, const struct top_options *options, const struct term *term, unsigned rows,
              struct buf *out)
{
    struct drawing d = { view, options, term, out, .live = rows != UINT32_MAX };
    if (view->away.code != WEIR_OK) {
        draw_away(&d);
        return;
    }
    draw_title(&d);
    draw_decisions(&d);
    draw_rules(&d);
    draw_table(&d);
    if (has_store(&d)) {
        draw_store(&d);
        rows -= d.live && rows > 0;
    }
    draw_connections(&d);
    unsigned taken = d.live ? penalty_rows(&d) : 0;
    draw_subjects(&d, top_room(rows > taken ? rows - taken : 0));
    draw_penalties(&d);
}
