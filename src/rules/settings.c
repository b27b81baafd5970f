/* The settings, and what a refusal looks like: a rule may say that too. */
#include "rules/reader.h"

/* ---- reject ---- */

static void read_status(struct reader *r, const struct node *node, void *ret)
{
    struct rule_reject *reject = ret;
    uint64_t status;
    if (read_number(r, node, 400, 599, &status))
        reject->status = (uint16_t)status;
}

static void read_body(struct reader *r, const struct node *node, void *ret)
{
    struct rule_reject *reject = ret;
    reject->has_body = read_text(r, node, 0, RULE_BODY_MAX, &reject->body);
}

static void read_content_type(struct reader *r, const struct node *node, void *ret)
{
    struct rule_reject *reject = ret;
    sv text;
    if (!read_text(r, node, 1, RULE_TEXT_MAX, &text))
        return;
    if (sv_trim(text).len == text.len && memchr(text.ptr, '/', text.len) && !text_has_control(text))
        reject->content_type = text;
    else
        report_error(r, node->line, "must be a media type such as application/json, not %s", shown_node(r, node));
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

static void read_reject_headers(struct reader *r, const struct node *node, void *ret)
{
    struct rule_reject *reject = ret;
    if (read_headers(r, node, &reject->headers, &reject->header_count))
        check_reject_headers(r, node, reject);
}

void read_reject(struct reader *r, const struct node *node, void *ret)
{
    static const struct field fields[] = { { "status", read_status },
                                           { "body", read_body },
                                           { "content_type", read_content_type },
                                           { "headers", read_reject_headers },
                                           { NULL } };
    read_fields(r, node, fields, ret);
}

/* ---- settings ---- */

static void read_ids(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = { read_regex, sizeof(sv), 1, SETTINGS_LIST_MAX,
                                      "leave `ids` out for digits and UUIDs" };
    struct settings *s = ret;
    s->ids = read_list(r, node, &list, &s->id_count);
}

static void read_ignore_case(struct reader *r, const struct node *node, void *ret)
{
    struct settings *s = ret;
    read_bool(r, node, &s->ignore_case);
}

static void read_strip_prefixes(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = { .read = read_prefix, .size = sizeof(sv), .max = SETTINGS_LIST_MAX };
    struct settings *s = ret;
    s->strip_prefixes = read_list(r, node, &list, &s->strip_prefix_count);
}

static void read_trusted_proxies(struct reader *r, const struct node *node, void *ret)
{
    struct settings *s = ret;
    s->trusted_proxies = read_cidrs(r, node, SETTINGS_LIST_MAX, &s->trusted_proxy_count);
}

static void read_ipv6_prefix(struct reader *r, const struct node *node, void *ret)
{
    struct settings *s = ret;
    uint64_t number;
    if (read_number(r, node, 1, 128, &number))
        s->ipv6_prefix = (unsigned)number;
}

static void read_repeated_headers(struct reader *r, const struct node *node, void *ret)
{
    struct settings *s = ret;
    int word;
    if (read_word(r, node, repeated_names, &word))
        s->repeated_headers = (enum repeated_headers)word;
}

static void read_header_setting(struct reader *r, const struct node *node, void *ret)
{
    struct settings *s = ret;
    bool on;
    int word;
    /* YAML reads a bare off as false. */
    if (node_is_bool(node, &on) && !on)
        s->headers = HEADERS_OFF;
    else if (read_word(r, node, header_setting_names, &word))
        s->headers = (enum header_setting)word;
}

static void read_partition_key_secret(struct reader *r, const struct node *node, void *ret)
{
    struct settings *s = ret;
    read_text(r, node, PARTITION_SECRET_MIN, PARTITION_SECRET_MAX, &s->partition_key_secret);
}

static const struct field settings_fields[] = {
    [SETTING_IDS] = { "ids", read_ids },
    [SETTING_IGNORE_CASE] = { "ignore_case", read_ignore_case },
    [SETTING_STRIP_PREFIXES] = { "strip_prefixes", read_strip_prefixes },
    [SETTING_TRUSTED_PROXIES] = { "trusted_proxies", read_trusted_proxies },
    [SETTING_IPV6_PREFIX] = { "ipv6_prefix", read_ipv6_prefix },
    [SETTING_REPEATED_HEADERS] = { "repeated_headers", read_repeated_headers },
    [SETTING_HEADERS] = { "headers", read_header_setting },
    [SETTING_PARTITION_KEY_SECRET] = { "partition_key_secret", read_partition_key_secret },
    [SETTING_EXCEPT] = { "except", read_except, offsetof(struct settings, except) },
    [SETTING_REJECT] = { "reject", read_reject, offsetof(struct settings, reject) },
    [SETTINGS] = { NULL },
};

int setting_find(sv name)
{
    for (int i = 0; i < SETTINGS; i++)
        if (sv_eq(name, weir_str(settings_fields[i].name)))
            return i;
    return -1;
}

/* A bad setting stays as it was. */
static void read_setting(struct reader *r, enum setting setting, const struct node *node, struct settings *ret)
{
    struct settings before = *ret;
    size_t errors = r->errors;
    read_field(r, &settings_fields[setting], node, ret);
    if (r->errors > errors) {
        *ret = before;
        r->report->bad_settings |= 1u << setting;
    }
}

void read_settings(struct reader *r, const struct node *node, void *ret)
{
    const struct node *nodes[SETTINGS] = { 0 };
    r->in_settings = true;
    r->path_len = 0; /* errors begin with "settings: " instead */
    find_fields(r, node, settings_fields, nodes);
    if (node->kind != NODE_MAP)
        r->report->bad_settings = (1u << SETTINGS) - 1;
    read_setting(r, SETTING_IGNORE_CASE, nodes[SETTING_IGNORE_CASE], ret); /* first: the regexes of `ids` follow it */
    for (enum setting i = 0; i < SETTINGS; i++)
        if (i != SETTING_IGNORE_CASE)
            read_setting(r, i, nodes[i], ret);
    r->in_settings = false;
}
