/* An explanation as JSON, for programs: GET /v1/explain. */
#include "base/instant.h"

#include "present/present.h"
#include <inttypes.h>

struct output {
    struct buf *out;
    const struct weir_request *request;
    enum explain_which which;
    int64_t now_us;
    size_t rules, left_out, uncounted;
    struct penalty_cause penalty;
    sv last_plan; /* of a subject */
};

/* Adds ,"name":"text", or null if the text is empty. */
static void add_text(struct buf *out, const char *name, sv text)
{
    buf_printf(out, ",\"%s\":", name);
    if (text.len > 0)
        buf_json(out, text);
    else
        buf_add(out, SV("null"));
}

static void add_ms(struct buf *out, const char *name, int64_t us)
{
    if (us < 0)
        buf_printf(out, ",\"%s\":null", name);
    else
        buf_printf(out, ",\"%s\":%lld", name, (long long)((us + US_PER_MS - 1) / US_PER_MS));
}

/* All readings of the path; `path` is the first. */
static void add_readings(struct facts *facts, struct buf *out)
{
    buf_add(out, SV(",\"readings\":["));
    for (size_t i = 0; i < facts_readings(facts); i++) {
        facts_select_reading(facts, i);
        buf_add(out, i ? SV(",") : SV(""));
        buf_json(out, facts_path(facts));
    }
    facts_select_reading(facts, 0);
    buf_char(out, ']');
}

static void add_client(struct facts *facts, struct buf *out)
{
    const struct ip *ip = facts_ip(facts);
    char address[IP_TEXT_MAX];
    add_text(out, "client", ip ? sv_of(address, ip_text(ip, address)) : SV(""));
    add_text(out, "counted_as", ip ? facts_ip_text(facts) : SV(""));
}

/* Writes the descriptor as a request has it in its body. Writes nothing if the request has no descriptor. */
static void add_descriptor(const struct weir_request *request, struct buf *out)
{
    for (size_t i = 0; i < request->descriptor_count; i++) {
        buf_add(out, i ? SV(",{\"key\":") : SV(",\"descriptor\":[{\"key\":"));
        buf_json(out, request->descriptor[i].name);
        buf_add(out, SV(",\"value\":"));
        buf_json(out, request->descriptor[i].value);
        buf_char(out, '}');
    }
    if (request->descriptor_count > 0)
        buf_char(out, ']');
}

static void add_request(struct facts *facts, void *data)
{
    struct output *p = data;
    char text[INSTANT_TEXT_MAX];
    instant_text(p->now_us, text);
    buf_add(p->out, SV("{\"request\":{\"time\":"));
    buf_json(p->out, weir_str(text));
    for (enum attribute i = 0; i < REQUEST_ATTRIBUTE_COUNT; i++) {
        if (i == ATTR_IP)
            add_client(facts, p->out);
        else if (attribute_table[i].uses & (IN_MATCH | IN_BY))
            add_text(p->out, attribute_table[i].name.ptr, facts_text(facts, i));
        if (i == ATTR_PATH) {
            add_text(p->out, "route", facts_route(facts));
            add_readings(facts, p->out);
        }
    }
    add_descriptor(p->request, p->out);
    buf_printf(p->out, ",\"cost\":%" PRIu64, p->request->cost);
    for (size_t i = 0; i < p->request->cost_count; i++) {
        const struct weir_cost *cost = &p->request->costs[i];
        buf_add(p->out, i ? SV(",") : SV(",\"costs\":{"));
        buf_json(p->out, cost->unit);
        buf_printf(p->out, ":%" PRIu64, cost->amount);
    }
    buf_add(p->out, p->request->cost_count ? SV("}},\"rules\":[") : SV("},\"rules\":["));
}

static const char *reason_name(enum match_reason reason)
{
    static const char *const names[] = {
        [MATCH_YES] = "applies",
        [MATCH_OFF] = "off",
        [MATCH_EXPIRED] = "expired",
        [MATCH_EXCEPT_IP] = "except_ip",
        [MATCH_EXCEPT_USER] = "except_user",
        [MATCH_NO_ATTRIBUTE] = "missing",
        [MATCH_REPEATED] = "repeated_header",
        [MATCH_REPLACED] = "replaced",
        [MATCH_NO_LIMIT] = "no_limit",
    };
    return reason >= MATCH_UNEQUAL ? attribute_table[reason - MATCH_UNEQUAL].name.ptr : names[reason];
}

