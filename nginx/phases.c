/* The handlers of nginx's phases: each zone of a location decides once about a request. */
#include "module.h"

/* ---- after a decision ---- */

static ngx_str_t keep(ngx_http_request_t *r, const char *text)
{
    ngx_str_t copy = { strlen(text), NULL };
    copy.data = copy.len ? ngx_pnalloc(r->pool, copy.len) : NULL;
    if (!copy.data)
        return (ngx_str_t)ngx_null_string;
    memcpy(copy.data, text, copy.len);
    return copy;
}

static ngx_str_t keep_shadows(ngx_http_request_t *r, const struct weir_shadows *shadows)
{
    char list[WEIR_SHADOW_MAX * (WEIR_ID_MAX + 1) + 1] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < shadows->count; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i ? "," : "", shadows->names[i]);
    return keep(r, list);
}

/* If several zones decide, the last one to which a rule applied counts, unless it allows what an earlier one would refuse.
 */
static void remember(ngx_http_request_t *r, struct request_state *state, unsigned variables, const struct weir_verdict *v,
                     const struct weir_shadows *shadows, enum outcome outcome)
{
    if (shadows->count && variables & 1U << VAR_SHADOW)
        state->shadow = keep_shadows(r, shadows);
    if (state->applied && v->allowed && (!v->applied || state->outcome == OUTCOME_WOULD_REFUSE))
        return;
    state->outcome = outcome;
    state->applied = v->applied || !v->allowed;
    state->named = v->rule[0] != '\0';
    if (variables & 1U << VAR_RULE)
        state->rule = keep(r, v->rule);
    if (variables & 1U << VAR_LIMIT)
        state->limit = keep(r, v->applied ? v->limit : "");
    state->remaining = v->remaining;
    state->penalty = v->penalty;
    state->retry_after_s = v->retry_after_ms > 0 ? (v->retry_after_ms + 999) / 1000 : v->retry_after_ms;
}

static void log_refusal(ngx_http_request_t *r, struct zone *zone, const struct weir_request *request,
                        const struct weir_verdict *v, bool dry_run)
{
    ngx_log_t *log = r->connection->log;
    if (log->log_level < NGX_LOG_ERR || !may_log(&zone->refusals))
        return;
    char whom[512] = "", wait[64] = "", left_out_text[64] = "", trace[128] = "";
    weir_subject_text(zone->weir, request, v, whom, sizeof whom);
    if (v->retry_after_ms > 0)
        snprintf(wait, sizeof wait, ", retry after %lld s", (long long)request_state_find(r)->retry_after_s);
    write_left_out(&zone->refusals, left_out_text, sizeof left_out_text);
    write_trace(r, trace, sizeof trace);
    /* nginx would add what it did last, which may be a subrequest. */
    char *action = log->action;
    log->action = NULL;
    const char *what = dry_run ? "would be refused" : "refused";
    if (v->applied) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s by rule \"%s\", limit \"%s\"%s%s%s%s, zone \"%V\"%s%s", what, v->rule,
                      v->limit, *whom ? " for " : "", whom, v->penalty ? ", because of a penalty" : "", wait, &zone->name,
                      trace, left_out_text);
    } else if (v->status == WEIR_BAD_REQUEST) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "weir: %s, because the client repeats the header \"%s\" with different values, zone \"%V\"%s%s", what,
                      v->limit, &zone->name, trace, left_out_text);
    } else {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s, because weir could not decide about it, zone \"%V\"%s%s", what,
                      &zone->name, trace, left_out_text);
    }
    log->action = action;
}

/* ---- time ---- */

/* nginx reads its own clock once for each turn of its loop, in milliseconds, and a turn may take longer than a short period
 * lasts. Reading the exact one for each decision takes longer than to decide. So a reading serves a few decisions of a
 * turn. */
static int64_t now_us(void)
{
    enum { USES = 8 };
    static int64_t read_us;
    static ngx_msec_t turn_ms;
    static unsigned uses;
    if (uses == 0 || turn_ms != ngx_current_msec) {
        read_us = weir_now_us();
        turn_ms = ngx_current_msec;
        uses = USES;
    }
    uses--;
    return read_us;
}

/* ---- waiting ---- */

/* A leased rule that finds no slice asks for one through the cells file. The process that fetches slices does not notify
 * anybody, so the request looks again until there is a slice, or this time has passed. */
enum { SLICE_WAIT_MS = 20, LOOK_AGAIN_MS = 1 };

/* When the wait ends. Measured by the monotonic clock, because the wall clock may be set while a request waits. */
static int64_t until_us(const struct request_state *state, int64_t now_us)
{
    ngx_msec_int_t left_ms = SLICE_WAIT_MS;
    if (state->waits)
        left_ms = (ngx_msec_int_t)(state->wait_end_ms - ngx_current_msec);
    return now_us + ngx_max(left_ms, 0) * 1000;
}

