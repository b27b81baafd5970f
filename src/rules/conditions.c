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

static void read_method(struct reader *r, const struct node *node, void *ret)
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
    *(sv *)ret = sv_of(upper, text.len);
}

static void read_methods(struct reader *r, const struct node *node, struct rule_match *ret)
{
    static const struct list list = { read_method, sizeof *ret->methods, 1, RULE_METHODS_MAX,
                                      "leave `method` out to match all" };
    ret->methods = read_list(r, node, &list, &ret->method_count);
}

sv host_name(sv text)
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

static void read_path(struct reader *r, const struct node *node, void *ret)
{
    static const struct field fields[] = { { "regex", read_regex, offsetof(struct rule_path, text), .keep_null = true },
                                           { NULL } };
    struct rule_path *path = ret;
    path->is_regex = node->kind == NODE_MAP;
    if (!path->is_regex)
        read_template(r, node, &path->text);
    else if (read_fields(r, node, fields, path) && !path->text.ptr)
        report_error(r, node->line, "needs `regex`; or write a template such as /files/#/{name}");
}

static void read_paths(struct reader *r, const struct node *node, struct rule_match *ret)
{
    static const struct list list = { read_path, sizeof *ret->paths, 1, RULE_PATHS_MAX, "leave `path` out to match all" };
    ret->paths = read_list(r, node, &list, &ret->path_count);
}

static void read_header_values(struct reader *r, const struct node *node, struct rule_match *ret)
{
    if (node->kind == NODE_MAP && node->count == 0)
        report_error(r, node->line, "the mapping is empty; leave `header` out to match all");
    else
        read_headers(r, node, true, &ret->headers, &ret->header_count);
}

void read_match(struct reader *r, const struct node *node, void *ret)
{
    static void (*const readers[ATTRIBUTE_COUNT])(struct reader *, const struct node *, struct rule_match *) = {
        [ATTR_METHOD] = read_methods, [ATTR_PATH] = read_paths, [ATTR_HOST] = read_host, [ATTR_HEADER] = read_header_values
    };
    struct rule_match *match = ret;
    const struct node *nodes[ATTRIBUTE_COUNT] = { 0 };
    struct field fields[ATTRIBUTE_COUNT + 1] = { 0 };
    enum attribute attributes[ATTRIBUTE_COUNT];
    size_t count = 0;
    /* A condition without a value is an error: taken for none, it would let the rule match everything. */
    for (enum attribute i = 0; i < ATTRIBUTE_COUNT; i++)
        if (attribute_table[i].uses & IN_MATCH) {
            attributes[count] = i;
            fields[count++] = (struct field){ .name = attribute_table[i].name.ptr, .keep_null = true };
        }
    find_fields(r, node, fields, nodes);
    match->texts = reader_alloc(r, node->count * sizeof *match->texts);
    for (size_t i = 0; match->texts && i < count; i++) {
        if (!nodes[i])
            continue;
        size_t before = path_field(r, weir_str(fields[i].name));
        if (readers[attributes[i]])
            readers[attributes[i]](r, nodes[i], match);
        else
            read_equal(r, nodes[i], attributes[i], match);
        path_end(r, before);
    }
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

void read_attribute(struct reader *r, const struct node *node, void *ret)
{
    sv text = node->kind == NODE_SCALAR ? node->text : (sv){ 0 };
    bool header = sv_starts(text, SV("header:"));
    sv name = header ? sv_trim(sv_from(text, 7)) : (sv){ 0 };
    enum attribute found = attribute_find(text);
    if (header && http_token(name) && name.len <= RULE_NAME_MAX)
        *(struct rule_by *)ret = (struct rule_by){ ATTR_HEADER, reader_copy_lower(r, name) };
    else if (found < ATTR_HEADER && attribute_table[found].uses & IN_BY)
        *(struct rule_by *)ret = (struct rule_by){ .attribute = found };
    else {
        *(struct rule_by *)ret = (struct rule_by){ .attribute = ATTRIBUTE_COUNT };
        report_attribute(r, node, text);
    }
}

static bool same_by(const void *one, const void *two)
{
    const struct rule_by *a = one, *b = two;
    return a->attribute < ATTRIBUTE_COUNT && a->attribute == b->attribute && sv_eq(a->header, b->header);
}

void read_by(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = {
        .read = read_attribute, .size = sizeof(struct rule_by), .max = RULE_BY_MAX, .same = same_by
    };
    struct rule *rule = ret;
    rule->by = read_list(r, node, &list, &rule->by_count);
}

/* ---- except ---- */

static void read_cidr(struct reader *r, const struct node *node, void *ret)
{
    if (node->kind != NODE_SCALAR || !cidr_parse(sv_trim(node->text), ret))
        report_error(r, node->line, "must be an address or a network such as 10.0.0.0/8 or fd00::/8, not %s",
                     shown_node(r, node));
}

struct cidr *read_cidrs(struct reader *r, const struct node *node, size_t max, size_t *ret_count)
{
    struct list list = { .read = read_cidr, .size = sizeof(struct cidr), .max = max };
    return read_list(r, node, &list, ret_count);
}

static void read_ips(struct reader *r, const struct node *node, void *ret)
{
    struct rule_except *except = ret;
    except->ips = read_cidrs(r, node, RULE_EXCEPT_MAX, &except->ip_count);
}

static void read_user(struct reader *r, const struct node *node, void *ret)
{
    read_text(r, node, 1, RULE_TEXT_MAX, ret);
}

static void read_users(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = { .read = read_user, .size = sizeof(sv), .max = RULE_EXCEPT_MAX };
    struct rule_except *except = ret;
    except->users = read_list(r, node, &list, &except->user_count);
}

void read_except(struct reader *r, const struct node *node, void *ret)
{
    static const struct field fields[] = { { "ip", read_ips }, { "user", read_users }, { NULL } };
    read_fields(r, node, fields, ret);
}
