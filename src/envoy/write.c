#include "envoy/envoy.h"
#include "envoy/wire.h"

static void put_limit(struct buf *out, const struct envoy_status *status)
{
    size_t limit = wire_open(out, 2);
    if (status->requests_per_unit)
        wire_put_varint(out, 1, status->requests_per_unit);
    if (status->unit)
        wire_put_varint(out, 2, status->unit);
    if (status->name.len)
        wire_put_bytes(out, 3, status->name);
    if (status->multiplier > 1) {
        size_t multiplier = wire_open(out, 4);
        wire_put_varint(out, 1, status->multiplier);
        wire_close(out, multiplier);
    }
    wire_close(out, limit);
}

/* google.protobuf.Duration */
static void put_duration(struct buf *out, uint32_t field, int64_t ms)
{
    size_t duration = wire_open(out, field);
    if (ms >= 1000)
        wire_put_varint(out, 1, (uint64_t)ms / 1000);
    if (ms % 1000)
        wire_put_varint(out, 2, (uint64_t)(ms % 1000) * 1000000);
    wire_close(out, duration);
}

static void put_status(struct buf *out, const struct envoy_status *status)
{
    size_t whole = wire_open(out, 2);
    wire_put_varint(out, 1, status->code);
    if (status->has_limit)
        put_limit(out, status);
    if (status->remaining)
        wire_put_varint(out, 3, status->remaining);
    if (status->reset_ms >= 0)
        put_duration(out, 4, status->reset_ms);
    wire_close(out, whole);
}

static void put_header(struct buf *out, const struct weir_header *header)
{
    size_t whole = wire_open(out, 3);
    wire_put_bytes(out, 1, header->name);
    wire_put_bytes(out, 2, header->value);
    wire_close(out, whole);
}

/* One entry of the map `fields` of google.protobuf.Struct; a text, or without one a number. */
static void put_field(struct buf *out, sv key, const sv *text, double number)
{
    size_t entry = wire_open(out, 1);
    wire_put_bytes(out, 1, key);
    size_t value = wire_open(out, 2);
    if (text)
        wire_put_bytes(out, 3, *text);
    else
        wire_put_double(out, 2, number);
    wire_close(out, value);
    wire_close(out, entry);
}

static void put_refusal(struct buf *out, const struct envoy_refusal *refusal)
{
    size_t metadata = wire_open(out, 6);
    put_field(out, SV("rule"), &refusal->rule, 0);
    put_field(out, SV("limit"), &refusal->limit, 0);
    put_field(out, SV("descriptor"), NULL, (double)refusal->descriptor);
    if (refusal->retry_after_ms >= 0)
        put_field(out, SV("retry_after_ms"), NULL, (double)refusal->retry_after_ms);
    wire_close(out, metadata);
}

void envoy_write_answer(struct buf *out, const struct envoy_answer *answer)
{
    wire_put_varint(out, 1, answer->code);
    for (size_t i = 0; i < answer->status_count; i++)
        put_status(out, &answer->statuses[i]);
    for (size_t i = 0; i < answer->header_count; i++)
        put_header(out, &answer->headers[i]);
    if (answer->refusal)
        put_refusal(out, answer->refusal);
}

void envoy_write_health(struct buf *out, enum envoy_health health)
{
    wire_put_varint(out, 1, health);
}
