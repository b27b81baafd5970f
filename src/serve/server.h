/* The service: the engine, the keeper of its rules, and the loops. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "serve/config.h"
#include "serve/loop.h"

struct weir;
struct keeper;

struct server {
    struct config config;
    struct weir *weir;
    struct keeper *keeper;
    struct loop *loops; /* loop_count that decide, then the one of the admin listener */
    unsigned loop_count;
    int64_t started_us;
    char where[FRONTS][300]; /* as it was bound: "127.0.0.1:8080", "unix:/run/weir.sock", "off" */
};

/* Runs until SIGTERM or SIGINT. Returns the exit status. */
int server_run(int argc, char **argv);

/* Compares in a time that does not tell where they differ. */
bool server_token_is(const char *token, const char *given, size_t given_len);

/* ---- the fronts: what runs in a loop ---- */

/* http_handler of the decision listener: POST /v1/check, /v1/auth */
struct http_call;
void decide_handle(struct http_call *call, void *server);
/* http_handler of the admin listener */
void admin_handle(struct http_call *call, void *server);
/* A new RESP connection. Takes over fd. */
void resp_accept(struct loop *loop, int fd, const struct sockaddr_storage *peer);

#endif
