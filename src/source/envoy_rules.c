/* Writes the rules of a configuration of envoyproxy/ratelimit. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "rules/rules.h"
#include "source/envoy_tree.h"

enum {
    DEPTH_MAX = RULE_HEADERS_MAX, /* entries of a descriptor that a rule can name */
    HASH_DIGITS = 16,
    LENGTH_MAX_S = 3650 * 86400,
};

/* The nodes from the domain down to a node. */
struct path {
    const struct envoy_node *nodes[DEPTH_MAX];
    size_t count;
};

static bool path_of(const struct envoy_node *node, struct path *ret)
{
    size_t depth = 0;
    for (const struct envoy_node *at = node; at->parent; at = at->parent)
        depth++;
    ret->count = depth;
    for (const struct envoy_node *at = node; depth > 0 && ret->count <= DEPTH_MAX; at = at->parent)
        ret->nodes[--depth] = at;
    return ret->count <= DEPTH_MAX;
}

/* ---- ids ---- */

static void add_part(struct buf *out, const struct envoy_node *node)
{
    buf_printf(out, ".%.*s", SV_FMT(node->key));
    if (node->choice != ENVOY_DEFAULT)
        buf_printf(out, "_%.*s%s", SV_FMT(node->value), node->choice == ENVOY_WILDCARD ? "*" : "");
}

/* Hashes everything that identifies a node. Ids that are cut, or that would be duplicates, end in this hash. */
static uint64_t path_hash(const struct envoy_domain *domain, const struct path *path)
{
    static const struct hash_key key = { 0 };
    struct hash hash;
    hash_init(&hash, &key);
    hash_text(&hash, domain->name.ptr, domain->name.len);
    for (size_t i = 0; i < path->count; i++) {
        hash_text(&hash, path->nodes[i]->key.ptr, path->nodes[i]->key.len);
        hash_text(&hash, path->nodes[i]->value.ptr, path->nodes[i]->value.len);
        hash_word(&hash, path->nodes[i]->choice);
    }
    return hash_final(&hash);
}

/* An id has no control characters, and no blanks at its ends. */
static void clean(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool end = i == 0 || i + 1 == len;
        if (text_has_control(sv_of(text + i, 1)) || (end && (text[i] == ' ' || text[i] == '\t')))
            text[i] = '-';
    }
}

/* Cuts the id, at the end of a character, so that a hash has room after it. */
static void end_in_hash(struct buf *id, uint64_t hash)
{
    size_t room = WEIR_ID_MAX - HASH_DIGITS - 1;
    if (id->failed)
        return;
    if (id->len > room) {
        id->len = room;
        while (id->len > 0 && ((unsigned char)id->ptr[id->len] & 0xc0) == 0x80)
            id->len--;
    }
    buf_printf(id, "-%016llx", (unsigned long long)hash);
}

static sv make_id(struct envoy_config *config, const struct envoy_domain *domain, const struct envoy_node *node,
                  bool hashed)
{
    CLEANUP(buf_done) struct buf id = { 0 };
    struct path path;
    if (!path_of(node, &path))
        return SV("");
    buf_init(&id, (DEPTH_MAX + 1) * (RULE_NAME_MAX + RULE_TEXT_MAX + 3));
    buf_add(&id, domain->name);
    for (size_t i = 0; i < path.count; i++)
        add_part(&id, path.nodes[i]);
    if (hashed || id.len > WEIR_ID_MAX)
        end_in_hash(&id, path_hash(domain, &path));
    if (!id.failed)
        clean(id.ptr, id.len);
    sv copy = arena_copy(&config->arena, buf_sv(&id));
    config->no_memory = config->no_memory || id.failed || !copy.ptr;
    return copy;
}

static int compare_ids(const void *a, const void *b)
{
    return sv_compare((*(struct envoy_node *const *)a)->id, (*(struct envoy_node *const *)b)->id);
}

