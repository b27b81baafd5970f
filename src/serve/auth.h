/* Forward auth: a gateway describes a request of its client in headers.
 *
 * The gateway is trusted, but it also passes on headers of its client: a client may send any of these headers too, and a
 * gateway replaces only those that it knows. So two headers that contradict each other are an error; weir never picks one.
 */
#ifndef SERVE_AUTH_H
#define SERVE_AUTH_H

#include "base/sv.h"

enum { AUTH_HEADERS_MAX = 100, AUTH_WHY_MAX = 300 };

/* The gateway that asks. */
struct auth_gateway {
    sv peer;        /* its address; empty: it came through a unix socket */
    sv user_header; /* whose value is the user; empty: none */
    bool has_token; /* Authorization is the gateway's own, and not its client's */
};

struct auth {
    struct weir_request request;
    struct weir_header headers[AUTH_HEADERS_MAX]; /* those of the client; its Host is request.host */
};

/* The strings lie in `headers`, which have to stay. False: `why` says what is wrong. */
bool auth_read(struct auth *ret, const struct auth_gateway *gateway, const struct weir_header *headers, size_t count,
               char why[AUTH_WHY_MAX]);

#endif
