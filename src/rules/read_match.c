/* Reads the conditions of a rule. There is one grammar for all attributes:
 *
 *     ATTRIBUTE: value             the attribute is this
 *     ATTRIBUTE: [value, …]        one of these
 *     ATTRIBUTE: { is: …, not: …, present: true, absent: true }      all that is given
 *
 * A value is a text, { prefix: text } or { glob: text }; of `ip`, a network; of `path`, a template or { regex: … }. A
 * mapping that is a value may have `not` and `present` beside it: { prefix: a, not: ab }. */
#include <stdio.h>

#include "base/regex.h"
#include "base/utf8.h"
#include "rules/reader.h"

/* ---- texts ---- */

static void tidy_method(struct reader *r, const struct node *node, struct rule_value *value)
{
    if (http_token(value->text) && !sv_eq(value->text, SV("*")))
        value->text = reader_copy_upper(r, value->text);
    else
        report_error(r, node->line, "must be a method such as GET, not %s; leave `method` out to match all",
                     shown_node(r, node));
}

/* A prefix or glob, without the dot of a full name at the end of a glob; empty if no host has it. */
static sv host_pattern(const struct rule_value *value)
{
    sv text = value->text;
    for (size_t i = 0; i < text.len; i++)
        if (!host_character(text.ptr[i]) && !(value->kind == VALUE_GLOB && text.ptr[i] == '*'))
            return (sv){ 0 };
    while (value->kind == VALUE_GLOB && text.len > 0 && text.ptr[text.len - 1] == '.')
        text.len--;
    return text;
}

/* "*.example.com" needs no `glob`: a `*` is never part of a name. */
static void tidy_host(struct reader *r, const struct node *node, struct rule_value *value)
{
    sv name;
    if (value->kind == VALUE_EQUAL && sv_starts(value->text, SV("*."))) {
        sv below = host_name(sv_from(value->text, 2));
        value->kind = VALUE_GLOB;
        name = below.len > 0 && below.ptr[0] != '[' ? sv_of(value->text.ptr, below.len + 2) : (sv){ 0 };
    } else {
        name = value->kind == VALUE_EQUAL ? host_name(value->text) : host_pattern(value);
    }
    if (name.len == 0)
        report_error(r, node->line,
                     "must be a host name such as api.example.com or *.example.com, an IPv4 address, or an IPv6 address in "
                     "brackets, without scheme or path, not %s",
                     shown_node(r, node));
    else
        value->text = reader_copy_lower(r, name);
}

/* A prefix may end in a blank ("Bearer "): the header goes on after it. */
static void tidy_header(struct reader *r, const struct node *node, struct rule_value *value)
{
    sv text = value->text;
    while (value->kind == VALUE_PREFIX && text.len > 0 && text.ptr[text.len - 1] == ' ')
        text.len--;
    check_header_value(r, node->line, text);
}

/* Copies the text, which is that of the node, in the form in which requests are compared with it. */
static void tidy(struct reader *r, const struct node *node, struct rule_value *value)
{
    if (r->attribute == ATTR_METHOD)
        tidy_method(r, node, value);
    else if (r->attribute == ATTR_HOST)
        tidy_host(r, node, value);
    else if (r->attribute == ATTR_DESCRIPTOR && value->kind == VALUE_PREFIX && value->text.len == 0)
        report_error(r, node->line, "matches every value; use `present: true` for that");
    else if (r->attribute != ATTR_DESCRIPTOR && sv_blank(value->text))
        report_error(r, node->line, "must not be blank");
    else if (r->attribute == ATTR_HEADER)
        tidy_header(r, node, value);
    bool text = r->attribute != ATTR_METHOD && r->attribute != ATTR_HOST;
    if (text)
        value->text = reader_copy(r, value->text);
    if (text && value->kind == VALUE_EQUAL && value->text.len > 0 && memchr(value->text.ptr, '*', value->text.len))
        report_advice(r, node->line, "a `*` in a plain value stands for itself; write { glob: %s } for a pattern",
                      shown_node(r, node));
}

