/* The wire format of protobuf. */
#ifndef ENVOY_WIRE_H
#define ENVOY_WIRE_H

#include "base/buf.h"
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
enum wire_result wire_next(struct wire_reader *r, struct wire_field *ret);

/* Fields with the value 0 or no bytes are written, too: the caller leaves out what has to be left out. */
void wire_put_varint(struct buf *out, uint32_t field, uint64_t value);
void wire_put_bytes(struct buf *out, uint32_t field, sv bytes);
void wire_put_double(struct buf *out, uint32_t field, double value);
/* A message within: what is written between the two belongs to it. */
size_t wire_open(struct buf *out, uint32_t field);
void wire_close(struct buf *out, size_t start);

#endif
