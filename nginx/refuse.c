/* Answers: the headers of a limit, and refusals. */
#include "module.h"

static bool starts_nocase(ngx_str_t text, const char *with)
{
    size_t len = strlen(with);
    return text.len >= len && ngx_strncasecmp(text.data, (u_char *)with, len) == 0;
}

static bool is_nocase(ngx_str_t text, const char *word)
{
    return text.len == strlen(word) && starts_nocase(text, word);
}

static ngx_int_t add_header(ngx_http_request_t *r, ngx_str_t name, ngx_str_t value)
{
    ngx_table_elt_t *header = ngx_list_push(&r->headers_out.headers);
    if (!header)
        return NGX_ERROR;
    memset(header, 0, sizeof *header);
    header->hash = 1;
    header->key = name;
    header->value = value;
    /* nginx adds its own Server and Date unless these point to one. */
    if (is_nocase(name, "server"))
        r->headers_out.server = header;
    else if (is_nocase(name, "date"))
        r->headers_out.date = header;
    return NGX_OK;
}

/* weir's strings last until its next answer, nginx's until the request's end. *room moves to the end of the copy. */
static ngx_str_t copy(u_char **room, struct weir_str from)
{
    ngx_str_t copied = { from.len, *room };
    *room = ngx_cpymem(*room, from.len ? from.ptr : "", from.len);
    return copied;
}

static const char retry_after[] = "retry-after";

/* Two zones may add headers to one answer, but it can have those of one zone only. The Retry-After of the first zone stays
 * unless the second has one. */
static void drop_rate_headers(ngx_http_request_t *r, bool has_retry_after)
{
    struct request_state *state = request_state_find(r);
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part && state->rate_headers; part = part->next) {
        ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            ngx_str_t name = header[i].key;
            if (starts_nocase(name, "ratelimit") || starts_nocase(name, "x-ratelimit-") ||
                (has_retry_after && is_nocase(name, retry_after)))
                header[i].hash = 0;
        }
    }
    state->rate_headers = true;
}

static ngx_int_t add_headers(ngx_http_request_t *r, const struct weir_header *headers, size_t count)
{
    size_t bytes = 0;
    bool has_retry_after = false;
    for (size_t i = 0; i < count; i++) {
        bytes += headers[i].name.len + headers[i].value.len;
        has_retry_after |= is_nocase((ngx_str_t){ headers[i].name.len, (u_char *)headers[i].name.ptr }, retry_after);
    }
    u_char *room = bytes ? ngx_pnalloc(r->pool, bytes) : NULL;
    if (!room)
        return bytes ? NGX_ERROR : NGX_OK;
    drop_rate_headers(r, has_retry_after);
    for (size_t i = 0; i < count; i++) {
        ngx_str_t name = copy(&room, headers[i].name), value = copy(&room, headers[i].value);
        if (add_header(r, name, value) != NGX_OK)
            return NGX_ERROR;
    }
    return NGX_OK;
}

static unsigned style_of(const struct location_conf *location)
{
    static const unsigned styles[] = {
        [HEADERS_OFF] = 0,
        [HEADERS_REFUSED] = WEIR_HEADERS_SETTING,
        [HEADERS_ALWAYS] = WEIR_HEADERS_SETTING,
        [HEADERS_LEGACY] = WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY,
        [HEADERS_OPENAI] = WEIR_HEADERS_OPENAI,
    };
    return styles[location->headers];
}

ngx_int_t add_rate_headers(ngx_http_request_t *r, const struct location_conf *location, struct zone *zone,
                           const struct weir_request *request, const struct weir_verdict *verdict)
{
    struct weir_headers headers;
    weir_headers(zone->weir, request, verdict, style_of(location), &headers);
    return add_headers(r, headers.header, headers.count);
}

/* ---- gRPC ---- */

/* gRPC-Web and other names that begin alike are answered as HTTP. */
static bool is_grpc(const ngx_http_request_t *r)
{
    static const char type[] = "application/grpc";
    enum { LEN = sizeof type - 1 };
    const ngx_table_elt_t *header = r->headers_in.content_type;
    if (r->http_version != NGX_HTTP_VERSION_20 || !header || !starts_nocase(header->value, type))
        return false;
    return header->value.len == LEN || header->value.data[LEN] == '+' || header->value.data[LEN] == ';';
}

