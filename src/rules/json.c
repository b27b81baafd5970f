/* Checks whether a text that looks like JSON is JSON. libyaml reads it as YAML, which allows more: a comma before a closing
 * bracket, comments, words without quotes. Other readers of the same file would refuse that. */
#include "rules/node.h"

enum { DEPTH_MAX = 64 }; /* node_read allows fewer levels */

struct checker {
    sv text;
    size_t at;
    struct node_error *error;
};

/* Says what is wrong at `at`. */
static bool wrong(struct checker *c, size_t at, const char *what)
{
    int line = 1;
    size_t column = 1;
    for (size_t i = 0; i < at; i++) {
        bool end = c->text.ptr[i] == '\n', inside = ((unsigned char)c->text.ptr[i] & 0xc0) == 0x80;
        line += end;
        column = end ? 1 : column + !inside; /* in characters */
    }
    node_fail(c->error, line, "not JSON: column %zu: %s; a text that begins with {\" is read as JSON, not as YAML", column,
              what);
    return false;
}

static char next(struct checker *c)
{
    while (c->at < c->text.len && strchr(" \t\r\n", c->text.ptr[c->at]) && c->text.ptr[c->at])
        c->at++;
    return c->at < c->text.len ? c->text.ptr[c->at] : '\0';
}

static bool take(struct checker *c, char wanted)
{
    if (next(c) != wanted)
        return false;
    c->at++;
    return true;
}

static bool check_escape(struct checker *c)
{
    size_t at = c->at++;
    char kind = c->at < c->text.len ? c->text.ptr[c->at] : '\0';
    size_t digits = kind == 'u' ? 4 : 0;
    if (!kind || !strchr("\"\\/bfnrtu", kind))
        return wrong(c, at, "unknown escape");
    c->at++;
    for (; digits > 0; digits--, c->at++)
        if (c->at >= c->text.len || ascii_hex(c->text.ptr[c->at]) < 0)
            return wrong(c, at, "\\u needs four hexadecimal digits");
    return true;
}

/* The quote is next. */
static bool check_string(struct checker *c)
{
    size_t start = c->at++;
    while (c->at < c->text.len && c->text.ptr[c->at] != '"') {
        unsigned char byte = (unsigned char)c->text.ptr[c->at];
        if (byte < ' ')
            return wrong(c, c->at, "a control character in a string; write it as \\n, \\t or \\u00XX");
        if (byte != '\\')
            c->at++;
        else if (!check_escape(c))
            return false;
    }
    if (c->at == c->text.len)
        return wrong(c, start, "the string has no end");
    c->at++;
    return true;
}

/* true, false, null, or a number. */
static bool check_word(struct checker *c)
{
    size_t start = c->at;
    while (c->at < c->text.len && !strchr(" \t\r\n,:[]{}\"", c->text.ptr[c->at]))
        c->at++;
    sv word = sv_of(c->text.ptr + start, c->at - start);
    struct node node = { .kind = NODE_SCALAR, .plain = true, .text = word };
    if (word.len == 0)
        return wrong(c, start, "a value is missing");
    return sv_eq(word, SV("true")) || sv_eq(word, SV("false")) || sv_eq(word, SV("null")) || node_is_json_number(&node) ||
           wrong(c, start, "neither a number nor a string in \"quotes\"");
}

static bool check_value(struct checker *c, unsigned depth);

/* Behind the opening bracket. */
static bool check_items(struct checker *c, char end, unsigned depth)
{
    if (take(c, end))
        return true;
    do {
        if (next(c) == end)
            return wrong(c, c->at, "there is no value between the comma and this bracket; leave the comma out");
        if (end == '}' && next(c) != '"')
            return wrong(c, c->at, "the name of a field is missing, in \"quotes\"");
        if (end == '}' && (!check_string(c) || (!take(c, ':') && !wrong(c, c->at, "a colon is missing"))))
            return false;
        if (!check_value(c, depth + 1))
            return false;
    } while (take(c, ','));
    return take(c, end) || wrong(c, c->at, end == '}' ? "a comma or } is missing" : "a comma or ] is missing");
}

static bool check_value(struct checker *c, unsigned depth)
{
    char first = next(c);
    if (first == '{' || first == '[') {
        c->at++;
        return depth < DEPTH_MAX ? check_items(c, first == '{' ? '}' : ']', depth) : wrong(c, c->at, "too many levels");
    }
    return first == '"' ? check_string(c) : check_word(c);
}

bool json_looks(sv text)
{
    struct checker c = { .text = text };
    take(&c, '[');
    return take(&c, '{') && next(&c) == '"';
}

int json_check(sv text, struct node_error *ret_error)
{
    struct checker c = { .text = text, .error = ret_error };
    if (!check_value(&c, 0))
        return -1;
    next(&c);
    return c.at == text.len || wrong(&c, c.at, "unexpected text after the end") ? 0 : -1;
}
