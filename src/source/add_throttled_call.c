/* Throttling a call: its row of THROTTLED_CALLS, found or made. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "source/backend.h"

struct throttle {
    sv call;
    uint64_t max;
    int64_t per_us, expires_us;
    char *ret_id;
};

int call_find(struct plan *plan, const struct stored_row *row, const struct stored_row **ret)
{
    CLEANUP(snapshot_done) struct snapshot copy = { 0 };
    CLEANUP(source_reading_done) struct source_reading reading = { 0 };
    CLEANUP(rules_freep) struct rules *wanted = plan_rule(plan, row);
    if (!wanted)
        return plan->error->code;
    int r = snapshot_copy(plan->snapshot, 0, &copy, plan->error);
    if (r == 0)
        r = snapshot_read(&copy, &(struct snapshot_terms){ .rows = true, .all = true }, &reading, plan->error);
    for (size_t i = 0; r == 0 && i < plan->snapshot->count && !*ret; i++) {
        const struct stored_row *other = &plan->snapshot->rows[i];
        const struct rule *rule = reading.rows[i].parsed;
        bool same = !other->call[CALL_PATH].null && sv_eq(sv_trim(other->call[CALL_PATH].text), row->call[CALL_PATH].text);
        if (other->table == TABLE_CALLS &&
            (same || (rule && call_same(wanted->rules[0], rule, reading.rules->settings.ignore_case))))
            *ret = other;
    }
    return r;
}

/* The numbers of calls, of all times. */
struct call_numbers {
    uint32_t *numbers;
    size_t count, cap;
};

/* `key` is a number, or the id of a whole rule that looks like that of a call. */
static int add_number(struct call_numbers *used, sv key, struct weir_error *error)
{
    uint64_t number;
    if (sv_starts(key, SV(CALL_ID_PREFIX)))
        key = sv_from(key, sizeof CALL_ID_PREFIX - 1);
    if (!sv_u64(key, INT32_MAX, &number))
        return 0;
    if (used->count == used->cap) {
        size_t cap = used->cap ? used->cap * 2 : 256;
        uint32_t *numbers = realloc(used->numbers, cap * sizeof *numbers);
        if (!numbers)
            return no_memory(error);
        used->numbers = numbers;
        used->cap = cap;
    }
    used->numbers[used->count++] = (uint32_t)number;
    return 0;
}

static int add_old_key(const struct sql_value *values, size_t count, void *data, struct weir_error *error)
{
    return count == 1 && !values[0].null ? add_number(data, values[0].text, error) : 0;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Returns the number after the highest. If the highest is the last one, returns the lowest number that was never used, or 0
 * if there is none. */
static uint32_t unused_number(struct call_numbers *used)
{
    if (used->count == 0)
        return 1;
    qsort(used->numbers, used->count, sizeof *used->numbers, compare_numbers);
    if (used->numbers[used->count - 1] < INT32_MAX)
        return used->numbers[used->count - 1] + 1;
    uint32_t lowest = 1;
    for (size_t i = 0; i < used->count && used->numbers[i] <= lowest; i++)
        lowest = used->numbers[i] + 1;
    return lowest <= INT32_MAX ? lowest : 0;
}

/* Never one that was used before: counts and the history belong to it. */
static int next_call_id(struct plan *plan, sv *ret)
{
    struct call_numbers used = { 0 };
    int r = 0;
    for (size_t i = 0; i < plan->snapshot->count && r == 0; i++) {
        const struct stored_row *row = &plan->snapshot->rows[i];
        if (row->table == TABLE_CALLS || (row->table == TABLE_RULES && sv_starts(row->key, SV(CALL_ID_PREFIX))))
            r = add_number(&used, row->key, plan->error);
    }
    if (r == 0)
        r = history_call_keys(plan->source, add_old_key, &used, plan->error);
    uint32_t number = r == 0 ? unused_number(&used) : 0;
    free(used.numbers);
    if (r < 0)
        return r;
    if (number == 0)
        return err_set(plan->error, WEIR_E_INVALID,
                       "THROTTLED_CALLS: each THROTTLE_ID up to %d was used before; add a whole rule instead", INT32_MAX);
    char text[16];
    int n = snprintf(text, sizeof text, "%u", (unsigned)number);
    *ret = plan_copy(plan, sv_of(text, (size_t)n));
    return ret->ptr ? 0 : WEIR_E_NO_MEMORY;
}

static int make_throttle(struct plan *plan, void *data)
{
    const struct throttle *t = data;
    const struct stored_row *old = NULL;
    struct stored_row row = { .table = TABLE_CALLS, .key = SV("0"), .enabled = true };
    if (t->per_us % US_PER_S != 0 || t->per_us <= 0)
        return err_set(plan->error, WEIR_E_INVALID, "THROTTLED_CALLS counts in whole seconds; add a whole rule for less");
    struct sql_value path = { .text = plan_copy(plan, sv_trim(t->call)) };
    bool ends = t->expires_us != RULE_NEVER_EXPIRES;
    call_write(&row, path, t->max, t->per_us, ends ? t->expires_us - t->expires_us % US_PER_S : t->expires_us, plan->arena);
    int r = call_bounds(sv_trim(t->call), t->max, plan->error);
    if (r == 0)
        r = call_read(&row, plan->arena, plan->error);
    if (r == 0)
        r = call_find(plan, &row, &old);
    if (r == 0 && old) {
        row.key = old->key;
        row.call[CALL_PATH] = old->call[CALL_PATH];
    } else if (r == 0) {
        r = next_call_id(plan, &row.key);
    }
    if (r == 0)
        r = call_read(&row, plan->arena, plan->error);
    snprintf(t->ret_id, 64, "%.*s", SV_FMT(row.rule));
    if (r < 0 || (old && old->fault.len == 0 && sv_eq(old->text, row.text)))
        return r;
    return plan_put(plan, old ? "change" : "add", old, row);
}

int source_throttle(struct source *source, sv call, uint64_t max, int64_t per_us, int64_t expires_us,
                    struct source_author author, char ret_id[64], struct weir_error *error)
{
    char id[64] = "";
    struct throttle throttle = { call, max, per_us, expires_us, id };
    if (in_files(source))
        return err_set(error, WEIR_E_INVALID, "%s: THROTTLED_CALLS is a table of a database; add a rule to a file instead",
                       source->address.shown);
    int r = source_change(source, make_throttle, &throttle, author, error);
    if (r == 0)
        memcpy(ret_id, id, sizeof id);
    return r;
}
