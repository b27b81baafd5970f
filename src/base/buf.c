#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}

void buf_over(struct buf *b, char *room, size_t size)
{
    *b = (struct buf){ .ptr = room, .cap = size, .max = size - 1 };
    room[0] = '\0';
}

void buf_done(struct buf *b)
{
    if (!b)
        return;
    free(b->ptr);
    b->ptr = NULL;
    b->len = b->cap = 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->ptr)
        b->ptr[0] = '\0';
}

/* Makes room for n bytes and a NUL. */
static bool reserve(struct buf *b, size_t n)
{
    if (b->failed || n > b->max || b->len > b->max - n)
        goto fail;
    if (b->len + n + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < b->len + n + 1)
            cap *= 2;
        char *ptr = realloc(b->ptr, cap);
        if (!ptr)
            goto fail;
        b->ptr = ptr;
        b->cap = cap;
    }
    return true;
fail:
    b->failed = true;
    return false;
}

void buf_trim(struct buf *b)
{
    char *ptr = b->ptr && b->cap > b->len + 1 ? realloc(b->ptr, b->len + 1) : NULL;
    if (!ptr)
        return;
    b->ptr = ptr;
    b->cap = b->len + 1;
}

char *buf_room(struct buf *b, size_t most)
{
    return reserve(b, most) ? b->ptr + b->len : NULL;
}

void buf_add(struct buf *b, sv s)
{
    if (!reserve(b, s.len))
        return;
    if (s.len)
        memcpy(b->ptr + b->len, s.ptr, s.len);
    b->len += s.len;
    b->ptr[b->len] = '\0';
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, sv_of(&c, 1));
}

char *number_put(char *to, int64_t number)
{
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    unsigned digits = 1;
    for (uint64_t power = 10; digits < 19 && rest >= power; power *= 10)
        digits++;
    if (number < 0)
        *to++ = '-';
    for (unsigned i = digits; i-- > 0; rest /= 10)
        to[i] = (char)('0' + rest % 10);
    return to + digits;
}

void buf_number(struct buf *b, int64_t number)
{
    char digits[NUMBER_MAX];
    buf_add(b, sv_of(digits, (size_t)(number_put(digits, number) - digits)));
}

/* Mostly there is room, and it is written once. */
void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    size_t room = b->cap - b->len;
    if (b->failed)
        return;
    va_start(args, format);
    int n = vsnprintf(room ? b->ptr + b->len : NULL, room, format, args);
    va_end(args);
    if (n < 0 || !reserve(b, (size_t)n)) {
        b->failed = true;
        if (room)
            b->ptr[b->len] = '\0';
        return;
    }
    if ((size_t)n >= room) {
        va_start(args, format);
        vsnprintf(b->ptr + b->len, (size_t)n + 1, format, args);
        va_end(args);
    }
    b->len += (size_t)n;
}

/* Bytes at the start of s that stand for themselves in a JSON string. */
static size_t plain(sv s)
{
    size_t n = 0;
    while (n < s.len && s.ptr[n] >= ' ' && s.ptr[n] < 0x7f && s.ptr[n] != '"' && s.ptr[n] != '\\')
        n++;
    return n;
}

/* Escapes the character at the start of s, which is not one of those. Returns the number of its bytes. */
static size_t add_escaped(struct buf *b, sv s)
{
    size_t n = utf8_length(s);
    uint32_t code = n ? utf8_code(s, n) : 0xfffd;
    if (code == '"' || code == '\\')
        buf_printf(b, "\\%c", (char)code);
    else if (code == '\n')
        buf_add(b, SV("\\n"));
    else if (code == '\t')
        buf_add(b, SV("\\t"));
    else if (n == 0)
        buf_add(b, SV("\xef\xbf\xbd"));
    else if (utf8_shown(s, n))
        buf_add(b, sv_of(s.ptr, n));
    else if (code < 0x10000)
        buf_printf(b, "\\u%04x", code);
    else
        buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
    return n ? n : 1;
}

void buf_json(struct buf *b, sv s)
{
    buf_char(b, '"');
    while (s.len > 0) {
        size_t n = plain(s);
        if (n > 0)
            buf_add(b, sv_of(s.ptr, n));
        else
            n = add_escaped(b, s);
        s = sv_from(s, n);
    }
    buf_char(b, '"');
}
