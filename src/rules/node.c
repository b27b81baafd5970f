#include "rules/node.h"

#include <stdio.h>
#include <yaml.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "rules/rules.h"

struct anchor {
    sv name;
    struct node *node;
};

/* A list or mapping that is not closed yet. */
struct open_node {
    struct node *node;
    const struct node *key; /* of a mapping: a key that waits for its value */
    struct node_item **tail;
};

struct builder {
    struct arena *arena;
    struct node_error *error;
    struct node *root;
    struct open_node open[RULES_NESTING_MAX];
    size_t depth;
    struct anchor *anchors; /* room for RULES_ANCHORS_MAX, once there is one: most of the many rows of a table have none */
    size_t anchor_count, alias_count;
    uint64_t weight;
    int document_count;
    int lines_before;
};

static int no_memory(struct builder *b)
{
    b->error->no_memory = true;
    return -1;
}

static int line_of(const yaml_event_t *event)
{
    return (int)event->start_mark.line + 1;
}

static sv text_of(const yaml_char_t *text)
{
    return text ? weir_str((const char *)text) : (sv){ 0 };
}

/* ---- adding ---- */

static int add_weight(struct builder *b, int line, uint32_t weight)
{
    b->weight += weight;
    if (b->weight > RULES_VALUES_MAX)
        return node_fail(b->error, line, "more than %d values (the value of an alias counts each time); use fewer",
                         RULES_VALUES_MAX);
    return 0;
}

/* Puts a node where it belongs: at the root, into the open list, or as key or value into the open mapping. */
static int attach(struct builder *b, struct node *node, int line)
{
    if (b->depth == 0) {
        b->root = node;
        return 0;
    }
    struct open_node *open = &b->open[b->depth - 1];
    if (open->node->kind == NODE_MAP && !open->key) {
        open->key = node;
        return 0;
    }
    if (open->node->kind == NODE_MAP && open->node->count >= RULES_FIELDS_MAX)
        return node_fail(b->error, line, "more than %d fields in one mapping", RULES_FIELDS_MAX);
    struct node_item *item = ARENA_NEW(b->arena, struct node_item);
    if (!item)
        return no_memory(b);
    *item = (struct node_item){ .key = open->key, .value = node };
    *open->tail = item;
    open->tail = &item->next;
    open->node->count++;
    open->key = NULL;
    return 0;
}

static int add_anchor(struct builder *b, const yaml_char_t *name, struct node *node)
{
    if (!name)
        return 0;
    if (b->anchor_count == RULES_ANCHORS_MAX)
        return node_fail(b->error, node->line - b->lines_before, "more than %d anchors", RULES_ANCHORS_MAX);
    sv copy = arena_copy(b->arena, text_of(name));
    if (!b->anchors)
        b->anchors = ARENA_ARRAY(b->arena, struct anchor, RULES_ANCHORS_MAX);
    if (!copy.ptr || !b->anchors)
        return no_memory(b);
    b->anchors[b->anchor_count++] = (struct anchor){ copy, node };
    return 0;
}

/* Only what a plain YAML or JSON value would get anyway. */
static int check_tag(struct builder *b, const yaml_char_t *tag, int line)
{
    sv t = text_of(tag);
    if (t.len == 0 || sv_eq(t, SV("!")) || sv_eq(t, SV(YAML_STR_TAG)) || sv_eq(t, SV(YAML_SEQ_TAG)) ||
        sv_eq(t, SV(YAML_MAP_TAG)))
        return 0;
    bool plain = t.len <= 100;
    for (size_t i = 0; i < t.len; i++)
        plain = plain && t.ptr[i] > ' ' && t.ptr[i] <= '~';
    return node_fail(b->error, line, "the tag %s is not allowed; write the value alone", plain ? t.ptr : "here");
}

/* ---- events ---- */

static int on_scalar(struct builder *b, const yaml_event_t *event)
{
    int line = line_of(event);
    sv text = sv_of((const char *)event->data.scalar.value, event->data.scalar.length);
    if (memchr(text.ptr, '\0', text.len))
        return node_fail(b->error, line, "a NUL character (\\0, \\x00 or \\u0000) is not allowed in any text");
    if (check_tag(b, event->data.scalar.tag, line) < 0 || add_weight(b, line, 1) < 0)
        return -1;
    struct node *node = ARENA_NEW(b->arena, struct node);
    if (!node)
        return no_memory(b);
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !event->data.scalar.tag;
    *node = (struct node){ .kind = NODE_SCALAR, .plain = plain, .line = b->lines_before + line, .weight = 1 };
    node->text = arena_copy(b->arena, text);
    if (!node->text.ptr)
        return no_memory(b);
    return add_anchor(b, event->data.scalar.anchor, node) < 0 ? -1 : attach(b, node, line);
}

static int on_alias(struct builder *b, const yaml_event_t *event)
{
    int line = line_of(event);
    sv name = text_of(event->data.alias.anchor);
    int shown = name.len > 100 ? 100 : (int)name.len;
    if (++b->alias_count > RULES_ALIASES_MAX)
        return node_fail(b->error, line, "more than %d aliases", RULES_ALIASES_MAX);
    struct node *node = NULL;
    for (size_t i = b->anchor_count; i > 0 && !node; i--)
        if (sv_eq(b->anchors[i - 1].name, name))
            node = b->anchors[i - 1].node;
    if (!node)
        return node_fail(b->error, line, "unknown alias *%.*s; no &%.*s comes before it", shown, name.ptr, shown, name.ptr);
    for (size_t i = 0; i < b->depth; i++)
        if (b->open[i].node == node)
            return node_fail(b->error, line, "the alias *%.*s is inside the value that it refers to", shown, name.ptr);
    if (b->depth + node->height > RULES_NESTING_MAX)
        return node_fail(b->error, line, "nested too deeply; at most %d levels", RULES_NESTING_MAX);
    return add_weight(b, line, node->weight) < 0 ? -1 : attach(b, node, line);
}

