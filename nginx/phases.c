/* A request on its way through nginx: asked about once by each zone that stands in its way. */
#include "module.h"

/* ---- what is known of a request ---- */

static void passage_mark(void *data)
{
    (void)data;
}

/* nginx forgets what modules know of a request when it redirects it internally. What is to be done when its memory is freed
 * it keeps, so that is where the passage lies. */
static struct passage *find_passage(const ngx_http_request_t *r)
{
    for (ngx_pool_cleanup_t *c = r->pool->cleanup; c; c = c->next)
        if (c->handler == passage_mark)
            return c->data;
    return NULL;
}

struct passage *passage_of(ngx_http_request_t *r)
{
    struct passage *passage = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (!passage && (r->internal || r->filter_finalize)) {
        passage = find_passage(r);
        ngx_http_set_ctx(r, passage, ngx_http_weir_module);
    }
    return passage;
}

static struct passage *make_passage(ngx_http_request_t *r)
{
    struct passage *passage = passage_of(r);
    if (passage)
        return passage;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof *passage);
    if (!cleanup)
        return NULL;
    passage = cleanup->data;
    memset(passage, 0, sizeof *passage);
    cleanup->handler = passage_mark;
    ngx_http_set_ctx(r, passage, ngx_http_weir_module);
    return passage;
}

/* ---- from nginx to weir ---- */

enum { HEADERS_INLINE = 64 };

static struct weir_str str_of(const ngx_str_t *s)
{
    return (struct weir_str){ (const char *)s->data, s->len };
}

static size_t count_headers(const ngx_http_request_t *r)
{
    size_t count = 0;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next)
        count += part->nelts;
    return count;
}

bool use_gives(const struct use *use, const ngx_str_t *header)
{
    const struct named_value *given = use->headers.elts;
    for (ngx_uint_t i = 0; i < use->headers.nelts; i++)
        if (given[i].name.len == header->len && ngx_strncasecmp(given[i].name.data, header->data, header->len) == 0)
            return true;
    return false;
}

static ngx_int_t add_given(ngx_http_request_t *r, const struct use *use, struct weir_header *headers, size_t *count,
                           struct weir_verdict *verdict)
{
    struct named_value *given = use->headers.elts;
    for (ngx_uint_t i = 0; i < use->headers.nelts; i++) {
        ngx_str_t value;
        ngx_int_t rc = expression_value(r, use->zone, &given[i].value, given[i].attribute, &value, verdict);
        if (rc != NGX_OK)
            return rc;
        headers[(*count)++] = (struct weir_header){ str_of(&given[i].name), str_of(&value) };
    }
    return NGX_OK;
}

/* `headers` has room for HEADERS_INLINE; a request may have more. */
static ngx_int_t copy_headers(ngx_http_request_t *r, const struct use *use, struct weir_header *headers,
                              struct weir_request *ret, struct weir_verdict *verdict)
{
    size_t most = count_headers(r) + use->headers.nelts, count = 0;
    ngx_int_t rc = NGX_OK;
    if (most > HEADERS_INLINE && !(headers = ngx_palloc(r->pool, most * sizeof *headers)))
        return NGX_ERROR;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next) {
        const ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            /* What the configuration says is true, and what a client says of the same is not. */
            if (use->headers.nelts && use_gives(use, &header[i].key))
                continue;
            headers[count++] = (struct weir_header){ str_of(&header[i].key), str_of(&header[i].value) };
        }
    }
    if (use->headers.nelts)
        rc = add_given(r, use, headers, &count, verdict);
    ret->headers = headers;
    ret->header_count = count;
    return rc;
}

/* What is no number costs 1; what is too large for one costs all that there is. */
static uint32_t cost_of(const ngx_str_t *value)
{
    uint64_t cost = 0;
    for (size_t i = 0; i < value->len; i++) {
        if (value->data[i] < '0' || value->data[i] > '9')
            return 1;
        cost = ngx_min(cost * 10 + (value->data[i] - '0'), UINT32_MAX);
    }
    return value->len > 0 ? (uint32_t)cost : 1;
}

/* With what is none, a client would be nobody to rules by ip. */
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

