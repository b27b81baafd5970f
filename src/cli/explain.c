/* weir explain: every rule, and why it sees a request or not. */
#include "engine/explain.h"

#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/request.h"
#include "cli/term.h"
#include "cli/time_text.h"
#include "engine/verdict.h"

static const struct command command = {
    .name = "explain",
    .usage = "--rules FILE [--cells FILE] [--counters ADDRESS] [OPTION]...",
    .text =
        "Explains how each rule treats a request: whether it applies and why, whom it counts for, and how much of each of "
        "its limits is used. Charges nothing.",
    .footer = "The exit status is 0, or 2 after an error.\n\n"
              "Example:\n  weir explain --rules rules.yaml --method POST --path /login --ip 203.0.113.9",
    .options = request_option_table,
};

enum { TEXT_COLUMNS = 200, REASON_COLUMNS = 1000, OUTPUT_MAX = 64 << 20 };

struct page {
    struct term term;
    struct buf out;
    const struct weir_request *request;
    bool has_store;
    const struct rule *spent;       /* a leased rule of which neither this host nor the store has enough; NULL: none */
    const struct rule_limit *limit; /* of it */
    int64_t now_us;
    size_t rules, applied;
};

static void add(struct page *p, sv text)
{
    term_add(&p->term, &p->out, text, TEXT_COLUMNS);
}

static void bold(struct page *p, const char *text)
{
    buf_printf(&p->out, "%s%s%s", term_bold(&p->term), text, term_plain(&p->term));
}

/* One line of the request, unless there is nothing to say. */
static void fact(struct page *p, const char *name, sv value, const char *none)
{
    if (value.len == 0 && !none)
        return;
    buf_printf(&p->out, "  %-8s ", name);
    add(p, value.len ? value : weir_str(none));
    buf_char(&p->out, '\n');
}

static void print_path(struct page *p, struct facts *facts)
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
        facts_use(facts, i);
        fact(p, "or", facts_path(facts), NULL);
    }
    facts_use(facts, 0);
}

static void print_client(struct page *p, struct facts *facts)
{
    const struct ip *ip = facts_ip(facts);
    char address[IP_TEXT_MAX];
    if (!ip) {
        fact(p, "client", (sv){ 0 },
             p->request->ip.len || p->request->peer.len ? "no address that can be read" : "unknown");
        return;
    }
    ip_text(ip, address);
    buf_printf(&p->out, "  %-8s %s", "client", address);
    if (!sv_eq(weir_str(address), facts_ip_text(facts)))
        buf_printf(&p->out, ", counted as %.*s", SV_FMT(facts_ip_text(facts)));
    bool forwarded = p->request->ip.len == 0 && !sv_eq(weir_str(address), p->request->peer);
    buf_add(&p->out, weir_str(forwarded ? ", from X-Forwarded-For\n" : "\n"));
}

static void print_request(struct facts *facts, void *data)
{
    struct page *p = data;
    const struct weir_request *r = p->request;
    char now[INSTANT_TEXT_MAX];
    instant_text(p->now_us, now);
    bold(p, "request\n");
    fact(p, "time", weir_str(now), NULL);
    fact(p, "event", facts->event, NULL);
    fact(p, "key", facts->key, NULL);
    fact(p, "method", facts_method(facts), NULL);
    print_path(p, facts);
    fact(p, "host", facts_host(facts), NULL);
    print_client(p, facts);
    fact(p, "user", facts->user, "none");
    for (size_t i = 0; i < r->header_count; i++) {
        buf_printf(&p->out, "  %-8s ", "header");
        add(p, r->headers[i].name);
        buf_add(&p->out, SV(": "));
        add(p, r->headers[i].value);
        buf_char(&p->out, '\n');
    }
    buf_printf(&p->out, "  %-8s %u\n\n", "cost", r->cost);
    bold(p, "rules\n");
}

static void print_reason(struct page *p, const struct explained_rule *e)
{
    struct buf text;
    buf_init(&text, EXPLAIN_REASON_MAX);
    explain_reason(e, p->request, &text);
    term_add(&p->term, &p->out, buf_sv(&text), REASON_COLUMNS);
    buf_done(&text);
}