static struct envoy_domain *domain_of(const struct envoy_config *config, const struct envoy_node *node)
{
    while (node->parent)
        node = node->parent;
    struct envoy_domain *domain = config->domains;
    while (&domain->root != node)
        domain = domain->next;
    return domain;
}

static void make_ids(struct envoy_config *config)
{
    CLEANUP_FREE struct envoy_node **all = cleanup_calloc(config->node_count + 1, sizeof(struct envoy_node *));
    size_t n = 0;
    if (!all) {
        config->no_memory = true;
        return;
    }
    for (struct envoy_domain *domain = config->domains; domain; domain = domain->next)
        for (struct envoy_node *node = domain->root.first; node; node = envoy_next(&domain->root, node))
            if (node->limited) {
                node->id = make_id(config, domain, node, false);
                all[n++] = node;
            }
    qsort(all, n, sizeof(struct envoy_node *), compare_ids);
    /* Each of those that would be the same, so that none depends on its neighbours. */
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && sv_eq(all[end]->id, all[i]->id); end++)
            ;
        for (size_t k = i; end - i > 1 && k < end; k++)
            all[k]->id = make_id(config, domain_of(config, all[k]), all[k], true);
    }
}

/* ---- siblings ---- */

/* The sibling is chosen before the node for some values. Of two wildcards the first one in the file is chosen; the second
 * one takes some of its values only if it is the wider one. */
static bool comes_before(const struct envoy_node *sibling, const struct envoy_node *node)
{
    if (sibling->choice == ENVOY_DEFAULT || !sv_eq(sibling->key, node->key))
        return false;
    if (node->choice == ENVOY_DEFAULT)
        return true;
    return (sibling->choice == ENVOY_EXACT || sibling->nth < node->nth) && sv_starts(sibling->value, node->value);
}

/* A wildcard before the node takes all of its values. */
static bool hides(const struct envoy_node *sibling, const struct envoy_node *node)
{
    if (sibling->choice != ENVOY_WILDCARD || !sv_eq(sibling->key, node->key))
        return false;
    return node->choice == ENVOY_DEFAULT ? sibling->value.len == 0
                                         : sibling->nth < node->nth && sv_starts(node->value, sibling->value);
}

/* What a rule can exclude is bounded. The list is cut off then, since there will be no rules. */
static void check_excluded(struct envoy_config *config, const struct envoy_node *node, size_t values, size_t wildcards)
{
    if (values > RULE_VALUES_MAX)
        envoy_error(config, node->file, node->line,
                    "more than %d values of the key '%.*s' have limits of their own beside this one, and its rule can "
                    "exclude no more; give several of them one limit with a value that ends in `*`",
                    RULE_VALUES_MAX, SV_FMT(node->key));
    else if (wildcards > RULE_PATTERNS_MAX)
        envoy_error(config, node->file, node->line,
                    "more than %d values of the key '%.*s' that end in `*` come before this one, and its rule can exclude "
                    "no more; use fewer of them",
                    RULE_PATTERNS_MAX, SV_FMT(node->key));
}

static void add_excluded(struct buf *out, const struct envoy_node *sibling, bool first)
{
    buf_add(out, first ? SV("not: [ ") : SV(", "));
    buf_add(out, sibling->choice == ENVOY_WILDCARD ? SV("{ prefix: ") : SV(""));
    yaml_quote(out, sibling->value);
    buf_add(out, sibling->choice == ENVOY_WILDCARD ? SV(" }") : SV(""));
}

static void compare_with_siblings(struct envoy_config *config, struct envoy_node *node)
{
    CLEANUP(buf_done) struct buf list;
    size_t values = 0, wildcards = 0;
    buf_init(&list, RULES_BYTES_MAX);
    for (const struct envoy_node *at = node->parent->first; at && !node->hider; at = at->next) {
        if (at == node)
            continue;
        if (hides(at, node))
            node->hider = at;
        if (values > RULE_VALUES_MAX || wildcards > RULE_PATTERNS_MAX || !comes_before(at, node))
            continue;
        add_excluded(&list, at, values++ == 0);
        wildcards += at->choice == ENVOY_WILDCARD;
    }
    if (node->hider || values == 0)
        return;
    check_excluded(config, node, values, wildcards);
    buf_add(&list, SV(" ]"));
    node->excluded = arena_copy(&config->arena, buf_sv(&list));
    config->no_memory = config->no_memory || list.failed || !node->excluded.ptr;
}

