/* Reads most texts without libyaml, which takes ten times as long: JSON, and the YAML that people and programs usually
 * write. That is mappings and lists by indentation or in brackets, words and texts in quotes that end in their line, and
 * comments. Everything else (anchors, tags, blocks of text, texts over several lines, tabs, mistakes) makes it give up:
 * then libyaml reads the text from its beginning, and says what is wrong with it. So nothing is refused here, and what is
 * read here is read as libyaml reads it (tests/rules/quick.c compares the two). */
#include "base/utf8.h"
#include "rules/node.h"
#include "rules/rules.h"

enum { KEY_MAX = 1000 }; /* libyaml: 1024 characters, from the key to its colon */

struct quick {
    const char *at, *end;
    struct arena *arena;
    int line;
    int column;      /* of `at`, where a line begins; -1: the end of the text */
    bool in_flow;    /* the whole text is in brackets: blanks may be tabs, too */
    uint64_t weight; /* of all nodes */
};

static struct node *new_node(struct quick *q, enum node_kind kind)
{
    struct node *node = ++q->weight > RULES_VALUES_MAX ? NULL : ARENA_NEW(q->arena, struct node);
    if (node)
        *node = (struct node){ .kind = (uint8_t)kind, .line = q->line, .weight = 1 };
    return node;
}

static char peek(const struct quick *q)
{
    return q->at < q->end ? *q->at : '\0';
}

/* The length of a character that stands for itself; 0: it is a control character, ends a line, or is one that YAML wants to
 * be escaped. The text is UTF-8. */
static inline size_t ordinary(const struct quick *q, const char *p)
{
    unsigned char c = (unsigned char)*p;
    if (c < 0x80)
        return c >= ' ' && c < 0x7f;
    sv rest = sv_of(p, (size_t)(q->end - p));
    size_t n = utf8_length(rest);
    uint32_t code = n ? utf8_code(rest, n) : 0;
    bool odd = code < 0xa0 || code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe || code == 0xffff;
    return odd ? 0 : n;
}

void node_close(struct node *node)
{
    unsigned height = 0;
    uint64_t weight = 1;
    for (const struct node_item *item = node->first; item; item = item->next) {
        const struct node *both[] = { item->key, item->value };
        for (int i = 0; i < 2; i++) {
            weight += both[i] ? both[i]->weight : 0;
            if (both[i] && both[i]->height > height)
                height = both[i]->height;
        }
    }
    node->height = (uint8_t)(height + 1);
    node->weight = (uint32_t)weight; /* within RULES_VALUES_MAX */
}

/* ---- scalars ---- */

static size_t write_utf8(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* The character of the escape at `at`, which is behind the backslash. 0: give up. */
static uint32_t read_escape(struct quick *q)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char kind = peek(q);
    size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    const char *name = kind ? strchr(names, kind) : NULL;
    uint32_t code = name ? (unsigned char)meanings[name - names] : 0;
    q->at += q->at < q->end;
    for (size_t i = 0; i < digits; i++, q->at++) {
        int digit = q->at < q->end ? ascii_hex(*q->at) : -1;
        if (digit < 0 || code > 0xffffff)
            return 0;
        code = code * 16 + (uint32_t)digit;
    }
    return code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : code;
}

/* Goes on at `from`, where the first backslash or the first two single quotes are. `room` is enough: no escape is shorter
 * than what it stands for. */
static bool unescape(struct quick *q, const char *start, char quote, char *room, size_t *ret)
{
    size_t used = (size_t)(q->at - start);
    memcpy(room, start, used);
    while (q->at < q->end && (*q->at != quote || (quote == '\'' && q->at + 1 < q->end && q->at[1] == quote))) {
        size_t n = ordinary(q, q->at);
        if (n == 0)
            return false;
        if (*q->at == '\\' && quote == '"') {
            q->at++;
            uint32_t code = read_escape(q);
            if (code == 0)
                return false;
            used += write_utf8(code, room + used);
            continue;
        }
        memcpy(room + used, q->at, n);
        used += n;
        q->at += *q->at == quote ? 2 : n;
    }
    *ret = used;
    return q->at < q->end;
}

