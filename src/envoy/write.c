#include "envoy/envoy.h"
#include "envoy/wire.h"

/* Room is made for all of an answer at once. */
enum {
    STATUS_MAX = 5 * WIRE_HEAD_MAX + 7 * WIRE_NUMBER_MAX,       /* without the name of the limit */
    HEADER_MAX = 3 * WIRE_HEAD_MAX,                             /* without name and value */
    REFUSAL_MAX = WIRE_HEAD_MAX + 4 * (4 * WIRE_HEAD_MAX + 40), /* without the names of rule and limit */
};

static size_t answer_most(const struct envoy_answer *answer)
{
    size_t most = WIRE_NUMBER_MAX;
    for (size_t i = 0; i < answer->status_count; i++)
        most += STATUS_MAX + answer->statuses[i].name.len;
    for (size_t i = 0; i < answer->header_count; i++)
        most += HEADER_MAX + answer->headers[i].name.len + answer->headers[i].value.len;
    return most + (answer->refusal ? REFUSAL_MAX + answer->refusal->rule.len + answer->refusal->limit.len : 0);
}

static char *put_limit(char *to, const struct envoy_status *status)
{
    char *limit = wire_open(to, 2);
    to = limit;
    if (status->requests_per_unit)
        to = wire_put_varint(to, 1, status->requests_per_unit);
    if (status->unit)
        to = wire_put_varint(to, 2, status->unit);
    if (status->name.len)
        to = wire_put_bytes(to, 3, status->name);
    if (status->multiplier > 1) {
        char *multiplier = wire_open(to, 4);
        to = wire_close(multiplier, wire_put_varint(multiplier, 1, status->multiplier));
    }
    return wire_close(limit, to);
}

/* google.protobuf.Duration */
static char *put_duration(char *to, uint32_t field, int64_t ms)
{
    char *duration = wire_open(to, field);
    to = duration;
    if (ms >= 1000)
        to = wire_put_varint(to, 1, (uint64_t)ms / 1000);
    if (ms % 1000)
        to = wire_put_varint(to, 2, (uint64_t)(ms % 1000) * 1000000);
    return wire_close(duration, to);
}

static char *put_status(char *to, const struct envoy_status *status)
{
    char *whole = wire_open(to, 2);
    to = wire_put_varint(whole, 1, status->code);
    if (status->has_limit)
        to = put_limit(to, status);
    if (status->remaining)
        to = wire_put_varint(to, 3, status->remaining);
    if (status->reset_ms >= 0)
        to = put_duration(to, 4, status->reset_ms);
    return wire_close(whole, to);
}

static char *put_header(char *to, const struct weir_header *header)
{
    char *whole = wire_open(to, 3);
    return wire_close(whole, wire_put_bytes(wire_put_bytes(whole, 1, header->name), 2, header->value));
}

/* One entry of the map `fields` of google.protobuf.Struct; a text, or without one a number. */
static char *put_field(char *to, sv key, const sv *text, double number)
{
    char *entry = wire_open(to, 1), *value = wire_open(wire_put_bytes(entry, 1, key), 2);
    to = text ? wire_put_bytes(value, 3, *text) : wire_put_double(value, 2, number);
    return wire_close(entry, wire_close(value, to));
}

static char *put_refusal(char *to, const struct envoy_refusal *refusal)
{
    char *metadata = wire_open(to, 6);
    to = put_field(metadata, SV("rule"), &refusal->rule, 0);
    to = put_field(to, SV("limit"), &refusal->limit, 0);
    to = put_field(to, SV("descriptor"), NULL, (double)refusal->descriptor);
    if (refusal->retry_after_ms >= 0)
        to = put_field(to, SV("retry_after_ms"), NULL, (double)refusal->retry_after_ms);
    return wire_close(metadata, to);
}

void envoy_write_answer(struct buf *out, const struct envoy_answer *answer)
{
    char *to = buf_room(out, answer_most(answer));
    if (!to)
        return;
    to = wire_put_varint(to, 1, answer->code);
    for (size_t i = 0; i < answer->status_count; i++)
        to = put_status(to, &answer->statuses[i]);
    for (size_t i = 0; i < answer->header_count; i++)
        to = put_header(to, &answer->headers[i]);
    if (answer->refusal)
        to = put_refusal(to, answer->refusal);
    buf_grown(out, to);
}

void envoy_write_health(struct buf *out, enum envoy_health health)
{
    char *to = buf_room(out, WIRE_NUMBER_MAX);
    if (to)
        buf_grown(out, wire_put_varint(to, 1, health));
}
