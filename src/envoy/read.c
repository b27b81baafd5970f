#include <stdio.h>

#include "base/format.h"
#include "base/utf8.h"
#include "envoy/envoy.h"
#include "envoy/wire.h"

struct reader {
    struct envoy_request *request;
    char *why;
    enum envoy_error error;
};

static __attribute__((format(printf, 3, 4))) bool fail(struct reader *r, enum envoy_error error, const char *format, ...)
{
    char text[ENVOY_WHY_MAX];
    FORMAT_ARGUMENTS(text, format);
    memcpy(r->why, text, sizeof text);
    r->error = error;
    return false;
}

/* The type of a field of a message, and where it goes. */
static bool wants(struct reader *r, const struct wire_field *field, enum wire_type type, const char *name)
{
    return field->type == type || fail(r, ENVOY_REJECTED, "field %s has the wrong type", name);
}

/* A value often comes from a client's header, which may have any bytes. If they made the call fail, Envoy would let the
 * request pass. */
static bool take_bytes(struct reader *r, const struct wire_field *field, const char *name, sv *ret)
{
    if (!wants(r, field, WIRE_BYTES, name))
        return false;
    *ret = field->bytes;
    return true;
}

static bool take_text(struct reader *r, const struct wire_field *field, const char *name, sv *ret)
{
    if (!take_bytes(r, field, name, ret))
        return false;
    return utf8_valid(*ret) || fail(r, ENVOY_MALFORMED, "field %s is not UTF-8", name);
}

static __attribute__((noinline)) bool fail_to_read(struct reader *r, enum wire_result result, const char *message)
{
    return result == WIRE_GROUP ? fail(r, ENVOY_REJECTED, "protobuf groups are not supported (%s)", message)
                                : fail(r, ENVOY_MALFORMED, "not a valid protobuf message (%s)", message);
}

/* True: a field was read. False: the end, or an error. */
static inline __attribute__((always_inline)) bool next(struct reader *r, struct wire_reader *at, struct wire_field *ret,
                                                       const char *message)
{
    enum wire_result result = wire_next(at, ret);
    return result == WIRE_FIELD || (result != WIRE_END && fail_to_read(r, result, message));
}

/* google.protobuf.UInt32Value or UInt64Value: one that comes later merges with it. */
static bool take_wrapped(struct reader *r, const struct wire_field *field, const char *name, uint64_t *value)
{
    struct wire_field inner;
    if (!wants(r, field, WIRE_BYTES, name))
        return false;
    struct wire_reader at = wire_begin(field->bytes);
    while (next(r, &at, &inner, name)) {
        if (inner.number != 1)
            continue;
        if (!wants(r, &inner, WIRE_VARINT, name))
            return false;
        *value = inner.varint;
    }
    return r->error == ENVOY_OK;
}

static bool take_limit(struct reader *r, const struct wire_field *field, struct envoy_limit *limit)
{
    static const char name[] = "descriptors.limit";
    struct wire_field inner;
    uint64_t multiplier = limit->has_multiplier ? limit->multiplier : 0;
    if (!wants(r, field, WIRE_BYTES, name))
        return false;
    limit->given = true;
    struct wire_reader at = wire_begin(field->bytes);
    while (next(r, &at, &inner, name)) {
        if (inner.number > 3)
            continue;
        if (!wants(r, &inner, inner.number == 3 ? WIRE_BYTES : WIRE_VARINT, name))
            return false;
        if (inner.number == 1)
            limit->requests_per_unit = (uint32_t)inner.varint;
        else if (inner.number == 2)
            limit->unit = (int32_t)(uint32_t)inner.varint;
        else {
            if (!take_wrapped(r, &inner, "descriptors.limit.unit_multiplier", &multiplier))
                return false;
            limit->has_multiplier = true;
            limit->multiplier = (uint32_t)multiplier;
        }
    }
    return r->error == ENVOY_OK;
}