static void print_subject(struct page *p, const struct explained_rule *e)
{
    buf_add(&p->out, SV("      counts for "));
    if (e->rule->by_count == 0)
        buf_add(&p->out, SV("everybody together"));
    for (size_t i = 0; i < e->rule->by_count; i++) {
        const struct rule_by *by = &e->rule->by[i];
        buf_printf(&p->out, "%s%s ", i ? ", " : "", attribute_name(by->attribute));
        if (by->attribute == ATTR_HEADER) {
            add(p, by->header);
            buf_char(&p->out, ' ');
        }
        add(p, e->by[i]);
    }
    buf_char(&p->out, '\n');
}

static void print_room(struct page *p, const struct explained_limit *l)
{
    char span[SPAN_TEXT_MAX];
    if (l->fits)
        return;
    buf_printf(&p->out, "; %s", term_red(&p->term));
    if (l->report.retry_after_us >= 0) {
        span_text(l->report.retry_after_us, span);
        buf_printf(&p->out, "no room for %u before %s", p->request->cost, span);
    } else {
        buf_printf(&p->out, "never room for %u", p->request->cost);
    }
    buf_add(&p->out, weir_str(term_plain(&p->term)));
}

/* Where a rule counts that is not local, and so what its numbers are. */
static void print_where(struct page *p, const struct explained_rule *e)
{
    bool unknown = e->limits[0].unknown;
    const char *text = NULL;
    if (e->counting == COUNTER_STORE)
        text = unknown ? "counts in the store, which does not answer" : "counts in the store, for all hosts together";
    else if (e->counting == COUNTER_SLICE && p->has_store)
        text = unknown ? "is leased from the store, which does not answer"
                       : "is leased from the store: what is lent to hosts counts as used";
    else if (e->counting == COUNTER_SLICE)
        text = "is leased from a store; --counters ADDRESS shows what is used there";
    else if (e->rule->counters == COUNTERS_SHARED)
        text = "counts on this host, since no store is given (--counters ADDRESS)";
    if (text)
        buf_printf(&p->out, "      %s\n", text);
}

static void print_limit(struct page *p, const struct explained_rule *e, const struct explained_limit *l)
{
    char span[SPAN_TEXT_MAX], end[INSTANT_TEXT_MAX];
    buf_add(&p->out, SV("      limit "));
    add(p, l->spec->name);
    buf_add(&p->out, SV(": "));
    rule_limit_text(l->spec, &p->out);
    buf_add(&p->out, SV("\n        "));
    if (e->counting == COUNTER_SLICE)
        buf_printf(&p->out, "this host holds %u unspent%s", l->held, l->unknown ? "" : "; ");
    else if (l->unknown)
        buf_add(&p->out, SV("what is used is not known"));
    if (l->unknown) {
        buf_char(&p->out, '\n');
        return;
    }
    buf_printf(&p->out, "%u used, %u left", l->limit.capacity - l->report.remaining, l->report.remaining);
    if (l->report.reset_us > 0) {
        span_text(l->report.reset_us, span);
        buf_printf(&p->out, ", as if unused in %s", span);
    }
    if (l->spec->algorithm == LIMIT_CALENDAR && clock_valid(l->window.end_us)) {
        instant_text(l->window.end_us, end);
        buf_printf(&p->out, "; the %s ends at %s", calendar_unit_name(l->spec->unit), end);
    }
    print_room(p, l);
    buf_char(&p->out, '\n');
}

static void print_rule(const struct explained_rule *e, void *data)
{
    struct page *p = data;
    bool applies = e->reason == MATCH_YES;
    p->rules++;
    buf_add(&p->out, SV("  "));
    buf_add(&p->out, weir_str(applies ? term_bold(&p->term) : term_dim(&p->term)));
    add(p, e->rule->id);
    if (!applies) {
        buf_add(&p->out, SV(" does not apply: "));
        print_reason(p, e);
        buf_printf(&p->out, "%s\n", term_plain(&p->term));
        return;
    }
    p->applied++;
    buf_printf(&p->out, "%s applies%s\n", term_plain(&p->term),
               e->rule->mode == MODE_SHADOW ? " in shadow: it is counted, and refuses nothing" : "");
    if (e->reading.len > 0) {
        buf_add(&p->out, SV("      for the path as some servers read it: "));
        add(p, e->reading);
        buf_char(&p->out, '\n');
    }
    print_subject(p, e);
    print_where(p, e);
    for (size_t i = 0; i < e->rule->limit_count; i++) {
        const struct explained_limit *l = &e->limits[i];
        print_limit(p, e, l);
        if (e->counting == COUNTER_SLICE && e->rule->mode == MODE_ENFORCE && !l->unknown && !l->fits &&
            l->held < p->request->cost && !p->spent) {
            p->spent = e->rule;
            p->limit = l->spec;
        }
    }
}

