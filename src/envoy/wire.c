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

static void add_varint(struct buf *out, uint64_t value)
{
    char bytes[VARINT_BYTES_MAX];
    size_t len = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[len++] = (char)(value | 0x80);
    bytes[len++] = (char)value;
    buf_add(out, sv_of(bytes, len));
}

static void add_tag(struct buf *out, uint32_t field, enum wire_type type)
{
    add_varint(out, (uint64_t)field << 3 | type);
}

void wire_put_varint(struct buf *out, uint32_t field, uint64_t value)
{
    add_tag(out, field, WIRE_VARINT);
    add_varint(out, value);
}

void wire_put_bytes(struct buf *out, uint32_t field, sv bytes)
{
    add_tag(out, field, WIRE_BYTES);
    add_varint(out, bytes.len);
    buf_add(out, bytes);
}

void wire_put_double(struct buf *out, uint32_t field, double value)
{
    uint64_t bits;
    char bytes[8];
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(bits >> (8 * i));
    add_tag(out, field, WIRE_I64);
    buf_add(out, sv_of(bytes, sizeof bytes));
}
