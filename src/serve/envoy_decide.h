/* A call of Envoy's rate limit service as a decision of weir: each descriptor is a request, and all of them are decided
 * together. */
#ifndef SERVE_ENVOY_DECIDE_H
#define SERVE_ENVOY_DECIDE_H

#include "envoy/envoy.h"
#include "serve/decisions.h"

struct envoy_call {
    struct decisions decisions; /* first */
    struct decision_wait wait;
    /* Called once. NULL: the call could not be judged. */
    void (*answer)(struct envoy_call *call, const struct envoy_answer *answer);
    void *to; /* who gets the answer; NULL: nobody any more */
    size_t count, bytes;
    struct weir_request *requests;
    struct weir_verdict *own;    /* of each request; NULL: there is only one */
    struct weir_verdict *shadow; /* what its shadow rules say */
    size_t trace_len;            /* TRACE_LEN, or 0: it has none */
    char trace[TRACE_LEN];
};

enum { ENVOY_BATCH = 16 };

/* Calls with one descriptor each. They are separate decisions in the order in which they were added, but the cells of all
 * are loaded at the same time. Begins with a count of 0. */
struct envoy_batch {
    size_t count;
    struct envoy_call calls[ENVOY_BATCH];
    struct weir_request requests[ENVOY_BATCH];
    struct weir_verdict verdicts[ENVOY_BATCH], shadow[ENVOY_BATCH];
    struct weir_shadows shadows[ENVOY_BATCH];
    struct weir_header entries[ENVOY_BATCH][ENVOY_ENTRIES_MAX];
};

struct envoy_question {
    struct loop *loop;
    const struct envoy_request *request;
    /* The strings of the request lie here, and are copied if the call has to wait; empty: they stay until the answer. */
    sv text;
    uint64_t read_ns;
    void (*answer)(struct envoy_call *call, const struct envoy_answer *answer);
    void *to;
    /* If this is not NULL, the call may be added to it, and is answered by a later envoy_decide or by envoy_batch_decide.
     * The strings of the request have to stay until then. */
    struct envoy_batch *batch;
    sv trace; /* a valid traceparent, or empty; is copied */
};

enum envoy_outcome {
    ENVOY_ANSWERED, /* or added to the batch */
    ENVOY_PENDING,  /* `answer` will be called, unless *ret_pending is abandoned */
    ENVOY_MISTAKE,  /* `why` says what is wrong with the request; `answer` is not called */
    ENVOY_FULL,     /* no memory, or too many calls are pending; `answer` is not called */
};
enum envoy_outcome envoy_decide(const struct envoy_question *question, struct envoy_call **ret_pending,
                                char why[ENVOY_WHY_MAX]);

/* Decides and answers the calls of the batch, in their order. The batch is empty then. */
void envoy_batch_decide(struct envoy_batch *batch);

/* Nobody wants the answer any more: what the decision charges is given back. */
void envoy_abandon(struct envoy_call *call);

#endif
