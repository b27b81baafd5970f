/* TLS in front of any listener. A relay has the connection of the client, and hands the plain text to the listener's own
 * acceptor through a pair of sockets: so HTTP, RESP and gRPC are the same with TLS and without.
 *
 *     client ══TLS══► relay ──pair of sockets──► acceptor of the listener
 *
 * Until the handshake is over, the relay is a connection of the loop (conns.h), with the time of a request; then the
 * connection of the acceptor is. When that has ended, the relay lingers for a moment, so that the client gets the answer.
 */
#ifndef SERVE_TLS_RELAY_H
#define SERVE_TLS_RELAY_H

#include "serve/event_loop.h"

/* Replaces the acceptor by one that speaks TLS whenever the loop has a context for this front (loop->tls), and takes the
 * earlier one over. Returns 0 or UV_ENOMEM. */
int tls_relay_wrap(struct loop *loop, enum front front, struct loop_acceptor *acceptor);
/* The socket of the client, for the one that an acceptor has; without TLS they are the same. */
int tls_relay_socket(const struct loop *loop, int fd);
/* How many bytes that were written to `fd` the client has not received yet. */
size_t tls_relay_unsent(const struct loop *loop, int fd);

#endif
