/* weir_status: what a zone does, as JSON or for Prometheus. */
#include "module.h"

/* Text between quotation marks. JSON and Prometheus escape the same characters, except for control characters, which ids
 * and names of zones do not have. */
static void add_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < ' ')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void add_quoted_str(FILE *out, struct weir_str text)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.ptr);
    add_quoted(out, copy);
}

static void add_text_or_null(FILE *out, const char *text)
{
    if (text)
        add_quoted(out, text);
    else
        fputs("null", out);
}

enum { SAMPLE_CELLS = 32768 }; /* 1 MB of the table: the worker does nothing else meanwhile */

/* Gathered once for a report. */
struct facts {
    const struct zone *zone;
    char name[256];
    struct weir_status status;
    struct weir_error problem; /* code 0: none */
    uint64_t totals[OUTCOMES];
    uint64_t used;
    time_t rules_since;
};

static uint64_t load(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

/* Each rule that was counted; NULL at the end. `*i` begins with 0. */
static const struct stats_rule *next_rule(const struct stats *stats, size_t *i)
{
    while (*i < STATS_RULES) {
        const struct stats_rule *rule = &stats->rules[(*i)++];
        if (__atomic_load_n(&rule->named, __ATOMIC_ACQUIRE))
            return rule;
    }
    bool other = (*i)++ == STATS_RULES && __atomic_load_n(&stats->other.named, __ATOMIC_ACQUIRE);
    return other ? &stats->other : NULL;
}

/* A file that the workers may not read is a problem before it changes. */
static void gather_problem(struct facts *facts, const struct zone *zone)
{
    if (weir_rules_error(zone->weir, &facts->problem) != WEIR_OK || access(zone->rules_file, R_OK) == 0)
        return;
    facts->problem.code = WEIR_E_SYSTEM;
    snprintf(facts->problem.text, sizeof facts->problem.text, "%s: the workers may not read it: %s", zone->rules_file,
             strerror(errno));
}

static void gather(struct facts *facts, struct zone *zone)
{
    *facts = (struct facts){ .zone = zone };
    snprintf(facts->name, sizeof facts->name, "%.*s", (int)zone->name.len, zone->name.data);
    weir_status(zone->weir, &facts->status);
    gather_problem(facts, zone);
    facts->used = weir_cells_used(zone->weir, weir_now_us(), SAMPLE_CELLS);
    pthread_mutex_lock(&zone->report_lock);
    facts->rules_since = zone->rules_since;
    pthread_mutex_unlock(&zone->report_lock);
    const struct stats_rule *rule;
    for (size_t i = 0; (rule = next_rule(zone->stats, &i));)
        for (int k = 0; k < OUTCOMES; k++)
            facts->totals[k] += load(&rule->counts[k]);
}

/* ---- JSON ---- */

static unsigned long long number(uint64_t n)
{
    return n;
}

struct hold_sink {
    FILE *out;
    const struct facts *facts;
    bool any;
};

static void add_hold_json(const struct weir_in_flight *in_flight, void *data)
{
    struct hold_sink *sink = data;
    fprintf(sink->out, "%s  {\"rule\": ", sink->any ? ",\n" : "\n");
    add_quoted_str(sink->out, in_flight->rule);
    fprintf(sink->out, ", \"limit\": ");
    add_quoted_str(sink->out, in_flight->limit);
    fprintf(sink->out, ", \"holds\": %llu}", number(in_flight->holds));
    sink->any = true;
}

static void add_rules_json(FILE *out, const struct stats *stats)
{
    const struct stats_rule *rule;
    const char *before = "\n";
    fprintf(out, "\"by_rule\": [");
    for (size_t i = 0; (rule = next_rule(stats, &i)); before = ",\n") {
        fprintf(out, "%s  {\"rule\": ", before);
        add_quoted(out, rule->id);
        for (int k = 0; k < OUTCOMES; k++)
            fprintf(out, ", \"%s\": %llu", outcome_names[k], number(load(&rule->counts[k])));
        fprintf(out, "}");
    }
    fprintf(out, "]}\n");
}

static void write_json(FILE *out, const struct facts *f)
{
    fprintf(out, "{\"zone\": ");
    add_quoted(out, f->name);
    fprintf(out, ", \"version\": \"%s\",\n\"rules\": {\"file\": ", weir_version());
    add_quoted(out, f->zone->rules_file);
    struct tm utc;
    char since[32] = "";
    if (gmtime_r(&f->rules_since, &utc))
        strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fprintf(out, ", \"count\": %llu, \"since\": \"%s\", \"problem\": ", number(f->status.rules), since);
    add_text_or_null(out, f->problem.code == WEIR_OK ? NULL : f->problem.text);
    fprintf(out, "},\n\"table\": {\"file\": ");
    add_text_or_null(out, f->zone->cells_file);
    fprintf(out, ", \"cells\": %llu, \"used\": %llu, \"bytes\": %llu, \"drops\": %llu, \"drops_at_limit\": %llu},\n",
            number(f->status.cells), number(f->used), number(f->status.bytes), number(f->status.drops),
            number(f->status.drops_at_limit));
    fprintf(out,
            "\"decisions\": {\"allowed\": %llu, \"refused\": %llu, \"would_refuse\": %llu, \"no_rule\": %llu, "
            "\"waited\": %llu},\n",
            number(f->totals[OUTCOME_ALLOWED]), number(f->totals[OUTCOME_REFUSED]), number(f->totals[OUTCOME_WOULD_REFUSE]),
            number(load(&f->zone->stats->no_rule)), number(load(&f->zone->stats->waited)));
    fprintf(out, "\"holds\": [");
    weir_each_in_flight(f->zone->weir, weir_now_us(), add_hold_json, &(struct hold_sink){ .out = out });
    fprintf(out, "],\n");
    add_rules_json(out, f->zone->stats);
}

/* ---- Prometheus ---- */

static void metric(FILE *out, const struct facts *f, const char *name, const char *help, uint64_t value)
{
    size_t len = strlen(name), total = strlen("_total");
    bool counts = len > total && strcmp(name + len - total, "_total") == 0;
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s{zone=", name, help, name, counts ? "counter" : "gauge", name);
    add_quoted(out, f->name);
    fprintf(out, "} %llu\n", number(value));
}

static void add_decision(FILE *out, const struct facts *f, const char *rule, int outcome, uint64_t count)
{
    fprintf(out, "weir_decisions_total{zone=");
    add_quoted(out, f->name);
    fprintf(out, ",rule=");
    add_quoted(out, rule);
    fprintf(out, ",outcome=\"%s\"} %llu\n", outcome_names[outcome], number(count));
}

static void add_applied(FILE *out, const struct facts *f, const char *rule, const char *limit, const char *outcome,
                        uint64_t count)
{
    fprintf(out, "weir_rule_applied_total{zone=");
    add_quoted(out, f->name);
    fprintf(out, ",rule=");
    add_quoted(out, rule);
    fprintf(out, ",limit=");
    add_quoted(out, limit);
    fprintf(out, ",outcome=\"%s\"} %llu\n", outcome, number(count));
}

static void add_applied_limit(FILE *out, const struct facts *f, const struct stats_limit *limit)
{
    if (!__atomic_load_n(&limit->named, __ATOMIC_ACQUIRE))
        return;
    add_applied(out, f, limit->rule, limit->name, "refused", load(&limit->refused));
    add_applied(out, f, limit->rule, limit->name, "would_refuse", load(&limit->would_refuse));
}

static void add_all_applied(FILE *out, const struct facts *f)
{
    const struct stats *stats = f->zone->stats;
    const struct stats_rule *rule;
    fprintf(out,
            "# HELP weir_rule_applied_total Requests by rule that applied to them, whatever other rules said, and outcome; "
            "limit: the one that had no room; would_refuse: the same in shadow mode or in a dry run.\n"
            "# TYPE weir_rule_applied_total counter\n");
    for (size_t i = 0; (rule = next_rule(stats, &i));)
        add_applied(out, f, rule->id, "", "passed", load(&rule->passed));
    for (size_t i = 0; i < STATS_LIMITS; i++)
        add_applied_limit(out, f, &stats->limits[i]);
    add_applied_limit(out, f, &stats->other_limit);
    metric(out, f, "weir_requests_without_rule_total", "Requests that no rule applied to, not even one in shadow mode.",
           load(&stats->without_rule));
}

static void add_by_rule(FILE *out, const struct facts *f, const char *name, const char *rule, uint64_t count)
{
    fprintf(out, "%s{zone=", name);
    add_quoted(out, f->name);
    fprintf(out, ",rule=");
    add_quoted(out, rule);
    fprintf(out, "} %llu\n", number(count));
}

/* Most rules have no overdraft: only those that were overdrawn are listed. */
static void add_overdrawn(FILE *out, const struct facts *f)
{
    const struct stats_rule *rule;
    fprintf(out,
            "# HELP weir_overdrawn_total Units that requests were charged beyond max, by rule, of limits with overdraft.\n"
            "# TYPE weir_overdrawn_total counter\n");
    for (size_t i = 0; (rule = next_rule(f->zone->stats, &i));)
        if (load(&rule->overdrawn) > 0)
            add_by_rule(out, f, "weir_overdrawn_total", rule->id, load(&rule->overdrawn));
}

static void add_penalties(FILE *out, const struct facts *f)
{
    const struct stats_rule *rule;
    fprintf(out, "# HELP weir_penalties_total Penalties that began, by rule.\n# TYPE weir_penalties_total counter\n");
    for (size_t i = 0; (rule = next_rule(f->zone->stats, &i));)
        add_by_rule(out, f, "weir_penalties_total", rule->id, load(&rule->penalties));
    fprintf(out,
            "# HELP weir_penalty_refusals_total Requests that a rule refused because of a penalty, whatever its limits "
            "say.\n# TYPE weir_penalty_refusals_total counter\n");
    for (size_t i = 0; (rule = next_rule(f->zone->stats, &i));)
        add_by_rule(out, f, "weir_penalty_refusals_total", rule->id, load(&rule->penalised));
}

static void add_hold(const struct weir_in_flight *in_flight, void *data)
{
    const struct hold_sink *sink = data;
    fprintf(sink->out, "weir_holds{zone=");
    add_quoted(sink->out, sink->facts->name);
    fprintf(sink->out, ",rule=");
    add_quoted_str(sink->out, in_flight->rule);
    fprintf(sink->out, ",limit=");
    add_quoted_str(sink->out, in_flight->limit);
    fprintf(sink->out, "} %llu\n", number(in_flight->holds));
}

static void add_holds(FILE *out, const struct facts *f)
{
    fprintf(
        out,
        "# HELP weir_holds Holds that are not over, by rule and limit; of a limit with concurrent: requests in flight.\n"
        "# TYPE weir_holds gauge\n");
    weir_each_in_flight(f->zone->weir, weir_now_us(), add_hold, &(struct hold_sink){ .out = out, .facts = f });
}

static void write_prometheus(FILE *out, const struct facts *f)
{
    fprintf(out,
            "# HELP weir_decisions_total Decisions by the rule that the verdict names (empty: none applied) and outcome; "
            "would_refuse: in a dry run; shadow: this shadow rule would have refused.\n"
            "# TYPE weir_decisions_total counter\n");
    add_decision(out, f, "", OUTCOME_ALLOWED, load(&f->zone->stats->no_rule));
    const struct stats_rule *rule;
    for (size_t i = 0; (rule = next_rule(f->zone->stats, &i));)
        for (int k = 0; k < OUTCOMES; k++)
            add_decision(out, f, rule->id, k, load(&rule->counts[k]));
    add_all_applied(out, f);
    add_overdrawn(out, f);
    add_penalties(out, f);
    add_holds(out, f);
    metric(out, f, "weir_waits_total", "Decisions that waited for a slice of a leased rule.",
           load(&f->zone->stats->waited));
    metric(out, f, "weir_rules", "Rules in force.", f->status.rules);
    metric(out, f, "weir_rules_bad", "1: the rules file has errors; bad rules keep their last good version.",
           f->problem.code != WEIR_OK);
    metric(out, f, "weir_rules_since_seconds", "When the worker that answers loaded the rules, since 1970.",
           (uint64_t)f->rules_since);
    metric(out, f, "weir_table_cells", "Cells of the table.", f->status.cells);
    metric(out, f, "weir_table_used_cells", "Cells in use; in a large table by a sample.", f->used);
    metric(out, f, "weir_table_bytes", "Size of the table.", f->status.bytes);
    metric(out, f, "weir_table_drops_total", "Live cells dropped for new ones, since the table was created.",
           f->status.drops);
    metric(out, f, "weir_table_drops_at_limit_total", "Dropped cells that were at their limit: the table is too small.",
           f->status.drops_at_limit);
}

/* ---- the handler ---- */

ngx_int_t status_handler(ngx_http_request_t *r)
{
    static const ngx_str_t json = ngx_string("application/json");
    static const ngx_str_t metrics = ngx_string("text/plain; version=0.0.4; charset=utf-8");
    const struct location_conf *location = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    char *text = NULL;
    size_t len = 0;
    struct facts facts;
    ngx_str_t format;
    bool prometheus =
        ngx_http_arg(r, (u_char *)"format", strlen("format"), &format) == NGX_OK && str_is(&format, "prometheus");
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, 0);
    FILE *out = cleanup ? open_memstream(&text, &len) : NULL;
    if (!out)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    gather(&facts, location->status);
    (prometheus ? write_prometheus : write_json)(out, &facts);
    bool whole = !ferror(out);
    whole = fclose(out) == 0 && whole;
    cleanup->handler = free;
    cleanup->data = text;
    return whole ? send_answer(r, NGX_HTTP_OK, prometheus ? metrics : json, (ngx_str_t){ len, (u_char *)text })
                 : NGX_HTTP_INTERNAL_SERVER_ERROR;
}
