#include <stdio.h>

#include "base/utf8.h"
#include "rules/reader.h"

/* ---- memory ---- */

static void *noted(struct reader *r, void *ptr)
{
    r->no_memory = r->no_memory || !ptr;
    return ptr;
}

void *reader_alloc(struct reader *r, size_t size)
{
    return noted(r, arena_alloc(r->arena, size));
}

void *reader_list(struct reader *r, size_t size)
{
    return noted(r, arena_room(&r->rules->lists, size));
}

sv reader_copy(struct reader *r, sv text)
{
    sv copy = arena_copy(r->arena, text);
    if (!copy.ptr)
        r->no_memory = true;
    return copy;
}

sv reader_copy_lower(struct reader *r, sv text)
{
    sv copy = reader_copy(r, text);
    for (size_t i = 0; i < copy.len; i++)
        ((char *)copy.ptr)[i] = ascii_lower(text.ptr[i]);
    return copy;
}

sv reader_copy_upper(struct reader *r, sv text)
{
    sv copy = reader_copy(r, text);
    for (size_t i = 0; i < copy.len; i++)
        if (text.ptr[i] >= 'a' && text.ptr[i] <= 'z')
            ((char *)copy.ptr)[i] = (char)(text.ptr[i] & ~0x20);
    return copy;
}

const struct rule_rest rule_no_rest = { .expires_us = RULE_NEVER_EXPIRES };

struct rule_rest *reader_rest(struct reader *r)
{
    if (r->kind.rest == &rule_no_rest)
        r->rest = rule_no_rest;
    r->kind.rest = &r->rest;
    return &r->rest;
}

/* Returns NULL if out of memory. */
static const struct rule_rest *keep_rest(struct reader *r)
{
    if (r->kind.rest == &rule_no_rest)
        return &rule_no_rest;
    struct arena_mark before = arena_mark(r->arena);
    struct rule_rest *rest = reader_alloc(r, sizeof *rest);
    if (!rest)
        return NULL;
    *rest = r->rest;
    const struct rule_rest *shared = share_rest(&r->shared, rest);
    if (shared != rest)
        arena_back(r->arena, &before);
    return shared;
}

void reader_keep_kind(struct reader *r, struct rule *rule)
{
    static const struct rule_kind nothing = { .rest = &rule_no_rest };
    rule->kind = &nothing;
    r->kind.rest = keep_rest(r);
    struct arena_mark before = arena_mark(r->arena);
    struct rule_kind *kind = r->kind.rest ? reader_alloc(r, sizeof *kind) : NULL;
    if (!kind)
        return;
    *kind = r->kind;
    rule->kind = share_kind(&r->shared, kind);
    if (rule->kind != kind)
        arena_back(r->arena, &before);
}

/* ---- where we are ---- */

static void path_add(struct reader *r, sv text)
{
    size_t room = sizeof r->path - r->path_len;
    size_t n = text.len < room ? text.len : room;
    memcpy(r->path + r->path_len, text.ptr, n);
    r->path_len += n;
}

size_t path_field(struct reader *r, sv name)
{
    size_t before = r->path_len;
    if (before > 0)
        path_add(r, SV("."));
    path_add(r, name);
    return before;
}

size_t path_index(struct reader *r, size_t index)
{
    size_t before = r->path_len;
    char text[24]; /* by hand: snprintf() would take longer than reading the element */
    char *end = text + sizeof text, *at = end;
    *--at = ']';
    do
        *--at = (char)('0' + index % 10);
    while ((index /= 10) > 0);
    *--at = '[';
    path_add(r, sv_of(at, (size_t)(end - at)));
    return before;
}

void path_end(struct reader *r, size_t before)
{
    r->path_len = before;
}

/* ---- mappings ---- */

static const struct node_item *earlier(const struct node *map, const struct node_item *item, bool nocase)
{
    for (const struct node_item *i = map->first; i != item; i = i->next) {
        sv a = i->key->text, b = item->key->text;
        if (i->key->kind == NODE_SCALAR && (nocase ? sv_eq_nocase(a, b) : sv_eq(a, b)))
            return i;
    }
    return NULL;
}

/* The name of a field: text, and not there before. */
static bool check_key(struct reader *r, const struct node *map, const struct node_item *item, bool nocase)
{
    if (item->key->kind != NODE_SCALAR) {
        report_error(r, item->key->line, "the name of a field must be text, not %s", shown_node(r, item->key));
        return false;
    }
    const struct node_item *first = earlier(map, item, nocase);
    if (first)
        report_error(r, item->key->line, "the field %s is given twice; the first is in line %d",
                     shown_text(r, item->key->text), line_in_file(r, first->key->line));
    return !first;
}

