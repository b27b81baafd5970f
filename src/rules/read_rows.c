/* Rows of a table: each one a document of its own, so that a broken one hides no other. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "rules/reader.h"

enum { OVERRIDE_VALUES_MAX = 1000 };

struct row_reader {
    struct reader r;
    struct rule_row *rows;
    size_t count;
    size_t *twins;   /* for each row: 1 + the index of an earlier one with the same id, or 0 */
    bool shares;     /* rules and overrides of an earlier set */
    uint64_t weight; /* values in all rows so far */
};

/* ---- one row ---- */

static bool row_fault(struct row_reader *rr, const struct rule_row *row, bool twin)
{
    struct reader *r = &rr->r;
    size_t errors = r->errors;
    if (row->fault.len > 0)
        report_error(r, 0, "%.*s", SV_FMT(row->fault));
    else if (!utf8_valid(row->id))
        report_error(r, 0, "the id is not UTF-8");
    else if (twin)
        report_error(r, 0, "another row already has this %s", row->kind == ROW_SETTING ? "name" : "id");
    return r->errors > errors;
}

/* The row's tree, in `arena`; NULL after an error. */
static const struct node *row_tree(struct row_reader *rr, const struct rule_row *row, struct arena *arena)
{
    struct reader *r = &rr->r;
    const struct node *root = NULL;
    struct node_error error;
    if (node_read(row->text, arena, &root, &error) < 0) {
        r->no_memory = r->no_memory || error.no_memory;
        report_error(r, 0, "%s", error.text);
        return NULL;
    }
    if (!root) {
        report_error(r, 0, "is empty; it must be %s as JSON",
                     row->kind == ROW_SETTING    ? "a value"
                     : row->kind == ROW_OVERRIDE ? "an override"
                                                 : "a rule");
        return NULL;
    }
    /* There may be many more overrides than values in all rules. Each is read alone, and is small. */
    if (row->kind == ROW_OVERRIDE && root->weight > OVERRIDE_VALUES_MAX) {
        report_error(r, 0, "more than %d values", OVERRIDE_VALUES_MAX);
        return NULL;
    }
    rr->weight += row->kind == ROW_OVERRIDE ? 0 : root->weight;
    if (rr->weight > RULES_VALUES_MAX) {
        report_error(r, 0, "more than %d values in all rows together; use fewer", RULES_VALUES_MAX);
        return NULL;
    }
    return root;
}

/* A mapping with one field more before those of `root`. */
struct longer_map {
    struct node key, map;
    struct node_item item;
};

static const struct node *with_field(struct longer_map *m, sv name, const struct node *value, const struct node *root)
{
    m->key = (struct node){ .kind = NODE_SCALAR, .line = 1, .weight = 1, .text = name };
    m->item = (struct node_item){ .key = &m->key, .value = value, .next = root ? root->first : NULL };
    m->map = (struct node){ .kind = NODE_MAP, .line = 1, .count = root ? root->count + 1 : 1, .first = &m->item };
    return &m->map;
}

/* Whether a row's document can be its rule: it may leave its id out, but not have another. */
static bool check_own_id(struct reader *r, const struct rule_row *row, const struct node *root)
{
    const struct node *own = node_get(root, SV("id"));
    size_t errors = r->errors;
    if (root->kind != NODE_MAP)
        report_error(r, 0, "must be a mapping (field: value), not %s", shown_node(r, root));
    else if (own && (own->kind != NODE_SCALAR || !sv_eq(own->text, row->id)))
        report_error(r, 0, "id: must be the id of the row or be left out, not %s", shown_node(r, own));
    return r->errors == errors;
}

static size_t count_regexes(const struct rule_match *match)
{
    size_t regexes = 0;
    for (size_t i = 0; i < rule_path_count(match); i++)
        regexes += rule_path(match, i).is_regex;
    return regexes;
}

/* Takes over what was read from the row before, unless that would exceed a bound: then reading it says so. */
static bool share_rule(struct row_reader *rr, size_t index)
{
    const struct rule *same = rr->shares && !rr->twins[index] ? rr->rows[index].rule : NULL;
    size_t regexes = same ? count_regexes(&same->match) : 0;
    if (!same || rr->weight + same->values > RULES_VALUES_MAX || rr->r.regexes + regexes > RULES_REGEXES_MAX)
        return false;
    rr->weight += same->values;
    rr->r.regexes += regexes;
    return true;
}

static struct node id_node(const struct rule_row *row)
{
    return (struct node){ .kind = NODE_SCALAR, .line = 1, .weight = 1, .text = row->id };
}

/* The row's id, if a rule can have it; else nothing. */
static sv row_id(const struct rule_row *row)
{
    struct node id = id_node(row);
    return utf8_valid(row->id) && id_valid(&id) ? row->id : (sv){ 0 };
}

