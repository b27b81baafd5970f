#include "cli/drogon.h"

#include <stdio.h>

#include "base/format.h"
#include "base/ip.h"
#include "base/regex.h"

#define HODOR "drogon::plugin::Hodor"
#define RESOLVER "drogon::plugin::RealIpResolver"

enum { TEXT_MAX = 64 << 20, NOTES_MAX = 1 << 20 };

/* ---- comments ---- */

/* Copies a string with its quotes. Returns its length. */
static size_t copy_string(sv text, struct buf *out)
{
    size_t i = 1;
    while (i < text.len && text.ptr[i] != '"')
        i += text.ptr[i] == '\\' ? 2 : 1;
    i = i < text.len ? i + 1 : text.len;
    buf_add(out, sv_of(text.ptr, i));
    return i;
}

/* Length of the comment at the start of text, or 0. */
static size_t comment_length(sv text)
{
    if (sv_starts(text, SV("//"))) {
        const char *end = memchr(text.ptr, '\n', text.len);
        return end ? (size_t)(end - text.ptr) : text.len;
    }
    if (!sv_starts(text, SV("/*")))
        return 0;
    const char *end = memmem(text.ptr + 2, text.len - 2, "*/", 2);
    return end ? (size_t)(end - text.ptr) + 2 : text.len;
}

static sv skip_blank(sv text)
{
    for (;;) {
        size_t n = comment_length(text);
        if (n == 0 && text.len > 0 && strchr(" \t\r\n", text.ptr[0]))
            n = 1;
        if (n == 0)
            return text;
        text = sv_from(text, n);
    }
}

static bool comma_is_last(sv after)
{
    sv next = skip_blank(after);
    return next.len > 0 && (next.ptr[0] == '}' || next.ptr[0] == ']');
}

void drogon_strip_comments(sv text, struct buf *out)
{
    sv start = sv_starts(text, SV("\xef\xbb\xbf")) ? sv_from(text, 3) : text;
    sv first = skip_blank(start);
    if (first.len == 0 || (first.ptr[0] != '{' && first.ptr[0] != '[')) {
        buf_add(out, text);
        return;
    }
    for (sv rest = start; rest.len > 0;) {
        size_t n = comment_length(rest);
        if (n > 0) {
            for (size_t i = 0; i < n; i++)
                buf_char(out, rest.ptr[i] == '\n' ? '\n' : ' ');
        } else if (rest.ptr[0] == '"') {
            n = copy_string(rest, out);
        } else {
            n = 1;
            buf_char(out, rest.ptr[0] == ',' && comma_is_last(sv_from(rest, 1)) ? ' ' : rest.ptr[0]);
        }
        rest = sv_from(rest, n);
    }
}

/* ---- reading ---- */

static __attribute__((format(printf, 3, 4))) bool fail(struct hodor *h, int line, const char *format, ...)
{
    char text[400];
    FORMAT_ARGUMENTS(text, format);
    buf_printf(&h->errors, "%d: %s\n", line, text);
    return false;
}

static bool is_text(const struct node *node, sv text)
{
    return node && node->kind == NODE_SCALAR && sv_eq(node->text, text);
}

/* A field that is there and not null. */
static const struct node *field(const struct node *map, const char *name)
{
    const struct node *node = node_get(map, weir_str(name));
    return node && !node_is_null(node) ? node : NULL;
}

static void read_count(struct hodor *h, const struct node *map, const char *name, uint64_t min, uint64_t max, uint32_t *ret)
{
    const struct node *node = field(map, name);
    uint64_t n;
    if (!node)
        return;
    if (!node_is_number(node) || !sv_u64(node->text, max, &n) || n < min)
        fail(h, node->line, "%s: must be a whole number from %llu to %llu", name, (unsigned long long)min,
             (unsigned long long)max);
    else
        *ret = (uint32_t)n;
}

static void read_flag(struct hodor *h, const struct node *map, const char *name, bool *ret)
{
    const struct node *node = field(map, name);
    if (node && !node_is_bool(node, ret))
        fail(h, node->line, "%s: must be true or false", name);
}

static void read_string(struct hodor *h, const struct node *map, const char *name, sv *ret)
{
    const struct node *node = field(map, name);
    if (!node)
        return;
    if (node->kind != NODE_SCALAR)
        fail(h, node->line, "%s: must be a string", name);
    else
        *ret = node->text;
}

