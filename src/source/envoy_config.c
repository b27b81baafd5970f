/* Reads files of envoyproxy/ratelimit into a tree, as strictly as the service there does. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "rules/rules.h"
#include "source/envoy_tree.h"

enum {
    ERRORS_MAX = 100, /* that are listed */
    ERRORS_BYTES = 64 << 10,
    MULTIPLIER_MAX = 1000000,
};

struct envoy_config *envoy_config_new(const struct envoy_options *options)
{
    struct envoy_config *config = calloc(1, sizeof *config);
    if (!config)
        return NULL;
    config->options = *options;
    buf_init(&config->errors, ERRORS_BYTES);
    return config;
}

void envoy_config_free(struct envoy_config *config)
{
    if (!config)
        return;
    arena_done(&config->arena);
    buf_done(&config->errors);
    free(config);
}

void envoy_error(struct envoy_config *config, sv file, int line, const char *format, ...)
{
    char text[RULES_PROBLEM_TEXT_MAX];
    va_list args;
    if (config->error_count++ >= ERRORS_MAX)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_printf(&config->errors, "%.*s:%d: %s\n", SV_FMT(file), line, text);
}

struct envoy_node *envoy_next(const struct envoy_node *top, struct envoy_node *node)
{
    if (node->first)
        return node->first;
    while (node != top && !node->next)
        node = node->parent;
    return node == top ? NULL : node->next;
}

/* ---- fields ---- */

/* The file that is being read. */
struct reader {
    struct envoy_config *config;
    sv file;
};

#define FAIL(r, node, ...) envoy_error((r)->config, (r)->file, (node)->line, __VA_ARGS__)

/* Fields that the service there knows, wherever they stand; it ignores those that stand at the wrong place. */
static const char *const known_fields[] = { "domain",          "key",
                                            "value",           "descriptors",
                                            "rate_limit",      "unit",
                                            "unit_multiplier", "requests_per_unit",
                                            "unlimited",       "shadow_mode",
                                            "quota_mode",      "name",
                                            "replaces",        "detailed_metric",
                                            "value_to_metric", "share_threshold" };

static bool is_known(sv name)
{
    for (size_t i = 0; i < sizeof known_fields / sizeof *known_fields; i++)
        if (sv_eq(name, weir_str(known_fields[i])))
            return true;
    return false;
}

/* `allowed` ends in NULL. */
static bool check_fields(const struct reader *r, const struct node *map, const char *what, const char *const *allowed)
{
    size_t before = r->config->error_count;
    if (map->kind != NODE_MAP) {
        FAIL(r, map, "%s must be a mapping", what);
        return false;
    }
    for (const struct node_item *item = map->first; item; item = item->next) {
        sv name = item->key->kind == NODE_SCALAR ? item->key->text : SV("");
        const char *const *found = allowed;
        while (*found && !sv_eq(name, weir_str(*found)))
            found++;
        if (*found)
            continue;
        if (is_known(name))
            FAIL(r, item->key, "`%.*s` has no effect in %s; remove it or move it", SV_FMT(name), what);
        else
            FAIL(r, item->key, "unknown field `%.*s` in %s", SV_FMT(name), what);
    }
    return r->config->error_count == before;
}

static sv read_text(const struct reader *r, const struct node *map, const char *name, size_t most)
{
    const struct node *node = node_get(map, weir_str(name));
    if (!node || node_is_null(node))
        return SV("");
    bool fraction = node->kind == NODE_SCALAR && node_is_number(node) &&
                    !sv_u64(node->text, UINT64_MAX, &(uint64_t){ 0 }) && node->text.ptr[0] != '-';
    if (node->kind != NODE_SCALAR || fraction)
        FAIL(r, node, "`%s` must be a text%s", name, fraction ? "; put the number in quotes" : "");
    else if (node->text.len > most)
        FAIL(r, node, "`%s` has more than %zu bytes", name, most);
    else
        return node->text;
    return SV("");
}

static bool read_bool(const struct reader *r, const struct node *map, const char *name)
{
    const struct node *node = node_get(map, weir_str(name));
    bool value = false;
    if (node && !node_is_null(node) && !node_is_bool(node, &value))
        FAIL(r, node, "`%s` must be true or false", name);
    return value;
}

static uint64_t read_number(const struct reader *r, const struct node *map, const char *name, uint64_t most,
                            uint64_t otherwise)
{
    const struct node *node = node_get(map, weir_str(name));
    uint64_t value = otherwise;
    if (node && !node_is_null(node) && (node->kind != NODE_SCALAR || !node->plain || !sv_u64(node->text, most, &value)))
        FAIL(r, node, "`%s` must be a whole number up to %llu", name, (unsigned long long)most);
    return value;
}

