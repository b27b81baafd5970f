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
};

struct envoy_question {
    struct loop *loop;
    const struct envoy_request *request;
    /* The strings of the request lie here, and are copied if the call has to wait; empty: they stay until the answer. */
    sv text;
    uint64_t read_ns;
    void (*answer)(struct envoy_call *call, const struct envoy_answer *answer);
    void *to;
};

enum envoy_outcome {
    ENVOY_ANSWERED,
    ENVOY_PENDING, /* `answer` will be called, unless *ret_pending is abandoned */
    ENVOY_MISTAKE, /* `why` says what is wrong with the request; `answer` is not called */
    ENVOY_FULL,    /* no memory, or too many calls are pending; `answer` is not called */
};
enum envoy_outcome envoy_decide(const struct envoy_question *question, struct envoy_call **ret_pending,
                                char why[ENVOY_WHY_MAX]);

/* Nobody wants the answer any more: what the decision charges is given back. */
void envoy_abandon(struct envoy_call *call);

#endif