/* A list of strings. */
static const struct node *read_list(struct hodor *h, const struct node *map, const char *name)
{
    const struct node *list = field(map, name);
    if (!list)
        return NULL;
    if (list->kind != NODE_LIST) {
        fail(h, list->line, "%s: must be a list", name);
        return NULL;
    }
    for (const struct node_item *item = list->first; item; item = item->next)
        if (item->value->kind != NODE_SCALAR)
            fail(h, item->value->line, "%s: must be a list of strings", name);
    return list->count > 0 ? list : NULL;
}

static const struct node *read_networks(struct hodor *h, const struct node *map, const char *name)
{
    struct cidr cidr;
    const struct node *list = read_list(h, map, name);
    for (const struct node_item *item = list ? list->first : NULL; item; item = item->next)
        if (item->value->kind == NODE_SCALAR && !cidr_parse(item->value->text, &cidr))
            fail(h, item->value->line, "%s: '%.*s' is not an address or a network such as 10.0.0.0/8", name,
                 SV_FMT(item->value->text));
    return list;
}

static const struct node *read_urls(struct hodor *h, const struct node *map)
{
    const struct node *list = read_list(h, map, "urls");
    for (const struct node_item *item = list ? list->first : NULL; item; item = item->next) {
        struct regex *regex = NULL;
        char why[200];
        if (item->value->kind == NODE_SCALAR && regex_new(&regex, item->value->text, false, why, sizeof why) < 0)
            fail(h, item->value->line, "urls: '%.*s' is not a regular expression that weir can use: %s",
                 SV_FMT(item->value->text), why);
        regex_free(regex);
    }
    return list;
}

#define GROUP_FIELDS "urls capacity ip_capacity user_capacity"

static void read_group(struct hodor *h, const struct node *map, struct hodor_group *ret)
{
    *ret = (struct hodor_group){ .line = map->line, .urls = read_urls(h, map) };
    read_count(h, map, "capacity", 0, UINT32_MAX, &ret->capacity);
    read_count(h, map, "ip_capacity", 0, UINT32_MAX, &ret->ip_capacity);
    read_count(h, map, "user_capacity", 0, UINT32_MAX, &ret->user_capacity);
}

static bool is_one_of(const struct node *key, const char *words)
{
    for (sv rest = weir_str(words); rest.len > 0;)
        if (is_text(key, sv_cut(&rest, ' ')))
            return true;
    return false;
}

/* Notes fields that are not in `known`, whose words have blanks between them, so that nothing is left out silently. */
static void note_unknown(struct hodor *h, const struct node *map, const char *where, const char *known)
{
    for (const struct node_item *item = map->first; item; item = item->next) {
        sv name = item->key->kind == NODE_SCALAR ? item->key->text : SV("?");
        if (!is_one_of(item->key, known))
            buf_printf(&h->notes, "line %d: \"%.*s\" in %s is not a field that Drogon reads, and was left out\n",
                       item->key->line, (int)(name.len < 100 ? name.len : 100), name.ptr, where);
    }
}

static bool read_subs(struct hodor *h, const struct node *map)
{
    const struct node *list = field(map, "sub_limits");
    if (!list)
        return true;
    if (list->kind != NODE_LIST || list->count > HODOR_SUBS_MAX)
        return fail(h, list->line, "sub_limits: must be a list of at most %d", HODOR_SUBS_MAX);
    h->subs = ARENA_ARRAY(&h->arena, struct hodor_group, list->count + 1);
    if (!h->subs)
        return fail(h, list->line, "out of memory");
    for (const struct node_item *item = list->first; item; item = item->next) {
        struct hodor_group *sub = &h->subs[h->sub_count++];
        if (item->value->kind != NODE_MAP) {
            fail(h, item->value->line, "sub_limits: must be a list of objects with urls and capacities");
            continue;
        }
        read_group(h, item->value, sub);
        note_unknown(h, item->value, "an entry of sub_limits", GROUP_FIELDS);
        if (!sub->urls)
            sub->skipped = "it has no urls";
        else if (!sub->capacity && !sub->ip_capacity && !sub->user_capacity)
            sub->skipped = "all its capacities are 0";
    }
    return true;
}

