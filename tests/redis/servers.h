/* A private redis-server for tests: in a temporary folder, on a free port of loopback, without persistence. A process of
 * its own looks after it, and stops it and removes the folder when the test is over, however it ended. */
#ifndef TESTS_REDIS_SERVERS_H
#define TESTS_REDIS_SERVERS_H

#include "base/buf.h"
#include "redis/reply.h"

struct redis_server {
    pid_t keeper;
    int link;                /* the server lives as long as this is open */
    unsigned port, tls_port; /* 0: none */
    char tls_texts[4][200];  /* redis_server_tls_args' */
};

/* If this variable is set, servers speak TLS, too, on a second port, and stores are asked there. It names a folder with
 * ca.pem, server.pem and server.key; see test_over_tls.py. */
#define SERVERS_TLS "WEIR_TEST_STORE_TLS"

enum { SERVER_TLS_ARGS = 10, SERVER_ADDRESS_MAX = 300 };

/* The arguments for that, which are valid as long as the server; returns how many. */
size_t redis_server_tls_args(struct redis_server *server, const char *args[SERVER_TLS_ARGS]);
/* The address of the store; `more`: what comes after the port, such as "/0?prefix=x". */
const char *redis_server_address(const struct redis_server *server, char ret[SERVER_ADDRESS_MAX], const char *more);

/* Waits until it answers. False: it does not start. */
bool redis_server_start(struct redis_server *server);
void redis_server_stop(struct redis_server *server);
/* A connection, or -1. */
int redis_server_connect(const struct redis_server *server);

/* A connection that waits. What is written to `out` goes off with the first talk_read after it. */
struct talk {
    int fd;
    struct buf out, in;
    size_t taken; /* of `in` */
};

bool talk_open(struct talk *talk, const struct redis_server *server);
void talk_close(struct talk *talk);
/* The words of a command, up to NULL. */
void talk_write(struct talk *talk, ...) __attribute__((sentinel));
/* Loads all scripts of the store. */
bool talk_load_scripts(struct talk *talk);
/* The next reply; valid until the next call. False: there is none. */
bool talk_read(struct talk *talk, struct reply *ret);

#endif
