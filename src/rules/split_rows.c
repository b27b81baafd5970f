/* A text taken apart into rows, and values as JSON: what tables hold. */
#include "base/err.h"
#include "rules/reader.h"

/* ---- JSON ---- */

/* `name`: of the field that the value is in. */
static void json_scalar(const struct node *node, sv name, struct buf *out)
{
    bool value;
    if (node_is_null(node))
        buf_add(out, SV("null"));
    else if (node_is_json_number(node))
        buf_add(out, node->text);
    else if (!node_is_bool(node, &value))
        buf_json(out, node->text);
    else if (sv_eq(name, SV("mode")) && !value)
        buf_add(out, SV("\"off\"")); /* which YAML takes for false */
    else
        buf_add(out, value ? SV("true") : SV("false"));
}

/* No deeper than RULES_NESTING_MAX. */
static void json_node(const struct node *node, sv name, struct buf *out)
{
    if (node->kind == NODE_SCALAR) {
        json_scalar(node, name, out);
        return;
    }
    bool map = node->kind == NODE_MAP;
    buf_char(out, map ? '{' : '[');
    for (const struct node_item *item = node->first; item; item = item->next) {
        sv key = map && item->key->kind == NODE_SCALAR ? item->key->text : (sv){ 0 };
        if (map) {
            buf_json(out, key);
            buf_char(out, ':');
        }
        json_node(item->value, key, out);
        buf_add(out, item->next ? SV(",") : SV(""));
    }
    buf_char(out, map ? '}' : ']');
}

static int read_root(sv text, struct arena *arena, const struct node **ret, struct weir_error *error)
{
    struct node_error why;
    if (node_read(text, arena, ret, &why) < 0) {
        if (why.no_memory)
            return err_set(error, WEIR_E_NO_MEMORY, "out of memory");
        return err_set(error, WEIR_E_RULES, "line %d: %s", why.line, why.text);
    }
    if (!*ret)
        return err_set(error, WEIR_E_RULES, "is empty");
    return 0;
}

int rules_json(sv text, struct buf *out, struct weir_error *error)
{
    CLEANUP(arena_done) struct arena arena = { 0 };
    const struct node *root = NULL;
    int r = read_root(text, &arena, &root, error);
    if (r < 0)
        return r;
    json_node(root, (sv){ 0 }, out);
    return out->failed ? err_set(error, WEIR_E_RULES, "longer than %zu bytes", out->max) : 0;
}

/* ---- rows ---- */

struct splitter {
    struct arena *arena;
    bool is_file;
    struct rule_row *rows;
    size_t count;
    struct id_entry *ids;    /* of the rules of this text that have a list `by`, sorted; index: in `bys` */
    const struct node **bys; /* those lists */
    size_t by_count;
    struct weir_error *error;
};

static int add_row(struct splitter *s, enum rule_row_kind kind, const struct node *name, const struct node *value)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, RULES_BYTES_MAX);
    json_node(value, name->text, &text);
    sv id = arena_copy(s->arena, name->text), copy = arena_copy(s->arena, buf_sv(&text));
    if (text.failed || !id.ptr || !copy.ptr)
        return err_set(s->error, WEIR_E_NO_MEMORY, "out of memory for the rules");
    s->rows[s->count++] = (struct rule_row){ .kind = kind, .id = id, .text = copy };
    return 0;
}

static int add_rule(struct splitter *s, const struct node *node)
{
    const struct node *id = node_get(node, SV("id"));
    if (node->kind != NODE_MAP)
        return err_set(s->error, WEIR_E_RULES, "line %d: a rule must be a mapping (id: …)", node->line);
    if (!id || !id_valid(id))
        return err_set(s->error, WEIR_E_RULES,
                       "line %d: a rule needs `id`: 1 to %d bytes, no control characters, and no blank at either end",
                       node->line, WEIR_ID_MAX);
    return add_row(s, ROW_RULE, id, node);
}

