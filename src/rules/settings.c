/* The settings, and what a refusal looks like: a rule may say that too. */
#include "rules/reader.h"

/* ---- reject ---- */

struct reject_nodes {
    const struct node *status, *body, *content_type, *headers;
};

static const struct field reject_fields[] = {
    { "status", offsetof(struct reject_nodes, status) },
    { "body", offsetof(struct reject_nodes, body) },
    { "content_type", offsetof(struct reject_nodes, content_type) },
    { "headers", offsetof(struct reject_nodes, headers) },
    { NULL },
};

static void read_status(struct reader *r, const struct node *node, struct rule_reject *ret)
{
    IN_FIELD(r, "status");
    uint64_t status;
    if (read_number(r, node, 400, 599, &status))
        ret->status = (uint16_t)status;
}

static void read_content_type(struct reader *r, const struct node *node, struct rule_reject *ret)
{
    IN_FIELD(r, "content_type");
    sv text;
    if (read_text(r, node, 1, RULE_TEXT_MAX, &text)) {
        bool good = sv_trim(text).len == text.len && memchr(text.ptr, '/', text.len) && !text_has_control(text);
        if (good)
            ret->content_type = text;
        else
            report_error(r, node->line, "must be a media type such as application/json, not %s", shown_node(r, node));
    }
}

/* Headers that the answer gets from elsewhere: a second one would break it. */
static void check_reject_headers(struct reader *r, const struct node *node, const struct rule_reject *reject)
{
    static const char *const taken[] = { "content-type", "content-length", "transfer-encoding",
                                         "connection",   "keep-alive",     "proxy-connection",
                                         "te",           "trailer",        "upgrade" };
    for (size_t i = 0; i < reject->header_count; i++) {
        for (size_t j = 0; j < sizeof taken / sizeof *taken; j++) {
            if (!sv_eq_nocase(reject->headers[i].name, weir_str(taken[j])))
                continue;
            report_error(r, node->line, j == 0 ? "%.*s is set by `content_type`" : "%.*s is set by the server",
                         SV_FMT(reject->headers[i].name));
        }
    }
}

void read_reject(struct reader *r, const struct node *node, struct rule_reject *ret)
{
    struct reject_nodes n = { 0 };
    size_t outer = path_field(r, SV("reject"));
    read_fields(r, node, reject_fields, &n);
    if (n.status)
        read_status(r, n.status, ret);
    if (n.body) {
        IN_FIELD(r, "body");
        ret->has_body = read_text(r, n.body, 0, RULE_BODY_MAX, &ret->body);
    }
    if (n.content_type)
        read_content_type(r, n.content_type, ret);
    if (n.headers) {
        IN_FIELD(r, "headers");
        if (read_headers(r, n.headers, false, &ret->headers, &ret->header_count))
            check_reject_headers(r, n.headers, ret);
    }
    path_end(r, outer);
}

/* ---- settings ---- */

static const struct field settings_fields[] = {
    { "ids", SETTING_IDS * sizeof(void *) },
    { "ignore_case", SETTING_IGNORE_CASE * sizeof(void *) },
    { "strip_prefixes", SETTING_STRIP_PREFIXES * sizeof(void *) },
    { "trusted_proxies", SETTING_TRUSTED_PROXIES * sizeof(void *) },
    { "ipv6_prefix", SETTING_IPV6_PREFIX * sizeof(void *) },
    { "repeated_headers", SETTING_REPEATED_HEADERS * sizeof(void *) },
    { "except", SETTING_EXCEPT * sizeof(void *) },
    { "reject", SETTING_REJECT * sizeof(void *) },
    { NULL },
};

int setting_find(sv name)
{
    for (int i = 0; i < SETTINGS; i++)
        if (sv_eq(name, weir_str(settings_fields[i].name)))
            return i;
    return -1;
}

static void read_texts(struct reader *r, const struct node *node, bool regex, sv **ret, size_t *ret_count)
{
    if (!check_count(r, node, regex, SETTINGS_LIST_MAX, "leave `ids` out for digits and UUIDs"))
        return;
    sv *list = reader_alloc(r, list_count(node) * sizeof *list);
    size_t count = 0, errors = r->errors;
    struct walk walk = walk_list(node);
    const struct node *item;
    while (list && (item = walk_next(r, &walk)))
        count += regex ? read_regex(r, item, &list[count]) : read_template(r, item, true, &list[count]);
    if (list && r->errors == errors) {
        *ret = list;
        *ret_count = count;
    }
}

static void read_setting(struct reader *r, enum setting setting, const struct node *node, struct settings *s)
{
    uint64_t number;
    int word;
    switch (setting) {
    case SETTING_IDS:
        read_texts(r, node, true, &s->ids, &s->id_count);
        break;
    case SETTING_IGNORE_CASE:
        read_bool(r, node, &s->ignore_case);
        break;
    case SETTING_STRIP_PREFIXES:
        read_texts(r, node, false, &s->strip_prefixes, &s->strip_prefix_count);
        break;
    case SETTING_TRUSTED_PROXIES:
        read_cidrs(r, node, SETTINGS_LIST_MAX, &s->trusted_proxies, &s->trusted_proxy_count);
        break;
    case SETTING_IPV6_PREFIX:
        if (read_number(r, node, 1, 128, &number))
            s->ipv6_prefix = (unsigned)number;
        break;
    case SETTING_REPEATED_HEADERS:
        if (read_word(r, node, repeated_names, &word))
            s->repeated_headers = (enum repeated_headers)word;
        break;
    case SETTING_EXCEPT:
        read_except(r, node, &s->except);
        break;
    case SETTING_REJECT:
        read_reject(r, node, &s->reject);
        break;
    case SETTINGS:
        break;
    }
}

/* ignore_case comes first: the regexes of `ids` follow it. */
void read_settings(struct reader *r, const struct node *node, struct settings *ret)
{
    static const enum setting order[SETTINGS] = { SETTING_IGNORE_CASE,     SETTING_IDS,         SETTING_STRIP_PREFIXES,
                                                  SETTING_TRUSTED_PROXIES, SETTING_IPV6_PREFIX, SETTING_REPEATED_HEADERS,
                                                  SETTING_EXCEPT,          SETTING_REJECT };
    const struct node *nodes[SETTINGS] = { 0 };
    r->in_settings = true;
    read_fields(r, node, settings_fields, nodes);
    if (node->kind != NODE_MAP)
        r->report->bad_settings = (1u << SETTINGS) - 1;
    for (size_t i = 0; i < SETTINGS; i++) {
        enum setting setting = order[i];
        if (!nodes[setting])
            continue;
        struct settings before = *ret;
        size_t errors = r->errors;
        /* read_except and read_reject name themselves. */
        bool named = setting != SETTING_EXCEPT && setting != SETTING_REJECT;
        size_t outer = named ? path_field(r, weir_str(settings_fields[setting].name)) : r->path_len;
        read_setting(r, setting, nodes[setting], ret);
        path_end(r, outer);
        if (r->errors > errors) {
            *ret = before;
            r->report->bad_settings |= 1u << setting;
        }
    }
    r->in_settings = false;
}
