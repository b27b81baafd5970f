/* The memory of a sample. Private to sample.c and sample_read.c. */
#ifndef SERVE_SAMPLE_RING_H
#define SERVE_SAMPLE_RING_H

#include <pthread.h>

#include "rules/rules.h"
#include "serve/sample.h"

/* One request. `seq` is odd while it is written. The words are stored one by one with release, and loaded with acquire:
 * a reader that sees a new word sees a new `seq` afterwards. */
enum { SLOT_WORDS = SAMPLE_REQUEST_BYTES / 8 - 1 };
struct slot {
    uint64_t seq;
    uint64_t words[SLOT_WORDS];
};
_Static_assert(sizeof(struct slot) == SAMPLE_REQUEST_BYTES, "as the documents say");

/* The words: this, then fields up to `bytes`. A field is its tag, the length of its value, and the value. */
struct record {
    int64_t now_us;
    uint64_t cost;
    uint16_t bytes;
    bool allowed, cut;
};

enum {
    FIELD_ATTRIBUTE = 0, /* + enum attribute; of the ip its 16 bytes */
    FIELD_HEADER = 32,   /* a name; the next field is its value */
    FIELD_HEADER_VALUE,
    FIELD_COST,  /* the amount in 8 bytes, then the unit */
    FIELD_ENTRY, /* the key of an entry of the descriptor; the next field is its value */
    FIELD_ENTRY_VALUE,
    FIELD_GIVEN,       /* a limit that the request brings: its max and its window in milliseconds, 8 bytes each */
    FIELD_HASHED = 64, /* a bit: the value is a hash, in 8 bytes */
    FIELD_VALUE_MAX = 255,
};
_Static_assert((int)REQUEST_ATTRIBUTE_COUNT <= (int)FIELD_HEADER, "tags differ");

struct sample_header {
    char name[RULE_NAME_MAX + 1];
    size_t len;
    int64_t since_us; /* requests from then on have it */
};

struct sample_names {
    struct sample_header list[SAMPLE_HEADERS_MAX];
    size_t count;
};

struct sample {
    struct slot *slots;
    uint64_t capacity;
    uint64_t written; /* requests since the start: request i is in slot i % capacity */
    bool hashed;
    struct hash_key key;
    uint64_t version; /* of the rules whose headers are in `names` */

    /* Only its loop writes the names, when the rules have changed and the lock is free. */
    pthread_mutex_t lock;
    struct sample_names names;
};

/* Returns the value of `seq` after request i was written. */
static inline uint64_t slot_seq(const struct sample *sample, uint64_t i)
{
    return i / sample->capacity * 2 + 2;
}

#endif