/* The body as a message of one line: bytes other than printable ASCII become %XX. */
static bool grpc_message(ngx_http_request_t *r, struct weir_str body, ngx_str_t *ret)
{
    enum { BYTES_MAX = 1024 };
    while (body.len > 0 && (unsigned char)body.ptr[body.len - 1] <= ' ')
        body.len--;
    size_t len = body.len < BYTES_MAX ? body.len : BYTES_MAX;
    u_char *to = ret->data = ngx_pnalloc(r->pool, 3 * len + 1);
    if (!to)
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)body.ptr[i];
        if (c >= ' ' && c <= '~' && c != '%')
            *to++ = c;
        else
            to = ngx_sprintf(to, "%%%02Xd", (int)c);
    }
    ret->len = (size_t)(to - ret->data);
    return true;
}

/* An answer that is headers only, as clients of gRPC expect an error. */
static ngx_int_t refuse_grpc(ngx_http_request_t *r, const struct weir_refusal *refusal, const struct weir_verdict *verdict)
{
    ngx_str_t message;
    /* INVALID_ARGUMENT, UNAVAILABLE or RESOURCE_EXHAUSTED */
    ngx_str_t status = ngx_string("8");
    if (!verdict->applied && verdict->status == WEIR_BAD_REQUEST)
        status = (ngx_str_t)ngx_string("3");
    else if (refusal->status == NGX_HTTP_SERVICE_UNAVAILABLE)
        status = (ngx_str_t)ngx_string("14");
    if (!grpc_message(r, refusal->body, &message) ||
        add_header(r, (ngx_str_t)ngx_string("grpc-status"), status) != NGX_OK ||
        add_header(r, (ngx_str_t)ngx_string("grpc-message"), message) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "application/grpc");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->header_only = 1;
    return ngx_http_send_header(r);
}

/* ---- HTTP ---- */

ngx_int_t send_answer(ngx_http_request_t *r, ngx_uint_t status, ngx_str_t type, ngx_str_t body)
{
    ngx_buf_t *buf = ngx_calloc_buf(r->pool);
    if (!buf)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->headers_out.status = status;
    ngx_str_null(&r->headers_out.status_line);
    r->headers_out.content_length_n = (off_t)body.len;
    r->headers_out.content_type = type;
    r->headers_out.content_type_len = type.len;
    buf->pos = body.data;
    buf->last = body.data + body.len;
    buf->memory = body.len > 0;
    buf->last_buf = r == r->main;
    buf->last_in_chain = 1;
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    return ngx_http_output_filter(r, &(ngx_chain_t){ .buf = buf });
}

static ngx_int_t send_refusal(ngx_http_request_t *r, const struct weir_refusal *refusal)
{
    u_char *room = ngx_pnalloc(r->pool, refusal->body.len + refusal->content_type.len + 1);
    if (!room)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_str_t body = copy(&room, refusal->body), type = copy(&room, refusal->content_type);
    return send_answer(r, refusal->status, type, body);
}

/* Answers as the rule says. */
static ngx_int_t refuse_by_rule(ngx_http_request_t *r, const struct location_conf *location, struct zone *zone,
                                const struct weir_request *request, const struct weir_verdict *verdict)
{
    struct weir_refusal refusal;
    if (weir_refuse_as(zone->weir, request, verdict, style_of(location), &refusal) < 0)
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    /* A client that waits for 100 Continue gets the refusal instead. */
    r->expect_tested = 1;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    r->err_status = 0; /* of an error page that led here: nginx would send it instead of the refusal's */
    if (add_headers(r, refusal.headers, refusal.header_count) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return is_grpc(r) ? refuse_grpc(r, &refusal, verdict) : send_refusal(r, &refusal);
}

/* Whether an error_page of this location handles the status. */
static bool has_error_page(ngx_http_request_t *r, ngx_int_t status)
{
    const ngx_http_core_loc_conf_t *core = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    if (!core->error_pages || r->error_page || r->uri_changes == 0)
        return false;
    const ngx_http_err_page_t *pages = core->error_pages->elts;
    for (ngx_uint_t i = 0; i < core->error_pages->nelts; i++)
        if (pages[i].status == status)
            return true;
    return false;
}

ngx_int_t refuse(ngx_http_request_t *r, const struct location_conf *location, struct zone *zone,
                 const struct weir_request *request, const struct weir_verdict *verdict)
{
    if (has_error_page(r, verdict->status)) {
        if (add_rate_headers(r, location, zone, request, verdict) != NGX_OK)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        return verdict->status;
    }
    ngx_http_finalize_request(r, refuse_by_rule(r, location, zone, request, verdict));
    return NGX_DONE;
}