/* If the whole text is in brackets, it is prepared for libyaml as if it were JSON: whatever comes after this quote may be
 * changed, although it does not begin a text here. */
static bool is_prepared(const struct quick *q, char c)
{
    return q->in_flow && c == '"';
}

static size_t quoted_length(const char *start, const char *end, char quote)
{
    const char *p = start;
    while (p < end && *p != '\n' && *p != quote)
        p += *p == '\\' && quote == '"' ? 2 : 1;
    return (size_t)((p < end ? p : end) - start);
}

static bool read_quoted(struct quick *q, sv *ret)
{
    char quote = *q->at++;
    const char *start = q->at;
    size_t n;
    while (q->at < q->end && *q->at != quote && *q->at != '\\' && (n = ordinary(q, q->at)) > 0)
        q->at += n;
    if (q->at == q->end)
        return false;
    bool twice = quote == '\'' && *q->at == quote && q->at + 1 < q->end && q->at[1] == quote;
    if (*q->at == quote && !twice) {
        *ret = arena_copy(q->arena, sv_of(start, (size_t)(q->at++ - start)));
        return ret->ptr;
    }
    if (*q->at != '\\' && !twice)
        return false;
    /* Single quotes: texts end at quotes that stand alone, so that the rest of the line has room for all of them. */
    const char *line_end = memchr(start, '\n', (size_t)(q->end - start));
    size_t length = quote == '"' ? quoted_length(start, q->end, quote) : (size_t)((line_end ? line_end : q->end) - start);
    char *room = arena_alloc(q->arena, length + 1);
    size_t used = 0;
    if (!room || !unescape(q, start, quote, room, &used))
        return false;
    room[used] = '\0';
    q->at++;
    *ret = sv_of(room, used);
    return true;
}

/* Whether a word may begin here. */
static bool begins_plain(const struct quick *q)
{
    char c = peek(q), next = q->at + 1 < q->end ? q->at[1] : '\n';
    sv rest = sv_of(q->at, (size_t)(q->end - q->at));
    if (c == '-')
        return !strchr(" \n\t\r,[]{}", next) && !sv_starts(rest, SV("---"));
    return c && !strchr("?:,[]{}#&*!|>'\"%@` \n\t\r", c) && !sv_starts(rest, SV("..."));
}

static bool read_plain(struct quick *q, bool flow, sv *ret)
{
    const char *start = q->at, *last = q->at; /* behind the last character that is not a blank */
    if (!begins_plain(q))
        return false;
    while (q->at < q->end && *q->at != '\n') {
        char c = *q->at, next = q->at + 1 < q->end ? q->at[1] : '\n';
        if (c == ':' && (next == ' ' || next == '\n'))
            break;
        if (c == '#' && q->at[-1] == ' ')
            break;
        if (flow && ((c == ':' && strchr(",?[]{}\t\r", next)) || c == '?'))
            return false;
        if (is_prepared(q, c))
            return false;
        if ((flow && strchr(",[]{}", c)) || (q->in_flow && (c == '\t' || c == '\r')))
            break;
        size_t n = ordinary(q, q->at);
        if (n == 0)
            return false;
        q->at += n;
        last = c == ' ' ? last : q->at;
    }
    q->at = last;
    *ret = arena_copy(q->arena, sv_of(start, (size_t)(last - start)));
    return ret->ptr;
}

static struct node *read_scalar(struct quick *q, bool flow)
{
    struct node *node = new_node(q, NODE_SCALAR);
    char c = peek(q);
    if (!node)
        return NULL;
    node->plain = c != '"' && c != '\'';
    if (!(node->plain ? read_plain(q, flow, &node->text) : read_quoted(q, &node->text)))
        return NULL;
    bool has_quote = c == '\'' && node->text.len > 0 && memchr(node->text.ptr, '"', node->text.len);
    return has_quote && is_prepared(q, '"') ? NULL : node;
}

/* ---- in brackets ---- */

