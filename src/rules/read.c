/* From a document to rules. Settings come first, wherever they stand: regexes depend on them. */
#include <stdlib.h>

#include "rules/reader.h"

/* ---- one rule ---- */

bool id_valid(const struct node *node)
{
    if (node->kind != NODE_SCALAR || node_is_null(node))
        return false;
    sv id = node->text;
    return id.len > 0 && id.len <= WEIR_ID_MAX && sv_trim(id).len == id.len && !text_has_control(id);
}

static void read_id(struct reader *r, const struct node *node, void *ret)
{
    if (node->kind != NODE_SCALAR || id_valid(node))
        read_text(r, node, 1, WEIR_ID_MAX, ret);
    else
        report_error(r, node->line, "must have 1 to %d bytes, no control characters, and no blank at either end, not %s",
                     WEIR_ID_MAX, shown_node(r, node));
}

static void read_mode(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    bool on;
    int mode;
    /* YAML reads a bare off as false. */
    if (node_is_bool(node, &on) && !on)
        r->kind.mode = MODE_OFF;
    else if (read_word(r, node, mode_names, &mode))
        r->kind.mode = (enum rule_mode)mode;
}

/* After the mode, which a rule that is disabled keeps. */
static void read_enabled(struct reader *r, const struct node *node, void *ret)
{
    bool enabled;
    (void)ret;
    if (read_bool(r, node, &enabled) && !enabled)
        rule_disable(&r->kind);
}

static void read_ignore_case(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    read_bool(r, node, &r->kind.ignore_case);
}

static void read_rule_expiry(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    read_expiry(r, node, &reader_rest(r)->expires_us);
}

static void read_rule_except(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    read_except(r, node, &reader_rest(r)->except);
}

static void read_rule_reject(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    read_reject(r, node, &reader_rest(r)->reject);
}

/* In the order in which they are read: `plans` looks at the limits and at what a plan is, `lease` at all limits and the
 * counters. */
static const struct field rule_fields[] = {
    { "id", read_id, offsetof(struct rule, id), "needs `id`, which names it in verdicts and keeps its counts" },
    { "match", read_match, offsetof(struct rule, match), .keep_null = true },
    { "ignore_case", read_ignore_case },
    { "by", read_by },
    { "limits", read_limits },
    { "plan", read_plan },
    { "plans", read_plans },
    { "mode", read_mode },
    { "enabled", read_enabled },
    { "expires", read_rule_expiry },
    { "except", read_rule_except },
    { "reject", read_rule_reject },
    { "counters", read_counters },
    { "lease", read_lease },
    { "on_store_failure", read_on_failure },
    { "penalty", read_penalty },
    { "hold_max", read_hold_max },
    { "replaces", read_replaces },
    { NULL },
};

bool read_rule(struct reader *r, const struct node *node, const struct node *twin, struct rule *rule)
{
    const struct node *id = node_get(node, SV("id"));
    size_t errors = r->errors;
    r->kind = (struct rule_kind){ .rest = &rule_no_rest };
    *rule = (struct rule){ .kind = &r->kind, .line = line_in_file(r, node->line) };
    sv file = file_of_line(r, node->line);
    if (file.len > 0 && !sv_eq(file, r->file))
        r->file = reader_copy(r, file);
    if (file.len > 0)
        reader_rest(r)->file = r->file;
    r->rule_number++;
    r->rule_id = id && id_valid(id) ? id->text : (sv){ 0 };
    if (twin && id)
        report_error(r, id->line, "id: the rule in %s already has this id; ids must be unique",
                     shown_line(r, twin->line, id->line));
    read_fields(r, node, rule_fields, rule);
    check_plans(r, node, rule);
    check_limit_words(r, node, rule);
    if (r->disables)
        rule_disable(&r->kind);
    reader_keep_kind(r, rule);
    return r->errors == errors;
}

/* ---- all rules ---- */

/* For each rule whose id an earlier one has: that id's node. NULL: no memory. */
static const struct node **find_twins(struct reader *r, const struct node *list)
{
    const struct node **twins = ARENA_ARRAY(r->scratch, const struct node *, list->count);
    const struct node **nodes = ARENA_ARRAY(r->scratch, const struct node *, list->count);
    struct id_entry *ids = ARENA_ARRAY(r->scratch, struct id_entry, list->count);
    size_t *earlier = ARENA_ARRAY(r->scratch, size_t, list->count);
    if (!twins || !nodes || !ids || !earlier)
        return NULL;
    size_t count = 0, index = 0;
    for (const struct node_item *item = list->first; item; item = item->next, index++) {
        nodes[index] = node_get(item->value, SV("id"));
        if (nodes[index] && id_valid(nodes[index]))
            ids[count++] = (struct id_entry){ nodes[index]->text, index };
    }
    ids_find_twins(ids, count, earlier);
    r->rule_ids = ids;
    r->rule_id_count = count;
    for (size_t i = 0; i < index; i++)
        twins[i] = earlier[i] ? nodes[earlier[i] - 1] : NULL;
    return twins;
}