static void add_by(const struct explained_rule *e, struct buf *out)
{
    for (size_t i = 0; i < e->rule->kind->by_count; i++) {
        CLEANUP(buf_done) struct buf name;
        buf_init(&name, RULE_BY_TEXT_MAX);
        rule_by_text(&e->rule->kind->by[i], &name);
        buf_printf(out, "%s{\"name\":", i ? "," : "");
        buf_json(out, buf_sv(&name));
        if (fact_is_there(&e->rule->kind->by[i], e->by[i])) {
            buf_add(out, SV(",\"value\":"));
            buf_json(out, e->by[i]);
        } else {
            buf_add(out, SV(",\"value\":null"));
        }
        buf_char(out, '}');
    }
}

/* The holds of a bucket come back with time like everything that it has used. */
static void add_on_hold(const struct explained_limit *l, uint64_t used, struct buf *out)
{
    if (l->holds_known)
        buf_printf(out, ",\"on_hold\":%" PRIu64, l->on_hold < used ? l->on_hold : used);
    else
        buf_add(out, SV(",\"on_hold\":null"));
}

static void add_limit(const struct explained_limit *l, struct buf *out)
{
    uint64_t used = l->limit.capacity - l->report.remaining;
    char end[INSTANT_TEXT_MAX] = "";
    struct buf text;
    buf_init(&text, 1000);
    rule_limit_text(l->spec, &text);
    if (l->spec->algorithm == LIMIT_CALENDAR && clock_valid(l->window.end_us))
        instant_text(l->window.end_us, end);
    buf_add(out, SV("{\"name\":"));
    buf_json(out, l->spec->name);
    add_text(out, "text", buf_sv(&text));
    add_text(out, "algorithm", weir_str(algorithm_names[l->spec->algorithm]));
    if (l->spec->cost_unit.len > 0)
        add_text(out, "unit", l->spec->cost_unit);
    buf_printf(out, ",\"max\":%" PRIu64 ",\"used\":%" PRIu64 ",\"remaining\":%" PRIu64 ",\"fits\":%s", l->limit.capacity,
               used, l->report.remaining, l->fits ? "true" : "false");
    if (l->report.debt > 0)
        buf_printf(out, ",\"debt\":%" PRIu64, l->report.debt);
    add_ms(out, "reset_ms", l->report.reset_us);
    add_ms(out, "retry_after_ms", l->fits ? 0 : l->report.retry_after_us);
    add_text(out, "window_ends", weir_str(end));
    add_ms(out, "lasts_ms", l->lasts_us);
    add_on_hold(l, used, out);
    buf_printf(out, ",\"known\":%s,\"held\":%u}", l->unknown ? "false" : "true", l->held);
    buf_done(&text);
}

/* Adds the plan that was chosen and the override that is in force, null for none. */
static void add_choice(const struct explained_rule *e, struct buf *out)
{
    static const char *const kinds[] = {
        [OVERRIDE_LIMITS] = "limits", [OVERRIDE_DENY] = "deny", [OVERRIDE_UNLIMITED] = "unlimited"
    };
    const struct rule_override *o = e->override;
    char expires[INSTANT_TEXT_MAX] = "";
    add_text(out, "plan", e->plan ? e->plan->name : (sv){ 0 });
    if (!o) {
        buf_add(out, SV(",\"override\":null"));
        return;
    }
    if (o->expires_us != RULE_NEVER_EXPIRES)
        instant_text(o->expires_us, expires);
    buf_printf(out, ",\"override\":{\"kind\":\"%s\"", kinds[o->kind]);
    add_text(out, "expires", weir_str(expires));
    add_text(out, "why", o->why);
    buf_char(out, '}');
}

/* Only of a rule that has penalties. */
static void add_penalty(const struct explained_rule *e, int64_t now_us, struct buf *out)
{
    char until[INSTANT_TEXT_MAX] = "";
    if (e->rule->kind->rest->penalty.after == 0)
        return;
    if (e->penalty.rest_us > 0)
        instant_text(clock_within(now_us + e->penalty.rest_us) / US_PER_MS * US_PER_MS, until);
    buf_printf(out, ",\"penalty\":{\"penalised\":%s", e->penalty.rest_us > 0 ? "true" : "false");
    add_text(out, "until", weir_str(until));
    add_ms(out, "rest_ms", e->penalty.rest_us);
    buf_printf(out, ",\"level\":%u,\"refused\":%u,\"after\":%u", e->penalty.level, e->penalty.refused,
               e->rule->kind->rest->penalty.after);
    add_ms(out, "within_ms", e->rule->kind->rest->penalty.within_us);
    buf_printf(out, ",\"by_hand\":%s}", e->penalty.by_hand ? "true" : "false");
}

static void add_reason(const struct explained_rule *e, struct output *p)
{
    struct buf text;
    buf_init(&text, EXPLAIN_TEXT_MAX);
    explain_reason(e, p->request, &text);
    add_text(p->out, "text", buf_sv(&text));
    buf_done(&text);
}

