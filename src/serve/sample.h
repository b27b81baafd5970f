/* A sample of recent requests (--sample), for POST /v1/simulate: each loop that decides keeps the last ones of its own in a
 * ring of fixed size, in memory alone. The loop writes without a lock; other threads read at any time, and notice what is
 * overwritten meanwhile. */
#ifndef SERVE_SAMPLE_H
#define SERVE_SAMPLE_H

#include "base/hash.h"
#include "replay/traffic.h"

enum {
    SAMPLE_REQUEST_BYTES = 512, /* that each takes */
    SAMPLE_PATH_MAX = 240,      /* bytes of a path; a longer one is cut */
    SAMPLE_VALUE_MAX = 120,     /* bytes of any other value; a longer one is replaced by its hash */
    SAMPLE_LOOPS_MAX = 256,
    SAMPLE_HEADERS_MAX = 64, /* names that are recorded: those that rules look at, the first in order */
};

struct sample;
struct weir;

/* hashed: values that identify a person are kept as hashes with this key alone. */
int sample_new(struct sample **ret, size_t requests, bool hashed, const struct hash_key *key);
void sample_free(struct sample *sample);

/* Decisions that were made together. The thread of the loop alone calls this. */
void sample_add(struct sample *sample, struct weir *weir, const struct weir_request *requests,
                const struct weir_verdict *verdicts, size_t count, int64_t now_us);

/* ---- reading, from any thread ---- */

/* The samples of all loops as one. It begins where the first loop has lost nothing yet and none has lost anything since. */
struct sample_span {
    uint64_t seen;          /* requests decided since the start */
    uint64_t requests;      /* of them that are kept; a few more or less while loops decide */
    int64_t from_us, to_us; /* of the first and the last one; 0: there is none */
};
void sample_span(struct sample *const *samples, size_t count, struct sample_span *ret);

/* A copy of what the loops have, in the order of time. */
struct sample_copy;
int sample_copy_new(struct sample_copy **ret, struct sample *const *samples, size_t count);
void sample_copy_free(struct sample_copy *copy);
size_t sample_copy_count(const struct sample_copy *copy);
/* Requests of the copy that were decided before the loops began to record this header (its name is in lower case), whether
 * or not they had it. */
size_t sample_copy_without(const struct sample_copy *copy, sv header);

/* One request. */
struct sampled {
    struct traffic traffic; /* its strings lie in the copy, and in `room` */
    bool allowed;           /* as it was decided */
    bool cut;               /* a value was too long, see above, or had no room */
    size_t used;
    char room[2048];
};
void sample_copy_read(const struct sample_copy *copy, size_t i, struct sampled *ret);

/* The names that are recorded; calls `each` in order. */
void sample_headers(struct sample *sample, void (*each)(sv name, int64_t since_us, void *data), void *data);

#endif
