/* The summary of a replay, for a person at a terminal. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/instant.h"
#include "cli/chart.h"
#include "cli/simulate.h"
#include "present/present.h"

enum {
    RULE_ROWS_MAX = 40,     /* rules listed; --json lists all */
    SUBJECT_RULES_MAX = 10, /* rules whose subjects are listed */
    ID_COLUMNS_MAX = 30,
    SPARK_MAX = 40,
};

struct output {
    const struct simulation_result *result;
    const struct totals *totals;
    const struct term *term;
    struct buf *out;
    uint32_t *rules; /* the most refusing first */
    uint32_t *subjects;
    size_t id_columns, count_columns; /* of the table of rules */
};

static void add_count(struct buf *out, uint64_t n, int columns)
{
    char text[COUNT_TEXT_MAX];
    buf_printf(out, "%*s", columns, count_text(n, text));
}

/* In tenths of a per cent, the nearest; a half goes down. */
static unsigned share(uint64_t n, uint64_t of)
{
    return of ? (unsigned)(((unsigned __int128)n * 1000 + (of - 1) / 2) / of) : 0;
}

/* `n` of `of`, rounded to `tenths`. A small share is not shown as 0, and one below 100 % not as 100 %. */
static void add_tenths(struct buf *out, uint64_t n, uint64_t of, unsigned tenths)
{
    if (n == 0)
        buf_add(out, SV("        "));
    else if (n < of && n < of / 1000 + (of % 1000 > 0))
        buf_add(out, SV("  <0.1 %"));
    else if (n < of && of - n < of / 1000 + (of % 1000 > 0))
        buf_add(out, SV(" >99.9 %"));
    else
        buf_printf(out, " %3u.%u %%", tenths / 10, tenths % 10);
}

static void add_share(struct buf *out, uint64_t n, uint64_t of)
{
    add_tenths(out, n, of, share(n, of));
}

/* In the smallest unit of time that gives a number of at least 1, or by the hour. */
static void add_rate(struct buf *out, double per_second)
{
    if (per_second >= 1)
        buf_printf(out, "%.*f a second", per_second < 100 ? 1 : 0, per_second);
    else if (per_second * 60 >= 1)
        buf_printf(out, "%.1f a minute", per_second * 60);
    else
        buf_printf(out, "%.1f an hour", per_second * 3600);
}

static void print_span(const struct output *p)
{
    const struct totals *t = p->totals;
    char from[INSTANT_TEXT_MAX], to[INSTANT_TEXT_MAX], span[SPAN_TEXT_MAX], count[COUNT_TEXT_MAX];
    int64_t us = t->timeline.last_us - t->timeline.first_us;
    instant_text(t->timeline.first_us, from);
    instant_text(t->timeline.last_us, to);
    span_text(us, span);
    buf_printf(p->out, "%s%s %s%s", term_bold(p->term), count_text(t->requests, count),
               t->requests == 1 ? "request" : "requests", term_plain(p->term));
    if (us == 0) {
        buf_printf(p->out, " at %s\n\n", from);
        return;
    }
    buf_printf(p->out, " in %s, ", span);
    add_rate(p->out, (double)t->requests * (double)US_PER_S / (double)us);
    buf_printf(p->out, "\n%s to %s\n\n", from, to);
}

static void print_totals(const struct output *p)
{
    const struct totals *t = p->totals;
    const struct term *term = p->term;
    add_count(p->out, t->passed, 13);
    /* Each request passed or was refused: the two add up to 100 %. */
    add_tenths(p->out, t->passed, t->requests, 1000 - share(t->refused, t->requests));
    buf_printf(p->out, "  %spassed%s", term_green(term), term_plain(term));
    if (t->unmatched) {
        buf_add(p->out, SV(", of which no rule applied to "));
        add_count(p->out, t->unmatched, 0);
    }
    buf_char(p->out, '\n');
    add_count(p->out, t->refused, 13);
    add_share(p->out, t->refused, t->requests);
    buf_printf(p->out, "  %srefused%s\n", term_red(term), term_plain(term));
    if (t->rule_changes) {
        add_count(p->out, t->rule_changes, 13);
        buf_printf(p->out, "%8s  change%s of the rules\n", "", t->rule_changes == 1 ? "" : "s");
    }
    buf_char(p->out, '\n');
}

