#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "serve/resp.h"

enum { OUT_FIRST = 16 * 1024 };

void resp_out_done(struct resp_out *out)
{
    if (out)
        free(out->ptr);
}

char *resp_room(struct resp_out *out, size_t bytes)
{
    if (__builtin_expect(out->cap - out->len < bytes, 0)) {
        size_t cap = out->cap ? out->cap : OUT_FIRST;
        while (cap - out->len < bytes)
            cap *= 2;
        char *ptr = realloc(out->ptr, cap);
        if (!ptr) {
            out->failed = true;
            return NULL;
        }
        out->ptr = ptr;
        out->cap = cap;
    }
    return out->ptr + out->len;
}

void resp_raw(struct resp_out *out, sv bytes)
{
    char *to = resp_room(out, bytes.len);
    if (!to || bytes.len == 0)
        return;
    memcpy(to, bytes.ptr, bytes.len);
    out->len += bytes.len;
}

char *resp_put_number(char *to, char type, int64_t n)
{
    *to++ = type;
    to = number_put(to, n);
    memcpy(to, "\r\n", 2);
    return to + 2;
}

static void put_number(struct resp_out *out, char type, int64_t n)
{
    char *to = resp_room(out, RESP_NUMBER_MAX);
    if (to)
        out->len += (size_t)(resp_put_number(to, type, n) - to);
}

/* Makes a line of text, in place: what would end it becomes a blank, and what else is not to be shown (clients see their
 * own words in errors) "?". */
static void end_line(struct resp_out *out, char *text, size_t len)
{
    size_t to = 0;
    for (size_t from = 0; from < len;) {
        sv rest = sv_of(text + from, len - from);
        size_t n = utf8_length(rest);
        if (rest.ptr[0] == '\r' || rest.ptr[0] == '\n')
            text[to++] = ' ';
        else if (!utf8_shown(rest, n))
            text[to++] = '?';
        else
            for (size_t i = 0; i < n; i++)
                text[to++] = text[from + i];
        from += n ? n : 1;
    }
    memcpy(text + to, "\r\n", 2);
    out->len += to + 3;
}

void resp_status(struct resp_out *out, const char *text)
{
    size_t len = strlen(text);
    char *to = resp_room(out, len + 3);
    if (!to)
        return;
    to[0] = '+';
    memcpy(to + 1, text, len);
    end_line(out, to + 1, len);
}

void resp_error(struct resp_out *out, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t len = n > 0 ? (size_t)n : 0;
    char *to = resp_room(out, len + 3);
    if (to) {
        to[0] = '-';
        vsnprintf(to + 1, len + 1, format, again);
        while (len > 0 && (to[len] == '\r' || to[len] == '\n'))
            len--;
        end_line(out, to + 1, len);
    }
    va_end(again);
}

void resp_integer(struct resp_out *out, int64_t n)
{
    put_number(out, ':', n);
}

void resp_bulk(struct resp_out *out, sv s)
{
    put_number(out, '$', (int64_t)s.len);
    resp_raw(out, s);
    resp_raw(out, SV("\r\n"));
}

void resp_text(struct resp_out *out, const char *s)
{
    resp_bulk(out, weir_str(s));
}

void resp_pair(struct resp_out *out, const char *name, const char *value)
{
    resp_text(out, name);
    resp_text(out, value);
}

void resp_null(struct resp_out *out)
{
    resp_raw(out, out->protocol == 3 ? SV("_\r\n") : SV("$-1\r\n"));
}

void resp_array(struct resp_out *out, size_t count)
{
    put_number(out, '*', (int64_t)count);
}

void resp_map(struct resp_out *out, size_t count)
{
    if (out->protocol == 3)
        put_number(out, '%', (int64_t)count);
    else
        resp_array(out, 2 * count);
}
