/* Makes connections that are ready for scripts. Waits, so it has a thread of its own. */
#ifndef REDIS_CONNECT_H
#define REDIS_CONNECT_H

#include "redis/address.h"

enum { CONNECT_WHY_MAX = 256, RUN_ID_MAX = 64 };

struct connected {
    int fd;                          /* does not block */
    char run_id[RUN_ID_MAX + 1];     /* "": the server does not tell */
    char shown[REDIS_SHOWN_MAX + 1]; /* the server: HOST:PORT or the path of its socket */
    int64_t offset_us;               /* its clock less this host's */
};

/* Through the sentinels if need be, with user, database and scripts. Gives up when `stop_fd` becomes readable. 0, or -1 and
 * `why`. A sentinel that answers is asked first the next time. */
int redis_connect(struct redis_address *address, int stop_fd, struct connected *ret, char why[CONNECT_WHY_MAX]);

/* Do the sentinels name another master than the one that is `shown`? False also if none of them answers. */
bool redis_master_moved(struct redis_address *address, int stop_fd, const char *shown);

#endif
