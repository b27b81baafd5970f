/* The values of a directive's parameters, and headers in them that a client sends more than once.
 *
 * nginx up to 1.22 reads $http_NAME as the first line of such a header, since 1.23 as all lines joined with commas. A
 * backend may read either, so the rules decide which one counts (`repeated_headers`). */
#include "module.h"

static bool is_blank(u_char c)
{
    return c == ' ' || c == '\t';
}

static ngx_str_t trimmed(ngx_str_t text)
{
    for (; text.len > 0 && is_blank(text.data[0]); text.len--)
        text.data++;
    while (text.len > 0 && is_blank(text.data[text.len - 1]))
        text.len--;
    return text;
}

bool directive_sets_header(const struct directive *directive, const ngx_str_t *header)
{
    const struct named_value *given = directive->headers.elts;
    for (ngx_uint_t i = 0; i < directive->headers.nelts; i++)
        if (given[i].name.len == header->len && ngx_strncasecmp(given[i].name.data, header->data, header->len) == 0)
            return true;
    return false;
}

/* ---- when the configuration is read ---- */

/* nginx joins the lines of these lists in order, as HTTP requires, so that repeated ones do not contradict each other. */
static bool is_list(const ngx_str_t *name)
{
    return str_is(name, "x_forwarded_for") || str_is(name, "cookie");
}

/* `variable` is a name such as http_x_api_key. */
static char *add_variable(ngx_conf_t *cf, ngx_str_t variable, struct expression *expression)
{
    size_t prefix = strlen("http_");
    u_char *room = ngx_pnalloc(cf->pool, 2 * variable.len);
    if (!room)
        return NGX_CONF_ERROR;
    ngx_strlow(room, variable.data, variable.len);
    ngx_str_t name = { variable.len - prefix, room + prefix }, header = { name.len, room + variable.len };
    if (ngx_strncmp(room, "http_", prefix) != 0 || is_list(&name))
        return NGX_CONF_OK;
    for (size_t i = 0; i < name.len; i++)
        header.data[i] = name.data[i] == '_' ? '-' : name.data[i];
    if (!expression->headers)
        expression->headers = ngx_array_create(cf->pool, 1, sizeof(struct header_variable));
    struct header_variable *to = expression->headers ? ngx_array_push(expression->headers) : NULL;
    ngx_int_t index = to ? ngx_http_get_variable_index(cf, &variable) : NGX_ERROR;
    if (index == NGX_ERROR)
        return NGX_CONF_ERROR;
    *to = (struct header_variable){ name, header, index };
    return NGX_CONF_OK;
}

/* Notes a variable whose value is wrong when weir decides: before the body was read, or before the response. */
static void note_time(ngx_str_t variable, struct expression *expression)
{
    static const struct {
        ngx_str_t name;
        enum body_use body; /* BODY_UNUSED: known after the response */
    } known[] = {
        { ngx_string("content_length"), BODY_LENGTH },
        { ngx_string("request_length"), BODY_RECEIVED },
        { ngx_string("bytes_sent"), BODY_UNUSED },
        { ngx_string("body_bytes_sent"), BODY_UNUSED },
        { ngx_string("upstream_response_length"), BODY_UNUSED },
        { ngx_string("upstream_bytes_received"), BODY_UNUSED },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (variable.len != known[i].name.len || ngx_strncasecmp(variable.data, known[i].name.data, variable.len) != 0)
            continue;
        expression->body = ngx_max(expression->body, known[i].body);
        if (known[i].body == BODY_UNUSED)
            expression->response = variable;
    }
}

static bool is_name_character(u_char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* nginx has checked the text: each `$` is followed by a variable, with braces or without. */
static char *find_variables(ngx_conf_t *cf, ngx_str_t text, struct expression *expression)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] != '$')
            continue;
        size_t from = i + 1 + (i + 1 < text.len && text.data[i + 1] == '{'), to = from;
        while (to < text.len && is_name_character(text.data[to]))
            to++;
        ngx_str_t name = { to - from, text.data + from };
        note_time(name, expression);
        if (name.len > strlen("http_") && add_variable(cf, name, expression) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
        i = to - 1;
    }
    return NGX_CONF_OK;
}