static bool add_item(struct quick *q, struct node *node, struct node_item ***tail, const struct node *key,
                     const struct node *value)
{
    struct node_item *item = value && (node->kind == NODE_LIST || (key && node->count < RULES_FIELDS_MAX))
                                 ? ARENA_NEW(q->arena, struct node_item)
                                 : NULL;
    if (!item)
        return false;
    *item = (struct node_item){ .key = key, .value = value };
    **tail = item;
    *tail = &item->next;
    node->count++;
    return true;
}

static void skip_spaces(struct quick *q)
{
    while (q->at < q->end && *q->at == ' ')
        q->at++;
}

/* Blanks and line ends. What else there may be there stops whatever follows. */
static void skip_flow(struct quick *q)
{
    for (; q->at < q->end; q->at++) {
        bool return_before_line = *q->at == '\r' && q->at + 1 < q->end && q->at[1] == '\n';
        if (*q->at == '\n')
            q->line++;
        else if (*q->at != ' ' && !(q->in_flow && (*q->at == '\t' || return_before_line)))
            return;
    }
}

/* Takes the colon behind a key that began at `start`, in the same line. A word needs a blank behind it. */
static bool take_colon(struct quick *q, const char *start, bool apart)
{
    const char *before = q->at;
    skip_spaces(q);
    bool ends = q->at + 1 >= q->end || q->at[1] == ' ' || q->at[1] == '\n';
    if (peek(q) == ':' && q->at - start <= KEY_MAX && (ends || !apart)) {
        q->at++;
        return true;
    }
    q->at = before;
    return false;
}

static const struct node *read_key(struct quick *q, bool flow)
{
    const char *start = q->at;
    const struct node *key = read_scalar(q, flow);
    return key && take_colon(q, start, !flow || key->plain) ? key : NULL;
}

static struct node *read_flow(struct quick *q, unsigned depth);

static struct node *read_value(struct quick *q, unsigned depth)
{
    return peek(q) == '{' || peek(q) == '[' ? read_flow(q, depth) : read_scalar(q, true);
}

static struct node *read_flow(struct quick *q, unsigned depth)
{
    bool map = peek(q) == '{';
    char close = map ? '}' : ']';
    struct node *node = depth < RULES_NESTING_MAX ? new_node(q, map ? NODE_MAP : NODE_LIST) : NULL;
    if (!node)
        return NULL;
    struct node_item **tail = &node->first;
    q->at++;
    skip_flow(q);
    if (peek(q) == close) {
        q->at++;
        node_close(node);
        return node;
    }
    for (;;) {
        const struct node *key = map ? read_key(q, true) : NULL;
        skip_flow(q);
        if ((map && !key) || !add_item(q, node, &tail, key, read_value(q, depth + 1)))
            return NULL;
        skip_flow(q);
        char c = peek(q);
        q->at += q->at < q->end;
        if (c == close)
            break;
        if (c != ',')
            return NULL;
        skip_flow(q);
    }
    node_close(node);
    return node;
}

/* ---- by indentation ---- */

/* Goes to the next line that says something; `begins`: `at` is at the beginning of one, and not behind a value. */
static bool next_line(struct quick *q, bool begins)
{
    for (;; begins = true) {
        const char *start = q->at;
        skip_spaces(q);
        if (peek(q) == '#') {
            size_t n = begins || q->at[-1] == ' ';
            while (n > 0 && q->at < q->end && *q->at != '\n' && (n = ordinary(q, q->at)) > 0)
                q->at += n;
            if (n == 0)
                return false;
        }
        if (q->at < q->end && *q->at != '\n') {
            q->column = (int)(q->at - start);
            return begins;
        }
        if (q->at == q->end) {
            q->column = -1;
            return true;
        }
        q->at++;
        q->line++;
    }
}

static bool at_dash(const struct quick *q)
{
    return peek(q) == '-' && (q->at + 1 == q->end || q->at[1] == ' ' || q->at[1] == '\n');
}

/* A value goes on in the next line, or in a comment and then in the next line. */
static bool ends_line(const struct quick *q)
{
    return q->at == q->end || *q->at == '\n' || *q->at == '#';
}

static struct node *read_node(struct quick *q, int parent, unsigned depth);

