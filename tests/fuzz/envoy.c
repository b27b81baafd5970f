/* The messages of Envoy's rate limit service, as anybody may send them. What is read is written again, as an answer. */
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "envoy/envoy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct envoy_request request;

static void check_inside(sv s, const char *bytes, size_t size)
{
    CHECK(s.len == 0 || (s.ptr >= bytes && s.ptr + s.len <= bytes + size));
}

static void check_text(sv s, const char *bytes, size_t size)
{
    check_inside(s, bytes, size);
    CHECK(utf8_valid(s));
}

static void check_request(const char *bytes, size_t size)
{
    size_t entries = 0;
    check_text(request.domain, bytes, size);
    CHECK(request.descriptor_count <= ENVOY_DESCRIPTORS_MAX);
    for (size_t i = 0; i < request.descriptor_count; i++) {
        const struct envoy_descriptor *d = &request.descriptors[i];
        uint64_t window_ms;
        enum envoy_unit unit;
        uint32_t multiplier;
        CHECK(d->first_entry == entries && d->entry_count <= ENVOY_ENTRIES_MAX);
        CHECK(envoy_hits(&request, d) <= WEIR_AMOUNT_MAX);
        entries += d->entry_count;
        if (d->limit.given && envoy_limit_window(&d->limit, &window_ms)) {
            envoy_unit_of((int64_t)window_ms, &unit, &multiplier);
            CHECK(unit != ENVOY_UNKNOWN_UNIT && multiplier > 0);
        }
    }
    CHECK(entries == request.entry_count);
    for (size_t i = 0; i < entries; i++) {
        check_text(request.entries[i].name, bytes, size);
        check_inside(request.entries[i].value, bytes, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[ENVOY_WHY_MAX] = "", *bytes = malloc(size ? size : 1);
    sv service;
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    if (envoy_read_request(&request, sv_of(bytes, size), why) == ENVOY_OK)
        check_request(bytes, size);
    else
        CHECK(why[0] != '\0' && strlen(why) < ENVOY_WHY_MAX);
    if (envoy_read_health(&service, sv_of(bytes, size), why) == ENVOY_OK)
        check_inside(service, bytes, size);
    free(bytes);
    return 0;
}
