/* weir explain: every rule, and why it applies to a request or not. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/request.h"
#include "cli/term.h"
#include "present/present.h"

static const struct command command = {
    .name = "explain",
    .usage = "--rules FILE [--cells FILE] [--counters ADDRESS] [OPTION]...",
    .text =
        "Explains how each rule treats a request: whether it applies and why, whom it counts for, and how much of each of "
        "its limits is used. Charges nothing.",
    .footer =
        "All options of 'weir check' are accepted, so that its command line can be explained; those that are not listed "
        "here only matter for a charge.\n\n"
        "The exit status is 0, or 2 after an error.\n\n"
        "Example:\n  weir explain --rules rules.yaml --method POST --path /login --ip 203.0.113.9",
    .options = request_explain_options,
};

enum { LINE_COLUMNS = 1000, OUTPUT_MAX = 64 << 20 };

struct output {
    struct term term;
    struct buf out, line;
    const struct weir_request *request;
    bool has_store;
    const struct rule *spent;       /* a leased rule of which neither this host nor the store has enough; NULL: none */
    const struct rule_limit *limit; /* of it */
    int64_t now_us;
    size_t rules;
    struct penalty_cause penalty;
};

/* Lines contain what a client may have sent, so all of a line goes through term_add. */
static void end_line(struct output *p, const char *color)
{
    buf_add(&p->out, weir_str(color));
    term_add(&p->term, &p->out, buf_sv(&p->line), LINE_COLUMNS);
    buf_printf(&p->out, "%s\n", color[0] ? term_plain(&p->term) : "");
    buf_clear(&p->line);
}

#define LINE(p, color, ...) (buf_printf(&(p)->line, __VA_ARGS__), end_line(p, color))

/* One line about the request, unless both the value and `none` are empty. */
static void fact(struct output *p, const char *name, sv value, const char *none)
{
    if (value.len == 0 && !none)
        return;
    buf_printf(&p->line, "  %-8s ", name);
    buf_add(&p->line, value.len ? value : weir_str(none)); /* a path may contain a NUL */
    end_line(p, "");
}

static void print_path(struct output *p, struct facts *facts)
{
    sv path = facts_path(facts), raw = p->request->path;
    if (raw.len == 0)
        return;
    fact(p, "path", path, "/");
    if (!sv_eq(raw, path))
        fact(p, "", raw, NULL);
    if (!sv_eq(facts_route(facts), path))
        fact(p, "route", facts_route(facts), NULL);
    for (size_t i = 1; i < facts_readings(facts); i++) {
        facts_select_reading(facts, i);
        fact(p, "or", facts_path(facts), NULL);
    }
    facts_select_reading(facts, 0);
}

static void print_client(struct output *p, struct facts *facts)
{
    const struct ip *ip = facts_ip(facts);
    char address[IP_TEXT_MAX];
    if (!ip) {
        fact(p, "client", (sv){ 0 }, p->request->ip.len || p->request->peer.len ? "not a valid address" : "unknown");
        return;
    }
    ip_text(ip, address);
    buf_printf(&p->line, "  %-8s %s", "client", address);
    if (!sv_eq(weir_str(address), facts_ip_text(facts)))
        buf_printf(&p->line, ", counted as %.*s", SV_FMT(facts_ip_text(facts)));
    bool forwarded = p->request->ip.len == 0 && !sv_eq(weir_str(address), p->request->peer);
    LINE(p, "", "%s", forwarded ? ", from X-Forwarded-For" : "");
}

static void print_request(struct facts *facts, void *data)
{
    struct output *p = data;
    const struct weir_request *r = p->request;
    char now[INSTANT_TEXT_MAX];
    instant_text(p->now_us, now);
    LINE(p, term_bold(&p->term), "request");
    fact(p, "time", weir_str(now), NULL);
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++)
        if (i == ATTR_PATH)
            print_path(p, facts);
        else if (i == ATTR_IP)
            print_client(p, facts);
        else if (attribute_table[i].uses & (IN_MATCH | IN_BY))
            fact(p, attribute_table[i].name.ptr, facts_text(facts, i), i == ATTR_USER ? "none" : NULL);
    for (size_t i = 0; i < r->header_count; i++)
        LINE(p, "", "  %-8s %.*s: %.*s", "header", SV_FMT(r->headers[i].name), SV_FMT(r->headers[i].value));
    for (size_t i = 0; i < r->descriptor_count; i++)
        LINE(p, "", "  %-8s %.*s=%.*s", "entry", SV_FMT(r->descriptor[i].name), SV_FMT(r->descriptor[i].value));
    LINE(p, "", "  %-8s %" PRIu64, "cost", r->cost);
    for (size_t i = 0; i < r->cost_count; i++)
        LINE(p, "", "  %-8s %" PRIu64 " %.*s", "", r->costs[i].amount, SV_FMT(r->costs[i].unit));
    end_line(p, "");
    LINE(p, term_bold(&p->term), "rules");
}