/* Bytes of a value. */
static size_t value_max(enum attribute attribute)
{
    switch (attribute) {
    case ATTR_METHOD:
        return RULE_NAME_MAX;
    case ATTR_HOST:
        return 255;
    case ATTR_DESCRIPTOR_KEYS:
        return RULE_PATH_MAX;
    default:
        return RULE_TEXT_MAX;
    }
}

static void read_one(struct reader *r, const struct node *node, enum value_kind kind, struct rule_value *value)
{
    sv text = node->text;
    if (!check_text(r, node, r->attribute == ATTR_DESCRIPTOR ? 0 : 1, value_max(r->attribute)))
        return;
    bool glob = kind == VALUE_GLOB, only = text.len > 0, star = only && memchr(text.ptr, '*', text.len);
    for (size_t i = 0; i < text.len; i++)
        only = only && text.ptr[i] == '*';
    *value = (struct rule_value){ .kind = glob && !star ? VALUE_EQUAL : kind, .text = text };
    if (glob && only)
        report_error(r, node->line, "matches every value; use `present: true` for that");
    else
        tidy(r, node, value);
}

/* ---- values ---- */

/* The fields of a condition that is a mapping. Those of a path and of an address are the first ones and their own. */
enum { FIELD_IS, FIELD_NOT, FIELD_PRESENT, FIELD_ABSENT, FIELD_REGEX, FIELD_PREFIX = FIELD_REGEX, FIELD_GLOB, FIELDS };
#define KEPT(word)                        \
    {                                     \
        .name = (word), .keep_null = true \
    }
#define COMMON_FIELDS KEPT("is"), KEPT("not"), KEPT("present"), KEPT("absent")

static void read_value(struct reader *r, const struct node *node, void *ret)
{
    static const struct field fields[] = { KEPT("prefix"), KEPT("glob"), { NULL } };
    struct rule_value *value = ret;
    const struct node *nodes[2] = { 0 };
    if (r->attribute == ATTR_IP) {
        value->kind = VALUE_NETWORK;
        read_cidr(r, node, &value->network);
    } else if (node->kind != NODE_MAP) {
        read_one(r, node, VALUE_EQUAL, value);
    } else if (find_fields(r, node, fields, nodes)) {
        if (!nodes[0] == !nodes[1]) {
            report_error(r, node->line, "needs either `prefix` or `glob`");
            return;
        }
        int glob = nodes[1] != NULL;
        size_t before = path_field(r, weir_str(fields[glob].name));
        read_one(r, nodes[glob], glob ? VALUE_GLOB : VALUE_PREFIX, value);
        path_end(r, before);
    }
}

static void read_values(struct reader *r, const struct node *node, struct rule_values *ret)
{
    char empty[60] = "leave it out";
    struct list list = { read_value, sizeof *ret->list, 1, RULE_VALUES_MAX, empty };
    if (r->attribute == ATTR_METHOD)
        list.max = RULE_METHODS_MAX;
    if (!attribute_has_name(r->attribute))
        snprintf(empty, sizeof empty, "leave `%s` out to match all", attribute_table[r->attribute].name.ptr);
    ret->list = read_list(r, node, &list, &ret->count);
    size_t patterns = 0;
    for (size_t i = 0; ret->list && i < ret->count; i++)
        patterns += ret->list[i].kind == VALUE_PREFIX || ret->list[i].kind == VALUE_GLOB;
    if (patterns > RULE_PATTERNS_MAX)
        report_error(r, node->line, "%zu prefixes and globs are too many; at most %d", patterns, RULE_PATTERNS_MAX);
}

/* ---- conditions ---- */

static bool read_true(struct reader *r, const char *name, const struct node *node, const char *opposite)
{
    bool value = true;
    if (!node)
        return false;
    size_t before = path_field(r, weir_str(name));
    if (read_bool(r, node, &value) && !value)
        report_error(r, node->line, "must be true; write `%s: true` for the opposite", opposite);
    path_end(r, before);
    return true;
}

static enum presence read_presence(struct reader *r, const struct node *node, const struct node *const *nodes)
{
    bool present = read_true(r, "present", nodes[FIELD_PRESENT], "absent");
    bool absent = read_true(r, "absent", nodes[FIELD_ABSENT], "present");
    if (absent && node->count > 1)
        report_error(r, node->line, "`absent` cannot be combined with other fields: an absent attribute has no value");
    return absent ? ABSENT : present ? PRESENT : PRESENCE_ANY;
}

