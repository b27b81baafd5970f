#include "envoy/envoy.h"
#include "envoy/wire.h"

enum {
    STATUS_MAX = 200, /* bytes of one status: a name of 50, and numbers */
    METADATA_MAX = 600,
};

static void put_limit(struct buf *out, const struct envoy_status *status)
{
    char room[STATUS_MAX], wrapped[16];
    struct buf limit, multiplier;
    buf_over(&limit, room, sizeof room);
    if (status->requests_per_unit)
        wire_put_varint(&limit, 1, status->requests_per_unit);
    if (status->unit)
        wire_put_varint(&limit, 2, status->unit);
    if (status->name.len)
        wire_put_bytes(&limit, 3, status->name);
    if (status->multiplier > 1) {
        buf_over(&multiplier, wrapped, sizeof wrapped);
        wire_put_varint(&multiplier, 1, status->multiplier);
        wire_put_bytes(&limit, 4, buf_sv(&multiplier));
    }
    out->failed |= limit.failed;
    wire_put_bytes(out, 2, buf_sv(&limit));
}

/* google.protobuf.Duration */
static void put_duration(struct buf *out, uint32_t field, int64_t ms)
{
    char room[32];
    struct buf duration;
    buf_over(&duration, room, sizeof room);
    if (ms >= 1000)
        wire_put_varint(&duration, 1, (uint64_t)ms / 1000);
    if (ms % 1000)
        wire_put_varint(&duration, 2, (uint64_t)(ms % 1000) * 1000000);
    wire_put_bytes(out, field, buf_sv(&duration));
}

static void put_status(struct buf *out, const struct envoy_status *status)
{
    char room[STATUS_MAX + 64];
    struct buf text;
    buf_over(&text, room, sizeof room);
    wire_put_varint(&text, 1, status->code);
    if (status->has_limit)
        put_limit(&text, status);
    if (status->remaining)
        wire_put_varint(&text, 3, status->remaining);
    if (status->reset_ms >= 0)
        put_duration(&text, 4, status->reset_ms);
    out->failed |= text.failed;
    wire_put_bytes(out, 2, buf_sv(&text));
}

static void put_header(struct buf *out, const struct weir_header *header)
{
    char room[STATUS_MAX];
    struct buf text;
    buf_over(&text, room, sizeof room);
    wire_put_bytes(&text, 1, header->name);
    wire_put_bytes(&text, 2, header->value);
    out->failed |= text.failed;
    wire_put_bytes(out, 3, buf_sv(&text));
}

/* One entry of the map `fields` of google.protobuf.Struct. */
static void put_field(struct buf *out, sv key, const struct buf *value)
{
    char room[METADATA_MAX];
    struct buf entry;
    buf_over(&entry, room, sizeof room);
    wire_put_bytes(&entry, 1, key);
    wire_put_bytes(&entry, 2, buf_sv(value));
    out->failed |= entry.failed;
    wire_put_bytes(out, 1, buf_sv(&entry));
}

static void put_text_field(struct buf *out, sv key, sv text)
{
    char room[METADATA_MAX / 2];
    struct buf value;
    buf_over(&value, room, sizeof room);
    wire_put_bytes(&value, 3, text);
    out->failed |= value.failed;
    put_field(out, key, &value);
}

static void put_number_field(struct buf *out, sv key, double number)
{
    char room[16];
    struct buf value;
    buf_over(&value, room, sizeof room);
    wire_put_double(&value, 2, number);
    put_field(out, key, &value);
}

static void put_refusal(struct buf *out, const struct envoy_refusal *refusal)
{
    char room[METADATA_MAX];
    struct buf metadata;
    buf_over(&metadata, room, sizeof room);
    put_text_field(&metadata, SV("rule"), refusal->rule);
    put_text_field(&metadata, SV("limit"), refusal->limit);
    put_number_field(&metadata, SV("descriptor"), (double)refusal->descriptor);
    if (refusal->retry_after_ms >= 0)
        put_number_field(&metadata, SV("retry_after_ms"), (double)refusal->retry_after_ms);
    out->failed |= metadata.failed;
    wire_put_bytes(out, 6, buf_sv(&metadata));
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