static ngx_int_t copy_attributes(ngx_http_request_t *r, const struct use *use, struct weir_request *ret,
                                 struct weir_verdict *verdict)
{
    struct weir_str *const fields[ATTR_COST] = {
        [ATTR_USER] = &ret->user, [ATTR_KEY] = &ret->key,       [ATTR_EVENT] = &ret->event, [ATTR_IP] = &ret->ip,
        [ATTR_HOST] = &ret->host, [ATTR_METHOD] = &ret->method, [ATTR_PATH] = &ret->path
    };
    for (int i = 0; i < ATTRIBUTES; i++) {
        ngx_str_t value;
        if (!use->attributes[i])
            continue;
        ngx_int_t rc = expression_value(r, use->zone, use->attributes[i], attribute_names[i], &value, verdict);
        if (rc != NGX_OK)
            return rc;
        if (i == ATTR_COST)
            ret->cost = cost_of(&value);
        else if (i != ATTR_IP || is_address(&value))
            *fields[i] = str_of(&value);
    }
    return NGX_OK;
}

/* NGX_DECLINED: *ret_verdict refuses it already. */
static ngx_int_t make_request(ngx_http_request_t *r, const struct use *use, struct weir_header *headers,
                              struct weir_request *ret, struct weir_verdict *ret_verdict)
{
    ngx_int_t rc = NGX_OK;
    *ret = (struct weir_request){
        .method = str_of(&r->method_name),
        .path = str_of(&r->unparsed_uri), /* as it was sent: nginx's own reading is one of those that weir looks at */
        .host = str_of(&r->headers_in.server),
        .peer = str_of(&r->connection->addr_text),
        .cost = 1,
    };
    if (use->has_attributes)
        rc = copy_attributes(r, use, ret, ret_verdict);
    return rc == NGX_OK ? copy_headers(r, use, headers, ret, ret_verdict) : rc;
}

/* ---- what came of it ---- */

static ngx_str_t keep(ngx_http_request_t *r, const char *text)
{
    ngx_str_t kept = { strlen(text), NULL };
    kept.data = kept.len ? ngx_pnalloc(r->pool, kept.len) : NULL;
    if (!kept.data)
        return (ngx_str_t)ngx_null_string;
    memcpy(kept.data, text, kept.len);
    return kept;
}

static ngx_str_t keep_shadows(ngx_http_request_t *r, const struct weir_shadows *shadows)
{
    char list[WEIR_SHADOW_MAX * (WEIR_ID_MAX + 1) + 1] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < shadows->count; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i ? "," : "", shadows->names[i]);
    return keep(r, list);
}

/* Of several zones the last one counts that had something to say, but none that allows after one that would not. */
static void remember(ngx_http_request_t *r, struct passage *passage, const struct weir_verdict *v,
                     const struct weir_shadows *shadows, enum outcome outcome)
{
    if (shadows->count)
        passage->shadow = keep_shadows(r, shadows);
    if (passage->applied && v->allowed && (!v->applied || passage->outcome == OUTCOME_WOULD_REFUSE))
        return;
    passage->outcome = outcome;
    passage->applied = v->applied || !v->allowed;
    passage->rule = keep(r, v->rule);
    passage->limit = keep(r, v->applied ? v->limit : "");
    passage->remaining = v->remaining;
    passage->retry_after_s = v->retry_after_ms > 0 ? (v->retry_after_ms + 999) / 1000 : v->retry_after_ms;
}

enum { TOLD_PER_SECOND = 10 };

/* Is it one of those that are told? */
static bool take_turn(struct sampler *sampler)
{
    if (sampler->second != ngx_time()) {
        sampler->second = ngx_time();
        sampler->told = 0;
    }
    bool told = sampler->told++ < TOLD_PER_SECOND;
    sampler->left_out += !told;
    return told;
}

static void log_refusal(ngx_http_request_t *r, struct zone *zone, const struct weir_request *request,
                        const struct weir_verdict *v, bool dry_run)
{
    ngx_log_t *log = r->connection->log;
    if (log->log_level < NGX_LOG_ERR || !take_turn(&zone->refusals))
        return;
    char whom[512] = "", wait[64] = "", more[64] = "";
    weir_subject_text(zone->weir, request, v, whom, sizeof whom);
    if (v->retry_after_ms > 0)
        snprintf(wait, sizeof wait, ", retry after %lld s", (long long)passage_of(r)->retry_after_s);
    if (zone->refusals.left_out)
        snprintf(more, sizeof more, " (%lu more since the last line)", (unsigned long)zone->refusals.left_out);
    zone->refusals.left_out = 0;
    /* What nginx did last may be to have sent a subrequest. */
    char *action = log->action;
    log->action = NULL;
    const char *what = dry_run ? "would be refused" : "refused";
    if (v->applied) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s by rule \"%s\", limit \"%s\"%s%s%s, zone \"%V\"%s", what, v->rule,
                      v->limit, *whom ? " for " : "", whom, wait, &zone->name, more);
    } else if (v->status == WEIR_BAD_REQUEST) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "weir: %s, since the client repeats the header \"%s\" with different values, zone \"%V\"%s", what,
                      v->limit, &zone->name, more);
    } else {
        ngx_log_error(NGX_LOG_ERR, log, 0, "weir: %s, since it could not be judged, zone \"%V\"%s", what, &zone->name,
                      more);
    }
    log->action = action;
}