static enum limit_algorithm algorithm_of(struct hodor *h, sv name)
{
    if (sv_eq(name, SV("fixed_window")) || sv_eq(name, SV("fixedWindow")))
        return LIMIT_FIXED_WINDOW;
    if (sv_eq(name, SV("sliding_window")) || sv_eq(name, SV("slidingWindow")))
        return LIMIT_SLIDING_WINDOW;
    if (name.len > 0 && !sv_eq(name, SV("token_bucket")) && !sv_eq(name, SV("tokenBucket")))
        buf_printf(&h->notes, "algorithm: Hodor reads \"%.*s\" as token_bucket, and so do these rules\n",
                   (int)(name.len < 100 ? name.len : 100), name.ptr);
    return LIMIT_TOKEN_BUCKET;
}

static void read_hodor(struct hodor *h, const struct node *config)
{
    sv algorithm = { 0 };
    bool threads;
    uint32_t expire;
    read_string(h, config, "algorithm", &algorithm);
    h->algorithm = algorithm_of(h, algorithm);
    read_count(h, config, "time_unit", 1, HODOR_PERIOD_MAX_S, &h->time_unit_s);
    read_group(h, config, &h->main);
    read_flag(h, config, "use_real_ip_resolver", &h->use_real_ip_resolver);
    read_flag(h, config, "multi_threads", &threads);
    read_count(h, config, "limiter_expire_time", 0, UINT32_MAX, &expire);
    read_string(h, config, "rejection_message", &h->rejection_message);
    h->trust_ips = read_networks(h, config, "trust_ips");
    read_subs(h, config);
    note_unknown(h, config, "the configuration",
                 GROUP_FIELDS
                 " algorithm time_unit multi_threads use_real_ip_resolver sub_limits rejection_message trust_ips "
                 "limiter_expire_time");
}

static void read_resolver(struct hodor *h, const struct node *config)
{
    h->proxies = read_networks(h, config, "trust_ips");
    read_string(h, config, "from_header", &h->from_header);
    note_unknown(h, config, "the configuration of RealIpResolver", "trust_ips from_header attribute_key");
}

/* The last plugin of a name is the one that Drogon uses. */
static const struct node *find_plugin(const struct node *plugins, const char *name, unsigned *ret_count)
{
    const struct node *found = NULL;
    *ret_count = 0;
    for (const struct node_item *item = plugins->first; item; item = item->next)
        if (item->value->kind == NODE_MAP && is_text(node_get(item->value, SV("name")), weir_str(name))) {
            found = item->value;
            ++*ret_count;
        }
    return found;
}

/* The configuration of a plugin; an empty one where there is none. */
static const struct node *config_of(struct hodor *h, const struct node *plugin)
{
    static const struct node empty = { .kind = NODE_MAP };
    const struct node *config = field(plugin, "config");
    if (config && config->kind != NODE_MAP) {
        fail(h, config->line, "config: must be an object");
        return &empty;
    }
    return config ? config : &empty;
}

static bool read_root(struct hodor *h, const struct node *root)
{
    const struct node *plugins = root && root->kind == NODE_MAP ? field(root, "plugins") : NULL;
    if (!plugins || plugins->kind != NODE_LIST)
        return fail(h, plugins ? plugins->line : 1, "not a Drogon configuration: it has no list \"plugins\"");
    const struct node *hodor = find_plugin(plugins, HODOR, &h->hodors);
    const struct node *resolver = find_plugin(plugins, RESOLVER, &h->resolvers);
    if (!hodor)
        return fail(h, plugins->line, "there is no plugin \"" HODOR "\" in the list \"plugins\"");
    read_hodor(h, config_of(h, hodor));
    if (resolver)
        read_resolver(h, config_of(h, resolver));
    h->has_resolver = resolver != NULL;
    return h->errors.len == 0;
}

bool hodor_read(struct hodor *ret, sv text)
{
    const struct node *root;
    struct node_error error;
    *ret = (struct hodor){ .time_unit_s = 60, .rejection_message = SV("Too many requests") };
    buf_init(&ret->notes, NOTES_MAX);
    buf_init(&ret->errors, NOTES_MAX);
    buf_init(&ret->plain, TEXT_MAX);
    drogon_strip_comments(text, &ret->plain);
    if (ret->plain.failed)
        return fail(ret, 1, "the file is too large");
    if (node_read(buf_sv(&ret->plain), &ret->arena, &root, &error) < 0)
        return fail(ret, error.line, "%s", error.no_memory ? "out of memory" : error.text);
    return read_root(ret, root);
}

void hodor_done(struct hodor *hodor)
{
    if (!hodor)
        return;
    arena_done(&hodor->arena);
    buf_done(&hodor->notes);
    buf_done(&hodor->errors);
    buf_done(&hodor->plain);
}