static void add_names(struct page *p, sv rule, sv limit)
{
    add(p, rule);
    buf_add(&p->out, SV(", limit "));
    add(p, limit);
}

static void print_verdict(const struct weir_verdict *v, void *data)
{
    struct page *p = data;
    char span[SPAN_TEXT_MAX];
    if (p->rules == 0)
        buf_add(&p->out, SV("  none\n"));
    buf_char(&p->out, '\n');
    bold(p, "verdict\n");
    if (verdict_is_repeated(v)) {
        buf_printf(&p->out, "  %srefused%s: the header %s is repeated with different values (settings: repeated_headers)\n",
                   term_red(&p->term), term_plain(&p->term), v->limit);
    } else if (v->allowed && p->spent) {
        /* Looking takes no slice, and so the engine does not know. */
        buf_printf(&p->out, "  %srefused%s by ", term_red(&p->term), term_plain(&p->term));
        add_names(p, p->spent->id, p->limit->name);
        buf_add(&p->out, SV(": the store has too little left to lend\n"));
    } else if (!v->applied) {
        buf_printf(&p->out, "  %sallowed%s: no rule that refuses applies\n", term_green(&p->term), term_plain(&p->term));
    } else if (v->allowed) {
        buf_printf(&p->out, "  %sallowed%s: least is left of ", term_green(&p->term), term_plain(&p->term));
        add_names(p, weir_str(v->rule), weir_str(v->limit));
        buf_printf(&p->out, ": %u of %u\n", v->remaining, v->max);
    } else {
        span_text(v->retry_after_ms * US_PER_MS, span);
        buf_printf(&p->out, "  %srefused%s by ", term_red(&p->term), term_plain(&p->term));
        add_names(p, weir_str(v->rule), weir_str(v->limit));
        if (v->unavailable)
            buf_add(&p->out, SV(": the store does not answer, and its on_store_failure is deny\n"));
        else
            buf_printf(&p->out, ": %s%s\n", v->retry_after_ms == WEIR_NEVER ? "no wait will help" : "it would pass in ",
                       v->retry_after_ms == WEIR_NEVER ? "" : span);
    }
    for (uint32_t i = 0; i < v->shadow_count && i < WEIR_SHADOW_MAX; i++) {
        buf_add(&p->out, SV("  "));
        add(p, weir_str(v->shadow[i]));
        buf_add(&p->out, SV(" would have refused it, but is in shadow\n"));
    }
}

int cli_explain(int argc, char **argv)
{
    static const struct explain_sink sink = { print_request, print_rule, print_verdict };
    struct request_options options = REQUEST_OPTIONS_DEFAULT;
    struct weir_header headers[OPTION_LIST_MAX];
    struct weir_request request;
    struct weir *weir;
    int status = request_read(&command, argc, argv, &options, headers, &request);
    if (status >= 0)
        return status;
    if (request_cells_missing(&options))
        return cli_error(
            "%s: there is no such cells file; give the file that contains the counts ('weir serve' has it as cells in its "
            "data folder), or leave out --cells to see which rules apply",
            options.cells);
    if (!request_open(&options, &weir))
        return EXIT_BAD;
    struct page page = { .term = term_of(STDOUT_FILENO), .request = &request, .has_store = options.counters };
    page.now_us = options.now_us >= 0 ? options.now_us : weir_now_us();
    buf_init(&page.out, OUTPUT_MAX);
    int code = weir_explain(weir, &request, page.now_us, &sink, &page);
    request_close(weir);
    if (code == 0)
        fwrite(buf_sv(&page.out).ptr, 1, page.out.len, stdout);
    buf_done(&page.out);
    return code < 0 ? cli_error("the request cannot be judged: %s", err_text((enum weir_code)code)) : 0;
}
