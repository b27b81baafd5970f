#include "base/amount.h"

#include <inttypes.h>
#include <stdio.h>

struct unit {
    const char *name;
    uint64_t size;
};

/* From the smallest to the largest. */
static const struct unit numbers[] = { { "", 1 }, { 0 } };
static const struct unit counts[] = { { "", 1 }, { "k", 1000 }, { "m", 1000000 }, { "g", 1000000000 }, { 0 } };
static const struct unit sizes[] = { { "", 1 }, { "k", 1 << 10 }, { "m", 1 << 20 }, { "g", 1 << 30 }, { 0 } };
static const struct unit times[] = {
    { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 }, { 0 }
};
static const struct unit *const units[] = {
    [AMOUNT_NUMBER] = numbers,
    [AMOUNT_COUNT] = counts,
    [AMOUNT_SIZE] = sizes,
    [AMOUNT_TIME] = times,
};

/* How much the unit is; 0: there is no such unit. Those of time are in lower case only: elsewhere M is a month. */
static uint64_t unit_size(sv name, const struct amount_range *range)
{
    bool time = range->kind == AMOUNT_TIME;
    if (time && name.len == 0)
        return range->bare;
    for (const struct unit *unit = units[range->kind]; unit->name; unit++)
        if (time ? sv_eq(sv_trim(name), weir_str(unit->name)) : sv_eq_nocase(name, weir_str(unit->name)))
            return unit->size;
    return 0;
}

enum amount_found amount_read(sv text, const struct amount_range *range, uint64_t *ret)
{
    size_t digits = 0;
    uint64_t n;
    while (digits < text.len && ascii_digit(text.ptr[digits]))
        digits++;
    uint64_t size = digits > 0 ? unit_size(sv_from(text, digits), range) : 0;
    bool octal = range->kind == AMOUNT_TIME && digits > 1 && text.ptr[0] == '0'; /* to some readers of YAML */
    if (size == 0 || octal)
        return AMOUNT_INVALID;
    if (!sv_u64(sv_of(text.ptr, digits), UINT64_MAX / size, &n) || n * size < range->min || n * size > range->max)
        return AMOUNT_OUT_OF_RANGE;
    *ret = n * size;
    return AMOUNT_GOOD;
}

/* In the largest unit that it is a whole number of. */
static int amount_text(uint64_t amount, enum amount_kind kind, char *out, size_t size)
{
    const struct unit *best = units[kind];
    for (const struct unit *unit = units[kind]; unit->name; unit++)
        if (amount >= unit->size && amount % unit->size == 0)
            best = unit;
    return snprintf(out, size, "%" PRIu64 "%s", amount / best->size, best->name);
}

void amount_range_text(const struct amount_range *range, char out[AMOUNT_ALLOWED_MAX])
{
    char min[40], max[40];
    amount_text(range->min, range->kind, min, sizeof min);
    amount_text(range->max, range->kind, max, sizeof max);
    snprintf(out, AMOUNT_ALLOWED_MAX, "%s to %s", min, max);
}

void amount_allowed_text(const struct amount_range *range, char out[AMOUNT_ALLOWED_MAX])
{
    static const char *const notes[] = {
        [AMOUNT_NUMBER] = "",
        [AMOUNT_COUNT] = "; k, m or g may follow the number",
        [AMOUNT_SIZE] = "; k, m or g may follow the number",
        [AMOUNT_TIME] = ", with ms, s, m, h or d after the number",
    };
    amount_range_text(range, out);
    size_t len = strlen(out);
    snprintf(out + len, AMOUNT_ALLOWED_MAX - len, "%s", notes[range->kind]);
}

bool choice_read(sv text, const char *words, int *ret)
{
    sv rest = weir_str(words);
    for (int i = 0; rest.len > 0; i++)
        if (sv_eq(sv_cut(&rest, '|'), text)) {
            *ret = i;
            return true;
        }
    return false;
}
