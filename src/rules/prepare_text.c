/* Prepares a text for libyaml. libyaml takes JSON for YAML, which it nearly is; here is the rest:
 *   - characters beyond the basic plane are two escapes in JSON ("\ud83d\ude00") and one in YAML ("\U0001f600");
 *   - some characters that may stand in a JSON string as they are would be line ends to YAML, or nothing that it accepts;
 *   - blanks before the first bracket may be tabs. */
#include "base/buf.h"
#include "base/format.h"
#include "base/utf8.h"
#include "rules/node.h"
#include "rules/rules.h"

int node_fail(struct node_error *error, int line, const char *format, ...)
{
    FORMAT_ARGUMENTS(error->text, format);
    error->line = line;
    return -1;
}

static int line_at(sv text, size_t offset)
{
    int line = 1;
    for (size_t i = 0; i < offset; i++)
        line += text.ptr[i] == '\n';
    return line;
}

/* Bounds for two things that make libyaml very slow: it compares each %TAG with all before it, and at each word of a text
 * it clears a buffer as long as the longest run of blanks before. */
struct slow {
    size_t blanks; /* in a row */
    size_t directives;
    bool line_start;
};

static const char *slow_fault(struct slow *slow, char c)
{
    bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    slow->blanks = blank ? slow->blanks + 1 : 0;
    slow->directives += slow->line_start && c == '%';
    slow->line_start = c == '\n';
    if (slow->blanks > RULES_BLANKS_MAX)
        return "too many blanks and line breaks in a row";
    return slow->directives > RULES_DIRECTIVES_MAX ? "too many YAML directives (lines that begin with %)" : NULL;
}

int text_check(sv text, struct node_error *ret_error)
{
    struct slow slow = { .line_start = true };
    if (text.len > RULES_BYTES_MAX)
        return node_fail(ret_error, 0, "%zu bytes are too many; at most %d are read", text.len, RULES_BYTES_MAX);
    for (sv rest = text; rest.len > 0;) {
        unsigned byte = (unsigned char)rest.ptr[0];
        size_t n = byte < 0x80 ? 1 : utf8_length(rest), offset = text.len - rest.len;
        const char *fault = slow_fault(&slow, rest.ptr[0]);
        if (n == 0)
            return node_fail(ret_error, line_at(text, offset), "the byte 0x%02x is not UTF-8; save the file as UTF-8",
                             byte);
        if (byte == 0)
            return node_fail(ret_error, line_at(text, offset), "contains a NUL byte; rules are text in YAML or JSON");
        if (fault)
            return node_fail(ret_error, line_at(text, offset), "%s", fault);
        rest = sv_from(rest, n);
    }
    return 0;
}

/* The number of an escape's four digits at s, or -1. */
static int hex4(sv s)
{
    int value = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < s.len ? ascii_hex(s.ptr[i]) : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* "\ud83d\ude00" at the start of s: its character, else 0. */
static unsigned surrogate_pair(sv s)
{
    if (s.len < 12 || s.ptr[1] != 'u' || s.ptr[6] != '\\' || s.ptr[7] != 'u')
        return 0;
    int high = hex4(sv_from(s, 2)), low = hex4(sv_from(s, 8));
    if (high < 0xd800 || high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return 0;
    return 0x10000 + ((unsigned)(high - 0xd800) << 10) + (unsigned)(low - 0xdc00);
}

/* The character at the start of s if YAML would not take it literally, else 0. */
static unsigned needs_escape(sv s, size_t length)
{
    unsigned c = length ? utf8_code(s, length) : 0;
    bool odd = c == 0x7f || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff;
    return odd || (length == 2 && c < 0xa0) ? c : 0;
}

/* The string whose opening quote was just written; returns what follows its closing one. */
static sv convert_string(sv s, struct buf *out)
{
    while (s.len > 0) {
        size_t length = utf8_length(s);
        unsigned pair = s.ptr[0] == '\\' ? surrogate_pair(s) : 0;
        unsigned escape = needs_escape(s, length);
        if (pair) {
            buf_printf(out, "\\U%08x", pair);
            s = sv_from(s, 12);
        } else if (escape) {
            buf_printf(out, "\\u%04x", escape);
            s = sv_from(s, length);
        } else if (s.ptr[0] == '\\' && s.len > 1) {
            length = 1 + utf8_length(sv_from(s, 1));
            buf_add(out, sv_of(s.ptr, length));
            s = sv_from(s, length);
        } else {
            bool end = s.ptr[0] == '"';
            buf_add(out, sv_of(s.ptr, length));
            s = sv_from(s, length);
            if (end)
                break;
        }
    }
    return s;
}

/* As far as the text is JSON: outside of strings that has neither `'` nor `#`, and what follows one is left as it is. */
static void convert_json(sv s, struct buf *out)
{
    while (s.len > 0) {
        size_t n = 0;
        while (n < s.len && s.ptr[n] != '"' && s.ptr[n] != '\'' && s.ptr[n] != '#')
            n++;
        bool string = n < s.len && s.ptr[n] == '"';
        size_t take = string ? n + 1 : s.len;
        buf_add(out, sv_of(s.ptr, take));
        s = sv_from(s, take);
        if (string)
            s = convert_string(s, out);
    }
}

int text_prepare(sv text, struct buf *scratch, sv *ret, struct node_error *ret_error)
{
    sv json = sv_trim(text);
    if (json.len > 0 && (json.ptr[0] == '{' || json.ptr[0] == '[')) {
        for (const char *p = text.ptr; p < json.ptr; p++)
            if (*p == '\n')
                buf_char(scratch, '\n');
        convert_json(json, scratch);
        if (scratch->failed) {
            ret_error->no_memory = true;
            return -1;
        }
        text = buf_sv(scratch);
    }
    *ret = text;
    return 0;
}