static int on_start(struct builder *b, const yaml_event_t *event, enum node_kind kind)
{
    int line = line_of(event);
    bool map = kind == NODE_MAP;
    const yaml_char_t *anchor = map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    const yaml_char_t *tag = map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    if (b->depth == RULES_NESTING_MAX)
        return node_fail(b->error, line, "nested too deeply; at most %d levels", RULES_NESTING_MAX);
    if (check_tag(b, tag, line) < 0 || add_weight(b, line, 1) < 0)
        return -1;
    struct node *node = ARENA_NEW(b->arena, struct node);
    if (!node)
        return no_memory(b);
    *node = (struct node){ .kind = (uint8_t)kind, .line = b->lines_before + line };
    if (add_anchor(b, anchor, node) < 0 || attach(b, node, line) < 0)
        return -1;
    b->open[b->depth++] = (struct open_node){ .node = node, .tail = &node->first };
    return 0;
}

static int on_event(struct builder *b, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->document_count++ > 0)
            return node_fail(b->error, line_of(event),
                             "a second YAML document; put all rules into one, without `---` between them");
        return 0;
    case YAML_SCALAR_EVENT:
        return on_scalar(b, event);
    case YAML_ALIAS_EVENT:
        return on_alias(b, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(b, event, NODE_LIST);
    case YAML_MAPPING_START_EVENT:
        return on_start(b, event, NODE_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        node_close(b->open[--b->depth].node);
        return 0;
    default:
        return 0;
    }
}

/* The line with this number, from 1, without its end. */
static sv text_line(sv text, int number)
{
    sv line = sv_cut(&text, '\n');
    while (number-- > 1)
        line = sv_cut(&text, '\n');
    return line;
}

static bool indented_by_tab(sv line)
{
    size_t i = 0;
    while (i < line.len && line.ptr[i] == ' ')
        i++;
    return i < line.len && line.ptr[i] == '\t';
}

#define QUOTE_HINT "; quote values that contain { } [ ] or begin with * & ! % @ `, as in path: \"/users/{id}\""

/* Whether a character that means something in YAML may be the mistake. */
static bool has_signs(sv line)
{
    for (size_t i = 0; i < line.len; i++)
        if (line.ptr[i] && strchr("{}[]*&!%@`", line.ptr[i]))
            return true;
    return false;
}

static int syntax_error(const yaml_parser_t *parser, sv text, struct node_error *error)
{
    if (parser->error == YAML_MEMORY_ERROR) {
        error->no_memory = true;
        return -1;
    }
    const char *problem = parser->problem ? parser->problem : "unknown error";
    if (parser->error == YAML_READER_ERROR) {
        int line = 1;
        for (size_t i = 0; i < text.len && i < parser->problem_offset; i++)
            line += text.ptr[i] == '\n';
        return node_fail(error, line, "%s (U+%04X)", problem, (unsigned)parser->problem_value);
    }
    int line = (int)parser->problem_mark.line + 1, start = (int)parser->context_mark.line + 1;
    if (parser->error == YAML_SCANNER_ERROR && indented_by_tab(text_line(text, line)))
        return node_fail(error, line, "not YAML or JSON: the line is indented by a tab; use spaces");
    bool quoted = parser->context && strstr(parser->context, "quoted");
    const char *hint = quoted || !has_signs(text_line(text, line)) ? "" : QUOTE_HINT;
    if (!parser->context)
        return node_fail(error, line, "not YAML or JSON: %s%s", problem, hint);
    return node_fail(error, line, "not YAML or JSON: %s %s that begins in line %d%s", problem, parser->context, start,
                     hint);
}

static int build(struct builder *b, sv text)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return no_memory(b);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
    int r = 0;
    for (bool end = false; !end && r == 0;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            r = syntax_error(&parser, text, b->error);
            break;
        }
        end = event.type == YAML_STREAM_END_EVENT;
        r = on_event(b, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return r;
}

int node_read(sv text, struct arena *arena, const struct node **ret_root, struct node_error *ret_error)
{
    return node_read_at(text, 0, arena, ret_root, ret_error);
}

int node_read_libyaml(sv text, int lines_before, struct arena *arena, const struct node **ret_root,
                      struct node_error *ret_error)
{
    CLEANUP(buf_done) struct buf scratch;
    buf_init(&scratch, (size_t)RULES_BYTES_MAX * 6);
    struct builder *b = ARENA_NEW(arena, struct builder);
    sv prepared;
    if (!b) {
        ret_error->no_memory = true;
        return -1;
    }
    b->arena = arena;
    b->error = ret_error;
    b->lines_before = lines_before;
    if (text_prepare(text, &scratch, &prepared, ret_error) < 0 || build(b, prepared) < 0)
        return -1;
    if (json_looks(text) && json_check(text, ret_error) < 0)
        return -1;
    *ret_root = b->root;
    return 0;
}

int node_read_at(sv text, int lines_before, struct arena *arena, const struct node **ret_root, struct node_error *ret_error)
{
    *ret_error = (struct node_error){ 0 };
    *ret_root = NULL;
    text = sv_starts(text, SV("\xef\xbb\xbf")) ? sv_from(text, 3) : text;
    if (text_check(text, ret_error) < 0)
        return -1;
    struct node_error ignored;
    if ((!json_looks(text) || json_check(text, &ignored) == 0) && quick_read(text, lines_before, arena, ret_root))
        return 0;
    return node_read_libyaml(text, lines_before, arena, ret_root, ret_error);
}
