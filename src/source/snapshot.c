#include "source/backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/hash.h"

int no_memory(struct weir_error *error)
{
    return err_set(error, WEIR_E_NO_MEMORY, "out of memory for the rules");
}

void snapshot_done(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    free(snapshot->rows);
    free(snapshot->by_key);
    free(snapshot->known);
    arena_done(&snapshot->arena);
    *snapshot = (struct snapshot){ 0 };
}

struct stored_row *snapshot_add(struct snapshot *snapshot, size_t *cap)
{
    if (snapshot->count == *cap) {
        size_t wider = *cap ? *cap * 2 : 64;
        struct stored_row *rows = realloc(snapshot->rows, wider * sizeof *rows);
        if (!rows)
            return NULL;
        snapshot->rows = rows;
        *cap = wider;
    }
    struct stored_row *row = &snapshot->rows[snapshot->count++];
    *row = (struct stored_row){ .enabled = true };
    return row;
}

int snapshot_copy(const struct snapshot *from, size_t more, struct snapshot *ret, struct weir_error *error)
{
    struct stored_row *rows = calloc(from->count + more + 1, sizeof *rows);
    if (!rows)
        return no_memory(error);
    if (from->count)
        memcpy(rows, from->rows, from->count * sizeof *rows);
    *ret = (struct snapshot){ .rows = rows, .count = from->count, .ordered = from->ordered };
    return 0;
}

/* ---- finding ---- */

/* Calls by number, overrides by rule and subject. */
static int compare_rows(const void *a, const void *b)
{
    const struct stored_row *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    if (x->table == TABLE_CALLS && x->key.len != y->key.len)
        return x->key.len < y->key.len ? -1 : 1;
    int order = x->table == TABLE_OVERRIDES ? sv_compare(x->rule, y->rule) : 0;
    return order ? order : sv_compare(x->key, y->key);
}

static int compare_pointers(const void *a, const void *b)
{
    const struct stored_row *x = *(struct stored_row *const *)a, *y = *(struct stored_row *const *)b;
    int order = compare_rows(x, y);
    return order ? order : (x > y) - (x < y);
}

static bool in_order(const struct snapshot *snapshot)
{
    for (size_t i = 1; i < snapshot->count; i++)
        if (compare_rows(&snapshot->rows[i - 1], &snapshot->rows[i]) > 0)
            return false;
    return true;
}

/* Makes rows findable where they are. */
static bool make_index(struct snapshot *snapshot)
{
    size_t count = snapshot->count;
    free(snapshot->by_key);
    snapshot->by_key = calloc(count + 1, sizeof *snapshot->by_key);
    for (size_t i = 0; snapshot->by_key && i < count; i++)
        snapshot->by_key[i] = &snapshot->rows[i];
    if (snapshot->by_key && !in_order(snapshot))
        qsort(snapshot->by_key, count, sizeof *snapshot->by_key, compare_pointers);
    return snapshot->by_key != NULL;
}

int snapshot_index(struct snapshot *snapshot, struct weir_error *error)
{
    if (snapshot->ordered && !in_order(snapshot))
        qsort(snapshot->rows, snapshot->count, sizeof *snapshot->rows, compare_rows);
    return make_index(snapshot) ? 0 : no_memory(error);
}

