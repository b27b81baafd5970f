#include "serve/resp.h"

#include "base/format.h"

struct cursor {
    char *at, *end;
    const char *start;
    size_t most; /* bytes of the whole command */
    struct resp_command *command;
};

static __attribute__((format(printf, 2, 3))) enum resp_parsed wrong(struct resp_command *c, const char *format, ...)
{
    FORMAT_ARGUMENTS(c->wrong, format);
    return RESP_WRONG;
}

/* ---- arrays of strings ---- */

enum { DIGITS_MAX = 10 }; /* more than any number here may have, and few enough not to overflow */

/* "123\r\n", or a number below zero. Inlined: there is one before each word. */
static inline __attribute__((always_inline)) enum resp_parsed read_number(struct cursor *cursor, const char *what,
                                                                          int64_t *ret)
{
    const char *p = cursor->at, *end = cursor->end;
    bool negative = p < end && *p == '-';
    p += negative;
    int64_t n = 0;
    const char *digits = p;
    const char *last = end - p > DIGITS_MAX ? p + DIGITS_MAX + 1 : end;
    for (; p < last && ascii_digit(*p); p++)
        n = n * 10 + (*p - '0');
    if (p < end && (p == digits || *p != '\r'))
        return wrong(cursor->command, "invalid %s length", what);
    if (end - p < 2)
        return RESP_PARTIAL;
    if (p[1] != '\n')
        return wrong(cursor->command, "invalid %s length", what);
    cursor->at += p + 2 - cursor->at;
    *ret = negative ? -n : n;
    return RESP_WHOLE;
}

static enum resp_parsed unexpected(struct resp_command *c, unsigned char got)
{
    if (got >= 0x20 && got < 0x7f)
        return wrong(c, "expected '$', got '%c'", got);
    return wrong(c, "expected '$', got byte 0x%02x", got);
}

/* "$3\r\nfoo\r\n" */
static enum resp_parsed read_string(struct cursor *cursor, sv *ret)
{
    int64_t len = 0;
    if (cursor->at == cursor->end)
        return RESP_PARTIAL;
    if (*cursor->at != '$')
        return unexpected(cursor->command, (unsigned char)*cursor->at);
    cursor->at++;
    enum resp_parsed r = read_number(cursor, "bulk", &len);
    if (r != RESP_WHOLE)
        return r;
    if (len < 0)
        return wrong(cursor->command, "invalid bulk length");
    if ((uint64_t)len + 2 + (size_t)(cursor->at - cursor->start) > cursor->most)
        return wrong(cursor->command, "invalid bulk length: the whole command is too large");
    if (cursor->end - cursor->at < len + 2)
        return RESP_PARTIAL;
    *ret = sv_of(cursor->at, (size_t)len);
    cursor->at += len + 2;
    if (cursor->at[-2] != '\r' || cursor->at[-1] != '\n')
        return wrong(cursor->command, "expected a line end after a bulk string");
    return RESP_WHOLE;
}

static enum resp_parsed read_array(char *bytes, size_t len, size_t most, struct resp_command *ret)
{
    struct cursor cursor = { bytes + 1, bytes + len, bytes, most, ret };
    int64_t count = 0;
    enum resp_parsed r = read_number(&cursor, "multibulk", &count);
    if (r != RESP_WHOLE)
        return r;
    if (count > RESP_ARGS_MAX)
        return wrong(ret, "invalid multibulk length: at most %d", RESP_ARGS_MAX);
    for (int64_t i = 0; i < count; i++) {
        r = read_string(&cursor, &ret->args[i]);
        if (r != RESP_WHOLE)
            return r;
    }
    ret->count = count > 0 ? (size_t)count : 0;
    ret->bytes = (size_t)(cursor.at - bytes);
    return RESP_WHOLE;
}

/* ---- lines of text ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* No command here is called like a method of HTTP, or has a colon in its name. */
static bool is_http(sv line)
{
    static const sv methods[] = { SV("GET"),     SV("HEAD"),    SV("POST"),  SV("PUT"),   SV("DELETE"),
                                  SV("CONNECT"), SV("OPTIONS"), SV("TRACE"), SV("PATCH"), SV("PRI") };
    size_t n = 0;
    while (n < line.len && !is_blank(line.ptr[n]) && line.ptr[n] != ':' && line.ptr[n] != '\r' && line.ptr[n] != '\n')
        n++;
    if (n == line.len)
        return false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (sv_eq_nocase(sv_of(line.ptr, n), methods[i]))
            return true;
    return line.ptr[n] == ':';
}