/* Called for each event of the connection; `delayed` is set until the timer has expired. */
static void look_again(ngx_http_request_t *r)
{
    ngx_event_t *read = r->connection->read, *write = r->connection->write;
    bool early = write->delayed;
    if ((early ? ngx_handle_write_event(write, 0) : ngx_handle_read_event(read, 0)) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    } else if (!early) {
        r->read_event_handler = ngx_http_block_reading;
        r->write_event_handler = ngx_http_core_run_phases;
        ngx_http_core_run_phases(r);
    }
}

/* Nothing is written meanwhile, so the timer of the connection's write event is free; it ends with the connection or the
 * stream. If the client closes the connection meanwhile, the request ends and is not charged. */
static ngx_int_t wait_for_slice(ngx_http_request_t *r, struct request_state *state, struct zone *zone)
{
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (!state->waits) {
        state->waits = true;
        state->wait_end_ms = ngx_current_msec + SLICE_WAIT_MS;
        stats_count_wait(zone->stats);
    }
    state->zones &= ~(UINT64_C(1) << zone->bit);
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = look_again;
    r->connection->write->delayed = 1;
    ngx_add_timer(r->connection->write, LOOK_AGAIN_MS);
    return NGX_AGAIN;
}

/* ---- the body ---- */

/* The cost depends on the body, and nginx cannot tell it before it has read the body. If the request has a Content-Length,
 * that is its length: nginx ensures it. A chunked body has none, and a body over HTTP/2 may have none. A body that nginx
 * discards, as it does before it redirects to an error page, must not be read: nginx would call us again at once, for ever.
 */
static bool needs_body(const ngx_http_request_t *r, const struct directive *directive)
{
    if (directive->body == BODY_UNUSED || r->request_body || r->discard_body)
        return false;
    off_t length = r->headers_in.content_length_n;
    return (length < 0 && r->headers_in.chunked) || (length > 0 && directive->body == BODY_RECEIVED);
}