static void read_rule_row(struct row_reader *rr, size_t index)
{
    struct reader *r = &rr->r;
    struct rule_row *row = &rr->rows[index];
    if (share_rule(rr, index))
        return;
    bool without_text = row->rule && !row->text.ptr;
    row->rule = NULL;
    if (without_text && !rr->twins[index]) {
        r->report->incomplete = true;
        return;
    }
    CLEANUP(arena_done) struct arena arena = { 0 };
    struct node id = id_node(row);
    struct longer_map map;
    uint64_t weight = rr->weight;
    r->quiet = r->disables = row->disabled;
    r->row = (int)index + 1;
    r->rule_number = index + 1;
    r->rule_id = row_id(row);
    const struct node *root = row_fault(rr, row, rr->twins[index]) ? NULL : row_tree(rr, row, &arena);
    bool good = root && check_own_id(r, row, root);
    if (good && !node_get(root, SV("id")))
        root = with_field(&map, SV("id"), &id, root);
    r->rule_number = index; /* read_rule counts */
    struct rule *rule = reader_alloc(r, sizeof *rule);
    if (good && rule && read_rule(r, root, NULL, rule)) {
        row->rule = rule;
        rule->line = 0;
        rule->values = (uint32_t)(rr->weight - weight);
    }
    r->quiet = r->disables = false;
}

static void read_setting_row(struct row_reader *rr, size_t index)
{
    struct reader *r = &rr->r;
    const struct rule_row *row = &rr->rows[index];
    CLEANUP(arena_done) struct arena arena = { 0 };
    size_t errors = r->errors;
    int setting = setting_find(row->id);
    r->row = (int)index + 1;
    r->in_settings = true;
    size_t before = setting >= 0 ? path_field(r, row->id) : r->path_len;
    const struct node *value = row_fault(rr, row, rr->twins[index]) ? NULL : row_tree(rr, row, &arena);
    path_end(r, before);
    struct longer_map map;
    if (value)
        read_settings(r, with_field(&map, row->id, value, NULL), &r->rules->settings);
    r->in_settings = false;
    if (setting >= 0 && r->errors > errors)
        r->report->bad_settings |= 1u << setting;
}

/* ---- all rows ---- */

/* For each row whose id an earlier one of its sort has: that one. */
static bool find_twins(struct row_reader *rr, bool settings)
{
    size_t most = 0, count = 0;
    for (size_t i = 0; i < rr->count; i++)
        most += rr->rows[i].kind != ROW_OVERRIDE && (rr->rows[i].kind == ROW_SETTING) == settings;
    struct id_entry *ids = arena_room(rr->r.scratch, (most + 1) * sizeof *ids);
    if (!ids)
        return false;
    for (size_t i = 0; i < rr->count && count < most; i++)
        if (rr->rows[i].kind != ROW_OVERRIDE && (rr->rows[i].kind == ROW_SETTING) == settings)
            ids[count++] = (struct id_entry){ rr->rows[i].id, i };
    ids_find_twins(ids, count, rr->twins);
    if (!settings) {
        rr->r.rule_ids = ids;
        rr->r.rule_id_count = count;
    }
    return true;
}

/* "POST /entity/#", in lower case where case does not matter. */
static sv call_of(struct row_reader *rr, const struct rule *rule)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 2 * (size_t)RULES_BYTES_MAX);
    const struct rule_condition *method = rule_condition_of(rule, ATTR_METHOD);
    if (method) {
        rule_condition_text(method, &text);
        buf_char(&text, ' ');
    }
    for (size_t i = 0; i < rule->match.path_count; i++) {
        buf_add(&text, rule_path_text(rule_path(&rule->match, i)));
        buf_char(&text, '\n');
    }
    for (size_t i = 0; rr->r.rules->settings.ignore_case && i < text.len; i++)
        text.ptr[i] = ascii_lower(text.ptr[i]);
    sv copy = arena_copy(rr->r.scratch, buf_sv(&text));
    rr->r.no_memory = rr->r.no_memory || text.failed || !copy.ptr;
    return copy;
}

/* If calls are the same after normalising, all but the first are bad. Calls that have expired do not count.
 */
static void find_same_calls(struct row_reader *rr)
{
    struct reader *r = &rr->r;
    size_t most = 0, count = 0;
    for (size_t i = 0; i < rr->count; i++)
        most += rr->rows[i].kind == ROW_CALL;
    if (most == 0)
        return;
    struct id_entry *calls = ARENA_ARRAY(r->scratch, struct id_entry, most);
    size_t *twins = ARENA_ARRAY(r->scratch, size_t, rr->count + 1);
    int64_t now_us = clock_now_us();
    r->no_memory = r->no_memory || !calls || !twins;
    for (size_t i = 0; !r->no_memory && i < rr->count; i++)
        if (rr->rows[i].kind == ROW_CALL && rr->rows[i].rule && rr->rows[i].rule->kind->rest->expires_us > now_us)
            calls[count++] = (struct id_entry){ call_of(rr, rr->rows[i].rule), i };
    if (r->no_memory)
        return;
    ids_find_twins(calls, count, twins);
    for (size_t i = 0; i < rr->count; i++) {
        if (!twins[i])
            continue;
        rr->rows[i].rule = NULL;
        r->row = (int)i + 1;
        r->rule_id = rr->rows[i].id;
        report_error(r, 0, "match: after normalising this is the same call as in rule %.*s; keep one of them",
                     SV_FMT(rr->rows[twins[i] - 1].id));
    }
}

