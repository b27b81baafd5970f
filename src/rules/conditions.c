/* What a rule matches, what it counts by, whom it excepts. */
#include <stdio.h>

#include "base/regex.h"
#include "rules/reader.h"

/* ---- match ---- */

static void add_text(struct rule_match *match, enum attribute attribute, sv value)
{
    match->texts[match->text_count++] = (struct rule_text){ attribute, value };
}

/* The condition on an attribute that has no reader of its own below. */
static void read_equal(struct reader *r, const struct node *node, enum attribute attribute, struct rule_match *ret)
{
    sv value;
    if (!read_text(r, node, 1, RULE_TEXT_MAX, &value))
        return;
    if (sv_blank(value))
        report_error(r, node->line, "must not be blank");
    add_text(ret, attribute, value);
}

static void read_method(struct reader *r, const struct node *node, sv *ret)
{
    sv text = node->text;
    if (!check_text(r, node, 1, RULE_NAME_MAX))
        return;
    if (!http_token(text) || sv_eq(text, SV("*"))) {
        report_error(r, node->line, "must be a method such as GET, not %s; leave `method` out to match all",
                     shown_node(r, node));
        return;
    }
    char *upper = reader_alloc(r, text.len + 1);
    for (size_t i = 0; upper && i < text.len; i++)
        upper[i] = text.ptr[i] >= 'a' && text.ptr[i] <= 'z' ? (char)(text.ptr[i] & ~0x20) : text.ptr[i];
    *ret = sv_of(upper, text.len);
}

static void read_methods(struct reader *r, const struct node *node, struct rule_match *ret)
{
    if (!check_count(r, node, 1, RULE_METHODS_MAX, "leave `method` out to match all"))
        return;
    ret->methods = reader_alloc(r, list_count(node) * sizeof *ret->methods);
    struct walk walk = walk_list(node);
    const struct node *item;
    while (ret->methods && (item = walk_next(r, &walk)))
        read_method(r, item, &ret->methods[ret->method_count++]);
}

/* The name without its port and the dot of a full name; empty if it is none. */
static sv host_name(sv text)
{
    sv name = text, port;
    if (text.len > 0 && text.ptr[0] == '[') {
        sv rest = sv_from(text, 1);
        sv address = sv_cut(&rest, ']');
        struct ip ip;
        if (!ip_parse(address, &ip) || ip_is_v4(&ip) || address.len + 2 > text.len)
            return (sv){ 0 };
        name.len = address.len + 2;
        port = rest;
    } else {
        name = text.len ? sv_of(text.ptr, 0) : text;
        while (name.len < text.len && text.ptr[name.len] != ':') {
            char c = ascii_lower(text.ptr[name.len++]);
            if (!ascii_digit(c) && (c < 'a' || c > 'z') && c != '.' && c != '-' && c != '_')
                return (sv){ 0 };
        }
        port = sv_from(text, name.len);
    }
    uint64_t number;
    bool good = port.len == 0 || (port.ptr[0] == ':' && (port.len == 1 || sv_u64(sv_from(port, 1), 65535, &number)));
    while (good && name.len > 0 && name.ptr[name.len - 1] == '.')
        name.len--;
    return good ? name : (sv){ 0 };
}

static void read_host(struct reader *r, const struct node *node, struct rule_match *ret)
{
    if (!check_text(r, node, 1, 255))
        return;
    sv name = host_name(node->text);
    if (name.len == 0)
        report_error(
            r, node->line,
            "must be a host name such as api.example.com, an IPv4 address, or an IPv6 address in brackets, without "
            "scheme, path or wildcard, not %s",
            shown_node(r, node));
    else
        add_text(ret, ATTR_HOST, reader_copy_lower(r, name));
}