static void one_of_them(struct reader *r, const struct node *node)
{
    report_error(r, node->line,
                 r->attribute == ATTR_PATH
                     ? "`is` and `regex` exclude each other; write a list, as in is: [/a, { regex: … }]"
                     : "`is`, `prefix` and `glob` exclude each other; write a list, as in is: [a, { prefix: b }]");
}

static void read_mapping(struct reader *r, const struct node *node, struct rule_condition *ret)
{
    static const struct field text_fields[] = { COMMON_FIELDS, KEPT("prefix"), KEPT("glob"), { NULL } };
    static const struct field ip_fields[] = { COMMON_FIELDS, { NULL } };
    const struct node *nodes[FIELDS] = { 0 };
    const struct field *fields = r->attribute == ATTR_IP ? ip_fields : text_fields;
    if (node->count == 0)
        report_error(r, node->line, "the mapping is empty; leave it out to match all");
    find_fields(r, node, fields, nodes);
    if (!!nodes[FIELD_IS] + !!nodes[FIELD_PREFIX] + !!nodes[FIELD_GLOB] > 1)
        one_of_them(r, node);
    struct rule_values *values[] = { [FIELD_IS] = &ret->is, [FIELD_NOT] = &ret->is_not };
    for (size_t i = FIELD_IS; i <= FIELD_NOT; i++) {
        size_t before = path_field(r, weir_str(fields[i].name));
        if (nodes[i])
            read_values(r, nodes[i], values[i]);
        path_end(r, before);
    }
    for (size_t i = FIELD_PREFIX; i <= FIELD_GLOB; i++) {
        struct rule_value *value = nodes[i] ? reader_alloc(r, sizeof *value) : NULL;
        if (!value)
            continue;
        size_t before = path_field(r, weir_str(fields[i].name));
        read_one(r, nodes[i], i == FIELD_GLOB ? VALUE_GLOB : VALUE_PREFIX, value);
        ret->is = (struct rule_values){ value, 1 };
        path_end(r, before);
    }
    ret->presence = read_presence(r, node, nodes);
}

/* The conditions of a rule, in scratch: most rules have those of an earlier one. */
struct condition_list {
    struct rule_condition list[RULE_CONDITIONS_MAX];
    size_t count;
};

static void read_condition(struct reader *r, const struct node *node, struct condition_list *conditions, sv name)
{
    struct rule_condition *condition = &conditions->list[conditions->count++];
    *condition = (struct rule_condition){ .attribute = r->attribute, .name = name };
    if (node->kind == NODE_MAP)
        read_mapping(r, node, condition);
    else
        read_values(r, node, &condition->is);
}

/* The name of an entry, which another spelling may have given before. */
static bool read_entry(struct reader *r, const struct node *node, const struct node_item *item,
                       const struct condition_list *conditions, sv *ret)
{
    if (!check_entry(r, node, item) || !read_entry_name(r, item->key, item->key->text, ret))
        return false;
    for (size_t i = 0; i < conditions->count; i++)
        if (conditions->list[i].attribute == ATTR_DESCRIPTOR && sv_eq(conditions->list[i].name, *ret)) {
            report_error(r, item->key->line, "the entry %s is given twice", shown_text(r, *ret));
            return false;
        }
    return true;
}

static void read_named_conditions(struct reader *r, const struct node *node, struct condition_list *conditions)
{
    if (!check_named_map(r, node, r->attribute))
        return;
    if (node->count == 0)
        report_error(r, node->line, "the mapping is empty; leave `%s` out to match all",
                     attribute_table[r->attribute].name.ptr);
    for (const struct node_item *item = node->first; item; item = item->next) {
        sv name;
        if (r->attribute == ATTR_HEADER ? !check_header(r, node, item) : !read_entry(r, node, item, conditions, &name))
            continue;
        if (r->attribute == ATTR_HEADER)
            name = reader_copy_lower(r, item->key->text);
        size_t before = path_field(r, item->key->text);
        read_condition(r, item->value, conditions, name);
        path_end(r, before);
    }
}