static void print_rule(const struct output *p, uint32_t index, size_t spark)
{
    const struct totals_rule *row = &p->totals->rules[index];
    const struct term *term = p->term;
    bool shadow = row->mode == MODE_SHADOW;
    uint64_t refused = row->refused + row->would_refuse;
    buf_add(p->out, SV("  "));
    term_add_padded(term, p->out, intern_text(&p->totals->ids, index), p->id_columns);
    add_count(p->out, row->applied, (int)p->count_columns);
    add_count(p->out, row->passed, (int)p->count_columns);
    buf_add(p->out, weir_str(!refused ? "" : shadow ? term_yellow(term) : term_red(term)));
    add_count(p->out, refused, (int)p->count_columns);
    buf_add(p->out, weir_str(row->would_refuse ? "*" : " "));
    add_share(p->out, refused, row->applied);
    if (row->over_time && spark) {
        buf_add(p->out, SV("  "));
        chart_spark(p->out, term, &p->totals->timeline, row->over_time, spark);
    }
    buf_add(p->out, weir_str(refused ? term_plain(term) : ""));
    while (p->out->len > 0 && p->out->ptr[p->out->len - 1] == ' ')
        p->out->ptr[--p->out->len] = '\0';
    buf_char(p->out, '\n');
}

static void print_unused(const struct output *p, size_t first)
{
    size_t count = p->totals->ids.count - first;
    if (count == 0)
        return;
    buf_printf(p->out, "  %s%zu %s to no request:", term_dim(p->term), count,
               count == 1 ? "rule applied" : "rules applied");
    for (size_t i = first; i < p->totals->ids.count && i < first + 5; i++) {
        buf_add(p->out, weir_str(i > first ? ", " : " "));
        term_add(p->term, p->out, intern_text(&p->totals->ids, p->rules[i]), ID_COLUMNS_MAX);
    }
    buf_printf(p->out, "%s%s\n", count > 5 ? ", ..." : "", term_plain(p->term));
}

/* The number of rules that applied to a request; they come first. */
static size_t rules_applied(const struct output *p)
{
    size_t n = 0;
    while (n < p->totals->ids.count && p->totals->rules[p->rules[n]].applied > 0)
        n++;
    return n;
}

/* Makes the columns as wide as their contents. Returns the width that is left for a picture. */
static size_t fit_columns(struct output *p, size_t shown)
{
    p->id_columns = strlen("rule");
    p->count_columns = strlen("requests");
    for (size_t i = 0; i < shown; i++) {
        char text[COUNT_TEXT_MAX];
        size_t width = term_width(intern_text(&p->totals->ids, p->rules[i]));
        size_t digits = strlen(count_text(p->totals->rules[p->rules[i]].applied, text));
        p->id_columns = width > p->id_columns ? width : p->id_columns;
        p->count_columns = digits > p->count_columns ? digits : p->count_columns;
    }
    p->id_columns = p->id_columns > ID_COLUMNS_MAX ? ID_COLUMNS_MAX : p->id_columns;
    p->count_columns += 2;
    size_t used = 2 + p->id_columns + 3 * p->count_columns + 1 + 8 + 2;
    size_t left = p->term->columns > used + strlen("over time") ? p->term->columns - used : 0;
    return left > SPARK_MAX ? SPARK_MAX : left;
}

static void print_rules(struct output *p)
{
    size_t applied = rules_applied(p), shown = applied < RULE_ROWS_MAX ? applied : RULE_ROWS_MAX;
    size_t spark = fit_columns(p, shown);
    bool shadow = false, others = false;
    int width = (int)p->count_columns;
    buf_printf(p->out, "\n  %s%-*s%*s%*s%*s%s%s\n", term_bold(p->term), (int)p->id_columns, "rule", width, "requests",
               width, "passed", width, "refused", spark ? "           over time" : "", term_plain(p->term));
    for (size_t i = 0; i < shown; i++) {
        const struct totals_rule *row = &p->totals->rules[p->rules[i]];
        shadow = shadow || row->would_refuse;
        others = others || row->applied > row->passed + row->refused;
        print_rule(p, p->rules[i], spark);
    }
    if (applied > shown)
        buf_printf(p->out, "  %s... and %zu more rules (--json lists all)%s\n", term_dim(p->term), applied - shown,
                   term_plain(p->term));
    print_unused(p, applied);
    if (shadow)
        buf_printf(p->out, "  %s* a shadow rule: what it would have refused%s\n", term_dim(p->term), term_plain(p->term));
    if (others)
        buf_printf(p->out, "  %sRequests in neither column were refused by another rule.%s\n", term_dim(p->term),
                   term_plain(p->term));
}

