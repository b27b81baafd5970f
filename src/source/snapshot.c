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

/* Makes rows findable where they are. */
static bool make_index(struct snapshot *snapshot)
{
    size_t count = snapshot->count;
    free(snapshot->by_key);
    snapshot->by_key = calloc(count + 1, sizeof *snapshot->by_key);
    for (size_t i = 0; snapshot->by_key && i < count; i++)
        snapshot->by_key[i] = &snapshot->rows[i];
    if (snapshot->by_key && count > 1)
        qsort(snapshot->by_key, count, sizeof *snapshot->by_key, compare_pointers);
    return snapshot->by_key != NULL;
}

int snapshot_index(struct snapshot *snapshot, struct weir_error *error)
{
    if (snapshot->ordered && snapshot->count > 1)
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

const struct stored_row *snapshot_rule(const struct snapshot *snapshot, sv id)
{
    const struct stored_row *row = snapshot_find(snapshot, TABLE_RULES, id);
    if (!row && sv_starts(id, SV(CALL_ID_PREFIX)) && id.len > sizeof CALL_ID_PREFIX - 1)
        row = snapshot_find(snapshot, TABLE_CALLS, sv_from(id, sizeof CALL_ID_PREFIX - 1));
    return row;
}

/* ---- versions ---- */

static const struct hash_key version_key = { 0 }; /* not a secret: whoever may read a row may know its version */

static uint64_t row_version(const struct stored_row *row)
{
    struct hash hash;
    hash_init(&hash, &version_key);
    hash_word(&hash, (uint64_t)row->table << 1 | row->enabled);
    hash_text(&hash, row->key.ptr, row->key.len);
    hash_text(&hash, row->text.ptr, row->text.len);
    hash_text(&hash, row->fault.ptr, row->fault.len);
    return hash_final(&hash) | 1;
}

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

static bool keep_problems(struct source_reading *reading, const struct rules_report *report,
                          struct stored_row *const *given)
{
    size_t count = report->error_count < RULES_ERRORS_MAX ? report->error_count : RULES_ERRORS_MAX;
    reading->problems = ARENA_ARRAY(&reading->arena, struct source_problem, count + 1);
    for (size_t i = 0; reading->problems && i < count; i++) {
        const struct rule_problem *error = &report->errors[i];
        const struct stored_row *row = error->line > 0 ? given[error->line - 1] : NULL;
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

/* Rows as they are read, and what became of them. */
struct attempt {
    struct rule_row *rows;
    struct stored_row **given; /* for each of `rows` */
    size_t count;
    size_t unused;     /* overrides that are not read, since their rule is not there */
    bool *good;        /* for each: its rule was read from it (and not kept from before) */
    const sv **values; /* for each: of the override that was read from it */
    struct rules_report report;
};

static void attempt_done(struct attempt *attempt)
{
    free(attempt->rows);
    free(attempt->given);
    free(attempt->good);
    free(attempt->values);
    rules_report_done(&attempt->report);
}

/* The row that the reader calls by this line, if it is one of these tables. */
static const struct stored_row *row_of_line(const struct attempt *attempt, int line, bool override)
{
    const struct stored_row *row = line > 0 && (size_t)line <= attempt->count ? attempt->given[line - 1] : NULL;
    return row && (row->table == TABLE_OVERRIDES) == override ? row : NULL;
}

/* The rows for lists: those of rules and settings as they came, overrides by rule and subject. `at`: where each of them is.
 */
static bool list_rows(struct source_reading *reading, const struct snapshot *snapshot, struct source_row **at)
{
    reading->rows = ARENA_ARRAY(&reading->arena, struct source_row, snapshot->count + 1);
    reading->overrides = ARENA_ARRAY(&reading->arena, struct source_row, snapshot->count + 1);
    if (!reading->rows || !reading->overrides)
        return false;
    for (size_t i = 0; i < snapshot->count; i++) {
        const struct stored_row *row = &snapshot->rows[i];
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
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct rule *rule = &rules->rules[i];
        const struct stored_row *row = row_of_line(attempt, rule->line, false);
        if (row && attempt->good[rule->line - 1] && sv_eq(row->rule, rule->id))
            at[row - snapshot->rows]->parsed = rule;
    }
    for (size_t i = 0; i < rules->override_count; i++) {
        const struct rule_override *override = &rules->overrides[i];
        const struct stored_row *row = row_of_line(attempt, override->line, true);
        if (row && attempt->values[override->line - 1] == override->values)
            at[row - snapshot->rows]->override = override;
    }
    reading->unused_overrides = attempt->unused;
    return true;
}

static int finish_reading(struct source_reading *reading, struct snapshot *snapshot, struct attempt *attempt,
                          const struct rules *last, struct weir_error *error)
{
    const struct rules_report *report = &attempt->report;
    if (report->unreadable && !last)
        return err_set(error, WEIR_E_RULES, "%.*s", SV_FMT(report->errors[0].text));
    for (size_t i = 0; i < reading->rules->rule_count; i++)
        attempt->good[reading->rules->rules[i].line - 1] = true;
    for (size_t i = 0; i < reading->rules->override_count; i++)
        attempt->values[reading->rules->overrides[i].line - 1] = reading->rules->overrides[i].values;
    bool restored = (!last || !report->error_count || rules_keep_last_good(reading->rules, report, last) == 0) &&
                    keep_problems(reading, report, attempt->given) && keep_rows(reading, snapshot, attempt);
    return restored ? 0 : no_memory(error);
}

/* Rules that are not enabled come last, see struct rule_row. An override of a rule that was removed is not read. */
static bool choose_rows(const struct snapshot *snapshot, bool all, struct attempt *a)
{
    size_t room = snapshot->count + 1;
    a->rows = cleanup_calloc(room, sizeof *a->rows);
    a->given = cleanup_calloc(room, sizeof *a->given);
    a->good = cleanup_calloc(room, sizeof *a->good);
    a->values = cleanup_calloc(room, sizeof *a->values);
    size_t rules = 0;
    bool have = a->rows && a->given && a->good && a->values;
    for (int disabled = 0; disabled < 2; disabled++)
        for (size_t i = 0; have && i < snapshot->count; i++) {
            struct stored_row *row = &snapshot->rows[i];
            bool off = !row->enabled && !all, override = row->table == TABLE_OVERRIDES;
            bool unused = override && !snapshot_rule(snapshot, row->rule);
            if (off != disabled || (off && rules == RULES_MAX) || unused) {
                a->unused += unused && !disabled;
                continue;
            }
            rules += !override;
            a->given[a->count] = row;
            a->rows[a->count] = row_to_read(row);
            a->rows[a->count++].disabled = off;
        }
    return have;
}

int snapshot_read(struct snapshot *snapshot, const struct rules *last, bool all, struct source_reading *ret,
                  struct weir_error *error)
{
    struct source_reading reading = { 0 };
    CLEANUP(attempt_done) struct attempt attempt = { 0 };
    if ((snapshot->by_key || make_index(snapshot)) && choose_rows(snapshot, all, &attempt))
        reading.rules = rules_read_rows(attempt.rows, attempt.count, &attempt.report);
    reading.arena = snapshot->arena;
    snapshot->arena = (struct arena){ 0 };
    int r = reading.rules ? finish_reading(&reading, snapshot, &attempt, last, error) : no_memory(error);
    if (r < 0)
        source_reading_done(&reading);
    else
        *ret = reading;
    return r;
}