bool read_regex(struct reader *r, const struct node *node, sv *ret)
{
    sv text;
    if (!read_text(r, node, 1, RULE_PATH_MAX, &text))
        return false;
    if (r->regexes++ >= RULES_REGEXES_MAX) {
        report_error(r, node->line, "more than %d regular expressions; use templates where you can", RULES_REGEXES_MAX);
        return false;
    }
    struct regex *regex;
    char error[200];
    int code = regex_new(&regex, text, r->rules->settings.ignore_case, error, sizeof error);
    if (code == WEIR_E_NO_MEMORY)
        r->no_memory = true;
    else if (code < 0)
        report_error(r, node->line, "invalid regular expression %s: %s", shown_text(r, text), error);
    if (code < 0)
        return false;
    regex_free(regex);
    *ret = text;
    return true;
}

struct path_nodes {
    const struct node *regex;
};

static const struct field path_fields[] = { { "regex", offsetof(struct path_nodes, regex), true }, { NULL } };

static void read_path(struct reader *r, const struct node *node, struct rule_path *ret)
{
    struct path_nodes n = { 0 };
    if (node->kind != NODE_MAP) {
        read_template(r, node, false, &ret->text);
    } else if (read_fields(r, node, path_fields, &n)) {
        ret->is_regex = true;
        if (!n.regex) {
            report_error(r, node->line, "needs `regex`; or write a template such as /files/#/{name}");
            return;
        }
        size_t before = path_field(r, SV("regex"));
        read_regex(r, n.regex, &ret->text);
        path_end(r, before);
    }
}

static void read_paths(struct reader *r, const struct node *node, struct rule_match *ret)
{
    if (!check_count(r, node, 1, RULE_PATHS_MAX, "leave `path` out to match all"))
        return;
    ret->paths = reader_alloc(r, list_count(node) * sizeof *ret->paths);
    struct walk walk = walk_list(node);
    const struct node *item;
    while (ret->paths && (item = walk_next(r, &walk)))
        read_path(r, item, &ret->paths[ret->path_count++]);
}

static void read_header_values(struct reader *r, const struct node *node, struct rule_match *ret)
{
    if (node->kind == NODE_MAP && node->count == 0)
        report_error(r, node->line, "the mapping is empty; leave `header` out to match all");
    else
        read_headers(r, node, true, &ret->headers, &ret->header_count);
}

/* A condition without a value is an error: taken for none, it would let the rule match everything. */
static void match_fields(struct field ret[ATTRIBUTE_COUNT + 1])
{
    size_t count = 0;
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++)
        if (attribute_table[i].uses & IN_MATCH)
            ret[count++] = (struct field){ attribute_table[i].name.ptr, i * sizeof(const struct node *), true };
    ret[count] = (struct field){ 0 };
}

void read_match(struct reader *r, const struct node *node, struct rule_match *ret)
{
    static void (*const readers[ATTRIBUTE_COUNT])(struct reader *, const struct node *, struct rule_match *) = {
        [ATTR_METHOD] = read_methods, [ATTR_PATH] = read_paths, [ATTR_HOST] = read_host, [ATTR_HEADER] = read_header_values
    };
    const struct node *nodes[ATTRIBUTE_COUNT] = { 0 };
    struct field fields[ATTRIBUTE_COUNT + 1];
    size_t outer = path_field(r, SV("match"));
    match_fields(fields);
    read_fields(r, node, fields, nodes);
    ret->texts = reader_alloc(r, node->count * sizeof *ret->texts);
    for (enum attribute i = 0; ret->texts && i < ATTRIBUTE_COUNT; i++) {
        if (!nodes[i])
            continue;
        size_t before = path_field(r, attribute_table[i].name);
        if (readers[i])
            readers[i](r, nodes[i], ret);
        else
            read_equal(r, nodes[i], i, ret);
        path_end(r, before);
    }
    path_end(r, outer);
}

/* ---- by ---- */

static void report_attribute(struct reader *r, const struct node *node, sv text)
{
    const char *names[ATTRIBUTE_COUNT + 1], *nearest;
    char allowed[300];
    size_t count = 0, length = 0;
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++)
        if (attribute_table[i].uses & IN_BY)
            names[count++] = attribute_table[i].name.ptr;
    names[count] = NULL;
    for (size_t i = 0; i + 1 < count; i++)
        length += (size_t)snprintf(allowed + length, sizeof allowed - length, "%s%s", i ? ", " : "", names[i]);
    nearest = word_find(text, names) < 0 && !sv_starts(text, SV("header:")) ? word_nearest(text, names) : NULL;
    report_error(r, node->line, "must be %s or header:NAME, not %s%s%s%s", allowed, shown_node(r, node),
                 nearest ? "; did you mean `" : "", nearest ? nearest : "", nearest ? "`?" : "");
}

