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

enum wire_result wire_next_slowly(struct wire_reader *r, struct wire_field *ret)
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

char *wire_put_double(char *to, uint32_t field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    to = wire_put_tag(to, field, WIRE_I64);
    for (int i = 0; i < 8; i++)
        *to++ = (char)(bits >> (8 * i));
    return to;
}

char *wire_close_long(char *start, char *end)
{
    char length[VARINT_BYTES_MAX];
    size_t len = (size_t)(end - start), bytes = (size_t)(wire_put(length, len) - length);
    memmove(start - 1 + bytes, start, len);
    memcpy(start - 1, length, bytes);
    return end - 1 + bytes;
}
