/* The connections of Redis clients to one loop. */
#ifndef SERVE_RESP_CONN_H
#define SERVE_RESP_CONN_H

#include "serve/event_loop.h"

struct resp;

/* Returns 0 or an error of libuv. */
int resp_new(struct resp **ret, struct loop *loop);
/* See struct loop_acceptor. */
void resp_accept(void *resp, int fd, const struct sockaddr_storage *peer);
void resp_free(void *resp);

#endif
