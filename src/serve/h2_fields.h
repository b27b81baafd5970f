/* What HTTP demands of the fields of a request (RFC 9113, 8.1 to 8.3), in two steps: what a field is by itself, which can
 * be remembered, and whether it may be in its request. nghttp2 can check this, too, and takes an eighth of the time of a
 * call for it: it looks at each byte of each field, also of those that a client repeats in each call. */
#ifndef SERVE_H2_FIELDS_H
#define SERVE_H2_FIELDS_H

#include "base/sv.h"

/* Of one request. Begins with zeros. */
struct h2_fields {
    uint16_t seen; /* bits, see h2_fields.c */
    bool has_length;
    uint64_t length, received; /* of its body: what it says, and what has come */
};

/* A field by itself. */
struct h2_field {
    enum {
        H2_FIELD_REGULAR,   /* one without a colon; … */
        H2_FIELD_PSEUDO,    /* … or with one */
        H2_FIELD_HOST,      /* … */
        H2_FIELD_LENGTH,    /* … of the body */
        H2_FIELD_IGNORED,   /* name or value have bytes that are not allowed */
        H2_FIELD_MALFORMED, /* and so is the request */
    } kind;
    uint16_t bits; /* what it adds to `seen` */
};

struct h2_field h2_field_judge(sv name, sv value);
bool h2_fields_add_special(struct h2_fields *fields, struct h2_field field, sv value, bool trailer);
/* Adds a field to its request. False: the request is malformed. */
static inline bool h2_fields_add(struct h2_fields *fields, struct h2_field field, sv value, bool trailer)
{
    if (field.kind != H2_FIELD_REGULAR)
        return h2_fields_add_special(fields, field, value, trailer);
    fields->seen |= field.bits;
    return true;
}
/* All headers are there that have to be. */
bool h2_fields_complete(const struct h2_fields *fields);
/* More of the body has come. False: it is longer than it says. */
bool h2_fields_received(struct h2_fields *fields, size_t bytes);
/* The body is as long as it says. */
bool h2_fields_ended(const struct h2_fields *fields);

#endif