static void unknown_field(struct reader *r, const struct node *key, const struct field *fields)
{
    const char *names[RULES_FIELDS_MAX];
    char allowed[300];
    size_t count = 0, length = 0;
    for (; fields[count].name; count++) {
        names[count] = fields[count].name;
        length += (size_t)snprintf(allowed + length, sizeof allowed - length, "%s%s", count ? ", " : "", names[count]);
    }
    names[count] = NULL;
    const char *nearest = word_nearest(key->text, names);
    if (sv_eq(key->text, SV("<<")))
        report_error(r, key->line, "merge keys (<<) are not supported; use an alias for a whole value");
    else if (nearest)
        report_error(r, key->line, "unknown field %s; did you mean `%s`? Allowed: %s", shown_text(r, key->text), nearest,
                     allowed);
    else
        report_error(r, key->line, "unknown field %s; allowed: %s", shown_text(r, key->text), allowed);
}

bool find_fields(struct reader *r, const struct node *node, const struct field *fields, const struct node **ret_nodes)
{
    size_t errors = r->errors;
    if (node->kind != NODE_MAP) {
        report_error(r, node->line, "must be a mapping (field: value), not %s", shown_node(r, node));
        return false;
    }
    for (const struct node_item *item = node->first; item; item = item->next) {
        if (!check_key(r, node, item, false))
            continue;
        size_t i = 0;
        while (fields[i].name && !sv_eq(item->key->text, weir_str(fields[i].name)))
            i++;
        if (!fields[i].name)
            unknown_field(r, item->key, fields);
        else if (fields[i].keep_null || !node_is_null(item->value))
            ret_nodes[i] = item->value;
    }
    return r->errors == errors;
}

void read_field(struct reader *r, const struct field *field, const struct node *node, void *ret)
{
    if (!node)
        return;
    size_t before = path_field(r, weir_str(field->name));
    field->read(r, node, (char *)ret + field->offset);
    path_end(r, before);
}

bool read_fields(struct reader *r, const struct node *node, const struct field *fields, void *ret)
{
    const struct node *nodes[RULES_FIELDS_MAX] = { 0 };
    size_t errors = r->errors;
    find_fields(r, node, fields, nodes);
    for (size_t i = 0; node->kind == NODE_MAP && fields[i].name; i++) {
        if (!nodes[i] && fields[i].missing)
            report_error(r, node->line, "%s", fields[i].missing);
        read_field(r, &fields[i], nodes[i], ret);
    }
    return r->errors == errors;
}

/* ---- lists ---- */

struct walk walk_list(const struct node *node)
{
    if (node->kind == NODE_LIST)
        return (struct walk){ .next = node->first, .list = true };
    return (struct walk){ .only = node };
}

const struct node *walk_next(struct reader *r, struct walk *walk)
{
    if (!walk->list) {
        const struct node *only = walk->only;
        walk->only = NULL;
        return only;
    }
    if (walk->started)
        path_end(r, walk->path_before);
    walk->started = true;
    if (!walk->next)
        return NULL;
    const struct node *value = walk->next->value;
    walk->next = walk->next->next;
    walk->path_before = path_index(r, walk->index++);
    return value;
}

/* Reports an empty list (if min is 1) or one that is too long. */
static bool check_count(struct reader *r, const struct node *node, size_t count, const struct list *list)
{
    if (count < list->min)
        report_error(r, node->line, "the list is empty; %s", list->empty);
    else if (count > list->max)
        report_error(r, node->line, "%zu are too many; at most %zu", count, list->max);
    return count >= list->min && count <= list->max;
}

void *read_list(struct reader *r, const struct node *node, const struct list *list, size_t *ret_count)
{
    return read_list_in(r, node, list, r->arena, ret_count);
}

void *read_list_in(struct reader *r, const struct node *node, const struct list *list, struct arena *arena,
                   size_t *ret_count)
{
    size_t count = node->kind == NODE_LIST ? node->count : 1, errors = r->errors;
    char *items = check_count(r, node, count, list) ? noted(r, arena_alloc(arena, count * list->size)) : NULL;
    struct walk walk = walk_list(node);
    const struct node *item;
    for (size_t i = 0; items && (item = walk_next(r, &walk)); i++) {
        list->read(r, item, items + i * list->size);
        for (size_t j = 0; list->same && j < i; j++)
            if (list->same(items + j * list->size, items + i * list->size))
                report_error(r, item->line, "%s is given twice", shown_node(r, item));
    }
    if (!items || r->errors > errors)
        return NULL;
    *ret_count = count;
    return items;
}

/* ---- values ---- */

bool check_text(struct reader *r, const struct node *node, size_t min, size_t max)
{
    bool ignored, is_null = node_is_null(node);
    if (node->kind != NODE_SCALAR || is_null) {
        report_error(r, node->line, "must be text, not %s", shown_node(r, node));
        return false;
    }
    /* `no` and `on` are words like others here; true and false are not what anybody calls a user. */
    if (node_is_bool(node, &ignored) && node->text.len >= 4) {
        report_error(r, node->line, "must be text, not %s; put it in quotes if you mean the text", shown_node(r, node));
        return false;
    }
    if (node->text.len < min || node->text.len > max) {
        report_error(r, node->line, "must have %zu to %zu bytes, not %zu", min, max, node->text.len);
        return false;
    }
    return true;
}