static const struct node *read_list(const struct reader *r, const struct node *map, const char *name)
{
    const struct node *node = node_get(map, weir_str(name));
    if (!node || node_is_null(node))
        return NULL;
    if (node->kind == NODE_LIST)
        return node;
    FAIL(r, node, "`%s` must be a list", name);
    return NULL;
}

/* ---- limits ---- */

static const char *const time_units[ENVOY_UNITS] = { "second", "minute", "hour", "day", "week", "month", "year" };

static bool find_unit(sv text, enum envoy_unit *ret)
{
    for (enum envoy_unit i = 0; i < ENVOY_UNITS; i++)
        if (sv_eq_nocase(text, weir_str(time_units[i]))) {
            *ret = i;
            return true;
        }
    return false;
}

static void check_replaces(const struct reader *r, const struct envoy_limit *limit)
{
    static const char *const fields[] = { "name", NULL };
    for (const struct node_item *item = limit->replaces ? limit->replaces->first : NULL; item; item = item->next) {
        if (!check_fields(r, item->value, "`replaces`", fields))
            continue;
        sv name = read_text(r, item->value, "name", RULE_TEXT_MAX);
        if (name.len == 0)
            FAIL(r, item->value, "an entry of `replaces` needs a `name`");
        else if (sv_eq(name, limit->name))
            FAIL(r, item->value, "a limit cannot replace itself (`%.*s`)", SV_FMT(name));
    }
}

static void read_limit(const struct reader *r, const struct node *map, struct envoy_limit *limit)
{
    static const char *const fields[] = { "requests_per_unit", "unit", "unit_multiplier", "unlimited", "name",
                                          "replaces",          NULL };
    if (!check_fields(r, map, "`rate_limit`", fields))
        return;
    sv unit = read_text(r, map, "unit", RULE_NAME_MAX);
    limit->line = map->line;
    limit->unlimited = read_bool(r, map, "unlimited");
    limit->max = read_number(r, map, "requests_per_unit", UINT32_MAX, 0);
    limit->multiplier = read_number(r, map, "unit_multiplier", MULTIPLIER_MAX, 1);
    limit->name = read_text(r, map, "name", RULE_TEXT_MAX);
    limit->replaces = read_list(r, map, "replaces");
    bool known = find_unit(unit, &limit->unit);
    if (limit->unlimited && known)
        FAIL(r, map, "a limit is `unlimited` or has a `unit`, not both");
    else if (!limit->unlimited && !known)
        FAIL(r, map, "`unit` must be second, minute, hour, day, week, month or year, not '%.*s'", SV_FMT(unit));
    if (limit->multiplier == 0)
        FAIL(r, map, "`unit_multiplier` must be at least 1");
    check_replaces(r, limit);
}

/* ---- descriptors ---- */

static void read_descriptors(const struct reader *r, const struct node *list, struct envoy_node *parent);

static struct envoy_node *add_node(const struct reader *r, struct envoy_node *parent)
{
    struct envoy_node *node = ARENA_NEW(&r->config->arena, struct envoy_node);
    if (!node) {
        r->config->no_memory = true;
        return NULL;
    }
    node->parent = parent;
    node->file = r->file;
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    node->nth = parent->count++;
    return node;
}

/* The service there looks at the last byte of KEY_VALUE. */
static void choose(const struct reader *r, const struct node *map, struct envoy_node *node)
{
    bool wildcard = node->value.len > 0 && node->value.ptr[node->value.len - 1] == '*';
    node->choice = wildcard ? ENVOY_WILDCARD : node->value.len > 0 ? ENVOY_EXACT : ENVOY_DEFAULT;
    if (wildcard)
        node->value.len--;
    else if (node->value.len == 0 && node->key.len > 0 && node->key.ptr[node->key.len - 1] == '*')
        FAIL(r, map, "a `*` at the end of the key '%.*s' has no equal here; name the key, and use the `*` in its value",
             SV_FMT(node->key));
    if (node->share && !wildcard)
        FAIL(r, map, "`share_threshold` needs a value that ends in `*`");
}

static void read_descriptor(const struct reader *r, const struct node *map, struct envoy_node *parent)
{
    static const char *const fields[] = {
        "key",        "value",           "rate_limit",      "descriptors",     "shadow_mode",
        "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", NULL
    };
    if (!check_fields(r, map, "a descriptor", fields))
        return;
    struct envoy_node *node = add_node(r, parent);
    if (!node)
        return;
    node->line = map->line;
    node->key = read_text(r, map, "key", RULE_NAME_MAX);
    node->value = read_text(r, map, "value", RULE_TEXT_MAX);
    node->shadow = read_bool(r, map, "shadow_mode");
    node->quota = read_bool(r, map, "quota_mode");
    node->share = read_bool(r, map, "share_threshold");
    bool detailed = read_bool(r, map, "detailed_metric"), values = read_bool(r, map, "value_to_metric");
    node->metrics = detailed || values;
    if (node->key.len == 0)
        FAIL(r, map, "a descriptor needs a `key`");
    choose(r, map, node);
    const struct node *limit = node_get(map, SV("rate_limit"));
    if (limit && !node_is_null(limit)) {
        node->limited = true;
        r->config->node_count++;
        read_limit(r, limit, &node->limit);
    }
    read_descriptors(r, read_list(r, map, "descriptors"), node);
}

