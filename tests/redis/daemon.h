/* A redis-server or a sentinel that is a child of the test, which may stop it, kill it and start it again. It ends with
 * the test, however that ends. */
#ifndef TESTS_REDIS_DAEMON_H
#define TESTS_REDIS_DAEMON_H

#include "servers.h"

enum { DAEMON_ARGS_MAX = 64 };

struct daemon {
    struct redis_server server; /* its port, for talk_open */
    pid_t pid;
    unsigned bus_port; /* of a node of a cluster; 0: it is not one */
    const char *args[DAEMON_ARGS_MAX + 1];
    char port[16], bus[16];
    char folder[32];
};

/* `more` are further arguments, up to NULL; or NULL. Waits until it accepts connections. */
void daemon_start(struct daemon *d, const char *const *more);
/* A node of a cluster, with a free port for the cluster bus. See cluster.h. */
void daemon_start_node(struct daemon *d, const char *const *more);
/* A sentinel for the master of the name "main", with its file in `folder`. */
void daemon_start_sentinel(struct daemon *d, const char *folder, unsigned master_port);
void daemon_again(struct daemon *d);
/* kill -9; it may be started again. */
void daemon_kill(struct daemon *d);
void daemon_end(struct daemon *d);
void daemon_freeze(struct daemon *d, bool frozen);

/* One command and its answer as text: "OK", ":1", "-ERR …". Words up to NULL. */
const char *daemon_ask(const struct daemon *d, ...) __attribute__((sentinel));

#endif
