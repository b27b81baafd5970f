#include <stdio.h>

#include "envoy/envoy.h"

/* Far more than any limit counts: 10 years of 366 days. */
static const uint64_t WINDOW_MS_MAX = UINT64_C(3660) * 24 * 3600 * 1000;

#define DAYS_MS(days) (UINT64_C(days) * 24 * 3600 * 1000)

static const uint64_t units_ms[ENVOY_UNITS] = {
    [ENVOY_SECOND] = 1000,     [ENVOY_MINUTE] = 60 * 1000,  [ENVOY_HOUR] = 3600 * 1000,  [ENVOY_DAY] = DAYS_MS(1),
    [ENVOY_WEEK] = DAYS_MS(7), [ENVOY_MONTH] = DAYS_MS(30), [ENVOY_YEAR] = DAYS_MS(365),
};

const char *const envoy_unit_names[ENVOY_UNITS] = {
    [ENVOY_UNKNOWN_UNIT] = "UNKNOWN",
    [ENVOY_SECOND] = "SECOND",
    [ENVOY_MINUTE] = "MINUTE",
    [ENVOY_HOUR] = "HOUR",
    [ENVOY_DAY] = "DAY",
    [ENVOY_MONTH] = "MONTH",
    [ENVOY_YEAR] = "YEAR",
    [ENVOY_WEEK] = "WEEK",
};

uint64_t envoy_unit_ms(int32_t unit)
{
    return unit > 0 && unit < ENVOY_UNITS ? units_ms[unit] : 0;
}

bool envoy_add_descriptor(struct envoy_request *request, char why[ENVOY_WHY_MAX])
{
    if (request->descriptor_count == ENVOY_DESCRIPTORS_MAX) {
        snprintf(why, ENVOY_WHY_MAX, "a request may have at most %d descriptors", ENVOY_DESCRIPTORS_MAX);
        return false;
    }
    request->descriptors[request->descriptor_count++] =
        (struct envoy_descriptor){ .first_entry = (uint32_t)request->entry_count };
    return true;
}

bool envoy_add_entry(struct envoy_request *request, sv key, sv value, char why[ENVOY_WHY_MAX])
{
    struct envoy_descriptor *last = &request->descriptors[request->descriptor_count - 1];
    if (last->entry_count == ENVOY_ENTRIES_MAX) {
        snprintf(why, ENVOY_WHY_MAX, "descriptor [%zu]: a descriptor may have at most %d entries",
                 request->descriptor_count - 1, ENVOY_ENTRIES_MAX);
        return false;
    }
    last->entry_count++;
    request->entries[request->entry_count++] = (struct weir_header){ key, value };
    return true;
}

uint64_t envoy_hits(const struct envoy_request *request, const struct envoy_descriptor *descriptor)
{
    uint64_t hits = descriptor->has_hits ? descriptor->hits : request->hits ? request->hits : 1;
    return hits < WEIR_AMOUNT_MAX ? hits : WEIR_AMOUNT_MAX;
}

bool envoy_limit_window(const struct envoy_limit *limit, uint64_t *ret_ms)
{
    uint64_t unit_ms = envoy_unit_ms(limit->unit), multiplier = limit->has_multiplier ? limit->multiplier : 1;
    if (unit_ms == 0 || multiplier == 0 || multiplier > WINDOW_MS_MAX / unit_ms)
        return false;
    *ret_ms = unit_ms * multiplier;
    return true;
}

/* A natural month has 28 to 31 days, a year 365 or 366; and some hours more or less where clocks change. */
static bool is_between(int64_t window_ms, uint64_t from_ms, uint64_t to_ms)
{
    const uint64_t shift_ms = DAYS_MS(1) / 8;
    return (uint64_t)window_ms + shift_ms >= from_ms && (uint64_t)window_ms <= to_ms + shift_ms;
}

void envoy_unit_of(int64_t window_ms, enum envoy_unit *ret, uint32_t *ret_multiplier)
{
    static const enum envoy_unit longest_first[] = { ENVOY_YEAR, ENVOY_MONTH,  ENVOY_WEEK,  ENVOY_DAY,
                                                     ENVOY_HOUR, ENVOY_MINUTE, ENVOY_SECOND };
    *ret = ENVOY_UNKNOWN_UNIT;
    *ret_multiplier = 1;
    if (window_ms <= 0)
        return;
    if (is_between(window_ms, DAYS_MS(28), DAYS_MS(31)) || is_between(window_ms, DAYS_MS(365), DAYS_MS(366))) {
        *ret = (uint64_t)window_ms < DAYS_MS(100) ? ENVOY_MONTH : ENVOY_YEAR;
        return;
    }
    for (size_t i = 0; i < sizeof longest_first / sizeof longest_first[0]; i++) {
        uint64_t unit_ms = units_ms[longest_first[i]], count = (uint64_t)window_ms / unit_ms;
        if (count > 0 && (uint64_t)window_ms % unit_ms == 0 && count <= UINT32_MAX) {
            *ret = longest_first[i];
            *ret_multiplier = (uint32_t)count;
            return;
        }
    }
}