/* The character after a backslash between double quotes. */
static char unescape(struct cursor *cursor)
{
    static const char from[] = "nrtba", to[] = "\n\r\t\b\a";
    char *p = cursor->at;
    if (*p == 'x' && cursor->end - p > 2 && ascii_hex(p[1]) >= 0 && ascii_hex(p[2]) >= 0) {
        cursor->at += 3;
        return (char)(ascii_hex(p[1]) * 16 + ascii_hex(p[2]));
    }
    cursor->at++;
    const char *found = memchr(from, *p, sizeof from - 1);
    return found ? to[found - from] : *p;
}

/* A word in quotes, of which the first was read. A blank or the end has to follow the last one. */
static bool read_quoted(struct cursor *cursor, char quote, char **to)
{
    while (cursor->at < cursor->end) {
        char c = *cursor->at++;
        if (c == quote)
            return cursor->at == cursor->end || is_blank(*cursor->at);
        if (c == '\\' && cursor->at < cursor->end && (quote == '"' || *cursor->at == '\''))
            c = quote == '"' ? unescape(cursor) : *cursor->at++;
        *(*to)++ = c;
    }
    return false;
}

/* Quotes may begin within a word, as they may for Redis. */
static bool read_word(struct cursor *cursor, sv *ret)
{
    char *start = cursor->at, *to = start;
    while (cursor->at < cursor->end && !is_blank(*cursor->at)) {
        char c = *cursor->at++;
        if (c == '"' || c == '\'') {
            if (!read_quoted(cursor, c, &to))
                return false;
        } else {
            *to++ = c;
        }
    }
    *ret = sv_of(start, (size_t)(to - start));
    return true;
}

static enum resp_parsed split_line(struct cursor *cursor)
{
    struct resp_command *c = cursor->command;
    for (;;) {
        while (cursor->at < cursor->end && is_blank(*cursor->at))
            cursor->at++;
        if (cursor->at == cursor->end)
            return RESP_WHOLE;
        if (c->count == RESP_ARGS_MAX)
            return wrong(c, "too many words in an inline request: at most %d", RESP_ARGS_MAX);
        if (!read_word(cursor, &c->args[c->count++]))
            return wrong(c, "unbalanced quotes in request");
    }
}

static bool has_control(sv line)
{
    for (size_t i = 0; i < line.len; i++)
        if (((unsigned char)line.ptr[i] < 0x20 && line.ptr[i] != '\t') || line.ptr[i] == 0x7f)
            return true;
    return false;
}

static enum resp_parsed read_line(char *bytes, size_t len, size_t most, struct resp_command *ret)
{
    size_t longest = most < RESP_INLINE_MAX ? most : RESP_INLINE_MAX, scanned = len < longest ? len : longest;
    /* Every command's name begins with a letter: whatever else this is, it is not for us. */
    if (!ascii_letter(bytes[0]) && bytes[0] != '\r' && bytes[0] != '\n')
        return wrong(ret, "expected '*' or the name of a command, got byte 0x%02x", (unsigned char)bytes[0]);
    if (is_http(sv_of(bytes, scanned)))
        return RESP_HTTP;
    char *end = memchr(bytes, '\n', scanned);
    if (!end)
        return len >= longest ? wrong(ret, "too big inline request") : RESP_PARTIAL;
    ret->bytes = (size_t)(end - bytes) + 1;
    if (end > bytes && end[-1] == '\r')
        end--;
    if (has_control(sv_of(bytes, (size_t)(end - bytes))))
        return wrong(ret, "a control character in an inline request");
    return split_line(&(struct cursor){ bytes, end, bytes, longest, ret });
}

enum resp_parsed resp_parse(char *bytes, size_t len, size_t most, struct resp_command *ret)
{
    ret->count = ret->bytes = 0;
    if (len == 0)
        return RESP_PARTIAL;
    return __builtin_expect(bytes[0] == '*', 1) ? read_array(bytes, len, most, ret) : read_line(bytes, len, most, ret);
}
