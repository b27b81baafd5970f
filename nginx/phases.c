/* The handlers of nginx's phases: each zone of a location decides once about a request. */
#include "module.h"

/* ---- logging ---- */

enum { LOGGED_PER_SECOND = 10 };

static bool may_log(struct log_sampler *sampler)
{
    if (sampler->second != ngx_time()) {
        sampler->second = ngx_time();
        sampler->asked = 0;
    }
    bool logged = sampler->asked++ < LOGGED_PER_SECOND;
    sampler->left_out += !logged;
    return logged;
}

/* Says how many lines were left out since the last one. */
static void write_left_out(struct log_sampler *sampler, char *text, size_t cap)
{
    if (sampler->left_out)
        snprintf(text, cap, " (%lu more since the last line)", (unsigned long)sampler->left_out);
    sampler->left_out = 0;
}

/* ---- from nginx to weir ---- */

enum { HEADERS_INLINE = 64 };

static size_t count_headers(const ngx_http_request_t *r)
{
    size_t count = 0;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next)
        count += part->nelts;
    return count;
}

/* Headers, or the entries of a descriptor. */
static ngx_int_t add_configured(ngx_http_request_t *r, const struct directive *directive, const ngx_array_t *list,
                                struct weir_header *headers, size_t *count, struct weir_verdict *verdict)
{
    struct named_value *given = list->elts;
    for (ngx_uint_t i = 0; i < list->nelts; i++) {
        ngx_str_t value;
        ngx_int_t rc = expression_value(r, directive->zone, &given[i].value, given[i].attribute, &value, verdict);
        if (rc != NGX_OK)
            return rc;
        headers[(*count)++] = (struct weir_header){ str_of(&given[i].name), str_of(&value) };
    }
    return NGX_OK;
}

/* `headers` has room for HEADERS_INLINE; a request may have more. */
static ngx_int_t copy_headers(ngx_http_request_t *r, const struct directive *directive, struct weir_header *headers,
                              struct weir_request *ret, struct weir_verdict *verdict)
{
    size_t most = count_headers(r) + directive->headers.nelts, count = 0;
    ngx_int_t rc = NGX_OK;
    if (most > HEADERS_INLINE && !(headers = ngx_palloc(r->pool, most * sizeof *headers)))
        return NGX_ERROR;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next) {
        const ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            /* The configuration is trusted; the client's header of the same name is ignored. */
            if (directive->headers.nelts && directive_sets_header(directive, &header[i].key))
                continue;
            headers[count++] = (struct weir_header){ str_of(&header[i].key), str_of(&header[i].value) };
        }
    }
    if (directive->headers.nelts)
        rc = add_configured(r, directive, &directive->headers, headers, &count, verdict);
    ret->headers = headers;
    ret->header_count = count;
    return rc;
}

/* An entry whose value is empty is there all the same. */
static ngx_int_t copy_entries(ngx_http_request_t *r, const struct directive *directive, struct weir_request *ret,
                              struct weir_verdict *verdict)
{
    struct weir_header *entries = ngx_palloc(r->pool, directive->entries.nelts * sizeof *entries);
    if (!entries)
        return NGX_ERROR;
    ret->descriptor = entries;
    return add_configured(r, directive, &directive->entries, entries, &ret->descriptor_count, verdict);
}

/* A value that is not a number costs 1; one that is too large costs more than any limit allows. */
static uint64_t cost_of(const ngx_str_t *value)
{
    uint64_t cost = 0;
    for (size_t i = 0; i < value->len; i++) {
        if (value->data[i] < '0' || value->data[i] > '9')
            return 1;
        cost = ngx_min(cost * 10 + (value->data[i] - '0'), WEIR_AMOUNT_MAX + 1);
    }
    return value->len > 0 ? cost : 1;
}

static bool is_number(const ngx_str_t *value)
{
    for (size_t i = 0; i < value->len; i++)
        if (value->data[i] < '0' || value->data[i] > '9')
            return false;
    return value->len > 0;
}

/* A client may have chosen the value, so the line does not have it. */
static void log_bad_cost(ngx_http_request_t *r, struct zone *zone, const struct named_value *cost, const ngx_str_t *value)
{
    if (r->connection->log->log_level < NGX_LOG_WARN || !may_log(&zone->bad_costs))
        return;
    char left_out_text[64] = "";
    write_left_out(&zone->bad_costs, left_out_text, sizeof left_out_text);
    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "weir: the value of `%s=` is %s, so the request costs 1, zone \"%V\"%s", cost->attribute,
                  value->len > 0 ? "not a whole number" : "empty", &zone->name, left_out_text);
}

