#include "envoy/wire.h"

enum {
    VARINT_BYTES_MAX = 10,
    SHORT_BYTES_MAX = 5, /* of a tag, and of a length */
    FIELD_MAX = (1 << 29) - 1,
};

/* At most `most` bytes, and no more bits than fit. */
static bool read_varint(struct wire_reader *r, int most, uint64_t *ret)
{
    uint64_t value = 0;
    for (int i = 0; i < most && r->at < r->end; i++) {
        unsigned char byte = *r->at++;
        if (i == VARINT_BYTES_MAX - 1 && byte > 1)
            return false;
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool skip(struct wire_reader *r, uint64_t bytes)
{
    if (bytes > (uint64_t)(r->end - r->at))
        return false;
    r->at += bytes;
    return true;
}

/* Protobuf has 2 GB for the largest message; one here is far shorter. */
static bool read_bytes(struct wire_reader *r, sv *ret)
{
    uint64_t len;
    if (!read_varint(r, SHORT_BYTES_MAX, &len))
        return false;
    const unsigned char *at = r->at;
    if (!skip(r, len))
        return false;
    *ret = sv_of((const char *)at, (size_t)len);
    return true;
}

enum wire_result wire_next(struct wire_reader *r, struct wire_field *ret)
{
    uint64_t tag;
    bool good = false;
    if (r->at == r->end)
        return WIRE_END;
    if (!read_varint(r, SHORT_BYTES_MAX, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
        return WIRE_MALFORMED;
    *ret = (struct wire_field){ .number = (uint32_t)(tag >> 3), .type = (enum wire_type)(tag & 7) };
    switch (tag & 7) {
    case WIRE_VARINT:
        good = read_varint(r, VARINT_BYTES_MAX, &ret->varint);
        break;
    case WIRE_I64:
        good = skip(r, 8);
        break;
    case WIRE_BYTES:
        good = read_bytes(r, &ret->bytes);
        break;
    case WIRE_I32:
        good = skip(r, 4);
        break;
    case 3:
        return WIRE_GROUP;
    default: /* 4 ends a group that has not begun; 6 and 7 do not exist */
        break;
    }
    return good ? WIRE_FIELD : WIRE_MALFORMED;
}

/* ---- writing ---- */

static size_t varint_bytes(uint64_t value)
{
    return (size_t)(63 - __builtin_clzll(value | 1)) / 7 + 1;
}

static uint64_t tag_of(uint32_t field, enum wire_type type)
{
    return (uint64_t)field << 3 | type;
}

/* Returns the end. */
static char *varint_at(char *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *to++ = (char)(value | 0x80);
    *to++ = (char)value;
    return to;
}

void wire_put_varint(struct buf *out, uint32_t field, uint64_t value)
{
    uint64_t tag = tag_of(field, WIRE_VARINT);
    char *to = buf_room(out, varint_bytes(tag) + varint_bytes(value));
    if (to)
        buf_grown(out, varint_at(varint_at(to, tag), value));
}

void wire_put_bytes(struct buf *out, uint32_t field, sv bytes)
{
    uint64_t tag = tag_of(field, WIRE_BYTES);
    char *to = buf_room(out, varint_bytes(tag) + varint_bytes(bytes.len) + bytes.len);
    if (!to)
        return;
    to = varint_at(varint_at(to, tag), bytes.len);
    if (bytes.len > 0)
        memcpy(to, bytes.ptr, bytes.len);
    buf_grown(out, to + bytes.len);
}

void wire_put_double(struct buf *out, uint32_t field, double value)
{
    uint64_t bits, tag = tag_of(field, WIRE_I64);
    char *to = buf_room(out, varint_bytes(tag) + sizeof bits);
    if (!to)
        return;
    memcpy(&bits, &value, sizeof bits);
    to = varint_at(to, tag);
    for (int i = 0; i < 8; i++)
        *to++ = (char)(bits >> (8 * i));
    buf_grown(out, to);
}

/* Most messages have fewer than 128 bytes, and so a length of one byte. */
size_t wire_open(struct buf *out, uint32_t field)
{
    uint64_t tag = tag_of(field, WIRE_BYTES);
    char *to = buf_room(out, varint_bytes(tag) + 1);
    if (to)
        buf_grown(out, varint_at(to, tag) + 1);
    return out->len;
}

void wire_close(struct buf *out, size_t start)
{
    size_t len = out->len - start, more = varint_bytes(len) - 1;
    char *end = buf_room(out, more);
    if (!end)
        return;
    if (more > 0)
        memmove(out->ptr + start + more, out->ptr + start, len);
    varint_at(out->ptr + start - 1, len);
    buf_grown(out, end + more);
}