static const struct stored_row *find(const struct snapshot *snapshot, const struct stored_row *wanted)
{
    size_t low = 0, high = snapshot->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_rows(snapshot->by_key[middle], wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct stored_row *found = low < snapshot->count ? snapshot->by_key[low] : NULL;
    return found && compare_rows(found, wanted) == 0 ? found : NULL;
}

const struct stored_row *snapshot_find(const struct snapshot *snapshot, enum row_table table, sv key)
{
    return find(snapshot, &(struct stored_row){ .table = table, .key = key });
}

const struct stored_row *snapshot_override(const struct snapshot *snapshot, sv rule, sv subject)
{
    return find(snapshot, &(struct stored_row){ .table = TABLE_OVERRIDES, .rule = rule, .key = subject });
}

/* Whether a row that is known, and not in `rows`, makes the rule of this id. */
static bool is_known(const struct snapshot *snapshot, sv id)
{
    size_t at = snapshot->seen ? seen_place(snapshot->seen, id) : 0;
    return snapshot->seen && at < snapshot->seen->rule_count && snapshot->known[at] &&
           sv_eq(snapshot->seen->rows[at].rule->id, id);
}

const struct stored_row *snapshot_rule(const struct snapshot *snapshot, sv id)
{
    const struct stored_row *row = snapshot_find(snapshot, TABLE_RULES, id);
    if (!row && sv_starts(id, SV(CALL_ID_PREFIX)) && id.len > sizeof CALL_ID_PREFIX - 1)
        row = snapshot_find(snapshot, TABLE_CALLS, sv_from(id, sizeof CALL_ID_PREFIX - 1));
    return row;
}

/* ---- versions ---- */

static const struct hash_key version_key = { 0 }; /* not a secret: whoever may read a row may know its version */

uint64_t snapshot_version(const struct snapshot *snapshot, sv id)
{
    const struct stored_row *rule = id.len > 0 ? snapshot_rule(snapshot, id) : NULL;
    struct hash hash;
    if (id.len > 0)
        return rule ? row_version(rule) : 0;
    hash_init(&hash, &version_key);
    for (size_t i = 0; i < snapshot->count; i++)
        if (snapshot->by_key[i]->table == TABLE_SETTINGS)
            hash_word(&hash, row_version(snapshot->by_key[i]));
    return hash_final(&hash) | 1;
}

uint64_t source_version(const struct source_reading *reading, sv id)
{
    struct hash hash;
    hash_init(&hash, &version_key);
    for (size_t i = 0; i < reading->row_count; i++) {
        const struct source_row *row = &reading->rows[i];
        if (id.len > 0 && !row->setting && sv_eq(row->rule, id))
            return row->version;
        if (row->setting)
            hash_word(&hash, row->version);
    }
    return id.len > 0 ? 0 : hash_final(&hash) | 1;
}

/* ---- reading ---- */

void source_reading_done(struct source_reading *reading)
{
    if (!reading)
        return;
    rules_free(reading->rules);
    arena_done(&reading->arena);
    *reading = (struct source_reading){ 0 };
}

struct rule_row row_to_read(const struct stored_row *row)
{
    static const enum rule_row_kind kinds[TABLES] = {
        [TABLE_RULES] = ROW_RULE,
        [TABLE_CALLS] = ROW_CALL,
        [TABLE_SETTINGS] = ROW_SETTING,
        [TABLE_OVERRIDES] = ROW_OVERRIDE,
    };
    return (struct rule_row){ .kind = kinds[row->table],
                              .id = row->table == TABLE_SETTINGS ? row->key : row->rule,
                              .subject = row->table == TABLE_OVERRIDES ? row->key : SV(""),
                              .text = row->text,
                              .fault = row->fault };
}

/* A call's errors name its columns. */
static sv problem_text(struct arena *arena, const struct stored_row *row, sv text)
{
    static const struct {
        sv field, column;
    } names[] = { { SV("match.path: "), SV("NORMALIZED_CALL: ") },
                  { SV("match.method: "), SV("NORMALIZED_CALL: ") },
                  { SV("match: "), SV("NORMALIZED_CALL: ") } };
    if (row && row->table == TABLE_SETTINGS && sv_starts(text, SV("settings: ")))
        text = sv_from(text, 10);
    /* A row without a key has no number that anyone could find it by. */
    if (row && row->table == TABLE_CALLS && row->rule.len == 0 && sv_starts(text, SV("rule #"))) {
        sv_cut(&text, ':');
        text = sv_trim(text);
    }
    for (size_t i = 0; row && row->table == TABLE_CALLS && i < sizeof names / sizeof *names; i++) {
        if (!sv_starts(text, names[i].field))
            continue;
        CLEANUP(buf_done) struct buf named;
        buf_init(&named, 4096);
        buf_add(&named, names[i].column);
        buf_add(&named, sv_from(text, names[i].field.len));
        return arena_copy(arena, buf_sv(&named));
    }
    return arena_copy(arena, text);
}

/* Rows as they are read, and what became of them. */
struct attempt {
    struct rule_row *rows;
    struct stored_row **given; /* for each of `rows`; NULL: it is known, see struct snapshot */
    size_t count;
    size_t enabled;     /* of them; the others follow */
    size_t unused;      /* overrides that are not read, since their rule is not there */
    const sv **values;  /* for each: of the override that was read from it (and not kept from before) */
    uint64_t *versions; /* for each, if somebody wants to know: see seen_version() */
    uint32_t *came;     /* for each row of WEIR_RULES: its number as it came */
    struct rules_report report;
};

static void attempt_done(struct attempt *attempt)
{
    free(attempt->rows);
    free(attempt->given);
    free(attempt->values);
    free(attempt->versions);
    free(attempt->came);
    rules_report_done(&attempt->report);
}

/* A row of an attempt; one that is known is put together in *room. NULL: the line is not one. */
static const struct stored_row *row_at(const struct attempt *attempt, int line, struct stored_row *room)
{
    if (line <= 0 || (size_t)line > attempt->count)
        return NULL;
    if (attempt->given[line - 1])
        return attempt->given[line - 1];
    *room =
        (struct stored_row){ .table = TABLE_RULES, .key = attempt->rows[line - 1].id, .rule = attempt->rows[line - 1].id };
    return room;
}

static bool keep_problems(struct source_reading *reading, const struct rules_report *report, const struct attempt *attempt)
{
    size_t count = report->error_count < RULES_ERRORS_MAX ? report->error_count : RULES_ERRORS_MAX;
    reading->problems = ARENA_ARRAY(&reading->arena, struct source_problem, count + 1);
    for (size_t i = 0; reading->problems && i < count; i++) {
        const struct rule_problem *error = &report->errors[i];
        struct stored_row room;
        const struct stored_row *row = row_at(attempt, error->line, &room);
        struct source_problem *problem = &reading->problems[i];
        *problem = (struct source_problem){ .text = problem_text(&reading->arena, row, error->text) };
        if (row) {
            problem->table = weir_str(table_names[row->table]);
            problem->row = row->key;
            problem->rule = row->rule;
        }
        if (!problem->text.ptr)
            return false;
    }
    reading->problem_count = count;
    reading->unlisted = report->error_count - count;
    return reading->problems != NULL;
}

struct source_row row_listed(const struct stored_row *row, sv table)
{
    return (struct source_row){ .table = row->file.len > 0 ? row->file : table,
                                .key = row->key,
                                .rule = row->rule,
                                .text = row->text,
                                .enabled = row->enabled,
                                .setting = row->table == TABLE_SETTINGS,
                                .version = row_version(row),
                                .updated_at = row->updated_at,
                                .updated_by = row->updated_by,
                                .note = row->note };
}

/* The row that an override was read from; NULL: it is one that was kept from before. */
static const struct stored_row *row_of(const struct attempt *attempt, const struct rule_override *override)
{
    int line = override->line;
    const struct stored_row *row = line > 0 && (size_t)line <= attempt->count ? attempt->given[line - 1] : NULL;
    return row && row->table == TABLE_OVERRIDES && attempt->values[line - 1] == override->values ? row : NULL;
}

/* The rows for lists: those of rules and settings as they came, overrides by rule and subject. `at`: where each of them is.
 */
static bool list_rows(struct source_reading *reading, const struct snapshot *snapshot, struct source_row **at)
{
    size_t overrides = 0;
    for (size_t i = 0; i < snapshot->count; i++)
        overrides += snapshot->rows[i].table == TABLE_OVERRIDES;
    reading->rows = ARENA_ARRAY(&reading->arena, struct source_row, snapshot->count - overrides + 1);
    reading->overrides = ARENA_ARRAY(&reading->arena, struct source_row, overrides + 1);
    if (!reading->rows || !reading->overrides)
        return false;
    for (size_t k = 0; k < snapshot->count; k++) {
        const struct stored_row *row = snapshot->ordered ? snapshot->by_key[k] : &snapshot->rows[k];
        size_t i = (size_t)(row - snapshot->rows);
        if (row->table == TABLE_OVERRIDES)
            continue;
        at[i] = &reading->rows[reading->row_count++];
        *at[i] = row_listed(row, weir_str(table_names[row->table]));
    }
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct stored_row *row = snapshot->by_key[i];
        if (row->table != TABLE_OVERRIDES)
            continue;
        struct source_row *to = at[row - snapshot->rows] = &reading->overrides[reading->override_count++];
        *to = row_listed(row, weir_str(table_names[row->table]));
    }
    return true;
}