char *expression_compile(ngx_conf_t *cf, ngx_str_t text, struct expression *ret)
{
    ngx_http_compile_complex_value_t compile = { .cf = cf, .value = &text, .complex_value = &ret->value };
    ret->headers = NULL;
    ret->body = BODY_UNUSED;
    ret->response = (ngx_str_t)ngx_null_string;
    return ngx_http_compile_complex_value(&compile) == NGX_OK ? find_variables(cf, text, ret) : NGX_CONF_ERROR;
}

/* ---- for a request ---- */

/* The values of one header in a request. */
struct header_values {
    ngx_uint_t count;
    ngx_str_t first, last; /* of those that are not empty */
    bool differ;
    bool have_blanks; /* one has blanks at its ends */
};

/* Compares as nginx does when it finds the header of a variable. */
static bool is_called(const ngx_str_t *header, const ngx_str_t *name)
{
    if (header->len != name->len)
        return false;
    for (size_t i = 0; i < name->len; i++)
        if ((header->data[i] == '-' ? '_' : ngx_tolower(header->data[i])) != name->data[i])
            return false;
    return true;
}

static struct header_values read_header(const ngx_http_request_t *r, const ngx_str_t *name)
{
    struct header_values values = { 0 };
    ngx_str_t before = ngx_null_string;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next) {
        const ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (!is_called(&header[i].key, name))
                continue;
            ngx_str_t value = trimmed(header[i].value);
            if (values.count++ > 0 && (value.len != before.len || ngx_memcmp(value.data, before.data, value.len) != 0))
                values.differ = true;
            before = value;
            values.have_blanks = values.have_blanks || value.len != header[i].value.len;
            if (values.first.len == 0)
                values.first = value;
            if (value.len > 0)
                values.last = value;
        }
    }
    return values;
}

static ngx_http_variable_value_t variable_of(ngx_str_t value)
{
    ngx_http_variable_value_t variable = { .valid = 1, .not_found = value.len == 0 };
    variable.len = (unsigned)value.len & 0xfffffff;
    variable.data = value.data;
    return variable;
}

/* Replaces the variables' values while the expression is evaluated; everybody else sees nginx's own values. Blanks at the
 * ends of a value are removed here, because in an expression of several variables they would end up in the middle of the
 * result, where weir keeps them. */
static ngx_int_t evaluate_with(ngx_http_request_t *r, const struct expression *expression, ngx_uint_t at, struct zone *zone,
                               const char *attribute, ngx_str_t *ret, struct weir_verdict *ret_verdict)
{
    const struct header_variable *variables = expression->headers ? expression->headers->elts : NULL;
    if (!variables || at == expression->headers->nelts)
        return ngx_http_complex_value(r, (ngx_http_complex_value_t *)&expression->value, ret);
    const struct header_variable *variable = &variables[at];
    struct header_values values = read_header(r, &variable->name);
    if (values.count < 2 && !values.have_blanks)
        return evaluate_with(r, expression, at + 1, zone, attribute, ret, ret_verdict);
    enum weir_take take = WEIR_TAKE_FIRST;
    if (values.differ)
        take = weir_repeated(zone->weir, attribute, str_of(&variable->header), weir_now_us(), ret_verdict);
    if (take == WEIR_TAKE_NONE)
        return NGX_DECLINED;
    ngx_http_variable_value_t before = r->variables[variable->index];
    r->variables[variable->index] = variable_of(take == WEIR_TAKE_LAST ? values.last : values.first);
    ngx_int_t rc = evaluate_with(r, expression, at + 1, zone, attribute, ret, ret_verdict);
    r->variables[variable->index] = before;
    return rc;
}

ngx_int_t expression_value(ngx_http_request_t *r, struct zone *zone, const struct expression *expression,
                           const char *attribute, ngx_str_t *ret, struct weir_verdict *ret_verdict)
{
    ngx_int_t rc = evaluate_with(r, expression, 0, zone, attribute, ret, ret_verdict);
    if (rc == NGX_OK)
        *ret = trimmed(*ret);
    return rc;
}
