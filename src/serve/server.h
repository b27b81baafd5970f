/* The service: the engine, the thread that follows its rules, and the loops. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "serve/config.h"
#include "serve/event_loop.h"
#include "serve/listen.h"

struct weir;
struct rule_sync;

/* Forward only. */
enum stage { STAGE_STARTING, STAGE_READY, STAGE_ENDING };

struct server {
    struct config config;
    struct weir *weir;
    struct rule_sync *rule_sync;
    struct loop *loops; /* loop_count that decide, then the one of the admin listener */
    unsigned loop_count;
    unsigned connections; /* config.connections, or as many as there may be open files */
    struct tokens tokens; /* of the main thread: each loop has a copy */
    int64_t started_us;
    char where[FRONTS][LISTEN_WHERE_MAX]; /* as it was bound: "127.0.0.1:8080", "unix:/run/weir.sock", "off" */
    enum stage stage;                     /* any thread may ask: server_ready, server_ending */
    struct {
        uint64_t used;
        int64_t steady_us; /* when; 0: not yet */
    } fill;                /* of the table, as report.c saw it last; the admin loop's */
};

/* Rules are in force, all listeners are open, and the end has not begun. Any thread may ask. */
bool server_ready(const struct server *server);
/* From the signal on, hence before the loops have heard of it: each further HTTP answer closes its connection. */
bool server_ending(const struct server *server);

/* Runs until SIGTERM or SIGINT. Returns the exit status. */
int server_run(int argc, char **argv);

/* From greet.c. */
void server_greet(const struct server *server);

/* From tokens.c. Makes the admin token at the first start. *tokens has what was read before, or zeroes; its generation
 * rises if one of them is another now. */
int tokens_read(struct tokens *tokens, const struct config *config, struct weir_error *error);
/* Compares in a time that does not tell where they differ. */
bool token_is(const char *token, sv given);
/* "Bearer TOKEN", as the header Authorization has it. */
bool token_is_bearer(const char *token, sv authorization);

/* ---- the fronts: what runs in a loop ---- */

/* The decision listener: POST /v1/check, /v1/auth. See struct http_service. */
struct http_call;
bool decide_screen(struct http_call *call, void *server);
void decide_handle(struct http_call *call, void *server);
/* The admin listener. */
bool admin_screen(struct http_call *call, void *server);
void admin_handle(struct http_call *call, void *server);
/* A new RESP connection. Takes over fd. */
void resp_accept(struct loop *loop, int fd, const struct sockaddr_storage *peer);
void resp_free(struct resp *resp);

#endif
