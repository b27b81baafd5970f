/* Replies of a Redis server, read where they lie. Pure: bytes in, a view of them out; nothing is copied or allocated. */
#ifndef REDIS_REPLY_H
#define REDIS_REPLY_H

#include <sys/types.h>

#include "base/buf.h"

enum reply_kind { REPLY_ERROR, REPLY_STATUS, REPLY_INTEGER, REPLY_BULK, REPLY_NULL, REPLY_ARRAY };

enum { REPLY_NESTING_MAX = 8, REPLY_BYTES_MAX = 64 << 20 };

struct reply {
    enum reply_kind kind;
    int64_t integer; /* REPLY_INTEGER */
    sv text;         /* of an error, a status, a bulk string; of an array the bytes of its elements */
    size_t count;    /* REPLY_ARRAY: elements that reply_next has not given yet */
};

/* Returns the length of the reply at the start of `bytes`, 0 if it is not complete yet, -1 if it is not RESP2. */
ssize_t reply_parse(sv bytes, struct reply *ret);
/* The next element of an array. False: there is none. */
bool reply_next(struct reply *array, struct reply *ret);
/* The answer to TIME, in microseconds since 1970. False: it is not one. */
bool reply_time(struct reply reply, int64_t *ret_us);

/* One command, as an array of bulk strings. */
void command_write_words(struct buf *out, size_t count, const sv *words);
#define COMMAND_WRITE(out, ...) \
    command_write_words(out, sizeof((const sv[]){ __VA_ARGS__ }) / sizeof(sv), (const sv[]){ __VA_ARGS__ })

#endif
