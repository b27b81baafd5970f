/* Decisions for one HTTP call or one batch of RESP commands. They are made at once; or, with --counters, when the store has
 * answered. Either way each is counted in the stats of the loop, and refusals are logged.
 *
 * A caller that has to wait keeps this structure, one `struct decision_wait` for each request, and the requests (a refusal
 * is logged and listed with what the request says), until `finished` is called. */
#ifndef SERVE_DECISIONS_H
#define SERVE_DECISIONS_H

#include "serve/event_loop.h"
#include "serve/trace.h"

struct decisions;

/* One request. */
struct decision_wait {
    struct decisions *all;
    const struct weir_request *request;
    bool waits; /* or did, until it was decided */
};

struct decisions {
    struct loop *loop;
    uint64_t read_ns; /* uv_hrtime() when the requests had been read from the network */
    size_t waiting;   /* requests without a verdict */
    /* If any request has to wait: called once for each, also for those that do not. The verdict is valid only during the
     * call. */
    void (*decided)(struct decision_wait *wait, const struct weir_verdict *verdict);
    /* Called after the last `decided`, but never from within decisions_make. May be NULL. */
    void (*finished)(struct decisions *all);
    /* May be NULL. For the log, called with this structure: the trace of a request whose own headers do not have one. */
    trace_find *trace;
};

enum { DECISIONS_WAIT = 1 };

/* Returns 0 if all verdicts are written. Returns DECISIONS_WAIT if some requests have to wait. Returns a negative code, the
 * last one, if all verdicts are written and some request could not be judged: its verdict refuses it and names no rule.
 * `first` is the first of `count` structures that begin with a struct decision_wait and have `stride` bytes each; it is not
 * used in a loop without a store. A request that has others `with` it is decided in a call of its own (count is 1). Sets
 * `each_rule` and `context` of the requests, for the stats. */
int decisions_make(struct decisions *all, struct decision_wait *first, size_t stride, struct weir_request *requests,
                   struct weir_verdict *verdicts, size_t count);

#endif