/* As deep as node_read allows. */
static void read_descriptors(const struct reader *r, const struct node *list, struct envoy_node *parent)
{
    for (const struct node_item *item = list ? list->first : NULL; item; item = item->next)
        read_descriptor(r, item->value, parent);
}

/* ---- domains ---- */

static struct envoy_domain *find_domain(const struct envoy_config *config, sv name)
{
    struct envoy_domain *domain = config->domains;
    while (domain && !sv_eq(domain->name, name))
        domain = domain->next;
    return domain;
}

static struct envoy_domain *add_domain(const struct reader *r, sv name)
{
    struct envoy_config *config = r->config;
    struct envoy_domain *domain = ARENA_NEW(&config->arena, struct envoy_domain);
    if (!domain) {
        config->no_memory = true;
        return NULL;
    }
    domain->name = name;
    domain->root.file = r->file;
    if (config->last_domain)
        config->last_domain->next = domain;
    else
        config->domains = domain;
    config->last_domain = domain;
    return domain;
}

static void read_root(const struct reader *r, const struct node *root)
{
    static const char *const fields[] = { "domain", "descriptors", NULL };
    if (!check_fields(r, root, "the file", fields))
        return;
    sv name = read_text(r, root, "domain", RULE_TEXT_MAX);
    struct envoy_domain *domain = find_domain(r->config, name);
    if (name.len == 0)
        FAIL(r, root, "the file needs a `domain`");
    else if (domain && !r->config->options.merge)
        FAIL(r, root, "the domain '%.*s' is in %.*s already; put both in one file, or use the option `merge`", SV_FMT(name),
             SV_FMT(domain->root.file));
    else if (domain || (domain = add_domain(r, name)))
        read_descriptors(r, read_list(r, root, "descriptors"), &domain->root);
}

void envoy_config_add(struct envoy_config *config, sv file, sv text)
{
    struct reader r = { config, file };
    const struct node *root;
    struct node_error error = { 0 };
    if (node_read(text, &config->arena, &root, &error) < 0) {
        config->no_memory = config->no_memory || error.no_memory;
        envoy_error(config, file, error.line, "%s", error.text);
    } else if (!root) {
        envoy_error(config, file, 1, "the file is empty; it needs a `domain`");
    } else {
        read_root(&r, root);
    }
}

/* ---- the whole tree ---- */

static int compare_nodes(const void *a, const void *b)
{
    const struct envoy_node *x = *(struct envoy_node *const *)a, *y = *(struct envoy_node *const *)b;
    int order = sv_compare(x->key, y->key);
    if (order == 0)
        order = sv_compare(x->value, y->value);
    if (order == 0)
        order = (int)x->choice - (int)y->choice;
    return order;
}

/* No two children are chosen by the same key and value. */
static void check_children(struct envoy_config *config, const struct envoy_node *parent)
{
    if (parent->count < 2)
        return;
    CLEANUP_FREE struct envoy_node **sorted = cleanup_calloc(parent->count, sizeof *sorted);
    if (!sorted) {
        config->no_memory = true;
        return;
    }
    size_t n = 0;
    for (struct envoy_node *node = parent->first; node; node = node->next)
        sorted[n++] = node;
    qsort(sorted, n, sizeof *sorted, compare_nodes);
    for (size_t i = 1; i < n; i++) {
        const struct envoy_node *first = sorted[i - 1], *second = sorted[i];
        if (compare_nodes(&sorted[i - 1], &sorted[i]) != 0)
            continue;
        bool later = first->line > second->line && sv_eq(first->file, second->file);
        const struct envoy_node *at = later ? first : second, *other = later ? second : first;
        envoy_error(config, at->file, at->line,
                    "the descriptor with the key '%.*s' and this value is there already (%.*s:%d)", SV_FMT(at->key),
                    SV_FMT(other->file), other->line);
    }
}

void envoy_check(struct envoy_config *config)
{
    for (struct envoy_domain *domain = config->domains; domain; domain = domain->next)
        for (struct envoy_node *node = &domain->root; node; node = envoy_next(&domain->root, node))
            check_children(config, node);
}