static void compare_siblings(struct envoy_config *config)
{
    for (struct envoy_domain *domain = config->domains; domain; domain = domain->next)
        for (struct envoy_node *node = domain->root.first; node; node = envoy_next(&domain->root, node))
            if (node->choice != ENVOY_EXACT)
                compare_with_siblings(config, node);
}

/* ---- match ---- */

/* The name of an entry: `KEY`, or `KEY#2` if it is the second one with this key. */
static void add_name(struct buf *out, const struct path *path, size_t i)
{
    sv key = path->nodes[i]->key;
    unsigned number = 1;
    for (size_t k = 0; k < i; k++)
        number += sv_eq(path->nodes[k]->key, key);
    for (size_t k = 0; k < key.len; k++)
        if (key.ptr[k] == '%' || key.ptr[k] == ',' || key.ptr[k] == '#')
            buf_printf(out, "%%%02X", (unsigned char)key.ptr[k]);
        else
            buf_char(out, key.ptr[k]);
    if (number > 1)
        buf_printf(out, "#%u", number);
}

static void add_quoted_name(struct buf *out, const char *before, const struct path *path, size_t i)
{
    CLEANUP(buf_done) struct buf name;
    buf_init(&name, 3 * RULE_NAME_MAX + 40);
    buf_add(&name, weir_str(before));
    add_name(&name, path, i);
    yaml_quote(out, buf_sv(&name));
}

static void add_keys(struct buf *out, const struct path *path)
{
    CLEANUP(buf_done) struct buf keys;
    buf_init(&keys, DEPTH_MAX * (3 * RULE_NAME_MAX + 20));
    for (size_t i = 0; i < path->count; i++) {
        buf_add(&keys, i > 0 ? SV(",") : SV(""));
        add_name(&keys, path, i);
    }
    yaml_quote(out, buf_sv(&keys));
}

/* The condition on one entry; nothing if every value will do. */
static void add_condition(struct buf *out, const struct path *path, size_t i, bool *any)
{
    const struct envoy_node *node = path->nodes[i];
    bool prefix = node->choice == ENVOY_WILDCARD && node->value.len > 0, excludes = node->excluded.len > 0;
    if (!excludes && node->choice != ENVOY_EXACT && !prefix)
        return;
    buf_add(out, *any ? SV(", ") : SV(", descriptor: { "));
    *any = true;
    add_quoted_name(out, "", path, i);
    buf_add(out, SV(": "));
    if (node->choice == ENVOY_EXACT) {
        yaml_quote(out, node->value);
        return;
    }
    buf_add(out, prefix ? SV("{ prefix: ") : SV("{ present: true"));
    if (prefix)
        yaml_quote(out, node->value);
    buf_add(out, excludes ? SV(", ") : SV(""));
    buf_add(out, node->excluded);
    buf_add(out, SV(" }"));
}

static void write_match(struct buf *out, const struct envoy_domain *domain, const struct path *path)
{
    bool any = false;
    buf_add(out, SV("    match: { domain: "));
    yaml_quote(out, domain->name);
    buf_add(out, SV(", descriptor_keys: "));
    add_keys(out, path);
    for (size_t i = 0; i < path->count; i++)
        add_condition(out, path, i, &any);
    buf_add(out, any ? SV(" }, descriptor_limit: { absent: true } }\n") : SV(", descriptor_limit: { absent: true } }\n"));
}

