/* Private database servers for tests: in a temporary folder, on a socket there and on a free loopback port, as a user
 * without rights where the test runs as root. A process of its own looks after each of them, and stops it and removes the
 * folder when the test is over, however it ended. */
#ifndef TESTS_SOURCE_SERVERS_H
#define TESTS_SOURCE_SERVERS_H

#include "source/address.h"

struct server;

/* What has to be installed for this kind of server, or NULL if it is. */
const char *server_missing(enum source_kind kind);
/* Waits until it answers. NULL: it does not start; what it said is on stderr. */
struct server *server_start(enum source_kind kind);
void server_stop(struct server *server);

/* Through the socket, and through the port. */
const char *server_address(const struct server *server);
const char *server_tcp_address(const struct server *server);
/* The same with another password (percent-encoded), NULL: none. Valid until the next call. */
const char *server_address_with(struct server *server, const char *password);
unsigned server_port(const struct server *server);

#define SERVER_USER "weir"
#define SERVER_PASSWORD "s:e/c@ret"
#define SERVER_PASSWORD_ENCODED "s%3Ae%2Fc%40ret"

/* kill -9; and start it again, with the data that it had. */
bool server_kill(struct server *server);
bool server_restart(struct server *server);
/* It neither runs nor dies: connections stand, and nothing answers. */
bool server_freeze(struct server *server, bool frozen);

#endif
