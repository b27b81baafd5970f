/* The JSON body of POST /v1/check, /v1/reserve, /v1/settle, /v1/renew and /v1/refund: one request, or a list of requests to
 * check or reserve.
 *
 *     {"method": "GET", "path": "/search", "user": "u1", "headers": {"X-Plan": "free"}, "cost": 1}
 *
 * A strict reader for just this: it builds no document, leaves strings where they are, and allocates nothing for one
 * request without escapes. Anything it does not know is an error, so that no request is judged by less than its caller
 * sent. */
#ifndef SERVE_ASK_H
#define SERVE_ASK_H

#include "rules/attributes.h"

enum {
    ASK_REQUESTS_MAX = 1000,
    ASK_HEADERS_MAX = 100, /* of one request */
    ASK_HEADERS_INLINE = 16,
    ASK_ENTRIES_INLINE = 8, /* of descriptors */
    ASK_WHY_MAX = 400,
};

#define ASK_FIELDS REQUEST_ATTRIBUTE_NAMES "headers, descriptor, cost, costs, peek, refundable, reject"

enum ask_kind {
    ASK_CHECK = 1,
    ASK_RESERVE = 2,
    ASK_SETTLE = 4, /* one request, of which only the costs matter: WEIR_AS_HELD if `cost` was not given */
    ASK_RENEW = 8,
    ASK_REFUND = 16, /* one request, with a receipt; its other fields are read and not needed */
};

/* Points into itself: it stays where it is. */
struct ask {
    bool many;       /* a list was given, if only of one */
    bool reject;     /* a refusal is answered as its rule says; not for a list */
    sv receipt;      /* or hold: of a refund, a settlement and a renewal */
    uint32_t ttl_ms; /* of a renewal; those of requests are in them */
    bool refundable[ASK_REQUESTS_MAX];
    size_t count;
    struct weir_request *requests;
    size_t request_cap;
    struct weir_header *headers; /* of all requests, in order */
    size_t header_count, header_cap;
    struct weir_header *entries; /* of the descriptors of all requests, in order */
    size_t entry_count, entry_cap;
    struct weir_cost *costs; /* of all requests, in order, besides those in requests */
    size_t cost_count, cost_cap;
    char *unescaped; /* what strings with escapes mean */
    size_t unescaped_len;
    struct weir_request request_inline[1];
    struct weir_header headers_inline[ASK_HEADERS_INLINE];
    struct weir_header entries_inline[ASK_ENTRIES_INLINE];
    struct weir_cost costs_inline[WEIR_COSTS_MAX];
};

/* The strings of the requests lie in `text`, which has to stay. Returns 0, and ask_done has to be called; or the HTTP
 * status of the mistake (400, 413, 503), with a sentence in `why`. */
unsigned ask_read(struct ask *ret, sv text, enum ask_kind kind, char why[ASK_WHY_MAX]);
void ask_done(struct ask *ask);

#endif
