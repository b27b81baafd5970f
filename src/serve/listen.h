/* Listening sockets: from an address, or handed over by the service manager (socket activation).
 *
 * An address is "HOST:PORT", "unix:PATH" or "off". HOST is an IPv4 address, an IPv6 address in brackets, "localhost"
 * (127.0.0.1) or "*" (every address of this host); names are not looked up, since what a name server says must not decide
 * who can reach a listener. Port 0 takes any that is free. */
#ifndef SERVE_LISTEN_H
#define SERVE_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

struct weir_error;

#define LISTEN_ALLOWED "HOST:PORT (HOST an IP address, localhost or *; IPv6 in brackets), unix:PATH or off"

bool listen_is_address(const char *text);

enum { LISTEN_WHERE_MAX = 300, LISTEN_BACKLOG = 4096 };

/* Opens `count` sockets for one address, which listen, do not block and are closed by exec. `name` (http, resp, grpc,
 * admin) is the option for messages, and the name of a socket that the service manager passes: such a socket overrides the
 * address. ret_where is the address as it was bound: "127.0.0.1:43521", "unix:/run/weir.sock", "off" (no socket is
 * written). */
int listen_open(const char *name, const char *address, unsigned count, int *ret_fds, char ret_where[LISTEN_WHERE_MAX],
                struct weir_error *error);

/* Removes the file of a unix socket that was created here. Call it before the sockets are closed: the file cannot belong to
 * another process yet. */
void listen_close(const char *name, const char *where);

#endif