static void write_by(struct envoy_config *config, struct buf *out, const struct path *path, const struct envoy_node *node)
{
    size_t count = 0;
    buf_add(out, SV("    by: ["));
    for (size_t i = 0; i < path->count; i++) {
        if (path->nodes[i]->choice == ENVOY_EXACT || path->nodes[i]->share)
            continue;
        buf_add(out, count++ > 0 ? SV(", ") : SV(" "));
        add_quoted_name(out, "descriptor:", path, i);
    }
    buf_add(out, count > 0 ? SV(" ]\n") : SV("]\n"));
    if (count > RULE_BY_MAX)
        envoy_error(config, node->file, node->line, "a rule counts by at most %d entries of a descriptor, and this has %zu",
                    RULE_BY_MAX, count);
}

/* ---- limits ---- */

static void write_length(struct buf *out, uint64_t seconds)
{
    static const struct {
        unsigned seconds;
        char unit;
    } units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
    size_t i = 0;
    while (seconds % units[i].seconds != 0)
        i++;
    buf_printf(out, "calendar: %llu%c", (unsigned long long)(seconds / units[i].seconds), units[i].unit);
}

static bool name_is_valid(sv name)
{
    return name.len > 0 && name.len <= WEIR_NAME_MAX && sv_trim(name).len == name.len && !text_has_control(name);
}

static void write_limits(struct envoy_config *config, struct buf *out, const struct envoy_node *node)
{
    static const unsigned seconds[ENVOY_UNITS] = { 1, 60, 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400 };
    static const char *const natural[ENVOY_UNITS] = { NULL, "minute", "hour", "day", "week", "month", "year" };
    const struct envoy_limit *limit = &node->limit;
    if (limit->unlimited) {
        buf_add(out, SV("    limits: none\n"));
        return;
    }
    buf_add(out, SV("    limits: [ { "));
    if (name_is_valid(limit->name)) {
        buf_add(out, SV("name: "));
        yaml_quote(out, limit->name);
        buf_add(out, SV(", "));
    }
    buf_printf(out, "max: %llu, ", (unsigned long long)limit->max);
    if (config->options.natural && natural[limit->unit] && limit->multiplier == 1) {
        buf_printf(out, "calendar: %s", natural[limit->unit]);
        if (config->options.tz.len > 0) {
            buf_add(out, SV(", tz: "));
            yaml_quote(out, config->options.tz);
        }
    } else {
        uint64_t length = limit->multiplier * seconds[limit->unit];
        write_length(out, length);
        if (length > LENGTH_MAX_S)
            envoy_error(config, node->file, limit->line, "a window is at most 3650 days long");
    }
    buf_add(out, SV(" } ]\n"));
}

/* ---- replaces ---- */

static bool has_name(const struct envoy_node *node, sv name)
{
    return node->limited && !node->limit.unlimited && sv_eq(node->limit.name, name);
}

static void write_replaces(struct envoy_config *config, struct buf *out, struct envoy_domain *domain,
                           const struct envoy_node *node)
{
    size_t count = 0;
    const struct node *list = node->limit.replaces;
    for (const struct node_item *item = list ? list->first : NULL; item; item = item->next) {
        const struct node *name = node_get(item->value, SV("name"));
        for (struct envoy_node *at = domain->root.first; at && name; at = envoy_next(&domain->root, at)) {
            if (!has_name(at, name->text))
                continue;
            buf_add(out, count++ > 0 ? SV(", ") : SV("    replaces: [ "));
            yaml_quote(out, at->id);
        }
    }
    buf_add(out, count > 0 ? SV(" ]\n") : SV(""));
    if (count > RULE_REPLACES_MAX)
        envoy_error(config, node->file, node->limit.line, "a rule replaces at most %d others, and this has %zu",
                    RULE_REPLACES_MAX, count);
}

/* ---- notes ---- */

