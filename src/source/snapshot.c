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

/* Calls by number. */
static int compare_keys(enum row_table a_table, sv a, enum row_table b_table, sv b)
{
    if (a_table != b_table)
        return a_table < b_table ? -1 : 1;
    if (a_table == TABLE_CALLS && a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return sv_compare(a, b);
}

static int compare_rows(const void *a, const void *b)
{
    const struct stored_row *x = a, *y = b;
    return compare_keys(x->table, x->key, y->table, y->key);
}

static int compare_pointers(const void *a, const void *b)
{
    const struct stored_row *x = *(struct stored_row *const *)a, *y = *(struct stored_row *const *)b;
    int order = compare_rows(x, y);
    return order ? order : (x > y) - (x < y);
}

int snapshot_index(struct snapshot *snapshot, struct weir_error *error)
{
    size_t count = snapshot->count;
    free(snapshot->by_key);
    snapshot->by_key = calloc(count + 1, sizeof *snapshot->by_key);
    if (!snapshot->by_key)
        return no_memory(error);
    if (snapshot->ordered && count > 1)
        qsort(snapshot->rows, count, sizeof *snapshot->rows, compare_rows);
    for (size_t i = 0; i < count; i++)
        snapshot->by_key[i] = &snapshot->rows[i];
    if (count > 1)
        qsort(snapshot->by_key, count, sizeof *snapshot->by_key, compare_pointers);
    return 0;
}

const struct stored_row *snapshot_find(const struct snapshot *snapshot, enum row_table table, sv key)
{
    size_t low = 0, high = snapshot->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct stored_row *row = snapshot->by_key[middle];
        if (compare_keys(row->table, row->key, table, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct stored_row *found = low < snapshot->count ? snapshot->by_key[low] : NULL;
    return found && found->table == table && sv_eq(found->key, key) ? found : NULL;
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
    bool setting = row->table == TABLE_SETTINGS;
    return (struct rule_row){ .kind = setting                     ? ROW_SETTING
                                      : row->table == TABLE_CALLS ? ROW_CALL
                                                                  : ROW_RULE,
                              .id = setting ? row->key : row->rule,
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
    return (struct source_row){ .table = table,
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

/* The rows for lists, each with its rule where that was read from it (and not kept from before). */
static bool keep_rows(struct source_reading *reading, const struct snapshot *snapshot, struct stored_row *const *given,
                      const bool *good)
{
    reading->rows = ARENA_ARRAY(&reading->arena, struct source_row, snapshot->count + 1);
    if (!reading->rows)
        return false;
    for (size_t i = 0; i < snapshot->count; i++)
        reading->rows[i] = row_listed(&snapshot->rows[i], weir_str(table_names[snapshot->rows[i].table]));
    reading->row_count = snapshot->count;
    for (size_t i = 0; i < reading->rules->rule_count; i++) {
        const struct rule *rule = &reading->rules->rules[i];
        size_t number = rule->line > 0 ? (size_t)rule->line - 1 : snapshot->count;
        if (number < snapshot->count && good[number] && sv_eq(given[number]->rule, rule->id))
            reading->rows[given[number] - snapshot->rows].parsed = rule;
    }
    return true;
}

static int finish_reading(struct source_reading *reading, struct snapshot *snapshot, const struct rules_report *report,
                          struct stored_row *const *given, const struct rules *last, struct weir_error *error)
{
    if (report->unreadable && !last)
        return err_set(error, WEIR_E_RULES, "%.*s", SV_FMT(report->errors[0].text));
    CLEANUP_FREE bool *good = cleanup_calloc(snapshot->count + 1, sizeof *good);
    for (size_t i = 0; good && i < reading->rules->rule_count; i++)
        good[reading->rules->rules[i].line - 1] = true;
    bool kept = good && (!last || !report->error_count || rules_keep_last_good(reading->rules, report, last) == 0) &&
                keep_problems(reading, report, given) && keep_rows(reading, snapshot, given, good);
    return kept ? 0 : no_memory(error);
}

int snapshot_read(struct snapshot *snapshot, const struct rules *last, bool all, struct source_reading *ret,
                  struct weir_error *error)
{
    struct source_reading reading = { 0 };
    CLEANUP(rules_report_done) struct rules_report report = { 0 };
    CLEANUP_FREE struct rule_row *rows = cleanup_calloc(snapshot->count + 1, sizeof *rows);
    CLEANUP_FREE struct stored_row **given = cleanup_calloc(snapshot->count + 1, sizeof *given); /* for each of `rows` */
    size_t count = 0;
    for (int disabled = 0; disabled < 2; disabled++)
        for (size_t i = 0; rows && given && i < snapshot->count; i++) {
            struct stored_row *row = &snapshot->rows[i];
            bool off = !row->enabled && !all;
            if (off != disabled || (off && count == RULES_MAX))
                continue;
            given[count] = row;
            rows[count] = row_to_read(row);
            rows[count++].disabled = off;
        }
    if (rows && given)
        reading.rules = rules_read_rows(rows, count, &report);
    reading.arena = snapshot->arena;
    snapshot->arena = (struct arena){ 0 };
    int r = reading.rules ? finish_reading(&reading, snapshot, &report, given, last, error) : no_memory(error);
    if (r < 0)
        source_reading_done(&reading);
    else
        *ret = reading;
    return r;
}