/* An entry as most are written: key, value and nothing else, each shorter than 128 bytes. */
static bool read_usual_entry(sv bytes, sv *key, sv *value)
{
    const unsigned char *p = (const unsigned char *)bytes.ptr;
    if (bytes.len < 4 || p[0] != (1 << 3 | WIRE_BYTES) || p[1] > bytes.len - 4 || p[1] >= 0x80)
        return false;
    *key = sv_of(bytes.ptr + 2, p[1]);
    *value = sv_of(key->ptr + key->len + 2, bytes.len - 4 - key->len);
    p += 2 + key->len;
    return p[0] == (2 << 3 | WIRE_BYTES) && p[1] < 0x80 && p[1] == value->len;
}

/* Any other. */
static bool read_entry(struct reader *r, sv bytes, sv *key, sv *value)
{
    struct wire_field inner;
    struct wire_reader at = wire_begin(bytes);
    *key = *value = SV("");
    while (next(r, &at, &inner, "descriptors.entries")) {
        if (inner.number == 1 && !take_text(r, &inner, "descriptors.entries.key", key))
            return false;
        if (inner.number == 2 && !take_bytes(r, &inner, "descriptors.entries.value", value))
            return false;
    }
    return r->error == ENVOY_OK;
}

static bool take_entry(struct reader *r, const struct wire_field *field)
{
    sv key, value;
    if (!wants(r, field, WIRE_BYTES, "descriptors.entries"))
        return false;
    bool usual = read_usual_entry(field->bytes, &key, &value) && utf8_valid(key);
    if (!usual && !read_entry(r, field->bytes, &key, &value))
        return false;
    if (!envoy_add_entry(r->request, key, value, r->why))
        r->error = ENVOY_TOO_MANY;
    return r->error == ENVOY_OK;
}

static bool take_descriptor_field(struct reader *r, const struct wire_field *field, struct envoy_descriptor *to)
{
    switch (field->number) {
    case 1:
        return take_entry(r, field);
    case 2:
        return take_limit(r, field, &to->limit);
    case 3:
        to->has_hits = true;
        return take_wrapped(r, field, "descriptors.hits_addend", &to->hits);
    case 4:
        to->negative = field->varint != 0;
        return wants(r, field, WIRE_VARINT, "descriptors.is_negative_hits");
    default:
        return true;
    }
}

static bool take_descriptor(struct reader *r, const struct wire_field *field)
{
    struct envoy_request *request = r->request;
    struct wire_field inner;
    if (!wants(r, field, WIRE_BYTES, "descriptors"))
        return false;
    if (!envoy_add_descriptor(request, r->why)) {
        r->error = ENVOY_TOO_MANY;
        return false;
    }
    struct envoy_descriptor *to = &request->descriptors[request->descriptor_count - 1];
    struct wire_reader at = wire_begin(field->bytes);
    while (next(r, &at, &inner, "descriptors"))
        if (!take_descriptor_field(r, &inner, to))
            return false;
    return r->error == ENVOY_OK;
}

static bool take_request_field(struct reader *r, const struct wire_field *field)
{
    switch (field->number) {
    case 1:
        return take_text(r, field, "domain", &r->request->domain);
    case 2:
        return take_descriptor(r, field);
    case 3:
        r->request->hits = (uint32_t)field->varint;
        return wants(r, field, WIRE_VARINT, "hits_addend");
    default:
        return true;
    }
}

enum envoy_error envoy_read_request(struct envoy_request *ret, sv bytes, char why[ENVOY_WHY_MAX])
{
    struct reader r = { .request = ret, .why = why };
    struct wire_field field;
    struct wire_reader at = wire_begin(bytes);
    ret->domain = SV("");
    ret->hits = 0;
    ret->descriptor_count = ret->entry_count = 0;
    while (next(&r, &at, &field, "RateLimitRequest"))
        if (!take_request_field(&r, &field))
            break;
    return r.error;
}

enum envoy_error envoy_read_health(sv *ret_service, sv bytes, char why[ENVOY_WHY_MAX])
{
    struct reader r = { .why = why };
    struct wire_field field;
    struct wire_reader at = wire_begin(bytes);
    *ret_service = SV("");
    while (next(&r, &at, &field, "HealthCheckRequest"))
        if (field.number == 1 && !take_text(&r, &field, "service", ret_service))
            break;
    return r.error;
}