static int add_rules(struct splitter *s, const struct node *list)
{
    if (list->kind != NODE_LIST)
        return err_set(s->error, WEIR_E_RULES, "line %d: rules: must be a list of rules (- id: …)", list->line);
    int r = 0;
    for (const struct node_item *item = list->first; item && r == 0; item = item->next)
        r = add_rule(s, item->value);
    return r;
}

/* Overrides are many, and so may rules be: their lists `by` are looked up. */
static int index_bys(struct splitter *s, struct arena *scratch, const struct node *rules)
{
    size_t count = rules ? rules->count : 0;
    s->ids = ARENA_ARRAY(scratch, struct id_entry, count + 1);
    s->bys = ARENA_ARRAY(scratch, const struct node *, count + 1);
    if (!s->ids || !s->bys)
        return err_set(s->error, WEIR_E_NO_MEMORY, "out of memory for the rules");
    for (const struct node_item *item = rules ? rules->first : NULL; item; item = item->next) {
        const struct node *id = node_get(item->value, SV("id")), *by = node_get(item->value, SV("by"));
        if (!id || id->kind != NODE_SCALAR || !by || by->kind != NODE_LIST)
            continue;
        s->ids[s->by_count] = (struct id_entry){ id->text, s->by_count };
        s->bys[s->by_count++] = by;
    }
    ids_sort(s->ids, s->by_count);
    return 0;
}

/* Returns the position of an attribute in the `by` of a rule of this text. If the rule is not in the text, or its `by` is
 * not a list, the order in the override counts. */
static size_t position_of(const struct splitter *s, sv rule, sv attribute, size_t otherwise)
{
    const struct id_entry *found = ids_find(s->ids, s->by_count, rule);
    size_t position = 0;
    for (const struct node_item *name = found ? s->bys[found->index]->first : NULL; name; name = name->next, position++)
        if (name->value->kind == NODE_SCALAR && sv_eq_nocase(name->value->text, attribute))
            return position;
    return otherwise;
}

/* The subject of an override, as far as its text can be read. */
static bool split_subject(const struct splitter *s, sv rule, const struct node *by, struct buf *out)
{
    sv values[RULE_BY_MAX] = { 0 };
    size_t index = 0;
    if (!by || by->kind != NODE_MAP || by->count == 0 || by->count > RULE_BY_MAX)
        return false;
    for (const struct node_item *item = by->first; item; item = item->next, index++) {
        bool scalars = item->key->kind == NODE_SCALAR && item->value->kind == NODE_SCALAR;
        size_t position = scalars ? position_of(s, rule, item->key->text, index) : RULE_BY_MAX;
        if (position >= by->count || values[position].ptr)
            return false;
        values[position] = item->value->text;
    }
    override_subject_text(values, by->count, out);
    return !out->failed;
}

static int add_override(struct splitter *s, const struct node *node)
{
    const struct node *rule = node_get(node, SV("rule")), *by = node_get(node, SV("by"));
    CLEANUP(buf_done) struct buf subject;
    buf_init(&subject, RULES_BYTES_MAX);
    if (!rule || !id_valid(rule) || !split_subject(s, rule->text, by, &subject))
        return err_set(
            s->error, WEIR_E_RULES,
            "line %d: an override needs `rule` and `by`, a mapping with a value for each attribute that the rule "
            "counts by",
            node->line);
    int r = add_row(s, ROW_OVERRIDE, rule, node);
    if (r < 0)
        return r;
    sv copy = s->rows[s->count - 1].subject = arena_copy(s->arena, buf_sv(&subject));
    return copy.ptr ? 0 : err_set(s->error, WEIR_E_NO_MEMORY, "out of memory for the rules");
}