static void gather(struct row_reader *rr)
{
    struct reader *r = &rr->r;
    struct rules *rules = r->rules;
    rules->rules = reader_list(r, (r->rule_id_count + 1) * sizeof *rules->rules);
    for (size_t i = 0; rules->rules && i < rr->count; i++) {
        const struct rule_row *row = &rr->rows[i];
        if (row->kind == ROW_SETTING || row->kind == ROW_OVERRIDE)
            continue;
        if (row->rule)
            rules->rules[rules->rule_count++] = row->rule;
        else if (!row->disabled) {
            r->rule_id = row_id(row);
            report_bad_rule(r, rules->rule_count, r->rule_id_count);
        }
    }
}

/* After the rules that they are for. */
static void read_override_rows(struct row_reader *rr)
{
    struct override_reader o;
    size_t most = 0;
    for (size_t i = 0; i < rr->count; i++)
        most += rr->rows[i].kind == ROW_OVERRIDE;
    if (most == 0 || !overrides_begin(&o, &rr->r, most))
        return;
    for (size_t i = 0; i < rr->count && !rr->r.no_memory; i++) {
        if (rr->rows[i].kind != ROW_OVERRIDE)
            continue;
        CLEANUP(arena_done) struct arena arena = { 0 };
        rr->r.row = (int)i + 1;
        if (rr->shares && overrides_share(&o, &rr->rows[i]))
            continue;
        const struct node *root = overrides_name(&o, &rr->rows[i]) ? row_tree(rr, &rr->rows[i], &arena) : NULL;
        if (root)
            overrides_read(&o, root, &rr->rows[i]);
        else
            report_bad_override(&rr->r);
    }
    overrides_end(&o);
}

static void read_rows(struct row_reader *rr)
{
    struct reader *r = &rr->r;
    rr->twins = ARENA_ARRAY(r->scratch, size_t, rr->count + 1);
    r->no_memory = !rr->twins || !find_twins(rr, true) || !find_twins(rr, false);
    /* ignore_case first: regexes follow it, those of other settings too. */
    for (int others = 0; others < 2; others++)
        for (size_t i = 0; !r->no_memory && i < rr->count; i++)
            if (rr->rows[i].kind == ROW_SETTING && sv_eq(rr->rows[i].id, SV("ignore_case")) == !others)
                read_setting_row(rr, i);
    for (size_t i = 0; !r->no_memory && i < rr->count; i++)
        if (rr->rows[i].kind == ROW_RULE || rr->rows[i].kind == ROW_CALL)
            read_rule_row(rr, i);
    r->rule_number = 0;
    if (!r->no_memory)
        find_same_calls(rr);
    if (!r->no_memory)
        gather(rr);
    if (!r->no_memory)
        read_override_rows(rr);
}

/* Most rows have not changed, and not too many sets are held already. */
static bool is_worth_sharing(const struct rule_row *rows, size_t count, const struct rules *before)
{
    size_t same = 0;
    for (size_t i = 0; i < count; i++)
        same += rows[i].rule || rows[i].same_override;
    return before && before->bases < RULES_BASES_MAX && same > count / 2;
}

struct rules *rules_read_rows(struct rule_row *rows, size_t count, struct rules_report *ret_report)
{
    return rules_reread_rows(rows, count, NULL, ret_report);
}

struct rules *rules_reread_rows(struct rule_row *rows, size_t count, struct rules *before, struct rules_report *ret_report)
{
    CLEANUP(arena_done) struct arena scratch = { 0 };
    struct row_reader rr = { .r = { .report = ret_report, .scratch = &scratch }, .rows = rows };
    if (!reader_begin(&rr.r))
        return NULL;
    rr.shares = is_worth_sharing(rows, count, before);
    if (rr.shares)
        rules_build_on(rr.r.rules, before);
    size_t overrides = 0;
    for (size_t i = 0; i < count; i++)
        overrides += rows[i].kind == ROW_OVERRIDE;
    if (count - overrides > RULES_MAX || overrides > RULES_OVERRIDES_MAX) {
        bool rules = count - overrides > RULES_MAX;
        ret_report->unreadable = true;
        for (size_t i = 0; i < count; i++)
            rows[i].rule = NULL;
        report_error(&rr.r, 0, "%zu %s are too many; at most %d", rules ? count - overrides : overrides,
                     rules ? "rows" : "overrides", rules ? RULES_MAX : RULES_OVERRIDES_MAX);
    } else {
        rr.count = count;
        read_rows(&rr);
    }
    return reader_end(&rr.r);
}
