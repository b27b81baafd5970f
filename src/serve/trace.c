#include "serve/trace.h"

static bool are_hex_digits(sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!(text.ptr[i] >= '0' && text.ptr[i] <= '9') && !(text.ptr[i] >= 'a' && text.ptr[i] <= 'f'))
            return false;
    return true;
}

static bool is_id(sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != '0')
            return are_hex_digits(text);
    return false;
}

bool trace_is_valid(sv text)
{
    return text.len == TRACE_LEN && sv_starts(text, SV("00-")) && is_id(sv_of(text.ptr + TRACE_ID_AT, TRACE_ID_LEN)) &&
           text.ptr[TRACE_SPAN_AT - 1] == '-' && is_id(sv_of(text.ptr + TRACE_SPAN_AT, TRACE_SPAN_LEN)) &&
           text.ptr[TRACE_FLAGS_AT - 1] == '-' && are_hex_digits(sv_from(text, TRACE_FLAGS_AT));
}

sv trace_of_headers(const struct weir_header *headers, size_t count)
{
    static const sv none = { "", 0 };
    sv found = none;
    size_t times = 0;
    for (size_t i = 0; i < count; i++)
        if (sv_eq_nocase(headers[i].name, SV("traceparent"))) {
            found = sv_trim_ows(headers[i].value);
            times++;
        }
    return times == 1 && trace_is_valid(found) ? found : none;
}
