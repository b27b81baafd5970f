/* weir_status: what a zone does, as JSON or for Prometheus. */
#include "module.h"

/* Text that grows piece by piece, as a chain of nginx's buffers; after a failure nothing is added. */
struct text {
    ngx_http_request_t *r;
    ngx_chain_t *first, **last;
    ngx_buf_t *buf;
    off_t len;
    bool failed;
};

enum { PIECE_BYTES = 32 * 1024, LINE_MAX_BYTES = 4 * 1024 };

static bool begin_piece(struct text *t)
{
    ngx_chain_t *link = ngx_alloc_chain_link(t->r->pool);
    t->buf = link ? ngx_create_temp_buf(t->r->pool, PIECE_BYTES) : NULL;
    t->failed = !t->buf;
    if (t->failed)
        return false;
    link->buf = t->buf;
    link->next = NULL;
    *t->last = link;
    t->last = &link->next;
    return true;
}

/* At most LINE_MAX_BYTES at a time. */
static __attribute__((format(printf, 2, 3))) void add(struct text *t, const char *format, ...)
{
    if (t->failed || ((!t->buf || t->buf->end - t->buf->last < LINE_MAX_BYTES) && !begin_piece(t)))
        return;
    va_list values;
    va_start(values, format);
    int n = vsnprintf((char *)t->buf->last, LINE_MAX_BYTES, format, values);
    va_end(values);
    t->failed = n < 0 || n >= LINE_MAX_BYTES;
    if (t->failed)
        return;
    t->buf->last += n;
    t->len += n;
}

/* Text between quotation marks. JSON and Prometheus escape the same, but for other control characters, which ids and names
 * of files do not have in the latter. */
static void add_quoted(struct text *t, const char *text)
{
    char quoted[6 * WEIR_ERROR_MAX];
    size_t n = 0;
    for (; *text && n + 7 < LINE_MAX_BYTES; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            n += (size_t)snprintf(quoted + n, 3, "\\%c", c);
        else if (c == '\n')
            n += (size_t)snprintf(quoted + n, 3, "\\n");
        else if (c < ' ')
            n += (size_t)snprintf(quoted + n, 7, "\\u%04x", c);
        else
            quoted[n++] = (char)c;
    }
    quoted[n] = '\0';
    add(t, "\"%s\"", quoted);
}

static void add_text_or_null(struct text *t, const char *text)
{
    if (text)
        add_quoted(t, text);
    else
        add(t, "null");
}

enum { SAMPLE_CELLS = 32768 }; /* 1 MB of the table: the loop waits meanwhile */

/* What is reported, gathered once. */
struct facts {
    const struct zone *zone;
    char name[256];
    struct weir_status status;
    struct weir_error problem; /* code 0: none */
    uint64_t totals[OUTCOMES];
    uint64_t used;
    time_t since;
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

/* A file that could not be read if it changed is a problem before it does. */
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
    facts->since = zone->since;
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

static void add_rules_json(struct text *t, const struct stats *stats)
{
    const struct stats_rule *rule;
    const char *before = "\n";
    add(t, "\"by_rule\": [");
    for (size_t i = 0; (rule = next_rule(stats, &i)); before = ",\n") {
        add(t, "%s  {\"rule\": ", before);
        add_quoted(t, rule->id);
        for (int k = 0; k < OUTCOMES; k++)
            add(t, ", \"%s\": %llu", outcome_names[k], number(load(&rule->counts[k])));
        add(t, "}");
    }
    add(t, "]}\n");
}

static void write_json(struct text *t, const struct facts *f)
{
    add(t, "{\"zone\": ");
    add_quoted(t, f->name);
    add(t, ", \"version\": \"%s\",\n\"rules\": {\"file\": ", weir_version());
    add_quoted(t, f->zone->rules_file);
    struct tm utc;
    char since[32] = "";
    if (gmtime_r(&f->since, &utc))
        strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &utc);
    add(t, ", \"count\": %llu, \"since\": \"%s\", \"problem\": ", number(f->status.rules), since);
    add_text_or_null(t, f->problem.code == WEIR_OK ? NULL : f->problem.text);
    add(t, "},\n\"table\": {\"file\": ");
    add_text_or_null(t, f->zone->cells_file);
    add(t, ", \"cells\": %llu, \"used\": %llu, \"bytes\": %llu, \"drops\": %llu, \"drops_at_limit\": %llu},\n",
        number(f->status.cells), number(f->used), number(f->status.bytes), number(f->status.drops),
        number(f->status.drops_at_limit));
    add(t,
        "\"decisions\": {\"allowed\": %llu, \"refused\": %llu, \"would_refuse\": %llu, \"no_rule\": %llu, "
        "\"waited\": %llu},\n",
        number(f->totals[OUTCOME_ALLOWED]), number(f->totals[OUTCOME_REFUSED]), number(f->totals[OUTCOME_WOULD_REFUSE]),
        number(load(&f->zone->stats->no_rule)), number(load(&f->zone->stats->waited)));
    add_rules_json(t, f->zone->stats);
}

