#include "redis/reply.h"

#include "base/clock.h"

enum {
    LINE_MAX_BYTES = 64 << 10, /* of an error or a status */
    NUMBER_MAX_BYTES = 21,     /* "-9223372036854775808" and its kind */
    ELEMENT_MIN_BYTES = 3,     /* "+\r\n" */
};

/* Reads the line after the byte that tells the kind. Returns its length with that byte and the line end, 0 if it is not
 * complete, -1 if it is too long or invalid. */
static ssize_t read_line(sv bytes, size_t max, sv *ret)
{
    sv rest = sv_from(bytes, 1);
    size_t look = rest.len < max + 1 ? rest.len : max + 1;
    const char *end = look > 0 ? memchr(rest.ptr, '\r', look) : NULL;
    if (!end)
        return rest.len > max ? -1 : 0;
    size_t len = (size_t)(end - rest.ptr);
    if (len + 1 == rest.len)
        return 0;
    if (end[1] != '\n' || memchr(rest.ptr, '\n', len))
        return -1;
    *ret = sv_of(rest.ptr, len);
    return (ssize_t)len + 3;
}

static bool read_integer(sv text, int64_t *ret)
{
    bool negative = text.len > 0 && text.ptr[0] == '-';
    uint64_t number;
    if (!sv_u64(sv_from(text, negative), (uint64_t)INT64_MAX + negative, &number))
        return false;
    *ret = negative ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

static ssize_t parse(sv bytes, unsigned depth, struct reply *ret);

/* `n` is the length of the line before. */
static ssize_t parse_bulk(sv bytes, ssize_t n, int64_t len, struct reply *ret)
{
    if (len > REPLY_BYTES_MAX)
        return -1;
    sv rest = sv_from(bytes, (size_t)n);
    size_t size = (size_t)len;
    if (rest.len > size && rest.ptr[size] != '\r')
        return -1;
    if (rest.len < size + 2)
        return 0;
    if (rest.ptr[size + 1] != '\n')
        return -1;
    *ret = (struct reply){ .kind = REPLY_BULK, .text = sv_of(rest.ptr, size) };
    return n + (ssize_t)size + 2;
}

static ssize_t parse_array(sv bytes, ssize_t n, int64_t count, unsigned depth, struct reply *ret)
{
    struct reply element;
    size_t at = (size_t)n;
    if (count > REPLY_BYTES_MAX / ELEMENT_MIN_BYTES || depth == REPLY_NESTING_MAX)
        return -1;
    for (int64_t i = 0; i < count; i++) {
        ssize_t r = parse(sv_from(bytes, at), depth + 1, &element);
        if (r <= 0)
            return r;
        at += (size_t)r;
        if (at > REPLY_BYTES_MAX)
            return -1;
    }
    *ret = (struct reply){ .kind = REPLY_ARRAY, .text = sv_of(bytes.ptr + n, at - (size_t)n), .count = (size_t)count };
    return (ssize_t)at;
}

static ssize_t parse(sv bytes, unsigned depth, struct reply *ret)
{
    sv line;
    int64_t number;
    if (bytes.len == 0)
        return 0;
    char kind = bytes.ptr[0];
    bool text = kind == '-' || kind == '+';
    if (!text && kind != ':' && kind != '$' && kind != '*')
        return -1;
    ssize_t n = read_line(bytes, text ? LINE_MAX_BYTES : NUMBER_MAX_BYTES, &line);
    if (n <= 0)
        return n;
    if (text) {
        *ret = (struct reply){ .kind = kind == '-' ? REPLY_ERROR : REPLY_STATUS, .text = line };
        return n;
    }
    if (!read_integer(line, &number))
        return -1;
    if (kind == ':') {
        *ret = (struct reply){ .kind = REPLY_INTEGER, .integer = number };
        return n;
    }
    if (number == -1) {
        *ret = (struct reply){ .kind = REPLY_NULL };
        return n;
    }
    if (number < 0)
        return -1;
    return kind == '$' ? parse_bulk(bytes, n, number, ret) : parse_array(bytes, n, number, depth, ret);
}

ssize_t reply_parse(sv bytes, struct reply *ret)
{
    return parse(bytes, 0, ret);
}

bool reply_next(struct reply *array, struct reply *ret)
{
    if (array->kind != REPLY_ARRAY || array->count == 0)
        return false;
    ssize_t n = parse(array->text, 1, ret);
    if (n <= 0)
        return false;
    array->text = sv_from(array->text, (size_t)n);
    array->count--;
    return true;
}

bool reply_time(struct reply reply, int64_t *ret_us)
{
    struct reply seconds, micros;
    uint64_t s, us;
    if (!reply_next(&reply, &seconds) || !reply_next(&reply, &micros) ||
        !sv_u64(seconds.text, CLOCK_END_US / US_PER_S, &s) || !sv_u64(micros.text, US_PER_S - 1, &us))
        return false;
    *ret_us = (int64_t)s * US_PER_S + (int64_t)us;
    return true;
}

void command_write_words(struct buf *out, size_t count, const sv *words)
{
    buf_char(out, '*');
    buf_number(out, (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        buf_add(out, SV("\r\n$"));
        buf_number(out, (int64_t)words[i].len);
        buf_add(out, SV("\r\n"));
        buf_add(out, words[i]);
    }
    buf_add(out, SV("\r\n"));
}