static void body_was_read(ngx_http_request_t *r)
{
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

/* The handler of the phase is called again when the body is there. */
static ngx_int_t read_body(ngx_http_request_t *r)
{
    ngx_int_t rc = ngx_http_read_client_request_body(r, body_was_read);
    if (rc >= NGX_HTTP_SPECIAL_RESPONSE)
        return rc;
    ngx_http_finalize_request(r, NGX_DONE); /* releases what reading holds; the request goes on */
    return NGX_DONE;
}

/* ---- the handlers ---- */

/* How the rules that apply to a request are counted. */
struct rule_count {
    struct zone *zone;
    uint64_t rules; /* their version; 0: unknown */
    bool dry_run;
    struct stats_counted counted;
};

static void count_rule(const struct weir_rule_said *said, void *context)
{
    struct rule_count *count = context;
    stats_count_rule(count->zone->stats, &count->zone->known, count->rules, said, count->dry_run, &count->counted);
}

/* Returns false if out of memory. */
static bool add_later(ngx_http_request_t *r, struct request_state *state, const struct directive *directive,
                      const struct directive *after)
{
    struct later_charge *later = ngx_palloc(r->pool, sizeof *later);
    if (!later)
        return false;
    *later = (struct later_charge){ directive, after, state->later };
    state->later = later;
    return true;
}

/* One decision of a zone. */
struct asked {
    struct weir_request request;
    struct weir_verdict verdict;
    struct weir_shadows shadows;
    struct weir_usage usage;
    struct weir_receipt receipt;
    struct rule_count count;
    struct weir_header headers[HEADERS_INLINE];
};

/* Makes the request and has weir decide. all: for whatever rules are in force. Returns NGX_OK: there is a verdict;
 * NGX_AGAIN: it has to wait for a slice; NGX_DECLINED: the rules have changed; NGX_ERROR: out of memory. */
static ngx_int_t ask_for(ngx_http_request_t *r, const struct location_conf *location, const struct directive *directive,
                         bool all, struct request_state *state, struct asked *asked)
{
    struct zone *zone = directive->zone;
    struct weir_request *request = &asked->request;
    asked->count = (struct rule_count){ zone, all ? 0 : directive->rules, location->dry_run, { NULL, 0 } };
    ngx_int_t made = make_request(r, directive, all, asked->headers, request, &asked->verdict);
    request->cost = 1;
    request->peek = request->attempt = directive->by_status;
    if (made == NGX_OK && directive->values.nelts > 0)
        made = copy_costs(r, zone, directive, request, &asked->verdict);
    if (made != NGX_OK)
        return made == NGX_ERROR ? NGX_ERROR : NGX_OK;
    request->shadows = &asked->shadows;
    request->usage = &asked->usage;
    request->receipt = &asked->receipt;
    request->if_held = true;
    request->each_rule = count_rule;
    request->context = &asked->count;
    request->brief = location->headers < HEADERS_ALWAYS && !(zone->main->variables & 1U << VAR_REMAINING);
    int64_t now = now_us();
    int result = weir_check_for(zone->weir, asked->count.rules, request, now, until_us(state, now), &asked->verdict);
    return result == 1 ? NGX_AGAIN : result == WEIR_E_CHANGED ? NGX_DECLINED : NGX_OK;
}

/* The rules may have changed since the worker asked what they look at. Then the request is made whole. */
static ngx_int_t ask(ngx_http_request_t *r, const struct location_conf *location, struct directive *directive,
                     struct request_state *state, struct asked *asked)
{
    asked->shadows.count = asked->usage.count = asked->receipt.count = 0;
    if (directive->rules == 0)
        directive_ask(directive);
    ngx_int_t result = ask_for(r, location, directive, false, state, asked);
    if (result != NGX_DECLINED)
        return result;
    directive_ask(directive);
    return ask_for(r, location, directive, true, state, asked);
}

/* What happens to the request after the decision. */
static ngx_int_t decided(ngx_http_request_t *r, const struct location_conf *location, const struct directive *directive,
                         struct request_state *state, struct asked *asked)
{
    struct zone *zone = directive->zone;
    const struct weir_verdict *verdict = &asked->verdict;
    enum outcome outcome = verdict->allowed ? OUTCOME_ALLOWED : location->dry_run ? OUTCOME_WOULD_REFUSE : OUTCOME_REFUSED;
    stats_count(zone->stats, verdict, &asked->shadows, outcome, &asked->count.counted);
    remember(r, state, zone->main->variables, verdict, &asked->shadows, outcome);
    if (!verdict->allowed)
        log_refusal(r, zone, &asked->request, verdict, location->dry_run);
    if (outcome == OUTCOME_REFUSED) {
        state->later = NULL; /* of zones that let it pass before: a refused request costs nothing afterwards */
        add_all_headers(r, directive, asked->headers, &asked->request);
        return refuse(r, location, zone, &asked->request, verdict);
    }
    const struct directive *after = directive->by_status ? directive : location->after;
    if (verdict->allowed && after && !add_later(r, state, directive, after))
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    /* A dry run does not change answers. */
    if (location->headers >= HEADERS_ALWAYS && !location->dry_run &&
        add_rate_headers(r, location, zone, &asked->request, verdict) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_DECLINED;
}

static ngx_int_t decide(ngx_http_request_t *r, const struct location_conf *location, struct directive *directive)
{
    struct asked asked;
    struct zone *zone = directive->zone;
    struct request_state *state = request_state_make(r);
    if (!state)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (state->zones & UINT64_C(1) << zone->bit)
        return NGX_DECLINED;
    if (needs_body(r, directive))
        return read_body(r);
    state->zones |= UINT64_C(1) << zone->bit;
    ngx_int_t result = ask(r, location, directive, state, &asked);
    if (result == NGX_ERROR)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (result == NGX_AGAIN)
        return wait_for_slice(r, state, zone);
    state->waits = false;
    if (asked.receipt.count > 0 && hold_for_request(r, zone, &asked.receipt) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return decided(r, location, directive, state, &asked);
}

static ngx_int_t decide_in_phase(ngx_http_request_t *r, bool after_auth)
{
    const struct location_conf *location = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!location->directives || r != r->main)
        return NGX_DECLINED;
    struct directive *directives = location->directives->elts;
    for (ngx_uint_t i = 0; i < location->directives->nelts; i++) {
        if (directives[i].after_auth != after_auth)
            continue;
        ngx_int_t result = decide(r, location, &directives[i]);
        if (result != NGX_DECLINED)
            return result;
    }
    return NGX_DECLINED;
}

ngx_int_t decide_preaccess(ngx_http_request_t *r)
{
    return decide_in_phase(r, false);
}

ngx_int_t decide_after_auth(ngx_http_request_t *r)
{
    return decide_in_phase(r, true);
}

/* Whether the costs are charged for the status of this response: the one in nginx's log. */
static bool is_charged(const ngx_http_request_t *r, const struct directive *costs)
{
    ngx_uint_t status = r->err_status ? r->err_status : r->headers_out.status;
    return !costs->by_status || (status <= STATUS_LAST && costs->statuses[status / 64] >> status % 64 & 1);
}

static void charge(ngx_http_request_t *r, const struct later_charge *later)
{
    struct weir_header headers[HEADERS_INLINE];
    struct weir_request request;
    struct weir_verdict verdict;
    struct zone *zone = later->directive->zone;
    if (!is_charged(r, later->after) || make_request(r, later->directive, true, headers, &request, &verdict) != NGX_OK)
        return;
    /* `weir … status=` costs what `weir` does; `weir_after status=` without a cost counts the response. */
    request.cost = later->after->zone || later->after->values.nelts == 0 ? 1 : 0;
    if (copy_costs(r, zone, later->after, &request, &verdict) == NGX_OK)
        weir_charge(zone->weir, &request, weir_now_us());
}

ngx_int_t charge_later(ngx_http_request_t *r)
{
    struct request_state *state = r == r->main ? request_state_find(r) : NULL;
    for (const struct later_charge *later = state ? state->later : NULL; later; later = later->next)
        charge(r, later);
    return NGX_OK;
}