static void print_limit(struct output *p, const struct explained_rule *e, const struct explained_limit *l)
{
    buf_printf(&p->line, "      limit %.*s: ", SV_FMT(l->spec->name));
    rule_limit_text(l->spec, &p->line);
    end_line(p, "");
    buf_add(&p->line, SV("        "));
    explain_usage(e, l, &p->line);
    end_line(p, l->fits ? "" : term_red(&p->term));
    if (e->counting == COUNTER_SLICE && e->rule->kind->mode == MODE_ENFORCE && !l->unknown && !l->fits &&
        l->held < l->cost && !p->spent) {
        p->spent = e->rule;
        p->limit = l->spec;
    }
}

static void print_rule(const struct explained_rule *e, void *data)
{
    struct output *p = data;
    p->rules++;
    explain_note_penalty(e, &p->penalty);
    if (e->reason != MATCH_YES) {
        buf_printf(&p->line, "  %.*s does not apply: ", SV_FMT(e->rule->id));
        explain_reason(e, p->request, &p->line);
        end_line(p, term_dim(&p->term));
        return;
    }
    LINE(p, term_bold(&p->term), "  %.*s applies%s", SV_FMT(e->rule->id),
         e->rule->kind->mode == MODE_SHADOW ? " in shadow: it counts, but refuses nothing" : "");
    if (e->reading.len > 0) {
        buf_add(&p->line, SV("      for the path as some servers read it: "));
        buf_add(&p->line, e->reading);
        end_line(p, "");
    }
    buf_add(&p->line, SV("      "));
    explain_subject(e, &p->line);
    end_line(p, "");
    buf_add(&p->line, SV("      "));
    if (explain_choice(e, &p->line))
        end_line(p, e->override && e->override->kind == OVERRIDE_DENY ? term_red(&p->term) : "");
    buf_clear(&p->line);
    buf_add(&p->line, SV("      "));
    if (explain_where(e, p->has_store, &p->line))
        end_line(p, "");
    buf_clear(&p->line);
    bool denied = e->override && e->override->kind == OVERRIDE_DENY; /* its limit is only a name for the verdict */
    for (size_t i = 0; !denied && i < e->limit_count; i++)
        print_limit(p, e, &e->limits[i]);
    buf_add(&p->line, SV("      "));
    if (!denied && explain_penalty(e, p->now_us, &p->line))
        end_line(p, e->penalty.rest_us > 0 ? term_red(&p->term) : "");
    buf_clear(&p->line);
}

static void print_uncounted(sv unit, void *data)
{
    struct output *p = data;
    buf_add(&p->line, SV("  "));
    explain_uncounted(unit, &p->line);
    end_line(p, term_red(&p->term));
}

static void print_verdict(const struct weir_request *request, const struct weir_verdict *v, void *data)
{
    struct output *p = data;
    bool spent = v->allowed && p->spent; /* an explanation borrows no slice, so the engine does not know */
    if (p->rules == 0)
        LINE(p, "", "  none");
    end_line(p, "");
    LINE(p, term_bold(&p->term), "verdict");
    buf_add(&p->line, SV("  "));
    if (spent)
        buf_printf(&p->line, "refused by %.*s, limit %.*s: the store has too little left to lend", SV_FMT(p->spent->id),
                   SV_FMT(p->limit->name));
    else
        explain_verdict(v, &p->penalty, p->now_us, &p->line);
    end_line(p, v->allowed && !spent ? term_green(&p->term) : term_red(&p->term));
    for (uint32_t i = 0; i < request->shadows->count; i++)
        LINE(p, "", "  shadow rule %s would have refused it", request->shadows->names[i]);
}

int cli_explain(int argc, char **argv)
{
    static const struct explain_sink sink = { print_request, print_rule, print_verdict, print_uncounted };
    struct request_options options = REQUEST_OPTIONS_DEFAULT;
    struct request_lists lists;
    struct weir_request request;
    struct weir *weir;
    int status = request_read(&command, argc, argv, &options, &lists, &request);
    if (status >= 0)
        return status;
    if (request_cells_missing(&options))
        return cli_error(
            "%s: there is no such cells file; give the file that contains the counts ('weir serve' has it as cells in its "
            "data folder), or leave out --cells to see which rules apply",
            options.cells);
    if (!request_open(&options, &weir))
        return EXIT_BAD;
    struct output output = { .term = term_of(STDOUT_FILENO), .request = &request, .has_store = options.counters };
    output.now_us = options.now_us >= 0 ? options.now_us : weir_now_us();
    buf_init(&output.out, OUTPUT_MAX);
    buf_init(&output.line, EXPLAIN_TEXT_MAX);
    int code = weir_explain(weir, &request, output.now_us, &sink, &output);
    request_close(weir);
    if (code == 0)
        fwrite(buf_sv(&output.out).ptr, 1, output.out.len, stdout);
    buf_done(&output.out);
    buf_done(&output.line);
    return code < 0 ? cli_error("the request cannot be judged: %s", err_text((enum weir_code)code)) : 0;
}
