/* Values of options: read from text, within their bounds, and bounds written as text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/config.h"
#include "serve/listen.h"

struct unit {
    const char *name;
    uint64_t size;
};

/* From the smallest to the largest. */
static const struct unit times[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { 0 } };
static const struct unit sizes[] = { { "", 1 }, { "k", 1 << 10 }, { "m", 1 << 20 }, { "g", 1 << 30 }, { 0 } };
static const struct unit counts[] = { { "", 1 }, { "k", 1000 }, { "m", 1000000 }, { "g", 1000000000 }, { 0 } };
static const struct unit numbers[] = { { "", 1 }, { 0 } };

static const struct unit *units_of(enum config_kind kind)
{
    switch (kind) {
    case CONFIG_TIME:
        return times;
    case CONFIG_SIZE:
        return sizes;
    case CONFIG_COUNT:
        return counts;
    case CONFIG_NUMBER:
        return numbers;
    default:
        return NULL;
    }
}

static bool read_amount(sv text, const struct unit *unit, uint64_t *ret)
{
    size_t digits = 0;
    uint64_t n;
    while (digits < text.len && ascii_digit(text.ptr[digits]))
        digits++;
    while (unit->name && !sv_eq_nocase(sv_from(text, digits), weir_str(unit->name)))
        unit++;
    if (!unit->name || !sv_u64(sv_of(text.ptr, digits), UINT64_MAX / unit->size, &n))
        return false;
    *ret = n * unit->size;
    return true;
}

/* In the largest unit that it is a whole number of. */
static void amount_text(uint64_t amount, const struct unit *units, char out[40])
{
    const struct unit *best = units;
    for (const struct unit *unit = units; unit->name; unit++)
        if (amount >= unit->size && amount % unit->size == 0)
            best = unit;
    snprintf(out, 40, "%" PRIu64 "%s", amount / best->size, best->name);
}

void config_bounds(const struct config_option *option, char out[CONFIG_ALLOWED_MAX])
{
    const struct unit *units = units_of(option->kind);
    char min[40], max[40];
    out[0] = '\0';
    if (!units)
        return;
    amount_text(option->min, units, min);
    amount_text(option->max, units, max);
    snprintf(out, CONFIG_ALLOWED_MAX, "%s to %s", min, max);
}

static const char *store_amount(const struct config_option *option, sv value, void *place, char scratch[CONFIG_ALLOWED_MAX])
{
    uint64_t n;
    if (!read_amount(value, units_of(option->kind), &n) || n < option->min || n > option->max) {
        const char *note = option->kind == CONFIG_TIME     ? ", with ms, s, m or h behind the number"
                           : option->kind == CONFIG_NUMBER ? ""
                                                           : "; k, m or g may stand behind the number";
        config_bounds(option, scratch);
        size_t len = strlen(scratch);
        snprintf(scratch + len, CONFIG_ALLOWED_MAX - len, "%s", note);
        return scratch;
    }
    if (option->kind == CONFIG_NUMBER || option->kind == CONFIG_TIME)
        *(unsigned *)place = (unsigned)n;
    else
        *(uint64_t *)place = n;
    return NULL;
}

static bool is_token(sv text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = ascii_lower(text.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !ascii_digit(c) && (!c || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return text.len > 0;
}

static const char *store_text(const struct config_option *option, sv value, char **place, char scratch[CONFIG_ALLOWED_MAX])
{
    if (value.len < option->min || value.len > option->max) {
        snprintf(scratch, CONFIG_ALLOWED_MAX, "%" PRIu64 " to %" PRIu64 " bytes", option->min, option->max);
        return scratch;
    }
    if (option->kind == CONFIG_HEADER && !is_token(value))
        return "the name of a header, such as X-User-Id";
    char *copy = strndup(value.ptr, value.len);
    if (!copy)
        return "something that fits into memory";
    if (option->kind == CONFIG_ADDRESS && !listen_is_address(copy)) {
        free(copy);
        return LISTEN_ALLOWED;
    }
    free(*place);
    *place = copy;
    return NULL;
}

static const char *store_choice(const struct config_option *option, sv value, int *place)
{
    sv rest = weir_str(option->argument);
    for (int i = 0; rest.len > 0; i++)
        if (sv_eq(sv_cut(&rest, '|'), value)) {
            *place = i;
            return NULL;
        }
    return option->argument;
}

const char *config_store(const struct config_option *option, sv value, struct config *config,
                         char scratch[CONFIG_ALLOWED_MAX])
{
    void *place = (char *)config + option->offset;
    if (units_of(option->kind))
        return store_amount(option, value, place, scratch);
    if (option->kind == CONFIG_CHOICE)
        return store_choice(option, value, place);
    return store_text(option, value, place, scratch);
}