/* ---- paths ---- */

void read_regex(struct reader *r, const struct node *node, void *ret)
{
    sv text;
    if (!read_text(r, node, 1, RULE_PATH_MAX, &text))
        return;
    if (r->regexes++ >= RULES_REGEXES_MAX) {
        report_error(r, node->line, "more than %d regular expressions; use templates where you can", RULES_REGEXES_MAX);
        return;
    }
    struct regex *regex = NULL;
    char error[200];
    int code = regex_new(&regex, text, r->rules->settings.ignore_case, error, sizeof error);
    if (code == WEIR_E_NO_MEMORY)
        r->no_memory = true;
    else if (code < 0)
        report_error(r, node->line, "invalid regular expression %s: %s", shown_text(r, text), error);
    else
        *(sv *)ret = text;
    regex_free(regex);
}

/* Other attributes have `prefix` and `glob`; a path has templates. Returns whether one of them was reported. */
static bool is_text_pattern(struct reader *r, const struct node *node)
{
    const struct node *prefix = node_get(node, SV("prefix")), *glob = node_get(node, SV("glob"));
    const struct node *given = prefix ? prefix : glob;
    if (!given)
        return false;
    char meant[210];
    sv text = given->kind == NODE_SCALAR ? utf8_cut(given->text, 200) : SV("");
    bool path = sv_starts(text, SV("/"));
    while (text.len > 0 && (text.ptr[text.len - 1] == '/' || text.ptr[text.len - 1] == '*'))
        text.len--;
    path = path && !(text.len && memchr(text.ptr, '*', text.len));
    snprintf(meant, sizeof meant, "%.*s/*", SV_FMT(path ? text : SV("/files")));
    report_error(r, given->line, "a path has no `%s`; write a template such as %s", prefix ? "prefix" : "glob",
                 shown_text(r, weir_str(meant)));
    return true;
}

static void read_path(struct reader *r, const struct node *node, void *ret)
{
    static const struct field fields[] = { { "regex", read_regex, .keep_null = true }, { NULL } };
    sv text = { 0 };
    bool is_regex = node->kind == NODE_MAP;
    if (!is_regex)
        read_template(r, node, &text);
    else if (!is_text_pattern(r, node) && read_fields(r, node, fields, &text) && !text.ptr)
        report_error(r, node->line, "needs `regex`; or write a template such as /files/#/{name}");
    *(struct rule_path *)ret = (struct rule_path){ text.ptr, (uint32_t)text.len, is_regex };
}

/* The list is in scratch, and its texts are in the set. */
static struct rule_path *read_paths(struct reader *r, const struct node *node, size_t *ret_count)
{
    static const struct list list = { read_path, sizeof(struct rule_path), 1, RULE_PATHS_MAX,
                                      "leave `path` out to match all" };
    *ret_count = 0;
    return read_list_in(r, node, &list, r->scratch, ret_count);
}

static struct rule_path *join_paths(struct reader *r, const struct rule_path *paths, size_t count,
                                    const struct rule_path *others, size_t other_count)
{
    struct rule_path *joined = reader_alloc(r, (count + other_count) * sizeof *joined);
    if (joined && count > 0)
        memcpy(joined, paths, count * sizeof *joined);
    if (joined && other_count > 0)
        memcpy(joined + count, others, other_count * sizeof *joined);
    return joined;
}

/* The only path needs no list. */
static void keep_paths(struct reader *r, struct rule_match *match, const struct rule_path *paths, size_t count,
                       const struct rule_path *others, size_t other_count)
{
    const struct rule_path *only = count > 0 ? paths : others;
    match->path_count = (uint16_t)count;
    match->not_path_count = (uint16_t)other_count;
    if (count + other_count == 1 && only->length <= UINT16_MAX) {
        match->alone = true;
        match->text = only->text;
        match->length = (uint16_t)only->length;
        match->is_regex = only->is_regex;
    } else if (count + other_count > 0) {
        match->list = join_paths(r, paths, count, others, other_count);
    }
}

