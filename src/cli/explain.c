/* weir explain: every rule, and why it sees a request or not. */
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/instant.h"
#include "cli/cli.h"
#include "cli/load.h"
#include "cli/term.h"
#include "present/present.h"

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

enum { TEXT_COLUMNS = 200, SENTENCE_COLUMNS = 1000, OUTPUT_MAX = 64 << 20 };

struct page {
    struct term term;
    struct buf out;
    const struct weir_request *request;
    bool has_store;
    const struct rule *spent;       /* a leased rule of which neither this host nor the store has enough; NULL: none */
    const struct rule_limit *limit; /* of it */
    int64_t now_us;
    size_t rules;
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

/* One sentence: ids and values of a request may be text from strangers. */
static void print_sentence(struct page *p, struct buf *text)
{
    term_add(&p->term, &p->out, buf_sv(text), SENTENCE_COLUMNS);
    buf_clear(text);
}

static void print_limit(struct page *p, const struct explained_rule *e, const struct explained_limit *l, struct buf *text)
{
    buf_add(&p->out, SV("      limit "));
    add(p, l->spec->name);
    buf_add(&p->out, SV(": "));
    rule_limit_text(l->spec, &p->out);
    explain_use(e, l, p->request->cost, text);
    buf_printf(&p->out, "\n        %s", l->fits ? "" : term_red(&p->term));
    print_sentence(p, text);
    buf_printf(&p->out, "%s\n", l->fits ? "" : term_plain(&p->term));
    if (e->counting == COUNT_LEASED && e->rule->mode == MODE_ENFORCE && !l->unknown && !l->fits &&
        l->held < p->request->cost && !p->spent) {
        p->spent = e->rule;
        p->limit = l->spec;
    }
}

static void print_applied(struct page *p, const struct explained_rule *e, struct buf *text)
{
    buf_printf(&p->out, "%s applies%s\n", term_plain(&p->term),
               e->rule->mode == MODE_SHADOW ? " in shadow: it counts, but refuses nothing" : "");
    if (e->reading.len > 0) {
        buf_add(&p->out, SV("      for the path as some servers read it: "));
        add(p, e->reading);
        buf_char(&p->out, '\n');
    }
    explain_subject(e, text);
    buf_add(&p->out, SV("      "));
    print_sentence(p, text);
    explain_where(e, p->has_store, text);
    buf_add(&p->out, text->len ? SV("\n      ") : SV(""));
    print_sentence(p, text);
    buf_char(&p->out, '\n');
    for (size_t i = 0; i < e->rule->limit_count; i++)
        print_limit(p, e, &e->limits[i], text);
}

static void print_rule(const struct explained_rule *e, void *data)
{
    struct page *p = data;
    bool applies = e->reason == MATCH_YES;
    struct buf text;
    buf_init(&text, EXPLAIN_TEXT_MAX);
    p->rules++;
    buf_printf(&p->out, "  %s", applies ? term_bold(&p->term) : term_dim(&p->term));
    add(p, e->rule->id);
    if (applies) {
        print_applied(p, e, &text);
    } else {
        explain_reason(e, p->request, &text);
        buf_add(&p->out, SV(" does not apply: "));
        print_sentence(p, &text);
        buf_printf(&p->out, "%s\n", term_plain(&p->term));
    }
    buf_done(&text);
}

static void print_verdict(const struct weir_request *request, const struct weir_verdict *v, void *data)
{
    struct page *p = data;
    bool spent = v->allowed && p->spent; /* looking takes no slice, and so the engine does not know */
    struct buf text;
    buf_init(&text, EXPLAIN_TEXT_MAX);
    if (p->rules == 0)
        buf_add(&p->out, SV("  none\n"));
    buf_char(&p->out, '\n');
    bold(p, "verdict\n");
    if (spent)
        buf_printf(&text, "refused by %.*s, limit %.*s: the store has too little left to lend", SV_FMT(p->spent->id),
                   SV_FMT(p->limit->name));
    else
        explain_verdict(v, &text);
    buf_printf(&p->out, "  %s", v->allowed && !spent ? term_green(&p->term) : term_red(&p->term));
    print_sentence(p, &text);
    buf_printf(&p->out, "%s\n", term_plain(&p->term));
    for (uint32_t i = 0; i < request->shadows->count; i++) {
        buf_add(&p->out, SV("  shadow rule "));
        add(p, weir_str(request->shadows->names[i]));
        buf_add(&p->out, SV(" would have refused it\n"));
    }
    buf_done(&text);
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
