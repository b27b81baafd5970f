/* Answers: the headers of a limit, and refusals. */
#include "module.h"

/* nginx has these itself, unless it is shown that they are there. */
static void tell_nginx(ngx_http_request_t *r, ngx_table_elt_t *header)
{
    if (header->key.len == strlen("server") && ngx_strncasecmp(header->key.data, (u_char *)"server", strlen("server")) == 0)
        r->headers_out.server = header;
    if (header->key.len == strlen("date") && ngx_strncasecmp(header->key.data, (u_char *)"date", strlen("date")) == 0)
        r->headers_out.date = header;
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
    tell_nginx(r, header);
    return NGX_OK;
}

/* weir's strings last until its next answer, nginx's until the request's end. *room moves behind the copy. */
static ngx_str_t copy(u_char **room, struct weir_str from)
{
    ngx_str_t copied = { from.len, *room };
    *room = ngx_cpymem(*room, from.len ? from.ptr : "", from.len);
    return copied;
}

static bool is_wait(const u_char *name, size_t len)
{
    static const char wait[] = "retry-after";
    return len == sizeof wait - 1 && ngx_strncasecmp((u_char *)name, (u_char *)wait, len) == 0;
}

/* Two zones may have something to say of one answer, but these headers are for one. The wait of the first stays unless the
 * second has one. */
static void drop_rate_headers(ngx_http_request_t *r, bool wait)
{
    static const char *const names[] = { "ratelimit", "x-ratelimit-" };
    struct passage *passage = passage_of(r);
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part && passage->rate_headers; part = part->next) {
        ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (wait && is_wait(header[i].key.data, header[i].key.len))
                header[i].hash = 0;
            for (size_t k = 0; k < sizeof names / sizeof *names; k++)
                if (header[i].key.len >= strlen(names[k]) &&
                    ngx_strncasecmp(header[i].key.data, (u_char *)names[k], strlen(names[k])) == 0)
                    header[i].hash = 0;
        }
    }
    passage->rate_headers = true;
}

static ngx_int_t add_headers(ngx_http_request_t *r, const struct weir_header *headers, size_t count)
{
    size_t bytes = 0;
    bool wait = false;
    for (size_t i = 0; i < count; i++) {
        bytes += headers[i].name.len + headers[i].value.len;
        wait = wait || is_wait((const u_char *)headers[i].name.ptr, headers[i].name.len);
    }
    u_char *room = bytes ? ngx_pnalloc(r->pool, bytes) : NULL;
    if (!room)
        return bytes ? NGX_ERROR : NGX_OK;
    drop_rate_headers(r, wait);
    for (size_t i = 0; i < count; i++) {
        ngx_str_t name = copy(&room, headers[i].name), value = copy(&room, headers[i].value);
        if (add_header(r, name, value) != NGX_OK)
            return NGX_ERROR;
    }
    return NGX_OK;
}

static unsigned style_of(enum header_mode mode)
{
    return mode == HEADERS_OFF      ? 0
           : mode == HEADERS_LEGACY ? WEIR_HEADERS_STANDARD | WEIR_HEADERS_LEGACY
                                    : WEIR_HEADERS_STANDARD;
}

ngx_int_t add_rate_headers(ngx_http_request_t *r, const struct weir_verdict *verdict, enum header_mode mode)
{
    struct weir_headers headers;
    weir_headers(verdict, style_of(mode), &headers);
    return add_headers(r, headers.header, headers.count);
}

/* ---- gRPC ---- */

/* gRPC-Web and other names that begin alike are answered as HTTP. */
static bool is_grpc(const ngx_http_request_t *r)
{
    static const char type[] = "application/grpc";
    enum { LEN = sizeof type - 1 };
    const ngx_table_elt_t *header = r->headers_in.content_type;
    if (r->http_version != NGX_HTTP_VERSION_20 || !header || header->value.len < LEN ||
        ngx_strncasecmp(header->value.data, (u_char *)type, LEN) != 0)
        return false;
    return header->value.len == LEN || header->value.data[LEN] == '+' || header->value.data[LEN] == ';';
}

/* The body as a message of one line: what is not plain is written as %XX. */
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

static ngx_int_t send_refusal(ngx_http_request_t *r, const struct weir_refusal *refusal)
{
    ngx_buf_t *buf = ngx_calloc_buf(r->pool);
    u_char *room = ngx_pnalloc(r->pool, refusal->body.len + refusal->content_type.len + 1);
    if (!buf || !room)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_str_t body = copy(&room, refusal->body), type = copy(&room, refusal->content_type);
    r->headers_out.status = refusal->status;
    ngx_str_null(&r->headers_out.status_line);
    r->headers_out.content_length_n = (off_t)body.len;
    r->headers_out.content_type = type;
    r->headers_out.content_type_len = type.len;
    buf->pos = body.data;
    buf->last = body.data + body.len;
    buf->memory = body.len > 0;
    buf->last_buf = 1;
    buf->last_in_chain = 1;
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    return ngx_http_output_filter(r, &(ngx_chain_t){ .buf = buf });
}

/* In the words of the rule. */
static ngx_int_t refuse_by_rule(ngx_http_request_t *r, const struct place *place, struct zone *zone,
                                const struct weir_request *request, const struct weir_verdict *verdict)
{
    struct weir_refusal refusal;
    if (weir_refuse_as(zone->weir, request, verdict, style_of((enum header_mode)place->headers), &refusal) < 0)
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    /* Who asks first whether to send its body is told by the refusal. */
    r->expect_tested = 1;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    r->err_status = 0; /* of an error page that led here: nginx would put it in the place of the refusal's */
    if (add_headers(r, refusal.headers, refusal.header_count) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return is_grpc(r) ? refuse_grpc(r, &refusal, verdict) : send_refusal(r, &refusal);
}

/* Has nginx been told what to do with this status here? */
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

ngx_int_t refuse(ngx_http_request_t *r, const struct place *place, struct zone *zone, const struct weir_request *request,
                 const struct weir_verdict *verdict)
{
    if (has_error_page(r, verdict->status)) {
        if (add_rate_headers(r, verdict, (enum header_mode)place->headers) != NGX_OK)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        return verdict->status;
    }
    ngx_http_finalize_request(r, refuse_by_rule(r, place, zone, request, verdict));
    return NGX_DONE;
}
