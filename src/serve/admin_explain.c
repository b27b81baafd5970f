/* Why a request would pass or not, and setting one subject free: both ask the engine alone. */
#include "base/clock.h"
#include "base/err.h"
#include "base/instant.h"
#include "engine/explain.h"
#include "engine/weir.h"
#include "serve/admin.h"
#include "serve/log.h"

enum { HEADERS_MAX = 64, VERDICT_MAX = 8192 };

/* ---- the request ---- */

struct asked {
    struct weir_request request;
    struct weir_header headers[HEADERS_MAX];
};

static bool read_headers(struct http_call *call, struct asked *asked)
{
    sv text;
    for (unsigned i = 0; (text = http_parameter(call, "header", i)).ptr; i++) {
        bool colon = memchr(text.ptr, ':', text.len);
        sv name = sv_cut(&text, ':');
        if (i == HEADERS_MAX || !colon || sv_trim(name).len == 0) {
            http_error(call, 400, "such as header=X-Plan:free", "the parameter `header` is Name:value, at most %d times",
                       HEADERS_MAX);
            return false;
        }
        asked->headers[i] = (struct weir_header){ sv_trim(name), text };
        asked->request.header_count = i + 1;
    }
    asked->request.headers = asked->headers;
    return true;
}

/* One that cannot be read would quietly keep every rule by ip from applying. */
static bool is_address(struct http_call *call, const char *name, sv text)
{
    struct ip ip;
    if (text.len == 0 || ip_parse_hop(text, &ip))
        return true;
    http_error(call, 400,
               "a whole X-Forwarded-For belongs into `header` (header=X-Forwarded-For:…), with `peer`, who has sent it",
               "the parameter `%s` must be one IPv4 or IPv6 address, and `%.*s` is none", name,
               text.len < 200 ? (int)text.len : 200, text.ptr);
    return false;
}

static bool read_request(struct http_call *call, struct asked *asked)
{
    static const char *const names[] = { "method", "path", "host", "ip",     "peer", "user",
                                         "event",  "key",  "cost", "header", NULL };
    struct weir_request *r = &asked->request;
    struct weir_str *const fields[] = { &r->method, &r->path, &r->host, &r->ip, &r->peer, &r->user, &r->event, &r->key };
    uint64_t cost;
    if (!admin_knows(call, names) || !admin_number(call, "cost", 0, UINT32_MAX, 1, &cost))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = http_parameter(call, names[i], 0);
    r->cost = (uint32_t)cost;
    return is_address(call, "ip", r->ip) && is_address(call, "peer", r->peer) && read_headers(call, asked);
}

/* ---- the explanation ---- */

struct page {
    struct buf out;
    const struct weir_request *request;
    int64_t now_us;
    size_t rules;
};

/* ,"name":"text", or null where there is none. */
static void add_or_null(struct buf *out, const char *name, sv text)
{
    if (text.len > 0)
        admin_add_field(out, name, text);
    else
        buf_printf(out, ",\"%s\":null", name);
}

static void add_ms(struct buf *out, const char *name, int64_t us)
{
    if (us < 0)
        buf_printf(out, ",\"%s\":null", name);
    else
        buf_printf(out, ",\"%s\":%lld", name, (long long)((us + US_PER_MS - 1) / US_PER_MS));
}

/* The path as it may be read, the first as in `path`. */
static void add_readings(struct facts *facts, struct buf *out)
{
    buf_add(out, SV(",\"readings\":["));
    for (size_t i = 0; i < facts_readings(facts); i++) {
        facts_use(facts, i);
        buf_add(out, i ? SV(",") : SV(""));
        buf_json(out, facts_path(facts));
    }
    facts_use(facts, 0);
    buf_char(out, ']');
}