/* The items of a list whose dashes are in this column. */
static struct node *read_dashes(struct quick *q, int column, unsigned depth)
{
    struct node *node = depth < RULES_NESTING_MAX ? new_node(q, NODE_LIST) : NULL;
    if (!node)
        return NULL;
    struct node_item **tail = &node->first;
    while (q->column == column && at_dash(q)) {
        const char *dash = q->at++;
        skip_spaces(q);
        q->column = column + (int)(q->at - dash);
        if (ends_line(q) && (!next_line(q, false) || q->column <= column))
            return NULL;
        if (!add_item(q, node, &tail, NULL, read_node(q, column, depth + 1)))
            return NULL;
    }
    node_close(node);
    return node;
}

/* A value was read that is in the line of its key or dash. Nothing else may be in its line, and the next line must not
 * continue it. */
static struct node *end_inline(struct quick *q, int parent, struct node *node)
{
    return node && next_line(q, false) && q->column <= parent ? node : NULL;
}

static bool at_bracket(const struct quick *q)
{
    return peek(q) == '{' || peek(q) == '[';
}

static struct node *nothing(struct quick *q, int line)
{
    struct node *node = new_node(q, NODE_SCALAR);
    if (!node)
        return NULL;
    node->line = line;
    node->plain = true;
    node->text = arena_copy(q->arena, SV(""));
    return node->text.ptr ? node : NULL;
}

/* The value of a field whose key is in this column; the key's colon was read. */
static struct node *read_field_value(struct quick *q, int column, unsigned depth)
{
    int line = q->line;
    skip_spaces(q);
    if (!ends_line(q))
        return end_inline(q, column, at_bracket(q) ? read_flow(q, depth) : read_scalar(q, false));
    if (!next_line(q, false))
        return NULL;
    if (q->column == column && at_dash(q))
        return read_dashes(q, column, depth);
    return q->column > column ? read_node(q, column, depth) : nothing(q, line);
}

/* `key`: the first one, whose colon was read. */
static struct node *read_mapping(struct quick *q, int column, unsigned depth, const struct node *key)
{
    struct node *node = depth < RULES_NESTING_MAX ? new_node(q, NODE_MAP) : NULL;
    if (!node)
        return NULL;
    struct node_item **tail = &node->first;
    while (add_item(q, node, &tail, key, read_field_value(q, column, depth + 1)) && q->column <= column) {
        if (q->column < column) {
            node_close(node);
            return node;
        }
        key = read_key(q, false);
        if (!key)
            break;
    }
    return NULL;
}

/* Reads what is at `at`, in q->column, deeper than `parent`. Afterwards `at` is at the next line that says something. */
static struct node *read_node(struct quick *q, int parent, unsigned depth)
{
    int column = q->column;
    const char *start = q->at;
    if (at_dash(q))
        return read_dashes(q, column, depth);
    if (at_bracket(q))
        return end_inline(q, parent, read_flow(q, depth));
    struct node *scalar = read_scalar(q, false);
    if (!scalar || !take_colon(q, start, true))
        return end_inline(q, parent, scalar);
    return read_mapping(q, column, depth, scalar);
}

/* ---- the text ---- */

static struct node *read_brackets(struct quick *q)
{
    struct node *root = read_flow(q, 0);
    skip_flow(q);
    return q->at == q->end ? root : NULL;
}

static struct node *read_lines(struct quick *q)
{
    if (sv_starts(sv_of(q->at, (size_t)(q->end - q->at)), SV("---\n"))) {
        q->at += 4;
        q->line++;
    }
    struct node *root = next_line(q, true) && q->column >= 0 ? read_node(q, -1, 0) : NULL;
    return q->column == -1 ? root : NULL;
}

bool quick_read(sv text, int lines_before, struct arena *arena, const struct node **ret_root)
{
    struct quick q = { .at = text.ptr, .end = text.ptr + text.len, .arena = arena, .line = lines_before + 1 };
    struct quick lines = q;
    q.in_flow = true;
    skip_flow(&q);
    const struct node *root = at_bracket(&q) ? read_brackets(&q) : read_lines(&lines);
    if (root)
        *ret_root = root;
    return root;
}