/* Adds ,"mode":… and where it counts. */
static void add_kind(const struct explained_rule *e, struct buf *out)
{
    static const char *const counters[] = {
        [COUNTER_CELL] = "local", [COUNTER_SLICE] = "leased", [COUNTER_STORE] = "shared"
    };
    add_text(out, "mode", weir_str(mode_names[e->rule->kind->mode]));
    add_text(out, "counters", weir_str(counters[e->counting]));
}

static void add_limits(const struct explained_rule *e, struct buf *out)
{
    buf_add(out, SV(",\"limits\":["));
    for (size_t i = 0; e->reason == MATCH_YES && i < e->limit_count; i++) {
        buf_add(out, i ? SV(",") : SV(""));
        add_limit(&e->limits[i], out);
    }
    buf_char(out, ']');
}

static void add_rule(const struct explained_rule *e, void *data)
{
    struct output *p = data;
    bool applies = e->reason == MATCH_YES;
    explain_note_penalty(e, &p->penalty);
    if (!applies && p->which == EXPLAIN_APPLYING) {
        p->left_out++;
        return;
    }
    buf_add(p->out, p->rules++ ? SV(",\n{\"id\":") : SV("\n{\"id\":"));
    buf_json(p->out, e->rule->id);
    add_kind(e, p->out);
    buf_printf(p->out, ",\"applies\":%s", applies ? "true" : "false");
    add_text(p->out, "reason", weir_str(reason_name(e->reason)));
    add_text(p->out, "detail", e->detail);
    add_reason(e, p);
    add_text(p->out, "reading", e->reading);
    buf_add(p->out, SV(",\"by\":["));
    if (applies)
        add_by(e, p->out);
    buf_char(p->out, ']');
    add_choice(e, p->out);
    add_penalty(e, p->now_us, p->out);
    add_limits(e, p->out);
    buf_char(p->out, '}');
}

static void add_uncounted(sv unit, void *data)
{
    struct output *p = data;
    buf_add(p->out, p->uncounted++ ? SV(",") : SV("],\n\"uncounted\":["));
    buf_json(p->out, unit);
}

static void add_verdict(const struct weir_request *request, const struct weir_verdict *verdict, void *data)
{
    struct output *p = data;
    buf_char(p->out, ']');
    if (p->which == EXPLAIN_APPLYING)
        buf_printf(p->out, ",\n\"not_applied\":%zu", p->left_out);
    buf_add(p->out, SV(",\n\"verdict\":"));
    verdict_json(request, verdict, p->out);
    struct buf text;
    buf_init(&text, EXPLAIN_TEXT_MAX);
    explain_verdict(verdict, &p->penalty, p->now_us, &text);
    add_text(p->out, "text", buf_sv(&text));
    p->out->failed = p->out->failed || text.failed;
    buf_done(&text);
    buf_add(p->out, SV("}\n"));
}

int explain_json(struct weir *weir, const struct weir_request *request, enum explain_which which, int64_t now_us,
                 struct buf *out)
{
    static const struct explain_sink sink = { add_request, add_rule, add_verdict, add_uncounted };
    struct output p = { .out = out, .request = request, .which = which, .now_us = now_us };
    return weir_explain(weir, request, now_us, &sink, &p);
}

/* ---- one subject ---- */

static void add_subject(const struct explained_rule *e, void *data)
{
    struct output *p = data;
    char time[INSTANT_TEXT_MAX];
    struct buf subject;
    instant_text(p->now_us, time);
    buf_init(&subject, EXPLAIN_TEXT_MAX);
    override_subject_text(e->by, e->rule->kind->by_count, &subject);
    buf_add(p->out, SV("{\"rule\":"));
    buf_json(p->out, e->rule->id);
    add_text(p->out, "time", weir_str(time));
    add_kind(e, p->out);
    buf_add(p->out, SV(",\"by\":["));
    add_by(e, p->out);
    buf_char(p->out, ']');
    add_text(p->out, "subject", buf_sv(&subject));
    buf_add(p->out, SV(",\"plans\":["));
    for (size_t i = 0; i < e->rule->kind->rest->plan_count; i++) {
        buf_add(p->out, i ? SV(",") : SV(""));
        buf_json(p->out, e->rule->kind->rest->plans[i].name);
    }
    buf_char(p->out, ']');
    add_choice(e, p->out);
    add_text(p->out, "last_plan", p->last_plan);
    add_penalty(e, p->now_us, p->out);
    add_limits(e, p->out);
    buf_add(p->out, SV("}\n"));
    p->out->failed = p->out->failed || subject.failed;
    buf_done(&subject);
}

int subject_json(struct weir *weir, const struct subject_question *question, int64_t now_us, struct buf *out,
                 struct weir_error *error)
{
    struct output p = { .out = out, .now_us = now_us, .last_plan = question->last_plan };
    return weir_explain_subject(weir, question, now_us, add_subject, &p, error);
}