/* Each row with the rule or override that was read from it. */
static bool keep_rows(struct source_reading *reading, const struct snapshot *snapshot, const struct attempt *attempt)
{
    CLEANUP_FREE struct source_row **at = cleanup_calloc(snapshot->count + 1, sizeof *at);
    const struct rules *rules = reading->rules;
    if (!at || !list_rows(reading, snapshot, at))
        return false;
    for (size_t i = 0; i < attempt->count; i++)
        if (attempt->rows[i].rule)
            at[attempt->given[i] - snapshot->rows]->parsed = attempt->rows[i].rule;
    for (size_t i = 0; i < rules->override_count; i++) {
        const struct stored_row *row = row_of(attempt, &rules->overrides[i]);
        if (row)
            at[row - snapshot->rows]->override = &rules->overrides[i];
    }
    return true;
}

/* ---- remembering ---- */

static bool is_rule_row(const struct attempt *attempt, size_t i)
{
    return !attempt->given[i] || attempt->given[i]->table == TABLE_RULES;
}

static void remember_rule(struct seen *seen, const struct attempt *attempt, size_t i)
{
    if (!is_rule_row(attempt, i) || !attempt->rows[i].rule)
        return;
    seen->came[attempt->came[i]] = (uint32_t)seen->count;
    seen_add_rule(seen, attempt->versions[i], attempt->rows[i].rule);
}

