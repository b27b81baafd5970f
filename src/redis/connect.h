/* Makes connections that are ready for scripts. It blocks, so it runs in a thread of its own. */
#ifndef REDIS_CONNECT_H
#define REDIS_CONNECT_H

#include "redis/credentials.h"

enum { CONNECT_WHY_MAX = 256, RUN_ID_MAX = 64 };

struct connected {
    int fd;                          /* does not block */
    struct tls *tls;                 /* that its bytes pass through; NULL: none */
    char run_id[RUN_ID_MAX + 1];     /* "": the server does not say */
    char shown[REDIS_SHOWN_MAX + 1]; /* the server: HOST:PORT or the path of its socket */
    int64_t offset_us;               /* its clock less this host's */
};

/* Connects, through the sentinels if there are any, encrypts if the address says so, logs in, selects the database and
 * loads the scripts. `node` is the one of a cluster, else NULL. Gives up when `stop_fd` becomes readable. Returns 0, or -1
 * with `why`. The sentinel that answers is asked first the next time. */
int redis_connect(struct redis_address *address, struct credentials *credentials, int stop_fd,
                  const struct redis_endpoint *node, struct connected *ret, char why[CONNECT_WHY_MAX]);

/* Returns whether the sentinels name another master than `shown`. False if none of them answers. */
bool redis_master_moved(struct redis_address *address, struct credentials *credentials, int stop_fd, const char *shown);

#endif