/* ---- Prometheus ---- */

static void metric(struct text *t, const struct facts *f, const char *name, const char *help, uint64_t value)
{
    size_t len = strlen(name), total = strlen("_total");
    bool counts = len > total && strcmp(name + len - total, "_total") == 0;
    add(t, "# HELP %s %s\n# TYPE %s %s\n%s{zone=", name, help, name, counts ? "counter" : "gauge", name);
    add_quoted(t, f->name);
    add(t, "} %llu\n", number(value));
}

static void add_decision(struct text *t, const struct facts *f, const char *rule, int outcome, uint64_t count)
{
    add(t, "weir_decisions_total{zone=");
    add_quoted(t, f->name);
    add(t, ",rule=");
    add_quoted(t, rule);
    add(t, ",outcome=\"%s\"} %llu\n", outcome_names[outcome], number(count));
}

static void write_prometheus(struct text *t, const struct facts *f)
{
    add(t, "# HELP weir_decisions_total Decisions by the rule that the verdict names (empty: none applied) and outcome; "
           "would_refuse: in a dry run; shadow: this shadow rule would have refused.\n"
           "# TYPE weir_decisions_total counter\n");
    add_decision(t, f, "", OUTCOME_ALLOWED, load(&f->zone->stats->no_rule));
    const struct stats_rule *rule;
    for (size_t i = 0; (rule = next_rule(f->zone->stats, &i));)
        for (int k = 0; k < OUTCOMES; k++)
            add_decision(t, f, rule->id, k, load(&rule->counts[k]));
    metric(t, f, "weir_waits_total", "Decisions that waited for a slice of a leased rule.", load(&f->zone->stats->waited));
    metric(t, f, "weir_rules", "Rules in force.", f->status.rules);
    metric(t, f, "weir_rules_bad", "1: the rules file has mistakes, and what is bad stays as it was.",
           f->problem.code != WEIR_OK);
    metric(t, f, "weir_rules_since_seconds", "When they were taken over by the worker that answers, since 1970.",
           (uint64_t)f->since);
    metric(t, f, "weir_table_cells", "Cells of the table.", f->status.cells);
    metric(t, f, "weir_table_used_cells", "Cells in use; in a large table by a sample.", f->used);
    metric(t, f, "weir_table_bytes", "Size of the table.", f->status.bytes);
    metric(t, f, "weir_table_drops_total", "Live cells dropped for a newcomer, since the table was made.", f->status.drops);
    metric(t, f, "weir_table_drops_at_limit_total", "Those of them that were at their limit: the table is too small.",
           f->status.drops_at_limit);
}

/* ---- the handler ---- */

static bool wants_prometheus(ngx_http_request_t *r)
{
    ngx_str_t format;
    return ngx_http_arg(r, (u_char *)"format", strlen("format"), &format) == NGX_OK && format.len == strlen("prometheus") &&
           ngx_strncmp(format.data, "prometheus", format.len) == 0;
}

ngx_int_t status_handler(ngx_http_request_t *r)
{
    const struct place *place = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    struct facts facts;
    struct text text = { .r = r, .last = &text.first };
    bool prometheus = wants_prometheus(r);
    gather(&facts, place->status);
    (prometheus ? write_prometheus : write_json)(&text, &facts);
    if (text.failed)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    text.buf->last_buf = r == r->main;
    text.buf->last_in_chain = 1;
    r->headers_out.content_type = prometheus ? (ngx_str_t)ngx_string("text/plain; version=0.0.4; charset=utf-8")
                                             : (ngx_str_t)ngx_string("application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = text.len;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    return ngx_http_output_filter(r, text.first);
}