static void read_path_mapping(struct reader *r, const struct node *node, struct rule_match *match,
                              struct condition_list *conditions)
{
    static const struct field fields[] = { COMMON_FIELDS, KEPT("regex"), { NULL } };
    const struct node *nodes[FIELDS] = { 0 };
    struct rule_path *paths = NULL, *not_paths = NULL, one = { .is_regex = true };
    size_t count = 0, not_count = 0;
    if (is_text_pattern(r, node))
        return;
    find_fields(r, node, fields, nodes);
    if (nodes[FIELD_IS] && nodes[FIELD_REGEX])
        one_of_them(r, node);
    if (nodes[FIELD_REGEX]) {
        sv text = { 0 };
        size_t before = path_field(r, SV("regex"));
        read_regex(r, nodes[FIELD_REGEX], &text);
        path_end(r, before);
        one.text = text.ptr;
        one.length = (uint32_t)text.len;
        paths = &one;
        count = 1;
    }
    for (size_t i = FIELD_IS; i <= FIELD_NOT; i++) {
        size_t before = path_field(r, weir_str(fields[i].name));
        if (nodes[i] && i == FIELD_IS)
            paths = read_paths(r, nodes[i], &count);
        else if (nodes[i])
            not_paths = read_paths(r, nodes[i], &not_count);
        path_end(r, before);
    }
    keep_paths(r, match, paths, count, not_paths, not_count);
    enum presence presence = read_presence(r, node, nodes);
    if (presence == ABSENT || (presence == PRESENT && count == 0))
        conditions->list[conditions->count++] = (struct rule_condition){ .attribute = ATTR_PATH, .presence = presence };
}

static void read_path_list(struct reader *r, const struct node *node, struct rule_match *match)
{
    size_t count = 0;
    const struct rule_path *paths = read_paths(r, node, &count);
    keep_paths(r, match, paths, count, NULL, 0);
}

/* ---- the whole ---- */

static void read_condition_of(struct reader *r, const struct node *node, struct rule_match *match,
                              struct condition_list *conditions)
{
    r->arena = r->attribute == ATTR_PATH ? &r->rules->arena : r->scratch;
    if (attribute_has_name(r->attribute))
        read_named_conditions(r, node, conditions);
    else if (r->attribute == ATTR_PATH && node->kind == NODE_MAP && node->count > 0)
        read_path_mapping(r, node, match, conditions);
    else if (r->attribute == ATTR_PATH)
        read_path_list(r, node, match);
    else
        read_condition(r, node, conditions, (sv){ 0 });
    r->arena = &r->rules->arena;
}

void read_match(struct reader *r, const struct node *node, void *ret)
{
    struct rule_match *match = ret;
    struct condition_list conditions;
    const struct node *nodes[ATTRIBUTE_COUNT] = { 0 };
    struct field fields[ATTRIBUTE_COUNT + 1] = { 0 };
    enum attribute attributes[ATTRIBUTE_COUNT];
    size_t count = 0;
    if (node_is_null(node) || (node->kind == NODE_MAP && node->count == 0)) {
        report_error(r, node->line, "is empty; leave out `match` to match every request");
        return;
    }
    /* A condition without a value is an error: taken for none, it would let the rule match everything. */
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++)
        if (attribute_table[i].uses & IN_MATCH) {
            attributes[count] = i;
            fields[count++] = (struct field)KEPT(attribute_table[i].name.ptr);
        }
    find_fields(r, node, fields, nodes);
    conditions.count = 0;
    struct arena_mark before = arena_mark(r->scratch);
    for (size_t i = 0; i < count; i++) {
        if (!nodes[i])
            continue;
        size_t at = path_field(r, weir_str(fields[i].name));
        r->attribute = attributes[i];
        read_condition_of(r, nodes[i], match, &conditions);
        path_end(r, at);
    }
    r->kind.conditions = conditions_copy(r->arena, &r->shared, conditions.list, conditions.count);
    r->kind.condition_count = (uint8_t)conditions.count;
    r->no_memory = r->no_memory || (conditions.count > 0 && !r->kind.conditions);
    arena_back(r->scratch, &before);
}
