/* nginx's request as weir sees it. What no rule looks at is not made: most rules look at one or two attributes, and a
 * request has a dozen headers. */
#include "module.h"

/* ---- what rules look at ---- */

enum { CLIENT_HEADERS = 1 }; /* number of names before those of the directive */

/* One after another: the attributes and costs, the headers and the entries of a directive. */
static struct named_value *named_at(const struct directive *directive, ngx_uint_t i)
{
    const ngx_array_t *lists[] = { &directive->values, &directive->headers, &directive->entries };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        if (i < lists[k]->nelts)
            return (struct named_value *)lists[k]->elts + i;
        i -= lists[k]->nelts;
    }
    return NULL;
}

char *directive_end(ngx_conf_t *cf, struct directive *directive)
{
    const struct named_value *named;
    ngx_uint_t count = CLIENT_HEADERS;
    while (named_at(directive, count - CLIENT_HEADERS))
        count++;
    directive->names = ngx_palloc(cf->pool, count * sizeof *directive->names);
    directive->looks = ngx_palloc(cf->pool, count * sizeof *directive->looks);
    if (!directive->names || !directive->looks)
        return NGX_CONF_ERROR;
    directive->names[0] = "header";
    for (ngx_uint_t i = 0; (named = named_at(directive, i)); i++)
        directive->names[CLIENT_HEADERS + i] = named->attribute;
    directive->name_count = count;
    return NGX_CONF_OK;
}

void directive_ask(struct directive *directive)
{
    struct named_value *named;
    directive->rules = weir_looks_at(directive->zone->weir, directive->names, directive->name_count, directive->looks);
    directive->wants_headers = directive->looks[0];
    for (ngx_uint_t i = 0; (named = named_at(directive, i)); i++)
        named->wanted = directive->looks[CLIENT_HEADERS + i];
}

/* ---- headers and entries ---- */

static size_t count_headers(const ngx_http_request_t *r)
{
    size_t count = 0;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next)
        count += part->nelts;
    return count;
}

/* Headers, or the entries of a descriptor. */
static ngx_int_t add_configured(ngx_http_request_t *r, const struct directive *directive, const ngx_array_t *list, bool all,
                                struct weir_header *headers, size_t *count, struct weir_verdict *verdict)
{
    const struct named_value *given = list->elts;
    for (ngx_uint_t i = 0; i < list->nelts; i++) {
        ngx_str_t value;
        if (!all && !given[i].wanted)
            continue;
        ngx_int_t rc = expression_value(r, directive->zone, &given[i].value, given[i].attribute, &value, verdict);
        if (rc != NGX_OK)
            return rc;
        headers[(*count)++] = (struct weir_header){ str_of(&given[i].name), str_of(&value) };
    }
    return NGX_OK;
}

/* `headers` has room for HEADERS_INLINE; a request may have more. */
static ngx_int_t copy_headers(ngx_http_request_t *r, const struct directive *directive, bool all,
                              struct weir_header *headers, struct weir_request *ret, struct weir_verdict *verdict)
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
        rc = add_configured(r, directive, &directive->headers, all, headers, &count, verdict);
    ret->headers = headers;
    ret->header_count = count;
    return rc;
}

/* An entry whose value is empty is there all the same. */
static ngx_int_t copy_entries(ngx_http_request_t *r, const struct directive *directive, bool all, struct weir_request *ret,
                              struct weir_verdict *verdict)
{
    struct weir_header *entries = ngx_palloc(r->pool, directive->entries.nelts * sizeof *entries);
    if (!entries)
        return NGX_ERROR;
    ret->descriptor = entries;
    return add_configured(r, directive, &directive->entries, all, entries, &ret->descriptor_count, verdict);
}

/* ---- attributes and costs ---- */

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

static ngx_int_t copy_attributes(ngx_http_request_t *r, const struct directive *directive, bool all,
                                 struct weir_request *ret, struct weir_verdict *verdict)
{
    const struct named_value *values = directive->values.elts;
    for (ngx_uint_t i = 0; i < directive->values.nelts; i++) {
        const struct weir_attribute *field = values[i].field;
        ngx_str_t value;
        if (!field || (!all && !values[i].wanted))
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

ngx_int_t copy_costs(ngx_http_request_t *r, struct zone *zone, const struct directive *directive, struct weir_request *ret,
                     struct weir_verdict *verdict)
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

/* ---- the request ---- */

/* The address of the connection, or the one that realip found: in binary, so that nobody has to parse it. */
static void set_peer(const ngx_connection_t *c, struct weir_request *ret)
{
    const struct sockaddr *address = c->sockaddr;
    if (address->sa_family == AF_INET) {
        const struct in_addr *v4 = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
        ret->peer_bytes = (struct weir_str){ (const char *)v4, sizeof *v4 };
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        ret->peer_bytes = (struct weir_str){ (const char *)v6, sizeof *v6 };
    }
}

ngx_int_t make_request(ngx_http_request_t *r, const struct directive *directive, bool all, struct weir_header *headers,
                       struct weir_request *ret, struct weir_verdict *ret_verdict)
{
    *ret = (struct weir_request){
        .method = str_of(&r->method_name),
        .path = str_of(&r->unparsed_uri), /* as it was sent: weir considers nginx's reading of it, too */
        .host = str_of(&r->headers_in.server),
    };
    set_peer(r->connection, ret);
    ngx_int_t rc = NGX_OK;
    if (directive->values.nelts > 0)
        rc = copy_attributes(r, directive, all, ret, ret_verdict);
    if (rc == NGX_OK && directive->entries.nelts > 0)
        rc = copy_entries(r, directive, all, ret, ret_verdict);
    if (rc == NGX_OK && (all || directive->wants_headers))
        rc = copy_headers(r, directive, all, headers, ret, ret_verdict);
    return rc;
}

void add_all_headers(ngx_http_request_t *r, const struct directive *directive, struct weir_header *headers,
                     struct weir_request *ret)
{
    struct weir_verdict unused;
    copy_headers(r, directive, true, headers, ret, &unused);
}