static void add_request(struct facts *facts, void *data)
{
    struct page *p = data;
    const struct ip *ip = facts_ip(facts);
    char text[INSTANT_TEXT_MAX], address[IP_TEXT_MAX];
    instant_text(p->now_us, text);
    buf_add(&p->out, SV("{\"request\":{\"time\":"));
    buf_json(&p->out, weir_str(text));
    add_or_null(&p->out, "method", facts_method(facts));
    add_or_null(&p->out, "path", facts_path(facts));
    add_or_null(&p->out, "route", facts_route(facts));
    add_readings(facts, &p->out);
    add_or_null(&p->out, "host", facts_host(facts));
    add_or_null(&p->out, "client", ip ? sv_of(address, ip_text(ip, address)) : SV(""));
    add_or_null(&p->out, "counted_as", ip ? facts_ip_text(facts) : SV(""));
    add_or_null(&p->out, "user", facts->user);
    add_or_null(&p->out, "event", facts->event);
    add_or_null(&p->out, "key", facts->key);
    buf_printf(&p->out, ",\"cost\":%u},\"rules\":[", p->request->cost);
}

static const char *reason_name(enum match_reason reason)
{
    static const char *const names[] = {
        [MATCH_YES] = "applies",
        [MATCH_OFF] = "off",
        [MATCH_EXPIRED] = "expired",
        [MATCH_EVENT] = "event",
        [MATCH_METHOD] = "method",
        [MATCH_HOST] = "host",
        [MATCH_PATH] = "path",
        [MATCH_HEADER] = "header",
        [MATCH_EXCEPT_IP] = "except_ip",
        [MATCH_EXCEPT_USER] = "except_user",
        [MATCH_NO_ATTRIBUTE] = "missing",
        [MATCH_REPEATED] = "repeated_header",
    };
    return names[reason];
}

static void add_by(const struct explained_rule *e, struct buf *out)
{
    for (size_t i = 0; i < e->rule->by_count; i++) {
        const struct rule_by *by = &e->rule->by[i];
        char name[RULE_NAME_MAX + 10];
        bool header = by->attribute == ATTR_HEADER;
        snprintf(name, sizeof name, "%s%s%.*s", attribute_name(by->attribute), header ? ":" : "",
                 header ? (int)by->header.len : 0, header ? by->header.ptr : "");
        buf_printf(out, "%s{\"name\":", i ? "," : "");
        buf_json(out, weir_str(name));
        admin_add_field(out, "value", e->by[i]);
        buf_char(out, '}');
    }
}

static void add_limit(const struct explained_limit *l, struct buf *out)
{
    char end[INSTANT_TEXT_MAX] = "";
    struct buf text;
    buf_init(&text, 1000);
    rule_limit_text(l->spec, &text);
    if (l->spec->algorithm == LIMIT_CALENDAR && clock_valid(l->window.end_us))
        instant_text(l->window.end_us, end);
    buf_add(out, SV("{\"name\":"));
    buf_json(out, l->spec->name);
    admin_add_field(out, "text", buf_sv(&text));
    admin_add_field(out, "algorithm", weir_str(algorithm_name(l->spec->algorithm)));
    buf_printf(out, ",\"max\":%u,\"used\":%u,\"remaining\":%u,\"fits\":%s", l->limit.capacity,
               l->limit.capacity - l->report.remaining, l->report.remaining, l->fits ? "true" : "false");
    add_ms(out, "reset_ms", l->report.reset_us);
    add_ms(out, "retry_after_ms", l->fits ? 0 : l->report.retry_after_us);
    add_or_null(out, "window_ends", weir_str(end));
    buf_printf(out, ",\"known\":%s,\"held\":%u}", l->unknown ? "false" : "true", l->held);
    buf_done(&text);
}

static void add_text(const struct explained_rule *e, struct page *p)
{
    struct buf text;
    buf_init(&text, EXPLAIN_REASON_MAX);
    explain_reason(e, p->request, &text);
    add_or_null(&p->out, "text", buf_sv(&text));
    buf_done(&text);
}