/* Those that are enabled and the others are each in the order of their ids. */
static void remember_rules(struct seen *seen, const struct attempt *attempt)
{
    size_t off = attempt->enabled;
    for (size_t on = 0; on < attempt->enabled; on++) {
        if (!is_rule_row(attempt, on))
            break;
        for (; off < attempt->count && is_rule_row(attempt, off) &&
               sv_compare(attempt->rows[off].id, attempt->rows[on].id) < 0;
             off++)
            remember_rule(seen, attempt, off);
        remember_rule(seen, attempt, on);
    }
    for (; off < attempt->count; off++)
        remember_rule(seen, attempt, off);
}

/* Remembers what was read. What was kept from before does not belong to the row that it has now. */
static void remember(struct seen *seen, const struct source_reading *reading, const struct snapshot *snapshot,
                     const struct attempt *attempt)
{
    const struct rules *rules = reading->rules;
    size_t came = snapshot->count + snapshot->known_count;
    struct seen fresh = { 0 };
    size_t others = 0;
    for (size_t i = 0; i < attempt->count; i++)
        others += !is_rule_row(attempt, i);
    if (!seen_begin(&fresh, reading->rules, seen_settings(snapshot), attempt->count, others) ||
        !(fresh.came = malloc((came + 1) * sizeof *fresh.came))) {
        seen_done(&fresh);
        seen_done(seen);
        return;
    }
    memset(fresh.came, 0xff, came * sizeof *fresh.came);
    remember_rules(&fresh, attempt);
    seen_trim_came(&fresh, came);
    for (size_t i = 0; i < attempt->count; i++)
        if (!is_rule_row(attempt, i) && attempt->rows[i].rule)
            seen_add_other(&fresh, (struct seen_row){ attempt->versions[i], { .rule = attempt->rows[i].rule } });
    for (size_t i = 0; i < rules->override_count; i++)
        if (row_of(attempt, &rules->overrides[i]))
            seen_add_other(&fresh, (struct seen_row){ attempt->versions[rules->overrides[i].line - 1],
                                                      { .override = &rules->overrides[i] } });
    seen_done(seen);
    *seen = fresh;
}

static int finish_reading(struct source_reading *reading, struct snapshot *snapshot, struct attempt *attempt,
                          const struct snapshot_terms *terms, struct weir_error *error)
{
    const struct rules *last = terms->last;
    const struct rules_report *report = &attempt->report;
    if (report->incomplete)
        return 1;
    if (report->unreadable && !last)
        return err_set(error, WEIR_E_RULES, "%.*s", SV_FMT(report->errors[0].text));
    reading->unused_overrides = attempt->unused;
    for (size_t i = 0; i < reading->rules->override_count; i++)
        attempt->values[reading->rules->overrides[i].line - 1] = reading->rules->overrides[i].values;
    bool restored = (!last || !report->error_count || rules_keep_last_good(reading->rules, report, last) == 0) &&
                    keep_problems(reading, report, attempt) && (!terms->rows || keep_rows(reading, snapshot, attempt));
    return restored ? 0 : no_memory(error);
}

/* ---- choosing rows ---- */

struct choosing {
    const struct snapshot *snapshot;
    const struct snapshot_terms *terms;
    struct attempt *attempt;
    bool recall; /* what was read before holds */
    bool off;    /* rows that are not enabled are chosen, or the others */
    size_t next; /* of the rows that are known */
    size_t rules;
};

/* A row that is known, or a stored one. Not more than RULES_MAX rules that are off. */
static bool choose(struct choosing *c, bool off, struct stored_row *given)
{
    struct attempt *a = c->attempt;
    bool override = given && given->table == TABLE_OVERRIDES;
    if (off != c->off || (off && c->rules == RULES_MAX))
        return false;
    c->rules += !override;
    a->given[a->count++] = given;
    a->rows[a->count - 1].disabled = off;
    return true;
}