static void write_notes(struct buf *out, struct envoy_domain *domain, const struct envoy_node *node)
{
    const struct envoy_limit *limit = &node->limit;
    if (node->quota)
        buf_add(out, SV("  # quota_mode: counts and never refuses, as shadow_mode does; the answer names it.\n"));
    if (node->metrics)
        buf_add(out,
                SV("  # detailed_metric, value_to_metric: GET /v1/top and the page show values; metrics are by rule.\n"));
    if (limit->name.len > 0 && !name_is_valid(limit->name))
        buf_printf(out, "  # The name of the limit is left out: a name has at most %d bytes.\n", WEIR_NAME_MAX);
    for (const struct node_item *item = limit->replaces ? limit->replaces->first : NULL; item; item = item->next) {
        const struct node *name = node_get(item->value, SV("name"));
        struct envoy_node *at = domain->root.first;
        while (at && name && !has_name(at, name->text))
            at = envoy_next(&domain->root, at);
        if (at || !name)
            continue;
        buf_add(out, SV("  # replaces "));
        yaml_quote(out, name->text);
        buf_add(out, SV(": no limit of this domain has this name.\n"));
    }
}

static void write_rule(struct envoy_config *config, struct buf *out, struct envoy_domain *domain, struct envoy_node *node)
{
    struct path path;
    if (!path_of(node, &path)) {
        envoy_error(config, node->file, node->line, "a descriptor has at most %d entries", DEPTH_MAX);
        return;
    }
    buf_add(out, SV("  # "));
    yaml_quote(out, node->file);
    buf_printf(out, ", line %d\n", node->line);
    for (size_t i = 0; i < path.count; i++) {
        const struct envoy_node *hider = path.nodes[i]->hider;
        if (!hider)
            continue;
        buf_printf(out, "  # is left out: the `*` in line %d comes before it and takes all of its values.\n", hider->line);
        return;
    }
    write_notes(out, domain, node);
    buf_add(out, SV("  - id: "));
    yaml_quote(out, node->id);
    buf_char(out, '\n');
    write_match(out, domain, &path);
    write_by(config, out, &path, node);
    write_limits(config, out, node);
    write_replaces(config, out, domain, node);
    if (node->shadow || node->quota)
        buf_add(out, SV("    mode: shadow\n"));
}

/* Envoy may send a limit with a descriptor, in place of those here. */
static void write_given(struct buf *out, const struct envoy_domain *domain)
{
    CLEANUP(buf_done) struct buf id;
    buf_init(&id, RULE_TEXT_MAX + 40);
    buf_printf(&id, "%.*s:given", SV_FMT(domain->name));
    if (id.len > WEIR_ID_MAX)
        end_in_hash(&id, path_hash(domain, &(struct path){ .count = 0 }));
    if (!id.failed)
        clean(id.ptr, id.len);
    buf_add(out, SV("  # Limits that Envoy sends with a descriptor.\n  - id: "));
    yaml_quote(out, buf_sv(&id));
    buf_add(out, SV("\n    match: { domain: "));
    yaml_quote(out, domain->name);
    buf_add(out, SV(", descriptor_limit: { present: true } }\n    by: [ descriptor ]\n    limits: given\n"));
}

int envoy_config_write(struct envoy_config *config, struct buf *out)
{
    envoy_check(config);
    if (config->error_count == 0)
        compare_siblings(config);
    if (config->error_count == 0) {
        make_ids(config);
        buf_add(out, config->domains ? SV("rules:\n") : SV("rules: []\n"));
    }
    for (struct envoy_domain *domain = config->domains; domain && config->error_count == 0; domain = domain->next) {
        for (struct envoy_node *node = domain->root.first; node; node = envoy_next(&domain->root, node))
            if (node->limited)
                write_rule(config, out, domain, node);
        write_given(out, domain);
    }
    if (config->no_memory || out->failed)
        return WEIR_E_NO_MEMORY;
    if (config->error_count == 0)
        return 0;
    buf_clear(out);
    buf_add(out, buf_sv(&config->errors));
    return WEIR_E_RULES;
}
