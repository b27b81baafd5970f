/* The trace of a request, for the log: the header `traceparent` of W3C Trace Context, version 00. */
#include "module.h"

/* 00-TRACE_ID-SPAN_ID-FLAGS */
enum { ID_AT = 3, ID_LEN = 32, SPAN_AT = 36, SPAN_LEN = 16, FLAGS_AT = 53, FLAGS_LEN = 2, ALL_LEN = 55 };

static bool are_hex_digits(const u_char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    return true;
}

/* Hexadecimal digits that are not all zeros. */
static bool is_id(const u_char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] != '0')
            return are_hex_digits(text, len);
    return false;
}

/* A client sends it, so nothing is accepted but the exact form. */
static bool is_valid(const ngx_str_t *text)
{
    const u_char *at = text->data;
    return text->len == ALL_LEN && memcmp(at, "00-", ID_AT) == 0 && is_id(at + ID_AT, ID_LEN) && at[SPAN_AT - 1] == '-' &&
           is_id(at + SPAN_AT, SPAN_LEN) && at[FLAGS_AT - 1] == '-' && are_hex_digits(at + FLAGS_AT, FLAGS_LEN);
}

void write_trace(const ngx_http_request_t *r, char *text, size_t cap)
{
    static const ngx_str_t name = ngx_string("traceparent");
    const ngx_str_t *found = NULL;
    ngx_uint_t times = 0;
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next) {
        const ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++)
            if (header[i].key.len == name.len && ngx_strncasecmp(header[i].key.data, name.data, name.len) == 0) {
                found = &header[i].value;
                times++;
            }
    }
    if (times != 1 || !is_valid(found))
        return;
    snprintf(text, cap, ", trace_id=%.*s span_id=%.*s trace_flags=%.*s", ID_LEN, (const char *)found->data + ID_AT,
             SPAN_LEN, (const char *)found->data + SPAN_AT, FLAGS_LEN, (const char *)found->data + FLAGS_AT);
}