bool read_text(struct reader *r, const struct node *node, size_t min, size_t max, sv *ret)
{
    if (!check_text(r, node, min, max))
        return false;
    sv copy = reader_copy(r, node->text);
    if (copy.ptr)
        *ret = copy;
    return copy.ptr != NULL;
}

bool read_number(struct reader *r, const struct node *node, uint64_t min, uint64_t max, uint64_t *ret)
{
    uint64_t value;
    bool scalar = node->kind == NODE_SCALAR, quoted = scalar && !node->plain;
    bool zeros = scalar && node->text.len > 1 && node->text.ptr[0] == '0';
    if (!scalar || quoted || zeros || !sv_u64(node->text, max, &value) || value < min) {
        report_error(r, node->line, "must be a whole number from %llu to %llu, not %s%s%s", (unsigned long long)min,
                     (unsigned long long)max, quoted ? "the text " : "", shown_node(r, node),
                     quoted && sv_u64(node->text, max, &value) ? "; leave the quotes out" : "");
        return false;
    }
    *ret = value;
    return true;
}

bool read_bool(struct reader *r, const struct node *node, bool *ret)
{
    if (node_is_bool(node, ret))
        return true;
    report_error(r, node->line, "must be true or false, not %s", shown_node(r, node));
    return false;
}

bool read_word(struct reader *r, const struct node *node, const char *const *names, int *ret)
{
    int found = node->kind == NODE_SCALAR ? word_find(node->text, names) : -1;
    if (found >= 0) {
        *ret = found;
        return true;
    }
    char allowed[200];
    size_t length = 0;
    for (size_t i = 0; names[i]; i++) {
        const char *between = i == 0 ? "" : names[i + 1] ? ", " : " or ";
        length += (size_t)snprintf(allowed + length, sizeof allowed - length, "%s%s", between, names[i]);
    }
    const char *nearest = node->kind == NODE_SCALAR ? word_nearest(node->text, names) : NULL;
    if (nearest)
        report_error(r, node->line, "must be %s, not %s; did you mean `%s`?", allowed, shown_node(r, node), nearest);
    else
        report_error(r, node->line, "must be %s, not %s", allowed, shown_node(r, node));
    return false;
}

/* ---- HTTP ---- */

bool http_token(sv text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = ascii_lower(text.ptr[i]);
        if (!ascii_digit(c) && (c < 'a' || c > 'z') && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return text.len > 0;
}

static bool check_header_name(struct reader *r, const struct node *key)
{
    bool good = http_token(key->text) && key->text.len <= RULE_NAME_MAX;
    if (!good)
        report_error(r, key->line,
                     "the name of a header must have 1 to %d letters, digits or any of !#$%%&'*+-.^_`|~, not %s",
                     RULE_NAME_MAX, shown_text(r, key->text));
    return good;
}

bool check_header(struct reader *r, const struct node *map, const struct node_item *item)
{
    return check_key(r, map, item, true) && check_header_name(r, item->key);
}

bool check_entry(struct reader *r, const struct node *map, const struct node_item *item)
{
    return check_key(r, map, item, false);
}

bool check_named_map(struct reader *r, const struct node *node, enum attribute attribute)
{
    const char *what = attribute == ATTR_HEADER ? "NAME" : "KEY", *many = attribute == ATTR_HEADER ? "headers" : "entries";
    if (node->kind != NODE_MAP)
        report_error(r, node->line, "must be a mapping (%s: value), not %s", what, shown_node(r, node));
    else if (node->count > RULE_HEADERS_MAX)
        report_error(r, node->line, "%u %s are too many; at most %d", node->count, many, RULE_HEADERS_MAX);
    return node->kind == NODE_MAP && node->count <= RULE_HEADERS_MAX;
}

bool check_header_value(struct reader *r, int line, sv value)
{
    bool control = false;
    for (size_t i = 0; i < value.len; i++)
        control = control || ((unsigned char)value.ptr[i] < 0x20 && value.ptr[i] != '\t') || value.ptr[i] == 0x7f;
    if (control)
        report_error(r, line, "the value of a header must not contain line breaks or other control characters");
    else if (sv_trim(value).len != value.len)
        report_error(r, line, "the value of a header must not begin or end with a blank");
    return !control && sv_trim(value).len == value.len;
}

bool read_headers(struct reader *r, const struct node *node, struct rule_header **ret, size_t *ret_count)
{
    struct rule_header *headers =
        check_named_map(r, node, ATTR_HEADER) ? reader_alloc(r, node->count * sizeof *headers) : NULL;
    if (!headers)
        return false;
    size_t count = 0, errors = r->errors;
    for (const struct node_item *item = node->first; item; item = item->next) {
        if (!check_header(r, node, item))
            continue;
        size_t before = path_field(r, item->key->text);
        struct rule_header *header = &headers[count];
        header->name = reader_copy(r, item->key->text);
        count += read_text(r, item->value, 1, RULE_TEXT_MAX, &header->value) &&
                 check_header_value(r, item->value->line, header->value);
        path_end(r, before);
    }
    if (r->errors > errors)
        return false;
    *ret = headers;
    *ret_count = count;
    return true;
}
