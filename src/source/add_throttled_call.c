/* Throttling a call: its row of THROTTLED_CALLS, found or made. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "source/backend.h"

struct throttle {
    sv call;
    uint32_t max;
    int64_t per_us, expires_us;
    char *ret_id;
};

/* The row of this call, however both are spelt. *ret stays as it is if there is none. */
static int find_call(struct plan *plan, const struct stored *row, const struct stored **ret)
{
    struct snapshot copy = { 0 };
    struct source_reading reading = { 0 };
    struct rules *wanted = plan_rule(plan, row);
    if (!wanted)
        return plan->error->code;
    int r = snapshot_copy(plan->snapshot, 0, &copy, plan->error);
    if (r == 0)
        r = snapshot_read(&copy, NULL, true, &reading, plan->error);
    for (size_t i = 0; r == 0 && i < plan->snapshot->count && !*ret; i++) {
        const struct stored *other = &plan->snapshot->rows[i];
        const struct rule *rule = reading.rows[i].parsed;
        bool same = !other->call.call.null && sv_eq(sv_trim(other->call.call.text), row->call.call.text);
        if (other->table == TABLE_CALLS &&
            (same || (rule && call_same(&wanted->rules[0], rule, reading.rules->settings.ignore_case))))
            *ret = other;
    }
    rules_free(wanted);
    source_reading_done(&reading);
    snapshot_done(&copy);
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

static int add_old_key(sv key, void *data, struct weir_error *error)
{
    return add_number(data, key, error);
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The one behind the highest; where that is the last one, the lowest that never was. 0: there is none. */
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

/* Never one that was used before: counts and the history hang on it. */
static int next_call_id(struct plan *plan, sv *ret)
{
    struct call_numbers used = { 0 };
    int r = 0;
    for (size_t i = 0; i < plan->snapshot->count && r == 0; i++) {
        const struct stored *row = &plan->snapshot->rows[i];
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

static struct sql_value number(struct plan *plan, int64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    return (struct sql_value){ .text = plan_copy(plan, sv_of(text, (size_t)n)) };
}

static int make_throttle(struct plan *plan, void *data)
{
    const struct throttle *t = data;
    const struct stored *old = NULL;
    struct stored row = { .table = TABLE_CALLS, .key = SV("0"), .enabled = true };
    if (t->per_us % US_PER_S != 0 || t->per_us <= 0)
        return err_set(plan->error, WEIR_E_INVALID, "THROTTLED_CALLS counts in whole seconds; add a whole rule for less");
    int64_t ms = t->expires_us / US_PER_MS;
    struct sql_value never = { .text = SV(""), .null = true };
    row.call = (struct call_columns){ { .text = plan_copy(plan, sv_trim(t->call)) },
                                      number(plan, t->max),
                                      number(plan, t->per_us / US_PER_S),
                                      t->expires_us == RULE_NEVER_EXPIRES ? never : number(plan, ms / 1000) };
    int r = call_bounds(sv_trim(t->call), t->max, plan->error);
    if (r == 0)
        r = call_read(&row, plan->arena, plan->error);
    if (r == 0)
        r = find_call(plan, &row, &old);
    if (r == 0 && old) {
        row.key = old->key;
        row.call.call = old->call.call;
    } else if (r == 0) {
        r = next_call_id(plan, &row.key);
    }
    if (r == 0)
        r = call_read(&row, plan->arena, plan->error);
    snprintf(t->ret_id, 64, "%.*s", SV_FMT(row.rule));
    struct stored *kept = r == 0 ? plan_row(plan, row) : NULL;
    if (!kept || (old && old->fault.len == 0 && sv_eq(old->text, kept->text)))
        return r < 0 || kept ? r : WEIR_E_NO_MEMORY;
    return plan_add(plan, old ? "change" : "add", old, kept);
}

int source_throttle(struct source *source, sv call, uint32_t max, int64_t per_us, int64_t expires_us,
                    struct source_author author, char ret_id[64], struct weir_error *error)
{
    char id[64] = "";
    struct throttle throttle = { call, max, per_us, expires_us, id };
    if (source->address.kind == SOURCE_FILE)
        return err_set(error, WEIR_E_INVALID, "%s: THROTTLED_CALLS is a table of a database; add a rule to a file instead",
                       source->address.shown);
    int r = source_change(source, make_throttle, &throttle, author, error);
    if (r == 0)
        memcpy(ret_id, id, sizeof id);
    return r;
}