static void add_rule(const struct explained_rule *e, void *data)
{
    static const char *const counters[] = {
        [COUNTER_CELL] = "local", [COUNTER_SLICE] = "leased", [COUNTER_STORE] = "shared"
    };
    struct page *p = data;
    bool applies = e->reason == MATCH_YES;
    buf_add(&p->out, p->rules++ ? SV(",\n{\"id\":") : SV("\n{\"id\":"));
    buf_json(&p->out, e->rule->id);
    admin_add_field(&p->out, "mode", weir_str(rule_mode_name(e->rule->mode)));
    admin_add_field(&p->out, "counters", weir_str(counters[e->counting]));
    buf_printf(&p->out, ",\"applies\":%s", applies ? "true" : "false");
    admin_add_field(&p->out, "reason", weir_str(reason_name(e->reason)));
    add_or_null(&p->out, "detail", e->detail);
    add_text(e, p);
    add_or_null(&p->out, "reading", e->reading);
    buf_add(&p->out, SV(",\"by\":["));
    if (applies)
        add_by(e, &p->out);
    buf_add(&p->out, SV("],\"limits\":["));
    for (size_t i = 0; applies && i < e->rule->limit_count; i++) {
        buf_printf(&p->out, "%s", i ? "," : "");
        add_limit(&e->limits[i], &p->out);
    }
    buf_add(&p->out, SV("]}"));
}

static void add_verdict(const struct weir_verdict *verdict, void *data)
{
    struct page *p = data;
    char text[VERDICT_MAX];
    size_t len = weir_verdict_json(verdict, text, sizeof text);
    buf_add(&p->out, SV("],\n\"verdict\":"));
    buf_add(&p->out, sv_of(text, len));
    buf_add(&p->out, SV("}\n"));
    p->out.failed = p->out.failed || len >= sizeof text;
}

void admin_explain(struct http_call *call, struct server *server, sv id)
{
    static const struct explain_sink sink = { add_request, add_rule, add_verdict };
    struct asked asked = { 0 };
    (void)id;
    if (!read_request(call, &asked))
        return;
    struct page page = { .request = &asked.request, .now_us = loop_now_us(call->loop) };
    buf_init(&page.out, ADMIN_BODY_MAX);
    int r = weir_explain(server->weir, &asked.request, page.now_us, &sink, &page);
    if (r < 0)
        http_error(call, 503, NULL, "the request cannot be judged: %s", err_text((enum weir_code)r));
    else
        admin_answer(call, 200, &page.out);
    buf_done(&page.out);
}

/* ---- subjects ---- */

int set_free(struct server *server, const struct set_free *whom, int64_t now_us, struct weir_error *error)
{
    struct weir_forgotten forgotten;
    int r = weir_forget(server->weir, whom->rule, whom->values, whom->count, now_us, &forgotten, error);
    if (r < 0)
        return r;
    if (!forgotten.counted) {
        err_set(error, WEIR_E_INVALID, "rule %s has no count for this subject", whom->rule);
        return 1;
    }
    log_freed(&forgotten.subject, whom->author, whom->from);
    return 0;
}

void admin_reset(struct http_call *call, struct server *server, sv id)
{
    static const char *const names[] = { "rule", "by", NULL };
    struct weir_str by[RULE_BY_MAX];
    struct weir_error error;
    size_t count = 0;
    (void)id;
    if (!admin_knows(call, names))
        return;
    sv rule = http_parameter(call, "rule", 0), value;
    while ((value = http_parameter(call, "by", (unsigned)count)).ptr && count < RULE_BY_MAX)
        by[count++] = value;
    if (rule.len == 0 || rule.len > WEIR_ID_MAX || memchr(rule.ptr, 0, rule.len) || value.ptr) {
        http_error(call, 400, "DELETE /v1/subjects?rule=ID&by=VALUE&by=VALUE",
                   "which rule and subject? `by` has each value that the rule counts by, in its order");
        return;
    }
    char rule_id[WEIR_ID_MAX + 1] = "";
    memcpy(rule_id, rule.ptr, rule.len);
    struct set_free whom = { rule_id, by, count, admin_author(call), conn_from(call->conn) };
    int r = set_free(server, &whom, loop_now_us(call->loop), &error);
    if (r == 0)
        http_answer(call, &(struct http_answer){ .status = 204 });
    else
        http_error(call,
                   r == 1 || r == WEIR_E_UNKNOWN_RULE ? 404
                   : r == WEIR_E_INVALID              ? 400
                                                      : 503,
                   NULL, "%s", error.text);
}