/* The rows that are known and come before the one with this number. */
static void choose_known(struct choosing *c, size_t until)
{
    const struct snapshot *snapshot = c->snapshot;
    struct attempt *a = c->attempt;
    for (; c->next < until; c->next++) {
        const struct seen_row *row = &snapshot->seen->rows[c->next];
        if (!snapshot->known[c->next] || !choose(c, !(row->version & 1) && !c->terms->all, NULL))
            continue;
        a->rows[a->count - 1].kind = ROW_RULE;
        a->rows[a->count - 1].id = row->rule->id;
        a->rows[a->count - 1].rule = row->rule;
        a->versions[a->count - 1] = row->version;
        a->came[a->count - 1] = snapshot->known[c->next] - 1;
    }
}

static void choose_stored(struct choosing *c, struct stored_row *row)
{
    struct attempt *a = c->attempt;
    bool off = !row->enabled && !c->terms->all, override = row->table == TABLE_OVERRIDES;
    /* An override of a rule that was removed is not read. */
    bool unused = override && !snapshot_rule(c->snapshot, row->rule) && !is_known(c->snapshot, row->rule);
    a->unused += unused && !c->off;
    if (unused || !choose(c, off, row))
        return;
    size_t i = a->count - 1;
    a->rows[i] = row_to_read(row);
    a->rows[i].disabled = off;
    if (!c->terms->seen)
        return;
    a->versions[i] = seen_version(row);
    a->came[i] = row->came;
    const struct seen_row *seen =
        c->recall && row->table != TABLE_SETTINGS ? seen_find(c->terms->seen, row, a->versions[i]) : NULL;
    if (seen && override)
        a->rows[i].same_override = seen->override;
    else if (seen)
        a->rows[i].rule = seen->rule;
}

/* Returns false if a row has the id of one that is known: which of them came first is not known. */
static bool choose_rows_that_are(bool off, struct choosing *c)
{
    const struct snapshot *snapshot = c->snapshot;
    size_t known = snapshot->seen ? snapshot->seen->rule_count : 0;
    c->off = off;
    c->next = 0;
    for (size_t i = 0; i < snapshot->count; i++) {
        struct stored_row *row = snapshot->ordered ? snapshot->by_key[i] : &snapshot->rows[i];
        bool rule = row->table == TABLE_RULES;
        if (rule && is_known(snapshot, row->key))
            return false;
        choose_known(c, rule && known > 0 ? seen_place(snapshot->seen, row->key) : known);
        choose_stored(c, row);
    }
    choose_known(c, known);
    return true;
}

/* Rules that are not enabled come last, see struct rule_row. Returns 1 as snapshot_read does. */
static int choose_rows(const struct snapshot *snapshot, const struct snapshot_terms *terms, struct attempt *a,
                       struct weir_error *error)
{
    struct choosing c = { .snapshot = snapshot, .terms = terms, .attempt = a };
    c.recall = terms->seen && seen_settings(snapshot) == terms->seen->settings;
    size_t room = snapshot->count + snapshot->known_count + 1;
    a->rows = cleanup_calloc(room, sizeof *a->rows);
    a->given = cleanup_calloc(room, sizeof *a->given);
    a->values = cleanup_calloc(room, sizeof *a->values);
    a->versions = cleanup_calloc(room, sizeof *a->versions);
    a->came = cleanup_calloc(room, sizeof *a->came);
    if (!a->rows || !a->given || !a->values || !a->versions || !a->came)
        return no_memory(error);
    if (!choose_rows_that_are(false, &c))
        return 1;
    a->enabled = a->count;
    choose_rows_that_are(true, &c);
    return 0;
}

int snapshot_read(struct snapshot *snapshot, const struct snapshot_terms *terms, struct source_reading *ret,
                  struct weir_error *error)
{
    struct source_reading reading = { 0 };
    struct rules *before = terms->seen ? terms->seen->rules : NULL;
    CLEANUP(attempt_done) struct attempt attempt = { 0 };
    int r = snapshot->by_key || make_index(snapshot) ? choose_rows(snapshot, terms, &attempt, error) : no_memory(error);
    if (r == 0)
        reading.rules = rules_reread_rows(attempt.rows, attempt.count, before, &attempt.report);
    reading.arena = snapshot->arena;
    snapshot->arena = (struct arena){ 0 };
    if (r == 0)
        r = reading.rules ? finish_reading(&reading, snapshot, &attempt, terms, error) : no_memory(error);
    if (r == 0 && terms->seen)
        remember(terms->seen, &reading, snapshot, &attempt);
    if (r != 0)
        source_reading_done(&reading);
    else
        *ret = reading;
    return r;
}
