/* The wire format of protobuf. */
#ifndef ENVOY_WIRE_H
#define ENVOY_WIRE_H

#include "base/sv.h"

enum wire_type { WIRE_VARINT = 0, WIRE_I64 = 1, WIRE_BYTES = 2, WIRE_I32 = 5 };

struct wire_reader {
    const unsigned char *at, *end;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t varint; /* of WIRE_VARINT */
    sv bytes;        /* of WIRE_BYTES */
};

static inline struct wire_reader wire_begin(sv bytes)
{
    const unsigned char *at = (const unsigned char *)bytes.ptr;
    return (struct wire_reader){ at, bytes.len ? at + bytes.len : at };
}

enum wire_result { WIRE_END, WIRE_FIELD, WIRE_MALFORMED, WIRE_GROUP };
enum wire_result wire_next_slowly(struct wire_reader *r, struct wire_field *ret);

/* Most fields are bytes, with a tag and a length of one byte each. */
static inline enum wire_result wire_next(struct wire_reader *r, struct wire_field *ret)
{
    size_t left = (size_t)(r->end - r->at);
    if (left < 2 || r->at[0] >= 0x80 || (r->at[0] & 7) != WIRE_BYTES || r->at[0] >> 3 == 0 || r->at[1] >= 0x80 ||
        r->at[1] > left - 2)
        return wire_next_slowly(r, ret);
    *ret = (struct wire_field){ r->at[0] >> 3, WIRE_BYTES, 0, { (const char *)r->at + 2, r->at[1] } };
    r->at += 2 + ret->bytes.len;
    return WIRE_FIELD;
}

/* ---- writing: each writes where there is room for sure, and returns the end ---- */

enum {
    WIRE_HEAD_MAX = 10,   /* bytes before those of a text or of a message within */
    WIRE_NUMBER_MAX = 15, /* bytes of a number */
};

static inline char *wire_put(char *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *to++ = (char)(value | 0x80);
    *to++ = (char)value;
    return to;
}

static inline char *wire_put_tag(char *to, uint32_t field, enum wire_type type)
{
    return wire_put(to, (uint64_t)field << 3 | type);
}

/* Fields with the value 0 or no bytes are written, too: the caller leaves out what has to be left out. */
static inline char *wire_put_varint(char *to, uint32_t field, uint64_t value)
{
    return wire_put(wire_put_tag(to, field, WIRE_VARINT), value);
}

static inline char *wire_put_bytes(char *to, uint32_t field, sv bytes)
{
    to = wire_put(wire_put_tag(to, field, WIRE_BYTES), bytes.len);
    if (bytes.len > 0)
        memcpy(to, bytes.ptr, bytes.len);
    return to + bytes.len;
}

char *wire_put_double(char *to, uint32_t field, double value);

/* A message within: what is written between the two belongs to it. Most have fewer than 128 bytes, and so a length of one
 * byte. */
static inline char *wire_open(char *to, uint32_t field)
{
    return wire_put_tag(to, field, WIRE_BYTES) + 1;
}

char *wire_close_long(char *start, char *end);

static inline char *wire_close(char *start, char *end)
{
    size_t len = (size_t)(end - start);
    if (len >= 0x80)
        return wire_close_long(start, end);
    start[-1] = (char)len;
    return end;
}

#endif