/* Rules by ip do not apply to a request whose address is invalid, so an invalid one is not used. */
static bool is_address(const ngx_str_t *text)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (text->len == 0 || text->len >= sizeof copy)
        return false;
    memcpy(copy, text->data, text->len);
    copy[text->len] = '\0';
    return strlen(copy) == text->len &&
           (inet_pton(AF_INET, copy, &address) == 1 || inet_pton(AF_INET6, copy, &address) == 1);
}

/* `costs` has room for all that the directive has. */
static void add_cost(struct weir_request *request, struct weir_cost *costs, const ngx_str_t *unit, uint64_t amount)
{
    costs[request->cost_count++] = (struct weir_cost){ str_of(unit), amount };
    request->costs = costs;
}

static ngx_int_t copy_attributes(ngx_http_request_t *r, const struct directive *directive, struct weir_request *ret,
                                 struct weir_verdict *verdict)
{
    const struct named_value *values = directive->values.elts;
    for (ngx_uint_t i = 0; i < directive->values.nelts; i++) {
        const struct weir_attribute *field = values[i].field;
        ngx_str_t value;
        if (!field)
            continue;
        ngx_int_t rc = expression_value(r, directive->zone, &values[i].value, values[i].attribute, &value, verdict);
        if (rc != NGX_OK)
            return rc;
        if (!field->is_address || is_address(&value))
            *(struct weir_str *)(void *)((char *)ret + field->offset) = str_of(&value);
    }
    return NGX_OK;
}

/* An empty cost is 0 if there is nothing to count: $content_length without a body, $upstream_response_length without a
 * response. */
static bool is_nothing(const ngx_http_request_t *r, const struct directive *costs, const struct named_value *cost,
                       const ngx_str_t *value)
{
    return value->len == 0 && (!costs->zone || (cost->value.body != BODY_UNUSED && !r->headers_in.chunked));
}

/* `directive` has the costs: of the zone itself, or of weir_after. */
static ngx_int_t copy_costs(ngx_http_request_t *r, struct zone *zone, const struct directive *directive,
                            struct weir_request *ret, struct weir_verdict *verdict)
{
    const struct named_value *values = directive->values.elts;
    struct weir_cost *costs = directive->units ? ngx_palloc(r->pool, directive->units * sizeof *costs) : NULL;
    if (directive->units && !costs)
        return NGX_ERROR;
    for (ngx_uint_t i = 0; i < directive->values.nelts; i++) {
        ngx_str_t value;
        if (values[i].field)
            continue;
        ngx_int_t rc = expression_value(r, zone, &values[i].value, values[i].attribute, &value, verdict);
        if (rc != NGX_OK)
            return rc;
        if (is_nothing(r, directive, &values[i], &value))
            value = (ngx_str_t)ngx_string("0");
        if (!is_number(&value))
            log_bad_cost(r, zone, &values[i], &value);
        if (costs && values[i].name.len > 0)
            add_cost(ret, costs, &values[i].name, cost_of(&value));
        else
            ret->cost = cost_of(&value);
    }
    return NGX_OK;
}

/* Without its cost. NGX_DECLINED: *ret_verdict already refuses the request. */
static ngx_int_t make_request(ngx_http_request_t *r, const struct directive *directive, struct weir_header *headers,
                              struct weir_request *ret, struct weir_verdict *ret_verdict)
{
    *ret = (struct weir_request){
        .method = str_of(&r->method_name),
        .path = str_of(&r->unparsed_uri), /* as it was sent: weir considers nginx's reading of it, too */
        .host = str_of(&r->headers_in.server),
        .peer = str_of(&r->connection->addr_text),
    };
    ngx_int_t rc = copy_attributes(r, directive, ret, ret_verdict);
    if (rc == NGX_OK && directive->entries.nelts > 0)
        rc = copy_entries(r, directive, ret, ret_verdict);
    return rc == NGX_OK ? copy_headers(r, directive, headers, ret, ret_verdict) : rc;
}

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
static void remember(ngx_http_request_t *r, struct request_state *state, const struct weir_verdict *v,
                     const struct weir_shadows *shadows, enum outcome outcome)
{
    if (shadows->count)
        state->shadow = keep_shadows(r, shadows);
    if (state->applied && v->allowed && (!v->applied || state->outcome == OUTCOME_WOULD_REFUSE))
        return;
    state->outcome = outcome;
    state->applied = v->applied || !v->allowed;
    state->rule = keep(r, v->rule);
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
    char whom[512] = "", wait[64] = "", left_out_text[64] = "";
    weir_subject_text(zone->weir, request, v, whom, sizeof whom);
    if (v->retry_after_ms > 0)
        snprintf(wait, sizeof wait, ", retry after %lld s", (long long)request_state_find(r)->retry_after_s);
    write_left_out(&zone->refusals, left_out_text, sizeof left_out_text);
    /* nginx would add what it did last, which may be a subrequest. */
    char *action = log->action;
    log->action = NULL;
    const char *what = dry_run ? "would be refused" : "refused";
    if (v->applied) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s by rule \"%s\", limit \"%s\"%s%s%s%s, zone \"%V\"%s", what, v->rule,
                      v->limit, *whom ? " for " : "", whom, v->penalty ? ", because of a penalty" : "", wait, &zone->name,
                      left_out_text);
    } else if (v->status == WEIR_BAD_REQUEST) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "weir: %s, because the client repeats the header \"%s\" with different values, zone \"%V\"%s", what,
                      v->limit, &zone->name, left_out_text);
    } else {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s, because weir could not decide about it, zone \"%V\"%s", what,
                      &zone->name, left_out_text);
    }
    log->action = action;
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