static void print_subject(const struct output *p, uint32_t index)
{
    sv parts = subject_parts(intern_text(&p->totals->subject_names, index)), attribute, value;
    size_t room = p->term->columns > 40 ? p->term->columns - 20 : 20;
    buf_add(p->out, SV("  "));
    add_count(p->out, p->totals->subjects[index].refusals, 12);
    buf_add(p->out, SV("  "));
    if (parts.len == 0)
        buf_add(p->out, SV("everybody together"));
    for (bool first = true; subject_next(&parts, &attribute, &value); first = false) {
        buf_add(p->out, weir_str(first ? "" : ", "));
        buf_add(p->out, weir_str(term_dim(p->term)));
        term_add(p->term, p->out, attribute, room);
        buf_printf(p->out, "%s ", term_plain(p->term));
        term_add(p->term, p->out, value, room);
    }
    buf_char(p->out, '\n');
}

/* Subjects are sorted by rule. Returns the first one of this rule. */
static size_t first_subject(const struct output *p, uint32_t rule)
{
    size_t low = 0, high = p->totals->subject_names.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (p->totals->subjects[p->subjects[middle]].rule < rule)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void print_subjects(const struct output *p)
{
    for (size_t i = 0; i < p->totals->ids.count && i < SUBJECT_RULES_MAX; i++) {
        uint32_t rule = p->rules[i];
        size_t first = first_subject(p, rule), count = 0;
        while (first + count < p->totals->subject_names.count &&
               p->totals->subjects[p->subjects[first + count]].rule == rule)
            count++;
        if (count == 0 || p->result->top == 0)
            continue;
        char text[COUNT_TEXT_MAX];
        bool shadow = p->totals->rules[rule].would_refuse > 0;
        buf_printf(p->out, "\n  %smost refused by ", term_bold(p->term));
        term_add(p->term, p->out, intern_text(&p->totals->ids, rule), ID_COLUMNS_MAX);
        buf_printf(p->out, "%s%s, of %s %s\n", shadow ? " (shadow)" : "", term_plain(p->term), count_text(count, text),
                   count == 1 ? "subject" : "subjects");
        for (size_t k = 0; k < count && k < p->result->top; k++)
            print_subject(p, p->subjects[first + k]);
    }
}

static void print_warnings(const struct output *p)
{
    const struct totals *t = p->totals;
    const char *yellow = term_yellow(p->term), *plain = term_plain(p->term);
    char count[COUNT_TEXT_MAX];
    if (t->bad_lines)
        buf_printf(p->out, "\n%s%s %s skipped, because %s not %s.%s\n", yellow, count_text(t->bad_lines, count),
                   t->bad_lines == 1 ? "line was" : "lines were", t->bad_lines == 1 ? "it is" : "they are",
                   t->bad_lines == 1 ? "a request" : "requests", plain);
    if (t->unreadable)
        buf_printf(p->out, "\n%s%s %s an invalid address: rules by ip do not apply to %s.%s\n", yellow,
                   count_text(t->unreadable, count), t->unreadable == 1 ? "request has" : "requests have",
                   t->unreadable == 1 ? "it" : "them", plain);
    if (t->shadow_left_out)
        buf_printf(p->out,
                   "\n%sThe counts of shadow rules are incomplete: a verdict lists %d of them, and %s more would have\n"
                   "refused.%s\n",
                   yellow, WEIR_SHADOW_MAX, count_text(t->shadow_left_out, count), plain);
    if (t->subjects_left_out)
        buf_printf(p->out, "\n%s refusals of subjects after the first 1,048,576 are not in these lists.\n",
                   count_text(t->subjects_left_out, count));
    if (t->in_flight)
        buf_printf(p->out,
                   "\n%sLimits with `concurrent` were not simulated: the input does not say when requests end. They apply "
                   "to %s %s.%s\n",
                   yellow, count_text(t->in_flight, count), t->in_flight == 1 ? "request" : "requests", plain);
    if (p->result->status.drops)
        buf_printf(p->out,
                   "\n%sThe table was too small: %s subjects were forgotten before their time, and more passed than would\n"
                   "have. Give it more room with --cells-keys.%s\n",
                   yellow, count_text(p->result->status.drops, count), plain);
}

void simulation_text(const struct simulation_result *result, const struct term *term, struct buf *out)
{
    struct output p = { .result = result, .totals = result->totals, .term = term, .out = out };
    if (result->totals->requests == 0) {
        buf_printf(out, "%s: no requests\n", result->input);
        return;
    }
    CLEANUP_FREE uint32_t *rules = p.rules = totals_rules_sorted(p.totals);
    CLEANUP_FREE uint32_t *subjects = p.subjects = totals_subjects_sorted(p.totals);
    out->failed = out->failed || !rules || !subjects;
    if (out->failed)
        return;
    print_span(&p);
    print_totals(&p);
    chart_draw(out, term, &p.totals->timeline, p.totals->passed_over_time, p.totals->refused_over_time);
    print_rules(&p);
    print_subjects(&p);
    print_warnings(&p);
}
