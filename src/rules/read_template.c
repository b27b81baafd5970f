/* Path templates and prefixes. They are compared with normalised paths, so they are brought to that form here, and what no
 * normalised path can have is an error: a rule that never matches helps nobody. */
#include "rules/reader.h"

/* One character of a path at *s, decoded as in a request: what decodes to `/`, `%` or NUL stays encoded, and so does what
 * would mean something else in a template (or end a path, for a prefix). Returns how much was written, 0 for a `%` without
 * its two digits. */
static size_t decode(sv *s, char out[3])
{
    if (s->ptr[0] != '%') {
        out[0] = s->ptr[0];
        *s = sv_from(*s, 1);
        return 1;
    }
    int high = s->len > 2 ? ascii_hex(s->ptr[1]) : -1, low = s->len > 2 ? ascii_hex(s->ptr[2]) : -1;
    if (high < 0 || low < 0)
        return 0;
    *s = sv_from(*s, 3);
    char c = (char)(high << 4 | low);
    out[0] = c;
    if (c != '\0' && !strchr("/%#{}*?", c))
        return 1;
    out[0] = '%';
    out[1] = "0123456789ABCDEF"[high];
    out[2] = "0123456789ABCDEF"[low];
    return 3;
}

static bool has_any(sv s, const char *chars)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] != '\0' && strchr(chars, s.ptr[i]))
            return true;
    return false;
}

static bool is_name(sv s)
{
    if (s.len < 3 || s.ptr[0] != '{' || s.ptr[s.len - 1] != '}')
        return false;
    for (size_t i = 1; i < s.len - 1; i++) {
        char c = ascii_lower(s.ptr[i]);
        if (!ascii_digit(c) && (c < 'a' || c > 'z') && c != '_' && c != '-' && c != '.')
            return false;
    }
    return true;
}

/* NULL, or what is wrong with one segment as it is written. */
static const char *segment_fault(sv s, bool last, bool prefix)
{
    if (has_any(s, "?"))
        return "a path must not contain `?`: the query is removed before matching";
    if (prefix)
        return has_any(s, "#{}*") ? "a prefix must not contain `#`, `*` or `{name}`: it is taken literally" : NULL;
    if (sv_eq(s, SV("*")))
        return last ? NULL
                    : "`*` stands for the rest of the path, so it must be the last segment; use `{name}` for one segment";
    if (sv_eq(s, SV("#")) || is_name(s))
        return NULL;
    if (has_any(s, "#{}*"))
        return "`#`, `{name}` and a final `*` stand for whole segments; use { regex: … } for parts of one";
    return NULL;
}

/* Writes a segment in its final form. NULL, or what is wrong. */
static const char *add_segment(sv s, char *out, size_t *length)
{
    size_t start = *length;
    for (sv rest = s; rest.len > 0;) {
        size_t n = decode(&rest, out + *length);
        if (n == 0)
            return "`%` must be followed by two hexadecimal digits; `%` itself is `%25`";
        if (out[*length] == ';')
            return "a path must not contain `;`, encoded or not: parameters are removed before matching";
        *length += n;
    }
    sv made = sv_of(out + start, *length - start);
    if (sv_eq(made, SV(".")) || sv_eq(made, SV("..")))
        return "a path must not contain `.` or `..` segments: they are resolved before matching";
    return NULL;
}

/* NULL with the final form in `out`, or what is wrong. */
static const char *normalise(struct reader *r, const struct node *node, bool prefix, char *out, size_t *ret_length)
{
    sv rest = node->text;
    if (rest.ptr[0] != '/')
        return "a path must begin with `/`";
    while (rest.len > 0 && rest.ptr[rest.len - 1] == '/')
        rest.len--;
    const char *fault = NULL;
    size_t length = 0;
    while (rest.len > 0 && !fault) {
        sv segment = sv_cut(&rest, '/');
        if (segment.len == 0)
            continue;
        fault = segment_fault(segment, rest.len == 0, prefix);
        if (!fault && !prefix && segment.ptr[0] == ':' && segment.len > 1)
            report_advice(r, node->line, "%s is taken literally; write {name} for any one segment", shown_text(r, segment));
        out[length++] = '/';
        fault = fault ? fault : add_segment(segment, out, &length);
    }
    if (length == 0 && prefix)
        return "there is nothing to strip";
    if (length == 0)
        out[length++] = '/';
    *ret_length = length;
    return fault;
}

static void read_normalised(struct reader *r, const struct node *node, bool prefix, sv *ret)
{
    char out[RULE_PATH_MAX + 1];
    size_t length;
    if (!check_text(r, node, 1, RULE_PATH_MAX))
        return;
    const char *fault = normalise(r, node, prefix, out, &length);
    if (fault)
        report_error(r, node->line, "%s: %s", shown_node(r, node), fault);
    else
        *ret = reader_copy(r, sv_of(out, length));
}

void read_template(struct reader *r, const struct node *node, void *ret)
{
    read_normalised(r, node, false, ret);
}

void read_prefix(struct reader *r, const struct node *node, void *ret)
{
    read_normalised(r, node, true, ret);
}