/* Where the rules that apply to a request are counted. */
struct rule_count {
    struct stats *stats;
    bool dry_run;
};

static void count_rule(const struct weir_rule_said *said, void *context)
{
    const struct rule_count *count = context;
    stats_count_rule(count->stats, said, count->dry_run);
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

static ngx_int_t decide(ngx_http_request_t *r, const struct location_conf *location, const struct directive *directive)
{
    struct weir_header headers[HEADERS_INLINE];
    struct weir_request request;
    struct weir_verdict verdict;
    struct weir_shadows shadows;
    struct weir_usage usage;
    struct weir_receipt receipt;
    struct zone *zone = directive->zone;
    struct request_state *state = request_state_make(r);
    if (!state)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (state->zones & UINT64_C(1) << zone->bit)
        return NGX_DECLINED;
    if (needs_body(r, directive))
        return read_body(r);
    state->zones |= UINT64_C(1) << zone->bit;
    ngx_int_t made = make_request(r, directive, headers, &request, &verdict);
    request.cost = 1;
    request.peek = request.attempt = directive->by_status;
    if (made == NGX_OK)
        made = copy_costs(r, zone, directive, &request, &verdict);
    if (made == NGX_ERROR)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;

    shadows.count = usage.count = receipt.count = 0;
    request.shadows = &shadows;
    request.usage = &usage;
    request.receipt = &receipt;
    request.if_held = true;
    request.each_rule = count_rule;
    request.context = &(struct rule_count){ zone->stats, location->dry_run };
    request.brief = location->headers < HEADERS_ALWAYS && !zone->main->remaining;
    /* nginx reads its own clock once for each turn of its loop, which may take longer than a short period lasts. */
    int64_t now = weir_now_us();
    if (made == NGX_OK && weir_check_soon(zone->weir, &request, now, until_us(state, now), &verdict) == 1)
        return wait_for_slice(r, state, zone);
    state->waits = false;
    if (receipt.count > 0 && hold_for_request(r, zone, &receipt) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    enum outcome outcome = verdict.allowed ? OUTCOME_ALLOWED : location->dry_run ? OUTCOME_WOULD_REFUSE : OUTCOME_REFUSED;
    stats_count(zone->stats, &verdict, &shadows, outcome);
    remember(r, state, &verdict, &shadows, outcome);
    if (!verdict.allowed)
        log_refusal(r, zone, &request, &verdict, location->dry_run);
    if (outcome == OUTCOME_REFUSED) {
        state->later = NULL; /* of zones that let it pass before: a refused request costs nothing afterwards */
        return refuse(r, location, zone, &request, &verdict);
    }
    const struct directive *after = directive->by_status ? directive : location->after;
    if (verdict.allowed && after && !add_later(r, state, directive, after))
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    /* A dry run does not change answers. */
    if (location->headers >= HEADERS_ALWAYS && !location->dry_run &&
        add_rate_headers(r, location, zone, &request, &verdict) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_DECLINED;
}

static ngx_int_t decide_in_phase(ngx_http_request_t *r, bool after_auth)
{
    const struct location_conf *location = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!location->directives || r != r->main)
        return NGX_DECLINED;
    const struct directive *directives = location->directives->elts;
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
    if (!is_charged(r, later->after) || make_request(r, later->directive, headers, &request, &verdict) != NGX_OK)
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