static int add_overrides(struct splitter *s, const struct node *list)
{
    if (list->kind != NODE_LIST)
        return err_set(s->error, WEIR_E_RULES, "line %d: overrides: must be a list of overrides (- rule: …)", list->line);
    int r = 0;
    for (const struct node_item *item = list->first; item && r == 0; item = item->next)
        r = add_override(s, item->value);
    return r;
}

static int add_settings(struct splitter *s, const struct node *map)
{
    if (node_is_null(map))
        return 0;
    if (map->kind != NODE_MAP)
        return err_set(s->error, WEIR_E_RULES, "line %d: settings: must be a mapping (name: value)", map->line);
    int r = 0;
    for (const struct node_item *item = map->first; item && r == 0; item = item->next)
        if (item->key->kind == NODE_SCALAR)
            r = add_row(s, ROW_SETTING, item->key, item->value);
    return r;
}

static int add_document(struct splitter *s, const struct node *root, const struct node *rules)
{
    int r = 0;
    for (const struct node_item *item = root->first; item && r == 0; item = item->next) {
        sv name = item->key->kind == NODE_SCALAR ? item->key->text : (sv){ 0 };
        if (sv_eq(name, SV("settings")))
            r = add_settings(s, item->value);
        else if (sv_eq(name, SV("overrides")))
            r = add_overrides(s, item->value);
        else if (sv_eq(name, SV("include")) && !s->is_file)
            r = err_set(
                s->error, WEIR_E_RULES,
                "line %d: include: cannot be followed here; `weir rules export --from FILE` prints all files as one",
                item->key->line);
        else if (sv_eq(name, SV("include")))
            continue;
        else if (!sv_eq(name, SV("rules")) && !sv_eq(name, SV("problems"))) /* which are of the text, not of a row */
            r = err_set(s->error, WEIR_E_RULES,
                        "line %d: unknown field `%.*s`; allowed: settings, rules, overrides, include, problems",
                        item->key->line, (int)(name.len < 60 ? name.len : 60), name.len ? name.ptr : "");
    }
    return r < 0 || !rules ? r : add_rules(s, rules);
}

/* Not one rule: it has a part of a rules file. */
static bool is_document(const struct node *root)
{
    static const char *const parts[] = { "rules", "settings", "overrides", "include" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (node_get(root, weir_str(parts[i])))
            return true;
    return false;
}

static int split(sv text, bool is_file, struct arena *arena, struct rule_row **ret, size_t *ret_count,
                 struct weir_error *error)
{
    CLEANUP(arena_done) struct arena scratch = { 0 };
    struct splitter s = { .arena = arena, .is_file = is_file, .error = error };
    const struct node *root = NULL;
    int r = read_root(text, &scratch, &root, error);
    if (r < 0)
        return r;
    const struct node *rules = node_get(root, SV("rules")), *settings = node_get(root, SV("settings"));
    const struct node *overrides = node_get(root, SV("overrides"));
    size_t most = 1 + root->count + (rules ? rules->count : 0) + (settings ? settings->count : 0) +
                  (overrides ? overrides->count : 0);
    s.rows = ARENA_ARRAY(arena, struct rule_row, most);
    if (!s.rows)
        return err_set(error, WEIR_E_NO_MEMORY, "out of memory for the rules");
    r = overrides ? index_bys(&s, &scratch, rules) : 0;
    if (r < 0)
        return r;
    if (root->kind == NODE_LIST)
        r = add_rules(&s, root);
    else
        r = is_document(root) ? add_document(&s, root, rules) : add_rule(&s, root);
    if (r < 0)
        return r;
    *ret = s.rows;
    *ret_count = s.count;
    return 0;
}

int rules_split(sv text, struct arena *arena, struct rule_row **ret, size_t *ret_count, struct weir_error *error)
{
    return split(text, false, arena, ret, ret_count, error);
}

int rules_split_file(sv text, struct arena *arena, struct rule_row **ret, size_t *ret_count, struct weir_error *error)
{
    return split(text, true, arena, ret, ret_count, error);
}