static bool read_attribute(struct reader *r, const struct node *node, struct rule_by *ret)
{
    sv text = node->kind == NODE_SCALAR ? node->text : (sv){ 0 };
    bool header = sv_starts(text, SV("header:"));
    sv name = header ? sv_trim(sv_from(text, 7)) : (sv){ 0 };
    enum attribute found = attribute_find(text);
    if (header && http_token(name) && name.len <= RULE_NAME_MAX) {
        *ret = (struct rule_by){ ATTR_HEADER, reader_copy_lower(r, name) };
        return true;
    }
    if (found < ATTR_HEADER && attribute_table[found].uses & IN_BY) {
        *ret = (struct rule_by){ .attribute = found };
        return true;
    }
    report_attribute(r, node, text);
    return false;
}

void read_by(struct reader *r, const struct node *node, struct rule *rule)
{
    size_t before = path_field(r, SV("by"));
    if (check_count(r, node, 0, RULE_BY_MAX, "")) {
        rule->by = reader_alloc(r, list_count(node) * sizeof *rule->by);
        struct walk walk = walk_list(node);
        const struct node *item;
        while (rule->by && (item = walk_next(r, &walk))) {
            struct rule_by *by = &rule->by[rule->by_count];
            if (!read_attribute(r, item, by))
                continue;
            for (size_t i = 0; i < rule->by_count; i++)
                if (rule->by[i].attribute == by->attribute && sv_eq(rule->by[i].header, by->header))
                    report_error(r, item->line, "%s is given twice", shown_node(r, item));
            rule->by_count++;
        }
    }
    path_end(r, before);
}

/* ---- except ---- */

struct except_nodes {
    const struct node *ip, *user;
};

static const struct field except_fields[] = {
    { "ip", offsetof(struct except_nodes, ip) },
    { "user", offsetof(struct except_nodes, user) },
    { NULL },
};

bool read_cidrs(struct reader *r, const struct node *node, size_t max, struct cidr **ret, size_t *ret_count)
{
    if (!check_count(r, node, 0, max, ""))
        return false;
    struct cidr *list = reader_alloc(r, list_count(node) * sizeof *list);
    size_t count = 0, errors = r->errors;
    struct walk walk = walk_list(node);
    const struct node *item;
    while (list && (item = walk_next(r, &walk))) {
        if (item->kind == NODE_SCALAR && cidr_parse(sv_trim(item->text), &list[count]))
            count++;
        else
            report_error(r, item->line, "must be an address or a network such as 10.0.0.0/8 or fd00::/8, not %s",
                         shown_node(r, item));
    }
    if (!list || r->errors > errors)
        return false;
    *ret = list;
    *ret_count = count;
    return true;
}

static void read_users(struct reader *r, const struct node *node, struct rule_except *ret)
{
    if (!check_count(r, node, 0, RULE_EXCEPT_MAX, ""))
        return;
    ret->users = reader_alloc(r, list_count(node) * sizeof *ret->users);
    struct walk walk = walk_list(node);
    const struct node *item;
    while (ret->users && (item = walk_next(r, &walk)))
        ret->user_count += read_text(r, item, 1, RULE_TEXT_MAX, &ret->users[ret->user_count]);
}

void read_except(struct reader *r, const struct node *node, struct rule_except *ret)
{
    struct except_nodes n = { 0 };
    size_t outer = path_field(r, SV("except"));
    read_fields(r, node, except_fields, &n);
    if (n.ip) {
        IN_FIELD(r, "ip");
        read_cidrs(r, n.ip, RULE_EXCEPT_MAX, &ret->ips, &ret->ip_count);
    }
    if (n.user) {
        IN_FIELD(r, "user");
        read_users(r, n.user, ret);
    }
    path_end(r, outer);
}