static void read_rule_list(struct reader *r, const struct node *list, void *ret)
{
    struct rules *rules = ret;
    if (list->kind != NODE_LIST) {
        r->report->unreadable = true;
        report_error(r, list->line, "must be a list of rules (- id: …), not %s", shown_node(r, list));
        return;
    }
    if (list->count > RULES_MAX) {
        r->report->unreadable = true;
        report_error(r, list->line, "%u rules are too many; at most %d", list->count, RULES_MAX);
        return;
    }
    struct rule *next = arena_room(&rules->arena, list->count * sizeof *next);
    rules->rules = reader_list(r, list->count * sizeof *rules->rules);
    const struct node **twins = find_twins(r, list);
    if (!next || !rules->rules || !twins) {
        r->no_memory = true;
        return;
    }
    size_t index = 0;
    r->path_len = 0; /* a rule is named by its id or number instead */
    for (const struct node_item *item = list->first; item && !r->no_memory; item = item->next, index++) {
        if (read_rule(r, item->value, twins[index], next))
            rules->rules[rules->rule_count++] = next++;
        else
            report_bad_rule(r, rules->rule_count, list->count);
    }
    r->rule_number = 0;
    r->rule_id = (sv){ 0 };
}

/* ---- the document ---- */

static void read_problem(struct reader *r, const struct node *node, void *ret)
{
    read_text(r, node, 1, RULES_PROBLEM_TEXT_MAX, ret);
}

static void read_problems(struct reader *r, const struct node *node, void *ret)
{
    static const struct list list = { .read = read_problem, .size = sizeof(sv), .max = RULES_PROBLEMS_MAX };
    struct rules *rules = ret;
    rules->problems = read_list(r, node, &list, &rules->problem_count);
}

/* read_included takes it out of a document that may have it. */
static void read_include(struct reader *r, const struct node *node, void *ret)
{
    (void)ret;
    r->report->unreadable = true;
    report_error(r, node->line, "only a rules file can include others");
}

static void read_document(struct reader *r, const struct node *root)
{
    static const struct field fields[] = { { "settings", read_settings, offsetof(struct rules, settings) },
                                           { "rules", read_rule_list },
                                           { "overrides", read_overrides, .keep_null = true },
                                           { "include", read_include, .keep_null = true },
                                           { "problems", read_problems },
                                           { NULL } };
    if (root->kind != NODE_MAP) {
        r->report->unreadable = true;
        report_error(r, root->line, "must be a mapping with `settings` and `rules`, not %s%s", shown_node(r, root),
                     root->kind == NODE_LIST ? "; put the list under `rules:`" : "");
        return;
    }
    read_fields(r, root, fields, r->rules);
    const struct node *rules = node_get(root, SV("rules"));
    /* An `include` that failed was reported: the rules may be there. */
    if ((!rules || node_is_null(rules)) && !r->report->unreadable) {
        /* More likely a file that is not completely written yet than the wish for no limits. */
        r->report->unreadable = true;
        report_error(r, rules ? rules->line : root->line,
                     rules ? "`rules` is empty; to have no rules, write `rules: []`"
                           : "has no `rules`; to have no rules, write `rules: []`");
    }
}

/* The input: a document, a file with all that it includes, or a bare list. */
struct reading {
    sv text;
    bool bare_list;
    const struct rules *base;  /* of a list: the settings that hold; may be NULL */
    struct included *included; /* by a file; else NULL */
};

static void read_tree(struct reader *r, const struct reading *what)
{
    const struct node *root = NULL;
    struct node_error error;
    if (node_read(what->text, r->scratch, &root, &error) < 0) {
        r->no_memory = error.no_memory;
        r->report->unreadable = true;
        report_error(r, error.line, "%s", error.text);
        return;
    }
    if (!root || node_is_null(root)) {
        /* More likely a file that was emptied and not written yet, or a full disk, than the wish for no limits. */
        r->report->unreadable = true;
        report_error(r, 1, "is empty; to have no rules, write `%s`", what->bare_list ? "[]" : "rules: []");
        return;
    }
    if (what->included)
        root = read_included(r, what->text, root, what->included);
    if (what->bare_list)
        read_rule_list(r, root, r->rules);
    else
        read_document(r, root);
    /* A part may be missing: it was read for its errors only. */
    if (r->report->unreadable)
        r->rules->rule_count = r->report->bad_count = r->rules->override_count = r->report->bad_override_count = 0;
}

bool reader_begin(struct reader *r)
{
    *r->report = (struct rules_report){ 0 };
    r->rules = calloc(1, sizeof *r->rules);
    if (!r->rules)
        return false;
    r->rules->settings.ipv6_prefix = 64;
    r->arena = &r->rules->arena;
    return true;
}

struct rules *reader_end(struct reader *r)
{
    shared_lists_done(&r->shared);
    if (r->no_memory) {
        rules_report_done(r->report);
        rules_free(r->rules);
        return NULL;
    }
    report_sort(r->report);
    report_locate(r);
    return r->rules;
}

static struct rules *read_all(const struct reading *what, struct rules_report *ret_report)
{
    CLEANUP(arena_done) struct arena scratch = { 0 };
    struct reader r = { .report = ret_report, .scratch = &scratch, .included = what->included };
    if (!reader_begin(&r))
        return NULL;
    if (what->base && !settings_copy(&r.rules->arena, &what->base->settings, &r.rules->settings))
        r.no_memory = true;
    else
        read_tree(&r, what);
    return reader_end(&r);
}

struct rules *rules_read(sv text, struct rules_report *ret_report)
{
    return read_all(&(struct reading){ .text = text }, ret_report);
}

struct rules *rules_read_list(sv text, const struct rules *base, struct rules_report *ret_report)
{
    return read_all(&(struct reading){ .text = text, .bare_list = true, .base = base }, ret_report);
}

struct rules *rules_read_file(sv text, const char *path, struct included *ret, struct rules_report *ret_report)
{
    *ret = (struct included){ .top = path };
    return read_all(&(struct reading){ .text = text, .included = ret }, ret_report);
}