/* ---- waiting ---- */

/* A leased rule finds no slice at times. Whoever fetches them was asked, through the cells file; he tells nobody when one
 * has come, so that the request looks again until then, or until this has passed. */
enum { SLICE_WAIT_MS = 20, LOOK_AGAIN_MS = 1 };

/* By the clock that is never set: the other one may be, while a request waits. */
static int64_t until_us(const struct passage *passage, int64_t now_us)
{
    ngx_msec_int_t left_ms = SLICE_WAIT_MS;
    if (passage->waits)
        left_ms = (ngx_msec_int_t)(passage->wait_end_ms - ngx_current_msec);
    return now_us + ngx_max(left_ms, 0) * 1000;
}

/* Called for each event of the connection: that the timer is not over yet shows in `delayed`. */
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

/* Until then nothing is to be written, so that the timer can be that of the connection's writing, which ends with the
 * connection or the stream. A client that goes away meanwhile is noticed, and not charged. */
static ngx_int_t wait_for_slice(ngx_http_request_t *r, struct passage *passage, struct zone *zone)
{
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (!passage->waits) {
        passage->waits = true;
        passage->wait_end_ms = ngx_current_msec + SLICE_WAIT_MS;
        stats_count_wait(zone->stats);
    }
    passage->zones &= ~(UINT64_C(1) << zone->bit);
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = look_again;
    r->connection->write->delayed = 1;
    ngx_add_timer(r->connection->write, LOOK_AGAIN_MS);
    return NGX_AGAIN;
}

/* ---- the handlers ---- */

static ngx_int_t decide(ngx_http_request_t *r, const struct place *place, const struct use *use)
{
    struct weir_header headers[HEADERS_INLINE];
    struct weir_request request;
    struct weir_verdict verdict;
    struct weir_shadows shadows;
    struct zone *zone = use->zone;
    struct passage *passage = make_passage(r);
    if (!passage)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (passage->zones & UINT64_C(1) << zone->bit)
        return NGX_DECLINED;
    passage->zones |= UINT64_C(1) << zone->bit;
    ngx_int_t made = make_request(r, use, headers, &request, &verdict);
    if (made == NGX_ERROR)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;

    shadows.count = 0;
    request.shadows = &shadows;
    request.brief = place->headers < HEADERS_ALWAYS && !zone->main->remaining;
    /* nginx reads its own clock once for each turn of its loop, which may take longer than a short period lasts. */
    int64_t now = weir_now_us();
    if (made == NGX_OK && weir_check_soon(zone->weir, &request, now, until_us(passage, now), &verdict) == 1)
        return wait_for_slice(r, passage, zone);
    passage->waits = false;
    enum outcome outcome = verdict.allowed ? OUTCOME_ALLOWED : place->dry_run ? OUTCOME_WOULD_REFUSE : OUTCOME_REFUSED;
    stats_count(zone->stats, &verdict, &shadows, outcome);
    remember(r, passage, &verdict, &shadows, outcome);
    if (!verdict.allowed)
        log_refusal(r, zone, &request, &verdict, place->dry_run);
    if (outcome == OUTCOME_REFUSED)
        return refuse(r, place, zone, &request, &verdict);
    /* A dry run leaves answers as they are. */
    if (place->headers >= HEADERS_ALWAYS && !place->dry_run &&
        add_rate_headers(r, &verdict, (enum header_mode)place->headers) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_DECLINED;
}

static ngx_int_t decide_in_phase(ngx_http_request_t *r, bool after_auth)
{
    const struct place *place = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!place->uses || r != r->main)
        return NGX_DECLINED;
    const struct use *uses = place->uses->elts;
    for (ngx_uint_t i = 0; i < place->uses->nelts; i++) {
        if (uses[i].after_auth != after_auth)
            continue;
        ngx_int_t result = decide(r, place, &uses[i]);
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
